/* cpu/linear_amx.c - prompts of quantized weights on AMX tiles; decode is that of linear_vnni.c.
 *
 * A tile product gives the exact integer sums of one block of 32 for 16 activation rows and 16
 * weight rows (two products, twice as wide: those of GW_ACT_SPAN blocks, a span); vectors add the
 * terms in the order of the contract. Codes of formats with integer scales are multiplied by them
 * while they are unpacked and are two digits then, so that their spans have two sums. While tiles
 * are in use the second 512-bit multiplier is not to be had (docs/record, "AMX"), so most sums
 * become floats by adding, not by converting, and tile instructions run four sums ahead of the
 * floats.
 */
#if defined(GODWIT_AMX)
#define V_VNNI 1
#include "cpu/simd_avx512.h"

#include "core/tensor/blocks.h"
#include "cpu/linear_shape_body.h"
#include "cpu/linear_unpack.h"
#include "cpu/simd_amx.h"

#if defined(__clang__)
#define V_UNROLL_ROWS _Pragma("unroll")
#else
#define V_UNROLL_ROWS _Pragma("GCC unroll 16")
#endif

enum {
    PANEL = 16, /* blocks unpacked at a time: with as many of activations, most of 48 KB */
    PAIR = 2,   /* strips that share a tile of activations in the first-level cache        */
    FEW = 32,   /* fewer activation rows are faster on vectors                             */
    CHUNK_BYTES = 1 << 20, /* of activations, in a second-level cache of 2 MB              */
    SUMS = GW_TILE * GW_STRIP_ROWS,
    CODES = GW_ACT_BLOCK * GW_STRIP_ROWS,
    DIGITS = 2 /* of codes times integer scales */
};

/* What terms are made of: a block with a scale, with a minimum too; a span with both; a span with
 * integer scales, with integer minimums of blocks or of their halves too. */
enum { PLAIN, MINIMUM, SPANNED, SCALED, SCALED_MIN, SCALED_HALF_MIN };
#define IS_SCALED(kind) ((kind) >= SCALED)
#define IS_SPAN(kind) ((kind) >= SPANNED)

/* What the terms of GW_TILE activation rows need besides sums; rows that are not there are zero. */
typedef struct x_scales {
    float dx[GW_TILE];
    float dxs[GW_TILE]; /* dx * (float)(sum of all q), for formats with a minimum */
} x_scales;

typedef struct x_tile { /* one block */
    x_scales scale;
    gw_i8 q[GW_TILE][GW_ACT_BLOCK];
} x_tile;

typedef struct x_span { /* GW_ACT_SPAN blocks, in the room of as many tiles */
    x_scales scale;
    gw_i16 sum[GW_ACT_SPAN][GW_TILE][2]; /* for integer minimums: of halves; or of a block and the
                                          * next one at every other place */
    gw_i8 q[2][GW_TILE][2 * GW_ACT_BLOCK];
} x_span;
_Static_assert(sizeof(x_span) <= GW_ACT_SPAN * sizeof(x_tile), "a span has room");

typedef struct scales {
    float ws[GW_STRIP_ROWS], wm[GW_STRIP_ROWS]; /* of SCALED: d and -dmin        */
    gw_i32 mins[GW_STRIP_ROWS];                 /* pairs of 16 bits, as x_span's */
} scales;

/* Blocks of one strip as the tiles want them. SCALED: of each span the upper digits of all codes,
 * then the lower ones. */
typedef struct panel {
    gw_i8 code[2 * PANEL][CODES];
    scales scale[PANEL];
} panel;

typedef struct room {
    panel strip[PAIR];
    gw_i32 sums[2][4 * SUMS]; /* out of the tiles: of this group and of the one before */
} room;

/* ---- unpacking ---------------------------------------------------------------------------------
 */

V_FN v_word join_bytes(__m512i even, __m512i odd) {
    return v_or(v_and(even, v_words(0x00ff00ff)), v_and(odd, v_words((int)0xff00ff00u)));
}

/* Codes less their offset, times the scale of their half: at most 4096 in size. That is 256 high +
 * low, bytes with and without a sign. */
