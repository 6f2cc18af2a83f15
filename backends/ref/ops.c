/* backends/ref/ops.c - every op, straight from its definition in core/plan/op.h. One thread, no
 * cleverness: this file is read to learn what an op means. */
#include "backends/ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor/blocks.h"
#include "core/tensor/sample.h"

/* ---- rows of tensors ------------------------------------------------------------------------ */

static unsigned char *bytes_of(const gw_tensor *t) { return t->buf->memory + t->offset; }
static int64_t cols_of(const gw_tensor *t) { return t->dim[t->n_dim - 1]; }

static unsigned char *row_at(const gw_tensor *t, int64_t row) {
    const gw_format *f = gw_format_of(t->fmt);
    size_t bytes = f->row_header + (size_t)cols_of(t) / f->block_elems * f->block_bytes;
    return bytes_of(t) + (size_t)row * bytes;
}

static float *floats_at(const gw_tensor *t, int64_t row) { return (float *)(void *)row_at(t, row); }

/* An activation row, exactly. */
static void read_row(double *dst, const gw_tensor *t, int64_t row) {
    int64_t cols = cols_of(t);
    if (t->fmt == GW_FMT_ACT8) {
        const gw_act8 *block = (const gw_act8 *)(const void *)row_at(t, row);
        for (int64_t i = 0; i < cols; i++) {
            const gw_act8 *b = &block[i / GW_ACT_BLOCK];
            dst[i] = (double)b->scale * b->q[i % GW_ACT_BLOCK];
        }
        return;
    }
    const float *x = floats_at(t, row);
    for (int64_t i = 0; i < cols; i++) {
        dst[i] = x[i];
    }
}

/* A result row in the output's format. */
static void write_row(const gw_tensor *t, int64_t row, const double *src) {
    int64_t cols = cols_of(t);
    if (t->fmt == GW_FMT_ACT8) {
        gw_act8 *block = (gw_act8 *)(void *)row_at(t, row);
        for (int64_t b = 0; b < cols / GW_ACT_BLOCK; b++) {
            float x[GW_ACT_BLOCK];
            for (int i = 0; i < GW_ACT_BLOCK; i++) {
                x[i] = (float)src[b * GW_ACT_BLOCK + i];
            }
            gw_act8_encode(&block[b], x);
        }
        return;
    }
    float *y = floats_at(t, row);
    for (int64_t i = 0; i < cols; i++) {
        y[i] = (float)src[i];
    }
}

/* Row r of a weight matrix in floats, which every format expands to exactly. */
static const float *weight_row(const gw_tensor *w, int64_t r, float *room) {
    gw_format_of(w->fmt)->decode(room, row_at(w, r), (size_t)cols_of(w));
    return room;
}

static double dot(const double *x, const float *w, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * w[i];
    }
    return sum;
}

static size_t scratch_none(const gw_node *node, int rows) {
    (void)node, (void)rows;
    return 0;
}

static size_t scratch_row(const gw_node *node, int rows) {
    (void)rows;
    return 2 * (size_t)cols_of(node->out);
}

/* ---- embed, pick, norm, quantize ------------------------------------------------------------ */

static void run_embed(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    (void)scratch;
    for (int i = 0; i < rows; i++) {
        int32_t token = step->token[i];
        if (token < 0) {
            token = *(const int32_t *)(const void *)row_at(node->in[0], i);
            token = token < 0 ? 0 : token;
        }
        weight_row(node->w[0], token, floats_at(node->out, i));
    }
}

static void run_pick(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    for (int i = 0; i < rows; i++) {
        read_row(scratch, node->in[0], (int64_t)step->pick + i);
        write_row(node->out, i, scratch);
    }
}

/* x * w / sqrt(mean of squares + eps), in place */
static void rms_norm(double *x, const float *w, int64_t n, float eps) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    double scale = 1.0 / sqrt(sum / (double)n + (double)eps);
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] * scale * w[i];
    }
}

static void run_norm(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    (void)step;
    for (int i = 0; i < rows; i++) {
        read_row(scratch, node->in[0], i);
        rms_norm(scratch, floats_at(node->w[0], 0), cols_of(node->out), node->args.norm.eps);
        write_row(node->out, i, scratch);
    }
}

static void run_quantize(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    (void)step;
    for (int i = 0; i < rows; i++) {
        read_row(scratch, node->in[0], i);
        write_row(node->out, i, scratch);
    }
}

