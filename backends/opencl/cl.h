/* backends/opencl/cl.h - what is used of the OpenCL 1.2 interface: types, constants and entry
 * points, with the names and values of the Khronos specification, so that building needs no header
 * of anybody's. The library is found when the program runs (driver.c).
 */
#ifndef GW_BACKENDS_OPENCL_CL_H
#define GW_BACKENDS_OPENCL_CL_H

#include <stddef.h>
#include <stdint.h>

typedef uint8_t cl_uchar;
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_uint cl_bool, cl_device_info;
typedef cl_ulong cl_device_type, cl_device_fp_config;
typedef intptr_t cl_context_properties;

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;

#define CL_DEVICE_TYPE_ALL ((cl_device_type)0xFFFFFFFF)

enum { /* flags */
    CL_FALSE = 0,
    CL_TRUE = 1,
    CL_DEVICE_TYPE_CPU = (1 << 1),
    CL_DEVICE_TYPE_GPU = (1 << 2),
    CL_FP_DENORM = (1 << 0),
    CL_FP_FMA = (1 << 5),
    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = (1 << 7),
    CL_MEM_READ_WRITE = (1 << 0),
    CL_MEM_READ_ONLY = (1 << 2),
    CL_MEM_USE_HOST_PTR = (1 << 3),
    CL_MEM_ALLOC_HOST_PTR = (1 << 4),
    CL_MAP_READ = (1 << 0),
    CL_MAP_WRITE = (1 << 1),
    CL_QUEUE_PROFILING_ENABLE = (1 << 1),
};

enum { /* questions */
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_ENDIAN_LITTLE = 0x1026,
    CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    CL_CONTEXT_PLATFORM = 0x1084,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283,
};

enum { /* errors */
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_DEVICE_NOT_AVAILABLE = -2,
    CL_COMPILER_NOT_AVAILABLE = -3,
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    CL_OUT_OF_RESOURCES = -5,
    CL_OUT_OF_HOST_MEMORY = -6,
    CL_BUILD_PROGRAM_FAILURE = -11,
    CL_INVALID_VALUE = -30,
    CL_INVALID_DEVICE = -33,
    CL_INVALID_CONTEXT = -34,
    CL_INVALID_COMMAND_QUEUE = -36,
    CL_INVALID_MEM_OBJECT = -38,
    CL_INVALID_BINARY = -42,
    CL_INVALID_BUILD_OPTIONS = -43,
    CL_INVALID_PROGRAM = -44,
    CL_INVALID_PROGRAM_EXECUTABLE = -45,
    CL_INVALID_KERNEL_NAME = -46,
    CL_INVALID_KERNEL = -48,
    CL_INVALID_ARG_INDEX = -49,
    CL_INVALID_ARG_VALUE = -50,
    CL_INVALID_ARG_SIZE = -51,
    CL_INVALID_KERNEL_ARGS = -52,
    CL_INVALID_WORK_GROUP_SIZE = -54,
    CL_INVALID_WORK_ITEM_SIZE = -55,
    CL_INVALID_OPERATION = -59,
    CL_INVALID_BUFFER_SIZE = -61,
    CL_INVALID_GLOBAL_WORK_SIZE = -63,
};

/* X(result, name without "cl", arguments) */
/* clang-format off */
#define GW_CL_ENTRY_POINTS(X)                                                                      \
    X(cl_int, GetPlatformIDs, (cl_uint, cl_platform_id *, cl_uint *))                              \
    X(cl_int, GetDeviceIDs, (cl_platform_id, cl_device_type, cl_uint, cl_device_id *, cl_uint *))  \
    X(cl_int, GetDeviceInfo, (cl_device_id, cl_device_info, size_t, void *, size_t *))             \
    X(cl_context, CreateContext, (const cl_context_properties *, cl_uint, const cl_device_id *,    \
        void (*)(const char *, const void *, size_t, void *), void *, cl_int *))                   \
    X(cl_int, ReleaseContext, (cl_context))                                                        \
    X(cl_command_queue, CreateCommandQueue, (cl_context, cl_device_id, cl_ulong, cl_int *))        \
    X(cl_int, ReleaseCommandQueue, (cl_command_queue))                                             \
    X(cl_mem, CreateBuffer, (cl_context, cl_ulong, size_t, void *, cl_int *))                      \
    X(cl_int, ReleaseMemObject, (cl_mem))                                                          \
    X(cl_program, CreateProgramWithSource, (cl_context, cl_uint, const char **, const size_t *,    \
        cl_int *))                                                                                 \
    X(cl_program, CreateProgramWithBinary, (cl_context, cl_uint, const cl_device_id *,             \
        const size_t *, const unsigned char **, cl_int *, cl_int *))                               \
    X(cl_int, BuildProgram, (cl_program, cl_uint, const cl_device_id *, const char *,              \
        void (*)(cl_program, void *), void *))                                                     \
    X(cl_int, GetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *))  \
    X(cl_int, GetProgramInfo, (cl_program, cl_uint, size_t, void *, size_t *))                     \
    X(cl_int, ReleaseProgram, (cl_program))                                                        \
    X(cl_kernel, CreateKernel, (cl_program, const char *, cl_int *))                               \
    X(cl_int, ReleaseKernel, (cl_kernel))                                                          \
    X(cl_int, SetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                            \
    X(cl_int, EnqueueNDRangeKernel, (cl_command_queue, cl_kernel, cl_uint, const size_t *,         \
        const size_t *, const size_t *, cl_uint, const cl_event *, cl_event *))                    \
    X(cl_int, EnqueueWriteBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t,              \
        const void *, cl_uint, const cl_event *, cl_event *))                                      \
    X(cl_int, EnqueueReadBuffer, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *,       \
        cl_uint, const cl_event *, cl_event *))                                                    \
    X(cl_int, EnqueueFillBuffer, (cl_command_queue, cl_mem, const void *, size_t, size_t, size_t,  \
        cl_uint, const cl_event *, cl_event *))                                                    \
    X(void *, EnqueueMapBuffer, (cl_command_queue, cl_mem, cl_bool, cl_ulong, size_t, size_t,      \
        cl_uint, const cl_event *, cl_event *, cl_int *))                                          \
    X(cl_int, EnqueueUnmapMemObject, (cl_command_queue, cl_mem, void *, cl_uint, const cl_event *, \
        cl_event *))                                                                               \
    X(cl_int, Flush, (cl_command_queue))                                                           \
    X(cl_int, Finish, (cl_command_queue))                                                          \
    X(cl_int, GetEventProfilingInfo, (cl_event, cl_uint, size_t, void *, size_t *))                \
    X(cl_int, WaitForEvents, (cl_uint, const cl_event *))                                          \
    X(cl_int, ReleaseEvent, (cl_event))
/* clang-format on */

#endif
