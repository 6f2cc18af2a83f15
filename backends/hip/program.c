/* backends/hip/program.c - the kernels as programs of a device: code that the build put into the
 * program, else what NVRTC or hiprtc makes of the texts, kept on disk. Compiling is by kernel: what
 * the plans of a model want is made together, and nothing else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/hip/compiler.h"
#include "backends/hip/hip.h"
#include "core/base/cache.h"
#include "core/base/list.h"
#include "core/base/os_threads.h"
#include "core/base/team.h"

enum { ERROR_BYTES = 1024, PROGRAMMATIC = 90 };
enum { GROUP = 90, GROUP_COMPILER = 12 }; /* only this processor has the instructions of sm_90a */

/* cmake/hip.cmake: texts ("kernels_hip/rows/rows.hip") and code ("cuda/rows", "amd/rows"). */
typedef struct embedded {
    const char *name;
    const char *bytes; /* a zero stands behind them */
    uint64_t length;
} embedded;

extern const embedded gw_hip_files[];

/* Neither compiler has this header without its tool kit. */
static const char stdint_text[] = "#pragma once\n"
                                  "typedef signed char int8_t;\n"
                                  "typedef unsigned char uint8_t;\n"
                                  "typedef short int16_t;\n"
                                  "typedef unsigned short uint16_t;\n"
                                  "typedef int int32_t;\n"
                                  "typedef unsigned int uint32_t;\n"
                                  "typedef __INT64_TYPE__ int64_t;\n"
                                  "typedef __UINT64_TYPE__ uint64_t;\n";

/* Compiling one kernel. */
typedef struct job {
    gw_hip_program *program;
    gw_hip_text source;
    char *broken; /* fail-build */
    uint64_t key;
    void *code;
    size_t bytes;
    int from_disk, ended;
    gw_status status;
    char error[ERROR_BYTES];
} job;

/* Compiling what is wanted, together. */
typedef struct build {
    struct gw_device *device;
    gw_hip_text *headers; /* [n_headers] */
    size_t n_headers;
    gw_hip_options options;
    job *jobs; /* [n] */
    size_t n, done;
    const gw_watch *watch;
} build;

/* ---- code of the build ----------------------------------------------------------------------- */

/* The processor whose code runs on `capability`: an equal or older one of its kind (an exact
 * binary), or any older one as PTX, which the last of the list and sm_90 are kept as. 0: none. */
static int cuda_arch_for(int capability) {
    int best = 0, last = 0, ptx = 0;
    for (const char *p = GODWIT_CUDA_ARCHS; (p = strstr(p, "sm_")) != NULL; p += 3) {
        int arch = atoi(p + 3);
        last = arch;
        ptx = arch == 90 && arch <= capability ? arch : ptx;
        if (arch / 10 == capability / 10 && arch <= capability) {
            best = arch;
        }
    }
    return best > 0 ? best : last <= capability ? last : ptx;
}

static int amd_arch_is(const char *arch) {
    size_t n = strlen(arch);
    for (const char *p = GODWIT_AMD_ARCHS; (p = strstr(p, arch)) != NULL; p++) {
        if (p[n] == ' ' || p[n] == '\0') {
            return 1;
        }
    }
    return 0;
}

static gw_status no_code(const struct gw_device *device) {
    const char *have = device->driver->nvidia ? GODWIT_CUDA_ARCHS : GODWIT_AMD_ARCHS;
    return gw_fail(GW_E_UNSUPPORTED, "hip",
                   "%s is %s; this build has code for %s, and %s, which could make it, is not here",
                   device->name, device->arch, have[0] != '\0' ? have : "no card of its kind",
                   device->driver->nvidia ? "NVRTC (libnvrtc.so)" : "hiprtc (libhiprtc.so)");
}

/* ---- a list of programs ---------------------------------------------------------------------- */

static gw_hip_program *entry_of(const struct gw_device *device, const char *name) {
    for (size_t i = 0; i < device->n_programs; i++) {
        if (strcmp(device->programs[i].name, name) == 0) {
            return &device->programs[i];
        }
    }
    return NULL;
}

static gw_status add(struct gw_device *device, const char *name) {
    gw_hip_program *grown =
        gw_list_grown(device->programs, device->n_programs, &device->programs_room, sizeof *grown);
    if (grown == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for the programs");
    }
    device->programs = grown;
    grown[device->n_programs] = (gw_hip_program){.module = NULL};
    snprintf(grown[device->n_programs].name, sizeof grown->name, "%s", name);
    device->n_programs++;
    return GW_OK;
}

