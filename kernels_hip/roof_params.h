/* kernels_hip/roof_params.h - parameters of the read measurement (roof.hip). */
#ifndef GW_KERNELS_HIP_ROOF_PARAMS_H
#define GW_KERNELS_HIP_ROOF_PARAMS_H

#include "kernels_hip/params.h"

enum { GW_ROOF_PIECE = 16384, GW_ROOF_THREADS = 256 };

struct gw_roof_params {
    GW_DEV(const uint8_t) from; /* bytes of zeros, a multiple of grid * GW_ROOF_PIECE */
    GW_DEV(uint32_t) out;       /* never written                                      */
    uint64_t bytes;
    uint32_t never, pad;
};

#endif
