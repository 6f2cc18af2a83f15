/* apps/serve/conn.c - connections: see conn.h. */
#include "apps/serve/conn.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "apps/serve/access_log.h"
#include "apps/serve/metrics.h"
#include "apps/serve/random.h"
#include "apps/serve/reply.h"
#include "apps/serve/routes.h"

enum {
    HEAD_SECONDS = 10,
    BODY_SECONDS = 60,
    IDLE_SECONDS = 60,
    WRITE_SECONDS = 60,
    LINGER_SECONDS = 2,
    PIPELINED_MAX = HTTP_HEAD_MAX + 4096, /* bytes that are read ahead of an answer */
    FULL_BYTES = 256 * 1024
};
#define BODIES_MAX ((uint64_t)512 << 20) /* bytes of all bodies together */

typedef enum conn_state { READ_HEAD, READ_BODY, ANSWERING, LINGERING } conn_state;

struct conn {
    server *s;
    conn *next, **link;
    struct bufferevent *bev;
    struct event *timer;
    conn_state state;
    char client[64];
    int in_callback, dead; /* dead: freed when the callback is over */
    int half;              /* the client sends nothing more */

    http_scan scan;
    http_head head;
    http_chunks chunks;
    char *body;
    size_t n_body, body_capacity;
    char id[132];
    const char *key;
    conn_form form;
    conn_note note;
    double began;

    conn_watch watch;
    int begun, chunked, close, full, timing;
    int status;
    uint64_t sent;
    int64_t left; /* bytes of the answer that are still to come; -1: unknown */
};

static void serve_input(conn *c);

/* ---- life ------------------------------------------------------------------------------------ */

static void set_timer(conn *c, int seconds) {
    struct timeval wait = {.tv_sec = seconds};
    evtimer_add(c->timer, &wait);
}

static void forget_body(conn *c) {
    c->s->body_bytes -= c->body_capacity;
    free(c->body);
    c->body = NULL;
    c->n_body = c->body_capacity = 0;
}

static void tell_gone(conn *c) {
    conn_watch watch = c->watch;
    c->watch = (conn_watch){0};
    if (watch.gone != NULL) {
        watch.gone(watch.user);
    }
}

static void log_answer(conn *c, int whole) {
    if (c->head.bytes == NULL && c->status == 0) {
        return;
    }
    access_entry entry = {.client = c->client,
                          .method = c->head.method != NULL ? c->head.method : "",
                          .target = c->head.target != NULL ? c->head.target : "",
                          .id = c->id,
                          .status = c->status,
                          .whole = whole,
                          .bytes = c->sent,
                          .seconds = app_seconds() - c->began,
                          .note = &c->note};
    access_log_write(c->s->log, &entry);
    metrics_answered(c->s->metrics, c->status);
}

static void free_conn(conn *c) {
    if (c->in_callback) {
        c->dead = 1;
        return;
    }
    server *s = c->s;
    if (c->state == ANSWERING) {
        tell_gone(c);
        log_answer(c, 0);
    }
    *c->link = c->next;
    if (c->next != NULL) {
        c->next->link = c->link;
    }
    s->n_conns--;
    forget_body(c);
    http_head_free(&c->head);
    event_free(c->timer);
    bufferevent_free(c->bev);
    free(c);
    if (s->paused && s->n_conns < s->conns_max - s->conns_max / 16 && !s->draining) {
        s->paused = 0;
        for (int i = 0; i < s->n_listeners; i++) {
            evconnlistener_enable(s->listeners[i]);
        }
    }
}

static void leave_callback(conn *c) {
    c->in_callback = 0;
    if (c->dead) {
        free_conn(c);
    }
}

/* The answer is on its way; what still comes in is thrown away for a while, so that the client's
 * system does not drop the answer because nobody took what it had sent. */
