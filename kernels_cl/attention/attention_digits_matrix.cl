/* kernels_cl/attention/attention_digits_matrix.cl - ATTENTION in digits (digits.cl) on int8 matrix
 * instructions: a group has a tile of QUERIES queries, pairs of a row and a head, of one KV head, a
 * team 16 of them, and goes over the pages of a group once; what was summed is brought to a new
 * maximum when one comes (online softmax: Milakov and Gimelshein, arXiv:1805.02867; by tiles: Dao
 * et al., arXiv:2205.14135). Products of digits are exact in any order.
 *
 * Digits of queries and of weights stay in registers: a lane gets scores where the next product
 * takes weights. While keys are multiplied, values are on their way to local memory, and the other
 * way round. Heads wider than 128 are summed in two slices, each by a group that makes the scores
 * itself.
 *
 * What it costs at least: three int8 products of 2 E terms for each query and position.
 */
#define QUERIES 64 /* 16 of a team */
#define EV (E > 128 ? E / 2 : E)
#define SLICES (E / EV)
#define PIECES (E > 224 ? 2 : 1) /* of a slice, what local memory has room for */
#define CHANNELS (EV / PIECES)
#define STEPS (E / 32) /* of the first product; of the second there are two */
#define TILES (GW_PAGE / 8)

/* Local memory, in bytes. */
#define AT_SCALES KEY_DIGITS
#define AT_VALUES KEY_BYTES
#define AT_CHANNELS (AT_VALUES + CHANNELS * VALUE_ROW)
#define AT_SCRATCH (AT_CHANNELS + CHANNELS * 4)
#define SCRATCH_WORDS (MATRIX_WORDS ? MATRIX_WORDS : EXCHANGES_IN_MEMORY)
#define ALL_BYTES (AT_SCRATCH + GROUP * SCRATCH_WORDS * 4)

static inline void copy_bytes(__local uchar *to, __global const uchar *from, const int bytes,
                              int id) {
    UNROLL
    for (int i = 16 * id; i < bytes; i += 16 * GROUP) {
        copy_16(to + i, from + i, 16);
    }
}
/* Of channels [first, first + CHANNELS). */
static inline void copy_values(__local uchar *memory, __global const uchar *values, int first,
                               int id) {
    copy_bytes(memory + AT_VALUES, values + first * VALUE_ROW, CHANNELS * VALUE_ROW, id);
    copy_bytes(memory + AT_CHANNELS, values + E * VALUE_ROW + first * 4, CHANNELS * 4, id);
}

/* Of the four lanes of a query. */
static inline float quad_top(float v, __local int *scratch, int id) {
    UNROLL
    for (int mask = 1; mask < 4; mask *= 2) {
        const float other = as_float(other_lane(as_int(v), mask, scratch, id));
        v = other > v ? other : v;
    }
    return v;
}
static inline uint quad_max(uint v, __local int *scratch, int id) {
    UNROLL
    for (int mask = 1; mask < 4; mask *= 2) {
        v = max(v, (uint)other_lane((int)v, mask, scratch, id));
    }
    return v;
}
static inline uint quad_sum(uint v, __local int *scratch, int id) {
    UNROLL
    for (int mask = 1; mask < 4; mask *= 2) {
        v += (uint)other_lane((int)v, mask, scratch, id);
    }
    return v;
}

/* A lane's part of two queries, lane / 4 and that 8 further: operand r + 2 h of step k has four
 * neighbours, 32 k + 16 h + lane % 4 * 4 .. + 3 of query r. */
typedef struct operands {
    uint high[STEPS][4], low[STEPS][4];
    float by[2]; /* scales of q, times 256 and that of scores */
} operands;

static inline void load_query(operands *o, int r, __global const float *q, int there, float scale,
                              __local int *scratch, int id) {
    const int first = id % 4 * 4;
    uint top = 0;
    UNROLL
    for (int i = 0; i < E / 16; i++) {
        const float4 x = there ? *(__global const float4 *)(q + 16 * i + first) : (float4)(0.0f);
        const uint4 size = as_uint4(x) & 0x7fffffffu;
        top = max(top, max(max(size.s0, size.s1), max(size.s2, size.s3)));
    }
    const float amax = gw_digits_amax(quad_max(top, scratch, id));
    const float inverse = gw_digits_inverse(amax);
    o->by[r] = gw_digits_scale(amax) * 256.0f * scale;
    UNROLL
    for (int i = 0; i < E / 16; i++) {
        const float4 x =
            again(there) ? *(__global const float4 *)(q + 16 * i + first) : (float4)(0.0f);
        const uint n[4] = {number_of(x.s0, inverse), number_of(x.s1, inverse),
                           number_of(x.s2, inverse), number_of(x.s3, inverse)};
        o->high[i / 2][i % 2 * 2 + r] = high_digits(n);
        o->low[i / 2][i % 2 * 2 + r] = low_digits(n);
    }
}

