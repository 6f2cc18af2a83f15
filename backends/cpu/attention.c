/* backends/cpu/attention.c - ROPE_KV and ATTENTION: nodes to calls of cpu/ops.h, pieces to threads.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/plan/digits.h"

static int is_cache(const gw_tensor *t) {
    return t->fmt == GW_FMT_F16 || t->fmt == GW_FMT_F32 || t->fmt == GW_FMT_Q8_0 ||
           gw_cache_bits(t->fmt) > 0;
}

/* NULL: they are part of the keys. */
static int is_values(const gw_node *node) {
    return node->in[2] == NULL || is_cache(node->in[2]);
}

/* ---- ROPE_KV
 * ------------------------------------------------------------------------------------------- */

enum { ROPE_ROWS = 16 }; /* of a prompt, so that columns of a K page come from one thread */

/* A norm of q or k, in place; weight NULL: as by 1. */
static void norm_span(const gw_cpu_launch *l, float *x, const float *weight, size_t n) {
    const gw_rope_args *a = &l->u.rope.args;
    weight = weight != NULL ? weight : l->u.rope.ones;
    if (a->norm_kind == GW_NORM_LAYER) {
        float lane[GW_LANES] = {0.0f};
        for (size_t i = 0; i < n; i++) {
            lane[i % GW_LANES] = lane[i % GW_LANES] + x[i];
        }
        float mean = gw_fold_lanes(lane) / (float)n;
        for (size_t i = 0; i < n; i++) {
            x[i] = x[i] - mean;
        }
    }
    l->ops->head_norm(x, x, weight, n, a->eps);
}

/* Heads [first, end) of the `heads` at x, normed and rotated, to `to`. weight NULL: no norm unless
 * one is asked for. room: of all of them. */
static void turn_heads(const gw_cpu_launch *l, float *to, const float *x, size_t heads,
                       size_t first, size_t end, const float *weight, const float *table,
                       float *room) {
    const gw_rope_args *a = &l->u.rope.args;
    size_t e = (size_t)a->head_dim, r = (size_t)a->rope_dim;
    int whole = a->norm_span == GW_SPAN_ROW, norms = weight != NULL || a->norm_plain;
    int interleaved = a->style == GW_ROPE_INTERLEAVED;
    size_t from = whole && norms ? 0 : first, stop = whole && norms ? heads : end;
    memcpy(room + from * e, x + from * e, (stop - from) * e * sizeof *x);
    for (int part = 0; part < 2; part++) { /* the norm and the rotation, in their order */
        if (part == a->norm_after) {
            for (size_t h = from; norms && !whole && h < stop; h++) {
                const float *own =
                    weight != NULL && a->norm_span == GW_SPAN_HEADS ? weight + h * e : weight;
                norm_span(l, room + h * e, own, e);
            }
            if (norms && whole) {
                norm_span(l, room, weight, heads * e);
            }
        } else {
            for (size_t h = from; r > 0 && h < stop; h++) {
                l->ops->rope(room + h * e, room + h * e, table, r, e, interleaved);
            }
        }
    }
    memcpy(to, room + first * e, (end - first) * e * sizeof *x);
}

/* Room for one head in the format of the cache. */
static void split_q8(const gw_cpu_launch *l, gw_u16 *room, const float *x, size_t e,
                     const gw_i8 **codes, const gw_u16 **scales) {
    gw_i8 *at = (gw_i8 *)(room + e / 32);
    l->ops->to_q8(at, room, x, e);
    *codes = at;
    *scales = room;
}

/* k or v of a position, which are rotated in place. */
static void put_packed(gw_fmt fmt, char *page, int is_k, size_t j, float *x, size_t e) {
    gw_cpu_rotate(x, e, (size_t)gw_cells_width((int)e));
    gw_cpu_pack(page, gw_cache_bits(fmt), e, is_k, j, x);
}

