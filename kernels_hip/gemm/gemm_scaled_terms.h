/* kernels_hip/gemm/gemm_scaled_terms.h - stages of gemm_ring.h of formats with integer scales,
 * which are one term: weights' codes become operands times their scales, so that the sum of all
 * four blocks is made by the matrix unit alone. A result takes two or three float operations for
 * it.
 *
 * Operands are binary16 where those have the products, of which the largest is 1953 (Q5_K). Sums
 * are integers, exact in binary32 below 2^24: of all blocks, or of two and two where four may have
 * more (Q5_K: 31,496,000), which are added up with the one rounding that their definition has.
 * Minimums times the sums of tokens' codes are a product of eight columns more. Of Q6_K
 * and of codes that are levels (products of up to 32,767) an operand is two int8 digits, 256 high
 * + low.
 *
 * The registers do not suffice for the sums of two steps, nor for the operands of two stages: a
 * wave's products, its terms and its operands follow one another.
 */
#ifndef GW_KERNELS_HIP_GEMM_SCALED_TERMS_H
#define GW_KERNELS_HIP_GEMM_SCALED_TERMS_H

#include "kernels_hip/gemm/gemm_ring.h"

#if GW_GROUP_MMA

/* Behind the numbers of tokens: 16 bytes `piece` (of four) of block b of a token, of so many. */
__device__ static inline int gw_scaled_code(int tokens, int token, int b, int piece) {
    return (b / 2 * tokens + token) * 128 + ((b % 2 * 4 + piece) ^ (token & 7)) * 16;
}

/* Two bytes of integer scales, of block b of a row. */
template <class F> __device__ static inline unsigned scales_of(const scales<F> &s, int b) {
    return s.sub[b / 2] >> b % 2 * 16 & 0xffffu;
}

/* How codes become operands, and what the sums are: by digits, or as binary16. */
template <class F, int DIGITS> struct gw_scaled_operands;

template <class F> struct gw_scaled_operands<F, 0> {
    typedef float sum;
    enum {
        MINIMUM = F::MINIMUMS,
        PARTS = F::LOW == 4 && F::HIGH == 1 ? 2 : 1 /* sums */
    };
    unsigned code[BLOCKS][2][GW_MMA_A]; /* by halves of a block */
    unsigned minimum[2];

    __device__ GW_ALWAYS_INLINE void set(const quarter<F> &q, const scales<F> &s, int row,
                                         int lane) {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const unsigned both = scales_of<F>(s, b);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const unsigned c = codes<F, 0, 1>(q, b, h);
                unsigned *low = &code[b][h][row], *high = &code[b][h][2 + row];
                if (F::OFFSET) { /* of scales with a sign */
                    const unsigned scale = gw_half_of_byte<128>(both ^ 0x8080u, h);
                    gw_halves_of_bytes<F::OFFSET>(c, low, high);
                    *low = gw_times_halves(*low, scale);
                    *high = gw_times_halves(*high, scale);
                } else {
                    const unsigned scale = F::TERM == GW_TERM_Q2
                                               ? gw_half_of_byte<0>(both & 0x0f0fu, h)
                                               : gw_half_of_byte<0>(both, 0);
                    gw_scaled_halves_of_bytes(c, scale, gw_times_halves(scale, 0xe400e400u), low,
                                              high);
                }
            }
        }
        if (MINIMUM) { /* lane t of a row has block t */
            const int t = gw_tile_pair(lane);
            const unsigned mine = (t < 2 ? s.sub[0] : s.sub[1]) >> t % 2 * 16;
            unsigned none;
            if (F::TERM == GW_TERM_Q2) {
                gw_halves_of_bytes<0>(mine >> 4 & 0x0f0fu, &minimum[row], &none);
            } else {
                minimum[row] = gw_half_of_byte<0>(mine, 1);
            }
        }
    }
    /* N columns. pair: from two blocks of a column to the next two; columns: of the first one. */
    template <int N>
    __device__ GW_ALWAYS_INLINE void begin(sum (*s)[N / 2], gw_group_at columns, int pair) const {
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS; i++) {
            const int b = i / 2, each = 2 * BLOCKS / PARTS;
            gw_group_f16<N>(s[i / each], code[b][i % 2],
                            columns + b / 2 * pair + i % 4 * GW_GROUP_K_STEP, i % each > 0);
        }
    }
    template <int N> __device__ static GW_ALWAYS_INLINE float whole(const sum (*s)[N / 2], int k) {
        return PARTS == 2 ? s[0][k] + s[PARTS - 1][k] : s[0][k];
    }
};

