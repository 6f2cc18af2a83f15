/* core/model/rope.c - rope tables from IEEE operations only. Owns the scaling rules. */
#include "core/model/rope.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

/* ---- elementary functions in double --------------------------------------------------------- */

static const double ln2_high = 0x1.62e42fefa39efp-1, ln2_low = 0x1.abc9e3b39803fp-56;

static double scale_by_power(int64_t e) { /* 2^e for -1022 <= e <= 1023 */
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Taylor on |r| <= ln2 / 2, then a power of two. */
double gw_rope_exp(double x) {
    double n = rint(x * 1.44269504088896340736);
    double r = fma(-n, ln2_low, fma(-n, ln2_high, x));
    double sum = 1.0;
    for (int k = 17; k > 0; k--) {
        sum = fma(sum, r / (double)k, 1.0);
    }
    return sum * scale_by_power((int64_t)n);
}

/* ln m = 2 artanh((m - 1) / (m + 1)) for m in [sqrt(1/2), sqrt(2)). */
double gw_rope_log(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t e = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1.0) / (m + 1.0), z = s * s, sum = 0.0;
    for (int k = 25; k > 0; k -= 2) {
        sum = fma(sum, z, 1.0 / (double)k);
    }
    double n = (double)e;
    return fma(n, ln2_high, fma(n, ln2_low, 2.0 * s * sum));
}

/* Reduce by pi/2 in three parts (exact through fma), then Taylor on |r| <= pi/4. */
void gw_rope_sin_cos(double x, double *sine, double *cosine) {
    static const double half_pi[3] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                      -0x1.f1976b7ed8fbcp-110};
    /* 1 / (k (k + 1)): each factor of the series over its predecessor */
    static const double sine_step[9] = {1.0 / 6,   1.0 / 20,  1.0 / 42,  1.0 / 72, 1.0 / 110,
                                        1.0 / 156, 1.0 / 210, 1.0 / 272, 1.0 / 342};
    static const double cosine_step[10] = {1.0 / 2,   1.0 / 12,  1.0 / 30,  1.0 / 56,  1.0 / 90,
                                           1.0 / 132, 1.0 / 182, 1.0 / 240, 1.0 / 306, 1.0 / 380};
    double n = rint(x * (2.0 / PI));
    double r = fma(-n, half_pi[2], fma(-n, half_pi[1], fma(-n, half_pi[0], x)));
    double z = r * r, s = 1.0, c = 1.0;
    for (int k = 8; k >= 0; k--) {
        s = 1.0 - z * sine_step[k] * s;
    }
    for (int k = 9; k > 0; k--) {
        c = 1.0 - z * cosine_step[k] * c;
    }
    s *= r;
    c = 1.0 - 0.5 * z * c;
    switch ((int64_t)n & 3) {
    case 0:
        *sine = s, *cosine = c;
        break;
    case 1:
        *sine = c, *cosine = -s;
        break;
    case 2:
        *sine = -s, *cosine = -c;
        break;
    default:
        *sine = -c, *cosine = s;
        break;
    }
}

/* ---- frequencies ---------------------------------------------------------------------------- */

/* Long waves are stretched by the factor, short ones kept, those between mixed. */
static double scale_llama3(const gw_rope *r, double freq) {
    double turns = (double)r->original_ctx * freq / (2.0 * PI); /* over the old context */
    double keep = (turns - r->low_freq) / (r->high_freq - r->low_freq);
    if (turns > r->high_freq) {
        keep = 1.0;
    } else if (turns < r->low_freq) {
        keep = 0.0;
    }
    return (1.0 - keep) * (freq / r->factor) + keep * freq;
}

/* Pair index at which a wave makes `turns` turns over the original context. */
static double yarn_pair(const gw_rope *r, double turns) {
    double span = (double)r->original_ctx / (turns * 2.0 * PI);
    return (double)r->dim * gw_rope_log(span) / (2.0 * gw_rope_log(r->base));
}

static void scale_yarn(const gw_rope *r, double *freq) {
    double low = yarn_pair(r, r->beta_fast), high = yarn_pair(r, r->beta_slow);
    low = r->truncate ? floor(low) : low;
    high = r->truncate ? ceil(high) : high;
    low = low < 0.0 ? 0.0 : low;
    high = high > (double)(r->dim - 1) ? (double)(r->dim - 1) : high;
    double width = high > low ? high - low : 0.001; /* a step instead of a ramp */
    for (int i = 0; i < r->dim / 2; i++) {
        double ramp = ((double)i - low) / width;
        ramp = ramp < 0.0 ? 0.0 : ramp > 1.0 ? 1.0 : ramp;
        freq[i] = freq[i] / r->factor * ramp + freq[i] * (1.0 - ramp);
    }
}