V_FN void scale_codes(int offset, v_word c, v_pair scale, gw_i8 *high, gw_i8 *low) {
    const __m512i plus = _mm512_mullo_epi16(scale, _mm512_set1_epi16((short)-offset));
    __m512i even = _mm512_mullo_epi16(v_and(c, v_words(0x00ff00ff)), scale);
    __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(c, 8), scale);
    even = _mm512_add_epi16(even, plus);
    odd = _mm512_add_epi16(odd, plus);
    _mm512_storeu_si512(high, join_bytes(_mm512_srli_epi16(even, 8), odd));
    _mm512_storeu_si512(low, join_bytes(even, _mm512_slli_epi16(odd, 8)));
}

/* Block i of a panel, with integer scales. */
V_FN void put_scaled_block(shape f, const int kind, panel *p, size_t i, const v_block *u) {
    const size_t place = i % GW_ACT_SPAN, first = i - place;
    gw_i8 *high = p->code[DIGITS * first + place], *low = high + GW_ACT_SPAN * CODES;
    scales *scale = &p->scale[i];
    for (int j = 0; j < 8; j++, high += 64, low += 64) {
        v_int half = j < 4 ? u->scales.first : u->scales.second;
        scale_codes(f.offset, u->c[j], v_pair_of(half, half), high, low);
    }
    v_fstore(scale->ws, u->d);
    if (kind == SCALED_HALF_MIN) {
        v_fstore(scale->wm, u->dmin);
        _mm512_storeu_si512(scale->mins, u->mins);
    } else if (kind == SCALED_MIN && place % 2 == 0) {
        v_fstore(scale->wm, u->dmin);
        _mm512_storeu_si512(scale->mins, u->min);
    } else if (kind == SCALED_MIN) {
        _mm512_storeu_si512(scale[-1].mins, v_pair_of(v_load(scale[-1].mins), u->min));
    }
}

V_FN void put_block(shape f, const int kind, panel *p, size_t i, const v_block *u) {
    if (IS_SCALED(kind)) {
        put_scaled_block(f, kind, p, i, u);
        return;
    }
    for (int j = 0; j < 8; j++) {
        _mm512_storeu_si512(p->code[i] + 64 * j, _mm512_sub_epi8(u->c[j], v_bytes(f.offset)));
    }
    v_fstore(p->scale[i].ws, u->ws);
    if (kind != PLAIN) {
        v_fstore(p->scale[i].wm, u->wm);
    }
}

#define KIND(name)                                                                                 \
    (GW_STRIP_SCALED_##name               ? f.kind == HALVED_MIN ? (int)SCALED_HALF_MIN            \
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
            v_block u;                                                                             \
            unpack_##name(&u, strip + (head) + b / subs * (bytes), strip, (int)(b % subs), 0);     \
            put_block(f, KIND(name), p, i, &u);                                                    \
        }                                                                                          \
    }
GW_STRIP_FORMATS(FILL)

/* ---- activations -------------------------------------------------------------------------------
 */

/* Row i of a span. */
V_FN void prepare_span(const int kind, x_span *dst, size_t i, const gw_act8 *x) {
    gw_i8 *first = dst->q[0][i], *second = dst->q[1][i];
    span s = {.q = {first, first + GW_ACT_BLOCK, second, second + GW_ACT_BLOCK}};
    take_span(&s, x);
    dst->scale.dx[i] = s.dx;
    if (kind == SPANNED) {
        dst->scale.dxs[i] = dxs_of_span(&s);
    }
    for (int b = 0; kind == SCALED_HALF_MIN && b < GW_ACT_SPAN; b++) {
        dst->sum[b][i][0] = (gw_i16)s.sum[b][0];
        dst->sum[b][i][1] = (gw_i16)s.sum[b][1];
    }
    for (int b = 0; kind == SCALED_MIN && b < GW_ACT_SPAN; b++) {
        dst->sum[b - b % 2][i][b % 2] = (gw_i16)sum_of_block(&s, b);
    }
}

