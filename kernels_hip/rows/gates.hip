/* kernels_hip/rows/gates.hip - EXP_GATES and DIVIDE (docs/arithmetic.md, section 5). */
#include "kernels_hip/rows/state.h"

GW_KERNEL(gw_gates_exp, struct gw_gates_exp_params, GW_STATE_THREADS) {
    const int first = (int)blockIdx.y, h = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step);
    if (first >= live || h >= p.heads) {
        return;
    }
    int left = rows_from(p.step, first, live);
    if (left == 0) {
        return;
    }
    const int start = gw_step_pos(p.step, first);
    float m = start > 0 ? p.state[entry_of(p.step, first, start, p.entries, p.heads) + h] : 0.0f;
    for (int i = first; i < live; i = next_row(p.step, i, live)) {
        const float *in = p.in + (size_t)i * 2 * p.heads + h;
        float *out = p.out + (size_t)i * 3 * p.heads + h;
        const float write = in[0], kept = gw_log_kept(m, in[p.heads]);
        m = kept < write ? write : kept;
        out[0] = gw_exp(kept - m);
        out[p.heads] = gw_exp(write - m);
        out[2 * p.heads] = gw_exp(-m);
        left--;
        if (left < p.entries - 1) {
            p.state[entry_of(p.step, i, gw_step_pos(p.step, i) + 1, p.entries, p.heads) + h] = m;
        }
    }
}

GW_KERNEL(gw_gates_divide, struct gw_gates_divide_params, GW_STATE_THREADS) {
    const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || i >= p.width) {
        return;
    }
    const size_t at = (size_t)row * p.width + i;
    const size_t by = (size_t)row * p.columns + i / (p.width / p.columns);
    p.out[at] = gw_divided(p.in[at], p.by[by], p.least[by], p.eps);
}
