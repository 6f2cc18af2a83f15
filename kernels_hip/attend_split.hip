/* kernels_hip/attend_split.hip - ATTENTION over more pages than one block should have: blocks share
 * the pages of a row and KV head, and the one that comes last joins them. A block has all query
 * heads of the KV head, so that a tile of K or V is read once, and keeps on its way what it needs
 * next: V of the pages whose scores it makes, then K of the pages behind. A team has a page and a
 * head. The bits are those of attention.hip.
 */
#include "kernels_hip/attend_tile.h"

/* Where the block has what, before it joins. */
struct gw_desk {
    float *q, *k, *v;           /* [heads, e]: queries; [e]: the new position's k and v   */
    float *angle;               /* [rope_dim]: of the new position                        */
    uint8_t *k_cells, *v_cells; /* its cells, scales behind e floats                      */
    float *weight;              /* [at_once, heads, 64]                                   */
    uint8_t *k_tiles, *v_tiles; /* [at_once]                                              */

    template <class CELLS>
    __device__ static inline gw_desk at(uint8_t *shared, const gw_attend_params &p, int at_once) {
        const int cells = GW_BLOCK_CELLS(p.e);
        gw_desk d;
        d.q = (float *)shared;
        d.k = d.q + p.block_has * p.e;
        d.v = d.k + p.e;
        d.angle = d.v + p.e;
        d.k_cells = (uint8_t *)(d.angle + p.e);
        d.v_cells = d.k_cells + 4 * cells;
        d.weight = (float *)(d.v_cells + 4 * cells);
        d.k_tiles = shared + GW_SPLIT_DESK(p.e, p.block_has, at_once);
        d.v_tiles = d.k_tiles + at_once * tile_bytes<CELLS>(p);
        return d;
    }
};

/* What a block works at. Pages are counted from its first one on. */
struct gw_split_work {
    int row, g, head, heads; /* g: KV head; head: the first of `heads` query heads         */
    int part;                /* which part of the KV head's query heads                    */
    int pages, blocks;       /* of the row: all of them, and how many blocks share them    */
    int first, n, at_once;   /* the block's; how many of them a round takes                */
    int turns, fresh;        /* ROPE_KV comes with it; and it has the new position      */
    gw_span span;
    int tiles[2]; /* of the caches: those of the block's pages `lane` and `lane` + 32 */

    __device__ inline void open(const gw_attend_params &p) {
        const int group = p.heads / p.kv_heads, parts = (int)gridDim.z / p.kv_heads;
        row = (int)blockIdx.y;
        g = parts == 1 ? (int)blockIdx.z : (int)blockIdx.z / parts;
        part = (int)blockIdx.z - g * parts;
        head = g * group + part * p.block_has;
        heads = group - part * p.block_has;
        heads = heads < p.block_has ? heads : p.block_has;
        turns = p.turn.in != 0;
        span = span_of(p.step, row, p.window);
        pages = span.last - span.first + 1;
        const int each = (pages + (int)gridDim.x - 1) / (int)gridDim.x;
        blocks = (pages + each - 1) / each;
        first = (int)blockIdx.x * each;
        n = pages - first < each ? pages - first : each;
        at_once = p.slots / 2;
        fresh = turns && first + n == pages;
        const int32_t *table =
            p.pages + (size_t)gw_step_slot(p.step, row) * p.table_stride + span.first + first;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int page = k * GW_LANES + gw_lane();
            tiles[k] = page < n ? table[page] * p.kv_heads + g : 0;
        }
    }
    /* Of a page, in the caches; for whole teams. */
    __device__ inline size_t tile_of(int page) const {
        return (size_t)gw_shuffle(page < GW_LANES ? tiles[0] : tiles[1], page % GW_LANES);
    }
    /* Positions [from, end) of a page count. */
    __device__ inline int from(int page) const {
        const int base = (span.first + first + page) * GW_PAGE;
        return span.lo > base ? span.lo - base : 0;
    }
    __device__ inline int end(int page) const {
        const int base = (span.first + first + page) * GW_PAGE;
        return span.pos - base + 1 < GW_PAGE ? span.pos - base + 1 : GW_PAGE;
    }
    /* The new position's page. */
    __device__ inline int is_fresh(int page) const { return fresh && page == n - 1; }
    /* Of a head in p.parts, the row's first page. */
    __device__ inline size_t place(const gw_attend_params &p, int h) const {
        return ((size_t)row * p.heads + head + h) * p.parts.page_stride + span.first;
    }
};

