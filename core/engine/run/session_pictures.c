/* core/engine/run/session_pictures.c - see session_pictures.h. */
#include "core/engine/run/session_pictures.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"
#include "core/engine/run/session_state.h"

typedef struct piece_head {
    int32_t sights, unused;
} piece_head;

typedef struct sight_head {
    uint8_t digest[GW_PICTURE_DIGEST];
    int64_t n_patches;
    int32_t n_tiles, n_rows, width, unused;
} sight_head;

typedef struct run {
    int32_t sight, first, n, pos;
} run;

_Static_assert(sizeof(gw_sight_tile) == 12 && sizeof(sight_head) == 56, "a piece has no gaps");

/* Is it the first run of its sight? */
static int is_new(const gw_views *v, int32_t i) {
    int32_t k = 0;
    if (i > 0 && v->view[i - 1].sight == v->view[i].sight) { /* most are neighbours */
        return 0;
    }
    while (v->view[k].sight != v->view[i].sight) {
        k++;
    }
    return k == i;
}

/* The sight's number among those of the runs before. */
static int32_t number_of(const gw_views *v, const gw_sight *sight) {
    int32_t number = 0;
    for (int32_t i = 0; v->view[i].sight != sight; i++) {
        number += is_new(v, i);
    }
    return number;
}

static uint64_t bytes_of(const gw_sight *s) {
    return sizeof(sight_head) + (uint64_t)s->n_tiles * sizeof *s->tile +
           (uint64_t)s->n_rows * (uint64_t)s->width * sizeof *s->rows;
}

uint64_t gw_pictures_bytes(const gw_views *v) {
    uint64_t bytes = v->n > 0 ? sizeof(piece_head) + (uint64_t)v->n * sizeof(run) : 0;
    for (int32_t i = 0; i < v->n; i++) {
        bytes += is_new(v, i) ? bytes_of(v->view[i].sight) : 0;
    }
    return bytes;
}

static gw_status put_sight(const gw_sight *s, gw_pictures_put_fn put, void *user) {
    sight_head h = {
        .n_patches = s->n_patches, .n_tiles = s->n_tiles, .n_rows = s->n_rows, .width = s->width};
    memcpy(h.digest, s->digest, sizeof h.digest);
    GW_TRY(put(user, &h, sizeof h));
    GW_TRY(put(user, s->tile, (size_t)s->n_tiles * sizeof *s->tile));
    return put(user, s->rows, (size_t)s->n_rows * (size_t)s->width * sizeof *s->rows);
}

gw_status gw_pictures_put(const gw_views *v, gw_pictures_put_fn put, void *user) {
    piece_head h = {0};
    for (int32_t i = 0; i < v->n; i++) {
        h.sights += is_new(v, i);
    }
    GW_TRY(v->n > 0 ? put(user, &h, sizeof h) : GW_OK);
    for (int32_t i = 0; i < v->n; i++) {
        GW_TRY(is_new(v, i) ? put_sight(v->view[i].sight, put, user) : GW_OK);
    }
    for (int32_t i = 0, number = 0; i < v->n; i++) {
        const gw_view *x = &v->view[i];
        const int same = i > 0 && v->view[i - 1].sight == x->sight;
        number = same ? number : number_of(v, x->sight);
        const run r = {number, x->first, x->n, x->pos};
        GW_TRY(put(user, &r, sizeof r));
    }
    return GW_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reader {
    const char *path;
    uint64_t left; /* bytes of the piece */
    gw_pictures_take_fn take;
    void *user;
} reader;

static gw_status damaged(const reader *r) {
    return gw_fail(GW_E_METADATA, r->path, "is damaged: its pictures do not fit its tokens");
}

static gw_status get(reader *r, void *data, uint64_t bytes) {
    if (bytes > r->left) {
        return damaged(r);
    }
    r->left -= bytes;
    return r->take(r->user, data, (size_t)bytes);
}

/* Tiles follow one another and have all rows. */
static int whole(const gw_sight *s) {
    int64_t n = 0;
    int fine = 1;
    for (int32_t i = 0; i < s->n_tiles && fine; i++) {
        const gw_sight_tile *x = &s->tile[i];
        fine = x->first == n && x->rows > 0 && x->columns > 0;
        n += (int64_t)x->rows * x->columns;
        fine = fine && n <= s->n_rows;
    }
    return fine && n == s->n_rows;
}

static gw_status take_sight(reader *r, int64_t width, gw_sight **out) {
    sight_head h;
    GW_TRY(get(r, &h, sizeof h));
    if (h.width != width || h.n_tiles < 1 || h.n_rows < h.n_tiles || h.n_patches < h.n_rows ||
        (uint64_t)h.n_tiles > r->left / sizeof(gw_sight_tile) ||
        (uint64_t)h.n_rows > r->left / ((uint64_t)width * sizeof(float))) {
        return damaged(r);
    }
    gw_sight *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, r->path, "no memory for its pictures");
    }
    atomic_init(&s->holders, 1);
    memcpy(s->digest, h.digest, sizeof s->digest);
    s->n_patches = h.n_patches;
    s->n_tiles = h.n_tiles;
    s->n_rows = h.n_rows;
    s->width = h.width;
    s->tile = malloc((size_t)h.n_tiles * sizeof *s->tile);
    s->rows = malloc((size_t)h.n_rows * (size_t)width * sizeof *s->rows);
    gw_status status = s->tile != NULL && s->rows != NULL
                           ? get(r, s->tile, (uint64_t)h.n_tiles * sizeof *s->tile)
                           : gw_fail(GW_E_NOMEM, r->path, "no memory for its pictures");
    status = status == GW_OK && !whole(s) ? damaged(r) : status;
    if (status == GW_OK) {
        status = get(r, s->rows, (uint64_t)h.n_rows * (uint64_t)width * sizeof *s->rows);
    }
    if (status != GW_OK) {
        gw_sight_free(s);
        return status;
    }
    *out = s;
    return GW_OK;
}

