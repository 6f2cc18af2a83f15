/* kernels_hip/experts/experts.hip - experts in steps, of any shape and format: a product at a time
 * to memory, then what becomes of it; and rows sorted by expert, for experts_gemm.hip. */
#include "kernels_hip/act8.h"
#include "kernels_hip/experts/experts.h"

/* ---- entries by expert ----------------------------------------------------------------------- */

/* In which order the entries of an expert come makes no difference. */
GW_KERNEL(gw_experts_sort, struct gw_experts_params, GW_EXPERTS_THREADS) {
    __shared__ int count[GW_EXPERTS_MOST], next[GW_EXPERTS_MOST];
    const int id = (int)threadIdx.x;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int entries = gw_live(p.step) * p.used;
    for (int i = id; i < p.experts; i += GW_EXPERTS_THREADS) {
        count[i] = 0;
    }
    __syncthreads();
    for (int i = id; i < entries; i += GW_EXPERTS_THREADS) {
        atomicAdd(&count[gw_expert_of(p, i)], 1);
    }
    __syncthreads();
    if (id == 0) {
        int first = 0, tiles = 0;
        for (int i = 0; i < p.experts; i++) {
            const int end = first + count[i];
            next[i] = first;
            for (int at = first; at < end; at += GW_EXPERTS_TOKENS) {
                const int last = at + GW_EXPERTS_TOKENS < end ? at + GW_EXPERTS_TOKENS : end;
                const struct gw_experts_tile tile = {i, at, last};
                p.tiles[tiles++] = tile;
            }
            first = end;
        }
        *p.n_tiles = tiles;
    }
    __syncthreads();
    for (int i = id; i < entries; i += GW_EXPERTS_THREADS) {
        p.list[atomicAdd(&next[gw_expert_of(p, i)], 1)] = i;
    }
}

/* ---- results --------------------------------------------------------------------------------- */

GW_KERNEL(gw_experts_act, struct gw_experts_params, GW_EXPERTS_THREADS) {
    const int entry = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (entry >= gw_live(p.step) * p.used || i - gw_lane() >= p.m) {
        return; /* whole teams */
    }
    const size_t at = (size_t)entry * p.m + i;
    float v = 0.0f;
    if (i < p.m) {
        v = gw_expert_act(p, p.sums[0][at], p.w[1] ? p.sums[1][at] : 0.0f);
    }
    if (p.form != GW_FORM_FLOATS) {
        gw_team_encode(p.y, at / GW_ACT_BLOCK, p.form, v);
    } else if (i < p.m) {
        ((float *)p.y)[at] = v;
    }
}

GW_KERNEL(gw_experts_join, struct gw_experts_params, GW_EXPERTS_THREADS) {
    const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || i >= p.m) {
        return;
    }
    float acc = 0.0f;
    for (int k = 0; k < p.used; k++) {
        const int entry = row * p.used + k;
        const float gate = p.gate_input ? 1.0f : gw_gate_of(p, entry);
        acc = GW_FMA(gate, p.sums[0][(size_t)entry * p.m + i], acc);
    }
    const size_t to = (size_t)row * p.m + i;
    ((float *)p.y)[to] = p.addend ? p.addend[to] + acc : acc;
}
