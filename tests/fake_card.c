/* tests/fake_card.c - a driver without a card, for the faults of backends/hip: memory is the
 * host's, kernels do nothing, code is accepted unseen. Compiled twice, with NVIDIA's names and with
 * AMD's (FAKE_AMD), each with its run-time compiler.
 *
 * GODWIT_FAKE, comma-separated: devices=N, arch=NUMBER (of sm_NUMBER), no-start, no-compiler,
 * no-capture, refuse-code, driver=N (takes only code that was compiled under it), interrupt=K
 * (Ctrl-C while kernel K is compiled), link=TYPE (of AMD's, between every two), alloc=K and wait=K
 * (the K-th fails, and every later wait). GODWIT_FAKE_LOG: a file that gets a line per compiled
 * kernel, one when the first graph runs, for each graph "graph" and
 * "launch KERNEL BLOCKS THREADS SHARED", and "headers N" for the texts that came with the first
 * kernel.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FAKE_AMD
#define NAME(cu, hip) hip
#define RTC(name) hiprtc##name
#else
#define NAME(cu, hip) cu
#define RTC(name) nvrtc##name
#endif
#define ENTRY __attribute__((visibility("default"))) int

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, NO_IMAGE = 200, LOST = 719 };

/* The value of a word of GODWIT_FAKE, 1 for one without a value; otherwise `absent`. */
static int setting(const char *word, int absent) {
    const char *p = getenv("GODWIT_FAKE");
    size_t n = strlen(word);
    while (p != NULL && *p != '\0') {
        size_t length = strcspn(p, ",");
        if (strncmp(p, word, n) == 0 && (length == n || p[n] == '=')) {
            return length == n ? 1 : atoi(p + n + 1);
        }
        p += length + (p[length] == ',');
    }
    return absent;
}

/* A line of the log. */
static void put_down(const char *word) {
    const char *log = getenv("GODWIT_FAKE_LOG");
    FILE *file = log != NULL ? fopen(log, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%s\n", word);
        fclose(file);
    }
}

/* ---- devices --------------------------------------------------------------------------------- */

ENTRY NAME(cuInit, hipInit)(unsigned flags) {
    return flags != 0 || setting("no-start", 0) ? NO_DEVICE : OK;
}
ENTRY NAME(cuDriverGetVersion, hipDriverGetVersion)(int *version) {
    *version = 12345;
    return OK;
}
ENTRY NAME(cuDeviceGetCount, hipGetDeviceCount)(int *n) {
    *n = setting("devices", 1);
    return *n > 0 ? OK : NO_DEVICE;
}
ENTRY NAME(cuDeviceGet, hipDeviceGet)(int *device, int index) {
    *device = index;
    return index >= 0 && index < setting("devices", 1) ? OK : INVALID;
}
ENTRY NAME(cuDeviceGetName, hipDeviceGetName)(char *name, int room, int device) {
    snprintf(name, (size_t)room, "Fake %s %d", NAME("NVIDIA", "AMD"), device);
    return OK;
}
ENTRY NAME(cuDeviceGetAttribute, hipDeviceGetAttribute)(int *value, int attribute, int device) {
    int arch = setting("arch", 90);
    (void)device;
    switch (attribute) {
    case NAME(10, 87):
        *value = NAME(32, 64);
        return OK;
    case NAME(16, 63):
        *value = 7;
        return OK;
    case NAME(97, 74):
        *value = 65536;
        return OK;
    case NAME(75, -1):
        *value = arch / 10;
        return OK;
    case NAME(76, -2):
        *value = arch % 10;
        return OK;
    default:
        return INVALID;
    }
}
ENTRY NAME(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)3 << 30;
    return OK;
}
ENTRY NAME(cuMemGetInfo_v2, hipMemGetInfo)(size_t *unused, size_t *total) {
    *total = (size_t)3 << 30;
    *unused = (size_t)2 << 30;
    return OK;
}
#ifdef FAKE_AMD
ENTRY hipSetDevice(int device) { return device >= 0 ? OK : INVALID; }
ENTRY hipDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = device != peer;
    return OK;
}
ENTRY hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    return peer >= 0 && flags == 0 ? OK : INVALID;
}
ENTRY hipExtGetLinkTypeAndHopCount(int device, int peer, uint32_t *type, uint32_t *hops) {
    *type = (uint32_t)setting("link", 2); /* 2: PCIe; 4: XGMI */
    *hops = 1;
    return device != peer ? OK : INVALID;
}
ENTRY hipDeviceGetPCIBusId(char *id, int room, int device) {
    snprintf(id, (size_t)room, "0001:%02x:00.0", 0xc0 + device);
    return OK;
}
ENTRY hipGetDevicePropertiesR0600(void *properties, int device) {
    memset(properties, 0, 1472);
    snprintf(properties, 64, "Fake AMD %d", device);
    const int other = setting("gfx", 0);
    const char *name = other > 0 ? "gfx%d:sramecc+:xnack-" : "gfx90a:sramecc+:xnack-";
    snprintf((char *)properties + 1160, 64, name, other);
    return OK;
}
__attribute__((visibility("default"))) const char *hipGetErrorName(int error) {
    return error == LOST        ? "hipErrorLaunchFailure"
           : error == NO_MEMORY ? "hipErrorOutOfMemory"
                                : "hipErrorUnknown";
}
#else
ENTRY cuDevicePrimaryCtxRetain(void **out, int device) {
    static int context;
    *out = &context;
    return device >= 0 ? OK : INVALID;
}
ENTRY cuDevicePrimaryCtxRelease_v2(int device) { return device >= 0 ? OK : INVALID; }
ENTRY cuCtxSetCurrent(void *context) { return context != NULL ? OK : INVALID; }
ENTRY cuGetErrorName(int error, const char **name) {
    *name = error == LOST        ? "CUDA_ERROR_LAUNCH_FAILED"
            : error == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
            : error == NO_IMAGE  ? "CUDA_ERROR_INVALID_IMAGE"
                                 : NULL;
    return *name != NULL ? OK : INVALID;
}
#endif

