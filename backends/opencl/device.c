/* backends/opencl/device.c - finding, opening and describing devices; the function table. */
#if !defined(_WIN32)
#include <glob.h>
#endif
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/base/switches.h"

enum {
    MAX_PLATFORMS = 16,
    COMPUTE_CAPABILITY_MAJOR = 0x4000, /* cl_nv_device_attribute_query */
    HINTS_FROM = 8,
    LEAST_LOCAL = 32 << 10
};

/* ---- finding --------------------------------------------------------------------------------- */

static int is_card(const gw_cl_driver *cl, cl_device_id id) {
    cl_device_type type = 0;
    return cl->GetDeviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, NULL) == CL_SUCCESS &&
           (type & CL_DEVICE_TYPE_GPU) != 0 && (type & CL_DEVICE_TYPE_CPU) == 0;
}

/* Graphics cards come first, each kind in the order of the platforms: "opencl" alone is the first.
 */
static void cards_first(const gw_cl_driver *cl, cl_platform_id *platforms, cl_device_id *devices,
                        int n) {
    for (int i = 0, front = 0; i < n; i++) {
        int at = i;
        cl_platform_id platform = platforms[at];
        cl_device_id device = devices[at];
        if (!is_card(cl, device)) {
            continue;
        }
        for (; at > front; at--) {
            platforms[at] = platforms[at - 1];
            devices[at] = devices[at - 1];
        }
        platforms[front] = platform;
        devices[front++] = device;
    }
}

int gw_cl_devices(cl_platform_id *platforms, cl_device_id *devices, int room) {
    const gw_cl_driver *cl = gw_cl_open(NULL);
    cl_platform_id all[MAX_PLATFORMS];
    cl_uint n_platforms = 0;
    int n = 0;
    if (cl == NULL || cl->GetPlatformIDs(MAX_PLATFORMS, all, &n_platforms) != CL_SUCCESS) {
        return 0; /* -1001: no platform is installed */
    }
    n_platforms = n_platforms < MAX_PLATFORMS ? n_platforms : MAX_PLATFORMS;
    for (cl_uint p = 0; p < n_platforms; p++) {
        cl_device_id here[GW_CL_MAX_DEVICES];
        cl_uint count = 0;
        if (cl->GetDeviceIDs(all[p], CL_DEVICE_TYPE_ALL, GW_CL_MAX_DEVICES, here, &count) !=
            CL_SUCCESS) {
            continue;
        }
        count = count < GW_CL_MAX_DEVICES ? count : GW_CL_MAX_DEVICES;
        for (cl_uint i = 0; i < count && n < room; i++, n++) {
            platforms[n] = all[p];
            devices[n] = here[i];
        }
    }
    cards_first(cl, platforms, devices, n);
    return n;
}

static int device_count(void) {
    cl_platform_id platforms[GW_CL_MAX_DEVICES];
    cl_device_id devices[GW_CL_MAX_DEVICES];
    return gw_cl_devices(platforms, devices, GW_CL_MAX_DEVICES);
}

/* Loading drivers costs time and memory, so that cards are looked for only where the kernel shows
 * one, or where a driver was named. */
static int may_have_cards(void) {
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/kfd",      "/dev/dri/renderD*",
                                        "/dev/mali*",     "/dev/kgsl-3d*", "/dev/dxg",
                                        "/dev/pvr*",      "/dev/galcore*"};
    static const char *const named[] = {"GODWIT_OPENCL", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"};
    int found = 0;
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        const char *value = getenv(named[i]);
        found |= value != NULL && value[0] != '\0';
    }
#if defined(_WIN32)
    found |= nodes[0] != NULL; /* no node says so there: the drivers are asked */
#else
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0] && !found; i++) {
        glob_t list;
        found = glob(nodes[i], GLOB_NOSORT, NULL, &list) == 0;
        globfree(&list);
    }
#endif
    return found;
}

static cl_ulong number_info(const gw_cl_driver *cl, cl_device_id id, cl_device_info what,
                            size_t bytes) {
    cl_ulong value = 0; /* little-endian: a shorter answer fills the low bytes */
    return cl->GetDeviceInfo(id, what, bytes, &value, NULL) == CL_SUCCESS ? value : 0;
}

