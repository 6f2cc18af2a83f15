/* tests/test_status.c - the error text: one printable line, whatever a file put into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "core/base/status.h"
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),      cmocka_unit_test(one_line),
        cmocka_unit_test(long_texts), cmocka_unit_test(quoting_itself),
        cmocka_unit_test(per_thread), cmocka_unit_test(appending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
