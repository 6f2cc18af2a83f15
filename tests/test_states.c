/* tests/test_states.c - models with recurrent blocks, latent attention or shared caches: whatever a
 * session takes back, saves, shifts or computes side by side, its logits have the bits of one that
 * went straight on. */
#include "tests/reference_files.h"
#include "tests/random.h"
#include "tests/sanitized.h"
#include "core/engine/run/session_state.h"
#include "include/godwit_bind.h"

#include <unistd.h>

enum { N_PROMPT = 19, N_TEXT = 40, CTX = 128 };

static const char *const names[] = {
    "lfm2",      "mamba2",      "qwen3-next", "kimi-linear", "granite-hybrid",
    "falcon-h1", "deepseek-v3", "gemma4-e",   "gemma3n",     "deepseek-v4",
    "qwen4-exp", "jamba",       "rwkv7",      "glm5-next",   "minimax-m3",
    "xlstm",
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
    char own[80], shared[80];
    rig r = {0};
    snprintf(own, sizeof own, "tests/data/goldens-families/%s", name);
    snprintf(shared, sizeof shared, "goldens/%s", name);
    const char *folder = gw_path_look(own) != GW_PATH_NONE ? own : shared_path(shared);
    gw_model_options o = {.path = folder, .device = "cpu", .threads = 2};
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

/* What is said of a model's memory is what a session, or a text of a batch, has of it; a latent row
 * lies in the cache once. */
static void memory(const rig *r) {
    gw_session *s = new_session(r, 64);
    const gw_blueprint *bp = gw_weights_blueprint(r->m->weights);
    const gw_hparams *hp = &r->m->hp;
    uint64_t all = 0, least = 0, kv = 0;
    gw_model_info info;
    gw_model_describe(r->m, &info);
    for (int i = 0; i < s->states.n; i++) {
        const gw_tensor *t = &s->states.t[i];
        all += s->states.home[i] < 0 ? 0 : (uint64_t)(t->dim[0] * t->dim[1] * t->dim[2]) * 4;
        least += gw_states_block_bytes(bp, hp, i / bp->n_blocks, i % bp->n_blocks, 1, 2);
    }
    assert_int_equal(all, info.state_bytes);
    assert_int_equal(least, info.batch_state_bytes);
    for (int l = 0; l < hp->n_layers; l++) {
        kv += (gw_kv_page_bytes(&s->kv, l, 0) + gw_kv_page_bytes(&s->kv, l, 1)) / 2 / GW_PAGE;
        kv += gw_kv_page_bytes(&s->kv, l, 2) / GW_PAGE;
        assert_true(hp->layer[l].v_first < 0 || gw_kv_page_bytes(&s->kv, l, 1) == 0);
    }
    assert_int_equal(kv, info.kv_bytes_per_token); /* at f16: this session's is f32 */
    gw_session_free(s);
}

/* Behind a prompt that is long enough tokens run again from its end on. */
static void from_a_prompt(const rig *r) {
    enum { PROMPT = GW_KEPT_LEAST + 6, BACK = PROMPT + 5, ALL = PROMPT + 40 };
    gw_session *a = new_session(r, 64), *b;
    int32_t ids[ALL];
    if (!a->states.any) {
        gw_session_free(a);
        return;
    }
    b = new_session(r, 64);
    for (int i = 0; i < ALL; i++) {
        ids[i] = r->ids[i % (N_PROMPT + N_TEXT)];
    }
    must(gw_session_prefill(a, ids, PROMPT));
    for (int i = PROMPT; i < ALL; i += 4) {
        must(gw_session_decode(a, ids + i, 4));
    }
    must(gw_session_rewind(a, BACK));
    must(gw_session_decode(a, ids + 1, 1));
    must(gw_session_prefill(b, ids, PROMPT));
    must(gw_session_decode(b, ids + PROMPT, BACK - PROMPT));
    must(gw_session_decode(b, ids + 1, 1));
    size_t bytes = (size_t)r->n_vocab * sizeof(float);
    assert_memory_equal(gw_session_logits(a, 0), gw_session_logits(b, 0), bytes);
    assert_int_equal(a->repeated, BACK - PROMPT);
    must(gw_session_decode(a, ids, 16));
    must(gw_session_decode(a, ids, 16));
    must(gw_session_rewind(a, PROMPT - 1)); /* where nothing was kept */
    must(gw_session_prefill(a, ids + PROMPT - 1, 1));
    must(gw_session_rewind(b, 0));
    must(gw_session_prefill(b, ids, PROMPT));
    assert_memory_equal(gw_session_logits(a, 0), gw_session_logits(b, 0), bytes);
    assert_int_equal(a->repeated, BACK - PROMPT + PROMPT - 1);
    uint64_t before = b->repeated;
    must(gw_session_rewind(b, 0)); /* what the text before left is of no use, and in nobody's way */
    for (int i = 0; i < 4; i++) {
        must(gw_session_decode(b, ids + i, 1));
    }
    assert_int_equal(b->repeated, before);
    gw_session_free(a);
    gw_session_free(b);
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
    must(gw_session_copy(other, s));
    assert_int_equal(gw_session_pos(other), N_PROMPT + 8);
    go_on(r, other, 8, N_TEXT, 7, "copied");
    must(gw_session_rewind(other, N_PROMPT + 2));
    go_on(r, other, 2, N_TEXT, 16, "copied and taken back");
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
    /* Every second one under sanitizers: convolution, delta rule, scan, latent keys, shared caches,
     * n-grams; test_goldens has them all. */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i += 1 + TEST_SANITIZED) {
        print_message("  %s\n", names[i]);
        rig r = open_rig(names[i]);
        chunks_and_widths(&r);
        speculation(&r);
        far_back(&r);
        memory(&r);
        if (i < 3) {
            from_a_prompt(&r);
        }
        turns(&r);
        saved(&r);
        shifted(&r);
        close_rig(&r);
    }
}

