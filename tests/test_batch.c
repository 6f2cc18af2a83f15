/* tests/test_batch.c - many requests at once: each has the text it would have alone; pages, the
 * queue, endings. */
#include "tests/reference_files.h"

#include "tests/batch_cases.h"
#include "tests/count_alloc.h"
#include "tests/sanitized.h"
#include "core/engine/sampling/sampler.h"

/* ---- one text -------------------------------------------------------------------------------- */

static void in_order(void **state) {
    (void)state;
    const bc_plan p = {.device = "cpu",
                       .requests = 24,
                       .parallel = 24,
                       .chunk = 128,
                       .seed = 1,
                       .tokens = 64 * 40};
    gw_batch_stats s = bc_check(&p);
    assert_true(s.cached_tokens > 0);
    assert_true(s.rows > s.steps); /* together */
}

static void too_small_a_cache(void **state) {
    (void)state;
    const bc_plan p = {
        .device = "cpu", .requests = 24, .parallel = 6, .chunk = 64, .seed = 2, .tokens = 64 * 8};
    gw_batch_stats s = bc_check(&p);
    assert_true(s.evictions > 0);
    assert_true(s.preemptions > 0);
}

/* Pages that were let go and come back; there is room for some, or for all. */
static void from_main_memory(void **state) {
    (void)state;
    bc_plan p = {.device = "cpu",
                 .requests = 24,
                 .parallel = 6,
                 .chunk = 64,
                 .seed = 2,
                 .tokens = 64 * 8,
                 .host = 5};
    gw_batch_stats s = bc_check(&p);
    assert_int_equal(s.host_pages, 5);
    assert_true(s.host_saved > 5);
    p.host = 100;
    s = bc_check(&p);
    assert_true(s.host_fetched > 0 && s.host_pages_cached > 5);
}

/* More rows in a pass than drafts ever have. */
static void many_rows(void **state) {
    (void)state;
    const bc_plan p = {.device = "cpu",
                       .requests = 40,
                       .parallel = 50,
                       .chunk = 512,
                       .seed = 4,
                       .tokens = 64 * 100,
                       .stem = 12,
                       .own = 5,
                       .answer = 16,
                       .at_once = 1};
    gw_batch_stats s = bc_check(&p);
    assert_true(s.rows > 10 * s.steps); /* and so up to 40 at first */
}

static void in_disorder(void **state) {
    (void)state;
    gw_batch_stats s = bc_rounds(&(bc_plan){.device = "cpu", .requests = TEST_SANITIZED ? 24 : 72});
    if (TEST_SANITIZED) {
        return; /* bits and paths: the figures are the release's */
    }
    assert_true(s.preemptions > 0 && s.evictions > 0 && s.cancelled > 0);
    assert_true(s.draft_accepted > 0 && s.draft_accepted < s.drafted && s.read_ahead > 0);
    assert_true(s.host_saved > 0 && s.host_fetched > 0);
}

/* As many rows as a pass can have. */
static void many_rows_of_experts(void **state) {
    (void)state;
    bc_experts("cpu", shared_path("goldens/mixtral"), TEST_SANITIZED ? 60 : 220);
}

/* As many drafts as pay: of a model that mostly agrees some do, and fewer passes are needed. */
static void drafts(void **state) {
    (void)state;
    bc_plan p = {.device = "cpu",
                 .requests = 6,
                 .parallel = 4,
                 .chunk = 128,
                 .seed = 6,
                 .tokens = 64 * 30,
                 .answer = 40,
                 .length = "fixed:3"};
    gw_batch_stats plain = bc_check(&p);
    assert_int_equal(plain.drafted, 0);
    p.draft = 1;
    gw_batch_stats s = bc_check(&p);
    assert_true(s.draft_accepted > s.drafted / 4);
    assert_true(s.steps < plain.steps);
    assert_int_equal(s.generated_tokens, plain.generated_tokens);
}

