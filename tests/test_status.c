/* tests/test_status.c - the error text: one printable line, whatever a file put into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"
#include "core/base/switches.h"
#include "core/base/text.h"

static void names(void **state) {
    (void)state;
    for (int i = 0; i < GW_STATUS_COUNT; i++) {
        const char *name = gw_status_name((gw_status)i);
        assert_true(name[0] && strspn(name, "abcdefghijklmnopqrstuvwxyz") == strlen(name));
        assert_string_not_equal(name, "unknown");
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(name, gw_status_name((gw_status)j));
        }
    }
    assert_string_equal(gw_status_name(GW_STATUS_COUNT), "unknown");
    assert_string_equal(gw_status_name((gw_status)-1), "unknown");
}

static void *text_of_another_thread(void *empty) {
    *(int *)empty = gw_error_text()[0] == '\0';
    gw_fail(GW_E_IO, "elsewhere", "gone");
    return NULL;
}

static void one_line(void **state) {
    (void)state;
    static const struct {
        const char *where, *message, *want;
    } cases[] = {
        {"a.gguf", "plain", "a.gguf: truncated: plain"},
        {NULL, "plain", "truncated: plain"},
        {"", "plain", "truncated: plain"},
        {"a\nb\tc", "x\r\x1b[2J\x7f", "a\\x0ab\\x09c: truncated: x\\x0d\\x1b[2J\\x7f"},
        {"m\xc3\xa4rchen \xe7\xab\xa5\xe8\xa9\xb1 \xf0\x9f\x90\xa6.gguf", "ok",
         "m\xc3\xa4rchen \xe7\xab\xa5\xe8\xa9\xb1 \xf0\x9f\x90\xa6.gguf: truncated: ok"},
        /* malformed: stray, cut short, overlong, surrogate, beyond the last character */
        {"\x80", "\xc3", "\\x80: truncated: \\xc3"},
        {"\xc0\xaf", "\xe0\x80\x80", "\\xc0\\xaf: truncated: \\xe0\\x80\\x80"},
        {"\xed\xa0\x80", "\xf4\x90\x80\x80", "\\xed\\xa0\\x80: truncated: \\xf4\\x90\\x80\\x80"},
        {"\xff\xfe", "\xe7\xab", "\\xff\\xfe: truncated: \\xe7\\xab"},
        /* C1 controls, line separators, direction overrides */
        {"\xc2\x85", "\xe2\x80\xa8\xe2\x80\xae",
         "\\xc2\\x85: truncated: "
         "\\xe2\\x80\\xa8\\xe2\\x80\\xae"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_status status = gw_fail(GW_E_TRUNCATED, cases[i].where, "%s", cases[i].message);
        assert_int_equal(status, GW_E_TRUNCATED);
        assert_string_equal(gw_error_text(), cases[i].want);
    }
}

static void long_texts(void **state) {
    (void)state;
    char where[5000], message[5000];
    memset(where, 'w', sizeof where);
    memset(message, 'm', sizeof message);
    where[sizeof where - 1] = message[sizeof message - 1] = '\0';
    gw_fail(GW_E_LIMIT, where, "%s", message);
    const char *text = gw_error_text();
    assert_int_equal(strlen(text), 2047);
    assert_non_null(strstr(text, "w...: limit: m")); /* a long path leaves room for the message */
    assert_string_equal(text + 2042, "mm...");

    /* A character that does not fit is left out whole, wherever the end falls. */
    for (int shift = 0; shift < 4; shift++) {
        memset(message, 'x', 4);
        for (int i = 0; i < 800; i++) {
            memcpy(message + shift + 3 * i, "\xe2\x82\xac", 3);
        }
        message[shift + 2400] = '\0';
        gw_fail(GW_E_LIMIT, NULL, "%s", message);
        text = gw_error_text();
        size_t n = strlen(text);
        assert_true(n >= 2042 && n <= 2047);
        assert_string_equal(text + n - 4, "\xac...");
    }
}

static void quoting_itself(void **state) {
    (void)state;
    gw_fail(GW_E_IO, "inner", "first");
    gw_fail(GW_E_DEVICE, gw_error_text(), "after %s", gw_error_text());
    assert_string_equal(gw_error_text(), "inner: io: first: device: after inner: io: first");
}

