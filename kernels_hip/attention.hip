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

/* Where in shared memory a team has what. */
template <int HEADS> struct gw_desk {
    gw_f32s<HEADS> *p;            /* [64] weight of each position            */
    gw_f32s<HEADS> *q;            /* [e]                                     */
    uint8_t *k_scales, *v_scales; /* of q8_0: of the page                    */
    uint8_t *k_fresh, *v_fresh;   /* the new position's cells, then scales   */
    uint8_t *ring;                /* GW_ATTEND_STAGES chunks of p.chunk bytes */
};
template <int HEADS>
__device__ static inline gw_desk<HEADS> desk_at(uint8_t *shared, const struct gw_attend_params &p) {
    gw_desk<HEADS> d;
    shared += gw_team() * p.team_bytes;
    d.p = (gw_f32s<HEADS> *)shared;
    d.q = d.p + GW_PAGE;
    d.k_scales = (uint8_t *)d.q + GW_ATTEND_QUERIES(HEADS, p.e);
    d.v_scales = d.k_scales + p.scale_bytes;
    d.k_fresh = d.v_scales + p.scale_bytes;
    d.v_fresh = d.k_fresh + p.fresh_bytes;
    d.ring = d.v_fresh + p.fresh_bytes;
    return d;
}

/* A piece of work of a team: one row, one page, one KV head, up to HEADS query heads. */
struct gw_unit {
    int more; /* 0: nothing is left */
    int item, row, page;
    int head, heads; /* the first query head; how many                           */
    int value;       /* the first of the head's values to sum; all scores are made */
    size_t tile;     /* place of the page in the caches, in tiles of [e, 64] */
    gw_span span;
};

/* The one after u. Items: rows, pages, KV heads, tiles of heads, slices of values; the last
 * one fastest. */
template <int HEADS, int PER>
__device__ static inline gw_unit next_unit(const struct gw_attend_params &p, gw_unit u,
                                           int rows_end, int pages) {
    const int group = p.heads / p.kv_heads, tiles = (group + HEADS - 1) / HEADS;
    const int width = PER * GW_LANES, slices = (p.e + width - 1) / width;
    const int teams = GW_ATTEND_THREADS / GW_LANES;
    for (;;) {
        u.item = u.item < 0 ? (int)blockIdx.x * teams + gw_team() : u.item + (int)gridDim.x * teams;
        if (u.item >= (rows_end - p.parts.row0) * pages * p.kv_heads * tiles * slices) {
            u.more = 0;
            return u;
        }
        const int tile = u.item / slices % tiles, rest = u.item / slices / tiles;
        const int g = rest % p.kv_heads;
        u.page = rest / p.kv_heads % pages;
        u.row = p.parts.row0 + rest / p.kv_heads / pages;
        u.head = g * group + tile * HEADS;
        u.heads = group - tile * HEADS < HEADS ? group - tile * HEADS : HEADS;
        u.value = u.item % slices * width;
        u.span = span_of(p.step, u.row, p.window);
        if (u.page >= u.span.first && u.page <= u.span.last) {
            const int slot = gw_step_slot(p.step, u.row);
            u.tile = (size_t)p.pages[(size_t)slot * p.table_stride + u.page] * p.kv_heads + g;
            return u;
        }
    }
}

GW_DEVICE void copy_to(uint8_t *to, const uint8_t *from, int bytes) {
    const int step = GW_LANES * 16;
    int i = gw_lane() * 16;
    for (; bytes - i > 3 * step; i += 4 * step) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            gw_copy_async(to + i + j * step, from + i + j * step);
        }
    }
    for (; i < bytes; i += step) {
        gw_copy_async(to + i, from + i);
    }
}

/* Stage `stage` of a unit: chunks of its K, then of its V; the first of each brings the scales. Its
 * place in the ring is that of the running number `turn`. */
