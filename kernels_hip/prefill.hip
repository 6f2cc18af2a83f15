/* kernels_hip/prefill.hip - attention of many rows (docs/arithmetic.md, section 5), bit for bit.
 *
 * A block of threads takes GW_PREFILL_QUERIES queries, pairs of a row and a head, of one KV head
 * and goes over the pages twice: for the largest score, then for the sums. The scores of a run's
 * first pages stay in memory between the two, those of others are computed again, so that a context
 * has no limit. A thread owns four queries by four positions of the scores
 * and four queries by E / 16 values of the output; sums of the definition are chains in registers.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/prefill_params.h"

enum {
    QUERIES = GW_PREFILL_QUERIES,
    THREADS = GW_PREFILL_THREADS,
    SIDE = 16, /* threads along the positions, and along the values of a head */
    EACH = 4   /* queries and positions of a thread                           */
};

struct __align__(16) floats4 {
    float v[4];
};

struct tile {
    float *q;       /* [e, QUERIES]                                            */
    float *page;    /* K [e, GW_PAGE] or V [GW_PAGE, E]                        */
    float *p;       /* [GW_PAGE, QUERIES]                                      */
    int *row, *pos; /* [QUERIES] of each query; row -1: none                   */
    int first, end; /* queries of the run: one sequence                        */
    int slot;
};

__device__ static inline int first_seen(int pos, int window) {
    return window > 0 && pos + 1 > window ? pos + 1 - window : 0;
}

template <int HALF> __device__ static inline void widen4(const void *cache, size_t at, float *out) {
    if (HALF) {
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

/* A page of K as [e, GW_PAGE], of V as [GW_PAGE, E] with what is beyond e zero. */
template <int HALF, int E, int V>
__device__ static inline void load_page(const gw_prefill_params &p, const tile &t, int page) {
    const int e = p.e, width = V ? e : GW_PAGE;
    const size_t number = (size_t)p.pages[(size_t)t.slot * p.page_stride + page];
    const size_t at = (number * p.kv_heads + blockIdx.y) * GW_PAGE * e;
    if (e % 4 == 0) {
        for (int i = (int)threadIdx.x * 4; i < GW_PAGE * e; i += THREADS * 4) {
            floats4 x;
            widen4<HALF>(V ? p.v : p.k, at + i, x.v);
            *(floats4 *)(t.page + (V ? i / width * E + i % width : i)) = x;
        }
    } else {
        for (int i = (int)threadIdx.x; i < GW_PAGE * e; i += THREADS) {
            const void *cache = V ? p.v : p.k;
            const float x = HALF ? gw_widen_f16(((const gw_u16 *)cache)[at + i])
                                 : ((const float *)cache)[at + i];
            t.page[V ? i / width * E + i % width : i] = x;
        }
    }
}

/* Scaled scores of this thread's queries and positions of the page in shared memory. */
__device__ static inline void score(const tile &t, int e, float scale, int tq, int tp,
                                    float s[EACH][EACH]) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            s[i][j] = 0.0f;
        }
    }
#pragma unroll 8
    for (int c = 0; c < e; c++) {
        const floats4 q = *(const floats4 *)(t.q + c * QUERIES + tq * EACH);
        const floats4 k = *(const floats4 *)(t.page + c * GW_PAGE + tp * EACH);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                s[i][j] = fmaf(q.v[i], k.v[j], s[i][j]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            s[i][j] = s[i][j] * scale;
        }
    }
}

/* Positions [from, end) of a page that a query sees. */
struct range {
    int from, end;
};
__device__ static inline range seen(const tile &t, int query, int page, int window) {
    const int pos = t.pos[query], low = first_seen(pos, window) - page * GW_PAGE;
    const int high = pos + 1 - page * GW_PAGE;
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

/* gw_join's fold over the 64 values of a page: four neighbours per thread. */
__device__ static inline float fold_page(const float *p) {
    float v[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        v[j] = p[j];
#pragma unroll
        for (int h = SIDE / 2; h > 0; h /= 2) {
            v[j] = v[j] + gw_shuffle_xor(v[j], h);
        }
    }
    return (v[0] + v[2]) + (v[1] + v[3]);
}

/* o += p v over the positions of a page. */
template <int E>
__device__ static inline void add_values(const tile &t, const range *r, int all, int tq, int tp,
                                         float o[EACH][E / SIDE]) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int c = 0; c < E / SIDE; c++) {
            o[i][c] = 0.0f;
        }
    }
