/* kernels_cl/planes.cl - blocks of quantized weights out of their planes (see layout.c).
 *
 * The format is described by LOW_BITS, HIGH_BITS, OFFSET, LEVELS, KIND, HEAD_BYTES, HEAD_BLOCKS,
 * SUB_BYTES and, of 8-bit codes, TOGETHER. Codes stay without a sign: the term takes OFFSET times
 * the activations' sums off. SCALED: a product of a prompt whose weights have integer scales.
 */
#ifdef TILE /* units of N rows that wait in local memory */
#define EACH (TILE / N)
#endif

#ifdef LOW_BITS

#define KIND_SIGNED 1
#define KIND_AFFINE 2
#define KIND_HALVES 3
#define KIND_Q2 4
#define KIND_SPAN 5 /* affine, and GW_ACT_SPAN blocks make a term */
#if KIND == KIND_SPAN || defined(SCALED)
#define SPANS /* x is as align_spans leaves it (rows.cl), but for decode_team.cl */
#endif
#define HALVES (KIND == KIND_HALVES || KIND == KIND_Q2) /* have integer scales of their own */
#define MINIMUMS (SUB_BYTES && (KIND == KIND_AFFINE || KIND == KIND_Q2))
/* The scale of HEAD_BYTES 4 is a float, and alone. */
#define HEAD_FLOAT (HEAD_BYTES == 4 && (KIND == KIND_SIGNED || KIND == KIND_HALVES))

#define WEIGHTS IN(w), const ulong high_at, const ulong head_at, const ulong sub_at
#define PLANES w_buf + w_off, high_at, head_at, sub_at
#define PLANE_ARGS __global const uchar *w, ulong high_at, ulong head_at, ulong sub_at

#ifndef GW_ITEM

typedef struct wblock {
    uint c[8];     /* word j: weights 4 j .. 4 j + 3 */
    float ws, wm;  /* d * sc, or d alone; the second number of the head, as the term wants it */
    int s0, s1;    /* integer scales of the halves */
    int m0, m1;
} wblock;

static inline uint level_word(uint nibbles) {
    uint r = 0;
    for (int i = 0; i < 4; i++) {
        const int n = (int)(nibbles >> (8 * i) & 15u);
        r |= (uint)(gw_level(LEVELS, n) + 128) << (8 * i);
    }
    return r;
}

/* The first number of a head. */
static inline float head_scale(uint head) {
    return HEAD_BYTES == 1 ? gw_e8m0_half(head & 255u)
           : HEAD_FLOAT    ? as_float(head)
                           : widen_half(head & 0xffffu);
}

/* A block as it lies in the planes: what one item loads ahead of its use. */
typedef struct wraw {
#if LOW_BITS == 8
    uint4 low, low_b;
#elif LOW_BITS == 4
    uint4 low;
#else
    uint2 low;
#endif
#if HIGH_BITS == 1
    uint high;
#elif HIGH_BITS == 2
    uint2 high;
#endif
    uint head, sub;
} wraw;

/* Bytes of a row's low codes, with what fills its last group. */
static inline int low_row(int blocks) {
    return (blocks + TOGETHER - 1) / TOGETHER * TOGETHER * LOW_BITS * 4;
}

/* Block b of a row; blocks: of a row. */
static inline wraw fetch(PLANE_ARGS, int row, int b, int blocks) {
    wraw o;
    size_t at = (size_t)row * blocks + b;
#if LOW_BITS == 8
    __global const uint4 *pieces = (__global const uint4 *)(w + (size_t)row * low_row(blocks));
    pieces += b / TOGETHER * (2 * TOGETHER) + b % TOGETHER;
    o.low = load_once(pieces);
    o.low_b = load_once(pieces + TOGETHER);
#elif LOW_BITS == 4
    o.low = load_once((__global const uint4 *)w + at);
#else
    o.low = ((__global const uint2 *)w)[at];
#endif
#if HIGH_BITS == 1
    o.high = ((__global const uint *)(w + high_at))[at];
#elif HIGH_BITS == 2
    o.high = ((__global const uint2 *)(w + high_at))[at];
#endif
#if HEAD_BLOCKS == 0
    o.head = ((__global const uint *)(w + head_at))[row];
#else
    size_t head = (size_t)row * ((blocks + HEAD_BLOCKS - 1) / HEAD_BLOCKS) + b / HEAD_BLOCKS;
#if HEAD_BYTES == 1
    o.head = w[head_at + head];
#elif HEAD_BYTES == 2
    o.head = ((__global const ushort *)(w + head_at))[head];
#else
    o.head = ((__global const uint *)(w + head_at))[head];
#endif
#endif
#if SUB_BYTES
    o.sub = ((__global const ushort *)(w + sub_at))[at];
#else
    o.sub = 0;
#endif
    return o;
}

