/* tests/test_ops.c - every kernel of the cpu backend, at every level that this processor runs,
 * equals the scalar one bit for bit; the scalar one keeps its derived distance from the oracle.
 */
#include "op_table.h"

#include <inttypes.h>

#include "backends/cpu/cpu.h"
#include "core/base/hash.h"
#include "tests/sanitized.h"

extern const gw_backend gw_backend_ref;

/* NULL when this processor or build lacks the level. */
static struct gw_device *open_level(const char *level, int threads) {
    struct gw_device *device = NULL;
    gw_device_options options = {.threads = threads};
    setenv("GODWIT_CPU", level, 1);
    gw_status status = gw_backend_cpu.open(0, &options, &device);
    unsetenv("GODWIT_CPU");
    if (status != GW_OK) {
        assert_int_equal(status, GW_E_ARGUMENT);
        return NULL;
    }
    return device;
}

/* ---- bits
 * --------------------------------------------------------------------------------------------- */

static op_result anchors[OC_TOTAL]; /* computed once for all levels */

static int free_anchors(void **state) {
    (void)state;
    for (int i = 0; i < OC_TOTAL; i++) {
        oc_free_result(&anchors[i]);
    }
    return 0;
}

/* Mapped weights or read ones: the same kernels over the same rows, so that with sanitizers one
 * level does for the mapped. On an emulated processor the release has been through the mapped, and
 * scalar kernels are compared with themselves: once. */
static int forms_of(const char *level) {
    if (TEST_EMULATED) {
        return strcmp(level, "scalar") == 0 ? OT_PRODUCED : OT_PRODUCED | OT_ROWS;
    }
    int every = !TEST_SANITIZED || strcmp(level, "avx2") == 0 || strcmp(level, "neon") == 0;
    return every ? OT_EVERY_FORM : OT_PRODUCED | OT_ROWS;
}

/* The scalar kernels stand in the table of every level and know nothing of it (a row of the table
 * names its own): they run at the level "scalar" only. */
static void check_level(const char *level) {
    static op_bench bench;
    struct gw_device *device = open_level(level, 2);
    if (device == NULL) {
        print_message("SKIP: %s does not run here\n", level);
        skip();
    }
    ot_open(&bench, &gw_backend_cpu, device, forms_of(level));
    bench.anchors = anchors;
    bench.elsewhere = strcmp(level, "scalar") == 0 ? NULL : ".scalar";
    ot_check_table(&bench, oc_case, OC_TOTAL, NULL);
    ot_close(&bench);
}

static void bits_scalar(void **state) {
    (void)state;
    check_level("scalar");
}
static void bits_avx2(void **state) {
    (void)state;
    check_level("avx2");
}
static void bits_avx512(void **state) {
    (void)state;
    check_level("avx512");
}
static void bits_vnni(void **state) {
    (void)state;
    check_level("vnni");
}
static void bits_amx(void **state) {
    (void)state;
    check_level("amx");
}
static void bits_neon(void **state) {
    (void)state;
    check_level("neon");
}

/* One arithmetic for every compiler and processor: a build that is given digests of another one's
 * scalar results as GODWIT_OP_BITS (it wrote them to GODWIT_OP_BITS_TO) has the same. Cases that
 * make NaN are left out: C leaves a NaN's bits to the processor. */
static void bits_are_those_of_other_builds(void **state) {
    (void)state;
    const char *to = getenv("GODWIT_OP_BITS_TO"), *from = getenv("GODWIT_OP_BITS");
    if (to == NULL && from == NULL) {
        print_message("SKIP: GODWIT_OP_BITS names no digests of another build\n");
        skip();
    }
    FILE *file = fopen(to != NULL ? to : from, to != NULL ? "w" : "r");
    assert_non_null(file);
    int compared = 0;
    for (int i = 0; i < OC_TOTAL; i++) {
        op_case c = oc_case(i);
        const op_result *r = &anchors[i];
        if (r->out == NULL || c.wild == 1) {
            continue;
        }
        uint64_t key[2] = {0, 0};
        key[0] = gw_hash_bytes(key, r->out, r->out_bytes);
        key[1] = r->k == NULL ? 0 : gw_hash_bytes(key, r->k, r->cache_bytes);
        uint64_t hash = key[0] ^ key[1];
        hash = r->v == NULL ? hash : gw_hash_bytes(key, r->v, r->cache_bytes);
        if (to != NULL) {
            assert_true(fprintf(file, "%d %016" PRIx64 "\n", i, hash) > 0);
            continue;
        }
        int number = -1;
        uint64_t want = 0;
        assert_int_equal(fscanf(file, "%d %" SCNx64, &number, &want), 2);
        if (number != i || want != hash) {
            fail_msg("%s (%s): other bits than the build that wrote %s",
                     gw_op_describe(c.op)->name, c.why, from);
        }
        compared++;
    }
    assert_int_equal(fclose(file), 0);
    assert_true(to != NULL || compared > 100);
}

