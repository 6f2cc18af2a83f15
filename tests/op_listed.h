/* tests/op_listed.h - data of cases of hyper-connections, compressed caches and lists: a part of
 * op_cases.h. */
#ifndef GW_TESTS_OP_CASES_H
#include "tests/op_cases.h" /* which includes this one where it stands */
#elif !defined(GW_TESTS_OP_LISTED_H)
#define GW_TESTS_OP_LISTED_H

/* Pages of floats behind a table that is not the identity; positions and entries up to the last one
 * of the rows hold numbers. */
static void oc_area(op_setup *s, const gw_area *a, gw_tensor **pages, gw_tensor **table) {
    const op_case *c = s->c;
    int slots = c->slots > 1 ? c->slots : 1, each = (c->pos + c->n) / GW_PAGE + 2;
    int64_t dim[2] = {slots * each, a->at + gw_area_floats(a) + 5}, t_dim[2] = {slots, each};
    *table = oc_tensor(s, "pages", GW_FMT_I32, 2, t_dim);
    *pages = oc_tensor(s, "area", GW_FMT_F32, 2, dim);
    for (int i = 0; i < slots * each; i++) {
        ((int32_t *)oc_host(s, *table))[i] = slots * each - 1 - i;
    }
    oc_fill_floats(s, *pages, 1.0f);
    float *at = oc_host(s, *pages);
    for (int64_t i = 0; i < dim[0] * dim[1] && c->wild; i++) { /* many equal scores */
        at[i] = rintf(at[i]);
    }
    oc_upload(s, *table);
    oc_upload(s, *pages);
}

static gw_tensor *oc_angles(op_setup *s) {
    const op_case *c = s->c;
    int64_t dim[3] = {c->pos + c->n, 2, c->rope_dim / 2};
    gw_tensor *table = oc_tensor(s, "rope", GW_FMT_F32, 3, dim);
    oc_fill_floats(s, table, 1.0f);
    oc_upload(s, table);
    return table;
}

static gw_rope_style oc_style(const op_case *c) {
    return c->interleaved ? GW_ROPE_INTERLEAVED : GW_ROPE_HALVES;
}

/* heads streams, taps rounds; bare: what goes in alone. */
static void oc_hyper(op_setup *s) {
    const op_case *c = s->c;
    int all = c->bare ? c->heads : c->heads * (c->heads + 2);
    s->node.args.hyper = (gw_hyper_args){.streams = c->heads, .rounds = c->taps, .eps = 1e-6f};
    s->node.in[0] = oc_floats(s, "logits", all, 2.0f);
    s->node.w[0] = oc_vector(s, "scale", c->bare ? 1 : 3, 1.0f);
    s->node.w[1] = oc_vector(s, "base", all, 1.0f);
    oc_make_output(s, GW_FMT_F32, all);
}

static void oc_rotate(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.rotate = (gw_rotate_args){.heads = c->heads,
                                           .first = c->first,
                                           .rope_dim = c->rope_dim,
                                           .style = oc_style(c),
                                           .back = c->tiled};
    s->node.in[0] = oc_floats(s, "input", c->heads * c->e, 1.0f);
    s->node.w[0] = c->rope_dim > 0 ? oc_angles(s) : NULL;
    oc_make_output(s, GW_FMT_F32, c->heads * c->e);
}

static void oc_group_dot(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.dot = (gw_dot_args){.groups = c->kv_heads, .scale = c->scale, .root = c->gated};
    s->node.in[0] = oc_floats(s, "input", c->k, 1.0f);
    s->node.in[1] = oc_floats(s, "other", c->k, 1.0f);
    oc_make_output(s, GW_FMT_F32, c->kv_heads);
}

/* Entries of e values, of taps positions; gates series; bare: rows as they are; norm_plain: not
 * normed. */
static void oc_compress(op_setup *s) {
    const op_case *c = s->c;
    gw_area a = {.at = 3,
                 .width = c->bare         ? 0
                          : c->gates == 0 ? c->e
                                          : 2 * c->gates * c->e,
                 .ratio = c->taps,
                 .entry = c->e};
    gw_tensor *pages, *table;
    s->node.args.compress = (gw_compress_args){.area = a,
                                               .series = c->gates,
                                               .first = c->first,
                                               .rope_dim = c->rope_dim,
                                               .style = oc_style(c),
                                               .eps = 1e-5f};
    s->node.in[0] = oc_floats(s, "rows", gw_area_kept(&a), 1.0f);
    oc_area(s, &a, &pages, &table);
    s->node.in[1] = pages;
    s->node.in[2] = table;
    s->node.w[0] = c->gates > 0 ? oc_vector(s, "bias", c->taps * c->gates * c->e, 1.0f) : NULL;
    s->node.w[1] = c->bare || c->norm_plain ? NULL : oc_vector(s, "norm", c->e, 1.0f);
    s->node.w[2] = c->rope_dim > 0 ? oc_angles(s) : NULL;
    oc_make_output(s, GW_FMT_F32, 1);
    s->out_bytes = 0;
}

