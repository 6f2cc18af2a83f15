/* tests/op_gates.h - data of cases of scans by RWKV-7 and retention, of exponential gates and
 * divisions: a part of op_cases.h. */
#ifndef GW_TESTS_OP_CASES_H
#include "tests/op_cases.h" /* which includes this one where it stands */
#elif !defined(GW_TESTS_OP_GATES_H)
#define GW_TESTS_OP_GATES_H

static void oc_wkv(op_setup *s) {
    const op_case *c = s->c;
    int all = c->heads * c->e, wide = c->heads * c->v_dim;
    s->node.args.scan = (gw_scan_args){.kind = GW_SCAN_WKV,
                                       .heads = c->heads,
                                       .groups = c->heads,
                                       .k_dim = c->e,
                                       .v_dim = c->v_dim,
                                       .k_scale = (float)(1.0 / sqrt(c->e))};
    s->node.in[0] = oc_floats(s, "input", 3 * all + wide, 1.0f);
    oc_state(s, wide * c->e);
    s->node.in[2] = oc_floats(s, "decay", all, 1.0f);
    s->node.in[3] = oc_floats(s, "back", all, 0.5f);
    oc_make_output(s, GW_FMT_F32, wide);
}

static void oc_retention(op_setup *s) {
    const op_case *c = s->c;
    int wide = c->heads * c->v_dim;
    s->node.args.scan = (gw_scan_args){.kind = GW_SCAN_RETENTION,
                                       .heads = c->heads,
                                       .groups = c->kv_heads,
                                       .k_dim = c->e,
                                       .v_dim = c->v_dim};
    s->node.in[0] = oc_floats(s, "input", wide + 2 * c->kv_heads * c->e, 1.0f);
    oc_state(s, wide * c->e);
    s->node.in[2] = oc_floats(s, "decay", c->heads, 1.0f);
    oc_make_output(s, GW_FMT_F32, wide);
}

static void oc_exp_gates(op_setup *s) {
    s->node.in[0] = oc_floats(s, "logits", 2 * s->c->heads, 3.0f);
    oc_state(s, s->c->heads);
    oc_make_output(s, GW_FMT_F32, 3 * s->c->heads);
}

/* Columns of heads, by one number a head, of which some are less than the least. */
static void oc_divide(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.divide.eps = 1e-6f;
    s->node.in[0] = oc_floats(s, "input", c->k, 2.0f);
    s->node.in[1] = oc_floats(s, "divisor", c->heads, 2.0f);
    gw_tensor *least = oc_floats(s, "least", c->heads, 1.0f);
    float *at = oc_host(s, least);
    for (int i = 0; i < c->n * c->heads; i++) {
        at[i] = 0.1f + fabsf(at[i]);
    }
    oc_upload(s, least);
    s->node.in[2] = least;
    oc_make_output(s, GW_FMT_F32, c->k);
}

#endif
