/* backends/hip/links.c - how fast the link between two cards is, as their driver says. */
#include <stdio.h>
#include <string.h>

#include "backends/hip/hip.h"
#include "core/base/hooks.h"

enum {
    PERFORMANCE_RANK = 1, /* cuDeviceGetP2PAttribute: 0 is the fastest        */
    NATIVE_ATOMICS = 3,   /* the same: NVLink has them, PCIe has not          */
    XGMI = 4,             /* hipExtGetLinkTypeAndHopCount: Infinity Fabric    */
    XGMI_IN_TABLE = 11,   /* the same in the table of AMD's kernel driver     */
    FASTEST = 1000,       /* without a bandwidth: less by the rank, or by hops */
    NODES_MOST = 64
};

/* ---- AMD: bandwidths -------------------------------------------------------------------------
 * The runtime tells links of one hop apart by nothing; the kernel driver's table has their
 * bandwidth (kfd_topology.c), which says that two halves of one package have four links and
 * neighbours one or two. */

/* The number behind `name` in one of the table's files; -1: none. */
static long long read_number(const char *path, const char *name) {
    FILE *f = fopen(path, "r");
    char key[64];
    long long value = -1, found = -1;
    while (f != NULL && found < 0 && fscanf(f, "%63s %lld", key, &value) == 2) {
        found = strcmp(key, name) == 0 ? value : found;
    }
    if (f != NULL) {
        fclose(f);
    }
    return found;
}

static const char *table(void) {
    const char *test = gw_hook("GODWIT_HIP_LINKS");
    return test != NULL && test[0] != '\0' ? test : "/sys/class/kfd/kfd/topology/nodes";
}

/* The node of the table that is the card; -1: not found. */
static int node_of(const struct gw_device *card) {
    unsigned domain, bus, slot, function;
    char id[32] = "", path[512];
    if (card->driver->PciBusId == NULL ||
        card->driver->PciBusId(id, sizeof id, card->id) != GW_HIP_OK ||
        sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
        return -1;
    }
    for (int node = 0; node < NODES_MOST; node++) {
        snprintf(path, sizeof path, "%.400s/%d/properties", table(), node);
        if (read_number(path, "simd_count") > 0 &&
            read_number(path, "domain") == (long long)domain &&
            read_number(path, "location_id") == (long long)(bus << 8 | slot << 3 | function)) {
            return node;
        }
    }
    return -1;
}

/* MB/s of the link; 0: not known. */
static int bandwidth(const struct gw_device *a, const struct gw_device *b) {
    int from = node_of(a), to = node_of(b);
    char path[512];
    for (int i = 0; from >= 0 && to >= 0 && i < NODES_MOST; i++) {
        snprintf(path, sizeof path, "%.400s/%d/io_links/%d/properties", table(), from, i);
        if (read_number(path, "node_to") == to && read_number(path, "type") == XGMI_IN_TABLE) {
            long long most = read_number(path, "max_bandwidth");
            return most > 0 && most < 1 << 30 ? (int)most : 0;
        }
    }
    return 0;
}

/* ---- both vendors ---------------------------------------------------------------------------- */

int gw_hip_link_rank(const struct gw_device *a, const struct gw_device *b) {
    const gw_hip_driver *d = a->driver;
    int can = 0, rank = 0, atomics = 0;
    uint32_t type = 0, hops = 0;
    if (b->driver != d || d->CanPeer == NULL || d->CanPeer(&can, a->id, b->id) != GW_HIP_OK ||
        !can) {
        return 0;
    }
    if (d->nvidia) {
        int known = d->PeerAttribute != NULL &&
                    d->PeerAttribute(&atomics, NATIVE_ATOMICS, a->id, b->id) == GW_HIP_OK &&
                    d->PeerAttribute(&rank, PERFORMANCE_RANK, a->id, b->id) == GW_HIP_OK;
        return !known || !atomics ? 0 : rank >= 0 && rank < FASTEST ? FASTEST - rank : 1;
    }
    if (d->PeerLink == NULL || d->PeerLink(a->id, b->id, &type, &hops) != GW_HIP_OK ||
        type != XGMI) {
        return 0;
    }
    int known = hops <= 1 ? bandwidth(a, b) : 0;
    return known > FASTEST ? known : FASTEST / (hops > 0 ? (int)hops : 1);
}
