/* tests/test_safetensors.c - the safetensors reader against headers written by hand (every fault of
 * the catalogue, prefixes, changed bytes), and the files of a Hugging Face folder. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/arena.h"
#include "core/model/safetensors.h"

#define T(name, dtype, shape, range)                                                               \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" range "}"
#define DEEP_16 "[[[[[[[[[[[[[[[["
#define DEEP_256                                                                                   \
    DEEP_16 DEEP_16 DEEP_16 DEEP_16 DEEP_16 DEEP_16 DEEP_16 DEEP_16 DEEP_16 DEEP_16 DEEP_16        \
        DEEP_16 DEEP_16 DEEP_16 DEEP_16 DEEP_16
#define DEEP_4096                                                                                  \
    DEEP_256 DEEP_256 DEEP_256 DEEP_256 DEEP_256 DEEP_256 DEEP_256 DEEP_256 DEEP_256 DEEP_256      \
        DEEP_256 DEEP_256 DEEP_256 DEEP_256 DEEP_256 DEEP_256

/* clang-format off */
static const struct {
    const char *name, *header;
    size_t data; /* bytes behind it */
    gw_status want;
    size_t tensors;
} cases[] = {
    {"one", "{" T("a", "F32", "[2,3]", "[0,24]") "}", 24, GW_OK, 1},
    {"padded", "{" T("a", "F16", "[4]", "[0,8]") "}      ", 8, GW_OK, 1},
    {"none", "{}", 0, GW_OK, 0},
    {"metadata alone", "{\"__metadata__\":{\"format\":\"pt\"}}", 0, GW_OK, 0},
    {"out of order", "{" T("b", "BF16", "[2]", "[4,8]") "," T("a", "F32", "[1]", "[0,4]") "}", 8, GW_OK, 2},
    {"empty between", "{" T("a", "F32", "[1]", "[0,4]") "," T("e", "F32", "[0,5]", "[4,4]") "," T("b", "F32", "[1]", "[4,8]") "}", 8, GW_OK, 3},
    {"rank 0", "{" T("a", "F32", "[]", "[0,4]") "}", 4, GW_OK, 1},
    {"rank 6", "{" T("a", "F32", "[1,1,1,1,1,2]", "[0,8]") "}", 8, GW_OK, 1},
    {"other types", "{" T("a", "I64", "[1]", "[0,8]") "," T("b", "BOOL", "[3]", "[8,11]") "," T("c", "F8_E4M3", "[1]", "[11,12]") "," T("d", "F4", "[2]", "[12,13]") "}", 13, GW_OK, 4},
    {"header empty", "", 0, GW_E_SYNTAX, 0},
    {"leading space", " {}", 0, GW_E_SYNTAX, 0},
    {"not JSON", "{nonsense}", 0, GW_E_SYNTAX, 0},
    {"cut", "{\"a\":{\"dtype\":", 0, GW_E_SYNTAX, 0},
    {"array", "[]", 0, GW_E_SYNTAX, 0},
    {"two values", "{}{}", 0, GW_E_SYNTAX, 0},
    {"not UTF-8", "{\"\xff\":1}", 0, GW_E_ENCODING, 0},
    {"NUL in a name", "{" T("a\\u0000b", "F32", "[1]", "[0,4]") "}", 4, GW_E_ENCODING, 0},
    {"deep", "{\"a\":" DEEP_4096, 0, GW_E_LIMIT, 0},
    {"name twice", "{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[4,8]") "}", 8, GW_E_DUPLICATE, 0},
    {"metadata not text", "{\"__metadata__\":{\"n\":1}}", 0, GW_E_TYPE, 0},
    {"metadata a list", "{\"__metadata__\":[]}", 0, GW_E_TYPE, 0},
    {"entry a number", "{\"a\":1}", 0, GW_E_TYPE, 0},
    {"dtype unknown", "{" T("a", "F7", "[1]", "[0,4]") "}", 4, GW_E_TYPE, 0},
    {"dtype missing", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, GW_E_TYPE, 0},
    {"dtype a number", "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, GW_E_TYPE, 0},
    {"size of another dtype", "{" T("a", "F16", "[2]", "[0,8]") "}", 8, GW_E_TYPE, 0},
    {"half a byte", "{" T("a", "F4", "[3]", "[0,1]") "}", 1, GW_E_TYPE, 0},
    {"shape missing", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, GW_E_TYPE, 0},
    {"shape negative", "{" T("a", "F32", "[-1]", "[0,4]") "}", 4, GW_E_TYPE, 0},
    {"shape fraction", "{" T("a", "F32", "[1.5]", "[0,4]") "}", 4, GW_E_TYPE, 0},
    {"shape text", "{" T("a", "F32", "[\"1\"]", "[0,4]") "}", 4, GW_E_TYPE, 0},
    {"shape beyond a number", "{" T("a", "F32", "[1000000000000000000000]", "[0,4]") "}", 4, GW_E_OVERFLOW, 0},
    {"shape overflows", "{" T("a", "F32", "[4294967296,4294967296]", "[0,4]") "}", 4, GW_E_OVERFLOW, 0},
    {"bytes overflow", "{" T("a", "F32", "[4611686018427387904]", "[0,0]") "}", 0, GW_E_OVERFLOW, 0},
    {"offsets text", "{" T("a", "F32", "[1]", "[\"0\",\"4\"]") "}", 4, GW_E_TYPE, 0},
    {"offsets three", "{" T("a", "F32", "[1]", "[0,4,8]") "}", 4, GW_E_TYPE, 0},
    {"offsets negative", "{" T("a", "F32", "[1]", "[-4,0]") "}", 4, GW_E_TYPE, 0},
    {"offsets reversed", "{" T("a", "F32", "[1]", "[4,0]") "}", 4, GW_E_BOUNDS, 0},
    {"past the end", "{" T("a", "F32", "[2]", "[0,8]") "}", 4, GW_E_BOUNDS, 0},
    {"overlap", "{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[4,12]") "}", 12, GW_E_BOUNDS, 0},
    {"hole", "{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", 12, GW_E_BOUNDS, 0},
    {"hole at the start", "{" T("a", "F32", "[1]", "[4,8]") "}", 8, GW_E_BOUNDS, 0},
    {"trailing data", "{" T("a", "F32", "[1]", "[0,4]") "}", 5, GW_E_BOUNDS, 0},
    {"last byte missing", "{" T("a", "F32", "[1]", "[0,4]") "}", 3, GW_E_BOUNDS, 0},
};
/* clang-format on */

