/* tests/test_rope.c - rope tables against the C library and against hand-computed scalings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/model/rope.h"

/* Distance in units in the last place; NaN is far from everything. */
static int64_t ulps(float a, float b) {
    int32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    int64_t i = x < 0 ? -(int64_t)(x & 0x7fffffff) : x, j = y < 0 ? -(int64_t)(y & 0x7fffffff) : y;
    if (!(a == a) || !(b == b)) {
        return INT64_MAX;
    }
    return i > j ? i - j : j - i;
}

static double away(double a, double b) { return fabs(a - b) / fmax(fabs(b), 1e-300); }

static void test_functions(void **state) {
    (void)state;
    for (int i = 0; i < 200000; i++) {
        double x = -80.0 + 1e-3 * i, y = 1e-6 + 0.37 * i, s, c;
        assert_true(away(gw_rope_exp(x), exp(x)) < 1e-15);
        assert_true(fabs(gw_rope_log(y) - log(y)) < 1e-15 * fmax(1.0, fabs(log(y))));
        gw_rope_sin_cos(y, &s, &c);
        assert_true(fabs(s - sin(y)) < 4e-16);
        assert_true(fabs(c - cos(y)) < 4e-16);
    }
}

static gw_rope plain(double base, int dim) {
    return (gw_rope){.base = base, .dim = dim, .turning = dim / 2, .factor = 1.0, .truncate = 1};
}

/* The table equals the C library's to one unit in the last place of a float. */
static void test_table(void **state) {
    (void)state;
    enum { HALF = 32, POSITIONS = 2100 };
    gw_rope r = plain(10000.0, 2 * HALF);
    double freq[HALF], magnitude;
    gw_rope_frequencies(&r, 4096, freq, &magnitude);
    assert_true(magnitude == 1.0);
    float *table = malloc(sizeof(float) * POSITIONS * 2 * HALF);
    assert_non_null(table);
    gw_rope_fill(freq, HALF, magnitude, 0, POSITIONS, table);
    int64_t worst = 0;
    for (int p = 0; p < POSITIONS; p++) {
        for (int i = 0; i < HALF; i++) {
            double angle = p * pow(10000.0, -2.0 * i / (2 * HALF));
            int64_t c = ulps(table[(p * 2) * HALF + i], (float)cos(angle));
            int64_t s = ulps(table[(p * 2 + 1) * HALF + i], (float)sin(angle));
            worst = c > worst ? c : worst;
            worst = s > worst ? s : worst;
        }
    }
    assert_in_range(worst, 0, 1);
    /* A piece of the table is the same bytes as the whole. */
    float piece[2 * HALF];
    gw_rope_fill(freq, HALF, magnitude, 1234, 1, piece);
    assert_memory_equal(piece, table + 1234 * 2 * HALF, sizeof piece);
    free(table);
}

/* Cosine and sine of 1000 / 10000^(2/64), worked out with 60 decimal digits and rounded to float:
 * the bits that every host must give. */
static void test_fixed_bits(void **state) {
    (void)state;
    gw_rope r = plain(10000.0, 64);
    double freq[32], magnitude;
    float row[64];
    gw_rope_frequencies(&r, 4096, freq, &magnitude);
    gw_rope_fill(freq, 32, magnitude, 1000, 1, row);
    assert_int_equal(ulps(row[1], -0x1.2b4dfap-1f), 0);
    assert_int_equal(ulps(row[33], 0x1.9f6782p-1f), 0);
}

static void test_linear_and_divisors(void **state) {
    (void)state;
    static const float divisors[4] = {1.0f, 2.0f, 4.0f, 8.0f};
    gw_rope r = plain(10000.0, 8);
    double freq[4], magnitude;
    r.scaling = GW_ROPE_LINEAR;
    r.factor = 4.0;
    gw_rope_frequencies(&r, 4096, freq, &magnitude);
    for (int i = 0; i < 4; i++) {
        assert_true(away(freq[i], pow(10.0, -i) / 4.0) < 1e-15);
    }
    r.scaling = GW_ROPE_NONE;
    r.divisors = divisors;
    gw_rope_frequencies(&r, 4096, freq, &magnitude);
    for (int i = 0; i < 4; i++) {
        assert_true(away(freq[i], pow(10.0, -i) / divisors[i]) < 1e-15);
    }
}

/* r = 8, base 10^4: frequencies 1, 0.1, 0.01, 0.001, wavelengths 2 pi times 1, 10, 100, 1000.
 * Old context 512, low 1, high 4: turns are 81.5, 8.15, 0.815, 0.0815. The first two stay, the
 * last two are divided. With 128: turns 20.4, 2.037, ...; the second is mixed. */
