/* kernels_hip/gemm.hip - the prompt's products with quantized weights in the prefill order: LINEAR
 * and GLU on int8 matrix instructions, and a plain form for devices without them.
 *
 * Records of weights (strip.h) and blocks of activations go through shared memory, four blocks of
 * 32 at a time; a wave makes int8 operands out of the records itself. The sum of a block's products
 * is an exact integer that begins at the bits of 1.5 * 2^23, so that its conversion to float is one
 * subtraction; then comes the chain of docs/arithmetic.md, in registers.
 */
#include "kernels_hip/device.h"

#include "core/tensor/blocks.h"
#include "kernels_hip/gemm_tile.h"
#include "kernels_hip/strip.h"

enum { BLOCKS = GW_STRIP_BLOCKS, ACT_BYTES = 40, WIDE = GW_MMA && LANES == 32 };

#define MAGIC 12582912.0f
#define MAGIC_BITS 0x4b400000

struct __align__(8) words2 {
    unsigned w[2];
};
struct __align__(8) floats2 {
    float v[2];
};

__device__ static inline void load2(unsigned *to, const void *from) {
    const words2 v = *(const words2 *)from;
    to[0] = v.w[0], to[1] = v.w[1];
}
__device__ static inline void load4(unsigned *to, const void *from) {
    const gw_16b v = *(const gw_16b *)from;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[i] = v.w[i];
    }
}
__device__ static inline void store4(void *to, const unsigned *from) {
    const gw_16b v = {{from[0], from[1], from[2], from[3]}};
    *(gw_16b *)to = v;
}

/* A row of GW_STRIP_FORMATS. */
template <int LOW_, int HIGH_, int OFFSET_, int LEVELS_, int TERM_, int SUB_, int HEADS_,
          int BYTES_>
struct format {
    static constexpr int LOW = LOW_, HIGH = HIGH_, OFFSET = OFFSET_, LEVELS = LEVELS_, TERM = TERM_,
                         SUB = SUB_, HEADS = HEADS_, BYTES = BYTES_;
    static constexpr int RECORD = GW_STRIP_RECORD(LOW, HIGH, SUB, HEADS, BYTES),
                         AT_HIGH = GW_STRIP_LOW(LOW), AT_SUB = AT_HIGH + GW_STRIP_HIGH(HIGH),
                         AT_HEAD = AT_SUB + GW_STRIP_SUB(SUB);
    static constexpr int HALVES = TERM == GW_TERM_HALVES || TERM == GW_TERM_Q2;
    /* numbers per block of a row, of a token */
    static constexpr int ROW = TERM == GW_TERM_Q2       ? 7
                               : HALVES                 ? 4
                               : TERM == GW_TERM_AFFINE ? 2
                                                        : 1,
                         TOKEN = GW_GEMM_NUMBERS(TERM);
};

/* ---- records --------------------------------------------------------------------------------- */

/* Codes of quarter t of a row in the BLOCKS blocks of a record. */
template <class F> struct quarter { unsigned low[F::LOW], high[2]; };

template <class F>
__device__ static inline void load_quarter(quarter<F> &q, const unsigned char *record, int row,
                                           int t) {
    if (F::LOW >= 4) {
#pragma unroll
        for (int h = 0; h < F::LOW / 4; h++) {
            load4(q.low + 4 * h, record + 1024 * h + 64 * row + 16 * t);
        }
    } else {
        load2(q.low, record + 32 * row + 8 * t);
    }
    if (F::HIGH == 1) {
        q.high[0] = *(const unsigned *)(record + F::AT_HIGH + 16 * row + 4 * t);
    } else if (F::HIGH == 2) {
        load2(q.high, record + F::AT_HIGH + 32 * row + 8 * t);
    }
}

/* The level of each nibble. */
__device__ static inline unsigned levels(unsigned n) {
    const unsigned from = n & 0x07070707u;
    const unsigned low = gw_pick_bytes(0xf6eaddcfu, 0xbfad9881u, from);
    const unsigned high = gw_pick_bytes(0x71594535u, 0x26190d01u, from);
    const unsigned mask = (n >> 3 & 0x01010101u) * 255u;
    return (low & ~mask) | (high & mask);
}

