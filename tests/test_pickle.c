/* tests/test_pickle.c - pickle streams and archives written by hand: what is listed, and how each
 * fault is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/model/pickle.h"
#include "core/model/torch_file.h"

/* Pieces of a stream, each a C string whose own length counts. */
#define TEXT(n, text) "X" n "\0\0\0" text
#define CLASS(name) "ctorch\n" name "\n"
#define STORAGE(key, class, elements)                                                              \
    "(" TEXT("\7", "storage") CLASS(class) TEXT("\1", key) TEXT("\3", "cpu") "K" elements "tQ"
#define VIEW(storage, offset, sizes, strides)                                                      \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage offset sizes strides "\x89"                     \
    "ccollections\nOrderedDict\n)RtR"
#define W VIEW(STORAGE("0", "FloatStorage", "\6"), "K\0", "K\2K\3\x86", "K\3K\1\x86")
#define IN_DICT(pairs) "\x80\2}(" pairs "u."

typedef struct stream_case {
    const char *name, *bytes;
    size_t n;
    gw_status want;
    size_t tensors;
} stream_case;

/* clang-format off */
#define ROW(name, bytes, want, tensors) {name, bytes, sizeof(bytes) - 1, want, tensors}
static const stream_case STREAMS[] = {
    ROW("one tensor", IN_DICT(TEXT("\1", "w") W), GW_OK, 1),
    ROW("beside other values", IN_DICT(TEXT("\1", "w") W TEXT("\1", "n") "N" TEXT("\1", "l") "](K\1Ma\1J\1\0\0\0e" TEXT("\1", "f") "G12345678"), GW_OK, 1),
    ROW("one by one, kept and fetched", "\x80\2}q\0" TEXT("\1", "w") W "q\1s" TEXT("\1", "v") "h\1s.", GW_OK, 2),
    ROW("OrderedDict with attributes", "\x80\2" "ccollections\nOrderedDict\n)R(" TEXT("\1", "w") W "u}b.", GW_OK, 1),
    ROW("parameter", IN_DICT(TEXT("\1", "p") "ctorch._utils\n_rebuild_parameter\n(" W "\x88}tR"), GW_OK, 1),
    ROW("in state_dict", IN_DICT(TEXT("\5", "epoch") "K\3" TEXT("\12", "state_dict") "}(" TEXT("\1", "w") W "u"), GW_OK, 1),
    ROW("list in itself", IN_DICT(TEXT("\1", "l") "]q\0h\0a"), GW_OK, 0),
    ROW("dict in itself", "\x80\2}q\0" TEXT("\1", "d") "h\0s.", GW_E_METADATA, 0),
    ROW("no dict", "\x80\2K\1.", GW_E_METADATA, 0),
    ROW("empty", "", GW_E_TRUNCATED, 0),
    ROW("no end", "\x80\2}", GW_E_TRUNCATED, 0),
    ROW("cut in a number", "\x80\2J\1", GW_E_TRUNCATED, 0),
    ROW("cut in a name", "\x80\2" "cos\nsys", GW_E_TRUNCATED, 0),
    ROW("protocol 4", "\x80\4}.", GW_E_VERSION, 0),
    ROW("another name", "\x80\2" "cos\nsystem\n(" TEXT("\1", "x") "tR.", GW_E_FORBIDDEN, 0),
    ROW("name on the stack", "\x80\2" TEXT("\2", "os") TEXT("\1", "x") "\x93.", GW_E_FORBIDDEN, 0),
    ROW("extension", "\x80\2\x82\1.", GW_E_FORBIDDEN, 0),
    ROW("object", "\x80\2(ios\nx\n.", GW_E_FORBIDDEN, 0),
    ROW("attributes of a tensor", IN_DICT(TEXT("\1", "w") W "}b"), GW_E_FORBIDDEN, 0),
    ROW("storage called", "\x80\2" CLASS("FloatStorage") "(K\1tR.", GW_E_FORBIDDEN, 0),
    ROW("text too long", "\x80\2X\xff\xff\xff\xff" "a.", GW_E_LIMIT, 0),
    ROW("integer too long", "\x80\2\x8a\x09" "123456789.", GW_E_LIMIT, 0),
    ROW("memo slot", "\x80\2}r\xff\xff\xff\xff.", GW_E_LIMIT, 0),
    ROW("memo slot empty", "\x80\2h\5.", GW_E_SYNTAX, 0),
    ROW("nothing to call", "\x80\2R.", GW_E_SYNTAX, 0),
    ROW("nothing at the end", "\x80\2.", GW_E_SYNTAX, 0),
    ROW("no mark", "\x80\2}K\1K\2u.", GW_E_SYNTAX, 0),
    ROW("key without value", "\x80\2}(K\1u.", GW_E_SYNTAX, 0),
    ROW("set in no dict", "\x80\2K\1K\1K\1s.", GW_E_SYNTAX, 0),
    ROW("another behind", "\x80\2}..", GW_E_SYNTAX, 0),
    ROW("key no text", IN_DICT("K\1" W), GW_E_TYPE, 0),
    ROW("key not UTF-8", IN_DICT(TEXT("\1", "\xff") W), GW_E_ENCODING, 0),
    ROW("storage of nothing", "\x80\2)Q.", GW_E_TYPE, 0),
    ROW("storage of a number", "\x80\2K\1Q.", GW_E_TYPE, 0),
    ROW("tensor of nothing", "\x80\2" "ctorch._utils\n_rebuild_tensor_v2\n)R.", GW_E_TYPE, 0),
    ROW("negative offset", IN_DICT(TEXT("\1", "w") VIEW(STORAGE("0", "FloatStorage", "\6"), "J\xff\xff\xff\xff", "K\2\x85", "K\1\x85")), GW_E_TYPE, 0),
    ROW("negative stride", IN_DICT(TEXT("\1", "w") VIEW(STORAGE("0", "FloatStorage", "\6"), "K\0", "K\2\x85", "\x8a\1\xff\x85")), GW_E_TYPE, 0),
    ROW("another rank", IN_DICT(TEXT("\1", "w") VIEW(STORAGE("0", "FloatStorage", "\6"), "K\0", "K\2\x85", "K\1K\1\x86")), GW_E_TYPE, 0),
};
/* clang-format on */

