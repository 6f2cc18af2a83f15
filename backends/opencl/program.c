/* backends/opencl/program.c - texts of kernels_cl to programs of a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/base/build_log.h"
#include "core/base/cache.h"
#include "core/base/os.h"
#include "core/base/waits.h"
#include "opencl_sources.h"

enum { KEY_BYTES = 384, TEXTS = 23, OPTION_BYTES = 512 };

const char *gw_cl_text(const char *name) {
    for (size_t i = 0; i < sizeof opencl_sources / sizeof opencl_sources[0]; i++) {
        if (strcmp(opencl_sources[i].name, name) == 0) {
            return opencl_sources[i].text;
        }
    }
    return "#error no such text\n";
}

const char *gw_cl_kernels(const char *source) {
    size_t n = strlen(source);
    for (size_t i = 0; i < sizeof opencl_sources / sizeof opencl_sources[0]; i++) {
        const char *slash = strrchr(opencl_sources[i].name, '/');
        if (slash != NULL && strncmp(slash + 1, source, n) == 0 &&
            strcmp(slash + 1 + n, ".cl") == 0) {
            return opencl_sources[i].text;
        }
    }
    return "#error no such text\n";
}

/* Without fast-math; arith.h's fma are written out and contraction is off in common.cl. */
static void all_options(const struct gw_device *device, const char *options, char *out,
                        size_t room) {
    snprintf(out, room, "-cl-std=CL1.2%s -DGW_SHUFFLES=%d -DGW_DOTS=%d%s%s%s%s%s %s",
             device->unpromised ? "" : " -cl-fp32-correctly-rounded-divide-sqrt", device->shuffles,
             device->dots, device->item ? " -DGW_ITEM" : "", device->nvidia ? " -DGW_NV" : "",
             device->hints ? " -DGW_NV_CACHES" : "", device->compact ? " -DGW_COMPACT" : "",
             device->plain ? " -DGW_PLAIN" : "", options);
}

/* ---- compiling ------------------------------------------------------------------------------- */

/* Compilers of processors (PoCL's) write what is in the log on standard error as well, which is not
 * theirs: it is shut while they work. The stream above it has no buffer. */
cl_int gw_cl_build(const struct gw_device *device, cl_program program, const char *options) {
    int kept = -1, nowhere = -1;
    if (device->processor) {
        kept = gw_os_duplicate(STDERR_FILENO);
        nowhere = kept >= 0 ? gw_os_open_null(O_WRONLY) : -1;
    }
    if (nowhere >= 0) {
        dup2(nowhere, STDERR_FILENO);
        close(nowhere);
    }
    cl_int error =
        GW_WAITED(device->cl->BuildProgram(program, 1, &device->id, options, NULL, NULL));
    if (nowhere >= 0) {
        dup2(kept, STDERR_FILENO);
    }
    if (kept >= 0) {
        close(kept);
    }
    return error;
}

static gw_status build_error(struct gw_device *device, cl_program program, const char *source,
                             cl_int error) {
    size_t bytes = 0;
    char *log = NULL;
    const gw_cl_driver *cl = device->cl;
    if (cl->GetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) ==
            CL_SUCCESS &&
        bytes > 0) {
        log = calloc(1, bytes + 1);
    }
    if (log != NULL) {
        cl->GetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL);
        gw_log_to_line(log);
    }
    gw_status status = gw_fail(GW_E_DEVICE, "opencl", "%s cannot build %s (%s): %s", device->name,
                               source, gw_cl_error_name(error), log != NULL ? log : "no log");
    free(log);
    return status;
}

static gw_status build(struct gw_device *device, const char *source, const char **texts, cl_uint n,
                       const char *options, cl_program *out) {
    const gw_cl_driver *cl = device->cl;
    cl_int error = CL_SUCCESS;
    cl_program program = cl->CreateProgramWithSource(device->context, n, texts, NULL, &error);
    GW_TRY(gw_cl_check(error, "creating a program"));
    error = gw_cl_build(device, program, options);
    if (error != CL_SUCCESS) {
        gw_status status = build_error(device, program, source, error);
        cl->ReleaseProgram(program);
        return status;
    }
    *out = program;
    return GW_OK;
}

static cl_program from_cache(struct gw_device *device, uint64_t key, const char *options) {
    const gw_cl_driver *cl = device->cl;
    size_t bytes = 0;
    cl_int error = CL_SUCCESS, taken = CL_SUCCESS;
    unsigned char *data = gw_cache_read("opencl", key, &bytes);
    if (data == NULL) {
        return NULL;
    }
    const unsigned char *binary = data;
    cl_program program = cl->CreateProgramWithBinary(device->context, 1, &device->id, &bytes,
                                                     &binary, &taken, &error);
    free(data);
    if (error != CL_SUCCESS || taken != CL_SUCCESS) {
        program = NULL;
    } else if (gw_cl_build(device, program, options) != CL_SUCCESS) {
        cl->ReleaseProgram(program);
        program = NULL;
    }
    return program;
}

