/* tests/exact_fma.h - a * b + c of floats, rounded once, without an fma of the machine. */
#ifndef GW_TESTS_EXACT_FMA_H
#define GW_TESTS_EXACT_FMA_H

#include <stdint.h>
#include <string.h>

/* The product of two floats is exact in double, the sum is rounded to odd there, and 53 bits are
 * enough for the second rounding to be the only one. */
static inline float exact_fma(double a, double b, double c) {
    double p = a * b, s = p + c, t = s - p, error = (p - (s - t)) + (c - t);
    uint64_t bits;
    memcpy(&bits, &s, sizeof bits);
    if (error != 0.0 && !(bits & 1)) {
        bits = (error > 0.0) == (s > 0.0) ? bits + 1 : bits - 1;
        memcpy(&s, &bits, sizeof s);
    }
    return (float)s;
}

#endif
