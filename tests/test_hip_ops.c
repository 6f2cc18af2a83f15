/* tests/test_hip_ops.c - every kernel of the hip backend equals the scalar CPU bit for bit, on
 * emulators of both wave widths, with blocks and threads in both orders. GODWIT_HIP_DRIVER=system:
 * on the first device of this machine instead.
 */
#include "hip_cut.h"
#include "hip_early.h"
#include "hip_emulated.h"
#include "hip_experts.h"
#include "hip_layer.h"
#include "hip_long_plans.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- bits ------------------------------------------------------------------------------------ */

/* What the shared table has no case of: head groups of each kernel, tiles that do not fit. */
/* clang-format off */
static const op_case more_cases[] = {
    {.op = GW_OP_NORM, .why = "longer than what is kept", .n = 2, .k = 8192 + 96,
     .out = GW_FMT_ACT8},
    {.op = GW_OP_NORM, .why = "longer than what is kept, ragged", .n = 1, .k = 8199,
     .out = GW_FMT_F32},
    {.op = GW_OP_ROPE_KV, .why = "eight rows at a time", .n = 45, .heads = 6, .kv_heads = 3, .e = 72,
     .rope_dim = 64, .kv = GW_FMT_F16, .pos = 56, .slots = 1},
    {.op = GW_OP_ROPE_KV, .why = "eight rows, slots, head norms", .n = 19, .heads = 4, .kv_heads = 2,
     .e = 64, .rope_dim = 64, .head_norm = 1, .kv = GW_FMT_F16, .pos = 64, .slots = 3},
    {.op = GW_OP_ATTENTION, .why = "five heads of a group", .n = 9, .heads = 10, .kv_heads = 2,
     .e = 32, .kv = GW_FMT_F16, .pos = 120, .slots = 1, .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "nine heads of a group, f32", .n = 2, .heads = 9, .kv_heads = 1,
     .e = 36, .kv = GW_FMT_F32, .pos = 64, .slots = 2, .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "pages too large for shared memory", .n = 2, .heads = 6,
     .kv_heads = 1, .e = 256, .kv = GW_FMT_F32, .pos = 70, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "pages too large for shared memory, f16", .n = 1, .heads = 2,
     .kv_heads = 2, .e = 512, .kv = GW_FMT_F16, .pos = 70, .slots = 1, .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "more pages than stages", .n = 1, .heads = 2, .kv_heads = 1,
     .e = 16, .kv = GW_FMT_F16, .pos = 64 * 300, .slots = 1, .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "pages too large for shared memory, q8_0", .n = 1, .heads = 2,
     .kv_heads = 1, .e = 1024, .kv = GW_FMT_Q8_0, .pos = 70, .slots = 1, .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "odd head width", .n = 3, .heads = 2, .kv_heads = 2, .e = 19,
     .kv = GW_FMT_F32, .pos = 100, .window = 90, .slots = 1, .out = GW_FMT_F32},
    {.op = GW_OP_LINEAR, .why = "two passes of matrix instructions", .n = 13, .k = 1056, .m = {41},
     .fmt = {GW_FMT_Q4_0}, OC_DEC, .bias = 1, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "integer scales of halves, 16 rows", .n = 16, .k = 1280, .m = {33},
     .fmt = {GW_FMT_Q6_K}, OC_DEC, .residual = 2},
    {.op = GW_OP_LINEAR, .why = "minimums of halves, 7 rows", .n = 7, .k = 512, .m = {20},
     .fmt = {GW_FMT_Q2_K}, OC_DEC},
    {.op = GW_OP_LINEAR, .why = "three matrices in one launch, 3 rows", .n = 3, .k = 256,
     .m = {48, 17, 16}, .fmt = OC_Q8, OC_DEC, .bias = 1},
    {.op = GW_OP_LINEAR, .why = "more tiles than blocks", .n = 2, .k = 64, .m = {700},
     .fmt = {GW_FMT_INT4_G32, GW_FMT_INT4_G32}, OC_DEC},
    {.op = GW_OP_LINEAR, .why = "rows in pieces, 8 bits", .n = 8, .k = 16384, .m = {16},
     .fmt = OC_Q8, OC_DEC},
    {.op = GW_OP_LINEAR, .why = "rows that leave sums little room", .n = 8, .k = 17024, .m = {40},
     .fmt = {GW_FMT_Q4_0}, OC_DEC},
    {.op = GW_OP_LINEAR, .why = "rows in pieces, a class with one slot more", .n = 8, .k = 24608,
     .m = {40, 17}, .fmt = {GW_FMT_Q4_0, GW_FMT_Q4_0}, OC_DEC, .bias = 1},
    {.op = GW_OP_LINEAR, .why = "rows in pieces, twice", .n = 13, .k = 24832, .m = {33},
     .fmt = {GW_FMT_Q6_K}, OC_DEC, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "rows in pieces, several batches, little memory", .n = 8,
     .k = 8224, .m = {790, 17}, .fmt = {GW_FMT_INT8, GW_FMT_INT8}, OC_DEC},
    {.op = GW_OP_GLU, .why = "rows in pieces, to act8", .n = 7, .k = 24704, .m = {96},
     .fmt = {GW_FMT_INT4_G128, GW_FMT_INT4_G128}, OC_DEC, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "rows in pieces, several batches, little memory", .n = 8, .k = 16640,
     .m = {440}, .fmt = {GW_FMT_Q2_K, GW_FMT_Q2_K}, OC_DEC},
    /* fewer rows than the plan has: some blocks have some of theirs, others none */
    {.op = GW_OP_LINEAR, .why = "few of a plan's rows", .n = 3, .spare = 15, .k = 512, .m = {70},
     .fmt = {GW_FMT_Q4_0}, OC_DEC, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "rows in pieces, few of a plan's", .n = 5, .spare = 13,
     .k = 24832, .m = {33}, .fmt = {GW_FMT_Q4_K}, OC_DEC},
    {.op = GW_OP_GLU, .why = "few of a plan's rows, to act8", .n = 6, .spare = 12, .k = 256,
     .m = {96}, .fmt = {GW_FMT_INT4_G128, GW_FMT_INT4_G128}, OC_DEC, .out = GW_FMT_ACT8},
    {.op = GW_OP_LINEAR, .why = "few of a plan's rows, floats", .n = 2, .spare = 9, .k = 96,
     .m = {40}, .fmt = OC_F16, OC_DEC},
    {.op = GW_OP_LINEAR, .why = "rows too long for shared memory", .n = 2, .k = 25600, .m = {17},
     .fmt = OC_F16, OC_DEC},
    {.op = GW_OP_GLU, .why = "columns of 5 rows to act8", .n = 5, .k = 512, .m = {320},
     .fmt = {GW_FMT_Q4_K, GW_FMT_Q4_K}, OC_DEC, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "one row to act8, more items than blocks", .n = 1, .k = 288,
     .m = {416}, .fmt = {GW_FMT_Q4_0, GW_FMT_Q4_0}, OC_DEC, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "formats differ, decode", .n = 4, .k = 256, .m = {72},
     .fmt = {GW_FMT_Q4_K, GW_FMT_Q6_K}, OC_DEC},
    {.op = GW_OP_GLU, .why = "bf16, 2 rows, ragged", .n = 2, .k = 130, .m = {45}, .fmt = OC_BF16,
     OC_DEC},
    {.op = GW_OP_ATTENTION, .why = "many rows, five heads of a group, slots", .n = 21, .heads = 10,
     .kv_heads = 2, .e = 96, .kv = GW_FMT_F32, .pos = 120, .window = 70, .slots = 3,
     .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "rows of several slots, over more pages than fit at once", .n = 6,
     .heads = 8, .kv_heads = 2, .e = 128, .kv = GW_FMT_F16, .pos = 500, .slots = 2,
     .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "q8_0, a window over pages", .n = 4, .heads = 4, .kv_heads = 1,
     .e = 64, .kv = GW_FMT_Q8_0, .pos = 330, .window = 150, .slots = 1, .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "many rows of an odd width", .n = 19, .heads = 2, .kv_heads = 2,
     .e = 19, .kv = GW_FMT_F16, .pos = 60, .slots = 1, .out = GW_FMT_F32},
    /* widths that have kernels of their own where pages are many (without blocks: always) */
    {.op = GW_OP_ATTENTION, .why = "many pages, 128 wide", .n = 1, .heads = 2, .kv_heads = 1,
     .e = 128, .kv = GW_FMT_F16, .pos = 64 * 66 + 5, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "128 wide, a group of four", .n = 1, .heads = 8, .kv_heads = 2,
     .e = 128, .kv = GW_FMT_F16, .pos = 64 * 3 + 5, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "128 wide, no group", .n = 1, .heads = 2, .kv_heads = 2,
     .e = 128, .kv = GW_FMT_F16, .pos = 64 * 7 - 1, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "128 wide, q8_0, rows, window", .n = 3, .heads = 8,
     .kv_heads = 1, .e = 128, .kv = GW_FMT_Q8_0, .pos = 64 * 9 - 2, .window = 64 * 5 + 7,
     .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "128 wide, f32", .n = 2, .heads = 2, .kv_heads = 1, .e = 128,
     .kv = GW_FMT_F32, .pos = 64 * 4, .slots = 2},
    {.op = GW_OP_ATTENTION, .why = "64 wide, a group of six", .n = 1, .heads = 6, .kv_heads = 1,
     .e = 64, .kv = GW_FMT_F16, .pos = 64 * 6 + 63, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "64 wide, q8_0", .n = 1, .heads = 2, .kv_heads = 1, .e = 64,
     .kv = GW_FMT_Q8_0, .pos = 64 * 5 + 1, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "64 wide, f32", .n = 1, .heads = 8, .kv_heads = 1, .e = 64,
     .kv = GW_FMT_F32, .pos = 64 * 5 + 30, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "few of many rows", .n = 5, .spare = 300, .heads = 4,
     .kv_heads = 2, .e = 64, .kv = GW_FMT_F16, .pos = 60, .slots = 1, .out = GW_FMT_ACT8},
};
/* clang-format on */
enum {
    OTHERS = sizeof more_cases / sizeof more_cases[0],
    MORE = OTHERS + HIP_LONG_PLANS,
    /* EMBED, LINEAR and GLU of every format, with more tokens than a tile, of up to 16 rows of decode */
    FORMS = 11,
    EVERY = OC_TOTAL + MORE + FORMS * OC_SHARED + 3 * OC_SHARING
};

