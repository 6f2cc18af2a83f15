/* backends/mpi/link.c - the ranks of a job: who they are, messages between them, and who was lost.
 *
 * MPI starts the processes and tells each where the others listen; messages then go through TCP of
 * our own, a connection for every two ranks. Open MPI ends a process whose peer has died before
 * that process can say so, and it polls where a socket sleeps. A process that dies closes its
 * connections; of a host that dies the kernel finds out, for connections are kept alive.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/mpi/mpi.h"
#include "core/base/clock.h"

enum { TRY_MS = 3000, LOOK_MS = 200, DEAD_SECONDS = 8, GONE = POLLRDHUP | POLLHUP | POLLERR };

static const double patience = 60.0; /* for all to be connected */
static const double grace = 5.0;     /* for rank 0 to say the end, when all are told to end */

/* In front of every message. */
typedef struct frame {
    uint64_t bytes;
    uint32_t kind, rank;
} frame;
enum { MESSAGE = 0x67776d31, LEAVES = 0x67776d30 };

typedef struct peer {
    gw_mpi_self self;
    int fd;
    int left; /* it has said that nothing follows */
} peer;

static struct {
    gw_mpi_library mpi;
    int n, rank, listens;
    const volatile int *cancel;
    double told; /* when *cancel was first seen; 0: not yet */
    peer peers[GW_MPI_RANKS];
    char lost[320];
} all = {.listens = -1};

int gw_mpi_ranks(void) { return all.n; }
int gw_mpi_rank(void) { return all.rank; }
const gw_mpi_self *gw_mpi_peer(int rank) { return &all.peers[rank].self; }
void gw_mpi_cancel_by(const volatile int *cancel) { all.cancel = cancel; }

/* ---- who was lost ---------------------------------------------------------------------------- */

static gw_status lose(int rank, const char *why) {
    if (all.lost[0] == '\0') {
        snprintf(all.lost, sizeof all.lost, "rank %d on %.64s was lost: %.160s", rank,
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
    peer *p = &all.peers[rank];
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
        const peer *p = &all.peers[r];
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

static gw_status may_go_on(void) {
    if (all.lost[0] != '\0') {
        return gw_fail(GW_E_DEVICE, "mpi", "%s", all.lost);
    }
    if (all.cancel == NULL || !*all.cancel) {
        return GW_OK;
    }
    double now = gw_seconds_now();
    all.told = all.told > 0.0 ? all.told : now;
    return now - all.told < grace ? GW_OK : gw_fail(GW_E_CANCELLED, "mpi", "told to end");
}

static gw_status send_all(int to, const void *bytes, size_t n) {
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
        GW_TRY(may_go_on());
        wait_for(to, POLLOUT, LOOK_MS);
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
        GW_TRY(may_go_on());
        wait_for(from, POLLIN, LOOK_MS);
    }
    return GW_OK;
}

gw_status gw_mpi_send(int to, gw_wire *w) {
    frame head = {.bytes = w->n, .kind = MESSAGE, .rank = (uint32_t)all.rank};
    gw_status status = w->failed ? gw_fail(GW_E_NOMEM, "mpi", "no memory for a message to rank %d",
                                           to)
                                 : send_all(to, &head, sizeof head);
    status = status == GW_OK ? send_all(to, w->at, w->n) : status;
    gw_wire_free(w);
    return status;
}

gw_status gw_mpi_take(int from, gw_wire *w) {
    frame head;
    gw_wire_clear(w);
    GW_TRY(take_all(from, &head, sizeof head));
    if (head.kind != MESSAGE) {
        all.peers[from].left = head.kind == LEAVES;
        return lose(from, head.kind == LEAVES ? "it was told to end" : "it sends other things");
    }
    if (head.bytes > w->room) {
        gw_wire_free(w);
        w->at = malloc((size_t)head.bytes);
        if (w->at == NULL) {
            return gw_fail(GW_E_NOMEM, "mpi", "no memory for %zu bytes of rank %d",
                           (size_t)head.bytes, from);
        }
        w->room = (size_t)head.bytes;
    }
    w->n = (size_t)head.bytes;
    return take_all(from, w->at, w->n);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int is_one_host(void) {
    int one = 1;
    for (int r = 1; r < all.n; r++) {
        one &= strcmp(all.peers[r].self.host, all.peers[0].self.host) == 0;
    }
    return one;
}

/* Addresses that others may reach this host by. */
static void find_addresses(gw_mpi_self *self) {
    struct ifaddrs *list = NULL;
    int n = 0;
    if (getifaddrs(&list) != 0) {
        return;
    }
    for (const struct ifaddrs *i = list; i != NULL && n < GW_MPI_ADDRESSES; i = i->ifa_next) {
        int family = i->ifa_addr != NULL ? i->ifa_addr->sa_family : AF_UNSPEC;
        socklen_t bytes = family == AF_INET    ? sizeof(struct sockaddr_in)
                          : family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                               : 0;
        int linked = 0; /* such an address takes a name of an interface, too */
        if (family == AF_INET6) {
            struct sockaddr_in6 six;
            memcpy(&six, i->ifa_addr, sizeof six);
            linked = IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr);
        }
        if (bytes > 0 && !linked && (i->ifa_flags & IFF_UP) != 0 &&
            (i->ifa_flags & IFF_LOOPBACK) == 0 &&
            getnameinfo(i->ifa_addr, bytes, self->address[n], sizeof self->address[n], NULL, 0,
                        NI_NUMERICHOST) == 0) {
            n++;
        }
    }
    freeifaddrs(list);
}

/* For all addresses of this host: whoever connects must know the key. */
static gw_status listen_here(gw_mpi_self *self) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    if (fd < 0) { /* a host without IPv6 */
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&four, sizeof four) != 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    all.listens = fd;
    if (fd < 0 || listen(fd, GW_MPI_RANKS) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &bytes) != 0 ||
        getrandom(self->key, sizeof self->key, 0) != (ssize_t)sizeof self->key) {
        return gw_fail(GW_E_DEVICE, "mpi", "cannot listen for other ranks: %s", strerror(errno));
    }
    self->port = ntohs(at.sin6_port); /* at one place in both families */
    find_addresses(self);
    return GW_OK;
}

