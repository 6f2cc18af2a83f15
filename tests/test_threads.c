/* tests/test_threads.c - the thread rules of godwit.h: models in parallel, one model behind a lock,
 * text functions and errors from everywhere. Worth most under ThreadSanitizer (preset tsan). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "include/godwit.h"

enum { THREADS = 2, STEPS = 12 };
static const char *const files[THREADS] = {"tests/data/tales-2m-q4_0.gguf",
                                           "tests/data/tales-2m-q4_k_m.gguf"};

typedef struct worker {
    const char *path;      /* opened by the thread itself, or */
    gw_model *model;       /* shared                          */
    pthread_mutex_t *lock; /* around every pass of a shared model */
    int32_t tokens[STEPS];
    const char *failed; /* where; NULL: all went well */
} worker;

static void hold(worker *w) {
    if (w->lock != NULL) {
        pthread_mutex_lock(w->lock);
    }
}
static void release(worker *w) {
    if (w->lock != NULL) {
        pthread_mutex_unlock(w->lock);
    }
}

/* Passes, and logits until they are used, belong to the lock; choosing tokens does not need it. */
static const char *generate(worker *w, gw_session *session, gw_sampler *sampler) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (gw_tokenize(w->model, "Once upon a time", 16, GW_TEXT_BOS, &ids, &n) != GW_OK) {
        return "tokenize";
    }
    hold(w);
    gw_status status = gw_session_prefill(session, ids, n);
    release(w);
    gw_free(ids);
    for (int i = 0; i < STEPS && status == GW_OK; i++) {
        int32_t pos = gw_session_pos(session);
        status = gw_sampler_pick(sampler, gw_session_logits(session, 0), pos, &w->tokens[i]);
        if (status == GW_OK) {
            status = gw_sampler_accept(sampler, w->tokens[i]);
        }
        hold(w);
        if (status == GW_OK) {
            status = gw_session_decode(session, &w->tokens[i], 1);
        }
        release(w);
    }
    return status == GW_OK ? NULL : "generate";
}

/* Errors of one thread are not seen by another. */
static const char *fail_here(const worker *w) {
    gw_model *none = NULL;
    gw_model_options wrong = {.path = w->path != NULL ? "no-such-model" : "/proc/none/other"};
    for (int i = 0; i < 20; i++) {
        if (gw_model_open(&wrong, &none) == GW_OK || strstr(gw_error_text(), wrong.path) == NULL) {
            return "error text";
        }
    }
    return NULL;
}

static const char *work(worker *w) {
    gw_session *session = NULL;
    gw_sampler *sampler = NULL;
    gw_sampler_options sampling;
    gw_sampler_defaults(&sampling);
    sampling.seed = 5;
    if (w->path != NULL) {
        gw_model_options o = {.path = w->path, .device = "cpu", .threads = 2};
        if (gw_model_open(&o, &w->model) != GW_OK) {
            return "open";
        }
    }
    gw_session_options o = {.n_ctx = 128, .chunk = 16};
    hold(w);
    gw_status status = gw_session_new(w->model, &o, &session);
    release(w);
    const char *failed = status != GW_OK ? "session" : NULL;
    if (failed == NULL && gw_sampler_new(w->model, &sampling, &sampler) != GW_OK) {
        failed = "sampler";
    }
    failed = failed != NULL ? failed : generate(w, session, sampler);
    failed = failed != NULL ? failed : fail_here(w);
    gw_sampler_free(sampler);
    hold(w);
    gw_session_free(session);
    release(w);
    if (w->path != NULL) {
        gw_model_free(w->model);
    }
    return failed;
}

static void *run(void *user) {
    worker *w = user;
    w->failed = work(w);
    return NULL;
}

static void run_all(worker *w) {
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, run, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        if (w[i].failed != NULL) {
            fail_msg("thread %d: %s", i, w[i].failed);
        }
    }
}

static void test_two_models(void **state) {
    (void)state;
    worker alone[THREADS] = {{.path = files[0]}, {.path = files[1]}};
    worker both[THREADS] = {{.path = files[0]}, {.path = files[1]}};
    for (int i = 0; i < THREADS; i++) {
        run(&alone[i]);
        assert_null(alone[i].failed);
    }
    run_all(both);
    for (int i = 0; i < THREADS; i++) {
        assert_memory_equal(both[i].tokens, alone[i].tokens, sizeof alone[i].tokens);
    }
}

static void test_one_model_behind_a_lock(void **state) {
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    gw_model *model = NULL;
    gw_model_options o = {.path = files[0], .device = "cpu", .threads = 2};
    assert_int_equal(gw_model_open(&o, &model), GW_OK);
    worker alone = {.path = files[0]};
    run(&alone);
    assert_null(alone.failed);
    worker w[THREADS] = {{.model = model, .lock = &lock}, {.model = model, .lock = &lock}};
    run_all(w);
    for (int i = 0; i < THREADS; i++) {
        assert_memory_equal(w[i].tokens, alone.tokens, sizeof alone.tokens);
    }
    gw_model_free(model);
}

/* ---- many requests: one thread steps, others submit, hold, cancel, look ---------------------- */

enum { REQUESTS = 6 };

typedef struct client {
    gw_batch *batch;
    gw_request *handle[REQUESTS]; /* this thread's */
    int done;                     /* the stepping thread's */
    int submitted;
} client;

static void count_done(void *user, const gw_event *e) {
    client *c = user;
    c->done += e->kind == GW_EVENT_DONE;
}

static void *submit_all(void *user) {
    client *c = user;
    const int32_t tokens[3] = {1, 403, 407};
    for (int i = 0; i < REQUESTS; i++) {
        gw_batch_stats stats;
        gw_request_options o = {
            .tokens = tokens, .n_tokens = 3, .max_tokens = STEPS, .event = count_done, .user = c};
        if (gw_batch_submit(c->batch, &o, &c->handle[i]) != GW_OK) {
            break;
        }
        c->submitted++;
        gw_request_hold(c->handle[i], i % 2);
        gw_batch_get_stats(c->batch, &stats);
        gw_request_hold(c->handle[i], 0);
        if (i % 3 == 2) {
            gw_request_cancel(c->handle[i]);
        }
        gw_request_free(c->handle[i]);
    }
    return NULL;
}

static void test_requests_from_other_threads(void **state) {
    (void)state;
    gw_model *model = NULL;
    gw_batch *batch = NULL;
    gw_model_options o = {.path = files[0], .device = "cpu", .threads = 2};
    gw_batch_options bo = {.n_ctx = 64, .parallel = 3, .queue = THREADS * REQUESTS};
    pthread_t thread[THREADS];
    client c[THREADS] = {{.done = 0}, {.done = 0}};
    assert_int_equal(gw_model_open(&o, &model), GW_OK);
    assert_int_equal(gw_batch_new(model, &bo, &batch), GW_OK);
    for (int i = 0; i < THREADS; i++) {
        c[i].batch = batch;
        assert_int_equal(pthread_create(&thread[i], NULL, submit_all, &c[i]), 0);
    }
    while (c[0].done + c[1].done < THREADS * REQUESTS) {
        size_t work;
        assert_int_equal(gw_batch_step(batch, &work), GW_OK);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(c[i].submitted, REQUESTS);
        assert_int_equal(c[i].done, REQUESTS);
    }
    gw_batch_free(batch);
    gw_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_models),
        cmocka_unit_test(test_one_model_behind_a_lock),
        cmocka_unit_test(test_requests_from_other_threads),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
