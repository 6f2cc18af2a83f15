/* tests/op_cases.h - cases of every op, and how one runs on any kernel of any backend.
 *
 * Everything goes through gw_backend, so that a new backend is held against the scalar CPU by
 * walking this table over its own kernels. Outputs are poisoned with NaN and fenced on both sides;
 * rows that are not live must keep the poison; cache positions that no row may see hold NaN.
 * The data of a case depends on the case alone.
 */
#ifndef GW_TESTS_OP_CASES_H
#define GW_TESTS_OP_CASES_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plan/backend.h"
#include "core/tensor/sample.h"
#include "tests/op_list.h"
#include "tests/op_packed.h"
#include "tests/op_weights.h"
#include "tests/random.h"
#include "tests/sanitized.h"

enum { OC_FENCE = 256, OC_SPARE_ROWS = 2, OC_TENSORS = 12 };

enum {
    OC_COUNT = sizeof op_cases / sizeof op_cases[0],
    OC_FORMS = 8, /* products of a format; with sanitizers one of them, by turns */
    OC_PER_FORMAT = TEST_SANITIZED ? 1 : OC_FORMS,
    OC_SHARED = GW_FMT_BL3H_B64, /* formats from here on go through the texts of those before */
    OC_SHARING = GW_FMT_ACT8 - OC_SHARED,
    OC_FEW = OC_COUNT + OC_PER_FORMAT * OC_SHARED + OC_SHARING,
    OC_TOTAL = OC_FEW + (TEST_SANITIZED ? 0 : OC_FORMS * OC_SHARING)
};

/* Case i < OC_FEW: the table, then the products of weight formats in both orders, of the last ones
 * one each; up to OC_TOTAL those that they lack. */
static inline op_case oc_case(int i) {
    if (i < OC_COUNT) {
        op_case c = op_cases[i];
        c.out = c.op == GW_OP_QUANTIZE || c.out == GW_FMT_ACT8 ? GW_FMT_ACT8 : GW_FMT_F32;
        return c;
    }
    int of = i - OC_COUNT, whole = OC_PER_FORMAT * OC_SHARED;
    gw_fmt fmt = (gw_fmt)(of < whole                ? of / OC_PER_FORMAT
                          : of < whole + OC_SHARING ? OC_SHARED + of - whole
                                                    : OC_SHARED + (i - OC_FEW) / OC_FORMS);
    int one = TEST_SANITIZED || (of >= whole && i < OC_FEW);
    int form = (one ? (int)fmt : of < whole ? of : i - OC_FEW) % OC_FORMS, prefill = form & 1;
    static const gw_op of_form[] = {GW_OP_LINEAR, GW_OP_GLU, GW_OP_EXPERTS_GLU, GW_OP_EXPERTS_DOWN};
    op_case c = {.op = of_form[form / 2],
                 .why = gw_format_of(fmt)->name,
                 .n = prefill ? 21 : 3,
                 .k = 768,
                 .m = {80},
                 .fmt = {fmt, fmt, fmt},
                 .order = prefill ? GW_ORDER_PREFILL : GW_ORDER_DECODE};
    if ((int)fmt >= (int)OC_SHARED || form >= 4) {
        c.k = 256;
        c.m[0] = 48;
    }
    if (form >= 4) {
        c.experts = 5;
        c.route.used = 2;
        c.gated = 1;
    }
    return c;
}

/* ---- one run ---- */

/* A node with everything it needs on a device; host copies of the inputs stay for bounds. */
typedef struct op_setup {
    const op_case *c;
    const gw_backend *backend;
    struct gw_device *device;
    gw_node node;
    gw_tensor t[OC_TENSORS];
    int n_t;
    struct gw_buffer *owned[OC_TENSORS];
    int n_owned;
    void *host[OC_TENSORS]; /* input bytes of t[i] */
    int rows;               /* capacity */
    gw_step step;
    size_t out_bytes; /* of the live rows */
} op_setup;

typedef struct op_result {
    unsigned char *out;
    size_t out_bytes;
    unsigned char *k, *v; /* caches after ROPE_KV */
    size_t cache_bytes, value_bytes;
} op_result;

static void oc_free_result(op_result *r) {
    free(r->out);
    free(r->k);
    free(r->v);
    memset(r, 0, sizeof *r);
}

static size_t oc_tensor_bytes(const gw_tensor *t) {
    size_t rows = 1;
    for (int i = 0; i + 1 < t->n_dim; i++) {
        rows *= (size_t)t->dim[i];
    }
    return rows * oc_row_bytes(t->fmt, (size_t)t->dim[t->n_dim - 1]);
}

static gw_tensor *oc_tensor(op_setup *s, const char *name, gw_fmt fmt, int n_dim,
                            const int64_t *dim) {
    gw_tensor *t = &s->t[s->n_t++];
    assert_true(s->n_t <= OC_TENSORS);
    *t = (gw_tensor){.name = name, .fmt = fmt, .n_dim = n_dim};
    memcpy(t->dim, dim, (size_t)n_dim * sizeof *dim);
    s->host[t - s->t] = oc_alloc(oc_tensor_bytes(t));
    return t;
}
static gw_tensor *oc_matrix(op_setup *s, const char *name, gw_fmt fmt, int64_t rows, int64_t cols) {
    int64_t dim[2] = {rows, cols};
    return oc_tensor(s, name, fmt, 2, dim);
}
static void *oc_host(const op_setup *s, const gw_tensor *t) { return s->host[t - s->t]; }

