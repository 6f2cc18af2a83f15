/* tests/test_hip_draft_heads.c - heads of EAGLE-3 and DFlash, emulated at both wave widths. */
#include "tests/draft_heads_cases.h"

#include "tests/hip_drivers.h"

static void on_the_emulator(void **state) {
    (void)state;
    static const hc_case cases[] = {{"seer", "fixed:4", NULL, 0, 1, 1},
                                    {"seer-part", "fixed:4", "1", 2, 1, 1},
                                    {"plain", "fixed:3", NULL, 1, 1, 0},
                                    {"seer-block", "fixed:7", NULL, 0, 1, 1},
                                    {"blocks", "fixed:7", NULL, 1, 1, 0}};
    (void)shared_path("models/tales-2m");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_check("hip", &cases[i]);
    }
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_emulator)};
    return cmocka_run_group_tests(tests, hc_make, hc_remove);
}

int main(void) {
    return hip_on_drivers(run_all, GODWIT_EMULATORS "libgodwit_emu32.so",
                          GODWIT_EMULATORS "libgodwit_emu64.so");
}
