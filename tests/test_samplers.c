/* tests/test_samplers.c - the samplers with a name of their own (tail-free, top-n-sigma, XTC,
 * mirostat, dynamic temperature, DRY, FSD) against reimplementations that follow the papers word by
 * word in double, their draws against expected distributions, and their memory: what was rewound
 * never was. */
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

#include "core/engine/sampling/sampler.h"
#include "core/engine/sampling/sampler_text.h"
#include "tests/filter_rig.h"
#include "tests/random.h"

enum { VOCAB_MAX = 3000, TEXT_MAX = 700 };

static gw_candidate list[VOCAB_MAX];
static float logits[VOCAB_MAX];

static double between(double low, double high) { return low + (high - low) * uniform(); }
static void random_logits(int n) {
    for (int i = 0; i < n; i++) {
        logits[i] = 3 * normal();
    }
}
static gw_candidates filled(int n) {
    gw_candidates c = {.at = list};
    gw_candidates_fill(&c, logits, n);
    return c;
}

/* ---- plain definitions ----------------------------------------------------------------------- */

static int falling(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return logits[x] != logits[y] ? (logits[x] < logits[y] ? 1 : -1) : (x > y) - (x < y);
}

/* Tokens by falling probability, and their probabilities in that order. */
static void sorted(int n, int *order, double *p) {
    double total = 0;
    for (int i = 0; i < n; i++) {
        order[i] = i;
    }
    qsort(order, (size_t)n, sizeof *order, falling);
    for (int i = 0; i < n; i++) {
        total += p[i] = exp((double)logits[order[i]] - (double)logits[order[0]]);
    }
    for (int i = 0; i < n; i++) {
        p[i] /= total;
    }
}

static int order[VOCAB_MAX];
static double prob[VOCAB_MAX];

static void keep_first(int n, int count, char *kept) {
    for (int i = 0; i < n; i++) {
        kept[order[i]] = (char)(i < count);
    }
}

/* As filter_rule.plain. */
static double plain_top_n_sigma(int n, double sigmas, char *kept) {
    double mean = 0, var = 0, top = -INFINITY, slack = 1;
    for (int i = 0; i < n; i++) {
        mean += (double)logits[i] / n;
        top = fmax(top, (double)logits[i]);
    }
    for (int i = 0; i < n; i++) {
        var += ((double)logits[i] - mean) * ((double)logits[i] - mean) / n;
    }
    for (int i = 0; i < n; i++) {
        double over = (double)logits[i] - (top - sigmas * sqrt(var));
        kept[i] = over >= 0;
        slack = fmin(slack, fabs(over));
    }
    return slack;
}

/* The author's program: weights of |diff(diff(p))|, the first place where their running sum is over
 * z, one more for the middle; tokens below the probability there go. */
static double plain_tail_free(int n, double z, char *kept) {
    static double bend[VOCAB_MAX];
    double total = 0, sum = 0, slack = 1;
    int tail = n - 1;
    sorted(n, order, prob);
    for (int i = 0; i + 2 < n; i++) {
        total += bend[i] = fabs((prob[i + 2] - prob[i + 1]) - (prob[i + 1] - prob[i]));
    }
    for (int i = 0; i + 2 < n; i++) {
        sum += bend[i] / total;
        slack = fmin(slack, fabs(sum - z));
        if (sum > z) {
            tail = i + 1;
            break;
        }
    }
    keep_first(n, tail + 1, kept);
    return slack;
}

static double plain_xtc(int n, double threshold, char *kept) {
    double slack = 1;
    int above = 0;
    sorted(n, order, prob);
    for (int i = 0; i < n; i++) {
        above += prob[i] >= threshold;
        slack = fmin(slack, fabs(prob[i] - threshold));
    }
    for (int i = 0; i < n; i++) {
        kept[order[i]] = (char)(i >= above - 1);
    }
    return slack;
}

static double plain_mirostat2(int n, double mu, char *kept) {
    double slack = 1;
    sorted(n, order, prob);
    for (int i = 0; i < n; i++) {
        kept[order[i]] = i == 0 || -log2(prob[i]) <= mu;
        slack = fmin(slack, fabs(-log2(prob[i]) - mu));
    }
    return slack;
}

