/* tests/test_sampler.c - the sampler: stages against the reference library's outputs and against
 * plain reimplementations in double, the draw against its distribution, the options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "core/engine/sampling/sampler.h"
#include "core/tensor/arith.h"
#include "tests/filter_rig.h"
#include "tests/random.h"

enum { VOCAB_MAX = 40000 };

static gw_candidate list[VOCAB_MAX];
static float logits[VOCAB_MAX];

/* ---- the reference library's outputs --------------------------------------------------------- */

enum { ROWS = 4, WIDTH = 64 };

typedef struct golden {
    char *bytes;
    json_t *header;
    size_t data;
} golden;

static int golden_open(golden *g) {
    const char *shared = getenv("GODWIT_SHARED");
    char path[1024];
    snprintf(path, sizeof path, "%s/goldens/samplers.safetensors",
             shared != NULL ? shared : "../shared");
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        print_message("no %s\n", path);
        return 0;
    }
    g->bytes = malloc(1 << 20);
    assert_non_null(g->bytes);
    size_t n = fread(g->bytes, 1, 1 << 20, f);
    fclose(f);
    uint64_t length;
    assert_true(n > 8);
    memcpy(&length, g->bytes, 8);
    assert_true(length < n - 8);
    g->header = json_loadb(g->bytes + 8, length, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(g->header);
    g->data = 8 + (size_t)length;
    return 1;
}

static void golden_row(const golden *g, const char *name, int row, float *out) {
    json_t *entry = json_object_get(g->header, name);
    assert_non_null(entry);
    json_int_t begin =
        json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(entry, "shape"), 1)), WIDTH);
    memcpy(out, g->bytes + g->data + begin + (size_t)row * WIDTH * sizeof *out,
           WIDTH * sizeof *out);
}

static void stage_of(const char *name, gw_candidates *c) {
    /* the history behind repetition_1.3 is tokens 1, 2 and 3 */
    static const uint32_t counts[WIDTH] = {[1] = 1, [2] = 1, [3] = 1};
    if (strcmp(name, "min_p_0.1") == 0) {
        gw_stage_min_p(c, 0.1f);
    } else if (strcmp(name, "repetition_1.3") == 0) {
        gw_stage_penalties(c, counts, 1.3f, 0, 0);
    } else if (strcmp(name, "temperature_0.7") == 0) {
        gw_stage_temperature(c, 0.7f);
    } else if (strcmp(name, "top_k_10") == 0) {
        gw_stage_top_k(c, 10);
    } else if (strcmp(name, "top_p_0.8") == 0) {
        gw_stage_top_p(c, 0.8f);
    } else if (strcmp(name, "typical_0.6") == 0) {
        gw_stage_typical(c, 0.6f);
    } else {
        fail_msg("no stage for golden '%s'", name);
    }
}

static void test_goldens(void **state) {
    (void)state;
    golden g = {0};
    if (!golden_open(&g)) {
        skip();
    }
    const char *name;
    json_t *entry;
    int compared = 0;
    json_object_foreach(g.header, name, entry) {
        for (int row = 0; row < ROWS && strcmp(name, "logits") != 0; row++) {
            float in[WIDTH], expected[WIDTH], got[WIDTH];
            golden_row(&g, "logits", row, in);
            golden_row(&g, name, row, expected);
            gw_candidates c = {.at = list};
            gw_candidates_fill(&c, in, WIDTH);
            stage_of(name, &c);
            for (int i = 0; i < WIDTH; i++) {
                got[i] = -INFINITY;
            }
            for (size_t i = 0; i < c.n; i++) {
                got[c.at[i].token] = c.at[i].logit;
            }
            for (int i = 0; i < WIDTH; i++) {
                if (isinf(expected[i])) {
                    assert_true(isinf(got[i]));
                } else {
                    assert_true(fabsf(got[i] - expected[i]) <= 1e-6f * (1 + fabsf(expected[i])));
                }
                compared++;
            }
        }
    }
    assert_int_equal(compared, 6 * ROWS * WIDTH);
    json_decref(g.header);
    free(g.bytes);
}

/* ---- stages against plain definitions -------------------------------------------------------- */

static const float *sort_by;
static int falling(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return sort_by[x] != sort_by[y] ? (sort_by[x] < sort_by[y] ? 1 : -1) : (x > y) - (x < y);
}