/* Models with recurrent blocks, of which snapshots stand beside pages; with a layer that drafts. */
static void states(void **state) {
    static const struct {
        const char *name;
        int lookup, mtp;
        const char *length;
    } cases[] = {
        {"falcon-h1", 1, 0, NULL},
        {"qwen3-next", 0, 0, NULL},
        {"qwen4-exp", 0, 0, NULL},
        {"kimi-linear", 0, 0, NULL},
        {"lfm2", GW_LOOKUP_SUFFIX, 0, NULL},
        {"deepseek-v3", 0, 1, NULL},
        {"qwen3.5-moe-mm", 0, 1, "fixed:3"},
    };
    uint64_t fetched = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char folder[80], path[256];
        snprintf(folder, sizeof folder, "goldens/%s", cases[i].name);
        snprintf(path, sizeof path, "%s", shared_path(folder));
        const char *seed = getenv("GODWIT_BATCH_SEED");
        const bc_plan p = {.model = path,
                           .device = "cpu",
                           .kv_type = "f32",
                           .requests = 12,
                           .lookup = cases[i].lookup,
                           .mtp = cases[i].mtp,
                           .length = cases[i].length,
                           .parallel = 5,
                           .chunk = 50,
                           .tokens = 64 * 12,
                           .host = 12,
                           .stem = 90,
                           .own = 8,
                           .seed = seed != NULL ? strtoull(seed, NULL, 10) : 5,
                           .disorder = cases[i].length == NULL ? 3 : 0};
        gw_batch_stats s = bc_check(&p);
        print_message("  %s: %d preemptions, %d cached, %d drafted, %d accepted, %d fetched\n",
                      cases[i].name, (int)s.preemptions, (int)s.cached_tokens, (int)s.drafted,
                      (int)s.draft_accepted, (int)s.host_fetched);
        assert_true(s.preemptions > 0);
        fetched += s.host_fetched;
        assert_true(seed != NULL || s.cached_tokens > 0);
        assert_true(!cases[i].mtp || s.draft_accepted > 0);
    }
    assert_true(getenv("GODWIT_BATCH_SEED") != NULL || fetched > 0);
}

/* Keys and values in two formats: pages that are shared, let go and copied. */
static void two_formats(void **state) {
    (void)state;
    const bc_plan p = {.device = "cpu",
                       .kv_type = "q8_0,q4_0",
                       .requests = 12,
                       .parallel = 4,
                       .chunk = 64,
                       .seed = 2,
                       .tokens = 64 * 8,
                       .host = 5};
    gw_batch_stats s = bc_check(&p);
    assert_true(s.cached_tokens > 0 && s.evictions > 0 && s.host_saved > 0);
}

/* Windows, of which a prefix serves as any does; latent caches; caches of which a row is read at
 * once with those behind it. */
