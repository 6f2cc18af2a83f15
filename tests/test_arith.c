/* tests/test_arith.c - arith.h against definitions that it had no part in: IEEE 754 halves worked
 * out with ldexp, libm in double, an exact fma, the published Random123 vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>

#include "core/tensor/arith.h"
#include "tests/exact_fma.h"
#include "tests/random.h"

/* Size of the last place of a float near v. */
static double ulp_at(double v) {
    int e;
    frexp(v, &e);
    return ldexp(1.0, e - 24 < -149 ? -149 : e - 24);
}

/* ---- half precision ------------------------------------------------------------------------- */

static double half_value(unsigned bits) {
    int e = (int)(bits >> 10 & 31), f = (int)(bits & 1023);
    double v = e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);
    return bits & 0x8000 ? -v : v;
}

static void every_half(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 65536; bits++) {
        float x = gw_f16_to_f32((gw_u16)bits);
        if ((bits & 0x7fff) > 0x7c00) {
            assert_true(isnan(x));
            assert_int_equal(gw_f32_to_f16(x), bits | 0x200); /* stays a NaN, made quiet */
            continue;
        }
        double want =
            (bits & 0x7fff) == 0x7c00 ? (bits & 0x8000 ? -HUGE_VAL : HUGE_VAL) : half_value(bits);
        assert_true((double)x == want);
        assert_int_equal(GW_F32_BITS(x) >> 31, bits >> 15);
        assert_int_equal(gw_f32_to_f16(x), bits);
    }
}

/* Rounding is monotone, so the points where it turns say everything: the middle between two halves
 * goes to the even one, its neighbours to the nearer. 0x7c00 counts as 65536 here, as IEEE says. */
