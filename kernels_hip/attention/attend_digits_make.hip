/* kernels_hip/attention/attend_digits_make.hip - digits of k and v (docs/arithmetic.md, "Attention
 * in digits") of every page that some row of the pass sees below its own page: once for all rows
 * and heads; and the join of the groups that attend_digits.hip leaves. A block makes the digits of
 * a page's keys, or of some channels of its values, in shared memory as they shall lie, and stores
 * them whole.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention/attend_digits.h"

enum { THREADS = GW_DIGITS_MAKE_THREADS, TEAMS = THREADS / GW_LANES, ROWS = THREADS / GW_PAGE };

/* A page's keys, or values, of a KV head as the caches have them, in shared memory. */
template <class CELLS> struct source {
    const uint8_t *cells, *scales;

    __device__ inline source(const uint8_t *tile, int e)
        : cells(tile), scales(tile + GW_PAGE * e) {}
    __device__ inline float read(int at, int scale_at) const {
        gw_scale scale(0.0f);
        float x;
        if (CELLS::SCALED) {
            gw_cells_f16::read<1>(scales, scale_at, &x);
            scale = gw_scale(x);
        }
        CELLS::template read_scaled<1>(cells, at, &scale, &x);
        return x;
    }
};

/* Where byte `byte` of a position's digits is; of a channel's. */
template <int E, int GROUP> __device__ static inline int key_at(int j, int byte) {
    return GROUP ? byte / 128 * (GW_PAGE * 128) + j * 128 + ((byte / 16 ^ j) % 8) * 16 + byte % 16
                 : j * GW_DIGITS_KEY_ROW(E) + byte;
}
template <int GROUP> __device__ static inline int value_at(int i, int byte) {
    return GROUP ? i * 128 + (byte / 16 ^ i % 8) * 16 + byte % 16 : i * GW_DIGITS_VALUE_ROW + byte;
}

/* A thread has every fourth word of a position's digits. more: as many words as threads. */
template <class CELLS, int E, int GROUP>
__device__ static inline void make_keys(uint8_t *made, unsigned *more, const uint8_t *tile, int e) {
    enum { WORDS = E / 4 / ROWS };
    const int j = (int)threadIdx.x % GW_PAGE, part = (int)threadIdx.x / GW_PAGE;
    const source<CELLS> from(tile, e);
    float x[WORDS][4];
    unsigned top = 0;
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        const int i = (w * ROWS + part) * 4;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            x[w][c] = i < e ? from.read((i + c) * GW_PAGE + j, i / 32 * GW_PAGE + j) : 0.0f;
            top = gw_larger(top, gw_digits_size(x[w][c]));
        }
    }
    more[threadIdx.x] = top;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        top = gw_larger(top, more[i * GW_PAGE + j]);
    }
    const float amax = gw_digits_amax(top), inverse = gw_digits_inverse(amax);
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        const int i = (w * ROWS + part) * 4;
        unsigned n[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            n[c] = gw_digits_word(x[w][c] * inverse);
        }
        *(unsigned *)(made + key_at<E, GROUP>(j, i)) = gw_high_digits(n);
        *(unsigned *)(made + key_at<E, GROUP>(j, E + i)) = gw_low_digits(n);
    }
    if (part == 0) {
        ((float *)(made + GW_PAGE * (GROUP ? 2 * E : GW_DIGITS_KEY_ROW(E))))[j] =
            gw_digits_scale(amax);
        for (int i = 0; i < 16 && !GROUP; i += 4) {
            *(unsigned *)(made + key_at<E, 0>(j, 2 * E + i)) = 0;
        }
    }
}

/* A thread looks for the largest value of a channel, or of half of its positions; then a team makes
 * four positions whose digits share words, a lane every 32nd channel. The scale of a position is
 * over all channels of the head, also those of another slice. more: E + THREADS words. */