/* Weights 16h + 4t .. +3 of block i as int8. */
template <class F> __device__ static inline unsigned codes(const quarter<F> &q, int i, int h) {
    unsigned c;
    if (F::LOW == 8) {
        return q.low[(4 * h + i) % F::LOW];
    }
    if (F::LOW == 4) {
        c = q.low[i] >> (4 * h) & 0x0f0f0f0fu;
    } else {
        c = q.low[i / 2] >> (2 * (2 * (i % 2) + h)) & 0x03030303u;
    }
    if (F::HIGH == 1) {
        c |= (q.high[0] >> (2 * i + h) & 0x01010101u) << F::LOW;
    } else if (F::HIGH == 2) {
        c |= (q.high[i / 2] >> (2 * (2 * (i % 2) + h)) & 0x03030303u) << F::LOW;
    }
    if (F::LEVELS) {
        return levels(c);
    }
    return F::OFFSET ? ((c | 0x80808080u) - F::OFFSET * 0x01010101u) ^ 0x80808080u : c;
}

/* Scales of a row in the BLOCKS blocks of a record. */
template <class F> struct scales { unsigned head[4], sub[2]; };

template <class F>
__device__ static inline void load_scales(scales<F> &s, const unsigned char *record, int row) {
    const unsigned char *head = record + F::AT_HEAD + row * F::HEADS * F::BYTES;
    if (F::HEADS * F::BYTES == 16) {
        load4(s.head, head);
    } else if (F::HEADS * F::BYTES == 8) {
        load2(s.head, head);
    } else if (F::HEADS * F::BYTES == 4) {
        s.head[0] = *(const unsigned *)head;
    } else if (F::HEADS * F::BYTES == 2) {
        s.head[0] = *(const uint16_t *)head;
    }
    if (F::SUB) {
        load2(s.sub, record + F::AT_SUB + 8 * row);
    }
}

/* What the term needs of a row for block i. */
template <class F> __device__ static inline void row_numbers(const scales<F> &s, int i, float *o) {
    if (F::TERM == GW_TERM_SIGNED && F::BYTES == 4) { /* INT8 */
        o[0] = GW_F32_FROM_BITS(s.head[0]);
        return;
    }
    const int at = F::HEADS == 1 ? 0 : i;
    const unsigned head = F::BYTES == 4 ? s.head[at] : s.head[at / 2] >> at % 2 * 16;
    const unsigned sub = s.sub[i / 2] >> i % 2 * 16;
    const float d = gw_widen_f16((gw_u16)head),
                m = F::BYTES == 4 ? gw_widen_f16((gw_u16)(head >> 16)) : 0.0f;
    if (F::TERM == GW_TERM_SIGNED) {
        o[0] = F::SUB ? d * (float)(int8_t)(sub & 255u) : d;
    } else if (F::TERM == GW_TERM_AFFINE) {
        o[0] = F::SUB ? d * (float)(sub & 255u) : d;
        o[F::ROW - 1] = F::SUB ? -(m * (float)(sub >> 8 & 255u)) : m;
    } else {
        const int q2 = F::TERM == GW_TERM_Q2;
        const float s0 = (float)(q2 ? (int)(sub & 15u) : (int)(int8_t)(sub & 255u));
        o[0] = d;
        o[1 % F::ROW] = s0;
        o[2 % F::ROW] = -(s0 * MAGIC);
        o[3 % F::ROW] = (float)(q2 ? (int)(sub >> 8 & 15u) : (int)(int8_t)(sub >> 8 & 255u));
        if (q2) {
            o[4 % F::ROW] = -m;
            o[5 % F::ROW] = (float)(sub >> 4 & 15u);
            o[6 % F::ROW] = (float)(sub >> 12 & 15u);
        }
    }
}

template <class F>
__device__ static inline void token_numbers(float scale, unsigned sums, float *o) {
    const int a = (int16_t)(sums & 0xffffu), b = (int16_t)(sums >> 16);
    o[0] = scale;
    if (F::TERM == GW_TERM_AFFINE) {
        o[F::TOKEN - 1] = scale * (float)(a + b);
    } else if (F::TERM == GW_TERM_Q2) {
        o[1 % F::TOKEN] = (float)a;
        o[2 % F::TOKEN] = (float)b;
    }
}

