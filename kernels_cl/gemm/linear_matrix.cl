/* kernels_cl/gemm/linear_matrix.cl - y = x W^T with quantized weights for a prompt's tokens, on
 * int8 matrix instructions: a tile of ROWS x TOKENS outputs per group, two strips of 16 rows and NT
 * tiles of 8 tokens per team.
 *
 * DEPTH blocks of 32 are in one of two stages in local memory while the other is filled: codes as
 * they lie in the planes, and the numbers of rows and tokens that the term needs, as floats. A team
 * makes int8 operands itself. The sum of a block's products is an exact integer; then comes the
 * chain of docs/arithmetic.md, in registers. A stage is a span, where there are some, and one such
 * sum.
 */
#ifdef SPANS /* terms of a stage */
#define DEPTH GW_ACT_SPAN
#define TERMS 1
#else /* what two stages leave room for */
#define DEPTH (LOW_BITS == 8 || HIGH_BITS == 2 ? 2 : 4)
#define TERMS DEPTH
#endif
#define TERM_BLOCKS (DEPTH / TERMS)
#define MT 2
#define WM (ROWS / 16 / MT) /* teams along the rows, along the tokens */
#define WN (TEAMS / WM)
#define NT (TOKENS / 8 / WN)

/* Codes without their offset at the top of a byte, so that one bit flips, in the planes already:
 * this far up. */
#if LEVELS || OFFSET == 0 || OFFSET == 128
#define UP 0
#elif OFFSET == 8
#define UP 4
#elif OFFSET == 16
#define UP 3
#elif OFFSET == 32
#define UP 2
#elif OFFSET == 4
#define UP 5
#endif
#define FLIPS (OFFSET && !LEVELS)
#define LOW_FLIP                                                                                   \
    (!FLIPS || HIGH_BITS ? 0u : LOW_BITS == 8 ? 0x80808080u : LOW_BITS == 4 ? 0x88888888u : 0u)
#define HIGH_FLIP (!FLIPS ? 0u : HIGH_BITS == 1 ? 0xffffffffu : 0xaaaaaaaau)

/* Numbers per term of a row and of a token.
 *   signed             ws          dx
 *   affine             ws, wm      dx, dx * (sum[0] + sum[1]), or of all of a span
 *   integer scales     d           dx
 *   minimums too       d, -dmin    dx
 * Of formats with integer scales, a stage also has those, each block's together, as integers, and
 * the minimums of a row and the sums of a token that these are multiplied with, as floats. */
#ifdef SCALED
#define ROW_N (MINIMUMS ? 2 : 1)
#define TOKEN_N 1
#define PER_BLOCK (HALVES ? 2 : 1)
#else
#define AFFINE (KIND == KIND_AFFINE || KIND == KIND_SPAN)
#define ROW_N (AFFINE ? 2 : 1)
#define TOKEN_N (AFFINE ? 2 : 1)
#define PER_BLOCK 0
#endif
#define OF_MINIMUMS (MINIMUMS * DEPTH * PER_BLOCK)

/* A stage, in bytes. */
#define X_ROW (DEPTH * 32) /* codes of a token */
#define LOW_ROW (DEPTH * LOW_BITS * 4)
#define HIGH_ROW (DEPTH * HIGH_BITS * 4)
#define AT_LOW (TOKENS * X_ROW)
#define AT_HIGH (AT_LOW + ROWS * LOW_ROW)
#define AT_ROW_N (AT_HIGH + ROWS * HIGH_ROW)
#define AT_TOKEN_N (AT_ROW_N + ROWS * TERMS * ROW_N * 4)
#define AT_SCALES (AT_TOKEN_N + TOKENS * TERMS * TOKEN_N * 4)
#define AT_MINIMUMS (AT_SCALES + ROWS * DEPTH * PER_BLOCK * 4)
#define AT_SUMS (AT_MINIMUMS + ROWS * OF_MINIMUMS * 4)
#define STAGE (AT_SUMS + TOKENS * OF_MINIMUMS * 4)

/* Bytes before a stage's first block in a row of low codes; of 8-bit ones a stage is a part of those
 * that lie together. */