static void per_thread(void **state) {
    (void)state;
    pthread_t thread;
    int empty = 0;
    gw_fail(GW_E_IO, "here", "kept");
    assert_int_equal(pthread_create(&thread, NULL, text_of_another_thread, &empty), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(empty);
    assert_string_equal(gw_error_text(), "here: io: kept");
}

/* A text that grows in a fixed room is cut there, whatever comes behind. */
static void appending(void **state) {
    (void)state;
    char room[12] = "", fence[4] = "end";
    assert_true(gw_text_append(room, sizeof room, "%s", "sevenly"));
    assert_true(gw_text_append(room, sizeof room, "%d", 8910));
    assert_string_equal(room, "sevenly8910");
    for (int i = 0; i < 4; i++) {
        assert_false(gw_text_append(room, sizeof room, ", %s", "another"));
        assert_string_equal(room, "sevenly8910");
    }
    room[8] = '\0';
    assert_false(gw_text_append(room, sizeof room, ", %s", "another"));
    assert_string_equal(room, "sevenly8, a");
    assert_string_equal(fence, "end");
}

static void sizes(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *three, *four;
    } cases[] = {
        {0, "0 B", "0 B"},
        {999, "999 B", "999 B"},
        {1000, "1 kB", "1 kB"},
        {999499, "999 kB", "999.5 kB"},
        {999500, "1 MB", "999.5 kB"},
        {999949, "1 MB", "999.9 kB"},
        {999950, "1 MB", "1 MB"},
        {12912345, "12.9 MB", "12.91 MB"},
        {80000000000, "80 GB", "80 GB"},
        {UINT64_MAX, "18.4 EB", "18.45 EB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[GW_SIZE_TEXT];
        assert_string_equal(gw_text_size(cases[i].bytes, 3, text), cases[i].three);
        assert_string_equal(gw_text_size(cases[i].bytes, 4, text), cases[i].four);
    }
}

typedef struct switched {
    int plain, older, most, also;
    uint64_t bytes;
    char text[64];
} switched;

#define AT(field) offsetof(switched, field)
static const gw_switch rows[] = {
    {"plain", GW_SWITCH_SET, AT(plain), 1, 0},     {"no-plain", GW_SWITCH_SET, AT(plain), 0, 0},
    {"older=", GW_SWITCH_INT, AT(older), 50, 999}, {"older=", GW_SWITCH_SET, AT(also), 7, 0},
    {"most=", GW_SWITCH_CAPPED, AT(most), 1, 16},  {"bytes=", GW_SWITCH_BYTES, AT(bytes), 0, 0},
    {"option=", GW_SWITCH_TEXT, AT(text), 0, 0},   {"fail-alloc=", GW_SWITCH_INT, AT(also), 1, 9},
};
#undef AT

static gw_status read_words(const char *words, switched *set) {
    setenv("GODWIT_TRIED", words, 1);
    *set = (switched){.plain = -1};
    gw_status status = gw_switches_read("GODWIT_TRIED", rows, sizeof rows / sizeof rows[0], set);
    unsetenv("GODWIT_TRIED");
    return status;
}

static void switches(void **state) {
    (void)state;
    switched set;
    static const char *const wrong[] = {
        "plai",     "plain2",   "plain=1",  "older",   "older=",    "older=49", "older=1000",
        "older=7x", "older=-7", "most=0",   "bytes=0", "bytes=",    "option=",  "option",
        "=",        "plain, ",  "plain,no", "most=x",  "older=0x60"};
    assert_int_equal(gw_switches_read("GODWIT_TRIED", rows, 8, &set), GW_OK); /* unset */
    assert_int_equal(read_words("", &set), GW_OK);
    assert_int_equal(set.plain, -1);
    assert_int_equal(read_words("plain,older=75,most=99,bytes=5000000000,option=-x=1", &set),
                     GW_OK);
    assert_int_equal(set.plain, 1);
    assert_int_equal(set.older, 75);
    assert_int_equal(set.also, 7);
    assert_int_equal(set.most, 16);
    assert_true(set.bytes == 5000000000);
    assert_string_equal(set.text, "-x=1");
    assert_int_equal(read_words("plain,no-plain,", &set), GW_OK);
    assert_int_equal(set.plain, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(read_words(wrong[i], &set), GW_E_ARGUMENT);
    }
    assert_int_equal(read_words("fail-alloc=3", &set), GW_OK); /* this is such a build */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),      cmocka_unit_test(one_line),
        cmocka_unit_test(long_texts), cmocka_unit_test(quoting_itself),
        cmocka_unit_test(per_thread), cmocka_unit_test(appending),
        cmocka_unit_test(sizes),      cmocka_unit_test(switches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
