/* core/engine/encode/pass.c - plans over whole texts. A text is in one pass, so that attention may
 * look both ways; its keys and values live until the layer is over, so that all layers of a device
 * share one cache. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/encode/encoder.h"

enum { FEW = 512 }; /* rows of the narrowest pass, at most */

static const gw_plan_device *device_of(const gw_encoder *e, int d) {
    return &e->model->place.devices[d];
}

static gw_status alloc(const gw_encoder *e, int d, size_t bytes, struct gw_buffer **out) {
    return device_of(e, d)->backend->alloc(device_of(e, d)->device, bytes, out);
}

static int pages_of(int rows) { return (rows - 1) / GW_PAGE + 1; }

/* ---- caches --------------------------------------------------------------------------------- */

/* Bytes of a page of K (part 0) or V of a layer. */
static gw_status page_bytes(const gw_encoder *e, const gw_layer *l, int part, size_t *out) {
    uint64_t width = (uint64_t)(part == 0 ? l->d_head : gw_layer_v_width(l));
    GW_TRY(gw_row_bytes(e->kv_fmt, GW_PAGE * width, out));
    *out *= (size_t)l->n_kv_heads;
    return GW_OK;
}

/* Does some layer read what another one has put into its cache? */
static int caches_last(const gw_encoder *e) {
    for (int b = 0; b < e->bp->n_blocks; b++) {
        const gw_spec_block *block = &e->bp->block[b];
        if (block->kind == GW_BLOCK_ATTENTION && block->number[GW_ARG_CACHE].n > 0) {
            return 1;
        }
    }
    return 0;
}

