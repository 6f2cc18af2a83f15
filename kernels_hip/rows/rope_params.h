/* kernels_hip/rows/rope_params.h - what becomes of q and k before attention. */
#ifndef GW_KERNELS_HIP_ROPE_PARAMS_H
#define GW_KERNELS_HIP_ROPE_PARAMS_H

#include "kernels_hip/params.h"

struct gw_rope_params {
    GW_DEV(const float) in;    /* [rows, (heads + 2 kv_heads) e]: q, k, v */
    GW_DEV(const float) table; /* [positions, 2, rope_dim / 2]            */
    int32_t rope_dim, interleaved, heads, kv_heads;
    GW_DEV(const float) q_norm; /* [e] or 0                                */
    GW_DEV(const float) k_norm;
    GW_DEV(float) out; /* q [rows, heads e]                       */
    int32_t e;
    float eps;
};

#endif
