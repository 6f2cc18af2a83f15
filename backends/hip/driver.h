/* backends/hip/driver.h - one table of driver entry points over two drivers: cu* of libcuda.so.1
 * and hip* of libamdhip64.so. Everything above the table is one code.
 *
 * The few types and constants are our own declarations of the public interfaces: handles are
 * pointers, device addresses 64-bit numbers, errors ints (the numbers used here mean the same in
 * both). Libraries are opened once per process with local visibility and stay open.
 *
 * GODWIT_HIP_DRIVER, in a build with its tests: the path of a library with the cu* names that is
 * opened instead of both. When it has the symbol gw_emulated_warp it holds the kernels itself, and
 * a module is made of no image (NULL).
 */
#ifndef GW_BACKENDS_HIP_DRIVER_H
#define GW_BACKENDS_HIP_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

typedef int gw_hip_error;
typedef uint64_t gw_hip_ptr; /* an address in device memory */
typedef struct gw_hip_context_handle *gw_hip_context;
typedef struct gw_hip_module_handle *gw_hip_module;
typedef struct gw_hip_function_handle *gw_hip_function;
typedef struct gw_hip_stream_handle *gw_hip_stream;
typedef struct gw_hip_event_handle *gw_hip_event;
typedef struct gw_hip_graph_handle *gw_hip_graph;
typedef struct gw_hip_exec_handle *gw_hip_exec;

enum {
    GW_HIP_OK = 0,
    GW_HIP_OUT_OF_MEMORY = 2,
    GW_HIP_NO_DEVICE = 100,
    GW_HIP_NO_CODE = 209,
    GW_HIP_NOT_FOUND = 500,
    GW_HIP_STREAM_NON_BLOCKING = 1,
    GW_HIP_EVENT_NO_TIMING = 2,
    GW_HIP_CAPTURE_THREAD_LOCAL = 1,
    GW_HIP_FUNCTION_STATIC_SHARED = 1,
    GW_HIP_FUNCTION_DYNAMIC_SHARED = 8,
    GW_HIP_LAUNCH_CLUSTER = 4,      /* its dimensions */
    GW_HIP_LAUNCH_PROGRAMMATIC = 6, /* programmatic stream serialization */
    GW_HIP_LAUNCH_CARVEOUT = 14     /* of shared memory, in percent; CUDA 13.0 has it */
};

enum { GW_HIP_PATH = 512 };

/* The attribute of a launch and its configuration, as cuLaunchKernelEx takes them. */
typedef struct gw_hip_launch_attribute {
    unsigned id, pad;
    union {
        int flag;
        unsigned size[3];
        char bytes[64];
    } value;
} gw_hip_launch_attribute;

typedef struct gw_hip_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    gw_hip_stream stream;
    gw_hip_launch_attribute *attributes;
    unsigned n_attributes;
} gw_hip_launch_config;

