/* kernels_hip/attention/attend_digits_tile.h - what attend_digits.hip and attend_digits_group.hip
 * share: a tile of 64 queries over a group of pages (docs/arithmetic.md, "Attention in digits").
 *
 * A block takes a tile of 64 queries, pairs of a row and a head, of one KV head, a wave 16 of them,
 * and a group of pages, one after the other; what was summed is brought to a new maximum when it
 * comes (online softmax: Milakov and Gimelshein, arXiv:1805.02867; by tiles: Dao et al.,
 * arXiv:2205.14135). Digits of k and v come from attend_digits_make.hip, as they shall lie in
 * shared memory, through a ring; those of the queries are made here and stay in registers, as do
 * weights, which are where the second product wants them. How products are made is a UNIT's, which
 * says how the digits of a page lie too: KEYS, VALUES, PLACE    bytes of both, and of a place in
 * shared memory KEY_SCALES, CHANNELS   where scales of keys are, and c of channels, before scales
 * of values STAGES                 places TOGETHER               1: all waves of a block have all
 * pages scores(s, keys, x)     scores of a page add<ALL>(s, values, w, scale, share, page) sums of
 * a page join s.o, of queries that see it, ALL: that all do; share: what it counts; scale: of the
 * weights' digits, times 256
 */
#ifndef GW_KERNELS_HIP_ATTEND_DIGITS_TILE_H
#define GW_KERNELS_HIP_ATTEND_DIGITS_TILE_H

#include "kernels_hip/attention/attend_digits.h"

enum {
    WAVES = GW_DIGITS_WAVES,
    THREADS = WAVES * LANES,
    QUERIES = GW_DIGITS_QUERIES,
    NARROW = GW_QUADS,
    SPAN = NARROW ? GW_MMA_N : GW_MMA_M, /* positions, or channels, of a product */
    TILES = GW_PAGE / SPAN,
    RESULTS = GW_MMA_C,
    HAS = NARROW ? 2 : 1, /* queries of a thread, of the 16 of its wave */
#if GW_WMMA
    WORDS = GW_MMA_B,
#else
    WORDS = 2 * HAS, /* of queries or weights, of 32 digits */
#endif
    STEPS = GW_PAGE / 32 /* of the product with values                 */
};

/* Which of a wave's queries result i is of, of the thread's and of the wave's; which of the SPAN
 * positions or channels. */
GW_DEVICE int query_of(int i) { return NARROW ? i >> 1 : 0; }
GW_DEVICE int place_of_query(int lane, int r) { return NARROW ? lane / 4 + 8 * r : lane % 16; }
#if GW_WMMA
GW_DEVICE int column_of(int lane, int i) { return gw_mma_c_row(lane, i); }
#else
GW_DEVICE int column_of(int lane, int i) {
    return NARROW ? lane % 4 * 2 + (i & 1) : lane / 16 * 4 + i;
}
#endif

/* ---- over the threads that share a query ----------------------------------------------------- */

/* mail: of the wave, 32 words; waves of 64 need it. */
#if LANES == 64
GW_DEVICE unsigned from_other_team(unsigned v, unsigned *mail, int lane) {
    mail[lane / 32 * 16 + lane % 16] = v;
    gw_sync_wave();
    v = mail[16 - lane / 32 * 16 + lane % 16];
    gw_sync_wave();
    return v;
}
#endif
GW_DEVICE float largest(float v, unsigned *mail, int lane) {
#if GW_WMMA
    (void)mail, (void)lane;
    return fmaxf(v, GW_F32_FROM_BITS(gw_wmma_other_half(GW_F32_BITS(v))));
#elif LANES == 32
    (void)mail, (void)lane;
    v = fmaxf(v, gw_quad_xor<1>(v));
    return fmaxf(v, gw_quad_xor<2>(v));
#else
    v = fmaxf(v, gw_shuffle_xor(v, 16));
    return fmaxf(v, GW_F32_FROM_BITS(from_other_team(GW_F32_BITS(v), mail, lane)));
#endif
}
GW_DEVICE unsigned largest_bits(unsigned v, unsigned *mail, int lane) {
#if GW_WMMA
    (void)mail, (void)lane;
    return gw_larger(v, gw_wmma_other_half(v));
#elif LANES == 32
    (void)mail, (void)lane;
    v = gw_larger(v, (unsigned)gw_quad_xor<1>((int)v));
    return gw_larger(v, (unsigned)gw_quad_xor<2>((int)v));
#else
    v = gw_larger(v, gw_shuffle_xor(v, 16));
    return gw_larger(v, from_other_team(v, mail, lane));
#endif
}
GW_DEVICE unsigned total(unsigned v, unsigned *mail, int lane) {
#if GW_WMMA
    (void)mail, (void)lane;
    return v + gw_wmma_other_half(v);
#elif LANES == 32
    (void)mail, (void)lane;
    v += (unsigned)gw_quad_xor<1>((int)v);
    return v + (unsigned)gw_quad_xor<2>((int)v);
#else
    v += gw_shuffle_xor(v, 16);
    return v + from_other_team(v, mail, lane);
#endif
}