/* both += high high, mixed += the two others, of 32 terms; rows: 8 rows of 16 high digits of `low`
 * bytes before the low ones. */
static inline void multiply_digits(int *both, int *mixed, const uint *high, const uint *low,
                                   __local const uchar *memory, uint at, __local uint *scratch,
                                   int id) {
    uint row[4];
    load_matrices(row, memory, at, scratch, id);
    multiply_on(both, high, row, scratch, id);
    multiply_on(mixed, high, row + 2, scratch, id);
    multiply_on(mixed, low, row, scratch, id);
}
/* Where a lane reads a row: high digits, 16 further, low digits, 16 further. */
static inline uint row_at(int lane, int pitch, int low) {
    return (uint)(lane % 8 * pitch + lane / 8 % 2 * 16 + lane / 16 * low);
}

/* Scores: of tile j result i is that of query i / 2 at row 8 j + lane % 4 * 2 + i % 2. */
static inline void score(float (*s)[4], const operands *q, __local const uchar *memory,
                         __local uint *scratch, int id) {
    const int lane = id % TEAM;
    const uint at = row_at(lane, KEY_ROW, E);
    UNROLL
    for (int j = 0; j < TILES; j++) {
        int both[4] = {0, 0, 0, 0}, mixed[4] = {0, 0, 0, 0};
        UNROLL
        for (int k = 0; k < STEPS; k++) {
            multiply_digits(both, mixed, q->high[k], q->low[k], memory,
                            at + 8 * j * KEY_ROW + 32 * k, scratch, id);
        }
        const float2 scale =
            *(__local const float2 *)(memory + AT_SCALES + (8 * j + lane % 4 * 2) * 4);
        s[j][0] = (float)(both[0] * 256 + mixed[0]) * (q->by[0] * scale.s0);
        s[j][1] = (float)(both[1] * 256 + mixed[1]) * (q->by[0] * scale.s1);
        s[j][2] = (float)(both[2] * 256 + mixed[2]) * (q->by[1] * scale.s0);
        s[j][3] = (float)(both[3] * 256 + mixed[3]) * (q->by[1] * scale.s1);
    }
}

/* Scores of a page become digits of weights, as operands. Of each query: the page's maximum, what
 * its weights count, the scale of the digits times 256. */
typedef struct weights {
    uint high[2][4], low[2][4];
    float top[2], sum[2], scale[2];
} weights;

static inline void weigh(weights *w, float (*s)[4], __local const uchar *memory,
                         __local int *scratch, int id) {
    const int lane = id % TEAM;
    UNROLL
    for (int r = 0; r < 2; r++) {
        float top = -INFINITY;
        uint sum = 0, size = 0;
        UNROLL
        for (int j = 0; j < TILES; j++) {
            top = s[j][2 * r] > top ? s[j][2 * r] : top;
            top = s[j][2 * r + 1] > top ? s[j][2 * r + 1] : top;
        }
        w->top[r] = top = quad_top(top, scratch, id);
        UNROLL
        for (int j = 0; j < TILES; j++) {
            const float2 scale = *(
                __local const float2 *)(memory + AT_SCALES + (GW_PAGE + 8 * j + lane % 4 * 2) * 4);
            const float a = gw_digits_exp(s[j][2 * r] - top);
            const float b = gw_digits_exp(s[j][2 * r + 1] - top);
            sum += number_of(a, (float)GW_DIGITS_TOP) + number_of(b, (float)GW_DIGITS_TOP);
            s[j][2 * r] = a * scale.s0;
            s[j][2 * r + 1] = b * scale.s1;
            size = max(size, max(as_uint(s[j][2 * r]), as_uint(s[j][2 * r + 1])));
        }
        sum = quad_sum(sum, scratch, id) - GW_PAGE * NUMBER_ZERO;
        w->sum[r] = (float)(int)sum * GW_DIGITS_PART;
        /* weights have no sign, but a NaN may */
        const float amax = gw_digits_amax(quad_max(size, scratch, id) & 0x7fffffffu);
        const float inverse = gw_digits_inverse(amax);
        w->scale[r] = gw_digits_scale(amax) * 256.0f;
        UNROLL
        for (int i = 0; i < TILES / 2; i++) {
            const uint n[4] = {number_of(s[2 * i][2 * r], inverse),
                               number_of(s[2 * i][2 * r + 1], inverse),
                               number_of(s[2 * i + 1][2 * r], inverse),
                               number_of(s[2 * i + 1][2 * r + 1], inverse)};
            w->high[i / 2][i % 2 * 2 + r] = high_digits(n);
            w->low[i / 2][i % 2 * 2 + r] = low_digits(n);
        }
    }
}

