/* tests/next_cases.h - gw_session_next on one device against pick and decode on the host's side of
 * the CPU: equal tokens for every sampler, whatever else the session is used for in between.
 */
#ifndef GW_TESTS_NEXT_CASES_H
#define GW_TESTS_NEXT_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/run/model.h"
#include "core/engine/sampling/sampler.h"
#include "core/engine/run/session_state.h"

#define NC_MODEL "tests/data/tales-2m-q4_0.gguf"
enum { NC_CTX = 96, NC_PROMPT = 5 };
static const int32_t nc_prompt[NC_PROMPT] = {1, 403, 407, 261, 378};

static inline void nc_ok(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

typedef struct nc_rig {
    gw_model *m;
    gw_session *s;
} nc_rig;

static inline nc_rig nc_open(const char *device, const char *layers, int32_t n_ctx) {
    gw_model_options o = {
        .path = NC_MODEL, .device = device, .offload_layers = layers, .threads = 1, .exact = 1};
    gw_session_options so = {.n_ctx = n_ctx, .chunk = 16};
    nc_rig r = {0};
    nc_ok(gw_model_open(&o, &r.m));
    nc_ok(gw_session_new(r.m, &so, &r.s));
    return r;
}

static inline void nc_close(nc_rig *r) {
    gw_session_free(r->s);
    gw_model_free(r->m);
}

typedef struct nc_sampler {
    const char *name;
    gw_sampler_options o;
    int rule; /* can a device do it? */
} nc_sampler;

#define NC_PLAIN_BUT_P .typical_p = 1, .repeat_penalty = 1, .tfs_z = 1
#define NC_PLAIN .top_p = 1, NC_PLAIN_BUT_P
#define NC_MORE                                                                                    \
    .dynatemp_exponent = 1, .xtc_threshold = 0.1f, .mirostat_tau = 5, .mirostat_eta = 0.1f,        \
    .dry_base = 1.75f, .dry_allowed_length = 2, .dry_last_n = -1, .fsd_n = 3, .fsd_k = 6
#define NC_SEED .seed = 0xfedcba9876543210u
static const gw_logit_bias nc_bias[] = {{.token = 300, .bias = 2}};
/* clang-format off */
static const nc_sampler nc_samplers[] = {
    {"greedy", {NC_PLAIN, NC_MORE}, 1},
    {"greedy, filters", {.top_k = 40, .top_p = 0.9f, .min_p = 0.1f, .typical_p = 1,
                         .repeat_penalty = 1, .tfs_z = 1, NC_MORE}, 1},
    {"temperature", {NC_PLAIN, NC_MORE, .temperature = 0.9f, NC_SEED}, 1},
    {"temperature 1", {NC_PLAIN, NC_MORE, .temperature = 1, NC_SEED}, 1},
    {"top-k", {NC_PLAIN, NC_MORE, .temperature = 1.3f, .top_k = 20, NC_SEED}, 1},
    {"top-k, temperature 1", {NC_PLAIN, NC_MORE, .temperature = 1, .top_k = 5, NC_SEED}, 1},
    {"top-k alone", {NC_PLAIN, NC_MORE, .temperature = 3, .top_k = 9, .order = "top-k", NC_SEED},
     1},
    {"no stage", {NC_PLAIN, NC_MORE, .temperature = 3, .top_k = 9, .order = "top-p", NC_SEED}, 1},
    {"the other order", {NC_PLAIN, NC_MORE, .temperature = 2, .top_k = 9,
                         .order = "temperature;top-k", NC_SEED}, 0},
    {"the defaults", {NC_PLAIN_BUT_P, NC_MORE, .temperature = 0.8f, .top_k = 40, .top_p = 0.95f,
                      .min_p = 0.05f, NC_SEED}, 1},
    {"top-k, top-p", {NC_PLAIN_BUT_P, NC_MORE, .temperature = 1, .top_k = 64, .top_p = 0.7f,
                      NC_SEED}, 1},
    {"top-k, no top-p", {NC_PLAIN_BUT_P, NC_MORE, .temperature = 4, .top_k = 64, NC_SEED}, 1},
    {"top-k, min-p", {NC_PLAIN, NC_MORE, .temperature = 2, .top_k = 256, .min_p = 0.1f, NC_SEED},
     1},
    {"top-k is long", {NC_PLAIN, NC_MORE, .temperature = 2, .top_k = 257, .min_p = 0.1f, NC_SEED},
     0},
    {"min-p before top-p", {NC_PLAIN_BUT_P, NC_MORE, .temperature = 1, .top_k = 40, .top_p = 0.9f,
                            .min_p = 0.1f, .order = "top-k;min-p;top-p;temperature", NC_SEED}, 0},
    {"min-p", {NC_PLAIN, NC_MORE, .temperature = 0.9f, .min_p = 0.05f, NC_SEED}, 0},
    {"penalties", {.top_p = 1, .typical_p = 1, .tfs_z = 1, NC_MORE, .temperature = 0.9f,
                   .repeat_penalty = 1.2f, .repeat_last_n = 64, NC_SEED}, 0},
    {"greedy, penalties", {.top_p = 1, .typical_p = 1, .tfs_z = 1, NC_MORE,
                           .repeat_penalty = 1.2f, .repeat_last_n = 64}, 0},
    {"greedy, bias", {NC_PLAIN, NC_MORE, .bias = nc_bias, .n_bias = 1}, 0},
    {"dynamic temperature", {NC_PLAIN, .dynatemp_exponent = 1, .xtc_threshold = 0.1f,
                             .mirostat_tau = 5, .mirostat_eta = 0.1f, .dry_base = 1.75f,
                             .dry_allowed_length = 2, .dry_last_n = -1, .fsd_n = 3, .fsd_k = 6,
                             .temperature = 1, .dynatemp_range = 0.5f, NC_SEED}, 0},
    {"mirostat", {NC_PLAIN, NC_MORE, .temperature = 1, .mirostat = 2, NC_SEED}, 0},
};
/* clang-format on */
enum { NC_SAMPLERS = sizeof nc_samplers / sizeof nc_samplers[0] };

static inline gw_sampler *nc_sampler_new(const nc_rig *r, const gw_sampler_options *o) {
    gw_sampler *sampler = NULL;
    nc_ok(gw_sampler_new(r->m, o, &sampler));
    for (int i = 0; i < NC_PROMPT; i++) {
        nc_ok(gw_sampler_accept(sampler, nc_prompt[i]));
    }
    return sampler;
}

/* The prompt, and the first token from its logits. */
static inline int32_t nc_begin(nc_rig *r, gw_sampler *sampler) {
    int32_t token;
    nc_ok(gw_session_rewind(r->s, 0));
    nc_ok(gw_session_prefill(r->s, nc_prompt, NC_PROMPT));
    nc_ok(gw_sampler_pick(sampler, gw_session_logits(r->s, 0), NC_PROMPT, &token));
    nc_ok(gw_sampler_accept(sampler, token));
    return token;
}

/* n tokens in the plain way; positions count `shifted` more. */
static inline void nc_plain(nc_rig *r, const gw_sampler_options *o, int32_t shifted, int n,
                            int32_t *out) {
    gw_sampler *sampler = nc_sampler_new(r, o);
    out[0] = nc_begin(r, sampler);
    for (int i = 1; i < n; i++) {
        nc_ok(gw_session_decode(r->s, &out[i - 1], 1));
        nc_ok(gw_sampler_pick(sampler, gw_session_logits(r->s, 0), gw_session_pos(r->s) + shifted,
                              &out[i]));
        nc_ok(gw_sampler_accept(sampler, out[i]));
    }
    gw_sampler_free(sampler);
}

static inline void nc_same(const char *name, const int32_t *got, const int32_t *want, int n) {
    for (int i = 0; i < n; i++) {
        if (got[i] != want[i]) {
            fail_msg("%s: token %d is %d, not %d", name, i, got[i], want[i]);
        }
    }
}

static inline void nc_next(nc_rig *r, gw_sampler *sampler, int32_t token, int32_t shifted,
                           int32_t *out) {
    int32_t pos = gw_session_pos(r->s);
    nc_ok(gw_session_next(r->s, sampler, token, shifted, out));
    nc_ok(gw_sampler_accept(sampler, *out));
    assert_int_equal(gw_session_pos(r->s), pos + 1);
    assert_int_equal(gw_session_tokens(r->s)[pos], token);
}

/* Every sampler: the tokens of the plain way on the CPU. */
static inline void nc_check_samplers(nc_rig *r, nc_rig *cpu, int n) {
    for (int i = 0; i < NC_SAMPLERS; i++) {
        int32_t want[NC_CTX], got[NC_CTX];
        gw_choice rule;
        gw_sampler *sampler = nc_sampler_new(r, &nc_samplers[i].o);
        assert_int_equal(gw_sampler_rule(sampler, &rule), nc_samplers[i].rule);
        nc_plain(cpu, &nc_samplers[i].o, 7, n, want);
        got[0] = nc_begin(r, sampler);
        for (int k = 1; k < n; k++) {
            nc_next(r, sampler, got[k - 1], 7, &got[k]);
        }
        nc_same(nc_samplers[i].name, got, want, n);
        gw_sampler_free(sampler);
    }
}

/* What was begun too early is forgotten: another token than the one drawn, a rewind, a prompt, a
 * pass of several tokens, another sampler, another session of the model. */
static inline void nc_check_detours(nc_rig *r, nc_rig *cpu) {
    enum { N = 12 };
    const gw_sampler_options *o = &nc_samplers[4].o;
    gw_session_options so = {.n_ctx = NC_CTX, .chunk = 16};
    int32_t want[N], greedy[N], got[N], other;
    nc_plain(cpu, o, 0, N, want);
    nc_plain(cpu, &nc_samplers[0].o, 0, N, greedy);
    gw_sampler *sampler = nc_sampler_new(r, o), *most = nc_sampler_new(r, &nc_samplers[0].o);
    got[0] = nc_begin(r, sampler);
    nc_next(r, sampler, got[0], 0, &got[1]);
    nc_next(r, sampler, got[1], 0, &got[2]);
    nc_next(r, most, got[2] == 500 ? 501 : 500, 0, &other); /* another token */
    nc_ok(gw_session_rewind(r->s, NC_PROMPT + 2));
    nc_next(r, sampler, got[2], 0, &got[3]);
    nc_ok(gw_session_rewind(r->s, NC_PROMPT)); /* and the same tokens again */
    nc_ok(gw_session_decode(r->s, want, 3));
    nc_next(r, sampler, want[3], 0, &got[4]);
    nc_ok(gw_session_rewind(r->s, NC_PROMPT));
    nc_ok(gw_session_decode(r->s, want, 4));
    nc_next(r, sampler, want[4], 0, &got[5]);
    nc_same("detours", got, want, 6);
    nc_rig second = {.m = r->m}; /* in turn with another session */
    nc_ok(gw_session_new(r->m, &so, &second.s));
    got[0] = nc_begin(r, sampler);
    int32_t also[N] = {nc_begin(&second, most)};
    for (int i = 1; i < N; i++) {
        nc_next(r, sampler, got[i - 1], 0, &got[i]);
        nc_next(&second, most, also[i - 1], 0, &also[i]);
    }
    nc_same("one of two sessions", got, want, N);
    nc_same("the other one", also, greedy, N);
    gw_session_free(second.s); /* its next step is under way */
    nc_next(r, sampler, got[N - 1], 0, &other);
    gw_sampler_free(sampler);
    gw_sampler_free(most);
}

/* The context fills to its last position, and refuses one more; a cancelled call changes nothing;
 * nor does one with a token that is none. */
static inline void nc_check_ends(const char *device) {
    enum { CTX = NC_PROMPT + 4 };
    volatile int cancel = 0;
    gw_session_options so = {.n_ctx = CTX, .chunk = 16, .cancel = &cancel};
    nc_rig r = nc_open(device, NULL, CTX);
    gw_session_free(r.s);
    nc_ok(gw_session_new(r.m, &so, &r.s));
    gw_sampler *sampler = nc_sampler_new(&r, &nc_samplers[0].o);
    int32_t token = nc_begin(&r, sampler), kept = -7, first = token, second;
    nc_next(&r, sampler, token, 0, &token);
    second = token;
    cancel = 1;
    assert_int_equal(gw_session_next(r.s, sampler, token, 0, &kept), GW_E_CANCELLED);
    cancel = 0;
    assert_int_equal(gw_session_next(r.s, sampler, 1 << 30, 0, &kept), GW_E_ARGUMENT);
    assert_int_equal(gw_session_pos(r.s), NC_PROMPT + 1);
    while (gw_session_pos(r.s) < CTX) {
        nc_next(&r, sampler, token, 0, &token);
    }
    assert_int_equal(gw_session_next(r.s, sampler, token, 0, &kept), GW_E_CONTEXT);
    assert_int_equal(kept, -7);
    nc_ok(gw_session_rewind(r.s, NC_PROMPT));
    nc_next(&r, sampler, first, 0, &token);
    assert_int_equal(token, second);
    gw_sampler_free(sampler);
    nc_close(&r);
}

/* A cache with a NaN in it: the words of the plain way, and the session as it was. */
static inline void nc_check_numbers(nc_rig *r) {
    gw_sampler *sampler = nc_sampler_new(r, &nc_samplers[2].o);
    int32_t token = nc_begin(r, sampler), kept = -7;
    size_t bytes = gw_kv_page_bytes(&r->s->kv, 0, 0);
    unsigned char *page = malloc(bytes), *bad = malloc(bytes);
    assert_true(page != NULL && bad != NULL);
    nc_next(r, sampler, token, 0, &token);
    int32_t pos = gw_session_pos(r->s);
    nc_ok(gw_kv_read_page(&r->s->kv, 0, 0, 0, page));
    memset(bad, 0xff, bytes);
    nc_ok(gw_kv_write_page(&r->s->kv, 0, 0, 0, bad));
    gw_session_rewind(r->s, pos); /* nothing is begun */
    assert_int_equal(gw_session_next(r->s, sampler, token, 0, &kept), GW_E_NUMERIC);
    assert_non_null(strstr(gw_error_text(), "begins in layer 0"));
    assert_int_equal(gw_session_pos(r->s), pos);
    assert_int_equal(kept, -7);
    nc_ok(gw_kv_write_page(&r->s->kv, 0, 0, 0, page));
    nc_next(r, sampler, token, 0, &token);
    free(page);
    free(bad);
    gw_sampler_free(sampler);
}

/* While passes are timed nothing runs that was not asked for: every kernel is counted once per call
 * (or per layer and call), whether (forget 0) or not a step was under way before; the tokens stay
 * the same. */
static inline void nc_check_profile(nc_rig *r, nc_rig *cpu, int forget) {
    enum { N = 12, FIRST = 3, LAST = 8, ROWS = 64 };
    int32_t want[N], got[N];
    static gw_kernel_time rows[ROWS];
    int drawn = 0;
    nc_plain(cpu, &nc_samplers[0].o, 0, N, want);
    gw_sampler *sampler = nc_sampler_new(r, &nc_samplers[0].o);
    got[0] = nc_begin(r, sampler);
    for (int i = 1; i < N; i++) {
        if (i == FIRST) {
            nc_ok(forget ? gw_session_rewind(r->s, gw_session_pos(r->s)) : GW_OK);
            gw_session_profile(r->s, 1);
        }
        nc_next(r, sampler, got[i - 1], 0, &got[i]);
        if (i == LAST) {
            size_t n = gw_session_kernel_times(r->s, rows, ROWS);
            assert_in_range(n, 1, ROWS);
            for (size_t k = 0; k < n; k++) {
                if (rows[k].calls % (LAST - FIRST + 1) != 0) {
                    fail_msg("%s: %d calls in %d steps", rows[k].name, (int)rows[k].calls,
                             LAST - FIRST + 1);
                }
                drawn += strstr(rows[k].name, "sample") != NULL ? (int)rows[k].calls : 0;
            }
            assert_int_equal(drawn, LAST - FIRST + 1);
            gw_session_profile(r->s, 0);
        }
    }
    nc_same("timed", got, want, N);
    gw_sampler_free(sampler);
}

/* The tokens behind the rows of passes of 1.. tokens are those that the host picks from their
 * logits; a pass whose numbers are broken ends like one that was to give logits. */
static inline void nc_check_rows(nc_rig *r, nc_rig *cpu) {
    int32_t text[GW_DECODE_MAX], want[GW_DECODE_MAX], ids[GW_DECODE_MAX];
    nc_ok(gw_session_draw_rows(r->s));
    nc_ok(gw_session_draw_rows(r->s)); /* is there */
    for (int i = 0; i < GW_DECODE_MAX; i++) {
        text[i] = 300 + 37 * i;
    }
    for (int i = 0; i < NC_SAMPLERS; i++) {
        size_t n = 1 + (size_t)i * 5 % GW_DECODE_MAX;
        int shifted = i, drawn = -7;
        gw_choice rule;
        gw_sampler *sampler = nc_sampler_new(r, &nc_samplers[i].o);
        (void)nc_begin(cpu, sampler);
        (void)nc_begin(r, sampler);
        if (gw_sampler_rule(sampler, &rule)) {
            rule.first += shifted;
            nc_ok(gw_session_decode(cpu->s, text, n));
            for (size_t k = 0; k < n; k++) {
                nc_ok(gw_sampler_pick(sampler, gw_session_logits(cpu->s, k),
                                      NC_PROMPT + 1 + (int)k + shifted, &want[k]));
            }
            nc_ok(gw_session_decode_begin(r->s, text, n));
            nc_ok(gw_session_draw_end(r->s, &rule, ids, &drawn));
            assert_int_equal(drawn, 1);
            nc_same(nc_samplers[i].name, ids, want, (int)n);
            assert_int_equal(gw_session_pos(r->s), NC_PROMPT + (int)n);
            assert_memory_equal(gw_session_tokens(r->s) + NC_PROMPT, text, n * sizeof *text);
            assert_null(gw_session_logits(r->s, 0));
        }
        gw_sampler_free(sampler);
    }
}

/* Rows behind a NaN in the cache: the words of the plain way, and the session as it was. */
static inline void nc_check_rows_numbers(nc_rig *r) {
    const gw_choice greedy = {.first = 1};
    int32_t ids[GW_DECODE_MAX], text[3] = {400, 401, 402};
    gw_sampler *sampler = nc_sampler_new(r, &nc_samplers[0].o);
    size_t bytes = gw_kv_page_bytes(&r->s->kv, 0, 0);
    unsigned char *page = malloc(bytes), *bad = malloc(bytes);
    int drawn = 1;
    assert_true(page != NULL && bad != NULL);
    (void)nc_begin(r, sampler);
    nc_ok(gw_kv_read_page(&r->s->kv, 0, 0, 0, page));
    memset(bad, 0xff, bytes);
    nc_ok(gw_kv_write_page(&r->s->kv, 0, 0, 0, bad));
    nc_ok(gw_session_decode_begin(r->s, text, 3));
    assert_int_equal(gw_session_draw_end(r->s, &greedy, ids, &drawn), GW_E_NUMERIC);
    assert_int_equal(drawn, 0);
    assert_non_null(strstr(gw_error_text(), "begins in layer 0"));
    assert_int_equal(gw_session_pos(r->s), NC_PROMPT);
    nc_ok(gw_kv_write_page(&r->s->kv, 0, 0, 0, page));
    nc_ok(gw_session_decode(r->s, text, 3));
    free(page);
    free(bad);
    gw_sampler_free(sampler);
}

/* A drafter that finds nothing: the text of the plain way, and once that is usual, the next step is
 * begun before it is asked for where that can be. */
static inline void nc_check_idle_drafter(nc_rig *r, nc_rig *cpu, int ahead) {
    enum { N = 20 };
    const gw_sampler_options *o = &nc_samplers[3].o;
    const gw_drafter_options drafts = {.lookup = 1, .length = "fixed:4"};
    int32_t want[N], got[N];
    int begun = 0;
    gw_drafter *d = NULL;
    gw_draft_stats stats;
    nc_plain(cpu, o, 0, N, want);
    gw_sampler *sampler = nc_sampler_new(r, o);
    nc_ok(gw_session_rewind(r->s, 0));
    nc_ok(gw_session_prefill(r->s, nc_prompt, NC_PROMPT));
    nc_ok(gw_drafter_new(r->s, &drafts, &d));
    nc_ok(gw_drafter_prompt(d, nc_prompt, NC_PROMPT));
    for (size_t n = 0, more; n < N; n += more) {
        nc_ok(gw_drafter_next(d, sampler, got + n, 1, &more)); /* no room for a draft */
        begun += r->s->ahead;
    }
    nc_same("with a drafter that is idle", got, want, N);
    gw_drafter_stats(d, &stats);
    assert_int_equal(stats.plain, N - 1);
    assert_true(ahead ? begun > 8 : begun == 0);
    gw_drafter_free(d);
    gw_sampler_free(sampler);
}

/* n: tokens per sampler. draws: the device must have drawn, and (ahead) begun early. */
static inline void nc_check(const char *device, const char *layers, int n, int ahead) {
    nc_rig cpu = nc_open("cpu", NULL, NC_CTX), r = nc_open(device, layers, NC_CTX);
    assert_non_null(r.s->next);
    assert_int_equal(r.s->post[0] != NULL, ahead);
    nc_check_samplers(&r, &cpu, n);
    nc_check_detours(&r, &cpu);
    nc_check_numbers(&r);
    nc_check_profile(&r, &cpu, 0);
    nc_check_profile(&r, &cpu, 1);
    nc_check_rows(&r, &cpu);
    nc_check_rows_numbers(&r);
    nc_check_idle_drafter(&r, &cpu, ahead);
    nc_close(&r);
    nc_close(&cpu);
    nc_check_ends(device);
}

#endif