/* The term. s, t: sums over the block, or over its halves, that began at MAGIC. In HALVES, the
 * second number takes MAGIC off within the product: all of it is exact. */
template <class F>
__device__ static inline float add_term(int s, int t, const float *row, const float *token,
                                        float acc) {
    if (!F::HALVES) {
        acc = fmaf(row[0] * token[0], GW_F32_FROM_BITS((gw_u32)s) - MAGIC, acc);
        return F::TERM == GW_TERM_AFFINE ? fmaf(row[F::ROW - 1], token[F::TOKEN - 1], acc) : acc;
    }
    const float first = fmaf(row[1 % F::ROW], GW_F32_FROM_BITS((gw_u32)s), row[2 % F::ROW]);
    const float both = fmaf(row[3 % F::ROW], GW_F32_FROM_BITS((gw_u32)t) - MAGIC, first);
    acc = fmaf(row[0] * token[0], both, acc);
    if (F::TERM == GW_TERM_Q2) {
        const float m =
            fmaf(row[5 % F::ROW], token[1 % F::TOKEN], row[6 % F::ROW] * token[2 % F::TOKEN]);
        acc = fmaf(row[4 % F::ROW] * token[0], m, acc);
    }
    return acc;
}

#if GW_MMA

/* ---- stages in shared memory ----------------------------------------------------------------- */

template <class F, class T, int RING_> struct stages {
    enum {
        RING = RING_, /* stages of weights; two of activations */
        W = T::STRIPS * F::RECORD,
        X = T::TOKENS * BLOCKS * GW_ACT_BLOCK,
        N = F::TOKEN * BLOCKS * T::TOKENS * 4,
        CHUNKS = W / 16,
        W_EACH = (CHUNKS + T::THREADS - 1) / T::THREADS,
        X_EACH = (T::TOKENS * BLOCKS + T::THREADS - 1) / T::THREADS
    };
};

/* Byte of half h of block b of a token; neighbouring tokens use different banks. */
__device__ static inline int half_at(int token, int b, int h) {
    return token * (BLOCKS * GW_ACT_BLOCK) + ((2 * b + h) ^ (token & 7)) * 16;
}

template <class F, class T, class S> struct pipeline {
    const uint8_t *w[S::W_EACH]; /* next 16 bytes of this thread */
    unsigned act[S::X_EACH][ACT_BYTES / 4];
};

template <class F, class T, class S>
__device__ static inline void begin_weights(pipeline<F, T, S> &l, const gw_gemm_params &p,
                                            const gw_tile_at &at, int units) {
#pragma unroll
    for (int i = 0; i < S::W_EACH; i++) {
        const int id = (int)threadIdx.x + i * T::THREADS, s = id * 16 / F::RECORD % T::STRIPS;
        const size_t strip = (size_t)gw_tile_strip(p, at, s);
        l.w[i] =
            gw_tile_weight(p, at, s).plane[0] + strip * units * F::RECORD + id * 16 % F::RECORD;
    }
}

template <class F, class T, class S>
__device__ static inline void copy_weights(pipeline<F, T, S> &l, unsigned char *stage, int there) {
    if (there) {
#pragma unroll
        for (int i = 0; i < S::W_EACH; i++) {
            const int id = (int)threadIdx.x + i * T::THREADS;
            if (S::CHUNKS % T::THREADS == 0 || id < S::CHUNKS) {
                gw_copy_async(stage + id * 16, l.w[i]);
            }
            l.w[i] += F::RECORD;
        }
    }
    gw_copy_commit();
}

template <class F, class T, class S>
__device__ static inline void fetch_acts(pipeline<F, T, S> &l, const gw_gemm_params &p,
                                         const gw_tile_at &at, int block, int blocks) {
#pragma unroll
    for (int e = 0; e < S::X_EACH; e++) {
        const int id = (int)threadIdx.x + e * T::THREADS, t = at.token + id / BLOCKS;
        const int b = block + id % BLOCKS < blocks ? block + id % BLOCKS : blocks - 1;
        const uint8_t *x = (const uint8_t *)p.x +
                           ((size_t)(t < at.live ? t : at.live - 1) * blocks + b) * ACT_BYTES;
#pragma unroll
        for (int j = 0; j < ACT_BYTES / 4; j += 2) {
            load2(l.act[e] + j, x + 4 * j);
        }
    }
}

