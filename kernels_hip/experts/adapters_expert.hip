/* kernels_hip/experts/adapters_expert.hip - adapters of experts: A x of each of a row's experts and
 * adapters, then B of that (docs/arithmetic.md, "Adapters").
 */
#include "kernels_hip/experts/adapters_params.h"
#include "kernels_hip/join.h"

/* Row i of what a place has of a row's expert number j, times x [k]; all of a team. */
GW_DEVICE float product(const gw_lora_expert_params &p, int place, int row, int j, int i,
                        const float *x) {
    const int expert = (int)p.route[(size_t)row * 2 * p.used + j];
    const float *w = p.w + (((size_t)(place - 1) * p.experts + expert) * p.m + i) * p.k;
    float sum = 0.0f;
    for (int c = gw_lane(); c < p.k; c += GW_LANES) {
        sum = GW_FMA(w[c], x[c], sum);
    }
    return gw_join(sum);
}

GW_KERNEL(gw_lora_expert_a, struct gw_lora_expert_params, GW_LORA_EXPERT_THREADS) {
    const int row = (int)blockIdx.y, u = (int)blockIdx.x * GW_LORA_EXPERT_TEAMS + gw_team();
    const int wide = p.used * p.at_once * p.m;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || u >= wide) {
        return; /* whole teams */
    }
    const int j = u / p.m / p.at_once, at = u / p.m % p.at_once;
    const int place = (int)p.adapters[(size_t)row * 2 * p.at_once + at];
    const float *x = p.x + ((size_t)row * (p.own ? p.used : 1) + (p.own ? j : 0)) * p.k;
    const float sum = place > 0 ? product(p, place, row, j, u % p.m, x) : 0.0f;
    if (gw_lane() == 0) {
        p.y[(size_t)row * wide + u] = sum;
    }
}

/* What the adapters of a row add to row i of its expert number j. */
GW_DEVICE float add_up(const gw_lora_expert_params &p, int row, int j, int i) {
    const float *own = p.adapters + (size_t)row * 2 * p.at_once;
    const float *x = p.x + ((size_t)row * p.used + j) * p.at_once * p.k;
    float acc = 0.0f;
    for (int at = 0; at < p.at_once; at++) {
        const int place = (int)own[at];
        if (place > 0) {
            acc = GW_FMA(own[p.at_once + at], product(p, place, row, j, i, x + at * p.k), acc);
        }
    }
    return acc;
}

GW_KERNEL(gw_lora_expert_b, struct gw_lora_expert_params, GW_LORA_EXPERT_THREADS) {
    const int row = (int)blockIdx.y, u = (int)blockIdx.x * GW_LORA_EXPERT_TEAMS + gw_team();
    const int wide = p.sum ? p.m : p.used * p.m;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || u >= wide) {
        return; /* whole teams */
    }
    const float *gates = p.route + (size_t)row * 2 * p.used + p.used;
    /* the last of a row's places is used first */
    const int some = p.adapters[(size_t)row * 2 * p.at_once + p.at_once - 1] > 0.0f;
    float more = 0.0f;
    if (some && p.sum) {
        for (int j = 0; j < p.used; j++) {
            more = GW_FMA(p.gated ? gates[j] : 1.0f, add_up(p, row, j, u), more);
        }
    } else if (some) {
        more = add_up(p, row, u / p.m, u % p.m);
        more = p.gated ? more * gates[u / p.m] : more;
    }
    if (gw_lane() == 0) {
        const size_t at = (size_t)row * wide + u;
        p.y[at] = some ? p.addend[at] + more : p.addend[at];
    }
}
