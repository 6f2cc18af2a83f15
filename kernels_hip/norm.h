/* kernels_hip/norm.h - the sum of squares of a norm (docs/arithmetic.md, section 5) by one team. */
#ifndef GW_KERNELS_HIP_NORM_H
#define GW_KERNELS_HIP_NORM_H

#include "kernels_hip/device.h"

/* This lane's chain, continued over v[0 .. n): lane, lane + 32, ... */
GW_DEVICE float gw_squares(const float *v, int n, float sum) {
    enum { AHEAD = 16 };
    int i = gw_lane();
    float x[AHEAD];
    if (i + (AHEAD - 1) * GW_LANES < n) {
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            x[j] = v[i + j * GW_LANES];
        }
    }
#pragma unroll 1
    for (; i + (AHEAD - 1) * GW_LANES < n; i += AHEAD * GW_LANES) {
        const int more = i + (2 * AHEAD - 1) * GW_LANES < n; /* those are on their way meanwhile */
        float next[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            next[j] = more ? v[i + (j + AHEAD) * GW_LANES] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            sum = GW_FMA(x[j], x[j], sum);
            x[j] = next[j];
        }
    }
    for (; i < n; i += GW_LANES) {
        sum = GW_FMA(v[i], v[i], sum);
    }
    return sum;
}

#endif
