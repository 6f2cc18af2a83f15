/* kernels_hip/attention/attend_tile.h - what attend_block.hip, attend_split.hip and attend_rows.hip
 * share: ATTENTION on tiles of the caches that lie in shared memory whole. The chains of a page ask
 * for their next terms while they add the current ones; d and w are the kernel's own: its desk and
 * its work, by the names that gw_desk and gw_block_work of attend_block.hip give to what is used
 * here. With other arguments the compiler may order the code of that kernel in another way, which
 * costs (docs/performance.md).
 */
#ifndef GW_KERNELS_HIP_ATTEND_TILE_H
#define GW_KERNELS_HIP_ATTEND_TILE_H

#include "kernels_hip/act8.h"
#include "kernels_hip/attention/attention.h"

GW_DEVICE int teams(void) { return (int)blockDim.x / GW_LANES; }

template <class CELLS> __device__ static inline int tile_bytes(const struct gw_attend_params &p) {
    return GW_PAGE * p.e * CELLS::BYTES + p.scale_bytes;
}

/* A tile on its way to shared memory; a block. */
GW_DEVICE void fetch_tile(uint8_t *to, const uint8_t *tile, int bytes) {
#pragma unroll 2
    for (int b = 16 * (int)threadIdx.x; b < bytes; b += 16 * (int)blockDim.x) {
        gw_copy_async(to + b, tile + b);
    }
}

/* ---- the new position ------------------------------------------------------------------------ */

/* New cells of K or V: value i at number at + i * stride; its scale, of 32 values, alike. */
template <class CELLS> struct gw_fresh {
    typedef typename CELLS::put put;
    typedef typename put::cell cell;
    cell *cells;
    gw_u16 *scales;
    int at, stride, scale_at, scale_stride;

    /* A head's on the desk. */
    __device__ inline gw_fresh(uint8_t *desk, int e)
        : cells((cell *)desk), scales((gw_u16 *)(desk + 4 * e)), at(0), stride(1), scale_at(0),
          scale_stride(1) {}
    /* Position j of a tile of K, or of V. */
    __device__ inline gw_fresh(uint8_t *tile, int e, int j, int is_k)
        : cells((cell *)tile), scales((gw_u16 *)(tile + GW_PAGE * e * CELLS::BYTES)),
          at(is_k ? j : j * e), stride(is_k ? GW_PAGE : 1), scale_at(is_k ? j : j * (e / 32)),
          scale_stride(is_k ? GW_PAGE : 1) {}
    /* Where SCALED the whole team calls it. */
    __device__ inline void put_value(int i, float x) const {
        put::put(cells, at + i * stride, scales, scale_at + i / 32 * scale_stride, x);
    }
    __device__ inline void copy_value(const gw_fresh &from, int i) const {
        cells[at + i * stride] = from.cells[from.at + i * from.stride];
        if (CELLS::SCALED && i % 32 == 0) {
            scales[scale_at + i / 32 * scale_stride] =
                from.scales[from.scale_at + i / 32 * from.scale_stride];
        }
    }
    /* Of strides of 1, the four from i on. */
    __device__ inline void copy_four(const gw_fresh &from, int i) const {
        struct alignas(4 * sizeof(cell)) four {
            cell v[4];
        };
        copy_value(from, i); /* with the scale */
        *(four *)(cells + at + i) = *(const four *)(from.cells + from.at + i);
    }
};

/* ---- pages ----------------------------------------------------------------------------------- */

/* N neighbouring cells as CELLS::read takes them, and the register they wait in: of 32 bits, or the
 * compiler puts two in one as soon as they come. */
template <class CELLS, int N> struct gw_held {
    typedef gw_u16 cells;
    typedef unsigned kept;
};
template <> struct gw_held<gw_cells_f16, 2> { typedef unsigned cells, kept; };
template <int N> struct gw_held<gw_cells_f32, N> { typedef gw_f32s<N> cells, kept; };
template <> struct gw_held<gw_cells_q8_0, 1> {
    typedef uint8_t cells;
    typedef unsigned kept;
};

