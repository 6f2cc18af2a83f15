/* cpu/linear_amx.c - prompts of quantized weights on AMX tiles; decode is that of linear_vnni.c.
 *
 * A tile product gives the exact integer sums of one block of 32 for 16 activation rows and 16
 * weight rows (two products, twice as wide: those of GW_ACT_SPAN blocks, a span); vectors add the
 * terms in the order of the contract. While tiles are in use the second 512-bit multiplier is not
 * to be had (docs/record, "AMX"), so most sums become floats by adding, not by converting, and tile
 * instructions run four sums ahead of the floats.
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
    CODES = GW_ACT_BLOCK * GW_STRIP_ROWS
};

/* The kinds of linear_shape_body.h, and AFFINE with terms of GW_ACT_SPAN blocks. */
enum { SPANNED = WIDE };

/* What the terms of GW_TILE activation rows need besides sums; rows that are not there are zero. */
typedef struct x_scales {
    float dx[GW_TILE];
    union {
        float dxs[GW_TILE];     /* dx * (float)(sum of all q), for formats with a minimum */
        gw_i16 sum[GW_TILE][2]; /* of halves, for those with a minimum per half           */
    } u;
} x_scales;

typedef struct x_tile { /* one block */
    x_scales scale;
    gw_i8 q[GW_TILE][GW_ACT_BLOCK];
} x_tile;

typedef struct x_span { /* GW_ACT_SPAN blocks, in the room of as many tiles */
    x_scales scale;
    gw_i8 q[2][GW_TILE][2 * GW_ACT_BLOCK];
} x_span;
_Static_assert(sizeof(x_span) <= GW_ACT_SPAN * sizeof(x_tile), "a span has room");

typedef struct scales {
    float ws[GW_STRIP_ROWS], wm[GW_STRIP_ROWS];
    gw_i32 mins[GW_STRIP_ROWS]; /* pairs of 16 bits */
} scales;

/* Blocks of one strip as the tiles want them. HALVED: two planes of codes for each block. */
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

/* Scales of the halves of a block as pairs of 16 bits. */
V_FN v_pair scale_pair(v_float scale) {
    v_int i = _mm512_cvtps_epi32(scale);
    return v_pair_of(i, i);
}

V_FN v_word join_bytes(__m512i even, __m512i odd) {
    return v_or(v_and(even, v_words(0x00ff00ff)), v_and(odd, v_words((int)0xff00ff00u)));
}

/* Codes less their offset, times the scale of their half. HALVED: below 4097 in size, so 64 high +
 * low with both in a byte, and |high| 64 + |low| <= 4096 too; HALVED_MIN: below 46, one plane. */
V_FN void scale_codes(shape f, v_word c, v_pair scale, gw_i8 *high, gw_i8 *low) {
    const __m512i round = _mm512_set1_epi16(f.kind == HALVED ? 32 : 0);
    const __m512i plus =
        _mm512_sub_epi16(round, _mm512_mullo_epi16(scale, _mm512_set1_epi16((short)f.offset)));
    __m512i even = _mm512_mullo_epi16(v_and(c, v_words(0x00ff00ff)), scale);
    __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(c, 8), scale);
    even = _mm512_add_epi16(even, plus);
    odd = _mm512_add_epi16(odd, plus);
    if (f.kind == HALVED_MIN) {
        _mm512_storeu_si512(high, join_bytes(even, _mm512_slli_epi16(odd, 8)));
        return;
    }
    _mm512_storeu_si512(high, join_bytes(_mm512_srli_epi16(even, 6), _mm512_slli_epi16(odd, 2)));
    v_word last = v_and(join_bytes(even, _mm512_slli_epi16(odd, 8)), v_bytes(63));
    _mm512_storeu_si512(low, _mm512_sub_epi8(last, v_bytes(32)));
}

V_FN void put_block(shape f, panel *p, size_t i, const v_block *u) {
    gw_i8 *code = p->code[f.kind == HALVED ? 2 * i : i];
    for (int j = 0; j < 8; j++, code += 64) {
        if (f.kind == HALVED || f.kind == HALVED_MIN) {
            v_pair scale = scale_pair(j < 4 ? u->scales.first : u->scales.second);
            scale_codes(f, u->c[j], scale, code, code + CODES);
        } else {
            _mm512_storeu_si512(code, _mm512_sub_epi8(u->c[j], v_bytes(f.offset)));
        }
    }
    v_fstore(p->scale[i].ws, u->ws);
    if (f.kind == AFFINE || f.kind == WIDE || f.kind == HALVED_MIN) {
        v_fstore(p->scale[i].wm, u->wm);
    }
    if (f.kind == HALVED_MIN) {
        _mm512_storeu_si512(p->scale[i].mins, u->mins);
    }
}

typedef void fill_fn(panel *p, const unsigned char *strip, size_t first, size_t count);

