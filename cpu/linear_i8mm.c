/* cpu/linear_i8mm.c - prompts of quantized weights by smmla; decode is that of linear_neon.c.
 *
 * smmla multiplies two rows of 8 codes by two others: 32 products, four sums. Weights are unpacked
 * into a panel in pairs of rows and eights of codes, activations prepared in the same order. Sums
 * of a tile, 4 activation rows by 8 weight rows, stay in smmla's order of 2 by 2 until the last
 * block: scales lie twice in a vector, so no float step needs another order. Tiles of 8 by 8 have
 * more sums than there are registers.
 */
#if defined(GODWIT_I8MM)
#define V_I8MM
#include "cpu/simd_neon.h"

#include "core/tensor/blocks.h"
#include "cpu/linear_shape_body.h"
#include "cpu/linear_unpack.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif

enum {
    PANEL = 16, /* blocks unpacked at a time: groups of 256 weights are whole      */
    FEW = 4,    /* fewer activation rows fill no tile and are faster by dot product */
    X_ROWS = 4, /* of a tile */
    W_ROWS = 8,
    X_PAIRS = X_ROWS / 2,
    W_PAIRS = W_ROWS / 2,
    PARTS = GW_STRIP_ROWS / W_ROWS, /* of a strip */
    STEPS = GW_ACT_BLOCK / 8,
    SUMS = X_ROWS * W_ROWS
};

/* What terms are made of: a block with a scale, with a minimum too; a span with both; a span with
 * integer scales per block, per 16 weights, and both with minimums. */
enum { PLAIN, MINIMUM, SPANNED, SCALED, SCALED_16, SCALED_MIN, SCALED_16_MIN };
#define IS_SPAN(kind) ((kind) >= SPANNED)
#define IS_SCALED(kind) ((kind) >= SCALED)
#define IS_PER_16(kind) ((kind) == SCALED_16 || (kind) == SCALED_16_MIN)
#define HAS_INTEGER_MIN(kind) ((kind) >= SCALED_MIN)

/* Scales of activation rows 2 a and 2 a + 1: each twice. */
typedef struct x_scales {
    float dx[X_PAIRS][4];
    float dxs[X_PAIRS][4]; /* dx * (float)(sum of all q), for formats with a minimum */
} x_scales;

typedef struct x_block { /* of X_ROWS activation rows; those that are not there are zero */
    x_scales scale;
    gw_i8 q[STEPS][X_PAIRS][16];
} x_block;

typedef struct x_span { /* GW_ACT_SPAN blocks, in the room of as many */
    x_scales scale;
    gw_i16 sum[GW_ACT_SPAN][X_PAIRS][8]; /* for integer minimums, each twice: of 16 and 16; or of
                                          * a block and the next one at every other place */
    gw_i8 q[GW_ACT_SPAN][STEPS][X_PAIRS][16];
} x_span;
_Static_assert(sizeof(x_span) <= GW_ACT_SPAN * sizeof(x_block), "a span has room");

typedef struct w_block {
    gw_i8 code[STEPS][W_PAIRS][16]; /* less their offset */
    /* Of rows 2 p and 2 p + 1, and both once more: */
    float ws[W_PAIRS][4], wm[W_PAIRS][4]; /* with integer scales d and -dmin */
    gw_i32 scale[2][W_PAIRS][4];          /* per block the first: put_scales() */
    gw_i16 mins[W_PAIRS][8];              /* in the order of x_span's sums */
} w_block;

typedef struct panel {
    w_block of[PARTS][PANEL];
} panel;

/* ---- unpacking ------------------------------------------------------------------------------- */

/* Vectors of rows 0 1 0 1 and 2 3 2 3. */
V_FN void put_twice(void *to, v_word a) {
    const uint64x2_t pairs = vreinterpretq_u64_u8(a);
    vst1q_u8(to, vreinterpretq_u8_u64(vzip1q_u64(pairs, pairs)));
    vst1q_u8((unsigned char *)to + 16, vreinterpretq_u8_u64(vzip2q_u64(pairs, pairs)));
}
V_FN void put_floats_twice(float (*to)[4], v_float a) { put_twice(to, vreinterpretq_u8_f32(a)); }