static double plain_mirostat1(int n, double mu, char *kept) {
    double num = 0, den = 0;
    sorted(n, order, prob);
    for (int i = 0; i < 100 && i + 1 < n; i++) {
        double b = log(prob[i] / prob[i + 1]), t = log((i + 2.0) / (i + 1.0));
        num += b * t;
        den += t * t;
    }
    double s = num / den, eps = s - 1;
    double k = pow(eps * pow(2, mu) / (1 - pow(n, -eps)), 1 / s);
    double count = k >= n ? n : rint(k) + 1;
    keep_first(n, count > n ? n : (int)count, kept);
    return k >= n ? fabs(k - n) : fmin(fabs(k - floor(k) - 0.5), fabs(eps));
}

static void run_mirostat1(gw_candidates *c, float mu) {
    gw_stage_mirostat(c, 1, mu, (int32_t)c->n, NULL);
}
static void run_mirostat2(gw_candidates *c, float mu) {
    gw_stage_mirostat(c, 2, mu, (int32_t)c->n, NULL);
}

static const filter_rule filters[] = {
    {"top-n-sigma", plain_top_n_sigma, gw_stage_top_n_sigma, 0.01, 4},
    {"tail-free", plain_tail_free, gw_stage_tail_free, 0.01, 0.999},
    {"xtc", plain_xtc, gw_stage_xtc, 0.001, 0.6},
    {"mirostat 1", plain_mirostat1, run_mirostat1, 0.5, 12},
    {"mirostat 2", plain_mirostat2, run_mirostat2, 0.1, 14},
};

static void test_filters(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof filters / sizeof filters[0]; k++) {
        int judged = 0, shorter = 0, rounds = 300;
        for (int round = 0; round < rounds; round++) {
            int n = 3 + (int)(random_u32() % (round % 10 == 0 ? VOCAB_MAX - 3 : 200));
            float p = (float)between(filters[k].low, filters[k].high);
            random_logits(n);
            size_t rank = round % 2 != 0 ? (size_t)n / 3 : 0; /* whatever is ranked already */
            size_t left = filter_judge(&filters[k], logits, n, p, rank, 1e-4, list);
            judged += left > 0;
            shorter += left > 0 && left < (size_t)n;
        }
        assert_true(judged > rounds * 2 / 3 && shorter > rounds / 5);
    }
}

static void test_dynamic_temperature(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        int n = 2 + (int)(random_u32() % 300);
        double t = between(0.2, 2), range = between(0.1, 3), exponent = between(0, 3), h = 0;
        random_logits(n);
        for (int i = 0; i < n; i++) {
            logits[i] *= (float)(round % 4);
        }
        sorted(n, order, prob);
        for (int i = 0; i < n; i++) {
            h -= prob[i] > 0 ? prob[i] * log(prob[i]) : 0;
        }
        double low = fmax(0, t - range), high = t + range;
        double now = fmax(1e-3, low + (high - low) * pow(fmin(1, h / log(n)), exponent));
        gw_candidates c = filled(n);
        gw_stage_dynamic_temperature(&c, (float)t, (float)range, (float)exponent);
        for (size_t i = 0; i < c.n; i++) {
            double expected = (double)logits[c.at[i].token] / now;
            assert_true(fabs((double)c.at[i].logit - expected) <= 1e-3 * (1 + fabs(expected)));
        }
    }
}

/* ---- samplers -------------------------------------------------------------------------------- */

static gw_sampler_options plain_options(void) {
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o.temperature = 1;
    o.top_k = 0;
    o.top_p = 1;
    o.min_p = 0;
    return o;
}

