/* kernels_hip/gemm/gemm.hip - the prompt's products with quantized weights in the prefill order:
 * LINEAR and GLU on int8 matrix instructions (gemm_strips.h), and a plain form for devices without
 * them. Here a wave has one strip and all of at most GW_GEMM_MANY live tokens; more are
 * gemm_large.hip's.
 */
#include "kernels_hip/gemm/gemm_record.h"
#include "kernels_hip/gemm/gemm_strips.h"

#if GW_MMA

struct tile_at {
    int part, strip; /* of the wave; the matrix, in a GLU 0 gate and 1 up */
    int token, live; /* live: 0 when there is nothing to do               */
    int wave, waves, lane;
};

/* Tiles of tokens change fastest, so that neighbours share weights. */
template <class T> __device__ static inline tile_at find_tile(const gw_gemm_params &p) {
    const int live = gw_live(p.step);
    const int across = live > 0 ? (live + (int)T::TOKENS - 1) / T::TOKENS : 1;
    int row = (int)blockIdx.x / across;
    tile_at at;
    at.wave = (int)threadIdx.x / LANES;
    at.waves = (int)blockDim.x / LANES;
    at.lane = (int)threadIdx.x % LANES;
    at.token = (int)blockIdx.x % across * T::TOKENS;
    at.part = 0;
    if (p.glu) {
        at.part = at.wave & 1;
        at.strip = row * (at.waves / 2) + at.wave / 2;
        at.live = row * (at.waves / 2) * GW_MMA_M >= p.w[0].rows ? 0 : live;
        return at;
    }
    for (int tiles; at.part < p.parts; at.part++, row -= tiles) {
        tiles = (p.w[at.part].rows + at.waves * GW_MMA_M - 1) / (at.waves * GW_MMA_M);
        if (row < tiles) {
            break;
        }
    }
    at.live = at.part == p.parts ? 0 : live;
    at.strip = row * at.waves + at.wave;
    return at;
}

/* What a row has not beyond its last block is 0, and adds nothing. */
template <class T>
__device__ static inline void fetch_acts(acts<T> &a, const gw_gemm_params &p, const tile_at &at,
                                         int block, int blocks) {
#pragma unroll
    for (int e = 0; e < T::X_EACH; e++) {
        const int id = (int)threadIdx.x + e * (int)blockDim.x, t = at.token + id / BLOCKS;
        const int b = block + id % BLOCKS, there = t < at.live && b < blocks;
        const uint8_t *x = (const uint8_t *)p.x + ((size_t)t * blocks + b) * ACT_BYTES;
#pragma unroll
        for (int j = 0; j < ACT_BYTES / 4; j += 2) {
            a.w[e][j] = a.w[e][j + 1] = 0;
            if (there) {
                load2(a.w[e] + j, x + 4 * j);
            }
        }
    }
}

/* ---- results --------------------------------------------------------------------------------- */

/* y = (sum + bias) + residual */
template <class T>
__device__ static inline void emit_linear(const gw_gemm_params &p, const tile_at &at,
                                          const float (*acc)[GW_MMA_C]) {
    const gw_gemm_weight &w = p.w[at.part];
    float *y = (float *)p.y + w.column;
    const float *residual = p.residual ? p.residual + w.column : p.residual;
#pragma unroll
    for (int k = 0; k < GW_MMA_C; k++) {
        const int r = at.strip * GW_MMA_M + gw_mma_c_row(at.lane, k);
        const float bias = w.bias && r < w.rows ? w.bias[r] : 0.0f;
#pragma unroll
        for (int j = 0; j < T::NT; j++) {
            const int t = at.token + j * GW_MMA_N + gw_mma_c_col(at.lane, k);
            if (r < w.rows && t < at.live) {
                const size_t to = (size_t)t * p.stride + r;
                const float v = w.bias ? acc[j][k] + bias : acc[j][k];
                y[to] = residual ? v + residual[to] : v;
            }
        }
    }
}

/* silu(gate) * up through shared memory: TOKENS * (rows / 2 + 1) floats, that begin as those of
 * gate. */