static void put_key(const gw_cpu_launch *l, char *page, size_t column, float *k, gw_u16 *halves) {
    size_t e = (size_t)l->u.rope.args.head_dim;
    gw_fmt fmt = l->u.rope.k_fmt;
    if (gw_cache_bits(fmt) > 0) {
        put_packed(fmt, page, 1, column, k, e);
        return;
    }
    if (fmt == GW_FMT_Q8_0) {
        const gw_i8 *codes;
        const gw_u16 *scales;
        split_q8(l, halves, k, e, &codes, &scales);
        for (size_t i = 0; i < e; i++) {
            ((gw_i8 *)page)[i * GW_PAGE + column] = codes[i];
        }
        gw_u16 *to = (gw_u16 *)(void *)(page + GW_PAGE * e) + column;
        for (size_t b = 0; b < e / 32; b++) {
            to[b * GW_PAGE] = scales[b];
        }
        return;
    }
    if (fmt == GW_FMT_F16) {
        gw_u16 *to = (gw_u16 *)(void *)page + column;
        l->ops->to_f16(halves, k, e);
        for (size_t i = 0; i < e; i++) {
            to[i * GW_PAGE] = halves[i];
        }
        return;
    }
    float *to = (float *)(void *)page + column;
    for (size_t i = 0; i < e; i++) {
        to[i * GW_PAGE] = k[i];
    }
}

static void put_value(const gw_cpu_launch *l, char *page, size_t row, const float *v, size_t e,
                      float *room) {
    gw_fmt fmt = l->u.rope.v_fmt;
    if (gw_cache_bits(fmt) > 0) {
        memmove(room, v, e * sizeof *v);
        put_packed(fmt, page, 0, row, room, e);
    } else if (fmt == GW_FMT_Q8_0) {
        gw_u16 *scales = (gw_u16 *)(void *)(page + GW_PAGE * e) + row * (e / 32);
        l->ops->to_q8((gw_i8 *)page + row * e, scales, v, e);
    } else if (fmt == GW_FMT_F16) {
        l->ops->to_f16((gw_u16 *)(void *)page + row * e, v, e);
    } else {
        memcpy((float *)(void *)page + row * e, v, e * sizeof(float));
    }
}

static size_t value_width(const gw_rope_args *a) {
    return (size_t)(a->v_dim > 0 ? a->v_dim : a->head_dim);
}

/* One row, one KV head: its queries, its key, its value. Without KV heads: all queries. */
static void rope_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t row, size_t g) {
    const gw_rope_args *a = &l->u.rope.args;
    size_t e = (size_t)a->head_dim, ev = value_width(a), heads = (size_t)a->heads;
    size_t kv_heads = (size_t)a->kv_heads, group = kv_heads > 0 ? heads / kv_heads : heads;
    size_t pos = (size_t)worker->step->pos[row], slot = (size_t)worker->step->slot[row];
    const float *table = l->u.rope.table; /* NULL: no rotation */
    if (table != NULL) {
        table += (pos - (size_t)worker->step->less[row]) * (size_t)a->rope_dim;
    }
    const float *x = (const float *)(const void *)(l->in + row * l->in_stride);
    float *q = (float *)(void *)(l->out + row * l->out_stride) + g * group * e;
    float *room = (float *)(void *)worker->scratch, *key = room + heads * e;

    turn_heads(l, q, x, heads, g * group, (g + 1) * group, l->u.rope.q_weight, table, room);
    for (size_t i = 0; i < group * e && l->u.rope.factor != NULL; i++) {
        q[i] = q[i] * l->u.rope.factor[pos];
    }
    if (kv_heads == 0) {
        return;
    }
    turn_heads(l, key, x + heads * e, kv_heads, g, g + 1, l->u.rope.k_weight, table, room);

    size_t page = (size_t)l->u.rope.pages[slot * l->u.rope.page_stride + pos / GW_PAGE];
    size_t at = page * kv_heads + g;
    const float *value = x + (heads + kv_heads) * e + g * ev;
    put_key(l, l->u.rope.k + at * gw_cpu_page_bytes(l->u.rope.k_fmt, e), pos % GW_PAGE, key,
            (gw_u16 *)(void *)(key + e));
    if (l->u.rope.v == NULL) {
        return;
    }
    if (a->norm_v) {
        l->ops->head_norm(room, value, l->u.rope.ones, ev, a->eps);
        value = room;
    }
    put_value(l, l->u.rope.v + at * gw_cpu_page_bytes(l->u.rope.v_fmt, ev), pos % GW_PAGE, value,
              ev, room);
}

