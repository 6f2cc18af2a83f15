/* kernels_hip/attention/attend_pages.h - how the teams of attention.hip go through pages, and how
 * these come to them and to those of attend_group.hip: K and V stream through a ring of chunks that
 * belongs to a team alone. Teams loop over pages, so any grid does.
 */
#ifndef GW_KERNELS_HIP_ATTEND_PAGES_H
#define GW_KERNELS_HIP_ATTEND_PAGES_H

#include "kernels_hip/attention/attention.h"

/* How pages come in pieces: what cut_pages of backends/hip/attention.c says, for widths that the
 * compiler knows as numbers; else, E 0, from the parameters. */
template <class CELLS, int E> struct gw_cut {
    enum {
        KNOWN = 1,
        CHUNK = LANES == 32 ? GW_ATTEND_CHUNK : GW_ATTEND_CHUNK_WIDE,
        K_MOST = CHUNK / (GW_PAGE * CELLS::BYTES), /* E / GW_ATTEND_LEAST is one block or less */
        V_MOST = CHUNK / (E * CELLS::BYTES),
        K_ROWS = K_MOST < E / GW_ATTEND_LEAST ? K_MOST : E / GW_ATTEND_LEAST,
        V_ROWS = V_MOST < GW_PAGE / GW_ATTEND_LEAST ? V_MOST : GW_PAGE / GW_ATTEND_LEAST,
        PIECES = E / K_ROWS + GW_PAGE / V_ROWS
    };
    static constexpr int e = E, k_rows = K_ROWS, v_rows = V_ROWS;
    static constexpr int k_bytes = K_ROWS * GW_PAGE * CELLS::BYTES;
    static constexpr int v_bytes = V_ROWS * E * CELLS::BYTES;
    static constexpr int k_chunks = E / K_ROWS, v_chunks = GW_PAGE / V_ROWS;
    static constexpr int codes = GW_PAGE * E * CELLS::BYTES;
    static constexpr int scale_bytes = CELLS::SCALED ? GW_PAGE * E / 32 * 2 : 0;
    static constexpr int chunk = k_bytes > v_bytes ? k_bytes : v_bytes;
    __device__ inline explicit gw_cut(const struct gw_attend_params &) {}
};
template <class CELLS> struct gw_cut<CELLS, 0> {
    enum { KNOWN = 0, CHUNK = GW_ATTEND_CHUNK, V_ROWS = 1, PIECES = 1 };
    int e, k_rows, v_rows, k_bytes, v_bytes, k_chunks, v_chunks, codes, scale_bytes, chunk;
    __device__ inline explicit gw_cut(const struct gw_attend_params &p)
        : e(p.e), k_rows(p.k_rows), v_rows(p.v_rows), k_bytes(p.k_bytes), v_bytes(p.v_bytes),
          k_chunks(p.k_chunks), v_chunks(p.v_chunks), codes(GW_PAGE * p.e * CELLS::BYTES),
          scale_bytes(p.scale_bytes), chunk(p.chunk) {}
};

/* Where in shared memory a team has what. */
template <int HEADS> struct gw_desk {
    gw_f32s<HEADS> *p;            /* [64] score, then weight of each position */
    gw_f32s<HEADS> *q;            /* [e]                                      */
    uint8_t *k_scales, *v_scales; /* of q8_0: of the page                     */
    uint8_t *k_fresh, *v_fresh;   /* the new position's cells, then scales    */
    uint8_t *ring;                /* chunks                                   */
};
template <int HEADS, class CUT>
__device__ static inline gw_desk<HEADS> desk_at(uint8_t *shared, const struct gw_attend_params &p,
                                                const CUT &c) {
    gw_desk<HEADS> d;
    shared += gw_team() * p.team_bytes;
    d.p = (gw_f32s<HEADS> *)shared;
    d.q = d.p + GW_PAGE;
    d.k_scales = (uint8_t *)d.q + GW_ATTEND_QUERIES(HEADS, c.e);
    d.v_scales = d.k_scales + c.scale_bytes;
    d.k_fresh = d.v_scales + c.scale_bytes;
    d.v_fresh = d.k_fresh + p.fresh_bytes;
    d.ring = d.v_fresh + p.fresh_bytes;
    return d;
}

