/* tests/test_digits.c - attention in digits (docs/arithmetic.md, section 5): which nodes have it,
 * that no piece of a prompt changes a bit of it, how near it is to exact sums, and what numbers
 * that are not finite do. That every kernel has the scalar one's bits is test_ops' part. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/plan/digits.h"
#include "core/tensor/digits.h"
#include "cpu/isa.h"
#include "cpu/ops.h"
#include "tests/random.h"

enum { ROWS = 300, PAGES = (ROWS + GW_PAGE - 1) / GW_PAGE, GROUP = 2, E = 64 };

/* One text of ROWS positions, one KV head; cells as the cache has them. */
typedef struct text {
    gw_u16 k[PAGES * E * GW_PAGE], v[PAGES * GW_PAGE * E];
    float q[ROWS * GROUP * E];
    float sinks[GROUP];
    int32_t pages[PAGES];
    int pos[ROWS], slot[ROWS];
} text;

static gw_u16 *key_at(text *t, int pos, int i) {
    return &t->k[(t->pages[pos / GW_PAGE] * E + i) * GW_PAGE + pos % GW_PAGE];
}
static gw_u16 *value_at(text *t, int pos, int i) {
    return &t->v[(t->pages[pos / GW_PAGE] * GW_PAGE + pos % GW_PAGE) * E + i];
}

/* loud_k, loud_v: what three channels are multiplied by; drawn: the first position, of small
 * values, takes most of the weight. */
static text *text_new(float loud_k, float loud_v, int drawn) {
    text *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (int p = 0; p < PAGES; p++) {
        t->pages[p] = PAGES - 1 - p;
    }
    for (int p = 0; p < PAGES * GW_PAGE; p++) {
        for (int i = 0; i < E; i++) {
            int loud = i == 3 || i == 20 || i == 41;
            float k = random_float(2.0f) * (loud ? loud_k : 1.0f);
            float v = random_float(1.0f) * (loud ? loud_v : 1.0f);
            k = drawn && p == 0 ? 2.0f : k;
            v = drawn && p == 0 ? v / 100.0f : v;
            *key_at(t, p, i) = gw_f32_to_f16(k);
            *value_at(t, p, i) = gw_f32_to_f16(v);
        }
    }
    for (int i = 0; i < ROWS * GROUP * E; i++) {
        t->q[i] = random_float(2.0f) / (loud_k > 1.0f ? 8.0f : 1.0f) + (drawn ? 0.3f : 0.0f);
    }
    for (int p = 0; p < ROWS; p++) {
        t->pos[p] = p;
    }
    t->sinks[0] = 1.5f;
    t->sinks[1] = -2.0f;
    return t;
}

static gw_cpu_attention job_of(const text *t, int digits, gw_cpu_level level) {
    return (gw_cpu_attention){.q = t->q,
                              .q_stride = GROUP * E,
                              .k = t->k,
                              .v = t->v,
                              .k_fmt = GW_FMT_F16,
                              .v_fmt = GW_FMT_F16,
                              .pages = t->pages,
                              .page_stride = PAGES,
                              .pos = t->pos,
                              .slot = t->slot,
                              .kv_heads = 1,
                              .group = GROUP,
                              .e = E,
                              .ev = E,
                              .scale = 0.125f,
                              .sinks = t->sinks,
                              .digits = digits,
                              .vnni = level == GW_CPU_VNNI || level == GW_CPU_AMX};
}

/* Rows [0, n), `each` of them at a time: out [n, GROUP, E]. */
static void attend(const gw_cpu_attention *job, gw_cpu_level level, int n, int each, float *out) {
    size_t most = (size_t)each * GROUP, bytes = gw_cpu_attention_scratch(most, PAGES, E);
    size_t digits = gw_cpu_digits_scratch(most, E);
    bytes = ((digits > bytes ? digits : bytes) + 63) / 64 * 64;
    void *scratch = aligned_alloc(64, bytes);
    assert_non_null(scratch);
    for (int row = 0; row < n; row += each) {
        gw_cpu_attention_part part = {.row = row,
                                      .rows = n - row < each ? n - row : each,
                                      .heads = GROUP,
                                      .out = out + (size_t)row * GROUP * E,
                                      .out_stride = GROUP * E};
        gw_cpu_ops_of(level)->attend(job, &part, scratch);
    }
    free(scratch);
}