static void random_logits(int n, int kind) {
    for (int i = 0; i < n; i++) {
        float x = 3 * normal();
        logits[i] = kind == 1 ? GW_RINT(x) : x; /* kind 1: many equal ones */
        if (kind == 2 && i % 5 == 0) {
            logits[i] = -INFINITY;
        }
    }
}

static void test_rank(void **state) {
    (void)state;
    static int order[VOCAB_MAX];
    for (int round = 0; round < 60; round++) {
        int n = 1 + (int)(random_u32() % (round < 50 ? 300 : VOCAB_MAX));
        random_logits(n, round % 3);
        gw_candidates c = {.at = list};
        gw_candidates_fill(&c, logits, n);
        for (int i = 0; i < n; i++) {
            order[i] = i;
        }
        sort_by = logits;
        qsort(order, (size_t)n, sizeof order[0], falling);
        for (size_t m = 1; m < (size_t)n * 2; m = m * 3 + 1) {
            gw_candidates_rank(&c, m);
            assert_int_equal(c.ranked, m < (size_t)n ? m : (size_t)n);
            for (size_t i = 0; i < c.ranked; i++) {
                assert_int_equal(c.at[i].token, order[i]);
            }
        }
    }
}

/* As filter_rule.plain: what they return is how near a sum came to a limit. */
/* A list that was cut down early leaves top-k the same candidates in the same ranks, whatever the
 * logits are and wherever the largest lie. */
static void test_fill_top(void **state) {
    (void)state;
    static gw_candidate other[VOCAB_MAX];
    static const int sizes[] = {1, 15, 16, 17, 200, 1000, 4096, 16384, 16385, 32000, VOCAB_MAX};
    static const int ks[] = {1, 2, 7, 40, 250, 256, 1000};
    int taken = 0, shorter = 0, n_sizes = (int)(sizeof sizes / sizeof sizes[0]);
    for (int i = 0; i < 4 * n_sizes * 7; i++) {
        int n = sizes[i % n_sizes], k = ks[i / n_sizes % 7], kind = i / n_sizes / 7;
        random_logits(n, kind);
        for (int j = 0; j < n && kind == 3; j++) {
            uint32_t r = random_u32();
            logits[j] = r % 5 == 0 ? NAN : r % 7 == 0 ? -INFINITY : logits[j];
            logits[j] = j > n / 2 ? -INFINITY : logits[j]; /* whole blocks of them */
        }
        gw_candidates a = {.at = list}, b = {.at = other};
        float top = -INFINITY;
        for (int j = 0; j < n; j++) {
            top = logits[j] > top ? logits[j] : top;
        }
        assert_true(gw_logits_top(logits, (size_t)n) == top);
        if (!gw_candidates_fill_top(&a, logits, n, (size_t)k)) {
            continue;
        }
        gw_candidates_fill(&b, logits, n);
        taken++;
        shorter += a.n < b.n / 2;
        gw_stage_top_k(&a, k);
        gw_stage_top_k(&b, k);
        gw_candidates_rank(&a, a.n);
        gw_candidates_rank(&b, b.n);
        assert_int_equal(a.n, b.n);
        for (size_t j = 0; j < a.n; j++) {
            assert_int_equal(a.at[j].token, b.at[j].token);
            assert_true(a.at[j].logit == b.at[j].logit && a.at[j].key == b.at[j].key);
        }
    }
    assert_true(taken > 100 && shorter > 60);
}

static double plain_top_p(int n, double p, char *kept) {
    static int order[VOCAB_MAX];
    double total = 0, before = 0;
    for (int i = 0; i < n; i++) {
        order[i] = i;
        total += exp((double)logits[i]);
    }
    sort_by = logits;
    qsort(order, (size_t)n, sizeof order[0], falling);
    double slack = 1;
    for (int i = 0; i < n; i++) {
        kept[order[i]] = i == 0 || before / total < p;
        slack = fmin(slack, i == 0 ? 1 : fabs(before / total - p));
        before += exp((double)logits[order[i]]);
    }
    return slack;
}