/* All runs at once: gw_views_add looks whether they follow one another within the tokens. */
static gw_status take_runs(reader *r, gw_views *v, gw_sight *const *sight, int32_t n_sights,
                           int32_t n, int32_t tokens) {
    gw_seen_rows *seen = calloc((size_t)n, sizeof *seen);
    gw_status status =
        seen != NULL ? GW_OK : gw_fail(GW_E_NOMEM, r->path, "no memory for its pictures");
    for (int32_t i = 0; i < n && status == GW_OK; i++) {
        run x;
        status = get(r, &x, sizeof x);
        if (status == GW_OK && (x.sight < 0 || x.sight >= n_sights || x.pos < 0)) {
            status = damaged(r);
        }
        if (status == GW_OK) {
            seen[i] = (gw_seen_rows){sight[x.sight], x.first, x.n, (size_t)x.pos};
        }
    }
    status = status == GW_OK && r->left > 0 ? damaged(r) : status;
    if (status == GW_OK && gw_views_add(v, seen, (size_t)n, 0, (size_t)tokens) != GW_OK) {
        status = damaged(r);
    }
    free(seen);
    return status;
}

gw_status gw_pictures_take(gw_session *s, const char *path, int32_t n, int32_t tokens,
                           uint64_t bytes, gw_pictures_take_fn take, void *user) {
    reader r = {path, bytes, take, user};
    const int64_t width = (int64_t)s->seeing.parts * s->model->hp.d_model;
    piece_head h;
    GW_TRY(get(&r, &h, sizeof h));
    if (h.sights < 1 || h.sights > n) {
        return damaged(&r);
    }
    gw_sight **sight = calloc((size_t)h.sights, sizeof *sight);
    gw_status status =
        sight != NULL ? GW_OK : gw_fail(GW_E_NOMEM, path, "no memory for its pictures");
    for (int32_t i = 0; i < h.sights && status == GW_OK; i++) {
        status = take_sight(&r, width, &sight[i]);
    }
    if (status == GW_OK) {
        status = take_runs(&r, &s->views, sight, h.sights, n, tokens);
    }
    for (int32_t i = 0; sight != NULL && i < h.sights; i++) {
        gw_sight_free(sight[i]); /* runs hold what they need */
    }
    free(sight);
    return status;
}

/* ---- what a prompt has in common with a session ---------------------------------------------- */

/* Alike to the last bit, whatever made them. */
static int alike(const gw_sight *a, const gw_sight *b) {
    return a == b ||
           (a->n_rows == b->n_rows && a->width == b->width && a->n_tiles == b->n_tiles &&
            memcmp(a->tile, b->tile, (size_t)a->n_tiles * sizeof *a->tile) == 0 &&
            memcmp(a->rows, b->rows, (size_t)a->n_rows * (size_t)a->width * sizeof *a->rows) == 0);
}

size_t gw_session_same_seen(const gw_session *s, const gw_seen_rows *seen, size_t n_seen,
                            size_t n) {
    const gw_views *v = &s->views;
    size_t begin = 0; /* of the picture that the run belongs to */
    for (size_t i = 0; i < n_seen || i < (size_t)v->n; i++) {
        const gw_seen_rows *x = i < n_seen ? &seen[i] : NULL;
        const gw_view *y = i < (size_t)v->n ? &v->view[i] : NULL;
        const size_t at = x != NULL ? x->at : (size_t)y->pos;
        const size_t first = y != NULL && (size_t)y->pos < at ? (size_t)y->pos : at;
        if (first >= n) {
            break;
        }
        begin = x == NULL || x->first == 0 ? first : begin;
        if (x == NULL || y == NULL || (size_t)y->pos != x->at || y->n != x->n ||
            y->first != x->first || !alike(y->sight, x->sight)) {
            return begin;
        }
        const size_t end = x->at + (size_t)x->n;
        if (end > n || (end == n && x->first + x->n < gw_sight_rows(x->sight))) {
            return begin;
        }
    }
    return n;
}
