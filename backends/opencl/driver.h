/* backends/opencl/driver.h - the OpenCL 1.2 entry points, found in libOpenCL.so.1 when it runs.
 *
 * The library is opened once per process with local visibility and stays open. Nothing here prints.
 */
#ifndef GW_BACKENDS_OPENCL_DRIVER_H
#define GW_BACKENDS_OPENCL_DRIVER_H

#include "backends/opencl/cl.h"
#include "core/base/status.h"

typedef struct gw_cl_driver {
#define GW_CL_FIELD(result, name, arguments) result(*name) arguments;
    GW_CL_ENTRY_POINTS(GW_CL_FIELD)
#undef GW_CL_FIELD
} gw_cl_driver;

/* NULL without the library, or when it lacks an entry point; *why (may be NULL) then says which.
 * Any thread. */
const gw_cl_driver *gw_cl_open(const char **why);

/* "CL_OUT_OF_RESOURCES", or "error -9999". */
const char *gw_cl_error_name(cl_int error);

/* GW_OK, or GW_E_NOMEM / GW_E_DEVICE with the name of the error and what was being done. */
gw_status gw_cl_check(cl_int error, const char *what);

#endif
