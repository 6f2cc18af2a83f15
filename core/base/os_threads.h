/* core/base/os_threads.h - POSIX threads; mingw-w64 has them on Windows. */
#ifndef GW_BASE_OS_THREADS_H
#define GW_BASE_OS_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>

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

#endif
