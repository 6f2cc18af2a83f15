/* apps/serve/serve.c - godwit serve: starts, runs and ends the server. */
#include <errno.h>
#include <event2/listener.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/access_log.h"
#include "apps/serve/account.h"
#include "apps/serve/conn.h"
#include "apps/serve/fetch.h"
#include "apps/serve/grammars.h"
#include "apps/serve/job.h"
#include "apps/serve/listen.h"
#include "apps/serve/metrics.h"
#include "apps/serve/models.h"
#include "apps/signals.h"
#include "core/base/os.h"
#include "core/base/os_net.h"

enum {
    CONNS_MAX = 4000,
    CONNS_SPARE = 64,
    WORKERS = 2,
    LAST_WORDS_SECONDS = 2,
    DRIVER_SECONDS = 20,  /* for calls of drivers, after all that */
    WORKER_SECONDS = 1,   /* for work under way when the server ends */
    MAPPED_FROM = 1 << 20 /* bytes of a block that is mapped */
};
#define ACCOUNT_BYTES ((uint64_t)768 << 20) /* that all requests hold together */

/* ---- keys ------------------------------------------------------------------------------------ */

static int add_key(server *s, char *key) {
    if (s->n_keys == KEYS_MAX) {
        app_error("more than %d API keys", KEYS_MAX);
        return APP_USAGE;
    }
    for (const char *c = key; *c != '\0'; c++) {
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f) {
            app_error("--api-key: a key has only printable ASCII characters and no blanks");
            return APP_USAGE;
        }
    }
    s->keys[s->n_keys++] = key;
    return APP_OK;
}

/* One key a line; empty lines and those that begin with # are none. */
static int read_key_file(server *s) {
    app_text text = {0};
    int code = app_read_file(s->o->api_key_file, &text);
    s->key_text = text.at;
    for (char *line = text.at, *next; code == APP_OK && line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        line[strcspn(line, "\r")] = '\0';
        if (line[0] != '\0' && line[0] != '#') {
            code = add_key(s, line);
        }
    }
    if (code == APP_OK && s->n_keys == 0) {
        app_error("%s: no key in it; one is expected in each line", s->o->api_key_file);
        return APP_FAILURE;
    }
    return code;
}

static int take_keys(server *s) {
    for (size_t i = 0; i < s->o->api_keys.n; i++) {
        if (s->o->api_keys.at[i][0] == '\0') {
            app_error("--api-key: an empty key would let nobody in");
            return APP_USAGE;
        }
        int code = add_key(s, (char *)(uintptr_t)s->o->api_keys.at[i]);
        if (code != APP_OK) {
            return code;
        }
    }
    return s->o->api_key_file != NULL ? read_key_file(s) : APP_OK;
}

/* ---- while it runs --------------------------------------------------------------------------- */

static void show_state(server *s) {
    static uint64_t before;
    uint64_t now = metrics_generated(s->metrics) + jobs_tokens(s);
    if (!terminal_quiet() && isatty(STDERR_FILENO)) {
        char line[120] = "\r\033[K";
        if (s->n_jobs > 0) {
            snprintf(line, sizeof line, "\r\033[K%d requests, %d rows, %" PRIu64 " tok/s",
                     s->n_jobs, models_rows(s->models), now > before ? now - before : 0);
        }
        if (s->n_jobs > 0 || before != now) {
            sink_put(s->err, line, strlen(line));
        }
    }
    before = now;
}

static void begin_drain(server *s) {
    s->draining = 1;
    s->drain_until = app_seconds() + s->o->drain;
    app_note("%d requests are being answered; waiting for them up to %d s", s->n_jobs,
             (int)s->o->drain);
    notify_manager("STOPPING=1\nSTATUS=answering what was asked before");
    listen_close(s);
    models_drain(s->models);
    conn_drain_all(s);
}

