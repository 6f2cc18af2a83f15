/* cpu/vec.h - the vector vocabulary of the float kernels, once per instruction set.
 *
 * Define GW_VEC as GW_VEC_AVX2, GW_VEC_AVX512 or GW_VEC_NEON and include: the names below then mean
 * that set, until the next inclusion (so no include guard around them). A body written with them is
 * included once per set. Vectors hold VW floats; pointers need no alignment.
 *
 *   VT         attribute of every function that uses the vocabulary
 *   NAME(f)    f with the set's suffix
 *   v_fma(a, b, c) = a * b + c in one rounding; v_max and v_min keep a NaN of their second operand
 *   v_from_i8(p) VW signed bytes as floats
 *   v_exp2i(n) = 2^n for integral n in [-126, 127]
 *   v_zero_below(p, x, c) = 0 where x < c, else p
 *   v_below(x, c, a, b) = a where x < c, else b; v_abs(x); v_signed(x, s) = x >= +0 with the sign
 *     of s
 *   v_codes(q, sum, x, f) 32 floats times f, rounded to bytes q; sum: of the first and second 16
 *   v_madd(a, b, c) of vectors whose lanes are the bits of two 16-bit integers each, c of one of
 *     32: c + a.low * b.low + a.high * b.high
 *   vi_round(v) to integers, ties to even, any where there is none; v_of_bits(a) bits as floats
 *   v_within(x, at, from, end, c) = x where from <= at + lane < end, else c
 *   v_fold(v)  lane i takes lane i + h, for h = VW/2 .. 1: the end of gw_fold_lanes
 *   v_join(a)  gw_join_lanes of the GW_LANES floats in a [GW_LANES / VW]
 */
#if !defined(GW_VEC_AVX2)
#define GW_VEC_AVX2 1
#define GW_VEC_AVX512 2
#define GW_VEC_NEON 3
#include "core/tensor/arith.h"
#include "core/tensor/nvfp4.h"
#if defined(__x86_64__)
#if defined(GODWIT_SIMDE)
#include "cpu/simde.h"
#else
#include <immintrin.h>
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#if defined(__clang__)
#define GW_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GW_UNROLL _Pragma("GCC unroll 32")
#endif
#define GW_INLINE static inline __attribute__((always_inline))
#endif

#undef VT
#undef NAME
#undef VW
#undef vf
#undef vi
#undef v_load
#undef v_store
#undef v_set
#undef v_zero
#undef v_add
#undef v_sub
#undef v_mul
#undef v_div
#undef v_fma
#undef v_max
#undef v_min
#undef v_rint
#undef v_neg
#undef v_exp2i
#undef v_zero_below
#undef v_below
#undef v_abs
#undef v_signed
#undef v_from_f16
#undef v_from_bf16
#undef v_from_e4m3
#undef v_from_e2m1
#undef v_nvfp4_scale
#undef v_from_i8
#undef v_to_f16
#undef v_fold
#undef v_join
#undef v_largest
#undef v_round_store
#undef v_codes
#undef v_within
#undef vi_abs
#undef vi_max
#undef vi_zero
#undef vi_largest
#undef vi_load
#undef vi_store
#undef vi_set
#undef vi_add
#undef vi_sub
#undef vi_and
#undef vi_or
#undef vi_shl
#undef vi_sar
#undef vi_round
#undef vi_floats
#undef v_of_bits
#undef v_madd
#undef MICRO_ROWS
#undef MICRO_VECS

#if GW_VEC == GW_VEC_AVX2