static op_case case_of(int i) {
    int at = i - OC_TOTAL - MORE, few = at - FORMS * OC_SHARED;
    if (i < OC_TOTAL + MORE) {
        return i < OC_TOTAL            ? oc_case(i)
               : i < OC_TOTAL + OTHERS ? more_cases[i - OC_TOTAL]
                                       : hip_long_plan_cases[i - OC_TOTAL - OTHERS];
    }
    gw_fmt fmt = (gw_fmt)(few < 0 ? at % OC_SHARED : OC_SHARED + few % OC_SHARING);
    const int of_last[] = {0, 7, 1 + (int)fmt % (FORMS - 1)}; /* of the last formats: not all */
    int form = few < 0 ? at / OC_SHARED : of_last[few / OC_SHARING];
    const char *why = gw_format_of(fmt)->name;
    if (form == 0) {
        return (op_case){.op = GW_OP_EMBED, .why = why, .n = 3, .k = 768, .m = {20}, .fmt = {fmt}};
    }
    static const int tokens[FORMS] = {0, 67, 39, 141, 130, 3, 2, 2, 4, 16, 11};
    size_t block = gw_format_of(fmt)->block_elems;
    int glu = form % 2 == 0;
    return (op_case){.op = glu ? GW_OP_GLU : GW_OP_LINEAR,
                     .why = why,
                     .n = tokens[form],
                     .k = form > 6    ? (block > 32 ? 1280 : 1056)
                          : block > 32 ? 256
                                       : 96,
                     .m = {glu ? 64 : 100},
                     .fmt = {fmt, fmt, fmt},
                     .out = glu ? GW_FMT_ACT8 : GW_FMT_F32,
                     .order = form > 4 ? GW_ORDER_DECODE : GW_ORDER_PREFILL,
                     .bias = !glu,
                     .residual = !glu};
}

static void check_table(void **state) {
    static op_bench bench;
    (void)state;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    ot_check_table(&bench, case_of, EVERY, ".half");
    ot_close(&bench);
}

static int has_strips(gw_fmt fmt) {
#define STRIPS(FORMAT, ...) [GW_FMT_##FORMAT] = 1,
    static const char has[GW_FMT_COUNT] = {GW_STRIP_FORMATS(STRIPS)};
    return has[fmt];
}

/* The table has products of two to four rows in every format, and such as find x in another form
 * than they fetch. */
static void table_has_forms_of_rows(void **state) {
    static op_bench bench;
    int four[GW_FMT_COUNT] = {0}, grouped = 0, padded = 0, settled = 0;
    (void)state;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    for (int i = 0; i < EVERY; i++) {
        op_case c = case_of(i);
        op_setup s;
        struct gw_segment *segment;
        if (c.op != GW_OP_LINEAR || c.order != GW_ORDER_DECODE) {
            continue;
        }
        oc_open(&s, &c, bench.backend, bench.device, 0, 1);
        s.node.kernel = oc_find(&s, "");
        assert_non_null(s.node.kernel);
        assert_int_equal(bench.backend->freeze(bench.device, &s.node, 1, s.rows, &segment), GW_OK);
        for (size_t l = 0; l < segment->n; l++) {
            const char *kernel = segment->launches[l].kernel;
            const struct gw_linear_params *p = segment->launches[l].params;
            four[c.fmt[0]] += strstr(kernel, "_four") != NULL;
            grouped += strcmp(kernel, "gw_act8_group") == 0;
            padded += strcmp(kernel, "gw_pad") == 0;
            settled += strncmp(kernel, "gw_linear", 9) == 0 && p->settles;
        }
        bench.backend->segment_free(segment);
        oc_close(&s);
    }
    if (bench.device->driver->emulated) {
        int copies = bench.device->warp == 32;
        assert_true((grouped > 0) == copies && (padded > 0) == copies && (settled > 0) == copies);
    }
    for (int fmt = 0; fmt < GW_FMT_COUNT; fmt++) {
        if (!gw_format_of((gw_fmt)fmt)->is_float && has_strips((gw_fmt)fmt) && four[fmt] == 0) {
            fail_msg("no product of two to four rows in %s", gw_format_of((gw_fmt)fmt)->name);
        }
    }
    ot_close(&bench);
}

/* Rows of x that do not fit together come in pieces. */
static void check_pieces(void) {
    static op_bench bench;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    int little = bench.device->shared_bytes < 128 << 10, n = 0;
    for (int i = OC_TOTAL; i < OC_TOTAL + MORE && bench.device->driver->emulated; i++) {
        op_case c = case_of(i);
        op_setup s;
        struct gw_segment *segment;
        if (strncmp(c.why, "rows in pieces", 14) != 0 ||
            (strstr(c.why, "little memory") != NULL && !little)) {
            continue;
        }
        oc_open(&s, &c, bench.backend, bench.device, 0, 1);
        s.node.kernel = oc_find(&s, "");
        assert_int_equal(bench.backend->freeze(bench.device, &s.node, 1, s.rows, &segment), GW_OK);
        const char *kernel = segment->launches[segment->n - 1].kernel;
        if (strstr(kernel, "_pieces") == NULL) {
            fail_msg("%s: %s", c.why, kernel);
        }
        n++;
        bench.backend->segment_free(segment);
        oc_close(&s);
    }
    assert_true(n > 0 || !bench.device->driver->emulated);
    ot_close(&bench);
}

