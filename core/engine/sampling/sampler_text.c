/* core/engine/sampling/sampler_text.c - the tokens so far, and the stages that read them; see
 * sampler_text.h. */
#include "core/engine/sampling/sampler_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"
#include "core/tensor/arith.h"

static const char *const default_breakers[] = {"\n", ":", "\"", "*"};

/* ---- life ------------------------------------------------------------------------------------ */

static int penalties_on(const gw_sampler_options *o) {
    return o->repeat_last_n != 0 && (o->repeat_penalty != 1.0f || o->presence_penalty != 0.0f ||
                                     o->frequency_penalty != 0.0f);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static gw_status no_memory(size_t n) {
    return gw_fail(GW_E_NOMEM, "sampler", "no memory for %zu tokens", n);
}

/* Copy the breakers, and find the longest token there is. */
static gw_status open_breakers(gw_history *h, int32_t n_vocab, const gw_sampler_options *o) {
    const char *const *from = o->dry_breakers != NULL ? o->dry_breakers : default_breakers;
    size_t n = o->dry_breakers != NULL ? o->n_dry_breakers
                                       : sizeof default_breakers / sizeof default_breakers[0];
    if (h->pieces.piece == NULL || n == 0) {
        return n == 0 || o->dry_breakers == NULL
                   ? GW_OK
                   : gw_fail(GW_E_UNSUPPORTED, "dry_breakers",
                             "the model has no tokenizer to spell tokens with");
    }
    size_t bytes = 0, longest = 0;
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(from[i]);
        if (length == 0 || length > GW_BREAKER_BYTES_MAX || n > GW_BREAKERS_MAX) {
            return gw_fail(GW_E_ARGUMENT, "dry_breakers",
                           "breaker %zu has %zu bytes; at most %d of 1 to %d bytes are allowed", i,
                           length, GW_BREAKERS_MAX, GW_BREAKER_BYTES_MAX);
        }
        bytes += length + 1;
        h->breaker_most = h->breaker_most > length ? h->breaker_most : length;
    }
    for (int32_t id = 0; id < n_vocab; id++) {
        const char *text;
        size_t length;
        h->pieces.piece(h->pieces.vocab, id, &text, &length);
        longest = longest > length ? longest : length;
    }
    char *words = malloc(bytes);
    h->breaker = words;
    h->n_breakers = n;
    h->spelled = malloc(h->breaker_most + longest);
    h->breaks = calloc((size_t)h->mask + 1, sizeof *h->breaks);
    if (words == NULL || h->spelled == NULL || h->breaks == NULL) {
        return no_memory((size_t)h->mask + 1);
    }
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(from[i]) + 1;
        memcpy(words, from[i], length);
        words += length;
    }
    return GW_OK;
}

gw_status gw_history_open(gw_history *h, int32_t n_vocab, const gw_sampler_options *o,
                          const gw_pieces *pieces) {
    int penalties = penalties_on(o), dry = o->dry_multiplier > 0 && o->dry_last_n != 0;
    int fsd = o->fsd_alpha > 0;
    int64_t dry_window = o->dry_last_n < 0 ? GW_HISTORY_ALL : o->dry_last_n;
    *h = (gw_history){.counted = o->repeat_last_n, .tau = o->mirostat_tau, .eta = o->mirostat_eta};
    h->pieces = pieces != NULL ? *pieces : h->pieces;
    h->window = penalties ? larger(o->repeat_last_n, 0) : 0;
    h->window = dry ? larger(h->window, dry_window + GW_BREAKER_BYTES_MAX) : h->window;
    h->window = fsd ? GW_HISTORY_ALL : h->window;
    h->mu = 2 * o->mirostat_tau;
    size_t ring = GW_HISTORY_BACK, vocab = (size_t)n_vocab;
    while (ring < (size_t)h->window + GW_HISTORY_BACK) {
        ring *= 2;
    }
    h->mask = (int64_t)ring - 1;
    int short_of = 0;
    if (penalties || dry || fsd) {
        h->tokens = calloc(ring, sizeof *h->tokens); /* pages are taken as the text grows */
        short_of |= h->tokens == NULL;
    }
    if (penalties) {
        h->counts = calloc(vocab, sizeof *h->counts);
        short_of |= h->counts == NULL;
    }
    if (o->mirostat != 0) {
        h->mu_at = calloc(ring, sizeof *h->mu_at);
        h->surprise = calloc(vocab, sizeof *h->surprise);
        short_of |= h->mu_at == NULL || h->surprise == NULL;
    }
    if (fsd && o->fsd_random > 0) {
        h->written_at = calloc(ring, sizeof *h->written_at);
        short_of |= h->written_at == NULL;
    }
    if (dry) {
        h->reach = calloc(vocab, sizeof *h->reach);
        h->same = calloc((size_t)dry_window + 1, sizeof *h->same);
        short_of |= h->reach == NULL || h->same == NULL;
    }
    if (short_of) {
        return no_memory(ring);
    }
    return dry ? open_breakers(h, n_vocab, o) : GW_OK;
}