#if defined(GODWIT_SIMDE)
#define VT
#else
#define VT __attribute__((target("avx2,fma,f16c")))
#endif
#define NAME(f) f##_avx2
#define VW 8
#define MICRO_ROWS 6 /* 12 sums, 2 columns, 1 broadcast in 16 registers */
#define MICRO_VECS 2
#define vf __m256
#define vi __m256i
#define v_load(p) _mm256_loadu_ps(p)
#define v_store(p, v) _mm256_storeu_ps(p, v)
#define v_set(x) _mm256_set1_ps(x)
#define v_zero() _mm256_setzero_ps()
#define v_add(a, b) _mm256_add_ps(a, b)
#define v_sub(a, b) _mm256_sub_ps(a, b)
#define v_mul(a, b) _mm256_mul_ps(a, b)
#define v_div(a, b) _mm256_div_ps(a, b)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define v_max(a, b) _mm256_max_ps(a, b)
#define v_min(a, b) _mm256_min_ps(a, b)
#define v_neg(x) _mm256_xor_ps(x, _mm256_set1_ps(-0.0f))
#define v_rint(x) _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_exp2i(n)                                                                                 \
    _mm256_castsi256_ps(                                                                           \
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127)), 23))
#define v_zero_below(p, x, c) _mm256_andnot_ps(_mm256_cmp_ps(x, c, _CMP_LT_OQ), p)
#define v_below(x, c, a, b) _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, c, _CMP_LT_OQ))
#define v_abs(x) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)
#define v_signed(x, s) _mm256_or_ps(x, _mm256_and_ps(_mm256_set1_ps(-0.0f), s))
#define v_from_f16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define v_from_bf16(p)                                                                             \
    _mm256_castsi256_ps(_mm256_slli_epi32(                                                         \
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))), 16))
#define v_from_e4m3(p) e4m3_avx2(p)
#define v_from_e2m1(p) e2m1_avx2(p)
#define v_nvfp4_scale(b, i) nvfp4_scale_avx2(b, i)
#define v_from_i8(p)                                                                               \
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define v_to_f16(p, v)                                                                             \
    _mm_storeu_si128((__m128i *)(void *)(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))
#define v_round_store(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), _mm256_cvtps_epi32(v))
#define vi_abs(v) _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff))
#define vi_max(a, b) _mm256_max_epi32(a, b)
#define vi_zero() _mm256_setzero_si256()
#define v_codes(q, sum, x, f) codes_avx2(q, sum, x, f)
#define v_within(x, at, from, end, c) within_avx2(x, at, from, end, c)
#define v_fold(v) fold_avx2(v)
#define v_join(a) join_avx2(a)
#define v_largest(v) largest_avx2(v)
#define vi_load(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define vi_store(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define vi_set(x) _mm256_set1_epi32(x)
#define vi_add(a, b) _mm256_add_epi32(a, b)
#define vi_sub(a, b) _mm256_sub_epi32(a, b)
#define vi_and(a, b) _mm256_and_si256(a, b)
#define vi_or(a, b) _mm256_or_si256(a, b)
#define vi_shl(a, n) _mm256_slli_epi32(a, n)
#define vi_sar(a, n) _mm256_srai_epi32(a, n)
#define vi_round(v) _mm256_cvtps_epi32(v)
#define vi_floats(a) _mm256_cvtepi32_ps(a)
#define v_of_bits(a) _mm256_castsi256_ps(a)
#define v_madd(a, b, c)                                                                            \
    _mm256_castsi256_ps(_mm256_add_epi32(                                                          \
        _mm256_madd_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b)),                         \
        _mm256_castps_si256(c)))
#define vi_largest(v) largest_int_avx2(v)

#if !defined(GW_VEC_AVX2_TAILS)
#define GW_VEC_AVX2_TAILS
/* Codes of E4M3 as a 256th of what they stand for (blocks.h): with their sign extended to 16 bits
 * and shifted they are binary16 but for one bit too many. */
