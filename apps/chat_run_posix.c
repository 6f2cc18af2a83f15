/* apps/chat_run_posix.c - see chat_run.h: a shell in a process group of its own. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "apps/chat_run.h"
#include "apps/signals.h"
#include "core/base/os.h"

typedef struct running {
    pid_t child;
    int in, out;      /* our ends */
    double until;     /* when its time is over */
    int ended, state; /* of the shell, as waitpid says */
    int late;         /* it was ended */
} running;

/* As a shell starts a program: no signal is ignored or blocked, and Ctrl-C is ours to pass on. */
static void become(const char *command) {
    sigset_t none;
    for (int i = 1; i < NSIG; i++) {
        signal(i, SIG_DFL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static int start(running *r, const char *command, double timeout) {
    int in[2], out[2];
    if (pipe(in) != 0) {
        return -1;
    }
    if (pipe(out) != 0) {
        close(in[0]);
        close(in[1]);
        return -1;
    }
    r->child = fork();
    if (r->child == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        for (int i = 0; i < 2; i++) {
            close(in[i]);
            close(out[i]);
        }
        setpgid(0, 0); /* what it starts ends with it */
        become(command);
    }
    close(in[0]);
    close(out[1]);
    r->in = in[1];
    r->out = out[0];
    if (r->child < 0) {
        close(in[1]);
        close(out[0]);
        return -1;
    }
    setpgid(r->child, r->child); /* whoever comes first */
    fcntl(r->in, F_SETFL, O_NONBLOCK);
    r->until = timeout > 0 ? app_seconds() + timeout : INFINITY;
    return 0;
}

/* 1: the shell has ended. What it left running in the background is not waited for. */
static int has_ended(running *r) {
    r->ended = r->ended || waitpid(r->child, &r->state, WNOHANG) == r->child;
    return r->ended;
}

/* Asks the command and all that it has started to end, then makes them. */
static void end_command(running *r) {
    enum { TRIES = 20 };
    kill(-r->child, SIGTERM);
    for (int i = 0; i < TRIES && !has_ended(r); i++) {
        gw_os_sleep(50);
    }
    kill(-r->child, SIGKILL);
    while (!r->ended && waitpid(r->child, &r->state, 0) < 0 && errno == EINTR) {
    }
    r->ended = 1;
}

static void write_some(running *r, const char *text, size_t bytes, size_t *sent) {
    ssize_t n = write(r->in, text + *sent, bytes - *sent);
    *sent += n > 0 ? (size_t)n : 0;
    if (*sent == bytes || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close(r->in);
        r->in = -1;
    }
}

/* 0: there is no more. */
static int read_some(running *r, chat_text *out, int *code) {
    char block[65536];
    ssize_t n = read(r->out, block, sizeof block);
    size_t room = CHAT_TOOL_BYTES - out->bytes;
    if (n > 0 && room > 0 && *code == APP_OK) {
        *code = chat_text_add(out, block, (size_t)n < room ? (size_t)n : room);
    }
    return n > 0 || (n < 0 && errno == EINTR);
}

/* Writes and reads whichever is possible, so that neither side waits for the other, until the
 * command has ended, its time is over, or Ctrl-C. */
static int exchange(running *r, const char *text, size_t bytes, chat_text *out) {
    enum { TICK = 50, LAST = 100 }; /* milliseconds */
    size_t sent = 0;
    int code = APP_OK;
    for (;;) {
        struct pollfd fds[2] = {{r->out, POLLIN, 0}, {r->in, POLLOUT, 0}};
        int ended = has_ended(r);
        int ready = poll(fds, r->in >= 0 ? 2 : 1, ended ? LAST : TICK);
        if (ready < 0 && errno != EINTR) {
            return APP_FAILURE;
        }
        if (ready > 0 && r->in >= 0 && fds[1].revents != 0) {
            write_some(r, text, bytes, &sent);
        }
        if (ready > 0 && fds[0].revents != 0 && !read_some(r, out, &code)) {
            return code;
        }
        if (ended && (ready <= 0 || fds[0].revents == 0)) {
            return code;
        }
        if (app_seconds() > r->until || signals_caught() != 0) {
            r->late = 1;
            end_command(r);
            return code;
        }
    }
}

static void describe(const running *r, double timeout, char why[CHAT_WHY]) {
    if (r->late) {
        chat_run_late(timeout, why);
    } else if (WIFSIGNALED(r->state)) {
        snprintf(why, CHAT_WHY, "\nerror: the command was ended by signal %d", WTERMSIG(r->state));
    } else {
        chat_run_ended(WEXITSTATUS(r->state), why);
    }
}

int chat_run(const char *command, const chat_text *in, double timeout, chat_text *out,
             char why[CHAT_WHY]) {
    running r = {0};
    if (start(&r, command, timeout) != 0) {
        return -1;
    }
    int code = exchange(&r, in->at, in->bytes, out);
    if (r.in >= 0) {
        close(r.in);
    }
    close(r.out);
    while (!has_ended(&r)) { /* it has closed its output and goes on */
        gw_os_sleep(20);
        if (app_seconds() > r.until || signals_caught() != 0) {
            r.late = 1;
            end_command(&r);
        }
    }
    describe(&r, timeout, why);
    return code;
}