static uint8_t *file_of(const char *header, uint64_t declared, size_t data, size_t *n) {
    size_t length = strlen(header);
    *n = 8 + length + data;
    uint8_t *file = calloc(1, *n);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) {
        file[i] = (uint8_t)(declared >> (8 * i));
    }
    memcpy(file + 8, header, length);
    return file;
}

static gw_status parse(const void *file, size_t n, gw_arena *arena, gw_safetensor **list,
                       size_t *count) {
    void *exact = malloc(n != 0 ? n : 1); /* so that a sanitizer sees a read past the end */
    assert_non_null(exact);
    memcpy(exact, file, n);
    gw_status status = gw_safetensors_parse("file", exact, n, -1, arena, list, count);
    free(exact);
    return status;
}

static void test_cases(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_arena *arena = gw_arena_new();
        gw_safetensor *list = NULL;
        size_t n, count = 99;
        uint8_t *file = file_of(cases[i].header, strlen(cases[i].header), cases[i].data, &n);
        gw_status got = parse(file, n, arena, &list, &count);
        if (got != cases[i].want || (got == GW_OK && count != cases[i].tensors)) {
            fail_msg("%s: %s, %zu tensors (%s)", cases[i].name, gw_status_name(got), count,
                     gw_error_text());
        }
        free(file);
        gw_arena_free(arena);
    }
}