static void oc_fill_floats(op_setup *s, gw_tensor *t, float scale) {
    float *x = oc_host(s, t);
    for (size_t i = 0; i < oc_tensor_bytes(t) / sizeof(float); i++) {
        x[i] = random_float(1.0f) * scale;
    }
}

/* Host bytes to a device buffer of their own. */
static void oc_upload(op_setup *s, gw_tensor *t) {
    size_t bytes = oc_tensor_bytes(t);
    assert_int_equal(s->backend->alloc(s->device, bytes, &t->buf), GW_OK);
    assert_int_equal(s->backend->write(t->buf, 0, oc_host(s, t), bytes), GW_OK);
    s->owned[s->n_owned++] = t->buf;
}

typedef struct oc_rows {
    const unsigned char *bytes;
    size_t row_bytes;
} oc_rows;

static gw_status oc_produce(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const oc_rows *r = src->state;
    memcpy(dst, r->bytes + (size_t)first * r->row_bytes, (size_t)n * r->row_bytes);
    return GW_OK;
}

/* keep_rows: as stored, for kernels that read rows; else in the layout that the backend likes. */
static gw_tensor *oc_weight(op_setup *s, gw_fmt fmt, int rows, int cols, int keep_rows,
                            int mapped) {
    gw_tensor *t = oc_matrix(s, "weight", fmt, rows, cols);
    oc_rows state = {oc_host(s, t), oc_row_bytes(fmt, (size_t)cols)};
    for (int r = 0; r < rows; r++) {
        oc_fill_weight_row(fmt, (unsigned char *)oc_host(s, t) + (size_t)r * state.row_bytes,
                           (size_t)cols);
        if (s->c->loud && r % 4 != 3) {
            oc_make_loud(fmt, (unsigned char *)oc_host(s, t) + (size_t)r * state.row_bytes,
                         (size_t)cols);
        }
    }
    gw_weight_source src = {.map = mapped ? state.bytes : NULL,
                            .rows = oc_produce,
                            .state = &state,
                            .keep_rows = keep_rows,
                            .thin = s->c->rank > 0 && s->c->op == GW_OP_EXPERTS_DOWN};
    assert_int_equal(s->backend->load_weight(s->device, t, &src), GW_OK);
    s->owned[s->n_owned++] = t->buf;
    return t;
}

/* An activation input of the format that `weights` take. */
static gw_tensor *oc_input(op_setup *s, gw_fmt weights, int rows, int k) {
    int quantized = !gw_format_of(weights)->is_float;
    gw_tensor *t = oc_matrix(s, "input", quantized ? GW_FMT_ACT8 : GW_FMT_F32, rows, k);
    float block[GW_ACT_BLOCK];
    if (!quantized) {
        oc_fill_floats(s, t, 1.0f);
    } else {
        gw_act8 *x = oc_host(s, t);
        for (int i = 0; i < rows * k / GW_ACT_BLOCK; i++) {
            for (int j = 0; j < GW_ACT_BLOCK; j++) {
                block[j] = random_float(1.0f) * (float)(1 + i % 3);
                if (s->c->loud) { /* of some rows all of one sign */
                    block[j] = i / (k / GW_ACT_BLOCK) % 3 == 0 || block[j] > 0.0f ? 1.0f : -1.0f;
                }
            }
            gw_act8_encode(&x[i], block);
        }
    }
    oc_upload(s, t);
    return t;
}

static void oc_make_output(op_setup *s, gw_fmt fmt, int cols) {
    gw_tensor *t = oc_matrix(s, "output", fmt, s->rows, cols);
    size_t bytes = oc_tensor_bytes(t) + 2 * OC_FENCE;
    void *poison = oc_alloc(bytes);
    memset(poison, 0xff, bytes);
    assert_int_equal(s->backend->alloc(s->device, bytes, &t->buf), GW_OK);
    assert_int_equal(s->backend->write(t->buf, 0, poison, bytes), GW_OK);
    s->owned[s->n_owned++] = t->buf;
    t->offset = OC_FENCE;
    free(poison);
    s->node.out = t;
    s->out_bytes = (size_t)s->c->n * oc_row_bytes(fmt, (size_t)cols);
}

static gw_tensor *oc_vector(op_setup *s, const char *name, int n, float scale) {
    int64_t dim[1] = {n};
    gw_tensor *t = oc_tensor(s, name, GW_FMT_F32, 1, dim);
    oc_fill_floats(s, t, scale);
    oc_upload(s, t);
    return t;
}

/* What is added to the result: of its own, or 2: what lies where it goes (live rows alone). */
static const gw_tensor *oc_addend(op_setup *s, int form) {
    gw_tensor *t;
    if (form == 0) {
        return NULL;
    }
    t = oc_matrix(s, "addend", GW_FMT_F32, s->rows, s->node.out->dim[1]);
    oc_fill_floats(s, t, 1.0f);
    oc_upload(s, t);
    if (form == 2) {
        assert_int_equal(s->backend->write(s->node.out->buf, OC_FENCE, oc_host(s, t), s->out_bytes),
                         GW_OK);
        return s->node.out;
    }
    return t;
}

