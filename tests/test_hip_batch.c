/* tests/test_hip_batch.c - many requests at once on the emulator, at both wave widths. */
#include "tests/batch_cases.h"

#include <sys/wait.h>
#include <unistd.h>

static void on_the_emulator(void **state) {
    (void)state;
    const bc_plan p = {.device = "hip",
                       .requests = 4,
                       .stem = 80,
                       .own = 8,
                       .answer = 6,
                       .parallel = 20,
                       .chunk = 100,
                       .seed = 3,
                       .disorder = 1,
                       .tokens = 64 * 12};
    bc_check(&p);
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_emulator)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* One process per driver: it is opened once. */
static int run_in_child(const char *driver) {
    int status = 1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv("GODWIT_HIP_DRIVER", driver, 1);
        _exit(run_all());
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : 1;
}

int main(void) {
    const char *driver = getenv("GODWIT_HIP_DRIVER");
    if (driver != NULL) { /* "system": the card of this machine */
        if (strcmp(driver, "system") == 0) {
            unsetenv("GODWIT_HIP_DRIVER");
        }
        return run_all();
    }
    int failed = run_in_child(GODWIT_EMULATORS "libgodwit_emu32.so");
    failed |= run_in_child(GODWIT_EMULATORS "libgodwit_emu64.so");
    return failed != 0;
}
