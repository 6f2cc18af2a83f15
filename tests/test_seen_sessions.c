/* tests/test_seen_sessions.c - sessions with pictures saved, loaded and copied, and beams over
 * prompts with pictures: the bits of a session that read the same; what is refused; what is kept.
 */
#include <math.h>
#include <unistd.h>

#include "core/engine/batch/batch_state.h"
#include "core/engine/run/tower_state.h"
#include "core/engine/sampling/logprob.h"
#include "include/godwit_bind.h"
#include "tests/eyes_cases.h"

/* Angles of rows and columns with rows in layers; windows that see both ways; several runs of a
 * picture; recurrent blocks. */
static const char *const folders[] = {"qwen3vl", "gemma3", "mistral3", "llama4", "qwen35"};
enum { FOLDERS = sizeof folders / sizeof folders[0], CONTEXT = 96, MADE = 5, VOCAB = 512 };

static void open_folder(example *x, const char *folder) {
    char path[600];
    snprintf(path, sizeof path, "tests/data/goldens-eyes/%s", folder);
    open_example(x, path, NULL, "cpu", 1);
}

static gw_session *new_session(const example *x) {
    const gw_session_options options = {.kv_type = "f32", .chunk = 7, .n_ctx = CONTEXT};
    gw_session *s;
    must(gw_session_new(x->model, &options, &s));
    return s;
}

