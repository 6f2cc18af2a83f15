/* kernels_hip/gemm/gemm_strips.h - a wave's strip of quantized weights times the tokens of a tile,
 * in the prefill order: what gemm.hip and experts/experts_gemm.hip share.
 *
 * Records of weights (strip.h) and blocks of activations go through shared memory, four blocks of
 * 32 at a time; a wave makes int8 operands out of the records itself. The sum of a block's products
 * is an exact integer that begins at the bits of 1.5 * 2^23, so that its conversion to float is one
 * subtraction; then comes the chain of docs/arithmetic.md, in registers. Where a record is one
 * term, integers add up before that.
 */
#ifndef GW_KERNELS_HIP_GEMM_STRIPS_H
#define GW_KERNELS_HIP_GEMM_STRIPS_H

#include "kernels_hip/gemm/gemm_format.h"

#if GW_MMA

/* ---- the tile -------------------------------------------------------------------------------- */

/* A wave has a strip of 16 rows and NT tiles of GW_MMA_N tokens; a block as many waves as the host
 * finds best. Strips of gate and up alternate in a GLU. */
template <class F, int NT_> struct tile {
    enum {
        NT = NT_,
        TOKENS = NT * GW_MMA_N,
        GW_MMA_PARTS,
        STEPS = BLOCKS * NT,
        RING = GW_GEMM_RING(WIDE, F::RECORD), /* records of a wave; stages of      */
        PIECES = (F::RECORD + 16 * LANES - 1) / (16 * LANES), /* activations are two */
        X = TOKENS * BLOCKS * GW_ACT_BLOCK,
        N = F::TOKEN * BLOCKS * TOKENS * 4,
        LEAST = NT * GW_MMA_N > 64 ? GW_GEMM_WAVES_MANY : GW_GEMM_WAVES_FEW,
        X_EACH = (TOKENS * BLOCKS + LEAST * LANES - 1) / (LEAST * LANES)
    };
};

/* ---- stages in shared memory ----------------------------------------------------------------- */

/* The next record of the wave to its slot; a commit even when none is there. */
template <class F, class T>
__device__ static inline void copy_record(unsigned char *slot, const uint8_t *&from, int lane,
                                          int there) {
    if (there) {
#pragma unroll
        for (int i = 0; i < T::PIECES; i++) {
            const int at = 16 * (i * LANES + lane);
            if (F::RECORD % (16 * LANES) == 0 || at < F::RECORD) {
                gw_copy_async(slot + at, from + at);
            }
        }
        from += F::RECORD;
    }
    gw_copy_commit();
}

/* Number n of block b of a token, in floats: a lane's tokens lie together. */
template <class F, class T> __device__ static inline int number_at(int b, int token, int n) {
    return T::CC == 2 ? (b * T::TOKENS + (token & ~1)) * F::TOKEN + 2 * n + token % 2
                      : (b * T::TOKENS + token) * F::TOKEN + n;
}

template <class T> struct acts { unsigned w[T::X_EACH][ACT_BYTES / 4]; };

template <class F, class T> __device__ static inline void stash_acts(acts<T> &a, unsigned char *x) {
    float *numbers = (float *)(x + T::X);
#pragma unroll
    for (int e = 0; e < T::X_EACH; e++) {
        const int id = (int)threadIdx.x + e * (int)blockDim.x, t = id / BLOCKS, b = id % BLOCKS;
        float o[F::TOKEN];
        prompt_block<F>(a.w[e], o);
        if (id < T::TOKENS * BLOCKS) {
            store4(x + half_at(t, b, 0), a.w[e] + 2);
            store4(x + half_at(t, b, 1), a.w[e] + 6);
#pragma unroll
            for (int n = 0; n < F::TOKEN; n++) {
                numbers[number_at<F, T>(b, t, n)] = o[n];
            }
        }
    }
}

/* ---- a stage --------------------------------------------------------------------------------- */