/* Pages [from, end) of K or V, those of a round that begins at page `base`. */
template <class CELLS>
__device__ static inline void fetch_pages(const gw_attend_params &p, const gw_split_work &w,
                                          const void *cache, uint8_t *tiles, int base, int from,
                                          int end) {
    const int bytes = tile_bytes<CELLS>(p);
    const int last = base + w.at_once < end ? base + w.at_once : end;
    for (int page = from > base ? from : base; page < last; page++) {
        fetch_tile(tiles + (page - base) * bytes,
                   (const uint8_t *)cache + w.tile_of(page) * (size_t)bytes, bytes);
    }
}

/* ---- the new position ------------------------------------------------------------------------ */

/* The queries, and with ROPE_KV the new position's k and v, each by a team. */
template <class CELLS>
__device__ static inline void take_row(const gw_attend_params &p, const gw_desk &d,
                                       const gw_split_work &w, float angle) {
    const int e = p.e, n = w.heads + 2 * w.fresh;
    const size_t at = ((size_t)w.row * p.heads + w.head) * e;
#pragma unroll 1
    for (int h = gw_team(); h < n; h += teams()) {
        const int kv = p.heads + (h - w.heads) * p.kv_heads + w.g;
        float *to = h < w.heads ? d.q + h * e : h == w.heads ? d.k : d.v;
        read_head(to,
                  w.turns ? p.turn.in + (h < w.heads ? at + h * e : (size_t)kv * e)
                          : p.q + at + h * e,
                  e);
    }
    if (!w.turns) {
        return;
    }
    if ((int)threadIdx.x < p.turn.rope_dim) {
        d.angle[threadIdx.x] = angle;
    }
    __syncthreads();
#pragma unroll 1
    for (int h = gw_team(); h < n; h += teams()) {
        if (h <= w.heads) {
            float *head = h < w.heads ? d.q + h * e : d.k;
            turn_heads<1>(p.turn, (gw_f32s<1> *)head, h < w.heads ? p.turn.q_norm : p.turn.k_norm,
                          d.angle);
        }
        if (h >= w.heads) {
            make_cells<CELLS>(h == w.heads ? d.k_cells : d.v_cells, h == w.heads ? d.k : d.v, e);
        }
    }
}

