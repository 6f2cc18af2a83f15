/* tests/test_bind.c - what bindings of other languages need: copies of sessions, waiting for work
 * of a batch, sizes of structs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "include/godwit_bind.h"

static const char *const model_path = "tests/data/tales-2m-q4_0.gguf";
enum { PROMPT = 70, N_IDS = 90 };

typedef struct rig {
    gw_model *m;
    size_t row; /* bytes of a row of logits */
    int32_t ids[N_IDS];
} rig;

static void must(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

static rig open_rig(void) {
    rig r = {0};
    gw_model_options o = {.path = model_path, .threads = 1};
    must(gw_model_open(&o, &r.m));
    gw_model_info info;
    gw_model_describe(r.m, &info);
    r.row = (size_t)info.n_vocab * sizeof(float);
    for (int i = 0; i < N_IDS; i++) {
        r.ids[i] = 1 + i * 37 % (info.n_vocab - 1);
    }
    return r;
}

static gw_session *new_session(const rig *r, int32_t n_ctx, const char *kv) {
    gw_session *s = NULL;
    gw_session_options o = {.n_ctx = n_ctx, .chunk = 32, .kv_type = kv};
    must(gw_session_new(r->m, &o, &s));
    return s;
}

/* A copy goes on with the bits of its original, and neither knows of what the other does. */
static void check_copy(const char *kv) {
    rig r = open_rig();
    gw_session *from = new_session(&r, 256, kv), *to = new_session(&r, 100, kv);
    must(gw_session_prefill(from, r.ids, PROMPT));
    must(gw_session_decode(from, r.ids + PROMPT, 5));
    must(gw_session_prefill(to, r.ids + 9, 80)); /* what it held before does not matter */
    must(gw_session_copy(to, from));
    assert_int_equal(gw_session_pos(to), PROMPT + 5);
    assert_int_equal(gw_session_prompted(to), PROMPT);
    assert_memory_equal(gw_session_tokens(to), r.ids, (PROMPT + 5) * sizeof(int32_t));
    assert_null(gw_session_logits(to, 0));
    assert_non_null(gw_session_logits(from, 0)); /* still there */
    must(gw_session_decode(to, r.ids + 3, 2));   /* another text */
    must(gw_session_rewind(to, PROMPT + 5));
    must(gw_session_decode(from, r.ids + PROMPT + 5, 3));
    must(gw_session_decode(to, r.ids + PROMPT + 5, 3));
    for (size_t row = 0; row < 3; row++) {
        assert_memory_equal(gw_session_logits(from, row), gw_session_logits(to, row), r.row);
    }
    gw_session_free(from);
    gw_session_free(to);
    gw_model_free(r.m);
}

static void test_copy(void **state) {
    (void)state;
    check_copy(NULL);
    check_copy("q8_0");
    check_copy("q4_0");
    check_copy("f16,q5_0");
}

static void test_copy_refused(void **state) {
    (void)state;
    rig r = open_rig(), other = open_rig();
    gw_session *from = new_session(&r, 128, NULL), *to = new_session(&r, 64, NULL);
    gw_session *foreign = new_session(&other, 128, NULL), *small = new_session(&r, 128, "f16,q8_0");
    must(gw_session_prefill(from, r.ids, PROMPT));
    must(gw_session_prefill(to, r.ids, 3));
    assert_int_equal(gw_session_copy(to, from), GW_E_CONTEXT);
    assert_int_equal(gw_session_pos(to), 3); /* unchanged */
    assert_non_null(gw_session_logits(to, 0));
    assert_int_equal(gw_session_copy(foreign, from), GW_E_ARGUMENT);
    assert_int_equal(gw_session_copy(small, from), GW_E_TYPE);
    must(gw_session_copy(from, from));
    assert_int_equal(gw_session_pos(from), PROMPT);
    must(gw_session_rewind(from, 0));
    must(gw_session_copy(to, from)); /* an empty one */
    assert_int_equal(gw_session_pos(to), 0);
    gw_session *const all[] = {from, to, foreign, small};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        gw_session_free(all[i]);
    }
    gw_model_free(r.m);
    gw_model_free(other.m);
}

/* ---- a batch --------------------------------------------------------------------------------- */

typedef struct waiter {
    gw_batch *b;
    int done;
    size_t last; /* of the last gw_batch_wait */
} waiter;

/* A binding's whole loop. */
static void *step_until_drained(void *user) {
    waiter *w = user;
    while (gw_batch_wait(w->b, -1.0, &w->last) == GW_OK && w->last > 0) {
        if (gw_batch_step(w->b, &w->last) != GW_OK) {
            break;
        }
    }
    return NULL;
}

static void on_event(void *user, const gw_event *e) {
    waiter *w = user;
    w->done += e->kind == GW_EVENT_DONE && e->finish == GW_FINISH_LENGTH;
}

static void test_wait(void **state) {
    (void)state;
    rig r = open_rig();
    waiter w = {0};
    gw_batch_options o = {.n_ctx = 128, .parallel = 2};
    must(gw_batch_new(r.m, &o, &w.b));
    size_t work = 7;
    must(gw_batch_wait(w.b, 0.0, &work));
    assert_int_equal(work, 0);
    must(gw_batch_wait(w.b, 1e-3, &work));
    assert_int_equal(work, 0);

    pthread_t thread; /* it waits when the requests come, or just before */
    assert_int_equal(pthread_create(&thread, NULL, step_until_drained, &w), 0);
    for (int i = 0; i < 3; i++) {
        gw_request *request = NULL;
        gw_request_options ask = {.tokens = r.ids,
                                  .n_tokens = 9,
                                  .max_tokens = 4,
                                  .ignore_eos = 1,
                                  .event = on_event,
                                  .user = &w};
        must(gw_batch_submit(w.b, &ask, &request));
        gw_request_free(request);
    }
    gw_batch_drain(w.b); /* what is there goes on to its end, then the thread ends */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(w.done, 3);
    must(gw_batch_wait(w.b, -1.0, &work));
    assert_int_equal(work, 0);
    gw_batch_free(w.b);
    gw_model_free(r.m);
}

static void test_sizes(void **state) {
    (void)state;
    assert_string_equal(gw_version(), GW_VERSION);
    assert_int_equal(gw_struct_size("gw_request_options"), sizeof(gw_request_options));
    assert_int_equal(gw_struct_size("gw_event"), sizeof(gw_event));
    assert_int_equal(gw_struct_size("gw_nothing"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_copy_refused),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests_name("bind", tests, NULL, NULL);
}