template <class T>
__device__ static inline void emit_glu(const gw_gemm_params &p, const tile_at &at,
                                       const float (*acc)[GW_MMA_C], float *shared) {
    const int half = at.waves / 2 * GW_MMA_M, pitch = half + 1, threads = (int)blockDim.x;
    const int r0 = (at.strip - at.wave / 2) * GW_MMA_M;
    for (int part = 0; part < 2; part++) {
        __syncthreads();
        if (at.part == part) {
#pragma unroll
            for (int j = 0; j < T::NT; j++) {
#pragma unroll
                for (int k = 0; k < GW_MMA_C; k++) {
                    float *v = shared + (j * GW_MMA_N + gw_mma_c_col(at.lane, k)) * pitch +
                               at.wave / 2 * GW_MMA_M + gw_mma_c_row(at.lane, k);
                    *v = part ? *v * acc[j][k] : acc[j][k];
                }
            }
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; !part && i < T::TOKENS * pitch; i += threads) {
            if (i % pitch < half) {
                shared[i] = gw_silu(shared[i]);
            }
        }
    }
    if (p.act8) {
        for (int i = (int)threadIdx.x; i < T::TOKENS * half / GW_ACT_BLOCK; i += threads) {
            const int t = i % T::TOKENS, r = i / T::TOKENS * GW_ACT_BLOCK;
            if (at.token + t < at.live && r0 + r < p.w[0].rows) {
                gw_act8 out;
                gw_act8_encode(&out, shared + t * pitch + r);
                const size_t to = (size_t)(at.token + t) * p.stride + r0 + r;
                ((gw_act8 *)p.y)[to / GW_ACT_BLOCK] = out;
            }
        }
    } else {
        for (int i = (int)threadIdx.x; i < T::TOKENS * half; i += threads) {
            const int t = i / half, r = i % half;
            if (at.token + t < at.live && r0 + r < p.w[0].rows) {
                ((float *)p.y)[(size_t)(at.token + t) * p.stride + r0 + r] = shared[t * pitch + r];
            }
        }
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

template <class F, int NT>
__device__ static inline void gemm(const gw_gemm_params &p, unsigned char *shared) {
    typedef tile<F, NT> T;
    const tile_at at = find_tile<T>(p);
    const int blocks = p.k / GW_ACT_BLOCK, units = (blocks + BLOCKS - 1) / BLOCKS;
    if (at.live == 0) {
        return; /* the whole block */
    }
    const gw_gemm_weight &w = p.w[at.part];
    const int last = (w.rows - 1) / GW_MMA_M, strip = at.strip < last ? at.strip : last;
    const uint8_t *from = w.plane[0] + (size_t)strip * units * F::RECORD;
    unsigned char *x = shared + at.waves * T::RING * F::RECORD;
    unsigned char *ring = shared + at.wave * T::RING * F::RECORD;
    const token_places places = find_tokens(at.lane);
    acts<T> a;
    float acc[NT][GW_MMA_C];
#pragma unroll
    for (int i = 0; i < NT * GW_MMA_C; i++) {
        acc[i / GW_MMA_C][i % GW_MMA_C] = 0.0f;
    }
#pragma unroll
    for (int s = 0; s + 1 < T::RING; s++) {
        copy_record<F, T>(ring + s * F::RECORD, from, at.lane, s < units);
    }
    fetch_acts<T>(a, p, at, 0, blocks);
    stash_acts<F, T>(a, x);
    fetch_acts<T>(a, p, at, BLOCKS, blocks);
    for (int u = 0, turn = 0; u < units; u++, turn = turn + 1 == T::RING ? 0 : turn + 1) {
        const int before = turn == 0 ? T::RING - 1 : turn - 1;
        gw_copy_wait<T::RING - 2>();
        __syncthreads();
        copy_record<F, T>(ring + before * F::RECORD, from, at.lane, u + T::RING - 1 < units);
        if (u + 1 < units) {
            stash_acts<F, T>(a, x + (u + 1) % 2 * (T::X + T::N));
            fetch_acts<T>(a, p, at, (u + 2) * BLOCKS, blocks);
        }
        const unsigned char *record = ring + turn * F::RECORD, *stage = x + u % 2 * (T::X + T::N);
        if (F::WHOLE) {
            compute_record<F, T>(record, stage, places, at.lane, acc);
        } else {
            compute_blocks<F, T>(record, stage, places, at.lane, acc);
        }
    }
    if (p.glu) {
        emit_glu<T>(p, at, acc, (float *)shared);
    } else {
        emit_linear<T>(p, at, acc);
    }
}

template <class F>
__device__ static inline void gemm_any(const gw_gemm_params &p, unsigned char *shared) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step);
    if (live <= 32) {
        gemm<F, 32 / GW_MMA_N>(p, shared);
    } else if (live <= (WIDE ? 64 : GW_GEMM_MANY)) {
        gemm<F, 64 / GW_MMA_N>(p, shared);
    } else if (WIDE && live <= GW_GEMM_MANY) {
        gemm<F, (WIDE ? 128 : 64) / GW_MMA_N>(p, shared);
    }
}

