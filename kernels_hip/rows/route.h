/* kernels_hip/rows/route.h - ROUTE (docs/arithmetic.md, section 5) of one row by a block.
 *
 * An expert is chosen when fewer than `used` others come before it: larger, or equal with a lower
 * number. So each thread counts for one expert instead of all taking the best one in turn.
 */
#ifndef GW_KERNELS_HIP_ROUTE_H
#define GW_KERNELS_HIP_ROUTE_H

#include "core/tensor/act.h"
#include "kernels_hip/device.h"
#include "kernels_hip/rows/route_params.h"

struct gw_route_best {
    float score;
    int expert;
};
/* The larger score, of equal ones the lower expert; -1: none. */
GW_DEVICE gw_route_best gw_route_better(gw_route_best a, gw_route_best b) {
    /* without branches, which would take longer than all of it */
    const int lower = (b.score == a.score) & (b.expert < a.expert);
    const int other = (b.expert >= 0) & ((a.expert < 0) | (b.score > a.score) | lower);
    const gw_route_best best = {other ? b.score : a.score, other ? b.expert : a.expert};
    return best;
}
/* Of n scores those that are not taken; every lane of the team gets it. */
GW_DEVICE gw_route_best gw_route_best_of(const float *scores, const unsigned *taken, int n) {
    gw_route_best best = {0.0f, -1};
#pragma unroll 1
    for (int i = gw_lane(); i < n; i += GW_LANES) {
        const gw_route_best one = {scores[i], taken[i / 32] >> i % 32 & 1 ? -1 : i};
        best = gw_route_better(best, one);
    }
#pragma unroll 1
    for (int h = GW_LANES / 2; h > 0; h /= 2) {
        const gw_route_best other = {gw_shuffle_xor(best.score, h), gw_shuffle_xor(best.expert, h)};
        best = gw_route_better(best, other);
    }
    return best;
}

/* What a row's experts have in shared memory: scores, what they are chosen by, worths of groups;
 * and bits: who is out of the choice, who is chosen. */
struct gw_route_desk {
    float *score, *rank, *worth;
    unsigned *out, *chosen;
};

struct __align__(16) gw_route_four {
    float v[4];
};

/* All experts but those of the best groups are out, and their ranks NaN; by one team. */
GW_DEVICE void gw_route_keep(const struct gw_route_params &p, const gw_route_desk &d) {
    const int each = p.experts / p.groups, lane = gw_lane();
#pragma unroll 1
    for (int g = lane; g < p.groups; g += GW_LANES) {
        float first = -INFINITY, second = -INFINITY;
#pragma unroll 1
        for (int i = g * each; i < (g + 1) * each; i++) {
            const float x = d.rank[i];
            second = x > first ? first : x > second ? x : second;
            first = x > first ? x : first;
        }
        d.worth[g] = p.group_best > 1 && each > 1 ? first + second : first;
    }
    gw_sync_team();
#pragma unroll 1
    for (int k = 0; k < p.groups_used; k++) { /* bits of groups, in the chosen ones' place */
        const int g = gw_route_best_of(d.worth, d.chosen, p.groups).expert;
        gw_sync_team();
        if (lane == 0) {
            d.chosen[g / 32] |= 1u << g % 32;
        }
        gw_sync_team();
    }
#pragma unroll 1
    for (int w = lane; w < GW_ROUTE_WORDS(p.experts); w += GW_LANES) {
#pragma unroll 1
        for (int i = 32 * w; i < p.experts && i < 32 * w + 32; i++) {
            const int g = i / each;
            const int is_out = !(d.chosen[g / 32] >> g % 32 & 1);
            d.out[w] |= (unsigned)is_out << i % 32;
            d.rank[i] = is_out ? GW_F32_FROM_BITS(0x7fc00000u) : d.rank[i];
        }
    }
}

/* Of x, softmax over the experts that are left and not too far below the best: its own value. */
GW_DEVICE float gw_route_sparse_gate(const struct gw_route_params &p, const float *x,
                                     const unsigned *out, gw_route_best best) {
    float sum = 0.0f;
#pragma unroll 1
    for (int i = 0; i < p.experts; i++) {
        const float size = GW_F32_FROM_BITS(GW_F32_BITS(x[i]) & 0x7fffffffu);
        const float most = size > best.score ? size : best.score;
        const int far = (best.score - x[i]) / most > 2.0f * p.jitter;
        sum = (out[i / 32] >> i % 32 & 1) || far ? sum : sum + gw_exp(x[i] - best.score);
    }
    return 1.0f / sum;
}