static inline void unpack_codes(const wraw *o, uint *c) {
#if LOW_BITS == 8
    c[0] = o->low.s0, c[1] = o->low.s1, c[2] = o->low.s2, c[3] = o->low.s3;
    c[4] = o->low_b.s0, c[5] = o->low_b.s1, c[6] = o->low_b.s2, c[7] = o->low_b.s3;
#elif LOW_BITS == 4
    uint4 a = o->low;
    c[0] = a.s0 & 0x0f0f0f0fu, c[1] = a.s1 & 0x0f0f0f0fu;
    c[2] = a.s2 & 0x0f0f0f0fu, c[3] = a.s3 & 0x0f0f0f0fu;
    c[4] = a.s0 >> 4 & 0x0f0f0f0fu, c[5] = a.s1 >> 4 & 0x0f0f0f0fu;
    c[6] = a.s2 >> 4 & 0x0f0f0f0fu, c[7] = a.s3 >> 4 & 0x0f0f0f0fu;
#else
    for (int j = 0; j < 4; j++) {
        c[j] = o->low.s0 >> (2 * j) & 0x03030303u;
        c[4 + j] = o->low.s1 >> (2 * j) & 0x03030303u;
    }
#endif
#if HIGH_BITS == 1
    for (int j = 0; j < 8; j++) {
        c[j] |= (o->high >> j & 0x01010101u) << LOW_BITS;
    }
#elif HIGH_BITS == 2
    for (int j = 0; j < 4; j++) {
        c[j] |= (o->high.s0 >> (2 * j) & 0x03030303u) << LOW_BITS;
        c[4 + j] |= (o->high.s1 >> (2 * j) & 0x03030303u) << LOW_BITS;
    }
#endif
#if LEVELS
    for (int j = 0; j < 8; j++) {
        c[j] = level_word(c[j]);
    }
#endif
}

static inline wblock unpack(const wraw *raw) {
    wblock o = {{0, 0, 0, 0, 0, 0, 0, 0}, 0.0f, 0.0f, 0, 0, 0, 0};
    unpack_codes(raw, o.c);
#if HEAD_BLOCKS == 0
    o.ws = as_float(raw->head);
#else
    o.ws = head_scale(raw->head);
#if HEAD_BYTES == 4 && !HEAD_FLOAT
    o.wm = widen_half(raw->head >> 16);
#if KIND == KIND_AFFINE && LOW_BITS == 8
    o.wm = gw_plane_zero(o.ws, o.wm, OFFSET);
#endif
#endif
#endif
#if SUB_BYTES
    uint sub = raw->sub;
#if KIND == KIND_HALVES
    o.s0 = (char)(sub & 255u);
    o.s1 = (char)(sub >> 8);
#elif KIND == KIND_Q2
    o.s0 = (int)(sub & 15u), o.m0 = (int)(sub >> 4 & 15u);
    o.s1 = (int)(sub >> 8 & 15u), o.m1 = (int)(sub >> 12);
#elif defined(SCALED)
    o.s0 = o.s1 = (char)(sub & 255u);
    o.m0 = o.m1 = (int)(sub >> 8);
#elif KIND == KIND_AFFINE
    o.ws = o.ws * (float)(sub & 255u);
    o.wm = -(o.wm * (float)(sub >> 8));
#else
    o.ws = o.ws * (float)(char)(sub & 255u);
#endif
#endif
    return o;
}

