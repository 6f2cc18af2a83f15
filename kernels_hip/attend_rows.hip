/* kernels_hip/attend_rows.hip - ATTENTION of several rows over few pages: as attend_block.hip, but
 * a block has several rows of a query head. Rows of one sequence look at the same pages, so a tile
 * is brought to shared memory once for all of them; rows of other sequences come after one another.
 * The bits are those of attention.hip.
 */
#include "kernels_hip/attend_tile.h"

enum { BATCH = 16 };

GW_DEVICE void read_head(float *to, const float *from, int e) {
#pragma unroll 1
    for (int i = 4 * gw_lane(); i < e; i += 4 * GW_LANES) {
        *(gw_f32s<4> *)(to + i) = *(const gw_f32s<4> *)(from + i);
    }
    gw_sync_team();
}

/* Four more terms of the chains over the head's values, from value i on. */
template <class CELLS>
__device__ static inline void score_four(const float *q, const uint8_t *tile, int i, int j,
                                         const float *scale, float *s) {
    const gw_f32s<4> four = *(const gw_f32s<4> *)(q + i);
#pragma unroll
    for (int c = 0; c < 4; c++) {
        float x[2];
        CELLS::template read<2>(tile, (i + c) * GW_PAGE + j, x);
        s[0] = GW_FMA(four.v[c], CELLS::SCALED ? scale[0] * x[0] : x[0], s[0]);
        s[1] = GW_FMA(four.v[c], CELLS::SCALED ? scale[1] * x[1] : x[1], s[1]);
    }
}

/* Where the block has what of the rows of one sequence. */
struct gw_rows_desk {
    float *q;                 /* [rows, e]         */
    float *weight;            /* [rows, pages, 64] */
    float *values;            /* [rows, pages, e]  */
    float *top, *sum, *share; /* [rows, pages]     */
    float *total;             /* [rows]            */
    uint8_t *tiles;           /* [slots]: of K or V, one after the other */

    __device__ inline gw_rows_desk(uint8_t *shared, int e, int rows, int pages) {
        q = (float *)shared;
        weight = q + rows * e;
        values = weight + rows * pages * GW_PAGE;
        top = values + rows * pages * e;
        sum = top + rows * pages;
        share = sum + rows * pages;
        total = share + rows * pages;
        tiles = shared + GW_ROWS_DESK(e, rows, pages);
    }
};

/* Rows of one sequence, next to one another, and the pages that any of them sees. */
struct gw_rows_work {
    int row, rows, head, g; /* g: KV head */
    int first, pages;
    int rounds, at_once; /* rounds of K, of as many pages as half of the slots hold; as many of V */
    int low;             /* lowest position */
    const int32_t *table; /* from the first page on */

    /* As many rows from `from` on, below `end`, as there are of its sequence. */
    __device__ inline void open(const gw_attend_params &p, int from, int end) {
        const int slot = gw_step_slot(p.step, from);
        gw_span span = span_of(p.step, from, p.window);
        int last = span.last;
        row = from;
        g = (int)blockIdx.z;
        head = g * (int)gridDim.x + (int)blockIdx.x;
        first = span.first;
        low = span.pos;
        for (rows = 1; from + rows < end && gw_step_slot(p.step, from + rows) == slot; rows++) {
            span = span_of(p.step, from + rows, p.window);
            first = span.first < first ? span.first : first;
            last = span.last > last ? span.last : last;
            low = span.pos < low ? span.pos : low;
        }
        pages = last - first + 1;
        at_once = p.slots / 2;
        for (rounds = 1; rounds * at_once < pages; rounds++) { /* divisions take longer */
        }
        table = p.pages + (size_t)slot * p.table_stride + first;
    }
    __device__ inline int first_of(int round) const { /* round: less than twice as many */
        return (round < rounds ? round : round - rounds) * at_once;
    }
    __device__ inline int end_of(int round) const {
        const int end = first_of(round) + at_once;
        return end < pages ? end : pages;
    }
    /* Positions [from, end) of a page that a row sees; none when from >= end. */
    __device__ inline int from(const gw_span &span, int page) const {
        const int base = (first + page) * GW_PAGE;
        return span.lo > base ? span.lo - base : 0;
    }
    __device__ inline int end(const gw_span &span, int page) const {
        const int end = span.pos - (first + page) * GW_PAGE + 1;
        return end < GW_PAGE ? end : GW_PAGE;
    }
};

/* Units of work as (number / rows, number % rows), every teams()-th one. */
struct gw_row_units {
    int outer, row;

