/* core/engine/run/session_passes.c - the passes of a session: which there are, of how many rows,
 * the stages of a prompt, and how long kernels took.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/engine/run/session_state.h"

/* Where cards compute all layers there are prompt passes of so many rows besides that of a chunk: a
 * launch has blocks for all rows of its plan, and blocks of rows that are not live take time too.
 * The kernels of a plan of 1,024 rows took 1.09 times (HIP) and 1.27 times (OpenCL) as long for 64
 * tokens of an 8b in Q4_K as those of a plan of 64 rows (H100). */
static const int prompt_rows[GW_PROMPT_PLANS] = {128, 512};

/* The body of a prompt is cut into stages of about this many multiply-adds, so that a cancel is
 * seen within a tenth of a second also where a chunk takes long. */
static const double stage_size = 1e10;
static const double stage_seconds = 0.05;

static const int decode_rows[GW_DECODE_PLANS] = {1, 2, 4, 8, GW_DECODE_MAX, 32, 64, 128, 256};

_Static_assert((int)GW_HEAD_TILE >= (int)GW_DECODE_MAX, "logits of every decode row need a place");

int gw_session_widest(const gw_session *s) { return decode_rows[s->n_widths - 1]; }

int gw_session_widths(int widest) {
    int n = 1;
    while (decode_rows[n - 1] < widest) {
        n++;
    }
    return n;
}

gw_pass *gw_session_head_pass(gw_session *s) { return &s->passes[s->n_widths]; }

gw_status gw_pass_draw(gw_session *s, gw_pass *p, int rows, gw_order order, gw_pass_parts parts,
                       gw_layer_range layers) {
    const int fetched = parts == GW_PASS_FETCHED;
    const gw_hparams *hp = &s->model->hp;
    gw_tensor stream[GW_MAX_DEVICES];
    gw_graph_inputs in = {.hp = hp,
                          .weights = s->model->weights,
                          .where = fetched ? s->fetch.where : s->where,
                          .groups = gw_place_groups(&s->model->place),
                          .n_devices = s->model->place.n_devices,
                          .rope = s->tables.rope[0],
                          .q_factor = s->tables.factor[0],
                          .page_table = s->kv.page_table[0],
                          .table_of = s->kv.table_of,
                          .source_table = s->sharing.sources ? s->source_table : NULL,
                          .stream = stream,
                          .k = fetched ? s->fetch.k : s->kv.k,
                          .v = fetched ? s->fetch.v : s->kv.v,
                          .paged = s->kv.paged,
                          .state = s->states.t,
                          .kept = s->kept_value[0],
                          .rows = rows,
                          .order = order,
                          .both = parts == GW_PASS_PICTURE};
    if (s->seeing.parts > 0 && order == GW_ORDER_PREFILL) {
        in.gate = s->seeing.gate_on;
        in.seen = s->seeing.seen_on;
        in.n_deep = s->seeing.parts - 1;
    }
    if (s->adapting.rows != NULL) {
        in.lora = s->model->adapters->bank;
        in.lora_route = s->adapting.route_on;
    }
    for (int d = 0; d < s->model->place.n_devices; d++) {
        stream[d] = s->stream_on[d];
        stream[d].dim[0] = parts == GW_PASS_HEAD ? s->most_rows : rows;
    }
    in.logits = (gw_tensor){.name = "logits",
                            .fmt = GW_FMT_F32,
                            .n_dim = 2,
                            .dim = {rows, hp->n_vocab},
                            .buf = s->logits,
                            .device = s->head_device};
    if (parts == GW_PASS_NEXT || parts == GW_PASS_DRAW) {
        in.ids = parts == GW_PASS_NEXT ? s->ids : &s->ids_of_rows;
        in.choice = parts == GW_PASS_NEXT ? s->choice : &s->choice_of_rows;
    }
    in.taps = s->hidden.tap_on;
    in.tap_layer = s->hidden.tap_layer;
    in.n_taps = s->hidden.n_taps;
    in.joined = s->hidden.joined.buf != NULL ? &s->hidden.joined : NULL;
    GW_TRY(gw_graph_new(&in, &p->graph));
    if (parts == GW_PASS_BODY || parts == GW_PASS_PICTURE || parts == GW_PASS_WHOLE ||
        parts == GW_PASS_NEXT || fetched) {
        gw_graph_body(&p->graph, &in, layers.first, layers.end);
    }
    if (parts == GW_PASS_HEAD || parts == GW_PASS_WHOLE || parts == GW_PASS_NEXT) {
        gw_graph_head(&p->graph, &in, parts == GW_PASS_HEAD);
    }
    if (parts == GW_PASS_HIDDEN) {
        in.hidden = s->hidden.on;
        in.hidden.dim[0] = rows;
        gw_graph_hidden(&p->graph, &in);
    }
    if (in.ids != NULL) {
        gw_graph_sample(&p->graph, &in);
    }
    for (size_t i = 0; fetched && i < p->graph.n_nodes; i++) {
        gw_node *node = &p->graph.nodes[i];
        for (int k = 0; k < GW_MAX_W; k++) {
            node->fetches |= gw_weights_is_fetched(s->model->weights, node->w[k]);
        }
    }
    return GW_OK;
}

