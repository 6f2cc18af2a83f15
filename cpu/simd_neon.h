/* cpu/simd_neon.h - the vector vocabulary of simd_avx2.h in AArch64 NEON with dot product: 4 rows
 * per vector. With V_I8MM defined, functions may use smmla too (linear_i8mm.c). */
#ifndef GW_CPU_SIMD_NEON_H
#define GW_CPU_SIMD_NEON_H

#include "cpu/linear_quant.h"

#if defined(__clang__) && defined(V_I8MM)
#pragma clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function)
#elif defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#elif defined(V_I8MM)
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#include <arm_neon.h>

#define V_FN static inline __attribute__((always_inline))
#define V_ROWS 4
#define V_SIGNED_OFFSET 0
#define V_GROUP 1

typedef uint8x16_t v_word;
typedef uint8x16_t v_int;
typedef float32x4_t v_float;

V_FN void v_prefetch(const void *p) { __builtin_prefetch(p); }

V_FN int32x4_t v_i(v_word a) { return vreinterpretq_s32_u8(a); }
V_FN v_word v_w(int32x4_t a) { return vreinterpretq_u8_s32(a); }

V_FN v_word v_load(const void *p) { return vld1q_u8(p); }
V_FN v_word v_and(v_word a, v_word b) { return vandq_u8(a, b); }
V_FN v_word v_or(v_word a, v_word b) { return vorrq_u8(a, b); }
V_FN v_word v_bytes(int b) { return vdupq_n_u8((uint8_t)b); }
V_FN v_word v_words(int b) { return v_w(vdupq_n_s32(b)); }
V_FN v_word v_left(v_word a, int n) {
    return vreinterpretq_u8_u32(vshlq_u32(vreinterpretq_u32_u8(a), vdupq_n_s32(n)));
}
V_FN v_word v_right(v_word a, int n) { return v_left(a, -n); }
V_FN v_int v_signed_byte(v_word a, int byte) {
    return v_w(vshrq_n_s32(v_i(v_left(a, 24 - 8 * byte)), 24));
}
V_FN v_int v_sub(v_int a, v_int b) { return v_w(vsubq_s32(v_i(a), v_i(b))); }
V_FN v_int v_load_u16(const void *p) {
    uint16x4_t h;
    memcpy(&h, p, sizeof h);
    return vreinterpretq_u8_u32(vmovl_u16(h));
}
V_FN v_word v_levels(v_word index, const signed char *table) {
    return vqtbl1q_u8(vreinterpretq_u8_s8(vld1q_s8(table)), index);
}

V_FN v_float v_zero(void) { return vdupq_n_f32(0.0f); }
V_FN v_float v_fload(const float *p) { return vld1q_f32(p); }
V_FN void v_fstore(float *p, v_float a) { vst1q_f32(p, a); }
V_FN v_float v_dup(float a) { return vdupq_n_f32(a); }
V_FN v_float v_add(v_float a, v_float b) { return vaddq_f32(a, b); }
V_FN v_float v_mul(v_float a, v_float b) { return vmulq_f32(a, b); }
V_FN v_float v_fma(v_float a, v_float b, v_float c) { return vfmaq_f32(c, a, b); }
V_FN v_float v_neg(v_float a) { return vnegq_f32(a); }
V_FN v_float v_to_float(v_int a) { return vcvtq_f32_s32(v_i(a)); }
V_FN v_float v_load_f16(const void *p) {
    uint16x4_t h;
    memcpy(&h, p, sizeof h);
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}

/* gw_e8m0_half of V_ROWS bytes. */
V_FN v_float v_load_e8m0(const void *p) {
    uint32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
    uint32x4_t e = vmovl_u16(vget_low_u16(wide));
    uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t tiny = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), tiny, normal));
}

V_FN v_word v_signed(v_word a) { return a; }

/* The top bit of every byte turned: of numbers from 0 on, less 128. */
V_FN v_word v_turned(v_word a) { return veorq_u8(a, vdupq_n_u8(0x80)); }

/* An activation block; the products pick their words out of q. */
typedef struct v_acts {
    v_float dx, dxs;
    v_int start, start1;
    int32x4_t sum0, sum1;
    int8x16_t q[2];
} v_acts;

V_FN void v_spread(v_acts *v, const gw_xblock *x) {
    v->dx = v_dup(x->dx);
    v->dxs = v_dup(x->u.dxs);
    v->start = v_words(x->u.start);
    v->start1 = v_words(x->start1);
    v->sum0 = vdupq_n_s32(x->sum[0]);
    v->sum1 = vdupq_n_s32(x->sum[1]);
    v->q[0] = vld1q_s8(x->q);
    v->q[1] = vld1q_s8(x->q + 16);
}

/* Codes of 0 .. 63 are the same signed or unsigned. n words: 4 or 8. */
V_FN v_int v_dot_signed(v_int start, const v_word *c, const int8x16_t *q, int n) {
    int32x4_t sum = v_i(start);
    for (int i = 0; i < n; i += 4) {
        int8x16_t x = q[i / 4];
        sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(c[i]), x, 0);
        sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(c[i + 1]), x, 1);
        sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(c[i + 2]), x, 2);
        sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(c[i + 3]), x, 3);
    }
    return v_w(sum);
}

V_FN v_int v_dot_unsigned(v_int start, const v_word *c, const int8x16_t *q, int n, int pairs) {
    (void)pairs;
    return v_dot_signed(start, c, q, n);
}

typedef struct v_pair {
    int32x4_t a, b;
} v_pair;
V_FN v_pair v_pair_of(v_int a, v_int b) {
    v_pair p = {v_i(a), v_i(b)};
    return p;
}
V_FN v_float v_pair_dot(v_pair p, const v_acts *x) {
    return vcvtq_f32_s32(vmlaq_s32(vmulq_s32(p.a, x->sum0), p.b, x->sum1));
}
V_FN v_int v_add_minimums(v_int sum, v_pair p, const gw_i16 *sums) {
    int32x4_t s = vmlaq_n_s32(v_i(sum), p.a, sums[0]);
    return v_w(vmlaq_n_s32(s, p.b, sums[1]));
}

typedef v_pair v_scales;
V_FN v_scales v_half_scales(v_int first, v_int second, int offset) {
    (void)offset;
    return v_pair_of(first, second);
}
V_FN v_int v_add_halves(v_int sum, const v_scales *s, const v_word *c, const v_acts *x, int pairs,
                        int offset) {
    (void)offset;
    v_int a = v_dot_unsigned(x->start, c, x->q, 4, pairs);
    v_int b = v_dot_unsigned(x->start1, c + 4, x->q + 1, 4, pairs);
    return v_w(vmlaq_s32(vmlaq_s32(v_i(sum), s->a, v_i(a)), s->b, v_i(b)));
}
V_FN v_float v_halves(const v_scales *s, const v_word *c, const v_acts *x, int pairs, int offset) {
    return v_to_float(v_add_halves(v_words(0), s, c, x, pairs, offset));
}
V_FN v_int v_add_signed(v_int sum, const v_scales *s, const v_word *c, const v_acts *x) {
    return v_w(vmlaq_s32(v_i(sum), s->a, v_i(v_dot_signed(v_words(0), c, x->q, 8))));
}
V_FN v_int v_add_unsigned(v_int sum, const v_scales *s, const v_word *c, const v_acts *x,
                          int pairs) {
    (void)pairs;
    return v_add_signed(sum, s, c, x);
}

#endif
