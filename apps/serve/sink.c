/* apps/serve/sink.c - see sink.h. */
#include "apps/serve/sink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/os_threads.h"

enum { ROOM = 1 << 18, LAST_MILLISECONDS = 500, AGAIN_MILLISECONDS = 100 };

struct sink {
    int fd;
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    char *next, *now; /* what is gathered, what is being written: [ROOM] each */
    size_t n_next;
    int ending, ended;
    uint64_t lost;
    pthread_t thread;
};

static uint64_t lines_of(const char *text, size_t n) {
    uint64_t lines = 0;
    for (size_t i = 0; i < n; i++) {
        lines += text[i] == '\n';
    }
    return lines;
}

/* 0: all of it was written. A descriptor that does not block and is full is asked again. */
static size_t write_all(const sink *s, const char *text, size_t n) {
    while (n > 0) {
        ssize_t wrote = write(s->fd, text, n);
        if (wrote < 0 && errno == EAGAIN) {
            (void)gw_os_writable(s->fd, AGAIN_MILLISECONDS);
        } else if (wrote < 0 && errno != EINTR) {
            break;
        }
        text += wrote > 0 ? wrote : 0;
        n -= wrote > 0 ? (size_t)wrote : 0;
    }
    return n;
}

static void *writer(void *user) {
    sink *s = user;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->n_next == 0 && !s->ending) {
            pthread_cond_wait(&s->more, &s->lock);
        }
        if (s->n_next == 0) {
            break;
        }
        size_t n = s->n_next;
        char *text = s->next;
        s->next = s->now;
        s->now = text;
        s->n_next = 0;
        pthread_mutex_unlock(&s->lock);
        size_t left = write_all(s, text, n);
        pthread_mutex_lock(&s->lock);
        s->lost += lines_of(text + (n - left), left);
    }
    s->ended = 1;
    pthread_cond_signal(&s->done);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

sink *sink_new(int fd) {
    sink *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->fd = fd;
    s->next = malloc(ROOM);
    s->now = malloc(ROOM);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    gw_os_cond(&s->done);
    if (s->next == NULL || s->now == NULL || pthread_create(&s->thread, NULL, writer, s) != 0) {
        free(s->next);
        free(s->now);
        free(s);
        return NULL;
    }
    return s;
}

int sink_put(sink *s, const char *text, size_t bytes) {
    pthread_mutex_lock(&s->lock);
    int fits = bytes <= ROOM - s->n_next;
    if (fits) {
        memcpy(s->next + s->n_next, text, bytes);
        s->n_next += bytes;
        pthread_cond_signal(&s->more);
    } else {
        s->lost += lines_of(text, bytes);
    }
    pthread_mutex_unlock(&s->lock);
    return fits;
}

uint64_t sink_lost(sink *s) {
    pthread_mutex_lock(&s->lock);
    uint64_t lost = s->lost;
    pthread_mutex_unlock(&s->lock);
    return lost;
}

void sink_free(sink *s) {
    int late = 0;
    if (s == NULL) {
        return;
    }
    const struct timespec until = gw_os_deadline(LAST_MILLISECONDS * 1e-3);
    pthread_mutex_lock(&s->lock);
    s->ending = 1;
    pthread_cond_signal(&s->more);
    while (!s->ended && !late) {
        late = pthread_cond_timedwait(&s->done, &s->lock, &until) != 0;
    }
    int ended = s->ended;
    pthread_mutex_unlock(&s->lock);
    if (!ended) {
        pthread_detach(s->thread);
        return;
    }
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->more);
    pthread_cond_destroy(&s->done);
    free(s->next);
    free(s->now);
    free(s);
}
