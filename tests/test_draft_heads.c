/* tests/test_draft_heads.c - heads of EAGLE-3, DFlash and DSpark on the CPU: every spelling and
 * variant, samplers, lengths, many texts at once; what is no head of the target is refused. */
#include "tests/draft_heads_cases.h"

#include "tests/batch_cases.h"

static void goldens(void **state) {
    (void)state;
    static const char *const heads[][2] = {{"plain", "plain"},
                                           {"normed", "normed"},
                                           {"deep", "deep"},
                                           {"sglang", "plain"},
                                           {"head.gguf", "plain"}};
    (void)shared_path("models/tales-2m");
    hc_goldens("cpu", heads, sizeof heads / sizeof heads[0]);
}

static void texts(void **state) {
    (void)state;
    static const hc_case cases[] = {
        {"plain", "fixed:4", NULL, 0, 8, 0},    {"sglang", "fixed:4", NULL, 0, 8, 0},
        {"head.gguf", "fixed:4", NULL, 0, 8, 0}, {"plain", "fixed:15", NULL, 1, 3, 0},
        {"normed", "fixed:3", NULL, 2, 3, 0},   {"deep", "heuristic", NULL, 3, 3, 0},
        {"normed", "cost", NULL, 4, 3, 0},      {"deep", "fixed:5", NULL, 6, 3, 0},
    };
    gw_draft_stats s[sizeof cases / sizeof cases[0]];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s[i] = hc_check("cpu", &cases[i]);
    }
    assert_int_equal(s[1].accepted, s[0].accepted);
    assert_int_equal(s[2].accepted, s[0].accepted);
}

/* A head that foresees the text, or half of its tokens; its embedding is the model's. */
static void foreseen(void **state) {
    (void)state;
    static const hc_case cases[] = {{"seer", "fixed:4", NULL, 0, 6, 1},
                                    {"seer", "fixed:7", NULL, 2, 6, 1},
                                    {"seer-part", "fixed:4", NULL, 2, 6, 1},
                                    {"seer", "cost", NULL, 2, 6, 1}};
    (void)shared_path("models/tales-2m");
    gw_draft_stats s[sizeof cases / sizeof cases[0]];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s[i] = hc_check("cpu", &cases[i]);
    }
    assert_true(hc_share(&s[0]) > 0.95 && hc_share(&s[1]) > 0.95);
    assert_true(hc_share(&s[2]) > 0.05 && hc_share(&s[2]) < 0.8);
}

static void blocks(void **state) {
    (void)state;
    hc_blocks("cpu");
}

/* anchored without its anchor is z-lab, whose first token of a block is not used. */
static void texts_by_blocks(void **state) {
    (void)state;
    static const hc_case cases[] = {
        {"blocks", "fixed:4", NULL, 0, 8, 0},   {"blocks", "fixed:15", NULL, 1, 3, 0},
        {"anchored", "fixed:8", NULL, 2, 3, 0}, {"z-lab", "fixed:7", NULL, 2, 3, 0},
        {"block.gguf", "fixed:7", NULL, 2, 3, 0}, {"blocks", "heuristic", NULL, 4, 3, 0},
        {"z-lab", "cost", NULL, 6, 3, 0},
        {"chained", "fixed:8", NULL, 0, 3, 0},  {"deepspec", "fixed:8", NULL, 0, 3, 0},
        {"chain.gguf", "fixed:8", NULL, 0, 3, 0}, {"gated", "cost", NULL, 2, 3, 0},
        {"joint", "heuristic", NULL, 4, 3, 0},
    };
    gw_draft_stats s[sizeof cases / sizeof cases[0]];
    (void)shared_path("models/tales-2m");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s[i] = hc_check("cpu", &cases[i]);
    }
    assert_int_equal(s[4].accepted, s[3].accepted);
    assert_int_equal(s[4].drafted, s[3].drafted);
    assert_int_equal(s[8].accepted, s[7].accepted);
    assert_int_equal(s[9].accepted, s[7].accepted);
}