/* Codes of 8 bits are int8 with their top bit turned: as such they have no offset to take off. */
#if CODES_ARE_SIGNED && OFFSET == 128
#define DOT4(c, q, sum) dot4((c) ^ 0x80808080u, q, sum)
#define TAKEN_OFF 0
#else
#define DOT4 dot4
#define TAKEN_OFF OFFSET
#endif

/* sum + the products of half a block. */
static inline int dot_half(const uint *c, uint4 q, int sum) {
    sum = DOT4(c[0], q.s0, sum), sum = DOT4(c[1], q.s1, sum);
    sum = DOT4(c[2], q.s2, sum), sum = DOT4(c[3], q.s3, sum);
    return sum;
}

#ifdef SPANS
#ifdef GW_NV /* multiplies 32 bits as fast as 24 */
#define TIMES(a, b, sum) ((a) * (b) + (sum))
#else
#define TIMES mad24
#endif

/* What a block adds to the integer sum of its term, and to that of minimums. */
static inline void add_block(const wblock *o, uint4 q0, uint4 q1, uint sums, int *s, int *m) {
#ifndef SCALED
    *s = dot_half(o->c, q0, dot_half(o->c + 4, q1, *s));
#else
    const int sum0 = (short)(sums & 0xffffu), sum1 = (short)(sums >> 16);
#if HALVES
    *s = TIMES(o->s0, dot_half(o->c, q0, -TAKEN_OFF * sum0), *s);
    *s = TIMES(o->s1, dot_half(o->c + 4, q1, -TAKEN_OFF * sum1), *s);
#else
    const int of_first = dot_half(o->c, q0, -TAKEN_OFF * (sum0 + sum1));
    *s = TIMES(o->s0, dot_half(o->c + 4, q1, of_first), *s);
#endif
#if KIND == KIND_Q2
    *m = TIMES(o->m0, sum0, TIMES(o->m1, sum1, *m));
#elif MINIMUMS
    *m = TIMES(o->m0, sum0 + sum1, *m);
#endif
#endif
}

/* The term of docs/arithmetic.md. rest: REST of the sum of minimums and of what align_spans leaves
 * in the place of the second block's scale. */
#if KIND == KIND_SPAN
#define REST(minimums, total) (total)
#else
#define REST(minimums, total) ((float)(minimums))
#endif
static inline float add_span(float ws, float wm, int sum, float dx, float rest, float acc) {
#ifndef SCALED
    acc = fma(ws * dx, (float)sum, acc);
    return fma(wm, rest, acc);
#elif MINIMUMS
    return fma(dx, fma(ws, (float)sum, -(wm * rest)), acc);
#else
    return fma(dx, ws * (float)sum, acc);
#endif
}
#else
/* The term of docs/arithmetic.md. q: eight words of activations; sums: two int16. */
static inline float add_term(const wblock *o, uint4 q0, uint4 q1, float dx, uint sums, float acc) {
    int sum0 = (short)(sums & 0xffffu), sum1 = (short)(sums >> 16);
    const int a = dot_half(o->c, q0, -TAKEN_OFF * sum0);
    const int b = dot_half(o->c + 4, q1, -TAKEN_OFF * sum1);
#if KIND == KIND_SIGNED || KIND == KIND_AFFINE
    acc = fma(o->ws * dx, (float)(a + b), acc);
#else
    acc = fma(o->ws * dx, (float)(o->s0 * a + o->s1 * b), acc);
#endif
#if KIND == KIND_AFFINE
    acc = fma(o->wm, dx * (float)(sum0 + sum1), acc);
#elif KIND == KIND_Q2
    acc = fma(-(o->wm * dx), (float)(o->m0 * sum0 + o->m1 * sum1), acc);
#endif
    return acc;
}
#endif

/* ---- what decode_team.cl asks of a weight: a unit is a block -------------------------------- */

