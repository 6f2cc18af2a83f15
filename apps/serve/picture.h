/* apps/serve/picture.h - the pictures of a request, from any API's JSON to files in memory.
 *
 * While a conversation is fitted to a template its contents are texts, and a mark stands for each
 * picture: one that nobody can guess, so that no text of a client's is one. What is given to the
 * template has parts again (picture_parts). */
#ifndef GW_APPS_SERVE_PICTURE_H
#define GW_APPS_SERVE_PICTURE_H

#include <jansson.h>

#include "apps/serve/fault.h"

enum { PICTURES_MAX = 64, PICTURE_MARK = 48 };

typedef struct look look; /* sights.h */

typedef struct picture {
    char *file; /* malloc'd [bytes]; NULL: it is at the address, or has been read */
    char *url;  /* malloc'd; NULL: it came with the request                       */
    size_t bytes;
    char field[64];  /* where it is in the request, for messages                       */
    int of_a_result; /* of a tool: one that cannot be read is only named               */
    int dropped;     /* it is                                                          */
    look *look;      /* NULL: not read yet                                             */
} picture;

/* Begin with zeros. */
typedef struct picture_list {
    picture *at; /* [n] */
    size_t n;
    size_t *order; /* [n_order] those that the prompt has, as they stand there */
    size_t n_order;
    char mark[24]; /* what marks begin with; "": none yet */
} picture_list;

void picture_list_free(picture_list *l);

/* Is a part of this type a picture, in the words of any API? */
int picture_is(const char *type);
/* Another one: part as it came, type a name that picture_is knows, field where it is. 0 and what
 * stands for it in texts, or -1 and *f. */
int picture_add(picture_list *l, const json_t *part, const char *type, const char *field,
                char mark[PICTURE_MARK], fault *f);
/* A file in base64, also as a data URI; the same. */
int picture_add_file(picture_list *l, const json_t *text, const char *field, fault *f);

/* A text with marks as parts, {"type": "image"} for each picture, which is added to the order;
 * pictures that are dropped are named. NULL: it has no marks, or there is no memory. */
json_t *picture_parts(picture_list *l, const json_t *text);
/* Moves the marks of a text to `out`, one after another. NULL: it has none. */
json_t *picture_take_marks(const picture_list *l, const json_t *text, json_t **rest);

#endif