/* Rows [from, end) of x into tiles [blocks] each; from is a multiple of GW_TILE. */
V_FN void prepare_tiles(const int kind, x_tile *dst, const gw_cpu_linear *job, size_t from,
                        size_t end) {
    const size_t blocks = job->k / GW_ACT_BLOCK;
    for (; from < end; from += GW_TILE, dst += blocks) {
        if (end - from < GW_TILE) {
            memset(dst, 0, blocks * sizeof *dst);
        }
        for (size_t i = 0; i < GW_TILE && from + i < end; i++) {
            const gw_act8 *x =
                (const gw_act8 *)(const void *)((const char *)job->x + (from + i) * job->x_stride);
            for (size_t b = 0; b < blocks; b += IS_SPAN(kind) ? GW_ACT_SPAN : 1) {
                x_scales *scale = &dst[b].scale;
                if (IS_SPAN(kind)) {
                    prepare_span(kind, (x_span *)(void *)(dst + b), i, x + b);
                    continue;
                }
                memcpy(dst[b].q[i], x[b].q, sizeof dst[b].q[i]);
                scale->dx[i] = x[b].scale;
                scale->dxs[i] = x[b].scale * (float)(x[b].sum[0] + x[b].sum[1]);
            }
        }
    }
}

/* ---- products and terms ------------------------------------------------------------------------
 */

/* An integer below 2^22 in size, added to the bits of 1.5 * 2^23, makes that float plus the
 * integer; added to those of 1.5 * 2^31, plus 256 times it. What follows is exact, but for the
 * rounding of a span's sum of two digits in its last addition. */
#define BITS_23 0x4b400000
#define BITS_31 0x4f400000

V_FN v_float add_bits(v_int s, int bits) {
    return _mm512_castsi512_ps(_mm512_add_epi32(s, v_words(bits)));
}
V_FN v_float to_float_by_adding(v_int s) {
    return _mm512_sub_ps(add_bits(s, BITS_23), v_dup(0x1.8p+23f));
}

/* The sums of activation row i as floats. Besides two multiplications the multiplier has room to
 * convert one vector of four. */
V_FN v_float sums_of_row(const int kind, const gw_i32 *sums, int i) {
    v_int s = v_load(sums + i * GW_STRIP_ROWS);
    if (IS_SCALED(kind)) { /* 256 s + low: below 2^18 and 128 * 255 * 127 < 2^22 */
        v_float high = _mm512_sub_ps(add_bits(s, BITS_31), v_dup(0x1.8p+31f + 0x1.8p+23f));
        return v_add(high, add_bits(v_load(sums + SUMS + i * GW_STRIP_ROWS), BITS_23));
    }
    return kind == PLAIN && i % 4 == 3 ? v_to_float(s) : to_float_by_adding(s);
}

/* The sum of minimums times activations, of row i. */
V_FN v_int minimums_of_row(const int kind, const scales *w, const x_span *x, int i) {
    v_int m = v_words(0);
    V_UNROLL_ROWS
    for (int b = 0; b < GW_ACT_SPAN; b += kind == SCALED_HALF_MIN ? 1 : 2) {
        m = v_add_minimums(m, v_load(w[b].mins), x->sum[b][i]);
    }
    return m;
}

/* acc [16 activation rows] + their terms of one block or span (blocks.h), rows [from, end). */
V_FN void add_terms(const int kind, v_float *acc, const gw_i32 *sums, const scales *w,
                    const x_tile *x, const int from, const int end) {
    const v_float ws = v_fload(w->ws);
    V_UNROLL_ROWS
    for (int i = from; i < end; i++) {
        v_float dx = v_dup(x->scale.dx[i]), s = sums_of_row(kind, sums, i);
        if (kind == SCALED_MIN || kind == SCALED_HALF_MIN) {
            v_int m = minimums_of_row(kind, w, (const x_span *)(const void *)x, i);
            s = v_fma(ws, s, v_mul(v_fload(w->wm), to_float_by_adding(m)));
            acc[i] = v_fma(dx, s, acc[i]);
            continue;
        }
        acc[i] =
            v_fma(kind == SCALED ? dx : v_mul(ws, dx), kind == SCALED ? v_mul(ws, s) : s, acc[i]);
        if (kind == MINIMUM || kind == SPANNED) {
            acc[i] = v_fma(v_fload(w->wm), v_dup(x->scale.dxs[i]), acc[i]);
        }
    }
}

