/* core/engine/sampling/sampler_stages.c - the stages that need nothing but the list; see sampler.h.
 */
#include "core/engine/sampling/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/tensor/arith.h"

/* Sum of exp(logit - top), top the largest logit. In double, over at[] as it lies. */
static double mass(const gw_candidates *c, float top) {
    double sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        sum += (double)gw_exp(c->at[i].logit - top);
    }
    return sum;
}

/* The number of leading candidates, ranked as needed, whose masses reach `wanted`; at least one. */
static size_t leading(gw_candidates *c, float top, double wanted) {
    double sum = 0;
    size_t n = 0;
    for (size_t batch = 64; n < c->n; batch *= 4) {
        gw_candidates_rank(c, n + batch);
        while (n < c->ranked) {
            sum += (double)gw_exp(c->at[n++].logit - top);
            if (sum >= wanted) {
                return n;
            }
        }
    }
    return n;
}

static float top_logit(const gw_candidates *c) {
    size_t best = gw_candidates_best(c);
    return best < c->n ? c->at[best].logit : 0.0f;
}

/* ---- stages ---------------------------------------------------------------------------------- */

void gw_stage_penalties(gw_candidates *c, const uint32_t *counts, float repeat, float presence,
                        float frequency) {
    for (size_t i = 0; i < c->n; i++) {
        uint32_t count = counts[c->at[i].token];
        if (count != 0) {
            float x = c->at[i].logit;
            x = x < 0 ? x * repeat : x / repeat;
            x -= presence + (float)count * frequency;
            c->at[i].logit = c->at[i].key = x;
        }
    }
    c->ranked = 0;
}

void gw_stage_bias(gw_candidates *c, const float *bias) {
    for (size_t i = 0; i < c->n; i++) {
        float x = c->at[i].logit + bias[c->at[i].token];
        c->at[i].logit = c->at[i].key = x;
    }
    c->ranked = 0;
}

void gw_stage_top_k(gw_candidates *c, int32_t k) {
    if (k <= 0 || (size_t)k >= c->n) {
        return;
    }
    size_t n = (size_t)k;
    gw_candidates_rank(c, n);
    float least = c->at[n - 1].key;
    for (size_t i = n; i < c->n; i++) {
        if (c->at[i].key == least) {
            c->at[n++] = c->at[i];
        }
    }
    c->n = n;
}

void gw_stage_typical(gw_candidates *c, float p) {
    if (c->n == 0) {
        return;
    }
    float top = top_logit(c);
    double z = mass(c, top), weighted = 0;
    for (size_t i = 0; i < c->n; i++) {
        float d = c->at[i].logit - top, e = gw_exp(d);
        weighted += e > 0 ? (double)e * (double)d : 0.0;
    }
    /* information of a token: ln z - d; entropy: ln z - weighted / z */
    double mean = weighted / z;
    for (size_t i = 0; i < c->n; i++) {
        c->at[i].key = -(float)fabs((double)(c->at[i].logit - top) - mean);
    }
    c->ranked = 0;
    size_t n = leading(c, top, (double)p * z);
    float limit = c->at[n - 1].key;
    for (size_t i = n; i < c->n; i++) {
        if (c->at[i].key == limit) {
            c->at[n++] = c->at[i];
        }
    }
    c->n = n;
    for (size_t i = 0; i < n; i++) {
        c->at[i].key = c->at[i].logit;
    }
    c->ranked = 0;
}

void gw_stage_top_p(gw_candidates *c, float p) {
    if (c->n == 0) {
        return;
    }
    float top = top_logit(c);
    c->n = leading(c, top, (double)p * mass(c, top));
    c->ranked = c->n;
}

void gw_stage_min_p(gw_candidates *c, float p) {
    float top = top_logit(c);
    size_t n = 0, ranked = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!(gw_exp(c->at[i].logit - top) < p)) {
            ranked += i < c->ranked; /* dropping some keeps the order of the others */
            c->at[n++] = c->at[i];
        }
    }
    c->n = n;
    c->ranked = ranked;
}

void gw_stage_temperature(gw_candidates *c, float t) {
    for (size_t i = 0; i < c->n; i++) {
        c->at[i].logit = c->at[i].key = c->at[i].logit / t;
    }
    c->ranked = 0; /* rounding can make two logits equal, and then the token decides */
}

/* Drop the candidates whose logit is below the limit; the order of the others stays. */
static void keep_from(gw_candidates *c, double limit) {
    size_t n = 0, ranked = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!((double)c->at[i].logit < limit)) {
            ranked += i < c->ranked;
            c->at[n++] = c->at[i];
        }
    }
    c->n = n;
    c->ranked = ranked;
}

void gw_stage_top_n_sigma(gw_candidates *c, float n) {
    double sum = 0, square = 0;
    size_t count = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->at[i].logit > -INFINITY) {
            sum += (double)c->at[i].logit;
            count++;
        }
    }
    if (count == 0) {
        return;
    }
    double mean = sum / (double)count;
    for (size_t i = 0; i < c->n; i++) {
        double away = (double)c->at[i].logit - mean;
        square += c->at[i].logit > -INFINITY ? away * away : 0.0;
    }
    keep_from(c, (double)top_logit(c) - (double)n * sqrt(square / (double)count));
}

