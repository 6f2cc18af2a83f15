/* core/model/weights_sample.c - weights to measure devices with: a few layers, made up. */
#include <stdlib.h>
#include <string.h>

#include "core/model/weights_parts.h"

enum { NGRAMS = 1024 };

/* 0x2c in every byte: an f16 of 0.07, a bf16 or f32 of 2e-12, codes of 12 and 44. */
static gw_status rows_made_up(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const gw_entry *e = src->state;
    size_t row;
    (void)first;
    GW_TRY(gw_row_bytes(e->t.fmt, (uint64_t)e->t.dim[1], &row));
    memset(dst, 0x2c, (size_t)n * row);
    return GW_OK;
}

static gw_status load_matrix(gw_weights *w, gw_entry *e, const gw_group *group, int card) {
    const gw_plan_device *d = &w->devices[card];
    gw_weight_source src = {
        .rows = rows_made_up, .state = e, .keep_rows = e->keep_rows || e->plain};
    gw_entry_share share;
    if (group->n == 1) {
        GW_TRY(d->backend->load_weight(d->device, &e->t, &src));
        e->t.device = card;
        e->owned = 1;
        return GW_OK;
    }
    GW_TRY(gw_entry_share_of(w, e, group, card, &share));
    GW_TRY(d->backend->load_weight(d->device, &share.t, &src));
    share.t.device = card;
    w->shares[card][e - w->entries] = share.t;
    return GW_OK;
}

static gw_status place_vector(const gw_weights *w, const gw_entry *e, const gw_group *group,
                              int card, size_t at) {
    gw_entry_share share;
    GW_TRY(gw_entry_share_of(w, e, group, card, &share));
    share.t.buf = w->vectors[card];
    share.t.offset = at;
    share.t.device = card;
    w->copies[card][e - w->entries] = share.t;
    return GW_OK;
}

static gw_status load_on(gw_weights *w, const gw_group *group, int card, const float *small,
                         size_t bytes) {
    const gw_plan_device *d = &w->devices[card];
    size_t n = w->start[w->bp.n_weights], at = 0;
    GW_TRY(d->backend->write(w->vectors[card], 0, small, bytes));
    w->shares[card] = group->n > 1 ? calloc(n + 1, sizeof *w->shares[card]) : NULL;
    if (group->n > 1 && w->shares[card] == NULL) {
        return gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
    }
    for (size_t i = 0; i < n; i++) {
        gw_entry *e = &w->entries[i];
        if (!gw_entry_there(e)) {
            continue;
        }
        GW_TRY(e->t.n_dim == 1 ? place_vector(w, e, group, card, at)
                               : load_matrix(w, e, group, card));
        at += gw_entry_vector_bytes(e);
    }
    return GW_OK;
}

/* Columns are of every device at once. */
static gw_status load_columns(const gw_weights *w) {
    size_t at = 0;
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        const gw_entry *e = &w->entries[i];
        if (gw_entry_there(e)) {
            GW_TRY(e->t.n_dim == 2 && e->column != NULL ? gw_weights_load_column(w, e, at) : GW_OK);
            at += gw_entry_vector_bytes(e);
        }
    }
    return GW_OK;
}

static gw_status load_sample(gw_weights *w, const gw_group *group) {
    size_t bytes = gw_weights_vectors(w, NULL);
    float *small = malloc(bytes);
    gw_status status;
    if (small == NULL) {
        return gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
    }
    for (size_t i = 0; i < bytes / sizeof *small; i++) {
        small[i] = 1e-4f; /* norms: products of made-up weights stay within an f16 */
    }
    GW_TRY_DONE(gw_weights_make_vectors(w, bytes));
    for (int c = 0; c < group->n; c++) {
        GW_TRY_DONE(load_on(w, group, c, small, bytes));
    }
    GW_TRY_DONE(load_columns(w));
done:
    free(small);
    return status;
}