static void test_streams(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof STREAMS / sizeof STREAMS[0]; i++) {
        const stream_case *row = &STREAMS[i];
        gw_arena *arena = gw_arena_new();
        gw_pickled *list = NULL;
        size_t n = 99;
        char *exact = malloc(row->n + (row->n == 0)); /* a read past the end is seen */
        memcpy(exact, row->bytes, row->n);
        gw_status got = gw_pickle_read("test", exact, row->n, arena, &list, &n);
        if (got != row->want || (got == GW_OK && n != row->tensors)) {
            fail_msg("%s: %s, %zu tensors (%s)", row->name, gw_status_name(got), n,
                     gw_error_text());
        }
        free(exact);
        gw_arena_free(arena);
    }
}

static void test_every_prefix_is_refused(void **state) {
    (void)state;
    const stream_case *row = &STREAMS[0];
    for (size_t n = 0; n < row->n; n++) {
        gw_arena *arena = gw_arena_new();
        gw_pickled *list;
        size_t count;
        assert_int_not_equal(gw_pickle_read("test", row->bytes, n, arena, &list, &count), GW_OK);
        gw_arena_free(arena);
    }
}

/* ---- archives ---------------------------------------------------------------------------- */

typedef struct zip {
    uint8_t data[4096], directory[1024];
    size_t n, n_directory, entries;
} zip;

static void put(uint8_t *to, size_t *n, uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        to[(*n)++] = i < sizeof v ? (uint8_t)(v >> (8 * i)) : 0;
    }
}

static void put_bytes(uint8_t *to, size_t *n, const void *bytes, size_t count) {
    memcpy(to + *n, bytes, count);
    *n += count;
}

/* method 0: stored. wide: the sizes are in the 64-bit extension. */
static void add_entry(zip *z, const char *name, const void *bytes, size_t n, int method, int wide) {
    uint64_t at = z->n, size = wide ? 0xffffffff : n;
    put(z->data, &z->n, 0x04034b50, 4);
    put(z->data, &z->n, 0, 4);
    put(z->data, &z->n, (uint64_t)method, 2);
    put(z->data, &z->n, 0, 16);
    put(z->data, &z->n, strlen(name), 4);
    put_bytes(z->data, &z->n, name, strlen(name));
    put_bytes(z->data, &z->n, bytes, n);
    put(z->directory, &z->n_directory, 0x02014b50, 4);
    put(z->directory, &z->n_directory, 0, 6);
    put(z->directory, &z->n_directory, (uint64_t)method, 2);
    put(z->directory, &z->n_directory, 0, 8);
    put(z->directory, &z->n_directory, size, 4);
    put(z->directory, &z->n_directory, size, 4);
    put(z->directory, &z->n_directory, strlen(name), 2);
    put(z->directory, &z->n_directory, wide ? 20 : 0, 2);
    put(z->directory, &z->n_directory, 0, 10);
    put(z->directory, &z->n_directory, at, 4);
    put_bytes(z->directory, &z->n_directory, name, strlen(name));
    if (wide) {
        put(z->directory, &z->n_directory, 1 | 16 << 16, 4);
        put(z->directory, &z->n_directory, n, 8);
        put(z->directory, &z->n_directory, n, 8);
    }
    z->entries++;
}

