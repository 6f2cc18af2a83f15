/* tests/op_experts.h - data of cases of experts and of their adapters: a part of op_cases.h. */
#ifndef GW_TESTS_OP_CASES_H
#include "tests/op_cases.h" /* which includes this one where it stands */
#elif !defined(GW_TESTS_OP_EXPERTS_H)
#define GW_TESTS_OP_EXPERTS_H

/* A route in increasing order; the last expert is nobody's where there are enough. */
static gw_tensor *oc_route_of(op_setup *s) {
    const op_case *c = s->c;
    int u = c->route.used, from = c->chosen == 2 ? u + 1 : c->experts > u ? c->experts - 1 : u;
    gw_tensor *t = oc_matrix(s, "route", GW_FMT_F32, s->rows, 2 * u);
    float *at = oc_host(s, t);
    for (int i = 0; i < s->rows; i++, at += 2 * u) {
        unsigned char used[64] = {0};
        for (int j = 0; j < u;) {
            int x =
                c->chosen == 1 ? (j * 3 + 1) % c->experts : (int)(random_u32() % (unsigned)from);
            j += !used[x];
            used[x] = 1;
        }
        for (int x = 0, j = 0; x < 64; x++) {
            if (used[x]) {
                at[j] = (float)x;
                at[u + j++] = 0.1f + fabsf(random_float(1.0f));
            }
        }
    }
    oc_upload(s, t);
    return t;
}

static void oc_experts(op_setup *s, int keep_rows, int mapped) {
    const op_case *c = s->c;
    int glu = c->op == GW_OP_EXPERTS_GLU, parts = glu && c->gated ? 2 : 1, u = c->route.used;
    s->node.args.experts =
        (gw_experts_args){.experts = c->experts,
                          .used = u,
                          .act = {.kind = c->act, .limit = c->limit, .alpha = 1.702f},
                          .gate_input = c->gate_input,
                          .order = c->order,
                          .rank = c->rank,
                          .end = {c->m[0], c->m[0], c->m[0]},
                          .part = {0, -1, -1}};
    s->node.in[0] = oc_input(s, c->fmt[0], s->rows, glu ? c->k : c->k * u);
    s->node.in[1] = oc_route_of(s);
    for (int i = 0; i < parts; i++) {
        int rows = c->experts * c->m[0];
        s->node.w[i] = oc_weight(s, c->fmt[i], rows, c->k, keep_rows, mapped);
        s->node.w[(glu ? 2 : 1) + i] = c->bias ? oc_vector(s, "bias", rows, 0.5f) : NULL;
    }
    oc_make_output(s, glu ? c->out : GW_FMT_F32, glu ? c->m[0] * u : c->m[0]);
    s->node.in[2] = glu ? NULL : oc_addend(s, c->addend);
}

/* Adapters of each row: none of the first, then as many as there is room for, in increasing order,
 * the last places used first. */
static gw_tensor *oc_adapters(op_setup *s) {
    const op_case *c = s->c;
    int v = c->at_once;
    gw_tensor *t = oc_matrix(s, "adapters", GW_FMT_F32, s->rows, 2 * v);
    float *at = oc_host(s, t);
    for (int i = 0; i < s->rows; i++, at += 2 * v) {
        int have = s->c->n == 1 ? v : i % (v + 1);
        for (int j = 0; j < v; j++) {
            int mine = j - (v - have), from = i % (c->adapters - have + 1);
            at[j] = mine >= 0 ? (float)(from + mine + 1) : 0.0f;
            at[v + j] = mine >= 0 ? random_float(1.5f) : 0.0f;
        }
    }
    oc_upload(s, t);
    return t;
}

/* A: m[0] is the rank, k the width; B: k is the rank, m[0] the columns of an expert. */
static void oc_experts_lora(op_setup *s, int mapped) {
    const op_case *c = s->c;
    int a = c->op == GW_OP_EXPERTS_LORA_A, u = c->route.used;
    s->node.args.experts_lora = (gw_experts_lora_args){.experts = c->experts,
                                                       .used = u,
                                                       .places = c->adapters,
                                                       .at_once = c->at_once,
                                                       .rank = a ? c->m[0] : c->k,
                                                       .sum = c->together,
                                                       .gated = c->gate_input};
    s->node.in[0] = oc_floats(s, "input", c->k * (a ? (c->own ? u : 1) : u * c->at_once), 1.0f);
    s->node.in[1] = oc_route_of(s);
    s->node.in[2] = oc_adapters(s);
    s->node.w[0] = oc_weight(s, c->fmt[0], c->adapters * c->experts * c->m[0], c->k, 1, mapped);
    int wide = c->m[0] * (a ? u * c->at_once : c->together ? 1 : u);
    s->node.in[3] = a ? NULL : oc_floats(s, "sums", wide, 1.0f);
    oc_make_output(s, GW_FMT_F32, wide);
}

#endif