/* Where a group of blocks begins. */
typedef struct place {
    const x_tile *x;
    const gw_i8 (*code)[CODES];
    const scales *scale;
} place;

#define LOAD_X(u, a) TILE_LOAD(t, a, now->x[u].q, GW_ACT_BLOCK);
#define PRODUCT(codes, sum, a, w)                                                                  \
    TILE_LOAD(t, w, now->code[codes], 64);                                                         \
    TILE_ZERO(t, sum);                                                                             \
    TILE_DOT(t, sum, a, w);
/* The same of span u: of digit `digit` of `digits`, of which only the first has a sign. */
#define LOAD_SPAN(u)                                                                               \
    TILE_LOAD(t, 4, ((const x_span *)(const void *)(now->x + GW_ACT_SPAN * (u)))->q[0], 64);       \
    TILE_LOAD(t, 5, ((const x_span *)(const void *)(now->x + GW_ACT_SPAN * (u)))->q[1], 64);
#define SPAN_PRODUCT(u, digit, digits, sum)                                                        \
    TILE_ZERO(t, sum);                                                                             \
    if ((digit) == 0) {                                                                            \
        LOAD_SPAN(u)                                                                               \
    }                                                                                              \
    TILE_LOAD(t, 6, now->code[GW_ACT_SPAN * ((digits) * (u) + (digit))], 64);                      \
    TILE_LOAD(t, 7, now->code[GW_ACT_SPAN * ((digits) * (u) + (digit)) + 2], 64);                  \
    if ((digit) == 0) {                                                                            \
        TILE_DOT(t, sum, 4, 6);                                                                    \
        TILE_DOT(t, sum, 5, 7);                                                                    \
    } else {                                                                                       \
        TILE_DOT_UNSIGNED(t, sum, 4, 6);                                                           \
        TILE_DOT_UNSIGNED(t, sum, 5, 7);                                                           \
    }
#define STORE(to, sum) TILE_STORE(t, sum, (to) + (sum)*SUMS);
#define TERMS(u, from, to)                                                                         \
    add_terms(kind, acc, old + (IS_SCALED(kind) ? DIGITS : 1) * (u)*SUMS,                          \
              before->scale + (IS_SPAN(kind) ? GW_ACT_SPAN : 1) * (u),                             \
              before->x + (IS_SPAN(kind) ? GW_ACT_SPAN : 1) * (u), from, to);
/* One of the four products of a group: besides it, the product before the last is stored, and the
 * terms of as many sums of the group before are added. */
#define STEP(n, sum, a, w, to, ready)                                                              \
    if (!at_first || (n) >= 2) {                                                                   \
        STORE(to, ready)                                                                           \
    }                                                                                              \
    if (IS_SCALED(kind)) {                                                                         \
        SPAN_PRODUCT((n) / DIGITS, (n) % DIGITS, DIGITS, sum)                                      \
    } else if (kind == SPANNED) {                                                                  \
        SPAN_PRODUCT(n, 0, 1, sum)                                                                 \
    } else {                                                                                       \
        LOAD_X(n, a)                                                                               \
        PRODUCT(n, sum, a, w)                                                                      \
    }                                                                                              \
    if (!at_first && IS_SCALED(kind)) {                                                            \
        TERMS((n) / DIGITS, (n) % DIGITS * GW_TILE / DIGITS,                                       \
              ((n) % DIGITS + 1) * GW_TILE / DIGITS)                                               \
    } else if (!at_first) {                                                                        \
        TERMS(n, 0, GW_TILE)                                                                       \
    }

/* Products of the four blocks or spans (SCALED: two spans, of two digits each) at `now`, between
 * them the terms of those at `before`; at first there are none. */
V_FN void run_group(const int kind, const int at_first, gw_tiles *t, const place *now,
                    const place *before, gw_i32 *sums, gw_i32 *old,
                    v_float *acc){STEP(0, 0, 4, 6, old, 2) STEP(1, 1, 5, 7, old, 3)
                                      STEP(2, 2, 4, 6, sums, 0) STEP(3, 3, 5, 7, sums, 1)}

