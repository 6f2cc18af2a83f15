/* core/engine/sampler.c - chooses tokens from logits: filters in the user's order, then one draw.
 */
#include "core/engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"
#include "core/engine/model.h"
#include "core/tensor/arith.h"

/* ---- candidates ------------------------------------------------------------------------------ */

void gw_candidates_fill(gw_candidates *c, const float *logits, int32_t n_vocab) {
    size_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        float x = logits[id];
        c->at[n] = (gw_candidate){.logit = x, .key = x, .token = id};
        n += x == x; /* a NaN is overwritten by the next one */
    }
    c->n = n;
    c->ranked = 0;
}

static int before(const gw_candidate *a, const gw_candidate *b) {
    return a->key > b->key || (a->key == b->key && a->token < b->token);
}

/* Restore the heap whose root is the candidate that ranks last. */
static void sift(gw_candidate *heap, size_t n, size_t i) {
    gw_candidate x = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && before(&heap[child], &heap[child + 1])) {
            child++;
        }
        if (!before(&x, &heap[child])) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
}

void gw_candidates_rank(gw_candidates *c, size_t m) {
    m = m < c->n ? m : c->n;
    if (m <= c->ranked) {
        return;
    }
    gw_candidate *heap = c->at + c->ranked;
    size_t size = m - c->ranked, rest = c->n - c->ranked;
    for (size_t i = size / 2; i-- > 0;) {
        sift(heap, size, i);
    }
    for (size_t i = size; i < rest; i++) {
        if (before(&heap[i], &heap[0])) {
            gw_candidate out = heap[0];
            heap[0] = heap[i];
            heap[i] = out;
            sift(heap, size, 0);
        }
    }
    for (size_t left = size; left > 1; left--) { /* the last goes to the end, again and again */
        gw_candidate last = heap[0];
        heap[0] = heap[left - 1];
        heap[left - 1] = last;
        sift(heap, left - 1, 0);
    }
    c->ranked = m;
}

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

/* ---- the choice ------------------------------------------------------------------------------ */

size_t gw_candidates_best(const gw_candidates *c) {
    size_t best = c->n;
    for (size_t i = 0; i < c->n; i++) {
        const gw_candidate *x = &c->at[i];
        if (x->logit > -INFINITY &&
            (best == c->n || x->logit > c->at[best].logit ||
             (x->logit == c->at[best].logit && x->token < c->at[best].token))) {
            best = i;
        }
    }
    return best < c->n && c->at[best].logit < INFINITY ? best : c->n;
}

/* No noise is larger: -ln(-ln(1 - 2^-24)) = 16.6356. */
#define NOISE_MAX 16.64f

size_t gw_candidates_draw(const gw_candidates *c, uint64_t seed, int32_t position) {
    return gw_candidates_draw_of(c, seed, 0, position);
}

size_t gw_candidates_draw_of(const gw_candidates *c, uint64_t seed, uint32_t sequence,
                             int32_t position) {
    size_t best = gw_candidates_best(c);
    if (best == c->n) {
        return best;
    }
    gw_u32 low = (gw_u32)seed, high = (gw_u32)(seed >> 32), at = (gw_u32)position;
    float most = c->at[best].logit + gw_gumbel(low, high, sequence, at, (gw_u32)c->at[best].token);
    for (size_t i = 0; i < c->n; i++) {
        const gw_candidate *x = &c->at[i];
        if (x->logit + NOISE_MAX < most) {
            continue; /* no noise can make it win */
        }
        float y = x->logit + gw_gumbel(low, high, sequence, at, (gw_u32)x->token);
        if (y > most || (y == most && x->token < c->at[best].token)) {
            most = y;
            best = i;
        }
    }
    return best;
}

/* ---- the sampler ----------------------------------------------------------------------------- */

enum { STAGES = 7 };

/* Nothing but the best token is left here, and division by less could overflow. */
#define GREEDY_BELOW 1e-3f

