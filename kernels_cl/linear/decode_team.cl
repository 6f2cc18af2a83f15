/* kernels_cl/linear/decode_team.cl - LINEAR and GLU of generated tokens on teams, for every weight
 * format (units: planes.cl, lanes.cl).
 *
 * A team of 32 items takes two weight rows; item i their units i, i + 32, ..., and loads AHEAD of
 * them before it uses the first. The activations of N rows wait in local memory, TILE / N units of
 * each row at a time. Groups take row blocks in turn, as many as the device runs at once, so that
 * what they prepare serves several. NORM_WIDTH: the norm that makes the activations is computed
 * here, by every group for itself, while the first weights are on their way; group 0 also stores
 * it.
 */
#define PAIR 2
#define STEPS (EACH / TEAM) /* units of an item in a full tile */
#define AHEAD (STEPS < MOST_AHEAD ? STEPS : MOST_AHEAD)
/* The first weights are asked for in two parts, so that x waits behind the first one only. */
#define SOON 1

#define NORM_ARGS IN(norm), OUT(normed), const float eps

#ifdef NORM_WIDTH
#define NORM_QUARTERS QUARTERS(NORM_WIDTH)
#define NORM_BLOCKS (NORM_QUARTERS / 4)
#define NORM_LOADS ((NORM_QUARTERS + GROUP - 1) / GROUP)
#define NORM_VECTOR(row, at) ((row)[min(at, NORM_WIDTH / 4 - 1)])
#define NORM_LOCALS(X) X(float, squares, NORM_BLOCKS)

/* Has the team of item i one of the first n? Where exchanges have barriers, all go along. */
#if EXCHANGES_IN_MEMORY
#define TEAM_HAS(i, n) 1
#else
#define TEAM_HAS(i, n) (((i) & -TEAM) < (n))
#endif

/* One row [NORM_WIDTH], of which each item has quarters, -> tile: the factor is known last, and
 * codes do not wait for it. low, high: the weights of this item's first quarter. */
