/* backends/mpi/worker.c - `godwit worker`: listens, and gives each client that knows the secret a
 * process of its own, one at a time. The process that listens opens no driver and reads nothing, so
 * whatever a client does ends with the client's process. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/mpi/link.h"
#include "core/base/clock.h"
#include "core/base/text.h"
#include "include/godwit_hosts.h"

/* Clients that have not shown the secret are few, and gone after gw_mpi_challenge's patience. */
enum { DEAD_SECONDS = 4, AT_ONCE = 16, LOOK_MS = 100 };

typedef struct worker {
    const gw_worker_options *o;
    gw_mpi_secret secret;
    int listens;
    atomic_int *served; /* shared: the process that serves a client; 0: none does */
    pid_t child[AT_ONCE];
} worker;

static void say(const worker *w, const char *line) {
    if (w->o->say != NULL) {
        w->o->say(w->o->user, line);
    }
}

/* ---- a client's process ---------------------------------------------------------------------- */

/* One that has just left may still give its memory back. */
static int is_busy(void *user) {
    double end = gw_seconds_now() + 1.5;
    for (int none = 0; !atomic_compare_exchange_strong((atomic_int *)user, &none, (int)getpid());
         none = 0) {
        if (gw_seconds_now() > end) {
            return 1;
        }
        (void)poll(NULL, 0, 20);
    }
    return 0;
}

static void describe(const worker *w, gw_mpi_self *self) {
    memset(self, 0, sizeof *self);
    gw_mpi_build(self->build);
    if (gethostname(self->host, sizeof self->host - 1) != 0) {
        snprintf(self->host, sizeof self->host, "unknown");
    }
    if (gw_mpi_held(w->o->device, self) != GW_OK) {
        snprintf(self->error, sizeof self->error, "%s", gw_error_text());
    }
    self->keeps = gw_mpi_keeps();
}

static void enter(const worker *w, int fd, const char *client) {
    gw_mpi_net *all = gw_mpi_net_of();
    all->n = 2;
    all->rank = 1;
    all->star = 1;
    all->cancel = w->o->cancel;
    all->peers[0].fd = fd;
    all->peers[1].fd = -1;
    snprintf(all->peers[0].called, sizeof all->peers[0].called, "client %.80s", client);
    snprintf(all->peers[0].self.host, sizeof all->peers[0].self.host, "its host");
}

static gw_status serve(const worker *w, int fd, const char *client) {
    static gw_mpi_self self;
    char line[160];
    gw_mpi_set_options(fd, DEAD_SECONDS);
    GW_TRY(gw_mpi_challenge(fd, &w->secret, is_busy, w->served));
    snprintf(line, sizeof line, "client %.80s is served", client);
    say(w, line);
    if (w->o->keep > 0 && w->o->keep_folder != NULL &&
        gw_mpi_keep_open(w->o->keep_folder, w->o->keep) != GW_OK) {
        say(w, gw_error_text());
    }
    describe(w, &self);
    GW_TRY(gw_mpi_give_before(fd, &self, sizeof self, gw_seconds_now() + DEAD_SECONDS));
    enter(w, fd, client);
    gw_status status = gw_mpi_serve(w->o->threads);
    gw_mpi_link_close();
    gw_mpi_keep_close();
    return status;
}

/* Does not come back. */
static void be_child(const worker *w, int fd, const char *client) {
    char line[512];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)close(w->listens);
    gw_status status = serve(w, fd, client);
    if (status == GW_OK) {
        char sent[GW_SIZE_TEXT], here[GW_SIZE_TEXT];
        uint64_t came = 0, kept = 0;
        gw_mpi_served(&came, &kept);
        snprintf(line, sizeof line, "client %.80s has left: it sent %s of weights, %s were here",
                 client, gw_text_size(came, 3, sent), gw_text_size(kept, 3, here));
    } else {
        snprintf(line, sizeof line, "client %.80s is not served any more: %.300s", client,
                 gw_error_text());
    }
    say(w, line);
    _exit(status == GW_OK ? 0 : 1);
}

/* ---- the process that listens ---------------------------------------------------------------- */

/* Are there such devices? Found out in a process of its own: a driver that was opened does not go
 * through fork. */
static gw_status try_devices(const worker *w) {
    static gw_mpi_self self;
    int ends[2];
    if (pipe(ends) != 0) {
        return gw_fail(GW_E_IO, "worker", "no pipe: %s", strerror(errno));
    }
    pid_t child = fork();
    if (child == 0) {
        describe(w, &self);
        ssize_t n = write(ends[1], self.error, sizeof self.error);
        _exit(n == (ssize_t)sizeof self.error ? 0 : 1);
    }
    (void)close(ends[1]);
    char error[sizeof self.error] = "the driver ends the process";
    size_t have = 0;
    for (ssize_t n = 1; child > 0 && n > 0 && have < sizeof error; have += n > 0 ? (size_t)n : 0) {
        n = read(ends[0], error + have, sizeof error - have);
    }
    (void)close(ends[0]);
    if (child > 0) {
        (void)waitpid(child, NULL, 0);
    }
    error[sizeof error - 1] = '\0';
    return error[0] == '\0' ? GW_OK : gw_fail(GW_E_DEVICE, "worker", "%s", error);
}

