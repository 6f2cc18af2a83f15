/* backends/mpi/meet.c - the ranks of an MPI job: MPI starts the processes and tells each where the
 * others listen; then every two connect. */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/mpi/link.h"
#include "core/base/clock.h"

enum { DEAD_SECONDS = 8 };

static const double patience = 60.0; /* for all to be connected */
static const double grace = 5.0;     /* for rank 0 to say the end, when all are told to end */

static gw_mpi_library mpi;
static gw_mpi_net *all; /* of this process */

/* ---- connecting ------------------------------------------------------------------------------ */

static int is_one_host(void) {
    int one = 1;
    for (int r = 1; r < all->n; r++) {
        one &= strcmp(all->peers[r].self.host, all->peers[0].self.host) == 0;
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
    all->listens = fd;
    if (fd < 0 || listen(fd, GW_MPI_RANKS) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &bytes) != 0 ||
        getrandom(self->key, sizeof self->key, 0) != (ssize_t)sizeof self->key) {
        return gw_fail(GW_E_DEVICE, "mpi", "cannot listen for other ranks: %s", strerror(errno));
    }
    self->port = ntohs(at.sin6_port); /* at one place in both families */
    find_addresses(self);
    return GW_OK;
}

/* The key of the one who listens, and who comes. */
typedef struct card {
    unsigned char key[16];
    int32_t rank;
} card;

static gw_status reach_rank(int r, int one_host) {
    gw_mpi_other *p = &all->peers[r];
    card mine = {.rank = all->rank};
    char tried[512] = "";
    int fd = -1;
    if (one_host) {
        fd = gw_mpi_connect_to("127.0.0.1", p->self.port);
        snprintf(tried, sizeof tried, " 127.0.0.1");
    }
    for (int i = 0; i < GW_MPI_ADDRESSES && p->self.address[i][0] != '\0' && fd < 0; i++) {
        size_t used = strlen(tried);
        snprintf(tried + used, sizeof tried - used, " %s", p->self.address[i]);
        fd = gw_mpi_connect_to(p->self.address[i], p->self.port);
    }
    if (fd < 0) {
        return gw_fail(GW_E_DEVICE, "mpi",
                       "rank %d on %s does not reach rank %d on %s, port %d of%s; is there a "
                       "firewall?",
                       all->rank, all->peers[all->rank].self.host, r, p->self.host,
                       (int)p->self.port, tried[0] != '\0' ? tried : " no address");
    }
    p->fd = fd;
    gw_mpi_set_options(fd, DEAD_SECONDS);
    memcpy(mine.key, p->self.key, sizeof mine.key);
    return gw_mpi_send_all(r, &mine, sizeof mine);
}

/* Whoever knows the key; others are turned away. */
static void welcome(int fd) {
    card theirs;
    size_t have = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (have < sizeof theirs && poll(&wait, 1, GW_MPI_TRY_MS) == 1) {
        ssize_t n = recv(fd, (char *)&theirs + have, sizeof theirs - have, MSG_DONTWAIT);
        if (n <= 0) {
            break;
        }
        have += (size_t)n;
    }
    int r = have == sizeof theirs ? theirs.rank : -1;
    if (r > all->rank && r < all->n && all->peers[r].fd < 0 &&
        memcmp(theirs.key, all->peers[all->rank].self.key, sizeof theirs.key) == 0) {
        gw_mpi_set_options(fd, DEAD_SECONDS);
        all->peers[r].fd = fd;
    } else {
        (void)close(fd);
    }
}

static int missing_rank(void) {
    for (int r = 0; r < all->n; r++) {
        if (r != all->rank && all->peers[r].fd < 0) {
            return r;
        }
    }
    return -1;
}

/* Each reaches those of smaller rank and waits for those of larger. */
static gw_status connect_all(void) {
    double end = gw_seconds_now() + patience;
    int one_host = is_one_host();
    for (int r = 0; r < all->rank; r++) {
        GW_TRY(reach_rank(r, one_host));
    }
    for (int r = missing_rank(); r >= 0; r = missing_rank()) {
        struct pollfd wait = {.fd = all->listens, .events = POLLIN};
        if (gw_seconds_now() > end) {
            return gw_fail(GW_E_DEVICE, "mpi", "rank %d on %s did not come within %.0f s", r,
                           all->peers[r].self.host, patience);
        }
        if (poll(&wait, 1, GW_MPI_LOOK_MS) == 1) {
            int fd = accept4(all->listens, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd >= 0) {
                welcome(fd);
            }
        }
        GW_TRY(gw_mpi_may_go_on());
    }
    (void)close(all->listens);
    all->listens = -1;
    return GW_OK;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static gw_status start_mpi(void) {
    int given = 0, rank = 0, n = 0;
    GW_TRY(gw_mpi_library_open(&mpi));
    if (mpi.Init_thread(NULL, NULL, 0, &given) != 0 ||
        mpi.Comm_rank(mpi.world, &rank) != 0 || mpi.Comm_size(mpi.world, &n) != 0) {
        return gw_fail(GW_E_DEVICE, "mpi", "Open MPI does not start");
    }
    all->rank = rank;
    all->n = n <= GW_MPI_RANKS ? n : 0;
    return n <= GW_MPI_RANKS
               ? GW_OK
               : gw_fail(GW_E_UNSUPPORTED, "mpi", "%d processes; at most %d work together", n,
                         GW_MPI_RANKS);
}

static gw_status tell_all(const gw_mpi_self *self) {
    gw_mpi_self *list = calloc((size_t)all->n, sizeof *list);
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for %d ranks", all->n);
    }
    int bytes = (int)sizeof *self;
    int error =
        mpi.Allgather(self, bytes, mpi.byte, list, bytes, mpi.byte, mpi.world);
    for (int r = 0; r < all->n; r++) {
        all->peers[r].self = list[r];
    }
    free(list);
    if (error != 0) {
        return gw_fail(GW_E_DEVICE, "mpi", "the processes of the job cannot reach one another");
    }
    for (int r = 0; r < all->n; r++) {
        if (strncmp(all->peers[r].self.build, self->build, sizeof self->build) != 0) {
            return gw_fail(GW_E_UNSUPPORTED, "mpi", "rank %d is another build of godwit", r);
        }
    }
    return GW_OK;
}

static void end_mpi(void) { (void)mpi.Finalize(); }

gw_status gw_mpi_link_open(gw_mpi_self *self) {
    all = gw_mpi_net_of();
    all->grace = grace;
    all->finalize = end_mpi;
    for (int r = 0; r < GW_MPI_RANKS; r++) {
        all->peers[r].fd = -1;
        snprintf(all->peers[r].called, sizeof all->peers[r].called, "rank %d", r);
    }
    GW_TRY(start_mpi());
    gw_status status = listen_here(self); /* all say something, or others would wait for it */
    gw_status told = tell_all(self);
    GW_TRY(status);
    GW_TRY(told);
    return connect_all();
}
