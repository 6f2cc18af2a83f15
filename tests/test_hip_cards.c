/* tests/test_hip_cards.c - a layer over several cards of the emulator: the bits of one. Prompts,
 * every width of decode, what the cards draw themselves, a saved timeline, and a card that is lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/godwit.h"
#include "tests/reference_files.h"

enum { N_IDS = 24, N_DECODE = 22, N_TEXT = 5, MOST = N_IDS + N_DECODE };

static const char *const small = "tests/data/tales-2m-q4_0.gguf";

typedef struct answer {
    float *rows; /* all logits of a timeline */
    size_t n, v;
    int32_t text[2 * N_TEXT]; /* greedy, then drawn */
    char device[512];
} answer;

static void need(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

static int keep_row(void *user, size_t row, const float *logits) {
    answer *a = user;
    (void)row;
    assert_true(a->n < MOST);
    memcpy(a->rows + a->n++ * a->v, logits, a->v * sizeof *logits);
    return 0;
}

static void decode(gw_session *s, const int32_t *ids, answer *a) {
    static const size_t widths[] = {1, 3, 16, 2};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; ids += widths[i++]) {
        need(gw_session_decode(s, ids, widths[i]));
        for (size_t r = 0; r < widths[i]; r++) {
            keep_row(a, r, gw_session_logits(s, r));
        }
    }
}

/* Drawn by the cards where they can, a step ahead of the host. */
static void write_text(gw_model *m, gw_session *s, float temperature, int32_t *out) {
    gw_sampler_options o;
    gw_sampler *sampler = NULL;
    gw_sampler_defaults(&o);
    o.temperature = temperature;
    o.seed = 11;
    need(gw_sampler_new(m, &o, &sampler));
    need(gw_session_rewind(s, N_IDS));
    out[0] = 7;
    for (int i = 0; i + 1 < N_TEXT; i++) {
        need(gw_session_next(s, sampler, out[i], 0, &out[i + 1]));
    }
    gw_sampler_free(sampler);
}

static answer run(const gw_model_options *options) {
    gw_model_options o = *options;
    gw_model *m = NULL;
    gw_model_info info;
    gw_session *s = NULL;
    int32_t ids[N_IDS + N_DECODE];
    uint32_t x = 7;
    o.path = o.path != NULL ? o.path : small;
    o.threads = 2;
    need(gw_model_open(&o, &m));
    gw_model_describe(m, &info);
    answer a = {.v = (size_t)info.n_vocab};
    snprintf(a.device, sizeof a.device, "%s", info.device);
    a.rows = calloc(MOST * a.v, sizeof *a.rows);
    assert_non_null(a.rows);
    for (int i = 0; i < N_IDS + N_DECODE; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(x >> 8) % info.n_vocab;
    }
    gw_session_options so = {.n_ctx = 128, .chunk = 17};
    need(gw_session_new(m, &so, &s));
    need(gw_session_prefill_rows(s, ids, N_IDS, N_IDS - 9, keep_row, &a));
    decode(s, ids + N_IDS, &a);
    write_text(m, s, 0.0f, a.text);
    write_text(m, s, 0.9f, a.text + N_TEXT);
    gw_session_free(s);
    gw_model_free(m);
    return a;
}

static void same(const gw_model_options *o, const answer *want, const char *devices) {
    answer have = run(o);
    assert_int_equal(have.n, want->n);
    for (size_t i = 0; i < want->n * want->v; i += want->v) {
        if (memcmp(have.rows + i, want->rows + i, want->v * sizeof(float)) != 0) {
            fail_msg("%s, %s, groups %s: other bits than on one device in row %zu of %zu", o->path,
                     o->device, o->groups ? o->groups : "none", i / want->v, want->n);
        }
    }
    for (int i = 0; i < 2 * N_TEXT; i++) {
        if (have.text[i] != want->text[i]) {
            fail_msg("%s, %s: draws token %d, not %d, at %d", o->path, o->device, have.text[i],
                     want->text[i], i);
        }
    }
    if (strstr(have.device, devices) == NULL) {
        fail_msg("runs on %s, not on %s", have.device, devices);
    }
    free(have.rows);
}

