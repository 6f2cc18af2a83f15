/* cpu/peak.c - peak loops of every level; float ones from peak_body.h, int8 ones one by one because
 * the dot product is where levels differ.
 */
#include "cpu/peak.h"

#include "cpu/vec.h"

/* ---- scalar: what the compiler makes of plain C for the base instruction set -------------------
 */

static float f32_scalar(uint64_t rounds) {
    float sum[16], a = rounds == UINT64_MAX ? 2.0f : 0.999f;
    for (int i = 0; i < 16; i++) {
        sum[i] = (float)i;
    }
    for (uint64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < 16; i++) {
            sum[i] = sum[i] * a + 1e-3f;
        }
    }
    for (int i = 1; i < 16; i++) {
        sum[0] += sum[i];
    }
    return sum[0];
}

static int32_t int8_scalar(uint64_t rounds) {
    int32_t sum[16];
    int32_t a = (int32_t)(int8_t)rounds | 1;
    for (int i = 0; i < 16; i++) {
        sum[i] = i;
    }
    for (uint64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < 16; i++) {
            sum[i] += (int8_t)(a + (int32_t)r) * (int8_t)(sum[i]);
        }
    }
    for (int i = 1; i < 16; i++) {
        sum[0] ^= sum[i];
    }
    return sum[0];
}

static float read_scalar(const float *data, size_t bytes, int way) {
    (void)way;
    size_t n = bytes / sizeof(float) / 4;
    float top[16] = {0.0f};
    for (size_t i = 0; i < n; i += 4) {
        for (size_t s = 0; s < 4; s++) {
            for (size_t j = 0; j < 4; j++) {
                float v = data[s * n + i + j];
                top[s * 4 + j] = v > top[s * 4 + j] ? v : top[s * 4 + j];
            }
        }
    }
    for (int i = 1; i < 16; i++) {
        top[0] = top[i] > top[0] ? top[i] : top[0];
    }
    return top[0];
}

static const gw_cpu_peak scalar = {f32_scalar, 32.0, int8_scalar, 32.0, read_scalar};

#if defined(__x86_64__)

/* The operands pass through an empty asm, so that no round can be taken out of the loop. */
#if !defined(GODWIT_SIMDE)
#define KEEP(v) __asm__ volatile("" : "+v"(v))
#define KEEP_AVX2(v) __asm__ volatile("" : "+x"(v))
#else
#define KEEP(v) __asm__ volatile("" : : "r"(&(v)) : "memory")
#define KEEP_AVX2(v) KEEP(v)
#endif

#undef GW_VEC
#define GW_VEC GW_VEC_AVX2
#include "cpu/vec.h"
#include "cpu/peak_body.h"

VT static int32_t int8_avx2(uint64_t rounds) {
    __m256i sum[6], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-5);
    const __m256i ones = _mm256_set1_epi16(1);
    for (int i = 0; i < 6; i++) {
        sum[i] = _mm256_set1_epi32(i);
    }
    for (uint64_t r = 0; r < rounds; r++) {
        GW_UNROLL
        for (int i = 0; i < 6; i++) {
            KEEP_AVX2(a);
            __m256i pairs = _mm256_maddubs_epi16(a, b);
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs, ones));
        }
    }
    for (int i = 1; i < 6; i++) {
        sum[0] = _mm256_xor_si256(sum[0], sum[i]);
    }
    return _mm256_extract_epi32(sum[0], 0);
}

static const gw_cpu_peak avx2 = {f32_peak_avx2, 12 * 8 * 2, int8_avx2, 6 * 32 * 2, read_peak_avx2};

#undef GW_VEC
#define GW_VEC GW_VEC_AVX512
#include "cpu/vec.h"
#include "cpu/peak_body.h"

VT static int32_t int8_avx512(uint64_t rounds) {
    __m512i sum[6], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
    const __m512i ones = _mm512_set1_epi16(1);
    for (int i = 0; i < 6; i++) {
        sum[i] = _mm512_set1_epi32(i);
    }
    for (uint64_t r = 0; r < rounds; r++) {
        GW_UNROLL
        for (int i = 0; i < 6; i++) {
            KEEP(a);
            __m512i pairs = _mm512_maddubs_epi16(a, b);
            sum[i] = _mm512_add_epi32(sum[i], _mm512_madd_epi16(pairs, ones));
        }
    }
    for (int i = 1; i < 6; i++) {
        sum[0] = _mm512_xor_si512(sum[0], sum[i]);
    }
    int32_t out[16];
    _mm512_storeu_si512(out, sum[0]);
    return out[0];
}

#if defined(GODWIT_SIMDE)
#define VT_VNNI
#else
#define VT_VNNI                                                                                    \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")))
#endif

