/* kernels_hip/attention.hip - ATTENTION in two steps: pages on their own, then joined in order
 * (docs/arithmetic.md, section 5).
 *
 * attend: a team takes one page of one KV head and up to 8 query heads of that group. A lane has
 * two positions while scores are made, and neighbours of the head while the page's values are
 * summed, for all heads at once: every chain of the arithmetic stays in one thread, and what is
 * read from shared memory serves many chains (reading it is what limits this kernel). K and V
 * stream through a ring of chunks that belongs to the team alone; teams loop over pages, so any
 * grid does. A step of one row brings ROPE_KV along: teams make their queries from q, k and v
 * themselves, and who has the last page puts the new position's cells over what came from the
 * cache. join, a launch of its own: a block takes 32 values of one head over all pages: one team
 * carries the chain, others fetch ahead; pages are weighed in batches. Fewer pages have kernels
 * that join them themselves: attend_block.hip, attend_split.hip.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention.h"

/* ---- attend ---------------------------------------------------------------------------------- */

/* How pages come in pieces: what cut_pages of backends/hip/attention.c says, for widths that the
 * compiler knows as numbers; else, E 0, from the parameters. */
template <class CELLS, int E> struct gw_cut {
    enum {
        KNOWN = 1,
        CHUNK = LANES == 32 ? GW_ATTEND_CHUNK : GW_ATTEND_CHUNK_WIDE,
        K_MOST = CHUNK / (GW_PAGE * CELLS::BYTES),
        V_MOST = CHUNK / (E * CELLS::BYTES),
        K_ROWS = K_MOST < E / GW_ATTEND_LEAST ? K_MOST : E / GW_ATTEND_LEAST,
        V_ROWS = V_MOST < GW_PAGE / GW_ATTEND_LEAST ? V_MOST : GW_PAGE / GW_ATTEND_LEAST
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
    enum { KNOWN = 0, CHUNK = GW_ATTEND_CHUNK, V_ROWS = 1 };
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
    uint8_t *ring;                /* GW_ATTEND_STAGES chunks                  */
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
        find(p, c, u);
        return u;
    }
    /* To find() when the number of its tile has had the time to come. */
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
    __device__ inline void find(const struct gw_attend_params &p, const CUT &c, gw_unit &u) const {
        if (u.more) {
            const size_t bytes = (size_t)(c.codes + c.scale_bytes);
            const size_t at = ((size_t)u.tile * p.kv_heads + u.g) * bytes + 16 * gw_lane();
            u.k = (const uint8_t *)p.k + at;
            u.v = (const uint8_t *)p.v + at;
        }
    }
};

/* This lane's part of `bytes`, MOST or less, on their way to shared memory. */
template <int MOST>
__device__ static inline void copy_to(gw_shared_at to, const uint8_t *from, int bytes,
                                      gw_once once) {
    enum { STEP = GW_LANES * 16, AT_ONCE = MOST > STEP ? MOST / STEP : 1 };
    int i = 0;
#pragma unroll(AT_ONCE)
    for (; i + STEP <= bytes; i += STEP) {
        gw_copy_async_once(to + i, from + i, once);
    }
    if (i < bytes && 16 * gw_lane() < bytes - i) {
        gw_copy_async_once(to + i, from + i, once);
    }
}

/* The ring of a team. A page is k_chunks pieces of K, then v_chunks pieces of V; the first of each
 * brings the scales. Before a chunk is read: step(); it has come then, and the one that lies
 * GW_ATTEND_STAGES - 1 further on is on its way. */
