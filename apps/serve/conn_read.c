/* apps/serve/conn_read.c - requests as they come in: heads, bodies, their limits; see conn.h. */
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/conn_parts.h"
#include "apps/serve/metrics.h"
#include "apps/serve/random.h"
#include "apps/serve/reply.h"
#include "apps/serve/routes.h"

static void new_id(char id[132]) {
    unsigned char bytes[12];
    size_t n = (size_t)snprintf(id, 8, "req_");
    random_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        n += (size_t)snprintf(id + n, 4, "%02x", (unsigned)bytes[i]);
    }
}

/* ---- refusing -------------------------------------------------------------------------------- */

/* What cannot be read as a request is answered, and nothing after it is looked at. */
static void refuse_with(conn *c, const fault *f) {
    c->state = ANSWERING;
    c->close = 1;
    c->head.keep_alive = 0;
    conn_enter_row(c, NULL);
    evtimer_del(c->timer);
    if (c->id[0] == '\0') {
        new_id(c->id);
    }
    metrics_refused(c->s->metrics);
    reply_fault(c, f);
}

static void refuse(conn *c, int status, const char *what) {
    fault f;
    fault_set(&f, status, NULL, "%s", what);
    refuse_with(c, &f);
}

static void refuse_length(conn *c) {
    fault f;
    fault_set(&f, 413, NULL, "the body is longer than %d MiB", (int)(c->body_max >> 20));
    refuse_with(c, &f);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Who asks, where a proxy before the server says so in a field of the head: the last of a list is
 * what that proxy itself has seen. */
static void name_client(conn *c) {
    const char *field = c->s->o->client_header;
    const char *said = field != NULL ? http_head_field(&c->head, field) : NULL;
    const char *last = said != NULL ? strrchr(said, ',') : NULL;
    last = last != NULL ? last + 1 : said;
    snprintf(c->client, sizeof c->client, "%s", c->address);
    if (last != NULL && last[strspn(last, " \t")] != '\0') {
        snprintf(c->client, sizeof c->client, "%.60s", last + strspn(last, " \t"));
    }
}

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
    c->body_max = HTTP_BODY_MAX;
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
    conn_enter_row(c, NULL);
    c->state = ANSWERING;
    routes_answer(c, c->key);
}

/* Room for more bytes of the body, a quarter more each time, and no more than it says to have. -1:
 * it was refused. */
static int reserve_body(conn *c, size_t more) {
    enum { FIRST = 4096 };
    size_t need = c->n_body + more + 1, capacity = c->body_capacity + c->body_capacity / 4;
    if (need <= c->body_capacity) {
        return 0;
    }
    capacity = capacity < FIRST ? FIRST : capacity;
    if (!c->head.chunked && capacity > (size_t)c->head.length + 1) {
        capacity = (size_t)c->head.length + 1;
    }
    capacity = capacity < need ? need : capacity;
    c->hold.client = conn_client_number(c);
    if (account_set(c->s->account, &c->hold, capacity) != 0) {
        fault f;
        fault_set(&f, 503, NULL, "too many long requests are held at once: try again later");
        f.retry_after = 5;
        refuse_with(c, &f);
        return -1;
    }
    char *grown = realloc(c->body, capacity);
    if (grown == NULL) {
        refuse(c, 503, "out of memory");
        return -1;
    }
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
        if ((int64_t)c->n_body > c->body_max) {
            refuse_length(c);
            return;
        }
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
        conn_set_timer(c, HEAD_SECONDS);
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
    name_client(c);
    /* What is refused before its body is read cannot be followed by another request. */
    int close = c->close;
    c->close = close || c->head.chunked || c->head.length > 0;
    c->state = ANSWERING;
    evtimer_del(c->timer);
    if (routes_refuse(c, &c->key) != 0) {
        return;
    }
    c->close = close;
    if (c->head.length > c->body_max) {
        refuse_length(c);
        return;
    }
    c->state = READ_BODY;
    c->body_began = app_seconds();
    conn_enter_row(c, &c->s->bodies);
    conn_set_timer(c, BODY_FREE_SECONDS);
    if (c->head.expects_continue && evbuffer_get_length(in) == 0 &&
        (c->head.chunked || c->head.length > 0)) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        bufferevent_write(c->bev, go_on, sizeof go_on - 1);
    }
}

/* Each second, once the first ones are over: is it fast enough? */
void conn_read_late(conn *c) {
    double took = app_seconds() - c->body_began;
    double most = BODY_SECONDS +
                  (double)(c->head.chunked ? HTTP_BODY_MAX >> 20 : (int)(c->head.length >> 20));
    if (took > most || (double)c->n_body < (took - BODY_FREE_SECONDS) * BODY_RATE) {
        refuse(c, 408, "the request's body took too long");
    } else {
        conn_set_timer(c, 1);
    }
}

/* Of those that are late the head is told so; a client that has said nothing is left. */
void conn_head_late(conn *c) { refuse(c, 408, "the request's head took longer than 10 s"); }

void conn_read(conn *c) {
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
            struct evbuffer *in = bufferevent_get_input(c->bev);
            c->thrown += evbuffer_get_length(in);
            evbuffer_drain(in, SIZE_MAX);
            c->dead |= c->thrown > LINGER_BYTES;
        }
    } while (!c->dead && c->state != before && c->state != ANSWERING);
}
