/* kernels_hip/attention/attend_latent.hip - ATTENTION whose values are part of the keys, as latent
 * attention has them (docs/arithmetic.md, section 5): one row of the cache serves all query heads,
 * which share what is read of it.
 *
 * Three launches. Scores: a lane has some neighbouring positions of a page and four heads: two
 * positions where a row sees few pages, so that four teams share one, else four. Values: a team has
 * a page, 64 columns and 16 heads, a lane four columns of eight heads; what it reads comes through
 * a ring of its own. Where a row sees many pages, a block goes through a group of them, its teams
 * side by side, and joins them in order (step 4), so that a sixteenth of the partial results goes
 * through memory. Join: steps 5 and 6.
 *
 * What many lanes want of shared memory is read in eights of bytes: sixteen take four turns of it
 * even where all want the same, eight take one. Two of them never lie side by side, or a compiler
 * makes sixteen of them.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention/attend_latent_params.h"
#include "kernels_hip/attention/attention.h"

enum {
    TEAMS = GW_LATENT_TEAMS,
    HEADS = GW_LATENT_HEADS,
    QUAD = GW_LATENT_QUAD,
    OCTET = GW_LATENT_OCTET,
    STEP = GW_LATENT_STEP,
    COLUMNS = GW_LATENT_COLUMNS,
    POSITIONS = GW_LATENT_POSITIONS,
    OWN = COLUMNS / (GW_LANES / 2) /* columns of a lane, of values */
};
typedef gw_f32s<2> two_heads;

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
/* Where weights of a page begin: [GW_PAGE, HEADS], pairs where weight_at says. */
GW_DEVICE float *weights_of(const struct gw_attend_latent_params &p, int here, int of, int page) {
    return p.weights +
           (((size_t)here * blocks_of_heads(p) + of) * p.table_stride + page) * (GW_PAGE * HEADS);
}
/* Where pairs of heads lie in a row of 16: of queries and of weights, of which a lane reads those
 * of its quad or its octet. */
GW_DEVICE int query_at(int quad, int pair) { return pair * (HEADS / QUAD) + quad; }
GW_DEVICE int weight_at(int octet, int pair) { return pair * (HEADS / OCTET) + octet; }

/* ---- scores ---------------------------------------------------------------------------------- */

/* Neighbouring cells as they lie in memory. */
template <int BYTES> struct latent_raw { gw_words<BYTES / 4> bytes; };
template <> struct latent_raw<2> { gw_u16 bytes; };

/* How a page is shared where lanes have P positions of it. */
template <class CELLS, int P> struct latent_share {
    enum {
        OF_TEAM = P * GW_LANES / GW_PAGE, /* quads of heads     */
        OF_PAGE = HEADS / QUAD / OF_TEAM, /* teams              */
        PAGES = TEAMS / OF_PAGE           /* that a block has   */
    };
    typedef latent_raw<P * CELLS::BYTES> raw;
};

/* STEP rows of a page from i on, P positions from P at on. */
template <class CELLS, int P>
__device__ static inline void fetch_rows(const uint8_t *tile, int i, int at,
                                         typename latent_share<CELLS, P>::raw *to) {
    const typename latent_share<CELLS, P>::raw *from =
        (const typename latent_share<CELLS, P>::raw *)tile + i * (GW_PAGE / P) + at;
#pragma unroll
    for (int k = 0; k < STEP; k++) {
        to[k] = from[k * (GW_PAGE / P)];
    }
}

/* Asks for `n` rows of a tile, from `first` on, to come into the second cache. */
template <class CELLS>
__device__ static inline void prefetch_rows(const uint8_t *tile, int e, int first, int n) {
    const int left = e - first;
    if (left > 0) {
        gw_prefetch_bytes(tile + first * GW_PAGE * CELLS::BYTES,
                          (left < n ? left : n) * GW_PAGE * CELLS::BYTES);
    }
}

/* s[h][.] of the lane's quad of heads: q [e][HEADS], from its first pair on. Rows come into the
 * second cache GW_LATENT_AHEAD before they are fetched, as `asks` does it: of all pages of a
 * multiprocessor the first ones before the last of any. */