static void pieces_change_no_bit(void **state) {
    (void)state;
    static float want[ROWS * GROUP * E], got[ROWS * GROUP * E];
    text *t = text_new(1.0f, 1.0f, 0);
    int compared = 0;
    for (int level = 0; level < GW_CPU_LEVEL_COUNT; level++) {
        if (!gw_cpu_level_runs((gw_cpu_level)level)) {
            continue;
        }
        gw_cpu_attention job = job_of(t, 1, (gw_cpu_level)level);
        if (compared++ == 0) {
            attend(&job, (gw_cpu_level)level, ROWS, ROWS, want);
        }
        static const int each[] = {7, 64, 100, ROWS};
        for (size_t i = level == GW_CPU_SCALAR ? 2 : 0; i < sizeof each / sizeof each[0]; i++) {
            memset(got, 0xff, sizeof got);
            attend(&job, (gw_cpu_level)level, ROWS, each[i], got);
            assert_memory_equal(got, want, sizeof got);
        }
    }
    free(t);
}

/* Rows of the first page see no page before it, and have the bits of sums in float; the next row
 * has others. */
static void the_first_page_is_as_without(void **state) {
    (void)state;
    static float want[ROWS * GROUP * E], got[ROWS * GROUP * E];
    text *t = text_new(1.0f, 1.0f, 0);
    for (int level = 0; level < GW_CPU_LEVEL_COUNT; level++) {
        if (!gw_cpu_level_runs((gw_cpu_level)level)) {
            continue;
        }
        gw_cpu_attention floats = job_of(t, 0, (gw_cpu_level)level);
        gw_cpu_attention digits = job_of(t, 1, (gw_cpu_level)level);
        attend(&floats, (gw_cpu_level)level, GW_PAGE + 1, GW_PAGE + 1, want);
        attend(&digits, (gw_cpu_level)level, GW_PAGE + 1, GW_PAGE + 1, got);
        size_t page = (size_t)GW_PAGE * GROUP * E;
        assert_memory_equal(got, want, page * sizeof *got);
        assert_memory_not_equal(got + page, want + page, GROUP * E * sizeof *got);
    }
    free(t);
}

/* ---- accuracy -------------------------------------------------------------------------------- */

static double half(double x) { return gw_f16_to_f32(gw_f32_to_f16((float)x)); }

/* One query exactly, or with q and weights in 16 bits and sums without an error. */
static void by_definition(text *t, int row, int h, int in_halves, double *out) {
    const float *q = t->q + ((size_t)row * GROUP + (size_t)h) * E;
    double s[ROWS], top = (double)t->sinks[h], sum = 0.0;
    for (int p = 0; p <= row; p++) {
        s[p] = 0.0;
        for (int i = 0; i < E; i++) {
            double x = in_halves ? half((double)q[i]) : (double)q[i];
            s[p] += x * (double)gw_f16_to_f32(*key_at(t, p, i)) * 0.125;
        }
        top = s[p] > top ? s[p] : top;
    }
    for (int i = 0; i < E; i++) {
        out[i] = 0.0;
    }
    for (int p = 0; p <= row; p++) {
        double w = exp(s[p] - top);
        sum += w;
        w = in_halves ? half(w) : w;
        for (int i = 0; i < E; i++) {
            out[i] += w * (double)gw_f16_to_f32(*value_at(t, p, i));
        }
    }
    for (int i = 0; i < E; i++) {
        out[i] /= sum + exp((double)t->sinks[h] - top);
    }
}

/* The root of the squared error over that of the result, of digits and of 16-bit inputs. */
static void errors_of(text *t, double *of_digits, double *of_halves) {
    static float got[ROWS * GROUP * E];
    double size = 0.0, digits = 0.0, halves = 0.0;
    gw_cpu_attention job = job_of(t, 1, GW_CPU_SCALAR);
    attend(&job, GW_CPU_SCALAR, ROWS, ROWS, got);
    for (int row = GW_PAGE; row < ROWS; row += 7) {
        for (int h = 0; h < GROUP; h++) {
            double want[E], other[E];
            by_definition(t, row, h, 0, want);
            by_definition(t, row, h, 1, other);
            for (int i = 0; i < E; i++) {
                double x = (double)got[(row * GROUP + h) * E + i] - want[i], y = other[i] - want[i];
                size += want[i] * want[i];
                digits += x * x;
                halves += y * y;
            }
        }
    }
    *of_digits = sqrt(digits / size);
    *of_halves = sqrt(halves / size);
}

static void no_further_from_exact_than_halves(void **state) {
    (void)state;
    static const struct {
        float loud_k, loud_v;
    } shapes[] = {{1.0f, 1.0f}, {50.0f, 1.0f}, {1.0f, 50.0f}, {50.0f, 50.0f}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        text *t = text_new(shapes[i].loud_k, shapes[i].loud_v, 0);
        double digits, halves;
        errors_of(t, &digits, &halves);
        assert_true(digits > 0.0 && digits < halves && digits < 5e-4);
        free(t);
    }
    text *t = text_new(1.0f, 1.0f, 1); /* one value has all the weight: halves are exact there */
    double digits, halves;
    errors_of(t, &digits, &halves);
    assert_true(digits > 0.0 && digits < 2e-4);
    free(t);
}