static void run_rope(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t n = (size_t)gw_cpu_live(l, worker->step), kv_heads = (size_t)l->u.rope.args.kv_heads;
    kv_heads = kv_heads > 0 ? kv_heads : 1;
    size_t tile = n > ROPE_ROWS ? ROPE_ROWS : 1, tiles = (n + tile - 1) / tile, first, end;
    while (gw_cpu_take(worker, tiles * kv_heads, 4, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            size_t row = i / kv_heads * tile, stop = row + tile < n ? row + tile : n;
            for (; row < stop; row++) {
                rope_row(l, worker, row, i % kv_heads);
            }
        }
    }
}

int gw_cpu_accepts_rope_kv(const gw_kernel *kernel, const gw_node *node,
                           const struct gw_device *device) {
    const gw_rope_args *a = &node->args.rope;
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32 &&
           (a->kv_heads == 0 ||
            (is_cache(node->in[1]) && is_values(node) && node->in[3] != NULL)) &&
           a->rope_dim % 2 == 0 && a->rope_dim <= a->head_dim;
}

gw_status gw_cpu_record_rope_kv(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    const gw_rope_args *a = &node->args.rope;
    size_t e = (size_t)a->head_dim, ev = value_width(a), most = e > ev ? e : ev;
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_rope;
    l->u.rope.args = *a;
    if (a->kv_heads > 0) {
        l->u.rope.k = gw_cpu_data(node->in[1]);
        l->u.rope.v = node->in[2] != NULL ? gw_cpu_data(node->in[2]) : NULL;
        l->u.rope.k_fmt = node->in[1]->fmt;
        l->u.rope.v_fmt = node->in[2] != NULL ? node->in[2]->fmt : node->in[1]->fmt;
        l->u.rope.pages = (const int32_t *)(const void *)gw_cpu_data(node->in[3]);
        l->u.rope.page_stride = (size_t)node->in[3]->dim[1];
    }
    gw_cpu_need_scratch(segment, ((size_t)a->heads + 2) * most * sizeof(float));
    if (a->norm_plain || a->norm_v) {
        GW_TRY(gw_cpu_ones(segment, node, (size_t)a->heads * most, &l->u.rope.ones));
    }
    GW_TRY(gw_cpu_vector(segment, node->w[0], &l->u.rope.q_weight));
    GW_TRY(gw_cpu_vector(segment, node->w[1], &l->u.rope.k_weight));
    GW_TRY(gw_cpu_vector(segment, node->w[2], &l->u.rope.table));
    return gw_cpu_vector(segment, node->w[3], &l->u.rope.factor);
}

/* ---- ATTENTION
 * ------------------------------------------------------------------------------------------ */

enum {
    QUERIES = 48,           /* of a piece: rows times query heads that share a KV head */
    SCORES_BYTES = 4 << 20, /* of scratch for them; long contexts take fewer at a time */
    /* In digits a piece makes those of all pages for itself, so that it takes many queries, as far
     * as they stay in the second-level cache; and each thread has some pieces. */
    DIGITS_QUERIES = 256,
    DIGITS_BYTES = 768 << 10,
    DIGITS_PIECES = 4
};

/* Scratch of a piece of `queries`. */
static size_t piece_bytes(const gw_cpu_attention *job, size_t queries, size_t pages) {
    size_t e = (size_t)(job->e > job->ev ? job->e : job->ev);
    return job->codes    ? gw_cpu_codes_scratch(queries, pages, e)
           : job->digits ? gw_cpu_digits_scratch(queries, e)
                         : gw_cpu_attention_scratch(queries, pages, e);
}

/* How the work of a step is cut: rows per piece, query heads per piece. */
typedef struct cut {
    size_t rows, heads;   /* per piece */
    size_t tiles, splits; /* pieces along rows and along a group's query heads */
} cut;

static cut cut_work(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t n) {
    const gw_cpu_attention *job = &l->u.attention.job;
    size_t group = (size_t)job->group, team = (size_t)worker->team;
    size_t pages = (size_t)(worker->step->pos_max / GW_PAGE + 1);
    size_t fit = job->digits ? DIGITS_QUERIES : QUERIES;
    while (fit > 1 && piece_bytes(job, fit, pages) > l->u.attention.scratch) {
        fit--;
    }
    cut c = {.rows = fit / group, .heads = group < fit ? group : fit};
    c.rows = c.rows < 1 ? 1 : c.rows;
    /* Rows of a short step go to different threads before they share pages in a tile. */
    size_t even = n / team;
    if (job->digits) {
        even = n * (size_t)job->kv_heads / (DIGITS_PIECES * team);
    }
    even = even < 1 ? 1 : even;
    c.rows = c.rows < even ? c.rows : even;
    c.tiles = (n + c.rows - 1) / c.rows;
    size_t units = c.tiles * (size_t)job->kv_heads;
    if (units < team) {
        size_t parts = (team + units - 1) / units;
        size_t heads = (group + parts - 1) / parts;
        c.heads = heads < c.heads ? heads : c.heads;
    }
    c.splits = (group + c.heads - 1) / c.heads;
    return c;
}

