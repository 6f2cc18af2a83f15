/* kernels_hip/attention/attend_prompt.hip - attention of many rows (docs/arithmetic.md, section 5),
 * bit for bit.
 *
 * A block of threads takes some queries, pairs of a row and a head, of one KV head and goes over
 * the pages of a group twice: for the largest score, then for the sums; scores stay in memory
 * between the two, and groups are joined when all are there. Where rows have different groups, or
 * more than there is room for, it goes over all pages twice, and the scores of all but the first
 * are computed again, so that a context has no limit. A thread owns four queries by four positions
 * of the scores and four queries by E / 16 values of the output; sums of the definition are chains
 * in registers. It reads shared memory in pairs: two numbers for every lane come at once where
 * lanes have the same or neighbours, and four take four times as long.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention/attend_prompt.h"
#include "kernels_hip/attention/attention.h"

enum {
    WIDE = GW_MMA && GW_QUADS,
    SIDE = 16, /* threads along the positions, and along the values of a head */
    EACH = 4,  /* queries and positions of a thread                           */
    PAIRS = 2 * SIDE
};

struct __align__(8) floats2 {
    float v[2];
};
struct __align__(16) floats4 {
    float v[4];
};

template <int E> struct sizes {
    enum {
        QUERIES = GW_PROMPT_QUERIES(E, WIDE),
        STEP = GW_PROMPT_STEP(QUERIES),
        THREADS = GW_PROMPT_THREADS(E, WIDE),
        VALUES = E / SIDE /* of a thread */
    };
};

/* Which position or value of them all number i of a thread is, and which query: pairs of
 * neighbours, and those of all threads side by side. */
GW_DEVICE int place_of(int tp, int j) { return j / 2 * (int)PAIRS + 2 * tp + j % 2; }
template <int E> __device__ static inline int query_of(int tq, int i) {
    return i / 2 * (sizes<E>::QUERIES / 2) + 2 * tq + i % 2;
}

/* N numbers of a thread, of which pairs lie STRIDE apart. */
template <int N, int STRIDE>
__device__ static inline void load_pairs(float *to, const float *from) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const floats2 pair = *(const floats2 *)(from + i / 2 * STRIDE);
        to[i] = pair.v[0];
        to[i + 1] = pair.v[1];
    }
}

struct tile {
    float *q;        /* [e, STEP]                                               */
    float *page;     /* K [e, GW_PAGE] or V [GW_PAGE, E]                        */
    float *p;        /* [GW_PAGE, STEP]                                         */
    int *row;        /* [QUERIES] of each query; -1: none                       */
    int *low, *high; /* [QUERIES] the first and last position that it sees     */
    int *slots;      /* [QUERIES], of each query's sequence                     */
    int first, end;  /* queries of the run: one sequence                        */
    int slot;
    int begin;           /* the block's first query of those of a KV head */
    int lowest, highest; /* positions that they see */
    int latest;          /* the largest first one  */

    /* The run that begins with query `from`; every team finds it for itself. */
    __device__ inline void open(int from, int queries) {
        const int lane = gw_lane();
        unsigned down = 0, up = 0, late = 0; /* of ~lowest, of highest, of latest */
        first = from;
        end = queries;
        slot = slots[from];
        for (int base = 0; base < end; base += GW_LANES) {
            const int i = base + lane;
            const int other = i >= from && (row[i] < 0 || slots[i] != slot);
            const int near = (int)gw_team_max(other ? (unsigned)(GW_LANES - lane) : 0u);
            end = near > 0 ? base + GW_LANES - near : end;
            if (i >= from && i < end) {
                const unsigned begins = (unsigned)low[i], ends = (unsigned)high[i];
                down = ~begins > down ? ~begins : down;
                late = begins > late ? begins : late;
                up = ends > up ? ends : up;
            }
        }
        lowest = (int)~gw_team_max(down);
        highest = (int)gw_team_max(up);
        latest = (int)gw_team_max(late);
    }
};

/* What the caches have. */
enum { FLOATS, HALVES, CODES };

