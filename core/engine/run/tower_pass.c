/* core/engine/run/tower_pass.c - plans over the patches of a tile. Its rows are in one pass, so
 * that attention may look in both directions; a plan ends where rows are handed to the decoder, or
 * where layers begin to see windows or whole tiles. Groups of merge x merge patches stand side by
 * side, so that a group's row is the stream read as fewer and wider rows. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/tower_state.h"
#include "core/model/rope.h"

static const gw_plan_device *device_of(const gw_tower *t, int d) {
    return &t->model->place.devices[d];
}

static gw_status alloc(const gw_tower *t, int d, size_t bytes, struct gw_buffer **out) {
    return device_of(t, d)->backend->alloc(device_of(t, d)->device, bytes, out);
}

static int pages_of(int rows) { return (rows - 1) / GW_PAGE + 1; }

static int windowed(const gw_tower *t, int layer) {
    return t->window > 0 && gw_tower_number(t, "windowed", layer, 0.0) != 0.0;
}

static int is_tapped(const gw_tower *t, int layer) {
    const gw_hparams *hp = &t->model->hp;
    int any = 0;
    for (int b = 0; b < t->bp->n_blocks && hp->deep_kind > 0; b++) {
        const gw_spec_block *block = &t->bp->block[b];
        any |= block->section == GW_SECTION_LAYER && block->layer_kind == hp->deep_kind - 1 &&
               gw_block_runs(block, hp, layer);
    }
    return any;
}

/* ---- memory --------------------------------------------------------------------------------- */

static gw_tensor plain(const char *name, gw_fmt fmt, int64_t rows, int64_t cols,
                       struct gw_buffer *buf, int d) {
    return (gw_tensor){
        .name = name, .fmt = fmt, .n_dim = 2, .dim = {rows, cols}, .buf = buf, .device = d};
}

/* Of keys and values: no narrower than the products that they come from. */
static gw_fmt cache_format(const gw_tower *t, int d) {
    const gw_plan_device *device = device_of(t, d);
    const gw_fmt weights = gw_weights_format(t->model->weights);
    const int narrow = weights == GW_FMT_F16 || weights == GW_FMT_BF16;
    const gw_backend *b = device->backend;
    return narrow && b->matrix16 != NULL && b->matrix16(device->device) ? GW_FMT_F16 : GW_FMT_F32;
}

/* All layers of a device share one cache: their keys and values live until the layer is over. */
static gw_status make_cache(gw_tower *t, gw_tower_pass *p) {
    const gw_hparams *hp = &t->model->hp;
    size_t need[GW_MAX_DEVICES] = {0};
    const size_t cells = (size_t)t->model->place.n_devices * (size_t)hp->n_layers;
    p->k = calloc(cells, sizeof *p->k);
    p->v = calloc(cells, sizeof *p->v);
    p->table_of = calloc((size_t)hp->n_layers, 1);
    if (p->k == NULL || p->v == NULL || p->table_of == NULL) {
        return gw_fail(GW_E_NOMEM, "image", "no memory for %d layers", hp->n_layers);
    }
    for (int l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        int d = gw_graph_cache_device(t->bp, hp, t->where, l);
        const gw_fmt fmt = cache_format(t, d);
        size_t page = (size_t)y->n_kv_heads * GW_PAGE * (fmt == GW_FMT_F16 ? 2 : sizeof(float));
        size_t k = (size_t)p->pages * page * (size_t)y->d_head;
        size_t v = (size_t)p->pages * page * (size_t)y->v_head;
        gw_tensor *own_k = &p->k[d * hp->n_layers + l], *own_v = &p->v[d * hp->n_layers + l];
        *own_k = (gw_tensor){.name = "K cache",
                             .fmt = fmt,
                             .n_dim = 4,
                             .dim = {p->pages, y->n_kv_heads, y->d_head, GW_PAGE},
                             .device = d};
        *own_v = (gw_tensor){.name = "V cache",
                             .fmt = fmt,
                             .n_dim = 4,
                             .dim = {p->pages, y->n_kv_heads, GW_PAGE, y->v_head},
                             .offset = k,
                             .device = d};
        need[d] = y->has_cache && k + v > need[d] ? k + v : need[d];
        p->table_of[l] = (unsigned char)windowed(t, l);
    }
    for (int d = 0; d < t->model->place.n_devices; d++) {
        GW_TRY(need[d] > 0 ? alloc(t, d, need[d], &p->cells[d]) : GW_OK);
    }
    for (size_t i = 0; i < cells; i++) {
        p->k[i].buf = p->v[i].buf = p->cells[p->k[i].device];
    }
    return GW_OK;
}

