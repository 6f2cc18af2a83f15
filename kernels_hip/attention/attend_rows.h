/* kernels_hip/attention/attend_rows.h - what a block of attend_rows.hip works at, the tiles that it
 * asks for, and ROPE_KV of several rows: queries and new cells.
 */
#ifndef GW_KERNELS_HIP_ATTEND_ROWS_H
#define GW_KERNELS_HIP_ATTEND_ROWS_H

#include "kernels_hip/attention/attend_tile.h"

/* As span_of, of a row whose position is known. */
GW_DEVICE gw_span span_at(int pos, int window) {
    const int lo = window > 0 && pos >= window ? pos - window + 1 : 0;
    const gw_span s = {lo, pos, lo / GW_PAGE, pos / GW_PAGE};
    return s;
}

/* Where the block has what of the rows of one sequence. */
struct gw_rows_desk {
    float *q;         /* [rows, e]                                                       */
    float *score;     /* [rows, pages, 64]; and of a row and page:                       */
    float *values;    /* [rows, pages, e]                                                */
    float *top, *sum; /* [rows, pages]                                                   */
    float *weight;    /* [teams, 2, 64]: of the page and rows a team is at               */
    uint8_t *cells;   /* [2, rows of the step, wide]: new ones, of K and of V            */
    uint8_t *tiles;   /* [slots]: of K or V, one after the other                         */
    int of_v, wide;   /* bytes of all new cells of K, and of those of a row              */

    __device__ inline gw_rows_desk(const gw_attend_params &p, uint8_t *shared, int tile, int rows,
                                   int pages) {
        const int e = p.e;
        wide = GW_ROWS_CELLS(tile);
        of_v = p.turn.in ? p.step.rows * wide : 0;
        q = (float *)shared;
        score = q + rows * e;
        weight = score + rows * pages * GW_PAGE;
        values = weight + 4 * GW_BLOCK_THREADS;
        top = values + rows * pages * e;
        sum = top + rows * pages;
        cells = shared + GW_ROWS_DESK(e, rows, pages, 0);
        tiles = shared + GW_ROWS_DESK(e, rows, pages, of_v);
    }
    /* Of row f of those that are new. */
    template <class CELLS> __device__ inline gw_fresh<CELLS> fresh(int is_k, int f, int e) const {
        uint8_t *row = cells + (is_k ? 0 : of_v) + f * wide;
        gw_fresh<CELLS> r(row, e);
        r.scales = (gw_u16 *)(row + e * CELLS::BYTES);
        return r;
    }
};

/* Rows of one sequence, next to one another, and the pages that any of them sees. */
struct gw_rows_work {
    int lane, team, teams;
    int row, rows, head, g; /* g: KV head */
    int turns;              /* ROPE_KV comes with it */
    int blocks;             /* of a head's values, a value per lane */
    int first, pages, high; /* pages, and the last position, that any of them sees */
    int rounds, at_once; /* rounds of K, of as many pages as half of the slots hold; as many of V */
    /* Rows of this step whose new cells these rows attend to: the index of the first, how many rows
     * the mask covers, the first page that holds such a cell, and the bit mask. */
    int fresh_row, fresh, fresh_page;
    unsigned fresh_bits;
    /* Lane l holds, of row l of the step, the position (pos) and sequence (slot); of page l, its
     * place in the caches (tile). likely: the place of page l if the row's sequence is the first,
     * as in most steps; it is loaded together with the step. */
    int live, pos, slot, tile, likely;

