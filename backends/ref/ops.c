/* backends/ref/ops.c - every op that knows rows alone, straight from its definition in
 * core/plan/op.h. One thread, no cleverness: this file is read to learn what an op means. */
#include "backends/ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor/blocks.h"
#include "core/tensor/sample.h"

/* ---- rows of tensors ------------------------------------------------------------------------ */

unsigned char *ref_row(const gw_tensor *t, int64_t row) {
    const gw_format *f = gw_format_of(t->fmt);
    size_t bytes = f->row_header + gw_format_blocks(f, (size_t)ref_cols(t)) * f->block_bytes;
    return ref_bytes(t) + (size_t)row * bytes;
}

float *ref_floats(const gw_tensor *t, int64_t row) { return (float *)(void *)ref_row(t, row); }

/* An activation row, exactly. */
void ref_read(double *dst, const gw_tensor *t, int64_t row) {
    int64_t cols = ref_cols(t);
    if (t->fmt == GW_FMT_ACT8) {
        const gw_act8 *block = (const gw_act8 *)(const void *)ref_row(t, row);
        for (int64_t i = 0; i < cols; i++) {
            const gw_act8 *b = &block[i / GW_ACT_BLOCK];
            dst[i] = (double)b->scale * b->q[i % GW_ACT_BLOCK];
        }
        return;
    }
    const float *x = ref_floats(t, row);
    for (int64_t i = 0; i < cols; i++) {
        dst[i] = x[i];
    }
}

/* A result row in the output's format. */
void ref_write(const gw_tensor *t, int64_t row, const double *src) {
    int64_t cols = ref_cols(t);
    if (t->fmt == GW_FMT_ACT8) {
        gw_act8 *block = (gw_act8 *)(void *)ref_row(t, row);
        for (int64_t b = 0; b < cols / GW_ACT_BLOCK; b++) {
            float x[GW_ACT_BLOCK];
            for (int i = 0; i < GW_ACT_BLOCK; i++) {
                x[i] = (float)src[b * GW_ACT_BLOCK + i];
            }
            gw_act8_encode(&block[b], x);
        }
        return;
    }
    float *y = ref_floats(t, row);
    for (int64_t i = 0; i < cols; i++) {
        y[i] = (float)src[i];
    }
}

/* Row r of a weight matrix in floats, which every format expands to exactly. */
const float *ref_weight_row(const gw_tensor *w, int64_t r, float *room) {
    gw_format_of(w->fmt)->decode(room, ref_row(w, r), (size_t)ref_cols(w));
    return room;
}

static size_t scratch_row(const gw_node *node, int rows) {
    (void)rows;
    return 2 * (size_t)ref_cols(node->out);
}

static size_t scratch_input(const gw_node *node, int rows) {
    (void)rows;
    return (size_t)ref_cols(node->in[0]);
}

/* ---- embed, pick, norm, quantize ------------------------------------------------------------ */

static void run_embed(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_embed_args *a = &node->args.embed;
    int64_t d = ref_cols(node->out);
    float *room = (float *)(void *)scratch, *place = room + d, *type = place + d;
    for (int i = 0; i < rows; i++) {
        int32_t token = step->token[i];
        if (token < 0) {
            token = *(const int32_t *)(const void *)ref_row(node->in[0], i);
            token = token < 0 ? 0 : token;
        }
        float *out = ref_floats(node->out, i);
        ref_weight_row(node->w[0], token, room);
        if (node->w[1] != NULL) {
            ref_weight_row(node->w[1], (int64_t)step->pos[i] - step->less[i] + a->offset, place);
        }
        if (node->w[2] != NULL) {
            ref_weight_row(node->w[2], step->type[i], type);
        }
        for (int64_t c = 0; c < d; c++) {
            double y = (double)room[c] * (a->scale != 0.0f ? (double)a->scale : 1.0);
            y = node->w[1] != NULL ? y + (double)place[c] : y;
            out[c] = (float)(node->w[2] != NULL ? y + (double)type[c] : y);
        }
    }
}

/* The rows of a slot: [first, end). */
static void rows_of_slot(const gw_step *step, int32_t slot, int *first, int *end) {
    *first = 0;
    while (*first < step->n - 1 && step->slot[*first] < slot) {
        ++*first;
    }
    *end = *first + 1;
    while (*end < step->n && step->slot[*end] == slot) {
        ++*end;
    }
}

