/* tests/test_sleep.c - models that sleep, on the CPU; what cannot sleep. */
#include "tests/sleep_cases.h"

static void on_the_cpu(void **state) {
    (void)state;
    sc_check("cpu", NULL, 0);
}

static void a_vocabulary_does_not(void **state) {
    (void)state;
    const gw_model_options o = {.path = NC_MODEL, .vocab_only = 1};
    gw_sleep_info info;
    gw_model *m = NULL;
    nc_ok(gw_model_open(&o, &m));
    assert_int_equal(gw_model_sleep(m), GW_E_UNSUPPORTED);
    nc_ok(gw_model_wake(m));
    gw_model_sleep_info(m, &info);
    assert_true(!info.asleep && info.kept == 0 && info.sleep_seconds == 0);
    gw_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_cpu),
        cmocka_unit_test(a_vocabulary_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
