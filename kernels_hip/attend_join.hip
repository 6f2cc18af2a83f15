/* kernels_hip/attend_join.hip - the second step of ATTENTION over many pages: what attention.hip
 * left of them, joined in order (docs/arithmetic.md, section 5). A block takes 32 values of one
 * head over all pages: one team carries the chain, a multiply-add for each page that waits for the
 * one before, and asks for its terms ahead; others fetch values to shared memory; pages are weighed
 * in batches.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention.h"

/* Largest maximum of the pages, in every thread. */
GW_DEVICE float best_of(const float *top, int pages) {
    enum { AT_ONCE = 8 };
    __shared__ float tops[GW_JOIN_THREADS / GW_LANES];
    float best = minus_infinity();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < pages; i += AT_ONCE * GW_JOIN_THREADS) {
        float v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int page = i + k * GW_JOIN_THREADS;
            v[k] = page < pages ? top[page] : minus_infinity();
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
    for (int i = 0; i < GW_JOIN_THREADS / GW_LANES; i++) {
        best = larger(best, tops[i]);
    }
    return best;
}

/* Maxima and sums of pages from + 2 thread, + 1 into registers; and their weights from there. */
GW_DEVICE void load_pair(const float *top, const float *sum, int from, int pages, float *tops,
                         float *sums) {
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int page = from + 2 * (int)threadIdx.x + c;
        tops[c] = page < pages ? top[page] : 0.0f;
        sums[c] = page < pages ? sum[page] : 0.0f;
    }
}
GW_DEVICE void weigh_pair(float *weight, float *part, const float *tops, const float *sums,
                          float best) {
#pragma unroll
    for (int c = 0; c < 2; c++) {
        weight[2 * threadIdx.x + c] = gw_exp(tops[c] - best);
        part[2 * threadIdx.x + c] = sums[c];
    }
}

/* A block's shared memory: values of GW_JOIN_STAGES times some pages, and two batches of weights
 * and sums of pages. */
struct gw_join_desk {
    float stage[GW_JOIN_STAGES][GW_JOIN_PAGES][GW_JOIN_WIDTH];
    float weight[2][GW_JOIN_BATCH], part[2][GW_JOIN_BATCH];
};

/* Pages of stage s on their way; `helper` is a thread's number among those of teams 2 and 3. */
GW_DEVICE void fetch_stage(gw_join_desk &d, const float *values, int stride, int width, int pages,
                           int s, int helper) {
    enum { PIECES = GW_JOIN_WIDTH / 4, STEP = 2 * GW_LANES / PIECES };
    const int i = helper % PIECES * 4, first = helper / PIECES;
    const float *from = values + (size_t)(s * GW_JOIN_PAGES + first) * stride + i;
    float(*to)[GW_JOIN_WIDTH] = d.stage[s % GW_JOIN_STAGES];
    const int count = i < width ? pages - s * GW_JOIN_PAGES : 0;
#pragma unroll
    for (int k = first, n = 0; n < GW_JOIN_PAGES / STEP; k += STEP, n++) {
        gw_copy_async_if(k < count, &to[k][i], from + (size_t)n * STEP * stride);
    }
    gw_copy_commit();
}

/* The next terms of both chains, on their way from shared memory. */
struct gw_join_terms {
    enum { TERMS = 8 };
    gw_f32s<4> weight[TERMS / 4], part[TERMS / 4];
    float v[TERMS];

    __device__ inline void ask(const float (*values)[GW_JOIN_WIDTH], const float *weights,
                               const float *parts, int lane) {
#pragma unroll
        for (int i = 0; i < TERMS / 4; i++) {
            weight[i] = *(const gw_f32s<4> *)(weights + 4 * i);
            part[i] = *(const gw_f32s<4> *)(parts + 4 * i);
            gw_have(weight[i].v[0]);
            gw_have(part[i].v[0]);
        }
#pragma unroll
        for (int i = 0; i < TERMS; i++) {
            v[i] = values[i][lane];
            gw_have(v[i]);
        }
    }
    __device__ inline void add(float *o, float *total) const {
#pragma unroll
        for (int i = 0; i < TERMS; i++) {
            *total = GW_FMA(part[i / 4].v[i % 4], weight[i / 4].v[i % 4], *total);
            *o = GW_FMA(v[i], weight[i / 4].v[i % 4], *o);
        }
    }
};