/* *o = a b + *o where seen: not a choice of two numbers, but an instruction that is left out. */
static inline void add_where(int seen, float a, float b, float *o) {
#ifdef GW_NV
    __asm__("{ .reg .pred there; setp.ne.s32 there, %3, 0; @there fma.rn.f32 %0, %1, %2, %0; }"
            : "+f"(*o) : "f"(a), "f"(b), "r"(seen));
#else
    *o = again(seen) ? fma(a, b, *o) : *o;
#endif
}

/* Sums of the channels in local memory, of queries that see the page. */
static inline void add_values(float (*o)[4], const weights *w, const float *now, const int *seen,
                              __local const uchar *memory, __local uint *scratch, int id) {
    const int lane = id % TEAM;
    const uint at = AT_VALUES + row_at(lane, VALUE_ROW, GW_PAGE);
    UNROLL
    for (int t = 0; t < CHANNELS / 8; t++) {
        int both[4] = {0, 0, 0, 0}, mixed[4] = {0, 0, 0, 0};
        UNROLL
        for (int k = 0; k < 2; k++) {
            multiply_digits(both, mixed, w->high[k], w->low[k], memory,
                            at + 8 * t * VALUE_ROW + 32 * k, scratch, id);
        }
        const float2 c =
            *(__local const float2 *)(memory + AT_CHANNELS + (8 * t + lane % 4 * 2) * 4);
        UNROLL
        for (int i = 0; i < 4; i++) {
            const float by = w->scale[i / 2] * (i % 2 ? c.s1 : c.s0);
            add_where(seen[i / 2], (float)(both[i] * 256 + mixed[i]) * by, now[i / 2], &o[t][i]);
        }
    }
}

