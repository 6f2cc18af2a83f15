/* tests/test_hip_batch.c - many requests at once on the emulator, at both wave widths. */
#include "tests/reference_files.h"

#include "tests/batch_cases.h"
#include "tests/hip_drivers.h"

static void on_the_emulator(void **state) {
    (void)state;
    bc_plan p = {.device = "hip",
                 .requests = 4,
                 .stem = 80,
                 .own = 8,
                 .answer = 6,
                 .parallel = 20,
                 .chunk = 100,
                 .seed = 3,
                 .disorder = 1,
                 .lookup = 1,
                 .tokens = 64 * 12};
    const char *given = getenv("GODWIT_BATCH_REQUESTS");
    p.requests = given != NULL ? atoi(given) : p.requests;
    bc_check(&p);
}

static void states(void **state) {
    (void)state;
    bc_states("hip", shared_path("goldens/qwen3.5-moe-mm"));
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_emulator), cmocka_unit_test(states)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    return hip_on_drivers(run_all, GODWIT_EMULATORS "libgodwit_emu32.so",
                          GODWIT_EMULATORS "libgodwit_emu64.so");
}