static gw_status make_cache(gw_encoder *e, gw_encoder_pass *p) {
    const gw_hparams *hp = &e->model->hp;
    size_t need[GW_MAX_DEVICES] = {0};
    int apart = caches_last(e);
    p->k = calloc((size_t)hp->n_layers, sizeof *p->k);
    p->v = calloc((size_t)hp->n_layers, sizeof *p->v);
    if (p->k == NULL || p->v == NULL) {
        return gw_fail(GW_E_NOMEM, "encoder", "no memory for %d layers", hp->n_layers);
    }
    for (int l = 0; l < e->layers; l++) {
        const gw_layer *y = &hp->layer[l];
        int d = gw_graph_cache_device(e->bp, hp, e->where, l);
        size_t k, v, rows = (size_t)p->pages, from = apart ? need[d] : 0;
        GW_TRY(page_bytes(e, y, 0, &k));
        GW_TRY(page_bytes(e, y, 1, &v));
        p->k[l] = (gw_tensor){.name = "K cache",
                              .fmt = e->kv_fmt,
                              .n_dim = 4,
                              .dim = {p->pages, y->n_kv_heads, y->d_head, GW_PAGE},
                              .offset = from,
                              .device = d};
        p->v[l] = (gw_tensor){.name = "V cache",
                              .fmt = e->kv_fmt,
                              .n_dim = 4,
                              .dim = {p->pages, y->n_kv_heads, GW_PAGE, gw_layer_v_width(y)},
                              .offset = from + rows * k,
                              .device = d};
        size_t end = from + rows * (k + v);
        need[d] = y->has_cache && end > need[d] ? end : need[d];
    }
    for (int d = 0; d < e->model->place.n_devices; d++) {
        GW_TRY(need[d] > 0 ? alloc(e, d, need[d], &p->cells[d]) : GW_OK);
    }
    for (int l = 0; l < e->layers; l++) {
        p->k[l].buf = p->v[l].buf = p->cells[p->k[l].device];
    }
    return GW_OK;
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* Where the blocks [first, end) of the head or of the section score leave their result. */
static int device_of_section(const gw_encoder *e, gw_section section, int leading) {
    const gw_hparams *hp = &e->model->hp;
    int last = -1;
    for (int b = 0; b < e->bp->n_blocks; b++) {
        const gw_spec_block *block = &e->bp->block[b];
        if (block->section == section && leading && gw_block_matrices(block) > 0) {
            break;
        }
        last = block->section == section ? b : last;
    }
    return last >= 0 ? e->where[hp->n_layers * e->bp->n_blocks + last] : -1;
}

static gw_status make_buffers(gw_encoder *e, gw_encoder_pass *p, gw_purpose purpose,
                              gw_graph_inputs *in, gw_tensor *stream, gw_tensor *table) {
    const gw_hparams *hp = &e->model->hp;
    size_t row = (size_t)hp->n_streams * (size_t)hp->d_model * sizeof(float),
           rows = (size_t)p->rows;
    int64_t per = pages_of(p->rows);
    for (int d = 0; d < e->model->place.n_devices; d++) {
        GW_TRY(alloc(e, d, rows * row, &p->stream[d]));
        GW_TRY(alloc(e, d, GW_PASS_TEXTS * (size_t)per * sizeof(int32_t), &p->table[d]));
        stream[d] = (gw_tensor){.name = "stream",
                                .fmt = GW_FMT_F32,
                                .n_dim = 2,
                                .dim = {p->rows, (int64_t)hp->n_streams * hp->d_model},
                                .buf = p->stream[d],
                                .device = d};
        table[d] = (gw_tensor){.name = "page table",
                               .fmt = GW_FMT_I32,
                               .n_dim = 2,
                               .dim = {GW_PASS_TEXTS, per},
                               .buf = p->table[d],
                               .device = d};
    }
    int hidden = device_of_section(e, GW_SECTION_HEAD, 1), scores;
    hidden = hidden >= 0 ? hidden : 0;
    scores = device_of_section(e, GW_SECTION_SCORE, 0);
    p->hidden_device = hidden;
    GW_TRY(alloc(e, hidden, rows * row, &p->hidden));
    in->hidden = stream[hidden];
    in->hidden.name = "hidden";
    in->hidden.buf = p->hidden;
    (void)purpose;
    p->result_device = scores >= 0 ? scores : hidden;
    return GW_OK;
}

/* Values that start gives to layers lie where they are given. */
static gw_status make_kept(gw_encoder *e, gw_encoder_pass *p) {
    const gw_hparams *hp = &e->model->hp;
    for (int b = 0; b < e->bp->n_blocks; b++) {
        const gw_spec_block *block = &e->bp->block[b];
        int at = gw_graph_kept_at(e->bp, hp, block), v = block->out;
        double width = at >= 0 ? gw_spec_value(e->bp, hp, 0, e->bp->width[v]) : 0.0;
        if (at < 0) {
            continue;
        }
        if (!(width >= 1.0 && width <= 0x1p24)) {
            return gw_fail(GW_E_METADATA, "plan", "the value '%s' is %g wide", e->bp->value[v],
                           width);
        }
        p->kept[v] = (gw_tensor){.name = e->bp->value[v],
                                 .fmt = GW_FMT_F32,
                                 .n_dim = 2,
                                 .dim = {p->rows, (int64_t)width},
                                 .device = e->where[at]};
        GW_TRY(alloc(e, e->where[at], (size_t)p->rows * (size_t)width * sizeof(float),
                     &p->kept[v].buf));
    }
    return GW_OK;
}

/* The rows behind the hidden states: pooled ones, or scores. */
static gw_status make_result(gw_encoder *e, gw_encoder_pass *p, gw_purpose purpose,
                             gw_graph_inputs *in) {
    int32_t width = purpose == GW_PURPOSE_SCORES ? e->info.labels : e->info.hidden;
    gw_tensor *to = purpose == GW_PURPOSE_SCORES ? &in->scores : &in->pooled;
    p->result_device = purpose == GW_PURPOSE_SCORES ? p->result_device : p->graph.hidden->device;
    GW_TRY(alloc(e, p->result_device, (size_t)p->rows * (size_t)width * sizeof(float), &p->result));
    *to = (gw_tensor){.name = "result",
                      .fmt = GW_FMT_F32,
                      .n_dim = 2,
                      .dim = {p->rows, width},
                      .buf = p->result,
                      .device = p->result_device};
    return GW_OK;
}

static gw_pick_kind pick_of(gw_pooling pooling) {
    return pooling == GW_POOLING_CLS    ? GW_PICK_FIRST
           : pooling == GW_POOLING_LAST ? GW_PICK_LAST
                                        : GW_PICK_MEAN;
}

/* Is attention computed on 16-bit units of the device, by a name of its own? */
static int attends_in_halves(const gw_encoder *e, const gw_graph *graph) {
    int some = 0, all = 1;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        gw_node node = graph->nodes[i];
        char name[GW_ARITHMETIC_BYTES] = "";
        if (node.op == GW_OP_ATTENTION) {
            const gw_plan_device *d = device_of(e, node.out->device);
            node.kernel = gw_plan_kernel(d, &node);
            if (node.kernel != NULL && d->backend->arithmetic != NULL) {
                d->backend->arithmetic(d->device, &node, name);
            }
            some = 1;
            all &= name[0] != '\0';
        }
    }
    return some && all;
}

