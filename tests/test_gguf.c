/* tests/test_gguf.c - the GGUF reader against files put together byte by byte: valid ones, every
 * fault of the catalogue, every prefix and every changed byte of a valid file, and split sets. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/model/checkpoint.h"
#include "core/text/tokens/tokenizer.h"
#include "core/model/gguf.h"
#include "tests/gguf_image.h"

static image m; /* large; tests run one after the other */

/* ---- images ------------------------------------------------------------------------------ */

/* Two matrices in F32 and Q8_0 with the given alignment (0: no key). */
static void base(uint32_t version, uint64_t alignment) {
    uint64_t align = alignment != 0 ? alignment : 32;
    put_head(&m, 2, alignment != 0 ? 3 : 2);
    m.data[4] = (uint8_t)version;
    put_pair_text(&m, "general.architecture", "llama");
    put_text(&m, "list");
    put_u32(&m, 9);
    put_u32(&m, 8);
    put_u64(&m, 2);
    put_text(&m, "a");
    put_text(&m, "");
    if (alignment != 0) {
        put_pair_u32(&m, "general.alignment", alignment);
    }
    uint64_t second = (4 * 6 + align - 1) / align * align;
    put_tensor(&m, "first", 2, 2, 3, 0, 0);
    put_tensor(&m, "second", 1, 32, 0, 8, second);
    put_padding(&m, align);
    put_zeros(&m, second + 34);
}

static void valid_v3(void) { base(3, 0); }
static void valid_v2(void) { base(2, 0); }
static void valid_align_1(void) { base(3, 1); }
static void valid_align_8(void) { base(3, 8); }
static void valid_align_4096(void) { base(3, 4096); }
static void valid_nothing(void) { put_head(&m, 0, 0); }
static void valid_align_2p30(void) {
    put_head(&m, 0, 1);
    put_pair_u32(&m, "general.alignment", 1u << 30);
}

static void only(const void *bytes, size_t n) {
    m.n = 0;
    put(&m, bytes, n);
}
static void empty(void) { only("", 0); }
static void seven_bytes(void) { only("GGUF\3\0\0", 7); }
static void in_magic(void) { only("GG", 2); }
static void html(void) { only("<!DOCTYPE html><html><body>Not found", 36); }
static void lfs(void) { only("version https://git-lfs.github.com/spec/v1\noid sha256:", 53); }
static void zip(void) { only("PK\3\4____________________", 24); }
static void swapped(void) { only("FUGG\3\0\0\0____________________", 28); }
static void safetensors(void) { only("\2\0\0\0\0\0\0\0{}", 10); }
static void zeros(void) {
    m.n = 0;
    put_zeros(&m, 64);
}

static void version(uint32_t v) {
    base(3, 0);
    memcpy(m.data + 4, &v, 4);
}
static void version_0(void) { version(0); }
static void version_1(void) { version(1); }
static void version_99(void) { version(99); }
static void version_big_endian(void) { version(0x03000000); }

static void tensors_max(void) { put_head(&m, UINT64_MAX, 0); }
static void tensors_2p60(void) { put_head(&m, 1ull << 60, 0); }
static void pairs_max(void) { put_head(&m, 0, UINT64_MAX); }
static void pairs_4g(void) { put_head(&m, 0, 1ull << 32); }
static void pairs_cut(void) {
    put_head(&m, 0, 3);
    put_pair_u32(&m, "a", 1);
}

static void raw_key(const char *key, size_t n, uint64_t declared) {
    put_head(&m, 0, 1);
    put_u64(&m, declared);
    put(&m, key, n);
    put_u32(&m, 4);
    put_u32(&m, 7);
    put_zeros(&m, 64);
}
static void key_empty(void) { raw_key("", 0, 0); }
static void key_nul(void) { raw_key("a\0b", 3, 3); }
static void key_not_utf8(void) { raw_key("a\xff", 2, 2); }
static void key_surrogate(void) { raw_key("\xed\xa0\x80", 3, 3); }
static void key_2p63(void) { raw_key("a", 1, 1ull << 63); }
static void key_max(void) { raw_key("a", 1, UINT64_MAX); }
static void key_cut(void) { raw_key("a", 1, 100); }
static void key_long(void) {
    static char text[70000];
    memset(text, 'k', sizeof text);
    raw_key(text, sizeof text, sizeof text);
}
static void key_twice(void) {
    put_head(&m, 0, 2);
    put_pair_u32(&m, "k", 1);
    put_pair_u32(&m, "k", 1);
}

