/* tests/test_team.c - the thread team: every thread once, loops whole, callers at the same time,
 * teams inside of teams, fork, threads that cannot be started, signals, sleep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/team.h"

static atomic_int threads_left = -1; /* that may be started; -1: any number */
static atomic_int started;

static int create_or_refuse(pthread_t *thread, const pthread_attr_t *attributes,
                            void *(*run)(void *), void *user) {
    int left = atomic_load(&threads_left); /* not -1 in one test only, which has one caller */
    if (left == 0) {
        return EAGAIN;
    }
    if (left > 0) {
        atomic_store(&threads_left, left - 1);
    }
    atomic_fetch_add(&started, 1);
    return pthread_create(thread, attributes, run, user);
}

#define pthread_create create_or_refuse
#include "core/base/team.c"
#undef pthread_create

enum { MOST = 16, TURNS = 3000 };

typedef struct count {
    _Atomic int calls[MOST], team, wrong;
    gw_barrier barrier;
} count;

static void count_call(void *user, int id, int n) {
    count *c = user;
    atomic_fetch_add(&c->calls[id], 1);
    atomic_store(&c->team, n);
    gw_barrier_wait(&c->barrier, (unsigned)n, 100);
    for (int i = 0; i < n; i++) { /* all have been here */
        atomic_fetch_add(&c->wrong, atomic_load(&c->calls[i]) != 1);
    }
}

/* How many there were; each was there once. */
static int run_counted(int threads) {
    count c = {.team = 0};
    gw_team_run(threads, count_call, &c);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(atomic_load(&c.calls[i]), i < atomic_load(&c.team));
    }
    assert_int_equal(atomic_load(&c.wrong), 0);
    return atomic_load(&c.team);
}

static void test_sizes(void **state) {
    (void)state;
    for (int pass = 0; pass < 3; pass++) {
        for (int n = 1; n <= MOST; n++) {
            assert_int_equal(run_counted(n), n);
            assert_int_equal(run_counted(MOST + 1 - n), MOST + 1 - n);
        }
    }
    assert_int_equal(run_counted(0), 1);
    assert_int_equal(run_counted(-3), 1);
    assert_int_equal(atomic_load(&started), MOST - 1); /* one pool for all of that */
}

static void add_index(void *user, int64_t i) {
    _Atomic int64_t *sum = user;
    atomic_fetch_add(sum, i * i + 1);
}

static void check_loop(int threads, int64_t n) {
    _Atomic int64_t sum = 0;
    gw_parallel_for(threads, n, add_index, &sum);
    assert_int_equal(atomic_load(&sum), n > 0 ? (n - 1) * n * (2 * n - 1) / 6 + n : 0);
}

static void test_loops(void **state) {
    (void)state;
    static const int64_t lengths[] = {-1, 0, 1, 2, 3, 15, 16, 17, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int threads = 0; threads <= MOST; threads += 3) {
            check_loop(threads, lengths[i]);
        }
    }
    for (int i = 0; i < TURNS; i++) { /* short ones, one right after the other */
        check_loop(2 + i % 3, 3);
    }
}

static void run_inner(void *user, int id, int n) {
    _Atomic int *wrong = user;
    _Atomic int64_t sum = 0;
    count inner = {.team = 0};
    (void)id;
    (void)n;
    gw_team_run(4, count_call, &inner);
    gw_parallel_for(4, 10, add_index, &sum);
    atomic_fetch_add(wrong, atomic_load(&inner.team) != 1 || atomic_load(&sum) != 295);
}

static void test_teams_in_teams_run_in_place(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++) {
        _Atomic int wrong = 0;
        gw_team_run(n, run_inner, &wrong);
        assert_int_equal(atomic_load(&wrong), n == 1); /* a caller alone is in no team */
    }
}

static void *call_often(void *user) {
    _Atomic int *wrong = user;
    for (int i = 0; i < TURNS / 10; i++) {
        count c = {.team = 0};
        int n = 1 + i % 4;
        gw_team_run(n, count_call, &c);
        atomic_fetch_add(wrong, atomic_load(&c.team) != n || atomic_load(&c.wrong) != 0);
    }
    return NULL;
}

static void test_callers_at_once(void **state) {
    (void)state;
    _Atomic int wrong = 0;
    pthread_t callers[5];
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pthread_create(&callers[i], NULL, call_often, &wrong), 0);
    }
    for (int i = 0; i < 5; i++) {
        pthread_join(callers[i], NULL);
    }
    assert_int_equal(atomic_load(&wrong), 0);
    /* Pools are used again: five at most, of which one was there. */
    assert_true(atomic_load(&started) <= MOST - 1 + 5 * 3);
}