static void linger(conn *c) {
    c->state = LINGERING;
    if (c->half) {
        c->dead = 1;
        event_active(c->timer, EV_TIMEOUT, 0);
        return;
    }
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    evbuffer_drain(bufferevent_get_input(c->bev), SIZE_MAX);
    bufferevent_setwatermark(c->bev, EV_READ, 0, 0);
    bufferevent_enable(c->bev, EV_READ);
    set_timer(c, LINGER_SECONDS);
}

static void new_id(char id[132]) {
    unsigned char bytes[12];
    size_t n = (size_t)snprintf(id, 8, "req_");
    random_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        n += (size_t)snprintf(id + n, 4, "%02x", (unsigned)bytes[i]);
    }
}

/* ---- refusing -------------------------------------------------------------------------------- */

/* What cannot be read as a request is answered, and nothing behind it is looked at. */
static void refuse(conn *c, int status, const char *what) {
    fault f;
    c->state = ANSWERING;
    c->close = 1;
    c->head.keep_alive = 0;
    evtimer_del(c->timer);
    if (c->id[0] == '\0') {
        new_id(c->id);
    }
    metrics_refused(c->s->metrics);
    fault_set(&f, status, NULL, "%s", what);
    reply_fault(c, &f);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void begin_request(conn *c) {
    const char *given = http_head_field(&c->head, "X-Request-Id");
    size_t n = given != NULL ? strlen(given) : 0;
    c->began = app_seconds();
    c->note = (conn_note){.prompt = -1, .cached = -1, .tokens = -1};
    c->status = 0;
    c->sent = 0;
    c->begun = c->chunked = c->full = 0;
    c->key = "";
    c->form = FORM_OPENAI;
    c->close = !c->head.keep_alive;
    if (n > 0 && n <= 128 &&
        strspn(given, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                      "0123456789-_.:/+=@") == n) {
        memcpy(c->id, given, n + 1);
    } else {
        new_id(c->id);
    }
}

static void whole_request(conn *c) {
    evtimer_del(c->timer);
    c->state = ANSWERING;
    routes_answer(c, c->key);
}

/* Room for more bytes of the body. -1: it was refused. */
static int reserve_body(conn *c, size_t more) {
    size_t need = c->n_body + more + 1, capacity = c->body_capacity;
    if (need <= capacity) {
        return 0;
    }
    while (capacity < need) {
        capacity = capacity == 0 ? 4096 : capacity * 2;
    }
    if (c->s->body_bytes + (capacity - c->body_capacity) > BODIES_MAX) {
        refuse(c, 503, "too many long requests are being read at once: try again later");
        return -1;
    }
    char *grown = realloc(c->body, capacity);
    if (grown == NULL) {
        refuse(c, 503, "out of memory");
        return -1;
    }
    c->s->body_bytes += capacity - c->body_capacity;
    c->body = grown;
    c->body_capacity = capacity;
    return 0;
}

static void read_plain_body(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    size_t want = (size_t)c->head.length - c->n_body, have = evbuffer_get_length(in);
    size_t part = want < have ? want : have;
    if (part > 0 && reserve_body(c, part) != 0) {
        return;
    }
    if (part > 0) {
        evbuffer_remove(in, c->body + c->n_body, part);
        c->n_body += part;
    }
    if (c->n_body == (size_t)c->head.length) {
        whole_request(c);
    }
}

static void read_chunked_body(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    while (!c->chunks.done && evbuffer_get_length(in) > 0) {
        size_t have = evbuffer_get_contiguous_space(in), used, body;
        http_fault wrong = {0};
        if (reserve_body(c, have) != 0) {
            return;
        }
        evbuffer_copyout(in, c->body + c->n_body, have);
        if (http_chunks_read(&c->chunks, c->body + c->n_body, have, &used, &body, &wrong) != 0) {
            refuse(c, wrong.status, wrong.what);
            return;
        }
        c->n_body += body;
        evbuffer_drain(in, used);
    }
    if (c->chunks.done) {
        whole_request(c);
    }
}

static void read_head(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    http_fault wrong = {0};
    size_t have = evbuffer_get_length(in);
    have = have < HTTP_HEAD_MAX + 1 ? have : HTTP_HEAD_MAX + 1;
    if (have == 0) {
        return;
    }
    const char *at = (const char *)evbuffer_pullup(in, (ev_ssize_t)have);
    if (at == NULL) {
        refuse(c, 503, "out of memory");
        return;
    }
    if (!c->timing) {
        c->timing = 1;
        c->began = app_seconds();
        set_timer(c, HEAD_SECONDS);
    }
    size_t n = http_scan_head(&c->scan, at, have, &wrong);
    if (n == 0 && wrong.status == 0) {
        return;
    }
    http_head_free(&c->head);
    if (n == 0 || http_head_read(&c->head, at, n, &wrong) != 0) {
        refuse(c, wrong.status, wrong.what);
        return;
    }
    evbuffer_drain(in, n);
    c->scan = (http_scan){0};
    c->chunks = (http_chunks){0};
    begin_request(c);
    /* What is refused before its body is read cannot be followed by another request. */
    int close = c->close;
    c->close = close || c->head.chunked || c->head.length > 0;
    c->state = ANSWERING;
    evtimer_del(c->timer);
    if (routes_refuse(c, &c->key) != 0) {
        return;
    }
    c->close = close;
    if (c->head.length > HTTP_BODY_MAX) {
        refuse(c, 413, "the body is longer than 64 MiB");
        return;
    }
    c->state = READ_BODY;
    set_timer(c,
              BODY_SECONDS + (c->head.chunked ? HTTP_BODY_MAX >> 20 : (int)(c->head.length >> 20)));
    if (c->head.expects_continue && evbuffer_get_length(in) == 0 &&
        (c->head.chunked || c->head.length > 0)) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        bufferevent_write(c->bev, go_on, sizeof go_on - 1);
    }
}

