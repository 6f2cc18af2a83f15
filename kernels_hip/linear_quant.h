/* kernels_hip/linear_quant.h - LINEAR and GLU of quantized weights in the decode order: what a wave
 * does with a record (linear_stream.h has the loop).
 *
 * Block b belongs to lane b mod 32 of arith.h, so record u has lanes 4 (u mod 8) .. + 3, and wave q
 * of a tile takes the records u = q mod 8: four chains per row.
 */
#ifndef GW_KERNELS_HIP_LINEAR_QUANT_H
#define GW_KERNELS_HIP_LINEAR_QUANT_H

#include "kernels_hip/linear_stream.h"
#include "kernels_hip/strip_read.h"

enum { ACT_WORDS = GW_ACT_WORDS };

template <class F, int ROWS> struct gw_quantized {
    enum { CLASSES = 8, RECORD = F::BYTES, DIRECT = 0, ACT8 = 1, NORM = ROWS == 1 };
    __device__ static inline int records(int terms) {
        return (terms + GW_STRIP_BLOCKS - 1) / GW_STRIP_BLOCKS;
    }
    __device__ static inline void stage(const gw_linear_params &p, unsigned *x,
                                        const unsigned char *from, int n) {
        enum { AT_ONCE = ROWS < 4 ? 4 : 1 };
        gw_stage<2, ROWS, AT_ONCE>(from, (size_t)p.row_bytes, p.row_bytes / 4, x, p.row_words, n);
    }
};

/* ---- one row of x: dot products -------------------------------------------------------------- */

/* A thread has a block of a row (of two rows where LANES is 32). */
template <class F> struct gw_dot : gw_quantized<F, 1> {
    enum { SUMS = SETS, OUTS = 1, FOLDERS = 64, VALUES = 64 };

    template <class Ring, class Refill>
    __device__ static inline void add(Ring &ring, int slot, Refill refill, int u, const unsigned *x,
                                      int, float *sums, int) {
        struct __align__(8) pair {
            unsigned w[2];
        };
        const int lane = gw_wave_lane(), i = lane % 4;
        const pair *from = (const pair *)(x + ACT_WORDS * (4 * u + i));
        pair act[ACT_WORDS / 2]; /* before the weights are waited for */
#pragma unroll
        for (int k = 0; k < ACT_WORDS / 2; k++) {
            act[k] = from[k];
        }
        const unsigned char *record = ring.get(slot);
        gw_row_block<F> codes[SETS];
        gw_block_scales<F> scales[SETS];
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            codes[s].load(record, 8 * s, lane);
            scales[s].load(record, lane / 4 + 8 * s, i);
        }
        ring.done();
        refill();
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            int half[2] = {0, 0};
#pragma unroll
            for (int t = 0; t < 4; t++) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    half[h] = gw_dp4a((int)codes[s].word(h, t),
                                      (int)act[1 + 2 * h + t / 2].w[t % 2], half[h]);
                }
            }
            const int sum = F::TERM == GW_TERM_HALVES || F::TERM == GW_TERM_Q2
                                ? gw_sub_scale<F>(scales[s].sub, 0) * half[0] +
                                      gw_sub_scale<F>(scales[s].sub, 1) * half[1]
                                : half[0] + half[1];
            sums[s] = scales[s].term(sum, GW_F32_FROM_BITS(act[0].w[0]), act[0].w[1], sums[s]);
        }
    }
    template <int ONCE> __device__ static inline float join(const float *values, int fold, int) {
        float v = gw_join_8<ONCE>(values + fold, VALUES);
        v = v + gw_quad_xor<2>(v);
        return v + gw_quad_xor<1>(v);
    }
    __device__ static inline int speaks(int fold) { return fold % 4 == 0; }
    __device__ static inline int out_row(int fold) { return fold / 4; }
    __device__ static inline int out_col(int, int) { return 0; }
};

/* ---- several rows of x: matrix instructions -------------------------------------------------- */

#if GW_MMA

