/* apps/serve/loop.c - the loop and its workers: see loop.h. */
#include "apps/serve/loop.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WORKERS_MAX = 8 };

typedef struct queue {
    loop_task *first, **last;
} queue;

struct loop {
    struct event_base *base;
    struct event *wake;
    int fd;
    pthread_mutex_t lock; /* of both queues */
    pthread_cond_t more;
    queue posted, work;
    int ending, workers;
    pthread_t threads[WORKERS_MAX];
};

static void put(queue *q, loop_task *task) {
    task->next = NULL;
    *q->last = task;
    q->last = &task->next;
}

static loop_task *take(queue *q) {
    loop_task *task = q->first;
    if (task != NULL) {
        q->first = task->next;
        if (q->first == NULL) {
            q->last = &q->first;
        }
    }
    return task;
}

void loop_post(loop *l, loop_task *task) {
    pthread_mutex_lock(&l->lock);
    int first = l->posted.first == NULL;
    if (!task->queued) {
        task->queued = 1;
        put(&l->posted, task);
    }
    pthread_mutex_unlock(&l->lock);
    if (first) {
        ssize_t wrote = write(l->fd, &(uint64_t){1}, sizeof(uint64_t));
        (void)wrote; /* a counter that is full wakes as well */
    }
}

static void on_wake(evutil_socket_t fd, short what, void *user) {
    loop *l = user;
    uint64_t count;
    (void)what;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        loop_task *task = take(&l->posted);
        if (task != NULL) {
            task->queued = 0;
        }
        pthread_mutex_unlock(&l->lock);
        if (task == NULL) {
            return;
        }
        task->run(task->arg);
    }
}

void loop_work(loop *l, loop_task *task) {
    pthread_mutex_lock(&l->lock);
    put(&l->work, task);
    pthread_cond_signal(&l->more);
    pthread_mutex_unlock(&l->lock);
}

static void *worker(void *user) {
    loop *l = user;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        loop_task *task = take(&l->work);
        if (task != NULL) {
            pthread_mutex_unlock(&l->lock);
            task->run(task->arg);
            pthread_mutex_lock(&l->lock);
        } else if (l->ending) {
            break;
        } else {
            pthread_cond_wait(&l->more, &l->lock);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

loop *loop_new(int workers) {
    loop *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return NULL;
    }
    l->posted.last = &l->posted.first;
    l->work.last = &l->work.first;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->more, NULL);
    l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->base = event_base_new();
    if (l->fd >= 0 && l->base != NULL) {
        l->wake = event_new(l->base, l->fd, EV_READ | EV_PERSIST, on_wake, l);
    }
    if (l->wake == NULL || event_add(l->wake, NULL) != 0) {
        loop_free(l);
        return NULL;
    }
    for (int i = 0; i < workers && i < WORKERS_MAX; i++) {
        if (pthread_create(&l->threads[i], NULL, worker, l) != 0) {
            loop_free(l);
            return NULL;
        }
        l->workers++;
    }
    return l;
}

void loop_stop_workers(loop *l) {
    pthread_mutex_lock(&l->lock);
    l->ending = 1;
    pthread_cond_broadcast(&l->more);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->workers; i++) {
        pthread_join(l->threads[i], NULL);
    }
    l->workers = 0;
    on_wake(l->fd, 0, l);
}

void loop_free(loop *l) {
    if (l == NULL) {
        return;
    }
    loop_stop_workers(l);
    if (l->wake != NULL) {
        event_free(l->wake);
    }
    if (l->base != NULL) {
        event_base_free(l->base);
    }
    if (l->fd >= 0) {
        close(l->fd);
    }
    pthread_cond_destroy(&l->more);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

struct event_base *loop_base(const loop *l) {
    return l->base;
}
void loop_run(loop *l) { event_base_dispatch(l->base); }
void loop_end(loop *l) { event_base_loopbreak(l->base); }