static void value(uint32_t type, uint32_t element, uint64_t count, const char *tail) {
    put_head(&m, 0, 1);
    put_text(&m, "key");
    put_u32(&m, type);
    if (type == 9) {
        put_u32(&m, element);
    }
    if (type == 8 || type == 9) {
        put_u64(&m, count);
    }
    put(&m, tail, strlen(tail));
    put_zeros(&m, 16);
}
static void type_13(void) { value(13, 0, 0, ""); }
static void type_99(void) { value(99, 0, 0, ""); }
static void type_negative(void) { value(0xffffffffu, 0, 0, ""); }
static void text_2p63(void) { value(8, 0, 1ull << 63, ""); }
static void text_cut(void) { value(8, 0, 40, "abc"); }
static void array_2p62(void) { value(9, 6, 1ull << 62, ""); }
static void array_2p61_of_8(void) { value(9, 10, 1ull << 61, ""); }
static void array_1g(void) { value(9, 4, 1ull << 30, ""); }
static void array_cut(void) { value(9, 4, 10, ""); }
static void array_of_99(void) { value(9, 99, 1, ""); }
static void array_of_arrays(void) { value(9, 9, 1ull << 40, ""); }
static void array_text_max(void) { value(9, 8, 2, "\xff\xff\xff\xff\xff\xff\xff\xff"); }
static void scalar_cut(void) {
    value(4, 0, 0, "");
    m.n -= 14;
}

static void align_as(uint32_t type, uint32_t v) {
    put_head(&m, 0, 1);
    put_text(&m, "general.alignment");
    put_u32(&m, type);
    put_u32(&m, v);
    put_zeros(&m, 8);
}
static void align_0(void) { align_as(4, 0); }
static void align_3(void) { align_as(4, 3); }
static void align_2p31(void) { align_as(4, 1u << 31); }
static void align_negative(void) { align_as(5, (uint32_t)-32); }
static void align_float(void) { align_as(6, 0x42000000); }

/* One tensor entry, then 64 bytes of data. */
static void tensor(const char *name, int rank, uint64_t d0, uint64_t d1, uint32_t type,
                   uint64_t offset) {
    put_head(&m, 1, 0);
    put_tensor(&m, name, rank, d0, d1, type, offset);
    put_padding(&m, 32);
    put_zeros(&m, 64);
}
static void t_scalar(void) { tensor("t", 0, 0, 0, 0, 0); }
static void t_rank_5(void) { tensor("t", 5, 1, 1, 0, 0); }
static void t_rank_max(void) {
    tensor("t", 1, 16, 0, 0, 0);
    memset(m.data + 24 + 9, 0xff, 4);
}
static void t_zero(void) { tensor("t", 2, 4, 0, 0, 0); }
static void t_negative(void) { tensor("t", 2, 4, (uint64_t)-32, 0, 0); }
static void t_wrap(void) { tensor("t", 2, 1ull << 32, 1ull << 32, 0, 0); }
static void t_bytes_wrap(void) { tensor("t", 2, 1ull << 31, 1ull << 31, 0, 0); }
static void t_huge(void) { tensor("t", 2, 1ull << 20, 1ull << 20, 0, 0); }
static void t_ragged(void) { tensor("t", 2, 33, 1, 8, 0); }
static void t_type_4(void) { tensor("t", 1, 16, 0, 4, 0); }
static void t_type_999(void) { tensor("t", 1, 16, 0, 999, 0); }
static void t_type_ik(void) { tensor("t", 1, 256, 0, 137, 0); }
static void t_type_negative(void) { tensor("t", 1, 16, 0, 0xffffffffu, 0); }
static void t_type_foreign(void) { tensor("t", 1, 256, 0, 32, 0); }
static void t_name_empty(void) { tensor("", 1, 16, 0, 0, 0); }
static void t_name_long(void) {
    static char name[1030];
    memset(name, 'n', sizeof name - 1);
    tensor(name, 1, 16, 0, 0, 0);
}
static void t_name_2p63(void) {
    tensor("t", 1, 16, 0, 0, 0);
    m.data[24 + 7] = 0x80;
}
static void t_misaligned(void) { tensor("t", 1, 4, 0, 0, 8); }
static void t_past_end(void) { tensor("t", 1, 16, 0, 0, 96); }
static void t_far(void) { tensor("t", 1, 16, 0, 0, 1ull << 40); }
static void t_offset_wraps(void) { tensor("t", 1, 16, 0, 0, (uint64_t)-32); }
static void t_last_byte(void) {
    tensor("t", 1, 16, 0, 0, 0);
    m.n--;
}
static void t_no_data(void) {
    tensor("t", 1, 16, 0, 0, 0);
    m.n -= 64;
}
static void pair_of(const char *a, const char *b, uint64_t offset) {
    put_head(&m, 2, 0);
    put_tensor(&m, a, 1, 16, 0, 0, 0);
    put_tensor(&m, b, 1, 8, 0, 0, offset);
    put_padding(&m, 32);
    put_zeros(&m, 96);
}
static void t_twice(void) { pair_of("t", "t", 64); }
static void t_overlap(void) { pair_of("t", "u", 32); }
static void t_same_place(void) { pair_of("t", "u", 0); }
static void t_side_by_side(void) { pair_of("t", "u", 64); }

