/* tests/test_selftest.c - gw_self_test reaches every kernel of the cpu, and finds a device whose
 * results are wrong, one that cannot be opened, and nothing on a sound one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/backend.h"
#include "include/godwit_bind.h"

extern const gw_backend gw_backend_cpu;

/* A cpu whose memory changes one bit of what is read from it. */
static gw_status read_wrongly(const struct gw_buffer *src, size_t at, void *dst, size_t bytes) {
    gw_status status = gw_backend_cpu.read(src, at, dst, bytes);
    if (status == GW_OK && bytes > 300) {
        ((unsigned char *)dst)[300] ^= 1;
    }
    return status;
}

static gw_status open_never(int ordinal, const gw_device_options *options, struct gw_device **out) {
    (void)ordinal;
    (void)options;
    (void)out;
    return gw_fail(GW_E_DEVICE, "shut", "the driver says no");
}

static gw_backend wrong, shut;

/* Instead of the registry's list: this program links its own. */
const gw_backend *const gw_backends[] = {&gw_backend_cpu, &wrong, &shut, NULL};

typedef struct tally {
    int kernels[3], equal[3], untried[3], faults;
    int stop_after;
    int steps, stop_at_step;
} tally;

static int on_check(void *user, const gw_kernel_check *check) {
    tally *t = user;
    if (check->kernel[0] == '\0' && check->failed == 0) { /* a case begins */
        t->steps++;
        return t->stop_at_step > 0 && t->steps == t->stop_at_step;
    }
    int d = strcmp(check->device, "cpu") == 0 ? 0 : strcmp(check->device, "wrong") == 0 ? 1 : 2;
    t->kernels[d]++;
    t->equal[d] += check->cases > 0 && check->failed == 0;
    if (d == 0 && check->cases == 0) {
        t->untried[0]++;
        print_error("no case reaches %s\n", check->kernel);
    }
    if (d == 0 && check->failed > 0) {
        print_error("%s: %s\n", check->kernel, check->fault);
    }
    if (d == 2) {
        assert_string_equal(check->kernel, "");
        assert_non_null(strstr(check->fault, "the driver says no"));
    }
    t->faults += check->fault[0] != '\0';
    return t->stop_after > 0 && t->kernels[0] >= t->stop_after;
}

static int setup(void **state) {
    (void)state;
    wrong = gw_backend_cpu;
    wrong.name = "wrong";
    wrong.read = read_wrongly;
    shut = gw_backend_cpu;
    shut.name = "shut";
    shut.open = open_never;
    return 0;
}

static void every_fault_is_found(void **state) {
    (void)state;
    tally t = {0};
    size_t n;
    struct gw_device *device;
    gw_device_options options = {.threads = 2};
    assert_int_equal(gw_self_test(2, on_check, &t), GW_OK);
    assert_int_equal(gw_backend_cpu.open(0, &options, &device), GW_OK);
    gw_backend_cpu.kernels(device, &n);
    gw_backend_cpu.close(device);
    assert_int_equal(t.kernels[0], n);
    assert_int_equal(t.equal[0], n);
    assert_int_equal(t.untried[0], 0);
    assert_int_equal(t.kernels[1], n);
    assert_int_equal(t.equal[1], 0);
    assert_int_equal(t.kernels[2], 1);
    assert_int_equal(t.faults, n + 1);
}

static void it_can_be_stopped(void **state) {
    (void)state;
    tally t = {.stop_after = 3};
    assert_int_equal(gw_self_test(1, on_check, &t), GW_E_CANCELLED);
    assert_int_equal(t.kernels[0], 3);
    t = (tally){.stop_at_step = 5};
    assert_int_equal(gw_self_test_of(NULL, 1, on_check, &t), GW_E_CANCELLED);
    assert_int_equal(t.steps, 5);
    assert_int_equal(t.kernels[0], 0);
}

static void devices_are_chosen(void **state) {
    (void)state;
    tally t = {0};
    assert_int_equal(gw_self_test_of("shut", 1, on_check, &t), GW_OK);
    assert_int_equal(t.kernels[0] + t.kernels[1], 0);
    assert_int_equal(t.kernels[2], 1);
    t = (tally){0};
    assert_int_equal(gw_self_test_of("opencl:0", 1, on_check, &t), GW_OK);
    assert_int_equal(t.kernels[0] + t.kernels[1] + t.kernels[2], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_is_found),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(devices_are_chosen),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
