/* core/engine/run/tower_pass.c - plans over the patches of a tile. Its rows are in one pass, so
 * that attention may look in both directions; a plan ends where rows are handed to the decoder, or
 * where layers begin to see windows or whole tiles. Groups of merge x merge patches stand side by
 * side, so that a group's row is the stream read as fewer and wider rows. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/tower_state.h"
#include "core/model/rope.h"

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

/* ---- plans ---------------------------------------------------------------------------------- */

static gw_graph_inputs inputs_of(gw_tower *t, gw_tower_pass *p, int rows) {
    return (gw_graph_inputs){.hp = &t->model->hp,
                             .weights = t->model->weights,
                             .where = t->where,
                             .n_devices = t->model->place.n_devices,
                             .outline = p->room->need != NULL,
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

/* Where memory is only counted, there is no plan. */
static gw_status freeze(gw_tower *t, gw_tower_pass *p, gw_tower_leg *leg, int rows) {
    const gw_place *place = &t->model->place;
    GW_TRY(gw_graph_check(&leg->graph));
    if (p->arena != NULL) {
        return gw_plan_need(leg->graph.nodes, leg->graph.n_nodes, place->devices, place->n_devices,
                            rows, p->arena);
    }
    GW_TRY(gw_plan_build(leg->graph.nodes, leg->graph.n_nodes, place->devices, place->n_devices,
                         rows, t->model->arenas, &leg->plan));
    gw_watch watch = {.cancel = NULL};
    return gw_plan_ready(leg->plan, &watch);
}

static gw_status build_layers(gw_tower *t, gw_tower_pass *p, int first, int end) {
    gw_tower_leg *leg = &p->leg[p->n_legs++];
    gw_graph_inputs in = inputs_of(t, p, p->rows);
    leg->windowed = gw_tower_windowed(t, first);
    GW_TRY(gw_graph_new(&in, &leg->graph));
    gw_graph_body(&leg->graph, &in, first, end);
    return freeze(t, p, leg, p->rows);
}

/* The device of the part of a row that is made after a layer; n_layers: of the head. */
static int device_of_part(const gw_tower *t, int layer) {
    const gw_hparams *hp = &t->model->hp;
    return layer < hp->n_layers ? gw_graph_stream_device(t->bp, hp, t->where, layer + 1)
                                : gw_graph_head_device(t->bp, hp, t->where);
}

/* layer: what goes from there; n_layers: the head. */
static gw_status build_part(gw_tower *t, gw_tower_pass *p, int layer, int part) {
    gw_tower_leg *leg = &p->leg[p->n_legs++];
    const gw_hparams *hp = &t->model->hp;
    const int group = t->merge * t->merge, rows = p->rows / group, d = p->room->result_on[part];
    gw_graph_inputs in = inputs_of(t, p, rows);
    gw_tensor folded[GW_MAX_DEVICES];
    for (int i = 0; i < t->model->place.n_devices; i++) {
        folded[i] = p->stream_on[i];
        folded[i].dim[0] = rows;
        folded[i].dim[1] = (int64_t)hp->d_model * group;
    }
    in.stream = folded;
    leg->part = 1 + part;
    in.logits = (gw_tensor){.name = "rows",
                            .fmt = GW_FMT_F32,
                            .n_dim = 2,
                            .dim = {rows, t->d_out},
                            .buf = p->room->result[part],
                            .device = d};
    GW_TRY(gw_graph_new(&in, &leg->graph));
    if (layer < hp->n_layers) {
        gw_graph_deep(&leg->graph, &in, layer);
    } else {
        gw_graph_head(&leg->graph, &in, 0);
    }
    return freeze(t, p, leg, rows);
}

enum { LAYERS_AT_ONCE = 4 }; /* a run is cancelled, and lets others compute, between plans */

/* rows: a multiple of a group's, of which the room has as many. */
static gw_status build(gw_tower *t, gw_tower_pass *p, int rows) {
    const int n_layers = t->model->hp.n_layers;
    p->leg = calloc(2 * (size_t)n_layers + 1, sizeof *p->leg);
    if (p->leg == NULL) {
        return gw_fail(GW_E_NOMEM, "image", "no memory for plans of %d layers", n_layers);
    }
    GW_TRY(gw_tower_pass_tensors(t, p, rows));
    for (int l = 0, first = 0, part = 1; l < n_layers; l++) {
        int tapped = is_tapped(t, l), last = l + 1 == n_layers;
        int many = l - first + 1 >= LAYERS_AT_ONCE;
        if (tapped || last || many || gw_tower_windowed(t, l) != gw_tower_windowed(t, l + 1)) {
            GW_TRY(build_layers(t, p, first, l + 1));
            first = l + 1;
        }
        GW_TRY(tapped ? build_part(t, p, l, part++) : GW_OK);
    }
    return build_part(t, p, n_layers, 0);
}

void gw_tower_pass_free(gw_tower_pass *p) {
    for (int i = 0; i < p->n_legs; i++) {
        gw_plan_free(p->leg[i].plan);
        gw_graph_free(&p->leg[i].graph);
    }
    free(p->leg);
    free(p->k);
    free(p->v);
    free(p->table_of);
    memset(p, 0, sizeof *p);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* Where results of parts lie. */
static void set_results(const gw_tower *t, gw_tower_room *r) {
    const int n_layers = t->model->hp.n_layers;
    for (int l = 0, part = 1; l < n_layers; l++) {
        if (is_tapped(t, l)) {
            r->result_on[part++] = device_of_part(t, l);
        }
    }
    r->result_on[0] = device_of_part(t, n_layers);
}

/* A room for so many rows, and none of the plans that stood on a smaller one. */
static gw_status make_room(gw_tower *t, int rows) {
    gw_arena_set *fresh = NULL;
    for (int i = 0; i < GW_TOWER_SIZES; i++) {
        gw_tower_pass_free(&t->pass[i]);
    }
    gw_tower_room_free(t, &t->room);
    GW_TRY(gw_arena_set_new(t->model->place.devices, t->model->place.n_devices, &fresh));
    gw_arena_set_free(t->model->arenas);
    t->model->arenas = fresh;
    set_results(t, &t->room);
    gw_status status = gw_tower_room_new(t, &t->room, rows);
    if (status != GW_OK) {
        gw_tower_room_free(t, &t->room);
    }
    return status;
}

static int whole_groups(const gw_tower *t, int rows) {
    return rows / (t->merge * t->merge) * (t->merge * t->merge);
}

/* Rows of the largest tile that the processor makes, with what stands for no patch. */
static int most_rows(const gw_tower *t) {
    const int group = t->merge * t->merge, rows = t->most + gw_tower_more(t) + group - 1;
    return whole_groups(t, rows < GW_ROWS_MAX ? rows : GW_ROWS_MAX);
}

/* The sizes of plans: a few, the largest that the processor needs, and any. */
static int size_of(const gw_tower *t, int i) {
    static const int sizes[GW_TOWER_SIZES - 2] = {512, 1536, 4096};
    const int any = whole_groups(t, GW_ROWS_MAX), most = t->most > 0 ? most_rows(t) : any;
    const int rows = i < GW_TOWER_SIZES - 2 ? whole_groups(t, sizes[i]) : most;
    return i == GW_TOWER_SIZES - 1 ? any : rows < most ? rows : most;
}

static gw_status pass_for(gw_tower *t, int n, gw_tower_pass **out) {
    int i = 0;
    while (i + 1 < GW_TOWER_SIZES && size_of(t, i) < n) {
        i++;
    }
    const int rows = size_of(t, i);
    GW_TRY(t->room.rows < rows ? make_room(t, rows) : GW_OK);
    gw_tower_pass *p = &t->pass[i];
    if (p->leg == NULL) {
        p->room = &t->room;
        gw_status status = build(t, p, rows);
        if (status != GW_OK) {
            gw_tower_pass_free(p);
            return status;
        }
    }
    *out = p;
    return GW_OK;
}

gw_status gw_tower_reserve(gw_tower *t) {
    gw_tower_pass *p = NULL;
    return pass_for(t, most_rows(t), &p);
}

/* What products of a pass may work with: inputs and outputs of the widest once more. */
static uint64_t product_bytes(const gw_tower *t, uint64_t rows) {
    const gw_hparams *hp = &t->model->hp;
    uint64_t widest = (uint64_t)t->pixels;
    for (int l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        const uint64_t heads = (uint64_t)y->n_heads + 2 * (uint64_t)y->n_kv_heads;
        const uint64_t own = heads * (uint64_t)y->d_head, f = 2 * (uint64_t)y->d_ff;
        widest = own > widest ? own : widest;
        widest = f > widest ? f : widest;
    }
    return 2 * rows * widest * sizeof(float);
}

/* What attention of floats works with over so many pages of a row: scores, and sums of groups of
 * pages, of which kernels keep AT_ONCE each, or what one group takes. */
static uint64_t attention_bytes(const gw_tower *t, uint64_t rows, uint64_t pages) {
    enum { AT_ONCE = 64 << 20, GROUP = 8, BLOCKS = 1 << 20 };
    const gw_hparams *hp = &t->model->hp;
    uint64_t most = 0;
    for (int l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        const uint64_t e = (uint64_t)y->d_head, wide = e <= 64 ? 64 : e <= 128 ? 128 : 256;
        const uint64_t row = (uint64_t)y->n_heads * sizeof(float), groups = pages / GROUP + 1;
        const uint64_t all = rows * row * pages * GW_PAGE, one = rows * row * wide;
        const uint64_t scores = all < AT_ONCE ? all : AT_ONCE;
        uint64_t sums = one * groups < AT_ONCE ? one * groups : AT_ONCE;
        sums = one > sums ? one : sums;
        const uint64_t own =
            scores + sums + rows * row * (2 * groups + (uint64_t)y->v_head) + BLOCKS;
        most = own > most ? own : most;
    }
    return most;
}

/* Memory of kernels grows with the layers, of windows and of whole tiles, and what was smaller
 * stays. */
static uint64_t kernel_bytes(const gw_tower *t, const gw_tower_pass *p) {
    const uint64_t rows = (uint64_t)p->rows;
    uint64_t bytes = product_bytes(t, rows) +
                     gw_place_kernel_bytes(&t->model->hp, rows, (uint64_t)p->pages) +
                     attention_bytes(t, rows, (uint64_t)gw_tower_pages(p->rows));
    return t->window > 0 ? bytes + attention_bytes(t, rows, (uint64_t)p->window_pages) : bytes;
}

gw_status gw_tower_need(gw_tower *t) {
    enum { OF_LEG = 1 << 16 }; /* parameters of launches, and roundings */
    uint64_t need[GW_MAX_DEVICES] = {0}, arena[GW_MAX_DEVICES] = {0};
    const int rows = most_rows(t);
    gw_tower_room room = {.need = need};
    gw_tower_pass p = {.room = &room, .arena = arena};
    set_results(t, &room);
    gw_status status = gw_tower_room_new(t, &room, rows);
    status = status == GW_OK ? build(t, &p, rows) : status;
    for (int d = 0; d < t->model->place.n_devices && status == GW_OK; d++) {
        t->use[d].memory = need[d] + arena[d];
        t->use[d].kernels =
            arena[d] > 0 ? kernel_bytes(t, &p) + (uint64_t)p.n_legs * (gw_step_bytes(rows) + OF_LEG)
                         : 0;
    }
    gw_tower_pass_free(&p);
    gw_tower_room_free(t, &room);
    return status;
}

/* ---- what the host makes of a tile ---------------------------------------------------------- */

static gw_status write_to(gw_tower *t, struct gw_buffer *const *buffers, size_t step,
                          const void *from, size_t bytes) {
    for (int d = 0; d < t->model->place.n_devices; d++) {
        struct gw_buffer *to = buffers[(size_t)d * step];
        GW_TRY(to != NULL ? gw_tower_device(t, d)->backend->write(to, 0, from, bytes) : GW_OK);
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
        copy_patch(t, from, patches->width, p->room->host + i * wide);
    }
    const size_t more = (size_t)gw_tower_more(t);
    memset(p->room->host + n * wide, 0, more * wide * sizeof(float));
    return write_to(t, &p->room->given[0][0], 2, p->room->host, (n + more) * wide * sizeof(float));
}

static gw_status give_places(gw_tower *t, gw_tower_pass *p, const gw_tile *tile,
                             const gw_grid_order *o) {
    const size_t d = (size_t)t->model->hp.d_model, n = (size_t)o->n;
    if (t->places < 0) {
        return GW_OK;
    }
    GW_TRY(gw_grid_places(t->table != NULL ? t->grid : GW_GRID_NONE, t->table, t->entries,
                          t->model->hp.d_model, tile->rows, tile->columns,
                          (const int32_t(*)[2])o->at, o->n, p->room->host));
    for (size_t i = 0; i < n * d && t->place_b != NULL; i++) {
        p->room->host[i] += t->place_b[i % d];
    }
    const size_t more = (size_t)gw_tower_more(t);
    if (more > 0) {
        memcpy(p->room->host + n * d, t->class_row, d * sizeof(float));
    }
    return write_to(t, &p->room->given[0][1], 2, p->room->host, (n + more) * d * sizeof(float));
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
            status =
                write_to(t, &p->room->rope[0][r], GW_MAX_ROPES, table, n * row * sizeof *table);
        }
        free(table);
        free(freq);
        free(at);
    }
    return status;
}

/* Pages in order: a tile's follow one another, and so do those of each window. */
static gw_status give_pages(gw_tower *t, gw_tower_pass *p) {
    const size_t whole = (size_t)gw_tower_pages(p->rows);
    const size_t parts = (size_t)p->windows * (size_t)p->window_pages;
    const size_t n = whole > parts ? whole : parts;
    int32_t *pages = malloc(n * sizeof *pages);
    if (pages == NULL) {
        return gw_fail(GW_E_NOMEM, "image", "no memory for %zu pages", n);
    }
    for (size_t i = 0; i < n; i++) {
        pages[i] = (int32_t)i;
    }
    gw_status status = write_to(t, &p->room->table[0][0], 2, pages, whole * sizeof *pages);
    status = status == GW_OK ? write_to(t, &p->room->table[0][1], 2, pages, parts * sizeof *pages)
                             : status;
    free(pages);
    return status;
}

/* What a tile's shape alone decides; it stays on the devices for the next tile of that shape. */
static gw_status give_shape(gw_tower *t, gw_tower_pass *p, const gw_tile *tile,
                            const gw_grid_order *o) {
    if (p->room->shape[0] == tile->rows && p->room->shape[1] == tile->columns) {
        return GW_OK;
    }
    p->room->shape[0] = p->room->shape[1] = 0;
    GW_TRY(give_places(t, p, tile, o));
    GW_TRY(give_ropes(t, p, o));
    GW_TRY(give_pages(t, p));
    p->room->shape[0] = tile->rows;
    p->room->shape[1] = tile->columns;
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

static gw_status run_leg(gw_tower *t, const gw_tower_room *r, gw_tower_leg *leg,
                         const gw_grid_order *o, float *out) {
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
    const size_t of_row = d * sizeof(float);
    const int which = leg->part - 1, on = r->result_on[which];
    const int32_t some = of_row < READ_BYTES ? (int32_t)(READ_BYTES / of_row) : 1;
    for (int32_t from = 0; from < rows; from += some) {
        const int32_t end = rows - from < some ? rows : from + some;
        GW_TRY(gw_tower_device(t, on)->backend->read(r->result[which], (size_t)from * of_row,
                                                     r->host, (size_t)(end - from) * of_row));
        for (int32_t i = from; i < end; i++) {
            const float *row = r->host + (size_t)(i - from) * d;
            if (!all_finite(row, d)) {
                return gw_fail(GW_E_NUMERIC, t->model->name,
                               "rows of the vision tower are not finite: its weights are damaged");
            }
            memcpy(out + (size_t)o->group[i] * width + (size_t)which * d, row, d * sizeof *out);
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
                        : run_leg(t, p->room, &p->leg[i], &o, out));
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