/* clang-format off */
static const struct {
    const char *name;
    void (*build)(void);
    gw_status want;
    const char *says; /* a part of the message that must be there */
} cases[] = {
#define ROW(build, want, says) {#build, build, want, says}
    ROW(valid_v3, GW_OK, ""),              ROW(valid_v2, GW_OK, ""),
    ROW(valid_align_1, GW_OK, ""),         ROW(valid_align_8, GW_OK, ""),
    ROW(valid_align_4096, GW_OK, ""),      ROW(valid_nothing, GW_OK, ""),
    ROW(valid_align_2p30, GW_OK, ""),      ROW(t_scalar, GW_OK, ""),
    ROW(t_side_by_side, GW_OK, ""),
    ROW(empty, GW_E_TRUNCATED, "empty"),   ROW(seven_bytes, GW_E_TRUNCATED, "missing"),
    ROW(in_magic, GW_E_TRUNCATED, "missing"),
    ROW(html, GW_E_MAGIC, "web page"),     ROW(lfs, GW_E_MAGIC, "git-lfs"),
    ROW(zip, GW_E_MAGIC, "zip"),           ROW(swapped, GW_E_MAGIC, "big-endian"),
    ROW(safetensors, GW_E_MAGIC, "safetensors"), ROW(zeros, GW_E_MAGIC, "zeros"),
    ROW(version_0, GW_E_VERSION, "version 0"), ROW(version_1, GW_E_VERSION, "version 1"),
    ROW(version_99, GW_E_VERSION, "99"),   ROW(version_big_endian, GW_E_VERSION, "big-endian"),
    ROW(tensors_max, GW_E_LIMIT, ""),      ROW(tensors_2p60, GW_E_LIMIT, ""),
    ROW(pairs_max, GW_E_LIMIT, ""),        ROW(pairs_4g, GW_E_LIMIT, ""),
    ROW(pairs_cut, GW_E_TRUNCATED, "missing"),
    ROW(key_empty, GW_E_ENCODING, "empty"), ROW(key_nul, GW_E_ENCODING, "NUL"),
    ROW(key_not_utf8, GW_E_ENCODING, "UTF-8"), ROW(key_surrogate, GW_E_ENCODING, "UTF-8"),
    ROW(key_2p63, GW_E_LIMIT, ""),         ROW(key_max, GW_E_LIMIT, ""),
    ROW(key_cut, GW_E_TRUNCATED, "missing"), ROW(key_long, GW_E_LIMIT, "at most"),
    ROW(key_twice, GW_E_DUPLICATE, "k"),
    ROW(type_13, GW_E_TYPE, "13"),         ROW(type_99, GW_E_TYPE, "99"),
    ROW(type_negative, GW_E_TYPE, "-1"),   ROW(text_2p63, GW_E_LIMIT, ""),
    ROW(text_cut, GW_E_TRUNCATED, "missing"),
    ROW(array_2p62, GW_E_LIMIT, ""),       ROW(array_2p61_of_8, GW_E_LIMIT, ""),
    ROW(array_1g, GW_E_LIMIT, ""),         ROW(array_cut, GW_E_TRUNCATED, "missing"),
    ROW(array_of_99, GW_E_TYPE, "99"),     ROW(array_of_arrays, GW_E_LIMIT, ""),
    ROW(array_text_max, GW_E_LIMIT, ""),   ROW(scalar_cut, GW_E_TRUNCATED, "missing"),
    ROW(align_0, GW_E_ALIGNMENT, "is 0"),  ROW(align_3, GW_E_ALIGNMENT, "is 3"),
    ROW(align_2p31, GW_E_ALIGNMENT, ""),   ROW(align_negative, GW_E_ALIGNMENT, "-32"),
    ROW(align_float, GW_E_TYPE, "integer"),
    ROW(t_rank_5, GW_E_LIMIT, "5"),        ROW(t_rank_max, GW_E_LIMIT, ""),
    ROW(t_zero, GW_E_LIMIT, "0"),          ROW(t_negative, GW_E_OVERFLOW, ""),
    ROW(t_wrap, GW_E_OVERFLOW, ""),        ROW(t_bytes_wrap, GW_E_OVERFLOW, ""),
    ROW(t_huge, GW_E_BOUNDS, ""),          ROW(t_ragged, GW_E_TYPE, "blocks"),
    ROW(t_type_4, GW_E_TYPE, "4"),         ROW(t_type_999, GW_E_TYPE, "999"),
    ROW(t_type_ik, GW_E_UNSUPPORTED, "ik_llama"),
    ROW(t_type_negative, GW_E_TYPE, "-1"), ROW(t_type_foreign, GW_E_UNSUPPORTED, "Q4_0_4_8"),
    ROW(t_name_empty, GW_E_ENCODING, ""),  ROW(t_name_long, GW_E_LIMIT, ""),
    ROW(t_name_2p63, GW_E_LIMIT, ""),      ROW(t_misaligned, GW_E_ALIGNMENT, ""),
    ROW(t_past_end, GW_E_BOUNDS, ""),      ROW(t_far, GW_E_BOUNDS, ""),
    ROW(t_offset_wraps, GW_E_BOUNDS, ""),  ROW(t_last_byte, GW_E_BOUNDS, ""),
    ROW(t_no_data, GW_E_BOUNDS, ""),       ROW(t_twice, GW_E_DUPLICATE, "t"),
    ROW(t_overlap, GW_E_BOUNDS, "share"),  ROW(t_same_place, GW_E_BOUNDS, "share"),
#undef ROW
};
/* clang-format on */