gw_status gw_pass_build(gw_session *s, gw_pass *p, int rows, gw_order order, gw_pass_parts parts,
                        gw_layer_range layers) {
    GW_TRY(gw_pass_draw(s, p, rows, order, parts, layers));
    size_t n = p->graph.n_nodes;
    p->bytes = calloc(n, sizeof *p->bytes);
    p->ops = calloc(n, sizeof *p->ops);
    p->row = calloc(n, sizeof *p->row);
    if (p->bytes == NULL || p->ops == NULL || p->row == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %zu nodes", n);
    }
    return gw_plan_build(p->graph.nodes, n, s->model->place.devices, s->model->place.n_devices,
                         rows, s->model->arenas, &p->plan);
}

/* Layers that fit into a stage of a prompt; at least one. */
static int stage_layers(const gw_session *s) {
    const gw_hparams *hp = &s->model->hp;
    double widest = 1.0;
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        double q = (double)y->n_heads * y->d_head, kv = (double)y->n_kv_heads * y->d_head;
        double f = y->n_experts > 0 ? (double)y->n_used * y->d_expert : y->d_ff;
        double layer = (double)s->chunk * hp->d_model * (2.0 * q + 2.0 * kv + 3.0 * f);
        widest = layer > widest ? layer : widest;
    }
    double fit = stage_size / widest;
    int layers = hp->n_layers - hp->n_source;
    return fit < 1.0 ? 1 : fit > layers ? layers : (int)fit;
}

/* The stages of prompts in passes of so many rows, the first of them passes[at]. */
static gw_status build_stages(gw_session *s, int at, int stages, int rows, gw_pass_parts parts) {
    for (int i = 0; i < stages; i++) {
        GW_TRY(gw_pass_build(s, &s->passes[at + i], rows, GW_ORDER_PREFILL, parts,
                             s->fetch.layers[i]));
    }
    return GW_OK;
}

/* The largest plans first: the arena then never grows. */
static gw_status build_passes(gw_session *s) {
    int start = s->model->hp.n_source, n_layers = s->model->hp.n_layers;
    int step = stage_layers(s), stages = (n_layers - start - 1) / step + 1;
    int body = s->n_widths + 1;
    /* stages of the chunk, of pictures, with fetched weights, of fewer rows; source, next, draw,
     * two of hidden states */
    s->passes = calloc((size_t)(body + (3 + GW_PROMPT_PLANS) * stages + 5), sizeof *s->passes);
    s->fetch.layers = calloc((size_t)stages, sizeof *s->fetch.layers);
    if (s->passes == NULL || s->fetch.layers == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %d stages", stages);
    }
    s->first_prompt_pass = body;
    s->n_passes = s->n_prompt_passes = body + stages;
    if (start > 0) {
        gw_layer_range layers = {0, start};
        s->source = &s->passes[s->n_passes++];
        GW_TRY(gw_pass_build(s, s->source, s->n_ctx, GW_ORDER_PREFILL, GW_PASS_BODY, layers));
    }
    for (int i = 0; i < stages; i++) {
        int first = start + i * step;
        s->fetch.layers[i] = (gw_layer_range){first, i == stages - 1 ? n_layers : first + step};
    }
    GW_TRY(build_stages(s, body, stages, s->chunk, GW_PASS_BODY));
    if (s->picture_rows > 0) {
        s->picture_pass = s->n_passes;
        s->n_passes += stages;
        GW_TRY(build_stages(s, s->picture_pass, stages, s->picture_rows, GW_PASS_PICTURE));
    }
    for (int k = GW_PROMPT_PLANS - 1; k >= 0 && s->on_cards; k--) {
        if (prompt_rows[k] < s->chunk) {
            s->short_prompt_pass[k] = s->n_passes;
            s->n_passes += stages;
            GW_TRY(build_stages(s, s->short_prompt_pass[k], stages, prompt_rows[k], GW_PASS_BODY));
        }
    }
    gw_layer_range all = {start, n_layers};
    int tile = s->chunk < GW_HEAD_TILE ? s->chunk : GW_HEAD_TILE;
    GW_TRY(gw_pass_build(s, gw_session_head_pass(s), tile, GW_ORDER_PREFILL, GW_PASS_HEAD, all));
    for (int i = s->n_widths - 1; i >= 0; i--) {
        GW_TRY(
            gw_pass_build(s, &s->passes[i], decode_rows[i], GW_ORDER_DECODE, GW_PASS_WHOLE, all));
    }
    if (s->sampled[s->head_device] != NULL) {
        s->next = &s->passes[s->n_passes++];
        GW_TRY(gw_pass_build(s, s->next, 1, GW_ORDER_DECODE, GW_PASS_NEXT, all));
    }
    gw_fetch_new(s, stages);
    return GW_OK;
}

