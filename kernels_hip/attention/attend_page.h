/* kernels_hip/attention/attend_page.h - what a team makes of a page of one KV head for up to 8
 * query heads of its group (docs/arithmetic.md, section 5, steps 1 to 3).
 *
 * A lane has two positions while scores are made, positions of one head while they become weights,
 * and neighbours of the head while the page's values are summed, for all heads at once: every chain
 * of the arithmetic stays in one thread, and what is read from shared memory and widened serves
 * many chains. For heads of 64 and 128 values the compiler knows the lengths of all loops:
 * instructions are what limits groups of four heads, and a quarter of them went to counting. A step
 * of one row brings ROPE_KV along: teams make their queries from q, k and v themselves, and who has
 * the last page puts the new position's cells over what came from the cache. How pages come:
 * attend_pages.h.
 */
#ifndef GW_KERNELS_HIP_ATTEND_PAGE_H
#define GW_KERNELS_HIP_ATTEND_PAGE_H

#include "kernels_hip/attention/attend_pages.h"

/* ---- scores and sums ------------------------------------------------------------------------- */

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
    for (int l = 1; l <= 4; l++) { /* the fold: positions 32 apart, then 16, ...; N is 16 or less */
#pragma unroll
        for (int k = 0; k < N / 2; k++) { /* all of them, or the array goes to memory */
            p[k] = k < N >> l ? p[k] + p[k + (N >> l)] : p[k];
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
        /* on gfx90a eight spill, or leave room for one wave */
        FEW = LANES == 64 && HEADS * (PER + 2 * CELLS::SCALED) >= 32 ? 4 : 8,
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
                  p.turn.table +
                      (size_t)(u.span.pos - gw_step_less(p.step, u.row)) * p.turn.rope_dim);
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
                      p.turn.table +
                          (size_t)(u.span.pos - gw_step_less(p.step, u.row)) * p.turn.rope_dim);
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

/* ---- a page ---------------------------------------------------------------------------------- */

/* What a page leaves behind: top and sum are of head lane / (GW_LANES / HEADS); of every head PER
 * values from u.value + lane * PER on. */
template <int HEADS, int PER> struct gw_page_sums { float top, sum, o[HEADS][PER]; };

/* Attends to page u, whose first chunks are in flight, and prefetches the first chunks of `next`,
 * the team's unit after it. */
template <class CELLS, int HEADS, int PER, int E, class CUT, class RING>
__device__ static inline void attend_page(const struct gw_attend_params &p, const CUT &c,
                                          const gw_desk<HEADS> &d, RING &ring, const gw_unit &u,
                                          gw_unit &next, gw_page_sums<HEADS, PER> &made) {
    const int base = u.page * GW_PAGE, at_end = u.span.pos - base + 1, lane = gw_lane();
    const int from = u.span.lo > base ? u.span.lo - base : 0;
    const int end = at_end < GW_PAGE ? at_end : GW_PAGE;
    const int fresh = p.turn.in && u.page == u.span.last;
    if (fresh) {
        make_fresh<CELLS, HEADS>(p, d, u);
        keep_queries<HEADS>(p, d, u);
    }
    float s[HEADS][2];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        s[h][0] = s[h][1] = 0.0f;
#pragma unroll
        for (int k = 0; k < PER; k++) {
            made.o[h][k] = 0.0f;
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
    find_tile(p, c, next);
    weigh<HEADS>(d, s, from, end, p.scale, &made.top, &made.sum);
#pragma unroll 1
    for (int n = 0; n < c.v_chunks; n++) {
        const uint8_t *chunk = ring.template step<1>(c, c.v_chunks - n, next.more, next.k);
        const int j0 = n * c.v_rows, value = u.value + lane * PER;
        if (fresh) {
            patch_v<CELLS, HEADS>(p, d, chunk, j0, c.v_rows, end - 1);
        }
        if (PER * GW_LANES == E || value < c.e) {
            mix_chunk<CELLS, HEADS, PER>(c, d, chunk, value, j0, from, end, made.o);
        }
    }
}

#endif