template <class F, class T, class S>
__device__ static inline void stash_acts(const pipeline<F, T, S> &l, unsigned char *x) {
    float *numbers = (float *)(x + S::X);
#pragma unroll
    for (int e = 0; e < S::X_EACH; e++) {
        const int id = (int)threadIdx.x + e * T::THREADS, t = id / BLOCKS, b = id % BLOCKS;
        float o[F::TOKEN];
        if (S::X_EACH > 1 || id < T::TOKENS * BLOCKS) {
            store4(x + half_at(t, b, 0), l.act[e] + 2);
            store4(x + half_at(t, b, 1), l.act[e] + 6);
            token_numbers<F>(GW_F32_FROM_BITS(l.act[e][0]), l.act[e][1], o);
#pragma unroll
            for (int n = 0; n < F::TOKEN; n++) {
                numbers[(b * F::TOKEN + n) * T::TOKENS + t] = o[n];
            }
        }
    }
}

/* ---- one block of 32 ------------------------------------------------------------------------- */

/* Operands of two tiles of tokens. */
__device__ static inline void load_tokens(unsigned *o, const unsigned char *x, int token, int b,
                                          int lane) {
#ifdef GW_LOAD_MATRICES
    gw_load_matrices(o, x + half_at(token + lane / 16 * 8 + lane % 8, b, lane / 8 % 2));
#else
#pragma unroll
    for (int k = 0; k < 2 * GW_MMA_B; k++) {
        const int t = token + k / 2 * GW_MMA_N + gw_mma_b_col(lane);
        o[k] = *(const unsigned *)(x + half_at(t, b, k % 2) + gw_tile_pair(lane) * 4);
    }
#endif
}

template <class F>
__device__ static inline void multiply(int *s, const unsigned *a, const unsigned *x) {
#pragma unroll
    for (int k = 0; k < (F::HALVES ? 2 : 1) * GW_MMA_C; k++) {
        s[k] = MAGIC_BITS;
    }
    if (!F::HALVES) {
        gw_mma_int8(s, a, x);
    } else { /* the first half of a block is in the first half of the registers */
        unsigned low[GW_MMA_A], high[GW_MMA_A];
#pragma unroll
        for (int k = 0; k < GW_MMA_A; k++) {
            low[k] = k < GW_MMA_A / 2 ? a[k] : 0;
            high[k] = k < GW_MMA_A / 2 ? 0 : a[k];
        }
        gw_mma_int8(s, low, x);
        gw_mma_int8(s + (F::HALVES ? GW_MMA_C : 0), high, x);
    }
}

/* What a wave keeps of a stage of weights. */
template <class F, class T> struct operands {
    quarter<F> codes[T::MT][T::AR];
    scales<F> scale[T::MT][T::CR];
    float row[T::MT][T::CR][F::ROW];
};

template <class F, class T>
__device__ static inline void add_block(const operands<F, T> &o, const unsigned *const *a,
                                        const unsigned char *x, const float *numbers, int b,
                                        const gw_tile_at &at, float (*acc)[T::NT][GW_MMA_C]) {
    enum { SUMS = (F::HALVES ? 2 : 1) * GW_MMA_C, PAIRS = T::NT > 1 ? 2 : 1 };
    unsigned tokens[PAIRS][2 * GW_MMA_B];
    int s[2][T::MT][SUMS];
    load_tokens(tokens[0], x, at.n, b, at.lane);
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
        multiply<F>(s[0][i], a[i], tokens[0]);
    }
