/* kernels_hip/sample.hip - SAMPLE in two launches: each block lists what can still be drawn of a
 * piece of the row (its k largest, or with all tokens in the draw its winner), then one block draws
 * from the list. In which order things are listed makes no difference. */
#include "kernels_hip/device.h"
#include "kernels_hip/sample_params.h"

enum { TEAMS = GW_SAMPLE_THREADS / GW_LANES, EACH = GW_SAMPLE_PIECE / GW_SAMPLE_THREADS };

/* What a block's threads have counted together, bit by bit of the key that is looked for. */
struct gw_counts {
    unsigned of[32];
};

/* All threads call it once, before a barrier. */
GW_DEVICE void clear(gw_counts &counts) {
    if (threadIdx.x < 32) {
        counts.of[threadIdx.x] = 0;
    }
}

/* Does the largest key with at least k others at or above it have bit b? count: of this thread. */
GW_DEVICE int has_bit(gw_counts &counts, int b, unsigned count, int k) {
    for (int h = GW_LANES / 2; h > 0; h /= 2) {
        count += gw_shuffle_xor(count, h);
    }
    if (gw_lane() == 0 && count > 0) {
        atomicAdd(&counts.of[b], count);
    }
    __syncthreads();
    return counts.of[b] >= (unsigned)k;
}

struct gw_best {
    float score;
    int token;
};

GW_DEVICE gw_best better(gw_best a, gw_best b) {
    return b.score > a.score || (b.score == a.score && b.token < a.token) ? b : a;
}

/* Of all threads; thread 0 gets it. teams [TEAMS]. */
GW_DEVICE gw_best best_of(gw_best *teams, gw_best v) {
    for (int h = GW_LANES / 2; h > 0; h /= 2) {
        gw_best other = {gw_shuffle_xor(v.score, h), gw_shuffle_xor(v.token, h)};
        v = better(v, other);
    }
    if (gw_lane() == 0) {
        teams[gw_team()] = v;
    }
    __syncthreads();
    for (int i = 0; i < TEAMS && threadIdx.x == 0; i++) {
        v = better(v, teams[i]);
    }
    return v;
}

GW_KERNEL(gw_sample_pieces, struct gw_sample_params, GW_SAMPLE_THREADS) {
    __shared__ gw_counts counts;
    __shared__ gw_best teams[TEAMS];
    const int row = (int)blockIdx.y, id = (int)threadIdx.x, n = p.n;
    const int first = (int)blockIdx.x * GW_SAMPLE_PIECE;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const float *x = p.x + (size_t)row * n;
    gw_listed *list = p.list + (size_t)row * n;
    unsigned *count = p.count + 2 * row;
    const gw_choice c = *p.choice;
    gw_u32 key[EACH]; /* 0: behind the end of the row */
    int bad = 0;
    for (int j = 0; j < EACH; j++) {
        const int at = first + id + j * GW_SAMPLE_THREADS;
        key[j] = at < n ? gw_float_key(x[at]) : 0;
        bad |= at < n && (key[j] < GW_KEY_LEAST || key[j] > GW_KEY_MOST);
    }
    if (bad) {
        atomicOr(count + 1, 1u);
    }
    if (gw_choice_filters(c, n)) {
        gw_u32 least = 0;
        clear(counts);
        __syncthreads();
        for (int b = 31; b >= 0; b--) {
            unsigned larger = 0;
            for (int j = 0; j < EACH; j++) {
                larger += key[j] >= (least | 1u << b);
            }
            least |= has_bit(counts, b, larger, c.top_k) ? 1u << b : 0u;
        }
        least = least > 0 ? least : 1; /* all of the piece */
        for (int j = 0; j < EACH; j++) {
            if (key[j] >= least) {
                gw_listed l = {key[j], first + id + j * GW_SAMPLE_THREADS};
                list[atomicAdd(count, 1u)] = l;
            }
        }
        return;
    }
    gw_best v = {-INFINITY, n - 1};
    for (int j = 0; j < EACH; j++) {
        const int at = first + id + j * GW_SAMPLE_THREADS;
        if (at < n) {
            gw_best other = {gw_choice_score(c, x[at], gw_step_pos(p.step, row), at), at};
            v = better(v, other);
        }
    }
    v = best_of(teams, v);
    if (id == 0) {
        gw_listed l = {gw_float_key(x[v.token]), v.token};
        list[atomicAdd(count, 1u)] = l;
    }
}

GW_KERNEL(gw_sample_join, struct gw_sample_params, GW_SAMPLE_THREADS) {
    __shared__ gw_counts counts;
    __shared__ gw_best teams[TEAMS];
    const int row = (int)blockIdx.y, id = (int)threadIdx.x, n = p.n;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const gw_listed *list = p.list + (size_t)row * n;
    unsigned *count = p.count + 2 * row;
    const gw_choice c = *p.choice;
    const int listed = (int)count[0], bad = (int)count[1];
    gw_u32 least = 0;
    clear(counts);
    __syncthreads(); /* all have read the count */
    if (id == 0) {
        count[0] = count[1] = 0;
    }
    for (int b = 31; b >= 0 && gw_choice_filters(c, n); b--) {
        unsigned larger = 0;
        for (int i = id; i < listed; i += GW_SAMPLE_THREADS) {
            larger += list[i].key >= (least | 1u << b);
        }
        least |= has_bit(counts, b, larger, c.top_k) ? 1u << b : 0u;
    }
    gw_best v = {-INFINITY, n - 1};
    for (int i = id; i < listed; i += GW_SAMPLE_THREADS) {
        const gw_listed l = list[i];
        if (l.key >= least) {
            gw_best other = {gw_choice_score(c, gw_key_float(l.key), gw_step_pos(p.step, row),
                                             l.token),
                             l.token};
            v = better(v, other);
        }
    }
    v = best_of(teams, v);
    if (id == 0) {
        p.ids[row] = !bad && gw_key_counts(gw_float_key(v.score)) ? v.token : -1;
    }
}