/* ---- queries --------------------------------------------------------------------------------- */

#if GW_WMMA /* half of an operand of gfx11, whose registers would not do for all of it */
#define WORDS_OF_QUERY 4
#else
#define WORDS_OF_QUERY WORDS
#endif
template <int E> struct queries {
    unsigned high[E / 32][WORDS_OF_QUERY], low[E / 32][WORDS_OF_QUERY];
    float by[HAS]; /* their scale, times 256 and that of scores */
};

/* A thread has four neighbours of every sixteen of a query, eight for WMMA. Which are those of step
 * k of k += STEP_OF_QUERY, from the thread's first one on; where they go. */
#if GW_WMMA
enum { STEP_OF_QUERY = 8 };
#define QUERY_AT(k, first) (k) / 16 * 16 + (k) % 16 / 2 + first
#define QUERY_WORD(k, r) (k) / 8 % 4
#define FIRST_OF_QUERY(lane) lane / 16 * 8
#else
#define STEP_OF_QUERY 16
#define QUERY_AT(k, first) k + first
#define QUERY_WORD(k, r) k / 16 % 2 * HAS + r
#define FIRST_OF_QUERY(lane) NARROW ? lane % 4 * 4 : lane / 16 * 4
#endif

/* q: the thread's queries; 0: none. */
template <int E>
__device__ static inline void open(queries<E> &s, const float *const *q, int e, float scale,
                                   unsigned *mail, int lane) {
    struct __align__(16) four {
        float v[4];
    };
    const int first = FIRST_OF_QUERY(lane);
#pragma unroll
    for (int r = 0; r < HAS; r++) {
        unsigned top = 0;
#pragma unroll
        for (int k = 0; k < E; k += STEP_OF_QUERY) {
            four x = {{0.0f, 0.0f, 0.0f, 0.0f}};
            if (q[r] && k < e) {
                x = *(const four *)(q[r] + QUERY_AT(k, first));
            }
#pragma unroll
            for (int c = 0; c < 4; c++) {
                top = gw_larger(top, gw_digits_size(x.v[c]));
            }
        }
        top = largest_bits(top, mail, lane);
        const float amax = gw_digits_amax(top), inverse = gw_digits_inverse(amax);
        s.by[r] = gw_digits_scale(amax) * 256.0f * scale;
#pragma unroll
        for (int k = 0; k < E; k += STEP_OF_QUERY) {
            unsigned n[4] = {0, 0, 0, 0};
            if (q[r] && k < e) {
                const four x = *(const four *)(q[r] + QUERY_AT(k, first));
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    n[c] = gw_digits_word(x.v[c] * inverse);
                }
            }
            s.high[k / 32][QUERY_WORD(k, r)] = gw_high_digits(n);
            s.low[k / 32][QUERY_WORD(k, r)] = gw_low_digits(n);
        }
    }
}

/* ---- a page ---------------------------------------------------------------------------------- */

/* Digits of weights, as an operand: word of step k and half h of query r; by WMMA of quarter h of
 * those of step k that the thread has results of. */