/* ---- matrix products ------------------------------------------------------------------------ */

/* All input rows, one weight row, and for GLU all results. */
static size_t scratch_product(const gw_node *node, int rows) {
    size_t k = (size_t)cols_of(node->in[0]), f = (size_t)cols_of(node->out);
    return (size_t)rows * k + 2 * k + (size_t)rows * f;
}

/* The rows of node->in[0] as the terms of w take them: with one scale for the blocks of a term. */
static void read_input(double *dst, const gw_node *node, int rows, const gw_tensor *w) {
    int64_t k = cols_of(node->in[0]);
    for (int i = 0; i < rows; i++, dst += k) {
        read_row(dst, node->in[0], i);
        const gw_act8 *from = (const gw_act8 *)(const void *)row_at(node->in[0], i);
        int64_t span = gw_format_of(w->fmt)->span > 1 ? GW_ACT_SPAN * GW_ACT_BLOCK : k;
        for (int64_t at = 0; span < k && at < k; at += GW_ACT_BLOCK) {
            gw_act8 one[GW_ACT_SPAN];
            gw_act8_span(one, from + at / span * GW_ACT_SPAN);
            const gw_act8 *b = &one[at / GW_ACT_BLOCK % GW_ACT_SPAN];
            for (int j = 0; j < GW_ACT_BLOCK; j++) {
                dst[at + j] = (double)b->scale * b->q[j];
            }
        }
    }
}

static void run_linear(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    (void)step;
    int64_t k = cols_of(node->in[0]), column = 0;
    double *x = scratch;
    float *room = (float *)(void *)(x + rows * k);
    for (int part = 0; part < 3 && node->w[part] != NULL; part++) {
        const gw_tensor *w = node->w[part], *bias = node->w[3 + part];
        read_input(x, node, rows, w);
        for (int64_t r = 0; r < w->dim[0]; r++, column++) {
            const float *row = weight_row(w, r, room);
            for (int i = 0; i < rows; i++) {
                double y = dot(x + i * k, row, k);
                y += bias != NULL ? floats_at(bias, 0)[r] : 0.0;
                y += node->in[1] != NULL ? floats_at(node->in[1], i)[column] : 0.0;
                floats_at(node->out, i)[column] = (float)y;
            }
        }
    }
}

static void run_glu(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    (void)step;
    int64_t k = cols_of(node->in[0]), f = cols_of(node->out);
    double *x = scratch, *y = x + rows * k + 2 * k;
    float *room = (float *)(void *)(x + rows * k);
    for (int part = 0; part < 2; part++) {
        read_input(x, node, rows, node->w[part]);
        for (int64_t r = 0; r < f; r++) {
            const float *row = weight_row(node->w[part], r, room);
            for (int i = 0; i < rows; i++) {
                double a = dot(x + i * k, row, k), *at = &y[i * f + r];
                *at = part == 0 ? a / (1.0 + exp(-a)) : *at * a;
            }
        }
    }
    for (int i = 0; i < rows; i++) {
        write_row(node->out, i, y + i * f);
    }
}

/* ---- the cache: K [page, g, e, P], V [page, g, P, e] ---------------------------------------- */

/* Where position pos of a slot stands: its page, and the place inside. */
static int64_t page_of(const gw_tensor *table, int32_t slot, int32_t pos) {
    const int32_t *pages = (const int32_t *)(const void *)bytes_of(table);
    return pages[slot * table->dim[1] + pos / GW_PAGE];
}

/* Where values of one position stand in the page of head g: value i at at + i * step, its scale in
 * q8_0 at scale + i / 32 * scale_step. */
typedef struct cell {
    unsigned char *page;
    size_t at, step, scale, scale_step;
    gw_fmt fmt;
} cell;

static cell cell_of(const gw_tensor *t, int is_k, int64_t page, int g, int32_t pos) {
    const gw_format *f = gw_format_of(t->fmt);
    size_t e = (size_t)t->dim[is_k ? 2 : 3], p = (size_t)(pos % GW_PAGE);
    size_t bytes = GW_PAGE * e / f->block_elems * f->block_bytes;
    cell c = {.page = bytes_of(t) + (size_t)(page * t->dim[1] + g) * bytes, .fmt = t->fmt};
    c.at = is_k ? p : p * e;
    c.step = is_k ? GW_PAGE : 1;
    c.scale = GW_PAGE * e + 2 * (is_k ? p : p * (e / 32));
    c.scale_step = 2 * (is_k ? (size_t)GW_PAGE : 1);
    return c;
}

