/* kernels_hip/attention/attend_split.hip - ATTENTION over more pages than one block should have:
 * blocks share the pages of a row and KV head, and the one that comes last joins them. A block has
 * all query heads of the KV head, so that a tile of K or V is read once, and keeps on its way what
 * it needs next: V of the pages whose scores it makes, then K of the pages behind. What is cut
 * finely, and why: attend_block.hip. The bits are those of attention.hip.
 */
#include "kernels_hip/attention/attend_leave.h"
#include "kernels_hip/attention/attend_tile.h"

enum { TEAMS = GW_SPLIT_THREADS / GW_LANES };

/* Where the block has what, before it joins. */
struct gw_desk {
    float *q;                   /* [heads, e]                                             */
    uint8_t *k_cells, *v_cells; /* the new position's, scales behind e floats             */
    float *score;               /* [at_once, heads, 64]                                   */
    float *weight;              /* [teams, 64]: of the page a team is at                  */
    uint8_t *k_tiles, *v_tiles; /* [at_once]                                              */

    template <class CELLS>
    __device__ static inline gw_desk at(uint8_t *shared, const gw_attend_params &p, int at_once) {
        const int cells = GW_BLOCK_CELLS(p.e);
        gw_desk d;
        d.q = (float *)shared;
        d.k_cells = (uint8_t *)(d.q + p.block_has * p.e);
        d.v_cells = d.k_cells + 4 * cells;
        d.score = (float *)(d.v_cells + 4 * cells);
        d.weight = d.score + at_once * p.block_has * GW_PAGE;
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
    /* Does a round of all pages do? */
    __device__ inline int at_one_go(void) const { return n <= at_once; }
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

/* Values of the block's queries and of the new position's k and v on their way through norm and
 * rotation: a thread has the same value of every step-th head, SLOTS of them at once. Heads are
 * counted: the queries, k, v. What no launch of the pass writes is read when it is opened. */
struct gw_turned {
    enum { SLOTS = 3 };
    int i, h, step, n; /* i: which value; h: the first of the heads below n       */
    int turns, away;   /* whether the value turns, and how far from it what it turns with is */
    float c, s;
    const float *from[SLOTS];
    float x[SLOTS], other[SLOTS];

    __device__ inline const float *head_of(const gw_attend_params &p, const gw_split_work &w,
                                           int head) const {
        if (!w.turns) {
            return p.q + ((size_t)w.row * p.heads + w.head + head) * p.e;
        }
        const int kv = p.heads + (head - w.heads) * p.kv_heads + w.g;
        return p.turn.in + (size_t)(head < w.heads ? w.head + head : kv) * p.e;
    }
    __device__ inline void choose(const gw_attend_params &p, const gw_split_work &w) {
#pragma unroll
        for (int k = 0; k < SLOTS; k++) {
            const int head = h + k * step;
            from[k] = head_of(p, w, head < n ? head : 0) + (i < p.e ? i : 0);
        }
    }
    __device__ inline void open(const gw_attend_params &p, const gw_split_work &w) {
        const int blocks = (int)((unsigned)(p.e + GW_LANES - 1) / GW_LANES), team = gw_team();
        const int r = w.turns ? p.turn.rope_dim : 0, half = r / 2;
        step = (int)((unsigned)TEAMS / (unsigned)blocks);
        h = (int)((unsigned)team / (unsigned)blocks);
        i = (team - h * blocks) * GW_LANES + gw_lane();
        n = h < step ? w.heads + 2 * w.fresh : 0; /* whole teams */
        turns = i < r;
        away = 0;
        c = s = 0.0f;
        if (turns) {
            const int second = p.turn.interleaved ? i & 1 : i >= half;
            const int pair = p.turn.interleaved ? i >> 1 : second ? i - half : i;
            const int at = w.span.pos - gw_step_less(p.step, w.row);
            const float *angle = p.turn.table + (size_t)at * r + pair;
            away = p.turn.interleaved ? 1 - 2 * second : second ? -half : half;
            c = angle[0];
            s = second ? angle[half] : -angle[half];
        }
        choose(p, w);
#pragma unroll
        for (int k = 0; k < SLOTS; k++) {
            gw_have(from[k]);
        }
    }
    __device__ inline void ask(void) {
#pragma unroll
        for (int k = 0; k < SLOTS; k++) {
            x[k] = gw_fresh_float(from[k]);
            other[k] = gw_fresh_float(from[k] + away);
        }
    }
    /* Norms of the heads of all slots; the whole team calls it. */
    __device__ inline void norm(const gw_attend_params &p, const gw_split_work &w) {
        const int at = i < p.e ? i : 0;
#pragma unroll 1
        for (int k = 0; k < SLOTS; k++) {
            const int head = h + k * step;
            const float *weight = head < w.heads ? p.turn.q_norm : p.turn.k_norm;
            if (head > w.heads || head >= n || !weight) {
                continue;
            }
            const float *all = head_of(p, w, head);
            const float mine = weight[at], theirs = weight[at + away];
            float sum = 0.0f;
#pragma unroll 4
            for (int l = gw_lane(); l < p.e; l += GW_LANES) {
                sum = GW_FMA(all[l], all[l], sum);
            }
            const float scale = gw_rms_scale(gw_fold(sum), p.e, p.turn.eps);
#pragma unroll
            for (int m = 0; m < SLOTS; m++) { /* numbers of registers are constants */
                x[m] = m == k ? (x[m] * scale) * mine : x[m];
                other[m] = m == k ? (other[m] * scale) * theirs : other[m];
            }
        }
    }
    /* The value of slot k. */
    __device__ inline float value(const gw_split_work &w, int k) const {
        return turns && h + k * step <= w.heads ? GW_FMA(x[k], c, other[k] * s)
                                                : x[k]; /* gw_rope_first, gw_rope_second */
    }
};

/* Where the new k is made: in its tile, or on the desk where that comes in a later round. */
template <class CELLS>
__device__ static inline gw_fresh<CELLS> fresh_k(const gw_attend_params &p, const gw_desk &d,
                                                 const gw_split_work &w) {
    return w.at_one_go() ? gw_fresh<CELLS>(d.k_tiles + (w.n - 1) * tile_bytes<CELLS>(p), p.e,
                                           w.span.pos % GW_PAGE, 1)
                         : gw_fresh<CELLS>(d.k_cells, p.e);
}

/* A new cell for this block and for later passes, of which the first tile of heads takes care. */
template <class CELLS>
__device__ static inline void keep_cell(const gw_fresh<CELLS> &here, const gw_fresh<CELLS> &cache,
                                        int i, float x, int keeps) {
    here.put_value(i, x);
    if (!keeps) {
        return;
    }
    if (CELLS::SCALED) {
        cache.copy_value(here, i); /* of what this thread wrote */
    } else {
        cache.put_value(i, x);
    }
}

/* The queries, and with ROPE_KV the new position's k and v, with what they leave behind; the first
 * slots are on their way. */
template <class CELLS>
__device__ static inline void take_row(const gw_attend_params &p, const gw_desk &d,
                                       const gw_split_work &w, gw_turned &v) {
    const int e = p.e, j = w.span.pos % GW_PAGE;
    const size_t at = w.tile_of(w.n - 1) * (size_t)tile_bytes<CELLS>(p);
    while (v.h < v.n) {
        if (w.turns && (p.turn.q_norm || p.turn.k_norm)) {
            v.norm(p, w);
        }
#pragma unroll
        for (int k = 0; k < v.SLOTS; k++) {
            const int head = v.h + k * v.step;
            if (head >= v.n) {
                break;
            }
            const float x = v.value(w, k);
            if (v.i >= e) {
                continue;
            }
            if (head < w.heads) {
                d.q[head * e + v.i] = x;
                if (w.fresh) {
                    p.turn.out[(size_t)(w.head + head) * e + v.i] = x;
                }
            } else if (head == w.heads) {
                keep_cell(fresh_k<CELLS>(p, d, w), gw_fresh<CELLS>((uint8_t *)p.k + at, e, j, 1),
                          v.i, x, w.part == 0);
            } else {
                keep_cell(gw_fresh<CELLS>(d.v_cells, e),
                          gw_fresh<CELLS>((uint8_t *)p.v + at, e, j, 0), v.i, x, w.part == 0);
            }
        }
        v.h += v.SLOTS * v.step;
        if (v.h < v.n) {
            v.choose(p, w);
            v.ask();
        }
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* A page and a head, as attend_tile.h wants its desk and its work: the only page of both. */
struct gw_one_page {
    const float *q;
    float *score, *weight, *values;
    uint8_t *v_cells;
    int lane, turns, pages, first, seen;

    /* unit: of page `page` and a head h, in the round. */
    __device__ inline gw_one_page(const gw_attend_params &p, const gw_desk &d,
                                  const gw_split_work &w, int unit, int page, int h)
        : q(d.q + h * p.e), score(d.score + unit * GW_PAGE), weight(d.weight + gw_team() * GW_PAGE),
          values(0), v_cells(d.v_cells), lane((int)(threadIdx.x % GW_LANES)),
          turns(w.is_fresh(page)), pages(1), first(w.from(page)), seen(w.end(page)) {}
    __device__ inline int from(int) const { return first; }
    __device__ inline int end(int) const { return seen; }
};

/* The scores of pages [base, end) for every head. Where teams are enough, one for half of a page
 * and a head, with a position per lane; else one for a page and a head. */
template <class CELLS>
__device__ static inline void do_k(const gw_attend_params &p, const gw_desk &d,
                                   const gw_split_work &w, int base, int end) {
    const int bytes = tile_bytes<CELLS>(p), team = gw_team(), units = (end - base) * w.heads;
    if (w.is_fresh(end - 1) && !w.at_one_go()) {
        if ((int)threadIdx.x < p.e) {
            gw_fresh<CELLS>(d.k_tiles + (end - 1 - base) * bytes, p.e, w.span.pos % GW_PAGE, 1)
                .copy_value(gw_fresh<CELLS>(d.k_cells, p.e), (int)threadIdx.x);
        }
        __syncthreads();
    }
    const int halves = 2 * units <= TEAMS;
#pragma unroll 1
    for (int unit = halves ? team / 2 : team; unit < units; unit += TEAMS) {
        int page = 0, h = unit; /* heads of a page in a row */
        for (; h >= w.heads; h -= w.heads) {
            page++;
        }
        const uint8_t *tile = d.k_tiles + page * bytes;
        const gw_one_page one(p, d, w, unit, base + page, h);
        if (halves) {
            score_page<CELLS, 1>(p, one, tile, 0, team % 2 * GW_LANES + one.lane);
        } else {
            score_page<CELLS, 2>(p, one, tile, 0, 2 * one.lane);
        }
    }
}

/* What softmax makes of them and the sums of values, a team for 64 of a head, each with weights of
 * its own making. The sum of a page's weights is made by one more team, or where those are too many
 * by the one of the last values. */
template <class CELLS>
__device__ static inline void do_v(const gw_attend_params &p, const gw_desk &d,
                                   const gw_split_work &w, int base, int end) {
    enum { WIDE = 2 * GW_LANES };
    const int slices = (int)((unsigned)(p.e + WIDE - 1) / WIDE), units = (end - base) * w.heads;
    const int bytes = tile_bytes<CELLS>(p), apart = units * (slices + 1) <= TEAMS;
    const int all = units * (slices + apart), sums = slices - 1 + apart;
#pragma unroll 1
    for (int at = gw_team(); at < all; at += TEAMS) {
        int unit = at, slice = 0, page = base; /* units of a slice in a row */
        for (; unit >= units; unit -= units) {
            slice++;
        }
        int h = unit;
        for (; h >= w.heads; h -= w.heads) {
            page++;
        }
        gw_one_page one(p, d, w, unit, page, h);
        const size_t place = w.place(p, h) + w.first + page;
        const gw_weights v(one, one, 0);
        if (slice < slices) {
            one.values = p.parts.values + place * p.parts.e_padded;
            one.weight[one.lane] = v.weight[0];
            one.weight[one.lane + GW_LANES] = v.weight[1];
            gw_sync_team();
            const int i = slice * WIDE + 2 * one.lane;
            if (i < p.e) {
                mix_page<CELLS>(p, one, one, d.v_tiles + (page - base) * bytes, one.weight, 0, i);
            }
            gw_sync_team();
        }
        if (slice == sums) {
            const float sum = gw_fold(v.weight[0] + v.weight[1]);
            if (one.lane == 0) {
                p.parts.top[place] = v.top;
                p.parts.sum[place] = sum;
            }
        }
    }
}

/* ---- the join -------------------------------------------------------------------------------- */

/* The block is done. True for the whole block when it was the last one of its row and heads; what
 * the others left in p.parts can then be read. */
GW_DEVICE int comes_last(const struct gw_attend_params &p, const gw_split_work &w) {
    __shared__ unsigned before;
    const unsigned all = (unsigned)w.blocks; /* the last one leaves 0 behind */
    return gw_block_arrives(p.arrived + (size_t)w.row * p.heads + w.head, all - 1, &before) ==
           all - 1;
}

/* What the pages of a head count for in their groups: lane l has pages l and l + 32, of a group
 * each; and what that group counts for. */
struct gw_shares {
    enum { OF_LANE = GW_SPLIT_PAGES / GW_LANES, AT_ONCE = 4 };
    float share[OF_LANE], sum[OF_LANE], group[OF_LANE]; /* share: before make, tops */
    float sink; /* before make its score, then what it adds to the sum; 0 without one */

    __device__ inline void ask(const gw_attend_params &p, const gw_split_work &w, int h) {
        const size_t at = w.place(p, h);
        sink = p.sinks ? p.sinks[w.head + h] : minus_infinity();
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) {
            const int page = k * GW_LANES + gw_lane();
            share[k] = minus_infinity();
            sum[k] = 0.0f;
            if (page < w.pages) {
                share[k] = gw_fresh_float(p.parts.top + at + page);
                sum[k] = gw_fresh_float(p.parts.sum + at + page);
            }
        }
    }
    /* The whole team calls it. */
    __device__ inline void make(int pages) {
        float best = sink;
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) {
            group[k] = group_top(share[k]);
            best = larger(best, larger(group[k], gw_partner<16>(group[k])));
            if (k == 0 || k * GW_LANES < pages) {
                share[k] = exp_below(share[k] - group[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < OF_LANE; k++) {
            if (k == 0 || k * GW_LANES < pages) {
                group[k] = exp_below(group[k] - best);
            }
        }
        sink = exp_below(sink - best);
    }
    /* Two values of the head from those of its pages, of N groups side by side: chains wait for
     * themselves. The whole team calls it. */
    template <int N>
    __device__ inline void join_groups(const float *one, const float *two, int stride, int pages,
                                       float *o) const {
        enum { EACH = AT_ONCE / N };
        float sums_of[N], o_of[N][2], total = -0.0f;
#pragma unroll
        for (int g = 0; g < N; g++) {
            sums_of[g] = o_of[g][0] = o_of[g][1] = 0.0f;
        }
#pragma unroll 1
        for (int page = 0; page < (pages < GW_PAGE_GROUP ? pages : GW_PAGE_GROUP); page += EACH) {
            float by[AT_ONCE], sums[AT_ONCE], v[2][AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int row = i / EACH * GW_PAGE_GROUP + page + i % EACH;
                const int at = (row < pages ? row : pages - 1) * stride;
                const int k = i / EACH * GW_PAGE_GROUP / GW_LANES;
                by[i] = gw_shuffle(share[k], row % GW_LANES);
                sums[i] = gw_shuffle(sum[k], row % GW_LANES);
                v[0][i] = one[at];
                v[1][i] = two[at];
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int g = i / EACH;
                if (g * GW_PAGE_GROUP + page + i % EACH < pages) {
                    sums_of[g] = GW_FMA(sums[i], by[i], sums_of[g]);
                    o_of[g][0] = GW_FMA(v[0][i], by[i], o_of[g][0]);
                    o_of[g][1] = GW_FMA(v[1][i], by[i], o_of[g][1]);
                }
            }
        }
        o[0] = o[1] = -0.0f;
#pragma unroll
        for (int g = 0; g < N; g++) {
            const int first = g * GW_PAGE_GROUP;
            const float weight = gw_shuffle(group[first / GW_LANES], first % GW_LANES);
            if (first < pages) {
                total = GW_FMA(sums_of[g], weight, total);
                o[0] = GW_FMA(o_of[g][0], weight, o[0]);
                o[1] = GW_FMA(o_of[g][1], weight, o[1]);
            }
        }
        total = total + sink; /* + 0 leaves it as it is */
        o[0] = o[0] / total;
        o[1] = o[1] / total;
    }
    __device__ inline void join(const float *one, const float *two, int stride, int pages,
                                float *o) const {
        if (pages <= GW_PAGE_GROUP) {
            join_groups<1>(one, two, stride, pages, o);
        } else if (pages <= 2 * GW_PAGE_GROUP) {
            join_groups<2>(one, two, stride, pages, o);
        } else {
            join_groups<4>(one, two, stride, pages, o);
        }
    }
};
static_assert(GW_SPLIT_PAGES <= 4 * GW_PAGE_GROUP, "more pages than join_groups");

/* Pages in order, of heads [h0, h0 + heads): a team for 32 values of a head, or for twice as many.
 * While values come a team makes the shares of its first head; it seldom has another. */
template <class CELLS>
__device__ static inline void join_heads(const gw_attend_params &p, const gw_split_work &w,
                                         float *values, int h0, int heads) {
    const int pages = w.pages, e = p.e, wide = pages * p.parts.e_padded;
    const int slices = (int)((unsigned)(e + GW_LANES - 1) / GW_LANES), units = heads * slices;
    const int each = (int)((unsigned)(units + TEAMS - 1) / TEAMS);
    const int first = gw_team() * each, end = first + each < units ? first + each : units;
    int h = 0, slice = first < units ? first : 0; /* a team without work */
    for (; slice >= slices; slice -= slices) {    /* divisions take longer */
        h++;
    }
    gw_shares shares;
    shares.ask(p, w, h0 + h);
#pragma unroll 1
    for (int k = 0; k < heads; k++) {
        const float *from = p.parts.values + w.place(p, h0 + k) * (size_t)p.parts.e_padded;
#pragma unroll 2
        for (int i = 4 * (int)threadIdx.x; i < wide; i += 4 * GW_SPLIT_THREADS) {
            gw_copy_async(values + k * wide + i, from + i);
        }
    }
    gw_copy_commit();
    shares.make(pages);
    gw_copy_wait<0>();
    __syncthreads();
#pragma unroll 1
    for (int unit = first; unit < end;) {
        if (slice == slices) {
            slice = 0;
            h++;
            shares.ask(p, w, h0 + h);
            shares.make(pages);
        }
        const int n = unit + 1 < end && slice + 1 < slices ? 2 : 1;
        const int i = slice * GW_LANES + gw_lane(), last = i + (n - 1) * GW_LANES;
        const float *from = values + h * wide;
        float o[2];
        const unsigned number = gw_ask_number(p);
        shares.join(from + (i < e ? i : 0), from + (last < e ? last : 0), p.parts.e_padded, pages,
                    o);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            if (k < n) {
                leave_value(p, p.form != GW_FORM_FLOATS, w.row, w.head + h0 + h, i + k * GW_LANES,
                            o[k], number);
            }
        }
        unit += n;
        slice += n;
    }
}

/* All heads at once if they find room in the tiles' place, else as many as do. */
template <class CELLS>
__device__ static inline void join_pages(const gw_attend_params &p, const gw_split_work &w,
                                         float *values) {
    const int wide = w.pages * p.parts.e_padded, tiles = p.slots * tile_bytes<CELLS>(p) / 4;
    if (w.heads * wide <= tiles) {
        join_heads<CELLS>(p, w, values, 0, w.heads);
        return;
    }
    const int all = tiles + GW_SPLIT_DESK(p.e, p.block_has, w.at_once) / 4;
    int fit = 1;
    while ((fit + 1) * wide <= all) {
        fit++;
    }
#pragma unroll 1
    for (int h0 = 0; h0 < w.heads; h0 += fit) {
        join_heads<CELLS>(p, w, values, h0, w.heads - h0 < fit ? w.heads - h0 : fit);
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
    const gw_desk d = gw_desk::at<CELLS>(gw_shared_place(shared), p, w.at_once);
    /* Cells that no launch of this pass writes are read before the wait: attend_block.hip. */
    const int old =
        w.turns ? w.n : (w.span.pos + 1 - p.step.rows) / GW_PAGE - w.span.first - w.first;
    const int early = old < 0 ? 0 : old < w.n ? old : w.n;
    const int all_early = early >= w.at_once || early == w.n; /* of the first round */
    fetch_pages<CELLS>(p, w, p.k, d.k_tiles, 0, 0, early);
    if (all_early) {
        gw_copy_commit();
        fetch_pages<CELLS>(p, w, p.v, d.v_tiles, 0, 0, early);
    }
    gw_turned values;
    values.open(p, w);
    if (w.fresh) {
        gw_copy_commit();
        gw_copy_wait<1>();
        __syncthreads(); /* a new k goes over what came */
    }
    gw_grid_dependency_wait();
    values.ask();
    if (!all_early) {
        fetch_pages<CELLS>(p, w, p.k, d.k_tiles, 0, early, w.n);
        gw_copy_commit();
        fetch_pages<CELLS>(p, w, p.v, d.v_tiles, 0, 0, w.n);
    }
    if (!w.fresh) {
        gw_copy_commit();
    }
    take_row<CELLS>(p, d, w, values);
#pragma unroll 1
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
        if (end < w.n) {
            fetch_pages<CELLS>(p, w, p.k, d.k_tiles, end, 0, w.n);
            gw_copy_commit();
            gw_copy_commit(); /* an empty one, so that the next round waits for K */
        }
        do_v<CELLS>(p, d, w, base, end);
    }
    if (comes_last(p, w)) {
        join_pages<CELLS>(p, w, (float *)shared);
    }
}

/* Three blocks: of its own accord NVIDIA's compiler keeps 64 registers, and spills. */
#define KERNEL(format)                                                                             \
    GW_KERNEL(gw_attend_split_##format, struct gw_attend_params, GW_SPLIT_THREADS, 3) {            \
        attend<gw_cells_##format>(p);                                                              \
    }
KERNEL(f16)
KERNEL(f32)
KERNEL(q8_0)
