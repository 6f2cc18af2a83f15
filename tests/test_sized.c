/* tests/test_sized.c - programs that were built for an older or a newer godwit.h: options that they
 * do not have are not set, options that the library does not have must not be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/godwit.h"

static gw_model *model;

static int open_model(void **state) {
    (void)state;
    gw_model_options o = {.path = "tests/data/tales-2m-q4_0.gguf", .threads = 1};
    return gw_model_open(&o, &model) == GW_OK ? 0 : -1;
}

static int close_model(void **state) {
    (void)state;
    gw_model_free(model);
    return 0;
}

/* Nothing behind the end of an older program's struct is read or written. */
static void test_older(void **state) {
    (void)state;
    gw_model_options m;
    gw_model *vocab = NULL;
    memset(&m, 0xA5, sizeof m);
    memset(&m, 0, offsetof(gw_model_options, offload_layers));
    m.path = "tests/data/tales-2m-q4_0.gguf";
    m.vocab_only = 1;
    assert_int_equal(gw_model_open_sized(&m, offsetof(gw_model_options, offload_layers), &vocab),
                     GW_OK);
    gw_model_free(vocab);
    gw_session_options s;
    gw_session *session = NULL;
    memset(&s, 0xA5, sizeof s);
    s.n_ctx = 64;
    s.chunk = 0;
    assert_int_equal(
        gw_session_new_sized(model, &s, offsetof(gw_session_options, kv_type), &session), GW_OK);
    assert_int_equal(gw_session_n_ctx(session), 64);
    gw_drafter_options d;
    gw_drafter *drafter = NULL;
    memset(&d, 0xA5, sizeof d);
    memset(&d, 0, offsetof(gw_drafter_options, length));
    d.lookup = 1;
    assert_int_equal(
        gw_drafter_new_sized(session, &d, offsetof(gw_drafter_options, length), &drafter), GW_OK);
    gw_drafter_free(drafter);
    gw_session_free(session);
    _Alignas(16) unsigned char fenced[sizeof(gw_sampler_options)];
    gw_sampler_options *o = (void *)fenced;
    gw_sampler *sampler = NULL;
    const size_t size = offsetof(gw_sampler_options, mirostat_tau);
    memset(fenced, 0xA5, sizeof fenced);
    gw_sampler_defaults_sized(o, size);
    assert_true(o->top_k == 40);
    for (size_t i = size; i < sizeof fenced; i++) {
        assert_int_equal(fenced[i], 0xA5);
    }
    assert_int_equal(gw_sampler_new_sized(model, o, size, &sampler), GW_OK);
    gw_sampler_free(sampler);
}

static void test_newer(void **state) {
    (void)state;
    struct {
        gw_session_options now;
        int64_t later;
    } s = {.now = {.n_ctx = 64}};
    gw_session *session = NULL;
    assert_int_equal(gw_session_new_sized(model, &s.now, sizeof s, &session), GW_OK);
    gw_session_free(session);
    session = NULL;
    s.later = 1;
    assert_int_equal(gw_session_new_sized(model, &s.now, sizeof s, &session), GW_E_ARGUMENT);
    assert_null(session);
    assert_non_null(strstr(gw_error_text(), "does not have"));
}

/* What is described: no byte of an older program's memory, zeros for a newer one. */
static void test_described(void **state) {
    (void)state;
    const gw_encoder_options o = {.n_ctx = 64};
    gw_encoder *e = NULL;
    gw_encoder_info info;
    assert_int_equal(gw_encoder_new(model, &o, &e), GW_OK);
    gw_encoder_get_info(e, &info);
    assert_true(info.causal && info.width > 0 && info.n_ctx == 64);
    for (size_t size = 0; size <= sizeof info + 8; size++) {
        _Alignas(16) unsigned char fenced[sizeof info + 16];
        const unsigned char *own = (const void *)&info;
        memset(fenced, 0xA5, sizeof fenced);
        gw_encoder_describe_sized(e, (void *)fenced, size);
        for (size_t i = 0; i < sizeof fenced; i++) {
            assert_int_equal(fenced[i], i >= size ? 0xA5 : i < sizeof info ? own[i] : 0);
        }
    }
    memset(&info, 0xA5, sizeof info);
    gw_encoder_describe(e, &info);
    assert_int_equal(info.per_token, 0);
    gw_encoder_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_older), cmocka_unit_test(test_newer),
                                       cmocka_unit_test(test_described)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
