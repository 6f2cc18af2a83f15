/* kernels_hip/gemm_span.h - the prompt's products on int8 matrix instructions of four waves, where
 * the four blocks of a record are one term: any number of tokens, 128 rows and 128 tokens a tile.
 *
 * A stage (four blocks of 128 rows and 128 tokens) is one integer sum, so its products add up in
 * the matrix unit, and a result takes one float step for it. What a block then waits for is what it
 * copies and what it issues: codes become operands by a mask; four waves multiply for 128 rows and
 * half of the tokens, so that a token's numbers come from shared memory once for four results of a
 * thread, not for two; waves of their own copy stages, a few pieces each, for asking takes time;
 * gates say that a stage has come or has been read, so that the two halves of a block are not held
 * to one pace; the next products are on their way before the sums of the last ones are added; and
 * blocks share tiles out (gemm_share.h), stages of the next one coming while results of the last
 * leave.
 */
#ifndef GW_KERNELS_HIP_GEMM_SPAN_H
#define GW_KERNELS_HIP_GEMM_SPAN_H

#include "kernels_hip/act8.h"
#include "kernels_hip/gemm_format.h"
#include "kernels_hip/gemm_share.h"

#if GW_GROUP_MMA

/* ---- tokens ---------------------------------------------------------------------------------- */

enum { SPAN_TOKENS = GW_GEMM_TOKENS(1), SPAN_CODES_AT = SPAN_TOKENS * 8 };

/* Number n of a token in a stage: the scale of its blocks, and that times the sum of their codes. A
 * lane's numbers of two tiles lie together. Codes come behind all numbers, as half_at() has them.
 */
GW_DEVICE int gw_span_number(int token, int n) {
    const int at = token / 16 * 16 + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
    return (n * (int)SPAN_TOKENS + at) * 4;
}

/* ---- a block of threads ---------------------------------------------------------------------- */

/* All of it is in the kernel itself, however little a build optimizes: ptxas of nvcc 13.0 does not
 * survive calls behind gw_take_registers.
 *
 * A piece is 64 rows and 64 tokens: four waves have two of them, one above the other; or one, where
 * the tile has no more tokens. */