#define PER_UNIT GW_ACT_BLOCK
#define UNITS(k) ((k) / GW_ACT_BLOCK)
#define TILE_LOCALS(X) X(uint4, q0, TILE) X(uint4, q1, TILE) X(float, dx, TILE) X(uint, sums, TILE)
#define TILE_ARGS __local uint4 *q0, __local uint4 *q1, __local float *dx, __local uint *sums
#define TILE_PASS q0, q1, dx, sums

#ifdef TILE
/* Blocks [from, from + EACH) of rows t0 .. t0 + N - 1, zeros beyond what there is. */
static inline void stage(__global const uchar *x, int t0, int live, int k, int from, TILE_ARGS,
                         int id) {
    const int blocks = k / GW_ACT_BLOCK, each = min(EACH, blocks - from);
    for (int i = id; i < each * N; i += GROUP) {
        int row = i / each, b = i % each, at = row * EACH + b;
        uint4 a = 0, c = 0;
        float d = 0.0f;
        uint s = 0;
        if (row < live) {
            __global const uint *words =
                (__global const uint *)x + ((size_t)(t0 + row) * blocks + from + b) * 10;
            d = as_float(words[0]);
            s = words[1];
            a = (uint4)(words[2], words[3], words[4], words[5]);
            c = (uint4)(words[6], words[7], words[8], words[9]);
        }
        q0[at] = a;
        q1[at] = c;
        dx[at] = d;
        sums[at] = s;
    }
}

#if N == 1
#define TILE_LOADS ((EACH + GROUP - 1) / GROUP)
/* An item's part of a row that a tile holds, on its way there. */
typedef struct share {
    uint2 v[TILE_LOADS][5];
} share;

static inline void take(share *s, __global const uchar *x, int k, int id) {
    UNROLL
    for (int j = 0; j < TILE_LOADS; j++) {
        const int b = min(id + GROUP * j, k / GW_ACT_BLOCK - 1);
        UNROLL
        for (int i = 0; i < 5; i++) {
            s->v[j][i] = ((__global const uint2 *)x)[b * 5 + i];
        }
    }
}

static inline void put(const share *s, TILE_ARGS, int id) {
    UNROLL
    for (int j = 0; j < TILE_LOADS; j++) {
        const int at = id + GROUP * j;
        if (at < EACH) {
            q0[at] = (uint4)(s->v[j][1], s->v[j][2]);
            q1[at] = (uint4)(s->v[j][3], s->v[j][4]);
            dx[at] = as_float(s->v[j][0].s0);
            sums[at] = s->v[j][0].s1;
        }
    }
}
#endif

#ifdef SPANS
/* The first `each` blocks of every row of the tile with one scale for each span; sums become that
 * scale times the sum of the span. */
