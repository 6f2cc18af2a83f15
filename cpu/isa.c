/* cpu/isa.c - which instruction-set levels this processor, its operating system and this build
 * share. Called when a device opens, never per token.
 */
#include "cpu/isa.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1UL << 20)
#endif
#ifndef HWCAP2_I8MM
#define HWCAP2_I8MM (1UL << 13)
#endif
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(_WIN32)
#include <windows.h>
#elif defined(GODWIT_RVV) && defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#ifndef PR_RISCV_V_GET_CONTROL
#define PR_RISCV_V_GET_CONTROL 70
#endif
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(GODWIT_AMX) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[GW_CPU_LEVEL_COUNT] = {"scalar", "avx2", "avx512", "vnni",
                                                      "amx",    "neon", "i8mm",   "rvv"};

const char *gw_cpu_level_name(gw_cpu_level level) {
    return (unsigned)level < GW_CPU_LEVEL_COUNT ? names[level] : "?";
}

/* ---- x86 ------------------------------------------------------------------------------------- */

static int has(uint64_t word, uint64_t bits) { return (word & bits) == bits; }

unsigned gw_cpu_x86_levels(const gw_cpu_id *l) {
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29 };      /* leaf 1 */
    const uint32_t F = 1u << 16, DQ = 1u << 17, BW = 1u << 30, VL = 1u << 31;      /* 7.0 */
    enum { AVX2 = 1 << 5, VNNI = 1 << 11, AMX = 3 << 24 /* tiles, int8 */ };       /* 7.0 */
    enum { AVX10 = 1 << 19 /* 7.1 */, AVX10_VERSION = 0xff, AVX10_512 = 1 << 18 }; /* 24h */
    enum { YMM = 0x6, ZMM = 0xe6 /* with masks */, TILES = 0x60000 };              /* XCR0 */
    const uint64_t saved = l->ecx1 & OSXSAVE ? l->xcr0 : 0;
    const int avx2 = has(saved, YMM) && has(l->ecx1, FMA | AVX | F16C) && has(l->ebx7, AVX2);
    /* AVX10 is these and more, wherever it has 512 bits: some machines may say nothing else. */
    const int avx10 =
        has(l->edx7_1, AVX10) && (l->ebx24 & AVX10_VERSION) != 0 && has(l->ebx24, AVX10_512);
    const int avx512 = avx2 && has(saved, ZMM) && (avx10 || has(l->ebx7, F | DQ | BW | VL));
    const int vnni = avx512 && (avx10 || has(l->ecx7, VNNI));
    const int amx = vnni && has(saved, TILES) && has(l->edx7, AMX);
    return 1u << GW_CPU_SCALAR | (unsigned)avx2 << GW_CPU_AVX2 | (unsigned)avx512 << GW_CPU_AVX512 |
           (unsigned)vnni << GW_CPU_VNNI | (unsigned)amx << GW_CPU_AMX;
}

#if defined(GODWIT_SIMDE)
/* The build computes the 512-bit instructions in plain C. */
static int x86_runs(gw_cpu_level level) { return level <= GW_CPU_AMX; }
#elif defined(__x86_64__)
/* Not __builtin_cpu_supports: the one of some compilers knows no AVX10, that of zig knows nothing.
 */
static gw_cpu_id read_id(void) {
    gw_cpu_id l = {0};
    unsigned a, b, c, d, highest = (unsigned)__get_cpuid_max(0, NULL);
    if (highest < 7) {
        return l;
    }
    __cpuid(1, a, b, l.ecx1, d);
    __cpuid_count(7, 0, c, l.ebx7, l.ecx7, l.edx7);
    if (c >= 1) { /* subleaves */
        __cpuid_count(7, 1, a, b, c, l.edx7_1);
    }
    if (highest >= 0x24) {
        __cpuid_count(0x24, 0, a, l.ebx24, c, d);
    }
    if (l.ecx1 >> 27 & 1) {
        __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
        l.xcr0 = (uint64_t)d << 32 | a;
    }
#if defined(__APPLE__)
    l.xcr0 |=
        0xe0; /* Darwin saves masks and 512 bits from their first use on, and shows them then */
#endif
    return l;
}