template <int CELLS>
__device__ static inline void widen4(const void *cache, size_t at, float *out) {
    if (CELLS == HALVES) {
        struct __align__(8) halves4 {
            gw_u16 v[4];
        };
        const halves4 h = *(const halves4 *)((const gw_u16 *)cache + at);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[i] = gw_widen_f16(h.v[i]);
        }
    } else {
        const floats4 x = *(const floats4 *)((const float *)cache + at);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[i] = x.v[i];
        }
    }
}

/* The same of codes with scales, four from number i of a page on: of K neighbours are positions. */
template <int V>
__device__ static inline void widen_codes(const uint8_t *page, int i, int e, float *out) {
    const uint8_t *scales = page + GW_PAGE * e;
    float of[4];
    gw_scale scale[4];
    if (V) {
        gw_cells_f16::read<1>(scales, i / 32, of);
    } else {
        gw_cells_f16::read<4>(scales, i / GW_PAGE / 32 * GW_PAGE + i % GW_PAGE, of);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        scale[k] = gw_scale(of[V ? 0 : k]);
    }
    gw_cells_q8_0::read_scaled<4>(page, i, scale, out);
}

/* A page of K as [e, GW_PAGE], of V as [GW_PAGE, E] with what is beyond e zero. */
template <int CELLS, int E, int V>
__device__ static inline void load_page(const gw_prompt_params &p, const tile &t, int page) {
    const int e = p.e, width = V ? e : GW_PAGE;
    const size_t number = (size_t)p.pages[(size_t)t.slot * p.page_stride + page];
    const size_t at = (number * p.kv_heads + blockIdx.x) * GW_PAGE * e;
    const void *cache = V ? p.v : p.k;
    if (CELLS == CODES || e % 4 == 0) {
        for (int i = (int)threadIdx.x * 4; i < GW_PAGE * e; i += sizes<E>::THREADS * 4) {
            floats4 x;
            if (CELLS == CODES) {
                widen_codes<V>((const uint8_t *)cache + at + at / 16, i, e, x.v);
            } else {
                widen4<CELLS>(cache, at + i, x.v);
            }
            *(floats4 *)(t.page + (V ? i / width * E + i % width : i)) = x;
        }
    } else {
        for (int i = (int)threadIdx.x; i < GW_PAGE * e; i += sizes<E>::THREADS) {
            const float x = CELLS == HALVES ? gw_widen_f16(((const gw_u16 *)cache)[at + i])
                                            : ((const float *)cache)[at + i];
            t.page[V ? i / width * E + i % width : i] = x;
        }
    }
}

/* Scaled scores of this thread's queries and positions of the page in shared memory. */
template <int E>
__device__ static inline void score(const tile &t, int e, float scale, int tq, int tp,
                                    float s[EACH][EACH]) {
    enum { STEP = sizes<E>::STEP };
    const float *queries = t.q + query_of<E>(tq, 0), *keys = t.page + place_of(tp, 0);
#pragma unroll
    for (int i = 0; i < EACH * EACH; i++) {
        s[i / EACH][i % EACH] = 0.0f;
    }
#pragma unroll 4
    for (int c = 0; c < e; c++, queries += STEP, keys += GW_PAGE) {
        float q[EACH], k[EACH];
        load_pairs<EACH, sizes<E>::QUERIES / 2>(q, queries);
        load_pairs<EACH, PAIRS>(k, keys);
#pragma unroll
        for (int i = 0; i < EACH * EACH; i++) {
            float &sum = s[i / EACH][i % EACH];
            sum = fmaf(q[i / EACH], k[i % EACH], sum);
        }
    }
#pragma unroll
    for (int i = 0; i < EACH * EACH; i++) {
        s[i / EACH][i % EACH] = s[i / EACH][i % EACH] * scale;
    }
}

/* Positions [from, end) of a page that a query sees. */
struct range {
    int from, end;
};
__device__ static inline range seen(const tile &t, int query, int page) {
    const int low = t.low[query] - page * GW_PAGE, high = t.high[query] + 1 - page * GW_PAGE;
    const int there = query >= t.first && query < t.end;
    range r = {low > 0 ? low : 0, there ? (high < GW_PAGE ? high : GW_PAGE) : 0};
    return r;
}