static int32_t best_of(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

typedef struct made {
    float logits[MADE][VOCAB];
    int32_t vocab;
} made;

/* A token given, and what follows it. */
static void go_on(const example *x, gw_session *s, made *out) {
    gw_model_info info;
    int32_t id = 9;
    gw_model_describe(x->model, &info);
    out->vocab = info.n_vocab;
    assert_true(info.n_vocab <= VOCAB);
    for (int i = 0; i < MADE; i++) {
        must(gw_session_decode(s, &id, 1));
        memcpy(out->logits[i], gw_session_logits(s, 0), (size_t)info.n_vocab * sizeof(float));
        id = best_of(out->logits[i], info.n_vocab);
    }
}

static void same(const made *a, const made *b) {
    for (int i = 0; i < MADE; i++) {
        assert_memory_equal(a->logits[i], b->logits[i], (size_t)a->vocab * sizeof(float));
    }
}

static char *temporary(void) {
    static char path[] = "/tmp/godwit-seen-XXXXXX";
    snprintf(path, sizeof path, "/tmp/godwit-seen-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

/* Where runs begin in the prompt; the token in front of the last one of the picture. */
static void check_same(const example *x, const gw_session *s) {
    const gw_seen_rows *last = &x->seen[x->n_seen - 1];
    const size_t begin = x->seen[0].at, end = last->at + (size_t)last->n;
    assert_int_equal(gw_session_same_seen(s, x->seen, x->n_seen, x->n), x->n);
    assert_int_equal(gw_session_same_seen(s, x->seen, x->n_seen, end), end);
    assert_int_equal(gw_session_same_seen(s, x->seen, x->n_seen, end - 1), begin);
    assert_int_equal(gw_session_same_seen(s, x->seen, x->n_seen, begin), begin);
    assert_int_equal(gw_session_same_seen(s, NULL, 0, x->n), begin); /* text in its place */
    gw_sight other = *last->sight; /* another picture of the same size */
    const size_t values = (size_t)other.n_rows * (size_t)other.width;
    float *rows = malloc(values * sizeof *rows);
    gw_seen_rows *seen = malloc(x->n_seen * sizeof *seen);
    assert_true(rows != NULL && seen != NULL);
    memcpy(rows, other.rows, values * sizeof *rows);
    rows[values - 1] += 1.0f;
    other.rows = rows;
    for (size_t i = 0; i < x->n_seen; i++) {
        seen[i] = x->seen[i];
        seen[i].sight = &other;
    }
    assert_int_equal(gw_session_same_seen(s, seen, x->n_seen, x->n), begin);
    free(seen);
    free(rows);
}

/* Saved, loaded, saved again: the same file and the same bits; read on from the picture's begin. */
static void saved(void **state) {
    (void)state;
    for (int i = 0; i < FOLDERS; i++) {
        example x;
        made want, have;
        char *path = temporary(), again[64];
        snprintf(again, sizeof again, "%s.2", path);
        open_folder(&x, folders[i]);
        gw_session *s = new_session(&x), *other = new_session(&x);
        must(gw_session_prefill_seen(s, x.ids, x.n, x.seen, x.n_seen));
        must(gw_session_save(s, path));
        go_on(&x, s, &want);
        must(gw_session_load(other, path));
        must(gw_session_save(other, again));
        check_same(&x, other);
        go_on(&x, other, &have);
        same(&want, &have);
        gw_file a, b;
        must(gw_file_open(path, path, &a));
        must(gw_file_open(again, again, &b));
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, (size_t)a.size);
        gw_file_close(&a);
        gw_file_close(&b);
        must(gw_session_load(other, path)); /* over what it held; then the picture is read anew */
        const size_t begin = x.seen[0].at;
        must(gw_session_rewind(other, (int32_t)begin));
        for (size_t k = 0; k < x.n_seen; k++) {
            x.seen[k].at -= begin;
        }
        must(gw_session_prefill_seen(other, x.ids + begin, x.n - begin, x.seen, x.n_seen));
        go_on(&x, other, &have);
        same(&want, &have);
        unlink(path);
        unlink(again);
        gw_session_free(s);
        gw_session_free(other);
        close_example(&x);
    }
}

static void copied(void **state) {
    (void)state;
    for (int i = 0; i < FOLDERS; i++) {
        example x;
        made want, have;
        open_folder(&x, folders[i]);
        gw_session *s = new_session(&x), *other = new_session(&x);
        must(gw_session_prefill_seen(s, x.ids, x.n, x.seen, x.n_seen));
        must(gw_session_copy(other, s));
        go_on(&x, s, &want);
        gw_session_free(s); /* the copy holds its pictures */
        go_on(&x, other, &have);
        same(&want, &have);
        gw_session_free(other);
        close_example(&x);
    }
}

static void write_file(const char *path, const char *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Every byte changed, and every end: an error, and a session that goes on to work. */
static void damaged(void **state) {
    (void)state;
    example x;
    char *path = temporary();
    open_folder(&x, "qwen3vl");
    gw_session *s = new_session(&x);
    must(gw_session_prefill_seen(s, x.ids, x.n, x.seen, x.n_seen));
    must(gw_session_save(s, path));
    gw_file f;
    must(gw_file_open(path, path, &f));
    const size_t n = (size_t)f.size;
    char *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, f.data, n);
    gw_file_close(&f);
    size_t step = 1;
    for (size_t at = 0; at < n; at += step) {
        copy[at] ^= 0x41;
        write_file(path, copy, n);
        assert_int_not_equal(gw_session_load(s, path), GW_OK);
        assert_null(strchr(gw_error_text(), '\n'));
        copy[at] ^= 0x41;
        step = at < 600 ? 3 : 1 + n / 150;
    }
    for (size_t cut = 1; cut < n; cut += 1 + n / 40) {
        write_file(path, copy, n - cut);
        assert_int_not_equal(gw_session_load(s, path), GW_OK);
    }
    write_file(path, copy, n);
    must(gw_session_load(s, path));
    check_same(&x, s);
    gw_model *blind;
    gw_session *text;
    const gw_model_options options = {
        .path = "tests/data/goldens-eyes/qwen3vl", .device = "cpu", .exact = 1};
    const gw_session_options so = {.kv_type = "f32", .chunk = 7, .n_ctx = CONTEXT};
    must(gw_model_open(&options, &blind));
    must(gw_session_new(blind, &so, &text));
    assert_int_equal(gw_session_load(text, path), GW_E_UNSUPPORTED);
    assert_non_null(strstr(gw_error_text(), "without its vision tower"));
    must(gw_session_prefill(text, x.ids, 3));
    gw_session_free(text);
    gw_model_free(blind);
    unlink(path);
    free(copy);
    gw_session_free(s);
    close_example(&x);
}

/* ---- beams ---------------------------------------------------------------------------------- */

static float rescore(const example *x, gw_session *s, const gw_beam_text *text, int32_t vocab) {
    float sum = 0.0f, one;
    must(gw_session_rewind(s, 0));
    must(gw_session_prefill_seen(s, x->ids, x->n, x->seen, x->n_seen));
    for (size_t i = 0; i < text->n; i++) {
        gw_logprobs(gw_session_logits(s, 0), vocab, text->tokens[i], &one, NULL, 0);
        sum = sum + one;
        if (i + 1 < text->n) {
            must(gw_session_decode(s, &text->tokens[i], 1));
        }
    }
    return sum;
}

/* Two inputs at once, one with a picture and one of text: each text has the log probability that a
 * session gives it, bit for bit, and one beam is greedy. */
static void beams(void **state) {
    (void)state;
    enum { BEAMS = 3 };
    for (int i = 0; i < FOLDERS; i++) {
        example x;
        gw_model_info info;
        gw_beam *beam;
        gw_beam_text out[2 * BEAMS], one;
        open_folder(&x, folders[i]);
        gw_model_describe(x.model, &info);
        const gw_beam_input in[2] = {
            {.prompt = x.ids, .n_prompt = x.n, .max_tokens = 6, .seen = x.seen, .n_seen = x.n_seen},
            {.prompt = x.ids, .n_prompt = 4, .max_tokens = 6}};
        gw_beam_options o = {.n_beams = BEAMS,
                             .length_penalty = 1.0f,
                             .forced_end = -1,
                             .texts = 2,
                             .n_ctx = CONTEXT,
                             .chunk = 7,
                             .kv_type = "f32"};
        must(gw_beam_new(x.model, &o, &beam));
        must(gw_beam_search(beam, in, 2, out));
        gw_beam_free(beam);
        gw_session *s = new_session(&x);
        for (int k = 0; k < BEAMS; k++) {
            assert_true(out[k].n > 0);
            float again = rescore(&x, s, &out[k], info.n_vocab);
            assert_memory_equal(&out[k].logprob, &again, sizeof again);
        }
        gw_session_free(s);
        o.n_beams = o.texts = 1;
        must(gw_beam_new(x.model, &o, &beam));
        must(gw_beam_search(beam, in, 1, &one));
        for (size_t k = 0; k < one.n && k < x.n_greedy; k++) {
            assert_int_equal(one.tokens[k], x.greedy[k]);
        }
        gw_beam_texts_free(&one, 1);
        gw_seen_rows bad = x.seen[0];
        bad.at = x.n; /* after the prompt */
        const gw_beam_input wrong = {
            .prompt = x.ids, .n_prompt = x.n, .max_tokens = 6, .seen = &bad, .n_seen = 1};
        assert_int_equal(gw_beam_search(beam, &wrong, 1, &one), GW_E_ARGUMENT);
        gw_beam_free(beam);
        gw_beam_texts_free(out, 2 * BEAMS);
        close_example(&x);
    }
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static uint64_t kept_bytes(const gw_tower *t, int *n) {
    uint64_t bytes = 0;
    *n = 0;
    for (int i = 0; i < GW_TOWER_KEPT; i++) {
        const gw_sight *s = t->kept[i];
        bytes += s != NULL ? (uint64_t)s->n_rows * (uint64_t)s->width * sizeof *s->rows : 0;
        *n += s != NULL;
    }
    return bytes;
}

/* Sights up to so many bytes, of many pictures; the last one in any case. */
static void sights(void **state) {
    (void)state;
    example x;
    int n;
    open_folder(&x, "qwen3vl");
    gw_tower *t = x.model->tower;
    const uint64_t one = kept_bytes(t, &n);
    assert_int_equal(n, 1);
    for (int i = 0; i < 100; i++) {
        gw_sight *s, *again;
        t->most_kept = i < 60 ? 4 * one + one / 2 : 1;
        x.patches.digest[3] = (uint8_t)(1 + i);
        must(gw_model_see(x.model, &x.patches, &s));
        must(gw_model_see(x.model, &x.patches, &again));
        assert_ptr_equal(s, again);
        gw_sight_free(s);
        gw_sight_free(again);
        assert_true(kept_bytes(t, &n) <= 4 * one + one / 2);
        assert_int_equal(n, i >= 60 ? 1 : i < 3 ? i + 2 : 4);
    }
    close_example(&x);
}

/* Names of pictures that come and go: as many as are kept, none twice, and the last ones stay. */
static void names(void **state) {
    (void)state;
    gw_batch *b = calloc(1, sizeof *b);
    gw_request *r = calloc(1, sizeof *r);
    gw_sight sight = {.n_patches = 4, .n_rows = 1};
    gw_view view = {.sight = &sight, .n = 1, .pos = 2};
    enum { MANY = 3 * GW_PICTURE_KEYS };
    char *given = calloc(MANY, 1);
    assert_true(b != NULL && r != NULL && given != NULL);
    r->views = (gw_views){.view = &view, .n = 1};
    for (int i = 0; i < MANY; i++) {
        int32_t first = -1;
        memcpy(sight.digest, &i, sizeof i);
        for (int twice = 0; twice < 2; twice++) {
            must(gw_batch_name_pictures(b, r));
            assert_true(r->pictures[0] >= 0 && r->pictures[0] < MANY);
            assert_true(twice == 0 || r->pictures[0] == first);
            first = r->pictures[0];
            free(r->pictures);
            r->pictures = NULL;
        }
        assert_false(given[first]);
        given[first] = 1;
        assert_true(b->pictures.n <= GW_PICTURE_KEYS && b->pictures.room < 3 * GW_PICTURE_KEYS);
    }
    int old = MANY - GW_PICTURE_KEYS; /* the oldest that is known still */
    memcpy(sight.digest, &old, sizeof old);
    must(gw_batch_name_pictures(b, r));
    assert_int_equal(b->pictures.next, MANY);
    free(r->pictures);
    free(b->pictures.at);
    free(b->pictures.name);
    free(b->pictures.used);
    free(given);
    free(r);
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved), cmocka_unit_test(copied), cmocka_unit_test(damaged),
        cmocka_unit_test(beams), cmocka_unit_test(sights), cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