static gw_status make_given(gw_tower *t, gw_tower_pass *p, int d, int which) {
    int value = which == 0 ? t->patches : t->places;
    int32_t width = which == 0 ? t->pixels : t->model->hp.d_model;
    if (value < 0) {
        return GW_OK;
    }
    GW_TRY(alloc(t, d, (size_t)p->rows * (size_t)width * sizeof(float), &p->given[d][which]));
    p->kept[d][value] =
        plain(t->bp->value[value], GW_FMT_F32, p->rows, width, p->given[d][which], d);
    return GW_OK;
}

static gw_status make_on(gw_tower *t, gw_tower_pass *p, int d) {
    const gw_hparams *hp = &t->model->hp;
    const int slots[2] = {1, p->windows}, per[2] = {pages_of(p->rows), p->window_pages};
    GW_TRY(alloc(t, d, (size_t)p->rows * (size_t)hp->d_model * sizeof(float), &p->stream[d]));
    p->stream_on[d] = plain("stream", GW_FMT_F32, p->rows, hp->d_model, p->stream[d], d);
    for (int i = 0; i < 2; i++) {
        size_t cells = (size_t)slots[i] * (size_t)per[i];
        GW_TRY(alloc(t, d, cells * sizeof(int32_t) + 4, &p->table[d][i]));
        p->table_on[i][d] = plain("pages", GW_FMT_I32, slots[i], per[i], p->table[d][i], d);
        GW_TRY(make_given(t, p, d, i));
    }
    for (int r = 0; r < hp->n_ropes; r++) {
        size_t row = (size_t)hp->rope[r].dim * sizeof(float);
        if (row == 0) {
            continue;
        }
        GW_TRY(alloc(t, d, (size_t)p->rows * row, &p->rope[d][r]));
        p->rope_on[d][r] = (gw_tensor){.name = "rope",
                                       .fmt = GW_FMT_F32,
                                       .n_dim = 3,
                                       .dim = {p->rows, 2, hp->rope[r].dim / 2},
                                       .buf = p->rope[d][r],
                                       .device = d};
    }
    return GW_OK;
}

/* ---- plans ---------------------------------------------------------------------------------- */

static gw_graph_inputs inputs_of(gw_tower *t, gw_tower_pass *p, int rows) {
    return (gw_graph_inputs){.hp = &t->model->hp,
                             .weights = t->model->weights,
                             .where = t->where,
                             .n_devices = t->model->place.n_devices,
                             .rope = p->rope_on[0],
                             .page_table = p->table_on[0],
                             .table_of = p->table_of,
                             .k = p->k,
                             .v = p->v,
                             .kept = p->kept[0],
                             .stream = p->stream_on,
                             .rows = rows,
                             .order = GW_ORDER_PREFILL};
}

static gw_status freeze(gw_tower *t, gw_tower_leg *leg, int rows) {
    const gw_place *place = &t->model->place;
    GW_TRY(gw_graph_check(&leg->graph));
    GW_TRY(gw_plan_build(leg->graph.nodes, leg->graph.n_nodes, place->devices, place->n_devices,
                         rows, t->model->arenas, &leg->plan));
    gw_watch watch = {.cancel = NULL};
    return gw_plan_ready(leg->plan, &watch);
}

