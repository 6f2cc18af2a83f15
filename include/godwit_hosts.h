/* include/godwit_hosts.h - the part of godwit.h for one model over the processes of an MPI job, or
 * over workers that were started on their own, on one host or many (docs/hosts.md); it comes with
 * godwit.h, and only so.
 *
 * Every process calls gw_hosts_join first. Rank 0 then uses the library as ever: the devices of the
 * others are "mpi:0", "mpi:1", ... for it. The others call gw_hosts_serve and compute what rank 0
 * asks for. All call gw_hosts_leave before they end. From one thread.
 */
#ifndef GODWIT_HOSTS_H
#define GODWIT_HOSTS_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Processes of the job that this one was started in, by the environment alone; 1: it is alone. */
int gw_hosts_asked(void);

/* device: what this process computes on, as in --device ("cpu", "hip:0,hip:1"); NULL, "auto": the
 * first graphics card, else the CPU; threads as in gw_model_options; both are not read of rank 0.
 * *cancel, looked at while gw_hosts_serve waits; may be NULL. Waits for all others.
 *   GW_E_UNSUPPORTED  the job is not one of Open MPI, its library is not here, or the processes run
 *                     different builds
 *   GW_E_DEVICE       a process was lost, MPI does not start, or some rank has no such device */
gw_status gw_hosts_join(const char *device, int threads, const volatile int *cancel, int *rank);

/* Ranks but 0: until rank 0 leaves. GW_E_DEVICE: a process was lost; GW_E_CANCELLED. */
gw_status gw_hosts_serve(void);

/* Instead of gw_hosts_join, without a launcher: this process is rank 0, and each of the workers,
 * "HOST:PORT,..." (gw_worker_run), another rank. secret: what all of them were started with, 16
 * bytes or more; it is not sent, and the connections are not encrypted.
 *   GW_E_ARGUMENT     the list or the secret
 *   GW_E_UNSUPPORTED  a worker is another build, or of the other byte order
 *   GW_E_DEVICE       a worker is not reached, refuses, serves another client or has no device */
gw_status gw_hosts_connect(const char *workers, const void *secret, size_t secret_bytes);

typedef struct gw_worker_options {
    const char *listen; /* "HOST:PORT"; port 0: any that is free */
    const void *secret;
    size_t secret_bytes;
    const char *device; /* both as for gw_hosts_join */
    int threads;
    const char *keep_folder; /* where weights stay from one client to the next; NULL: nowhere */
    uint64_t keep;           /* bytes there at most; what was used longest ago goes; 0: none */
    const volatile int *cancel;
    /* Lines for people, also from the processes of clients; may be NULL. */
    void (*say)(void *user, const char *line);
    void *user;
} gw_worker_options;

/* Serves one client after the other, each in a process that it forks, until *cancel: from a process
 * with one thread that has opened no device. Who has the secret may use this process' devices and
 * memory as its own. GW_E_ARGUMENT, GW_E_IO, GW_E_DEVICE: no such device here */
gw_status gw_worker_run(const gw_worker_options *options);

/* Rank 0: the device list `device` (NULL, "auto": as above) followed by those of all other ranks;
 * one that names "mpi" itself, and every list of a process that is alone, stays. GW_E_LIMIT: it
 * does not fit. */
gw_status gw_hosts_devices(const char *device, char *out, size_t room);

/* Ends what gw_hosts_join began; models must be freed. told_to_end: a signal has come: finds out
 * whether it came because a process of the job was lost. What was lost, in words; "": none was. */
const char *gw_hosts_leave(int told_to_end);

#ifdef __cplusplus
}
#endif

#endif
