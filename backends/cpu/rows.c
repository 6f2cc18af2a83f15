/* backends/cpu/rows.c - the ops that treat each row on its own: EMBED, PICK, NORM, QUANTIZE,
 * SAMPLE. */
#include <string.h>

#include "backends/cpu/cpu.h"

/* ---- EMBED
 * --------------------------------------------------------------------------------------------- */

/* A row of a table beside that of the tokens comes to what is there. */
static void add_row(const gw_cpu_table *t, gw_cpu_worker *worker, float *out, size_t at, size_t n) {
    float *row = (float *)(void *)worker->scratch;
    gw_format_of(t->fmt)->decode(row, t->rows + at * t->bytes, n);
    for (size_t k = 0; k < n; k++) {
        out[k] = out[k] + row[k];
    }
}

static void finish_embed(const gw_cpu_launch *l, gw_cpu_worker *worker, float *out, size_t row) {
    const float scale = l->u.embed.args.scale;
    const gw_step *step = worker->step;
    for (size_t k = 0; k < l->width && scale != 0.0f; k++) {
        out[k] = out[k] * scale;
    }
    if (l->u.embed.places.rows != NULL) {
        add_row(&l->u.embed.places, worker, out,
                (size_t)(step->pos[row] - step->less[row] + l->u.embed.args.offset), l->width);
    }
    if (l->u.embed.types.rows != NULL) {
        add_row(&l->u.embed.types, worker, out, (size_t)step->type[row], l->width);
    }
}

static void run_embed(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    const gw_format *f = gw_format_of(l->u.embed.fmt);
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 8, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            int32_t token = worker->step->token[i];
            if (token < 0) {
                token = *(const int32_t *)(const void *)(l->in + i * l->in_stride);
                token = token < 0 ? 0 : token;
            }
            float *out = (float *)(void *)(l->out + i * l->out_stride);
            f->decode(out, l->u.embed.table + (size_t)token * l->u.embed.row_bytes, l->width);
            finish_embed(l, worker, out, i);
        }
    }
}

int gw_cpu_accepts_embed(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->w[0]->layout == GW_LAYOUT_ROWS &&
           (node->w[1] == NULL || node->w[1]->layout == GW_LAYOUT_ROWS) &&
           (node->w[2] == NULL || node->w[2]->layout == GW_LAYOUT_ROWS) &&
           node->out->fmt == GW_FMT_F32 && gw_format_of(node->w[0]->fmt)->decode != NULL;
}

gw_status gw_cpu_record_embed(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_embed;
    l->u.embed.table = gw_cpu_data(node->w[0]);
    l->u.embed.row_bytes = gw_cpu_row_stride(node->w[0]);
    l->u.embed.fmt = node->w[0]->fmt;
    l->u.embed.args = node->args.embed;
    for (int i = 1; i <= 2; i++) {
        const gw_tensor *t = node->w[i];
        if (t != NULL) {
            *(i == 1 ? &l->u.embed.places : &l->u.embed.types) =
                (gw_cpu_table){gw_cpu_data(t), gw_cpu_row_stride(t), t->fmt};
            gw_cpu_need_scratch(segment, l->width * sizeof(float));
        }
    }
    return GW_OK;
}

/* ---- PICK
 * ---------------------------------------------------------------------------------------------- */

/* One row of the result out of the rows of a slot, which stand side by side. */
static void pool_slot(const gw_cpu_launch *l, const gw_step *step, size_t slot) {
    size_t first = 0, end, n = (size_t)step->n;
    while (first + 1 < n && (size_t)step->slot[first] < slot) {
        first++;
    }
    for (end = first + 1; end < n && (size_t)step->slot[end] == slot;) {
        end++;
    }
    float *out = (float *)(void *)(l->out + slot * l->out_stride);
    size_t one = l->u.pick == GW_PICK_LAST ? end - 1 : first;
    memcpy(out, l->in + one * l->in_stride, l->out_stride);
    if (l->u.pick != GW_PICK_MEAN) {
        return;
    }
    for (size_t r = first + 1; r < end; r++) {
        const float *x = (const float *)(const void *)(l->in + r * l->in_stride);
        for (size_t k = 0; k < l->width; k++) {
            out[k] = out[k] + x[k];
        }
    }
    for (size_t k = 0; k < l->width; k++) {
        out[k] = out[k] / (float)(end - first);
    }
}

static void run_pool(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)worker->step->n_pick, 1, &first, &end)) {
        for (; first < end; first++) {
            pool_slot(l, worker->step, first);
        }
    }
}

static void run_pick(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    const gw_step *step = worker->step;
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)step->n_pick, 8, &first, &end)) {
        memmove(l->out + first * l->out_stride, l->in + ((size_t)step->pick + first) * l->in_stride,
                (end - first) * l->out_stride);
    }
}

int gw_cpu_accepts_pick(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32;
}

gw_status gw_cpu_record_pick(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->u.pick = node->args.pick.kind;
    l->run = l->u.pick == GW_PICK_ROWS ? run_pick : run_pool;
    return GW_OK;
}

