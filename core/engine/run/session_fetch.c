/* core/engine/run/session_fetch.c - prompts of layers and experts in main memory, on a card.
 *
 * Every stage of a prompt that has matrices in main memory gets a second plan, in which its blocks
 * run on the card. Before each node with such a matrix the plan asks for it (gw_plan_fetch): the
 * host packs it piece by piece through pinned memory to a place that all layers use in turn, while
 * the card computes what it has; of experts those alone that the chunk's rows have chosen. The
 * cells of the layers' caches that the rows see go there before, the new ones come back behind it,
 * so that decode finds them where it computes.
 *
 * Which of the two plans is faster for a chunk's rows is read from both: seconds of a layer and row
 * in main memory, and of a byte that was brought. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/engine/run/session_state.h"

/* Chunks of fewer than READ_ROWS rows are not measured; each rate is the best of READINGS samples.
 * The first transfer includes the page faults of a cold file: where it is slower than main memory,
 * but by less than HOPELESS times, a second sample is taken. */
enum { READ_ROWS = 64, READINGS = 2, HOPELESS = 4 };
/* What a link carries while another transfer is begun (some 40 us at 50 GB/s). */
enum { GAP_BYTES = 2 << 20 };

static size_t cache_at(const gw_session *s, int d, int l) {
    return (size_t)d * (size_t)s->model->hp.n_layers + (size_t)l;
}

/* ---- what goes to the card ------------------------------------------------------------------- */

static int of_cache(gw_block_kind kind) {
    return kind == GW_BLOCK_ROPE_KV || kind == GW_BLOCK_ATTENTION || kind == GW_BLOCK_COMPRESS ||
           kind == GW_BLOCK_CHOOSE || kind == GW_BLOCK_LISTED;
}

/* Has the layer a plain cache in main memory, as the host sees it, that no other layer reads? */
static int lends_cache(const gw_session *s, int l) {
    const gw_layer *y = &s->model->hp.layer[l];
    for (int other = l + 1; other < s->model->hp.n_layers; other++) {
        if (s->model->hp.layer[other].cache_of == l) {
            return 0;
        }
    }
    const gw_plan_device *home = &s->model->place.devices[0];
    struct gw_buffer *cells = s->kv.cells[cache_at(s, 0, l)];
    return y->has_cache && y->cache_of == l && gw_layer_paged(y) == 0 && cells != NULL &&
           home->backend->host(cells) != NULL;
}

static int layer_has_cache_on_card(const gw_session *s, int l) {
    return s->fetch.k[cache_at(s, s->fetch.device, l)].buf != NULL &&
           s->kv.cells[cache_at(s, s->fetch.device, l)] == NULL;
}

static int may_move(const gw_session *s, int at) {
    const gw_hparams *hp = &s->model->hp;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    int l = at / bp->n_blocks;
    const gw_spec_block *b = &bp->block[at % bp->n_blocks];
    return s->where[at] == 0 && b->section == GW_SECTION_LAYER && gw_block_runs(b, hp, l) &&
           !gw_block_stays_home(bp, b) && gw_block_state(bp, hp, l, at % bp->n_blocks) == 0 &&
           (!of_cache(b->kind) || lends_cache(s, l));
}

/* One allocation for K and V of the largest cache of the layers that have one in main memory. */
static gw_status new_cells(gw_session *s, int n) {
    gw_fetch *f = &s->fetch;
    const gw_plan_device *card = &s->model->place.devices[f->device];
    uint64_t most = 0;
    for (int l = 0; l < s->model->hp.n_layers; l++) {
        uint64_t bytes = 0;
        for (int part = 0; part < 2 && lends_cache(s, l); part++) {
            const gw_tensor *t = part == 0 ? &s->kv.k[cache_at(s, 0, l)]
                                           : &s->kv.v[cache_at(s, 0, l)];
            bytes += (uint64_t)t->dim[0] * gw_kv_page_bytes(&s->kv, l, part);
        }
        most = bytes > most ? bytes : most;
    }
    f->cells = calloc((size_t)n, sizeof(struct gw_buffer *));
    if (f->cells == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for %d caches", n);
    }
    for (; most > 0 && f->n_cells < n; f->n_cells++) {
        GW_TRY(card->backend->alloc(card->device, (size_t)most, &f->cells[f->n_cells]));
    }
    return GW_OK;
}

