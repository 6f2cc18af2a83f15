/* apps/serve/conn.h - a client's connection: one request after the other is read, routed and
 * answered; deadlines, limits and slow readers. Lives on the loop's thread.
 *
 *   head 10 s from its first byte; body 60 s and 1 s per MiB, 16 KiB/s after 10 s; nothing read of
 *   an answer for 60 s, nothing asked for 60 s: closed. When there are too many connections the one
 *   that has asked nothing for longest gives way. A request that comes after another waits for
 *   that answer.
 */
#ifndef GW_APPS_SERVE_CONN_H
#define GW_APPS_SERVE_CONN_H

#include "apps/serve/account.h"
#include "apps/serve/fault.h"
#include "apps/serve/http.h"
#include "apps/serve/server.h"

/* What is known of a request for the access log. Numbers below 0: unknown. */
typedef struct conn_note {
    char model[128];
    int64_t prompt, cached, tokens;
} conn_note;

struct conn;
typedef struct conn conn;

/* A connection of a socket that was accepted; it frees itself. */
void conn_open(server *s, evutil_socket_t fd, const struct sockaddr *from);

/* What the request asked; valid until its answer has ended. */
const http_head *conn_head(const conn *c);
const char *conn_body(const conn *c, size_t *bytes);
const char *conn_request_id(const conn *c);
const char *conn_client(const conn *c); /* its address, or what --client-header says */
/* By key, else by client: whose turn it is, and whose memory. */
uint64_t conn_client_number(const conn *c);
const char *conn_key(const conn *c); /* the API key that it showed, or "" */
server *conn_server(const conn *c);
conn_note *conn_notes(conn *c);
void conn_set_body_max(conn *c, int64_t bytes);
void conn_set_form(conn *c, conn_form form);
conn_form conn_get_form(const conn *c);
/* The body is the caller's now, to be freed, and what it is held by. */
char *conn_take_body(conn *c, size_t *bytes, account_hold *hold);

/* Whoever answers later says whom to tell when the client has gone before (gone, once, not after
 * conn_end), and when an output buffer that conn_full reported is half empty again (room). */
typedef struct conn_watch {
    void (*gone)(void *user);
    void (*room)(void *user);
    void *user;
} conn_watch;
void conn_watched(conn *c, const conn_watch *watch);
/* More than 256 KiB that the client has not taken: nothing more should be written. */
int conn_full(const conn *c);

/* An answer: begin, then any number of writes, then end. bytes -1: unknown. extra: lines of the
 * head, each with CR LF; may be NULL. */
void conn_begin(conn *c, int status, const char *type, int64_t bytes, const char *extra);
int conn_begun(const conn *c);
void conn_write(conn *c, const void *data, size_t bytes);
void conn_end(conn *c);
/* The answer cannot be ended as it was begun: the connection is cut soon, and whoever watches is
 * told. */
void conn_abort(conn *c);

/* Closes the connection that has waited longest without a request, else the one that has sent its
 * body for longest. 0: all are being answered. */
int conn_give_way(server *s);
/* Closes those that wait for a request; the others after their answer. */
void conn_drain_all(server *s);
void conn_close_all(server *s);

#endif
