/* tests/hip_drivers.h - a test on the emulator at both wave widths: one process for each driver,
 * since it is opened once. GODWIT_HIP_DRIVER: on this one alone; "system": on the card of this
 * machine. */
#ifndef GW_TESTS_HIP_DRIVERS_H
#define GW_TESTS_HIP_DRIVERS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int hip_in_child(const char *driver, int (*run)(void)) {
    int status = 1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv("GODWIT_HIP_DRIVER", driver, 1);
        _exit(run());
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : 1;
}

/* By the emulators at these two paths; the exit code of main. */
static inline int hip_on_drivers(int (*run)(void), const char *narrow, const char *wide) {
    const char *driver = getenv("GODWIT_HIP_DRIVER");
    if (driver != NULL) {
        if (strcmp(driver, "system") == 0) {
            unsetenv("GODWIT_HIP_DRIVER");
        }
        return run();
    }
    int failed = hip_in_child(narrow, run);
    failed |= hip_in_child(wide, run);
    return failed != 0;
}

#endif