/* A block of 16 rows times up to GW_MMA_N rows of x is one instruction; a thread has the terms of
 * four results in each of the record's four lanes. */
template <class F> struct gw_wide : gw_quantized<F, GW_MMA_N> {
    enum { SUMS = 4 * GW_MMA_C, OUTS = 1, FOLDERS = GW_MMA_C * LANES, VALUES = SUMS * LANES };

    template <class Ring, class Refill>
    __device__ static inline void add(Ring &ring, int slot, Refill refill, int u, const unsigned *x,
                                      int row_words, float *sums, int live) {
        const int lane = gw_wave_lane(), t = gw_mma_b_k_int8(lane, 0) / 4;
        const int column = gw_mma_b_col(lane);
        const unsigned *mine = x + (column < live ? column : 0) * row_words + 4 * ACT_WORDS * u;
        unsigned b[4][GW_MMA_B]; /* before the weights are waited for */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            b[i][0] = mine[ACT_WORDS * i + 2 + t];
            b[i][1] = mine[ACT_WORDS * i + 6 + t];
        }
        const unsigned char *record = ring.get(slot);
        gw_quarter<F> codes[SETS];
        gw_block_scales<F> scales[4][GW_MMA_C];
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            codes[s].load(record, gw_mma_a_row(lane, s), t);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                scales[i][k].load(record, gw_mma_c_row(lane, k), i);
            }
        }
        ring.done();
        refill();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int sum[GW_MMA_C] = {0, 0, 0, 0};
            multiply(codes, scales[i], i, b[i], sum);
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                const int col = gw_mma_c_col(lane, k);
                const unsigned *block =
                    x + (col < live ? col : 0) * row_words + ACT_WORDS * (4 * u + i);
                sums[i * GW_MMA_C + k] = scales[i][k].term(sum[k], GW_F32_FROM_BITS(block[0]),
                                                           block[1], sums[i * GW_MMA_C + k]);
            }
        }
    }
    /* Registers of A: half h of the rows of set s. */
    __device__ static inline int register_of(int h, int s) { return LANES == 32 ? 2 * h + s : h; }

    __device__ static inline void multiply(const gw_quarter<F> *codes,
                                           const gw_block_scales<F> *scales, int i,
                                           const unsigned *b, int *sum) {
        unsigned a[GW_MMA_A];
        if (F::TERM == GW_TERM_SIGNED || F::TERM == GW_TERM_AFFINE) {
#pragma unroll
            for (int s = 0; s < SETS; s++) {
                a[register_of(0, s)] = codes[s].word(0, i);
                a[register_of(1, s)] = codes[s].word(1, i);
            }
            gw_mma_int8(sum, a, b);
            return;
        }
        int half[2][GW_MMA_C] = {{0, 0, 0, 0}, {0, 0, 0, 0}}; /* the other half's codes are 0 */
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int s = 0; s < SETS; s++) {
                a[register_of(h, s)] = codes[s].word(h, i);
                a[register_of(1 - h, s)] = 0;
            }
            gw_mma_int8(half[h], a, b);
        }
#pragma unroll
        for (int k = 0; k < GW_MMA_C; k++) {
            sum[k] = gw_sub_scale<F>(scales[k].sub, 0) * half[0][k] +
                     gw_sub_scale<F>(scales[k].sub, 1) * half[1][k];
        }
    }
    template <int ONCE> __device__ static inline float join(const float *values, int fold, int) {
        float z[4];
#pragma unroll
        for (int i = 0; i < 4; i++) { /* result fold / LANES of thread fold % LANES */
            z[i] = gw_join_8<ONCE>(values + i * GW_MMA_C * LANES + fold, VALUES);
        }
        return (z[0] + z[2]) + (z[1] + z[3]);
    }
    __device__ static inline int speaks(int) { return 1; }
    __device__ static inline int out_row(int fold) {
        return gw_mma_c_row(fold % LANES, fold / LANES);
    }
    __device__ static inline int out_col(int fold, int) {
        return gw_mma_c_col(fold % LANES, fold / LANES);
    }
};

#endif

#endif