static void rounding_to_half(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 0x7c00; bits++) {
        double next = bits == 0x7bff ? 65536.0 : half_value(bits + 1);
        float middle = (float)((half_value(bits) + next) / 2);
        unsigned even = bits & 1 ? bits + 1 : bits;
        for (unsigned sign = 0; sign < 2; sign++) {
            float s = sign ? -1.0f : 1.0f;
            assert_int_equal(gw_f32_to_f16(s * middle), even | sign << 15);
            assert_int_equal(gw_f32_to_f16(s * nextafterf(middle, 0)), bits | sign << 15);
            assert_int_equal(gw_f32_to_f16(s * nextafterf(middle, 1e9f)), (bits + 1) | sign << 15);
        }
    }
    uint32_t last = 0; /* monotone over all floats, sampled */
    for (uint32_t u = 0; u <= 0x7f800000u; u += 997) {
        uint32_t half = gw_f32_to_f16(GW_F32_FROM_BITS(u));
        assert_true(half >= last && half <= 0x7c00);
        last = half;
    }
    assert_int_equal(gw_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(gw_f32_to_f16(FLT_MAX), 0x7c00);
    assert_int_equal(gw_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(gw_f32_to_f16(GW_F32_FROM_BITS(0x7f800001u)), 0x7e00);
    for (uint32_t bits = 0; bits < 65536; bits += 7) {
        assert_int_equal(GW_F32_BITS(gw_bf16_to_f32((gw_u16)bits)), bits << 16);
    }
}

/* ---- exp, log, silu ------------------------------------------------------------------------- */

/* The bounds arith.h states, found by trying every float of the range; here every 41st or so. */
static void exp_bound(void **state) {
    (void)state;
    for (uint32_t u = 0; u <= 0x42b00000u; u += u < 0x33000000u ? 65521 : 41) {
        for (uint32_t sign = 0; sign < 2; sign++) {
            float x = GW_F32_FROM_BITS(u | sign << 31);
            if (x >= -87.0f) {
                double want = exp((double)x), error = fabs((double)gw_exp(x) - want);
                if (!(error <= 1.02 * ulp_at(want))) {
                    fail_msg("exp(%a) is %a, off by %g ulp", (double)x, (double)gw_exp(x),
                             error / ulp_at(want));
                }
            }
        }
    }
    assert_true(gw_exp(0.0f) == 1.0f && gw_exp(-0.0f) == 1.0f);
    assert_true(gw_exp(-INFINITY) == 0.0f && gw_exp(nextafterf(-87.0f, -88.0f)) == 0.0f);
    assert_true(gw_exp(-87.0f) >= FLT_MIN);
    assert_true(isfinite(gw_exp(88.0f)) && gw_exp(INFINITY) == gw_exp(88.0f));
    assert_true(gw_exp(nextafterf(88.0f, 89.0f)) == gw_exp(88.0f));
    assert_true(isnan(gw_exp(NAN)) && isnan(gw_exp(-NAN)));
}

/* Softmax relies on exp never growing beyond 1 for x <= 0, and on order: across the edges of the
 * reduction (x = (k + 1/2) ln 2) neighbours may be off by their bounds and no more. */
static void exp_order(void **state) {
    (void)state;
    for (int k = -125; k <= 126; k++) {
        float edge = (float)((k + 0.5) * 0.69314718055994531), x = edge;
        for (int i = 0; i < 200; i++) {
            x = nextafterf(x, -100.0f);
        }
        float before = gw_exp(x);
        for (int i = 0; i < 400; i++) {
            x = nextafterf(x, 100.0f);
            float now = gw_exp(x);
            assert_true(now >= before - 3.0f * (float)ulp_at((double)before));
            before = now;
        }
    }
    for (uint32_t u = 0; u < 0x42b00000u; u += 1009) {
        float y = gw_exp(-GW_F32_FROM_BITS(u));
        assert_true(y >= 0.0f && y <= 1.0f);
    }
}

static void log_bound(void **state) {
    (void)state;
    for (uint32_t u = 0x00800000u;
         u<0x7f800000u; u += u> 0x3f000000u && u < 0x40000000u ? 11 : 997) {
        float x = GW_F32_FROM_BITS(u);
        double want = log((double)x), error = fabs((double)gw_log(x) - want);
        if (!(error <= 0.83 * ulp_at(want))) {
            fail_msg("log(%a) is %a, off by %g ulp", (double)x, (double)gw_log(x),
                     error / ulp_at(want));
        }
    }
    assert_int_equal(GW_F32_BITS(gw_log(1.0f)), 0);
}

static void silu_values(void **state) {
    (void)state;
    for (float x = -80.0f; x < 80.0f; x += 0.0137f) {
        double want = (double)x / (1.0 + exp(-(double)x));
        /* exp 1.02 ulp, the sum and the quotient half each: at most 2 u + 4 u relative */
        assert_true(fabs((double)gw_silu(x) - want) <= 6 * 0x1p-24 * fabs(want) + 0x1p-149);
    }
    assert_true(gw_silu(0.0f) == 0.0f && gw_silu(1000.0f) == 1000.0f);
    assert_true(gw_silu(-1000.0f) <= 0.0f && gw_silu(-1000.0f) > -1e-34f);
    assert_true(isnan(gw_silu(NAN)));
}

/* ---- activations ---------------------------------------------------------------------------- */

static void act8_known(void **state) {
    (void)state;
    float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
    gw_act8 a;
    static const int want[8] = {127, 0, 2, 2, 0, -2, -2, 126}; /* ties to even */
    x[16] = -127.0f;
    x[31] = 3.0f;
    gw_act8_encode(&a, x);
    assert_true(a.scale == 1.0f);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(a.q[i], want[i]);
    }
    assert_int_equal(a.q[16], -127);
    assert_int_equal(a.sum[0], 127 + 2 + 2 - 2 - 2 + 126);
    assert_int_equal(a.sum[1], -127 + 3);

    static const float still[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-126f, 4.0e-37f};
    for (size_t c = 0; c < sizeof still / sizeof still[0]; c++) { /* too small: zeros */
        for (int i = 0; i < 32; i++) {
            x[i] = still[c];
        }
        gw_act8_encode(&a, x);
        assert_true(a.scale >= 0.0f && a.scale < 4e-39f && a.sum[0] == 0 && a.sum[1] == 0);
        for (int i = 0; i < 32; i++) {
            assert_int_equal(a.q[i], 0);
        }
    }
}

