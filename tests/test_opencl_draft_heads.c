/* tests/test_opencl_draft_heads.c - heads of EAGLE-3, DFlash and DSpark on the first OpenCL device.
 * Without one everything is skipped. */
#include "tests/draft_heads_cases.h"

#include "tests/pocl.h"
#include "tests/predictor_cases.h"

static void on_a_device(void **state) {
    (void)state;
    static const hc_case cases[] = {
        {"seer", "fixed:4", NULL, 0, 1, 1},   {"seer-part", "fixed:4", "1", 2, 1, 1},
        {"plain", "fixed:3", NULL, 1, 1, 0},  {"ring-block", "fixed:3", NULL, 0, 1, 2},
        {"blocks", "fixed:7", NULL, 1, 1, 0}, {"ring-chain", "fixed:8", NULL, 0, 1, 2},
        {"gated", "fixed:8", NULL, 0, 1, 0},  {"joint", "fixed:7", NULL, 2, 1, 0}};
    (void)shared_path("models/tales-2m");
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_check("opencl", &cases[i]);
    }
    unsetenv("GODWIT_OPENCL");
}

static void families(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 1);
    pc_same_bits("mimo2", "opencl");
    pc_same_bits("nemotron-h-moe", "opencl");
    unsetenv("GODWIT_OPENCL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_a_device),
        cmocka_unit_test_setup_teardown(families, pc_make, pc_remove)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, hc_make, hc_remove);
}
