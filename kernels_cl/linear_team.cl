/* kernels_cl/linear_team.cl - y = x W^T with quantized weights, and gate and up of GLU in one.
 *
 * Decode: a team of 32 items per two weight rows; item i takes blocks i, i + 32, ... Activations of
 * all rows of the step wait in local memory, a tile of blocks at a time, words apart so that
 * neighbouring items read neighbouring words. Prefill: a tile of 64 x 64 outputs per group, one
 * chain per output.
 */
#define TILE_BLOCKS 512 /* times one row; fewer blocks when there are more rows */
#define TEAMS (GROUP / TEAM)
#define PAIR 2

#define LINEAR_ARGS                                                                                \
    STEP, WEIGHTS, IN(x), IN(bias), IN(residual), OUT(y), const int m, const int k,                \
        const int y_stride, const int flags

#define TILE                                                                                       \
    __local uint4 q0[TILE_BLOCKS], q1[TILE_BLOCKS];                                                \
    __local float dx[TILE_BLOCKS];                                                                 \
    __local uint sums[TILE_BLOCKS];                                                                \
    __local float scratch[GROUP]

/* Blocks [from, from + each) of n rows, zeros beyond what there is. */
static inline void stage(__global const uchar *x, int live, int blocks, int from, int each,
                         int count, __local uint4 *q0, __local uint4 *q1, __local float *dx,
                         __local uint *sums, int id) {
    for (int i = id; i < count; i += GROUP) {
        int row = i / each, b = from + i % each;
        uint4 a = 0, c = 0;
        float d = 0.0f;
        uint s = 0;
        if (row < live && b < blocks) {
            __global const uint *words = (__global const uint *)x + ((size_t)row * blocks + b) * 10;
            d = as_float(words[0]);
            s = words[1];
            a = (uint4)(words[2], words[3], words[4], words[5]);
            c = (uint4)(words[6], words[7], words[8], words[9]);
        }
        q0[i] = a;
        q1[i] = c;
        dx[i] = d;
        sums[i] = s;
    }
}

/* Sums of PAIR weight rows over all blocks for N activation rows, joined: acc[p][t] in every item.
 * staged: the activations are in local memory already. */
