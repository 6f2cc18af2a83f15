/* core/engine/session.c - one token timeline: feeds tokens through frozen plans, hands out logits.
 * Everything is allocated in gw_session_new; a pass writes the step block and replays. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/kv.h"
#include "core/engine/model_state.h"
#include "core/base/size.h"
#include "core/model/build.h"
#include "core/model/rope.h"

/* Rows of a prompt whose logits are computed in one pass. */
enum { HEAD_TILE = 32, DECODE_PLANS = 5, CHUNK_DEFAULT = 512 };

/* The body of a prompt is cut into stages of about this many multiply-adds, so that a cancel is
 * seen within a tenth of a second also where a chunk takes long. */
static const double stage_size = 1e10;

static const int decode_rows[DECODE_PLANS] = {1, 2, 4, 8, GW_DECODE_MAX};

/* A frozen plan with its graph and, for profiling, what its nodes moved and computed. */
typedef struct pass {
    gw_graph graph;
    gw_plan *plan;
    double *bytes, *ops; /* [nodes] since profiling was turned on             */
    size_t *row;         /* [nodes] line of gw_session_kernel_times it adds to */
} pass;

enum { PASS_HEAD = DECODE_PLANS, PASS_BODY };

struct gw_session {
    gw_model *model;
    const volatile int *cancel;
    int32_t n_ctx, chunk, pos;
    gw_kv kv;
    struct gw_buffer *stream, *logits, *rope;
    gw_tensor rope_table;
    pass *passes; /* decode widths, prompt head, stages of the prompt body */
    int n_passes;
    size_t n_rows; /* lines of gw_session_kernel_times */
    int profiling;
    float *logits_host; /* [HEAD_TILE, v]: the device's memory, or our copy of it */
    float *logits_copy;
    size_t first_logit, n_logits; /* rows of logits_host that callers may read */
    gw_step step;
};

_Static_assert((int)HEAD_TILE >= (int)GW_DECODE_MAX, "logits of every decode row need a place");

/* ---- sizes ---------------------------------------------------------------------------------- */

static void size_text(uint64_t bytes, char *out, size_t room) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)bytes;
    int unit = 0;
    while (x >= 1000.0 && unit < 6) {
        x /= 1000.0;
        unit++;
    }
    snprintf(out, room, unit == 0 ? "%.0f %s" : "%.1f %s", x, units[unit]);
}

static gw_status check_memory(const gw_session *s, gw_fmt fmt) {
    const gw_hparams *hp = &s->model->hp;
    uint64_t need, rope;
    GW_TRY(gw_kv_bytes(hp, fmt, 1, s->n_ctx, &need));
    if (!gw_size_mul((uint64_t)s->n_ctx * sizeof(float), (uint64_t)hp->rope_dim, &rope) ||
        !gw_size_add(need, rope, &need)) {
        return gw_fail(GW_E_OVERFLOW, "context", "%d positions do not fit 64 bits", s->n_ctx);
    }
    gw_device_info info;
    s->model->device.backend->describe(s->model->device.device, &info);
    uint64_t have = info.free_bytes > 0 ? info.free_bytes : info.memory_bytes;
    if (have > 0 && need > have) {
        char need_text[32], have_text[32];
        size_text(need, need_text, sizeof need_text);
        size_text(have, have_text, sizeof have_text);
        return gw_fail(GW_E_NOMEM, "context",
                       "a context of %d tokens needs %s, have %s; ask for a shorter one", s->n_ctx,
                       need_text, have_text);
    }
    return GW_OK;
}

static gw_status read_options(gw_session *s, const gw_session_options *o, gw_fmt *kv_fmt) {
    static const gw_session_options defaults;
    o = o != NULL ? o : &defaults;
    if (o->n_ctx < 0) {
        return gw_fail(GW_E_ARGUMENT, "context", "%d tokens; 1 or more are needed", o->n_ctx);
    }
    if (o->chunk < 0 || o->chunk > GW_CHUNK_MAX) {
        return gw_fail(GW_E_ARGUMENT, "chunk", "%d is outside 1..%d", o->chunk, GW_CHUNK_MAX);
    }
    if (o->kv_type != NULL && strcmp(o->kv_type, "f16") != 0 && strcmp(o->kv_type, "f32") != 0) {
        return gw_fail(GW_E_ARGUMENT, "kv-type", "'%.40s' is neither f16 nor f32", o->kv_type);
    }
    *kv_fmt = o->kv_type != NULL && strcmp(o->kv_type, "f32") == 0 ? GW_FMT_F32 : GW_FMT_F16;
    s->n_ctx = o->n_ctx > 0 ? o->n_ctx : s->model->hp.n_ctx;
    s->chunk = o->chunk > 0 ? o->chunk : CHUNK_DEFAULT;
    s->chunk = s->chunk > s->n_ctx ? s->n_ctx : s->chunk;
    s->cancel = o->cancel;
    return GW_OK;
}