static double plain_typical(int n, double p, char *kept) {
    static int order[VOCAB_MAX];
    static float key[VOCAB_MAX];
    double total = 0, entropy = 0, before = 0;
    for (int i = 0; i < n; i++) {
        order[i] = i;
        total += exp((double)logits[i]);
    }
    for (int i = 0; i < n; i++) {
        double q = exp((double)logits[i]) / total;
        entropy -= q > 0 ? q * log(q) : 0;
    }
    for (int i = 0; i < n; i++) {
        key[i] = -(float)fabs(log(total) - (double)logits[i] - entropy);
    }
    sort_by = key;
    qsort(order, (size_t)n, sizeof order[0], falling);
    double slack = 1;
    for (int i = 0; i < n; i++) {
        kept[order[i]] = i == 0 || before / total < p;
        slack = fmin(slack, i == 0 ? 1 : fabs(before / total - p));
        if (i > 0 && kept[order[i]] != kept[order[i - 1]]) { /* neighbours that could swap */
            slack = fmin(slack, fabs((double)(key[order[i]] - key[order[i - 1]])));
        }
        before += exp((double)logits[order[i]]);
    }
    return slack;
}

static double plain_min_p(int n, double p, char *kept) {
    double top = -INFINITY;
    for (int i = 0; i < n; i++) {
        top = fmax(top, (double)logits[i]);
    }
    double slack = 1;
    for (int i = 0; i < n; i++) {
        double q = exp((double)logits[i] - top);
        kept[i] = 1;
        if (q < p) {
            kept[i] = 0;
        }
        slack = fmin(slack, fabs(q - p));
    }
    return slack;
}

static double plain_top_k(int n, double k, char *kept) {
    double slack = 1;
    for (int i = 0; i < n; i++) { /* fewer than k are larger */
        int larger = 0;
        for (int j = 0; j < n; j++) {
            larger += logits[j] > logits[i];
        }
        kept[i] = larger < (int)k;
    }
    return slack;
}

static void run_top_k(gw_candidates *c, float p) { gw_stage_top_k(c, (int32_t)p); }

static void test_filters(void **state) {
    (void)state;
    static const filter_rule cases[] = {
        {"top-p", plain_top_p, gw_stage_top_p, 0.01, 0.999},
        {"typical", plain_typical, gw_stage_typical, 0.01, 0.999},
        {"min-p", plain_min_p, gw_stage_min_p, 0.001, 0.9},
        {"top-k", plain_top_k, run_top_k, 1, 200},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        int judged = 0, rounds = 200;
        for (int round = 0; round < rounds; round++) {
            int n = 2 + (int)(random_u32() % (round % 20 == 0 ? FILTER_VOCAB_MAX - 2 : 300));
            float p = (float)(cases[k].low + (cases[k].high - cases[k].low) * uniform());
            /* equal logits at a limit: the reference library leaves their order open */
            random_logits(n, k == 3 ? round % 3 : 0);
            size_t rank = round % 2 != 0 ? (size_t)n / 3 : 0; /* whatever is ranked already */
            judged += filter_judge(&cases[k], logits, n, p, rank, 1e-5, list) > 0;
        }
        assert_true(judged > rounds * 3 / 4);
    }
}

/* Filters one after another see only what is left. */
static void test_filters_in_sequence(void **state) {
    (void)state;
    random_logits(500, 0);
    gw_candidates c = {.at = list};
    gw_candidates_fill(&c, logits, 500);
    gw_stage_top_k(&c, 20);
    assert_int_equal(c.n, 20);
    float least = c.at[19].logit;
    gw_stage_top_p(&c, 0.7f);
    assert_true(c.n < 20 && c.n >= 1);
    double of_all = 0, of_kept = 0;
    for (int i = 0; i < 500; i++) {
        of_all += logits[i] >= least ? exp((double)logits[i]) : 0;
    }
    for (size_t i = 0; i < c.n; i++) {
        of_kept += exp((double)c.at[i].logit);
    }
    assert_true(of_kept / of_all >= 0.7 - 1e-6);
    assert_true((of_kept - exp((double)c.at[c.n - 1].logit)) / of_all < 0.7);
}

