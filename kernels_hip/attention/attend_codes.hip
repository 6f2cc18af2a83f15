/* kernels_hip/attention/attend_codes.hip - ATTENTION of generated tokens over caches in 4 and 5
 * bits (docs/arithmetic.md, section 5, "Attention in codes"): products of int8 with the codes as
 * they lie in the cache, four at a time. attend_join.hip joins the sums of blocks.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention/attention.h"
#include "kernels_hip/rows/cells.h"
#include "kernels_hip/attention/cells_params.h"

enum { BLOCKS = GW_CODES_MOST / 32 }; /* of 32 values, most */

/* Four words of four bytes each, w[k] with byte m of t[m] at k. */
GW_DEVICE void transpose(const unsigned *w, unsigned *t) {
    const unsigned a = gw_pick_bytes(w[1], w[0], 0x05010400u);
    const unsigned b = gw_pick_bytes(w[3], w[2], 0x05010400u);
    const unsigned c = gw_pick_bytes(w[1], w[0], 0x07030602u);
    const unsigned d = gw_pick_bytes(w[3], w[2], 0x07030602u);
    t[0] = gw_pick_bytes(b, a, 0x05040100u);
    t[1] = gw_pick_bytes(b, a, 0x07060302u);
    t[2] = gw_pick_bytes(d, c, 0x05040100u);
    t[3] = gw_pick_bytes(d, c, 0x07060302u);
}

/* Bits 0, 2, 4, 6 of a byte to bit 4 of each byte. */
GW_DEVICE unsigned even_bits(unsigned byte) {
    return (byte & 0x55u) * 0x00041041u << 4 & 0x10101010u;
}

/* ---- what a block has in shared memory ------------------------------------------------------- */

template <int HEADS> struct codes_desk {
    /* q [HEADS, e] bytes: of eight values first the even ones, then the odd ones; scale, sum
     * [HEADS, blocks] of its blocks. Of a group, where there is one: values [pages, HEADS, e], top
     * and total [HEADS, pages]. */
    uint8_t *q;
    float *scale;
    int *sum;
    float *values, *top, *total;
    /* Of the team: score [HEADS, 64]; n [blocks, 16, HEADS] words of four positions; by, n_sum
     * [HEADS, blocks]; tiles of K and of V. */
    float *score;
    unsigned *n;
    float *by;
    int *n_sum;
    uint8_t *k, *v;

    template <class P> __device__ inline codes_desk(uint8_t *shared, const P &p, int e, int bits) {
        const int blocks = e / 32;
        q = shared;
        scale = (float *)(q + HEADS * e);
        sum = (int *)(scale + HEADS * blocks);
        values = (float *)(sum + HEADS * blocks);
        top = values + GW_PAGE_GROUP * HEADS * e;
        total = top + GW_PAGE_GROUP * HEADS;
        uint8_t *mine = shared + GW_CODES_DESK(HEADS, e, p.grouped) +
                        gw_team() * GW_CODES_TEAM(HEADS, e, bits, p.slots);
        k = mine; /* whole 16 bytes */
        v = k + (p.slots - 1) * GW_CODES_TILE(e, bits);
        score = (float *)(v + GW_CODES_TILE(e, bits));
        n = (unsigned *)(score + HEADS * GW_PAGE);
        by = (float *)(n + blocks * (GW_PAGE / 4) * HEADS);
        n_sum = (int *)(by + HEADS * blocks);
    }
};

/* ---- queries --------------------------------------------------------------------------------- */

/* Values first .. first + 32 N of a head: rotated, then as int8. */
template <int N, int HEADS>
__device__ static inline void take_span(const codes_desk<HEADS> &d, const float *q, int e, int h,
                                        int first) {
    const int lane = gw_lane(), blocks = e / 32;
    float v[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        v[k] = q ? q[first + GW_LANES * k + lane] : 0.0f;
    }
    gw_cells_rotate<N>(v);
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int i = first + GW_LANES * k + lane;
        gw_team_act8<1> code;
        code.encode(v + k);
        d.q[h * e + i / 8 * 8 + i % 2 * 4 + i % 8 / 2] = (uint8_t)code.q[0];
        if (lane == 0) {
            d.scale[h * blocks + i / 32] = code.scale;
            d.sum[h * blocks + i / 32] = code.first + code.second;
        }
    }
}