#define GEMM(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                     \
    GW_KERNEL(gw_gemm_##name, struct gw_gemm_params, GW_GEMM_WAVES(WIDE) * LANES, 1) {             \
        GW_SHARED_DYNAMIC(unsigned char, shared);                                                  \
        gemm_any<format<low, high, offset, levels, term, sub, heads, bytes>>(p, shared);           \
    }
GW_STRIP_KERNELS(GEMM)

#endif

/* ---- plainly --------------------------------------------------------------------------------- */

/* One output: row r of w for a token. */
template <class F>
__device__ static inline float plain_sum(const gw_gemm_weight &w, int r, const uint8_t *x,
                                         int blocks) {
    const int units = (blocks + BLOCKS - 1) / BLOCKS;
    const uint8_t *strip = w.plane[0] + (size_t)(r / 16) * units * F::RECORD;
    float acc = 0.0f;
    for (int u = 0; u < units; u++) {
        const unsigned *act = (const unsigned *)x + (size_t)u * (BLOCKS * (int)GW_ACT_WORDS);
        const row_record<F> record(strip + (size_t)u * F::RECORD, r % 16);
        if (F::WHOLE) {
            acc = record.term(act, acc);
            continue;
        }
#pragma unroll
        for (int i = 0; i < BLOCKS; i++, act += GW_ACT_WORDS) {
            float row[F::ROW], token[F::TOKEN];
            int sum = MAGIC_BITS;
            if (u * BLOCKS + i < blocks) {
#pragma unroll
                for (int w = 0; w < 8; w++) {
                    sum = gw_dp4a((int)codes<F>(record.quarters[w % 4], i, w / 4), (int)act[2 + w],
                                  sum);
                }
                row_numbers<F>(record.scale, i, row);
                token_numbers<F>(GW_F32_FROM_BITS(act[0]), act[1], token);
                acc = add_term<F>(sum, 0, row, token, acc);
            }
        }
    }
    return acc;
}

/* A strip of rows by GW_PLAIN_TOKENS tokens. */
template <class F> __device__ static inline void plain(const gw_gemm_params &p) {
    const int row = (int)blockIdx.x * 16 + (int)threadIdx.x % 16;
    const int t = (int)blockIdx.y * GW_PLAIN_TOKENS + (int)threadIdx.x / 16;
    const int blocks = p.k / GW_ACT_BLOCK;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (t < gw_live(p.step) && row < p.w[0].rows) {
        const uint8_t *x = (const uint8_t *)p.x + (size_t)t * blocks * ACT_BYTES;
        const size_t to = (size_t)t * p.stride + p.w[0].column + row;
        float v = plain_sum<F>(p.w[0], row, x, blocks);
        v = p.w[0].bias ? v + p.w[0].bias[row] : v;
        ((float *)p.y)[to] = p.residual ? v + p.residual[to] : v;
    }
}

#define PLAIN(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                    \
    GW_KERNEL(gw_gemm_plain_##name, struct gw_gemm_params, GW_PLAIN_TOKENS * 16) {                 \
        plain<format<low, high, offset, levels, term, sub, heads, bytes>>(p);                      \
    }
GW_STRIP_KERNELS(PLAIN)