static void act8_not_finite(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int at = 0; at < 32; at++) {
        for (size_t c = 0; c < 3; c++) {
            float x[32];
            gw_act8 a;
            for (int i = 0; i < 32; i++) {
                x[i] = i == at ? bad[c] : 1.0f;
            }
            gw_act8_encode(&a, x);
            assert_true(isnan(a.scale) && a.sum[0] == 0 && a.sum[1] == 0);
            for (int i = 0; i < 32; i++) {
                assert_int_equal(a.q[i], 0);
            }
        }
    }
}

/* Any finite block: the largest value gets +-127, every other is within half a step. Two roundings
 * (127 / amax, the product) move x / scale by 2 u, that is 127 * 2^-23 of a step at most. */
static void act8_bound(void **state) {
    (void)state;
    for (int turn = 0; turn < 20000; turn++) {
        float x[32], size = ldexpf(1.0f, turn % 240 - 112);
        gw_act8 a;
        int top = 0, sums[2] = {0, 0};
        for (int i = 0; i < 32; i++) {
            x[i] = random_float(size);
            top = GW_FABS(x[i]) > GW_FABS(x[top]) ? i : top;
        }
        gw_act8_encode(&a, x);
        assert_int_equal(a.q[top], x[top] > 0.0f ? 127 : -127);
        for (int i = 0; i < 32; i++) {
            double step = (double)GW_FABS(x[top]) / 127.0;
            assert_true(fabs((double)x[i] / step - a.q[i]) <= 0.5 + 127 * 0x1p-22);
            sums[i / 16] += a.q[i];
        }
        assert_true(fabs((double)a.scale * 127 / (double)GW_FABS(x[top]) - 1) <= 0x1p-23);
        assert_true(a.sum[0] == sums[0] && a.sum[1] == sums[1]);
    }
}

/* gw_act8_span in double, where each of its steps but two is exact; those round once to float. */
static void one_scale(gw_act8 *to, const gw_act8 *from) {
    double top = 0.0, inverse = 0.0;
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        top = !((double)from[b].scale <= top) ? (double)from[b].scale : top;
    }
    if (isfinite(top) && top > 0.0 && (double)(float)(256.0 / top) < (double)3.0e38f) {
        inverse = (double)(float)(256.0 / top);
    }
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        double part = inverse > 0.0 ? nearbyint((double)(float)(from[b].scale * inverse)) : 0.0;
        to[b].scale = (float)top;
        to[b].sum[0] = to[b].sum[1] = 0;
        for (int i = 0; i < 32; i++) {
            to[b].q[i] = (gw_i8)floor(from[b].q[i] * part / 256.0 + 0.5);
            to[b].sum[i / 16] = (gw_i16)(to[b].sum[i / 16] + to[b].q[i]);
        }
    }
}

static void check_span(const gw_act8 *from) {
    gw_act8 want[GW_ACT_SPAN], got[GW_ACT_SPAN], in_place[GW_ACT_SPAN];
    memset(got, 0xff, sizeof got);
    memcpy(in_place, from, sizeof in_place);
    one_scale(want, from);
    gw_act8_span(got, from);
    gw_act8_span(in_place, in_place);
    assert_memory_equal(got, want, sizeof got);
    assert_memory_equal(in_place, want, sizeof got);
}

static void random_codes(gw_act8 *x) {
    x->sum[0] = x->sum[1] = 0;
    for (int i = 0; i < 32; i++) {
        int most = i % 2 ? 127 : -127, any = (int)(random_u32() % 255) - 127;
        x->q[i] = (gw_i8)(random_u32() % 8 == 0 ? most : any);
        x->sum[i / 16] = (gw_i16)(x->sum[i / 16] + x->q[i]);
    }
}

/* Every ratio of scales. The largest block keeps its bits; of the others a code is rounded by half
 * and its part of 256 by half of that: within 1/2 + 127 / 512 and what floats round, of a step. */
