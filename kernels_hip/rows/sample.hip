/* kernels_hip/rows/sample.hip - SAMPLE: each block lists what can still be drawn of a piece of the
 * row (its k largest, or with all tokens in the draw its winner), then the one that comes last
 * draws from the list. In which order things are listed makes no difference. */
#include "kernels_hip/device.h"
#include "kernels_hip/rows/sample_params.h"

enum { TEAMS = GW_SAMPLE_THREADS / GW_LANES, EACH = GW_SAMPLE_PIECE / GW_SAMPLE_THREADS };

/* What a block's threads have counted together, two bits of the key that is looked for at a time:
 * keys that have at least 1, 2 or 3 there. */
struct gw_counts {
    enum { TURNS = 16, EACH = 3 };
    unsigned of[TURNS * EACH];
};

/* All threads call it once, before a barrier. */
GW_DEVICE void clear(gw_counts &counts) {
    if (threadIdx.x < gw_counts::TURNS * gw_counts::EACH) {
        counts.of[threadIdx.x] = 0;
    }
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

/* A bound that the k largest keys of all threads, and those equal to the k-th, are not below, and
 * no others: from its first bits on, until there are k. keys(f) calls f(key) for each of the
 * thread's. */
template <class Keys>
__device__ static inline gw_u32 least_key(gw_counts &counts, int k, Keys keys) {
    enum { TURNS = gw_counts::TURNS, EACH = gw_counts::EACH };
    gw_u32 least = 0;
    clear(counts);
    __syncthreads();
    for (int turn = 0; turn < TURNS; turn++) {
        const gw_u32 step = 1u << (30 - 2 * turn);
        unsigned *all = counts.of + turn * EACH, mine[EACH] = {0};
        keys([&](gw_u32 key) {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                mine[i] += key >= least + (gw_u32)(i + 1) * step;
            }
        });
        for (int h = GW_LANES / 2; h > 0; h /= 2) {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                mine[i] += gw_shuffle_xor(mine[i], h);
            }
        }
        if (gw_lane() < EACH) {
            const unsigned one = gw_lane() == 0 ? mine[0] : gw_lane() == 1 ? mine[1] : mine[2];
            atomicAdd(all + gw_lane(), one);
        }
        __syncthreads();
        unsigned count = 0;
        gw_u32 from = least;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (all[i] >= (unsigned)k) {
                count = all[i];
                from = least + (gw_u32)(i + 1) * step;
            }
        }
        least = from;
        if (count == (unsigned)k) {
            break;
        }
    }
    return least;
}

