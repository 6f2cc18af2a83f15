/* tests/hip_host/faults_params.h - the parameters of faults.hip. */
#ifndef GW_HIP_HOST_FAULTS_PARAMS_H
#define GW_HIP_HOST_FAULTS_PARAMS_H

#include "kernels_hip/params.h"

struct gw_test_params {
    GW_DEV(uint32_t) out;
    GW_DEV(const uint32_t) in;
};

#endif
