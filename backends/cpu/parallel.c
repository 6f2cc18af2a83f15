/* backends/cpu/parallel.c - see parallel.h. */
#include "backends/cpu/parallel.h"

#include "backends/cpu/cpu.h"

void gw_cpu_parallel(int threads, int64_t n, void (*fn)(void *user, int64_t i), void *user) {
    int team = threads > 0 ? threads : gw_cpu_default_threads();
    team = n < team ? (int)n : team;
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
    for (int64_t i = 0; i < n; i++) {
        fn(user, i);
    }
}