/* A piece of work of a team: one row, one page, one KV head, up to HEADS query heads. */
struct gw_unit {
    int more; /* 0: nothing is left */
    int row, page;
    int place;            /* among the units of a row and page                         */
    int g, head, heads;   /* KV head; the first query head; how many                   */
    int value;            /* the first of the head's values to sum; all scores are made */
    int tile;             /* the page's number in the caches                           */
    const uint8_t *k, *v; /* what it has there, from this lane's first copy on         */
    gw_span span;
};

/* Where a unit's tile lies, now that its number is there. */
template <class CUT>
__device__ static inline void find_tile(const struct gw_attend_params &p, const CUT &c,
                                        gw_unit &u) {
    if (u.more) {
        const size_t bytes = (size_t)(c.codes + c.scale_bytes);
        const size_t at = ((size_t)u.tile * p.kv_heads + u.g) * bytes + 16 * gw_lane();
        u.k = (const uint8_t *)p.k + at;
        u.v = (const uint8_t *)p.v + at;
    }
}

/* Goes through the units of a team. They are counted by pages, rows, KV heads, tiles of heads and
 * slices of values, the last one fastest: rows that see the same page come at the same time. */
template <class CELLS, int HEADS, int PER, class CUT> struct gw_walk {
    int pages, rows, places; /* rows from row0 on; places: units of a row and page */
    int row0;
    int by_page, by_row, by_place; /* from one unit of the team to the next */

    __device__ inline gw_walk(const struct gw_attend_params &p, const CUT &c, int live) {
        const int stride = (int)gridDim.x * (GW_ATTEND_THREADS / GW_LANES);
        const int group = p.heads / p.kv_heads, seen = live - p.parts.row0;
        places = p.kv_heads * ((group + HEADS - 1) / HEADS) * slices(c);
        rows = seen < p.parts.rows ? seen : p.parts.rows;
        pages = rows > 0 ? p.step.step[GW_STEP_POS_MAX] / GW_PAGE + 1 : 0;
        rows = rows > 0 ? rows : 1;
        row0 = p.parts.row0;
        by_place = stride % places;
        by_row = stride / places % rows;
        by_page = stride / places / rows;
    }
    __device__ static inline int slices(const CUT &c) {
        return (c.e + PER * GW_LANES - 1) / (PER * GW_LANES);
    }
    __device__ inline gw_unit first(const struct gw_attend_params &p, const CUT &c) const {
        const int item = (int)blockIdx.x * (GW_ATTEND_THREADS / GW_LANES) + gw_team();
        gw_unit u;
        u.more = 1;
        u.place = item % places;
        u.row = row0 + item / places % rows;
        u.page = item / places / rows;
        locate(p, c, u);
        settle(p, c, u);
        find_tile(p, c, u);
        return u;
    }
    /* To find_tile() when the number of its tile has had the time to come. */
    __device__ inline gw_unit next(const struct gw_attend_params &p, const CUT &c,
                                   gw_unit u) const {
        advance(p, c, u);
        settle(p, c, u);
        return u;
    }

    __device__ inline void advance(const struct gw_attend_params &p, const CUT &c,
                                   gw_unit &u) const {
        u.place += by_place;
        u.row += by_row;
        u.page += by_page;
        if (u.place >= places) {
            u.place -= places;
            u.row++;
        }
        if (u.row >= row0 + rows) {
            u.row -= rows;
            u.page++;
        }
        if (by_place != 0) {
            locate(p, c, u);
        }
    }
    __device__ inline void locate(const struct gw_attend_params &p, const CUT &c,
                                  gw_unit &u) const {
        const int group = p.heads / p.kv_heads, tiles = (group + HEADS - 1) / HEADS;
        const int tile = u.place / slices(c) % tiles;
        u.g = u.place / slices(c) / tiles;
        u.head = u.g * group + tile * HEADS;
        u.heads = group - tile * HEADS < HEADS ? group - tile * HEADS : HEADS;
        u.value = u.place % slices(c) * (PER * GW_LANES);
    }
    /* Past units whose row does not see the page. */
    __device__ inline void settle(const struct gw_attend_params &p, const CUT &c,
                                  gw_unit &u) const {
        for (;; advance(p, c, u)) {
            if (u.page >= pages) {
                u.more = 0;
                return;
            }
            u.span = span_of(p.step, u.row, p.window);
            if (u.page >= u.span.first && u.page <= u.span.last) {
                break;
            }
        }
        const int slot = gw_step_slot(p.step, u.row);
        u.tile = p.pages[(size_t)slot * p.table_stride + u.page];
    }
};

