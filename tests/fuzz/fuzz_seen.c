/* tests/fuzz/fuzz_seen.c - the pictures of a session's file: two bytes say how many runs and tokens
 * the file speaks of, the rest is the piece. What is taken is written and taken once more. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/session_pictures.h"
#include "core/engine/run/session_state.h"
#include "tests/fuzz/fuzz.h"

enum { WIDTH = 4, PARTS = 2 };

typedef struct piece {
    const uint8_t *at;
    uint8_t *out;
    size_t left, n;
} piece;

static gw_status take(void *user, void *data, size_t bytes) {
    piece *p = user;
    if (bytes > p->left) {
        abort(); /* it was to be compared with what is left */
    }
    memcpy(data, p->at, bytes);
    p->at += bytes;
    p->left -= bytes;
    return GW_OK;
}

static gw_status put(void *user, const void *data, size_t bytes) {
    piece *p = user;
    memcpy(p->out + p->n, data, bytes);
    p->n += bytes;
    return GW_OK;
}

/* Written and taken again it is the same timeline. */
static void again(gw_session *s, int32_t n, int32_t tokens) {
    const size_t bytes = (size_t)gw_pictures_bytes(&s->views);
    static gw_session other;
    piece p = {.out = malloc(bytes)};
    other.model = s->model;
    other.seeing.parts = PARTS;
    other.views = (gw_views){.grid = s->views.grid};
    if (p.out == NULL || gw_pictures_put(&s->views, put, &p) != GW_OK || p.n != bytes) {
        abort();
    }
    p.at = p.out;
    p.left = bytes;
    if (gw_pictures_take(&other, "again", n, tokens, bytes, take, &p) != GW_OK || p.left != 0 ||
        other.views.n != s->views.n) {
        abort();
    }
    for (int32_t i = 0; i < n; i++) {
        const gw_view *a = &s->views.view[i], *b = &other.views.view[i];
        if (a->first != b->first || a->n != b->n || a->pos != b->pos || a->less != b->less ||
            gw_views_less(&s->views, a->pos + a->n) != gw_views_less(&other.views, b->pos + b->n)) {
            abort();
        }
    }
    gw_views_free(&other.views);
    free(p.out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static gw_model model;
    static gw_session s;
    model.hp.d_model = WIDTH;
    s.model = &model;
    s.seeing.parts = PARTS;
    if (size < 3) {
        return 0;
    }
    piece p = {.at = data + 2, .left = size - 2};
    const int32_t n = 1 + data[0] % 16, tokens = data[1];
    s.views = (gw_views){.grid = data[0] >> 7};
    gw_status status = gw_pictures_take(&s, "fuzz", n, tokens, size - 2, take, &p);
    fuzz_judge(status);
    if (status == GW_OK) {
        if (s.views.n != n || p.left != 0) {
            abort();
        }
        again(&s, n, tokens);
    }
    gw_views_free(&s.views);
    return 0;
}
