/* tests/test_opencl_eyes.c - vision towers and models that see on the first OpenCL device: the bits
 * of the CPU. Without a device it is skipped. GODWIT_OPENCL set: its settings instead of the own
 * ones. */
#include "tests/eyes_cases.h"
#include "tests/pocl.h"

static void towers(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    eyes_on_device("opencl");
    eyes_reserved("opencl"); /* whose memory in use nobody knows */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(towers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