void gw_stage_tail_free(gw_candidates *c, float z) {
    if (c->n <= 2) {
        return;
    }
    gw_candidates_rank(c, c->n);
    float top = c->at[0].logit;
    double total = 0, sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        double p = 1.0, next = (double)gw_exp(c->at[1].logit - top);
        for (size_t i = 0; i + 2 < c->n; i++) {
            double after = (double)gw_exp(c->at[i + 2].logit - top);
            double bend = fabs((p - next) - (next - after));
            p = next;
            next = after;
            if (pass == 0) {
                total += bend;
                continue;
            }
            sum += bend;
            if (sum > (double)z * total) {
                c->n = c->ranked = i + 2;
                return;
            }
        }
    }
}

void gw_stage_xtc(gw_candidates *c, float threshold) {
    float top = top_logit(c);
    double limit = (double)threshold * mass(c, top);
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        n += (double)gw_exp(c->at[i].logit - top) >= limit;
    }
    if (n < 2) {
        return;
    }
    gw_candidates_rank(c, n);
    memmove(c->at, c->at + n - 1, (c->n - n + 1) * sizeof *c->at);
    c->n -= n - 1;
    c->ranked -= n - 1;
}

/* base^exponent for base in [0, 1], exponent >= 0. */
static float power(float base, float exponent) {
    if (exponent == 0) {
        return 1.0f;
    }
    return base >= FLT_MIN ? gw_exp(exponent * gw_log(base)) : 0.0f;
}

void gw_stage_dynamic_temperature(gw_candidates *c, float t, float range, float exponent) {
    if (c->n < 2 || gw_candidates_best(c) == c->n) {
        return;
    }
    float top = top_logit(c);
    double z = 0, weighted = 0;
    for (size_t i = 0; i < c->n; i++) {
        float d = c->at[i].logit - top, e = gw_exp(d);
        z += (double)e;
        weighted += e > 0 ? (double)e * (double)d : 0.0;
    }
    float entropy = gw_log((float)z) - (float)(weighted / z);
    float share = entropy / gw_log((float)c->n); /* of the most that n candidates can have */
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    float low = t > range ? t - range : 0, high = t + range;
    float now = low + (high - low) * power(share, exponent);
    gw_stage_temperature(c, now > GW_GREEDY_BELOW ? now : GW_GREEDY_BELOW);
}

/* ---- mirostat -------------------------------------------------------------------------------- */

#define LN2 0.693147180559945309

/* The exponent s of p(i) ~ i^-s that fits the first hundred ratios best. */
static double zipf_exponent(const gw_candidates *c) {
    enum { RATIOS = 100 };
    double num = 0, den = 0;
    for (size_t i = 0; i < RATIOS && i + 1 < c->n && c->at[i + 1].logit > -INFINITY; i++) {
        double b = (double)c->at[i].logit - (double)c->at[i + 1].logit;
        double t = (double)gw_log((float)(i + 2) / (float)(i + 1));
        num += b * t;
        den += t * t;
    }
    return den > 0 ? fmin(num / den, 1e6) : 0;
}

/* How many of n Zipf-distributed tokens to keep for a mean surprise of mu / 2 bits; n at most. */
static size_t zipf_k(double s, double mu, size_t n) {
    float log_n = gw_log((float)n);
    double eps = s - 1, ratio = 1 / (double)log_n;
    if (s < 1e-3) {
        return n; /* as good as uniform */
    }
    if (fabs(eps) > 1e-4) {
        ratio = eps / (1 - (double)gw_exp((float)-eps * log_n));
    }
    double log_k = ((double)gw_log((float)ratio) + mu * LN2) / s;
    if (!(log_k < (double)log_n)) {
        return n;
    }
    return (size_t)rint((double)gw_exp((float)log_k)) + 1;
}

void gw_stage_mirostat(gw_candidates *c, int version, float mu, int32_t n_vocab, float *surprise) {
    if (gw_candidates_best(c) == c->n) {
        return;
    }
    float top = top_logit(c);
    double log_z = (double)gw_log((float)mass(c, top));
    if (surprise != NULL) {
        for (int32_t i = 0; i < n_vocab; i++) {
            surprise[i] = NAN;
        }
        for (size_t i = 0; i < c->n; i++) {
            float d = c->at[i].logit - top;
            surprise[c->at[i].token] = (float)((log_z - (double)d) / LN2);
        }
    }
    if (version == 1 && n_vocab > 1) {
        gw_candidates_rank(c, 101);
        size_t k = zipf_k(zipf_exponent(c), (double)mu, (size_t)n_vocab);
        if (k < c->n) {
            gw_candidates_rank(c, k);
            c->n = c->ranked = k;
        }
    } else if (version == 2) {
        double limit = (double)top + log_z - (double)mu * LN2;
        keep_from(c, limit < (double)top ? limit : (double)top);
    }
}