/* Ends the loop once nothing is left to be answered, or the time for it is over. */
static void end_when_drained(server *s) {
    double now = app_seconds();
    if (s->draining && (s->n_jobs == 0 || now > s->drain_until)) {
        jobs_end_all(s);
        s->drain_until = s->drain_until < now ? s->drain_until : now;
        if (s->n_conns == 0 || now > s->drain_until + LAST_WORDS_SECONDS) {
            loop_end(s->loop);
        }
    }
}

static void on_signal(evutil_socket_t fd, short what, void *user) {
    server *s = user;
    (void)fd, (void)what;
    if (s->o->log_file != NULL && signals_take_hangup()) {
        access_log_reopen(s->log);
    }
    if (signals_caught() == 0) {
        return;
    }
    event_del(s->signal); /* the next one ends the process at once */
    begin_drain(s);
    end_when_drained(s);
}

static void tick(evutil_socket_t fd, short what, void *user) {
    server *s = user;
    (void)fd, (void)what;
    if (s->paused && s->n_conns < s->conns_max && !s->draining) { /* descriptors were short */
        s->paused = 0;
        for (int i = 0; i < s->n_listeners; i++) {
            evconnlistener_enable(s->listeners[i]);
        }
    }
    if (signals_fd() < 0 && !s->draining) { /* a system whose signals are no files */
        on_signal(-1, 0, s);
    }
    grammars_tick(s->grammars);
    models_tick(s->models);
    jobs_tick(s);
    show_state(s);
    end_when_drained(s);
}

