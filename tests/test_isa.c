/* tests/test_isa.c - a level that the system refuses is no level of this machine: the next one is
 * chosen, and nothing fails. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/isa.h"

/* Linux grants no tiles to a process with a signal stack too small to save them on. Permission once
 * granted stays, so this comes first in its process. */
static void refused_tiles_mean_the_next_level(void **state) {
    static char memory[8192];
    const stack_t small = {.ss_sp = memory, .ss_size = sizeof memory},
                  none = {.ss_flags = SS_DISABLE};
    stack_t old;
    const char *bad;
    (void)state;
    unsetenv("GODWIT_CPU");
    if (sigaltstack(&small, &old) != 0) {
        skip(); /* the registers that this processor has already need more */
    }
    int refused = !gw_cpu_level_runs(GW_CPU_AMX);
    gw_cpu_level without = gw_cpu_level_choose(&bad);
    assert_null(bad);
    setenv("GODWIT_CPU", "amx", 1);
    gw_cpu_level named = gw_cpu_level_choose(&bad);
    int reported = bad != NULL;
    unsetenv("GODWIT_CPU");
    assert_int_equal(sigaltstack(&none, NULL), 0);
    int runs = gw_cpu_level_runs(GW_CPU_AMX);
    gw_cpu_level with = gw_cpu_level_choose(&bad);
    sigaltstack(&old, NULL);
    if (!runs || !refused) {
        print_message("SKIP: no AMX here, or none that is asked for\n");
        skip();
    }
    assert_int_equal(with, GW_CPU_AMX);
    assert_int_equal(without, GW_CPU_VNNI);
    assert_int_equal(named, GW_CPU_VNNI);
    assert_true(reported);
}

/* Every level below the chosen one can be asked for by name. */
static void a_level_caps_the_choice(void **state) {
    const char *bad;
    (void)state;
    for (int level = 0; level < GW_CPU_LEVEL_COUNT; level++) {
        setenv("GODWIT_CPU", gw_cpu_level_name((gw_cpu_level)level), 1);
        gw_cpu_level chosen = gw_cpu_level_choose(&bad);
        if (gw_cpu_level_runs((gw_cpu_level)level)) {
            assert_null(bad);
            assert_int_equal(chosen, level);
        } else {
            assert_non_null(bad);
            assert_true(gw_cpu_level_runs(chosen));
        }
    }
    unsetenv("GODWIT_CPU");
}

/* Leaves as processors of each kind report them (InstLatx64's dumps, XCR0 from leaf 0Dh), and what
 * is made from those. */
