/* backends/cpu/forms.c - NORM in every form, ACT, MIX and ROUTE: rows to threads. */
#include <string.h>

#include "backends/cpu/cpu.h"

static int f32_or_act8(const gw_tensor *t) {
    return t->fmt == GW_FMT_F32 ||
           (t->fmt == GW_FMT_ACT8 && t->dim[t->n_dim - 1] % GW_ACT_BLOCK == 0);
}

static void encode_row(const gw_cpu_launch *l, const float *y, size_t i) {
    if (l->act8) {
        l->ops->encode((gw_act8 *)(void *)(l->out + i * l->out_stride), y, l->width / GW_ACT_BLOCK);
    }
}

static void run_rows(const gw_cpu_launch *l, gw_cpu_worker *worker,
                     void (*row)(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i)) {
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 4, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            row(l, worker, i);
        }
    }
}

/* ---- NORM
 * ---------------------------------------------------------------------------------------------- */

/* What the norm itself is, but for its addend and factor; act8 of an RMS norm without a bias is
 * scaled behind its codes. 1: encoded already. */
static int norm_values(const gw_cpu_launch *l, float *y, const float *x, size_t i) {
    const float *w = l->u.norm.weight, *b = l->u.norm.bias;
    if (l->u.norm.args.kind == GW_NORM_LAYER) {
        float mean = l->ops->sum(x, l->width) / (float)l->width;
        for (size_t k = 0; k < l->width; k++) {
            y[k] = x[k] - mean;
        }
        float r = l->ops->norm(y, y, l->u.norm.ones, l->width, l->u.norm.args.eps);
        for (size_t k = 0; k < l->width; k++) {
            float c = y[k] * r;
            y[k] = b != NULL ? fmaf(c, w[k], b[k]) : c * w[k];
        }
        return 0;
    }
    float r = l->ops->norm(y, x, w, l->width, l->u.norm.args.eps);
    if (l->act8 && b == NULL) {
        gw_act8 *blocks = (gw_act8 *)(void *)(l->out + i * l->out_stride);
        encode_row(l, y, i);
        for (size_t k = 0; k < l->width / GW_ACT_BLOCK; k++) {
            blocks[k].scale = blocks[k].scale * r;
        }
        return 1;
    }
    for (size_t k = 0; k < l->width; k++) {
        y[k] = b != NULL ? y[k] * r + b[k] : y[k] * r;
    }
    return 0;
}

static void norm_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    const float *x = (const float *)(const void *)(l->in + i * l->in_stride);
    float *y = (float *)(void *)worker->scratch; /* the addend may lie where the result goes */
    if (norm_values(l, y, x, i)) {
        return;
    }
    if (l->in1 != NULL) {
        const float *addend = (const float *)(const void *)(l->in1 + i * l->in1_stride);
        for (size_t k = 0; k < l->width; k++) {
            y[k] = addend[k] + y[k];
        }
    }
    for (size_t k = 0; k < l->width && l->u.norm.factor != NULL; k++) {
        y[k] = y[k] * *l->u.norm.factor;
    }
    if (!l->act8) {
        memcpy(l->out + i * l->out_stride, y, l->width * sizeof *y);
    }
    encode_row(l, y, i);
}

static void run_norm_any(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    run_rows(l, worker, norm_row);
}

int gw_cpu_accepts_norm_any(const gw_kernel *kernel, const gw_node *node,
                            const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && f32_or_act8(node->out);
}

gw_status gw_cpu_record_norm_any(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_norm_any;
    l->u.norm.args = node->args.norm;
    gw_cpu_need_scratch(segment, l->width * sizeof(float));
    GW_TRY(gw_cpu_vector(segment, node->w[1], &l->u.norm.bias));
    GW_TRY(gw_cpu_vector(segment, node->w[2], &l->u.norm.factor));
    if (node->w[0] == NULL || node->args.norm.kind == GW_NORM_LAYER) {
        GW_TRY(gw_cpu_ones(segment, node, l->width, &l->u.norm.ones));
    }
    l->u.norm.weight = l->u.norm.ones;
    return node->w[0] != NULL ? gw_cpu_vector(segment, node->w[0], &l->u.norm.weight) : GW_OK;
}

/* ---- ACT
 * -----------------------------------------------------------------------------------------------
 */

enum { ACT_COLUMNS = 1024 }; /* of a piece: one row of decode keeps several threads busy */

static void run_act(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t n = (size_t)gw_cpu_live(l, worker->step), first, end;
    size_t pieces = (l->width + ACT_COLUMNS - 1) / ACT_COLUMNS;
    while (gw_cpu_take(worker, n * pieces, 4, &first, &end)) {
        for (size_t p = first; p < end; p++) {
            size_t i = p / pieces, at = p % pieces * ACT_COLUMNS;
            size_t count = l->width - at < ACT_COLUMNS ? l->width - at : ACT_COLUMNS;
            const float *gate = (const float *)(const void *)(l->in + i * l->in_stride) + at;
            char *out = l->out + i * l->out_stride;
            float *y = (float *)(void *)(l->act8 ? worker->scratch : out) + (l->act8 ? 0 : at);
            l->ops->act(y, gate, l->u.act.gated ? gate + l->width : NULL, count, &l->u.act.act);
            if (l->act8) {
                l->ops->encode((gw_act8 *)(void *)out + at / GW_ACT_BLOCK, y, count / GW_ACT_BLOCK);
            }
        }
    }
}