template <class CELLS, int P>
__device__ static inline void score_page(const two_heads *q, const uint8_t *tile, int e, int at,
                                         int asks, float (*s)[P]) {
    const uint8_t *scales = tile + GW_PAGE * e;
    typename latent_share<CELLS, P>::raw next[STEP];
    gw_scale scale[P];
#pragma unroll
    for (int c = 0; c < P; c++) {
        scale[c] = gw_scale(0.0f);
#pragma unroll
        for (int h = 0; h < QUAD; h++) {
            s[h][c] = 0.0f;
        }
    }
    fetch_rows<CELLS, P>(tile, 0, at, next);
#pragma unroll 2 /* rows stay where they were fetched to */
    for (int i = 0; i < e; i += STEP) {
        typename latent_share<CELLS, P>::raw now[STEP];
#pragma unroll
        for (int k = 0; k < STEP; k++) {
            now[k] = next[k];
        }
        fetch_rows<CELLS, P>(tile, i + STEP < e ? i + STEP : i, at, next); /* no branch */
        if (asks && i % (4 * STEP) == 0) {
            prefetch_rows<CELLS>(tile, e, i + GW_LATENT_AHEAD, 4 * STEP);
        }
        if (CELLS::SCALED && i % 32 == 0) {
            float of[P];
            gw_cells_f16::read<P>(scales, i / 32 * GW_PAGE + P * at, of);
#pragma unroll
            for (int c = 0; c < P; c++) {
                scale[c] = gw_scale(of[c]);
            }
        }
#pragma unroll
        for (int k = 0; k < STEP; k++) {
            float x[P];
            CELLS::template read_scaled<P>((const uint8_t *)&now[k], 0, scale, x);
#pragma unroll
            for (int pair = 0; pair < QUAD / 2; pair++) {
                const two_heads by = q[(i + k) * (HEADS / 2) + query_at(0, pair)];
#pragma unroll
                for (int c = 0; c < P; c++) {
                    s[2 * pair][c] = GW_FMA(by.v[0], x[c], s[2 * pair][c]);
                    s[2 * pair + 1][c] = GW_FMA(by.v[1], x[c], s[2 * pair + 1][c]);
                }
            }
        }
    }
}

/* Queries of a block: [e][HEADS]; those of no head are 0. */
__device__ static inline void take_queries(const struct gw_attend_latent_params &p, int row,
                                           const latent_heads &own, float *to) {
    const float *from = p.q + ((size_t)row * p.heads + own.head) * p.e;
#pragma unroll 9
    for (int i = (int)threadIdx.x; i < p.e / 4 * HEADS; i += GW_LATENT_THREADS) {
        const int h = i % HEADS, at = i / HEADS * 4;
        const int place = 2 * query_at(h / QUAD, h % QUAD / 2) + h % 2;
        gw_f32s<4> x = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (h < own.n) {
            x = *(const gw_f32s<4> *)(from + h * p.e + at);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            to[(at + k) * HEADS + place] = x.v[k];
        }
    }
}

/* The largest of, and the fold of 64 over, the positions of a page, P neighbours to a lane: lanes
 * that have the same heads, then the lane's own. Sums commute. */
template <int P> __device__ static inline float page_top(const float *v) {
    float top = v[0];
#pragma unroll
    for (int c = 1; c < P; c++) {
        top = larger(top, v[c]);
    }
    top = larger(top, gw_partner<16>(top));
    top = larger(top, gw_partner<8>(top));
    top = larger(top, gw_partner<4>(top));
    top = larger(top, gw_partner<2>(top));
    return P == 2 ? larger(top, gw_partner<1>(top)) : top;
}
template <int P> __device__ static inline float page_fold(const float *v) {
    float f[P];
#pragma unroll
    for (int c = 0; c < P; c++) {
        f[c] = v[c] + gw_partner<16>(v[c]);
        f[c] = f[c] + gw_partner<8>(f[c]);
        f[c] = f[c] + gw_partner<4>(f[c]);
        f[c] = f[c] + gw_partner<2>(f[c]);
        f[c] = P == 2 ? f[c] + gw_partner<1>(f[c]) : f[c];
    }
    return P == 2 ? f[0] + f[1] : (f[0] + f[2 % P]) + (f[1] + f[3 % P]);
}

