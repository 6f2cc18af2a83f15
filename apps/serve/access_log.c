/* apps/serve/access_log.c - the access log: see access_log.h. */
#include "apps/serve/access_log.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/reply.h"
#include "core/base/os.h"

struct access_log {
    const char *path;
    int fd, json, told;
    int tty;        /* there may be a line about the state, which is to go */
    sink *to, *own; /* own: of a file, closed with it */
};

static int open_file(const char *path) {
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
}

int access_log_open(const access_options *o, access_log **out) {
    int fd = o->path != NULL ? open_file(o->path) : STDERR_FILENO;
    if (fd < 0) {
        app_error("%s: cannot open: %s", o->path, strerror(errno));
        return APP_FAILURE;
    }
    if (o->path == NULL && (o->quiet || o->shared == NULL)) {
        return APP_OK;
    }
    access_log *log = calloc(1, sizeof *log);
    sink *own = o->path != NULL ? sink_new(fd) : NULL;
    if (log == NULL || (o->path != NULL && own == NULL)) {
        free(log);
        app_error("out of memory, or no threads left");
        return APP_FAILURE;
    }
    *log = (access_log){.path = o->path,
                        .fd = fd,
                        .json = o->json,
                        .tty = isatty(fd),
                        .to = own != NULL ? own : o->shared,
                        .own = own};
    *out = log;
    return APP_OK;
}

void access_log_reopen(access_log *log) {
    int fd = open_file(log->path);
    /* The number stays: what the sink's thread has still to write goes to the new file. */
    if (fd < 0 || gw_os_replace(fd, log->fd) != 0) {
        app_error("%s: cannot open anew: %s; the log goes on where it was", log->path,
                  strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    log->told = 0;
}

static void format_time(char text[40]) {
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t n = strftime(text, 40, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + n, 40 - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

static char *json_entry(const access_entry *e, const char *when, size_t *n) {
    json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:b, s:I, s:f}", "time", when,
                             "client", e->client, "method", e->method, "target", e->target, "id",
                             e->id, "status", e->status, "whole", e->whole, "bytes",
                             (json_int_t)e->bytes, "seconds", e->seconds);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"prompt_tokens", e->note->prompt},
                   {"cached_tokens", e->note->cached},
                   {"generated_tokens", e->note->tokens}};
    for (size_t i = 0; line != NULL && i < 3; i++) {
        if (numbers[i].value >= 0) {
            json_object_set_new(line, numbers[i].name, json_integer(numbers[i].value));
        }
    }
    if (line != NULL && e->note->model[0] != '\0') {
        json_object_set_new(line, "model", json_string(e->note->model));
    }
    return reply_dump(line, n);
}

static char *text_entry(const access_entry *e, const char *when, size_t *n) {
    char *line = NULL, numbers[128] = "";
    if (e->note->prompt >= 0) {
        snprintf(numbers, sizeof numbers, " prompt=%lld cached=%lld generated=%lld",
                 (long long)e->note->prompt, (long long)(e->note->cached < 0 ? 0 : e->note->cached),
                 (long long)(e->note->tokens < 0 ? 0 : e->note->tokens));
    }
    int used = asprintf(&line, "%s %s %s \"%s %.500s\" %d %llu B %.3f s%s%s%s%s", when, e->client,
                        e->id, e->method, e->target, e->status, (unsigned long long)e->bytes,
                        e->seconds, numbers, e->note->model[0] != '\0' ? " model=" : "",
                        e->note->model, e->whole ? "" : " client left");
    *n = used < 0 ? 0 : (size_t)used;
    return used < 0 ? NULL : line;
}

void access_log_write(access_log *log, const access_entry *entry) {
    size_t n = 0;
    char when[40];
    if (log == NULL) {
        return;
    }
    format_time(when);
    char *line = log->json ? json_entry(entry, when, &n) : text_entry(entry, when, &n);
    if (line != NULL) {
        line[n] = '\n'; /* in the place of the NUL: what is put is one line */
        if (log->tty) {
            sink_put(log->to, "\r\033[K", 4);
        }
        sink_put(log->to, line, n + 1);
    }
    free(line);
    if (!log->told && log->own != NULL && sink_lost(log->own) > 0) {
        log->told = 1;
        app_note("the access log cannot be written: its lines are lost, the server goes on");
    }
}

uint64_t access_log_lost(const access_log *log) { return log != NULL ? sink_lost(log->to) : 0; }

void access_log_close(access_log *log) {
    if (log != NULL && log->own != NULL) {
        sink_free(log->own);
        close(log->fd);
    }
    free(log);
}
