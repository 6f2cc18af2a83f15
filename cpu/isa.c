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
#endif

static const char *const names[GW_CPU_LEVEL_COUNT] = {"scalar", "avx2", "avx512",
                                                      "vnni",   "amx",  "neon"};

const char *gw_cpu_level_name(gw_cpu_level level) {
    return (unsigned)level < GW_CPU_LEVEL_COUNT ? names[level] : "?";
}

#if defined(__x86_64__)
#include <cpuid.h>

#if !defined(GODWIT_SIMDE)
#if defined(GODWIT_AMX) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

/* Tiles are state that Linux saves only for a process that asked for it. */
static int has_amx(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    const unsigned tile_and_int8 = 3u << 24, both_states = 3u << 17;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & tile_and_int8) != tile_and_int8) {
        return 0;
    }
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & both_states) == both_states &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
static int has_amx(void) { return 0; }
#endif

static int has_f16c(void) { /* not every compiler's __builtin_cpu_supports knows the name */
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1u) != 0;
}
#endif

/* __builtin_cpu_supports also asks XGETBV, so a system that does not save the wide registers
 * counts as a processor without them. */
static int x86_runs(gw_cpu_level level) {
    __builtin_cpu_init();
#if defined(GODWIT_SIMDE)
    return level != GW_CPU_NEON; /* the build computes the 512-bit instructions in plain C */
#else
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    switch (level) {
    case GW_CPU_AVX2:
        return avx2;
    case GW_CPU_AVX512:
        return avx512;
    case GW_CPU_VNNI:
        return avx512 && __builtin_cpu_supports("avx512vnni");
    case GW_CPU_AMX:
        return avx512 && __builtin_cpu_supports("avx512vnni") && has_amx();
    default:
        return 0;
    }
#endif
}
#endif

int gw_cpu_level_runs(gw_cpu_level level) {
    if (level == GW_CPU_SCALAR) {
        return 1;
    }
#if defined(__x86_64__)
    return x86_runs(level);
#elif defined(__aarch64__) && defined(__linux__)
    return level == GW_CPU_NEON && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
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
