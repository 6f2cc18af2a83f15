/* kernels_hip/gemm/gemm_ring.h - the prompt's products on matrix instructions of four waves: a
 * block of threads that stays, 128 rows and 128 tokens a tile, or others (gemm_tiling.h). Quantized
 * weights; what a stage is and what becomes of it, four blocks of 32 of rows and of tokens, is a
 * class of gemm_span_terms.h, gemm_scaled_terms.h or gemm_block_terms.h.
 *
 * The kernel is bound by shared-memory bandwidth and issue slots. Four measures against that:
 *   tiling      four waves multiply for 128 rows and half of the tokens, so that a token's operands
 *               are loaded from shared memory once for four results of a thread, not for two
 *   producers   separate waves copy stages to a ring, a few pieces each, because issuing copies
 *               costs slots
 *   gates       barriers per stage say that it is full or has been read, so that the two halves of
 *               a block need not run in lockstep
 *   stream-K    blocks share tiles (gemm_stream_k.h); stages of the next tile are in flight during
 *               the epilogue of the last
 */
#ifndef GW_KERNELS_HIP_GEMM_RING_H
#define GW_KERNELS_HIP_GEMM_RING_H

#include "kernels_hip/gemm/gemm_format.h"
#include "kernels_hip/gemm/gemm_stream_k.h"

#if GW_GROUP_MMA

/* ---- tokens of a stage ----------------------------------------------------------------------- */

/* Where number n of a token is among all numbers of `tokens` of them. A lane's numbers of two tiles
 * lie together. */
__device__ static inline int gw_group_number(int tokens, int token, int n) {
    const int place = (token & ~15) + (token & 6) * 2 + (token & 8) / 4 + (token & 1);
    return (n * tokens + place) * 4;
}

/* ---- a block of threads ---------------------------------------------------------------------- */

/* All of it is in the kernel itself, however little a build optimizes: ptxas of nvcc 13.0 does not
 * survive calls behind gw_take_registers.
 *
 * A piece is 64 rows and half of the tokens: four waves have two of them, one above the other.
 * Tiles of at most 64 tokens are one piece, with all tokens; so are formats whose operand
 * conversion costs more than the epilogue (gemm_scaled_terms.h). CODE: bytes of a token's code.
 *
 * Numbers of a stage's tokens come before their codes, with room for 128; or, where those are
 * bytes, behind them, for as many as the tile has: codes begin at a multiple of 1024. */