/* What the row leaves behind: queries, and its cells by the first tile of heads. */
template <class CELLS>
__device__ static inline void keep_row(const gw_attend_params &p, const gw_desk &d,
                                       const gw_split_work &w) {
    const int e = p.e, j = w.span.pos % GW_PAGE, team = gw_team();
    const size_t at = w.tile_of(w.n - 1) * (size_t)tile_bytes<CELLS>(p);
    if (team == teams() - 1 && w.part == 0) {
        store_k<CELLS>(d.k_cells, (uint8_t *)p.k + at, e, j);
    } else if (team == teams() - 2 && w.part == 0) {
        store_cells<CELLS>(d.v_cells, (uint8_t *)p.v + at, e, j * e, 1, j * (e / 32), 1);
    }
    for (int i = (int)threadIdx.x; i < w.heads * e; i += (int)blockDim.x) {
        p.turn.out[(size_t)w.head * e + i] = d.q[i];
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Scores of positions 2 lane and 2 lane + 1 of a page, of which [from, end) are seen; what softmax
 * makes of them to weight [64]. Its maximum and sum in every lane; a team. */
template <class CELLS>
__device__ static inline void weigh_page(const gw_attend_params &p, const float *q,
                                         const uint8_t *tile, int from, int end, float *weight,
                                         float *page_top, float *page_sum) {
    const int j = 2 * gw_lane(), e = p.e;
    const uint8_t *scales = tile + GW_PAGE * e * CELLS::BYTES;
    float s[2] = {0.0f, 0.0f}, scale[2] = {0.0f, 0.0f}, best = minus_infinity();
    int i = 0;
#pragma unroll 1
    for (; i + BATCH <= e; i += BATCH) {
        if (CELLS::SCALED && i % 32 == 0) {
            gw_cells_f16::read<2>(scales, i / 32 * GW_PAGE + j, scale);
        }
#pragma unroll
        for (int c = 0; c < BATCH; c += 4) {
            score_four<CELLS>(q, tile, i + c, j, scale, s);
        }
    }
#pragma unroll 1
    for (; i < e; i += 4) { /* a scaled head has whole blocks of 32 */
        score_four<CELLS>(q, tile, i, j, scale, s);
    }
#pragma unroll
    for (int c = 0; c < 2; c++) {
        s[c] = s[c] * p.scale;
        best = j + c >= from && j + c < end && s[c] > best ? s[c] : best;
    }
    const float top = team_top(best);
#pragma unroll
    for (int c = 0; c < 2; c++) {
        s[c] = j + c >= from && j + c < end ? gw_exp(s[c] - top) : 0.0f;
        weight[j + c] = s[c];
        s[c] = gw_fold(s[c]);
    }
    *page_top = top;
    *page_sum = s[0] + s[1];
}

/* Values i and i + 1 of positions [from, end) of a page. fresh: cells of its last position, which
 * is not in the tile then; else NULL. */
template <class CELLS>
__device__ static inline void mix_page(int e, const uint8_t *tile, const uint8_t *fresh,
                                       const float *weight, int from, int end, int i, float *o) {
    const uint8_t *scales = tile + GW_PAGE * e * CELLS::BYTES;
    int j = from;
    o[0] = o[1] = 0.0f;
    end -= fresh != 0;
#pragma unroll 1
    for (; j + BATCH / 2 <= end; j += BATCH / 2) {
#pragma unroll
        for (int c = 0; c < BATCH / 2; c++) {
            mix_one<CELLS>(tile, (j + c) * e + i, scales, (j + c) * (e / 32) + i / 32,
                           weight[j + c], o);
        }
    }
#pragma unroll 1
    for (; j < end; j++) {
        mix_one<CELLS>(tile, j * e + i, scales, j * (e / 32) + i / 32, weight[j], o);
    }
    if (fresh) {
        mix_one<CELLS>(fresh, i, fresh + 4 * e, i / 32, weight[j], o);
    }
}

/* The scores of pages [base, end) for every head, a team each. */
template <class CELLS>
__device__ static inline void do_k(const gw_attend_params &p, const gw_desk &d,
                                   const gw_split_work &w, int base, int end) {
    const int bytes = tile_bytes<CELLS>(p);
    if (w.is_fresh(end - 1)) {
        if (gw_team() == 0) {
            store_k<CELLS>(d.k_cells, d.k_tiles + (end - 1 - base) * bytes, p.e,
                           w.span.pos % GW_PAGE);
        }
        __syncthreads();
    }
    for (int page = base, h = gw_team();; h += teams()) {
        for (; h >= w.heads; h -= w.heads) {
            page++;
        }
        if (page >= end) {
            break;
        }
        float top, sum;
        weigh_page<CELLS>(p, d.q + h * p.e, d.k_tiles + (page - base) * bytes, w.from(page),
                          w.end(page), d.weight + ((page - base) * w.heads + h) * GW_PAGE, &top,
                          &sum);
        if (gw_lane() == 0) {
            p.parts.top[w.place(p, h) + w.first + page] = top;
            p.parts.sum[w.place(p, h) + w.first + page] = sum;
        }
    }
    if (w.is_fresh(end - 1)) {
        keep_row<CELLS>(p, d, w);
    }
}

/* The sums of their values, a team for 64 of a head. */
template <class CELLS>
__device__ static inline void do_v(const gw_attend_params &p, const gw_desk &d,
                                   const gw_split_work &w, int base, int end) {
    enum { WIDE = 2 * GW_LANES };
    const int slices = (p.e + WIDE - 1) / WIDE, across = w.heads * slices;
    for (int page = base, unit = gw_team();; unit += teams()) {
        for (; unit >= across; unit -= across) {
            page++;
        }
        if (page >= end) {
            break;
        }
        const int h = unit / slices, i = (unit - h * slices) * WIDE + 2 * gw_lane();
        if (i < p.e) {
            gw_f32s<2> o;
            mix_page<CELLS>(p.e, d.v_tiles + (page - base) * tile_bytes<CELLS>(p),
                            w.is_fresh(page) ? d.v_cells : (const uint8_t *)0,
                            d.weight + ((page - base) * w.heads + h) * GW_PAGE, w.from(page),
                            w.end(page), i, o.v);
            *(gw_f32s<2> *)(p.parts.values + (w.place(p, h) + w.first + page) * p.parts.e_padded +
                            i) = o;
        }
    }
}

/* ---- the join -------------------------------------------------------------------------------- */

/* The block is done. True for the whole block when it was the last one of its row and heads; what
 * the others left in p.parts can then be read. */
GW_DEVICE int comes_last(const struct gw_attend_params &p, const gw_split_work &w) {
    __shared__ int last;
    gw_fence_block();
    if (threadIdx.x == 0) { /* the last one leaves 0 behind */
        const unsigned all = (unsigned)w.blocks;
        last = atomicInc(p.arrived + (size_t)w.row * p.heads + w.head, all - 1) == all - 1;
    }
    gw_fence_block();
    return last;
}

/* Pages in order, a thread per value of a head; as many heads at once as find room. */
template <class CELLS>
__device__ static inline void join_pages(const gw_attend_params &p, const gw_split_work &w,
                                         float *shared) {
    const int pages = w.pages, e = p.e, n = w.heads * pages, wide = pages * p.parts.e_padded;
    const int lane = gw_lane(), before = (2 * n + w.heads + 3) / 4 * 4;
    const int all = (GW_SPLIT_DESK(e, p.block_has, w.at_once) + p.slots * tile_bytes<CELLS>(p)) / 4;
    float *share = shared, *sum = share + n, *total = sum + n, *values = shared + before;
    int fit = 1;
    while (fit < w.heads && before + (fit + 1) * wide <= all) {
        fit++;
    }
    for (int h0 = 0; h0 < w.heads; h0 += fit) {
        const int heads = w.heads - h0 < fit ? w.heads - h0 : fit;
#pragma unroll 1
        for (int h = 0; h < heads; h++) {
            const float *from = p.parts.values + w.place(p, h0 + h) * (size_t)p.parts.e_padded;
#pragma unroll 4
            for (int i = 4 * (int)threadIdx.x; i < wide; i += 4 * (int)blockDim.x) {
                gw_copy_async(values + h * wide + i, from + i);
            }
        }
        gw_copy_commit();
        for (int h = gw_team(); h0 == 0 && h < w.heads; h += teams()) {
            const size_t at = w.place(p, h);
            float best = minus_infinity(), sums = 0.0f;
#pragma unroll 2
            for (int page = lane; page < pages; page += GW_LANES) {
                const float top = p.parts.top[at + page];
                share[h * pages + page] = top;
                sum[h * pages + page] = p.parts.sum[at + page];
                best = larger(best, top);
            }
            best = team_top(best);
            for (int page = lane; page < pages; page += GW_LANES) {
                share[h * pages + page] = gw_exp(share[h * pages + page] - best);
            }
            gw_sync_team();
#pragma unroll 4
            for (int page = 0; page < pages; page++) {
                sums = GW_FMA(sum[h * pages + page], share[h * pages + page], sums);
            }
            if (lane == 0) {
                total[h] = sums;
            }
        }
        gw_copy_wait<0>();
        __syncthreads();
        for (int t = (int)threadIdx.x; t - lane < heads * e; t += (int)blockDim.x) {
            const int h = t / e, i = t - h * e, there = h < heads;
            const float *v = values + (there ? h * wide + i : 0);
            const float *weight = share + (there ? (h0 + h) * pages : 0);
            float o = 0.0f;
#pragma unroll 4
            for (int page = 0; page < pages; page++) {
                o = GW_FMA(v[page * p.parts.e_padded], weight[page], o);
            }
            o = o / total[there ? h0 + h : 0];
            const size_t to = ((size_t)w.row * p.heads + w.head + h0 + h) * e + i;
            if (p.act8) { /* heads are whole teams then */
                gw_team_encode((gw_act8 *)p.out + to / GW_ACT_BLOCK, o);
            } else if (there) {
                ((float *)p.out)[to] = o;
            }
        }
        __syncthreads();
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <class CELLS> __device__ static inline void attend(const gw_attend_params &p) {
    GW_SHARED_DYNAMIC(uint8_t, shared);
    gw_grid_launch_dependents();
    gw_split_work w;
    w.open(p);
    if (gw_live(p.step) <= w.row) {
        gw_grid_dependency_wait(); /* later kernels rely on this one for those before it */
        return;
    }
    if (w.n <= 0) {
        return; /* the row's first block waits */
    }
    const gw_desk d = gw_desk::at<CELLS>(shared, p, w.at_once);
    /* Cells that no launch of this pass writes are read before the wait: attend_block.hip. */
    const int old =
        w.turns ? w.n : (w.span.pos + 1 - p.step.rows) / GW_PAGE - w.span.first - w.first;
    const int early = old < 0 ? 0 : old < w.n ? old : w.n;
    float angle = 0.0f; /* of the new position; no more of them than threads */
    if (w.turns && (int)threadIdx.x < p.turn.rope_dim) {
        angle = p.turn.table[(size_t)w.span.pos * p.turn.rope_dim + threadIdx.x];
    }
    fetch_pages<CELLS>(p, w, p.k, d.k_tiles, 0, 0, early);
    if (early >= w.at_once || early == w.n) { /* the round's are all under way */
        gw_copy_commit();
        fetch_pages<CELLS>(p, w, p.v, d.v_tiles, 0, 0, early);
        gw_grid_dependency_wait();
    } else {
        gw_grid_dependency_wait();
        fetch_pages<CELLS>(p, w, p.k, d.k_tiles, 0, early, w.n);
        gw_copy_commit();
        fetch_pages<CELLS>(p, w, p.v, d.v_tiles, 0, 0, w.n);
    }
    gw_copy_commit();
    take_row<CELLS>(p, d, w, angle);
    for (int base = 0; base < w.n; base += w.at_once) {
        const int end = base + w.at_once < w.n ? base + w.at_once : w.n;
        gw_copy_wait<1>(); /* of V in the first round, of nothing later */
        __syncthreads();
        if (base > 0) {
            fetch_pages<CELLS>(p, w, p.v, d.v_tiles, base, 0, w.n);
            gw_copy_commit();
        }
        do_k<CELLS>(p, d, w, base, end);
        gw_copy_wait<0>();
        __syncthreads();
        fetch_pages<CELLS>(p, w, p.k, d.k_tiles, end, 0, w.n);
        gw_copy_commit();
        gw_copy_commit(); /* an empty one, so that the next round waits for K */
        do_v<CELLS>(p, d, w, base, end);
    }
    gw_copy_wait<0>();
    if (comes_last(p, w)) {
        join_pages<CELLS>(p, w, (float *)shared);
    }
}

#define KERNEL(format)                                                                             \
    GW_KERNEL(gw_attend_split_##format, struct gw_attend_params, GW_SPLIT_THREADS) {               \
        attend<gw_cells_##format>(p);                                                              \
    }
KERNEL(f16)
KERNEL(f32)
KERNEL(q8_0)