/* Until it is connected, or the time is over. */
static int connect_to(const char *address, int port) {
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
        (errno != EINPROGRESS || poll(&wait, 1, TRY_MS) != 1 ||
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &room) != 0 || error != 0)) {
        (void)close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static void set_options(int fd) {
    const int on = 1, idle = DEAD_SECONDS / 2, dead = 1000 * DEAD_SECONDS;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead, sizeof dead);
}

/* The key of the one who listens, and who comes. */
typedef struct card {
    unsigned char key[16];
    int32_t rank;
} card;

static gw_status reach_rank(int r, int one_host) {
    peer *p = &all.peers[r];
    card mine = {.rank = all.rank};
    char tried[512] = "";
    int fd = -1;
    if (one_host) {
        fd = connect_to("127.0.0.1", p->self.port);
        snprintf(tried, sizeof tried, " 127.0.0.1");
    }
    for (int i = 0; i < GW_MPI_ADDRESSES && p->self.address[i][0] != '\0' && fd < 0; i++) {
        size_t used = strlen(tried);
        snprintf(tried + used, sizeof tried - used, " %s", p->self.address[i]);
        fd = connect_to(p->self.address[i], p->self.port);
    }
    if (fd < 0) {
        return gw_fail(GW_E_DEVICE, "mpi",
                       "rank %d on %s does not reach rank %d on %s, port %d of%s; is there a "
                       "firewall?",
                       all.rank, all.peers[all.rank].self.host, r, p->self.host, (int)p->self.port,
                       tried[0] != '\0' ? tried : " no address");
    }
    p->fd = fd;
    set_options(fd);
    memcpy(mine.key, p->self.key, sizeof mine.key);
    return send_all(r, &mine, sizeof mine);
}

