/* kernels_hip/linear/linear_wide.h - how LINEAR and GLU of quantized weights take several rows of
 * x: matrix instructions, the same bits as linear.hip.
 */
#ifndef GW_KERNELS_HIP_LINEAR_WIDE_H
#define GW_KERNELS_HIP_LINEAR_WIDE_H

#include "kernels_hip/gemm/gemm_format.h"
#include "kernels_hip/linear/linear_quant.h"

#if GW_MMA

/* What a thread has of two blocks of a row of x, as operand B; from: in its first quarter. */
#if GW_WMMA
__device__ static inline void load_codes(unsigned *b, const unsigned *from) {
#pragma unroll
    for (int q = 0; q < GW_WMMA_QUARTERS; q++) {
        unsigned v[4];
        load4(v, from + 8 * q);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            b[i * GW_WMMA_QUARTERS + q] = v[i];
        }
    }
}
#define LOAD_CODES load_codes
#else
#define LOAD_CODES load4
#endif

/* A block of 16 rows times GW_MMA_N rows of x is one instruction, or one for each half; a thread
 * has the terms of GW_MMA_C results in each of the record's four lanes; or in the first, where a
 * record has one term. More rows of x are TILES such products, for which a record is unpacked
 * once. */
template <class F, int ROWS = GW_MMA_N>
struct gw_wide : gw_quantized<F::RECORD, ROWS, F::TERM, F::OFFSET> {
    enum {
        GW_MMA_PARTS,
        TILES = (ROWS + GW_MMA_N - 1) / GW_MMA_N,
        OF_TILE = (F::SPAN ? 1 : 4) * GW_MMA_C,
        SUMS = TILES * OF_TILE
    };

    /* What a thread reads of the rows of x in a tile. Those that are not alive are the first one's;
     * of several tiles (live < 0) they are whatever lies in their place, for nobody wants what
     * comes of it. */
    struct reads {
        const unsigned *codes, *numbers[CC];

        __device__ inline reads(const unsigned *block, int row_words, int live) {
            const int lane = gw_wave_lane(), column = gw_mma_b_col(lane);
            const int there = live < 0 || column < live;
            codes = block + (there ? column : 0) * row_words + 8 + 8 * gw_tile_pair(lane);
#pragma unroll
            for (int c = 0; c < CC; c++) {
                const int col = gw_mma_c_col(lane, c);
                numbers[c] = block + (live < 0 || col < live ? col : 0) * row_words;
            }
        }
        __device__ inline void next(int words) {
            codes += words;
#pragma unroll
            for (int c = 0; c < CC; c++) {
                numbers[c] += words;
            }
        }
    };

    __device__ static inline int first_x(int q) { return GW_STRIP_BLOCKS * q * GW_ACT_WORDS; }
    template <class Source>
    __device__ static inline void add(Source &source, int, const unsigned *block, int row_words,
                                      float *sums, int live, gw_nothing &) {
        const int lane = gw_wave_lane();
        const unsigned char *record = source.take();
        quarter<F> quarters[AR];
        scales<F> scale[CR];
#pragma unroll
        for (int k = 0; k < AR; k++) {
            load_quarter<F>(quarters[k], record, gw_tile_row(lane, k), GW_TILE_PAIR(lane, k));
        }
#if GW_WMMA
        static_assert(TILES == 1, "more rows are not multiplied at once");
        if (LATE) {
            add_blocks(quarters, 0, block, row_words, sums, live, record);
            source.done();
            return;
        }
#endif
#pragma unroll
        for (int k = 0; k < CR; k++) {
            load_scales<F>(scale[k], record, gw_mma_c_row(lane, k * CC));
        }
        source.done();
        if (TILES == 1) {
            add_blocks(quarters, scale, block, row_words, sums, live);
        } else {
            add_tiles(quarters, scale, block, row_words, sums);
        }
    }
    /* All blocks of a record, one tile. */
    __device__ static inline void add_blocks(const quarter<F> *quarters, const scales<F> *scale,
                                             const unsigned *block, int row_words, float *sums,
#if GW_WMMA
                                             int live, const unsigned char *record = 0) {
#else
                                             int live) {
#endif
        const reads of(block, row_words, live);
        unsigned b[2 * GW_MMA_B], scale_of[CC][2] = {}, second_of[CC][2] = {}; /* of two blocks */
        int s[(F::HALVES ? 2 : 1) * GW_MMA_C];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned a[GW_MMA_A];
            float row[CR][F::ROW];
            if (i % 2 == 0) {
                LOAD_CODES(b, of.codes + 2 * i);
                load_numbers(of, i, scale_of, second_of);
            }
#pragma unroll
            for (int k = 0; k < GW_MMA_A; k++) {
                a[k] = codes<F>(quarters[k % AR], i, k / AR);
            }
            multiply<F>(s, a, b + i % 2 * GW_MMA_B, !F::SPAN || i == 0);
            if (F::SPAN && i < 3) {
                continue;
            }
#if GW_WMMA
            numbers_of(row, scale, record, i);
#else
#pragma unroll
            for (int k = 0; k < CR; k++) {
                row_numbers<F>(scale[k], i, row[k]);
            }
#endif
            add_terms(s, row, scale_of, second_of, i, sums);
#if GW_WMMA
            gw_wmma_now(sums + (F::SPAN ? 0 : i * GW_MMA_C));
#endif
        }
    }
