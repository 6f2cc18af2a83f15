/* backends/cpu/experts_lora.c - adapters of experts, EXPERTS_LORA_A and EXPERTS_LORA_B: the row
 * kernels of LINEAR over what a row's adapters have of each of its experts.
 */
#include <math.h>
#include <string.h>

#include "backends/cpu/cpu.h"

enum { TILE = 128 /* columns of a piece of B */ };

static const float *row_of(const char *base, size_t stride, size_t row) {
    return (const float *)(const void *)(base + row * stride);
}

/* Products of rows [at, at + n) of what adapter p of the row has of its expert number j with x, to
 * y; 0: the row has no such adapter. */
static int multiply(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t row, size_t j,
                    size_t p, size_t at, size_t n, const float *x, float *y) {
    const gw_experts_lora_args *a = &l->u.experts_lora.args;
    float place = row_of(l->u.experts_lora.adapters, l->u.experts_lora.adapters_stride, row)[p];
    float expert = row_of(l->in1, l->in1_stride, row)[j];
    if (!(place >= 1.0f) || place > (float)a->places || !(expert >= 0.0f) ||
        expert >= (float)a->experts) {
        return 0;
    }
    size_t of = ((size_t)place - 1) * (size_t)a->experts + (size_t)expert;
    gw_cpu_linear job = {.w = l->u.experts_lora.w +
                              (of * l->u.experts_lora.rows + at) * l->u.experts_lora.row_bytes,
                         .m = n,
                         .k = l->u.experts_lora.k,
                         .x = (const char *)x,
                         .x_stride = l->in_stride,
                         .n = 1,
                         .y = y,
                         .y_stride = n};
    l->u.experts_lora.kernel->run(&job, 0, n, worker->scratch);
    return 1;
}

/* ---- A --------------------------------------------------------------------------------------- */

static void run_lora_a(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    const gw_experts_lora_args *a = &l->u.experts_lora.args;
    size_t used = (size_t)a->used, v = (size_t)a->at_once, rank = (size_t)a->rank, first, end;
    size_t own = l->in_stride > l->u.experts_lora.k * sizeof(float) ? l->u.experts_lora.k : 0;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step) * used * v, 4, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            size_t row = i / v / used, j = i / v % used;
            const float *x = row_of(l->in, l->in_stride, row) + j * own;
            float *y = (float *)(void *)(l->out + row * l->out_stride) + i % (used * v) * rank;
            if (!multiply(l, worker, row, j, i % v, 0, rank, x, y)) {
                memset(y, 0, rank * sizeof *y);
            }
        }
    }
}

/* ---- B --------------------------------------------------------------------------------------- */

/* What expert number j of a row adds to columns [at, at + n), to sum; 0: the row has no adapter. */
static int add_up(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t row, size_t j,
                  size_t at, size_t n, float *sum, float *y) {
    const gw_experts_lora_args *a = &l->u.experts_lora.args;
    size_t v = (size_t)a->at_once;
    const float *h = row_of(l->in, l->in_stride, row) + j * v * (size_t)a->rank;
    const float *scales =
        row_of(l->u.experts_lora.adapters, l->u.experts_lora.adapters_stride, row) + v;
    int some = 0;
    memset(sum, 0, n * sizeof *sum);
    for (size_t p = 0; p < v; p++) {
        if (multiply(l, worker, row, j, p, at, n, h + p * (size_t)a->rank, y)) {
            some = 1;
            for (size_t c = 0; c < n; c++) {
                sum[c] = fmaf(scales[p], y[c], sum[c]);
            }
        }
    }
    return some;
}