#define LOW_AT(block)                                                                              \
    (LOW_BITS < 8 ? (block) * LOW_BITS * 4                                                         \
                  : (block) / TOGETHER * TOGETHER * 32 + (block) % TOGETHER * 16)

/* Shares of an item: copies of 16 (low), 4 or 8 (high) and 8 bytes (tokens), and numbers. */
#define SHARES(n) (((n) + GROUP - 1) / GROUP)
#define LOWS (ROWS * LOW_ROW / 16)
#define HIGHS (HIGH_BITS ? ROWS * DEPTH : 0)
#define XS (TOKENS * DEPTH * 4)

/* ---- a stage --------------------------------------------------------------------------------- */

/* What an item copies: bytes from the tile's first row and token. */
typedef struct shares {
    uint low[SHARES(LOWS)], x[SHARES(XS)];
#if HIGH_BITS
    uint high[SHARES(HIGHS)];
#endif
} shares;

/* rows, tokens: of the tile that there are; what is beyond repeats the last. */
static inline void find_shares(shares *s, int rows, int tokens, int blocks, int id) {
    UNROLL
    for (int i = 0; i < SHARES(LOWS); i++) {
        const int at = id + i * GROUP, row = at / (LOW_ROW / 16), piece = at % (LOW_ROW / 16);
        const int from = LOW_BITS < 8 ? piece : piece / DEPTH * TOGETHER + piece % DEPTH;
        s->low[i] = (uint)(min(row, rows - 1) * low_row(blocks) + from * 16);
    }
#if HIGH_BITS
    UNROLL
    for (int i = 0; i < SHARES(HIGHS); i++) {
        const int at = id + i * GROUP, row = at / DEPTH;
        s->high[i] = (uint)((min(row, rows - 1) * blocks + at % DEPTH) * HIGH_BITS * 4);
    }
#endif
    UNROLL
    for (int i = 0; i < SHARES(XS); i++) {
        const int at = id + i * GROUP, token = at / (4 * DEPTH), piece = at % (4 * DEPTH);
        s->x[i] = (uint)((min(token, tokens - 1) * blocks + piece / 4) * 40 + 8 + piece % 4 * 8);
    }
}

/* Codes of blocks from, from + 1, ...; those of tokens are 0 beyond the last. */
static inline void copy_codes(const shares *s, __local uchar *stage, __global const uchar *low,
                              __global const uchar *high, __global const uchar *x, int from,
                              int blocks, int id) {
    const int left = blocks - from;
    UNROLL
    for (int i = 0; i < SHARES(LOWS); i++) {
        const int at = id + i * GROUP, row = at / (LOW_ROW / 16), piece = at % (LOW_ROW / 16);
        if (LOWS % GROUP == 0 || at < LOWS) {
            const int block = LOW_BITS < 8 ? piece * 4 / LOW_BITS : piece % DEPTH;
            const int there = block < left ? 16 : 0;
            __local uchar *to = stage + AT_LOW;
            to += LOW_BITS == 2 ? row * LOW_ROW + piece * 16
                                : (int)piece_at(row, piece, LOW_ROW / 16);
            copy_16(to, low + LOW_AT(from) + (there ? s->low[i] : 0u), there);
        }
    }
#if HIGH_BITS
    UNROLL
    for (int i = 0; i < SHARES(HIGHS); i++) {
        const int at = id + i * GROUP, there = at % DEPTH < left ? HIGH_BITS * 4 : 0;
        if (HIGHS % GROUP == 0 || at < HIGHS) {
            __local uchar *to = stage + AT_HIGH + at * HIGH_BITS * 4;
            __global const uchar *o = high + from * HIGH_BITS * 4 + (there ? s->high[i] : 0u);
            HIGH_BITS == 1 ? copy_4(to, o, there) : copy_8(to, o, there);
        }
    }
#endif
    UNROLL
    for (int i = 0; i < SHARES(XS); i++) {
        const int at = id + i * GROUP, token = at / (4 * DEPTH), piece = at % (4 * DEPTH);
        if (XS % GROUP == 0 || at < XS) {
            const int there = piece / 4 < left ? 8 : 0;
            copy_8(stage + piece_at(token, piece / 2, X_ROW / 16) + piece % 2 * 8,
                   x + from * 40 + (there ? s->x[i] : 8u), there);
        }
    }
}