/* Scores of a page -> what step 2 and 3 make of them. end: positions behind it are not seen. */
template <class CELLS, int P>
__device__ static inline void leave_scores(const struct gw_attend_latent_params &p, int here,
                                           const latent_heads &own, int page, int end, int at,
                                           int quad, float (*s)[P]) {
    float w[QUAD][P];
#pragma unroll
    for (int h = 0; h < QUAD; h++) {
        float seen[P];
#pragma unroll
        for (int c = 0; c < P; c++) {
            s[h][c] = s[h][c] * p.scale;
            seen[c] = P * at + c < end ? s[h][c] : minus_infinity();
        }
        const float top = page_top<P>(seen);
#pragma unroll
        for (int c = 0; c < P; c++) {
            w[h][c] = P * at + c < end ? exp_below(s[h][c] - top) : 0.0f;
        }
        const float sum = page_fold<P>(w[h]);
        const int head = quad * QUAD + h;
        if (at == 0 && head < own.n) {
            const size_t to = ((size_t)here * p.heads + own.head + head) * p.table_stride + page;
            p.top[to] = top;
            p.sum[to] = sum;
        }
    }
    two_heads *to = (two_heads *)weights_of(p, here, own.of, page);
#pragma unroll
    for (int c = 0; c < P; c++) {
#pragma unroll
        for (int pair = 0; pair < QUAD / 2; pair++) {
            const two_heads both = {{w[2 * pair][c], w[2 * pair + 1][c]}};
            const int first = quad * QUAD % OCTET / 2 + pair; /* of the octet's pairs */
            to[(P * at + c) * (HEADS / 2) + weight_at(quad * QUAD / OCTET, first)] = both;
        }
    }
}

/* The pages of a block. Before it: prefetch_pages. */
template <class CELLS, int P>
__device__ static inline void score_pages(const struct gw_attend_latent_params &p,
                                          const float *queries, int row, int here,
                                          const latent_heads &own, int pos) {
    typedef latent_share<CELLS, P> share;
    const int lane = gw_lane(), team = gw_team(), at = lane / share::OF_TEAM;
    const int first = team % share::OF_PAGE * share::OF_TEAM;
    const int quad = first + lane % share::OF_TEAM, last = pos / GW_PAGE;
    const int step = (int)gridDim.z * share::PAGES;
    if (first * QUAD >= own.n) {
        return; /* whole teams, and nobody waits for them */
    }
    const two_heads *q = (const two_heads *)queries + query_at(quad, 0);
    for (int page = (int)blockIdx.z * share::PAGES + team / share::OF_PAGE; page <= last;
         page += step) {
        const int asks = first == 0 && lane == 0, whole = P == 2 && page < (int)gridDim.z;
        float s[QUAD][P];
        if (asks && page + step <= last) {
            prefetch_rows<CELLS>(tile_of(p, row, own.g, page + step), p.e, 0, GW_LATENT_AHEAD);
        }
        score_page<CELLS, P>(q, tile_of(p, row, own.g, page), p.e, at, asks && !whole, s);
        leave_scores<CELLS, P>(p, here, own, page, pos - page * GW_PAGE + 1, at, quad, s);
    }
}
template <class CELLS, int P>
__device__ static inline void prefetch_pages(const struct gw_attend_latent_params &p, int row,
                                             int g, int last) {
    enum { PAGES = latent_share<CELLS, P>::PAGES };
    const int page = (int)blockIdx.z * PAGES + (int)threadIdx.x;
    if ((int)threadIdx.x < PAGES && page <= last) { /* whoever writes there writes to that cache */
        prefetch_rows<CELLS>(tile_of(p, row, g, page), p.e, 0, P == 2 ? p.e : (int)GW_LATENT_AHEAD);
    }
}