static gw_status parse(size_t n) {
    uint8_t *copy = exact_copy(&m, n);
    gw_gguf *g = NULL;
    gw_status status = gw_gguf_parse("image", copy, n, -1, &g);
    if (status == GW_OK) {
        gw_gguf_free(g);
    }
    free(copy);
    return status;
}

static void test_cases(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cases[i].build();
        gw_status got = parse(m.n);
        int says = got == GW_OK || strstr(gw_error_text(), cases[i].says) != NULL;
        if (got != cases[i].want || !says) {
            fail_msg("%s: %s, wanted %s \"%s\" (%s)", cases[i].name, gw_status_name(got),
                     gw_status_name(cases[i].want), cases[i].says, gw_error_text());
        }
    }
}

static void test_every_prefix_is_refused(void **state) {
    (void)state;
    valid_v3();
    for (size_t n = 0; n < m.n; n++) {
        gw_status got = parse(n);
        if (got != GW_E_TRUNCATED && got != GW_E_LIMIT && got != GW_E_BOUNDS) {
            fail_msg("%zu of %zu bytes: %s", n, m.n, gw_status_name(got));
        }
    }
}

/* Any answer will do; a crash or a sanitizer's report will not. */
static void test_every_byte_may_change(void **state) {
    (void)state;
    static const uint8_t with[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    size_t accepted = 0;
    valid_align_8();
    for (size_t i = 0; i < m.n; i++) {
        uint8_t was = m.data[i];
        for (size_t k = 0; k < sizeof with; k++) {
            m.data[i] = with[k];
            accepted += parse(m.n) == GW_OK;
        }
        m.data[i] = was;
    }
    assert_true(accepted > 0);
}

static void test_shapes_and_places(void **state) {
    (void)state;
    valid_align_8();
    gw_gguf *g = NULL;
    uint8_t *copy = exact_copy(&m, m.n);
    assert_int_equal(gw_gguf_parse("image", copy, m.n, 5, &g), GW_OK);
    assert_int_equal(gw_gguf_tensors(g), 2);
    const gw_stored *t = gw_gguf_tensor(g, 0);
    assert_string_equal(t->name, "first");
    assert_int_equal(t->fmt, GW_FMT_F32);
    assert_int_equal(t->n_dim, 2);
    assert_int_equal(t->dim[0], 3); /* rows first, as shapes are said */
    assert_int_equal(t->dim[1], 2);
    assert_int_equal(t->bytes, 24);
    assert_int_equal(t->fd, 5);
    assert_ptr_equal(t->data, copy + t->at);
    const gw_stored *u = gw_gguf_tensor(g, 1);
    assert_int_equal(u->fmt, GW_FMT_Q8_0);
    assert_int_equal(u->bytes, 34);
    assert_int_equal(u->at + u->bytes, m.n);
    gw_gguf_free(g);
    free(copy);
}

/* ---- getters ----------------------------------------------------------------------------- */

static void put_typed(const char *key, uint32_t type, uint64_t bits, size_t bytes) {
    put_text(&m, key);
    put_u32(&m, type);
    put_number(&m, bits, bytes);
}

static void test_getters(void **state) {
    (void)state;
    put_head(&m, 0, 13);
    put_typed("u8", 0, 200, 1);
    put_typed("i8", 1, 0xfe, 1);
    put_typed("u16", 2, 65535, 2);
    put_typed("i16", 3, 0x8000, 2);
    put_typed("u32", 4, 0xffffffffu, 4);
    put_typed("i32", 5, 0xffffffffu, 4);
    put_typed("u64", 10, UINT64_MAX, 8);
    put_typed("i64", 11, (uint64_t)-5, 8);
    put_typed("f32", 6, 0x3fc00000, 4);
    put_typed("f64", 12, 0x3ff8000000000000u, 8);
    put_typed("yes", 7, 1, 1);
    put_typed("two", 7, 2, 1);
    put_pair_text(&m, "text", "abc");
    gw_gguf *g = NULL;
    uint8_t *copy = exact_copy(&m, m.n);
    assert_int_equal(gw_gguf_parse("image", copy, m.n, -1, &g), GW_OK);
    static const struct {
        const char *key;
        int64_t want;
    } ints[] = {{"u8", 200},           {"i8", -2},  {"u16", 65535}, {"i16", -32768},
                {"u32", 0xffffffffll}, {"i32", -1}, {"i64", -5}};
    int64_t v = 77;
    int found = 0, flag = 0;
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        assert_int_equal(gw_gguf_int(g, ints[i].key, &v, &found), GW_OK);
        assert_int_equal(v, ints[i].want);
        assert_int_equal(found, 1);
    }
    v = 77;
    assert_int_equal(gw_gguf_int(g, "u64", &v, NULL), GW_E_METADATA);
    assert_int_equal(gw_gguf_int(g, "f32", &v, NULL), GW_E_TYPE);
    assert_int_equal(gw_gguf_int(g, "text", &v, NULL), GW_E_TYPE);
    assert_int_equal(gw_gguf_int(g, "absent", &v, &found), GW_OK);
    assert_int_equal(found, 0);
    assert_int_equal(v, 77);
    double real = 0.0;
    assert_int_equal(gw_gguf_real(g, "f32", &real, NULL), GW_OK);
    assert_true(real == 1.5);
    assert_int_equal(gw_gguf_real(g, "f64", &real, NULL), GW_OK);
    assert_true(real == 1.5);
    assert_int_equal(gw_gguf_real(g, "u8", &real, NULL), GW_E_TYPE);
    assert_int_equal(gw_gguf_bool(g, "yes", &flag, NULL), GW_OK);
    assert_int_equal(flag, 1);
    assert_int_equal(gw_gguf_bool(g, "two", &flag, NULL), GW_E_TYPE);
    gw_gguf_view view;
    assert_int_equal(gw_gguf_text(g, "text", &view, NULL), GW_OK);
    assert_int_equal(view.bytes, 3);
    assert_int_equal(gw_gguf_text(g, "u8", &view, NULL), GW_E_TYPE);
    gw_gguf_array list;
    assert_int_equal(gw_gguf_list(g, "text", GW_GGUF_TEXT, &list, NULL), GW_E_TYPE);
    gw_gguf_free(g);
    free(copy);
}

