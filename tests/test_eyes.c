/* tests/test_eyes.c - vision towers and models that see against transformers: rows of a picture,
 * logits of a prompt with it, greedy ids; and one text whatever the chunk. Small checkpoints with
 * random weights: tools/eyes_goldens.py. KV cache in f32, as the references were made. */
#include "tests/eyes_cases.h"

#include <math.h>

#include "core/model/spec.h"

#define CLOSE_ENOUGH 2e-5 /* norm of the difference over norm of the reference */

static double difference(const float *have, const float *want, size_t n) {
    double diff = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)have[i] - (double)want[i];
        diff += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(diff / norm);
}

static void check_rows(const example *x) {
    const gw_stored *want = reference_find(&x->file, "features");
    assert_int_equal(gw_sight_rows(x->sight), want->dim[0]);
    double d =
        difference(gw_sight_row(x->sight, 0), want->data, (size_t)(want->dim[0] * want->dim[1]));
    print_message("rows differ by %.2e\n", d);
    assert_true(d <= CLOSE_ENOUGH);
}

static int32_t best_of(const float *x, int64_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

/* Logits after the prompt, and what follows greedily; bits of them to out. */
static void check_text(const example *x, int32_t chunk, float *out) {
    const gw_stored *want = reference_find(&x->file, "logits");
    const int64_t v = want->dim[1];
    gw_session *s;
    gw_session_options options = {.kv_type = "f32", .chunk = chunk, .n_ctx = 96};
    must(gw_session_new(x->model, &options, &s));
    must(gw_session_prefill_seen(s, x->ids, x->n, x->seen, x->n_seen));
    double d = difference(gw_session_logits(s, 0),
                          (const float *)want->data + (want->dim[0] - 1) * v, (size_t)v);
    print_message("chunk %d: logits differ by %.2e\n", chunk, d);
    assert_true(d <= CLOSE_ENOUGH);
    memcpy(out, gw_session_logits(s, 0), (size_t)v * sizeof *out);
    for (size_t i = 0; i < x->n_greedy; i++) {
        int32_t id = best_of(gw_session_logits(s, 0), v);
        assert_int_equal(id, x->greedy[i]);
        must(gw_session_decode(s, &id, 1));
    }
    gw_session_free(s);
}

static void check_family(const char *folder, int32_t least_chunk) {
    example x;
    float bits[2][512];
    char path[600], mmproj[640];
    snprintf(path, sizeof path, "tests/data/goldens-eyes/%s", folder);
    open_example(&x, path, NULL, NULL, 1);
    check_rows(&x);
    check_text(&x, 64, bits[0]);
    check_text(&x, least_chunk, bits[1]);
    assert_memory_equal(bits[0], bits[1], sizeof bits[0][0] * 16);
    gw_sight *again;
    must(gw_model_see(x.model, &x.patches, &again));
    assert_ptr_equal(again, x.sight); /* a picture is read once */
    gw_sight_free(again);
    close_example(&x);
    snprintf(mmproj, sizeof mmproj, "%s/mmproj.gguf", path);
    open_example(&x, path, mmproj, NULL, 1);
    check_rows(&x);
    close_example(&x);
}

static void qwen3vl(void **state) {
    (void)state;
    check_family("qwen3vl", 7);
}

static void qwen35(void **state) {
    (void)state;
    check_family("qwen35", 5);
}

static void qwen2vl(void **state) {
    (void)state;
    check_family("qwen2vl", 1);
}

static void qwen25vl(void **state) {
    (void)state;
    check_family("qwen25vl", 9);
}

static void mistral3(void **state) {
    (void)state;
    check_family("mistral3", 6);
}

static void gemma3(void **state) {
    (void)state;
    check_family("gemma3", 5);
}

static void gemma4(void **state) {
    (void)state;
    check_family("gemma4", 4);
}

static void gemma4e(void **state) {
    (void)state;
    check_family("gemma4e", 6);
}

static void smolvlm(void **state) {
    (void)state;
    check_family("smolvlm", 8);
}

static void asleep(void **state) {
    (void)state;
    eyes_asleep("cpu", 0);
}

/* Files of early 2025 have the names of up and down exchanged. */
static void exchanged_names(void **state) {
    (void)state;
    example x;
    open_example(&x, "tests/data/goldens-eyes/smolvlm",
                 "tests/data/goldens-eyes/smolvlm/mmproj-old.gguf", NULL, 1);
    check_rows(&x);
    close_example(&x);
}

static void internvl(void **state) {
    (void)state;
    check_family("internvl", 3);
}

/* Other names in the folder, and no mmproj of its own. */
static void internvlchat(void **state) {
    (void)state;
    example x;
    float bits[64];
    open_example(&x, "tests/data/goldens-eyes/internvlchat", NULL, NULL, 1);
    check_rows(&x);
    check_text(&x, 64, bits);
    close_example(&x);
}

static void internvl6b(void **state) {
    (void)state;
    check_family("internvl6b", 10);
}

static void lfm2vl(void **state) {
    (void)state;
    check_family("lfm2vl", 2);
}

/* Both in GGUF files, whose q and k stand otherwise than in the folder. */
static void glm4v(void **state) {
    (void)state;
    example x;
    float bits[512];
    check_family("glm4v", 7);
    open_example(&x, "tests/data/goldens-eyes/glm4v/text.gguf",
                 "tests/data/goldens-eyes/glm4v/mmproj.gguf", NULL, 1);
    check_rows(&x);
    check_text(&x, 5, bits);
    close_example(&x);
}

static void glm4vmoe(void **state) {
    (void)state;
    check_family("glm4vmoe", 3);
}

static void kimivl(void **state) {
    (void)state;
    check_family("kimivl", 5);
}

static void kimik25(void **state) {
    (void)state;
    check_family("kimik25", 4);
}

static void llama4(void **state) {
    (void)state;
    check_family("llama4", 6);
}

/* ---- many requests -------------------------------------------------------------------------- */

enum { AFTER = 50, MOST = 200, MADE = 6, RUNS = 16 };

typedef struct heard {
    int32_t ids[MADE], cached;
    size_t n;
    int ended;
} heard;

static void hear(void *user, const gw_event *e) {
    heard *h = user;
    if (e->kind == GW_EVENT_TOKEN && h->n < MADE) {
        h->ids[h->n++] = e->token;
    }
    h->ended |= e->kind == GW_EVENT_END;
    h->cached = e->n_cached;
}

/* A prompt with a whole page of text, the picture, and text again. */
typedef struct long_prompt {
    int32_t ids[MOST];
    size_t n;
    gw_seen_rows seen[2][RUNS]; /* of the example's picture, and of another of its size */
} long_prompt;

static void make_prompt(const example *x, gw_sight *other, size_t ahead, long_prompt *p) {
    assert_true(x->n + ahead + AFTER <= MOST && x->n_seen <= RUNS);
    p->n = 0;
    for (size_t i = 0; i < ahead; i++) {
        p->ids[p->n++] = 5 + (int32_t)(i % 3);
    }
    memcpy(p->ids + p->n, x->ids, x->n * sizeof *x->ids);
    p->n += x->n;
    for (int i = 0; i < AFTER; i++) {
        p->ids[p->n++] = 9;
    }
    for (size_t i = 0; i < x->n_seen; i++) {
        p->seen[0][i] = p->seen[1][i] = x->seen[i];
        p->seen[0][i].at = p->seen[1][i].at = x->seen[i].at + ahead;
        p->seen[1][i].sight = other;
    }
}

/* Both pictures at once, to h [2]. */
static void ask_both(gw_batch *b, const example *x, const long_prompt *p, heard *h) {
    gw_request *request[2];
    gw_sampler_options greedy;
    gw_sampler_defaults(&greedy);
    greedy.temperature = 0.0f;
    for (int i = 0; i < 2; i++) {
        gw_request_options options = {.tokens = p->ids,
                                      .n_tokens = p->n,
                                      .sampler = &greedy,
                                      .max_tokens = MADE,
                                      .ignore_eos = 1,
                                      .event = hear,
                                      .user = &h[i],
                                      .seen = p->seen[i],
                                      .n_seen = x->n_seen};
        must(gw_batch_submit(b, &options, &request[i]));
    }
    size_t work = 1;
    for (int steps = 0; steps < 2000 && !(h[0].ended && h[1].ended); steps++) {
        must(gw_batch_step(b, &work));
    }
    gw_request_free(request[0]);
    gw_request_free(request[1]);
}

static void check_alone(const example *x, const long_prompt *p, const heard *h) {
    gw_session *s;
    gw_session_options options = {.kv_type = "f32", .n_ctx = MOST + MADE};
    gw_model_info info;
    gw_model_describe(x->model, &info);
    must(gw_session_new(x->model, &options, &s));
    for (int i = 0; i < 2; i++) {
        must(gw_session_rewind(s, 0));
        must(gw_session_prefill_seen(s, p->ids, p->n, p->seen[i], x->n_seen));
        for (int k = 0; k < MADE; k++) {
            int32_t id = best_of(gw_session_logits(s, 0), info.n_vocab);
            assert_int_equal(h[i].ids[k], id);     /* two pictures, pages of text shared   */
            assert_int_equal(h[2 + i].ids[k], id); /* again, out of pages with the picture */
            must(gw_session_decode(s, &id, 1));
        }
    }
    gw_session_free(s);
}

/* Requests with two pictures of one size: each has the text that it has alone, and pages with a
 * picture are found by what it holds, not by its placeholders. */
static void check_requests(const char *folder, size_t ahead, int32_t again) {
    example x;
    long_prompt p;
    gw_sight *second;
    gw_batch *b;
    heard h[4] = {0};
    open_example(&x, folder, NULL, NULL, 1);
    const size_t n = (size_t)(x.patches.n * x.patches.width);
    gw_patches other = x.patches;
    other.values = calloc(n, sizeof *other.values);
    for (size_t i = 0; i < n; i++) {
        other.values[i] = -x.patches.values[i];
    }
    other.digest[0] ^= 1;
    must(gw_model_see(x.model, &other, &second));
    make_prompt(&x, second, ahead, &p);
    gw_batch_options options = {.n_ctx = MOST + MADE, .chunk = 5, .kv_type = "f32", .parallel = 3};
    must(gw_batch_new(x.model, &options, &b));
    ask_both(b, &x, &p, h);
    ask_both(b, &x, &p, h + 2);
    assert_int_equal(h[1].cached, 64); /* the page of text in front of the pictures */
    assert_int_equal(h[2].cached, again);
    assert_int_equal(h[3].cached, again);
    check_alone(&x, &p, h);
    gw_batch_free(b);
    gw_sight_free(second);
    free(other.values);
    close_example(&x);
}

static void many_requests(void **state) {
    (void)state;
    check_requests("tests/data/goldens-eyes/qwen3vl", 70, 128);
    check_requests("tests/data/goldens-eyes/gemma3", 70, 128);
}

/* A page that ends within a picture whose rows see one another is not gone on from. */
static void picture_across_pages(void **state) {
    (void)state;
    check_requests("tests/data/goldens-eyes/gemma3", 104, 64);
}

static void within_a_picture(void **state) {
    (void)state;
    example x;
    gw_session *s;
    gw_session_options options = {.kv_type = "f32", .chunk = 3, .n_ctx = 96};
    open_example(&x, "tests/data/goldens-eyes/gemma3", NULL, NULL, 1);
    must(gw_session_new(x.model, &options, &s));
    must(gw_session_prefill_seen(s, x.ids, x.n, x.seen, x.n_seen));
    const int32_t at = (int32_t)x.seen[0].at;
    assert_int_equal(gw_session_rewind(s, at + 1), GW_E_ARGUMENT);
    must(gw_session_rewind(s, at));
    gw_session_free(s);
    options.n_ctx = 15; /* 16 rows do not fit */
    must(gw_session_new(x.model, &options, &s));
    x.seen[0].at = 0;
    assert_int_equal(gw_session_prefill_seen(s, x.ids, 16, x.seen, 1), GW_E_LIMIT);
    gw_session_free(s);
    close_example(&x);
}

/* ---- between parts of a tower --------------------------------------------------------------- */

enum { PARTS = 6 }; /* three layers, and what three of them give the decoder */

/* Stops before part `stop`; decodes a token before each. */
typedef struct course {
    int calls, stop;
    gw_session *session;
    int32_t token[PARTS];
} course;

static int between(void *user) {
    course *c = user;
    if (c->calls == c->stop) {
        return 1;
    }
    if (c->session != NULL && c->calls < PARTS) {
        c->token[c->calls] = best_of(gw_session_logits(c->session, 0), 64);
        must(gw_session_decode(c->session, &c->token[c->calls], 1));
    }
    c->calls++;
    return 0;
}

/* A picture is given up between parts and seen again; texts go on meanwhile, and neither has other
 * bits for it. */
static void between_parts(void **state) {
    (void)state;
    static const int32_t prompt[] = {5, 6, 7};
    example x;
    gw_sight *sight = NULL;
    gw_session *s;
    const gw_session_options options = {.kv_type = "f32", .n_ctx = 96};
    open_example(&x, "tests/data/goldens-eyes/qwen3vl", NULL, NULL, 1);
    must(gw_session_new(x.model, &options, &s));
    must(gw_session_prefill(s, prompt, 3));
    x.patches.digest[0] ^= 1;
    for (int stop = 0; stop < PARTS; stop++) {
        course c = {.stop = stop};
        assert_int_equal(gw_model_see_between(x.model, &x.patches, between, &c, &sight),
                         GW_E_CANCELLED);
        assert_int_equal(c.calls, stop);
        assert_null(sight);
    }
    course c = {.stop = -1, .session = s};
    must(gw_model_see_between(x.model, &x.patches, between, &c, &sight));
    assert_int_equal(c.calls, PARTS);
    assert_memory_equal(gw_sight_row(sight, 0), gw_sight_row(x.sight, 0),
                        (size_t)gw_sight_rows(sight) * 3 * 32 * sizeof(float));
    must(gw_session_rewind(s, 0));
    must(gw_session_prefill(s, prompt, 3));
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(best_of(gw_session_logits(s, 0), 64), c.token[i]);
        must(gw_session_decode(s, &c.token[i], 1));
    }
    gw_session_free(s);
    gw_sight_free(sight);
    close_example(&x);
}

