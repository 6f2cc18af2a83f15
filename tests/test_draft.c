/* tests/test_draft.c - speculation piece by piece: rejection sampling against its distribution and
 * against planted mistakes, lookup against brute force, the length policies, vocabularies, the ends
 * of texts and contexts, rewinding, and that nothing is allocated. */
#include "tests/count_alloc.h"
#include "tests/draft_rig.h"

#include <math.h>

#include "core/engine/drafting/draft_accept.h"
#include "core/engine/drafting/draft_lookup.h"
#include "tests/random.h"
#include "tests/sanitized.h"

/* ---- chi-square ------------------------------------------------------------------------------ */

/* P(a chi-square of df degrees exceeds x): the regularised upper gamma function Q(df / 2, x / 2),
 * by its series or its continued fraction. */
static double chi_square_tail(double x, int df) {
    double a = df / 2.0, y = x / 2, front = exp(a * log(y) - y - lgamma(a));
    if (y < a + 1) {
        double term = 1 / a, sum = term;
        for (int n = 1; n < 2000; n++) {
            term *= y / (a + n);
            sum += term;
        }
        return 1 - front * sum;
    }
    double b = y + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int i = 1; i < 2000; i++) {
        double an = -i * (i - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= d * c;
    }
    return front * h;
}

static void test_chi_square_itself(void **state) {
    (void)state;
    assert_true(fabs(chi_square_tail(3.841459, 1) - 0.05) < 1e-6);
    assert_true(fabs(chi_square_tail(9.487729, 4) - 0.05) < 1e-6);
    assert_true(fabs(chi_square_tail(76.153891, 50) - 0.01) < 1e-6);
    assert_true(fabs(chi_square_tail(37.688652, 50) - 0.9) < 1e-6);
}

/* ---- rejection sampling on a small vocabulary -------------------------------------------------
 */

enum { V = 8, K = 3, DRAWS = TEST_SANITIZED ? 30000 : 200000 };

/* Two first-order chains: what follows depends on the token before, as the caches know it. */
typedef struct chains {
    float target[V][V], draft[V][V]; /* logits */
    double q[V][V], p[V][V];
} chains;

static void softmax(const float *logits, double *out) {
    double sum = 0;
    for (int x = 0; x < V; x++) {
        sum += out[x] = exp((double)logits[x]);
    }
    for (int x = 0; x < V; x++) {
        out[x] /= sum;
    }
}

static chains make_chains(void) {
    chains c;
    random_seed(7);
    for (int i = 0; i < V; i++) {
        for (int x = 0; x < V; x++) {
            c.target[i][x] = (float)(3 * uniform());
            c.draft[i][x] = (float)(0.6 * (double)c.target[i][x] + 1.5 * uniform());
        }
        softmax(c.target[i], c.q[i]);
        softmax(c.draft[i], c.p[i]);
    }
    return c;
}

typedef enum mistake { NONE, INVERTED, NO_RESIDUAL, TARGET_CACHE, DRAFT_CACHE } mistake;

/* Two lots of counts. Tokens: what followed each token. First drafts after a full acceptance: kept
 * or not, by the token before. */
typedef struct counts {
    double follows[V][V], kept[V], tried[V];
} counts;

static gw_candidates list_of(const float *logits, gw_candidate *at) {
    gw_candidates c = {.at = at};
    gw_candidates_fill(&c, logits, V);
    gw_draft_weigh(&c, 0);
    return c;
}

/* Streams as the drafter numbers them, a round at a time. */
static uint32_t sequence(uint32_t round, uint32_t which) {
    return 0x80000000u | (round * 4 + which);
}

static void simulate(const chains *c, mistake m, counts *out) {
    gw_candidate at[V];
    int last = 0, before = 0, all_kept = 0;
    memset(out, 0, sizeof *out);
    long drawn = 0;
    for (uint32_t round = 0; drawn < DRAWS; round++) {
        int drafted[K], fed = m == DRAFT_CACHE && all_kept ? before : last, asked = last;
        float p[K][V];
        for (int j = 0; j < K; j++) {
            gw_candidates list = list_of(c->draft[fed], at);
            for (size_t i = 0; i < list.n; i++) {
                p[j][list.at[i].token] = list.at[i].key;
            }
            size_t d = gw_candidates_draw_of(&list, 1, sequence(round, 0), j);
            fed = drafted[j] = list.at[d].token;
        }
        int kept = 1, first = all_kept;
        for (int j = 0; j <= K && kept; j++) {
            int seen = m == TARGET_CACHE && j == K ? before : last;
            gw_candidates list = list_of(c->target[seen], at);
            uint32_t stream = 3;
            int token = -1;
            kept = 0;
            if (j < K) {
                float q = gw_draft_weight(&list, drafted[j]), r = p[j][drafted[j]];
                float u = gw_draft_uniform(1, sequence(round, 1), j);
                kept = m == INVERTED ? gw_draft_keeps(r, q, u) : gw_draft_keeps(q, r, u);
                stream = 2;
                if (kept) {
                    token = drafted[j];
                } else if (m != NO_RESIDUAL) {
                    gw_draft_residual(&list, p[j], drafted[j]);
                }
                if (j == 0 && first) {
                    out->tried[asked]++;
                    out->kept[asked] += kept;
                }
            }
            if (token < 0) {
                size_t d = gw_candidates_draw_of(&list, 1, sequence(round, stream), j);
                token = list.at[d].token;
            }
            out->follows[last][token]++;
            drawn++;
            before = last;
            last = token;
            all_kept = j == K;
        }
    }
}

