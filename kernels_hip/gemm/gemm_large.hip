/* kernels_hip/gemm/gemm_large.hip - products of many tokens (more than GW_GEMM_MANY) with quantized
 * weights: a block of eight waves has 128 rows, and a wave several strips, so that operands of
 * tokens and of weights serve several times. Otherwise as gemm.hip.
 */
#include "kernels_hip/gemm/gemm_format.h"

#if GW_MMA

/* ---- stages in shared memory ----------------------------------------------------------------- */

template <class F, class T, int RING_> struct stages {
    enum {
        RING = RING_, /* stages of weights; two of activations */
        W = T::STRIPS * F::RECORD,
        X = T::TOKENS * BLOCKS * GW_ACT_BLOCK,
        N = F::TOKEN * BLOCKS * T::TOKENS * 4,
        CHUNKS = W / 16,
        W_EACH = (CHUNKS + T::THREADS - 1) / T::THREADS,
        X_EACH = (T::TOKENS * BLOCKS + T::THREADS - 1) / T::THREADS
    };
};

template <class F, class T, class S> struct pipeline {
    const uint8_t *w[S::W_EACH]; /* next 16 bytes of this thread */
    unsigned act[S::X_EACH][ACT_BYTES / 4];
};

template <class F, class T, class S>
__device__ static inline void begin_weights(pipeline<F, T, S> &l, const gw_gemm_params &p,
                                            const gw_tile_at &at, int units) {
#pragma unroll
    for (int i = 0; i < S::W_EACH; i++) {
        const int id = (int)threadIdx.x + i * T::THREADS, s = id * 16 / F::RECORD % T::STRIPS;
        const size_t strip = (size_t)gw_tile_strip(p, at, s);
        l.w[i] =
            gw_tile_weight(p, at, s).plane[0] + strip * units * F::RECORD + id * 16 % F::RECORD;
    }
}

template <class F, class T, class S>
__device__ static inline void copy_weights(pipeline<F, T, S> &l, unsigned char *stage, int there) {
    if (there) {
#pragma unroll
        for (int i = 0; i < S::W_EACH; i++) {
            const int id = (int)threadIdx.x + i * T::THREADS;
            if (S::CHUNKS % T::THREADS == 0 || id < S::CHUNKS) {
                gw_copy_async(stage + id * 16, l.w[i]);
            }
            l.w[i] += F::RECORD;
        }
    }
    gw_copy_commit();
}

template <class F, class T, class S>
__device__ static inline void fetch_acts(pipeline<F, T, S> &l, const gw_gemm_params &p,
                                         const gw_tile_at &at, int block, int blocks) {
#pragma unroll
    for (int e = 0; e < S::X_EACH; e++) {
        const int id = (int)threadIdx.x + e * T::THREADS, t = at.token + id / BLOCKS;
        const int b = block + id % BLOCKS < blocks ? block + id % BLOCKS : blocks - 1;
        const uint8_t *x = (const uint8_t *)p.x +
                           ((size_t)(t < at.live ? t : at.live - 1) * blocks + b) * ACT_BYTES;
#pragma unroll
        for (int j = 0; j < ACT_BYTES / 4; j += 2) {
            load2(l.act[e] + j, x + 4 * j);
        }
    }
}

template <class F, class T, class S>
__device__ static inline void stash_acts(pipeline<F, T, S> &l, unsigned char *x) {
    float *numbers = (float *)(x + S::X);
#pragma unroll
    for (int e = 0; e < S::X_EACH; e++) {
        const int id = (int)threadIdx.x + e * T::THREADS, t = id / BLOCKS, b = id % BLOCKS;
        float o[F::TOKEN];
        prompt_block<F>(l.act[e], o);
        if (S::X_EACH > 1 || id < T::TOKENS * BLOCKS) {
            store4(x + half_at(t, b, 0), l.act[e] + 2);
            store4(x + half_at(t, b, 1), l.act[e] + 6);
#pragma unroll
            for (int n = 0; n < F::TOKEN; n++) {
                numbers[(b * F::TOKEN + n) * T::TOKENS + t] = o[n];
            }
        }
    }
}

