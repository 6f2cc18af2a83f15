/* tests/test_tokenizer.c - tokenizers of real vocabularies, any text, bad files, speed. The kinds
 * of
 * ../shared/tokenizers are walked in test_tokenizer_cases.c. */
#include "tests/sanitized.h"
#include "tests/tokenizer_subject.h"

#include <jansson.h>
#include <time.h>

#include "core/text/tokens/known.h"
#include "core/text/tokens/stream.h"
#include "core/text/utf8.h"
#include "tests/random.h"

/* ---- one case ---------------------------------------------------------------------------- */

static void print_ids(const char *what, const int32_t *ids, size_t n) {
    print_error("  %s:", what);
    for (size_t i = 0; i < n && i < 60; i++) {
        print_error(" %d", (int)ids[i]);
    }
    print_error("%s\n", n > 60 ? " ..." : "");
}

static int check_ids(const gw_tokenizer *t, const char *text, size_t bytes, int flags,
                     const int32_t *want, size_t n_want) {
    int32_t *ids = NULL;
    size_t n = 0;
    must(gw_tokenizer_encode(t, text, bytes, flags, &ids, &n));
    int same = n == n_want && (n == 0 || memcmp(ids, want, n * sizeof *ids) == 0);
    if (!same) {
        print_error("text \"%.*s\"\n", bytes > 80 ? 80 : (int)bytes, text);
        print_ids("want", want, n_want);
        print_ids("have", ids, n);
    }
    free(ids);
    return same;
}

static int check_decoded(const gw_tokenizer *t, const int32_t *ids, size_t n, int keep_special,
                         const char *want, size_t want_bytes) {
    char *text = NULL;
    size_t bytes = 0;
    must(gw_tokenizer_decode(t, ids, n, keep_special, &text, &bytes));
    int same = bytes == want_bytes && memcmp(text, want, bytes) == 0 && text[bytes] == '\0';
    if (!same) {
        print_error("decoded \"%.*s\", want \"%.*s\"\n", bytes > 80 ? 80 : (int)bytes, text,
                    want_bytes > 80 ? 80 : (int)want_bytes, want);
    }
    free(text);
    return same;
}

/* What the stream hands out is UTF-8 at every step and adds up to the decoded text. */
static int check_streamed(const gw_tokenizer *t, const int32_t *ids, size_t n) {
    char *whole = NULL;
    size_t whole_bytes = 0, at = 0;
    must(gw_tokenizer_decode(t, ids, n, 0, &whole, &whole_bytes));
    gw_text_stream *stream = NULL;
    must(gw_text_stream_new(t, &stream));
    int valid = gw_utf8_span(whole, whole_bytes) == whole_bytes, same = 1;
    for (size_t i = 0; i <= n; i++) {
        const char *text;
        size_t bytes;
        must(gw_text_stream_push(stream, i < n ? ids[i] : -1, &text, &bytes));
        same = same && gw_utf8_span(text, bytes) == bytes;
        if (valid) {
            same = same && bytes <= whole_bytes - at && memcmp(whole + at, text, bytes) == 0;
            at += bytes;
        }
    }
    same = same && (!valid || at == whole_bytes);
    if (!same) {
        print_error("the stream of \"%.60s\" differs\n", whole);
    }
    gw_text_stream_free(stream);
    free(whole);
    return same;
}

