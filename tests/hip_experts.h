/* tests/hip_experts.h - experts on a device of the hip backend: their numbers are those of a linear
 * layer with the rows of all experts, put together here by the definition. */
#ifndef GODWIT_TESTS_HIP_EXPERTS_H
#define GODWIT_TESTS_HIP_EXPERTS_H

#include "core/tensor/act.h"
#include "hip_cut.h"
#include "op_table.h"

typedef struct experts_case {
    gw_op op;
    gw_fmt fmt, out;
    gw_order order;
    int n, experts, used, k, m, bias, gate_input, alone; /* alone: no gate, only w0 */
    gw_act_kind kind;
    float limit, alpha;
    int skewed; /* the first expert is chosen by all rows, the last one by one of them */
} experts_case;

/* Different experts of each row, in increasing order, and their gates. */
static void make_route(float *route, const experts_case *c) {
    for (int r = 0; r < c->n; r++, route += 2 * c->used) {
        int expert = 0, left = c->experts - c->used;
        for (int k = 0; k < c->used; k++) {
            int skip = (r * 7 + k * 3) % 4;
            skip = !c->skewed ? skip : r == c->n - 1 && k > 0 ? left : k == 1 ? r % (left - 1) : 0;
            skip = skip < left ? skip : left;
            left -= skip;
            expert += skip;
            route[k] = (float)expert++;
            route[c->used + k] = 0.1f + random_float(1.0f) * 0.05f;
        }
    }
}

/* Products of row `entry`'s expert, number i of part `part`. */
static float product_of(const experts_case *c, const float *all, int entry, int expert, int part,
                        int i) {
    int parts = c->op == GW_OP_EXPERTS_GLU && !c->alone ? 2 : 1;
    int row = c->op == GW_OP_EXPERTS_GLU ? entry / c->used : entry;
    return all[((size_t)row * (size_t)parts + (size_t)part) * (size_t)(c->experts * c->m) +
               (size_t)(expert * c->m + i)];
}

static float glu_of(const experts_case *c, const float *all, const float *route, int entry, int i) {
    const float *mine = route + (size_t)(entry / c->used) * 2 * (size_t)c->used;
    int expert = (int)mine[entry % c->used];
    float gate = c->gate_input ? mine[c->used + entry % c->used] : 1.0f;
    float g = product_of(c, all, entry, expert, 0, i) * gate;
    float v = gw_act_gate(c->kind, g, c->limit, c->alpha, 0.0f, 0.0f);
    return c->alone ? v
                    : v * gw_act_factor(c->kind, product_of(c, all, entry, expert, 1, i) * gate,
                                        c->limit);
}

static void want_glu(const experts_case *c, const float *all, const float *route, void *out) {
    int entries = c->n * c->used;
    for (int e = 0; e < entries; e++) {
        for (int i = 0; i < c->m; i++) {
            float block[GW_ACT_BLOCK];
            size_t at = (size_t)e * (size_t)c->m + (size_t)i;
            if (c->out == GW_FMT_F32) {
                ((float *)out)[at] = glu_of(c, all, route, e, i);
            } else if (i % GW_ACT_BLOCK == 0) {
                for (int j = 0; j < GW_ACT_BLOCK; j++) {
                    block[j] = glu_of(c, all, route, e, i + j);
                }
                gw_act8_encode((gw_act8 *)out + at / GW_ACT_BLOCK, block);
            }
        }
    }
}

static void want_down(const experts_case *c, const float *all, const float *route,
                      const float *addend, float *out) {
    for (int r = 0; r < c->n; r++, route += 2 * c->used) {
        for (int i = 0; i < c->m; i++) {
            float acc = 0.0f;
            for (int k = 0; k < c->used; k++) {
                float gate = c->gate_input ? 1.0f : route[c->used + k];
                acc = fmaf(gate, product_of(c, all, r * c->used + k, (int)route[k], 0, i), acc);
            }
            *out++ = addend[r * c->m + i] + acc;
        }
    }
}

