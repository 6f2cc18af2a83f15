/* apps/serve/routes.h - which function answers what. A route is one row of the table of its family
 * (route_*.c); a new family is one line in routes.c. */
#ifndef GW_APPS_SERVE_ROUTES_H
#define GW_APPS_SERVE_ROUTES_H

#include "apps/serve/reply.h"

struct evbuffer;

enum {
    ROUTE_PUBLIC = 1, /* needs no key */
    ROUTE_REST = 2,   /* the path goes on after it */
    ROUTE_SMALL = 4   /* a body of more than 1 MiB is refused */
};

typedef struct route {
    const char *method; /* GET answers HEAD as well */
    const char *path;
    int flags;
    conn_form form; /* of errors */
    /* Called with the whole request; answers now or later (conn.h). rest: what comes after the
     * path of a ROUTE_REST. */
    void (*answer)(conn *c, const char *rest);
} route;

extern const route routes_info[], routes_text[], routes_chat[], routes_completions[],
    routes_responses[], routes_messages[], routes_native[], routes_ollama[], routes_vectors[],
    routes_lora[]; /* end with NULL */

/* What can be said before the body is read: no such route, no key, a foreign page. Non-zero: it has
 * been answered. *key: the key that was shown. */
int routes_refuse(conn *c, const char **key);
void routes_answer(conn *c, const char *key);
/* Lines of the answer's head that let pages of other origins read it. */
void routes_origin(const conn *c, struct evbuffer *out);

#endif
