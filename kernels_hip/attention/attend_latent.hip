/* kernels_hip/attention/attend_latent.hip - ATTENTION whose values are part of the keys, as latent
 * attention has them (docs/arithmetic.md, section 5): one row of the cache serves all query heads,
 * which share what is read of it.
 *
 * Three launches. Scores: a block has a page and 16 heads; lanes have two neighbouring positions
 * each, and a team four heads, so that a cell is widened once for four products. Values: a block
 * has a slice of columns, which are rows of a page's tile, and 16 heads; a thread has two columns
 * of four heads: as much as leaves a multiprocessor threads enough to wait for shared memory. Where
 * a row sees many pages, a block goes through a group of them and joins them (step 4), and a
 * sixteenth of the partial results goes through memory. Join: steps 5 and 6.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention/attend_latent_params.h"
#include "kernels_hip/attention/attention.h"

enum {
    TEAMS = GW_LATENT_TEAMS,
    HEADS = GW_LATENT_HEADS,
    QUAD = GW_LATENT_QUAD,
    VALUES = GW_LATENT_VALUES_THREADS,
    STEP = GW_LATENT_STEP
};

/* What a block works on: a KV head, and a block of its query heads. */
struct latent_heads {
    int g, of, head, n; /* of: number of the block; head: its first query head, n of them */
};
GW_DEVICE latent_heads heads_of(const struct gw_attend_latent_params &p, int at) {
    const int group = p.heads / p.kv_heads, blocks = (group + HEADS - 1) / HEADS;
    latent_heads h;
    h.g = at / blocks;
    h.of = at;
    h.head = h.g * group + at % blocks * HEADS;
    h.n = group - at % blocks * HEADS < HEADS ? group - at % blocks * HEADS : HEADS;
    return h;
}
GW_DEVICE int blocks_of_heads(const struct gw_attend_latent_params &p) {
    return p.kv_heads * ((p.heads / p.kv_heads + HEADS - 1) / HEADS);
}
GW_DEVICE const uint8_t *tile_of(const struct gw_attend_latent_params &p, int row, int g,
                                 int page) {
    const int32_t *table = p.pages + (size_t)gw_step_slot(p.step, row) * p.table_stride;
    return (const uint8_t *)p.k + ((size_t)table[page] * p.kv_heads + g) * p.k_bytes;
}
/* Where weights of a page begin: [GW_PAGE, HEADS]. */
GW_DEVICE float *weights_of(const struct gw_attend_latent_params &p, int here, int of, int page) {
    return p.weights +
           (((size_t)here * blocks_of_heads(p) + of) * p.table_stride + page) * (GW_PAGE * HEADS);
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Two neighbouring cells as they lie in memory. */
template <class CELLS> struct latent_pair { uint8_t bytes[2 * CELLS::BYTES]; };
template <> struct latent_pair<gw_cells_f32> { gw_f32s<2> bytes; };
template <> struct latent_pair<gw_cells_f16> { unsigned bytes; };
template <> struct latent_pair<gw_cells_q8_0> { gw_u16 bytes; };

/* STEP rows of a page from i on, positions 2 lane and 2 lane + 1. */
template <class CELLS>
__device__ static inline void fetch_rows(const uint8_t *tile, int i, latent_pair<CELLS> *to) {
    const latent_pair<CELLS> *from = (const latent_pair<CELLS> *)tile + i * (GW_PAGE / 2);
#pragma unroll
    for (int k = 0; k < STEP; k++) {
        to[k] = from[k * (GW_PAGE / 2) + gw_lane()];
    }
}

/* s[h][0, 1] of the team's heads: q [e][HEADS], from its first head on. */
template <class CELLS>
__device__ static inline void score_page(const gw_f32s<QUAD> *q, const uint8_t *tile, int e,
                                         float (*s)[2]) {
    const uint8_t *scales = tile + GW_PAGE * e;
    latent_pair<CELLS> next[STEP];
    gw_scale scale[2] = {gw_scale(0.0f), gw_scale(0.0f)};
#pragma unroll
    for (int h = 0; h < QUAD; h++) {
        s[h][0] = s[h][1] = 0.0f;
    }
    fetch_rows<CELLS>(tile, 0, next);
#pragma unroll 1
    for (int i = 0; i < e; i += STEP) {
        latent_pair<CELLS> now[STEP];
#pragma unroll
        for (int k = 0; k < STEP; k++) {
            now[k] = next[k];
        }
        if (i + STEP < e) {
            fetch_rows<CELLS>(tile, i + STEP, next);
        }
        if (CELLS::SCALED && i % 32 == 0) {
            float of[2];
            gw_cells_f16::read<2>(scales, i / 32 * GW_PAGE + 2 * gw_lane(), of);
            scale[0] = gw_scale(of[0]);
            scale[1] = gw_scale(of[1]);
        }
#pragma unroll
        for (int k = 0; k < STEP; k++) {
            float x[2];
            CELLS::template read_scaled<2>((const uint8_t *)&now[k], 0, scale, x);
            const gw_f32s<QUAD> by = q[(i + k) * TEAMS];
#pragma unroll
            for (int h = 0; h < QUAD; h++) {
                s[h][0] = GW_FMA(by.v[h], x[0], s[h][0]);
                s[h][1] = GW_FMA(by.v[h], x[1], s[h][1]);
            }
        }
    }
}

/* Queries of a block: [e][HEADS]; those of no head are 0. */
__device__ static inline void take_queries(const struct gw_attend_latent_params &p, int row,
                                           const latent_heads &own, float *to) {
    const float *from = p.q + ((size_t)row * p.heads + own.head) * p.e;
#pragma unroll 6
    for (int i = (int)threadIdx.x; i < p.e / 4 * HEADS; i += GW_LATENT_THREADS) {
        const int h = i % HEADS, at = i / HEADS * 4;
        gw_f32s<4> x = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (h < own.n) {
            x = *(const gw_f32s<4> *)(from + h * p.e + at);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            to[(at + k) * HEADS + h] = x.v[k];
        }
    }
}

template <class CELLS>
__device__ static inline void latent_scores(const struct gw_attend_latent_params &p,
                                            uint8_t *shared) {
    const int here = (int)blockIdx.y, row = p.row0 + here, lane = gw_lane();
    gw_grid_launch_dependents();
    const latent_heads own = heads_of(p, (int)blockIdx.x);
    const int live = row < gw_live(p.step), pos = live ? gw_step_pos(p.step, row) : -1;
    const int last = pos / GW_PAGE, quad = gw_team() * QUAD;
    if (live && (int)blockIdx.z < last && threadIdx.x == 0) { /* nobody of this pass writes there */
        gw_prefetch_bytes(tile_of(p, row, own.g, (int)blockIdx.z), p.k_bytes);
    }
    gw_grid_dependency_wait();
    if (!live) {
        return;
    }
    take_queries(p, row, own, (float *)shared);
    __syncthreads();
    if (quad >= own.n) {
        return; /* whole teams, and nobody waits for them */
    }
    const gw_f32s<QUAD> *q = (const gw_f32s<QUAD> *)shared + gw_team();
    for (int page = (int)blockIdx.z; page <= last; page += (int)gridDim.z) {
        const int end = pos - page * GW_PAGE + 1; /* positions behind it are not seen */
        float s[QUAD][2], w[2][QUAD];
        score_page<CELLS>(q, tile_of(p, row, own.g, page), p.e, s);
#pragma unroll
        for (int h = 0; h < QUAD; h++) {
            const float a = s[h][0] * p.scale, b = s[h][1] * p.scale;
            const int sees_a = 2 * lane < end, sees_b = 2 * lane + 1 < end;
            float top = sees_a ? a : minus_infinity();
            top = team_top(sees_b && b > top ? b : top);
            w[0][h] = sees_a ? gw_exp(a - top) : 0.0f;
            w[1][h] = sees_b ? gw_exp(b - top) : 0.0f;
            /* The fold of 64, whose last step joins neighbours: sums commute. */
            const float sum = gw_fold(w[0][h]) + gw_fold(w[1][h]);
            if (lane == 0 && quad + h < own.n) {
                const size_t at =
                    ((size_t)here * p.heads + own.head + quad + h) * p.table_stride + page;
                p.top[at] = top;
                p.sum[at] = sum;
            }
        }
        float *to = weights_of(p, here, own.of, page) + quad;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            gw_f32s<QUAD> all;
#pragma unroll
            for (int h = 0; h < QUAD; h++) {
                all.v[h] = w[c][h];
            }
            *(gw_f32s<QUAD> *)(to + (2 * lane + c) * HEADS) = all;
        }
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Pieces of 16 bytes of a row of a tile, and where piece k of row c lies: so that the same piece of
 * eight neighbouring rows is in all banks. */
template <class CELLS> struct latent_tile {
    enum {
        PIECES = GW_PAGE * CELLS::BYTES / 16,
        CELLS_OF = 16 / CELLS::BYTES, /* positions of a piece */
        COLUMNS = GW_LATENT_COLUMNS(CELLS::BYTES),
        OWN = COLUMNS / GW_LATENT_PARTS / 32, /* columns of a thread */
        BYTES = GW_LATENT_TILE(CELLS::BYTES)
    };
    __device__ static inline int at(int c, int k) {
        return (c * PIECES + (k ^ (PIECES < 8 ? c >> 1 & 3 : c & 7))) * 16;
    }
};

/* Columns [first, first + n) of a page, as rows; weights; scales of the blocks they touch. */
template <class CELLS>
__device__ static inline void take_page(const struct gw_attend_latent_params &p, uint8_t *slot,
                                        const uint8_t *page, const float *weights, int first,
                                        int n) {
    typedef latent_tile<CELLS> tile;
    enum { WEIGHT_PIECES = GW_PAGE * HEADS * 4 / 16, SCALE_PIECES = GW_PAGE * 2 / 16 };
    const uint8_t *rows = page + (size_t)first * GW_PAGE * CELLS::BYTES;
    for (int i = (int)threadIdx.x; i < n * tile::PIECES; i += VALUES) {
        gw_copy_async(slot + tile::at(i / tile::PIECES, i % tile::PIECES), rows + i * 16);
    }
    uint8_t *to = slot + tile::BYTES;
    for (int i = (int)threadIdx.x; i < WEIGHT_PIECES; i += VALUES) {
        gw_copy_async(to + i * 16, (const uint8_t *)weights + i * 16);
    }
    if (CELLS::SCALED) {
        const int block = first / 32, blocks = (first + n - 1) / 32 - block + 1;
        const uint8_t *scales = page + GW_PAGE * p.e + block * GW_PAGE * 2;
        to += WEIGHT_PIECES * 16;
        for (int i = (int)threadIdx.x; i < blocks * SCALE_PIECES; i += VALUES) {
            gw_copy_async(to + i * 16, scales + i * 16);
        }
    }
}

/* A thread's part of a tile: columns column, column + 32, of four heads from `side` on. */
struct latent_part {
    int column, side, shift; /* shift: columns of the first block of scales that lie before */
};

/* Positions [j0, j0 + n) of a page, n the cells of a piece, or fewer. */
template <class CELLS, int WHOLE>
__device__ static inline void mix_piece(const uint8_t *slot, const latent_part &t, int j0, int n,
                                        float (*o)[QUAD]) {
    typedef latent_tile<CELLS> tile;
    enum { OWN = tile::OWN, N = tile::CELLS_OF };
    const gw_f32s<QUAD> *w =
        (const gw_f32s<QUAD> *)(slot + tile::BYTES) + (j0 * HEADS + t.side) / QUAD;
    const uint8_t *scales = slot + tile::BYTES + GW_PAGE * HEADS * 4;
    float x[OWN][N];
#pragma unroll
    for (int c = 0; c < OWN; c++) {
        const int column = t.column + 32 * c;
        gw_scale scale[N];
        if (CELLS::SCALED) {
            const int at = (t.shift + column) / 32 * GW_PAGE + j0;
            float of[16]; /* a piece of q8_0 */
            gw_cells_f16::read<8>(scales, at, of);
            gw_cells_f16::read<8>(scales, at + 8, of + 8);
#pragma unroll
            for (int i = 0; i < N; i++) {
                scale[i] = gw_scale(of[i]);
            }
        }
        CELLS::template read_scaled<N>(slot + tile::at(column, j0 / N), 0, scale, x[c]);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (WHOLE || k < n) {
            const gw_f32s<QUAD> by = w[k * (HEADS / QUAD)];
#pragma unroll
            for (int c = 0; c < OWN; c++) {
#pragma unroll
                for (int h = 0; h < QUAD; h++) {
                    o[c][h] = GW_FMA(by.v[h], x[c][k], o[c][h]);
                }
            }
        }
    }
}

/* o[c][h]: chains over the first `end` positions of a page. */
template <class CELLS>
__device__ static inline void mix_page(const uint8_t *slot, const latent_part &t, int end,
                                       float (*o)[QUAD]) {
    enum { N = latent_tile<CELLS>::CELLS_OF };
#pragma unroll
    for (int c = 0; c < latent_tile<CELLS>::OWN; c++) {
#pragma unroll
        for (int h = 0; h < QUAD; h++) {
            o[c][h] = 0.0f;
        }
    }
    int j0 = 0;
#pragma unroll 1
    for (; j0 + N <= end; j0 += N) {
        mix_piece<CELLS, 1>(slot, t, j0, N, o);
    }
    if (j0 < end) { /* of a row's last page */
        mix_piece<CELLS, 0>(slot, t, j0, end - j0, o);
    }
}

/* Pages of a unit: one, or those of a group. */
GW_DEVICE int pages_of_unit(const struct gw_attend_latent_params &p, int n) {
    return n <= p.alone ? 1 : GW_PAGE_GROUP;
}

/* by[page][head] of the pages [first, end) of a group: what step 4 multiplies their sums by. */
__device__ static inline void weigh_pages(const struct gw_attend_latent_params &p, int here,
                                          const latent_heads &own, int first, int end,
                                          float (*by)[HEADS]) {
    const int h = (int)threadIdx.x;
    if (h < own.n) {
        const float *tops = p.top + ((size_t)here * p.heads + own.head + h) * p.table_stride;
        float top = minus_infinity();
        for (int page = first; page < end; page++) {
            top = larger(top, tops[page]);
        }
        for (int page = first; page < end; page++) {
            by[page - first][h] = gw_exp(tops[page] - top);
        }
    }
}

template <class CELLS>
__device__ static inline void latent_values(const struct gw_attend_latent_params &p,
                                            uint8_t *shared) {
    typedef latent_tile<CELLS> tile;
    enum { OWN = tile::OWN, SLOT = GW_LATENT_SLOT(CELLS::BYTES) };
    __shared__ float by[GW_PAGE_GROUP][HEADS];
    const int here = (int)blockIdx.y, row = p.row0 + here;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const int slices = (p.ev + tile::COLUMNS - 1) / tile::COLUMNS;
    const int column0 = (int)blockIdx.x % slices * tile::COLUMNS;
    const int columns = p.ev - column0 < tile::COLUMNS ? p.ev - column0 : tile::COLUMNS;
    const latent_heads own = heads_of(p, (int)blockIdx.x / slices);
    const int pos = gw_step_pos(p.step, row), n = pos / GW_PAGE + 1, each = pages_of_unit(p, n);
    const int v0 = p.v_first + column0;
    const latent_part t = {gw_team() / GW_LATENT_SIDES * (32 * OWN) + gw_lane(),
                           gw_team() % GW_LATENT_SIDES * QUAD, v0 % 32};
    for (int unit = (int)blockIdx.z; unit * each < n; unit += (int)gridDim.z) {
        const int first = unit * each, end = first + each < n ? first + each : n;
        float sum[OWN][QUAD];
        take_page<CELLS>(p, shared, tile_of(p, row, own.g, first),
                         weights_of(p, here, own.of, first), v0, columns);
        gw_copy_commit();
        if (each > 1) {
            weigh_pages(p, here, own, first, end, by);
        }
        for (int page = first; page < end; page++) {
            float o[OWN][QUAD];
            if (page + 1 < end) {
                take_page<CELLS>(p, shared + (page + 1 - first) % 2 * SLOT,
                                 tile_of(p, row, own.g, page + 1),
                                 weights_of(p, here, own.of, page + 1), v0, columns);
            }
            gw_copy_commit();
            gw_copy_wait<1>();
            __syncthreads();
            const int seen = pos - page * GW_PAGE + 1;
            mix_page<CELLS>(shared + (page - first) % 2 * SLOT, t, seen < GW_PAGE ? seen : GW_PAGE,
                            o);
#pragma unroll
            for (int c = 0; c < OWN; c++) {
#pragma unroll
                for (int h = 0; h < QUAD; h++) {
                    const float before = page == first ? 0.0f : sum[c][h];
                    sum[c][h] =
                        each > 1 ? GW_FMA(o[c][h], by[page - first][t.side + h], before) : o[c][h];
                }
            }
            __syncthreads(); /* the slot, and weights of pages, are read */
        }
#pragma unroll
        for (int c = 0; c < OWN; c++) {
            const int column = t.column + 32 * c;
#pragma unroll
            for (int h = 0; h < QUAD; h++) {
                if (t.side + h < own.n && column < columns) {
                    const size_t head = (size_t)here * p.heads + own.head + t.side + h;
                    p.values[(head * p.units + unit) * p.ev + column0 + column] = sum[c][h];
                }
            }
        }
    }
}

#define LATENT(format)                                                                             \
    GW_KERNEL(gw_latent_scores_##format, struct gw_attend_latent_params, GW_LATENT_THREADS) {      \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        latent_scores<gw_cells_##format>(p, shared);                                               \
    }                                                                                              \
    GW_KERNEL(gw_latent_values_##format, struct gw_attend_latent_params, VALUES) {                 \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        latent_values<gw_cells_##format>(p, shared);                                               \
    }
LATENT(f16)
LATENT(f32)
LATENT(q8_0)

/* ---- join ------------------------------------------------------------------------------------ */

/* Groups in batches of as many as the block has threads: a thread makes the sum of one (step 4),
 * then all go through them in order, each with a column of its own. */
GW_KERNEL(gw_latent_join, struct gw_attend_latent_params, GW_LATENT_THREADS) {
    __shared__ float tops[TEAMS], sums[GW_LATENT_THREADS], shares[GW_LATENT_THREADS];
    __shared__ float by[GW_PAGE_GROUP][GW_LATENT_THREADS / GW_PAGE_GROUP];
    enum {
        AT_ONCE = GW_LATENT_THREADS / GW_PAGE_GROUP,
        SOON = 8
    }; /* AT_ONCE: of groups of pages */
    const int slices = (p.ev + GW_LATENT_THREADS - 1) / GW_LATENT_THREADS;
    const int h = (int)blockIdx.x / slices, here = (int)blockIdx.y, row = p.row0 + here;
    const int id = (int)threadIdx.x, column = (int)blockIdx.x % slices * GW_LATENT_THREADS + id;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const int n = gw_step_pos(p.step, row) / GW_PAGE + 1, each = pages_of_unit(p, n);
    const size_t head = (size_t)here * p.heads + h;
    const float *top = p.top + head * p.table_stride, *sum = p.sum + head * p.table_stride;
    const float *values = p.values + head * p.units * p.ev + (column < p.ev ? column : 0);
    float best = minus_infinity(), total = -0.0f, o = -0.0f;
    for (int page = id; page < n; page += GW_LATENT_THREADS) {
        best = larger(best, top[page]);
    }
    best = team_top(best);
    if (gw_lane() == 0) {
        tops[gw_team()] = best;
    }
    __syncthreads();
    for (int t = 0; t < TEAMS; t++) {
        best = larger(best, tops[t]);
    }
    const int batch = each > 1 ? (int)GW_LATENT_THREADS : (int)AT_ONCE; /* groups */
    for (int from = 0; from * GW_PAGE_GROUP < n; from += batch) {
        const int first = (from + id) * GW_PAGE_GROUP, left = n - first;
        const int pages = left < GW_PAGE_GROUP ? left : GW_PAGE_GROUP;
        __syncthreads(); /* what the batch before left is read */
        if (id < batch && pages > 0) {
            float here_top = minus_infinity(), here_sum = 0.0f;
            for (int k = 0; k < pages; k++) {
                here_top = larger(here_top, top[first + k]);
            }
            for (int k = 0; k < pages; k++) {
                const float w = gw_exp(top[first + k] - here_top);
                here_sum = GW_FMA(sum[first + k], w, here_sum);
                if (each == 1) {
                    by[k][id] = w;
                }
            }
            sums[id] = here_sum;
            shares[id] = gw_exp(here_top - best);
        }
        __syncthreads();
        const int here_groups = (n - from * GW_PAGE_GROUP + GW_PAGE_GROUP - 1) / GW_PAGE_GROUP;
        const int groups = here_groups < batch ? here_groups : batch;
        const float *own = values + (size_t)from * (each > 1 ? 1 : GW_PAGE_GROUP) * p.ev;
        for (int g0 = 0; g0 < groups && each > 1; g0 += SOON) {
            float value[SOON]; /* all on their way at once */
#pragma unroll
            for (int k = 0; k < SOON; k++) {
                value[k] = g0 + k < groups ? own[(size_t)(g0 + k) * p.ev] : 0.0f;
            }
#pragma unroll
            for (int k = 0; k < SOON; k++) {
                if (g0 + k < groups) {
                    total = GW_FMA(sums[g0 + k], shares[g0 + k], total);
                    o = GW_FMA(value[k], shares[g0 + k], o);
                }
            }
        }
        for (int g = 0; g < groups && each == 1; g++) {
            const int rest = n - (from + g) * GW_PAGE_GROUP;
            float page[GW_PAGE_GROUP], value = 0.0f;
#pragma unroll
            for (int k = 0; k < GW_PAGE_GROUP; k++) {
                page[k] = k < rest ? own[(size_t)(g * GW_PAGE_GROUP + k) * p.ev] : 0.0f;
            }
#pragma unroll
            for (int k = 0; k < GW_PAGE_GROUP; k++) {
                value = k < rest ? GW_FMA(page[k], by[k][g], value) : value;
            }
            total = GW_FMA(sums[g], shares[g], total);
            o = GW_FMA(value, shares[g], o);
        }
    }
    o = o / total;
    const size_t to = ((size_t)row * p.heads + h) * p.ev + column;
    if (p.form == GW_FORM_FLOATS) {
        if (column < p.ev) {
            ((float *)p.out)[to] = o;
        }
    } else if (column / GW_LANES * GW_LANES < p.ev) { /* whole teams: heads are whole blocks */
        gw_team_encode(p.out, to / GW_ACT_BLOCK, p.form, o);
    }
}
