/* cpu/linear_body.h - the quantized linear kernels of one instruction-set level.
 *
 * Included once per level, after that level's vocabulary (simd_*.h) and with LEVEL defined. One
 * text for both orders: a pass takes one strip (16 rows) and up to GW_TILE activation rows, unpacks
 * every weight block once and adds its term for each of them; decode spreads blocks over 32 lanes,
 * prefill uses one, and formats with integer scales have other terms there
 * (linear_scaled_body.h). Integer sums are exact, so only the float steps of arith.h are in a fixed
 * order.
 */
#include "core/tensor/blocks.h"
#include "cpu/linear_unpack.h"
#include "cpu/linear_shape_body.h"

/* The float steps of a term: s is the exact sum of code * q, scaled where scales are per 16. */
V_FN v_float add_sum(shape f, const v_block *u, const v_acts *x, v_float s, v_float acc) {
    acc = v_fma(v_mul(u->ws, x->dx), s, acc);
    if (f.kind == HALVED_MIN) {
        acc = v_fma(v_mul(u->wm, x->dx), v_pair_dot(u->mins, x), acc);
    }
    return f.kind == AFFINE || f.kind == WIDE ? v_fma(u->wm, x->dxs, acc) : acc;
}

#if !defined(V_ONE_PLACE)
/* acc + the term of one activation block (the shapes of blocks.h). */
V_FN v_float add_term(shape f, const v_block *u, const v_acts *x, v_float acc) {
    v_float s;
    if (f.kind == HALVED || f.kind == HALVED_MIN) {
        s = v_halves(&u->scales, u->c, x, f.pairs, f.offset);
    } else {
        v_int start = f.offset == 0 ? v_words(0) : f.kind == WIDE ? x->start1 : x->start;
        s = v_to_float(f.kind == SIGNED || f.kind == WIDE
                           ? v_dot_signed(start, u->c, x->q, 8)
                           : v_dot_unsigned(start, u->c, x->q, 8, f.pairs));
    }
    return add_sum(f, u, x, s, acc);
}
#endif

/* Activation rows at once, where that hides latency or saves loads. */
#if !defined(V_TOGETHER)
#define V_TOGETHER V_GROUP
#if V_GROUP > 1
/* s [n] += words [from, end) of c times those of activation rows x [n], interleaved. */
V_FN void v_dot_rows(v_int *s, const v_word *c, const int from, const int end, const gw_xblock *x,
                     const int n, const int pairs) {
    (void)pairs;
    for (int i = from; i < end; i++) {
        for (int g = 0; g < n; g++) {
            s[g] = v_dot4(s[g], c[i], x[g].q + 4 * i);
        }
    }
}
#endif
#endif

#if V_TOGETHER > 1
/* The terms of n <= V_TOGETHER activation rows. */
V_FN void add_terms(shape f, const v_block *u, const gw_xblock *x, float *a, const int n) {
    const int halved = f.kind == HALVED || f.kind == HALVED_MIN;
    v_int s[V_TOGETHER], t[V_TOGETHER];
    for (int g = 0; g < n; g++) {
        s[g] = v_words(f.offset == 0 ? 0 : f.kind == WIDE ? x[g].start1 : x[g].u.start);
        t[g] = v_words(f.offset != 0 ? x[g].start1 : 0);
    }
    v_dot_rows(s, u->c, 0, 4, x, n, f.pairs);
    v_dot_rows(halved ? t : s, u->c, 4, 8, x, n, f.pairs);
    for (int g = 0; g < n; g++, a += GW_STRIP_ROWS) {
        v_acts spread;
        v_spread(&spread, x + g);
        v_float sum = halved ? v_scale_halves(&u->scales, s[g], t[g]) : v_to_float(s[g]);
        v_fstore(a, add_sum(f, u, &spread, sum, v_fload(a)));
    }
}
#endif

#if V_GROUP > 1
/* The term of one activation row, read by the multiplying instruction itself; two sums, since one
 * chain of eight products takes longer than all else that a block needs. */