static void run_experts(op_setup *s, const experts_case *c, gw_node *node) {
    struct gw_segment *segment;
    gw_step step = s->step;
    step.n = step.n_pick = c->n;
    size_t n_kernels;
    const gw_kernel *kernels = s->backend->kernels(s->device, &n_kernels);
    node->kernel = gw_kernel_first(kernels, n_kernels, node, s->device);
    assert_non_null(node->kernel);
    if (gw_op_describe(node->op)->check(node) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    if (s->backend->freeze(s->device, node, 1, (int)node->out->dim[0], &segment) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    for (int i = 0; i < 2; i++) { /* counters are left as they were found */
        if (s->backend->run(segment, &step) != GW_OK || s->backend->wait(s->device) != GW_OK) {
            fail_msg("%s", gw_error_text());
        }
    }
    s->backend->segment_free(segment);
}

static void check_experts(const op_bench *bench, const experts_case *c) {
    int glu = c->op == GW_OP_EXPERTS_GLU, rows = c->experts * c->m;
    op_case all = {.op = GW_OP_LINEAR,
                   .why = gw_format_of(c->fmt)->name,
                   .k = c->k,
                   .n = glu ? c->n : c->n * c->used,
                   .m = {rows, glu && !c->alone ? rows : 0},
                   .fmt = {c->fmt, c->fmt},
                   .order = c->order,
                   .bias = c->bias};
    op_setup s;
    op_result sums;
    oc_open(&s, &all, bench->backend, bench->device, 0, 1);
    oc_run(&s, oc_find(&s, ""), &sums);
    gw_tensor x = *s.node.in[0], *route = oc_matrix(&s, "route", GW_FMT_F32, c->n, 2 * c->used);
    gw_tensor *addend = oc_matrix(&s, "addend", GW_FMT_F32, c->n, c->m);
    gw_tensor *out =
        oc_matrix(&s, "out", glu ? c->out : GW_FMT_F32, c->n, glu ? c->used * c->m : c->m);
    x.dim[0] = c->n;
    x.dim[1] = glu ? c->k : c->used * c->k;
    make_route(oc_host(&s, route), c);
    oc_fill_floats(&s, addend, 1.0f);
    memset(oc_host(&s, out), 0xff, oc_tensor_bytes(out));
    oc_upload(&s, route);
    oc_upload(&s, addend);
    oc_upload(&s, out);
    gw_node node = {.op = c->op,
                    .in = {&x, route, glu ? NULL : addend},
                    .out = out,
                    .w = {s.node.w[0]},
                    .what = all.why,
                    .args.experts = {.experts = c->experts,
                                     .used = c->used,
                                     .act = {.kind = c->kind, .limit = c->limit, .alpha = c->alpha},
                                     .gate_input = c->gate_input,
                                     .order = c->order}};
    if (glu) {
        node.w[1] = s.node.w[1];
        node.w[2] = s.node.w[3];
        node.w[3] = s.node.w[4];
    } else {
        node.w[1] = s.node.w[3];
    }
    run_experts(&s, c, &node);
    size_t bytes = oc_tensor_bytes(out);
    void *want = oc_alloc(bytes);
    unsigned char *got = oc_download(&s, out, 0, bytes);
    if (glu) {
        want_glu(c, (const float *)(const void *)sums.out, oc_host(&s, route), want);
    } else {
        want_down(c, (const float *)(const void *)sums.out, oc_host(&s, route), oc_host(&s, addend),
                  want);
    }
    oc_same_bytes(node.kernel->name, &all, c->order == GW_ORDER_DECODE ? "decode" : "prefill", got,
                  want, bytes);
    free(want);
    free(got);
    oc_free_result(&sums);
    oc_close(&s);
}

/* Each format in both orders, whole strips and odd widths, several rows that share experts. */
static void experts_of_format(const op_bench *bench, gw_fmt fmt) {
    int k = gw_format_of(fmt)->block_elems > 32 ? 512 : 288;
    experts_case c = {.op = GW_OP_EXPERTS_GLU,
                      .fmt = fmt,
                      .out = GW_FMT_ACT8,
                      .n = 1,
                      .experts = 5,
                      .used = 3,
                      .k = k,
                      .m = 64,
                      .order = GW_ORDER_DECODE,
                      .kind = GW_ACT_SILU};
    check_experts(bench, &c);
    c.op = GW_OP_EXPERTS_DOWN;
    c.m = 48;
    c.bias = 1;
    check_experts(bench, &c);
    c.m = 21; /* no whole strips */
    c.n = 2;
    check_experts(bench, &c);
    c.order = GW_ORDER_PREFILL;
    check_experts(bench, &c);
    c.m = 80;
    c.n = 70;
    check_experts(bench, &c);
    c.order =
        GW_ORDER_DECODE; /* more than a tile for one expert, whole strips but no whole block */
    c.m = 48;
    c.n = 18;
    c.skewed = 1;
    check_experts(bench, &c);
    c.op = GW_OP_EXPERTS_GLU;
    c.m = 64;
    check_experts(bench, &c);
}

/* Many rows in the order of decode: as many as plans have, each way to share experts, records of
 * all classes of lanes and of some, with and without what an expert may have. */
static void many_rows_of_experts(void **state) {
    static const struct {
        int n, experts, used, skewed, k;
    } of[] = {{5, 9, 3, 0, 1312}, {8, 3, 3, 0, 512},   {16, 40, 2, 1, 1312}, {17, 17, 1, 0, 96},
              {32, 6, 4, 1, 512}, {64, 64, 2, 0, 288}, {128, 8, 2, 1, 160},  {256, 12, 2, 0, 160}};
    static op_bench bench;
    (void)state;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        experts_case c = {.op = GW_OP_EXPERTS_GLU,
                          .fmt = i % 2 == 0 ? GW_FMT_MXFP4 : GW_FMT_Q8_0,
                          .out = i % 3 == 0 ? GW_FMT_F32 : GW_FMT_ACT8,
                          .n = of[i].n,
                          .experts = of[i].experts,
                          .used = of[i].used,
                          .k = of[i].k,
                          .m = of[i].n > 32 ? 32 : 160,
                          .skewed = of[i].skewed,
                          .bias = i % 2 == 0,
                          .gate_input = i % 4 == 3,
                          .alone = i == 3,
                          .order = GW_ORDER_DECODE,
                          .kind = i == 3       ? GW_ACT_RELU2
                                  : i % 2 == 0 ? GW_ACT_SWIGLU_OAI
                                               : GW_ACT_SILU,
                          .limit = 7.0f,
                          .alpha = 1.702f};
        check_experts(&bench, &c);
        c.op = GW_OP_EXPERTS_DOWN;
        c.alone = 0;
        check_experts(&bench, &c);
    }
    ot_close(&bench);
}

static void experts_are_their_products(void **state) {
    static op_bench bench;
    (void)state;
    ot_open(&bench, &gw_backend_hip, open_hip(1), OT_MAPPED);
    for (int fmt = 0; fmt < GW_FMT_ACT8; fmt++) {
        experts_of_format(&bench, (gw_fmt)fmt);
    }
    experts_case c = {.op = GW_OP_EXPERTS_GLU,
                      .fmt = GW_FMT_Q4_K,
                      .out = GW_FMT_ACT8,
                      .n = 70,
                      .experts = 4,
                      .used = 2,
                      .k = 256,
                      .m = 96,
                      .order = GW_ORDER_PREFILL,
                      .kind = GW_ACT_SWIGLU_OAI,
                      .limit = 7.0f,
                      .alpha = 1.702f,
                      .bias = 1};
    check_experts(&bench, &c);
    c.order = GW_ORDER_DECODE;
    c.n = 5;
    check_experts(&bench, &c);
    c.out = GW_FMT_F32;
    c.bias = 0;
    c.gate_input = 1;
    check_experts(&bench, &c);
    c.op = GW_OP_EXPERTS_DOWN;
    check_experts(&bench, &c);
    c.op = GW_OP_EXPERTS_GLU;
    c.gate_input = 0;
    c.alone = 1;
    c.kind = GW_ACT_RELU2;
    check_experts(&bench, &c);
    ot_close(&bench);
}

#endif