/* Head h of the block's; q 0: there is none. */
template <int HEADS>
__device__ static inline void take_query(const codes_desk<HEADS> &d, const float *q, int e, int h) {
    const int span = gw_cells_width(e);
#pragma unroll 1
    for (int first = 0; first < e; first += span) {
        switch (span) {
        case 32: take_span<1>(d, q, e, h, first); break;
        case 64: take_span<2>(d, q, e, h, first); break;
        case 128: take_span<4>(d, q, e, h, first); break;
        default: take_span<8>(d, q, e, h, first); break;
        }
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* t[h][m]: the block's integer products of positions 4 quad + m. */
template <int BITS, int HEADS>
__device__ static inline void multiply_block(const codes_desk<HEADS> &d, int e, int block, int quad,
                                             int (*t)[4]) {
    const uint8_t *codes = d.k + block * (16 * GW_PAGE) + 4 * quad;
    const uint8_t *high = d.k + gw_cells_high_at(e) + block * (4 * GW_PAGE) + 4 * quad;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int m = 0; m < 4; m++) {
            t[h][m] = 0;
        }
    }
#pragma unroll 2
    for (int o = 0; o < 4; o++) { /* eight values */
        unsigned w[4], of[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] = *(const unsigned *)(codes + (4 * o + k) * GW_PAGE);
        }
        transpose(w, of);
        const unsigned fifth = BITS == 5 ? *(const unsigned *)(high + o * GW_PAGE) : 0u;
        const int at = 8 * (4 * block + o);
#pragma unroll
        for (int m = 0; m < 4; m++) {
            unsigned even = of[m] & 0x0f0f0f0fu, odd = of[m] >> 4 & 0x0f0f0f0fu;
            if (BITS == 5) {
                even |= even_bits(fifth >> 8 * m);
                odd |= even_bits(fifth >> 8 * m >> 1);
            }
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                const gw_words<2> q = *(const gw_words<2> *)(d.q + h * e + at);
                t[h][m] = gw_dp4a((int)even, (int)q.v[0], t[h][m]);
                t[h][m] = gw_dp4a((int)odd, (int)q.v[1], t[h][m]);
            }
        }
    }
}

/* Scores of a page. Lanes of a half multiply every second block by four positions each, then each
 * has all blocks of two: their sums go on in the order of blocks. */
template <int BITS, int HEADS>
__device__ static inline void score_page_of_codes(const codes_desk<HEADS> &d, int e, float scale) {
    enum { LESS = BITS == 4 ? 8 : 16 };
    const int half = gw_lane() / 16, quad = gw_lane() % 16, j = 4 * quad + 2 * half;
    const int blocks = e / 32;
    const uint8_t *scales = d.k + gw_cells_scales_at(e, BITS);
    float s[HEADS][2];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        s[h][0] = s[h][1] = 0.0f;
    }