V_FN v_float add_one(shape f, const v_block *u, const gw_xblock *x, v_float acc) {
    const int halved = f.kind == HALVED || f.kind == HALVED_MIN;
    v_int s = v_words(f.offset == 0 ? 0 : f.kind == WIDE ? x->start1 : x->u.start);
    v_int t = v_words(halved ? x->start1 : 0);
    for (int i = 0; i < 4; i++) {
        s = v_dot4(s, u->c[i], x->q + 4 * i);
        t = v_dot4(t, u->c[i + 4], x->q + 4 * i + 16);
    }
    v_acts few;
    v_spread(&few, x);
    v_float sum = halved ? v_scale_halves(&u->scales, s, t) : v_to_float(v_sum(s, t));
    return add_sum(f, u, &few, sum, acc);
}
#define V_SPREAD(x) (void)(x)
#define ADD_ONE add_one
#else
#define V_SPREAD(x)                                                                                \
    v_acts spread;                                                                                 \
    v_spread(&spread, x)
#define ADD_ONE(f, u, x, acc) add_term(f, u, &spread, acc)
#endif

/* a [count][16] += the terms of `count` activation rows. */
V_FN void add_rows(shape f, const v_block *u, const gw_xblock *x, size_t count, float *a) {
#if V_TOGETHER > 1
    for (; count >= V_TOGETHER; count -= V_TOGETHER) {
        add_terms(f, u, x, a, V_TOGETHER);
        x += V_TOGETHER;
        a += V_TOGETHER * GW_STRIP_ROWS;
    }
    if (count & 4) {
        add_terms(f, u, x, a, 4);
        x += 4;
        a += 4 * GW_STRIP_ROWS;
    }
    if (count & 2) {
        add_terms(f, u, x, a, 2);
        x += 2;
        a += 2 * GW_STRIP_ROWS;
    }
    if (count & 1) {
#if V_GROUP > 1
        v_fstore(a, add_one(f, u, x, v_fload(a)));
#else
        add_terms(f, u, x, a, 1);
#endif
    }
#else
    for (size_t i = 0; i < count; i++, a += GW_STRIP_ROWS) {
        v_acts spread;
        v_spread(&spread, x + i);
        v_fstore(a, add_term(f, u, &spread, v_fload(a)));
    }
#endif
}

/* The terms that activations are prepared for: of a block, of GW_ACT_SPAN blocks with one scale of
 * the weights, of as many with integer scales. */
enum { BLOCKS, SPANS, SCALED };

/* The blocks of a span, `count` apart; the first has its scale and, of SPANS, the sum. Of SCALED
 * each has what its sums start from, and sums for minimums stand where linear_scaled_body.h looks
 * for them. */
V_FN void prepare_span(shape f, const int terms, gw_xblock *dst, const gw_act8 *x, size_t count) {
    span s = {.q = {dst->q, dst[count].q, dst[2 * count].q, dst[3 * count].q}};
    take_span(&s, x);
    dst->dx = s.dx;
    if (terms == SPANS) {
        dst->u.dxs = dxs_of_span(&s);
        return;
    }
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        gw_xblock *d = dst + (size_t)b * count;
        if (f.kind == AFFINE) { /* of two blocks in the first one */
            dst[(size_t)(b - b % 2) * count].sum[b % 2] = (gw_i16)sum_of_block(&s, b);
        } else {
            int halves = f.kind == HALVED || f.kind == HALVED_MIN;
            d->u.start = -f.offset * (halves ? s.sum[b][0] : sum_of_block(&s, b));
            d->start1 = -f.offset * s.sum[b][1];
            d->sum[0] = (gw_i16)s.sum[b][0];
            d->sum[1] = (gw_i16)s.sum[b][1];
        }
    }
}

