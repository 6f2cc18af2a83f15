/* kernels_cl/attention/attention_team.cl - ATTENTION on teams: a group per KV head and pages; their
 * partial results are joined in order, by the group that comes last (LAST_JOINS) or by a launch of
 * its own.
 *
 * E: width of a head. STAGED: a page of keys and values fits into local memory. ROPE: the row of
 * q, k and v is normed, rotated and stored here first (steps of one row).
 */
#ifdef WALK
#define SIZE GROUP
#else
#define SIZE 256 /* items of a group */
#endif
#define HEADS (SIZE / GW_PAGE)
#define SQUADS (SIZE / TEAM)
#define PER_ITEM ((E + TEAM - 1) / TEAM) /* values of a head */

/* A partial result is that of a page, or of a group of pages as attention_groups.cl has them. */
#ifdef GROUPED
#define PART_OF(page) ((page) / GW_PAGE_GROUP)
#else
#define PART_OF(page) (page)
#endif

/* Results `from` .. `to` of a head in order, weighed by how far their largest scores are below
 * `top`: to the sum of weights, and to that of value i. */
static inline void join_parts(__global const float *o, int from, int to, float top, int i,
                              float *total, float *sum) {
    UNROLL_4
    for (int p = from; p <= to; p++) {
        __global const float *at = o + (size_t)p * (E + 2);
        const float weight = gw_exp(at[E] - top);
        *total = fma(at[E + 1], weight, *total);
        *sum = fma(at[i], weight, *sum);
    }
}

/* Partial results of `count` heads from h0 on, joined over pages first .. last. All items. */
static inline void join_heads(__global const float *part, __global uchar *out, int row, int h0,
                              int count, int heads, int page_stride, int first, int last,
                              __local float *scratch, int id) {
    const int lane = id & (TEAM - 1), chunks = (E + TEAM - 1) / TEAM;
    for (int base = 0; base < count * chunks; base += SQUADS) {
        const int task = min(base + id / TEAM, count * chunks - 1);
        const int h = h0 + task / chunks, i = task % chunks * TEAM + lane;
        const int mine = base + id / TEAM == task && i < E;
        __global const float *o = part + (size_t)h * page_stride * (E + 2);
        float best = -INFINITY, total = -0.0f, sum = -0.0f;
        const int from_part = PART_OF(first), to_part = PART_OF(last);
        for (int p = from_part + lane; p <= to_part; p += TEAM) {
            float top = o[(size_t)p * (E + 2) + E];
            best = top > best ? top : best;
        }
        best = team_top(best, scratch, id);
#ifdef GROUPED
        join_parts(o, from_part, to_part, best, min(i, E - 1), &total, &sum);
#else
        for (int from = first; from <= last; from += GW_PAGE_GROUP) {
            const int end = min(from + GW_PAGE_GROUP - 1, last);
            float here = -INFINITY, total_here = 0.0f, sum_here = 0.0f;
            UNROLL_4
            for (int p = from; p <= end; p++) {
                const float top = o[(size_t)p * (E + 2) + E];
                here = top > here ? top : here;
            }
            join_parts(o, from, end, here, min(i, E - 1), &total_here, &sum_here);
            const float weight = gw_exp(here - best);
            total = fma(total_here, weight, total);
            sum = fma(sum_here, weight, sum);
        }
#endif
        sum = sum / total;
        const size_t to = ((size_t)row * heads + h) * E + i;
#ifdef ACT8
        team_encode((__global gw_act8 *)out + to / GW_ACT_BLOCK, mine ? sum : 0.0f, mine,
                    (__local uint *)scratch, id);
#else
        if (mine) {
            ((__global float *)out)[to] = sum;
        }
#endif
    }
}

#ifndef JOIN