V_FN void end_groups(const int kind, gw_tiles *t, const place *before, gw_i32 *old, v_float *acc) {
    STORE(old, 2)
    STORE(old, 3)
    TERMS(0, 0, GW_TILE)
    TERMS(1, 0, GW_TILE)
    if (!IS_SCALED(kind)) {
        TERMS(2, 0, GW_TILE)
        TERMS(3, 0, GW_TILE)
    }
}

V_FN void load_sums(v_float *acc, const float *from) {
    V_UNROLL_ROWS
    for (int i = 0; i < GW_TILE; i++) {
        acc[i] = v_fload(from + i * GW_STRIP_ROWS);
    }
}

V_FN void store_sums(float *to, const v_float *acc) {
    V_UNROLL_ROWS
    for (int i = 0; i < GW_TILE; i++) {
        v_fstore(to + i * GW_STRIP_ROWS, acc[i]);
    }
}

/* Some blocks of up to PAIR strips times those of all tiles: acc [tiles][strips][SUMS] grows. */
typedef struct work {
    const x_tile *x;
    size_t step; /* from tile to tile of x */
    size_t tiles, strips, blocks;
    float *acc;
    room *room;
} work;

V_FN place place_of(const work *w, size_t i) {
    const panel *p = &w->room->strip[i % w->strips];
    return (place){w->x + i / w->strips * w->step, p->code, p->scale};
}

/* Blocks or spans that fill no group, one after the other. */
V_FN void multiply_rest(const int kind, const work *w, gw_tiles *t, size_t first) {
    const size_t step = kind == SPANNED ? GW_ACT_SPAN : 1;
    gw_i32 *old = w->room->sums[0];
    for (size_t i = 0; i < w->tiles * w->strips && first < w->blocks; i++) {
        place at = place_of(w, i), *now = &at, *before = &at;
        v_float acc[GW_TILE];
        load_sums(acc, w->acc + i * SUMS);
        at.x += first, at.code += first, at.scale += first;
        for (size_t b = first; b < w->blocks; b += step) {
            if (kind == SPANNED) {
                SPAN_PRODUCT(0, 0, 1, 0)
            } else {
                LOAD_X(0, 4)
                PRODUCT(0, 0, 4, 6)
            }
            STORE(old, 0)
            TERMS(0, 0, GW_TILE)
            at.x += step, at.code += step, at.scale += step;
        }
        store_sums(w->acc + i * SUMS, acc);
    }
}

V_FN void multiply(const int kind, const work *w, gw_tiles *t) {
    const size_t blocks = IS_SCALED(kind) ? 2 * GW_ACT_SPAN : IS_SPAN(kind) ? 4 * GW_ACT_SPAN : 4;
    const size_t codes = IS_SCALED(kind) ? DIGITS * blocks : blocks, groups = w->blocks / blocks;
    const size_t n = groups > 0 ? w->tiles * w->strips : 0;
    gw_i32 *sums = w->room->sums[0], *old = w->room->sums[1], *swap;
    place now, before;
    v_float acc[GW_TILE];
    for (size_t i = 0; i < n; i++) {
        now = place_of(w, i);
        if (i == 0) {
            run_group(kind, 1, t, &now, &now, sums, old, acc);
        } else {
            run_group(kind, 0, t, &now, &before, sums, old, acc);
            store_sums(w->acc + (i - 1) * SUMS, acc);
        }
        load_sums(acc, w->acc + i * SUMS);
        for (size_t g = 1; g < groups; g++) {
            before = now;
            now.x += blocks, now.code += codes, now.scale += blocks;
            swap = old, old = sums, sums = swap;
            run_group(kind, 0, t, &now, &before, sums, old, acc);
        }
        before = now;
        swap = old, old = sums, sums = swap;
    }
    if (n > 0) {
        end_groups(kind, t, &before, old, acc);
        store_sums(w->acc + (n - 1) * SUMS, acc);
    }
    if (!IS_SCALED(kind)) { /* those formats have groups of 256 weights */
        multiply_rest(kind, w, t, groups * blocks);
    }
}