static void test_penalties_and_bias(void **state) {
    (void)state;
    const float in[5] = {2.0f, -2.0f, 1.0f, 0.0f, 4.0f};
    const uint32_t counts[5] = {1, 3, 0, 2, 1};
    const float bias[5] = {0.5f, 0, -INFINITY, 1.0f, 0};
    gw_candidates c = {.at = list};
    gw_candidates_fill(&c, in, 5);
    gw_stage_penalties(&c, counts, 2.0f, 0.25f, 0.5f);
    const float penalised[5] = {1.0f - 0.75f, -4.0f - 1.75f, 1.0f, -1.25f, 2.0f - 0.75f};
    for (size_t i = 0; i < 5; i++) {
        assert_true(c.at[i].logit == penalised[i] && c.at[i].key == penalised[i]);
    }
    gw_stage_bias(&c, bias);
    assert_true(c.at[0].logit == penalised[0] + 0.5f);
    assert_true(isinf(c.at[2].logit));
    assert_int_equal(gw_candidates_best(&c), 4);
}

/* ---- drawing --------------------------------------------------------------------------------- */

static gw_sampler *make(int32_t n_vocab, gw_sampler_options o) {
    gw_sampler *s = NULL;
    assert_int_equal(gw_sampler_make(n_vocab, &o, NULL, &s), GW_OK);
    return s;
}

static gw_sampler_options plain_options(void) {
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o.temperature = 1;
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    return o;
}

/* Chi-square of draws at positions 0..n-1 against p [8]; 7 degrees of freedom: 24.3 is passed by
 * chance once in a thousand, and the seeds are fixed. */
static double chi_square(gw_sampler *s, const float *in, const double *p, int n) {
    int seen[8] = {0};
    double chi = 0;
    for (int pos = 0; pos < n; pos++) {
        int32_t token = -1;
        assert_int_equal(gw_sampler_pick(s, in, pos, &token), GW_OK);
        assert_in_range(token, 0, 7);
        seen[token]++;
    }
    for (int i = 0; i < 8; i++) {
        chi += (seen[i] - n * p[i]) * (seen[i] - n * p[i]) / (n * p[i]);
    }
    return chi;
}

static void test_distribution(void **state) {
    (void)state;
    const float in[8] = {0.3f, 2.0f, -1.0f, 0.0f, 1.2f, -2.5f, 0.31f, 1.9f};
    static const uint64_t seeds[] = {0, 1, 42, 0xffffffffffffffffu, 0x123456789abcdef0u};
    static const float temperatures[] = {1.0f, 0.7f, 1.8f};
    for (size_t t = 0; t < 3; t++) {
        double p[8], total = 0;
        for (int i = 0; i < 8; i++) {
            total += p[i] = exp((double)in[i] / (double)temperatures[t]);
        }
        for (int i = 0; i < 8; i++) {
            p[i] /= total;
        }
        for (size_t k = 0; k < sizeof seeds / sizeof seeds[0]; k++) {
            gw_sampler_options o = plain_options();
            o.seed = seeds[k];
            o.temperature = temperatures[t];
            gw_sampler *s = make(8, o);
            double chi = chi_square(s, in, p, 20000);
            assert_true(chi > 0.5 && chi < 24.3); /* neither wrong nor too good to be random */
            gw_sampler_free(s);
        }
    }
}

/* Leaving out candidates that cannot win changes nothing. */
static void test_draw_is_exact(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        int n = 2 + (int)(random_u32() % 2000);
        random_logits(n, round % 3);
        for (int i = 0; i < n; i++) {
            logits[i] *= 4;
        }
        uint64_t seed = (uint64_t)random_u32() << 32 | random_u32();
        int32_t best = -1, pos = (int32_t)random_u32();
        float most = -INFINITY;
        for (int32_t i = 0; i < n; i++) {
            float y = logits[i] +
                      gw_gumbel((gw_u32)seed, (gw_u32)(seed >> 32), 0, (gw_u32)pos, (gw_u32)i);
            if (y > most) {
                most = y;
                best = i;
            }
        }
        gw_candidates c = {.at = list};
        gw_candidates_fill(&c, logits, n);
        gw_candidates_rank(&c, (size_t)round); /* the order of the list does not matter */
        size_t at = gw_candidates_draw(&c, seed, pos);
        assert_true(at < c.n);
        assert_int_equal(c.at[at].token, best);
    }
}

