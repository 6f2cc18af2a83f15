/* apps/serve/account.c - see account.h. */
#include "apps/serve/account.h"

#include <stdlib.h>

#include "core/base/os_threads.h"

/* Clients that hold something; those that find no place share one. */
enum { CLIENTS = 4096, PROBES = 16 };

typedef struct client {
    uint64_t number, bytes;
    uint32_t holds;
} client;

struct account {
    pthread_mutex_t lock;
    uint64_t total, held, held_short;
    client clients[CLIENTS + 1]; /* the last: those that share one */
};

account *account_new(uint64_t total) {
    account *a = calloc(1, sizeof *a);
    if (a != NULL) {
        a->total = total;
        pthread_mutex_init(&a->lock, NULL);
    }
    return a;
}

void account_free(account *a) {
    if (a != NULL) {
        pthread_mutex_destroy(&a->lock);
        free(a);
    }
}

/* The client's row; an empty one where it has none. A row stays where it is while somebody holds
 * something there, and the hold knows it. */
static uint32_t find(const account *a, uint64_t number) {
    uint32_t empty = CLIENTS;
    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t row = (uint32_t)((number + i) % CLIENTS);
        const client *c = &a->clients[row];
        if (c->holds > 0 && c->number == number) {
            return row;
        }
        empty = c->holds == 0 && empty == CLIENTS ? row : empty;
    }
    return empty;
}

/* Long ones: three quarters of all, half of it for one client. */
static int has_room(const account *a, const client *c, const account_hold *h, uint64_t bytes) {
    uint64_t more = bytes - h->bytes;
    if (bytes <= ACCOUNT_SHORT) {
        return a->held_short + more <= a->total / 4;
    }
    uint64_t was = h->bytes <= ACCOUNT_SHORT ? 0 : h->bytes; /* it leaves the short ones */
    uint64_t all = a->held - a->held_short - was + bytes;
    return all <= a->total / 4 * 3 && c->bytes + more <= a->total / 2;
}

int account_set(account *a, account_hold *h, uint64_t bytes) {
    int code = 0;
    pthread_mutex_lock(&a->lock);
    uint32_t row = h->bytes > 0 ? h->row : find(a, h->client);
    client *c = &a->clients[row];
    if (bytes > h->bytes && !has_room(a, c, h, bytes)) {
        code = -1;
    } else {
        a->held += bytes - h->bytes;
        c->bytes += bytes - h->bytes;
        a->held_short += bytes <= ACCOUNT_SHORT ? bytes : 0;
        a->held_short -= h->bytes <= ACCOUNT_SHORT ? h->bytes : 0;
        c->number = c->holds == 0 ? h->client : c->number;
        c->holds += h->bytes == 0 && bytes > 0;
        c->holds -= h->bytes > 0 && bytes == 0;
        h->bytes = bytes;
        h->row = row;
    }
    pthread_mutex_unlock(&a->lock);
    return code;
}

uint64_t account_held(account *a) {
    pthread_mutex_lock(&a->lock);
    uint64_t held = a->held;
    pthread_mutex_unlock(&a->lock);
    return held;
}
