/* core/tensor/arith.h - the arithmetic of every op, once, for every compiler we use.
 *
 * What is computed here is the definition; docs/arithmetic.md says it in words. Backends may
 * compute the same values in any way that gives the same bits. Built with contraction off: every
 * fused multiply-add is written out. Allowed: pure functions of scalars and small arrays.
 *
 * Orders of float sums:
 *   decode   term t of a row belongs to lane t % GW_LANES; a lane is a chain of fused
 *            multiply-adds in increasing t, from +0; lanes are joined by gw_join_lanes.
 *            A term is a block of 32 for quantized weights, an element for float weights; of
 *            formats whose scales span GW_ACT_SPAN blocks those blocks, and t counts blocks still:
 *            it is the first one's number.
 *   prefill  one chain in increasing t, from +0.
 */
#ifndef GW_TENSOR_ARITH_H
#define GW_TENSOR_ARITH_H

#include "core/tensor/dialect.h"

#define GW_LANES 32      /* virtual lanes of a decode row and of every norm      */
#define GW_ACT_BLOCK 32  /* values that share one activation scale               */
#define GW_ACT_SPAN 4    /* blocks that one term takes of formats with long scales */
#define GW_PAGE 64       /* positions of a KV page: the unit of attention's sums */
#define GW_PAGE_GROUP 16 /* pages of a row whose sums are joined first           */

/* LINEAR's lanes, neighbours first: lane i takes lane i + h, for h = 1, 2, 4, 8, 16. Threads that
 * hold neighbouring lanes join what they have before anything leaves their registers. */
GW_FN float gw_join_lanes(const float *lane) {
    float a[GW_LANES / 2];
    for (int i = 0; i < GW_LANES / 2; i++) {
        a[i] = lane[2 * i] + lane[2 * i + 1];
    }
    for (int n = GW_LANES / 4; n > 0; n /= 2) {
        for (int i = 0; i < n; i++) {
            a[i] = a[2 * i] + a[2 * i + 1];
        }
    }
    return a[0];
}

/* Fold tree, of every other sum of lanes: lane i takes lane i + h, for h = 16, 8, 4, 2, 1. */
GW_FN float gw_fold_lanes(const float *lane) {
    float a[GW_LANES / 2];
    for (int i = 0; i < GW_LANES / 2; i++) {
        a[i] = lane[i] + lane[i + GW_LANES / 2];
    }
    for (int h = GW_LANES / 4; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            a[i] = a[i] + a[i + h];
        }
    }
    return a[0];
}

/* ---- half precision, by integer operations only --------------------------------------------- */

GW_FN float gw_f16_to_f32(gw_u16 bits) {
    gw_u32 sign = (gw_u32)(bits & 0x8000u) << 16;
    gw_u32 expo = (gw_u32)(bits >> 10) & 0x1fu;
    gw_u32 frac = (gw_u32)(bits & 0x3ffu);
    if (expo == 0) { /* zero or subnormal: frac * 2^-24, exact */
        float tiny = (float)frac * 5.9604644775390625e-8f;
        return GW_F32_FROM_BITS(GW_F32_BITS(tiny) | sign);
    }
    return GW_F32_FROM_BITS(sign | (expo == 31 ? 0x7f800000u : (expo + 112) << 23) | frac << 13);
}

/* Round to nearest, ties to even; overflow to infinity; NaN stays a (quiet) NaN. */
GW_FN gw_u16 gw_f32_to_f16(float x) {
    gw_u32 u = GW_F32_BITS(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return (gw_u16)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    }
    if (a >= 0x477ff000u) { /* 65520 and above round to infinity */
        return (gw_u16)(sign | 0x7c00u);
    }
    if (a < 0x38800000u) { /* below 2^-14: subnormal; let the float adder round at 2^-24 */
        float magic = GW_F32_FROM_BITS(a) + 0.5f;
        return (gw_u16)(sign | (GW_F32_BITS(magic) - 0x3f000000u));
    }
    gw_u32 odd = (a >> 13) & 1u;
    return (gw_u16)(sign | ((a - 0x38000000u + 0xfffu + odd) >> 13));
}

GW_FN float gw_bf16_to_f32(gw_u16 bits) { return GW_F32_FROM_BITS((gw_u32)bits << 16); }

/* ---- elementary functions ------------------------------------------------------------------- */

