/* kernels_hip/gemm_group.hip - the prompt's products on matrix instructions of four waves, where a
 * device has them: quantized weights for more than GW_GEMM_MANY tokens, and F16 and BF16. A tile
 * has 128 rows and 128 tokens; of quantized weights, blocks share tiles out (gemm_share.h).
 *
 * Quantized: gw_spread makes binary16 of the int8 codes of tokens, the block of threads does so
 * with those of weights. Sums of a block of 32 are then integers of less than 2^24, exact in
 * binary32, and come as floats, where turning int8 sums into floats costs as much as the chain that
 * follows: the bits are those of gemm_large.hip. What a block of threads needs of its tokens for
 * four blocks of 32 lies together in memory as it will in shared memory.
 *
 * F16 and BF16 are as in gemm_half.hip; formats of one term for four blocks in gemm_span.h.
 */
#include "kernels_hip/gemm_format.h"
#include "kernels_hip/gemm_half.h"
#include "kernels_hip/gemm_share.h"
#include "kernels_hip/gemm_span.h"

#if GW_GROUP_MMA

/* ---- tokens ---------------------------------------------------------------------------------- */

enum { TOKENS = GW_GEMM_TOKENS(1), CODES = TOKENS * BLOCKS * GW_ACT_BLOCK * 2 };

/* Places within a stage: 16 bytes `piece` (of four) of a block of a token, and number n of it. A
 * lane's numbers of two tiles lie together. */
__device__ static inline int piece_at(int token, int b, int piece) {
    return (b / 2 * TOKENS + token) * 128 + ((b % 2 * 4 + piece) ^ (token & 7)) * 16;
}
__device__ static inline int number_at(int token, int b, int n, int numbers) {
    const int at = token / 16 * 16 + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
    return CODES + ((b * numbers + n) * TOKENS + at) * 4;
}

/* A thread has a block of a token, neighbours have neighbouring tokens. The first pairs of four
 * codes, 16 bytes of each half of a block, and the second pairs stand apart, as the instruction
 * wants codes 4 t .. 4 t + 3 of lane t. */
GW_KERNEL(gw_spread, struct gw_spread_params, GW_SPREAD_THREADS) {
    const int t = (int)(blockIdx.x * 8 + threadIdx.x % 8), live = gw_live(p.step);
    const int b = (int)(blockIdx.y * (GW_SPREAD_THREADS / 8) + threadIdx.x / 8);
    const int blocks = p.k / GW_ACT_BLOCK, units = (blocks + BLOCKS - 1) / BLOCKS;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (t >= live || live <= GW_GEMM_MANY || b >= units * BLOCKS) {
        return;
    }
    unsigned act[ACT_BYTES / 4] = {0}; /* what a row has not beyond its last block adds nothing */
    const uint8_t *x = (const uint8_t *)p.x + ((size_t)t * blocks + b) * ACT_BYTES;
#pragma unroll
    for (int j = 0; j < ACT_BYTES / 4; j += 2) {
        if (b < blocks) {
            load2(act + j, x + 4 * j);
        }
    }
    unsigned char *stage = (unsigned char *)p.y +
                           ((size_t)(t / TOKENS) * units + b / BLOCKS) * GW_SPREAD_STAGE(p.numbers);
    const int token = t % TOKENS;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        unsigned pair[2][4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            gw_halves_of_bytes<128>(act[2 + 4 * h + j] ^ 0x80808080u, &pair[0][j], &pair[1][j]);
        }
        store4(stage + piece_at(token, b % BLOCKS, 2 * h), pair[0]);
        store4(stage + piece_at(token, b % BLOCKS, 2 * h + 1), pair[1]);
    }
    const float scale = GW_F32_FROM_BITS(act[0]);
    const int first = (int16_t)(act[1] & 0xffffu), second = (int16_t)(act[1] >> 16);
    const float more[2] = {p.numbers == 2 ? scale * (float)(first + second) : (float)first,
                           (float)second};
    *(float *)(stage + number_at(token, b % BLOCKS, 0, p.numbers)) = scale;
    for (int n = 1; n < p.numbers; n++) {
        *(float *)(stage + number_at(token, b % BLOCKS, n, p.numbers)) = more[n - 1];
    }
}

