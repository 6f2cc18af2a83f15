/* backends/hip/compiler.c - opens NVRTC or hiprtc and compiles with it. */
#include "backends/hip/compiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/hip/driver.h"
#include "backends/hip/processor.h"
#include "core/base/build_log.h"
#include "core/base/os.h"
#include "core/base/os_threads.h"
#include "core/base/waits.h"

typedef struct rtc_program *rtc_program;

/* X(field, NVRTC name, hiprtc name, parameters) */
/* clang-format off */
#define ENTRY_POINTS(X)                                                                            \
    X(Version, "nvrtcVersion", "hiprtcVersion", (int *major, int *minor))                          \
    X(Create, "nvrtcCreateProgram", "hiprtcCreateProgram",                                         \
      (rtc_program *out, const char *source, const char *name, int n, const char *const *headers,  \
       const char *const *names))                                                                  \
    X(Compile, "nvrtcCompileProgram", "hiprtcCompileProgram",                                      \
      (rtc_program program, int n, const char *const *options))                                    \
    X(Destroy, "nvrtcDestroyProgram", "hiprtcDestroyProgram", (rtc_program *program))              \
    X(CodeSize, "nvrtcGetCUBINSize", "hiprtcGetCodeSize", (rtc_program program, size_t *bytes))    \
    X(Code, "nvrtcGetCUBIN", "hiprtcGetCode", (rtc_program program, char *out))                    \
    X(LogSize, "nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize",                                \
      (rtc_program program, size_t *bytes))                                                        \
    X(Log, "nvrtcGetProgramLog", "hiprtcGetProgramLog", (rtc_program program, char *out))
/* clang-format on */