typedef void multiply_fn(const work *w, gw_tiles *t);

static void multiply_plain(const work *w, gw_tiles *t) { multiply(PLAIN, w, t); }
static void multiply_minimum(const work *w, gw_tiles *t) { multiply(MINIMUM, w, t); }
static void multiply_spanned(const work *w, gw_tiles *t) { multiply(SPANNED, w, t); }
static void multiply_scaled(const work *w, gw_tiles *t) { multiply(SCALED, w, t); }
static void multiply_scaled_min(const work *w, gw_tiles *t) { multiply(SCALED_MIN, w, t); }
static void multiply_scaled_half_min(const work *w, gw_tiles *t) {
    multiply(SCALED_HALF_MIN, w, t);
}

static multiply_fn *const multiplies[] = {
    [PLAIN] = multiply_plain,           [MINIMUM] = multiply_minimum,
    [SPANNED] = multiply_spanned,       [SCALED] = multiply_scaled,
    [SCALED_MIN] = multiply_scaled_min, [SCALED_HALF_MIN] = multiply_scaled_half_min};

/* ---- a range of rows ---------------------------------------------------------------------------
 */

static size_t tiles_of(size_t n) { return (n + GW_TILE - 1) / GW_TILE; }

/* Tiles of a chunk, at most: of n rows in all. */
static size_t most_tiles(size_t k, size_t n) {
    size_t most = CHUNK_BYTES / (k / GW_ACT_BLOCK * sizeof(x_tile) + 1);
    most = most > 0 ? most : 1;
    return tiles_of(n) < most ? tiles_of(n) : most;
}

/* Chunks are about equal, since each unpacks all weights again. */
static size_t chunk_tiles(size_t k, size_t n) {
    size_t most = most_tiles(k, n), chunks = (tiles_of(n) + most - 1) / most;
    return (tiles_of(n) + chunks - 1) / chunks;
}

/* scratch: room, sums of PAIR strips for a chunk of tiles, the tiles themselves. */
size_t gw_linear_amx_scratch(size_t k, int n_max) {
    size_t tiles = most_tiles(k, n_max > 0 ? (size_t)n_max : 1);
    size_t bytes =
        sizeof(room) + tiles * (PAIR * SUMS * sizeof(float) + k / GW_ACT_BLOCK * sizeof(x_tile));
    size_t few = gw_linear_scratch(k, FEW - 1);
    return bytes > few ? bytes : few;
}

size_t gw_linear_amx_prepared(size_t k, int n_max) {
    size_t bytes = tiles_of(n_max > 0 ? (size_t)n_max : 1) * (k / GW_ACT_BLOCK) * sizeof(x_tile);
    size_t few = gw_linear_prepared(k, n_max < FEW ? n_max : FEW - 1);
    return bytes > few ? bytes : few;
}

static void finish_strips(const gw_cpu_linear *job, size_t from, size_t rows, size_t r,
                          const work *w) {
    for (size_t i = 0; i < rows; i++) {
        for (size_t s = 0; s < w->strips; s++) {
            const float *sums = w->acc + (i / GW_TILE * w->strips + s) * SUMS;
            finish(job, from + i, r + s * GW_STRIP_ROWS,
                   v_fload(sums + i % GW_TILE * GW_STRIP_ROWS));
        }
    }
}

/* Asks for a panel of the strips of a pair while tiles are busy with another one. */
static void ask_for_panel(const unsigned char *strip, size_t strip_bytes, size_t strips,
                          size_t from, size_t bytes) {
    for (size_t s = 0; s < strips; s++, strip += strip_bytes) {
        for (size_t i = from; i < from + bytes && i < strip_bytes; i += 64) {
            _mm_prefetch((const char *)strip + i, _MM_HINT_T1);
        }
    }
}