/* For stages that are one term (gemm_span.h): neighbouring lanes have the blocks of one. */
GW_KERNEL(gw_spread_span, struct gw_spread_params, GW_SPREAD_THREADS) {
    const int t = (int)blockIdx.y, blocks = p.k / GW_ACT_BLOCK, token = t % (int)SPAN_TOKENS;
    const int b = (int)(blockIdx.x * blockDim.x + threadIdx.x), i = b % BLOCKS;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (t >= gw_live(p.step)) {
        return; /* the whole block */
    }
    unsigned act[ACT_BYTES / 4] = {0};
    const uint8_t *x = (const uint8_t *)p.x + ((size_t)t * blocks + b) * ACT_BYTES;
#pragma unroll
    for (int j = 0; j < ACT_BYTES / 4; j += 2) {
        if (b < blocks) {
            load2(act + j, x + 4 * j);
        }
    }
    gw_span_blocks(act);
    if (b >= blocks) {
        return;
    }
    unsigned char *stage =
        (unsigned char *)p.y +
        ((size_t)(t / (int)SPAN_TOKENS) * (blocks / BLOCKS) + b / BLOCKS) * (size_t)GW_SPAN_STAGE;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        store4(stage + SPAN_CODES_AT + half_at(token, i, h), act + 2 + 4 * h);
    }
    if (i < 2) {
        const float scale = GW_F32_FROM_BITS(act[0]);
        *(float *)(stage + gw_span_number(token, i)) =
            i ? scale * (float)gw_first_sum(act[1]) : scale;
    }
}

/* ---- stages of quantized weights ------------------------------------------------------------- */

/* Tokens, then weights. */
template <class F, class T> struct stages {
    enum {
        RING = GW_GROUP_RING,
        X = GW_SPREAD_STAGE(F::TOKEN),
        W = T::STRIPS * F::RECORD,
        X_EACH = (X / 16 + T::THREADS - 1) / T::THREADS,
        W_EACH = (W / 16 + T::THREADS - 1) / T::THREADS
    };
};

template <class F, class T> struct pipeline {
    const uint8_t *x, *w[stages<F, T>::W_EACH]; /* next 16 bytes of this thread */
};

template <class F, class T>
__device__ static inline void begin_copies(pipeline<F, T> &l, const gw_gemm_params &p,
                                           const gw_tile_at &at, int units, int from) {
    typedef stages<F, T> S;
    l.x = (const uint8_t *)p.x + ((size_t)(at.token / TOKENS) * units + from) * S::X +
          threadIdx.x * 16;
#pragma unroll
    for (int i = 0; i < S::W_EACH; i++) {
        const int id = (int)threadIdx.x + i * T::THREADS, s = id * 16 / F::RECORD % T::STRIPS;
        const size_t strip = (size_t)gw_tile_strip(p, at, s);
        l.w[i] = gw_tile_weight(p, at, s).plane[0] + (strip * units + from) * F::RECORD +
                 id * 16 % F::RECORD;
    }
}

template <class F, class T>
__device__ static inline void copy_stage(pipeline<F, T> &l, gw_shared_at stage, int there) {
    typedef stages<F, T> S;
    if (there) {
#pragma unroll
        for (int i = 0; i < S::X_EACH; i++) {
            const int at = ((int)threadIdx.x + i * T::THREADS) * 16;
            if (S::X / 16 % T::THREADS == 0 || at < S::X) {
                gw_copy_async(stage + at, l.x + i * T::THREADS * 16);
            }
        }
        l.x += S::X;
#pragma unroll
        for (int i = 0; i < S::W_EACH; i++) {
            const int at = ((int)threadIdx.x + i * T::THREADS) * 16;
            if (S::W / 16 % T::THREADS == 0 || at < S::W) {
                gw_copy_async(stage + S::X + at, l.w[i]);
            }
            l.w[i] += F::RECORD;
        }
    }
    gw_copy_commit();
}

/* ---- a stage --------------------------------------------------------------------------------- */

/* What a wave keeps of a stage of weights. */
template <class F, class T> struct operands {
    quarter<F> codes[T::MT][T::AR];
    scales<F> scale[T::MT][T::CR];
};

