/* backends/selftest.c - every kernel of every device once, against the scalar CPU, on small inputs.
 *
 * The inputs of a case depend on the case alone. The oracle ("ref") is left out: it computes in
 * double precision, and its bits are meant to differ. tests/test_ops.c goes deeper.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/asked.h"
#include "backends/selftest_cases.h"
#include "core/plan/backend.h"
#include "core/tensor/sample.h"
#include "include/godwit_bind.h"

/* DISTINCT: so many rows of weights differ, then they repeat. A prime: no tile of rows begins twice
 * with the same one. */
enum { TENSORS = 12, FENCE = 256, SPARE = 2, DISTINCT = 29 };

/* ---- inputs --------------------------------------------------------------------------------- */

typedef struct setup {
    const self_case *c;
    const gw_backend *backend;
    struct gw_device *device;
    gw_node node;
    gw_tensor t[TENSORS];
    void *host[TENSORS];
    int n_t;
    struct gw_buffer *owned[TENSORS];
    int n_owned;
    size_t out_bytes;
    gw_step step;
    uint32_t random;
} setup;

static uint32_t next(setup *s) {
    s->random ^= s->random << 13;
    s->random ^= s->random >> 17;
    s->random ^= s->random << 5;
    return s->random;
}
static float uniform(setup *s) { return (float)(next(s) >> 8) * 0x1p-23f - 1.0f; }

static gw_status nomem(void) { return gw_fail(GW_E_NOMEM, "self-test", "no memory"); }

static gw_status tensor_bytes(const gw_tensor *t, size_t *bytes) {
    uint64_t rows = 1;
    for (int i = 0; i + 1 < t->n_dim; i++) {
        rows *= (uint64_t)t->dim[i];
    }
    return gw_matrix_bytes(t->fmt, rows, (uint64_t)t->dim[t->n_dim - 1], bytes);
}

/* A tensor with zeroed memory on the host, to be filled and sent. */
static gw_status add(setup *s, const char *name, gw_fmt fmt, const int64_t *dim, int n_dim,
                     gw_tensor **out) {
    gw_tensor *t = &s->t[s->n_t];
    size_t bytes = 0;
    *t = (gw_tensor){.name = name, .fmt = fmt, .n_dim = n_dim};
    memcpy(t->dim, dim, (size_t)n_dim * sizeof *dim);
    GW_TRY(tensor_bytes(t, &bytes));
    s->host[s->n_t] = calloc(1, bytes + 1);
    if (s->host[s->n_t] == NULL) {
        return nomem();
    }
    s->n_t++;
    *out = t;
    return GW_OK;
}

static gw_status upload(setup *s, gw_tensor *t) {
    size_t bytes = 0;
    GW_TRY(tensor_bytes(t, &bytes));
    GW_TRY(s->backend->alloc(s->device, bytes, &t->buf));
    s->owned[s->n_owned++] = t->buf;
    return s->backend->write(t->buf, 0, s->host[t - s->t], bytes);
}

/* Floats in -scale..scale on the device. */
static gw_status floats(setup *s, const char *name, const int64_t *dim, int n_dim, float scale,
                        gw_tensor **out) {
    size_t bytes = 0;
    GW_TRY(add(s, name, GW_FMT_F32, dim, n_dim, out));
    GW_TRY(tensor_bytes(*out, &bytes));
    float *x = s->host[*out - s->t];
    for (size_t i = 0; i < bytes / sizeof *x; i++) {
        x[i] = scale * uniform(s);
    }
    return upload(s, *out);
}

static gw_status operand(setup *s, int cols, float scale, const gw_tensor **out) {
    int64_t dim[2] = {s->c->n + SPARE, cols};
    gw_tensor *t = NULL;
    GW_TRY(floats(s, "input", dim, 2, scale, &t));
    *out = t;
    return GW_OK;
}

static gw_status numbers(setup *s, int64_t n, float scale, const gw_tensor **out) {
    gw_tensor *t = NULL;
    GW_TRY(floats(s, "vector", &n, 1, scale, &t));
    *out = t;
    return GW_OK;
}

/* A weight row: encoded where the engine can, else random blocks that decode to moderate numbers.
 */
static void fill_row(setup *s, gw_fmt fmt, void *row, float *x, size_t cols) {
    const gw_format *f = gw_format_of(fmt);
    for (size_t i = 0; i < cols; i++) {
        x[i] = uniform(s);
    }
    if (f->encode != NULL) {
        f->encode(row, x, cols);
        return;
    }
    for (size_t b = 0; b < cols / f->block_elems; b++) {
        unsigned char *block = (unsigned char *)row + f->row_header + b * f->block_bytes;
        for (int moderate = 0; !moderate;) {
            for (size_t i = 0; i < f->block_bytes; i++) {
                block[i] = (unsigned char)(next(s) >> 11);
            }
            f->decode(x, block, f->block_elems);
            moderate = 1;
            for (size_t i = 0; i < f->block_elems; i++) {
                moderate &= fabsf(x[i]) < 100.0f;
            }
        }
    }
}

typedef struct rows_of {
    const unsigned char *bytes;
    size_t row_bytes;
} rows_of;

static gw_status produce(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const rows_of *r = src->state;
    memcpy(dst, r->bytes + (size_t)first * r->row_bytes, (size_t)n * r->row_bytes);
    return GW_OK;
}