static inline void settle(int each, TILE_ARGS, int id) {
    for (int i = id; i < each * N; i += GROUP) {
        const int at = N == 1 ? i : i / each * EACH + i % each;
        const uint4 scales = ((__local const uint4 *)dx)[at / GW_ACT_SPAN];
        const int part = gw_span_part(dx[at], gw_span_inverse(span_top(scales)));
        int sum = 0;
        q0[at] = span_codes(q0[at], part, &sum);
        q1[at] = span_codes(q1[at], part, &sum);
        sums[at] = (uint)sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    each /= GW_ACT_SPAN;
    for (int i = id; i < each * N; i += GROUP) {
        const int at = N == 1 ? i : i / each * (EACH / GW_ACT_SPAN) + i % each;
        const float top = as_float(span_top(((__local const uint4 *)dx)[at]));
        const int4 s = ((__local const int4 *)sums)[at];
        ((__local float4 *)dx)[at] = top;
        ((__local float4 *)sums)[at] = top * (float)(s.s0 + s.s1 + s.s2 + s.s3);
    }
}

/* The unit of two weight rows times that of N activation rows; at: its place in the tile, used
 * below `end`. Four neighbours have the span: two of them go on with the first row, in acc[0], and
 * two with the second; one of these with the first, the other with the second of two activation
 * rows. All items of the group together. */
static inline void add_pair(const wraw *a, const wraw *b, TILE_ARGS, int at, int end,
                            float acc[2][N], __local int *scratch, int id) {
    uint first[8], second[8];
    const uint head = id & 1 ? b->head : a->head;
    const float ws = widen_half(head & 0xffffu), wm = widen_half(head >> 16);
    unpack_codes(a, first);
    unpack_codes(b, second);
    UNROLL
    for (int t = 0; t < N; t += 2) {
        int sum[2] = {0, 0};
        UNROLL
        for (int j = 0; j < 2 && t + j < N; j++) {
            const uint4 low = q0[at + (t + j) * EACH], high = q1[at + (t + j) * EACH];
            const int x = dot_half(first, low, dot_half(first + 4, high, 0));
            const int y = dot_half(second, low, dot_half(second + 4, high, 0));
            const int odd = again(id) & 1;
            sum[j] = (odd ? y : x) + other_lane(odd ? x : y, 1, scratch, id);
        }
        const int own = N > 1 ? again(id) >> 1 & 1 : 0, rest = N > 1 ? 1 - own : 0;
        const int all = (own ? sum[1] : sum[0]) +
                        other_lane(rest ? sum[1] : sum[0], 2, scratch, id);
        const int place = at + (t + own) * EACH;
        const float v = add_span(ws, wm, all, dx[place], as_float(sums[place]), acc[0][t / 2]);
#ifdef WHOLE
        acc[0][t / 2] = v;
#else
        acc[0][t / 2] = again(at) < end ? v : acc[0][t / 2];
#endif
    }
}

/* gw_join_lanes of what add_pair leaves: in lane 0 of a team the sums of the first row with each
 * activation row, in lane 1 those of the second. Lanes without a term are +0. */
static inline void join_spans(float *acc, __local int *scratch, int id) {
    UNROLL
    for (int t = (N - 1) / 2; t >= 0; t--) {
        float v = acc[t] + 0.0f;
        UNROLL
        for (int h = GW_ACT_SPAN; h < TEAM; h *= 2) {
            v = v + as_float(other_lane(as_int(v), h, scratch, id));
        }
        acc[2 * t] = v;
        if (N > 1) {
            acc[2 * t + 1] = as_float(other_lane(as_int(v), 2, scratch, id));
        }
    }
}
#else
/* The unit of two weight rows times that of N activation rows; at: its place in the tile. */
static inline void add_pair(const wraw *a, const wraw *b, TILE_ARGS, int at, int left,
                            float acc[2][N]) {
    wblock o0 = unpack(a), o1 = unpack(b);
    UNROLL
    for (int t = 0; t < N; t++, at += EACH) {
        uint4 low = q0[at], high = q1[at];
        float d = dx[at];
        uint s = sums[at];
        acc[0][t] = add_term(&o0, low, high, d, s, acc[0][t]);
        acc[1][t] = add_term(&o1, low, high, d, s, acc[1][t]);
    }
}
#endif
#endif

#ifdef NORM_WIDTH
/* Quarter i of the row, but for its factor, into the tile and, when out is not 0, into memory. */
static inline void put_normed(float4 low, float4 high, int i, __global uchar *out, TILE_ARGS,
                              __local uint *scratch, int id) {
    act8_quarter r;
    quad_encode(&r, low, high, scratch, id);
    const int b = again(i) >> 2, quarter = i & 3;
    if (b >= NORM_WIDTH / GW_ACT_BLOCK) {
        return;
    }
    ((__local uint *)(q0 + b))[quarter] = r.word[0];
    ((__local uint *)(q1 + b))[quarter] = r.word[1];
    if (quarter == 0) {
        dx[b] = r.scale;
        sums[b] = r.sums;
    }
    if (out != 0) {
        quad_store_codes((__global gw_act8 *)out + b, &r, quarter);
    }
}

/* What the factor goes to: one by one, by the items in order. */
#define NORM_SCALED (NORM_WIDTH / GW_ACT_BLOCK)
static inline void scale_normed(float by, __global uchar *out, TILE_ARGS, int id) {
    for (int b = id; b < NORM_SCALED; b += GROUP) {
        dx[b] = dx[b] * by;
        if (out != 0) {
            ((__global gw_act8 *)out)[b].scale = dx[b];
        }
    }
}
#endif

#endif
#endif
