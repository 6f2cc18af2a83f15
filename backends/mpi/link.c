/* backends/mpi/link.c - the ranks of a job: who they are, messages between them, and who was lost.
 *
 * MPI is called by one thread at a time, under one lock. A thread of its own tells all others every
 * moment that this rank is alive, whatever the rest of the program does, and moves messages on.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi.h"
#include "core/base/clock.h"

enum { SERIALIZED = 2, ANY = -1, FRAGMENT = 64 << 20 };

static const double beat = 0.05, silence = 10.0, patience = 120.0, grace = 0.4;

typedef struct sent {
    struct sent *next;
    void *request;
    gw_wire wire;
} sent;

typedef struct peer {
    gw_mpi_self self;
    int visible;  /* its process can be seen from here */
    int heard_of; /* has said hello                    */
    int ended;    /* has said that it ends             */
    double heard;
    void *request; /* of the last sign of life */
    char sign;
} peer;

static struct {
    gw_mpi_library mpi;
    int n, rank;
    pthread_mutex_t lock;
    pthread_t listener;
    int listens, closing;
    const volatile int *cancel;
    peer peers[GW_MPI_RANKS];
    sent *first, *last;
    size_t unsent;
    char lost[256];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void nap(double seconds) {
    struct timespec t = {.tv_sec = 0, .tv_nsec = (long)(1e9 * seconds)};
    nanosleep(&t, NULL);
}

int gw_mpi_ranks(void) { return all.n; }
int gw_mpi_rank(void) { return all.rank; }
const gw_mpi_self *gw_mpi_peer(int rank) { return &all.peers[rank].self; }

/* ---- under the lock -------------------------------------------------------------------------- */

static void lose(int rank, const char *why) {
    if (all.lost[0] == '\0') {
        const char *host = all.peers[rank].self.host;
        snprintf(all.lost, sizeof all.lost, "rank %d%s%s was lost: %s", rank,
                 host[0] != '\0' ? " on " : "", host, why);
    }
}

static void check(int rank, int error, const char *what) {
    char text[512] = "", why[160]; /* as long as MPI's longest */
    int n = 0;
    if (error != 0) {
        (void)all.mpi.Error_string(error, text, &n);
        snprintf(why, sizeof why, "%s failed: %.100s", what, text);
        lose(rank, why);
    }
}

/* What has left. */
static void reap(void) {
    while (all.first != NULL) {
        sent *s = all.first;
        int done = 0;
        if (all.mpi.Test(&s->request, &done, NULL) != 0 || !done) {
            return; /* the others are behind it */
        }
        all.first = s->next;
        all.last = all.first == NULL ? NULL : all.last;
        all.unsent -= s->wire.n;
        gw_wire_free(&s->wire);
        free(s);
    }
}

static void hear(double now) {
    gw_mpi_state state;
    for (int there = 1; there;) {
        void *request = NULL;
        char sign = 0;
        there = 0;
        if (all.mpi.Iprobe(ANY, GW_MPI_ALIVE, all.mpi.world, &there, &state) != 0 || !there) {
            return;
        }
        (void)all.mpi.Irecv(&sign, 1, all.mpi.byte, state.source, GW_MPI_ALIVE, all.mpi.world,
                            &request);
        for (int done = 0; !done;) { /* one byte that is here */
            if (all.mpi.Test(&request, &done, NULL) != 0) {
                return;
            }
        }
        if (state.source >= 0 && state.source < all.n) {
            all.peers[state.source].heard = now;
            all.peers[state.source].ended |= sign != 0;
        }
    }
}

static int is_gone(const peer *p) {
    return p->visible && kill((pid_t)p->self.pid, 0) != 0 && errno == ESRCH;
}

static void look_after(double now) {
    for (int r = 0; r < all.n; r++) {
        peer *p = &all.peers[r];
        if (r == all.rank || p->ended || all.closing) {
            continue;
        }
        if (is_gone(p)) {
            hear(now); /* its last word may be here */
            if (!p->ended) {
                lose(r, "its process has ended");
            }
        } else if (now - p->heard > (p->heard_of ? silence : patience)) {
            char why[80];
            snprintf(why, sizeof why, "nothing was heard of it for %.0f s", now - p->heard);
            lose(r, why);
        }
    }
}

static void say(int r, char sign) {
    peer *p = &all.peers[r];
    int done = 1;
    if (p->request != NULL && (all.mpi.Test(&p->request, &done, NULL) != 0 || !done)) {
        return; /* it has not had the last one */
    }
    p->sign = sign;
    check(r, all.mpi.Isend(&p->sign, 1, all.mpi.byte, r, GW_MPI_ALIVE, all.mpi.world, &p->request),
          "sending");
}

static void say_to_all(char sign) {
    for (int r = 0; r < all.n; r++) {
        if (r != all.rank && !all.peers[r].ended) {
            say(r, sign);
        }
    }
}

/* ---- the listener ---------------------------------------------------------------------------- */

static void *listen_to_all(void *unused) {
    double said = 0.0;
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&all.lock);
        double now = gw_seconds_now();
        int busy, end = all.closing;
        if (now - said >= beat && !end) {
            say_to_all(0);
            hear(now);
            look_after(now);
            said = now;
        }
        reap();
        busy = all.first != NULL;
        pthread_mutex_unlock(&all.lock);
        if (end) {
            return NULL;
        }
        nap(busy ? 100e-6 : beat / 5);
    }
}