int gw_cpu_accepts_act(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return f32_or_act8(node->out);
}

gw_status gw_cpu_record_act(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    const gw_act_args *a = &node->args.act;
    const float *xielu;
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_act;
    l->u.act.gated = a->gated;
    gw_cpu_need_scratch(segment, ACT_COLUMNS * sizeof(float));
    GW_TRY(gw_cpu_vector(segment, node->w[0], &xielu));
    l->u.act.act = (gw_cpu_act){.kind = a->kind,
                                .limit = xielu != NULL ? xielu[3] : a->limit,
                                .alpha = xielu != NULL ? xielu[2] : a->alpha,
                                .p = xielu != NULL ? xielu[0] : 0.0f,
                                .q = xielu != NULL ? xielu[1] : 0.0f};
    return GW_OK;
}

/* ---- MIX
 * -----------------------------------------------------------------------------------------------
 */

enum { GATES = 64 }; /* at once, so that vectors take them */

static void gate_row(const gw_cpu_launch *l, float *y, size_t i) {
    const float *gate = (const float *)(const void *)(l->in1 + i * l->in1_stride);
    size_t wide = l->width / l->u.act.gates;
    const gw_cpu_act act = {.kind = l->u.act.mix.gate_act};
    for (size_t first = 0; first < l->u.act.gates; first += GATES) {
        float by[GATES];
        size_t left = l->u.act.gates - first, n = left < GATES ? left : GATES;
        l->ops->act(by, gate + first, NULL, n, &act);
        for (size_t c = 0; c < n; c++, y += wide) {
            for (size_t k = 0; k < wide; k++) {
                y[k] = y[k] * by[c];
            }
        }
    }
}

static void mix_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    const float scale = l->u.act.mix.scale, cap = l->u.act.mix.cap, *factor = l->u.act.factor;
    float *y = (float *)(void *)worker->scratch; /* the addend may lie where the result goes */
    memcpy(y, l->in + i * l->in_stride, l->width * sizeof *y);
    for (size_t k = 0; k < l->width && scale != 0.0f; k++) {
        y[k] = y[k] * scale;
    }
    if (l->in1 != NULL) {
        gate_row(l, y, i);
    }
    for (size_t k = 0; k < l->width && cap != 0.0f; k++) {
        y[k] = gw_softcap(y[k], cap);
    }
    if (l->u.act.addend != NULL) {
        const char *at = l->u.act.addend + i * l->u.act.addend_stride;
        const float *addend = (const float *)(const void *)at;
        for (size_t k = 0; k < l->width; k++) {
            y[k] = addend[k] + y[k];
        }
    }
    for (size_t k = 0; k < l->width && factor != NULL; k++) {
        y[k] = y[k] * factor[l->u.act.factors > 1 ? k : 0];
    }
    if (!l->act8) {
        memcpy(l->out + i * l->out_stride, y, l->width * sizeof *y);
    }
    encode_row(l, y, i);
}

static void run_mix(const gw_cpu_launch *l, gw_cpu_worker *worker) { run_rows(l, worker, mix_row); }

int gw_cpu_accepts_mix(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return f32_or_act8(node->out);
}

gw_status gw_cpu_record_mix(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_mix;
    l->u.act.mix = node->args.mix;
    l->u.act.gates = node->in[1] != NULL ? (size_t)node->in[1]->dim[1] : 1;
    if (node->in[2] != NULL) {
        l->u.act.addend = gw_cpu_data(node->in[2]);
        l->u.act.addend_stride = gw_cpu_row_stride(node->in[2]);
    }
    l->u.act.factors = node->w[0] != NULL ? (size_t)node->w[0]->dim[0] : 0;
    gw_cpu_need_scratch(segment, l->width * sizeof(float));
    return gw_cpu_vector(segment, node->w[0], &l->u.act.factor);
}

/* ---- ROUTE
 * --------------------------------------------------------------------------------------------- */

static void route_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    (void)worker;
    gw_route_row(&l->u.route.args, (int)(l->in_stride / sizeof(float)),
                 (const float *)(const void *)(l->in + i * l->in_stride), l->u.route.bias,
                 l->u.route.factor,
                 l->in1 != NULL ? (const float *)(const void *)(l->in1 + i * l->in1_stride) : NULL,
                 (float *)(void *)(l->out + i * l->out_stride));
}

static void run_route(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    run_rows(l, worker, route_row);
}

int gw_cpu_accepts_route(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32;
}

gw_status gw_cpu_record_route(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_route;
    l->u.route.args = node->args.route;
    GW_TRY(gw_cpu_vector(segment, node->w[0], &l->u.route.bias));
    return gw_cpu_vector(segment, node->w[1], &l->u.route.factor);
}