static void oc_product(op_setup *s, int parts, int keep_rows, int mapped) {
    const op_case *c = s->c;
    int columns = 0;
    s->node.args.linear.order = c->order;
    s->node.in[0] = oc_input(s, c->fmt[0], s->rows, c->k);
    for (int i = 0; i < parts; i++) {
        int m = c->op == GW_OP_GLU ? c->m[0] : c->m[i];
        if (m == 0) {
            break;
        }
        s->node.w[i] = oc_weight(s, c->fmt[i], m, c->k, keep_rows, mapped);
        columns += m;
        if (c->bias) {
            int64_t dim[1] = {m};
            gw_tensor *bias = oc_tensor(s, "bias", GW_FMT_F32, 1, dim);
            oc_fill_floats(s, bias, 0.5f);
            oc_upload(s, bias);
            s->node.w[3 + i] = bias;
        }
    }
    oc_make_output(s, c->op == GW_OP_GLU ? c->out : GW_FMT_F32,
                   c->op == GW_OP_GLU ? c->m[0] : columns);
    if (c->residual) {
        gw_tensor *r = oc_matrix(s, "residual", GW_FMT_F32, s->rows, columns);
        oc_fill_floats(s, r, 1.0f);
        oc_upload(s, r);
        s->node.in[1] = r;
        if (c->residual == 2) { /* in place: only live rows, the others stay poisoned */
            assert_int_equal(
                s->backend->write(s->node.out->buf, OC_FENCE, oc_host(s, r), s->out_bytes), GW_OK);
            s->node.in[1] = s->node.out;
        }
    }
}

static inline int oc_v_stored(const op_case *c) { return c->within ? 0 : oc_v_dim(c); }
/* Positions that row i of ATTENTION sees, chunks aside. */
static inline int oc_first_seen(const op_case *c, const gw_step *step, int i) {
    return c->window > 0 && step->pos[i] >= c->window ? step->pos[i] - c->window + 1 : 0;
}
static inline int oc_last_seen(const op_case *c, const gw_step *step, int i) {
    int last = step->last[i], edge = c->window > 0 ? step->pos[i] + c->window - 1 : last;
    return !c->both ? step->pos[i] : edge < last ? edge : last;
}

/* Caches with two pages more than needed, and a page table that is not the identity. Positions up
 * to the last one of each slot are filled, all others are NaN. */
static void oc_caches(op_setup *s, int filled) {
    const op_case *c = s->c;
    int last = c->pos + c->n - 1 + c->ahead, pages = last / GW_PAGE + 2, total = c->slots * pages;
    int64_t k_dim[4] = {total, c->kv_heads, c->e, GW_PAGE},
            v_dim[4] = {total, c->kv_heads, GW_PAGE, c->within ? c->e : oc_v_dim(c)};
    int64_t p_dim[2] = {c->slots, pages};
    gw_tensor *k = oc_tensor(s, "K", c->kv, 4, k_dim);
    gw_tensor *v = oc_tensor(s, "V", oc_kv(c, 0), 4, v_dim);
    gw_tensor *table = oc_tensor(s, "pages", GW_FMT_I32, 2, p_dim);
    int32_t *at = oc_host(s, table);
    for (int i = 0; i < total; i++) {
        at[i] = total - 1 - i;
    }
    memset(oc_host(s, k), 0xff, oc_tensor_bytes(k));
    memset(oc_host(s, v), 0xff, oc_tensor_bytes(v));
    for (int p = 0; p < total * GW_PAGE && filled; p++) {
        int slot = p / (pages * GW_PAGE), pos = p % (pages * GW_PAGE);
        size_t page = (size_t)at[slot * pages + pos / GW_PAGE];
        int most = oc_most(c);
        for (int i = 0; i < c->kv_heads * most && pos <= last; i++) {
            size_t head = page * (size_t)c->kv_heads + (size_t)(i / most);
            float by = oc_loudness(c, i % most, pos);
            float kx = by * random_float(1.0f) * 2.0f, vx = by * random_float(1.0f);
            if (i % most < c->e) {
                oc_fill(c, oc_host(s, k), 1, head, pos % GW_PAGE, i % most, kx);
            }
            if (i % most < oc_v_dim(c)) {
                oc_fill(c, oc_host(s, v), 0, head, pos % GW_PAGE, i % most, vx);
            }
        }
    }
    oc_upload(s, k);
    oc_upload(s, v);
    oc_upload(s, table);
    s->node.in[1] = k;
    s->node.in[2] = c->within ? NULL : v;
    s->node.in[3] = table;
}

static gw_tensor *oc_floats(op_setup *s, const char *name, int cols, float scale) {
    gw_tensor *t = oc_matrix(s, name, GW_FMT_F32, s->rows, cols);
    oc_fill_floats(s, t, scale);
    oc_upload(s, t);
    return t;
}