/* Activation rows [from, from + rows), a chunk at most, for all strips of the range. */
static void run_chunk(const gw_cpu_linear *job, size_t first, size_t end, size_t from, size_t rows,
                      const x_tile *x, void *scratch, size_t strip_bytes, fill_fn *fill, int kind,
                      gw_tiles *t) {
    const size_t blocks = job->k / GW_ACT_BLOCK, each = strip_bytes / blocks;
    room *at = scratch;
    work w = {.step = blocks, .tiles = tiles_of(rows), .room = at};
    w.acc = (float *)(at + 1);
    for (size_t r = first; r < end; r += PAIR * GW_STRIP_ROWS) {
        const unsigned char *strip =
            (const unsigned char *)job->w + r / GW_STRIP_ROWS * strip_bytes;
        w.strips = end - r > GW_STRIP_ROWS ? PAIR : 1;
        memset(w.acc, 0, w.tiles * w.strips * SUMS * sizeof *w.acc);
        for (size_t b = 0; b < blocks; b += PANEL) {
            w.blocks = blocks - b < PANEL ? blocks - b : PANEL;
            w.x = x + b;
            for (size_t s = 0; s < w.strips; s++) {
                fill(&at->strip[s], strip + s * strip_bytes, b, w.blocks);
            }
            if (b + PANEL < blocks) {
                ask_for_panel(strip, strip_bytes, w.strips, (b + PANEL) * each, PANEL * each);
            } else if (end - r > PAIR * GW_STRIP_ROWS) {
                ask_for_panel(strip + PAIR * strip_bytes, strip_bytes, PAIR, 0, PANEL * each);
            }
            multiplies[kind](&w, t);
        }
        finish_strips(job, from, rows, r, &w);
    }
}

static void run_rows(const gw_cpu_linear *job, size_t first, size_t end, void *scratch,
                     size_t strip_bytes, fill_fn *fill, int kind) {
    const size_t n = (size_t)job->n, blocks = job->k / GW_ACT_BLOCK;
    const size_t tiles = chunk_tiles(job->k, n), chunk = tiles * GW_TILE;
    x_tile *own =
        (x_tile *)(void *)((char *)scratch + sizeof(room) + tiles * PAIR * SUMS * sizeof(float));
    gw_tiles state;
    TILES_BEGIN(&state, IS_SPAN(kind));
    for (size_t from = 0; from < n; from += chunk) {
        const size_t rows = n - from < chunk ? n - from : chunk;
        const x_tile *x = own;
        if (job->prepared != NULL) {
            x = (const x_tile *)job->prepared + from / GW_TILE * blocks;
        } else {
            prepare_tiles(kind, own, job, from, from + rows);
        }
        run_chunk(job, first, end, from, rows, x, scratch, strip_bytes, fill, kind, &state);
    }
    TILES_END(&state);
}

#define KERNELS(name, NAME, weights, bytes, head)                                                  \
    void gw_linear_##name##_amx_prefill(const gw_cpu_linear *job, size_t first, size_t end,        \
                                        void *scratch) {                                           \
        const shape f = SHAPE(name);                                                               \
        if (job->n < FEW) {                                                                        \
            gw_linear_##name##_vnni_prefill(job, first, end, scratch);                             \
        } else {                                                                                   \
            run_rows(job, first, end, scratch, gw_strip_bytes(GW_FMT_##NAME, job->k), fill_##name, \
                     KIND(name));                                                                  \
        }                                                                                          \
    }                                                                                              \
    void gw_linear_##name##_amx_prefill_prepare(const gw_cpu_linear *job, size_t first,            \
                                                size_t end, void *dst) {                           \
        const shape f = SHAPE(name);                                                               \
        const size_t tile = first / GW_TILE * (job->k / GW_ACT_BLOCK);                             \
        if (job->n < FEW) {                                                                        \
            gw_linear_##name##_vnni_prefill_prepare(job, first, end, dst);                         \
        } else {                                                                                   \
            prepare_tiles(KIND(name), (x_tile *)dst + tile, job, first, end);                      \
        }                                                                                          \
    }
GW_STRIP_FORMATS(KERNELS)

#if defined(__clang__) && !defined(GODWIT_SIMDE)
#pragma clang attribute pop
#endif
#else
typedef int gw_no_amx_here;
#endif