/* Rows [row, end) of one slot. */
static void attend_rows(const gw_cpu_launch *l, gw_cpu_worker *worker, const gw_cpu_attention *job,
                        gw_cpu_attention_part part, int end) {
    size_t ev = (size_t)job->ev, width = (size_t)part.heads * ev;
    size_t column = (size_t)(part.g * job->group + part.head) * ev;
    float *piece = (float *)(void *)worker->scratch;
    void *scratch = worker->scratch + l->u.attention.scratch;
    part.rows = end - part.row;
    if (!l->act8) {
        part.out_stride = l->out_stride / sizeof(float);
        part.out = (float *)(void *)(l->out + (size_t)part.row * l->out_stride) + column;
        l->ops->attend(job, &part, worker->scratch);
        for (int i = 0; i < part.rows; i++) {
            gw_cpu_give_result(job, part.out + (size_t)i * part.out_stride, (size_t)part.heads);
        }
        return;
    }
    part.out = (float *)scratch;
    part.out_stride = width;
    l->ops->attend(job, &part, piece);
    gw_cpu_give_result(job, part.out, (size_t)(part.rows * part.heads));
    for (int i = 0; i < part.rows; i++) {
        gw_act8 *y = (gw_act8 *)(void *)(l->out + (size_t)(part.row + i) * l->out_stride);
        l->ops->encode(y + column / GW_ACT_BLOCK, part.out + (size_t)i * width,
                       width / GW_ACT_BLOCK);
    }
}

static void run_attention(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    gw_cpu_attention job = l->u.attention.job;
    const gw_step *step = worker->step;
    size_t n = (size_t)gw_cpu_live(l, step), kv_heads = (size_t)job.kv_heads, first, end;
    cut c = cut_work(l, worker, n);
    int joins = gw_cpu_joins(l, worker);
    job.pos = step->pos;
    job.slot = step->slot;
    job.seen = l->u.attention.both ? step->last : NULL;
    while (gw_cpu_take(worker, c.tiles * kv_heads * c.splits, 1, &first, &end)) {
        size_t tile = c.tiles - 1 - first / (kv_heads * c.splits); /* the long rows first */
        size_t head = first % c.splits * c.heads;
        size_t row = tile * c.rows, stop = row + c.rows < n ? row + c.rows : n;
        gw_cpu_attention_part part = {.g = (int)(first / c.splits % kv_heads), .head = (int)head};
        part.heads = (int)(head + c.heads < (size_t)job.group ? c.heads : (size_t)job.group - head);
        if (joins) {
            rope_row(l->before, worker, 0, (size_t)part.g);
        }
        while (row < stop) {
            size_t same = row + 1;
            while (same < stop && step->slot[same] == step->slot[row]) {
                same++;
            }
            part.row = (int)row;
            attend_rows(l, worker, &job, part, (int)same);
            row = same;
        }
    }
}

int gw_cpu_joins_attention(const gw_cpu_launch *before, const gw_cpu_launch *l) {
    return l->run == run_attention && before->run == run_rope &&
           l->u.attention.job.k == before->u.rope.k && l->u.attention.job.v == before->u.rope.v;
}

/* Then the thread that attends with a KV head also rotates it and puts it into the cache. */
int gw_cpu_attends_by_heads(const gw_cpu_launch *l, const gw_cpu_worker *worker) {
    return cut_work(l, worker, (size_t)gw_cpu_live(l, worker->step)).splits == 1;
}

