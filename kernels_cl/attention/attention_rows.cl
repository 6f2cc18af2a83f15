/* kernels_cl/attention/attention_rows.cl - ATTENTION of a prompt on teams: a group takes a page of
 * a KV head to local memory once, for QUERIES heads of neighbouring rows. Partial results as in
 * attention_team.cl, whose attend_join joins them.
 *
 * E: width of a head. A team has EACH queries, a lane of it two positions while scores are made and
 * every 32nd value of the head while values are summed.
 */
#define QUERIES 32
#define EACH (QUERIES / TEAMS)
#define PITCH (QUERIES + 4) /* floats, so that neighbours along a query use other banks */
#define PER_ITEM ((E + TEAM - 1) / TEAM)

/* Local memory, in bytes. */
#define AT_QUERIES ((PAGE_BYTES(E) + 15) / 16 * 16)
#define AT_WEIGHTS (AT_QUERIES + E * PITCH * 4)
#define AT_SCRATCH (AT_WEIGHTS + GW_PAGE * PITCH * 4)
#if EXCHANGES_IN_MEMORY
#define ALL_BYTES (AT_SCRATCH + GROUP * 4)
#else
#define ALL_BYTES AT_SCRATCH
#endif

#ifdef Q8
#define SCALE(is_v, b, j)                                                                          \
    vload_half(SCALE_AT(is_v, b, j, E), (__local const half *)(page + GW_PAGE * E))
#define VALUE_OF(scale, cell) ((scale) * (float)(cell))
#else
#define SCALE(is_v, b, j) 0.0f
#define VALUE_OF(scale, cell) WIDEN(cell)
#endif

/* Scores of the team's queries: at this lane and 32 positions further. */
static inline void score(float (*s)[2], __local const CELL *page, __local const float *queries,
                         int lane) {
    for (int b = 0; b < (E + 31) / 32; b++) {
        const float near = SCALE(0, b, lane), far = SCALE(0, b, lane + TEAM);
        UNROLL_16
        for (int i = 32 * b; i < min(32 * b + 32, E); i++) {
            const float k0 = VALUE_OF(near, page[i * GW_PAGE + lane]);
            const float k1 = VALUE_OF(far, page[i * GW_PAGE + lane + TEAM]);
            UNROLL
            for (int n = 0; n < EACH; n++) {
                const float q = queries[i * PITCH + n];
                s[n][0] = fma(q, k0, s[n][0]);
                s[n][1] = fma(q, k1, s[n][1]);
            }
        }
    }
}

/* Positions [from[n], end[n]) of a page, weighted; all: the team's queries see the same. */
static inline void sum_values(float (*sum)[PER_ITEM], __local const CELL *page,
                              __local const float *weights, const int *from, const int *end,
                              int lane) {
    int first = from[0], last = end[0], all = 1;
    UNROLL
    for (int n = 1; n < EACH; n++) {
        all &= from[n] == from[0] && end[n] == end[0];
        first = min(first, from[n]), last = max(last, end[n]);
    }
    UNROLL_4
    for (int j = max(first, 0); j < last; j++) {
        float value[PER_ITEM];
        UNROLL
        for (int x = 0; x < PER_ITEM; x++) {
            value[x] = VALUE_OF(SCALE(1, x, j), page[j * E + min(lane + TEAM * x, E - 1)]);
        }
        UNROLL
        for (int n = 0; n < EACH; n++) {
            const float weight = weights[j * PITCH + n];
            const int seen = all || (j >= from[n] && j < end[n]);
            UNROLL
            for (int x = 0; x < PER_ITEM; x++) {
                const float next = fma(weight, value[x], sum[n][x]);
                sum[n][x] = seen ? next : sum[n][x];
            }
        }
    }
}