/* n layers spread over those there are. */
static int sample_layers(gw_weights *s, int n) {
    size_t width = (size_t)s->hp.n_values, all = (size_t)s->hp.n_layers;
    size_t blocks = (size_t)s->hp.n_blocks;
    s->layers = calloc((size_t)n, sizeof *s->layers);
    s->values = calloc((size_t)n * width + 1, sizeof *s->values);
    s->skips = calloc((size_t)(n + 1) * blocks + 1, 1);
    if (s->skips == NULL) {
        return 0;
    }
    memcpy(s->skips + (size_t)n * blocks, s->hp.skips + all * blocks, blocks);
    for (size_t i = 0; s->layers != NULL && s->values != NULL && i < (size_t)n; i++) {
        size_t from = i * all / (size_t)n;
        s->layers[i] = s->hp.layer[from];
        s->layers[i].has_cache |= s->layers[i].cache_of != (int32_t)from;
        s->layers[i].cache_of = (int32_t)i; /* each its own */
        memcpy(s->values + i * width, s->hp.values + from * width, width * sizeof *s->values);
        memcpy(s->skips + i * blocks, s->hp.skips + from * blocks, blocks);
    }
    s->hp.n_layers = n;
    s->hp.layer = s->layers;
    s->hp.values = s->values;
    s->hp.skips = s->skips;
    return s->layers != NULL && s->values != NULL;
}

/* The layer of entry i of a role in the sample, which was `layer` of w. */
static int layer_of(const gw_weights *w, const gw_weights *s, int role, size_t i, int layer) {
    return layer == w->hp.n_layers        ? s->hp.n_layers
           : s->bp.weight[role].per_layer ? (int)i
           : layer < s->hp.n_layers       ? layer
                                          : 0;
}

/* Rows for every table of n-grams: those of the sample's blocks. Of a model's own there may be more
 * bytes than of memory, and a token reads a row of each hash, however many there are. */
static int64_t ngram_rows(const gw_weights *s) {
    int64_t most = 0;
    for (int at = 0; at < s->hp.n_layers * s->bp.n_blocks; at++) {
        int layer = at / s->bp.n_blocks;
        const gw_spec_block *b = &s->bp.block[at % s->bp.n_blocks];
        if (b->kind == GW_BLOCK_NGRAM && gw_block_runs(b, &s->hp, layer)) {
            gw_ngram g;
            gw_ngram_args a = gw_block_ngram(&s->bp, &s->hp, layer, b);
            int last = (a.size - 1) * a.heads - 1; /* a graph of it has been checked */
            gw_ngram_init(&g, &a);
            most = g.first[last] + g.rows[last] > most ? g.first[last] + g.rows[last] : most;
        }
    }
    return most;
}

static void shorten_tables(gw_weights *s) {
    int64_t rows = ngram_rows(s);
    for (size_t i = 0; i < s->start[s->bp.n_weights]; i++) {
        gw_entry *e = &s->entries[i];
        if (gw_entry_there(e) && e->t.n_dim == 2 && s->bp.block[e->block].kind == GW_BLOCK_NGRAM &&
            e->t.dim[0] > rows) {
            e->t.dim[0] = rows;
        }
    }
}

gw_status gw_weights_sample(const gw_weights *w, const gw_plan_device *devices,
                            const gw_group *group, int n, gw_weights **out) {
    gw_weights *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
    }
    s->bp = w->bp;
    s->hp = w->hp;
    s->hp.most_ngrams = NGRAMS;
    s->where = w->where;
    s->devices = devices;
    s->n_devices = group->n;
    for (int r = 0; r < s->bp.n_weights; r++) {
        s->start[r + 1] = s->start[r] + (s->bp.weight[r].per_layer ? (size_t)n : 1);
    }
    gw_status status;
    s->entries = calloc(s->start[s->bp.n_weights] + 1, sizeof *s->entries);
    if (s->entries == NULL || !sample_layers(s, n)) {
        status = gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
        goto done;
    }
    for (int r = 0; r < s->bp.n_weights; r++) {
        for (size_t i = 0; i < s->start[r + 1] - s->start[r]; i++) {
            size_t from = s->bp.weight[r].per_layer ? i * (size_t)w->hp.n_layers / (size_t)n : 0;
            gw_entry *e = &s->entries[s->start[r] + i];
            *e = w->entries[w->start[r] + from];
            e->layer = layer_of(w, s, r, i, e->layer);
        }
    }
    shorten_tables(s);
    GW_TRY_DONE(load_sample(s, group));
    *out = s;
    return GW_OK;
done:
    gw_weights_free(s);
    return status;
}