#pragma unroll
    for (int j = 0; j < T::NT; j++) {
        float token[T::CC][F::TOKEN];
        if (j % 2 == 0 && j + 2 < T::NT) {
            load_tokens(tokens[(j / 2 + 1) % PAIRS], x, at.n + (j + 2) * GW_MMA_N, b, at.lane);
        }
#pragma unroll
        for (int n = 0; n < F::TOKEN; n++) {
            const float *from =
                numbers + n * T::TOKENS + at.n + j * GW_MMA_N + gw_mma_c_col(at.lane, 0);
            if (T::CC == 2) {
                const floats2 v = *(const floats2 *)from;
                token[0][n] = v.v[0];
                token[T::CC - 1][n] = v.v[1];
            } else {
                token[0][n] = from[0];
            }
        }
        if (j + 1 < T::NT) {
#pragma unroll
            for (int i = 0; i < T::MT; i++) {
                multiply<F>(s[(j + 1) % 2][i], a[i],
                            tokens[(j + 1) / 2 % PAIRS] + (j + 1) % 2 * GW_MMA_B);
            }
        }
#pragma unroll
        for (int i = 0; i < T::MT; i++) {
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                acc[i][j][k] = add_term<F>(s[j % 2][i][k], s[j % 2][i][SUMS - GW_MMA_C + k],
                                           o.row[i][k / T::CC], token[k % T::CC], acc[i][j][k]);
            }
        }
    }
}

/* Blocks [0, n) of a stage. */
template <class F, class T, class S>
__device__ static inline void compute(operands<F, T> &o, const unsigned char *w,
                                      const unsigned char *x, int n, const gw_tile_at &at,
                                      float (*acc)[T::NT][GW_MMA_C]) {
    const float *numbers = (const float *)(x + S::X);
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
        const unsigned char *record = w + (at.m + i) * F::RECORD;
#pragma unroll
        for (int k = 0; k < T::AR; k++) {
            load_quarter<F>(o.codes[i][k], record, gw_tile_row(at.lane, k), gw_tile_pair(at.lane));
        }
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            load_scales<F>(o.scale[i][k], record, gw_mma_c_row(at.lane, k * T::CC));
        }
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        unsigned a[T::MT][GW_MMA_A];
        const unsigned *operand[T::MT];
        if (b >= n) {
            break;
        }
#pragma unroll
        for (int i = 0; i < T::MT; i++) {
            operand[i] = a[i];
#pragma unroll
            for (int k = 0; k < GW_MMA_A; k++) {
                a[i][k] = codes<F>(o.codes[i][k % T::AR], b, k / T::AR);
            }
#pragma unroll
            for (int k = 0; k < T::CR; k++) {
                row_numbers<F>(o.scale[i][k], b, o.row[i][k]);
            }
        }
        add_block<F, T>(o, operand, x, numbers + b * F::TOKEN * T::TOKENS, b, at, acc);
    }
}

/* ---- a tile ---------------------------------------------------------------------------------- */

template <class F, class T, int RING>
__device__ static inline void gemm(const gw_gemm_params &p, unsigned char *shared) {
    typedef stages<F, T, RING> S;
    const gw_tile_at at = gw_tile_find<T>(p, (int)blockIdx.x);
    const int blocks = p.k / GW_ACT_BLOCK, units = (blocks + BLOCKS - 1) / BLOCKS;
    if (at.live == 0) {
        return;
    }
    unsigned char *x = shared + RING * S::W;
    pipeline<F, T, S> l;
    operands<F, T> o;
    float acc[T::MT][T::NT][GW_MMA_C];
#pragma unroll
    for (int i = 0; i < T::MT * T::NT * GW_MMA_C; i++) {
        acc[i / GW_MMA_C / T::NT][i / GW_MMA_C % T::NT][i % GW_MMA_C] = 0.0f;
    }
    begin_weights(l, p, at, units);
#pragma unroll
    for (int s = 0; s + 1 < RING; s++) {
        copy_weights(l, shared + s * S::W, s < units);
    }
    fetch_acts(l, p, at, 0, blocks);
    stash_acts(l, x);
    fetch_acts(l, p, at, BLOCKS, blocks);
    for (int u = 0, turn = 0; u < units; u++, turn = turn + 1 == RING ? 0 : turn + 1) {
        const int next = turn == 0 ? RING - 1 : turn - 1;
        gw_copy_wait<RING - 2>();
        __syncthreads();
        copy_weights(l, shared + next * S::W, u + RING - 1 < units);
        if (u + 1 < units) {
            stash_acts(l, x + (u + 1) % 2 * (S::X + S::N));
            fetch_acts(l, p, at, (u + 2) * BLOCKS, blocks);
        }
        compute<F, T, S>(o, shared + turn * S::W, x + u % 2 * (S::X + S::N), blocks - u * BLOCKS,
                         at, acc);
    }
    if (p.glu) {
        __syncthreads();
        gw_tile_glu<T>(p, at, acc, (float *)shared);
    } else {
        gw_tile_linear<T>(p, at, acc);
    }
}

