/* tests/test_hip_draft_heads.c - heads of EAGLE-3, DFlash and DSpark, emulated at both wave widths.
 */
#include "tests/draft_heads_cases.h"

#include "tests/batch_cases.h"
#include "tests/hip_drivers.h"
#include "tests/predictor_cases.h"

static void on_the_emulator(void **state) {
    (void)state;
    static const hc_case cases[] = {
        {"seer", "fixed:4", NULL, 0, 1, 1},   {"seer-part", "fixed:4", "1", 2, 1, 1},
        {"plain", "fixed:3", NULL, 1, 1, 0},  {"ring-block", "fixed:3", NULL, 0, 1, 2},
        {"blocks", "fixed:7", NULL, 1, 1, 0}, {"ring-chain", "fixed:8", NULL, 0, 1, 2},
        {"joint", "fixed:7", NULL, 2, 1, 0}};
    (void)shared_path("models/tales-2m");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hc_check("hip", &cases[i]);
    }
}

static void many_by(const char *head) {
    char path[128], model[128];
    (void)shared_path("models/tales-2m");
    snprintf(path, sizeof path, "%s/%s", hc_folder, head);
    snprintf(model, sizeof model, "%s/ring", hc_folder);
    const bc_plan p = {.model = model,
                       .head = path,
                       .device = "hip",
                       .kv_type = "f32",
                       .requests = 6,
                       .parallel = 3,
                       .chunk = 50,
                       .tokens = 64 * 9,
                       .stem = 20,
                       .own = 8,
                       .answer = 12,
                       .length = "fixed:3",
                       .seed = 3};
    gw_batch_stats s = bc_check(&p);
    print_message("  %d of %d drafts accepted\n", (int)s.draft_accepted, (int)s.drafted);
    assert_true(s.drafted > 20 && s.draft_accepted * 4 > s.drafted);
}

static void many_by_blocks(void **state) {
    (void)state;
    many_by("ring-block");
    many_by("ring-chain");
}

static void families(void **state) {
    (void)state;
    pc_same_bits("mimo2", "hip");
    pc_same_bits("step35", "hip");
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_emulator), cmocka_unit_test(many_by_blocks),
        cmocka_unit_test_setup_teardown(families, pc_make, pc_remove)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, hc_make, hc_remove);
}

int main(void) {
    return hip_on_drivers(run_all, GODWIT_EMULATORS "libgodwit_emu32.so",
                          GODWIT_EMULATORS "libgodwit_emu64.so");
}
