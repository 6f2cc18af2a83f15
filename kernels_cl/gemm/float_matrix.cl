/* kernels_cl/gemm/float_matrix.cl - y = x W^T with F16 or BF16 weights for a prompt's tokens, on
 * 16-bit matrix instructions: a tile of ROWS x TOKENS outputs per group.
 *
 * Activations are rounded to the weights' format (for F16 after scaling a row by a power of two, so
 * that nothing overflows) and products are summed in binary32, in an order of the hardware's own
 * that depends on k alone; so a row is independent of the rows beside it. Weights stay as they lie
 * (lanes.cl); activations follow in the same order of columns.
 */
#define MT 2
#define WM (ROWS / 16 / MT) /* teams along the rows, along the tokens */
#define WN (TEAMS / WM)
#define NT (TOKENS / 8 / WN)
#define PIECES 4            /* of 16 bytes per row and stage */
#define RING 3              /* stages in local memory        */
#define STAGE_ROW (PIECES * 16)
#define AT_X (ROWS * STAGE_ROW)
#define STAGE (AT_X + TOKENS * STAGE_ROW)
#define SHARES(n) (((n) * PIECES + GROUP - 1) / GROUP)

/* Where the narrowed rows begin, behind their scales. */
#define NARROWED(rows) (((size_t)(rows) * 4 + 255) / 256 * 256)
#define ROW_PIECES(k) (((k) + PIECE - 1) / PIECE * TEAM)

/* Stage `at` of the rows of a tile; what is beyond the last repeats it. */
static inline void copy_rows(__local uchar *to, __global const uchar *from, int rows, int there,
                             int pieces, int at, int id) {
    UNROLL
    for (int i = 0; i < SHARES(rows); i++) {
        const int n = id + i * GROUP, row = n / PIECES, piece = n % PIECES;
        if (rows * PIECES % GROUP == 0 || n < rows * PIECES) {
            copy_16(to + piece_at(row, piece, PIECES),
                    from + ((size_t)min(row, there - 1) * pieces + at * PIECES + piece) * 16, 16);
        }
    }
}

/* row, token: the team's first in the tile. */
static inline void add_stage(float (*acc)[NT][4], __local const uchar *stage, int row, int token,
                             __local uint *scratch, int id) {
    const int lane = id % TEAM;
    const int its = token + lane / 16 * 8 + lane % 8, upper = lane / 8 % 2;
    UNROLL
    for (int p = 0; p < PIECES; p += 2) {
        uint a[MT][4];
        UNROLL
        for (int i = 0; i < MT; i++) {
            load_matrices(a[i], stage,
                          piece_at(row + 16 * i + lane % 16, p + lane / 16, PIECES), scratch, id);
        }
        UNROLL
        for (int j = 0; j < NT; j += 2) {
            uint b[4];
            load_matrices(b, stage, AT_X + piece_at(its + 8 * j, p + upper, PIECES), scratch, id);
            UNROLL
            for (int i = 0; i < MT; i++) {
                multiply_halves(acc[i][j], a[i], b, scratch, id);
                multiply_halves(acc[i][j + 1], a[i], b + 2, scratch, id);
            }
        }
    }
}

/* Groups: tiles of tokens, tiles of weight rows. x: what `narrow` made. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void linear_prefill(LINEAR_ARGS) {
    __local uchar memory[RING * STAGE + MATRIX_WORDS * 4 * GROUP] __attribute__((aligned(128)));
    __local uint *scratch = (__local uint *)(memory + RING * STAGE);
    const int id = (int)get_local_id(0), lane = id % TEAM, team = id / TEAM, live = LIVE;
    const int r0 = (int)get_group_id(1) * ROWS, t0 = (int)get_group_id(0) * TOKENS;
    const int rows = min(m - r0, ROWS), tokens = min(live - t0, TOKENS);
    const int row = team / WN * (MT * 16), token = team % WN * (NT * 8);
    const int pieces = ROW_PIECES(k), stages = pieces / PIECES;
    if (t0 >= live) {
        return;
    }
    __global const uchar *w = w_buf + w_off + (size_t)r0 * pieces * 16;
    __global const uchar *x = x_buf + x_off + NARROWED(plan_rows) + (size_t)t0 * pieces * 16;
    float acc[MT][NT][4];
    UNROLL
    for (int i = 0; i < MT * NT * 4; i++) {
        acc[i / 4 / NT][i / 4 % NT][i % 4] = 0.0f;
    }
    for (int s = 0; s < RING - 1; s++) { /* a row has eight stages at least */
        copy_rows(memory + s * STAGE, w, ROWS, rows, pieces, s, id);
        copy_rows(memory + s * STAGE + AT_X, x, TOKENS, tokens, pieces, s, id);
        copies_end_stage();
    }
    for (int s = 0, turn = 0; s < stages; s++, turn = turn + 1 == RING ? 0 : turn + 1) {
        __local uchar *next = memory + (turn == 0 ? RING - 1 : turn - 1) * STAGE;
        copies_wait_but_one();
        barrier(CLK_LOCAL_MEM_FENCE);
        if (s + RING - 1 < stages) {
            copy_rows(next, w, ROWS, rows, pieces, s + RING - 1, id);
            copy_rows(next + AT_X, x, TOKENS, tokens, pieces, s + RING - 1, id);
        }
        copies_end_stage();
        add_stage(acc, memory + turn * STAGE, row, token, scratch, id);
    }
#define SCALED(sum, t) ((sum) * READS(float, x)[t])
    FINISH_TILE(SCALED)
}

/* The value in the weights' format. */
static inline ushort narrowed(float v) {
#ifdef FORMAT_F16
    return gw_f32_to_f16(v);
#else
    const uint u = as_uint(v);
    return (ushort)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u
                                                    : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
#endif
}

/* f32 [rows, k] to scales [plan_rows] and, behind them, 16-bit rows in whole pieces. A group per
 * row. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void narrow(STEP, IN(x), OUT(y),
                                                                        const int k) {
    __local uint largest[GROUP];
    const int id = (int)get_local_id(0), row = (int)get_group_id(0), pieces = ROW_PIECES(k);
    __global const float *values = READS(float, x) + (size_t)row * k;
    __global ushort *to =
        (__global ushort *)(y_buf + y_off + NARROWED(plan_rows)) + (size_t)row * pieces * 8;
    uint top = 0;
    if (row >= LIVE) {
        return;
    }
    for (int i = id; i < k; i += GROUP) {
        top = max(top, as_uint(values[i]) & 0x7fffffffu);
    }
    largest[id] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < GROUP; i++) {
        top = max(top, largest[i]);
    }
#ifdef FORMAT_F16 /* the largest value gets the exponent 13 */
    int shift = (int)(top >> 23) - (127 + 13);
    shift = top >= 0x7f800000u ? 0 : max(min(shift, 100), -100);
#else
    const int shift = 0;
#endif
    const float down = as_float((uint)(127 - shift) << 23);
    if (id == 0) {
        WRITES(float, y)[row] = as_float((uint)(127 + shift) << 23);
    }
    for (int i = id; i < pieces * 8; i += GROUP) {
        const int column = i / PIECE * PIECE + i % PIECE / PER_LANE + i % PER_LANE * TEAM;
        to[i] = narrowed(column < k ? values[column] * down : 0.0f);
    }
}
