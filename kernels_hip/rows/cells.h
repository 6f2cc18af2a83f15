/* kernels_hip/rows/cells.h - k, v and q of caches in 4 and 5 bits (core/tensor/cells.h): how a
 * team rotates what it has and stores a position of a page.
 */
#ifndef GW_KERNELS_HIP_CELLS_H
#define GW_KERNELS_HIP_CELLS_H

#include "core/tensor/cells.h"
#include "kernels_hip/device.h"

/* 32 N values by a Hadamard matrix, in place: value 32 k + lane is v[k]. The whole team calls. */
template <int N> __device__ static inline void gw_cells_rotate(float *v) {
    const int lane = gw_lane();
#pragma unroll
    for (int h = 1; h < GW_LANES; h *= 2) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float other = gw_shuffle_xor(v[k], h);
            v[k] = lane & h ? other - v[k] : v[k] + other;
        }
    }
#pragma unroll
    for (int h = 1; h < N; h *= 2) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            if ((k & h) == 0) {
                const float a = v[k], b = v[k + h];
                v[k] = a + b;
                v[k + h] = a - b;
            }
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        v[k] = v[k] * gw_cells_norm(GW_LANES * N);
    }
}

/* x: value i of position j, lane i % 32; a block's scale and codes to a page of heads of e values.
 * The whole team calls it. */
template <int BITS>
__device__ static inline void gw_cells_put(uint8_t *page, int e, int is_k, int j, int i, float x) {
    const unsigned size = GW_F32_BITS(x) & 0x7fffffffu, top = gw_team_max(size);
    /* the sign of the first that is so large */
    const unsigned first = gw_team_max(
        size == top ? (unsigned)(GW_LANES - gw_lane()) << 1 | GW_F32_BITS(x) >> 31 : 0u);
    const float peak = GW_F32_FROM_BITS(top | (top > 0 ? first << 31 : 0u));
    const gw_u16 scale = gw_cells_scale(peak, top < 0x7f800000u, BITS);
    const int code = gw_cells_code(x, gw_f16_to_f32(scale), BITS), next = gw_shuffle_xor(code, 1);
    if (i % 2 == 0) {
        page[gw_cells_code_at(e, is_k, j, i)] = (uint8_t)((code & 15) | (next & 15) << 4);
    }
    if (BITS == 5) {
        int fifth = code >> 4 << i % 8;
        fifth |= gw_shuffle_xor(fifth, 1);
        fifth |= gw_shuffle_xor(fifth, 2);
        fifth |= gw_shuffle_xor(fifth, 4);
        if (i % 8 == 0) {
            page[gw_cells_high_at(e) + gw_cells_bit_at(e, is_k, j, i)] = (uint8_t)fifth;
        }
    }
    if (i % 32 == 0) {
        ((gw_u16 *)(page + gw_cells_scales_at(e, BITS)))[gw_cells_scale_at(e, is_k, j, i)] = scale;
    }
}

/* Values first .. first + 32 N of a position, value_of(i), rotated and stored. */
template <int BITS, int N, class Of>
__device__ static inline void gw_cells_store_span(uint8_t *page, int e, int is_k, int j, int first,
                                                  Of value_of) {
    float v[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        v[k] = value_of(first + GW_LANES * k + gw_lane());
    }
    gw_cells_rotate<N>(v);
#pragma unroll
    for (int k = 0; k < N; k++) {
        gw_cells_put<BITS>(page, e, is_k, j, first + GW_LANES * k + gw_lane(), v[k]);
    }
}
/* All e of them. The whole team calls it. */
template <int BITS, class Of>
__device__ static inline void gw_cells_store(uint8_t *page, int e, int is_k, int j, Of value_of) {
    const int span = gw_cells_width(e);
#pragma unroll 1
    for (int first = 0; first < e; first += span) {
        switch (span) {
        case 32: gw_cells_store_span<BITS, 1>(page, e, is_k, j, first, value_of); break;
        case 64: gw_cells_store_span<BITS, 2>(page, e, is_k, j, first, value_of); break;
        case 128: gw_cells_store_span<BITS, 4>(page, e, is_k, j, first, value_of); break;
        default: gw_cells_store_span<BITS, 8>(page, e, is_k, j, first, value_of); break;
        }
    }
}

#endif