/* Groups: tiles of queries of rows [row0, row0 + rows), slices of KV heads, groups of pages. */
KERNEL(GROUP)
attend_digits(STEP, IN(q), IN(pages), IN(keys), IN(values), OUT(part), const int row0,
              const int rows, const int heads, const int kv_heads, const int page_stride,
              const int groups, const float scale) {
    __local uchar memory[ALL_BYTES] __attribute__((aligned(16)));
    __local uint *scratch = (__local uint *)(memory + AT_SCRATCH);
    const int id = LOCAL_ID, lane = id % TEAM, number = GROUP_ID(2);
    const int g = GROUP_ID(1) / SLICES, slice = GROUP_ID(1) % SLICES, group = heads / kv_heads;
    const int first = number * GW_DIGITS_GROUP, query0 = GROUP_ID(0) * QUERIES;
    const int b0 = row0 + query0 / group, stop = min(LIVE, row0 + rows);
    const int b1 = min(stop, row0 + (query0 + QUERIES - 1) / group + 1);
    int most = 0;
    for (int row = b0; row < b1; row++) {
        most = max(most, OWN_PAGE(row));
    }
    if (most <= first) {
        return;
    }
    operands query;
    float o[EV / 8][4], top[2], sum[2];
    int own[2]; /* pages that a query of the lane has; 0: no query */
    UNROLL
    for (int r = 0; r < 2; r++) {
        const int n = query0 + id / TEAM * 16 + lane / 4 + 8 * r, row = row0 + n / group;
        const size_t at = (size_t)row * heads + g * group + n % group;
        own[r] = row < stop ? OWN_PAGE(min(row, stop - 1)) : 0;
        top[r] = -INFINITY;
        sum[r] = 0.0f;
        load_query(&query, r, READS(float, q) + at * E, row < stop, scale, (__local int *)scratch,
                   id);
    }
    UNROLL
    for (int t = 0; t < EV / 8; t++) {
        o[t][0] = o[t][1] = o[t][2] = o[t][3] = 0.0f;
    }
    /* rows of one sequence at a time */
    for (int run = b0, run_end; run < b1; run = run_end) {
        const int slot = STEP_SLOT(run);
        __global const int *table = READS(int, pages) + (size_t)slot * page_stride;
        int high = 0, has[2];
        for (run_end = run; run_end < b1 && STEP_SLOT(run_end) == slot; run_end++) {
            high = max(high, OWN_PAGE(run_end));
        }
        UNROLL
        for (int r = 0; r < 2; r++) {
            const int n = query0 + id / TEAM * 16 + lane / 4 + 8 * r, row = row0 + n / group;
            has[r] = (row >= run) & (row < run_end) ? again(own[r]) : 0;
        }
        const int end = min(high, first + GW_DIGITS_GROUP);
        for (int p = first; p < end; p++) {
            const size_t at = (size_t)table[p] * kv_heads + g;
            __global const uchar *values_here = READS(uchar, values) + at * VALUE_BYTES;
            float s[TILES][4], now[2];
            int seen[2];
            weights w;
            barrier(CLK_LOCAL_MEM_FENCE); /* nobody reads what was there */
            if (p == first) {
                copy_bytes(memory, READS(uchar, keys) + at * KEY_BYTES, KEY_BYTES, id);
            }
            copies_end_stage();
            copy_values(memory, values_here, slice * EV, id);
            copies_end_stage();
            copies_wait_but_one();
            barrier(CLK_LOCAL_MEM_FENCE);
            score(s, &query, memory, scratch, id);
            weigh(&w, s, memory, (__local int *)scratch, id);
            copies_wait();
            barrier(CLK_LOCAL_MEM_FENCE); /* all keys are read, all values are there */
            if (PIECES == 1 && p + 1 < end) {
                const size_t next = (size_t)table[p + 1] * kv_heads + g;
                copy_bytes(memory, READS(uchar, keys) + next * KEY_BYTES, KEY_BYTES, id);
            }
            UNROLL
            for (int r = 0; r < 2; r++) {
                float before = top[r], was;
                join_tops(&before, w.top[r], &was, &now[r]);
                seen[r] = p < again(has[r]);
                top[r] = again(seen[r]) ? before : top[r];
                sum[r] = again(seen[r]) ? fma(w.sum[r], now[r], sum[r] * was) : sum[r];
                if (again(seen[r] & (was != 1.0f))) { /* times 1 nothing changes */
                    UNROLL
                    for (int t = 0; t < EV / 8; t++) {
                        o[t][2 * r] = o[t][2 * r] * was;
                        o[t][2 * r + 1] = o[t][2 * r + 1] * was;
                    }
                }
            }
            UNROLL
            for (int piece = 0; piece < PIECES; piece++) {
                if (piece > 0) {
                    barrier(CLK_LOCAL_MEM_FENCE);
                    copy_values(memory, values_here, slice * EV + piece * CHANNELS, id);
                    copies_wait();
                    barrier(CLK_LOCAL_MEM_FENCE);
                }
                add_values(o + piece * (CHANNELS / 8), &w, now, seen, memory, scratch, id);
            }
            if (PIECES > 1 && p + 1 < end) {
                const size_t next = (size_t)table[p + 1] * kv_heads + g;
                copy_bytes(memory, READS(uchar, keys) + next * KEY_BYTES, KEY_BYTES, id);
            }
        }
    }
    UNROLL
    for (int r = 0; r < 2; r++) {
        const int n = query0 + id / TEAM * 16 + lane / 4 + 8 * r, row = row0 + n / group;
        if (again(own[r]) <= first) {
            continue;
        }
        __global float *to = GROUP_SUMS(row - row0, g * group + n % group, number);
        UNROLL
        for (int t = 0; t < EV / 8; t++) {
            to[slice * EV + 8 * t + lane % 4 * 2] = o[t][2 * r];
            to[slice * EV + 8 * t + lane % 4 * 2 + 1] = o[t][2 * r + 1];
        }
        if (slice == 0 && lane % 4 == 0) {
            to[E] = top[r];
            to[E + 1] = sum[r];
        }
    }
}
