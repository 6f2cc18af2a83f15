/* tests/twin_device.h - a second device: the CPU backend under another name, with two ordinals,
 * faults that a case can turn on, and what was allocated and loaded. */
#ifndef GW_TESTS_TWIN_DEVICE_H
#define GW_TESTS_TWIN_DEVICE_H

#include <stdio.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/engine/run/model_state.h"

extern const gw_backend gw_backend_cpu;
extern const gw_backend gw_backend_ref;

static struct {
    struct gw_device *open[2];
    int declined;              /* an op without kernel; -1: none              */
    int declined_cache;        /* only for this format of cache; -1: any      */
    int hidden;                /* its memory is not the host's                */
    int fail_alloc, fail_open; /* the k-th from now; 0: never                 */
    uint64_t memory, allocated, loaded;
} twin;

static int twin_count(void) { return 2; }

static gw_status twin_open(int ordinal, const gw_device_options *options, struct gw_device **out) {
    if (twin.fail_open) {
        return gw_fail(GW_E_DEVICE, "twin", "made to fail");
    }
    GW_TRY(gw_backend_cpu.open(0, options, out));
    twin.open[ordinal] = *out;
    if (twin.open[1 - ordinal] == *out) { /* closed since, and its place taken */
        twin.open[1 - ordinal] = NULL;
    }
    return GW_OK;
}

static void twin_describe(const struct gw_device *device, int ordinal, gw_device_info *out) {
    gw_backend_cpu.describe(device, 0, out);
    ordinal = device != NULL ? device == twin.open[1] : ordinal;
    snprintf(out->id, sizeof out->id, "twin:%d", ordinal);
    snprintf(out->name, sizeof out->name, "Second Processor %c", 'A' + ordinal);
    out->memory_bytes = out->free_bytes = twin.memory;
}

static gw_status twin_alloc(struct gw_device *device, size_t bytes, struct gw_buffer **out) {
    if (twin.fail_alloc > 0 && --twin.fail_alloc == 0) {
        return gw_fail(GW_E_NOMEM, "twin", "refused %zu bytes (simulated)", bytes);
    }
    twin.allocated += bytes;
    return gw_backend_cpu.alloc(device, bytes, out);
}

static gw_status twin_load(struct gw_device *device, gw_tensor *t, const gw_weight_source *src) {
    if (twin.fail_alloc > 0 && --twin.fail_alloc == 0) {
        return gw_fail(GW_E_NOMEM, "twin", "refused a weight (simulated)");
    }
    GW_TRY(gw_backend_cpu.load_weight(device, t, src));
    twin.loaded += t->buf->bytes;
    return GW_OK;
}

static void *twin_host(const struct gw_buffer *buffer) {
    return twin.hidden ? NULL : gw_backend_cpu.host(buffer);
}

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    int any = twin.declined_cache < 0 || node->op != GW_OP_ATTENTION ||
              (int)node->in[1]->fmt == twin.declined_cache;
    if ((int)node->op == twin.declined && any) {
        return 0;
    }
    const gw_kernel *own = kernel->state;
    return own->accepts(own, node, device);
}

static gw_status record(struct gw_segment *segment, const gw_kernel *kernel, const gw_node *node) {
    const gw_kernel *own = kernel->state;
    return own->record(segment, own, node);
}

enum { MOST_KERNELS = 1024 };
static gw_kernel kernels[MOST_KERNELS];

static const gw_kernel *twin_kernels(const struct gw_device *device, size_t *count) {
    const gw_kernel *own = gw_backend_cpu.kernels(device, count);
    for (size_t i = 0; i < *count && i < MOST_KERNELS; i++) {
        kernels[i] = own[i];
        kernels[i].accepts = accepts;
        kernels[i].record = record;
        kernels[i].state = &own[i];
    }
    return kernels;
}

static gw_backend backend;
static const gw_backend *const registry[] = {&gw_backend_cpu, &backend, &gw_backend_ref, NULL};

static int reset(void **state) {
    (void)state;
    memset(&twin, 0, sizeof twin);
    twin.declined = twin.declined_cache = -1;
    twin.memory = (uint64_t)4 << 30;
    backend = gw_backend_cpu;
    backend.name = "twin";
    backend.device_count = twin_count;
    backend.open = twin_open;
    backend.describe = twin_describe;
    backend.alloc = twin_alloc;
    backend.load_weight = twin_load;
    backend.host = twin_host;
    backend.kernels = twin_kernels;
    return 0;
}

#endif