typedef gw_tile<GW_GEMM_ROWS, GW_GEMM_TOKENS(WIDE), LANES == 32 ? 4 : 2, 2> large_tile;
typedef gw_tile<GW_GEMM_FEW_ROWS, GW_GEMM_FEW, 2, LANES == 32 ? 4 : 2> small_tile;

template <class F>
__device__ static inline void gemm_any(const gw_gemm_params &p, unsigned char *shared) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (gw_live(p.step) <= GW_GEMM_FEW) {
        gemm<F, small_tile, GW_GEMM_RING_FEW>(p, shared);
    } else {
        gemm<F, large_tile, GW_GEMM_RING(WIDE)>(p, shared);
    }
}

#define GEMM(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                     \
    GW_KERNEL(gw_gemm_##name, struct gw_gemm_params, GW_GEMM_THREADS, 1) {                         \
        GW_SHARED_DYNAMIC(unsigned char, shared);                                                  \
        gemm_any<format<low, high, offset, levels, term, sub, heads, bytes>>(p, shared);           \
    }
GW_STRIP_FORMATS(GEMM)

#endif

/* ---- plainly --------------------------------------------------------------------------------- */

/* One output: row r of w for a token. */
template <class F>
__device__ static inline float plain_sum(const gw_gemm_weight &w, int r, const uint8_t *x,
                                         int blocks) {
    const int units = (blocks + BLOCKS - 1) / BLOCKS;
    const uint8_t *strip = w.plane[0] + (size_t)(r / 16) * units * F::RECORD;
    float acc = 0.0f;
    for (int u = 0; u < units; u++) {
        const uint8_t *record = strip + (size_t)u * F::RECORD;
        quarter<F> q[4];
        scales<F> s;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            load_quarter<F>(q[t], record, r % 16, t);
        }
        load_scales<F>(s, record, r % 16);
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) {
            const unsigned *act = (const unsigned *)(x + ((size_t)u * BLOCKS + i) * ACT_BYTES);
            float row[F::ROW], token[F::TOKEN];
            int sum[2] = {0, 0};
            if (u * BLOCKS + i < blocks) {
#pragma unroll
                for (int t = 0; t < 4; t++) {
                    sum[0] = gw_dp4a((int)codes<F>(q[t], i, 0), (int)act[2 + t], sum[0]);
                    sum[1] = gw_dp4a((int)codes<F>(q[t], i, 1), (int)act[6 + t], sum[1]);
                }
                row_numbers<F>(s, i, row);
                token_numbers<F>(GW_F32_FROM_BITS(act[0]), act[1], token);
                acc = add_term<F>(MAGIC_BITS + sum[0] + (F::HALVES ? 0 : sum[1]),
                                  MAGIC_BITS + sum[1], row, token, acc);
            }
        }
    }
    return acc;
}

/* A strip of rows by GW_PLAIN_TOKENS tokens. */
template <class F> __device__ static inline void plain(const gw_gemm_params &p) {
    const int row = (int)blockIdx.x * 16 + (int)threadIdx.x % 16;
    const int t = (int)blockIdx.y * GW_PLAIN_TOKENS + (int)threadIdx.x / 16;
    const int blocks = p.k / GW_ACT_BLOCK;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (t < gw_live(p.step) && row < p.w[0].rows) {
        const uint8_t *x = (const uint8_t *)p.x + (size_t)t * blocks * ACT_BYTES;
        const size_t to = (size_t)t * p.stride + p.w[0].column + row;
        float v = plain_sum<F>(p.w[0], row, x, blocks);
        v = p.w[0].bias ? v + p.w[0].bias[row] : v;
        ((float *)p.y)[to] = p.residual ? v + p.residual[to] : v;
    }
}

#define PLAIN(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                    \
    GW_KERNEL(gw_gemm_plain_##name, struct gw_gemm_params, GW_PLAIN_TOKENS * 16) {                 \
        plain<format<low, high, offset, levels, term, sub, heads, bytes>>(p);                      \
    }
GW_STRIP_FORMATS(PLAIN)