/* ---- split sets -------------------------------------------------------------------------- */

typedef struct part {
    int no, count, promised;
    const char *tensor;
} part;

static char folder[] = "/tmp/godwit-split-XXXXXX";

static void write_part(const char *name, const part *p) {
    char path[PATH_MAX];
    put_head(&m, 1, 3);
    put_pair_u32(&m, "split.no", (uint64_t)p->no);
    put_pair_u32(&m, "split.count", (uint64_t)p->count);
    put_pair_u32(&m, "split.tensors.count", (uint64_t)p->promised);
    put_tensor(&m, p->tensor, 1, 8, 0, 0, 0);
    put_padding(&m, 32);
    put_zeros(&m, 32);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_true(write_image(path, &m));
}

static gw_status open_set(const char *name, size_t want_tensors) {
    char path[PATH_MAX];
    gw_checkpoint *c = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gw_status status = gw_checkpoint_open_vocab(path, NULL, 0, &c);
    if (status == GW_OK) {
        assert_int_equal(gw_checkpoint_count(c), want_tensors);
        assert_non_null(gw_checkpoint_find(c, "a"));
        assert_null(gw_checkpoint_find(c, "z"));
        gw_checkpoint_free(c);
    }
    return status;
}

static const part first = {0, 3, 3, "a"}, second = {1, 3, 3, "b"}, third = {2, 3, 3, "c"};