/* What would be chosen, with teams of 1, 2 and 7 (more than this machine may have). */
static void bits_do_not_depend_on_threads(void **state) {
    (void)state;
    enum { TEAMS = TEST_SANITIZED ? 2 : 3 };
    static const int teams[3] = {1, 7, 2};
    struct gw_device *device[TEAMS];
    for (int t = 0; t < TEAMS; t++) {
        gw_device_options options = {.threads = teams[t]};
        assert_int_equal(gw_backend_cpu.open(0, &options, &device[t]), GW_OK);
    }
    for (int i = 0; i < OC_TOTAL; i++) {
        op_case c = oc_case(i);
        op_result want = {0}, got;
        for (int t = 0; t < TEAMS; t++) {
            op_setup s;
            oc_open(&s, &c, &gw_backend_cpu, device[t], 0, 0);
            const gw_kernel *kernel = oc_find(&s, "");
            assert_non_null(kernel);
            oc_run(&s, kernel, t == 0 ? &want : &got);
            if (t > 0) {
                oc_same(kernel->name, &c, &got, &want);
                oc_free_result(&got);
            }
            oc_close(&s);
        }
        oc_free_result(&want);
    }
    for (int t = 0; t < TEAMS; t++) {
        gw_backend_cpu.close(device[t]);
    }
}

/* ---- accuracy
 * ------------------------------------------------------------------------------------------
 *
 * u = 2^-24 is half an ulp of 1: one rounding of a result r moves it by at most u |r|. A chain of k
 * roundings moves a sum of terms t_i by at most k u S / (1 - k u) with S = sum |t_i|; all k here
 * are below 2^12, so 1.001 covers the denominator and every product of two errors. The oracle's own
 * result is a double rounded once to float: one more u.
 */
static const double u = 0x1p-24, slack = 1.001;

typedef struct bound {
    double want, error; /* what the oracle gave; how far a result may be */
} bound;

static double value_of(const gw_tensor *t, const void *data, size_t row, size_t col) {
    if (t->fmt == GW_FMT_ACT8) {
        const gw_act8 *b = (const gw_act8 *)data + (row * (size_t)t->dim[1] + col) / GW_ACT_BLOCK;
        return (double)b->scale * b->q[col % GW_ACT_BLOCK];
    }
    return ((const float *)data)[row * (size_t)t->dim[1] + col];
}

/* Of the weight rows of one case, worked out when a row is first met, for all input rows: the
 * values [k]; quantized, |term| of every single code of 1, and of every sum of 1 [k + k / 16]. */
typedef struct unit_terms {
    const void *rows; /* of a weight; NULL: not in use */
    double *at;
    float *values;
    unsigned char *known;
} unit_terms;

static unit_terms units[3];

static void forget_units(void) {
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        free(units[i].at);
        free(units[i].values);
        free(units[i].known);
        units[i] = (unit_terms){NULL, NULL, NULL, NULL};
    }
}

static void fill_units(const gw_format *f, const unsigned char *row, size_t k, double *at) {
    for (size_t b = 0; b < k / GW_ACT_BLOCK; b++) {
        gw_act8 acts[GW_ACT_SPAN] = {{.scale = 1.0f}}, *unit = &acts[b % f->span];
        for (int j = 0; j < GW_ACT_BLOCK; j++) {
            unit->q[j] = 1;
            *at++ = fabs((double)f->term(row, b - b % f->span, acts, 0.0f));
            unit->q[j] = 0;
        }
        for (int h = 0; h < 2; h++) {
            unit->sum[h] = 1;
            *at++ = fabs((double)f->term(row, b - b % f->span, acts, 0.0f));
            unit->sum[h] = 0;
        }
    }
}

