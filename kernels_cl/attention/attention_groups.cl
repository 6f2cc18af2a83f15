/* kernels_cl/attention/attention_groups.cl - ATTENTION of a prompt without a window on teams: a
 * group of items goes over a group of GW_PAGE_GROUP pages twice, for the largest scores of its
 * queries and for their sums; scores stay in memory between the two. attend_join of
 * attention_team.cl, with GROUPED, joins the groups of pages.
 *
 * E: width of a head, 64 or 128. GROUP: 128 items, SIDE of them next to one another along the
 * positions of a page and the values of a head. An item has EACH queries, 4 positions while scores
 * are made, and VALUES values while they are summed. Local memory is read 8 bytes an item at a
 * time, which a warp gets at once where half of it reads the same.
 */
#define QUERIES 64
#define SIDE 16
#define EACH (QUERIES * SIDE / GROUP)
#define VALUES (E / SIDE)
#define PITCH (GW_PAGE + 4) /* of the weights of a query: its neighbours use other banks */

/* Local memory, in bytes: a page, then queries [E, QUERIES], where weights [QUERIES, PITCH] are
 * later. */
#define AT_QUERIES ((PAGE_BYTES(E) + 15) / 16 * 16)
#define QUERY_BYTES (E * QUERIES * 4)
#define WEIGHT_BYTES (QUERIES * PITCH * 4)
#define AT_SCRATCH (AT_QUERIES + (QUERY_BYTES > WEIGHT_BYTES ? QUERY_BYTES : WEIGHT_BYTES))
#if EXCHANGES_IN_MEMORY
#define ALL_BYTES (AT_SCRATCH + GROUP * 4)
#else
#define ALL_BYTES AT_SCRATCH
#endif

/* Four neighbouring cells as numbers, and the scale of Q8. */
#ifdef Q8
#define FOUR(p) convert_float4(vload4(0, (p)))
#define SCALE_OF(page, is_v, b, j)                                                                 \
    vload_half(SCALE_AT(is_v, b, j, E), (__local const half *)((page) + GW_PAGE * E))
#elif defined(HALF)
static inline float4 four_halves(__local const CELL *p) {
    const uint2 two = *(__local const uint2 *)p;
    return (float4)(WIDEN(two.s0 & 0xffffu), WIDEN(two.s0 >> 16), WIDEN(two.s1 & 0xffffu),
                    WIDEN(two.s1 >> 16));
}
#define FOUR(p) four_halves(p)
#else
#define FOUR(p) (*(__local const float4 *)(p))
#endif

/* n_queries heads of rows that are `stride` values apart, `group` heads of each; zeros behind them.
 * Neighbours take values of other queries. */
static inline void stage_queries(__local float *queries, __global const float *q, int stride,
                                 int group, int n_queries, int id) {
    UNROLL_1
    for (int i = id; i < QUERIES * (E / 4); i += GROUP) {
        const int n = i % QUERIES, c = i / QUERIES * 4;
        float4 four = 0.0f;
        if (n < n_queries) {
            four = *(__global const float4 *)(q + (size_t)(n / group) * stride + n % group * E + c);
        }
        queries[c * QUERIES + n] = four.s0;
        queries[(c + 1) * QUERIES + n] = four.s1;
        queries[(c + 2) * QUERIES + n] = four.s2;
        queries[(c + 3) * QUERIES + n] = four.s3;
    }
}

/* The largest, and the fold, of the SIDE items of a query. */
static inline float side_top(float v, __local float *scratch, int id) {
#if GW_SHUFFLES
    for (int h = SIDE / 2; h > 0; h /= 2) {
        const float other = as_float(SHUFFLE(shuffle_xor, as_int(v), h));
        v = other > v ? other : v;
    }
    return v;
#else
    FOLD_LANES(SIDE, LARGER);
    return v;
#endif
}
static inline float side_fold(float v, __local float *scratch, int id) {
#if GW_SHUFFLES
    for (int h = SIDE / 2; h > 0; h /= 2) {
        v = v + as_float(SHUFFLE(shuffle_xor, as_int(v), h));
    }
    return v;
#else
    FOLD_LANES(SIDE, SUM);
    return v;
#endif
}

/* The largest of the item's scores at positions before `end`. */
static inline float seen_top(float4 s, int at, int end) {
    float top = -INFINITY;
    top = at < end && s.s0 > top ? s.s0 : top;
    top = at + 1 < end && s.s1 > top ? s.s1 : top;
    top = at + 2 < end && s.s2 > top ? s.s2 : top;
    top = at + 3 < end && s.s3 > top ? s.s3 : top;
    return top;
}