/* The layers of a stage have their caches in the cells, in turn. */
static void lay_out_caches(gw_session *s, int stages) {
    gw_fetch *f = &s->fetch;
    for (int i = 0; i < stages; i++) {
        for (int l = f->layers[i].first, n = 0; l < f->layers[i].end; l++) {
            size_t from = cache_at(s, 0, l), to = cache_at(s, f->device, l);
            if (n < f->n_cells && lends_cache(s, l)) {
                f->k[to] = s->kv.k[from];
                f->v[to] = s->kv.v[from];
                f->k[to].buf = f->v[to].buf = f->cells[n++];
                f->k[to].device = f->v[to].device = f->device;
            }
        }
    }
}

/* The arithmetic of a node by a kernel where it is not the common one (gw_backend.arithmetic). */
static void name_arithmetic(const gw_session *s, const gw_node *node, const gw_kernel *kernel,
                            char *out) {
    const gw_plan_device *d = &s->model->place.devices[node->device];
    gw_node by = *node;
    by.kernel = kernel;
    out[0] = '\0';
    if (d->backend->arithmetic != NULL) {
        d->backend->arithmetic(d->device, &by, out);
    }
}

/* Has the node by this kernel the bits that it has at home? Which of the two runs is decided by
 * time, and must not be seen in the text. */
static int has_home_bits(const gw_session *s, const gw_node *node, const gw_kernel *kernel) {
    char here[GW_ARITHMETIC_BYTES], home[GW_ARITHMETIC_BYTES] = "";
    name_arithmetic(s, node, kernel, here);
    for (int p = s->first_prompt_pass; p < s->n_prompt_passes; p++) {
        for (size_t i = 0; i < gw_plan_size(s->passes[p].plan); i++) {
            const gw_node *other = gw_plan_node(s->passes[p].plan, i);
            if (other->layer == node->layer && other->op == node->op &&
                strcmp(other->what, node->what) == 0) {
                name_arithmetic(s, other, other->kernel, home);
            }
        }
    }
    return strcmp(here, home) == 0;
}

/* Blocks of a stage that the card has no kernel for, none with the same bits, or no weights, stay
 * at home; what fills a cache and what reads it stay together. *changed: some do. */
static void send_back(gw_session *s, const gw_graph *g, int *changed) {
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    gw_fetch *f = &s->fetch;
    *changed = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const gw_node *node = &g->nodes[i];
        int at = node->layer * bp->n_blocks + g->blocks[i], lies = 1;
        if (g->blocks[i] < 0 || node->layer < 0 || node->device != f->device ||
            s->where[at] == f->device) {
            continue;
        }
        for (int k = 0; k < GW_MAX_W; k++) {
            lies &= node->w[k] == NULL || node->w[k]->device == f->device;
        }
        const gw_kernel *kernel = gw_plan_kernel(&s->model->place.devices[f->device], node);
        if (lies && kernel != NULL && has_home_bits(s, node, kernel)) {
            continue;
        }
        *changed = 1;
        f->where[at] = 0;
        for (int b = 0; b < bp->n_blocks && of_cache(bp->block[g->blocks[i]].kind); b++) {
            int other = node->layer * bp->n_blocks + b;
            f->where[other] = of_cache(bp->block[b].kind) ? 0 : f->where[other];
        }
    }
}