/* Minimums of two rows, and of the two others, into one half of their vectors. */
V_FN void put_mins(gw_i16 (*to)[8], int half, int32x4_t mins) {
    const int32x2_t pairs = vreinterpret_s32_s16(vmovn_s32(mins));
    vst1_s16(to[0] + 4 * half, vreinterpret_s16_s32(vdup_lane_s32(pairs, 0)));
    vst1_s16(to[1] + 4 * half, vreinterpret_s16_s32(vdup_lane_s32(pairs, 1)));
}

V_FN void put_codes(gw_i8 (*to)[W_PAIRS][16], const v_word *c, int offset) {
    for (int step = 0; step < STEPS; step++) {
        const int32x4_t first = v_i(vsubq_u8(c[2 * step], v_bytes(offset)));
        const int32x4_t second = v_i(vsubq_u8(c[2 * step + 1], v_bytes(offset)));
        vst1q_s8(to[step][0], vreinterpretq_s8_s32(vzip1q_s32(first, second)));
        vst1q_s8(to[step][1], vreinterpretq_s8_s32(vzip2q_s32(first, second)));
    }
}

/* Sums of a span are never cleared between its blocks: s_0 + .. + s_j is multiplied by the scale of
 * j less the scale of j + 1, which makes the same integer. So that is what the panel has. */
V_FN void put_scales(const int kind, w_block *to, size_t i, size_t p, const v_scales *s) {
    const int last = IS_PER_16(kind);
    if (i % GW_ACT_SPAN != 0) {
        gw_i32(*before)[4] = to[-1].scale[last] + p;
        const int64x2_t firsts = vreinterpretq_s64_s32(s->a);
        const int32x4_t low = vreinterpretq_s32_s64(vzip1q_s64(firsts, firsts));
        const int32x4_t high = vreinterpretq_s32_s64(vzip2q_s64(firsts, firsts));
        vst1q_s32(before[0], vsubq_s32(vld1q_s32(before[0]), low));
        vst1q_s32(before[1], vsubq_s32(vld1q_s32(before[1]), high));
    }
    if (last) {
        put_twice(to->scale[0] + p, v_w(vsubq_s32(s->a, s->b)));
    }
    put_twice(to->scale[last] + p, v_w(last ? s->b : s->a));
}

/* Pairs of rows p and p + 1 of block i of a panel. */
V_FN void put_block(shape f, const int kind, w_block *to, size_t i, size_t p, const v_block *u) {
    put_codes((gw_i8(*)[W_PAIRS][16])(void *)to->code[0][p], u->c, f.offset);
    put_floats_twice(to->ws + p, IS_SCALED(kind) ? u->d : u->ws);
    if (kind == MINIMUM || kind == SPANNED) {
        put_floats_twice(to->wm + p, u->wm);
    }
    if (IS_SCALED(kind)) {
        put_scales(kind, to, i, p, &u->scales);
    }
    if (HAS_INTEGER_MIN(kind)) {
        put_floats_twice(to->wm + p, u->dmin);
    }
    if (kind == SCALED_MIN) {
        put_mins((to - i % 2)->mins + p, (int)(i % 2), v_i(u->min));
    }
    if (kind == SCALED_16_MIN) {
        put_mins(to->mins + p, 0, u->mins.a);
        put_mins(to->mins + p, 1, u->mins.b);
    }
}

#define KIND(name)                                                                                 \
    (GW_STRIP_SCALED_##name               ? f.kind == HALVED_MIN ? (int)SCALED_16_MIN              \
                                            : f.kind == HALVED   ? (int)SCALED_16                  \
                                            : f.kind == AFFINE   ? (int)SCALED_MIN                 \
                                                                 : (int)SCALED                     \
     : GW_STRIP_SPAN_##name > 1           ? (int)SPANNED                                           \
     : f.kind == AFFINE || f.kind == WIDE ? (int)MINIMUM                                           \
                                          : (int)PLAIN)

typedef void fill_fn(panel *p, const unsigned char *strip, size_t first, size_t count);

