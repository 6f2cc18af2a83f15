/* backends/ref/state.c - CONV, SCAN, EXP_GATES, DIVIDE, GROUP_NORM, HEADS and COLUMNS, straight
 * from their definition in core/plan/op.h. */
#include <math.h>
#include <string.h>

#include "backends/ref/ref.h"

static const float *vector(const gw_tensor *t) { return t != NULL ? ref_floats(t, 0) : NULL; }

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double softplus(double x) { return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))); }

/* ---- states --------------------------------------------------------------------------------- */

float *ref_entry(const gw_tensor *t, int32_t slot, int32_t pos) {
    int64_t at = slot * t->dim[1] + pos % t->dim[1];
    return (float *)(void *)ref_bytes(t) + at * t->dim[2];
}

/* The row of the same sequence before row i, or after it; -1: none in this step. */
static int neighbour(const gw_step *step, int rows, int i, int way) {
    for (int j = i + way; j >= 0 && j < rows; j += way) {
        if (step->slot[j] == step->slot[i]) {
            return j;
        }
    }
    return -1;
}

/* What is known before row i, which is the first of its sequence. */
static void begin(double *state, const gw_tensor *t, const gw_step *step, int i) {
    const float *from = ref_entry(t, step->slot[i], step->pos[i]);
    for (int64_t k = 0; k < t->dim[2]; k++) {
        state[k] = step->pos[i] > 0 ? (double)from[k] : 0.0;
    }
}

/* And behind it, where it is one of the last. */
static void leave(const double *state, const gw_tensor *t, const gw_step *step, int rows, int i) {
    int64_t later = 0;
    for (int j = i; (j = neighbour(step, rows, j, 1)) >= 0;) {
        later++;
    }
    float *to = ref_entry(t, step->slot[i], step->pos[i] + 1);
    for (int64_t k = 0; k < t->dim[2] && later < t->dim[1] - 1; k++) {
        to[k] = (float)state[k];
    }
}

void ref_each_sequence(const gw_node *node, const gw_step *step, int rows, double *state,
                       void (*row)(const gw_node *node, const gw_step *step, int i,
                                   double *state)) {
    for (int first = 0; first < rows; first++) {
        if (neighbour(step, rows, first, -1) >= 0) {
            continue;
        }
        begin(state, node->in[1], step, first);
        for (int i = first; i >= 0; i = neighbour(step, rows, i, 1)) {
            row(node, step, i, state);
            leave(state, node->in[1], step, rows, i);
        }
    }
}

/* ---- CONV ----------------------------------------------------------------------------------- */

static size_t scratch_state(const gw_node *node, int rows) {
    (void)rows;
    return (size_t)node->in[1]->dim[2];
}

static void conv_row(const gw_node *node, const gw_step *step, int i, double *state) {
    const gw_act_args act = {.kind = node->args.conv.act};
    const float *x = ref_floats(node->in[0], i), *w = vector(node->w[0]), *b = vector(node->w[1]);
    int64_t c = ref_cols(node->out);
    int taps = node->args.conv.taps, apart = node->args.conv.apart > 1 ? node->args.conv.apart : 1;
    int before = (taps - 1) * apart;
    (void)step;
    for (int64_t k = 0; k < c; k++) {
        double sum = (double)x[k] * (double)w[k * taps + taps - 1];
        for (int t = 0; t < taps - 1; t++) {
            sum += state[t * apart * c + k] * (double)w[k * taps + t];
        }
        sum += b != NULL ? (double)b[k] : 0.0;
        ref_floats(node->out, i)[k] = (float)ref_act(&act, sum, 0.0, 0, NULL);
    }
    memmove(state, state + c, (size_t)((before - 1) * c) * sizeof *state);
    for (int64_t k = 0; k < c; k++) {
        state[(before - 1) * c + k] = (double)x[k];
    }
}

static void run_conv(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    ref_each_sequence(node, step, rows, scratch, conv_row);
}

/* ---- SCAN ----------------------------------------------------------------------------------- */

/* What the RMS norm multiplies a vector of a head by. */
static double norm_of(const float *x, int n, float eps) {
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return 1.0 / sqrt(sum / n + (double)eps);
}

static int group_of(const gw_scan_args *a, int h) {
    return a->tiled ? h % a->groups : h / (a->heads / a->groups);
}

