/* tests/test_opencl_ops.c - every kernel of the opencl backend equals the scalar CPU bit for bit,
 * on each way through the ops; weights in several allocations. Runs on the first OpenCL device;
 * without one everything is skipped.
 */
#include "op_table.h"

extern const gw_backend gw_backend_opencl;

static struct gw_device *open_opencl(const char *settings) {
    struct gw_device *device = NULL;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", settings, 1);
    gw_status status = gw_backend_opencl.open(0, NULL, &device);
    unsetenv("GODWIT_OPENCL");
    if (status != GW_OK) {
        fail_msg("cannot open: %s", gw_error_text());
    }
    return device;
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void check_table(const char *settings, int cases, const char *other) {
    static op_bench bench;
    ot_open(&bench, &gw_backend_opencl, open_opencl(settings), OT_PRODUCED | OT_MAPPED);
    ot_check_table(&bench, oc_case, cases, other);
    ot_close(&bench);
}

/* The way that the device would take. */
static void bits_as_found(void **state) {
    (void)state;
    check_table("no-cache,any-floats", OC_TOTAL, NULL);
}
/* The way for graphics processors, on any device. PoCL compiles it slowly: every format only with
 * GODWIT_OPENCL_ALL. */
static void bits_team(void **state) {
    int all = getenv("GODWIT_OPENCL_ALL") != NULL;
    (void)state;
    check_table("no-cache,team,plain,any-floats", all ? OC_TOTAL : OC_COUNT, all ? NULL : "");
}

/* As on NVIDIA: the group that comes last joins what the others found. */
static void bits_last_joins(void **state) {
    static op_bench bench;
    (void)state;
    ot_open(&bench, &gw_backend_opencl, open_opencl("no-cache,team,plain,last-joins"),
            OT_PRODUCED | OT_MAPPED);
    for (int i = 0; i < OC_COUNT; i++) {
        op_case c = oc_case(i);
        if (c.op == GW_OP_ATTENTION && (c.pos >= 300 || (c.out == GW_FMT_ACT8 && c.pos > 0))) {
            ot_check_case(&bench, &c);
        }
    }
    ot_close(&bench);
}

/* Decode products of every width that has a kernel of its own, and chunks of 64 rows. */
static void check_widths(const char *settings) {
    static op_bench bench;
    static const gw_fmt formats[] = {GW_FMT_Q4_0, GW_FMT_Q6_K, GW_FMT_F16};
    ot_open(&bench, &gw_backend_opencl, open_opencl(settings), OT_PRODUCED | OT_MAPPED);
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        for (int n = 1; n <= 14; n += n < 3 ? 1 : 3) { /* plans of n + 2 rows */
            op_case c = {.op = n % 2 ? GW_OP_LINEAR : GW_OP_GLU,
                         .why = "width",
                         .n = n,
                         .k = 1280,
                         .m = {224},
                         .fmt = {formats[f], formats[f], formats[f]},
                         .out = n % 2 || n == 4 ? GW_FMT_F32 : GW_FMT_ACT8,
                         .order = GW_ORDER_DECODE,
                         .bias = n % 2,
                         .residual = n % 2};
            ot_check_case(&bench, &c);
        }
    }
    op_case embed = {.op = GW_OP_EMBED,
                     .why = "several allocations",
                     .n = 9,
                     .k = 256,
                     .m = {500},
                     .fmt = {GW_FMT_Q4_0},
                     .out = GW_FMT_F32};
    ot_check_case(&bench, &embed);
    ot_close(&bench);
}

/* Weights above 160 KB go into several allocations; activations of these cases stay below. */
static void widths_as_found(void **state) {
    (void)state;
    check_widths("no-cache");
    check_widths("no-cache,max-alloc=163840");
}
static void widths_team(void **state) {
    (void)state;
    check_widths("no-cache,team,plain");
    check_widths("no-cache,team,plain,max-alloc=163840");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_as_found),   cmocka_unit_test(bits_team),
        cmocka_unit_test(bits_last_joins), cmocka_unit_test(widths_as_found),
        cmocka_unit_test(widths_team),
    };
    cmocka_set_test_filter(getenv("GODWIT_TEST")); /* a pattern: one test alone */
    return cmocka_run_group_tests_name("opencl", tests, NULL, NULL);
}