template <class CELLS>
__device__ static inline void latent_scores(const struct gw_attend_latent_params &p,
                                            uint8_t *shared) {
    const int here = (int)blockIdx.y, row = p.row0 + here;
    gw_grid_launch_dependents();
    const latent_heads own = heads_of(p, (int)blockIdx.x);
    const int live = row < gw_live(p.step), pos = live ? gw_step_pos(p.step, row) : -1;
    const int last = pos / GW_PAGE, few = last < p.few;
    if (!live || (int)blockIdx.z * (few ? 1 : (int)latent_share<CELLS, 4>::PAGES) > last) {
        gw_grid_dependency_wait();
        return;
    }
    if (few) {
        prefetch_pages<CELLS, 2>(p, row, own.g, last);
    } else {
        prefetch_pages<CELLS, 4>(p, row, own.g, last);
    }
    gw_grid_dependency_wait();
    take_queries(p, row, own, (float *)shared);
    __syncthreads();
    if (few) {
        score_pages<CELLS, 2>(p, (const float *)shared, row, here, own, pos);
    } else {
        score_pages<CELLS, 4>(p, (const float *)shared, row, here, own, pos);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A place of a team's ring: POSITIONS of a page in all columns of the block, as rows; their
 * weights; scales of the blocks that the columns touch. Rows lie in the order in which lanes read
 * them, pieces of 16 bytes so that the same one of eight rows is in all banks. */
template <class CELLS> struct latent_stage {
    enum {
        PIECES = POSITIONS * CELLS::BYTES / 16, /* of a row */
        EIGHTH = 8 / PIECES,
        WEIGHTS = COLUMNS * POSITIONS * CELLS::BYTES,
        SCALES = WEIGHTS + POSITIONS * HEADS * 4,
        BYTES = GW_LATENT_STAGE(CELLS::BYTES),
        OF_PAGE = GW_PAGE / POSITIONS
    };
    __device__ static inline int at(int row, int k) {
        return (row * PIECES + (k ^ row / EIGHTH % PIECES)) * 16;
    }
};

/* What a block of values has of a row: columns [column0, + columns) of some heads, which are rows
 * of a tile from v0 on; a lane's columns are OWN from `column` on, of the octet. */
struct latent_part {
    latent_heads own;
    int row, here, pos, column0, columns, v0, column, octet;
};

/* Positions of a tile, those of stage `number`, to a place of the ring. */
template <class CELLS>
__device__ static inline void take_stage(const struct gw_attend_latent_params &p,
                                         const latent_part &t, uint8_t *to, const uint8_t *tile,
                                         const float *weights, int number) {
    typedef latent_stage<CELLS> stage;
    enum { WEIGHTS_OF = POSITIONS * HEADS * 4, SCALES_OF = POSITIONS * 2 / 16 };
    const int lane = gw_lane();
    const uint8_t *from = tile + ((size_t)t.v0 * GW_PAGE + number * POSITIONS) * CELLS::BYTES;
#pragma unroll
    for (int i = 0; i < COLUMNS * stage::PIECES / GW_LANES; i++) {
        const int row = (i * GW_LANES + lane) / stage::PIECES, k = lane % stage::PIECES;
        const int column = row % (COLUMNS / OWN) * OWN + row / (COLUMNS / OWN);
        if (column < t.columns) {
            gw_copy_async(to + stage::at(row, k), from + column * GW_PAGE * CELLS::BYTES + k * 16);
        }
    }
    const uint8_t *of = (const uint8_t *)weights + number * WEIGHTS_OF;
#pragma unroll
    for (int i = 0; i < WEIGHTS_OF; i += GW_LANES * 16) {
        gw_copy_async(to + stage::WEIGHTS + i + lane * 16, of + i + lane * 16);
    }
    if (CELLS::SCALED) {
        const int block = t.v0 / 32, blocks = (t.v0 + t.columns - 1) / 32 - block + 1;
        if (lane < blocks * SCALES_OF) {
            const uint8_t *scales = tile + GW_PAGE * p.e + number * POSITIONS * 2;
            gw_copy_async(to + stage::SCALES + lane * 16,
                          scales + (block + lane / SCALES_OF) * GW_PAGE * 2 +
                              lane % SCALES_OF * 16);
        }
    }
}

/* The first n positions of a stage; WHOLE: all. */
template <class CELLS, int WHOLE>
__device__ static inline void mix_stage(const uint8_t *from, const latent_part &t, int n,
                                        float (*o)[OCTET]) {
    typedef latent_stage<CELLS> stage;
    enum {
        N = 16 / CELLS::BYTES,        /* positions of a piece  */
        M = CELLS::BYTES == 1 ? 4 : 2 /* widened at once       */
    };
    const two_heads *w = (const two_heads *)(from + stage::WEIGHTS) + weight_at(t.octet, 0);
    const uint8_t *scales = from + stage::SCALES;
#pragma unroll
    for (int piece = 0; piece < stage::PIECES; piece++) {
        gw_16b cells[OWN];
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int row = i * (COLUMNS / OWN) + t.column / OWN;
            cells[i] = *(const gw_16b *)(from + stage::at(row, piece));
        }
#pragma unroll
        for (int j = 0; j < N; j += M) {
            float x[OWN][M];
            gw_scale scale[M];
            if (CELLS::SCALED) { /* v_first is a multiple of OWN: a block has all of a lane */
                float of[M];
                gw_cells_f16::read<M>(scales, (t.v0 % 32 + t.column) / 32 * POSITIONS + j, of);
#pragma unroll
                for (int k = 0; k < M; k++) {
                    scale[k] = gw_scale(of[k]);
                }
            }
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                CELLS::template read_scaled<M>((const uint8_t *)&cells[i], j, scale, x[i]);
            }
#pragma unroll
            for (int k = 0; k < M; k++) {
                const int at = piece * N + j + k;
                if (WHOLE || at < n) {
#pragma unroll
                    for (int pair = 0; pair < OCTET / 2; pair++) {
                        const two_heads by = w[at * (HEADS / 2) + weight_at(0, pair)];
#pragma unroll
                        for (int i = 0; i < OWN; i++) {
                            o[i][2 * pair] = GW_FMA(by.v[0], x[i][k], o[i][2 * pair]);
                            o[i][2 * pair + 1] = GW_FMA(by.v[1], x[i][k], o[i][2 * pair + 1]);
                        }
                    }
                }
            }
        }
    }
}