/* Number the lines of gw_session_kernel_times: nodes of one kernel and role share one. */
void gw_session_number_rows(gw_session *s) {
    s->n_rows = 0;
    for (int p = 0; p < s->n_passes; p++) {
        for (size_t i = 0; i < gw_plan_size(s->passes[p].plan); i++) {
            const gw_node *node = gw_plan_node(s->passes[p].plan, i);
            size_t line = s->n_rows;
            for (int q = 0; q <= p && line == s->n_rows; q++) {
                size_t n = q == p ? i : gw_plan_size(s->passes[q].plan);
                for (size_t k = 0; k < n && line == s->n_rows; k++) {
                    const gw_node *other = gw_plan_node(s->passes[q].plan, k);
                    if (other->kernel == node->kernel && strcmp(other->what, node->what) == 0) {
                        line = s->passes[q].row[k];
                    }
                }
            }
            s->passes[p].row[i] = line;
            s->n_rows += line == s->n_rows;
        }
    }
}

/* When all are frozen: kernels that have to be compiled are compiled together. */
gw_status gw_session_build(gw_session *s, const gw_session_options *o) {
    GW_TRY(build_passes(s));
    gw_watch watch = {.cancel = s->cancel};
    if (o != NULL) {
        watch.progress = o->progress;
        watch.user = o->progress_user;
    }
    for (int i = 0; i < s->n_passes; i++) {
        GW_TRY(gw_plan_ready(s->passes[i].plan, &watch));
    }
    gw_session_number_rows(s);
    return GW_OK;
}

gw_status gw_session_rebuild(gw_session *s) {
    const int draws = s->draw != NULL;
    for (int i = 0; i < s->n_passes; i++) {
        gw_pass_free(&s->passes[i]);
    }
    free(s->passes);
    gw_fetch_free(s);
    s->passes = s->source = s->next = s->draw = NULL;
    s->n_passes = s->picture_pass = s->ahead = 0;
    memset(s->short_prompt_pass, 0, sizeof s->short_prompt_pass);
    GW_TRY(gw_session_build(s, NULL));
    return draws ? gw_session_draw_rows(s) : GW_OK;
}

void gw_pass_free(gw_pass *p) {
    gw_plan_free(p->plan);
    gw_graph_free(&p->graph);
    free(p->bytes);
    free(p->ops);
    free(p->row);
    memset(p, 0, sizeof *p);
}

static void account(gw_pass *p, const gw_step *step) {
    int rows = step->n;
    for (size_t i = 0; i < gw_plan_size(p->plan); i++) {
        const gw_node *node = gw_plan_node(p->plan, i);
        double bytes = 0.0, ops = 0.0;
        rows = node->op == GW_OP_PICK ? step->n_pick : rows;
        gw_op_describe(node->op)->cost(node, rows, step->pos_max + 1, &bytes, &ops);
        p->bytes[i] += bytes;
        p->ops[i] += ops;
    }
}

gw_status gw_pass_run(gw_session *s, gw_pass *p, gw_status (*go)(gw_plan *, const gw_step *)) {
    GW_TRY(go(p->plan, &s->step));
    if (s->profiling) {
        account(p, &s->step);
    }
    return GW_OK;
}

/* Rows of the next chunk. Attention grows with the position, so far into a long prompt a stage of
 * the full chunk would outlast the promise that stage_size makes, unless the last chunk showed that
 * the device is fast enough; bits do not depend on the cut. */
int32_t gw_prompt_rows(const gw_session *s, size_t left) {
    enum { SMALLEST = 16, FLOAT_COST = 4 }; /* int8 multiply-adds done in the time of a float one */
    const gw_hparams *hp = &s->model->hp;
    double widest = 0.0;
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        double seen = y->window > 0 && y->window < s->pos ? y->window : s->pos;
        double width = (double)y->n_heads * y->d_head * seen;
        widest = width > widest ? width : widest;
    }
    double row = FLOAT_COST * 2.0 * widest * stage_layers(s);
    double fit = row > 0.0 ? stage_size / row : s->chunk;
    double measured = s->row_seconds > 0.0 ? stage_seconds / s->row_seconds : 0.0;
    fit = measured > fit ? measured : fit;
    int32_t most = fit < SMALLEST ? SMALLEST : fit < s->chunk ? (int32_t)fit : s->chunk;
    most = most < s->chunk ? most : s->chunk;
    return left < (size_t)most ? (int32_t)left : most;
}