#define FILL(name, NAME, weights, bytes, head)                                                     \
    static void fill_##name(panel *p, const unsigned char *strip, size_t first, size_t count) {    \
        const shape f = SHAPE(name);                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            const size_t b = first + i, subs = GW_STRIP_SUBS_##name;                               \
            const unsigned char *group = strip + (head) + b / subs * (bytes);                      \
            for (int part = 0; part < PARTS; part++) {                                             \
                UNROLL                                                                             \
                for (int pair = 0; pair < W_PAIRS; pair += V_ROWS / 2) {                           \
                    const int h = part * W_ROWS + 2 * pair;                                        \
                    v_block u;                                                                     \
                    unpack_##name(&u, group, strip, (int)(b % subs), h);                           \
                    put_block(f, KIND(name), &p->of[part][i], i, (size_t)pair, &u);                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
GW_STRIP_FORMATS(FILL)

/* ---- activations ----------------------------------------------------------------------------- */

V_FN void put_row(gw_i8 (*to)[X_PAIRS][16], size_t i, const gw_i8 *q) {
    for (size_t step = 0; step < STEPS; step++) {
        memcpy(to[step][i / 2] + i % 2 * 8, q + 8 * step, 8);
    }
}
V_FN void put_scale(float (*to)[4], size_t i, float a) {
    to[i / 2][i % 2 * 2] = to[i / 2][i % 2 * 2 + 1] = a;
}
V_FN void put_sum(gw_i16 (*to)[8], size_t i, int half, gw_i32 sum) {
    gw_i16 *at = to[i / 2] + 4 * half + i % 2 * 2;
    at[0] = at[1] = (gw_i16)sum;
}

/* Row i of a span. */
V_FN void prepare_span(const int kind, x_span *dst, size_t i, const gw_act8 *x) {
    gw_i8 q[GW_ACT_SPAN][GW_ACT_BLOCK];
    span s = {.q = {q[0], q[1], q[2], q[3]}};
    take_span(&s, x);
    put_scale(dst->scale.dx, i, s.dx);
    if (kind == SPANNED) {
        put_scale(dst->scale.dxs, i, dxs_of_span(&s));
    }
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        put_row(dst->q[b], i, q[b]);
        if (kind == SCALED_16_MIN) {
            put_sum(dst->sum[b], i, 0, s.sum[b][0]);
            put_sum(dst->sum[b], i, 1, s.sum[b][1]);
        } else if (kind == SCALED_MIN) {
            put_sum(dst->sum[b - b % 2], i, b % 2, sum_of_block(&s, b));
        }
    }
}

/* Rows [from, end) of x into groups of X_ROWS, [blocks] each; from is a multiple of X_ROWS. */
V_FN void prepare_groups(const int kind, x_block *dst, const gw_cpu_linear *job, size_t from,
                         size_t end) {
    const size_t blocks = job->k / GW_ACT_BLOCK;
    for (; from < end; from += X_ROWS, dst += blocks) {
        if (end - from < X_ROWS) {
            memset(dst, 0, blocks * sizeof *dst);
        }
        for (size_t i = 0; i < X_ROWS && from + i < end; i++) {
            const gw_act8 *x =
                (const gw_act8 *)(const void *)((const char *)job->x + (from + i) * job->x_stride);
            for (size_t b = 0; b < blocks; b += IS_SPAN(kind) ? GW_ACT_SPAN : 1) {
                if (IS_SPAN(kind)) {
                    prepare_span(kind, (x_span *)(void *)(dst + b), i, x + b);
                    continue;
                }
                const gw_i32 sum = x[b].sum[0] + x[b].sum[1];
                put_row(dst[b].q, i, x[b].q);
                put_scale(dst[b].scale.dx, i, x[b].scale);
                put_scale(dst[b].scale.dxs, i, x[b].scale * (float)sum);
            }
        }
    }
}

/* ---- products and terms ---------------------------------------------------------------------- */

typedef struct tile_sums {
    int32x4_t s[X_PAIRS][W_PAIRS];
} tile_sums;
typedef struct tile_floats {
    float32x4_t s[X_PAIRS][W_PAIRS];
} tile_floats;

V_FN void clear(tile_sums *to) {
    UNROLL
    for (int i = 0; i < X_PAIRS * W_PAIRS; i++) {
        to->s[i / W_PAIRS][i % W_PAIRS] = vdupq_n_s32(0);
    }
}

/* Loads stand before all products of a step, where one instruction does two of them; compilers move
 * each to its first use. */
#define LOADED(x, code)                                                                            \
    __asm__("" : "+w"(x[0]), "+w"(x[1]), "+w"(code[0]), "+w"(code[1]), "+w"(code[2]), "+w"(code[3]))

/* Steps [from, end) of a block. */
V_FN void add_products(tile_sums *to, const gw_i8 (*q)[X_PAIRS][16], const w_block *w,
                       const int from, const int end) {
    UNROLL
    for (int step = from; step < end; step++) {
        int8x16_t x[X_PAIRS], code[W_PAIRS];
        UNROLL
        for (int a = 0; a < X_PAIRS; a++) {
            x[a] = vld1q_s8(q[step][a]);
        }
        UNROLL
        for (int p = 0; p < W_PAIRS; p++) {
            code[p] = vld1q_s8(w->code[step][p]);
        }
        LOADED(x, code);
        UNROLL
        for (int i = 0; i < X_PAIRS * W_PAIRS; i++) {
            int32x4_t *sum = &to->s[i % X_PAIRS][i / X_PAIRS];
            *sum = vmmlaq_s32(*sum, x[i % X_PAIRS], code[i / X_PAIRS]);
        }
    }
}

/* total + sums times what the panel has for this half of the block. */
V_FN void add_scaled(tile_sums *total, const tile_sums *sums, const w_block *w, const int half) {
    UNROLL
    for (int p = 0; p < W_PAIRS; p++) {
        const int32x4_t scale = vld1q_s32(w->scale[half][p]);
        UNROLL
        for (int a = 0; a < X_PAIRS; a++) {
            total->s[a][p] = vmlaq_s32(total->s[a][p], sums->s[a][p], scale);
        }
    }
}

/* The sum of minimums times activations. */
V_FN int32x4_t minimums(const int kind, const w_block *w, const x_span *x, const int a,
                        const int p) {
    int32x4_t m = vdupq_n_s32(0);
    UNROLL
    for (int b = 0; b < GW_ACT_SPAN; b += kind == SCALED_16_MIN ? 1 : 2) {
        const int16x8_t sum = vld1q_s16(x->sum[b][a]), min = vld1q_s16(w[b].mins[p]);
        m = vmlal_s16(m, vget_low_s16(sum), vget_low_s16(min));
        m = vmlal_high_s16(m, sum, min);
    }
    return m;
}

/* Loaded one after the other, so that one instruction loads two. */
V_FN void load_all(v_float *to, const float (*from)[4], const int count) {
    UNROLL
    for (int i = 0; i < count; i++) {
        to[i] = v_fload(from[i]);
    }
}

/* acc + the terms of a block or span (blocks.h). */
V_FN void add_terms(const int kind, tile_floats *acc, const tile_sums *sums, const w_block *w,
                    const x_scales *scale) {
    v_float ws[W_PAIRS], wm[W_PAIRS], dx[X_PAIRS], dxs[X_PAIRS];
    load_all(ws, w->ws, W_PAIRS);
    load_all(dx, scale->dx, X_PAIRS);
    if (kind == MINIMUM || kind == SPANNED || HAS_INTEGER_MIN(kind)) {
        load_all(wm, w->wm, W_PAIRS);
        load_all(dxs, scale->dxs, X_PAIRS);
    }
    UNROLL
    for (int i = 0; i < X_PAIRS * W_PAIRS; i++) {
        const int a = i % X_PAIRS, p = i / X_PAIRS;
        v_float s = vcvtq_f32_s32(sums->s[a][p]), *to = &acc->s[a][p];
        if (HAS_INTEGER_MIN(kind)) {
            const int32x4_t m = minimums(kind, w, (const x_span *)(const void *)scale, a, p);
            *to = v_fma(dx[a], v_fma(ws[p], s, v_mul(wm[p], vcvtq_f32_s32(m))), *to);
        } else if (IS_SCALED(kind)) {
            *to = v_fma(dx[a], v_mul(ws[p], s), *to);
        } else {
            *to = v_fma(v_mul(ws[p], dx[a]), s, *to);
        }
        if (kind == MINIMUM || kind == SPANNED) {
            *to = v_fma(wm[p], dxs[a], *to);
        }
    }
}

V_FN void add_block(const int kind, tile_floats *acc, const x_block *x, const w_block *w) {
    tile_sums sums;
    clear(&sums);
    add_products(&sums, x->q, w, 0, STEPS);
    add_terms(kind, acc, &sums, w, &x->scale);
}

/* Rolled: addresses of one block are near enough for one instruction to load two vectors. */
V_FN void add_span(const int kind, tile_floats *acc, const x_span *x, const w_block *w) {
    const w_block *at = w;
    tile_sums total, sums;
    clear(&total);
    clear(&sums);
    ROLLED
    for (int b = 0; b < GW_ACT_SPAN; b++, at++) {
        if (IS_PER_16(kind)) {
            add_products(&sums, x->q[b], at, 0, STEPS / 2);
            add_scaled(&total, &sums, at, 0);
            add_products(&sums, x->q[b], at, STEPS / 2, STEPS);
            add_scaled(&total, &sums, at, 1);
        } else {
            add_products(&sums, x->q[b], at, 0, STEPS);
            if (IS_SCALED(kind)) {
                add_scaled(&total, &sums, at, 0);
            }
        }
    }
    add_terms(kind, acc, IS_SCALED(kind) ? &total : &sums, w, &x->scale);
}

/* Some blocks of a strip times those of all groups: acc [groups][PARTS][SUMS] grows. */
typedef struct work {
    const x_block *x;
    size_t step; /* from group to group of x */
    size_t groups, blocks;
    float *acc;
    const panel *panel;
} work;

V_FN void multiply(const int kind, const work *job) {
    float *at = job->acc;
    for (size_t i = 0; i < job->groups * PARTS; i++, at += SUMS) {
        const x_block *x = job->x + i / PARTS * job->step;
        const w_block *w = job->panel->of[i % PARTS], *end = w + job->blocks;
        tile_floats acc;
        UNROLL
        for (int j = 0; j < X_PAIRS * W_PAIRS; j++) {
            acc.s[j / W_PAIRS][j % W_PAIRS] = v_fload(at + 4 * j);
        }
        ROLLED
        for (; w < end; w += IS_SPAN(kind) ? GW_ACT_SPAN : 1) {
            if (IS_SPAN(kind)) {
                add_span(kind, &acc, (const x_span *)(const void *)x, w);
            } else {
                add_block(kind, &acc, x, w);
            }
            x += IS_SPAN(kind) ? GW_ACT_SPAN : 1;
        }
        UNROLL
        for (int j = 0; j < X_PAIRS * W_PAIRS; j++) {
            v_fstore(at + 4 * j, acc.s[j / W_PAIRS][j % W_PAIRS]);
        }
    }
}

typedef void multiply_fn(const work *job);

static void multiply_plain(const work *job) { multiply(PLAIN, job); }
static void multiply_minimum(const work *job) { multiply(MINIMUM, job); }
static void multiply_spanned(const work *job) { multiply(SPANNED, job); }
static void multiply_scaled(const work *job) { multiply(SCALED, job); }
static void multiply_scaled_16(const work *job) { multiply(SCALED_16, job); }
static void multiply_scaled_min(const work *job) { multiply(SCALED_MIN, job); }
static void multiply_scaled_16_min(const work *job) { multiply(SCALED_16_MIN, job); }

static multiply_fn *const multiplies[] = {[PLAIN] = multiply_plain,
                                          [MINIMUM] = multiply_minimum,
                                          [SPANNED] = multiply_spanned,
                                          [SCALED] = multiply_scaled,
                                          [SCALED_16] = multiply_scaled_16,
                                          [SCALED_MIN] = multiply_scaled_min,
                                          [SCALED_16_MIN] = multiply_scaled_16_min};

/* ---- a range of rows ------------------------------------------------------------------------- */

static size_t groups_of(size_t n) { return (n + X_ROWS - 1) / X_ROWS; }

/* Rows of a chunk, at most: of n in all. */
static size_t chunk_rows(size_t k, size_t n) {
    const size_t most = gw_linear_chunk(k);
    return n < most ? groups_of(n) * X_ROWS : most;
}

/* scratch: the panel, sums of a strip for a chunk of groups, the groups themselves. */
size_t gw_linear_i8mm_scratch(size_t k, int n_max) {
    const size_t groups = groups_of(chunk_rows(k, n_max > 0 ? (size_t)n_max : 1));
    const size_t each = PARTS * SUMS * sizeof(float) + k / GW_ACT_BLOCK * sizeof(x_block);
    const size_t bytes = sizeof(panel) + groups * each, few = gw_linear_scratch(k, FEW - 1);
    return bytes > few ? bytes : few;
}

size_t gw_linear_i8mm_prepared(size_t k, int n_max) {
    const size_t groups = groups_of(n_max > 0 ? (size_t)n_max : 1);
    const size_t bytes = groups * (k / GW_ACT_BLOCK) * sizeof(x_block);
    const size_t few = gw_linear_prepared(k, n_max < FEW ? n_max : FEW - 1);
    return bytes > few ? bytes : few;
}

/* Rows r .. of the strip for activation rows [from, from + rows). */
static void finish_strip(const gw_cpu_linear *job, size_t from, size_t rows, size_t r,
                         const float *acc) {
    for (size_t i = 0; i < rows; i++) {
        for (size_t h = 0; h < GW_STRIP_ROWS && r + h < job->m; h += V_ROWS) {
            const float *sums = acc + (i / X_ROWS * PARTS + h / W_ROWS) * SUMS;
            sums += (i % X_ROWS / 2 * W_PAIRS + h % W_ROWS / 2) * 4 + i % 2 * 2;
            finish(job, from + i, r + h, vcombine_f32(vld1_f32(sums), vld1_f32(sums + 4)));
        }
    }
}

/* Activation rows [from, from + rows), a chunk at most, for all strips of the range. */
static void run_chunk(const gw_cpu_linear *job, size_t first, size_t end, size_t from, size_t rows,
                      const x_block *x, void *scratch, size_t strip_bytes, fill_fn *fill,
                      int kind) {
    const size_t blocks = job->k / GW_ACT_BLOCK;
    panel *p = scratch;
    work w = {.step = blocks, .groups = groups_of(rows), .panel = p};
    w.acc = (float *)(void *)(p + 1);
    for (size_t r = first; r < end; r += GW_STRIP_ROWS) {
        const unsigned char *strip =
            (const unsigned char *)job->w + r / GW_STRIP_ROWS * strip_bytes;
        memset(w.acc, 0, w.groups * PARTS * SUMS * sizeof *w.acc);
        for (size_t b = 0; b < blocks; b += PANEL) {
            w.blocks = blocks - b < PANEL ? blocks - b : PANEL;
            w.x = x + b;
            fill(p, strip, b, w.blocks);
            multiplies[kind](&w);
        }
        finish_strip(job, from, rows, r, w.acc);
    }
}

static void run_rows(const gw_cpu_linear *job, size_t first, size_t end, void *scratch,
                     size_t strip_bytes, fill_fn *fill, int kind,
                     void (*prepare)(const gw_cpu_linear *, size_t, size_t, void *)) {
    const size_t n = (size_t)job->n, blocks = job->k / GW_ACT_BLOCK, chunk = chunk_rows(job->k, n);
    x_block *own = (x_block *)(void *)((char *)scratch + sizeof(panel) +
                                       groups_of(chunk) * PARTS * SUMS * sizeof(float));
    for (size_t from = 0; from < n; from += chunk) {
        const size_t rows = n - from < chunk ? n - from : chunk, at = from / X_ROWS * blocks;
        const x_block *x = own;
        if (job->prepared != NULL) {
            x = (const x_block *)job->prepared + at;
        } else {
            prepare(job, from, from + rows, own);
        }
        run_chunk(job, first, end, from, rows, x, scratch, strip_bytes, fill, kind);
    }
}

#define KERNELS(name, NAME, weights, bytes, head)                                                  \
    static void prepare_##name(const gw_cpu_linear *job, size_t first, size_t end, void *dst) {    \
        const shape f = SHAPE(name);                                                               \
        prepare_groups(KIND(name), dst, job, first, end);                                          \
    }                                                                                              \
    void gw_linear_##name##_i8mm_prefill(const gw_cpu_linear *job, size_t first, size_t end,       \
                                         void *scratch) {                                          \
        const shape f = SHAPE(name);                                                               \
        if (job->n < FEW) {                                                                        \
            gw_linear_##name##_neon_prefill(job, first, end, scratch);                             \
        } else {                                                                                   \
            run_rows(job, first, end, scratch, gw_strip_bytes(GW_FMT_##NAME, job->k), fill_##name, \
                     KIND(name), prepare_##name);                                                  \
        }                                                                                          \
    }                                                                                              \
    void gw_linear_##name##_i8mm_prefill_prepare(const gw_cpu_linear *job, size_t first,           \
                                                 size_t end, void *dst) {                          \
        if (job->n < FEW) {                                                                        \
            gw_linear_##name##_neon_prefill_prepare(job, first, end, dst);                         \
        } else {                                                                                   \
            prepare_##name(job, first, end,                                                        \
                           (x_block *)dst + first / X_ROWS * (job->k / GW_ACT_BLOCK));             \
        }                                                                                          \
    }
GW_STRIP_FORMATS(KERNELS)

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gw_no_i8mm_here;
#endif