/* Activation rows [from, from + count) as blocks [k / 32][count]. */
V_FN void prepare(shape f, const int terms, gw_xblock *dst, const gw_cpu_linear *job, size_t from,
                  size_t count) {
    const size_t blocks = job->k / GW_ACT_BLOCK;
    for (size_t i = 0; i < count; i++) {
        const gw_act8 *x =
            (const gw_act8 *)(const void *)((const char *)job->x + (from + i) * job->x_stride);
        for (size_t b = 0; b < blocks; b += terms == BLOCKS ? 1 : GW_ACT_SPAN) {
            if (terms != BLOCKS) {
                prepare_span(f, terms, dst + b * count + i, x + b, count);
                continue;
            }
            gw_xblock *d = dst + b * count + i;
            gw_i32 sum = x[b].sum[0] + x[b].sum[1];
            d->dx = x[b].scale;
            d->start1 = 0;
            if (f.kind == AFFINE || f.kind == WIDE) {
                d->u.dxs = x[b].scale * (float)sum;
                d->start1 = -f.offset * sum; /* WIDE */
            } else if (f.kind == HALVED || f.kind == HALVED_MIN) {
                d->u.start = -f.offset * x[b].sum[0];
                d->start1 = -f.offset * x[b].sum[1];
            } else {
                d->u.start = -f.offset * sum;
            }
            memcpy(d->sum, x[b].sum, sizeof d->sum);
            memcpy(d->q, x[b].q, sizeof d->q);
        }
    }
}

/* Rows [from, end) in tiles of GW_TILE; only the last tile of all rows may be shorter. */
V_FN void prepare_tiles(shape f, const int terms, gw_xblock *dst, const gw_cpu_linear *job,
                        size_t from, size_t end) {
    for (size_t t = from; t < end; t += GW_TILE) {
        prepare(f, terms, dst + (t - from) * (job->k / GW_ACT_BLOCK), job, t,
                end - t < GW_TILE ? end - t : GW_TILE);
    }
}

/* Sum of the 32 lanes at p, p + step, ... in the order of gw_join_lanes. Of terms of GW_ACT_SPAN
 * blocks only the lanes that have some lie there; each first takes the +0 of its neighbours. */
V_FN v_float lane_at(const float *p, size_t step) {
    (void)step;
    return v_fload(p);
}
V_FN v_float lane_of_span(const float *p, size_t step) { return v_add(lane_at(p, step), v_zero()); }
#define JOIN(name, below, h)                                                                       \
    V_FN v_float name(const float *p, size_t step) {                                               \
        return v_add(below(p, step), below(p + (h)*step, step));                                   \
    }
JOIN(join2, lane_at, 1)
JOIN(join4, join2, 2)
JOIN(join8, join4, 4)
JOIN(join16, join8, 8)
JOIN(join_lanes, join16, 16)
JOIN(join_spans2, lane_of_span, 1)
JOIN(join_spans4, join_spans2, 2)
JOIN(join_spans, join_spans4, 4)
#undef JOIN

/* ---- one strip ------------------------------------------------------------------------------- */

#if defined(__clang__)
#define V_UNROLL _Pragma("unroll")
#define V_UNROLL_ALL _Pragma("clang loop unroll(full)")
#define V_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define V_UNROLL _Pragma("GCC unroll 8")
#define V_UNROLL_ALL _Pragma("GCC unroll 64")
#define V_ROLLED _Pragma("GCC unroll 1")
#endif

/* Decode asks for its weights early. From one place: 6 KB, since a core that reads 38 GB/s passes
 * 4 KB in 108 ns, less than a busy memory takes to answer; asking from many places in unrolled code
 * was slower on Zen 5, because prefetchers learn the steps of each instruction, hence one small
 * loop per group. From several: linear_one_body.h. Prefetches never fault. */

enum { AHEAD_ONE = 6144 };

typedef struct v_lanes {
    v_float of[2][GW_STRIP_ROWS / V_ROWS]; /* two neighbours */
} v_lanes;

/* What a thread reads: what lies from `stop` on comes from `jump` bytes further. */
typedef struct stream {
    uintptr_t ahead, stop, jump; /* ahead 0: not asked for */
} stream;

/* All lines of a group that is that far ahead. */
V_FN void fetch_group(const unsigned char *group, size_t bytes, stream s) {
    uintptr_t at = (uintptr_t)group + s.ahead;
    at += at >= s.stop ? s.jump : 0;
    V_ROLLED
    for (size_t i = 0; i < bytes; i += 64) {
        v_prefetch((const void *)(at + i));
    }
}

/* Lines at offsets, in line; with `both` also those `further` on, into the second-level cache. */
V_FN void fetch_woven(uintptr_t at, size_t further, const size_t *offset, size_t lines,
                      const int both) {
    V_UNROLL_ALL
    for (size_t i = 0; i < lines; i++) {
        const uintptr_t line = at + offset[i];
        v_prefetch((const void *)line);
        if (both) {
            __builtin_prefetch((const void *)(line + further), 0, 2);
        }
    }
}

