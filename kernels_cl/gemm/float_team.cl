/* kernels_cl/gemm/float_team.cl - y = x W^T with float weights (lanes.cl) for a prompt's tokens:
 * tiles of 64 x 64 outputs per group, one chain per output.
 */
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

/* Element i of a row, in its piece. */
#if defined(FORMAT_E4M3) || defined(FORMAT_NVFP4)
#define ELEMENT(row, i) element_at(w_buf + w_off, row, i, k)
#else
#define PLACE(i) ((i) / PIECE * PIECE + (i) % TEAM * PER_LANE + (i) % PIECE / TEAM)
#define ELEMENT(row, i) STORED_WIDEN(READS(STORED, w)[(row) * pieces * PIECE + PLACE(i)])
#endif

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
                ws[d][s] = ELEMENT((size_t)min(r0 + s, m - 1), at);
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