static void oc_rope(op_setup *s) {
    const op_case *c = s->c;
    int64_t t_dim[3] = {c->pos + c->n, 2, c->rope_dim / 2};
    s->node.args.rope =
        (gw_rope_args){.heads = c->heads,
                       .kv_heads = c->kv_heads,
                       .head_dim = c->e,
                       .rope_dim = c->rope_dim,
                       .eps = 1e-5f,
                       .v_dim = c->v_dim,
                       .norm_kind = c->norm_kind,
                       .norm_span = c->norm_span,
                       .norm_after = c->norm_after,
                       .norm_plain = c->norm_plain,
                       .norm_v = c->norm_v,
                       .style = c->interleaved ? GW_ROPE_INTERLEAVED : GW_ROPE_HALVES};
    const int width = (c->heads + c->kv_heads) * c->e + c->kv_heads * oc_v_stored(c);
    gw_tensor *x = oc_matrix(s, "qkv", GW_FMT_F32, s->rows, width);
    oc_fill_floats(s, x, 1.0f);
    float *values = oc_host(s, x);
    for (int i = 0; i < c->n * width && c->wild; i++) { /* blocks of k and v; q stays finite */
        static const float odd[] = {1.0f, NAN, 3e7f, INFINITY, 1e-6f, 3e38f, 1e-7f, 0.0f};
        int block = i / 32, at_k = i % width >= c->heads * c->e;
        int whole = block % 8 != 1 && block % 8 != 3;
        values[i] *= at_k && (whole || i % 32 == 7) ? odd[block % 8] : 1.0f;
    }
    oc_upload(s, x);
    s->node.in[0] = x;
    oc_make_output(s, GW_FMT_F32, c->heads > 0 ? c->heads * c->e : 1);
    s->out_bytes = c->heads > 0 ? s->out_bytes : 0;
    if (c->kv_heads > 0) {
        oc_caches(s, 0);
    }
    for (int i = 0; i < 2 && c->head_norm; i++) {
        int heads = c->norm_span == GW_SPAN_HEAD ? 1 : i == 0 ? c->heads : c->kv_heads;
        s->node.w[i] = oc_vector(s, "head norm", heads * c->e, 1.0f);
    }
    if (c->q_factor) {
        s->node.w[3] = oc_vector(s, "factors", c->pos + c->n, 1.0f);
    }
    if (c->rope_dim == 0) {
        return;
    }
    gw_tensor *table = oc_tensor(s, "rope", GW_FMT_F32, 3, t_dim);
    float *t = oc_host(s, table);
    for (int p = 0; p < c->pos + c->n; p++) {
        for (int i = 0; i < c->rope_dim / 2; i++) {
            double angle = p * pow(10000.0, -2.0 * i / c->rope_dim);
            t[p * c->rope_dim + i] = (float)cos(angle);
            t[p * c->rope_dim + c->rope_dim / 2 + i] = (float)sin(angle);
        }
    }
    oc_upload(s, table);
    s->node.w[2] = table;
}

static void oc_attention(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.attn = (gw_attn_args){.scale = (float)(1.0 / sqrt(c->e)),
                                       .heads = c->heads,
                                       .kv_heads = c->kv_heads,
                                       .head_dim = c->e,
                                       .v_dim = c->v_dim,
                                       .v_first = c->first,
                                       .window = c->window,
                                       .chunk = c->chunk,
                                       .softcap = c->cap,
                                       .both = c->both,
                                       .reach = c->reach,
                                       .order = c->order,
                                       .digits = c->digits > 0};
    s->node.in[0] = oc_floats(s, "q", c->heads * c->e, 2.0f);
    oc_caches(s, 1);
    s->node.w[0] = c->sinks ? oc_vector(s, "sinks", c->heads, 3.0f) : NULL;
    s->node.w[1] = c->slopes ? oc_vector(s, "slopes", c->heads, 0.1f) : NULL;
    s->node.w[2] = c->reach > 0 ? oc_vector(s, "bias", c->heads * (2 * c->reach + 1), 2.0f) : NULL;
    oc_make_output(s, c->out, c->heads * oc_v_dim(c));
}

static void oc_rowwise(op_setup *s) {
    const op_case *c = s->c;
    gw_tensor *x = oc_matrix(s, "input", GW_FMT_F32, s->rows + c->pick, c->k);
    oc_fill_floats(s, x, 3.0f);
    float *at = oc_host(s, x);
    for (int i = 0; i < c->n * c->k && c->wild; i++) {
        static const float odd[] = {0.0f, -0.0f, INFINITY, NAN, 1e-45f, 1e-38f, 3e38f, -INFINITY};
        int row = i / c->k;
        at[i] = row % 8 < 2   ? odd[row % 8]
                : row % 8 < 4 ? (i % c->k == 40 ? odd[row % 8] : at[i])
                              : at[i] * odd[row % 8 == 7 ? 6 : row % 8];
    }
    oc_upload(s, x);
    s->node.in[0] = x;
    oc_make_output(s, c->out, c->k);
    s->node.args.pick.kind = c->op == GW_OP_PICK ? c->pool : GW_PICK_ROWS;
    if (c->ordered) {
        int64_t dim[1] = {c->k};
        gw_tensor *columns = oc_tensor(s, "columns", GW_FMT_F32, 1, dim);
        for (int i = 0; i < c->k; i++) {
            ((float *)oc_host(s, columns))[i] = (float)((i * 11 + 3) % c->k);
        }
        oc_upload(s, columns);
        s->node.w[0] = columns;
    }
    if (c->op == GW_OP_NORM) {
        s->node.args.norm = (gw_norm_args){.eps = 1e-5f, .kind = c->norm_kind};
        s->node.w[0] = c->bare ? NULL : oc_vector(s, "norm", c->k, 2.0f);
        s->node.w[1] = c->norm_bias ? oc_vector(s, "norm bias", c->k, 0.7f) : NULL;
        s->node.w[2] = c->factor ? oc_vector(s, "factor", 1, 2.0f) : NULL;
        s->node.in[1] = oc_addend(s, c->addend);
    }
}

