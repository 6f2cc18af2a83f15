/* core/engine/run/tower_room.c - memory of a tower's plans: the stream, what the host writes, keys
 * and values, results. It is taken for the largest tile, and the plans of smaller ones use the
 * same. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/tower_state.h"

/* Stands for memory that is only counted. */
static char counted;

static gw_status alloc(const gw_tower *t, gw_tower_room *room, int d, size_t bytes,
                       struct gw_buffer **out) {
    const gw_plan_device *device = gw_tower_device(t, d);
    if (room->need != NULL) {
        room->need[d] += bytes;
        *out = (struct gw_buffer *)(void *)&counted;
        return GW_OK;
    }
    return device->backend->alloc(device->device, bytes, out);
}

static void release(const gw_tower *t, int d, struct gw_buffer *buffer) {
    if (buffer != NULL && buffer != (struct gw_buffer *)(void *)&counted) {
        gw_tower_device(t, d)->backend->release(buffer);
    }
}

int gw_tower_windowed(const gw_tower *t, int layer) {
    return t->window > 0 && gw_tower_number(t, "windowed", layer, 0.0) != 0.0;
}

/* Of keys and values: no narrower than the products that they come from. */
static gw_fmt cache_format(const gw_tower *t, int d) {
    const gw_plan_device *device = gw_tower_device(t, d);
    const gw_fmt weights = gw_weights_format(t->model->weights);
    const int narrow = weights == GW_FMT_F16 || weights == GW_FMT_BF16;
    const gw_backend *b = device->backend;
    return narrow && b->matrix16 != NULL && b->matrix16(device->device) ? GW_FMT_F16 : GW_FMT_F32;
}

/* ---- a room --------------------------------------------------------------------------------- */

static size_t kv_bytes(const gw_tower *t, const gw_layer *y, int d, int width) {
    const size_t each = cache_format(t, d) == GW_FMT_F16 ? 2 : sizeof(float);
    return (size_t)y->n_kv_heads * GW_PAGE * (size_t)width * each;
}

/* All layers of a device share one cache: their keys and values live until the layer is over. */
static gw_status make_cells(gw_tower *t, gw_tower_room *r) {
    const gw_hparams *hp = &t->model->hp;
    size_t need[GW_MAX_DEVICES] = {0};
    for (int l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        const int d = gw_graph_cache_device(t->bp, hp, t->where, l);
        const size_t page = kv_bytes(t, y, d, y->d_head) + kv_bytes(t, y, d, y->v_head);
        const size_t all = (size_t)r->pages * page;
        need[d] = y->has_cache && all > need[d] ? all : need[d];
    }
    for (int d = 0; d < t->model->place.n_devices; d++) {
        GW_TRY(need[d] > 0 ? alloc(t, r, d, need[d], &r->cells[d]) : GW_OK);
    }
    return GW_OK;
}

static gw_status make_on(gw_tower *t, gw_tower_room *r, int d) {
    const gw_hparams *hp = &t->model->hp;
    const size_t rows = (size_t)r->rows;
    const int slots[2] = {1, r->windows}, per[2] = {gw_tower_pages(r->rows), r->window_pages};
    const int value[2] = {t->patches, t->places};
    const int32_t width[2] = {t->pixels, hp->d_model};
    GW_TRY(alloc(t, r, d, rows * (size_t)hp->d_model * sizeof(float), &r->stream[d]));
    for (int i = 0; i < 2; i++) {
        size_t cells = (size_t)slots[i] * (size_t)per[i];
        GW_TRY(alloc(t, r, d, cells * sizeof(int32_t) + 4, &r->table[d][i]));
        GW_TRY(value[i] >= 0
                   ? alloc(t, r, d, rows * (size_t)width[i] * sizeof(float), &r->given[d][i])
                   : GW_OK);
    }
    for (int i = 0; i < hp->n_ropes; i++) {
        const size_t row = (size_t)hp->rope[i].dim * sizeof(float);
        GW_TRY(row > 0 ? alloc(t, r, d, rows * row, &r->rope[d][i]) : GW_OK);
    }
    return GW_OK;
}

static void sizes_of(const gw_tower *t, int rows, int *windows, int *window_pages, int *pages) {
    const int group = t->merge * t->merge;
    *window_pages = t->window > 0 ? gw_tower_pages(t->window * t->window * group) : 1;
    *windows = t->window > 0 ? rows / (group * t->window) + 1 : 1;
    *pages = *windows * *window_pages;
    *pages = *pages > gw_tower_pages(rows) ? *pages : gw_tower_pages(rows);
}