static void end_zip(zip *z, int wide) {
    size_t at = z->n, bytes = z->n_directory;
    put_bytes(z->data, &z->n, z->directory, bytes);
    if (wide) {
        size_t record = z->n;
        put(z->data, &z->n, 0x06064b50, 4);
        put(z->data, &z->n, 44, 8);
        put(z->data, &z->n, 0, 20);
        put(z->data, &z->n, z->entries, 8);
        put(z->data, &z->n, bytes, 8);
        put(z->data, &z->n, at, 8);
        put(z->data, &z->n, 0x07064b50, 8);
        put(z->data, &z->n, record, 8);
        put(z->data, &z->n, 1, 4);
    }
    put(z->data, &z->n, 0x06054b50, 8);
    put(z->data, &z->n, wide ? 0xffff : z->entries, 2);
    put(z->data, &z->n, wide ? 0xffff : z->entries, 2);
    put(z->data, &z->n, wide ? 0xffffffff : bytes, 4);
    put(z->data, &z->n, wide ? 0xffffffff : at, 4);
    put(z->data, &z->n, 0, 2);
}

static gw_status parse(const zip *z, gw_arena *arena, gw_safetensor **list, size_t *n) {
    uint8_t *exact = malloc(z->n + (z->n == 0));
    memcpy(exact, z->data, z->n);
    gw_status status = gw_torch_parse("test", exact, z->n, -1, arena, list, n);
    free(exact);
    return status;
}

static void base_zip(zip *z, const void *storage, size_t bytes, int method, int wide) {
    memset(z, 0, sizeof *z);
    add_entry(z, "a/data.pkl", STREAMS[0].bytes, STREAMS[0].n, 0, wide);
    add_entry(z, "a/data/0", storage, bytes, method, wide);
    end_zip(z, wide);
}

static void test_archives(void **state) {
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        zip z;
        gw_arena *arena = gw_arena_new();
        gw_safetensor *list = NULL;
        size_t n = 0;
        base_zip(&z, values, sizeof values, 0, wide);
        assert_int_equal(gw_torch_parse("test", z.data, z.n, -1, arena, &list, &n), GW_OK);
        assert_int_equal(n, 1);
        assert_string_equal(list[0].stored.name, "w");
        assert_true(list[0].usable && list[0].stored.fmt == GW_FMT_F32);
        assert_true(list[0].stored.dim[0] == 2 && list[0].stored.dim[1] == 3);
        assert_int_equal(list[0].stored.bytes, sizeof values);
        assert_memory_equal(list[0].stored.data, values, sizeof values);
        assert_memory_equal(z.data + list[0].stored.at, values, sizeof values);
        for (z.n--; z.n > 0; z.n--) { /* every prefix */
            assert_int_not_equal(parse(&z, arena, &list, &n), GW_OK);
        }
        gw_arena_free(arena);
    }
}

static void test_archives_refused(void **state) {
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    gw_arena *arena = gw_arena_new();
    gw_safetensor *list = NULL;
    size_t n = 0;
    zip z;
    (void)state;
    base_zip(&z, values, sizeof values, 8, 0); /* says that it is packed */
    assert_int_equal(parse(&z, arena, &list, &n), GW_E_FORBIDDEN);
    base_zip(&z, values, 5 * sizeof values[0], 0, 0);
    assert_int_equal(parse(&z, arena, &list, &n), GW_E_BOUNDS);
    base_zip(&z, values, sizeof values, 0, 0);
    z.data[30] = 'b'; /* the first entry's own name */
    assert_int_equal(parse(&z, arena, &list, &n), GW_E_ARCHIVE);
    memset(&z, 0, sizeof z);
    add_entry(&z, "a/data.pkl", STREAMS[0].bytes, STREAMS[0].n, 0, 0);
    end_zip(&z, 0);
    assert_int_equal(parse(&z, arena, &list, &n), GW_E_METADATA);
    memset(&z, 0, sizeof z);
    add_entry(&z, "a/x", "", 0, 0, 0);
    add_entry(&z, "a/x", "", 0, 0, 0);
    end_zip(&z, 0);
    assert_int_equal(parse(&z, arena, &list, &n), GW_E_ARCHIVE);
    memset(&z, 0, sizeof z);
    assert_int_equal(parse(&z, arena, &list, &n), GW_E_MAGIC);
    gw_arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_every_prefix_is_refused),
        cmocka_unit_test(test_archives),
        cmocka_unit_test(test_archives_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
