/* kernels_hip/attention/attend_block.hip - ATTENTION over few pages: a block has a row and a query
 * head and keeps everything in shared memory. Where pages are few the work of one team is a long
 * chain of instructions and of waits, and little else counts. So the tiles of K and V are asked for
 * before anything else (with ROPE_KV in front of it, while the product before still runs) and come
 * all at once; between q, k and v and the result lie three barriers; and while terms are added to a
 * chain, the next ones are on their way from shared memory. The bits are those of attention.hip.
 */
#include "kernels_hip/attention/attend_leave.h"
#include "kernels_hip/attention/attend_tile.h"

static_assert(GW_BLOCK_PAGES <= GW_PAGE_GROUP && GW_BLOCK_PAGES_NARROW <= GW_PAGE_GROUP,
              "the pages of a row are joined as one group");

/* Where the block has what. */
struct gw_desk {
    float *q;                   /* [e]                                                   */
    uint8_t *k_cells, *v_cells; /* the new position's, scales behind e floats            */
    float *score;               /* [pages, 64]; and of a page:                           */
    float *values;              /* [pages, e]                                            */
    float *top, *sum;           /* [pages]                                               */
    float *weight;              /* [teams, 64]: of the page a team is at                 */
    uint8_t *tiles;             /* [slots]: of K or V, one after the other               */

    __device__ inline gw_desk(uint8_t *shared, int e, int pages) {
        const int cells = GW_BLOCK_CELLS(e);
        q = (float *)shared;
        k_cells = (uint8_t *)(q + e);
        v_cells = k_cells + 4 * cells;
        score = (float *)(v_cells + 4 * cells);
        weight = score + pages * GW_PAGE;
        values = weight + GW_BLOCK_THREADS / GW_LANES * GW_PAGE;
        top = values + pages * e;
        sum = top + pages;
        tiles = shared + GW_BLOCK_DESK(e, pages);
    }
};

/* What a block works at. */
struct gw_block_work {
    int row, head, g; /* g: KV head */
    int turns;        /* ROPE_KV comes with it */
    int lane, team, teams;
    int blocks; /* of a head's values, a value per lane                                 */
    int kept;   /* value of the new v that this thread makes: the last teams do least else */
    gw_span span;
    int pages, rounds; /* rounds of K, of as many pages as half of the slots hold; as many of V */
    int at_once;
    const int32_t *table; /* from the first page on */