/* Whoever knows the key; others are turned away. */
static void welcome(int fd) {
    card theirs;
    size_t have = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (have < sizeof theirs && poll(&wait, 1, TRY_MS) == 1) {
        ssize_t n = recv(fd, (char *)&theirs + have, sizeof theirs - have, MSG_DONTWAIT);
        if (n <= 0) {
            break;
        }
        have += (size_t)n;
    }
    int r = have == sizeof theirs ? theirs.rank : -1;
    if (r > all.rank && r < all.n && all.peers[r].fd < 0 &&
        memcmp(theirs.key, all.peers[all.rank].self.key, sizeof theirs.key) == 0) {
        set_options(fd);
        all.peers[r].fd = fd;
    } else {
        (void)close(fd);
    }
}

static int missing_rank(void) {
    for (int r = 0; r < all.n; r++) {
        if (r != all.rank && all.peers[r].fd < 0) {
            return r;
        }
    }
    return -1;
}

/* Each reaches those of smaller rank and waits for those of larger. */
static gw_status connect_all(void) {
    double end = gw_seconds_now() + patience;
    int one_host = is_one_host();
    for (int r = 0; r < all.rank; r++) {
        GW_TRY(reach_rank(r, one_host));
    }
    for (int r = missing_rank(); r >= 0; r = missing_rank()) {
        struct pollfd wait = {.fd = all.listens, .events = POLLIN};
        if (gw_seconds_now() > end) {
            return gw_fail(GW_E_DEVICE, "mpi", "rank %d on %s did not come within %.0f s", r,
                           all.peers[r].self.host, patience);
        }
        if (poll(&wait, 1, LOOK_MS) == 1) {
            int fd = accept4(all.listens, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd >= 0) {
                welcome(fd);
            }
        }
        GW_TRY(may_go_on());
    }
    (void)close(all.listens);
    all.listens = -1;
    return GW_OK;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static gw_status start_mpi(void) {
    int given = 0, rank = 0, n = 0;
    GW_TRY(gw_mpi_library_open(&all.mpi));
    if (all.mpi.Init_thread(NULL, NULL, 0, &given) != 0 ||
        all.mpi.Comm_rank(all.mpi.world, &rank) != 0 || all.mpi.Comm_size(all.mpi.world, &n) != 0) {
        return gw_fail(GW_E_DEVICE, "mpi", "Open MPI does not start");
    }
    all.rank = rank;
    all.n = n <= GW_MPI_RANKS ? n : 0;
    return n <= GW_MPI_RANKS
               ? GW_OK
               : gw_fail(GW_E_UNSUPPORTED, "mpi", "%d processes; at most %d work together", n,
                         GW_MPI_RANKS);
}

static gw_status tell_all(const gw_mpi_self *self) {
    gw_mpi_self *list = calloc((size_t)all.n, sizeof *list);
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for %d ranks", all.n);
    }
    int bytes = (int)sizeof *self;
    int error =
        all.mpi.Allgather(self, bytes, all.mpi.byte, list, bytes, all.mpi.byte, all.mpi.world);
    for (int r = 0; r < all.n; r++) {
        all.peers[r].self = list[r];
    }
    free(list);
    if (error != 0) {
        return gw_fail(GW_E_DEVICE, "mpi", "the processes of the job cannot reach one another");
    }
    for (int r = 0; r < all.n; r++) {
        if (strncmp(all.peers[r].self.build, self->build, sizeof self->build) != 0) {
            return gw_fail(GW_E_UNSUPPORTED, "mpi", "rank %d is another build of godwit", r);
        }
    }
    return GW_OK;
}

gw_status gw_mpi_link_open(gw_mpi_self *self) {
    for (int r = 0; r < GW_MPI_RANKS; r++) {
        all.peers[r].fd = -1;
    }
    GW_TRY(start_mpi());
    gw_status status = listen_here(self); /* all say something, or others would wait for it */
    gw_status told = tell_all(self);
    GW_TRY(status);
    GW_TRY(told);
    return connect_all();
}

/* With a rank lost, MPI's own end would wait for it. */
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
    if (all.n > 0 && all.lost[0] == '\0') {
        (void)all.mpi.Finalize();
    }
    all.n = 0;
}