/* Goes through the pages of a team, `first` and every `step`-th below `end`; GW_LATENT_RING - 1
 * stages are on their way. */
template <class CELLS> struct latent_walk {
    enum { STAGE = latent_stage<CELLS>::BYTES, OF_PAGE = latent_stage<CELLS>::OF_PAGE };
    uint8_t *ring;
    int page, end, step;            /* the page that is asked for, of which `number` comes next */
    int number, place, asked_place; /* places of the ring: what is read next, what is asked for */
    const uint8_t *tile;

    __device__ inline void open(const struct gw_attend_latent_params &p, const latent_part &t,
                                int first, int last, int every) {
        page = first;
        end = last;
        step = every;
        number = place = asked_place = 0;
        tile = page < end ? tile_of(p, t.row, t.own.g, page) : (const uint8_t *)0;
#pragma unroll
        for (int i = 0; i < GW_LATENT_RING - 1; i++) {
            ask(p, t);
        }
    }
    __device__ inline void ask(const struct gw_attend_latent_params &p, const latent_part &t) {
        if (page < end) {
            take_stage<CELLS>(p, t, ring + asked_place * STAGE, tile,
                              weights_of(p, t.here, t.own.of, page), number);
            if (++number == OF_PAGE) {
                number = 0;
                page += step;
                tile = page < end ? tile_of(p, t.row, t.own.g, page) : (const uint8_t *)0;
            }
        }
        asked_place = asked_place == GW_LATENT_RING - 1 ? 0 : asked_place + 1;
        gw_copy_commit();
    }
    /* o[column][head]: chains over the positions of page `at` that are seen. */
    __device__ inline void mix(const struct gw_attend_latent_params &p, const latent_part &t,
                               int at, float (*o)[OCTET]) {
        const int seen = t.pos - at * GW_PAGE + 1;
#pragma unroll
        for (int i = 0; i < OWN; i++) {
#pragma unroll
            for (int h = 0; h < OCTET; h++) {
                o[i][h] = 0.0f;
            }
        }
#pragma unroll 1
        for (int i = 0; i < OF_PAGE; i++) {
            const int left = seen - i * POSITIONS;
            gw_copy_wait<GW_LATENT_RING - 2>();
            gw_sync_team(); /* all has come, and what lay where it asks now is read */
            ask(p, t);
            const uint8_t *from = ring + place * STAGE;
            if (left >= POSITIONS) {
                mix_stage<CELLS, 1>(from, t, POSITIONS, o);
            } else if (left > 0) { /* of a row's last page */
                mix_stage<CELLS, 0>(from, t, left, o);
            }
            place = place == GW_LATENT_RING - 1 ? 0 : place + 1;
        }
    }
};

/* Values of columns column and the three behind it, of a head of the block, to a unit's place. */
__device__ static inline void leave_values(const struct gw_attend_latent_params &p,
                                           const latent_part &t, int head, int unit, int column,
                                           const gw_f32s<OWN> &v) {
    if (head >= t.own.n || column >= t.columns) {
        return;
    }
    float *to = p.values +
                (((size_t)t.here * p.heads + t.own.head + head) * p.units + unit) * p.ev +
                t.column0 + column;
    if (p.ev % OWN == 0) {
        *(gw_f32s<OWN> *)to = v;
        return;
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        if (column + i < t.columns) {
            to[i] = v.v[i];
        }
    }
}