__device__ static inline float largest(float v) { /* of the SIDE threads of a query */
#pragma unroll
    for (int h = SIDE / 2; h > 0; h /= 2) {
        const float other = gw_shuffle_xor(v, h);
        v = other > v ? other : v;
    }
    return v;
}

/* The fold over the 64 values of a page. */
__device__ static inline float fold_page(const float *p) {
    float even = p[0] + p[2], odd = p[1] + p[3];
#pragma unroll
    for (int h = SIDE / 2; h > 0; h /= 2) {
        even = even + gw_shuffle_xor(even, h);
        odd = odd + gw_shuffle_xor(odd, h);
    }
    return even + odd;
}

/* o += p v over the positions of a page before `end`; p and v of the next one are on their way
 * meanwhile. */
template <int E>
__device__ static inline void add_values(const tile &t, const range *r, int all, int tq, int tp,
                                         float o[EACH][sizes<E>::VALUES], int end = GW_PAGE) {
    enum { VALUES = sizes<E>::VALUES };
    const float *weights = t.p + query_of<E>(tq, 0), *values = t.page + place_of(tp, 0);
    float p[2][EACH], v[2][VALUES];
    const auto ask = [&](int place) {
        load_pairs<EACH, sizes<E>::QUERIES / 2>(p[place], weights);
        load_pairs<VALUES, PAIRS>(v[place], values);
        weights += sizes<E>::STEP;
        values += E;
    };
#pragma unroll
    for (int i = 0; i < EACH * VALUES; i++) {
        o[i / VALUES][i % VALUES] = 0.0f;
    }
    ask(0);
#pragma unroll 1
    for (int two = 0; two < end; two += 2) { /* a row more than there are is read, and left */
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const int j = two + odd;
            ask(1 - odd);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                if (all || (j >= r[i].from && j < r[i].end)) {
#pragma unroll
                    for (int c = 0; c < VALUES; c++) {
                        o[i][c] = fmaf(p[odd][i], v[odd][c], o[i][c]);
                    }
                }
            }
        }
    }
}

/* This block, of all. */
GW_DEVICE size_t block_of(void) { return (size_t)blockIdx.y * gridDim.x + blockIdx.x; }
/* Largest scores of the groups of pages of a query, and sums of their weights. */
template <int E> __device__ static inline float *group_tops(const gw_prompt_params &p, int query) {
    return p.tops + (block_of() * sizes<E>::QUERIES + query) * p.groups;
}
template <int E>
__device__ static inline float *group_totals(const gw_prompt_params &p, int query) {
    return p.totals + (block_of() * sizes<E>::QUERIES + query) * p.kept_groups;
}
/* This thread's sums over a group of pages: of value c of its query i at i * VALUES + c. */
template <int E> __device__ static inline float *group_sums(const gw_prompt_params &p, int group) {
    return p.sums + (block_of() * p.kept_groups + group) * sizes<E>::QUERIES * E + threadIdx.x;
}
/* This thread's part of the scores of page number `at` of a run. */
template <int E> __device__ static inline floats4 *kept_scores(const gw_prompt_params &p, int at) {
    return (floats4 *)p.scores + (block_of() * p.kept + at) * EACH * sizes<E>::THREADS +
           threadIdx.x;
}

/* The score of the head's sink, or -infinity. */
GW_DEVICE float sink_of(const gw_prompt_params &p, const tile &t, int query) {
    const int group = p.heads / p.kv_heads;
    return p.sinks ? p.sinks[(int)blockIdx.x * group + (t.begin + query) % group] : -INFINITY;
}