struct gw_hip_compiler {
    int nvidia, there;
#define FIELD(name, nv, hip, params) int(*name) params;
    ENTRY_POINTS(FIELD)
#undef FIELD
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static gw_hip_compiler compilers[2]; /* AMD's, NVIDIA's */

static void find(gw_hip_compiler *c, const char *const *names) {
    char path[GW_HIP_PATH];
    int major = 0, minor = 0;
    void *at, *library = gw_hip_library(names, c->nvidia ? "nvrtcVersion" : "hiprtcVersion", path);
    c->there = library != NULL;
    if (library == NULL) {
        return;
    }
#define FIND(field, nv, hip, params)                                                               \
    at = dlsym(library, c->nvidia ? (nv) : (hip));                                                 \
    memcpy(&c->field, &at, sizeof at);                                                             \
    c->there = c->there && at != NULL;
    ENTRY_POINTS(FIND)
#undef FIND
    c->there = c->there && c->Version(&major, &minor) == 0;
}

static void find_both(void) {
#if defined(_WIN32)
    static const char *const amd[] = {"hiprtc0700.dll", "hiprtc0604.dll", "hiprtc.dll", NULL};
    static const char *const nvidia[] = {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll", NULL};
#else
    static const char *const amd[] = {"libhiprtc.so",     "libhiprtc.so.7",   "libhiprtc.so.6",
                                      "libhiprtc.so.5",   "libamdhip64.so",   "libamdhip64.so.7",
                                      "libamdhip64.so.6", "libamdhip64.so.5", NULL};
    static const char *const nvidia[] = {"libnvrtc.so",
                                         "libnvrtc.so.13",
                                         "libnvrtc.so.12",
                                         "libnvrtc.so.11.2",
                                         "/usr/local/cuda/lib64/libnvrtc.so",
                                         NULL};
#endif
    find(&compilers[0], amd);
    compilers[1].nvidia = 1;
    find(&compilers[1], nvidia);
}

const gw_hip_compiler *gw_hip_compiler_open(int nvidia) {
    pthread_once(&once, find_both);
    const gw_hip_compiler *c = &compilers[nvidia ? 1 : 0];
    return c->there ? c : NULL;
}

int gw_hip_compiler_major(const gw_hip_compiler *compiler) {
    int major = 0, minor = 0;
    return compiler->Version(&major, &minor) == 0 ? major : 0;
}

void gw_hip_compiler_name(const gw_hip_compiler *compiler, char *out, size_t room) {
    int major = 0, minor = 0;
    (void)compiler->Version(&major, &minor);
    snprintf(out, room, "%s %d.%d", compiler->nvidia ? "NVRTC" : "hiprtc", major, minor);
}

static gw_status failed(const gw_hip_compiler *c, rtc_program program, const char *source,
                        const char *kernel, const char *arch) {
    size_t bytes = 0;
    char *log = NULL;
    if (c->LogSize(program, &bytes) == 0 && bytes > 0) {
        log = calloc(1, bytes + 1);
    }
    if (log != NULL && c->Log(program, log) == 0) {
        gw_log_to_line(log);
    }
    gw_status status = gw_fail(GW_E_DEVICE, "hip", "cannot build %s (%s) for %s: %s", source,
                               kernel, arch, log != NULL ? log : "no log");
    free(log);
    return status;
}

static gw_status take_code(const gw_hip_compiler *c, rtc_program program, const char *source,
                           void **out, size_t *bytes) {
    size_t n = 0;
    if (c->CodeSize(program, &n) != 0 || n == 0) {
        return gw_fail(GW_E_DEVICE, "hip", "building %s gave no code", source);
    }
    char *code = malloc(n);
    if (code == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for %zu bytes of code", n);
    }
    if (c->Code(program, code) != 0) {
        free(code);
        return gw_fail(GW_E_DEVICE, "hip", "building %s gave no code", source);
    }
    *out = code;
    *bytes = n;
    return GW_OK;
}

/* Contraction off; division, square root and subnormal numbers are IEEE by default. */
void gw_hip_options_for(const gw_hip_compiler *c, const char *arch, const char *extra,
                        gw_hip_options *out) {
    static const char *const nvidia[] = {"-std=c++17", "--fmad=false", "-default-device"};
    static const char *const amd[] = {"-std=c++17", "-ffp-contract=off", "-O3"};
    *out = (gw_hip_options){.n = 0};
    snprintf(out->target, sizeof out->target,
             c->nvidia ? "--gpu-architecture=%.32s" : "--offload-arch=%.32s", arch);
    snprintf(out->extra, sizeof out->extra, "%s", extra);
    for (size_t i = 0; i < sizeof amd / sizeof amd[0]; i++) {
        out->at[out->n++] = c->nvidia ? nvidia[i] : amd[i];
    }
    out->at[out->n++] = out->target;
    if (extra[0] != '\0') {
        out->at[out->n++] = out->extra;
    }
    int known;
    const gw_hip_processor *row = gw_hip_processor_of(arch, &known);
    if (!known) {
        if (row->name[0] != '\0') {
            snprintf(out->unknown, sizeof out->unknown, "-DGW_ARCH_SM=%.16s0", row->name + 3);
        } else {
            snprintf(out->unknown, sizeof out->unknown, "-DGW_UNKNOWN_PROCESSOR");
        }
        out->at[out->n++] = out->unknown;
    }
}

gw_status gw_hip_compile(const gw_hip_compiler *c, const gw_hip_text *source, const char *kernel,
                         const gw_hip_text *headers, size_t n_headers,
                         const gw_hip_options *options, void **out, size_t *bytes) {
    char only[96];
    const char *given[GW_HIP_OPTIONS + 2];
    rtc_program program = NULL;
    int n = options->n;
    memcpy(given, options->at, sizeof options->at);
    if (kernel != NULL) {
        snprintf(only, sizeof only, "-DGW_ONLY_%.64s", kernel);
        given[n++] = "-DGW_ONLY";
        given[n++] = only;
    }
    const char **lists = calloc(2 * n_headers + 1, sizeof *lists);
    if (lists == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for building %s", source->name);
    }
    for (size_t i = 0; i < n_headers; i++) {
        lists[i] = headers[i].text;
        lists[n_headers + i] = headers[i].name;
    }
    int error =
        c->Create(&program, source->text, source->name, (int)n_headers, lists, lists + n_headers);
    free(lists);
    if (error != 0) {
        return gw_fail(GW_E_DEVICE, "hip", "the compiler takes no program (error %d)", error);
    }
    error = GW_WAITED(c->Compile(program, n, given));
    gw_status status = error == 0
                           ? take_code(c, program, source->name, out, bytes)
                           : failed(c, program, source->name, kernel != NULL ? kernel : "all",
                                    strchr(options->target, '=') + 1);
    c->Destroy(&program);
    return status;
}
