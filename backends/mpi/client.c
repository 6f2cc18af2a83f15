/* backends/mpi/client.c - whoever runs a command with --workers: rank 0 of a star, of which each
 * worker is another rank. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/mpi/link.h"
#include "core/base/clock.h"
#include "include/godwit_hosts.h"

enum { DEAD_SECONDS = 4, NAME = 80 };

static const double patience = 60.0; /* for a worker's drivers to say what devices there are */

/* "HOST:PORT", "[ADDRESS]:PORT". */
gw_status gw_mpi_split_address(const char *text, char host[80], char port[16]) {
    const char *colon = strrchr(text, ':');
    size_t n = colon != NULL ? (size_t)(colon - text) : 0, digits;
    int in_brackets = n > 2 && text[0] == '[' && text[n - 1] == ']';
    digits = colon != NULL ? strspn(colon + 1, "0123456789") : 0;
    if (n == 0 || n >= 80 || digits == 0 || digits > 5 || colon[1 + digits] != '\0' ||
        atoi(colon + 1) > 65535 || (!in_brackets && memchr(text, ':', n) != NULL)) {
        return gw_fail(GW_E_ARGUMENT, "mpi", "'%.80s' is not HOST:PORT", text);
    }
    snprintf(host, 80, "%.*s", (int)n - 2 * in_brackets, text + in_brackets);
    snprintf(port, 16, "%s", colon + 1);
    return GW_OK;
}

/* The first address of the host that answers. */
static gw_status reach(const char *text, const char *called, int *fd) {
    char host[80], port[16], numeric[64];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    GW_TRY(gw_mpi_split_address(text, host, port));
    int error = getaddrinfo(host, port, &hints, &list);
    if (error != 0) {
        return gw_fail(GW_E_DEVICE, "mpi", "%s is not found: %s", called, gai_strerror(error));
    }
    *fd = -1;
    for (const struct addrinfo *a = list; a != NULL && *fd < 0; a = a->ai_next) {
        if (getnameinfo(a->ai_addr, a->ai_addrlen, numeric, sizeof numeric, NULL, 0,
                        NI_NUMERICHOST) == 0) {
            errno = 0;
            *fd = gw_mpi_connect_to(numeric, atoi(port));
        }
    }
    freeaddrinfo(list);
    return *fd >= 0 ? GW_OK
                    : gw_fail(GW_E_DEVICE, "mpi", "%s cannot be reached: does 'godwit worker' run "
                                                  "there, and listen on that address?",
                              called);
}

static void end_text(char *text, size_t room) { text[room - 1] = '\0'; }

/* Who has the secret is trusted, and still no text of it is read beyond its end. */
static gw_status check_self(gw_mpi_self *self, const char *called) {
    end_text(self->host, sizeof self->host);
    end_text(self->error, sizeof self->error);
    for (int i = 0; i < GW_MPI_HELD; i++) {
        end_text(self->device[i].id, sizeof self->device[i].id);
        end_text(self->device[i].name, sizeof self->device[i].name);
        end_text(self->device[i].detail, sizeof self->device[i].detail);
    }
    if (self->error[0] != '\0') {
        return gw_fail(GW_E_DEVICE, "mpi", "%s: %s", called, self->error);
    }
    return self->n_devices >= 1 && self->n_devices <= GW_MPI_HELD
               ? GW_OK
               : gw_fail(GW_E_DEVICE, "mpi", "%s has %d devices", called, (int)self->n_devices);
}

static gw_status join(gw_mpi_other *p, const char *text, const gw_mpi_secret *secret) {
    snprintf(p->called, sizeof p->called, "worker %.80s", text);
    GW_TRY(reach(text, p->called, &p->fd));
    gw_mpi_set_options(p->fd, DEAD_SECONDS);
    GW_TRY(gw_mpi_prove(p->fd, secret, p->called));
    if (gw_mpi_get_before(p->fd, &p->self, sizeof p->self, gw_seconds_now() + patience) !=
        GW_OK) {
        return gw_fail(GW_E_DEVICE, "mpi", "%s has ended the connection", p->called);
    }
    return check_self(&p->self, p->called);
}

gw_status gw_hosts_connect(const char *workers, const void *secret, size_t secret_bytes) {
    const gw_mpi_secret known = {secret, secret_bytes};
    gw_mpi_net *all = gw_mpi_net_of();
    if (secret_bytes < GW_MPI_SECRET) {
        return gw_fail(GW_E_ARGUMENT, "mpi", "a secret has at least %d bytes", GW_MPI_SECRET);
    }
    if (all->n > 0) {
        return gw_fail(GW_E_ARGUMENT, "mpi", "this process has hosts already");
    }
    for (int r = 0; r < GW_MPI_RANKS; r++) {
        all->peers[r].fd = -1;
    }
    all->star = 1;
    all->n = 1;
    for (const char *at = workers;; at++) {
        char text[NAME + 1];
        size_t n = strcspn(at, ",");
        if (n == 0 || n > NAME || all->n == GW_MPI_RANKS) {
            return gw_fail(GW_E_ARGUMENT, "mpi",
                           "'%.80s': at most %d workers are named, as HOST:PORT,...", workers,
                           GW_MPI_RANKS - 1);
        }
        snprintf(text, sizeof text, "%.*s", (int)n, at);
        GW_TRY(join(&all->peers[all->n++], text, &known));
        at += n;
        if (*at == '\0') {
            return GW_OK;
        }
    }
}