struct weights {
    unsigned high[STEPS][WORDS], low[STEPS][WORDS];

#if GW_WMMA
    __device__ inline void put(int k, int h, int, const unsigned *n) {
        const int step = k / 2, at = k % 2 * GW_WMMA_QUARTERS + h;
        put_word(high[step] + at, gw_high_digits(n));
        put_word(low[step] + at, gw_low_digits(n));
    }
    /* A lane of gfx11 has all weights, but results of every second position, and the one 16 further
     * on has the others: first words of the even ones, two further on words of the odd ones. */
    __device__ static inline void put_word(unsigned *to, unsigned v) {
#if GW_MATRIX == GW_MATRIX_WMMA_11
        const unsigned other = gw_wmma_other_half(v);
        const int odd = gw_wave_lane() / 16;
        to[0] = odd ? other : v;
        to[2] = odd ? v : other;
#else
        to[0] = v;
#endif
    }
};
enum { WEIGHTS_AT_ONCE = 8 };
GW_DEVICE int tile_of(int eight, int) { return eight / 2; }
#define RESULT_OF(eight, r, c) eight % 2 * 4 + c
#else
    __device__ inline void put(int k, int h, int r, const unsigned *n) {
        high[k][h * HAS + r] = gw_high_digits(n);
        low[k][h * HAS + r] = gw_low_digits(n);
    }
};
/* Which results of which tile weight c of a word is: of sixteen positions, number `sixteen`. */
GW_DEVICE int tile_of(int sixteen, int c) { return NARROW ? 2 * sixteen + c / 2 : sixteen; }
GW_DEVICE int result_of(int r, int c) { return NARROW ? 2 * r + c % 2 : c; }
#define WEIGHTS_AT_ONCE 16
#define RESULT_OF(sixteen, r, c) result_of(r, c)
#endif

/* What a thread knows of its queries. */
template <int E> struct state {
    queries<E> q;
    int own[HAS]; /* the row's own page, of rows of the run; 0: of others */
    float top[HAS], sum[HAS];
    float o[GW_DIGITS_EV(E) / SPAN][RESULTS];
};

/* Of products, as integers, the score. */
template <int E>
__device__ static inline float score_of(const queries<E> &q, int i, int both, int mixed,
                                        const float *scales, int lane) {
    return (float)(both * 256 + mixed) * (q.by[query_of(i)] * scales[column_of(lane, i)]);
}

/* Result i of some channels joins o. */
template <int E, int ALL>
__device__ static inline void join_value(const state<E> &s, float &o, int i, int both, int mixed,
                                         const float *scale, const float *share,
                                         const float *channels, int page, int lane) {
    const int r = query_of(i);
    const float by = scale[r] * channels[column_of(lane, i)];
    const float sum = GW_FMA((float)(both * 256 + mixed) * by, share[r], o);
    o = ALL || page < s.own[r] ? sum : o;
}

