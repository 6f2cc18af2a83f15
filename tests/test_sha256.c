/* tests/test_sha256.c - SHA-256 against the examples of FIPS 180-4 and NIST's long ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "core/base/sha256.h"

static void check(const char *text, size_t bytes, const char *expected) {
    for (size_t step = 1; step < 200; step = step * 3 + 1) { /* however the stream is cut */
        gw_sha256 h;
        char hex[65];
        unsigned char digest[32];
        gw_sha256_begin(&h);
        for (size_t at = 0; at < bytes; at += step) {
            gw_sha256_add(&h, text + at, bytes - at < step ? bytes - at : step);
        }
        gw_sha256_end(&h, digest);
        gw_sha256_hex(digest, hex);
        assert_string_equal(hex, expected);
    }
}

static void test_standard_examples(void **state) {
    (void)state;
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    const char *four =
        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklm"
        "nopqklmnopqrlmnopqrsmnopqrstnopqrstu";
    check("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check(two, strlen(two), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check(four, strlen(four), "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}

static void test_million_a(void **state) {
    (void)state;
    char block[1000], hex[65];
    unsigned char digest[32];
    gw_sha256 h;
    memset(block, 'a', sizeof block);
    gw_sha256_begin(&h);
    for (int i = 0; i < 1000; i++) {
        gw_sha256_add(&h, block, sizeof block);
    }
    gw_sha256_end(&h, digest);
    gw_sha256_hex(digest, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Lengths around the padding's edges: 55, 56, 63, 64, 65 bytes of zeros. */
static void test_padding_edges(void **state) {
    (void)state;
    static const char zeros[65];
    static const struct {
        size_t n;
        const char *hex;
    } cases[] = {
        {55, "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7"},
        {56, "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb"},
        {63, "c7723fa1e0127975e49e62e753db53924c1bd84b8ac1ac08df78d09270f3d971"},
        {64, "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b"},
        {65, "98ce42deef51d40269d542f5314bef2c7468d401ad5d85168bfab4c0108f75f7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check(zeros, cases[i].n, cases[i].hex);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standard_examples),
        cmocka_unit_test(test_million_a),
        cmocka_unit_test(test_padding_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
