/* kernels_hip/attention/attend_digits_make.hip - digits of k and v (docs/arithmetic.md, "Attention
 * in digits") of every page that some row of the pass sees below its own page: once for all rows
 * and heads; and the join of the groups that attend_digits.hip leaves. A block makes the digits of
 * a page's keys, or of some channels of its values, in shared memory as they shall lie, and stores
 * them whole.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention/attend_digits.h"

enum { THREADS = GW_DIGITS_MAKE_THREADS, TEAMS = THREADS / GW_LANES, ROWS = THREADS / GW_PAGE };

template <class CELLS>
__device__ static inline float cell(const uint8_t *tile, int at, const uint8_t *scales,
                                    int scale_at) {
    gw_scale scale(0.0f);
    float x;
    if (CELLS::SCALED) {
        gw_cells_f16::read<1>(scales, scale_at, &x);
        scale = gw_scale(x);
    }
    CELLS::template read_scaled<1>(tile, at, &scale, &x);
    return x;
}

/* Where byte `byte` of a position's digits is; of a channel's. */
GW_DEVICE int key_at(const gw_digits_params &p, int j, int byte) {
    return p.group ? byte / 128 * (GW_PAGE * 128) + j * 128 + ((byte / 16 ^ j) % 8) * 16 + byte % 16
                   : j * GW_DIGITS_KEY_ROW(p.wide) + byte;
}
GW_DEVICE int value_at(const gw_digits_params &p, int i, int byte) {
    return p.group ? i * 128 + (byte / 16 ^ i % 8) * 16 + byte % 16
                   : i * GW_DIGITS_VALUE_ROW + byte;
}

/* A thread has every fourth of a position's words of four values. */
template <class CELLS>
__device__ static inline void make_keys(const gw_digits_params &p, uint8_t *made, unsigned *tops,
                                        const uint8_t *tile) {
    const int j = (int)threadIdx.x % GW_PAGE, part = (int)threadIdx.x / GW_PAGE, e = p.e;
    const int scales_at = GW_PAGE * (p.group ? 2 * p.wide : GW_DIGITS_KEY_ROW(p.wide));
    const uint8_t *scales = tile + GW_PAGE * e;
    unsigned top = 0;
    for (int i = part * 4; i < e; i += ROWS * 4) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float x =
                cell<CELLS>(tile, (i + c) * GW_PAGE + j, scales, (i + c) / 32 * GW_PAGE + j);
            top = gw_larger(top, gw_digits_size(x));
        }
    }
    tops[threadIdx.x] = top;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        top = gw_larger(top, tops[i * GW_PAGE + j]);
    }
    const float inverse = gw_digits_inverse(gw_digits_amax(top));
    for (int i = part * 4; i < p.wide; i += ROWS * 4) {
        unsigned n[4] = {0, 0, 0, 0};
#pragma unroll
        for (int c = 0; c < 4 && i < e; c++) {
            const float x =
                cell<CELLS>(tile, (i + c) * GW_PAGE + j, scales, (i + c) / 32 * GW_PAGE + j);
            n[c] = gw_digits_word(x * inverse);
        }
        *(unsigned *)(made + key_at(p, j, i)) = gw_high_digits(n);
        *(unsigned *)(made + key_at(p, j, p.wide + i)) = gw_low_digits(n);
    }
    if (part == 0) {
        ((float *)(made + scales_at))[j] = gw_digits_scale(gw_digits_amax(top));
        for (int i = 0; i < 16 && !p.group; i += 4) {
            *(unsigned *)(made + key_at(p, j, 2 * p.wide + i)) = 0;
        }
    }
}

/* A thread has a channel while its largest value is looked for, then a team a position. The scale
 * of a position is over all channels of the head, also those of another slice. */
