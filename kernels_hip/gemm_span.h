/* kernels_hip/gemm_span.h - the prompt's products on int8 matrix instructions of four waves, where
 * the four blocks of a record are one term: any number of tokens, 128 rows and 128 tokens a block.
 *
 * A stage (four blocks of 128 rows and 128 tokens) is one integer sum, so its products add up in
 * the matrix unit, and a result takes one float step for it. What a block then waits for is what it
 * copies and what it issues: codes become operands by a mask; waves of their own copy stages, a few
 * pieces each, for asking takes time; gates say that a stage has come or has been read, so that the
 * two halves of a block are not held to one pace; and the next products are on their way before the
 * sums of the last ones are added.
 */
#ifndef GW_KERNELS_HIP_GEMM_SPAN_H
#define GW_KERNELS_HIP_GEMM_SPAN_H

#include "kernels_hip/act8.h"
#include "kernels_hip/gemm_format.h"

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

/* PIECES: 64 tokens each; one where the tile has no more. */
template <class F, int PIECES> struct gw_span_product {
    typedef gw_tile<GW_GEMM_ROWS, SPAN_TOKENS, 8, 1> T;
    enum {
        RING = GW_SPAN_RING,
        STAGE = GW_SPAN_WHOLE(F::RECORD),
        COLUMNS = SPAN_TOKENS / 2, /* of a piece */
        TILES = COLUMNS / GW_MMA_N,
        SUMS = TILES * GW_MMA_C,
        FEEDERS = 4, /* waves that copy; each has some strips, and the first one tokens */
        STRIPS = T::STRIPS / FEEDERS,
        X = SPAN_CODES_AT + PIECES * COLUMNS * BLOCKS * GW_ACT_BLOCK,
        AT_ONCE = 4 / PIECES /* stages */
    };

    const gw_gemm_params &p;
    const gw_tile_at &at;
    unsigned char *shared;
    gw_shared_at gates;
    int units;

    unsigned operand[2][BLOCKS][GW_MMA_A]; /* of a stage, and of the next one */
    scales<F> scale[2][T::CR];
    int s[2][SUMS];
    float acc[1][T::NT][GW_MMA_C];

    __device__ inline gw_span_product(const gw_gemm_params &params, const gw_tile_at &tile,
                                      unsigned char *memory)
        : p(params), at(tile), shared(memory) {
        units = p.k / (BLOCKS * GW_ACT_BLOCK);
        gates = gw_shared_address(shared + RING * STAGE);
        if ((int)threadIdx.x < 2 * RING) {
            gw_gate_make(gates + (int)threadIdx.x * (int)GW_GATE_BYTES,
                         (int)threadIdx.x < RING ? FEEDERS * (int)GW_FETCH_ARRIVALS : (int)T::WM);
            gw_gates_made();
        }
#pragma unroll
        for (int i = 0; i < T::NT * GW_MMA_C; i++) {
            acc[0][i / GW_MMA_C][i % GW_MMA_C] = 0.0f;
        }
    }
    /* A stage has come; has been read. */
    __device__ inline gw_shared_at has(int slot) const { return gates + slot * (int)GW_GATE_BYTES; }
    __device__ inline gw_shared_at read(int slot) const { return has(RING + slot); }

    /* A feeder's part of all stages, each to its place when that is free. */
    __device__ inline void feed(int feeder) {
        const int lane = gw_lane(), tokens = lane == STRIPS;
        const int s = feeder * STRIPS + (lane < STRIPS ? lane : 0);
        const size_t strip = (size_t)gw_tile_strip(p, at, s);
        const uint8_t *w = gw_tile_weight(p, at, s).plane[0] + strip * units * F::RECORD;
        const uint8_t *x =
            (const uint8_t *)p.x + (size_t)(at.token / (int)SPAN_TOKENS) * units * GW_SPAN_STAGE;
        const uint8_t *from = tokens ? x : w;
        const int piece = tokens ? (int)X : (int)F::RECORD;
        const int step = tokens ? (int)GW_SPAN_STAGE : (int)F::RECORD;
        const int to = tokens ? 0 : (int)GW_SPAN_STAGE + s * F::RECORD;
        const int copies = STRIPS + (feeder == 0);
        const int bytes = STRIPS * F::RECORD + (feeder == 0 ? (int)X : 0);
        int slot = 0, round = 0;
        for (int u = 0; u < units; u++) {
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

    /* Stage u has come: its codes to operands. */
    template <int ODD> __device__ inline void enter(int u) {
        const int slot = u % RING;
        const unsigned char *record = shared + slot * STAGE + GW_SPAN_STAGE + at.m * F::RECORD;
        quarter<F> q[T::AR];
        gw_gate_wait(has(slot), u / RING & 1);
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
    /* Products of a piece of it begin, to sums `TO`. */
    template <int ODD, int TO> __device__ inline void begin(int u, int piece) {
        const gw_group_at columns = gw_group_columns(shared + u % RING * STAGE + SPAN_CODES_AT) +
                                    piece * (TILES * GW_GROUP_COLUMNS_8);
        gw_group_begin();
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            gw_group_int8(s[TO], operand[ODD][b], columns + b * GW_GROUP_K_STEP, b > 0);
        }
        gw_group_end();
    }
    /* They are there: terms. */
    template <int ODD, int FROM> __device__ inline void finish(int u, int piece) {
        const unsigned char *stage = shared + u % RING * STAGE;
        float row[T::CR][F::ROW];
        gw_group_keep<SUMS>(s[FROM]);
        if (piece == PIECES - 1) {
            gw_group_keep<BLOCKS * GW_MMA_A>(operand[ODD][0]);
        }
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            row_numbers<F>(scale[ODD][k], 0, row[k]);
        }
#pragma unroll
        for (int j = 0; j < TILES; j += 2) {
            float token[2][T::CC][F::TOKEN];
#pragma unroll
            for (int n = 0; n < F::TOKEN; n++) {
                unsigned v[4];
                load4(v, stage + gw_span_number(
                                     piece * COLUMNS + j * GW_MMA_N + gw_mma_c_col(at.lane, 0), n));
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    token[i / 2][i % 2][n] = GW_F32_FROM_BITS(v[i]);
                }
            }
#pragma unroll
            for (int i = 0; i < 2 * GW_MMA_C; i++) {
                const int tile = j + i / GW_MMA_C, k = i % GW_MMA_C;
                float &sum = acc[0][piece * TILES + tile][k];
                sum = add_term<F>(MAGIC_BITS + s[FROM][tile * GW_MMA_C + k], 0, row[k / T::CC],
                                  token[i / GW_MMA_C][k % T::CC], sum);
            }
        }
        gw_group_keep<SUMS>(acc[0][piece * TILES]); /* none is left for later: s is free */
        if (piece == PIECES - 1) {
            gw_sync_wave();
            if (gw_lane() == 0) {
                gw_gate_arrive(read(u % RING));
            }
        }
    }

    /* N pieces; products of the next one are on their way while sums are added. Over the end of a
     * loop the compiler does not follow which are, and would wait for each: so pieces go by a fixed
     * number, and what that costs at its ends the other half of the block makes use of. */
    template <int I, int N> struct pieces {
        __device__ static inline void run(gw_span_product &b, int u) {
            enum { NEXT = I + 1, ODD = I / PIECES % 2, NEXT_ODD = NEXT / PIECES % 2 };
            if (NEXT % PIECES == 0) {
                b.template enter<NEXT_ODD>(u + NEXT / PIECES);
            }
            b.template begin<NEXT_ODD, NEXT % 2>(u + NEXT / PIECES, NEXT % PIECES);
            gw_group_wait<1>();
            b.template finish<ODD, I % 2>(u + I / PIECES, I % PIECES);
            pieces<I + 1, N>::run(b, u);
        }
    };
    template <int N> struct pieces<N, N> {
        __device__ static inline void run(gw_span_product &b, int u) {
            gw_group_wait<0>();
            b.template finish<N / PIECES % 2, N % 2>(u + N / PIECES, N % PIECES);
        }
    };
    template <int STAGES> __device__ inline void some(int u) {
        enter<0>(u);
        begin<0, 0>(u, 0);
        pieces<0, STAGES * PIECES - 1>::run(*this, u);
    }
    __device__ inline void run() {
        int u = 0;
        __syncthreads(); /* gates are there */
        if (gw_team() >= T::WM) {
            gw_leave_registers<24>();
            feed(gw_team() - T::WM);
            return;
        }
        gw_take_registers<240>();
#pragma unroll 1
        for (; u + AT_ONCE <= units; u += AT_ONCE) {
            some<AT_ONCE>(u);
        }
#pragma unroll 1
        for (; u < units; u++) {
            some<1>(u);
        }
        if (p.glu) {
            gw_sync_some<1, T::THREADS>();
            gw_tile_glu<T>(p, at, acc, (float *)shared);
        } else {
            gw_tile_linear<T>(p, at, acc);
        }
    }
};