/* Pages of a unit: one, or those of a group. */
GW_DEVICE int pages_of_unit(const struct gw_attend_latent_params &p, int n) {
    return n <= p.alone ? 1 : GW_PAGE_GROUP;
}

/* n pages on their own: teams share them, those of different blocks first. */
template <class CELLS>
__device__ static inline void mix_pages(const struct gw_attend_latent_params &p,
                                        const latent_part &t, latent_walk<CELLS> &walk, int n) {
    const int teams = (int)blockDim.x / GW_LANES, step = teams * (int)gridDim.z;
    const int first = (int)blockIdx.z + gw_team() * (int)gridDim.z;
    walk.open(p, t, first, n, step);
#pragma unroll 1
    for (int page = first; page < n; page += step) {
        float o[OWN][OCTET];
        walk.mix(p, t, page, o);
#pragma unroll
        for (int h = 0; h < OCTET; h++) {
            const gw_f32s<OWN> v = {{o[0][h], o[1][h], o[2][h], o[3][h]}};
            leave_values(p, t, t.octet * OCTET + h, page, t.column, v);
        }
    }
}

/* What the teams of a block share of a group: maxima of its pages, what step 4 multiplies their
 * sums by; its sums so far. */
struct latent_desk {
    float top[GW_PAGE_GROUP][HEADS], by[GW_PAGE_GROUP][HEADS];
    gw_f32s<OWN> sum[HEADS][COLUMNS / OWN];
};
/* by[page][head] of n pages from `first` on. */
__device__ static inline void weigh_pages(const struct gw_attend_latent_params &p,
                                          const latent_part &t, int first, int n,
                                          latent_desk &desk) {
    for (int i = (int)threadIdx.x; i < GW_PAGE_GROUP * HEADS; i += (int)blockDim.x) {
        const int page = i / HEADS, head = i % HEADS;
        desk.top[page][head] =
            page < n && head < t.own.n
                ? p.top[((size_t)t.here * p.heads + t.own.head + head) * p.table_stride + first +
                        page]
                : minus_infinity();
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n * HEADS; i += (int)blockDim.x) {
        const int page = i / HEADS, head = i % HEADS;
        float top = minus_infinity();
#pragma unroll
        for (int k = 0; k < GW_PAGE_GROUP; k++) {
            top = larger(top, desk.top[k][head]);
        }
        desk.by[page][head] = exp_below(desk.top[page][head] - top);
    }
}

/* Where columns column and the three behind it lie of a row of what teams leave: rows of the two
 * octets in different banks. */
GW_DEVICE int left_at(int octet, int column) { return (column + octet * (COLUMNS / 4)) % COLUMNS; }

/* A group: teams have its pages side by side, and when all have one the block joins them in order,
 * each thread some columns of a head. left: [teams][HEADS][COLUMNS]. */
template <class CELLS>
__device__ static inline void mix_group(const struct gw_attend_latent_params &p,
                                        const latent_part &t, latent_walk<CELLS> &walk, int unit,
                                        int n, latent_desk &desk, float *left) {
    enum { QUADS = COLUMNS / OWN };
    const int teams = (int)blockDim.x / GW_LANES, first = unit * GW_PAGE_GROUP;
    const int pages = n - first < GW_PAGE_GROUP ? n - first : GW_PAGE_GROUP;
    walk.open(p, t, first + gw_team(), first + pages, teams);
    weigh_pages(p, t, first, pages, desk);
#pragma unroll 1
    for (int from = 0; from < pages; from += teams) {
        const int mine = from + gw_team(), here = pages - from < teams ? pages - from : teams;
        float o[OWN][OCTET];
        if (mine < pages) {
            walk.mix(p, t, first + mine, o);
        }
        __syncthreads(); /* what was left before is read */
        if (mine < pages) {
#pragma unroll
            for (int h = 0; h < OCTET; h++) {
                const gw_f32s<OWN> v = {{o[0][h], o[1][h], o[2][h], o[3][h]}};
                const int row = gw_team() * HEADS + t.octet * OCTET + h;
                *(gw_f32s<OWN> *)(left + row * COLUMNS + left_at(t.octet, t.column)) = v;
            }
        }
        __syncthreads();
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < HEADS * QUADS; i += (int)blockDim.x) {
            const int head = i / QUADS, column = i % QUADS * OWN, is_last = from + here == pages;
            const float *of = left + head * COLUMNS + left_at(head / OCTET, column);
            gw_f32s<OWN> sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
            if (from > 0) {
                sum = desk.sum[head][column / OWN];
            }
#pragma unroll 4
            for (int page = 0; page < here; page++) {
                const gw_f32s<OWN> v = *(const gw_f32s<OWN> *)(of + page * HEADS * COLUMNS);
                const float by = desk.by[from + page][head];
#pragma unroll
                for (int c = 0; c < OWN; c++) {
                    sum.v[c] = GW_FMA(v.v[c], by, sum.v[c]);
                }
            }
            if (is_last) {
                leave_values(p, t, head, unit, column, sum);
            } else { /* for the same thread */
                desk.sum[head][column / OWN] = sum;
            }
        }
    }
}