#define FILL(name, NAME, weights, bytes, head)                                                     \
    static void fill_##name(panel *p, const unsigned char *strip, size_t first, size_t count) {    \
        const shape f = SHAPE(name);                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            const size_t b = first + i, subs = GW_STRIP_SUBS_##name;                               \
            v_block u;                                                                             \
            unpack_##name(&u, strip + (head) + b / subs * (bytes), strip, (int)(b % subs), 0);     \
            put_block(f, p, i, &u);                                                                \
        }                                                                                          \
    }
GW_STRIP_FORMATS(FILL)

/* ---- activations -------------------------------------------------------------------------------
 */

/* Row i of a span. */
V_FN void prepare_span(x_span *dst, size_t i, const gw_act8 *x) {
    gw_i8 *first = dst->q[0][i], *second = dst->q[1][i];
    span s = {.q = {first, first + GW_ACT_BLOCK, second, second + GW_ACT_BLOCK}};
    take_span(&s, x);
    dst->scale.dx[i] = s.dx;
    dst->scale.u.dxs[i] = s.dxs;
}

/* Rows [from, end) of x into tiles [blocks] each; from is a multiple of GW_TILE. */
V_FN void prepare_tiles(int kind, x_tile *dst, const gw_cpu_linear *job, size_t from, size_t end) {
    const size_t blocks = job->k / GW_ACT_BLOCK;
    for (; from < end; from += GW_TILE, dst += blocks) {
        if (end - from < GW_TILE) {
            memset(dst, 0, blocks * sizeof *dst);
        }
        for (size_t i = 0; i < GW_TILE && from + i < end; i++) {
            const gw_act8 *x =
                (const gw_act8 *)(const void *)((const char *)job->x + (from + i) * job->x_stride);
            for (size_t b = 0; b < blocks; b += kind == SPANNED ? GW_ACT_SPAN : 1) {
                x_scales *scale = &dst[b].scale;
                if (kind == SPANNED) {
                    prepare_span((x_span *)(void *)(dst + b), i, x + b);
                    continue;
                }
                memcpy(dst[b].q[i], x[b].q, sizeof dst[b].q[i]);
                scale->dx[i] = x[b].scale;
                if (kind == HALVED_MIN) {
                    memcpy(scale->u.sum[i], x[b].sum, sizeof scale->u.sum[i]);
                } else {
                    scale->u.dxs[i] = x[b].scale * (float)(x[b].sum[0] + x[b].sum[1]);
                }
            }
        }
    }
}

/* ---- products and terms ------------------------------------------------------------------------
 */

/* An integer below 2^22 in size, added to the bits of 1.5 * 2^23, makes that float plus the
 * integer; added to those of 1.5 * 2^29, plus 64 times it. All that follows is exact. */
#define BITS_23 0x4b400000
#define BITS_29 0x4e400000

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
    if (kind == HALVED) { /* 64 s + low */
        v_float high = _mm512_sub_ps(add_bits(s, BITS_29), v_dup(0x1.8p+29f + 0x1.8p+23f));
        return v_add(high, add_bits(v_load(sums + SUMS + i * GW_STRIP_ROWS), BITS_23));
    }
    return kind == SIGNED && i % 4 == 3 ? v_to_float(s) : to_float_by_adding(s);
}