/* e^x for -87 <= x <= 88, within 1.02 ulp; 0 below; larger x counts as 88. Polynomial: Cephes
 * expf. */
GW_FN float gw_exp(float x) {
    if (x < -87.0f) {
        return 0.0f;
    }
    x = x > 88.0f ? 88.0f : x;
    float n = GW_RINT(x * 1.44269504088896341f);
    float r = GW_FMA(n, -0.693359375f, x);
    r = GW_FMA(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = GW_FMA(p, r, 1.3981999507e-3f);
    p = GW_FMA(p, r, 8.3334519073e-3f);
    p = GW_FMA(p, r, 4.1665795894e-2f);
    p = GW_FMA(p, r, 1.6666665459e-1f);
    p = GW_FMA(p, r, 5.0000001201e-1f);
    p = GW_FMA(p, r * r, r) + 1.0f;
    /* 2^n without a conversion that NaN has no value for: adding 1.5 * 2^23 leaves the integer n in
     * the low bits. */
    return p * GW_F32_FROM_BITS((GW_F32_BITS(n + 12582912.0f) << 23) + 0x3f800000u);
}

/* ln x for finite normal x > 0, within 0.83 ulp. Polynomial: Cephes logf. */
GW_FN float gw_log(float x) {
    gw_u32 u = GW_F32_BITS(x);
    gw_i32 e = (gw_i32)(u >> 23) - 126;
    float m = GW_F32_FROM_BITS((u & 0x007fffffu) | 0x3f000000u); /* [0.5, 1) */
    if (m < 0.707106781186547524f) {
        e -= 1;
        m = m + m - 1.0f;
    } else {
        m = m - 1.0f;
    }
    float z = m * m, p = 7.0376836292e-2f;
    p = GW_FMA(p, m, -1.1514610310e-1f);
    p = GW_FMA(p, m, 1.1676998740e-1f);
    p = GW_FMA(p, m, -1.2420140846e-1f);
    p = GW_FMA(p, m, 1.4249322787e-1f);
    p = GW_FMA(p, m, -1.6668057665e-1f);
    p = GW_FMA(p, m, 2.0000714765e-1f);
    p = GW_FMA(p, m, -2.4999993993e-1f);
    p = GW_FMA(p, m, 3.3333331174e-1f);
    float y = (m * z) * p;
    y = GW_FMA((float)e, -2.12194440e-4f, y);
    y = GW_FMA(z, -0.5f, y);
    return GW_FMA((float)e, 0.693359375f, m + y);
}

GW_FN float gw_silu(float x) { return x / (1.0f + gw_exp(-x)); }

/* ---- activations in int8 -------------------------------------------------------------------- */

/* 32 activations: value = scale * q. A block with a value that is not finite has scale NaN and
 * q = 0, so that the fault reaches the logits, where it is reported. */
typedef struct gw_act8 {
    float scale;
    gw_i16 sum[2]; /* of q[0..15] and of q[16..31] */
    gw_i8 q[GW_ACT_BLOCK];
} gw_act8;

GW_FN void gw_act8_encode(gw_act8 *out, const float *x) {
    gw_u32 top = 0;
    for (int i = 0; i < GW_ACT_BLOCK; i++) {
        gw_u32 a = GW_F32_BITS(x[i]) & 0x7fffffffu;
        top = a > top ? a : top;
    }
    int finite = top < 0x7f800000u;
    float amax = GW_F32_FROM_BITS(top);
    float inverse = finite && amax > 0.0f ? 127.0f / amax : 0.0f;
    inverse = inverse < 3.0e38f ? inverse : 0.0f; /* 127 / amax overflows: zeros */
    out->scale = finite ? amax / 127.0f : GW_F32_FROM_BITS(0x7fc00000u);
    for (int h = 0; h < 2; h++) {
        int sum = 0;
        for (int i = h * 16; i < h * 16 + 16; i++) {
            int q = finite ? (int)GW_RINT(x[i] * inverse) : 0;
            out->q[i] = (gw_i8)q;
            sum += q;
        }
        out->sum[h] = (gw_i16)sum;
    }
}

/* Blocks whose products are to be one integer sum need one scale: the largest of theirs, `top` its
 * bits. A block's codes are multiplied by what its scale is of that, in 256 parts, and rounded. 0
 * where the largest is not finite, or too small to divide by. */
GW_FN float gw_span_inverse(gw_u32 top) {
    float largest = GW_F32_FROM_BITS(top);
    float inverse = top < 0x7f800000u && largest > 0.0f ? 256.0f / largest : 0.0f;
    return inverse < 3.0e38f ? inverse : 0.0f;
}
GW_FN gw_i32 gw_span_part(float scale, float inverse) {
    return inverse > 0.0f ? (gw_i32)GW_RINT(scale * inverse) : 0;
}
/* (q * part) / 256 to the nearest integer, ties up, of an unsigned sum; part is at most 256. */
GW_FN gw_i32 gw_span_code(gw_i32 q, gw_i32 part) {
    gw_u32 up = (gw_u32)((q + 128) * part + (256 - part) * 128 + 128);
    return (gw_i32)(up >> 8) - 128;
}

/* GW_ACT_SPAN blocks with one scale; to may be from. */
GW_FN void gw_act8_span(gw_act8 *to, const gw_act8 *from) {
    gw_u32 top = 0;
    for (int b = 0; b < GW_ACT_SPAN; b++) { /* scales have no sign: the order of their bits */
        gw_u32 scale = GW_F32_BITS(from[b].scale) & 0x7fffffffu;
        top = scale > top ? scale : top;
    }
    float inverse = gw_span_inverse(top);
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        gw_i32 part = gw_span_part(from[b].scale, inverse);
        to[b].scale = GW_F32_FROM_BITS(top);
        for (int h = 0; h < 2; h++) {
            gw_i32 sum = 0;
            for (int i = h * 16; i < h * 16 + 16; i++) {
                gw_i32 q = gw_span_code(from[b].q[i], part);
                to[b].q[i] = (gw_i8)q;
                sum += q;
            }
            to[b].sum[h] = (gw_i16)sum;
        }
    }
}