static void act8_span_bound(void **state) {
    (void)state;
    for (int turn = 0; turn < 20000; turn++) {
        gw_act8 from[GW_ACT_SPAN], to[GW_ACT_SPAN];
        int top = 0;
        for (int b = 0; b < GW_ACT_SPAN; b++) {
            int less = (int)(random_u32() % 14) * (turn % 4) / 3;
            float size = ldexpf(1.0f, turn % 200 - 100 - less);
            from[b].scale = random_u32() % 32 == 0 ? 0.0f : GW_FABS(random_float(size));
            random_codes(&from[b]);
            top = from[b].scale > from[top].scale ? b : top;
        }
        check_span(from);
        gw_act8_span(to, from);
        if (from[top].scale > 0.0f) {
            assert_memory_equal(&to[top], &from[top], sizeof to[top]);
        }
        for (int b = 0; b < GW_ACT_SPAN; b++) {
            assert_true(to[b].scale == from[top].scale);
            for (int i = 0; i < 32 && from[top].scale > 0.0f; i++) {
                double want = (double)from[b].scale * from[b].q[i] / (double)from[top].scale;
                assert_true(fabs(to[b].q[i] - want) <= 0.5 + 127.0 / 512 + 127 * 0x1p-22);
                assert_true(to[b].q[i] >= -127 && to[b].q[i] <= 127);
            }
        }
    }
}

/* Each part of 256 of each code: from scales that are those parts, of 256. */
static void act8_span_codes(void **state) {
    (void)state;
    for (int part = 0; part <= 256; part++) {
        gw_act8 from[GW_ACT_SPAN] = {{.scale = 256.0f}};
        for (int q = -127; q <= 127; q++) {
            for (int b = 1; b < GW_ACT_SPAN; b++) {
                from[b].scale = (float)part * (b == 3 ? 1.0f : b == 1 ? 0.9995f : 1.0005f);
                from[b].scale = from[b].scale > 256.0f ? 256.0f : from[b].scale;
                from[b].q[(q + 127) % 32] = (gw_i8)q;
            }
            check_span(from);
        }
    }
}

/* A scale that is not finite is everyone's, and there are no codes: the fault reaches the sum. So
 * do scales that are too small to divide by, with codes of 0. */
static void act8_span_faults(void **state) {
    (void)state;
    static const float scales[] = {NAN, INFINITY, 0.0f, 0x1p-149f, 8.5e-37f, 8.54e-37f};
    for (size_t c = 0; c < sizeof scales / sizeof scales[0]; c++) {
        for (int at = 0; at < GW_ACT_SPAN; at++) {
            gw_act8 from[GW_ACT_SPAN], to[GW_ACT_SPAN];
            for (int b = 0; b < GW_ACT_SPAN; b++) {
                from[b].scale = isfinite(scales[c]) ? scales[c] / 2 : 1.0f;
                random_codes(&from[b]);
            }
            from[at].scale = scales[c];
            gw_act8_span(to, from);
            for (int b = 0; b < GW_ACT_SPAN; b++) {
                assert_true(isnan(scales[c]) ? isnan(to[b].scale) : to[b].scale == scales[c]);
                for (int i = 0; i < 32 && c < 5; i++) {
                    assert_int_equal(to[b].q[i], 0);
                }
                assert_true(c == 5 || (to[b].sum[0] == 0 && to[b].sum[1] == 0));
            }
            if (c == 5) { /* just large enough */
                assert_memory_equal(&to[at], &from[at], sizeof to[at]);
            }
            if (isfinite(scales[c])) {
                check_span(from);
            }
        }
    }
}

/* ---- sums, norm, rope ----------------------------------------------------------------------- */

/* Lanes first, first + 1, .. first + n - 1, by halves. */
static float joined(const float *lane, int first, int n) {
    return n == 1 ? lane[first] : joined(lane, first, n / 2) + joined(lane, first + n / 2, n / 2);
}

/* Lanes first, first + step, .. below 32: those an even number of steps on, and the others. */
static float folded(const float *lane, int first, int step) {
    return step == 32 ? lane[first]
                      : folded(lane, first, 2 * step) + folded(lane, first + step, 2 * step);
}