/* ---- numbers that are not finite ------------------------------------------------------------- */

static void what_is_not_finite_stays_visible(void **state) {
    (void)state;
    static float got[ROWS * GROUP * E];
    for (int which = 0; which < 4; which++) {
        text *t = text_new(1.0f, 1.0f, 0);
        gw_u16 bits = which % 2 == 0 ? 0x7c00 : 0x7e00; /* infinity, NaN */
        *(which < 2 ? key_at(t, 70, 9) : value_at(t, 70, 9)) = bits;
        for (int level = 0; level < GW_CPU_LEVEL_COUNT; level++) {
            if (!gw_cpu_level_runs((gw_cpu_level)level)) {
                continue;
            }
            gw_cpu_attention job = job_of(t, 1, (gw_cpu_level)level);
            attend(&job, (gw_cpu_level)level, ROWS, 100, got);
            for (int i = 0; i < 70 * GROUP * E; i++) { /* do not see it */
                assert_true(isfinite(got[i]));
            }
            for (int i = 2 * GW_PAGE * GROUP * E; i < ROWS * GROUP * E; i++) {
                assert_true(isnan(got[i]));
            }
        }
        free(t);
    }
}

/* ---- the rule -------------------------------------------------------------------------------- */

static gw_node node_with(gw_tensor *q, gw_tensor *k, gw_tensor *v) {
    gw_node node = {.op = GW_OP_ATTENTION, .in = {q, k, v}};
    node.args.attn = (gw_attn_args){
        .scale = 0.125f, .heads = 4, .kv_heads = 2, .head_dim = 64, .order = GW_ORDER_PREFILL};
    return node;
}

static void its_exp_is_gw_exp(void **state) {
    (void)state;
    for (uint32_t bits = 0x80000000u; bits <= 0xff800000u; bits += 977) { /* -0 to -infinity */
        float x = GW_F32_FROM_BITS(bits), want = gw_exp(x), got = gw_digits_exp(x);
        if (memcmp(&want, &got, sizeof want) != 0) {
            fail_msg("of %a: %a, not %a", (double)x, (double)got, (double)want);
        }
    }
    assert_true(gw_digits_exp(0.0f) == 1.0f && isnan(gw_digits_exp(NAN)));
}

static void the_rule(void **state) {
    (void)state;
    gw_tensor q = {.fmt = GW_FMT_F32}, k = {.fmt = GW_FMT_F16}, v = k, other = k;
    gw_node n = node_with(&q, &k, &v);
    assert_true(gw_attn_in_digits(&n));
    n.w[0] = &q; /* sinks */
    assert_true(gw_attn_in_digits(&n));
    k.fmt = v.fmt = GW_FMT_Q8_0;
    assert_true(gw_attn_in_digits(&n));
    v.fmt = GW_FMT_Q4_0; /* each in its own */
    assert_true(gw_attn_in_digits(&n));
    other.fmt = GW_FMT_F32;
#define NOT_WITH(change)                                                                           \
    n = node_with(&q, &k, &v);                                                                     \
    change;                                                                                        \
    assert_false(gw_attn_in_digits(&n))
    NOT_WITH(n.args.attn.order = GW_ORDER_DECODE);
    NOT_WITH(n.args.attn.both = 1);
    NOT_WITH(n.args.attn.window = 4096);
    NOT_WITH(n.args.attn.chunk = 8192);
    NOT_WITH(n.args.attn.softcap = 50.0f);
    NOT_WITH(n.args.attn.head_dim = 80);
    NOT_WITH(n.args.attn.head_dim = 16);
    NOT_WITH(n.args.attn.head_dim = 288);
    NOT_WITH(n.args.attn.v_dim = 32);
    NOT_WITH(n.w[1] = &q);
    NOT_WITH(n.w[2] = &q);
    NOT_WITH(n.in[1] = n.in[2] = &other);
    NOT_WITH(n.in[2] = NULL);
    NOT_WITH(n.in[2] = &other);
#undef NOT_WITH
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_change_no_bit),
        cmocka_unit_test(the_first_page_is_as_without),
        cmocka_unit_test(no_further_from_exact_than_halves),
        cmocka_unit_test(what_is_not_finite_stays_visible),
        cmocka_unit_test(its_exp_is_gw_exp),
        cmocka_unit_test(the_rule),
    };
    return cmocka_run_group_tests_name("digits", tests, NULL, NULL);
}