/* The groups of this thread's queries, of a run with several, joined; out as below. */
template <int E>
__device__ static inline void join_groups(const gw_prompt_params &p, const tile &t, int tq,
                                          float sum[EACH][sizes<E>::VALUES], float *total) {
    enum { VALUES = sizes<E>::VALUES, THREADS = sizes<E>::THREADS };
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int query = query_of<E>(tq, i);
        if (query < t.first || query >= t.end) {
            continue;
        }
        const int groups = (t.high[query] / GW_PAGE - t.low[query] / GW_PAGE) / GW_PAGE_GROUP + 1;
        const float *tops = group_tops<E>(p, query), *totals = group_totals<E>(p, query);
        const float sink = sink_of(p, t, query);
        float best = sink, all = -0.0f, o[VALUES];
        for (int g = 0; g < groups; g++) {
            best = tops[g] > best ? tops[g] : best;
        }
#pragma unroll
        for (int c = 0; c < VALUES; c++) {
            o[c] = -0.0f;
        }
        for (int g = 0; g < groups; g++) {
            const float *of = group_sums<E>(p, g) + i * (int)VALUES * THREADS;
            const float by = gw_exp(tops[g] - best);
            all = fmaf(totals[g], by, all);
#pragma unroll
            for (int c = 0; c < VALUES; c++) {
                o[c] = fmaf(of[c * THREADS], by, o[c]);
            }
        }
        total[i] = p.sinks ? all + gw_exp(sink - best) : all;
#pragma unroll
        for (int c = 0; c < VALUES; c++) {
            sum[i][c] = o[c];
        }
    }
}

/* One run: both ways over its pages. out: sums and their divisor. */
template <int CELLS, int E>
__device__ static inline void attend_run(const gw_prompt_params &p, const tile &t, int tq, int tp,
                                         float sum[EACH][sizes<E>::VALUES], float *total) {
    enum { VALUES = sizes<E>::VALUES, STEP = sizes<E>::STEP, THREADS = sizes<E>::THREADS };
    const int first = t.lowest / GW_PAGE, last = t.highest / GW_PAGE;
    /* Several groups come after one another, if all rows have the same and their sums have room. */
    const int groups = (last - first) / GW_PAGE_GROUP + 1;
    const int apart = groups > 1 && groups <= p.kept_groups && t.latest / GW_PAGE == first;
    float s[EACH][EACH], best[EACH], top_here[EACH], total_here[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        top_here[i] = -INFINITY;
        best[i] = sink_of(p, t, query_of<E>(tq, i));
    }
    for (int from = first, to; from <= last; from = to) {
        to = apart && last - from >= GW_PAGE_GROUP ? from + GW_PAGE_GROUP : last + 1;
        for (int page = from; page < to; page++) {
            load_page<CELLS, E, 0>(p, t, page);
            __syncthreads();
            score<E>(t, p.e, p.scale, tq, tp, s);
#pragma unroll
            for (int i = 0; i < EACH && page - from < p.kept; i++) {
                const floats4 row = {{s[i][0], s[i][1], s[i][2], s[i][3]}};
                kept_scores<E>(p, page - from)[i * THREADS] = row;
            }
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const range r = seen(t, query_of<E>(tq, i), page);
                float top = -INFINITY;
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    const int at = place_of(tp, j);
                    top = at >= r.from && at < r.end && s[i][j] > top ? s[i][j] : top;
                }
                top = largest(top);
                if (r.from < r.end) {
                    const int query = query_of<E>(tq, i), n = page - t.low[query] / GW_PAGE;
                    top_here[i] = n % GW_PAGE_GROUP == 0 || top > top_here[i] ? top : top_here[i];
                    best[i] = top > best[i] ? top : best[i];
                    if (tp == 0 && (n % GW_PAGE_GROUP == GW_PAGE_GROUP - 1 ||
                                    page == t.high[query] / GW_PAGE)) {
                        group_tops<E>(p, query)[n / GW_PAGE_GROUP] = top_here[i];
                    }
                }
            }
            __syncthreads();
        }
        for (int page = from; page < to; page++) {
            float weight[EACH], o[EACH][VALUES];
            range r[EACH];
            int all = 1;
            if (page - from < p.kept) {
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    const floats4 row = kept_scores<E>(p, page - from)[i * THREADS];
#pragma unroll
                    for (int j = 0; j < EACH; j++) {
                        s[i][j] = row.v[j];
                    }
                }
            } else {
                load_page<CELLS, E, 0>(p, t, page);
                __syncthreads();
                score<E>(t, p.e, p.scale, tq, tp, s);
                __syncthreads();
            }
            load_page<CELLS, E, 1>(p, t, page);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                r[i] = seen(t, query_of<E>(tq, i), page);
                float top = -INFINITY;
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    const int at = place_of(tp, j);
                    top = at >= r[i].from && at < r[i].end && s[i][j] > top ? s[i][j] : top;
                }
                top = largest(top);
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    const int at = place_of(tp, j);
                    s[i][j] = at >= r[i].from && at < r[i].end ? gw_exp(s[i][j] - top) : 0.0f;
                }
                const float l = fold_page(s[i]);
                const int query = query_of<E>(tq, i), n = page - t.low[query] / GW_PAGE;
                if (r[i].from < r[i].end && n % GW_PAGE_GROUP == 0) {
                    top_here[i] = group_tops<E>(p, query)[n / GW_PAGE_GROUP];
                    total_here[i] = 0.0f;
                }
                weight[i] = gw_exp(top - top_here[i]);
                total_here[i] =
                    r[i].from < r[i].end ? fmaf(l, weight[i], total_here[i]) : total_here[i];
                all = all && r[i].from == 0 && r[i].end == GW_PAGE;
            }