static void test_lengths(void **state) {
    (void)state;
    static const struct {
        uint64_t declared;
        gw_status want;
    } rows[] = {{0, GW_E_SYNTAX},         {1, GW_E_SYNTAX},
                {3, GW_E_TRUNCATED},      {100000000, GW_E_TRUNCATED},
                {100000001, GW_E_LIMIT},  {1ull << 63, GW_E_LIMIT},
                {UINT64_MAX, GW_E_LIMIT}, {UINT64_MAX - 7, GW_E_LIMIT}};
    gw_arena *arena = gw_arena_new();
    gw_safetensor *list;
    size_t n, count;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t *file = file_of("{}", rows[i].declared, 0, &n);
        assert_int_equal(parse(file, n, arena, &list, &count), rows[i].want);
        free(file);
    }
    for (n = 0; n < 8; n++) { /* seven bytes and fewer */
        assert_int_equal(parse("\2\0\0\0\0\0\0", n < 7 ? n : 7, arena, &list, &count),
                         GW_E_TRUNCATED);
    }
    gw_arena_free(arena);
}

static void test_places_and_types(void **state) {
    (void)state;
    gw_arena *arena = gw_arena_new();
    gw_safetensor *list;
    size_t n, count;
    uint8_t *file = file_of(cases[8].header, strlen(cases[8].header), 13, &n);
    assert_int_equal(parse(file, n, arena, &list, &count), GW_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list[i].usable, 0);
    }
    assert_string_equal(list[0].dtype, "I64");
    free(file);
    file = file_of(cases[4].header, strlen(cases[4].header), 8, &n);
    assert_int_equal(gw_safetensors_parse("file", file, n, 7, arena, &list, &count), GW_OK);
    assert_string_equal(list[0].stored.name, "a"); /* in the order of the data */
    assert_int_equal(list[0].usable, 1);
    assert_int_equal(list[1].stored.fmt, GW_FMT_BF16);
    assert_int_equal(list[1].stored.dim[0], 2);
    assert_int_equal(list[1].stored.fd, 7);
    assert_int_equal(list[1].stored.at, n - 4);
    assert_ptr_equal(list[1].stored.data, file + n - 4);
    free(file);
    gw_arena_free(arena);
}

/* Any answer will do; a crash or a sanitizer's report will not. */
static void test_prefixes_and_changed_bytes(void **state) {
    (void)state;
    static const uint8_t with[] = {0x00, '"', '[', '}', '9', '-', 0xff};
    size_t n, count;
    uint8_t *file = file_of(cases[5].header, strlen(cases[5].header), 8, &n);
    for (size_t i = 0; i < n; i++) {
        gw_arena *arena = gw_arena_new();
        gw_safetensor *list;
        assert_int_not_equal(parse(file, i, arena, &list, &count), GW_OK);
        uint8_t was = file[i];
        for (size_t k = 0; k < sizeof with; k++) {
            file[i] = with[k];
            parse(file, n, arena, &list, &count);
        }
        file[i] = was;
        gw_arena_free(arena);
    }
    free(file);
}

/* ---- folders ----------------------------------------------------------------------------- */

static char folder[] = "/tmp/godwit-folder-XXXXXX";

static const char *in_folder(const char *name) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text) { write_file(name, text, strlen(text)); }

static void write_tensors(const char *name, const char *header, size_t data) {
    size_t n;
    uint8_t *file = file_of(header, strlen(header), data, &n);
    write_file(name, file, n);
    free(file);
}

static const char config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8,\"intermediate_size\":16,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":4}";

static gw_status open_folder(void) {
    gw_checkpoint *c = NULL;
    gw_status status = gw_checkpoint_open(folder, NULL, 0, &c);
    if (status == GW_OK) {
        assert_int_equal(gw_checkpoint_container(c), GW_CONTAINER_HF);
        assert_non_null(gw_checkpoint_find(c, "a"));
        assert_non_null(gw_checkpoint_find(c, "b"));
        assert_null(gw_checkpoint_find(c, "i"));
        assert_string_equal(gw_checkpoint_unusable(c, "i"), "I64");
        assert_null(gw_checkpoint_unusable(c, "a"));
        assert_int_equal(gw_checkpoint_unchanged(c), GW_OK);
        gw_checkpoint_free(c);
    }
    return status;
}