/* Tiles are state that Linux saves only for a process that asked for it. */
static int may_use_tiles(void) {
#if defined(GODWIT_AMX) && defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 0;
#endif
}

static int x86_runs(gw_cpu_level level) {
    const gw_cpu_id id = read_id();
    return (gw_cpu_x86_levels(&id) >> level & 1) != 0 && (level != GW_CPU_AMX || may_use_tiles());
}
#endif

/* ---- all ------------------------------------------------------------------------------------- */

#if defined(__aarch64__)
#if defined(__APPLE__)
static int has_feature(const char *name) {
    int has_it = 0;
    size_t bytes = sizeof has_it;
    return sysctlbyname(name, &has_it, &bytes, NULL, 0) == 0 && has_it != 0;
}
#endif

static int has_dot(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__APPLE__)
    return has_feature("hw.optional.arm.FEAT_DotProd");
#elif defined(_WIN32)
    return IsProcessorFeaturePresent(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE) != 0;
#elif defined(__ARM_FEATURE_DOTPROD)
    return 1; /* a system that is not asked: what the compiler was told */
#else
    return 0;
#endif
}

static int has_i8mm(void) {
#if !defined(GODWIT_I8MM)
    return 0; /* this build has no code for it */
#elif defined(__linux__)
    return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#elif defined(__APPLE__)
    return has_feature("hw.optional.arm.FEAT_I8MM");
#elif defined(PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE) /* Windows, in headers that know of it */
    return IsProcessorFeaturePresent(PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE) != 0;
#else
    return 0;
#endif
}
#endif

#if defined(GODWIT_RVV)
static int has_vectors(void) {
#if defined(__linux__)
    enum { OFF = 1, CURRENT = 3 };
    const int allowed = prctl(PR_RISCV_V_GET_CONTROL, 0, 0, 0, 0); /* -1: older than the question */
    if ((getauxval(AT_HWCAP) & 1UL << ('v' - 'a')) == 0 ||
        (allowed > 0 && (allowed & CURRENT) == OFF)) {
        return 0;
    }
    /* Bytes of a register; 0 where the vectors are those of a draft (0.7), which knows no "ta". */
    unsigned long bytes;
    __asm__ volatile(".option push\n\t.option arch, +v\n\tvsetvli %0, zero, e8, m1, ta, ma\n\t"
                     ".option pop"
                     : "=r"(bytes)
                     :
                     : "vl", "vtype");
    return bytes >= 16;
#else
    return 0;
#endif
}
#endif

int gw_cpu_level_runs(gw_cpu_level level) {
    if (level == GW_CPU_SCALAR) {
        return 1;
    }
#if defined(__x86_64__)
    return x86_runs(level);
#elif defined(__aarch64__)
    return (level == GW_CPU_NEON || (level == GW_CPU_I8MM && has_i8mm())) && has_dot();
#elif defined(GODWIT_RVV)
    return level == GW_CPU_RVV && has_vectors();
#else
    return 0;
#endif
}

/* A level that another architecture has caps nothing here: avx512 on a NEON machine is an error
 * of the user's, reported through *bad. */
static int level_from_name(const char *text) {
    for (int i = 0; i < GW_CPU_LEVEL_COUNT; i++) {
        if (strcmp(text, names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

gw_cpu_level gw_cpu_level_choose(const char **bad) {
    const char *want = getenv("GODWIT_CPU");
    int cap = GW_CPU_LEVEL_COUNT - 1;
    *bad = NULL;
    if (want != NULL && want[0] != '\0') {
        int named = level_from_name(want);
        if (named < 0 || !gw_cpu_level_runs((gw_cpu_level)named)) {
            *bad = want;
        } else {
            cap = named;
        }
    }
    for (int level = cap; level > 0; level--) {
        if (gw_cpu_level_runs((gw_cpu_level)level)) {
            return (gw_cpu_level)level;
        }
    }
    return GW_CPU_SCALAR;
}
