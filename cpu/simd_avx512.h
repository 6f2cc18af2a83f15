/* cpu/simd_avx512.h - the vector vocabulary of simd_avx2.h in AVX-512: 16 rows per vector.
 *
 * With V_VNNI the dot products use vpdpbusd, else byte products and 16-bit sums. GODWIT_SIMDE
 * replaces the intrinsics by portable ones, so that machines without AVX-512 can check the bits.
 */
#ifndef GW_CPU_SIMD_AVX512_H
#define GW_CPU_SIMD_AVX512_H

#include "cpu/linear_quant.h"

#if defined(GODWIT_SIMDE)
#include "cpu/simde.h"
#elif defined(__clang__)
#if V_VNNI
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c"))),             \
    apply_to = function)
#else
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c"))), apply_to = function)
#endif
#elif V_VNNI
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")
#endif
#if !defined(GODWIT_SIMDE)
#include <immintrin.h>
#endif

#define V_FN static inline __attribute__((always_inline))
#define V_ROWS 16
#if V_VNNI
#define V_SIGNED_OFFSET 128 /* the instruction wants unsigned codes: code + 128    */
#else
#define V_SIGNED_OFFSET 0
#endif

typedef __m512i v_word;
typedef __m512i v_int;
typedef __m512 v_float;

V_FN void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

V_FN v_word v_load(const void *p) { return _mm512_loadu_si512(p); }
V_FN v_word v_and(v_word a, v_word b) { return _mm512_and_si512(a, b); }
V_FN v_word v_or(v_word a, v_word b) { return _mm512_or_si512(a, b); }
V_FN v_word v_bytes(int b) { return _mm512_set1_epi8((char)b); }
V_FN v_word v_words(int b) { return _mm512_set1_epi32(b); }
V_FN v_word v_right(v_word a, int n) { return _mm512_srlv_epi32(a, _mm512_set1_epi32(n)); }
V_FN v_word v_left(v_word a, int n) { return _mm512_sllv_epi32(a, _mm512_set1_epi32(n)); }
V_FN v_int v_signed_byte(v_word a, int byte) {
    return _mm512_srai_epi32(v_left(a, 24 - 8 * byte), 24);
}
V_FN v_int v_sum(v_int a, v_int b) { return _mm512_add_epi32(a, b); }
V_FN v_int v_sub(v_int a, v_int b) { return _mm512_sub_epi32(a, b); }
V_FN v_int v_load_u16(const void *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
V_FN v_word v_levels(v_word index, const signed char *table) {
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), index);
}

V_FN v_float v_zero(void) { return _mm512_setzero_ps(); }
V_FN v_float v_fload(const float *p) { return _mm512_loadu_ps(p); }
V_FN void v_fstore(float *p, v_float a) { _mm512_storeu_ps(p, a); }
V_FN v_float v_dup(float a) { return _mm512_set1_ps(a); }
V_FN v_float v_add(v_float a, v_float b) { return _mm512_add_ps(a, b); }
V_FN v_float v_mul(v_float a, v_float b) { return _mm512_mul_ps(a, b); }
V_FN v_float v_fma(v_float a, v_float b, v_float c) { return _mm512_fmadd_ps(a, b, c); }
V_FN v_float v_neg(v_float a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
V_FN v_float v_to_float(v_int a) { return _mm512_cvtepi32_ps(a); }
V_FN v_float v_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* gw_e8m0_half of V_ROWS bytes. */
V_FN v_float v_load_e8m0(const void *p) {
    __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    __m512i normal = v_left(_mm512_sub_epi32(e, v_words(1)), 23);
    __m512i tiny = _mm512_sllv_epi32(v_words(0x00200000), e);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(normal, _mm512_cmpgt_epi32_mask(v_words(2), e), tiny));
}

V_FN v_int v_dup_word(const void *p) {
    gw_i32 word;
    memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
}

/* The top bit of every byte turned: of numbers from 0 on, less 128. */
V_FN v_word v_turned(v_word a) { return _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80)); }