template <class F, class T>
__device__ static inline void load_operands(operands<F, T> &o, const unsigned char *w,
                                            const gw_tile_at &at) {
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
        const unsigned char *record = w + (at.m + i) * F::RECORD;
#pragma unroll
        for (int k = 0; k < T::AR; k++) {
            load_quarter<F>(o.codes[i][k], record, gw_tile_row(at.lane, k), gw_tile_pair(at.lane));
        }
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            load_scales<F>(o.scale[i][k], record, gw_mma_c_row(at.lane, k * T::CC));
        }
    }
}

/* A stage goes by steps of a block and COLUMNS tokens; while the sums of one are added, those of
 * the next are made. */
template <class F, class T> struct steps {
    enum {
        COLUMNS = F::HALVES ? 32 : 64,
        PARTS = F::HALVES ? 2 : 1,
        TILES = COLUMNS / GW_MMA_N,
        PIECES = T::NT / TILES,
        COUNT = BLOCKS * PIECES
    };
    float s[2][PARTS][TILES * GW_MMA_C];
    unsigned a[2][2][GW_MMA_A]; /* of a block, by halves */
};

/* Numbers of the lane's tokens of two tiles, by tile and token. */
template <class F, class T>
__device__ static inline void load_numbers(float (*token)[T::CC][F::TOKEN],
                                           const unsigned char *stage, int b, int j, int lane) {
#pragma unroll
    for (int n = 0; n < F::TOKEN; n++) {
        unsigned v[4];
        load4(v, stage + number_at(j * GW_MMA_N + gw_mma_c_col(lane, 0), b, n, F::TOKEN));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            token[i / 2][i % 2][n] = GW_F32_FROM_BITS(v[i]);
        }
    }
}

template <class F, class T>
__device__ static inline void begin_step(steps<F, T> &l, int step, const operands<F, T> &o,
                                         gw_group_at x) {
    typedef steps<F, T> S;
    const int piece = step % S::PIECES, b = step / S::PIECES;
    unsigned(*a)[GW_MMA_A] = l.a[b % 2];
    x += b / 2 * (TOKENS / 8 * GW_GROUP_COLUMNS_8) + b % 2 * 2 * GW_GROUP_K_STEP +
         piece * S::TILES * GW_GROUP_COLUMNS_8;
    if (piece == 0) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int h = i / 2, row = i % 2;
            const unsigned c = codes<F, 0, 1>(o.codes[0][row], b, h);
            gw_halves_of_bytes<F::UNSIGNED ? F::OFFSET : 128>(F::UNSIGNED ? c : c ^ 0x80808080u,
                                                              &a[h][row], &a[h][2 + row]);
        }
    }
    gw_group_begin();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        gw_group_f16<S::COLUMNS>(l.s[step % 2][h % S::PARTS], a[h], x + h * GW_GROUP_K_STEP,
                                 h % S::PARTS != h);
    }
    gw_group_end();
}

template <class F, class T>
__device__ static inline void end_step(steps<F, T> &l, int step, const operands<F, T> &o,
                                       const float (*token)[T::CC][F::TOKEN],
                                       float (*acc)[T::NT][GW_MMA_C]) {
    typedef steps<F, T> S;
    const int piece = step % S::PIECES, b = step / S::PIECES;
    float(*s)[S::TILES * GW_MMA_C] = l.s[step % 2];
    float row[T::CR][F::ROW];
    gw_group_keep<S::PARTS * S::TILES * GW_MMA_C>(s[0]);
    gw_group_keep<2 * GW_MMA_A>(l.a[b % 2][0]);
#pragma unroll
    for (int k = 0; k < T::CR; k++) {
        row_numbers<F>(o.scale[0][k], b, row[k]);
    }
#pragma unroll
    for (int j = 0; j < S::TILES; j++) {
#pragma unroll
        for (int k = 0; k < GW_MMA_C; k++) {
            const float *of_row = row[k / T::CC];
            const float first = s[0][j * GW_MMA_C + k];
            float &sum = acc[0][piece * S::TILES + j][k];
            sum = add_sums<F>(F::HALVES ? of_row[1 % F::ROW] * first : first,
                              s[S::PARTS - 1][j * GW_MMA_C + k], of_row, token[j][k % T::CC], sum);
        }
    }
}

