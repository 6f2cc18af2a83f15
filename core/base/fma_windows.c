/* core/base/fma_windows.c - fmaf and fma rounded once, in place of those of the C library there,
 * which round more than once (seen with wine 8; findings/mingw-fmaf.sh: mingw-w64's own). Called
 * where code is compiled for processors without the instruction: the scalar level, tables of
 * positions.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* a + b and what its rounding has left out, exactly. */
static double two_sum(double a, double b, double *error) {
    const double sum = a + b, t = sum - a;
    *error = (a - (sum - t)) + (b - t);
    return sum;
}

/* A sum rounded to odd: whoever rounds it again, to two bits fewer at least, rounds once in effect.
 */
static double odd_sum(double a, double b) {
    double error, sum = two_sum(a, b, &error);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if ((error < 0.0 || error > 0.0) && (bits & 1) == 0) { /* neither of infinity nor of NaN */
        bits = (error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1;
        memcpy(&sum, &bits, sizeof sum);
    }
    return sum;
}

/* The product of two floats is exact in double. */
float fmaf(float a, float b, float c) { return (float)odd_sum((double)a * (double)b, (double)c); }

static int is_near(double a) {
    const double size = a < 0.0 ? -a : a;
    return size == 0.0 || (size >= 0x1p-400 && size <= 0x1p400);
}

/* The upper 26 bits, so that products of such are exact. */
static double upper(double a) {
    const double scaled = a * 134217729.0; /* 2^27 + 1 */
    return scaled - (scaled - a);
}

/* Product and sum as two numbers each, whose lower parts are added to odd (Boldo and Melquiond,
 * "Emulation of FMA and correctly rounded sums", 2008). Rounded once where factors and sum are 0 or
 * of a size between 2^-400 and 2^400, as those of positions are; others as a product and a sum. */
double fma(double a, double b, double c) {
    if (!is_near(a) || !is_near(b) || !is_near(c)) {
        return a * b + c;
    }
    const double ah = upper(a), al = a - ah, bh = upper(b), bl = b - bh, product = a * b;
    const double rest = ((ah * bh - product) + ah * bl + al * bh) + al * bl;
    double low, lower;
    const double high = two_sum(c, rest, &low), sum = two_sum(product, high, &lower);
    return sum + odd_sum(low, lower);
}