#pragma unroll 4
    for (int j = 0; j < GW_PAGE; j++) {
        const floats4 p = *(const floats4 *)(t.p + j * QUERIES + tq * EACH);
        floats4 v[E / SIDE / 4];
#pragma unroll
        for (int c = 0; c < E / SIDE / 4; c++) {
            v[c] = *(const floats4 *)(t.page + j * E + c * SIDE * 4 + tp * 4);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (all || (j >= r[i].from && j < r[i].end)) {
#pragma unroll
                for (int c = 0; c < E / SIDE; c++) {
                    o[i][c] = fmaf(p.v[i], v[c / 4].v[c % 4], o[i][c]);
                }
            }
        }
    }
}

/* Largest scores of the groups of pages of a query, of a row that sees more than one. */
__device__ static inline float *group_tops(const gw_prefill_params &p, int query) {
    const size_t block = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    return p.tops + (block * QUERIES + query) * p.groups;
}
/* This thread's sums over groups of pages: of value c of its query i at i * E / SIDE + c. */
template <int E> __device__ static inline float *group_sums(const gw_prefill_params &p) {
    const size_t block = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    return p.sums + block * QUERIES * E + threadIdx.x;
}

/* This thread's part of the scores of page number `at` of a run. */
__device__ static inline floats4 *kept_scores(const gw_prefill_params &p, int at) {
    const size_t block = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    return (floats4 *)p.scores + (block * p.kept + at) * EACH * THREADS + threadIdx.x;
}

/* One run: both ways over its pages. out: sums and their divisor. */
template <int HALF, int E>
__device__ static inline void attend_run(const gw_prefill_params &p, const tile &t, int tq, int tp,
                                         float sum[EACH][E / SIDE], float *total) {
    int lowest = first_seen(t.pos[t.first], p.window), highest = 0;
    for (int i = t.first; i < t.end; i++) {
        const int low = first_seen(t.pos[i], p.window);
        lowest = low < lowest ? low : lowest;
        highest = t.pos[i] > highest ? t.pos[i] : highest;
    }
    const int first = lowest / GW_PAGE, last = highest / GW_PAGE;
    float s[EACH][EACH], best[EACH], top_here[EACH], total_here[EACH];
    int from[EACH], end[EACH]; /* pages that a query sees */
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int pos = t.pos[tq * EACH + i];
        from[i] = first_seen(pos, p.window) / GW_PAGE;
        end[i] = pos / GW_PAGE + 1;
        best[i] = top_here[i] = -INFINITY;
    }
    for (int page = first; page <= last; page++) {
        load_page<HALF, E, 0>(p, t, page);
        __syncthreads();
        score(t, p.e, p.scale, tq, tp, s);
#pragma unroll
        for (int i = 0; i < EACH && page - first < p.kept; i++) {
            const floats4 row = {{s[i][0], s[i][1], s[i][2], s[i][3]}};
            kept_scores(p, page - first)[i * THREADS] = row;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const range r = seen(t, tq * EACH + i, page, p.window);
            float top = -INFINITY;
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int at = tp * EACH + j;
                top = at >= r.from && at < r.end && s[i][j] > top ? s[i][j] : top;
            }
            top = largest(top);
            if (r.from < r.end) {
                const int n = page - from[i];
                top_here[i] = n % GW_PAGE_GROUP == 0 || top > top_here[i] ? top : top_here[i];
                best[i] = top > best[i] ? top : best[i];
                if (tp == 0 && (n % GW_PAGE_GROUP == GW_PAGE_GROUP - 1 || page == end[i] - 1)) {
                    group_tops(p, tq * EACH + i)[n / GW_PAGE_GROUP] = top_here[i];
                }
            }
        }
        __syncthreads();
    }
    for (int page = first; page <= last; page++) {
        float weight[EACH], o[EACH][E / SIDE];
        range r[EACH];
        int all = 1;
        if (page - first < p.kept) {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const floats4 row = kept_scores(p, page - first)[i * THREADS];
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    s[i][j] = row.v[j];
                }
            }
        } else {
            load_page<HALF, E, 0>(p, t, page);
            __syncthreads();
            score(t, p.e, p.scale, tq, tp, s);
            __syncthreads();
        }
        load_page<HALF, E, 1>(p, t, page);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            r[i] = seen(t, tq * EACH + i, page, p.window);
            float top = -INFINITY;
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int at = tp * EACH + j;
                top = at >= r[i].from && at < r[i].end && s[i][j] > top ? s[i][j] : top;
            }
            top = largest(top);
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int at = tp * EACH + j;
                s[i][j] = at >= r[i].from && at < r[i].end ? gw_exp(s[i][j] - top) : 0.0f;
            }
            const float l = fold_page(s[i]);
            if (r[i].from < r[i].end && (page - from[i]) % GW_PAGE_GROUP == 0) {
                top_here[i] = group_tops(p, tq * EACH + i)[(page - from[i]) / GW_PAGE_GROUP];
                total_here[i] = 0.0f;
            }
            weight[i] = gw_exp(top - top_here[i]);
            total_here[i] =
                r[i].from < r[i].end ? fmaf(l, weight[i], total_here[i]) : total_here[i];
            all = all && r[i].from == 0 && r[i].end == GW_PAGE;
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            floats4 x;
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                x.v[i] = s[i][j];
            }
            *(floats4 *)(t.p + (tp * EACH + j) * QUERIES + tq * EACH) = x;
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
            for (int c = 0; c < E / SIDE; c++) {
                sum[i][c] = r[i].from < r[i].end ? fmaf(o[i][c], weight[i], sum[i][c]) : sum[i][c];
            }
            const int n = page - from[i], last = page == end[i] - 1;
            if (r[i].from < r[i].end && (n % GW_PAGE_GROUP == GW_PAGE_GROUP - 1 || last)) {
                float *kept = group_sums<E>(p) + i * (E / SIDE) * THREADS;
                const float by = gw_exp(top_here[i] - best[i]);
                total[i] = fmaf(total_here[i], by, total[i]);
#pragma unroll
                for (int c = 0; c < E / SIDE; c++, kept += THREADS) {
                    const float all = fmaf(sum[i][c], by, n < GW_PAGE_GROUP ? -0.0f : *kept);
                    sum[i][c] = last ? all : 0.0f;
                    if (!last) {
                        *kept = all;
                    }
                }
            }
        }
        __syncthreads();
    }
}