static void expect(gw_status want, const char *says) {
    gw_status got = open_folder();
    if (got != want || (got != GW_OK && strstr(gw_error_text(), says) == NULL)) {
        fail_msg("%s instead of %s \"%s\": %s", gw_status_name(got), gw_status_name(want), says,
                 gw_error_text());
    }
}

static void index_with(const char *map) {
    char text[512];
    snprintf(text, sizeof text, "{\"weight_map\":%s}", map);
    write_text("model.safetensors.index.json", text);
}

static void test_folders(void **state) {
    (void)state;
    static const char part_1[] = "{" T("a", "F32", "[2]", "[0,8]") "}";
    static const char part_2[] =
        "{" T("b", "F32", "[1]", "[0,4]") "," T("i", "I64", "[1]", "[4,12]") "}";
    assert_non_null(mkdtemp(folder));
    expect(GW_E_METADATA, "config.json");
    write_text("config.json", config);
    expect(GW_E_METADATA, "no weights");
    write_text("pytorch_model.bin", "PK");
    expect(GW_E_MAGIC, "pytorch_model.bin");
    write_tensors("1.safetensors", part_1, 8);
    write_tensors("2.safetensors", part_2, 12);
    index_with("{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"i\":\"2.safetensors\"}");
    expect(GW_OK, "");
    index_with("{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"z\":\"2.safetensors\"}");
    expect(GW_E_METADATA, "z");
    index_with("{\"a\":\"1.safetensors\",\"b\":\"3.safetensors\"}");
    expect(GW_E_METADATA, "3.safetensors");
    index_with("{\"a\":\"../1.safetensors\"}");
    expect(GW_E_METADATA, "same folder");
    index_with("{\"a\":\"/etc/passwd\"}");
    expect(GW_E_METADATA, "same folder");
    index_with("{\"a\":\"\"}");
    expect(GW_E_METADATA, "same folder");
    index_with("{\"a\":7}");
    expect(GW_E_TYPE, "file name");
    index_with("[]");
    expect(GW_E_TYPE, "weight_map");
    write_text("model.safetensors.index.json", "{}");
    expect(GW_E_METADATA, "weight_map");
    write_tensors("2.safetensors", part_1, 8);
    index_with("{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}");
    expect(GW_E_DUPLICATE, "another part");
    write_text("config.json", "[]");
    expect(GW_E_TYPE, "object");
    write_text("config.json", "{\"architectures\":[\"LlamaForCausalLM\"],");
    expect(GW_E_SYNTAX, "config.json");

    /* A cache of downloads is made of links: the parts may lie elsewhere. */
    write_text("config.json", config);
    write_tensors("2.safetensors", part_2, 12);
    assert_int_equal(rename(in_folder("1.safetensors"), "/tmp/godwit-linked.safetensors"), 0);
    assert_int_equal(symlink("/tmp/godwit-linked.safetensors", in_folder("1.safetensors")), 0);
    expect(GW_OK, "");
    unlink("/tmp/godwit-linked.safetensors");
    expect(GW_E_METADATA, "missing");

    static const char *const left[] = {"config.json", "pytorch_model.bin", "1.safetensors",
                                       "2.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        unlink(in_folder(left[i]));
    }
    rmdir(folder);
}

static void test_changed_file_is_noticed(void **state) {
    (void)state;
    char path[] = "/tmp/godwit-changed-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24), 24);
    gw_checkpoint *c = NULL;
    assert_int_equal(gw_checkpoint_open_vocab(path, NULL, 0, &c), GW_OK);
    assert_int_equal(gw_checkpoint_unchanged(c), GW_OK);
    assert_int_equal(ftruncate(fd, 10), 0);
    assert_int_equal(gw_checkpoint_unchanged(c), GW_E_IO);
    gw_checkpoint_free(c);
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_places_and_types),
        cmocka_unit_test(test_prefixes_and_changed_bytes),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_changed_file_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