/* Devices that are graphics cards and nothing else; for tests, GODWIT_OPENCL=card: all. */
static int cards(int *ordinals, int room) {
    cl_platform_id platforms[GW_CL_MAX_DEVICES];
    cl_device_id devices[GW_CL_MAX_DEVICES];
    const char *words = getenv("GODWIT_OPENCL");
    int all = words != NULL && strstr(words, "card") != NULL, n = 0;
    int count = may_have_cards() ? gw_cl_devices(platforms, devices, GW_CL_MAX_DEVICES) : 0;
    for (int i = 0; i < count && n < room; i++) {
        if (is_card(gw_cl_open(NULL), devices[i]) || all) {
            ordinals[n++] = i;
        }
    }
    return n;
}

static void text_info(const gw_cl_driver *cl, cl_device_id id, cl_device_info what, char *out,
                      size_t room) {
    char text[512] = "";
    if (cl->GetDeviceInfo(id, what, sizeof text, text, NULL) != CL_SUCCESS) {
        text[0] = '\0';
    }
    text[sizeof text - 1] = '\0';
    snprintf(out, room, "%s", text);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What a device needs to be tried at all; NULL when nothing is missing. Of floats it is not asked:
 * what it says is not what it does (floats.c). */
static const char *lacking(const gw_cl_driver *cl, cl_device_id id) {
    if (number_info(cl, id, CL_DEVICE_ENDIAN_LITTLE, sizeof(cl_bool)) == 0) {
        return "little-endian memory";
    }
    if (number_info(cl, id, CL_DEVICE_COMPILER_AVAILABLE, sizeof(cl_bool)) == 0) {
        return "a compiler";
    }
    return NULL;
}

/* GODWIT_OPENCL, for tests, comma-separated: item, team (kernels of items, or of teams where the
 * device can go it), group=N, local=BYTES (as if it took groups of so many work-items, had so much
 * local memory), floats=NAME (as if it computed floats so: kernels_cl/floats.cl), copies (as if its
 * memory were not the host's), plain (no inline
 * assembly, no name of an x86 instruction), shuffles (as if lanes exchanged values by instructions,
 * through local memory, and products of bytes were of signed ones), matrix (prompts on matrix
 * instructions, through local memory where the device has none), no-matrix (never), walk=GROUPS (a
 * step in one launch of so many groups, however few its ops; 0: never; other devices than NVIDIA's:
 * 1), must-walk (an error where that cannot be done), walk-rows=N (for steps of so many rows, too),
 * last-joins (attention in one launch, as on NVIDIA: right on x86, too), any-floats (its
 * floats are not tried), card (a processor counts as a graphics card, which is
 * chosen by itself), max-alloc=BYTES, max-cache=BYTES (the same for caches
 * alone), fail-alloc=K, fail-enqueue=K, fail-wait=K (a read that
 * never ends), fail-build (the first) or fail-build=K, fail-walk (the
 * program of a step in one launch does not build), no-cache (programs are not kept on disk: PoCL
 * compiles what it is asked for a second time), no-blas (CLBlast is not there), fail-blas=K (its
 * K-th product fails; the first is the trial). */
#define AT(field) offsetof(struct gw_device, field)
static const gw_switch switches[] = {
    {"item", GW_SWITCH_SET, AT(item), 1, 0},
    {"team", GW_SWITCH_SET, AT(item), 0, 0},
    {"group=", GW_SWITCH_INT, AT(asked_group), 1, INT_MAX},
    {"local=", GW_SWITCH_INT, AT(asked_local), 0, INT_MAX},
    {"floats=", GW_SWITCH_TEXT, AT(floats), 0, 0},
    {"copies", GW_SWITCH_SET, AT(unified), 0, 0},
    {"plain", GW_SWITCH_SET, AT(plain), 1, 0},
    {"shuffles", GW_SWITCH_SET, AT(shuffles), GW_CL_SHUFFLES_LOCAL, 0},
    {"shuffles", GW_SWITCH_SET, AT(dots), GW_CL_DOTS_SIGNED, 0},
    {"matrix", GW_SWITCH_SET, AT(matrix), 1, 0},
    {"no-matrix", GW_SWITCH_SET, AT(no_matrix), 1, 0},
    {"walk=", GW_SWITCH_CAPPED, AT(asked_walkers), 0, 4096},
    {"must-walk", GW_SWITCH_SET, AT(must_walk), 1, 0},
    {"walk-rows=", GW_SWITCH_CAPPED, AT(walk_rows), 1, GW_DECODE_MAX},
    {"last-joins", GW_SWITCH_SET, AT(last_joins), 1, 0},
    {"any-floats", GW_SWITCH_SET, AT(any_floats), 1, 0},
    {"card", GW_SWITCH_SET, AT(card), 1, 0}, /* cards() has read it */
    {"max-alloc=", GW_SWITCH_BYTES, AT(asked_alloc), 0, 0},
    {"max-cache=", GW_SWITCH_BYTES, AT(max_cache), 0, 0},
    {"fail-alloc=", GW_SWITCH_INT, AT(fail_alloc), 1, INT_MAX},
    {"fail-enqueue=", GW_SWITCH_INT, AT(fail_enqueue), 1, INT_MAX},
    {"fail-wait=", GW_SWITCH_INT, AT(fail_wait), 1, INT_MAX},
    {"fail-build", GW_SWITCH_SET, AT(fail_build), 1, 0},
    {"fail-build=", GW_SWITCH_INT, AT(fail_build), 1, INT_MAX},
    {"fail-walk", GW_SWITCH_SET, AT(fail_walk), 1, 0},
    {"no-cache", GW_SWITCH_SET, AT(no_cache), 1, 0},
    {"no-blas", GW_SWITCH_SET, AT(no_blas), 1, 0},
    {"fail-blas=", GW_SWITCH_INT, AT(fail_blas), 1, INT_MAX},
};
#undef AT

/* Of teams a group needs eight, and the local memory that OpenCL's full profile has at least;
 * devices that have less take the kernels of single work-items, which need neither. */
static size_t most_group(struct gw_device *d) {
    size_t group = (size_t)number_info(d->cl, d->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    if (d->local_bytes > (cl_ulong)d->asked_local) {
        d->local_bytes = (cl_ulong)d->asked_local;
    }
    return group < (size_t)d->asked_group ? group : (size_t)d->asked_group;
}

static gw_status fill_device(struct gw_device *d, const gw_device_options *options) {
    const gw_cl_driver *cl = d->cl;
    cl_int error = CL_SUCCESS;
    text_info(cl, d->id, CL_DEVICE_NAME, d->name, sizeof d->name);
    text_info(cl, d->id, CL_DRIVER_VERSION, d->driver, sizeof d->driver);
    d->max_alloc = number_info(cl, d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(cl_ulong));
    d->memory = number_info(cl, d->id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
    d->units = (int)number_info(cl, d->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint));
    d->local_bytes = number_info(cl, d->id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(cl_ulong));
    cl_ulong type = number_info(cl, d->id, CL_DEVICE_TYPE, sizeof(cl_device_type));
    d->asked_group = d->asked_local = INT_MAX;
    d->item = (type & CL_DEVICE_TYPE_CPU) != 0;
    d->processor = (type & CL_DEVICE_TYPE_CPU) != 0;
    d->unified = number_info(cl, d->id, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof(cl_bool)) != 0;
    d->walk_rows = 1;
    d->exact = options != NULL && options->exact;
    d->asked_walkers = -1;
    GW_TRY(gw_switches_read("GODWIT_OPENCL", switches, sizeof switches / sizeof switches[0], d));
    d->max_alloc =
        d->asked_alloc > 0 && d->asked_alloc < d->max_alloc ? d->asked_alloc : d->max_alloc;
    int walkers = d->asked_walkers;
    const char *missing = lacking(cl, d->id);
    if (missing != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, "opencl", "%s lacks %s, which equal results need", d->name,
                       missing);
    }
    size_t group = most_group(d);
    d->item = d->item || group < GW_CL_GROUP || d->local_bytes < LEAST_LOCAL;
    d->compact = !d->item && (type & CL_DEVICE_TYPE_CPU) != 0;
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)d->platform,
                                          0};
    d->context = cl->CreateContext(properties, 1, &d->id, NULL, NULL, &error);
    GW_TRY(gw_cl_check(error, "creating a context"));
    d->queue = cl->CreateCommandQueue(d->context, d->id, 0, &error);
    GW_TRY(gw_cl_check(error, "creating a queue"));
    GW_TRY(d->any_floats ? GW_OK : gw_cl_try_floats(d));
    /* oclgrind, which is of every type, ends on inline assembly: the way for processors asks not */
    if (!d->plain && !d->item && (type & CL_DEVICE_TYPE_GPU) != 0) {
        gw_cl_find_ways(d);
    } else if (!gw_cl_tries_ways(d)) {
        return gw_fail(GW_E_DEVICE, "opencl", "%s: the probes find other numbers than they expect",
                       d->name);
    }
    d->hints = d->nvidia &&
               number_info(cl, d->id, COMPUTE_CAPABILITY_MAJOR, sizeof(cl_uint)) >= HINTS_FROM;
    d->doubles = gw_cl_has_doubles(d);
    d->matrix = d->nvidia ? !d->no_matrix && gw_cl_has_matrix(d) : d->matrix && !d->item;
    /* OpenCL 1.2 orders nothing between groups of a launch, the PTX of NVIDIA does. */
    d->last_joins = d->nvidia || d->last_joins;
    /* Waiting for other groups needs all of them at work at once; one alone waits for nobody. */
    int most = d->nvidia ? d->units : !d->item;
    d->walkers = walkers >= 0 && walkers < most ? walkers : most;
    d->walkers = d->nvidia || walkers > 0 ? d->walkers : 0;
    d->walk_all = walkers > 0;
    d->group = d->nvidia && group >= 2 * GW_CL_GROUP ? 2 * GW_CL_GROUP : GW_CL_GROUP;
    if (options != NULL && options->blas) {
        gw_cl_blas_open(d);
    }
    GW_TRY(gw_cl_list_kernels(d));
    /* Every plan takes it; a compiler that fails is known before weights load. */
    const gw_cl_program *first;
    return gw_cl_program_get(d, "rows", "", &first);
}