/* ---- one block of 32 ------------------------------------------------------------------------- */

/* Operands of two tiles of tokens. */
__device__ static inline void load_tokens(unsigned *o, const unsigned char *x, int token, int b,
                                          int lane) {
#ifdef GW_LOAD_MATRICES
    gw_load_matrices(o, x + half_at(token + lane / 16 * 8 + lane % 8, b, lane / 8 % 2));
#elif GW_WMMA
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int t = token + k / 2 * GW_MMA_N + gw_mma_b_col(lane);
        gw_wmma_load(o + k * GW_WMMA_QUARTERS, x + half_at(t, b, k % 2), lane);
    }
#else
#pragma unroll
    for (int k = 0; k < 2 * GW_MMA_B; k++) {
        const int t = token + k / 2 * GW_MMA_N + gw_mma_b_col(lane);
        o[k] = *(const unsigned *)(x + half_at(t, b, k % 2) + gw_tile_pair(lane) * 4);
    }
#endif
}

/* Numbers of the lane's tokens of tile j for block b. */
template <class F, class T>
__device__ static inline void load_numbers(float (*token)[F::TOKEN], const float *numbers, int b,
                                           int j, const gw_tile_at &at) {
#pragma unroll
    for (int n = 0; n < F::TOKEN; n++) {
        const float *from = numbers + (b * F::TOKEN + n) * T::TOKENS + at.n + j * GW_MMA_N +
                            gw_mma_c_col(at.lane, 0);
        if (T::CC == 2) {
            const floats2 v = *(const floats2 *)from;
            token[0][n] = v.v[0];
            token[T::CC - 1][n] = v.v[1];
        } else {
            token[0][n] = from[0];
        }
    }
}

/* What a wave keeps of a stage of weights. */
template <class F, class T> struct operands {
    quarter<F> codes[T::MT][T::AR];
    scales<F> scale[T::MT][T::CR];
    float row[T::MT][T::CR][F::PROMPT_ROW];
};

template <class F, class T>
__device__ static inline void add_block(const operands<F, T> &o, const unsigned *const *a,
                                        const unsigned char *x, const float *numbers, int b,
                                        const gw_tile_at &at, float (*acc)[T::NT][GW_MMA_C]) {
    enum { PAIRS = T::NT > 1 ? 2 : 1 };
    unsigned tokens[PAIRS][2 * GW_MMA_B];
    int s[2][T::MT][GW_MMA_C];
    load_tokens(tokens[0], x, at.n, b, at.lane);
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
        multiply<F>(s[0][i], a[i], tokens[0]);
    }
#pragma unroll
    for (int j = 0; j < T::NT; j++) {
        float token[T::CC][F::TOKEN];
        if (j % 2 == 0 && j + 2 < T::NT) {
            load_tokens(tokens[(j / 2 + 1) % PAIRS], x, at.n + (j + 2) * GW_MMA_N, b, at.lane);
        }
        load_numbers<F, T>(token, numbers, b, j, at);
        if (j + 1 < T::NT) {
#pragma unroll
            for (int i = 0; i < T::MT; i++) {
                multiply<F>(s[(j + 1) % 2][i], a[i],
                            tokens[(j + 1) / 2 % PAIRS] + (j + 1) % 2 * GW_MMA_B);
            }
        }
#pragma unroll
        for (int i = 0; i < T::MT; i++) {
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                acc[i][j][k] = add_term<F>(s[j % 2][i][k], 0, o.row[i][k / T::CC], token[k % T::CC],
                                           acc[i][j][k]);
            }
        }
    }
}