#pragma unroll 1
    for (int pair = 0; pair < blocks; pair += 2) {
        int t[HEADS][4];
        multiply_block<BITS, HEADS>(d, e, pair + half < blocks ? pair + half : pair, quad, t);
#pragma unroll
        for (int h = 0; h < HEADS; h++) { /* what the other half needs for what it has */
            const int own[2] = {half ? t[h][2] : t[h][0], half ? t[h][3] : t[h][1]};
            const int come[2] = {gw_shuffle_xor(half ? t[h][0] : t[h][2], 16),
                                 gw_shuffle_xor(half ? t[h][1] : t[h][3], 16)};
            t[h][0] = half ? come[0] : own[0];
            t[h][1] = half ? come[1] : own[1];
            t[h][2] = half ? own[0] : come[0];
            t[h][3] = half ? own[1] : come[1];
        }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int block = pair + k;
            if (block < blocks) {
                float by[2];
                gw_cells_f16::read<2>(scales, block * GW_PAGE + j, by);
#pragma unroll
                for (int h = 0; h < HEADS; h++) {
                    const float a = d.scale[h * blocks + block];
                    const int less = LESS * d.sum[h * blocks + block];
                    s[h][0] = GW_FMA(a * by[0], (float)(t[h][2 * k] - less), s[h][0]);
                    s[h][1] = GW_FMA(a * by[1], (float)(t[h][2 * k + 1] - less), s[h][1]);
                }
            }
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        d.score[h * GW_PAGE + j] = s[h][0] * scale;
        d.score[h * GW_PAGE + j + 1] = s[h][1] * scale;
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Positions lane and lane + 32 of a head: the page's largest score, the sum of weights, and p. */
struct codes_weights { float top, sum, p[2]; };
GW_DEVICE codes_weights weigh_codes(const float *score, int from, int end) {
    const int lane = gw_lane();
    const float s[2] = {score[lane], score[lane + GW_LANES]};
    const int seen[2] = {lane >= from && lane < end,
                         lane + GW_LANES >= from && lane + GW_LANES < end};
    float best = minus_infinity();
    best = seen[0] && s[0] > best ? s[0] : best;
    best = seen[1] && s[1] > best ? s[1] : best;
    codes_weights w;
    w.top = gw_team_top(best);
    w.p[0] = seen[0] ? exp_below(s[0] - w.top) : 0.0f;
    w.p[1] = seen[1] ? exp_below(s[1] - w.top) : 0.0f;
    w.sum = gw_fold(w.p[0] + w.p[1]);
    return w;
}

/* Weights times the scales of V, as codes of each block. */
template <int BITS, int HEADS>
__device__ static inline void cut_weights(const codes_desk<HEADS> &d, int e, int from, int end,
                                          const codes_weights *p) {
    const int lane = gw_lane(), blocks = e / 32;
    const uint8_t *scales = d.v + gw_cells_scales_at(e, BITS);
    const int seen[2] = {lane >= from && lane < end,
                         lane + GW_LANES >= from && lane + GW_LANES < end};
    uint8_t *n = (uint8_t *)d.n;
#pragma unroll 1
    for (int b = 0; b < blocks; b++) {
        float by[2], w[HEADS][2];
        unsigned mine = 0, top[HEADS];
        gw_cells_f16::read<1>(scales, lane * blocks + b, by);
        gw_cells_f16::read<1>(scales, (lane + GW_LANES) * blocks + b, by + 1);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            w[h][0] = seen[0] ? p[h].p[0] * by[0] : 0.0f;
            w[h][1] = seen[1] ? p[h].p[1] * by[1] : 0.0f;
            top[h] = gw_team_max(gw_larger(GW_F32_BITS(w[h][0]) & 0x7fffffffu,
                                           GW_F32_BITS(w[h][1]) & 0x7fffffffu));
            mine = lane == h || h == 0 ? top[h] : mine;
        }
        const float inverse = gw_codes_inverse(mine), scale = gw_codes_scale(mine);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const float times = gw_shuffle(inverse, h);
            const int first = gw_codes_of(w[h][0], times), second = gw_codes_of(w[h][1], times);
            const int sum = gw_team_sum(first + second);
            const int at = (b * (GW_PAGE / 4) + lane / 4) * HEADS + h;
            n[4 * at + lane % 4] = (uint8_t)first;
            n[4 * (at + GW_LANES / 4 * HEADS) + lane % 4] = (uint8_t)second;
            if (lane == h) {
                d.by[h * blocks + b] = scale;
                d.n_sum[h * blocks + b] = sum;
            }
        }
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The sums of eight neighbouring values of every head, integers, over four positions. */
template <int BITS, int HEADS>
__device__ static inline void add_four(const codes_desk<HEADS> &d, int e, int four, int column,
                                       int (*sum)[8]) {
    const int row = e / 2, block = column / 4;
    const uint8_t *codes = d.v + 4 * four * row + 4 * column;
    unsigned w[4], of[4], fifth = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        w[k] = *(const unsigned *)(codes + k * row);
        if (BITS == 5) {
            fifth |= (unsigned)d.v[gw_cells_high_at(e) + (4 * four + k) * (e / 8) + column]
                     << 8 * k;
        }
    }
    transpose(w, of);
    const unsigned *n = d.n + (block * (GW_PAGE / 4) + four) * HEADS;
    unsigned by[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        by[h] = n[h];
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        unsigned four_codes = of[i / 2] >> i % 2 * 4 & 0x0f0f0f0fu;
        if (BITS == 5) {
            four_codes |= (fifth >> i & 0x01010101u) << 4;
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            sum[h][i] = gw_dp4a((int)four_codes, (int)by[h], sum[h][i]);
        }
    }
}

/* put(h, value, o) of all values of a page. Lanes have eight neighbouring values; where those are
 * fewer than lanes, several share them. */