/* An activation block, spread over the rows. */
typedef struct v_acts {
    v_float dx, dxs;
    v_int start, start1, sums;
    v_word q[8];
} v_acts;

V_FN void v_spread(v_acts *v, const gw_xblock *x) {
    v->dx = v_dup(x->dx);
    v->dxs = v_dup(x->u.dxs);
    v->start = v_words(x->u.start);
    v->start1 = v_words(x->start1);
    v->sums = v_dup_word(x->sum);
    for (int i = 0; i < 8; i++) {
        v->q[i] = v_dup_word(x->q + 4 * i);
    }
}

typedef __m512i v_pair;
V_FN v_pair v_pair_of(v_int a, v_int b) {
    return _mm512_or_si512(_mm512_and_si512(a, _mm512_set1_epi32(0xffff)),
                           _mm512_slli_epi32(b, 16));
}
V_FN v_float v_pair_dot(v_pair a, const v_acts *x) {
    return v_to_float(_mm512_madd_epi16(a, x->sums));
}
V_FN v_int v_add_minimums(v_int sum, v_pair a, const gw_i16 *sums) {
#if V_VNNI
    return _mm512_dpwssd_epi32(sum, a, v_dup_word(sums));
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, v_dup_word(sums)));
#endif
}

#if V_VNNI
#define V_GROUP 8 /* activation rows whose dot products are interleaved: 5 cycles of latency */

/* sum + dot product of 4 codes of every row with q[0 .. 3]. Compilers of today load the broadcast
 * apart, and then decoding, not multiplying, is the limit. */
V_FN v_int v_dot4(v_int sum, v_word c, const gw_i8 *q) {
#if defined(GODWIT_SIMDE)
    return _mm512_dpbusd_epi32(sum, c, v_dup_word(q));
#else
    struct four {
        gw_i8 q[4];
    };
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(c), "m"(*(const struct four *)q));
    return sum;
#endif
}

/* The same of four codes that are spread over a register already. */
V_FN v_int v_dot(v_int sum, v_word c, v_word q) { return _mm512_dpbusd_epi32(sum, c, q); }

/* A load for each of its uses: what is loaded again needs no register meanwhile. */
V_FN v_word v_load_again(const v_word *p) {
    v_word w = *p;
#if !defined(GODWIT_SIMDE)
    __asm__ volatile("" : "+v"(w));
#endif
    return w;
}

/* A load that is not repeated for the sake of a register. */
V_FN v_word v_load_once(const void *p) {
    v_word w = v_load(p);
#if !defined(GODWIT_SIMDE)
    __asm__("" : "+v"(w));
#endif
    return w;
}
V_FN v_word v_select(v_word mask, v_word a, v_word b) { /* a where mask has ones, else b */
    return _mm512_or_si512(_mm512_and_si512(mask, a), _mm512_andnot_si512(mask, b));
}
V_FN v_int v_down_4(v_int a) { return _mm512_srai_epi32(a, 4); }
V_FN v_int v_six_bits(v_word a, int byte) { /* the lower ones of that byte */
    return v_and(byte == 0 ? a : v_right(a, 8 * byte), v_words(63));
}
V_FN v_float v_less(v_float c, v_float a, v_float b) { /* c + -a * b, rounded once */
    return _mm512_fnmadd_ps(a, b, c);
}

V_FN v_word v_signed(v_word a) { return _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80)); }

V_FN v_int v_dot_unsigned(v_int sum, const v_word *c, const v_word *q, int n, int pairs) {
    (void)pairs;
    for (int i = 0; i < n; i++) {
        sum = _mm512_dpbusd_epi32(sum, c[i], q[i]);
    }
    return sum;
}

V_FN v_int v_dot_signed(v_int start, const v_word *c, const v_word *q, int n) {
    return v_dot_unsigned(start, c, q, n, 0);
}

typedef struct v_scales {
    v_int first, second;
} v_scales;

V_FN v_scales v_half_scales(v_int first, v_int second, int offset) {
    v_scales s = {first, second};
    (void)offset;
    return s;
}