/* ---- buffers -------------------------------------------------------------------------------- */

static gw_status make_rope_table(gw_session *s) {
    enum { ROWS = 256 };
    const gw_hparams *hp = &s->model->hp;
    const gw_backend *backend = s->model->device.backend;
    int half = hp->rope_dim / 2;
    size_t row = 2 * (size_t)half * sizeof(float);
    double *freq = calloc((size_t)half + 1, sizeof *freq), magnitude;
    float *rows = malloc(ROWS * row + 1);
    gw_status status = GW_OK;
    if (freq == NULL || rows == NULL) {
        status = gw_fail(GW_E_NOMEM, "context", "no memory for the rope table");
        goto done;
    }
    gw_rope_frequencies(hp, freq, &magnitude);
    GW_TRY_DONE(backend->alloc(s->model->device.device, (size_t)s->n_ctx * row + 1, &s->rope));
    for (int64_t p = 0; p < s->n_ctx; p += ROWS) {
        int64_t n = s->n_ctx - p < ROWS ? s->n_ctx - p : ROWS;
        gw_rope_fill(freq, half, magnitude, p, n, rows);
        GW_TRY_DONE(backend->write(s->rope, (size_t)p * row, rows, (size_t)n * row));
    }
    s->rope_table = (gw_tensor){
        .name = "rope", .fmt = GW_FMT_F32, .n_dim = 3, .dim = {s->n_ctx, 2, half}, .buf = s->rope};
done:
    free(freq);
    free(rows);
    return status;
}

static gw_status make_buffers(gw_session *s) {
    const gw_hparams *hp = &s->model->hp;
    const gw_plan_device *d = &s->model->device;
    size_t rows = (size_t)(s->chunk > GW_DECODE_MAX ? s->chunk : GW_DECODE_MAX);
    size_t logits = (size_t)HEAD_TILE * (size_t)hp->n_vocab * sizeof(float);
    GW_TRY(make_rope_table(s));
    GW_TRY(d->backend->alloc(d->device, rows * (size_t)hp->d_model * sizeof(float), &s->stream));
    GW_TRY(d->backend->alloc(d->device, logits, &s->logits));
    s->logits_host = d->backend->host(s->logits);
    if (s->logits_host == NULL) {
        s->logits_copy = malloc(logits);
        s->logits_host = s->logits_copy;
        if (s->logits_copy == NULL) {
            return gw_fail(GW_E_NOMEM, "context", "no memory for the logits");
        }
    }
    return GW_OK;
}

/* ---- plans ---------------------------------------------------------------------------------- */

typedef enum pass_parts { WHOLE, BODY, HEAD } pass_parts;

typedef struct layer_range {
    int first, end;
} layer_range;

static gw_status build_pass(gw_session *s, pass *p, int rows, gw_order order, pass_parts parts,
                            layer_range layers) {
    const gw_hparams *hp = &s->model->hp;
    gw_graph_inputs in = {.hp = hp,
                          .weights = s->model->weights,
                          .rope = &s->rope_table,
                          .page_table = &s->kv.page_table,
                          .k = s->kv.k,
                          .v = s->kv.v,
                          .rows = rows,
                          .order = order};
    int64_t stream_rows = parts == HEAD ? s->chunk : rows;
    in.stream = (gw_tensor){.name = "stream",
                            .fmt = GW_FMT_F32,
                            .n_dim = 2,
                            .dim = {stream_rows, hp->d_model},
                            .buf = s->stream};
    in.logits = (gw_tensor){.name = "logits",
                            .fmt = GW_FMT_F32,
                            .n_dim = 2,
                            .dim = {rows, hp->n_vocab},
                            .buf = s->logits};
    GW_TRY(gw_graph_new(&in, &p->graph));
    if (parts != HEAD) {
        gw_graph_body(&p->graph, &in, layers.first, layers.end);
    }
    if (parts != BODY) {
        gw_graph_head(&p->graph, &in, parts == HEAD);
    }
    size_t n = p->graph.n_nodes;
    p->bytes = calloc(n, sizeof *p->bytes);
    p->ops = calloc(n, sizeof *p->ops);
    p->row = calloc(n, sizeof *p->row);
    if (p->bytes == NULL || p->ops == NULL || p->row == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %zu nodes", n);
    }
    return gw_plan_build(p->graph.nodes, n, &s->model->device, 1, rows, s->model->arenas, &p->plan);
}

