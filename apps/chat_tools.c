/* apps/chat_tools.c - see chat_tools.h. Nothing is run that the command line does not name. */
#include "apps/chat_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "apps/signals.h"
#include "apps/terminal.h"

const char *chat_tool_command(const app_options *o, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < o->tool_commands.n; i++) {
        const char *rule = o->tool_commands.at[i];
        if (strcspn(rule, "=") == n && memcmp(rule, name, n) == 0) {
            return rule + n + 1;
        }
    }
    return NULL;
}

int chat_tool_check(const app_options *o) {
    for (size_t i = 0; i < o->tool_commands.n; i++) {
        const char *equals = strchr(o->tool_commands.at[i], '=');
        if (equals == NULL || equals == o->tool_commands.at[i] || equals[1] == '\0') {
            app_error("--tool-command: '%s' is not NAME=COMMAND", o->tool_commands.at[i]);
            return APP_USAGE;
        }
    }
    return APP_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

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
    const struct timespec pause = {.tv_nsec = 50000000};
    kill(-r->child, SIGTERM);
    for (int i = 0; i < TRIES && !has_ended(r); i++) {
        nanosleep(&pause, NULL);
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

/* What went wrong, after what the command wrote. */
static void describe(const running *r, const app_options *o, char why[96]) {
    if (r->late) {
        snprintf(why, 96, "\nerror: the command took longer than %g s and was ended",
                 o->tool_timeout);
    } else if (WIFSIGNALED(r->state)) {
        snprintf(why, 96, "\nerror: the command was ended by signal %d", WTERMSIG(r->state));
    } else if (WEXITSTATUS(r->state) != 0) {
        snprintf(why, 96, "\nerror: the command failed with code %d", WEXITSTATUS(r->state));
    }
}

int chat_tool_run(const app_options *o, const char *command, const chat_call *call,
                  chat_text *out) {
    running r = {0};
    char why[96] = "";
    fflush(NULL);
    if (start(&r, command, o->tool_timeout) != 0) {
        app_error("cannot run the command of %s: %s", call->name, strerror(errno));
        return APP_FAILURE;
    }
    int code = exchange(&r, call->arguments.at, call->arguments.bytes, out);
    if (r.in >= 0) {
        close(r.in);
    }
    close(r.out);
    while (!has_ended(&r)) { /* it has closed its output and goes on */
        const struct timespec pause = {.tv_nsec = 20000000};
        nanosleep(&pause, NULL);
        if (app_seconds() > r.until || signals_caught() != 0) {
            r.late = 1;
            end_command(&r);
        }
    }
    if (out->bytes > 0 && out->at[out->bytes - 1] == '\n') {
        out->at[--out->bytes] = '\0';
    }
    describe(&r, o, why);
    const char *line = out->bytes == 0 && why[0] != '\0' ? why + 1 : why;
    return code == APP_OK ? chat_text_add(out, line, strlen(line)) : code;
}

/* ---- the list -------------------------------------------------------------------------------- */

void chat_tools_list(const chat_answer *a) {
    json_t *list = a->tools.bytes > 0 ? json_loadb(a->tools.at, a->tools.bytes, 0, NULL) : NULL;
    json_t *item;
    size_t i;
    fprintf(stderr, "calls as %s, reasoning as %s\n", gw_answer_tool_form(a->reader),
            gw_answer_reasoning_form(a->reader));
    if (json_array_size(list) == 0) {
        fputs("no tools: /tools FILE loads them\n", stderr);
    }
    json_array_foreach(list, i, item) {
        json_t *function = json_object_get(item, "function");
        const char *name =
            json_string_value(json_object_get(function != NULL ? function : item, "name"));
        const char *command = name != NULL ? chat_tool_command(a->o, name) : NULL;
        if (name != NULL) {
            fprintf(stderr, "  %-24s %s\n", name, command != NULL ? command : "result is typed");
        }
    }
    json_decref(list);
}