/* Goes as far as what has come allows. */
static void serve_input(conn *c) {
    conn_state before;
    do {
        before = c->state;
        if (c->state == READ_HEAD) {
            read_head(c);
        }
        if (c->state == READ_BODY) {
            if (c->head.chunked) {
                read_chunked_body(c);
            } else if (c->head.length > 0) {
                read_plain_body(c);
            } else {
                whole_request(c);
            }
        }
        if (c->state == LINGERING) {
            evbuffer_drain(bufferevent_get_input(c->bev), SIZE_MAX);
        }
    } while (!c->dead && c->state != before && c->state != ANSWERING);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void on_read(struct bufferevent *bev, void *user) {
    conn *c = user;
    (void)bev;
    c->in_callback = 1;
    serve_input(c);
    leave_callback(c);
}

/* The output buffer has been emptied below the mark. */
static void on_written(struct bufferevent *bev, void *user) {
    conn *c = user;
    size_t waiting = evbuffer_get_length(bufferevent_get_output(bev));
    c->in_callback = 1;
    if (c->state == LINGERING && c->close && waiting == 0) {
        linger(c);
    } else if (c->full && waiting <= FULL_BYTES / 2) {
        c->full = 0;
        if (c->watch.room != NULL) {
            c->watch.room(c->watch.user);
        }
    }
    leave_callback(c);
}

/* It is gone, has reset the connection, or reads nothing. One that has closed its half of the
 * connection is gone as well where it still has to be answered; an answer that is on its way it
 * gets. */
static void on_event(struct bufferevent *bev, short what, void *user) {
    conn *c = user;
    if ((what & BEV_EVENT_EOF) != 0 && c->state != ANSWERING &&
        evbuffer_get_length(bufferevent_get_output(bev)) > 0) {
        c->half = c->close = 1;
        c->state = LINGERING;
        bufferevent_disable(bev, EV_READ);
        bufferevent_setwatermark(bev, EV_WRITE, 0, 0);
        return;
    }
    c->in_callback = 0;
    free_conn(c);
}

static void on_timer(evutil_socket_t fd, short what, void *user) {
    conn *c = user;
    (void)fd, (void)what;
    c->in_callback = 1;
    if (c->dead) {
        leave_callback(c);
        return;
    }
    if (c->state == READ_HEAD && c->timing) {
        refuse(c, 408, "the request's head took longer than 10 s");
    } else if (c->state == READ_BODY) {
        refuse(c, 408, "the request's body took too long");
    } else if (c->state != ANSWERING) {
        c->dead = 1;
    }
    leave_callback(c);
}

static void name_client(conn *c, const struct sockaddr *from) {
    const void *at = NULL;
    int port = 0;
    char text[INET6_ADDRSTRLEN] = "local";
    if (from->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from;
        at = &in->sin_addr;
        port = ntohs(in->sin_port);
    } else if (from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)from;
        at = &in->sin6_addr;
        port = ntohs(in->sin6_port);
    }
    (void)port; /* an address is a client, whatever port it comes from */
    if (at != NULL) {
        inet_ntop(from->sa_family, at, text, sizeof text);
    }
    snprintf(c->client, sizeof c->client, "%s", text);
}