static void cell_set(const cell *c, const double *x, int e) {
    for (int i = 0; i < e && c->fmt != GW_FMT_Q8_0; i++) {
        size_t at = c->at + (size_t)i * c->step;
        if (c->fmt == GW_FMT_F16) {
            ((gw_u16 *)(void *)c->page)[at] = gw_f32_to_f16((float)x[i]);
        } else {
            ((float *)(void *)c->page)[at] = (float)x[i];
        }
    }
    for (int b = 0; b < e / 32 && c->fmt == GW_FMT_Q8_0; b++) {
        gw_block_q8_0 block;
        float values[32];
        for (int i = 0; i < 32; i++) {
            values[i] = (float)x[32 * b + i];
        }
        gw_format_of(GW_FMT_Q8_0)->encode(&block, values, 32);
        memcpy(c->page + c->scale + (size_t)b * c->scale_step, block.d, sizeof block.d);
        for (int i = 0; i < 32; i++) {
            c->page[c->at + (size_t)(32 * b + i) * c->step] = (unsigned char)block.q[i];
        }
    }
}

static double cell_get(const cell *c, int i) {
    size_t at = c->at + (size_t)i * c->step;
    if (c->fmt == GW_FMT_F16) {
        return gw_f16_to_f32(((const gw_u16 *)(const void *)c->page)[at]);
    }
    if (c->fmt == GW_FMT_F32) {
        return ((const float *)(const void *)c->page)[at];
    }
    const unsigned char *scale = c->page + c->scale + (size_t)(i / 32) * c->scale_step;
    return (double)gw_load_f16(scale) * (double)(gw_i8)c->page[at];
}

/* ---- rope + append -------------------------------------------------------------------------- */

static void rotate(double *head, const gw_rope_args *a, const gw_tensor *table, int32_t pos) {
    int half = a->rope_dim / 2;
    if (half == 0) {
        return;
    }
    const float *cosine = floats_at(table, 2 * (int64_t)pos), *sine = cosine + half;
    for (int i = 0; i < half; i++) {
        int first = a->style == GW_ROPE_HALVES ? i : 2 * i;
        int second = a->style == GW_ROPE_HALVES ? i + half : 2 * i + 1;
        double x = head[first], y = head[second];
        head[first] = x * cosine[i] - y * sine[i];
        head[second] = y * cosine[i] + x * sine[i];
    }
}

static size_t scratch_rope(const gw_node *node, int rows) {
    (void)rows;
    return (size_t)cols_of(node->in[0]);
}

static void run_rope_kv(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_rope_args *a = &node->args.rope;
    int e = a->head_dim;
    for (int i = 0; i < rows; i++) {
        int32_t pos = step->pos[i];
        int64_t page = page_of(node->in[3], step->slot[i], pos);
        read_row(scratch, node->in[0], i);
        for (int h = 0; h < a->heads + a->kv_heads; h++) { /* q heads, then k heads */
            const gw_tensor *norm = node->w[h < a->heads ? 0 : 1];
            if (norm != NULL) {
                rms_norm(scratch + h * e, floats_at(norm, 0), e, a->eps);
            }
            rotate(scratch + h * e, a, node->w[2], pos);
        }
        write_row(node->out, i, scratch);
        const double *k = scratch + a->heads * e, *v = k + a->kv_heads * e;
        for (int g = 0; g < a->kv_heads; g++) {
            cell k_cell = cell_of(node->in[1], 1, page, g, pos);
            cell v_cell = cell_of(node->in[2], 0, page, g, pos);
            cell_set(&k_cell, k + g * e, e);
            cell_set(&v_cell, v + g * e, e);
        }
    }
}

/* ---- attention ------------------------------------------------------------------------------ */

/* q row, result row, and a score per position that a slot can hold. */
static size_t scratch_attention(const gw_node *node, int rows) {
    (void)rows;
    return 2 * (size_t)cols_of(node->out) + (size_t)node->in[3]->dim[1] * GW_PAGE;
}

