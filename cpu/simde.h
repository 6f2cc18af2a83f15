/* cpu/simde.h - AVX-512 intrinsics on processors without them, for tests (preset simde).
 *
 * SIMDe gives the names; what its release in Debian 12 lacks follows here, out of AVX2, FMA and
 * F16C halves, which round alike. Never part of a program that users run.
 */
#ifndef GW_CPU_SIMDE_H
#define GW_CPU_SIMDE_H

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "compile for AVX2, FMA and F16C: without FMA, SIMDe would round a multiply-add twice"
#endif

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <immintrin.h>
#include <string.h>

typedef struct gw_simde_int_halves {
    __m256i half[2];
} gw_simde_int_halves;
typedef struct gw_simde_float_halves {
    __m256 half[2];
} gw_simde_float_halves;

static inline gw_simde_int_halves gw_simde_ints(simde__m512i v) {
    gw_simde_int_halves h;
    memcpy(&h, &v, sizeof h);
    return h;
}
static inline gw_simde_float_halves gw_simde_floats(simde__m512 v) {
    gw_simde_float_halves h;
    memcpy(&h, &v, sizeof h);
    return h;
}
static inline simde__m512i gw_simde_join_ints(__m256i low, __m256i high) {
    gw_simde_int_halves h = {{low, high}};
    simde__m512i v;
    memcpy(&v, &h, sizeof v);
    return v;
}
static inline simde__m512 gw_simde_join_floats(__m256 low, __m256 high) {
    gw_simde_float_halves h = {{low, high}};
    simde__m512 v;
    memcpy(&v, &h, sizeof v);
    return v;
}

static inline simde__m512i gw_simde_cvtepu16_epi32(__m256i a) {
    return gw_simde_join_ints(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
static inline simde__m512i gw_simde_cvtepu8_epi32(__m128i a) {
    return gw_simde_join_ints(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}
static inline simde__m512i gw_simde_cvtepi8_epi32(__m128i a) {
    return gw_simde_join_ints(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)));
}
static inline simde__m512i gw_simde_srai_epi32(simde__m512i a, int n) {
    gw_simde_int_halves h = gw_simde_ints(a);
    return gw_simde_join_ints(_mm256_srai_epi32(h.half[0], n), _mm256_srai_epi32(h.half[1], n));
}
static inline simde__m512i gw_simde_cvttps_epi32(simde__m512 a) {
    gw_simde_float_halves h = gw_simde_floats(a);
    return gw_simde_join_ints(_mm256_cvttps_epi32(h.half[0]), _mm256_cvttps_epi32(h.half[1]));
}
static inline simde__m512i gw_simde_cvtps_epi32(simde__m512 a) {
    gw_simde_float_halves h = gw_simde_floats(a);
    return gw_simde_join_ints(_mm256_cvtps_epi32(h.half[0]), _mm256_cvtps_epi32(h.half[1]));
}
static inline simde__m512 gw_simde_cvtepi32_ps(simde__m512i a) {
    gw_simde_int_halves h = gw_simde_ints(a);
    return gw_simde_join_floats(_mm256_cvtepi32_ps(h.half[0]), _mm256_cvtepi32_ps(h.half[1]));
}
static inline simde__m512 gw_simde_cvtph_ps(__m256i a) {
    return gw_simde_join_floats(_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
                                _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
static inline __m256i gw_simde_cvtps_ph(simde__m512 a) {
    gw_simde_float_halves h = gw_simde_floats(a);
    return _mm256_set_m128i(_mm256_cvtps_ph(h.half[1], _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(h.half[0], _MM_FROUND_TO_NEAREST_INT));
}

static inline simde__m512i gw_simde_madd_epi16(simde__m512i a, simde__m512i b) {
    gw_simde_int_halves x = gw_simde_ints(a), y = gw_simde_ints(b);
    return gw_simde_join_ints(_mm256_madd_epi16(x.half[0], y.half[0]),
                              _mm256_madd_epi16(x.half[1], y.half[1]));
}

#undef _mm512_madd_epi16 /* aliased with the arguments of another function there */
#define _mm512_madd_epi16(a, b) gw_simde_madd_epi16(a, b)
#define _mm512_shuffle_f32x4(a, b, order)                                                          \
    _mm512_castsi512_ps(_mm512_shuffle_i32x4(_mm512_castps_si512(a), _mm512_castps_si512(b), order))
#define _mm512_cvtepu16_epi32(a) gw_simde_cvtepu16_epi32(a)
#define _mm512_cvtepu8_epi32(a) gw_simde_cvtepu8_epi32(a)
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(a) gw_simde_cvtepi8_epi32(a)
#define _mm512_srai_epi32(a, n) gw_simde_srai_epi32(a, n)
#define _mm512_cvttps_epi32(a) gw_simde_cvttps_epi32(a)
#define _mm512_cvtps_epi32(a) gw_simde_cvtps_epi32(a)
#define _mm512_cvtepi32_ps(a) gw_simde_cvtepi32_ps(a)
#define _mm512_cvtph_ps(a) gw_simde_cvtph_ps(a)
#define _mm512_cvtps_ph(a, rounding) gw_simde_cvtps_ph(a) /* to nearest is all that is used */

#endif