/* Where a lane finds the operands of tokens in a stage: per block, as half_at() has it. */
struct token_places {
    unsigned at[BLOCKS];
};
__device__ static inline token_places find_tokens(int lane) {
    token_places r;
    (void)lane;
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
#ifdef GW_LOAD_MATRICES
        r.at[b] = (unsigned)half_at(lane / 16 * 8 + lane % 8, b, lane / 8 % 2);
#else
        r.at[b] = (unsigned)b;
#endif
    }
    return r;
}

/* Operands of two tiles of tokens. stage: gw_shared_address. */
__device__ static inline void load_tokens(unsigned *o, gw_shared_at stage,
                                          const token_places &places, int token, int b, int lane) {
#ifdef GW_LOAD_MATRICES
    (void)lane;
    gw_load_matrices(o, stage + places.at[b] + (unsigned)token * (BLOCKS * GW_ACT_BLOCK));
#elif GW_WMMA
    (void)places;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int t = token + k / 2 * GW_MMA_N + gw_mma_b_col(lane);
        gw_wmma_load(o + k * GW_WMMA_QUARTERS, stage + half_at(t, b, k % 2), lane);
    }
#else
    (void)places;
#pragma unroll
    for (int k = 0; k < 2 * GW_MMA_B; k++) {
        const int t = token + k / 2 * GW_MMA_N + gw_mma_b_col(lane);
        o[k] = *(const unsigned *)(stage + half_at(t, b, k % 2) + gw_tile_pair(lane) * 4);
    }
#endif
}

/* Numbers of the lane's tokens of a tile. */
template <class F, class T>
__device__ static inline void load_numbers(float (*o)[F::TOKEN], const float *numbers, int b, int j,
                                           int lane) {
    const float *from = numbers + number_at<F, T>(b, j * GW_MMA_N + gw_mma_c_col(lane, 0), 0);
    if (T::CC * F::TOKEN == 4) {
        unsigned w[4];
        load4(w, from);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            o[k % T::CC][k / T::CC % F::TOKEN] = GW_F32_FROM_BITS(w[k]);
        }
    } else {
#pragma unroll
        for (int n = 0; n < F::TOKEN; n++) {
            if (T::CC == 2) {
                const floats2 v = *(const floats2 *)(from + 2 * n);
                o[0][n] = v.v[0];
                o[T::CC - 1][n] = v.v[1];
            } else {
                o[0][n] = from[n];
            }
        }
    }
}

/* A stage's blocks times its tokens, where they are one term: a few tiles of tokens at a time. */
template <class F, class T>
__device__ static inline void compute_record(const unsigned char *record, const unsigned char *x,
                                             const token_places &places, int lane,
                                             float (*acc)[GW_MMA_C]) {
#if GW_WMMA /* scales of eight rows are best used up block by block */
    enum { TILES = T::NT };
#else
    enum { TILES = T::NT < 4 || F::SCALED ? 2 : 4 };
#endif
    const gw_shared_at stage = gw_shared_address(x);
    const float *numbers = (const float *)(x + T::X);
    quarter<F> q[T::AR];
    scales<F> scale[T::CR];
    unsigned a[BLOCKS][GW_MMA_A];
    float row[T::CR][F::PROMPT_ROW];
#pragma unroll
    for (int k = 0; k < T::AR; k++) {
        load_quarter<F>(q[k], record, gw_tile_row(lane, k), GW_TILE_PAIR(lane, k));
    }
#pragma unroll
    for (int k = 0; k < T::CR; k++) {
        load_scales<F>(scale[k], record, gw_mma_c_row(lane, k * T::CC));
        prompt_row<F>(scale[k], 0, row[k]);
    }
#pragma unroll
    for (int k = 0; k < BLOCKS * GW_MMA_A; k++) {
        a[k / GW_MMA_A][k % GW_MMA_A] =
            codes<F>(q[k % GW_MMA_A % T::AR], k / GW_MMA_A, k % GW_MMA_A / T::AR);
    }
#pragma unroll
    for (int first = 0; first < T::NT; first += TILES) {
        int s[TILES][GW_MMA_C];
        gw_sync_wave(); /* or products of later tiles begin so early that registers spill */
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
#pragma unroll
            for (int j = 0; j < TILES; j += 2) {
                unsigned tokens[2 * GW_MMA_B];
                load_tokens(tokens, stage, places, (first + j) * GW_MMA_N, b, lane);
                multiply_record<F, T::CC>(s[j], a[b], tokens, scale, b);
                multiply_record<F, T::CC>(s[j + 1], a[b], tokens + GW_MMA_B, scale, b);
#if GW_WMMA
                gw_wmma_now(s[j]);
                gw_wmma_now(s[j + 1]);
#endif
            }
        }
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            float token[T::CC][F::TOKEN], minimums[GW_MMA_C] = {};
            gw_read_no_earlier();
#pragma unroll
            for (int b = F::MINIMUMS ? BLOCKS - 1 : 0; b >= 0; b--) { /* the scale is the same */
                load_numbers<F, T>(token, numbers, b, first + j, lane);
#pragma unroll
                for (int k = 0; k < (F::MINIMUMS ? GW_MMA_C : 0); k++) {
                    minimums[k] =
                        add_minimums<F>(scale[k / T::CC], b, token[k % T::CC], minimums[k]);
                }
            }
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                float &sum = acc[first + j][k];
                sum = prompt_term<F>(s[j][k], minimums[k], row[k / T::CC], token[k % T::CC], sum);
            }
        }
    }
}

