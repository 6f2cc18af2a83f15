/* apps/serve/loop.h - one thread for sockets and timers (libevent's), a few workers, and
 * how work gets from one to the other. A task is a part of what it works on, so that handing it
 * over takes no memory and cannot fail. */
#ifndef GW_APPS_SERVE_LOOP_H
#define GW_APPS_SERVE_LOOP_H

#include <event2/event.h>
#include <stdint.h>

typedef struct loop_task {
    void (*run)(void *arg);
    void *arg;
    uint64_t client; /* of long work: clients take turns */
    struct loop_task *next;
    int queued; /* loop_post: it has not begun to run yet */
} loop_task;

typedef struct loop loop;

/* What takes long waits for what takes long, and for nothing else. */
typedef enum loop_work_kind { LOOP_SHORT, LOOP_LONG } loop_work_kind;

/* workers: threads besides the loop's, for short work and as many for long. NULL: no memory, no
 * threads or no descriptors. */
loop *loop_new(int workers);
/* Waits for the workers' tasks, at most so many seconds; what is posted to the loop then is run as
 * well. -1: some run still, and nothing that they use may be freed. */
int loop_stop_workers(loop *l, double seconds);
void loop_free(loop *l); /* once the workers have stopped */
struct event_base *loop_base(const loop *l);
/* Until loop_end. */
void loop_run(loop *l);
void loop_end(loop *l);
/* Run the task on the loop's thread; any thread. A task that still waits to be run is not queued
 * twice. */
void loop_post(loop *l, loop_task *task);
/* Run the task on a worker; any thread. Short tasks begin in the order they came, long ones too
 * but for the turns of their clients. */
void loop_work(loop *l, loop_work_kind kind, loop_task *task);

#endif