    __device__ inline gw_rows_work(const gw_attend_params &p) {
        lane = (int)(threadIdx.x % GW_LANES); /* of unsigned numbers it is one instruction */
        team = (int)(threadIdx.x / GW_LANES);
        teams = (int)(blockDim.x / GW_LANES);
        const int at = lane < p.step.rows ? lane : 0;
        live = gw_live(p.step);
        pos = gw_step_pos(p.step, at);
        slot = gw_step_slot(p.step, at);
        likely = p.pages[lane < p.table_stride ? lane : 0];
        g = (int)blockIdx.z;
        head = g * (int)gridDim.x + (int)blockIdx.x;
        turns = p.turn.in != 0;
        blocks = (int)((unsigned)(p.e + GW_LANES - 1) / GW_LANES);
        at_once = p.slots / 2;
    }
    /* As many rows from `from` on, below `end`, as there are of its sequence. */
    __device__ inline void open(const gw_attend_params &p, int from, int end) {
        const int sequence = gw_shuffle(slot, from);
        const unsigned same = gw_ballot(lane < live && slot == sequence);
        row = from;
        for (rows = 1; from + rows < end && (same >> (from + rows) & 1u); rows++) {
        }
        const int mine = lane >= from && lane < from + rows;
        high = (int)gw_team_max(mine ? (unsigned)pos : 0u);
        first = span_at(lowest(mine), p.window).first;
        pages = high / GW_PAGE - first + 1;
        const int32_t *table = p.pages + (int64_t)sequence * p.table_stride + first;
        tile = likely;
        if (sequence > 0 || first > 0) {
            tile = lane < pages ? table[lane] : 0;
        }
        tile = tile * p.kv_heads + g;
        for (rounds = 1; rounds * at_once < pages; rounds++) { /* divisions take longer */
        }
        fresh_row = fresh = fresh_page = 0;
        fresh_bits = 0;
        if (turns) {
            const int one = (same >> lane & 1u) && pos <= high;
            fresh_row = 31 - (int)gw_team_max(one ? 31u - (unsigned)lane : 0u);
            fresh = (int)gw_team_max(one ? (unsigned)lane : 0u) - fresh_row + 1;
            fresh_bits = gw_ballot(one) >> fresh_row;
            fresh_page = lowest(one) / GW_PAGE - first;
        }
    }
    /* Position of the lanes that say yes; for whole teams, as what follows. */
    __device__ inline int lowest(int yes) const {
        return (int)~gw_team_max(yes ? ~(unsigned)pos : 0u);
    }
    __device__ inline int pos_of(int step_row) const { return gw_shuffle(pos, step_row); }
    /* What row r of these sees. */
    __device__ inline gw_span span(const gw_attend_params &p, int r) const {
        return span_at(pos_of(row + r), p.window);
    }
    /* Of a page, in the caches. */
    __device__ inline size_t tile_of(int page) const { return (size_t)gw_shuffle(tile, page); }
    __device__ inline int is_fresh(int f) const { return (int)(fresh_bits >> f & 1u); }
    __device__ inline int first_of(int round) const { /* round: less than twice as many */
        return (round < rounds ? round : round - rounds) * at_once;
    }
    __device__ inline int end_of(int round) const {
        const int end = first_of(round) + at_once;
        return end < pages ? end : pages;
    }
};

/* Units of work as (number / rows, number % rows), from `begin` on every step-th one. */
struct gw_row_units {
    int outer, row, step;

    __device__ inline gw_row_units(int begin, int every) : outer(0), row(begin), step(every) {}
    __device__ inline void settle(int rows) { /* divisions take longer */
        while (row >= rows) {
            row -= rows;
            outer++;
        }
    }
    __device__ inline void next(int rows) {
        row += step;
        settle(rows);
    }
};

/* A row and a page, as attend_tile.h wants its desk and its work: the only page of both. */
struct gw_row_page {
    const float *q;
    float *score;
    int lane, begin, stop; /* positions [begin, stop) are seen; none when begin >= stop */

    __device__ inline gw_row_page(const gw_attend_params &p, const gw_rows_desk &d,
                                  const gw_rows_work &w, int row, int page)
        : q(d.q + row * p.e), score(d.score + (row * w.pages + page) * GW_PAGE), lane(w.lane) {
        const gw_span span = w.span(p, row);
        const int base = (w.first + page) * GW_PAGE;
        begin = span.lo > base ? span.lo - base : 0;
        stop = span.pos - base + 1 < GW_PAGE ? span.pos - base + 1 : GW_PAGE;
    }
    __device__ inline int from(int) const { return begin; }
    __device__ inline int end(int) const { return stop; }
    __device__ inline int seen(void) const { return begin < stop; }
};

/* ---- pages ----------------------------------------------------------------------------------- */