#pragma unroll
            for (int j = 0; j < EACH; j++) {
#pragma unroll
                for (int i = 0; i < EACH; i += 2) {
                    const floats2 pair = {{s[i][j], s[i + 1][j]}};
                    *(floats2 *)(t.p + place_of(tp, j) * STEP + query_of<E>(tq, i)) = pair;
                }
            }
            __syncthreads();
            if (all) {
                add_values<E>(t, r, 1, tq, tp, o);
            } else {
                add_values<E>(t, r, 0, tq, tp, o);
            }
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int c = 0; c < VALUES; c++) {
                    sum[i][c] =
                        r[i].from < r[i].end ? fmaf(o[i][c], weight[i], sum[i][c]) : sum[i][c];
                }
                const int query = query_of<E>(tq, i), last = page == t.high[query] / GW_PAGE;
                const int n = page - t.low[query] / GW_PAGE;
                if (r[i].from < r[i].end && (n % GW_PAGE_GROUP == GW_PAGE_GROUP - 1 || last)) {
                    float *kept =
                        group_sums<E>(p, apart ? n / GW_PAGE_GROUP : 0) + i * (int)VALUES * THREADS;
                    const float by = gw_exp(top_here[i] - best[i]);
                    total[i] = fmaf(total_here[i], by, total[i]);
                    if (last && p.sinks) {
                        const float sink = sink_of(p, t, query);
                        total[i] = total[i] + gw_exp(sink - best[i]);
                    }
                    if (apart && tp == 0) {
                        group_totals<E>(p, query)[n / GW_PAGE_GROUP] = total_here[i];
                    }
#pragma unroll
                    for (int c = 0; c < VALUES; c++, kept += THREADS) {
                        const float all =
                            apart ? sum[i][c]
                                  : fmaf(sum[i][c], by, n < GW_PAGE_GROUP ? -0.0f : *kept);
                        sum[i][c] = last ? all : 0.0f;
                        if (apart || !last) {
                            *kept = all;
                        }
                    }
                }
            }
            __syncthreads();
        }
    }
    if (apart) {
        join_groups<E>(p, t, tq, sum, total);
    }
}