static gw_status weight(setup *s, int keep_rows, const gw_tensor **out) {
    const self_case *c = s->c;
    int n_rows = c->experts > 0 ? c->experts * c->m : c->m;
    int64_t dim[2] = {n_rows, c->k};
    gw_tensor *t = NULL;
    rows_of rows = {NULL, 0};
    GW_TRY(add(s, "weight", c->fmt, dim, 2, &t));
    GW_TRY(gw_row_bytes(c->fmt, (uint64_t)c->k, &rows.row_bytes));
    float *x = malloc((size_t)c->k * sizeof *x);
    if (x == NULL) {
        return nomem();
    }
    rows.bytes = s->host[t - s->t];
    unsigned char *row = s->host[t - s->t];
    for (int r = 0; r < n_rows; r++, row += rows.row_bytes) {
        if (r < DISTINCT) {
            fill_row(s, c->fmt, row, x, (size_t)c->k);
        } else {
            memcpy(row, row - DISTINCT * rows.row_bytes, rows.row_bytes);
        }
    }
    free(x);
    gw_weight_source src = {.rows = produce, .state = &rows, .keep_rows = keep_rows};
    GW_TRY(s->backend->load_weight(s->device, t, &src));
    s->owned[s->n_owned++] = t->buf;
    *out = t;
    return GW_OK;
}

/* What the weights take as input: floats, or blocks of int8. */
static gw_status input(setup *s, int cols, gw_tensor **out) {
    const self_case *c = s->c;
    int64_t dim[2] = {c->n + SPARE, cols};
    float block[GW_ACT_BLOCK];
    if (gw_format_of(c->fmt)->is_float) {
        return floats(s, "input", dim, 2, 1.0f, out);
    }
    GW_TRY(add(s, "input", GW_FMT_ACT8, dim, 2, out));
    gw_act8 *x = s->host[*out - s->t];
    for (int64_t i = 0; i < dim[0] * dim[1] / GW_ACT_BLOCK; i++) {
        for (int j = 0; j < GW_ACT_BLOCK; j++) {
            block[j] = uniform(s) * (float)(1 + i % 3);
        }
        gw_act8_encode(&x[i], block);
    }
    return upload(s, *out);
}

/* The result, poisoned with NaN and fenced. */
static gw_status output(setup *s, int cols) {
    const self_case *c = s->c;
    int64_t dim[2] = {c->n + SPARE, cols};
    size_t bytes = 0, row = 0;
    gw_tensor *t = NULL;
    gw_fmt fmt = c->out == GW_FMT_ACT8 || c->out == GW_FMT_I32 ? c->out : GW_FMT_F32;
    GW_TRY(add(s, "output", fmt, dim, 2, &t));
    GW_TRY(tensor_bytes(t, &bytes));
    GW_TRY(gw_row_bytes(fmt, (uint64_t)cols, &row));
    void *poison = malloc(bytes + 2 * FENCE);
    if (poison == NULL) {
        return nomem();
    }
    memset(poison, 0xff, bytes + 2 * FENCE);
    gw_status status = s->backend->alloc(s->device, bytes + 2 * FENCE, &t->buf);
    if (status == GW_OK) {
        s->owned[s->n_owned++] = t->buf;
        status = s->backend->write(t->buf, 0, poison, bytes + 2 * FENCE);
    }
    free(poison);
    t->offset = FENCE;
    s->node.out = t;
    s->out_bytes = (size_t)c->n * row;
    return status;
}

/* Any finite cache: codes and small scales, or floats. */
static void fill_cache(setup *s, gw_tensor *t, size_t bytes) {
    unsigned char *p = s->host[t - s->t];
    size_t e = (size_t)s->c->e, page = GW_PAGE * e, blocks = page / 32;
    int bits = s->c->fmt == GW_FMT_Q8_0 ? 8 : gw_cache_bits(s->c->fmt); /* 0: floats */
    size_t codes = page / 8 * (size_t)bits, whole = codes + 2 * blocks;
    for (size_t i = 0; bits > 0 && i < bytes; i++) {
        p[i] = (unsigned char)(next(s) >> 11);
    }
    for (size_t i = 0; bits > 0 && i < bytes / whole; i++) {
        for (size_t k = 0; k < blocks; k++) {
            gw_u16 scale = gw_f32_to_f16(0.01f + 0.005f * uniform(s));
            memcpy(p + i * whole + codes + 2 * k, &scale, sizeof scale);
        }
    }
    for (size_t i = 0; s->c->fmt == GW_FMT_F16 && i < bytes / 2; i++) {
        ((gw_u16 *)(void *)p)[i] = gw_f32_to_f16(uniform(s));
    }
    for (size_t i = 0; s->c->fmt == GW_FMT_F32 && i < bytes / 4; i++) {
        ((float *)(void *)p)[i] = uniform(s);
    }
}

