/* kernels_hip/attend_block.hip - ATTENTION over few pages: a block has a row and a query head and
 * keeps everything in shared memory. Where pages are few the work of one team is a long chain of
 * instructions and of waits, and little else counts. So the tiles of K and V are asked for before
 * anything else (with ROPE_KV in front of it, while the product before still runs), come all at
 * once, and each part of the work is cut as finely as the arithmetic allows: a lane has two
 * positions of a page while scores are made and two values of the head while pages are summed. The
 * bits are those of attention.hip.
 */
#include "kernels_hip/attend_tile.h"

/* Where the block has what. */
struct gw_desk {
    float *q, *k, *v;           /* [e]: query; the new position's k and v              */
    float *angle;               /* [rope_dim]: of the new position                     */
    uint8_t *k_cells, *v_cells; /* its cells, scales behind e floats                   */
    float *weight;              /* [pages, 64], and of a page:                         */
    float *values;              /* [pages, e]                                          */
    float *top, *sum, *share;   /* [pages]                                             */
    float *total;
    uint8_t *tiles; /* [slots]: of K or V, one after the other                         */

    __device__ inline gw_desk(uint8_t *shared, int e, int pages) {
        const int cells = GW_BLOCK_CELLS(e);
        q = (float *)shared;
        k = q + e;
        v = k + e;
        angle = v + e;
        k_cells = (uint8_t *)(angle + e);
        v_cells = k_cells + 4 * cells;
        weight = (float *)(v_cells + 4 * cells);
        values = weight + pages * GW_PAGE;
        top = values + pages * e;
        sum = top + pages;
        share = sum + pages;
        total = share + pages;
        tiles = shared + GW_BLOCK_DESK(e, pages);
    }
};

/* What a block works at. */
struct gw_block_work {
    int row, head, g; /* g: KV head */
    int turns;        /* ROPE_KV comes with it */
    gw_span span;
    int pages, rounds; /* rounds of K, of as many pages as half of the slots hold; as many of V */
    int at_once;
    const int32_t *table; /* from the first page on */

    __device__ inline void open(const gw_attend_params &p) {
        row = (int)blockIdx.y;
        g = (int)blockIdx.z;
        head = g * (int)gridDim.x + (int)blockIdx.x;
        turns = p.turn.in != 0;
        span = span_of(p.step, row, p.window);
        pages = span.last - span.first + 1;
        at_once = p.slots / 2;
        for (rounds = 1; rounds * at_once < pages; rounds++) { /* divisions take longer */
        }
        table = p.pages + (size_t)gw_step_slot(p.step, row) * p.table_stride + span.first;
    }
    __device__ inline int first_of(int round) const { /* round: less than twice as many */
        return (round < rounds ? round : round - rounds) * at_once;
    }
    __device__ inline int end_of(int round) const {
        const int end = first_of(round) + at_once;
        return end < pages ? end : pages;
    }
    /* Positions [from, end) of a page count. */
    __device__ inline int from(int page) const {
        const int base = (span.first + page) * GW_PAGE;
        return span.lo > base ? span.lo - base : 0;
    }
    __device__ inline int end(int page) const {
        const int base = (span.first + page) * GW_PAGE;
        return span.pos - base + 1 < GW_PAGE ? span.pos - base + 1 : GW_PAGE;
    }
};

/* ---- pages on their way ---------------------------------------------------------------------- */

/* Where a page's tile is in its round: rounds take one half of the slots and the other in turns. */
template <class CELLS>
__device__ static inline uint8_t *tile_of(const gw_attend_params &p, const gw_desk &d,
                                          const gw_block_work &w, int round, int page) {
    return d.tiles + (round % 2 * w.at_once + page - w.first_of(round)) * tile_bytes<CELLS>(p);
}

/* The tiles of a round, first K's and then V's; of its pages those in [from, end). */
template <class CELLS>
__device__ static inline void fetch_round(const gw_attend_params &p, const gw_desk &d,
                                          const gw_block_work &w, int round, int from, int end) {
    const int bytes = tile_bytes<CELLS>(p);
    const uint8_t *cache = (const uint8_t *)(round < w.rounds ? p.k : p.v);
    const int first = w.first_of(round), last = w.end_of(round);
    for (int page = from > first ? from : first; page < (end < last ? end : last); page++) {
        uint8_t *to = tile_of<CELLS>(p, d, w, round, page);
        const uint8_t *tile = cache + ((size_t)w.table[page] * p.kv_heads + w.g) * (size_t)bytes;
        fetch_tile(to, tile, bytes);
    }
}

/* ---- the new position ------------------------------------------------------------------------ */