static int add_events(server *s) {
    struct timeval second = {.tv_sec = 1};
    struct event_base *base = loop_base(s->loop);
    s->tick = event_new(base, -1, EV_PERSIST, tick, s);
    s->signal = event_new(base, signals_fd(), EV_READ | EV_PERSIST, on_signal, s);
    if (s->tick == NULL || s->signal == NULL || event_add(s->tick, &second) != 0 ||
        (signals_fd() >= 0 && event_add(s->signal, NULL) != 0)) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    return APP_OK;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* As many descriptors as may be had; what these leave is for connections. */
static int connections_at_most(void) {
    unsigned long files = gw_os_open_files(65536);
    if (files == 0) {
        return 256;
    }
    if (files > CONNS_MAX + CONNS_SPARE) {
        return CONNS_MAX;
    }
    return files > 2 * CONNS_SPARE ? (int)files - CONNS_SPARE : CONNS_SPARE;
}

/* The matcher of a grammar has room for tens of megabytes and touches few of them. A block that is
 * mapped costs what is touched and goes back when it is freed; but after the first such free glibc
 * would take them from its heap, where each is zeroed, and kept. */
static void keep_large_blocks_mapped(void) { gw_os_map_blocks(MAPPED_FROM); }

/* Notes and errors of the running server. One per process, as the terminal is. */
static sink *err;
static void to_err(const char *text, size_t bytes) { sink_put(err, text, bytes); }

static int open_server(server *s) {
    const app_options *o = s->o;
    s->started = app_seconds();
    signals_grace(o->drain + DRIVER_SECONDS);
    s->started_at = (int64_t)time(NULL);
    s->conns_max = connections_at_most();
    s->metrics = metrics_new();
    s->loop = gw_os_net_start() == 0 ? loop_new(WORKERS) : NULL;
    s->err = sink_new(STDERR_FILENO);
    s->account = account_new(ACCOUNT_BYTES);
    s->grammars = grammars_new();
    if (s->metrics == NULL || s->loop == NULL || s->err == NULL || s->account == NULL ||
        s->grammars == NULL) {
        app_error("out of memory, or no threads or descriptors left");
        return APP_FAILURE;
    }
    err = s->err;
    terminal_divert(to_err);
    int code = take_keys(s);
    if (code == APP_OK) {
        const access_options log = {.path = o->log_file,
                                    .json = strcmp(o->log_format, "json") == 0,
                                    .quiet = o->quiet,
                                    .shared = s->err};
        code = access_log_open(&log, &s->log);
        if (code == APP_OK && o->log_file != NULL) {
            signals_keep_hangup();
        }
    }
    if (code == APP_OK) {
        code = models_open(s, &s->models);
    }
    if (code == APP_OK && o->mmproj != NULL && models_count(s->models) > 1) {
        app_error("--mmproj is the tower of one model, and there are %zu: put each next to its "
                  "model instead",
                  models_count(s->models));
        code = APP_USAGE;
    }
    if (code == APP_OK && o->allow_image_urls && fetch_open() != 0) {
        code = APP_FAILURE;
    }
    if (code == APP_OK) {
        code = add_events(s);
    }
    if (code == APP_OK) {
        code = listen_open(s);
    }
    if (code == APP_OK && !s->loopback && s->n_keys == 0) {
        app_note("anybody who reaches this address can use the model: --api-key asks for a key");
    }
    return code;
}

/* What a worker or the engine still uses is not freed: the process ends with it. */
static void end_with_work_under_way(server *s, int code) {
    app_note("work of requests that were given up is still under way: it ends here");
    access_log_close(s->log);
    terminal_divert(NULL);
    sink_free(s->err);
    fflush(NULL);
    _exit(code);
}

static void close_server(server *s, int code) {
    if (s->loop != NULL && loop_stop_workers(s->loop, WORKER_SECONDS) != 0) {
        end_with_work_under_way(s, code);
    }
    if (s->models != NULL) {
        models_stop(s->models);
    }
    if (s->log != NULL || s->conns != NULL) {
        conn_close_all(s);
    }
    jobs_free_all(s);
    listen_close(s);
    models_free(s->models);
    if (s->tick != NULL) {
        event_free(s->tick);
    }
    if (s->signal != NULL) {
        event_free(s->signal);
    }
    access_log_close(s->log);
    metrics_free(s->metrics);
    grammars_free(s->grammars);
    account_free(s->account);
    loop_free(s->loop);
    free(s->key_text);
    terminal_divert(NULL);
    sink_free(s->err);
}

static int run_serve(const app_options *o) {
    server s = {.o = o, .events_lock = PTHREAD_MUTEX_INITIALIZER};
    keep_large_blocks_mapped();
    int code = open_server(&s);
    if (code == APP_OK) {
        models_start(s.models);
        loop_run(s.loop);
        code = models_failed(s.models) ? APP_FAILURE : APP_OK;
    }
    close_server(&s, code);
    if (code == APP_OK && s.draining) {
        signals_forget(); /* it was asked to end, and has ended */
    }
    return code;
}

const app_command command_serve = {
    .name = "serve",
    .bit = CMD_SERVE,
    .usage = "[MODEL ...] [OPTIONS]",
    .summary = "answer many clients over HTTP",
    .detail =
        "Speaks the HTTP interfaces that clients of language models know: OpenAI's chat\n"
        "completions, completions and responses, the Messages API, llama-server's routes and\n"
        "Ollama's; a page to talk with the model is at /. Requests are computed together, and "
        "each\n"
        "gets the text that it would get alone: the same model, prompt, seed and options give the\n"
        "same text, whoever else is served. Options of sampling are what a request gets that does\n"
        "not say otherwise.\n"
        "The port is open at once; /health says 503 and how far it is while the model loads.\n"
        "Several models, or a folder with them: a request names one, which is then loaded.\n"
        "SIGTERM and Ctrl-C: no new requests, those that run are answered, then it ends with 0; a\n"
        "second one ends it at once. SIGHUP does the same, but with --log-file it opens that file "
        "anew\n"
        "(after a rotation) and the server goes on.\n",
    .examples = "  godwit serve model.gguf\n"
                "  godwit serve -m model.gguf --port 8000 --api-key-file keys.txt -c 8192\n"
                "  godwit serve -m ~/models --models-memory 24G --host 0.0.0.0\n"
                "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": "
                "\"user\", \"content\": \"Hello\"}]}'\n",
    .operand = "--model",
    .run = run_serve,
};