template <typename CELLS, int HEADS>
__device__ static inline void fetch(const struct gw_attend_params &p, const gw_desk<HEADS> &d,
                                    size_t tile, int stage, int turn) {
    const int is_v = stage >= p.k_chunks, codes = GW_PAGE * p.e * CELLS::BYTES;
    const int chunk = is_v ? stage - p.k_chunks : stage, each = is_v ? p.v_bytes : p.k_bytes;
    const int left = codes - chunk * each;
    const uint8_t *from =
        (const uint8_t *)(is_v ? p.v : p.k) + tile * (size_t)(codes + p.scale_bytes);
    copy_to(d.ring + turn % GW_ATTEND_STAGES * p.chunk, from + chunk * each,
            left < each ? left : each);
    if (CELLS::SCALED && chunk == 0) {
        copy_to(is_v ? d.v_scales : d.k_scales, from + codes, p.scale_bytes);
    }
}

/* The ring of a team. Before a chunk is read: step(); it has come then, and the one that lies
 * GW_ATTEND_STAGES - 1 further on is on its way. */
template <typename CELLS, int HEADS> struct gw_ring {
    int turn;  /* of the chunk to read */
    int stage; /* the same in this unit */

    __device__ inline void fetch_ahead(const struct gw_attend_params &p, const gw_desk<HEADS> &d,
                                       size_t tile, int moves, size_t next) {
        const int ahead = stage + GW_ATTEND_STAGES - 1, all = p.k_chunks + p.v_chunks;
        if (ahead < all) {
            fetch<CELLS, HEADS>(p, d, tile, ahead, turn + GW_ATTEND_STAGES - 1);
        } else if (moves) {
            fetch<CELLS, HEADS>(p, d, next, ahead - all, turn + GW_ATTEND_STAGES - 1);
        }
        gw_copy_commit();
    }
    __device__ inline const uint8_t *step(const struct gw_attend_params &p, const gw_desk<HEADS> &d,
                                          size_t tile, int moves, size_t next) {
        gw_copy_wait<GW_ATTEND_STAGES - 2>();
        gw_sync_team();
        fetch_ahead(p, d, tile, moves, next);
        const uint8_t *chunk = d.ring + turn % GW_ATTEND_STAGES * p.chunk;
        turn++;
        stage++;
        return chunk;
    }
};

/* Chains over rows [i0, i0 + rows) of K for this lane's two positions. */
template <typename CELLS, int HEADS>
__device__ static inline void score_chunk(const gw_desk<HEADS> &d, const uint8_t *chunk, int i0,
                                          int rows, float (*s)[2]) {
    const int lane = gw_lane();
    float scale[2] = {0.0f, 0.0f};
#pragma unroll 8
    for (int i = 0; i < rows; i++) {
        float k[2];
        CELLS::template read<2>(chunk, i * GW_PAGE + 2 * lane, k);
        if (CELLS::SCALED) {
            if (i == 0 || (i0 + i) % 32 == 0) {
                gw_cells_f16::read<2>(d.k_scales, (i0 + i) / 32 * GW_PAGE + 2 * lane, scale);
            }
            k[0] = scale[0] * k[0];
            k[1] = scale[1] * k[1];
        }
        const gw_f32s<HEADS> q = d.q[i0 + i];
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            s[h][0] = GW_FMA(q.v[h], k[0], s[h][0]);
            s[h][1] = GW_FMA(q.v[h], k[1], s[h][1]);
        }
    }
}

/* Scores of positions 2 lane, 2 lane + 1 -> weights p; top and sum of the page in every lane. */
template <int HEADS>
__device__ static inline void weigh(const gw_desk<HEADS> &d, float (*s)[2], int from, int end,
                                    float scale, float *top, float *sum) {
    const int j = 2 * gw_lane();
    gw_f32s<HEADS> p[2];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float best = minus_infinity();
#pragma unroll
        for (int c = 0; c < 2; c++) {
            s[h][c] = s[h][c] * scale;
            best = j + c >= from && j + c < end && s[h][c] > best ? s[h][c] : best;
        }
        top[h] = team_top(best);
#pragma unroll
        for (int c = 0; c < 2; c++) {
            s[h][c] = j + c >= from && j + c < end ? gw_exp(s[h][c] - top[h]) : 0.0f;
            p[c].v[h] = s[h][c];
        }
    }
    d.p[j] = p[0];
    d.p[j + 1] = p[1];
