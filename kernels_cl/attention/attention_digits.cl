/* kernels_cl/attention/attention_digits.cl - before and behind attention in digits (digits.cl): the
 * digits of k and v of every page that some row sees below its own (CUT), once for all rows and
 * heads; the join of what groups of pages and the rows' own pages came to.
 */
#ifdef GW_ITEM
#define DIGITS_ITEMS 1
#define LANES_HERE TEAM
#define EACH_LANE for (int lane = 0; lane < TEAM; lane++)
#define AT lane
#else
#define DIGITS_ITEMS TEAM
#define LANES_HERE 1
#define EACH_LANE
#define AT 0
#endif

#ifdef CUT

#ifdef GW_ITEM

/* Numbers n of x [E]; returns their scale. */
static inline float cut_numbers(const float *x, int *n) {
    uint size = 0;
    for (int i = 0; i < E; i++) {
        size = max(size, gw_digits_size(x[i]));
    }
    const float amax = gw_digits_amax(size), inverse = gw_digits_inverse(amax);
    for (int i = 0; i < E; i++) {
        n[i] = gw_digits_of(x[i], inverse);
    }
    return gw_digits_scale(amax);
}

static inline void cut_keys(__global const CELL *cells, __global uchar *to) {
    float x[E];
    int n[E];
    for (int j = 0; j < GW_PAGE; j++) {
        const int row = ROW_OF_POSITION(j);
        for (int i = 0; i < E; i++) {
            x[i] = CACHED_VALUE(cells, 0, i, j, E);
        }
        ((__global float *)(to + KEY_DIGITS))[row] = cut_numbers(x, n);
        for (int i = 0; i < E; i++) {
            to[row * KEY_ROW + i] = (uchar)gw_digits_high(n[i]);
            to[row * KEY_ROW + E + i] = (uchar)gw_digits_low(n[i]);
        }
    }
}

static inline void cut_values(__global const CELL *cells, __global uchar *keys,
                              __global uchar *to) {
    float most[E], x[E];
    int n[E];
    for (int i = 0; i < E; i++) {
        uint size = 0;
        for (int j = 0; j < GW_PAGE; j++) {
            size = max(size, gw_digits_size(CACHED_VALUE(cells, 1, i, j, E)));
        }
        most[i] = gw_digits_amax(size);
        ((__global float *)(to + E * VALUE_ROW))[i] = most[i];
    }
    for (int j = 0; j < GW_PAGE; j++) {
        for (int i = 0; i < E; i++) {
            x[i] = most[i] == 0.0f ? 0.0f : CACHED_VALUE(cells, 1, i, j, E) / most[i];
        }
        ((__global float *)(keys + KEY_DIGITS))[GW_PAGE + ROW_OF_POSITION(j)] = cut_numbers(x, n);
        for (int i = 0; i < E; i++) {
            to[i * VALUE_ROW + j] = (uchar)gw_digits_high(n[i]);
            to[i * VALUE_ROW + GW_PAGE + j] = (uchar)gw_digits_low(n[i]);
        }
    }
}

/* Groups: pages in turn, KV heads, keys and values, from part0 on: 0, 1. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cut_digits(STEP, OUT(k), OUT(v), IN(pages), OUT(keys), OUT(values), const int kv_heads,
           const int page_stride, const int part0 SPLIT_ARGS) {
    const int g = GROUP_ID(1);
    for (int p = GROUP_ID(0); p < (int)step[3] / GW_PAGE; p += GROUP_COUNT(0)) {
        for (int row = 0; row < LIVE; row++) {
            const int slot = STEP_SLOT(row);
            if (p >= OWN_PAGE(row) ||
                (row > 0 && STEP_SLOT(row - 1) == slot && p < OWN_PAGE(row - 1))) {
                continue; /* not seen, or a row before asks for it */
            }
            const int page = READS(int, pages)[(size_t)slot * page_stride + p];
            const size_t at = (size_t)page * kv_heads + g;
            __global uchar *to = WRITES(uchar, keys) + at * KEY_BYTES;
            if (part0 + GROUP_ID(2) == 0) {
                cut_keys((__global const CELL *)CACHE(k, page, E), to);
            } else {
                cut_values((__global const CELL *)CACHE(v, page, E), to,
                           WRITES(uchar, values) + at * VALUE_BYTES);
            }
        }
    }
}

#else

