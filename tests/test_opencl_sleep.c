/* tests/test_opencl_sleep.c - models that sleep, on the first OpenCL device. Without a device
 * everything is skipped. */
#include "tests/sleep_cases.h"

#include "tests/pocl.h"

static void on_the_device(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 1);
    sc_check("opencl", NULL, 1);
    unsetenv("GODWIT_OPENCL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
