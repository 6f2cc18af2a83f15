/* apps/hub/hasher.h - the digest of a file as its bytes come, in a thread of its own: bytes are
 * handed over, not copied, and stay where they are until they were read. One thread calls. */
#ifndef GW_HUB_HASHER_H
#define GW_HUB_HASHER_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/digest.h"
#include "core/base/os_threads.h"

enum { HASHER_QUEUE = 8 }; /* parts that may wait; one more makes hasher_add wait */

typedef struct hasher {
    gw_digest digest;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled, read;
    struct {
        const void *data;
        size_t bytes;
    } queue[HASHER_QUEUE]; /* a ring: [first, first + n) */
    size_t first, n;
    uint64_t added, done; /* bytes, since hasher_begin */
    int live, threaded, stop;
} hasher;

/* is_git: see gw_digest_begin. 0; -1: this machine cannot compute it: bytes are counted alone.
 * Where no thread is to be had, hasher_add computes. Ends with hasher_end or hasher_drop. */
int hasher_begin(hasher *h, int is_git, uint64_t size);
void hasher_begin_none(hasher *h); /* bytes are counted alone */

/* data [bytes] must not change or be freed before hasher_done says so. */
void hasher_add(hasher *h, const void *data, size_t bytes);

/* Bytes, from the first one added, that were read and are no longer needed; waits until there are
 * `least` of those that were added. */
uint64_t hasher_done(hasher *h, uint64_t least);

void hasher_end(hasher *h, char hex[65]); /* waits for all: lower-case digits and NUL */
void hasher_drop(hasher *h);              /* what waits is not read; once more: nothing */

#endif
