/* tests/test_act.c - act.h against libm in double: the bounds that it states, found by trying many
 * more floats than are tried here, and every activation by its formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>

#include "core/tensor/act.h"

static double ulp_at(double v) {
    int e;
    frexp(v, &e);
    return ldexp(1.0, e - 24 < -149 ? -149 : e - 24);
}

typedef struct bounded {
    const char *name;
    float (*f)(float x);
    double (*want)(double x);
    double ulps;
    float from, to;
} bounded;

static double softplus(double x) { return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))); }
static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

static float tanh_of(float x) { return gw_tanh(x); }
static float erf_of(float x) { return gw_erf(x); }
static float expm1_of(float x) { return gw_expm1(x); }
static float softplus_of(float x) { return gw_softplus(x); }
static float sigmoid_of(float x) { return gw_sigmoid(x); }

static const bounded functions[] = {
    {"tanh", tanh_of, tanh, 1.4, -200.0f, 200.0f},
    {"erf", erf_of, erf, 1.2, -200.0f, 200.0f},
    {"expm1", expm1_of, expm1, 1.6, -87.0f, 88.0f},
    {"softplus", softplus_of, softplus, 2.0, -87.0f, FLT_MAX},
    {"sigmoid", sigmoid_of, sigmoid, 2.5, -87.0f, FLT_MAX},
};

static void bounds(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        const bounded *b = &functions[i];
        for (uint32_t u = 0; u < 0x7f800000u; u += 1999) {
            for (uint32_t sign = 0; sign < 2; sign++) {
                float x = GW_F32_FROM_BITS(u | sign << 31);
                if (x < b->from || x > b->to) {
                    continue;
                }
                double want = b->want((double)x), got = (double)b->f(x);
                double off = fabs(got - want) / ulp_at(want);
                if (!(off <= b->ulps)) {
                    fail_msg("%s(%a) is %a, off by %g ulp", b->name, (double)x, got, off);
                }
            }
        }
        assert_true(isnan(b->f(NAN)));
    }
}

static void ends(void **state) {
    (void)state;
    assert_true(gw_tanh(INFINITY) == 1.0f && gw_tanh(-INFINITY) == -1.0f);
    assert_true(gw_erf(INFINITY) == 1.0f && gw_erf(-INFINITY) == -1.0f);
    assert_true(gw_expm1(-INFINITY) == -1.0f && gw_expm1(-1000.0f) == -1.0f);
    assert_true(gw_softplus(-1000.0f) == 0.0f && gw_softplus(1000.0f) == 1000.0f);
    assert_true(gw_softplus(INFINITY) == INFINITY && gw_sigmoid(INFINITY) == 1.0f);
    assert_true(gw_tanh(0.0f) == 0.0f && gw_erf(0.0f) == 0.0f && gw_expm1(0.0f) == 0.0f);
    for (float x = -30.0f; x < 30.0f; x += 0.37f) {
        assert_true(fabsf(gw_softcap(x, 15.0f)) < 15.0f);
        assert_true(fabs((double)gw_softcap(x, 15.0f) - 15.0 * tanh((double)x / 15.0)) < 3e-6);
    }
}

static double value(gw_act_kind kind, double g, double u, double limit, double alpha) {
    static const double ap = 0.8, an = 0.3;
    double low = fmin(g, limit); /* of XIELU, as alpha is what g is multiplied by */
    if (limit > 0.0 && (kind == GW_ACT_SILU || kind == GW_ACT_SWIGLU_OAI)) {
        g = fmin(g, limit);
        u = fmax(fmin(u, limit), -limit);
    }
    if (limit > 0.0 && kind == GW_ACT_SILU_CAPPED) {
        return fmin(g * sigmoid(g), limit) * fmax(fmin(u, limit), -limit);
    }
    switch (kind) {
    case GW_ACT_SILU:
        return g * sigmoid(g) * u;
    case GW_ACT_GELU:
        return g / 2 * (1 + erf(g / sqrt(2.0))) * u;
    case GW_ACT_GELU_TANH:
        return g / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g))) * u;
    case GW_ACT_RELU:
        return fmax(g, 0) * u;
    case GW_ACT_RELU2:
        return fmax(g, 0) * fmax(g, 0) * u;
    case GW_ACT_SWIGLU_OAI:
        return g * sigmoid(alpha * g) * (u + 1);
    case GW_ACT_XIELU:
        return (g > 0 ? ap * g * g + alpha * g : an * (expm1(low) - g) + alpha * g) * u;
    case GW_ACT_SIGMOID:
        return sigmoid(g) * u;
    case GW_ACT_SOFTPLUS:
        return softplus(g) * u;
    case GW_ACT_TANH:
        return tanh(g) * u;
    case GW_ACT_CLAMP:
        return fmin(fmax(g, ap), an) * u;
    case GW_ACT_CLIP:
        return (limit > 0.0 ? fmin(fmax(g, -limit), limit) : g) * u;
    case GW_ACT_SILU_CAPPED:
        return g * sigmoid(g) * u;
    default:
        return g * u;
    }
}

/* A few roundings of what is multiplied: of 1 + erf and 1 + tanh, which may be small, absolutely.
 */
static void activations(void **state) {
    (void)state;
    static const float limits[] = {0.0f, 7.0f};
    for (int kind = 0; kind < GW_ACT_KINDS; kind++) {
        for (int i = 0; i < 2; i++) {
            for (float g = -20.0f; g < 20.0f; g += 0.0173f) {
                float u = 9.0f - 0.9f * g, limit = limits[i];
                float got = gw_act_gate((gw_act_kind)kind, g, limit, 1.702f, 0.8f, 0.3f) *
                            gw_act_factor((gw_act_kind)kind, u, limit);
                double want =
                    value((gw_act_kind)kind, (double)g, (double)u, (double)limit, (double)1.702f);
                double bound = 4e-7 * fabs(want) + 2e-7 * fabs((double)g * (double)u) + 1e-6;
                if (!(fabs((double)got - want) <= bound)) {
                    fail_msg("activation %d of %g, %g, limit %g: %.9g, not %.9g", kind, (double)g,
                             (double)u, (double)limit, (double)got, want);
                }
            }
        }
        assert_true(isnan(gw_act_gate((gw_act_kind)kind, NAN, 7.0f, 1.0f, 1.0f, 1.0f)));
        assert_true(isnan(gw_act_factor((gw_act_kind)kind, NAN, 7.0f)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds),
        cmocka_unit_test(ends),
        cmocka_unit_test(activations),
    };
    return cmocka_run_group_tests_name("act", tests, NULL, NULL);
}