/* X(field, cu name, hip name, parameters); all return gw_hip_error. */
/* clang-format off */
#define GW_HIP_ENTRY_POINTS(X)                                                                     \
    X(Init, "cuInit", "hipInit", (unsigned flags))                                                 \
    X(DriverVersion, "cuDriverGetVersion", "hipDriverGetVersion", (int *version))                  \
    X(DeviceCount, "cuDeviceGetCount", "hipGetDeviceCount", (int *n))                              \
    X(DeviceGet, "cuDeviceGet", "hipDeviceGet", (int *device, int index))                          \
    X(DeviceName, "cuDeviceGetName", "hipDeviceGetName", (char *name, int room, int device))       \
    X(DeviceAttribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute",                            \
      (int *value, int attribute, int device))                                                     \
    X(DeviceMemory, "cuDeviceTotalMem_v2", "hipDeviceTotalMem", (size_t *bytes, int device))       \
    X(MemInfo, "cuMemGetInfo_v2", "hipMemGetInfo", (size_t *unused, size_t *total))                \
    X(Alloc, "cuMemAlloc_v2", "hipMalloc", (gw_hip_ptr *out, size_t bytes))                        \
    X(Free, "cuMemFree_v2", "hipFree", (gw_hip_ptr at))                                            \
    X(HostAlloc, "cuMemHostAlloc", "hipHostMalloc", (void **out, size_t bytes, unsigned flags))    \
    X(HostFree, "cuMemFreeHost", "hipHostFree", (void *at))                                        \
    X(Write, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync",                                         \
      (gw_hip_ptr to, const void *from, size_t bytes, gw_hip_stream stream))                       \
    X(Read, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync",                                          \
      (void *to, gw_hip_ptr from, size_t bytes, gw_hip_stream stream))                             \
    X(Fill, "cuMemsetD8Async", "hipMemsetD8Async",                                                 \
      (gw_hip_ptr at, unsigned char value, size_t bytes, gw_hip_stream stream))                    \
    X(StreamNew, "cuStreamCreate", "hipStreamCreateWithFlags",                                     \
      (gw_hip_stream *out, unsigned flags))                                                        \
    X(StreamFree, "cuStreamDestroy_v2", "hipStreamDestroy", (gw_hip_stream stream))                \
    X(StreamWait, "cuStreamSynchronize", "hipStreamSynchronize", (gw_hip_stream stream))           \
    X(EventNew, "cuEventCreate", "hipEventCreateWithFlags", (gw_hip_event *out, unsigned flags))   \
    X(EventFree, "cuEventDestroy_v2", "hipEventDestroy", (gw_hip_event event))                     \
    X(EventRecord, "cuEventRecord", "hipEventRecord", (gw_hip_event event, gw_hip_stream stream))  \
    X(EventWait, "cuEventSynchronize", "hipEventSynchronize", (gw_hip_event event))                \
    X(EventTime, "cuEventElapsedTime", "hipEventElapsedTime",                                      \
      (float *milliseconds, gw_hip_event from, gw_hip_event to))                                   \
    X(ModuleLoad, "cuModuleLoadData", "hipModuleLoadData",                                         \
      (gw_hip_module *out, const void *image))                                                     \
    X(ModuleFree, "cuModuleUnload", "hipModuleUnload", (gw_hip_module module))                     \
    X(ModuleFunction, "cuModuleGetFunction", "hipModuleGetFunction",                               \
      (gw_hip_function *out, gw_hip_module module, const char *name))                              \
    X(Launch, "cuLaunchKernel", "hipModuleLaunchKernel",                                           \
      (gw_hip_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       gw_hip_stream stream, void **params, void **extra))

/* Fields that may stay NULL: what only one driver has, and graphs, which old drivers lack. */
#define GW_HIP_OPTIONAL_POINTS(X)                                                                  \
    X(ContextRetain, "cuDevicePrimaryCtxRetain", NULL, (gw_hip_context *out, int device))          \
    X(ContextRelease, "cuDevicePrimaryCtxRelease_v2", NULL, (int device))                          \
    X(ContextSet, "cuCtxSetCurrent", NULL, (gw_hip_context context))                               \
    X(SetDevice, NULL, "hipSetDevice", (int device))                                               \
    X(ErrorName, "cuGetErrorName", NULL, (gw_hip_error error, const char **name))                  \
    X(FunctionSet, "cuFuncSetAttribute", NULL,                                                     \
      (gw_hip_function function, int attribute, int value))                                        \
    X(FunctionGet, "cuFuncGetAttribute", NULL,                                                     \
      (int *value, int attribute, gw_hip_function function))                                       \
    X(Occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                    \
      "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",                                        \
      (int *blocks, gw_hip_function function, int block, size_t shared_bytes))                     \
    X(CanPeer, "cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer",                                  \
      (int *can, int device, int peer))                                                            \
    X(PeerAttribute, "cuDeviceGetP2PAttribute", NULL,                                              \
      (int *value, int attribute, int device, int peer))                                           \
    X(PeerLink, NULL, "hipExtGetLinkTypeAndHopCount",                                              \
      (int device, int peer, uint32_t *type, uint32_t *hops))                                      \
    X(PciBusId, NULL, "hipDeviceGetPCIBusId", (char *id, int room, int device))                    \
    X(PeerContext, "cuCtxEnablePeerAccess", NULL, (gw_hip_context peer, unsigned flags))           \
    X(PeerDevice, NULL, "hipDeviceEnablePeerAccess", (int peer, unsigned flags))                   \
    X(CopyContext, "cuMemcpyPeerAsync", NULL,                                                      \
      (gw_hip_ptr to, gw_hip_context to_context, gw_hip_ptr from, gw_hip_context from_context,     \
       size_t bytes, gw_hip_stream stream))                                                        \
    X(CopyDevice, NULL, "hipMemcpyPeerAsync",                                                      \
      (gw_hip_ptr to, int to_device, gw_hip_ptr from, int from_device, size_t bytes,               \
       gw_hip_stream stream))                                                                      \
    X(StreamAwait, "cuStreamWaitEvent", "hipStreamWaitEvent",                                      \
      (gw_hip_stream stream, gw_hip_event event, unsigned flags))                                  \
    X(AllocFine, NULL, "hipExtMallocWithFlags", (gw_hip_ptr *out, size_t bytes, unsigned flags))   \
    X(Properties, NULL, "hipGetDevicePropertiesR0600", (void *properties, int device))             \
    X(OldProperties, NULL, "hipGetDeviceProperties", (void *properties, int device))               \
    X(LaunchEx, "cuLaunchKernelEx", NULL,                                                          \
      (const gw_hip_launch_config *config, gw_hip_function function, void **params, void **extra)) \
    X(OccupancyClusters, "cuOccupancyMaxActiveClusters", NULL,                                     \
      (int *clusters, gw_hip_function function, const gw_hip_launch_config *config))               \
    X(CaptureBegin, "cuStreamBeginCapture_v2", "hipStreamBeginCapture",                            \
      (gw_hip_stream stream, int mode))                                                            \
    X(CaptureEnd, "cuStreamEndCapture", "hipStreamEndCapture",                                     \
      (gw_hip_stream stream, gw_hip_graph *out))                                                   \
    X(GraphFree, "cuGraphDestroy", "hipGraphDestroy", (gw_hip_graph graph))                        \
    X(ExecNew, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags",                      \
      (gw_hip_exec *out, gw_hip_graph graph, unsigned long long flags))                            \
    X(ExecFree, "cuGraphExecDestroy", "hipGraphExecDestroy", (gw_hip_exec exec))                   \
    X(ExecLaunch, "cuGraphLaunch", "hipGraphLaunch", (gw_hip_exec exec, gw_hip_stream stream))
/* clang-format on */

typedef struct gw_hip_driver {
    char library[GW_HIP_PATH]; /* as it was opened */
    int nvidia;                /* cu* names */
    int emulated;              /* the kernels are in the driver library itself (tests) */
    const char *emulates;      /* the processor that they were built as: kernels_hip/arch.h; or NULL */
    int graphs;                /* capture and replay are there */
    int n_devices;
    const char *(*HipErrorName)(gw_hip_error error); /* AMD's returns the text */
#define GW_HIP_FIELD(name, cu, hip, params) gw_hip_error(*name) params;
    GW_HIP_ENTRY_POINTS(GW_HIP_FIELD) GW_HIP_OPTIONAL_POINTS(GW_HIP_FIELD)
#undef GW_HIP_FIELD
} gw_hip_driver;

enum { GW_HIP_DRIVERS = 2 };

/* A library that has `symbol`: the first of names that opens (NULL-terminated), or one of
 * GODWIT_HIP_DRIVER. NULL: none. */
void *gw_hip_library(const char *const *names, const char *symbol, char path[GW_HIP_PATH]);

/* The drivers found, NVIDIA's first; *n of them. *why (may be NULL): what is wrong when n is 0.
 * Any thread. */
const gw_hip_driver *gw_hip_drivers(int *n, const char **why);

/* What devices are asked about; the numbers differ between the drivers. */
typedef enum gw_hip_attribute {
    GW_HIP_WARP,         /* threads that run together                */
    GW_HIP_UNITS,        /* multiprocessors, compute units           */
    GW_HIP_SHARED_BYTES, /* of one block, at most                    */
    GW_HIP_MAJOR,        /* compute capability: NVIDIA only          */
    GW_HIP_MINOR
} gw_hip_attribute;

/* 0 when the driver does not say. */
int gw_hip_attribute_of(const gw_hip_driver *driver, int device, gw_hip_attribute attribute);

/* "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory", or "error 9999". */
const char *gw_hip_error_name(const gw_hip_driver *driver, gw_hip_error error);

/* GW_OK, or GW_E_NOMEM / GW_E_DEVICE with the name of the error and what was being done. */
gw_status gw_hip_check(const gw_hip_driver *driver, gw_hip_error error, const char *what);

#endif