static void to_cache(const struct gw_device *device, uint64_t key, cl_program program) {
    const gw_cl_driver *cl = device->cl;
    size_t bytes = 0;
    if (cl->GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) !=
            CL_SUCCESS ||
        bytes == 0) {
        return;
    }
    unsigned char *data = malloc(bytes);
    if (data != NULL &&
        cl->GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL) == CL_SUCCESS) {
        gw_cache_write("opencl", key, data, bytes);
    }
    free(data);
}

static uint64_t cache_key(const struct gw_device *device, const char **texts, cl_uint n,
                          const char *options) {
    uint64_t key = gw_cache_hash(1, device->name, strlen(device->name));
    key = gw_cache_hash(key, device->driver, strlen(device->driver));
    key = gw_cache_hash(key, options, strlen(options));
    for (cl_uint i = 0; i < n; i++) {
        key = gw_cache_hash(key, texts[i], strlen(texts[i]));
    }
    return key;
}

/* ---- the list of a device -------------------------------------------------------------------- */

static gw_status keep(struct gw_device *device, const char *key, cl_program program) {
    gw_cl_program *entry = calloc(1, sizeof *entry);
    char *copy = strdup(key);
    if (entry == NULL || copy == NULL) {
        free(entry);
        free(copy);
        device->cl->ReleaseProgram(program);
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for a program");
    }
    *entry = (gw_cl_program){.next = device->programs, .key = copy, .program = program};
    device->programs = entry;
    return GW_OK;
}

static const gw_cl_program *find(const struct gw_device *device, const char *key) {
    const gw_cl_program *p = device->programs;
    while (p != NULL && strcmp(p->key, key) != 0) {
        p = p->next;
    }
    return p;
}

/* Out of the cache, or built and put there; then kept by the device. */
static gw_status make(struct gw_device *device, const char *source, const char *key,
                      const char **texts, cl_uint n, const char *options,
                      const gw_cl_program **out) {
    char all[OPTION_BYTES];
    all_options(device, options, all, sizeof all);
    if (device->fail_build > 0 && --device->fail_build == 0) {
        strncat(all, " -DGW_BROKEN", sizeof all - strlen(all) - 1);
    }
    uint64_t hash = cache_key(device, texts, n, all);
    cl_program program = device->no_cache ? NULL : from_cache(device, hash, all);
    if (program == NULL) {
        GW_TRY(build(device, source, texts, n, all, &program));
        if (!device->no_cache) {
            to_cache(device, hash, program);
        }
    }
    GW_TRY(keep(device, key, program));
    *out = device->programs;
    return GW_OK;
}

gw_status gw_cl_program_get(struct gw_device *device, const char *source, const char *options,
                            const gw_cl_program **out) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s %s", source, options);
    *out = find(device, key);
    if (*out != NULL) {
        return GW_OK;
    }
    const int ngrams = strcmp(source, "ngram") == 0;
    const int areas = strcmp(source, "listed") == 0; /* which nobody else reads */
    const int digits = strncmp(source, "attention_digits", 16) == 0;
    const int packed = strcmp(source, "cells") == 0 || strstr(options, "-DPACKED") != NULL;
    const char *texts[TEXTS] = {"#pragma OPENCL FP_CONTRACT OFF\n",
                                gw_cl_text("core/tensor/dialect.h"),
                                gw_cl_text("core/tensor/arith.h"),
                                gw_cl_text("core/tensor/format_list.h"),
                                gw_cl_text("core/tensor/blocks.h"),
                                gw_cl_text("core/tensor/e4m3.h"),
                                gw_cl_text("core/tensor/nvfp4.h"),
                                gw_cl_text("core/tensor/planes.h"),
                                gw_cl_text("core/tensor/sample.h"),
                                gw_cl_text("core/tensor/act.h"),
                                gw_cl_text("core/tensor/route.h"),
                                areas ? gw_cl_text("core/tensor/area.h") : "",
                                ngrams ? gw_cl_text("core/tensor/ngram_row.h") : "",
                                gw_cl_kernels("exchange"),
                                gw_cl_kernels("common"),
                                gw_cl_kernels("planes"),
                                gw_cl_kernels("lanes"),
                                gw_cl_kernels("matrix"),
                                packed ? gw_cl_text("core/tensor/cells.h") : "",
                                gw_cl_kernels("attention"),
                                digits ? gw_cl_text("core/tensor/digits.h") : "",
                                digits ? gw_cl_kernels("digits") : "",
                                gw_cl_kernels(source)};
    return make(device, source, key, texts, TEXTS, options, out);
}

gw_status gw_cl_program_of(struct gw_device *device, const char *text, const char *options,
                           const gw_cl_program **out) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "- %016llx %s",
             (unsigned long long)gw_cache_hash(1, text, strlen(text)), options);
    *out = find(device, key);
    return *out != NULL ? GW_OK : make(device, "a step", key, &text, 1, options, out);
}

void gw_cl_programs_free(struct gw_device *device) {
    for (gw_cl_program *p = device->programs; p != NULL;) {
        gw_cl_program *next = p->next;
        device->cl->ReleaseProgram(p->program);
        free(p->key);
        free(p);
        p = next;
    }
    device->programs = NULL;
}
