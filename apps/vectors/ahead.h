/* apps/vectors/ahead.h - tokens of some texts of a list, made by a thread of their own while a card
 * computes vectors of those before them. */
#ifndef GW_APPS_AHEAD_H
#define GW_APPS_AHEAD_H

#include "apps/encode.h"
#include "core/base/os_threads.h"

typedef struct vectors_ahead {
    const app_options *o; /* these by the caller */
    gw_model *model;
    const gw_encoder *encoder;
    const app_items *items;
    const char *prefix;
    size_t first, n; /* of the list */
    app_encoded tokens;
    pthread_t thread;
    int code, runs; /* runs: in a thread */
} vectors_ahead;

/* Begin with items [first, first + n) in a thread. The list, the model and the encoder live until
 * vectors_ahead_end. */
void vectors_ahead_begin(vectors_ahead *ahead, size_t first, size_t n);
/* Tokens of items [first, first + n), begun or not; those of other items are waited for and
 * forgotten. Exit code; freed by app_encoded_free in any case. */
int vectors_ahead_end(vectors_ahead *ahead, size_t first, size_t n, app_encoded *out);

#endif