static void write_set(const part *a, const part *b, const part *c) {
    write_part("m-00001-of-00003.gguf", a);
    write_part("m-00002-of-00003.gguf", b);
    write_part("m-00003-of-00003.gguf", c);
}

static void test_split_sets(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    write_set(&first, &second, &third);
    assert_int_equal(open_set("m-00001-of-00003.gguf", 3), GW_OK);
    assert_int_equal(open_set("m-00002-of-00003.gguf", 0), GW_E_METADATA); /* not the first */
    assert_non_null(strstr(gw_error_text(), "first part"));

    const part swapped_no = {2, 3, 3, "b"}, other_count = {1, 2, 3, "b"},
               other_total = {1, 3, 9, "b"}, same_tensor = {1, 3, 3, "a"},
               too_many = {0, 3, 4, "a"}, too_many_b = {1, 3, 4, "b"}, too_many_c = {2, 3, 4, "c"};
    const part *broken[] = {&swapped_no, &other_count, &other_total};
    for (size_t i = 0; i < 3; i++) {
        write_set(&first, broken[i], &third);
        assert_int_equal(open_set("m-00001-of-00003.gguf", 0), GW_E_METADATA);
        assert_non_null(strstr(gw_error_text(), "another model"));
    }
    write_set(&first, &same_tensor, &third);
    assert_int_equal(open_set("m-00001-of-00003.gguf", 0), GW_E_DUPLICATE);
    write_set(&too_many, &too_many_b, &too_many_c);
    assert_int_equal(open_set("m-00001-of-00003.gguf", 0), GW_E_METADATA);
    assert_non_null(strstr(gw_error_text(), "promised"));
    write_part("renamed.gguf", &first);
    assert_int_equal(open_set("renamed.gguf", 0), GW_E_METADATA);
    const part wild = {0, 100000, 3, "a"}, beyond = {3, 3, 3, "a"};
    write_part("wild.gguf", &wild);
    assert_int_equal(open_set("wild.gguf", 0), GW_E_METADATA);
    write_part("beyond.gguf", &beyond);
    assert_int_equal(open_set("beyond.gguf", 0), GW_E_METADATA);

    write_set(&first, &second, &third);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/m-00003-of-00003.gguf", folder);
    unlink(path);
    assert_int_equal(open_set("m-00001-of-00003.gguf", 0), GW_E_METADATA);
    assert_non_null(strstr(gw_error_text(), "missing"));
    static const char *const left[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                       "renamed.gguf", "wild.gguf", "beyond.gguf"};
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, left[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void test_memory_image(void **state) {
    (void)state;
    valid_v3();
    gw_checkpoint *c = NULL;
    assert_int_equal(gw_checkpoint_open_vocab(NULL, m.data, m.n, &c), GW_OK);
    assert_int_equal(gw_checkpoint_count(c), 2);
    assert_int_equal(gw_checkpoint_at(c, 0)->fd, -1);
    assert_int_equal(gw_checkpoint_file_bytes(c), m.n);
    const gw_vocab *vocab = (const gw_vocab *)&m;
    assert_int_equal(gw_checkpoint_vocab(c, &vocab), GW_OK);
    assert_null(vocab); /* no tokenizer.ggml.model */
    gw_checkpoint_free(c);
    assert_int_equal(gw_checkpoint_open(NULL, NULL, 0, &c), GW_E_ARGUMENT);
}

/* ---- the tokenizer's arrays -------------------------------------------------------------- */

typedef struct vocab_case {
    const char *name, *model;
    int tokens;        /* how many of the texts; -1: no list                      */
    int scores, kinds; /* lengths; -1: no list                                  */
    uint32_t score_type;
    const char *merge; /* one; NULL: no list */
    int64_t bos;       /* -1: no key         */
    gw_status want;
} vocab_case;

enum { N_TOKENS = 259 };

static void build_vocab(const vocab_case *v) {
    put_head(&m, 0,
             1u + (v->tokens >= 0) + (v->scores >= 0) + (v->kinds >= 0) + (v->merge != NULL) +
                 (v->bos >= 0));
    put_pair_text(&m, "tokenizer.ggml.model", v->model);
    if (v->tokens >= 0) {
        put_text(&m, "tokenizer.ggml.tokens");
        put_u32(&m, 9), put_u32(&m, 8), put_u64(&m, (uint64_t)v->tokens);
        for (int i = 0; i < v->tokens; i++) {
            char byte[8];
            snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(i - 3) & 255);
            put_text(&m, i == 0 ? "<unk>" : i == 1 ? "<s>" : i == 2 ? "</s>" : byte);
        }
    }
    if (v->scores >= 0) {
        put_text(&m, "tokenizer.ggml.scores");
        put_u32(&m, 9), put_u32(&m, v->score_type), put_u64(&m, (uint64_t)v->scores);
        put_zeros(&m, (size_t)v->scores * (v->score_type == 6 ? 4 : 1));
    }
    if (v->kinds >= 0) {
        put_text(&m, "tokenizer.ggml.token_type");
        put_u32(&m, 9), put_u32(&m, 5), put_u64(&m, (uint64_t)v->kinds);
        for (int i = 0; i < v->kinds; i++) {
            put_u32(&m, i == 0 ? 2 : i < 3 ? 3 : 6);
        }
    }
    if (v->merge != NULL) {
        put_text(&m, "tokenizer.ggml.merges");
        put_u32(&m, 9), put_u32(&m, 8), put_u64(&m, 1);
        put_text(&m, v->merge);
    }
    if (v->bos >= 0) {
        put_pair_u32(&m, "tokenizer.ggml.bos_token_id", (uint64_t)v->bos);
    }
}

static void test_vocabularies(void **state) {
    (void)state;
    static const vocab_case rows[] = {
        {"valid", "llama", N_TOKENS, N_TOKENS, N_TOKENS, 6, NULL, 1, GW_OK},
        {"tokens missing", "llama", -1, 5, 5, 6, NULL, -1, GW_E_METADATA},
        {"no tokens", "llama", 0, 0, 0, 6, NULL, -1, GW_E_METADATA},
        {"scores missing", "llama", N_TOKENS, -1, N_TOKENS, 6, NULL, 1, GW_E_METADATA},
        {"scores too few", "llama", N_TOKENS, N_TOKENS - 1, N_TOKENS, 6, NULL, 1, GW_E_METADATA},
        {"scores narrow", "llama", N_TOKENS, N_TOKENS, N_TOKENS, 0, NULL, 1, GW_E_TYPE},
        {"kinds too few", "llama", N_TOKENS, N_TOKENS, 3, 6, NULL, 1, GW_E_METADATA},
        {"byte tokens missing", "llama", 100, 100, 100, 6, NULL, 1, GW_E_METADATA},
        {"bos out of range", "llama", N_TOKENS, N_TOKENS, N_TOKENS, 6, NULL, N_TOKENS,
         GW_OK}, /* as if the file did not say: 1 */
        {"bos largest", "llama", N_TOKENS, N_TOKENS, N_TOKENS, 6, NULL, 0xffffffffll, GW_OK},
        {"foreign model", "foreign", N_TOKENS, N_TOKENS, N_TOKENS, 6, NULL, 1, GW_E_UNSUPPORTED},
        {"merges missing", "gpt2", N_TOKENS, -1, N_TOKENS, 6, NULL, 1, GW_E_METADATA},
        {"merge of one part", "gpt2", N_TOKENS, -1, N_TOKENS, 6, "ab", 1, GW_E_METADATA},
        {"merge of three parts", "gpt2", N_TOKENS, -1, N_TOKENS, 6, "a b c", 1, GW_E_METADATA},
        {"merge without end", "gpt2", N_TOKENS, -1, N_TOKENS, 6, "a ", 1, GW_E_METADATA},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        build_vocab(&rows[i]);
        gw_checkpoint *c = NULL;
        const gw_vocab *vocab = NULL;
        uint8_t *copy = exact_copy(&m, m.n);
        assert_int_equal(gw_checkpoint_open_vocab(NULL, copy, m.n, &c), GW_OK);
        gw_status got = gw_checkpoint_vocab(c, &vocab);
        if (got != rows[i].want) {
            fail_msg("%s: %s (%s)", rows[i].name, gw_status_name(got), gw_error_text());
        }
        if (got == GW_OK) {
            assert_int_equal(vocab->n_tokens, N_TOKENS);
            assert_int_equal(vocab->bos, 1);
            assert_int_equal(vocab->eos, 2);
            assert_int_equal(vocab->add_bos, 1);
            assert_int_equal(vocab->add_space_prefix, 1);
            assert_int_equal(vocab->tokens[3 + 65].byte, 65);
        }
        gw_checkpoint_free(c);
        free(copy);
    }
}

/* Pieces as SentencePiece writes them, merges, bytes as a fallback, cut at the ends of lines. */
static void test_gemma4(void **state) {
    (void)state;
    static const char *const PIECES[] = {
        "<unk>", "<s>", "</s>", "a", "\xE2\x96\x81", "\xE2\x96\x81\x61", "\n", "\n\n"};
    static const char *const MERGES[] = {"\xE2\x96\x81 a", "\n \n"};
    enum { N_PIECES = sizeof PIECES / sizeof PIECES[0] };
    static const int32_t WANT[] = {1, 3, 5, 7, N_PIECES + 'b'};
    put_head(&m, 0, 6);
    put_pair_text(&m, "tokenizer.ggml.model", "gemma4");
    put_text(&m, "tokenizer.ggml.tokens");
    put_u32(&m, 9), put_u32(&m, 8), put_u64(&m, N_PIECES + 256);
    for (unsigned i = 0; i < N_PIECES + 256; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (i - N_PIECES) & 255u);
        put_text(&m, i < N_PIECES ? PIECES[i] : byte);
    }
    put_text(&m, "tokenizer.ggml.token_type");
    put_u32(&m, 9), put_u32(&m, 5), put_u64(&m, N_PIECES + 256);
    for (unsigned i = 0; i < N_PIECES + 256; i++) {
        put_u32(&m, i == 0 ? 2 : i < 3 ? 3 : i < N_PIECES ? 1 : 6);
    }
    put_text(&m, "tokenizer.ggml.merges");
    put_u32(&m, 9), put_u32(&m, 8), put_u64(&m, 2);
    put_text(&m, MERGES[0]);
    put_text(&m, MERGES[1]);
    put_pair_u32(&m, "tokenizer.ggml.bos_token_id", 1);
    put_text(&m, "tokenizer.ggml.add_bos_token");
    put_u32(&m, 7), put_number(&m, 1, 1);

    gw_checkpoint *c = NULL;
    const gw_vocab *vocab = NULL;
    gw_tokenizer *t = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(gw_checkpoint_open_vocab(NULL, m.data, m.n, &c), GW_OK);
    assert_int_equal(gw_checkpoint_vocab(c, &vocab), GW_OK);
    assert_int_equal(gw_tokenizer_new(vocab, &t), GW_OK);
    assert_int_equal(gw_tokenizer_encode(t, "a a\n\nb", 6, GW_TEXT_BOS, &ids, &n), GW_OK);
    assert_int_equal(n, sizeof WANT / sizeof WANT[0]);
    assert_memory_equal(ids, WANT, sizeof WANT);
    free(ids);
    gw_tokenizer_free(t);
    gw_checkpoint_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_every_prefix_is_refused),
        cmocka_unit_test(test_every_byte_may_change),
        cmocka_unit_test(test_shapes_and_places),
        cmocka_unit_test(test_getters),
        cmocka_unit_test(test_split_sets),
        cmocka_unit_test(test_memory_image),
        cmocka_unit_test(test_vocabularies),
        cmocka_unit_test(test_gemma4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
