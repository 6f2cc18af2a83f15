/* apps/hub/net.c - see net.h. One thread: libcurl's multi interface moves all connections.
 *
 * A large file is asked for in pieces by several connections at once; each piece waits in memory
 * until those in front of it were taken, so that what is on disk is always the beginning of the
 * file. It is not copied for that: its memory is used again when the taker no longer needs it. */
#include "apps/hub/net.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/hub/curl.h"
#include "apps/signals.h"
#include "core/base/os.h"

enum { CONNECTIONS = 4, TRIES = 6, REDIRECTS = 10, WAIT_MOST = 120 };
static const uint64_t PIECE = 8u << 20;      /* bytes of one request of a large file */
static const uint64_t PARALLEL = 32u << 20;  /* smaller files come by one connection */
static const size_t ANSWER_MOST = 64u << 20; /* of JSON */

typedef struct transfer {
    void *easy, *headers;
    int busy, done, lent, result; /* lent: [from, from + have) was taken and may still be read */
    long code;
    uint64_t from, want; /* want: bytes asked for; UINT64_MAX: to the end */
    char *data;          /* [have] in memory, of a piece; NULL: bytes are handed on as they come */
    size_t have, room;
    uint64_t handed;    /* on, of a stream */
    int refused;        /* the head does not fit what was asked for */
    double retry_after; /* seconds; < 0: not said */
    uint64_t total;     /* of the whole file, as the server says; UINT64_MAX: not */
    net_file *file;
} transfer;

/* ---- requests -------------------------------------------------------------------------------- */

const char *net_token(void) {
    static char token[512];
    const char *given = getenv("HF_TOKEN"), *path = getenv("HF_TOKEN_PATH");
    const char *home = getenv("HF_HOME"), *user = getenv("HOME");
    char file[1024];
    if (given != NULL && given[0] != '\0') {
        return given;
    }
    if (path != NULL && path[0] != '\0') {
        snprintf(file, sizeof file, "%s", path);
    } else if (home != NULL && home[0] != '\0') {
        snprintf(file, sizeof file, "%s/token", home);
    } else {
        snprintf(file, sizeof file, "%s/.cache/huggingface/token", user != NULL ? user : "");
    }
    FILE *in = fopen(file, "re");
    if (in == NULL) {
        return "";
    }
    size_t n = fread(token, 1, sizeof token - 1, in);
    fclose(in);
    token[n] = '\0';
    token[strcspn(token, "\r\n \t")] = '\0';
    return token;
}

double net_retry_after(const char *value) {
    char *end;
    double seconds = strtod(value, &end);
    return end != value && seconds >= 0 && seconds < 1e9 ? seconds : -1;
}

/* A line of a head: those of redirects come as well, and the last one counts. */
static size_t take_head(char *line, size_t size, size_t count, void *user) {
    transfer *t = user;
    size_t n = size * count;
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), line);
    if (strncmp(text, "HTTP/", 5) == 0) {
        const char *space = strchr(text, ' ');
        t->code = space != NULL ? strtol(space, NULL, 10) : 0;
        t->total = UINT64_MAX;
    } else if (strncasecmp(text, "content-range:", 14) == 0) {
        const char *at = text + 14 + strspn(text + 14, " ");
        uint64_t from = 0, total = UINT64_MAX;
        if (sscanf(at, "bytes %" SCNu64 "-%*u/%" SCNu64, &from, &total) >= 1) {
            t->total = total;
            t->refused |= t->code == 206 && from != t->from;
        }
    } else if (strncasecmp(text, "content-length:", 15) == 0 && t->code == 200) {
        t->total = strtoull(text + 15, NULL, 10);
    } else if (strncasecmp(text, "retry-after:", 12) == 0) {
        t->retry_after = net_retry_after(text + 12);
    }
    return n;
}

static int keep(transfer *t, const char *data, size_t n, size_t most) {
    if (t->have + n > most) {
        return -1;
    }
    if (t->have + n + 1 > t->room) {
        size_t room = most == t->want ? most + 1 : t->room * 2 + n + 4096;
        char *grown = realloc(t->data, room);
        if (grown == NULL) {
            return -1;
        }
        t->data = grown;
        t->room = room;
    }
    memcpy(t->data + t->have, data, n);
    t->have += n;
    t->data[t->have] = '\0';
    return 0;
}

static size_t take_text(char *data, size_t size, size_t count, void *user) {
    transfer *t = user;
    return keep(t, data, size * count, ANSWER_MOST) == 0 ? size * count : 0;
}

