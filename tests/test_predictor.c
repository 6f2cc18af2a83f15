/* tests/test_predictor.c - layers of a checkpoint that predict one token more, as drafts: texts
 * stay what they are, from folders and GGUF files, whatever is taken back or shifted; and such a
 * layer computes what it should, against another computation. Checkpoints:
 * tests/predictor_files.py. */
#include <math.h>
#include <unistd.h>

#include "tests/draft_rig.h"
#include "core/engine/run/session_hidden.h"

enum { CTX = 96, VOCAB = 96, N_PROMPT = 21, N_TEXT = 40 };

static char folder[64];

static int make_files(void **state) {
    (void)state;
    return rig_make(folder, "predictor_files.py", "goldens", "tests/data/goldens-families",
                    "goldens");
}

static int remove_files(void **state) {
    (void)state;
    return rig_remove(folder);
}

static gw_model *open_part(const char *name, int predictor, const char *device) {
    char path[128];
    (void)shared_path("goldens/deepseek-v3");
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gw_model_options o = {
        .path = path, .device = device, .threads = 1, .exact = 1, .predictor = predictor};
    gw_model *m = NULL;
    ok(gw_model_open(&o, &m));
    return m;
}

static void draw_ids(uint32_t seed, int32_t *ids, int n) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = 3 + (int32_t)(seed >> 8) % (VOCAB - 3);
    }
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const named_sampler samplers[] = {
    {"greedy", {.temperature = 0, FILTERED, .min_p = 0.05f, NO_PENALTY}, 0},
    {"1.5", {.temperature = 1.5f, UNFILTERED, NO_PENALTY}, 0},
    {"0.9 penalty",
     {.temperature = 0.9f, FILTERED, .repeat_penalty = 1.2f, .repeat_last_n = 32},
     0},
};

static const struct {
    const char *name, *length;
    int32_t chunk;
} cases[] = {
    {"deepseek-v3", "fixed:3", 64},      {"deepseek-v3.gguf", "fixed:1", 5},
    {"qwen3-next", "fixed:15", 64},      {"qwen3.5-moe", "heuristic", 7},
    {"qwen3.5-moe.gguf", "fixed:5", 64}, {"glm4moe", "fixed:2", 3},
};

static void same(const text *want, const text *got, const char *what, const char *which) {
    if (want->n != got->n || memcmp(want->ids, got->ids, want->n * sizeof *want->ids) != 0) {
        fail_msg("%s: another text with %s", what, which);
    }
}

/* Two turns behind each other, with a step back between them. */
static void take_turns(gw_model *m, gw_session *s, gw_drafter *d, const named_sampler *row,
                       text *out) {
    int32_t ids[2 * N_PROMPT];
    draw_ids(3, ids, 2 * N_PROMPT);
    if (d != NULL) {
        drafted_text(m, s, d, row, 5, ids, N_PROMPT, 20, GW_DECODE_MAX, out);
    } else {
        plain_text(m, s, row, 5, ids, N_PROMPT, 20, out);
    }
    int32_t left = N_PROMPT + 7;
    gw_sampler *sampler = new_sampler(m, row, 9);
    ok(gw_session_rewind(s, left));
    ok(gw_session_prefill(s, ids + N_PROMPT, N_PROMPT));
    if (d != NULL) {
        ok(gw_drafter_rewind(d, left));
        ok(gw_drafter_prompt(d, ids + N_PROMPT, N_PROMPT));
    }
    for (out->n = 0; out->n < 20;) {
        size_t got = 1;
        if (d != NULL) {
            ok(gw_drafter_next(d, sampler, out->ids + out->n, 20 - out->n, &got));
        } else {
            int32_t *token = &out->ids[out->n];
            ok(gw_sampler_pick(sampler, gw_session_logits(s, 0), gw_session_pos(s), token));
            ok(gw_sampler_accept(sampler, *token));
            ok(gw_session_decode(s, token, 1));
        }
        out->n += got;
    }
    gw_sampler_free(sampler);
}

