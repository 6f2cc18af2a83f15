/* tests/predictor_cases.h - layers that predict one token more, of families in
 * tests/predictor_families.py: what they draft is what PyTorch drafts (tools/predictor_goldens.py),
 * token by token, from folders and from GGUF files. */
#ifndef GW_TESTS_PREDICTOR_CASES_H
#define GW_TESTS_PREDICTOR_CASES_H

#include <jansson.h>
#include <unistd.h>

#include "tests/draft_rig.h"
#include "core/engine/run/session_hidden.h"

enum { PC_CTX = 32, PC_D = 64, PC_STEPS = 3 };

static char pc_folder[64];

static inline int pc_make(void **state) {
    (void)state;
    return rig_make(pc_folder, "predictor_families.py", "goldens", "tests/data/goldens-families",
                    "goldens");
}

static inline int pc_remove(void **state) {
    (void)state;
    return rig_remove(pc_folder);
}

static inline gw_session *pc_open(const char *name, int predictor, const char *device,
                                  gw_model **m) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", pc_folder, name);
    gw_model_options mo = {
        .path = path, .device = device, .threads = 1, .exact = 1, .predictor = predictor};
    gw_session_options so = {.n_ctx = PC_CTX, .chunk = 5, .kv_type = "f32"};
    gw_session *s = NULL;
    ok(gw_model_open(&mo, m));
    ok(gw_session_new(*m, &so, &s));
    ok(gw_session_hidden_open(s));
    return s;
}

typedef struct pc_states {
    size_t width;
    int32_t own_pos;             /* from there on states are the layer's */
    float target[PC_CTX * PC_D]; /* of the target, after each position     */
    float own[PC_D];             /* of the layer, after its last row       */
} pc_states;

static inline gw_status pc_keep(void *user, gw_session *s, int32_t pos, int32_t n) {
    pc_states *h = user;
    return gw_session_hidden_read(s, 0, n, h->target + (size_t)pos * h->width, (int32_t)h->width);
}

static inline gw_status pc_keep_own(void *user, gw_session *s, int32_t pos, int32_t n) {
    pc_states *h = user;
    (void)pos;
    return gw_session_hidden_read(s, n - 1, 1, h->own, (int32_t)h->width);
}

static inline int pc_give(void *user, int32_t pos, int32_t n, float *rows) {
    const pc_states *h = user;
    const size_t bytes = h->width * sizeof *rows;
    for (int32_t i = 0; i < n; i++, rows += h->width) {
        int32_t at = pos + i - 1;
        memset(rows, 0, bytes);
        if (at >= 0) {
            memcpy(rows, at < h->own_pos ? h->target + (size_t)at * h->width : h->own, bytes);
        }
    }
    return 0;
}

/* FNV-1a of the logits, so that another device can be held to their bits. */
static inline uint64_t pc_digest(uint64_t before, const float *logits, int32_t n) {
    const unsigned char *bytes = (const unsigned char *)logits;
    for (size_t i = 0; i < (size_t)n * sizeof *logits; i++) {
        before = (before ^ bytes[i]) * 0x100000001b3u;
    }
    return before;
}

/* Drafts after every position; later steps take the text's tokens and the layer's own states. */
static inline uint64_t pc_text(gw_session *target, gw_session *layer, pc_states *h,
                               const json_t *given, const char *name) {
    size_t n, wrong = 0, checked = 0;
    int32_t *ids = json_ids(json_object_get(given, "ids"), &n);
    const json_t *want = json_object_get(given, "drafts");
    const int32_t vocab = gw_model_n_vocab(gw_session_model(layer));
    uint64_t digest = 0xcbf29ce484222325u;
    ok(gw_session_rewind(target, 0));
    ok(gw_session_rewind(layer, 0));
    ok(gw_session_prefill(target, ids, n));
    h->own_pos = (int32_t)n;
    ok(gw_session_prefill(layer, ids, 1));
    for (size_t p = 1; p < n; p++) {
        h->own_pos = (int32_t)n;
        ok(gw_session_rewind(layer, (int32_t)p));
        ok(gw_session_prefill(layer, ids + p, 1));
        h->own_pos = (int32_t)p;
        for (size_t k = 0; k < PC_STEPS && p + k < n; k++) {
            if (k > 0) {
                ok(gw_session_decode(layer, ids + p + k, 1));
            }
            const float *logits = gw_session_logits(layer, 0);
            const json_t *is = json_array_get(json_array_get(want, k), p - 1);
            wrong += largest(logits, 96) != (int32_t)json_integer_value(is);
            digest = pc_digest(digest, logits, vocab);
            checked++;
        }
    }
    print_message("  %s: %zu of %zu drafts are those of PyTorch\n", name, checked - wrong, checked);
    if (wrong > 0 || checked < 70) {
        fail_msg("%s: %zu of %zu drafts are not those of PyTorch", name, wrong, checked);
    }
    free(ids);
    return digest;
}

/* The layer of `file`, for the model in folder `name`, which computes on the CPU. */
static inline uint64_t pc_family(const char *name, const char *file, const char *device) {
    static pc_states h;
    uint64_t digest = 0;
    gw_model *model = NULL, *predictor = NULL;
    (void)shared_path("goldens/nemotron-h-moe");
    json_t *all = json_load_file("tests/data/predictors.json", 0, NULL);
    assert_non_null(all);
    gw_session *target = pc_open(name, 0, "cpu", &model);
    gw_session *layer = pc_open(file, 1, device, &predictor);
    h.width = (size_t)gw_session_hidden_width(target);
    assert_true(h.width <= PC_D);
    gw_session_hidden_watch(target, pc_keep, &h);
    gw_session_hidden_watch(layer, pc_keep_own, &h);
    gw_session_hidden_source(layer, pc_give, &h);
    const json_t *texts = json_object_get(all, name);
    assert_true(json_array_size(texts) > 0);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        digest ^= pc_text(target, layer, &h, json_array_get(texts, i), file);
    }
    gw_session_free(layer);
    gw_session_free(target);
    gw_model_free(predictor);
    gw_model_free(model);
    json_decref(all);
    return digest;
}

/* The same bits on a device as on the CPU. */
static inline void pc_same_bits(const char *name, const char *device) {
    assert_true(pc_family(name, name, "cpu") == pc_family(name, name, device));
}

#endif