/* Products of integers below 2^24 are exact in float, and so is their sum. */
V_FN v_float v_scale_halves(const v_scales *s, v_int a, v_int b) {
    return v_fma(v_to_float(s->first), v_to_float(a), v_mul(v_to_float(s->second), v_to_float(b)));
}

V_FN v_int v_add_product(v_int sum, v_int scale, v_int a) {
    return _mm512_add_epi32(sum, _mm512_mullo_epi32(scale, a));
}

V_FN v_float v_halves(const v_scales *s, const v_word *c, const v_acts *x, int pairs, int offset) {
    (void)offset;
    v_int a = v_dot_unsigned(x->start, c, x->q, 4, pairs);
    v_int b = v_dot_unsigned(x->start1, c + 4, x->q + 4, 4, pairs);
    return v_scale_halves(s, a, b);
}

#else
#define V_GROUP 1

V_FN v_word v_signed(v_word a) { return a; }

V_FN v_int v_dot_unsigned(v_int sum, const v_word *c, const v_word *q, int n, int pairs) {
    for (int i = 0; i < n; i += pairs) {
        __m512i s = _mm512_maddubs_epi16(c[i], q[i]);
        for (int j = i + 1; j < i + pairs; j++) {
            s = _mm512_add_epi16(s, _mm512_maddubs_epi16(c[j], q[j]));
        }
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(s, _mm512_set1_epi16(1)));
    }
    return sum;
}

/* |c| * (sign of c) q: 2 * 128 * 127 fits 16 bits, and -128 is its own absolute value. */
V_FN __m512i v_signed_pairs(v_word c, v_word q) {
    q = _mm512_mask_sub_epi8(q, _mm512_movepi8_mask(c), _mm512_setzero_si512(), q);
    return _mm512_maddubs_epi16(_mm512_abs_epi8(c), q);
}

V_FN v_int v_dot_signed(v_int start, const v_word *c, const v_word *q, int n) {
    __m512i sum = _mm512_setzero_si512();
    (void)start;
    for (int i = 0; i < n; i++) {
        __m512i x = v_signed_pairs(c[i], q[i]);
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(x, _mm512_set1_epi16(1)));
    }
    return sum;
}

typedef struct v_scales {
    __m512i first, second, offset; /* pairs of the scale; -offset * (first, second) */
} v_scales;

V_FN v_scales v_half_scales(v_int first, v_int second, int offset) {
    v_scales s = {v_pair_of(first, first), v_pair_of(second, second), _mm512_setzero_si512()};
    if (offset != 0) {
        s.offset = _mm512_mullo_epi16(v_pair_of(first, second), _mm512_set1_epi16((short)-offset));
    }
    return s;
}

/* The scales take the place of the ones that add 16-bit pairs. */
V_FN v_int v_add_halves(v_int sum, const v_scales *s, const v_word *c, const v_acts *x, int pairs,
                        int offset) {
    if (offset != 0) {
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(s->offset, x->sums));
    }
    for (int i = 0; i < 8; i += pairs) {
        __m512i t = _mm512_maddubs_epi16(c[i], x->q[i]);
        for (int j = i + 1; j < i + pairs; j++) {
            t = _mm512_add_epi16(t, _mm512_maddubs_epi16(c[j], x->q[j]));
        }
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(t, i < 4 ? s->first : s->second));
    }
    return sum;
}
V_FN v_float v_halves(const v_scales *s, const v_word *c, const v_acts *x, int pairs, int offset) {
    return v_to_float(v_add_halves(v_words(0), s, c, x, pairs, offset));
}

/* The same with one scale for both halves: unsigned codes, signed ones. */
V_FN v_int v_add_unsigned(v_int sum, const v_scales *s, const v_word *c, const v_acts *x,
                          int pairs) {
    return v_add_halves(sum, s, c, x, pairs, 0);
}
V_FN v_int v_add_signed(v_int sum, const v_scales *s, const v_word *c, const v_acts *x) {
    for (int i = 0; i < 8; i++) {
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(v_signed_pairs(c[i], x->q[i]), s->first));
    }
    return sum;
}

#endif
#endif
