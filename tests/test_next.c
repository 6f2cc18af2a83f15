/* tests/test_next.c - gw_session_next on the CPU: the tokens of the plain way for every sampler;
 * which samplers a device can stand in for. */
#include "tests/next_cases.h"

static void on_the_cpu(void **state) {
    (void)state;
    nc_check("cpu", NULL, 24, 0);
}

static void on_the_oracle(void **state) { /* by double precision its tokens are its own */
    (void)state;
    nc_rig r = nc_open("ref", NULL, NC_CTX);
    nc_check_samplers(&r, &r, 4);
    nc_close(&r);
}

/* A grammar is the host's matter, and so are banned strings. */
static void not_with_a_grammar(void **state) {
    (void)state;
    nc_rig r = nc_open("cpu", NULL, NC_CTX);
    gw_sampler *sampler = nc_sampler_new(&r, &nc_samplers[0].o);
    gw_grammar *grammar = NULL;
    gw_ban *ban = NULL;
    const char *banned = "sea";
    gw_choice rule;
    nc_ok(gw_grammar_new(r.m, GW_GRAMMAR_GBNF, "root ::= \"ab\"*", 13, NULL, &grammar));
    assert_int_equal(gw_sampler_rule(sampler, &rule), 1);
    nc_ok(gw_sampler_constrain(sampler, grammar));
    assert_int_equal(gw_sampler_rule(sampler, &rule), 0);
    nc_ok(gw_sampler_constrain(sampler, NULL));
    assert_int_equal(gw_sampler_rule(sampler, &rule), 1);
    nc_ok(gw_ban_new(r.m, &banned, 1, 0, &ban));
    nc_ok(gw_sampler_ban(sampler, ban));
    assert_int_equal(gw_sampler_rule(sampler, &rule), 0);
    nc_ok(gw_sampler_ban(sampler, NULL));
    assert_int_equal(gw_sampler_rule(sampler, &rule), 1);
    gw_ban_free(ban);
    gw_sampler_free(sampler);
    gw_grammar_free(grammar);
    nc_close(&r);
}

static void what_a_rule_says(void **state) {
    (void)state;
    nc_rig r = nc_open("cpu", NULL, NC_CTX);
    gw_sampler *sampler = nc_sampler_new(&r, &nc_samplers[4].o);
    gw_choice rule;
    assert_int_equal(gw_sampler_rule(sampler, &rule), 1);
    assert_true(rule.temperature == 1.3f && rule.top_k == 20 && rule.first == 1);
    assert_int_equal(rule.seed_low, 0x76543210u);
    assert_int_equal(rule.seed_high, 0xfedcba98u);
    assert_true(rule.top_p == 0 && rule.min_p == 0 && !gw_choice_narrows(rule));
    gw_sampler_free(sampler);
    gw_sampler_options usual;
    gw_sampler_defaults(&usual);
    nc_ok(gw_sampler_new(r.m, &usual, &sampler));
    assert_int_equal(gw_sampler_rule(sampler, &rule), 1);
    assert_true(rule.temperature == 0.8f && rule.top_k == 40 && rule.top_p == 0.95f &&
                rule.min_p == 0.05f && gw_choice_narrows(rule));
    gw_sampler_free(sampler);
    nc_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_cpu),
        cmocka_unit_test(on_the_oracle),
        cmocka_unit_test(not_with_a_grammar),
        cmocka_unit_test(what_a_rule_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