/* acc [16 activation rows] + their terms of one block or span (blocks.h), rows [from, end). */
V_FN void add_terms(const int kind, v_float *acc, const gw_i32 *sums, const scales *w,
                    const x_scales *x, const int from, const int end) {
    const v_float ws = v_fload(w->ws);
    V_UNROLL_ROWS
    for (int i = from; i < end; i++) {
        v_float dx = v_dup(x->dx[i]), s = sums_of_row(kind, sums, i);
        acc[i] = v_fma(v_mul(ws, dx), s, acc[i]);
        if (kind == HALVED_MIN) {
            v_int m = _mm512_madd_epi16(v_load(w->mins), v_dup_word(x->u.sum[i]));
            acc[i] = v_fma(v_mul(v_fload(w->wm), dx), to_float_by_adding(m), acc[i]);
        } else if (kind == AFFINE || kind == SPANNED) {
            acc[i] = v_fma(v_fload(w->wm), v_dup(x->u.dxs[i]), acc[i]);
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
/* The same of span u. */
#define HALF_OF_SPAN(u, half, sum, a, w)                                                           \
    TILE_LOAD(t, a, ((const x_span *)(const void *)(now->x + GW_ACT_SPAN * (u)))->q[half], 64);    \
    TILE_LOAD(t, w, now->code[GW_ACT_SPAN * (u) + 2 * (half)], 64);                                \
    TILE_DOT(t, sum, a, w);
#define SPAN_PRODUCT(u, sum)                                                                       \
    TILE_ZERO(t, sum);                                                                             \
    HALF_OF_SPAN(u, 0, sum, 4, 6)                                                                  \
    HALF_OF_SPAN(u, 1, sum, 5, 7)
#define STORE(to, sum) TILE_STORE(t, sum, (to) + (sum)*SUMS);
#define TERMS(u, from, to)                                                                         \
    add_terms(kind, acc, old + (kind == HALVED ? 2 : 1) * (u)*SUMS,                                \
              before->scale + (kind == SPANNED ? GW_ACT_SPAN : 1) * (u),                           \
              &before->x[(kind == SPANNED ? GW_ACT_SPAN : 1) * (u)].scale, from, to);
/* One of the four products of a group: besides it, the product before the last is stored, and the
 * terms of as many sums of the group before are added. */
#define STEP(codes, u, sum, a, w, to, ready, from, until)                                          \
    if (!at_first || (codes) >= 2) {                                                               \
        STORE(to, ready)                                                                           \
    }                                                                                              \
    if (kind == SPANNED) {                                                                         \
        SPAN_PRODUCT(u, sum)                                                                       \
    } else {                                                                                       \
        if (kind != HALVED || (codes) % 2 == 0) {                                                  \
            LOAD_X(u, a)                                                                           \
        }                                                                                          \
        PRODUCT(codes, sum, a, w)                                                                  \
    }                                                                                              \
    if (!at_first) {                                                                               \
        TERMS(u, from, until)                                                                      \
    }

/* Products of the four blocks or spans (HALVED: two blocks, of two planes each) at `now`, between
 * them the terms of those at `before`; at first there are none. */
V_FN void run_group(const int kind, const int at_first, gw_tiles *t, const place *now,
                    const place *before, gw_i32 *sums, gw_i32 *old, v_float *acc) {
    enum { HALF = GW_TILE / 2, ALL = GW_TILE };
    if (kind == HALVED) {
        STEP(0, 0, 0, 4, 6, old, 2, 0, HALF)
        STEP(1, 0, 1, 4, 7, old, 3, HALF, ALL)
        STEP(2, 1, 2, 5, 6, sums, 0, 0, HALF)
        STEP(3, 1, 3, 5, 7, sums, 1, HALF, ALL)
    } else {
        STEP(0, 0, 0, 4, 6, old, 2, 0, ALL)
        STEP(1, 1, 1, 5, 7, old, 3, 0, ALL)
        STEP(2, 2, 2, 4, 6, sums, 0, 0, ALL)
        STEP(3, 3, 3, 5, 7, sums, 1, 0, ALL)
    }
}

V_FN void end_groups(const int kind, gw_tiles *t, const place *before, gw_i32 *old, v_float *acc) {
    STORE(old, 2)
    STORE(old, 3)
    TERMS(0, 0, GW_TILE)
    TERMS(1, 0, GW_TILE)
    if (kind != HALVED) {
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
                SPAN_PRODUCT(0, 0)
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
    const size_t blocks = kind == HALVED ? 2 : kind == SPANNED ? 4 * GW_ACT_SPAN : 4;
    const size_t codes = kind == SPANNED ? blocks : 4, groups = w->blocks / blocks;
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
    if (kind != HALVED) { /* formats of halves have groups of 256 weights */
        multiply_rest(kind, w, t, groups * blocks);
    }
}

typedef void multiply_fn(const work *w, gw_tiles *t);

static void multiply_plain(const work *w, gw_tiles *t) { multiply(SIGNED, w, t); }
static void multiply_affine(const work *w, gw_tiles *t) { multiply(AFFINE, w, t); }
static void multiply_halved(const work *w, gw_tiles *t) { multiply(HALVED, w, t); }
static void multiply_halved_min(const work *w, gw_tiles *t) { multiply(HALVED_MIN, w, t); }
static void multiply_spanned(const work *w, gw_tiles *t) { multiply(SPANNED, w, t); }

static multiply_fn *const multiplies[] = {
    [SIGNED] = multiply_plain,  [SHIFTED] = multiply_plain,         [AFFINE] = multiply_affine,
    [HALVED] = multiply_halved, [HALVED_MIN] = multiply_halved_min, [SPANNED] = multiply_spanned};

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
    TILES_BEGIN(&state, kind == SPANNED);
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

#define KIND(name)                                                                                 \
    (GW_STRIP_SPAN_##name > 1 ? (int)SPANNED : f.kind == WIDE ? (int)AFFINE : f.kind)

#define KERNELS(name, NAME, weights, bytes, head)                                                  \
    void gw_linear_##name##_amx_prefill(const gw_cpu_linear *job, size_t first, size_t end,        \
                                        void *scratch) {                                           \
        const shape f = SHAPE(name);                                                              \
        if (job->n < FEW) {                                                                        \
            gw_linear_##name##_vnni_prefill(job, first, end, scratch);                             \
        } else {                                                                                   \
            run_rows(job, first, end, scratch, gw_strip_bytes(GW_FMT_##NAME, job->k), fill_##name, \
                     KIND(name));                                                                  \
        }                                                                                          \
    }                                                                                              \
    void gw_linear_##name##_amx_prepare(const gw_cpu_linear *job, size_t first, size_t end,        \
                                        void *dst) {                                               \
        const shape f = SHAPE(name);                                                              \
        const size_t tile = first / GW_TILE * (job->k / GW_ACT_BLOCK);                             \
        if (job->n < FEW) {                                                                        \
            gw_linear_##name##_vnni_prepare(job, first, end, dst);                                 \
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
