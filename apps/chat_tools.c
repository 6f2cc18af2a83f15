/* apps/chat_tools.c - see chat_tools.h. Nothing is run that the command line does not name. */
#include "apps/chat_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/terminal.h"

const char *chat_tool_command(const app_options *o, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < o->tool_commands.n; i++) {
        const char *rule = o->tool_commands.at[i];
        if (strncmp(rule, name, n) == 0 && rule[n] == '=') {
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
    int in, out; /* our ends */
} running;

static int start(running *r, const char *command) {
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
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
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
    fcntl(r->in, F_SETFL, O_NONBLOCK);
    return 0;
}

/* Writes and reads whichever is possible, so that neither side waits for the other. */
static int exchange(running *r, const char *text, size_t bytes, chat_text *out) {
    char block[65536];
    size_t sent = 0;
    int code = APP_OK;
    for (;;) {
        struct pollfd fds[2] = {{r->out, POLLIN, 0}, {r->in, POLLOUT, 0}};
        if (poll(fds, r->in >= 0 ? 2 : 1, -1) < 0 && errno != EINTR) {
            return APP_FAILURE;
        }
        if (r->in >= 0 && fds[1].revents != 0) {
            ssize_t n = write(r->in, text + sent, bytes - sent);
            sent += n > 0 ? (size_t)n : 0;
            if (sent == bytes || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                close(r->in);
                r->in = -1;
            }
        }
        if (fds[0].revents != 0) {
            ssize_t n = read(r->out, block, sizeof block);
            if (n == 0 || (n < 0 && errno != EINTR)) {
                return code;
            }
            if (n > 0 && out->bytes + (size_t)n <= CHAT_TOOL_BYTES) {
                code = code == APP_OK ? chat_text_add(out, block, (size_t)n) : code;
            } else if (n > 0 && out->bytes < CHAT_TOOL_BYTES) {
                code = chat_text_add(out, block, CHAT_TOOL_BYTES - out->bytes);
            }
        }
    }
}

int chat_tool_run(const char *command, const chat_call *call, chat_text *out) {
    running r;
    char why[80] = "";
    int state = 0;
    fflush(NULL);
    if (start(&r, command) != 0) {
        app_error("cannot run the command of %s: %s", call->name, strerror(errno));
        return APP_FAILURE;
    }
    int code = exchange(&r, call->arguments.at, call->arguments.bytes, out);
    if (r.in >= 0) {
        close(r.in);
    }
    close(r.out);
    while (waitpid(r.child, &state, 0) < 0 && errno == EINTR) {
    }
    if (out->bytes > 0 && out->at[out->bytes - 1] == '\n') {
        out->at[--out->bytes] = '\0';
    }
    if (WIFSIGNALED(state)) {
        snprintf(why, sizeof why, "\nerror: the command was ended by signal %d", WTERMSIG(state));
    } else if (WEXITSTATUS(state) != 0) {
        snprintf(why, sizeof why, "\nerror: the command failed with code %d", WEXITSTATUS(state));
    }
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