#pragma unroll
    for (int h = 0; h < HEADS; h++) { /* positions 32, 16, 8, 4, 2 apart, then the lane's own two */
#pragma unroll
        for (int c = 0; c < 2; c++) {
            s[h][c] = s[h][c] + gw_partner<16>(s[h][c]);
            s[h][c] = s[h][c] + gw_partner<8>(s[h][c]);
            s[h][c] = s[h][c] + gw_partner<4>(s[h][c]);
            s[h][c] = s[h][c] + gw_partner<2>(s[h][c]);
            s[h][c] = s[h][c] + gw_partner<1>(s[h][c]);
        }
        sum[h] = s[h][0] + s[h][1];
    }
}

/* Chains over positions [from, end) of a chunk that begins at position j0, for PER values of the
 * head from i on. */
template <typename CELLS, int HEADS, int PER>
__device__ static inline void mix_chunk(const gw_desk<HEADS> &d, const uint8_t *chunk, int e, int i,
                                        int j0, int from, int end, float (*o)[PER]) {
    enum { AT_ONCE = LANES == 64 && HEADS * PER == 32 ? 4 : 8 }; /* eight spill on gfx90a */
#pragma unroll(AT_ONCE)
    for (int j = from; j < end; j++) {
        const gw_f32s<HEADS> p = d.p[j];
        float v[PER];
        CELLS::template read<PER>(chunk, (j - j0) * e + i, v);
        if (CELLS::SCALED) {
            float scale;
            gw_cells_f16::read<1>(d.v_scales, j * (e / 32) + i / 32, &scale);
#pragma unroll
            for (int c = 0; c < PER; c++) {
                v[c] = scale * v[c];
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
#pragma unroll
            for (int c = 0; c < PER; c++) {
                o[h][c] = GW_FMA(p.v[h], v[c], o[h][c]);
            }
        }
    }
}

/* ---- ROPE_KV of a step of one row ------------------------------------------------------------ */

/* The new position's k and v -> cells in d.k_fresh, d.v_fresh, scales behind e floats; the first
 * unit of its page stores them. */
template <typename CELLS, int HEADS>
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
        uint8_t *tile = (uint8_t *)(is_v ? p.v : p.k) +
                        u.tile * (size_t)(GW_PAGE * e * CELLS::BYTES + p.scale_bytes);
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
template <typename CELLS, int HEADS>
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
template <typename CELLS, int HEADS>
__device__ static inline void patch_v(const struct gw_attend_params &p, const gw_desk<HEADS> &d,
                                      const uint8_t *chunk, int j0, int j) {
    typedef typename CELLS::put::cell cell;
    const cell *fresh = (const cell *)d.v_fresh;
    for (int i = gw_lane(); j >= j0 && j < j0 + p.v_rows && i < p.e; i += GW_LANES) {
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

template <typename CELLS, int HEADS, int PER>
__device__ static inline void attend(const struct gw_attend_params &p, uint8_t *shared) {
    const gw_desk<HEADS> d = desk_at<HEADS>(shared, p);
    const int live = gw_live(p.step), lane = gw_lane();
    const int rows_end = live < p.parts.row0 + p.parts.rows ? live : p.parts.row0 + p.parts.rows;
    const int pages = p.step.step[GW_STEP_POS_MAX] / GW_PAGE + 1;
    gw_grid_launch_dependents();
    gw_unit u = {1, -1, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0}};
    u = next_unit<HEADS, PER>(p, u, rows_end, pages);
    /* Pages that no kernel before this one writes may be fetched while it still runs. */
    const int early = u.more && live == 1 && (p.turn.in || u.page < u.span.last);
    if (!early) {
        gw_grid_dependency_wait();
    }
    for (int i = 0; i < GW_ATTEND_STAGES - 1 && u.more; i++) {
        fetch<CELLS, HEADS>(p, d, u.tile, i, i);
        gw_copy_commit();
    }
    if (early) {
        gw_grid_dependency_wait();
    }
    gw_ring<CELLS, HEADS> ring = {0, 0};
    int loaded_row = -1, loaded_head = -1;
    while (u.more) {
        const gw_unit next = next_unit<HEADS, PER>(p, u, rows_end, pages);
        const int base = u.page * GW_PAGE, at_end = u.span.pos - base + 1;
        const int from = u.span.lo > base ? u.span.lo - base : 0;
        const int end = at_end < GW_PAGE ? at_end : GW_PAGE;
        const int value = u.value + lane * PER;
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
        float s[HEADS][2], top[HEADS], sum[HEADS], o[HEADS][PER];
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            s[h][0] = s[h][1] = 0.0f;
#pragma unroll
            for (int c = 0; c < PER; c++) {
                o[h][c] = 0.0f;
            }
        }
        ring.stage = 0;
        for (int i0 = 0; i0 < p.e; i0 += p.k_rows) {
            const uint8_t *chunk = ring.step(p, d, u.tile, next.more, next.tile);
            const int rows = p.e - i0 < p.k_rows ? p.e - i0 : p.k_rows;
            if (fresh) {
                patch_k<CELLS, HEADS>(p, d, chunk, i0, rows, end - 1);
            }
            score_chunk<CELLS, HEADS>(d, chunk, i0, rows, s);
        }
        weigh<HEADS>(d, s, from, end, p.scale, top, sum);
        for (int j0 = 0; j0 < GW_PAGE; j0 += p.v_rows) {
            const uint8_t *chunk = ring.step(p, d, u.tile, next.more, next.tile);
            if (fresh) {
                patch_v<CELLS, HEADS>(p, d, chunk, j0, end - 1);
            }
            const int first = from > j0 ? from : j0,
                      last = end < j0 + p.v_rows ? end : j0 + p.v_rows;
            if (value < p.e) {
                mix_chunk<CELLS, HEADS, PER>(d, chunk, p.e, value, j0, first, last, o);
            }
        }
        const size_t at =
            ((size_t)(u.row - p.parts.row0) * p.heads + u.head) * p.parts.page_stride + u.page;
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const size_t to = at + (size_t)h * p.parts.page_stride;
            if (h < u.heads && value == 0) {
                p.parts.top[to] = top[h];
                p.parts.sum[to] = sum[h];
            }
#pragma unroll
            for (int c = 0; c < PER; c++) {
                if (h < u.heads && value < p.e) {
                    p.parts.values[to * p.parts.e_padded + value + c] = o[h][c];
                }
            }
        }
        u = next;
    }
}
#define ATTEND(format, HEADS, PER)                                                                 \
    GW_KERNEL(gw_attend_##format##_h##HEADS##_v##PER, struct gw_attend_params,                     \
              GW_ATTEND_THREADS) {                                                                 \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        attend<gw_cells_##format, HEADS, PER>(p, shared);                                          \
    }
