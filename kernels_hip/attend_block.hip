/* kernels_hip/attend_block.hip - ATTENTION of a step of one row over few pages, with ROPE_KV in
 * front of it: a block has a query head and keeps everything in shared memory. Where pages are few
 * the work of one team is a long chain of instructions and little else counts, so here each part of
 * it is cut as finely as the arithmetic allows: a lane has one position of a page while scores are
 * made and one value of the head while pages are summed. The bits are those of attention.hip.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention.h"

enum { TEAMS = GW_BLOCK_THREADS / GW_LANES, HALVES = GW_PAGE / GW_LANES, BATCH = 16 };

/* Where the block has what. */
struct gw_desk {
    float *q, *k, *v;           /* [e]: query; the new position's cells as values      */
    uint8_t *k_cells, *v_cells; /* those cells, scales behind e floats                 */
    float *weight;              /* [pages, 64]: scores, then weights                   */
    float *values;              /* [pages, e]                                          */
    float *top, *sum;           /* [pages]                                             */

    __device__ inline gw_desk(uint8_t *shared, int e, int pages) {
        const int cells = GW_BLOCK_CELLS(e);
        q = (float *)shared;
        k = q + e;
        v = k + e;
        k_cells = (uint8_t *)(v + e);
        v_cells = k_cells + 4 * cells;
        weight = (float *)(v_cells + 4 * cells);
        values = weight + pages * GW_PAGE;
        top = values + pages * e;
        sum = top + pages;
    }
};

/* A head's cells of one page; how many of its positions count. */
struct gw_block_page {
    const uint8_t *k, *v;
    int from, end, fresh; /* fresh: the new position, or -1 */

    __device__ inline void open(const gw_attend_params &p, const gw_span &span,
                                const int32_t *table, int page, int g, int tile_bytes) {
        const size_t at = ((size_t)table[page] * p.kv_heads + g) * (size_t)tile_bytes;
        const int base = page * GW_PAGE;
        k = (const uint8_t *)p.k + at;
        v = (const uint8_t *)p.v + at;
        from = span.lo > base ? span.lo - base : 0;
        end = span.pos - base + 1 < GW_PAGE ? span.pos - base + 1 : GW_PAGE;
        fresh = page == span.last ? span.pos - base : -1;
    }
};

/* ---- the new position ------------------------------------------------------------------------ */

/* A head's new cells -> the cache, every stride-th place from `at` on; scales alike. */
template <class CELLS>
__device__ static inline void store_cells(const uint8_t *fresh, uint8_t *tile, int e, int at,
                                          int stride, int scale_at, int scale_stride) {
    typedef typename CELLS::put::cell cell;
#pragma unroll 1
    for (int i = gw_lane(); i < e; i += GW_LANES) {
        ((cell *)tile)[at + i * stride] = ((const cell *)fresh)[i];
    }
    gw_u16 *scales = (gw_u16 *)(tile + GW_PAGE * e * CELLS::BYTES);
#pragma unroll 1
    for (int b = gw_lane(); CELLS::SCALED && b < e / 32; b += GW_LANES) {
        scales[scale_at + b * scale_stride] = ((const gw_u16 *)(fresh + 4 * e))[b];
    }
}

/* Floats of k or v -> cells, and the values those cells have. */
template <class CELLS>
__device__ static inline void make_cells(const gw_attend_params &p, uint8_t *cells, float *values,
                                         const float *from, const float *norm, int turns, int pos) {
#pragma unroll 1
    for (int i = gw_lane(); i < p.e; i += GW_LANES) {
        ((float *)cells)[i] = from[i];
    }
    gw_sync_team();
    if (turns) {
        turn_heads<1>(p.turn, (gw_f32s<1> *)cells, norm, pos);
    }
    narrow_head<CELLS>(cells, p.e);
#pragma unroll 1
    for (int i = gw_lane(); i < p.e; i += GW_LANES) {
        float x;
        CELLS::template read<1>(cells, i, &x);
        if (CELLS::SCALED) {
            float scale;
            gw_cells_f16::read<1>(cells + 4 * p.e, i / 32, &scale);
            x = scale * x;
        }
        values[i] = x;
    }
}

/* q, and the new position's k and v, each by a team of its own; the first head of a group stores.
 */