static void run_pick(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    gw_pick_kind kind = node->args.pick.kind;
    int64_t d = ref_cols(node->out);
    for (int i = 0; i < rows; i++) {
        int first = step->pick + i, end = first + 1;
        if (kind != GW_PICK_ROWS) {
            rows_of_slot(step, i, &first, &end);
            first = kind == GW_PICK_LAST ? end - 1 : first;
        }
        ref_read(scratch, node->in[0], first);
        for (int r = first + 1; r < end && kind == GW_PICK_MEAN; r++) {
            ref_read(scratch + d, node->in[0], r);
            for (int64_t c = 0; c < d; c++) {
                scratch[c] += scratch[d + c];
            }
        }
        for (int64_t c = 0; c < d && kind == GW_PICK_MEAN; c++) {
            scratch[c] /= end - first;
        }
        ref_write(node->out, i, scratch);
    }
}

void ref_norm_row(double *x, int64_t n, gw_norm_kind kind, float eps, const float *w,
                  const float *b) {
    double mean = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n && kind == GW_NORM_LAYER; i++) {
        mean += x[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        sum += (x[i] - mean) * (x[i] - mean);
    }
    double scale = 1.0 / sqrt(sum / (double)n + (double)eps);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (x[i] - mean) * scale * (w != NULL ? (double)w[i] : 1.0);
        x[i] += b != NULL ? (double)b[i] : 0.0;
    }
}

static const float *vector(const gw_tensor *t) { return t != NULL ? ref_floats(t, 0) : NULL; }

static void run_norm(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_norm_args *a = &node->args.norm;
    int64_t d = ref_cols(node->out);
    double factor = node->w[2] != NULL ? (double)*vector(node->w[2]) : 1.0;
    (void)step;
    for (int i = 0; i < rows; i++) {
        ref_read(scratch, node->in[0], i);
        ref_norm_row(scratch, d, a->kind, a->eps, vector(node->w[0]), vector(node->w[1]));
        for (int64_t c = 0; c < d; c++) {
            double addend = node->in[1] != NULL ? (double)ref_floats(node->in[1], i)[c] : 0.0;
            scratch[c] = (addend + scratch[c]) * factor;
        }
        ref_write(node->out, i, scratch);
    }
}

static void run_quantize(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    (void)step;
    for (int i = 0; i < rows; i++) {
        if (node->w[0] == NULL) {
            ref_read(scratch, node->in[0], i);
        } else {
            const float *x = ref_floats(node->in[0], i), *from = vector(node->w[0]);
            for (int64_t c = 0; c < node->out->dim[1]; c++) {
                scratch[c] = (double)x[(int)from[c]];
            }
        }
        ref_write(node->out, i, scratch);
    }
}

/* ---- activations, mix ----------------------------------------------------------------------- */

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double softplus(double x) { return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))); }

static double gate_of(const gw_act_args *a, double g, const float *xielu) {
    double positive = g < 0.0 ? 0.0 : g, alpha = (double)a->alpha;
    switch (a->kind) {
    case GW_ACT_SILU:
        return g * sigmoid(g);
    case GW_ACT_GELU:
        return g / 2.0 * (1.0 + erf(g / sqrt(2.0)));
    case GW_ACT_GELU_TANH:
        return g / 2.0 * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (g + 0.044715 * g * g * g)));
    case GW_ACT_RELU:
        return positive;
    case GW_ACT_RELU2:
        return positive * positive;
    case GW_ACT_SWIGLU_OAI:
        return g * sigmoid(alpha * g);
    case GW_ACT_XIELU:
        return (double)xielu[2] * g +
               (g > 0.0 ? (double)xielu[0] * g * g
                        : (double)xielu[1] * (expm1(fmin(g, (double)xielu[3])) - g));
    case GW_ACT_SIGMOID:
        return sigmoid(g);
    case GW_ACT_SOFTPLUS:
        return softplus(g);
    case GW_ACT_TANH:
        return tanh(g);
    case GW_ACT_CLAMP:
        return fmin(fmax(g, (double)xielu[0]), (double)xielu[1]);
    case GW_ACT_CLIP:
        return a->limit > 0.0f ? fmin(fmax(g, -(double)a->limit), (double)a->limit) : g;
    case GW_ACT_SILU_CAPPED:
        return g * sigmoid(g);
    default:
        return g;
    }
}