#if !defined(__SANITIZE_THREAD__)
/* Exit status of a child: 0 when a team of it works. */
static int run_child(void) {
    pid_t child = fork();
    if (child == 0) {
        alarm(20); /* a team that waits for workers who are not there */
        count c = {.team = 0};
        gw_team_run(3, count_call, &c);
        _exit(atomic_load(&c.team) != 3 || atomic_load(&c.wrong) != 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_fork(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) { /* workers that spin, workers that sleep */
        assert_int_equal(run_counted(3), 3);
        nanosleep(&(struct timespec){.tv_nsec = i * 5000000}, NULL);
        assert_int_equal(run_child(), 0);
    }
    assert_int_equal(run_counted(3), 3);
}

static void *fork_while_used(void *user) {
    (void)user;
    return run_child() == 0 ? NULL : "failed";
}

static void test_fork_while_others_run(void **state) {
    (void)state;
    _Atomic int wrong = 0;
    pthread_t caller, forks;
    void *failed;
    assert_int_equal(pthread_create(&caller, NULL, call_often, &wrong), 0);
    assert_int_equal(pthread_create(&forks, NULL, fork_while_used, NULL), 0);
    pthread_join(forks, &failed);
    pthread_join(caller, NULL);
    assert_null(failed);
    assert_int_equal(atomic_load(&wrong), 0);
}

#endif

static void see_size(void *user, int id, int n) {
    _Atomic int *team = user;
    (void)id;
    atomic_store(team, n);
}

static void test_threads_that_cannot_be_started(void **state) {
    (void)state;
    int error = 0;
    atomic_store(&threads_left, 1); /* MOST - 1 workers are there: one more, then none */
    assert_int_equal(gw_team_prepare(MOST + 4, &error), MOST + 1);
    assert_int_equal(error, EAGAIN);
    assert_int_equal(gw_team_prepare(MOST, &error), MOST);
    assert_int_equal(error, 0);
    _Atomic int team = 0;
    gw_team_run(MOST + 4, see_size, &team);
    assert_int_equal(atomic_load(&team), MOST + 1);
    atomic_store(&threads_left, -1);
}

static void see_mask(void *user, int id, int n) {
    _Atomic int *bad = user;
    sigset_t mask;
    (void)n;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    atomic_fetch_add(bad, sigismember(&mask, SIGINT) != (id > 0));
    atomic_fetch_add(bad, sigismember(&mask, SIGTERM) != (id > 0));
    atomic_fetch_add(bad, sigismember(&mask, SIGSEGV) != 0);
}

static void test_signals_are_the_callers(void **state) {
    (void)state;
    _Atomic int bad = 0;
    gw_team_run(4, see_mask, &bad);
    assert_int_equal(atomic_load(&bad), 0);
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_idle_workers_sleep(void **state) {
    (void)state;
    assert_int_equal(run_counted(4), 4);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    double before = processor_seconds();
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    assert_true(processor_seconds() - before < 0.02);
    assert_int_equal(run_counted(4), 4); /* and wake */
}

static void test_wish(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int wish;
    } rows[] = {{"3", 3}, {"4,2", 4}, {"", 0}, {"x", 0}, {"0", 0}, {"-2", 0}, {"99999", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setenv("OMP_NUM_THREADS", rows[i].text, 1);
        assert_int_equal(gw_team_wish(), rows[i].wish);
    }
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(gw_team_wish(), 0);
    assert_true(gw_team_processors() >= 1);
}

#if !defined(__SANITIZE_THREAD__)
/* ---- NUMA nodes ------------------------------------------------------------------------------ */

static void write_node(const char *root, int node, const char *list) {
    char path[300];
    snprintf(path, sizeof path, "%s/node%d", root, node);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/node%d/cpulist", root, node);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(list, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The first processors that this process may use. */
static int allowed(int *cpu, int most) {
    cpu_set_t set;
    int n = 0;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (int i = 0; i < CPU_SETSIZE && n < most; i++) {
        if (CPU_ISSET((size_t)i, &set)) {
            cpu[n++] = i;
        }
    }
    return n;
}

static void on_its_node(void *user, int id, int n) {
    _Atomic int *alone = user;
    cpu_set_t set;
    (void)n;
    if (id == 1 && sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1) {
        atomic_store(alone, sched_getcpu() + 1);
    }
}

static void workers_stay_on_a_node(void **state) {
    (void)state;
    char root[] = "/tmp/nodes-XXXXXX", list[100];
    int cpu[2], n = allowed(cpu, 2), status = -1;
    assert_non_null(mkdtemp(root));
    assert_null(gw_nodes_read(root)); /* no node at all */
    snprintf(list, sizeof list, "%d\n", cpu[0]);
    write_node(root, 0, list);
    write_node(root, 1, "\n");                 /* memory alone */
    write_node(root, 2, "no list, -1-, 99999"); /* nothing that is a processor here */
    assert_null(gw_nodes_read(root));
    if (n == 2) {
        snprintf(list, sizeof list, "%d-%d,%d\n", cpu[1], cpu[1], cpu[1]);
        write_node(root, 5, list);
        gw_nodes *two = gw_nodes_read(root);
        assert_int_equal(gw_nodes_count(two), 2);
        static const int of[] = {0, 0, 0, 1, 1, 1};
        for (int i = 0; i < 6; i++) {
            assert_int_equal(gw_nodes_of(two, i, 6), of[i]);
        }
        assert_int_equal(gw_nodes_of(two, 1, 2), 1);
        assert_int_equal(gw_nodes_of(two, 0, 1), 0);
        pid_t child = fork();
        if (child == 0) {
            _Atomic int alone = 0;
            nodes = two;
            gw_team_run(2, on_its_node, &alone);
            _exit(atomic_load(&alone) == cpu[1] + 1 ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        gw_nodes_free(two);
    }
    snprintf(list, sizeof list, "rm -r %s", root);
    assert_int_equal(system(list), 0);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_loops),
        cmocka_unit_test(test_teams_in_teams_run_in_place),
        cmocka_unit_test(test_callers_at_once),
#if !defined(__SANITIZE_THREAD__) /* which cannot follow threads of a child */
        cmocka_unit_test(workers_stay_on_a_node),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_while_others_run),
#endif
        cmocka_unit_test(test_threads_that_cannot_be_started),
        cmocka_unit_test(test_signals_are_the_callers),
        cmocka_unit_test(test_idle_workers_sleep),
        cmocka_unit_test(test_wish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
