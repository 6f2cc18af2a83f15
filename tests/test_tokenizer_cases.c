/* tests/test_tokenizer_cases.c - every folder of ../shared/tokenizers both ways, in each form that
 * it has: the folder as it is, its GGUF file, its SentencePiece file; texts and pairs. */
#include "tests/tokenizer_subject.h"

#include <dirent.h>
#include <jansson.h>

#include "core/text/tokens/stream.h"
#include "core/text/utf8.h"
#include "include/godwit.h"

typedef enum form { FOLDER, GGUF, SENTENCEPIECE } form;

typedef struct tally {
    size_t cases, bad, forms;
} tally;

/* ---- one case ---------------------------------------------------------------------------- */

static int is_list(const json_t *list, const int32_t *ids, size_t n) {
    int same = json_is_array(list) && json_array_size(list) == n;
    for (size_t i = 0; same && i < n; i++) {
        same = json_integer_value(json_array_get(list, i)) == ids[i];
    }
    return same;
}

static void show(const char *what, const json_t *list, const int32_t *ids, size_t n) {
    print_error("  %s", what);
    for (size_t i = 0; i < (list != NULL ? json_array_size(list) : n) && i < 60; i++) {
        print_error(" %d",
                    list != NULL ? (int)json_integer_value(json_array_get(list, i)) : (int)ids[i]);
    }
    print_error("\n");
}

static int check_ids(const gw_tokenizer *t, const json_t *row, const char *key, const char *also,
                     int flags) {
    const json_t *text = json_object_get(row, "text"), *want = json_object_get(row, key);
    int32_t *ids = NULL;
    size_t n = 0;
    must(
        gw_tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, &ids, &n));
    int same = is_list(want, ids, n) ||
               (also != NULL && is_list(json_object_get(row, also), ids, n)) ||
               json_object_get(row, "quirk") != NULL;
    if (!same) {
        print_error("  text \"%.200s\"\n", json_string_value(text));
        show("want", want, NULL, 0);
        show("have", NULL, ids, n);
    }
    free(ids);
    return same;
}

