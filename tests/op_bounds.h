/* tests/op_bounds.h - how far a result of the scalar kernels may be from the oracle's, op by op.
 */
#ifndef GW_TESTS_OP_BOUNDS_H
#define GW_TESTS_OP_BOUNDS_H

#include "core/plan/digits.h"
#include "op_cases.h"

/* u = 2^-24 is half an ulp of 1: one rounding of a result r moves it by at most u |r|. A chain of k
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

/* What one term of a format takes, in an order of sums. */
typedef struct order_term {
    size_t span;
    float (*term)(const void *row, size_t b, const gw_act8 *x, float acc);
} order_term;

static order_term term_of(const gw_format *f, gw_order order) {
    return order == GW_ORDER_PREFILL ? (order_term){f->prompt_span, f->prompt_term}
                                     : (order_term){f->span, f->term};
}

static void fill_units(order_term f, const unsigned char *row, size_t k, double *at) {
    for (size_t b = 0; b < k / GW_ACT_BLOCK; b++) {
        gw_act8 acts[GW_ACT_SPAN] = {{.scale = 1.0f}}, *unit = &acts[b % f.span];
        for (int j = 0; j < GW_ACT_BLOCK; j++) {
            unit->q[j] = 1;
            *at++ = fabs((double)f.term(row, b - b % f.span, acts, 0.0f));
            unit->q[j] = 0;
        }
        for (int h = 0; h < 2; h++) {
            unit->sum[h] = 1;
            *at++ = fabs((double)f.term(row, b - b % f.span, acts, 0.0f));
            unit->sum[h] = 0;
        }
    }
}

/* What is kept of row r; *values: what it decodes to. */
static const double *units_of(const gw_tensor *w, gw_order order, const void *rows, size_t r,
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
            fill_units(term_of(f, order), row, k, of->at + r * per_row);
        }
        of->known[r] = 1;
    }
    *values = of->values + r * k;
    return of->at + r * per_row;
}

/* An input row as terms take it: the blocks of one have one scale. */
static void take_blocks(order_term f, gw_act8 *to, const gw_act8 *from, size_t count) {
    memcpy(to, from, count * sizeof *to);
    for (size_t b = 0; f.span > 1 && b < count; b += f.span) {
        gw_act8_span(to + b, from + b);
    }
}

/* Sum |terms| of one weight row times one input row, and its exact value (sum, or NULL).
 * Quantized: a term is linear in the codes q and the sums of the activation block, so unit blocks
 * give the size of each part; offsets and codes of one weight count apart, because they are rounded
 * apart. */
