/* backends/hip/device.c - finding, opening and describing devices; the function table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/hip/hip.h"
#include "core/base/switches.h"

/* A layer has four exchanges among some ten to twenty launches; a queue takes about a thousand. */
enum { PART_EXCHANGES = 32 };
enum { PROPERTIES_BYTES = 16384, CARVING = 13000 /* version of the driver */ };

/* ---- finding --------------------------------------------------------------------------------- */

/* The driver of a device, and its number there; NULL when there are not so many. */
static const gw_hip_driver *driver_of(int ordinal, int *index) {
    int n = 0;
    const gw_hip_driver *drivers = gw_hip_drivers(&n, NULL);
    for (int i = 0; i < n && ordinal >= 0; i++) {
        if (ordinal < drivers[i].n_devices) {
            *index = ordinal;
            return &drivers[i];
        }
        ordinal -= drivers[i].n_devices;
    }
    return NULL;
}

static int device_count(void) {
    int n = 0, count = 0;
    const gw_hip_driver *drivers = gw_hip_drivers(&n, NULL);
    for (int i = 0; i < n; i++) {
        count += drivers[i].n_devices;
    }
    return count;
}

/* AMD's name of the processor, "gfx90a": the structure that holds it differs between releases, so
 * the text is looked for. */
static void processor_name(const gw_hip_driver *d, int id, char *out, size_t room) {
    char *bytes = calloc(1, PROPERTIES_BYTES + 1);
    gw_hip_error error = GW_HIP_NOT_FOUND;
    snprintf(out, room, "unknown");
    if (bytes != NULL && d->Properties != NULL) {
        error = d->Properties(bytes, id);
    } else if (bytes != NULL && d->OldProperties != NULL) {
        error = d->OldProperties(bytes, id);
    }
    for (size_t i = 256; error == GW_HIP_OK && i + 6 < PROPERTIES_BYTES; i++) {
        if (memcmp(bytes + i, "gfx", 3) == 0) {
            size_t n = strcspn(bytes + i, ":");
            snprintf(out, room, "%.*s", (int)(n < 16 ? n : 16), bytes + i);
            break;
        }
    }
    free(bytes);
}

/* What can be known of a device without opening it. */
static int look(int ordinal, struct gw_device *d) {
    int index = 0;
    d->driver = driver_of(ordinal, &index);
    d->ordinal = ordinal;
    if (d->driver == NULL || d->driver->DeviceGet(&d->id, index) != GW_HIP_OK) {
        return 0;
    }
    if (d->driver->DeviceName(d->name, (int)sizeof d->name, d->id) != GW_HIP_OK) {
        snprintf(d->name, sizeof d->name, "unknown");
    }
    d->name[sizeof d->name - 1] = '\0';
    if (d->driver->DeviceMemory(&d->memory, d->id) != GW_HIP_OK) {
        d->memory = 0;
    }
    d->warp = gw_hip_attribute_of(d->driver, d->id, GW_HIP_WARP);
    d->units = gw_hip_attribute_of(d->driver, d->id, GW_HIP_UNITS);
    d->shared_bytes = gw_hip_attribute_of(d->driver, d->id, GW_HIP_SHARED_BYTES);
    if (d->driver->emulated) {
        snprintf(d->arch, sizeof d->arch, "emulator");
    } else if (d->driver->nvidia) {
        d->capability = 10 * gw_hip_attribute_of(d->driver, d->id, GW_HIP_MAJOR) +
                        gw_hip_attribute_of(d->driver, d->id, GW_HIP_MINOR);
        snprintf(d->arch, sizeof d->arch, "sm_%d", d->capability);
    } else {
        processor_name(d->driver, d->id, d->arch, sizeof d->arch);
    }
    return 1;
}

/* ---- opening --------------------------------------------------------------------------------- */

gw_status gw_hip_choose(const struct gw_device *device) {
    const gw_hip_driver *d = device->driver;
    return gw_hip_check(d, d->nvidia ? d->ContextSet(device->context) : d->SetDevice(device->id),
                        "choosing a device");
}

gw_status gw_hip_enter(const struct gw_device *device) {
    GW_TRY(device->link != NULL ? gw_hip_launch_waiting(device) : GW_OK);
    return gw_hip_choose(device);
}

gw_status gw_hip_lose(struct gw_device *device, gw_hip_error error, const char *what) {
    device->lost = 1;
    return gw_fail(GW_E_DEVICE, "hip", "%s was lost while %s: %s", device->name, what,
                   gw_hip_error_name(device->driver, error));
}