template <class F> struct gw_scaled_operands<F, 1> {
    typedef int sum;
    enum { MINIMUM = 0, PARTS = 2 };
    unsigned code[BLOCKS][2][GW_MMA_A]; /* by digits, the high one first */
    unsigned minimum[2];

    /* Of bytes without a sign, w = scale * (c - OFFSET) is 256 high + low, with -128 <= low < 128:
     * w + 0x8080, of 16 bits, is these two with their first bits flipped. */
    __device__ GW_ALWAYS_INLINE void set(const quarter<F> &q, const scales<F> &s, int row, int) {
        const int offset = F::LEVELS ? 128 : F::OFFSET;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const unsigned both = scales_of<F>(s, b);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int scale = (int8_t)(both >> (F::HALVES ? 8 * h : 0) & 255u);
                const unsigned more = (unsigned)(0x8080 - offset * scale) * 0x10001u;
                const unsigned c =
                    F::LEVELS ? codes<F>(q, b, h) ^ 0x80808080u : codes<F, 0, 1>(q, b, h);
                const unsigned even = (c & 0x00ff00ffu) * (unsigned)scale + more;
                const unsigned odd = (c >> 8 & 0x00ff00ffu) * (unsigned)scale + more;
                code[b][0][row + 2 * h] = gw_high_bytes(even, odd) ^ 0x80808080u;
                code[b][1][row + 2 * h] = gw_low_bytes(even, odd) ^ 0x80808080u;
            }
        }
    }
    template <int N>
    __device__ GW_ALWAYS_INLINE void begin(sum (*s)[N / 2], gw_group_at columns, int) const {
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS; i++) {
            gw_group_int8<N>(s[i % 2], code[i / 2][i % 2], columns + i / 2 * GW_GROUP_K_STEP,
                             i > 1);
        }
    }
    template <int N> __device__ static GW_ALWAYS_INLINE float whole(const sum (*s)[N / 2], int k) {
        return (float)(s[0][k] * 256 + s[1][k]);
    }
};

template <class F, int TOKENS>
struct gw_scaled_product : gw_ring_block<F, TOKENS, F::FORM == (int)GW_STAGE_DIGITS ? 1 : 2> {
    enum { DIGITS = F::FORM == (int)GW_STAGE_DIGITS };
    typedef gw_ring_block<F, TOKENS, DIGITS ? 1 : 2> ring;
    typedef typename ring::T T;
    typedef gw_scaled_operands<F, DIGITS> operands;
    /* A step has the sums of so many columns: of all, where those leave registers. */
    enum {
        SUMS = (int)operands::PARTS + operands::MINIMUM,
        STEP = SUMS == 1 || TOKENS < 64 ? TOKENS : 64,
        TILES = STEP / GW_MMA_N
    };
    using ring::at;
    using ring::job;

    operands operand;
    quarter<F> q[T::AR]; /* of the next stage, as they are in its record */
    scales<F> of[T::AR];
    typename operands::sum s[operands::PARTS][STEP / 2];
    float m[STEP / 2]; /* minimums */
    float acc[1][T::NT][GW_MMA_C];

    using ring::ring;