/* Scales on their way. */
typedef struct scales {
    uint head[SHARES(ROWS * TERMS)];
    uint2 token[SHARES(TOKENS * TERMS)]; /* scale; sums, or of a span the second block's scale */
#ifdef SCALED
    uint2 sub[SHARES(ROWS)]; /* of four blocks */
#endif
#if MINIMUMS
    uint4 sums[SHARES(TOKENS)]; /* likewise */
#endif
} scales;

static inline void fetch_scales(scales *s, PLANE_ARGS, int row0, int rows, __global const uchar *x,
                                int tokens, int from, int blocks, int id) {
    UNROLL
    for (int i = 0; i < SHARES(ROWS * TERMS); i++) {
        const int at = id + i * GROUP, b = from + at % TERMS * TERM_BLOCKS;
        s->head[i] = 0;
#ifdef SCALED
        s->sub[i] = (uint2)(0u);
#endif
        if (b < blocks && at < ROWS * TERMS) {
            const int row = row0 + min(at / TERMS, rows - 1);
#if HEAD_BLOCKS == 0
            s->head[i] = ((__global const uint *)(w + head_at))[row];
#else
            size_t head =
                (size_t)row * ((blocks + HEAD_BLOCKS - 1) / HEAD_BLOCKS) + b / HEAD_BLOCKS;
#if HEAD_BYTES == 1
            s->head[i] = w[head_at + head];
#elif HEAD_BYTES == 2
            s->head[i] = ((__global const ushort *)(w + head_at))[head];
#else
            s->head[i] = ((__global const uint *)(w + head_at))[head];
#endif
#endif
#ifdef SCALED
            s->sub[i] = *(__global const uint2 *)(w + sub_at + ((size_t)row * blocks + b) * 2);
#endif
        }
    }
    UNROLL
    for (int i = 0; i < SHARES(TOKENS * TERMS); i++) {
        const int at = id + i * GROUP, b = from + at % TERMS * TERM_BLOCKS;
        s->token[i] = (uint2)(0u);
#if MINIMUMS
        s->sums[i] = (uint4)(0u);
#endif
        if (b < blocks && at < TOKENS * TERMS) {
            const int token = min(at / TERMS, tokens - 1);
            __global const uint *from =
                (__global const uint *)(x + ((size_t)token * blocks + b) * 40);
#ifdef SPANS
            s->token[i] = (uint2)(from[0], from[10]);
#else
            s->token[i] = *(__global const uint2 *)from;
#endif
#if MINIMUMS
            s->sums[i] = (uint4)(from[1], from[11], from[21], from[31]);
#endif
        }
    }
}

static inline void row_numbers(float *o, uint head) {
#if HEAD_BLOCKS == 0
    o[0] = as_float(head);
#else
    const float d = head_scale(head);
    float m = HEAD_BYTES == 4 ? widen_half(head >> 16) : 0.0f;
#if KIND == KIND_AFFINE && LOW_BITS == 8
    m = gw_plane_zero(d, m, OFFSET);
#endif
#ifdef SCALED
    o[0] = d * (1.0f / (1 << UP)); /* sums are 2^UP too large */
    if (MINIMUMS) {
        o[1] = -m;
    }
#else
    o[0] = d;
    if (AFFINE) {
        o[1] = m;
    }
#endif
#endif
}

static inline int first_sum(uint sums) { return (short)(sums & 0xffffu); }
static inline int second_sum(uint sums) { return (short)(sums >> 16); }

static inline void token_numbers(float *o, uint2 token) {
    o[0] = as_float(token.s0);
#if KIND == KIND_SPAN
    o[1] = as_float(token.s1);
#elif KIND == KIND_AFFINE && !defined(SCALED)
    o[1] = o[0] * (float)(first_sum(token.s1) + second_sum(token.s1));
#endif
}