double ref_act(const gw_act_args *a, double g, double u, int gated, const float *xielu) {
    int late = a->kind == GW_ACT_SILU_CAPPED;
    int limited = late || a->kind == GW_ACT_SILU || a->kind == GW_ACT_SWIGLU_OAI;
    double limit = limited && a->limit > 0.0f ? (double)a->limit : INFINITY;
    double value = gate_of(a, g > limit && !late ? limit : g, xielu);
    value = late && value > limit ? limit : value;
    u = u > limit ? limit : u < -limit ? -limit : u;
    u = a->kind == GW_ACT_SWIGLU_OAI ? u + 1.0 : u;
    return gated ? value * u : value;
}

static void run_act(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_act_args *a = &node->args.act;
    int64_t f = ref_cols(node->out);
    (void)step;
    for (int i = 0; i < rows; i++) {
        const float *x = ref_floats(node->in[0], i);
        for (int64_t c = 0; c < f; c++) {
            double u = a->gated ? (double)x[f + c] : 0.0;
            scratch[c] = ref_act(a, (double)x[c], u, a->gated, vector(node->w[0]));
        }
        ref_write(node->out, i, scratch);
    }
}

static void run_mix(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_mix_args *a = &node->args.mix;
    const gw_act_args gate_act = {.kind = a->gate_act};
    int64_t m = ref_cols(node->out), gates = node->in[1] != NULL ? ref_cols(node->in[1]) : 1;
    double cap = (double)a->cap;
    (void)step;
    for (int i = 0; i < rows; i++) {
        ref_read(scratch, node->in[0], i);
        for (int64_t c = 0; c < m; c++) {
            double v = scratch[c];
            v *= a->scale != 0.0f ? (double)a->scale : 1.0;
            if (node->in[1] != NULL) {
                double g = (double)ref_floats(node->in[1], i)[c / (m / gates)];
                v *= ref_act(&gate_act, g, 0.0, 0, NULL);
            }
            v = a->cap != 0.0f ? cap * tanh(v / cap) : v;
            v += node->in[2] != NULL ? (double)ref_floats(node->in[2], i)[c] : 0.0;
            int64_t at = node->w[0] != NULL && node->w[0]->dim[0] > 1 ? c : 0;
            scratch[c] = v * (node->w[0] != NULL ? (double)vector(node->w[0])[at] : 1.0);
        }
        ref_write(node->out, i, scratch);
    }
}

/* ---- sample --------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

/* The least of the k largest where the choice filters; else minus infinity. By a sort, unlike the
 * kernels (sample.h), which this judges. scratch [n]. */
static double least_kept(const float *x, int64_t n, gw_choice c, double *scratch) {
    if (!gw_choice_filters(c, (int)n)) {
        return -INFINITY;
    }
    for (int64_t i = 0; i < n; i++) {
        scratch[i] = (double)x[i];
    }
    qsort(scratch, (size_t)n, sizeof *scratch, by_size);
    return scratch[c.top_k - 1];
}

/* By falling probability, of equals the lower token first. */
static int by_rank(const void *a, const void *b) {
    const gw_listed *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key) - (x->key > y->key)
                            : (x->token > y->token) - (x->token < y->token);
}

/* The tokens that top-k, top-p and min-p leave of x; how many, 0 when they cannot say. */
static int narrow(const float *x, int64_t n, gw_choice c, double least, gw_listed *list) {
    double all = 0, before = 0;
    int listed = 0, left = 0;
    for (int64_t i = 0; i < n && gw_choice_filters(c, (int)n); i++) {
        if ((double)x[i] >= least) {
            if (listed == GW_CHOICE_RANKED) {
                return 0;
            }
            list[listed++] = (gw_listed){gw_float_key(x[i]), (int32_t)i};
        }
    }
    qsort(list, (size_t)listed, sizeof *list, by_rank);
    for (int i = 0; i < listed; i++) {
        all += (double)gw_exp(x[list[i].token] - x[list[0].token]);
    }
    for (int i = 0; i < listed; i++) {
        float share = gw_exp(x[list[i].token] - x[list[0].token]);
        int reached = c.top_p > 0 && i > 0 && before >= (double)c.top_p * all;
        before += (double)share;
        if (!reached && !(share < c.min_p)) {
            list[left++] = list[i];
        }
    }
    return left;
}