GW_INLINE VT __m256 e4m3_avx2(const gw_u8 *p) {
    __m128i a = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(a, 7), _mm_set1_epi16((short)0xbfff)));
}
GW_INLINE VT __m256 within_avx2(__m256 x, int at, int from, int end, __m256 c) {
    __m256i i = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(at));
    __m256i early = _mm256_cmpgt_epi32(_mm256_set1_epi32(from), i);
    __m256i in = _mm256_andnot_si256(early, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), i));
    return _mm256_blendv_ps(c, x, _mm256_castsi256_ps(in));
}
/* Codes of E2M1, two a byte, as gw_nvfp4_value has them: by a table of the eight sizes. */
GW_INLINE VT __m256 e2m1_avx2(const gw_u8 *p) {
    const __m256 sizes = _mm256_setr_ps(0.0f, 0x1p-15f, 0x1p-14f, 0x3p-15f, 0x1p-13f, 0x3p-14f,
                                        0x1p-12f, 0x3p-13f);
    int word;
    memcpy(&word, p, sizeof word);
    __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32(word),
                                     _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(8)), 28);
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(sizes, code), _mm256_castsi256_ps(sign));
}
GW_INLINE VT float nvfp4_scale_avx2(const gw_block_nvfp4 *b, int i) {
    int code = b->s[i / 16];
    __m128 s = _mm_cvtph_ps(_mm_cvtsi32_si128((code & 128) << 8 | (code & 127) << 7));
    return _mm_cvtss_f32(s) * gw_load_f32(b->scale);
}
GW_INLINE VT float fold_avx2(__m256 v) {
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps(a, a, 1)));
}
/* As the instruction for it does, which takes longer. */
GW_INLINE VT __m256 neighbours_avx2(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
/* Sums of neighbours, of four vectors at once: those of lanes 8 j .. 8 j + 7 end in place j. */
GW_INLINE VT float join_avx2(const __m256 *a) {
    __m256 fours = neighbours_avx2(neighbours_avx2(a[0], a[1]), neighbours_avx2(a[2], a[3]));
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
    v = _mm_add_ps(v, _mm_movehdup_ps(v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehl_ps(v, v)));
}
GW_INLINE VT float largest_avx2(__m256 v) {
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps(a, a, 1)));
}
GW_INLINE VT int largest_int_avx2(__m256i v) {
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}
/* Packing works within halves of a vector, so groups of four are put in order afterwards; sums of
 * bytes are those of unsigned ones, 128 too high each. */
GW_INLINE VT void put_codes_avx2(gw_i8 *q, gw_i16 *sum, __m256i a, __m256i b, __m256i c,
                                 __m256i d) {
    __m256i codes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    codes = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m256i eights = _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8((char)0x80)),
                                     _mm256_setzero_si256());
    eights = _mm256_add_epi64(eights, _mm256_shuffle_epi32(eights, 0x4e));
    _mm256_storeu_si256((__m256i *)(void *)q, codes);
    sum[0] = (gw_i16)(_mm_cvtsi128_si32(_mm256_castsi256_si128(eights)) - 16 * 128);
    sum[1] = (gw_i16)(_mm_cvtsi128_si32(_mm256_extracti128_si256(eights, 1)) - 16 * 128);
}
GW_INLINE VT void codes_avx2(gw_i8 *q, gw_i16 *sum, const float *x, float f) {
    __m256i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v_load(x + 8 * i), v_set(f)));
    }
    put_codes_avx2(q, sum, v[0], v[1], v[2], v[3]);
}
#endif

#elif GW_VEC == GW_VEC_AVX512

#if defined(GODWIT_SIMDE)
#define VT
#else
#define VT __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")))
#endif
#define NAME(f) f##_avx512
#define VW 16
#define MICRO_ROWS 12
#define MICRO_VECS 2
#define vf __m512
#define vi __m512i
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, v) _mm512_storeu_ps(p, v)
#define v_set(x) _mm512_set1_ps(x)
#define v_zero() _mm512_setzero_ps()
#define v_add(a, b) _mm512_add_ps(a, b)
#define v_sub(a, b) _mm512_sub_ps(a, b)
#define v_mul(a, b) _mm512_mul_ps(a, b)
#define v_div(a, b) _mm512_div_ps(a, b)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_max(a, b) _mm512_max_ps(a, b)
#define v_min(a, b) _mm512_min_ps(a, b)
#define v_neg(x) _mm512_xor_ps(x, _mm512_set1_ps(-0.0f))
#define v_rint(x) _mm512_roundscale_ps(x, 0)
#define v_exp2i(n)                                                                                 \
    _mm512_castsi512_ps(                                                                           \
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvttps_epi32(n), _mm512_set1_epi32(127)), 23))
#define v_zero_below(p, x, c)                                                                      \
    _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, c, _CMP_LT_OQ), _mm512_setzero_ps())
