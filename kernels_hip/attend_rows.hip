/* kernels_hip/attend_rows.hip - ATTENTION of several rows over few pages: as attend_block.hip, but
 * a block has several rows of a query head. Rows of one sequence look at the same pages, so a tile
 * is brought to shared memory once for all of them, and a team has two of them at once where there
 * is work enough; rows of other sequences come after one another. With ROPE_KV a block makes the
 * cells of all rows that its own look at, and puts them into its tiles as these come; the first
 * head of a group leaves those of the block's own rows in the caches. The bits are those of
 * attention.hip.
 */
#include "kernels_hip/attend_tile.h"

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
    int first, pages;
    int rounds, at_once; /* rounds of K, of as many pages as half of the slots hold; as many of V */
    int low;             /* lowest position */
    /* Rows of the step with cells that these look at, from fresh_row on: among so many, those with
     * a bit; and the first page with one of them. */
    int fresh_row, fresh, fresh_page;
    unsigned fresh_bits;
    /* Of lane l: position and sequence of row l of the step, and where page l is in the caches. */
    int live, pos, slot, tile;

    __device__ inline gw_rows_work(const gw_attend_params &p) {
        lane = (int)(threadIdx.x % GW_LANES); /* of unsigned numbers it is one instruction */
        team = (int)(threadIdx.x / GW_LANES);
        teams = (int)(blockDim.x / GW_LANES);
        const int at = lane < p.step.rows ? lane : 0;
        live = gw_live(p.step);
        pos = gw_step_pos(p.step, at);
        slot = gw_step_slot(p.step, at);
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
        const int high = (int)gw_team_max(mine ? (unsigned)pos : 0u);
        low = lowest(mine);
        first = span_at(low, p.window).first;
        pages = high / GW_PAGE - first + 1;
        const int32_t *table = p.pages + (int64_t)sequence * p.table_stride + first;
        tile = lane < pages ? table[lane] * p.kv_heads + g : 0;
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

/* The tiles of a round, first K's and then V's; of its pages those in [from, end). */
template <class CELLS>
__device__ static inline void fetch_round(const gw_attend_params &p, const gw_rows_desk &d,
                                          const gw_rows_work &w, int round, int from, int end) {
    const int bytes = tile_bytes<CELLS>(p);
    const uint8_t *cache = (const uint8_t *)(round < w.rounds ? p.k : p.v);
    const int first = w.first_of(round), last = w.end_of(round);
    for (int page = from > first ? from : first; page < (end < last ? end : last); page++) {
        uint8_t *to = tile_of<CELLS>(p, d, w, round, page);
        fetch_tile(to, cache + w.tile_of(page) * (size_t)bytes, bytes);
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
            const int pos = w.pos_of(row);
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

/* ---- rounds ---------------------------------------------------------------------------------- */

/* The scores of a round of K. With few of them a team has half of a page of a row, a position per
 * lane; with more the same of two rows, or of a single row all of a page. */
template <class CELLS>
__device__ static inline void do_k(const gw_attend_params &p, const gw_rows_desk &d,
                                   const gw_rows_work &w, int round) {
    const int first = w.first_of(round), n = w.end_of(round) - first, team = w.team;
    const int few = 4 * n * w.rows <= w.teams, pairs = !few && w.rows > 1, halves = few || pairs;
    const int sets = pairs ? (w.rows + 1) / 2 : w.rows;
    gw_row_units u(halves ? team / 2 : team, halves ? w.teams / 2 : w.teams);
#pragma unroll 1
    for (u.settle(sets); u.outer < n; u.next(sets)) {
        const int page = first + u.outer, row = pairs ? 2 * u.row : u.row;
        const int last = pairs && row + 1 < w.rows ? row + 1 : row, more = last - row;
        const gw_row_page one(p, d, w, row, page);
        const gw_row_page two(p, d, w, last, page);
        const uint8_t *tile = tile_of<CELLS>(p, d, w, round, page);
        if (!one.seen() && !two.seen()) {
            continue;
        }
        if (pairs) {
            score_page<CELLS, 1, 2>(p, one, tile, 0, team % 2 * GW_LANES + one.lane, more * p.e,
                                    more * w.pages * GW_PAGE);
        } else if (halves) {
            score_page<CELLS, 1>(p, one, tile, 0, team % 2 * GW_LANES + one.lane);
        } else {
            score_page<CELLS, 2>(p, one, tile, 0, 2 * one.lane);
        }
    }
}

/* Values i and i + 1 of R rows and a page, whose weights a team has for itself, to `to`, rows
 * `apart`. What all rows see is added for all at once. */
template <class CELLS, int R>
__device__ static inline void mix_rows(const gw_attend_params &p, const uint8_t *tile,
                                       const float *weight, const int *from, const int *end, int i,
                                       float *to, int apart) {
    typedef gw_terms<CELLS, 2, R> terms;
    enum { TERMS = terms::TERMS };
    const int e = p.e, row = e * CELLS::BYTES, k = R - 1;
    const int low = from[0] < from[k] ? from[0] : from[k];
    const int high = end[0] > end[k] ? end[0] : end[k];
    const int all_from = from[0] + from[k] - low, all_end = end[0] + end[k] - high;
    const uint8_t *cells = tile + i * CELLS::BYTES, *scales = tile + GW_PAGE * row + i / 32 * 2;
    float o[2 * R] = {0.0f};
    terms one, two;
    const auto scale_of = [&](int j, float *scale) {
        if (CELLS::SCALED) { /* a row of V has one for both values */
            gw_cells_f16::read<1>(scales, j * (e / 32), scale);
            scale[1] = scale[0];
        }
    };
#pragma unroll 1
    for (int j = low / TERMS * TERMS; j < high;) {
        float scale[2] = {0.0f, 0.0f};
        one.ask(weight + j, cells + j * row, row, GW_PAGE);
        if (j < all_from || j + 2 * TERMS > all_end) {
#pragma unroll
            for (int c = 0; c < TERMS; c++) {
                scale_of(j + c, scale);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    if (j + c >= from[r] && j + c < end[r]) {
                        one.add_of(c, r, scale, o + 2 * r);
                    }
                }
            }
            j += TERMS;
            continue;
        }
#pragma unroll 1
        for (; j + 2 * TERMS <= all_end; j += 2 * TERMS) {
            two.ask(weight + j + TERMS, cells + (j + TERMS) * row, row, GW_PAGE);
#pragma unroll
            for (int c = 0; c < TERMS; c++) {
                scale_of(j + c, scale);
                one.add(c, scale, o);
            }
            const int next = j + 2 * TERMS < GW_PAGE ? j + 2 * TERMS : 0;
            one.ask(weight + next, cells + next * row, row, GW_PAGE);
#pragma unroll
            for (int c = 0; c < TERMS; c++) {
                scale_of(j + TERMS + c, scale);
                two.add(c, scale, o);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        const gw_f32s<2> both = {{o[2 * r], o[2 * r + 1]}};
        *(gw_f32s<2> *)(to + r * apart) = both;
    }
}

/* A round of V: a team per page, R rows and 64 values of the head, each with weights of its own
 * making. The sum of a page's weights is made by one more team, or where those are too many by the
 * one of the last values. waits: new cells are on their way into the tiles. */
template <class CELLS, int R>
__device__ static inline void do_v(const gw_attend_params &p, const gw_rows_desk &d,
                                   const gw_rows_work &w, int round, int waits) {
    enum { WIDE = 2 * GW_LANES };
    const int first = w.first_of(round), n = w.end_of(round) - first, lane = w.lane;
    const int slices = (int)((unsigned)(p.e + WIDE - 1) / WIDE), sets = (w.rows + R - 1) / R;
    const int units = n * sets, apart = units * (slices + 1) <= w.teams;
    const int all = units * (slices + apart), sums = slices - 1 + apart;
    float *mine = d.weight + w.team * 2 * GW_PAGE;
#pragma unroll 1
    for (int at = w.team; at < all || waits; at += w.teams) {
        gw_row_units u(at < all ? at : 0, 0);
        u.settle(units);
        const int slice = u.outer;
        u.outer = 0;
        u.settle(sets);
        const int page = first + u.outer, row = R * u.row;
        const int last = row + R <= w.rows ? row + R - 1 : row, more = last - row;
        const gw_row_page one(p, d, w, row, page);
        const gw_row_page two(p, d, w, last, page);
        const gw_weights a(one, one, 0), b(two, two, 0);
        if (waits) { /* the first time, of all teams */
            __syncthreads();
            waits = 0;
        }
        if (at >= all || (!one.seen() && !two.seen())) {
            continue;
        }
        if (slice < slices) {
            mine[lane] = a.weight[0];
            mine[lane + GW_LANES] = a.weight[1];
            if (R > 1) {
                mine[lane + GW_PAGE] = b.weight[0];
                mine[lane + GW_PAGE + GW_LANES] = b.weight[1];
            }
            gw_sync_team();
            const int i = slice * WIDE + 2 * lane;
            if (i < p.e) {
                const int from[2] = {one.begin, two.begin}, end[2] = {one.stop, two.stop};
                mix_rows<CELLS, R>(p, tile_of<CELLS>(p, d, w, round, page), mine, from, end, i,
                                   d.values + (row * w.pages + page) * p.e + i,
                                   more * w.pages * p.e);
            }
            gw_sync_team();
        }
        if (slice == sums) {
            const int to = row * w.pages + page;
            const float sum = gw_fold(a.weight[0] + a.weight[1]);
            d.top[to] = a.top; /* all lanes the same */
            d.sum[to] = sum;
            if (R > 1) {
                const float other_sum = gw_fold(b.weight[0] + b.weight[1]);
                d.top[to + more * w.pages] = b.top;
                d.sum[to + more * w.pages] = other_sum;
            }
        }
    }
}

/* A row's pages in order, a thread per value of the head. What a page counts for is made by the
 * lane of its number. */
GW_DEVICE void join_rows(const gw_attend_params &p, const gw_rows_desk &d, const gw_rows_work &w) {
    enum { AT_ONCE = 4 };
    const int lane = w.lane;
    gw_row_units u(w.team, w.teams);
#pragma unroll 1
    for (u.settle(w.rows); u.outer < w.blocks; u.next(w.rows)) {
        const gw_span span = w.span(p, u.row);
        const int i = u.outer * GW_LANES + lane, pages = span.last - span.first + 1;
        const int at = u.row * w.pages + span.first - w.first;
        const float top = lane < pages ? d.top[at + lane] : minus_infinity();
        const float page_sum = lane < pages ? d.sum[at + lane] : 0.0f;
        const float page_share = gw_exp(top - gw_team_top(top));
        const float *values = d.values + at * p.e + (i < p.e ? i : 0);
        float o = 0.0f, total = 0.0f;
#pragma unroll 1
        for (int page = 0; page < pages; page += AT_ONCE) {
            float share[AT_ONCE], sum[AT_ONCE], v[AT_ONCE];
#pragma unroll
            for (int c = 0; c < AT_ONCE; c++) {
                share[c] = gw_shuffle(page_share, page + c);
                sum[c] = gw_shuffle(page_sum, page + c);
                v[c] = values[(page + c < pages ? page + c : page) * p.e];
            }
#pragma unroll
            for (int c = 0; c < AT_ONCE; c++) {
                if (page + c < pages) {
                    total = GW_FMA(sum[c], share[c], total);
                    o = GW_FMA(v[c], share[c], o);
                }
            }
        }
        o = i < p.e ? o / total : 0.0f;
        const size_t to = ((size_t)(w.row + u.row) * p.heads + w.head) * p.e + i;
        if (p.act8) {
            gw_team_encode((gw_act8 *)p.out + to / GW_ACT_BLOCK, o);
        } else if (i < p.e) {
            ((float *)p.out)[to] = o;
        }
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Rounds of K and then of V; of each the tiles come while the one before is at work. */
template <class CELLS>
__device__ static inline void do_rounds(const gw_attend_params &p, const gw_rows_desk &d,
                                        const gw_rows_work &w, const gw_turned &t,
                                        const gw_placing &placing) {
    const int slices = (int)((unsigned)(p.e + 2 * GW_LANES - 1) / (2 * GW_LANES));
#pragma unroll 1
    for (int round = 0; round < 2 * w.rounds; round++) {
        const int fresh = w.fresh && w.end_of(round) > w.fresh_page;
        gw_copy_wait<1>();
        __syncthreads();
        if (round < w.rounds) {
            if (fresh) {
                place_k<CELLS>(p, d, w, placing, round);
                __syncthreads();
            }
            do_k<CELLS>(p, d, w, round);
        } else {
            const int pages = w.end_of(round) - w.first_of(round);
            if (fresh) {
                place_v<CELLS>(p, d, w, round);
            }
            if (w.rows == 1 || 2 * pages * slices * w.rows <= w.teams) {
                do_v<CELLS, 1>(p, d, w, round, fresh);
            } else {
                do_v<CELLS, 2>(p, d, w, round, fresh);
            }
        }
        if (w.turns && blockIdx.x == 0 && round == w.rounds - 1) {
            keep_rows<CELLS>(p, d, w, t);
        }
        if (round + 2 < 2 * w.rounds) {
            __syncthreads();
            fetch_round<CELLS>(p, d, w, round + 2, 0, w.pages);
        }
        gw_copy_commit();
    }
}

template <class CELLS> __device__ static inline void attend(const gw_attend_params &p) {
    GW_SHARED_DYNAMIC(uint8_t, shared);
    gw_grid_launch_dependents();
    gw_rows_work w(p); /* asks for what it needs of the step all at once */
    gw_turned values(p, w);
    const int begin = (int)blockIdx.y * p.block_has, most = begin + p.block_has;
    const int stop = w.live < most ? w.live : most;
    if (begin >= stop) {
        gw_grid_dependency_wait(); /* later kernels rely on this one for those before it */
        return;
    }
    for (int row = begin; row < stop; row += w.rows) {
        w.open(p, row, stop);
        const gw_rows_desk d(p, gw_shared_place(shared), tile_bytes<CELLS>(p), w.rows, w.pages);
        values.open(p, w);
        if (row > begin) {
            __syncthreads(); /* the rows before have been read */
        }
        /* Cells that no launch of this pass writes are read before the wait: with ROPE_KV all, for
         * new ones are made here; else pages that end in front of the step's rows. */
        const int early = w.turns       ? w.pages
                          : row > begin ? 0
                                        : (w.low + 1 - p.step.rows) / GW_PAGE - w.first;
        fetch_round<CELLS>(p, d, w, 0, 0, early);
        if (row == begin) {
            gw_grid_dependency_wait();
        }
        values.ask(p, w);
        fetch_round<CELLS>(p, d, w, 0, early > 0 ? early : 0, w.pages);
        gw_copy_commit();
        fetch_round<CELLS>(p, d, w, 1, 0, w.pages);
        gw_copy_commit();
        const gw_placing placing(w);
        take_rows<CELLS>(p, d, w, values);
        do_rounds<CELLS>(p, d, w, values, placing);
        __syncthreads();
        join_rows(p, d, w);
    }
}

#define KERNEL(format)                                                                             \
    GW_KERNEL(gw_attend_rows_##format, struct gw_attend_params, GW_BLOCK_THREADS) {                \
        attend<gw_cells_##format>(p);                                                              \
    }
KERNEL(f16)
KERNEL(f32)
KERNEL(q8_0)