/* ---- caches of windows: a ring of pages against a cache that has all of them ------------------
 */

enum { W_CTX = 4096, W_TEXT = 2100, W_MORE = 40 };

typedef struct pair {
    gw_session *ring, *whole;
    int32_t n_vocab;
    const int32_t *ids; /* [W_TEXT + W_MORE] */
} pair;

static void same_logits(const pair *p, size_t rows, const char *what) {
    for (size_t row = 0; row < rows; row++) {
        if (memcmp(gw_session_logits(p->ring, row), gw_session_logits(p->whole, row),
                   (size_t)p->n_vocab * sizeof(float)) != 0) {
            fail_msg("%s: other logits behind row %zu", what, row);
        }
    }
}

/* Both back to pos; then a prompt of n tokens and a pass of four. */
static void both_go_on(const pair *p, int32_t pos, int32_t n, const char *what) {
    gw_session *sessions[2] = {p->ring, p->whole};
    for (int i = 0; i < 2; i++) {
        must(gw_session_rewind(sessions[i], pos));
        must(gw_session_prefill(sessions[i], p->ids + W_MORE, (size_t)n));
    }
    same_logits(p, 1, what);
    for (int i = 0; i < 2; i++) {
        must(gw_session_decode(sessions[i], p->ids, 4));
    }
    same_logits(p, 4, what);
}

static gw_session *ring_of(gw_model *m, int32_t chunk) {
    gw_session *s = NULL;
    gw_session_options o = {.n_ctx = W_CTX, .chunk = chunk};
    must(gw_session_new(m, &o, &s));
    int rings = 0;
    for (int32_t l = 0; l < m->hp.n_layers; l++) {
        int bounded = m->hp.layer[l].reach > 0 && m->hp.layer[l].has_cache;
        assert_int_equal(s->kv.k[l].dim[0]<W_CTX / GW_PAGE, m->hp.layer[l].reach> 0);
        assert_true(!bounded || s->kv.k[l].dim[0] * GW_PAGE <= chunk + GW_KV_SLACK + 300);
        rings += bounded;
    }
    assert_true(rings > 0);
    return s;
}

static void check_windows(const char *name, const int32_t *ids) {
    char folder[80], path[128];
    gw_model *m = NULL;
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/godwit-windows-%d", tmp ? tmp : "/tmp", (int)getpid());
    snprintf(folder, sizeof folder, "goldens/%s", name);
    gw_model_options o = {.path = shared_path(folder), .device = "cpu", .threads = 1};
    must(gw_model_open(&o, &m));
    const gw_session_options so = {.n_ctx = W_CTX, .chunk = 128};
    const gw_sharing all_pages = {.slots = 1, .widest = GW_DECODE_MAX}; /* has no rings */
    pair p = {.ring = ring_of(m, 64), .n_vocab = m->hp.n_vocab, .ids = ids};
    must(gw_session_make(m, &so, &all_pages, &p.whole));
    assert_int_equal(p.whole->kv.n_kinds, 1);
    both_go_on(&p, 0, W_TEXT, name);
    both_go_on(&p, W_TEXT - 900, 70, "back within the ring");
    assert_true(p.ring->kv.floor > 200 && p.ring->kv.floor < W_TEXT - 900);
    both_go_on(&p, 200, 30, "back beyond the ring");
    assert_int_equal(p.ring->kv.floor, 0);
    both_go_on(&p, 230, W_TEXT - 230, "on to where it was");
    must(gw_session_save(p.ring, path));
    gw_session_free(p.ring);
    p.ring = ring_of(m, 100); /* another ring */
    must(gw_session_prefill(p.ring, ids, 100));
    must(gw_session_load(p.ring, path));
    both_go_on(&p, W_TEXT + 4, 5, "loaded");
    both_go_on(&p, W_TEXT - 300, 5, "loaded and taken back");
    both_go_on(&p, 231, 5, "loaded and taken back beyond the ring");
    gw_session_free(p.ring);
    gw_session_free(p.whole);
    gw_model_free(m);
    unlink(path);
}

static void test_windows(void **state) {
    static const char *const windowed[] = {"mistral-swa", "gemma3-pattern", "gemma3n", "llama4"};
    int32_t ids[W_TEXT + W_MORE];
    (void)state;
    random_seed(47);
    for (int i = 0; i < W_TEXT + W_MORE; i++) {
        ids[i] = 3 + (int32_t)(random_u32() % 300);
    }
    for (size_t i = 0; i < sizeof windowed / sizeof windowed[0]; i += 1 + TEST_SANITIZED) {
        print_message("  %s\n", windowed[i]);
        check_windows(windowed[i], ids);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_states),
                                       cmocka_unit_test(test_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