#define v_below(x, c, a, b) _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, c, _CMP_LT_OQ), a)
#define v_abs(x) _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x)
#define v_signed(x, s) _mm512_or_ps(x, _mm512_and_ps(_mm512_set1_ps(-0.0f), s))
#define v_from_f16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define v_from_bf16(p)                                                                             \
    _mm512_castsi512_ps(_mm512_slli_epi32(                                                         \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))), 16))
#define v_from_e4m3(p) e4m3_avx512(p)
#define v_from_e2m1(p) e2m1_avx512(p)
#define v_nvfp4_scale(b, i) nvfp4_scale_avx2(b, i)
#define v_from_i8(p)                                                                               \
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define v_to_f16(p, v)                                                                             \
    _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT))
#define v_round_store(p, v) _mm512_storeu_si512((void *)(p), _mm512_cvtps_epi32(v))
#define vi_abs(v) _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff))
#define vi_max(a, b) _mm512_max_epi32(a, b)
#define vi_zero() _mm512_setzero_si512()
#define v_codes(q, sum, x, f) codes_avx512(q, sum, x, f)
#define v_within(x, at, from, end, c) within_avx512(x, at, from, end, c)
#define v_fold(v) fold_avx512(v)
#define v_join(a) join_avx512(a)
#define v_largest(v) largest_avx512(v)
#define vi_load(p) _mm512_loadu_si512((const void *)(p))
#define vi_store(p, v) _mm512_storeu_si512((void *)(p), v)
#define vi_set(x) _mm512_set1_epi32(x)
#define vi_add(a, b) _mm512_add_epi32(a, b)
#define vi_sub(a, b) _mm512_sub_epi32(a, b)
#define vi_and(a, b) _mm512_and_si512(a, b)
#define vi_or(a, b) _mm512_or_si512(a, b)
#define vi_shl(a, n) _mm512_slli_epi32(a, n)
#define vi_sar(a, n) _mm512_srai_epi32(a, n)
#define vi_round(v) _mm512_cvtps_epi32(v)
#define vi_floats(a) _mm512_cvtepi32_ps(a)
#define v_of_bits(a) _mm512_castsi512_ps(a)
#define v_madd(a, b, c)                                                                            \
    _mm512_castsi512_ps(_mm512_add_epi32(                                                          \
        _mm512_madd_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b)),                         \
        _mm512_castps_si512(c)))
#define vi_largest(v) largest_int_avx512(v)

#if !defined(GW_VEC_AVX512_TAILS)
#define GW_VEC_AVX512_TAILS
GW_INLINE VT __m512 e2m1_avx512(const gw_u8 *p) {
    __m512 v = _mm512_castps256_ps512(e2m1_avx2(p));
    return _mm512_castpd_ps(
        _mm512_insertf64x4(_mm512_castps_pd(v), _mm256_castps_pd(e2m1_avx2(p + 4)), 1));
}
GW_INLINE VT __m512 e4m3_avx512(const gw_u8 *p) {
    __m256i a = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_cvtph_ps(
        _mm256_and_si256(_mm256_slli_epi16(a, 7), _mm256_set1_epi16((short)0xbfff)));
}
GW_INLINE VT __m512 within_avx512(__m512 x, int at, int from, int end, __m512 c) {
    int first = from > at ? from - at : 0, stop = end - at < 16 ? end - at : 16;
    unsigned in = first < stop ? (1u << stop) - (1u << first) : 0u;
    return _mm512_mask_mov_ps(c, (__mmask16)in, x);
}
GW_INLINE VT __m256 upper_avx512(__m512 v) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}
GW_INLINE VT float fold_avx512(__m512 v) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(v), upper_avx512(v));
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps(a, a, 1)));
}
/* Both vectors side by side in each four places, so that all steps but the last take one. */
GW_INLINE VT float join_avx512(const __m512 *a) {
    __m512 v =
        _mm512_add_ps(_mm512_shuffle_ps(a[0], a[1], 0x88), _mm512_shuffle_ps(a[0], a[1], 0xdd));
    v = _mm512_add_ps(v, _mm512_shuffle_ps(v, v, 0xb1));
    v = _mm512_add_ps(v, _mm512_shuffle_f32x4(v, v, 0xb1));
    __m128 s = _mm_add_ps(_mm512_castps512_ps128(v), _mm512_extractf32x4_ps(v, 2));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehl_ps(s, s)));
}
GW_INLINE VT float largest_avx512(__m512 v) {
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(v), upper_avx512(v));
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps(a, a, 1)));
}
GW_INLINE VT int largest_int_avx512(__m512i v) {
    __m256i b = _mm256_max_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}