static void lanes_join_in_order(void **state) {
    (void)state;
    int chain_differs = 0, trees_differ = 0;
    for (int turn = 0; turn < 1000; turn++) {
        float lane[32], chain = 0.0f;
        for (int i = 0; i < 32; i++) {
            lane[i] = random_float(1.0f) * ldexpf(1.0f, (int)(random_u32() % 24));
            chain += lane[i];
        }
        float join = joined(lane, 0, 32), fold = folded(lane, 0, 1);
        assert_int_equal(GW_F32_BITS(gw_join_lanes(lane)), GW_F32_BITS(join));
        assert_int_equal(GW_F32_BITS(gw_fold_lanes(lane)), GW_F32_BITS(fold));
        chain_differs += chain != join && chain != fold;
        trees_differ += join != fold;
    }
    assert_true(chain_differs > 500); /* or the comparisons above could not see the order */
    assert_true(trees_differ > 500);
    float lane[32] = {0}; /* the large ones meet first, so the small one survives */
    lane[0] = 0x1p30f;
    lane[1] = -0x1p30f;
    lane[16] = 1.0f;
    assert_true(gw_join_lanes(lane) == 1.0f && gw_fold_lanes(lane) == 0.0f);
    lane[1] = 1.0f;
    lane[16] = -0x1p30f;
    assert_true(gw_join_lanes(lane) == 0.0f && gw_fold_lanes(lane) == 1.0f);
}

/* The squares of a block, joined in pairs 16, 8, 4, 2, 1 apart, each product and sum rounded. */
static void blocks_of_squares(void **state) {
    (void)state;
    int chain_differs = 0;
    for (int turn = 0; turn < 1000; turn++) {
        float x[32], tree[32], chain = 0.0f;
        int n = turn % 4 == 0 ? 1 + (int)(random_u32() % 31) : 32;
        for (int i = 0; i < 32; i++) {
            x[i] = random_float(1.0f) * ldexpf(1.0f, (int)(random_u32() % 8));
            tree[i] = i < n ? (float)((double)x[i] * (double)x[i]) : 0.0f;
            chain += tree[i];
        }
        for (int h = 16; h > 0; h /= 2) {
            for (int i = 0; i < h; i++) {
                tree[i] = (float)((double)tree[i] + (double)tree[i + h]);
            }
        }
        assert_int_equal(GW_F32_BITS(gw_block_squares(x, n)), GW_F32_BITS(tree[0]));
        chain_differs += chain != tree[0];
    }
    assert_true(chain_differs > 250); /* or the comparison above could not see the order */
}

static void rope_and_norm(void **state) {
    (void)state;
    for (int turn = 0; turn < 20000; turn++) {
        float a = random_float(4.0f), b = random_float(4.0f), angle = random_float(3.2f);
        float c = cosf(angle), s = sinf(angle);
        float bs = (float)((double)b * (double)s), as = (float)((double)a * (double)s);
        float first = exact_fma((double)a, (double)c, -(double)bs);
        float second = exact_fma((double)b, (double)c, (double)as);
        assert_int_equal(GW_F32_BITS(gw_rope_first(a, b, c, s)), GW_F32_BITS(first));
        assert_int_equal(GW_F32_BITS(gw_rope_second(a, b, c, s)), GW_F32_BITS(second));

        int n = 1 + (int)(random_u32() % 8192);
        float ss = GW_FABS(random_float(1e4f)), eps = 1e-5f;
        double want = 1.0 / sqrt((double)ss / n + (double)eps);
        assert_true(fabs((double)gw_rms_scale(ss, n, eps) / want - 1.0) <= 2.5 * 0x1p-24);
    }
    assert_true(gw_rms_scale(0.0f, 64, 0x1p-20f) == 1024.0f);
}

/* ---- noise ---------------------------------------------------------------------------------- */