void conn_open(server *s, evutil_socket_t fd, const struct sockaddr *from) {
    conn *c = calloc(1, sizeof *c);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (c != NULL) {
        c->bev = bufferevent_socket_new(loop_base(s->loop), fd, BEV_OPT_CLOSE_ON_FREE);
        c->timer = event_new(loop_base(s->loop), -1, 0, on_timer, c);
    }
    if (c == NULL || c->bev == NULL || c->timer == NULL) {
        if (c != NULL && c->timer != NULL) {
            event_free(c->timer);
        }
        if (c != NULL && c->bev != NULL) {
            bufferevent_free(c->bev); /* closes fd */
        } else {
            evutil_closesocket(fd);
        }
        free(c);
        return;
    }
    c->s = s;
    c->head.length = -1;
    name_client(c, from);
    c->link = &s->conns;
    c->next = s->conns;
    if (c->next != NULL) {
        c->next->link = &c->next;
    }
    s->conns = c;
    s->n_conns++;
    struct timeval patience = {.tv_sec = WRITE_SECONDS};
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, PIPELINED_MAX);
    bufferevent_setwatermark(c->bev, EV_WRITE, FULL_BYTES / 2, 0);
    bufferevent_set_timeouts(c->bev, NULL, &patience);
    set_timer(c, IDLE_SECONDS);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

/* ---- what was asked -------------------------------------------------------------------------- */

const http_head *conn_head(const conn *c) { return &c->head; }
const char *conn_request_id(const conn *c) { return c->id; }
const char *conn_client(const conn *c) { return c->client; }
const char *conn_key(const conn *c) { return c->key; }
server *conn_server(const conn *c) { return c->s; }
conn_note *conn_notes(conn *c) { return &c->note; }
void conn_set_form(conn *c, conn_form form) { c->form = form; }
conn_form conn_get_form(const conn *c) { return c->form; }

const char *conn_body(const conn *c, size_t *bytes) {
    *bytes = c->n_body;
    if (c->body == NULL) {
        return "";
    }
    c->body[c->n_body] = '\0';
    return c->body;
}

char *conn_take_body(conn *c, size_t *bytes) {
    if (c->body == NULL) {
        *bytes = 0;
        return calloc(1, 1);
    }
    char *body = c->body;
    body[c->n_body] = '\0';
    *bytes = c->n_body;
    c->s->body_bytes -= c->body_capacity;
    c->body = NULL;
    c->n_body = c->body_capacity = 0;
    return body;
}

/* ---- answering ------------------------------------------------------------------------------- */

void conn_watched(conn *c, const conn_watch *watch) { c->watch = *watch; }

