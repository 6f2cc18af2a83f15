/* core/base/team.h - threads that work together: resident workers, a barrier, loops shared out.
 *
 * Workers are started when they are first needed and stay. A caller has workers of its own while
 * it runs, so any number of threads may run teams at once. Idle workers spin for about a
 * millisecond, then sleep. On a machine with several NUMA nodes a worker stays on one (nodes.h).
 * What runs inside of a team and wants a team runs alone, in its place. After fork() the child
 * starts workers of its own.
 */
#ifndef GW_BASE_TEAM_H
#define GW_BASE_TEAM_H

#include <stdint.h>

enum { GW_TEAM_MOST = 1024 };

/* fn once on each of `threads` threads at the same time, the caller's being id 0; back when all
 * have returned. `team`: how many there are, fewer than `threads` when no more can be started. */
typedef void (*gw_team_fn)(void *user, int id, int team);
void gw_team_run(int threads, gw_team_fn fn, void *user);

/* fn once for every i in [0, n), in any order; threads 0: as many as there are processors. */
typedef void (*gw_each_fn)(void *user, int64_t i);
void gw_parallel_for(int threads, int64_t n, gw_each_fn fn, void *user);

/* Starts workers ahead. Returns how many threads a team can have: `threads`, or fewer, and *error
 * says why (errno's). */
int gw_team_prepare(int threads, int *error);

int gw_team_wish(void);       /* OMP_NUM_THREADS; 0: it is not set, or no number */
int gw_team_processors(void); /* that this process may run on */

/* Where all threads of a team meet. Zeroed before its first use. */
typedef struct gw_barrier {
    _Alignas(64) _Atomic unsigned waiting;
    _Alignas(64) _Atomic unsigned phase;
} gw_barrier;

/* Everything a thread wrote before the barrier is seen by all after it. Waiting spins `spins`
 * times, then gives the processor away: a team larger than the machine still moves. */
void gw_barrier_wait(gw_barrier *b, unsigned team, int spins);

static inline void gw_spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
