/* tests/test_states.c - models with recurrent blocks, latent attention or shared caches: whatever a
 * session takes back, saves, shifts or computes side by side, its logits have the bits of one that
 * went straight on. */
#include "tests/reference_files.h"

#include <unistd.h>

enum { N_PROMPT = 19, N_TEXT = 40, CTX = 128 };

static const char *const names[] = {
    "lfm2",      "mamba2",      "qwen3-next", "kimi-linear", "granite-hybrid",
    "falcon-h1", "deepseek-v3", "gemma4-e",   "gemma3n",
};

typedef struct rig {
    gw_model *m;
    int32_t n_vocab, ids[N_PROMPT + N_TEXT];
    float *want; /* [N_TEXT, v]: logits behind each token of the text, which follows the prompt */
} rig;

static void must(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

static gw_session *new_session(const rig *r, int32_t chunk) {
    gw_session *s = NULL;
    gw_session_options o = {.n_ctx = CTX, .chunk = chunk, .kv_type = "f32"};
    must(gw_session_new(r->m, &o, &s));
    return s;
}

static void is_row(const rig *r, const gw_session *s, size_t row, int text, const char *what) {
    const float *got = gw_session_logits(s, row);
    assert_non_null(got);
    if (memcmp(got, r->want + (size_t)text * (size_t)r->n_vocab,
               (size_t)r->n_vocab * sizeof *got) != 0) {
        fail_msg("%s: other logits behind token %d of the text", what, text);
    }
}

/* Tokens [from, to) of the text in passes of `width`. */
static void go_on(const rig *r, gw_session *s, int from, int to, int width, const char *what) {
    for (int i = from; i < to; i += width) {
        int n = to - i < width ? to - i : width;
        must(gw_session_decode(s, r->ids + N_PROMPT + i, (size_t)n));
        for (int k = 0; k < n; k++) {
            is_row(r, s, (size_t)k, i + k, what);
        }
    }
}

static rig open_rig(const char *name) {
    char folder[80];
    rig r = {0};
    snprintf(folder, sizeof folder, "goldens/%s", name);
    gw_model_options o = {.path = shared_path(folder), .device = "cpu", .threads = 2};
    must(gw_model_open(&o, &r.m));
    gw_model_info info;
    gw_model_describe(r.m, &info);
    r.n_vocab = info.n_vocab;
    uint32_t x = 5;
    for (int i = 0; i < N_PROMPT + N_TEXT; i++) {
        x = x * 1664525u + 1013904223u;
        r.ids[i] = (int32_t)(x >> 8) % info.n_vocab;
    }
    size_t row = (size_t)r.n_vocab;
    r.want = malloc(N_TEXT * row * sizeof *r.want);
    assert_non_null(r.want);
    gw_session *s = new_session(&r, 64);
    must(gw_session_prefill(s, r.ids, N_PROMPT));
    for (int i = 0; i < N_TEXT; i++) {
        must(gw_session_decode(s, r.ids + N_PROMPT + i, 1));
        memcpy(r.want + (size_t)i * row, gw_session_logits(s, 0), row * sizeof *r.want);
    }
    gw_session_free(s);
    return r;
}

static void close_rig(rig *r) {
    free(r->want);
    gw_model_free(r->m);
}

static void chunks_and_widths(const rig *r) {
    static const int32_t chunks[] = {1, 3, 18};
    static const int widths[] = {16, 5, 3};
    for (int i = 0; i < 3; i++) {
        gw_session *s = new_session(r, chunks[i]);
        must(gw_session_prefill(s, r->ids, 7));
        must(gw_session_prefill(s, r->ids + 7, N_PROMPT - 7));
        go_on(r, s, 0, N_TEXT, widths[i], "chunks and widths");
        gw_session_free(s);
    }
}

/* Wrong tokens behind right ones, as drafts have them, taken back. */
static void speculation(const rig *r) {
    gw_session *s = new_session(r, 64);
    must(gw_session_prefill(s, r->ids, N_PROMPT));
    for (int at = 0, right = 1; at < N_TEXT; right = right % 7 + 1) {
        int32_t drafted[GW_DECODE_MAX];
        int n = N_TEXT - at < right ? N_TEXT - at : right;
        for (int k = 0; k < GW_DECODE_MAX; k++) {
            drafted[k] = k < n ? r->ids[N_PROMPT + at + k] : (at * 31 + k * 7) % r->n_vocab;
        }
        must(gw_session_decode(s, drafted, GW_DECODE_MAX));
        for (int k = 0; k < n; k++) {
            is_row(r, s, (size_t)k, at + k, "speculation");
        }
        at += n;
        must(gw_session_rewind(s, N_PROMPT + at));
    }
    gw_session_free(s);
}

/* Further back than any pass: into the text, into the prompt, to nothing. */
static void far_back(const rig *r) {
    static const int32_t to[] = {N_PROMPT + 3, N_PROMPT, 11, 1, 0};
    gw_session *s = new_session(r, 64);
    must(gw_session_prefill(s, r->ids, N_PROMPT));
    go_on(r, s, 0, N_TEXT, 4, "before it goes back");
    for (size_t i = 0; i < sizeof to / sizeof to[0]; i++) {
        int32_t text = to[i] < N_PROMPT ? 0 : to[i] - N_PROMPT;
        must(gw_session_rewind(s, to[i]));
        if (to[i] < N_PROMPT) {
            must(gw_session_prefill(s, r->ids + to[i], (size_t)(N_PROMPT - to[i])));
        }
        go_on(r, s, text, N_TEXT, 1, "far back");
    }
    gw_session_free(s);
}

/* A second prompt behind a text, taken back to the middle of it. */
static void turns(const rig *r) {
    gw_session *a = new_session(r, 64), *b = new_session(r, 5);
    int32_t back = N_PROMPT + 10 + 9;
    for (int which = 0; which < 2; which++) {
        gw_session *s = which == 0 ? a : b;
        must(gw_session_prefill(s, r->ids, N_PROMPT));
        go_on(r, s, 0, 10, 5, "turns");
        must(gw_session_prefill(s, r->ids + N_PROMPT + 10, 12));
        if (which == 1) {
            for (int i = 0; i < 20; i++) {
                must(gw_session_decode(s, r->ids + i, 1));
            }
            must(gw_session_rewind(s, back));
            must(gw_session_prefill(s, r->ids + back, 3));
        }
        must(gw_session_decode(s, r->ids + N_PROMPT + 22, 4));
    }
    for (size_t row = 0; row < 4; row++) {
        assert_memory_equal(gw_session_logits(a, row), gw_session_logits(b, row),
                            (size_t)r->n_vocab * sizeof(float));
    }
    gw_session_free(a);
    gw_session_free(b);
}

static void saved(const rig *r) {
    char path[128];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/godwit-states-%d", folder ? folder : "/tmp", (int)getpid());
    gw_session *s = new_session(r, 64), *other = new_session(r, 6);
    must(gw_session_prefill(s, r->ids, N_PROMPT));
    go_on(r, s, 0, 30, 3, "before it is saved");
    must(gw_session_rewind(s, N_PROMPT + 8)); /* its state is not there any more */
    must(gw_session_save(s, path));
    must(gw_session_prefill(other, r->ids + 3, 9));
    must(gw_session_load(other, path));
    assert_int_equal(gw_session_pos(other), N_PROMPT + 8);
    go_on(r, other, 8, N_TEXT, 7, "loaded");
    must(gw_session_rewind(other, N_PROMPT + 2));
    go_on(r, other, 2, N_TEXT, 16, "loaded and taken back");
    gw_session_free(s);
    gw_session_free(other);
    unlink(path);
}

/* A shifted session is one that was given the kept tokens as a prompt. */
static void shifted(const rig *r) {
    gw_session *s = new_session(r, 64), *fresh = new_session(r, 64);
    int32_t dropped = 0;
    must(gw_session_prefill(s, r->ids, N_PROMPT));
    go_on(r, s, 0, N_TEXT, 8, "before it is shifted");
    must(gw_session_shift(s, 7, &dropped));
    int32_t pos = gw_session_pos(s);
    assert_int_equal(pos + dropped, N_PROMPT + N_TEXT);
    must(gw_session_prefill(fresh, gw_session_tokens(s), (size_t)pos));
    for (int i = 0; i < 3; i++) {
        must(gw_session_decode(s, r->ids + i, 1));
        must(gw_session_decode(fresh, r->ids + i, 1));
        assert_memory_equal(gw_session_logits(s, 0), gw_session_logits(fresh, 0),
                            (size_t)r->n_vocab * sizeof(float));
    }
    gw_session_free(s);
    gw_session_free(fresh);
}

static void test_states(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        print_message("  %s\n", names[i]);
        rig r = open_rig(names[i]);
        chunks_and_widths(&r);
        speculation(&r);
        far_back(&r);
        turns(&r);
        saved(&r);
        shifted(&r);
        close_rig(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
