/* backends/hip/roof.c - measures how fast a device reads its memory (kernels_hip/roof.hip). */
#include <string.h>

#include "backends/hip/hip.h"
#include "kernels_hip/roof_params.h"

enum { TRIALS = 7 };

static const size_t most = (size_t)4 << 30;     /* bytes: far more than any cache       */
static const size_t emulated = (size_t)1 << 20; /* of the tests, where time means nothing */

/* A multiple of what one round of the grid reads. */
static size_t bytes_to_read(const struct gw_device *device, size_t round) {
    size_t unused = 0, total = 0, bytes = device->driver->emulated ? emulated : most;
    if (device->driver->MemInfo(&unused, &total) == GW_HIP_OK && bytes > unused / 4) {
        bytes = unused / 4;
    }
    return bytes > round ? bytes / round * round : round;
}

static gw_status read_once(struct gw_device *device, const gw_hip_launch *l,
                           const gw_hip_event between[2], double *seconds) {
    const gw_hip_driver *d = device->driver;
    float ms = 0.0f;
    gw_hip_error error = d->EventRecord(between[0], device->stream);
    error = error == GW_HIP_OK ? gw_hip_start(device, l, 0, GW_HIP_ATTEND_MANY) : error;
    error = error == GW_HIP_OK ? d->EventRecord(between[1], device->stream) : error;
    error = error == GW_HIP_OK ? d->StreamWait(device->stream) : error;
    error = error == GW_HIP_OK ? d->EventTime(&ms, between[0], between[1]) : error;
    *seconds = 1e-3 * (double)ms;
    return error == GW_HIP_OK ? GW_OK : gw_hip_lose(device, error, "its memory was measured");
}

static gw_status measure(struct gw_device *device, struct gw_buffer **buffer,
                         gw_hip_event between[2], gw_roof *out) {
    struct gw_roof_params p = {.never = 1};
    gw_hip_launch l = {.kernel = "gw_roof_read", .params = &p, .block = {GW_ROOF_THREADS, 1, 1}};
    int resident = gw_hip_resident(device, l.kernel, GW_ROOF_THREADS, 0);
    l.grid[0] = (unsigned)(device->units > 0 ? device->units * resident : resident);
    l.grid[1] = l.grid[2] = 1;
    p.bytes = bytes_to_read(device, (size_t)l.grid[0] * GW_ROOF_PIECE);
    GW_TRY(gw_hip_find(device, l.kernel, &l.function));
    GW_TRY(gw_hip_alloc(device, (size_t)p.bytes + 4 * GW_ROOF_THREADS, buffer));
    p.from = (*buffer)->at;
    p.out = (*buffer)->at + p.bytes;
    for (int i = 0; i < 2; i++) {
        GW_TRY(gw_hip_check(device->driver, device->driver->EventNew(&between[i], 0),
                            "creating an event"));
    }
    for (int i = 0; i < TRIALS; i++) {
        double seconds = 0.0;
        GW_TRY(read_once(device, &l, between, &seconds));
        double rate = seconds > 0.0 ? 1e-9 * (double)p.bytes / seconds : 0.0;
        out->read_gbps = rate > out->read_gbps ? rate : out->read_gbps;
    }
    return GW_OK;
}

gw_status gw_hip_roof(struct gw_device *device, gw_roof *out) {
    gw_roof roof = {0};
    gw_hip_event between[2] = {NULL, NULL};
    struct gw_buffer *buffer = NULL;
    GW_TRY(gw_hip_enter(device));
    if (device->lost) {
        return gw_fail(GW_E_DEVICE, "hip", "%s was lost earlier", device->name);
    }
    gw_status status = measure(device, &buffer, between, &roof);
    for (int i = 0; i < 2; i++) {
        if (between[i] != NULL) {
            device->driver->EventFree(between[i]);
        }
    }
    gw_hip_release(buffer);
    if (status == GW_OK) {
        *out = roof;
    }
    return status;
}