struct gw_sampler {
    gw_sampler_options o;
    int32_t n_vocab;
    gw_candidate *candidates; /* [n_vocab] */
    uint32_t *counts;         /* [n_vocab] how often a token is in the window; NULL: no penalties */
    int32_t *window;          /* [repeat_last_n] ring of tokens; NULL when all count */
    float *bias;              /* [n_vocab] or NULL */
    size_t window_at, window_n;
    int32_t ahead[GW_DECODE_MAX];   /* tokens counted for now                   */
    int32_t evicted[GW_DECODE_MAX]; /* what each pushed out of the window; or -1 */
    int n_ahead;
    int n_stages;
    int stages[STAGES]; /* rows of stage_table, in the order they run */
};

static int penalties_on(const gw_sampler_options *o) {
    return o->repeat_last_n != 0 && (o->repeat_penalty != 1.0f || o->presence_penalty != 0.0f ||
                                     o->frequency_penalty != 0.0f);
}

static void run_penalties(const gw_sampler *s, gw_candidates *c) {
    if (s->counts != NULL) {
        gw_stage_penalties(c, s->counts, s->o.repeat_penalty, s->o.presence_penalty,
                           s->o.frequency_penalty);
    }
}
static void run_bias(const gw_sampler *s, gw_candidates *c) {
    if (s->bias != NULL) {
        gw_stage_bias(c, s->bias);
    }
}
static void run_top_k(const gw_sampler *s, gw_candidates *c) { gw_stage_top_k(c, s->o.top_k); }
static void run_typical(const gw_sampler *s, gw_candidates *c) {
    if (s->o.typical_p < 1.0f) {
        gw_stage_typical(c, s->o.typical_p);
    }
}
static void run_top_p(const gw_sampler *s, gw_candidates *c) {
    if (s->o.top_p < 1.0f) {
        gw_stage_top_p(c, s->o.top_p);
    }
}
static void run_min_p(const gw_sampler *s, gw_candidates *c) {
    if (s->o.min_p > 0.0f) {
        gw_stage_min_p(c, s->o.min_p);
    }
}
static void run_temperature(const gw_sampler *s, gw_candidates *c) {
    if (s->o.temperature > 0.0f && s->o.temperature != 1.0f) {
        gw_stage_temperature(c, s->o.temperature);
    }
}

/* Rows in the order that is used when none is asked for. */
static const struct {
    const char *name;
    void (*run)(const gw_sampler *s, gw_candidates *c);
} stage_table[STAGES] = {
    {"penalties", run_penalties},     {"bias", run_bias},   {"top-k", run_top_k},
    {"typical", run_typical},         {"top-p", run_top_p}, {"min-p", run_min_p},
    {"temperature", run_temperature},
};

/* '_' is as good as '-', as in the names that other programs use. */
static int is_name(const char *text, size_t bytes, const char *name) {
    for (size_t i = 0; i < bytes; i++) {
        if (name[i] != (text[i] == '_' ? '-' : text[i])) {
            return 0;
        }
    }
    return name[bytes] == '\0';
}

static gw_status parse_order(const char *order, gw_sampler *s) {
    if (order == NULL) {
        for (int i = 0; i < STAGES; i++) {
            s->stages[s->n_stages++] = i;
        }
        return GW_OK;
    }
    unsigned seen = 0;
    for (const char *at = order; *at != '\0';) {
        size_t n = strcspn(at, ";");
        int row = 0;
        while (row < STAGES && !is_name(at, n, stage_table[row].name)) {
            row++;
        }
        if (row == STAGES) {
            return gw_fail(GW_E_ARGUMENT, "sampler order",
                           "unknown stage '%.*s'; there are penalties, bias, top-k, typical, "
                           "top-p, min-p and temperature, separated by ';'",
                           n < 40 ? (int)n : 40, at);
        }
        if (seen & 1u << row) {
            return gw_fail(GW_E_ARGUMENT, "sampler order", "stage '%s' occurs twice",
                           stage_table[row].name);
        }
        seen |= 1u << row;
        s->stages[s->n_stages++] = row;
        at += n;
        at += *at == ';';
    }
    return GW_OK;
}