/* The m[0] best entries of taps positions each; tiled: GW_TIES_; bare: in an area without rows;
 * block: so many for each head. */
static void oc_choose(op_setup *s) {
    const op_case *c = s->c;
    gw_area a = {.at = 2, .width = c->bare ? 0 : 7, .ratio = c->taps, .entry = c->e};
    gw_tensor *pages, *table, *q = oc_floats(s, "queries", c->heads * c->e, 1.0f);
    s->node.args.choose = (gw_choose_args){
        .area = a, .heads = c->heads, .ties = c->tiled, .block = c->block, .local = c->local};
    oc_area(s, &a, &pages, &table);
    float *at = oc_host(s, q);
    for (int i = 0; i < c->n * c->heads * c->e && c->wild; i++) {
        at[i] = rintf(at[i]);
    }
    oc_upload(s, q);
    s->node.in[0] = q;
    s->node.in[1] = pages;
    s->node.in[2] = table;
    s->node.in[3] = c->gates > 0 ? oc_floats(s, "weights", c->heads, 1.0f) : NULL;
    oc_make_output(s, GW_FMT_F32, c->m[0] * (c->block > 0 ? c->heads : 1));
}

/* A list of m[0] elements for each of `lists`: complete ones, some left out, others in every other
 * list. */
static gw_tensor *oc_lists(op_setup *s) {
    const op_case *c = s->c;
    int lists = c->lists > 1 ? c->lists : 1, most = c->m[0];
    gw_tensor *list = oc_floats(s, "list", lists * most, 1.0f);
    float *at = oc_host(s, list);
    for (int i = 0; i < c->n * lists; i++, at += most) {
        int complete = gw_choose_among(s->step.pos[i / lists], c->taps, c->local), n = 0;
        int skip = complete > most ? complete - most : 0;
        for (int k = 0; k < complete && n < most; k++) {
            if (skip > 0 && (k + i % lists) % 2 == 1) {
                skip--;
            } else {
                at[n++] = (float)k;
            }
        }
        for (; n < most; n++) {
            at[n] = -1.0f;
        }
    }
    oc_upload(s, list);
    return list;
}

/* A list, or all where m[0] is 0; both: entries of an area, else blocks of taps positions. */
static void oc_listed(op_setup *s) {
    const op_case *c = s->c;
    gw_area a = {.at = 1, .width = 3, .ratio = c->taps, .entry = c->e};
    gw_tensor *q = oc_floats(s, "queries", c->heads * c->e, 2.0f), *pages, *table;
    oc_caches(s, 1);
    table = (gw_tensor *)(uintptr_t)s->node.in[3];
    s->node.in[0] = q;
    s->node.args.listed = (gw_listed_args){.area = a,
                                           .scale = (float)(1.0 / sqrt(c->e)),
                                           .heads = c->heads,
                                           .kv_heads = c->kv_heads,
                                           .head_dim = c->e,
                                           .v_dim = c->v_dim,
                                           .v_first = c->first,
                                           .window = c->window,
                                           .local = c->local,
                                           .lists = c->lists};
    if (c->within) {
        s->node.in[2] = NULL;
    }
    if (c->both) { /* in the pages of the caches */
        int64_t dim[2] = {s->node.in[1]->dim[0], a.at + gw_area_floats(&a)};
        pages = oc_tensor(s, "area", GW_FMT_F32, 2, dim);
        oc_fill_floats(s, pages, 1.0f);
        oc_upload(s, pages);
        s->node.in[5] = pages;
    }
    (void)table;
    s->node.in[4] = c->m[0] > 0 ? oc_lists(s) : NULL;
    s->node.w[0] = c->sinks ? oc_vector(s, "sinks", c->heads, 3.0f) : NULL;
    oc_make_output(s, GW_FMT_F32, c->heads * oc_v_dim(c));
}

/* n-grams of up to taps tokens, heads hashes of a length. */
static void oc_ngram(op_setup *s, int mapped) {
    const op_case *c = s->c;
    s->node.args.ngram = (gw_ngram_args){.size = c->taps,
                                         .heads = c->heads,
                                         .index = c->first,
                                         .vocab = 300,
                                         .end = 5,
                                         .base = 11,
                                         .seed = 1234};
    gw_tensor *state = oc_state(s, c->taps - 1);
    float *at = oc_host(s, state);
    for (int i = 0; i < (c->slots > 1 ? c->slots : 1) * 17 * (c->taps - 1); i++) {
        at[i] = (float)(i % 9);
    }
    oc_upload(s, state);
    s->node.w[0] = oc_weight(s, c->fmt[0], c->m[0], c->k, 1, mapped);
    oc_make_output(s, GW_FMT_F32, (c->taps - 1) * c->heads * c->k);
}

#endif
