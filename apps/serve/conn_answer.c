/* apps/serve/conn_answer.c - answers as they go out, and what they are to; see conn.h. */
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/conn_parts.h"
#include "apps/serve/routes.h"
#include "core/base/os.h"

/* ---- what was asked -------------------------------------------------------------------------- */

const http_head *conn_head(const conn *c) { return &c->head; }
const char *conn_request_id(const conn *c) { return c->id; }
const char *conn_client(const conn *c) { return c->client; }
const char *conn_key(const conn *c) { return c->key; }
server *conn_server(const conn *c) { return c->s; }
conn_note *conn_notes(conn *c) { return &c->note; }
void conn_set_body_max(conn *c, int64_t bytes) { c->body_max = bytes; }
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

uint64_t conn_client_number(const conn *c) {
    uint64_t h = 14695981039346656037u; /* FNV-1a: tells clients apart, keeps no secret */
    for (const char *at = c->s->n_keys > 0 ? c->key : c->client; *at != '\0'; at++) {
        h = (h ^ (unsigned char)*at) * 1099511628211u;
    }
    return h;
}

char *conn_take_body(conn *c, size_t *bytes, account_hold *hold) {
    *hold = c->hold;
    hold->client = c->hold.bytes > 0 ? hold->client : conn_client_number(c);
    c->hold = (account_hold){0};
    if (c->body == NULL) {
        *bytes = 0;
        return calloc(1, 1);
    }
    char *body = c->body;
    body[c->n_body] = '\0';
    *bytes = c->n_body;
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
        char size[20]; /* libevent may print by a library that knows no %zx */
        int n = snprintf(size, sizeof size, "%zx\r\n", bytes);
        evbuffer_add(out, size, (size_t)n);
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
    conn_forget_body(c);
    c->state = READ_HEAD;
    conn_enter_row(c, &c->s->heads);
    c->timing = 0;
    c->id[0] = '\0';
    c->status = 0;
    conn_set_timer(c, IDLE_SECONDS);
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
    conn_log(c, 1);
    if (!c->close) {
        next_request(c);
        return;
    }
    http_head_free(&c->head);
    conn_forget_body(c);
    c->state = LINGERING;
    c->status = 0;
    bufferevent_setwatermark(c->bev, EV_WRITE, 0, 0); /* on_written when all of it is gone */
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0) {
        conn_linger(c);
    }
}

void conn_abort(conn *c) {
    c->state = ANSWERING;
    c->dead = 1;
    event_active(c->timer, EV_TIMEOUT, 0);
}
