/* apps/vectors/ahead.c - tokens of the next texts, in a thread. */
#include "apps/vectors/ahead.h"

#include <string.h>

static void *tokenize(void *user) {
    vectors_ahead *a = user;
    memset(&a->tokens, 0, sizeof a->tokens);
    a->code = app_encode(a->o, a->model, a->encoder, a->items, a->first, a->n, a->prefix, NULL,
                         &a->tokens);
    return NULL;
}

void vectors_ahead_begin(vectors_ahead *ahead, size_t first, size_t n) {
    ahead->first = first;
    ahead->n = n;
    ahead->runs = pthread_create(&ahead->thread, NULL, tokenize, ahead) == 0;
}

int vectors_ahead_end(vectors_ahead *ahead, size_t first, size_t n, app_encoded *out) {
    int ran = ahead->runs, same = ahead->first == first && ahead->n == n;
    if (ran) {
        pthread_join(ahead->thread, NULL);
        ahead->runs = 0;
    }
    if (ran && !same) {
        app_encoded_free(&ahead->tokens);
    }
    if (!ran || !same) {
        ahead->first = first;
        ahead->n = n;
        tokenize(ahead);
    }
    *out = ahead->tokens;
    return ahead->code;
}
