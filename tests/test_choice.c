/* tests/test_choice.c - which quantization is downloaded when nobody names one, on machines of
 * which each memory is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "apps/hub/choice.c"
#include "core/base/text.h"

const char *app_bytes(uint64_t bytes, char text[32]) { return gw_text_size(bytes, 3, text); }

/* An eight-billion model as hubs have it, and one ten times as large. */
static const hub_choice eight[] = {{3180000000, 2, 0}, {4020000000, 3, 0}, {4450000000, 4, 0},
                                   {4690000000, 4, 0}, {4920000000, 4, 1}, {5730000000, 5, 0},
                                   {6600000000, 6, 0}, {8540000000, 8, 0}, {16100000000, 16, 0}},
                        large[] = {{26400000000, 2, 0},
                                   {34300000000, 3, 0},
                                   {37900000000, 4, 0},
                                   {42500000000, 4, 1},
                                   {75000000000, 8, 0}};

/* Rooms and speeds, cards first; a room of 0 ends them. */
static size_t best_of(const hub_choice *rows, size_t n, const double (*at)[2], char *why) {
    hub_machine m = {.n = 0};
    for (; at[m.n][1] > 0 || at[m.n][0] > 0; m.n++) {
        snprintf(m.at[m.n].id, sizeof m.at[0].id, "m%zu", m.n);
        m.at[m.n].room = (uint64_t)(at[m.n][0] * 1e9);
        m.at[m.n].gbps = at[m.n][1];
    }
    return choice_best(&m, rows, n, why);
}

#define BEST(rows, ...)                                                                            \
    best_of(rows, sizeof(rows) / sizeof *(rows), (const double[][2]){__VA_ARGS__, {0, 0}}, why)

static void test_where_it_fits(void **state) {
    (void)state;
    char why[HUB_WHY];
    assert_int_equal(BEST(eight, {16, 20}), 4); /* main memory alone */
    assert_string_equal(why, "of 9 Q4_K_M, as usual: near the fastest that fits; in m0 (16 GB "
                             "free), about 4.1 tokens/s");
    assert_int_equal(BEST(eight, {6.4, 20}), 3); /* no room for the usual: the next */
    assert_int_equal(BEST(eight, {6.1, 20}), 2);
    assert_int_equal(BEST(eight, {5.6, 20}), 1); /* and under four bits the largest */
    assert_non_null(strstr(why, "under four bits"));
    assert_int_equal(BEST(eight, {3, 20}), 0);
    assert_non_null(strstr(why, "none fits"));
    assert_null(strstr(why, "tokens/s"));
    assert_int_equal(BEST(large, {140, 4000}, {500, 200}), 3);
    assert_non_null(strstr(why, "in m0 (140 GB free), about 94 tokens/s"));
}

/* A card that holds a smaller one whole is worth it when what stays outside slows the usual one
 * down, and not for a little. */
static void test_card_and_main_memory(void **state) {
    (void)state;
    char why[HUB_WHY];
    assert_int_equal(BEST(eight, {24, 900}, {64, 40}), 4);
    assert_int_equal(BEST(eight, {6.3, 900}, {64, 10}), 3);
    assert_non_null(strstr(why, "in m0 (6.3 GB free), about 192 tokens/s"));
    assert_int_equal(BEST(eight, {6.5, 40}, {64, 20}), 4);
    assert_non_null(strstr(why, "4.88 GB of it in m0"));
    assert_int_equal(BEST(large, {24, 900}, {64, 40}), 2); /* less of it is read slowly */
    assert_int_equal(BEST(large, {24, 100}, {64, 40}), 3);
    assert_non_null(strstr(why, " of it in m0 (24 GB free), about "));
    assert_int_equal(BEST(large, {24, 900}), 0); /* a card that was named alone */
    assert_non_null(strstr(why, "none fits"));
    assert_int_equal(BEST(large, {24, 900}, {24, 900}, {24, 900}), 3); /* over several cards */
    assert_int_equal(BEST(eight, {1, 900}, {16, 20}), 4); /* a card without room for anything */
    assert_non_null(strstr(why, "in m1 (16 GB free)"));
}

/* What is not known takes no part: sizes alone, as for what is in the cache already. */
static void test_unknown(void **state) {
    (void)state;
    char why[HUB_WHY];
    static const hub_choice above[] = {{57, 5, 0}, {66, 6, 0}, {85, 8, 0}},
                            none[] = {{9, 0, 0}, {8, 0, 0}};
    assert_int_equal(choice_best(NULL, eight, 9, why), 4);
    assert_string_equal(why, "of 9 Q4_K_M, as usual: near the fastest that fits");
    assert_int_equal(choice_best(NULL, above, 3, why), 1);
    assert_int_equal(choice_best(NULL, none, 2, why), 0);
    assert_int_equal(BEST(eight, {0, 20}), 4);
    assert_non_null(strstr(why, "(? free), about 4.1"));
    assert_int_equal(BEST(eight, {16, 0}), 4);
    assert_null(strstr(why, "tokens/s"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_it_fits),
        cmocka_unit_test(test_card_and_main_memory),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