static void check(const char *path, const char *const *lists, size_t n) {
    gw_model_options o = {.path = path, .exact = 1};
    answer want = run(&o);
    o.split_mode = "tensor";
    for (size_t i = 0; i < n; i++) {
        o.device = lists[i];
        same(&o, &want, " + ");
    }
    free(want.rows);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static const char *const two_and_four[] = {"hip:0,hip:1", "hip:0,hip:1,hip:2,hip:3"};

/* Four on the emulator; a machine may have two. */
static int has_four(void) {
    gw_device_info rows[64];
    size_t n = gw_devices(rows, 64);
    int cards = 0;
    for (size_t i = 0; i < n && i < 64; i++) {
        cards += strncmp(rows[i].id, "hip:", 4) == 0;
    }
    assert_true(cards >= 2);
    return cards >= 4;
}

static void test_two_and_four_cards(void **state) {
    (void)state;
    check(small, two_and_four, has_four() ? 2 : 1);
}

static void test_groups(void **state) {
    (void)state;
    if (!has_four()) {
        skip();
    }
    gw_model_options o = {.path = small, .device = "hip:0,hip:1,hip:2,hip:3", .exact = 1};
    gw_model_options on_cpu = {.path = small};
    answer want = run(&on_cpu);
    o.split_mode = "hybrid";
    o.groups = "0,2;1,3";
    same(&o, &want, " + ");
    o = (gw_model_options){.path = small, .device = "hip:1,cpu", .split_mode = "tensor"};
    o.exact = 1;
    same(&o, &want, " + "); /* cards of unlike makers, through the host */
    free(want.rows);
}

static void test_models(void **state) {
    (void)state;
    static const char *const models[] = {"goldens/mixtral", "goldens/gpt-oss",
                                         "goldens/qwen3-next"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s", shared_path(models[i]));
        check(path, two_and_four, 1);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *device, *mode, *groups, *split, *says;
    } cases[] = {
        {"hip:0,hip:1", "rows", NULL, NULL, "none of layer, tensor, hybrid, auto"},
        {"hip:0,hip:1", "hybrid", NULL, NULL, "needs --groups"},
        {"hip:0,hip:1", "tensor", "0;1", NULL, "are for --split-mode hybrid"},
        {"hip:0,hip:1", "hybrid", "0,2", NULL, "no list like"},
        {"hip:0,hip:1", "hybrid", "0", NULL, "leaves out"},
        {"hip:0,hip:1", "hybrid", "0;0,1", NULL, "in two groups"},
        {"hip:0,hip:1", "tensor", NULL, "1,0", "more than 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_model_options o = {.path = small,
                              .device = cases[i].device,
                              .split_mode = cases[i].mode,
                              .groups = cases[i].groups,
                              .split = cases[i].split};
        gw_model *m = NULL;
        assert_int_equal(gw_model_open(&o, &m), GW_E_ARGUMENT);
        if (strstr(gw_error_text(), cases[i].says) == NULL) {
            fail_msg("'%s' does not say '%s'", gw_error_text(), cases[i].says);
        }
    }
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_and_four_cards),
                                       cmocka_unit_test(test_groups), cmocka_unit_test(test_models),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* One process per driver: it is opened once. */
static int run_in_child(const char *driver) {
    int status = 1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv("GODWIT_HIP_DRIVER", driver, 1);
        setenv("GODWIT_EMULATOR_DEVICES", "4", 1);
        _exit(run_all());
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : 1;
}

int main(void) {
    const char *driver = getenv("GODWIT_HIP_DRIVER");
    if (driver != NULL) { /* "system": the cards of this machine */
        if (strcmp(driver, "system") == 0) {
            unsetenv("GODWIT_HIP_DRIVER");
        }
        return run_all();
    }
    return run_in_child(GODWIT_EMULATORS "libgodwit_emu32.so") != 0;
}
