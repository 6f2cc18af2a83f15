/* backends/mpi/link.h - what messages (link.c) and those who bring ranks together (meet.c,
 * worker.c, client.c) share. */
#ifndef GW_BACKENDS_MPI_LINK_H
#define GW_BACKENDS_MPI_LINK_H

#include "backends/mpi/mpi.h"

enum { GW_MPI_TRY_MS = 3000, GW_MPI_LOOK_MS = 200 };

typedef struct gw_mpi_other {
    gw_mpi_self self;
    char called[96]; /* "rank 1", "worker HOST:PORT" */
    int fd;          /* -1: it is not spoken to      */
    int left;        /* it has said that nothing follows */
} gw_mpi_other;

typedef struct gw_mpi_net {
    int n, rank, listens;
    int star; /* rank 0 speaks to each, and they to nobody else */
    double grace; /* seconds from *cancel to the end */
    const volatile int *cancel;
    double told;            /* when *cancel was first seen; 0: not yet */
    void (*finalize)(void); /* MPI's own end, where no rank was lost; NULL: none */
    gw_mpi_other peers[GW_MPI_RANKS];
    char lost[320];
} gw_mpi_net;

/* The one of this process. */
gw_mpi_net *gw_mpi_net_of(void);
/* GW_E_DEVICE: a rank was lost; GW_E_CANCELLED: told to end, some seconds ago. */
gw_status gw_mpi_may_go_on(void);
gw_status gw_mpi_send_all(int to, const void *bytes, size_t n);
/* client.c. "HOST:PORT", "[ADDRESS]:PORT". GW_E_ARGUMENT */
gw_status gw_mpi_split_address(const char *text, char host[80], char port[16]);
/* A numeric address; -1: not reached within GW_MPI_TRY_MS. */
int gw_mpi_connect_to(const char *address, int port);
/* A peer that does not answer for so many seconds is lost. */
void gw_mpi_set_options(int fd, int seconds);

#endif