template <class F, int TOKENS, int CODE> struct gw_ring_block {
    static constexpr int FORM = F::FORM, PIECES = TOKENS < GROUP_TOKENS || F::SCALED ? 1 : 2;
    typedef gw_tile<GW_GEMM_ROWS, TOKENS, 8 / PIECES, PIECES> T;
    enum {
        RING = GW_GROUP_RING(FORM),
        STAGE = GW_GROUP_STAGE(FORM, F::TOKEN, F::RECORD),
        WEIGHTS_AT = GW_GROUP_TOKENS(FORM, F::TOKEN),
        FEEDERS = GW_GROUP_FEEDERS,
        STRIPS = T::STRIPS / FEEDERS, /* of a feeder; the first one has tokens too */
        WAVES = T::WM * T::WN,
        TOGETHER = FORM != GW_STAGE_BLOCKS     ? TOKENS
                   : TOKENS < GROUP_TOKENS / 2 ? GROUP_TOKENS / 2
                                               : TOKENS,
        CODES = TOGETHER * BLOCKS * GW_ACT_BLOCK * CODE,
        BEHIND = CODE == 1,
        OF_NUMBER = BEHIND ? TOKENS : (int)GROUP_TOKENS,
        NUMBERS = (GW_GROUP_TOKEN(FORM, F::TOKEN) - CODE * BLOCKS * GW_ACT_BLOCK) * OF_NUMBER,
        CODES_AT = BEHIND ? 0 : NUMBERS,
        NUMBERS_AT = BEHIND ? CODES : 0,
        X = NUMBERS + CODES
    };
    static_assert(TOKENS < GW_GROUP_MOST(FORM) || (int)X == (int)WEIGHTS_AT,
                  "what the host leaves for tokens");

    const gw_gemm_params &p;
    const gw_tile_at &at;
    const gw_job &job;
    const gw_share &share;
    unsigned char *shared;

    __device__ inline gw_ring_block(const gw_gemm_params &params, const gw_tile_at &tile,
                                    const gw_job &of, const gw_share &from, unsigned char *memory)
        : p(params), at(tile), job(of), share(from), shared(memory) {}
    __device__ static inline gw_shared_at gates(unsigned char *shared) {
        return gw_shared_address(shared + GW_GROUP_AT_GATES(FORM, F::TOKEN, F::RECORD));
    }
    __device__ static inline void make_gates(unsigned char *shared) {
        if ((int)threadIdx.x < 2 * RING) {
            gw_gate_make(gates(shared) + (int)threadIdx.x * (int)GW_GATE_BYTES,
                         (int)threadIdx.x < RING ? FEEDERS * (int)GW_FETCH_ARRIVALS
                                                 : (int)T::THREADS);
            gw_gates_made();
        }
        __syncthreads();
    }
    /* Stage u of the block, of its ring. */
    __device__ inline unsigned char *stage(int u) const { return shared + u % RING * STAGE; }
    __device__ inline const unsigned char *record(int u, int strip) const {
        return stage(u) + WEIGHTS_AT + strip * F::RECORD;
    }
    /* It has come; has been read. */
    __device__ inline gw_shared_at has(int slot) const {
        return gates(shared) + slot * (int)GW_GATE_BYTES;
    }
    __device__ inline gw_shared_at read(int slot) const { return has(RING + slot); }
    __device__ inline void wait(int u) const { gw_gate_wait(has(u % RING), u / RING & 1); }
    /* It has been read, says every thread for itself, as at all gates. The compiler asks for
     * numbers of tokens and waits for them where they are used, which may be behind this. */
    __device__ inline void done(int u) const {
        gw_read_before_fetch();
        gw_gate_arrive(read(u % RING));
    }

    /* A feeder's part of the job's stages, each to its place when that is free. u: of the first one
     * in all stages of the block; x_bytes: of tokens. */
    __device__ GW_ALWAYS_INLINE void feed(int feeder, int u, int x_bytes) {
        int lane = gw_lane();
        gw_group_keep<1>(&lane); /* what follows from it is in no registers between jobs */
        const int tokens = lane == STRIPS;
        const int s = feeder * STRIPS + (lane < STRIPS ? lane : 0);
        const size_t strip = (size_t)gw_tile_strip(p, at, s);
        const uint8_t *w = gw_tile_weight(p, at, s).plane[0] + strip * share.units * F::RECORD;
        const uint8_t *x =
            (const uint8_t *)p.x + (size_t)(job.tile / share.rows) * share.units * WEIGHTS_AT;
        const int piece = tokens ? x_bytes : (int)F::RECORD;
        const int step = tokens ? (int)WEIGHTS_AT : (int)F::RECORD;
        const uint8_t *from = (tokens ? x : w) + (size_t)job.from * step;
        const int to = tokens ? 0 : (int)WEIGHTS_AT + s * F::RECORD;
        const int copies = STRIPS + (feeder == 0);
        const int bytes = STRIPS * F::RECORD + (feeder == 0 ? x_bytes : 0);
        int slot = u % RING, round = u / RING;
        if (feeder == 0 && job.from > 0) { /* whom a stage's gate lets pass finds the sums */
            if (lane == 0) {
                gw_share_wait(p, share.block);
                gw_share_taken(p, share.block);
            }
            gw_sync_wave();
        }
        for (int n = job.to - job.from; n > 0; n--) {
            if (round > 0) {
                gw_gate_wait(read(slot), (round - 1) & 1);
            }
            gw_fetch(copies, gw_shared_address(shared + slot * STAGE) + to, from, piece, bytes,
                     has(slot));
            from += step;
            slot = slot + 1 == RING ? 0 : slot + 1;
            round += slot == 0;
        }
    }

    /* The sums of a thread, when a job begins with stage u; and when it ends. */
    typedef float sums_of[PIECES][T::NT][GW_MMA_C];
    enum { SUMS = PIECES * T::NT * GW_MMA_C };
    __device__ GW_ALWAYS_INLINE void open(int u, sums_of &acc) {
        if (job.from == 0) {
#pragma unroll
            for (int i = 0; i < SUMS; i++) {
                acc[0][i / GW_MMA_C][i % GW_MMA_C] = 0.0f;
            }
        } else {
            wait(u); /* and so for the block before */
            gw_share_take<T::THREADS, SUMS>(p, share.block, acc[0][0]);
        }
    }
    __device__ GW_ALWAYS_INLINE void close(const sums_of &acc) {
        if (job.to < share.units) {
            gw_share_leave<T::THREADS, SUMS>(p, share.block, acc[0][0]);
        } else if (p.glu) {
            gw_sync_some<1, T::THREADS>(); /* the results before these have been read */
            gw_tile_glu<T>(p, at, acc, (float *)(shared + RING * STAGE));
        } else {
            gw_tile_linear<T>(p, at, acc);
        }
    }

    /* Numbers from n on, by the step, of the lane's tokens of tiles [first, first + TILES). */
    template <int TILES>
    __device__ GW_ALWAYS_INLINE void load_numbers(float (*token)[T::CC][F::TOKEN], int u, int n,
                                                  int first) const {
        /* Places go on from the first pair of tiles, and from the wave's first token: one way or
         * the other for the sake of registers. */
        const int apart = F::SPAN ? at.n : 0, column = at.n - apart + gw_mma_c_col(at.lane, 0);
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            const int from = NUMBERS_AT + (apart + (first + j) * (int)GW_MMA_N) * 4;
#pragma unroll
            for (int k = 0; k < F::TOKEN; k++) {
                unsigned v[4];
                load4(v, stage(u) + from + gw_group_number(OF_NUMBER, column, n + k));
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    token[j + i / 2][i % 2][k] = GW_F32_FROM_BITS(v[i]);
                }
            }
        }
    }
};

