/* kernels_hip/gemm/gemm_block_terms.h - stages of gemm_ring.h of which each block of 32 is a term.
 * Codes of tokens are binary16, and those of weights become so. Sums of a block are then integers
 * of less than 2^24, exact in binary32, and come as floats, where turning int8 sums into floats
 * costs as much as the chain that follows: the bits are those of gemm_large.hip.
 */
#ifndef GW_KERNELS_HIP_GEMM_BLOCK_TERMS_H
#define GW_KERNELS_HIP_GEMM_BLOCK_TERMS_H

#include "kernels_hip/gemm/gemm_ring.h"

#if GW_GROUP_MMA

/* Behind the numbers of tokens: 16 bytes `piece` (of four) of block b of a token. Half of the
 * tokens have all of theirs in front of the others. */
__device__ static inline int gw_block_code(int token, int b, int piece) {
    enum { HALF = GROUP_TOKENS / 2 };
    return ((token / HALF * 2 + b / 2) * HALF + token % HALF) * 128 +
           ((b % 2 * 4 + piece) ^ (token & 7)) * 16;
}

/* A stage goes by steps of a block, a piece and COLUMNS tokens of it; while the sums of one are
 * added, those of the next are made. */
template <class F, int TOKENS> struct gw_block_product : gw_ring_block<F, TOKENS, 2> {
    typedef gw_ring_block<F, TOKENS, 2> ring;
    typedef typename ring::T T;
    enum {
        PIECES = ring::PIECES,
        COLUMNS = TOKENS < 64 ? 32 : 64,
        SIDES = TOKENS / PIECES / COLUMNS,
        TILES = COLUMNS / GW_MMA_N,
        SUMS = TILES * GW_MMA_C,
        STEPS = BLOCKS * SIDES * PIECES /* pieces change fastest: their tokens are the same */
    };
    using ring::at;
    using ring::job;

    quarter<F> code[PIECES][T::AR];
    scales<F> scale[PIECES][T::CR];
    unsigned operand[2][2][GW_MMA_A]; /* of a block, by halves */
    float s[2][SUMS];
    float acc[PIECES][T::NT][GW_MMA_C];
    float token[TILES][T::CC][F::TOKEN];
    int first; /* where the wave's columns begin */

    using ring::ring;

    __device__ static inline int piece_of(int step) { return step % PIECES; }
    __device__ static inline int side_of(int step) { return step / PIECES % SIDES; }
    __device__ static inline int block_of(int step) { return step / PIECES / SIDES; }
    /* Which operands it has: not those of the step before, unless they are the same. */
    __device__ static inline int place_of(int step) {
        return PIECES == 2 ? piece_of(step) : block_of(step) % 2;
    }

    __device__ GW_ALWAYS_INLINE void enter(int u) {
        this->wait(u);
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const unsigned char *record = this->record(u, at.m + i);
#pragma unroll
            for (int k = 0; k < T::AR; k++) {
                load_quarter<F>(code[i][k], record, gw_tile_row(at.lane, k), gw_tile_pair(at.lane));
            }
#pragma unroll
            for (int k = 0; k < T::CR; k++) {
                load_scales<F>(scale[i][k], record, gw_mma_c_row(at.lane, k * T::CC));
            }
        }
    }
    /* columns: of the wave's first token and block. */
    __device__ GW_ALWAYS_INLINE void begin(int step, gw_group_at columns) {
        enum { PAIR = GROUP_TOKENS / 2 / GW_MMA_N * GW_GROUP_COLUMNS_8 }; /* of blocks */
        const int piece = piece_of(step), side = side_of(step), b = block_of(step);
        unsigned(*a)[GW_MMA_A] = operand[place_of(step)];
        columns += b / 2 * PAIR + b % 2 * 2 * GW_GROUP_K_STEP + side * TILES * GW_GROUP_COLUMNS_8;
        if (side == 0) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int h = i / 2, row = i % 2;
                const unsigned c = codes<F, 0, 1>(code[piece][row], b, h);
                gw_halves_of_bytes<F::UNSIGNED ? F::OFFSET : 128>(F::UNSIGNED ? c : c ^ 0x80808080u,
                                                                  &a[h][row], &a[h][2 + row]);
            }
        }
        gw_group_begin();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            gw_group_f16<COLUMNS>(s[step % 2], a[h], columns + h * GW_GROUP_K_STEP, h > 0);
        }
        gw_group_end();
    }
    __device__ GW_ALWAYS_INLINE void finish(int step) {
        float *sums = s[step % 2], row[T::CR][F::ROW];
        gw_group_keep<SUMS>(sums);
        gw_group_keep<2 * GW_MMA_A>(operand[place_of(step)][0]);
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            row_numbers<F>(scale[piece_of(step)][k], block_of(step), row[k]);
        }
#pragma unroll
        for (int j = 0; j < TILES; j++) {
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                float &sum = acc[piece_of(step)][side_of(step) * TILES + j][k];
                sum = add_sums<F>(sums[j * GW_MMA_C + k], 0.0f, row[k / T::CC], token[j][k % T::CC],
                                  sum);
            }
        }
    }
    __device__ GW_ALWAYS_INLINE void some(int u) {
        enter(u);
        const gw_group_at columns = gw_group_columns(this->stage(u) + ring::CODES_AT) + first;
        begin(0, columns);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            if (piece_of(step) == 0) { /* on their way while the next step begins */
                this->template load_numbers<TILES>(token, u, block_of(step) * F::TOKEN,
                                                   side_of(step) * TILES);
            }
            if (step + 1 < STEPS) {
                begin(step + 1, columns);
                gw_group_wait<1>();
            } else {
                gw_group_wait<0>();
            }
            finish(step);
        }
        this->done(u);
    }
    __device__ GW_ALWAYS_INLINE void run(int u) {
        enum { EACH = GW_GROUP_COLUMNS_8 * 2 / GW_MMA_N }; /* of a token: two pairs of blocks */
        const int end = u + job.to - job.from;
        /* The same for the whole wave, as the compiler sees by this, and so in its registers. */
        first = gw_shuffle(at.n * (int)EACH, 0);
        this->open(u, acc);
#pragma unroll 1
        for (; u < end; u++) {
            some(u);
        }
        this->close(acc);
    }
};

#endif

#endif