cl_command_queue gw_cl_timed(struct gw_device *d) {
    cl_int error;
    if (d->timed == NULL) {
        d->timed = d->cl->CreateCommandQueue(d->context, d->id, CL_QUEUE_PROFILING_ENABLE, &error);
    }
    return d->timed;
}

static void close_device(struct gw_device *d) {
    if (d == NULL) {
        return;
    }
    gw_cl_programs_free(d);
    gw_cl_pool *pools[] = {&d->scratch, &d->widened, &d->products, &d->narrowed, &d->unpacked};
    for (size_t p = 0; p < sizeof pools / sizeof pools[0]; p++) {
        for (size_t i = 0; i < pools[p]->n; i++) {
            d->cl->ReleaseMemObject(pools[p]->list[i]);
        }
        free(pools[p]->list);
    }
    if (d->timed != NULL) {
        d->cl->ReleaseCommandQueue(d->timed);
    }
    if (d->queue != NULL) {
        d->cl->ReleaseCommandQueue(d->queue);
    }
    if (d->context != NULL) {
        d->cl->ReleaseContext(d->context);
    }
    gw_kernel_list_free(&d->kernels);
    free(d);
}

static gw_status open_device(int ordinal, const gw_device_options *options,
                             struct gw_device **out) {
    cl_platform_id platforms[GW_CL_MAX_DEVICES];
    cl_device_id devices[GW_CL_MAX_DEVICES];
    const char *why = "no platform offers a device";
    const gw_cl_driver *cl = gw_cl_open(&why);
    int n = cl != NULL ? gw_cl_devices(platforms, devices, GW_CL_MAX_DEVICES) : 0;
    if (n == 0) {
        return gw_fail(GW_E_DEVICE, "opencl", "no device: %s", why);
    }
    if (ordinal < 0 || ordinal >= n) {
        return gw_fail(GW_E_ARGUMENT, "opencl", "there is no device %d; the last one is %d",
                       ordinal, n - 1);
    }
    struct gw_device *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for a device");
    }
    d->cl = cl;
    d->platform = platforms[ordinal];
    d->id = devices[ordinal];
    d->ordinal = ordinal;
    gw_status status = fill_device(d, options);
    if (status != GW_OK) {
        close_device(d);
        return status;
    }
    d->walkers = options != NULL && options->no_graph ? 0 : d->walkers;
    *out = d;
    return GW_OK;
}

