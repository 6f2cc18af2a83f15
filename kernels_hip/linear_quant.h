/* kernels_hip/linear_quant.h - LINEAR and GLU of quantized weights in the decode order: what dot
 * products (linear.hip) and matrix instructions (linear_four.hip, linear_wide.hip) share;
 * linear_stream.h has the loop.
 *
 * Block b belongs to lane b mod 32 of arith.h, so record u has lanes 4 (u mod 8) .. + 3, and wave q
 * of a tile takes the records u = q mod 8: four chains per row.
 *
 * One row of x lies in shared memory as blocks. Several lie as a thread reads them for a record, 40
 * words: the scales of its four blocks, then their second numbers, then for each quarter t the
 * words t and t + 4 of block 0, of block 1, ..: eight neighbours.
 */
#ifndef GW_KERNELS_HIP_LINEAR_QUANT_H
#define GW_KERNELS_HIP_LINEAR_QUANT_H

#include "kernels_hip/linear_stream.h"
#include "kernels_hip/strip.h"

enum { ACT_WORDS = GW_ACT_WORDS };

/* The sums of an activation block's halves. */
GW_DEVICE int gw_first_sum(unsigned sums) { return (int)(short)(sums & 0xffffu); }
GW_DEVICE int gw_second_sum(unsigned sums) { return (int)(short)(sums >> 16); }