static void test_determinism_by_position(void **state) {
    (void)state;
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o.seed = 7;
    gw_sampler *a = make(400, o), *b = make(400, o);
    o.seed = 8;
    gw_sampler *other = make(400, o);
    random_logits(400, 0);
    int32_t forward[100], token;
    int differ = 0, varied = 0;
    for (int pos = 0; pos < 100; pos++) {
        assert_int_equal(gw_sampler_pick(a, logits, pos, &forward[pos]), GW_OK);
        varied += forward[pos] != forward[0];
    }
    for (int pos = 99; pos >= 0; pos--) { /* another order, another sampler */
        assert_int_equal(gw_sampler_pick(b, logits, pos, &token), GW_OK);
        assert_int_equal(token, forward[pos]);
        assert_int_equal(gw_sampler_pick(other, logits, pos, &token), GW_OK);
        differ += token != forward[pos];
    }
    assert_true(differ > 20 && varied > 20);
    gw_sampler_free(a);
    gw_sampler_free(b);
    gw_sampler_free(other);
}

static void test_greedy(void **state) {
    (void)state;
    const float in[6] = {1, 5, NAN, 5, -INFINITY, 4.5f};
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o.temperature = 0;
    gw_sampler *s = make(6, o);
    int32_t token = -1;
    for (int pos = 0; pos < 20; pos++) { /* the lowest of equals, whatever the position */
        assert_int_equal(gw_sampler_pick(s, in, pos, &token), GW_OK);
        assert_int_equal(token, 1);
    }
    gw_sampler_free(s);
}

static void test_not_finite(void **state) {
    (void)state;
    static const struct {
        float in[4];
        gw_status expected;
    } cases[] = {
        {{NAN, NAN, NAN, NAN}, GW_E_NUMERIC},
        {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, GW_E_NUMERIC},
        {{NAN, -INFINITY, NAN, -INFINITY}, GW_E_NUMERIC},
        {{1, INFINITY, 2, 3}, GW_E_NUMERIC},
        {{NAN, 1, NAN, NAN}, GW_OK},
        {{NAN, NAN, NAN, -2e38f}, GW_OK},
    };
    for (int greedy = 0; greedy < 2; greedy++) {
        gw_sampler_options o;
        gw_sampler_defaults(&o);
        o.temperature = greedy ? 0 : 0.8f;
        o.typical_p = 0.9f;
        gw_sampler *s = make(4, o);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            int32_t token = -7;
            assert_int_equal(gw_sampler_pick(s, cases[i].in, 3, &token), cases[i].expected);
            if (cases[i].expected != GW_OK) {
                assert_int_equal(token, -7);
                assert_true(strlen(gw_error_text()) > 0);
            } else {
                assert_true(token >= 0 && cases[i].in[token] == cases[i].in[token]);
            }
        }
        gw_sampler_free(s);
    }
}

/* ---- options --------------------------------------------------------------------------------- */