/* The first two drafts of each pass are right, if states and positions are. */
static void foreseen_block(void **state) {
    (void)state;
    static const hc_case cases[] = {{"ring-block", "fixed:3", NULL, 0, 6, 2},
                                    {"ring-block", "fixed:7", NULL, 0, 6, 2},
                                    {"ring-block", "fixed:2", NULL, 0, 6, 2},
                                    {"ring-block", "cost", NULL, 0, 6, 2}};
    (void)shared_path("models/tales-2m");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_draft_stats s = hc_check("cpu", &cases[i]);
        int fixed = strcmp(cases[i].length, "cost") != 0;
        assert_true(!fixed || s.accepted_at[0] > 20);
        assert_true(!fixed || (double)s.accepted_at[0] > 0.98 * (double)s.tried_at[0]);
        assert_true(!fixed || (double)s.accepted_at[1] > 0.98 * (double)s.tried_at[1]);
    }
}

/* All drafts of each pass are right, if each is drawn by the one before it. */
static void foreseen_chain(void **state) {
    (void)state;
    static const hc_case cases[] = {{"ring-chain", "fixed:8", NULL, 0, 3, 2},
                                    {"ring-chain", "cost", NULL, 2, 3, 2}};
    (void)shared_path("models/tales-2m");
    gw_draft_stats s[sizeof cases / sizeof cases[0]];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s[i] = hc_check("cpu", &cases[i]);
    }
    assert_true(s[0].accepted_at[7] > 5);
    assert_true(hc_share(&s[0]) > 0.9);
}

static void many(void **state) {
    (void)state;
    static const int parallel[] = {1, 5, 16};
    static const char *const heads[] = {"seer", "ring-block", "ring-chain"};
    static const char *const models[] = {"silent", "ring", "ring"};
    char path[128], model[128];
    (void)shared_path("models/tales-2m");
    for (size_t k = 0; k < 3 * sizeof parallel / sizeof parallel[0]; k++) {
        const size_t i = k / 3;
        snprintf(path, sizeof path, "%s/%s", hc_folder, heads[k % 3]);
        snprintf(model, sizeof model, "%s/%s", hc_folder, models[k % 3]);
        const bc_plan p = {.model = model,
                           .head = path,
                           .device = "cpu",
                           .kv_type = "f32",
                           .requests = parallel[i] + 4,
                           .parallel = parallel[i],
                           .chunk = k == 1 ? 9 : 50,
                           .tokens = 64 * (5 + 2 * parallel[i]),
                           .stem = 70,
                           .own = 20,
                           .answer = 14,
                           .length = "fixed:3",
                           .seed = 3 + i};
        gw_batch_stats s = bc_check(&p);
        print_message("  %s, %d at once: %d of %d drafts accepted\n", heads[k % 3], parallel[i],
                      (int)s.draft_accepted, (int)s.drafted);
        assert_true(s.drafted > 20);
        assert_true(s.draft_accepted * 2 > s.drafted);
        assert_true(k % 3 < 2 || s.draft_accepted * 10 > s.drafted * 9);
    }
}

static void refuse(const char *name, const char *target, const char *words) {
    gw_model_options o = {.path = shared_path(target), .device = "cpu", .threads = 1};
    gw_model *m = NULL, *head = hc_open(name, "cpu", NULL);
    ok(gw_model_open(&o, &m));
    gw_session *s = open_session(m, 32);
    gw_drafter_options options = {.model = head};
    gw_drafter *d = NULL;
    assert_int_equal(gw_drafter_new(s, &options, &d), GW_E_UNSUPPORTED);
    assert_non_null(strstr(gw_error_text(), words));
    gw_session_free(s);
    gw_model_free(head);
    gw_model_free(m);
}

static void refusals(void **state) {
    (void)state;
    refuse("plain", "goldens/llama-mha", "drafts for a model of width 256; ");
    refuse("blocks", "goldens/llama-mha", "drafts for a model of width 256; ");
    gw_model_options o = {.device = "cpu", .threads = 1};
    gw_model *m = NULL;
    char path[128];
    snprintf(path, sizeof path, "%s/sglang", hc_folder);
    o.path = path; /* without its target there is no embedding */
    assert_int_equal(gw_model_open(&o, &m), GW_E_METADATA);
    assert_non_null(strstr(gw_error_text(), "embed_tokens.weight is missing"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(goldens), cmocka_unit_test(texts),
                                       cmocka_unit_test(foreseen),
                                       cmocka_unit_test(blocks),
                                       cmocka_unit_test(texts_by_blocks),
                                       cmocka_unit_test(foreseen_block),
                                       cmocka_unit_test(foreseen_chain),
                                       cmocka_unit_test(many), cmocka_unit_test(refusals)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, hc_make, hc_remove);
}
