/* core/tensor/digits.h - numbers as two int8 digits under one scale, for attention of prompts in
 * integers (docs/arithmetic.md, section 5, "Attention in digits").
 *
 * Digits of numbers x: n = rint(x * inverse) = 256 high + low, with |n| <= 32639, |high| <= 127 and
 * -128 <= low <= 127; x is about n * scale. inverse and scale follow from amax, the largest |x|.
 * In the dialect of arith.h, so that kernels of devices include it, too.
 */
#ifndef GW_TENSOR_DIGITS_H
#define GW_TENSOR_DIGITS_H

#include "core/tensor/arith.h"

#define GW_DIGITS_TOP 32639            /* the largest n                                       */
#define GW_DIGITS_PART 0x1.010306p-15f /* 1 / 32639                                           */
#define GW_DIGITS_GROUP 64             /* pages, counted from page 0, that join a state first */
#define GW_DIGITS_LEAST 32             /* widths of heads: from here, in steps of as many ... */
#define GW_DIGITS_MOST 256             /* ... to here                                         */

/* Bits of |x|: their maximum as integers is that of |x|, and of a NaN or an infinity if there is
 * one. */
GW_FN gw_u32 gw_digits_size(float x) { return GW_F32_BITS(x) & 0x7fffffffu; }

/* Of the largest gw_digits_size: |x|, NaN where an x is not finite. */
GW_FN float gw_digits_amax(gw_u32 size) {
    return GW_F32_FROM_BITS(size >= 0x7f800000u ? 0x7fc00000u : size);
}

GW_FN float gw_digits_inverse(float amax) {
    float inverse = (float)GW_DIGITS_TOP / amax;
    return amax > 0.0f && inverse < 3.0e38f ? inverse : 0.0f;
}

GW_FN float gw_digits_scale(float amax) { return amax / (float)GW_DIGITS_TOP; }

/* n of x; any integer in range where x is not finite. */
GW_FN gw_i32 gw_digits_of(float x, float inverse) {
    float n = GW_RINT(x * inverse);
    return GW_FABS(n) <= (float)GW_DIGITS_TOP ? (gw_i32)n : 0;
}

/* gw_exp of x <= 0, or of a NaN, bit for bit: an addition rounds, where the instruction for it runs
 * at a quarter of the rate. */
GW_FN float gw_digits_exp(float x) {
    float t = x * 1.44269504088896341f + 12582912.0f, n = t - 12582912.0f; /* 1.5 * 2^23 */
    float r = GW_FMA(n, -0.693359375f, x), y = 1.9875691500e-4f;
    r = GW_FMA(n, 2.12194440e-4f, r);
    y = GW_FMA(y, r, 1.3981999507e-3f);
    y = GW_FMA(y, r, 8.3334519073e-3f);
    y = GW_FMA(y, r, 4.1665795894e-2f);
    y = GW_FMA(y, r, 1.6666665459e-1f);
    y = GW_FMA(y, r, 5.0000001201e-1f);
    y = GW_FMA(y, r * r, r) + 1.0f;
    y = y * GW_F32_FROM_BITS((GW_F32_BITS(t) << 23) + 0x3f800000u);
    return x < -87.0f ? 0.0f : y;
}

/* Floors: the shift of a negative number is arithmetic in every compiler that we use. */
GW_FN gw_i32 gw_digits_high(gw_i32 n) { return (n + 128) >> 8; }
GW_FN gw_i32 gw_digits_low(gw_i32 n) { return n - 256 * gw_digits_high(n); }

#endif
