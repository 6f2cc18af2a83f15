/* backends/ref/product.c - LINEAR, GLU and the experts of a mixture, straight from their
 * definition.
 */
#include <math.h>
#include <string.h>

#include "backends/ref/ref.h"
#include "core/tensor/blocks.h"

static double dot(const double *x, const float *w, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * w[i];
    }
    return sum;
}

/* ---- matrix products ------------------------------------------------------------------------ */

/* All input rows, one weight row, and for GLU all results. */
static size_t scratch_product(const gw_node *node, int rows) {
    size_t k = (size_t)ref_cols(node->in[0]), f = (size_t)ref_cols(node->out);
    return (size_t)rows * k + 2 * k + (size_t)rows * f;
}

/* Values [at, at + k) of row i of in0 as the terms of w take them: with one scale for the blocks of
 * a term. */
static void read_terms(double *dst, const gw_node *node, int i, int64_t at, int64_t k,
                       const gw_tensor *w, gw_order order, double *room) {
    const gw_format *f = gw_format_of(w->fmt);
    ref_read(room, node->in[0], i);
    memmove(dst, room + at, (size_t)k * sizeof *dst);
    const gw_act8 *from = (const gw_act8 *)(const void *)ref_row(node->in[0], i);
    from += at / GW_ACT_BLOCK;
    size_t blocks = order == GW_ORDER_PREFILL ? f->prompt_span : f->span;
    int64_t span = blocks > 1 ? GW_ACT_SPAN * GW_ACT_BLOCK : k;
    for (int64_t c = 0; span < k && c < k; c += GW_ACT_BLOCK) {
        gw_act8 one[GW_ACT_SPAN];
        gw_act8_span(one, from + c / span * GW_ACT_SPAN);
        const gw_act8 *b = &one[c / GW_ACT_BLOCK % GW_ACT_SPAN];
        for (int j = 0; j < GW_ACT_BLOCK; j++) {
            dst[c + j] = (double)b->scale * b->q[j];
        }
    }
}

static void read_input(double *dst, const gw_node *node, int rows, const gw_tensor *w,
                       gw_order order) {
    int64_t k = ref_cols(node->in[0]);
    for (int i = 0; i < rows; i++, dst += k) {
        read_terms(dst, node, i, 0, k, w, order, dst);
    }
}

static void run_linear(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    (void)step;
    int64_t k = ref_cols(node->in[0]), column = 0;
    double *x = scratch;
    float *room = (float *)(void *)(x + rows * k);
    for (int part = 0; part < 3 && node->w[part] != NULL; part++) {
        const gw_tensor *w = node->w[part], *bias = node->w[3 + part];
        read_input(x, node, rows, w, node->args.linear.order);
        for (int64_t r = 0; r < w->dim[0]; r++, column++) {
            const float *row = ref_weight_row(w, r, room);
            for (int i = 0; i < rows; i++) {
                double y = dot(x + i * k, row, k);
                y += bias != NULL ? ref_floats(bias, 0)[r] : 0.0;
                y += node->in[1] != NULL ? ref_floats(node->in[1], i)[column] : 0.0;
                ref_floats(node->out, i)[column] = (float)y;
            }
        }
    }
}

static void run_glu(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    (void)step;
    int64_t k = ref_cols(node->in[0]), f = ref_cols(node->out);
    double *x = scratch, *y = x + rows * k + 2 * k;
    float *room = (float *)(void *)(x + rows * k);
    for (int part = 0; part < 2; part++) {
        read_input(x, node, rows, node->w[part], node->args.linear.order);
        for (int64_t r = 0; r < f; r++) {
            const float *row = ref_weight_row(node->w[part], r, room);
            for (int i = 0; i < rows; i++) {
                double a = dot(x + i * k, row, k), *at = &y[i * f + r];
                *at = part == 0 ? a / (1.0 + exp(-a)) : *at * a;
            }
        }
    }
    for (int i = 0; i < rows; i++) {
        ref_write(node->out, i, y + i * f);
    }
}

/* ---- experts -------------------------------------------------------------------------------- */

/* One input row whole, what one expert takes of it, a weight row in floats, one result row. */
static size_t scratch_experts(const gw_node *node, int rows) {
    (void)rows;
    return 3 * (size_t)ref_cols(node->in[0]) + (size_t)ref_cols(node->out);
}

static double bias_at(const gw_tensor *bias, int64_t r) {
    return bias != NULL ? (double)ref_floats(bias, 0)[r] : 0.0;
}

