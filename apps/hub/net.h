/* apps/hub/net.h - HTTP requests to a hub: small answers, and files that arrive in order, by
 * several connections, from where an earlier try ended. */
#ifndef GW_HUB_NET_H
#define GW_HUB_NET_H

#include <stddef.h>
#include <stdint.h>

#include "apps/terminal.h"

/* Takes the bytes of a file in their order, which stay where they are until `taken` counts them;
 * non-zero ends the transfer (said by the taker, who needs none of them any more). */
typedef int (*net_taker)(void *user, const void *data, size_t bytes);

typedef struct net_file {
    const char *url, *what; /* what: its name in messages */
    uint64_t from, size;    /* bytes that are there; of the whole file, UINT64_MAX: not known */
    net_taker take;
    /* Bytes of the file that the taker no longer needs; waits for `least` of those it was given. */
    uint64_t (*taken)(void *user, uint64_t least);
    int (*restart)(void *user); /* the server sends all of it again: what was taken is dropped */
    void *user;
    app_progress *progress;
    uint64_t before, total; /* of the progress: bytes of files that are done, and of all */
} net_file;

/* Exit codes; the error was said. A wrong status, a connection that ends early or does not move,
 * 429 and 5xx are tried again for a while; nothing that was taken is asked for twice. */
int net_get(const char *url, const char *what, char **text, size_t *bytes); /* free(*text) */
int net_fetch(net_file *f);

/* The token of HF_TOKEN or of the file that the hub's own tools write; "": none. */
const char *net_token(void);

/* Reads a number of seconds or a date is none: -1. */
double net_retry_after(const char *value);

#endif