static void oc_act(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.act =
        (gw_act_args){.kind = c->act, .gated = c->gated, .limit = c->limit, .alpha = 1.702f};
    gw_tensor *x = oc_matrix(s, "input", GW_FMT_F32, s->rows, c->k * (c->gated ? 2 : 1));
    oc_fill_floats(s, x, 4.0f);
    oc_upload(s, x);
    s->node.in[0] = x;
    const int has = c->act == GW_ACT_XIELU || c->act == GW_ACT_CLAMP;
    s->node.w[0] = has ? oc_vector(s, "parameters", 4, 0.8f) : NULL;
    oc_make_output(s, c->out, c->k);
}

static void oc_mix(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.mix = (gw_mix_args){.scale = c->scale, .cap = c->cap, .gate_act = c->act};
    oc_rowwise(s);
    if (c->gates > 0) {
        gw_tensor *gate = oc_matrix(s, "gate", GW_FMT_F32, s->rows, c->gates);
        oc_fill_floats(s, gate, 2.0f);
        oc_upload(s, gate);
        s->node.in[1] = gate;
    }
    s->node.w[0] = c->factor ? oc_vector(s, "factor", c->factor, 2.0f) : NULL;
    s->node.in[2] = oc_addend(s, c->addend);
}

/* Logits that are well apart from one another, or 2: of few values. */
static void oc_route(op_setup *s) {
    const op_case *c = s->c;
    gw_tensor *x = oc_matrix(s, "logits", GW_FMT_F32, s->rows, c->experts);
    float *at = oc_host(s, x);
    for (int i = 0; i < s->rows * c->experts; i++) {
        int step = (i % c->experts * 37 + i / c->experts * 11) % 1009 * 613 % 1009;
        at[i] = c->wild == 2 ? 0.5f * (float)(step % 3) : (float)step / 200.0f - 2.5f;
    }
    oc_upload(s, x);
    s->node.in[0] = x;
    s->node.args.route = c->route;
    s->node.w[0] = c->norm_bias ? oc_vector(s, "bias", c->experts, 0.1f) : NULL;
    s->node.w[1] = c->factor ? oc_vector(s, "factors", c->experts, 2.0f) : NULL;
    oc_make_output(s, GW_FMT_F32, 2 * c->route.used);
}

#include "tests/op_experts.h"

/* Logits of a size that a model's have. */
static void oc_sample(op_setup *s) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, -NAN};
    const op_case *c = s->c;
    gw_tensor *x = oc_matrix(s, "logits", GW_FMT_F32, s->rows, c->k);
    gw_tensor *words = oc_matrix(s, "choice", GW_FMT_I32, s->rows, GW_CHOICE_WORDS);
    float *at = oc_host(s, x);
    oc_fill_floats(s, x, 12.0f);
    for (int i = 0; i < c->n * c->k && c->wild; i++) {
        int row = i / c->k, col = i % c->k;
        at[i] = c->wild == 2   ? rintf(at[i]) * (at[i] < 1.0f && at[i] > -2.0f ? -0.0f : 0.5f)
                : c->wild == 3 ? (col % 100 == 7 ? at[i] : -INFINITY)
                : c->wild == 4 ? 2e37f * at[i]
                : row == 2     ? odd[2]
                : col == 2999 - 2100 * (row % 2) && row < 4 ? odd[row]
                                                            : at[i];
    }
    for (int i = 0; i < s->rows; i++) { /* its own for each row */
        gw_choice choice = {c->temperature, c->top_k, 0x89abcdefu + (gw_u32)i,
                            0x01234567u,    1 + c->k, c->top_p,
                            c->min_p};
        memcpy((gw_choice *)oc_host(s, words) + i, &choice, sizeof choice);
    }
    oc_upload(s, x);
    oc_upload(s, words);
    s->node.in[0] = x;
    s->node.in[1] = words;
    oc_make_output(s, GW_FMT_I32, 1);
}

/* Entries that a row may read hold numbers, at position 0 too, where nobody may look. */
static gw_tensor *oc_state(op_setup *s, int width) {
    const op_case *c = s->c;
    int64_t dim[3] = {c->slots > 1 ? c->slots : 1, 17, width};
    gw_tensor *t = oc_tensor(s, "state", GW_FMT_F32, 3, dim);
    oc_fill_floats(s, t, c->pos > 0 ? 1.0f : NAN);
    oc_upload(s, t);
    s->node.in[1] = t;
    return t;
}

static void oc_conv(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.conv = (gw_conv_args){.taps = c->taps, .act = c->act, .apart = c->first};
    s->node.in[0] = oc_floats(s, "input", c->k, 2.0f);
    oc_state(s, (c->taps - 1) * (c->first > 1 ? c->first : 1) * c->k);
    s->node.w[0] = oc_vector(s, "taps", c->k * c->taps, 1.0f);
    s->node.w[1] = c->norm_bias ? oc_vector(s, "bias", c->k, 1.0f) : NULL;
    oc_make_output(s, GW_FMT_F32, c->k);
}

#include "tests/op_gates.h"