/* The chains over `count` pages of a stage. */
GW_DEVICE void join_stage(const float (*v)[GW_JOIN_WIDTH], const float *weight, const float *part,
                          int count, int lane, float *o, float *total) {
    enum { TERMS = gw_join_terms::TERMS };
    if (count < GW_JOIN_PAGES) {
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            *total = GW_FMA(part[i], weight[i], *total);
            *o = GW_FMA(v[i][lane], weight[i], *o);
        }
        return;
    }
    gw_join_terms one, two;
    one.ask(v, weight, part, lane);
#pragma unroll 1
    for (int i = 0; i < GW_JOIN_PAGES; i += 2 * TERMS) {
        const int last = i + 2 * TERMS == GW_JOIN_PAGES, next = last ? 0 : i + 2 * TERMS;
        two.ask(v + i + TERMS, weight + i + TERMS, part + i + TERMS, lane);
        one.add(o, total);
        one.ask(v + next, weight + next, part + next, lane);
        two.add(o, total);
    }
}

/* Team 0 carries the chain, teams 2 and 3 fetch its values ahead; all weigh pages, in batches. */
template <int ACT8> __device__ static inline void join(const struct gw_join_params &p) {
    enum { STAGES_OF_BATCH = GW_JOIN_BATCH / GW_JOIN_PAGES };
    GW_SHARED_DYNAMIC(gw_join_desk, desk);
    gw_join_desk &d = *desk;
    const int slices = (p.e + GW_JOIN_WIDTH - 1) / GW_JOIN_WIDTH;
    const int h = (int)blockIdx.x / slices, slice = (int)blockIdx.x % slices;
    const int row = p.parts.row0 + (int)blockIdx.y, lane = gw_lane(), team = gw_team();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const gw_span span = span_of(p.step, row, p.window);
    const int pages = span.last - span.first + 1, stride = p.parts.e_padded;
    const size_t at = ((size_t)blockIdx.y * p.heads + h) * p.parts.page_stride + span.first;
    const float *top = p.parts.top + at, *sum = p.parts.sum + at;
    const float *values = p.parts.values + at * stride + slice * GW_JOIN_WIDTH;
    const int width = stride - slice * GW_JOIN_WIDTH;
    const int stages = (pages + GW_JOIN_PAGES - 1) / GW_JOIN_PAGES;
    const int helper = (int)threadIdx.x - 2 * GW_LANES;
    if (helper >= 0) {
        for (int s = 0; s < GW_JOIN_STAGES - 1; s++) {
            fetch_stage(d, values, stride, width, pages, s, helper);
        }
    }
    float tops[2], sums[2]; /* of two pages of the batch to weigh next */
    load_pair(top, sum, 0, pages, tops, sums);
    const float best = best_of(top, pages);
    weigh_pair(d.weight[0], d.part[0], tops, sums, best);
    float o = 0.0f, total = 0.0f;
#pragma unroll 1
    for (int s = 0; s < stages; s++) {
        const int batch = s / STAGES_OF_BATCH, place = s % STAGES_OF_BATCH;
        if (helper >= 0) {
            gw_copy_wait<GW_JOIN_STAGES - 2>();
        }
        __syncthreads();
        if (place == 0) { /* used when the batch is through: the loads have time */
            load_pair(top, sum, (batch + 1) * GW_JOIN_BATCH, pages, tops, sums);
        }
        if (team == 0) {
            const int count = pages - s * GW_JOIN_PAGES, from = place * GW_JOIN_PAGES;
            join_stage(d.stage[s % GW_JOIN_STAGES], d.weight[batch % 2] + from,
                       d.part[batch % 2] + from, count, lane, &o, &total);
        } else if (helper >= 0) {
            fetch_stage(d, values, stride, width, pages, s + GW_JOIN_STAGES - 1, helper);
        }
        if (place == STAGES_OF_BATCH - 1) {
            weigh_pair(d.weight[(batch + 1) % 2], d.part[(batch + 1) % 2], tops, sums, best);
        }
    }
    if (team != 0) {
        return;
    }
    const int i = slice * GW_JOIN_WIDTH + lane;
    const size_t to = ((size_t)row * p.heads + h) * p.e + i;
    o = o / total;
    if (ACT8) {
        gw_team_encode(p.out, to / GW_ACT_BLOCK, p.form, o);
    } else if (i < p.e) {
        ((float *)p.out)[to] = o;
    }
}
GW_KERNEL(gw_attend_join_f32, struct gw_join_params, GW_JOIN_THREADS) { join<0>(p); }
GW_KERNEL(gw_attend_join_act8, struct gw_join_params, GW_JOIN_THREADS) { join<1>(p); }
