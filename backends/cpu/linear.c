/* backends/cpu/linear.c - LINEAR and GLU: nodes to jobs of cpu/linear.h, pieces to threads. */
#include <stdint.h>
#include <string.h>

#include "backends/cpu/cpu.h"

enum {
    DECODE_BYTES = 512 << 10, /* weights handed out at a time: long enough for the prefetchers */
    STRIPS = 4,               /* always together: kernels read so many at once, one stream each */
    PREFILL_GROUPS = 4,
    GLU_PREFILL_ROWS = 64, /* of gate and up, kept in scratch */
    GLU_DECODE_ROWS = 512
};
#define NOT_PREPARED SIZE_MAX

/* The kernel of a row's level that reads the weight as it lies, else the scalar one. */
static const gw_cpu_linear_kernel *kernel_for(const gw_cpu_row *row, const gw_tensor *w,
                                              gw_order order) {
    int strips = w->layout == GW_LAYOUT_PRIVATE, prefill = order == GW_ORDER_PREFILL;
    if (row->blas) {
        return gw_cpu_blas_kernel(w->fmt);
    }
    const gw_cpu_linear_kernel *k = gw_cpu_linear_find(w->fmt, row->level, prefill);
    if (k->strips != strips) {
        k = gw_cpu_linear_find(w->fmt, GW_CPU_SCALAR, prefill);
    }
    return k->strips == strips ? k : NULL;
}

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device,
                   int first, int end) {
    const gw_cpu_row *row = gw_cpu_row_of(kernel);
    gw_order order = node->args.linear.order;
    gw_fmt x = node->in[0]->fmt;
    if (node->w[first]->fmt != row->fmt ||
        (row->blas && (device->blas == NULL || order != GW_ORDER_PREFILL))) {
        return 0;
    }
    for (int i = first; i < end && node->w[i] != NULL; i++) {
        gw_fmt want = gw_format_of(node->w[i]->fmt)->is_float ? GW_FMT_F32 : GW_FMT_ACT8;
        if (x != want || kernel_for(row, node->w[i], order) == NULL) {
            return 0;
        }
    }
    return 1;
}

