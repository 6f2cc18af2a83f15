/* cpu/simd_avx2.h - the vector vocabulary of the linear kernels in AVX2: 8 rows per vector.
 *
 * v_word: a 32-bit word of every row (4 codes, or scales); v_int, v_float: a number of every row.
 * v_dot_*: exact sums of code * q over words c[0 .. n-1] and as many words of q; |q| <= 127.
 * v_half_scales, v_halves: sums with an integer scale per 16 weights, exact as float (< 2^24);
 * v_add_halves, v_add_unsigned, v_add_signed: sum + dot products times integer scales, in integers;
 * v_add_minimums: sum + pairs of minimums times pairs of sums of q.
 * Every vocabulary has the same names; linear_body.h is written in them.
 */
#ifndef GW_CPU_SIMD_AVX2_H
#define GW_CPU_SIMD_AVX2_H

#include "cpu/linear_quant.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include <immintrin.h>

#define V_FN static inline __attribute__((always_inline))
#define V_ROWS 8
#define V_SIGNED_OFFSET 0 /* signed codes are multiplied as they are           */
#define V_GROUP 1

typedef __m256i v_word;
typedef __m256i v_int;
typedef __m256 v_float;

V_FN void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

V_FN v_word v_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
V_FN v_word v_and(v_word a, v_word b) { return _mm256_and_si256(a, b); }
V_FN v_word v_or(v_word a, v_word b) { return _mm256_or_si256(a, b); }
V_FN v_word v_bytes(int b) { return _mm256_set1_epi8((char)b); }
V_FN v_word v_words(int b) { return _mm256_set1_epi32(b); }
V_FN v_word v_right(v_word a, int n) {
    return __builtin_constant_p(n) ? _mm256_srli_epi32(a, n)
                                   : _mm256_srlv_epi32(a, _mm256_set1_epi32(n));
}
V_FN v_word v_left(v_word a, int n) {
    return __builtin_constant_p(n) ? _mm256_slli_epi32(a, n)
                                   : _mm256_sllv_epi32(a, _mm256_set1_epi32(n));
}
/* Byte `byte` of every word, sign extended. */
V_FN v_int v_signed_byte(v_word a, int byte) {
    return _mm256_srai_epi32(v_left(a, 24 - 8 * byte), 24);
}
V_FN v_int v_sub(v_int a, v_int b) { return _mm256_sub_epi32(a, b); }
V_FN v_int v_load_u16(const void *p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}
V_FN v_word v_levels(v_word index, const signed char *table) {
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index);
}

V_FN v_float v_zero(void) { return _mm256_setzero_ps(); }
V_FN v_float v_fload(const float *p) { return _mm256_loadu_ps(p); }
V_FN void v_fstore(float *p, v_float a) { _mm256_storeu_ps(p, a); }
V_FN v_float v_dup(float a) { return _mm256_set1_ps(a); }
V_FN v_float v_add(v_float a, v_float b) { return _mm256_add_ps(a, b); }
V_FN v_float v_mul(v_float a, v_float b) { return _mm256_mul_ps(a, b); }
V_FN v_float v_fma(v_float a, v_float b, v_float c) { return _mm256_fmadd_ps(a, b, c); }
V_FN v_float v_neg(v_float a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
V_FN v_float v_to_float(v_int a) { return _mm256_cvtepi32_ps(a); }
V_FN v_float v_load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* gw_e8m0_half of V_ROWS bytes. */
V_FN v_float v_load_e8m0(const void *p) {
    __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, v_words(1)), 23);
    __m256i tiny = _mm256_sllv_epi32(v_words(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(v_words(2), e)));
}

V_FN v_int v_dup_word(const void *p) {
    gw_i32 word;
    memcpy(&word, p, sizeof word);
    return _mm256_set1_epi32(word);
}

/* The top bit of every byte turned: of numbers from 0 on, less 128. */
V_FN v_word v_turned(v_word a) { return _mm256_xor_si256(a, _mm256_set1_epi8((char)0x80)); }

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

/* Codes as the signed dot product wants them. */
V_FN v_word v_signed(v_word a) { return a; }

/* Unsigned codes, sum from `start` on; `pairs` products of two, at most 2 * 127 * code each, stay
 * within 16 bits. */
V_FN v_int v_dot_unsigned(v_int sum, const v_word *c, const v_word *q, int n, int pairs) {
    for (int i = 0; i < n; i += pairs) {
        __m256i s = _mm256_maddubs_epi16(c[i], q[i]);
        for (int j = i + 1; j < i + pairs; j++) {
            s = _mm256_add_epi16(s, _mm256_maddubs_epi16(c[j], q[j]));
        }
        s = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
        sum = _mm256_add_epi32(sum, s);
    }
    return sum;
}

/* |c| * (sign of c) q: 2 * 128 * 127 fits 16 bits, and -128 is its own absolute value. */
V_FN v_int v_dot_signed(v_int start, const v_word *c, const v_word *q, int n) {
    __m256i sum = _mm256_setzero_si256();
    (void)start;
    for (int i = 0; i < n; i++) {
        __m256i s = _mm256_maddubs_epi16(_mm256_abs_epi8(c[i]), _mm256_sign_epi8(q[i], c[i]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(s, _mm256_set1_epi16(1)));
    }
    return sum;
}

/* A pair of 16-bit numbers per row. */
typedef __m256i v_pair;
V_FN v_pair v_pair_of(v_int a, v_int b) {
    return _mm256_or_si256(_mm256_and_si256(a, _mm256_set1_epi32(0xffff)),
                           _mm256_slli_epi32(b, 16));
}
V_FN v_float v_pair_dot(v_pair a, const v_acts *x) {
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(a, x->sums));
}
V_FN v_int v_add_minimums(v_int sum, v_pair a, const gw_i16 *sums) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, v_dup_word(sums)));
}

typedef struct v_scales {
    __m256i first, second, offset; /* pairs of the scale; -offset * (first, second) */
} v_scales;

V_FN v_scales v_half_scales(v_int first, v_int second, int offset) {
    v_scales s = {v_pair_of(first, first), v_pair_of(second, second), _mm256_setzero_si256()};
    if (offset != 0) {
        s.offset = _mm256_mullo_epi16(v_pair_of(first, second), _mm256_set1_epi16((short)-offset));
    }
    return s;
}

/* The scales take the place of the ones that add 16-bit pairs. */
V_FN v_int v_add_halves(v_int sum, const v_scales *s, const v_word *c, const v_acts *x, int pairs,
                        int offset) {
    if (offset != 0) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(s->offset, x->sums));
    }
    for (int i = 0; i < 8; i += pairs) {
        __m256i t = _mm256_maddubs_epi16(c[i], x->q[i]);
        for (int j = i + 1; j < i + pairs; j++) {
            t = _mm256_add_epi16(t, _mm256_maddubs_epi16(c[j], x->q[j]));
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(t, i < 4 ? s->first : s->second));
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
        __m256i t = _mm256_maddubs_epi16(_mm256_abs_epi8(c[i]), _mm256_sign_epi8(x->q[i], c[i]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(t, s->first));
    }
    return sum;
}

#endif