static gw_sampler *make_spelled(int32_t n_vocab, gw_sampler_options o, const gw_pieces *pieces) {
    gw_sampler *s = NULL;
    if (gw_sampler_make(n_vocab, &o, pieces, &s) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return s;
}
static gw_sampler *make(int32_t n_vocab, gw_sampler_options o) {
    return make_spelled(n_vocab, o, NULL);
}

static int32_t pick(gw_sampler *s, int32_t pos) {
    int32_t token = -1;
    if (gw_sampler_pick(s, logits, pos, &token) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return token;
}

/* mu after every token is the paper's, and over a long text the surprise is what was asked for. */
static void test_mirostat_control(void **state) {
    (void)state;
    enum { V = 400, STEPS = 3000 };
    for (int version = 1; version <= 2; version++) {
        gw_sampler_options o = plain_options();
        o.mirostat = version;
        o.mirostat_tau = 3;
        o.mirostat_eta = 0.2f;
        gw_sampler *s = make(V, o);
        double mu = 6, bits = 0;
        int judged = 0;
        assert_int_equal(gw_sampler_accept(s, 7), GW_OK); /* a prompt moves nothing */
        for (int pos = 0; pos < STEPS; pos++) {
            static char kept[VOCAB_MAX];
            random_logits(V);
            double slack =
                version == 1 ? plain_mirostat1(V, mu, kept) : plain_mirostat2(V, mu, kept);
            int32_t token = pick(s, pos);
            judged += slack > 1e-3;
            assert_true(slack <= 1e-3 || kept[token]);
            for (int i = 0; i < V; i++) { /* of the list before the cut */
                if (order[i] == token) {
                    bits -= log2(prob[i]);
                    mu -= (double)o.mirostat_eta * (-log2(prob[i]) - 3);
                }
            }
            assert_int_equal(gw_sampler_accept(s, token), GW_OK);
        }
        assert_true(judged > STEPS / 2);
        assert_true(fabs(bits / STEPS - 3) < 0.05);
        gw_sampler_free(s);
    }
}

/* ---- dry ------------------------------------------------------------------------------------- */

/* A vocabulary of spellings; breakers may lie across tokens. */
static const char *const spelled[8] = {"a", "b", "ab", "\n", "END", "EN", "D", "x:"};
static void spell(const void *vocab, int32_t id, const char **text, size_t *bytes) {
    *text = ((const char *const *)vocab)[id];
    *bytes = strlen(*text);
}

/* The pull request's loops, with breakers found in the written text. */
static void plain_dry(const int32_t *text, int n, int last_n, int allowed, const char *const *words,
                      int n_words, int *length) {
    static char written[TEXT_MAX * 4];
    int breaks[TEXT_MAX], bytes = 0, from = last_n < 0 || last_n > n ? 0 : n - last_n;
    for (int i = 0; i < n; i++) {
        int before = bytes;
        bytes += sprintf(written + bytes, "%s", spelled[text[i]]);
        breaks[i] = 0;
        for (int w = 0; w < n_words; w++) {
            int size = (int)strlen(words[w]);
            for (int end = before + 1; end <= bytes; end++) {
                breaks[i] |=
                    end >= size && memcmp(written + end - size, words[w], (size_t)size) == 0;
            }
        }
    }
    for (int v = 0; v < 8; v++) {
        length[v] = 0;
    }
    for (int next = from + 1; next < n; next++) {
        int same = 0;
        while (next - 1 - same >= from && !breaks[n - 1 - same] &&
               text[next - 1 - same] == text[n - 1 - same]) {
            same++;
        }
        if (!breaks[next] && same >= allowed && same > length[text[next]]) {
            length[text[next]] = same;
        }
    }
}

static void test_dry(void **state) {
    (void)state;
    static const char *const words[2] = {"\n", "bEND"};
    int penalised = 0, deepest = 0;
    for (int round = 0; round < 400; round++) {
        gw_sampler_options o = plain_options();
        int32_t text[TEXT_MAX];
        int n = 1 + (int)(random_u32() % (round % 20 == 0 ? TEXT_MAX - 1 : 60)), length[8];
        int alphabet = round % 3 == 0 ? 8 : 2, n_words = round % 4 == 0 ? 0 : 2;
        o.dry_multiplier = (float)between(0.1, 2);
        o.dry_base = (float)between(1, 2);
        o.dry_allowed_length = 1 + (int32_t)(random_u32() % 4);
        o.dry_last_n = round % 2 == 0 ? -1 : 1 + (int32_t)(random_u32() % 40);
        o.dry_breakers = words;
        o.n_dry_breakers = (size_t)n_words;
        o.temperature = 0;
        const gw_pieces pieces = {.piece = spell, .vocab = spelled};
        gw_sampler *s = make_spelled(8, o, &pieces);
        for (int i = 0; i < n; i++) {
            text[i] = (int32_t)(random_u32() % (uint32_t)alphabet);
            assert_int_equal(gw_sampler_accept(s, text[i]), GW_OK);
        }
        plain_dry(text, n, o.dry_last_n, o.dry_allowed_length, words, n_words, length);
        random_logits(8);
        gw_candidates c;
        assert_int_equal(gw_sampler_narrow(s, logits, 8, 0, &c), GW_OK);
        assert_int_equal(c.n, 8);
        for (size_t i = 0; i < 8; i++) {
            int32_t v = c.at[i].token;
            double beyond = fmax(0, length[v] - o.dry_allowed_length), loss = 0;
            if (length[v] > 0) {
                loss = fmin(1e30, (double)o.dry_multiplier * pow((double)o.dry_base, beyond));
            }
            double want = (double)logits[v] - loss;
            assert_true(fabs((double)c.at[i].logit - want) <=
                            2e-5 * (1 + beyond) * (1 + fabs(want)) ||
                        loss > 1e28);
            penalised += loss > 0;
            deepest = length[v] > deepest ? length[v] : deepest;
        }
        gw_sampler_free(s);
    }
    assert_true(penalised > 200 && deepest > 8);
}

/* A text of one letter is the worst case of every search for repetitions. */
static void test_dry_is_linear(void **state) {
    (void)state;
    gw_sampler_options o = plain_options();
    o.dry_multiplier = 1;
    gw_sampler *s = make(4, o);
    random_logits(4);
    for (int i = 0; i < 200000; i++) {
        assert_int_equal(gw_sampler_accept(s, 1), GW_OK);
    }
    for (int pos = 0; pos < 50; pos++) {
        assert_int_not_equal(pick(s, pos), 1);
    }
    gw_sampler_free(s);
}

/* ---- fsd ------------------------------------------------------------------------------------- */

/* How often the n tokens at `gram` occur in text. */
static int occurrences(const int32_t *text, int n_text, const int32_t *gram, int n) {
    int found = 0;
    for (int i = 0; i + n <= n_text; i++) {
        found += memcmp(text + i, gram, (size_t)n * sizeof *gram) == 0;
    }
    return found;
}

static double plain_anti(const int32_t *text, int n_text, int32_t token, int n) {
    double left = 1, score = 0;
    for (int size = n; size >= 1 && n_text >= n - 1; size--) {
        int32_t gram[8];
        memcpy(gram, text + n_text - (size - 1), (size_t)(size - 1) * sizeof *gram);
        gram[size - 1] = token;
        double seen = occurrences(text, n_text, gram, size), total = 0;
        if (seen == 0) {
            continue;
        }
        for (int32_t any = 0; any < 12; any++) {
            gram[size - 1] = any;
            total += occurrences(text, n_text, gram, size);
        }
        score += size > 1 ? left * 0.9 * seen / (total + 1) : left * seen / total;
        left *= 0.1;
    }
    return score;
}

static void test_fsd(void **state) {
    (void)state;
    enum { V = 12 };
    int judged = 0, moved = 0;
    for (int round = 0; round < 500; round++) {
        gw_sampler_options o = plain_options();
        int32_t text[TEXT_MAX];
        int n = (int)(random_u32() % (round % 20 == 0 ? TEXT_MAX : 40)), best = 0;
        o.fsd_alpha = (float)between(0.1, 0.9);
        o.fsd_n = 1 + (int32_t)(random_u32() % 5);
        o.fsd_k = 1 + (int32_t)(random_u32() % 8);
        o.top_k = 3; /* what follows finds one candidate */
        gw_sampler *s = make(V, o);
        for (int i = 0; i < n; i++) {
            text[i] = (int32_t)(random_u32() % (round % 2 ? 3 : V));
            assert_int_equal(gw_sampler_accept(s, text[i]), GW_OK);
        }
        random_logits(V);
        for (int i = 0; i < V; i++) {
            logits[i] *= 0.4f;
        }
        sorted(V, order, prob);
        double score[V], slack = 1;
        for (int i = 0; i < o.fsd_k; i++) {
            double q = plain_anti(text, n, order[i], o.fsd_n), alpha = (double)o.fsd_alpha;
            score[i] = (1 - alpha) * prob[i] - alpha * q;
            best = score[i] > score[best] ? i : best;
        }
        for (int i = 0; i < o.fsd_k; i++) {
            slack = i != best ? fmin(slack, score[best] - score[i]) : slack;
        }
        if (slack > 1e-5) {
            assert_int_equal(pick(s, round), order[best]);
            judged++;
            moved += best != 0;
        }
        gw_sampler_free(s);
    }
    assert_true(judged > 450 && moved > 40);
}

/* ---- distributions --------------------------------------------------------------------------- */

enum { SIDES = 8, DRAWS = 20000 };
static const float sides[SIDES] = {0.3f, 2.0f, -1.0f, 0.0f, 1.2f, -2.5f, 0.31f, 1.9f};

static void softmax(const double *x, const char *kept, double share, double *p) {
    double total = 0;
    for (int i = 0; i < SIDES; i++) {
        total += kept[i] ? exp(x[i]) : 0;
    }
    for (int i = 0; i < SIDES; i++) {
        p[i] += kept[i] ? share * exp(x[i]) / total : 0;
    }
}

/* 7 degrees of freedom: 24.3 is passed by chance once in a thousand, and the seeds are fixed. */
static double chi_square(const int *seen, const double *p) {
    double chi = 0;
    for (int i = 0; i < SIDES; i++) {
        double want = DRAWS * p[i];
        chi += p[i] > 0 ? (seen[i] - want) * (seen[i] - want) / want : seen[i] > 0 ? 1e9 : 0;
    }
    return chi;
}

static void draw_all(gw_sampler_options o, int *seen) {
    gw_sampler *s = make(SIDES, o);
    memset(seen, 0, SIDES * sizeof *seen);
    memcpy(logits, sides, sizeof sides);
    for (int pos = 0; pos < DRAWS; pos++) {
        seen[pick(s, pos)]++; /* nothing is accepted: every draw from the same state */
    }
    gw_sampler_free(s);
}

/* Every sampler's draws fit its own distribution and reject those of a mistaken one. */
static void test_distributions(void **state) {
    (void)state;
    const char all[SIDES] = {1, 1, 1, 1, 1, 1, 1, 1};
    /* sides 1, 4 and 7 have a probability over 0.1; 4 the least of them */
    const char xtc[SIDES] = {1, 0, 1, 1, 1, 1, 1, 0}, xtc_all[SIDES] = {1, 0, 1, 1, 0, 1, 1, 0};
    char few[SIDES];
    int seen[SIDES];
    double x[SIDES], right[SIDES], wrong[4][SIDES] = {{0}};
    for (size_t seed = 0; seed < 4; seed++) {
        for (int i = 0; i < SIDES; i++) {
            x[i] = (double)sides[i];
        }
        gw_sampler_options o = plain_options();
        o.seed = seed * 77 + 1;
        o.xtc_probability = 0.4f;
        o.xtc_threshold = 0.1f;
        draw_all(o, seen);
        memset(right, 0, sizeof right);
        memset(wrong, 0, sizeof wrong);
        softmax(x, all, 0.6, right);
        softmax(x, xtc, 0.4, right);
        softmax(x, xtc, 1, wrong[0]); /* no coin */
        softmax(x, all, 0.4, wrong[1]);
        softmax(x, xtc, 0.6, wrong[1]); /* the coin the other way round */
        softmax(x, all, 0.6, wrong[2]);
        softmax(x, xtc_all, 0.4, wrong[2]); /* the least of the top choices goes as well */
        softmax(x, all, 1, wrong[3]);       /* nothing at all */
        assert_true(chi_square(seen, right) > 0.3 && chi_square(seen, right) < 24.3);
        for (int i = 0; i < 4; i++) {
            assert_true(chi_square(seen, wrong[i]) > 100);
        }

        o = plain_options(); /* half of the first tokens are drawn, the others the best */
        o.seed = seed * 77 + 2;
        o.fsd_alpha = 0.5f;
        o.fsd_random = 10;
        draw_all(o, seen);
        memset(right, 0, sizeof right);
        memset(wrong, 0, sizeof wrong);
        softmax(x, all, 0.5, right);
        right[1] += 0.5;
        wrong[0][1] = 1; /* no coin */
        softmax(x, all, 1, wrong[1]);
        softmax(x, all, 0.6, wrong[2]);
        wrong[2][1] += 0.4; /* another coin */
        assert_true(chi_square(seen, right) > 0.3 && chi_square(seen, right) < 24.3);
        for (int i = 0; i < 3; i++) {
            assert_true(chi_square(seen, wrong[i]) > 100);
        }

        o = plain_options(); /* mu = 4 bits at first */
        o.seed = seed * 77 + 3;
        o.mirostat = 2;
        o.mirostat_tau = 2;
        draw_all(o, seen);
        memset(right, 0, sizeof right);
        memset(wrong, 0, sizeof wrong);
        plain_mirostat2(SIDES, 4, few);
        softmax(x, few, 1, right);
        plain_mirostat2(SIDES, 2, few); /* tau for mu */
        softmax(x, few, 1, wrong[0]);
        plain_mirostat2(SIDES, 4 / log(2), few); /* nats for bits */
        softmax(x, few, 1, wrong[1]);
        assert_true(chi_square(seen, right) < 24.3);
        assert_true(chi_square(seen, wrong[0]) > 100 && chi_square(seen, wrong[1]) > 100);

        o = plain_options();
        o.seed = seed * 77 + 4;
        o.dynatemp_range = 0.8f;
        draw_all(o, seen);
        double h = 0, t;
        sorted(SIDES, order, prob);
        for (int i = 0; i < SIDES; i++) {
            h -= prob[i] * log(prob[i]);
        }
        t = 0.2 + 1.6 * h / log(SIDES);
        double cooler[SIDES], warmer[SIDES];
        for (int i = 0; i < SIDES; i++) {
            cooler[i] = x[i] / t;
            warmer[i] = x[i] / (0.2 + 1.6 * h / log(2) / SIDES); /* bits over the count */
        }
        memset(right, 0, sizeof right);
        memset(wrong, 0, sizeof wrong);
        softmax(cooler, all, 1, right);
        softmax(x, all, 1, wrong[0]);
        softmax(warmer, all, 1, wrong[1]);
        assert_true(chi_square(seen, right) > 0.3 && chi_square(seen, right) < 24.3);
        assert_true(chi_square(seen, wrong[0]) > 100 && chi_square(seen, wrong[1]) > 100);
    }
}

/* The coin of the first tokens ends with them, and a prompt is not among them. */
static void test_fsd_random_ends(void **state) {
    (void)state;
    gw_sampler_options o = plain_options();
    o.fsd_alpha = 0.5f;
    o.fsd_random = 3;
    gw_sampler *s = make(SIDES, o);
    memcpy(logits, sides, sizeof sides);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(gw_sampler_accept(s, 5), GW_OK);
    }
    for (int step = 0; step < 6; step++) {
        int varied = 0;
        for (int pos = 0; pos < 200; pos++) {
            varied += pick(s, pos) != 1;
        }
        assert_true(step < 3 ? varied > 20 : varied == 0);
        assert_int_equal(gw_sampler_accept(s, 5), GW_OK);
    }
    gw_sampler_free(s);
}

/* ---- rewinding ------------------------------------------------------------------------------- */

enum { V = 30 };

/* Samplers with a memory, each alone and all at once. */
static gw_sampler_options with_memory(int which) {
    gw_sampler_options o = plain_options();
    o.seed = 99;
    if (which == 0 || which == 5) {
        o.mirostat = 1 + which % 2;
        o.mirostat_tau = 3;
        o.mirostat_eta = 0.7f;
    }
    if (which == 1 || which == 5) {
        o.dry_multiplier = 2;
        o.dry_allowed_length = 1;
    }
    if (which == 2) {
        o.fsd_alpha = 0.6f;
        o.fsd_random = 6;
    }
    if (which == 3 || which == 5) {
        o.repeat_penalty = 1.3f;
        o.frequency_penalty = 0.2f;
        o.repeat_last_n = 9;
    }
    if (which == 4) {
        o.presence_penalty = 1.5f;
        o.repeat_last_n = -1;
    }
    return o;
}

static void logits_of(const int32_t *text, int n) { /* of a text: a rewound one meets them again */
    uint64_t seed = 17;
    for (int i = n > 4 ? n - 4 : 0; i < n; i++) {
        seed = seed * 31 + (uint32_t)text[i];
    }
    random_seed(seed);
    random_logits(V);
}

static void go_on(gw_sampler *s, int32_t *text, int *n, int count) {
    for (int i = 0; i < count; i++) {
        logits_of(text, *n);
        text[*n] = pick(s, *n);
        assert_int_equal(gw_sampler_accept(s, text[*n]), GW_OK);
        ++*n;
    }
}

static void test_rewind(void **state) {
    (void)state;
    for (int which = 0; which < 6; which++) {
        int32_t straight[TEXT_MAX], text[TEXT_MAX];
        const gw_pieces pieces = {
            .piece = spell,
            .vocab = (const char *const[V]){"a", "b", "c", "\n", "e", "f", "g", "h", "i", "j",
                                            "k", "l", "m", "n",  "o", "p", "q", "r", "s", "t",
                                            "u", "v", "w", "x",  "y", "z", "0", "1", "2", "3"}};
        gw_sampler *a = make_spelled(V, with_memory(which), &pieces);
        gw_sampler *b = make_spelled(V, with_memory(which), &pieces);
        int n = 5, m = 5;
        for (int i = 0; i < 5; i++) {
            straight[i] = text[i] = i;
            assert_int_equal(gw_sampler_accept(a, i), GW_OK);
            assert_int_equal(gw_sampler_accept(b, i), GW_OK);
        }
        go_on(a, straight, &n, 300);
        uint32_t dice = 3;
        while (m < n) { /* drafts that are dropped, tokens taken back, all kinds of both */
            dice = dice * 1664525u + 1013904223u;
            int wish = 1 + (int)(dice >> 20) % 20, back = (int)(dice >> 12) % 16;
            logits_of(text, m);
            gw_candidates c;
            for (int i = 0; i < wish % 5; i++) {
                assert_int_equal(gw_sampler_narrow(b, logits, V, m + i, &c), GW_OK);
                gw_sampler_ahead(b, (int32_t)(dice >> 8) % V);
            }
            gw_sampler_back(b);
            go_on(b, text, &m, wish < n - m ? wish : n - m);
            back = m == n ? 0 : back < m - 5 ? back : m - 5;
            assert_int_equal(gw_sampler_rewind(b, (size_t)back), GW_OK);
            m -= back;
        }
        assert_memory_equal(straight, text, (size_t)n * sizeof *text);
        assert_int_equal(gw_sampler_rewind(b, (size_t)n + 1), GW_E_ARGUMENT);
        assert_int_equal(gw_sampler_rewind(b, (size_t)n), GW_OK);
        gw_sampler_free(a);
        gw_sampler_free(b);
    }
}

/* What has left the ring cannot come back, and is refused. */
static void test_rewind_has_an_end(void **state) {
    (void)state;
    gw_sampler *s = make(V, with_memory(3));
    for (int i = 0; i < 3 * GW_HISTORY_BACK; i++) {
        assert_int_equal(gw_sampler_accept(s, i % V), GW_OK);
    }
    assert_int_equal(gw_sampler_rewind(s, 3 * GW_HISTORY_BACK), GW_E_ARGUMENT);
    assert_int_equal(gw_sampler_rewind(s, GW_HISTORY_BACK), GW_OK);
    for (int i = 0; i < GW_HISTORY_BACK / 2; i++) {
        assert_int_equal(gw_sampler_accept(s, i % V), GW_OK);
    }
    assert_int_equal(gw_sampler_rewind(s, 2 * GW_HISTORY_BACK), GW_E_ARGUMENT);
    gw_sampler_free(s);
}

/* ---- options --------------------------------------------------------------------------------- */

static void test_ranges(void **state) {
    (void)state;
    gw_sampler_options o = plain_options();
    float *const reals[] = {&o.dynatemp_range, &o.dynatemp_exponent, &o.top_n_sigma,
                            &o.tfs_z,          &o.xtc_probability,   &o.xtc_threshold,
                            &o.mirostat_tau,   &o.mirostat_eta,      &o.dry_multiplier,
                            &o.dry_base,       &o.fsd_alpha};
    int32_t *const ints[] = {&o.mirostat, &o.dry_allowed_length, &o.dry_last_n, &o.fsd_n,
                             &o.fsd_k,    &o.fsd_random};
    const float bad[] = {NAN, -2, INFINITY};
    for (size_t i = 0; i < 3 * sizeof reals / sizeof reals[0]; i++) {
        float was = *reals[i / 3];
        gw_sampler *s = NULL;
        *reals[i / 3] = bad[i % 3];
        assert_int_equal(gw_sampler_make(10, &o, NULL, &s), GW_E_ARGUMENT);
        assert_null(s);
        *reals[i / 3] = was;
    }
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        int32_t was = *ints[i];
        gw_sampler *s = NULL;
        *ints[i] = -2;
        assert_int_equal(gw_sampler_make(10, &o, NULL, &s), GW_E_ARGUMENT);
        *ints[i] = was;
    }
    static const char *const long_one[1] = {
        "0123456789012345678901234567890123456789012345678901234567890123456789"};
    static const char *const empty[1] = {""};
    const gw_pieces pieces = {.piece = spell, .vocab = spelled};
    gw_sampler *s = NULL;
    o.dry_multiplier = 1;
    o.n_dry_breakers = 1;
    o.dry_breakers = long_one;
    assert_int_equal(gw_sampler_make(8, &o, &pieces, &s), GW_E_ARGUMENT);
    o.dry_breakers = empty;
    assert_int_equal(gw_sampler_make(8, &o, &pieces, &s), GW_E_ARGUMENT);
    assert_int_equal(gw_sampler_make(8, &o, NULL, &s), GW_E_UNSUPPORTED);
}

