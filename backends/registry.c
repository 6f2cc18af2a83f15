/* backends/registry.c - the backends of this build, fastest first. One row each. */
#include "core/plan/backend.h"

#include <stddef.h>

extern const gw_backend gw_backend_cpu;
extern const gw_backend gw_backend_ref;
#ifdef __linux__
extern const gw_backend gw_backend_mpi;
#endif
#ifdef GODWIT_OPENCL
extern const gw_backend gw_backend_opencl;
#endif
#ifdef GODWIT_HIP
extern const gw_backend gw_backend_hip;
#endif

const gw_backend *const gw_backends[] = {
    &gw_backend_cpu, /* first: the default device */
#ifdef GODWIT_HIP
    &gw_backend_hip,
#endif
#ifdef GODWIT_OPENCL
    &gw_backend_opencl,
#endif
#ifdef __linux__
    &gw_backend_mpi, /* devices of other processes: none, unless this one has joined them */
#endif
    &gw_backend_ref, /* double precision: the oracle, last because it is slow */
    NULL,
};
