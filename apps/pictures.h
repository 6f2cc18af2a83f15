/* apps/pictures.h - the pictures of --image, read as the model takes them. */
#ifndef GW_APPS_PICTURES_H
#define GW_APPS_PICTURES_H

#include "apps/common.h"
#include "include/godwit_image.h"

typedef struct app_pictures {
    gw_images *images; /* NULL: none were given */
    gw_patches **at;   /* [n] */
    size_t n;
} app_pictures;

/* Pictures of the files paths [n] for the model of o. Exit code; pictures_free in any case. */
int pictures_open(app_pictures *p, const app_options *o);
int pictures_read(app_pictures *p, const char *path); /* one more */
void pictures_free(app_pictures *p);

#endif
