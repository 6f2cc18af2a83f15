/* kernels_hip/attention/attend_rows.hip - ATTENTION of several rows over few pages: as
 * attend_block.hip, but a block has several rows of a query head. Rows of one sequence look at the
 * same pages, so a tile is brought to shared memory once for all of them, and a team has two of
 * them at once where there is work enough; rows of other sequences come after one another. With
 * ROPE_KV a block makes the cells of all rows that its own look at, and puts them into its tiles as
 * these come; the first head of a group leaves those of the block's own rows in the caches. The
 * bits are those of attention.hip.
 */
#include "kernels_hip/attention/attend_leave.h"
#include "kernels_hip/attention/attend_rows.h"

static_assert(GW_ROWS_PAGES <= GW_PAGE_GROUP, "the pages of a row are joined as one group");

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
    const unsigned number = gw_ask_number(p);
    gw_row_units u(w.team, w.teams);
#pragma unroll 1
    for (u.settle(w.rows); u.outer < w.blocks; u.next(w.rows)) {
        const gw_span span = w.span(p, u.row);
        const int i = u.outer * GW_LANES + lane, pages = span.last - span.first + 1;
        const int at = u.row * w.pages + span.first - w.first;
        const float top = lane < pages ? d.top[at + lane] : minus_infinity();
        const float page_sum = lane < pages ? d.sum[at + lane] : 0.0f;
        const float best = gw_team_top(top), page_share = gw_exp(top - best);
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
        if (p.sinks) {
            add_sink(p.sinks[w.head], best, &o, &total);
        }
        o = i < p.e ? o / total : 0.0f;
        leave_value(p, p.form != GW_FORM_FLOATS, w.row + u.row, w.head, i, o, number);
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
            fetch_round<CELLS>(p, d, w, round + 2);
        }
        gw_copy_commit();
    }
}

template <class CELLS> __device__ static inline void attend(const gw_attend_params &p) {
    GW_SHARED_DYNAMIC(uint8_t, shared);
    gw_grid_launch_dependents();
    gw_rows_work w(p); /* asks for what it needs of the step all at once */
    gw_turned values(p, w);
    /* Fewer rows than the plan has are shared out evenly. */
    const int each = (int)((unsigned)(w.live + (int)gridDim.y - 1) / gridDim.y);
    const int begin = (int)blockIdx.y * each;
    const int stop = w.live < begin + each ? w.live : begin + each;
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
        /* No launch of the pass writes old cells, and new ones are put over what comes here, unless
         * a launch in front of this one has stored them. There is little that runs beside these
         * blocks, so what they do before the wait costs least. */
        if (row == begin && !w.turns) {
            gw_grid_dependency_wait();
        }
        fetch_round<CELLS>(p, d, w, 0);
        gw_copy_commit();
        const gw_placing placing(w);
        if (row == begin && w.turns) {
            gw_grid_dependency_wait();
        }
        values.ask(p, w); /* before V, which is wanted last */
        fetch_round<CELLS>(p, d, w, 1);
        gw_copy_commit();
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