/* What is kept of row r; *values: what it decodes to. */
static const double *units_of(const gw_tensor *w, const void *rows, size_t r,
                              const float **values) {
    const gw_format *f = gw_format_of(w->fmt);
    size_t m = (size_t)w->dim[0], k = (size_t)w->dim[1], per_row = f->is_float ? 0 : k + k / 16;
    unit_terms *of = units;
    while (of->rows != NULL && of->rows != rows) {
        of++;
        assert_true(of < units + sizeof units / sizeof units[0]);
    }
    if (of->rows == NULL) {
        *of = (unit_terms){rows, oc_alloc(m * per_row * sizeof *of->at),
                           oc_alloc(m * k * sizeof *of->values), calloc(m, 1)};
        assert_non_null(of->known);
    }
    if (!of->known[r]) {
        const unsigned char *row = (const unsigned char *)rows + r * oc_row_bytes(w->fmt, k);
        f->decode(of->values + r * k, row, k);
        if (!f->is_float) {
            fill_units(f, row, k, of->at + r * per_row);
        }
        of->known[r] = 1;
    }
    *values = of->values + r * k;
    return of->at + r * per_row;
}

/* An input row as terms take it: the blocks of one have one scale. */
static void take_blocks(const gw_format *f, gw_act8 *to, const gw_act8 *from, size_t count) {
    memcpy(to, from, count * sizeof *to);
    for (size_t b = 0; f->span > 1 && b < count; b += f->span) {
        gw_act8_span(to + b, from + b);
    }
}

/* Sum |terms| of one weight row times one input row, and its exact value (sum, or NULL).
 * Quantized: f->term is linear in the codes q and the sums of the activation block, so unit blocks
 * give the size of each part; offsets and codes of one weight count apart, because they are rounded
 * apart. */
static double product_size(const gw_tensor *w, const void *rows, size_t r, const gw_tensor *x,
                           const void *in, size_t i, double *sum) {
    const gw_format *f = gw_format_of(w->fmt);
    size_t k = (size_t)w->dim[1], n_blocks = k / GW_ACT_BLOCK;
    const float *values;
    const double *unit = units_of(w, rows, r, &values);
    double size = 0.0, exact = 0.0;
    for (size_t j = 0; f->is_float && j < k; j++) {
        double v = values[j] * value_of(x, in, i, j);
        exact += v;
        size += fabs(v);
    }
    gw_act8 *blocks = f->is_float ? NULL : oc_alloc(n_blocks * sizeof *blocks);
    if (blocks != NULL) {
        take_blocks(f, blocks, (const gw_act8 *)in + i * n_blocks, n_blocks);
    }
    for (size_t b = 0; blocks != NULL && b < n_blocks; b++) {
        double part = 0.0, value = 0.0;
        for (int j = 0; j < GW_ACT_BLOCK; j++) {
            part += *unit++ * abs(blocks[b].q[j]);
        }
        for (int h = 0; h < 2; h++) {
            part += *unit++ * abs(blocks[b].sum[h]);
        }
        for (size_t j = 0; sum != NULL && j < GW_ACT_BLOCK; j++) {
            value += (double)values[b * GW_ACT_BLOCK + j] * blocks[b].q[j];
        }
        size += part * fabs((double)blocks[b].scale);
        exact += value * (double)blocks[b].scale;
    }
    free(blocks);
    if (sum != NULL) {
        *sum = exact;
    }
    return size;
}

/* Roundings of one sum of k terms: float weights, a fused multiply-add per element; quantized, per
 * term (of `span` blocks of 32) at most two, and one for the product of scales; decode: a lane's
 * share, of lanes that have terms, and 5 joins. */
static double product_roundings(gw_fmt fmt, size_t k, gw_order order) {
    const gw_format *f = gw_format_of(fmt);
    double lanes = f->is_float ? GW_LANES : (double)GW_LANES / (double)f->span;
    double terms = f->is_float ? (double)k : 2.0 * (double)(k / GW_ACT_BLOCK / f->span);
    double extra = f->is_float ? 0.0 : 2.0;
    return extra + (order == GW_ORDER_PREFILL ? terms : ceil(terms / lanes) + 2.0 + 5.0);
}