/* The stage's pass, if there is something to fetch. */
static gw_status build_stage(gw_session *s, int stage) {
    gw_fetch *f = &s->fetch;
    gw_layer_range layers = f->layers[stage];
    gw_pass *p = &s->passes[s->n_passes];
    int changed, fetches = 0;
    do {
        gw_pass_free(p);
        GW_TRY(gw_pass_draw(s, p, s->chunk, GW_ORDER_PREFILL, GW_PASS_FETCHED, layers));
        GW_TRY(gw_graph_check(&p->graph));
        send_back(s, &p->graph, &changed);
    } while (changed);
    for (size_t i = 0; i < p->graph.n_nodes; i++) {
        fetches += p->graph.nodes[i].fetches;
    }
    gw_pass_free(p);
    f->pass[stage] = -1;
    if (fetches > 0) {
        f->pass[stage] = s->n_passes;
        return gw_pass_build(s, &s->passes[s->n_passes++], s->chunk, GW_ORDER_PREFILL,
                             GW_PASS_FETCHED, layers);
    }
    return GW_OK;
}

static gw_status fetch_node(void *user, const gw_node *node, const gw_step *step);

static gw_status build_all(gw_session *s, int stages) {
    gw_fetch *f = &s->fetch;
    const gw_hparams *hp = &s->model->hp;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    size_t blocks = (size_t)(hp->n_layers + 1) * (size_t)bp->n_blocks;
    size_t caches = (size_t)s->model->place.n_devices * (size_t)hp->n_layers;
    int32_t experts = 1;
    int deepest = 0, moved = 0;
    for (int l = 0; l < hp->n_layers; l++) {
        experts = hp->layer[l].n_experts > experts ? hp->layer[l].n_experts : experts;
    }
    for (int i = 0; i < stages; i++) {
        int lent = 0;
        for (int l = f->layers[i].first; l < f->layers[i].end; l++) {
            lent += lends_cache(s, l);
        }
        deepest = lent > deepest ? lent : deepest;
    }
    f->where = malloc(blocks * sizeof *f->where);
    f->pass = malloc((size_t)stages * sizeof *f->pass);
    f->k = malloc(caches * sizeof *f->k);
    f->v = malloc(caches * sizeof *f->v);
    f->experts = malloc((size_t)experts);
    if (f->where == NULL || f->pass == NULL || f->k == NULL || f->v == NULL ||
        f->experts == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %d stages", stages);
    }
    memcpy(f->where, s->where, blocks * sizeof *f->where);
    memcpy(f->k, s->kv.k, caches * sizeof *f->k);
    memcpy(f->v, s->kv.v, caches * sizeof *f->v);
    for (size_t at = 0; at < (size_t)hp->n_layers * (size_t)bp->n_blocks; at++) {
        int moves = may_move(s, (int)at);
        f->where[at] = moves ? (gw_where)f->device : f->where[at];
        moved += moves;
    }
    if (moved == 0) {
        f->device = 0;
        return GW_OK;
    }
    GW_TRY(gw_weights_fetch_new(s->model->weights, f->device));
    GW_TRY(deepest > 0 ? new_cells(s, deepest) : GW_OK);
    lay_out_caches(s, stages);
    for (int i = 0; i < stages; i++) {
        GW_TRY(build_stage(s, i));
    }
    for (int i = 0; i < stages; i++) {
        if (f->pass[i] >= 0) {
            gw_plan_fetch(s->passes[f->pass[i]].plan, fetch_node, s);
        }
    }
    return GW_OK;
}

void gw_fetch_new(gw_session *s, int stages) {
    gw_place *place = &s->model->place;
    int before = s->n_passes;
    s->fetch.device = gw_place_fetches(place);
    if (s->fetch.device == 0 || place->offloaded == 0 || s->sharing.slots > 0 ||
        s->model->hp.n_source > 0) {
        s->fetch.device = 0;
        return;
    }
    gw_status status = build_all(s, stages);
    if (status != GW_OK) {
        snprintf(place->fault, sizeof place->fault,
                 "prompts of what lies in main memory stay with the %s: %.160s",
                 place->info[0].id, gw_error_text());
        for (int i = before; i <= s->n_passes; i++) { /* and the one that was only drawn */
            gw_pass_free(&s->passes[i]);
        }
        s->n_passes = before;
        s->fetch.device = 0;
    }
}