/* This lane's part of `bytes`, MOST or less, on their way to shared memory. */
template <int MOST>
__device__ static inline void copy_to(gw_shared_at to, const uint8_t *from, int bytes) {
    enum { STEP = GW_LANES * 16, AT_ONCE = MOST > STEP ? MOST / STEP : 1 };
    int i = 0;
#pragma unroll(AT_ONCE)
    for (; i + STEP <= bytes; i += STEP) {
        gw_copy_async(to + i, from + i);
    }
    if (i < bytes && 16 * gw_lane() < bytes - i) {
        gw_copy_async(to + i, from + i);
    }
}

/* The ring of a team. A page is k_chunks pieces of K, then v_chunks pieces of V; the first of each
 * brings the scales. Before a chunk is read: step(); it has come then, and the one that lies
 * STAGES - 1 further on is on its way. STAGES 0: the chunks of a page; the next page's come behind
 * open(). */
template <class CELLS, class CUT, int STAGES> struct gw_ring {
    gw_shared_at to, k_scales, v_scales; /* for this lane's copies */
    const uint8_t *places;
    const uint8_t *from, *end; /* what to ask for next, and where that K or V ends */
    int now, before;           /* places of the chunk to read and of the one read before it */

    template <class DESK> __device__ inline explicit gw_ring(const DESK &d) {
        const int lane = 16 * gw_lane();
        to = gw_shared_address(d.ring) + lane;
        k_scales = gw_shared_address(d.k_scales) + lane;
        v_scales = gw_shared_address(d.v_scales) + lane;
        places = gw_shared_place(d.ring);
        gw_have(to);
        now = before = 0;
        from = end = 0;
    }
    /* A chunk of V or of K, to a place. */
    __device__ inline void ask(const CUT &c, int is_v, int place) {
        const int each = is_v ? c.v_bytes : c.k_bytes;
        copy_to<CUT::CHUNK>(to + place, from,
                            CUT::KNOWN || end - from >= each ? each : (int)(end - from));
        from += each;
    }
    __device__ inline void begin(const CUT &c, int is_v, const uint8_t *tile) {
        from = tile;
        end = from + c.codes;
        if (CELLS::SCALED) {
            copy_to<GW_PAGE * 8>(is_v ? v_scales : k_scales, end, c.scale_bytes);
        }
    }
    __device__ inline void open(const CUT &c, const uint8_t *tile, const uint8_t *v) {
        begin(c, 0, tile);
        if (STAGES == 0) {
#pragma unroll
            for (int i = 0; i < c.k_chunks + c.v_chunks; i++) {
                if (i == c.k_chunks) {
                    begin(c, 1, v);
                }
                ask(c, i >= c.k_chunks, i * c.chunk);
                gw_copy_commit();
            }
            return;
        }
        for (int i = 0; i < STAGES - 1; i++) {
            ask(c, 0, i * c.chunk);
            gw_copy_commit();
        }
        before = (STAGES - 1) * c.chunk;
    }
    /* left: chunks of this K or V from here on; what follows it, if `more`, is at `next`. */
    template <int IS_V>
    __device__ inline const uint8_t *step(const CUT &c, int left, int more, const uint8_t *next) {
        if (STAGES == 0) {
            gw_copy_wait<CUT::PIECES - 1>();
            gw_sync_team();
            gw_copy_commit(); /* so that the next step waits for one more */
            before = now;
            now = now + c.chunk < CUT::PIECES * c.chunk ? now + c.chunk : 0;
            return places + before;
        }
        gw_copy_wait<STAGES - 2>();
        gw_sync_team();
        if (left >= STAGES || !IS_V || more) {
            if (left == STAGES - 1) {
                begin(c, !IS_V, next);
            }
            ask(c, (left < STAGES) != IS_V, before);
        }
        gw_copy_commit();
        before = now;
        now = now + c.chunk < STAGES * c.chunk ? now + c.chunk : 0;
        return places + before;
    }
};

#endif
