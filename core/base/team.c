/* core/base/team.c - see team.h. A worker and its caller wait for each other's events: a word to
 * spin on, with a lock and a condition for who sleeps.
 */
#include "core/base/team.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/nodes.h"
#include "core/base/os.h"
#include "core/base/os_threads.h"

/* A thread starts so many others, each of which starts as many: the last one is not late. */
enum { FAN = 8 };
/* A larger stack than some C libraries give a thread. */
enum { STACK_BYTES = 2 << 20 };

/* Longer than the work of the caller's thread between two passes of a model. */
static const double spin_seconds = 0.001;

enum { CLEAR, ASLEEP, SET }; /* states of an event; ASLEEP: clear, and waited for in sleep */

/* For one thread that waits, and is reset when it has. In cache lines of its own. */
typedef struct event {
    char before[64];
    _Atomic int state;
    char after[64];
    pthread_mutex_t lock;
    pthread_cond_t is_set;
} event;

typedef struct worker {
    event start;
    struct pool *pool;
    int id;
    int team, node; /* of which size the last one was, and where it stays since; 0, -1: nowhere */
} worker;

typedef struct pool {
    event end;        /* all workers have ended their share */
    _Atomic int busy; /* workers that have not */
    char after_busy[64];
    gw_team_fn fn; /* what is being run, by n threads */
    void *user;
    int n;
    int started;                   /* workers 1..started are there */
    worker *workers[GW_TEAM_MOST]; /* [0] is not used */
    struct pool *next;
} pool;

static _Thread_local int inside; /* of a team: what this thread runs */

/* Pools that no caller has, the last one used first: its workers may still spin. Never freed. */
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static pool *idle;

/* ---- events -----------------------------------------------------------------------------------
 */

static void make_event(event *e) {
    atomic_init(&e->state, CLEAR);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->is_set, NULL);
}

static void set_event(event *e) {
    if (atomic_exchange_explicit(&e->state, SET, memory_order_acq_rel) == ASLEEP) {
        pthread_mutex_lock(&e->lock);
        pthread_cond_signal(&e->is_set);
        pthread_mutex_unlock(&e->lock);
    }
}

static int is_set(event *e) { return atomic_load_explicit(&e->state, memory_order_acquire) == SET; }