/* SPARSEMIXER: one after the other, each with its gate; by one team. */
GW_DEVICE void gw_route_sparse(const struct gw_route_params &p, const gw_route_desk &d) {
#pragma unroll 1
    for (int k = 0; k < p.used; k++) {
        const gw_route_best best = gw_route_best_of(d.rank, d.out, p.experts);
        const float gate = gw_route_sparse_gate(p, d.rank, d.out, best);
        gw_sync_team();
        if (gw_lane() == 0) {
            d.score[best.expert] = gate;
            d.out[best.expert / 32] |= 1u << best.expert % 32;
            d.chosen[best.expert / 32] |= 1u << best.expert % 32;
        }
        gw_sync_team();
    }
}

/* Scores and ranks of the experts, ranks with NaN behind the end; the bits are 0. */
GW_DEVICE void gw_route_scores(const struct gw_route_params &p, const float *x,
                               const gw_route_desk &d) {
    const int n = p.experts, padded = GW_ROUTE_FLOATS(n), id = (int)threadIdx.x;
    const int softmax = p.score == GW_ROUTE_SOFTMAX;
#pragma unroll 1
    for (int w = id; w < GW_ROUTE_WORDS(n); w += (int)blockDim.x) {
        d.out[w] = d.chosen[w] = 0;
    }
#pragma unroll 1
    for (int i = id; i < padded; i += (int)blockDim.x) {
        d.rank[i] = i < n ? x[i] : GW_F32_FROM_BITS(0x7fc00000u);
    }
    __syncthreads();
    float sum = 0.0f;
    if (softmax) {
        float top = -INFINITY;
#pragma unroll 1
        for (int i = gw_lane(); i < n; i += GW_LANES) {
            top = d.rank[i] > top ? d.rank[i] : top;
        }
        top = gw_team_top(top);
#pragma unroll 1
        for (int i = id; i < padded; i += (int)blockDim.x) {
            d.worth[i] = i < n ? gw_exp(d.rank[i] - top) : -0.0f; /* which leaves a sum as it is */
        }
        __syncthreads();
#pragma unroll 2
        for (int i = 0; i < padded; i += 4) {
            const gw_route_four four = *(const gw_route_four *)(d.worth + i);
            sum = (((sum + four.v[0]) + four.v[1]) + four.v[2]) + four.v[3];
        }
    }
#pragma unroll 1
    for (int i = id; i < n; i += (int)blockDim.x) {
        const float x_i = d.rank[i];
        const float v = softmax                             ? d.worth[i] / sum
                        : p.score == GW_ROUTE_SIGMOID       ? gw_sigmoid(x_i)
                        : p.score == GW_ROUTE_SQRT_SOFTPLUS ? GW_SQRT(gw_softplus(x_i))
                                                            : x_i;
        d.score[i] = v;
        d.rank[i] = p.bias && p.score != GW_ROUTE_SPARSEMIXER ? v + p.bias[i] : v;
    }
    __syncthreads();
}

/* How many of ranks [from, to), whole fours, come before v: none that is NaN. */
template <int EQUAL>
__device__ static inline int gw_route_before(const float *rank, int from, int to, float v) {
    int before = 0;
#pragma unroll 2
    for (int j = from; j < to; j += 4) {
        const gw_route_four four = *(const gw_route_four *)(rank + j);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            before += EQUAL ? four.v[k] >= v : four.v[k] > v;
        }
    }
    return before;
}

/* Bits of the chosen ones: those that fewer than `used` come before. A team's experts lie side by
 * side: of those before them equal ones count, too, of those behind only larger ones. */
