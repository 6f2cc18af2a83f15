/* apps/pictures.h - the pictures of --image, read as the model takes them. */
#ifndef GW_APPS_PICTURES_H
#define GW_APPS_PICTURES_H

#include "apps/common.h"
#include "include/godwit_image.h"
#include "include/godwit_see.h"

typedef struct app_pictures {
    gw_images *images; /* NULL: none were given */
    gw_patches **at;   /* [n] */
    size_t n;
    gw_sight **sight; /* [n] what they become for the model; NULL: not yet */
    gw_seen_rows *seen;
    size_t n_seen;
} app_pictures;

/* Pictures of the files paths [n] for the model of o. Exit code; pictures_free in any case. */
int pictures_open(app_pictures *p, const app_options *o);
int pictures_read(app_pictures *p, const char *path); /* one more */
void pictures_free(app_pictures *p);

/* The prompt of the pictures and, after them, the text: a user's message where the model has a chat
 * template, else one after the other. *ids [n]: gw_free. Computes what the pictures become (sight)
 * and where their rows stand in the prompt (seen). The model is opened with its vision tower. Exit
 * code. */
int pictures_prompt(app_pictures *p, const app_options *o, gw_model *model, const app_text *text,
                    int32_t **ids, size_t *n);

#endif
