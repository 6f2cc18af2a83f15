/* tests/hip_long_plans.h - cases of plans of many rows: with few live rows; and states, which the
 * hip backend has other kernels for there. */
#ifndef GW_TESTS_HIP_LONG_PLANS_H
#define GW_TESTS_HIP_LONG_PLANS_H

#include "hip_cut.h"

/* clang-format off */
static const op_case hip_long_plan_cases[] = {
    /* a short prompt in the plan of a long one */
    {.op = GW_OP_LINEAR, .why = "few of many rows", .n = 9, .spare = 300, .k = 256,
     .m = {150, 70}, .fmt = {GW_FMT_Q4_0, GW_FMT_Q4_0}, .out = GW_FMT_F32,
     .order = GW_ORDER_PREFILL, .bias = 1},
    {.op = GW_OP_LINEAR, .why = "some of many rows", .n = 70, .spare = 300, .k = 256, .m = {300},
     .fmt = {GW_FMT_Q6_K}, .out = GW_FMT_F32, .order = GW_ORDER_PREFILL, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "few of many rows, floats", .n = 9, .spare = 300, .k = 130,
     .m = {150}, .fmt = OC_F16, .out = GW_FMT_F32, .order = GW_ORDER_PREFILL},
    {.op = GW_OP_GLU, .why = "few of many rows", .n = 9, .spare = 300, .k = 256, .m = {224},
     .fmt = {GW_FMT_Q4_K, GW_FMT_Q4_K}, .out = GW_FMT_ACT8, .order = GW_ORDER_PREFILL},
    /* as many rows as a state has entries, and some more and less; sequences that take turns */
    {.op = GW_OP_CONV, .why = "a prompt, sequences", .n = 53, .k = 150, .taps = 4, .pos = 5,
     .slots = 3, .act = GW_ACT_SILU},
    {.op = GW_OP_CONV, .why = "a prompt, 7 taps, the first rows", .n = 37, .k = 33, .taps = 7,
     .act = GW_ACT_NONE, .norm_bias = 1},
    {.op = GW_OP_CONV, .why = "a prompt of 16", .n = 16, .k = 20, .taps = 4, .pos = 30,
     .act = GW_ACT_SILU},
    {.op = GW_OP_CONV, .why = "a prompt of 17", .n = 17, .k = 20, .taps = 4, .pos = 30,
     .act = GW_ACT_SILU},
    {.op = GW_OP_CONV, .why = "a prompt of 20", .n = 20, .k = 20, .taps = 4, .pos = 30,
     .act = GW_ACT_SILU},
    {.op = GW_OP_CONV, .why = "few of many rows", .n = 2, .spare = 30, .k = 20, .taps = 4,
     .pos = 30, .act = GW_ACT_SILU},
    {.op = GW_OP_SCAN, .why = "delta, a prompt, 128 wide", .n = 35, .heads = 4, .kv_heads = 2,
     .e = 128, .v_dim = 32, .pos = 9},
    {.op = GW_OP_SCAN, .why = "delta, a prompt, 128 wide, sequences", .n = 40, .heads = 3,
     .kv_heads = 3, .e = 128, .v_dim = 64, .slots = 3, .pos = 7, .tiled = 1, .together = 1},
    {.op = GW_OP_SCAN, .why = "delta by channel, a prompt, 128 wide, the first rows", .n = 20,
     .heads = 2, .kv_heads = 2, .e = 128, .v_dim = 32, .by_channel = 1},
    {.op = GW_OP_SCAN, .why = "ssm, a prompt, 128 wide, sequences", .n = 38, .scan = GW_SCAN_SSM,
     .heads = 2, .kv_heads = 1, .e = 128, .v_dim = 64, .pos = 3, .slots = 2},
    {.op = GW_OP_SCAN, .why = "retention, a prompt, 128 wide, sequences", .n = 38,
     .scan = GW_SCAN_RETENTION, .heads = 2, .kv_heads = 1, .e = 128, .v_dim = 32, .pos = 3,
     .slots = 2},
    {.op = GW_OP_SCAN, .why = "few of many rows", .n = 2, .spare = 30, .heads = 2, .kv_heads = 1,
     .e = 128, .v_dim = 32, .pos = 3},
};
/* clang-format on */
enum { HIP_LONG_PLANS = sizeof hip_long_plan_cases / sizeof hip_long_plan_cases[0] };

/* All of these are for one kernel or the other: none is left to those that go row by row. */
static void states_of_long_plans(void **state) {
    static op_bench bench;
    struct gw_device *device = open_hip(1);
    int n = 0;
    (void)state;
    ot_open(&bench, &gw_backend_hip, device, OT_MAPPED);
    for (int i = 0; i < HIP_LONG_PLANS; i++) {
        op_case c = hip_long_plan_cases[i];
        op_setup s;
        struct gw_segment *segment;
        if (c.op != GW_OP_CONV && c.op != GW_OP_SCAN) {
            continue;
        }
        oc_open(&s, &c, bench.backend, device, 0, 1);
        s.node.kernel = oc_find(&s, "");
        assert_int_equal(bench.backend->freeze(device, &s.node, 1, s.rows, &segment), GW_OK);
        const char *name = segment->launches[segment->n - 1].kernel;
        const char *want = c.op == GW_OP_CONV ? "gw_state_prompt_conv" : "gw_state_prompt_scan_";
        if (strncmp(name, want, strlen(want)) != 0) {
            fail_msg("%s: %s, not %s", c.why, name, want);
        }
        n++;
        bench.backend->segment_free(segment);
        oc_close(&s);
    }
    assert_true(n > 0);
    ot_close(&bench);
}

#endif