#ifdef SCALED
/* Of row `row`, in a stage. */
static inline void put_row_scales(__local uchar *stage, int row, uint2 sub) {
    __local int *scales = (__local int *)(stage + AT_SCALES);
    __local float *minimums = (__local float *)(stage + AT_MINIMUMS) + row * OF_MINIMUMS;
    UNROLL
    for (int b = 0; b < DEPTH; b++) {
        const uint both = (b < 2 ? sub.s0 : sub.s1) >> (b % 2 * 16) & 0xffffu;
        __local int *to = scales + (b * ROWS + row) * PER_BLOCK;
#if KIND == KIND_Q2
        to[0] = (int)(both & 15u), to[1] = (int)(both >> 8 & 15u);
        minimums[2 * b] = (float)(both >> 4 & 15u), minimums[2 * b + 1] = (float)(both >> 12);
#elif KIND == KIND_HALVES
        to[0] = (char)(both & 255u), to[1] = (char)(both >> 8);
#else
        to[0] = (char)(both & 255u);
        if (MINIMUMS) {
            minimums[b] = (float)(both >> 8);
        }
#endif
    }
}
#endif

#if MINIMUMS
static inline void put_token_sums(__local uchar *stage, int token, uint4 sums) {
    __local float *to = (__local float *)(stage + AT_SUMS) + token * OF_MINIMUMS;
    const uint of[DEPTH] = {sums.s0, sums.s1, sums.s2, sums.s3};
    UNROLL
    for (int b = 0; b < DEPTH; b++) {
        const int a = first_sum(of[b]), c = second_sum(of[b]);
#if HALVES
        to[2 * b] = (float)a, to[2 * b + 1] = (float)c;
#else
        to[b] = (float)(a + c);
#endif
    }
}
#endif

/* Float of number n of a token in term b of a stage: those of two neighbours lie together. */
static inline int token_number_at(int b, int token, int n) {
    return (b * TOKENS + (token & ~1)) * TOKEN_N + 2 * n + (token & 1);
}