/* Bytes of a file: bodies of errors are thrown away. */
static size_t take_file(char *data, size_t size, size_t count, void *user) {
    transfer *t = user;
    net_file *f = t->file;
    size_t n = size * count;
    if (t->code != 200 && t->code != 206) {
        return n;
    }
    if (t->refused || (t->total != UINT64_MAX && f->size != UINT64_MAX && t->total != f->size)) {
        t->refused = 1;
        return 0;
    }
    if (t->want != UINT64_MAX) {
        t->refused |= t->code == 200; /* the whole file, where a piece was asked for */
        return !t->refused && keep(t, data, n, (size_t)t->want) == 0 ? n : 0;
    }
    if (t->code == 200 && f->from > 0 && t->handed == 0) { /* no ranges there */
        if (f->restart(f->user) != 0) {
            return 0;
        }
        f->from = 0;
    }
    if (f->size != UINT64_MAX && f->from + n > f->size) {
        t->refused = 1; /* more than there should be */
        return 0;
    }
    if (f->take(f->user, data, n) != 0) {
        return 0;
    }
    f->from += n;
    (void)f->taken(f->user, f->from); /* data is libcurl's */
    t->handed += n;
    return n;
}

static int begin(const curl_library *c, void *multi, transfer *t, const char *url) {
    char range[64], line[600];
    int secure = strncasecmp(url, "https:", 6) == 0;
    if (t->easy == NULL && (t->easy = c->easy_init()) == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    c->easy_setopt(t->easy, CURL_URL, url);
    c->easy_setopt(t->easy, CURL_PRIVATE, t);
    c->easy_setopt(t->easy, CURL_WRITE_FUNCTION, t->file != NULL ? take_file : take_text);
    c->easy_setopt(t->easy, CURL_WRITE_DATA, t);
    c->easy_setopt(t->easy, CURL_HEADER_FUNCTION, take_head);
    c->easy_setopt(t->easy, CURL_HEADER_DATA, t);
    c->easy_setopt(t->easy, CURL_REDIRECTS_FOLLOWED, 1L);
    c->easy_setopt(t->easy, CURL_REDIRECTS_MAX, (long)REDIRECTS);
    c->easy_setopt(t->easy, CURL_PROTOCOLS, (long)(CURL_HTTP | CURL_HTTPS));
    c->easy_setopt(t->easy, CURL_REDIR_PROTOCOLS, (long)(secure ? CURL_HTTPS : 3));
    c->easy_setopt(t->easy, CURL_USER_AGENT, "godwit/" GW_VERSION);
    c->easy_setopt(t->easy, CURL_NO_SIGNAL, 1L);
    c->easy_setopt(t->easy, CURL_CONNECT_TIMEOUT, 20L);
    c->easy_setopt(t->easy, CURL_LOW_SPEED_LIMIT, 1L);
    c->easy_setopt(t->easy, CURL_LOW_SPEED_TIME, 30L);
    c->easy_setopt(t->easy, CURL_BUFFER_SIZE, 512L << 10);
    c->easy_setopt(t->easy, CURL_RANGE, NULL);
    if (t->want != UINT64_MAX && t->file != NULL) {
        snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, t->from, t->from + t->want - 1);
        c->easy_setopt(t->easy, CURL_RANGE, range);
    } else if (t->from > 0) {
        snprintf(range, sizeof range, "%" PRIu64 "-", t->from);
        c->easy_setopt(t->easy, CURL_RANGE, range);
    }
    if (t->headers == NULL &&
        net_token()[0] != '\0') { /* libcurl sends it to the first host alone */
        snprintf(line, sizeof line, "Authorization: Bearer %s", net_token());
        t->headers = c->slist_append(NULL, line);
        c->easy_setopt(t->easy, CURL_HEADERS, t->headers);
    }
    t->busy = 1;
    t->done = t->refused = 0;
    t->code = 0;
    t->have = 0;
    t->handed = 0;
    t->retry_after = -1;
    t->total = UINT64_MAX;
    return c->multi_add_handle(multi, t->easy) == 0 ? APP_OK : APP_FAILURE;
}

static void end(const curl_library *c, void *multi, transfer *t) {
    if (t->easy != NULL) {
        if (t->busy) {
            c->multi_remove_handle(multi, t->easy);
        }
        c->easy_cleanup(t->easy);
    }
    if (t->headers != NULL) {
        c->slist_free_all(t->headers);
    }
    free(t->data);
    *t = (transfer){0};
}

/* Moves all connections; marks those that are done. */
static int move(const curl_library *c, void *multi) {
    int running, left, ready;
    if (c->multi_perform(multi, &running) != 0) {
        return APP_FAILURE;
    }
    for (curl_message *m; (m = c->multi_info_read(multi, &left)) != NULL;) {
        transfer *t = NULL;
        if (m->msg == 1 && c->easy_getinfo(m->easy, CURL_INFO_PRIVATE, &t) == 0 && t != NULL) {
            t->result = m->data.result;
            t->done = 1;
            t->busy = 0;
            c->multi_remove_handle(multi, t->easy);
        }
    }
    if (*signals_cancel() != 0) {
        return signals_exit_code(APP_FAILURE);
    }
    return running > 0 && c->multi_wait(multi, NULL, 0, 200, &ready) != 0 ? APP_FAILURE : APP_OK;
}

