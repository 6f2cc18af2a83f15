/* include/godwit_hosts.h - the part of godwit.h for one model over the processes of an MPI job, on
 * one host or many (docs/hosts.md); it comes with godwit.h, and only so.
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