/* A stage's blocks times its tokens. Operands are loaded two steps (tiles of a block) and
 * multiplied one step ahead of the chain, also from block to block. */
template <class F, class T>
__device__ static inline void compute_blocks(const unsigned char *record, const unsigned char *x,
                                             const token_places &places, int lane,
                                             float (*acc)[GW_MMA_C]) {
    const gw_shared_at stage = gw_shared_address(x);
    const float *numbers = (const float *)(x + T::X);
    quarter<F> q[T::AR];
    scales<F> scale[T::CR];
    unsigned a[GW_MMA_A], tokens[2][2 * GW_MMA_B];
    float row[T::CR][F::ROW], number[2][T::CC][F::TOKEN];
    int s[2][GW_MMA_C];
#pragma unroll
    for (int k = 0; k < T::AR; k++) {
        load_quarter<F>(q[k], record, gw_tile_row(lane, k), GW_TILE_PAIR(lane, k));
    }
    load_tokens(tokens[0], stage, places, 0, 0, lane);
#pragma unroll
    for (int k = 0; k < T::CR; k++) {
        load_scales<F>(scale[k], record, gw_mma_c_row(lane, k * T::CC));
    }
#pragma unroll
    for (int step = -1; step < T::STEPS; step++) {
        const int next = step + 1, after = step + 2;
        if (step >= 0 && step % 2 == 0 && after < T::STEPS) {
            load_tokens(tokens[after / 2 % 2], stage, places, after % T::NT * GW_MMA_N,
                        after / T::NT, lane);
        }
        if (next < T::STEPS) {
            if (next % T::NT == 0) {
#pragma unroll
                for (int k = 0; k < GW_MMA_A; k++) {
                    a[k] = codes<F>(q[k % T::AR], next / T::NT, k / T::AR);
                }
            }
            multiply<F>(s[next % 2], a, tokens[next / 2 % 2] + next % 2 * GW_MMA_B);
            load_numbers<F, T>(number[next % 2], numbers, next / T::NT, next % T::NT, lane);
        }
        if (step >= 0) {
            const int b = step / T::NT, j = step % T::NT;
            if (j == 0) {
#pragma unroll
                for (int k = 0; k < T::CR; k++) {
                    row_numbers<F>(scale[k], b, row[k]);
                }
            }
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                acc[j][k] = add_term<F>(s[step % 2][k], 0, row[k / T::CC],
                                        number[step % 2][k % T::CC], acc[j][k]);
            }
#if GW_WMMA
            gw_wmma_now(acc[j]);
#endif
        }
    }
}

#endif

#endif
