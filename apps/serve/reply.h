/* apps/serve/reply.h - whole answers, errors in the form of each API, and streams of events. */
#ifndef GW_APPS_SERVE_REPLY_H
#define GW_APPS_SERVE_REPLY_H

#include <jansson.h>

#include "apps/serve/conn.h"

/* body is taken over; NULL: out of memory, which is answered. */
void reply_json(conn *c, int status, json_t *body);
void reply_text(conn *c, int status, const char *type, const char *text, size_t bytes);
/* With 200; relaxed: what of the request's schemas is not kept, or "". */
void reply_answer(conn *c, json_t *body, const char *relaxed);
void reply_fault(conn *c, const fault *f);
/* An error as the object that this connection's API has. NULL: no memory. */
json_t *reply_fault_object(conn_form form, const fault *f);

/* A stream of server-sent events, or of JSON lines. */
void reply_stream(conn *c, int json_lines, const char *relaxed);
/* "event: NAME" (NULL: none) and "data: BODY"; or one line of JSON. body is taken over. */
void reply_event(conn *c, const char *name, json_t *body);
void reply_line(conn *c, json_t *body);
void reply_done(conn *c); /* "data: [DONE]" */
void reply_ping(conn *c); /* a comment */

/* One line of JSON, malloc'd; *bytes of it. body is taken over. NULL: no memory. */
char *reply_dump(json_t *body, size_t *bytes);

#endif