static double p_of_tokens(const chains *c, const counts *n) {
    double x = 0;
    for (int i = 0; i < V; i++) {
        double sum = 0;
        for (int t = 0; t < V; t++) {
            sum += n->follows[i][t];
        }
        for (int t = 0; t < V; t++) {
            double want = sum * c->q[i][t];
            x += (n->follows[i][t] - want) * (n->follows[i][t] - want) / want;
        }
    }
    return chi_square_tail(x, V * (V - 1));
}

static double p_of_acceptance(const chains *c, const counts *n) {
    double x = 0;
    for (int i = 0; i < V; i++) {
        double chance = 0;
        for (int t = 0; t < V; t++) {
            chance += fmin(c->q[i][t], c->p[i][t]);
        }
        double yes = n->tried[i] * chance, no = n->tried[i] - yes;
        x += (n->kept[i] - yes) * (n->kept[i] - yes) * (1 / yes + 1 / no);
    }
    return chi_square_tail(x, V);
}

static void test_rejection(void **state) {
    (void)state;
    static const char *const names[] = {"as it is", "q / p inverted", "no residual",
                                        "target's cache not completed",
                                        "draft's cache not completed"};
    chains c = make_chains();
    for (mistake m = NONE; m <= DRAFT_CACHE; m++) {
        counts n;
        simulate(&c, m, &n);
        double tokens = p_of_tokens(&c, &n), acceptance = p_of_acceptance(&c, &n);
        print_message("  %-28s p of tokens %.3g, of acceptances %.3g\n", names[m], tokens,
                      acceptance);
        assert_true(m == NONE ? tokens > 0.01 && acceptance > 0.01
                              : tokens < 1e-6 || acceptance < 1e-6);
        assert_true(m == DRAFT_CACHE ? tokens > 0.01 : 1); /* it costs time, never the text */
    }
}