static inline void norm_to_tile(const float4 *x, float4 low, float4 high,
                                __global const float4 *weight, float eps, __global uchar *out,
                                TILE_ARGS, __local float *squares, __local float *scratch,
                                int id) {
    UNROLL
    for (int j = 0; j < NORM_LOADS; j++) {
        const int i = id + j * GROUP, after = i + GROUP;
        if (TEAM_HAS(i, NORM_QUARTERS)) {
            const float4 a = QUARTER_LOW(i) < NORM_WIDTH / 4 ? x[2 * j] : 0.0f;
            const float4 b = QUARTER_HIGH(i) < NORM_WIDTH / 4 ? x[2 * j + 1] : 0.0f;
            const float sum = quad_squares(a, b, (__local uint *)scratch, id);
            put_normed(a * low, b * high, i, out, TILE_PASS, (__local uint *)scratch, id);
            if ((again(i) & 3) == 0 && i < NORM_QUARTERS) {
                squares[i >> 2] = sum;
            }
        }
        if (j + 1 < NORM_LOADS) {
            low = NORM_VECTOR(weight, QUARTER_LOW(after));
            high = NORM_VECTOR(weight, QUARTER_HIGH(after));
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (TEAM_HAS(id, NORM_SCALED)) {
        float sum = 0.0f;
        UNROLL
        for (int first = 0; first < NORM_BLOCKS; first += TEAM) {
            const int b = first + (id & (TEAM - 1));
            sum = sum + (b < NORM_BLOCKS ? squares[b] : 0.0f);
        }
        sum = team_fold(sum, scratch, id);
        scale_normed(gw_rms_scale(sum, NORM_WIDTH, eps), out, TILE_PASS, id);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#define TAKE_WEIGHTS                                                                               \
    const float4 norm_low = NORM_VECTOR(READS(float4, norm), QUARTER_LOW(id));                     \
    const float4 norm_high = NORM_VECTOR(READS(float4, norm), QUARTER_HIGH(id));
#define TAKE_X                                                                                     \
    float4 part[2 * NORM_LOADS];                                                                   \
    UNROLL                                                                                         \
    for (int j = 0; j < NORM_LOADS; j++) {                                                         \
        part[2 * j] = NORM_VECTOR(READS(float4, x), QUARTER_LOW(id + j * GROUP));                  \
        part[2 * j + 1] = NORM_VECTOR(READS(float4, x), QUARTER_HIGH(id + j * GROUP));             \
    }
#define PREPARE                                                                                    \
    norm_to_tile(part, norm_low, norm_high, READS(float4, norm), eps,                             \
                 GROUP_ID(0) == 0 ? WRITES(uchar, normed) : 0, TILE_PASS, squares, scratch, id);   \
    SETTLE(units)                                                                                  \
    int staged = 1;
#else
#define NORM_LOCALS(X)
#if N == 1
#define TAKE_WEIGHTS
#define TAKE_X                                                                                     \
    share part;                                                                                    \
    take(&part, x_buf + x_off, k, id);
#define PREPARE                                                                                    \
    int staged = units <= EACH;                                                                    \
    if (staged) {                                                                                  \
        put(&part, TILE_PASS, id);                                                                 \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        SETTLE(units)                                                                              \
    }
#else
#define TAKE_WEIGHTS
#define TAKE_X
#define PREPARE int staged = 0;
#endif
#endif

#ifdef GLU
#define GLU_LOCALS(X) X(float, columns, N * GW_ACT_BLOCK)
#else
#define GLU_LOCALS(X)
#endif
#define LOCALS(X)                                                                                  \
    TILE_LOCALS(X) X(float, scratch, GROUP) NORM_LOCALS(X) GLU_LOCALS(X)
LOCALS_TYPE

#ifdef WHOLE /* chunks of a row in the tile */
#define WITHIN(unit) (unit)
#define USED(unit) 1
#else
#define WITHIN(unit) min(unit, units - 1)
#define USED(unit) ((unit) < end)
#endif

/* Units [first, end) of an item, of two weight rows, are on their way into `ahead`; behind the end
 * of a row the last one, so that no register keeps an older value. */
#define FETCH_FIRST(first, end, planes_a, row_a, planes_b, row_b)                                  \
    UNROLL                                                                                         \
    for (int u = first; u < end; u++) {                                                            \
        const int unit = WITHIN(lane + TEAM * u);                                                  \
        ahead[0][u] = fetch(planes_a, row_a, unit, units);                                         \
        ahead[1][u] = fetch(planes_b, row_b, unit, units);                                         \
    }

/* acc[p][t]: this lane's part of the sums over all units, for N activation rows. A unit that was
 * used makes room for one further on, in the last chunk for the `more` that comes after these rows:
 * `source` declares what planes and rows are made of, from in_row. `staged`: the activations are in
 * local memory already, and so they are afterwards where a tile holds a row. */
#define CHUNK (TEAM * AHEAD)
#define SUMS(source, planes_a, row_a, planes_b, row_b)                                             \
    UNROLL                                                                                         \
    for (int t = 0; t < N; t++) {                                                                  \
        acc[0][t] = acc[1][t] = 0.0f;                                                              \
    }                                                                                              \
    for (int from = 0; from < units; from += EACH) {                                               \
        if (!staged) {                                                                             \
            barrier(CLK_LOCAL_MEM_FENCE);                                                          \
            stage(x_buf + x_off, t0, live, k, from, TILE_PASS, id);                                \
            barrier(CLK_LOCAL_MEM_FENCE);                                                          \
            SETTLE(units - from)                                                                   \
        }                                                                                          \
        const int end = min(EACH, units - from);                                                   \
        for (int base = 0; base < end; base += CHUNK) {                                            \
            const int in_row = from + base + CHUNK < units;                                        \
            const int next = (in_row ? from + base + CHUNK : 0) + lane;                            \
            source;                                                                                \
            UNROLL                                                                                 \
            for (int u = 0; u < AHEAD; u++) {                                                      \
                const int b = base + lane + TEAM * u;                                              \
                ADD_PAIR(u, b)                                                                     \
                if (in_row || more) {                                                              \
                    const int unit = WITHIN(next + TEAM * u);                                      \
                    ahead[0][u] = fetch(planes_a, row_a, unit, units);                             \
                    ahead[1][u] = fetch(planes_b, row_b, unit, units);                             \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    staged = staged || units <= EACH;

#ifdef SPANS /* the tile with one scale for each span; neighbours add up theirs together */
#define SETTLE(left)                                                                               \
    settle(min(EACH, left), TILE_PASS, id);                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);
#define ADD_PAIR(u, b)                                                                             \
    add_pair(&ahead[0][u], &ahead[1][u], TILE_PASS, b, end, acc, (__local int *)scratch, id);
#define JOIN_PAIRS join_spans(acc[0], (__local int *)scratch, id);
#else
#define SETTLE(left)
#define ADD_PAIR(u, b)                                                                             \
    if (USED(b)) {                                                                                 \
        add_pair(&ahead[0][u], &ahead[1][u], TILE_PASS, b, k - from * PER_UNIT, acc);              \
    }
/* In lane 0 acc[0] is the sum of the first row, in lane 1 that of the second. */
#define JOIN_PAIRS                                                                                 \
    UNROLL                                                                                         \
    for (int t = 0; t < N; t++) {                                                                  \
        acc[0][t] = pair_join(acc[0][t], acc[1][t], scratch, id);                                  \
    }
#endif

#ifndef GLU

#define ROWS (PAIR * TEAMS)
#define ROW_OF_ITEM (id / TEAM * PAIR)
#define PLANES_OF(o) (o).w, (o).high, (o).head, (o).sub
#define FIRST_ROW(o) min((o).r, (o).m - 1)
#define SECOND_ROW(o) min((o).r + 1, (o).m - 1)

/* Groups: blocks of ROWS rows of one part, in turn; tiles of N activation rows. */
KERNEL(GROUP) linear_decode(
    STEP, PART(0), PART(1), PART(2), IN(x), NORM_ARGS, IN(residual), OUT(y), const int k,
    const int y_stride, const int biased, const int has_residual) {
    LOCALS_HERE
    const int id = LOCAL_ID, lane = id & (TEAM - 1), units = UNITS(k);
    const int t0 = GROUP_ID(1) * N, live = LIVE - t0;
    const int blocks = BLOCKS(0) + BLOCKS(1) + BLOCKS(2), stride = GROUP_COUNT(0);
    float acc[PAIR][N];
    wraw ahead[PAIR][AHEAD];
    block o = BLOCK(GROUP_ID(0));
    TAKE_WEIGHTS
    FETCH_FIRST(0, SOON, PLANES_OF(o), FIRST_ROW(o), PLANES_OF(o), SECOND_ROW(o))
    AWAIT;
    TAKE_X
    FETCH_FIRST(SOON, AHEAD, PLANES_OF(o), FIRST_ROW(o), PLANES_OF(o), SECOND_ROW(o))
    if (live <= 0) {
        return;
    }
    PREPARE
    for (int i = GROUP_ID(0); i < blocks; i += stride) {
        const int more = i + stride < blocks;
        const block done = o, after = BLOCK(more ? i + stride : i);
        const int r = done.r + lane % PAIR;
#if N == 1
        const size_t own = (size_t)t0 * y_stride + done.first + min(r, done.m - 1);
        const int adds = has_residual && lane < PAIR;
        const float rest = adds ? READS(float, residual)[own] : 0.0f;
#endif
        SUMS(const block s = in_row ? done : after, PLANES_OF(s), FIRST_ROW(s), PLANES_OF(s),
             SECOND_ROW(s))
        o = after;
        JOIN_PAIRS
        UNROLL
        for (int t = 0; t < N; t++) {
            if (lane < PAIR && r < done.m && t < live) {
                const size_t at = (size_t)(t0 + t) * y_stride + done.first + r;
                float v = acc[0][t];
                v = biased ? v + ((__global const float *)done.bias)[r] : v;
#if N == 1
                v = has_residual ? v + rest : v;
#else
                v = has_residual ? v + READS(float, residual)[at] : v;
#endif
                WRITES(float, y)[at] = v;
            }
        }
    }
}

#else

/* Groups: 32 columns of gate and up, in turn, tiles of N rows; a team takes one column of both at a
 * time. column: the first one of this allocation. */
#define UP IN(u), const ulong u_high_at, const ulong u_head_at, const ulong u_sub_at
#define UP_PLANES u_buf + u_off, u_high_at, u_head_at, u_sub_at
KERNEL(GROUP) glu_decode(
    STEP, WEIGHTS, UP, IN(x), NORM_ARGS, OUT(y), const int m, const int k, const int y_stride,
    const int column) {
    LOCALS_HERE
    const int id = LOCAL_ID, lane = id & (TEAM - 1), team = id / TEAM;
    const int t0 = GROUP_ID(1) * N, live = LIVE - t0, units = UNITS(k);
    const int stride = GROUP_COUNT(0) * GW_ACT_BLOCK;
    float acc[PAIR][N];
    wraw ahead[PAIR][AHEAD];
    int r = min(GROUP_ID(0) * GW_ACT_BLOCK + team, m - 1);
    TAKE_WEIGHTS
    FETCH_FIRST(0, SOON, PLANES, r, UP_PLANES, r)
    AWAIT;
    TAKE_X
    FETCH_FIRST(SOON, AHEAD, PLANES, r, UP_PLANES, r)
    if (live <= 0) {
        return;
    }
    PREPARE
    for (int first = GROUP_ID(0) * GW_ACT_BLOCK; first < m; first += stride) {
        for (int turn = 0; turn < GW_ACT_BLOCK / TEAMS; turn++) {
            const int c = turn * TEAMS + team;
            const int more = c + TEAMS < GW_ACT_BLOCK || first + stride < m;
            const int after =
                min(c + TEAMS < GW_ACT_BLOCK ? first + c + TEAMS : first + stride + team, m - 1);
            SUMS(const int s = in_row ? r : after, PLANES, s, UP_PLANES, s)
            r = after;
            JOIN_PAIRS
            UNROLL
            for (int t = 0; t < N; t++) {
                acc[1][t] = pair_swap(acc[0][t], scratch, id);
            }
            if (lane == 0) {
                for (int t = 0; t < N; t++) {
                    columns[t * GW_ACT_BLOCK + c] = gw_silu(acc[0][t]) * acc[1][t];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int base = 0; base < N; base += TEAMS) {
            int t = base + team, there = t < N && t < live;
            float v = there ? columns[(t < N ? t : 0) * GW_ACT_BLOCK + lane] : 0.0f;
#ifdef ACT8
            size_t at =
                (size_t)(t0 + t) * (y_stride / GW_ACT_BLOCK) + (column + first) / GW_ACT_BLOCK;
            team_encode(WRITES(gw_act8, y) + at, v, there, (__local uint *)scratch, id);
#else
            if (there && first + lane < m) {
                WRITES(float, y)[(size_t)(t0 + t) * y_stride + column + first + lane] = v;
            }
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#endif