/* Several rows: acc [lanes][count][16] += blocks [first, end) of one strip times those of
 * x [blocks][count]; term t goes to lane t & last. */
typedef void pass_fn(const unsigned char *strip, size_t first, size_t end, const gw_xblock *x,
                     size_t count, float *acc, size_t last, stream from);

/* Sizes of a format's strips of `blocks` blocks. Of the contract's lanes only LANES have terms, of
 * two neighbouring blocks PAIR. */
#define SIZES(name)                                                                                \
    enum {                                                                                         \
        SUBS = GW_STRIP_SUBS_##name,                                                               \
        GROUP = GW_STRIP_GROUP_##name,                                                             \
        HEAD = GW_STRIP_HEAD_##name,                                                               \
        SPAN = GW_STRIP_SPAN_##name,                                                               \
        LANES = GW_LANES / SPAN,                                                                   \
        PAIR = SPAN > 1 ? 1 : 2                                                                    \
    }

#include "cpu/linear_span_body.h"

/* Several activation rows: a weight block is unpacked once for all of them. */
#define PASS_SOME(name)                                                                            \
    static void pass_##name(const unsigned char *strip, size_t first, size_t end,                  \
                            const gw_xblock *x, size_t count, float *restrict acc, size_t last,    \
                            stream from) {                                                         \
        SIZES(name);                                                                               \
        const shape f = SHAPE(name);                                                               \
        x += first * count;                                                                        \
        for (size_t b = first; b < end; b += SPAN, x += SPAN * count) {                            \
            const int sub = (int)(b % SUBS);                                                       \
            const unsigned char *group = strip + HEAD + b / SUBS * GROUP;                          \
            float *a = acc + (b / SPAN & last) * count * GW_STRIP_ROWS;                            \
            if (from.ahead != 0 && sub == 0) {                                                     \
                fetch_group(group, GROUP, from);                                                   \
            }                                                                                      \
            if (SPAN > 1) {                                                                        \
                add_spans(group, sub, x, count, a);                                                \
                continue;                                                                          \
            }                                                                                      \
            for (int h = 0; h < GW_STRIP_ROWS; h += V_ROWS) {                                      \
                v_block u;                                                                         \
                unpack_##name(&u, group, strip, sub, h);                                           \
                add_rows(f, &u, x, count, a + h);                                                  \
            }                                                                                      \
        }                                                                                          \
    }

#define PASSES(name, NAME, weights, bytes, head) PASS_SOME(name)
GW_STRIP_FORMATS(PASSES)

#include "cpu/linear_scaled_body.h"
#include "cpu/linear_two_body.h"
#include "cpu/linear_one_body.h"
#include "cpu/linear_pair_body.h"

#if V_GROUP > 1
#define PAIR_OF(name) (GW_STRIP_SPAN_##name > 1 ? NULL : pair_##name)
#else
typedef void pair_fn(void);
#define PAIR_OF(name) NULL
#endif

/* ---- a range of rows ------------------------------------------------------------------------- */

typedef struct form {
    size_t bytes;  /* of a strip */
    pass_fn *pass; /* several activation rows */
    one_fn *one;
    places_fn *places; /* or NULL */
    size_t lanes;      /* that have terms */
    int in_order;      /* one_F reads a strip from its first byte to its last */
} form;

/* y of strip i from its lanes, acc [lanes][n][16]; joined: lane 0 has the sum of all. */
static void finish_strip(const gw_cpu_linear *job, size_t i, const float *acc, size_t lanes,
                         int joined) {
    const size_t n = (size_t)job->n, step = n * GW_STRIP_ROWS;
    for (size_t row = 0; row < n; row++) {
        for (size_t h = 0; h < GW_STRIP_ROWS; h += V_ROWS) {
            const size_t r = i * GW_STRIP_ROWS + h;
            if (r < job->m) {
                const float *sums = acc + row * GW_STRIP_ROWS + h;
                finish(job, row, r,
                       joined              ? v_fload(sums)
                       : lanes == GW_LANES ? join_lanes(sums, step)
                                           : join_spans(sums, step));
            }
        }
    }
}

