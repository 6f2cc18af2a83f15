/* kernels_hip/attention/attend_join.hip - the last step of ATTENTION over many pages: what pages on
 * their own (attention.hip) or groups of them (attend_group.hip) left, joined in order
 * (docs/arithmetic.md, section 5, steps 4 to 6). A block takes 32 values of one head. Its teams
 * bring a batch of groups to shared memory, of pages each a group that it joins on the way; then
 * one of them carries the chain over the groups while the others are at the next batch.
 */
#include "kernels_hip/attention/attend_leave.h"
#include "kernels_hip/attention/attention.h"

enum { TEAMS = GW_JOIN_THREADS / GW_LANES };

/* Largest maximum of n parts, in every thread. */
GW_DEVICE float best_of(const float *top, int n) {
    enum { AT_ONCE = 4 };
    __shared__ float tops[TEAMS];
    float best = minus_infinity();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n; i += AT_ONCE * GW_JOIN_THREADS) {
        float v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int part = i + k * GW_JOIN_THREADS;
            v[k] = part < n ? top[part] : minus_infinity();
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            best = larger(best, v[k]);
        }
    }
    best = team_top(best);
    if (gw_lane() == 0) {
        tops[gw_team()] = best;
    }
    __syncthreads();
    return team_top(tops[gw_lane() % TEAMS]);
}

/* A head's parts: n of them; this lane's value of each, one part `stride` behind the other. */
struct gw_join_parts {
    const float *top, *sum, *values;
    int n, stride;
};

/* Groups that a team brings at once, from their pages: one. */
struct gw_join_pages {
    enum { GROUPS = 1, PAGES = GW_PAGE_GROUP };
    float v[PAGES], top, sum;

    __device__ static inline int groups(const gw_join_parts &parts) {
        return (parts.n + PAGES - 1) / PAGES;
    }
    __device__ inline void ask(const gw_join_parts &parts, int g) {
        const int first = g * PAGES, page = first + gw_lane() % PAGES;
#pragma unroll
        for (int k = 0; k < PAGES; k++) {
            v[k] = first + k < parts.n ? parts.values[(size_t)(first + k) * parts.stride] : 0.0f;
        }
        top = page < parts.n ? parts.top[page] : minus_infinity();
        sum = page < parts.n ? parts.sum[page] : 0.0f;
    }
    /* -> value [lane], and by lane 0 sum and weight, of the one group. */
    __device__ inline void leave(const gw_join_parts &parts, int g, float best,
                                 float (*value)[GW_JOIN_WIDTH], float *sums, float *weights) const {
        const gw_group_sums all = join_pages(v, 1, top, sum, parts.n - g * PAGES);
        value[0][gw_lane()] = all.value;
        if (gw_lane() == 0) {
            sums[0] = all.sum;
            weights[0] = exp_below(all.top - best);
        }
    }
};
/* The same of groups that are joined already. */
struct gw_join_groups {
    enum { GROUPS = 8 };
    float v[GROUPS], top, sum;

    __device__ static inline int groups(const gw_join_parts &parts) { return parts.n; }
    __device__ inline void ask(const gw_join_parts &parts, int g) {
        const int mine = g + gw_lane() % GROUPS;
#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            v[k] = g + k < parts.n ? parts.values[(size_t)(g + k) * parts.stride] : 0.0f;
        }
        top = mine < parts.n ? parts.top[mine] : minus_infinity();
        sum = mine < parts.n ? parts.sum[mine] : 0.0f;
    }
    __device__ inline void leave(const gw_join_parts &, int, float best,
                                 float (*value)[GW_JOIN_WIDTH], float *sums, float *weights) const {
#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            value[k][gw_lane()] = v[k];
        }
        if (gw_lane() < GROUPS) {
            sums[gw_lane()] = sum;
            weights[gw_lane()] = exp_below(top - best);
        }
    }
};

/* The chains over n groups of a batch. */
GW_DEVICE void join_batch(const float (*value)[GW_JOIN_WIDTH], const float *sums,
                          const float *weights, int n, float *o, float *total) {
#pragma unroll 8
    for (int i = 0; i < n; i++) {
        *total = GW_FMA(sums[i], weights[i], *total);
        *o = GW_FMA(value[i][gw_lane()], weights[i], *o);
    }
}

template <class PARTS, int ACT8>
__device__ static inline void join(const struct gw_join_params &p) {
    enum { EACH = PARTS::GROUPS, BATCH = EACH * TEAMS };
    __shared__ float value[2][BATCH][GW_JOIN_WIDTH], sums[2][BATCH], weights[2][BATCH];
    const int slices = (p.e + GW_JOIN_WIDTH - 1) / GW_JOIN_WIDTH;
    const int h = (int)blockIdx.x / slices, slice = (int)blockIdx.x % slices;
    const int row = p.parts.row0 + (int)blockIdx.y, lane = gw_lane(), mine = gw_team() * EACH;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const gw_span span = span_of(p.step, row, p.window);
    const int pages = span.last - span.first + 1, i = slice * GW_JOIN_WIDTH + lane;
    const size_t at = ((size_t)blockIdx.y * p.heads + h) * p.parts.page_stride;
    const gw_join_parts parts = {p.parts.top + at, p.parts.sum + at,
                                 p.parts.values + at * p.parts.e_padded + (i < p.e ? i : 0),
                                 EACH == 1 ? pages : (pages + GW_PAGE_GROUP - 1) / GW_PAGE_GROUP,
                                 p.parts.e_padded};
    const int groups = PARTS::groups(parts);
    PARTS here;
    here.ask(parts, mine);
    const unsigned number = gw_ask_number(p);
    const float sink = p.sinks ? p.sinks[h] : minus_infinity();
    const float best = larger(sink, best_of(parts.top, parts.n));
    float o = -0.0f, total = -0.0f;
#pragma unroll 1
    for (int g = 0, turn = 0; g < groups; g += BATCH, turn = !turn) {
        here.leave(parts, g + mine, best, value[turn] + mine, sums[turn] + mine,
                   weights[turn] + mine);
        here.ask(parts, g + BATCH + mine);
        __syncthreads();
        if (gw_team() == 0) {
            join_batch(value[turn], sums[turn], weights[turn],
                       groups - g < BATCH ? groups - g : BATCH, &o, &total);
        }
    }
    if (gw_team() != 0) {
        return;
    }
    total = total + exp_below(sink - best); /* + 0 leaves it as it is */
    o = o / total;
    leave_value(p, ACT8, row, h, i, o, number);
}
#define JOIN(name, parts)                                                                          \
    GW_KERNEL(gw_attend_join_##name##_f32, struct gw_join_params, GW_JOIN_THREADS) {               \
        join<parts, 0>(p);                                                                         \
    }                                                                                              \
    GW_KERNEL(gw_attend_join_##name##_act8, struct gw_join_params, GW_JOIN_THREADS) {              \
        join<parts, 1>(p);                                                                         \
    }
JOIN(pages, gw_join_pages)
JOIN(groups, gw_join_groups)