/* Digits on their way to memory, of CHANNELS channels at a time, words of four; rows are an odd
 * number of words apart, so that neighbours use other banks. */
#define CHANNELS 128
#define KEY_PITCH (2 * CHANNELS / 4 + 1)
#define VALUE_WORDS (2 * GW_PAGE / 4)
#define VALUE_PITCH (VALUE_WORDS + 1)
#define MADE (CHANNELS * VALUE_PITCH) /* GW_PAGE rows of KEY_PITCH are less */

/* An item has every PARTS-th word of a position. */
#define PARTS (GROUP / GW_PAGE)
static inline void cut_keys(__global const CELL *cells, __global uchar *to, __local uint *made,
                            __local uint *tops, int id) {
    const int j = id % GW_PAGE, part = id / GW_PAGE, row = ROW_OF_POSITION(j);
    uint top = 0;
    UNROLL_4
    for (int i = part; i < E; i += PARTS) {
        top = max(top, gw_digits_size(CACHED_VALUE(cells, 0, i, j, E)));
    }
    tops[id] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < PARTS; i++) {
        top = max(top, tops[i * GW_PAGE + j]);
    }
    const float amax = gw_digits_amax(top), inverse = gw_digits_inverse(amax);
    if (part == 0) {
        ((__global float *)(to + KEY_DIGITS))[row] = gw_digits_scale(amax);
    }
    for (int first = 0; first < E; first += CHANNELS) {
        const int words = min(CHANNELS, E - first) / 4; /* of high digits */
        for (int w = part; w < words; w += PARTS) {
            uint n[4];
            for (int c = 0; c < 4; c++) {
                n[c] = number_of(CACHED_VALUE(cells, 0, first + 4 * w + c, j, E), inverse);
            }
            made[row * KEY_PITCH + w] = high_digits(n);
            made[row * KEY_PITCH + words + w] = low_digits(n);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = id; i < GW_PAGE * 2 * words; i += GROUP) {
            const int r = i / (2 * words), w = i % (2 * words);
            const int at = w < words ? first / 4 + w : (E + first) / 4 + w - words;
            ((__global uint *)to)[r * (KEY_ROW / 4) + at] = made[r * KEY_PITCH + w];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* u: value i of position j by what is largest in its channel. */
static inline float part_of_most(__global const CELL *cells, __local const uint *most, int i,
                                 int j) {
    const float c = as_float(most[i]);
    return c == 0.0f ? 0.0f : CACHED_VALUE(cells, 1, i, j, E) / c;
}

/* An item has a channel, then a team a position, then an item four positions of a channel. */
static inline void cut_values(__global const CELL *cells, __global uchar *keys, __global uchar *to,
                              __local uint *made, __local uint *most, __local float *inverse,
                              __local uint *scratch, int id) {
    const int lane = id % TEAM;
    for (int i = id; i < E; i += GROUP) {
        uint top = 0;
        UNROLL_4
        for (int j = 0; j < GW_PAGE; j++) {
            top = max(top, gw_digits_size(CACHED_VALUE(cells, 1, i, j, E)));
        }
        most[i] = as_uint(gw_digits_amax(top));
        ((__global uint *)(to + E * VALUE_ROW))[i] = most[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = id / TEAM; j < GW_PAGE; j += TEAMS) {
        uint top = 0;
        UNROLL
        for (int i = 0; i < E; i += TEAM) {
            top = max(top, gw_digits_size(part_of_most(cells, most, i + lane, j)));
        }
        top = team_max(top, scratch, id);
        const float amax = gw_digits_amax(top);
        if (again(lane) == 0) {
            inverse[j] = gw_digits_inverse(amax);
            ((__global float *)(keys + KEY_DIGITS))[GW_PAGE + ROW_OF_POSITION(j)] =
                gw_digits_scale(amax);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int first = 0; first < E; first += CHANNELS) {
        const int channels = min(CHANNELS, E - first);
        for (int i = id; i < channels * (GW_PAGE / 4); i += GROUP) {
            const int channel = i % channels, w = i / channels;
            uint n[4];
            for (int c = 0; c < 4; c++) {
                const int j = 4 * w + c;
                n[c] = number_of(part_of_most(cells, most, first + channel, j), inverse[j]);
            }
            made[channel * VALUE_PITCH + w] = high_digits(n);
            made[channel * VALUE_PITCH + GW_PAGE / 4 + w] = low_digits(n);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = id; i < channels * VALUE_WORDS; i += GROUP) {
            const int r = i / VALUE_WORDS, w = i % VALUE_WORDS;
            ((__global uint *)to)[(first + r) * (VALUE_ROW / 4) + w] = made[r * VALUE_PITCH + w];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* Groups: pages in turn, KV heads, keys and values, from part0 on: 0, 1. */
KERNEL(GROUP)
cut_digits(STEP, OUT(k), OUT(v), IN(pages), OUT(keys), OUT(values), const int kv_heads,
           const int page_stride, const int part0 SPLIT_ARGS) {
    __local uint made[MADE], most[E > GROUP ? E : GROUP], scratch[GROUP];
    __local float inverse[GW_PAGE];
    __local int wanted[GROUP], n_wanted;
    const int g = GROUP_ID(1), is_v = part0 + GROUP_ID(2), id = LOCAL_ID;
    for (int p = GROUP_ID(0); p < (int)step[3] / GW_PAGE; p += GROUP_COUNT(0)) {
        for (int first = 0; first < LIVE; first += GROUP) {
            const int row = min(first + id, LIVE - 1), before = max(row - 1, 0);
            const int slot = STEP_SLOT(row), there = first + id == row;
            /* of a row before? */
            const int asked =
                (row > 0) & (STEP_SLOT(before) == slot) & (p < OWN_PAGE(before));
            barrier(CLK_LOCAL_MEM_FENCE);
            if (id == 0) {
                n_wanted = 0;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (again(there & (p < OWN_PAGE(row)) & !asked)) {
                wanted[atomic_inc(&n_wanted)] =
                    READS(int, pages)[(size_t)slot * page_stride + p];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            const int n = n_wanted;
            for (int i = 0; i < n; i++) {
                const int page = wanted[i];
                const size_t at = (size_t)page * kv_heads + g;
                __global uchar *to = WRITES(uchar, keys) + at * KEY_BYTES;
                if (is_v) {
                    cut_values((__global const CELL *)CACHE(v, page, E), to,
                               WRITES(uchar, values) + at * VALUE_BYTES, made, most, inverse,
                               scratch, id);
                } else {
                    cut_keys((__global const CELL *)CACHE(k, page, E), to, made, most, id);
                }
            }
        }
    }
}

#endif

#else

/* Groups: heads, rows from row0 on; own: what the rows' own pages came to, of all rows. flags:
 * sinks. */
KERNEL(DIGITS_ITEMS)
join_digits(STEP, OUT(part), OUT(own), IN(sinks), OUT(out), const int row0, const int heads,
            const int groups, const int flags) {
    const int h = GROUP_ID(0), row = row0 + GROUP_ID(1);
#ifndef GW_ITEM
    __local uint scratch[TEAM];
    const int lane = LOCAL_ID;
#endif
    if (row >= LIVE) {
        return;
    }
    const int n = (OWN_PAGE(row) + GW_DIGITS_GROUP - 1) / GW_DIGITS_GROUP;
    const size_t at = (size_t)row * heads + h;
    __global const float *parts = GROUP_SUMS(row - row0, h, 0);
    for (int b = 0; b < E / TEAM; b++) {
        float top = -INFINITY, sum = 0.0f, was, now, o[LANES_HERE];
        EACH_LANE { o[AT] = 0.0f; }
        for (int i = 0; i <= n; i++) {
            __global const float *more =
                i < n ? parts + (size_t)i * (E + 2) : WRITES(float, own) + at * (E + 2);
            join_tops(&top, more[E], &was, &now);
            sum = fma(more[E + 1], now, sum * was);
            EACH_LANE { o[AT] = fma(more[b * TEAM + lane], now, o[AT] * was); }
        }
        if (flags & 1) {
            join_tops(&top, READS(float, sinks)[h], &was, &now);
            sum = sum * was + now;
            EACH_LANE { o[AT] = o[AT] * was; }
        }
        EACH_LANE { o[AT] = o[AT] / sum; }
#ifndef ACT8
        EACH_LANE { WRITES(float, out)[at * E + b * TEAM + lane] = o[AT]; }
#elif defined(GW_ITEM)
        item_encode(WRITES(gw_act8, out) + at * (E / GW_ACT_BLOCK) + b, o);
#else
        team_encode(WRITES(gw_act8, out) + at * (E / GW_ACT_BLOCK) + b, o[0], 1, scratch, lane);
#endif
    }
}

#endif