static void attend(const gw_node *node, int32_t slot, int32_t pos, int h, const double *q,
                   double *out, double *score) {
    const gw_attn_args *a = &node->args.attn;
    const gw_tensor *k = node->in[1], *v = node->in[2], *table = node->in[3];
    int g = h / (a->heads / a->kv_heads), e = a->head_dim;
    int32_t first = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
    double top = -INFINITY, sum = 0.0;
    for (int32_t p = first; p <= pos; p++) {
        cell at = cell_of(k, 1, page_of(table, slot, p), g, p);
        double s = 0.0;
        for (int c = 0; c < e; c++) {
            s += q[c] * cell_get(&at, c);
        }
        score[p] = s * (double)a->scale;
        top = score[p] > top || isnan(score[p]) ? score[p] : top;
    }
    for (int c = 0; c < e; c++) {
        out[c] = 0.0;
    }
    for (int32_t p = first; p <= pos; p++) {
        cell at = cell_of(v, 0, page_of(table, slot, p), g, p);
        double weight = exp(score[p] - top);
        sum += weight;
        for (int c = 0; c < e; c++) {
            out[c] += weight * cell_get(&at, c);
        }
    }
    for (int c = 0; c < e; c++) {
        out[c] /= sum;
    }
}

static void run_attention(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_attn_args *a = &node->args.attn;
    int64_t width = cols_of(node->out);
    double *q = scratch, *out = q + width, *score = out + width;
    for (int i = 0; i < rows; i++) {
        read_row(q, node->in[0], i);
        for (int h = 0; h < a->heads; h++) {
            attend(node, step->slot[i], step->pos[i], h, q + h * a->head_dim, out + h * a->head_dim,
                   score);
        }
        write_row(node->out, i, out);
    }
}

/* ---- sample --------------------------------------------------------------------------------- */

/* Among the k largest: fewer than k are larger. */
static int is_among(const float *x, int64_t n, int k, float value) {
    int64_t larger = 0;
    for (int64_t i = 0; i < n; i++) {
        larger += x[i] > value;
    }
    return larger < k;
}

/* By falling probability, of equals the lower token first. */
static int by_rank(const void *a, const void *b) {
    const gw_listed *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key) - (x->key > y->key)
                            : (x->token > y->token) - (x->token < y->token);
}

/* The tokens that top-k, top-p and min-p leave of x; how many, 0 when they cannot say. */
static int narrow(const float *x, int64_t n, gw_choice c, gw_listed *list) {
    double all = 0, before = 0;
    int listed = 0, left = 0;
    for (int64_t i = 0; i < n && gw_choice_filters(c, (int)n); i++) {
        if (is_among(x, n, c.top_k, x[i])) {
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
static int32_t draw(const float *x, int64_t n, gw_choice c, int32_t pos) {
    int32_t best = -1;
    float most = -INFINITY;
    gw_listed list[GW_CHOICE_RANKED];
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) || x[i] == INFINITY) {
            return -1;
        }
    }
    int narrows = gw_choice_narrows(c), left = narrows ? narrow(x, n, c, list) : 0;
    for (int64_t i = 0; i < n; i++) {
        float y = gw_choice_score(c, x[i], pos, (int32_t)i);
        if (y > most &&
            (narrows ? is_listed(list, left, i)
                     : !gw_choice_filters(c, (int)n) || is_among(x, n, c.top_k, x[i]))) {
            most = y;
            best = (int32_t)i;
        }
    }
    return most < INFINITY ? best : -1;
}

static void run_sample(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    gw_choice c;
    (void)scratch;
    memcpy(&c, row_at(node->in[1], 0), sizeof c);
    for (int i = 0; i < rows; i++) {
        int32_t id = draw(floats_at(node->in[0], i), cols_of(node->in[0]), c, step->pos[i]);
        memcpy(row_at(node->out, i), &id, sizeof id);
    }
}

/* clang-format off */
static const ref_op ops[GW_OP_COUNT] = {
    [GW_OP_EMBED]     = {scratch_none,      run_embed},
    [GW_OP_PICK]      = {scratch_row,       run_pick},
    [GW_OP_NORM]      = {scratch_row,       run_norm},
    [GW_OP_QUANTIZE]  = {scratch_row,       run_quantize},
    [GW_OP_LINEAR]    = {scratch_product,   run_linear},
    [GW_OP_GLU]       = {scratch_product,   run_glu},
    [GW_OP_ROPE_KV]   = {scratch_rope,      run_rope_kv},
    [GW_OP_ATTENTION] = {scratch_attention, run_attention},
    [GW_OP_SAMPLE]    = {scratch_none,      run_sample},
};
/* clang-format on */

const ref_op *ref_op_of(gw_op op) { return &ops[op]; }