/* Signals are for the threads that look at them. */
static gw_status start_listener(void) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int error = pthread_create(&all.listener, NULL, listen_to_all, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    all.listens = error == 0;
    return error == 0 ? GW_OK : gw_fail(GW_E_NOMEM, "mpi", "no thread to listen to other ranks");
}

/* ---- messages -------------------------------------------------------------------------------- */

void gw_mpi_cancel_by(const volatile int *cancel) { all.cancel = cancel; }

static gw_status fail_lost(void) { return gw_fail(GW_E_DEVICE, "mpi", "%s", all.lost); }

/* A message is its length, then its bytes, in fragments that MPI can count. */
gw_status gw_mpi_send(int to, gw_mpi_tag tag, gw_wire *w) {
    if (w->failed) {
        gw_wire_free(w);
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for a message to rank %d", to);
    }
    size_t left = w->n, at = 0;
    do {
        size_t n = left < FRAGMENT ? left : FRAGMENT;
        sent *s = calloc(1, sizeof *s);
        if (s != NULL) {
            gw_wire_put_number(&s->wire, w->n);
            gw_wire_put(&s->wire, w->at + at, n);
        }
        if (s == NULL || s->wire.failed) {
            free(s);
            gw_wire_free(w);
            return gw_fail(GW_E_NOMEM, "mpi", "no memory for a message to rank %d", to);
        }
        pthread_mutex_lock(&all.lock);
        check(to,
              all.mpi.Isend(s->wire.at, (int)s->wire.n, all.mpi.byte, to, (int)tag, all.mpi.world,
                            &s->request),
              "sending");
        *(all.last != NULL ? &all.last->next : &all.first) = s;
        all.last = s;
        all.unsent += s->wire.n;
        reap();
        size_t unsent = all.unsent;
        while (unsent > GW_MPI_UNSENT && all.lost[0] == '\0') {
            pthread_mutex_unlock(&all.lock);
            nap(200e-6);
            pthread_mutex_lock(&all.lock);
            reap();
            unsent = all.unsent;
        }
        pthread_mutex_unlock(&all.lock);
        at += n;
        left -= n;
    } while (left > 0);
    gw_wire_free(w);
    return all.lost[0] == '\0' ? GW_OK : fail_lost();
}

/* Spins for a moment, for the answer is most often near; then sleeps. */
static void pause_a_little(int *turns) {
    ++*turns;
    if (*turns < 200) {
        sched_yield();
    } else {
        nap(*turns < 2000 ? 30e-6 : 200e-6);
    }
}

/* One fragment behind w; *all_bytes: of the whole message. The lock is held between, not during,
 * waits. */
static gw_status take_fragment(int from, gw_mpi_tag tag, gw_wire *w, uint64_t *whole) {
    gw_mpi_state state;
    void *request = NULL;
    int there = 0, done = 0, n = 0, turns = 0;
    gw_wire one = {.at = NULL};
    while (!there) {
        pthread_mutex_lock(&all.lock);
        check(from, all.mpi.Iprobe(from, (int)tag, all.mpi.world, &there, &state), "listening");
        int lost = !there && (all.lost[0] != '\0' || all.peers[from].ended);
        if (there) {
            (void)all.mpi.Get_count(&state, all.mpi.byte, &n);
            one.at = malloc((size_t)n + 1);
            one.room = (size_t)n + 1;
            if (one.at != NULL) {
                check(from,
                      all.mpi.Irecv(one.at, n, all.mpi.byte, from, (int)tag, all.mpi.world,
                                    &request),
                      "listening");
            }
        }
        if (lost && all.lost[0] == '\0') {
            lose(from, "it was told to end");
        }
        pthread_mutex_unlock(&all.lock);
        if (lost) {
            return fail_lost();
        }
        if (!there && all.cancel != NULL && *all.cancel) {
            return gw_fail(GW_E_CANCELLED, "mpi", "told to end");
        }
        if (!there) {
            pause_a_little(&turns);
        }
    }
    if (one.at == NULL) {
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for a message of rank %d", from);
    }
    for (turns = 0; !done;) {
        pthread_mutex_lock(&all.lock);
        check(from, all.mpi.Test(&request, &done, NULL), "listening");
        int lost = !done && all.lost[0] != '\0';
        pthread_mutex_unlock(&all.lock);
        if (lost) {
            return fail_lost(); /* its memory stays: MPI may still write there */
        }
        if (!done) {
            pause_a_little(&turns);
        }
    }
    one.n = (size_t)n;
    *whole = gw_wire_take_number(&one);
    gw_wire_put(w, one.at + one.taken, one.n - one.taken);
    w->failed |= one.failed;
    gw_wire_free(&one);
    return w->failed ? gw_fail(GW_E_NOMEM, "mpi", "no memory for a message of rank %d", from)
                     : GW_OK;
}