template <class CELLS, class CUT> struct gw_ring {
    gw_shared_at to, k_scales, v_scales; /* for this lane's copies */
    const uint8_t *places;
    const uint8_t *from, *end; /* what to ask for next, and where that K or V ends */
    gw_once once;
    int now, before; /* places of the chunk to read and of the one read before it */

    template <class DESK> __device__ inline explicit gw_ring(const DESK &d) {
        const int lane = 16 * gw_lane();
        to = gw_shared_address(d.ring) + lane;
        k_scales = gw_shared_address(d.k_scales) + lane;
        v_scales = gw_shared_address(d.v_scales) + lane;
        places = gw_shared_place(d.ring);
        once = gw_read_once();
        gw_have(to);
        now = before = 0;
    }
    /* A chunk of V or of K, to a place. */
    __device__ inline void ask(const CUT &c, int is_v, int place) {
        const int each = is_v ? c.v_bytes : c.k_bytes;
        copy_to<CUT::CHUNK>(to + place, from,
                            CUT::KNOWN || end - from >= each ? each : (int)(end - from), once);
        from += each;
    }
    __device__ inline void begin(const CUT &c, int is_v, const uint8_t *tile) {
        from = tile;
        end = from + c.codes;
        if (CELLS::SCALED) {
            copy_to<GW_PAGE * 8>(is_v ? v_scales : k_scales, end, c.scale_bytes, once);
        }
    }
    __device__ inline void open(const CUT &c, const uint8_t *tile) {
        begin(c, 0, tile);
        for (int i = 0; i < GW_ATTEND_STAGES - 1; i++) {
            ask(c, 0, i * c.chunk);
            gw_copy_commit();
        }
        before = (GW_ATTEND_STAGES - 1) * c.chunk;
    }
    /* left: chunks of this K or V from here on; what follows it, if `more`, is at `next`. */
    template <int IS_V>
    __device__ inline const uint8_t *step(const CUT &c, int left, int more, const uint8_t *next) {
        gw_copy_wait<GW_ATTEND_STAGES - 2>();
        gw_sync_team();
        if (left >= GW_ATTEND_STAGES || !IS_V || more) {
            if (left == GW_ATTEND_STAGES - 1) {
                begin(c, !IS_V, next);
            }
            ask(c, (left < GW_ATTEND_STAGES) != IS_V, before);
        }
        gw_copy_commit();
        before = now;
        now = now + c.chunk < GW_ATTEND_STAGES * c.chunk ? now + c.chunk : 0;
        return places + before;
    }
};

/* Neighbouring rows whose factors, HEADS of each, are read together: 16 bytes where a lane's
 * shares of rows are as many. */
template <int HEADS, class CUT, int MOST> struct gw_side {
    enum { FIT = CUT::KNOWN && HEADS < 4 ? 4 / HEADS : 1, ROWS = FIT < MOST ? FIT : MOST };
    typedef gw_f32s<HEADS * ROWS> factors;
};

/* Rows of chunk number n of K. */
template <class CUT> __device__ static inline int chunk_rows(const CUT &c, int n) {
    const int left = c.e - n * c.k_rows;
    return CUT::KNOWN || left >= c.k_rows ? c.k_rows : left;
}

/* Chains over the rows of chunk number n of K, all of one block of 32, for this lane's two
 * positions. */
template <class CELLS, int HEADS, class CUT>
__device__ static inline void score_chunk(const CUT &c, const gw_desk<HEADS> &d,
                                          const uint8_t *chunk, int n, float (*s)[2]) {
    typedef gw_side<HEADS, CUT, 4> side;
    enum { AT_ONCE = (CUT::KNOWN && LANES == 32 ? 16 : 8) / side::ROWS };
    const int j = 2 * gw_lane(), i0 = n * c.k_rows, rows = chunk_rows(c, n);
    gw_scale scales[2];
    if (CELLS::SCALED) {
        float of[2];
        gw_cells_f16::read<2>(d.k_scales, i0 / 32 * GW_PAGE + j, of);
        scales[0] = gw_scale(of[0]);
        scales[1] = gw_scale(of[1]);
    }
#pragma unroll(AT_ONCE)
    for (int i = 0; i < rows; i += side::ROWS) {
        const typename side::factors q = *(const typename side::factors *)(d.q + i0 + i);
#pragma unroll
        for (int r = 0; r < side::ROWS; r++) {
            float k[2];
            CELLS::template read_scaled<2>(chunk, (i + r) * GW_PAGE + j, scales, k);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                s[h][0] = GW_FMA(q.v[r * HEADS + h], k[0], s[h][0]);
                s[h][1] = GW_FMA(q.v[r * HEADS + h], k[1], s[h][1]);
            }
        }
    }
}

