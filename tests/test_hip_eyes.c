/* tests/test_hip_eyes.c - vision towers and models that see on the emulator, at both wave widths,
 * or on the card of this machine: the bits of the CPU. */
#include "tests/eyes_cases.h"
#include "tests/hip_drivers.h"

static void towers(void **state) {
    (void)state;
    eyes_on_device("hip");
}

static void halves(void **state) {
    (void)state;
    eyes_in_halves("hip");
}

static void asleep(void **state) {
    (void)state;
    eyes_asleep("hip", 1);
}

static void reserved(void **state) {
    (void)state;
    eyes_reserved("hip");
}

static int run(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reserved), cmocka_unit_test(towers),
                                       cmocka_unit_test(halves), cmocka_unit_test(asleep)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    return hip_on_drivers(run, GODWIT_EMULATORS "libgodwit_emu32.so",
                          GODWIT_EMULATORS "libgodwit_emu64.so");
}