template <class CELLS>
__device__ static inline void latent_values(const struct gw_attend_latent_params &p,
                                            uint8_t *shared) {
    enum { RING = GW_LATENT_RING * latent_stage<CELLS>::BYTES };
    __shared__ latent_desk desk;
    const int teams = (int)blockDim.x / GW_LANES;
    latent_part t;
    t.here = (int)blockIdx.y;
    t.row = p.row0 + t.here;
    gw_grid_launch_dependents();
    const int live = t.row < gw_live(p.step);
    const int slices = (p.ev + COLUMNS - 1) / COLUMNS, slice = (int)blockIdx.x % slices;
    t.own = heads_of(p, (int)blockIdx.x / slices);
    t.pos = live ? gw_step_pos(p.step, t.row) : 0;
    t.column0 = slice * COLUMNS;
    t.columns = p.ev - t.column0 < COLUMNS ? p.ev - t.column0 : (int)COLUMNS;
    t.v0 = p.v_first + t.column0;
    t.column = gw_lane() / 2 * OWN;
    t.octet = gw_lane() % 2;
    gw_grid_dependency_wait();
    if (!live) {
        return;
    }
    const int n = t.pos / GW_PAGE + 1;
    latent_walk<CELLS> walk;
    walk.ring = shared + gw_team() * RING;
    if (pages_of_unit(p, n) == 1) {
        mix_pages<CELLS>(p, t, walk, n);
        return;
    }
    for (int unit = (int)blockIdx.z; unit * GW_PAGE_GROUP < n; unit += (int)gridDim.z) {
        mix_group<CELLS>(p, t, walk, unit, n, desk, (float *)(shared + teams * RING));
        __syncthreads(); /* the desk is read */
    }
}

#define LATENT(format, blocks)                                                                     \
    GW_KERNEL(gw_latent_scores_##format, struct gw_attend_latent_params, GW_LATENT_THREADS) {      \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        latent_scores<gw_cells_##format>(p, shared);                                               \
    }                                                                                              \
    GW_KERNEL(gw_latent_values_##format, struct gw_attend_latent_params, GW_LATENT_VALUES_THREADS, \
              blocks) {                                                                            \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        latent_values<gw_cells_##format>(p, shared);                                               \
    }
LATENT(f16, 2)
LATENT(f32, 1)
LATENT(q8_0, 2)

/* ---- join ------------------------------------------------------------------------------------ */

/* Groups in batches of as many as the block has threads: a thread makes the sum of one (step 4),
 * then all go through them in order, each with a column of its own. What a chain takes of memory is
 * on its way before it is known what it is multiplied by. */
struct latent_join {
    float sums[GW_LATENT_THREADS], shares[GW_LATENT_THREADS], tops[TEAMS];
    float by[GW_LATENT_ALONE / GW_PAGE_GROUP][GW_PAGE_GROUP];
};

/* Of a group of pages: their maxima and sums, which are below all and 0 where there is none. */
struct latent_group {
    float top[GW_PAGE_GROUP], sum[GW_PAGE_GROUP];