static void oc_scan(op_setup *s) {
    const op_case *c = s->c;
    if (c->scan == GW_SCAN_WKV) {
        oc_wkv(s);
        return;
    }
    if (c->scan == GW_SCAN_RETENTION) {
        oc_retention(s);
        return;
    }
    int ssm = c->scan == GW_SCAN_SSM, wide = c->heads * c->v_dim;
    int decays = !c->by_channel ? c->heads : ssm ? wide : c->heads * c->e;
    int many = ssm && c->by_channel ? wide * c->e : c->heads;
    s->node.args.scan = (gw_scan_args){.kind = c->scan,
                                       .heads = c->heads,
                                       .groups = c->kv_heads,
                                       .k_dim = c->e,
                                       .v_dim = c->v_dim,
                                       .by_channel = c->by_channel,
                                       .tiled = c->tiled,
                                       .eps = 1e-6f,
                                       .q_scale = 1.0f / (float)c->e,
                                       .k_scale = (float)(1.0 / sqrt(c->e)),
                                       .low = c->bounded ? -2.5f : 0.2f,
                                       .high = 2.0f};
    s->node.in[0] = oc_floats(s, "input", wide + 2 * c->kv_heads * c->e, 1.0f);
    oc_state(s, wide * c->e);
    gw_tensor *logits = oc_floats(s, "decay", c->together ? 2 * c->heads : decays, 2.0f);
    ((float *)oc_host(s, logits))[decays / 2] += c->wild ? NAN : 0.0f; /* stays NaN within limits */
    oc_upload(s, logits);
    s->node.in[2] = logits;
    s->node.in[3] = ssm ? NULL : c->together ? s->node.in[2] : oc_floats(s, "beta", c->heads, 2.0f);
    gw_tensor *a = oc_vector(s, "A", many, 1.0f);
    float *values = oc_host(s, a);
    for (int h = 0; h < many; h++) {
        values[h] = -0.1f - fabsf(values[h]);
    }
    assert_int_equal(s->backend->write(a->buf, 0, values, oc_tensor_bytes(a)), GW_OK);
    s->node.w[0] = a;
    s->node.w[1] = c->tiled ? NULL : oc_vector(s, "bias", decays, 1.0f);
    s->node.w[2] = ssm ? oc_vector(s, "D", ssm && c->by_channel ? wide : c->heads, 1.0f) : NULL;
    oc_make_output(s, GW_FMT_F32, wide);
}

static void oc_group_norm(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.group_norm = (gw_group_norm_args){.groups = c->kv_heads,
                                                   .eps = 1e-5f,
                                                   .gate_act = c->act,
                                                   .gate_first = c->gate_first,
                                                   .center = c->center,
                                                   .measure = c->measure};
    s->node.in[0] = oc_floats(s, "input", c->k, 3.0f);
    s->node.in[1] = c->gates > 0 ? oc_floats(s, "gate", c->k, 2.0f) : NULL;
    s->node.w[0] = c->bare ? NULL : oc_vector(s, "norm", c->wide ? c->k : c->k / c->kv_heads, 2.0f);
    s->node.w[1] = c->norm_bias ? oc_vector(s, "bias", c->k, 1.0f) : NULL;
    oc_make_output(s, GW_FMT_F32, c->measure ? c->kv_heads : c->k);
}

/* heads streams from kv_heads inputs, k columns each. */
static void oc_streams(op_setup *s) {
    const op_case *c = s->c;
    int wide = c->heads * c->k;
    s->node.args.streams = (gw_streams_args){
        .streams = c->heads, .inputs = c->kv_heads, .from = c->first, .plus = c->scale};
    s->node.in[0] = oc_floats(s, "input", c->kv_heads * c->k, 1.0f);
    s->node.in[1] =
        c->gates > 0 ? oc_floats(s, "coefficients", c->heads * c->kv_heads, 1.0f) : NULL;
    s->node.in[2] = c->addend > 0 ? oc_floats(s, "base", wide, 1.0f) : NULL;
    oc_make_output(s, GW_FMT_F32, wide);
}

static void oc_sparse_glu(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.sparse = (gw_sparse_args){.act = c->act, .deviations = c->scale};
    s->node.in[0] = oc_floats(s, "input", 2 * c->k, 2.0f);
    oc_make_output(s, GW_FMT_F32, c->k);
}

static void oc_heads(op_setup *s, int mapped) {
    const op_case *c = s->c;
    s->node.args.heads =
        (gw_heads_args){.heads = c->heads, .pass_first = c->first, .pass = c->pass};
    s->node.in[0] = oc_floats(s, "input", c->heads * c->e, 1.0f);
    s->node.w[0] = oc_weight(s, c->fmt[0], c->heads * c->m[0], c->k, 1, mapped);
    oc_make_output(s, GW_FMT_F32, c->heads * (c->pass + c->m[0]));
}

static void oc_columns(op_setup *s) {
    const op_case *c = s->c;
    int wide = c->m[0];
    s->node.args.columns.first = c->first;
    s->node.in[0] = oc_floats(s, "input", c->k, 1.0f);
    for (int i = 1; i < 3 && c->together; i++) {
        s->node.in[i] = oc_floats(s, "input", c->m[i], 1.0f);
        wide += c->m[i];
    }
    s->node.in[3] = s->node.in[2];
    wide += c->together ? c->m[2] : 0;
    oc_make_output(s, GW_FMT_F32, wide);
}

