/* backends/cpu/parallel.h - pieces of work that need no order, shared out to threads. */
#ifndef GW_CPU_PARALLEL_H
#define GW_CPU_PARALLEL_H

#include <stdint.h>

/* fn(user, i) once for every i < n, by `threads` threads (0: as many as a model would get). */
void gw_cpu_parallel(int threads, int64_t n, void (*fn)(void *user, int64_t i), void *user);

#endif
