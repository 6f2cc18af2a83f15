/* tests/test_draft_suffix.c - drafts by votes of earlier copies: against a search that looks at
 * everything, and texts with them are those without. */
#include "tests/draft_rig.h"
#include "tests/random.h"

#include "core/engine/drafting/draft_lookup.h"

enum { LETTERS = 40, TEXT = 260, CORPUS = 120, MOST = 9 };

/* A text, or an earlier one; the last copies of it count first. */
typedef struct side {
    const int32_t *t;
    size_t n;
    int own;
} side;

typedef struct place {
    const side *of;
    size_t at; /* of the last token that is alike */
    int shared;
} place;

static int common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    int n = 0;
    while (n < GW_LOOKUP_LONG && (size_t)n < n_a && (size_t)n < n_b &&
           a[n_a - 1 - (size_t)n] == b[n_b - 1 - (size_t)n]) {
        n++;
    }
    return n;
}

static int32_t token_of(const place *p, size_t k, const int32_t *next) {
    size_t i = p->at + 1 + k;
    return i < p->of->n ? p->of->t[i] : p->of->own ? next[i - p->of->n] : -1;
}

static float elect_all(const place *places, size_t n, int least, int32_t *next, size_t *made) {
    int stays[2000];
    float whole = 1, sum = 0; /* bounds are met exactly */
    for (size_t i = 0; i < n; i++) {
        stays[i] = places[i].shared >= least;
    }
    for (*made = 0; *made < MOST; ++*made) {
        int count[LETTERS] = {0}, best = 0, some = 0;
        int32_t token = -1;
        for (size_t i = 0; i < n; i++) {
            int32_t t = stays[i] ? token_of(&places[i], *made, next) : -1;
            some += stays[i];
            if (t >= 0 && ++count[t] > best) {
                best = count[t];
                token = t;
            }
        }
        float longer = (float)least + (float)*made;
        whole *= some > 0 ? (float)best / (float)some * (longer / (longer + 2)) : 0;
        if (whole < 0.1f) {
            break;
        }
        for (size_t i = 0; i < n; i++) {
            stays[i] = stays[i] && token_of(&places[i], *made, next) == token;
        }
        next[*made] = token;
        sum += whole;
    }
    return sum;
}

static void check_vote(const gw_lookup *l, const gw_lookup *pool, const side *sides, int n_sides) {
    static place places[2000];
    int32_t next[MOST], best_next[MOST], got[MOST];
    float trust[MOST];
    size_t n = 0, made, best_n = 0;
    int longest = 0;
    float best = 0;
    for (int s = 0; s < n_sides; s++) { /* the text itself is the first */
        for (size_t i = sides[s].n - 1; i-- > 0 && n < 2000;) {
            int same = common(sides[s].t, i + 1, sides->t, sides->n);
            if (same >= GW_LOOKUP_MIN) {
                places[n++] = (place){&sides[s], i, same};
                longest = same > longest ? same : longest;
            }
        }
    }
    for (int least = longest; least >= GW_LOOKUP_MIN; least /= 2) {
        float sum = elect_all(places, n, least, next, &made);
        if (sum > best) {
            best = sum;
            best_n = made;
            memcpy(best_next, next, sizeof next);
        }
    }
    size_t found = gw_lookup_vote(l, pool, MOST, got, trust);
    assert_int_equal(found, best_n);
    for (size_t i = 0; i < found; i++) {
        assert_int_equal(got[i], best_next[i]);
        assert_true(trust[i] > 0 && trust[i] < 1);
    }
}

static void draw(int32_t *t, size_t n, uint32_t letters) {
    for (size_t i = 0; i < n; i++) { /* it repeats itself, with mistakes */
        t[i] = i > 20 && random_u32() % 8 > 0 ? t[i - 17] : (int32_t)(random_u32() % letters);
    }
}

static void votes(void **state) {
    (void)state;
    static int32_t corpus[CORPUS], t[TEXT], other[3][TEXT / 4];
    for (uint32_t letters = 2; letters <= LETTERS; letters += 6) {
        gw_lookup *l, *pool;
        random_seed(letters);
        draw(corpus, CORPUS, letters);
        draw(t, TEXT, letters);
        ok(gw_lookup_new(corpus, CORPUS, TEXT, &l));
        ok(gw_lookup_new(NULL, 0, TEXT, &pool));
        side sides[5] = {{t, 0, 1}, {corpus, CORPUS, 0}};
        for (int i = 0; i < 3; i++) {
            draw(other[i], TEXT / 4, letters);
            gw_lookup_keep(pool, other[i], TEXT / 4);
            sides[4 - i] = (side){other[i], TEXT / 4, 0};
        }
        for (size_t n = 2; n <= TEXT; n++) {
            gw_lookup_append(l, t + (n == 2 ? 0 : n - 1), n == 2 ? 2 : 1);
            sides->n = n;
            check_vote(l, NULL, sides, 2);
            check_vote(l, pool, sides, 5);
        }
        gw_lookup_forget(l, 90);
        sides->n = 90;
        check_vote(l, pool, sides, 5);
        gw_lookup_free(pool);
        gw_lookup_free(l);
    }
}