/* Heads of k columns, then m. */
static void oc_widen(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.widen.heads = c->heads;
    s->node.in[0] = oc_floats(s, "input", c->heads * c->k, 1.0f);
    oc_make_output(s, GW_FMT_F32, c->heads * c->m[0]);
}

#include "tests/op_listed.h"

/* Tokens come from the step, or every other one from in0. */
static void oc_embed(op_setup *s, int mapped) {
    const op_case *c = s->c;
    s->node.w[0] = oc_weight(s, c->fmt[0], c->m[0], c->k, 1, mapped);
    s->node.args.embed = (gw_embed_args){.scale = c->scale, .offset = c->place_offset};
    if (c->places > 0) {
        s->node.w[1] = oc_weight(s, GW_FMT_F16, c->places, c->k, 1, mapped);
    }
    if (c->types > 0) {
        s->node.w[2] = oc_weight(s, GW_FMT_F32, c->types, c->k, 1, mapped);
    }
    if (c->pick) {
        gw_tensor *ids = oc_matrix(s, "ids", GW_FMT_I32, s->rows, 1);
        int32_t *id = oc_host(s, ids);
        for (int i = 0; i < s->rows; i++) {
            id[i] = i == 2 ? -1 : 5 + i;
            s->step.token[i] = i % 2 == 0 ? -1 : s->step.token[i];
        }
        oc_upload(s, ids);
        s->node.in[0] = ids;
    }
    oc_make_output(s, GW_FMT_F32, c->k);
}

/* keep_rows, mapped: how weights are loaded. The case must stay while the setup does. */
static void oc_open(op_setup *s, const op_case *c, const gw_backend *backend,
                    struct gw_device *device, int keep_rows, int mapped) {
    memset(s, 0, sizeof *s);
    s->c = c;
    s->backend = backend;
    s->device = device;
    s->rows = c->n + (c->spare > 0 ? c->spare : OC_SPARE_ROWS);
    s->node.op = c->op;
    s->node.what = c->why;
    random_seed(0);
    s->step.n = c->op == GW_OP_PICK ? c->n + c->pick : c->n;
    s->step.n_pick = c->n;
    s->step.pick = c->pick;
    for (int i = 0; i < s->step.n; i++) {
        s->step.slot[i] = c->slots > 1 ? i % c->slots : 0;
        s->step.slot[i] = c->pool != GW_PICK_ROWS ? i * c->n / s->step.n : s->step.slot[i];
        s->step.pos[i] = c->pos + i;
        s->step.last[i] = c->pos + c->n - 1 + c->ahead;
        s->step.pos_max = c->both ? s->step.last[i] : c->pos + i;
        s->step.type[i] = c->types > 0 ? i % c->types : 0;
        int rotates = c->op == GW_OP_ROPE_KV || c->op == GW_OP_ROTATE;
        s->step.less[i] = rotates ? (c->pos + i) / 3 : c->types > 0 ? i / 2 : 0;
        s->step.token[i] = c->op == GW_OP_EMBED ? (i * 7 + 3) % c->m[0] : 0;
    }
    switch (c->op) {
    case GW_OP_EMBED:
        oc_embed(s, mapped);
        break;
    case GW_OP_SAMPLE:
        oc_sample(s);
        break;
    case GW_OP_LINEAR:
        oc_product(s, 3, keep_rows, mapped);
        break;
    case GW_OP_GLU:
        oc_product(s, 2, keep_rows, mapped);
        break;
    case GW_OP_ROPE_KV:
        oc_rope(s);
        break;
    case GW_OP_ATTENTION:
        oc_attention(s);
        break;
    case GW_OP_ACT:
        oc_act(s);
        break;
    case GW_OP_MIX:
        oc_mix(s);
        break;
    case GW_OP_ROUTE:
        oc_route(s);
        break;
    case GW_OP_EXPERTS_GLU:
    case GW_OP_EXPERTS_DOWN:
        oc_experts(s, keep_rows, mapped);
        break;
    case GW_OP_EXPERTS_LORA_A:
    case GW_OP_EXPERTS_LORA_B:
        oc_experts_lora(s, mapped);
        break;
    case GW_OP_CONV:
        oc_conv(s);
        break;
    case GW_OP_SCAN:
        oc_scan(s);
        break;
    case GW_OP_EXP_GATES:
        oc_exp_gates(s);
        break;
    case GW_OP_DIVIDE:
        oc_divide(s);
        break;
    case GW_OP_GROUP_NORM:
        oc_group_norm(s);
        break;
    case GW_OP_HEADS:
        oc_heads(s, mapped);
        break;
    case GW_OP_STREAMS:
        oc_streams(s);
        break;
    case GW_OP_SPARSE_GLU:
        oc_sparse_glu(s);
        break;
    case GW_OP_COLUMNS:
        oc_columns(s);
        break;
    case GW_OP_WIDEN:
        oc_widen(s);
        break;
    case GW_OP_HYPER:
        oc_hyper(s);
        break;
    case GW_OP_ROTATE:
        oc_rotate(s);
        break;
    case GW_OP_GROUP_DOT:
        oc_group_dot(s);
        break;
    case GW_OP_COMPRESS:
        oc_compress(s);
        break;
    case GW_OP_CHOOSE:
        oc_choose(s);
        break;
    case GW_OP_LISTED:
        oc_listed(s);
        break;
    case GW_OP_NGRAM:
        oc_ngram(s, mapped);
        break;
    default:
        oc_rowwise(s);
        break;
    }
    assert_int_equal(gw_op_describe(c->op)->check(&s->node), GW_OK);
}

