/* tests/draft_rig.h - a target, a drafter and prompts from the held-out text, for the draft tests.
 */
#ifndef GW_TESTS_DRAFT_RIG_H
#define GW_TESTS_DRAFT_RIG_H

#include "tests/reference_files.h"

#include "core/engine/draft.h"
#include "core/engine/sampler.h"

enum { PROMPTS_MAX = 100, PROMPT_MAX = 64, TEXT_MAX = 96 };

typedef struct prompt_list {
    int32_t ids[PROMPTS_MAX][PROMPT_MAX];
    size_t n[PROMPTS_MAX];
} prompt_list;

static inline void ok(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

static inline gw_model *open_shared(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "models/%s", name);
    gw_model_options o = {.path = shared_path(path), .device = "cpu", .threads = 1};
    gw_model *m = NULL;
    ok(gw_model_open(&o, &m));
    return m;
}

static inline gw_session *open_session(gw_model *m, int32_t n_ctx) {
    gw_session_options o = {.n_ctx = n_ctx, .chunk = 64};
    gw_session *s = NULL;
    ok(gw_session_new(m, &o, &s));
    return s;
}

/* Windows of 16 to 63 tokens behind bos, evenly over the text. */
static inline void read_prompts(const gw_model *m, prompt_list *out) {
    gw_file file;
    const char *path = shared_path("models/val-time-machine.txt");
    ok(gw_file_open(path, path, &file));
    int32_t *ids;
    size_t n;
    ok(gw_tokenize(m, (const char *)file.data, file.size, 0, &ids, &n));
    assert_true(n > PROMPTS_MAX * PROMPT_MAX);
    for (size_t i = 0; i < PROMPTS_MAX; i++) {
        out->n[i] = 16 + i * 7 % (PROMPT_MAX - 16);
        out->ids[i][0] = gw_token_bos(m);
        memcpy(out->ids[i] + 1, ids + i * (n / PROMPTS_MAX), (out->n[i] - 1) * sizeof *ids);
    }
    gw_free(ids);
    gw_file_close(&file);
}

/* Every stage that the sampler has takes part in one of them. */
typedef struct named_sampler {
    const char *name;
    float temperature;
    int32_t top_k;
    float top_p, min_p, typical, repeat, presence, frequency;
    int32_t last_n;
    const char *order;
    float bias; /* on every 7th token */
} named_sampler;

static const named_sampler sampler_table[] = {
    {"greedy", 0, 40, 0.95f, 0.05f, 1, 1, 0, 0, 64, NULL, 0},
    {"0.8 filtered", 0.8f, 40, 0.95f, 0.05f, 1, 1, 0, 0, 64, NULL, 0},
    {"1.5 unfiltered", 1.5f, 0, 1, 0, 1, 1, 0, 0, 64, NULL, 0},
    {"0.8 penalties", 0.8f, 40, 0.95f, 0.05f, 1, 1.3f, 0.2f, 0.3f, 16, NULL, 0},
    {"greedy, penalties", 0, 0, 1, 0, 1, 1.2f, 0.1f, 0.1f, -1, NULL, 0},
    {"typical", 1, 0, 1, 0, 0.7f, 1, 0, 0, 64, NULL, 0},
    {"other order", 0.9f, 20, 1, 0.02f, 1, 1, 0, 0.5f, 5, "temperature;top-k;min-p;penalties", 0},
    {"bias", 0.8f, 40, 0.95f, 0, 1, 1, 0, 0, 64, NULL, -2},
};
enum { SAMPLERS = sizeof sampler_table / sizeof sampler_table[0] };

static inline gw_sampler *new_sampler(const gw_model *m, const named_sampler *row, uint64_t seed) {
    enum { BIASED = 64 };
    gw_logit_bias bias[BIASED];
    for (int i = 0; i < BIASED; i++) {
        bias[i] = (gw_logit_bias){.token = 300 + 7 * i, .bias = row->bias};
    }
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o.seed = seed;
    o.temperature = row->temperature;
    o.top_k = row->top_k;
    o.top_p = row->top_p;
    o.min_p = row->min_p;
    o.typical_p = row->typical;
    o.repeat_penalty = row->repeat;
    o.presence_penalty = row->presence;
    o.frequency_penalty = row->frequency;
    o.repeat_last_n = row->last_n;
    o.order = row->order;
    o.bias = bias;
    o.n_bias = row->bias != 0 ? BIASED : 0;
    gw_sampler *s = NULL;
    ok(gw_sampler_new(m, &o, &s));
    return s;
}

typedef struct text {
    int32_t ids[TEXT_MAX + GW_DECODE_MAX];
    size_t n;
} text;

static inline void start(gw_session *s, gw_sampler *sampler, const int32_t *ids, size_t n) {
    ok(gw_session_rewind(s, 0));
    ok(gw_session_prefill(s, ids, n));
    for (size_t i = 0; i < n; i++) {
        ok(gw_sampler_accept(sampler, ids[i]));
    }
}

/* The plain loop: pick, accept, decode. */
static inline void plain_text(const gw_model *m, gw_session *s, const named_sampler *row,
                              uint64_t seed, const int32_t *ids, size_t n_ids, size_t n,
                              text *out) {
    gw_sampler *sampler = new_sampler(m, row, seed);
    start(s, sampler, ids, n_ids);
    out->n = 0;
    while (out->n < n) {
        int32_t token;
        ok(gw_sampler_pick(sampler, gw_session_logits(s, 0), gw_session_pos(s), &token));
        out->ids[out->n++] = token;
        if (gw_token_is_end(m, token) || out->n == n) {
            break;
        }
        ok(gw_sampler_accept(sampler, token));
        ok(gw_session_decode(s, &token, 1));
    }
    gw_sampler_free(sampler);
}

/* The same by the drafter, which has been used before or not. capacity: of each call. */
static inline void drafted_text(const gw_model *m, gw_session *s, gw_drafter *d,
                                const named_sampler *row, uint64_t seed, const int32_t *ids,
                                size_t n_ids, size_t n, size_t capacity, text *out) {
    gw_sampler *sampler = new_sampler(m, row, seed);
    start(s, sampler, ids, n_ids);
    ok(gw_drafter_rewind(d, 0));
    ok(gw_drafter_prompt(d, ids, n_ids));
    out->n = 0;
    while (out->n < n) {
        size_t got = 0, room = n - out->n < capacity ? n - out->n : capacity;
        ok(gw_drafter_next(d, sampler, out->ids + out->n, room, &got));
        assert_in_range(got, 1, room);
        out->n += got;
        assert_int_equal(gw_session_pos(s), n_ids + out->n - 1);
        if (gw_token_is_end(m, out->ids[out->n - 1])) {
            break;
        }
    }
    gw_sampler_free(sampler);
}

static inline gw_drafter *new_drafter(gw_session *s, gw_model *draft, int lookup,
                                      const char *length) {
    gw_drafter_options o = {.model = draft, .lookup = lookup, .length = length};
    gw_drafter *d = NULL;
    ok(gw_drafter_new(s, &o, &d));
    return d;
}

#endif
