/* kernels_hip/act8.h - activations to int8 blocks (gw_act8_encode of arith.h): 32 lanes with a
 * value each, or eight with four.
 */
#ifndef GW_KERNELS_HIP_ACT8_H
#define GW_KERNELS_HIP_ACT8_H

#include "kernels_hip/device.h"

enum { GW_ACT_WORDS = 10 }; /* of a gw_act8: scale, sums, eight of q */

/* What a block's values are multiplied by; `top` has the bits of the largest |x|. */
GW_DEVICE float gw_act8_inverse(unsigned top) {
    const float amax = GW_F32_FROM_BITS(top);
    const float inverse = top < 0x7f800000u && amax > 0.0f ? 127.0f / amax : 0.0f;
    return inverse < 3.0e38f ? inverse : 0.0f;
}
GW_DEVICE float gw_act8_scale(unsigned top) {
    return top < 0x7f800000u ? GW_F32_FROM_BITS(top) / 127.0f : GW_F32_FROM_BITS(0x7fc00000u);
}

/* The code of x in the low 8 bits: added to 1.5 * 2^23, x * inverse, at most 127 and a little, is
 * rounded to an integer in the last bits, ties to even; one addition, where conversions run at a
 * quarter of the rate. */
GW_DEVICE unsigned gw_act8_code(float x, float inverse) {
    return GW_F32_BITS(x * inverse + 12582912.0f);
}

/* Lane i holds x[i]; the whole team calls it. */
GW_DEVICE void gw_team_encode(gw_act8 *out, float x) {
    const unsigned top = gw_team_max(GW_F32_BITS(x) & 0x7fffffffu);
    const float inverse = gw_act8_inverse(top);
    const int lane = gw_lane(), code = (int)(gw_act8_code(x, inverse) << 24) >> 24;
    const int q = top < 0x7f800000u ? code : 0;
    const int sum = gw_half_sum(q);
    out->q[lane] = (gw_i8)q;
    if (lane % 16 == 0) {
        out->sum[lane / 16] = (gw_i16)sum;
    }
    if (lane == 0) {
        out->scale = gw_act8_scale(top);
    }
}

/* Lanes 8 b .. 8 b + 7 of a team hold a block, four neighbours each. */
struct gw_act8_four {
    unsigned scale, sums, q; /* the block's first two words, and this lane's four codes */

    /* The whole team calls it. */
    __device__ inline void encode(const float *x) {
        unsigned top = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            top = gw_larger(top, GW_F32_BITS(x[i]) & 0x7fffffffu);
        }
        top = gw_larger(top, (unsigned)gw_quad_xor<1>((int)top));
        top = gw_larger(top, (unsigned)gw_quad_xor<2>((int)top));
        top = gw_larger(top, gw_shuffle_xor(top, 4));
        const float inverse = gw_act8_inverse(top);
        unsigned code[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            code[i] = gw_act8_code(x[i], inverse);
        }
        q = gw_four_bytes(code[0], code[1], code[2], code[3]);
        q = top < 0x7f800000u ? q : 0;
        int sum = gw_dp4a((int)q, 0x01010101, 0);
        sum += gw_quad_xor<1>(sum); /* of 16 neighbours */
        sum += gw_quad_xor<2>(sum);
        sums = ((unsigned)sum & 0xffffu) | (unsigned)gw_shuffle_xor(sum, 4) << 16;
        scale = GW_F32_BITS(gw_act8_scale(top));
    }
    /* block: its GW_ACT_WORDS words. */
    __device__ inline void store(unsigned *block) const {
        const int place = gw_lane() % 8;
        block[2 + place] = q;
        if (place == 0) {
            block[0] = scale;
            block[1] = sums;
        }
    }
};

#endif