/* All blocks of a stage, where they are one term: a pair of tiles of tokens after the other. */
template <class F, class T>
__device__ static inline void add_record(const operands<F, T> &o, const unsigned char *x,
                                         const float *numbers, const gw_tile_at &at,
                                         float (*acc)[T::NT][GW_MMA_C]) {
#if GW_WMMA /* or scales of eight rows are unpacked for all blocks at once */
    enum { PAIR = T::NT };
#else
    enum { PAIR = T::NT > 1 ? 2 : 1 };
#endif
    unsigned a[BLOCKS][T::MT][GW_MMA_A];
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
#pragma unroll
        for (int i = 0; i < T::MT * GW_MMA_A; i++) {
            const int m = i / GW_MMA_A, k = i % GW_MMA_A;
            a[b][m][k] = codes<F>(o.codes[m][k % T::AR], b, k / T::AR);
        }
    }
#pragma unroll
    for (int first = 0; first < T::NT; first += PAIR) {
        int s[PAIR][T::MT][GW_MMA_C];
        gw_sync_wave(); /* or products of later tiles begin so early that registers spill */
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            unsigned tokens[2 * GW_MMA_B];
#if GW_WMMA
#pragma unroll
            for (int j = 0; j < PAIR; j++) {
                if (j % 2 == 0) {
                    load_tokens(tokens, x, at.n + j * GW_MMA_N, b, at.lane);
                }
                multiply_record<F, T::CC>(s[j][0], a[b][0], tokens + j % 2 * GW_MMA_B, o.scale[0],
                                          b);
                gw_wmma_now(s[j][0]);
            }
            static_assert(T::MT == 1, "a wave has one strip");
            continue;
#endif
            load_tokens(tokens, x, at.n + first * GW_MMA_N, b, at.lane);
#pragma unroll
            for (int i = 0; i < PAIR * T::MT; i++) {
                const int j = i / T::MT, m = i % T::MT;
                multiply_record<F, T::CC>(s[j][m], a[b][m], tokens + j * GW_MMA_B, o.scale[m], b);
            }
        }
#pragma unroll
        for (int j = 0; j < PAIR; j++) {
            float token[T::CC][F::TOKEN], minimums[T::MT][GW_MMA_C] = {};
#pragma unroll
            for (int b = F::MINIMUMS ? BLOCKS - 1 : 0; b >= 0; b--) { /* the scale is the same */
                load_numbers<F, T>(token, numbers, b, first + j, at);
#pragma unroll
                for (int i = 0; i < (F::MINIMUMS ? T::MT * GW_MMA_C : 0); i++) {
                    const int m = i / GW_MMA_C, k = i % GW_MMA_C;
                    minimums[m][k] =
                        add_minimums<F>(o.scale[m][k / T::CC], b, token[k % T::CC], minimums[m][k]);
                }
            }
#pragma unroll
            for (int i = 0; i < T::MT * GW_MMA_C; i++) {
                const int m = i / GW_MMA_C, k = i % GW_MMA_C;
                float &sum = acc[m][first + j][k];
                sum = prompt_term<F>(s[j][m][k], minimums[m][k], o.row[m][k / T::CC],
                                     token[k % T::CC], sum);
            }
        }
    }
}

/* Blocks [0, n) of a stage. */
template <class F, class T, class S>
__device__ static inline void compute(operands<F, T> &o, const unsigned char *w,
                                      const unsigned char *x, int n, const gw_tile_at &at,
                                      float (*acc)[T::NT][GW_MMA_C]) {
    const float *numbers = (const float *)(x + S::X);
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
        const unsigned char *record = w + (at.m + i) * F::RECORD;
#pragma unroll
        for (int k = 0; k < T::AR; k++) {
            load_quarter<F>(o.codes[i][k], record, gw_tile_row(at.lane, k),
                            GW_TILE_PAIR(at.lane, k));
        }
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            load_scales<F>(o.scale[i][k], record, gw_mma_c_row(at.lane, k * T::CC));
            prompt_row<F>(o.scale[i][k], 0, o.row[i][k]);
        }
    }
    if (F::WHOLE) {
        add_record<F, T>(o, x, numbers, at, acc);
        return;
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        unsigned a[T::MT][GW_MMA_A];
        const unsigned *operand[T::MT];
        if (b >= n) {
            break;
        }
#pragma unroll
        for (int i = 0; i < T::MT; i++) {
            operand[i] = a[i];
#pragma unroll
            for (int k = 0; k < GW_MMA_A; k++) {
                a[i][k] = codes<F>(o.codes[i][k % T::AR], b, k / T::AR);
            }
#pragma unroll
            for (int k = 0; k < T::CR; k++) {
                prompt_row<F>(o.scale[i][k], b, o.row[i][k]);
            }
        }
        add_block<F, T>(o, operand, x, numbers, b, at, acc);
    }
}

