/* tests/pocl.h - what PoCL is asked for, by its environment, on the way for graphics processors.
 * Other drivers read no such variable.
 */
#ifndef GW_TESTS_POCL_H
#define GW_TESTS_POCL_H

#include <stdlib.h>
#include <string.h>

#include "core/plan/backend.h"

extern const gw_backend gw_backend_opencl;

static inline int is_pocl_3(struct gw_device *device) {
    gw_device_info info;
    gw_backend_opencl.describe(device, 0, &info);
    return strstr(info.detail, "PoCL") != NULL && strstr(info.detail, "driver 3.") != NULL;
}

/* Loops of that way hold barriers in conditions and in further loops. PoCL 5.0 aborts on them,
 * unless it makes groups of items by its "cbs", which 3.1 does not have. */
static inline void choose_pocl_method(struct gw_device *device, const char *settings) {
    if (strstr(settings, "team") != NULL && !is_pocl_3(device)) {
        setenv("POCL_WORK_GROUP_METHOD", "cbs", 1);
    } else {
        unsetenv("POCL_WORK_GROUP_METHOD");
    }
}

#endif
