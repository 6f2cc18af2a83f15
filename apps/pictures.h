/* apps/pictures.h - the pictures of --image, read as the model takes them. */
#ifndef GW_APPS_PICTURES_H
#define GW_APPS_PICTURES_H

#include "apps/common.h"
#include "include/godwit_image.h"
#include "include/godwit_see.h"

enum { PICTURES_BLIND = 256 };

typedef struct app_pictures {
    gw_images *images; /* NULL: none were given */
    gw_patches **at;   /* [n] */
    char **name;       /* [n] of their files */
    size_t n;
    gw_sight **sight; /* [n] what they become for the model; NULL: not yet */
    gw_seen_rows *seen;
    size_t n_seen;
} app_pictures;

/* Pictures of the files paths [n] for the model of o. Exit code; pictures_free in any case. */
int pictures_open(app_pictures *p, const app_options *o);
/* --mmproj without pictures: is it there, and a vision tower? Exit code. */
int pictures_check(const app_options *o);
int pictures_read(app_pictures *p, const char *path);          /* one more */
size_t pictures_find(const app_pictures *p, const char *path); /* its number; n: there is none */
/* The rows of the i-th, computed when first needed. */
gw_status pictures_see(app_pictures *p, gw_model *model, size_t i);
void pictures_free(app_pictures *p);

/* Opens a model with its eyes where it has some that can be opened, else without: *images NULL, and
 * blind [PICTURES_BLIND] says why, "" where nobody wonders. --mmproj has to be opened. */
gw_status pictures_open_model(const app_options *o, gw_model_options *options, gw_model **model,
                              gw_images **images, char *blind);

/* The prompt of the pictures and, after them, the text: a user's message where the model has a chat
 * template, else one after the other. *ids [n]: gw_free. Computes what the pictures become (sight)
 * and where their rows stand in the prompt (seen). The model is opened with its vision tower. Exit
 * code. */
int pictures_prompt(app_pictures *p, const app_options *o, gw_model *model, const app_text *text,
                    int32_t **ids, size_t *n);

#endif
