/* tests/test_opencl_batch.c - many requests at once on the first OpenCL device. Without a device
 * everything is skipped. GODWIT_OPENCL set: its settings instead of the own ones. */
#include "tests/reference_files.h"

#include "tests/batch_cases.h"
#include "tests/pocl.h"

static void in_disorder(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    bc_rounds(&(bc_plan){.device = "opencl", .requests = 8});
}

static void states(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    bc_states("opencl", shared_path("goldens/qwen3.5-moe-mm"));
}

static void ngrams(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    bc_ngrams("opencl", shared_path("goldens/qwen4-exp"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_disorder), cmocka_unit_test(states),
                                       cmocka_unit_test(ngrams)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