template <class CELLS, int E, int GROUP>
__device__ static inline void make_values(uint8_t *made, unsigned *more, const uint8_t *tile, int e,
                                          int slice) {
    enum { EV = GW_DIGITS_EV(E), PARTS = E / GW_LANES, HALVES = THREADS / E > 1 ? 2 : 1 };
    const int first = slice * EV, lane = gw_lane();
    const source<CELLS> from(tile, e);
    float *c = (float *)(made + EV * (GROUP ? 2 * GW_PAGE : GW_DIGITS_VALUE_ROW)), *scale = c + EV;
    unsigned *halves = more + E;
    if ((int)threadIdx.x < E * HALVES) {
        const int i = (int)threadIdx.x % E, half = (int)threadIdx.x / E;
        unsigned top = 0;
#pragma unroll 16
        for (int j = half * (GW_PAGE / HALVES); j < (half + 1) * (GW_PAGE / HALVES); j++) {
            const float x = i < e ? from.read(j * e + i, j * (e / 32) + i / 32) : 0.0f;
            top = gw_larger(top, gw_digits_size(x));
        }
        halves[threadIdx.x] = top;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < E; i += THREADS) {
        const unsigned top = gw_larger(halves[i], halves[i + (HALVES - 1) * E]);
        const float amax = gw_digits_amax(top);
        more[i] = GW_F32_BITS(amax);
        if (i >= first && i < first + EV) {
            c[i - first] = amax;
        }
    }
    __syncthreads();
    float by[PARTS];
#pragma unroll
    for (int k = 0; k < PARTS; k++) {
        by[k] = GW_F32_FROM_BITS(more[k * GW_LANES + lane]);
    }
#pragma unroll 1
    for (int word = gw_team(); word < GW_PAGE / 4; word += TEAMS) {
        float x[PARTS][4], inverse[4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int j = gw_digits_position(word, n);
            unsigned top = 0;
#pragma unroll
            for (int k = 0; k < PARTS; k++) {
                const int i = k * GW_LANES + lane;
                x[k][n] = 0.0f;
                if (k * GW_LANES < e) {
                    const float v = from.read(j * e + i, j * (e / 32) + k);
                    x[k][n] = by[k] == 0.0f ? 0.0f : v / by[k];
                }
                top = gw_larger(top, gw_digits_size(x[k][n]));
            }
            const float amax = gw_digits_amax(gw_team_max(top));
            inverse[n] = gw_digits_inverse(amax);
            if (lane == 0) {
                scale[j] = gw_digits_scale(amax);
            }
        }
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            const int i = k * GW_LANES + lane - first;
            unsigned n[4];
#pragma unroll
            for (int q = 0; q < 4; q++) {
                n[q] = gw_digits_word(x[k][q] * inverse[q]);
            }
            if (i >= 0 && i < EV) {
                *(unsigned *)(made + value_at<GROUP>(i, 4 * word)) = gw_high_digits(n);
                *(unsigned *)(made + value_at<GROUP>(i, GW_PAGE + 4 * word)) = gw_low_digits(n);
            }
        }
    }
    for (int i = (int)threadIdx.x; i < 4 * EV && !GROUP; i += THREADS) {
        *(unsigned *)(made + value_at<0>(i / 4, 2 * GW_PAGE + i % 4 * 4)) = 0;
    }
}

/* Digits of a page and KV head: its keys (z 0), or a slice of its values. */
template <class CELLS, int E, int GROUP>
__device__ static inline void make_page(const gw_digits_params &p, uint8_t *shared, size_t at,
                                        int z) {
    enum {
        EV = GW_DIGITS_EV(E),
        KEYS = GROUP ? GW_DIGITS_GROUP_KEYS(E) : GW_DIGITS_KEYS(E),
        VALUES = GROUP ? GW_DIGITS_GROUP_VALUES(EV) : GW_DIGITS_VALUES(EV),
        FETCHES = GW_DIGITS_FETCHES(E, GW_COPIES)
    };
    const int bytes = z == 0 ? (int)KEYS : (int)VALUES, cells = z == 0 ? p.k_bytes : p.v_bytes;
    const uint8_t *from = (const uint8_t *)(z == 0 ? p.k : p.v) + at * cells;
    uint8_t *made = shared;
    unsigned *more = (unsigned *)(shared + GW_DIGITS_PLACE(E));
    const uint8_t *tile = FETCHES ? (const uint8_t *)(more + E + THREADS) : from;
    for (int i = 16 * (int)threadIdx.x; FETCHES && i < cells; i += 16 * THREADS) {
        gw_copy_async((uint8_t *)tile + i, from + i);
    }
    gw_copy_commit();
    gw_copy_wait<0>();
    __syncthreads();
    if (z == 0) {
        make_keys<CELLS, E, GROUP>(made, more, tile, p.e);
    } else {
        make_values<CELLS, E, GROUP>(made, more, tile, p.e, z - 1);
    }
    __syncthreads();
    uint8_t *to = z == 0 ? p.keys + at * KEYS : p.values + (at * (E / EV) + (z - 1)) * VALUES;
    for (int i = 16 * (int)threadIdx.x; i < bytes; i += 16 * THREADS) {
        *(gw_16b *)(to + i) = *(const gw_16b *)(made + i);
    }
    __syncthreads();
}