/* Scores x of a page become weights; its sum joins the state. */
template <int E>
__device__ static inline void weigh(state<E> &s, float (*x)[RESULTS], const float *position,
                                    int page, weights &w, float *scale, float *share,
                                    unsigned *mail, int lane) {
    float was[HAS];
    int is_new = 0;
#pragma unroll
    for (int r = 0; r < HAS; r++) {
        float top = minus_infinity();
#pragma unroll
        for (int i = 0; i < TILES * RESULTS; i++) {
            top = query_of(i % RESULTS) == r ? fmaxf(top, x[i / RESULTS][i % RESULTS]) : top;
        }
        top = largest(top, mail, lane);
        float before = s.top[r];
        const gw_digits_join by(&before, top);
        const int seen = page < s.own[r];
        share[r] = by.now;
        was[r] = seen ? by.was : 1.0f;
        is_new |= was[r] != 1.0f; /* or NaN */
        s.top[r] = seen ? before : s.top[r];
        unsigned sum = 0, most = 0;
#pragma unroll
        for (int i = 0; i < TILES * RESULTS; i++) {
            if (query_of(i % RESULTS) == r) {
                float &v = x[i / RESULTS][i % RESULTS];
                const float p = gw_digits_exp(v - top);
                sum += gw_digits_word(p * (float)GW_DIGITS_TOP);
                v = p * position[i / RESULTS * SPAN + column_of(lane, i % RESULTS)];
                most = gw_larger(most, GW_F32_BITS(v)); /* it has no sign */
            }
        }
        sum = total(sum, mail, lane) - GW_PAGE * (unsigned)GW_DIGITS_ZERO;
        const float amax = gw_digits_amax(largest_bits(most, mail, lane) & 0x7fffffffu);
        const float l = (float)(int)sum * GW_DIGITS_PART;
        const float more = GW_FMA(l, share[r], s.sum[r] * by.was);
        s.sum[r] = seen ? more : s.sum[r];
        scale[r] = gw_digits_scale(amax) * 256.0f;
        const float inverse = gw_digits_inverse(amax);
#pragma unroll
        for (int sixteen = 0; sixteen < GW_PAGE / WEIGHTS_AT_ONCE; sixteen++) {
            unsigned n[4];
#pragma unroll
            for (int c = 0; c < 4; c++) {
                n[c] = gw_digits_word(x[tile_of(sixteen, c)][RESULT_OF(sixteen, r, c)] * inverse);
            }
            w.put(sixteen / 2, sixteen % 2, r, n);
        }
    }
    if (gw_ballot(is_new) != 0) { /* times 1 nothing changes */
#pragma unroll
        for (int i = 0; i < GW_DIGITS_EV(E) / SPAN * RESULTS; i++) {
            float &o = s.o[i / RESULTS][i % RESULTS];
            o = o * was[query_of(i % RESULTS)];
        }
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Keys and values of pages [first, end) in turn; how many are asked for and taken. */
template <int E, class UNIT> struct pages {
    enum { PLACE = UNIT::PLACE, KEYS = UNIT::KEYS, VALUES = UNIT::VALUES, STAGES = UNIT::STAGES };
    uint8_t *places;
    const int32_t *table;
    int end, g, slice, asked, taken; /* 2 page, and 1 more of values */

    __device__ inline void ask(const gw_digits_params &p) {
        enum { SLICES = E / GW_DIGITS_EV(E) };
        if (asked < 2 * end) {
            const size_t at = (size_t)table[asked / 2] * p.kv_heads + g;
            const uint8_t *from = asked % 2 == 1 ? p.values + (at * SLICES + slice) * (size_t)VALUES
                                                 : p.keys + at * (size_t)KEYS;
            uint8_t *to = places + asked % STAGES * PLACE;
            const int bytes = asked % 2 == 1 ? (int)VALUES : (int)KEYS;
            for (int i = 16 * (int)threadIdx.x; i < bytes; i += 16 * THREADS) {
                gw_copy_async(to + i, from + i);
            }
        }
        gw_copy_commit();
        asked++;
    }
    __device__ inline void open(const gw_digits_params &p, int first) {
        asked = taken = 2 * first;
        for (int i = 0; i < STAGES - 1; i++) {
            ask(p);
        }
    }
    /* The next one, which has come. */
    __device__ inline const uint8_t *take(const gw_digits_params &p) {
        if (STAGES == 1) {
            __syncthreads();
            ask(p);
        }
        gw_copy_wait<(STAGES > 1 ? STAGES - 2 : 0)>();
        UNIT::show();
        __syncthreads();
        if (STAGES > 1) {
            ask(p);
        }
        return places + taken++ % STAGES * PLACE;
    }
};

/* Pages [first, ring.end), which some rows of one sequence see. */
template <int E, class UNIT>
__device__ static inline void attend_run(state<E> &s, const gw_digits_params &p,
                                         pages<E, UNIT> &ring, int first, unsigned *mail,
                                         int lane) {
    int most = s.own[0], least = s.own[0];
#pragma unroll
    for (int r = 1; r < HAS; r++) {
        most = most > s.own[r] ? most : s.own[r];
        least = least < s.own[r] ? least : s.own[r];
    }
    most = (int)gw_team_max((unsigned)most); /* each half of a wave has all its queries */
    least = (int)~gw_team_max(~(unsigned)least);
    ring.open(p, first);
#pragma unroll 1
    for (int page = first; page < ring.end; page++) {
        const uint8_t *keys = ring.take(p);
        float x[TILES][RESULTS];
        if (UNIT::TOGETHER || page < most) {
            UNIT::scores(s, keys, x, lane);
        }
        const uint8_t *values = ring.take(p);
        if (UNIT::TOGETHER || page < most) {
            weights w;
            float scale[HAS], share[HAS];
            const float *position = (const float *)(values + UNIT::CHANNELS + 4 * GW_DIGITS_EV(E));
            weigh<E>(s, x, position, page, w, scale, share, mail, lane);
            if (UNIT::TOGETHER || page >= least) {
                UNIT::template add<0>(s, values, w, scale, share, page, lane);
            } else {
                UNIT::template add<1>(s, values, w, scale, share, page, lane);
            }
        }
    }
    __syncthreads(); /* before another run's pages */
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* A tile of KV head g, a group of pages, and a slice of the values. */
template <int E, class UNIT>
__device__ static inline void attend_tile(const gw_digits_params &p, const gw_digits_turn &turn,
                                          int tile, int g, int number, int slice, uint8_t *shared) {
    enum { EV = GW_DIGITS_EV(E) };
    const int tid = (int)threadIdx.x, wave = tid / LANES, lane = gw_wave_lane();
    const int group = p.heads / p.kv_heads, begin = tile * QUERIES, live = gw_live(p.step);
    const int low = number * GW_DIGITS_GROUP, high = low + GW_DIGITS_GROUP;
    int *own = (int *)(shared + UNIT::STAGES * UNIT::PLACE), *slot = own + QUERIES;
    unsigned *mail = (unsigned *)(slot + QUERIES) + wave * 32;
    if (tid < QUERIES) {
        const int row = (begin + tid) / group, there = row < live;
        own[tid] = there ? gw_step_pos(p.step, row) / GW_PAGE : -1;
        slot[tid] = there ? gw_step_slot(p.step, row) : -1;
    }
    __syncthreads();
    unsigned any = 0; /* rows that have pages in the group */
    for (int i = 0; i < QUERIES; i += GW_LANES) {
        any |= gw_ballot(own[i + gw_lane()] > low);
    }
    if (any == 0) {
        __syncthreads();
        return;
    }
    state<E> s;
    const float *q[HAS];
#pragma unroll
    for (int r = 0; r < HAS; r++) {
        const int i = wave * 16 + place_of_query(lane, r), row = (begin + i) / group;
        const size_t at = (size_t)row * p.heads + (size_t)(g * group + (begin + i) % group);
        q[r] = own[i] > low ? p.q + at * p.e : 0;
        s.top[r] = minus_infinity();
        s.sum[r] = 0.0f;
    }
    open<E>(s.q, q, p.e, p.scale, mail, lane);
#pragma unroll
    for (int i = 0; i < EV / SPAN * RESULTS; i++) {
        s.o[i / RESULTS][i % RESULTS] = 0.0f;
    }
    for (int from = 0, end = 0; from < QUERIES && slot[from] >= 0; from = end) {
        const int here = slot[from];
        for (unsigned others = 0; end < QUERIES && others == 0;) { /* the run's end */
            others = ~gw_ballot(end + gw_lane() < QUERIES && slot[end + gw_lane()] == here);
            end += others == 0 ? GW_LANES : __ffs((int)others) - 1;
        }
        const int last = own[end - 1]; /* rows of a sequence come in order */
        if (last <= low) {
            continue;
        }
#pragma unroll
        for (int r = 0; r < HAS; r++) {
            const int i = wave * 16 + place_of_query(lane, r);
            s.own[r] = i >= from && i < end ? own[i] : 0;
        }
        pages<E, UNIT> ring;
        ring.places = shared;
        ring.table = p.pages + (size_t)here * p.table_stride;
        ring.end = last < high ? last : high;
        ring.g = g;
        ring.slice = slice;
        attend_run<E, UNIT>(s, p, ring, low, mail, lane);
    }
    const size_t entry = gw_digits_entry(p, turn, tile, g, number) * QUERIES;
#pragma unroll
    for (int r = 0; r < HAS; r++) {
        const int i = wave * 16 + place_of_query(lane, r);
        if (own[i] <= low) {
            continue;
        }
        float *to = p.sums + (entry + i) * p.e;
#pragma unroll
        for (int k = 0; k < EV / SPAN * RESULTS; k++) {
            const int c = slice * EV + k / RESULTS * SPAN + column_of(lane, k % RESULTS);
            if (query_of(k % RESULTS) == r && c < p.e) {
                to[c] = s.o[k / RESULTS][k % RESULTS];
            }
        }
        if (slice == 0 && column_of(lane, 0) == 0) {
            p.top[entry + i] = s.top[r];
            p.sum[entry + i] = s.sum[r];
        }
    }
    __syncthreads();
}

/* E: the width of a head is at most that. */
template <int E, class UNIT>
__device__ static inline void attend(const gw_digits_params &p, uint8_t *shared) {
    enum { SLICES = E / GW_DIGITS_EV(E) };
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const gw_digits_turn turn = gw_digits_turn_of(p);
    const int tiles = turn.end - turn.first, units = tiles * SLICES * p.kv_heads * turn.groups;
    for (int unit = (int)blockIdx.x; unit < units; unit += (int)gridDim.x) {
        const int slice = unit / tiles % SLICES, rest = unit / tiles / SLICES;
        attend_tile<E, UNIT>(p, turn, turn.first + unit % tiles, rest % p.kv_heads,
                             rest / p.kv_heads, slice, shared);
    }
}

#endif
