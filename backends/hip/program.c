/* backends/hip/program.c - the kernels as programs of a device: code that the build put into the
 * program, else what NVRTC or hiprtc makes of the texts, kept on disk.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/hip/compiler.h"
#include "backends/hip/hip.h"
#include "core/base/cache.h"

enum { MOST_FILES = 64, ERROR_BYTES = 1024, PROGRAMMATIC = 90 };

/* cmake/hip.cmake: texts ("kernels_hip/rows.hip") and code ("cuda/rows", "amd/rows"). */
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

/* Compiling one file. */
typedef struct job {
    gw_hip_text source;
    char *broken; /* fail-build */
    uint64_t key;
    void *code;
    size_t bytes;
    gw_status status;
    char error[ERROR_BYTES];
} job;

/* ---- code of the build ----------------------------------------------------------------------- */

/* The processor whose code runs on `capability`: an equal or older one of its kind (an exact
 * binary), or any older one as PTX, which the last of the list is kept as. 0: none. */
static int cuda_arch_for(int capability) {
    int best = 0, last = 0;
    for (const char *p = GODWIT_CUDA_ARCHS; (p = strstr(p, "sm_")) != NULL; p += 3) {
        int arch = atoi(p + 3);
        last = arch;
        if (arch / 10 == capability / 10 && arch <= capability) {
            best = arch;
        }
    }
    return best > 0 ? best : last <= capability ? last : 0;
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

static gw_status add(struct gw_device *device, const char *name, const void *code) {
    gw_hip_module module = NULL;
    gw_hip_error error = device->driver->ModuleLoad(&module, code);
    if (error != GW_HIP_OK) {
        return gw_fail(GW_E_DEVICE, "hip", "%s (%s) does not take the code of %s: %s", device->name,
                       device->arch, name, gw_hip_error_name(device->driver, error));
    }
    device->programs[device->n_programs++] = (gw_hip_program){.name = name, .module = module};
    return GW_OK;
}

static gw_status load_built(struct gw_device *device) {
    const char *kind = device->driver->nvidia ? "cuda/" : "amd/";
    for (const embedded *f = gw_hip_files; f->name != NULL; f++) {
        if (strncmp(f->name, kind, strlen(kind)) == 0) {
            GW_TRY(add(device, f->name, f->bytes));
        }
    }
    return GW_OK;
}

/* ---- compiling now --------------------------------------------------------------------------- */

static int ends_in(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static size_t list_headers(gw_hip_text *out) {
    size_t n = 0;
    out[n++] = (gw_hip_text){"stdint.h", stdint_text};
    for (const embedded *f = gw_hip_files; f->name != NULL && n < MOST_FILES; f++) {
        if (ends_in(f->name, ".h")) {
            out[n++] = (gw_hip_text){f->name, f->bytes};
        }
    }
    return n;
}

static size_t list_jobs(const struct gw_device *device, const char *compiler,
                        const gw_hip_text *headers, size_t n_headers, job *out) {
    uint64_t key = gw_cache_hash(1, device->arch, strlen(device->arch));
    int version = 0;
    size_t n = 0;
    device->driver->DriverVersion(&version);
    key = gw_cache_hash(key, &version, sizeof version);
    key = gw_cache_hash(key, compiler, strlen(compiler));
    for (size_t i = 0; i < n_headers; i++) {
        key = gw_cache_hash(key, headers[i].text, strlen(headers[i].text));
    }
    for (const embedded *f = gw_hip_files; f->name != NULL && n < MOST_FILES; f++) {
        if (ends_in(f->name, ".hip")) {
            job *j = &out[n++];
            j->source = (gw_hip_text){f->name, f->bytes};
            j->key = gw_cache_hash(key, f->bytes, f->length);
        }
    }
    return n;
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

/* What gw_fail was told: the text behind "hip: CLASS: ". */
static const char *message_of(const char *error) {
    for (int i = 0; i < 2; i++) {
        const char *colon = strstr(error, ": ");
        error = colon != NULL ? colon + 2 : error;
    }
    return error;
}

/* In a thread of its own: the error text is carried along. */
static void do_job(job *j, const gw_hip_compiler *compiler, const gw_hip_text *headers,
                   size_t n_headers, const char *arch) {
    j->code = gw_cache_read("hip", j->key, &j->bytes);
    if (j->code == NULL) {
        j->status =
            gw_hip_compile(compiler, &j->source, headers, n_headers, arch, &j->code, &j->bytes);
        if (j->status == GW_OK) {
            gw_cache_write("hip", j->key, j->code, j->bytes);
        } else {
            snprintf(j->error, sizeof j->error, "%s", message_of(gw_error_text()));
        }
    }
}

static gw_status load_compiled(struct gw_device *device, const gw_hip_compiler *compiler) {
    char name[32];
    gw_hip_text headers[MOST_FILES + 1];
    gw_status status = GW_OK;
    size_t n_headers = list_headers(headers);
    job *jobs = calloc(MOST_FILES, sizeof *jobs);
    if (jobs == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for building the kernels");
    }
    gw_hip_compiler_name(compiler, name, sizeof name);
    int parallel = device->driver->nvidia; /* hiprtc crashes when two threads compile */
    size_t n = list_jobs(device, name, headers, n_headers, jobs);
    if (n > 0 && device->fail_build) {
        break_source(&jobs[0]);
    }
#pragma omp parallel for schedule(dynamic) if (parallel)
    for (size_t i = 0; i < n; i++) {
        do_job(&jobs[i], compiler, headers, n_headers, device->arch);
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = jobs[i].status == GW_OK
                     ? add(device, jobs[i].source.name, jobs[i].code)
                     : gw_fail(jobs[i].status, "hip", "%s: %s", device->name, jobs[i].error);
    }
    for (size_t i = 0; i < n; i++) {
        free(jobs[i].code);
        free(jobs[i].broken);
    }
    free(jobs);
    return status;
}

/* ---- the programs of a device ---------------------------------------------------------------- */

gw_status gw_hip_programs_load(struct gw_device *device) {
    device->programs = calloc(MOST_FILES, sizeof *device->programs);
    if (device->programs == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for the programs");
    }
    if (device->driver->emulated) {
        return add(device, "all kernels", NULL);
    }
    int arch = device->driver->nvidia ? cuda_arch_for(device->capability) : 0;
    if (!device->compile && (device->driver->nvidia ? arch > 0 : amd_arch_is(device->arch))) {
        device->programmatic = arch >= PROGRAMMATIC;
        return load_built(device);
    }
    const gw_hip_compiler *compiler = gw_hip_compiler_open(device->driver->nvidia);
    if (compiler == NULL) {
        return no_code(device);
    }
    device->programmatic = device->capability >= PROGRAMMATIC;
    return load_compiled(device, compiler);
}

void gw_hip_programs_free(struct gw_device *device) {
    for (size_t i = 0; i < device->n_programs; i++) {
        device->driver->ModuleFree(device->programs[i].module);
    }
    free(device->programs);
    device->programs = NULL;
    device->n_programs = 0;
}

gw_status gw_hip_find(struct gw_device *device, const char *kernel, gw_hip_function *out) {
    for (size_t i = 0; i < device->n_programs; i++) {
        if (device->driver->ModuleFunction(out, device->programs[i].module, kernel) == GW_HIP_OK) {
            return GW_OK;
        }
    }
    return gw_fail(GW_E_DEVICE, "hip", "no program of %s has the kernel %s", device->name, kernel);
}