/* ---- what went wrong ------------------------------------------------------------------------- */

/* Is it worth another try? */
static int may_pass(const transfer *t) {
    if (t->result == 0) {
        return t->code == 429 || t->code == 408 || t->code >= 500;
    }
    return t->result != CURL_REDIRECT_LOOP && t->result != CURL_BAD_CERTIFICATE &&
           t->result != CURL_NO_HOST && t->result != CURL_NO_CONNECTION &&
           t->result != CURL_WRITE_STOPPED;
}

static int fault(const curl_library *c, const transfer *t, const char *what, const char *url) {
    int host = (int)strcspn(url + (strstr(url, "://") != NULL ? 8 : 0), "/") + 8;
    if (t->refused) {
        app_error("%s: the server sends something else than the file that its list names", what);
    } else if (t->result != 0) {
        app_error("%s: the download from %.*s failed: %s", what, host, url,
                  c->easy_strerror(t->result));
    } else if (t->code == 401) {
        app_error("%s: the hub wants a token (401): set HF_TOKEN, or check the name", what);
    } else if (t->code == 403) {
        app_error("%s: the hub refuses (403): its terms may have to be accepted on its page first, "
                  "and HF_TOKEN be set",
                  what);
    } else if (t->code == 404) {
        app_error("%s: no such model or file on %.*s (404)", what, host, url);
    } else if (t->code == 429) {
        app_error("%s: the hub has had too many requests (429): try again later, or set HF_TOKEN",
                  what);
    } else {
        app_error("%s: the hub answers %ld", what, t->code);
    }
    return APP_FAILURE;
}

/* Before another try; with what the server asks for. Exit code of a signal meanwhile. */
static int pause_before(int tried, double asked) {
    double seconds = asked >= 0 ? asked : 0.25 * (double)(1 << tried);
    double until = app_seconds() + (seconds < WAIT_MOST ? seconds : WAIT_MOST);
    while (app_seconds() < until) {
        if (*signals_cancel() != 0) {
            return signals_exit_code(APP_FAILURE);
        }
        double left = until - app_seconds();
        gw_os_sleep(left < 0.1 ? (int)(1000 * left) + 1 : 100);
    }
    return APP_OK;
}

/* ---- small answers --------------------------------------------------------------------------- */