/* ---- a tile ---------------------------------------------------------------------------------- */

template <class F, class T, int RING>
__device__ static inline void gemm(const gw_gemm_params &p, unsigned char *shared) {
    typedef stages<F, T, RING> S;
    const gw_tile_at at = gw_tile_find<T>(p, (int)blockIdx.x);
    const int blocks = p.k / GW_ACT_BLOCK, units = (blocks + BLOCKS - 1) / BLOCKS;
    if (at.live == 0) {
        return;
    }
    unsigned char *x = shared + RING * S::W;
    pipeline<F, T, S> l;
    operands<F, T> o;
    float acc[T::MT][T::NT][GW_MMA_C];
#pragma unroll
    for (int i = 0; i < T::MT * T::NT * GW_MMA_C; i++) {
        acc[i / GW_MMA_C / T::NT][i / GW_MMA_C % T::NT][i % GW_MMA_C] = 0.0f;
    }
    begin_weights(l, p, at, units);
#pragma unroll
    for (int s = 0; s + 1 < RING; s++) {
        copy_weights(l, shared + s * S::W, s < units);
    }
    fetch_acts(l, p, at, 0, blocks);
    stash_acts(l, x);
    fetch_acts(l, p, at, BLOCKS, blocks);
    for (int u = 0, turn = 0; u < units; u++, turn = turn + 1 == RING ? 0 : turn + 1) {
        const int next = turn == 0 ? RING - 1 : turn - 1;
        gw_copy_wait<RING - 2>();
        __syncthreads();
        copy_weights(l, shared + next * S::W, u + RING - 1 < units);
        if (u + 1 < units) {
            stash_acts(l, x + (u + 1) % 2 * (S::X + S::N));
            fetch_acts(l, p, at, (u + 2) * BLOCKS, blocks);
        }
        compute<F, T, S>(o, shared + turn * S::W, x + u % 2 * (S::X + S::N), blocks - u * BLOCKS,
                         at, acc);
    }
    if (p.glu) {
        __syncthreads();
        gw_tile_glu<T>(p, at, acc, (float *)shared);
    } else {
        gw_tile_linear<T>(p, at, acc);
    }
}

#if GW_WMMA /* a second strip of weights and its scales would not fit into registers */
typedef gw_tile<GW_GEMM_ROWS, GW_GEMM_TOKENS(WIDE), 8, 1> large_tile;
#else
typedef gw_tile<GW_GEMM_ROWS, GW_GEMM_TOKENS(WIDE), LANES == 32 ? 4 : 2, 2> large_tile;
#endif

template <class F>
__device__ static inline void gemm_large(const gw_gemm_params &p, unsigned char *shared) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait(); /* also when idle: those behind wait for this launch alone */
    if (gw_live(p.step) > GW_GEMM_MANY) {
        gemm<F, large_tile, GW_LARGE_RING(WIDE)>(p, shared);
    }
}

#define LARGE(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                    \
    GW_KERNEL(gw_gemm_large_##name, struct gw_gemm_params, GW_GEMM_THREADS, 1) {                   \
        GW_SHARED_DYNAMIC(unsigned char, shared);                                                  \
        gemm_large<format<low, high, offset, levels, term, sub, heads, bytes>>(p, shared);         \
    }
GW_STRIP_KERNELS(LARGE)

#endif