static gw_status build_layers(gw_tower *t, gw_tower_pass *p, int first, int end) {
    gw_tower_leg *leg = &p->leg[p->n_legs++];
    gw_graph_inputs in = inputs_of(t, p, p->rows);
    leg->windowed = windowed(t, first);
    GW_TRY(gw_graph_new(&in, &leg->graph));
    gw_graph_body(&leg->graph, &in, first, end);
    return freeze(t, leg, p->rows);
}

/* layer: what goes from there; n_layers: the head. */
static gw_status build_part(gw_tower *t, gw_tower_pass *p, int layer, int part) {
    gw_tower_leg *leg = &p->leg[p->n_legs++];
    const gw_hparams *hp = &t->model->hp;
    const int group = t->merge * t->merge, rows = p->rows / group;
    gw_graph_inputs in = inputs_of(t, p, rows);
    gw_tensor folded[GW_MAX_DEVICES];
    for (int d = 0; d < t->model->place.n_devices; d++) {
        folded[d] = p->stream_on[d];
        folded[d].dim[0] = rows;
        folded[d].dim[1] = (int64_t)hp->d_model * group;
    }
    in.stream = folded;
    leg->part = 1 + part;
    leg->device = layer < hp->n_layers ? gw_graph_stream_device(t->bp, hp, t->where, layer + 1)
                                       : gw_graph_head_device(t->bp, hp, t->where);
    GW_TRY(alloc(t, leg->device, (size_t)rows * (size_t)t->d_out * sizeof(float), &leg->result));
    in.logits = plain("rows", GW_FMT_F32, rows, t->d_out, leg->result, leg->device);
    GW_TRY(gw_graph_new(&in, &leg->graph));
    if (layer < hp->n_layers) {
        gw_graph_deep(&leg->graph, &in, layer);
    } else {
        gw_graph_head(&leg->graph, &in, 0);
    }
    return freeze(t, leg, rows);
}

enum { LAYERS_AT_ONCE = 4 }; /* a run is cancelled, and lets others compute, between plans */

static gw_status build(gw_tower *t, gw_tower_pass *p, int rows) {
    const int n_layers = t->model->hp.n_layers, group = t->merge * t->merge;
    p->rows = rows / group * group;
    p->window_pages = t->window > 0 ? pages_of(t->window * t->window * group) : 1;
    p->windows = t->window > 0 ? p->rows / (group * t->window) + 1 : 1;
    p->pages = p->windows * p->window_pages;
    p->pages = p->pages > pages_of(p->rows) ? p->pages : pages_of(p->rows);
    p->leg = calloc(2 * (size_t)n_layers + 1, sizeof *p->leg);
    size_t most = (size_t)(t->pixels > t->model->hp.d_model ? t->pixels : t->model->hp.d_model);
    size_t handed = (size_t)t->d_out / (size_t)group + 1; /* floats of a result for each patch */
    p->room = malloc((size_t)p->rows * (most > handed ? most : handed) * sizeof *p->room);
    if (p->leg == NULL || p->room == NULL) {
        return gw_fail(GW_E_NOMEM, "image", "no memory for plans of %d layers", n_layers);
    }
    GW_TRY(make_cache(t, p));
    for (int d = 0; d < t->model->place.n_devices; d++) {
        GW_TRY(make_on(t, p, d));
    }
    for (int l = 0, first = 0, part = 1; l < n_layers; l++) {
        int tapped = is_tapped(t, l), last = l + 1 == n_layers;
        int many = l - first + 1 >= LAYERS_AT_ONCE;
        if (tapped || last || many || windowed(t, l) != windowed(t, l + 1)) {
            GW_TRY(build_layers(t, p, first, l + 1));
            first = l + 1;
        }
        GW_TRY(tapped ? build_part(t, p, l, part++) : GW_OK);
    }
    return build_part(t, p, n_layers, 0);
}

