/* tests/test_hip_next.c - gw_session_next on the emulator, at both wave widths. */
#include "tests/next_cases.h"

#include "tests/hip_drivers.h"

static void on_the_emulator(void **state) {
    (void)state;
    nc_check("hip", NULL, 4, 1);
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_emulator)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    return hip_on_drivers(run_all, GODWIT_EMULATORS "libgodwit_emu32.so",
                          GODWIT_EMULATORS "libgodwit_emu64.so");
}
