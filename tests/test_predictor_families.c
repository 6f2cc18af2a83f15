/* tests/test_predictor_families.c - layers that predict one token more, of families that each have
 * theirs under names of their own: drafts against PyTorch's. */
#include "tests/predictor_cases.h"

static void folders(void **state) {
    (void)state;
    static const char *const names[] = {"hy_v3",      "mimo2",        "step35",        "mellum",
                                        "exaone-moe", "ernie4_5-moe", "nemotron-h-moe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        pc_family(names[i], names[i], "cpu");
    }
}

static void gguf_files(void **state) {
    (void)state;
    static const char *const names[][2] = {{"hy_v3", "hy_v3.gguf"},
                                           {"mimo2", "mimo2.gguf"},
                                           {"step35", "step35.gguf"},
                                           {"nemotron-h-moe", "nemotron-h-moe.gguf"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        pc_family(names[i][0], names[i][1], "cpu");
    }
}

/* Texts with drafts are those without, greedy and drawn. */
static void texts(void **state) {
    (void)state;
    static const char *const names[] = {"step35", "ernie4_5-moe", "nemotron-h-moe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        gw_model *m = NULL, *p = NULL;
        gw_session_free(pc_open(names[i], 0, "cpu", &m));
        gw_session_free(pc_open(names[i], 1, "cpu", &p));
        gw_session *plain = open_session(m, PC_CTX), *s = open_session(m, PC_CTX);
        gw_drafter *d = new_drafter(s, p, 0, "fixed:3");
        gw_draft_stats stats;
        for (int k = 0; k < 2; k++) {
            const int32_t ids[] = {5, 90, 17, 33, 8, 61};
            text want, got;
            plain_text(m, plain, &sampler_table[k], 3, ids, 6, 24, &want);
            drafted_text(m, s, d, &sampler_table[k], 3, ids, 6, 24, GW_DECODE_MAX, &got);
            assert_int_equal(want.n, got.n);
            assert_memory_equal(want.ids, got.ids, want.n * sizeof *want.ids);
        }
        gw_drafter_stats(d, &stats);
        print_message("  %s: %d of %d drafts accepted\n", names[i], (int)stats.accepted,
                      (int)stats.drafted);
        assert_true(stats.drafted > 20);
        gw_drafter_free(d);
        gw_session_free(s);
        gw_session_free(plain);
        gw_model_free(p);
        gw_model_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(folders), cmocka_unit_test(gguf_files),
                                       cmocka_unit_test(texts)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, pc_make, pc_remove);
}