/* The next terms of N chains of each of R rows, on their way from shared memory. */
template <class CELLS, int N, int R = 1> struct gw_terms {
    enum { TERMS = CELLS::BYTES == 2 ? 8 : 4 }; /* as registers allow */
    typedef gw_held<CELLS, N> held;
    gw_f32s<4> by[R][TERMS / 4];
    typename held::kept cells[TERMS];

    /* apart: from the factors of a row to those of the next */
    __device__ inline void ask(const float *factors, const uint8_t *from, int stride,
                               int apart = 0) {
#pragma unroll
        for (int c = 0; c < TERMS; c++) {
#pragma unroll
            for (int r = 0; r < R && c % 4 == 0; r++) {
                by[r][c / 4] = *(const gw_f32s<4> *)(factors + r * apart + c);
            }
            cells[c] = *(const typename held::cells *)(from + c * stride);
            gw_have(cells[c]);
        }
    }
    __device__ inline void add(int c, const float *scale, float *sum) const {
#pragma unroll
        for (int r = 0; r < R; r++) {
            add_of(c, r, scale, sum + r * N);
        }
    }
    /* The same of one row. */
    __device__ inline void add_of(int c, int r, const float *scale, float *sum) const {
        const typename held::cells come = (typename held::cells)cells[c];
        float x[N];
        CELLS::template read<N>((const uint8_t *)&come, 0, x);
#pragma unroll
        for (int n = 0; n < N; n++) {
            sum[n] = GW_FMA(by[r][c / 4].v[c % 4], CELLS::SCALED ? scale[n] * x[n] : x[n], sum[n]);
        }
    }
};

/* Scores of positions j .. j + N - 1 of a page; a lane. Of R rows: their queries are q_apart, their
 * scores score_apart from one another. */
template <class CELLS, int N, int R = 1, class DESK>
__device__ static inline void score_page(const gw_attend_params &p, const DESK &d,
                                         const uint8_t *tile, int page, int j, int q_apart = 0,
                                         int score_apart = 0) {
    typedef gw_terms<CELLS, N, R> terms;
    enum { ROW = GW_PAGE * CELLS::BYTES, TERMS = terms::TERMS };
    const int e = p.e;
    const uint8_t *cells = tile + j * CELLS::BYTES, *scales = tile + e * ROW;
    float s[R * N] = {0.0f}, scale[N] = {0.0f};
    terms one, two;
    one.ask(d.q, cells, ROW, q_apart);
    int i = 0;
#pragma unroll 1
    for (; i + 2 * TERMS <= e; i += 2 * TERMS) {
        if (CELLS::SCALED && i % 32 == 0) {
            gw_cells_f16::read<N>(scales, i / 32 * GW_PAGE + j, scale);
        }
        two.ask(d.q + i + TERMS, cells + (i + TERMS) * ROW, ROW, q_apart);
#pragma unroll
        for (int c = 0; c < TERMS; c++) {
            one.add(c, scale, s);
        }
        const int next = i + 4 * TERMS <= e ? i + 2 * TERMS : 0;
        one.ask(d.q + next, cells + next * ROW, ROW, q_apart);
#pragma unroll
        for (int c = 0; c < TERMS; c++) {
            two.add(c, scale, s);
        }
    }
#pragma unroll 4
    for (; i < e; i++) { /* a scaled head has whole blocks of 32 */
        float x[N];
        CELLS::template read<N>(cells, i * GW_PAGE, x);
#pragma unroll
        for (int n = 0; n < R * N; n++) {
            s[n] = GW_FMA(d.q[n / N * q_apart + i], x[n % N], s[n]);
        }
    }
#pragma unroll
    for (int n = 0; n < R * N; n++) {
        d.score[n / N * score_apart + page * GW_PAGE + j + n % N] = s[n] * p.scale;
    }
}