template <class CELLS>
__device__ static inline void make_values(const gw_digits_params &p, uint8_t *made, float *largest,
                                          const uint8_t *tile, int slice) {
    const int e = p.e, ev = GW_DIGITS_EV(p.wide), first = slice * ev, lane = gw_lane();
    const uint8_t *scales = tile + GW_PAGE * e;
    float *c = (float *)(made + ev * (p.group ? 2 * GW_PAGE : GW_DIGITS_VALUE_ROW)),
          *scale = c + ev;
    for (int i = (int)threadIdx.x; i < p.wide; i += THREADS) {
        unsigned top = 0;
#pragma unroll 8
        for (int j = 0; j < GW_PAGE && i < e; j++) {
            const float x = cell<CELLS>(tile, j * e + i, scales, j * (e / 32) + i / 32);
            top = gw_larger(top, gw_digits_size(x));
        }
        largest[i] = gw_digits_amax(top);
        if (i >= first && i < first + ev) {
            c[i - first] = largest[i];
        }
    }
    __syncthreads();
    enum { PARTS = 256 / GW_LANES };
    for (int j = gw_team(); j < GW_PAGE; j += TEAMS) {
        float y[PARTS];
        unsigned top = 0;
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            const int i = k * GW_LANES + lane;
            y[k] = 0.0f;
            if (i < e) {
                const float by = largest[i];
                const float x = cell<CELLS>(tile, j * e + i, scales, j * (e / 32) + i / 32);
                y[k] = by == 0.0f ? 0.0f : x / by;
            }
            top = gw_larger(top, gw_digits_size(y[k]));
        }
        top = gw_team_max(top);
        const float inverse = gw_digits_inverse(gw_digits_amax(top));
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            const int i = k * GW_LANES + lane - first;
            if (i >= 0 && i < ev) {
                const unsigned n = gw_digits_word(y[k] * inverse);
                made[value_at(p, i, gw_digits_place(j))] = (uint8_t)((n + 128u) >> 8);
                made[value_at(p, i, GW_PAGE + gw_digits_place(j))] = (uint8_t)n;
            }
        }
        if (lane == 0) {
            scale[j] = gw_digits_scale(gw_digits_amax(top));
        }
    }
    for (int i = (int)threadIdx.x; i < 4 * ev && !p.group; i += THREADS) {
        *(unsigned *)(made + value_at(p, i / 4, 2 * GW_PAGE + i % 4 * 4)) = 0;
    }
}

template <class CELLS>
__device__ static inline void make(const gw_digits_params &p, uint8_t *shared) {
    const int page = (int)blockIdx.x, g = (int)blockIdx.y, z = (int)blockIdx.z;
    const int ev = GW_DIGITS_EV(p.wide), slices = p.wide / ev, lane = gw_lane();
    const int keys = p.group ? GW_DIGITS_GROUP_KEYS(p.wide) : GW_DIGITS_KEYS(p.wide);
    const int values = p.group ? GW_DIGITS_GROUP_VALUES(ev) : GW_DIGITS_VALUES(ev);
    const int bytes = z == 0 ? keys : values;
    uint8_t *more = shared + GW_DIGITS_PLACE(p.wide);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step);
    if (page >= p.step.step[GW_STEP_POS_MAX] / GW_PAGE) {
        return;
    }
    for (int base = 0; base < live; base += GW_LANES) {
        /* The last rows of sequences: those of a sequence come in order. */
        const int row = base + lane, there = row < live;
        const int slot = there ? gw_step_slot(p.step, row) : -1;
        const int last = there && (row + 1 == live || gw_step_slot(p.step, row + 1) != slot);
        unsigned wanted = gw_ballot(last && page < gw_step_pos(p.step, row) / GW_PAGE);
        while (wanted != 0) {
            const int of = gw_shuffle(slot, __ffs((int)wanted) - 1);
            const size_t number = (size_t)p.pages[(size_t)of * p.table_stride + page];
            const size_t at = number * p.kv_heads + g;
            uint8_t *to;
            wanted &= wanted - 1;
            if (z == 0) {
                make_keys<CELLS>(p, shared, (unsigned *)more,
                                 (const uint8_t *)p.k + at * p.k_bytes);
                to = p.keys + at * bytes;
            } else {
                make_values<CELLS>(p, shared, (float *)more, (const uint8_t *)p.v + at * p.v_bytes,
                                   z - 1);
                to = p.values + (at * slices + (z - 1)) * bytes;
            }
            __syncthreads();
            for (int i = 16 * (int)threadIdx.x; i < bytes; i += 16 * THREADS) {
                *(gw_16b *)(to + i) = *(const gw_16b *)(shared + i);
            }
            __syncthreads();
        }
    }
}
#define MAKE(format)                                                                               \
    GW_KERNEL(gw_attend_digits_make_##format, struct gw_digits_params, GW_DIGITS_MAKE_THREADS) {   \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        make<gw_cells_##format>(p, shared);                                                        \
    }
MAKE(f16)
MAKE(q8_0)

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