/* Layers that fit into a stage of a prompt; at least one. */
static int stage_layers(const gw_session *s) {
    const gw_hparams *hp = &s->model->hp;
    double d = hp->d_model, q = (double)hp->n_heads * hp->d_head;
    double kv = (double)hp->n_kv_heads * hp->d_head;
    double layer = (double)s->chunk * d * (2.0 * q + 2.0 * kv + 3.0 * hp->d_ff);
    double fit = stage_size / layer;
    return fit < 1.0 ? 1 : fit > hp->n_layers ? hp->n_layers : (int)fit;
}

/* The largest plans first: the arena then never grows. */
static gw_status build_passes(gw_session *s) {
    int n_layers = s->model->hp.n_layers, step = stage_layers(s);
    int stages = (n_layers - 1) / step + 1;
    s->passes = calloc((size_t)(PASS_BODY + stages), sizeof *s->passes);
    if (s->passes == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %d stages", stages);
    }
    s->n_passes = PASS_BODY + stages;
    for (int i = 0; i < stages; i++) {
        layer_range layers = {i * step, i == stages - 1 ? n_layers : (i + 1) * step};
        GW_TRY(build_pass(s, &s->passes[PASS_BODY + i], s->chunk, GW_ORDER_PREFILL, BODY, layers));
    }
    layer_range all = {0, n_layers};
    int tile = s->chunk < HEAD_TILE ? s->chunk : HEAD_TILE;
    GW_TRY(build_pass(s, &s->passes[PASS_HEAD], tile, GW_ORDER_PREFILL, HEAD, all));
    for (int i = DECODE_PLANS - 1; i >= 0; i--) {
        GW_TRY(build_pass(s, &s->passes[i], decode_rows[i], GW_ORDER_DECODE, WHOLE, all));
    }
    return GW_OK;
}

/* Number the lines of gw_session_kernel_times: nodes of one kernel and role share one. */
static void number_rows(gw_session *s) {
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

/* ---- life ----------------------------------------------------------------------------------- */

gw_status gw_session_new(gw_model *model, const gw_session_options *options, gw_session **out) {
    if (model->weights == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, model->name, "only the vocabulary of this model is open");
    }
    gw_session *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for a session");
    }
    s->model = model;
    gw_status status;
    gw_fmt kv_fmt = GW_FMT_F16;
    GW_TRY_DONE(read_options(s, options, &kv_fmt));
    GW_TRY_DONE(check_memory(s, kv_fmt));
    GW_TRY_DONE(gw_kv_new(&model->device, &model->hp, kv_fmt, 1, s->n_ctx, &s->kv));
    GW_TRY_DONE(make_buffers(s));
    GW_TRY_DONE(build_passes(s));
    number_rows(s);
    *out = s;
    return GW_OK;
done:
    gw_session_free(s);
    return status;
}

void gw_session_free(gw_session *s) {
    if (s == NULL) {
        return;
    }
    for (int p = 0; p < s->n_passes; p++) {
        gw_plan_free(s->passes[p].plan);
        gw_graph_free(&s->passes[p].graph);
        free(s->passes[p].bytes);
        free(s->passes[p].ops);
        free(s->passes[p].row);
    }
    free(s->passes);
    struct gw_buffer *const buffers[] = {s->stream, s->logits, s->rope};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        if (buffers[i] != NULL) {
            s->model->device.backend->release(buffers[i]);
        }
    }
    gw_kv_free(&s->kv);
    free(s->logits_copy);
    free(s);
}

/* ---- passes --------------------------------------------------------------------------------- */