static void oc_close(op_setup *s) {
    for (int i = 0; i < s->n_owned; i++) {
        s->backend->release(s->owned[i]);
    }
    for (int i = 0; i < s->n_t; i++) {
        free(s->host[i]);
    }
}

static unsigned char *oc_download(const op_setup *s, const gw_tensor *t, size_t at, size_t bytes) {
    unsigned char *p = oc_alloc(bytes);
    assert_int_equal(s->backend->read(t->buf, at, p, bytes), GW_OK);
    return p;
}

/* Run the node with one kernel; the result holds the live rows (and the caches). */
/* Which NaN a NaN is nobody defines (docs/arithmetic.md, section 1): floats of f32, scales of act8
 * that are NaN become the same one. */
static void oc_one_nan(unsigned char *bytes, size_t n, gw_fmt fmt) {
    size_t step = fmt == GW_FMT_ACT8 ? sizeof(gw_act8) : sizeof(float);
    for (size_t at = 0; at + step <= n; at += step) {
        float v;
        memcpy(&v, bytes + at, sizeof v);
        v = isnan(v) ? NAN : v;
        memcpy(bytes + at, &v, sizeof v);
    }
}

static void oc_run(op_setup *s, const gw_kernel *kernel, op_result *r) {
    struct gw_segment *segment;
    memset(r, 0, sizeof *r);
    s->node.kernel = kernel;
    int rows = s->rows + (s->c->op == GW_OP_PICK ? s->c->pick : 0);
    assert_int_equal(s->backend->freeze(s->device, &s->node, 1, rows, &segment), GW_OK);
    assert_int_equal(s->backend->run(segment, &s->step), GW_OK);
    assert_int_equal(s->backend->wait(s->device), GW_OK);
    s->backend->segment_free(segment);

    size_t all = oc_tensor_bytes(s->node.out) + 2 * OC_FENCE;
    unsigned char *out = oc_download(s, s->node.out, 0, all);
    for (size_t i = 0; i < all; i++) {
        int inside = i >= OC_FENCE && i < OC_FENCE + s->out_bytes;
        if (!inside && out[i] != 0xff) {
            fail_msg("%s (%s) wrote byte %zu of %zu, outside its rows", kernel->name, s->c->why, i,
                     all);
        }
    }
    r->out_bytes = s->out_bytes;
    r->out = oc_alloc(s->out_bytes);
    memcpy(r->out, out + OC_FENCE, s->out_bytes);
    free(out);
    const int nans = s->c->wild && (s->c->op == GW_OP_NORM || s->c->op == GW_OP_SCAN);
    if (nans) {
        oc_one_nan(r->out, r->out_bytes, s->node.out->fmt);
    }
    if (s->c->op == GW_OP_CONV || s->c->op == GW_OP_SCAN || s->c->op == GW_OP_COMPRESS ||
        s->c->op == GW_OP_NGRAM || s->c->op == GW_OP_EXP_GATES) { /* its state */
        r->cache_bytes = oc_tensor_bytes(s->node.in[1]);
        r->k = oc_download(s, s->node.in[1], 0, r->cache_bytes);
        oc_one_nan(r->k, nans ? r->cache_bytes : 0, GW_FMT_F32);
    }
    if (s->c->op == GW_OP_ROPE_KV && s->c->kv_heads > 0) {
        r->cache_bytes = oc_tensor_bytes(s->node.in[1]);
        r->value_bytes = s->c->within ? 0 : oc_tensor_bytes(s->node.in[2]);
        r->k = oc_download(s, s->node.in[1], 0, r->cache_bytes);
        r->v = s->c->within ? NULL : oc_download(s, s->node.in[2], 0, r->value_bytes);
    }
}

static void oc_same_bytes(const char *name, const op_case *c, const char *what,
                          const unsigned char *a, const unsigned char *b, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i]) {
            float got, want;
            memcpy(&got, a + i / 4 * 4, 4);
            memcpy(&want, b + i / 4 * 4, 4);
            fail_msg("%s (%s) n %d: %s differ at byte %zu of %zu: as floats %.9g, not %.9g", name,
                     c->why, c->n, what, i, bytes, (double)got, (double)want);
        }
    }
}

static void oc_same(const char *name, const op_case *c, const op_result *got,
                    const op_result *want) {
    assert_int_equal(got->out_bytes, want->out_bytes);
    oc_same_bytes(name, c, "outputs", got->out, want->out, got->out_bytes);
    if (want->k != NULL) {
        oc_same_bytes(name, c, "caches of K, or states", got->k, want->k, got->cache_bytes);
        if (want->v != NULL) {
            oc_same_bytes(name, c, "V caches", got->v, want->v, got->value_bytes);
        }
    }
}

/* The kernel of a table by its name's end (".scalar") that accepts the node; NULL when none. */
static const gw_kernel *oc_find(const op_setup *s, const char *suffix) {
    size_t n;
    const gw_kernel *kernels = s->backend->kernels(s->device, &n);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(kernels[i].name), end = strlen(suffix);
        if (length >= end && strcmp(kernels[i].name + length - end, suffix) == 0 &&
            gw_kernel_takes(&kernels[i], &s->node, s->device)) {
            return &kernels[i];
        }
    }
    return NULL;
}

#endif
