/* backends/ref/attention.c - the KV cache, ROPE_KV and ATTENTION, straight from their definition.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/ref/ref.h"
#include "core/tensor/blocks.h"
#include "core/tensor/cells.h"

/* ---- the cache: K [page, g, e, P], V [page, g, P, e] ---------------------------------------- */

/* Where position pos of a slot stands: its page, and the place inside. */
int64_t ref_page_of(const gw_tensor *table, int32_t slot, int32_t pos) {
    const int32_t *pages = (const int32_t *)(const void *)ref_bytes(table);
    return pages[slot * table->dim[1] + pos / GW_PAGE];
}

ref_cell ref_cell_of(const gw_tensor *t, int is_k, int64_t page, int g, int32_t pos) {
    const gw_format *f = gw_format_of(t->fmt);
    size_t e = (size_t)t->dim[is_k ? 2 : 3], p = (size_t)(pos % GW_PAGE);
    size_t bytes = GW_PAGE * e / f->block_elems * f->block_bytes;
    ref_cell c = {.page = ref_bytes(t) + (size_t)(page * t->dim[1] + g) * bytes, .fmt = t->fmt};
    c.bits = gw_cache_bits(t->fmt);
    c.e = (int)e;
    c.is_k = is_k;
    c.pos = (int)p;
    c.at = is_k ? p : p * e;
    c.step = is_k ? GW_PAGE : 1;
    c.scale = GW_PAGE * e + 2 * (is_k ? p : p * (e / 32));
    c.scale_step = 2 * (is_k ? (size_t)GW_PAGE : 1);
    return c;
}