static gw_status caches(setup *s) {
    const self_case *c = s->c;
    int pages = (c->pos + c->n - 1) / GW_PAGE + 2;
    int64_t k_dim[4] = {pages, c->kv_heads, c->e, GW_PAGE},
            v_dim[4] = {pages, c->kv_heads, GW_PAGE, c->e}, p_dim[2] = {1, pages};
    gw_tensor *t[3] = {NULL, NULL, NULL};
    size_t bytes = 0;
    GW_TRY(add(s, "K", c->fmt, k_dim, 4, &t[0]));
    GW_TRY(add(s, "V", c->fmt, v_dim, 4, &t[1]));
    GW_TRY(add(s, "pages", GW_FMT_I32, p_dim, 2, &t[2]));
    GW_TRY(tensor_bytes(t[0], &bytes));
    fill_cache(s, t[0], bytes);
    fill_cache(s, t[1], bytes);
    for (int i = 0; i < pages; i++) {
        ((int32_t *)s->host[t[2] - s->t])[i] = pages - 1 - i;
    }
    for (int i = 0; i < 3; i++) {
        GW_TRY(upload(s, t[i]));
        s->node.in[1 + i] = t[i];
    }
    return GW_OK;
}

static gw_status rope(setup *s) {
    const self_case *c = s->c;
    int64_t x_dim[2] = {c->n + SPARE, (c->heads + 2 * c->kv_heads) * c->e}, e_dim[1] = {c->e},
            table_dim[3] = {c->pos + c->n + SPARE, 2, c->e / 2};
    gw_tensor *x = NULL, *w = NULL;
    s->node.args.rope = (gw_rope_args){.heads = c->heads,
                                       .kv_heads = c->kv_heads,
                                       .head_dim = c->e,
                                       .rope_dim = c->e,
                                       .eps = 1e-5f,
                                       .style = GW_ROPE_HALVES};
    GW_TRY(floats(s, "qkv", x_dim, 2, 1.0f, &x));
    s->node.in[0] = x;
    GW_TRY(caches(s));
    for (int i = 0; i < 2; i++) {
        GW_TRY(floats(s, "head norm", e_dim, 1, 1.0f, &w));
        s->node.w[i] = w;
    }
    GW_TRY(floats(s, "rope", table_dim, 3, 1.0f, &w)); /* any numbers: they are only multiplied */
    s->node.w[2] = w;
    return output(s, c->heads * c->e);
}

static gw_status attention(setup *s) {
    const self_case *c = s->c;
    int64_t dim[2] = {c->n + SPARE, c->heads * c->e};
    gw_tensor *q = NULL;
    s->node.args.attn = (gw_attn_args){
        .scale = 0.125f, .heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->e};
    GW_TRY(floats(s, "q", dim, 2, 2.0f, &q));
    s->node.in[0] = q;
    GW_TRY(caches(s));
    return output(s, c->heads * c->e);
}

static gw_status product(setup *s, int keep_rows) {
    gw_tensor *x = NULL;
    s->node.args.linear.order = s->c->order;
    GW_TRY(input(s, s->c->k, &x));
    s->node.in[0] = x;
    for (int i = 0; i < (s->c->op == GW_OP_GLU ? 2 : 1); i++) {
        GW_TRY(weight(s, keep_rows, &s->node.w[i]));
    }
    return output(s, s->c->m);
}

/* Each row by all experts but one, in turn. */
static gw_status route_of(setup *s, int used, gw_tensor **out) {
    const self_case *c = s->c;
    int64_t dim[2] = {c->n + SPARE, 2 * used};
    GW_TRY(add(s, "route", GW_FMT_F32, dim, 2, out));
    float *at = s->host[*out - s->t];
    for (int i = 0; i < c->n + SPARE; i++, at += 2 * used) {
        for (int j = 0; j < used; j++) {
            at[j] = (float)(j < i % c->experts ? j : j + 1);
            at[used + j] = 0.75f + 0.5f * uniform(s);
        }
    }
    return upload(s, *out);
}

static gw_status experts(setup *s, int keep_rows) {
    const self_case *c = s->c;
    int glu = c->op == GW_OP_EXPERTS_GLU, used = c->experts - 1;
    gw_tensor *x = NULL, *route = NULL;
    s->node.args.experts = (gw_experts_args){
        .experts = c->experts, .used = used, .act = {.kind = GW_ACT_SILU}, .order = c->order};
    GW_TRY(input(s, glu ? c->k : used * c->k, &x));
    GW_TRY(route_of(s, used, &route));
    s->node.in[0] = x;
    s->node.in[1] = route;
    for (int i = 0; i < (glu ? 2 : 1); i++) {
        GW_TRY(weight(s, keep_rows, &s->node.w[i]));
    }
    return output(s, glu ? used * c->m : c->m);
}

/* Two adapters of half as many experts. */
static gw_status experts_lora(setup *s) {
    const self_case *c = s->c;
    int is_a = c->op == GW_OP_EXPERTS_LORA_A, used = c->experts / 2 - 1;
    int64_t dim[2] = {c->n + SPARE, 4};
    self_case half = *c;
    gw_tensor *x = NULL, *route = NULL, *adapters = NULL, *sums = NULL;
    s->node.args.experts_lora = (gw_experts_lora_args){.experts = c->experts / 2,
                                                       .used = used,
                                                       .places = 2,
                                                       .at_once = 2,
                                                       .rank = is_a ? c->m : c->k,
                                                       .sum = !is_a,
                                                       .gated = 1};
    GW_TRY(input(s, is_a ? c->k : 2 * used * c->k, &x));
    half.experts /= 2;
    s->c = &half;
    gw_status status = route_of(s, used, &route);
    s->c = c;
    GW_TRY(status);
    GW_TRY(floats(s, "adapters", dim, 2, 1.0f, &adapters));
    float *at = s->host[adapters - s->t];
    for (int i = 0; i < c->n + SPARE; i++, at += 4) {
        at[0] = 1.0f;
        at[1] = 2.0f;
    }
    GW_TRY(upload(s, adapters));
    GW_TRY(weight(s, 1, &s->node.w[0]));
    if (!is_a) {
        int64_t wide[2] = {c->n + SPARE, c->m};
        GW_TRY(floats(s, "sums", wide, 2, 1.0f, &sums));
    }
    s->node.in[0] = x;
    s->node.in[1] = route;
    s->node.in[2] = adapters;
    s->node.in[3] = sums;
    return output(s, is_a ? 2 * used * c->m : c->m);
}