/* Tiles of the last tokens, where these are few and take half of the time, come when all others
 * have begun: a multiprocessor that is done early then has something of its size. */
template <class F>
__device__ static inline void gw_gemm_span(const gw_gemm_params &p, unsigned char *shared) {
    typedef typename gw_span_product<F, 1>::T T;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step), left = live % (int)SPAN_TOKENS;
    const int across = (live + (int)SPAN_TOKENS - 1) / (int)SPAN_TOKENS;
    const int whole = across - (left > 0 && left <= (int)SPAN_TOKENS / 2);
    int tiles = 0, row = (int)blockIdx.x, token = whole;
    for (int i = 0; i < (p.glu ? 1 : p.parts); i++) {
        const int rows = p.glu ? 2 * p.w[0].rows : p.w[i].rows;
        tiles += (rows + (int)T::ROWS - 1) / (int)T::ROWS;
    }
    if (row < tiles * whole) {
        token = row % whole;
        row = row / whole;
    } else {
        row -= tiles * whole;
    }
    if (token >= across) {
        return;
    }
    const gw_tile_at at = gw_tile_find<T>(p, row * across + token);
    if (at.live - at.token > (int)SPAN_TOKENS / 2) {
        gw_span_product<F, 2>(p, at, shared).run();
    } else if (at.live > 0) {
        gw_span_product<F, 1>(p, at, shared).run();
    }
}

#endif

#endif