template <class CELLS>
__device__ static inline void turn_all(const gw_attend_params &p, const gw_desk &d, int h,
                                       const gw_block_page &last, int pos) {
    const int team = gw_team(), e = p.e, j = pos % GW_PAGE, group = p.heads / p.kv_heads;
    const int g = h / group, stores = h % group == 0;
    const float *in = p.turn.in;
    if (team == 0) {
#pragma unroll 1
        for (int i = gw_lane(); i < e; i += GW_LANES) {
            d.q[i] = in[(size_t)h * e + i];
        }
        turn_heads<1>(p.turn, (gw_f32s<1> *)d.q, p.turn.q_norm, pos);
#pragma unroll 1
        for (int i = gw_lane(); i < e; i += GW_LANES) {
            p.turn.out[(size_t)h * e + i] = d.q[i];
        }
    } else if (team == 1) {
        make_cells<CELLS>(p, d.k_cells, d.k, in + (size_t)(p.heads + g) * e, p.turn.k_norm, 1, pos);
        if (stores) {
            store_cells<CELLS>(d.k_cells, (uint8_t *)last.k, e, j, GW_PAGE, j, GW_PAGE);
        }
    } else if (team == 2) {
        make_cells<CELLS>(p, d.v_cells, d.v, in + (size_t)(p.heads + p.kv_heads + g) * e, 0, 0,
                          pos);
        if (stores) {
            store_cells<CELLS>(d.v_cells, (uint8_t *)last.v, e, j * e, 1, j * (e / 32), 1);
        }
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* The chain over the head's values for position j of a page. */
template <class CELLS>
__device__ static inline float score(const gw_desk &d, const gw_block_page &page, int e, int j) {
    const uint8_t *scales = page.k + GW_PAGE * e * CELLS::BYTES;
    const int fresh = j == page.fresh;
    float s = 0.0f, scale = 0.0f;
#pragma unroll 1
    for (int i0 = 0; i0 < e; i0 += BATCH) {
        float x[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            x[i] = 0.0f;
            if (i0 + i < e) {
                CELLS::template read<1>(page.k, (i0 + i) * GW_PAGE + j, &x[i]);
            }
        }
        if (CELLS::SCALED && i0 % 32 == 0) {
            gw_cells_f16::read<1>(scales, i0 / 32 * GW_PAGE + j, &scale);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i += 4) {
            if (i0 + i < e) { /* e is a multiple of 4 */
                const gw_f32s<4> q = *(const gw_f32s<4> *)(d.q + i0 + i);
                const gw_f32s<4> k = *(const gw_f32s<4> *)(d.k + i0 + i);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    const float old = CELLS::SCALED ? scale * x[i + c] : x[i + c];
                    s = GW_FMA(q.v[c], fresh ? k.v[c] : old, s);
                }
            }
        }
    }
    return s;
}

/* Scores of a page -> weights, in place; its top and sum. */
GW_DEVICE void weigh_page(float *weight, const gw_block_page &page, float scale, float *top_out,
                          float *sum_out) {
    const int lane = gw_lane(), j = 2 * lane;
    float s[2], best = minus_infinity();
#pragma unroll
    for (int c = 0; c < 2; c++) {
        s[c] = weight[j + c] * scale;
        best = j + c >= page.from && j + c < page.end && s[c] > best ? s[c] : best;
    }
    const float top = team_top(best);
#pragma unroll
    for (int c = 0; c < 2; c++) {
        s[c] = j + c >= page.from && j + c < page.end ? gw_exp(s[c] - top) : 0.0f;
        weight[j + c] = s[c];
        s[c] = gw_fold(s[c]);
    }
    if (lane == 0) {
        *top_out = top;
        *sum_out = s[0] + s[1];
    }
}

/* The chain over a page's positions for value i of the head. */
template <class CELLS>
__device__ static inline float mix(const gw_desk &d, const float *weight, const gw_block_page &page,
                                   int e, int i) {
    const uint8_t *scales = page.v + GW_PAGE * e * CELLS::BYTES;
    float o = 0.0f;
#pragma unroll 1
    for (int j0 = page.from; j0 < page.end; j0 += BATCH) {
        float x[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            x[j] = 0.0f;
            if (j0 + j < page.end) {
                CELLS::template read<1>(page.v, (j0 + j) * e + i, &x[j]);
                if (CELLS::SCALED) {
                    float scale;
                    gw_cells_f16::read<1>(scales, (j0 + j) * (e / 32) + i / 32, &scale);
                    x[j] = scale * x[j];
                }
            }
        }
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            if (j0 + j < page.end) {
                o = GW_FMA(weight[j0 + j], j0 + j == page.fresh ? d.v[i] : x[j], o);
            }
        }
    }
    return o;
}

