/* kernels_cl/attention/attention_digits_team.cl - ATTENTION in digits (digits.cl) on teams, by sums
 * of products of four bytes: a group has a tile of QUERIES queries, pairs of a row and a head, of
 * one KV head, a team EACH of them, and goes over the pages of a group once, as
 * attention_digits_matrix.cl does. A lane has two positions while scores are made, every 32nd
 * channel while values are summed. Digits of a page come to local memory WIDTH channels at a time.
 */
#define QUERIES 32
#define EACH (QUERIES / TEAMS)
#define WIDTH 64
#define PER_LANE (E / TEAM)

/* Words, rows an odd number of them apart: GW_PAGE rows of a page's keys or WIDTH of its values,
 * queries, weights of a page. */
#define ROW_WORDS (2 * WIDTH / 4)
#define PITCH (ROW_WORDS + 1)
#define QUERY_WORDS (2 * E / 4)
#define WEIGHT_WORDS (2 * GW_PAGE / 4)

/* sum + four products of int8. */
static inline int dot_signed(uint a, uint b, int sum) {
#if GW_DOTS == DOTS_PTX
    int r;
    __asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
    return r;
#elif GW_DOTS == DOTS_AMD
    return __builtin_amdgcn_sudot4(1, (int)a, 1, (int)b, sum, 0);
#elif GW_DOTS == DOTS_AMD_SIGNED
    return __builtin_amdgcn_sdot4((int)a, (int)b, sum, 0);
#else
    const char4 u = as_char4(a), v = as_char4(b);
    return sum + (int)u.s0 * v.s0 + (int)u.s1 * v.s1 + (int)u.s2 * v.s2 + (int)u.s3 * v.s3;
#endif
}

/* both, mixed += products of four terms: words of high and of low digits of each side. */
static inline void multiply_digits(int *both, int *mixed, uint high, uint low, uint with_high,
                                   uint with_low) {
    *both = dot_signed(high, with_high, *both);
    *mixed = dot_signed(high, with_low, *mixed);
    *mixed = dot_signed(low, with_high, *mixed);
}

/* Rows of `from`, from_words each, of which words [high, high + words) and [low, low + words) come
 * side by side. */
