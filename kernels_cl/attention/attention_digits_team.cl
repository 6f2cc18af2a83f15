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
    float o[EACH][PER_LANE], top[EACH], sum[EACH], by[EACH];
    int own[EACH]; /* pages that a query has; 0: no query */
    UNROLL
    for (int n = 0; n < EACH; n++) {
        const int at = query0 + mine + n, row = row0 + at / group, there = row < stop;
        own[n] = there ? OWN_PAGE(min(row, stop - 1)) : 0;
        top[n] = -INFINITY;
        sum[n] = 0.0f;
        by[n] = load_query(queries + (mine + n) * QUERY_WORDS,
                           READS(float, q) +
                               ((size_t)row * heads + g * group + at % group) * E,
                           there, scratch, id) *
                256.0f * scale;
        UNROLL
        for (int x = 0; x < PER_LANE; x++) {
            o[n][x] = 0.0f;
        }
    }
    /* rows of one sequence at a time */
    for (int run = b0, run_end; run < b1; run = run_end) {
        const int slot = STEP_SLOT(run);
        int high = 0;
        for (run_end = run; run_end < b1 && STEP_SLOT(run_end) == slot; run_end++) {
            high = max(high, OWN_PAGE(run_end));
        }
        const int end = min(high, first + GW_DIGITS_GROUP);
        for (int p = first; p < end; p++) {
            const size_t at =
                (size_t)READS(int, pages)[(size_t)slot * page_stride + p] * kv_heads + g;
            __global const uchar *keys_here = READS(uchar, keys) + at * KEY_BYTES;
            __global const uchar *values_here = READS(uchar, values) + at * VALUE_BYTES;
            __global const float *scales = (__global const float *)(keys_here + KEY_DIGITS);
            int both[EACH][2], mixed[EACH][2], seen[EACH];
            float now[EACH], weight_scale[EACH];
            UNROLL
            for (int n = 0; n < EACH; n++) {
                both[n][0] = both[n][1] = mixed[n][0] = mixed[n][1] = 0;
            }
            for (int c = 0; c < E; c += WIDTH) {
                const int words = min(WIDTH, E - c) / 4;
                stage_rows(page, (__global const uint *)keys_here, GW_PAGE, KEY_ROW / 4, c / 4,
                           (E + c) / 4, words, id);
                UNROLL_4
                for (int w = 0; w < words; w++) {
                    UNROLL
                    for (int x = 0; x < 2; x++) {
                        __local const uint *key = page + (lane + TEAM * x) * PITCH + w;
                        const uint key_high = key[0], key_low = key[words];
                        UNROLL
                        for (int n = 0; n < EACH; n++) {
                            __local const uint *query =
                                queries + (mine + n) * QUERY_WORDS + c / 4 + w;
                            multiply_digits(&both[n][x], &mixed[n][x], query[0], query[E / 4],
                                            key_high, key_low);
                        }
                    }
                }
            }
            UNROLL
            for (int n = 0; n < EACH; n++) {
                const int row = row0 + (query0 + mine + n) / group;
                float s[2], here, before = top[n], was;
                UNROLL
                for (int x = 0; x < 2; x++) {
                    s[x] = (float)(both[n][x] * 256 + mixed[n][x]) *
                           (by[n] * scales[lane + TEAM * x]);
                }
                here = max(s[0] > -INFINITY ? s[0] : -INFINITY, s[1] > -INFINITY ? s[1] : -INFINITY);
                here = team_top(here, (__local float *)scratch, id);
                s[0] = exp_below(s[0] - here);
                s[1] = exp_below(s[1] - here);
                const uint counted = number_of(s[0], (float)GW_DIGITS_TOP) +
                                     number_of(s[1], (float)GW_DIGITS_TOP) - 2 * NUMBER_ZERO;
                const float l =
                    (float)team_sum((int)counted, (__local int *)scratch, id) * GW_DIGITS_PART;
                s[0] = s[0] * scales[GW_PAGE + lane];
                s[1] = s[1] * scales[GW_PAGE + lane + TEAM];
                const float amax = gw_digits_amax(
                    team_max(max(gw_digits_size(s[0]), gw_digits_size(s[1])), scratch, id));
                const float inverse = gw_digits_inverse(amax);
                weight_scale[n] = gw_digits_scale(amax) * 256.0f;
                __local uchar *to = (__local uchar *)(weights + (mine + n) * WEIGHT_WORDS);
                UNROLL
                for (int x = 0; x < 2; x++) {
                    const uint w = number_of(s[x], inverse);
                    to[POSITION_OF(lane + TEAM * x)] = (uchar)(w >> 8);
                    to[GW_PAGE + POSITION_OF(lane + TEAM * x)] = (uchar)(w ^ 0x80u);
                }
                join_tops(&before, here, &was, &now[n]);
                seen[n] = (row >= run) & (row < run_end) & (p < again(own[n]));
                top[n] = again(seen[n]) ? before : top[n];
                sum[n] = again(seen[n]) ? fma(l, now[n], sum[n] * was) : sum[n];
                UNROLL
                for (int x = 0; x < PER_LANE; x++) {
                    o[n][x] = again(seen[n]) ? o[n][x] * was : o[n][x];
                }
            }
            UNROLL
            for (int c = 0; c < E; c += WIDTH) {
                const int channels = min(WIDTH, E - c);
                stage_rows(page, (__global const uint *)(values_here + c * VALUE_ROW), channels,
                           VALUE_ROW / 4, 0, GW_PAGE / 4, GW_PAGE / 4, id);
                UNROLL
                for (int x = 0; x < channels / TEAM; x++) {
                    const float most_here = ((__global const float *)(
                        values_here + E * VALUE_ROW))[c + lane + TEAM * x];
                    int high_high[EACH], high_low[EACH];
                    UNROLL
                    for (int n = 0; n < EACH; n++) {
                        high_high[n] = high_low[n] = 0;
                    }
                    UNROLL_4
                    for (int w = 0; w < GW_PAGE / 4; w++) {
                        __local const uint *value = page + (lane + TEAM * x) * PITCH + w;
                        const uint value_high = value[0], value_low = value[GW_PAGE / 4];
                        UNROLL
                        for (int n = 0; n < EACH; n++) {
                            __local const uint *weight = weights + (mine + n) * WEIGHT_WORDS + w;
                            multiply_digits(&high_high[n], &high_low[n], weight[0],
                                            weight[GW_PAGE / 4], value_high, value_low);
                        }
                    }
                    UNROLL
                    for (int n = 0; n < EACH; n++) {
                        const float by_here = weight_scale[n] * most_here;
                        const int i = c / TEAM + x;
                        const float next = fma((float)(high_high[n] * 256 + high_low[n]) * by_here,
                                               now[n], o[n][i]);
                        o[n][i] = again(seen[n]) ? next : o[n][i];
                    }
                }
            }
        }
    }
    UNROLL
    for (int n = 0; n < EACH; n++) {
        const int at = query0 + mine + n, row = row0 + at / group;
        if (again(own[n]) > first) {
            __global float *to = GROUP_SUMS(row - row0, g * group + at % group, number);
            UNROLL
            for (int x = 0; x < PER_LANE; x++) {
                to[lane + TEAM * x] = o[n][x];
            }
            if (lane == 0) {
                to[E] = top[n];
                to[E + 1] = sum[n];
            }
        }
    }
}