template <int RECORD_, int ROWS, int TERM, int OFFSET> struct gw_quantized {
    enum {
        CLASSES = GW_LINEAR_CLASSES,
        RECORD = RECORD_,
        STEP = CLASSES * RECORD,
        PART = RECORD,
        JUMP = 0,
        DIRECT = 0,
        X_STEP = CLASSES * GW_STRIP_BLOCKS * GW_ACT_WORDS,
        ACT8 = 1,
        X_ROWS = ROWS
    };

    __device__ static inline int records(int terms) {
        return (terms + GW_STRIP_BLOCKS - 1) / GW_STRIP_BLOCKS;
    }
    __device__ static inline size_t strip(int terms) { return (size_t)records(terms) * RECORD; }
    __device__ static inline int parts(int terms, int q) {
        return (records(terms) - q + CLASSES - 1) / CLASSES;
    }
    __device__ static inline size_t first(int q) { return (size_t)q * RECORD; }
    /* What the second word of an activation block, its sums, becomes in shared memory: what the
     * terms of weights with a second number multiply that by; or what a block's integer sum begins
     * with, where codes have an offset and no scale; or it stays. */
    __device__ static inline unsigned number(unsigned scale, unsigned sums) {
        const int sum = gw_first_sum(sums) + gw_second_sum(sums);
        return TERM == GW_TERM_AFFINE   ? GW_F32_BITS(GW_F32_FROM_BITS(scale) * (float)sum)
               : TERM == GW_TERM_SIGNED ? (unsigned)(-OFFSET * sum)
                                        : sums;
    }
    /* n rows from `from` on to shared memory, of each the first `blocks`; behind them come zeros,
     * up to block `end`. As gw_stage; of several rows AT_ONCE pieces of 32 blocks of a team. */
    template <int AT_ONCE, class Asked, class Ready>
    __device__ static inline void
    stage_blocks(const gw_linear_params &p, unsigned *x, const unsigned char *from, int n,
                 int blocks, int end, const gw_factors<ROWS> &factors, Asked asked, Ready ready) {
        if (ROWS == 1 && blocks % 2 == 0) { /* every row begins at a multiple of 16 bytes */
            stage_row<4, 2>(p, x, from, n, blocks, end, factors, asked, ready);
        } else if (ROWS == 1) {
            stage_row<2, 4>(p, x, from, n, blocks, end, factors, asked, ready);
        } else {
            stage_several<AT_ONCE>(p, x, from, n, blocks, end, factors, asked, ready);
        }
    }
    /* G words to a thread at a time, of which the first ones or the last two begin a block or none
     * do. AT_ONCE: so that the long row of a model too is under way at once, and no more, for
     * pieces that are not there take as many instructions. */
    template <int G, int AT_ONCE, class Asked, class Ready>
    __device__ static inline void
    stage_row(const gw_linear_params &p, unsigned *x, const unsigned char *from, int n, int blocks,
              int end, const gw_factors<ROWS> &factors, Asked asked, Ready ready) {
        struct __align__(4 * G) piece {
            unsigned w[G];
        };
        const auto put = [&](int at) {
            return [&factors, at](unsigned *row, const unsigned *w, int r) {
                const int word = (int)((unsigned)at % ACT_WORDS), last = word == ACT_WORDS - G + 2;
                piece v;
#pragma unroll
                for (int j = 0; j < G; j++) {
                    v.w[j] = w[j];
                }
                const float scale = GW_F32_FROM_BITS(last ? w[G - 2] : w[0]) * factors.of[r];
                const unsigned bits = GW_F32_BITS(scale);
                const unsigned second = number(bits, last ? w[G - 1] : w[1]);
                if (G > 2 && last) {
                    v.w[G - 2] = bits;
                    v.w[G - 1] = second;
                } else if (word == 0) {
                    v.w[0] = bits;
                    v.w[1] = second;
                }
                *(piece *)(row + at) = v;
            };
        };
        gw_stage<G, ROWS, AT_ONCE>(from, (size_t)p.row_bytes, blocks * ACT_WORDS, end * ACT_WORDS,
                                   x, p.row_words, n, put, asked, ready);
    }
    /* A team takes 32 blocks of a row at a time, a lane one of them: code that runs once is short,
     * which counts for more than whole lines. */
    template <int AT_ONCE, class Asked, class Ready>
    __device__ static inline void
    stage_several(const gw_linear_params &p, unsigned *x, const unsigned char *from, int n,
                  int blocks, int end, const gw_factors<ROWS> &factors, Asked asked, Ready ready) {
        enum { TEAMS = GW_LINEAR_THREADS / GW_LANES, PAIRS = ACT_WORDS / 2 };
        struct __align__(8) pair {
            unsigned w[2];
        };
        const int parts = (end + GW_LANES - 1) / GW_LANES;
        int row = 0, part = gw_team(), turn = 0;
        const auto settle = [&]() { /* divisions take longer */
                                    while (part >= parts && row < n) {
                                        part -= parts;
                                        row++;
                                    }
        };
        settle();
        do {
            pair v[AT_ONCE][PAIRS];
            int at[AT_ONCE], of[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                at[k] = part * GW_LANES + gw_lane();
                of[k] = row;
                if (row < n) {
                    const pair *block =
                        (const pair *)(from + (size_t)row * (size_t)p.row_bytes) + at[k] * PAIRS;
#pragma unroll
                    for (int j = 0; j < PAIRS; j++) {
                        v[k][j].w[0] = v[k][j].w[1] = 0;
                        if (at[k] < blocks) {
                            v[k][j] = block[j];
                        }
                    }
                    part += TEAMS;
                    settle();
                }
            }
            if (row >= n) {
                asked();
            }
            if (turn++ == 0) {
                ready();
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (of[k] < n && at[k] < end) {
                    const int i = at[k] % GW_STRIP_BLOCKS;
                    unsigned *record = x + of[k] * p.row_words +
                                       at[k] / GW_STRIP_BLOCKS * GW_STRIP_BLOCKS * ACT_WORDS;
                    const float scale = GW_F32_FROM_BITS(v[k][0].w[0]) * factors.of_row(of[k]);
                    record[i] = GW_F32_BITS(scale);
                    record[GW_STRIP_BLOCKS + i] = number(GW_F32_BITS(scale), v[k][0].w[1]);
#pragma unroll
                    for (int t = 0; t < 4; t++) { /* words t and t + 4 of the codes */
                        const pair codes = {{v[k][1 + t / 2].w[t % 2], v[k][3 + t / 2].w[t % 2]}};
                        *(pair *)(record + 8 + 8 * t + 2 * i) = codes;
                    }
                }
            }
        } while (row < n);
    }
    template <class Asked, class Ready>
    __device__ static inline void stage(const gw_linear_params &p, unsigned *x,
                                        const unsigned char *from, int n,
                                        const gw_factors<ROWS> &factors, Asked asked, Ready ready) {
        stage_blocks<3>(p, x, from, n, p.terms, records(p.terms) * GW_STRIP_BLOCKS, factors, asked,
                        ready);
    }
    /* What slots [slot, slot + slots) of all waves take. */
    __device__ static inline void stage_slots(const gw_linear_params &p, unsigned *x,
                                              const unsigned char *from, int n, int slot, int slots,
                                              const gw_factors<ROWS> &factors) {
        const int at = slot * CLASSES * GW_STRIP_BLOCKS, whole = slots * CLASSES * GW_STRIP_BLOCKS;
        const int end = records(p.terms) * GW_STRIP_BLOCKS - at;
        /* few: the chains of two tiles are in registers, with what sums of halves need */
        stage_blocks<TERM == GW_TERM_Q2 || TERM == GW_TERM_HALVES ? 1 : 2>(
            p, x, from + at * ACT_WORDS * 4, n, p.terms - at, end < whole ? end : whole, factors,
            []() {}, []() {});
    }
};

#endif
