/* kernels_hip/narrow.h - a row of activations in 16 bits, in the order of columns of the
 * records that F16 and BF16 weights have (gemm_half.h). For F16 the row is scaled by a power of two
 * first, so that its largest value has the exponent 13.
 */
#ifndef GW_KERNELS_HIP_NARROW_H
#define GW_KERNELS_HIP_NARROW_H

#include "kernels_hip/device.h"
#include "kernels_hip/narrow_params.h"

/* What finds the row's largest magnitude: each thread gives the bits of its own. There is a barrier
 * in it; room: a word for each team. */
__device__ static inline unsigned gw_narrow_top(unsigned top, unsigned *room) {
    top = gw_team_max(top);
    if (gw_lane() == 0) {
        room[gw_team()] = top;
    }
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / GW_LANES; i++) {
        top = gw_larger(top, room[i]);
    }
    return top;
}

/* The row, by thread `me` of `all`. top: gw_narrow_top, for BF16 anything; eight(c, v): columns c
 * to c + 7, beyond the last one 0. */
template <class Eight>
__device__ static inline void gw_narrow_row(const struct gw_narrow_to &to, int row, int k,
                                            unsigned top, int me, int all, Eight eight) {
    const int pieces = (k + 127) / 128;
    int shift = (int)(top >> 23) - (127 + 13);
    shift = shift < -100 ? -100 : shift > 100 ? 100 : shift;
    shift = to.bf16 || top >= 0x7f800000u ? 0 : shift;
    const float down = GW_F32_FROM_BITS((unsigned)(127 - shift) << 23);
    if (me == 0) {
        to.scale[row] = GW_F32_FROM_BITS((unsigned)(127 + shift) << 23);
    }
    for (int chunk = me; chunk < pieces * 16; chunk += all) {
        const size_t stage = (size_t)(row / 128) * pieces * 2 + chunk / 8;
        const size_t at = to.tiled ? stage * 8192 + row % 128 * 64 + ((chunk ^ row) & 7) * 8
                                   : (size_t)row * pieces * 128 + chunk * 8;
        float v[8];
        gw_16b out = {{0, 0, 0, 0}};
        eight(chunk / 16 * 128 + chunk % 4 * 32 + chunk % 16 / 4 * 8, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const unsigned u = GW_F32_BITS(v[i]);
            const unsigned b = (u & 0x7fffffffu) > 0x7f800000u
                                   ? 0x7fc0u
                                   : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
            out.w[i / 2] |= (to.bf16 ? b & 0xffffu : (unsigned)gw_narrow_f16(v[i] * down))
                            << i % 2 * 16;
        }
        *(gw_16b *)(to.y + at) = out;
    }
}

/* Where value i of a row stands that is kept in shared memory: threads with neighbouring chunks of
 * the records read blocks of 32 at once, from different banks. A row takes GW_KEPT_BYTES. */
GW_DEVICE int gw_kept_at(int i) { return i + i / 32; }

/* The same of a row in shared memory. */
__device__ static inline void gw_narrow_kept(const struct gw_narrow_to &to, int row, int k,
                                             unsigned top, int me, int all, const float *kept) {
    gw_narrow_row(to, row, k, top, me, all, [&](int c, float *v) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = c + i < k ? kept[gw_kept_at(c) + i] : 0.0f;
        }
    });
}

#endif