/* ---- describing ------------------------------------------------------------------------------ */

static void describe_ordinal(int ordinal, gw_device_info *out) {
    cl_platform_id platforms[GW_CL_MAX_DEVICES];
    cl_device_id devices[GW_CL_MAX_DEVICES];
    const gw_cl_driver *cl = gw_cl_open(NULL);
    memset(out, 0, sizeof *out);
    int n = gw_cl_devices(platforms, devices, GW_CL_MAX_DEVICES);
    snprintf(out->id, sizeof out->id, "opencl:%d", ordinal);
    if (cl == NULL || ordinal < 0 || ordinal >= n) {
        return;
    }
    char version[64], driver[64];
    cl_device_id id = devices[ordinal];
    text_info(cl, id, CL_DEVICE_NAME, out->name, sizeof out->name);
    text_info(cl, id, CL_DEVICE_VERSION, version, sizeof version);
    text_info(cl, id, CL_DRIVER_VERSION, driver, sizeof driver);
    const char *missing = lacking(cl, id);
    cl_ulong floats = number_info(cl, id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof(cl_device_fp_config));
    out->memory_bytes = number_info(cl, id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
    out->free_bytes = out->memory_bytes;
    out->threads = (int)number_info(cl, id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint));
    snprintf(out->detail, sizeof out->detail,
             "%.40s, driver %.40s, %.1f GB in one allocation, %llu kB local%s%s%s", version, driver,
             1e-9 * (double)number_info(cl, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(cl_ulong)),
             (unsigned long long)number_info(cl, id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(cl_ulong)) >>
                 10,
             (floats & CL_FP_FMA) != 0 ? "" : ", fused multiply-add in software",
             missing != NULL ? "; cannot be used: it lacks " : "", missing != NULL ? missing : "");
}