static gw_status check_options(const gw_sampler_options *o, int32_t n_vocab) {
    const struct {
        const char *name;
        float value, min, max;
    } ranges[] = {
        {"temperature", o->temperature, 0.0f, 1000.0f},
        {"top_p", o->top_p, 0.0f, 1.0f},
        {"min_p", o->min_p, 0.0f, 1.0f},
        {"typical_p", o->typical_p, 0.0f, 1.0f},
        {"repeat_penalty", o->repeat_penalty, 0.001f, 1000.0f},
        {"presence_penalty", o->presence_penalty, -1000.0f, 1000.0f},
        {"frequency_penalty", o->frequency_penalty, -1000.0f, 1000.0f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max)) {
            return gw_fail(GW_E_ARGUMENT, ranges[i].name, "%g is not between %g and %g",
                           (double)ranges[i].value, (double)ranges[i].min, (double)ranges[i].max);
        }
    }
    if (o->top_k < 0) {
        return gw_fail(GW_E_ARGUMENT, "top_k", "%d is below 0", (int)o->top_k);
    }
    if (o->repeat_last_n < -1 || o->repeat_last_n > 1 << 24) {
        return gw_fail(GW_E_ARGUMENT, "repeat_last_n", "%d is not between -1 and %d",
                       (int)o->repeat_last_n, 1 << 24);
    }
    for (size_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].token < 0 || o->bias[i].token >= n_vocab) {
            return gw_fail(GW_E_ARGUMENT, "logit bias", "token %d is not between 0 and %d",
                           (int)o->bias[i].token, (int)n_vocab - 1);
        }
        if (!(o->bias[i].bias < INFINITY)) { /* NaN too; -infinity forbids the token */
            return gw_fail(GW_E_ARGUMENT, "logit bias", "the bias of token %d is not a number",
                           (int)o->bias[i].token);
        }
    }
    return GW_OK;
}

static gw_status take_buffers(gw_sampler *s) {
    size_t n = (size_t)s->n_vocab;
    s->candidates = calloc(n, sizeof *s->candidates);
    int short_of = s->candidates == NULL;
    if (penalties_on(&s->o)) {
        s->counts = calloc(n, sizeof *s->counts);
        short_of |= s->counts == NULL;
        if (s->o.repeat_last_n > 0) {
            s->window = calloc((size_t)s->o.repeat_last_n, sizeof *s->window);
            short_of |= s->window == NULL;
        }
    }
    if (s->o.n_bias > 0) {
        s->bias = calloc(n, sizeof *s->bias);
        short_of |= s->bias == NULL;
    }
    if (short_of) {
        return gw_fail(GW_E_NOMEM, "sampler", "no memory for %zu tokens", n);
    }
    for (size_t i = 0; i < s->o.n_bias; i++) {
        s->bias[s->o.bias[i].token] += s->o.bias[i].bias;
    }
    s->o.bias = NULL; /* the caller's; not kept */
    return GW_OK;
}

void gw_sampler_defaults(gw_sampler_options *out) {
    *out = (gw_sampler_options){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .typical_p = 1.0f,
        .repeat_penalty = 1.0f,
        .repeat_last_n = 64,
    };
}

gw_status gw_sampler_new(const gw_model *model, const gw_sampler_options *options,
                         gw_sampler **out) {
    return gw_sampler_make(gw_model_n_vocab(model), options, out);
}

gw_status gw_sampler_make(int32_t n_vocab, const gw_sampler_options *options, gw_sampler **out) {
    GW_TRY(check_options(options, n_vocab));
    gw_sampler *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, "sampler", "no memory");
    }
    s->o = *options;
    if (s->o.temperature < GREEDY_BELOW) {
        s->o.temperature = 0.0f;
    }
    s->n_vocab = n_vocab;
    gw_status status = parse_order(options->order, s);
    if (status == GW_OK) {
        status = take_buffers(s);
    }
    s->o.order = NULL;
    if (status != GW_OK) {
        gw_sampler_free(s);
        return status;
    }
    *out = s;
    return GW_OK;
}

void gw_sampler_free(gw_sampler *s) {
    if (s != NULL) {
        free(s->candidates);
        free(s->counts);
        free(s->window);
        free(s->bias);
        free(s);
    }
}

/* The largest logit, lowest token first; -1 when none is finite or the largest is infinite. */
static int32_t best_of(const float *logits, int32_t n) {
    int32_t best = -1;
    float most = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (logits[i] > most) { /* false for a NaN */
            most = logits[i];
            best = i;
        }
    }
    return most < INFINITY ? best : -1;
}

/* Do the stages leave the largest logit where it is? */
static int keeps_best(const gw_sampler *s) {
    return s->counts == NULL && s->bias == NULL && s->o.typical_p >= 1.0f;
}