GW_DEVICE void gw_route_choose(const struct gw_route_params &p, const gw_route_desk &d) {
    const int n = p.experts, padded = GW_ROUTE_FLOATS(n), lane = gw_lane();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i - lane < n; i += (int)blockDim.x) {
        const int first = i - lane, end = first + GW_LANES < padded ? first + GW_LANES : padded;
        const float v = i < n ? d.rank[i] : 0.0f;
        int before =
            gw_route_before<1>(d.rank, 0, first, v) + gw_route_before<0>(d.rank, end, padded, v);
#pragma unroll 2
        for (int j = first; j < end; j++) {
            before += (d.rank[j] > v) | ((d.rank[j] == v) & (j < i)); /* without branches */
        }
        const int out = i < n ? d.out[i / 32] >> i % 32 & 1 : 1;
        const unsigned bits = gw_ballot(!out & (before < p.used));
        if (lane == 0) {
            d.chosen[i / 32] = bits;
        }
    }
}

/* Gates of the chosen ones, in increasing order, from their scores or logits; by one team. */
GW_DEVICE void gw_route_gates(const struct gw_route_params &p, float *gates) {
    const int lane = gw_lane(), chosen = p.score == GW_ROUTE_SOFTMAX_CHOSEN;
    float sum = 0.0f, top = -INFINITY;
#pragma unroll 2
    for (int k = 0; k < (chosen ? p.used : 0); k++) {
        top = gates[k] > top ? gates[k] : top;
    }
    gw_sync_team();
#pragma unroll 1
    for (int k = lane; chosen && k < p.used; k += GW_LANES) {
        gates[k] = gw_exp(gates[k] - top);
    }
    gw_sync_team();
#pragma unroll 1
    for (int turn = !chosen; turn < 1 + (p.renorm != 0); turn++) { /* softmax, then renorm */
        sum = 0.0f;
#pragma unroll 2
        for (int k = 0; k < p.used; k++) {
            sum = sum + gates[k];
        }
        gw_sync_team();
        const int more =
            turn == 1 && (p.score == GW_ROUTE_SIGMOID || p.score == GW_ROUTE_SQRT_SOFTPLUS);
#pragma unroll 1
        for (int k = lane; k < p.used; k += GW_LANES) {
            gates[k] = gates[k] / (more ? sum + 1e-20f : sum);
        }
        gw_sync_team();
    }
}

/* x: the row's logits [experts], given: its experts [used] or 0 -> out [2 used]. shared:
 * GW_ROUTE_SHARED bytes, 16-byte aligned. Every thread of the block calls it. */
GW_DEVICE void gw_route_block(const struct gw_route_params &p, const float *x, const float *given,
                              float *out, float *shared) {
    const int n = p.experts, each = GW_ROUTE_FLOATS(n);
    unsigned *bits = (unsigned *)(shared + 3 * each);
    const gw_route_desk d = {shared, shared + each, shared + 2 * each, bits,
                             bits + GW_ROUTE_WORDS(n)};
    gw_route_scores(p, x, d);
    if (given) {
        if (threadIdx.x == 0) {
#pragma unroll 1
            for (int k = 0; k < p.used; k++) {
                d.chosen[(int)given[k] / 32] |= 1u << (int)given[k] % 32;
            }
        }
    } else if (p.score == GW_ROUTE_SPARSEMIXER) {
        if (gw_team() == 0) {
            gw_route_sparse(p, d);
        }
    } else {
        if (p.groups > 0) {
            if (gw_team() == 0) {
                gw_route_keep(p, d);
            }
            __syncthreads();
        }
        gw_route_choose(p, d);
    }
    __syncthreads();
    float *gates = d.worth, *ids = d.rank; /* by place, when ranks are not needed any more */
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        int place = 0;
#pragma unroll 1
        for (int w = 0; w < i / 32; w++) {
            place += __popc(d.chosen[w]);
        }
        place += __popc(d.chosen[i / 32] & ((1u << i % 32) - 1));
        if ((d.chosen[i / 32] >> i % 32 & 1) && place < p.used) { /* more: of logits that are NaN */
            gates[place] = d.score[i];
            ids[place] = (float)i;
        }
    }
    __syncthreads();
    if (gw_team() > 0) {
        return;
    }
    gw_route_gates(p, gates);
#pragma unroll 1
    for (int k = gw_lane(); k < p.used; k += GW_LANES) {
        float v = gates[k];
        v = p.scale != 0.0f ? v * p.scale : v;
        v = p.factor ? v * p.factor[(int)ids[k]] : v;
        out[k] = ids[k];
        out[p.used + k] = v;
    }
}

#endif