double gw_rope_yarn_magnitude(double factor, double scale) {
    return factor > 1.0 ? 0.1 * scale * gw_rope_log(factor) + 1.0 : 1.0;
}

void gw_rope_frequencies(const gw_rope *r, int32_t n_ctx, double *freq, double *magnitude) {
    double log_base = gw_rope_log(r->base);
    int is_long = r->long_divisors != NULL && n_ctx > r->original_ctx;
    const float *divisors = is_long ? r->long_divisors : r->divisors;
    *magnitude = 1.0;
    for (int i = 0; i < r->dim / 2; i++) {
        freq[i] = gw_rope_exp(-(2.0 * i) / (double)r->dim * log_base);
        if (divisors != NULL) {
            freq[i] /= (double)divisors[i];
        }
        if (r->scaling == GW_ROPE_LINEAR) {
            freq[i] /= r->factor;
        } else if (r->scaling == GW_ROPE_LLAMA3) {
            freq[i] = scale_llama3(r, freq[i]);
        }
        freq[i] = i < r->turning ? freq[i] : 0.0;
    }
    if (r->scaling == GW_ROPE_YARN) {
        scale_yarn(r, freq);
        *magnitude = r->attn_factor > 0.0 ? r->attn_factor : gw_rope_yarn_magnitude(r->factor, 1.0);
    } else if (r->scaling == GW_ROPE_LONGROPE) {
        *magnitude = is_long ? r->long_attn_factor : r->attn_factor;
    }
}

void gw_rope_fill(const double *freq, int half, double magnitude, int64_t first, int64_t n_pos,
                  float *table) {
    for (int64_t p = 0; p < n_pos; p++) {
        float *cosines = table + p * 2 * half, *sines = cosines + half;
        for (int i = 0; i < half; i++) {
            double s, c;
            gw_rope_sin_cos((double)(first + p) * freq[i], &s, &c);
            cosines[i] = (float)(c * magnitude);
            sines[i] = (float)(s * magnitude);
        }
    }
}

/* The part of a position by which pair i rotates, and how fast. */
static int part_of(const gw_rope *r, const double *freq, int i, double *speed) {
    const int half = r->dim / 2, by_time = half - r->by_row - r->by_column;
    *speed = freq[i];
    if (r->spread == GW_ROPE_STRIPED) {
        int part = i % 3, has = part == 1 ? r->by_row : r->by_column;
        return part > 0 && i < 3 * has ? part : 0;
    }
    if (r->spread == GW_ROPE_TURNS || r->spread == GW_ROPE_ACROSS) {
        int turns = r->spread == GW_ROPE_TURNS, by_row = turns ? i % 2 : i >= r->by_column;
        int at = turns ? i / 2 : by_row ? i - r->by_column : i;
        *speed = gw_rope_exp(-2.0 * at / (double)half * gw_rope_log(r->base));
        return by_row ? 1 : 2;
    }
    int part = i < by_time ? 0 : i < by_time + r->by_row ? 1 : 2;
    int begin = part == 0 ? 0 : part == 1 ? by_time : by_time + r->by_row;
    int width = part == 0 ? by_time : part == 1 ? r->by_row : r->by_column;
    if (r->spread == GW_ROPE_EACH) {
        *speed = gw_rope_exp(-(double)(i - begin) / (double)width * gw_rope_log(r->base));
    } else if (r->spread == GW_ROPE_EVEN) {
        *speed = freq[2 * (i - begin) + (part == 2)];
    }
    return part;
}

void gw_rope_fill_grid(const gw_rope *r, const double *freq, double magnitude,
                       const int32_t (*at)[3], int64_t n, float *table) {
    const int half = r->dim / 2;
    for (int i = 0; i < half; i++) {
        double speed, s, c;
        int part = part_of(r, freq, i, &speed);
        for (int64_t p = 0; p < n; p++) {
            float *cosines = table + p * 2 * half, *sines = cosines + half;
            gw_rope_sin_cos((double)at[p][part] * speed, &s, &c);
            cosines[i] = (float)(c * magnitude);
            sines[i] = (float)(s * magnitude);
        }
    }
}