GW_INLINE VT void codes_avx512(gw_i8 *q, gw_i16 *sum, const float *x, float f) {
    __m512i a = _mm512_cvtps_epi32(v_mul(v_load(x), v_set(f)));
    __m512i b = _mm512_cvtps_epi32(v_mul(v_load(x + 16), v_set(f)));
    put_codes_avx2(q, sum, _mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1),
                   _mm512_castsi512_si256(b), _mm512_extracti64x4_epi64(b, 1));
}
#endif

#elif GW_VEC == GW_VEC_NEON

#define VT
#define NAME(f) f##_neon
#define VW 4
#define MICRO_ROWS 6
#define MICRO_VECS 4
#define vf float32x4_t
#define vi int32x4_t
#define v_load(p) vld1q_f32(p)
#define v_store(p, v) vst1q_f32(p, v)
#define v_set(x) vdupq_n_f32(x)
#define v_zero() vdupq_n_f32(0.0f)
#define v_add(a, b) vaddq_f32(a, b)
#define v_sub(a, b) vsubq_f32(a, b)
#define v_mul(a, b) vmulq_f32(a, b)
#define v_div(a, b) vdivq_f32(a, b)
#define v_fma(a, b, c) vfmaq_f32(c, a, b)
#define v_max(a, b) vmaxq_f32(a, b)
#define v_min(a, b) vminq_f32(a, b)
#define v_neg(x) vnegq_f32(x)
#define v_rint(x) vrndnq_f32(x)
#define v_exp2i(n)                                                                                 \
    vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23))
#define v_zero_below(p, x, c)                                                                      \
    vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p), vcltq_f32(x, c)))
#define v_below(x, c, a, b) vbslq_f32(vcltq_f32(x, c), a, b)
#define v_abs(x) vabsq_f32(x)
#define v_signed(x, s) vbslq_f32(vdupq_n_u32(0x80000000u), s, x)
#define v_from_f16(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
#define v_from_bf16(p) vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16))
#define v_from_e4m3(p) e4m3_neon(p)
#define v_from_e2m1(p) e2m1_neon(p)
#define v_nvfp4_scale(b, i) gw_nvfp4_scale(b, i)
#define v_from_i8(p) from_i8_neon(p)
#define v_to_f16(p, v) vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)))
#define v_round_store(p, v) vst1q_s32(p, vcvtnq_s32_f32(v))
#define vi_abs(v)                                                                                  \
    vreinterpretq_s32_u32(vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0x7fffffffu)))