static const char *const shuffles[] = {[0] = "",
                                       [GW_CL_SHUFFLES_PTX] = " with PTX shuffles",
                                       [GW_CL_SHUFFLES_AMD] = " with permutations of waves",
                                       [GW_CL_SHUFFLES_INTEL] = " with subgroups of 32",
                                       [GW_CL_SHUFFLES_LOCAL] = " with shuffles through memory"};

static void describe(const struct gw_device *device, int ordinal, gw_device_info *out) {
    describe_ordinal(device != NULL ? device->ordinal : ordinal, out);
    if (device != NULL) {
        size_t used = strlen(out->detail);
        snprintf(out->detail + used, sizeof out->detail - used, ", %s%s%s%s%s%s",
                 device->item ? "processor way" : "lanes way", shuffles[device->shuffles],
                 device->shuffles > 0 && device->dots > 0 ? "," : "",
                 device->dots > 0 ? " dot products" : "",
                 device->nvidia && device->matrix ? ", matrix instructions" : "",
                 device->blas == GW_CL_BLAS_WORKS ? ", CLBlast" : "");
        out->free_bytes =
            out->memory_bytes > device->reserved ? out->memory_bytes - device->reserved : 0;
    }
}

static void *host_address(const struct gw_buffer *buffer) {
    (void)buffer;
    return NULL;
}

static const gw_kernel *list(const struct gw_device *device, size_t *count) {
    *count = device->kernels.n;
    return device->kernels.at;
}

static int narrows(const struct gw_device *device) { return device->doubles; }

const gw_backend gw_backend_opencl = {.name = "opencl",
                                      .device_count = device_count,
                                      .cards = cards,
                                      .open = open_device,
                                      .close = close_device,
                                      .describe = describe,
                                      .note = gw_cl_blas_note,
                                      .arithmetic = gw_cl_arithmetic,
                                      .alloc = gw_cl_alloc,
                                      .alloc_pages = gw_cl_alloc_pages,
                                      .alloc_mapped = gw_cl_alloc_mapped,
                                      .release = gw_cl_release,
                                      .write = gw_cl_write,
                                      .read = gw_cl_read,
                                      .host = host_address,
                                      .load_weight = gw_cl_load_weight,
                                      .stow = gw_cl_stow,
                                      .restore = gw_cl_restore,
                                      .fetch_weight = gw_cl_fetch_weight,
                                      .size_weight = gw_cl_size_weight,
                                      .kernels = list,
                                      .narrows = narrows,
                                      .freeze = gw_cl_freeze,
                                      .run = gw_cl_run,
                                      .wait = gw_cl_wait,
                                      .segment_free = gw_cl_segment_free,
                                      .post_new = gw_cl_post_new,
                                      .post_free = gw_cl_post_free,
                                      .post = gw_cl_post,
                                      .collect = gw_cl_collect,
                                      .profile = gw_cl_profile,
                                      .roof = gw_cl_roof};