/* GODWIT_HIP, for tests, comma-separated: no-graph, no-fuse (launches of its own for every
 * node), no-block (attention of few pages by pages on their own), no-pages (that by
 * groups of them, where they have a kernel), no-group (prompts without matrix
 * instructions of four waves), no-send (exchanges send, not products in front), early (they do
 * not await the end of products that send), flags (exchanges of many rows send words without
 * numbers, and flags), check (no graph, and the end of every launch is
 * awaited), compile (not the code of the build), code=75 (compile as for an older processor, sm_75,
 * and launch so), option=TEXT (one more for the compiler), part=N (exchanges in one graph),
 * fail-alloc=K, fail-launch=K, fail-build=K. */
#define AT(field) offsetof(struct gw_device, field)
static const gw_switch switches[] = {
    {"no-graph", GW_SWITCH_SET, AT(no_graph), 1, 0},
    {"no-fuse", GW_SWITCH_SET, AT(no_fuse), 1, 0},
    {"no-block", GW_SWITCH_SET, AT(no_block), 1, 0},
    {"no-pages", GW_SWITCH_SET, AT(no_pages), 1, 0},
    {"no-group", GW_SWITCH_SET, AT(no_group), 1, 0},
    {"no-send", GW_SWITCH_SET, AT(send), 0, 0},
    {"early", GW_SWITCH_SET, AT(early), 1, 0},
    {"flags", GW_SWITCH_SET, AT(flags), 1, 0},
    {"check", GW_SWITCH_SET, AT(check), 1, 0},
    {"check", GW_SWITCH_SET, AT(no_graph), 1, 0},
    {"compile", GW_SWITCH_SET, AT(compile), 1, 0},
    {"code=", GW_SWITCH_SET, AT(compile), 1, 0},
    {"code=", GW_SWITCH_INT, AT(older), 50, 999},
    {"option=", GW_SWITCH_SET, AT(compile), 1, 0},
    {"option=", GW_SWITCH_TEXT, AT(option), 0, 0},
    {"part=", GW_SWITCH_INT, AT(part), 1, 999999},
    {"fail-build=", GW_SWITCH_SET, AT(compile), 1, 0},
    {"fail-build=", GW_SWITCH_INT, AT(fail_build), 1, 999999},
    {"fail-alloc=", GW_SWITCH_INT, AT(fail_alloc), 1, 999999},
    {"fail-launch=", GW_SWITCH_INT, AT(fail_launch), 1, 999999},
};
#undef AT

static gw_status fill_device(struct gw_device *d) {
    if (d->warp != 32 && d->warp != 64) {
        return gw_fail(GW_E_UNSUPPORTED, "hip", "%s runs %d threads together; 32 or 64 are known",
                       d->name, d->warp);
    }
    if (d->driver->nvidia) {
        GW_TRY(gw_hip_check(d->driver, d->driver->ContextRetain(&d->context, d->id),
                            "opening a device"));
    }
    GW_TRY(gw_hip_enter(d));
    GW_TRY(gw_hip_check(d->driver, d->driver->StreamNew(&d->stream, GW_HIP_STREAM_NON_BLOCKING),
                        "creating a stream"));
    GW_TRY(gw_hip_programs_open(d));
    int version = 0;
    d->has_carve_out = d->driver->emulated
                           ? d->processor->matrix == GW_MATRIX_MMA
                           : d->programmatic && d->driver->DriverVersion(&version) == GW_HIP_OK &&
                                 version >= CARVING;
    return gw_hip_list_kernels(d);
}

static void close_device(struct gw_device *d) {
    if (d == NULL) {
        return;
    }
    if (d->stream != NULL) {
        (void)gw_hip_enter(d);
    }
    gw_hip_ring_free(d);
    gw_hip_packing_free(d);
    gw_hip_slots_free(d);
    if (d->landing != NULL) {
        d->driver->HostFree(d->landing);
    }
    gw_hip_programs_free(d);
    for (size_t i = 0; i < d->n_scratch; i++) {
        gw_hip_memory_free(d, d->scratch[i].at, d->scratch[i].bytes);
    }
    for (size_t i = 0; i < d->n_unpacked; i++) {
        gw_hip_memory_free(d, d->unpacked[i].at, d->unpacked[i].bytes);
    }
    if (d->mark != NULL) {
        d->driver->EventFree(d->mark);
    }
    if (d->stream != NULL) {
        d->driver->StreamFree(d->stream);
    }
    if (d->context != NULL) {
        d->driver->ContextRelease(d->id);
    }
    free(d->scratch);
    free(d->unpacked);
    free(d->kernels);
    free(d);
}

