/* tests/test_session_file.c - sessions saved and loaded, contexts shifted, layers blamed: the same
 * bits as without, and no file that harms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/engine/run/session_state.h"

enum { N_IDS = 150, CTX = 256 };
static const char *const model_path = "tests/data/tales-2m-q4_0.gguf";
static const char *const other_path = "tests/data/tales-2m-q4_k_m.gguf";

typedef struct rig {
    gw_model *m;
    gw_session *s;
    size_t row; /* bytes of a row of logits */
    int32_t ids[N_IDS];
} rig;

static void must(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

static gw_session *new_session(gw_model *m, int32_t n_ctx, const char *kv) {
    gw_session *s = NULL;
    gw_session_options o = {.n_ctx = n_ctx, .chunk = 32, .kv_type = kv};
    must(gw_session_new(m, &o, &s));
    return s;
}

static rig open_rig(const char *path, const char *kv) {
    rig r = {0};
    gw_model_options o = {.path = path, .threads = 2};
    must(gw_model_open(&o, &r.m));
    gw_model_info info;
    gw_model_describe(r.m, &info);
    r.row = (size_t)info.n_vocab * sizeof(float);
    uint32_t x = 7;
    for (int i = 0; i < N_IDS; i++) {
        x = x * 1664525u + 1013904223u;
        r.ids[i] = i == 0 ? 1 : (int32_t)(x >> 8) % info.n_vocab;
    }
    r.s = new_session(r.m, CTX, kv);
    return r;
}

static void close_rig(rig *r) {
    gw_session_free(r->s);
    gw_model_free(r->m);
}

/* A path of this process in the build's temporary folder. */
static const char *temporary(const char *name) {
    static char path[4][256];
    static unsigned next;
    char *out = path[next++ % 4];
    const char *folder = getenv("TMPDIR");
    snprintf(out, sizeof path[0], "%s/godwit-%d-%s", folder ? folder : "/tmp", (int)getpid(), name);
    return out;
}

static char *read_all(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*n + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *n, f), *n);
    fclose(f);
    return data;
}