static gw_status route(setup *s) {
    const self_case *c = s->c;
    int64_t dim[2] = {c->n + SPARE, c->experts};
    gw_tensor *x = NULL;
    s->node.args.route = (gw_route_args){.used = c->experts - 1, .score = GW_SCORE_SOFTMAX};
    GW_TRY(floats(s, "logits", dim, 2, 3.0f, &x));
    s->node.in[0] = x;
    return output(s, 2 * (c->experts - 1));
}

static gw_status rowwise(setup *s) {
    const self_case *c = s->c;
    int64_t dim[2] = {c->n + SPARE,
                      c->op == GW_OP_ACT || c->op == GW_OP_SPARSE_GLU ? 2 * c->k : c->k},
            w_dim[1] = {c->k}, gate_dim[2] = {c->n + SPARE, 4};
    gw_tensor *x = NULL, *w = NULL;
    GW_TRY(floats(s, "input", dim, 2, 3.0f, &x));
    s->node.in[0] = x;
    if (c->op == GW_OP_NORM) {
        GW_TRY(floats(s, "norm", w_dim, 1, 2.0f, &w));
        s->node.w[0] = w;
        s->node.args.norm.eps = 1e-5f;
    }
    if (c->op == GW_OP_ACT) {
        s->node.args.act = (gw_act_args){.kind = GW_ACT_GELU, .gated = 1};
    }
    if (c->op == GW_OP_MIX) {
        s->node.args.mix = (gw_mix_args){.scale = 0.5f, .cap = 2.0f, .gate_act = GW_ACT_SIGMOID};
        GW_TRY(floats(s, "gate", gate_dim, 2, 2.0f, &w));
        s->node.in[1] = w;
    }
    if (c->op == GW_OP_STREAMS) { /* four from four */
        gate_dim[1] = 16;
        GW_TRY(floats(s, "coefficients", gate_dim, 2, 1.0f, &w));
        s->node.in[1] = w;
        s->node.args.streams = (gw_streams_args){.streams = 4, .inputs = 4, .plus = 0.25f};
    }
    if (c->op == GW_OP_SPARSE_GLU) {
        s->node.args.sparse = (gw_sparse_args){.act = GW_ACT_GELU_TANH, .deviations = 0.5f};
    }
    if (c->op == GW_OP_GROUP_NORM) {
        s->node.args.group_norm =
            (gw_group_norm_args){.groups = 3, .eps = 1e-5f, .center = c->center};
        if (c->center) {
            GW_TRY(numbers(s, c->k, 1.0f, &s->node.w[1]));
        }
    }
    return output(s, c->k);
}

/* A state of so many floats, of a sequence that has begun. */
static gw_status state(setup *s, int64_t width) {
    int64_t dim[3] = {1, 17, width};
    gw_tensor *t = NULL;
    GW_TRY(floats(s, "state", dim, 3, 1.0f, &t));
    s->node.in[1] = t;
    return GW_OK;
}

static gw_status conv(setup *s) {
    enum { TAPS = 4 };
    int64_t dim[2] = {s->c->n + SPARE, s->c->k}, taps[1] = {(int64_t)s->c->k * TAPS};
    gw_tensor *x = NULL, *w = NULL;
    const int spacing = s->c->m > 1 ? s->c->m : 1;
    s->node.args.conv = (gw_conv_args){.taps = TAPS, .act = GW_ACT_SILU, .apart = spacing};
    GW_TRY(floats(s, "input", dim, 2, 2.0f, &x));
    GW_TRY(floats(s, "taps", taps, 1, 1.0f, &w));
    s->node.in[0] = x;
    s->node.w[0] = w;
    GW_TRY(state(s, (TAPS - 1) * (int64_t)spacing * s->c->k));
    return output(s, s->c->k);
}

/* e keys, k values of a head; a step of SSM has no limits that it meets. */
static gw_status scan(setup *s) {
    const self_case *c = s->c;
    const int delta = c->scan == GW_SCAN_DELTA, wkv = c->scan == GW_SCAN_WKV;
    const int ssm = c->scan == GW_SCAN_SSM;
    const int keys = c->heads * c->e, wide = c->heads * c->k;
    const int decays = wkv || (delta && c->by_channel) ? keys : c->by_channel ? wide : c->heads;
    s->node.args.scan = (gw_scan_args){.kind = c->scan,
                                       .heads = c->heads,
                                       .groups = c->kv_heads,
                                       .k_dim = c->e,
                                       .v_dim = c->k,
                                       .by_channel = c->by_channel,
                                       .eps = 1e-6f,
                                       .q_scale = 0.05f,
                                       .k_scale = 0.2f,
                                       .low = c->center ? -2.5f : 0.0f,
                                       .high = INFINITY};
    GW_TRY(operand(s, wkv ? 3 * keys + wide : wide + 2 * c->kv_heads * c->e, 1.0f, &s->node.in[0]));
    GW_TRY(operand(s, decays, 2.0f, &s->node.in[2]));
    if (delta || wkv) { /* the strength of a write, or what is taken back */
        GW_TRY(operand(s, wkv ? keys : c->heads, wkv ? 0.5f : 2.0f, &s->node.in[3]));
    }
    if (delta || ssm) {
        const int many = delta ? c->heads : decays * (c->by_channel ? c->e : 1);
        GW_TRY(numbers(s, many, -0.5f, &s->node.w[0]));
    }
    if (ssm) {
        GW_TRY(numbers(s, decays, 1.0f, &s->node.w[1]));
        GW_TRY(numbers(s, decays, 1.0f, &s->node.w[2]));
    }
    GW_TRY(state(s, (int64_t)wide * c->e));
    return output(s, wide);
}