#define ATTEND_WIDTHS(format, HEADS)                                                               \
    ATTEND(format, HEADS, 1)                                                                       \
    ATTEND(format, HEADS, 2)                                                                       \
    ATTEND(format, HEADS, 4)
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
    __shared__ float tops[GW_JOIN_THREADS / GW_LANES];
    float best = minus_infinity();
    for (int i = (int)threadIdx.x; i < pages; i += GW_JOIN_THREADS) {
        best = larger(best, top[i]);
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

/* Team 0 carries the chain, teams 2 and 3 fetch its values ahead; all weigh pages, in batches. */
template <int ACT8> __device__ static inline void join(const struct gw_join_params &p) {
    __shared__ __align__(16) float stage[GW_JOIN_STAGES][GW_JOIN_PAGES][GW_JOIN_WIDTH];
    __shared__ __align__(16) float weight[2][GW_JOIN_BATCH], part[2][GW_JOIN_BATCH];
    const int slices = (p.e + GW_JOIN_WIDTH - 1) / GW_JOIN_WIDTH;
    const int h = (int)blockIdx.x / slices, slice = (int)blockIdx.x % slices;
    const int row = p.parts.row0 + (int)blockIdx.y, lane = gw_lane(), team = gw_team();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const gw_span span = span_of(p.step, row, p.window);
    const int pages = span.last - span.first + 1;
    const size_t at = ((size_t)blockIdx.y * p.heads + h) * p.parts.page_stride + span.first;
    const float *top = p.parts.top + at, *sum = p.parts.sum + at;
    const float *values = p.parts.values + at * p.parts.e_padded + slice * GW_JOIN_WIDTH;
    const int width = p.parts.e_padded - slice * GW_JOIN_WIDTH;
    const int stages = (pages + GW_JOIN_PAGES - 1) / GW_JOIN_PAGES;

    const int helper = (int)threadIdx.x - 2 * GW_LANES; /* 0 .. 63 in teams 2 and 3 */
#define FETCH(s)                                                                                   \
    do {                                                                                           \
        for (int c = helper; c < GW_JOIN_PAGES * GW_JOIN_WIDTH / 4; c += 2 * GW_LANES) {           \
            const int page = c / (GW_JOIN_WIDTH / 4), i = c % (GW_JOIN_WIDTH / 4) * 4;             \
            const int from = (s)*GW_JOIN_PAGES + page;                                             \
            if (from < pages && i < width) {                                                       \
                gw_copy_async(&stage[(s) % GW_JOIN_STAGES][page][i],                               \
                              values + (size_t)from * p.parts.e_padded + i);                       \
            }                                                                                      \
        }                                                                                          \
        gw_copy_commit();                                                                          \
    } while (0)
    if (helper >= 0) {
        for (int s = 0; s < GW_JOIN_STAGES - 1; s++) {
            FETCH(s);
        }
    }
    const float best = best_of(top, pages);
    float tops[2], sums[2]; /* of two pages of the batch to weigh next */
    load_pair(top, sum, 0, pages, tops, sums);
    weigh_pair(weight[0], part[0], tops, sums, best);
    float o = 0.0f, total = 0.0f;
    for (int s = 0; s < stages; s++) {
        if (helper >= 0) {
            gw_copy_wait<GW_JOIN_STAGES - 2>();
        }
        __syncthreads();
        const int batch = s / (GW_JOIN_BATCH / GW_JOIN_PAGES);
        const int place = s % (GW_JOIN_BATCH / GW_JOIN_PAGES);
        if (place == 0) { /* used when the batch is through: the loads have time */
            load_pair(top, sum, (batch + 1) * GW_JOIN_BATCH, pages, tops, sums);
        }
        if (team == 0) {
            const int count = pages - s * GW_JOIN_PAGES;
            const float(*v)[GW_JOIN_WIDTH] = stage[s % GW_JOIN_STAGES];
            const float *w = weight[batch % 2] + place * GW_JOIN_PAGES;
            const float *l = part[batch % 2] + place * GW_JOIN_PAGES;
            if (count >= GW_JOIN_PAGES) {
#pragma unroll
                for (int i = 0; i < GW_JOIN_PAGES; i += 4) {
                    const gw_f32s<4> w4 = *(const gw_f32s<4> *)(w + i);
                    const gw_f32s<4> l4 = *(const gw_f32s<4> *)(l + i);
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        total = GW_FMA(l4.v[j], w4.v[j], total);
                        o = GW_FMA(v[i + j][lane], w4.v[j], o);
                    }
                }
            } else {
                for (int i = 0; i < count; i++) {
                    total = GW_FMA(l[i], w[i], total);
                    o = GW_FMA(v[i][lane], w[i], o);
                }
            }
        } else if (helper >= 0) {
            FETCH(s + GW_JOIN_STAGES - 1);
        }
        if (place == GW_JOIN_BATCH / GW_JOIN_PAGES - 1) {
            weigh_pair(weight[(batch + 1) % 2], part[(batch + 1) % 2], tops, sums, best);
        }
    }
#undef FETCH
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