template <class F, class T>
__device__ static inline void compute(const unsigned char *stage, const gw_tile_at &at,
                                      float (*acc)[T::NT][GW_MMA_C]) {
    const gw_group_at columns = gw_group_columns(stage);
    operands<F, T> o;
    steps<F, T> l;
    load_operands(o, stage + stages<F, T>::X, at);
    begin_step(l, 0, o, columns);
#pragma unroll
    for (int step = 0; step < l.COUNT; step++) {
        float token[l.TILES][T::CC][F::TOKEN]; /* on their way while the next step begins */
#pragma unroll
        for (int j = 0; j < l.TILES; j += 2) {
            load_numbers<F, T>(token + j, stage, step / l.PIECES, step % l.PIECES * l.TILES + j,
                               at.lane);
        }
        if (step + 1 < l.COUNT) {
            begin_step(l, step + 1, o, columns);
            gw_group_wait<1>();
        } else {
            gw_group_wait<0>();
        }
        end_step(l, step, o, token, acc);
    }
}

template <class F>
__device__ static inline void gemm_group(const gw_gemm_params &p, unsigned char *shared) {
    typedef gw_tile<GW_GEMM_ROWS, TOKENS, 8, 1> T;
    typedef stages<F, T> S;
    enum { STAGE = GW_GROUP_STAGE(F::TOKEN, F::RECORD) };
    const int units = (p.k / GW_ACT_BLOCK + BLOCKS - 1) / BLOCKS;
    const gw_shared_at to = gw_shared_address(shared);
    pipeline<F, T> l;
    float acc[T::MT][T::NT][GW_MMA_C];
    const int block = gw_share_number(p, (unsigned *)shared);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait(); /* also when idle: those behind wait for this launch alone */
    if (gw_live(p.step) <= GW_GEMM_MANY) {
        return;
    }
    const gw_share share = gw_share_of<T>(p, block, units, 0);
    gw_job job;
    for (int i = 0; gw_share_job(share, i, &job); i++) {
        const gw_tile_at at = gw_share_tile<T>(p, share, job.tile);
        gw_share_begins<T::THREADS, T::NT * GW_MMA_C>(p, block, job, acc[0][0]);
        begin_copies(l, p, at, units, job.from);
#pragma unroll
        for (int s = 0; s + 1 < S::RING; s++) {
            copy_stage(l, to + s * STAGE, job.from + s < job.to);
        }
        for (int u = job.from, turn = 0; u < job.to;
             u++, turn = turn + 1 == S::RING ? 0 : turn + 1) {
            gw_copy_wait<S::RING - 2>();
            gw_group_show();
            __syncthreads();
            copy_stage(l, to + (turn == 0 ? S::RING - 1 : turn - 1) * STAGE,
                       u + S::RING - 1 < job.to);
            compute<F, T>(shared + turn * STAGE, at, acc);
        }
        if (job.to < units) {
            gw_share_leave<T::THREADS, T::NT * GW_MMA_C>(p, block, acc[0][0]);
        } else if (p.glu) {
            __syncthreads();
            gw_tile_glu<T>(p, at, acc, (float *)shared);
        } else {
            gw_tile_linear<T>(p, at, acc);
        }
    }
}

template <class F, int SPAN = F::SPAN> struct product {
    __device__ static inline void run(const gw_gemm_params &p, unsigned char *shared) {
        gemm_group<F>(p, shared);
    }
};
template <class F> struct product<F, 1> {
    __device__ static inline void run(const gw_gemm_params &p, unsigned char *shared) {
        gw_gemm_span<F>(p, shared);
    }
};

#define GROUP(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                    \
    GW_KERNEL(gw_gemm_group_##name, struct gw_gemm_params, GW_GROUP_THREADS(term), 1) {            \
        GW_SHARED_TILES(unsigned char, shared);                                                    \
        product<format<low, high, offset, levels, term, sub, heads, bytes>>::run(p, shared);       \
    }
GW_STRIP_FORMATS(GROUP)

/* ---- F16 and BF16 ---------------------------------------------------------------------------- */

enum { STAGES = GW_HALF_STAGES(1, 1) };

/* What a lane needs of a stage's weights, by k step. */
template <class T>
__device__ static inline void half_stage_operands(unsigned (*a)[T::MT][GW_MMA_A],
                                                  const gw_tile_at &at,
                                                  const unsigned char *stage) {
#pragma unroll
    for (int n = 0; n < RECORDS; n++) {
        gw_16b w[T::MT][T::AR];
        half_weights<T>(w, at, stage, n);
        half_operands<T>(a[2 * n], w, 0);
        half_operands<T>(a[2 * n + 1], w, 1);
    }
}

