/* apps/serve/server.h - what all of the server shares. One per process; fields belong to the loop's
 * thread unless said otherwise. */
#ifndef GW_APPS_SERVE_SERVER_H
#define GW_APPS_SERVE_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "apps/common.h"
#include "apps/serve/loop.h"
#include "core/base/os_threads.h"

struct conn;
struct event;
struct evconnlistener;
struct job;
struct models;
struct metrics;
struct access_log;

enum { LISTENERS_MAX = 8, KEYS_MAX = 256, PEERS = 1024 };

typedef struct server {
    const app_options *o;
    loop *loop;
    struct models *models;
    struct metrics *metrics;
    struct access_log *log;

    char *keys[KEYS_MAX]; /* none: anybody may ask */
    size_t n_keys;
    char *key_text; /* what --api-key-file held */
    int loopback;   /* only this machine can connect */

    struct evconnlistener *listeners[LISTENERS_MAX];
    int n_listeners, paused; /* paused: nothing is accepted for now */
    struct event *tick, *signal;
    struct sink *err;   /* standard error, which nothing waits for */
    struct conn *conns; /* list */
    int n_conns, conns_max;
    int peers[PEERS]; /* connections by the hash of their address */
    struct conn_row {
        struct conn *first, *last;
    } heads, bodies; /* connections that ask nothing yet, that send a body: the oldest first */
    struct account *account;     /* of what requests hold, from their first byte to their answer */
    struct grammars *grammars;   /* what was compiled, for the next turn */
    struct job *jobs;            /* list */
    pthread_mutex_t events_lock; /* of what the engine has to say to jobs */
    int n_jobs;
    int draining;
    double started, drain_until;
    int64_t started_at; /* seconds since 1970 */
} server;

#endif
