/* tests/test_fma.c - fmaf and fma that round once by themselves (core/base/fma_windows.c) are those
 * of this machine's C library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#define fmaf own_fmaf
#define fma own_fma
float own_fmaf(float a, float b, float c);
double own_fma(double a, double b, double c);
#include "core/base/fma_windows.c"
#undef fmaf
#undef fma

enum { CASES = 400000 };

static uint64_t state = 5;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int same(double a, double b) {
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

/* Any bits: infinities, NaNs and subnormal numbers among them. */
static void floats(void **unused) {
    (void)unused;
    for (int i = 0; i < CASES; i++) {
        float x[3];
        uint32_t bits[3] = {(uint32_t)next(), (uint32_t)next(), (uint32_t)next()};
        if (i % 2 == 0) { /* of like size, or nothing is left of one of them */
            for (int k = 0; k < 3; k++) {
                bits[k] = (bits[k] & 0x87ffffffu) | 0x38000000u;
            }
        }
        memcpy(x, bits, sizeof x);
        assert_true(same((double)own_fmaf(x[0], x[1], x[2]), (double)fmaf(x[0], x[1], x[2])));
    }
}

/* Of sizes that rounding once is promised for; a sum that nearly cancels every second time. */
static void doubles(void **unused) {
    (void)unused;
    for (int i = 0; i < CASES; i++) {
        double x[3];
        for (int k = 0; k < 3; k++) {
            uint64_t bits = next(), exponent = 1023 - 90 + next() % 180;
            bits = (bits & 0x800fffffffffffffu) | exponent << 52;
            memcpy(&x[k], &bits, sizeof bits);
        }
        x[2] = i % 2 == 0 ? -x[0] * x[1] * (1.0 + (double)(next() % 8) * 0x1p-52) : x[2];
        assert_true(same(own_fma(x[0], x[1], x[2]), fma(x[0], x[1], x[2])));
    }
    assert_true(same(own_fma(INFINITY, 1.0, 1.0), INFINITY));
    assert_true(same(own_fma(0x1p1000, 0x1p20, 1.0), 0x1p1020));
    assert_true(isnan(own_fma(INFINITY, 0.0, 1.0)));
    assert_true(same(own_fma(3.0, 0.0, 5.0), 5.0));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(floats), cmocka_unit_test(doubles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
