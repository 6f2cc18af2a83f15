/* kernels_hip/rows/row_sum.h - the sums that a norm of a row is made of. */
#ifndef GW_KERNELS_HIP_ROW_SUM_H
#define GW_KERNELS_HIP_ROW_SUM_H

#include "kernels_hip/device.h"

enum { GW_ROW_PIECE = 8192 /* values that are summed at a time */ };

/* The sum of value(i) over a row of n, by blocks and lanes as NORM makes it; every thread of the
 * block gets it. blocks: GW_ROW_PIECE / GW_LANES floats of shared memory. */
template <class Value>
__device__ static inline float gw_row_sum(int n, float *blocks, Value value) {
    const int lane = gw_lane();
    float sum = 0.0f;
    for (int base = 0; base < n; base += GW_ROW_PIECE) {
        const int left = n - base < GW_ROW_PIECE ? n - base : GW_ROW_PIECE;
        const int here = (left + GW_LANES - 1) / GW_LANES;
        __syncthreads(); /* who read what stands there is done */
        for (int b = gw_team(); b < here; b += (int)blockDim.x / GW_LANES) {
            const int i = b * GW_LANES + lane;
            const float all = gw_fold(i < left ? value(base + i) : 0.0f);
            if (lane == 0) {
                blocks[b] = all;
            }
        }
        __syncthreads();
        for (int b = lane; b < here; b += GW_LANES) {
            sum = sum + blocks[b];
        }
    }
    return gw_fold(sum);
}

/* ---- four neighbours of a row ---------------------------------------------------------------- */

struct __align__(16) row_four {
    float v[4];
};

GW_DEVICE row_four row_read(const float *from) {
    const gw_16b bits = *(const gw_16b *)from;
    row_four r;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        r.v[j] = GW_F32_FROM_BITS(bits.w[j]);
    }
    return r;
}

/* gw_block_squares of arith.h: eight lanes hold a block, four neighbours each, and all get its sum.
 * The whole team calls it. */
GW_DEVICE float row_squares(const row_four &x) {
    float s[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        s[j] = x.v[j] * x.v[j];
        s[j] = s[j] + gw_shuffle_xor(s[j], 4);
        s[j] = s[j] + gw_quad_xor<2>(s[j]);
        s[j] = s[j] + gw_quad_xor<1>(s[j]);
    }
    return (s[0] + s[2]) + (s[1] + s[3]);
}

#endif