static int32_t *ids_of(const json_t *list, size_t *n) {
    *n = json_array_size(list);
    int32_t *ids = calloc(*n + 1, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return ids;
}

/* The text with U+FFFD for what is no UTF-8, as the reference shows it. */
static char *repaired(char *text, size_t *bytes) {
    char *out = malloc(3 * *bytes + 1);
    size_t n = 0;
    assert_non_null(out);
    for (size_t at = 0; at < *bytes;) {
        size_t good = gw_utf8_span(text + at, *bytes - at);
        memcpy(out + n, text + at, good);
        at += good;
        n += good;
        if (at < *bytes) {
            int open;
            at += gw_utf8_bad(text + at, *bytes - at, &open);
            memcpy(out + n, "\xEF\xBF\xBD", 3);
            n += 3;
        }
    }
    out[n] = '\0';
    free(text);
    *bytes = n;
    return out;
}

static int check_text(const gw_tokenizer *t, const int32_t *ids, size_t n, int keep,
                      const json_t *want) {
    char *text = NULL;
    size_t bytes = 0;
    if (want == NULL) {
        return 1;
    }
    must(gw_tokenizer_decode(t, ids, n, keep, &text, &bytes));
    text = repaired(text, &bytes);
    int same =
        bytes == json_string_length(want) && memcmp(text, json_string_value(want), bytes) == 0;
    if (!same) {
        print_error("  decoded%s \"%.200s\"\n  want      \"%.200s\"\n", keep ? "" : "_skip", text,
                    json_string_value(want));
    }
    free(text);
    return same;
}

/* What comes token by token is what comes at once. */
static int check_stream(const gw_tokenizer *t, const int32_t *ids, size_t n) {
    char *whole = NULL;
    size_t bytes = 0, at = 0;
    gw_text_stream *stream = NULL;
    must(gw_tokenizer_decode(t, ids, n, 0, &whole, &bytes));
    whole = repaired(whole, &bytes);
    must(gw_text_stream_new(t, &stream));
    int same = 1;
    for (size_t i = 0; i <= n; i++) {
        const char *text;
        size_t more;
        must(gw_text_stream_push(stream, i < n ? ids[i] : -1, &text, &more));
        same = same && more <= bytes - at && memcmp(whole + at, text, more) == 0;
        at += more;
    }
    same = same && at == bytes;
    if (!same) {
        print_error("  the stream of \"%.100s\" differs\n", whole);
    }
    gw_text_stream_free(stream);
    free(whole);
    return same;
}

/* ---- the cases of a form ----------------------------------------------------------------- */

static json_t *read_json(const char *folder, const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%.400s/%s", folder, name);
    return json_load_file(path, JSON_ALLOW_NUL, NULL);
}

/* Falcon's and DeepSeek's digits: either answer will do (README). */
static const char *second_answer(const char *name, form which) {
    return which == GGUF &&
                   (strcmp(name, "pre-falcon") == 0 || strcmp(name, "pre-deepseek-llm") == 0)
               ? "other"
               : NULL;
}

static int check_row(const gw_tokenizer *t, const char *name, form which, const json_t *row) {
    int pre = strncmp(name, "pre-", 4) == 0;
    int ranks = json_object_get(row, "ids_special") != NULL || strncmp(name, "tekken", 6) == 0 ||
                strstr(name, "tiktoken") != NULL;
    int plain = which == SENTENCEPIECE || strncmp(name, "spm-", 4) == 0;
    const char *key = which == SENTENCEPIECE && json_object_get(row, "ids_sentencepiece") != NULL
                          ? "ids_sentencepiece"
                          : "ids";
    int flags = pre ? 0 : ranks || plain ? GW_TEXT_BOS : GW_TEXT_BOS | GW_TEXT_SPECIAL;
    if (plain && strcmp(name, "spm-no-fuse-unk") == 0) {
        flags |= GW_TEXT_SPECIAL;
    } else if (plain && which != SENTENCEPIECE) {
        flags = 0; /* the files alone say of no bos */
    }
    size_t n = 0;
    int32_t *ids = ids_of(json_object_get(row, "ids"), &n);
    int same = check_ids(t, row, key, second_answer(name, which), flags);
    if (json_object_get(row, "ids_special") != NULL) {
        same &= check_ids(t, row, "ids_special", NULL, flags | GW_TEXT_SPECIAL);
    }
    if (which != SENTENCEPIECE) {
        same &= check_text(t, ids, n, 1, json_object_get(row, "decoded"));
        same &= check_text(t, ids, n, 0, json_object_get(row, "decoded_skip"));
        same &= check_stream(t, ids, n);
    }
    free(ids);
    return same;
}

static int check_pair(const gw_tokenizer *t, const json_t *row) {
    const json_t *a = json_object_get(row, "text"), *b = json_object_get(row, "pair");
    int32_t *ids = NULL, *types = NULL;
    size_t n = 0;
    must(gw_tokenizer_encode_pair(t, json_string_value(a), json_string_length(a),
                                  json_string_value(b), json_string_length(b),
                                  GW_TEXT_BOS | GW_TEXT_SPECIAL, &ids, &types, &n));
    int same = is_list(json_object_get(row, "ids"), ids, n) &&
               is_list(json_object_get(row, "type_ids"), types, n);
    if (!same) {
        print_error("  pair \"%.80s\", \"%.80s\"\n", json_string_value(a), json_string_value(b));
        show("want", json_object_get(row, "ids"), NULL, 0);
        show("have", NULL, ids, n);
        show("types want", json_object_get(row, "type_ids"), NULL, 0);
        show("types have", NULL, types, n);
    }
    free(ids);
    free(types);
    return same;
}

static void check_form(const char *folder, const char *name, const char *path, form which,
                       tally *all) {
    gw_checkpoint *checkpoint = NULL;
    const gw_vocab *vocab = NULL;
    gw_tokenizer *t = NULL;
    json_t *cases = read_json(folder, "cases.json"), *pairs = read_json(folder, "pairs.json"), *row;
    size_t i, bad = 0;
    assert_non_null(cases);
    must(gw_checkpoint_open_vocab(path, NULL, 0, &checkpoint));
    must(gw_checkpoint_vocab(checkpoint, &vocab));
    assert_non_null(vocab);
    must(gw_tokenizer_new(vocab, &t));
    json_array_foreach(cases, i, row) { bad += !check_row(t, name, which, row); }
    json_array_foreach(pairs, i, row) { bad += which != SENTENCEPIECE && !check_pair(t, row); }
    size_t n = json_array_size(cases) + (which != SENTENCEPIECE ? json_array_size(pairs) : 0);
    print_message("%s: %zu of %zu cases\n", path, n - bad, n);
    all->cases += n;
    all->bad += bad;
    all->forms++;
    gw_tokenizer_free(t);
    gw_checkpoint_free(checkpoint);
    json_decref(cases);
    json_decref(pairs);
}

static int exists(const char *path) { return gw_path_look(path) != GW_PATH_NONE; }

static void check_folder(const char *root, const char *name, tally *all) {
    static const struct {
        const char *file;
        form which;
    } FORMS[] = {{"tokenizer.json", FOLDER},      {"vocab.gguf", GGUF},
                 {"spiece.model", SENTENCEPIECE}, {"sentencepiece.bpe.model", SENTENCEPIECE},
                 {"tokenizer.model", FOLDER},     {"vocab.txt", FOLDER},
                 {"tekken.json", FOLDER},         {"tiktoken.model", FOLDER}};
    char folder[400], path[500];
    snprintf(folder, sizeof folder, "%.250s/%.100s", root, name);
    snprintf(path, sizeof path, "%s/cases.json", folder);
    if (!exists(path)) {
        return;
    }
    for (size_t i = 0; i < sizeof FORMS / sizeof FORMS[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, FORMS[i].file);
        if (exists(path)) {
            check_form(folder, name, path, FORMS[i].which, all);
        }
    }
}

static void test_folders(void **state) {
    (void)state;
    char root[4096];
    tally all = {0};
    snprintf(root, sizeof root, "%s", shared_path("tokenizers"));
    DIR *dir = opendir(root);
    if (dir == NULL) {
        print_message("SKIP: %s (set GODWIT_SHARED)\n", root);
        skip();
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] != '.') {
            check_folder(root, e->d_name, &all);
        }
    }
    closedir(dir);
    print_message("%zu forms, %zu of %zu cases\n", all.forms, all.cases - all.bad, all.cases);
    assert_true(all.forms > 70 && all.cases > 6000);
    assert_int_equal(all.bad, 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_folders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