static int32_t *ids_of(const json_t *array, size_t *n) {
    *n = json_array_size(array);
    int32_t *ids = calloc(*n + 1, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    return ids;
}

static void run_cases(const char *name, const char *tokenizer, const json_t *cases, int flags,
                      int keep_special) {
    subject s;
    load(tokenizer, &s);
    size_t i, good = 0, n_cases = json_array_size(cases);
    json_t *one;
    assert_true(n_cases > 0);
    json_array_foreach(cases, i, one) {
        size_t n;
        int32_t *ids = ids_of(json_object_get(one, "ids"), &n);
        const json_t *text = json_object_get(one, "text"), *back = json_object_get(one, "decoded");
        int same = check_ids(s.t, json_string_value(text), json_string_length(text), flags, ids, n);
        same &= check_decoded(s.t, ids, n, keep_special, json_string_value(back),
                              json_string_length(back));
        same &= check_streamed(s.t, ids, n);
        good += (size_t)same;
        free(ids);
    }
    print_message("%s: %zu of %zu cases\n", name, good, n_cases);
    assert_int_equal(good, n_cases);
    unload(&s);
}

/* ---- ../shared/tokenizers, ../shared/models ---------------------------------------------- */

/* Every name that the reference data has is known. */
static void test_names(void **state) {
    (void)state;
    gw_file file = open_shared("tokenizers/pretokenizers.json");
    json_t *root = json_loadb(file.data, file.size, 0, NULL), *row;
    const char *name;
    size_t n = 0;
    json_object_foreach(json_object_get(root, "names"), name, row) {
        const gw_known_pretokenizer *known;
        if (*name != '\0') { /* "": a file without one */
            must(gw_known_find(NULL, name, &known));
            n++;
        }
    }
    assert_true(n > 90);
    json_decref(root);
    gw_file_close(&file);
}

static void test_trained(void **state) {
    gw_file file = open_shared("models/tokenizer_tests.json");
    json_t *root = json_loadb(file.data, file.size, JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    run_cases(*state, *state, json_object_get(root, "tests"), 0, 0);
    json_decref(root);
    gw_file_close(&file);
}

/* ---- ../shared/vocab --------------------------------------------------------------------- */

static int check_line(const gw_tokenizer *t, const char *text, size_t bytes, const char **line,
                      const char *end) {
    int32_t want[4096];
    size_t n = 0;
    while (*line < end && **line != '\n') {
        char *next;
        long id = strtol(*line, &next, 10);
        if (next == *line) {
            (*line)++; /* a blank at the end of the line */
            continue;
        }
        assert_true(n < 4096);
        want[n++] = (int32_t)id;
        *line = next;
    }
    *line += *line < end;
    return check_ids(t, text, bytes, 0, want, n) & check_streamed(t, want, n);
}

static void test_vocab(void **state) {
    static const char MARK[] = "\n__ggml_vocab_test__\n";
    char name[3][300];
    snprintf(name[0], 200, "vocab/ggml-vocab-%s.gguf", (const char *)*state);
    snprintf(name[1], sizeof name[1], "%.200s.inp", name[0]);
    snprintf(name[2], sizeof name[2], "%.200s.out", name[0]);
    gw_file in = open_shared(name[1]), out = open_shared(name[2]);
    subject s;
    load(name[0], &s);
    const char *at = in.data, *end = at + in.size, *line = out.data, *lines = line + out.size;
    size_t good = 0, count = 0;
    while (at < end) {
        const char *stop = memmem(at, (size_t)(end - at), MARK, sizeof MARK - 1);
        size_t n = stop == NULL ? (size_t)(end - at) : (size_t)(stop - at);
        good += (size_t)check_line(s.t, at, n, &line, lines);
        count++;
        at += n + (stop == NULL ? 0 : sizeof MARK - 1);
    }
    print_message("%s: %zu of %zu cases\n", name[0], good, count);
    assert_true(count > 40);
    assert_int_equal(good, count);
    unload(&s);
    gw_file_close(&in);
    gw_file_close(&out);
}

/* ---- ../shared/badfiles ------------------------------------------------------------------ */

static int allowed(const json_t *row, gw_status status) {
    const char *name = gw_status_name(status);
    const json_t *also = json_object_get(row, "also_ok"), *one;
    size_t i;
    if (strcmp(name, json_string_value(json_object_get(row, "error_class"))) == 0) {
        return 1;
    }
    json_array_foreach(also, i, one) {
        if (strcmp(name, json_string_value(one)) == 0) {
            return 1;
        }
    }
    return 0;
}

static void test_bad_files(void **state) {
    (void)state;
    gw_file manifest = open_shared("badfiles/manifest.json");
    json_t *root = json_loadb(manifest.data, manifest.size, 0, NULL), *row;
    const char *name;
    size_t seen = 0;
    assert_non_null(root);
    json_object_foreach(json_object_get(root, "files"), name, row) {
        int bad = strncmp(name, "hf-tokenizer-", 13) == 0;
        if (!bad && strcmp(name, "hf-valid-base") != 0) {
            continue;
        }
        char path[300];
        snprintf(path, sizeof path, "badfiles/%.200s/tokenizer.json", name);
        gw_file file = open_shared(path);
        gw_vocab vocab;
        gw_status status = gw_vocab_read_tokenizer_json(path, file.data, file.size, &vocab);
        print_message("%s: %s\n", name, status == GW_OK ? "read" : gw_error_text());
        assert_true(bad ? status != GW_OK && allowed(row, status) : status == GW_OK);
        if (status == GW_OK) {
            gw_vocab_free(&vocab);
        }
        gw_file_close(&file);
        seen++;
    }
    assert_true(seen >= 5);
    json_decref(root);
    gw_file_close(&manifest);
}

/* ---- any text ---------------------------------------------------------------------------- */

static void check_round_trip(const gw_tokenizer *t, const char *text, size_t bytes) {
    int32_t *ids = NULL;
    size_t n = 0;
    must(gw_tokenizer_encode(t, text, bytes, 0, &ids, &n));
    assert_true(check_decoded(t, ids, n, 0, text, bytes));
    assert_true(check_streamed(t, ids, n));
    free(ids);
}

/* Whatever the bytes, a vocabulary with all bytes gives the text back, and the spelling of a
 * control token stays text. */
static void test_round_trip(void **state) {
    static const char *const PARTS[] = {"a",
                                        "the",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "\xC3\xA9",
                                        "e\xCC\x81",
                                        "\xE4\xB8\xAD",
                                        "\xF0\x9F\xA6\x99",
                                        "\xE2\x80\x8D",
                                        "<s>",
                                        "</s>",
                                        "<unk>",
                                        "<|endoftext|>",
                                        "<0x0A>",
                                        "123",
                                        "'ll",
                                        "\xFF",
                                        "\xE4\xB8",
                                        "\xF0\x9F",
                                        "\xC0\x80",
                                        "\xED\xA0\x80",
                                        "Z",
                                        "?!",
                                        "\xC2\xA0"};
    subject s;
    load(*state, &s);
    random_seed(1);
    for (int round = 0; round < 400; round++) {
        char text[512];
        size_t n = 0, count = random_u32() % 60;
        for (size_t i = 0; i < count; i++) {
            if (round % 2 == 0) {
                text[n++] = (char)random_u32();
                continue;
            }
            const char *part = PARTS[random_u32() % (sizeof PARTS / sizeof PARTS[0])];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
        check_round_trip(s.t, text, n);
    }
    unload(&s);
}

static void test_special_stays_text(void **state) {
    subject s;
    load(*state, &s);
    for (size_t i = 0; i < s.vocab->n_tokens; i++) {
        const gw_vocab_token *token = &s.vocab->tokens[i];
        if (token->kind != GW_TOKEN_CONTROL) {
            continue;
        }
        int32_t *ids = NULL;
        size_t n = 0;
        must(gw_tokenizer_encode(s.t, token->text, token->bytes, 0, &ids, &n));
        assert_true(n > 1); /* spelled out */
        for (size_t k = 0; k < n; k++) {
            assert_int_not_equal(s.vocab->tokens[ids[k]].kind, GW_TOKEN_CONTROL);
        }
        free(ids);
        must(gw_tokenizer_encode(s.t, token->text, token->bytes, GW_TEXT_SPECIAL, &ids, &n));
        assert_int_equal(n, 1);
        assert_int_equal(ids[0], (int32_t)i);
        free(ids);
    }
    unload(&s);
}

/* ---- speed ------------------------------------------------------------------------------- */

enum { MEGABYTE = 1 << 20, TEXT_KINDS = 12 };

static char *megabyte_of(int kind, size_t *bytes) {
    static const char *const UNITS[TEXT_KINDS] = {NULL,
                                                  "a",
                                                  " ",
                                                  "\n",
                                                  "\xE4\xB8\xAD\xE6\x96\x87\xE5\xAD\x97",
                                                  NULL,
                                                  "\xF0\x9F\xA6\x99",
                                                  " \n",
                                                  "\xCC\x81\xCC\xA7",
                                                  "1",
                                                  NULL,
                                                  "ab"};
    char *text = malloc(MEGABYTE + 16);
    assert_non_null(text);
    random_seed(42);
    gw_file file = {0};
    if (kind == 0) {
        file = open_shared("models/val-time-machine.txt");
    }
    const char *unit = kind == 0 ? file.data : UNITS[kind];
    size_t n = kind == 0 ? file.size : unit == NULL ? 1 : strlen(unit);
    *bytes = MEGABYTE / n * n;
    for (size_t i = 0; i < *bytes; i++) {
        text[i] = unit != NULL ? unit[i % n]
                  : kind == 5  ? (char)random_u32()
                               : (char)('a' + random_u32() % 26);
    }
    if (kind == 0) {
        gw_file_close(&file);
    }
    return text;
}

static double seconds_of(const gw_tokenizer *t, const char *text, size_t bytes) {
    struct timespec a, b;
    int32_t *ids = NULL;
    size_t n = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    must(gw_tokenizer_encode(t, text, bytes, 0, &ids, &n));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    free(ids);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

#if TEST_SANITIZED || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
enum { MEASURED_BUILD = 0 };
#else
enum { MEASURED_BUILD = 1 };
#endif

/* 1 MB of anything in under a second of this thread's time. A quadratic step would take minutes,
 * so the best of three tries cannot fail on a busy machine. */
static void test_speed(void **state) {
    static const char *const NAMES[TEXT_KINDS] = {
        "English",      "'a'",        "spaces",         "newlines",        "CJK",
        "random bytes", "emoji",      "space, newline", "combining marks", "digits",
        "letters",      "two letters"};
    subject s;
    load(*state, &s);
    for (int kind = 0; kind < TEXT_KINDS; kind++) {
        size_t bytes;
        char *text = megabyte_of(kind, &bytes);
        bytes /= MEASURED_BUILD ? 1 : 8; /* where time is not measured, it is only memory */
        double best = seconds_of(s.t, text, bytes);
        for (int i = 0; i < 2 && best > 0.5 && MEASURED_BUILD; i++) {
            double again = seconds_of(s.t, text, bytes);
            best = again < best ? again : best;
        }
        print_message("%s: %zu bytes of %s in %.3f s\n", (const char *)*state, bytes, NAMES[kind],
                      best);
        assert_true(best < (MEASURED_BUILD ? 1.0 : 60.0));
        free(text);
    }
    unload(&s);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        {"trained, tokenizer.model", test_trained, NULL, NULL, "models/tales-21m/tokenizer.model"},
        {"trained, GGUF", test_trained, NULL, NULL, "models/tales-2m-q4_0.gguf"},
        {"vocab llama-spm", test_vocab, NULL, NULL, "llama-spm"},
        {"vocab bert-bge", test_vocab, NULL, NULL, "bert-bge"},
        {"vocab phi-3", test_vocab, NULL, NULL, "phi-3"},
        {"vocab gpt-2", test_vocab, NULL, NULL, "gpt-2"},
        {"vocab falcon", test_vocab, NULL, NULL, "falcon"},
        {"vocab starcoder", test_vocab, NULL, NULL, "starcoder"},
        {"vocab deepseek-coder", test_vocab, NULL, NULL, "deepseek-coder"},
        cmocka_unit_test(test_bad_files),
        {"round trip tokenizers/gpt2-bytelevel/tokenizer.json", test_round_trip, NULL, NULL,
         "tokenizers/gpt2-bytelevel/tokenizer.json"},
        {"round trip tokenizers/llama3-split/tokenizer.json", test_round_trip, NULL, NULL,
         "tokenizers/llama3-split/tokenizer.json"},
        {"round trip tokenizers/llama-bytefallback/tokenizer.json", test_round_trip, NULL, NULL,
         "tokenizers/llama-bytefallback/tokenizer.json"},
        {"round trip models/tales-21m/tokenizer.model", test_round_trip, NULL, NULL,
         "models/tales-21m/tokenizer.model"},
        {"round trip vocab/ggml-vocab-llama-spm.gguf", test_round_trip, NULL, NULL,
         "vocab/ggml-vocab-llama-spm.gguf"},
        {"round trip vocab/ggml-vocab-gpt-2.gguf", test_round_trip, NULL, NULL,
         "vocab/ggml-vocab-gpt-2.gguf"},
        {"special text tokenizers/llama3-split/tokenizer.json", test_special_stays_text, NULL, NULL,
         "tokenizers/llama3-split/tokenizer.json"},
        {"special text models/tales-21m/tokenizer.model", test_special_stays_text, NULL, NULL,
         "models/tales-21m/tokenizer.model"},
        {"special text vocab/ggml-vocab-phi-3.gguf", test_special_stays_text, NULL, NULL,
         "vocab/ggml-vocab-phi-3.gguf"},
        {"special text vocab/ggml-vocab-starcoder.gguf", test_special_stays_text, NULL, NULL,
         "vocab/ggml-vocab-starcoder.gguf"},
        {"speed vocab/ggml-vocab-llama-spm.gguf", test_speed, NULL, NULL,
         "vocab/ggml-vocab-llama-spm.gguf"},
        {"speed vocab/ggml-vocab-gpt-2.gguf", test_speed, NULL, NULL,
         "vocab/ggml-vocab-gpt-2.gguf"},
        {"speed vocab/ggml-vocab-falcon.gguf", test_speed, NULL, NULL,
         "vocab/ggml-vocab-falcon.gguf"},
        {"speed vocab/ggml-vocab-starcoder.gguf", test_speed, NULL, NULL,
         "vocab/ggml-vocab-starcoder.gguf"},
        {"speed vocab/ggml-vocab-deepseek-coder.gguf", test_speed, NULL, NULL,
         "vocab/ggml-vocab-deepseek-coder.gguf"},
        {"speed tokenizers/pre-kimi-k2/vocab.gguf", test_speed, NULL, NULL,
         "tokenizers/pre-kimi-k2/vocab.gguf"},
        {"speed tokenizers/pre-superbpe/vocab.gguf", test_speed, NULL, NULL,
         "tokenizers/pre-superbpe/vocab.gguf"},
        {"speed tokenizers/pre-afmoe/vocab.gguf", test_speed, NULL, NULL,
         "tokenizers/pre-afmoe/vocab.gguf"},
        {"speed tokenizers/llama3-split/tokenizer.json", test_speed, NULL, NULL,
         "tokenizers/llama3-split/tokenizer.json"},
        {"speed tokenizers/llama-bytefallback/tokenizer.json", test_speed, NULL, NULL,
         "tokenizers/llama-bytefallback/tokenizer.json"},
        {"speed tokenizers/pre-superbpe/tokenizer.json", test_speed, NULL, NULL,
         "tokenizers/pre-superbpe/tokenizer.json"},
        {"speed tokenizers/pre-kimi-k2/tokenizer.json", test_speed, NULL, NULL,
         "tokenizers/pre-kimi-k2/tokenizer.json"},
        {"speed tokenizers/bert-uncased/tokenizer.json", test_speed, NULL, NULL,
         "tokenizers/bert-uncased/tokenizer.json"},
        {"speed tokenizers/xlm-roberta/tokenizer.json", test_speed, NULL, NULL,
         "tokenizers/xlm-roberta/tokenizer.json"},
        {"speed tokenizers/tekken-v13/tekken.json", test_speed, NULL, NULL,
         "tokenizers/tekken-v13/tekken.json"},
        {"speed tokenizers/spm-unigram/tokenizer.model", test_speed, NULL, NULL,
         "tokenizers/spm-unigram/tokenizer.model"},
        {"speed tokenizers/spm-bpe/tokenizer.model", test_speed, NULL, NULL,
         "tokenizers/spm-bpe/tokenizer.model"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