static inline void stage_rows(__local uint *page, __global const uint *from, int rows,
                              int from_words, int high, int low, int words, int id) {
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL_4
    for (int i = id; i < rows * 2 * words; i += GROUP) {
        const int r = i / (2 * words), w = i % (2 * words);
        page[r * PITCH + w] = from[r * from_words + (w < words ? high + w : low + w - words)];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Digits of a query of the team, zeros where there is none; returns its scale. */
static inline float load_query(__local uint *to, __global const float *q, int there,
                               __local uint *scratch, int id) {
    const int lane = id % TEAM;
    uint top = 0;
    UNROLL
    for (int i = 0; i < E; i += TEAM) {
        top = max(top, there ? gw_digits_size(q[i + lane]) : 0u);
    }
    const float amax = gw_digits_amax(team_max(top, scratch, id));
    const float inverse = gw_digits_inverse(amax);
    for (int w = lane; w < E / 4; w += TEAM) {
        uint n[4];
        for (int c = 0; c < 4; c++) {
            n[c] = number_of(again(there) ? q[4 * w + c] : 0.0f, inverse);
        }
        to[w] = high_digits(n);
        to[E / 4 + w] = low_digits(n);
    }
    return gw_digits_scale(amax);
}

/* Sums over the team. */
static inline int team_sum(int v, __local int *scratch, int id) {
    UNROLL
    for (int mask = TEAM / 2; mask > 0; mask /= 2) {
        v += other_lane(v, mask, scratch, id);
    }
    return v;
}

/* 256 high high + high low + low high of the team's queries at this lane's two positions. */
static inline void score(int (*sums)[2], __global const uchar *keys, __local const uint *queries,
                         __local uint *page, int id) {
    const int lane = id % TEAM;
    int both[EACH][2], mixed[EACH][2];
    UNROLL
    for (int n = 0; n < EACH; n++) {
        both[n][0] = both[n][1] = mixed[n][0] = mixed[n][1] = 0;
    }
    for (int c = 0; c < E; c += WIDTH) {
        const int words = min(WIDTH, E - c) / 4;
        stage_rows(page, (__global const uint *)keys, GW_PAGE, KEY_ROW / 4, c / 4, (E + c) / 4,
                   words, id);
        UNROLL_4
        for (int w = 0; w < words; w++) {
            UNROLL
            for (int x = 0; x < 2; x++) {
                __local const uint *key = page + (lane + TEAM * x) * PITCH + w;
                const uint key_high = key[0], key_low = key[words];
                UNROLL
                for (int n = 0; n < EACH; n++) {
                    __local const uint *query = queries + n * QUERY_WORDS + c / 4 + w;
                    multiply_digits(&both[n][x], &mixed[n][x], query[0], query[E / 4], key_high,
                                    key_low);
                }
            }
        }
    }
    UNROLL
    for (int n = 0; n < EACH; n++) {
        sums[n][0] = both[n][0] * 256 + mixed[n][0];
        sums[n][1] = both[n][1] * 256 + mixed[n][1];
    }
}

/* Scores of a query become digits of weights. Returns the page's maximum; *sum: what its weights
 * count; *weight_scale: of the digits, times 256. scales: of the page's rows, and of its values. */
static inline float weigh(float *s, __local uchar *to, __global const float *scales, float *sum,
                          float *weight_scale, __local uint *scratch, int id) {
    const int lane = id % TEAM;
    float top = max(s[0] > -INFINITY ? s[0] : -INFINITY, s[1] > -INFINITY ? s[1] : -INFINITY);
    top = team_top(top, (__local float *)scratch, id);
    s[0] = gw_digits_exp(s[0] - top);
    s[1] = gw_digits_exp(s[1] - top);
    const uint counted = number_of(s[0], (float)GW_DIGITS_TOP) +
                         number_of(s[1], (float)GW_DIGITS_TOP) - 2 * NUMBER_ZERO;
    *sum = (float)team_sum((int)counted, (__local int *)scratch, id) * GW_DIGITS_PART;
    s[0] = s[0] * scales[GW_PAGE + lane];
    s[1] = s[1] * scales[GW_PAGE + lane + TEAM];
    const uint size = max(gw_digits_size(s[0]), gw_digits_size(s[1]));
    const float amax = gw_digits_amax(team_max(size, scratch, id));
    const float inverse = gw_digits_inverse(amax);
    *weight_scale = gw_digits_scale(amax) * 256.0f;
    UNROLL
    for (int x = 0; x < 2; x++) {
        const uint number = number_of(s[x], inverse);
        const int j = POSITION_OF(lane + TEAM * x);
        to[j] = (uchar)(number >> 8);
        to[GW_PAGE + j] = (uchar)(number ^ 0x80u);
    }
    return top;
}

/* Sums of a page, of queries that see it, times now. */
static inline void add_values(float (*o)[PER_LANE], __global const uchar *values,
                              __local const uint *weights, const float *weight_scale,
                              const float *now, const int *seen, __local uint *page, int id) {
    const int lane = id % TEAM;
    __global const float *most = (__global const float *)(values + E * VALUE_ROW);
    UNROLL
    for (int i = 0; i < PER_LANE; i++) {
        int both[EACH], mixed[EACH];
        if (i % (WIDTH / TEAM) == 0) {
            stage_rows(page, (__global const uint *)(values + i * TEAM * VALUE_ROW),
                       min(WIDTH, E - i * TEAM), VALUE_ROW / 4, 0, GW_PAGE / 4, GW_PAGE / 4, id);
        }
        UNROLL
        for (int n = 0; n < EACH; n++) {
            both[n] = mixed[n] = 0;
        }
        __local const uint *value = page + (lane + i * TEAM % WIDTH) * PITCH;
        UNROLL_4
        for (int w = 0; w < GW_PAGE / 4; w++) {
            UNROLL
            for (int n = 0; n < EACH; n++) {
                __local const uint *weight = weights + n * WEIGHT_WORDS + w;
                multiply_digits(&both[n], &mixed[n], weight[0], weight[GW_PAGE / 4], value[w],
                                value[GW_PAGE / 4 + w]);
            }
        }
        UNROLL
        for (int n = 0; n < EACH; n++) {
            const float by = weight_scale[n] * most[lane + i * TEAM];
            const float next = fma((float)(both[n] * 256 + mixed[n]) * by, now[n], o[n][i]);
            o[n][i] = again(seen[n]) ? next : o[n][i];
        }
    }
}

/* What a team knows of its queries. */
typedef struct states {
    float o[EACH][PER_LANE], top[EACH], sum[EACH];
    float by[EACH]; /* scales of q, times 256 and that of scores */
    int row[EACH];
    int own[EACH]; /* pages that it has; 0: no query */
} states;

/* Pages [first, end) of a sequence, whose rows are [run, run_end). */
static inline void add_pages(states *s, __global const int *table, int first, int end, int run,
                             int run_end, int kv_heads, int g, __global const uchar *keys,
                             __global const uchar *values, __local const uint *queries,
                             __local uint *weights, __local uint *page, __local uint *scratch,
                             int id) {
    const int lane = id % TEAM;
    for (int p = first; p < end; p++) {
        const size_t at = (size_t)table[p] * kv_heads + g;
        __global const uchar *keys_here = keys + at * KEY_BYTES;
        __global const float *scales = (__global const float *)(keys_here + KEY_DIGITS);
        int sums[EACH][2], seen[EACH];
        float now[EACH], weight_scale[EACH];
        score(sums, keys_here, queries, page, id);
        UNROLL
        for (int n = 0; n < EACH; n++) {
            float was, before = s->top[n], l;
            float x[2] = {(float)sums[n][0] * (s->by[n] * scales[lane]),
                          (float)sums[n][1] * (s->by[n] * scales[lane + TEAM])};
            const float top = weigh(x, (__local uchar *)(weights + n * WEIGHT_WORDS), scales, &l,
                                    &weight_scale[n], scratch, id);
            join_tops(&before, top, &was, &now[n]);
            seen[n] = (s->row[n] >= run) & (s->row[n] < run_end) & (p < s->own[n]);
            s->top[n] = again(seen[n]) ? before : s->top[n];
            s->sum[n] = again(seen[n]) ? fma(l, now[n], s->sum[n] * was) : s->sum[n];
            UNROLL
            for (int i = 0; i < PER_LANE; i++) {
                s->o[n][i] = again(seen[n]) ? s->o[n][i] * was : s->o[n][i];
            }
        }
        add_values(s->o, values + at * VALUE_BYTES, weights, weight_scale, now, seen, page, id);
    }
}

/* Groups: tiles of queries of rows [row0, row0 + rows), KV heads, groups of pages. */
KERNEL(GROUP)
attend_digits(STEP, IN(q), IN(pages), IN(keys), IN(values), OUT(part), const int row0,
              const int rows, const int heads, const int kv_heads, const int page_stride,
              const int groups, const float scale) {
    __local uint page[GW_PAGE * PITCH], queries[QUERIES * QUERY_WORDS];
    __local uint weights[QUERIES * WEIGHT_WORDS], scratch[GROUP];
    const int id = LOCAL_ID, lane = id % TEAM, mine = id / TEAM * EACH, number = GROUP_ID(2);
    const int g = GROUP_ID(1), group = heads / kv_heads;
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
    states s;
    UNROLL
    for (int n = 0; n < EACH; n++) {
        const int query = query0 + mine + n, row = row0 + query / group;
        const size_t at = (size_t)row * heads + g * group + query % group;
        s.row[n] = row;
        s.own[n] = row < stop ? OWN_PAGE(min(row, stop - 1)) : 0;
        s.top[n] = -INFINITY;
        s.sum[n] = 0.0f;
        s.by[n] = load_query(queries + (mine + n) * QUERY_WORDS, READS(float, q) + at * E,
                             row < stop, scratch, id) *
                  256.0f * scale;
        UNROLL
        for (int i = 0; i < PER_LANE; i++) {
            s.o[n][i] = 0.0f;
        }
    }
    /* rows of one sequence at a time */
    for (int run = b0, run_end; run < b1; run = run_end) {
        const int slot = STEP_SLOT(run);
        int high = 0;
        for (run_end = run; run_end < b1 && STEP_SLOT(run_end) == slot; run_end++) {
            high = max(high, OWN_PAGE(run_end));
        }
        add_pages(&s, READS(int, pages) + (size_t)slot * page_stride, first,
                  min(high, first + GW_DIGITS_GROUP), run, run_end, kv_heads, g,
                  READS(uchar, keys), READS(uchar, values), queries + mine * QUERY_WORDS,
                  weights + mine * WEIGHT_WORDS, page, scratch, id);
    }
    UNROLL
    for (int n = 0; n < EACH; n++) {
        const int query = query0 + mine + n;
        if (again(s.own[n]) > first) {
            __global float *to = GROUP_SUMS(s.row[n] - row0, g * group + query % group, number);
            UNROLL
            for (int i = 0; i < PER_LANE; i++) {
                to[lane + TEAM * i] = s.o[n][i];
            }
            if (lane == 0) {
                to[E] = s.top[n];
                to[E + 1] = s.sum[n];
            }
        }
    }
}