static void test_order(void **state) {
    (void)state;
    static const struct {
        const char *order;
        int32_t mirostat;
        size_t left; /* of a thousand equal logits */
    } cases[] = {
        {NULL, 0, 10},
        {NULL, 2, 1000},
        {"top_k;mirostat", 2, 10},
        {"typ_p;tfs_z;temp;logit-bias;top-n-sigma;xtc;dry;fsd", 0, 1000},
        {"top-k", 2, 10},
        {"temperature; top-k", 0, 10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_sampler_options o = plain_options();
        gw_candidates c;
        o.order = cases[i].order;
        o.mirostat = cases[i].mirostat;
        o.mirostat_tau = 20;
        o.top_k = 10;
        gw_sampler *s = make(1000, o);
        for (int v = 0; v < 1000; v++) {
            logits[v] = (float)v * 1e-6f;
        }
        assert_int_equal(gw_sampler_narrow(s, logits, 1000, 0, &c), GW_OK);
        assert_int_equal(c.n, cases[i].left);
        gw_sampler_free(s);
    }
    static const char *const wrong[] = {"xtc;xtc", "tfs;tail-free", "dry ", " ", "tfs tfs-z"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gw_sampler_options o = plain_options();
        gw_sampler *s = NULL;
        o.order = wrong[i];
        assert_int_equal(gw_sampler_make(10, &o, NULL, &s), GW_E_ARGUMENT);
    }
}

static void test_no_allocation(void **state) {
    (void)state;
    gw_sampler_options o = with_memory(5);
    o.order = "penalties;dry;top-n-sigma;tail-free;xtc;temperature;mirostat;fsd";
    o.top_n_sigma = 3;
    o.tfs_z = 0.95f;
    o.xtc_probability = 0.5f;
    o.dynatemp_range = 0.5f;
    o.fsd_alpha = 0.4f;
    o.fsd_random = 100;
    const gw_pieces pieces = {.piece = spell, .vocab = spelled};
    gw_sampler *s = make_spelled(8, o, &pieces);
    random_logits(8);
    struct mallinfo2 before = mallinfo2();
    for (int pos = 0; pos < 500; pos++) {
        assert_int_equal(gw_sampler_accept(s, pick(s, pos)), GW_OK);
    }
    assert_int_equal(gw_sampler_rewind(s, 100), GW_OK);
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(after.uordblks, before.uordblks);
    assert_int_equal(after.hblkhd, before.hblkhd);
    gw_sampler_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filters),          cmocka_unit_test(test_dynamic_temperature),
        cmocka_unit_test(test_mirostat_control), cmocka_unit_test(test_dry),
        cmocka_unit_test(test_dry_is_linear),    cmocka_unit_test(test_fsd),
        cmocka_unit_test(test_distributions),    cmocka_unit_test(test_fsd_random_ends),
        cmocka_unit_test(test_rewind),           cmocka_unit_test(test_rewind_has_an_end),
        cmocka_unit_test(test_ranges),           cmocka_unit_test(test_order),
        cmocka_unit_test(test_no_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