/* ---- memory ---------------------------------------------------------------------------------- */

ENTRY NAME(cuMemAlloc_v2, hipMalloc)(uint64_t *out, size_t bytes) {
    static int calls;
    void *at = ++calls == setting("alloc", 0) ? NULL : calloc(1, bytes);
    *out = (uint64_t)(uintptr_t)at;
    return at != NULL ? OK : NO_MEMORY;
}
ENTRY NAME(cuMemFree_v2, hipFree)(uint64_t at) {
    free((void *)(uintptr_t)at);
    return OK;
}
ENTRY NAME(cuMemHostAlloc, hipHostMalloc)(void **out, size_t bytes, unsigned flags) {
    *out = calloc(1, bytes);
    return *out != NULL && flags == 0 ? OK : NO_MEMORY;
}
ENTRY NAME(cuMemFreeHost, hipHostFree)(void *at) {
    free(at);
    return OK;
}
ENTRY NAME(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(uint64_t to, const void *from, size_t bytes,
                                                     void *stream) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return stream != NULL ? OK : INVALID;
}
ENTRY NAME(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void *to, uint64_t from, size_t bytes,
                                                     void *stream) {
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return stream != NULL ? OK : INVALID;
}
ENTRY NAME(cuMemsetD8Async, hipMemsetD8Async)(uint64_t at, unsigned char value, size_t bytes,
                                              void *stream) {
    memset((void *)(uintptr_t)at, value, bytes);
    return stream != NULL ? OK : INVALID;
}

/* ---- streams, events, graphs ----------------------------------------------------------------- */

static int handle(void **out) {
    *out = malloc(1);
    return *out != NULL ? OK : NO_MEMORY;
}
static int drop(void *at) {
    free(at);
    return OK;
}

ENTRY NAME(cuStreamCreate, hipStreamCreateWithFlags)(void **out, unsigned flags) {
    return flags == 1 ? handle(out) : INVALID;
}
ENTRY NAME(cuStreamDestroy_v2, hipStreamDestroy)(void *stream) { return drop(stream); }
ENTRY NAME(cuStreamSynchronize, hipStreamSynchronize)(void *stream) {
    static int calls;
    int last = setting("wait", 0);
    return stream != NULL && (last == 0 || ++calls < last) ? OK : LOST;
}
ENTRY NAME(cuEventCreate, hipEventCreateWithFlags)(void **out, unsigned flags) {
    return flags == 0 || flags == 2 ? handle(out) : INVALID;
}
ENTRY NAME(cuEventDestroy_v2, hipEventDestroy)(void *event) { return drop(event); }
ENTRY NAME(cuEventRecord, hipEventRecord)(void *event, void *stream) {
    return event != NULL && stream != NULL ? OK : INVALID;
}
ENTRY NAME(cuEventSynchronize, hipEventSynchronize)(void *event) {
    return event != NULL ? OK : INVALID;
}
ENTRY NAME(cuEventElapsedTime, hipEventElapsedTime)(float *ms, void *from, void *to) {
    *ms = 0.5f;
    return from != NULL && to != NULL ? OK : INVALID;
}
static int capturing;
ENTRY NAME(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void *stream, int mode) {
    capturing = 1;
    put_down("graph");
    return stream != NULL && mode == 1 && !setting("no-capture", 0) ? OK : INVALID;
}
ENTRY NAME(cuStreamEndCapture, hipStreamEndCapture)(void *stream, void **out) {
    capturing = 0;
    return stream != NULL ? handle(out) : INVALID;
}
ENTRY NAME(cuGraphDestroy, hipGraphDestroy)(void *graph) { return drop(graph); }
ENTRY NAME(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(void **out, void *graph,
                                                                      unsigned long long flags) {
    return graph != NULL && flags == 0 ? handle(out) : INVALID;
}
ENTRY NAME(cuGraphExecDestroy, hipGraphExecDestroy)(void *exec) { return drop(exec); }
ENTRY NAME(cuGraphLaunch, hipGraphLaunch)(void *exec, void *stream) {
    static int launches;
    if (launches++ == 0) {
        put_down("first-launch");
    }
    return exec != NULL && stream != NULL ? OK : INVALID;
}

/* ---- code ------------------------------------------------------------------------------------ */

ENTRY NAME(cuModuleLoadData, hipModuleLoadData)(void **out, const void *image) {
    int mine = image != NULL && atoi(image) == setting("driver", 0);
    return mine && !setting("refuse-code", 0) ? handle(out) : NO_IMAGE;
}
ENTRY NAME(cuModuleUnload, hipModuleUnload)(void *module) { return drop(module); }
/* A kernel is its name: it is found once, and lives as long as the process. */
static char *kept_name(const char *name) {
    static char names[400][64];
    static int n;
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0) {
        i++;
    }
    if (i == n && n < 399) {
        snprintf(names[n++], sizeof names[0], "%s", name);
    }
    return names[i];
}