/* ---- norm, rope ----------------------------------------------------------------------------- */

/* NORM adds up squares block by block, so that who makes a row can say what its blocks of 32 have:
 * the squares of a block (of up to 32 values; those it has not are +0), folded. Block b is added to
 * lane b % GW_LANES, lanes are folded by gw_fold_lanes. The norm of a head of q or k has its
 * element i in lane i % GW_LANES instead, a chain of fused multiply-adds. */
GW_FN float gw_block_squares(const float *x, int n) {
    float square[GW_ACT_BLOCK];
    for (int i = 0; i < GW_ACT_BLOCK; i++) {
        square[i] = i < n ? x[i] * x[i] : 0.0f;
    }
    return gw_fold_lanes(square);
}

/* 1 / sqrt(mean of squares + eps), from the joined sum of squares. */
GW_FN float gw_rms_scale(float sum_of_squares, int n, float eps) {
    return 1.0f / GW_SQRT(sum_of_squares / (float)n + eps);
}

GW_FN float gw_rope_first(float a, float b, float cosine, float sine) {
    return GW_FMA(a, cosine, -(b * sine));
}
GW_FN float gw_rope_second(float a, float b, float cosine, float sine) {
    return GW_FMA(b, cosine, a * sine);
}

/* ---- random numbers: Philox-4x32-10 (Salmon et al., SC 2011), counter based ----------------- */

GW_FN gw_u32 gw_mul_high(gw_u32 a, gw_u32 b) {
#if defined(__OPENCL_VERSION__)
    return mul_hi(a, b);
#else
    return (gw_u32)(((uint64_t)a * b) >> 32);
#endif
}

/* First word of the block with counter (c0, c1, c2, 0) under key (k0, k1). */
GW_FN gw_u32 gw_philox(gw_u32 c0, gw_u32 c1, gw_u32 c2, gw_u32 k0, gw_u32 k1) {
    gw_u32 c3 = 0;
    for (int round = 0; round < 10; round++) {
        gw_u32 h0 = gw_mul_high(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        gw_u32 h1 = gw_mul_high(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}

/* Gumbel noise of one token at one position: -ln(-ln u), u the middle of one of 2^23 cells. */
GW_FN float gw_gumbel(gw_u32 seed_low, gw_u32 seed_high, gw_u32 sequence, gw_u32 position,
                      gw_u32 token) {
    gw_u32 cell = gw_philox(token, position, sequence, seed_low, seed_high) >> 9;
    float u = ((float)cell + 0.5f) * 1.1920928955078125e-7f; /* (2 cell + 1) / 2^24, exact */
    return -gw_log(-gw_log(u));
}

#endif