void gw_tower_pass_free(gw_tower *t, gw_tower_pass *p) {
    for (int i = 0; i < p->n_legs; i++) {
        gw_plan_free(p->leg[i].plan);
        gw_graph_free(&p->leg[i].graph);
        if (p->leg[i].result != NULL) {
            device_of(t, p->leg[i].device)->backend->release(p->leg[i].result);
        }
    }
    for (int d = 0; d < t->model->place.n_devices; d++) {
        struct gw_buffer *const buffers[] = {p->stream[d],   p->cells[d],    p->table[d][0],
                                             p->table[d][1], p->given[d][0], p->given[d][1]};
        for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
            if (buffers[i] != NULL) {
                device_of(t, d)->backend->release(buffers[i]);
            }
        }
        for (int r = 0; r < GW_MAX_ROPES; r++) {
            if (p->rope[d][r] != NULL) {
                device_of(t, d)->backend->release(p->rope[d][r]);
            }
        }
    }
    free(p->leg);
    free(p->room);
    free(p->k);
    free(p->v);
    free(p->table_of);
    memset(p, 0, sizeof *p);
}

static gw_status pass_for(gw_tower *t, int n, gw_tower_pass **out) {
    static const int sizes[GW_TOWER_SIZES] = {512, 1536, 4096, GW_ROWS_MAX};
    int i = 0;
    while (i + 1 < GW_TOWER_SIZES && sizes[i] / (t->merge * t->merge) * t->merge * t->merge < n) {
        i++;
    }
    gw_tower_pass *p = &t->pass[i];
    if (p->leg == NULL) {
        gw_status status = build(t, p, sizes[i]);
        if (status != GW_OK) {
            gw_tower_pass_free(t, p);
            return status;
        }
    }
    *out = p;
    return GW_OK;
}

/* ---- what the host makes of a tile ---------------------------------------------------------- */

static gw_status write_to(gw_tower *t, struct gw_buffer *const *buffers, size_t step,
                          const void *from, size_t bytes) {
    for (int d = 0; d < t->model->place.n_devices; d++) {
        struct gw_buffer *to = buffers[(size_t)d * step];
        GW_TRY(to != NULL ? device_of(t, d)->backend->write(to, 0, from, bytes) : GW_OK);
    }
    return GW_OK;
}

/* The values of one patch: where it comes with several equal frames, those of as many as the
 * tower's matrix has. */
static void copy_patch(const gw_tower *t, const float *from, int32_t width, float *to) {
    const int32_t plane = t->pixels / 3, times = width / t->pixels;
    for (int c = 0; c < 3; c++) {
        memcpy(to + c * plane, from + c * plane * times, (size_t)plane * sizeof *to);
    }
    for (int32_t i = 0; i < t->pixels && (t->patch_less != 0.0f || t->patch_times != 1.0f); i++) {
        to[i] = (to[i] - t->patch_less) * t->patch_times;
    }
}

static gw_status give_patches(gw_tower *t, gw_tower_pass *p, const gw_patches *patches,
                              const gw_tile *tile, const gw_grid_order *o) {
    const size_t wide = (size_t)t->pixels, n = (size_t)o->n;
    for (size_t i = 0; i < n; i++) {
        const float *from =
            patches->values + (size_t)(tile->first + o->from[i]) * (size_t)patches->width;
        copy_patch(t, from, patches->width, p->room + i * wide);
    }
    const size_t more = (size_t)gw_tower_more(t);
    memset(p->room + n * wide, 0, more * wide * sizeof *p->room);
    return write_to(t, &p->given[0][0], 2, p->room, (n + more) * wide * sizeof *p->room);
}

static gw_status give_places(gw_tower *t, gw_tower_pass *p, const gw_tile *tile,
                             const gw_grid_order *o) {
    const size_t d = (size_t)t->model->hp.d_model, n = (size_t)o->n;
    if (t->places < 0) {
        return GW_OK;
    }
    GW_TRY(gw_grid_places(t->table != NULL ? t->grid : GW_GRID_NONE, t->table, t->entries,
                          t->model->hp.d_model, tile->rows, tile->columns,
                          (const int32_t(*)[2])o->at, o->n, p->room));
    for (size_t i = 0; i < n * d && t->place_b != NULL; i++) {
        p->room[i] += t->place_b[i % d];
    }
    const size_t more = (size_t)gw_tower_more(t);
    if (more > 0) {
        memcpy(p->room + n * d, t->class_row, d * sizeof *p->room);
    }
    return write_to(t, &p->given[0][1], 2, p->room, (n + more) * d * sizeof *p->room);
}

