/* tests/batch_cases.h - many requests on one device against each of them alone: random prompts with
 * common beginnings or behind an earlier answer, samplers, numbers of choices, cancellations and
 * holds, with and without drafts, in a cache too small for them, cut, preempted, evicted and
 * fetched back from main memory at random, all drawn from a seed. Texts are compared token by
 * token, logits by the logarithms of the most probable tokens, which take in every one of them.
 *
 * GODWIT_BATCH_REQUESTS=N: so many requests where a test draws its plans (bc_rounds), from
 * GODWIT_BATCH_SEED=S.
 */
#ifndef GW_TESTS_BATCH_CASES_H
#define GW_TESTS_BATCH_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/batch/batch_state.h"
#include "core/engine/sampling/logprob.h"
#include "tests/random.h"

#define BC_MODEL "tests/data/tales-2m-q4_0.gguf"
#define BC_DRAFT "tests/data/tales-2m-q4_k_m.gguf" /* agrees with it most of the time */
enum { BC_CTX = 320, BC_STEMS = 3, BC_TOP = 4, BC_CHOICES = 3, BC_MOST = 320 };

static inline void bc_ok(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

typedef struct bc_token {
    int32_t id;
    float logprob[1 + BC_TOP];
} bc_token;

typedef struct bc_text {
    bc_token at[BC_MOST];
    int32_t n;
    int ended;
    gw_finish finish;
} bc_text;

/* A request and what has come of it. */
typedef struct bc_request {
    int32_t prompt[BC_CTX], n_prompt;
    gw_sampler_options sampler;
    int32_t n, most, cancel_at, hold_at; /* tokens of choice 0; -1: never */
    int rows, done, held;
    int32_t from; /* rows are wanted of prompt tokens from here on */
    int quiet;    /* no logprobs: a device may draw */
    int turn;     /* the next one behind an answer, where there is one */
    bc_text text[BC_CHOICES];
    float row[BC_CTX];
    int32_t n_rows, cached;
    gw_request *handle;
} bc_request;

typedef struct bc_plan {
    const char *model; /* NULL: BC_MODEL */
    const char *device, *layers, *kv_type, *split_mode, *weights;
    int requests;
    int32_t parallel, chunk, tokens; /* of the cache */
    int32_t host;                    /* pages in main memory, about */
    int32_t stem, own,
        answer;  /* most tokens of a prompt that others share, and not, and behind it */
    int at_once; /* all are submitted first */
    int draft, lookup, read_ahead;
    int mtp;            /* drafts by the model's own layer for it */
    const char *head;   /* ... by a head for it at this path (EAGLE-3) */
    const char *length; /* of drafts */
    uint64_t seed, disorder;
} bc_plan;

static inline void bc_event(void *user, const gw_event *e) {
    bc_request *r = user;
    bc_text *t = &r->text[e->choice];
    assert_int_equal(r->done, 0);
    if (e->kind == GW_EVENT_TOKEN) {
        assert_int_equal(e->index, t->n);
        assert_int_equal(t->ended, 0);
        assert_int_equal(e->n_top, r->quiet ? 0 : BC_TOP);
        bc_token *x = &t->at[t->n++];
        x->id = e->token;
        x->logprob[0] = e->logprob;
        for (int i = 0; i < BC_TOP && !r->quiet; i++) {
            x->logprob[1 + i] = e->top[i].logprob;
        }
        if (e->choice == 0 && t->n == r->cancel_at) {
            gw_request_cancel(r->handle);
        }
        if (e->choice == 0 && t->n == r->hold_at) {
            r->held = 1;
            gw_request_hold(r->handle, 1);
        }
    } else if (e->kind == GW_EVENT_ROW) {
        assert_int_equal(e->index, r->n_rows + (r->from > 1 ? r->from : 1));
        assert_int_equal(e->token, r->prompt[e->index]);
        r->row[r->n_rows++] = e->logprob;
    } else if (e->kind == GW_EVENT_END) {
        if (e->finish == GW_FINISH_ERROR) {
            fail_msg("%s", e->error);
        }
        t->ended = 1;
        t->finish = e->finish;
    } else if (e->kind == GW_EVENT_DONE) {
        r->done = 1;
        r->cached = e->n_cached;
    } else {
        assert_true(e->n_read <= e->n_prompt && e->n_cached <= e->n_read);
    }
}

static inline bc_request *bc_requests(const bc_plan *p, int32_t n_vocab) {
    static const float temperatures[] = {0.0f, 0.8f, 1.3f};
    bc_request *all = calloc((size_t)p->requests, sizeof *all);
    int32_t stem[BC_STEMS][BC_CTX];
    assert_non_null(all);
    uint32_t stems = p->stem > 0 ? (uint32_t)p->stem : 200,
             own_most = p->own > 0 ? (uint32_t)p->own : 60;
    uint32_t most = p->answer > 0 ? (uint32_t)p->answer : 40;
    random_seed(p->seed);
    for (int i = 0; i < BC_STEMS * BC_CTX; i++) {
        stem[i / BC_CTX][i % BC_CTX] = 3 + (int32_t)(random_u32() % (uint32_t)(n_vocab - 3));
    }
    for (int i = 0; i < p->requests; i++) {
        bc_request *r = &all[i];
        uint32_t which = random_u32() % BC_STEMS;
        int32_t shared = (int32_t)(random_u32() % stems),
                own = 1 + (int32_t)(random_u32() % own_most);
        r->n_prompt = shared + own;
        memcpy(r->prompt, stem[which], sizeof r->prompt);
        for (int32_t k = shared; k < r->n_prompt; k++) {
            r->prompt[k] = 3 + (int32_t)(random_u32() % (uint32_t)(n_vocab - 3));
        }
        gw_sampler_defaults(&r->sampler);
        r->sampler.temperature = temperatures[random_u32() % 3];
        r->sampler.repeat_penalty = random_u32() % 4 == 0 ? 1.1f : 1.0f;
        r->sampler.top_k = random_u32() % 2 == 0 ? 0 : 40;
        r->sampler.seed = random_u32();
        r->n = random_u32() % 5 == 0 ? BC_CHOICES : 1;
        r->most = random_u32() % 6 == 0 && p->answer == 0 ? -1 : (int32_t)(random_u32() % most);
        r->rows = random_u32() % 6 == 0;
        r->from = r->n_prompt % 3 > 0 ? shared : 0;
        r->quiet = random_u32() % 2 == 0;
        r->cancel_at = random_u32() % 6 == 0 ? (int32_t)(random_u32() % 20) : -1;
        r->hold_at = random_u32() % 6 == 0 ? (int32_t)(random_u32() % 10) : -1;
        r->turn = p->read_ahead && random_u32() % 3 == 0;
    }
    return all;
}

/* The prompt becomes that of the turn behind an earlier request, with the end of its own. */
static inline void bc_next_turn(bc_request *all, bc_request *r) {
    const bc_request *before = &all[random_u32() % (uint32_t)(r - all)];
    const bc_text *t = &before->text[0];
    int32_t own = 1 + (int32_t)(random_u32() % 8), n = before->n_prompt + t->n;
    if (!before->done || n + own >= BC_CTX) {
        return;
    }
    memmove(r->prompt + n, r->prompt, (size_t)own * sizeof *r->prompt);
    memcpy(r->prompt, before->prompt, (size_t)before->n_prompt * sizeof *r->prompt);
    for (int32_t i = 0; i < t->n; i++) {
        r->prompt[before->n_prompt + i] = t->at[i].id;
    }
    r->n_prompt = n + own;
    r->from = r->from < r->n_prompt ? r->from : 0;
}

static inline void bc_submit(gw_batch *b, bc_request *r) {
    gw_request_options o = {.tokens = r->prompt,
                            .n_tokens = (size_t)r->n_prompt,
                            .sampler = &r->sampler,
                            .max_tokens = r->most,
                            .n = r->n,
                            .logprobs = r->quiet ? 0 : 1 + BC_TOP,
                            .prompt_logprobs = r->rows,
                            .prompt_logprobs_from = r->from,
                            .client = (uint64_t)r->n_prompt % 4,
                            .event = bc_event,
                            .user = r};
    bc_ok(gw_batch_submit(b, &o, &r->handle));
}

/* ---- alone ----------------------------------------------------------------------------------- */

static inline void bc_compare(const bc_request *r, int choice, int32_t at, const float *logits,
                              int32_t v, int32_t token) {
    const bc_token *got = &r->text[choice].at[at];
    gw_logprob top[BC_TOP];
    float own;
    gw_logprobs(logits, v, token, &own, top, BC_TOP);
    if (r->quiet && token == got->id) {
        return;
    }
    if (token != got->id || memcmp(&own, &got->logprob[0], sizeof own) != 0) {
        fail_msg("choice %d, token %d: %d instead of %d, %a instead of %a", choice, (int)at,
                 (int)got->id, (int)token, (double)got->logprob[0], (double)own);
    }
    for (int i = 0; i < BC_TOP; i++) {
        assert_memory_equal(&top[i].logprob, &got->logprob[1 + i], sizeof own);
    }
}

typedef struct bc_rows {
    const bc_request *r;
    int32_t v;
} bc_rows;

static inline int bc_row(void *user, size_t row, const float *logits) {
    const bc_rows *x = user;
    float own;
    int32_t at = (int32_t)row - (x->r->from > 1 ? x->r->from - 1 : 0);
    if ((int32_t)row + 1 < x->r->n_prompt && at >= 0 && x->r->n_rows > at) {
        gw_logprobs(logits, x->v, x->r->prompt[row + 1], &own, NULL, 0);
        assert_memory_equal(&own, &x->r->row[at], sizeof own);
    }
    return 0;
}

static inline uint64_t bc_seed(uint64_t seed, int i) { /* splitmix64, as documented by the code */
    uint64_t x = seed + (uint64_t)i * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return i == 0 ? seed : x ^ (x >> 31);
}

/* The same text by a session of its own, as far as the request went. */
static inline void bc_alone(const gw_model *m, gw_session *s, const bc_request *r, int choice,
                            int32_t v) {
    const bc_text *t = &r->text[choice];
    gw_sampler_options o = r->sampler;
    gw_sampler *sampler;
    o.seed = bc_seed(o.seed, choice);
    bc_ok(gw_sampler_new(m, &o, &sampler));
    for (int32_t i = 0; i < r->n_prompt; i++) {
        bc_ok(gw_sampler_accept(sampler, r->prompt[i]));
    }
    bc_ok(gw_session_rewind(s, 0));
    bc_rows rows = {.r = r, .v = v};
    if (r->rows && choice == 0) {
        bc_ok(gw_session_prefill_rows(s, r->prompt, (size_t)r->n_prompt, 0, bc_row, &rows));
    } else {
        bc_ok(gw_session_prefill(s, r->prompt, (size_t)r->n_prompt));
    }
    int32_t made = 0, token = -1, full = 0, end = 0;
    while (r->most != 0 && !end && !full) {
        const float *logits = gw_session_logits(s, 0);
        bc_ok(gw_sampler_pick(sampler, logits, r->n_prompt + made, &token));
        end = gw_token_is_end(m, token);
        if (!end) {
            if (made == t->n) {
                break;
            }
            bc_compare(r, choice, made, logits, v, token);
            bc_ok(gw_sampler_accept(sampler, token));
            made++;
            full = made == r->most || r->n_prompt + made > BC_CTX;
        }
        if (!end && !full) {
            bc_ok(gw_session_decode(s, &token, 1));
        }
    }
    gw_sampler_free(sampler);
    assert_int_equal(made, t->n);
    if (t->finish != GW_FINISH_CANCELLED) {
        assert_int_equal(t->finish, end ? GW_FINISH_STOP : GW_FINISH_LENGTH);
        assert_true(end || full || r->most == 0);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

static inline int bc_left(const bc_request *all, int n) {
    int left = 0;
    for (int i = 0; i < n; i++) {
        left += !all[i].done;
    }
    return left;
}

static inline void bc_serve(gw_batch *b, bc_request *all, const bc_plan *p) {
    int submitted = 0;
    size_t work = 0;
    while (bc_left(all, p->requests) > 0) {
        while (submitted < p->requests && (p->at_once || work == 0 || random_u32() % 3 == 0)) {
            bc_request *r = &all[submitted++];
            if (r->turn && submitted > 1) {
                bc_next_turn(all, r);
            }
            bc_submit(b, r);
            work = 1;
        }
        for (int i = 0; i < submitted; i++) {
            if (all[i].held && !all[i].done && (random_u32() % 8 == 0 || work == 0)) {
                all[i].held = 0;
                gw_request_hold(all[i].handle, 0);
            }
        }
        bc_ok(gw_batch_step(b, &work));
        assert_true(gw_pages_check(b->pages));
    }
    for (int i = 0; i < p->requests; i++) {
        gw_request_free(all[i].handle);
    }
}

/* info: of its model. */
static inline uint64_t bc_host_bytes(const bc_plan *p, const gw_model_info *info,
                                     const gw_model *draft) {
    uint64_t page = info->kv_bytes_per_token;
    gw_model_info other = {.kv_bytes_per_token = 0};
    if (draft != NULL) {
        gw_model_describe(draft, &other);
    }
    page = (page + other.kv_bytes_per_token) * GW_PAGE;
    page *= p->kv_type != NULL && strcmp(p->kv_type, "f32") == 0 ? 2 : 1;
    return (uint64_t)p->host * page;
}

static inline gw_batch_stats bc_check(const bc_plan *p) {
    gw_model_options mo = {.path = p->model != NULL ? p->model : BC_MODEL,
                           .device = p->device,
                           .offload_layers = p->layers,
                           .split_mode = p->split_mode,
                           .weights = p->weights,
                           .threads = 1,
                           .exact = 1};
    gw_model *m, *alone = NULL, *draft = NULL;
    gw_session *s;
    gw_batch *b;
    gw_model_info info;
    gw_batch_options bo = {.n_ctx = BC_CTX,
                           .chunk = p->chunk,
                           .kv_type = p->kv_type,
                           .parallel = p->parallel,
                           .cache_tokens = p->tokens,
                           .queue = p->requests,
                           .disorder = p->disorder,
                           .draft_lookup = p->lookup,
                           .draft_length = p->length,
                           .read_ahead = p->read_ahead};
    gw_session_options so = {.n_ctx = BC_CTX, .kv_type = p->kv_type};
    bc_ok(gw_model_open(&mo, &m));
    gw_model_describe(m, &info);
    if (p->draft || p->mtp || p->head != NULL) {
        mo.target = mo.path;
        mo.path = p->head != NULL ? p->head : p->mtp ? mo.path : BC_DRAFT;
        mo.predictor = p->mtp;
        bc_ok(gw_model_open(&mo, &draft));
        mo.predictor = 0;
        mo.target = NULL;
        mo.path = p->model != NULL ? p->model : BC_MODEL;
    }
    bo.draft_model = draft;
    bo.cache_host_bytes = bc_host_bytes(p, &info, draft);
    bc_ok(gw_batch_new(m, &bo, &b));
    bc_request *all = bc_requests(p, info.n_vocab);
    bc_serve(b, all, p);
    gw_batch_stats stats;
    gw_batch_get_stats(b, &stats);
    assert_int_equal(stats.requests, p->requests);
    assert_int_equal(stats.pages_used, 0);
    assert_int_equal(stats.waiting + stats.running, 0);
    gw_batch_free(b);
    gw_model_free(draft);
    gw_model_free(m);
    mo.device = "cpu"; /* whose bits all devices have */
    mo.offload_layers = mo.split_mode = NULL;
    bc_ok(gw_model_open(&mo, &alone));
    bc_ok(gw_session_new(alone, &so, &s));
    for (int i = 0; i < p->requests; i++) {
        for (int k = 0; k < all[i].n; k++) {
            assert_true(all[i].text[k].ended);
            bc_alone(alone, s, &all[i], k, info.n_vocab);
        }
        if (all[i].rows && all[i].text[0].finish != GW_FINISH_CANCELLED) {
            assert_int_equal(all[i].n_rows, all[i].n_prompt - (all[i].from > 1 ? all[i].from : 1));
        }
    }
    free(all);
    gw_session_free(s);
    gw_model_free(alone);
    return stats;
}

/* A mixture of experts in 4 bits, so many requests at once: passes of more rows than drafts have,
 * in which experts have some rows, all or none. path: that of mixtral. */
static inline void bc_experts(const char *device, const char *path, int requests) {
    const bc_plan p = {.model = path,
                       .device = device,
                       .weights = "int4-g32",
                       .kv_type = "f32",
                       .requests = requests,
                       .parallel = GW_PARALLEL_MAX,
                       .chunk = 256,
                       .tokens = 64 * 2 * GW_PARALLEL_MAX,
                       .stem = 10,
                       .own = 4,
                       .answer = 7,
                       .seed = 11,
                       .at_once = 1};
    gw_batch_stats s = bc_check(&p);
    assert_true(s.rows > 10 * s.steps);
}

/* On a device: a recurrent model whose own layer drafts, from snapshots on. path: that of
 * qwen3.5-moe-mm. */
static inline void bc_states(const char *device, const char *path) {
    const uint64_t seed =
        getenv("GODWIT_BATCH_SEED") != NULL ? strtoull(getenv("GODWIT_BATCH_SEED"), NULL, 10) : 4;
    const bc_plan p = {.model = path,
                       .device = device,
                       .kv_type = "f32",
                       .requests = 7,
                       .stem = 120,
                       .own = 8,
                       .answer = 6,
                       .parallel = 3,
                       .chunk = 64,
                       .seed = seed,
                       .mtp = 1,
                       .length = "fixed:2",
                       .tokens = 64 * 8};
    gw_batch_stats s = bc_check(&p);
    print_message("  %d drafted, %d cached\n", (int)s.drafted, (int)s.cached_tokens);
    assert_true(s.drafted > 0 && s.cached_tokens > 0);
}

/* The same without drafts. */
static inline void bc_plain_states(const char *device, const char *path) {
    const bc_plan p = {.model = path,
                       .device = device,
                       .kv_type = "f32",
                       .requests = 7,
                       .stem = 120,
                       .own = 8,
                       .answer = 6,
                       .parallel = 3,
                       .chunk = 64,
                       .seed = 4,
                       .tokens = 64 * 8};
    gw_batch_stats s = bc_check(&p);
    assert_true(s.cached_tokens > 0);
}

/* Drafts of which few tokens are right, taken back; then far back, into the text and into the
 * prompt: logits behind every token. rows [BC_BACK, v] are given or, where `check` is 0, taken. */
enum { BC_PROMPT = 9, BC_BACK = 12 };

static inline void bc_back_row(gw_session *s, size_t row, size_t v, int at, int check,
                               float *rows) {
    const float *got = gw_session_logits(s, row);
    if (!check) {
        memcpy(rows + (size_t)at * v, got, v * sizeof *got);
    } else if (memcmp(rows + (size_t)at * v, got, v * sizeof *got) != 0) {
        fail_msg("other logits behind token %d of the text", at);
    }
}

static inline void bc_go_back(const char *device, const char *path, int check, float **rows) {
    gw_model_options mo = {.path = path, .device = device, .threads = 2, .exact = 1};
    gw_session_options so = {.n_ctx = 64, .chunk = 5, .kv_type = "f32"};
    gw_model_info info;
    gw_model *m = NULL;
    gw_session *s = NULL;
    int32_t ids[BC_PROMPT + BC_BACK];
    bc_ok(gw_model_open(&mo, &m));
    gw_model_describe(m, &info);
    size_t v = (size_t)info.n_vocab;
    for (int i = 0; i < BC_PROMPT + BC_BACK; i++) {
        ids[i] = (3 + i * 37) % info.n_vocab;
    }
    *rows = check ? *rows : calloc(BC_BACK * v, sizeof **rows);
    assert_non_null(*rows);
    bc_ok(gw_session_new(m, &so, &s));
    bc_ok(gw_session_prefill(s, ids, BC_PROMPT));
    for (int at = 0; !check && at < BC_BACK; at++) { /* straight on */
        bc_ok(gw_session_decode(s, ids + BC_PROMPT + at, 1));
        bc_back_row(s, 0, v, at, 0, *rows);
    }
    for (int at = 0, right = 1; check && at < BC_BACK; right = right % 4 + 1) {
        int32_t drafted[6];
        int n = BC_BACK - at < right ? BC_BACK - at : right;
        for (int k = 0; k < 6; k++) {
            drafted[k] = k < n ? ids[BC_PROMPT + at + k] : (at * 31 + k * 7) % info.n_vocab;
        }
        bc_ok(gw_session_decode(s, drafted, 6));
        for (int k = 0; k < n; k++) {
            bc_back_row(s, (size_t)k, v, at + k, 1, *rows);
        }
        at += n;
        bc_ok(gw_session_rewind(s, BC_PROMPT + at));
    }
    static const int32_t to[] = {BC_PROMPT + 3, 4};
    for (int i = 0; check && i < 2; i++) {
        int first = to[i] < BC_PROMPT ? 0 : to[i] - BC_PROMPT;
        bc_ok(gw_session_rewind(s, to[i]));
        if (to[i] < BC_PROMPT) {
            bc_ok(gw_session_prefill(s, ids + to[i], (size_t)(BC_PROMPT - to[i])));
        }
        for (int at = first; at < BC_BACK; at += 3) {
            int n = BC_BACK - at < 3 ? BC_BACK - at : 3;
            bc_ok(gw_session_decode(s, ids + BC_PROMPT + at, (size_t)n));
            for (int k = 0; k < n; k++) {
                bc_back_row(s, (size_t)k, v, at + k, 1, *rows);
            }
        }
    }
    gw_session_free(s);
    gw_model_free(m);
}

/* On a device: blocks with n-grams, whose state is the tokens before. A timeline that goes back has
 * the logits of one of the CPU that goes straight on; a batch with drafts and a small cache
 * gives the texts of requests alone. path: that of qwen4-exp. */
static inline void bc_ngrams(const char *device, const char *path) {
    float *rows = NULL;
    bc_go_back("cpu", path, 0, &rows);
    bc_go_back(device, path, 1, &rows);
    free(rows);
    const bc_plan p = {.model = path,
                       .device = device,
                       .kv_type = "f32",
                       .requests = 3,
                       .stem = 40,
                       .own = 6,
                       .answer = 5,
                       .parallel = 3,
                       .chunk = 40,
                       .seed = 4,
                       .lookup = 1,
                       .length = "fixed:2",
                       .tokens = 64 * 5};
    (void)bc_check(&p);
}

/* Rounds of 24 requests or fewer until there were as many as size says (or the environment): of its
 * device and lengths, all else drawn from its seed (or GODWIT_BATCH_SEED); what came of all. */
static inline gw_batch_stats bc_rounds(const bc_plan *size) {
    static const char *const lengths[] = {NULL, "fixed:1", "fixed:3", "fixed:15"};
    const char *given = getenv("GODWIT_BATCH_REQUESTS"), *seed = getenv("GODWIT_BATCH_SEED");
    gw_batch_stats all = {0};
    int left = given != NULL ? atoi(given) : size->requests;
    for (uint64_t round = 0; left > 0; round++) {
        random_seed((seed != NULL ? strtoull(seed, NULL, 10) : size->seed) + 1000 * round);
        bc_plan p = *size;
        p.requests = left < 24 ? left : 24;
        p.parallel = 1 + (int32_t)(random_u32() % 33);
        p.chunk = 40 + 30 * (int32_t)(random_u32() % 8);
        p.tokens = 64 * (5 + (int32_t)(random_u32() % 20));
        p.draft = random_u32() % 3 == 0;
        p.lookup = (int)(random_u32() % 3);
        p.length = lengths[random_u32() % 4];
        p.read_ahead = random_u32() % 2 == 0;
        p.seed = random_u32();
        p.disorder = random_u32() % 4 != 0 ? 1 + random_u32() : 0;
        p.host = random_u32() % 4 != 0 ? 1 + (int32_t)(random_u32() % 40) : 0;
        gw_batch_stats s = bc_check(&p);
        left -= p.requests;
        all.requests += s.requests;
        all.cancelled += s.cancelled;
        all.preemptions += s.preemptions;
        all.evictions += s.evictions;
        all.cached_tokens += s.cached_tokens;
        all.generated_tokens += s.generated_tokens;
        all.drafted += s.drafted;
        all.draft_accepted += s.draft_accepted;
        all.read_ahead += s.read_ahead;
        all.host_saved += s.host_saved;
        all.host_fetched += s.host_fetched;
    }
    print_message("%d requests, %d cancelled: %d tokens; %d preemptions, %d evictions, %d cached; "
                  "%d drafted, %d accepted; %d read ahead; %d pages saved, %d fetched\n",
                  (int)all.requests, (int)all.cancelled, (int)all.generated_tokens,
                  (int)all.preemptions, (int)all.evictions, (int)all.cached_tokens,
                  (int)all.drafted, (int)all.draft_accepted, (int)all.read_ahead,
                  (int)all.host_saved, (int)all.host_fetched);
    return all;
}

#endif
