/* kernels_cl/matrix.cl - what products on matrix instructions are made of, behind MATRIX: NVIDIA's
 * from sm_80 on, as PTX; on other devices the same instructions through local memory, for tests.
 *
 * All items of a group call these together. scratch: MATRIX_WORDS per item of local memory.
 */
#ifdef MATRIX

#ifdef GW_NV
#define MATRIX_WORDS 0
#else
#define MATRIX_WORDS 6
#endif

/* 4, 8 or 16 bytes to local memory, of which `there` bytes are read and the others are 0, without
 * waiting; both aligned. A barrier behind copies_wait shows them to the group. */
static inline void copy_4(__local uchar *to, __global const uchar *from, int there) {
#ifdef GW_NV
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((uint)(ulong)to),
                     "l"((ulong)from), "r"(there)
                     : "memory");
#else
    *(__local uint *)to = there ? *(__global const uint *)from : 0u;
#endif
}
static inline void copy_8(__local uchar *to, __global const uchar *from, int there) {
#ifdef GW_NV
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"((uint)(ulong)to),
                     "l"((ulong)from), "r"(there)
                     : "memory");
#else
    *(__local uint2 *)to = there ? *(__global const uint2 *)from : (uint2)(0u);
#endif
}
static inline void copy_16(__local uchar *to, __global const uchar *from, int there) {
#ifdef GW_NV
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint)(ulong)to),
                     "l"((ulong)from), "r"(there)
                     : "memory");
#else
    *(__local uint4 *)to = there ? *(__global const uint4 *)from : (uint4)(0u);