static void levels_of_processors(void **state) {
    enum {
        NONE = 1 << GW_CPU_SCALAR,
        AVX2 = NONE | 1 << GW_CPU_AVX2,
        AVX512 = AVX2 | 1 << GW_CPU_AVX512,
        VNNI = AVX512 | 1 << GW_CPU_VNNI,
        AMX = VNNI | 1 << GW_CPU_AMX
    };
    static const struct {
        const char *name;
        gw_cpu_id id; /* ecx1, ebx7, ecx7, edx7, edx7_1, ebx24, xcr0 */
        unsigned levels;
    } rows[] = {
        {"nothing", {0, 0, 0, 0, 0, 0, 0}, NONE},
        {"Ivy Bridge", {0x7f9ae3bf, 0x281, 0, 0, 0, 0, 0x7}, NONE},
        {"Haswell", {0x7ffafbff, 0x27ab, 0, 0, 0, 0, 0x7}, AVX2},
        {"Haswell, YMM not saved", {0x7ffafbff, 0x27ab, 0, 0, 0, 0, 0x3}, NONE},
        {"Haswell, no OSXSAVE", {0x77fafbff, 0x27ab, 0, 0, 0, 0, 0x7}, NONE},
        {"Haswell, no F16C", {0x5ffafbff, 0x27ab, 0, 0, 0, 0, 0x7}, NONE},
        {"Zen 3", {0x7ed8320b, 0x219c97a9, 0x0040068c, 0x10, 0, 0, 0x207}, AVX2},
        {"Knights Landing", {0x7ff8f39f, 0x1c0d23ab, 0x1, 0x04000000, 0, 0, 0xe7}, AVX2},
        {"Skylake-X", {0x7ffefbbf, 0xd39ffffb, 0, 0, 0, 0, 0xff}, AVX512},
        {"Skylake-X, ZMM not saved", {0x7ffefbbf, 0xd39ffffb, 0, 0, 0, 0, 0x1f}, AVX2},
        {"Skylake-X, upper ZMM not saved", {0x7ffefbbf, 0xd39ffffb, 0, 0, 0, 0, 0x7f}, AVX2},
        {"Cascade Lake", {0x7ffefbbf, 0xd39ffffb, 0x800, 0xbc000400, 0, 0, 0xff}, VNNI},
        {"Zen 4", {0x7ef8320b, 0xf1bf97a9, 0x00405fce, 0x10000010, 0, 0, 0x2e7}, VNNI},
        {"Zen 5", {0x7efa320b, 0xf1bf97ab, 0x19415fce, 0x10000110, 0, 0, 0x2e7}, VNNI},
        {"Alder Lake", {0x7ffafbbf, 0x239c27eb, 0x98c007ac, 0xfc18c410, 0, 0, 0x207}, AVX2},
        {"Alder Lake with AVX-512",
         {0x7ffafbff, 0xf3bfa7eb, 0x98c07fee, 0xfc9cc510, 0, 0, 0x2e7},
         VNNI},
        {"Panther Lake",
         {0x7ffafbff, 0x239ca7eb, 0x994007bc, 0xfc18c430, 0x00040430, 0, 0x207},
         AVX2},
        {"Sapphire Rapids", {0x7ffefbff, 0xf3bfbffb, 0xbb417fee, 0xffdd4430, 0, 0, 0x602e7}, AMX},
        {"Sapphire Rapids, tiles not saved",
         {0x7ffefbff, 0xf3bfbffb, 0xbb417fee, 0xffdd4430, 0, 0, 0x2e7},
         VNNI},
        {"Sapphire Rapids, data of tiles not saved",
         {0x7ffefbff, 0xf3bfbffb, 0xbb417fee, 0xffdd4430, 0, 0, 0x202e7},
         VNNI},
        {"Granite Rapids (AVX10.1)",
         {0x7ffefbff, 0xf3bfbffb, 0xbb417fee, 0xffdd4430, 0x000e4000, 0x00070001, 0x602e7},
         AMX},
        {"the same as AVX10 alone",
         {0x7ffefbff, 0x239ca7eb, 0xbb4177ee, 0xffdd4430, 0x000e4000, 0x00070001, 0x602e7},
         AMX},
        {"AVX10.2 alone, no tiles",
         {0x7ffefbff, 0x239ca7eb, 0x994007bc, 0xfc18c430, 0x000c0430, 0x00070002, 0x2e7},
         VNNI},
        {"AVX10.2 of 256 bits",
         {0x7ffefbff, 0x239ca7eb, 0x994007bc, 0xfc18c430, 0x000c0430, 0x00030002, 0x2e7},
         AVX2},
        {"AVX10 without a version",
         {0x7ffefbff, 0x239ca7eb, 0x994007bc, 0xfc18c430, 0x000c0430, 0x00070000, 0x2e7},
         AVX2},
        {"a leaf 24h without AVX10",
         {0x7ffefbff, 0x239ca7eb, 0x994007bc, 0xfc18c430, 0x00040430, 0x00070002, 0x2e7},
         AVX2},
        {"AVX10.2, ZMM not saved",
         {0x7ffefbff, 0x239ca7eb, 0x994007bc, 0xfc18c430, 0x000c0430, 0x00070002, 0x207},
         AVX2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned levels = gw_cpu_x86_levels(&rows[i].id);
        if (levels != rows[i].levels) {
            fail_msg("%s: levels %#x, not %#x", rows[i].name, levels, rows[i].levels);
        }
    }
}

/* The compiler's own question answers the same where it can. */
static void levels_are_the_compilers(void **state) {
    (void)state;
#if defined(__x86_64__) && defined(__GNUC__) && !defined(GODWIT_SIMDE)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse2")) {
        print_message("SKIP: this compiler's __builtin_cpu_supports knows nothing\n");
        skip();
    }
    int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    int vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    assert_int_equal(gw_cpu_level_runs(GW_CPU_AVX2), avx2); /* no processor has it without F16C */
    assert_int_equal(gw_cpu_level_runs(GW_CPU_AVX512), avx512);
    assert_int_equal(gw_cpu_level_runs(GW_CPU_VNNI), vnni);
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_tiles_mean_the_next_level),
        cmocka_unit_test(a_level_caps_the_choice),
        cmocka_unit_test(levels_of_processors),
        cmocka_unit_test(levels_are_the_compilers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