/* Until the context is full, and through a shift. */
static void shift(gw_model *m, gw_session *s, gw_drafter *d, text *out) {
    const named_sampler *row = &samplers[1];
    int32_t ids[N_PROMPT], dropped = 0, shifted = 0;
    draw_ids(8, ids, N_PROMPT);
    gw_sampler *sampler = new_sampler(m, row, 4);
    start(s, sampler, ids, N_PROMPT);
    if (d != NULL) {
        ok(gw_drafter_rewind(d, 0));
        ok(gw_drafter_prompt(d, ids, N_PROMPT));
    }
    for (out->n = 0; out->n < 90;) {
        size_t got = 1;
        int32_t *token = &out->ids[out->n];
        if (N_PROMPT + (int32_t)out->n - shifted == 80 && shifted == 0) {
            if (d != NULL && gw_session_pos(s) < 80) { /* the last token is not in the cache yet */
                ok(gw_session_decode(s, token - 1, 1));
            }
            ok(gw_session_shift(s, 4, &dropped));
            shifted += dropped;
            if (d != NULL) {
                ok(gw_drafter_shift(d, 4, dropped));
            }
        }
        if (d != NULL) {
            size_t most = shifted > 0 ? 90 - out->n : 80 - N_PROMPT - out->n;
            ok(gw_drafter_next(d, sampler, token, most, &got));
        } else {
            ok(gw_sampler_pick(sampler, gw_session_logits(s, 0), gw_session_pos(s) + shifted,
                               token));
            ok(gw_sampler_accept(sampler, *token));
            ok(gw_session_decode(s, token, 1));
        }
        out->n += got;
    }
    gw_sampler_free(sampler);
}

static void test_texts(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        gw_model *m = open_part(cases[c].name, 0, "cpu");
        gw_model *predictor = open_part(cases[c].name, 1, "cpu");
        gw_session_options so = {.n_ctx = CTX, .chunk = cases[c].chunk};
        gw_session *plain = NULL, *s = NULL;
        ok(gw_session_new(m, &so, &plain));
        ok(gw_session_new(m, &so, &s));
        gw_drafter_options o = {.model = predictor, .length = cases[c].length, .past_end = 1};
        gw_drafter *d = NULL;
        ok(gw_drafter_new(s, &o, &d));
        for (int i = 0; i < 3; i++) {
            int32_t ids[N_PROMPT];
            text want, got;
            draw_ids((uint32_t)i + 1, ids, N_PROMPT);
            plain_text(m, plain, &samplers[i], 11, ids, N_PROMPT, N_TEXT, &want);
            drafted_text(m, s, d, &samplers[i], 11, ids, N_PROMPT, N_TEXT, GW_DECODE_MAX, &got);
            want.n = want.n < got.n ? want.n : got.n; /* the plain loop ends with the text */
            got.n = want.n;
            same(&want, &got, cases[c].name, samplers[i].name);
            take_turns(m, plain, NULL, &samplers[i], &want);
            take_turns(m, s, d, &samplers[i], &got);
            same(&want, &got, cases[c].name, "turns");
        }
        text want, got;
        shift(m, plain, NULL, &want);
        shift(m, s, d, &got);
        same(&want, &got, cases[c].name, "a shift");
        gw_draft_stats stats;
        gw_drafter_stats(d, &stats);
        print_message("  %s, %s: %d of %d drafts accepted\n", cases[c].name, cases[c].length,
                      (int)stats.accepted, (int)stats.drafted);
        if (strncmp(cases[c].length, "fixed", 5) == 0) {
            assert_true(stats.drafted > 50 && stats.accepted > 0);
        }
        gw_drafter_free(d);
        gw_session_free(s);
        gw_session_free(plain);
        gw_model_free(predictor);
        gw_model_free(m);
    }
}

