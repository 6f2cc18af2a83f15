/* apps/serve/account.h - what requests hold in memory, by client, from the first byte that is read
 * to the end of the answer. One sum of all; no client has more than half of it, and short requests
 * have a share that long ones cannot take. Any thread. */
#ifndef GW_APPS_SERVE_ACCOUNT_H
#define GW_APPS_SERVE_ACCOUNT_H

#include <stdint.h>

typedef struct account account;

/* What one request holds. Begin with zeros and the client's number. */
typedef struct account_hold {
    uint64_t client, bytes;
    uint32_t row; /* account.c's */
} account_hold;

enum {
    ACCOUNT_SHORT = 1 << 18,    /* bytes: what holds no more is short */
    ACCOUNT_REQUEST = 224 << 20 /* one request holds no more */
};

/* total: bytes of all. NULL: no memory. */
account *account_new(uint64_t total);
void account_free(account *a); /* accepts NULL */
/* From now on it holds so many bytes. -1: there is no room for more, and nothing has changed; less
 * is always taken. */
int account_set(account *a, account_hold *hold, uint64_t bytes);
uint64_t account_held(account *a);

#endif