ENTRY NAME(cuModuleGetFunction, hipModuleGetFunction)(void **out, void *module, const char *name) {
    *out = kept_name(name);
    return module != NULL && name[0] != '\0' ? OK : INVALID;
}
ENTRY NAME(cuLaunchKernel, hipModuleLaunchKernel)(void *function, unsigned gx, unsigned gy,
                                                  unsigned gz, unsigned bx, unsigned by,
                                                  unsigned bz, unsigned shared, void *stream,
                                                  void **params, void **extra) {
    char line[128];
    if (capturing) {
        snprintf(line, sizeof line, "launch %s %u %u %u", (const char *)function, gx, bx, shared);
        put_down(line);
    }
    int whole = gx > 0 && gy > 0 && gz > 0 && bx > 0 && by > 0 && bz > 0 && shared <= 65536;
    return whole && function != NULL && stream != NULL && params[0] != NULL && extra == NULL
               ? OK
               : INVALID;
}

#ifndef FAKE_PLAIN
static const char code[] = "0000 code of a fake"; /* the number of the driver comes first */

typedef struct program {
    int broken;
} program;

ENTRY RTC(Version)(int *major, int *minor) {
    *major = 1;
    *minor = 2;
    return setting("no-compiler", 0);
}
ENTRY RTC(CreateProgram)(program **out, const char *source, const char *name, int n,
                         const char *const *headers, const char *const *names) {
    *out = calloc(1, sizeof **out);
    static int first = 1;
    char line[32];
    snprintf(line, sizeof line, "headers %d", n);
    if (first) {
        put_down(line);
    }
    first = 0;
    (*out)->broken = strstr(source, "#error") != NULL;
    return n > 0 && name[0] != '\0' && headers[0] != NULL && names[0] != NULL ? OK : INVALID;
}
ENTRY RTC(CompileProgram)(const program *p, int n, const char *const *options) {
    static const char only[] = "-DGW_ONLY_";
    static int calls;
    if (__sync_add_and_fetch(&calls, 1) == setting("interrupt", 0)) {
        raise(SIGINT);
    }
    for (int i = 0; i < n; i++) {
        if (strncmp(options[i], only, sizeof only - 1) == 0) {
            put_down(options[i] + sizeof only - 1);
        }
    }
    return p->broken || n < 1 || options[0] == NULL ? 6 : OK;
}
ENTRY RTC(DestroyProgram)(program **p) {
    free(*p);
    *p = NULL;
    return OK;
}
ENTRY NAME(nvrtcGetCUBINSize, hiprtcGetCodeSize)(const program *p, size_t *bytes) {
    *bytes = p->broken ? 0 : sizeof code;
    return OK;
}
ENTRY NAME(nvrtcGetCUBIN, hiprtcGetCode)(const program *p, char *out) {
    memcpy(out, code, sizeof code);
    snprintf(out, 5, "%04d", setting("driver", 0));
    out[4] = ' ';
    return p->broken ? INVALID : OK;
}
static const char text[] = "first line: made to fail\nsecond line\n";
ENTRY RTC(GetProgramLogSize)(const program *p, size_t *bytes) {
    *bytes = p->broken ? sizeof text : 1;
    return OK;
}
ENTRY RTC(GetProgramLog)(const program *p, char *out) {
    memcpy(out, p->broken ? text : "", p->broken ? sizeof text : 1);
    return OK;
}
#endif