#define PAIR_SUMS(planes_a, row_a, planes_b, row_b)                                                \
    const int each = TILE_BLOCKS / N;                                                              \
    float acc[PAIR][N];                                                                            \
    for (int t = 0; t < N; t++) {                                                                  \
        acc[0][t] = acc[1][t] = 0.0f;                                                              \
    }                                                                                              \
    for (int from = 0; from < blocks; from += each) {                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        stage(x_buf + x_off + (size_t)t0 * blocks * sizeof(gw_act8), live, blocks, from, each,     \
              staged ? 0 : each * N, q0, q1, dx, sums, id);                                        \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        int end = min(each, blocks - from);                                                        \
        UNROLL_4                                                                                   \
        for (int b = lane; b < end; b += TEAM) {                                                   \
            wblock o[PAIR];                                                                        \
            load_block(planes_a, row_a, from + b, blocks, &o[0]);                                  \
            load_block(planes_b, row_b, from + b, blocks, &o[1]);                                  \
            UNROLL                                                                                 \
            for (int t = 0; t < N; t++) {                                                          \
                int at = t * each + b;                                                             \
                uint4 a4 = q0[at], b4 = q1[at];                                                    \
                acc[0][t] = add_term(&o[0], a4, b4, dx[at], sums[at], acc[0][t]);                  \
                acc[1][t] = add_term(&o[1], a4, b4, dx[at], sums[at], acc[1][t]);                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                  \
    UNROLL                                                                                         \
    for (int t = 0; t < N; t++) {                                                                  \
        acc[0][t] = team_fold(acc[0][t], scratch, id);                                             \
        acc[1][t] = team_fold(acc[1][t], scratch, id);                                             \
    }

static inline void finish(__global float *y, __global const float *bias,
                          __global const float *residual, int flags, size_t at, int r, float v) {
    v = flags & 1 ? v + bias[r] : v;
    v = flags & 2 ? v + residual[at] : v;
    y[at] = v;
}

#if defined(DECODE_ROWS)
#define N DECODE_ROWS

/* Groups: 16 weight rows each, tiles of N rows. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void linear_decode(LINEAR_ARGS) {
    TILE;
    const int id = (int)get_local_id(0), lane = id & (TEAM - 1);
    const int t0 = (int)get_group_id(1) * N, live = LIVE - t0, blocks = k / GW_ACT_BLOCK;
    if (live <= 0) {
        return;
    }
    const int r = ((int)get_group_id(0) * TEAMS + id / TEAM) * PAIR;
    const int r0 = min(r, m - 1), r1 = min(r + 1, m - 1);
    const int staged = 0;
    PAIR_SUMS(PLANES, r0, PLANES, r1)
    UNROLL
    for (int t = 0; t < N; t++) {
        if (lane < PAIR && r + lane < m && t < live) {
            finish(WRITES(float, y), READS(float, bias), READS(float, residual), flags,
                   (size_t)(t0 + t) * y_stride + r + lane, r + lane,
                   lane ? acc[1][t] : acc[0][t]);
        }
    }
}

#elif defined(GLU_ROWS)
#define N GLU_ROWS

/* Groups: 32 columns of gate and up each; a team takes one column of both at a time. */
#define UP IN(u), const ulong u_high_at, const ulong u_head_at, const ulong u_sub_at
#define UP_PLANES u_buf + u_off, u_high_at, u_head_at, u_sub_at
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void glu_decode(
    STEP, WEIGHTS, UP, IN(x), OUT(y), const int m, const int k, const int y_stride,
    const int column) {
    TILE;
    __local float columns[N][GW_ACT_BLOCK];
    const int id = (int)get_local_id(0), lane = id & (TEAM - 1), team = id / TEAM;
    const int t0 = (int)get_group_id(1) * N, live = LIVE - t0, blocks = k / GW_ACT_BLOCK;
    if (live <= 0) {
        return;
    }
    const int first = (int)get_group_id(0) * GW_ACT_BLOCK;
    for (int c = team; c < GW_ACT_BLOCK; c += TEAMS) {
        const int r = min(first + c, m - 1);
        const int staged = c != team && blocks <= TILE_BLOCKS / N;
        PAIR_SUMS(PLANES, r, UP_PLANES, r)
        if (lane == 0) {
            for (int t = 0; t < N; t++) {
                columns[t][c] = gw_silu(acc[0][t]) * acc[1][t];
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int base = 0; base < N; base += TEAMS) {
        int t = base + team, there = t < N && t < live;
        float v = there ? columns[t < N ? t : 0][lane] : 0.0f;
#ifdef ACT8
            size_t at = (size_t)(t0 + t) * (y_stride / GW_ACT_BLOCK) +
                        (column + first) / GW_ACT_BLOCK;
            team_encode(WRITES(gw_act8, y) + at, v, there, (__local uint *)scratch, id);
#else
        if (there && first + lane < m) {
            WRITES(float, y)[(size_t)(t0 + t) * y_stride + column + first + lane] = v;
        }
#endif
    }
}

#else

/* ---- prefill --------------------------------------------------------------------------------- */

#define SIDE 64  /* outputs of a tile along each side */
#define DEPTH 4  /* blocks that are staged at a time  */
#define EACH 4   /* outputs of an item along each side: rows r, r + 16, ... */

typedef struct wparams {
    float ws, wm;
    int scales; /* s0 | s1 << 8 | m0 << 16 | m1 << 24 */
} wparams;

/* Groups: weight rows, activation rows. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void linear_prefill(LINEAR_ARGS) {
    __local uint wc[DEPTH][8][SIDE], xq[DEPTH][8][SIDE], xs[DEPTH][SIDE];
    __local wparams wp[DEPTH][SIDE];
    __local float xd[DEPTH][SIDE];
    const int id = (int)get_local_id(0), live = LIVE, blocks = k / GW_ACT_BLOCK;
    const int r0 = (int)get_group_id(0) * SIDE, t0 = (int)get_group_id(1) * SIDE;
    const int tx = id % 16, ty = id / 16, mine = id % SIDE, depth = id / SIDE;
    if (t0 >= live) {
        return;
    }
    float acc[EACH][EACH];
    for (int i = 0; i < EACH; i++) {
        for (int j = 0; j < EACH; j++) {
            acc[i][j] = 0.0f;
        }
    }
    for (int from = 0; from < blocks; from += DEPTH) {
        const int b = from + depth;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (b < blocks) {
            wblock o = {{0, 0, 0, 0, 0, 0, 0, 0}, 0.0f, 0.0f, 0, 0, 0, 0};
            load_block(PLANES, min(r0 + mine, m - 1), b, blocks, &o);
            for (int j = 0; j < 8; j++) {
                wc[depth][j][mine] = o.c[j];
            }
            wp[depth][mine].ws = o.ws;
            wp[depth][mine].wm = o.wm;
            wp[depth][mine].scales =
                (o.s0 & 255) | (o.s1 & 255) << 8 | (o.m0 & 255) << 16 | (o.m1 & 255) << 24;
            __global const uint *x = (__global const uint *)(x_buf + x_off) +
                                     ((size_t)min(t0 + mine, live - 1) * blocks + b) * 10;
            xd[depth][mine] = as_float(x[0]);
            xs[depth][mine] = x[1];
            for (int j = 0; j < 8; j++) {
                xq[depth][j][mine] = x[2 + j];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int d = 0; d < min(DEPTH, blocks - from); d++) {
            uint4 q0[EACH], q1[EACH];
            for (int j = 0; j < EACH; j++) {
                int t = ty + 16 * j;
                q0[j] = (uint4)(xq[d][0][t], xq[d][1][t], xq[d][2][t], xq[d][3][t]);
                q1[j] = (uint4)(xq[d][4][t], xq[d][5][t], xq[d][6][t], xq[d][7][t]);
            }
            for (int i = 0; i < EACH; i++) {
                int r = tx + 16 * i;
                wblock o;
                for (int j = 0; j < 8; j++) {
                    o.c[j] = wc[d][j][r];
                }
                wparams p = wp[d][r];
                o.ws = p.ws;
                o.wm = p.wm;
                o.s0 = (char)(p.scales & 255), o.s1 = (char)(p.scales >> 8 & 255);
                o.m0 = p.scales >> 16 & 255, o.m1 = p.scales >> 24 & 255;
                for (int j = 0; j < EACH; j++) {
                    int t = ty + 16 * j;
                    acc[i][j] = add_term(&o, q0[j], q1[j], xd[d][t], xs[d][t], acc[i][j]);
                }
            }
        }
    }
    for (int i = 0; i < EACH; i++) {
        for (int j = 0; j < EACH; j++) {
            int r = r0 + tx + 16 * i, t = t0 + ty + 16 * j;
            if (r < m && t < live) {
                finish(WRITES(float, y), READS(float, bias), READS(float, residual), flags,
                       (size_t)t * y_stride + r, r, acc[i][j]);
            }
        }
    }
}

#endif
