/* tests/test_drivers.c - a program that is built without its tests opens the drivers of the machine
 * and no library that a variable names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#undef GODWIT_TEST_HOOKS
#include "backends/hip/driver.c"

static void test_no_library_by_name(void **state) {
    (void)state;
    static const char *const nothing[] = {"/proc/none/libcuda.so.1", NULL};
    char path[GW_HIP_PATH];
    const char *why = "";
    int n = 0;
    setenv("GODWIT_HIP_DRIVER", "libm.so.6", 1);
    assert_null(gw_hip_library(nothing, "cos", path));
    setenv("GODWIT_HIP_DRIVER", "/proc/none/driver.so", 1);
    gw_hip_drivers(&n, &why);
    assert_null(strstr(why, "GODWIT_HIP_DRIVER"));
    unsetenv("GODWIT_HIP_DRIVER");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_library_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
