/* apps/hub/hasher.c - see hasher.h. A lock guards all but the digest, which is the thread's from
 * the begin to the join. */
#include "apps/hub/hasher.h"

#include <stdio.h>
#include <string.h>

#include "core/base/os.h"

static void *compute(void *user) {
    hasher *h = user;
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        if (h->n == 0) {
            pthread_cond_wait(&h->filled, &h->lock);
            continue;
        }
        const void *data = h->queue[h->first].data;
        size_t bytes = h->queue[h->first].bytes;
        pthread_mutex_unlock(&h->lock);
        gw_digest_add(&h->digest, data, bytes);
        pthread_mutex_lock(&h->lock);
        h->first = (h->first + 1) % HASHER_QUEUE;
        h->n--;
        h->done += bytes;
        pthread_cond_signal(&h->read);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

void hasher_begin_none(hasher *h) {
    memset(h, 0, sizeof *h);
    h->digest.kind = -1;
    h->live = 1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->filled, NULL);
    pthread_cond_init(&h->read, NULL);
}

int hasher_begin(hasher *h, int is_git, uint64_t size) {
    hasher_begin_none(h);
    if (gw_digest_begin(&h->digest, is_git, size) != 0) {
        return -1;
    }
    h->threaded = gw_os_thread(&h->thread, compute, h) == 0; /* Ctrl-C ends the other one's wait */
    return 0;
}

void hasher_add(hasher *h, const void *data, size_t bytes) {
    if (!h->threaded) {
        gw_digest_add(&h->digest, data, bytes);
        h->added += bytes;
        h->done += bytes;
        return;
    }
    pthread_mutex_lock(&h->lock);
    while (h->n == HASHER_QUEUE) {
        pthread_cond_wait(&h->read, &h->lock);
    }
    size_t at = (h->first + h->n) % HASHER_QUEUE;
    h->queue[at].data = data;
    h->queue[at].bytes = bytes;
    h->n++;
    h->added += bytes;
    pthread_cond_signal(&h->filled);
    pthread_mutex_unlock(&h->lock);
}

uint64_t hasher_done(hasher *h, uint64_t least) {
    if (!h->threaded) {
        return h->done;
    }
    pthread_mutex_lock(&h->lock);
    while (h->done < least && h->done < h->added) {
        pthread_cond_wait(&h->read, &h->lock);
    }
    uint64_t done = h->done;
    pthread_mutex_unlock(&h->lock);
    return done;
}

static void join(hasher *h) {
    if (h->threaded) {
        pthread_mutex_lock(&h->lock);
        h->stop = 1;
        pthread_cond_signal(&h->filled);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->thread, NULL);
        h->threaded = 0;
    }
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->filled);
    pthread_cond_destroy(&h->read);
    h->live = 0;
}

void hasher_end(hasher *h, char hex[65]) {
    (void)hasher_done(h, UINT64_MAX);
    join(h);
    unsigned char raw[64];
    const int bytes = gw_digest_end(&h->digest, raw);
    for (int i = 0; i < bytes; i++) {
        snprintf(hex + 2 * (size_t)i, 3, "%02x", raw[i]);
    }
}

void hasher_drop(hasher *h) {
    if (h->live) {
        join(h);
        gw_digest_drop(&h->digest);
    }
}