static double linear_error(const op_setup *s, size_t i, size_t col) {
    int part = 0;
    size_t r = col;
    double more = 0.0;
    while (r >= (size_t)s->node.w[part]->dim[0]) {
        r -= (size_t)s->node.w[part++]->dim[0];
    }
    const gw_tensor *w = s->node.w[part], *x = s->node.in[0];
    double size = product_size(w, oc_host(s, w), r, x, oc_host(s, x), i, NULL);
    double k =
        product_roundings(w->fmt, (size_t)w->dim[1], s->c->order) + 3.0; /* bias, residual, u */
    if (s->c->bias) {
        more += fabs(value_of(w, oc_host(s, s->node.w[3 + part]), 0, r));
    }
    if (s->c->residual) {
        more += fabs(
            (double)((const float *)s->host[s->n_t - 1])[i * (size_t)s->node.out->dim[1] + col]);
    }
    return slack * k * u * (size + more);
}

/* silu is 1.1-Lipschitz; its evaluation: exp within 1.02 ulp (at most 2.04 u), +1, /, then * and
 * the oracle's rounding: 7 u. Below exp's range (g < -88) the clamp moves silu by less than 1e-36.
 */
static double glu_error(const op_setup *s, size_t i, size_t col) {
    double v[2], e[2];
    for (int p = 0; p < 2; p++) {
        const gw_tensor *w = s->node.w[p], *x = s->node.in[0];
        double size = product_size(w, oc_host(s, w), col, x, oc_host(s, x), i, &v[p]);
        e[p] = slack * u * size * product_roundings(w->fmt, (size_t)w->dim[1], s->c->order);
    }
    double silu = v[0] / (1.0 + exp(-v[0]));
    return slack * (1.1 * e[0] * (fabs(v[1]) + e[1]) + fabs(silu) * e[1] +
                    7.0 * u * fabs(silu * v[1])) +
           1e-36 * (fabs(v[1]) + 1.0);
}

/* All squares are positive, so the sum's relative error is its roundings: the square and the fold
 * of its block, ceil(n/1024) blocks of a lane and the fold of those, then / n and + eps; the root
 * halves it; root, 1/x, * w, * scale and the oracle add 5. */
static double norm_relative(size_t n) {
    return u * (((double)((n + 1023) / 1024) + 13.0) / 2.0 + 5.0);
}

/* The same of a head: ceil(e/32) terms of a lane and their fold. */
static double head_relative(size_t e) { return u * (((double)((e + 31) / 32) + 7.0) / 2.0 + 5.0); }

static double norm_error(const op_setup *s, size_t i, size_t col, double want) {
    (void)i;
    (void)col;
    return slack * norm_relative((size_t)s->c->k) * fabs(want);
}

/* The normed pair (a, b) with relative errors; two products, of which the fused one is exact: 3 u
 * of |a c| + |b s| with the oracle's. */
static double rope_error(const op_setup *s, size_t i, size_t col) {
    const op_case *c = s->c;
    const float *x = (const float *)oc_host(s, s->node.in[0]) +
                     i * (size_t)((c->heads + 2 * c->kv_heads) * c->e);
    size_t e = (size_t)c->e, head = col / e, at = col % e, half = (size_t)c->rope_dim / 2,
           other = at;
    if (at < 2 * half) {
        other = c->interleaved ? at ^ 1u : at < half ? at + half : at - half;
    }
    double norm = 1.0, weight[2] = {1.0, 1.0}, relative = 0.0;
    if (c->head_norm) {
        const float *w = oc_host(s, s->node.w[head < (size_t)c->heads ? 0 : 1]);
        double ss = 0.0;
        for (size_t j = 0; j < e; j++) {
            ss += (double)x[head * e + j] * x[head * e + j];
        }
        norm = 1.0 / sqrt(ss / (double)e + 1e-5);
        weight[0] = fabs((double)w[at]);
        weight[1] = fabs((double)w[other]);
        relative = head_relative(e);
    }
    double size =
        fabs(x[head * e + at] * norm * weight[0]) + fabs(x[head * e + other] * norm * weight[1]);
    return slack * (relative + 3.0 * u) * size;
}

/* Scores s_j = scale q.k move by at most d = ((e + 2) u) scale sum |q k| each. A weight is
 * exp(s - m_p) exp(m_p - M): its exponent moves by 2 d + u |range| for each of two subtractions,
 * each exp by 2.04 u, their use by fma chains over at most 64 positions and all pages, the fold
 * by 6. With r the sum of these, numerator and denominator move by at most r sum p |v| and r sum p,
 * so the quotient by 2 r max |v| and its own two roundings. Weights below e^-87 become 0: at most
 * positions * e^-87 max |v|. */