void gw_fetch_free(gw_session *s) {
    gw_fetch *f = &s->fetch;
    int d = gw_place_fetches(&s->model->place);
    for (int i = 0; i < f->n_cells; i++) {
        s->model->place.devices[d].backend->release(f->cells[i]);
    }
    free(f->cells);
    free(f->where);
    free(f->pass);
    free(f->layers);
    free(f->k);
    free(f->v);
    free(f->experts);
    memset(f, 0, sizeof *f);
}

/* ---- weights --------------------------------------------------------------------------------- */

static int is_experts(const gw_node *node) {
    return node->op == GW_OP_EXPERTS_GLU || node->op == GW_OP_EXPERTS_DOWN;
}

/* Which experts the live rows have chosen; once for all products of a layer. */
static gw_status see_route(gw_session *s, const gw_node *node, const gw_step *step) {
    const gw_tensor *route = node->in[1];
    const gw_plan_device *d = &s->model->place.devices[route->device];
    size_t width = (size_t)route->dim[1], used = width / 2, n = (size_t)step->n;
    if (s->fetch.route == route) {
        return GW_OK;
    }
    float *ids = malloc(n * width * sizeof *ids);
    if (ids == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for the route of %zu rows", n);
    }
    gw_status status = d->backend->wait(d->device);
    status = status == GW_OK ? d->backend->read(route->buf, route->offset, ids,
                                                n * width * sizeof *ids)
                             : status;
    memset(s->fetch.experts, 0, (size_t)node->args.experts.experts);
    for (size_t i = 0; i < n * used && status == GW_OK; i++) {
        float id = ids[i / used * width + i % used];
        if (id >= 0.0f && id < (float)node->args.experts.experts) {
            s->fetch.experts[(size_t)id] = 1;
        }
    }
    s->fetch.route = status == GW_OK ? route : NULL;
    free(ids);
    return status;
}

/* The next experts from *first on that are chosen, or lie between chosen ones at most `gap` apart;
 * where they end. *first: where they begin; n: there are none. */
static int run_of_experts(const unsigned char *chosen, int n, int gap, int *first) {
    while (*first < n && !chosen[*first]) {
        ++*first;
    }
    int end = *first;
    for (int i = *first; i < n && i - end <= gap; i++) {
        end = chosen[i] ? i + 1 : end;
    }
    return end;
}

/* Of a gw_plan_fetch. Neighbouring experts travel together, and those between them where they are
 * few. */
static gw_status fetch_node(void *user, const gw_node *node, const gw_step *step) {
    gw_session *s = user;
    const gw_weights *w = s->model->weights;
    int parts = is_experts(node) ? node->args.experts.experts : 1;
    GW_TRY(is_experts(node) ? see_route(s, node, step) : GW_OK);
    for (int k = 0; k < GW_MAX_W; k++) {
        if (!gw_weights_is_fetched(w, node->w[k])) {
            continue;
        }
        int64_t each = node->w[k]->dim[0] / parts;
        size_t bytes = 0;
        GW_TRY(gw_matrix_bytes(node->w[k]->fmt, (uint64_t)each, (uint64_t)node->w[k]->dim[1],
                               &bytes));
        int gap = is_experts(node) && bytes > 0 ? (int)(GAP_BYTES / bytes) : 0;
        for (int i = 0, end; i < parts; i = end) {
            end = is_experts(node) ? run_of_experts(s->fetch.experts, parts, gap, &i) : parts;
            GW_TRY(end > i ? gw_weights_fetch(w, node->w[k], i * each, (end - i) * each) : GW_OK);
        }
    }
    return GW_OK;
}

/* Bytes that a chunk of so many rows is expected to need of a pass: of experts those that as many
 * rows choose when they choose alike. */
