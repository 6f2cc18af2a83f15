/* kernels_hip/gemm/gemm_float.hip - the prompt's products with float weights in the prefill order,
 * bit for bit: one chain of fused multiply-adds per output, in increasing k. Also the join of a
 * gate and an up that were computed apart.
 *
 * A block of threads computes 64 weight rows (32 of gate and 32 of up in a GLU) by 64 tokens, a
 * thread 4 by 4; of few weight rows, such as a router's, 32 by 32 and 2 by 2, so that more blocks
 * run. Columns beyond k are -0 in the weights and +0 here: they leave a sum as it is.
 */
#include "kernels_hip/gemm/gemm_tile.h"
#include "kernels_hip/strip.h"
#include "kernels_hip/strip_e4m3.h"

enum {
    THREADS = GW_GEMM_THREADS,
    COLUMNS = 64, /* of a stage: half a record           */
    F16 = 0,
    BF16,
    F32,
    E4M3,
    NVFP4
};

struct __align__(8) words2 {
    unsigned w[2];
};
template <int N> struct __align__(4 * N) floats {
    float v[N];
};

/* Rows and tokens of a block, and those of a thread. */
template <int ROWS> struct square {
    enum { SIDE = ROWS, EACH = ROWS / 16, PITCH = ROWS + 4 };
    typedef gw_tile<ROWS, ROWS, 1, 1> tile;
    typedef floats<ROWS / 16> some;
};

/* Where row r of strip s stands in the tile: a thread's four are, in a GLU, two of each. */
__device__ static inline int place(int glu, int s, int r) {
    const int o = s / 2 * 16 + r;
    return glu ? o / 2 * 4 + s % 2 * 2 + o % 2 : s * 16 + r;
}

/* What a thread brings of a stage: asked for while the one before is at work. */
template <class S, int FORMAT> struct stage {
    enum {
        CLASSES = FORMAT == F32 ? 8 : 4,
        WEIGHTS = S::SIDE * 4 * CLASSES / THREADS,
        TURN = THREADS / COLUMNS * S::EACH, /* tokens of all threads at a time */
        TOKENS = S::SIDE / TURN
    };
    words2 w[WEIGHTS]; /* E4M3: four codes, and the float of their row; NVFP4:
                           * four codes and two scales, and the float */
    typename S::some x[TOKENS];

    __device__ inline void ask(const gw_gemm_params &p, const gw_tile_at &at, int n, int records) {
        const int c = n * COLUMNS + (int)threadIdx.x % COLUMNS;
#pragma unroll
        for (int k = 0; k < WEIGHTS; k++) {
            const int id = (int)threadIdx.x + k * THREADS;
            const int t = id % 4, r = id / 4 % 16, q = id / 64 % CLASSES, s = id / (64 * CLASSES);
            const uint8_t *from =
                gw_tile_weight(p, at, s).plane[0] +
                ((size_t)gw_tile_strip(p, at, s) * records + n / 2) *
                    (FORMAT == E4M3    ? (int)GW_STRIP_E4M3_RECORD
                     : FORMAT == NVFP4 ? (int)GW_STRIP_NVFP4_RECORD
                                       : CLASSES * 1024);
            if (FORMAT == NVFP4) {
                const int place = GW_STRIP_NVFP4_CLASS * q + 16 * r + 4 * t + 2 * (n % 2);
                const uint8_t *head = from + GW_STRIP_NVFP4_CODES + GW_STRIP_NVFP4_HEAD * r;
                const uint8_t *s = head + 4 + 4 * (n % 2) + q / 2;
                w[k].w[0] = *(const gw_u16 *)(from + place) | (unsigned)s[0] << 16 |
                            (unsigned)s[2] << 24;
                w[k].w[1] = *(const unsigned *)head;
                continue;
            }
            if (FORMAT == E4M3) {
                const int place = GW_STRIP_E4M3_CLASS * q + 32 * r + 8 * t + 4 * (n % 2);
                w[k].w[0] = *(const unsigned *)(from + place);
                w[k].w[1] = *(const unsigned *)(from + GW_STRIP_E4M3_CODES + 4 * r);
                continue;
            }
            w[k] = *(const words2 *)(from + 1024 * q + 64 * r + 16 * t + 8 * (n % 2));
        }
#pragma unroll
        for (int k = 0; k < TOKENS; k++) {
            const int first = at.token + (int)threadIdx.x / COLUMNS * S::EACH + k * TURN;
#pragma unroll
            for (int i = 0; i < S::EACH; i++) {
                const int token = first + i < at.live ? first + i : at.live - 1;
                x[k].v[i] = c < p.k ? ((const float *)p.x)[(size_t)token * p.k + c] : 0.0f;
            }
        }
    }
    __device__ inline void leave(int glu, float *weights, float *tokens) const {
#pragma unroll
        for (int k = 0; k < WEIGHTS; k++) {
            const int id = (int)threadIdx.x + k * THREADS;
            const int t = id % 4, r = id / 4 % 16, q = id / 64 % CLASSES, s = id / (64 * CLASSES);
            float *to = weights + place(glu, s, r);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const unsigned v = w[k].w[e];
                if (FORMAT == NVFP4) {
                    float *pair = to + (32 * e + 8 * q + 2 * t) * S::PITCH;
                    const unsigned s = w[k].w[0] >> (16 + 8 * e) & 255u;
                    const float scale = gw_e4m3_value(s) * GW_F32_FROM_BITS(w[k].w[1]);
                    pair[0] = gw_widen_e2m1(w[k].w[0], 2 * e) * scale;
                    pair[S::PITCH] = gw_widen_e2m1(w[k].w[0], 2 * e + 1) * scale;
                } else if (FORMAT == E4M3) {
                    float *pair = to + (32 * e + 8 * q + 2 * t) * S::PITCH;
                    const float scale = GW_F32_FROM_BITS(w[k].w[1]);
                    pair[0] = gw_widen_e4m3(w[k].w[0], 2 * e) * scale;
                    pair[S::PITCH] = gw_widen_e4m3(w[k].w[0], 2 * e + 1) * scale;
                } else if (FORMAT == F32) {
                    to[(32 * e + 4 * q + t) * S::PITCH] = GW_F32_FROM_BITS(v);
                } else {
                    float *pair = to + (32 * e + 8 * q + 2 * t) * S::PITCH;
                    pair[0] = FORMAT == F16 ? gw_widen_f16((gw_u16)v) : gw_bf16_to_f32((gw_u16)v);
                    pair[S::PITCH] = FORMAT == F16 ? gw_widen_f16((gw_u16)(v >> 16))
                                                   : gw_bf16_to_f32((gw_u16)(v >> 16));
                }
            }
        }
        const int c = (int)threadIdx.x % COLUMNS, first = (int)threadIdx.x / COLUMNS * S::EACH;
#pragma unroll
        for (int k = 0; k < TOKENS; k++) {
            *(typename S::some *)(tokens + c * S::PITCH + first + k * TURN) = x[k];
        }
    }
};

