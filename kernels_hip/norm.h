/* kernels_hip/norm.h - the sum of squares of a norm (docs/arithmetic.md, section 5) by one team. */
#ifndef GW_KERNELS_HIP_NORM_H
#define GW_KERNELS_HIP_NORM_H

#include "kernels_hip/device.h"

/* This lane's chain, continued over v[0 .. n): lane, lane + 32, ... */
GW_DEVICE float gw_squares(const float *v, int n, float sum) {
    int i = gw_lane();
    for (; i + 15 * GW_LANES < n; i += 16 * GW_LANES) {
        float x[16];
#pragma unroll
        for (int j = 0; j < 16; j++) {
            x[j] = v[i + j * GW_LANES];
        }
#pragma unroll
        for (int j = 0; j < 16; j++) {
            sum = GW_FMA(x[j], x[j], sum);
        }
    }
    for (; i < n; i += GW_LANES) {
        sum = GW_FMA(v[i], v[i], sum);
    }
    return sum;
}

#endif
