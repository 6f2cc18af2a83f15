/* apps/serve/conn.c - the life of connections: see conn.h. */
#include <event2/buffer.h>
#include <event2/listener.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/access_log.h"
#include "apps/serve/conn_parts.h"
#include "apps/serve/metrics.h"
#include "core/base/os_net.h"

/* ---- life ------------------------------------------------------------------------------------ */

void conn_set_timer(conn *c, int seconds) {
    struct timeval wait = {.tv_sec = seconds};
    evtimer_add(c->timer, &wait);
}

void conn_forget_body(conn *c) {
    account_set(c->s->account, &c->hold, 0);
    free(c->body);
    c->body = NULL;
    c->n_body = c->body_capacity = 0;
}

void conn_enter_row(conn *c, struct conn_row *row) {
    if (c->row != NULL) {
        *(c->older != NULL ? &c->older->newer : &c->row->first) = c->newer;
        *(c->newer != NULL ? &c->newer->older : &c->row->last) = c->older;
    }
    c->row = row;
    c->newer = NULL;
    c->older = row != NULL ? row->last : NULL;
    if (row != NULL) {
        *(row->last != NULL ? &row->last->newer : &row->first) = c;
        row->last = c;
    }
}

/* Of the oldest those of the address that has most connections, so that who opens them by the
 * hundred takes places from nobody else. One whose last answer is still on its way has its time. */
static conn *oldest_of(const struct conn_row *row) {
    enum { LOOKED_AT = 64 };
    conn *c = row->first, *found = NULL;
    for (int i = 0; c != NULL && i < LOOKED_AT; i++, c = c->newer) {
        const int *peers = c->s->peers;
        if (!c->in_callback && evbuffer_get_length(bufferevent_get_output(c->bev)) == 0 &&
            (found == NULL || peers[c->peer] > peers[found->peer])) {
            found = c;
        }
    }
    return found;
}

/* Addresses that share a place are taken for one: they only leave earlier. */
static unsigned place_of(const char *address) {
    unsigned hash = 2166136261u;
    for (; *address != '\0'; address++) {
        hash = (hash ^ (unsigned char)*address) * 16777619u;
    }
    return hash % PEERS;
}

int conn_give_way(server *s) {
    conn *c = oldest_of(&s->heads);
    c = c != NULL ? c : oldest_of(&s->bodies);
    if (c != NULL) {
        conn_free(c);
    }
    return c != NULL;
}

static void tell_gone(conn *c) {
    conn_watch watch = c->watch;
    c->watch = (conn_watch){0};
    if (watch.gone != NULL) {
        watch.gone(watch.user);
    }
}

void conn_log(conn *c, int whole) {
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

void conn_free(conn *c) {
    if (c->in_callback) {
        c->dead = 1;
        return;
    }
    server *s = c->s;
    if (c->state == ANSWERING) {
        tell_gone(c);
        conn_log(c, 0);
    }
    conn_enter_row(c, NULL);
    *c->link = c->next;
    if (c->next != NULL) {
        c->next->link = c->link;
    }
    s->n_conns--;
    s->peers[c->peer]--;
    conn_forget_body(c);
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
        conn_free(c);
    }
}

void conn_linger(conn *c) {
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
    conn_set_timer(c, LINGER_SECONDS);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void on_read(struct bufferevent *bev, void *user) {
    conn *c = user;
    (void)bev;
    c->in_callback = 1;
    conn_read(c);
    leave_callback(c);
}

/* The output buffer has been emptied below the mark. */
static void on_written(struct bufferevent *bev, void *user) {
    conn *c = user;
    size_t waiting = evbuffer_get_length(bufferevent_get_output(bev));
    c->in_callback = 1;
    if (c->state == LINGERING && c->close && waiting == 0) {
        conn_linger(c);
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
    conn_free(c);
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
        conn_head_late(c);
    } else if (c->state == READ_BODY) {
        conn_read_late(c);
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
    snprintf(c->address, sizeof c->address, "%s", text);
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
    c->body_max = HTTP_BODY_MAX;
    name_client(c, from);
    c->link = &s->conns;
    c->next = s->conns;
    if (c->next != NULL) {
        c->next->link = &c->next;
    }
    s->conns = c;
    s->n_conns++;
    c->peer = place_of(c->address);
    s->peers[c->peer]++;
    conn_enter_row(c, &s->heads);
    struct timeval patience = {.tv_sec = WRITE_SECONDS};
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, PIPELINED_MAX);
    bufferevent_setwatermark(c->bev, EV_WRITE, FULL_BYTES / 2, 0);
    bufferevent_set_timeouts(c->bev, NULL, &patience);
    conn_set_timer(c, IDLE_SECONDS);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

/* ---- the end --------------------------------------------------------------------------------- */

void conn_drain_all(server *s) {
    for (conn *c = s->conns, *next; c != NULL; c = next) {
        next = c->next;
        c->close = 1;
        if (c->state == READ_HEAD && !c->timing) {
            conn_free(c);
        }
    }
}

void conn_close_all(server *s) {
    while (s->conns != NULL) {
        s->conns->in_callback = 0;
        conn_free(s->conns);
    }
}