    __device__ inline void take(const float *tops, const float *sums, int first, int n) {
#pragma unroll
        for (int k = 0; k < GW_PAGE_GROUP; k++) {
            top[k] = first + k < n ? tops[first + k] : minus_infinity();
            sum[k] = first + k < n ? sums[first + k] : 0.0f;
        }
    }
    /* Its sum and share to place i; what its pages are multiplied by, where there is `by`. */
    __device__ inline void leave(latent_join &all, int i, int pages, float best, float *by) const {
        float largest = minus_infinity(), whole = 0.0f;
#pragma unroll
        for (int k = 0; k < GW_PAGE_GROUP; k++) {
            largest = larger(largest, top[k]);
        }
#pragma unroll
        for (int k = 0; k < GW_PAGE_GROUP; k++) {
            const float w = exp_below(top[k] - largest);
            whole = k < pages ? GW_FMA(sum[k], w, whole) : whole;
            if (by) {
                by[k] = w;
            }
        }
        all.sums[i] = whole;
        all.shares[i] = exp_below(largest - best);
    }
};

/* A column's values of n units, `stride` floats apart: N of them from `first` on. */
template <int N>
__device__ static inline void take_values(const float *values, int stride, int first, int n,
                                          float *to) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        to[k] = first + k < n ? values[(size_t)(first + k) * stride] : 0.0f;
    }
}

/* The largest of n maxima. */
GW_DEVICE float best_of(latent_join &all, const float *tops, int n) {
    float best = minus_infinity();
    for (int page = (int)threadIdx.x; page < n; page += GW_LATENT_THREADS) {
        best = larger(best, tops[page]);
    }
    best = team_top(best);
    if (gw_lane() == 0) {
        all.tops[gw_team()] = best;
    }
    __syncthreads();
    for (int t = 0; t < TEAMS; t++) {
        best = larger(best, all.tops[t]);
    }
    return best;
}

GW_KERNEL(gw_latent_join, struct gw_attend_latent_params, GW_LATENT_THREADS) {
    __shared__ latent_join all;
    enum { SOON = GW_LATENT_SOON, BATCH = GW_LATENT_THREADS };
    const int slices = (p.ev + GW_LATENT_THREADS - 1) / GW_LATENT_THREADS;
    const int h = (int)blockIdx.x / slices, here = (int)blockIdx.y, row = p.row0 + here;
    const int id = (int)threadIdx.x, column = (int)blockIdx.x % slices * GW_LATENT_THREADS + id;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const int n = gw_step_pos(p.step, row) / GW_PAGE + 1, alone = pages_of_unit(p, n) == 1;
    const int groups = (n + GW_PAGE_GROUP - 1) / GW_PAGE_GROUP, units = alone ? n : groups;
    const size_t head = (size_t)here * p.heads + h;
    const float *top = p.top + head * p.table_stride, *sum = p.sum + head * p.table_stride;
    const float *values = p.values + head * p.units * p.ev + (column < p.ev ? column : 0);
    float next[SOON], total = -0.0f, o = -0.0f;
    latent_group group;
    take_values<SOON>(values, p.ev, 0, units, next);
    group.take(top, sum, id * GW_PAGE_GROUP, n);
    const float best = best_of(all, top, n);
    for (int from = 0; from < groups; from += BATCH) {
        const int end = groups - from < BATCH ? groups : from + BATCH;
        const int mine = (from + id) * GW_PAGE_GROUP;
        if (from > 0) {
            __syncthreads(); /* what the batch before left is read */
            group.take(top, sum, mine, n);
        }
        if (mine < n) {
            group.leave(all, id, n - mine, best, alone ? all.by[id] : (float *)0);
        }
        __syncthreads();
        for (int g = from; g < end; g += alone ? 1 : (int)SOON) {
            const int unit = alone ? g * GW_PAGE_GROUP : g, left = alone ? n - unit : end - g;
            float value[SOON], page_sum = 0.0f;
#pragma unroll
            for (int k = 0; k < SOON; k++) {
                value[k] = next[k];
            }
            take_values<SOON>(values, p.ev, unit + SOON, units, next);
            if (alone) {
#pragma unroll
                for (int k = 0; k < SOON; k++) {
                    page_sum = k < left ? GW_FMA(value[k], all.by[g][k], page_sum) : page_sum;
                }
                total = GW_FMA(all.sums[g], all.shares[g], total);
                o = GW_FMA(page_sum, all.shares[g], o);
                continue;
            }
#pragma unroll
            for (int k = 0; k < SOON; k++) {
                if (k < left) {
                    total = GW_FMA(all.sums[g - from + k], all.shares[g - from + k], total);
                    o = GW_FMA(value[k], all.shares[g - from + k], o);
                }
            }
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
