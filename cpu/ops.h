/* cpu/ops.h - every op except LINEAR as functions of bytes and rows, one table per level.
 *
 * Scalar functions (ops_scalar.c) follow the definitions of arith.h line by line and are the
 * anchor; the other levels give the same bits. All pure, any thread; float pointers are 4-byte
 * aligned.
 */
#ifndef GW_CPU_OPS_H
#define GW_CPU_OPS_H

#include <stddef.h>

#include "core/tensor/act.h"
#include "core/tensor/formats.h"
#include "cpu/cells.h"
#include "cpu/isa.h"

/* Attention over a paged cache. Row i sees positions [lo, pos[i]], lo = 0 or pos[i] - window + 1 or
 * the first of its chunk; both ways up to seen[i], or pos[i] + window - 1 where that is less.
 * Caches: K [pages, g, e, GW_PAGE], V [pages, g, GW_PAGE, ev], f16, f32 or q8_0 (core/plan/op.h
 * says where its scales are); or of `bits` (cells.h): of k, then q is rotated, of v, then the
 * result is. */
typedef struct gw_cpu_attention {
    const float *q; /* [rows, q_stride], head h at h * e */
    size_t q_stride;
    const void *k, *v;    /* v NULL: the value is columns [v_first, v_first + ev) of the key */
    gw_fmt k_fmt, v_fmt;  /* of the caches; v NULL: both that of k */
    int k_bits, v_bits;   /* of their codes, where k or v is rotated; else 0 */
    const int32_t *pages; /* page table [slots, page_stride] */
    size_t page_stride;
    const int32_t *pos, *slot; /* of every row */
    const int32_t *seen;       /* last position that it sees where it looks both ways; else NULL */
    int kv_heads, group, e;    /* group: query heads of one KV head */
    int ev, v_first;           /* width of a value and of a result  */
    float scale;
    int window, chunk;           /* 0: all; chunk -1: all but the first, which sees itself */
    float softcap;               /* 0: none */
    const float *sinks, *slopes; /* of every query head, or NULL */
    const float *bias;           /* [heads, 2 reach + 1] by distance, or NULL */
    int reach;
    int codes;  /* pages are summed in codes (attend_codes_body.h) */
    int digits; /* pages before a row's own are summed in integers (core/tensor/digits.h) */
    int vnni;   /* for them, the processor has AVX512_VNNI */
} gw_cpu_attention;

/* A piece of that work: rows [row, row + rows) of one slot, query heads [head, head + heads) of KV
 * head g (counted inside the group). out: [rows, out_stride], head i of the piece at i * ev. */
typedef struct gw_cpu_attention_part {
    int row, rows, g, head, heads;
    float *out;
    size_t out_stride;
} gw_cpu_attention_part;

typedef struct gw_cpu_act {
    gw_act_kind kind;
    float limit, alpha, p, q; /* p, q: of XIELU and CLAMP */
} gw_cpu_act;

/* CONV: taps rows of `width` columns; weights [taps, width]. */
typedef struct gw_cpu_conv {
    int taps;
    size_t width;
} gw_cpu_conv;

/* One row of SCAN of one head: memory [keys, width]. q and k are brought to length (DELTA); d: the
 * decay of key j at j * d_step, by channel (SSM) A [keys, width]; beta: the write strength, or the
 * step (SSM); skip: D (SSM); steps, skips [width]: those by channel. WKV: e and b [keys]. */
typedef struct gw_cpu_scan {
    size_t keys, width, d_step;
    const float *q, *k, *v, *d, *steps, *skips, *e, *b;
    float beta, skip;
} gw_cpu_scan;