gw_status gw_tower_room_new(gw_tower *t, gw_tower_room *r, int rows) {
    const size_t group = (size_t)(t->merge * t->merge), d = (size_t)t->model->hp.d_model;
    const size_t pixels = (size_t)t->pixels, most = pixels > d ? pixels : d;
    const size_t handed = (size_t)t->d_out / group + 1; /* floats of a result for each patch */
    r->rows = rows;
    sizes_of(t, rows, &r->windows, &r->window_pages, &r->pages);
    if (r->need == NULL) {
        r->host = malloc((size_t)rows * (most > handed ? most : handed) * sizeof *r->host);
        if (r->host == NULL) {
            return gw_fail(GW_E_NOMEM, "image", "no memory for %d patches", rows);
        }
    }
    GW_TRY(make_cells(t, r));
    for (int i = 0; i < t->model->place.n_devices; i++) {
        GW_TRY(make_on(t, r, i));
    }
    for (int part = 0; part <= t->n_deep; part++) {
        GW_TRY(alloc(t, r, r->result_on[part],
                     (size_t)rows / group * (size_t)t->d_out * sizeof(float), &r->result[part]));
    }
    return GW_OK;
}

void gw_tower_room_free(gw_tower *t, gw_tower_room *r) {
    for (int d = 0; d < t->model->place.n_devices; d++) {
        struct gw_buffer *const buffers[] = {r->stream[d],   r->cells[d],    r->table[d][0],
                                             r->table[d][1], r->given[d][0], r->given[d][1]};
        for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
            release(t, d, buffers[i]);
        }
        for (int i = 0; i < GW_MAX_ROPES; i++) {
            release(t, d, r->rope[d][i]);
        }
    }
    for (int part = 0; part < GW_TOWER_ENDS; part++) {
        release(t, r->result_on[part], r->result[part]);
    }
    free(r->host);
    memset(r, 0, sizeof *r);
}

/* ---- a pass over it -------------------------------------------------------------------------- */

static gw_tensor plain(const char *name, gw_fmt fmt, int64_t rows, int64_t cols,
                       struct gw_buffer *buf, int d) {
    return (gw_tensor){
        .name = name, .fmt = fmt, .n_dim = 2, .dim = {rows, cols}, .buf = buf, .device = d};
}

static gw_status cache_tensors(gw_tower *t, gw_tower_pass *p) {
    const gw_hparams *hp = &t->model->hp;
    const size_t cells = (size_t)t->model->place.n_devices * (size_t)hp->n_layers;
    p->k = calloc(cells, sizeof *p->k);
    p->v = calloc(cells, sizeof *p->v);
    p->table_of = calloc((size_t)hp->n_layers, 1);
    if (p->k == NULL || p->v == NULL || p->table_of == NULL) {
        return gw_fail(GW_E_NOMEM, "image", "no memory for %d layers", hp->n_layers);
    }
    for (size_t i = 0; i < cells; i++) {
        p->k[i].buf = p->v[i].buf = p->room->cells[0];
    }
    for (int l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        const int d = gw_graph_cache_device(t->bp, hp, t->where, l);
        const gw_fmt fmt = cache_format(t, d);
        p->k[d * hp->n_layers + l] =
            (gw_tensor){.name = "K cache",
                        .fmt = fmt,
                        .n_dim = 4,
                        .dim = {p->pages, y->n_kv_heads, y->d_head, GW_PAGE},
                        .buf = p->room->cells[d],
                        .device = d};
        p->v[d * hp->n_layers + l] =
            (gw_tensor){.name = "V cache",
                        .fmt = fmt,
                        .n_dim = 4,
                        .dim = {p->pages, y->n_kv_heads, GW_PAGE, y->v_head},
                        .buf = p->room->cells[d],
                        .offset = (size_t)p->pages * kv_bytes(t, y, d, y->d_head),
                        .device = d};
        p->table_of[l] = (unsigned char)gw_tower_windowed(t, l);
    }
    return GW_OK;
}

gw_status gw_tower_pass_tensors(gw_tower *t, gw_tower_pass *p, int rows) {
    const gw_hparams *hp = &t->model->hp;
    const gw_tower_room *r = p->room;
    p->rows = rows;
    sizes_of(t, rows, &p->windows, &p->window_pages, &p->pages);
    const int slots[2] = {1, p->windows}, per[2] = {gw_tower_pages(rows), p->window_pages};
    const int value[2] = {t->patches, t->places};
    const int32_t width[2] = {t->pixels, hp->d_model};
    for (int d = 0; d < t->model->place.n_devices; d++) {
        p->stream_on[d] = plain("stream", GW_FMT_F32, rows, hp->d_model, r->stream[d], d);
        for (int i = 0; i < 2; i++) {
            p->table_on[i][d] = plain("pages", GW_FMT_I32, slots[i], per[i], r->table[d][i], d);
            if (value[i] >= 0) {
                p->kept[d][value[i]] =
                    plain(t->bp->value[value[i]], GW_FMT_F32, rows, width[i], r->given[d][i], d);
            }
        }
        for (int i = 0; i < hp->n_ropes; i++) {
            if (r->rope[d][i] != NULL) {
                p->rope_on[d][i] = (gw_tensor){.name = "rope",
                                               .fmt = GW_FMT_F32,
                                               .n_dim = 3,
                                               .dim = {rows, 2, hp->rope[i].dim / 2},
                                               .buf = r->rope[d][i],
                                               .device = d};
            }
        }
    }
    return cache_tensors(t, p);
}