static void account(pass *p, const gw_step *step) {
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

static gw_status run_pass(gw_session *s, pass *p) {
    GW_TRY(gw_plan_run(p->plan, &s->step));
    if (s->profiling) {
        account(p, &s->step);
    }
    return GW_OK;
}

static void set_step(gw_session *s, const int32_t *tokens, int32_t n, int32_t pos) {
    s->step.n = n;
    s->step.pick = 0;
    s->step.n_pick = n;
    s->step.pos_max = pos + n - 1;
    for (int32_t i = 0; i < n; i++) {
        s->step.token[i] = tokens[i];
        s->step.pos[i] = pos + i;
        s->step.slot[i] = 0;
    }
}

/* 1 when the largest value of a row is a finite number. */
static int row_is_finite(const float *x, size_t n) {
    float top = -INFINITY;
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= !(x[i] <= FLT_MAX); /* NaN and +infinity */
        top = x[i] > top ? x[i] : top;
    }
    return !bad && top >= -FLT_MAX;
}

/* Make logits rows [0, n) of the device readable and refuse what no token can be chosen from. */
static gw_status take_logits(gw_session *s, size_t n) {
    size_t v = (size_t)s->model->hp.n_vocab;
    if (s->logits_copy != NULL) {
        GW_TRY(s->model->device.backend->read(s->logits, 0, s->logits_copy, n * v * sizeof(float)));
    }
    for (size_t i = 0; i < n; i++) {
        if (!row_is_finite(s->logits_host + i * v, v)) {
            return gw_fail(GW_E_NUMERIC, s->model->name,
                           "logits are not finite after %d tokens: weights are damaged, or the "
                           "16-bit cache overflowed (try kv-type f32)",
                           s->step.pos_max + 1);
        }
    }
    return GW_OK;
}

static gw_status check_tokens(const gw_session *s, const int32_t *tokens, size_t n) {
    if (n == 0) {
        return gw_fail(GW_E_ARGUMENT, "tokens", "there are none");
    }
    if (n > (size_t)(s->n_ctx - s->pos)) {
        return gw_fail(GW_E_CONTEXT, "context", "needs %zu tokens, the context holds %d",
                       n + (size_t)s->pos, s->n_ctx);
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= s->model->hp.n_vocab) {
            return gw_fail(GW_E_ARGUMENT, "tokens", "token %zu is %d, outside 0..%d", i, tokens[i],
                           s->model->hp.n_vocab - 1);
        }
    }
    return GW_OK;
}

static gw_status check_cancel(const gw_session *s) {
    if (s->cancel != NULL && *s->cancel) {
        return gw_fail(GW_E_CANCELLED, "session", "cancelled at token %d", s->pos);
    }
    return GW_OK;
}

/* Logits of rows [at, at + n) of the chunk that just ran. */
static gw_status run_head(gw_session *s, int32_t at, int32_t n) {
    s->step.n = n; /* the head's plan is narrower than the body's */
    s->step.pick = at;
    s->step.n_pick = n;
    GW_TRY(run_pass(s, &s->passes[PASS_HEAD]));
    return take_logits(s, (size_t)n);
}

typedef struct row_sink {
    gw_row_fn fn; /* NULL: only the last row of the prompt is wanted */
    void *user;
    size_t first; /* first row wanted */
} row_sink;

/* Heads over the wanted rows of a chunk of n rows that begins at row `base` of the prompt. */
static gw_status hand_out(gw_session *s, size_t base, int32_t n, const row_sink *sink) {
    int32_t at = sink->first > base ? (int32_t)(sink->first - base) : 0;
    int32_t tile = s->chunk < HEAD_TILE ? s->chunk : HEAD_TILE;
    size_t v = (size_t)s->model->hp.n_vocab;
    for (; at < n; at += tile) {
        int32_t rows = n - at < tile ? n - at : tile;
        GW_TRY(run_head(s, at, rows));
        for (int32_t i = 0; i < rows; i++) {
            if (sink->fn(sink->user, base + (size_t)(at + i), s->logits_host + (size_t)i * v)) {
                return gw_fail(GW_E_CANCELLED, "session", "stopped by the reader of the logits");
            }
        }
        s->first_logit = (size_t)rows - 1;
    }
    return GW_OK;
}

/* Rows of the next chunk. Attention grows with the position, so far into a long prompt a stage of
 * the full chunk would outlast the promise that stage_size makes; bits do not depend on the cut. */