/* ---- NORM
 * ---------------------------------------------------------------------------------------------- */

static void norm_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i, void *out) {
    const float *x = (const float *)(const void *)(l->in + i * l->in_stride);
    float *y = l->act8 ? (float *)(void *)worker->scratch : (float *)out;
    float factor = l->ops->norm(y, x, l->u.norm.weight, l->width, l->u.norm.eps);
    if (!l->act8) {
        for (size_t k = 0; k < l->width; k++) {
            y[k] = y[k] * factor;
        }
        return;
    }
    gw_act8 *blocks = out;
    l->ops->encode(blocks, y, l->width / GW_ACT_BLOCK);
    for (size_t b = 0; b < l->width / GW_ACT_BLOCK; b++) {
        blocks[b].scale = blocks[b].scale * factor;
    }
}

static void run_norm(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 4, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            norm_row(l, worker, i, l->out + i * l->out_stride);
        }
    }
}

static int f32_or_act8(const gw_tensor *t) {
    return t->fmt == GW_FMT_F32 ||
           (t->fmt == GW_FMT_ACT8 && t->dim[t->n_dim - 1] % GW_ACT_BLOCK == 0);
}

int gw_cpu_accepts_norm(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && f32_or_act8(node->out) &&
           gw_format_of(node->w[0]->fmt)->is_float;
}

gw_status gw_cpu_record_norm(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_norm;
    l->row = norm_row;
    l->u.norm.eps = node->args.norm.eps;
    gw_cpu_need_scratch(segment, l->width * sizeof(float));
    return gw_cpu_vector(segment, node->w[0], &l->u.norm.weight);
}

/* ---- QUANTIZE
 * ------------------------------------------------------------------------------------------- */

enum { QUANTIZE_BLOCKS = 32 }; /* per piece: one row of a decode step keeps several threads busy */

/* Blocks [at, at + n), of values in the order that is asked for. */
static void quantize_blocks(const gw_cpu_launch *l, size_t row, gw_act8 *y, size_t at, size_t n) {
    const float *x = (const float *)(const void *)(l->in + row * l->in_stride);
    const float *from = l->u.norm.weight;
    float some[QUANTIZE_BLOCKS * GW_ACT_BLOCK];
    if (from == NULL) {
        l->ops->encode(y, x + at * GW_ACT_BLOCK, n);
        return;
    }
    for (size_t i = 0; i < n * GW_ACT_BLOCK; i++) {
        some[i] = x[(size_t)from[at * GW_ACT_BLOCK + i]];
    }
    l->ops->encode(y, some, n);
}

static void quantize_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i, void *out) {
    size_t blocks = l->width / GW_ACT_BLOCK;
    (void)worker;
    for (size_t at = 0; at < blocks; at += QUANTIZE_BLOCKS) {
        size_t n = blocks - at < QUANTIZE_BLOCKS ? blocks - at : QUANTIZE_BLOCKS;
        quantize_blocks(l, i, (gw_act8 *)out + at, at, n);
    }
}

static void run_quantize(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t blocks = l->width / GW_ACT_BLOCK;
    size_t pieces = (blocks + QUANTIZE_BLOCKS - 1) / QUANTIZE_BLOCKS, first, end;
    while (
        gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step) * pieces, pieces, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            size_t row = i / pieces, at = i % pieces * QUANTIZE_BLOCKS;
            size_t n = blocks - at < QUANTIZE_BLOCKS ? blocks - at : QUANTIZE_BLOCKS;
            gw_act8 *y = (gw_act8 *)(void *)(l->out + row * l->out_stride);
            quantize_blocks(l, row, y + at, at, n);
        }
    }
}

int gw_cpu_accepts_quantize(const gw_kernel *kernel, const gw_node *node,
                            const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_ACT8 &&
           node->out->dim[node->out->n_dim - 1] % GW_ACT_BLOCK == 0;
}

gw_status gw_cpu_record_quantize(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_quantize;
    l->row = quantize_row;
    l->u.norm.weight = NULL;
    return node->w[0] != NULL ? gw_cpu_vector(segment, node->w[0], &l->u.norm.weight) : GW_OK;
}

/* ---- SAMPLE
 * --------------------------------------------------------------------------------------------- */

static void run_sample(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end, n = l->in_stride / sizeof(float);
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 1, &first, &end)) {
        const float *x = (const float *)(const void *)(l->in + first * l->in_stride);
        int32_t *id = (int32_t *)(void *)(l->out + first * l->out_stride);
        *id = gw_choose(x, (int)n, l->u.choice[first], worker->step->pos[first],
                        (gw_listed *)(void *)worker->scratch);
    }
}

int gw_cpu_accepts_sample(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32;
}

gw_status gw_cpu_record_sample(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_sample;
    l->u.choice = (const gw_choice *)(const void *)gw_cpu_data(node->in[1]);
    gw_cpu_need_scratch(segment, (size_t)node->in[0]->dim[1] * sizeof(gw_listed));
    return GW_OK;
}