/* ---- whose tower it is ---------------------------------------------------------------------- */

/* Rows of all of these have 32 columns. */
static void other_towers(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"qwen3vl", "gemma3"}, {"qwen2vl", "qwen3vl"}, {"gemma3", "gemma4"}, {"glm4v", "kimivl"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char path[200], mmproj[200];
        gw_model *m = NULL;
        snprintf(path, sizeof path, "tests/data/goldens-eyes/%s", pairs[i][0]);
        snprintf(mmproj, sizeof mmproj, "tests/data/goldens-eyes/%s/mmproj.gguf", pairs[i][1]);
        const gw_model_options options = {.path = path, .mmproj = mmproj, .images = 1};
        assert_int_equal(gw_model_open(&options, &m), GW_E_METADATA);
        assert_non_null(strstr(gw_error_text(), "another family"));
    }
}

/* Each tower says whose it is, by names of families, and at which token its rows stand. */
static void decoders(void **state) {
    (void)state;
    const gw_spec *spec;
    int n = 0;
    for (size_t i = 0; (spec = gw_spec_at(i)) != NULL; i++) {
        char names[256], token[64];
        gw_spec_words(spec, "decoders", names, sizeof names);
        int tower = strstr(gw_spec_family(spec), "-vision") != NULL;
        assert_int_equal(names[0] != '\0', tower);
        gw_spec_words(spec, "placeholder", token, sizeof token);
        assert_int_equal(token[0] != '\0', tower);
        for (char *rest, *name = strtok_r(names, " ", &rest); name != NULL;
             name = strtok_r(NULL, " ", &rest), n++) {
            assert_non_null(gw_spec_named(name, strlen(name)));
            assert_true(gw_spec_sees_for(spec, name));
        }
    }
    assert_true(n >= 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3vl),
        cmocka_unit_test(qwen35),
        cmocka_unit_test(qwen2vl),
        cmocka_unit_test(qwen25vl),
        cmocka_unit_test(mistral3),
        cmocka_unit_test(gemma3),
        cmocka_unit_test(gemma4),
        cmocka_unit_test(gemma4e),
        cmocka_unit_test(smolvlm),
        cmocka_unit_test(exchanged_names),
        cmocka_unit_test(internvl),
        cmocka_unit_test(internvl6b),
        cmocka_unit_test(internvlchat),
        cmocka_unit_test(lfm2vl),
        cmocka_unit_test(glm4v),
        cmocka_unit_test(glm4vmoe),
        cmocka_unit_test(kimivl),
        cmocka_unit_test(kimik25),
        cmocka_unit_test(llama4),
        cmocka_unit_test(many_requests),
        cmocka_unit_test(picture_across_pages),
        cmocka_unit_test(within_a_picture),
        cmocka_unit_test(between_parts),
        cmocka_unit_test(asleep),
        cmocka_unit_test(other_towers),
        cmocka_unit_test(decoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