int net_get(const char *url, const char *what, char **text, size_t *bytes) {
    const curl_library *c = curl_open();
    void *multi = c != NULL ? c->multi_init() : NULL;
    transfer t = {.want = UINT64_MAX};
    int code = multi != NULL ? APP_OK : APP_FAILURE;
    for (int tried = 0; code == APP_OK; tried++) {
        code = begin(c, multi, &t, url);
        while (code == APP_OK && !t.done) {
            code = move(c, multi);
        }
        if (code != APP_OK || (t.result == 0 && t.code == 200)) {
            break;
        }
        code = tried + 1 < TRIES && may_pass(&t) ? pause_before(tried, t.retry_after)
                                                 : fault(c, &t, what, url);
    }
    if (code == APP_OK) {
        *text = t.data != NULL ? t.data : calloc(1, 1);
        *bytes = t.have;
        t.data = NULL;
    }
    if (multi != NULL) {
        end(c, multi, &t);
        c->multi_cleanup(multi);
    }
    return code;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void show(const net_file *f, uint64_t at) {
    if (f->progress != NULL) {
        progress_update(f->progress, f->before + at, f->total, NULL);
    }
}

/* One connection, from where the file stands. *whole: nothing is left. */
static int stream(const curl_library *c, void *multi, net_file *f, transfer *t) {
    uint64_t best = f->from;
    int code = APP_OK, anew = 0;
    for (int tried = 0; code == APP_OK; tried++) {
        t->file = f;
        t->from = f->from;
        t->want = UINT64_MAX;
        code = begin(c, multi, t, f->url);
        while (code == APP_OK && !t->done) {
            code = move(c, multi);
            show(f, f->from);
        }
        if (code != APP_OK) {
            break;
        }
        int ok = t->result == 0 && (t->code == 200 || t->code == 206);
        if (ok && (f->size == UINT64_MAX || f->from == f->size)) {
            break;
        }
        int other = t->refused && t->code == 206 && !anew; /* not the range that was asked for */
        if (f->from > 0 && (other || (t->result == 0 && t->code == 416))) {
            anew = 1; /* what is here is none of it, or the server has no ranges */
            code = f->restart(f->user) == 0 ? APP_OK : APP_FAILURE;
            f->from = 0;
            continue;
        }
        if (t->refused || (t->result == CURL_WRITE_STOPPED && !t->refused)) {
            return t->refused ? fault(c, t, f->what, f->url) : APP_FAILURE; /* or it was said */
        }
        tried = f->from > best ? 0 : tried;
        best = f->from > best ? f->from : best;
        if (tried + 1 < TRIES && (ok || may_pass(t))) {
            code = pause_before(tried, t->retry_after);
        } else if (ok) {
            app_error("%s: the server ends the file after %" PRIu64 " of %" PRIu64 " bytes",
                      f->what, f->from, f->size);
            code = APP_FAILURE;
        } else {
            code = fault(c, t, f->what, f->url);
        }
    }
    return code;
}

typedef struct pieces {
    const curl_library *c;
    void *multi;
    net_file *f;
    transfer t[CONNECTIONS * 2]; /* one more for each: it goes on while a piece waits or is lent */
    uint64_t next;               /* byte from which on nothing was asked for */
    int failures, no_ranges;
} pieces;

/* A piece that is whole and whose turn it is; NULL: none. */
static transfer *whole_piece(pieces *p) {
    for (int i = 0; i < CONNECTIONS * 2; i++) {
        transfer *t = &p->t[i];
        if (t->done && t->from == p->f->from && t->result == 0 && t->code == 206 &&
            t->have == t->want) {
            return t;
        }
    }
    return NULL;
}

static int again(pieces *p, transfer *t) {
    if (t->refused || (t->result == 0 && (t->code == 200 || t->code == 416))) {
        p->no_ranges = 1; /* one stream finds out what is wrong */
        return APP_OK;
    }
    if (++p->failures >= TRIES || (t->result == 0 && t->code != 206 && !may_pass(t)) ||
        (t->result != 0 && !may_pass(t))) {
        return fault(p->c, t, p->f->what, p->f->url);
    }
    int code = pause_before(p->failures - 1, t->retry_after);
    return code == APP_OK ? begin(p->c, p->multi, t, p->f->url) : code;
}

/* Requests for bytes that none is under way for; with nothing under way, waits for memory first. */
static int ask(pieces *p) {
    net_file *f = p->f;
    int active = 0, code = APP_OK;
    uint64_t first = UINT64_MAX; /* end of the piece that will be free first */
    for (int i = 0; i < CONNECTIONS * 2; i++) {
        const transfer *t = &p->t[i];
        active += t->busy;
        first = t->lent && t->from + t->have < first ? t->from + t->have : first;
    }
    uint64_t taken = f->taken(f->user, active > 0 || first == UINT64_MAX ? 0 : first);
    for (int i = 0; i < CONNECTIONS * 2 && active < CONNECTIONS && p->next < f->size; i++) {
        transfer *t = &p->t[i];
        t->lent = t->lent && t->from + t->have > taken;
        if (!t->busy && !t->done && !t->lent) {
            t->file = f;
            t->from = p->next;
            t->want = f->size - p->next < PIECE ? f->size - p->next : PIECE;
            p->next += t->want;
            code = begin(p->c, p->multi, t, f->url);
            active++;
        }
    }
    return code;
}

static int step(pieces *p) {
    net_file *f = p->f;
    int code = ask(p);
    code = code == APP_OK ? move(p->c, p->multi) : code;
    for (transfer *t; code == APP_OK && (t = whole_piece(p)) != NULL;) {
        t->done = 0;
        t->lent = 1;
        p->failures = 0;
        code = f->take(f->user, t->data, t->have) == 0 ? APP_OK : APP_FAILURE;
        f->from += t->have;
    }
    for (int i = 0; i < CONNECTIONS * 2 && code == APP_OK && !p->no_ranges; i++) {
        transfer *t = &p->t[i];
        if (t->done && !(t->result == 0 && t->code == 206 && t->have == t->want)) {
            t->done = 0;
            code = again(p, t);
        }
    }
    show(f, f->from);
    return code;
}

int net_fetch(net_file *f) {
    const curl_library *c = curl_open();
    void *multi = c != NULL ? c->multi_init() : NULL;
    if (multi == NULL) {
        return APP_FAILURE;
    }
    pieces p = {.c = c, .multi = multi, .f = f, .next = f->from};
    int code = APP_OK;
    p.no_ranges = f->size == UINT64_MAX || f->size - f->from < PARALLEL;
    while (code == APP_OK && !p.no_ranges && f->from < f->size) {
        code = step(&p);
    }
    (void)f->taken(f->user, f->from);
    for (int i = 0; i < CONNECTIONS * 2; i++) {
        end(c, multi, &p.t[i]);
    }
    if (code == APP_OK && (f->size == UINT64_MAX || f->from < f->size)) {
        transfer t = {0};
        code = stream(c, multi, f, &t);
        end(c, multi, &t);
    }
    c->multi_cleanup(multi);
    return code;
}