static gw_status give_ropes(gw_tower *t, gw_tower_pass *p, const gw_grid_order *o) {
    const gw_hparams *hp = &t->model->hp;
    const int32_t first = gw_tower_number(t, "first_at", 0, 0.0) != 0.0; /* a class token is at 0 */
    gw_status status = GW_OK;
    for (int r = 0; r < hp->n_ropes && status == GW_OK; r++) {
        const gw_rope *rope = &hp->rope[r];
        const size_t n = (size_t)(o->n + gw_tower_more(t)), row = (size_t)rope->dim;
        float *table = malloc(n * (row + 1) * sizeof *table);
        double *freq = malloc((row + 1) * sizeof *freq), magnitude;
        int32_t(*at)[3] = malloc(n * sizeof *at);
        if (table == NULL || freq == NULL || at == NULL) {
            status = gw_fail(GW_E_NOMEM, "image", "no memory for %zu positions", n);
        } else if (row > 0) {
            for (size_t i = 0; i < n; i++) {
                at[i][0] = 0;
                at[i][1] = i < (size_t)o->n ? first + o->at[i][0] : 0;
                at[i][2] = i < (size_t)o->n ? first + o->at[i][1] : 0;
            }
            gw_rope_frequencies(rope, hp->n_ctx, freq, &magnitude);
            gw_rope_fill_grid(rope, freq, magnitude, (const int32_t(*)[3])at, (int32_t)n, table);
            status = write_to(t, &p->rope[0][r], GW_MAX_ROPES, table, n * row * sizeof *table);
        }
        free(table);
        free(freq);
        free(at);
    }
    return status;
}

/* Pages in order: a tile's follow one another, and so do those of each window. */
static gw_status give_pages(gw_tower *t, gw_tower_pass *p) {
    const size_t whole = (size_t)pages_of(p->rows);
    const size_t parts = (size_t)p->windows * (size_t)p->window_pages;
    const size_t n = whole > parts ? whole : parts;
    int32_t *pages = malloc(n * sizeof *pages);
    if (pages == NULL) {
        return gw_fail(GW_E_NOMEM, "image", "no memory for %zu pages", n);
    }
    for (size_t i = 0; i < n; i++) {
        pages[i] = (int32_t)i;
    }
    gw_status status = write_to(t, &p->table[0][0], 2, pages, whole * sizeof *pages);
    status =
        status == GW_OK ? write_to(t, &p->table[0][1], 2, pages, parts * sizeof *pages) : status;
    free(pages);
    return status;
}