/* Scaled scores of the item's queries at its positions, 4 * side .. 4 * side + 3. */
static inline void score(float4 *s, __local const CELL *page, __local const float *queries,
                         float scale, int side) {
    UNROLL
    for (int n = 0; n < EACH; n++) {
        s[n] = 0.0f;
    }
    UNROLL_1
    for (int b = 0; b < E / 32; b++) {
#ifdef Q8
        const int at = 4 * side;
        const float4 by = (float4)(SCALE_OF(page, 0, b, at), SCALE_OF(page, 0, b, at + 1),
                                   SCALE_OF(page, 0, b, at + 2), SCALE_OF(page, 0, b, at + 3));
#endif
        UNROLL_4
        for (int i = 32 * b; i < 32 * b + 32; i++) {
            float4 k = FOUR(page + i * GW_PAGE + 4 * side);
#ifdef Q8
            k = by * k;
#endif
            UNROLL
            for (int n = 0; n < EACH; n += 2) {
                const float2 q = *(__local const float2 *)(queries + i * QUERIES + n);
                s[n] = fma((float4)q.s0, k, s[n]);
                s[n + 1] = fma((float4)q.s1, k, s[n + 1]);
            }
        }
    }
    UNROLL
    for (int n = 0; n < EACH; n++) {
        s[n] = s[n] * scale;
    }
}

/* sum += weight of position j times its values, which are 4 * side + 64 x .. + 3 of the head. */
#define ADD_VALUE(n, weight)                                                                       \
    UNROLL                                                                                         \
    for (int x = 0; x < VALUES / 4; x++) {                                                         \
        sum[n][x] = fma((float4)(weight), v[x], sum[n][x]);                                        \
    }
static inline void load_values(float4 *v, __local const CELL *page, int j, int side) {
    UNROLL
    for (int x = 0; x < VALUES / 4; x++) {
        v[x] = FOUR(page + j * E + 4 * side + 64 * x);
#ifdef Q8
        v[x] = SCALE_OF(page, 1, side / 8 + 2 * x, j) * v[x];
#endif
    }
}

/* Positions before end[n] of a page, weighted; whole: all of them, for all queries of the item. */
static inline void sum_values(float4 (*sum)[VALUES / 4], __local const CELL *page,
                              __local const float *weights, const int *end, int whole, int side) {
    UNROLL
    for (int n = 0; n < EACH; n++) {
        UNROLL
        for (int x = 0; x < VALUES / 4; x++) {
            sum[n][x] = 0.0f;
        }
    }
    if (whole) {
        UNROLL_1
        for (int j = 0; j < GW_PAGE; j += 2) {
            float4 v[VALUES / 4], next[VALUES / 4];
            float2 weight[EACH];
            load_values(v, page, j, side);
            load_values(next, page, j + 1, side);
            UNROLL
            for (int n = 0; n < EACH; n++) {
                weight[n] = *(__local const float2 *)(weights + n * PITCH + j);
            }
            UNROLL
            for (int n = 0; n < EACH; n++) {
                ADD_VALUE(n, weight[n].s0);
            }
            UNROLL
            for (int x = 0; x < VALUES / 4; x++) {
                v[x] = next[x];
            }
            UNROLL
            for (int n = 0; n < EACH; n++) {
                ADD_VALUE(n, weight[n].s1);
            }
        }
        return;
    }
    int last = end[0];
    UNROLL
    for (int n = 1; n < EACH; n++) {
        last = max(last, end[n]);
    }
    UNROLL_1
    for (int j = 0; j < last; j++) {
        float4 v[VALUES / 4];
        load_values(v, page, j, side);
        UNROLL
        for (int n = 0; n < EACH; n++) {
            if (j < end[n]) {
                ADD_VALUE(n, weights[n * PITCH + j]);
            }
        }
    }
}

/* This item's part of the scores of page number `at` of a group: of query n, GROUP * n further. */
#define KEPT(at) (WRITES(float4, kept) + (block * GW_PAGE_GROUP + (at)) * EACH * GROUP + id)

/* What a row sees of a page, in positions from 0 on. */
#define SEEN(pos, page) clamp((pos) + 1 - (page) * GW_PAGE, 0, GW_PAGE)

/* Groups: groups of pages in turn, KV heads, blocks of rows from row0 on, as many as make QUERIES.
 * groups: of pages, that part has room for. */
