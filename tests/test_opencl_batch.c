/* tests/test_opencl_batch.c - many requests at once on the first OpenCL device. Without a device
 * everything is skipped. GODWIT_OPENCL set: its settings instead of the own ones. */
#include "tests/reference_files.h"

#include "tests/batch_cases.h"
#include "tests/pocl.h"

static void in_disorder(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    bc_rounds(&(bc_plan){.device = "opencl", .requests = 8});
}

static void states(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    bc_states("opencl", shared_path("goldens/qwen3.5-moe-mm"));
    bc_plain_states("opencl", "tests/data/goldens-families/rwkv7");
    bc_plain_states("opencl", "tests/data/goldens-families/jamba");
}

static void experts(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    bc_experts("opencl", shared_path("goldens/mixtral"), 40);
}

static void ngrams(void **state) {
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    bc_ngrams("opencl", shared_path("goldens/qwen4-exp"));
}

/* Rows of the first pass of a prompt of 1,100 tokens, one of which takes `seconds`. */
static int32_t first_pass(gw_model *model, int32_t chunk, double seconds) {
    const gw_batch_options bo = {.n_ctx = 1200, .chunk = chunk, .parallel = 2};
    int32_t ids[1100];
    gw_batch *b = NULL;
    gw_request *handle = NULL;
    size_t work;
    for (int32_t i = 0; i < 1100; i++) {
        ids[i] = i % 997 + 1;
    }
    const gw_request_options ro = {.tokens = ids, .n_tokens = 1100, .max_tokens = 1};
    bc_ok(gw_batch_new(model, &bo, &b));
    b->prompt_row_seconds = seconds;
    bc_ok(gw_batch_submit(b, &ro, &handle));
    bc_ok(gw_batch_step(b, &work));
    int32_t rows = (int32_t)b->stats.prompt_tokens;
    gw_request_free(handle);
    gw_batch_free(b);
    return rows;
}

static void passes_that_keep_nobody_waiting(void **state) {
    const gw_model_options mo = {.path = BC_MODEL, .device = "opencl", .offload_layers = "all"};
    gw_model *model = NULL;
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    bc_ok(gw_model_open(&mo, &model));
    assert_int_equal(first_pass(model, 0, 1e-9), 1024);
    assert_int_equal(first_pass(model, 0, 1.0), 512); /* a slow card */
    int32_t some = first_pass(model, 0, 0.25 / 800);
    assert_true(some > 700 && some <= 800);
    assert_int_equal(first_pass(model, 960, 1.0), 960); /* as was asked for */
    gw_model_free(model);
}

static void takes_the_narrowest(gw_session *s) {
    static const int32_t rows[] = {1, 128, 129, 512, 513, 1024};
    for (int i = 0; i < 6; i++) {
        int first = i < 4 ? s->short_prompt_pass[i / 2] : s->first_prompt_pass;
        s->step.n = rows[i];
        assert_ptr_equal(gw_prompt_pass(s, 1), &s->passes[first + 1]);
    }
}

/* One text is read in pieces that passes of different widths take. Stages start without waiting for
 * those in front of them. */
static void pieces_of_any_length(void **state) {
    static const size_t pieces[] = {60, 130, 520, 40};
    enum { PIECES = sizeof pieces / sizeof pieces[0], TOKENS = 750 };
    static const char *const devices[] = {"cpu", "opencl"};
    float *rows[2][PIECES] = {{NULL}};
    int32_t ids[TOKENS];
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", "no-cache,any-floats", 0);
    for (int32_t i = 0; i < TOKENS; i++) {
        ids[i] = i * 37 % 997 + 1;
    }
    size_t n_vocab = 0;
    for (int d = 0; d < 2; d++) {
        const gw_model_options mo = {.path = "models/tales-21m-q4_k_m.gguf",
                                     .device = devices[d],
                                     .offload_layers = d > 0 ? "all" : NULL};
        const gw_session_options so = {.n_ctx = 1100};
        gw_model *model = NULL;
        gw_session *session = NULL;
        bc_ok(gw_model_open(&mo, &model));
        bc_ok(gw_session_new(model, &so, &session));
        assert_int_equal(gw_session_chunk(session), d > 0 ? 1024 : 512);
        for (int k = 0; k < GW_PROMPT_PLANS; k++) { /* cards have passes of fewer rows, of stages */
            assert_int_equal(session->short_prompt_pass[k] > 0, d > 0);
        }
        assert_true(session->n_prompt_passes - session->first_prompt_pass > d);
        if (d > 0) {
            takes_the_narrowest(session);
        }
        n_vocab = (size_t)gw_model_n_vocab(model);
        size_t at = 0;
        for (int i = 0; i < PIECES; at += pieces[i], i++) {
            session->row_seconds = 1e-9; /* as on a fast card */
            bc_ok(gw_session_prefill(session, ids + at, pieces[i]));
            rows[d][i] = malloc(n_vocab * sizeof(float));
            assert_non_null(rows[d][i]);
            memcpy(rows[d][i], gw_session_logits(session, 0), n_vocab * sizeof(float));
        }
        gw_session_free(session);
        gw_model_free(model);
    }
    for (int i = 0; i < PIECES; i++) {
        assert_memory_equal(rows[0][i], rows[1][i], n_vocab * sizeof(float));
        free(rows[0][i]);
        free(rows[1][i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_disorder),
                                       cmocka_unit_test(states),
                                       cmocka_unit_test(experts),
                                       cmocka_unit_test(ngrams),
                                       cmocka_unit_test(passes_that_keep_nobody_waiting),
                                       cmocka_unit_test(pieces_of_any_length)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