static void delta_row(const gw_node *node, const gw_step *step, int i, double *state) {
    const gw_scan_args *a = &node->args.scan;
    (void)step;
    const float *q = ref_floats(node->in[0], i), *k = q + a->groups * a->k_dim;
    const float *v = k + a->groups * a->k_dim, *bias = vector(node->w[1]);
    const float *decay = ref_floats(node->in[2], i), *beta = ref_floats(node->in[3], i);
    beta += node->in[3] == node->in[2] ? a->heads : 0;
    for (int h = 0; h < a->heads; h++) {
        const float *qh = q + group_of(a, h) * a->k_dim, *kh = k + group_of(a, h) * a->k_dim;
        double ql = norm_of(qh, a->k_dim, a->eps) * (double)a->q_scale;
        double kl = norm_of(kh, a->k_dim, a->eps) * (double)a->k_scale;
        double strength = sigmoid((double)beta[h]);
        double *s = state + (int64_t)h * a->k_dim * a->v_dim;
        for (int c = 0; c < a->v_dim; c++) {
            double known = 0.0, out = 0.0;
            for (int j = 0; j < a->k_dim; j++) {
                int at = a->by_channel ? h * a->k_dim + j : h;
                double g = (double)decay[at] + (bias != NULL ? (double)bias[at] : 0.0);
                double by = (double)vector(node->w[0])[h];
                s[j * a->v_dim + c] *=
                    exp(a->low < 0.0f ? (double)a->low * sigmoid(-by * g) : by * softplus(g));
                known += (double)kh[j] * kl * s[j * a->v_dim + c];
            }
            double u = ((double)v[h * a->v_dim + c] - known) * strength;
            for (int j = 0; j < a->k_dim; j++) {
                s[j * a->v_dim + c] += (double)kh[j] * kl * u;
                out += (double)qh[j] * ql * s[j * a->v_dim + c];
            }
            ref_floats(node->out, i)[h * a->v_dim + c] = (float)out;
        }
    }
}

static void ssm_row(const gw_node *node, const gw_step *step, int i, double *state) {
    const gw_scan_args *a = &node->args.scan;
    (void)step;
    const float *x = ref_floats(node->in[0], i), *b = x + a->heads * a->v_dim;
    const float *c = b + a->groups * a->k_dim, *bias = vector(node->w[1]);
    for (int h = 0; h < a->heads; h++) {
        const float *bh = b + group_of(a, h) * a->k_dim, *ch = c + group_of(a, h) * a->k_dim;
        double *s = state + (int64_t)h * a->k_dim * a->v_dim;
        for (int p = 0; p < a->v_dim; p++) {
            int own = a->by_channel ? h * a->v_dim + p : h;
            double t = softplus((double)ref_floats(node->in[2], i)[own] +
                                (bias != NULL ? (double)bias[own] : 0.0));
            t = t < (double)a->low ? (double)a->low : t > (double)a->high ? (double)a->high : t;
            double xp = (double)x[h * a->v_dim + p], out = (double)vector(node->w[2])[own] * xp;
            for (int j = 0; j < a->k_dim; j++) {
                double *at = &s[j * a->v_dim + p];
                int place = a->by_channel ? own * a->k_dim + j : h;
                double d = exp(t * (double)vector(node->w[0])[place]);
                *at = *at * d + (double)bh[j] * t * xp;
                out += (double)ch[j] * *at;
            }
            ref_floats(node->out, i)[h * a->v_dim + p] = (float)out;
        }
    }
}

static void retention_row(const gw_node *node, const gw_step *step, int i, double *state) {
    const gw_scan_args *a = &node->args.scan;
    (void)step;
    const float *x = ref_floats(node->in[0], i), *k = x + a->heads * a->v_dim;
    const float *q = k + a->groups * a->k_dim;
    for (int h = 0; h < a->heads; h++) {
        const float *kh = k + group_of(a, h) * a->k_dim, *qh = q + group_of(a, h) * a->k_dim;
        double *s = state + (int64_t)h * a->k_dim * a->v_dim;
        for (int c = 0; c < a->v_dim; c++) {
            double out = 0.0;
            for (int j = 0; j < a->k_dim; j++) {
                double *at = &s[j * a->v_dim + c];
                *at = *at * (double)ref_floats(node->in[2], i)[h] +
                      (double)kh[j] * (double)x[h * a->v_dim + c];
                out += (double)qh[j] * *at;
            }
            ref_floats(node->out, i)[h * a->v_dim + c] = (float)out;
        }
    }
}