/* n values of whole heads, the first one of them value `to` of the result. All items. */
static inline void put_heads(__local const float *values, __global uchar *out, size_t to, int n,
                             __local float *scratch, int id) {
    for (int base = 0; base < n; base += SIZE) {
        const int there = base + id < n;
#ifdef ACT8
        const int i = there ? base + id : n - TEAM + (id & (TEAM - 1));
        team_encode((__global gw_act8 *)out + (to + i) / GW_ACT_BLOCK, there ? values[i] : 0.0f,
                    there, (__local uint *)scratch, id);
#else
        if (there) {
            ((__global float *)out)[to + base + id] = values[base + id];
        }
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

#ifdef STAGED
#define KEYS ks
#define VALUES vs
#define STAGE __local
#else
#define KEYS keys
#define VALUES values
#define STAGE __global
#endif
#ifdef Q8
#define SCALE(page, is_v, b, j)                                                                    \
    vload_half(SCALE_AT(is_v, b, j, E), (STAGE const half *)((page) + GW_PAGE * E))
#define KEY(i, j) (d * (float)KEYS[(i) * GW_PAGE + (j)])
#define VALUE(j, i) (SCALE(VALUES, 1, (i) / 32, j) * (float)VALUES[(j) * E + (i)])
#else
#define KEY(i, j) WIDEN(KEYS[(i) * GW_PAGE + (j)])
#define VALUE(j, i) WIDEN(VALUES[(j) * E + (i)])
#endif

#ifdef ROPE
#define ROPE_PART , ROPE_ARGS
#else
#define ROPE_PART
#endif

#ifdef STAGED
#define PAGE_CELLS (PAGE_BYTES(E) / (int)sizeof(CELL))
#define PAGE_LOCALS(X) X(CELL, ks, PAGE_CELLS) X(CELL, vs, PAGE_CELLS)
/* The page as it lies in the cache. */
#define STAGE_PAGE                                                                                 \
    for (int i = id; i < PAGE_BYTES(E) / 16; i += SIZE) {                                          \
        ((__local uint4 *)ks)[i] = ((__global const uint4 *)keys)[i];                              \
        ((__local uint4 *)vs)[i] = ((__global const uint4 *)values)[i];                            \
    }
#else
#define PAGE_LOCALS(X)
#define STAGE_PAGE
#endif
#define LOCALS(X)                                                                                  \
    PAGE_LOCALS(X) X(float, qs, HEADS *E) X(float, weights, SIZE) X(float, scratch, SIZE)          \
    X(float, joined, 2 * HEADS) X(int, ticket, 1)
LOCALS_TYPE

/* Of value i, the one that turns with it. */
#define PARTNER(i)                                                                                 \
    ((i) >= turns ? (i) : interleaved ? (i) ^ 1 : (i) < half_ ? (i) + half_ : (i) - half_)

#ifdef LAST_JOINS /* one page: nothing to join it with */
#define ALONE (first == last)
#else
#define ALONE 0
#endif

/* Groups: pages in turn, KV heads, rows from row0 on. */
KERNEL(SIZE) attend(STEP, IN(q), OUT(k), OUT(v), IN(pages), OUT(part), OUT(out), OUT(arrived),
            const int row0, const int heads, const int kv_heads, const int page_stride,
            const float scale, const int window ROPE_PART SPLIT_ARGS) {
    LOCALS_HERE
    const int g = GROUP_ID(1), row = row0 + GROUP_ID(2), group = heads / kv_heads;
    const int id = LOCAL_ID, lane = id & (TEAM - 1), squad = id / TEAM;
    if (row >= LIVE) {
        return;
    }
    SPAN;
#ifndef ROPE /* else only the newest position, which is stored here, is not in the cache yet */
    AWAIT;
#endif
#ifdef ROPE /* this lane's angles: they do not wait for the row */
    const int half_ = r / 2;
    float cosine[PER_ITEM], sine[PER_ITEM];
    UNROLL
    for (int n = 0; n < PER_ITEM; n++) {
        const int i = min(lane + TEAM * n, r - 1);
        const int pair = interleaved ? i / 2 : i < half_ ? i : i - half_;
        __global const float *angle = READS(float, table) + (size_t)(pos - STEP_LESS(row)) * r;
        cosine[n] = r > 0 ? angle[pair] : 1.0f;
        sine[n] = r > 0 ? angle[half_ + pair] : 0.0f;
    }
#endif
    for (int p = first + GROUP_ID(0); p <= last; p += GROUP_COUNT(0)) {
        const int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + p];
        __global CELL *keys = (__global CELL *)CACHE(k, page, E);
        __global CELL *values = (__global CELL *)CACHE(v, page, E);
        const int from = max(lo - p * GW_PAGE, 0), end = min(pos - p * GW_PAGE + 1, GW_PAGE);
        STAGE_PAGE
#ifdef ROPE
        AWAIT;
#endif
        for (int h0 = 0; h0 < group; h0 += HEADS) {
#ifdef ROPE /* squads: heads of q, then k and v where their position lies in this page */
            const int brings = p == last && h0 == 0, is_q = squad < HEADS;
            const int mine = is_q ? h0 + squad < group : brings && squad < HEADS + 2;
            const int h = !mine     ? 0
                          : is_q    ? g * group + h0 + squad
                                    : heads + (squad - HEADS) * kv_heads + g;
            __global const float *x =
                READS(float, q) + ((size_t)row * (heads + 2 * kv_heads) + h) * E;
            const int turns = h < heads + kv_heads ? r : 0;
            float value[PER_ITEM], other[PER_ITEM]; /* the two that turn together */
            UNROLL
            for (int n = 0; n < PER_ITEM; n++) {
                const int i = lane + TEAM * n;
                const int j = PARTNER(i);
                value[n] = i < E ? x[i] : 0.0f;
                other[n] = i < E ? x[j] : 0.0f;
            }
#if !EXCHANGES_IN_MEMORY /* elsewhere the sum has a barrier, which is no place to differ in */
            if (normed)
#endif
            {
                const int mine_too = normed & (h < heads ? 1 : h < heads + kv_heads ? 2 : 0);
                __global const float *weight =
                    h < heads ? READS(float, q_norm) : READS(float, k_norm);
                float sum = 0.0f;
                UNROLL
                for (int n = 0; n < PER_ITEM; n++) {
                    sum = fma(value[n], value[n], sum);
                }
                const float by = gw_rms_scale(team_fold(sum, scratch, id), E, eps);
                UNROLL
                for (int n = 0; n < PER_ITEM; n++) {
                    const int i = lane + TEAM * n;
                    const int j = PARTNER(i);
                    value[n] = mine_too && i < E ? (value[n] * by) * weight[i] : value[n];
                    other[n] = mine_too && i < E ? (other[n] * by) * weight[j] : other[n];
                }
            }
            UNROLL
            for (int n = 0; n < PER_ITEM; n++) {
                const int i = lane + TEAM * n, second = interleaved ? i & 1 : i >= half_;
                const float a = second ? other[n] : value[n], b = second ? value[n] : other[n];
                const float turned_ = second ? gw_rope_second(a, b, cosine[n], sine[n])
                                             : gw_rope_first(a, b, cosine[n], sine[n]);
                value[n] = i < turns ? turned_ : value[n];
            }
#ifdef Q8 /* E is a multiple of 32: value[n] of a squad is a block */
            ushort d8[PER_ITEM];
            UNROLL
            for (int n = 0; n < PER_ITEM; n++) {
                const uint bits = as_uint(value[n]) & 0x7fffffffu;
                d8[n] = q8_scale(team_max(bits, (__local uint *)scratch, id));
            }
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
            UNROLL
            for (int n = 0; n < PER_ITEM; n++) {
                const int i = again(lane) + TEAM * n;
                if (i >= E || !again(mine)) {
                    continue;
                }
                if (is_q) {
                    qs[squad * E + i] = value[n];
                    if (p == last) {
                        WRITES(float, turned)[((size_t)row * heads + h) * E + i] = value[n];
                    }
                } else {
                    const int is_v = squad != HEADS, to = CELL_AT(is_v, i, pos % GW_PAGE, E);
#ifdef Q8
                    const CELL cell = q8_code(value[n], d8[n]);
                    if (lane == 0) {
                        const int s = SCALE_AT(is_v, n, pos % GW_PAGE, E);
                        ((__global ushort *)((is_v ? values : keys) + GW_PAGE * E))[s] = d8[n];
#ifdef STAGED
                        ((__local ushort *)((is_v ? vs : ks) + GW_PAGE * E))[s] = d8[n];
#endif
                    }
#else
                    const CELL cell = NARROW(value[n]);
#endif
                    (is_v ? values : keys)[to] = cell;
#ifdef STAGED
                    (is_v ? vs : ks)[to] = cell;
#endif
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#else
            const int n = min(HEADS, group - h0) * E;
            for (int i = id; i < n; i += SIZE) {
                qs[i] = READS(float, q)[((size_t)row * heads + g * group + h0) * E + i];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
            const int count = min(HEADS, group - h0), j = id % GW_PAGE;
            if (id < count * GW_PAGE) {
                float s = -INFINITY;
                if (j >= from && j < end) {
                    s = 0.0f;
#ifdef Q8
                    for (int b = 0; b < E / 32; b++) {
                        const float d = SCALE(KEYS, 0, b, j);
                        UNROLL_16
                        for (int i = 32 * b; i < 32 * b + 32; i++) {
                            s = fma(qs[id / GW_PAGE * E + i], KEY(i, j), s);
                        }
                    }
#else
                    UNROLL_16
                    for (int i = 0; i < E; i++) {
                        s = fma(qs[id / GW_PAGE * E + i], KEY(i, j), s);
                    }
#endif
                    s = s * scale;
                }
                weights[id] = s;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            const int mine_h = min(squad, count - 1), a = mine_h * GW_PAGE + lane, b = a + TEAM;
            const float sa = weights[a], sb = weights[b];
            float top = max(sa > -INFINITY ? sa : -INFINITY, sb > -INFINITY ? sb : -INFINITY);
            top = team_top(top, scratch, id);
            const float wa = lane >= from && lane < end ? gw_exp(sa - top) : 0.0f;
            const float wb = lane + TEAM >= from && lane + TEAM < end ? gw_exp(sb - top) : 0.0f;
            const float l = team_fold(wa + wb, scratch, id);
            barrier(CLK_LOCAL_MEM_FENCE);
            __global float *o = PARTIAL(row - row0, g * group + h0, p);
            if (again(squad) < count) {
                weights[a] = wa;
                weights[b] = wb;
                if (lane == 0) {
                    joined[2 * squad] = top;
                    joined[2 * squad + 1] = l;
                }
                if (lane == 0 && !ALONE) {
                    o[(size_t)squad * PARTS_OF_HEAD * (E + 2) + E] = top;
                    o[(size_t)squad * PARTS_OF_HEAD * (E + 2) + E + 1] = l;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int base = 0; base < count * E; base += SIZE) {
                const int i = base + again(id), there = i < count * E, at = there ? i : 0;
                float sum = 0.0f;
                UNROLL_16
                for (int n = there ? from : end; n < end; n++) {
                    sum = fma(weights[at / E * GW_PAGE + n], VALUE(n, at % E), sum);
                }
                if (ALONE && there) { /* as join_heads */
                    __local const float *its = joined + at / E * 2;
                    const float best = its[0] > -INFINITY ? its[0] : -INFINITY;
                    const float weight = gw_exp(its[0] - best);
                    qs[i] = fma(sum, weight, 0.0f) / fma(its[1], weight, 0.0f);
                } else if (there) {
                    o[(size_t)(i / E) * PARTS_OF_HEAD * (E + 2) + i % E] = sum;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#ifdef LAST_JOINS
            if (ALONE) {
                put_heads(qs, WRITES(uchar, out), ((size_t)row * heads + g * group + h0) * E,
                          count * E, scratch, id);
            }
#endif
        }
    }
#ifdef LAST_JOINS
    const int alone = GROUP_COUNT(0) == 1;
    AWAIT; /* a group without a page */
    if (ALONE) {
        return;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (id == 0 && alone) {
        ticket[0] = 1;
    } else if (id == 0) {
        device_fence(); /* behind the barrier: for all that the group wrote */
        __global int *count = WRITES(int, arrived) + (row - row0) * kv_heads + g;
        ticket[0] = atomic_inc(count) == GROUP_COUNT(0) - 1;
        if (ticket[0]) {
            *count = 0; /* for the next launch */
        }
        device_fence();
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (ticket[0]) {
        join_heads(PARTIAL(row - row0, 0, 0), WRITES(uchar, out), row, g * group, group, heads,
                   page_stride, first, last, scratch, id);
    }
#endif
}

#else

#define LOCALS(X) X(float, scratch, SIZE)
LOCALS_TYPE

/* Groups: KV heads, rows from row0 on. */
KERNEL(SIZE) attend_join(STEP, OUT(part), OUT(out), const int row0, const int heads,
                         const int kv_heads, const int page_stride, const int window) {
    LOCALS_HERE
    const int row = row0 + GROUP_ID(1), group = heads / kv_heads;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    SPAN;
    join_heads(PARTIAL(row - row0, 0, 0), WRITES(uchar, out), row, GROUP_ID(0) * group,
               group, heads, page_stride, first, last, scratch, LOCAL_ID);
}

#endif