/* The Hadamard transform of each width values, in place; it undoes itself. */
static void rotate(double *x, int n, int width) {
    for (int h = 1; h < width; h *= 2) {
        for (int i = 0; i < n; i++) {
            if ((i & h) == 0) {
                double a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
        }
    }
    for (int i = 0; i < n; i++) {
        x[i] /= sqrt((double)width);
    }
}

static void set_packed(const ref_cell *c, const double *x, int e) {
    unsigned char *high = c->page + gw_cells_high_at(c->e);
    unsigned char *scales = c->page + gw_cells_scales_at(c->e, c->bits);
    for (int b = 0; b < e; b += 32) {
        float peak = 0.0f;
        int finite = 1;
        for (int i = b; i < b + 32; i++) {
            finite = finite && isfinite((float)x[i]);
            peak = fabs(x[i]) > fabs((double)peak) ? (float)x[i] : peak;
        }
        gw_u16 scale = gw_cells_scale(peak, finite, c->bits);
        memcpy(scales + 2 * gw_cells_scale_at(c->e, c->is_k, c->pos, b), &scale, sizeof scale);
        for (int i = b; i < b + 32; i++) {
            int code = gw_cells_code((float)x[i], gw_f16_to_f32(scale), c->bits), shift = i % 2 * 4;
            unsigned char *at = c->page + gw_cells_code_at(c->e, c->is_k, c->pos, i);
            *at = (unsigned char)((*at & 0xf0 >> shift) | (code & 15) << shift);
            if (c->bits == 5) {
                at = high + gw_cells_bit_at(c->e, c->is_k, c->pos, i);
                *at = (unsigned char)((*at & ~(1 << i % 8)) | code >> 4 << i % 8);
            }
        }
    }
}

static double get_packed(const ref_cell *c, int i) {
    const unsigned char *high = c->page + gw_cells_high_at(c->e);
    const unsigned char *scales = c->page + gw_cells_scales_at(c->e, c->bits);
    int code = c->page[gw_cells_code_at(c->e, c->is_k, c->pos, i)] >> i % 2 * 4 & 15;
    if (c->bits == 5) {
        code |= (high[gw_cells_bit_at(c->e, c->is_k, c->pos, i)] >> i % 8 & 1) << 4;
    }
    return (double)gw_load_f16(scales + 2 * gw_cells_scale_at(c->e, c->is_k, c->pos, i)) *
           (code - (c->bits == 4 ? 8 : 16));
}

static void cell_set(const ref_cell *c, const double *x, int e) {
    if (c->bits > 0) {
        set_packed(c, x, e);
        return;
    }
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

double ref_cell_get(const ref_cell *c, int i) {
    size_t at = c->at + (size_t)i * c->step;
    if (c->fmt == GW_FMT_F16) {
        return gw_f16_to_f32(((const gw_u16 *)(const void *)c->page)[at]);
    }
    if (c->fmt == GW_FMT_F32) {
        return ((const float *)(const void *)c->page)[at];
    }
    if (c->bits > 0) {
        return get_packed(c, i);
    }
    const unsigned char *scale = c->page + c->scale + (size_t)(i / 32) * c->scale_step;
    return (double)gw_load_f16(scale) * (double)(gw_i8)c->page[at];
}

/* ---- rope + append -------------------------------------------------------------------------- */

void ref_turn(double *head, int dim, gw_rope_style style, const gw_tensor *table, int32_t pos,
              int back) {
    int half = dim / 2;
    if (half == 0) {
        return;
    }
    const float *cosine = ref_floats(table, 2 * (int64_t)pos), *sine = cosine + half;
    for (int i = 0; i < half; i++) {
        int first = style == GW_ROPE_HALVES ? i : 2 * i;
        int second = style == GW_ROPE_HALVES ? i + half : 2 * i + 1;
        double x = head[first], y = head[second], s = back ? -(double)sine[i] : (double)sine[i];
        head[first] = x * (double)cosine[i] - y * s;
        head[second] = y * (double)cosine[i] + x * s;
    }
}

static size_t scratch_rope(const gw_node *node, int rows) {
    (void)rows;
    return (size_t)ref_cols(node->in[0]);
}

/* All heads of q, or of k. */
static void norm_heads(double *x, int heads, const gw_tensor *weight, const gw_rope_args *a) {
    int e = a->head_dim;
    const float *w = weight != NULL ? ref_floats(weight, 0) : NULL;
    if (w == NULL && !a->norm_plain) {
        return;
    }
    if (a->norm_span == GW_SPAN_ROW) {
        ref_norm_row(x, (int64_t)heads * e, a->norm_kind, a->eps, w, NULL);
        return;
    }
    for (int h = 0; h < heads; h++) {
        const float *own = w != NULL && a->norm_span == GW_SPAN_HEADS ? w + h * e : w;
        ref_norm_row(x + h * e, e, a->norm_kind, a->eps, own, NULL);
    }
}

static void turn_heads(double *x, int heads, const gw_node *node, int which, int32_t pos) {
    const gw_rope_args *a = &node->args.rope;
    if (!a->norm_after) {
        norm_heads(x, heads, node->w[which], a);
    }
    for (int h = 0; h < heads; h++) {
        ref_turn(x + h * a->head_dim, a->rope_dim, a->style, node->w[2], pos, 0);
    }
    if (a->norm_after) {
        norm_heads(x, heads, node->w[which], a);
    }
}

static void append(const gw_node *node, int32_t slot, int32_t pos, double *k, double *v) {
    const gw_rope_args *a = &node->args.rope;
    int e = a->head_dim, ev = a->v_dim > 0 ? a->v_dim : e;
    int64_t page = a->kv_heads > 0 ? ref_page_of(node->in[3], slot, pos) : 0;
    for (int g = 0; g < a->kv_heads; g++) {
        ref_cell k_cell = ref_cell_of(node->in[1], 1, page, g, pos);
        if (k_cell.bits > 0) {
            rotate(k + g * e, e, gw_cells_width(e));
        }
        cell_set(&k_cell, k + g * e, e);
        if (node->in[2] == NULL) { /* values are part of the keys */
            continue;
        }
        ref_cell v_cell = ref_cell_of(node->in[2], 0, page, g, pos);
        if (a->norm_v) {
            ref_norm_row(v + g * ev, ev, GW_NORM_RMS, a->eps, NULL, NULL);
        }
        if (v_cell.bits > 0) {
            rotate(v + g * ev, ev, gw_cells_width(ev));
        }
        cell_set(&v_cell, v + g * ev, ev);
    }
}

static void run_rope_kv(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_rope_args *a = &node->args.rope;
    int width = a->heads * a->head_dim;
    double *k = scratch + width, *v = k + a->kv_heads * a->head_dim;
    for (int i = 0; i < rows; i++) {
        int32_t pos = step->pos[i];
        ref_read(scratch, node->in[0], i);
        turn_heads(scratch, a->heads, node, 0, pos - step->less[i]);
        turn_heads(k, a->kv_heads, node, 1, pos - step->less[i]);
        for (int c = 0; c < width && node->w[3] != NULL; c++) {
            scratch[c] *= (double)ref_floats(node->w[3], 0)[pos];
        }
        if (width > 0) {
            ref_write(node->out, i, scratch);
        }
        append(node, step->slot[i], pos, k, v);
    }
}

/* ---- attention ------------------------------------------------------------------------------ */

/* Of what digits round (gw_attn_args.digits) nothing is: the oracle is what they are held to.
 * Scratch: q row, result row, and a score per position that a slot can hold. */
static size_t scratch_attention(const gw_node *node, int rows) {
    (void)rows;
    return (size_t)ref_cols(node->in[0]) + (size_t)ref_cols(node->out) +
           (size_t)node->in[3]->dim[1] * GW_PAGE;
}

static int32_t first_seen(const gw_attn_args *a, int32_t pos) {
    int32_t first = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
    int32_t later = -a->chunk < pos ? -a->chunk : pos;
    int32_t chunk = a->chunk > 0 ? pos - pos % a->chunk : later;
    return chunk > first ? chunk : first;
}

static int32_t last_seen(const gw_attn_args *a, const gw_step *step, int row) {
    int32_t pos = step->pos[row], last = step->last[row];
    if (!a->both) {
        return pos;
    }
    return a->window > 0 && pos + a->window - 1 < last ? pos + a->window - 1 : last;
}

/* What a head adds to the score of a key so far behind its query. */
static double bias_of(const gw_node *node, int h, int32_t behind) {
    int32_t reach = node->args.attn.reach, at = behind < -reach ? -reach : behind;
    at = at > reach ? reach : at;
    return (double)ref_floats(node->w[2], 0)[(int64_t)h * (2 * reach + 1) + reach + at];
}

/* Scores of all that a head sees; the largest, a sink's among them. */
static double score_head(const gw_node *node, const gw_step *step, int row, int h, const double *q,
                         double *score) {
    const gw_attn_args *a = &node->args.attn;
    double cap = (double)a->softcap, top = -INFINITY;
    int32_t pos = step->pos[row];
    for (int32_t p = first_seen(a, pos); p <= last_seen(a, step, row); p++) {
        int64_t page = ref_page_of(node->in[3], step->slot[row], p);
        ref_cell at = ref_cell_of(node->in[1], 1, page, h / (a->heads / a->kv_heads), p);
        double s = 0.0;
        for (int c = 0; c < a->head_dim; c++) {
            s += q[c] * ref_cell_get(&at, c);
        }
        s *= (double)a->scale;
        s = a->softcap != 0.0f ? cap * tanh(s / cap) : s;
        s -= node->w[1] != NULL ? (double)ref_floats(node->w[1], 0)[h] * abs(p - pos) : 0.0;
        s += node->w[2] != NULL ? bias_of(node, h, p - pos) : 0.0;
        score[p] = s;
        top = s > top || isnan(s) ? s : top;
    }
    double sink = node->w[0] != NULL ? (double)ref_floats(node->w[0], 0)[h] : -INFINITY;
    return sink > top ? sink : top;
}

static void attend(const gw_node *node, const gw_step *step, int row, int h, const double *q,
                   double *out, double *score) {
    const gw_attn_args *a = &node->args.attn;
    int ev = a->v_dim > 0 ? a->v_dim : a->head_dim, within = node->in[2] == NULL;
    int first = within ? a->v_first : 0;
    double top = score_head(node, step, row, h, q, score);
    double sum = node->w[0] != NULL ? exp((double)ref_floats(node->w[0], 0)[h] - top) : 0.0;
    for (int c = 0; c < ev; c++) {
        out[c] = 0.0;
    }
    for (int32_t p = first_seen(a, step->pos[row]); p <= last_seen(a, step, row); p++) {
        int64_t page = ref_page_of(node->in[3], step->slot[row], p);
        ref_cell at =
            ref_cell_of(node->in[within ? 1 : 2], within, page, h / (a->heads / a->kv_heads), p);
        double weight = exp(score[p] - top);
        sum += weight;
        for (int c = 0; c < ev; c++) {
            out[c] += weight * ref_cell_get(&at, first + c);
        }
    }
    for (int c = 0; c < ev; c++) {
        out[c] /= sum;
    }
}

static void run_attention(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_attn_args *a = &node->args.attn;
    int ev = a->v_dim > 0 ? a->v_dim : a->head_dim;
    double *q = scratch, *out = q + ref_cols(node->in[0]), *score = out + ref_cols(node->out);
    int within = node->in[2] == NULL, rotated = gw_cache_bits(node->in[1]->fmt) > 0;
    int back = gw_cache_bits(node->in[within ? 1 : 2]->fmt) > 0;
    for (int i = 0; i < rows; i++) {
        ref_read(q, node->in[0], i);
        if (rotated) {
            rotate(q, a->heads * a->head_dim, gw_cells_width(a->head_dim));
        }
        for (int h = 0; h < a->heads; h++) {
            attend(node, step, i, h, q + h * a->head_dim, out + h * ev, score);
        }
        if (back) {
            rotate(out, a->heads * ev, gw_cells_width(within ? a->head_dim : ev));
        }
        ref_write(node->out, i, out);
    }
}

const ref_op ref_rope_kv = {scratch_rope, run_rope_kv},
             ref_attention = {scratch_attention, run_attention};