template <class CELLS>
__device__ static inline uint8_t *tile_of(const gw_attend_params &p, const gw_rows_desk &d,
                                          const gw_rows_work &w, int round, int page) {
    return d.tiles + (round % 2 * w.at_once + page - w.first_of(round)) * tile_bytes<CELLS>(p);
}

/* The first n positions of a tile of K, or of V, on their way to shared memory; a block. */
template <class CELLS>
__device__ static inline void fetch_positions(const gw_attend_params &p, uint8_t *to,
                                              const uint8_t *tile, int n, int is_k) {
    enum { ROW = GW_PAGE * CELLS::BYTES }; /* of K, whose positions lie side by side */
    const int at = 16 * (int)threadIdx.x, step = 16 * (int)blockDim.x, cells = ROW * p.e;
    static_assert(16 * GW_BLOCK_FEWER % ROW == 0, "a thread has the same positions of all rows");
    const int end = !is_k ? n * p.e * CELLS::BYTES : at % ROW < n * CELLS::BYTES ? cells : 0;
#pragma unroll 2
    for (int b = at; b < end; b += step) {
        gw_copy_async(to + b, tile + b);
    }
    if (CELLS::SCALED) {
        for (int b = cells + at; b < cells + p.scale_bytes; b += step) {
            gw_copy_async(to + b, tile + b);
        }
    }
}

/* The tiles of a round, first K's and then V's. What no row of the block sees stays where it is:
 * blocks have the same pages, and what they ask the second cache for takes as long as all else. */
template <class CELLS>
__device__ static inline void fetch_round(const gw_attend_params &p, const gw_rows_desk &d,
                                          const gw_rows_work &w, int round) {
    const int bytes = tile_bytes<CELLS>(p), is_k = round < w.rounds;
    const uint8_t *cache = (const uint8_t *)(is_k ? p.k : p.v);
    for (int page = w.first_of(round); page < w.end_of(round); page++) {
        const int left = w.high + 1 - (w.first + page) * GW_PAGE;
        fetch_positions<CELLS>(p, tile_of<CELLS>(p, d, w, round, page),
                               cache + w.tile_of(page) * (size_t)bytes,
                               left < GW_PAGE ? left : GW_PAGE, is_k);
    }
}

/* ---- new positions --------------------------------------------------------------------------- */

/* Values of the rows' queries and of the new positions' k and v on their way through norm and
 * rotation: a thread has the same value of every step-th row, NEW rows of k and v and one query at
 * once; queries are the last of them, and the last teams have the first. What no launch of the pass
 * writes is read when they are chosen. */
struct gw_turned {
    enum { NEW = GW_ROWS_NEW, SLOTS = NEW + 1 };
    int i, step;      /* which value; and how many teams have it */
    int first, last;  /* the thread's first row, counted from the first or the last of them */
    int f, r;         /* at the new rows f, f + step, ..; and at query r */
    int turns, away;  /* whether the value turns, and how far from it what it turns with is */
    int pair, second; /* of which pair it is, and if the other of the two */
    float norm_by[2], other_by[2]; /* of k and of q */
    const float *from[SLOTS];
    float c[SLOTS], s[SLOTS], x[SLOTS], other[SLOTS], v[NEW];