    __device__ inline gw_row_units(void) : outer(0), row(gw_team()) {}
    __device__ inline void settle(int rows) { /* divisions take longer */
        while (row >= rows) {
            row -= rows;
            outer++;
        }
    }
    __device__ inline void next(int rows) {
        row += teams();
        settle(rows);
    }
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
        const uint8_t *tile = cache + ((size_t)w.table[page] * p.kv_heads + w.g) * (size_t)bytes;
        fetch_tile(to, tile, bytes);
    }
}

/* The scores of a row and page, two of a lane, and what softmax makes of them; a team. `at`: number
 * of the row's page. */
template <class CELLS>
__device__ static inline void weigh_row(const gw_attend_params &p, const gw_rows_desk &d,
                                        const float *q, const uint8_t *tile, int at, int from,
                                        int end) {
    const int lane = gw_lane(), j = 2 * lane, e = p.e;
    const uint8_t *scales = tile + GW_PAGE * e * CELLS::BYTES;
    float s[2] = {0.0f, 0.0f}, scale[2] = {0.0f, 0.0f}, best = minus_infinity();
#pragma unroll 4
    for (int i = 0; i < e; i += 4) {
        if (CELLS::SCALED && i % 32 == 0) {
            gw_cells_f16::read<2>(scales, i / 32 * GW_PAGE + j, scale);
        }
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
        d.weight[at * GW_PAGE + j + c] = s[c];
        s[c] = gw_fold(s[c]);
    }
    if (lane == 0) {
        d.top[at] = top;
        d.sum[at] = s[0] + s[1];
    }
}

/* Values i and i + 1 of a row and page. */
template <class CELLS>
__device__ static inline void mix_row(const gw_attend_params &p, const gw_rows_desk &d,
                                      const uint8_t *tile, int at, int from, int end, int i) {
    const int e = p.e;
    const uint8_t *scales = tile + GW_PAGE * e * CELLS::BYTES;
    const float *weight = d.weight + at * GW_PAGE;
    float o[2] = {0.0f, 0.0f};
#pragma unroll 8
    for (int j = from; j < end; j++) {
        mix_one<CELLS>(tile, j * e + i, scales, j * (e / 32) + i / 32, weight[j], o);
    }
    const gw_f32s<2> both = {{o[0], o[1]}};
    *(gw_f32s<2> *)(d.values + at * e + i) = both;
}

