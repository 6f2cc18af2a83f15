/* kernels_hip/linear/linear_four.h - LINEAR and GLU of quantized weights for up to four rows of x:
 * as linear_wide.h, but the columns of a matrix instruction, of which four rows would leave half or
 * more without use, have SIDES blocks of a record side by side. Part of its k is one block's, part
 * the next one's; a column has zeros where another column's block is. So a thread has the terms of
 * one column's blocks alone: as many instructions of the matrix unit, half of the rest on NVIDIA
 * and a quarter on AMD, also where sums are joined.
 */
#ifndef GW_KERNELS_HIP_LINEAR_FOUR_H
#define GW_KERNELS_HIP_LINEAR_FOUR_H

#include "kernels_hip/linear/linear_wide.h"

#if GW_MMA && !GW_WMMA

template <class F> struct gw_four : gw_quantized<F::RECORD, 4, F::TERM, F::OFFSET> {
    enum {
        ROWS = 4,
        SIDES = GW_MMA_N / ROWS,
        TURNS = GW_STRIP_BLOCKS / SIDES, /* column n has blocks n / ROWS * TURNS .. + TURNS - 1 */
        GW_MMA_PARTS,                    /* as in gw_wide */
        PARTS = F::HALVES ? 2 : 1,
        SUMS = TURNS * GW_MMA_C
    };

    /* The words of a record's blocks that belong to this thread's column, as the two halves of k:
     * its side's, and zeros, where a side never writes (NVIDIA). */
    struct held {
        unsigned b[2][4];
    };

    __device__ static inline int first_x(int q) { return GW_STRIP_BLOCKS * q * GW_ACT_WORDS; }

    /* Scales of a row in blocks [from, from + TURNS), as if those were the first ones. */
    __device__ static inline void load_scales_from(scales<F> &s, const unsigned char *record,
                                                   int row, int from) {
        if (F::HEADS == 1) {
            const unsigned char *head = record + F::AT_HEAD + row * F::BYTES;
            s.head[0] = F::BYTES == 4 ? *(const unsigned *)head : *(const uint16_t *)head;
        } else {
            load_few<TURNS * F::BYTES>(s.head,
                                       record + F::AT_HEAD + (row * F::HEADS + from) * F::BYTES);
        }
        if (F::SUB) {
            load_few<2 * TURNS>(s.sub, record + F::AT_SUB + 8 * row + 2 * from);
        }
    }
    template <int N> __device__ static inline void load_few(unsigned *to, const unsigned char *at) {
        if (N == 8) {
            load2(to, at);
        } else {
            to[0] = N == 4 ? *(const unsigned *)at : N == 2 ? *(const uint16_t *)at : *at;
        }
    }

    /* Sums over a turn's blocks, or over their halves, that begin at MAGIC. */
    __device__ static inline void multiply_turn(int *s, const quarter<F> *q, int turn,
                                                const held &x, int side, int lane) {
#pragma unroll
        for (int k = 0; k < PARTS * GW_MMA_C; k++) {
            s[k] = MAGIC_BITS;
        }
        if (LANES == 32) { /* a block after the other; of its halves, where their sums are apart */
#pragma unroll
            for (int i = 0; i < 2; i++) {
                unsigned a[GW_MMA_A], b[GW_MMA_B];
#pragma unroll
                for (int k = 0; k < GW_MMA_A; k++) {
                    const int of = PARTS == 1 ? i : k / AR, h = PARTS == 1 ? k / AR : i;
                    a[k] = codes<F>(q[k % AR], of * TURNS + turn, h);
                }
#pragma unroll
                for (int k = 0; k < GW_MMA_B; k++) {
                    const int of = PARTS == 1 ? i : k, h = PARTS == 1 ? k : i;
                    b[k] = x.b[of][2 * turn + h];
                }
                gw_mma_int8(s + i % PARTS * GW_MMA_C, a, b);
            }
        } else { /* a quarter of k is a lane's, so each block has its turn there */
            const int t = gw_tile_pair(lane);
            unsigned c[GW_STRIP_BLOCKS][2];
#pragma unroll
            for (int k = 0; k < 2 * GW_STRIP_BLOCKS; k++) {
                c[k / 2][k % 2] = codes<F>(q[0], k / 2, k % 2);
            }
#pragma unroll
            for (int r = 0; r < GW_STRIP_BLOCKS; r++) {
                const int block = (t + r) % GW_STRIP_BLOCKS;
                unsigned a[2][2] = {{0, 0}, {0, 0}}, b[2][2] = {{0, 0}, {0, 0}};
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const unsigned low = block & 1 ? c[1][h] : c[0][h];
                    const unsigned high = block & 1 ? c[3][h] : c[2][h];
                    a[h % PARTS][h] = block & 2 ? high : low;
                    b[h % PARTS][h] = side == block ? x.b[0][h] : 0;
                }
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    gw_mma_int8(s + part * GW_MMA_C, a[part], b[part]);
                }
            }
        }
    }

    template <class Source>
    __device__ static inline void add(Source &source, int, const unsigned *block, int row_words,
                                      float *sums, int live, held &x) {
        const int lane = gw_wave_lane(), column = gw_mma_b_col(lane), side = column / ROWS;
        const int row_of_x = column % ROWS, result = gw_mma_c_col(lane, 0);
        const int from = result / ROWS * TURNS; /* first block of this thread's results */
        const unsigned *mine = block + (row_of_x < live ? row_of_x : 0) * row_words + 8 +
                               8 * gw_tile_pair(lane) + 2 * TURNS * side;
        const unsigned char *record = source.take();
        quarter<F> quarters[AR];
        scales<F> scale[CR];
#pragma unroll
        for (int k = 0; k < AR; k++) {
            load_quarter<F>(quarters[k], record, gw_tile_row(lane, k), gw_tile_pair(lane));
        }
#pragma unroll
        for (int k = 0; k < CR; k++) {
            load_scales_from(scale[k], record, gw_mma_c_row(lane, k * CC), from);
        }
        source.done();
        unsigned scale_of[CC][TURNS], second_of[CC][TURNS];
        if (LANES == 64) {
            load2(x.b[0], mine);
        } else {
#pragma unroll
            for (int k = 0; k < SIDES; k++) {
                gw_load_if(side == k, x.b[k % 2], mine);
            }
        }
#pragma unroll
        for (int c = 0; c < CC; c++) {
            const int col = (result + c) % ROWS;
            const unsigned *theirs = block + (col < live ? col : 0) * row_words + from;
            load_few<4 * TURNS>(scale_of[c], (const unsigned char *)theirs);
            if (F::TOKEN > 1) {
                load_few<4 * TURNS>(second_of[c],
                                    (const unsigned char *)(theirs + GW_STRIP_BLOCKS));
            }
        }
        int products[TURNS][PARTS * GW_MMA_C]; /* all of them before any is waited for */
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            multiply_turn(products[i], quarters, i, x, side, lane);
        }
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            const int *s = products[i];
            float row[CR][F::ROW], token[CC][F::TOKEN];