static gw_status open_device(int ordinal, const gw_device_options *options,
                             struct gw_device **out) {
    const char *why = "no driver";
    int drivers = 0, count = device_count();
    gw_hip_drivers(&drivers, &why);
    if (count == 0) {
        return gw_fail(GW_E_DEVICE, "hip", "%s", why);
    }
    if (ordinal < 0 || ordinal >= count) {
        return gw_fail(GW_E_ARGUMENT, "hip", "device %d is not one of the %d found", ordinal,
                       count);
    }
    struct gw_device *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a device");
    }
    d->exact = options != NULL && options->exact;
    d->part = PART_EXCHANGES;
    d->send = 1;
    gw_status status =
        look(ordinal, d)
            ? gw_switches_read("GODWIT_HIP", switches, sizeof switches / sizeof switches[0], d)
            : gw_fail(GW_E_DEVICE, "hip", "device %d does not answer", ordinal);
    d->no_graph |= options != NULL && options->no_graph;
    if (status == GW_OK) {
        status = fill_device(d);
    }
    if (status != GW_OK) {
        close_device(d);
        return status;
    }
    *out = d;
    return GW_OK;
}

/* ---- describing ------------------------------------------------------------------------------ */

static void describe(const struct gw_device *device, int ordinal, gw_device_info *out) {
    struct gw_device seen = {0};
    int version = 0;
    ordinal = device != NULL ? device->ordinal : ordinal;
    memset(out, 0, sizeof *out);
    snprintf(out->id, sizeof out->id, "hip:%d", ordinal);
    if (!look(ordinal, &seen)) {
        return;
    }
    size_t unused = 0, total = 0;
    seen.driver->DriverVersion(&version);
    snprintf(out->name, sizeof out->name, "%s", seen.name);
    snprintf(out->detail, sizeof out->detail, "%s, %d %s of %d lanes, driver version %d of %.100s",
             seen.arch, seen.units, seen.driver->nvidia ? "multiprocessors" : "compute units",
             seen.warp, version, seen.driver->library);
    out->memory_bytes = seen.memory;
    out->free_bytes = seen.memory;
    out->threads = seen.units;
    if (device != NULL && gw_hip_enter(device) == GW_OK &&
        seen.driver->MemInfo(&unused, &total) == GW_HIP_OK) {
        out->free_bytes = unused;
    }
}

static void *host_address(const struct gw_buffer *buffer) {
    (void)buffer;
    return NULL;
}

static const gw_kernel *list(const struct gw_device *device, size_t *count) {
    *count = device->n_kernels;
    return device->kernels;
}

const gw_backend gw_backend_hip = {.name = "hip",
                                   .device_count = device_count,
                                   .open = open_device,
                                   .close = close_device,
                                   .describe = describe,
                                   .note = gw_hip_note,
                                   .alloc = gw_hip_alloc,
                                   .alloc_mapped = gw_hip_alloc_mapped,
                                   .release = gw_hip_release,
                                   .write = gw_hip_write,
                                   .read = gw_hip_read,
                                   .copy = gw_hip_copy,
                                   .host = host_address,
                                   .load_weight = gw_hip_load_weight,
                                   .stow = gw_hip_stow,
                                   .restore = gw_hip_restore,
                                   .size_weight = gw_hip_size_weight,
                                   .fetch_weight = gw_hip_fetch_weight,
                                   .kernels = list,
                                   .arithmetic = gw_hip_arithmetic,
                                   .matrix16 = gw_hip_matrix16,
                                   .freeze = gw_hip_freeze,
                                   .ready = gw_hip_ready,
                                   .run = gw_hip_run,
                                   .wait = gw_hip_wait,
                                   .segment_free = gw_hip_segment_free,
                                   .post_new = gw_hip_post_new,
                                   .post_free = gw_hip_post_free,
                                   .post = gw_hip_post,
                                   .collect = gw_hip_collect,
                                   .link = gw_hip_link,
                                   .unlink = gw_hip_unlink,
                                   .flag = gw_hip_flag,
                                   .link_rank = gw_hip_link_rank,
                                   .profile = gw_hip_profile,
                                   .roof = gw_hip_roof};