static gw_status build(gw_encoder *e, gw_encoder_pass *p, gw_purpose purpose) {
    gw_tensor stream[GW_MAX_DEVICES], table[GW_MAX_DEVICES];
    gw_model *m = e->model;
    gw_graph_inputs in = {.hp = &m->hp,
                          .weights = m->weights,
                          .where = e->where,
                          .rope = e->tables.rope[0],
                          .q_factor = e->tables.factor[0],
                          .page_table = table,
                          .stream = stream,
                          .rows = p->rows,
                          .order = GW_ORDER_PREFILL};
    p->pages = pages_of(p->rows) + GW_PASS_TEXTS;
    GW_TRY(make_cache(e, p));
    in.k = p->k;
    in.v = p->v;
    GW_TRY(make_kept(e, p));
    in.kept = p->kept;
    GW_TRY(make_buffers(e, p, purpose, &in, stream, table));
    GW_TRY(gw_graph_new(&in, &p->graph));
    gw_graph_body(&p->graph, &in, 0, e->layers);
    if (e->layers == m->hp.n_layers) {
        gw_graph_hidden(&p->graph, &in);
    } else { /* the encoder of an encoder-decoder ends without a head */
        p->graph.hidden = p->graph.stream[0];
    }
    p->at = p->graph.hidden;
    GW_TRY(make_result(e, p, purpose, &in));
    if (purpose == GW_PURPOSE_SCORES) {
        gw_graph_score(&p->graph, &in);
    } else {
        gw_graph_pool(&p->graph, &in, pick_of(e->info.pooling));
    }
    GW_TRY(gw_graph_check(&p->graph));
    if (e->kv_auto && e->kv_fmt == GW_FMT_F16 && !attends_in_halves(e, &p->graph)) {
        return GW_OK; /* no plan: another format is better */
    }
    GW_TRY(gw_plan_build(p->graph.nodes, p->graph.n_nodes, m->place.devices, m->place.n_devices,
                         p->rows, m->arenas, &p->plan));
    gw_watch watch = {.cancel = e->cancel, .progress = e->progress, .user = e->progress_user};
    return gw_plan_ready(p->plan, &watch);
}

void gw_encoder_pass_free(gw_encoder *e, gw_encoder_pass *p) {
    gw_plan_free(p->plan);
    gw_graph_free(&p->graph);
    for (int d = 0; d < e->model->place.n_devices; d++) {
        struct gw_buffer *const buffers[] = {p->stream[d], p->cells[d], p->table[d],
                                             d == p->hidden_device ? p->hidden : NULL,
                                             d == p->result_device ? p->result : NULL};
        for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
            if (buffers[i] != NULL) {
                device_of(e, d)->backend->release(buffers[i]);
            }
        }
    }
    for (int v = 0; v < GW_SPEC_VALUES; v++) {
        if (p->kept[v].buf != NULL) {
            device_of(e, p->kept[v].device)->backend->release(p->kept[v].buf);
        }
    }
    free(p->k);
    free(p->v);
    free(p->bytes);
    free(p->ops);
    memset(p, 0, sizeof *p);
}

/* Caches are f16 where the device computes with halves anyway, else float. */
static gw_status build_in_some_format(gw_encoder *e, gw_encoder_pass *p, gw_purpose purpose) {
    int rows = p->rows;
    if (e->kv_auto) {
        e->kv_fmt = GW_FMT_F16;
        GW_TRY(build(e, p, purpose));
        if (p->plan == NULL) {
            gw_encoder_pass_free(e, p);
            p->rows = rows;
            e->kv_fmt = GW_FMT_F32;
        }
        e->kv_auto = 0;
    }
    return p->plan != NULL ? GW_OK : build(e, p, purpose);
}

static gw_status time_pass(gw_encoder_pass *p, int on) {
    size_t n = gw_plan_size(p->plan);
    free(p->bytes);
    free(p->ops);
    p->bytes = on ? calloc(n + 1, sizeof *p->bytes) : NULL;
    p->ops = on ? calloc(n + 1, sizeof *p->ops) : NULL;
    if (on && (p->bytes == NULL || p->ops == NULL)) {
        return gw_fail(GW_E_NOMEM, "encoder", "no memory for the times of %zu nodes", n);
    }
    gw_plan_profile(p->plan, on);
    return GW_OK;
}