#if GW_WMMA
    /* Of records so large that their loads and the scales of eight rows do not fit into registers
     * together, scales are read when their block comes. */
    static constexpr int LATE = F::RECORD > 1600;
    __device__ static inline void numbers_of(float (*row)[F::ROW], const scales<F> *scale,
                                             const unsigned char *record, int i) {
#pragma unroll
        for (int k = 0; k < CR; k++) {
            scales<F> late;
            if (LATE) {
                load_scales<F>(late, record, gw_mma_c_row(gw_wave_lane(), k));
            }
            row_numbers<F>(LATE ? late : scale[k], i, row[k]);
        }
    }
#endif
    /* Two blocks at a time, all tiles. */
    __device__ static inline void add_tiles(const quarter<F> *quarters, const scales<F> *scale,
                                            const unsigned *block, int row_words, float *sums) {
        const reads first(block, row_words, -1);
        int s[F::SPAN ? TILES : 1][(F::HALVES ? 2 : 1) * GW_MMA_C];
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            unsigned a[2][GW_MMA_A];
            float row[2][CR][F::ROW];
#pragma unroll
            for (int j = 0; j < 2; j++) {
#pragma unroll
                for (int k = 0; k < GW_MMA_A; k++) {
                    a[j][k] = codes<F>(quarters[k % AR], i + j, k / AR);
                }
#pragma unroll
                for (int k = 0; k < CR; k++) {
                    row_numbers<F>(scale[k], i + j, row[j][k]);
                }
            }
            reads of = first;
#pragma unroll
            for (int t = 0; t < (int)TILES; t++, of.next(GW_MMA_N * row_words)) {
                unsigned b[2 * GW_MMA_B], scale_of[CC][2] = {}, second_of[CC][2] = {};
                LOAD_CODES(b, of.codes + 2 * i);
                load_numbers(of, i, scale_of, second_of);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    int *of_tile = s[F::SPAN ? t : 0];
                    multiply<F>(of_tile, a[j], b + j * GW_MMA_B, !F::SPAN || i + j == 0);
                    if (!F::SPAN || i + j == 3) {
                        add_terms(of_tile, row[j], scale_of, second_of, i + j, sums + t * OF_TILE);
                    }
                }
            }
        }
    }
    /* Of blocks i and i + 1 of the rows of x that a thread has results of. */
    __device__ static inline void load_numbers(const reads &of, int i, unsigned (*scale)[2],
                                               unsigned (*second)[2]) {
#pragma unroll
        for (int c = 0; c < CC; c++) {
            load2(scale[c], of.numbers[c] + i);
            if (F::TOKEN > 1) {
                load2(second[c], of.numbers[c] + GW_STRIP_BLOCKS + i);
            }
        }
    }
    __device__ static inline void add_terms(const int *s, const float (*row)[F::ROW],
                                            const unsigned (*scale)[2], const unsigned (*second)[2],
                                            int i, float *sums) {
        float token[CC][F::TOKEN];
#pragma unroll
        for (int c = 0; c < CC; c++) {
            terms_of(scale[c][i % 2], second[c][i % 2], token[c]);
        }
#pragma unroll
        for (int k = 0; k < GW_MMA_C; k++) {
            float *sum = sums + (F::SPAN ? 0 : i * GW_MMA_C) + k;
            *sum = add_term<F>(s[k], s[(F::HALVES ? GW_MMA_C : 0) + k], row[k / CC], token[k % CC],
                               *sum);
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
        for (int k = 0; k < TILES * GW_MMA_C; k++) {
            const float *of = sums + k / GW_MMA_C * OF_TILE + k % GW_MMA_C;
            const int col = k / GW_MMA_C * GW_MMA_N + gw_mma_c_col(lane, k % GW_MMA_C);
            const float v = F::SPAN
                                ? of[0] + 0.0f
                                : (of[0] + of[GW_MMA_C]) + (of[2 * GW_MMA_C] + of[3 * GW_MMA_C]);
            if (ROWS % GW_MMA_N == 0 || col < ROWS) {
                to[col * STEP + gw_mma_c_row(lane, k % GW_MMA_C)] = v;
            }
        }
    }
    /* The same in registers, for a wave that has all classes: the results of a thread, and where in
     * 16 rows of W and ROWS of x result k is. */
    enum { RESULTS = TILES * GW_MMA_C };
    __device__ static inline void join(float *v, const float *sums) {
#pragma unroll
        for (int k = 0; k < (int)RESULTS; k++) {
            const float *of = sums + k / GW_MMA_C * OF_TILE + k % GW_MMA_C;
            v[k] = F::SPAN ? of[0] + 0.0f
                           : (of[0] + of[GW_MMA_C]) + (of[2 * GW_MMA_C] + of[3 * GW_MMA_C]);
        }
    }
    __device__ static inline int row_of(int lane, int k) {
        return gw_mma_c_row(lane, k % GW_MMA_C);
    }
    __device__ static inline int col_of(int lane, int k) {
        return k / GW_MMA_C * GW_MMA_N + gw_mma_c_col(lane, k % GW_MMA_C);
    }
};

#endif

#endif