/* Scores of positions 2 lane, 2 lane + 1 -> weights in d.p; top and sum of the page, of head
 * lane / (GW_LANES / HEADS). For that a lane has positions of one head, every SHARE-th. */
template <int HEADS>
__device__ static inline void weigh(const gw_desk<HEADS> &d, const float (*s)[2], int from, int end,
                                    float scale, float *top, float *sum) {
    enum { SHARE = GW_LANES / HEADS, N = GW_PAGE / SHARE };
    const int lane = gw_lane(), h = lane / SHARE, j = lane % SHARE;
    const unsigned seen = (unsigned)(end - from);
    float *mine = (float *)d.p + j * HEADS + h, p[N];
#pragma unroll
    for (int c = 0; c < 2; c++) {
        gw_f32s<HEADS> all;
#pragma unroll
        for (int k = 0; k < HEADS; k++) {
            all.v[k] = s[k][c] * scale;
        }
        d.p[2 * lane + c] = all;
    }
    gw_sync_team();
    float best = minus_infinity();
#pragma unroll
    for (int k = 0; k < N; k++) {
        p[k] = mine[k * GW_LANES];
        best = (unsigned)(j + k * SHARE - from) < seen && p[k] > best ? p[k] : best;
    }
#pragma unroll
    for (int by = SHARE / 2; by > 0; by /= 2) {
        best = larger(best, gw_shuffle_xor(best, by));
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float weight = exp_below(p[k] - best);
        p[k] = (unsigned)(j + k * SHARE - from) < seen ? weight : 0.0f;
        mine[k * GW_LANES] = p[k];
    }
#pragma unroll
    for (int by = N / 2; by > 0; by /= 2) { /* the fold: positions 32 apart, then 16, ... */
#pragma unroll
        for (int k = 0; k < by; k++) {
            p[k] = p[k] + p[k + by];
        }
    }
#pragma unroll
    for (int by = SHARE / 2; by > 0; by /= 2) {
        p[0] = p[0] + gw_shuffle_xor(p[0], by);
    }
    *top = best;
    *sum = p[0];
}

/* Terms of positions j .. j + SIDE - 1 in the chains of PER values of the head from i on; the chunk
 * begins at position j0. */
template <class CELLS, int HEADS, int PER, int SIDE>
__device__ static inline void mix_rows(const gw_desk<HEADS> &d, const uint8_t *chunk, int e, int i,
                                       int j0, int j, float (*o)[PER]) {
    typedef gw_f32s<HEADS * SIDE> factors;
    const factors p = *(const factors *)(d.p + j);
#pragma unroll
    for (int r = 0; r < SIDE; r++) {
        gw_scale scales[PER];
        if (CELLS::SCALED) {
            float of;
            gw_cells_f16::read<1>(d.v_scales, (j + r) * (e / 32) + i / 32, &of);
#pragma unroll
            for (int c = 0; c < PER; c++) {
                scales[c] = gw_scale(of);
            }
        }
        float v[PER];
        CELLS::template read_scaled<PER>(chunk, (j + r - j0) * e + i, scales, v);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
#pragma unroll
            for (int c = 0; c < PER; c++) {
                o[h][c] = GW_FMA(p.v[r * HEADS + h], v[c], o[h][c]);
            }
        }
    }
}

/* Chains over the positions of [from, end) in a chunk that begins at position j0. Where all are, as
 * in nearly every chunk, the loop has a known length. */
template <class CELLS, int HEADS, int PER, class CUT>
__device__ static inline void mix_chunk(const CUT &c, const gw_desk<HEADS> &d, const uint8_t *chunk,
                                        int i, int j0, int from, int end, float (*o)[PER]) {
    typedef gw_side<HEADS, CUT, CUT::V_ROWS> side;
    enum {
        FEW = LANES == 64 && HEADS * PER == 32 ? 4 : 8, /* eight spill on gfx90a */
        AT_ONCE = FEW > side::ROWS ? FEW / side::ROWS : 1,
        BY_ONE = CUT::KNOWN ? 1 : FEW
    };
    if (CUT::KNOWN && from <= j0 && j0 + c.v_rows <= end) {
#pragma unroll(AT_ONCE)
        for (int j = 0; j < c.v_rows; j += side::ROWS) {
            mix_rows<CELLS, HEADS, PER, side::ROWS>(d, chunk, c.e, i, j0, j0 + j, o);
        }
        return;
    }
    const int first = from > j0 ? from : j0, last = end < j0 + c.v_rows ? end : j0 + c.v_rows;
#pragma unroll(BY_ONE)
    for (int j = first; j < last; j++) {
        mix_rows<CELLS, HEADS, PER, 1>(d, chunk, c.e, i, j0, j, o);
    }
}

