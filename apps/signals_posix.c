/* apps/signals_posix.c - the cancel flag and the two strokes of Ctrl-C. */
#include "apps/signals.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>

#include "core/base/os.h"
#include "core/base/save.h"
#include "core/base/waits.h"

static volatile int cancel;
static volatile sig_atomic_t caught;
static volatile sig_atomic_t at_once;
static volatile sig_atomic_t patience; /* further SIGINTs that do not end the process */
static volatile sig_atomic_t interactive;
static volatile sig_atomic_t hangup_is_word, hangups; /* see signals_keep_hangup */
static volatile sig_atomic_t grace = 10;              /* seconds that a driver has to come back */
static unsigned waits_seen;                           /* of on_alarm and on_signal */
static int woken[2] = {-1, -1}; /* a pipe: holds bytes while a caught signal waits to be taken */

static void on_signal(int number) {
    int before = errno;
    if (number == SIGHUP && hangup_is_word) {
        hangups = 1;
        ssize_t told = write(woken[1], "", 1);
        (void)told;
        errno = before;
        return;
    }
    if (caught != 0 && number == SIGINT && patience > 0) {
        patience--;
        return; /* woken holds a byte already */
    }
    if (caught != 0 || at_once) {
        gw_save_abandon();
        _exit(128 + number);
    }
    caught = number;
    cancel = 1;
    if (!interactive || number != SIGINT) { /* else further ones end it */
        (void)gw_wait_stands_still(&waits_seen);
        alarm((unsigned)grace);
    }
    patience = interactive ? 2 : 0;
    ssize_t wrote = write(woken[1], "", 1);
    (void)wrote; /* no pipe, or a full one: nothing is lost but promptness */
    errno = before;
}

/* Calls of drivers look at no flag; all others do. */
static void on_alarm(int number) {
    static const char words[] =
        "godwit: error: told to end, but a device is still busy and its driver "
        "does not come back: left alone\n";
    int before = errno;
    (void)number;
    if (caught != 0 && gw_wait_stands_still(&waits_seen)) {
        ssize_t wrote = write(STDERR_FILENO, words, sizeof words - 1);
        (void)wrote;
        gw_save_abandon();
        _exit(128 + caught);
    }
    if (caught != 0) {
        alarm((unsigned)grace);
    }
    errno = before;
}

/* A file that is mapped was shortened by somebody else: its lost pages cannot be read. Several
 * threads may find out at once; the first speaks and ends the process, the others wait for that. */
static void on_lost_pages(int number) {
    static const char words[] =
        "godwit: error: a model file became shorter while it was in use; nothing can go on\n";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&said)) {
        pause();
    }
    ssize_t wrote = write(STDERR_FILENO, words, sizeof words - 1);
    (void)number, (void)wrote;
    gw_save_abandon();
    _exit(1);
}

void signals_setup(void) {
    if (pipe2(woken, O_CLOEXEC | O_NONBLOCK) != 0) {
        woken[0] = woken[1] = -1; /* poll leaves out what is negative */
    }
    /* No SA_RESTART: a read from a silent terminal or pipe has to end as well. */
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(SIGHUP, &action, NULL); /* under nohup it stays ignored */
    }
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = on_lost_pages;
    sigaction(SIGBUS, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

const volatile int *signals_cancel(void) { return &cancel; }
int signals_caught(void) { return caught; }
int signals_exit_code(int otherwise) { return caught != 0 ? 128 + caught : otherwise; }
void signals_at_once(void) { at_once = 1; }
void signals_interactive(void) { interactive = 1; }
void signals_grace(int seconds) { grace = seconds; }

void signals_keep_hangup(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    hangup_is_word = 1;
    sigaction(SIGHUP, &action, NULL); /* under nohup as well: it ends nothing */
}

int signals_take_hangup(void) {
    for (char byte; caught == 0 && read(woken[0], &byte, 1) == 1;) {
    }
    int came = hangups;
    hangups = 0;
    return came;
}

int signals_fd(void) { return woken[0]; }

void signals_forget(void) {
    caught = 0;
    cancel = 0;
}

int signals_take_interrupt(void) {
    if (caught != SIGINT) {
        return 0;
    }
    for (char byte; read(woken[0], &byte, 1) == 1;) {
    }
    caught = 0; /* last: from here on a signal leaves a new byte */
    cancel = 0;
    return 1;
}

/* The signal may come between a look at `caught` and the read, and on any thread: only a file can
 * be waited for together with another. */
ssize_t signals_read(int fd, void *buffer, size_t bytes) {
    struct pollfd wait[2] = {{.fd = fd, .events = POLLIN}, {.fd = woken[0], .events = POLLIN}};
    for (;;) {
        int ready = poll(wait, 2, -1);
        if (caught != 0) {
            errno = EINTR;
            return -1;
        }
        if (ready < 0 && errno != EINTR) {
            return -1;
        }
        if (ready > 0 && wait[0].revents != 0) {
            ssize_t n = read(fd, buffer, bytes);
            if (n >= 0 || errno != EINTR) {
                return n;
            }
        }
    }
}