static double head_error(const op_setup *s, size_t i, size_t h) {
    const op_case *c = s->c;
    const gw_tensor *k = s->node.in[1], *v = s->node.in[2];
    const int32_t *pages = oc_host(s, s->node.in[3]);
    size_t e = (size_t)c->e;
    size_t g = h / (size_t)(c->heads / c->kv_heads);
    const float *q = (const float *)oc_host(s, s->node.in[0]) + i * (size_t)c->heads * e + h * e;
    double d = 0.0, low = INFINITY, high = -INFINITY, top = 0.0, scale = 1.0 / sqrt((double)e);
    int pos = s->step.pos[i], first = c->window > 0 && pos >= c->window ? pos - c->window + 1 : 0;
    for (int p = first; p <= pos; p++) {
        int page = pages[s->step.slot[i] * s->node.in[3]->dim[1] + p / GW_PAGE];
        size_t base = ((size_t)page * (size_t)c->kv_heads + g) * GW_PAGE * e;
        double score = 0.0, size = 0.0;
        for (size_t j = 0; j < e; j++) {
            size_t ki = base + j * GW_PAGE + (size_t)(p % GW_PAGE),
                   vi = base + (size_t)(p % GW_PAGE) * e + j;
            double kx = oc_cached(c, oc_host(s, k), 1, ki);
            double vx = oc_cached(c, oc_host(s, v), 0, vi);
            score += q[j] * kx * scale;
            size += fabs(q[j] * kx * scale);
            top = fabs(vx) > top ? fabs(vx) : top;
        }
        d = size > d ? size : d;
        low = score < low ? score : low;
        high = score > high ? score : high;
    }
    double n_pages = pos / GW_PAGE + 1;
    d *= u * ((double)e + 2.0);
    double r = 4.0 * d + 2.0 * u * (high - low + 4.0 * d) + u * (2.0 * 2.04 + 64.0 + 6.0 + n_pages);
    return slack * (2.0 * r + 3.0 * u) * top + (pos + 1) * exp(-87.0) * top;
}

/* One for all columns of a head: forget_heads before the next case. */
static struct {
    const op_setup *of;
    size_t i, h;
    double error;
} head;

static void forget_heads(void) { head.of = NULL; }

static double attention_error(const op_setup *s, size_t i, size_t col) {
    size_t h = col / (size_t)s->c->e;
    if (head.of != s || head.i != i || head.h != h) {
        head.error = head_error(s, i, h);
        head.of = s;
        head.i = i;
        head.h = h;
    }
    return head.error;
}

static double error_of(const op_setup *s, size_t i, size_t col, double want) {
    switch (s->c->op) {
    case GW_OP_NORM:
        return norm_error(s, i, col, want);
    case GW_OP_LINEAR:
        return linear_error(s, i, col);
    case GW_OP_GLU:
        return glu_error(s, i, col);
    case GW_OP_ROPE_KV:
        return rope_error(s, i, col);
    case GW_OP_ATTENTION:
        return attention_error(s, i, col);
    default:
        return 0.0; /* EMBED and PICK copy */
    }
}

/* Cache entries: V is copied or encoded from equal floats, so equal bits. K is the rotated key; as
 * f16 each side rounds once more, by half an ulp: 2^-11 of it, or 2^-25 below the normal range. */
static void check_caches(const op_setup *s, const op_result *got, const op_result *want) {
    const op_case *c = s->c;
    const gw_format *f = gw_format_of(c->kv);
    size_t n = got->cache_bytes / f->block_bytes * f->block_elems, written = 0;
    oc_same_bytes("V cache of the scalar kernel", c, "values", got->v, want->v, got->cache_bytes);
    for (size_t i = 0; i < n; i++) {
        double a = oc_cached(c, got->k, 1, i), b = oc_cached(c, want->k, 1, i);
        if (isnan(a) && isnan(b)) {
            continue; /* nothing was written there, by both */
        }
        /* Normed values are at most sqrt(e); without a norm at most 1. Rotation adds two. */
        double most = 2.0 * (c->head_norm ? sqrt((double)c->e) : 1.0);
        double error = slack * (head_relative((size_t)c->e) + 3.0 * u) * most +
                       (c->kv == GW_FMT_F16 ? 2.0 * (0x1p-11 * fabs(b) * slack + 0x1p-25) : 0.0);
        /* As q8_0 each side is off by half a code of its scale, which is rounded to f16 itself. */
        error += c->kv == GW_FMT_Q8_0 ? most / 127.0 * (1.0 + 0x1p-9) * slack : 0.0;
        written++;
        if (!(fabs(a - b) <= error)) {
            fail_msg("%s: K cache entry %zu is %.9g, not %.9g within %.3g", c->why, i, a, b, error);
        }
    }
    assert_int_equal(written, c->n * c->kv_heads * c->e);
}

