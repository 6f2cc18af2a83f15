/* tests/test_options.c - the option parser over a table far longer than the program's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "apps/options.c"
#include "apps/sampling.c"

#define TEN(x) x x x x x x x x x x
#define ANY {"--any", KIND_FLAG, 0, offsetof(app_options, help), 0, 0, NULL, NULL, "a"},
const app_option app_option_table[] = {
    TEN(TEN(TEN(TEN(TEN(ANY))))){"--last", KIND_TEXTS, CMD_RUN, offsetof(app_options, stops), 0, 0,
                                 "TEXT", NULL, "a"},
    {.names = NULL},
};

void app_error(const char *fmt, ...) { fail_msg("%s", fmt); }
void app_note(const char *fmt, ...) { fail_msg("%s", fmt); }
double app_seconds(void) { return 0; }
int foreign_take(app_options *o, const app_command *command, const char *name, size_t bytes,
                 int argc, char **argv, int *i) {
    (void)o, (void)command, (void)bytes, (void)argc, (void)argv, (void)i;
    fail_msg("%s is in the table", name);
    return -1;
}

/* What was given is noted for every row, however many there are. */
static void test_last_row(void **state) {
    (void)state;
    static const app_command command = {.name = "run", .bit = CMD_RUN};
    char *argv[] = {(char[]){"--last=one"}, (char[]){"--last=two"}};
    app_options o;
    assert_int_equal(options_parse(&o, &command, 2, argv), 0);
    assert_int_equal(o.stops.n, 2);
    assert_string_equal(o.stops.at[1], "two");
    options_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_last_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