static void sleep_until(event *e) {
    int clear = CLEAR;
    pthread_mutex_lock(&e->lock);
    atomic_compare_exchange_strong(&e->state, &clear, ASLEEP);
    while (!is_set(e)) {
        pthread_cond_wait(&e->is_set, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
}

static void wait_event(event *e, int spins) {
    const double end = spins ? gw_seconds_now() + spin_seconds : 0.0;
    for (unsigned i = 1; spins && !is_set(e); i++) {
        gw_spin_pause();
        if (i % 64 == 0 && gw_seconds_now() > end) {
            break;
        }
    }
    if (!is_set(e)) {
        sleep_until(e);
    }
    atomic_store_explicit(&e->state, CLEAR, memory_order_relaxed);
}

/* ---- workers ----------------------------------------------------------------------------------
 */

/* More threads than processors do not spin: what they wait for may need theirs. */
static int may_spin(int n) {
    static _Atomic int processors; /* read once: it is a call of the system */
    int have = atomic_load_explicit(&processors, memory_order_relaxed);
    if (have == 0) {
        have = gw_team_processors();
        atomic_store_explicit(&processors, have, memory_order_relaxed);
    }
    return n <= have;
}

/* NULL: one node. Read once, by a thread that is bound to none, and never freed. */
static const char *nodes_at = "/sys/devices/system/node";
static gw_nodes *nodes;
static void read_nodes(void) { nodes = gw_nodes_read(nodes_at); }

/* A worker stays on the node that its share of a team of so many belongs to. */
static void settle(worker *w, int team) {
    if (nodes == NULL || w->team == team) {
        return;
    }
    int node = gw_nodes_of(nodes, w->id, team);
    w->team = team;
    if (node != w->node) {
        w->node = node;
        gw_nodes_bind(nodes, node);
    }
}

static void start_others(pool *p, int id) {
    for (int i = id * FAN + 1; i <= id * FAN + FAN && i < p->n; i++) {
        set_event(&p->workers[i]->start);
    }
}

static void *work(void *user) {
    worker *me = user;
    pool *p = me->pool;
    int spins = 0;
    inside = 1;
    for (;;) {
        wait_event(&p->workers[me->id]->start, spins);
        start_others(p, me->id);
        spins = may_spin(p->n); /* before it is bound: it counts processors */
        settle(me, p->n);
        p->fn(p->user, me->id, p->n);
        if (atomic_fetch_sub_explicit(&p->busy, 1, memory_order_acq_rel) == 1) {
            set_event(&p->end);
        }
    }
    return NULL;
}

/* A worker has no signals but those of its own faults: Ctrl-C is the main thread's. */
static int start_thread(worker *w) {
    pthread_t thread;
    pthread_attr_t attributes;
    size_t stack = 0;
    int error = pthread_attr_init(&attributes);
    if (error != 0) {
        return error;
    }
    if (pthread_attr_getstacksize(&attributes, &stack) == 0 && stack < STACK_BYTES) {
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
#if !defined(_WIN32)
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t none, before;
    sigfillset(&none);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        sigdelset(&none, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &none, &before);
#endif
    error = pthread_create(&thread, &attributes, work, w);
#if !defined(_WIN32)
    pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
    pthread_attr_destroy(&attributes);
    return error;
}

static int start_worker(pool *p) {
    worker *w = malloc(sizeof *w);
    if (w == NULL) {
        return ENOMEM;
    }
    make_event(&w->start);
    w->pool = p;
    w->id = p->started + 1;
    w->team = 0;
    w->node = -1;
    p->workers[w->id] = w;
    int error = start_thread(w);
    if (error != 0) {
        free(w);
        return error;
    }
    p->started++;
    return 0;
}

/* ---- pools ------------------------------------------------------------------------------------
 */

#if !defined(_WIN32)
static void before_fork(void) { pthread_mutex_lock(&idle_lock); }
static void after_fork(void) { pthread_mutex_unlock(&idle_lock); }
/* Workers are not there, and what they held at that moment stays as it was: all is made anew. */
static void in_child(void) {
    for (pool *p = idle; p != NULL; p = p->next) {
        for (; p->started > 0; p->started--) {
            free(p->workers[p->started]);
        }
        make_event(&p->end);
    }
    pthread_mutex_unlock(&idle_lock);
}
static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }
#else
static void watch_forks(void) {}
#endif

static pool *make_pool(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT, read = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_once(&read, read_nodes);
    pool *p = malloc(sizeof *p);
    if (p != NULL) {
        make_event(&p->end);
        atomic_init(&p->busy, 0);
        p->started = 0;
    }
    return p;
}

static pool *take_pool(int threads, int *error) {
    pthread_mutex_lock(&idle_lock);
    pool **best = &idle; /* the first that is large enough, or else the largest */
    for (pool **at = &idle; *at != NULL && (*best)->started < threads - 1; at = &(*at)->next) {
        best = (*at)->started > (*best)->started ? at : best;
    }
    pool *p = *best;
    if (p != NULL) {
        *best = p->next;
    }
    pthread_mutex_unlock(&idle_lock);
    p = p == NULL ? make_pool() : p;
    *error = p == NULL ? ENOMEM : 0;
    while (p != NULL && *error == 0 && p->started < threads - 1) {
        *error = start_worker(p);
    }
    return p;
}

static void give_back(pool *p) {
    pthread_mutex_lock(&idle_lock);
    p->next = idle;
    idle = p;
    pthread_mutex_unlock(&idle_lock);
}

int gw_team_prepare(int threads, int *error) {
    *error = 0;
    threads = threads < GW_TEAM_MOST ? threads : GW_TEAM_MOST;
    if (threads < 2) {
        return threads;
    }
    pool *p = take_pool(threads, error);
    int have = p == NULL ? 1 : p->started + 1;
    if (p != NULL) {
        give_back(p);
    }
    return have < threads ? have : threads;
}

static void run_with(pool *p, gw_team_fn fn, void *user) {
    p->fn = fn;
    p->user = user;
    atomic_store_explicit(&p->busy, p->n - 1, memory_order_relaxed);
    inside = 1;
    start_others(p, 0);
    fn(user, 0, p->n);
    inside = 0;
    wait_event(&p->end, may_spin(p->n));
}

void gw_team_run(int threads, gw_team_fn fn, void *user) {
    int error;
    threads = threads < GW_TEAM_MOST ? threads : GW_TEAM_MOST;
    pool *p = threads < 2 || inside ? NULL : take_pool(threads, &error);
    if (p != NULL) {
        p->n = p->started + 1 < threads ? p->started + 1 : threads;
    }
    if (p != NULL && p->n > 1) {
        run_with(p, fn, user);
    } else {
        fn(user, 0, 1);
    }
    if (p != NULL) {
        give_back(p);
    }
}

/* ---- loops ------------------------------------------------------------------------------------
 */

typedef struct loop {
    gw_each_fn fn;
    void *user;
    int64_t n;
    _Atomic int64_t next;
} loop;

static void run_loop(void *user, int id, int n) {
    loop *l = user;
    (void)id;
    (void)n;
    for (int64_t i; (i = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed)) < l->n;) {
        l->fn(l->user, i);
    }
}

void gw_parallel_for(int threads, int64_t n, gw_each_fn fn, void *user) {
    int wish = threads > 0 ? threads : gw_team_wish();
    int all = wish > 0 ? wish : gw_team_processors();
    loop l = {.fn = fn, .user = user, .n = n};
    gw_team_run(n < all ? (int)n : all, run_loop, &l);
}

/* ---- the machine ------------------------------------------------------------------------------
 */

int gw_team_wish(void) {
    const char *wish = getenv("OMP_NUM_THREADS");
    char *end;
    long n = wish != NULL ? strtol(wish, &end, 10) : 0; /* of "4,2" the first counts */
    return n > 0 && n <= GW_TEAM_MOST && end != wish ? (int)n : 0;
}

int gw_team_processors(void) {
#if defined(__linux__)
    cpu_set_t set; /* a machine with more processors than it holds: all that are online */
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return CPU_COUNT(&set);
    }
#endif
#if defined(_WIN32)
    int online = pthread_num_processors_np(); /* by the process's affinity */
#else
    long online = sysconf(_SC_NPROCESSORS_ONLN);
#endif
    return online < 1 ? 1 : online > GW_TEAM_MOST ? GW_TEAM_MOST : (int)online;
}

/* ---- barriers ---------------------------------------------------------------------------------
 */

void gw_barrier_wait(gw_barrier *b, unsigned team, int spins) {
    if (team == 1) {
        return;
    }
    unsigned phase = atomic_load_explicit(&b->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&b->waiting, 1, memory_order_acq_rel) == team - 1) {
        atomic_store_explicit(&b->waiting, 0, memory_order_relaxed);
        atomic_store_explicit(&b->phase, phase + 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&b->phase, memory_order_acquire) == phase; i++) {
        if (i < spins) {
            gw_spin_pause();
        } else {
            sched_yield();
        }
    }
}