/* The page of each row's own position, alone: its largest score, its sum and its values. */
template <int CELLS, int E>
__device__ static inline void attend_own(const gw_prompt_params &p, const tile &t, int tq, int tp,
                                         float sum[EACH][sizes<E>::VALUES], float *total,
                                         float *best) {
    enum { VALUES = sizes<E>::VALUES, STEP = sizes<E>::STEP };
    const int last = t.highest / GW_PAGE;
    for (int page = t.lowest / GW_PAGE; page <= last; page++) {
        float s[EACH][EACH], o[EACH][VALUES];
        range r[EACH];
        load_page<CELLS, E, 0>(p, t, page);
        __syncthreads();
        score<E>(t, p.e, p.scale, tq, tp, s);
        __syncthreads();
        load_page<CELLS, E, 1>(p, t, page);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            r[i] = seen(t, query_of<E>(tq, i), page);
            float top = -INFINITY;
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int at = place_of(tp, j);
                top = at >= r[i].from && at < r[i].end && s[i][j] > top ? s[i][j] : top;
            }
            top = largest(top);
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int at = place_of(tp, j);
                s[i][j] = at >= r[i].from && at < r[i].end ? gw_exp(s[i][j] - top) : 0.0f;
            }
            const float l = fold_page(s[i]);
            total[i] = r[i].from < r[i].end ? l : total[i];
            best[i] = r[i].from < r[i].end ? top : best[i];
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
#pragma unroll
            for (int i = 0; i < EACH; i += 2) {
                const floats2 pair = {{s[i][j], s[i + 1][j]}};
                *(floats2 *)(t.p + place_of(tp, j) * STEP + query_of<E>(tq, i)) = pair;
            }
        }
        __syncthreads();
        const int end = page == last ? t.highest % GW_PAGE + 1 : (int)GW_PAGE;
        add_values<E>(t, r, 0, tq, tp, o, end);
#pragma unroll
        for (int i = 0; i < EACH * VALUES; i++) {
            const range &here = r[i / VALUES];
            float &to = sum[i / VALUES][i % VALUES];
            to = here.from < here.end ? o[i / VALUES][i % VALUES] : to;
        }
        __syncthreads();
    }
}

/* Which queries block `at` of n has: first those with the most to do, the longest first, then the
 * others, the shortest first; so two blocks that share a multiprocessor have as much as any two. */
GW_DEVICE int turn_of(int at, int n) {
    const int first = (n + 1) / 2;
    return at < first ? n - 1 - at : at - first;
}