/* ---- ROPE_KV of a step of one row ------------------------------------------------------------ */

/* The new position's k and v -> cells in d.k_fresh, d.v_fresh, scales behind e floats; the first
 * unit of its page stores them. */
template <class CELLS, int HEADS>
__device__ static inline void make_fresh(const struct gw_attend_params &p, const gw_desk<HEADS> &d,
                                         const gw_unit &u) {
    typedef typename CELLS::put::cell cell;
    const int group = p.heads / p.kv_heads, g = u.head / group, e = p.e, lane = gw_lane();
    const int j = u.span.pos % GW_PAGE;
    const float *k = p.turn.in + ((size_t)u.row * (p.heads + 2 * p.kv_heads) + p.heads + g) * e;
    gw_sync_team(); /* the unit before has used them */
#pragma unroll 4
    for (int i = lane; i < e; i += GW_LANES) {
        ((float *)d.k_fresh)[i] = k[i];
        ((float *)d.v_fresh)[i] = k[p.kv_heads * e + i];
    }
    turn_heads<1>(p.turn, (gw_f32s<1> *)d.k_fresh, p.turn.k_norm,
                  p.turn.table + (size_t)u.span.pos * p.turn.rope_dim);
    narrow_head<CELLS>(d.k_fresh, e);
    narrow_head<CELLS>(d.v_fresh, e);
    if (u.value != 0 || u.head != g * group) {
        return;
    }
#pragma unroll 1
    for (int is_v = 0; is_v < 2; is_v++) {
        const uint8_t *fresh = is_v ? d.v_fresh : d.k_fresh;
        uint8_t *tile = (uint8_t *)(is_v ? u.v : u.k) - 16 * lane;
        gw_u16 *scales = (gw_u16 *)(tile + GW_PAGE * e * CELLS::BYTES);
        for (int i = lane; i < e; i += GW_LANES) {
            ((cell *)tile)[is_v ? j * e + i : i * GW_PAGE + j] = ((const cell *)fresh)[i];
        }
        for (int b = lane; CELLS::SCALED && b < e / 32; b += GW_LANES) {
            scales[is_v ? j * (e / 32) + b : b * GW_PAGE + j] =
                ((const gw_u16 *)(fresh + 4 * e))[b];
        }
    }
}

/* The new position's cells into a chunk of K that begins at value i0; its scales with the first. */
template <class CELLS, int HEADS>
__device__ static inline void patch_k(const struct gw_attend_params &p, const gw_desk<HEADS> &d,
                                      const uint8_t *chunk, int i0, int rows, int j) {
    typedef typename CELLS::put::cell cell;
    const cell *fresh = (const cell *)d.k_fresh;
    for (int i = gw_lane(); i < rows; i += GW_LANES) {
        ((cell *)chunk)[i * GW_PAGE + j] = fresh[i0 + i];
    }
    for (int b = gw_lane(); CELLS::SCALED && i0 == 0 && b < p.e / 32; b += GW_LANES) {
        ((gw_u16 *)d.k_scales)[b * GW_PAGE + j] = ((const gw_u16 *)(d.k_fresh + 4 * p.e))[b];
    }
    gw_sync_team();
}
/* The same of V, in a chunk that begins at position j0. */
template <class CELLS, int HEADS>
__device__ static inline void patch_v(const struct gw_attend_params &p, const gw_desk<HEADS> &d,
                                      const uint8_t *chunk, int j0, int rows, int j) {
    typedef typename CELLS::put::cell cell;
    const cell *fresh = (const cell *)d.v_fresh;
    for (int i = gw_lane(); j >= j0 && j < j0 + rows && i < p.e; i += GW_LANES) {
        ((cell *)chunk)[(j - j0) * p.e + i] = fresh[i];
    }
    for (int b = gw_lane(); CELLS::SCALED && j0 == 0 && b < p.e / 32; b += GW_LANES) {
        ((gw_u16 *)d.v_scales)[j * (p.e / 32) + b] = ((const gw_u16 *)(d.v_fresh + 4 * p.e))[b];
    }
    gw_sync_team();
}