/* Strips [i, end) from one place. */
static void decode_strips(const gw_cpu_linear *job, size_t i, size_t end, float *acc,
                          const gw_xblock *x, form f) {
    const size_t n = (size_t)job->n, blocks = job->k / GW_ACT_BLOCK;
    const uintptr_t stop = (uintptr_t)job->w + end * f.bytes;
    const stream from = {job->streams == GW_UNASKED ? 0 : AHEAD_ONE, stop,
                         job->next != NULL ? (uintptr_t)job->next - stop : 0};
    for (; i < end; i++) {
        const unsigned char *strip = (const unsigned char *)job->w + i * f.bytes;
        memset(acc, 0, f.lanes * n * GW_STRIP_ROWS * sizeof *acc);
        if (n == 1) {
            f.one(strip, blocks, x, acc, from);
        } else {
            f.pass(strip, 0, blocks, x, n, acc, f.lanes - 1, from);
        }
        finish_strip(job, i, acc, f.lanes, 0);
    }
}

/* Strips [i, end) from several places: of as many neighbours as have about so many segments and
 * the scratch has lanes for, or a part of the segments of one strip after the other. */
static void decode_places(const gw_cpu_linear *job, size_t i, size_t end, float *acc,
                          const gw_xblock *x, form f, size_t places) {
    const size_t rows = (size_t)job->n, room = GW_TILE / rows;
    const size_t blocks = job->k / GW_ACT_BLOCK, segments = (blocks + GW_LANES - 1) / GW_LANES;
    const size_t fit = segments < places ? places / segments : 1, most = fit < room ? fit : room;
    const size_t parts = (segments + places - 1) / places, part = (segments + parts - 1) / parts;
    const int joined = joins_lanes(rows, blocks);
    weave woven[WEAVES];
    for (int w = 0; w < WEAVES; w++) {
        woven[w].each = 0;
    }
    for (size_t n; i < end; i += n) {
        const unsigned char *strip = (const unsigned char *)job->w + i * f.bytes;
        n = end - i < most ? end - i : most;
        const unsigned char *then = i + n < end ? strip + n * f.bytes : job->next;
        f.places(strip, n, f.bytes, blocks, part, x, rows, acc, then != NULL ? then : strip, woven);
        for (size_t s = 0; s < n; s++) {
            finish_strip(job, i + s, acc + s * f.lanes * rows * GW_STRIP_ROWS, f.lanes, joined);
        }
    }
}