/* The query, and with ROPE_KV the new position's k and v, each by a team of its own. */
template <class CELLS>
__device__ static inline void take_row(const gw_attend_params &p, const gw_desk &d,
                                       const gw_block_work &w, float angle) {
    const int team = gw_team(), e = p.e;
    if (!w.turns) {
        if (team == 0) {
            read_head(d.q, p.q + ((size_t)w.row * p.heads + w.head) * e, e);
        }
        return;
    }
    if (team < 3) {
        const int head = team == 0 ? w.head : p.heads + (team == 1 ? 0 : p.kv_heads) + w.g;
        read_head(d.q + team * e, p.turn.in + (size_t)head * e, e); /* q, k and v in a row */
    }
    if ((int)threadIdx.x < p.turn.rope_dim) {
        d.angle[threadIdx.x] = angle;
    }
    __syncthreads();
    if (team == 0) {
        turn_heads<1>(p.turn, (gw_f32s<1> *)d.q, p.turn.q_norm, d.angle);
    } else if (team == 1) {
        turn_heads<1>(p.turn, (gw_f32s<1> *)d.k, p.turn.k_norm, d.angle);
        make_cells<CELLS>(d.k_cells, d.k, e);
    } else if (team == 2) {
        make_cells<CELLS>(d.v_cells, d.v, e);
    }
}

/* What the row leaves behind: cells by the first head of a group, and the query. */
template <class CELLS>
__device__ static inline void keep_row(const gw_attend_params &p, const gw_desk &d,
                                       const gw_block_work &w) {
    const int team = gw_team(), e = p.e, j = w.span.pos % GW_PAGE;
    const int stores = blockIdx.x == 0;
    const size_t at = ((size_t)w.table[w.pages - 1] * p.kv_heads + w.g) *
                      (size_t)(GW_PAGE * e * CELLS::BYTES + p.scale_bytes);
    if (team == teams() - 1 && stores) {
        store_k<CELLS>(d.k_cells, (uint8_t *)p.k + at, e, j);
    } else if (team == teams() - 2 && stores) {
        store_cells<CELLS>(d.v_cells, (uint8_t *)p.v + at, e, j * e, 1, j * (e / 32), 1);
    } else if (team == teams() - 3) {
#pragma unroll 1
        for (int i = gw_lane(); i < e; i += GW_LANES) {
            p.turn.out[(size_t)w.head * e + i] = d.q[i];
        }
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* The scores of a page, two of a lane, and what softmax makes of them; a team. */
template <class CELLS>
__device__ static inline void weigh_page(const gw_attend_params &p, const gw_desk &d,
                                         const gw_block_work &w, const uint8_t *tile, int page) {
    const int lane = gw_lane(), j = 2 * lane, e = p.e, from = w.from(page), end = w.end(page);
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
            score_four<CELLS>(d.q, tile, i + c, j, scale, s);
        }
    }
#pragma unroll 1
    for (; i < e; i += 4) { /* a scaled head has whole blocks of 32 */
        score_four<CELLS>(d.q, tile, i, j, scale, s);
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
        d.weight[page * GW_PAGE + j + c] = s[c];
        s[c] = gw_fold(s[c]);
    }
    if (lane == 0) {
        d.top[page] = top;
        d.sum[page] = s[0] + s[1];
    }
}

/* Values i and i + 1 of a page. The new position is the last of its chain. */
template <class CELLS>
__device__ static inline void mix_page(const gw_attend_params &p, const gw_desk &d,
                                       const gw_block_work &w, const uint8_t *tile, int page,
                                       int i) {
    const int e = p.e, fresh = w.turns && page == w.pages - 1, end = w.end(page) - fresh;
    const uint8_t *scales = tile + GW_PAGE * e * CELLS::BYTES;
    const float *weight = d.weight + page * GW_PAGE;
    float o[2] = {0.0f, 0.0f};
    int j = w.from(page);
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
        mix_one<CELLS>(d.v_cells, i, d.v_cells + 4 * e, i / 32, weight[j], o);
    }
    const gw_f32s<2> both = {{o[0], o[1]}};
    *(gw_f32s<2> *)(d.values + page * e + i) = both;
}

/* What each page counts for, and the sum of all: a team. */
GW_DEVICE void share_pages(const gw_desk &d, int pages) {
    float best = minus_infinity(), total = 0.0f;
#pragma unroll 1
    for (int page = gw_lane(); page < pages; page += GW_LANES) {
        best = larger(best, d.top[page]);
    }
    best = team_top(best);
#pragma unroll 1
    for (int page = gw_lane(); page < pages; page += GW_LANES) {
        d.share[page] = gw_exp(d.top[page] - best);
    }
    gw_sync_team();
#pragma unroll 1
    for (int page = 0; page < pages; page++) {
        total = GW_FMA(d.sum[page], d.share[page], total);
    }
    if (gw_lane() == 0) {
        *d.total = total;
    }
}

