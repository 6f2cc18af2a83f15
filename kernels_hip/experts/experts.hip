/* kernels_hip/experts/experts.hip - experts in steps, of any shape and format: a product at a time
 * to memory, then what becomes of it; and rows sorted by expert, for experts_gemm.hip. */
#include "kernels_hip/act8.h"
#include "kernels_hip/experts/experts.h"

/* ---- entries by expert ----------------------------------------------------------------------- */

/* Sums over all threads in front of this one, of two numbers each; shared: [2 x threads]. */
GW_DEVICE void sums_in_front(int &a, int &b, int (*shared)[GW_EXPERTS_THREADS]) {
    const int id = (int)threadIdx.x, mine[2] = {a, b};
    shared[0][id] = a;
    shared[1][id] = b;
    for (int by = 1; by < GW_EXPERTS_THREADS; by *= 2) {
        __syncthreads();
        const int more[2] = {id >= by ? shared[0][id - by] : 0, id >= by ? shared[1][id - by] : 0};
        __syncthreads();
        shared[0][id] += more[0];
        shared[1][id] += more[1];
    }
    a = shared[0][id] - mine[0];
    b = shared[1][id] - mine[1];
}

/* In which order the entries of an expert come makes no difference. */
GW_KERNEL(gw_experts_sort, struct gw_experts_params, GW_EXPERTS_THREADS) {
    enum { EACH = GW_EXPERTS_MOST / GW_EXPERTS_THREADS };
    __shared__ int count[GW_EXPERTS_MOST], next[GW_EXPERTS_MOST], scan[2][GW_EXPERTS_THREADS];
    const int id = (int)threadIdx.x;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int entries = gw_live(p.step) * p.used;
    for (int i = id; i < GW_EXPERTS_MOST; i += GW_EXPERTS_THREADS) {
        count[i] = 0;
    }
    __syncthreads();
    for (int i = id; i < entries; i += GW_EXPERTS_THREADS) {
        atomicAdd(&count[gw_expert_of(p, i)], 1);
    }
    __syncthreads();
    int first = 0, tiles = 0; /* of this thread's experts, then in front of them */
    for (int i = id * EACH; i < (id + 1) * EACH; i++) {
        first += count[i];
        tiles += (count[i] + p.tokens - 1) / p.tokens;
    }
    const int own = tiles;
    sums_in_front(first, tiles, scan);
    if (id == GW_EXPERTS_THREADS - 1) {
        *p.n_tiles = tiles + own;
    }
    for (int i = id * EACH; i < (id + 1) * EACH; i++) {
        const int end = first + count[i];
        next[i] = first;
        for (int at = first; at < end; at += p.tokens) {
            const int last = at + p.tokens < end ? at + p.tokens : end;
            const struct gw_experts_tile tile = {i, at, last};
            p.tiles[tiles++] = tile;
        }
        first = end;
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
    acc = p.addend ? p.addend[to] + acc : acc;
    ((float *)p.y)[to] = acc;
    if (p.behind) { /* m is a multiple of 32 */
        gw_experts_leave_norm(p, row, i / GW_ACT_BLOCK, acc);
    }
}