/* What softmax makes of a page's scores, lane l of positions l and l + 32; a team. */
struct gw_weights {
    float top, weight[2];
    template <class DESK, class WORK>
    __device__ inline gw_weights(const DESK &d, const WORK &w, int page) {
        const float *score = d.score + page * GW_PAGE + w.lane;
        const int from = w.from(page) - w.lane, end = w.end(page) - w.lane;
        const float s[2] = {score[0], score[GW_LANES]};
        const int seen[2] = {0 >= from && 0 < end, GW_LANES >= from && GW_LANES < end};
        float best = minus_infinity();
        best = seen[0] && s[0] > best ? s[0] : best;
        best = seen[1] && s[1] > best ? s[1] : best;
        top = gw_team_top(best);
        const float both[2] = {exp_below(s[0] - top), exp_below(s[1] - top)};
        weight[0] = seen[0] ? both[0] : 0.0f;
        weight[1] = seen[1] ? both[1] : 0.0f;
    }
};

/* One more term of the chains over a page's positions, for two values of the head. */
template <class CELLS>
__device__ static inline void mix_one(const uint8_t *cells, int at, const uint8_t *scales,
                                      int scale_at, float weight, float *o) {
    float x[2], scale;
    CELLS::template read<2>(cells, at, x);
    if (CELLS::SCALED) {
        gw_cells_f16::read<1>(scales, scale_at, &scale);
        x[0] = scale * x[0];
        x[1] = scale * x[1];
    }
    o[0] = GW_FMA(weight, x[0], o[0]);
    o[1] = GW_FMA(weight, x[1], o[1]);
}

/* Term c, of position j: a row of V has one scale for both values. */
template <class CELLS>
__device__ static inline void mix_term(const gw_terms<CELLS, 2> &terms, int c,
                                       const uint8_t *scales, int j, int e, float *o) {
    float scale[2] = {0.0f, 0.0f};
    if (CELLS::SCALED) {
        gw_cells_f16::read<1>(scales, j * (e / 32), scale);
        scale[1] = scale[0];
    }
    terms.add(c, scale, o);
}

/* Values i and i + 1 of a page, whose weights a team has for itself. The new position is the last
 * of its chain. */
template <class CELLS, class DESK, class WORK>
__device__ static inline void mix_page(const gw_attend_params &p, const DESK &d, const WORK &w,
                                       const uint8_t *tile, const float *weight, int page, int i) {
    typedef gw_terms<CELLS, 2> terms;
    enum { TERMS = terms::TERMS };
    const int e = p.e, fresh = w.turns && page == w.pages - 1, from = w.from(page);
    const int end = w.end(page) - fresh, row = e * CELLS::BYTES;
    const uint8_t *cells = tile + i * CELLS::BYTES, *scales = tile + GW_PAGE * row + i / 32 * 2;
    float o[2] = {0.0f, 0.0f};
    terms one, two;
#pragma unroll 1
    for (int j = from / TERMS * TERMS; j < end;) {
        one.ask(weight + j, cells + j * row, row);
        if (j < from || j + 2 * TERMS > end) {
#pragma unroll
            for (int c = 0; c < TERMS; c++) {
                if (j + c >= from && j + c < end) {
                    mix_term<CELLS>(one, c, scales, j + c, e, o);
                }
            }
            j += TERMS;
            continue;
        }
#pragma unroll 1
        for (; j + 2 * TERMS <= end; j += 2 * TERMS) {
            two.ask(weight + j + TERMS, cells + (j + TERMS) * row, row);
#pragma unroll
            for (int c = 0; c < TERMS; c++) {
                mix_term<CELLS>(one, c, scales, j + c, e, o);
            }
            const int next = j + 2 * TERMS < GW_PAGE ? j + 2 * TERMS : 0;
            one.ask(weight + next, cells + next * row, row);
#pragma unroll
            for (int c = 0; c < TERMS; c++) {
                mix_term<CELLS>(two, c, scales, j + TERMS + c, e, o);
            }
        }
    }
    if (fresh) {
        mix_one<CELLS>(d.v_cells, i, d.v_cells + 4 * e, i / 32, weight[end], o);
    }
    const gw_f32s<2> both = {{o[0], o[1]}};
    *(gw_f32s<2> *)(d.values + page * e + i) = both;
}

#endif
