/* apps/serve/loop.h - one thread for sockets and timers (libevent's), a few workers beside it, and
 * how work gets from one to the other. A task is a part of what it works on, so that handing it
 * over takes no memory and cannot fail. */
#ifndef GW_APPS_SERVE_LOOP_H
#define GW_APPS_SERVE_LOOP_H

#include <event2/event.h>

typedef struct loop_task {
    void (*run)(void *arg);
    void *arg;
    struct loop_task *next;
    int queued; /* loop_post: it has not begun to run yet */
} loop_task;

typedef struct loop loop;

/* workers: threads beside the loop's. NULL: no memory or no descriptors. */
loop *loop_new(int workers);
/* Waits for the workers' tasks; what is posted to the loop then is run as well. */
void loop_stop_workers(loop *l);
void loop_free(loop *l);
struct event_base *loop_base(const loop *l);
/* Until loop_end. */
void loop_run(loop *l);
void loop_end(loop *l);
/* Run the task on the loop's thread; any thread. A task that still waits to be run is not queued
 * twice. */
void loop_post(loop *l, loop_task *task);
/* Run the task on a worker; any thread. Tasks begin in the order they came. */
void loop_work(loop *l, loop_task *task);

#endif
