/* backends/selftest_cases.h - the cases of the self-test: what nodes it makes. For selftest.c
 * alone. */
#ifndef GW_BACKENDS_SELFTEST_CASES_H
#define GW_BACKENDS_SELFTEST_CASES_H

#include "core/plan/op.h"

typedef struct self_case {
    gw_op op;
    gw_fmt fmt, out; /* of weights or caches; of the result */
    int n, k, m;     /* live rows, width, rows of the weights */
    gw_order order;
    int heads, kv_heads, e, pos;
    int experts; /* ROUTE, EXPERTS: so many, of which a row uses all but one; EXPERTS_LORA: of two
                  * adapters together, each row with both */
    gw_scan_kind scan;
    int by_channel; /* SCAN */
    int center;     /* GROUP_NORM: with a bias; SCAN: bounded decays; CHOOSE: blocks by head */
} self_case;

#define SCAN(what, each, rows, all, of_keys, keys, values)                                         \
    {                                                                                              \
        .op = GW_OP_SCAN, .scan = GW_SCAN_##what, .by_channel = each, .n = rows, .heads = all,     \
        .kv_heads = of_keys, .e = keys, .k = values, .pos = 5                                      \
    }
static const self_case fixed_cases[] = {
    {.op = GW_OP_EMBED, .fmt = GW_FMT_F32, .n = 3, .k = 96, .m = 20},
    {.op = GW_OP_EMBED, .fmt = GW_FMT_Q8_0, .n = 3, .k = 96, .m = 20},
    {.op = GW_OP_PICK, .n = 2, .k = 80},
    {.op = GW_OP_NORM, .n = 3, .k = 520},
    {.op = GW_OP_NORM, .n = 3, .k = 512, .out = GW_FMT_ACT8},
    {.op = GW_OP_QUANTIZE, .n = 5, .k = 320, .out = GW_FMT_ACT8},
    {.op = GW_OP_ACT, .n = 3, .k = 520},
    {.op = GW_OP_ACT, .n = 3, .k = 512, .out = GW_FMT_ACT8},
    {.op = GW_OP_MIX, .n = 3, .k = 520},
    {.op = GW_OP_MIX, .n = 3, .k = 512, .out = GW_FMT_ACT8},
    {.op = GW_OP_ROUTE, .n = 5, .experts = 9},
    {.op = GW_OP_CONV, .n = 3, .k = 96, .pos = 5},
    {.op = GW_OP_CONV, .n = 20, .k = 96, .pos = 5},
    {.op = GW_OP_CONV, .n = 3, .k = 96, .m = 2, .pos = 5}, /* of every second row */
    SCAN(DELTA, 0, 3, 4, 2, 20, 16),
    SCAN(DELTA, 0, 3, 2, 1, 64, 32),
    SCAN(DELTA, 0, 3, 2, 1, 128, 32),
    SCAN(DELTA, 1, 3, 2, 1, 20, 16),
    SCAN(DELTA, 0, 20, 1, 1, 128, 64), /* a prompt */
    SCAN(DELTA, 1, 20, 1, 1, 128, 64),
    {.op = GW_OP_SCAN,
     .scan = GW_SCAN_DELTA,
     .by_channel = 1,
     .center = 1,
     .n = 3,
     .heads = 2,
     .kv_heads = 1,
     .e = 20,
     .k = 16,
     .pos = 5},
    SCAN(SSM, 0, 20, 1, 1, 128, 64),
    SCAN(SSM, 0, 3, 2, 1, 16, 20),
    SCAN(SSM, 1, 3, 4, 2, 5, 20),
    SCAN(SSM, 1, 20, 2, 1, 16, 64),
    SCAN(RETENTION, 0, 3, 2, 1, 20, 27),
    SCAN(RETENTION, 0, 20, 2, 2, 128, 32),
    SCAN(WKV, 0, 3, 2, 2, 20, 27),
    SCAN(WKV, 0, 20, 1, 1, 64, 64),
    {.op = GW_OP_EXP_GATES, .n = 20, .k = 12, .pos = 5},
    {.op = GW_OP_DIVIDE, .n = 3, .k = 96},
    {.op = GW_OP_GROUP_NORM, .n = 3, .k = 96},
    {.op = GW_OP_GROUP_NORM, .n = 3, .k = 96, .center = 1},
    {.op = GW_OP_STREAMS, .n = 3, .k = 96},
    {.op = GW_OP_SPARSE_GLU, .n = 3, .k = 520},
    {.op = GW_OP_HEADS, .fmt = GW_FMT_F32, .n = 3, .k = 40, .m = 48},
    {.op = GW_OP_HEADS, .fmt = GW_FMT_F16, .n = 3, .k = 40, .m = 48},
    {.op = GW_OP_HEADS, .fmt = GW_FMT_BF16, .n = 3, .k = 40, .m = 48},
    {.op = GW_OP_EXPERTS_LORA_A, .fmt = GW_FMT_F32, .n = 3, .k = 40, .m = 16, .experts = 6},
    {.op = GW_OP_EXPERTS_LORA_B, .fmt = GW_FMT_F32, .n = 3, .k = 16, .m = 48, .experts = 6},
    {.op = GW_OP_COLUMNS, .n = 3, .k = 50},
    {.op = GW_OP_WIDEN, .n = 3, .k = 80, .m = 96, .heads = 2},
    {.op = GW_OP_WIDEN, .n = 3, .k = 96, .m = 80, .heads = 3},
    {.op = GW_OP_HYPER, .n = 3, .k = 24},
    {.op = GW_OP_ROTATE, .n = 3, .k = 60, .heads = 3, .pos = 5},
    {.op = GW_OP_GROUP_DOT, .n = 3, .k = 96},
    {.op = GW_OP_COMPRESS, .n = 3, .e = 16, .pos = 5},
    {.op = GW_OP_CHOOSE, .n = 3, .k = 32, .heads = 2, .e = 16, .pos = 20},
    {.op = GW_OP_CHOOSE, .n = 3, .k = 32, .heads = 2, .e = 16, .pos = 20, .center = 1},
    {.op = GW_OP_LISTED, .n = 3, .k = 32, .heads = 2, .e = 16, .pos = 20},
    {.op = GW_OP_NGRAM, .fmt = GW_FMT_F32, .n = 3, .k = 8, .m = 60, .pos = 5},
    {.op = GW_OP_SAMPLE, .n = 2, .k = 5000, .out = GW_FMT_I32},
    {.op = GW_OP_SAMPLE, .n = 3, .k = 5000, .m = 40, .pos = 9, .out = GW_FMT_I32}, /* top 40 */
};
#undef SCAN
static const gw_fmt cache_formats[] = {GW_FMT_F16, GW_FMT_F32, GW_FMT_Q8_0, GW_FMT_Q5_0,
                                       GW_FMT_Q4_0};