typedef struct gw_cpu_ops {
    gw_cpu_level level;
    /* NORM but for its factor: y[d] = x[d] * w[d]. Returns the factor. y may be x. */
    float (*norm)(float *y, const float *x, const float *w, size_t d, float eps);
    /* The norm of a head of q or k: y[e] = (x[e] * rms scale) * w[e]; y may be x. */
    void (*head_norm)(float *y, const float *x, const float *w, size_t e, float eps);
    /* The sum of x[d] as a LayerNorm adds it up: blocks are folded, then lanes. */
    float (*sum)(const float *x, size_t d);
    void (*encode)(gw_act8 *y, const float *x, size_t blocks);
    /* y[n] = silu(gate[n]) * up[n] */
    void (*silu_mul)(float *y, const float *gate, const float *up, size_t n);
    /* y[n] = act(gate[n]) * up[n]; up NULL: without it. y may be gate. */
    void (*act)(float *y, const float *gate, const float *up, size_t n, const gw_cpu_act *a);
    /* Rotate the first r of e values; table: cosines [r/2], then sines [r/2]. y may be x. */
    void (*rope)(float *y, const float *x, const float *table, size_t r, size_t e, int interleaved);
    void (*to_f16)(gw_u16 *y, const float *x, size_t n);
    /* codes [n] and f16 scales [n / 32] of q8_0 */
    void (*to_q8)(gw_i8 *codes, gw_u16 *scales, const float *x, size_t n);
    /* scratch: gw_cpu_attention_scratch bytes, 64-byte aligned. */
    void (*attend)(const gw_cpu_attention *job, const gw_cpu_attention_part *part, void *scratch);
    /* y[n] = sum over taps of w * x + bias[..] (may be NULL), columns [from, from + n) of x [taps];
     * the activation is not in it. */
    void (*conv)(float *y, const float *const *x, const float *w, const float *bias,
                 const gw_cpu_conv *c, size_t from, size_t n);
    /* Columns [0, n) of the memory `from` of the row before become those of `to`, which may be the
     * same; y[n]: what it answers. v, from, to and y begin at the first column, and what the scan
     * by channel has of each. */
    void (*scan_delta)(float *y, float *to, const float *from, const gw_cpu_scan *s, size_t n);
    void (*scan_ssm)(float *y, float *to, const float *from, const gw_cpu_scan *s, size_t n);
    /* t[n] = softplus(x + bias (may be NULL)) within [low, high]: the steps of SSM. */
    void (*scan_steps)(float *t, const float *x, const float *bias, size_t n, float low,
                       float high);
    void (*scan_channels)(float *y, float *to, const float *from, const gw_cpu_scan *s, size_t n);
    void (*scan_wkv)(float *y, float *to, const float *from, const gw_cpu_scan *s, size_t n);
    int attend_multiple; /* head widths in digits, and of listed rows, are multiples of this */
} gw_cpu_ops;

/* NULL when the level is not part of this build. */
const gw_cpu_ops *gw_cpu_ops_of(gw_cpu_level level);

/* Bytes of one page of one head. */
static inline size_t gw_cpu_page_bytes(gw_fmt kv, size_t e) {
    const gw_format *f = gw_format_of(kv);
    return GW_PAGE * e / f->block_elems * f->block_bytes;
}

/* A query as the caches have its keys. */
static inline void gw_cpu_take_query(const gw_cpu_attention *job, float *to, const float *q) {
    memcpy(to, q, (size_t)job->e * sizeof *q);
    if (job->k_bits > 0) {
        gw_cpu_rotate(to, (size_t)job->e, (size_t)gw_cells_width(job->e));
    }
}
/* In place: heads of a result that were summed of rotated values. */
static inline void gw_cpu_give_result(const gw_cpu_attention *job, float *out, size_t heads) {
    if (job->v_bits > 0) {
        gw_cpu_rotate(out, heads * (size_t)job->ev,
                      (size_t)gw_cells_width(job->v == NULL ? job->e : job->ev));
    }
}

/* Queries that a page of such values is multiplied by at once. */
enum { GW_ATTEND_TURNED = 16 };
/* The columns that hold ev values in whole vectors, of any level. */
#define GW_ATTEND_ROOM(ev) (((ev) + 15) / 16 * 16)
/* queries: rows * heads of a part; pages: the most that one part touches; e: the larger width. */
size_t gw_cpu_attention_scratch(size_t queries, size_t pages, size_t e);
/* The same of parts in digits, whatever their pages. */
size_t gw_cpu_digits_scratch(size_t queries, size_t e);
/* The same of parts in codes of so many heads, whatever their rows. */
size_t gw_cpu_codes_scratch(size_t heads, size_t pages, size_t e);
/* First and one past the last position that a row at pos sees. */
static inline int gw_cpu_first_seen(int pos, int window, int chunk) {
    int first = window > 0 && pos >= window ? pos - window + 1 : 0;
    int begin = chunk > 0 ? pos - pos % chunk : -chunk < pos ? -chunk : pos;
    return begin > first ? begin : first;
}
static inline int gw_cpu_last_seen(const gw_cpu_attention *job, int row) {
    int pos = job->pos[row], last = job->seen != NULL ? job->seen[row] : pos;
    return job->window > 0 && pos + job->window - 1 < last ? pos + job->window - 1 : last;
}
/* The bias of a key `behind` positions behind its query. */
static inline float gw_cpu_bias(const gw_cpu_attention *job, size_t head, int behind) {
    int at = behind < -job->reach ? -job->reach : behind > job->reach ? job->reach : behind;
    return job->bias[head * (2 * (size_t)job->reach + 1) + (size_t)(at + job->reach)];
}
/* What a score becomes behind its scale, of a key `behind` positions behind its query. */
static inline float gw_cpu_shape_score(const gw_cpu_attention *job, size_t head, float s,
                                       int behind) {
    s = job->softcap != 0.0f ? gw_softcap(s, job->softcap) : s;
    s = job->slopes != NULL ? fmaf(job->slopes[head], (float)(behind > 0 ? -behind : behind), s)
                            : s;
    return job->bias != NULL ? s + gw_cpu_bias(job, head, behind) : s;
}

extern const gw_cpu_ops gw_cpu_ops_scalar;

#endif