static void write_all(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static float *copy_logits(const rig *r, const gw_session *s) {
    float *copy = malloc(r->row);
    assert_non_null(copy);
    assert_non_null(gw_session_logits(s, 0));
    memcpy(copy, gw_session_logits(s, 0), r->row);
    return copy;
}

/* ---- saved and loaded ------------------------------------------------------------------------ */

static void check_reload(const char *kv, int32_t prompt, int32_t text) {
    rig r = open_rig(model_path, kv);
    const char *path = temporary("reload");
    must(gw_session_prefill(r.s, r.ids, (size_t)prompt));
    for (int32_t i = 0; i < text; i++) {
        must(gw_session_decode(r.s, r.ids + prompt + i, 1));
    }
    must(gw_session_save(r.s, path));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    must(gw_session_decode(r.s, r.ids + 120, 3));
    float *want = copy_logits(&r, r.s);

    gw_session *s = new_session(r.m, CTX, kv); /* what it held before does not matter */
    must(gw_session_prefill(s, r.ids + 50, 100));
    must(gw_session_load(s, path));
    assert_int_equal(gw_session_pos(s), prompt + text);
    assert_int_equal(gw_session_prompted(s), prompt);
    assert_null(gw_session_logits(s, 0));
    assert_memory_equal(gw_session_tokens(s), r.ids, (size_t)(prompt + text) * sizeof(int32_t));
    must(gw_session_decode(s, r.ids + 120, 3));
    assert_memory_equal(want, gw_session_logits(s, 0), r.row);

    /* The file is a function of the timeline alone: nothing that was rewound is in it. */
    const char *again = temporary("again");
    must(gw_session_rewind(s, prompt + text));
    must(gw_session_save(s, again));
    size_t n, m;
    char *a = read_all(path, &n), *b = read_all(again, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
    free(want);
    gw_session_free(s);
    unlink(path);
    unlink(again);
    close_rig(&r);
}

static void test_reload(void **state) {
    (void)state;
    check_reload("f16", 70, 30);
    check_reload("f32", 64, 0);
    check_reload("f16", 1, 1);
    check_reload("q8_0", 70, 30);
    check_reload("q5_0", 70, 30);
    check_reload("q4_0", 130, 9);
    check_reload("q8_0,q4_0", 70, 30);
    check_reload("q5_0,f16", 70, 9);
}

static void test_empty_session(void **state) {
    (void)state;
    rig r = open_rig(model_path, NULL);
    const char *path = temporary("empty");
    must(gw_session_save(r.s, path));
    must(gw_session_prefill(r.s, r.ids, 5));
    must(gw_session_load(r.s, path));
    assert_int_equal(gw_session_pos(r.s), 0);
    unlink(path);
    close_rig(&r);
}

/* `prompted` counts what a prompt may take over: never what follows a generated token. */
static void test_prompted(void **state) {
    (void)state;
    rig r = open_rig(model_path, NULL);
    must(gw_session_prefill(r.s, r.ids, 10));
    must(gw_session_prefill(r.s, r.ids + 10, 10));
    assert_int_equal(gw_session_prompted(r.s), 20);
    must(gw_session_decode(r.s, r.ids, 2));
    must(gw_session_prefill(r.s, r.ids, 10));
    assert_int_equal(gw_session_prompted(r.s), 20);
    must(gw_session_rewind(r.s, 15));
    assert_int_equal(gw_session_prompted(r.s), 15);
    must(gw_session_prefill(r.s, r.ids, 3));
    assert_int_equal(gw_session_prompted(r.s), 18);
    close_rig(&r);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refused(gw_session *s, const char *path, gw_status want, const char *word) {
    int32_t before = gw_session_pos(s);
    gw_status got = gw_session_load(s, path);
    if (got != want || strstr(gw_error_text(), word) == NULL) {
        fail_msg("%s, not %s with '%s': %s", gw_status_name(got), gw_status_name(want), word,
                 gw_error_text());
    }
    assert_int_equal(gw_session_pos(s), before); /* refused before anything changed */
}

static void test_refusals(void **state) {
    (void)state;
    rig r = open_rig(model_path, NULL), other = open_rig(other_path, NULL);
    const char *path = temporary("refused");
    gw_session *full = new_session(r.m, CTX, "f32"), *small = new_session(r.m, 40, NULL);
    must(gw_session_prefill(r.s, r.ids, 50));
    must(gw_session_save(r.s, path));
    must(gw_session_prefill(other.s, r.ids, 3));
    must(gw_session_prefill(full, r.ids, 4));
    refused(other.s, path, GW_E_METADATA, "another model");
    refused(full, path, GW_E_TYPE, "f16");
    refused(small, path, GW_E_CONTEXT, "50 tokens");
    refused(r.s, "/proc/none/file", GW_E_IO, "cannot open");
    refused(r.s, "/tmp", GW_E_IO, "regular");
    refused(r.s, model_path, GW_E_MAGIC, "no prompt cache");
    assert_int_equal(gw_session_save(r.s, "/proc/none/file"), GW_E_IO);
    assert_int_equal(gw_session_save(r.s, "/dev/null"), GW_E_IO);
    unlink(path);
    gw_session_free(full);
    gw_session_free(small);
    close_rig(&other);
    close_rig(&r);
}

/* Cut at any length, or with any bit turned: an error, and a session that works. */
static void test_damage(void **state) {
    (void)state;
    rig r = open_rig(model_path, NULL);
    const char *path = temporary("damaged");
    must(gw_session_prefill(r.s, r.ids, 66));
    float *want = copy_logits(&r, r.s);
    must(gw_session_save(r.s, path));
    size_t n;
    char *data = read_all(path, &n);
    for (size_t cut = 0; cut < n; cut += cut < 400 ? 1 : 4099) {
        write_all(path, data, cut);
        assert_int_not_equal(gw_session_load(r.s, path), GW_OK);
    }
    char *longer = calloc(n + 1, 1);
    assert_non_null(longer);
    memcpy(longer, data, n);
    write_all(path, longer, n + 1);
    assert_int_not_equal(gw_session_load(r.s, path), GW_OK);
    for (size_t at = 0; at < n; at += at < 400 ? 1 : 1021) {
        data[at] = (char)(data[at] ^ (1 << at % 8));
        write_all(path, data, n);
        assert_int_not_equal(gw_session_load(r.s, path), GW_OK);
        assert_non_null(strstr(gw_error_text(), path));
        data[at] = (char)(data[at] ^ (1 << at % 8));
    }
    write_all(path, data, n);
    must(gw_session_load(r.s, path));
    must(gw_session_rewind(r.s, 65));
    must(gw_session_prefill(r.s, r.ids + 65, 1));
    assert_memory_equal(want, gw_session_logits(r.s, 0), r.row);
    free(longer);
    free(data);
    free(want);
    unlink(path);
    close_rig(&r);
}

/* A disk that is full, or a limit on files, leaves the old file and no other. */
static void test_failed_save(void **state) {
    (void)state;
    rig r = open_rig(model_path, NULL);
    const char *path = temporary("kept");
    must(gw_session_prefill(r.s, r.ids, 20));
    must(gw_session_save(r.s, path));
    volatile int cancel = 1;
    r.s->cancel = &cancel;
    assert_int_equal(gw_session_save(r.s, path), GW_E_CANCELLED);
    r.s->cancel = NULL;
    must(gw_session_load(r.s, path));
    assert_int_equal(gw_session_pos(r.s), 20);
    unlink(path);
    close_rig(&r);
}

/* ---- shifted --------------------------------------------------------------------------------- */

/* After a shift the session is one that was given the kept tokens as a prompt. */
static void check_shift(int32_t prompt, int32_t keep) {
    rig r = open_rig(model_path, NULL);
    must(gw_session_prefill(r.s, r.ids, (size_t)prompt));
    for (int32_t at = prompt; at < 100; at++) {
        must(gw_session_decode(r.s, r.ids + at, 1));
    }
    int32_t dropped = -1, rest = 100 - keep, gone = (rest + 1) / 2;
    must(gw_session_shift(r.s, keep, &dropped));
    assert_int_equal(dropped, gone);
    assert_int_equal(gw_session_pos(r.s), 100 - gone);
    assert_int_equal(gw_session_prompted(r.s), 100 - gone);
    int32_t left[100];
    memcpy(left, r.ids, (size_t)keep * sizeof *left);
    memcpy(left + keep, r.ids + keep + gone, (size_t)(rest - gone) * sizeof *left);
    assert_memory_equal(gw_session_tokens(r.s), left, (size_t)(100 - gone) * sizeof *left);
    gw_session *fresh = new_session(r.m, CTX, NULL);
    must(gw_session_prefill(fresh, left, (size_t)(100 - gone)));
    assert_memory_equal(gw_session_logits(fresh, 0), gw_session_logits(r.s, 0), r.row);
    must(gw_session_decode(fresh, r.ids + 5, 4));
    must(gw_session_decode(r.s, r.ids + 5, 4));
    assert_memory_equal(gw_session_logits(fresh, 3), gw_session_logits(r.s, 3), r.row);
    gw_session_free(fresh);
    close_rig(&r);
}

static void test_shift(void **state) {
    (void)state;
    check_shift(20, 10);
    check_shift(20, 0);
    check_shift(20, 40); /* generated tokens are kept: they become a prompt too */
    check_shift(100, 97);
    rig r = open_rig(model_path, NULL);
    int32_t dropped = -1;
    must(gw_session_prefill(r.s, r.ids, 10));
    assert_int_equal(gw_session_shift(r.s, 9, &dropped), GW_E_CONTEXT);
    assert_int_equal(gw_session_shift(r.s, 10, &dropped), GW_E_CONTEXT);
    assert_int_equal(gw_session_shift(r.s, -1, &dropped), GW_E_ARGUMENT);
    assert_int_equal(dropped, -1);
    assert_int_equal(gw_session_pos(r.s), 10);
    close_rig(&r);
}

/* ---- blamed ---------------------------------------------------------------------------------- */

/* Weights of the CPU are in memory: break one value of a norm and see who is named. */
static void blamed(rig *r, gw_tensor *t, const char *word) {
    float *x = (float *)r->m->place.devices[0].backend->host(t->buf) + t->offset / sizeof(float);
    float kept = *x;
    gw_session *s = new_session(r->m, CTX, NULL); /* vectors may be copied when plans freeze */
    gw_session_free(s);
    *x = NAN;
    s = new_session(r->m, CTX, NULL);
    assert_int_equal(gw_session_prefill(s, r->ids, 40), GW_E_NUMERIC);
    assert_non_null(strstr(gw_error_text(), word));
    assert_int_equal(gw_session_decode(s, r->ids, 3), GW_E_NUMERIC);
    assert_non_null(strstr(gw_error_text(), word));
    assert_int_equal(gw_session_pos(s), 0);
    gw_session_free(s);
    *x = kept;
    s = new_session(r->m, CTX, NULL);
    must(gw_session_prefill(s, r->ids, 40));
    gw_session_free(s);
}

static void test_blame(void **state) {
    (void)state;
    rig r = open_rig(model_path, NULL);
    const gw_blueprint *bp = gw_weights_blueprint(r.m->weights);
    int tried = 0;
    for (int role = 0; role < bp->n_weights; role++) {
        for (int layer = 0; layer < 2; layer++) {
            const gw_tensor *t = gw_weights_get(r.m->weights, role, layer, 0);
            if (t == NULL || t->n_dim != 1) {
                continue;
            }
            char word[32];
            int in_layer = t != gw_weights_get(r.m->weights, role, 1 - layer, 0);
            snprintf(word, sizeof word, in_layer ? "layer %d of 2" : "output head", layer);
            blamed(&r, (gw_tensor *)(uintptr_t)t, word);
            tried++;
        }
    }
    assert_int_equal(tried, 2 * 2 + 2); /* two norms a layer; the last one twice */
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reload),   cmocka_unit_test(test_empty_session),
        cmocka_unit_test(test_prompted), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_damage),   cmocka_unit_test(test_failed_save),
        cmocka_unit_test(test_shift),    cmocka_unit_test(test_blame),
    };
    return cmocka_run_group_tests_name("session_file", tests, NULL, NULL);
}