#pragma unroll
            for (int c = 0; c < CC; c++) {
                gw_wide<F>::terms_of(scale_of[c][i], second_of[c][i], token[c]);
            }
#pragma unroll
            for (int k = 0; k < CR; k++) {
                row_numbers<F>(scale[k], i, row[k]);
            }
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                float *sum = sums + i * GW_MMA_C + k;
                *sum = add_term<F>(s[k], s[(PARTS - 1) * GW_MMA_C + k], row[k / CC], token[k % CC],
                                   *sum);
            }
        }
    }
    /* A thread has the blocks of its side; other sides of a row are as many threads further on as
     * they are columns. Of two sides each takes half of the results. */
    __device__ static inline void leave(float *values, int q, const float *sums) {
        enum { STEP = GW_LINEAR_SUMS_STEP(ROWS), HALF = GW_MMA_C / 2 };
        const int lane = gw_wave_lane(), column = gw_mma_c_col(lane, 0);
        const int side = column / ROWS;
        float *to = values + q * (int)ROWS * STEP;
        float v[GW_MMA_C];
#pragma unroll
        for (int k = 0; k < GW_MMA_C; k++) {
            v[k] = TURNS == 2 ? sums[k] + sums[(TURNS - 1) * GW_MMA_C + k] : sums[k];
        }
        if (LANES == 32) {
#pragma unroll
            for (int k = 0; k < HALF; k++) {
                const float mine = side ? v[HALF + k] : v[k], theirs = side ? v[k] : v[HALF + k];
                const float sum = mine + gw_shuffle_xor(theirs, 2);
                const int at = side * HALF + k;
                to[gw_mma_c_col(lane, at) % ROWS * STEP + gw_mma_c_row(lane, at)] = sum;
            }
        } else {
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                v[k] = v[k] + gw_shuffle_xor(v[k], 4);
                v[k] = v[k] + gw_shuffle_xor(v[k], 8);
                if (side == 0) {
                    to[column * STEP + gw_mma_c_row(lane, k)] = v[k];
                }
            }
        }
    }
    /* The same in registers, as in gw_wide; of four sides the first has the results, and the others
     * are told a column that there is not. A whole wave. */
    enum { RESULTS = SIDES == 2 ? GW_MMA_C / 2 : GW_MMA_C };
    __device__ static inline int result_of(int lane, int k) {
        return SIDES == 2 ? gw_mma_c_col(lane, 0) / ROWS * (int)RESULTS + k : k;
    }
    __device__ static inline int row_of(int lane, int k) {
        return gw_mma_c_row(lane, result_of(lane, k));
    }
    __device__ static inline int col_of(int lane, int k) {
        const int col = gw_mma_c_col(lane, result_of(lane, k));
        return SIDES == 2 ? col % ROWS : col;
    }
    __device__ static inline void join(float *o, const float *sums) {
        const int side = gw_mma_c_col(gw_wave_lane(), 0) / ROWS;
        float v[GW_MMA_C];
#pragma unroll
        for (int k = 0; k < GW_MMA_C; k++) {
            v[k] = TURNS == 2 ? sums[k] + sums[(TURNS - 1) * GW_MMA_C + k] : sums[k];
        }
#pragma unroll
        for (int k = 0; k < (int)RESULTS; k++) {
            if (SIDES == 2) {
                const int other = (RESULTS + k) % GW_MMA_C;
                const float mine = side ? v[other] : v[k], theirs = side ? v[k] : v[other];
                o[k] = mine + gw_shuffle_xor(theirs, 2);
            } else {
                o[k] = v[k] + gw_shuffle_xor(v[k], 4);
                o[k] = o[k] + gw_shuffle_xor(o[k], 8);
            }
        }
    }
};

/* Where a record has one term, columns without use cost no terms, and blocks side by side would
 * have to be joined. */
template <class F, int SPAN = F::SPAN> struct gw_few : gw_four<F> {};
template <class F> struct gw_few<F, 1> : gw_wide<F, 4> {};

#elif GW_MMA

/* WMMA: a lane has all of k, or half of it, so it has no part of k for each block. */
template <class F> struct gw_few : gw_wide<F, 4> {};

#endif

#endif