/* EXP_GATES, DIVIDE: a number of each of four columns. */
static gw_status gates(setup *s) {
    const int four = s->c->k / 4;
    if (s->c->op == GW_OP_DIVIDE) {
        s->node.args.divide.eps = 1e-6f;
        GW_TRY(operand(s, s->c->k, 1.0f, &s->node.in[0]));
        GW_TRY(operand(s, four, 1.0f, &s->node.in[1]));
        GW_TRY(operand(s, four, 1.0f, &s->node.in[2]));
        return output(s, s->c->k);
    }
    GW_TRY(operand(s, 2 * four, 3.0f, &s->node.in[0]));
    GW_TRY(state(s, four));
    return output(s, 3 * four);
}

/* Two heads, k columns of each. */
static gw_status heads(setup *s) {
    int64_t dim[2] = {s->c->n + SPARE, 2 * (int64_t)s->c->k};
    gw_tensor *x = NULL;
    s->node.args.heads.heads = 2;
    GW_TRY(floats(s, "input", dim, 2, 1.0f, &x));
    s->node.in[0] = x;
    GW_TRY(weight(s, 1, &s->node.w[0]));
    return output(s, s->c->m);
}

static gw_status columns(setup *s) {
    int64_t dim[2] = {s->c->n + SPARE, s->c->k};
    gw_tensor *x = NULL;
    GW_TRY(floats(s, "input", dim, 2, 1.0f, &x));
    s->node.in[0] = s->node.in[1] = x;
    s->node.args.columns.first = 7;
    return output(s, 2 * s->c->k - 7);
}

/* Heads of k columns, then m. */
static gw_status widen(setup *s) {
    const self_case *c = s->c;
    s->node.args.widen.heads = c->heads;
    GW_TRY(operand(s, c->heads * c->k, 1.0f, &s->node.in[0]));
    return output(s, c->heads * c->m);
}

static gw_status sample(setup *s) {
    const self_case *c = s->c;
    int64_t dim[2] = {c->n + SPARE, c->k}, words[2] = {c->n + SPARE, GW_CHOICE_WORDS};
    const gw_choice choice = {.temperature = c->m > 0 ? 0.8f : 0.0f, .top_k = c->m, .first = 1};
    gw_tensor *x = NULL, *t = NULL;
    GW_TRY(floats(s, "logits", dim, 2, 12.0f, &x));
    GW_TRY(add(s, "choice", GW_FMT_I32, words, 2, &t));
    for (int64_t i = 0; i < words[0]; i++) {
        memcpy((gw_choice *)s->host[t - s->t] + i, &choice, sizeof choice);
    }
    GW_TRY(upload(s, t));
    s->node.in[0] = x;
    s->node.in[1] = t;
    return output(s, 1);
}

/* ---- compressed caches, lists and what comes with them -------------------------------------- */

enum { LIST_PAGES = 2, LIST_RATIO = 4, LIST_ROPE = 8 };

static gw_status angles(setup *s, const gw_tensor **out) {
    int64_t dim[3] = {s->c->pos + s->c->n, 2, LIST_ROPE / 2};
    gw_tensor *t = NULL;
    GW_TRY(floats(s, "rope", dim, 3, 1.0f, &t));
    *out = t;
    return GW_OK;
}

/* Pages of an area, and their table. */
static gw_status pages(setup *s, const gw_area *a, const gw_tensor **area,
                       const gw_tensor **table) {
    int64_t dim[2] = {LIST_PAGES, gw_area_floats(a)}, t_dim[2] = {1, LIST_PAGES};
    gw_tensor *t = NULL, *map = NULL;
    GW_TRY(floats(s, "area", dim, 2, 1.0f, &t));
    GW_TRY(add(s, "pages", GW_FMT_I32, t_dim, 2, &map));
    ((int32_t *)s->host[map - s->t])[1] = 1;
    GW_TRY(upload(s, map));
    *area = t;
    *table = map;
    return GW_OK;
}

static gw_status listed(setup *s, const gw_area *a) {
    const self_case *c = s->c;
    int64_t k_dim[4] = {LIST_PAGES, 1, c->e, GW_PAGE}, v_dim[4] = {LIST_PAGES, 1, GW_PAGE, c->e};
    gw_tensor *k = NULL, *v = NULL;
    GW_TRY(floats(s, "K", k_dim, 4, 1.0f, &k));
    GW_TRY(floats(s, "V", v_dim, 4, 1.0f, &v));
    s->node.in[1] = k;
    s->node.in[2] = v;
    GW_TRY(pages(s, a, &s->node.in[5], &s->node.in[3]));
    s->node.args.listed = (gw_listed_args){.area = *a,
                                           .scale = 0.25f,
                                           .heads = c->heads,
                                           .kv_heads = 1,
                                           .head_dim = c->e,
                                           .window = 5};
    return output(s, c->k);
}

