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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_tiles_mean_the_next_level),
        cmocka_unit_test(a_level_caps_the_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
