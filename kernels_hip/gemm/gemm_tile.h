/* kernels_hip/gemm/gemm_tile.h - what the prompt's matrix products share: which tile a block of
 * threads computes, how its waves divide it, and how results leave.
 *
 * A tile is ROWS weight rows, in strips of 16, by TOKENS rows of activations. A wave owns MT strips
 * by NT tiles of GW_MMA_N tokens. In a GLU, strips of gate and up alternate, so that a thread holds
 * both numbers of an output.
 */
#ifndef GW_KERNELS_HIP_GEMM_TILE_H
#define GW_KERNELS_HIP_GEMM_TILE_H

#include "kernels_hip/device.h"
#include "kernels_hip/gemm/gemm_params.h"

template <int ROWS_, int TOKENS_, int WM_, int WN_> struct gw_tile {
    enum {
        ROWS = ROWS_,
        TOKENS = TOKENS_,
        WM = WM_, /* waves along the rows, along the tokens */
        WN = WN_,
        THREADS = WM * WN * LANES,
        STRIPS = ROWS / GW_MMA_M,
        MT = STRIPS / WM,
        NT = TOKENS / WN / GW_MMA_N,
        GW_MMA_PARTS
    };
};

struct gw_tile_at {
    int part, strip; /* first strip; GLU: of gate and of up */
    int token, live;
    int m, n, lane; /* first strip and first token of the wave in the tile */
};

/* Row and quarter of part r of a lane's AR parts of a strip: words `pair` of each 16 bytes. */
#if GW_WMMA
GW_DEVICE int gw_tile_row(int lane, int) { return lane % 16; }
GW_DEVICE int gw_tile_pair(int lane) { return gw_wmma_quarter(lane); }
#define GW_TILE_PAIR(lane, r) (gw_wmma_quarter(lane) + (r))
#else
GW_DEVICE int gw_tile_row(int lane, int r) { return LANES == 32 ? lane / 4 + 8 * r : lane % 16; }
GW_DEVICE int gw_tile_pair(int lane) { return LANES == 32 ? lane % 4 : lane / 16; }
#define GW_TILE_PAIR(lane, r) gw_tile_pair(lane)
#endif

/* The wave's part of a tile. */
template <class T> __device__ static inline void gw_tile_part(gw_tile_at &at) {
    const int wave = (int)threadIdx.x / LANES;
    at.m = wave % T::WM * T::MT;
    at.n = wave / T::WM * T::NT * GW_MMA_N;
    at.lane = (int)threadIdx.x % LANES;
}

/* Tile number `row` along the weights' rows, of tokens from `token` on. live: 0 when there is
 * nothing to do. */
template <class T>
__device__ static inline gw_tile_at gw_tile_at_row(const gw_gemm_params &p, int row, int token) {
    gw_tile_at at;
    at.token = token;
    at.live = gw_live(p.step);
    at.part = 0;
    if (!p.glu) {
        for (int tiles; at.part < p.parts; at.part++, row -= tiles) {
            tiles = (p.w[at.part].rows + T::ROWS - 1) / T::ROWS;
            if (row < tiles) {
                break;
            }
        }
    }
    const int beyond = at.part == p.parts || (p.glu && row * T::ROWS / 2 >= p.w[0].rows);
    at.live = beyond || at.token >= at.live ? 0 : at.live;
    at.strip = row * (p.glu ? T::STRIPS / 2 : T::STRIPS);
    gw_tile_part<T>(at);
    return at;
}
/* Number `id` of the tiles of the live tokens, which change fastest, so that neighbours share
 * weights. */
template <class T>
__device__ static inline gw_tile_at gw_tile_find(const gw_gemm_params &p, int id) {
    const int live = gw_live(p.step);
    const int across = live > 0 ? (live + T::TOKENS - 1) / T::TOKENS : 1;
    return gw_tile_at_row<T>(p, id / across, id % across * T::TOKENS);
}

/* Matrix and strip of strip s of the tile; strips beyond the last repeat it. */
GW_DEVICE const gw_gemm_weight &gw_tile_weight(const gw_gemm_params &p, const gw_tile_at &at,
                                               int s) {
    return p.w[p.glu ? s & 1 : at.part];
}
GW_DEVICE int gw_tile_strip(const gw_gemm_params &p, const gw_tile_at &at, int s) {
    const int last = (gw_tile_weight(p, at, s).rows - 1) / GW_MMA_M;
    const int strip = at.strip + (p.glu ? s >> 1 : s);
    return strip < last ? strip : last;
}