    __device__ inline void open(const gw_attend_params &p) {
        row = (int)blockIdx.y;
        g = (int)blockIdx.z;
        head = g * (int)gridDim.x + (int)blockIdx.x;
        turns = p.turn.in != 0;
        lane = (int)(threadIdx.x % GW_LANES); /* of unsigned numbers it is one instruction */
        team = (int)(threadIdx.x / GW_LANES);
        teams = (int)(blockDim.x / GW_LANES);
        blocks = (int)((unsigned)(p.e + GW_LANES - 1) / GW_LANES);
        kept = (teams - 1 - team) * GW_LANES + lane;
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

/* A round that has a place as soon as the one before the last is done with it. */
template <class CELLS>
__device__ static inline void fetch_later(const gw_attend_params &p, const gw_desk &d,
                                          const gw_block_work &w, int round) {
    if (round < 2 * w.rounds) {
        __syncthreads();
        fetch_round<CELLS>(p, d, w, round, 0, w.pages);
    }
    gw_copy_commit();
}

/* ---- the new position ------------------------------------------------------------------------ */

/* A value of the query or of the new position's k on its way through norm and rotation: the lane's
 * of block 0 .. blocks - 1, or of as many more. What no launch of the pass writes is read when it
 * is opened. */
struct gw_turned {
    const float *head, *norm, *from, *from_other;
    int i, is_k, turns; /* i: which value; those from e on are not wanted */
    float c, s, weight, other_weight, x, other_x;

    __device__ inline void open(const gw_attend_params &p, const gw_block_work &w, int block) {
        const int r = w.turns ? p.turn.rope_dim : 0, half = r / 2;
        is_k = block >= w.blocks;
        i = (is_k ? block - w.blocks : block) * GW_LANES + w.lane;
        head = w.turns ? p.turn.in + (size_t)(is_k ? p.heads + w.g : w.head) * p.e
                       : p.q + ((size_t)w.row * p.heads + w.head) * p.e;
        norm = !w.turns ? (const float *)0 : is_k ? p.turn.k_norm : p.turn.q_norm;
        turns = i < r;
        int other = i < p.e ? i : 0; /* what it turns with */
        from = head + other;
        c = s = weight = other_weight = 0.0f;
        if (norm) {
            weight = norm[other];
        }
        if (turns) {
            const int second = p.turn.interleaved ? i & 1 : i >= half;
            const int pair = p.turn.interleaved ? i >> 1 : second ? i - half : i;
            const int at = w.span.pos - gw_step_less(p.step, w.row);
            const float *angle = p.turn.table + (size_t)at * r + pair;
            other = p.turn.interleaved ? i ^ 1 : second ? pair : i + half;
            c = angle[0];
            s = second ? angle[half] : -angle[half];
        }
        if (norm) {
            other_weight = norm[other];
        }
        from_other = head + other;
    }
    __device__ inline void ask(void) {
        x = gw_fresh_float(from);
        other_x = gw_fresh_float(from_other);
    }
    /* The whole team calls it. */
    __device__ inline float value(const gw_attend_params &p, int lane) {
        if (norm) {
            float sum = 0.0f;
#pragma unroll 4
            for (int at = lane; at < p.e; at += GW_LANES) {
                sum = GW_FMA(head[at], head[at], sum);
            }
            const float scale = gw_rms_scale(gw_fold(sum), p.e, p.turn.eps);
            x = (x * scale) * weight;
            other_x = (other_x * scale) * other_weight;
        }
        return turns ? GW_FMA(x, c, other_x * s) : x; /* gw_rope_first, gw_rope_second */
    }
};

/* Where the new k is made: in its tile, or on the desk where that comes in a later round. */
template <class CELLS>
__device__ static inline gw_fresh<CELLS> fresh_k(const gw_attend_params &p, const gw_desk &d,
                                                 const gw_block_work &w) {
    return w.rounds > 1 ? gw_fresh<CELLS>(d.k_cells, p.e)
                        : gw_fresh<CELLS>(tile_of<CELLS>(p, d, w, 0, w.pages - 1), p.e,
                                          w.span.pos % GW_PAGE, 1);
}

/* The query, and with ROPE_KV the new position's k; the team's first block is on its way. */
template <class CELLS>
__device__ static inline void take_row(const gw_attend_params &p, const gw_desk &d,
                                       const gw_block_work &w, gw_turned v) {
    const int blocks = w.turns ? 2 * w.blocks : w.blocks;
    for (int block = w.team; block < blocks;) {
        const float x = v.value(p, w.lane);
        if (v.i < p.e && v.is_k) {
            fresh_k<CELLS>(p, d, w).put_value(v.i, x);
        } else if (v.i < p.e) {
            d.q[v.i] = x;
        }
        block += w.teams;
        if (block < blocks) {
            v.open(p, w, block);
            v.ask();
        }
    }
}

/* The new position's v; and what the row leaves behind: cells by the first head of a group, and the
 * query. */
template <class CELLS>
__device__ static inline void keep_row(const gw_attend_params &p, const gw_desk &d,
                                       const gw_block_work &w, float x) {
    const int e = p.e, i = w.kept, j = w.span.pos % GW_PAGE;
    if (i >= e) {
        return;
    }
    const gw_fresh<CELLS> v(d.v_cells, e);
    v.put_value(i, x);
    p.turn.out[(size_t)w.head * e + i] = d.q[i];
    if (blockIdx.x == 0) {
        const size_t at = ((size_t)w.table[w.pages - 1] * p.kv_heads + w.g) *
                          (size_t)(GW_PAGE * e * CELLS::BYTES + p.scale_bytes);
        gw_fresh<CELLS>((uint8_t *)p.k + at, e, j, 1).copy_value(fresh_k<CELLS>(p, d, w), i);
        gw_fresh<CELLS>((uint8_t *)p.v + at, e, j, 0).copy_value(v, i);
    }
}

/* ---- the join -------------------------------------------------------------------------------- */

/* Pages in order, a thread per value of the head. What a page counts for is made by the lane of its
 * number. */
GW_DEVICE void join_pages(const gw_attend_params &p, const gw_desk &d, const gw_block_work &w) {
    const int i = (int)threadIdx.x, lane = w.lane;
    if (i - lane >= p.e) {
        return; /* whole teams */
    }
    const unsigned number = gw_ask_number(p);
    const float top = lane < w.pages ? d.top[lane] : minus_infinity();
    const float page_sum = lane < w.pages ? d.sum[lane] : 0.0f;
    const float best = gw_team_top(top), page_share = gw_exp(top - best);
    const float *values = d.values + (i < p.e ? i : 0);
    float o = 0.0f, total = 0.0f;
#pragma unroll 1
    for (int page = 0; page < w.pages; page++) {
        const float share = gw_shuffle(page_share, page);
        total = GW_FMA(gw_shuffle(page_sum, page), share, total);
        o = GW_FMA(values[page * p.e], share, o);
    }
    if (p.sinks) {
        add_sink(p.sinks[w.head], best, &o, &total);
    }
    o = i < p.e ? o / total : 0.0f;
    leave_value(p, p.form != GW_FORM_FLOATS, w.row, w.head, i, o, number);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* A round of K. One or two pages: a team per half of a page, with a position per lane; the chain of
 * fused additions is all that counts. More: a team per page with two positions per lane, which ask
 * less of shared memory. */
template <class CELLS>
__device__ static inline void do_k(const gw_attend_params &p, const gw_desk &d,
                                   const gw_block_work &w, int round) {
    const int first = w.first_of(round), end = w.end_of(round), team = w.team;
    if (w.turns && w.rounds > 1 && end == w.pages) {
        uint8_t *tile = tile_of<CELLS>(p, d, w, round, w.pages - 1);
        if ((int)threadIdx.x < p.e) {
            gw_fresh<CELLS>(tile, p.e, w.span.pos % GW_PAGE, 1)
                .copy_value(gw_fresh<CELLS>(d.k_cells, p.e), (int)threadIdx.x);
        }
        __syncthreads();
    }
    if (end - first <= 2) {
        const int page = first + team / 2;
        if (page < end) {
            score_page<CELLS, 1>(p, d, tile_of<CELLS>(p, d, w, round, page), page,
                                 team % 2 * GW_LANES + w.lane);
        }
        return;
    }
#pragma unroll 1
    for (int page = first + team; page < end; page += w.teams) {
        score_page<CELLS, 2>(p, d, tile_of<CELLS>(p, d, w, round, page), page, 2 * w.lane);
    }
}

/* A round of V: a team per page and 64 values of the head, and one more per page for its sum. Each
 * makes the page's weights for itself: no barrier to wait for. */
template <class CELLS>
__device__ static inline void do_v(const gw_attend_params &p, const gw_desk &d,
                                   const gw_block_work &w, int round) {
    enum { WIDE = 2 * GW_LANES };
    const int first = w.first_of(round), n = w.end_of(round) - first;
    const int slices = (int)((unsigned)(p.e + WIDE - 1) / WIDE);
#pragma unroll 1
    for (int unit = w.team; unit < n * (slices + 1); unit += w.teams) {
        int page = unit, slice = 0; /* pages of a slice in a row */
        for (; page >= n; page -= n) {
            slice++;
        }
        page += first;
        const gw_weights v(d, w, page);
        if (slice == slices) {
            d.top[page] = v.top; /* all lanes the same */
            d.sum[page] = gw_fold(v.weight[0] + v.weight[1]);
            continue;
        }
        float *mine = d.weight + w.team * GW_PAGE;
        mine[w.lane] = v.weight[0];
        mine[w.lane + GW_LANES] = v.weight[1];
        gw_sync_team();
        const int i = slice * WIDE + 2 * w.lane;
        if (i < p.e) {
            mix_page<CELLS>(p, d, w, tile_of<CELLS>(p, d, w, round, page), mine, page, i);
        }
        gw_sync_team();
    }
}

/* Pages that do not fit all at once. */
template <class CELLS>
__device__ static inline void do_rounds(const gw_attend_params &p, const gw_desk &d,
                                        const gw_block_work &w, float new_v) {
#pragma unroll 1
    for (int round = 0; round < w.rounds; round++) {
        gw_copy_wait<1>();
        __syncthreads();
        do_k<CELLS>(p, d, w, round);
        fetch_later<CELLS>(p, d, w, round + 2);
    }
    if (w.turns) {
        keep_row<CELLS>(p, d, w, new_v);
    }
#pragma unroll 1
    for (int round = w.rounds; round < 2 * w.rounds; round++) {
        gw_copy_wait<1>();
        __syncthreads();
        do_v<CELLS>(p, d, w, round);
        fetch_later<CELLS>(p, d, w, round + 2);
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
    const gw_desk d(gw_shared_place(shared), p.e, w.pages);
    /* Cells that no launch of this pass writes are read before the wait: with ROPE_KV all, for the
     * new one is made here; else pages that end in front of the step's rows. */
    const int old = w.turns ? w.pages : (w.span.pos + 1 - p.step.rows) / GW_PAGE - w.span.first;
    fetch_round<CELLS>(p, d, w, 0, 0, old);
    if (w.turns) {
        gw_copy_commit();
        fetch_round<CELLS>(p, d, w, 1, 0, w.pages);
        gw_copy_commit();
    }
    gw_turned first;
    first.open(p, w, w.team);
    const float *from_v =
        w.turns ? p.turn.in + (size_t)(p.heads + p.kv_heads + w.g) * p.e : first.head;
    from_v += w.kept < p.e ? w.kept : 0;
    gw_have(first.from), gw_have(first.from_other), gw_have(from_v);
    gw_grid_dependency_wait();
    if (!w.turns) {
        fetch_round<CELLS>(p, d, w, 0, old > 0 ? old : 0, w.pages);
        gw_copy_commit();
        fetch_round<CELLS>(p, d, w, 1, 0, w.pages);
        gw_copy_commit();
    }
    first.ask(); /* and while that is on its way, K may still be, too */
    const float new_v = gw_fresh_float(from_v);
    if (w.turns) {
        gw_copy_wait<1>();
        __syncthreads(); /* a new k goes over what came */
    }
    take_row<CELLS>(p, d, w, first);
    if (w.rounds == 1) {
        gw_copy_wait<1>();
        __syncthreads();
        do_k<CELLS>(p, d, w, 0);
        if (w.turns) {
            keep_row<CELLS>(p, d, w, new_v);
        }
        gw_copy_wait<0>();
        __syncthreads();
        do_v<CELLS>(p, d, w, 1);
    } else {
        do_rounds<CELLS>(p, d, w, new_v);
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