static gw_status load(struct gw_device *device, gw_hip_program *program, const void *code) {
    gw_hip_error error = device->driver->ModuleLoad(&program->module, code);
    if (error != GW_HIP_OK) {
        program->module = NULL;
        return gw_fail(GW_E_DEVICE, "hip", "%s (%s) does not take the code of %s: %s", device->name,
                       device->arch, program->name, gw_hip_error_name(device->driver, error));
    }
    return GW_OK;
}

static gw_status load_built(struct gw_device *device, const char *name, const void *code) {
    GW_TRY(add(device, name));
    return load(device, &device->programs[device->n_programs - 1], code);
}

static gw_status load_all_built(struct gw_device *device) {
    const char *kind = device->driver->nvidia ? "cuda/" : "amd/";
    for (const embedded *f = gw_hip_files; f->name != NULL; f++) {
        if (strncmp(f->name, kind, strlen(kind)) == 0) {
            GW_TRY(load_built(device, f->name, f->bytes));
        }
    }
    return GW_OK;
}

/* ---- compiling now --------------------------------------------------------------------------- */

static int ends_in(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* All texts that another may include: malloc'd; NULL without memory. */
static gw_hip_text *list_headers(size_t *n) {
    size_t files = 1;
    for (const embedded *f = gw_hip_files; f->name != NULL; f++) {
        files++;
    }
    gw_hip_text *out = calloc(files, sizeof *out);
    *n = 0;
    if (out == NULL) {
        (void)gw_fail(GW_E_NOMEM, "hip", "no memory for the texts of the kernels");
        return NULL;
    }
    out[(*n)++] = (gw_hip_text){"stdint.h", stdint_text};
    for (const embedded *f = gw_hip_files; f->name != NULL; f++) {
        if (ends_in(f->name, ".h")) {
            out[(*n)++] = (gw_hip_text){f->name, f->bytes};
        }
    }
    return out;
}

static gw_hip_text text_of(const char *file) {
    for (const embedded *f = gw_hip_files; f->name != NULL; f++) {
        if (strcmp(f->name, file) == 0) {
            return (gw_hip_text){f->name, f->bytes};
        }
    }
    return (gw_hip_text){NULL, NULL};
}

static gw_hip_text text_with(const char *kernel) {
    const char *file = gw_hip_file_of(kernel);
    return file != NULL ? text_of(file) : (gw_hip_text){NULL, NULL};
}

/* kernel: NULL for all of the text. */
static gw_status compile_text(const gw_hip_compiler *compiler, gw_hip_text source,
                              const char *kernel, const char *arch, void **code, size_t *bytes) {
    gw_hip_options options;
    size_t n;
    gw_hip_text *headers = list_headers(&n);
    if (headers == NULL) {
        return GW_E_NOMEM;
    }
    gw_hip_options_for(compiler, arch, "", &options);
    gw_status status = gw_hip_compile(compiler, &source, kernel, headers, n, &options, code, bytes);
    free(headers);
    return status;
}

gw_status gw_hip_compile_kernel(const gw_hip_compiler *compiler, const char *kernel,
                                const char *arch, void **code, size_t *bytes) {
    gw_hip_text source = text_with(kernel);
    if (source.name == NULL) {
        return gw_fail(GW_E_DEVICE, "hip", "no file has the kernel %s", kernel);
    }
    return compile_text(compiler, source, kernel, arch, code, bytes);
}

gw_status gw_hip_compile_file(const gw_hip_compiler *compiler, const char *file, const char *arch,
                              void **code, size_t *bytes) {
    gw_hip_text source = text_of(file);
    if (source.name == NULL) {
        return gw_fail(GW_E_DEVICE, "hip", "this build has no file %s", file);
    }
    return compile_text(compiler, source, NULL, arch, code, bytes);
}

/* The part of a key that all kernels share. */
static uint64_t key_of(const build *b) {
    const struct gw_device *device = b->device;
    uint64_t key = gw_cache_hash(1, device->arch, strlen(device->arch));
    char compiler[32];
    int version = 0;
    device->driver->DriverVersion(&version);
    gw_hip_compiler_name(device->compiler, compiler, sizeof compiler);
    key = gw_cache_hash(key, &version, sizeof version);
    key = gw_cache_hash(key, compiler, strlen(compiler));
    for (int i = 0; i < b->options.n; i++) {
        key = gw_cache_hash(key, b->options.at[i], strlen(b->options.at[i]) + 1);
    }
    for (size_t i = 0; i < b->n_headers; i++) {
        key = gw_cache_hash(key, b->headers[i].text, strlen(b->headers[i].text));
    }
    return key;
}

static void break_source(job *j) {
    static const char wrong[] = "#error made to fail\n";
    size_t n = strlen(j->source.text);
    j->broken = malloc(n + sizeof wrong);
    if (j->broken != NULL) {
        memcpy(j->broken, wrong, sizeof wrong - 1);
        memcpy(j->broken + sizeof wrong - 1, j->source.text, n + 1);
        j->source.text = j->broken;
        j->key++;
    }
}

/* A job for every program that is wanted and not there. */
static void list_jobs(build *b) {
    struct gw_device *device = b->device;
    uint64_t key = key_of(b);
    for (size_t i = 0; i < device->n_programs; i++) {
        gw_hip_program *p = &device->programs[i];
        if (p->module == NULL) {
            job *j = &b->jobs[b->n++];
            j->program = p;
            j->source = text_with(p->name);
            j->key = gw_cache_hash(key, j->source.text, strlen(j->source.text));
            j->key = gw_cache_hash(j->key, p->name, strlen(p->name));
            if (device->fail_build > 0 && --device->fail_build == 0) {
                break_source(j);
            }
        }
    }
}

/* What gw_fail was told: the text behind "hip: CLASS: ". */
static const char *message_of(const char *error) {
    for (int i = 0; i < 2; i++) {
        const char *colon = strstr(error, ": ");
        error = colon != NULL ? colon + 2 : error;
    }
    return error;
}

/* In a thread of its own: the error text is carried along. */
static void do_job(const build *b, job *j, int again) {
    const gw_watch *watch = b->watch;
    if (watch != NULL && watch->cancel != NULL && *watch->cancel) {
        j->status = GW_E_CANCELLED;
        snprintf(j->error, sizeof j->error, "cancelled while kernels were compiled");
        return;
    }
    j->code = again ? NULL : gw_cache_read("hip", j->key, &j->bytes);
    j->from_disk = j->code != NULL;
    if (j->code != NULL) {
        return;
    }
    j->status = gw_hip_compile(b->device->compiler, &j->source, j->program->name, b->headers,
                               b->n_headers, &b->options, &j->code, &j->bytes);
    if (j->status == GW_OK) {
        gw_cache_write("hip", j->key, j->code, j->bytes);
    } else {
        snprintf(j->error, sizeof j->error, "%s", message_of(gw_error_text()));
    }
}

/* All jobs that have not ended, once. */
typedef struct attempt {
    build *build;
    int again;
} attempt;

static void do_one(void *user, int64_t i) {
    static pthread_mutex_t progress = PTHREAD_MUTEX_INITIALIZER;
    const attempt *r = user;
    build *b = r->build;
    const gw_watch *watch = b->watch;
    if (b->jobs[i].ended) {
        return;
    }
    do_job(b, &b->jobs[i], r->again);
    pthread_mutex_lock(&progress);
    b->done += b->done < b->n;
    if (watch != NULL && watch->progress != NULL) {
        watch->progress(watch->user, b->done, b->n);
    }
    pthread_mutex_unlock(&progress);
}

static void do_jobs(build *b, int again) {
    int parallel = b->device->driver->nvidia; /* hiprtc crashes when two threads compile */
    attempt r = {.build = b, .again = again};
    gw_parallel_for(parallel ? 0 : 1, (int64_t)b->n, do_one, &r);
}

/* Into the device; what came from the disk and the driver refuses, as after another driver with the
 * same number was installed, has not ended: it is to be compiled again. */
static gw_status end_job(const build *b, job *j, int again) {
    gw_status status = j->status;
    if (status != GW_OK) {
        status = gw_fail(status, "hip", "%s: %s", b->device->name, j->error);
    } else {
        status = load(b->device, j->program, j->code);
    }
    j->ended = again || status == GW_OK || !j->from_disk;
    free(j->code);
    j->code = NULL;
    return j->ended ? status : GW_OK;
}

/* What is good is kept, whatever the others are. */
static gw_status run_build(build *b) {
    gw_status status = GW_OK;
    char first[ERROR_BYTES] = "";
    list_jobs(b);
    for (int again = 0; again < 2; again++) {
        do_jobs(b, again);
        for (size_t i = 0; i < b->n; i++) {
            gw_status one = b->jobs[i].ended ? GW_OK : end_job(b, &b->jobs[i], again);
            if (one != GW_OK && status == GW_OK) {
                status = one;
                snprintf(first, sizeof first, "%s", message_of(gw_error_text()));
            }
        }
    }
    for (size_t i = 0; i < b->n; i++) {
        free(b->jobs[i].broken);
    }
    return status == GW_OK ? GW_OK : gw_fail(status, "hip", "%s", first);
}

gw_status gw_hip_programs_build(struct gw_device *device, const gw_watch *watch) {
    build b = {.device = device, .watch = watch};
    size_t missing = 0;
    for (size_t i = 0; i < device->n_programs; i++) {
        missing += device->programs[i].module == NULL;
    }
    if (missing == 0 || device->compiler == NULL) {
        return GW_OK;
    }
    b.headers = list_headers(&b.n_headers);
    b.jobs = calloc(missing, sizeof *b.jobs);
    gw_hip_options_for(device->compiler, device->arch, device->option, &b.options);
    gw_status status = b.headers != NULL && b.jobs != NULL
                           ? run_build(&b)
                           : gw_fail(GW_E_NOMEM, "hip", "no memory for building the kernels");
    free(b.headers);
    free(b.jobs);
    return status;
}

/* ---- the programs of a device ---------------------------------------------------------------- */

/* The row of the code that runs there; one line where the processor has none. */
static void find_processor(struct gw_device *device) {
    char arch[64];
    int known;
    snprintf(arch, sizeof arch, "%s", device->arch);
    if (device->driver->emulated) {
        snprintf(arch, sizeof arch, "%s", device->driver->emulates);
    } else if (device->driver->nvidia) {
        snprintf(arch, sizeof arch, "sm_%d", device->code);
    }
    device->processor = gw_hip_processor_of(arch, &known);
    if (!known && device->processor->name[0] != '\0') {
        snprintf(device->note, sizeof device->note,
                 "%.60s is %s, which this version does not know: "
                 "its kernels use what %s has",
                 device->name, arch, device->processor->name);
    } else if (!known) {
        snprintf(device->note, sizeof device->note,
                 "%.60s is %s, which this version does not know: "
                 "its kernels are slow, without dot products and matrix instructions",
                 device->name, arch);
    }
}

static gw_status open_programs(struct gw_device *device) {
    int arch = device->driver->nvidia ? cuda_arch_for(device->capability) : 0;
    if (!device->compile && (device->driver->nvidia ? arch > 0 : amd_arch_is(device->arch))) {
        device->code = arch;
        device->programmatic = arch >= PROGRAMMATIC;
        device->group = arch == GROUP && device->capability == GROUP && !device->no_group &&
                        strstr(GODWIT_CUDA_ARCHS, "sm_90a") != NULL;
        return load_all_built(device);
    }
    device->compiler = gw_hip_compiler_open(device->driver->nvidia);
    if (device->compiler == NULL) {
        return no_code(device);
    }
    device->code = device->capability;
    if (device->older > 0 && device->older < device->capability) {
        device->code = device->older;
        snprintf(device->arch, sizeof device->arch, "sm_%d", device->code);
    }
    device->programmatic = device->code >= PROGRAMMATIC;
    if (device->code == GROUP && gw_hip_compiler_major(device->compiler) >= GROUP_COMPILER) {
        device->group = !device->no_group;
        snprintf(device->arch, sizeof device->arch, "sm_90a");
    }
    /* The smallest kernel shows whether compiler and driver get on: a device that cannot work is
     * found out now. */
    GW_TRY(gw_hip_need_kernel(device, "gw_roof_read"));
    return gw_hip_programs_build(device, NULL);
}

gw_status gw_hip_programs_open(struct gw_device *device) {
    GW_TRY(device->driver->emulated ? load_built(device, "all kernels", NULL)
                                    : open_programs(device));
    find_processor(device);
    if (device->driver->emulated) {
        device->group = device->processor->matrix == GW_MATRIX_MMA && !device->no_group;
    }
    return GW_OK;
}

const char *gw_hip_note(const struct gw_device *device) { return device->note; }

void gw_hip_programs_free(struct gw_device *device) {
    for (size_t i = 0; i < device->n_programs; i++) {
        if (device->programs[i].module != NULL) {
            device->driver->ModuleFree(device->programs[i].module);
        }
    }
    free(device->programs);
    device->programs = NULL;
    device->n_programs = 0;
}

gw_status gw_hip_need_kernel(struct gw_device *device, const char *kernel) {
    if (device->compiler == NULL || entry_of(device, kernel) != NULL) {
        return GW_OK;
    }
    if (text_with(kernel).name == NULL) {
        return gw_fail(GW_E_DEVICE, "hip", "no file has the kernel %s", kernel);
    }
    return add(device, kernel);
}

gw_status gw_hip_find(struct gw_device *device, const char *kernel, gw_hip_function *out) {
    size_t first = 0, end = device->n_programs;
    if (device->compiler != NULL) {
        GW_TRY(gw_hip_need_kernel(device, kernel));
        first = (size_t)(entry_of(device, kernel) - device->programs);
        end = first + 1;
        if (device->programs[first].module == NULL) {
            GW_TRY(gw_hip_programs_build(device, NULL));
        }
    }
    for (size_t i = first; i < end; i++) {
        if (device->driver->ModuleFunction(out, device->programs[i].module, kernel) == GW_HIP_OK) {
            return GW_OK;
        }
    }
    return gw_fail(GW_E_DEVICE, "hip", "no program of %s has the kernel %s", device->name, kernel);
}