static void fill_part(gw_cpu_part *part, const gw_cpu_launch *l, const gw_cpu_linear_kernel *kernel,
                      const gw_tensor *w, size_t column, const float *bias) {
    part->kernel = kernel;
    part->column = column;
    part->job.w = gw_cpu_data(w);
    part->job.m = (size_t)w->dim[0];
    part->job.k = (size_t)w->dim[1];
    part->job.x = l->in;
    part->job.x_stride = l->in_stride;
    part->job.bias = bias;
    part->strip_bytes = w->layout == GW_LAYOUT_PRIVATE ? gw_strip_bytes(w->fmt, part->job.k)
                                                       : GW_STRIP_ROWS * gw_cpu_row_stride(w);
    part->strips = (part->job.m + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS;
}

/* Groups of STRIPS strips. */
static size_t groups_at_once(const gw_tensor *w, gw_order order) {
    size_t group = STRIPS * GW_STRIP_ROWS * gw_cpu_row_stride(w);
    if (order == GW_ORDER_PREFILL) {
        return PREFILL_GROUPS;
    }
    return group < DECODE_BYTES ? DECODE_BYTES / group : 1;
}

static size_t kernel_scratch(const gw_cpu_part *part, int rows) {
    return part->kernel->scratch != NULL ? part->kernel->scratch(part->job.k, rows) : 0;
}

/* ---- preparing activations ------------------------------------------------------------------ */

static void run_prepare(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t n = (size_t)gw_cpu_live(l, worker->step), first, end;
    while (gw_cpu_take(worker, (n + GW_PREPARE_ROWS - 1) / GW_PREPARE_ROWS, 1, &first, &end)) {
        for (int i = 0; i < l->u.linear.n_parts; i++) {
            const gw_cpu_part *part = &l->u.linear.part[i];
            size_t stop = end * GW_PREPARE_ROWS < n ? end * GW_PREPARE_ROWS : n;
            gw_cpu_linear job = part->job;
            job.n = (int)n;
            if (part->prepares) {
                part->kernel->prepare(&job, first * GW_PREPARE_ROWS, stop,
                                      worker->shared + part->prepared);
            }
        }
    }
}

/* Where the activations of every part will lie; parts of one kernel share them. */
static size_t place_prepared(gw_cpu_launch *l, int rows) {
    size_t total = 0;
    for (int i = 0; i < l->u.linear.n_parts; i++) {
        gw_cpu_part *part = &l->u.linear.part[i];
        part->prepared = NOT_PREPARED;
        if (part->kernel->prepare == NULL) {
            continue;
        }
        for (int j = 0; j < i; j++) {
            if (l->u.linear.part[j].kernel == part->kernel) {
                part->prepared = l->u.linear.part[j].prepared;
            }
        }
        if (part->prepared == NOT_PREPARED) {
            size_t bytes = part->kernel->prepared(part->job.k, rows);
            part->prepares = 1;
            part->prepared = total;
            total += (bytes + GW_CACHE_LINE - 1) / GW_CACHE_LINE * GW_CACHE_LINE;
        }
    }
    return total;
}

/* Complete a launch: if its kernels want prepared activations, a launch before it makes them. */
static void finish_record(struct gw_segment *segment, const gw_kernel *kernel, const gw_node *node,
                          gw_cpu_launch *l) {
    size_t bytes = place_prepared(l, segment->rows);
    if (bytes > 0) {
        gw_cpu_need_shared(segment, bytes);
        *gw_cpu_append(segment, kernel, node) = *l;
        l->run = run_prepare;
    }
}

static void take_prepared(gw_cpu_linear *job, const gw_cpu_part *part,
                          const gw_cpu_worker *worker) {
    job->prepared = part->prepared != NOT_PREPARED ? worker->shared + part->prepared : NULL;
}

/* ---- LINEAR
 * ------------------------------------------------------------------------------------------- */

/* Strips [first, end), counted through all stacked weights. */
static void run_strips(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t first, size_t end) {
    size_t base = 0;
    for (int i = 0; i < l->u.linear.n_parts; i++) {
        const gw_cpu_part *part = &l->u.linear.part[i];
        size_t from = first > base ? first - base : 0;
        size_t to = end < base + part->strips ? end : base + part->strips;
        if (to > base + from) {
            gw_cpu_linear job = part->job;
            size_t stop = (to - base) * GW_STRIP_ROWS;
            job.n = gw_cpu_live(l, worker->step);
            job.y = (float *)(void *)l->out + part->column;
            job.y_stride = l->out_stride / sizeof(float);
            if (l->in1 != NULL) {
                job.residual = (const float *)(const void *)l->in1 + part->column;
                job.residual_stride = l->in1_stride / sizeof(float);
            }
            take_prepared(&job, part, worker);
            part->kernel->run(&job, from * GW_STRIP_ROWS, stop < job.m ? stop : job.m,
                              worker->scratch);
        }
        base += part->strips;
    }
}

static void run_linear(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t total = 0, first, end;
    for (int i = 0; i < l->u.linear.n_parts; i++) {
        total += l->u.linear.part[i].strips;
    }
    while (gw_cpu_take(worker, (total + STRIPS - 1) / STRIPS, l->u.linear.most, &first, &end)) {
        run_strips(l, worker, first * STRIPS, end * STRIPS < total ? end * STRIPS : total);
    }
}

int gw_cpu_accepts_linear(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    return node->out->fmt == GW_FMT_F32 && accepts(kernel, node, device, 0, 3);
}

gw_status gw_cpu_record_linear(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    gw_order order = node->args.linear.order;
    size_t column = 0;
    l->run = run_linear;
    l->u.linear.prefill = order == GW_ORDER_PREFILL;
    l->u.linear.most = groups_at_once(node->w[0], order);
    for (int i = 0; i < 3 && node->w[i] != NULL; i++) {
        gw_cpu_part *part = &l->u.linear.part[l->u.linear.n_parts++];
        const float *bias;
        GW_TRY(gw_cpu_vector(segment, node->w[3 + i], &bias));
        fill_part(part, l, kernel_for(gw_cpu_row_of(kernel), node->w[i], order), node->w[i], column,
                  bias);
        gw_cpu_need_scratch(segment, kernel_scratch(part, segment->rows));
        column += part->job.m;
    }
    finish_record(segment, kernel, node, l);
    return GW_OK;
}

/* ---- GLU
 * -----------------------------------------------------------------------------------------------
 */

/* Columns [first, end) of gate and up into scratch, then one row after the other out. */
static void run_tile(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t first, size_t end) {
    size_t n = (size_t)gw_cpu_live(l, worker->step), tile = l->u.linear.tile;
    float *sums[2] = {(float *)(void *)worker->scratch, NULL};
    sums[1] = sums[0] + n * tile;
    void *scratch = sums[1] + n * tile;
    for (int i = 0; i < 2; i++) {
        const gw_cpu_part *part = &l->u.linear.part[i];
        gw_cpu_linear job = part->job;
        job.w = (const char *)job.w + first / GW_STRIP_ROWS * part->strip_bytes;
        job.m -= first;
        job.n = (int)n;
        job.y = sums[i];
        job.y_stride = tile;
        take_prepared(&job, part, worker);
        part->kernel->run(&job, 0, end - first, scratch);
    }
    for (size_t i = 0; i < n; i++) {
        float *gate = sums[0] + i * tile, *up = sums[1] + i * tile;
        char *out = l->out + i * l->out_stride;
        if (!l->act8) {
            l->ops->silu_mul((float *)(void *)out + first, gate, up, end - first);
            continue;
        }
        l->ops->silu_mul(gate, gate, up, end - first);
        l->ops->encode((gw_act8 *)(void *)out + first / GW_ACT_BLOCK, gate,
                       (end - first) / GW_ACT_BLOCK);
    }
}

static void run_glu(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t blocks = (l->width + GW_ACT_BLOCK - 1) / GW_ACT_BLOCK, first, end;
    while (gw_cpu_take(worker, blocks, l->u.linear.tile / GW_ACT_BLOCK, &first, &end)) {
        size_t stop = end * GW_ACT_BLOCK < l->width ? end * GW_ACT_BLOCK : l->width;
        run_tile(l, worker, first * GW_ACT_BLOCK, stop);
    }
}

int gw_cpu_accepts_glu(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device) {
    const gw_tensor *out = node->out;
    int fits = out->fmt == GW_FMT_F32 ||
               (out->fmt == GW_FMT_ACT8 && out->dim[out->n_dim - 1] % GW_ACT_BLOCK == 0);
    return fits && accepts(kernel, node, device, 0, 2);
}

gw_status gw_cpu_record_glu(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    gw_order order = node->args.linear.order;
    size_t inner = 0;
    l->run = run_glu;
    l->u.linear.prefill = order == GW_ORDER_PREFILL;
    l->u.linear.tile = l->u.linear.prefill ? GLU_PREFILL_ROWS : GLU_DECODE_ROWS;
    l->u.linear.n_parts = 2;
    for (int i = 0; i < 2; i++) {
        gw_cpu_part *part = &l->u.linear.part[i];
        fill_part(part, l, kernel_for(gw_cpu_row_of(kernel), node->w[i], order), node->w[i], 0,
                  NULL);
        size_t need = kernel_scratch(part, segment->rows);
        inner = need > inner ? need : inner;
    }
    gw_cpu_need_scratch(segment, 2 * (size_t)segment->rows * l->u.linear.tile * sizeof(float) +
                                     inner + GW_CACHE_LINE);
    finish_record(segment, kernel, node, l);
    return GW_OK;
}