/* Queries of a unit, value by value, the heads side by side. */
template <int HEADS>
__device__ static inline void load_queries(const struct gw_attend_params &p,
                                           const gw_desk<HEADS> &d, const gw_unit &u) {
    const size_t at = (size_t)u.row * p.heads + u.head;
    const float *q =
        p.turn.in ? p.turn.in + (at + (size_t)u.row * (2 * p.kv_heads)) * p.e : p.q + at * p.e;
#pragma unroll 4
    for (int i = gw_lane(); i < p.e; i += GW_LANES) {
        gw_f32s<HEADS> all;
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            all.v[h] = h < u.heads ? q[h * p.e + i] : 0.0f;
        }
        d.q[i] = all;
    }
    if (!p.turn.in) {
        return;
    }
    turn_heads<HEADS>(p.turn, d.q, p.turn.q_norm,
                      p.turn.table + (size_t)u.span.pos * p.turn.rope_dim);
}

/* What ROPE_KV leaves behind of them; the first unit of the new position's page does that. */
template <int HEADS>
__device__ static inline void keep_queries(const struct gw_attend_params &p,
                                           const gw_desk<HEADS> &d, const gw_unit &u) {
    float *to = p.turn.out + ((size_t)u.row * p.heads + u.head) * p.e;
    for (int i = gw_lane(); u.value == 0 && i < p.e; i += GW_LANES) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            if (h < u.heads) {
                to[h * p.e + i] = d.q[i].v[h];
            }
        }
    }
}

/* ---- the loop over units --------------------------------------------------------------------- */

/* What a page leaves behind: top and sum are of head lane / (GW_LANES / HEADS). */
template <int HEADS, int PER>
__device__ static inline void leave(const struct gw_attend_params &p, const gw_unit &u, int e,
                                    float top, float sum, const float (*o)[PER]) {
    enum { SHARE = GW_LANES / HEADS };
    const int lane = gw_lane(), h = lane / SHARE, value = u.value + lane * PER;
    const int at = ((u.row - p.parts.row0) * p.heads + u.head) * p.parts.page_stride + u.page;
    if (lane % SHARE == 0 && h < u.heads && u.value == 0) {
        p.parts.top[at + h * p.parts.page_stride] = top;
        p.parts.sum[at + h * p.parts.page_stride] = sum;
    }
    if (value >= e) {
        return;
    }
    float *to = p.parts.values + (size_t)at * p.parts.e_padded + value;
    const size_t step = (size_t)p.parts.page_stride * p.parts.e_padded;
#pragma unroll
    for (int k = 0; k < HEADS; k++, to += step) {
        gw_f32s<PER> all;
#pragma unroll
        for (int c = 0; c < PER; c++) {
            all.v[c] = o[k][c];
        }
        if (k < u.heads) {
            *(gw_f32s<PER> *)to = all;
        }
    }
}

