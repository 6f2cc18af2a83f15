/* kernels_hip/join.h - the join of the lanes that a team of threads holds, one each. */
#ifndef GW_KERNELS_HIP_JOIN_H
#define GW_KERNELS_HIP_JOIN_H

#include "kernels_hip/device.h"

/* gw_join_lanes over a team: neighbours first. */
GW_DEVICE float gw_join(float v) {
    for (int h = 1; h < GW_LANES; h *= 2) {
        v = v + gw_shuffle_xor(v, h);
    }
    return v;
}

#endif