/* Groups: pages in turn, KV heads, blocks of rows from row0 on, as many as make QUERIES. */
KERNEL(GROUP)
attend_rows(STEP, IN(q), OUT(k), OUT(v), IN(pages), OUT(part), const int row0, const int rows,
            const int heads, const int kv_heads, const int page_stride, const float scale,
            const int window SPLIT_ARGS) {
    __local uchar memory[ALL_BYTES] __attribute__((aligned(16)));
    __local const CELL *page = (__local const CELL *)memory;
    __local float *queries = (__local float *)(memory + AT_QUERIES);
    __local float *weights = (__local float *)(memory + AT_WEIGHTS);
    __local float *scratch = (__local float *)(memory + AT_SCRATCH);
    const int g = (int)get_group_id(1), group = heads / kv_heads, per = QUERIES / group;
    const int id = (int)get_local_id(0), lane = id % TEAM, mine = id / TEAM * EACH;
    const int b0 = row0 + (int)get_group_id(2) * per, stop = min(LIVE, min(row0 + rows, b0 + per));
    /* rows of one sequence at a time */
    for (int run = b0, run_end; run < stop; run = run_end) {
        const int slot = STEP_SLOT(run);
        int low = 0x7fffffff, high = 0;
        for (run_end = run; run_end < stop && STEP_SLOT(run_end) == slot; run_end++) {
            const int row = run_end;
            SPAN;
            low = min(low, first), high = max(high, last);
        }
        const int n_queries = (run_end - run) * group;
        for (int p = low + (int)get_group_id(0); p <= high; p += (int)get_num_groups(0)) {
            const int at = READS(int, pages)[(size_t)slot * page_stride + p];
            int from[EACH], end[EACH];
            float s[EACH][2], sum[EACH][PER_ITEM];
            barrier(CLK_LOCAL_MEM_FENCE);
            stage_page(memory, CACHE(k, at, E), PAGE_BYTES(E), id);
            for (int i = id; i < QUERIES * E; i += GROUP) {
                const int n = i / E, row = run + n / group, head = g * group + n % group;
                queries[i % E * PITCH + n] =
                    n < n_queries ? READS(float, q)[((size_t)row * heads + head) * E + i % E]
                                  : 0.0f;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            UNROLL
            for (int n = 0; n < EACH; n++) {
                const int row = min(run + (mine + n) / group, run_end - 1);
                SPAN;
                from[n] = max(lo - p * GW_PAGE, 0);
                end[n] = mine + n < n_queries ? min(pos - p * GW_PAGE + 1, GW_PAGE) : 0;
                s[n][0] = s[n][1] = 0.0f;
                UNROLL
                for (int x = 0; x < PER_ITEM; x++) {
                    sum[n][x] = 0.0f;
                }
            }
            score(s, page, queries + mine, lane);
            UNROLL
            for (int n = 0; n < EACH; n++) {
                const int near = lane >= from[n] && lane < end[n];
                const int far = lane + TEAM >= from[n] && lane + TEAM < end[n];
                const float sa = near ? s[n][0] * scale : -INFINITY;
                const float sb = far ? s[n][1] * scale : -INFINITY;
                float top = max(sa > -INFINITY ? sa : -INFINITY, sb > -INFINITY ? sb : -INFINITY);
                top = team_top(top, scratch, id);
                const float wa = again(near) ? gw_exp(sa - top) : 0.0f;
                const float wb = again(far) ? gw_exp(sb - top) : 0.0f;
                const float l = team_fold(wa + wb, scratch, id);
                weights[lane * PITCH + mine + n] = wa;
                weights[(lane + TEAM) * PITCH + mine + n] = wb;
                if (lane == 0 && again(from[n]) < again(end[n])) {
                    const int row = run + (mine + n) / group, head = g * group + (mine + n) % group;
                    __global float *o = PARTIAL(row - row0, head, p);
                    o[E] = top;
                    o[E + 1] = l;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            stage_page(memory, CACHE(v, at, E), PAGE_BYTES(E), id);
            barrier(CLK_LOCAL_MEM_FENCE);
            sum_values(sum, page, weights + mine, from, end, lane);
            UNROLL
            for (int n = 0; n < EACH; n++) {
                const int row = run + (mine + n) / group, head = g * group + (mine + n) % group;
                UNROLL
                for (int x = 0; x < PER_ITEM; x++) {
                    if (again(from[n]) < again(end[n]) && lane + TEAM * x < E) {
                        PARTIAL(row - row0, head, p)[lane + TEAM * x] = sum[n][x];
                    }
                }
            }
        }
    }
}