template <class CELLS, int HEADS, int PER, int E>
__device__ static inline void attend(const struct gw_attend_params &p, uint8_t *shared) {
    typedef gw_cut<CELLS, E> cut;
    const cut c(p);
    const gw_desk<HEADS> d = desk_at<HEADS>(shared, p, c);
    const int live = gw_live(p.step), lane = gw_lane();
    gw_grid_launch_dependents();
    const gw_walk<CELLS, HEADS, PER, cut> walk(p, c, live);
    gw_unit u = walk.first(p, c);
    /* Pages that no kernel before this one writes may be fetched while it still runs. */
    const int early = u.more && live == 1 && (p.turn.in || u.page < u.span.last);
    if (!early) {
        gw_grid_dependency_wait();
    }
    gw_ring<CELLS, cut> ring(d);
    if (u.more) {
        ring.open(c, u.k);
    }
    if (early) {
        gw_grid_dependency_wait();
    }
    int loaded_row = -1, loaded_head = -1;
    while (u.more) {
        gw_unit next = walk.next(p, c, u);
        const int base = u.page * GW_PAGE, at_end = u.span.pos - base + 1;
        const int from = u.span.lo > base ? u.span.lo - base : 0;
        const int end = at_end < GW_PAGE ? at_end : GW_PAGE;
        if (loaded_row != u.row || loaded_head != u.head) {
            load_queries<HEADS>(p, d, u);
            loaded_row = u.row;
            loaded_head = u.head;
        }
        const int fresh = p.turn.in && u.page == u.span.last;
        if (fresh) {
            make_fresh<CELLS, HEADS>(p, d, u);
            keep_queries<HEADS>(p, d, u);
        }
        float s[HEADS][2], top, sum, o[HEADS][PER];
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            s[h][0] = s[h][1] = 0.0f;
#pragma unroll
            for (int k = 0; k < PER; k++) {
                o[h][k] = 0.0f;
            }
        }
#pragma unroll 1
        for (int n = 0; n < c.k_chunks; n++) {
            const uint8_t *chunk = ring.template step<0>(c, c.k_chunks - n, 1, u.v);
            if (fresh) {
                patch_k<CELLS, HEADS>(p, d, chunk, n * c.k_rows, chunk_rows(c, n), end - 1);
            }
            score_chunk<CELLS, HEADS>(c, d, chunk, n, s);
        }
        walk.find(p, c, next);
        weigh<HEADS>(d, s, from, end, p.scale, &top, &sum);
#pragma unroll 1
        for (int n = 0; n < c.v_chunks; n++) {
            const uint8_t *chunk = ring.template step<1>(c, c.v_chunks - n, next.more, next.k);
            const int j0 = n * c.v_rows, value = u.value + lane * PER;
            if (fresh) {
                patch_v<CELLS, HEADS>(p, d, chunk, j0, c.v_rows, end - 1);
            }
            if (PER * GW_LANES == E || value < c.e) {
                mix_chunk<CELLS, HEADS, PER>(c, d, chunk, value, j0, from, end, o);
            }
        }
        leave<HEADS, PER>(p, u, c.e, top, sum, o);
        u = next;
    }
}
/* gw_attend_CACHE_hH_vV for any width, V values of a head per lane; gw_attend_CACHE_hH_eE for one.
 */
#define ATTEND(format, HEADS, name, PER, E)                                                        \
    GW_KERNEL(gw_attend_##format##_h##HEADS##_##name, struct gw_attend_params,                     \
              GW_ATTEND_THREADS) {                                                                 \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        attend<gw_cells_##format, HEADS, PER, E>(p, shared);                                       \
    }
#define ATTEND_WIDTHS(format, HEADS)                                                               \
    ATTEND(format, HEADS, v1, 1, 0)                                                                \
    ATTEND(format, HEADS, v2, 2, 0)                                                                \
    ATTEND(format, HEADS, v4, 4, 0)                                                                \
    ATTEND(format, HEADS, e64, 2, 64)                                                              \
    ATTEND(format, HEADS, e128, 4, 128)
#define ATTEND_ALL(format)                                                                         \
    ATTEND_WIDTHS(format, 1)                                                                       \
    ATTEND_WIDTHS(format, 2)                                                                       \
    ATTEND_WIDTHS(format, 4)                                                                       \
    ATTEND_WIDTHS(format, 8)
ATTEND_ALL(f16)
ATTEND_ALL(f32)
ATTEND_ALL(q8_0)

/* ---- join ------------------------------------------------------------------------------------ */

/* Largest maximum of the pages, in every thread. */
GW_DEVICE float best_of(const float *top, int pages) {
    enum { AT_ONCE = 8 };
    __shared__ float tops[GW_JOIN_THREADS / GW_LANES];
    float best = minus_infinity();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < pages; i += AT_ONCE * GW_JOIN_THREADS) {
        float v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int page = i + k * GW_JOIN_THREADS;
            v[k] = page < pages ? top[page] : minus_infinity();
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            best = larger(best, v[k]);
        }
    }
    best = team_top(best);
    if (gw_lane() == 0) {
        tops[gw_team()] = best;
    }
    __syncthreads();
    for (int i = 0; i < GW_JOIN_THREADS / GW_LANES; i++) {
        best = larger(best, tops[i]);
    }
    return best;
}

