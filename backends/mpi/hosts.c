/* backends/mpi/hosts.c - joining and leaving a job of several processes (godwit_hosts.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/mpi/mpi.h"
#include "include/godwit_hosts.h"

static int threads_of_job;

static int number_in(const char *name) {
    const char *text = getenv(name);
    long n = text != NULL ? strtol(text, NULL, 10) : 0;
    return n > 0 && n < 1 << 20 ? (int)n : 0;
}

/* Open MPI's launcher says so; those of MPICH and its kin set PMI_SIZE. */
int gw_hosts_asked(void) {
    int n = number_in("OMPI_COMM_WORLD_SIZE");
    n = n > 0 ? n : number_in("PMI_SIZE");
    return n > 1 ? n : 1;
}

static void describe_self(const char *device, int rank, gw_mpi_self *self) {
    memset(self, 0, sizeof *self);
    gw_mpi_build(self->build);
    if (gethostname(self->host, sizeof self->host - 1) != 0) {
        snprintf(self->host, sizeof self->host, "unknown");
    }
    if (rank != 0 && gw_mpi_held(device, self) != GW_OK) {
        snprintf(self->error, sizeof self->error, "%s", gw_error_text());
    }
}

gw_status gw_hosts_join(const char *device, int threads, const volatile int *cancel, int *rank) {
    gw_mpi_self self;
    *rank = number_in("OMPI_COMM_WORLD_RANK") + number_in("PMI_RANK");
    if (number_in("OMPI_COMM_WORLD_SIZE") == 0) {
        return gw_fail(GW_E_UNSUPPORTED, "mpi",
                       "started by a launcher that is not Open MPI's (PMI_SIZE is set); use the "
                       "mpirun of Open MPI (Debian: openmpi-bin)");
    }
    threads_of_job = threads;
    describe_self(device, *rank, &self);
    GW_TRY(gw_mpi_link_open(&self));
    *rank = gw_mpi_rank();
    gw_mpi_cancel_by(*rank != 0 ? cancel : NULL);
    for (int r = 1; r < gw_mpi_ranks(); r++) {
        if (gw_mpi_peer(r)->error[0] != '\0') {
            return gw_fail(GW_E_DEVICE, "mpi", "rank %d: %s", r, gw_mpi_peer(r)->error);
        }
    }
    return GW_OK;
}

gw_status gw_hosts_serve(void) { return gw_mpi_serve(threads_of_job); }

/* The device of a rank that names none. */
static void any_device(char *out, size_t room) {
    gw_device_info info;
    snprintf(out, room, "cpu");
    for (size_t i = 1; gw_backends[i] != NULL; i++) {
        const gw_backend *b = gw_backends[i];
        int ordinal = 0;
        int n = b->cards != NULL ? b->cards(&ordinal, 1) : b->by_name_only ? 0 : b->device_count();
        if (n > 0) {
            b->describe(NULL, ordinal, &info);
            snprintf(out, room, "%s", info.id);
            return;
        }
    }
}

gw_status gw_hosts_devices(const char *device, char *out, size_t room) {
    char own[64] = "auto";
    int any = device == NULL || strcmp(device, "auto") == 0, others = 0;
    for (int r = 1; r < gw_mpi_ranks(); r++) {
        others += gw_mpi_peer(r)->n_devices;
    }
    if (any && others > 0) {
        any_device(own, sizeof own);
    }
    int used = snprintf(out, room, "%s", any ? own : device);
    int named = !any && strstr(device, "mpi") != NULL;
    for (int i = 0; i < others && !named && used >= 0 && (size_t)used < room; i++) {
        used += snprintf(out + used, room - (size_t)used, ",mpi:%d", i);
    }
    return used >= 0 && (size_t)used < room
               ? GW_OK
               : gw_fail(GW_E_LIMIT, "device", "a list of devices of more than %zu bytes", room);
}

const char *gw_hosts_leave(int told_to_end) {
    static const double settle = 0.6;
    const char *lost = gw_mpi_lost(told_to_end ? settle : 0.0);
    for (int r = 1; gw_mpi_rank() == 0 && r < gw_mpi_ranks() && lost[0] == '\0'; r++) {
        gw_wire w = {.at = NULL};
        gw_wire_put_number(&w, GW_MPI_END);
        gw_wire_put_number(&w, 0);
        (void)gw_mpi_send(r, &w);
    }
    gw_mpi_link_close();
    return lost;
}
