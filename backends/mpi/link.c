/* backends/mpi/link.c - messages between ranks, and who was lost, whoever brought them together
 * (meet.c: MPI; worker.c, client.c: workers).
 *
 * Messages go through TCP of our own, a connection for every two ranks that speak. Open MPI ends a
 * process whose peer has died before that process can say so, and it polls where a socket sleeps. A
 * process that dies closes its connections; of a host that dies the kernel finds out, for
 * connections are kept alive.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/mpi/link.h"
#include "core/base/clock.h"

enum { GONE = POLLRDHUP | POLLHUP | POLLERR };

/* In front of every message. */
typedef struct frame {
    uint64_t bytes;
    uint32_t kind, rank;
} frame;
enum { MESSAGE = 0x67776d31, LEAVES = 0x67776d30 };

static gw_mpi_net all = {.listens = -1};

gw_mpi_net *gw_mpi_net_of(void) { return &all; }

int gw_mpi_ranks(void) { return all.n; }
int gw_mpi_rank(void) { return all.rank; }
const gw_mpi_self *gw_mpi_peer(int rank) { return &all.peers[rank].self; }
const char *gw_mpi_called(int rank) { return all.peers[rank].called; }
int gw_mpi_is_meshed(void) { return !all.star; }
void gw_mpi_cancel_by(const volatile int *cancel) { all.cancel = cancel; }

/* ---- who was lost ---------------------------------------------------------------------------- */

static gw_status lose(int rank, const char *why) {
    if (all.lost[0] == '\0') {
        snprintf(all.lost, sizeof all.lost, "%s on %.64s was lost: %.120s", all.peers[rank].called,
                 all.peers[rank].self.host, why);
    }
    return gw_fail(GW_E_DEVICE, "mpi", "%s", all.lost);
}

static gw_status lose_by(int rank, int error) {
    return lose(rank, error == 0 || error == ECONNRESET || error == EPIPE
                          ? "its process has ended"
                          : strerror(error));
}

/* The end of a connection: was it announced? What is still to be read stands before that. */
static void look_at_end(int rank) {
    gw_mpi_other *p = &all.peers[rank];
    unsigned char bytes[4096];
    frame last = {0};
    ssize_t n = recv(p->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (n >= (ssize_t)sizeof last) {
        memcpy(&last, bytes + n - (ssize_t)sizeof last, sizeof last);
    }
    if (last.kind == LEAVES && last.bytes == 0) {
        p->left = 1;
    } else if (n < (ssize_t)sizeof bytes) { /* else it has sent more, which is to be read first */
        int error = 0;
        socklen_t room = sizeof error;
        (void)getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &room);
        (void)lose_by(rank, error);
    }
}

/* Waits for one rank (-1: none), and looks after all others. */
static void wait_for(int rank, short what, int milliseconds) {
    struct pollfd fds[GW_MPI_RANKS];
    for (int r = 0; r < all.n; r++) {
        const gw_mpi_other *p = &all.peers[r];
        short asked = POLLRDHUP;
        fds[r] = (struct pollfd){.fd = r == all.rank || p->left ? -1 : p->fd, .events = asked};
        if (r == rank) {
            fds[r].events = (short)(asked | what);
        }
    }
    if (poll(fds, (nfds_t)all.n, milliseconds) <= 0) {
        return;
    }
    for (int r = 0; r < all.n; r++) {
        if (r != rank && (fds[r].revents & GONE) != 0) {
            look_at_end(r);
        }
    }
}

const char *gw_mpi_lost(double settle) {
    double end = gw_seconds_now() + settle;
    int open = all.n - 1;
    while (settle > 0.0 && all.lost[0] == '\0' && open > 0 && gw_seconds_now() < end) {
        wait_for(-1, 0, 20);
        open = 0;
        for (int r = 0; r < all.n; r++) {
            open += r != all.rank && !all.peers[r].left;
        }
    }
    return all.lost;
}

/* ---- messages -------------------------------------------------------------------------------- */

gw_status gw_mpi_may_go_on(void) {
    if (all.lost[0] != '\0') {
        return gw_fail(GW_E_DEVICE, "mpi", "%s", all.lost);
    }
    if (all.cancel == NULL || !*all.cancel) {
        return GW_OK;
    }
    double now = gw_seconds_now();
    all.told = all.told > 0.0 ? all.told : now;
    return now - all.told < all.grace ? GW_OK : gw_fail(GW_E_CANCELLED, "mpi", "told to end");
}