static void decode_rows(const gw_cpu_linear *job, size_t first, size_t end, float *acc,
                        const gw_xblock *x, form f) {
    const size_t i = first / GW_STRIP_ROWS, to = (end + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS;
    const int unasked = job->streams == GW_UNASKED && job->n == 1 && f.in_order;
    const int places = job->streams == GW_UNASKED ? GW_PLACES : job->streams;
    if (places > 1 && !unasked && f.places != NULL) {
        decode_places(job, i, to, acc, x, f, places < GW_TILE ? (size_t)places : GW_TILE);
    } else {
        decode_strips(job, i, to, acc, x, f);
    }
}

/* Activation rows [from, from + n), n <= the chunk, for all strips of the range. pair: or NULL. */
static void prefill_chunk(const gw_cpu_linear *job, size_t first, size_t end, size_t from, size_t n,
                          float *acc, const gw_xblock *x, size_t strip_bytes, pass_fn *pass,
                          pair_fn *pair) {
    const size_t blocks = job->k / GW_ACT_BLOCK;
#if V_GROUP > 1
    if (pair != NULL) {
        first = prefill_pairs(job, first, end, from, n, acc, x, strip_bytes, pair);
    }
#else
    (void)pair;
#endif
    for (size_t r = first; r < end; r += GW_STRIP_ROWS) {
        const unsigned char *strip =
            (const unsigned char *)job->w + r / GW_STRIP_ROWS * strip_bytes;
        for (size_t t = 0; t < n; t += GW_TILE) {
            const size_t count = n - t < GW_TILE ? n - t : GW_TILE;
            memset(acc, 0, count * GW_STRIP_ROWS * sizeof *acc);
            pass(strip, 0, blocks, x + t * blocks, count, acc, 0, (stream){0});
            for (size_t i = 0; i < count; i++) {
                for (size_t h = 0; h < GW_STRIP_ROWS && r + h < job->m; h += V_ROWS) {
                    finish(job, from + t + i, r + h, v_fload(acc + i * GW_STRIP_ROWS + h));
                }
            }
        }
    }
}

#define DECODE_TERMS(name) (GW_STRIP_SPAN_##name > 1 ? SPANS : BLOCKS)
#define PREFILL_TERMS(name) (GW_STRIP_SCALED_##name ? SCALED : DECODE_TERMS(name))
#define JOIN_NAMES_(a, b, c) gw_linear_##a##_##b##_##c
#define JOIN_NAMES(a, b, c) JOIN_NAMES_(a, b, c)

#define KERNELS(name, NAME, weights, bytes, head)                                                  \
    void JOIN_NAMES(name, LEVEL, decode)(const gw_cpu_linear *job, size_t first, size_t end,       \
                                         void *scratch) {                                          \
        const shape f = SHAPE(name);                                                               \
        float *acc = scratch;                                                                      \
        const gw_xblock *x = job->prepared;                                                        \
        if (x == NULL) {                                                                           \
            gw_xblock *own = (gw_xblock *)(acc + GW_LANES * GW_TILE * GW_STRIP_ROWS);              \
            prepare(f, DECODE_TERMS(name), own, job, 0, (size_t)job->n);                           \
            x = own;                                                                               \
        }                                                                                          \
        decode_rows(job, first, end, acc, x,                                                       \
                    (form){gw_strip_bytes(GW_FMT_##NAME, job->k), pass_##name, one_##name,         \
                           places_##name, GW_LANES / GW_STRIP_SPAN_##name,                         \
                           in_order(GW_FMT_##NAME)});                                              \
    }                                                                                              \
    void JOIN_NAMES(name, LEVEL, prefill)(const gw_cpu_linear *job, size_t first, size_t end,      \
                                          void *scratch) {                                         \
        const shape f = SHAPE(name);                                                               \
        const size_t n = (size_t)job->n, chunk = gw_linear_chunk(job->k);                          \
        const size_t blocks = job->k / GW_ACT_BLOCK;                                               \
        float *acc = scratch;                                                                      \
        gw_xblock *own = (gw_xblock *)(acc + GW_LANES * GW_TILE * GW_STRIP_ROWS);                  \
        for (size_t from = 0; from < n; from += chunk) {                                           \
            const size_t rows = n - from < chunk ? n - from : chunk;                               \
            const gw_xblock *x = own;                                                              \
            if (job->prepared != NULL) {                                                           \
                x = (const gw_xblock *)job->prepared + from * blocks;                              \
            } else {                                                                               \
                prepare_tiles(f, PREFILL_TERMS(name), own, job, from, from + rows);                \
            }                                                                                      \
            prefill_chunk(job, first, end, from, rows, acc, x,                                     \
                          gw_strip_bytes(GW_FMT_##NAME, job->k), prompt_##name, PAIR_OF(name));    \
        }                                                                                          \
    }                                                                                              \
    void JOIN_NAMES(name, LEVEL, decode_prepare)(const gw_cpu_linear *job, size_t first,           \
                                                 size_t end, void *dst) {                          \
        const shape f = SHAPE(name);                                                               \
        prepare_tiles(f, DECODE_TERMS(name), (gw_xblock *)dst + first * (job->k / GW_ACT_BLOCK),   \
                      job, first, end);                                                            \
    }                                                                                              \
    void JOIN_NAMES(name, LEVEL, prefill_prepare)(const gw_cpu_linear *job, size_t first,          \
                                                  size_t end, void *dst) {                         \
        const shape f = SHAPE(name);                                                               \
        if (!GW_STRIP_SCALED_##name) {                                                             \
            JOIN_NAMES(name, LEVEL, decode_prepare)(job, first, end, dst);                         \
            return;                                                                                \
        }                                                                                          \
        prepare_tiles(f, PREFILL_TERMS(name), (gw_xblock *)dst + first * (job->k / GW_ACT_BLOCK),  \
                      job, first, end);                                                            \
    }
GW_STRIP_FORMATS(KERNELS)
