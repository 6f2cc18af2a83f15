/* kernels_hip/linear.hip - LINEAR and GLU of quantized weights, one row of x at a time. */
#include "kernels_hip/linear_quant.h"

#define KERNELS(NAME, name, ...)                                                                   \
    GW_KERNEL(gw_linear_##name, struct gw_linear_params, GW_LINEAR_THREADS) {                      \
        gw_product<gw_dot<gw_strip_##name>, 0>(p);                                                 \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name, struct gw_linear_params, GW_LINEAR_THREADS) {                         \
        gw_product<gw_dot<gw_strip_##name>, 1>(p);                                                 \
    }
GW_STRIP_FORMATS(KERNELS)

/* Gate and up of two formats come in two launches; a team per 32 columns joins them. */
GW_KERNEL(gw_glu_join, struct gw_glu_join_params, 256) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int row = (int)blockIdx.y, block = (int)blockIdx.x * 8 + gw_team();
    const int column = block * GW_LANES + gw_lane();
    if (row >= gw_live(p.step) || block * GW_LANES >= p.width) {
        return; /* whole teams */
    }
    const size_t at = (size_t)row * p.width + column;
    const float v = column < p.width ? gw_silu(p.gate[at]) * p.up[at] : 0.0f;
    if (p.act8) {
        gw_team_encode((gw_act8 *)p.y + (size_t)row * (p.width / GW_ACT_BLOCK) + block, v);
    } else if (column < p.width) {
        ((float *)p.y)[at] = v;
    }
}
