/* kernels_hip/gemm/gemm_float.hip - the prompt's products with float weights in the prefill order,
 * bit for bit: one chain of fused multiply-adds per output, in increasing k. Also the join of a
 * gate and an up that were computed apart.
 *
 * A block of threads computes 64 weight rows (32 of gate and 32 of up in a GLU) by 64 tokens; a
 * thread 4 by 4. Columns beyond k are -0 in the weights and +0 here: they leave a sum as it is.
 */
#include "kernels_hip/gemm/gemm_tile.h"
#include "kernels_hip/strip.h"

enum {
    SIDE = GW_ORDERED_SIDE,
    THREADS = GW_GEMM_THREADS,
    EACH = 4,
    COLUMNS = 64, /* of a stage: half a record           */
    PITCH = SIDE + 4,
    F16 = 0,
    BF16,
    F32
};

struct __align__(8) words2 {
    unsigned w[2];
};
struct __align__(16) floats4 {
    float v[4];
};

typedef gw_tile<SIDE, SIDE, 1, 1> ordered_tile;

/* Where row r of strip s stands in the tile: a thread's four are, in a GLU, two of each. */
__device__ static inline int place(int glu, int s, int r) {
    const int o = s / 2 * 16 + r;
    return glu ? o / 2 * 4 + s % 2 * 2 + o % 2 : s * 16 + r;
}

template <int FORMAT>
__device__ static inline void load_weights(const gw_gemm_params &p, const gw_tile_at &at,
                                           int record, int half, int records, float *w) {
    enum { CLASSES = FORMAT == F32 ? 8 : 4, BYTES = CLASSES * 1024 };
    for (int id = (int)threadIdx.x; id < SIDE * 4 * CLASSES; id += THREADS) {
        const int t = id % 4, r = id / 4 % 16, q = id / 64 % CLASSES, s = id / (64 * CLASSES);
        const uint8_t *from = gw_tile_weight(p, at, s).plane[0] +
                              ((size_t)gw_tile_strip(p, at, s) * records + record) * BYTES;
        const words2 x = *(const words2 *)(from + 1024 * q + 64 * r + 16 * t + 8 * half);
        float *to = w + place(p.glu, s, r);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (FORMAT == F32) {
                to[(32 * e + 4 * q + t) * PITCH] = GW_F32_FROM_BITS(x.w[e]);
            } else {
                float *pair = to + (32 * e + 8 * q + 2 * t) * PITCH;
                pair[0] =
                    FORMAT == F16 ? gw_widen_f16((gw_u16)x.w[e]) : gw_bf16_to_f32((gw_u16)x.w[e]);
                pair[PITCH] = FORMAT == F16 ? gw_widen_f16((gw_u16)(x.w[e] >> 16))
                                            : gw_bf16_to_f32((gw_u16)(x.w[e] >> 16));
            }
        }
    }
}

__device__ static inline void load_tokens(const gw_gemm_params &p, const gw_tile_at &at, int column,
                                          float *x) {
    const int c = (int)threadIdx.x % COLUMNS;
    for (int t = (int)threadIdx.x / COLUMNS * EACH; t < SIDE; t += THREADS / COLUMNS * EACH) {
        floats4 v;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int token = at.token + t + i < at.live ? at.token + t + i : at.live - 1;
            v.v[i] =
                column + c < p.k ? ((const float *)p.x)[(size_t)token * p.k + column + c] : 0.0f;
        }
        *(floats4 *)(x + c * PITCH + t) = v;
    }
}

/* Rows of `place` are whole threads' in a GLU: v[0], v[1] are gates, v[2], v[3] ups. */
__device__ static inline void store(const gw_gemm_params &p, const gw_tile_at &at, int row,
                                    int token, float acc[EACH][EACH], float *shared) {
    if (!p.glu) {
        const gw_gemm_weight &w = p.w[at.part];
        for (int i = 0; i < EACH; i++) {
            for (int j = 0; j < EACH; j++) {
                const int r = at.strip * GW_MMA_M + row + i, t = at.token + token + j;
                if (r < w.rows && t < at.live) {
                    const size_t to = (size_t)t * p.stride + w.column + r;
                    const float v = w.bias ? acc[i][j] + w.bias[r] : acc[i][j];
                    ((float *)p.y)[to] = p.residual ? v + p.residual[to] : v;
                }
            }
        }
        return;
    }
    enum { HALF = SIDE / 2, OUT = HALF + 1 };
    const int r0 = at.strip * GW_MMA_M;
    __syncthreads();
    for (int i = 0; i < EACH / 2; i++) {
        for (int j = 0; j < EACH; j++) {
            shared[(token + j) * OUT + row / 2 + i] = gw_silu(acc[i][j]) * acc[i + 2][j];
        }
    }
    __syncthreads();
    if (p.act8) {
        const int t = (int)threadIdx.x;
        if (t < SIDE && at.token + t < at.live && r0 < p.w[0].rows) {
            gw_act8 out;
            gw_act8_encode(&out, shared + t * OUT);
            ((gw_act8 *)p.y)[((size_t)(at.token + t) * p.stride + r0) / GW_ACT_BLOCK] = out;
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < SIDE * HALF; i += THREADS) {
        const int t = i / HALF, r = i % HALF;
        if (at.token + t < at.live && r0 + r < p.w[0].rows) {
            ((float *)p.y)[(size_t)(at.token + t) * p.stride + r0 + r] = shared[t * OUT + r];
        }
    }
}

template <int FORMAT> __device__ static inline void ordered(const gw_gemm_params &p) {
    __shared__ float shared[2 * COLUMNS * PITCH];
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const gw_tile_at at = gw_tile_find<ordered_tile>(p, (int)blockIdx.x);
    const int records = (p.k + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS;
    const int row = (int)threadIdx.x % 16 * EACH, token = (int)threadIdx.x / 16 * EACH;
    float *w = shared, *x = shared + COLUMNS * PITCH, acc[EACH][EACH];
    if (at.live == 0) {
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH * EACH; i++) {
        acc[i / EACH][i % EACH] = 0.0f;
    }
    for (int s = 0; s < 2 * records; s++) {
        load_weights<FORMAT>(p, at, s / 2, s % 2, records, w);
        load_tokens(p, at, s * COLUMNS, x);
        __syncthreads();
#pragma unroll 8
        for (int c = 0; c < COLUMNS; c++) {
            const floats4 a = *(const floats4 *)(w + c * PITCH + row);
            const floats4 b = *(const floats4 *)(x + c * PITCH + token);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    acc[i][j] = fmaf(a.v[i], b.v[j], acc[i][j]);
                }
            }
        }
        __syncthreads();
    }
    store(p, at, row, token, acc, shared);
}

GW_KERNEL(gw_gemm_ordered_f16, struct gw_gemm_params, GW_GEMM_THREADS) { ordered<F16>(p); }
GW_KERNEL(gw_gemm_ordered_bf16, struct gw_gemm_params, GW_GEMM_THREADS) { ordered<BF16>(p); }
GW_KERNEL(gw_gemm_ordered_f32, struct gw_gemm_params, GW_GEMM_THREADS) { ordered<F32>(p); }

/* y = silu(gate) * up */
GW_KERNEL(gw_gemm_join, struct gw_gemm_join_params, GW_GEMM_THREADS) {
    const int i = (int)(blockIdx.x * GW_GEMM_THREADS + threadIdx.x), row = (int)blockIdx.y;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row < gw_live(p.step) && i < p.width) {
        const size_t at = (size_t)row * p.width + i;
        p.y[at] = gw_silu(p.gate[at]) * p.up[at];
    }
}
