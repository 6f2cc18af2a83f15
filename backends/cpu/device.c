/* backends/cpu/device.c - the "cpu" backend: opening the thread team, and the function table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/roof.h"
#include "core/base/os_threads.h"

enum { SPINS = 1500 }; /* polls of a barrier, some 50 us, before the processor is given away */

static int device_count(void) { return 1; }

static void close_device(struct gw_device *device) {
    if (device != NULL) {
        gw_cpu_end_readings(device);
        gw_kernel_list_free(&device->kernels);
        free(device->rows);
        free(device);
    }
}

/* The workers are there before anything is loaded. */
static gw_status start_threads(int n) {
    int error, started = gw_team_prepare(n, &error);
    return started == n ? GW_OK
                        : gw_fail(GW_E_NOMEM, "threads", "only %d of %d could be started: %s",
                                  started, n, strerror(error));
}

static gw_status refuse_level(const char *name) {
    char levels[80] = "scalar";
    for (int i = GW_CPU_SCALAR + 1; i < GW_CPU_LEVEL_COUNT; i++) {
        size_t n = strlen(levels);
        if (gw_cpu_level_runs((gw_cpu_level)i)) {
            snprintf(levels + n, sizeof levels - n, ", %s", gw_cpu_level_name((gw_cpu_level)i));
        }
    }
    return gw_fail(GW_E_ARGUMENT, "GODWIT_CPU",
                   "%.40s names no instruction set of this processor, which has %s", name, levels);
}

static gw_status fill_device(struct gw_device *device, const gw_device_options *options) {
    const char *bad;
    uint64_t total;
    int wish = options != NULL ? options->threads : 0;
    if (wish < 0 || wish > GW_CPU_MAX_THREADS) {
        return gw_fail(GW_E_ARGUMENT, "threads", "%d is not in 1..%d", wish, GW_CPU_MAX_THREADS);
    }
    device->level = gw_cpu_level_choose(&bad);
    if (bad != NULL) {
        return refuse_level(bad);
    }
    device->threads = wish > 0 ? wish : gw_cpu_default_threads();
    device->spins = device->threads <= gw_cpu_usable_processors() ? SPINS : 20;
    gw_cpu_memory(&total, &device->memory_at_open);
    device->blas_wanted = options != NULL && options->blas;
    device->blas = device->blas_wanted ? gw_cpu_blas_open() : NULL;
    GW_TRY(start_threads(device->threads));
    return gw_cpu_list_kernels(device);
}

static gw_status open_device(int ordinal, const gw_device_options *options,
                             struct gw_device **out) {
    if (ordinal != 0) {
        return gw_fail(GW_E_ARGUMENT, "cpu", "there is no device %d", ordinal);
    }
    struct gw_device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        return gw_fail(GW_E_NOMEM, "cpu", "no memory for a device");
    }
    gw_status status = fill_device(device, options);
    if (status != GW_OK) {
        close_device(device);
        return status;
    }
    *out = device;
    return GW_OK;
}

static void describe(const struct gw_device *device, int ordinal, gw_device_info *out) {
    (void)ordinal; /* there is one */
    const char *bad;
    char model[80];
    gw_cpu_level level = device != NULL ? device->level : gw_cpu_level_choose(&bad);
    memset(out, 0, sizeof *out);
    out->threads = device != NULL ? device->threads : gw_cpu_default_threads();
    gw_cpu_memory(&out->memory_bytes, &out->free_bytes);
    gw_cpu_model_name(model, sizeof model);
    snprintf(out->id, sizeof out->id, "cpu");
    snprintf(out->name, sizeof out->name, "%s, %s", model[0] ? model : "processor",
             gw_cpu_level_name(level));
    snprintf(out->detail, sizeof out->detail, "%s, %d thread%s, %d usable processor%s%s",
             gw_cpu_level_name(level), out->threads, out->threads == 1 ? "" : "s",
             gw_cpu_usable_processors(), gw_cpu_usable_processors() == 1 ? "" : "s",
             device != NULL && device->blas != NULL ? ", OpenBLAS" : "");
}

static const char *note(const struct gw_device *device) {
    return device->blas_wanted && device->blas == NULL
               ? "--blas without OpenBLAS on the cpu: libopenblas.so.0 cannot be opened; godwit's "
                 "own kernels multiply there"
               : "";
}

static gw_status check_range(const struct gw_buffer *buffer, size_t at, size_t bytes) {
    size_t end;
    if (__builtin_add_overflow(at, bytes, &end) || end > buffer->bytes) {
        return gw_fail(GW_E_BOUNDS, "cpu", "bytes %zu to %zu of a buffer of %zu", at, at + bytes,
                       buffer->bytes);
    }
    return GW_OK;
}

static gw_status write_buffer(struct gw_buffer *dst, size_t at, const void *src, size_t bytes) {
    GW_TRY(check_range(dst, at, bytes));
    if (dst->mapped == 0) {
        return gw_fail(GW_E_ARGUMENT, "cpu", "a weight that aliases a file cannot be written");
    }
    memcpy(dst->data + at, src, bytes);
    return GW_OK;
}

static gw_status read_buffer(const struct gw_buffer *src, size_t at, void *dst, size_t bytes) {
    GW_TRY(check_range(src, at, bytes));
    memcpy(dst, src->data + at, bytes);
    return GW_OK;
}

static void *host_address(const struct gw_buffer *buffer) { return buffer->data; }

static const gw_kernel *list(const struct gw_device *device, size_t *count) {
    *count = device->kernels.n;
    return device->kernels.at;
}

static gw_status wait_device(struct gw_device *device) {
    (void)device;
    return GW_OK; /* run() ends when the work has */
}

static void name_arithmetic(const struct gw_device *device, const gw_node *node, char *out) {
    (void)device;
    snprintf(out, GW_ARITHMETIC_BYTES, "%s", gw_cpu_row_of(node->kernel)->blas ? "openblas" : "");
}

static void observe(struct gw_device *device, gw_observe_fn fn, void *user) {
    device->observe = fn;
    device->observe_user = user;
}

const gw_backend gw_backend_cpu = {.name = "cpu",
                                   .device_count = device_count,
                                   .open = open_device,
                                   .close = close_device,
                                   .describe = describe,
                                   .note = note,
                                   .arithmetic = name_arithmetic,
                                   .alloc = gw_cpu_alloc,
                                   .release = gw_cpu_release,
                                   .write = write_buffer,
                                   .read = read_buffer,
                                   .host = host_address,
                                   .load_weight = gw_cpu_load_weight,
                                   .size_weight = gw_cpu_size_weight,
                                   .kernels = list,
                                   .freeze = gw_cpu_freeze,
                                   .run = gw_cpu_run,
                                   .wait = wait_device,
                                   .segment_free = gw_cpu_segment_free,
                                   .profile = gw_cpu_profile,
                                   .roof = gw_cpu_measure_roof,
                                   .read_memory = gw_cpu_read_memory,
                                   .observe = observe};