/* y = (sum + bias) + residual */
template <class T>
__device__ static inline void gw_tile_linear(const gw_gemm_params &p, const gw_tile_at &at,
                                             const float (*acc)[T::NT][GW_MMA_C]) {
    const gw_gemm_weight &w = p.w[at.part];
    const int token = at.token + at.n + gw_mma_c_col(at.lane, 0), left = at.live - token;
#pragma unroll
    for (int k = 0; k < T::MT * T::CR; k++) {
        const int i = k / T::CR, from = k % T::CR * T::CC;
        const int r = (at.strip + at.m + i) * GW_MMA_M + gw_mma_c_row(at.lane, from);
        if (r < w.rows) {
            const size_t first = (size_t)token * p.stride + w.column + r;
            float *y = (float *)p.y + first, v[T::NT * T::CC];
#pragma unroll
            for (int t = 0; t < T::NT * T::CC; t++) {
                v[t] = acc[i][t / T::CC][from + t % T::CC];
            }
            if (w.bias) {
                const float bias = w.bias[r];
#pragma unroll
                for (int t = 0; t < T::NT * T::CC; t++) {
                    v[t] = v[t] + bias;
                }
            }
            if (p.residual) {
                const float *residual = p.residual + first;
#pragma unroll
                for (int t = 0; t < T::NT * T::CC; t++) {
                    const int to = t / T::CC * GW_MMA_N + t % T::CC;
                    v[t] = to < left ? v[t] + residual[(size_t)to * p.stride] : v[t];
                }
            }
#pragma unroll
            for (int t = 0; t < T::NT * T::CC; t++) {
                const int to = t / T::CC * GW_MMA_N + t % T::CC;
                if (to < left) {
                    y[(size_t)to * p.stride] = v[t];
                }
            }
        }
    }
}

/* silu(gate) * up through shared memory: TOKENS * (ROWS / 2 + 1) floats. */
template <class T>
__device__ static inline void gw_tile_glu(const gw_gemm_params &p, const gw_tile_at &at,
                                          const float (*acc)[T::NT][GW_MMA_C], float *shared) {
    enum { HALF = T::ROWS / 2, PITCH = HALF + 1 };
    const int r0 = at.strip * GW_MMA_M;
#pragma unroll
    for (int i = 0; i + 1 < T::MT; i += 2) {
#pragma unroll
        for (int j = 0; j < T::NT; j++) {
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                const int r = (at.m + i) / 2 * GW_MMA_M + gw_mma_c_row(at.lane, k);
                const int t = at.n + j * GW_MMA_N + gw_mma_c_col(at.lane, k);
                shared[t * PITCH + r] = gw_silu(acc[i][j][k]) * acc[i + 1][j][k];
            }
        }
    }
    for (int up = 1; T::MT == 1 && up >= 0; up--) { /* gate and up are of neighbouring waves */
#pragma unroll
        for (int j = 0; j < T::NT; j++) {
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                const int r = at.m / 2 * GW_MMA_M + gw_mma_c_row(at.lane, k);
                const int t = at.n + j * GW_MMA_N + gw_mma_c_col(at.lane, k);
                if (at.m % 2 == up) {
                    float &y = shared[t * PITCH + r];
                    y = up ? acc[0][j][k] : gw_silu(acc[0][j][k]) * y;
                }
            }
        }
        if (up) {
            gw_sync_some<1, T::THREADS>();
        }
    }
    gw_sync_some<1, T::THREADS>();
    if (p.act8) {
        for (int i = (int)threadIdx.x; i < T::TOKENS * HALF / GW_ACT_BLOCK; i += T::THREADS) {
            const int t = i % T::TOKENS, r = i / T::TOKENS * GW_ACT_BLOCK;
            if (at.token + t < at.live && r0 + r < p.w[0].rows) {
                gw_act8 out;
                gw_act8_encode(&out, shared + t * PITCH + r);
                const size_t to = (size_t)(at.token + t) * p.stride + r0 + r;
                ((gw_act8 *)p.y)[to / GW_ACT_BLOCK] = out;
            }
        }
    } else {
        for (int i = (int)threadIdx.x; i < T::TOKENS * HALF; i += T::THREADS) {
            const int t = i / HALF, r = i % HALF;
            if (at.token + t < at.live && r0 + r < p.w[0].rows) {
                ((float *)p.y)[(size_t)(at.token + t) * p.stride + r0 + r] = shared[t * PITCH + r];
            }
        }
    }
}

#endif
