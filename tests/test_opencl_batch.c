/* tests/test_opencl_batch.c - many requests at once on the first OpenCL device. Without a device
 * everything is skipped. */
#include "tests/reference_files.h"

#include "tests/batch_cases.h"
#include "tests/pocl.h"

static void in_disorder(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 1);
    bc_rounds("opencl", 8);
    unsetenv("GODWIT_OPENCL");
}

static void states(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 1);
    bc_states("opencl", shared_path("goldens/qwen3.5-moe-mm"));
    unsetenv("GODWIT_OPENCL");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_disorder), cmocka_unit_test(states)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
