/* backends/opencl/driver.c - opens libOpenCL and names its errors. */
#include "backends/opencl/driver.h"

#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/os_threads.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static gw_cl_driver table;
static const char *failure; /* NULL: the table is complete */
static char failure_text[128];

static void find_entry_points(void) {
#if defined(_WIN32)
    static const char *const names[] = {"OpenCL.dll"};
#else
    static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so"};
#endif
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        failure = "libOpenCL.so.1 cannot be opened";
        return;
    }
    void *at;
#define FIND(result, name, arguments)                                                              \
    at = dlsym(library, "cl" #name);                                                               \
    memcpy(&table.name, &at, sizeof at);                                                           \
    if (at == NULL && failure == NULL) {                                                           \
        snprintf(failure_text, sizeof failure_text, "libOpenCL.so.1 lacks cl%s", #name);           \
        failure = failure_text;                                                                    \
    }
    GW_CL_ENTRY_POINTS(FIND)
#undef FIND
}

const gw_cl_driver *gw_cl_open(const char **why) {
    pthread_once(&once, find_entry_points);
    if (failure != NULL && why != NULL) {
        *why = failure;
    }
    return failure == NULL ? &table : NULL;
}

const char *gw_cl_error_name(cl_int error) {
    /* clang-format off */
    static const struct { cl_int error; const char *name; } names[] = {
#define ERROR(name) {name, #name}
        ERROR(CL_DEVICE_NOT_FOUND), ERROR(CL_DEVICE_NOT_AVAILABLE), ERROR(CL_COMPILER_NOT_AVAILABLE),
        ERROR(CL_MEM_OBJECT_ALLOCATION_FAILURE), ERROR(CL_OUT_OF_RESOURCES), ERROR(CL_OUT_OF_HOST_MEMORY),
        ERROR(CL_BUILD_PROGRAM_FAILURE), ERROR(CL_INVALID_VALUE), ERROR(CL_INVALID_DEVICE),
        ERROR(CL_INVALID_CONTEXT), ERROR(CL_INVALID_COMMAND_QUEUE), ERROR(CL_INVALID_MEM_OBJECT),
        ERROR(CL_INVALID_BINARY), ERROR(CL_INVALID_BUILD_OPTIONS), ERROR(CL_INVALID_PROGRAM),
        ERROR(CL_INVALID_PROGRAM_EXECUTABLE), ERROR(CL_INVALID_KERNEL_NAME), ERROR(CL_INVALID_KERNEL),
        ERROR(CL_INVALID_ARG_INDEX), ERROR(CL_INVALID_ARG_VALUE), ERROR(CL_INVALID_ARG_SIZE),
        ERROR(CL_INVALID_KERNEL_ARGS), ERROR(CL_INVALID_WORK_GROUP_SIZE), ERROR(CL_INVALID_WORK_ITEM_SIZE),
        ERROR(CL_INVALID_OPERATION), ERROR(CL_INVALID_BUFFER_SIZE), ERROR(CL_INVALID_GLOBAL_WORK_SIZE),
#undef ERROR
        {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
    };
    /* clang-format on */
    static _Thread_local char other[24];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].error == error) {
            return names[i].name;
        }
    }
    snprintf(other, sizeof other, "error %d", (int)error);
    return other;
}

gw_status gw_cl_check(cl_int error, const char *what) {
    if (error == CL_SUCCESS) {
        return GW_OK;
    }
    int memory = error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_HOST_MEMORY;
    return gw_fail(memory ? GW_E_NOMEM : GW_E_DEVICE, "opencl", "%s failed: %s", what,
                   gw_cl_error_name(error));
}