/* OWN: of each row its own page alone, which stays as it is: not joined, not divided. */
template <int CELLS, int E, int OWN>
__device__ static inline void attend(const gw_prompt_params &p, float *shared) {
    const int tid = (int)threadIdx.x, tp = tid % SIDE, tq = tid / SIDE;
    const int live = gw_live(p.step), group = p.heads / p.kv_heads;
    enum { QUERIES = sizes<E>::QUERIES, VALUES = sizes<E>::VALUES, THREADS = sizes<E>::THREADS };
    const int begin = turn_of((int)blockIdx.y, (int)gridDim.y) * QUERIES;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (begin >= live * group) {
        return;
    }
    tile t;
    t.begin = begin;
    t.q = shared;
    t.page = t.q + E * sizes<E>::STEP;
    t.p = t.page + E * GW_PAGE;
    t.row = (int *)(t.p + GW_PAGE * sizes<E>::STEP);
    t.low = t.row + QUERIES;
    t.high = t.low + QUERIES;
    t.slots = t.high + QUERIES;
    if (tid < QUERIES) {
        const int row = (begin + tid) / group;
        t.row[tid] = row < live ? row : -1;
        const gw_prompt_span span = gw_prompt_seen(p, row < live ? row : 0);
        t.low[tid] = row < live ? (OWN ? span.high / GW_PAGE * GW_PAGE : span.low) : 0;
        t.high[tid] = row < live ? span.high : -1;
        t.slots[tid] = row < live ? gw_step_slot(p.step, row) : 0;
    }
    enum { TEAMS = THREADS / GW_LANES, AT_ONCE = 4, PARTS = (E + GW_LANES - 1) / GW_LANES };
#pragma unroll
    for (int first = 0; first < QUERIES / TEAMS; first += AT_ONCE) {
        float x[AT_ONCE][PARTS]; /* all of it is asked for before the first is stored */
#pragma unroll
        for (int i = 0; i < AT_ONCE * PARTS; i++) {
            const int query = (first + i / PARTS) * TEAMS + gw_team();
            const int row = (begin + query) / group, head = (begin + query) % group;
            const int c = i % PARTS * GW_LANES + gw_lane();
            const size_t at = (size_t)row * p.heads + (size_t)((int)blockIdx.x * group + head);
            x[i / PARTS][i % PARTS] = row < live && c < p.e ? p.q[at * p.e + c] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE * PARTS; i++) {
            const int query = (first + i / PARTS) * TEAMS + gw_team();
            const int c = i % PARTS * GW_LANES + gw_lane();
            if (c < p.e) {
                t.q[c * sizes<E>::STEP + query] = x[i / PARTS][i % PARTS];
            }
        }
    }
    for (int i = tid; i < E * GW_PAGE; i += THREADS) { /* values beyond e stay zero */
        t.page[i] = 0.0f;
    }
    __syncthreads();
    float sum[EACH][VALUES], total[EACH], best[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        total[i] = -0.0f;
        best[i] = -INFINITY;
#pragma unroll
        for (int c = 0; c < VALUES; c++) {
            sum[i][c] = 0.0f;
        }
    }
    for (int i = 0; i < QUERIES && t.row[i] >= 0; i = t.end) { /* runs of rows of one sequence */
        t.open(i, QUERIES);
        if (OWN) {
            attend_own<CELLS, E>(p, t, tq, tp, sum, total, best);
        } else {
            attend_run<CELLS, E>(p, t, tq, tp, sum, total);
        }
    }
    float *out = t.page; /* [QUERIES, E + 1] */
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int query = query_of<E>(tq, i), row = t.row[query];
        const int head = (int)blockIdx.x * group + (begin + query) % group;
#pragma unroll
        for (int c = 0; c < VALUES; c++) {
            const int at = place_of(tp, c);
            const float y = OWN ? sum[i][c] : sum[i][c] / total[i];
            if (OWN && tp == 0 && c == 0 && row >= 0) {
                p.tops[(size_t)row * p.heads + head] = best[i];
                p.totals[(size_t)row * p.heads + head] = total[i];
            }
            if (p.form != GW_FORM_FLOATS) {
                out[query * (E + 1) + at] = y;
            } else if (row >= 0 && at < p.e) {
                ((float *)p.out)[((size_t)row * p.heads + head) * p.e + at] = y;
            }
        }
    }
    if (p.form != GW_FORM_FLOATS) {
        __syncthreads();
        const int blocks = p.e / GW_ACT_BLOCK;
        for (int i = tid; i < QUERIES * blocks; i += THREADS) {
            const int query = i % QUERIES, b = i / QUERIES, row = t.row[query];
            const int head = (int)blockIdx.x * group + (begin + query) % group;
            if (row >= 0) {
                gw_act8 y;
                gw_act8_encode(&y, out + query * (E + 1) + b * GW_ACT_BLOCK);
                gw_store_act8(p.out, ((size_t)row * p.heads + head) * blocks + b, p.form, y);
            }
        }
    }
}

/* E: the width of a head is at most that. */
#define GW_PREFILL(name, CELLS, E, OWN)                                                            \
    GW_KERNEL(gw_attend_prompt_##name, struct gw_prompt_params, GW_PROMPT_THREADS(E, WIDE), 2) {   \
        GW_SHARED_DYNAMIC(float, shared);                                                          \
        attend<CELLS, E, OWN>(p, shared);                                                          \
    }
GW_PREFILL(f16_64, HALVES, 64, 0)
GW_PREFILL(f16_128, HALVES, 128, 0)
GW_PREFILL(f16_256, HALVES, 256, 0)
GW_PREFILL(f32_64, FLOATS, 64, 0)
GW_PREFILL(f32_128, FLOATS, 128, 0)
GW_PREFILL(f32_256, FLOATS, 256, 0)
GW_PREFILL(own_f16_64, HALVES, 64, 1)
GW_PREFILL(own_f16_128, HALVES, 128, 1)
GW_PREFILL(own_f16_256, HALVES, 256, 1)
GW_PREFILL(own_q8_0_64, CODES, 64, 1)
GW_PREFILL(own_q8_0_128, CODES, 128, 1)
GW_PREFILL(own_q8_0_256, CODES, 256, 1)