gw_status gw_encoder_pass_for(gw_encoder *e, gw_purpose purpose, size_t n, gw_encoder_pass **out) {
    const int32_t few = e->rows < FEW ? e->rows : FEW;
    const int32_t sizes[GW_PASS_SIZES] = {few, 2048, GW_ROWS_MAX};
    int i = 0;
    while (i < GW_PASS_SIZES - 1 && (size_t)sizes[i] < n) {
        i++;
    }
    gw_encoder_pass *p = &e->pass[purpose][i];
    if (p->plan == NULL) {
        int32_t longest = e->info.n_ctx > e->rows ? e->info.n_ctx : e->rows;
        int32_t most = longest < sizes[i] ? longest : sizes[i];
        gw_encoder_pass_free(e, p);
        p->rows = most > (int32_t)n ? most : (int32_t)n;
        gw_status status = build_in_some_format(e, p, purpose);
        if (status != GW_OK) {
            gw_encoder_pass_free(e, p);
            return status;
        }
    }
    *out = p;
    return e->timed && p->bytes == NULL ? time_pass(p, 1) : GW_OK;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* Rows of the step from `at` on, and the text's pages from `page` on. */
static void place_text(gw_encoder *e, const gw_encoder_text *t, size_t seen, int slot, int at,
                       int page, int per) {
    gw_step *s = &e->step;
    int32_t pad = e->model->hp.uncounted, before = 0;
    for (size_t i = 0; i < t->n; i++) {
        size_t row = (size_t)at + i;
        s->token[row] = t->ids[i];
        s->type[row] = t->types != NULL ? t->types[i] : 0;
        s->pos[row] = (int32_t)i;
        s->slot[row] = slot;
        s->last[row] = (int32_t)seen - 1;
        s->less[row] = pad >= 0 && t->ids[i] == pad ? (int32_t)i + 1 : before;
        before += pad >= 0 && t->ids[i] == pad;
    }
    for (int i = 0; i < pages_of((int)t->n); i++) {
        e->pages[slot * per + i] = page + i;
    }
    s->pos_max = (int32_t)t->n - 1 > s->pos_max ? (int32_t)t->n - 1 : s->pos_max;
}

/* What the step's rows cost, while nodes are timed. */
static void account(const gw_encoder *e, gw_encoder_pass *p) {
    int rows = e->step.n;
    for (size_t i = 0; p->bytes != NULL && i < gw_plan_size(p->plan); i++) {
        const gw_node *node = gw_plan_node(p->plan, i);
        double bytes = 0.0, ops = 0.0;
        rows = node->op == GW_OP_PICK ? e->step.n_pick : rows;
        gw_op_describe(node->op)->cost(node, rows, e->step.pos_max + 1, &bytes, &ops);
        p->bytes[i] += bytes;
        p->ops[i] += ops;
    }
}

gw_status gw_encoder_pass_run(gw_encoder *e, gw_encoder_pass *p,
                              const gw_encoder_text *const *texts, const size_t *seen, int n) {
    int at = 0, page = 0, per = pages_of(p->rows);
    size_t bytes = (size_t)n * (size_t)per * sizeof(int32_t);
    if (e->cancel != NULL && *e->cancel) {
        return gw_fail(GW_E_CANCELLED, e->model->name, "cancelled");
    }
    memset(e->pages, 0, bytes);
    e->step.pos_max = 0;
    for (int i = 0; i < n; i++) {
        place_text(e, texts[i], seen[i], i, at, page, per);
        at += (int)texts[i]->n;
        page += pages_of((int)texts[i]->n);
    }
    e->step.n = at;
    e->step.pick = 0;
    e->step.n_pick = n;
    for (int d = 0; d < e->model->place.n_devices; d++) {
        GW_TRY(device_of(e, d)->backend->write(p->table[d], 0, e->pages, bytes));
    }
    account(e, p);
    return gw_plan_run(p->plan, &e->step);
}

/* ---- times ---------------------------------------------------------------------------------- */

gw_status gw_encoder_profile(gw_encoder *e, int on) {
    e->timed = on;
    for (int i = 0; i < GW_PURPOSES * GW_PASS_SIZES; i++) {
        gw_encoder_pass *p = &e->pass[i / GW_PASS_SIZES][i % GW_PASS_SIZES];
        GW_TRY(p->plan != NULL ? time_pass(p, on) : GW_OK);
    }
    return GW_OK;
}

static void add_time(gw_kernel_time *sum, const gw_encoder_pass *p, size_t i) {
    gw_node_time t = gw_plan_time(p->plan, i);
    sum->calls += t.calls;
    sum->seconds += t.seconds;
    sum->bytes += p->bytes[i];
    sum->ops += p->ops[i];
}

static int is_same(const char *a, const char *b) {
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

size_t gw_encoder_kernel_times(const gw_encoder *e, gw_kernel_time *rows, size_t capacity) {
    size_t n = 0;
    for (int k = 0; k < GW_PURPOSES * GW_PASS_SIZES; k++) {
        const gw_encoder_pass *p = &e->pass[k / GW_PASS_SIZES][k % GW_PASS_SIZES];
        for (size_t i = 0; p->bytes != NULL && i < gw_plan_size(p->plan); i++) {
            const gw_node *node = gw_plan_node(p->plan, i);
            size_t row = 0;
            while (row < n && row < capacity &&
                   !(is_same(rows[row].name, node->kernel->name) &&
                     is_same(rows[row].what, node->what))) {
                row++;
            }
            if (row == n && n < capacity) {
                rows[n++] = (gw_kernel_time){.name = node->kernel->name, .what = node->what};
            }
            if (row < capacity) {
                add_time(&rows[row], p, i);
            }
        }
    }
    return n;
}