/* Where several devices have layers, the stages of a chunk are started, not awaited: the first goes
 * on with the next chunk while the others compute this one. */
int gw_prompt_overlaps(const gw_session *s) {
    const gw_place *place = &s->model->place;
    const gw_where *at = s->where + place->last_block;
    int several = 0;
    for (int l = 1; l < place->n_layers; l++) {
        several |= at[l * place->n_blocks] != at[0];
    }
    return several;
}

gw_pass *gw_prompt_pass(gw_session *s, int stage) {
    int first = s->first_prompt_pass;
    for (int k = GW_PROMPT_PLANS - 1; k >= 0; k--) {
        if (s->short_prompt_pass[k] > 0 && s->step.n <= prompt_rows[k]) {
            first = s->short_prompt_pass[k];
        }
    }
    first = s->sees ? s->picture_pass : first;
    return &s->passes[first + stage];
}

/* Where cards compute all layers, stages start without waiting for the ones in front of them until
 * stage_seconds of work are queued, by the time that the last chunk took: waiting for each costs
 * some 50 us a stage. */
gw_status gw_prompt_run(gw_session *s, int overlaps) {
    const int stages = s->n_prompt_passes - s->first_prompt_pass;
    const int at_home = s->where[s->model->place.last_block] == 0;
    /* A card takes more than half as long for a few rows as for 128. */
    const int rows = s->on_cards && s->step.n < prompt_rows[0] ? prompt_rows[0] : s->step.n;
    const double each = s->row_seconds * rows, begin = gw_seconds_now();
    const int runs_on = !overlaps && each > 0.0 && s->on_cards;
    double slowest = 0.0, at_work = 0.0;
    int n_fetched = 0, started = 0;
    for (int i = 0; i < stages; i++) {
        const double start = gw_seconds_now();
        const int starts = runs_on && i + 1 < stages && at_work + each < stage_seconds;
        int fetched = 0;
        GW_TRY(gw_session_check_cancel(s));
        GW_TRY(gw_fetch_run(s, i, overlaps || starts, &fetched));
        at_work = starts ? at_work + each : 0.0;
        started |= starts;
        n_fetched += fetched;
        const double seconds = gw_seconds_now() - start;
        slowest = seconds > slowest ? seconds : slowest;
    }
    if (overlaps) { /* a stage waits for the same one of the chunk before; the CPU's would not */
        slowest = !at_home || n_fetched > 0 ? (gw_seconds_now() - begin) / stages : 0.0;
    } else if (started) {
        slowest = (gw_seconds_now() - begin) / stages;
    }
    s->row_seconds = slowest / rows;
    return GW_OK;
}

gw_pass *gw_session_decode_pass(gw_session *s, int32_t n) {
    int width = 0;
    while (decode_rows[width] < n) {
        width++;
    }
    return &s->passes[width];
}

void gw_session_profile(gw_session *s, int on) {
    if (s->ahead) { /* nothing is at work while its timing changes; the step is begun again */
        (void)gw_plan_wait(s->next->plan);
        s->ahead = 0;
    }
    s->profiling = on;
    for (int p = 0; p < s->n_passes; p++) {
        size_t n = gw_plan_size(s->passes[p].plan);
        memset(s->passes[p].bytes, 0, n * sizeof(double));
        memset(s->passes[p].ops, 0, n * sizeof(double));
        gw_plan_profile(s->passes[p].plan, on);
    }
}

static gw_kernel_time sum_row(const gw_session *s, size_t line) {
    gw_kernel_time sum = {0};
    for (int p = 0; p < s->n_passes; p++) {
        const gw_pass *ps = &s->passes[p];
        for (size_t i = 0; i < gw_plan_size(ps->plan); i++) {
            if (ps->row[i] == line) {
                const gw_node *node = gw_plan_node(ps->plan, i);
                gw_node_time t = gw_plan_time(ps->plan, i);
                sum.name = node->kernel->name;
                sum.what = node->what;
                sum.calls += t.calls;
                sum.seconds += t.seconds;
                sum.bytes += ps->bytes[i];
                sum.ops += ps->ops[i];
            }
        }
    }
    return sum;
}

size_t gw_session_kernel_times(const gw_session *s, gw_kernel_time *rows, size_t capacity) {
    size_t n = 0;
    for (size_t line = 0; line < s->n_rows; line++) {
        gw_kernel_time sum = sum_row(s, line);
        if (sum.calls > 0) {
            if (n < capacity) {
                rows[n] = sum;
            }
            n++;
        }
    }
    return n;
}
