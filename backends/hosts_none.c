/* backends/hosts_none.c - see include/godwit_hosts.h, on systems without backends/mpi. */
#include <stdio.h>

#include "core/base/status.h"
#include "include/godwit_hosts.h"

static gw_status refuse(void) {
    return gw_fail(GW_E_UNSUPPORTED, "hosts",
                   "several machines work together on Linux alone");
}

int gw_hosts_asked(void) { return 0; }

gw_status gw_hosts_join(const char *device, int threads, const volatile int *cancel, int *rank) {
    (void)device, (void)threads, (void)cancel, (void)rank;
    return refuse();
}

gw_status gw_hosts_serve(void) { return refuse(); }

gw_status gw_hosts_connect(const char *workers, const void *secret, size_t secret_bytes) {
    (void)workers, (void)secret, (void)secret_bytes;
    return refuse();
}

gw_status gw_worker_run(const gw_worker_options *options) {
    (void)options;
    return refuse();
}

gw_status gw_hosts_devices(const char *device, char *out, size_t room) {
    int used = snprintf(out, room, "%s", device != NULL ? device : "auto");
    return used >= 0 && (size_t)used < room
               ? GW_OK
               : gw_fail(GW_E_LIMIT, "device", "a list of %d bytes does not fit", used);
}

const char *gw_hosts_leave(int told_to_end) {
    (void)told_to_end;
    return "";
}