/* Philox-4x32-10 from the paper's description, all four words. */
static void philox_reference(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t x[4], k[2] = {key[0], key[1]};
    memcpy(x, counter, sizeof x);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)x[0] * 0xD2511F53u, p1 = (uint64_t)x[2] * 0xCD9E8D57u;
        uint32_t y[4] = {(uint32_t)(p1 >> 32) ^ x[1] ^ k[0], (uint32_t)p1,
                         (uint32_t)(p0 >> 32) ^ x[3] ^ k[1], (uint32_t)p0};
        memcpy(x, y, sizeof x);
        k[0] += 0x9E3779B9u; /* golden ratio */
        k[1] += 0xBB67AE85u; /* sqrt(3) - 1  */
    }
    memcpy(out, x, sizeof x);
}

/* Random123 1.14 tests/kat_vectors, "philox4x32 10". gw_philox fixes the fourth counter word to 0,
 * which only the first vector has; the others hold the reference that stands in for them. */
static void philox_vectors(void **state) {
    (void)state;
    static const uint32_t kat[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int v = 0; v < 3; v++) {
        uint32_t out[4];
        philox_reference(kat[v], kat[v] + 4, out);
        assert_memory_equal(out, kat[v] + 6, sizeof out);
    }
    assert_int_equal(gw_philox(0, 0, 0, 0, 0), 0x6627e8d5);
    for (int turn = 0; turn < 10000; turn++) {
        uint32_t c[4] = {random_u32(), random_u32(), random_u32(), 0}, out[4];
        uint32_t key[2] = {random_u32(), random_u32()};
        philox_reference(c, key, out);
        assert_int_equal(gw_philox(c[0], c[1], c[2], key[0], key[1]), out[0]);
    }
}

static void gumbel_noise(void **state) {
    (void)state;
    /* Every kind of cell, from the first to the last: finite, ordered, near the true value. */
    float before = -INFINITY;
    for (uint32_t cell = 0; cell < 1u << 23;
         cell += cell < 4096 || cell > (1u << 23) - 4096 ? 1 : 509) {
        float u = ((float)cell + 0.5f) * 0x1p-23f, g = -gw_log(-gw_log(u));
        assert_true((double)u == (2.0 * cell + 1.0) / 0x1p24 && u > 0.0f && u < 1.0f);
        assert_true(fabs((double)g - -log(-log((double)u))) <= 1e-6);
        assert_true(g >= before - 1e-6f && g > -2.9f && g < 16.7f);
        before = g;
    }
    /* gw_gumbel is that function of its counter; mean 0.5772, variance pi^2 / 6 = 1.6449. */
    double sum = 0.0, squares = 0.0;
    enum { N = 200000 };
    for (uint32_t t = 0; t < N; t++) {
        float g = gw_gumbel(7, 0, 0, t / 1000, t % 1000);
        uint32_t cell = gw_philox(t % 1000, t / 1000, 0, 7, 0) >> 9;
        assert_true(g == -gw_log(-gw_log(((float)cell + 0.5f) * 0x1p-23f)));
        sum += (double)g;
        squares += (double)g * (double)g;
    }
    double mean = sum / N, variance = squares / N - mean * mean;
    assert_true(fabs(mean - 0.5772157) < 0.0144);    /* 5 standard errors: 5 * 1.2825 / sqrt(N) */
    assert_true(fabs(variance - 1.6449341) < 0.039); /* 5 * sqrt(4.4 * 1.645^2 / N)             */
    assert_true(gw_gumbel(1, 2, 3, 4, 5) != gw_gumbel(1, 2, 3, 5, 4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half),        cmocka_unit_test(rounding_to_half),
        cmocka_unit_test(exp_bound),         cmocka_unit_test(exp_order),
        cmocka_unit_test(log_bound),         cmocka_unit_test(silu_values),
        cmocka_unit_test(act8_known),        cmocka_unit_test(act8_not_finite),
        cmocka_unit_test(act8_bound),        cmocka_unit_test(act8_span_bound),
        cmocka_unit_test(act8_span_codes),   cmocka_unit_test(act8_span_faults),
        cmocka_unit_test(blocks_of_squares), cmocka_unit_test(lanes_join_in_order),
        cmocka_unit_test(rope_and_norm),     cmocka_unit_test(philox_vectors),
        cmocka_unit_test(gumbel_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