static int is_listed(const gw_listed *list, int n, int64_t token) {
    for (int i = 0; i < n; i++) {
        if (list[i].token == token) {
            return 1;
        }
    }
    return 0;
}

/* Noise and scores are floats by definition. */
static int32_t draw(const float *x, int64_t n, gw_choice c, int32_t pos, double *scratch) {
    int32_t best = -1;
    float most = -INFINITY;
    gw_listed list[GW_CHOICE_RANKED];
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) || x[i] == INFINITY) {
            return -1;
        }
    }
    double least = least_kept(x, n, c, scratch);
    int narrows = gw_choice_narrows(c), left = narrows ? narrow(x, n, c, least, list) : 0;
    for (int64_t i = 0; i < n; i++) {
        float y = gw_choice_score(c, x[i], pos, (int32_t)i);
        if (y > most && (narrows ? is_listed(list, left, i) : (double)x[i] >= least)) {
            most = y;
            best = (int32_t)i;
        }
    }
    return most < INFINITY ? best : -1;
}

static void run_sample(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    for (int i = 0; i < rows; i++) {
        gw_choice c;
        memcpy(&c, ref_row(node->in[1], i), sizeof c);
        int32_t id =
            draw(ref_floats(node->in[0], i), ref_cols(node->in[0]), c, step->pos[i], scratch);
        memcpy(ref_row(node->out, i), &id, sizeof id);
    }
}

/* clang-format off */
static const ref_op embed = {scratch_row, run_embed}, pick = {scratch_row, run_pick},
                    norm = {scratch_row, run_norm}, quantize = {scratch_row, run_quantize},
                    sample = {scratch_input, run_sample}, act = {scratch_row, run_act},
                    mix = {scratch_row, run_mix};

static const ref_op *const ops[GW_OP_COUNT] = {
    [GW_OP_EMBED]        = &embed,
    [GW_OP_PICK]         = &pick,
    [GW_OP_NORM]         = &norm,
    [GW_OP_QUANTIZE]     = &quantize,
    [GW_OP_LINEAR]       = &ref_linear,
    [GW_OP_GLU]          = &ref_glu,
    [GW_OP_ROPE_KV]      = &ref_rope_kv,
    [GW_OP_ATTENTION]    = &ref_attention,
    [GW_OP_SAMPLE]       = &sample,
    [GW_OP_ACT]          = &act,
    [GW_OP_MIX]          = &mix,
    [GW_OP_ROUTE]        = &ref_route,
    [GW_OP_EXPERTS_GLU]  = &ref_experts_glu,
    [GW_OP_EXPERTS_DOWN] = &ref_experts_down,
    [GW_OP_EXPERTS_LORA_A] = &ref_lora_a,
    [GW_OP_EXPERTS_LORA_B] = &ref_lora_b,
    [GW_OP_CONV]         = &ref_conv,
    [GW_OP_SCAN]         = &ref_scan,
    [GW_OP_EXP_GATES]    = &ref_exp_gates,
    [GW_OP_DIVIDE]       = &ref_divide,
    [GW_OP_GROUP_NORM]   = &ref_group_norm,
    [GW_OP_HEADS]        = &ref_heads,
    [GW_OP_STREAMS]      = &ref_streams,
    [GW_OP_SPARSE_GLU]   = &ref_sparse_glu,
    [GW_OP_COLUMNS]      = &ref_columns,
    [GW_OP_WIDEN]        = &ref_widen,
    [GW_OP_HYPER]        = &ref_hyper,
    [GW_OP_ROTATE]       = &ref_rotate,
    [GW_OP_GROUP_DOT]    = &ref_group_dot,
    [GW_OP_COMPRESS]     = &ref_compress,
    [GW_OP_CHOOSE]       = &ref_choose,
    [GW_OP_LISTED]       = &ref_listed,
    [GW_OP_NGRAM]        = &ref_ngram,
};
/* clang-format on */

const ref_op *ref_op_of(gw_op op) { return ops[op]; }