gw_status gw_mpi_send_all(int to, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    while (n > 0) {
        ssize_t done = send(all.peers[to].fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done >= 0) {
            at += done;
            n -= (size_t)done;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return lose_by(to, errno);
        }
        GW_TRY(gw_mpi_may_go_on());
        wait_for(to, POLLOUT, GW_MPI_LOOK_MS);
    }
    return GW_OK;
}

static gw_status take_all(int from, void *bytes, size_t n) {
    unsigned char *at = bytes;
    while (n > 0) {
        ssize_t done = recv(all.peers[from].fd, at, n, MSG_DONTWAIT);
        if (done > 0) {
            at += done;
            n -= (size_t)done;
            continue;
        }
        if (done == 0 || (errno != EAGAIN && errno != EINTR)) {
            return lose_by(from, done == 0 ? 0 : errno);
        }
        GW_TRY(gw_mpi_may_go_on());
        wait_for(from, POLLIN, GW_MPI_LOOK_MS);
    }
    return GW_OK;
}

/* Numbers of ranks come in messages, too. */
static gw_status speaks_to(int rank) {
    return rank >= 0 && rank < all.n && rank != all.rank && all.peers[rank].fd >= 0
               ? GW_OK
               : gw_fail(GW_E_ARGUMENT, "mpi", "rank %d is not spoken to", rank);
}

gw_status gw_mpi_send(int to, gw_wire *w) {
    frame head = {.bytes = w->n, .kind = MESSAGE, .rank = (uint32_t)all.rank};
    gw_status status = speaks_to(to);
    if (status != GW_OK) {
        gw_wire_free(w);
        return status;
    }
    status = w->failed ? gw_fail(GW_E_NOMEM, "mpi", "no memory for a message to %s",
                                 all.peers[to].called)
                       : gw_mpi_send_all(to, &head, sizeof head);
    status = status == GW_OK ? gw_mpi_send_all(to, w->at, w->n) : status;
    gw_wire_free(w);
    return status;
}

gw_status gw_mpi_take(int from, gw_wire *w) {
    frame head;
    gw_wire_clear(w);
    GW_TRY(speaks_to(from));
    GW_TRY(take_all(from, &head, sizeof head));
    if (head.kind != MESSAGE) {
        all.peers[from].left = head.kind == LEAVES;
        return lose(from, head.kind == LEAVES ? "it was told to end" : "it sends other things");
    }
    if (all.star && head.bytes > GW_MPI_LONGEST) {
        return lose(from, "it sends a message that is too long");
    }
    if (head.bytes > w->room) {
        gw_wire_free(w);
        w->at = malloc((size_t)head.bytes);
        if (w->at == NULL) {
            return gw_fail(GW_E_NOMEM, "mpi", "no memory for %zu bytes of %s",
                           (size_t)head.bytes, all.peers[from].called);
        }
        w->room = (size_t)head.bytes;
    }
    w->n = (size_t)head.bytes;
    return take_all(from, w->at, w->n);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Until it is connected, or the time is over. */
int gw_mpi_connect_to(const char *address, int port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    char service[16];
    int error = 0;
    socklen_t room = sizeof error;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &found) != 0) {
        return -1;
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0 &&
        (errno != EINPROGRESS || poll(&wait, 1, GW_MPI_TRY_MS) != 1 ||
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &room) != 0 || error != 0)) {
        (void)close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

void gw_mpi_set_options(int fd, int seconds) {
    const int on = 1, idle = seconds / 2, dead = 1000 * seconds;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead, sizeof dead);
}

void gw_mpi_link_close(void) {
    frame end = {.kind = LEAVES, .rank = (uint32_t)all.rank};
    all.cancel = NULL;
    for (int r = 0; r < all.n; r++) {
        if (r != all.rank && all.peers[r].fd >= 0) {
            (void)!send(all.peers[r].fd, &end, sizeof end, MSG_NOSIGNAL | MSG_DONTWAIT);
            (void)close(all.peers[r].fd);
            all.peers[r].fd = -1;
        }
    }
    if (all.listens >= 0) {
        (void)close(all.listens);
        all.listens = -1;
    }
    if (all.n > 0 && all.lost[0] == '\0' && all.finalize != NULL) {
        all.finalize();
    }
    all.n = 0;
}
