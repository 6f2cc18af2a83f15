/* kernels_hip/linear_quant.h - LINEAR and GLU of quantized weights in the decode order: what dot
 * products (linear.hip) and matrix instructions (linear_wide.hip) share; linear_stream.h has the
 * loop.
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
    /* Where word j of block b is in a row of several. */
    __device__ static inline int place(int b, int j) {
        const int record = b / GW_STRIP_BLOCKS * (GW_STRIP_BLOCKS * GW_ACT_WORDS);
        const int i = b % GW_STRIP_BLOCKS, code = j - 2;
        return record + (j < 2 ? j * GW_STRIP_BLOCKS + i : 8 + code % 4 * 8 + 2 * i + code / 4);
    }
    /* Words of n rows from `from` on, up to `end`; behind the first `words` they are 0. */
    template <class Asked, class Ready>
    __device__ static inline void
    stage_words(const gw_linear_params &p, unsigned *x, const unsigned char *from, int n, int words,
                int end, const gw_factors<ROWS> &factors, Asked asked, Ready ready) {
        enum { FEW = ROWS < 4 ? ROWS : 4, AT_ONCE = ROWS > 8 ? 1 : 2 };
        const auto put = [&](int at) {
            const int b = at / GW_ACT_WORDS, j = at % GW_ACT_WORDS;
            const int first = ROWS == 1 ? at : place(b, j),
                      next = ROWS == 1 ? at + 1 : place(b, j + 1);
            return [&factors, j, first, next](unsigned *row, const unsigned *w, int r) {
                const unsigned scale = GW_F32_BITS(GW_F32_FROM_BITS(w[0]) * factors.of[r]);
                row[first] = j == 0 ? scale : w[0];
                row[next] = j == 0 ? number(scale, w[1]) : w[1];
            };
        };
        if (n <= FEW) { /* the long rows of a model too are under way at once */
            gw_stage<2, FEW, 4>(from, (size_t)p.row_bytes, words, end, x, p.row_words, n, put,
                                asked, ready);
        } else {
            gw_stage<2, ROWS, AT_ONCE>(from, (size_t)p.row_bytes, words, end, x, p.row_words, n,
                                       put, asked, ready);
        }
    }
    template <class Asked, class Ready>
    __device__ static inline void stage(const gw_linear_params &p, unsigned *x,
                                        const unsigned char *from, int n,
                                        const gw_factors<ROWS> &factors, Asked asked, Ready ready) {
        stage_words(p, x, from, n, p.row_bytes / 4,
                    records(p.terms) * GW_STRIP_BLOCKS * GW_ACT_WORDS, factors, asked, ready);
    }
    /* What slots [slot, slot + slots) of all waves take. */
    __device__ static inline void stage_slots(const gw_linear_params &p, unsigned *x,
                                              const unsigned char *from, int n, int slot, int slots,
                                              const gw_factors<ROWS> &factors) {
        const int at = slot * X_STEP, whole = slots * X_STEP;
        const int end = records(p.terms) * GW_STRIP_BLOCKS * GW_ACT_WORDS - at;
        stage_words(
            p, x, from + 4 * at, n, p.row_bytes / 4 - at, end < whole ? end : whole, factors,
            []() {}, []() {});
    }
};

#endif