/* Of what a layer drafts that is made to foresee the text; the text is the one without drafts. */
static double accepted(const char *name) {
    gw_model *m = open_part(name, 0, "cpu"), *p = open_part(name, 1, "cpu");
    gw_session *plain = open_session(m, CTX), *s = open_session(m, CTX);
    gw_drafter *d = new_drafter(s, p, 0, "fixed:3");
    int32_t ids[N_PROMPT];
    text want, got;
    gw_draft_stats stats;
    draw_ids(2, ids, N_PROMPT);
    plain_text(m, plain, &samplers[0], 11, ids, N_PROMPT, N_TEXT, &want);
    drafted_text(m, s, d, &samplers[0], 11, ids, N_PROMPT, N_TEXT, GW_DECODE_MAX, &got);
    same(&want, &got, name, "drafts");
    gw_drafter_stats(d, &stats);
    print_message("  %s: %d of %d drafts accepted\n", name, (int)stats.accepted,
                  (int)stats.drafted);
    assert_true(stats.drafted > 20);
    gw_drafter_free(d);
    gw_session_free(s);
    gw_session_free(plain);
    gw_model_free(p);
    gw_model_free(m);
    return (double)stats.accepted / (double)stats.drafted;
}

/* An embedding and a head of the layer's own, and the same layer with the model's. */
static void test_own(void **state) {
    (void)state;
    static const char *const names[][2] = {{"qwen3-next-own", "qwen3-next-own-not"},
                                           {"deepseek-v3-own", "deepseek-v3-own-not"},
                                           {"deepseek-v3-own.gguf", "deepseek-v3-own-not.gguf"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(accepted(names[i][0]) > 0.9);
        assert_true(accepted(names[i][1]) < 0.5);
    }
}

/* A drafter may come when the target holds a text already. */
static void test_late(void **state) {
    (void)state;
    gw_model *m = open_part("qwen3-next", 0, "cpu"), *p = open_part("qwen3-next", 1, "cpu");
    int32_t ids[N_PROMPT];
    text want, got = {.n = 0};
    gw_session *s = open_session(m, CTX);
    draw_ids(2, ids, N_PROMPT);
    plain_text(m, s, &samplers[1], 11, ids, N_PROMPT, N_TEXT, &want);
    gw_sampler *sampler = new_sampler(m, &samplers[1], 11);
    start(s, sampler, ids, N_PROMPT);
    gw_drafter *d = new_drafter(s, p, 0, "fixed:4");
    ok(gw_drafter_prompt(d, ids, N_PROMPT));
    while (got.n < want.n) {
        size_t n = 0;
        ok(gw_drafter_next(d, sampler, got.ids + got.n, want.n - got.n, &n));
        got.n += n;
    }
    same(&want, &got, "qwen3-next", "a late drafter");
    gw_sampler_free(sampler);
    gw_drafter_free(d);
    gw_session_free(s);
    gw_model_free(p);
    gw_model_free(m);
}

/* ---- what it computes ------------------------------------------------------------------------ */

enum { D = 64 };
typedef struct states {
    float h[CTX][D];
} states;

static gw_status keep(void *user, gw_session *s, int32_t pos, int32_t n) {
    return gw_session_hidden_read(s, 0, n, ((states *)user)->h[pos], D);
}

static int hand_back(void *user, int32_t pos, int32_t n, float *rows) {
    for (int32_t i = 0; i < n; i++) {
        memset(rows + i * D, 0, D * sizeof *rows);
        if (pos + i > 0) {
            memcpy(rows + i * D, ((states *)user)->h[pos + i - 1], D * sizeof *rows);
        }
    }
    return 0;
}

static void normed(const double *x, double *y) {
    double sum = 0;
    for (int i = 0; i < D; i++) {
        sum += x[i] * x[i];
    }
    for (int i = 0; i < D; i++) {
        y[i] = x[i] / sqrt(sum / D + 1e-6);
    }
}

static void row_of(const reference_file *f, const char *name, int32_t row, double *out) {
    const gw_stored *t = reference_find(f, name);
    float x[D];
    assert_non_null(t);
    gw_format_of(t->fmt)->decode(x, (const char *)t->data + (size_t)row * D * 2, D);
    for (int i = 0; i < D; i++) {
        out[i] = (double)x[i];
    }
}

/* The layer of "bare" adds nothing, so that logits are the head of what went into it. */
static void check_row(const reference_file *f, const float *h, int32_t token, const float *got) {
    double e[D], state[D], x[D], y[D], worst = 0, size = 0;
    row_of(f, "model.embed_tokens.weight", token, x);
    normed(x, e);
    for (int i = 0; i < D; i++) {
        x[i] = h != NULL ? (double)h[i] : 0;
    }
    normed(x, state);
    for (int i = 0; i < D; i++) {
        x[i] = 0.5 * e[(i + 1) % D] + state[(i + 3) % D];
    }
    normed(x, y);
    for (int32_t v = 0; v < 320; v++) {
        double w[D], want = 0;
        row_of(f, "lm_head.weight", v, w);
        for (int i = 0; i < D; i++) {
            want += w[i] * y[i];
        }
        worst = fmax(worst, fabs(want - (double)got[v]));
        size = fmax(size, fabs(want));
    }
    if (!(worst < 1e-5 * size)) {
        fail_msg("logits differ by %g of %g", worst, size);
    }
}

static void test_logits(void **state) {
    (void)state;
    char path[128];
    static states kept;
    reference_file f;
    gw_model *m = open_part("bare", 0, "cpu"), *p = open_part("bare", 1, "cpu");
    gw_session *s = open_session(m, CTX), *draft = open_session(p, CTX);
    int32_t ids[N_PROMPT];
    snprintf(path, sizeof path, "%s/bare/model.safetensors", folder);
    reference_open(&f, path);
    draw_ids(6, ids, N_PROMPT);
    ok(gw_session_hidden_open(s));
    gw_session_hidden_watch(s, keep, &kept);
    gw_session_hidden_source(draft, hand_back, &kept);
    ok(gw_session_prefill(s, ids, 9));
    for (int i = 9; i < N_PROMPT; i += 3) {
        ok(gw_session_decode(s, ids + i, 3));
    }
    ok(gw_session_prefill(draft, ids, 1));
    check_row(&f, NULL, ids[0], gw_session_logits(draft, 0));
    ok(gw_session_prefill(draft, ids + 1, 6));
    check_row(&f, kept.h[5], ids[6], gw_session_logits(draft, 0));
    ok(gw_session_decode(draft, ids + 7, 7));
    for (size_t i = 0; i < 7; i++) {
        check_row(&f, kept.h[6 + i], ids[7 + i], gw_session_logits(draft, i));
    }
    reference_close(&f);
    gw_session_free(draft);
    gw_session_free(s);
    gw_model_free(p);
    gw_model_free(m);
}

static void test_refusals(void **state) {
    (void)state;
    gw_model *m = NULL;
    gw_model_options o = {
        .path = shared_path("goldens/llama-mha"), .device = "cpu", .predictor = 1};
    assert_int_equal(gw_model_open(&o, &m), GW_E_UNSUPPORTED);
    assert_non_null(strstr(gw_error_text(), "family llama"));
    o.path = shared_path("goldens/qwen3-next"); /* its family may have one */
    assert_int_equal(gw_model_open(&o, &m), GW_E_METADATA);
    assert_non_null(strstr(gw_error_text(), " is missing"));
    o.path = shared_path("goldens/deepseek-v3"); /* as published */
    ok(gw_model_open(&o, &m));
    gw_model_free(m);
    o.path = shared_path("goldens/qwen3.5-moe-mm");
    ok(gw_model_open(&o, &m));
    gw_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits), cmocka_unit_test(test_texts),
                                       cmocka_unit_test(test_own), cmocka_unit_test(test_late),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
