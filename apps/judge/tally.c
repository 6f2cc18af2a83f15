/* apps/judge/tally.c - see tally.h. */
#include "apps/judge/tally.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"

const double tally_quantiles[TALLY_QUANTILES] = {0,    0.001, 0.01, 0.05,  0.1, 0.5,
                                                 0.90, 0.95,  0.99, 0.999, 1};

static const tally_row broken = {.nll = NAN, .base_nll = NAN, .kl = NAN};

/* ln of the sum of exp(x - x[top]). */
static double log_sum(const float *x, int32_t n, int32_t top) {
    double sum = 0, most = x[top];
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - most);
    }
    return log(sum);
}

/* With a = logits - their largest, of both: kl = sum e^a_base (a_base - a) / S_base - ln S_base +
 * ln S, which needs two exponentials a token and no probabilities. */
void tally_score(const float *logits, int32_t n, int32_t token, const float *base, tally_row *out) {
    int32_t top = app_argmax(logits, n), base_top = base != NULL ? app_argmax(base, n) : top;
    if (top < 0 || base_top < 0) {
        *out = broken;
        return;
    }
    double all = log_sum(logits, n, top);
    *out = (tally_row){.nll = all + (double)logits[top] - (double)logits[token]};
    if (base == NULL) {
        return;
    }
    double most = logits[top], base_most = base[base_top], sum = 0, apart = 0;
    for (int32_t i = 0; i < n; i++) {
        double a = (double)base[i] - base_most, e = exp(a);
        sum += e;
        apart += e > 0 ? e * (a - ((double)logits[i] - most)) : 0;
    }
    out->base_nll = log(sum) + base_most - (double)base[token];
    out->kl = apart / sum - log(sum) + all;
    out->same_top = top == base_top;
}

static const float unknown_below = -16.0f;

void tally_score_codes(const float *logits, int32_t n, int32_t token, const tally_codes *base,
                       tally_row *out) {
    int32_t top = app_argmax(logits, n), base_top = 0;
    if (top < 0 || !isfinite(base->scale) || !isfinite(base->least)) {
        *out = broken;
        return;
    }
    double log_all = log_sum(logits, n, top) + (double)logits[top], kl = 0;
    for (int32_t i = 0; i < n; i++) {
        float lp = base->scale * (float)base->at[i] + base->least;
        base_top = base->at[i] > base->at[base_top] ? i : base_top;
        kl += lp > unknown_below ? exp((double)lp) * ((double)lp - (double)logits[i] + log_all) : 0;
    }
    *out = (tally_row){.nll = log_all - (double)logits[token],
                       .base_nll = -(double)(base->scale * (float)base->at[token] + base->least),
                       .kl = kl,
                       .same_top = top == base_top};
}

void tally_encode(const float *logits, int32_t n, uint16_t *codes, tally_codes *out) {
    int32_t top = app_argmax(logits, n);
    float most = top >= 0 ? logits[top] : 0.0f, least = most;
    for (int32_t i = 0; i < n; i++) {
        least = logits[i] < least ? logits[i] : least;
    }
    least = least > most + unknown_below ? least : most + unknown_below;
    float scale = (most - least) / 65535.0f;
    for (int32_t i = 0; i < n; i++) {
        codes[i] = scale > 0.0f && logits[i] > least
                       ? (uint16_t)lrintf((1.0f / scale) * (logits[i] - least))
                       : 0;
    }
    *out = (tally_codes){.scale = scale,
                         .least = least - most - (float)(top >= 0 ? log_sum(logits, n, top) : 0),
                         .at = codes};
}

/* ---- the rows of a text ---------------------------------------------------------------------- */

int tally_reserve(tally *t, size_t more) {
    if (t->room - t->n < more) {
        size_t room = t->n + more > 2 * t->room ? t->n + more : 2 * t->room;
        tally_row *grown =
            room < SIZE_MAX / sizeof *grown ? realloc(t->at, room * sizeof *grown) : NULL;
        if (grown == NULL) {
            return -1;
        }
        t->at = grown;
        t->room = room;
    }
    return 0;
}

void tally_free(tally *t) {
    free(t->at);
    *t = (tally){0};
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void quantiles(double *x, size_t n, double out[TALLY_QUANTILES]) {
    qsort(x, n, sizeof *x, ascending);
    for (int i = 0; i < TALLY_QUANTILES; i++) {
        double at = tally_quantiles[i] * (double)(n - 1), low = floor(at), share = at - low;
        size_t k = (size_t)low, next = k + 1 < n ? k + 1 : k;
        out[i] = share > 0 ? (1 - share) * x[k] + share * x[next] : x[k];
    }
}

typedef struct moments {
    double sum, squares;
} moments;

static void add(moments *m, double x) {
    m->sum += x;
    m->squares += x * x;
}

/* The mean, and its standard error. */
static double mean_of(const moments *m, size_t count, double *error) {
    double n = (double)count, mean = m->sum / n, variance = m->squares / n - mean * mean;
    *error = count > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0;
    return mean;
}

static void sum_up_base(const tally *t, double *kl, double *dp, tally_figures *f) {
    moments base = {0}, ratio = {0}, kls = {0}, dps = {0}, squares = {0};
    size_t same = 0;
    for (size_t i = 0; i < t->n; i++) {
        const tally_row *r = &t->at[i];
        kl[i] = r->kl;
        dp[i] = exp(-r->nll) - exp(-r->base_nll);
        add(&base, r->base_nll);
        add(&ratio, r->nll - r->base_nll);
        add(&kls, kl[i]);
        add(&dps, dp[i]);
        add(&squares, dp[i] * dp[i]);
        same += r->same_top != 0;
    }
    double error;
    f->base_ppl = exp(mean_of(&base, t->n, &error));
    f->base_ppl_error = error * f->base_ppl;
    f->log_ratio = mean_of(&ratio, t->n, &f->log_ratio_error);
    f->kl = mean_of(&kls, t->n, &f->kl_error);
    f->dp = mean_of(&dps, t->n, &f->dp_error);
    f->dp_rms = sqrt(mean_of(&squares, t->n, &error));
    f->dp_rms_error = f->dp_rms > 0 ? 0.5 * error / f->dp_rms : 0;
    f->same_top = (double)same / (double)t->n;
    f->same_top_error = t->n > 1 ? sqrt(f->same_top * (1 - f->same_top) / (double)(t->n - 1)) : 0;
    quantiles(kl, t->n, f->kl_at);
    quantiles(dp, t->n, f->dp_at);
}

int tally_sum_up(const tally *t, int has_base, tally_figures *out) {
    tally_figures f = {.n = t->n, .bytes = t->bytes, .has_base = has_base};
    moments nll = {0};
    double error;
    for (size_t i = 0; i < t->n; i++) {
        add(&nll, t->at[i].nll);
    }
    f.ppl = exp(mean_of(&nll, t->n, &error));
    f.ppl_error = error * f.ppl;
    f.bits_per_byte = t->bytes > 0 ? nll.sum / log(2) / (double)t->bytes : NAN;
    if (has_base) {
        double *values = malloc(2 * t->n * sizeof *values);
        if (values == NULL) {
            return -1;
        }
        sum_up_base(t, values, values + t->n, &f);
        free(values);
    }
    *out = f;
    return 0;
}