/* Columns [at, at + n) of a row: of all its experts together. */
static void sum_tile(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t row, size_t at,
                     size_t n) {
    const gw_experts_lora_args *a = &l->u.experts_lora.args;
    const float *gates = row_of(l->in1, l->in1_stride, row) + a->used;
    const float *before =
        row_of(l->u.experts_lora.addend, l->u.experts_lora.addend_stride, row) + at;
    float *out = (float *)(void *)(l->out + row * l->out_stride) + at;
    float acc[TILE] = {0.0f}, sum[TILE], y[TILE];
    int some = 0;
    for (size_t j = 0; j < (size_t)a->used; j++) {
        some |= add_up(l, worker, row, j, at, n, sum, y);
        for (size_t c = 0; c < n; c++) {
            acc[c] = fmaf(a->gated ? gates[j] : 1.0f, sum[c], acc[c]);
        }
    }
    for (size_t c = 0; c < n; c++) {
        out[c] = some ? before[c] + acc[c] : before[c];
    }
}

/* Columns [at, at + n) of what expert number j of a row makes. */
static void expert_tile(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t row, size_t j,
                        size_t at, size_t n) {
    const gw_experts_lora_args *a = &l->u.experts_lora.args;
    const float *gates = row_of(l->in1, l->in1_stride, row) + a->used;
    size_t place = j * l->u.experts_lora.rows + at;
    const float *before =
        row_of(l->u.experts_lora.addend, l->u.experts_lora.addend_stride, row) + place;
    float *out = (float *)(void *)(l->out + row * l->out_stride) + place;
    float sum[TILE], y[TILE];
    int some = add_up(l, worker, row, j, at, n, sum, y);
    for (size_t c = 0; c < n; c++) {
        float more = a->gated ? sum[c] * gates[j] : sum[c];
        out[c] = some ? before[c] + more : before[c];
    }
}

static void run_lora_b(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    const gw_experts_lora_args *a = &l->u.experts_lora.args;
    size_t m = l->u.experts_lora.rows, tiles = (m + TILE - 1) / TILE, first, end;
    size_t each = a->sum ? 1 : (size_t)a->used;
    size_t total = (size_t)gw_cpu_live(l, worker->step) * each * tiles;
    while (gw_cpu_take(worker, total, 2, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            size_t at = i % tiles * TILE, n = m - at < TILE ? m - at : TILE;
            if (a->sum) {
                sum_tile(l, worker, i / tiles, at, n);
            } else {
                expert_tile(l, worker, i / tiles / each, i / tiles % each, at, n);
            }
        }
    }
}

/* ---- recording ------------------------------------------------------------------------------- */

int gw_cpu_accepts_lora(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)device;
    return node->w[0]->layout == GW_LAYOUT_ROWS &&
           gw_cpu_kernel_for(gw_cpu_row_of(kernel), node->w[0], GW_ORDER_DECODE) != NULL;
}

gw_status gw_cpu_record_lora(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    const gw_tensor *w = node->w[0];
    l->run = node->op == GW_OP_EXPERTS_LORA_A ? run_lora_a : run_lora_b;
    l->u.experts_lora.args = *a;
    l->u.experts_lora.kernel = gw_cpu_kernel_for(gw_cpu_row_of(kernel), w, GW_ORDER_DECODE);
    l->u.experts_lora.w = gw_cpu_data(w);
    l->u.experts_lora.row_bytes = gw_cpu_row_stride(w);
    l->u.experts_lora.rows = (size_t)(w->dim[0] / a->places / a->experts);
    l->u.experts_lora.k = (size_t)w->dim[1];
    l->u.experts_lora.adapters = gw_cpu_data(node->in[2]);
    l->u.experts_lora.adapters_stride = gw_cpu_row_stride(node->in[2]);
    if (node->in[3] != NULL) {
        l->u.experts_lora.addend = gw_cpu_data(node->in[3]);
        l->u.experts_lora.addend_stride = gw_cpu_row_stride(node->in[3]);
    }
    if (l->u.experts_lora.kernel->scratch != NULL) {
        gw_cpu_need_scratch(segment, l->u.experts_lora.kernel->scratch(l->u.experts_lora.k, 1));
    }
    return GW_OK;
}