int conn_full(const conn *c) { return c->full; }
int conn_begun(const conn *c) { return c->begun; }

/* Connection: the answer's end is found by its length, by chunks, or by the end of all. */
void conn_begin(conn *c, int status, const char *type, int64_t bytes, const char *extra) {
    struct evbuffer *out = bufferevent_get_output(c->bev);
    int bodiless = status == 204 || status == 304;
    char date[64];
    time_t now = time(NULL);
    struct tm parts;
    c->begun = 1;
    c->status = status;
    c->left = bytes;
    c->chunked = bytes < 0 && !bodiless && c->head.minor > 0 && c->head.bytes != NULL;
    if ((bytes < 0 && !bodiless && !c->chunked) || c->s->draining) {
        c->close = 1;
    }
    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: godwit/" GW_VERSION "\r\n",
                        status, http_reason(status), date);
    if (!bodiless) {
        evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
        if (bytes >= 0) {
            evbuffer_add_printf(out, "Content-Length: %lld\r\n", (long long)bytes);
        } else if (c->chunked) {
            evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
        }
    }
    evbuffer_add_printf(out, "X-Request-Id: %s\r\nConnection: %s\r\n", c->id,
                        c->close ? "close" : "keep-alive");
    routes_origin(c, out);
    if (extra != NULL) {
        evbuffer_add(out, extra, strlen(extra));
    }
    evbuffer_add(out, "\r\n", 2);
    if (c->head.bytes != NULL && strcmp(c->head.method, "HEAD") == 0) {
        c->chunked = 0;
        c->left = 0;
    }
}

void conn_write(conn *c, const void *data, size_t bytes) {
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (c->dead || bytes == 0 || (c->head.bytes != NULL && strcmp(c->head.method, "HEAD") == 0)) {
        return;
    }
    if (c->chunked) {
        evbuffer_add_printf(out, "%zx\r\n", bytes);
    }
    evbuffer_add(out, data, bytes);
    if (c->chunked) {
        evbuffer_add(out, "\r\n", 2);
    }
    c->sent += bytes;
    if (evbuffer_get_length(out) > FULL_BYTES) {
        c->full = 1;
    }
}

static void next_request(conn *c) {
    http_head_free(&c->head);
    forget_body(c);
    c->state = READ_HEAD;
    c->timing = 0;
    c->id[0] = '\0';
    c->status = 0;
    set_timer(c, IDLE_SECONDS);
    if (evbuffer_get_length(bufferevent_get_input(c->bev)) > 0) {
        bufferevent_trigger(c->bev, EV_READ, BEV_TRIG_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
    }
}

void conn_end(conn *c) {
    if (c->dead) {
        return;
    }
    c->watch = (conn_watch){0};
    if (c->chunked) {
        evbuffer_add(bufferevent_get_output(c->bev), "0\r\n\r\n", 5);
    }
    log_answer(c, 1);
    if (!c->close) {
        next_request(c);
        return;
    }
    http_head_free(&c->head);
    forget_body(c);
    c->state = LINGERING;
    c->status = 0;
    bufferevent_setwatermark(c->bev, EV_WRITE, 0, 0); /* on_written when all of it is gone */
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0) {
        linger(c);
    }
}

void conn_abort(conn *c) {
    c->state = ANSWERING;
    c->dead = 1;
    event_active(c->timer, EV_TIMEOUT, 0);
}

/* ---- the end --------------------------------------------------------------------------------- */

void conn_drain_all(server *s) {
    for (conn *c = s->conns, *next; c != NULL; c = next) {
        next = c->next;
        c->close = 1;
        if (c->state == READ_HEAD && !c->timing) {
            free_conn(c);
        }
    }
}

void conn_close_all(server *s) {
    while (s->conns != NULL) {
        s->conns->in_callback = 0;
        free_conn(s->conns);
    }
}
