/* kernels_cl/gemm/linear_team.cl - y = x W^T with quantized weights for a prompt's tokens: a tile
 * of 64 x 64 outputs per group, one chain per output. A stage is a span, where there are some.
 */
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
            wraw raw = fetch(PLANES, min(r0 + mine, m - 1), b, blocks);
            wblock o = unpack(&raw);
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
#ifdef SPANS
        int sum[EACH][EACH], minimums[EACH][EACH];
        for (int i = 0; i < EACH * EACH; i++) {
            sum[i / EACH][i % EACH] = minimums[i / EACH][i % EACH] = 0;
        }
#endif
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
#ifdef SPANS
                const int scales = wp[d][r].scales;
                o.s0 = (char)(scales & 255), o.s1 = (char)(scales >> 8 & 255);
                o.m0 = scales >> 16 & 255, o.m1 = scales >> 24 & 255;
                for (int j = 0; j < EACH; j++) {
                    add_block(&o, q0[j], q1[j], xs[d][ty + 16 * j], &sum[i][j], &minimums[i][j]);
                }
#else
                o.ws = wp[d][r].ws;
                o.wm = wp[d][r].wm;
                for (int j = 0; j < EACH; j++) {
                    int t = ty + 16 * j;
                    acc[i][j] = add_term(&o, q0[j], q1[j], xd[d][t], xs[d][t], acc[i][j]);
                }
#endif
            }
        }
#ifdef SPANS
        for (int i = 0; i < EACH * EACH; i++) {
            const int t = ty + 16 * (i % EACH);
            const wparams p = wp[0][tx + 16 * (i / EACH)];
            acc[i / EACH][i % EACH] =
                add_span(p.ws, p.wm, sum[i / EACH][i % EACH], xd[0][t],
                         REST(minimums[i / EACH][i % EACH], xd[1][t]), acc[i / EACH][i % EACH]);
        }
#endif
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