/* A pool that is full keeps what came last. */
static void pools(void **state) {
    (void)state;
    int32_t told[2 * TEXT], next[3];
    float trust[3];
    gw_lookup *pool, *l;
    ok(gw_lookup_new(NULL, 0, 100, &pool));
    ok(gw_lookup_new(NULL, 0, 100, &l));
    for (int32_t i = 0; i < 2 * TEXT; i++) {
        told[i] = i;
    }
    for (int i = 0; i + 13 <= 2 * TEXT; i += 13) {
        gw_lookup_keep(pool, told + i, 13);
        gw_lookup_forget(l, 0);
        gw_lookup_append(l, told + i + 4, 3);
        assert_int_equal(gw_lookup_vote(l, pool, 3, next, trust), 3);
        assert_int_equal(next[0], told[i + 7]);
    }
    gw_lookup_forget(l, 0);
    gw_lookup_append(l, told + 4, 3);
    assert_int_equal(gw_lookup_vote(l, pool, 3, next, trust), 0);
    gw_lookup_keep(pool, told, 2 * TEXT); /* more than it has room for: the beginning */
    assert_int_equal(gw_lookup_vote(l, pool, 3, next, trust), 3);
    gw_lookup_free(pool);
    gw_lookup_free(l);
}

static void texts(void **state) {
    (void)state;
    static prompt_list prompts;
    gw_model *m = open_shared("tales-2m");
    gw_session *plain = open_session(m, 160), *s = open_session(m, 160);
    gw_draft_stats stats;
    read_prompts(m, &prompts);
    static const char *const lengths[] = {"fixed:15", "cost"};
    for (size_t k = 0; k < 2; k++) {
        gw_drafter *d = new_drafter(s, NULL, GW_LOOKUP_SUFFIX, lengths[k]);
        for (int i = 0; i < 3; i++) {
            text want, got;
            plain_text(m, plain, &sampler_table[i], 5, prompts.ids[i], prompts.n[i], 90, &want);
            drafted_text(m, s, d, &sampler_table[i], 5, prompts.ids[i], prompts.n[i], 90,
                         GW_DECODE_MAX, &got);
            assert_int_equal(want.n, got.n);
            assert_memory_equal(want.ids, got.ids, want.n * sizeof *want.ids);
        }
        gw_drafter_stats(d, &stats);
        print_message("  %s: %d of %d drafts accepted\n", lengths[k], (int)stats.accepted,
                      (int)stats.drafted);
        assert_true(k > 0 || stats.looked_up > 20);
        gw_drafter_free(d);
    }
    gw_session_free(s);
    gw_session_free(plain);
    gw_model_free(m);
}

/* ---- many texts ------------------------------------------------------------------------------ */

typedef struct answer {
    int32_t id[48];
    int n, done;
} answer;

static void take(void *user, const gw_event *e) {
    answer *a = user;
    if (e->kind == GW_EVENT_TOKEN && a->n < 48) {
        a->id[a->n++] = e->token;
    }
    a->done |= e->kind == GW_EVENT_DONE;
}

/* The same question again, or with a salt: drafts of it that stayed. */
static uint64_t asked(gw_batch *b, const prompt_list *prompts, uint64_t salt, answer *out) {
    gw_sampler_options greedy;
    gw_request *r = NULL;
    gw_batch_stats before, after;
    size_t work = 1;
    gw_sampler_defaults(&greedy);
    greedy.temperature = 0;
    gw_request_options o = {.tokens = prompts->ids[3],
                            .n_tokens = prompts->n[3],
                            .sampler = &greedy,
                            .max_tokens = 40,
                            .salt = salt,
                            .event = take,
                            .user = out};
    gw_batch_get_stats(b, &before);
    *out = (answer){.n = 0};
    ok(gw_batch_submit(b, &o, &r));
    while (!out->done) {
        ok(gw_batch_step(b, &work));
    }
    gw_request_free(r);
    gw_batch_get_stats(b, &after);
    return after.draft_accepted - before.draft_accepted;
}

/* What has been answered before is drafted, unless its request shares nothing. */
static void earlier_answers(void **state) {
    (void)state;
    static prompt_list prompts;
    static answer first, again;
    gw_model *m = open_shared("tales-2m");
    gw_batch *b = NULL;
    gw_batch_options o = {.n_ctx = 160,
                          .parallel = 2,
                          .cache_tokens = 640,
                          .draft_lookup = GW_LOOKUP_SUFFIX,
                          .draft_length = "fixed:7"};
    read_prompts(m, &prompts);
    ok(gw_batch_new(m, &o, &b));
    uint64_t alone = asked(b, &prompts, 5, &first);
    assert_true(asked(b, &prompts, 0, &again) == alone);
    uint64_t known = asked(b, &prompts, 0, &again);
    print_message("  of 40 tokens %d drafted, %d when answered before\n", (int)alone, (int)known);
    assert_true(known > alone && known >= 24);
    assert_int_equal(first.n, again.n);
    assert_memory_equal(first.id, again.id, sizeof first.id);
    gw_batch_free(b);
    gw_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(votes), cmocka_unit_test(pools),
                                       cmocka_unit_test(texts), cmocka_unit_test(earlier_answers)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