KERNEL(GROUP)
attend_groups(STEP, IN(q), OUT(k), OUT(v), IN(pages), OUT(part), OUT(kept), const int row0,
              const int rows, const int heads, const int kv_heads, const int page_stride,
              const int groups, const float scale SPLIT_ARGS) {
    __local uchar memory[ALL_BYTES] __attribute__((aligned(16)));
    __local const CELL *page = (__local const CELL *)memory;
    __local float *queries = (__local float *)(memory + AT_QUERIES), *weights = queries;
    __local float *scratch = (__local float *)(memory + AT_SCRATCH);
    const int g = (int)get_group_id(1), group = heads / kv_heads, per = QUERIES / group;
    const int id = (int)get_local_id(0), side = id % SIDE, mine = id / SIDE * EACH;
    const int b0 = row0 + (int)get_group_id(2) * per, stop = min(LIVE, min(row0 + rows, b0 + per));
    const size_t block = ((size_t)get_group_id(2) * get_num_groups(1) + get_group_id(1)) *
                             get_num_groups(0) + get_group_id(0);
    /* rows of one sequence at a time */
    for (int run = b0, run_end; run < stop; run = run_end) {
        const int slot = STEP_SLOT(run);
        int high = 0, pos[EACH]; /* -1: no query */
        for (run_end = run; run_end < stop && STEP_SLOT(run_end) == slot; run_end++) {
            high = max(high, (int)STEP_POS(run_end));
        }
        const int n_queries = (run_end - run) * group, last = high / GW_PAGE;
        UNROLL
        for (int n = 0; n < EACH; n++) {
            pos[n] = mine + n < n_queries ? STEP_POS(run + (mine + n) / group) : -1;
        }
        for (int from = (int)get_group_id(0) * GW_PAGE_GROUP; from <= last;
             from += (int)get_num_groups(0) * GW_PAGE_GROUP) {
            const int to = min(from + GW_PAGE_GROUP, last + 1);
            float top_here[EACH], total[EACH];
            float4 s[EACH], sum[EACH][VALUES / 4];
            barrier(CLK_LOCAL_MEM_FENCE);
            stage_queries(queries, READS(float, q) + ((size_t)run * heads + g * group) * E,
                          heads * E, group, n_queries, id);
            UNROLL
            for (int n = 0; n < EACH; n++) {
                top_here[n] = -INFINITY;
                total[n] = 0.0f;
                UNROLL
                for (int x = 0; x < VALUES / 4; x++) {
                    sum[n][x] = 0.0f;
                }
            }
            UNROLL_1
            for (int p = from; p < to; p++) {
                const int at = READS(int, pages)[(size_t)slot * page_stride + p];
                barrier(CLK_LOCAL_MEM_FENCE);
                stage_page(memory, CACHE(k, at, E), PAGE_BYTES(E), id);
                barrier(CLK_LOCAL_MEM_FENCE);
                score(s, page, queries + mine, scale, side);
                UNROLL
                for (int n = 0; n < EACH; n++) {
                    KEPT(p - from)[n * GROUP] = s[n];
                    const float top = seen_top(s[n], 4 * side, SEEN(pos[n], p));
                    top_here[n] = top > top_here[n] ? top : top_here[n];
                }
            }
            UNROLL
            for (int n = 0; n < EACH; n++) {
                top_here[n] = side_top(top_here[n], scratch, id);
            }
            UNROLL_1
            for (int p = from; p < to; p++) {
                const int at = READS(int, pages)[(size_t)slot * page_stride + p];
                float by[EACH];
                float4 o[EACH][VALUES / 4];
                int end[EACH], whole = 1;
                barrier(CLK_LOCAL_MEM_FENCE);
                stage_page(memory, CACHE(v, at, E), PAGE_BYTES(E), id);
                UNROLL
                for (int n = 0; n < EACH; n++) {
                    end[n] = SEEN(pos[n], p);
                    whole &= end[n] == GW_PAGE;
                    s[n] = KEPT(p - from)[n * GROUP];
                    const float top = side_top(seen_top(s[n], 4 * side, end[n]), scratch, id);
                    float4 w;
                    w.s0 = 4 * side < again(end[n]) ? gw_exp(s[n].s0 - top) : 0.0f;
                    w.s1 = 4 * side + 1 < again(end[n]) ? gw_exp(s[n].s1 - top) : 0.0f;
                    w.s2 = 4 * side + 2 < again(end[n]) ? gw_exp(s[n].s2 - top) : 0.0f;
                    w.s3 = 4 * side + 3 < again(end[n]) ? gw_exp(s[n].s3 - top) : 0.0f;
                    *(__local float4 *)(weights + (mine + n) * PITCH + 4 * side) = w;
                    /* the fold over 64 positions: those of other items, then the item's own */
                    w.s0 = side_fold(w.s0, scratch, id);
                    w.s1 = side_fold(w.s1, scratch, id);
                    w.s2 = side_fold(w.s2, scratch, id);
                    w.s3 = side_fold(w.s3, scratch, id);
                    const float l = (w.s0 + w.s2) + (w.s1 + w.s3);
                    by[n] = gw_exp(top - top_here[n]);
                    total[n] = again(end[n]) > 0 ? fma(l, by[n], total[n]) : total[n];
                }
                barrier(CLK_LOCAL_MEM_FENCE);
                sum_values(o, page, weights + mine * PITCH, end, whole, side);
                UNROLL
                for (int n = 0; n < EACH; n++) {
                    UNROLL
                    for (int x = 0; x < VALUES / 4; x++) {
                        const float4 next = fma(o[n][x], (float4)by[n], sum[n][x]);
                        sum[n][x] = again(end[n]) > 0 ? next : sum[n][x];
                    }
                }
            }
            UNROLL
            for (int n = 0; n < EACH; n++) {
                if (again(pos[n]) < again(from) * GW_PAGE) {
                    continue;
                }
                const int row = run + (mine + n) / group, head = g * group + (mine + n) % group;
                __global float *o =
                    WRITES(float, part) +
                    (((size_t)(row - row0) * heads + head) * groups + from / GW_PAGE_GROUP) *
                        (E + 2);
                UNROLL
                for (int x = 0; x < VALUES / 4; x++) {
                    vstore4(sum[n][x], 0, o + 4 * side + 64 * x);
                }
                if (side == 0) {
                    o[E] = top_here[n];
                    o[E + 1] = total[n];
                }
            }
        }
    }
}