static double expected_bytes(const gw_session *s, const gw_pass *p, int rows) {
    double sum = 0.0;
    for (size_t i = 0; i < gw_plan_size(p->plan); i++) {
        const gw_node *node = gw_plan_node(p->plan, i);
        const gw_experts_args *x = &node->args.experts;
        double part = is_experts(node) ? 1.0 - pow(1.0 - (double)x->used / x->experts, rows) : 1.0;
        for (int k = 0; k < GW_MAX_W; k++) {
            const gw_tensor *t = node->w[k];
            size_t bytes = 0;
            if (gw_weights_is_fetched(s->model->weights, t) &&
                gw_matrix_bytes(t->fmt, (uint64_t)t->dim[0], (uint64_t)t->dim[1], &bytes) ==
                    GW_OK) {
                sum += part * (double)bytes;
            }
        }
    }
    return sum;
}

/* ---- caches and the stream ------------------------------------------------------------------- */

/* Pages [first, end) of the text, of one part of a layer's cache: to the card, or back from it. */
static gw_status move_pages(gw_session *s, int l, int part, int32_t first, int32_t end, int back) {
    gw_fetch *f = &s->fetch;
    const gw_plan_device *home = &s->model->place.devices[0];
    const gw_plan_device *card = &s->model->place.devices[f->device];
    size_t here = cache_at(s, 0, l), there = cache_at(s, f->device, l);
    const gw_tensor *from = part == 0 ? &s->kv.k[here] : &s->kv.v[here];
    const gw_tensor *to = part == 0 ? &f->k[there] : &f->v[there];
    char *host = (char *)home->backend->host(from->buf) + from->offset;
    size_t page = gw_kv_page_bytes(&s->kv, l, part);
    int kind = s->kv.table_of[l];
    int32_t ring = kind > 0 ? s->kv.ring[kind] : 0;
    if (ring > 0 && end - first > ring) {
        first = end - ring;
    }
    for (int32_t p = first, n; p < end && page > 0; p += n) {
        int32_t at = ring > 0 ? p % ring : p, left = ring > 0 ? ring - at : end - p;
        n = end - p < left ? end - p : left;
        size_t place = (size_t)at * page, bytes = (size_t)n * page;
        GW_TRY(back ? card->backend->read(to->buf, to->offset + place, host + place, bytes)
                    : card->backend->write(to->buf, to->offset + place, host + place, bytes));
    }
    return GW_OK;
}

/* Before a stage runs, what its rows look back to; behind it, what they have appended. */
static gw_status move_caches(gw_session *s, gw_layer_range layers, int back) {
    int32_t pos = s->step.pos[0], end = pos + s->step.n;
    for (int l = layers.first; l < layers.end; l++) {
        for (int part = 0; part < 2 && layer_has_cache_on_card(s, l); part++) {
            GW_TRY(back ? move_pages(s, l, part, pos / GW_PAGE, (end - 1) / GW_PAGE + 1, 1)
                        : move_pages(s, l, part, 0, (pos + GW_PAGE - 1) / GW_PAGE, 0));
        }
    }
    return GW_OK;
}