/* Others than this host's own processes may come there. */
static void say_open(const worker *w, const char *bound, const char *port) {
    char line[256];
    if (strncmp(bound, "127.", 4) != 0 && strcmp(bound, "::1") != 0) {
        snprintf(line, sizeof line,
                 "what clients send is not encrypted: on a network of others listen on 127.0.0.1, "
                 "and let clients come by 'ssh -N -L %s:127.0.0.1:%s HOST'",
                 port, port);
        say(w, line);
    }
}

static gw_status listen_on(worker *w) {
    char host[80], port[16], bound[64], line[160];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    const int on = 1;
    GW_TRY(gw_mpi_split_address(w->o->listen, host, port));
    int error = getaddrinfo(host, port, &hints, &list);
    if (error != 0) {
        return gw_fail(GW_E_ARGUMENT, "worker", "%s: %s", w->o->listen, gai_strerror(error));
    }
    w->listens = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->listens >= 0) {
        (void)setsockopt(w->listens, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    int failed = w->listens < 0 || bind(w->listens, list->ai_addr, list->ai_addrlen) != 0 ||
                 listen(w->listens, AT_ONCE) != 0 ||
                 getsockname(w->listens, (struct sockaddr *)&at, &bytes) != 0;
    int why = errno;
    freeaddrinfo(list);
    if (failed || getnameinfo((struct sockaddr *)&at, bytes, bound, sizeof bound, port, sizeof port,
                              NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return gw_fail(GW_E_IO, "worker", "cannot listen on %s: %s", w->o->listen, strerror(why));
    }
    snprintf(line, sizeof line, strchr(bound, ':') != NULL ? "listening on [%s]:%s"
                                                           : "listening on %s:%s",
             bound, port);
    say(w, line);
    say_open(w, bound, port);
    return GW_OK;
}

/* Children that have ended; the place of a free one, -1: none is. */
static int reap(worker *w) {
    int place = -1;
    for (int i = 0; i < AT_ONCE; i++) {
        if (w->child[i] > 0 && waitpid(w->child[i], NULL, WNOHANG) == w->child[i]) {
            int gone = (int)w->child[i];
            (void)atomic_compare_exchange_strong(w->served, &gone, 0);
            w->child[i] = 0;
        }
        place = w->child[i] == 0 ? i : place;
    }
    return place;
}

static void welcome(worker *w, int place) {
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    char host[64] = "?", port[16] = "?", client[96];
    int fd = accept4(w->listens, (struct sockaddr *)&at, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    (void)getnameinfo((struct sockaddr *)&at, bytes, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(client, sizeof client, "%s:%s", host, port);
    pid_t child = fork();
    if (child == 0) {
        be_child(w, fd, client);
    }
    w->child[place] = child > 0 ? child : 0;
    (void)close(fd);
}

static void end_children(worker *w) {
    for (int i = 0; i < AT_ONCE; i++) {
        if (w->child[i] > 0) {
            (void)kill(w->child[i], SIGTERM);
        }
    }
    double end = gw_seconds_now() + 2.0;
    for (int i = 0; i < AT_ONCE; i++) {
        while (w->child[i] > 0 && waitpid(w->child[i], NULL, WNOHANG) == 0) {
            if (gw_seconds_now() > end) {
                (void)kill(w->child[i], SIGKILL);
            }
            (void)poll(NULL, 0, 10);
        }
    }
}

static gw_status listen_and_fork(worker *w) {
    GW_TRY(try_devices(w));
    GW_TRY(listen_on(w));
    while (w->o->cancel == NULL || !*w->o->cancel) {
        int place = reap(w);
        struct pollfd wait = {.fd = place >= 0 ? w->listens : -1, .events = POLLIN};
        if (poll(&wait, 1, LOOK_MS) == 1) {
            welcome(w, place);
        }
    }
    return GW_OK;
}

gw_status gw_worker_run(const gw_worker_options *o) {
    worker w = {.o = o, .secret = {o->secret, o->secret_bytes}, .listens = -1};
    if (o->secret_bytes < GW_MPI_SECRET) {
        return gw_fail(GW_E_ARGUMENT, "worker", "a secret has at least %d bytes", GW_MPI_SECRET);
    }
    void *shared = mmap(NULL, sizeof *w.served, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    if (shared == MAP_FAILED) {
        return gw_fail(GW_E_NOMEM, "worker", "no memory");
    }
    w.served = shared;
    gw_status status = listen_and_fork(&w);
    if (w.listens >= 0) {
        (void)close(w.listens);
    }
    end_children(&w);
    (void)munmap(shared, sizeof *w.served);
    return status;
}