static void long_rows_come_in_pieces(void **state) {
    (void)state;
    check_pieces();
    setenv("GODWIT_HIP", "no-group", 1); /* with less memory */
    check_pieces();
    unsetenv("GODWIT_HIP");
}

/* The first nine rows alone have the bits that they have beside all others. */
static void check_few(const op_bench *bench, const op_case *c, const gw_kernel *kernel,
                      const op_result *all) {
    op_setup s;
    op_result few;
    oc_open(&s, c, bench->backend, bench->device, 0, 1);
    s.step.n = 9;
    s.out_bytes = all->out_bytes / (size_t)c->n * 9;
    oc_run(&s, kernel, &few);
    assert_memory_equal(few.out, all->out, s.out_bytes);
    oc_close(&s);
    oc_free_result(&few);
}

/* Float weights on 16-bit matrix units: near the definition, and a row's bits do not depend on how
 * many rows are beside it. */
static void check_half(const op_bench *bench, const op_case *c) {
    op_setup s;
    op_result want, got;
    ot_scalar(bench, c, &want);
    oc_open(&s, c, bench->backend, bench->device, 0, 1);
    const gw_kernel *kernel = oc_find(&s, ".half");
    assert_non_null(kernel);
    oc_run(&s, kernel, &got);
    float largest = 0.0f, error = 0.0f;
    for (size_t i = 0; i < want.out_bytes / sizeof(float); i++) {
        float a = ((const float *)(const void *)got.out)[i];
        float b = ((const float *)(const void *)want.out)[i];
        largest = fmaxf(largest, fabsf(b));
        error = fmaxf(error, fabsf(a - b));
        assert_true(a - a == 0.0f);
    }
    assert_true(error < largest * (c->fmt[0] == GW_FMT_BF16 ? 1.6e-2f : 2e-3f));
    assert_true(error > 0.0f); /* else this is not what it is taken for */
    oc_close(&s);
    check_few(bench, c, kernel, &got);
    oc_free_result(&want);
    oc_free_result(&got);
}

static void check_halves(void) {
    static const gw_fmt formats[] = {GW_FMT_F16, GW_FMT_BF16, GW_FMT_E4M3};
    static op_bench bench;
    ot_open(&bench, &gw_backend_hip, open_hip(0), OT_MAPPED);
    for (int i = 0; i < 8; i++) {
        gw_fmt fmt = formats[i % 3];
        op_case c = {.op = i < 3 || i >= 6 ? GW_OP_LINEAR : GW_OP_GLU,
                     .why = "16-bit products", .n = i < 6 ? 133 : 650,
                     .k = 200,
                     .m = {150, 20},
                     .fmt = {fmt, fmt},
                     .out = GW_FMT_F32, .order = GW_ORDER_PREFILL,
                     .bias = i < 3,
                     .residual = i >= 6};
        check_half(&bench, &c);
    }
    ot_close(&bench);
}

/* How far a head's value may be from the definition where attention runs on 16-bit matrix units: a
 * query's values are off by 2^-11 of them, so a score s by d = (2^-11 + (e + 2) cut u) sum |q k|
 * scale, and its weight, and all weights together, by 2 d of it; weights are rounded again, by
 * 2^-11 of them, or by 2^-25 where they are small (the largest is 1); a chain over n positions
 * loses n cut u, exp and the scaling of earlier sums a few u of every page. cut: matrix units cut
 * sums off instead of rounding. */
static double attention_bound(const op_setup *s, size_t i, size_t head) {
    const op_case *c = s->c;
    const double u = 0x1p-24, cut = 4.0;
    const gw_tensor *k = s->node.in[1], *v = s->node.in[2];
    const int32_t *pages = (const int32_t *)oc_host(s, s->node.in[3]);
    size_t e = (size_t)c->e, g = head / (size_t)(c->heads / c->kv_heads);
    const float *q = (const float *)oc_host(s, s->node.in[0]) + (i * (size_t)c->heads + head) * e;
    int first = oc_first_seen(c, &s->step, (int)i), last = oc_last_seen(c, &s->step, (int)i);
    double d = 0.0, top = 0.0, n = last - first + 1;
    for (int p = first; p <= last; p++) {
        int page = pages[s->step.slot[i] * s->node.in[3]->dim[1] + p / GW_PAGE];
        size_t base = ((size_t)page * (size_t)c->kv_heads + g) * GW_PAGE * e;
        double size = 0.0;
        for (size_t j = 0; j < e; j++) {
            size_t at = (size_t)(p % GW_PAGE);
            size += fabs(q[j] * oc_cached(c, oc_host(s, k), 1, base + j * GW_PAGE + at));
            top = fmax(top, fabs(oc_cached(c, oc_host(s, v), 0, base + at * e + j)));
        }
        d = fmax(d, size / sqrt((double)e));
    }
    d *= 0x1p-11 + ((double)e + 2.0) * cut * u;
    return 1.01 * top *
           (4.0 * d + 0x1p-11 + n * (2.0 * cut * u + 0x1p-25) + 8.0 * u * (n / GW_PAGE + 2.0));
}

/* Attention on 16-bit matrix units: near the definition, and a row's bits do not depend on how many
 * rows are beside it. */
static void check_half_attention(const op_bench *bench, const op_case *c) {
    op_setup s;
    op_result want, got;
    size_t e = (size_t)c->e, differing = 0;
    ot_scalar(bench, c, &want);
    oc_open(&s, c, bench->backend, bench->device, 0, 1);
    const gw_kernel *kernel = oc_find(&s, ".half");
    assert_non_null(kernel);
    oc_run(&s, kernel, &got);
    for (size_t i = 0; i < want.out_bytes / sizeof(float); i += e) {
        size_t row = i / e / (size_t)c->heads, head = i / e % (size_t)c->heads;
        double bound = attention_bound(&s, row, head);
        for (size_t j = i; j < i + e; j++) {
            double a = ((const float *)(const void *)got.out)[j];
            double b = ((const float *)(const void *)want.out)[j];
            differing += a != b;
            if (!(fabs(a - b) <= bound)) { /* written so that NaN fails */
                fail_msg("%s: row %zu head %zu value %zu: %.9g, not %.9g within %.3g", c->why, row,
                         head, j - i, a, b, bound);
            }
        }
    }
    assert_true(differing > 0); /* else this is not what it is taken for */
    oc_close(&s);
    check_few(bench, c, kernel, &got);
    oc_free_result(&want);
    oc_free_result(&got);
}

static void half_attention_is_near(void **state) {
    /* clang-format off */
    static const op_case cases[] = {
        {.why = "from nothing", .n = 133, .heads = 4, .kv_heads = 4, .e = 128, .pos = 0, .slots = 1},
        {.why = "groups of four", .n = 70, .heads = 8, .kv_heads = 2, .e = 64, .pos = 170, .slots = 1},
        {.why = "threes, narrow", .n = 40, .heads = 6, .kv_heads = 2, .e = 48, .pos = 100, .slots = 1},
        {.why = "a window", .n = 90, .heads = 2, .kv_heads = 1, .e = 80, .window = 70, .pos = 150,
         .slots = 1},
        {.why = "rows of three sequences", .n = 30, .heads = 4, .kv_heads = 1, .e = 128, .pos = 60,
         .slots = 3},
        {.why = "few of many rows", .n = 20, .spare = 300, .heads = 2, .kv_heads = 2, .e = 64,
         .pos = 10, .slots = 1},
        {.why = "both ways, a window, two sequences", .n = 90, .heads = 4, .kv_heads = 2, .e = 32,
         .window = 30, .pos = 40, .slots = 2, .both = 1, .ahead = 25},
        {.why = "no more rows than decoding has", .n = 11, .heads = 4, .kv_heads = 2, .e = 64,
         .pos = 60, .slots = 1},
    };
    /* clang-format on */
    static op_bench bench;
    (void)state;
    ot_open(&bench, &gw_backend_hip, open_hip(0), OT_MAPPED);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        op_case c = cases[i];
        c.op = GW_OP_ATTENTION;
        c.order = GW_ORDER_PREFILL;
        c.kv = GW_FMT_F16;
        c.out = GW_FMT_F32;
        check_half_attention(&bench, &c);
    }
    ot_close(&bench);
}