/* Maxima and sums of pages from + 2 thread, + 1 into registers; and their weights from there. */
GW_DEVICE void load_pair(const float *top, const float *sum, int from, int pages, float *tops,
                         float *sums) {
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int page = from + 2 * (int)threadIdx.x + c;
        tops[c] = page < pages ? top[page] : 0.0f;
        sums[c] = page < pages ? sum[page] : 0.0f;
    }
}
GW_DEVICE void weigh_pair(float *weight, float *part, const float *tops, const float *sums,
                          float best) {
#pragma unroll
    for (int c = 0; c < 2; c++) {
        weight[2 * threadIdx.x + c] = gw_exp(tops[c] - best);
        part[2 * threadIdx.x + c] = sums[c];
    }
}

/* A block's shared memory: values of GW_JOIN_STAGES times some pages, and two batches of weights
 * and sums of pages. */
struct gw_join_desk {
    float stage[GW_JOIN_STAGES][GW_JOIN_PAGES][GW_JOIN_WIDTH];
    float weight[2][GW_JOIN_BATCH], part[2][GW_JOIN_BATCH];
};

/* Pages of stage s on their way; `helper` is a thread's number among those of teams 2 and 3. */
GW_DEVICE void fetch_stage(gw_join_desk &d, const float *values, int stride, int width, int pages,
                           int s, int helper) {
    enum { PIECES = GW_JOIN_WIDTH / 4, STEP = 2 * GW_LANES / PIECES };
    const int i = helper % PIECES * 4, first = helper / PIECES;
    const float *from = values + (size_t)(s * GW_JOIN_PAGES + first) * stride + i;
    float(*to)[GW_JOIN_WIDTH] = d.stage[s % GW_JOIN_STAGES];
    const int count = i < width ? pages - s * GW_JOIN_PAGES : 0;
#pragma unroll
    for (int k = first, n = 0; n < GW_JOIN_PAGES / STEP; k += STEP, n++) {
        gw_copy_async_if(k < count, &to[k][i], from + (size_t)n * STEP * stride);
    }
    gw_copy_commit();
}

/* The next terms of both chains, on their way from shared memory. */
struct gw_join_terms {
    enum { TERMS = 8 };
    gw_f32s<4> weight[TERMS / 4], part[TERMS / 4];
    float v[TERMS];

    __device__ inline void ask(const float (*values)[GW_JOIN_WIDTH], const float *weights,
                               const float *parts, int lane) {
#pragma unroll
        for (int i = 0; i < TERMS / 4; i++) {
            weight[i] = *(const gw_f32s<4> *)(weights + 4 * i);
            part[i] = *(const gw_f32s<4> *)(parts + 4 * i);
            gw_have(weight[i].v[0]);
            gw_have(part[i].v[0]);
        }
#pragma unroll
        for (int i = 0; i < TERMS; i++) {
            v[i] = values[i][lane];
            gw_have(v[i]);
        }
    }
    __device__ inline void add(float *o, float *total) const {
#pragma unroll
        for (int i = 0; i < TERMS; i++) {
            *total = GW_FMA(part[i / 4].v[i % 4], weight[i / 4].v[i % 4], *total);
            *o = GW_FMA(v[i], weight[i / 4].v[i % 4], *o);
        }
    }
};

/* The chains over `count` pages of a stage. */
GW_DEVICE void join_stage(const float (*v)[GW_JOIN_WIDTH], const float *weight, const float *part,
                          int count, int lane, float *o, float *total) {
    enum { TERMS = gw_join_terms::TERMS };
    if (count < GW_JOIN_PAGES) {
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            *total = GW_FMA(part[i], weight[i], *total);
            *o = GW_FMA(v[i][lane], weight[i], *o);
        }
        return;
    }
    gw_join_terms one, two;
    one.ask(v, weight, part, lane);