/* The block's piece of a row: what can still be drawn of it goes to the list. */
GW_DEVICE void list_piece(const struct gw_sample_params &p, const gw_choice &c, int row,
                          gw_counts &counts, gw_best *teams) {
    __shared__ unsigned kept, place;
    const int id = (int)threadIdx.x, n = p.n, first = (int)blockIdx.x * GW_SAMPLE_PIECE;
    const float *x = p.x + (size_t)row * n;
    gw_listed *list = p.list + (size_t)row * n;
    unsigned *count = p.count + GW_SAMPLE_COUNTS * row;
    gw_u32 key[EACH]; /* 0: behind the end of the row */
    int bad = 0;
    for (int j = 0; j < EACH; j++) {
        const int at = first + id + j * GW_SAMPLE_THREADS;
        key[j] = at < n ? gw_float_key(x[at]) : 0;
        bad |= at < n && (key[j] < GW_KEY_LEAST || key[j] > GW_KEY_MOST);
    }
    if (bad) {
        atomicOr(count + GW_SAMPLE_BAD, 1u);
    }
    if (gw_choice_filters(c, n)) {
        gw_u32 least = least_key(counts, c.top_k, [&](auto take) {
            for (int j = 0; j < EACH; j++) {
                take(key[j]);
            }
        });
        least = least > 0 ? least : 1; /* all of the piece */
        unsigned mine = 0;
        for (int j = 0; j < EACH; j++) {
            mine += key[j] >= least;
        }
        if (id == 0) {
            kept = 0;
        }
        __syncthreads();
        unsigned at = mine > 0 ? atomicAdd(&kept, mine) : 0;
        __syncthreads();
        if (id == 0) { /* for all of the block: others count there, too */
            place = atomicAdd(count + GW_SAMPLE_LISTED, kept);
        }
        __syncthreads();
        at += place;
        for (int j = 0; j < EACH; j++) {
            if (key[j] >= least) {
                list[at++] = {key[j], first + id + j * GW_SAMPLE_THREADS};
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
        list[atomicAdd(count + GW_SAMPLE_LISTED, 1u)] = l;
    }
}

/* What top-k leaves, ranked, and how much of the probability of the first they have; kept: how many
 * of them top-p leaves. */
struct gw_ranked {
    gw_listed at[GW_CHOICE_RANKED];
    float mass[GW_CHOICE_RANKED];
    unsigned n;
    int kept;
};
static_assert((int)GW_CHOICE_RANKED <= (int)GW_SAMPLE_THREADS, "a thread has one");

/* By the whole block: of a list what has a key from `least` on. Returns how many top-p leaves; 0:
 * they are too many to say. */
GW_DEVICE int rank(gw_ranked &ranked, const gw_choice &c, const gw_listed *list, int listed,
                   gw_u32 least) {
    const int id = (int)threadIdx.x;
    if (id == 0) {
        ranked.n = 0;
    }
    __syncthreads();
    for (int i = id; i < listed; i += GW_SAMPLE_THREADS) {
        const gw_listed l = list[i];
        const unsigned at = l.key >= least ? atomicAdd(&ranked.n, 1u) : GW_CHOICE_RANKED;
        if (at < GW_CHOICE_RANKED) {
            ranked.at[at] = l;
        }
    }
    __syncthreads();
    const int n = (int)ranked.n;
    if (n > (int)GW_CHOICE_RANKED) {
        return 0;
    }
    gw_listed mine = {0, 0};
    int before = 0;
    if (id < n) {
        mine = ranked.at[id];
        for (int i = 0; i < n; i++) {
            before += gw_listed_before(ranked.at[i], mine);
        }
    }
    __syncthreads();
    if (id < n) {
        ranked.at[before] = mine;
    }
    __syncthreads();
    if (id < n) {
        ranked.mass[before] = gw_exp(gw_key_float(mine.key) - gw_key_float(ranked.at[0].key));
    }
    __syncthreads();
    if (id == 0) {
        ranked.kept = gw_masses_reaching(ranked.mass, n, c.top_p);
    }
    __syncthreads();
    return ranked.kept;
}

/* The token of a row, when all of its pieces are listed. */
GW_DEVICE void draw(const struct gw_sample_params &p, const gw_choice &c, int row,
                    gw_counts &counts, gw_best *teams) {
    const int id = (int)threadIdx.x, n = p.n;
    const gw_listed *list = p.list + (size_t)row * n;
    unsigned *count = p.count + GW_SAMPLE_COUNTS * row;
    const int listed = (int)count[GW_SAMPLE_LISTED], bad = (int)count[GW_SAMPLE_BAD];
    __shared__ gw_ranked ranked;
    gw_u32 least = 0;
    __syncthreads(); /* all have read the count, and what teams have */
    if (id == 0) {
        count[GW_SAMPLE_LISTED] = count[GW_SAMPLE_BAD] = 0;
    }
    if (gw_choice_filters(c, n)) {
        least = least_key(counts, c.top_k, [&](auto take) {
            for (int i = id; i < listed; i += GW_SAMPLE_THREADS) {
                take(list[i].key);
            }
        });
    }
    gw_best v = {-INFINITY, n - 1};
    int kept = listed;
    if (gw_choice_narrows(c)) {
        kept = gw_choice_filters(c, n) ? rank(ranked, c, list, listed, least) : 0;
        list = ranked.at;
    }
    for (int i = id; i < kept; i += GW_SAMPLE_THREADS) {
        const gw_listed l = list[i];
        if (l.key >= least && !(gw_choice_narrows(c) && ranked.mass[i] < c.min_p)) {
            gw_best other = {gw_choice_score(c, gw_key_float(l.key), gw_step_pos(p.step, row),
                                             l.token),
                             l.token};
            v = better(v, other);
        }
    }
    v = best_of(teams, v);
    if (id == 0) {
        const int token = !bad && gw_key_counts(gw_float_key(v.score)) ? v.token : -1;
        p.ids[row] = token;
        p.host_ids[gw_step_turn(p.step) * p.step.rows + row] = token;
    }
}

GW_KERNEL(gw_sample, struct gw_sample_params, GW_SAMPLE_THREADS) {
    __shared__ gw_counts counts;
    __shared__ gw_best teams[TEAMS];
    __shared__ unsigned before;
    const int row = (int)blockIdx.y;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const gw_choice c = p.choice[row];
    list_piece(p, c, row, counts, teams);
    unsigned *arrived = p.count + GW_SAMPLE_COUNTS * row + GW_SAMPLE_ARRIVED;
    if (gw_block_arrives(arrived, gridDim.x - 1, &before) == gridDim.x - 1) {
        draw(p, c, row, counts, teams);
    }
}