/* Pages in order, a thread per value of the head. */
GW_DEVICE void join_pages(const gw_attend_params &p, const gw_desk &d, const gw_block_work &w) {
    const int i = (int)threadIdx.x;
    if (i - gw_lane() >= p.e) {
        return; /* whole teams */
    }
    float o = 0.0f;
#pragma unroll 1
    for (int page = 0; page < w.pages; page++) {
        o = GW_FMA(i < p.e ? d.values[page * p.e + i] : 0.0f, d.share[page], o);
    }
    o = o / *d.total;
    const size_t to = ((size_t)w.row * p.heads + w.head) * p.e + i;
    if (p.act8) {
        gw_team_encode((gw_act8 *)p.out + to / GW_ACT_BLOCK, o);
    } else if (i < p.e) {
        ((float *)p.out)[to] = o;
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* A round of K: the new position's cells over what came from the cache, then a team per page. */
template <class CELLS>
__device__ static inline void do_k(const gw_attend_params &p, const gw_desk &d,
                                   const gw_block_work &w, int round) {
    const int first = w.first_of(round), end = w.end_of(round), team = gw_team();
    if (w.turns && end == w.pages) {
        if (team == 1) {
            store_k<CELLS>(d.k_cells, tile_of<CELLS>(p, d, w, round, w.pages - 1), p.e,
                           w.span.pos % GW_PAGE);
        }
        __syncthreads();
    }
#pragma unroll 1
    for (int page = first + team; page < end; page += teams()) {
        weigh_page<CELLS>(p, d, w, tile_of<CELLS>(p, d, w, round, page), page);
    }
    if (w.turns && round == 0) {
        keep_row<CELLS>(p, d, w);
    }
}

/* A round of V: a team per page and 64 values of the head; the last team before that sees what
 * pages count for. */
template <class CELLS>
__device__ static inline void do_v(const gw_attend_params &p, const gw_desk &d,
                                   const gw_block_work &w, int round) {
    enum { WIDE = 2 * GW_LANES };
    const int first = w.first_of(round), n = w.end_of(round) - first;
    const int slices = (p.e + WIDE - 1) / WIDE;
    if (round == w.rounds && gw_team() == teams() - 1) {
        share_pages(d, w.pages);
    }
#pragma unroll 1
    for (int unit = gw_team(); unit < n * slices; unit += teams()) {
        const int page = first + unit / slices, i = unit % slices * WIDE + 2 * gw_lane();
        if (i < p.e) {
            mix_page<CELLS>(p, d, w, tile_of<CELLS>(p, d, w, round, page), page, i);
        }
    }
}

template <class CELLS> __device__ static inline void attend(const gw_attend_params &p) {
    GW_SHARED_DYNAMIC(uint8_t, shared);
    gw_grid_launch_dependents();
    gw_block_work w;
    w.open(p); /* asks for what it needs of the step together with how many rows are alive */
    if (gw_live(p.step) <= w.row) {
        gw_grid_dependency_wait(); /* later kernels rely on this one for those before it */
        return;
    }
    const gw_desk d(shared, p.e, w.pages);
    /* Cells that no launch of this pass writes are read before the wait: with ROPE_KV all, for the
     * new one is made here; else pages that end in front of the step's rows. */
    const int old = w.turns ? w.pages : (w.span.pos + 1 - p.step.rows) / GW_PAGE - w.span.first;
    float angle = 0.0f; /* of the new position; no more of them than threads */
    if (w.turns && (int)threadIdx.x < p.turn.rope_dim) {
        angle = p.turn.table[(size_t)w.span.pos * p.turn.rope_dim + threadIdx.x];
    }
    fetch_round<CELLS>(p, d, w, 0, 0, old);
    if (w.turns) {
        gw_copy_commit();
        fetch_round<CELLS>(p, d, w, 1, 0, w.pages);
        gw_copy_commit();
    }
    gw_grid_dependency_wait();
    if (!w.turns) {
        fetch_round<CELLS>(p, d, w, 0, old > 0 ? old : 0, w.pages);
        gw_copy_commit();
        fetch_round<CELLS>(p, d, w, 1, 0, w.pages);
        gw_copy_commit();
    }
    take_row<CELLS>(p, d, w, angle);
#pragma unroll 1
    for (int round = 0; round < 2 * w.rounds; round++) {
        gw_copy_wait<1>();
        __syncthreads();
        if (round < w.rounds) {
            do_k<CELLS>(p, d, w, round);
        } else {
            do_v<CELLS>(p, d, w, round);
        }
        if (round + 2 < 2 * w.rounds) {
            __syncthreads();
            fetch_round<CELLS>(p, d, w, round + 2, 0, w.pages);
        }
        gw_copy_commit();
    }
    __syncthreads();
    join_pages(p, d, w);
}

#define KERNEL(format)                                                                             \
    GW_KERNEL(gw_attend_block_##format, struct gw_attend_params, GW_BLOCK_THREADS) {               \
        attend<gw_cells_##format>(p);                                                              \
    }
KERNEL(f16)
KERNEL(f32)
KERNEL(q8_0)