template <class CELLS, int E>
__device__ static inline void make(const gw_digits_params &p, uint8_t *shared) {
    enum { KINDS = 1 + E / GW_DIGITS_EV(E) };
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step), lane = gw_lane();
    const int units = p.step.step[GW_STEP_POS_MAX] / GW_PAGE * p.kv_heads * KINDS;
    for (int base = 0; base < live; base += GW_LANES) {
        /* The last rows of sequences: those of a sequence come in order. */
        const int row = base + lane, there = row < live;
        const int slot = there ? gw_step_slot(p.step, row) : -1;
        const int last = there && (row + 1 == live || gw_step_slot(p.step, row + 1) != slot);
        const int own = last ? gw_step_pos(p.step, row) / GW_PAGE : 0;
        for (unsigned some = gw_ballot(last); some != 0; some &= some - 1) {
            const int of = gw_shuffle(slot, __ffs((int)some) - 1);
            const int pages = gw_shuffle(own, __ffs((int)some) - 1);
            for (int u = (int)blockIdx.x; u < units; u += (int)gridDim.x) {
                const int g = u / KINDS % p.kv_heads, page = u / KINDS / p.kv_heads;
                if (page >= pages) {
                    break;
                }
                if (p.only != 0 && (p.only == 1) != (u % KINDS == 0)) {
                    continue; /* the other launch's, in another format */
                }
                const size_t number = (size_t)p.pages[(size_t)of * p.table_stride + page];
                if (p.group) {
                    make_page<CELLS, E, 1>(p, shared, number * p.kv_heads + g, u % KINDS);
                } else {
                    make_page<CELLS, E, 0>(p, shared, number * p.kv_heads + g, u % KINDS);
                }
            }
        }
    }
}
#define MAKE(format, E)                                                                            \
    GW_KERNEL(gw_attend_digits_make_##format##_##E, struct gw_digits_params,                       \
              GW_DIGITS_MAKE_THREADS) {                                                            \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        make<gw_cells_##format, E>(p, shared);                                                     \
    }
MAKE(f16, 64)
MAKE(f16, 128)
MAKE(f16, 256)
MAKE(q8_0, 64)
MAKE(q8_0, 128)
MAKE(q8_0, 256)

/* A team has a query, a lane every 32nd of its values: the groups of its row, then the row's own
 * page, then the head's sink. */
GW_KERNEL(gw_attend_digits_join, struct gw_digits_params, GW_DIGITS_JOIN_THREADS) {
    enum { QUERIES = GW_DIGITS_QUERIES, PARTS = GW_DIGITS_MOST / GW_LANES };
    const int group = p.heads / p.kv_heads, lane = gw_lane(), e = p.e;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const gw_digits_turn t = gw_digits_turn_of(p);
    const int of = (int)blockIdx.x * (GW_DIGITS_JOIN_THREADS / GW_LANES) + gw_team();
    const int g = of / QUERIES % p.kv_heads, tile = t.first + of / QUERIES / p.kv_heads;
    const int query = tile * QUERIES + of % QUERIES, row = query / group;
    if (tile >= t.end || row >= gw_live(p.step)) {
        return; /* whole teams */
    }
    const int head = g * group + query % group, own = gw_step_pos(p.step, row) / GW_PAGE;
    const int n = (own + GW_DIGITS_GROUP - 1) / GW_DIGITS_GROUP;
    const size_t at = gw_digits_entry(p, t, tile, g, 0) * QUERIES + of % QUERIES;
    const size_t to = (size_t)row * p.heads + head;
    float top = minus_infinity(), sum = 0.0f, o[PARTS];
#pragma unroll
    for (int k = 0; k < PARTS; k++) {
        o[k] = 0.0f;
    }
#pragma unroll 1
    for (int i = 0; i <= n; i++) {
        const size_t here = at + (size_t)i * QUERIES;
        const float *values = (i < n ? p.sums + here * e : p.own_values + to * e) + lane;
        const gw_digits_join by(&top, i < n ? p.top[here] : p.own_top[to]);
        sum = GW_FMA(i < n ? p.sum[here] : p.own_sum[to], by.now, sum * by.was);
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            if (k * GW_LANES < e) {
                o[k] = GW_FMA(values[k * GW_LANES], by.now, o[k] * by.was);
            }
        }
    }
    if (p.sinks) {
        const gw_digits_join by(&top, p.sinks[head]);
        sum = sum * by.was + by.now;
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            o[k] = o[k] * by.was;
        }
    }
#pragma unroll
    for (int k = 0; k < PARTS; k++) {
        if (k * GW_LANES < e) {
            const float y = o[k] / sum;
            if (p.form == GW_FORM_FLOATS) {
                ((float *)p.out)[to * e + k * GW_LANES + lane] = y;
            } else {
                gw_team_encode(p.out, to * e / GW_ACT_BLOCK + k, p.form, y);
            }
        }
    }
}
