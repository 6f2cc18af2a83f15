/* kernels_hip/gemm/gemm_span_terms.h - stages of gemm_ring.h whose four blocks are one term, for
 * any number of tokens: one integer sum, whose products add up in the matrix unit, and a result
 * takes one float step for it. Codes become operands by a mask, and the next products are on their
 * way before the sums of the last ones are added.
 */
#ifndef GW_KERNELS_HIP_GEMM_SPAN_TERMS_H
#define GW_KERNELS_HIP_GEMM_SPAN_TERMS_H

#include "kernels_hip/gemm/gemm_ring.h"

#if GW_GROUP_MMA

template <class F, int TOKENS> struct gw_span_product : gw_ring_block<F, TOKENS, 1> {
    typedef gw_ring_block<F, TOKENS, 1> ring;
    typedef typename ring::T T;
    enum {
        PIECES = ring::PIECES,
        TILES = T::NT,
        SUMS = TILES * GW_MMA_C, /* of a piece */
        AT_ONCE = 4 / PIECES,    /* stages */
        /* A thread has no registers for numbers of tokens from one piece to the next. */
        AGAIN = TOKENS > GROUP_TOKENS
    };
    using ring::at;
    using ring::job;

    unsigned operand[2][BLOCKS][GW_MMA_A]; /* of a piece, and of the next one */
    scales<F> scale[2][T::CR];
    int s[2][SUMS];
    float acc[PIECES][TILES][GW_MMA_C];
    float token[TILES][T::CC][F::TOKEN]; /* numbers, of a stage */
    int first;                           /* where the wave's columns begin */

    using ring::ring;

    /* A piece of stage u, which has come: its codes to operands. */
    template <int ODD> __device__ GW_ALWAYS_INLINE void enter(int u, int piece) {
        quarter<F> q[T::AR];
        if (piece == 0) {
            this->wait(u);
        }
        const unsigned char *record = this->record(u, at.m + piece);
#pragma unroll
        for (int k = 0; k < T::AR; k++) {
            load_quarter<F>(q[k], record, gw_tile_row(at.lane, k), gw_tile_pair(at.lane));
        }
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            load_scales<F>(scale[ODD][k], record, gw_mma_c_row(at.lane, k * T::CC));
        }
#pragma unroll
        for (int k = 0; k < BLOCKS * GW_MMA_A; k++) {
            const int b = k / GW_MMA_A, i = k % GW_MMA_A;
            operand[ODD][b][i] = codes<F>(q[i % T::AR], b, i / T::AR);
        }
    }
    /* Its products begin. */
    template <int ODD> __device__ GW_ALWAYS_INLINE void begin(int u) {
        const gw_group_at columns = gw_group_columns(this->stage(u) + ring::CODES_AT) + first;
        gw_group_begin();
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            gw_group_int8<TILES * GW_MMA_N>(s[ODD], operand[ODD][b], columns + b * GW_GROUP_K_STEP,
                                            b > 0);
        }
        gw_group_end();
    }
    /* They are there: terms. */
    template <int ODD> __device__ GW_ALWAYS_INLINE void finish(int u, int piece) {
        float row[T::CR][F::ROW];
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            row_numbers<F>(scale[ODD][k], 0, row[k]);
        }
        gw_group_keep<SUMS>(s[ODD]);
        gw_group_keep<BLOCKS * GW_MMA_A>(operand[ODD][0]);
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            if (piece == 0 || AGAIN) {
                this->template load_numbers<2>(token + j, u, 0, j);
            }
#pragma unroll
            for (int i = 0; i < 2 * GW_MMA_C; i++) {
                const int tile = j + i / GW_MMA_C, k = i % GW_MMA_C;
                float &sum = acc[piece][tile][k];
                sum = add_sums<F>((float)s[ODD][tile * GW_MMA_C + k], 0.0f, row[k / T::CC],
                                  token[tile][k % T::CC], sum);
            }
        }
        gw_group_keep<SUMS>(acc[piece][0]); /* none is left for later: s is free */
        if (piece == PIECES - 1) {
            this->done(u);
        }
    }

    /* N pieces; products of the next one are on their way while sums are added. Over the end of a
     * loop the compiler does not follow which are, and would wait for each: so pieces go by a fixed
     * number, and what that costs at its ends the other half of the block makes use of. */
    template <int I, int N> struct pieces {
        __device__ static GW_ALWAYS_INLINE void run(gw_span_product &b, int u) {
            enum { NEXT = I + 1 };
            b.template enter<NEXT % 2>(u + NEXT / PIECES, NEXT % PIECES);
            b.template begin<NEXT % 2>(u + NEXT / PIECES);
            gw_group_wait<1>();
            b.template finish<I % 2>(u + I / PIECES, I % PIECES);
            pieces<I + 1, N>::run(b, u);
        }
    };
    template <int N> struct pieces<N, N> {
        __device__ static GW_ALWAYS_INLINE void run(gw_span_product &b, int u) {
            gw_group_wait<0>();
            b.template finish<N % 2>(u + N / PIECES, N % PIECES);
        }
    };
    template <int STAGES> __device__ GW_ALWAYS_INLINE void some(int u) {
        enter<0>(u, 0);
        begin<0>(u);
        pieces<0, STAGES * PIECES - 1>::run(*this, u);
    }
    __device__ GW_ALWAYS_INLINE void run(int u) {
        const int end = u + job.to - job.from;
        /* The same for the whole wave, as the compiler sees by this, and so in its registers. */
        first = gw_shuffle(at.n / (int)GW_MMA_N * (int)GW_GROUP_COLUMNS_8, 0);
        this->open(u, acc);
#pragma unroll 1
        for (; u + AT_ONCE <= end; u += AT_ONCE) {
            some<AT_ONCE>(u);
        }
#pragma unroll 1
        for (; u < end; u++) {
            some<1>(u);
        }
        this->close(acc);
    }
};

#endif

#endif
