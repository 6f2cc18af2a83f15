/* tests/test_opencl_draft_heads.c - heads of EAGLE-3 and DFlash on the first OpenCL device.
 * Without one everything is skipped. */
#include "tests/draft_heads_cases.h"

#include "tests/pocl.h"

static void on_a_device(void **state) {
    (void)state;
    static const hc_case cases[] = {{"seer", "fixed:4", NULL, 0, 1, 1},
                                    {"seer-part", "fixed:4", "1", 2, 1, 1},
                                    {"plain", "fixed:3", NULL, 1, 1, 0},
                                    {"ring-block", "fixed:3", NULL, 0, 1, 2},
                                    {"blocks", "fixed:7", NULL, 1, 1, 0}};
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_a_device)};
    return cmocka_run_group_tests(tests, hc_make, hc_remove);
}
