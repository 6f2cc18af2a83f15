/* kernels_hip/experts/experts.h - what the kernels of experts share. */
#ifndef GW_KERNELS_HIP_EXPERTS_H
#define GW_KERNELS_HIP_EXPERTS_H

#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/experts/experts_params.h"
#include "core/tensor/act.h"

GW_DEVICE int gw_expert_of(const struct gw_experts_params &p, int entry) {
    const int row = entry / p.used;
    return (int)p.route[(size_t)row * 2 * p.used + entry % p.used];
}
GW_DEVICE float gw_gate_of(const struct gw_experts_params &p, int entry) {
    const int row = entry / p.used;
    return p.route[((size_t)row * 2 + 1) * p.used + entry % p.used];
}

/* An entry's product for row r of weight i. */
GW_DEVICE float gw_expert_sum(const struct gw_experts_params &p, int entry, int i, size_t r,
                              float sum) {
    sum = p.gate_input && !p.by_entry ? sum * gw_gate_of(p, entry) : sum;
    return p.bias[i] ? sum + p.bias[i][r] : sum;
}

/* What becomes of the two of EXPERTS_GLU. */
GW_DEVICE float gw_expert_act(const struct gw_experts_params &p, float g, float u) {
    const gw_act_kind kind = (gw_act_kind)p.kind;
    const float v = gw_act_gate(kind, g, p.limit, p.alpha, 0.0f, 0.0f);
    return p.w[1] ? v * gw_act_factor(kind, u, p.limit) : v;
}

/* What a norm between EXPERTS_DOWN and the next product needs of 32 neighbours of a row of y, pair
 * number `pair`, of which a lane has one (gw_leave_norm of linear/linear_tiles.h). A team. */
GW_DEVICE void gw_experts_leave_norm(const struct gw_experts_params &p, int row, int pair,
                                     float y) {
    const float x = y * p.behind[pair * GW_ACT_BLOCK + gw_lane()], square = gw_fold(y * y);
    const size_t block = (size_t)row * p.left_blocks + pair;
    if (gw_lane() == 0) {
        p.left_squares[(size_t)row * (p.m / GW_ACT_BLOCK) + pair] = square;
    }
    if (p.left_form != GW_FORM_FLOATS) {
        gw_team_encode(p.left, block, p.left_form, x);
    } else {
        ((float *)p.left)[block * GW_ACT_BLOCK + gw_lane()] = x;
    }
}

#endif
