/* kernels_hip/linear/linear_quant.h - LINEAR and GLU of quantized weights in the decode order: what
 * dot products (linear.hip) and matrix instructions (linear_four.hip, linear_wide.hip) share.
 *
 * Block b belongs to lane b mod 32 of arith.h, so record u has lanes 4 (u mod 8) .. + 3, and wave q
 * of a tile takes the records u = q mod 8: four chains per row.
 *
 * With GW_COPIES rows of x come in groups (act8_params.h). Without, one row lies in shared memory
 * as blocks, several in groups.
 */
#ifndef GW_KERNELS_HIP_LINEAR_QUANT_H
#define GW_KERNELS_HIP_LINEAR_QUANT_H

#include "kernels_hip/linear/linear_async.h"
#include "kernels_hip/linear/linear_registers.h"
#include "kernels_hip/strip.h"

enum { ACT_WORDS = GW_ACT_WORDS };

template <int RECORD_, int ROWS, int TERM, int OFFSET> struct gw_quantized {
    enum {
        CLASSES = GW_LINEAR_CLASSES,
        JOINED = CLASSES,
        RECORD = RECORD_,
        STEP = CLASSES * RECORD,
        PART = RECORD,
        JUMP = 0,
        DIRECT = 0,
        X_STEP = CLASSES * GW_STRIP_BLOCKS * GW_ACT_WORDS,
        ACT8 = 1,
        SORTS = 0,
        MORE = 0,
        ADAPTS = 0,
        SPAN = TERM == GW_TERM_SPAN, /* blocks of x get one scale where they are read */
        X_ROWS = ROWS
    };
    typedef gw_nothing held;
    template <class Held> __device__ static inline void hold(Held &, float) {}

    __device__ static inline int records(int terms) {
        return (terms + GW_STRIP_BLOCKS - 1) / GW_STRIP_BLOCKS;
    }
    __device__ static inline size_t strip(int terms) { return (size_t)records(terms) * RECORD; }
    __device__ static inline int parts(int terms, int q) {
        return (records(terms) - q + CLASSES - 1) / CLASSES;
    }
    __device__ static inline int slots(int terms) { return parts(terms, 0); }
    __device__ static inline size_t first(int q) { return (size_t)q * RECORD; }
    /* The second number of an activation block in shared memory, behind its scale:
     *   FLOAT    affine weights, one row, GW_COPIES: the block's sum as a float. Not times the
     *            scale, because the norm's factor may still be missing from that
     *   SCALED   affine weights otherwise: the sum times the scale
     *   LESS_8   codes with an offset of 8, one row: the integer sum starts from -8 * sum
     *   LESS_16  the same with 16
     *   SUMS     all others: the two integer sums, as stored */
    enum {
        FORM = TERM == GW_TERM_AFFINE && ROWS == 1 && GW_COPIES      ? GW_FORM_FLOAT
               : TERM == GW_TERM_AFFINE                              ? GW_FORM_SCALED
               : TERM == GW_TERM_SIGNED && ROWS == 1 && OFFSET == 8  ? GW_FORM_LESS_8
               : TERM == GW_TERM_SIGNED && ROWS == 1 && OFFSET == 16 ? GW_FORM_LESS_16
                                                                     : GW_FORM_SUMS
    };
    __device__ static inline unsigned number(unsigned scale, unsigned sums) {
        return (int)FORM == (int)GW_FORM_SUMS
                   ? sums
                   : gw_act8_second(FORM, GW_F32_FROM_BITS(scale), gw_first_sum(sums),
                                    gw_second_sum(sums));
    }

    /* ---- rows in shared memory ---- */

    /* Where word `word` of block b of a row is; the first two stand in front of the codes. */
    __device__ static inline int word_at(int b, int word) {
        const int i = b % GW_ACT_GROUP;
        return ROWS == 1 && !GW_COPIES
                   ? b * ACT_WORDS + word
                   : b / GW_ACT_GROUP * (int)GW_ACT_GROUP_WORDS +
                         (word < 2 ? word * GW_ACT_GROUP + i : gw_group_word(i, word - 2));
    }
    /* A lane's block: its scale and what is made from that. */
    __device__ static inline void settle_block(unsigned *row, int b, int there, float factor) {
        if (!SPAN && there) {
            unsigned *scale = row + word_at(b, 0), *second = row + word_at(b, 1);
            *scale = GW_F32_BITS(GW_F32_FROM_BITS(*scale) * factor);
            *second = number(*scale, *second);
        } else if (SPAN) {
            unsigned act[ACT_WORDS];
#pragma unroll
            for (int w = 0; w < (int)ACT_WORDS; w++) {
                act[w] = there ? row[word_at(b, w)] : 0;
            }
            act[0] = GW_F32_BITS(GW_F32_FROM_BITS(act[0]) * factor);
            gw_span_blocks(act);
            act[1] = GW_F32_BITS(GW_F32_FROM_BITS(act[0]) * (float)gw_first_sum(act[1]));
#pragma unroll
            for (int w = 0; w < (int)ACT_WORDS; w++) {
                if (there) {
                    row[word_at(b, w)] = act[w];
                }
            }
        }
    }
    /* Of n rows the first `blocks`, which are whole records; second numbers are sums until then.
     * factors: of the scales, or 0. */
    __device__ static inline void settle_blocks(const gw_linear_params &p, unsigned *x, int n,
                                                int blocks, const float *factors) {
        enum { TEAMS = GW_LINEAR_THREADS / GW_LANES };
        int row = 0, from = gw_team() * GW_LANES;
        for (;;) {
            while (from >= blocks && row < n) { /* divisions take longer */
                from -= (blocks + GW_LANES - 1) / GW_LANES * GW_LANES;
                row++;
            }
            if (row >= n) {
                return;
            }
            const int b = from + gw_lane();
            settle_block(x + row * p.row_words, b, b < blocks, factors ? factors[row] : 1.0f);
            from += TEAMS * GW_LANES;
        }
    }

    /* ---- with GW_COPIES ---- */

    __device__ static inline int x_bytes(int terms) {
        return records(terms) * (int)GW_ACT_GROUP_WORDS * 4;
    }
    __device__ static inline void settle(const gw_linear_params &p, unsigned *x, int n,
                                         const float *factors) {
        settle_blocks(p, x, n, records(p.terms) * GW_STRIP_BLOCKS, factors);
    }

    /* ---- without ---- */

    /* n rows from `from` on to shared memory, of each the first `blocks`; behind them come zeros,
     * up to block `end`. As gw_stage, at most AT_ONCE pieces of 16 bytes: so that the long row of a
     * model too is under way at once, and no more, for pieces that are not there take as many
     * instructions. */
    template <int AT_ONCE, class Ready>
    __device__ static inline void
    stage_blocks(const gw_linear_params &p, unsigned *x, const unsigned char *from, int n,
                 int blocks, int end, const gw_factors<ROWS> &factors, Ready ready) {
        if (blocks % 2 != 0) { /* not every row begins at a multiple of 16 bytes */
            stage_by<2, ROWS == 1 ? 4 : 1>(p, x, from, n, blocks, end, factors, ready);
        } else if (ROWS > 8 || (ROWS > 1 && end * ACT_WORDS <= 4 * GW_LINEAR_THREADS)) {
            stage_by<4, 1>(p, x, from, n, blocks, end, factors, ready);
        } else {
            stage_by<4, AT_ONCE>(p, x, from, n, blocks, end, factors, ready);
        }
    }
    /* G words to a thread at a time, pairs of which one at most is what a block begins with. */
    template <int G, int AT_ONCE, class Ready>
    __device__ static inline void stage_by(const gw_linear_params &p, unsigned *x,
                                           const unsigned char *from, int n, int blocks, int end,
                                           const gw_factors<ROWS> &factors, Ready ready) {
        const auto put = [&](int at) { return gw_stored<G>(factors, at); };
        gw_stage<G, ROWS, AT_ONCE>(from, (size_t)p.row_bytes, blocks * ACT_WORDS, end * ACT_WORDS,
                                   x, p.row_words, n, put, ready);
    }
    /* Where words at .. at + G - 1 of a row belong in shared memory, and what becomes of them. */
    template <int G> struct gw_stored {
        enum { PAIRS = G / 2, IN_BLOCK = ACT_WORDS / 2 };
        const gw_factors<ROWS> &factors;
        int to, first[PAIRS], second[PAIRS]; /* one row: as it was */
        int begins;                          /* the pair that a block begins with, or PAIRS */

        __device__ inline gw_stored(const gw_factors<ROWS> &f, int at) : factors(f), to(at) {
            begins = PAIRS;
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                const unsigned pair = (unsigned)at / 2 + k, block = pair / IN_BLOCK;
                const int of = (int)(pair % IN_BLOCK), i = (int)(block % GW_STRIP_BLOCKS);
                const int words = 8 + 2 * i + (of - 1) % 2 * 16 + (of - 1) / 2;
                begins = of == 0 ? k : begins;
                first[k] = (int)(block / GW_STRIP_BLOCKS) * GW_STRIP_BLOCKS * ACT_WORDS +
                           (of == 0 ? i : words);
                second[k] = first[k] + (of == 0 ? (int)GW_STRIP_BLOCKS : 8);
            }
        }
        __device__ inline void operator()(unsigned *row, const unsigned *words, int r) const {
            struct __align__(4 * G) piece {
                unsigned w[G];
            };
            piece v;
#pragma unroll
            for (int j = 0; j < G; j++) {
                v.w[j] = words[j];
            }
            const int last = begins == PAIRS - 1;
            const float scale = GW_F32_FROM_BITS(last ? v.w[G - 2] : v.w[0]) * factors.of_row(r);
            const unsigned bits = GW_F32_BITS(scale);
            const unsigned next = number(bits, last ? v.w[G - 1] : v.w[1]);
            if (last) {
                v.w[G - 2] = bits;
                v.w[G - 1] = next;
            } else if (begins == 0) {
                v.w[0] = bits;
                v.w[1] = next;
            }
            if (ROWS == 1) {
                *(piece *)(row + to) = v;
                return;
            }
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                row[first[k]] = v.w[2 * k];
                row[second[k]] = v.w[2 * k + 1];
            }
        }
    };
    template <class Ready>
    __device__ static inline void stage(const gw_linear_params &p, unsigned *x,
                                        const unsigned char *from, int n,
                                        const gw_factors<ROWS> &factors, Ready ready) {
        stage_blocks<2>(p, x, from, n, p.terms, records(p.terms) * GW_STRIP_BLOCKS, factors, ready);
    }
    /* What slots [slot, slot + slots) of all waves take. */
    __device__ static inline void stage_slots(const gw_linear_params &p, unsigned *x,
                                              const unsigned char *from, int n, int slot, int slots,
                                              const gw_factors<ROWS> &factors) {
        const int at = slot * CLASSES * GW_STRIP_BLOCKS, whole = slots * CLASSES * GW_STRIP_BLOCKS;
        const int end = records(p.terms) * GW_STRIP_BLOCKS - at;
        stage_blocks<1>(p, x, from + at * ACT_WORDS * 4, n, p.terms - at, end < whole ? end : whole,
                        factors, []() {});
    }
    /* Rows that have been staged, when all of them are there: blocks of one scale. */
    __device__ static inline void settle_slots(const gw_linear_params &p, unsigned *x, int n,
                                               int slot, int slots) {
        const int at = slot * CLASSES, left = records(p.terms) - at, whole = slots * CLASSES;
        settle_blocks(p, x, n, (left < whole ? left : whole) * GW_STRIP_BLOCKS, 0);
    }
};

#endif