/* While the matrix units have a stage, the operands of the next one come to registers. */
template <class T, int BF16>
__device__ static inline void half_sums(const gw_gemm_params &p, const gw_tile_at &at, int records,
                                        unsigned char *shared, float (*acc)[T::NT][GW_MMA_C]) {
    enum { STAGE = half_stage<T>::BYTES, STEPS = 2 * RECORDS };
    const gw_shared_at to = gw_shared_address(shared);
    const gw_group_at columns =
        gw_group_columns(shared + half_stage<T>::TOKENS_AT) + at.n / GW_MMA_N * GW_GROUP_COLUMNS_8;
    unsigned a[2][STEPS][T::MT][GW_MMA_A];
    half_source<T> l;
    half_begin<T>(l, p, at, records);
#pragma unroll
    for (int s = 0; s + 1 < STAGES; s++) {
        half_load<T>(l, s * RECORDS < records, to + s * STAGE);
    }
    gw_copy_wait<STAGES - 2>();
    gw_group_show();
    __syncthreads();
    half_stage_operands<T>(a[0], at, shared);
    for (int r = 0, turn = 0; r < records;) {
#pragma unroll
        for (int odd = 0; odd < 2; odd++, r += RECORDS) { /* stages are even in number */
            gw_group_keep<T::MT * T::NT * GW_MMA_C>(&acc[0][0][0]);
            gw_group_begin();
#pragma unroll
            for (int i = 0; i < STEPS * T::MT; i++) {
                const int step = i / T::MT;
                const gw_group_at b = columns + turn * (STAGE / 16) + step * GW_GROUP_K_STEP;
                float *sum = &acc[i % T::MT][0][0];
                if (BF16) {
                    gw_group_bf16<T::NT * GW_MMA_N>(sum, a[odd][step][i % T::MT], b,
                                                    step > 0 || r > 0);
                } else {
                    gw_group_f16<T::NT * GW_MMA_N>(sum, a[odd][step][i % T::MT], b,
                                                   step > 0 || r > 0);
                }
            }
            gw_group_end();
            gw_group_wait<1>(); /* the stage before is free */
            gw_group_keep<T::MT * T::NT * GW_MMA_C>(&acc[0][0][0]);
            gw_group_keep<STEPS * T::MT * GW_MMA_A>(&a[1 - odd][0][0][0]);
            gw_copy_wait<STAGES - 3>();
            gw_group_show();
            __syncthreads();
            half_load<T>(l, r + (STAGES - 1) * RECORDS < records,
                         to + (turn == 0 ? STAGES - 1 : turn - 1) * STAGE);
            turn = turn + 1 == STAGES ? 0 : turn + 1;
            half_stage_operands<T>(a[1 - odd], at, shared + turn * STAGE);
        }
    }
    gw_group_wait<0>();
    gw_group_keep<T::MT * T::NT * GW_MMA_C>(&acc[0][0][0]);
}

template <int BF16>
__device__ static inline void half_group(const gw_gemm_params &p, unsigned char *shared) {
    typedef gw_tile<GW_GEMM_ROWS, TOKENS, 4, 2> T;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const gw_tile_at at = gw_tile_find<T>(p, (int)blockIdx.x);
    if (at.live == 0) {
        return;
    }
    float acc[T::MT][T::NT][GW_MMA_C];
    half_sums<T, BF16>(p, at, (p.k + 127) / 128 * 4, shared, acc);
    __syncthreads();
    if (!BF16) {
        half_scale<T>(p, at, acc);
    }
    if (p.glu) {
        gw_tile_glu<T>(p, at, acc, (float *)shared);
    } else {
        gw_tile_linear<T>(p, at, acc);
    }
}

GW_KERNEL(gw_gemm_group_f16, struct gw_gemm_params, GW_GEMM_THREADS, 1) {
    GW_SHARED_TILES(unsigned char, shared);
    half_group<0>(p, shared);
}
GW_KERNEL(gw_gemm_group_bf16, struct gw_gemm_params, GW_GEMM_THREADS, 1) {
    GW_SHARED_TILES(unsigned char, shared);
    half_group<1>(p, shared);
}

#endif
