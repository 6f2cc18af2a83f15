/* kernels_hip/attend_tile.h - what attend_block.hip and attend_split.hip share: ATTENTION on tiles
 * of the caches that lie in shared memory whole. What they make of a page is their own: a function
 * for both lets the compiler order the code of a block in another way, which costs 0.2 us a layer
 * (docs/performance.md).
 */
#ifndef GW_KERNELS_HIP_ATTEND_TILE_H
#define GW_KERNELS_HIP_ATTEND_TILE_H

#include "kernels_hip/act8.h"
#include "kernels_hip/attention.h"

enum { BATCH = 16 };

GW_DEVICE int teams(void) { return (int)blockDim.x / GW_LANES; }

template <class CELLS> __device__ static inline int tile_bytes(const struct gw_attend_params &p) {
    return GW_PAGE * p.e * CELLS::BYTES + p.scale_bytes;
}

/* A tile on its way to shared memory; a block. */
GW_DEVICE void fetch_tile(uint8_t *to, const uint8_t *tile, int bytes) {
#pragma unroll 2
    for (int b = 16 * (int)threadIdx.x; b < bytes; b += 16 * (int)blockDim.x) {
        gw_copy_async(to + b, tile + b);
    }
}

/* ---- the new position ------------------------------------------------------------------------ */

/* New cells of a head -> a tile, every stride-th place from `at` on; scales alike. */
template <class CELLS>
__device__ static inline void store_cells(const uint8_t *fresh, uint8_t *tile, int e, int at,
                                          int stride, int scale_at, int scale_stride) {
    typedef typename CELLS::put::cell cell;
#pragma unroll 1
    for (int i = gw_lane(); i < e; i += GW_LANES) {
        ((cell *)tile)[at + i * stride] = ((const cell *)fresh)[i];
    }
    gw_u16 *scales = (gw_u16 *)(tile + GW_PAGE * e * CELLS::BYTES);
#pragma unroll 1
    for (int b = gw_lane(); CELLS::SCALED && b < e / 32; b += GW_LANES) {
        scales[scale_at + b * scale_stride] = ((const gw_u16 *)(fresh + 4 * e))[b];
    }
}
template <class CELLS>
__device__ static inline void store_k(const uint8_t *fresh, uint8_t *tile, int e, int j) {
    store_cells<CELLS>(fresh, tile, e, j, GW_PAGE, j, GW_PAGE);
}

GW_DEVICE void read_head(float *to, const float *from, int e) {
#pragma unroll 1
    for (int i = 4 * gw_lane(); i < e; i += 4 * GW_LANES) {
        *(gw_f32s<4> *)(to + i) = *(const gw_f32s<4> *)(from + i);
    }
    gw_sync_team();
}

template <class CELLS>
__device__ static inline void make_cells(uint8_t *cells, const float *values, int e) {
    typedef typename CELLS::put put;
#pragma unroll 1
    for (int i = gw_lane(); i < e; i += GW_LANES) {
        put::put((typename put::cell *)cells, i, (gw_u16 *)(cells + 4 * e), i / 32, values[i]);
    }
    gw_sync_team();
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Four more terms of the chains over the head's values, from value i on. */
template <class CELLS>
__device__ static inline void score_four(const float *q, const uint8_t *tile, int i, int j,
                                         const float *scale, float *s) {
    const gw_f32s<4> four = *(const gw_f32s<4> *)(q + i);
#pragma unroll
    for (int c = 0; c < 4; c++) {
        float x[2];
        CELLS::template read<2>(tile, (i + c) * GW_PAGE + j, x);
        s[0] = GW_FMA(four.v[c], CELLS::SCALED ? scale[0] * x[0] : x[0], s[0]);
        s[1] = GW_FMA(four.v[c], CELLS::SCALED ? scale[1] * x[1] : x[1], s[1]);
    }
}

/* One more term of the chains over a page's positions, for two values of the head. */
template <class CELLS>
__device__ static inline void mix_one(const uint8_t *cells, int at, const uint8_t *scales,
                                      int scale_at, float weight, float *o) {
    float x[2], scale;
    CELLS::template read<2>(cells, at, x);
    if (CELLS::SCALED) {
        gw_cells_f16::read<1>(scales, scale_at, &scale);
        x[0] = scale * x[0];
        x[1] = scale * x[1];
    }
    o[0] = GW_FMA(weight, x[0], o[0]);
    o[1] = GW_FMA(weight, x[1], o[1]);
}

#endif