/* An act8 result: the f32 result rounded to a code: half a scale, and the roundings of
 * x * (127 / amax), at most 127 * 4 u of a code. */
static void check_values(const op_setup *s, const gw_tensor *got_t, const op_result *got,
                         const op_result *want) {
    size_t cols = (size_t)s->node.out->dim[1], step = TEST_SANITIZED || TEST_EMULATED ? 7 : 1;
    for (size_t i = 0; i < (size_t)s->c->n * cols; i += step) {
        double a = value_of(got_t, got->out, i / cols, i % cols);
        double b = value_of(s->node.out, want->out, i / cols, i % cols);
        double error = error_of(s, i / cols, i % cols, b);
        if (got_t->fmt == GW_FMT_ACT8) {
            double scale = ((const gw_act8 *)(const void *)got->out)[i / GW_ACT_BLOCK].scale;
            error += scale * (0.5 + 127.0 * 4.0 * u);
        }
        if (!(fabs(a - b) <= error)) { /* written so that NaN fails */
            fail_msg("%s (%s) row %zu column %zu: %.9g, oracle %.9g, error %.3g, bound %.3g",
                     gw_op_describe(s->c->op)->name, s->c->why, i / cols, i % cols, a, b,
                     fabs(a - b), error);
        }
    }
}

/* As large as a device's tiles and groups of pages: the scalar kernels take ways through it that
 * they take through others. */
static int is_large(const op_case *c) {
    double products = (double)c->n * c->k * (c->m[0] + c->m[1] + c->m[2]);
    double attended = (double)c->n * c->heads * c->e * (c->pos + c->n);
    return products > 1e7 || (c->op == GW_OP_ATTENTION && attended > 1e7);
}

static void scalar_is_near_the_oracle(void **state) {
    (void)state;
    struct gw_device *device = open_level("scalar", 2), *oracle;
    assert_non_null(device);
    assert_int_equal(gw_backend_ref.open(0, NULL, &oracle), GW_OK);
    for (int i = 0; i < OC_TOTAL; i++) {
        op_case c = oc_case(i), exact = c;
        op_result got, want;
        op_setup s, o;
        if ((TEST_SANITIZED || TEST_EMULATED) && is_large(&c)) {
            continue; /* its bits are those of the release, where it is near */
        }
        exact.out = c.op == GW_OP_QUANTIZE ? GW_FMT_ACT8 : GW_FMT_F32;
        oc_open(&s, &c, &gw_backend_cpu, device, 1, 0);
        oc_run(&s, oc_find(&s, ".scalar"), &got);
        oc_open(&o, &exact, &gw_backend_ref, oracle, 1, 0);
        const gw_kernel *kernel = oc_find(&o, "");
        assert_non_null(kernel);
        oc_run(&o, kernel, &want);
        if (c.op == GW_OP_QUANTIZE || c.op == GW_OP_SAMPLE) { /* nothing to approximate */
            oc_same("the scalar kernel", &c, &got, &want);
        } else if (c.op != GW_OP_NORM || !c.wild) { /* bounds are relative: no infinities */
            check_values(&o, s.node.out, &got, &want);
        }
        if (c.op == GW_OP_ROPE_KV && !c.wild) {
            check_caches(&o, &got, &want);
        }
        forget_units(); /* they go by addresses, which the next case may have again */
        forget_heads();
        oc_free_result(&got);
        oc_free_result(&want);
        oc_close(&s);
        oc_close(&o);
    }
    gw_backend_cpu.close(device);
    gw_backend_ref.close(oracle);
}

/* ---- the device
 * ------------------------------------------------------------------------------------------ */