/* Rows of `place` are whole threads' in a GLU: v[0], v[1] are gates, v[2], v[3] ups. */
template <class S>
__device__ static inline void store(const gw_gemm_params &p, const gw_tile_at &at, int row,
                                    int token, float acc[S::EACH][S::EACH], float *shared) {
    enum { SIDE = S::SIDE, EACH = S::EACH };
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
            shared[(token + j) * OUT + row / 2 + i] = gw_silu(acc[i][j]) * acc[i + EACH / 2][j];
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

template <class S, int FORMAT> __device__ static inline void ordered(const gw_gemm_params &p) {
    enum { EACH = S::EACH, PITCH = S::PITCH };
    __shared__ float shared[2 * COLUMNS * PITCH];
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const gw_tile_at at = gw_tile_find<typename S::tile>(p, (int)blockIdx.x);
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
    stage<S, FORMAT> next;
    next.ask(p, at, 0, records);
    for (int s = 0; s < 2 * records; s++) {
        next.leave(p.glu, w, x);
        __syncthreads();
        if (s + 1 < 2 * records) {
            next.ask(p, at, s + 1, records);
        }
#pragma unroll 8
        for (int c = 0; c < COLUMNS; c++) {
            const typename S::some a = *(const typename S::some *)(w + c * PITCH + row);
            const typename S::some b = *(const typename S::some *)(x + c * PITCH + token);
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
    store<S>(p, at, row, token, acc, shared);
}

#define ORDERED(name, format)                                                                      \
    GW_KERNEL(gw_gemm_ordered_##name, struct gw_gemm_params, GW_GEMM_THREADS) {                    \
        ordered<square<GW_ORDERED_SIDE>, format>(p);                                               \
    }                                                                                              \
    GW_KERNEL(gw_gemm_ordered_few_##name, struct gw_gemm_params, GW_GEMM_THREADS) {                \
        ordered<square<GW_ORDERED_FEW>, format>(p);                                                \
    }
ORDERED(f16, F16)
ORDERED(bf16, BF16)
ORDERED(f32, F32)
ORDERED(e4m3, E4M3)
ORDERED(nvfp4_codes, NVFP4)

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
