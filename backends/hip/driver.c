/* backends/hip/driver.c - opens the drivers that are there, fills their tables, names errors. */
#include "backends/hip/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hooks.h"
#include "core/base/os.h"
#include "core/base/os_threads.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static gw_hip_driver tables[GW_HIP_DRIVERS];
static int n_tables;
static char failure[256];

static void *find(void *library, const char *name) {
    return name != NULL ? dlsym(library, name) : NULL;
}

void *gw_hip_library(const char *const *names, const char *symbol, char path[GW_HIP_PATH]) {
    const char *test = gw_hook("GODWIT_HIP_DRIVER");
    void *library = NULL;
    if (test == NULL || test[0] == '\0') {
        for (size_t i = 0; names[i] != NULL && library == NULL; i++) {
            snprintf(path, GW_HIP_PATH, "%s", names[i]);
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
        return library;
    }
    while (*test != '\0') {
        size_t n = strcspn(test, ":");
        snprintf(path, GW_HIP_PATH, "%.*s", (int)(n < GW_HIP_PATH ? n : GW_HIP_PATH - 1), test);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library != NULL && dlsym(library, symbol) != NULL) {
            return library;
        }
        test += n + (test[n] == ':');
    }
    return NULL;
}

/* 0 and a reason when an entry point is missing. */
static int fill(gw_hip_driver *d, void *library) {
    const char *missing = NULL;
    void *at;
#define FIND(field, cu, hip, params)                                                               \
    at = find(library, d->nvidia ? (cu) : (hip));                                                  \
    memcpy(&d->field, &at, sizeof at);
#define NEED(field, cu, hip, params)                                                               \
    FIND(field, cu, hip, params)                                                                   \
    missing = at == NULL && missing == NULL ? (d->nvidia ? (cu) : (hip)) : missing;
    GW_HIP_ENTRY_POINTS(NEED)
    GW_HIP_OPTIONAL_POINTS(FIND)
#undef NEED
#undef FIND
    at = find(library, d->nvidia ? NULL : "hipGetErrorName");
    memcpy(&d->HipErrorName, &at, sizeof at);
    if (d->nvidia ? d->ContextRetain == NULL || d->ContextRelease == NULL || d->ContextSet == NULL
                  : d->SetDevice == NULL) {
        missing = missing != NULL ? missing : "its way to choose a device";
    }
    d->graphs = d->CaptureBegin != NULL && d->CaptureEnd != NULL && d->GraphFree != NULL &&
                d->ExecNew != NULL && d->ExecFree != NULL && d->ExecLaunch != NULL;
    if (missing != NULL) {
        snprintf(failure, sizeof failure, "%.150s lacks %s", d->library, missing);
    }
    return missing == NULL;
}

/* The driver must also start and have a device; a library without a card is as good as none. */
static void add(const char *const *names, int nvidia) {
    gw_hip_driver *d = &tables[n_tables];
    memset(d, 0, sizeof *d);
    d->nvidia = nvidia;
    void *library = gw_hip_library(names, nvidia ? "cuInit" : "hipInit", d->library);
    if (library == NULL) {
        return;
    }
    d->emulated = dlsym(library, "gw_emulated_warp") != NULL;
    d->emulates = dlsym(library, "gw_emulated_processor");
    if (!fill(d, library)) {
        return;
    }
    gw_hip_error error = d->Init(0);
    if (error == GW_HIP_OK) {
        error = d->DeviceCount(&d->n_devices);
    }
    if (error != GW_HIP_OK || d->n_devices < 1) {
        snprintf(failure, sizeof failure, "%.150s finds no device: %s", d->library,
                 gw_hip_error_name(d, error != GW_HIP_OK ? error : GW_HIP_NO_DEVICE));
        return;
    }
    n_tables++;
}

static void find_drivers(void) {
#if defined(_WIN32)
    static const char *const cuda[] = {"nvcuda.dll", NULL};
    static const char *const amd[] = {"amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll", NULL};
#else
    static const char *const cuda[] = {"libcuda.so.1", "libcuda.so", NULL};
    static const char *const amd[] = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6",
                                      "libamdhip64.so.5", NULL};
#endif
    const char *test = gw_hook("GODWIT_HIP_DRIVER");
    snprintf(failure, sizeof failure, "no driver: %.150s",
             test != NULL && test[0] != '\0'
                 ? "GODWIT_HIP_DRIVER names none"
                 : "neither libcuda.so.1 nor libamdhip64.so can be opened");
    add(cuda, 1);
    add(amd, 0);
}

const gw_hip_driver *gw_hip_drivers(int *n, const char **why) {
    pthread_once(&once, find_drivers);
    *n = n_tables;
    if (n_tables == 0 && why != NULL) {
        *why = failure;
    }
    return tables;
}

int gw_hip_attribute_of(const gw_hip_driver *driver, int device, gw_hip_attribute attribute) {
    static const int cuda[] = {10, 16, 97, 75, 76}, amd[] = {87, 63, 74, -1, -1};
    int value = 0, number = driver->nvidia ? cuda[attribute] : amd[attribute];
    if (number < 0 || driver->DeviceAttribute(&value, number, device) != GW_HIP_OK) {
        return 0;
    }
    return value;
}

const char *gw_hip_error_name(const gw_hip_driver *driver, gw_hip_error error) {
    static _Thread_local char other[24];
    const char *name = NULL;
    if (driver->HipErrorName != NULL) {
        name = driver->HipErrorName(error);
    } else if (driver->ErrorName != NULL && driver->ErrorName(error, &name) != GW_HIP_OK) {
        name = NULL;
    }
    if (name != NULL) {
        return name;
    }
    snprintf(other, sizeof other, "error %d", error);
    return other;
}

gw_status gw_hip_check(const gw_hip_driver *driver, gw_hip_error error, const char *what) {
    if (error == GW_HIP_OK) {
        return GW_OK;
    }
    return gw_fail(error == GW_HIP_OUT_OF_MEMORY ? GW_E_NOMEM : GW_E_DEVICE, "hip", "%s failed: %s",
                   what, gw_hip_error_name(driver, error));
}