static void a_level_that_is_unknown_is_refused(void **state) {
    (void)state;
    struct gw_device *device = NULL;
    setenv("GODWIT_CPU", "sse9", 1);
    assert_int_equal(gw_backend_cpu.open(0, NULL, &device), GW_E_ARGUMENT);
    assert_non_null(strstr(gw_error_text(), "sse9"));
    unsetenv("GODWIT_CPU");
    assert_null(device);
}

static void too_much_memory_is_refused_at_once(void **state) {
    (void)state;
    struct gw_device *device = open_level("scalar", 1);
    struct gw_buffer *buffer = NULL;
    assert_non_null(device);
    assert_int_equal(gw_backend_cpu.alloc(device, (size_t)1 << 50, &buffer), GW_E_NOMEM);
    assert_non_null(strstr(gw_error_text(), "needs"));
    assert_int_equal(gw_backend_cpu.alloc(device, SIZE_MAX, &buffer), GW_E_NOMEM);
    assert_null(buffer);
    gw_backend_cpu.close(device);
}

static gw_status produce_until(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    (void)dst;
    const int64_t *stop = src->state;
    return first + n > *stop ? gw_fail(GW_E_IO, "rows", "row %d is gone", (int)*stop) : GW_OK;
}

static void a_weight_that_cannot_be_read_is_an_error(void **state) {
    (void)state;
    struct gw_device *device = open_level("scalar", 2);
    int64_t stop = 700;
    gw_weight_source src = {.rows = produce_until, .state = &stop};
    gw_tensor t = {.name = "w", .fmt = GW_FMT_Q8_0, .n_dim = 2, .dim = {1000, 1024}};
    assert_non_null(device);
    assert_int_equal(gw_backend_cpu.load_weight(device, &t, &src), GW_E_IO);
    assert_non_null(strstr(gw_error_text(), "row 700 is gone"));
    assert_null(t.buf);
    gw_backend_cpu.close(device);
}

/* Blocks that the vectors leave to the scalar encoder, or must treat like it. */
static void q8_of_odd_values(void **state) {
    (void)state;
    static const char *const levels[] = {"avx2", "avx512", "vnni", "amx", "neon"};
    static const float odd[] = {0.0f,   -0.0f,  INFINITY, -INFINITY, NAN,    1e-45f,
                                1e-38f, 6e-6f,  1.2e-5f,  8.3e6f,    8.4e6f, 3e38f,
                                -3e38f, 127.0f, 63.5f,    -0.5f};
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        struct gw_device *device = open_level(levels[l], 1);
        if (device == NULL) {
            continue;
        }
        const gw_cpu_ops *ops = gw_cpu_ops_of(device->level);
        for (size_t i = 0; i < 64 * sizeof odd / sizeof odd[0]; i++) {
            float x[32];
            gw_i8 codes[32], want_codes[32];
            gw_u16 scale = 0, want_scale = 1;
            for (int j = 0; j < 32; j++) {
                x[j] = i < 32 * sizeof odd / sizeof odd[0] ? odd[i / 32] * (float)(j % 5) * 0.25f
                                                           : 0.3f * (float)(j % 7 - 3);
            }
            x[i % 32] = odd[i / 32 % (sizeof odd / sizeof odd[0])];
            ops->to_q8(codes, &scale, x, 32);
            gw_cpu_ops_scalar.to_q8(want_codes, &want_scale, x, 32);
            assert_int_equal(scale & 0x7c00, want_scale & 0x7c00);
            assert_true(scale == want_scale || isnan(gw_f16_to_f32(scale)));
            assert_memory_equal(codes, want_codes, 32);
        }
        gw_backend_cpu.close(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_scalar),
        cmocka_unit_test(bits_avx2),
        cmocka_unit_test(bits_avx512),
        cmocka_unit_test(bits_vnni),
        cmocka_unit_test(bits_amx),
        cmocka_unit_test(bits_neon),
        cmocka_unit_test(bits_are_those_of_other_builds),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(q8_of_odd_values),
        cmocka_unit_test(scalar_is_near_the_oracle),
        cmocka_unit_test(a_level_that_is_unknown_is_refused),
        cmocka_unit_test(too_much_memory_is_refused_at_once),
        cmocka_unit_test(a_weight_that_cannot_be_read_is_an_error),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, free_anchors);
}
