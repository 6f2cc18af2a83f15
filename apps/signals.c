/* apps/signals.c - the cancel flag and the two strokes of Ctrl-C. */
#include "apps/signals.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile int cancel;
static volatile sig_atomic_t caught;
static volatile sig_atomic_t at_once;
static const char *volatile leftover;

static void on_signal(int number) {
    if (caught != 0 || at_once) {
        if (leftover != NULL) {
            unlink(leftover);
        }
        _exit(128 + number);
    }
    caught = number;
    cancel = 1;
}

void signals_setup(void) {
    /* No SA_RESTART: a read from a silent terminal or pipe has to end as well. */
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

const volatile int *signals_cancel(void) { return &cancel; }
int signals_caught(void) { return caught; }
int signals_exit_code(int otherwise) { return caught != 0 ? 128 + caught : otherwise; }
void signals_at_once(void) { at_once = 1; }
void signals_remove_on_end(const char *path) { leftover = path; }