/* What each page of a row counts for, and the sum of all; a team. Pages [first, end) are seen. */
GW_DEVICE void share_pages(const gw_rows_desk &d, int row, int pages, int first, int end) {
    const int at = row * pages;
    float best = minus_infinity(), total = 0.0f;
#pragma unroll 1
    for (int page = first + gw_lane(); page < end; page += GW_LANES) {
        best = larger(best, d.top[at + page]);
    }
    best = team_top(best);
#pragma unroll 1
    for (int page = first + gw_lane(); page < end; page += GW_LANES) {
        d.share[at + page] = gw_exp(d.top[at + page] - best);
    }
    gw_sync_team();
#pragma unroll 1
    for (int page = first; page < end; page++) {
        total = GW_FMA(d.sum[at + page], d.share[at + page], total);
    }
    if (gw_lane() == 0) {
        d.total[row] = total;
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* A round of K: a team per page and row. */
template <class CELLS>
__device__ static inline void do_k(const gw_attend_params &p, const gw_rows_desk &d,
                                   const gw_rows_work &w, const gw_span *spans, int round) {
    const int first = w.first_of(round), n = w.end_of(round) - first;
    gw_row_units u;
#pragma unroll 1
    for (u.settle(w.rows); u.outer < n; u.next(w.rows)) {
        const int page = first + u.outer;
        const int from = w.from(spans[u.row], page), end = w.end(spans[u.row], page);
        if (from < end) {
            weigh_row<CELLS>(p, d, d.q + u.row * p.e, tile_of<CELLS>(p, d, w, round, page),
                             u.row * w.pages + page, from, end);
        }
    }
}

/* A round of V: a team per page, row and 64 values of the head; the last teams before that see what
 * pages count for. */
template <class CELLS>
__device__ static inline void do_v(const gw_attend_params &p, const gw_rows_desk &d,
                                   const gw_rows_work &w, const gw_span *spans, int round) {
    enum { WIDE = 2 * GW_LANES };
    const int first = w.first_of(round), n = w.end_of(round) - first;
    const int slices = (p.e + WIDE - 1) / WIDE;
    if (round == w.rounds) {
#pragma unroll 1
        for (int row = teams() - 1 - gw_team(); row < w.rows; row += teams()) {
            share_pages(d, row, w.pages, spans[row].first - w.first, spans[row].last - w.first + 1);
        }
    }
    gw_row_units u;
#pragma unroll 1
    for (u.settle(w.rows); u.outer < n * slices; u.next(w.rows)) {
        int page = first + u.outer, i = 2 * gw_lane();
        for (; page >= first + n; page -= n) {
            i += WIDE;
        }
        const int from = w.from(spans[u.row], page), end = w.end(spans[u.row], page);
        if (from < end && i < p.e) {
            mix_row<CELLS>(p, d, tile_of<CELLS>(p, d, w, round, page), u.row * w.pages + page, from,
                           end, i);
        }
    }
}

/* A row's pages in order, a thread per value of the head. */
GW_DEVICE void join_rows(const gw_attend_params &p, const gw_rows_desk &d, const gw_rows_work &w,
                         const gw_span *spans) {
    const int wide = (p.e + GW_LANES - 1) / GW_LANES; /* teams of a row */
    gw_row_units u;                                   /* of 32 values   */
#pragma unroll 1
    for (u.settle(w.rows); u.outer < wide; u.next(w.rows)) {
        const int i = u.outer * GW_LANES + gw_lane(), at = u.row * w.pages;
        float o = 0.0f;
#pragma unroll 1
        for (int page = spans[u.row].first - w.first; page <= spans[u.row].last - w.first; page++) {
            o = GW_FMA(i < p.e ? d.values[(at + page) * p.e + i] : 0.0f, d.share[at + page], o);
        }
        o = o / d.total[u.row];
        const size_t to = ((size_t)(w.row + u.row) * p.heads + w.head) * p.e + i;
        if (p.act8) {
            gw_team_encode((gw_act8 *)p.out + to / GW_ACT_BLOCK, o);
        } else if (i < p.e) {
            ((float *)p.out)[to] = o;
        }
    }
}

template <class CELLS> __device__ static inline void attend(const gw_attend_params &p) {
    GW_SHARED_DYNAMIC(uint8_t, shared);
    __shared__ gw_span spans[GW_ROWS_MOST];
    gw_grid_launch_dependents();
    const int begin = (int)blockIdx.y * p.block_has, most = begin + p.block_has;
    const int live = gw_live(p.step), stop = live < most ? live : most;
    if (begin >= stop) {
        gw_grid_dependency_wait(); /* later kernels rely on this one for those before it */
        return;
    }
    gw_rows_work w;
    for (int row = begin; row < stop; row += w.rows) {
        w.open(p, row, stop);
        const gw_rows_desk d(shared, p.e, w.rows, w.pages);
        /* Pages that end in front of the step's rows no launch of this pass writes. */
        const int old = row > begin ? 0 : (w.low + 1 - p.step.rows) / GW_PAGE - w.first;
        if (row == begin) {
            fetch_round<CELLS>(p, d, w, 0, 0, old);
            gw_grid_dependency_wait();
        } else {
            __syncthreads(); /* the rows before have been read */
        }
        fetch_round<CELLS>(p, d, w, 0, old > 0 ? old : 0, w.pages);
        gw_copy_commit();
        fetch_round<CELLS>(p, d, w, 1, 0, w.pages);
        gw_copy_commit();
        if ((int)threadIdx.x < w.rows) {
            spans[threadIdx.x] = span_of(p.step, row + (int)threadIdx.x, p.window);
        }
        for (int r = gw_team(); r < w.rows; r += teams()) {
            read_head(d.q + r * p.e, p.q + ((size_t)(row + r) * p.heads + w.head) * p.e, p.e);
        }
#pragma unroll 1
        for (int round = 0; round < 2 * w.rounds; round++) {
            gw_copy_wait<1>();
            __syncthreads();
            if (round < w.rounds) {
                do_k<CELLS>(p, d, w, spans, round);
            } else {
                do_v<CELLS>(p, d, w, spans, round);
            }
            if (round + 2 < 2 * w.rounds) {
                __syncthreads();
                fetch_round<CELLS>(p, d, w, round + 2, 0, w.pages);
            }
            gw_copy_commit();
        }
        __syncthreads();
        join_rows(p, d, w, spans);
    }
}

#define KERNEL(format)                                                                             \
    GW_KERNEL(gw_attend_rows_##format, struct gw_attend_params, GW_BLOCK_THREADS) {                \
        attend<gw_cells_##format>(p);                                                              \
    }
KERNEL(f16)
KERNEL(f32)
KERNEL(q8_0)
