/* tests/test_session.c - sessions: one text however it is fed, rewind, errors, no allocation. */
#include "tests/count_alloc.h"
#include "tests/reference_files.h"

#include <math.h>
#include <unistd.h>

#include "core/engine/run/model.h"
#include "tests/sanitized.h"

enum { N_IDS = 150 };

/* A trained model's file, opened on a device with a session. */
typedef struct rig {
    gw_model *m;
    gw_session *s;
    int32_t v;
    int32_t ids[N_IDS];
} rig;

static void new_session(rig *r, const gw_session_options *o) {
    gw_session_free(r->s);
    r->s = NULL;
    if (gw_session_new(r->m, o, &r->s) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

static rig open_rig(const char *file, const char *device, const char *weights) {
    char path[128];
    snprintf(path, sizeof path, "models/%s", file);
    gw_model_options o = {.path = shared_path(path), .device = device, .weights = weights};
    rig r = {0};
    if (gw_model_open(&o, &r.m) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    gw_model_info info;
    gw_model_describe(r.m, &info);
    r.v = info.n_vocab;
    uint32_t x = 1;
    for (int i = 0; i < N_IDS; i++) { /* any ids do */
        x = x * 1664525u + 1013904223u;
        r.ids[i] = i == 0 ? 1 : (int32_t)(x >> 8) % r.v;
    }
    return r;
}

static void close_rig(rig *r) {
    gw_session_free(r->s);
    gw_model_free(r->m);
}

typedef struct rows_copy {
    float *all;
    size_t v, next;
} rows_copy;

static int copy_row(void *user, size_t row, const float *logits) {
    rows_copy *c = user;
    assert_int_equal(row, c->next); /* in order, each once */
    memcpy(c->all + row * c->v, logits, c->v * sizeof(float));
    c->next++;
    return 0;
}

static float *new_rows(const rig *r) {
    float *all = malloc((size_t)N_IDS * (size_t)r->v * sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < (size_t)N_IDS * (size_t)r->v; i++) {
        all[i] = NAN;
    }
    return all;
}

/* Logits of all rows as a prompt in chunks of `chunk`. */
static float *prompt_rows(rig *r, int32_t chunk, const char *kv) {
    gw_session_options o = {.chunk = chunk, .kv_type = kv};
    new_session(r, &o);
    rows_copy c = {.all = new_rows(r), .v = (size_t)r->v};
    assert_int_equal(gw_session_prefill_rows(r->s, r->ids, N_IDS, 0, copy_row, &c), GW_OK);
    assert_int_equal(c.next, N_IDS);
    assert_int_equal(gw_session_pos(r->s), N_IDS);
    assert_memory_equal(gw_session_logits(r->s, 0), c.all + (size_t)(N_IDS - 1) * c.v,
                        c.v * sizeof(float));
    assert_null(gw_session_logits(r->s, 1));
    return c.all;
}

/* Logits of all rows, `width` at a time in decode order. */
static float *decode_rows(rig *r, size_t width) {
    gw_session_options o = {.kv_type = "f16"};
    new_session(r, &o);
    float *all = new_rows(r);
    for (size_t at = 0; at < N_IDS; at += width) {
        size_t n = N_IDS - at < width ? N_IDS - at : width;
        assert_int_equal(gw_session_decode(r->s, r->ids + at, n), GW_OK);
        for (size_t i = 0; i < n; i++) {
            memcpy(all + (at + i) * (size_t)r->v, gw_session_logits(r->s, i),
                   (size_t)r->v * sizeof(float));
        }
        assert_null(gw_session_logits(r->s, n));
    }
    return all;
}

static double distance(const float *a, const float *b, size_t n) {
    double diff = 0.0, norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(diff / norm);
}

/* ---- one text ------------------------------------------------------------------------------- */

/* most: how far prompts and generated tokens may be apart. */
static void check_one_text(const char *file, const char *weights, double most) {
    rig r = open_rig(file, "cpu", weights);
    size_t n = (size_t)N_IDS * (size_t)r.v;
    float *whole = prompt_rows(&r, 512, "f16");
    static const int32_t chunks[] = {1, 17, 64};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        float *other = prompt_rows(&r, chunks[i], "f16");
        if (memcmp(whole, other, n * sizeof(float)) != 0) {
            fail_msg("%s: chunks of %d give other bits than chunks of 512", file, chunks[i]);
        }
        free(other);
    }
    float *single = decode_rows(&r, 1);
    for (size_t width = 2; width <= GW_DECODE_MAX; width += width < 5 ? 1 : 3) {
        float *other = decode_rows(&r, width);
        if (memcmp(single, other, n * sizeof(float)) != 0) {
            fail_msg("%s: %zu rows at once give other bits than one", file, width);
        }
        free(other);
    }
    double apart = distance(single, whole, n);
    print_message("  %s %s: decode and prefill are %.2g apart\n", file, weights ? weights : "",
                  apart);
    assert_true(apart < most);
    free(single);
    free(whole);
    close_rig(&r);
}

static void test_one_text(void **state) {
    (void)state;
    /* Two orders of the same sums; of formats with integer scales, two scales of the input too. */
    const double orders = 2e-2, scales = 3e-2;
    check_one_text("tales-2m-f16.gguf", NULL, orders);
    check_one_text("tales-2m-q4_k_m.gguf", NULL, scales);
    check_one_text("tales-2m-f16.gguf", "int4-g64", orders);
    if (!TEST_SANITIZED) { /* a session knows nothing of formats */
        check_one_text("tales-2m-q8_0.gguf", NULL, orders);
        check_one_text("tales-2m-q4_0.gguf", NULL, orders);
        check_one_text("tales-2m-q6_k.gguf", NULL, scales);
        check_one_text("tales-2m-f16.gguf", "int8", orders);
    }
}

static void count_pause(void *user) { ++*(int *)user; }

/* A pass of decode that pauses between its layers gives the bits of one that does not. */
static void test_pauses(void **state) {
    (void)state;
    enum { PARTS = 8 }; /* a layer each: the embedding, six of them and the head */
    rig r = open_rig("tales-21m-q4_0.gguf", "cpu", NULL);
    gw_session_options o = {.n_ctx = 64};
    size_t row = (size_t)r.v * sizeof(float);
    float *want = malloc(3 * row);
    assert_non_null(want);
    for (int round = 0; round < 2; round++) { /* and the second time of asking cuts nothing more */
        int pauses = 0;
        new_session(&r, &o);
        assert_int_equal(gw_session_decode(r.s, r.ids, 3), GW_OK);
        memcpy(want, gw_session_logits(r.s, 0), 3 * row);
        for (int again = 0; again <= round; again++) {
            assert_int_equal(gw_session_pause(r.s, count_pause, &pauses), GW_OK);
        }
        assert_int_equal(gw_session_rewind(r.s, 0), GW_OK);
        assert_int_equal(gw_session_decode(r.s, r.ids, 3), GW_OK);
        assert_memory_equal(gw_session_logits(r.s, 0), want, 3 * row);
        assert_in_range(pauses, 5, PARTS - 1);
        int before = pauses;
        assert_int_equal(gw_session_pause(r.s, NULL, NULL), GW_OK);
        assert_int_equal(gw_session_decode(r.s, r.ids + 3, 1), GW_OK);
        assert_int_equal(pauses, before);
    }
    free(want);
    close_rig(&r);
}

/* A chunk so long that its layers run in several stages gives the bits of short chunks. */
static void test_stages(void **state) {
    (void)state;
    rig r = open_rig("tales-21m-q4_0.gguf", "cpu", NULL);
    size_t row = (size_t)r.v * sizeof(float);
    float *whole = malloc(row);
    assert_non_null(whole);
    static const int32_t chunks[] = {1024, 64};
    for (int i = 0; i < 2; i++) {
        gw_session_options o = {.chunk = chunks[i]};
        new_session(&r, &o);
        assert_int_equal(gw_session_prefill(r.s, r.ids, N_IDS), GW_OK);
        if (i == 0) {
            memcpy(whole, gw_session_logits(r.s, 0), row);
        }
        assert_memory_equal(whole, gw_session_logits(r.s, 0), row);
    }
    free(whole);
    close_rig(&r);
}

/* The cache in 16 bits costs little; ref and cpu agree about the model. */
static void test_kv_types_and_devices(void **state) {
    (void)state;
    rig r = open_rig("tales-2m-f16.gguf", "cpu", NULL),
        ref = open_rig("tales-2m-f16.gguf", "ref", NULL);
    size_t n = (size_t)N_IDS * (size_t)r.v;
    float *eight = prompt_rows(&r, 64, "q8_0"), *again = prompt_rows(&r, 7, "q8_0");
    assert_memory_equal(eight, again, n * sizeof(float));
    float *half = prompt_rows(&r, 64, "f16"), *full = prompt_rows(&r, 64, "f32");
    float *oracle = prompt_rows(&ref, 64, "f32");
    assert_true(memcmp(half, full, n * sizeof(float)) != 0);
    assert_true(distance(half, full, n) < 5e-3);
    assert_true(distance(eight, full, n) < 2e-2);
    assert_true(distance(eight, full, n) > distance(half, full, n));
    free(eight);
    eight = prompt_rows(&ref, 64, "q8_0"); /* the oracle rounds a code elsewhere now and then */
    assert_true(distance(again, eight, n) < 5e-3);
    free(eight);
    free(again);
    /* Chunks leave no trace, and each bit less costs more. */
    double last = distance(half, full, n);
    static const char *const packed[] = {"q8_0,q5_0", "q5_0", "q5_0,q4_0", "q4_0"};
    for (int i = 0; i < 4; i++) {
        float *one = prompt_rows(&r, 64, packed[i]), *two = prompt_rows(&r, 7, packed[i]);
        assert_memory_equal(one, two, n * sizeof(float));
        assert_true(distance(one, full, n) > last);
        last = distance(one, full, n);
        assert_true(last < (i < 2 ? 0.5 : 1.0));
        free(two);
        two = prompt_rows(&ref, 64, packed[i]);
        assert_true(distance(one, two, n) < 0.1);
        free(one);
        free(two);
    }
    assert_true(distance(full, oracle, n) < 1e-5);
    free(half);
    free(full);
    free(oracle);
    close_rig(&r);
    close_rig(&ref);
}

/* ---- rewind --------------------------------------------------------------------------------- */

static void test_rewind(void **state) {
    (void)state;
    rig r = open_rig("tales-2m-q4_0.gguf", "cpu", NULL);
    gw_session_options o = {.n_ctx = 256};
    new_session(&r, &o);
    size_t row = (size_t)r.v * sizeof(float);
    float *first = malloc(row);
    assert_non_null(first);
    assert_int_equal(gw_session_prefill(r.s, r.ids, 100), GW_OK);
    assert_int_equal(gw_session_decode(r.s, r.ids + 100, 1), GW_OK);
    memcpy(first, gw_session_logits(r.s, 0), row);
    /* Another continuation, forgotten again, leaves no trace. */
    assert_int_equal(gw_session_decode(r.s, r.ids + 110, 16), GW_OK);
    assert_int_equal(gw_session_rewind(r.s, 100), GW_OK);
    assert_null(gw_session_logits(r.s, 0));
    assert_int_equal(gw_session_pos(r.s), 100);
    assert_int_equal(gw_session_decode(r.s, r.ids + 100, 1), GW_OK);
    assert_memory_equal(first, gw_session_logits(r.s, 0), row);
    assert_int_equal(gw_session_rewind(r.s, 0), GW_OK);
    assert_int_equal(gw_session_prefill(r.s, r.ids, 100), GW_OK);
    assert_int_equal(gw_session_decode(r.s, r.ids + 100, 1), GW_OK);
    assert_memory_equal(first, gw_session_logits(r.s, 0), row);
    assert_int_equal(gw_session_rewind(r.s, 102), GW_E_ARGUMENT);
    assert_int_equal(gw_session_rewind(r.s, -1), GW_E_ARGUMENT);
    assert_int_equal(gw_session_pos(r.s), 101);
    free(first);
    close_rig(&r);
}

/* ---- errors --------------------------------------------------------------------------------- */

static int stop_at_row(void *user, size_t row, const float *logits) {
    (void)logits;
    return row == *(const size_t *)user;
}

static void test_context(void **state) {
    (void)state;
    rig r = open_rig("tales-2m-q4_0.gguf", "cpu", NULL);
    gw_session_options o = {.n_ctx = 20, .chunk = 8};
    new_session(&r, &o);
    size_t row = (size_t)r.v * sizeof(float);
    assert_int_equal(gw_session_n_ctx(r.s), 20);
    assert_int_equal(gw_session_prefill(r.s, r.ids, 21), GW_E_CONTEXT);
    assert_int_equal(gw_session_pos(r.s), 0);
    assert_int_equal(gw_session_prefill(r.s, r.ids, 18), GW_OK);
    float *kept = malloc(row);
    assert_non_null(kept);
    memcpy(kept, gw_session_logits(r.s, 0), row);
    assert_int_equal(gw_session_decode(r.s, r.ids, 3), GW_E_CONTEXT);
    assert_non_null(strstr(gw_error_text(), "21"));
    assert_int_equal(gw_session_pos(r.s), 18);
    assert_memory_equal(kept, gw_session_logits(r.s, 0), row); /* unchanged */
    assert_int_equal(gw_session_decode(r.s, r.ids, 2), GW_OK);
    assert_int_equal(gw_session_decode(r.s, r.ids, 1), GW_E_CONTEXT);
    free(kept);
    close_rig(&r);
}

static void test_bad_arguments(void **state) {
    (void)state;
    rig r = open_rig("tales-2m-q4_0.gguf", "cpu", NULL);
    static const gw_session_options bad[] = {
        {.n_ctx = -1},     {.chunk = -1},   {.chunk = GW_CHUNK_MAX + 1},
        {.kv_type = "q8"}, {.kv_type = ""}, {.kv_type = "q4_1"},
        {.kv_type = ","},  {.kv_type = "q8_0,"}, {.kv_type = "q8_0,q4_0,q4_0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gw_session *s = NULL;
        assert_int_equal(gw_session_new(r.m, &bad[i], &s), GW_E_ARGUMENT);
        assert_null(s);
    }
    gw_session_options huge = {.n_ctx = INT32_MAX, .kv_type = "f32"};
    gw_session *s = NULL;
    assert_int_equal(gw_session_new(r.m, &huge, &s), GW_E_NOMEM);
    assert_non_null(strstr(gw_error_text(), "TB"));
    new_session(&r, NULL);
    const int32_t outside[] = {1, r.v}, negative[] = {-1};
    assert_int_equal(gw_session_prefill(r.s, outside, 2), GW_E_ARGUMENT);
    assert_int_equal(gw_session_decode(r.s, negative, 1), GW_E_ARGUMENT);
    assert_int_equal(gw_session_prefill(r.s, r.ids, 0), GW_E_ARGUMENT);
    assert_int_equal(gw_session_decode(r.s, r.ids, 0), GW_E_ARGUMENT);
    assert_int_equal(gw_session_decode(r.s, r.ids, GW_DECODE_MAX + 1), GW_E_ARGUMENT);
    assert_int_equal(gw_session_pos(r.s), 0);
    assert_null(gw_session_logits(r.s, 0));

    static const gw_model_options wrong[] = {
        {.path = "x.gguf", .threads = -1},
        {.path = NULL},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gw_model *m = NULL;
        assert_int_equal(gw_model_open(&wrong[i], &m), GW_E_ARGUMENT);
        assert_null(m);
    }
    const char *q4 = shared_path("models/tales-2m-q4_0.gguf");
    const gw_model_options no_device = {.path = q4, .device = "abacus"};
    const gw_model_options no_floats = {.path = q4, .weights = "int8"};
    const gw_model_options no_format = {.path = q4, .weights = "int3"};
    gw_model *m = NULL;
    assert_int_equal(gw_model_open(&no_device, &m), GW_E_DEVICE);
    assert_non_null(strstr(gw_error_text(), "cpu"));
    assert_int_equal(gw_model_open(&no_floats, &m), GW_E_ARGUMENT);
    assert_int_equal(gw_model_open(&no_format, &m), GW_E_ARGUMENT);
    assert_non_null(strstr(gw_error_text(), "int4-g128"));
    assert_null(m);
    close_rig(&r);
}

static void test_cancel(void **state) {
    (void)state;
    static volatile int cancel;
    rig r = open_rig("tales-2m-q4_0.gguf", "cpu", NULL);
    gw_session_options o = {.chunk = 16, .cancel = &cancel};
    cancel = 0;
    new_session(&r, &o);
    size_t stop = 40;
    assert_int_equal(gw_session_prefill_rows(r.s, r.ids, N_IDS, 0, stop_at_row, &stop),
                     GW_E_CANCELLED);
    assert_int_equal(gw_session_pos(r.s), 0);
    cancel = 1;
    assert_int_equal(gw_session_prefill(r.s, r.ids, N_IDS), GW_E_CANCELLED);
    assert_int_equal(gw_session_decode(r.s, r.ids, 1), GW_E_CANCELLED);
    assert_int_equal(gw_session_pos(r.s), 0);
    gw_model_options mo = {.path = shared_path("models/tales-2m-q4_0.gguf"), .cancel = &cancel};
    gw_model *m = NULL;
    assert_int_equal(gw_model_open(&mo, &m), GW_E_CANCELLED);
    assert_null(m);
    cancel = 0;
    assert_int_equal(gw_session_prefill(r.s, r.ids, N_IDS), GW_OK);
    close_rig(&r);
}

static void test_not_finite(void **state) {
    (void)state;
    gw_model_options o = {.path = shared_path("badfiles/gguf-model-weights-nan.gguf")};
    gw_model *m = NULL;
    gw_session *s = NULL;
    assert_int_equal(gw_model_open(&o, &m), GW_OK);
    assert_int_equal(gw_session_new(m, NULL, &s), GW_OK);
    const int32_t ids[] = {1, 2, 3};
    assert_int_equal(gw_session_prefill(s, ids, 3), GW_E_NUMERIC);
    assert_non_null(strstr(gw_error_text(), "not finite"));
    assert_int_equal(gw_session_pos(s), 0);
    assert_null(gw_session_logits(s, 0));
    assert_int_equal(gw_session_decode(s, ids, 1), GW_E_NUMERIC);
    assert_int_equal(gw_session_pos(s), 0);
    gw_session_free(s);
    gw_model_free(m);
}

/* A folder without a tokenizer runs on ids; text functions say so. */
static void test_no_tokenizer(void **state) {
    (void)state;
    gw_model_options o = {.path = shared_path("goldens/llama-mha")};
    gw_model *m = NULL;
    assert_int_equal(gw_model_open(&o, &m), GW_OK);
    int32_t *ids = NULL;
    size_t n = 0;
    gw_stream *stream = NULL;
    char *text = NULL;
    const int32_t one = 1;
    assert_int_equal(gw_tokenize(m, "a", 1, 0, &ids, &n), GW_E_UNSUPPORTED);
    assert_int_equal(gw_detokenize(m, &one, 1, 0, &text, &n), GW_E_UNSUPPORTED);
    assert_int_equal(gw_stream_new(m, &stream), GW_E_UNSUPPORTED);
    assert_int_equal(gw_token_bos(m), -1);
    assert_int_equal(gw_token_is_end(m, 2), 0);
    assert_true(ids == NULL && text == NULL && stream == NULL);
    gw_model_free(m);
    o.vocab_only = 1;
    assert_int_equal(gw_model_open(&o, &m), GW_E_UNSUPPORTED);
}

/* ---- what a model says about itself --------------------------------------------------------- */

typedef struct progress_log {
    uint64_t last, total;
    int calls;
} progress_log;

static void log_progress(void *user, uint64_t done, uint64_t total) {
    progress_log *log = user;
    assert_true(done >= log->last && done <= total);
    log->last = done;
    log->total = total;
    log->calls++;
}

static void test_describe(void **state) {
    (void)state;
    progress_log log = {0};
    gw_model_options o = {.path = shared_path("models/tales-2m-q4_0.gguf"),
                          .device = "cpu",
                          .threads = 1,
                          .progress = log_progress,
                          .progress_user = &log};
    gw_model *m = NULL;
    assert_int_equal(gw_model_open(&o, &m), GW_OK);
    gw_model_info info;
    gw_model_describe(m, &info);
    assert_string_equal(info.architecture, "llama");
    assert_string_equal(info.format, "Q4_0");
    assert_int_equal(info.n_layers, 2);
    assert_int_equal(info.d_model, 256);
    assert_int_equal(info.n_vocab, 4096);
    assert_int_equal(info.n_ctx_train, 1024);
    assert_int_equal(info.threads, 1);
    /* 2 layers of q 256, k 128, v 128, o 256, gate 512, up 512 rows of 256 and down 256 of 512; the
     * head is the embedding: 4096 rows of 256. Norms: 5 of 256 floats. */
    uint64_t layer = 256 * 256 + 2 * 128 * 256 + 256 * 256 + 2 * 512 * 256 + 256 * 512;
    assert_int_equal(info.n_params, 2 * layer + 4096 * 256 + 5 * 256);
    gw_model_options f16 = {.path = shared_path("models/tales-2m-f16.gguf"), .device = "cpu"};
    gw_model *half = NULL;
    assert_int_equal(gw_model_open(&f16, &half), GW_OK);
    gw_model_describe(half, &info);
    assert_string_equal(info.format, "F16");
    assert_int_equal(info.decode_bytes, 2 * (2 * layer + 4096 * 256) + 4 * 5 * 256);
    assert_int_equal(info.kv_bytes_per_token, 2 * 2 * 2 * 64 * 2);
    assert_true(log.calls > 10 && log.last == log.total && log.total > 1000000);
    double rate[2] = {0};
    assert_int_equal(gw_model_read_memory(m, &rate[0]), GW_OK); /* takes the memory for it */
    assert_int_equal(gw_model_read_memory(m, &rate[1]), GW_OK);
    assert_true(rate[0] > 0 && rate[1] > 0);
    gw_model_free(half);
    gw_model_free(m);
}

static void test_kernel_times(void **state) {
    (void)state;
    rig r = open_rig("tales-2m-q4_0.gguf", "cpu", NULL);
    new_session(&r, NULL);
    assert_int_equal(gw_session_kernel_times(r.s, NULL, 0), 0);
    gw_session_profile(r.s, 1);
    assert_int_equal(gw_session_prefill(r.s, r.ids, 10), GW_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(gw_session_decode(r.s, r.ids, 1), GW_OK);
    }
    gw_session_profile(r.s, 0 + 1); /* reset */
    assert_int_equal(gw_session_kernel_times(r.s, NULL, 0), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(gw_session_decode(r.s, r.ids, 1), GW_OK);
    }
    gw_kernel_time rows[32];
    size_t n = gw_session_kernel_times(r.s, rows, 32);
    assert_in_range(n, 8, 16);
    double bytes = 0.0;
    int heads = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(rows[i].seconds > 0.0 && rows[i].bytes > 0.0 && rows[i].ops >= 0.0);
        int in_layer = strcmp(rows[i].what, "attn_qkv") == 0;
        int head = strcmp(rows[i].what, "head") == 0;
        assert_true(!in_layer || rows[i].calls == 10); /* 5 tokens, 2 layers */
        assert_true(!head || rows[i].calls == 5);
        heads += head;
        bytes += rows[i].bytes;
        assert_non_null(strstr(rows[i].name, "cpu."));
    }
    assert_int_equal(heads, 1);
    gw_model_info info;
    gw_model_describe(r.m, &info);
    /* Weights once per token, and little besides. */
    assert_true(bytes > 5.0 * (double)info.decode_bytes);
    assert_true(bytes < 5.0 * (double)info.decode_bytes * 1.2);
    close_rig(&r);
}

/* ---- nothing is allocated after gw_session_new ---------------------------------------------- */

static int ignore_row(void *user, size_t row, const float *logits) {
    (void)user, (void)row, (void)logits;
    return 0;
}

static void check_no_allocation(const char *file, const char *device) {
    rig r = open_rig(file, device, NULL);
    gw_session_options o = {.chunk = 32};
    new_session(&r, &o);
    size_t before = atomic_load(&allocations);
    assert_int_equal(gw_session_prefill(r.s, r.ids, 70), GW_OK);
    assert_int_equal(gw_session_prefill_rows(r.s, r.ids, 40, 3, ignore_row, NULL), GW_OK);
    for (size_t n = 1; n <= GW_DECODE_MAX; n++) {
        assert_int_equal(gw_session_decode(r.s, r.ids, n), GW_OK);
        assert_int_equal(gw_session_rewind(r.s, 100), GW_OK);
    }
    size_t after = atomic_load(&allocations);
    assert_int_equal(after, before);
    close_rig(&r);
}

static void test_no_allocation(void **state) {
    (void)state;
    if (!COUNTS_ALLOCATIONS) {
        print_message("SKIP: allocations cannot be counted in this build\n");
        skip();
    }
    size_t before = atomic_load(&allocations);
    free(malloc(1)); /* the counter works: the compiler must not drop this */
    void *volatile kept = malloc(1);
    free(kept);
    assert_true(atomic_load(&allocations) > before);
    check_no_allocation("tales-2m-q4_k_m.gguf", "cpu");
    check_no_allocation("tales-2m-f16.gguf", "cpu");
    check_no_allocation("tales-2m-q4_0.gguf", "ref");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_text),      cmocka_unit_test(test_stages),
        cmocka_unit_test(test_pauses),        cmocka_unit_test(test_kv_types_and_devices),
        cmocka_unit_test(test_rewind),        cmocka_unit_test(test_context),
        cmocka_unit_test(test_bad_arguments), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_not_finite),    cmocka_unit_test(test_no_tokenizer),
        cmocka_unit_test(test_describe),      cmocka_unit_test(test_kernel_times),
        cmocka_unit_test(test_no_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