    __device__ inline int has(const gw_rows_work &w, int k) const { /* the same for a team */
        return k < NEW ? f + k * step < w.fresh : r < w.rows;
    }
    __device__ inline void choose(const gw_attend_params &p, const gw_rows_work &w) {
        const int half = p.turn.rope_dim / 2;
#pragma unroll
        for (int k = 0; k < SLOTS; k++) {
            from[k] = (w.turns ? p.turn.in : p.q) + (i < p.e ? i : 0);
            c[k] = s[k] = 0.0f;
            if (!has(w, k)) {
                continue;
            }
            const int row = k < NEW ? w.fresh_row + f + k * step : w.row + r;
            const int heads = p.heads + (w.turns ? 2 * p.kv_heads : 0);
            const int pos = w.pos_of(row) - gw_step_less(p.step, row);
            from[k] += (row * heads + (k < NEW ? p.heads + w.g : w.head)) * p.e;
            if (turns) {
                const float *angle =
                    p.turn.table + (size_t)(unsigned)pos * (unsigned)p.turn.rope_dim + pair;
                c[k] = angle[0];
                s[k] = angle[half];
            }
            gw_have(from[k]);
        }
    }
    __device__ inline gw_turned(const gw_attend_params &p, const gw_rows_work &w) {
        const int half = p.turn.rope_dim / 2;
        step = (int)((unsigned)w.teams / (unsigned)w.blocks);
        first = (int)((unsigned)w.team / (unsigned)w.blocks);
        i = (w.team - first * w.blocks) * GW_LANES + w.lane;
        last = first < step ? step - 1 - first : GW_BLOCK_ROWS; /* teams that are left have none */
        first = first < step ? first : GW_BLOCK_ROWS;
        turns = w.turns && i < p.turn.rope_dim;
        second = p.turn.interleaved ? i & 1 : i >= half;
        pair = p.turn.interleaved ? i >> 1 : second ? i - half : i;
        away = p.turn.interleaved ? 1 : half;
        away = !turns ? 0 : second ? -away : away;
        if (has_norms(p, w)) {
            const int at = i < p.e ? i : 0;
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const float *weight = k ? p.turn.q_norm : p.turn.k_norm;
                norm_by[k] = weight ? weight[at] : 1.0f;
                other_by[k] = weight ? weight[at + away] : 1.0f;
            }
        }
    }
    __device__ inline void open(const gw_attend_params &p, const gw_rows_work &w) {
        f = first;
        r = last;
        choose(p, w);
    }
    __device__ inline int has_norms(const gw_attend_params &p, const gw_rows_work &w) const {
        return w.turns && (p.turn.q_norm || p.turn.k_norm);
    }
    __device__ inline void ask(const gw_attend_params &p, const gw_rows_work &w) {
#pragma unroll
        for (int k = 0; k < SLOTS; k++) {
            if (has(w, k)) {
                x[k] = gw_fresh_float(from[k]);
                other[k] = gw_fresh_float(from[k] + away);
                if (k < NEW) {
                    v[k] = gw_fresh_float(from[k] + p.kv_heads * p.e);
                }
            }
        }
    }
    /* Norms of all slots, also of those that it does not have, so that the sums are on their way at
     * once; the whole team calls it. */
    __device__ inline void norm(const gw_attend_params &p, int lane) {
        float sum[SLOTS] = {0.0f};
#pragma unroll 2
        for (int l = lane; l < p.e; l += GW_LANES) {
#pragma unroll
            for (int k = 0; k < SLOTS; k++) {
                const float y = from[k][l - (i < p.e ? i : 0)];
                sum[k] = GW_FMA(y, y, sum[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < SLOTS; k++) {
            const float scale = gw_rms_scale(gw_fold(sum[k]), p.e, p.turn.eps);
            if (k < NEW ? p.turn.k_norm != 0 : p.turn.q_norm != 0) {
                x[k] = (x[k] * scale) * norm_by[k / NEW];
                other[k] = (other[k] * scale) * other_by[k / NEW];
            }
        }
    }
    /* Of the query or k of slot k. */
    __device__ inline float value(int k) const { /* gw_rope_first, gw_rope_second */
        return turns ? GW_FMA(x[k], c[k], other[k] * (second ? s[k] : -s[k])) : x[k];
    }
};

/* The queries, and with ROPE_KV the new cells and what the queries leave behind; the first slots
 * are on their way. */
template <class CELLS>
__device__ static inline void take_rows(const gw_attend_params &p, const gw_rows_desk &d,
                                        const gw_rows_work &w, gw_turned &t) {
    const int e = p.e, i = t.i;
#pragma unroll 1
    for (;;) {
        if (t.has_norms(p, w)) {
            t.norm(p, w.lane);
        }
#pragma unroll
        for (int k = 0; k < t.NEW; k++) {
            if (t.has(w, k) && i < e) { /* whole teams where cells have scales */
                d.fresh<CELLS>(1, t.f + k * t.step, e).put_value(i, t.value(k));
                d.fresh<CELLS>(0, t.f + k * t.step, e).put_value(i, t.v[k]);
            }
        }
        if (t.has(w, t.NEW) && i < e) {
            const float x = t.value(t.NEW);
            d.q[t.r * e + i] = x;
            if (w.turns) {
                p.turn.out[((size_t)(w.row + t.r) * p.heads + w.head) * e + i] = x;
            }
        }
        t.f += t.NEW * t.step;
        t.r += t.step;
        if (t.f >= w.fresh && t.r >= w.rows) {
            return;
        }
        t.choose(p, w);
        t.ask(p, w);
    }
}

/* The new cells of K that a thread puts into a tile: of row f, value i and every step-th behind it.
 * Rows lie side by side there, so neighbouring threads have different ones. */
struct gw_placing {
    int f, i, step, page, j; /* page: -1 if it has none */

    __device__ inline gw_placing(const gw_rows_work &w) {
        int shift = 0;
        for (; 1 << shift < w.fresh; shift++) { /* so many threads are a power of two too */
        }
        f = (int)(threadIdx.x & ((1u << shift) - 1));
        i = (int)(threadIdx.x >> shift);
        step = (int)(blockDim.x >> shift);
        const unsigned pos = (unsigned)w.pos_of(w.fresh_row + f);
        page = f < w.fresh && w.is_fresh(f) ? (int)(pos / GW_PAGE) - w.first : -1;
        j = (int)(pos % GW_PAGE);
    }
};

/* New cells of K into those tiles of a round that have come. */
template <class CELLS>
__device__ static inline void place_k(const gw_attend_params &p, const gw_rows_desk &d,
                                      const gw_rows_work &w, const gw_placing &k, int round) {
    if (k.page >= w.first_of(round) && k.page < w.end_of(round)) {
        const gw_fresh<CELLS> from = d.fresh<CELLS>(1, k.f, p.e);
        const gw_fresh<CELLS> to(tile_of<CELLS>(p, d, w, round, k.page), p.e, k.j, 1);
#pragma unroll 1
        for (int i = k.i; i < p.e; i += k.step) {
            to.copy_value(from, i);
        }
    }
}

/* The same of V, a team per row and four cells per lane; the last teams, which have least else. */
template <class CELLS>
__device__ static inline void place_v(const gw_attend_params &p, const gw_rows_desk &d,
                                      const gw_rows_work &w, int round) {
#pragma unroll 1
    for (int f = w.teams - 1 - w.team; f < w.fresh; f += w.teams) {
        const unsigned pos = (unsigned)w.pos_of(w.fresh_row + f);
        const int page = (int)(pos / GW_PAGE) - w.first;
        if (w.is_fresh(f) && page >= w.first_of(round) && page < w.end_of(round)) {
            const gw_fresh<CELLS> from = d.fresh<CELLS>(0, f, p.e);
            const gw_fresh<CELLS> to(tile_of<CELLS>(p, d, w, round, page), p.e,
                                     (int)(pos % GW_PAGE), 0);
            for (int i = 4 * w.lane; i < p.e; i += 4 * GW_LANES) {
                to.copy_four(from, i);
            }
        }
    }
}

/* What the block's rows leave in the caches; by teams that seldom have scores to make. */
template <class CELLS>
__device__ static inline void keep_rows(const gw_attend_params &p, const gw_rows_desk &d,
                                        const gw_rows_work &w, const gw_turned &t) {
    const int e = p.e;
    for (int r = t.last; r < w.rows; r += t.step) {
        const unsigned pos = (unsigned)w.pos_of(w.row + r);
        const int f = w.row + r - w.fresh_row, j = (int)(pos % GW_PAGE);
        const size_t at = w.tile_of((int)(pos / GW_PAGE) - w.first) * (size_t)tile_bytes<CELLS>(p);
        if (t.i < e) {
            gw_fresh<CELLS>((uint8_t *)p.k + at, e, j, 1).copy_value(d.fresh<CELLS>(1, f, e), t.i);
            gw_fresh<CELLS>((uint8_t *)p.v + at, e, j, 0).copy_value(d.fresh<CELLS>(0, f, e), t.i);
        }
    }
}

#endif