/* Two tokens by the whole drafter, against the target's own distribution of pairs. */
static void test_rejection_of_models(void **state) {
    (void)state;
    enum { TRIALS = TEST_SANITIZED ? 250 : 2500, TOP = 4 };
    const named_sampler row = {
        "top-k 4",
        {.temperature = 1.3f, .top_k = TOP, .top_p = 1, .typical_p = 1, .repeat_penalty = 1},
        0};
    gw_model *m = open_shared("tales-2m-q4_0.gguf"), *draft = open_shared("tales-2m-q2_k.gguf");
    gw_session *s = open_session(m, 128);
    prompt_list prompts;
    read_prompts(m, &prompts);
    const int32_t *ids = prompts.ids[3];
    size_t n = 20;
    gw_sampler *sampler = new_sampler(m, &row, 5);
    /* The distribution: first and second token after the prompt, decode arithmetic. */
    double want[TOP][TOP];
    int32_t first[TOP], second[TOP][TOP];
    ok(gw_session_prefill(s, ids, n - 1));
    gw_candidates c;
    ok(gw_session_decode(s, &ids[n - 1], 1));
    ok(gw_sampler_narrow(sampler, gw_session_logits(s, 0), gw_sampler_vocab(sampler), 0, &c));
    gw_draft_weigh(&c, 0);
    assert_int_equal(c.n, TOP);
    for (int i = 0; i < TOP; i++) {
        first[i] = c.at[i].token;
        for (int j = 0; j < TOP; j++) {
            want[i][j] = (double)c.at[i].key;
        }
    }
    for (int i = 0; i < TOP; i++) {
        ok(gw_session_rewind(s, (int32_t)n));
        ok(gw_session_decode(s, &first[i], 1));
        ok(gw_sampler_narrow(sampler, gw_session_logits(s, 0), gw_sampler_vocab(sampler), 0, &c));
        gw_draft_weigh(&c, 0);
        for (int j = 0; j < TOP; j++) {
            second[i][j] = c.at[j].token;
            want[i][j] *= (double)c.at[j].key;
        }
    }
    gw_drafter_options o = {.model = draft, .accept = GW_ACCEPT_REJECTION, .length = "fixed:2"};
    gw_drafter *d;
    ok(gw_drafter_new(s, &o, &d));
    double got[TOP][TOP] = {{0}};
    for (int trial = -1; trial < TRIALS; trial++) { /* the first one only measures */
        int32_t t[2 + GW_DECODE_MAX];
        size_t have = 0, more;
        ok(gw_drafter_rewind(d, 0));
        ok(gw_session_rewind(s, 0));
        ok(gw_session_prefill(s, ids, n - 1));
        ok(gw_drafter_prompt(d, ids, n));
        while (have < 2) {
            ok(gw_drafter_next(d, sampler, t + have, 3, &more));
            have += more;
        }
        for (int i = 0; i < TOP * TOP && trial >= 0; i++) {
            got[i / TOP][i % TOP] += t[0] == first[i / TOP] && t[1] == second[i / TOP][i % TOP];
        }
    }
    double x = 0, sum = 0;
    for (int i = 0; i < TOP * TOP; i++) {
        double w = TRIALS * want[i / TOP][i % TOP], g = got[i / TOP][i % TOP];
        x += (g - w) * (g - w) / w;
        sum += g;
    }
    gw_draft_stats stats;
    gw_drafter_stats(d, &stats);
    double p = chi_square_tail(x, TOP * TOP - 1);
    print_message("  p %.3g, %.2f of the drafts accepted\n", p,
                  (double)stats.accepted / (double)stats.drafted);
    assert_true(sum == TRIALS); /* nothing outside the filters */
    assert_true(p > 0.01);
    assert_true(stats.accepted > stats.drafted / 4);
    gw_drafter_free(d);
    gw_sampler_free(sampler);
    gw_session_free(s);
    gw_model_free(draft);
    gw_model_free(m);
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static int common(const int32_t *side, size_t i, const int32_t *t, size_t n) {
    int k = 0;
    while (k < GW_LOOKUP_LONG && (size_t)k <= i && (size_t)k < n &&
           side[i - (size_t)k] == t[n - 1 - (size_t)k]) {
        k++;
    }
    return k;
}

/* Longest, then the text before the corpus, then the latest. Returns the length. */
static int brute_find(const int32_t *corpus, size_t n_corpus, const int32_t *t, size_t n,
                      const int32_t **side, size_t *at) {
    int best = GW_LOOKUP_MIN - 1;
    for (size_t i = n; i-- > 1;) {
        int k = i < n && i + 1 < n ? common(t, i, t, n) : 0;
        if (k > best) {
            best = k, *side = t, *at = i;
        }
    }
    for (size_t i = n_corpus > 0 ? n_corpus - 1 : 0; i-- > 0;) {
        int k = common(corpus, i, t, n);
        if (k > best) {
            best = k, *side = corpus, *at = i;
        }
    }
    return best;
}

static void check_find(const gw_lookup *l, const int32_t *corpus, size_t n_corpus, const int32_t *t,
                       size_t n) {
    const int32_t *side = NULL;
    size_t at = 0, most = 6;
    int32_t next[6];
    int length = 0, want = brute_find(corpus, n_corpus, t, n, &side, &at);
    size_t got = gw_lookup_find(l, most, next, &length);
    if (want < GW_LOOKUP_MIN) {
        assert_int_equal(got, 0);
        return;
    }
    size_t end = side == t ? n : n_corpus, follow = end - at - 1;
    assert_int_equal(length, want);
    assert_int_equal(got, side == t || follow > most ? most : follow);
    for (size_t i = 0; i < got; i++) {
        assert_int_equal(next[i], i < follow ? side[at + 1 + i] : next[i - follow]);
    }
}

static void test_lookup(void **state) {
    (void)state;
    enum { TEXT = 300, CORPUS = 200 };
    for (int letters = 1; letters <= 40; letters += letters < 4 ? 1 : 9) {
        int32_t corpus[CORPUS], t[TEXT];
        random_seed((uint64_t)letters);
        for (int i = 0; i < CORPUS; i++) {
            corpus[i] = (int32_t)(random_u32() % (uint32_t)letters);
        }
        for (int i = 0; i < TEXT; i++) {
            t[i] = (int32_t)(random_u32() % (uint32_t)letters);
        }
        for (size_t n_corpus = 0; n_corpus <= CORPUS; n_corpus += CORPUS) {
            gw_lookup *l;
            ok(gw_lookup_new(corpus, n_corpus, TEXT, &l));
            for (size_t n = 0; n < TEXT; n++) {
                gw_lookup_append(l, &t[n], 1);
                check_find(l, corpus, n_corpus, t, n + 1);
            }
            gw_lookup_forget(l, 100); /* and the chains are as they were */
            check_find(l, corpus, n_corpus, t, 100);
            gw_lookup_append(l, t + 150, 50);
            int32_t joined[150];
            memcpy(joined, t, 100 * sizeof *t);
            memcpy(joined + 100, t + 150, 50 * sizeof *t);
            check_find(l, corpus, n_corpus, joined, 150);
            gw_lookup_append(l, t, TEXT); /* more than fits is ignored */
            gw_lookup_free(l);
        }
    }
}

/* ---- lengths --------------------------------------------------------------------------------- */

static void test_parse(void **state) {
    (void)state;
    gw_length l = {.k = 99};
    static const char *const wrong[] = {"",        "fixed",    "fixed:",   "fixed:0", "fixed:16",
                                        "fixed:x", "fixed:3x", "fixed:-1", "Cost",    "heuristics"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(gw_length_parse(wrong[i], &l), GW_E_ARGUMENT);
        assert_int_equal(l.k, 99);
    }
    ok(gw_length_parse("fixed:15", &l));
    assert_int_equal(l.k, 15);
    ok(gw_length_parse(NULL, &l));
    assert_int_equal(l.mode, GW_LENGTH_COST);
}

typedef struct sequence_check {
    int k, passes, grew, shrank, most;
} sequence_check;

/* k: what the rule says for the next pass; a pass has no room for more than 15. */
static void watch_rule(void *user, int drafted, int accepted) {
    sequence_check *c = user;
    if (drafted == 0) {
        assert_int_equal(c->passes, 0); /* only the first pass has no drafts */
        return;
    }
    assert_int_equal(drafted, c->k);
    c->grew += accepted == drafted;
    c->shrank += accepted < drafted;
    c->k = accepted == drafted ? c->k + 2 : c->k > 1 ? c->k - 1 : 1;
    c->k = c->k < GW_DRAFT_MAX ? c->k : GW_DRAFT_MAX;
    c->most = c->k > c->most ? c->k : c->most;
    c->passes++;
}

/* The rule over several texts by one drafter: the length is kept from text to text. */
static void test_heuristic(void **state) {
    (void)state;
    gw_model *m = open_shared("tales-2m-q8_0.gguf"), *draft = open_shared("tales-2m-q6_k.gguf");
    gw_session *s = open_session(m, 256);
    gw_drafter *d = new_drafter(s, draft, 0, "heuristic");
    prompt_list prompts;
    read_prompts(m, &prompts);
    sequence_check c = {.k = 5};
    gw_drafter_watch(d, watch_rule, &c);
    for (size_t i = 0; i < 6; i++) {
        text out;
        /* As many tokens as a call may give: the end of a text then cuts no draft short. */
        gw_sampler *sampler = new_sampler(m, &sampler_table[i % 3], i);
        start(s, sampler, prompts.ids[i], prompts.n[i]);
        ok(gw_drafter_rewind(d, 0));
        ok(gw_drafter_prompt(d, prompts.ids[i], prompts.n[i]));
        for (int call = 0; call < 10; call++) {
            ok(gw_drafter_next(d, sampler, out.ids, GW_DECODE_MAX, &out.n));
        }
        gw_sampler_free(sampler);
    }
    print_message("  %d passes, %d times longer, %d times shorter, up to %d\n", c.passes, c.grew,
                  c.shrank, c.most);
    assert_true(c.passes > 40 && c.grew > 3 && c.shrank > 3 && c.most > 5);
    gw_drafter_free(d);
    gw_session_free(s);
    gw_model_free(draft);
    gw_model_free(m);
}

/* A machine and a draft with known times and chances. */
typedef struct world {
    const char *name;
    double row, step; /* seconds of another row, of a draft step; a single step takes 1 */
    double chance;
    double noise; /* share of passes that take five times as long */
    int unsteady; /* cold at first, and slower and faster by turns */
    double jump;  /* what a pass of several rows takes beside them */
    double reads; /* seconds for a token that the draft has missed; 0: it misses none */
    double block; /* seconds of all drafts of a pass together; 0: they come one by one */
} world;

static double width_time(const world *w, int width) {
    return 1 + (width > 1 ? w->jump : 0) + w->row * (width - 1);
}

static double best_rate(const world *w, int *best) {
    double top = 1;
    *best = 0;
    for (int k = 1; k <= GW_DRAFT_MAX; k++) {
        double tokens = (1 - pow(w->chance, k + 1)) / (1 - w->chance);
        double rate = tokens / (w->block + k * w->step + width_time(w, k + 1));
        if (rate > top) {
            top = rate;
            *best = k;
        }
    }
    return top;
}

static double noisy(const world *w, double seconds, long pass) {
    if (w->unsteady) {
        double cold = 0.7 * exp(-(double)pass / 4), drift = 0.1 * sin((double)pass / 13);
        seconds *= (1 + cold + drift) * (uniform() < 0.1 ? 1.3 : 1);
    }
    return uniform() < w->noise ? 5 * seconds : seconds * (0.97 + 0.06 * uniform());
}

/* Tokens per second of the policy in that world; *mean: its usual length. noise hits both alike, so
 * that seconds are counted without it. */
static double policy_rate(const world *w, long tokens, double *mean) {
    gw_length l;
    gw_draft_record r = {.step = {w->step, 2, 0}, .whole = w->block > 0};
    ok(gw_length_parse("cost", &l));
    double seconds = 0, drafted = 0, passes = 0;
    int behind = w->reads > 0 || w->block > 0;
    for (long n = 0; n < tokens;) {
        float trust[GW_DRAFT_MAX];
        gw_length_plan plan = gw_length_choose(&l, &r, GW_DRAFT_MAX, behind, -1);
        int k = 0, kept = 0;
        while (gw_length_goes_on(&l, &r, &plan, trust, k)) {
            trust[k++] = w->reads > 0 || w->block > 0 ? -1 : (float)w->chance;
        }
        while (kept < k && uniform() < w->chance) {
            kept++;
        }
        int reads = k > 0 && behind > 0; /* and has the first draft then */
        double catch_up = reads ? w->step + w->block + w->reads * (behind - 1) : 0,
               draft = (k - reads) * w->step;
        seconds += catch_up + draft + width_time(w, k + 1);
        gw_length_pass pass = {.drafted = k,
                               .accepted = kept,
                               .tokens = kept + 1,
                               .trust = trust,
                               .behind = reads ? behind : 0,
                               .catch_up = noisy(w, catch_up, (long)passes),
                               .draft = noisy(w, draft, (long)passes),
                               .verify = noisy(w, width_time(w, k + 1), (long)passes),
                               .pick = 1e-4 * (kept + 1)};
        gw_length_learn(&l, &r, &pass);
        behind = w->block > 0 ? 1 : w->reads <= 0 ? 0 : k == 0 ? behind + 1 : kept == k ? 2 : 1;
        n += kept + 1;
        drafted += k;
        passes++;
    }
    *mean = drafted / passes;
    return (double)tokens / seconds;
}

static void test_cost(void **state) {
    (void)state;
    static const world worlds[] = {
        {"cheap draft, good", 0.05, 0.05, 0.8, 0, 0, 0, 0, 0},
        {"cheap draft, fair", 0.05, 0.1, 0.6, 0, 0, 0, 0, 0},
        {"dear rows", 0.4, 0.1, 0.7, 0, 0, 0, 0, 0},
        {"draft too dear", 0.05, 0.6, 0.5, 0, 0, 0, 0, 0},
        {"draft as dear as the target", 0.1, 1, 0.9, 0, 0, 0, 0, 0},
        {"useless draft", 0.05, 0.1, 0, 0, 0, 0, 0, 0},
        {"rows as dear as passes", 1, 0.05, 0.8, 0, 0, 0, 0, 0},
        {"useless lookup", 0.2, 0, 0.02, 0, 0, 0, 0, 0},
        {"good, interrupted", 0.05, 0.05, 0.8, 0.05, 0, 0, 0, 0},
        {"useless, interrupted", 0.1, 0.1, 0, 0.05, 0, 0, 0, 0},
        {"nearly pays, unsteady", 0.2, 0.2, 0.4, 0, 1, 0, 0, 0},
        {"just pays, unsteady", 0.2, 0.2, 0.6, 0, 1, 0, 0, 0},
        {"useless, unsteady", 0.1, 0.1, 0, 0, 1, 0, 0, 0},
        {"good, unsteady", 0.05, 0.05, 0.8, 0, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        int k;
        double best = best_rate(&worlds[i], &k), mean;
        random_seed(3);
        double early = policy_rate(&worlds[i], 128, &mean);
        double rate = policy_rate(&worlds[i], 4000, &mean);
        print_message("  %-28s best %.2fx at %2d, policy %.2fx at %.1f; of 128 tokens %.2fx\n",
                      worlds[i].name, best, k, rate, mean, early);
        assert_true(rate >= 0.985 && early >= 0.97);
        assert_true(rate >= 0.9 * best);
    }
}

/* The first rows of a pass cost most and a draft a third of a step, as a 1.1b for a 7b on an H200:
 * only several drafts pay, and what the draft has missed costs more than later probes may. Which
 * texts have drafts is chance, so that the mean of many counts. */
static void test_cost_with_a_jump(void **state) {
    enum { TEXTS = 200 };
    static const world good = {"", 0.04, 0.37, 0.8, 0, 0, 0.2, 0.007, 0};
    static const world useless = {"", 0.04, 0.37, 0.05, 0, 0, 0.2, 0.007, 0};
    int k;
    double best = best_rate(&good, &k), rate = 0, worst = 0, mean;
    (void)state;
    random_seed(5);
    for (int i = 0; i < TEXTS; i++) {
        rate += policy_rate(&good, 256, &mean) / TEXTS;
        worst += policy_rate(&useless, 256, &mean) / TEXTS;
    }
    print_message("  best %.3fx at %d, of 256 tokens %.3fx, useless %.3fx\n", best, k, rate, worst);
    assert_true(rate >= 1.08 && worst >= 0.985);
}

/* All drafts of a pass cost more than a single step, as a block of 16 for an 8b on an H200. */
static void test_cost_of_blocks(void **state) {
    enum { TEXTS = 200 };
    static const world good = {"", 0.1, 0, 0.86, 0, 0, 0.1, 0, 1.3};
    static const world fair = {"", 0.1, 0, 0.7, 0, 0, 0.1, 0, 1.3};
    static const world useless = {"", 0.1, 0, 0.05, 0, 0, 0.1, 0, 1.3};
    int k;
    double best = best_rate(&good, &k), rate = 0, small = 0, worst = 0, mean;
    (void)state;
    random_seed(7);
    for (int i = 0; i < TEXTS; i++) {
        rate += policy_rate(&good, 256, &mean) / TEXTS;
        small += policy_rate(&fair, 256, &mean) / TEXTS;
        worst += policy_rate(&useless, 256, &mean) / TEXTS;
    }
    print_message("  best %.3fx at %d, of 256 tokens %.3fx, fair %.3fx, useless %.3fx\n", best, k,
                  rate, small, worst);
    assert_true(rate >= 0.82 * best && small >= 0.97 && worst >= 0.97);
}

/* A draft that stops being good, and one that becomes good again. */
static void test_cost_follows(void **state) {
    (void)state;
    gw_length l;
    gw_draft_record r = {.step = {0.1, 2, 0}};
    ok(gw_length_parse(NULL, &l));
    world w = {"changing", 0.05, 0.1, 0, 0, 0, 0, 0, 0};
    double part[3] = {0};
    random_seed(9);
    for (int phase = 0; phase < 3; phase++) {
        w.chance = phase == 1 ? 0 : 0.8;
        double seconds = 0;
        long tokens = 0;
        while (tokens < 3000) {
            float trust[GW_DRAFT_MAX];
            gw_length_plan plan = gw_length_choose(&l, &r, GW_DRAFT_MAX, 0, -1);
            int k = 0, kept = 0;
            while (gw_length_goes_on(&l, &r, &plan, trust, k)) {
                trust[k++] = 0.5f;
            }
            while (kept < k && uniform() < w.chance) {
                kept++;
            }
            double draft = k * w.step, verify = width_time(&w, k + 1);
            gw_length_pass pass = {.drafted = k,
                                   .accepted = kept,
                                   .tokens = kept + 1,
                                   .trust = trust,
                                   .draft = draft,
                                   .verify = verify};
            gw_length_learn(&l, &r, &pass);
            seconds += draft + verify;
            tokens += kept + 1;
        }
        part[phase] = (double)tokens / seconds;
    }
    print_message("  good %.2fx, useless %.2fx, good again %.2fx\n", part[0], part[1], part[2]);
    assert_true(part[0] > 2 && part[1] > 0.97 && part[2] > 1.7);
}

/* ---- vocabularies ------------------------------------------------------------------------------
 */

static void test_vocab(void **state) {
    (void)state;
    gw_model *m = open_shared("tales-2m-q2_k.gguf"), *folder = open_shared("tales-2m");
    ok(gw_draft_same_vocab(m, m));
    ok(gw_draft_same_vocab(m, folder));
    gw_model_options o = {.path = shared_path("vocab/ggml-vocab-llama-spm.gguf"), .vocab_only = 1};
    gw_model *other = NULL;
    ok(gw_model_open(&o, &other));
    assert_int_equal(gw_draft_same_vocab(m, other), GW_E_UNSUPPORTED);
    assert_non_null(strstr(gw_error_text(), "it has 32000 tokens, the target 4096"));
    gw_model_free(other);

    gw_file file;
    const char *path = shared_path("models/tales-2m-q2_k.gguf");
    ok(gw_file_open(path, path, &file));
    char *image = malloc(file.size);
    assert_non_null(image);
    memcpy(image, file.data, file.size);
    char *word = memmem(image, file.size, "\xe2\x96\x81king", 7); /* the token's text */
    assert_non_null(word);
    word[3] = 'k', word[4] = 'o';
    o = (gw_model_options){.memory = image, .memory_bytes = file.size, .threads = 1};
    ok(gw_model_open(&o, &other));
    assert_int_equal(gw_draft_same_vocab(m, other), GW_E_UNSUPPORTED);
    assert_non_null(strstr(gw_error_text(), "kong"));
    assert_non_null(strstr(gw_error_text(), "king"));
    gw_session *s = open_session(m, 64);
    gw_drafter_options options = {.model = other};
    gw_drafter *d = NULL;
    assert_int_equal(gw_drafter_new(s, &options, &d), GW_E_UNSUPPORTED);
    assert_null(d);
    gw_session_free(s);
    gw_model_free(other);
    gw_file_close(&file);
    free(image);
    gw_model_free(folder);
    gw_model_free(m);
}

/* ---- the ends of things ------------------------------------------------------------------------
 */

static void test_arguments(void **state) {
    (void)state;
    gw_model *m = open_shared("tales-2m-q4_0.gguf");
    gw_session *s = open_session(m, 64);
    gw_drafter *d = NULL;
    const gw_drafter_options wrong[] = {
        {0},
        {.lookup = 1, .length = "fixed:99"},
        {.lookup = 1, .assume = 1.5},
        {.lookup = 1, .assume = NAN},
        {.lookup = 1, .accept = (gw_accept)7},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(gw_drafter_new(s, &wrong[i], &d), GW_E_ARGUMENT);
        assert_null(d);
    }
    d = new_drafter(s, NULL, 1, NULL);
    gw_sampler *sampler = new_sampler(m, &sampler_table[0], 0);
    int32_t t[4], ids[3] = {1, 300, 301}, bad = 4096;
    size_t n = 77;
    assert_int_equal(gw_drafter_next(d, sampler, t, 4, &n), GW_E_ARGUMENT); /* no text */
    ok(gw_drafter_prompt(d, ids, 3));
    assert_int_equal(gw_drafter_next(d, sampler, t, 4, &n), GW_E_ARGUMENT); /* not in the session */
    assert_int_equal(gw_drafter_prompt(d, &bad, 1), GW_E_ARGUMENT);
    assert_int_equal(gw_drafter_rewind(d, 4), GW_E_ARGUMENT);
    ok(gw_session_prefill(s, ids, 3));
    assert_int_equal(gw_drafter_next(d, sampler, t, 0, &n), GW_E_ARGUMENT);
    assert_int_equal(n, 77);
    ok(gw_drafter_next(d, sampler, t, 4, &n));
    gw_drafter_free(d);
    gw_sampler_free(sampler);

    gw_drafter_options pool = {.lookup = 1, .accept = GW_ACCEPT_POOL};
    ok(gw_drafter_new(s, &pool, &d));
    sampler = new_sampler(m, &sampler_table[2], 0);
    ok(gw_drafter_prompt(d, ids, 3));
    assert_int_equal(gw_drafter_next(d, sampler, t, 4, &n), GW_E_ARGUMENT);
    assert_non_null(strstr(gw_error_text(), "pool"));
    gw_drafter_free(d);
    gw_sampler_free(sampler);
    gw_session_free(s);
    gw_model_free(m);
}

/* A context that fills up gives the same last tokens, then GW_E_CONTEXT and nothing else changes.
 */
static void test_full_context(void **state) {
    (void)state;
    gw_model *m = open_shared("tales-2m-q4_0.gguf"), *draft = open_shared("tales-2m-q8_0.gguf");
    gw_session *s = open_session(m, 48);
    prompt_list prompts;
    read_prompts(m, &prompts);
    for (int lookup = 0; lookup < 2; lookup++) {
        text want, got = {.n = 0};
        plain_text(m, s, &sampler_table[0], 1, prompts.ids[0], 16, 33, &want);
        assert_int_equal(want.n, 33); /* 48 in the session and one that is not */
        gw_drafter *d = new_drafter(s, lookup ? NULL : draft, lookup, "fixed:7");
        gw_sampler *sampler = new_sampler(m, &sampler_table[0], 1);
        start(s, sampler, prompts.ids[0], 16);
        ok(gw_drafter_prompt(d, prompts.ids[0], 16));
        gw_status status = GW_OK;
        while (status == GW_OK) {
            size_t n = 0;
            status = gw_drafter_next(d, sampler, got.ids + got.n, GW_DECODE_MAX, &n);
            got.n += n;
            assert_true(got.n <= 33);
        }
        assert_int_equal(status, GW_E_CONTEXT);
        assert_int_equal(got.n, 33);
        assert_memory_equal(want.ids, got.ids, 33 * sizeof *got.ids);
        assert_int_equal(gw_session_pos(s), 48);
        gw_drafter_free(d);
        gw_sampler_free(sampler);
    }
    gw_session_free(s);
    gw_model_free(draft);
    gw_model_free(m);
}

/* An end token is the last of its call and is not told to the sampler: a text with a bias that
 * makes ends likely goes as without speculation, penalties and all. */
static void test_end(void **state) {
    (void)state;
    gw_model *m = open_shared("tales-2m-q8_0.gguf"), *draft = open_shared("tales-2m-q8_0.gguf");
    gw_session *s = open_session(m, 256);
    gw_drafter *d = new_drafter(s, draft, 0, "fixed:9");
    prompt_list prompts;
    read_prompts(m, &prompts);
    gw_logit_bias bias = {.token = gw_token_eos(m), .bias = 9};
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o.bias = &bias;
    o.n_bias = 1;
    int ends = 0, inside = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        gw_sampler *a, *b;
        o.seed = seed;
        o.frequency_penalty = 0.2f;
        ok(gw_sampler_new(m, &o, &a));
        ok(gw_sampler_new(m, &o, &b));
        int32_t want[40], got[40 + GW_DECODE_MAX];
        size_t n = 0, have = 0;
        start(s, a, prompts.ids[seed], 20);
        for (int end = 0; n < 40 && !end;) {
            ok(gw_sampler_pick(a, gw_session_logits(s, 0), gw_session_pos(s), &want[n]));
            end = gw_token_is_end(m, want[n++]);
            if (!end) {
                ok(gw_sampler_accept(a, want[n - 1]));
                ok(gw_session_decode(s, &want[n - 1], 1));
            }
        }
        start(s, b, prompts.ids[seed], 20);
        ok(gw_drafter_rewind(d, 0));
        ok(gw_drafter_prompt(d, prompts.ids[seed], 20));
        while (have < n) {
            size_t more;
            ok(gw_drafter_next(d, b, got + have, GW_DECODE_MAX, &more));
            for (size_t i = 0; i + 1 < more; i++) {
                assert_false(gw_token_is_end(m, got[have + i]));
            }
            have += more;
            int end = gw_token_is_end(m, got[have - 1]);
            ends += end;
            inside += end && more > 1;
        }
        assert_memory_equal(want, got, n * sizeof *want);
        gw_sampler_free(a);
        gw_sampler_free(b);
    }
    print_message("  %d texts ended, %d of them inside a draft\n", ends, inside);
    assert_true(ends > 10 && inside > 3);
    gw_drafter_free(d);
    gw_session_free(s);
    gw_model_free(draft);
    gw_model_free(m);
}

/* past_end: an end token is a token like others, within a draft too. */
static void test_past_end(void **state) {
    (void)state;
    enum { N = 60 };
    gw_model *m = open_shared("tales-2m-q8_0.gguf");
    gw_session *s = open_session(m, 256);
    gw_drafter_options options = {.model = m, .length = "fixed:5", .past_end = 1};
    gw_drafter *d;
    ok(gw_drafter_new(s, &options, &d));
    prompt_list prompts;
    read_prompts(m, &prompts);
    gw_logit_bias bias = {.token = gw_token_eos(m), .bias = 9};
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o.bias = &bias;
    o.n_bias = 1;
    o.seed = 5;
    gw_sampler *a, *b;
    ok(gw_sampler_new(m, &o, &a));
    ok(gw_sampler_new(m, &o, &b));
    int32_t want[N], got[N + GW_DECODE_MAX];
    int ends = 0, inside = 0;
    start(s, a, prompts.ids[0], 20);
    for (int n = 0; n < N; n++) {
        ok(gw_sampler_pick(a, gw_session_logits(s, 0), gw_session_pos(s), &want[n]));
        ok(gw_sampler_accept(a, want[n]));
        ok(gw_session_decode(s, &want[n], 1));
    }
    start(s, b, prompts.ids[0], 20);
    ok(gw_drafter_prompt(d, prompts.ids[0], 20));
    for (size_t n = 0, more; n < N; n += more) {
        ok(gw_drafter_next(d, b, got + n, GW_DECODE_MAX, &more));
        for (size_t i = 0; i < more; i++) {
            ends += gw_token_is_end(m, got[n + i]);
            inside += gw_token_is_end(m, got[n + i]) && i + 1 < more;
        }
    }
    assert_memory_equal(want, got, sizeof want);
    assert_true(ends > 2 && inside > 0);
    gw_sampler_free(a);
    gw_sampler_free(b);
    gw_drafter_free(d);
    gw_session_free(s);
    gw_model_free(m);
}

/* Rewound in the middle and told another text, the drafter goes on as a fresh one would. */
static void test_rewind(void **state) {
    (void)state;
    gw_model *m = open_shared("tales-2m-q4_0.gguf"), *draft = open_shared("tales-2m-q8_0.gguf");
    gw_session *s = open_session(m, 256);
    prompt_list prompts;
    read_prompts(m, &prompts);
    for (int lookup = 0; lookup < 2; lookup++) {
        gw_drafter *d = new_drafter(s, draft, lookup, "fixed:5");
        gw_sampler *sampler = new_sampler(m, &sampler_table[1], 3);
        text want, got = {.n = 0};
        int32_t longer[24];
        memcpy(longer, prompts.ids[1], 16 * sizeof *longer);
        memcpy(longer + 16, prompts.ids[2] + 1, 8 * sizeof *longer);
        plain_text(m, s, &sampler_table[1], 3, longer, 24, 24, &want);
        start(s, sampler, prompts.ids[1], 16);
        ok(gw_drafter_prompt(d, prompts.ids[1], 16));
        for (int i = 0; i < 4; i++) {
            ok(gw_drafter_next(d, sampler, got.ids, GW_DECODE_MAX, &got.n));
        }
        ok(gw_session_rewind(s, 16));
        ok(gw_drafter_rewind(d, 16));
        ok(gw_session_prefill(s, longer + 16, 8));
        ok(gw_drafter_prompt(d, longer + 16, 8));
        for (got.n = 0; got.n < 24;) {
            size_t n;
            ok(gw_drafter_next(d, sampler, got.ids + got.n, 24 - got.n, &n));
            got.n += n;
        }
        assert_memory_equal(want.ids, got.ids, 24 * sizeof *got.ids);
        gw_drafter_free(d);
        gw_sampler_free(sampler);
    }
    gw_session_free(s);
    gw_model_free(draft);
    gw_model_free(m);
}

static void test_assumed(void **state) {
    (void)state;
    gw_model *m = open_shared("tales-2m-q4_0.gguf"), *draft = open_shared("tales-2m-q2_k.gguf");
    gw_session *s = open_session(m, 1024);
    gw_drafter_options o = {.model = draft, .length = "fixed:4", .assume = 0.8};
    gw_drafter *d;
    ok(gw_drafter_new(s, &o, &d));
    gw_sampler *sampler = new_sampler(m, &sampler_table[2], 3);
    int32_t ids[3] = {1, 300, 301}, t[GW_DECODE_MAX];
    ok(gw_session_prefill(s, ids, 3));
    ok(gw_drafter_prompt(d, ids, 3));
    size_t n;
    for (int i = 0; i < 200; i++) {
        ok(gw_drafter_next(d, sampler, t, GW_DECODE_MAX, &n));
        if (gw_session_pos(s) > 1000) {
            break;
        }
    }
    gw_draft_stats stats;
    gw_drafter_stats(d, &stats);
    double rate = 0, tried = 0;
    for (int j = 0; j < 4; j++) {
        rate += (double)stats.accepted_at[j];
        tried += (double)stats.tried_at[j];
    }
    print_message("  %.3f of %.0f drafts accepted where 0.8 is assumed\n", rate / tried, tried);
    assert_true(fabs(rate / tried - 0.8) < 4 * sqrt(0.16 / tried));
    gw_drafter_free(d);
    gw_sampler_free(sampler);
    gw_session_free(s);
    gw_model_free(draft);
    gw_model_free(m);
}

/* ---- nothing is allocated ----------------------------------------------------------------------
 */

static void test_no_allocation(void **state) {
    (void)state;
    if (!COUNTS_ALLOCATIONS) {
        print_message("SKIP: allocations cannot be counted in this build\n");
        skip();
    }
    gw_model *m = open_shared("tales-2m-q4_0.gguf"), *draft = open_shared("tales-2m-q8_0.gguf");
    gw_session *s = open_session(m, 256);
    prompt_list prompts;
    read_prompts(m, &prompts);
    for (int i = 0; i < 6; i++) {
        gw_drafter_options o = {.model = draft,
                                .lookup = 1,
                                .corpus = prompts.ids[5],
                                .n_corpus = prompts.n[5],
                                .accept = (gw_accept)(i % 3),
                                .length = i < 3 ? NULL : "fixed:6"};
        gw_drafter *d;
        ok(gw_drafter_new(s, &o, &d));
        gw_sampler *sampler = new_sampler(m, &sampler_table[i % 2 ? 3 : 0], 4);
        start(s, sampler, prompts.ids[0], prompts.n[0]);
        size_t before = atomic_load(&allocations), n;
        ok(gw_drafter_prompt(d, prompts.ids[0], prompts.n[0]));
        for (int pass = 0; pass < 10; pass++) {
            int32_t t[GW_DECODE_MAX];
            ok(gw_drafter_next(d, sampler, t, GW_DECODE_MAX, &n));
        }
        ok(gw_drafter_rewind(d, 3));
        size_t after = atomic_load(&allocations);
        assert_int_equal(after, before);
        gw_drafter_free(d);
        gw_sampler_free(sampler);
    }
    size_t before = atomic_load(&allocations);
    void *volatile kept = malloc(1); /* the counter counts */
    free(kept);
    assert_true(atomic_load(&allocations) > before);
    gw_session_free(s);
    gw_model_free(draft);
    gw_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chi_square_itself),
        cmocka_unit_test(test_rejection),
        cmocka_unit_test(test_rejection_of_models),
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_heuristic),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_cost_with_a_jump), cmocka_unit_test(test_cost_of_blocks),
        cmocka_unit_test(test_cost_follows),
        cmocka_unit_test(test_vocab),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_past_end),
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_assumed),
        cmocka_unit_test(test_no_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