#pragma unroll 1
    for (int i = 0; i < GW_JOIN_PAGES; i += 2 * TERMS) {
        const int last = i + 2 * TERMS == GW_JOIN_PAGES, next = last ? 0 : i + 2 * TERMS;
        two.ask(v + i + TERMS, weight + i + TERMS, part + i + TERMS, lane);
        one.add(o, total);
        one.ask(v + next, weight + next, part + next, lane);
        two.add(o, total);
    }
}

/* Team 0 carries the chain, teams 2 and 3 fetch its values ahead; all weigh pages, in batches. */
template <int ACT8> __device__ static inline void join(const struct gw_join_params &p) {
    enum { STAGES_OF_BATCH = GW_JOIN_BATCH / GW_JOIN_PAGES };
    GW_SHARED_DYNAMIC(gw_join_desk, desk);
    gw_join_desk &d = *desk;
    const int slices = (p.e + GW_JOIN_WIDTH - 1) / GW_JOIN_WIDTH;
    const int h = (int)blockIdx.x / slices, slice = (int)blockIdx.x % slices;
    const int row = p.parts.row0 + (int)blockIdx.y, lane = gw_lane(), team = gw_team();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const gw_span span = span_of(p.step, row, p.window);
    const int pages = span.last - span.first + 1, stride = p.parts.e_padded;
    const size_t at = ((size_t)blockIdx.y * p.heads + h) * p.parts.page_stride + span.first;
    const float *top = p.parts.top + at, *sum = p.parts.sum + at;
    const float *values = p.parts.values + at * stride + slice * GW_JOIN_WIDTH;
    const int width = stride - slice * GW_JOIN_WIDTH;
    const int stages = (pages + GW_JOIN_PAGES - 1) / GW_JOIN_PAGES;
    const int helper = (int)threadIdx.x - 2 * GW_LANES;
    if (helper >= 0) {
        for (int s = 0; s < GW_JOIN_STAGES - 1; s++) {
            fetch_stage(d, values, stride, width, pages, s, helper);
        }
    }
    float tops[2], sums[2]; /* of two pages of the batch to weigh next */
    load_pair(top, sum, 0, pages, tops, sums);
    const float best = best_of(top, pages);
    weigh_pair(d.weight[0], d.part[0], tops, sums, best);
    float o = 0.0f, total = 0.0f;
#pragma unroll 1
    for (int s = 0; s < stages; s++) {
        const int batch = s / STAGES_OF_BATCH, place = s % STAGES_OF_BATCH;
        if (helper >= 0) {
            gw_copy_wait<GW_JOIN_STAGES - 2>();
        }
        __syncthreads();
        if (place == 0) { /* used when the batch is through: the loads have time */
            load_pair(top, sum, (batch + 1) * GW_JOIN_BATCH, pages, tops, sums);
        }
        if (team == 0) {
            const int count = pages - s * GW_JOIN_PAGES, from = place * GW_JOIN_PAGES;
            join_stage(d.stage[s % GW_JOIN_STAGES], d.weight[batch % 2] + from,
                       d.part[batch % 2] + from, count, lane, &o, &total);
        } else if (helper >= 0) {
            fetch_stage(d, values, stride, width, pages, s + GW_JOIN_STAGES - 1, helper);
        }
        if (place == STAGES_OF_BATCH - 1) {
            weigh_pair(d.weight[(batch + 1) % 2], d.part[(batch + 1) % 2], tops, sums, best);
        }
    }
    if (team != 0) {
        return;
    }
    const int i = slice * GW_JOIN_WIDTH + lane;
    const size_t to = ((size_t)row * p.heads + h) * p.e + i;
    o = o / total;
    if (ACT8) {
        gw_team_encode((gw_act8 *)p.out + to / GW_ACT_BLOCK, o);
    } else if (i < p.e) {
        ((float *)p.out)[to] = o;
    }
}
GW_KERNEL(gw_attend_join_f32, struct gw_join_params, GW_JOIN_THREADS) { join<0>(p); }
GW_KERNEL(gw_attend_join_act8, struct gw_join_params, GW_JOIN_THREADS) { join<1>(p); }
