/* core/base/os_threads.h - POSIX threads; mingw-w64 has them on Windows. */
#ifndef GW_BASE_OS_THREADS_H
#define GW_BASE_OS_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

/* Starts a thread that takes no signal but that of lost pages, so that Ctrl-C interrupts a wait of
 * the others. 0, or an error number. */
static inline int gw_os_thread(pthread_t *thread, void *(*run)(void *), void *user) {
#if defined(_WIN32)
    return pthread_create(thread, NULL, run, user);
#else
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
#endif
}

/* A condition that is waited for until a deadline of gw_os_deadline: by a clock that is never set
 * back, where conditions can have one. */
static inline void gw_os_cond(pthread_cond_t *condition) {
#if defined(__linux__)
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &clock);
    pthread_condattr_destroy(&clock);
#else
    pthread_cond_init(condition, NULL);
#endif
}

/* So many seconds from now. */
static inline struct timespec gw_os_deadline(double seconds) {
    struct timespec t;
#if defined(__linux__)
    clock_gettime(CLOCK_MONOTONIC, &t);
#else
    clock_gettime(CLOCK_REALTIME, &t);
#endif
    t.tv_sec += (time_t)seconds;
    t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    t.tv_sec += t.tv_nsec >= 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

#endif