    /* Codes of stage u, when that has come. */
    __device__ GW_ALWAYS_INLINE void fetch(int u) {
        this->wait(u);
        const unsigned char *record = this->record(u, at.m);
#pragma unroll
        for (int k = 0; k < T::AR; k++) {
            const int row = gw_tile_row(at.lane, k);
            load_quarter<F>(q[k], record, row, gw_tile_pair(at.lane));
            load2(of[k].sub, record + F::AT_SUB + 8 * row);
        }
    }
    /* They become operands. */
    __device__ GW_ALWAYS_INLINE void enter() {
#pragma unroll
        for (int k = 0; k < T::AR; k++) {
            operand.set(q[k], of[k], k, at.lane);
        }
    }
    /* Products with columns from `first` on begin. */
    __device__ GW_ALWAYS_INLINE void begin(int u, int first) {
        gw_group_begin();
        if (operands::MINIMUM) {
            gw_group_f16_eights<STEP>(
                m, operand.minimum,
                gw_group_eights(this->stage(u) + GROUP_TOKENS * GW_SCALED_SUMS_AT) + first);
        }
        operand.template begin<STEP>(s,
                                     gw_group_columns(this->stage(u) + ring::CODES_AT) +
                                         first * (GW_GROUP_COLUMNS_8 / (int)GW_MMA_N),
                                     TOKENS / (int)GW_MMA_N * GW_GROUP_COLUMNS_8);
        gw_group_end();
    }
    /* They are there: terms. */
    __device__ GW_ALWAYS_INLINE void finish(int u, int first) {
        const int column = first + gw_mma_c_col(at.lane, 0);
        const unsigned char *numbers = this->stage(u) + ring::NUMBERS_AT;
        const unsigned char *record = this->record(u, at.m);
        float d[T::CR], minimum[T::CR];
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            scales<F> head;
            load_scales<F>(head, record, gw_mma_c_row(at.lane, k * T::CC));
            d[k] = F::BYTES == 4 && !operands::MINIMUM ? GW_F32_FROM_BITS(head.head[0])
                                                       : gw_widen_f16((gw_u16)head.head[0]);
            minimum[k] = gw_widen_f16((gw_u16)(head.head[0] >> 16));
        }
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            unsigned token[4]; /* scales, two of each tile */
            load4(token, numbers + gw_group_number(ring::OF_NUMBER, column + j * (int)GW_MMA_N, 0));
#pragma unroll
            for (int i = 0; i < 2 * GW_MMA_C; i++) {
                const int k = i % GW_MMA_C, row = k / T::CC, n = j * GW_MMA_C + i;
                const float one = operands::template whole<STEP>(s, n);
                const float dx = GW_F32_FROM_BITS(token[i / GW_MMA_C * 2 + k % T::CC]);
                const float y =
                    operands::MINIMUM ? fmaf(d[row], one, -(minimum[row] * m[n])) : d[row] * one;
                float &sum = acc[0][first / GW_MMA_N + n / GW_MMA_C][k];
                sum = fmaf(dx, y, sum);
            }
        }
        gw_group_keep<TOKENS / 2>(acc[0][0]); /* none is left for later: sums are free */
    }
    __device__ GW_ALWAYS_INLINE void come() {
        gw_group_wait<0>();
        gw_group_keep<operands::PARTS * STEP / 2>(s[0]);
        gw_group_keep<2 * BLOCKS * GW_MMA_A>(operand.code[0][0]);
        if (operands::MINIMUM) {
            gw_group_keep<STEP / 2>(m);
            gw_group_keep<2>(operand.minimum);
        }
    }

    __device__ GW_ALWAYS_INLINE void run(int u) {
        const int end = u + job.to - job.from;
        this->open(u, acc);
        fetch(u);
        enter();
#pragma unroll 1
        for (; u < end; u++) {
#pragma unroll
            for (int first = 0; first < TOKENS; first += STEP) {
                begin(u, first);
                if (first == 0 && u + 1 < end) {
                    fetch(u + 1);
                }
                come();
                finish(u, first);
            }
            this->done(u);
            enter();
        }
        this->close(acc);
    }
};

#endif

#endif