template <int HALF, int E>
__device__ static inline void attend(const gw_prefill_params &p, float *shared) {
    const int tid = (int)threadIdx.x, tp = tid % SIDE, tq = tid / SIDE;
    const int live = gw_live(p.step), group = p.heads / p.kv_heads;
    const int begin = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES; /* the longest first */
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (begin >= live * group) {
        return;
    }
    tile t;
    t.q = shared;
    t.page = t.q + E * QUERIES;
    t.p = t.page + E * GW_PAGE;
    t.row = (int *)(t.p + GW_PAGE * QUERIES);
    t.pos = t.row + QUERIES;
    if (tid < QUERIES) {
        const int row = (begin + tid) / group;
        t.row[tid] = row < live ? row : -1;
        t.pos[tid] = row < live ? gw_step_pos(p.step, row) : -1;
    }
    for (int i = tid; i < QUERIES * p.e; i += THREADS) {
        const int query = i / p.e, c = i % p.e, row = (begin + query) / group;
        const int head = (int)blockIdx.y * group + (begin + query) % group;
        t.q[c * QUERIES + query] =
            row < live ? p.q[((size_t)row * p.heads + head) * p.e + c] : 0.0f;
    }
    for (int i = tid; i < E * GW_PAGE; i += THREADS) { /* values beyond e stay zero */
        t.page[i] = 0.0f;
    }
    __syncthreads();
    float sum[EACH][E / SIDE], total[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        total[i] = -0.0f;
#pragma unroll
        for (int c = 0; c < E / SIDE; c++) {
            sum[i][c] = 0.0f;
        }
    }
    t.end = 0;
    while (t.end < QUERIES && t.row[t.end] >= 0) { /* runs of rows of one sequence */
        t.first = t.end;
        t.slot = gw_step_slot(p.step, t.row[t.first]);
        while (t.end < QUERIES && t.row[t.end] >= 0 &&
               gw_step_slot(p.step, t.row[t.end]) == t.slot) {
            t.end++;
        }
        attend_run<HALF, E>(p, t, tq, tp, sum, total);
    }
    float *out = t.page; /* [QUERIES, E + 1] */
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int query = tq * EACH + i, row = t.row[query];
        const int head = (int)blockIdx.y * group + (begin + query) % group;
#pragma unroll
        for (int c = 0; c < E / SIDE; c++) {
            const int at = c / 4 * SIDE * 4 + tp * 4 + c % 4;
            const float y = sum[i][c] / total[i];
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
            const int head = (int)blockIdx.y * group + (begin + query) % group;
            if (row >= 0) {
                gw_act8 y;
                gw_act8_encode(&y, out + query * (E + 1) + b * GW_ACT_BLOCK);
                gw_store_act8(p.out, ((size_t)row * p.heads + head) * blocks + b, p.form, y);
            }
        }
    }
}

/* E: the width of a head is at most that. */
#define GW_PREFILL(name, HALF, E)                                                                  \
    GW_KERNEL(gw_prefill_##name, struct gw_prefill_params, GW_PREFILL_THREADS) {                   \
        GW_SHARED_DYNAMIC(float, shared);                                                          \
        attend<HALF, E>(p, shared);                                                                \
    }
GW_PREFILL(f16_64, 1, 64)
GW_PREFILL(f16_128, 1, 128)
GW_PREFILL(f16_256, 1, 256)
GW_PREFILL(f32_64, 0, 64)
GW_PREFILL(f32_128, 0, 128)
GW_PREFILL(f32_256, 0, 256)