/* Blocks of act8 must not straddle heads: then each piece encodes what it computed. */
int gw_cpu_accepts_attention(const gw_kernel *kernel, const gw_node *node,
                             const struct gw_device *device) {
    const gw_attn_args *a = &node->args.attn;
    const gw_cpu_ops *ops = gw_cpu_ops_of(gw_cpu_row_of(kernel)->level);
    int ev = a->v_dim > 0 ? a->v_dim : a->head_dim;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && is_cache(node->in[1]) && is_values(node) &&
           node->in[3]->fmt == GW_FMT_I32 &&
           (!a->digits || (a->head_dim % ops->attend_multiple == 0 &&
                           ev % ops->attend_multiple == 0)) &&
           a->heads % a->kv_heads == 0 &&
           (node->out->fmt == GW_FMT_F32 ||
            (node->out->fmt == GW_FMT_ACT8 && a->heads * ev % GW_ACT_BLOCK == 0));
}

/* Heads narrower than a block, or no multiple of it, are written as f32 first and encoded by a
 * second launch. */
static void run_encode(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end, blocks = l->width / GW_ACT_BLOCK;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 4, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            l->ops->encode((gw_act8 *)(void *)(l->out + i * l->out_stride),
                           (const float *)(const void *)(l->in + i * l->in_stride), blocks);
        }
    }
}

static gw_status straddling(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node, gw_cpu_launch *l) {
    size_t stride = l->width * sizeof(float);
    char *whole = malloc((size_t)segment->rows * stride);
    if (whole == NULL) {
        return gw_fail(GW_E_NOMEM, node->what, "no memory for %d rows", segment->rows);
    }
    segment->copies[segment->n_copies++] = whole;
    gw_cpu_launch *second = gw_cpu_append(segment, kernel, node);
    second->run = run_encode;
    second->in = whole;
    second->in_stride = stride;
    l->out = whole;
    l->out_stride = stride;
    l->act8 = 0;
    return GW_OK;
}

gw_status gw_cpu_record_attention(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    gw_cpu_attention *job = &l->u.attention.job;
    size_t ev = (size_t)(a->v_dim > 0 ? a->v_dim : a->head_dim), e = (size_t)a->head_dim;
    size_t pages = (size_t)node->in[3]->dim[1];
    l->run = run_attention;
    job->q = (const float *)(const void *)l->in;
    job->q_stride = l->in_stride / sizeof(float);
    job->k = gw_cpu_data(node->in[1]);
    job->v = node->in[2] != NULL ? gw_cpu_data(node->in[2]) : NULL;
    job->v_first = a->v_first;
    job->k_fmt = node->in[1]->fmt;
    job->v_fmt = node->in[2] != NULL ? node->in[2]->fmt : job->k_fmt;
    job->k_bits = gw_cache_bits(job->k_fmt);
    job->v_bits = gw_cache_bits(job->v_fmt);
    job->pages = (const int32_t *)(const void *)gw_cpu_data(node->in[3]);
    job->page_stride = pages;
    job->kv_heads = a->kv_heads;
    job->group = a->heads / a->kv_heads;
    job->e = a->head_dim;
    job->ev = (int)ev;
    job->scale = a->scale;
    job->window = a->window;
    job->chunk = a->chunk;
    job->softcap = a->softcap;
    GW_TRY(gw_cpu_vector(segment, node->w[0], &job->sinks));
    GW_TRY(gw_cpu_vector(segment, node->w[1], &job->slopes));
    GW_TRY(gw_cpu_vector(segment, node->w[2], &job->bias));
    job->reach = a->reach;
    job->digits = a->digits;
    job->codes = gw_attn_in_codes(node);
    job->vnni =
        gw_cpu_row_of(kernel)->level == GW_CPU_VNNI || gw_cpu_row_of(kernel)->level == GW_CPU_AMX;
    l->u.attention.both = a->both;

    size_t queries = a->digits ? DIGITS_QUERIES : QUERIES, room = queries;
    size_t most = a->digits ? DIGITS_BYTES : SCORES_BYTES;
    e = e > ev ? e : ev;
    while (queries > 1 && piece_bytes(job, queries, pages) > most) {
        queries--;
    }
    size_t line = GW_CACHE_LINE, need = piece_bytes(job, queries, pages);
    l->u.attention.scratch = (need + line - 1) / line * line;
    gw_cpu_need_scratch(segment, l->u.attention.scratch + room * e * sizeof(float));
    return l->act8 && ev % GW_ACT_BLOCK != 0 ? straddling(segment, kernel, node, l) : GW_OK;
}