gw_status gw_mpi_take(int from, gw_mpi_tag tag, gw_wire *w) {
    uint64_t whole = 0;
    gw_wire_clear(w);
    do {
        GW_TRY(take_fragment(from, tag, w, &whole));
    } while (w->n < whole);
    return GW_OK;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static gw_status start_mpi(void) {
    int given = 0, rank = 0, n = 0;
    GW_TRY(gw_mpi_library_open(&all.mpi));
    if (all.mpi.Init_thread(NULL, NULL, SERIALIZED, &given) != 0 || given < SERIALIZED ||
        all.mpi.Comm_set_errhandler(all.mpi.world, all.mpi.errors_return) != 0 ||
        all.mpi.Comm_rank(all.mpi.world, &rank) != 0 || all.mpi.Comm_size(all.mpi.world, &n) != 0) {
        return gw_fail(GW_E_DEVICE, "mpi", "Open MPI does not start with threads");
    }
    if (n > GW_MPI_RANKS) {
        return gw_fail(GW_E_UNSUPPORTED, "mpi", "%d processes; at most %d work together", n,
                       GW_MPI_RANKS);
    }
    all.rank = rank;
    all.n = n;
    return GW_OK;
}

static gw_status greet(const gw_mpi_self *self) {
    gw_wire w = {.at = NULL};
    for (int r = 0; r < all.n; r++) {
        if (r != all.rank) {
            gw_wire_put(&w, self, sizeof *self);
            GW_TRY(gw_mpi_send(r, GW_MPI_HELLO, &w));
        }
    }
    for (int r = 0; r < all.n; r++) {
        peer *p = &all.peers[r];
        if (r == all.rank) {
            continue;
        }
        GW_TRY(gw_mpi_take(r, GW_MPI_HELLO, &w));
        pthread_mutex_lock(&all.lock);
        size_t build = strnlen((const char *)w.at, sizeof p->self.build);
        int equal = w.n == sizeof *self && build < sizeof p->self.build &&
                    strcmp((const char *)w.at, self->build) == 0;
        if (equal) {
            memcpy(&p->self, w.at, sizeof p->self);
            p->visible = strcmp(p->self.host, self->host) == 0 &&
                         (kill((pid_t)p->self.pid, 0) == 0 || errno == EPERM);
            p->heard_of = 1;
            p->heard = gw_seconds_now();
        }
        pthread_mutex_unlock(&all.lock);
        if (!equal) {
            gw_wire_free(&w);
            return gw_fail(GW_E_UNSUPPORTED, "mpi", "rank %d is another build of godwit", r);
        }
    }
    gw_wire_free(&w);
    return GW_OK;
}

gw_status gw_mpi_link_open(const gw_mpi_self *self) {
    GW_TRY(start_mpi());
    for (int r = 0; r < all.n; r++) {
        all.peers[r].heard = gw_seconds_now();
    }
    all.peers[all.rank].self = *self;
    GW_TRY(start_listener());
    return greet(self);
}

const char *gw_mpi_lost(double settle) {
    double end = gw_seconds_now() + settle;
    for (int open = 1; all.n > 1 && all.lost[0] == '\0' && open;) {
        pthread_mutex_lock(&all.lock);
        double now = gw_seconds_now();
        open = 0;
        hear(now);
        for (int r = 0; r < all.n && settle > 0.0; r++) {
            peer *p = &all.peers[r];
            if (r == all.rank || p->ended) {
                continue;
            }
            if (is_gone(p)) {
                hear(now);
                if (!p->ended) {
                    lose(r, "its process has ended");
                }
            } else if (now >= end && now - p->heard > grace) {
                lose(r, "nothing is heard of it");
            }
            open |= now < end;
        }
        pthread_mutex_unlock(&all.lock);
        if (open) {
            nap(5e-3);
        }
    }
    return all.lost;
}

/* With a rank lost, MPI's own end would wait for it. */
void gw_mpi_link_close(void) {
    if (all.n < 1) {
        return;
    }
    double until = gw_seconds_now() + 5.0;
    pthread_mutex_lock(&all.lock);
    while (all.first != NULL && all.lost[0] == '\0' && gw_seconds_now() < until) {
        reap();
        pthread_mutex_unlock(&all.lock);
        nap(100e-6);
        pthread_mutex_lock(&all.lock);
    }
    for (int r = 0; r < all.n && all.lost[0] == '\0'; r++) {
        for (int done = 0; r != all.rank && all.peers[r].request != NULL && !done &&
                           gw_seconds_now() < until;) {
            if (all.mpi.Test(&all.peers[r].request, &done, NULL) != 0) {
                break;
            }
        }
    }
    say_to_all(1);
    all.closing = 1;
    int in_order = all.lost[0] == '\0' && all.first == NULL;
    pthread_mutex_unlock(&all.lock);
    if (all.listens) {
        pthread_join(all.listener, NULL);
    }
    if (in_order) {
        (void)all.mpi.Finalize();
    }
    all.n = 0;
}
