/* apps/serve/loop.c - the loop and its workers: see loop.h. */
#include "apps/serve/loop.h"

#include <stdlib.h>

#include "core/base/os.h"
#include "core/base/os_net.h"
#include "core/base/os_threads.h"

enum { WORKERS_MAX = 8, KINDS = 2 };

typedef struct queue {
    loop_task *first, **last;
} queue;

struct loop {
    struct event_base *base;
    struct event *wake;
    evutil_socket_t pair[2]; /* a byte in [1] wakes the loop, which reads [0]; -1: none */
    pthread_mutex_t lock;    /* of all queues */
    pthread_cond_t more[KINDS], ended;
    queue posted, work[KINDS];
    uint64_t last; /* client of the long work that began last */
    int ending, workers, running;
    pthread_t threads[KINDS * WORKERS_MAX];
};

/* What a worker begins with: its own, freed by it. */
typedef struct worker_start {
    loop *l;
    loop_work_kind kind;
} worker_start;

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
        (void)send(l->pair[1], "", 1, 0); /* a buffer that is full wakes as well */
    }
}

static void on_wake(evutil_socket_t fd, short what, void *user) {
    loop *l = user;
    char bytes[64];
    (void)what;
    while (recv(fd, bytes, sizeof bytes, 0) == (int)sizeof bytes) {
    }
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

void loop_work(loop *l, loop_work_kind kind, loop_task *task) {
    pthread_mutex_lock(&l->lock);
    put(&l->work[kind], task);
    pthread_cond_signal(&l->more[kind]);
    pthread_mutex_unlock(&l->lock);
}

/* The first of another client than the last one's, else the first. */
static loop_task *take_in_turn(loop *l, queue *q) {
    loop_task **at = &q->first;
    while (*at != NULL && (*at)->client == l->last) {
        at = &(*at)->next;
    }
    if (*at == NULL || *at == q->first) {
        loop_task *task = take(q);
        l->last = task != NULL ? task->client : l->last;
        return task;
    }
    loop_task *task = *at;
    *at = task->next;
    if (q->last == &task->next) {
        q->last = at;
    }
    l->last = task->client;
    return task;
}

static void *worker(void *user) {
    worker_start start = *(worker_start *)user;
    loop *l = start.l;
    queue *q = &l->work[start.kind];
    free(user);
    if (start.kind == LOOP_LONG) {
        gw_os_yield_priority();
    }
    pthread_mutex_lock(&l->lock);
    for (;;) {
        loop_task *task = start.kind == LOOP_LONG ? take_in_turn(l, q) : take(q);
        if (task != NULL) {
            pthread_mutex_unlock(&l->lock);
            task->run(task->arg);
            pthread_mutex_lock(&l->lock);
        } else if (l->ending) {
            break;
        } else {
            pthread_cond_wait(&l->more[start.kind], &l->lock);
        }
    }
    l->running--;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static int start_worker(loop *l, loop_work_kind kind) {
    worker_start *start = malloc(sizeof *start);
    if (start == NULL) {
        return -1;
    }
    *start = (worker_start){l, kind};
    pthread_mutex_lock(&l->lock);
    int code = pthread_create(&l->threads[l->workers], NULL, worker, start) == 0 ? 0 : -1;
    l->workers += code == 0;
    l->running += code == 0;
    pthread_mutex_unlock(&l->lock);
    if (code != 0) {
        free(start);
    }
    return code;
}

static int open_pair(evutil_socket_t pair[2]) {
#if defined(_WIN32)
    int family = AF_INET; /* libevent makes it of two sockets of this machine */
#else
    int family = AF_UNIX;
#endif
    if (evutil_socketpair(family, SOCK_STREAM, 0, pair) != 0) {
        pair[0] = pair[1] = -1;
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        (void)evutil_make_socket_nonblocking(pair[i]);
        (void)evutil_make_socket_closeonexec(pair[i]);
    }
    return 0;
}

loop *loop_new(int workers) {
    loop *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return NULL;
    }
    l->posted.last = &l->posted.first;
    pthread_mutex_init(&l->lock, NULL);
    gw_os_cond(&l->ended);
    for (int i = 0; i < KINDS; i++) {
        l->work[i].last = &l->work[i].first;
        pthread_cond_init(&l->more[i], NULL);
    }
    l->base = event_base_new();
    if (open_pair(l->pair) == 0 && l->base != NULL) {
        l->wake = event_new(l->base, l->pair[0], EV_READ | EV_PERSIST, on_wake, l);
    }
    if (l->wake == NULL || event_add(l->wake, NULL) != 0) {
        loop_free(l);
        return NULL;
    }
    for (int i = 0; i < KINDS * (workers < WORKERS_MAX ? workers : WORKERS_MAX); i++) {
        if (start_worker(l, i % KINDS == 0 ? LOOP_SHORT : LOOP_LONG) != 0) {
            loop_stop_workers(l, 60);
            loop_free(l);
            return NULL;
        }
    }
    return l;
}

int loop_stop_workers(loop *l, double seconds) {
    const struct timespec until = gw_os_deadline(seconds);
    int late = 0;
    pthread_mutex_lock(&l->lock);
    l->ending = 1;
    for (int i = 0; i < KINDS; i++) {
        pthread_cond_broadcast(&l->more[i]);
    }
    while (l->running > 0 && !late) {
        late = pthread_cond_timedwait(&l->ended, &l->lock, &until) != 0;
    }
    int left = l->running;
    pthread_mutex_unlock(&l->lock);
    if (left > 0) {
        return -1;
    }
    for (int i = 0; i < l->workers; i++) {
        pthread_join(l->threads[i], NULL);
    }
    l->workers = 0;
    on_wake(l->pair[0], 0, l);
    return 0;
}

void loop_free(loop *l) {
    if (l == NULL) {
        return;
    }
    if (l->wake != NULL) {
        event_free(l->wake);
    }
    if (l->base != NULL) {
        event_base_free(l->base);
    }
    for (int i = 0; i < 2; i++) {
        if (l->pair[i] != -1) {
            evutil_closesocket(l->pair[i]);
        }
    }
    for (int i = 0; i < KINDS; i++) {
        pthread_cond_destroy(&l->more[i]);
    }
    pthread_cond_destroy(&l->ended);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

struct event_base *loop_base(const loop *l) {
    return l->base;
}
void loop_run(loop *l) { event_base_dispatch(l->base); }
void loop_end(loop *l) { event_base_loopbreak(l->base); }