template <int BITS, int HEADS, class Put>
__device__ static inline void mix_page_of_codes(const codes_desk<HEADS> &d, int e, int from,
                                                int end, Put put) {
    enum { LESS = BITS == 4 ? 8 : 16 };
    const int columns = e / 8, blocks = e / 32; /* 4 to 32 */
    const int wide = columns <= 4 ? 4 : columns <= 8 ? 8 : columns <= 16 ? 16 : 32;
    const int column = gw_lane() % wide, shares = GW_LANES / wide, here = column < columns;
    int sum[HEADS][8];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum[h][i] = 0;
        }
    }
    const int stop = (end + 3) / 4;
    for (int four = from / 4 + gw_lane() / wide; four < stop; four += shares) {
        add_four<BITS, HEADS>(d, e, four, here ? column : 0, sum);
    }
    for (int mask = wide; mask < GW_LANES; mask *= 2) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sum[h][i] += gw_shuffle_xor(sum[h][i], mask);
            }
        }
    }
    if (here && gw_lane() < wide) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const int at = h * blocks + column / 4, less = LESS * d.n_sum[at];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                put(h, 8 * column + i, (float)(sum[h][i] - less) * d.by[at]);
            }
        }
    }
}

/* ---- pages of a row -------------------------------------------------------------------------- */

struct codes_unit {
    int row, g, head, heads, first, n; /* first of n pages */
    gw_span span;
};

/* Prefetches a tile; a team. */
GW_DEVICE void fetch_codes(uint8_t *to, const void *cache, size_t tile, int bytes) {
    const uint8_t *from = (const uint8_t *)cache + tile * bytes;
    for (int i = 16 * gw_lane(); i < bytes; i += 16 * GW_LANES) {
        gw_copy_async(to + i, from + i);
    }
    gw_copy_commit();
}

template <int BITS, int HEADS>
__device__ static inline void attend_page_of_codes(const struct gw_attend_codes_params &p,
                                                   const codes_desk<HEADS> &d, int e,
                                                   const codes_unit &u, int page, size_t tile) {
    const int bytes = GW_CODES_TILE(e, BITS), base = page * GW_PAGE;
    const int from = u.span.lo > base ? u.span.lo - base : 0;
    const int end = u.span.pos + 1 - base < GW_PAGE ? u.span.pos + 1 - base : GW_PAGE;
    fetch_codes(d.k, p.k, tile, bytes);
    if (p.slots == 2) {
        fetch_codes(d.v, p.v, tile, bytes);
        gw_copy_wait<1>();
    } else {
        gw_copy_wait<0>();
    }
    gw_sync_team();
    score_page_of_codes<BITS, HEADS>(d, e, p.scale);
    gw_sync_team();
    if (p.slots == 1) {
        fetch_codes(d.v, p.v, tile, bytes);
    }
    codes_weights weights[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        weights[h] = weigh_codes(d.score + h * GW_PAGE, from, end);
    }
    gw_copy_wait<0>();
    gw_sync_team();
    cut_weights<BITS, HEADS>(d, e, from, end, weights);
    gw_sync_team();
    const int place = page - u.first;
    const size_t part = (size_t)((u.row - p.parts.row0) * p.heads + u.head) * p.parts.page_stride +
                        (page - u.span.first);
    mix_page_of_codes<BITS, HEADS>(d, e, from, end, [&](int h, int i, float o) {
        if (p.grouped) {
            d.values[(place * HEADS + h) * e + i] = o;
        } else if (h < u.heads) {
            p.parts.values[(part + (size_t)h * p.parts.page_stride) * p.parts.e_padded + i] = o;
        }
    });
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (gw_lane() == h && p.grouped) {
            d.top[h * GW_PAGE_GROUP + place] = weights[h].top;
            d.total[h * GW_PAGE_GROUP + place] = weights[h].sum;
        } else if (gw_lane() == h && h < u.heads) {
            p.parts.top[part + (size_t)h * p.parts.page_stride] = weights[h].top;
            p.parts.sum[part + (size_t)h * p.parts.page_stride] = weights[h].sum;
        }
    }
    gw_sync_team(); /* its tiles are free */
}