static double product_size(const gw_tensor *w, gw_order order, const void *rows, size_t r,
                           const gw_tensor *x, const void *in, size_t i, double *sum) {
    const gw_format *f = gw_format_of(w->fmt);
    size_t k = (size_t)w->dim[1], n_blocks = k / GW_ACT_BLOCK;
    const float *values;
    const double *unit = units_of(w, order, rows, r, &values);
    double size = 0.0, exact = 0.0;
    for (size_t j = 0; f->is_float && j < k; j++) {
        double v = values[j] * value_of(x, in, i, j);
        exact += v;
        size += fabs(v);
    }
    gw_act8 *blocks = f->is_float ? NULL : oc_alloc(n_blocks * sizeof *blocks);
    if (blocks != NULL) {
        take_blocks(term_of(f, order), blocks, (const gw_act8 *)in + i * n_blocks, n_blocks);
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
 * term (of `span` blocks of 32) at most two, and one for the product of scales, or four; decode: a
 * lane's share, of lanes that have terms, and 5 joins. */
static double product_roundings(gw_fmt fmt, size_t k, gw_order order) {
    const gw_format *f = gw_format_of(fmt);
    double span = (double)term_of(f, order).span;
    double lanes = f->is_float ? GW_LANES : (double)GW_LANES / span;
    double terms = f->is_float ? (double)k : 2.0 * (double)(k / GW_ACT_BLOCK) / span;
    double extra = f->is_float ? 0.0 : 4.0;
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
    double size = product_size(w, s->c->order, oc_host(s, w), r, x, oc_host(s, x), i, NULL);
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
        double size = product_size(w, s->c->order, oc_host(s, w), col, x, oc_host(s, x), i, &v[p]);
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
    const float *x = (const float *)oc_host(s, s->node.in[0]) + i * (size_t)s->node.in[0]->dim[1];
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

/* A product of two numbers in digits, of parts of the largest ones: each is off by half a step, and
 * low times low, of which both are at most 128, is left out. */
static double digit_error(void) { return (1.0 + 128.0 * 128.0 / 32639.0) / 32639.0; }

/* Over keys of 4 and 5 bits a query is rotated. */
static void rotate_query(const op_case *c, const float *q, double *to) {
    int width = gw_cache_bits(c->kv) > 0 ? gw_cells_width(c->e) : 1;
    for (int j = 0; j < c->e; j++) {
        to[j] = 0.0;
        for (int b = 0; b < width; b++) {
            int sign = __builtin_popcount((unsigned)(j % width & b)) % 2 ? -1 : 1;
            to[j] += sign * (double)q[j / width * width + b] / sqrt((double)width);
        }
    }
}

/* Scores s_j = scale q.k move by at most d = ((e + 2) u) scale sum |q k| each. A weight is
 * exp(s - m_p) exp(m_p - M): its exponent moves by 2 d + u |range| for each of two subtractions,
 * each exp by 2.04 u, their use by fma chains over at most 64 positions and all pages, the fold
 * by 6. With r the sum of these, numerator and denominator move by at most r sum p |v| and r sum p,
 * so the quotient by 2 r max |v| and its own two roundings. Weights below e^-87 become 0: at most
 * positions * e^-87 max |v|. */
static double head_error(const op_setup *s, size_t i, size_t h) {
    const op_case *c = s->c;
    const gw_tensor *k = s->node.in[1], *v = c->within ? k : s->node.in[2];
    const int32_t *pages = oc_host(s, s->node.in[3]);
    size_t e = (size_t)c->e;
    size_t g = h / (size_t)(c->heads / c->kv_heads);
    double q[1024];
    assert_true(e <= 1024);
    rotate_query(c, (const float *)oc_host(s, s->node.in[0]) + (i * (size_t)c->heads + h) * e, q);
    double d = 0.0, low = INFINITY, high = -INFINITY, top = 0.0, scale = 1.0 / sqrt((double)e);
    int pos = s->step.pos[i], first = oc_first_seen(c, &s->step, (int)i);
    int chunk = c->chunk > 0 ? pos - pos % c->chunk : -c->chunk < pos ? -c->chunk : pos;
    size_t ev = (size_t)oc_v_dim(c);
    double loudest_q = 0.0, loudest_k = 0.0;
    const float *slopes = c->slopes ? oc_host(s, s->node.w[1]) : NULL;
    const float *bias = c->reach > 0 ? oc_host(s, s->node.w[2]) : NULL;
    int last = oc_last_seen(c, &s->step, (int)i);
    first = chunk > first ? chunk : first;
    for (int p = first; p <= last; p++) {
        int page = pages[s->step.slot[i] * s->node.in[3]->dim[1] + p / GW_PAGE];
        size_t base = ((size_t)page * (size_t)c->kv_heads + g) * GW_PAGE;
        double score = 0.0, size = 0.0;
        for (size_t j = 0; j < e; j++) {
            size_t ki = base * e + j * GW_PAGE + (size_t)(p % GW_PAGE);
            double kx = oc_cached(c, oc_host(s, k), 1, ki);
            loudest_q = fabs(q[j]) > loudest_q ? fabs(q[j]) : loudest_q;
            loudest_k = fabs(kx) > loudest_k ? fabs(kx) : loudest_k;
            score += q[j] * kx * scale;
            size += fabs(q[j] * kx * scale);
        }
        for (size_t j = 0; j < ev; j++) {
            size_t own = base * ev + (size_t)(p % GW_PAGE) * ev + j;
            size_t part = base * e + ((size_t)c->first + j) * GW_PAGE + (size_t)(p % GW_PAGE);
            double vx = oc_cached(c, oc_host(s, v), c->within, c->within ? part : own);
            top = fabs(vx) > top ? fabs(vx) : top;
        }
        if (c->cap > 0.0f) { /* tanh does not stretch; its quotient, itself and the product: 5 u */
            score = (double)c->cap * tanh(score / (double)c->cap);
            size += 5.0 * (double)c->cap;
        }
        if (slopes != NULL) {
            score -= (double)slopes[h] * abs(p - pos);
            size += fabs((double)slopes[h] * (p - pos)) + fabs(score);
        }
        if (bias != NULL) {
            int away = p - pos < -c->reach ? -c->reach : p - pos > c->reach ? c->reach : p - pos;
            score += (double)bias[(int)h * (2 * c->reach + 1) + c->reach + away];
            size += fabs(score);
        }
        d = size > d ? size : d;
        low = score < low ? score : low;
        high = score > high ? score : high;
    }
    double n_pages = last / GW_PAGE + 1;
    d *= u * ((double)e + 2.0);
    double cut = c->digits ? digit_error() : 0.0;
    d += cut * (double)e * scale * loudest_q * loudest_k;
    double r = 4.0 * d + 2.0 * u * (high - low + 4.0 * d) + u * (2.0 * 2.04 + 64.0 + 6.0 + n_pages);
    r += 64.0 * cut; /* of a page's products, and of the sum of its weights */
    double error = slack * (2.0 * r + 3.0 * u) * top + (last + 1) * exp(-87.0) * top;
    if (gw_cache_bits(oc_kv(c, c->within)) > 0) { /* each value is made of `width` of them */
        error *= sqrt((double)gw_cells_width(c->within ? c->e : oc_v_dim(c)));
    }
    /* Queries and weights as int8: of scores as near to one another as those of the cases their
     * roundings, which are independent, stay below a hundredth of the largest value. */
    return error + (gw_attn_in_codes(&s->node) ? 0.01 * top : 0.0);
}

/* One for all columns of a head: forget_heads before the next case. */
static struct {
    const op_setup *of;
    size_t i, h;
    double error;
} head_bound;

static void forget_heads(void) { head_bound.of = NULL; }

static double attention_error(const op_setup *s, size_t i, size_t col) {
    size_t h = col / (size_t)oc_v_dim(s->c);
    if (head_bound.of != s || head_bound.i != i || head_bound.h != h) {
        head_bound.error = head_error(s, i, h);
        head_bound.of = s;
        head_bound.i = i;
        head_bound.h = h;
    }
    return head_bound.error;
}

/* Other forms: n values that are normed together are at most sqrt(n), weights, inputs and factors
 * at most 1; rotation adds two. A mean and what is left without it are off by the roundings of a
 * norm, and so is what is made of them. */
static double rope_size(const op_case *c) {
    double n = (double)c->e * (c->norm_span == GW_SPAN_ROW ? c->heads : 1);
    return 2.0 * (c->head_norm || c->norm_plain ? sqrt(n) : 1.0);
}
static double rope_relative(const op_case *c) {
    int n = c->norm_span == GW_SPAN_ROW ? c->heads * c->e : oc_most(c);
    return 3.0 * head_relative((size_t)n) + 4.0 * u;
}

/* The sum of the row before what the table and the scale make of it is at most |want| + 1. */
static double embed_error(const op_case *c, double want) {
    int adds = c->scale != 0.0f || c->places > 0 || c->types > 0;
    return adds ? slack * 3.0 * u * (fabs(want) + 2.0) : 0.0;
}

/* LayerNorm: |c r| is at most sqrt(3) sqrt(n) / sqrt(n) of what is uniform, and the mean adds its
 * own roundings, of values up to 3, to each c; with weights up to 2, biases and addends up to 1. */
static double norm_form_error(const op_setup *s, double want) {
    double n = (double)s->c->k, more = u * (n / 1024.0 + 20.0);
    double factor = s->c->factor ? 2.0 : 1.0;
    return slack * (norm_relative((size_t)s->c->k) + more) * (fabs(want) + 8.0 * factor);
}

/* Functions are within 2.9 ulp; what is added to 1 first is off by that of 1, times |g u|. */
static double act_error(const op_setup *s, size_t i, size_t col, double want) {
    const float *x = oc_host(s, s->node.in[0]);
    size_t f = (size_t)s->c->k, wide = (size_t)s->node.in[0]->dim[1];
    double g = fabs((double)x[i * wide + col]), v = 0.0;
    v = s->c->gated ? fabs((double)x[i * wide + f + col]) : v;
    return slack * u * (10.0 * fabs(want) + 6.0 * (g + 1.0) * (v + 1.0));
}

/* At most six steps of two roundings or a function's four; no step but factor and gate stretches
 * what came before: by at most 2 each. */
static double mix_error(const op_setup *s, size_t i, size_t col, double want) {
    const float *x = oc_host(s, s->node.in[0]);
    double v = fabs((double)x[i * (size_t)s->c->k + col]);
    v *= s->c->scale != 0.0f ? fabs((double)s->c->scale) : 1.0;
    return slack * 16.0 * u * (fabs(want) + 2.0 * (2.0 * v + 1.0));
}

/* A gate is a quotient of exponentials, whose arguments are off by u of at most 8, their sum of one
 * rounding an expert. Numbers of experts are exact. */
static double route_error(const op_setup *s, size_t col, double want) {
    double gate = slack * u * ((double)s->c->experts + 60.0) * fabs(want);
    return col < (size_t)s->c->route.used ? 0.0 : gate;
}

/* The sum of row r of w[part] for input i (DOWN: of place), its bias behind; *error: of it. */
static double expert_sum(const op_setup *s, int part, size_t r, size_t i, size_t place, double gate,
                         double *error) {
    const gw_tensor *w = s->node.w[part], *x = s->node.in[0];
    const gw_tensor *b = s->node.w[(s->c->op == GW_OP_EXPERTS_GLU ? 2 : 1) + part];
    gw_tensor one = *x; /* rows of an expert's input alone */
    double sum, bias = b != NULL ? value_of(b, oc_host(s, b), 0, r) : 0.0;
    one.dim[1] = w->dim[1];
    size_t per = (size_t)(x->dim[1] / w->dim[1]);
    double size =
        product_size(w, s->c->order, oc_host(s, w), r, &one, oc_host(s, x), i * per + place, &sum);
    double k = product_roundings(w->fmt, (size_t)w->dim[1], s->c->order) + 2.0;
    *error = slack * u * (k * size * fabs(gate) + fabs(bias));
    return sum * gate + bias;
}

/* Activations stretch by at most 1.2, relu2 by 2 |g|; their own roundings as of ACT. */
static double experts_glu_error(const op_setup *s, size_t i, size_t col) {
    const op_case *c = s->c;
    size_t f = (size_t)c->m[0], used = (size_t)c->route.used, place = col / f;
    const float *route = (const float *)oc_host(s, s->node.in[1]) + i * 2 * used;
    size_t r = (size_t)route[place] * f + col % f;
    double by = c->gate_input ? (double)route[used + place] : 1.0, e[2] = {0, 0}, v[2] = {0, 0};
    for (int p = 0; p < 2 && s->node.w[p] != NULL; p++) {
        v[p] = fabs(expert_sum(s, p, r, i, 0, by, &e[p]));
    }
    double up = s->node.w[1] != NULL ? v[1] + e[1] + 1.0 : 1.0;
    double stretch = c->act == GW_ACT_RELU2 ? 2.0 * (v[0] + e[0]) : 1.2;
    double value = c->act == GW_ACT_RELU2 ? v[0] * v[0] : v[0];
    return slack * (stretch * e[0] * up + value * e[1] + 12.0 * u * value * up) + 1e-36 * up;
}

static double experts_down_error(const op_setup *s, size_t i, size_t col, double want) {
    size_t used = (size_t)s->c->route.used, d = (size_t)s->c->m[0];
    const float *route = (const float *)oc_host(s, s->node.in[1]) + i * 2 * used;
    double error = 2.0 * u * (fabs(want) + (s->c->addend ? 1.0 : 0.0));
    for (size_t j = 0; j < used; j++) {
        double e, gate = s->c->gate_input ? 1.0 : (double)route[used + j];
        double y = expert_sum(s, 0, (size_t)route[j] * d + col, i, j, 1.0, &e);
        error += gate * (e + (double)(used + 1) * u * (fabs(y) + e));
    }
    return slack * error;
}

/* A chain of so many products of numbers of ordinary size, and what is made of it. */
static double chain_error(double terms, double want) {
    return 16.0 * u * (terms + 8.0) * (1.0 + fabs(want));
}

static double error_of(const op_setup *s, size_t i, size_t col, double want) {
    int plain = gw_op_is_plain(&s->node);
    switch (s->c->op) {
    case GW_OP_EMBED:
        return embed_error(s->c, want);
    case GW_OP_NORM:
        return plain ? norm_error(s, i, col, want) : norm_form_error(s, want);
    case GW_OP_ACT:
        return act_error(s, i, col, want);
    case GW_OP_MIX:
        return mix_error(s, i, col, want);
    case GW_OP_ROUTE:
        return route_error(s, col, want);
    case GW_OP_EXPERTS_GLU:
        return experts_glu_error(s, i, col);
    case GW_OP_EXPERTS_DOWN:
        return experts_down_error(s, i, col, want);
    case GW_OP_LINEAR:
        return linear_error(s, i, col);
    case GW_OP_GLU:
        return glu_error(s, i, col);
    case GW_OP_ROPE_KV:
        return plain ? rope_error(s, i, col) : slack * rope_relative(s->c) * rope_size(s->c);
    case GW_OP_ATTENTION:
        return attention_error(s, i, col);
    case GW_OP_CONV:
        return chain_error(s->c->taps, want);
    case GW_OP_SCAN: /* what every row leaves has its errors too */
        return chain_error((double)s->c->e * s->c->n, want);
    case GW_OP_EXP_GATES: /* exponents up to 8 have the errors of all rows before */
        return chain_error(8.0 * (s->c->n + 4), want);
    case GW_OP_DIVIDE:
        return chain_error(2.0, want);
    case GW_OP_GROUP_NORM:
        return chain_error(s->c->k / s->c->kv_heads / 32.0, want);
    case GW_OP_STREAMS:
        return chain_error(2.0 * s->c->kv_heads, want);
    case GW_OP_SPARSE_GLU: /* gates up to 2 times values up to 2; the cut is a norm's number */
        return chain_error(s->c->k / 32.0, want);
    case GW_OP_EXPERTS_LORA_A:
        return chain_error(s->c->k, want);
    case GW_OP_EXPERTS_LORA_B:
        return chain_error((double)s->c->k * s->c->at_once * s->c->route.used, want);
    case GW_OP_HEADS:
        return chain_error(s->c->k, want);
    case GW_OP_HYPER:
        return chain_error(8.0 * s->c->heads * s->c->taps, want);
    case GW_OP_ROTATE:
        return chain_error(2.0, want);
    case GW_OP_GROUP_DOT:
        return chain_error(s->c->k / s->c->kv_heads / 8.0, want);
    case GW_OP_LISTED:
        return chain_error(4.0 * s->c->e, want);
    default:
        /* PICK, COLUMNS and WIDEN copy; rows of at most 3 are added up and divided */
        return s->c->pool == GW_PICK_MEAN ? slack * u * 3.0 * (double)(s->c->n + s->c->pick) : 0.0;
    }
}

#endif