static void wkv_row(const gw_node *node, const gw_step *step, int i, double *state) {
    const gw_scan_args *a = &node->args.scan;
    (void)step;
    int keys = a->k_dim, wide = a->v_dim, all = a->heads * keys;
    const float *r = ref_floats(node->in[0], i), *k = r + all, *v = k + all;
    const float *e = v + a->heads * wide;
    const float *decay = ref_floats(node->in[2], i), *back = ref_floats(node->in[3], i);
    for (int h = 0; h < a->heads; h++) {
        double *s = state + (int64_t)h * keys * wide;
        for (int c = 0; c < wide; c++) {
            double known = 0.0, out = 0.0;
            for (int j = 0; j < keys; j++) {
                known += (double)e[h * keys + j] * (double)a->k_scale * s[j * wide + c];
            }
            for (int j = 0; j < keys; j++) {
                int at = h * keys + j;
                double taken = (double)e[at] * (double)a->k_scale * (double)back[at] * known;
                double *m = &s[j * wide + c];
                *m = *m * exp((double)GW_WKV_DECAY * (double)decay[at]) - taken +
                     (double)k[at] * (double)v[h * wide + c];
                out += (double)r[at] * *m;
            }
            ref_floats(node->out, i)[h * wide + c] = (float)out;
        }
    }
}

static void run_scan(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    static void (*const row_of[])(const gw_node *, const gw_step *, int,
                                  double *) = {[GW_SCAN_DELTA] = delta_row,
                                               [GW_SCAN_SSM] = ssm_row,
                                               [GW_SCAN_RETENTION] = retention_row,
                                               [GW_SCAN_WKV] = wkv_row};
    ref_each_sequence(node, step, rows, scratch, row_of[node->args.scan.kind]);
}

/* ---- EXP_GATES, DIVIDE ---------------------------------------------------------------------- */

static void exp_gates_row(const gw_node *node, const gw_step *step, int i, double *state) {
    int64_t heads = ref_cols(node->out) / 3;
    const float *write = ref_floats(node->in[0], i), *forget = write + heads;
    float *out = ref_floats(node->out, i);
    (void)step;
    for (int64_t h = 0; h < heads; h++) {
        double kept = state[h] - softplus(-(double)forget[h]);
        state[h] = kept < (double)write[h] ? (double)write[h] : kept;
        out[h] = (float)exp(kept - state[h]);
        out[heads + h] = (float)exp((double)write[h] - state[h]);
        out[2 * heads + h] = (float)exp(-state[h]);
    }
}

static void run_exp_gates(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    ref_each_sequence(node, step, rows, scratch, exp_gates_row);
}

static void run_divide(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    int64_t m = ref_cols(node->out), each = m / ref_cols(node->in[1]);
    (void)step, (void)scratch;
    for (int i = 0; i < rows; i++) {
        for (int64_t c = 0; c < m; c++) {
            double by = fabs((double)ref_floats(node->in[1], i)[c / each]);
            double least = (double)ref_floats(node->in[2], i)[c / each];
            by = (by < least ? least : by) + (double)node->args.divide.eps;
            ref_floats(node->out, i)[c] = (float)((double)ref_floats(node->in[0], i)[c] / by);
        }
    }
}

/* ---- GROUP_NORM, HEADS, COLUMNS ------------------------------------------------------------- */

static size_t scratch_row(const gw_node *node, int rows) {
    (void)rows;
    return 2 * (size_t)ref_cols(node->in[0]) + (size_t)ref_cols(node->out);
}

static void run_group_norm(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_group_norm_args *a = &node->args.group_norm;
    const gw_act_args act = {.kind = a->gate_act};
    int64_t m = ref_cols(node->in[0]), e = m / a->groups;
    const float *w = vector(node->w[0]), *bias = vector(node->w[1]);
    int64_t wide = w != NULL ? node->w[0]->dim[0] : 1;
    (void)step;
    for (int i = 0; i < rows; i++) {
        ref_read(scratch, node->in[0], i);
        const float *gate = node->in[1] != NULL ? ref_floats(node->in[1], i) : NULL;
        for (int64_t c = 0; c < m && gate != NULL && a->gate_first; c++) {
            scratch[c] *= ref_act(&act, (double)gate[c], 0.0, 0, NULL);
        }
        for (int g = 0; g < a->groups && a->measure; g++) {
            double sum = 0.0;
            for (int64_t c = g * e; c < (g + 1) * e; c++) {
                sum += scratch[c] * scratch[c];
            }
            ref_floats(node->out, i)[g] = (float)sqrt(sum / (double)e + (double)a->eps);
        }
        for (int g = 0; g < a->groups; g++) {
            gw_norm_kind kind = a->center ? GW_NORM_LAYER : GW_NORM_RMS;
            ref_norm_row(scratch + g * e, e, kind, a->eps, NULL, NULL);
        }
        for (int64_t c = 0; c < m; c++) {
            scratch[c] *= w != NULL ? (double)w[c % wide] : 1.0;
            scratch[c] *=
                gate != NULL && !a->gate_first ? ref_act(&act, (double)gate[c], 0.0, 0, NULL) : 1.0;
            scratch[c] += bias != NULL ? (double)bias[c] : 0.0;
        }
        if (!a->measure) {
            ref_write(node->out, i, scratch);
        }
    }
}