template <class F, int PIECES> struct gw_span_product {
    typedef gw_tile<GW_GEMM_ROWS, SPAN_TOKENS / 2 * PIECES, 8 / PIECES, PIECES> T;
    enum {
        RING = GW_SPAN_RING,
        STAGE = GW_SPAN_WHOLE(F::RECORD),
        TILES = T::NT,
        SUMS = TILES * GW_MMA_C, /* of a piece */
        FEEDERS = 4, /* waves that copy; each has some strips, and the first one tokens */
        STRIPS = T::STRIPS / FEEDERS,
        WAVES = T::WM * T::WN,
        X = SPAN_CODES_AT + T::TOKENS * BLOCKS * GW_ACT_BLOCK,
        AT_ONCE = 4 / PIECES /* stages */
    };

    const gw_gemm_params &p;
    const gw_tile_at &at;
    const gw_job &job;
    const gw_share &share;
    unsigned char *shared;

    unsigned operand[2][BLOCKS][GW_MMA_A]; /* of a piece, and of the next one */
    scales<F> scale[2][T::CR];
    int s[2][SUMS];
    float acc[PIECES][TILES][GW_MMA_C];
    float token[TILES][T::CC][F::TOKEN]; /* numbers, of a stage */
    int first;                           /* where the wave's columns begin */

    __device__ inline gw_span_product(const gw_gemm_params &params, const gw_tile_at &tile,
                                      const gw_job &of, const gw_share &from, unsigned char *memory)
        : p(params), at(tile), job(of), share(from), shared(memory) {}
    __device__ static inline gw_shared_at gates(unsigned char *shared) {
        return gw_shared_address(shared + GW_SPAN_AT_GATES(F::RECORD));
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
    /* A stage has come; has been read. */
    __device__ inline gw_shared_at has(int slot) const {
        return gates(shared) + slot * (int)GW_GATE_BYTES;
    }
    __device__ inline gw_shared_at read(int slot) const { return has(RING + slot); }

    /* A feeder's part of the job's stages, each to its place when that is free. u: of the first one
     * in all stages of the block. */
    __device__ GW_ALWAYS_INLINE void feed(int feeder, int u) {
        const int lane = gw_lane(), tokens = lane == STRIPS;
        const int s = feeder * STRIPS + (lane < STRIPS ? lane : 0);
        const size_t strip = (size_t)gw_tile_strip(p, at, s);
        const uint8_t *w = gw_tile_weight(p, at, s).plane[0] + strip * share.units * F::RECORD;
        const uint8_t *x = (const uint8_t *)p.x +
                           (size_t)(at.token / (int)SPAN_TOKENS) * share.units * GW_SPAN_STAGE;
        const int piece = tokens ? (int)X : (int)F::RECORD;
        const int step = tokens ? (int)GW_SPAN_STAGE : (int)F::RECORD;
        const uint8_t *from = (tokens ? x : w) + (size_t)job.from * step;
        const int to = tokens ? 0 : (int)GW_SPAN_STAGE + s * F::RECORD;
        const int copies = STRIPS + (feeder == 0);
        const int bytes = STRIPS * F::RECORD + (feeder == 0 ? (int)X : 0);
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

    /* A piece of stage u, which has come: its codes to operands. */
    template <int ODD> __device__ GW_ALWAYS_INLINE void enter(int u, int piece) {
        const int slot = u % RING;
        const unsigned char *record =
            shared + slot * STAGE + GW_SPAN_STAGE + (at.m + piece) * F::RECORD;
        quarter<F> q[T::AR];
        if (piece == 0) {
            gw_gate_wait(has(slot), u / RING & 1);
        }
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
        const gw_group_at columns =
            gw_group_columns(shared + u % RING * STAGE + SPAN_CODES_AT) + first;
        gw_group_begin();
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            gw_group_int8(s[ODD], operand[ODD][b], columns + b * GW_GROUP_K_STEP, b > 0);
        }
        gw_group_end();
    }
    /* They are there: terms. */
    template <int ODD> __device__ GW_ALWAYS_INLINE void finish(int u, int piece) {
        const unsigned char *stage = shared + u % RING * STAGE;
        float row[T::CR][F::ROW];
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            row_numbers<F>(scale[ODD][k], 0, row[k]);
        }
        gw_group_keep<SUMS>(s[ODD]);
        gw_group_keep<BLOCKS * GW_MMA_A>(operand[ODD][0]);
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            if (piece == 0) {
#pragma unroll
                for (int n = 0; n < F::TOKEN; n++) {
                    unsigned v[4];
                    load4(v, stage +
                                 gw_span_number(at.n + j * GW_MMA_N + gw_mma_c_col(at.lane, 0), n));
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        token[j + i / 2][i % 2][n] = GW_F32_FROM_BITS(v[i]);
                    }
                }
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
            gw_gate_arrive(read(u % RING)); /* every thread for itself, as at all gates */
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
        if (job.from == 0) {
#pragma unroll
            for (int i = 0; i < PIECES * SUMS; i++) {
                acc[0][i / GW_MMA_C][i % GW_MMA_C] = 0.0f;
            }
        } else {
            gw_gate_wait(has(u % RING), u / RING & 1); /* and so for the block before */
            gw_share_take<T::THREADS, PIECES * SUMS>(p, share.block, acc[0][0]);
        }
#pragma unroll 1
        for (; u + AT_ONCE <= end; u += AT_ONCE) {
            some<AT_ONCE>(u);
        }
#pragma unroll 1
        for (; u < end; u++) {
            some<1>(u);
        }
        if (job.to < share.units) {
            gw_share_leave<T::THREADS, PIECES * SUMS>(p, share.block, acc[0][0]);
        } else if (p.glu) {
            gw_sync_some<1, T::THREADS>(); /* the results before these have been read */
            gw_tile_glu<T>(p, at, acc, (float *)(shared + RING * STAGE));
        } else {
            gw_tile_linear<T>(p, at, acc);
        }
    }
};

template <class F>
__device__ static inline void gw_gemm_span(const gw_gemm_params &p, unsigned char *shared) {
    typedef gw_span_product<F, 2> whole;
    typedef gw_span_product<F, 1> half;
    typedef typename whole::T T;
    const int block = gw_share_number(p, (unsigned *)(shared + whole::RING * whole::STAGE));
    const int units = p.k / (BLOCKS * GW_ACT_BLOCK), feeder = gw_team() - (int)whole::WAVES;
    const gw_share share = gw_share_of<T>(p, block, units, 1);
    gw_grid_launch_dependents();
    whole::make_gates(shared);
    if (feeder <= 0) { /* other feeders copy weights only, which are there */
        gw_grid_dependency_wait();
    }
    gw_job job;
    int u = 0;         /* stages before the job's */
    if (feeder >= 0) { /* from here on two programs, for registers */
        gw_leave_registers<GW_SPAN_FEEDER_REGISTERS>();
        for (int i = 0; gw_share_job(share, i, &job); i++, u += job.to - job.from) {
            const gw_tile_at at = gw_share_tile<T>(p, share, job.tile);
            if (job.tile < share.whole) {
                whole(p, at, job, share, shared).feed(feeder, u);
            } else {
                half(p, at, job, share, shared).feed(feeder, u);
            }
        }
    } else {
        gw_take_registers<GW_SPAN_REGISTERS>();
        for (int i = 0; gw_share_job(share, i, &job); i++, u += job.to - job.from) {
            gw_tile_at at = gw_share_tile<T>(p, share, job.tile);
            if (job.tile < share.whole) {
                whole(p, at, job, share, shared).run(u);
            } else {
                gw_tile_part<typename half::T>(at);
                half(p, at, job, share, shared).run(u);
            }
        }
    }
}

#endif

#endif
