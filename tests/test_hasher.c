/* tests/test_hasher.c - digests in a thread: parts in their order, memory that is used again as
 * soon as it may be, an end at any time. The digest is compared with the one computed here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/digest.c"
#include "apps/hub/hasher.c"

enum { PART = 20000, PARTS = 200 };

static void fill(unsigned char *part, size_t number) {
    for (size_t i = 0; i < PART; i++) {
        part[i] = (unsigned char)(number * 31 + i * 7 + i / 251);
    }
}

static void expected(size_t parts, char hex[65]) {
    unsigned char part[PART], raw[32];
    gw_sha256 own;
    gw_sha256_begin(&own);
    for (size_t i = 0; i < parts; i++) {
        fill(part, i);
        gw_sha256_add(&own, part, PART);
    }
    gw_sha256_end(&own, raw);
    gw_sha256_hex(raw, hex);
}

/* More slots than the queue has: hasher_add waits as well. A slot is written anew, and poisoned
 * first, when its bytes are said to be done: a digest that read it later would be another. */
static void test_memory_is_used_again(void **state) {
    (void)state;
    for (size_t slots = 1; slots <= HASHER_QUEUE + 4; slots += 3) {
        unsigned char *memory = malloc(slots * PART);
        assert_non_null(memory);
        hasher h;
        assert_int_equal(hasher_begin(&h, 0, PARTS * PART), 0);
        assert_true(h.threaded);
        for (size_t i = 0; i < PARTS; i++) {
            unsigned char *part = memory + i % slots * PART;
            if (i >= slots) {
                uint64_t least = (i - slots + 1) * PART, done = hasher_done(&h, least);
                assert_true(done >= least && done <= i * PART && done % PART == 0);
                memset(part, 0xee, PART);
            }
            fill(part, i);
            hasher_add(&h, part, PART);
        }
        char got[65], want[65];
        assert_int_equal(hasher_done(&h, UINT64_MAX), PARTS * PART);
        hasher_end(&h, got);
        expected(PARTS, want);
        assert_string_equal(got, want);
        hasher_drop(&h); /* nothing is left */
        free(memory);
    }
}

/* All parts wait for a digest that is slow to come: none is read after the end. */
static void test_drop(void **state) {
    (void)state;
    for (int added = 0; added <= HASHER_QUEUE; added++) {
        unsigned char *part = calloc(1, 8 << 20);
        hasher h;
        assert_int_equal(hasher_begin(&h, 0, 0), 0);
        for (int i = 0; i < added; i++) {
            hasher_add(&h, part, 8 << 20);
        }
        hasher_drop(&h);
        free(part);
        hasher_drop(&h);
    }
    hasher none = {0};
    hasher_drop(&none);
}

static void test_without_a_digest_or_a_thread(void **state) {
    (void)state;
    unsigned char part[PART];
    char got[65], want[65];
    hasher h;
    hasher_begin_none(&h);
    hasher_add(&h, part, PART);
    assert_int_equal(hasher_done(&h, UINT64_MAX), PART);
    hasher_drop(&h);
    for (size_t parts = 0; parts < 3; parts++) {
        hasher_begin_none(&h); /* as after a pthread_create that failed */
        assert_int_equal(gw_digest_begin(&h.digest, 0, parts * PART), 0);
        for (size_t i = 0; i < parts; i++) {
            fill(part, i);
            hasher_add(&h, part, PART);
        }
        assert_int_equal(hasher_done(&h, 0), parts * PART);
        hasher_end(&h, got);
        expected(parts, want);
        assert_string_equal(got, want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_used_again),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_without_a_digest_or_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