#endif
}
static inline void copies_wait(void) {
#ifdef GW_NV
    __asm__ volatile("cp.async.wait_all;" ::: "memory");
#endif
}
/* The copies since the last such call are one stage; waits for all stages but the last. */
static inline void copies_end_stage(void) {
#ifdef GW_NV
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
#endif
}
static inline void copies_wait_but_one(void) {
#ifdef GW_NV
    __asm__ volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

/* Four 8 x 8 tiles of 16-bit values from local memory, a row of 16 bytes each: lane i of a team
 * names row i % 8 of tile i / 8 and gets the 4 bytes i % 4 of row i / 4 of each tile. */
static inline void load_matrices(uint *r, __local const uchar *base, uint at, __local uint *scratch,
                                 int id) {
#ifdef GW_NV
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"((uint)(ulong)base + at)
                     : "memory");
#else
    scratch[id] = at;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 4; i++) {
        const uint from = scratch[(id & ~(TEAM - 1)) + 8 * i + id % TEAM / 4];
        r[i] = *(__local const uint *)(base + from + 4 * (id % 4));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

/* Byte of a piece of 16 in rows of `pieces` (2, 4 or 8): the same one of eight neighbouring rows
 * lies in different banks. */
static inline uint piece_at(int row, int piece, int pieces) {
    const int turn = pieces == 8 ? row & 7 : pieces == 4 ? row >> 1 & 3 : row >> 2 & 1;
    return (uint)((row * pieces + (piece ^ turn)) * 16);
}

/* Sums that begin at the bits of this number are floats after one subtraction. */
#define MAGIC 12582912.0f /* 1.5 * 2^23 */
#define MAGIC_BITS 0x4b400000

#ifndef GW_NV
/* d[16, 8] += a[16, k] b[k, 8] of int8 by a team. Lane l has row l / 4 + 8 (i / 2), column
 * l % 4 * 2 + i % 2 of d in register i; four neighbours along k per register of a and b. */
static inline void multiply_plain(int *d, const uint *a, const uint *b, int k,
                                  __local uint *scratch, int id) {
    const int lane = id % TEAM;
    __local uint *own = scratch + id * MATRIX_WORDS, *team = own - lane * MATRIX_WORDS;
    for (int i = 0; i < k / 8; i++) {
        own[i] = a[i];
    }
    for (int i = 0; i < k / 16; i++) {
        own[4 + i] = b[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        int sum = d[i];
        for (int at = 0; at < k; at += 4) {
            const int part = at / 16, quarter = at % 16 / 4;
            char4 u = as_char4(team[(row % 8 * 4 + quarter) * MATRIX_WORDS + row / 8 + 2 * part]);
            char4 v = as_char4(team[(column * 4 + quarter) * MATRIX_WORDS + 4 + part]);
            sum += u.s0 * v.s0 + u.s1 * v.s1 + u.s2 * v.s2 + u.s3 * v.s3;
        }
        d[i] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

/* Sums that begin at `first`. a: rows l / 4 and l / 4 + 8, weights l % 4 * 4 .. + 3; then the same
 * 16 further. b: column l / 4, likewise. */
static inline void multiply_32(int *d, const uint *a, const uint *b, int first,
                               __local uint *scratch, int id) {
#ifdef GW_NV
    __asm__("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%10, %10, %10, %10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(first));
#else
    d[0] = d[1] = d[2] = d[3] = first;
    multiply_plain(d, a, b, 32, scratch, id);
#endif
}

/* The same, added to what d has. */
static inline void multiply_on(int *d, const uint *a, const uint *b, __local uint *scratch,
                               int id) {
#ifdef GW_NV
    __asm__("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%0, %1, %2, %3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    multiply_plain(d, a, b, 32, scratch, id);
#endif
}

/* multiply_32 of 16 weights. */
static inline void multiply_16(int *d, const uint *a, const uint *b, int first,
                               __local uint *scratch, int id) {
#ifdef GW_NV
    __asm__("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%7, %7, %7, %7};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(first));
#else
    d[0] = d[1] = d[2] = d[3] = first;
    multiply_plain(d, a, b, 16, scratch, id);
#endif
}

/* c[16, 8] += a[16, 16] b[16, 8] of 16-bit floats, in the hardware's order: two neighbours along k
 * per register; of a rows l / 4 and l / 4 + 8, values l % 4 * 2 and the next; then those 8 further.
 * b likewise, column l / 4. */
#if defined(FORMAT_F16) || defined(FORMAT_BF16)
#ifdef FORMAT_F16
#define HALF_TYPE "f16"
#define WIDEN_HALF(bits) widen_half(bits)
#else
#define HALF_TYPE "bf16"
#define WIDEN_HALF(bits) as_float((bits) << 16)
#endif
static inline void multiply_halves(float *c, const uint *a, const uint *b, __local uint *scratch,
                                   int id) {
#ifdef GW_NV
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32." HALF_TYPE "." HALF_TYPE
            ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    const int lane = id % TEAM;
    __local uint *own = scratch + id * MATRIX_WORDS, *team = own - lane * MATRIX_WORDS;
    for (int i = 0; i < 4; i++) {
        own[i] = a[i];
    }
    own[4] = b[0], own[5] = b[1];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float sum = c[i];
        for (int at = 0; at < 16; at += 2) {
            const int part = at / 8, pair = at % 8 / 2;
            const uint u = team[(row % 8 * 4 + pair) * MATRIX_WORDS + row / 8 + 2 * part];
            const uint v = team[(column * 4 + pair) * MATRIX_WORDS + 4 + part];
            sum = fma(WIDEN_HALF(u & 0xffffu), WIDEN_HALF(v & 0xffffu), sum);
            sum = fma(WIDEN_HALF(u >> 16), WIDEN_HALF(v >> 16), sum);
        }
        c[i] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}
#endif

/* The end of a tile of a linear_prefill: each item's sums acc [MT][NT][4], as multiply_32 and its
 * like leave them, to y. r0, t0: the tile's first weight row and token; row, token: the team's in
 * it; value(sum, t): what the sum of token t stands for. */
#define FINISH_TILE(value)                                                                         \
    UNROLL                                                                                         \
    for (int i = 0; i < MT * NT * 4; i++) {                                                        \
        const int strip = i / 4 / NT, j = i / 4 % NT, c = i % 4;                                   \
        const int r = r0 + row + strip * 16 + lane / 4 + c / 2 * 8;                                \
        const int t = t0 + token + j * 8 + lane % 4 * 2 + c % 2;                                   \
        if (again(r < m && t < live)) {                                                            \
            finish(WRITES(float, y), READS(float, bias), READS(float, residual), flags,            \
                   (size_t)t * y_stride + r, r, value(acc[strip][j][c], t));                       \
        }                                                                                          \
    }

#endif
