/* tests/test_opencl_next.c - gw_session_next on the first OpenCL device, on each way through the
 * ops, and with a part of the layers on the CPU. Without a device everything is skipped. */
#include "tests/next_cases.h"
#include "tests/pocl.h"

static void check(const char *settings, const char *layers, int n, int ahead) {
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    struct gw_device *device;
    assert_int_equal(gw_backend_opencl.open(0, NULL, &device), GW_OK);
    choose_pocl_method(device, settings);
    gw_backend_opencl.close(device);
    setenv("GODWIT_OPENCL", settings, 1);
    nc_check("opencl", layers, n, ahead);
    unsetenv("GODWIT_OPENCL");
}

static void as_found(void **state) {
    (void)state;
    check("no-cache,any-floats", NULL, 24, 1);
}
static void team(void **state) {
    (void)state;
    check("no-cache,team,plain,any-floats", NULL, 6, 1);
}
static void embedding_at_home(void **state) {
    (void)state;
    check("no-cache,any-floats", "1", 6, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_found),
        cmocka_unit_test(team),
        cmocka_unit_test(embedding_at_home),
    };
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