void gw_history_free(gw_history *h) {
    free(h->tokens);
    free(h->breaks);
    free(h->mu_at);
    free(h->written_at);
    free(h->surprise);
    free(h->counts);
    free(h->reach);
    free(h->same);
    free((void *)(uintptr_t)h->breaker);
    free(h->spelled);
    *h = (gw_history){0};
}

/* ---- forwards and back ----------------------------------------------------------------------- */

static int32_t at(const gw_history *h, int64_t i) { return h->tokens[i & h->mask]; }

/* Does a breaker end in the last token? Its beginning may lie in tokens before. */
static int breaker_ends(const gw_history *h) {
    const char *text;
    size_t bytes, before = 0, room = h->breaker_most - 1;
    h->pieces.piece(h->pieces.vocab, at(h, h->n - 1), &text, &bytes);
    for (int64_t i = h->n - 2; i >= 0 && i + h->mask >= h->n && before < room; i--) {
        const char *older;
        size_t n;
        h->pieces.piece(h->pieces.vocab, at(h, i), &older, &n);
        size_t take = n < room - before ? n : room - before;
        before += take;
        memcpy(h->spelled + room - before, older + n - take, take);
        if (n == 0) {
            break; /* a token without text stands between two texts */
        }
    }
    memcpy(h->spelled + room, text, bytes);
    const char *from = h->spelled + room - before, *word = h->breaker;
    for (size_t k = 0; k < h->n_breakers; k++) {
        size_t length = strlen(word);
        for (size_t end = before + 1; end <= before + bytes; end++) {
            if (end >= length && memcmp(from + end - length, word, length) == 0) {
                return 1;
            }
        }
        word += length + 1;
    }
    return 0;
}

static void learn_surprise(gw_history *h, int32_t token) {
    float seen = h->surprise[token];
    h->mu_at[h->n & h->mask] = h->mu;
    if (h->offered && seen < INFINITY) { /* false for a NaN */
        h->mu -= h->eta * (seen - h->tau);
    }
}

void gw_history_push(gw_history *h, int32_t token) {
    if (h->mu_at != NULL) {
        learn_surprise(h, token);
    }
    if (h->written_at != NULL) {
        h->written_at[h->n & h->mask] = h->written;
        h->written = h->offered ? h->written + 1 : 0;
    }
    if (h->counts != NULL) {
        h->counts[token]++;
        if (h->counted > 0 && h->n >= h->counted) {
            h->counts[at(h, h->n - h->counted)]--;
        }
    }
    if (h->tokens != NULL) {
        h->tokens[h->n & h->mask] = token;
    }
    h->n++;
    h->high = h->high > h->n ? h->high : h->n;
    if (h->breaks != NULL) {
        h->breaks[(h->n - 1) & h->mask] = (uint8_t)breaker_ends(h);
    }
    h->offered = 0;
}

void gw_history_pop(gw_history *h) {
    h->n--;
    h->offered = 0;
    if (h->mu_at != NULL) {
        h->mu = h->mu_at[h->n & h->mask];
    }
    if (h->written_at != NULL) {
        h->written = h->written_at[h->n & h->mask];
    }
    if (h->counts != NULL) {
        h->counts[at(h, h->n)]--;
        if (h->counted > 0 && h->n >= h->counted) {
            h->counts[at(h, h->n - h->counted)]++;
        }
    }
}

int gw_history_reaches(const gw_history *h, size_t n) {
    if (n > (size_t)h->n || (h->tokens == NULL && h->mu_at == NULL)) {
        return n <= (size_t)h->n;
    }
    int64_t left = h->n - (int64_t)n, oldest = h->high - h->mask - 1;
    return oldest <= 0 || left - h->window >= oldest;
}

/* ---- dry ------------------------------------------------------------------------------------- */

/* same[i], 1 <= i < n: how many tokens before the i-th last equal the last ones, `most` at most.
 * The Z function of the text read backwards (Gusfield 1997): linear whatever the text repeats. */
