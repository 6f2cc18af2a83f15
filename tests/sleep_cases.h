/* tests/sleep_cases.h - a model that sleeps and wakes on one device: the logits that it had, bit
 * for bit, nothing made of it meanwhile, and its weights not on the device. */
#ifndef GW_TESTS_SLEEP_CASES_H
#define GW_TESTS_SLEEP_CASES_H

#include "tests/next_cases.h"

#include "include/godwit_encoder.h"
#include "include/godwit_sleep.h"

enum { SC_VOCAB = 4096 };

/* Logits of a prompt and of a generated token. */
static inline size_t sc_logits(gw_model *m, float *out) {
    const gw_session_options so = {.n_ctx = 32, .chunk = 16};
    gw_session *s = NULL;
    gw_model_info info;
    gw_model_describe(m, &info);
    size_t n = (size_t)info.n_vocab;
    assert_true(n > 0 && n <= SC_VOCAB);
    nc_ok(gw_session_new(m, &so, &s));
    nc_ok(gw_session_prefill(s, nc_prompt, NC_PROMPT));
    memcpy(out, gw_session_logits(s, 0), n * sizeof *out);
    nc_ok(gw_session_decode(s, &nc_prompt[1], 1));
    memcpy(out + n, gw_session_logits(s, 0), n * sizeof *out);
    gw_session_free(s);
    return 2 * n;
}

static inline gw_model *sc_open(const char *device, const char *layers) {
    const gw_model_options o = {
        .path = NC_MODEL, .device = device, .offload_layers = layers, .threads = 1, .exact = 1};
    gw_model *m = NULL;
    nc_ok(gw_model_open(&o, &m));
    return m;
}

/* moves: do weights leave the device? */
static inline void sc_check(const char *device, const char *layers, int moves) {
    static float before[2 * SC_VOCAB], after[2 * SC_VOCAB];
    gw_model *m = sc_open(device, layers);
    gw_session *none = NULL;
    gw_encoder *no_encoder = NULL;
    gw_sleep_info info;
    size_t n = sc_logits(m, before);
    for (int round = 0; round < 2; round++) {
        nc_ok(gw_model_sleep(m));
        nc_ok(gw_model_sleep(m)); /* nothing more */
        gw_model_sleep_info(m, &info);
        assert_true(info.asleep && (info.kept > 100000) == moves && info.sleep_seconds > 0);
        assert_int_equal(gw_session_new(m, NULL, &none), GW_E_ARGUMENT);
        assert_non_null(strstr(gw_error_text(), "gw_model_wake"));
        assert_int_equal(gw_encoder_new(m, NULL, &no_encoder), GW_E_ARGUMENT);
        assert_true(none == NULL && no_encoder == NULL);
        nc_ok(gw_model_wake(m));
        nc_ok(gw_model_wake(m));
        gw_model_sleep_info(m, &info);
        assert_true(!info.asleep && info.wake_seconds > 0);
        memset(after, 0xff, sizeof after);
        assert_int_equal(sc_logits(m, after), n);
        assert_memory_equal(before, after, n * sizeof *before);
    }
    nc_ok(gw_model_sleep(m));
    gw_model_free(m); /* asleep */
}

#endif