static void other_caches(void **state) {
    static const char *const names[] = {"gemma3-pattern", "deepseek-v3", "deepseek-v4", "gemma4-e"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char folder[80], path[256];
        snprintf(folder, sizeof folder, "goldens/%s", names[i]);
        snprintf(path, sizeof path, "%s", shared_path(folder));
        const bc_plan p = {.model = path,
                           .device = "cpu",
                           .kv_type = "f32",
                           .requests = 10,
                           .parallel = 5,
                           .chunk = 50,
                           .tokens = 64 * 12,
                           .host = 20,
                           .stem = 200,
                           .own = 8,
                           .answer = 12,
                           .seed = 7,
                           .disorder = 3};
        gw_batch_stats s = bc_check(&p);
        print_message("%s: %d preempted, %d cached, %d fetched\n", names[i], (int)s.preemptions,
                      (int)s.cached_tokens, (int)s.host_fetched);
        assert_true(s.preemptions > 0 && s.cached_tokens > 0);
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void pages_are_found_again(void **state) {
    (void)state;
    enum { N = 4 };
    gw_pages *p;
    int32_t a[GW_PAGE] = {1}, b[GW_PAGE] = {2};
    bc_ok(gw_pages_new(N, 0, &p));
    int32_t first = gw_pages_take(p), second = gw_pages_take(p);
    gw_page_name one = gw_pages_publish(p, first, GW_PAGES_ROOT, a);
    gw_page_name two = gw_pages_publish(p, second, one, b);
    assert_int_not_equal(one, two);
    assert_int_equal(gw_pages_find(p, GW_PAGES_ROOT, b), -1);
    assert_int_equal(gw_pages_find(p, GW_PAGES_ROOT | 1, a), -1); /* another salt */
    assert_int_equal(gw_pages_find(p, GW_PAGES_ROOT, a), first);
    assert_int_equal(gw_pages_find(p, one, b), second);
    assert_int_equal(gw_pages_available(p), 2);
    for (int i = 0; i < 2; i++) {
        gw_pages_drop(p, second);
        gw_pages_drop(p, first);
    }
    assert_true(gw_pages_check(p));
    assert_int_equal(gw_pages_available(p), N);
    assert_int_equal(gw_pages_counts(p).kept, 2);
    int32_t more[3] = {gw_pages_take(p), gw_pages_take(p), gw_pages_take(p)};
    assert_int_equal(more[2], second); /* let go before the page in front of it */
    assert_int_equal(gw_pages_find(p, one, b), -1);
    assert_int_equal(gw_pages_find(p, GW_PAGES_ROOT, a), first);
    assert_int_equal(gw_pages_take(p), -1);
    assert_true(gw_pages_check(p));
    gw_pages_free(p);
}

static void the_same_page_twice(void **state) {
    (void)state;
    gw_pages *p;
    int32_t a[GW_PAGE] = {1};
    bc_ok(gw_pages_new(2, 0, &p));
    int32_t first = gw_pages_take(p), second = gw_pages_take(p);
    gw_page_name one = gw_pages_publish(p, first, GW_PAGES_ROOT, a);
    assert_int_equal(gw_pages_publish(p, second, GW_PAGES_ROOT, a), one);
    gw_pages_drop(p, first);
    gw_pages_drop(p, second); /* nobody can find it: free */
    assert_int_equal(gw_pages_counts(p).kept, 1);
    gw_pages_forget(p);
    assert_int_equal(gw_pages_counts(p).kept, 0);
    assert_true(gw_pages_check(p));
    gw_pages_free(p);
}

/* What stands in each place: the page that was copied there. */
typedef struct copies {
    int32_t place[2];
    int refuses;
} copies;

static int keep_copy(void *user, int32_t page, int32_t place) {
    copies *c = user;
    c->place[place] = page;
    return !c->refuses;
}

static void pages_that_were_let_go(void **state) {
    (void)state;
    gw_pages *p;
    copies c = {.refuses = 0};
    int32_t a[GW_PAGE] = {1}, b[GW_PAGE] = {2}, other[GW_PAGE] = {3}, place = -1;
    bc_ok(gw_pages_new(2, 2, &p));
    gw_pages_set_host(p, keep_copy, &c);
    int32_t first = gw_pages_take(p), second = gw_pages_take(p);
    gw_page_name one = gw_pages_publish(p, first, GW_PAGES_ROOT, a);
    gw_page_name two = gw_pages_publish(p, second, one, b);
    gw_pages_drop(p, second);
    gw_pages_drop(p, first);
    assert_int_equal(gw_pages_evict(p) + gw_pages_evict(p) + gw_pages_evict(p), 2);
    assert_int_equal(gw_pages_counts(p).placed, 2);
    assert_int_equal(gw_pages_find(p, GW_PAGES_ROOT, a), -1);
    assert_true(gw_pages_known(p, GW_PAGES_ROOT, a) == one);
    assert_true(gw_pages_known(p, one, b) == two);
    assert_true(gw_pages_known(p, one, a) == 0);
    /* The same page read anew has its old name, and what is behind it is found. */
    int32_t anew = gw_pages_take(p);
    assert_true(gw_pages_publish(p, anew, GW_PAGES_ROOT, a) == one);
    int32_t back = gw_pages_fetch(p, one, b, &place);
    assert_int_equal(c.place[place], second);
    assert_true(gw_pages_name(p, back) == two);
    assert_true(gw_pages_check(p));
    gw_pages_drop(p, back);
    gw_pages_drop(p, anew);
    int32_t more[2] = {gw_pages_take(p), gw_pages_take(p)}; /* let go again: no further places */
    assert_int_equal(gw_pages_counts(p).placed, 2);
    assert_int_equal(gw_pages_fetch(p, GW_PAGES_ROOT, a, &place), -1); /* no page is free */
    assert_true(gw_pages_publish(p, more[0], GW_PAGES_ROOT, other) != 0);
    gw_pages_drop(p, more[0]);
    gw_pages_drop(p, more[1]);
    c.refuses =
        1; /* the place that was used longest ago is made free, and stays so: the last page */
    assert_true(gw_pages_evict(p));
    assert_int_equal(gw_pages_counts(p).placed, 1);
    assert_true(gw_pages_known(p, GW_PAGES_ROOT, a) == 0 || gw_pages_known(p, one, b) == 0);
    assert_true(gw_pages_check(p));
    gw_pages_forget(p);
    assert_int_equal(gw_pages_counts(p).placed, 0);
    assert_true(gw_pages_check(p));
    gw_pages_free(p);
}

/* ---- the queue and endings ------------------------------------------------------------------- */

typedef struct told {
    char text[512];
    size_t n;
    int tokens, ended, done, prompts;
    gw_finish finish;
    int32_t stop, end, generated, cached;
} told;

static void listen(void *user, const gw_event *e) {
    told *t = user;
    assert_true(t->n + e->bytes < sizeof t->text);
    memcpy(t->text + t->n, e->text, e->bytes);
    t->n += e->bytes;
    t->tokens += e->kind == GW_EVENT_TOKEN;
    t->prompts += e->kind == GW_EVENT_PROMPT;
    if (e->kind == GW_EVENT_END) {
        t->ended++;
        t->finish = e->finish;
        t->stop = e->stop;
        t->end = e->token;
    }
    if (e->kind == GW_EVENT_DONE) {
        t->done++;
        t->generated = e->n_generated;
        t->cached = e->n_cached;
    }
}

typedef struct rig {
    gw_model *m;
    gw_batch *b;
    int32_t *ids;
    size_t n_ids;
    gw_sampler_options greedy;
} rig;

static void open_rig(rig *r, const gw_batch_options *o) {
    const gw_model_options mo = {.path = BC_MODEL, .device = "cpu", .threads = 1};
    bc_ok(gw_model_open(&mo, &r->m));
    bc_ok(gw_batch_new(r->m, o, &r->b));
    const char *text = "Once upon a time";
    bc_ok(gw_tokenize(r->m, text, strlen(text), GW_TEXT_BOS | GW_TEXT_OPEN, &r->ids, &r->n_ids));
    gw_sampler_defaults(&r->greedy);
    r->greedy.temperature = 0.0f;
}

static void close_rig(rig *r) {
    gw_batch_free(r->b);
    gw_free(r->ids);
    gw_model_free(r->m);
}

static gw_request_options ask(rig *r, told *t) {
    return (gw_request_options){.tokens = r->ids,
                                .n_tokens = r->n_ids,
                                .sampler = &r->greedy,
                                .max_tokens = 12,
                                .event = listen,
                                .user = t};
}

static void serve(rig *r, const gw_request_options *o, told *t) {
    gw_request *handle;
    size_t work = 1;
    memset(t, 0, sizeof *t);
    bc_ok(gw_batch_submit(r->b, o, &handle));
    gw_request_free(handle); /* it goes on */
    while (!t->done) {
        bc_ok(gw_batch_step(r->b, &work));
    }
    bc_ok(gw_batch_step(r->b, &work));
    assert_int_equal(work, 0);
}

enum { SNAP_CTX = 1500, SNAP_ANSWER = 9 };
typedef struct answer {
    int32_t ids[SNAP_ANSWER], n, cached, done;
} answer;

static void note_answer(void *user, const gw_event *e) {
    answer *a = user;
    if (e->kind == GW_EVENT_TOKEN) {
        a->ids[a->n++] = e->token;
    }
    a->cached = e->kind == GW_EVENT_DONE ? e->n_cached : a->cached;
    a->done |= e->kind == GW_EVENT_DONE;
}

/* The answer to a prompt in the batch, which read `cached` tokens of it before, and alone. */
static void ask_both(gw_batch *b, gw_session *s, const int32_t *ids, int32_t n, int32_t cached,
                     answer *out) {
    gw_sampler_options greedy;
    gw_request *handle;
    size_t work = 1;
    *out = (answer){.n = 0};
    gw_sampler_defaults(&greedy);
    greedy.temperature = 0;
    gw_request_options o = {.tokens = ids,
                            .n_tokens = (size_t)n,
                            .sampler = &greedy,
                            .max_tokens = SNAP_ANSWER,
                            .event = note_answer,
                            .user = out};
    bc_ok(gw_batch_submit(b, &o, &handle));
    while (!out->done) {
        bc_ok(gw_batch_step(b, &work));
    }
    gw_request_free(handle);
    assert_int_equal(out->cached, cached);
    bc_ok(gw_session_rewind(s, 0));
    bc_ok(gw_session_prefill(s, ids, (size_t)n));
    for (int32_t i = 0; i < out->n; i++) {
        const float *logits = gw_session_logits(s, 0);
        assert_true(logits[out->ids[i]] >= gw_logits_top(logits, 320));
        bc_ok(gw_session_decode(s, &out->ids[i], 1));
    }
}

/* Where a prompt of a recurrent model begins like one before it, it is read from a snapshot on. */
static void snapshots(void **state) {
    static int32_t ids[SNAP_CTX];
    (void)state;
    gw_model_options mo = {
        .path = shared_path("goldens/qwen3-next"), .device = "cpu", .threads = 1};
    const gw_batch_options bo = {.n_ctx = SNAP_CTX, .parallel = 2, .kv_type = "f32"};
    const gw_session_options so = {.n_ctx = SNAP_CTX, .kv_type = "f32"};
    gw_model *m;
    gw_batch *b;
    gw_session *s;
    answer first, other;
    bc_ok(gw_model_open(&mo, &m));
    bc_ok(gw_batch_new(m, &bo, &b));
    bc_ok(gw_session_new(m, &so, &s));
    random_seed(3);
    for (int i = 0; i < SNAP_CTX; i++) {
        ids[i] = 3 + (int32_t)(random_u32() % 317);
    }
    enum { FIRST = 1200, EDGE = (FIRST - 1) / GW_PAGE * GW_PAGE };
    const int32_t every = GW_SNAPSHOT_PAGES * GW_PAGE;
    ask_both(b, s, ids, FIRST, 0, &first);
    memcpy(ids + FIRST, first.ids, (size_t)first.n * sizeof *ids); /* the next turn */
    ask_both(b, s, ids, FIRST + first.n + 40, EDGE, &other);
    ids[1100] = ids[1100] == 7 ? 8 : 7; /* alike up to there */
    ask_both(b, s, ids, FIRST, every, &other);
    ids[500] = ids[500] == 7 ? 8 : 7; /* pages are, but no snapshot */
    ask_both(b, s, ids, FIRST, 0, &other);
    gw_session_free(s);
    gw_batch_free(b);
    gw_model_free(m);
}

static void endings(void **state) {
    (void)state;
    rig r;
    told t, u;
    const gw_batch_options bo = {.n_ctx = 64, .parallel = 2};
    open_rig(&r, &bo);
    gw_request_options o = ask(&r, &t);
    serve(&r, &o, &t);
    assert_int_equal(t.finish, GW_FINISH_LENGTH);
    assert_int_equal(t.tokens, 12);
    assert_int_equal(t.generated, 12);
    assert_int_equal(t.ended, 1);
    /* A stop string out of that text: what is before it, and no more. */
    t.text[t.n] = '\0';
    char word[8] = {0};
    memcpy(word, t.text + t.n / 2, 4);
    const char *stops[] = {"never in it at all", word};
    size_t before = (size_t)(strstr(t.text, word) - t.text);
    o = ask(&r, &u);
    o.stops = stops;
    o.n_stops = 2;
    serve(&r, &o, &u);
    assert_int_equal(u.finish, GW_FINISH_STOP);
    assert_int_equal(u.stop, 1);
    assert_int_equal(u.n, before);
    assert_memory_equal(u.text, t.text, before);
    /* The same string banned. */
    o = ask(&r, &u);
    o.bans = stops;
    o.n_bans = 2;
    serve(&r, &o, &u);
    u.text[u.n] = '\0';
    assert_null(strstr(u.text, word));
    assert_int_equal(u.tokens, 12);
    assert_memory_equal(u.text, t.text, before > 8 ? before - 8 : 0);
    /* A grammar that is whole. */
    gw_grammar *g;
    const char *rules = "root ::= \" a cat\"";
    bc_ok(gw_grammar_new(r.m, GW_GRAMMAR_GBNF, rules, strlen(rules), NULL, &g));
    o = ask(&r, &u);
    o.grammar = g;
    serve(&r, &o, &u);
    assert_int_equal(u.finish, GW_FINISH_STOP);
    assert_int_equal(u.n, 6);
    assert_memory_equal(u.text, " a cat", 6);
    gw_grammar_free(g);
    /* To the end of the context: its tokens and one more. */
    o = ask(&r, &u);
    o.max_tokens = -1;
    o.ignore_eos = 1;
    serve(&r, &o, &u);
    assert_int_equal(u.finish, GW_FINISH_LENGTH);
    assert_int_equal(u.tokens + (int)r.n_ids, 64 + 1);
    /* Nothing. */
    o = ask(&r, &u);
    o.max_tokens = 0;
    serve(&r, &o, &u);
    assert_int_equal(u.tokens, 0);
    assert_int_equal(u.finish, GW_FINISH_LENGTH);
    close_rig(&r);
}

static void refusals(void **state) {
    (void)state;
    rig r;
    told t = {0};
    const gw_batch_options bo = {.n_ctx = 64, .parallel = 1, .queue = 2};
    open_rig(&r, &bo);
    int32_t many[65] = {0};
    gw_request *a, *b, *c;
    gw_request_options o = ask(&r, &t);
    o.tokens = many;
    o.n_tokens = 64;
    assert_int_equal(gw_batch_submit(r.b, &o, &a), GW_E_CONTEXT);
    assert_non_null(strstr(gw_error_text(), "64 tokens, of which 63 fit a context of 64"));
    many[0] = 1 << 20;
    o.n_tokens = 1;
    assert_int_equal(gw_batch_submit(r.b, &o, &a), GW_E_ARGUMENT);
    o.n_tokens = 0;
    assert_int_equal(gw_batch_submit(r.b, &o, &a), GW_E_ARGUMENT);
    o = ask(&r, &t);
    o.logprobs = 22;
    assert_int_equal(gw_batch_submit(r.b, &o, &a), GW_E_ARGUMENT);
    o = ask(&r, &t);
    o.prompt_logprobs_from = (int32_t)o.n_tokens + 1;
    assert_int_equal(gw_batch_submit(r.b, &o, &a), GW_E_ARGUMENT);
    o = ask(&r, &t);
    bc_ok(gw_batch_submit(r.b, &o, &a));
    bc_ok(gw_batch_submit(r.b, &o, &b));
    assert_int_equal(gw_batch_submit(r.b, &o, &c), GW_E_BUSY);
    gw_request_cancel(b); /* while it waits */
    size_t work;
    bc_ok(gw_batch_step(r.b, &work));
    assert_int_equal(t.done, 1);
    assert_int_equal(t.finish, GW_FINISH_CANCELLED);
    gw_batch_drain(r.b);
    assert_int_equal(gw_batch_submit(r.b, &o, &c), GW_E_CANCELLED);
    gw_batch_stats s;
    gw_batch_get_stats(r.b, &s);
    assert_int_equal(s.refused, 1);
    gw_request_free(b);
    gw_batch_free(r.b); /* with a request under way */
    r.b = NULL;
    assert_int_equal(t.done, 2);
    gw_request_free(a);
    close_rig(&r);
}

/* One at a time: who is dearer to its client's others, who has had less, who came first. */
static void clients_take_turns(void **state) {
    (void)state;
    enum { N = 6 };
    static const struct {
        uint64_t client;
        int32_t priority;
    } asked[N] = {{1, 0}, {1, 0}, {2, -1}, {2, 0}, {1, 0}, {3, 1}};
    static const int order[N] = {5, 0, 3, 1, 4, 2};
    rig r;
    told t[N];
    gw_request *handle[N];
    const gw_batch_options bo = {.n_ctx = 64, .parallel = 1};
    size_t work = 1;
    open_rig(&r, &bo);
    memset(t, 0, sizeof t);
    for (int i = 0; i < N; i++) {
        gw_request_options o = ask(&r, &t[i]);
        o.max_tokens = 3;
        o.client = asked[i].client;
        o.priority = asked[i].priority;
        bc_ok(gw_batch_submit(r.b, &o, &handle[i]));
    }
    for (int i = 0; i < N; i++) {
        while (!t[order[i]].done) {
            bc_ok(gw_batch_step(r.b, &work));
        }
        for (int k = i + 1; k < N; k++) {
            assert_int_equal(t[order[k]].done, 0);
        }
    }
    for (int i = 0; i < N; i++) {
        gw_request_free(handle[i]);
    }
    close_rig(&r);
}

/* Whoever hears of a request's end finds nothing of it in the figures: choices that nobody reads,
 * and some that had not begun. */
static void look_at_the_end(void *user, const gw_event *e) {
    gw_batch_stats s;
    if (e->kind == GW_EVENT_DONE) {
        gw_batch_get_stats(*(gw_batch **)user, &s);
        assert_int_equal(s.pages_used, 0);
        assert_int_equal(s.running + s.held + s.waiting, 0);
        assert_int_equal(s.cancelled, 1);
        *(gw_batch **)user = NULL;
    }
}

static void nothing_is_left_at_the_end(void **state) {
    (void)state;
    rig r;
    const gw_batch_options bo = {.n_ctx = 256, .parallel = 3};
    open_rig(&r, &bo);
    gw_batch *seen = r.b;
    gw_request *handle;
    gw_request_options o = ask(&r, NULL);
    size_t work;
    o.n = 4;
    o.max_tokens = -1;
    o.ignore_eos = 1;
    o.event = look_at_the_end;
    o.user = &seen;
    bc_ok(gw_batch_submit(r.b, &o, &handle));
    for (int i = 0; i < 20; i++) {
        bc_ok(gw_batch_step(r.b, &work));
    }
    gw_request_hold(handle, 1);
    bc_ok(gw_batch_step(r.b, &work));
    assert_int_equal(work, 0);
    gw_request_cancel(handle);
    bc_ok(gw_batch_step(r.b, &work));
    assert_null(seen);
    gw_request_free(handle);
    close_rig(&r);
}

static void pages_by_salt(void **state) {
    (void)state;
    rig r;
    told t;
    const gw_batch_options bo = {.n_ctx = 256, .parallel = 2};
    open_rig(&r, &bo);
    int32_t ids[200];
    for (int i = 0; i < 200; i++) {
        ids[i] = 3 + i;
    }
    gw_request_options o = ask(&r, &t);
    o.tokens = ids;
    o.n_tokens = 192;
    serve(&r, &o, &t);
    assert_int_equal(t.cached, 0);
    serve(&r, &o, &t);
    assert_int_equal(t.cached, 128); /* one token is always read */
    o.n_tokens = 200;
    serve(&r, &o, &t);
    assert_int_equal(t.cached, 192);
    o.prompt_logprobs = 1; /* all rows are read, or those from a token on */
    serve(&r, &o, &t);
    assert_int_equal(t.cached, 0);
    o.prompt_logprobs_from = 130;
    serve(&r, &o, &t);
    assert_int_equal(t.cached, 128);
    o.prompt_logprobs = o.prompt_logprobs_from = 0;
    o.salt = 7;
    serve(&r, &o, &t);
    assert_int_equal(t.cached, 0);
    o.no_cache = 1;
    serve(&r, &o, &t);
    assert_int_equal(t.cached, 0);
    o.no_cache = 0;
    serve(&r, &o, &t);
    assert_int_equal(t.cached, 192);
    close_rig(&r);
}

/* Pages come back where copying one takes less time than reading it, as far as that is known. */
static void fetched_where_it_is_faster(void **state) {
    (void)state;
    rig r;
    told t;
    gw_batch *none = NULL;
    gw_batch_stats s;
    const gw_batch_options bo = {
        .n_ctx = 256, .parallel = 1, .cache_tokens = 256, .cache_host_bytes = 8 << 20};
    gw_batch_options wrong = bo;
    open_rig(&r, &bo);
    wrong.cache_host_bytes = 64;
    assert_int_equal(gw_batch_new(r.m, &wrong, &none), GW_E_ARGUMENT);
    assert_non_null(strstr(gw_error_text(), "of main memory are less than a page"));
    wrong.cache_host_bytes = (uint64_t)1 << 60;
    assert_int_equal(gw_batch_new(r.m, &wrong, &none), GW_E_NOMEM);
    gw_batch_get_stats(r.b, &s);
    assert_true(s.host_pages > 8 && s.host_bytes <= 8 << 20);
    int32_t ids[2][200];
    for (int i = 0; i < 400; i++) {
        ids[i / 200][i % 200] = 3 + i;
    }
    /* seconds: to fetch a page, as it is believed; 0: not known. */
    static const struct {
        double seconds;
        int prompt, doubts, cached;
    } turns[] = {
        {0, 0, 0, 0},   {0, 1, 0, 0},   {0, 0, 0, 192},    {1, 1, 0, 192},
        {1e9, 0, 0, 0}, {1e9, 1, 0, 0}, {1e9, 0, 64, 192},
    };
    gw_request_options o = ask(&r, &t);
    o.n_tokens = 200;
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        r.b->host.fetch.seconds = turns[i].seconds;
        r.b->host.fetch.doubts = turns[i].doubts;
        r.b->prompt_row_seconds = 1.0;
        o.tokens = ids[turns[i].prompt];
        serve(&r, &o, &t);
        assert_int_equal(t.cached, turns[i].cached);
        assert_true(gw_pages_check(r.b->pages));
    }
    assert_true(r.b->host.fetch.seconds < 1e6 && r.b->host.fetch.doubts == 0); /* anew */
    gw_batch_get_stats(r.b, &s);
    assert_int_equal(s.host_fetched, 9);
    assert_int_equal(s.host_saved, 6);
    gw_pages_forget(r.b->pages); /* and one that is dear to save is not saved, but now and then */
    for (int i = 0; i < 3; i++) {
        r.b->host.fetch.seconds = r.b->prompt_row_seconds = 1.0;
        r.b->host.save.seconds = 1e9;
        r.b->host.save.doubts = i < 2 ? 0 : 64;
        o.tokens = ids[i % 2];
        serve(&r, &o, &t);
        assert_int_equal(t.cached, 0);
        gw_batch_get_stats(r.b, &s);
        assert_int_equal(s.host_saved, i < 2 ? 6 : 9);
    }
    assert_int_equal(s.pages_used, 0);
    close_rig(&r);
}

static void count_tokens(void *user, const gw_event *e) {
    *(int *)user += e->kind == GW_EVENT_TOKEN;
}

/* All memory is taken with a request, none with its tokens: with drafts, logprobs, penalties, a
 * grammar, banned and stop strings, two choices. */
static void nothing_is_taken_for_a_token(void **state) {
    (void)state;
    rig r;
    gw_model *draft;
    const gw_model_options mo = {.path = BC_DRAFT, .device = "cpu", .threads = 1};
    bc_ok(gw_model_open(&mo, &draft));
    const gw_batch_options bo = {.n_ctx = 256,
                                 .parallel = 8,
                                 .draft_model = draft,
                                 .draft_lookup = 1,
                                 .cache_host_bytes = 4 << 20};
    open_rig(&r, &bo);
    const char *const strings[] = {"never in it at all"};
    gw_grammar *g;
    const char *rules = "root ::= [ a-zA-Z.,!?\"\\n]+";
    bc_ok(gw_grammar_new(r.m, GW_GRAMMAR_GBNF, rules, strlen(rules), NULL, &g));
    gw_request *handle[4];
    int tokens = 0;
    size_t work;
    for (int i = 0; i < 4; i++) {
        gw_sampler_options sampler = r.greedy;
        sampler.temperature = i % 2 == 0 ? 0.9f : 0.0f;
        sampler.repeat_penalty = 1.1f;
        sampler.dry_multiplier = i == 1 ? 0.8f : 0.0f;
        gw_request_options o = ask(&r, NULL);
        o.sampler = &sampler;
        o.max_tokens = -1;
        o.ignore_eos = 1;
        o.event = count_tokens;
        o.user = &tokens;
        o.n = 1 + (i == 2);
        o.logprobs = i == 2 ? 5 : 0;
        o.grammar = i == 3 ? g : NULL;
        o.stops = o.bans = strings;
        o.n_stops = o.n_bans = i == 1;
        bc_ok(gw_batch_submit(r.b, &o, &handle[i]));
    }
    while (tokens < 100) { /* first tokens find their places */
        bc_ok(gw_batch_step(r.b, &work));
    }
    size_t before = atomic_load(&allocations);
    while (tokens < 700) {
        bc_ok(gw_batch_step(r.b, &work));
    }
    if (COUNTS_ALLOCATIONS) {
        assert_int_equal(atomic_load(&allocations) - before, 0);
    }
    for (int i = 0; i < 4; i++) {
        gw_request_free(handle[i]);
    }
    gw_batch_free(r.b);
    r.b = NULL;
    gw_grammar_free(g);
    gw_model_free(draft);
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_found_again),
        cmocka_unit_test(the_same_page_twice),
        cmocka_unit_test(pages_that_were_let_go),
        cmocka_unit_test(endings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(nothing_is_left_at_the_end),
        cmocka_unit_test(pages_by_salt),
        cmocka_unit_test(fetched_where_it_is_faster),
        cmocka_unit_test(in_order),
        cmocka_unit_test(too_small_a_cache),
        cmocka_unit_test(from_main_memory),
        cmocka_unit_test(many_rows),
        cmocka_unit_test(many_rows_of_experts),
        cmocka_unit_test(drafts),
        cmocka_unit_test(nothing_is_taken_for_a_token),
        cmocka_unit_test(states),
        cmocka_unit_test(two_formats),
        cmocka_unit_test(other_caches),
        cmocka_unit_test(snapshots),
        cmocka_unit_test(in_disorder),
    };
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