/* Pages in order, a thread per value of the head. */
GW_DEVICE void join_pages(const gw_attend_params &p, const gw_desk &d, int h, int pages) {
    const int i = (int)threadIdx.x;
    if (i - gw_lane() >= p.e) {
        return; /* whole teams */
    }
    float best = minus_infinity(), o = 0.0f, total = 0.0f;
#pragma unroll 1
    for (int page = 0; page < pages; page++) {
        best = larger(best, d.top[page]);
    }
#pragma unroll 1
    for (int page = 0; page < pages; page++) {
        const float w = gw_exp(d.top[page] - best);
        total = GW_FMA(d.sum[page], w, total);
        o = GW_FMA(i < p.e ? d.values[page * p.e + i] : 0.0f, w, o);
    }
    o = o / total;
    const size_t to = (size_t)h * p.e + i;
    if (p.act8) {
        gw_team_encode((gw_act8 *)p.out + to / GW_ACT_BLOCK, o);
    } else if (i < p.e) {
        ((float *)p.out)[to] = o;
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* What will be read from the caches, while the product before this is still at work. */
GW_DEVICE void fetch_pages(const gw_block_page &page, int bytes) {
#pragma unroll 1
    for (int b = 128 * gw_lane(); b < bytes; b += 128 * GW_LANES) {
        gw_prefetch(page.k + b);
        gw_prefetch(page.v + b);
    }
}

template <class CELLS> __device__ static inline void attend(const gw_attend_params &p) {
    GW_SHARED_DYNAMIC(uint8_t, shared);
    gw_grid_launch_dependents();
    const int h = (int)blockIdx.x, g = h / (p.heads / p.kv_heads), team = gw_team(), e = p.e;
    const gw_span span = span_of(p.step, 0, p.window);
    const int32_t *table = p.pages + (size_t)gw_step_slot(p.step, 0) * p.table_stride;
    const int pages = span.last - span.first + 1;
    const int tile_bytes = GW_PAGE * e * CELLS::BYTES + p.scale_bytes;
    const gw_desk d(shared, e, pages);
    gw_block_page page;
#pragma unroll 1
    for (int n = team; n < pages; n += TEAMS) {
        page.open(p, span, table, span.first + n, g, tile_bytes);
        fetch_pages(page, tile_bytes);
    }
    gw_grid_dependency_wait();
    if (gw_live(p.step) < 1) {
        return;
    }
    page.open(p, span, table, span.last, g, tile_bytes);
    turn_all<CELLS>(p, d, h, page, span.pos);
    __syncthreads();
#pragma unroll 1
    for (int n = team; n < pages * HALVES; n += TEAMS) {
        const int j = n % HALVES * GW_LANES + gw_lane();
        page.open(p, span, table, span.first + n / HALVES, g, tile_bytes);
        d.weight[n / HALVES * GW_PAGE + j] = score<CELLS>(d, page, e, j);
    }
    __syncthreads();
#pragma unroll 1
    for (int n = team; n < pages; n += TEAMS) {
        page.open(p, span, table, span.first + n, g, tile_bytes);
        weigh_page(d.weight + n * GW_PAGE, page, p.scale, d.top + n, d.sum + n);
    }
    __syncthreads();
    const int slices = (e + GW_LANES - 1) / GW_LANES;
#pragma unroll 1
    for (int n = team; n < pages * slices; n += TEAMS) {
        const int i = n % slices * GW_LANES + gw_lane(), at = n / slices;
        page.open(p, span, table, span.first + at, g, tile_bytes);
        if (i < e) {
            d.values[at * e + i] = mix<CELLS>(d, d.weight + at * GW_PAGE, page, e, i);
        }
    }
    __syncthreads();
    join_pages(p, d, h, pages);
}

#define KERNEL(format)                                                                             \
    GW_KERNEL(gw_attend_block_##format, struct gw_attend_params, GW_BLOCK_THREADS) {               \
        attend<gw_cells_##format>(p);                                                              \
    }
KERNEL(f16)
KERNEL(f32)
KERNEL(q8_0)
