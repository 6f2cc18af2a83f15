/* backends/cpu/parallel.c - see parallel.h. */
#include "backends/cpu/parallel.h"

#include "backends/cpu/cpu.h"

void gw_cpu_parallel(int threads, int64_t n, void (*fn)(void *user, int64_t i), void *user) {
    gw_parallel_for(threads > 0 ? threads : gw_cpu_default_threads(), n, fn, user);
}
