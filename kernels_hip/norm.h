/* kernels_hip/norm.h - what NORM (docs/arithmetic.md, section 5) asks of 32 neighbours, and the
 * factor that it makes of a whole row. Of its own launch (rows.hip), and of two products with a
 * norm between them (linear_norm.h).
 */
#ifndef GW_KERNELS_HIP_NORM_H
#define GW_KERNELS_HIP_NORM_H

#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"

struct __align__(16) gw_norm_four {
    float v[4];
};

GW_DEVICE gw_norm_four gw_norm_read(const float *from) {
    const gw_16b bits = *(const gw_16b *)from;
    gw_norm_four r;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        r.v[j] = GW_F32_FROM_BITS(bits.w[j]);
    }
    return r;
}

/* gw_block_squares of arith.h: eight lanes hold a block, four neighbours each, and all get its sum.
 * The whole team calls it. */
GW_DEVICE float gw_eight_squares(const gw_norm_four &x) {
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

/* The factor of a row out of the sums of its blocks, of which a lane asks for the first before they
 * are needed. They are added where factor() stands and not before, so that what is asked for
 * between the two need not wait for them. A team. */
struct gw_norm_sums {
    enum { AHEAD = 8 };
    const float *mine; /* the lane's first one */
    int blocks;
    float early[AHEAD];

    __device__ inline void ask(const float *sums, int n) {
        mine = sums + (n > 0 ? gw_lane() : 0);
        blocks = n;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const int at = j * GW_LANES;
            early[j] = at + gw_lane() < blocks ? mine[at] : 0.0f;
        }
    }
    __device__ inline float factor(int width, float eps) {
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            gw_have(early[j]);
            sum = sum + early[j];
        }
#pragma unroll 1
        for (int at = AHEAD * GW_LANES; at + gw_lane() < blocks; at += GW_LANES) {
            sum = sum + mine[at];
        }
        return gw_rms_scale(gw_fold(sum), width, eps);
    }
};

#endif
