/* tests/draft_rig.h - a target, a drafter and prompts from the held-out text, for the draft tests.
 */
#ifndef GW_TESTS_DRAFT_RIG_H
#define GW_TESTS_DRAFT_RIG_H

#include <unistd.h>

#include "tests/reference_files.h"

#include "core/engine/drafting/draft.h"
#include "core/engine/sampling/sampler.h"

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

/* A folder of /tmp that tests/SCRIPT fills, whose first argument is `from` in GODWIT_SHARED and
 * whose second is `more`, if any; folder [64] stays empty where GODWIT_SHARED has no `needs`. */
static inline int rig_make(char *folder, const char *script, const char *from, const char *more,
                           const char *needs) {
    char command[700], path[300];
    const char *given = getenv("GODWIT_SHARED"), *root = given != NULL ? given : "../shared";
    snprintf(path, sizeof path, "%s/%s", root, needs);
    if (gw_path_look(path) != GW_PATH_FOLDER) {
        return 0; /* tests are skipped */
    }
    snprintf(folder, 64, "/tmp/drafts-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "python3 tests/%s %s/%s %s %s", script, root, from, more,
             folder);
    return system(command) == 0 ? 0 : -1;
}

static inline int rig_remove(const char *folder) {
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return folder[0] != '\0' ? system(command) : 0;
}

/* weights: NULL for those of the file. layers: offloaded to the device, NULL for all. */
static inline gw_model *open_on(const char *name, const char *weights, const char *device,
                                const char *layers) {
    char path[128];
    snprintf(path, sizeof path, "models/%s", name);
    gw_model_options o = {.path = shared_path(path),
                          .weights = weights,
                          .device = device,
                          .offload_layers = layers,
                          .threads = 1,
                          .exact = 1};
    gw_model *m = NULL;
    ok(gw_model_open(&o, &m));
    return m;
}

static inline gw_model *open_shared(const char *name) { return open_on(name, NULL, "cpu", NULL); }

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
        memcpy(out->ids[i] + 1, ids + i * (n / PROMPTS_MAX), (PROMPT_MAX - 1) * sizeof *ids);
    }
    gw_free(ids);
    gw_file_close(&file);
}

/* Every option that the sampler has is in force in one of them: a new one is a row here, and then
 * met by each weight format, draft length, source and device. */
typedef struct named_sampler {
    const char *name;
    gw_sampler_options o; /* all but seed and bias */
    float bias;           /* on some tokens        */
} named_sampler;

#define FILTERED .top_k = 40, .top_p = 0.95f, .typical_p = 1
#define UNFILTERED .top_p = 1, .typical_p = 1
#define NO_PENALTY .repeat_penalty = 1, .repeat_last_n = 64
static const named_sampler sampler_table[] = {
    {"greedy", {.temperature = 0, FILTERED, .min_p = 0.05f, NO_PENALTY}, 0},
    {"0.8 filtered", {.temperature = 0.8f, FILTERED, .min_p = 0.05f, NO_PENALTY}, 0},
    {"1.5 unfiltered", {.temperature = 1.5f, UNFILTERED, NO_PENALTY}, 0},
    {"0.8 penalties",
     {.temperature = 0.8f,
      FILTERED,
      .min_p = 0.05f,
      .repeat_penalty = 1.3f,
      .presence_penalty = 0.2f,
      .frequency_penalty = 0.3f,
      .repeat_last_n = 16},
     0},
    {"greedy, penalties",
     {.temperature = 0,
      UNFILTERED,
      .repeat_penalty = 1.2f,
      .presence_penalty = 0.1f,
      .frequency_penalty = 0.1f,
      .repeat_last_n = -1},
     0},
    {"typical", {.temperature = 1, .top_p = 1, .typical_p = 0.7f, NO_PENALTY}, 0},
    {"other order",
     {.temperature = 0.9f,
      .top_k = 20,
      UNFILTERED,
      .min_p = 0.02f,
      .repeat_penalty = 1,
      .frequency_penalty = 0.5f,
      .repeat_last_n = 5,
      .order = "temperature;top-k;min-p;penalties"},
     0},
    {"bias", {.temperature = 0.8f, FILTERED, NO_PENALTY}, -2},
    {"dynamic, sigma, tail-free, xtc",
     {.temperature = 1,
      UNFILTERED,
      NO_PENALTY,
      .dynatemp_range = 0.7f,
      .dynatemp_exponent = 1.5f,
      .top_n_sigma = 2,
      .tfs_z = 0.95f,
      .xtc_probability = 0.5f,
      .xtc_threshold = 0.05f},
     0},
    {"mirostat 1, dry",
     {.temperature = 1,
      UNFILTERED,
      NO_PENALTY,
      .mirostat = 1,
      .mirostat_tau = 3,
      .mirostat_eta = 0.5f,
      .dry_multiplier = 1.5f,
      .dry_base = 1.5f,
      .dry_allowed_length = 1,
      .dry_last_n = 30},
     0},
    {"mirostat 2",
     {.temperature = 0.9f,
      UNFILTERED,
      NO_PENALTY,
      .mirostat = 2,
      .mirostat_tau = 2,
      .mirostat_eta = 1},
     0},
    {"randomised fsd",
     {.temperature = 0.8f,
      FILTERED,
      NO_PENALTY,
      .fsd_alpha = 0.4f,
      .fsd_n = 2,
      .fsd_k = 4,
      .fsd_random = 10},
     0},
};
enum { SAMPLERS = sizeof sampler_table / sizeof sampler_table[0] };

static inline gw_sampler *new_sampler(const gw_model *m, const named_sampler *row, uint64_t seed) {
    enum { BIASED = 64 };
    gw_logit_bias bias[BIASED];
    for (int i = 0; i < BIASED; i++) {
        bias[i] = (gw_logit_bias){.token = 300 + 7 * i, .bias = row->bias};
    }
    gw_sampler_options o = row->o, usual;
    gw_sampler_defaults(&usual); /* where 0 is not "off" */
    o.tfs_z = o.tfs_z > 0 ? o.tfs_z : usual.tfs_z;
    o.dry_base = o.dry_base > 0 ? o.dry_base : usual.dry_base;
    o.dry_allowed_length += o.dry_allowed_length == 0;
    o.fsd_n += o.fsd_n == 0;
    o.fsd_k += o.fsd_k == 0;
    o.seed = seed;
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