static void measure_repeats(const gw_history *h, int64_t n, int64_t most) {
    const int64_t last = h->n - 1;
    for (int64_t i = 1, left = 0, right = 0; i < n; i++) {
        int64_t z = i < right ? h->same[i - left] : 0;
        z = z < right - i || i >= right ? z : right - i;
        while (z < most && i + z < n && at(h, last - z) == at(h, last - i - z)) {
            z++;
        }
        if (i + z > right) {
            left = i;
            right = i + z;
        }
        h->same[i] = (int32_t)z;
    }
}

static int is_break(const gw_history *h, int64_t i) {
    return h->breaks != NULL && h->breaks[i & h->mask];
}

static float dry_penalty(float multiplier, float base, int32_t beyond) {
    float x = multiplier * gw_exp((float)beyond * gw_log(base));
    return x < 1e30f ? x : 1e30f; /* finite: no token is forbidden */
}

void gw_stage_dry(gw_candidates *c, gw_history *h, float multiplier, float base, int32_t allowed,
                  int32_t last_n) {
    int64_t n = last_n < 0 ? GW_HISTORY_ALL : last_n, most = 0;
    n = n < h->n ? n : h->n;
    while (most < n && !is_break(h, h->n - 1 - most)) {
        most++;
    }
    if (most < allowed || n < 2) {
        return;
    }
    measure_repeats(h, n, most);
    for (int64_t i = 1; i < n; i++) {
        int32_t next = at(h, h->n - i);
        if (!is_break(h, h->n - i) && h->same[i] > h->reach[next]) {
            h->reach[next] = h->same[i];
        }
    }
    for (size_t i = 0; i < c->n; i++) {
        int32_t length = h->reach[c->at[i].token];
        if (length >= allowed) {
            c->at[i].logit -= dry_penalty(multiplier, base, length - allowed);
            c->at[i].key = c->at[i].logit;
        }
    }
    c->ranked = 0;
    for (int64_t i = 1; i < n; i++) {
        h->reach[at(h, h->n - i)] = 0;
    }
}

/* ---- frustratingly simple decoding ----------------------------------------------------------- */

typedef struct ngram_counts {
    uint32_t total[GW_FSD_N_MAX];              /* how often the last i tokens came before */
    uint32_t seen[GW_FSD_K_MAX][GW_FSD_N_MAX]; /* ... with candidate c behind them         */
} ngram_counts;

static void count_ngrams(const gw_candidates *c, const gw_history *h, int32_t n, size_t k,
                         ngram_counts *out) {
    int64_t first = h->n > GW_HISTORY_ALL ? h->n - GW_HISTORY_ALL : 0;
    for (int64_t j = first; j < h->n; j++) {
        int32_t order = 0, token = at(h, j);
        size_t which = 0;
        while (which < k && c->at[which].token != token) {
            which++;
        }
        do {
            out->total[order]++;
            if (which < k) {
                out->seen[which][order]++;
            }
            order++;
        } while (order < n && j - order >= first && at(h, j - order) == at(h, h->n - order));
    }
}

static double anti_probability(const ngram_counts *counts, size_t c, int32_t n) {
    const double beta = 0.9;
    double left = 1, q = 0;
    for (int32_t i = n - 1; i >= 0; i--) {
        double seen = counts->seen[c][i], total = counts->total[i];
        if (seen > 0) {
            q += i > 0 ? left * beta * seen / (total + 1) : left * seen / total;
            left -= left * beta;
        }
    }
    return q;
}

void gw_stage_fsd(gw_candidates *c, const gw_history *h, float alpha, int32_t n, int32_t k) {
    if (gw_candidates_best(c) == c->n) {
        return;
    }
    gw_candidates_rank(c, (size_t)k);
    size_t most = c->ranked < (size_t)k ? c->ranked : (size_t)k, best = 0;
    ngram_counts counts = {{0}, {{0}}};
    if (h->n >= n - 1) {
        count_ngrams(c, h, n, most, &counts);
    }
    double z = 0, score = 0;
    for (size_t i = 0; i < c->n; i++) {
        z += (double)gw_exp(c->at[i].logit - c->at[0].logit);
    }
    for (size_t i = 0; i < most && c->at[i].logit > -INFINITY; i++) {
        double p = (double)gw_exp(c->at[i].logit - c->at[0].logit) / z;
        double x = (1 - (double)alpha) * p - (double)alpha * anti_probability(&counts, i, n);
        if (i == 0 || x > score) { /* of equals the more probable, then the lower token */
            best = i;
            score = x;
        }
    }
    c->at[0] = c->at[best];
    c->n = c->ranked = 1;
}
