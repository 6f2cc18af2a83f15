/* tests/test_hip_batch.c - many requests at once on the emulator, at both wave widths, or on the
 * card of this machine. */
#include "tests/reference_files.h"

#include "tests/batch_cases.h"
#include "tests/hip_drivers.h"

static void in_disorder(void **state) {
    (void)state;
    const bc_plan card = {.device = "hip", .requests = 24};
    /* The emulator takes its time for each token. */
    const bc_plan emulator = {
        .device = "hip", .requests = 4, .stem = 80, .own = 8, .answer = 6, .seed = 2};
    bc_rounds(getenv("GODWIT_HIP_DRIVER") != NULL ? &emulator : &card);
}

static void states(void **state) {
    (void)state;
    bc_states("hip", shared_path("goldens/qwen3.5-moe-mm"));
}

static void ngrams(void **state) {
    (void)state;
    bc_ngrams("hip", shared_path("goldens/qwen4-exp"));
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_disorder), cmocka_unit_test(states),
                                       cmocka_unit_test(ngrams)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    return hip_on_drivers(run_all, GODWIT_EMULATORS "libgodwit_emu32.so",
                          GODWIT_EMULATORS "libgodwit_emu64.so");
}