/* P: the class of a tile of so many tokens, which has
 *   run(u)  multiplies for a job, whose stages are the block's from number u on
 */
template <class P>
__device__ GW_ALWAYS_INLINE void gw_ring_tile(const gw_gemm_params &p, gw_tile_at &at,
                                              const gw_job &job, const gw_share &share,
                                              unsigned char *shared, int u) {
    gw_tile_part<typename P::T>(at);
    if ((int)P::T::TOKENS > (int)GROUP_TOKENS) {
        gw_group_keep<1>(&at.n); /* nor has this one registers for what follows from it */
    }
    P(p, at, job, share, shared).run(u);
}
template <template <class, int> class P, class F>
__device__ static inline void gw_ring_run(const gw_gemm_params &p, unsigned char *shared) {
    typedef P<F, GROUP_TOKENS> whole;
    typedef P<F, GW_GROUP_MOST(whole::FORM)> wide;
    typedef P<F, GROUP_TOKENS / 2> half;
    typedef P<F, GROUP_TOKENS / 4> quarter;
    typedef typename whole::T T;
    const int block = gw_share_number(p, (unsigned *)(shared + whole::RING * whole::STAGE));
    const int units = (p.k / GW_ACT_BLOCK + BLOCKS - 1) / BLOCKS;
    const int feeder = gw_team() - (int)whole::WAVES;
    static_assert(sizeof(gw_share) <= GW_GROUP_SHARE, "what the host leaves for a share");
    gw_share *const share_at =
        (gw_share *)(shared + GW_GROUP_AT_SHARE(whole::FORM, F::TOKEN, F::RECORD));
    const gw_share &share = *share_at; /* in no registers, from one job to the next */
    if (threadIdx.x == 0) {
        *share_at = gw_share_of<T>(p, block, units, F::SPAN);
    }
    gw_grid_launch_dependents();
    whole::make_gates(shared);
    if (feeder <= 0) { /* other feeders copy weights only, which are there */
        gw_grid_dependency_wait();
    }
    gw_job job;
    int u = 0;         /* stages before the job's */
    if (feeder >= 0) { /* from here on two programs, for registers */
        gw_leave_registers<GW_GROUP_FEEDER_REGISTERS>();
        for (int i = 0; gw_share_job(share, i, &job); i++, u += job.to - job.from) {
            const gw_tile_at at = gw_share_tile<T>(p, share, job.tile);
            const int tokens = gw_share_tokens(share, job.tile);
            const int x = tokens > (int)GROUP_TOKENS        ? (int)wide::X
                          : tokens == (int)GROUP_TOKENS     ? (int)whole::X
                          : tokens == (int)GROUP_TOKENS / 2 ? (int)half::X
                                                            : (int)quarter::X;
            whole(p, at, job, share, shared).feed(feeder, u, x);
        }
    } else {
        gw_take_registers<GW_GROUP_REGISTERS>();
        for (int i = 0; gw_share_job(share, i, &job); i++, u += job.to - job.from) {
            gw_tile_at at = gw_share_tile<T>(p, share, job.tile);
            const int tokens = gw_share_tokens(share, job.tile);
            if (F::SPAN && tokens > (int)GROUP_TOKENS) {
                gw_ring_tile<wide>(p, at, job, share, shared, u);
            } else if (tokens == (int)GROUP_TOKENS) {
                gw_ring_tile<whole>(p, at, job, share, shared, u);
            } else if (tokens == (int)GROUP_TOKENS / 2) {
                gw_ring_tile<half>(p, at, job, share, shared, u);
            } else {
                gw_ring_tile<quarter>(p, at, job, share, shared, u);
            }
        }
    }
}

#endif

#endif
