/* apps/serve/conn_parts.h - the pieces of conn.h's connections, for conn*.c only. */
#ifndef GW_APPS_SERVE_CONN_PARTS_H
#define GW_APPS_SERVE_CONN_PARTS_H

#include <event2/bufferevent.h>

#include "apps/serve/account.h"
#include "apps/serve/conn.h"

enum {
    HEAD_SECONDS = 10,
    BODY_SECONDS = 60,
    BODY_FREE_SECONDS = 10, /* without a least rate */
    BODY_RATE = 16384,      /* bytes a second after that, on the whole */
    IDLE_SECONDS = 60,
    WRITE_SECONDS = 60,
    LINGER_SECONDS = 2,
    LINGER_BYTES = 1 << 20,               /* that are thrown away after a refusal */
    PIPELINED_MAX = HTTP_HEAD_MAX + 4096, /* bytes that are read ahead of an answer */
    FULL_BYTES = 256 * 1024
};

typedef enum conn_state { READ_HEAD, READ_BODY, ANSWERING, LINGERING } conn_state;

struct conn {
    server *s;
    conn *next, **link;
    conn *newer, *older;  /* in its row */
    struct conn_row *row; /* of the server's; NULL: in none */
    struct bufferevent *bev;
    struct event *timer;
    conn_state state;
    char address[64], client[64]; /* client: the address, or what a proxy says */
    unsigned peer;                /* its address's place in the server's peers */
    int in_callback, dead;        /* dead: freed when the callback is over */
    int half;                     /* the client sends nothing more */

    http_scan scan;
    http_head head;
    http_chunks chunks;
    char *body;
    size_t n_body, body_capacity, thrown;
    int64_t body_max; /* bytes that the route takes */
    double body_began;
    account_hold hold;
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

/* conn.c */
void conn_set_timer(conn *c, int seconds);
void conn_free(conn *c);
void conn_forget_body(conn *c);
void conn_log(conn *c, int whole);
void conn_enter_row(conn *c, struct conn_row *row); /* as its newest; NULL: it leaves its own */
/* The answer is on its way; what still comes in is thrown away for a while, so that the client's
 * system does not drop the answer because nobody took what it had sent. */
void conn_linger(conn *c);
/* conn_read.c: goes as far as what has come allows; what happens when the time for it is over. */
void conn_read(conn *c);
void conn_read_late(conn *c);
void conn_head_late(conn *c);

#endif
