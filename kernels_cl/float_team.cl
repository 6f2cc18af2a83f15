/* kernels_cl/float_team.cl - y = x W^T, float weights in GW_CL_LAYOUT_LANES: a piece of 512 bytes
 * holds 16 bytes per lane, elements lane, lane + 32, ... of it.
 *
 * Decode: a team per two weight rows, activations staged in local memory. Prefill: tiles of 64 x 64
 * outputs per group, one chain per output. GLU as in linear_team.cl.
 */
#if defined(FORMAT_F32)
#define PER_LANE 4
#else
#define PER_LANE 8
#endif
#define PIECE (TEAM * PER_LANE)
#define TILE_VALUES 4096 /* times one row; fewer when there are more rows */
#define TEAMS (GROUP / TEAM)
#define PAIR 2

static inline void widen(uint4 v, float *w) {
#if defined(FORMAT_F32)
    w[0] = as_float(v.s0), w[1] = as_float(v.s1), w[2] = as_float(v.s2), w[3] = as_float(v.s3);
#else
    uint a[4] = {v.s0, v.s1, v.s2, v.s3};
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if defined(FORMAT_BF16)
        w[2 * i] = as_float(a[i] << 16);
        w[2 * i + 1] = as_float(a[i] & 0xffff0000u);
#elif defined(GW_NV)
        __asm__("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; "
            "cvt.f32.f16 %1, high; }"
            : "=f"(w[2 * i]), "=f"(w[2 * i + 1]) : "r"(a[i]));
#else
        w[2 * i] = gw_f16_to_f32((ushort)(a[i] & 0xffffu));
        w[2 * i + 1] = gw_f16_to_f32((ushort)(a[i] >> 16));
#endif
    }
#endif
}

#define LINEAR_ARGS                                                                                \
    STEP, IN(w), IN(x), IN(bias), IN(residual), OUT(y), const int m, const int k,                  \
        const int y_stride, const int flags

static inline void finish(__global float *y, __global const float *bias,
                          __global const float *residual, int flags, size_t at, int r, float v) {
    v = flags & 1 ? v + bias[r] : v;
    v = flags & 2 ? v + residual[at] : v;
    y[at] = v;
}