static gw_status compressed(setup *s) {
    const self_case *c = s->c;
    const int blocks = c->op == GW_OP_CHOOSE && c->center;
    const gw_area a = {
        .width = blocks ? 0 : 2 * c->e, .ratio = blocks ? 1 : LIST_RATIO, .entry = c->e};
    GW_TRY(operand(s, c->op == GW_OP_COMPRESS ? a.width : c->k, 1.0f, &s->node.in[0]));
    if (c->op == GW_OP_LISTED) {
        return listed(s, &a);
    }
    GW_TRY(pages(s, &a, &s->node.in[1], &s->node.in[2]));
    if (c->op == GW_OP_CHOOSE) {
        enum { MOST = 3 };
        s->node.args.choose = (gw_choose_args){.area = a,
                                               .heads = c->heads,
                                               .block = blocks ? LIST_RATIO : 0,
                                               .local = blocks,
                                               .ties = blocks ? GW_TIES_LOWEST : GW_TIES_COMPLETE};
        return output(s, MOST * (blocks ? c->heads : 1));
    }
    s->node.args.compress =
        (gw_compress_args){.area = a, .series = 1, .rope_dim = LIST_ROPE, .eps = 1e-5f};
    GW_TRY(numbers(s, LIST_RATIO * c->e, 1.0f, &s->node.w[0]));
    GW_TRY(numbers(s, c->e, 1.0f, &s->node.w[1]));
    GW_TRY(angles(s, &s->node.w[2]));
    return output(s, 1);
}

static gw_status beside_lists(setup *s) {
    const self_case *c = s->c;
    if (c->op == GW_OP_NGRAM) {
        s->node.args.ngram = (gw_ngram_args){.size = 3, .heads = 1, .vocab = 50, .base = 5};
        GW_TRY(weight(s, 1, &s->node.w[0]));
        GW_TRY(state(s, 2));
        return output(s, 2 * c->k);
    }
    GW_TRY(operand(s, c->k, 1.0f, &s->node.in[0]));
    if (c->op == GW_OP_GROUP_DOT) {
        s->node.in[1] = s->node.in[0];
        s->node.args.dot = (gw_dot_args){.groups = 4, .scale = 0.5f, .root = 1};
        return output(s, 4);
    }
    if (c->op == GW_OP_ROTATE) {
        s->node.args.rotate =
            (gw_rotate_args){.heads = c->heads, .first = 4, .rope_dim = LIST_ROPE, .back = 1};
        GW_TRY(angles(s, &s->node.w[0]));
        return output(s, c->k);
    }
    s->node.args.hyper = (gw_hyper_args){.streams = 4, .rounds = 3, .eps = 1e-6f};
    GW_TRY(numbers(s, 3, 1.0f, &s->node.w[0]));
    GW_TRY(numbers(s, c->k, 1.0f, &s->node.w[1]));
    return output(s, c->k);
}

static gw_status open_case(setup *s, const self_case *c, const gw_backend *backend,
                           struct gw_device *device, int keep_rows) {
    memset(s, 0, sizeof *s);
    s->c = c;
    s->backend = backend;
    s->device = device;
    s->node.op = c->op;
    s->node.what = "self-test";
    s->random = 2463534242u;
    s->step.n = s->step.n_pick = c->n;
    for (int i = 0; i < c->n; i++) {
        s->step.pos[i] = s->step.pos_max = c->pos + i;
        s->step.token[i] = c->op == GW_OP_EMBED ? (i * 7 + 3) % c->m : 0;
    }
    if (c->op == GW_OP_EMBED) {
        GW_TRY(weight(s, 1, &s->node.w[0]));
        return output(s, c->k);
    }
    switch (c->op) {
    case GW_OP_LINEAR:
    case GW_OP_GLU:
        return product(s, keep_rows);
    case GW_OP_EXPERTS_GLU:
    case GW_OP_EXPERTS_DOWN:
        return experts(s, keep_rows);
    case GW_OP_EXPERTS_LORA_A:
    case GW_OP_EXPERTS_LORA_B:
        return experts_lora(s);
    case GW_OP_ROUTE:
        return route(s);
    case GW_OP_ROPE_KV:
        return rope(s);
    case GW_OP_ATTENTION:
        return attention(s);
    case GW_OP_SAMPLE:
        return sample(s);
    case GW_OP_CONV:
        return conv(s);
    case GW_OP_SCAN:
        return scan(s);
    case GW_OP_EXP_GATES:
    case GW_OP_DIVIDE:
        return gates(s);
    case GW_OP_HEADS:
        return heads(s);
    case GW_OP_COLUMNS:
        return columns(s);
    case GW_OP_WIDEN:
        return widen(s);
    case GW_OP_COMPRESS:
    case GW_OP_CHOOSE:
    case GW_OP_LISTED:
        return compressed(s);
    case GW_OP_HYPER:
    case GW_OP_ROTATE:
    case GW_OP_GROUP_DOT:
    case GW_OP_NGRAM:
        return beside_lists(s);
    default:
        return rowwise(s);
    }
}