static int32_t chunk_rows(const gw_session *s, size_t left) {
    enum { SMALLEST = 16, FLOAT_COST = 4 }; /* int8 multiply-adds done in the time of a float one */
    const gw_hparams *hp = &s->model->hp;
    double seen = hp->window > 0 && hp->window < s->pos ? hp->window : s->pos;
    double row = FLOAT_COST * 2.0 * hp->n_heads * hp->d_head * seen * stage_layers(s);
    double fit = row > 0.0 ? stage_size / row : s->chunk;
    int32_t most = fit < SMALLEST ? SMALLEST : fit < s->chunk ? (int32_t)fit : s->chunk;
    most = most < s->chunk ? most : s->chunk;
    return left < (size_t)most ? (int32_t)left : most;
}

static gw_status feed_prompt(gw_session *s, const int32_t *tokens, size_t n, const row_sink *sink) {
    for (size_t done = 0; done < n;) {
        int32_t rows = chunk_rows(s, n - done);
        set_step(s, tokens + done, rows, s->pos);
        for (int i = PASS_BODY; i < s->n_passes; i++) {
            GW_TRY(check_cancel(s));
            GW_TRY(run_pass(s, &s->passes[i]));
        }
        int last = done + (size_t)rows == n;
        if (sink->fn != NULL && sink->first < done + (size_t)rows) {
            GW_TRY(hand_out(s, done, rows, sink));
        } else if (last) {
            GW_TRY(run_head(s, rows - 1, 1));
            s->first_logit = 0;
        }
        done += (size_t)rows;
        s->pos += rows;
    }
    return GW_OK;
}

static gw_status prefill(gw_session *s, const int32_t *tokens, size_t n, const row_sink *sink) {
    GW_TRY(check_tokens(s, tokens, n));
    int32_t start = s->pos;
    s->n_logits = 0;
    gw_status status = feed_prompt(s, tokens, n, sink);
    if (status != GW_OK) {
        s->pos = start; /* what was appended to the cache is simply not reached again */
        return status;
    }
    s->n_logits = 1;
    return GW_OK;
}

gw_status gw_session_prefill(gw_session *s, const int32_t *tokens, size_t n) {
    const row_sink sink = {0};
    return prefill(s, tokens, n, &sink);
}

gw_status gw_session_prefill_rows(gw_session *s, const int32_t *tokens, size_t n, size_t first,
                                  gw_row_fn fn, void *user) {
    const row_sink sink = {.fn = fn, .user = user, .first = first};
    return prefill(s, tokens, n, &sink);
}

gw_status gw_session_decode(gw_session *s, const int32_t *tokens, size_t n) {
    if (n > GW_DECODE_MAX) {
        return gw_fail(GW_E_ARGUMENT, "tokens", "%zu in one pass; at most %d", n, GW_DECODE_MAX);
    }
    GW_TRY(check_tokens(s, tokens, n));
    GW_TRY(check_cancel(s));
    int width = 0;
    while (decode_rows[width] < (int)n) {
        width++;
    }
    s->n_logits = 0;
    s->first_logit = 0;
    set_step(s, tokens, (int32_t)n, s->pos);
    GW_TRY(run_pass(s, &s->passes[width]));
    GW_TRY(take_logits(s, n));
    s->pos += (int32_t)n;
    s->n_logits = n;
    return GW_OK;
}

/* ---- questions ------------------------------------------------------------------------------ */

const float *gw_session_logits(const gw_session *s, size_t row) {
    size_t v = (size_t)s->model->hp.n_vocab;
    return row < s->n_logits ? s->logits_host + (s->first_logit + row) * v : NULL;
}

const gw_model *gw_session_model(const gw_session *s) { return s->model; }
int32_t gw_session_pos(const gw_session *s) { return s->pos; }
int32_t gw_session_n_ctx(const gw_session *s) { return s->n_ctx; }

gw_status gw_session_rewind(gw_session *s, int32_t pos) {
    if (pos < 0 || pos > s->pos) {
        return gw_fail(GW_E_ARGUMENT, "rewind", "position %d is outside 0..%d", pos, s->pos);
    }
    s->pos = pos;
    s->n_logits = 0;
    return GW_OK;
}

void gw_session_profile(gw_session *s, int on) {
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
        const pass *ps = &s->passes[p];
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
