/* cpu/linear_body.h - the quantized linear kernels of one instruction-set level.
 *
 * Included once per level, after that level's vocabulary (simd_*.h) and with LEVEL defined. One
 * text for both orders: a pass takes one strip (16 rows) and up to GW_TILE activation rows, unpacks
 * every weight block once and adds its term for each of them; decode spreads blocks over 32 lanes,
 * prefill uses one. Integer sums are exact, so only the float steps of arith.h are in a fixed
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
    return f.kind == AFFINE ? v_fma(u->wm, x->dxs, acc) : acc;
}

/* acc + the term of one activation block (the shapes of blocks.h). */
V_FN v_float add_term(shape f, const v_block *u, const v_acts *x, v_float acc) {
    v_float s;
    if (f.kind == HALVED || f.kind == HALVED_MIN) {
        s = v_halves(&u->scales, u->c, x, f.pairs, f.offset);
    } else {
        v_int start = f.offset != 0 ? x->start : v_words(0);
        s = v_to_float(f.kind == SIGNED ? v_dot_signed(start, u->c, x->q, 8)
                                        : v_dot_unsigned(start, u->c, x->q, 8, f.pairs));
    }
    return add_sum(f, u, x, s, acc);
}

#if V_GROUP > 1
/* The terms of V_GROUP activation rows, their dot products interleaved to hide latency. */
V_FN void add_terms(shape f, const v_block *u, const gw_xblock *x, float *a) {
    const int halved = f.kind == HALVED || f.kind == HALVED_MIN;
    v_int s[V_GROUP], t[V_GROUP];
    for (int g = 0; g < V_GROUP; g++) {
        s[g] = v_words(f.offset != 0 ? x[g].u.start : 0);
        t[g] = v_words(f.offset != 0 ? x[g].start1 : 0);
    }
    for (int i = 0; i < 4; i++) {
        for (int g = 0; g < V_GROUP; g++) {
            s[g] = v_dot4(s[g], u->c[i], x[g].q + 4 * i);
        }
    }
    for (int i = 4; i < 8; i++) {
        for (int g = 0; g < V_GROUP; g++) {
            v_int *sum = halved ? &t[g] : &s[g];
            *sum = v_dot4(*sum, u->c[i], x[g].q + 4 * i);
        }
    }
    for (int g = 0; g < V_GROUP; g++, a += GW_STRIP_ROWS) {
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
    v_int s = v_words(f.offset != 0 ? x->u.start : 0), t = v_words(halved ? x->start1 : 0);
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

/* Activation rows [from, from + count) as blocks [k / 32][count]. */
V_FN void prepare(shape f, gw_xblock *dst, const gw_cpu_linear *job, size_t from, size_t count) {
    const size_t blocks = job->k / GW_ACT_BLOCK;
    for (size_t i = 0; i < count; i++) {
        const gw_act8 *x =
            (const gw_act8 *)(const void *)((const char *)job->x + (from + i) * job->x_stride);
        for (size_t b = 0; b < blocks; b++) {
            gw_xblock *d = dst + b * count + i;
            gw_i32 sum = x[b].sum[0] + x[b].sum[1];
            d->dx = x[b].scale;
            d->start1 = 0;
            if (f.kind == AFFINE) {
                d->u.dxs = x[b].scale * (float)sum;
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
V_FN void prepare_tiles(shape f, gw_xblock *dst, const gw_cpu_linear *job, size_t from,
                        size_t end) {
    for (size_t t = from; t < end; t += GW_TILE) {
        prepare(f, dst + (t - from) * (job->k / GW_ACT_BLOCK), job, t,
                end - t < GW_TILE ? end - t : GW_TILE);
    }
}

/* Sum of the 32 lanes at p, p + step, ... in the order of gw_join_lanes. */
V_FN v_float lane_at(const float *p, size_t step) {
    (void)step;
    return v_fload(p);
}
#define JOIN(name, below, h)                                                                       \
    V_FN v_float name(const float *p, size_t step) {                                               \
        return v_add(below(p, step), below(p + (h)*step, step));                                   \
    }
JOIN(join32, lane_at, 16)
JOIN(join16, join32, 8)
JOIN(join8, join16, 4)
JOIN(join4, join8, 2)
JOIN(join_lanes, join4, 1)
#undef JOIN

/* ---- one strip --------------------------------------------------------------------------------
 */

#if defined(__clang__)
#define V_UNROLL _Pragma("unroll")
#define V_UNROLL_ALL _Pragma("clang loop unroll(full)")
#define V_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define V_UNROLL _Pragma("GCC unroll 8")
#define V_UNROLL_ALL _Pragma("GCC unroll 64")
#define V_ROLLED _Pragma("GCC unroll 1")
#endif

/* Decode asks for its weights early. One stream: 6 KB, since a core that reads 38 GB/s passes 4 KB
 * in 108 ns, less than a busy memory takes to answer; asking from many places in unrolled code was
 * slower on Zen 5, because prefetchers learn the steps of each instruction, hence one small loop
 * per group. Several (why, and how far of one row: linear_one_body.h): 3 KB in each, in small
 * portions, and of several rows TURN blocks of each in turn. Prefetches never fault. */

enum { AHEAD_ONE = 6144, AHEAD_SOME = 3072, TURN = 2 };

typedef struct v_lanes {
    v_float of[2][GW_STRIP_ROWS / V_ROWS]; /* two neighbours */
} v_lanes;

/* What a thread reads: from `stop` on it goes on `jump` bytes further. One of several streams is
 * asked for in `even` steps: what is asked for at once by one keeps the others waiting. */
typedef struct stream {
    uintptr_t ahead, stop, jump;
    int even;
} stream;

V_FN uintptr_t early(const unsigned char *group, const stream *s) {
    uintptr_t at = (uintptr_t)group + s->ahead;
    return at + (at >= s->stop ? s->jump : 0);
}

/* All lines of a group (of several rows: when its first block is read), or the share of its block
 * `sub` of `subs`. */
V_FN void fetch_group(const unsigned char *group, size_t bytes, size_t sub, size_t subs, stream s) {
    const size_t lines = (bytes + 63) / 64;
    if (s.even || sub == 0) {
        const size_t first = s.even ? lines * sub / subs : 0;
        const size_t end = s.even ? lines * (sub + 1) / subs : lines;
        const uintptr_t at = early(group, &s);
        V_ROLLED
        for (size_t i = first * 64; i < end * 64; i += 64) {
            v_prefetch((const void *)(at + i));
        }
    }
}

/* Lines at offsets, in line. */
V_FN void fetch_woven(uintptr_t at, const size_t *offset, size_t lines) {
    V_UNROLL_ALL
    for (size_t i = 0; i < lines; i++) {
        v_prefetch((const void *)(at + offset[i]));
    }
}

/* Several rows: acc [lanes][count][16] += blocks [first, end) of one strip times those of
 * x [blocks][count]; block b goes to lane b & last. */
typedef void pass_fn(const unsigned char *strip, size_t first, size_t end, const gw_xblock *x,
                     size_t count, float *acc, size_t last, stream from);

#if V_GROUP > 1
#define GROUPS(count)                                                                              \
    for (; i + V_GROUP <= (count); i += V_GROUP, a += V_GROUP * GW_STRIP_ROWS) {                   \
        add_terms(f, &u, x + i, a);                                                                \
    }
#else
#define GROUPS(count)
#endif

/* Sizes of a format's strips of `blocks` blocks. */
#define SIZES(name)                                                                                \
    enum { SUBS = GW_STRIP_SUBS_##name, GROUP = GW_STRIP_GROUP_##name, HEAD = GW_STRIP_HEAD_##name }

/* Several activation rows: a weight block is unpacked once for all of them. */
#define PASS_SOME(name)                                                                            \
    static void pass_##name(const unsigned char *strip, size_t first, size_t end,                  \
                            const gw_xblock *x, size_t count, float *restrict acc, size_t last,    \
                            stream from) {                                                         \
        SIZES(name);                                                                               \
        const shape f = SHAPE_##name;                                                              \
        x += first * count;                                                                        \
        for (size_t b = first; b < end; b++, x += count) {                                         \
            const int sub = (int)(b % SUBS);                                                       \
            const unsigned char *group = strip + HEAD + b / SUBS * GROUP;                          \
            fetch_group(group, GROUP, (size_t)sub, SUBS, from);                                    \
            for (int h = 0; h < GW_STRIP_ROWS; h += V_ROWS) {                                      \
                v_block u;                                                                         \
                float *a = acc + (b & last) * count * GW_STRIP_ROWS + h;                           \
                size_t i = 0;                                                                      \
                unpack_##name(&u, group, strip, sub, h);                                           \
                GROUPS(count)                                                                      \
                for (; i < count; i++, a += GW_STRIP_ROWS) {                                       \
                    v_acts spread;                                                                 \
                    v_spread(&spread, x + i);                                                      \
                    v_fstore(a, add_term(f, &u, &spread, v_fload(a)));                             \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

#define PASSES(name, NAME, weights, bytes, head) PASS_SOME(name)
GW_STRIP_FORMATS(PASSES)

#include "cpu/linear_two_body.h"
#include "cpu/linear_one_body.h"

/* ---- a range of rows ----------------------------------------------------------------------------
 */

typedef struct form {
    size_t bytes;  /* of a strip */
    pass_fn *pass; /* several activation rows */
    one_fn *one;
    places_fn *places;
} form;

/* Strips first, first + each, ..: one of every stream, TURN blocks of each in turn. */
static void decode_strips(const gw_cpu_linear *job, size_t first, size_t each, size_t streams,
                          float *acc, const gw_xblock *x, form f, const stream *from) {
    const size_t n = (size_t)job->n, rows = n * GW_STRIP_ROWS, room = GW_LANES * rows;
    const size_t blocks = job->k / GW_ACT_BLOCK, turn = streams > 1 ? TURN : blocks;
    const unsigned char *strip = (const unsigned char *)job->w + first * f.bytes;
    memset(acc, 0, streams * room * sizeof *acc);
    if (n == 1) {
        f.one(strip, blocks, x, acc, *from);
    }
    for (size_t b = 0; n > 1 && b < blocks; b += turn) {
        size_t end = blocks - b < turn ? blocks : b + turn;
        for (size_t s = 0; s < streams; s++) {
            f.pass(strip + s * each * f.bytes, b, end, x, n, acc + s * room, GW_LANES - 1, from[s]);
        }
    }
    for (size_t s = 0; s < streams; s++, first += each, acc += room) {
        for (size_t i = 0; i < n; i++) {
            for (size_t h = 0; h < GW_STRIP_ROWS; h += V_ROWS) {
                if (first * GW_STRIP_ROWS + h < job->m) {
                    finish(job, i, first * GW_STRIP_ROWS + h,
                           join_lanes(acc + i * GW_STRIP_ROWS + h, rows));
                }
            }
        }
    }
}

/* One row, from several places: as many neighbouring strips as have about so many segments, or a
 * part of the segments of one strip after the other. */
static void decode_places(const gw_cpu_linear *job, size_t first, size_t end, float *acc,
                          const gw_xblock *x, form f, size_t places) {
    const size_t blocks = job->k / GW_ACT_BLOCK, segments = (blocks + GW_LANES - 1) / GW_LANES;
    const size_t most = segments < places ? places / segments : 1;
    const size_t parts = (segments + places - 1) / places, part = (segments + parts - 1) / parts;
    for (size_t i = first / GW_STRIP_ROWS, n; i * GW_STRIP_ROWS < end; i += n) {
        const size_t left = (end + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS - i;
        const unsigned char *strip = (const unsigned char *)job->w + i * f.bytes;
        n = left < most ? left : most;
        const unsigned char *then = n < left ? strip + n * f.bytes : job->next;
        f.places(strip, n, f.bytes, blocks, part, x, acc, then != NULL ? then : strip);
        for (size_t s = 0; s < n; s++) {
            for (size_t h = 0; h < GW_STRIP_ROWS; h += V_ROWS) {
                const size_t r = (i + s) * GW_STRIP_ROWS + h;
                if (r < job->m) {
                    finish(job, 0, r,
                           join_lanes(acc + s * GW_LANES * GW_STRIP_ROWS + h, GW_STRIP_ROWS));
                }
            }
        }
    }
}

/* The strips of the range in `streams` parts of neighbours. */
static void decode_rows(const gw_cpu_linear *job, size_t first, size_t end, float *acc,
                        const gw_xblock *x, form f) {
    const size_t begin = first / GW_STRIP_ROWS;
    const size_t strips = (end - first + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS;
    const size_t most = GW_TILE / (size_t)job->n; /* what the scratch has lanes for */
    size_t streams = job->streams > 1 ? (size_t)job->streams : 1;
    streams = streams < most ? streams : most;
    const size_t each = (strips + streams - 1) / streams;
    stream from[GW_TILE];
    if (strips == 0) {
        return;
    }
    if (job->n == 1 && streams > 1) {
        decode_places(job, first, end, acc, x, f, streams);
        return;
    }
    streams = (strips + each - 1) / each;
    for (size_t s = 0; s < streams; s++) {
        stream *to = &from[s];
        to->even = streams > 1;
        to->ahead = to->even ? AHEAD_SOME : AHEAD_ONE;
        to->stop = (uintptr_t)job->w + (begin + (s + 1) * each) * f.bytes;
        to->jump = -to->ahead; /* to what is there */
    }
    from[streams - 1].stop = (uintptr_t)job->w + (begin + strips) * f.bytes;
    from[streams - 1].jump = job->next != NULL ? (uintptr_t)job->next - from[streams - 1].stop : 0;
    for (size_t i = 0; i < each; i++) {
        decode_strips(job, begin + i, each, (strips - i + each - 1) / each, acc, x, f, from);
    }
}

/* Activation rows [from, from + n), n <= the chunk, for all strips of the range. */
static void prefill_chunk(const gw_cpu_linear *job, size_t first, size_t end, size_t from, size_t n,
                          float *acc, const gw_xblock *x, size_t strip_bytes, pass_fn *pass) {
    const size_t blocks = job->k / GW_ACT_BLOCK;
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

#define JOIN_NAMES_(a, b, c) gw_linear_##a##_##b##_##c
#define JOIN_NAMES(a, b, c) JOIN_NAMES_(a, b, c)

#define KERNELS(name, NAME, weights, bytes, head)                                                  \
    void JOIN_NAMES(name, LEVEL, decode)(const gw_cpu_linear *job, size_t first, size_t end,       \
                                         void *scratch) {                                          \
        const shape f = SHAPE_##name;                                                              \
        float *acc = scratch;                                                                      \
        const gw_xblock *x = job->prepared;                                                        \
        if (x == NULL) {                                                                           \
            gw_xblock *own = (gw_xblock *)(acc + GW_LANES * GW_TILE * GW_STRIP_ROWS);              \
            prepare(f, own, job, 0, (size_t)job->n);                                               \
            x = own;                                                                               \
        }                                                                                          \
        decode_rows(job, first, end, acc, x,                                                       \
                    (form){gw_strip_bytes(GW_FMT_##NAME, job->k), pass_##name, one_##name,         \
                           places_##name});                                                        \
    }                                                                                              \
    void JOIN_NAMES(name, LEVEL, prefill)(const gw_cpu_linear *job, size_t first, size_t end,      \
                                          void *scratch) {                                         \
        const shape f = SHAPE_##name;                                                              \
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
                prepare_tiles(f, own, job, from, from + rows);                                     \
            }                                                                                      \
            prefill_chunk(job, first, end, from, rows, acc, x,                                     \
                          gw_strip_bytes(GW_FMT_##NAME, job->k), pass_##name);                     \
        }                                                                                          \
    }                                                                                              \
    void JOIN_NAMES(name, LEVEL, prepare)(const gw_cpu_linear *job, size_t first, size_t end,      \
                                          void *dst) {                                             \
        const shape f = SHAPE_##name;                                                              \
        prepare_tiles(f, (gw_xblock *)dst + first * (job->k / GW_ACT_BLOCK), job, first, end);     \
    }
GW_STRIP_FORMATS(KERNELS)