static void run_heads(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_heads_args *a = &node->args.heads;
    int64_t e = ref_cols(node->in[0]) / a->heads, k = node->w[0]->dim[1];
    int64_t m = node->w[0]->dim[0] / a->heads, wide = a->pass + m;
    float *room = (float *)(void *)scratch;
    (void)step;
    for (int i = 0; i < rows; i++) {
        for (int h = 0; h < a->heads; h++) {
            const float *x = ref_floats(node->in[0], i) + h * e;
            float *y = ref_floats(node->out, i) + h * wide;
            for (int s = 0; s < a->pass; s++) {
                y[s] = x[a->pass_first + s];
            }
            for (int64_t r = 0; r < m; r++) {
                const float *row = ref_weight_row(node->w[0], h * m + r, room);
                double sum = 0.0;
                for (int64_t c = 0; c < k; c++) {
                    sum += (double)row[c] * (double)x[a->first + c];
                }
                y[a->pass + r] = (float)sum;
            }
        }
    }
}

static void run_streams(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_streams_args *a = &node->args.streams;
    int64_t m = ref_cols(node->out) / a->streams;
    (void)step;
    for (int i = 0; i < rows; i++) {
        const float *x = ref_floats(node->in[0], i);
        const float *c = node->in[1] != NULL ? ref_floats(node->in[1], i) : NULL;
        for (int64_t at = 0; at < a->streams * m; at++) {
            int64_t s = at / m, col = at % m;
            scratch[at] = node->in[2] != NULL ? (double)ref_floats(node->in[2], i)[at] : 0.0;
            for (int j = 0; j < a->inputs && s >= a->from; j++) {
                double by = (c != NULL ? (double)c[s * a->inputs + j] : 0.0) + (double)a->plus;
                scratch[at] += by * (double)x[j * m + col];
            }
        }
        ref_write(node->out, i, scratch);
    }
}

static void run_sparse_glu(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_act_args act = {.kind = node->args.sparse.act};
    int64_t f = ref_cols(node->out);
    (void)step;
    for (int i = 0; i < rows; i++) {
        const float *g = ref_floats(node->in[0], i);
        double mean = 0.0, squares = 0.0;
        for (int64_t c = 0; c < f; c++) {
            mean += (double)g[c] / (double)f;
        }
        for (int64_t c = 0; c < f; c++) {
            squares += ((double)g[c] - mean) * ((double)g[c] - mean);
        }
        double cut = mean + (double)node->args.sparse.deviations * sqrt(squares / (double)f);
        for (int64_t c = 0; c < f; c++) {
            double v = (double)g[c] - cut;
            scratch[c] = ref_act(&act, v > 0.0 ? v : 0.0, (double)g[f + c], 1, NULL);
        }
        ref_write(node->out, i, scratch);
    }
}

static void run_columns(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    int64_t own = ref_cols(node->out);
    (void)step, (void)scratch;
    for (int k = 1; k < GW_MAX_IN; k++) {
        own -= node->in[k] != NULL ? ref_cols(node->in[k]) : 0;
    }
    for (int i = 0; i < rows; i++) {
        float *y = ref_floats(node->out, i);
        memcpy(y, ref_floats(node->in[0], i) + node->args.columns.first, (size_t)own * sizeof *y);
        y += own;
        for (int k = 1; k < GW_MAX_IN; k++) {
            if (node->in[k] != NULL) {
                int64_t n = ref_cols(node->in[k]);
                memcpy(y, ref_floats(node->in[k], i), (size_t)n * sizeof *y);
                y += n;
            }
        }
    }
}

static void run_widen(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const int heads = node->args.widen.heads;
    const int64_t k = ref_cols(node->in[0]) / heads, m = ref_cols(node->out) / heads;
    (void)step, (void)scratch;
    for (int i = 0; i < rows; i++) {
        const float *x = ref_floats(node->in[0], i);
        float *y = ref_floats(node->out, i);
        for (int64_t at = 0; at < heads * m; at++) {
            y[at] = at % m < k ? x[at / m * k + at % m] : 0.0f;
        }
    }
}

const ref_op ref_conv = {scratch_state, run_conv}, ref_scan = {scratch_state, run_scan},
             ref_exp_gates = {scratch_state, run_exp_gates}, ref_divide = {scratch_row, run_divide},
             ref_group_norm = {scratch_row, run_group_norm}, ref_heads = {scratch_row, run_heads},
             ref_columns = {scratch_row, run_columns}, ref_widen = {scratch_row, run_widen},
             ref_streams = {scratch_row, run_streams},
             ref_sparse_glu = {scratch_row, run_sparse_glu};