#define PIECES(name, row)                                                                          \
    ((__global const uint4 *)(name##_buf + name##_off) + (size_t)(row) * pieces * TEAM)

/* acc[p][t] of two weight rows, joined. Only the last piece of a row can reach beyond k. staged:
 * the activations are in local memory already. */
#define PAIR_SUMS(weights_a, weights_b)                                                            \
    const int each = TILE_VALUES / N;                                                              \
    float acc[PAIR][N];                                                                            \
    for (int t = 0; t < N; t++) {                                                                  \
        acc[0][t] = acc[1][t] = 0.0f;                                                              \
    }                                                                                              \
    for (int from = 0; from < k; from += each) {                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        for (int i = id; i < (staged ? 0 : each * N); i += GROUP) {                                \
            int t = i / each, at = from + i % each;                                                \
            tile[i] = t < live && at < k ? READS(float, x)[(size_t)(t0 + t) * k + at] : 0.0f;      \
        }                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        int end = min(each, k - from);                                                             \
        UNROLL_4                                                                                   \
        for (int p = 0; p < end; p += PIECE) {                                                     \
            float wa[PER_LANE], wb[PER_LANE];                                                      \
            widen((weights_a)[(from + p) / PER_LANE + lane], wa);                                  \
            widen((weights_b)[(from + p) / PER_LANE + lane], wb);                                  \
            UNROLL                                                                                 \
            for (int j = 0; j < PER_LANE; j++) {                                                   \
                int at = p + lane + TEAM * j;                                                      \
                if (p + PIECE <= end || at < end) {                                                \
                    UNROLL                                                                         \
                    for (int t = 0; t < N; t++) {                                                  \
                        float v = tile[t * each + at];                                             \
                        acc[0][t] = fma(wa[j], v, acc[0][t]);                                      \
                        acc[1][t] = fma(wb[j], v, acc[1][t]);                                      \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                  \
    UNROLL                                                                                         \
    for (int t = 0; t < N; t++) {                                                                  \
        acc[0][t] = team_fold(acc[0][t], scratch, id);                                             \
        acc[1][t] = team_fold(acc[1][t], scratch, id);                                             \
    }

#if defined(DECODE_ROWS)
#define N DECODE_ROWS

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void linear_decode(LINEAR_ARGS) {
    __local float tile[TILE_VALUES], scratch[GROUP];
    const int id = (int)get_local_id(0), lane = id & (TEAM - 1);
    const int t0 = (int)get_group_id(1) * N, live = LIVE - t0;
    const int pieces = (k + PIECE - 1) / PIECE;
    if (live <= 0) {
        return;
    }
    const int r = ((int)get_group_id(0) * TEAMS + id / TEAM) * PAIR;
    __global const uint4 *a = PIECES(w, min(r, m - 1)), *b = PIECES(w, min(r + 1, m - 1));
    const int staged = 0;
    PAIR_SUMS(a, b)
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

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void glu_decode(
    STEP, IN(w), IN(u), IN(x), OUT(y), const int m, const int k, const int y_stride,
    const int column) {
    __local float tile[TILE_VALUES], scratch[GROUP], columns[N][GW_ACT_BLOCK];
    const int id = (int)get_local_id(0), lane = id & (TEAM - 1), team = id / TEAM;
    const int t0 = (int)get_group_id(1) * N, live = LIVE - t0;
    const int pieces = (k + PIECE - 1) / PIECE;
    if (live <= 0) {
        return;
    }
    const int first = (int)get_group_id(0) * GW_ACT_BLOCK;
    for (int c = team; c < GW_ACT_BLOCK; c += TEAMS) {
        const int r = min(first + c, m - 1);
        __global const uint4 *a = PIECES(w, r), *b = PIECES(u, r);
        const int staged = c != team && k <= TILE_VALUES / N;
        PAIR_SUMS(a, b)
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

#define SIDE 64
#define DEPTH 32
#define EACH 4

#if defined(FORMAT_F32)
#define STORED float
#define STORED_WIDEN(x) (x)
#elif defined(FORMAT_F16)
#define STORED ushort
#define STORED_WIDEN(x) gw_f16_to_f32(x)
#else
#define STORED ushort
#define STORED_WIDEN(x) gw_bf16_to_f32(x)
#endif

/* Element i of a row in its piece. */
#define PLACE(i) ((i) / PIECE * PIECE + (i) % TEAM * PER_LANE + (i) % PIECE / TEAM)

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void linear_prefill(LINEAR_ARGS) {
    __local float ws[DEPTH][SIDE + 1], xs[DEPTH][SIDE + 1];
    const int id = (int)get_local_id(0), live = LIVE, pieces = (k + PIECE - 1) / PIECE;
    const int r0 = (int)get_group_id(0) * SIDE, t0 = (int)get_group_id(1) * SIDE;
    const int tx = id % 16, ty = id / 16;
    if (t0 >= live) {
        return;
    }
    float acc[EACH][EACH];
    for (int i = 0; i < EACH; i++) {
        for (int j = 0; j < EACH; j++) {
            acc[i][j] = 0.0f;
        }
    }
    for (int from = 0; from < k; from += DEPTH) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = id; i < DEPTH * SIDE; i += GROUP) {
            int d = i % DEPTH, s = i / DEPTH, at = from + d;
            if (at < k) {
                size_t row = (size_t)min(r0 + s, m - 1) * pieces * PIECE;
                ws[d][s] = STORED_WIDEN(READS(STORED, w)[row + PLACE(at)]);
                xs[d][s] = READS(float, x)[(size_t)min(t0 + s, live - 1) * k + at];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int d = 0; d < min(DEPTH, k - from); d++) {
            float a[EACH], b[EACH];
            for (int i = 0; i < EACH; i++) {
                a[i] = ws[d][tx + 16 * i];
                b[i] = xs[d][ty + 16 * i];
            }
            for (int i = 0; i < EACH; i++) {
                for (int j = 0; j < EACH; j++) {
                    acc[i][j] = fma(a[i], b[j], acc[i][j]);
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
