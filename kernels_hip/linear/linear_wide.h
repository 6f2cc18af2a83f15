/* kernels_hip/linear/linear_wide.h - how LINEAR and GLU of quantized weights take several rows of
 * x: matrix instructions, the same bits as linear.hip.
 */
#ifndef GW_KERNELS_HIP_LINEAR_WIDE_H
#define GW_KERNELS_HIP_LINEAR_WIDE_H

#include "kernels_hip/gemm/gemm_format.h"
#include "kernels_hip/linear/linear_quant.h"

#if GW_MMA

/* A block of 16 rows times up to GW_MMA_N rows of x is one instruction, or one for each half; a
 * thread has the terms of four results in each of the record's four lanes; or in the first, where a
 * record has one term. */
template <class F, int ROWS = GW_MMA_N>
struct gw_wide : gw_quantized<F::RECORD, ROWS, F::TERM, F::OFFSET> {
    enum {
        AR = LANES == 32 ? 2 : 1, /* rows of the strip whose codes a thread holds */
        CR = LANES == 32 ? 2 : 4, /* rows and columns of its results              */
        CC = LANES == 32 ? 2 : 1,
        SUMS = (F::SPAN ? 1 : 4) * GW_MMA_C
    };

    __device__ static inline int first_x(int q) { return GW_STRIP_BLOCKS * q * GW_ACT_WORDS; }
    template <class Source>
    __device__ static inline void add(Source &source, int, const unsigned *block, int row_words,
                                      float *sums, int live, gw_nothing &) {
        const int lane = gw_wave_lane(), column = gw_mma_b_col(lane);
        const unsigned *mine =
            block + (column < live ? column : 0) * row_words + 8 + 8 * gw_tile_pair(lane);
        const unsigned char *record = source.take();
        quarter<F> quarters[AR];
        scales<F> scale[CR];
#pragma unroll
        for (int k = 0; k < AR; k++) {
            load_quarter<F>(quarters[k], record, gw_tile_row(lane, k), gw_tile_pair(lane));
        }
#pragma unroll
        for (int k = 0; k < CR; k++) {
            load_scales<F>(scale[k], record, gw_mma_c_row(lane, k * CC));
        }
        source.done();
        const unsigned *theirs[CC];
#pragma unroll
        for (int c = 0; c < CC; c++) {
            const int col = gw_mma_c_col(lane, c);
            theirs[c] = block + (col < live ? col : 0) * row_words;
        }
        unsigned b[2 * GW_MMA_B], scale_of[CC][2] = {}, second_of[CC][2] = {}; /* of two blocks */
        int s[(F::HALVES ? 2 : 1) * GW_MMA_C];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned a[GW_MMA_A];
            float row[CR][F::ROW], token[CC][F::TOKEN];
            if (i % 2 == 0) {
                load4(b, mine + 2 * i);
#pragma unroll
                for (int c = 0; c < CC; c++) {
                    load2(scale_of[c], theirs[c] + i);
                    if (F::TOKEN > 1) {
                        load2(second_of[c], theirs[c] + GW_STRIP_BLOCKS + i);
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < GW_MMA_A; k++) {
                a[k] = codes<F>(quarters[k % AR], i, k / AR);
            }
            multiply<F>(s, a, b + i % 2 * GW_MMA_B, !F::SPAN || i == 0);
            if (F::SPAN && i < 3) {
                continue;
            }
#pragma unroll
            for (int c = 0; c < CC; c++) {
                terms_of(scale_of[c][i % 2], second_of[c][i % 2], token[c]);
            }
#pragma unroll
            for (int k = 0; k < CR; k++) {
                row_numbers<F>(scale[k], i, row[k]);
            }
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                float *sum = sums + (F::SPAN ? 0 : i * GW_MMA_C) + k;
                *sum = add_term<F>(s[k], s[(F::HALVES ? GW_MMA_C : 0) + k], row[k / CC],
                                   token[k % CC], *sum);
            }
        }
    }
    /* What the term needs of a block of x. */
    __device__ static inline void terms_of(unsigned scale, unsigned second, float *o) {
        o[0] = GW_F32_FROM_BITS(scale);
        if (F::AFFINE) {
            o[F::TOKEN - 1] = GW_F32_FROM_BITS(second);
        } else if (F::TERM == GW_TERM_Q2) {
            o[1 % F::TOKEN] = (float)gw_first_sum(second);
            o[2 % F::TOKEN] = (float)gw_second_sum(second);
        }
    }
    /* A thread has all blocks of its results; lanes of arith.h without a term are +0. */
    __device__ static inline void leave(float *values, int q, const float *sums) {
        enum { STEP = GW_LINEAR_SUMS_STEP(ROWS) };
        const int lane = gw_wave_lane();
        float *to = values + q * (int)ROWS * STEP;
#pragma unroll
        for (int k = 0; k < GW_MMA_C; k++) {
            const float *of = sums + k;
            const float v = F::SPAN
                                ? of[0] + 0.0f
                                : (of[0] + of[GW_MMA_C]) + (of[2 * GW_MMA_C] + of[3 * GW_MMA_C]);
            if (ROWS == GW_MMA_N || gw_mma_c_col(lane, k) < ROWS) {
                to[gw_mma_c_col(lane, k) * STEP + gw_mma_c_row(lane, k)] = v;
            }
        }
    }
};

#endif

#endif