gw_status gw_sampler_narrow(gw_sampler *s, const float *logits, int32_t n, int32_t pos,
                            gw_candidates *out) {
    gw_candidates c = {.at = s->candidates};
    if (best_of(logits, n) < 0) {
        return gw_fail(GW_E_NUMERIC, "logits",
                       "no finite largest value at position %d: the weights or the numbers of "
                       "this model are broken",
                       (int)pos);
    }
    gw_candidates_fill(&c, logits, n);
    for (int i = 0; i < s->n_stages; i++) {
        stage_table[s->stages[i]].run(s, &c);
    }
    *out = c;
    return GW_OK;
}

gw_status gw_sampler_choose(const gw_sampler *s, const gw_candidates *c, int32_t pos,
                            int32_t *token) {
    size_t chosen =
        s->o.temperature > 0.0f ? gw_candidates_draw(c, s->o.seed, pos) : gw_candidates_best(c);
    if (chosen == c->n) {
        return gw_fail(GW_E_NUMERIC, "logits", "bias and penalties leave no token at position %d",
                       (int)pos);
    }
    *token = c->at[chosen].token;
    return GW_OK;
}

gw_status gw_sampler_pick(gw_sampler *s, const float *logits, int32_t pos, int32_t *token) {
    int32_t best = s->o.temperature > 0.0f || !keeps_best(s) ? -1 : best_of(logits, s->n_vocab);
    if (best >= 0) {
        *token = best;
        return GW_OK;
    }
    gw_candidates c;
    GW_TRY(gw_sampler_narrow(s, logits, s->n_vocab, pos, &c));
    return gw_sampler_choose(s, &c, pos, token);
}

/* Returns the token that left the window, or -1. */
static int32_t count_token(gw_sampler *s, int32_t token) {
    int32_t evicted = -1;
    if (s->window != NULL) {
        if (s->window_n == (size_t)s->o.repeat_last_n) {
            evicted = s->window[s->window_at];
            s->counts[evicted]--;
        } else {
            s->window_n++;
        }
        s->window[s->window_at] = token;
        s->window_at = (s->window_at + 1) % (size_t)s->o.repeat_last_n;
    }
    s->counts[token]++;
    return evicted;
}

gw_status gw_sampler_accept(gw_sampler *s, int32_t token) {
    if (token < 0 || token >= s->n_vocab) {
        return gw_fail(GW_E_ARGUMENT, "token", "%d is not between 0 and %d", (int)token,
                       (int)s->n_vocab - 1);
    }
    if (s->counts != NULL) {
        count_token(s, token);
    }
    return GW_OK;
}

void gw_sampler_ahead(gw_sampler *s, int32_t token) {
    if (s->counts != NULL && s->n_ahead < GW_DECODE_MAX) {
        s->ahead[s->n_ahead] = token;
        s->evicted[s->n_ahead++] = count_token(s, token);
    }
}

void gw_sampler_back(gw_sampler *s) {
    while (s->n_ahead > 0) {
        int i = --s->n_ahead;
        s->counts[s->ahead[i]]--;
        if (s->window == NULL) {
            continue;
        }
        s->window_at = (s->window_at > 0 ? s->window_at : (size_t)s->o.repeat_last_n) - 1;
        if (s->evicted[i] >= 0) {
            s->window[s->window_at] = s->evicted[i];
            s->counts[s->evicted[i]]++;
        } else {
            s->window_n--;
        }
    }
}

int32_t gw_sampler_vocab(const gw_sampler *s) { return s->n_vocab; }
uint64_t gw_sampler_seed(const gw_sampler *s) { return s->o.seed; }
int gw_sampler_is_greedy(const gw_sampler *s) { return !(s->o.temperature > 0.0f); }

int gw_sampler_filters(const gw_sampler *s) {
    int filters = 0;
    for (int i = 0; i < s->n_stages; i++) {
        void (*run)(const gw_sampler *, gw_candidates *) = stage_table[s->stages[i]].run;
        filters |= run == run_top_k && s->o.top_k > 0;
        filters |= run == run_typical && s->o.typical_p < 1.0f;
        filters |= run == run_top_p && s->o.top_p < 1.0f;
        filters |= run == run_min_p && s->o.min_p > 0.0f;
    }
    return filters;
}