static void run_experts_glu(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_experts_args *a = &node->args.experts;
    int64_t k = ref_cols(node->in[0]), f = node->w[0]->dim[0] / a->experts;
    double *whole = scratch, *x = whole + k, *y = x + 2 * k;
    float *room = (float *)(void *)(x + k);
    (void)step;
    for (int i = 0; i < rows; i++) {
        const float *route = ref_floats(node->in[1], i);
        for (int64_t at = 0; at < a->used * f; at++) {
            int64_t r = (int64_t)route[at / f] * f + at % f;
            double gate = a->gate_input ? (double)route[a->used + at / f] : 1.0, v[2] = {0.0, 0.0};
            for (int part = 0; part < 2 && node->w[part] != NULL; part++) {
                read_terms(x, node, i, 0, k, node->w[part], a->order, whole);
                v[part] = dot(x, ref_weight_row(node->w[part], r, room), k) * gate +
                          bias_at(node->w[2 + part], r);
            }
            y[at] = ref_act(&a->act, v[0], v[1], node->w[1] != NULL, NULL);
        }
        ref_write(node->out, i, y);
    }
}

static void run_experts_down(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_experts_args *a = &node->args.experts;
    int64_t all = ref_cols(node->in[0]), k = all / a->used, d = ref_cols(node->out);
    double *whole = scratch, *x = whole + all, *y = whole + 3 * all;
    float *room = (float *)(void *)(x + all);
    (void)step;
    for (int i = 0; i < rows; i++) {
        const float *route = ref_floats(node->in[1], i);
        for (int64_t c = 0; c < d; c++) {
            y[c] = node->in[2] != NULL ? (double)ref_floats(node->in[2], i)[c] : 0.0;
        }
        for (int j = 0; j < a->used; j++) {
            double gate = a->gate_input ? 1.0 : (double)route[a->used + j];
            read_terms(x, node, i, j * k, k, node->w[0], a->order, whole);
            for (int64_t c = 0; c < d; c++) {
                int64_t r = (int64_t)route[j] * d + c;
                double sum = dot(x, ref_weight_row(node->w[0], r, room), k);
                y[c] += gate * (sum + bias_at(node->w[1], r));
            }
        }
        ref_write(node->out, i, y);
    }
}

/* ---- adapters of experts -------------------------------------------------------------------- */

/* An input as doubles, a result row. */
static size_t scratch_lora(const gw_node *node, int rows) {
    (void)rows;
    return (size_t)ref_cols(node->in[0]) + (size_t)ref_cols(node->out);
}

/* The first row of w0 that adapter `at` of row i has of its expert number j, with `rows` of each;
 * -1: there is none. */
static int64_t lora_row(const gw_node *node, int i, int j, int at, int64_t rows) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    int64_t place = (int64_t)ref_floats(node->in[2], i)[at];
    return place > 0 ? ((place - 1) * a->experts + (int64_t)ref_floats(node->in[1], i)[j]) * rows
                     : -1;
}

static void run_lora_a(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    int64_t all = ref_cols(node->in[0]), d = ref_cols(node->w[0]);
    (void)step;
    for (int i = 0; i < rows; i++) {
        float *y = ref_floats(node->out, i);
        ref_read(scratch, node->in[0], i);
        for (int64_t at = 0; at < ref_cols(node->out); at++) {
            int j = (int)(at / a->rank / a->at_once), p = (int)(at / a->rank % a->at_once);
            int64_t first = lora_row(node, i, j, p, a->rank);
            const double *x = scratch + (all > d ? j * d : 0);
            y[at] =
                first < 0 ? 0.0f : (float)dot(x, ref_floats(node->w[0], first + at % a->rank), d);
        }
    }
}

static void run_lora_b(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    int64_t wide = ref_cols(node->out), m = a->sum ? wide : wide / a->used;
    double *y = scratch + ref_cols(node->in[0]);
    (void)step;
    for (int i = 0; i < rows; i++) {
        const float *gates = ref_floats(node->in[1], i) + a->used;
        const float *scales = ref_floats(node->in[2], i) + a->at_once;
        ref_read(scratch, node->in[0], i);
        ref_read(y, node->in[3], i);
        for (int at = 0; at < a->used * a->at_once; at++) {
            int j = at / a->at_once, p = at % a->at_once;
            int64_t first = lora_row(node, i, j, p, m);
            double by = (double)scales[p] * (a->gated ? (double)gates[j] : 1.0);
            for (int64_t c = 0; c < m && first >= 0; c++) {
                y[(a->sum ? 0 : j * m) + c] +=
                    by * dot(scratch + at * a->rank, ref_floats(node->w[0], first + c), a->rank);
            }
        }
        ref_write(node->out, i, y);
    }
}

const ref_op ref_lora_a = {scratch_lora, run_lora_a}, ref_lora_b = {scratch_lora, run_lora_b};
const ref_op ref_linear = {scratch_product, run_linear}, ref_glu = {scratch_product, run_glu},
             ref_experts_glu = {scratch_experts, run_experts_glu},
             ref_experts_down = {scratch_experts, run_experts_down};