static inline void put_numbers(const scales *s, __local uchar *stage, int id) {
    __local float *rows = (__local float *)(stage + AT_ROW_N);
    __local float *tokens = (__local float *)(stage + AT_TOKEN_N);
    UNROLL
    for (int i = 0; i < SHARES(ROWS * TERMS); i++) {
        const int at = id + i * GROUP;
        float o[ROW_N];
        row_numbers(o, s->head[i]);
        UNROLL
        for (int n = 0; n < ROW_N && at < ROWS * TERMS; n++) {
            rows[(at % TERMS * ROWS + at / TERMS) * ROW_N + n] = o[n];
        }
#ifdef SCALED
        if (at < ROWS) {
            put_row_scales(stage, at, s->sub[i]);
        }
#endif
    }
    UNROLL
    for (int i = 0; i < SHARES(TOKENS * TERMS); i++) {
        const int at = id + i * GROUP;
        float o[TOKEN_N];
        token_numbers(o, s->token[i]);
        UNROLL
        for (int n = 0; n < TOKEN_N && at < TOKENS * TERMS; n++) {
            tokens[token_number_at(at % TERMS, at / TERMS, n)] = o[n];
        }
#if MINIMUMS
        if (at < TOKENS) {
            put_token_sums(stage, at, s->sums[i]);
        }
#endif
    }
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Bits `mask` of each byte of v, which lie at `from`, at `to`. */
static inline uint bits_at(uint v, int from, int to, uint mask) {
    return rotate(v, (uint)(to - from) & 31u) & mask * 0x01010101u << to;
}

static inline uint pick_bytes(uint low, uint high, uint from) {
#ifdef GW_NV
    uint r;
    __asm__("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(from));
    return r;
#else
    uint r = 0;
    for (int k = 0; k < 4; k++) {
        const uint at = from >> (4 * k) & 7u;
        r |= ((at < 4 ? low >> (8 * at) : high >> (8 * (at - 4))) & 255u) << (8 * k);
    }
    return r;
#endif
}

/* The level of each nibble, as int8. */
static inline uint level_bytes(uint n) {
    uint from = n & 0x07070707u, mask = (n >> 3 & 0x01010101u) * 255u;
    from = (from | from >> 4) & 0x00ff00ffu;
    from |= from >> 8;
    return (pick_bytes(GW_LEVEL_WORD(LEVELS, 0), GW_LEVEL_WORD(LEVELS, 1), from) & ~mask) |
           (pick_bytes(GW_LEVEL_WORD(LEVELS, 2), GW_LEVEL_WORD(LEVELS, 3), from) & mask);
}

/* Weights 16 h + 4 quarter .. + 3 of a block. low: the word that holds them; high: of 1 bit, the
 * block's; of 2 bits, that of its half. */
static inline uint operand(uint low, uint high, int quarter, int h) {
    uint c;
#if LOW_BITS == 8
    c = low;
#elif LOW_BITS == 4
    c = bits_at(low, 4 * h, UP, 15u);
#else
    c = bits_at(low, 2 * quarter, UP, 3u);
#endif
#if HIGH_BITS == 1
    c |= bits_at(high, quarter + 4 * h, UP + LOW_BITS, 1u);
#elif HIGH_BITS == 2
    c |= bits_at(high, 2 * quarter, UP + LOW_BITS, 3u);
#endif
    return LEVELS ? level_bytes(c) : c;
}

/* Operands of the team's strips for a block; row: its first one in the tile. */
static inline void load_weights(uint (*a)[4], __local const uchar *stage, int row, int b,
                                __local uint *scratch, int id) {
    const int lane = id % TEAM, quarter = lane % 4;
    uint low[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}}, high[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#if LOW_BITS > 2 /* register 2 i + j: row lane / 4 + 8 j of strip i */
    UNROLL
    for (int h = 0; h < LOW_BITS / 4; h++) {
        const int piece = h * DEPTH + b; /* of 8-bit codes, first all first halves */
        load_matrices(low[h], stage, AT_LOW + piece_at(row + lane, piece, LOW_ROW / 16), scratch,
                      id);
    }
#endif
    UNROLL
    for (int i = 0; i < 2 * MT; i++) {
        const int at = row + lane / 4 + 8 * i;
#if LOW_BITS == 2
        uint2 v = *(__local const uint2 *)(stage + AT_LOW + at * LOW_ROW + b * 8);
        low[0][i] = v.s0, low[1][i] = v.s1;
#elif LOW_BITS == 4
        low[1][i] = low[0][i] = low[0][i] ^ LOW_FLIP;
#else
        low[0][i] ^= LOW_FLIP, low[1][i] ^= LOW_FLIP;
#endif
#if HIGH_BITS == 1
        const uint top = *(__local const uint *)(stage + AT_HIGH + at * HIGH_ROW + b * 4);
        high[0][i] = high[1][i] = top ^ HIGH_FLIP;
#elif HIGH_BITS == 2
        uint2 top = *(__local const uint2 *)(stage + AT_HIGH + at * HIGH_ROW + b * 8);
        high[0][i] = top.s0 ^ HIGH_FLIP, high[1][i] = top.s1 ^ HIGH_FLIP;
#endif
        UNROLL
        for (int h = 0; h < 2; h++) {
            a[i / 2][i % 2 + 2 * h] = operand(low[h][i], high[h][i], quarter, h);
        }
    }
}

/* What the term needs of rows lane / 4 + 8 i. */
static inline void load_rows(float (*o)[ROW_N], __local const uchar *stage, int row, int b,
                             int id) {
    UNROLL
    for (int i = 0; i < 2 * MT; i++) {
        __local const float *from = (__local const float *)(stage + AT_ROW_N) +
                                    (b * ROWS + row + id % TEAM / 4 + 8 * i) * ROW_N;
#if ROW_N == 1
        o[i][0] = from[0];
#else
        float2 v = *(__local const float2 *)from;
        o[i][0] = v.s0, o[i][1] = v.s1;
#endif
    }
}

/* And of tokens lane % 4 * 2, and the next, from `token` on. */
static inline void load_tokens(float *o, __local const uchar *stage, int token, int b, int id) {
    __local const float *from = (__local const float *)(stage + AT_TOKEN_N) +
                                token_number_at(b, token + id % TEAM % 4 * 2, 0);
    UNROLL
    for (int n = 0; n < TOKEN_N; n++) {
        float2 v = *(__local const float2 *)(from + 2 * n);
        o[n] = v.s0, o[TOKEN_N + n] = v.s1;
    }
}

#ifndef SCALED
/* The term. s: the sum over all of it, which began at MAGIC. */
static inline float add_sum(int s, const float *row, const float *token, float acc) {
    const float scale = 1.0f / (1 << UP);
    const float sum =
        UP ? fma(as_float(s), scale, -MAGIC * scale) : as_float(s) - MAGIC; /* exact */
    acc = fma(row[0] * token[0], sum, acc);
#if AFFINE
    acc = fma(row[1], token[1], acc);
#endif
    return acc;
}
#endif

/* ---- the terms of a stage -------------------------------------------------------------------- */

#ifdef SCALED

/* Of a block, for rows lane / 4 + 8 i. */
static inline void load_scales(int (*o)[PER_BLOCK], __local const uchar *stage, int row, int b,
                               int id) {
    UNROLL
    for (int i = 0; i < 2 * MT; i++) {
        __local const int *from = (__local const int *)(stage + AT_SCALES) +
                                  (b * ROWS + row + id % TEAM / 4 + 8 * i) * PER_BLOCK;
#if HALVES
        const int2 v = *(__local const int2 *)from;
        o[i][0] = v.s0, o[i][1] = v.s1;
#else
        o[i][0] = from[0];
#endif
    }
}

/* s += the products of a strip and 8 tokens, times the strip's scales; those of Q2_K are in the
 * operands already (add_stage). */
static inline void add_products(int *s, const uint *a, const uint *x, int (*scales)[PER_BLOCK],
                                __local uint *scratch, int id) {
#if KIND == KIND_Q2
    multiply_on(s, a, x, scratch, id);
#else
    int p[4 * PER_BLOCK];
#if HALVES
    multiply_16(p, a, x, 0, scratch, id);
    multiply_16(p + 4, a + 2, x + 1, 0, scratch, id);
#else
    multiply_32(p, a, x, 0, scratch, id);
#endif
    UNROLL
    for (int k = 0; k < 4 * PER_BLOCK; k++) {
        s[k % 4] += scales[k % 4 / 2][k / 4] * p[k];
    }
#endif
}

#if MINIMUMS
/* The numbers of a row or token that begin at `from`. */
static inline void load_minimums(float *o, __local const uchar *from) {
    UNROLL
    for (int i = 0; i < OF_MINIMUMS / 4; i++) {
        const float4 v = ((__local const float4 *)from)[i];
        o[4 * i] = v.s0, o[4 * i + 1] = v.s1, o[4 * i + 2] = v.s2, o[4 * i + 3] = v.s3;
    }
}
#endif

/* row, token: the team's first in the tile. */
static inline void add_stage(float (*acc)[NT][4], __local const uchar *stage, int row, int token,
                             __local uint *scratch, int id) {
    const int lane = id % TEAM, mine = token + lane / 16 * 8 + lane % 8, upper = lane / 8 % 2;
    int s[MT][NT][4];
    float rows[2 * MT][ROW_N];
    UNROLL
    for (int i = 0; i < MT * NT * 4; i++) {
        s[i / 4 / NT][i / 4 % NT][i % 4] = 0;
    }
    UNROLL
    for (int b = 0; b < DEPTH; b++) {
        const uint at = piece_at(mine, 2 * b + upper, X_ROW / 16);
        uint a[MT][4], x[4];
        int scales[2 * MT][PER_BLOCK];
        load_weights(a, stage, row, b, scratch, id);
        load_scales(scales, stage, row, b, id);
#if KIND == KIND_Q2 /* bytes of at most 3 * 15 */
        UNROLL
        for (int i = 0; i < 4 * MT; i++) {
            a[i / 4][i % 4] *= (uint)scales[i / 4 * 2 + i % 2][i % 4 / 2];
        }
#endif
        UNROLL
        for (int j = 0; j < NT; j += 2) {
            load_matrices(x, stage, at + j * 8 * X_ROW, scratch, id);
            UNROLL
            for (int i = 0; i < 2 * MT; i++) {
                add_products(s[i / 2][j + i % 2], a[i / 2], x + i % 2 * 2, scales + i / 2 * 2,
                             scratch, id);
            }
        }
    }
    load_rows(rows, stage, row, 0, id);
#if MINIMUMS
    float minimums[2 * MT][OF_MINIMUMS];
    UNROLL
    for (int i = 0; i < 2 * MT; i++) {
        load_minimums(minimums[i], stage + AT_MINIMUMS +
                                       (row + lane / 4 + 8 * i) * OF_MINIMUMS * 4);
    }
#endif
    UNROLL
    for (int j = 0; j < NT; j++) {
        float dx[2];
        load_tokens(dx, stage, token + 8 * j, 0, id);
#if MINIMUMS
        float sums[2][OF_MINIMUMS];
        UNROLL
        for (int i = 0; i < 2; i++) {
            load_minimums(sums[i], stage + AT_SUMS +
                                       (token + 8 * j + lane % 4 * 2 + i) * OF_MINIMUMS * 4);
        }
#endif
        UNROLL
        for (int i = 0; i < MT * 4; i++) {
            const int k = i % 4, r = i / 4 * 2 + k / 2;
#if MINIMUMS /* whose sum is below 2^24: exact */
            float m = 0.0f;
            UNROLL
            for (int n = 0; n < OF_MINIMUMS; n++) {
                m = fma(minimums[r][n], sums[k % 2][n], m);
            }
            const float term = fma(rows[r][0], (float)s[i / 4][j][k], rows[r][1] * m);
#else
            const float term = rows[r][0] * (float)s[i / 4][j][k];
#endif
            acc[i / 4][j][k] = fma(dx[k % 2], term, acc[i / 4][j][k]);
        }
    }
}

#elif defined(SPANS)

/* row, token: the team's first in the tile. */
static inline void add_stage(float (*acc)[NT][4], __local const uchar *stage, int row, int token,
                             __local uint *scratch, int id) {
    const int lane = id % TEAM, mine = token + lane / 16 * 8 + lane % 8, upper = lane / 8 % 2;
    int s[MT][NT][4];
    float rows[2 * MT][ROW_N];
    UNROLL
    for (int i = 0; i < MT * NT * 4; i++) {
        s[i / 4 / NT][i / 4 % NT][i % 4] = MAGIC_BITS;
    }
    UNROLL
    for (int b = 0; b < DEPTH; b++) {
        const uint at = piece_at(mine, 2 * b + upper, X_ROW / 16);
        uint a[MT][4], x[4];
        load_weights(a, stage, row, b, scratch, id);
        UNROLL
        for (int j = 0; j < NT; j += 2) {
            load_matrices(x, stage, at + j * 8 * X_ROW, scratch, id);
            UNROLL
            for (int i = 0; i < 2 * MT; i++) {
                multiply_on(s[i / 2][j + i % 2], a[i / 2], x + i % 2 * 2, scratch, id);
            }
        }
    }
    load_rows(rows, stage, row, 0, id);
    UNROLL
    for (int j = 0; j < NT; j++) {
        float two[2 * TOKEN_N];
        load_tokens(two, stage, token + 8 * j, 0, id);
        UNROLL
        for (int i = 0; i < MT * 4; i++) {
            const int k = i % 4;
            acc[i / 4][j][k] = add_sum(s[i / 4][j][k], rows[i / 4 * 2 + k / 2],
                                       two + k % 2 * TOKEN_N, acc[i / 4][j][k]);
        }
    }
}

#else

static inline void multiply(int (*s)[4], uint (*a)[4], const uint *x, __local uint *scratch,
                            int id) {
    UNROLL
    for (int i = 0; i < MT; i++) {
        multiply_32(s[i], a[i], x, MAGIC_BITS, scratch, id);
    }
}

/* row, token: the team's first in the tile. Tokens of a block are multiplied one tile of 8 ahead of
 * the chain. */
static inline void add_block(float (*acc)[NT][4], __local const uchar *stage, int row, int token,
                             int b, __local uint *scratch, int id) {
    const int lane = id % TEAM;
    const int mine = token + lane / 16 * 8 + lane % 8, upper = lane / 8 % 2;
    const uint at = piece_at(mine, 2 * b + upper, X_ROW / 16);
    uint a[MT][4], x[2][4];
    int s[2][MT][4];
    float rows[2 * MT][ROW_N];
    load_matrices(x[0], stage, at, scratch, id);
    load_weights(a, stage, row, b, scratch, id);
    load_rows(rows, stage, row, b, id);
    multiply(s[0], a, x[0], scratch, id);
    _Pragma("unroll") /* PoCL must not see the conditions, which hold barriers */
        for (int j = 0; j < NT; j++) {
        float two[2 * TOKEN_N];
        load_tokens(two, stage, token + 8 * j, b, id);
        if (j % 2 == 0 && j + 2 < NT) {
            load_matrices(x[(j / 2 + 1) % 2], stage, at + (j + 2) * 8 * X_ROW, scratch, id);
        }
        if (j + 1 < NT) {
            multiply(s[(j + 1) % 2], a, x[(j + 1) / 2 % 2] + (j + 1) % 2 * 2, scratch, id);
        }
        UNROLL
        for (int i = 0; i < MT; i++) {
            UNROLL
            for (int k = 0; k < 4; k++) {
                acc[i][j][k] = add_sum(s[j % 2][i][k], rows[2 * i + k / 2],
                                       two + k % 2 * TOKEN_N, acc[i][j][k]);
            }
        }
    }
}

static inline void add_stage(float (*acc)[NT][4], __local const uchar *stage, int row, int token,
                             __local uint *scratch, int id) {
    UNROLL
    for (int b = 0; b < DEPTH; b++) {
        add_block(acc, stage, row, token, b, scratch, id);
    }
}

#endif

/* ---- a tile ---------------------------------------------------------------------------------- */

/* Groups: tiles of tokens, tiles of weight rows. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void linear_prefill(LINEAR_ARGS) {
    __local uchar memory[2 * STAGE + MATRIX_WORDS * 4 * GROUP] __attribute__((aligned(128)));
    __local uint *scratch = (__local uint *)(memory + 2 * STAGE);
    const int id = (int)get_local_id(0), lane = id % TEAM, team = id / TEAM;
    const int live = LIVE, blocks = k / GW_ACT_BLOCK;
    const int r0 = (int)get_group_id(1) * ROWS, t0 = (int)get_group_id(0) * TOKENS;
    const int rows = min(m - r0, ROWS), tokens = min(live - t0, TOKENS);
    const int row = team / WN * (MT * 16), token = team % WN * (NT * 8);
    if (t0 >= live) {
        return;
    }
    __global const uchar *w = w_buf + w_off, *x = x_buf + x_off + (size_t)t0 * blocks * 40;
    __global const uchar *low = w + (size_t)r0 * low_row(blocks);
    __global const uchar *high = w + high_at + (size_t)r0 * blocks * HIGH_BITS * 4;
    float acc[MT][NT][4];
    shares share;
    scales scale;
    UNROLL
    for (int i = 0; i < MT * NT * 4; i++) {
        acc[i / 4 / NT][i / 4 % NT][i % 4] = 0.0f;
    }
    find_shares(&share, rows, tokens, blocks, id);
    copy_codes(&share, memory, low, high, x, 0, blocks, id);
    fetch_scales(&scale, w, high_at, head_at, sub_at, r0, rows, x, tokens, 0, blocks, id);
    put_numbers(&scale, memory, id);
    fetch_scales(&scale, w, high_at, head_at, sub_at, r0, rows, x, tokens, DEPTH, blocks, id);
    for (int from = 0, turn = 0; from < blocks; from += DEPTH, turn ^= 1) {
        __local uchar *stage = memory + turn * STAGE, *other = memory + (turn ^ 1) * STAGE;
        copies_wait();
        barrier(CLK_LOCAL_MEM_FENCE);
        if (from + DEPTH < blocks) {
            copy_codes(&share, other, low, high, x, from + DEPTH, blocks, id);
            put_numbers(&scale, other, id);
            fetch_scales(&scale, w, high_at, head_at, sub_at, r0, rows, x, tokens, from + 2 * DEPTH,
                         blocks, id);
        }
        add_stage(acc, stage, row, token, scratch, id);
    }
#define AS_IT_IS(sum, t) (sum)
    FINISH_TILE(AS_IT_IS)
}