#define vi_max(a, b) vmaxq_s32(a, b)
#define vi_zero() vdupq_n_s32(0)
#define v_codes(q, sum, x, f) codes_neon(q, sum, x, f)
#define v_within(x, at, from, end, c) within_neon(x, at, from, end, c)
#define v_fold(v) fold_neon(v)
#define v_join(a) join_neon(a)
#define v_largest(v) vmaxvq_f32(v)
#define vi_load(p) vld1q_s32(p)
#define vi_store(p, v) vst1q_s32(p, v)
#define vi_set(x) vdupq_n_s32(x)
#define vi_add(a, b) vaddq_s32(a, b)
#define vi_sub(a, b) vsubq_s32(a, b)
#define vi_and(a, b) vandq_s32(a, b)
#define vi_or(a, b) vorrq_s32(a, b)
#define vi_shl(a, n) vshlq_n_s32(a, n)
#define vi_sar(a, n) vshrq_n_s32(a, n)
#define vi_round(v) vcvtnq_s32_f32(v)
#define vi_floats(a) vcvtq_f32_s32(a)
#define v_of_bits(a) vreinterpretq_f32_s32(a)
#define v_madd(a, b, c) madd_neon(a, b, c)
#define vi_largest(v) vmaxvq_s32(v)

#if !defined(GW_VEC_NEON_TAILS)
#define GW_VEC_NEON_TAILS
GW_INLINE float32x4_t e2m1_neon(const gw_u8 *p) {
    static const int16_t down[4] = {0, -4, -8, -12};
    uint16_t word;
    memcpy(&word, p, sizeof word);
    uint16x4_t code = vshl_u16(vdup_n_u16(word), vld1_s16(down));
    uint16x4_t sign = vshl_n_u16(vand_u16(code, vdup_n_u16(8)), 12);
    uint16x4_t half = vorr_u16(vshl_n_u16(vand_u16(code, vdup_n_u16(7)), 9), sign);
    return vcvt_f32_f16(vreinterpret_f16_u16(half));
}
GW_INLINE float32x4_t e4m3_neon(const gw_u8 *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t a = vshlq_n_s16(vmovl_s8(vcreate_s8(four)), 7);
    uint16x4_t half = vand_u16(vreinterpret_u16_s16(vget_low_s16(a)), vdup_n_u16(0xbfff));
    return vcvt_f32_f16(vreinterpret_f16_u16(half));
}
GW_INLINE float32x4_t within_neon(float32x4_t x, int at, int from, int end, float32x4_t c) {
    static const int32_t lanes[4] = {0, 1, 2, 3};
    int32x4_t i = vaddq_s32(vld1q_s32(lanes), vdupq_n_s32(at));
    uint32x4_t in = vandq_u32(vcgeq_s32(i, vdupq_n_s32(from)), vcltq_s32(i, vdupq_n_s32(end)));
    return vbslq_f32(in, x, c);
}
GW_INLINE float32x4_t from_i8_neon(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}
GW_INLINE void codes_neon(gw_i8 *q, gw_i16 *sum, const float *x, float f) {
    for (int h = 0; h < 2; h++) {
        int16x4_t v[4];
        for (int i = 0; i < 4; i++) {
            v[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * h + 4 * i), f)));
        }
        int8x16_t codes =
            vcombine_s8(vmovn_s16(vcombine_s16(v[0], v[1])), vmovn_s16(vcombine_s16(v[2], v[3])));
        vst1q_s8(q + 16 * h, codes);
        sum[h] = vaddlvq_s8(codes);
    }
}
GW_INLINE float32x4_t madd_neon(float32x4_t a, float32x4_t b, float32x4_t c) {
    int16x8_t x = vreinterpretq_s16_f32(a), y = vreinterpretq_s16_f32(b);
    int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(c), vpaddq_s32(low, high)));
}
GW_INLINE float fold_neon(float32x4_t v) {
    float32x2_t a = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(a, 0) + vget_lane_f32(a, 1);
}
GW_INLINE float join_neon(const float32x4_t *a) {
    float32x4_t low = vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3]));
    float32x4_t high = vpaddq_f32(vpaddq_f32(a[4], a[5]), vpaddq_f32(a[6], a[7]));
    float32x4_t v = vpaddq_f32(low, high);
    return vpadds_f32(vpadd_f32(vget_low_f32(v), vget_high_f32(v)));
}
#endif

#endif