/* The live rows of the stream are on device d. */
static gw_status move_stream(gw_session *s, int d) {
    int from = s->fetch.stream;
    const gw_plan_device *src = &s->model->place.devices[from];
    const gw_plan_device *dst = &s->model->place.devices[d];
    size_t bytes = (size_t)s->step.n * (size_t)s->stream_on[d].dim[1] * sizeof(float);
    if (from == d) {
        return GW_OK;
    }
    GW_TRY(src->backend->wait(src->device));
    GW_TRY(dst->backend->wait(dst->device));
    s->fetch.stream = d;
    const void *seen = src->backend->host(s->stream[from]);
    void *into = dst->backend->host(s->stream[d]);
    if (seen != NULL) {
        return dst->backend->write(s->stream[d], 0, seen, bytes);
    }
    if (into != NULL) {
        return src->backend->read(s->stream[from], 0, into, bytes);
    }
    void *staging = malloc(bytes);
    if (staging == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for a copy of %zu bytes", bytes);
    }
    gw_status status = src->backend->read(s->stream[from], 0, staging, bytes);
    status = status == GW_OK ? dst->backend->write(s->stream[d], 0, staging, bytes) : status;
    free(staging);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static int is_faster(const gw_session *s, int stage) {
    const gw_fetch_rate *rate = &s->model->fetch_rate;
    const gw_layer_range *layers = &s->fetch.layers[stage];
    int at = s->fetch.pass[stage], rows = s->step.n;
    if (at < 0 || s->model->place.fetching == GW_FETCH_ALWAYS) {
        return at >= 0;
    }
    if (rate->n_layer_row == 0 || rate->n_byte == 0) { /* home first, then the card */
        return rate->n_layer_row > 0 && rows >= READ_ROWS;
    }
    double home = rate->layer_row * rows * (layers->end - layers->first);
    double there = rate->byte * expected_bytes(s, &s->passes[at], rows);
    int again = rate->n_byte < READINGS && rows >= READ_ROWS && there < HOPELESS * home;
    return there < home || again;
}

static void note_rate(double *rate, int *n, double reading) {
    *rate = *n == 0 || reading < *rate ? reading : *rate;
    *n += 1;
}

static gw_status run_one(gw_session *s, int stage, int fetched, int ahead) {
    gw_layer_range layers = s->fetch.layers[stage];
    gw_pass *p = fetched ? &s->passes[s->fetch.pass[stage]] : gw_prompt_pass(s, stage);
    s->fetch.route = NULL;
    GW_TRY(fetched ? move_caches(s, layers, 0) : GW_OK);
    GW_TRY(gw_pass_run(s, p, ahead ? gw_plan_start : gw_plan_run));
    return fetched ? move_caches(s, layers, 1) : GW_OK;
}

gw_status gw_fetch_run(gw_session *s, int stage, int ahead, int *fetched) {
    gw_fetch *f = &s->fetch;
    gw_fetch_rate *rate = &s->model->fetch_rate;
    if (f->device == 0) {
        *fetched = 0;
        return gw_pass_run(s, gw_prompt_pass(s, stage), ahead ? gw_plan_start : gw_plan_run);
    }
    const gw_hparams *hp = &s->model->hp;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    gw_layer_range layers = f->layers[stage];
    *fetched = !s->sees && is_faster(s, stage);
    const gw_where *where = *fetched ? f->where : s->where;
    int reads = f->pass[stage] >= 0 && s->step.n >= READ_ROWS &&
                (*fetched ? rate->n_byte : rate->n_layer_row) < READINGS;
    GW_TRY(stage > 0
               ? move_stream(s, gw_graph_stream_device(bp, hp, where, layers.first))
               : GW_OK);
    for (int d = 0; reads && d < s->model->place.n_devices; d++) { /* nothing else is at work */
        const gw_plan_device *to = &s->model->place.devices[d];
        GW_TRY(to->backend->wait(to->device));
    }
    double start = gw_seconds_now();
    GW_TRY(run_one(s, stage, *fetched, ahead && !reads));
    f->stream = gw_graph_stream_device(bp, hp, where, layers.end);
    double seconds = gw_seconds_now() - start;
    if (reads && *fetched) {
        double bytes = expected_bytes(s, &s->passes[f->pass[stage]], s->step.n);
        note_rate(&rate->byte, &rate->n_byte, seconds / bytes);
    } else if (reads) {
        note_rate(&rate->layer_row, &rate->n_layer_row,
                  seconds / s->step.n / (layers.end - layers.first));
    }
    return GW_OK;
}

gw_status gw_fetch_end(gw_session *s) {
    const gw_hparams *hp = &s->model->hp;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    return s->fetch.device == 0
               ? GW_OK
               : move_stream(s, gw_graph_stream_device(bp, hp, s->where, hp->n_layers));
}