enum {
    FIXED = sizeof fixed_cases / sizeof fixed_cases[0],
    CACHES = sizeof cache_formats / sizeof cache_formats[0],
    PER_FORMAT = 10, /* LINEAR and GLU: one row, a few, a prompt; both EXPERTS: a few, a prompt */
    PRODUCTS = 6,    /* of them */
    PER_CACHE = 4,   /* ROPE_KV, ATTENTION: one row, a prompt */
    CASES = FIXED + PER_FORMAT * GW_FMT_ACT8 + PER_CACHE * CACHES
};

static inline self_case experts_case(gw_fmt fmt, int form) {
    return (self_case){.op = form < 2 ? GW_OP_EXPERTS_GLU : GW_OP_EXPERTS_DOWN,
                       .fmt = fmt,
                       .out = form == 1 ? GW_FMT_ACT8 : GW_FMT_F32,
                       .n = form % 2 == 0 ? 3 : 21,
                       .k = 256,
                       .m = 64,
                       .order = form % 2 == 0 ? GW_ORDER_DECODE : GW_ORDER_PREFILL,
                       .experts = 3};
}

static inline self_case case_at(int i) {
    static const int rows[] = {1, 5, 21};
    if (i < FIXED) {
        return fixed_cases[i];
    }
    i -= FIXED;
    if (i < PER_FORMAT * GW_FMT_ACT8) {
        int form = i % PER_FORMAT;
        if (form >= PRODUCTS) {
            return experts_case((gw_fmt)(i / PER_FORMAT), form - PRODUCTS);
        }
        return (self_case){.op = form < 3 ? GW_OP_LINEAR : GW_OP_GLU,
                           .fmt = (gw_fmt)(i / PER_FORMAT),
                           .out = form == 3 ? GW_FMT_ACT8 : GW_FMT_F32,
                           .n = rows[form % 3],
                           .k = 512,
                           .m = 96,
                           .order = form % 3 == 2 ? GW_ORDER_PREFILL : GW_ORDER_DECODE};
    }
    i -= PER_FORMAT * GW_FMT_ACT8;
    return (self_case){.op = i % PER_CACHE < 2 ? GW_OP_ROPE_KV : GW_OP_ATTENTION,
                       .fmt = cache_formats[i / PER_CACHE],
                       .out = i % PER_CACHE == 2 ? GW_FMT_ACT8 : GW_FMT_F32,
                       .n = i % 2 == 0 ? 1 : 40,
                       .heads = 4,
                       .kv_heads = 2,
                       .e = 64,
                       .pos = 100};
}

#endif
