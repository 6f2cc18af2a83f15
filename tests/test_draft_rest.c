/* tests/test_draft_rest.c - a draft model of many texts that does not pay rests, and one text at a
 * time tries it again: the ledger, by passes of made-up times. */
#include "tests/draft_rig.h"

#include "core/engine/batch/batch_state.h"

/* A pass of four texts that takes a second: with drafts 1.5, half of it the draft model's. */
static void pass_of(gw_batch *b, int32_t drafted, int32_t kept) {
    gw_drafts_rest *r = &b->drafts.rest;
    gw_drafts_time(b, 4 + drafted, drafted > 0 ? 1.25 : 1.0);
    r->drafted = drafted;
    r->kept = kept;
    r->spent = drafted > 0 ? 0.25 : 0.0;
    gw_drafts_settle(b, 4 + drafted, 4, drafted > 0 ? 1.25 : 1.0);
}

static void test_rest(void **state) {
    (void)state;
    gw_batch b = {.parallel = 4, .stats.pages = 8};
    gw_session *model = calloc(1, sizeof *model);
    gw_request request = {.max_tokens = 100};
    gw_seq s = {.r = &request, .slot = 2};
    assert_non_null(model);
    b.drafts.model = model;
    ok(gw_drafts_rest_open(&b));
    pass_of(&b, 0, 0);
    pass_of(&b, 0, 0);
    for (int i = 0; i < 200; i++) { /* half of the drafts stay, two tokens for half a second */
        pass_of(&b, 8, 4);
    }
    assert_true(gw_drafts_follow(&b, 0) && gw_drafts_follow(&b, 3));
    int passes = 0;
    for (; passes < 40 && !b.drafts.rest.on; passes++) { /* none does */
        pass_of(&b, 8, 0);
    }
    /* what it may lose, and what it had gained: three passes each, and a share of the time */
    assert_in_range(passes, 12, 32);
    assert_int_equal(b.stats.draft_rests, 1);
    gw_drafts_scout(&b, &s); /* too early */
    assert_false(gw_drafts_follow(&b, 2));
    assert_true(gw_drafts_idle(&b));
    for (int i = 0; i < 1000; i++) {
        pass_of(&b, 0, 0);
    }
    s.pos = 64;
    gw_drafts_scout(&b, &s); /* its beginning was not read */
    assert_true(gw_drafts_idle(&b));
    s.pos = 0;
    gw_drafts_scout(&b, &s);
    assert_true(gw_drafts_follow(&b, 2) && !gw_drafts_follow(&b, 1) && !gw_drafts_idle(&b));
    const gw_row rows[] = {{.slot = 0}, {.slot = 2}, {.slot = 2}, {.slot = 1}};
    int32_t at;
    assert_int_equal(gw_drafts_rows(&b, rows, 4, &at), 2);
    assert_int_equal(at, 1);
    for (int i = 0; i < 60 && gw_drafts_follow(&b, 2); i++) { /* nor do the scout's */
        pass_of(&b, 4, 0);
    }
    assert_true(gw_drafts_idle(&b));
    for (int i = 0; i < 1000; i++) {
        pass_of(&b, 0, 0);
    }
    gw_drafts_scout(&b, &s);
    for (int i = 0; i < 15; i++) {
        pass_of(&b, 4, 3);
    }
    assert_false(gw_drafts_follow(&b, 1)); /* not yet known */
    pass_of(&b, 4, 3);
    assert_true(gw_drafts_follow(&b, 1));
    assert_int_equal(b.stats.draft_rests, 1);
    gw_drafts_rest_close(&b);
    free(model);
}

/* The scout's drafts end with its context. */
static void test_scout_at_the_end(void **state) {
    (void)state;
    for (int32_t n = 120; n <= 128; n++) {
        gw_batch b = {.parallel = 1, .n_ctx = 128};
        gw_request request = {.max_tokens = -1};
        gw_seq s = {.r = &request, .n = n, .state = GW_SEQ_RUNNING};
        gw_seq *order[1] = {&s};
        b.order = order;
        b.drafts.rest.on = 1;
        s.drafts.source = GW_DRAFTS_MODEL;
        for (int i = 0; i < 3; i++) {
            gw_drafts_time(&b, 1, 1.0);
        }
        const int32_t most[1] = {gw_drafts_most(&b, &s, 15)};
        gw_drafts_choose(&b, 1, most, 1, 15);
        assert_in_range(s.drafts.n, most[0] < 4 ? most[0] : 4, most[0]);
        assert_in_range(s.n + s.drafts.n, 0, 128);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rest),
                                       cmocka_unit_test(test_scout_at_the_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
