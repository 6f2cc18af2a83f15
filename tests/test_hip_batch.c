/* tests/test_hip_batch.c - many requests at once on the emulator, at both wave widths, or on the
 * card of this machine. */
#include "tests/reference_files.h"

#include "tests/batch_cases.h"
#include "tests/hip_drivers.h"

static void in_disorder(void **state) {
    (void)state;
    const bc_plan card = {.device = "hip", .requests = 24};
    /* The emulator takes its time for each token. */
    const bc_plan emulator = {
        .device = "hip", .requests = 4, .stem = 80, .own = 8, .answer = 6, .seed = 2};
    bc_rounds(getenv("GODWIT_HIP_DRIVER") != NULL ? &emulator : &card);
}

static void states(void **state) {
    (void)state;
    bc_states("hip", shared_path("goldens/qwen3.5-moe-mm"));
    bc_plain_states("hip", "tests/data/goldens-families/rwkv7");
}

static void experts(void **state) {
    (void)state;
    bc_experts("hip", shared_path("goldens/mixtral"),
               getenv("GODWIT_HIP_DRIVER") != NULL ? 40 : 200);
}

static void ngrams(void **state) {
    (void)state;
    bc_ngrams("hip", shared_path("goldens/qwen4-exp"));
}

/* Prompt tokens of a session's passes; 0 where there is no session. */
static int32_t pass_of(const char *device, const char *layers, int32_t asked) {
    const gw_model_options mo = {
        .path = BC_MODEL, .device = device, .offload_layers = layers, .threads = 1};
    const gw_session_options so = {.n_ctx = 2000, .chunk = asked};
    gw_model *model = NULL;
    gw_session *session = NULL;
    int32_t chunk = 0;
    if (gw_model_open(&mo, &model) == GW_OK && gw_session_new(model, &so, &session) == GW_OK) {
        chunk = gw_session_chunk(session);
    }
    gw_session_free(session);
    gw_model_free(model);
    return chunk;
}

static void passes_of_cards_are_longer(void **state) {
    int whole = 0, shorter = 0;
    (void)state;
    assert_int_equal(pass_of("cpu", NULL, 0), 512);
    assert_int_equal(pass_of("hip", "1", 0), 512);
    assert_int_equal(pass_of("hip", "all", 0), 1024);
    assert_int_equal(pass_of("hip", "all", 300), 300);
    for (int k = 1; k < 200 && whole == 0; k++) { /* allocation k fails */
        char settings[32];
        snprintf(settings, sizeof settings, "fail-alloc=%d", k);
        setenv("GODWIT_HIP", settings, 1);
        int32_t chunk = pass_of("hip", "all", 0);
        shorter += chunk == 512;
        whole = chunk == 1024; /* there are not so many allocations */
        assert_true(chunk == 0 || chunk == 512 || whole);
    }
    unsetenv("GODWIT_HIP");
    assert_true(whole && shorter > 0);
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_disorder), cmocka_unit_test(states),
                                       cmocka_unit_test(experts), cmocka_unit_test(ngrams),
                                       cmocka_unit_test(passes_of_cards_are_longer)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    return hip_on_drivers(run_all, GODWIT_EMULATORS "libgodwit_emu32.so",
                          GODWIT_EMULATORS "libgodwit_emu64.so");
}