static void test_llama3(void **state) {
    (void)state;
    gw_rope r = plain(10000.0, 8);
    double freq[4], magnitude;
    r.scaling = GW_ROPE_LLAMA3;
    r.factor = 8.0;
    r.low_freq = 1.0;
    r.high_freq = 4.0;
    r.original_ctx = 512;
    gw_rope_frequencies(&r, 4096, freq, &magnitude);
    assert_true(away(freq[0], 1.0) < 1e-15);
    assert_true(away(freq[1], 0.1) < 1e-15);
    assert_true(away(freq[2], 0.00125) < 1e-15);
    assert_true(away(freq[3], 0.000125) < 1e-15);
    r.original_ctx = 128;
    gw_rope_frequencies(&r, 4096, freq, &magnitude);
    double smooth = (128.0 * 0.1 / 6.283185307179586 - 1.0) / 3.0;
    assert_true(smooth > 0.34 && smooth < 0.35);
    assert_true(away(freq[1], (1.0 - smooth) * 0.0125 + smooth * 0.1) < 1e-14);
    assert_true(magnitude == 1.0);
}

/* yarn, section 3.2 and 3.4 of the paper: r = 128, base 10^4, old context 4096, factor 16,
 * beta 32 and 1. Pair of beta: 128 ln(4096 / (2 pi beta)) / (2 ln 10^4): 20.94 and 45.03, so the
 * ramp runs from 20 to 46. Magnitude 0.1 ln 16 + 1 = 1.27726. */
static void test_yarn(void **state) {
    (void)state;
    gw_rope r = plain(10000.0, 128);
    double freq[64], magnitude;
    r.scaling = GW_ROPE_YARN;
    r.factor = 16.0;
    r.original_ctx = 4096;
    r.beta_fast = 32.0;
    r.beta_slow = 1.0;
    gw_rope_frequencies(&r, 4096, freq, &magnitude);
    for (int i = 0; i < 64; i++) {
        double plain_freq = pow(10000.0, -i / 64.0);
        double divided = i <= 20 ? 0.0 : i >= 46 ? 1.0 : (i - 20) / 26.0;
        double want = plain_freq * (1.0 - divided) + plain_freq / 16.0 * divided;
        assert_true(away(freq[i], want) < 1e-14);
    }
    assert_true(fabs(magnitude - 1.2772588722239781) < 1e-15);
    r.attn_factor = 1.5;
    gw_rope_frequencies(&r, 4096, freq, &magnitude);
    assert_true(magnitude == 1.5);
    float row[128];
    gw_rope_fill(freq, 64, magnitude, 0, 1, row);
    assert_true(row[0] == 1.5f && row[64] == 0.0f);
}

/* Divisors by the length of the context; pairs that do not turn; yarn without whole pairs. */
static void test_more(void **state) {
    (void)state;
    static const float shorter[4] = {1.0f, 1.0f, 2.0f, 2.0f}, longer[4] = {1.0f, 4.0f, 8.0f, 16.0f};
    gw_rope r = plain(10000.0, 8);
    double freq[64], magnitude;
    r.scaling = GW_ROPE_LONGROPE;
    r.divisors = shorter;
    r.long_divisors = longer;
    r.original_ctx = 64;
    r.attn_factor = 1.1;
    r.long_attn_factor = 1.2;
    for (int32_t n = 64; n <= 65; n++) {
        gw_rope_frequencies(&r, n, freq, &magnitude);
        for (int i = 0; i < 4; i++) {
            assert_true(away(freq[i], pow(10.0, -i) / (n > 64 ? longer : shorter)[i]) < 1e-15);
        }
        assert_true(magnitude == (n > 64 ? 1.2 : 1.1));
    }
    r = plain(10000.0, 8);
    r.turning = 1;
    gw_rope_frequencies(&r, 64, freq, &magnitude);
    assert_true(freq[0] == 1.0 && freq[1] == 0.0 && freq[2] == 0.0 && freq[3] == 0.0);
    r = plain(10000.0, 128);
    r.scaling = GW_ROPE_YARN;
    r.factor = 16.0;
    r.original_ctx = 4096;
    r.beta_fast = 32.0;
    r.beta_slow = 1.0;
    r.truncate = 0;
    gw_rope_frequencies(&r, 64, freq, &magnitude);
    double low = 128 * log(4096 / (2 * 3.14159265358979 * 32)) / (2 * log(1e4));
    double high = 128 * log(4096 / (2 * 3.14159265358979)) / (2 * log(1e4));
    double share = (30 - low) / (high - low), own = pow(10000.0, -30 / 64.0);
    assert_true(away(freq[30], own * (1.0 - share) + own / 16.0 * share) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),  cmocka_unit_test(test_table),
        cmocka_unit_test(test_fixed_bits), cmocka_unit_test(test_linear_and_divisors),
        cmocka_unit_test(test_llama3),     cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