/* The pages of a block, joined; a team for 32 values of a head. */
template <int HEADS>
__device__ static inline void join_codes(const struct gw_attend_codes_params &p,
                                         const codes_desk<HEADS> &d, int e, const codes_unit &u) {
    const int slices = e / GW_LANES, lane = gw_lane(), place = lane % GW_PAGE_GROUP;
#pragma unroll 1
    for (int unit = gw_team(); unit < slices * u.heads; unit += (int)blockDim.x / GW_LANES) {
        const int h = unit / slices, i = unit % slices * GW_LANES + lane;
        const int in = place < u.n, at_place = h * GW_PAGE_GROUP + (in ? place : 0);
        const gw_group_sums made = join_pages(d.values + h * e + i, HEADS * e,
                                              in ? d.top[at_place] : minus_infinity(),
                                              in ? d.total[at_place] : 0.0f, u.n);
        const int row = (u.row - p.parts.row0) * p.heads + u.head + h;
        const size_t at = (size_t)row * p.parts.page_stride +
                          (u.first - u.span.first) / GW_PAGE_GROUP;
        p.parts.values[at * p.parts.e_padded + i] = made.value;
        if (i == 0) {
            p.parts.top[at] = made.top;
            p.parts.sum[at] = made.sum;
        }
    }
}

/* Groups are counted by KV heads and tiles of heads, rows, groups, the first fastest. */
template <int BITS, int HEADS, int E>
__device__ static inline void attend_codes(const struct gw_attend_codes_params &p,
                                           uint8_t *shared) {
    const int e = E > 0 ? E : p.e, teams = (int)blockDim.x / GW_LANES;
    const codes_desk<HEADS> d(shared, p, e, BITS);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int group = p.heads / p.kv_heads, tiles = (group + HEADS - 1) / HEADS;
    const int seen = gw_live(p.step) - p.parts.row0;
    const int rows = seen < p.parts.rows ? seen : p.parts.rows;
    const int pages = p.step.step[GW_STEP_POS_MAX] / GW_PAGE + 1;
    const int most = p.window > 0 && GW_WINDOW_PAGES(p.window) < pages ? GW_WINDOW_PAGES(p.window)
                                                                       : pages;
    const int per_group = p.kv_heads * tiles * (rows > 0 ? rows : 0);
    const int items = (most + GW_PAGE_GROUP - 1) / GW_PAGE_GROUP * per_group;
    for (int item = (int)blockIdx.x; item < items; item += (int)gridDim.x) {
        codes_unit u;
        const int at = item % per_group, tile = at % (p.kv_heads * tiles);
        u.row = p.parts.row0 + at / (p.kv_heads * tiles);
        u.g = tile / tiles;
        u.head = u.g * group + tile % tiles * HEADS;
        u.heads = group - tile % tiles * HEADS < HEADS ? group - tile % tiles * HEADS : HEADS;
        u.span = span_of(p.step, u.row, p.window);
        u.first = u.span.first + item / per_group * GW_PAGE_GROUP;
        u.n = u.span.last - u.first + 1 < GW_PAGE_GROUP ? u.span.last - u.first + 1 : GW_PAGE_GROUP;
        if (u.n <= 0) {
            continue; /* the whole block */
        }
        for (int h = gw_team(); h < HEADS; h += teams) {
            take_query<HEADS>(d,
                              h < u.heads ? p.q + ((size_t)u.row * p.heads + u.head + h) * e : 0, e,
                              h);
        }
        __syncthreads();
        const int32_t *table = p.pages + (size_t)gw_step_slot(p.step, u.row) * p.table_stride;
        for (int i = gw_team(); i < u.n; i += teams) {
            const size_t at_tile = (size_t)table[u.first + i] * p.kv_heads + u.g;
            attend_page_of_codes<BITS, HEADS>(p, d, e, u, u.first + i, at_tile);
        }
        __syncthreads();
        if (p.grouped) {
            join_codes<HEADS>(p, d, e, u);
            __syncthreads(); /* its places are free, and so are the queries */
        }
    }
}

#define CODES(format, BITS, HEADS, E)                                                              \
    GW_KERNEL(gw_attend_codes_##format##_h##HEADS##_e##E, struct gw_attend_codes_params,           \
              GW_CODES_THREADS) {                                                                  \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        attend_codes<BITS, HEADS, E>(p, shared);                                                   \
    }
#define CODES_HEADS(format, BITS, E)                                                               \
    CODES(format, BITS, 1, E) CODES(format, BITS, 2, E) CODES(format, BITS, 4, E)
#define CODES_ALL(format, BITS)                                                                    \
    CODES_HEADS(format, BITS, 0) CODES_HEADS(format, BITS, 64) CODES_HEADS(format, BITS, 128)
CODES_ALL(q4_0, 4)
CODES_ALL(q5_0, 5)