static void close_case(setup *s) {
    for (int i = 0; i < s->n_owned; i++) {
        s->backend->release(s->owned[i]);
    }
    for (int i = 0; i < s->n_t; i++) {
        free(s->host[i]);
    }
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* All that a run leaves: the fenced output, and caches behind it. */
typedef struct result {
    unsigned char *bytes;
    size_t n;
} result;

static gw_status fetch(setup *s, result *r) {
    size_t out = 0, cache = 0;
    GW_TRY(tensor_bytes(s->node.out, &out));
    out += 2 * FENCE;
    const int one = s->c->op == GW_OP_COMPRESS || s->c->op == GW_OP_CONV ||
                    s->c->op == GW_OP_SCAN || s->c->op == GW_OP_EXP_GATES;
    int parts = s->c->op == GW_OP_ROPE_KV ? 2 : one;
    if (parts > 0) {
        GW_TRY(tensor_bytes(s->node.in[1], &cache));
    }
    unsigned char *bytes = malloc(out + (size_t)parts * cache);
    if (bytes == NULL) {
        return nomem();
    }
    gw_status status = s->backend->read(s->node.out->buf, 0, bytes, out);
    for (int i = 0; i < parts && status == GW_OK; i++) {
        status =
            s->backend->read(s->node.in[1 + i]->buf, 0, bytes + out + (size_t)i * cache, cache);
    }
    if (status != GW_OK) {
        free(bytes);
        return status;
    }
    *r = (result){bytes, out + (size_t)parts * cache};
    return GW_OK;
}

static gw_status run_kernel(setup *s, const gw_kernel *kernel, result *r) {
    struct gw_segment *segment = NULL;
    s->node.kernel = kernel;
    GW_TRY(gw_op_describe(s->c->op)->check(&s->node));
    GW_TRY(s->backend->freeze(s->device, &s->node, 1, s->c->n + SPARE, &segment));
    gw_status status = s->backend->run(segment, &s->step);
    if (status == GW_OK) {
        status = s->backend->wait(s->device);
    }
    s->backend->segment_free(segment);
    return status == GW_OK ? fetch(s, r) : status;
}

static int ends_in(const char *name, const char *tail) {
    size_t n = strlen(name), m = strlen(tail);
    return n >= m && strcmp(name + n - m, tail) == 0;
}

/* The anchor: the scalar kernel over rows as stored. */
static gw_status run_scalar(const self_case *c, const gw_backend *cpu, struct gw_device *device,
                            result *r) {
    setup s;
    size_t n;
    const gw_kernel *kernels = cpu->kernels(device, &n);
    gw_status status = open_case(&s, c, cpu, device, 1);
    const gw_kernel *scalar = NULL;
    for (size_t i = 0; i < n && status == GW_OK && scalar == NULL; i++) {
        if (ends_in(kernels[i].name, ".scalar") && gw_kernel_takes(&kernels[i], &s.node, device)) {
            scalar = &kernels[i];
        }
    }
    if (status == GW_OK) {
        status = scalar != NULL ? run_kernel(&s, scalar, r)
                                : gw_fail(GW_E_UNSUPPORTED, "self-test", "no scalar kernel for %s",
                                          gw_op_describe(c->op)->name);
    }
    close_case(&s);
    return status;
}

/* ---- devices -------------------------------------------------------------------------------- */

typedef struct subject {
    const gw_backend *backend;
    const char *id;
    struct gw_device *device;
    gw_kernel_check *checks; /* one per kernel */
    size_t n;
} subject;

static void judge(gw_kernel_check *check, const self_case *c, gw_status status, const result *got,
                  const result *want) {
    size_t at = 0;
    check->cases++;
    if (status != GW_OK) {
        check->failed++;
        snprintf(check->fault, sizeof check->fault, "%s", gw_error_text());
        return;
    }
    while (at < want->n && at < got->n && got->bytes[at] == want->bytes[at]) {
        at++;
    }
    if (at < want->n || got->n != want->n) {
        check->failed++;
        snprintf(check->fault, sizeof check->fault,
                 "%s %s of %d rows differs from the scalar CPU at byte %zu of %zu",
                 gw_op_describe(c->op)->name, gw_format_of(c->fmt)->name, c->n, at, want->n);
    }
}

static gw_status check_case(subject *t, const self_case *c, const result *want) {
    size_t n;
    const gw_kernel *kernels = t->backend->kernels(t->device, &n);
    for (int keep_rows = 0; keep_rows < 2; keep_rows++) {
        setup s;
        gw_status status = open_case(&s, c, t->backend, t->device, keep_rows);
        for (size_t i = 0; i < n && status == GW_OK; i++) {
            result got = {NULL, 0};
            if (!gw_kernel_takes(&kernels[i], &s.node, t->device)) {
                continue;
            }
            setup fresh; /* a run may change its inputs */
            status = open_case(&fresh, c, t->backend, t->device, keep_rows);
            if (status == GW_OK) {
                gw_status ran = run_kernel(&fresh, &kernels[i], &got);
                judge(&t->checks[i], c, ran, &got, want);
                free(got.bytes);
            }
            close_case(&fresh);
        }
        close_case(&s);
        GW_TRY(status);
    }
    return GW_OK;
}

/* Freezes every kernel for the case, and that is all: a backend that compiles kernels learns which,
 * so that it compiles all of them at once (gw_backend.ready). */
static gw_status announce_case(subject *t, const self_case *c) {
    size_t n;
    const gw_kernel *kernels = t->backend->kernels(t->device, &n);
    for (int keep_rows = 0; keep_rows < 2; keep_rows++) {
        setup s;
        gw_status status = open_case(&s, c, t->backend, t->device, keep_rows);
        for (size_t i = 0; i < n && status == GW_OK; i++) {
            struct gw_segment *segment = NULL;
            s.node.kernel = &kernels[i];
            if (gw_kernel_takes(&kernels[i], &s.node, t->device) &&
                t->backend->freeze(t->device, &s.node, 1, c->n + SPARE, &segment) == GW_OK) {
                t->backend->segment_free(segment);
            }
        }
        close_case(&s);
        GW_TRY(status);
    }
    return GW_OK;
}

/* Said before each case; GW_E_CANCELLED when no more are wanted. */
static gw_status before_case(const subject *t, int i, gw_check_fn report, void *user) {
    gw_kernel_check step = {.kernel = "", .device = t->id};
    snprintf(step.fault, sizeof step.fault, "case %d of %d", i + 1, (int)CASES);
    return report(user, &step) == 0 ? GW_OK : gw_fail(GW_E_CANCELLED, "self-test", "stopped");
}

static gw_status check_device(subject *t, const result *wants, gw_check_fn report, void *user) {
    size_t n;
    const gw_kernel *kernels = t->backend->kernels(t->device, &n);
    t->checks = calloc(n + 1, sizeof *t->checks);
    if (t->checks == NULL) {
        return nomem();
    }
    t->n = n;
    for (size_t i = 0; i < n; i++) {
        t->checks[i].kernel = kernels[i].name;
        t->checks[i].device = t->id;
    }
    for (int i = 0; i < CASES && t->backend->ready != NULL; i++) {
        self_case c = case_at(i);
        GW_TRY(announce_case(t, &c));
    }
    for (int i = 0; i < CASES; i++) {
        self_case c = case_at(i);
        GW_TRY(before_case(t, i, report, user));
        GW_TRY(check_case(t, &c, &wants[i]));
    }
    return GW_OK;
}

static gw_status check_backend(const gw_backend *b, const char *devices, int threads,
                               const result *wants, gw_check_fn report, void *user) {
    for (int i = 0; i < b->device_count(); i++) {
        /* exact: 16-bit matrix units have other bits than the CPU, and are meant to */
        gw_device_options options = {.threads = threads, .exact = 1};
        gw_device_info info;
        b->describe(NULL, i, &info);
        if (!gw_is_asked(b, i, info.id, devices)) {
            continue;
        }
        subject t = {.backend = b, .id = b->name};
        gw_kernel_check fault = {.kernel = "", .device = b->name, .cases = 1, .failed = 1};
        gw_status status = b->open(i, &options, &t.device);
        if (status == GW_OK) {
            status = check_device(&t, wants, report, user);
        }
        int stop = status == GW_E_CANCELLED;
        for (size_t k = 0; k < t.n && !stop; k++) {
            stop = report(user, &t.checks[k]);
        }
        if (status != GW_OK && !stop) {
            snprintf(fault.fault, sizeof fault.fault, "%s", gw_error_text());
            stop = report(user, &fault);
        }
        free(t.checks);
        if (t.device != NULL) {
            b->close(t.device);
        }
        if (stop) {
            return gw_fail(GW_E_CANCELLED, "self-test", "stopped");
        }
    }
    return GW_OK;
}

static const gw_backend *find_cpu(void) {
    for (size_t i = 0; gw_backends[i] != NULL; i++) {
        if (strcmp(gw_backends[i]->name, "cpu") == 0) {
            return gw_backends[i];
        }
    }
    return NULL;
}

gw_status gw_self_test_of(const char *devices, int threads, gw_check_fn report, void *user) {
    const gw_backend *cpu = find_cpu();
    struct gw_device *device = NULL;
    gw_device_options options = {.threads = threads};
    if (cpu == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, "self-test", "this build has no cpu backend");
    }
    result *wants = calloc(CASES, sizeof *wants);
    if (wants == NULL) {
        return nomem();
    }
    gw_status status = cpu->open(0, &options, &device);
    for (int i = 0; i < CASES && status == GW_OK; i++) {
        self_case c = case_at(i);
        status = run_scalar(&c, cpu, device, &wants[i]);
    }
    if (device != NULL) {
        cpu->close(device);
    }
    for (size_t i = 0; gw_backends[i] != NULL && status == GW_OK; i++) {
        if (strcmp(gw_backends[i]->name, "ref") != 0) {
            status = check_backend(gw_backends[i], devices, threads, wants, report, user);
        }
    }
    for (int i = 0; i < CASES; i++) {
        free(wants[i].bytes);
    }
    free(wants);
    return status;
}

/* Reports of kernels and devices alone. */
typedef struct plain_report {
    gw_check_fn report;
    void *user;
} plain_report;

static int without_steps(void *user, const gw_kernel_check *check) {
    const plain_report *to = user;
    int is_step = check->kernel[0] == '\0' && check->failed == 0;
    return is_step ? 0 : to->report(to->user, check);
}

gw_status gw_self_test(int threads, gw_check_fn report, void *user) {
    plain_report to = {report, user};
    return gw_self_test_of("all", threads, without_steps, &to);
}