static void halves_are_near(void **state) {
    (void)state;
    check_halves();
}

/* As on a card without matrix instructions of four waves. */
static void table_without_groups(void **state) {
    if (hide_groups()) {
        check_halves();
        check_table(state);
    }
    unsetenv("GODWIT_HIP");
}

/* ---- nodes without launches of their own ----------------------------------------------------- */

/* Nodes of which each reads the one before, a fourth one the second. together: rotation, the first
 * of two, is done by the attention behind it, or a norm, the second of three, by the products around
 * it, and its result is nowhere in memory. The first op wild: its first row has an infinity. */
enum { CHAIN_MOST = 4 };
typedef struct op_chain {
    op_case op[CHAIN_MOST];
    int n, together, large; /* large: needs more than 64 KB of shared memory for that */
    const char *kernel;     /* the beginning of the name of one that has to run, or NULL */
    int back; /* the second run is so far in front of the first, which is not together then */
} op_chain;

#define NORM_BETWEEN(rows, from, width, product, normed, next, to, ...)                            \
    .n = 3, .op = {{.op = GW_OP_LINEAR, .why = "in front", .n = rows, .k = from, .m = {width},     \
                    .fmt = {GW_FMT_##product}, OC_DEC, .residual = 1},                             \
                   {.op = GW_OP_NORM, .why = "a norm", .n = rows, .k = width,                      \
                    .out = GW_FMT_##normed},                                                       \
                   {.op = GW_OP_##next, .n = rows, .k = width, .out = GW_FMT_##to, OC_DEC,         \
                    __VA_ARGS__}}
#define ROPE_ROWS(reason, rows, turning, to, ...)                                                  \
    .n = 2, .op = {{.op = GW_OP_ROPE_KV, .why = reason, .n = rows, .rope_dim = turning,            \
                    __VA_ARGS__},                                                                  \
                   {.op = GW_OP_ATTENTION, .why = reason, .n = rows, .out = to, __VA_ARGS__}}
#define ROPE_WITH(reason, turning, to, ...)                                                        \
    ROPE_ROWS(reason, 1, turning, to, .slots = 1, __VA_ARGS__)
#define ROWS .together = 1, .kernel = "gw_attend_rows_"
#define Q4                                                                                         \
    { GW_FMT_Q4_0, GW_FMT_Q4_0, GW_FMT_Q4_0 }
/* clang-format off */
static const op_chain chains[] = {
    {NORM_BETWEEN(1, 64, 256, Q4_0, ACT8, LINEAR, F32, .why = "q, k and v", .m = {48, 17, 16},
                  .fmt = Q4, .bias = 1), .together = 1},
    {NORM_BETWEEN(1, 96, 4096 + 96, Q8_0, ACT8, LINEAR, F32, .why = "long row", .m = {33},
                  .fmt = OC_Q8), .together = 1},
    {NORM_BETWEEN(1, 32, 9312, Q4_0, ACT8, LINEAR, F32, .why = "more blocks than are asked for",
                  .m = {20}, .fmt = OC_Q8), .together = 1},
    {NORM_BETWEEN(1, 256, 1280, Q6_K, ACT8, LINEAR, F32, .why = "two launches", .m = {48, 40},
                  .fmt = {GW_FMT_Q4_K, GW_FMT_Q6_K}, .residual = 1), .together = 1},
    {NORM_BETWEEN(1, 64, 1056, Q4_0, ACT8, LINEAR, F32, .why = "part of a group", .m = {41},
                  .fmt = Q4), .together = 1},
    {NORM_BETWEEN(2, 64, 1024, Q4_0, ACT8, LINEAR, F32, .why = "two rows", .m = {40},
                  .fmt = OC_Q8), .together = 1},
    {NORM_BETWEEN(2, 64, 5120, Q4_0, ACT8, LINEAR, F32, .why = "two long rows", .m = {20},
                  .fmt = Q4), .together = 1},
    {NORM_BETWEEN(3, 160, 1056, Q8_0, ACT8, LINEAR, F32, .why = "three rows", .m = {48, 17, 16},
                  .fmt = Q4, .bias = 1), .together = 1},
    {NORM_BETWEEN(4, 64, 2304, Q4_0, ACT8, LINEAR, F32, .why = "four rows", .m = {41},
                  .fmt = {GW_FMT_Q4_K}, .residual = 1), .together = 1},
    {NORM_BETWEEN(4, 64, 288, Q4_0, ACT8, GLU, ACT8, .why = "four rows to act8", .m = {416},
                  .fmt = Q4), .together = 1},
    {NORM_BETWEEN(5, 64, 256, Q4_0, ACT8, LINEAR, F32, .why = "five rows", .m = {20}, .fmt = Q4),
     .together = 1},
    {NORM_BETWEEN(1, 64, 256, Q4_0, ACT8, LINEAR, F32, .why = "blocks of one scale", .m = {41},
                  .fmt = {GW_FMT_INT4_G128}), .together = 1},
    {NORM_BETWEEN(4, 64, 4224, Q4_0, ACT8, LINEAR, F32, .why = "four rows of one scale",
                  .m = {20, 17}, .fmt = {GW_FMT_INT4_G128, GW_FMT_Q4_0}), .together = 1},
    {NORM_BETWEEN(7, 64, 512, Q4_0, ACT8, GLU, ACT8, .why = "seven rows of one scale", .m = {96},
                  .fmt = {GW_FMT_INT4_G256, GW_FMT_INT4_G256}), .together = 1},
    {NORM_BETWEEN(12, 256, 320, Q4_K, ACT8, GLU, ACT8, .why = "twelve rows", .m = {96},
                  .fmt = {GW_FMT_Q5_0, GW_FMT_Q5_0}), .together = 1},
    {.n = 3, .op = {{.op = GW_OP_LINEAR, .why = "in front", .n = 5, .spare = 11, .k = 64,
                     .m = {288}, .fmt = Q4, OC_DEC, .residual = 1},
                    {.op = GW_OP_NORM, .why = "a norm", .n = 5, .spare = 11, .k = 288,
                     .out = GW_FMT_ACT8},
                    {.op = GW_OP_GLU, .why = "five of a plan's rows", .n = 5, .spare = 11,
                     .k = 288, .m = {96}, .fmt = Q4, .out = GW_FMT_ACT8, OC_DEC}}, .together = 1},
    {NORM_BETWEEN(8, 15360, 64, Q4_0, ACT8, LINEAR, F32, .why = "behind rows in pieces",
                  .m = {20}, .fmt = Q4), .together = 1},
    {NORM_BETWEEN(8, 32, 15360, Q4_0, ACT8, LINEAR, F32, .why = "to rows in pieces", .m = {33},
                  .fmt = Q4), .together = 1},
    {NORM_BETWEEN(1, 64, 288, Q4_0, ACT8, GLU, ACT8, .why = "to act8", .m = {416}, .fmt = Q4),
     .together = 1},
    {NORM_BETWEEN(1, 64, 256, Q4_0, ACT8, GLU, F32, .why = "formats differ", .m = {72},
                  .fmt = {GW_FMT_Q4_K, GW_FMT_Q6_K}), .together = 1},
    {NORM_BETWEEN(1, 75, 320, F16, F32, LINEAR, F32, .why = "floats", .m = {64, 17},
                  .fmt = OC_F16), .together = 1},
    {NORM_BETWEEN(1, 64, 160, F32, F32, LINEAR, F32, .why = "f32", .m = {19}, .fmt = OC_F32),
     .together = 1},
    {NORM_BETWEEN(1, 64, 9312, Q4_0, F32, LINEAR, F32, .why = "a long row of floats", .m = {19},
                  .fmt = OC_F16), .together = 1},
    {NORM_BETWEEN(7, 96, 160, BF16, F32, LINEAR, F32, .why = "seven rows of floats", .m = {19},
                  .fmt = OC_F32), .together = 1},
    {NORM_BETWEEN(1, 64, 2080, F16, F32, GLU, F32, .why = "floats", .m = {40}, .fmt = OC_BF16),
     .together = 1},
    {NORM_BETWEEN(1, 64, 96, F16, ACT8, LINEAR, F32, .why = "floats to blocks", .m = {37},
                  .fmt = OC_Q8), .together = 1},
    {.n = 3, .op = {{.op = GW_OP_LINEAR, .why = "in front", .n = 2, .k = 64, .m = {256}, .fmt = Q4,
                     OC_DEC, .residual = 1, .wild = 1},
                    {.op = GW_OP_NORM, .why = "a norm", .n = 2, .k = 256, .out = GW_FMT_ACT8},
                    {.op = GW_OP_LINEAR, .why = "a row that is not finite", .n = 2, .k = 256,
                     .m = {48}, .fmt = Q4, OC_DEC}}, .together = 1},
    {.n = 4, .op = {{.op = GW_OP_LINEAR, .why = "in front", .n = 2, .k = 64, .m = {256}, .fmt = Q4,
                     OC_DEC, .residual = 1},
                    {.op = GW_OP_NORM, .why = "a norm", .n = 2, .k = 256, .out = GW_FMT_ACT8},
                    {.op = GW_OP_LINEAR, .why = "read twice", .n = 2, .k = 256, .m = {48},
                     .fmt = Q4, OC_DEC},
                    {.op = GW_OP_LINEAR, .why = "read twice", .n = 2, .k = 256, .m = {16},
                     .fmt = Q4, OC_DEC}}, .together = 0},
    {NORM_BETWEEN(1, 64, 75, F16, F32, LINEAR, F32, .why = "odd width", .m = {37},
                  .fmt = OC_F16), .together = 0},

    {ROPE_WITH("first position", 64, GW_FMT_F32, .heads = 4, .kv_heads = 2, .e = 64,
               .kv = GW_FMT_F16, .pos = 0), .together = 1, .kernel = "gw_attend_block_"},
    {ROPE_WITH("to act8, a page begins", 128, GW_FMT_ACT8, .heads = 8, .kv_heads = 2, .e = 128,
               .kv = GW_FMT_F16, .pos = 192, .head_norm = 1), .together = 1},
    {ROPE_WITH("a page ends", 32, GW_FMT_F32, .heads = 2, .kv_heads = 2, .e = 80,
               .kv = GW_FMT_F32, .pos = 127, .interleaved = 1), .together = 1},
    {ROPE_WITH("eight whole pages", 64, GW_FMT_ACT8, .heads = 8, .kv_heads = 1,
               .e = 64, .kv = GW_FMT_F16, .pos = 64 * 8 - 1), .together = 1},
    {ROPE_WITH("a page more", 64, GW_FMT_ACT8, .heads = 8, .kv_heads = 1, .e = 64,
               .kv = GW_FMT_F16, .pos = 64 * 8), .together = 1},
    {ROPE_WITH("two tiles of heads, window", 16, GW_FMT_F32, .heads = 10, .kv_heads = 1, .e = 16,
               .kv = GW_FMT_F16, .pos = 300, .window = 100), .together = 1},
    {ROPE_WITH("two slices of values", 256, GW_FMT_ACT8, .heads = 2, .kv_heads = 1, .e = 256,
               .kv = GW_FMT_F16, .pos = 70), .together = 1},
    {ROPE_WITH("odd width", 12, GW_FMT_F32, .heads = 2, .kv_heads = 1, .e = 19, .kv = GW_FMT_F16,
               .pos = 5, .head_norm = 1), .together = 1},
    {ROPE_WITH("blocks over heads", 40, GW_FMT_ACT8, .heads = 6, .kv_heads = 3, .e = 80,
               .kv = GW_FMT_F16, .pos = 130), .together = 1},
    {ROPE_WITH("q8_0", 64, GW_FMT_ACT8, .heads = 4, .kv_heads = 2, .e = 96, .kv = GW_FMT_Q8_0,
               .pos = 100, .head_norm = 1), .together = 1},
    {ROPE_WITH("pages shared by blocks", 128, GW_FMT_ACT8, .heads = 8, .kv_heads = 2, .e = 128,
               .kv = GW_FMT_F16, .pos = 64 * 21 - 1, .head_norm = 1), .together = 1},
    {ROPE_WITH("pages shared by blocks, q8_0, large group", 64, GW_FMT_F32, .heads = 10,
               .kv_heads = 1, .e = 64, .kv = GW_FMT_Q8_0, .pos = 64 * 11), .together = 1},
    {ROPE_WITH("two pages, 128 wide", 128, GW_FMT_ACT8, .heads = 4, .kv_heads = 2, .e = 128,
               .kv = GW_FMT_F16, .pos = 103), .together = 1},
    {ROPE_WITH("two pages, q8_0, interleaved, head norms", 96, GW_FMT_ACT8, .heads = 2,
               .kv_heads = 2, .e = 128, .kv = GW_FMT_Q8_0, .pos = 127, .interleaved = 1,
               .head_norm = 1), .together = 1},
    {ROPE_WITH("a whole page, q8_0", 128, GW_FMT_F32, .heads = 2, .kv_heads = 1, .e = 128,
               .kv = GW_FMT_Q8_0, .pos = 63), .together = 1},
    {ROPE_WITH("two pages, f32, head norms", 64, GW_FMT_ACT8, .heads = 2, .kv_heads = 1, .e = 64,
               .kv = GW_FMT_F32, .pos = 70, .head_norm = 1), .together = 1},
    {ROPE_WITH("window from within a page", 64, GW_FMT_ACT8, .heads = 4, .kv_heads = 2, .e = 64,
               .kv = GW_FMT_F16, .pos = 150, .window = 70, .interleaved = 1), .together = 1},
    {ROPE_WITH("window within a page", 64, GW_FMT_F32, .heads = 2, .kv_heads = 2, .e = 96,
               .kv = GW_FMT_F16, .pos = 61, .window = 9), .together = 1},
    {ROPE_WITH("three pages", 64, GW_FMT_ACT8, .heads = 4, .kv_heads = 1, .e = 64,
               .kv = GW_FMT_F16, .pos = 180), .together = 1},
    {ROPE_WITH("pages in rounds, q8_0", 64, GW_FMT_ACT8, .heads = 2, .kv_heads = 1, .e = 64,
               .kv = GW_FMT_Q8_0, .pos = 64 * 9 + 21), .together = 1},
    {ROPE_WITH("256 wide, head norms", 256, GW_FMT_ACT8, .heads = 2, .kv_heads = 1, .e = 256,
               .kv = GW_FMT_F16, .pos = 126, .head_norm = 1), .together = 1},
    {ROPE_WITH("narrow", 4, GW_FMT_F32, .heads = 2, .kv_heads = 1, .e = 12, .kv = GW_FMT_F16,
               .pos = 80), .together = 1},
    {ROPE_ROWS("two rows, a page begins", 2, 128, GW_FMT_ACT8, .heads = 4, .kv_heads = 1, .e = 128,
               .kv = GW_FMT_F16, .pos = 63, .head_norm = 1, .slots = 1), ROWS},
    {ROPE_ROWS("two rows from nothing", 2, 128, GW_FMT_ACT8, .heads = 4, .kv_heads = 4, .e = 128,
               .kv = GW_FMT_F16, .pos = 0, .slots = 1), ROWS},
    {ROPE_ROWS("four rows of a page", 4, 64, GW_FMT_F32, .heads = 8, .kv_heads = 2, .e = 64,
               .kv = GW_FMT_F16, .pos = 33, .interleaved = 1, .head_norm = 1, .slots = 1), ROWS},
    {ROPE_ROWS("four rows, part of a head turns", 4, 32, GW_FMT_ACT8, .heads = 4, .kv_heads = 2,
               .e = 96, .kv = GW_FMT_Q8_0, .pos = 62, .slots = 1), ROWS},
    {ROPE_ROWS("five rows, f32, pages in rounds", 5, 256, GW_FMT_ACT8, .heads = 4, .kv_heads = 2,
               .e = 256, .kv = GW_FMT_F32, .pos = 126, .head_norm = 1, .slots = 1), ROWS,
     .large = 1},
    {ROPE_ROWS("eight rows of a block over a page border", 8, 128, GW_FMT_ACT8, .heads = 12,
               .kv_heads = 12, .e = 128, .kv = GW_FMT_F16, .pos = 60, .slots = 1), ROWS},
    {ROPE_ROWS("eight rows over a page border", 8, 64, GW_FMT_ACT8, .heads = 6, .kv_heads = 2,
               .e = 96, .kv = GW_FMT_Q8_0, .pos = 124, .slots = 1), ROWS},
    {ROPE_ROWS("seven rows over some pages, q8_0", 7, 64, GW_FMT_ACT8, .heads = 16, .kv_heads = 2,
               .e = 64, .kv = GW_FMT_Q8_0, .pos = 444, .head_norm = 1, .slots = 1), ROWS},
    {ROPE_ROWS("six rows over ten pages", 6, 64, GW_FMT_ACT8, .heads = 4, .kv_heads = 1, .e = 64,
               .kv = GW_FMT_F16, .pos = 600, .slots = 1), ROWS},
    {ROPE_ROWS("rows of three sequences", 7, 32, GW_FMT_F32, .heads = 4, .kv_heads = 2, .e = 36,
               .kv = GW_FMT_F32, .pos = 130, .interleaved = 1, .slots = 3), ROWS},
    {ROPE_ROWS("rows of eight sequences, a page begins", 8, 64, GW_FMT_ACT8, .heads = 8,
               .kv_heads = 2, .e = 64, .kv = GW_FMT_F16, .pos = 60, .head_norm = 1, .slots = 8),
     ROWS},
    {ROPE_ROWS("rows of two sequences, q8_0", 8, 128, GW_FMT_ACT8, .heads = 16, .kv_heads = 4,
               .e = 128, .kv = GW_FMT_Q8_0, .pos = 122, .slots = 2), ROWS},
    {ROPE_ROWS("twelve rows, window", 12, 64, GW_FMT_ACT8, .heads = 3, .kv_heads = 1, .e = 64,
               .kv = GW_FMT_F16, .pos = 180, .window = 100, .slots = 1), ROWS},
    {ROPE_ROWS("eight rows, a window that has but some of them", 8, 64, GW_FMT_F32, .heads = 16,
               .kv_heads = 4, .e = 64, .kv = GW_FMT_F16, .pos = 125, .window = 3, .slots = 1),
     ROWS},
    {ROPE_ROWS("rows of three sequences, q8_0, window", 8, 96, GW_FMT_F32, .heads = 16,
               .kv_heads = 2, .e = 96, .kv = GW_FMT_Q8_0, .pos = 250, .window = 61, .slots = 3),
     ROWS},
    {ROPE_ROWS("rows, more pages than one block takes", 5, 64, GW_FMT_ACT8, .heads = 2,
               .kv_heads = 1, .e = 64, .kv = GW_FMT_F16, .pos = 64 * 17, .slots = 1),
     .kernel = "gw_attend_join_pages_"},
    {ROPE_ROWS("two rows, blocks share pages", 2, 64, GW_FMT_ACT8, .heads = 2, .kv_heads = 2,
               .e = 64, .kv = GW_FMT_F16, .pos = 64 * 17, .slots = 1),
     .kernel = "gw_attend_split_"},
    {ROPE_ROWS("many pages, then few", 4, 64, GW_FMT_ACT8, .heads = 4, .kv_heads = 2, .e = 64,
               .kv = GW_FMT_F16, .pos = 64 * 17 + 62, .slots = 1), ROWS, .back = 64 * 16},
    {ROPE_ROWS("few of the rows of a plan", 3, 64, GW_FMT_F32, .heads = 6, .kv_heads = 3, .e = 64,
               .kv = GW_FMT_Q8_0, .pos = 61, .spare = 6, .head_norm = 1, .slots = 1), ROWS},
    {ROPE_ROWS("rows shared out evenly", 5, 128, GW_FMT_ACT8, .heads = 12, .kv_heads = 12,
               .e = 128, .kv = GW_FMT_F16, .pos = 62, .spare = 3, .slots = 1), ROWS},
    {ROPE_ROWS("rows of two sequences, fewer than blocks", 2, 64, GW_FMT_ACT8, .heads = 4,
               .kv_heads = 2, .e = 64, .kv = GW_FMT_F32, .pos = 70, .spare = 10, .slots = 2), ROWS},
    {ROPE_ROWS("rows of an odd width", 3, 12, GW_FMT_F32, .heads = 2, .kv_heads = 1, .e = 19,
               .kv = GW_FMT_F16, .pos = 5, .slots = 1), .together = 0},
    {ROPE_WITH("six pages, 128 wide", 128, GW_FMT_ACT8, .heads = 4, .kv_heads = 1, .e = 128,
               .kv = GW_FMT_F16, .pos = 64 * 5 + 20), .together = 1},
    {ROPE_WITH("a page ends, 64 wide, q8_0", 64, GW_FMT_F32, .heads = 8, .kv_heads = 1, .e = 64,
               .kv = GW_FMT_Q8_0, .pos = 64 * 7 - 1), .together = 1},
    {ROPE_WITH("q8_0, large heads", 512, GW_FMT_F32, .heads = 2, .kv_heads = 1, .e = 512,
               .kv = GW_FMT_Q8_0, .pos = 64), .together = 1},
};
/* clang-format on */
#undef ROWS
#undef Q4

enum { CHAIN_KEEPS = CHAIN_MOST + 2 }; /* outputs, K, V */

typedef struct chain_result {
    unsigned char *bytes[2 * CHAIN_KEEPS]; /* the same of a second run behind them */
    size_t n[2 * CHAIN_KEEPS];
    int together, with_weights; /* the last one's rows come with its weights: without a factor */
} chain_result;

/* The whole output, with the fences and the rows that are not live. */
static void keep(chain_result *r, int i, const op_setup *s, const gw_tensor *t, size_t more) {
    r->n[i] = oc_tensor_bytes(t) + more;
    r->bytes[i] = oc_download(s, t, 0, r->n[i]);
}

static void run_chain(const op_chain *chain, const gw_backend *backend, struct gw_device *device,
                      int rows_kept, chain_result *r) {
    op_setup s[CHAIN_MOST];
    gw_node nodes[CHAIN_MOST];
    gw_node_time times[CHAIN_MOST] = {{0}};
    struct gw_segment *segment;
    const int n = chain->n, lost = n == 2 ? 0 : 1;
    int form[CHAIN_MOST];
    op_setup *last = &s[n - 1];
    memset(r, 0, sizeof *r);
    for (int k = 0; k < n; k++) {
        oc_open(&s[k], &chain->op[k], backend, device, rows_kept, !rows_kept);
    }
    if (chain->op[0].wild) {
        static const float infinity = INFINITY;
        const gw_tensor *residual = s[0].node.in[1];
        assert_int_equal(backend->write(residual->buf, residual->offset, &infinity, sizeof infinity),
                         GW_OK);
    }
    for (int k = 0; k < n; k++) {
        for (int i = 1; i < GW_MAX_IN && s[k].node.op == GW_OP_ROPE_KV; i++) {
            s[k].node.in[i] = last->node.in[i]; /* the caches that have something in them */
        }
        if (k > 0) {
            s[k].node.in[0] = nodes[k == 3 ? 1 : k - 1].out;
        }
        nodes[k] = s[k].node;
        nodes[k].kernel = oc_find(&s[k], rows_kept ? ".scalar" : "");
        assert_non_null(nodes[k].kernel);
    }
    assert_int_equal(
        backend->freeze(device, nodes, (size_t)n, chain->op[0].n + chain->op[0].spare, &segment),
        GW_OK);
    find_forms(backend, segment, nodes, (size_t)n, form);
    r->with_weights = backend == &gw_backend_hip && device->warp == 32 &&
                      strstr(segment->launches[segment->n - 1].kernel, "_pieces") != NULL;
    for (int i = 0; i < 2; i++) { /* the second time finds what the first one left behind */
        for (int row = 0; row < last->step.n && i == 1; row++) {
            last->step.pos[row] -= chain->back;
        }
        last->step.pos_max -= i * chain->back;
        backend->profile(segment, i == 1 ? times : NULL);
        assert_int_equal(backend->run(segment, &last->step), GW_OK);
        assert_int_equal(backend->wait(device), GW_OK);
        for (int k = 0; k < n; k++) {
            keep(r, CHAIN_KEEPS * i + k, &s[k], s[k].node.out, 2 * OC_FENCE);
            make_plain(s[k].node.out, form[k], r->bytes[CHAIN_KEEPS * i + k]);
        }
        if (s[0].node.op == GW_OP_ROPE_KV) {
            keep(r, CHAIN_KEEPS * i + CHAIN_MOST, last, last->node.in[1], 0);
            keep(r, CHAIN_KEEPS * i + CHAIN_MOST + 1, last, last->node.in[2], 0);
        }
    }
    backend->segment_free(segment);
    r->together = times[lost].calls == 0 && times[lost + 1].calls == 1;
    for (int k = 0; k < n; k++) {
        oc_close(&s[k]);
    }
}

/* blocks: attention of few pages has blocks of its own, without which it does not rotate several
 * rows. */
static void check_chains(int blocks) {
    static op_bench bench;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        static const char *const what[] = {"first outputs",  "second outputs", "third outputs",
                                           "fourth outputs", "K caches",       "V caches"};
        const op_case *c = &chains[i].op[chains[i].n - 1];
        const int emulated = bench.device->driver->emulated;
        const int room = !chains[i].large || bench.device->shared_bytes > 64 << 10;
        const char *kernel = blocks && room ? chains[i].kernel : NULL;
        size_t turned = emulated ? emulator_ran("gw_rope_kv_") : 0;
        size_t ran = emulated && kernel != NULL ? emulator_ran(kernel) : 0;
        chain_result want, got;
        run_chain(&chains[i], &gw_backend_cpu, bench.scalar, 1, &want);
        run_chain(&chains[i], &gw_backend_hip, bench.device, 0, &got);
        const int together = chains[i].together && !got.with_weights &&
                             ((blocks && room) || chains[i].n > 2 || c->n == 1);
        if (emulated && chains[i].n == 2) { /* with a graph, and launch by launch */
            turned = emulator_ran("gw_rope_kv_") - turned;
            if (turned != (!together ? 2 : chains[i].back > 0 ? 1 : 0)) {
                fail_msg("%s: %zu launches of rotation", c->why, turned);
            }
        }
        if (emulated && kernel != NULL && emulator_ran(kernel) - ran < (chains[i].back ? 1 : 2)) {
            fail_msg("%s: no launches of %s", c->why, kernel);
        }
        if (got.together != together) {
            fail_msg("%s (%s): %s", gw_op_describe(c->op)->name, c->why,
                     got.together ? "together" : "apart");
        }
        for (int k = 0; k < 2 * CHAIN_KEEPS; k++) {
            const int nowhere = together && chains[i].n == 3 && k % CHAIN_KEEPS == 1;
            assert_int_equal(got.n[k], want.n[k]);
            for (int side = 0; side < 2 && want.n[k] > 0 && chains[i].op[0].wild; side++) {
                oc_one_nan((side ? got : want).bytes[k], want.n[k], GW_FMT_F32);
            }
            if (k == 2 && chains[i].op[0].wild) { /* of the first row, and of it alone */
                const float *rows = (const float *)(const void *)(want.bytes[k] + OC_FENCE);
                assert_true(isnan(rows[0]) && isfinite(rows[c->m[0]]));
            }
            if (want.n[k] > 0 && !nowhere) {
                oc_same_bytes("a chain", c, what[k % CHAIN_KEEPS], got.bytes[k], want.bytes[k],
                              want.n[k]);
            }
            free(got.bytes[k]);
            free(want.bytes[k]);
        }
    }
    ot_close(&bench);
}

static void chains_need_fewer_launches(void **state) {
    (void)state;
    check_chains(1);
}

/* Launch by launch; and with attention of few pages as of many. */
static void chains_in_other_ways(void **state) {
    (void)state;
    setenv("GODWIT_HIP", "no-graph", 1);
    check_chains(1);
    setenv("GODWIT_HIP", "no-block", 1);
    check_chains(0);
    unsetenv("GODWIT_HIP");
}

static void check_attention(const char *settings) {
    static op_bench bench;
    int n = 0;
    setenv("GODWIT_HIP", settings, 1);
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    for (int i = 0; i < EVERY; i++) {
        op_case c = case_of(i);
        if (c.op == GW_OP_ATTENTION && c.order == GW_ORDER_DECODE && c.n <= GW_DECODE_MAX) {
            ot_check_case(&bench, &c);
            n++;
        }
    }
    assert_true(n > 4);
    ot_close(&bench);
    unsetenv("GODWIT_HIP");
}

static void attention_by_pages_and_groups(void **state) {
    (void)state;
    check_attention("no-block");
    check_attention("no-block,no-pages");
}

/* That kernel, with two rows at the end of so many pages; has: it has to run on a large card. */
static void check_kernel(op_bench *b, const char *kernel, op_case c, int pages, int has) {
    const int counts = has && b->device->driver->emulated && b->device->shared_bytes > 64 << 10;
    const size_t before = counts ? emulator_ran(kernel) : 0;
    c.op = GW_OP_ATTENTION;
    c.why = kernel;
    c.n = 2;
    c.kv_heads = c.slots = 1;
    c.pos = 64 * pages - 1;
    ot_check_case(b, &c);
    if (counts && emulator_ran(kernel) == before) {
        fail_msg("no launch of %s", kernel);
    }
}

/* Each kernel of groups (four heads of 128 in q8_0 have no room), then of few pages. */
static void every_kernel_of_pages(void **state) {
    static const gw_fmt caches[] = {GW_FMT_F16, GW_FMT_F32, GW_FMT_Q8_0};
    static op_bench bench;
    char name[64];
    (void)state;
    setenv("GODWIT_HIP", "no-block,no-pages", 1);
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    for (int i = 0; i < 18; i++) {
        const op_case c = {.heads = 1 << i / 2 % 3, .e = i % 2 ? 128 : 64, .kv = caches[i / 6]};
        snprintf(name, sizeof name, "gw_attend_group_%s_h%d_e%d", gw_format_of(c.kv)->name, c.heads,
                 c.e);
        check_kernel(&bench, name, c, i == 2 ? 16 * 66 : 17,
                     c.kv != GW_FMT_Q8_0 || c.heads < 4 || c.e < 128);
    }
    ot_close(&bench);
    setenv("GODWIT_HIP", "no-block", 1);
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    for (int i = 0; i < 16; i++) {
        const op_case c = {.heads = 1 << i / 4, .e = i % 2 ? 128 : 64, .kv = caches[i / 2 % 2 * 2]};
        snprintf(name, sizeof name, "gw_attend_%s_h%d_whole%d", gw_format_of(c.kv)->name, c.heads,
                 c.e);
        check_kernel(&bench, name, c, 11, 1);
        snprintf(name, sizeof name, "gw_attend_f16_h%d_deep128", c.heads);
        check_kernel(&bench, name, c, 21, c.kv == GW_FMT_F16 && c.e == 128);
    }
    ot_close(&bench);
    unsetenv("GODWIT_HIP");
}

/* Which kernel attention gets depends on the shape and on the device; that the cases meant for each
 * reach it on the emulator is part of what the table promises. */
static void attention_has_the_kernel_its_case_is_of(void **state) {
    static const struct {
        const char *why, *kernel;
        int large; /* not where blocks have but 64 KB */
    } ways[] = {{"one page, to act8", "gw_attend_rows_", 0},
                {"rows together", "gw_attend_rows_", 0},
                {"pages shared by blocks", "gw_attend_split_", 0},
                {"more pages than blocks share", "gw_attend_join_pages_", 0},
                {"few pages", "gw_attend_q8_0_h1_whole64", 1},
                {"groups of pages", "gw_attend_group_", 1}};
    static op_bench bench;
    enum { WAYS = sizeof ways / sizeof ways[0] };
    int seen[WAYS] = {0};
    (void)state;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    const int room = bench.device->shared_bytes > 64 << 10;
    for (int i = 0; i < OC_TOTAL && bench.device->driver->emulated; i++) {
        op_case c = case_of(i);
        for (int way = 0; c.op == GW_OP_ATTENTION && way < WAYS; way++) {
            if (strncmp(c.why, ways[way].why, strlen(ways[way].why)) == 0) {
                size_t before = emulator_ran(ways[way].kernel);
                ot_check_case(&bench, &c);
                if (emulator_ran(ways[way].kernel) == before && (room || !ways[way].large)) {
                    fail_msg("%s: no launch of %s", c.why, ways[way].kernel);
                }
                seen[way]++;
            }
        }
    }
    for (int way = 0; way < WAYS && bench.device->driver->emulated; way++) {
        assert_true(seen[way] > 0);
    }
    ot_close(&bench);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* A block has several tiles of gate and up one after the other, also on a large card: the waves
 * that join them change. */
static void a_layer_of_several_rows(void **state) {
    static op_bench bench;
    (void)state;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    for (int spans = 0; spans < 2; spans++) { /* blocks get one scale where they are read, too */
        long_fmt = spans ? GW_FMT_INT4_G128 : GW_FMT_Q4_0;
        for (int rows = 2 - spans; rows <= 16; rows *= 2) {
            same_layer(&bench, rows, NULL);
        }
    }
    long_fmt = GW_FMT_Q4_0;
    ot_close(&bench);
}

static void a_layer_asks_ahead(void **state) {
    static op_bench bench;
    (void)state;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    for (int rows = 1; rows <= 16; rows *= 2) {
        check_ahead(&bench, rows);
    }
    ot_close(&bench);
    setenv("GODWIT_HIP", "no-group", 1); /* with less memory */
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    unsetenv("GODWIT_HIP");
    check_pieces_ahead(&bench);
    ot_close(&bench);
}

/* ---- rows in groups -------------------------------------------------------------------------- */

/* Rows that came plain are put into groups once for all that read them, until a node writes them. */
static void rows_are_grouped_once(void **state) {
    static op_bench bench;
    unsigned char *want[READERS], *got[READERS];
    size_t bytes[READERS];
    int grouped = 0;
    (void)state;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    run_readers(&gw_backend_cpu, bench.scalar, 1, want, bytes, NULL);
    run_readers(&gw_backend_hip, bench.device, 0, got, bytes, &grouped);
    assert_int_equal(grouped, bench.device->warp == 32 ? 2 : 0);
    for (int k = 0; k < READERS; k++) {
        if (k != READERS_WRITES) {
            assert_memory_equal(got[k], want[k], bytes[k]);
        }
    }
    assert_memory_equal(want[0], want[1], bytes[0]); /* the same rows, then others */
    assert_memory_not_equal(want[0], want[READERS - 1], bytes[0]);
    for (int k = 0; k < READERS; k++) {
        free(want[k]);
        free(got[k]);
    }
    ot_close(&bench);
}

static void matrices_of_a_radeon(void **state) {
    (void)state;
    check_matrices(&gw_backend_hip, open_hip(1), case_of, EVERY);
}

/* ---- one process per driver: it is opened once ----------------------------------------------- */

static int run_all(const char *name) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_table),
        cmocka_unit_test(halves_are_near),
        cmocka_unit_test(half_attention_is_near),
        cmocka_unit_test(table_has_forms_of_rows),
        cmocka_unit_test(table_has_wide_tiles),
        cmocka_unit_test(states_of_long_plans),
        cmocka_unit_test(long_rows_come_in_pieces),
        cmocka_unit_test(table_without_groups),
        cmocka_unit_test(chains_need_fewer_launches),
        cmocka_unit_test(chains_in_other_ways),
        cmocka_unit_test(attention_by_pages_and_groups),
        cmocka_unit_test(every_kernel_of_pages),
        cmocka_unit_test(attention_has_the_kernel_its_case_is_of),
        cmocka_unit_test(a_layer_of_several_rows),
        cmocka_unit_test(blocks_stand_alone_or_share),
        cmocka_unit_test(a_layer_asks_ahead),
        cmocka_unit_test(rows_are_grouped_once),
        cmocka_unit_test(experts_are_their_products),
        cmocka_unit_test(many_rows_of_experts),
        cmocka_unit_test(step_is_there_first),
    };
    const struct CMUnitTest radeon[] = { /* the rest is what the other two have */
        cmocka_unit_test(matrices_of_a_radeon), cmocka_unit_test(halves_are_near),
        cmocka_unit_test(half_attention_is_near), cmocka_unit_test(experts_are_their_products),
        cmocka_unit_test(many_rows_of_experts)};
    cmocka_set_test_filter(getenv("GODWIT_TEST")); /* a pattern: one test alone */
    if (strstr(name, "radeon") != NULL) {
        return cmocka_run_group_tests_name(name, radeon, NULL, NULL);
    }
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

static int run_in_child(const char *driver, const char *order) {
    int status = 1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv("GODWIT_HIP_DRIVER", driver, 1);
        setenv("GODWIT_EMULATOR_ORDER", order, 1);
        _exit(run_all(strrchr(driver, '/') + 1));
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : 1;
}

int main(void) {
    const char *driver = getenv("GODWIT_HIP_DRIVER");
    if (driver != NULL) {
        if (strcmp(driver, "system") == 0) {
            unsetenv("GODWIT_HIP_DRIVER");
        }
        return run_all(driver);
    }
    int failed = run_in_child(GODWIT_EMULATORS "libgodwit_emu32.so", "forward");
    failed |= run_in_child(GODWIT_EMULATORS "libgodwit_emu32.so", "reverse");
    failed |= run_in_child(GODWIT_EMULATORS "libgodwit_emu64.so", "reverse");
    if (getenv("GODWIT_HIP_KINDS") == NULL) { /* the order that the other width has been through */
        failed |= run_in_child(GODWIT_EMULATORS "libgodwit_emu64.so", "forward");
    }
    failed |= run_in_child(GODWIT_EMULATORS "libgodwit_emuradeon.so", "reverse");
    return failed != 0;
}