/* What a tile's shape alone decides; it stays on the devices for the next tile of that shape. */
static gw_status give_shape(gw_tower *t, gw_tower_pass *p, const gw_tile *tile,
                            const gw_grid_order *o) {
    if (p->shape[0] == tile->rows && p->shape[1] == tile->columns) {
        return GW_OK;
    }
    p->shape[0] = p->shape[1] = 0;
    GW_TRY(give_places(t, p, tile, o));
    GW_TRY(give_ropes(t, p, o));
    GW_TRY(give_pages(t, p));
    p->shape[0] = tile->rows;
    p->shape[1] = tile->columns;
    return GW_OK;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* Rows of whole tiles, with `more` after the patches, or of windows, each a sequence of its own. */
static void set_step(gw_step *s, const gw_grid_order *o, int windows, int more) {
    const int32_t n = o->n + more;
    s->n = s->n_pick = n;
    s->pick = s->pos_max = 0;
    for (int32_t first = 0, end; first < n; first = end) {
        end = windows ? first : n;
        while (end < o->n && o->window[end] == o->window[first]) {
            end++;
        }
        for (int32_t i = first; i < end; i++) {
            s->token[i] = s->type[i] = 0;
            s->slot[i] = windows ? o->window[i] : 0;
            s->pos[i] = i - first;
            s->less[i] = -first; /* angles are those of the patch */
            s->last[i] = end - first - 1;
        }
        s->pos_max = end - first - 1 > s->pos_max ? end - first - 1 : s->pos_max;
    }
}

/* By the exponents: a loop that leaves at the first value would look at one after the other. */
static int all_finite(const float *x, size_t n) {
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        any |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !any;
}

enum { READ_BYTES = 1 << 20 }; /* at once: they are in the caches while they are looked at */

static gw_status run_leg(gw_tower *t, gw_tower_leg *leg, const gw_grid_order *o, float *room,
                         float *out) {
    const int32_t group = t->merge * t->merge, rows = o->n / group;
    const size_t d = (size_t)t->d_out, width = d * (size_t)(1 + t->n_deep);
    set_step(&t->step, o, leg->windowed, gw_tower_more(t));
    if (leg->part > 0) {
        t->step.n = t->step.n_pick = rows;
    }
    GW_TRY(gw_plan_run(leg->plan, &t->step));
    if (leg->part == 0) {
        return GW_OK;
    }
    const size_t of_row = d * sizeof *room;
    const int32_t some = of_row < READ_BYTES ? (int32_t)(READ_BYTES / of_row) : 1;
    for (int32_t from = 0; from < rows; from += some) {
        const int32_t end = rows - from < some ? rows : from + some;
        GW_TRY(device_of(t, leg->device)
                   ->backend->read(leg->result, (size_t)from * of_row, room,
                                   (size_t)(end - from) * of_row));
        for (int32_t i = from; i < end; i++) {
            const float *row = room + (size_t)(i - from) * d;
            if (!all_finite(row, d)) {
                return gw_fail(GW_E_NUMERIC, t->model->name,
                               "rows of the vision tower are not finite: its weights are damaged");
            }
            memcpy(out + (size_t)o->group[i] * width + (size_t)(leg->part - 1) * d, row,
                   d * sizeof *out);
        }
    }
    return GW_OK;
}

gw_status gw_tower_run(gw_tower *t, const gw_patches *patches, int32_t number,
                       gw_between_fn between, void *user, float *out) {
    const gw_tile *tile = &patches->tile[number];
    gw_tower_pass *p = NULL;
    gw_grid_order o = {0};
    gw_status status;
    GW_TRY(pass_for(t, tile->rows * tile->columns + gw_tower_more(t), &p));
    GW_TRY(gw_grid_arrange(tile->rows, tile->columns, t->merge, t->by_block, t->window, &o));
    GW_TRY_DONE(give_patches(t, p, patches, tile, &o));
    GW_TRY_DONE(give_shape(t, p, tile, &o));
    for (int i = 0; i < p->n_legs; i++) {
        GW_TRY_DONE(between != NULL && between(user) != 0
                        ? gw_fail(GW_E_CANCELLED, "image", "cancelled at tile %d", number)
                        : run_leg(t, &p->leg[i], &o, p->room, out));
    }
done:
    gw_grid_free(&o);
    return status;
}

gw_status gw_tower_count(gw_tower *t, const gw_patches *patches, int32_t number,
                         gw_tower_ops *ops) {
    const int32_t n = patches->tile[number].rows * patches->tile[number].columns;
    gw_tower_pass *p = NULL;
    GW_TRY(pass_for(t, n + gw_tower_more(t), &p));
    for (int i = 0; i < p->n_legs; i++) {
        const gw_tower_leg *leg = &p->leg[i];
        const int32_t rows = leg->part > 0 ? n / (t->merge * t->merge) : n;
        for (size_t k = 0; k < gw_plan_size(leg->plan); k++) {
            const gw_node *node = gw_plan_node(leg->plan, k);
            double bytes = 0.0, its = 0.0;
            if (node->op == GW_OP_LINEAR || node->op == GW_OP_GLU) {
                gw_op_describe(node->op)->cost(node, rows, n, &bytes, &its);
                *(node->in[0]->fmt == GW_FMT_F32 ? &ops->floats : &ops->integers) += its;
            }
        }
    }
    return GW_OK;
}
