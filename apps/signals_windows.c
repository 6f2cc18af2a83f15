/* apps/signals_windows.c - see signals.h: Ctrl-C, Ctrl-Break and a console that is closed. Windows
 * calls the handler on a thread of its own. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <stdatomic.h>

#include "apps/signals.h"
#include "core/base/save.h"
#include "core/base/waits.h"

enum { HANGUP = 1 }; /* SIGHUP's number elsewhere: of a console that is closed, a user who leaves */

static volatile int cancel;
static atomic_int caught, at_once, patience, interactive, grace = 10;
static unsigned waits_seen; /* of the handler and of what it starts: one of them at a time */

/* Calls of drivers look at no flag; all others do. */
static DWORD WINAPI watch_drivers(void *user) {
    static const char words[] =
        "godwit: error: told to end, but a device is still busy and its driver "
        "does not come back: left alone\n";
    (void)user;
    for (;;) {
        Sleep((DWORD)atomic_load(&grace) * 1000);
        int number = atomic_load(&caught);
        if (number == 0) {
            return 0;
        }
        if (gw_wait_stands_still(&waits_seen)) {
            ssize_t wrote = write(STDERR_FILENO, words, sizeof words - 1);
            (void)wrote;
            gw_save_abandon();
            _exit(128 + number);
        }
    }
}

static BOOL WINAPI on_event(DWORD event) {
    int number = event == CTRL_C_EVENT ? SIGINT : event == CTRL_BREAK_EVENT ? SIGTERM : HANGUP;
    if (atomic_load(&caught) != 0 && number == SIGINT && atomic_load(&patience) > 0) {
        atomic_fetch_sub(&patience, 1);
        return TRUE;
    }
    if (atomic_load(&caught) != 0 || atomic_load(&at_once)) {
        gw_save_abandon();
        _exit(128 + number);
    }
    int stays = atomic_load(&interactive) && number == SIGINT; /* else further ones end it */
    cancel = 1;
    atomic_store(&patience, atomic_load(&interactive) ? 2 : 0);
    atomic_store(&caught, number);
    if (!stays) {
        (void)gw_wait_stands_still(&waits_seen);
        HANDLE thread = CreateThread(NULL, 0, watch_drivers, NULL, 0, NULL);
        if (thread != NULL) {
            CloseHandle(thread);
        }
    }
    if (number == HANGUP) {
        Sleep(INFINITE); /* the process is ended when this returns */
    }
    return TRUE;
}

void signals_setup(void) { SetConsoleCtrlHandler(on_event, TRUE); }

const volatile int *signals_cancel(void) { return &cancel; }
int signals_caught(void) { return atomic_load(&caught); }

int signals_exit_code(int otherwise) {
    int number = atomic_load(&caught);
    return number != 0 ? 128 + number : otherwise;
}

void signals_at_once(void) { atomic_store(&at_once, 1); }
void signals_interactive(void) { atomic_store(&interactive, 1); }
void signals_grace(int seconds) { atomic_store(&grace, seconds); }
void signals_keep_hangup(void) {} /* there is no word but the end */
int signals_take_hangup(void) { return 0; }
int signals_fd(void) { return -1; }

void signals_forget(void) {
    atomic_store(&caught, 0);
    cancel = 0;
}

int signals_take_interrupt(void) {
    if (atomic_load(&caught) != SIGINT) {
        return 0;
    }
    signals_forget();
    return 1;
}

/* A console's read ends by itself at Ctrl-C, some of them before the handler has run. */
ssize_t signals_read(int fd, void *buffer, size_t bytes) {
    enum { PATIENCE = 100 };
    if (_isatty(fd)) {
        ssize_t n = read(fd, buffer, bytes);
        for (int i = 0; n <= 0 && atomic_load(&caught) == 0 && i < PATIENCE / 10; i++) {
            Sleep(10);
        }
        if (atomic_load(&caught) == 0) {
            return n;
        }
    }
    while (atomic_load(&caught) == 0) {
        if (gw_os_readable(fd, 100)) {
            return read(fd, buffer, bytes);
        }
    }
    errno = EINTR;
    return -1;
}