static void test_order(void **state) {
    (void)state;
    static const struct {
        const char *order;
        gw_status expected;
    } cases[] = {
        {"penalties;bias;top-k;typical;top-p;min-p;temperature", GW_OK},
        {"temperature;top_p", GW_OK},
        {"", GW_OK},
        {"top-k;top-k", GW_E_ARGUMENT},
        {"top-k;mirostat", GW_OK},
        {"top-k;;top-p", GW_E_ARGUMENT},
        {"top", GW_E_ARGUMENT},
        {"top-k,top-p", GW_E_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_sampler_options o = plain_options();
        gw_sampler *s = NULL;
        o.order = cases[i].order;
        assert_int_equal(gw_sampler_make(10, &o, NULL, &s), cases[i].expected);
        assert_true((s != NULL) == (cases[i].expected == GW_OK));
        gw_sampler_free(s);
    }
}

/* top-k 1 before the bias keeps token 0; after it, token 1. */
static void test_order_is_obeyed(void **state) {
    (void)state;
    const float in[3] = {2, 1, 0};
    const gw_logit_bias bias = {.token = 1, .bias = 5};
    static const struct {
        const char *order;
        int32_t expected;
    } cases[] = {{"top-k;bias", 0}, {"bias;top-k", 1}, {NULL, 1}, {"top-k", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_sampler_options o = plain_options();
        o.order = cases[i].order;
        o.top_k = 1;
        o.bias = &bias;
        o.n_bias = 1;
        gw_sampler *s = make(3, o);
        int32_t token = -1;
        assert_int_equal(gw_sampler_pick(s, in, 0, &token), GW_OK);
        assert_int_equal(token, cases[i].expected);
        gw_sampler_free(s);
    }
}

static void test_window(void **state) {
    (void)state;
    const float in[4] = {3, 2.5f, 0, 0};
    static const struct {
        int32_t last_n, expected; /* after tokens 0, 2, 3: greedy choice */
    } cases[] = {{3, 1}, {2, 0}, {-1, 1}, {0, 0}, {64, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_sampler_options o = plain_options();
        o.temperature = 0;
        o.repeat_penalty = 2;
        o.repeat_last_n = cases[i].last_n;
        gw_sampler *s = make(4, o);
        int32_t token = -1, history[3] = {0, 2, 3};
        for (int k = 0; k < 3; k++) {
            assert_int_equal(gw_sampler_accept(s, history[k]), GW_OK);
        }
        assert_int_equal(gw_sampler_pick(s, in, 3, &token), GW_OK);
        assert_int_equal(token, cases[i].expected);
        assert_int_equal(gw_sampler_accept(s, 4), GW_E_ARGUMENT);
        assert_int_equal(gw_sampler_accept(s, -1), GW_E_ARGUMENT);
        gw_sampler_free(s);
    }
}

static void test_forbidden_tokens(void **state) {
    (void)state;
    const gw_logit_bias bias[3] = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}};
    const float in[3] = {1, 2, 3};
    gw_sampler_options o = plain_options();
    o.bias = bias;
    o.n_bias = 2;
    gw_sampler *s = make(3, o);
    int32_t token = -1;
    for (int pos = 0; pos < 50; pos++) {
        assert_int_equal(gw_sampler_pick(s, in, pos, &token), GW_OK);
        assert_int_equal(token, 2);
    }
    gw_sampler_free(s);
    o.n_bias = 3;
    s = make(3, o);
    assert_int_equal(gw_sampler_pick(s, in, 0, &token), GW_E_NUMERIC);
    gw_sampler_free(s);
}

static void test_ranges(void **state) {
    (void)state;
    for (int i = 0; i < 15; i++) {
        gw_sampler_options o;
        gw_sampler_defaults(&o);
        gw_logit_bias bias = {.token = 3, .bias = 1};
        float *const fields[] = {&o.temperature,      &o.top_p,          &o.min_p,
                                 &o.typical_p,        &o.repeat_penalty, &o.presence_penalty,
                                 &o.frequency_penalty};
        if (i < 7) {
            *fields[i] = NAN;
        } else if (i < 11) {
            *fields[i - 7] = -0.5f;
        } else if (i == 11) {
            o.top_k = -1;
        } else if (i == 12) {
            o.repeat_last_n = -2;
        } else {
            bias = i == 13 ? (gw_logit_bias){.token = 10, .bias = 1}
                           : (gw_logit_bias){.token = 3, .bias = NAN};
            o.bias = &bias;
            o.n_bias = 1;
        }
        gw_sampler *s = (gw_sampler *)&o;
        assert_int_equal(gw_sampler_make(10, &o, NULL, &s), GW_E_ARGUMENT);
        assert_ptr_equal(s, &o);
    }
}

static void test_no_allocation(void **state) {
    (void)state;
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o.typical_p = 0.9f;
    o.top_k = 3000;
    o.repeat_penalty = 1.2f;
    gw_sampler *s = make(VOCAB_MAX, o);
    random_logits(VOCAB_MAX, 0);
    struct mallinfo2 before = mallinfo2();
    for (int pos = 0; pos < 5; pos++) {
        int32_t token;
        assert_int_equal(gw_sampler_pick(s, logits, pos, &token), GW_OK);
        assert_int_equal(gw_sampler_accept(s, token), GW_OK);
    }
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(after.uordblks, before.uordblks);
    assert_int_equal(after.hblkhd, before.hblkhd);
    gw_sampler_free(s);
}

/* A test's numbers are its own, whatever ran before it. */
static int seed(void **state) {
    (void)state;
    random_seed(1);
    return 0;
}

#define DRAWING(test) cmocka_unit_test_setup(test, seed)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        DRAWING(test_rank),
        DRAWING(test_filters),
        DRAWING(test_filters_in_sequence),
        DRAWING(test_fill_top),
        cmocka_unit_test(test_penalties_and_bias),
        cmocka_unit_test(test_distribution),
        DRAWING(test_draw_is_exact),
        DRAWING(test_determinism_by_position),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_order_is_obeyed),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_forbidden_tokens),
        cmocka_unit_test(test_ranges),
        DRAWING(test_no_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