VT_VNNI static int32_t int8_vnni(uint64_t rounds) {
    __m512i sum[12], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
    for (int i = 0; i < 12; i++) {
        sum[i] = _mm512_set1_epi32(i);
    }
    for (uint64_t r = 0; r < rounds; r++) {
        KEEP(a);
        GW_UNROLL
        for (int i = 0; i < 12; i++) {
            sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
        }
    }
    for (int i = 1; i < 12; i++) {
        sum[0] = _mm512_xor_si512(sum[0], sum[i]);
    }
    int32_t out[16];
    _mm512_storeu_si512(out, sum[0]);
    return out[0];
}

#if defined(GODWIT_AMX) && !defined(GODWIT_SIMDE)

/* Whole tiles, 64 bytes deep; a block of 32 weights fills half of one (docs/performance.md). */
__attribute__((target("amx-tile,amx-int8"))) static int32_t int8_amx(uint64_t rounds) {
    static const struct {
        unsigned char palette, start, reserved[14];
        uint16_t bytes[16];
        unsigned char rows[16];
    } shape = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16}};
    int32_t out[256];
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
    for (uint64_t r = 0; r < rounds; r++) {
        __asm__ volatile("tdpbssd %tmm5, %tmm4, %tmm0\n\ttdpbssd %tmm5, %tmm4, %tmm1\n\t"
                         "tdpbssd %tmm5, %tmm4, %tmm2\n\ttdpbssd %tmm5, %tmm4, %tmm3");
    }
    __asm__ volatile("tilestored %%tmm0, (%0,%1,1)\n\ttilerelease" ::"r"(out), "r"((size_t)64)
                     : "memory");
    return out[0];
}

static const gw_cpu_peak amx = {f32_peak_avx512, 12 * 16 * 2, int8_amx, 4 * 16 * 16 * 64 * 2,
                                read_peak_avx512};
#else
#define amx vnni
#endif

static const gw_cpu_peak avx512 = {f32_peak_avx512, 12 * 16 * 2, int8_avx512, 6 * 64 * 2,
                                   read_peak_avx512};
static const gw_cpu_peak vnni = {f32_peak_avx512, 12 * 16 * 2, int8_vnni, 12 * 64 * 2,
                                 read_peak_avx512};

#elif defined(__aarch64__)

#undef GW_VEC
#define GW_VEC GW_VEC_NEON
#include "cpu/vec.h"
#include "cpu/peak_body.h"

#if defined(__clang__)
__attribute__((target("dotprod")))
#else
__attribute__((target("arch=armv8.2-a+dotprod")))
#endif
static int32_t
int8_neon(uint64_t rounds) {
    int32x4_t sum[12];
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-5);
    for (int i = 0; i < 12; i++) {
        sum[i] = vdupq_n_s32(i);
    }
    for (uint64_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+w"(a));
        GW_UNROLL
        for (int i = 0; i < 12; i++) {
            sum[i] = vdotq_s32(sum[i], a, b);
        }
    }
    for (int i = 1; i < 12; i++) {
        sum[0] = veorq_s32(sum[0], sum[i]);
    }
    return vgetq_lane_s32(sum[0], 0);
}

static const gw_cpu_peak neon = {f32_peak_neon, 12 * 4 * 2, int8_neon, 12 * 16 * 2, read_peak_neon};

#if defined(GODWIT_I8MM)
#if defined(__clang__)
__attribute__((target("i8mm")))
#else
__attribute__((target("arch=armv8.2-a+i8mm")))
#endif
static int32_t
int8_i8mm(uint64_t rounds) {
    int32x4_t sum[12];
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-5);
    for (int i = 0; i < 12; i++) {
        sum[i] = vdupq_n_s32(i);
    }
    for (uint64_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+w"(a));
        GW_UNROLL
        for (int i = 0; i < 12; i++) {
            sum[i] = vmmlaq_s32(sum[i], a, b);
        }
    }
    for (int i = 1; i < 12; i++) {
        sum[0] = veorq_s32(sum[0], sum[i]);
    }
    return vgetq_lane_s32(sum[0], 0);
}

static const gw_cpu_peak i8mm = {f32_peak_neon, 12 * 4 * 2, int8_i8mm, 12 * 32 * 2, read_peak_neon};
#else
#define i8mm neon
#endif

#endif

const gw_cpu_peak *gw_cpu_peak_of(gw_cpu_level level) {
    switch (level) {
#if defined(__x86_64__)
    case GW_CPU_AVX2:
        return &avx2;
    case GW_CPU_AVX512:
        return &avx512;
    case GW_CPU_VNNI:
        return &vnni;
    case GW_CPU_AMX:
        return &amx;
#elif defined(__aarch64__)
    case GW_CPU_NEON:
        return &neon;
    case GW_CPU_I8MM:
        return &i8mm;
#endif
    default:
        return &scalar;
    }
}
