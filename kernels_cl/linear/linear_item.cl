/* kernels_cl/linear/linear_item.cl - y = x W^T with quantized weights, for processors: a work-item
 * takes a strip of 16 rows, vector lanes are rows, and up to 16 activation rows share one
 * unpacking.
 */
#ifdef EXPERTS
#define MOST_ROWS 1
#else
#define MOST_ROWS 16
#endif

#if !defined(GW_PLAIN) && (defined(__AVX512BW__) || defined(__AVX2__))
#define MULTIPLY_ADD /* x86: neighbouring products of bytes or words, added, in one instruction */
#endif

typedef struct strip_block {
#ifdef MULTIPLY_ADD
    uint16 c[8]; /* codes of weights 4 j .. 4 j + 3 */
#else
    uint16 even[8], odd[8]; /* codes as int16 pairs: weights 4 j, 4 j + 2 and 4 j + 1, 4 j + 3 */
#endif
    float16 ws, wm;
    int16 s0, s1, m0, m1;
} strip_block;

static inline float16 widen16(uint16 bits) {
    uint16 sign = (bits & 0x8000u) << 16, expo = bits >> 10 & 0x1fu, frac = bits & 0x3ffu;
    float16 tiny = convert_float16(convert_int16(frac)) * 5.9604644775390625e-8f;
    uint16 normal = select((expo + 112u) << 23, (uint16)0x7f800000u, expo == 31u) | frac << 13;
    return as_float16(select(normal, as_uint16(tiny), expo == 0u) | sign);
}

#if HEAD_BYTES == 1
static inline float16 e8m0_16(uint16 e) { /* gw_e8m0_half */
    return as_float16(select((e - 1u) << 23u, (uint16)0x00200000u << e, e < 2u));
}
#endif

#if LEVELS
static inline uint16 level16(uint16 nibbles) {
    uint16 out = 0u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint16 n = nibbles >> (uint)(8 * i) & 15u;
        uint16 low = select((uint16)GW_LEVEL_WORD(LEVELS, 0), (uint16)GW_LEVEL_WORD(LEVELS, 1),
                            (n & 4u) != 0u);
        uint16 high = select((uint16)GW_LEVEL_WORD(LEVELS, 2), (uint16)GW_LEVEL_WORD(LEVELS, 3),
                             (n & 4u) != 0u);
        uint16 word = select(low, high, (n & 8u) != 0u);
        out |= ((word >> ((n & 3u) * 8u) & 255u) ^ 128u) << (uint)(8 * i);
    }
    return out;
}
#endif

#define ENDS_TERM(b) (((b) + 1) % GW_ACT_SPAN == 0) /* of spans */
/* Are sums multiplied by integer scales, or the head? */
#ifdef SCALED
#define TIMES_HERE 1
#else
#define TIMES_HERE HALVES
#endif
#define STRIP_WORD(plane, index) vload16(index, (__global const uint *)(plane))

static inline void unpack(PLANE_ARGS, size_t strip, int b, int blocks, strip_block *o) {
    size_t at = strip * blocks + b;
#ifdef MULTIPLY_ADD
#pragma unroll
    for (int i = 0; i < LOW_BITS; i++) {
        __builtin_prefetch((__global const char *)w + at * 64 * LOW_BITS + 64 * i + 4096);
    }
#endif
    uint16 c[8];
#if LOW_BITS == 8
#pragma unroll
    for (int j = 0; j < 8; j++) {
        c[j] = STRIP_WORD(w, at * 8 + j);
    }
#elif LOW_BITS == 4
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint16 a = STRIP_WORD(w, at * 4 + j);
        c[j] = a & 0x0f0f0f0fu;
        c[4 + j] = a >> 4u & 0x0f0f0f0fu;
    }
#else
#pragma unroll
    for (int j = 0; j < 8; j++) {
        c[j] = STRIP_WORD(w, at * 2 + j / 4) >> (uint)(2 * (j & 3)) & 0x03030303u;
    }
#endif
#if HIGH_BITS == 1
    uint16 h = STRIP_WORD(w + high_at, at);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        c[j] |= (h >> (uint)j & 0x01010101u) << LOW_BITS;
    }
#elif HIGH_BITS == 2
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint16 h = STRIP_WORD(w + high_at, at * 2 + j / 4);
        c[j] |= (h >> (uint)(2 * (j & 3)) & 0x03030303u) << LOW_BITS;
    }
#endif
#pragma unroll
    for (int j = 0; j < 8; j++) {
#if LEVELS
        c[j] = level16(c[j]);
#endif
#ifdef MULTIPLY_ADD
        o->c[j] = c[j];
#else
        o->even[j] = c[j] & 0x00ff00ffu;
        o->odd[j] = c[j] >> 8u & 0x00ff00ffu;
#endif
    }
#if SUB_BYTES
    uint16 sub = convert_uint16(vload16(at, (__global const ushort *)(w + sub_at)));
#if KIND == KIND_HALVES
    o->s0 = as_int16(sub << 24u) >> 24;
    o->s1 = as_int16(sub << 16u) >> 24;
#elif KIND == KIND_Q2
    o->s0 = as_int16(sub & 15u), o->m0 = as_int16(sub >> 4u & 15u);
    o->s1 = as_int16(sub >> 8u & 15u), o->m1 = as_int16(sub >> 12u);
#elif KIND == KIND_AFFINE
    o->s0 = o->s1 = as_int16(sub & 255u);
    o->m0 = o->m1 = as_int16(sub >> 8u);
#else
    o->s0 = o->s1 = as_int16(sub << 24u) >> 24;
#endif
#endif
#ifdef SPANS
    if (!ENDS_TERM(b)) {
        return;
    }
#endif
#if HEAD_BLOCKS == 0
    o->ws = vload16(strip, (__global const float *)(w + head_at));
#else
    size_t head = strip * ((blocks + HEAD_BLOCKS - 1) / HEAD_BLOCKS) + b / HEAD_BLOCKS;
#if HEAD_BYTES == 1
    o->ws = e8m0_16(convert_uint16(vload16(head, w + head_at)));
#elif HEAD_BYTES == 2
    o->ws = widen16(convert_uint16(vload16(head, (__global const ushort *)(w + head_at))));
#elif HEAD_FLOAT
    o->ws = vload16(head, (__global const float *)(w + head_at));
#else
    uint16 both = STRIP_WORD(w + head_at, head);
    o->ws = widen16(both & 0xffffu);
    o->wm = widen16(both >> 16u);
#if KIND == KIND_AFFINE && LOW_BITS == 8
    o->wm = fma((float16)OFFSET, o->ws, o->wm);
#endif
#endif
#endif
#if SUB_BYTES && !TIMES_HERE
    o->ws = o->ws * convert_float16(o->s0);
#if KIND == KIND_AFFINE
    o->wm = -(o->wm * convert_float16(o->m0));
#endif
#endif
}

#ifdef MULTIPLY_ADD

/* Instructions by clang's names for them, not as assembly, which PoCL 5.0 takes for a call of its
 * own that allocates local memory, and aborts. */
#ifdef __AVX512BW__
typedef uint16 x86_words;
#define X86(name) __builtin_ia32_##name##512
#define BOTH(name) name(a, b)
#else
typedef uint8 x86_words;
#define X86(name) __builtin_ia32_##name##256
#define BOTH(name) (uint16)(name(a.lo, b.lo), name(a.hi, b.hi))
#endif
#define X86_VECTOR __attribute__((vector_size(sizeof(x86_words))))
typedef char x86_bytes X86_VECTOR;
typedef short x86_shorts X86_VECTOR;
typedef ushort x86_ushorts X86_VECTOR;

#define PAIRWISE(name, type, join)                                                                 \
    static inline x86_words x86_##name(x86_words a_words, x86_words b_words) {                     \
        type a = __builtin_astype(a_words, type), b = __builtin_astype(b_words, type);             \
        return __builtin_astype(join, x86_words);                                                  \
    }                                                                                              \
    static inline uint16 name(uint16 a, uint16 b) {                                                \
        return BOTH(x86_##name);                                                                   \
    }
PAIRWISE(vpmaddwd, x86_shorts, X86(pmaddwd)(a, b)) /* int16 x int16 -> int32 */
PAIRWISE(vpmaddubsw, x86_bytes, X86(pmaddubsw)(a, b)) /* uint8 x int8 -> int16, saturated */
PAIRWISE(vpaddw, x86_ushorts, a + b) /* no pairs: int16 + int16 */

static inline uint16 int16_pair(int16 low, int16 high) {
    return (as_uint16(low) & 0xffffu) | as_uint16(high) << 16u;
}

/* The sum of half a block, multiplied by `times`.
 * An int16 holds eight products of codes of five bits (8 x 31 x 127 = 31,496), four of six bits.
 * Codes of eight bits: even and odd bytes apart, as int16. */
static inline int16 dot_words(const strip_block *o, int16 times, __global const uint *x, int from) {
#if LEVELS || LOW_BITS + HIGH_BITS == 8
    int16 sum = 0;
#pragma unroll
    for (int j = from; j < from + 4; j++) {
        uint even = (uint)(ushort)(short)(char)(x[j] & 255u) |
                    (uint)(int)(char)(x[j] >> 16 & 255u) << 16;
        uint odd = (uint)(ushort)(short)(char)(x[j] >> 8 & 255u) |
                   (uint)(int)(char)(x[j] >> 24) << 16;
        sum += as_int16(vpmaddwd(o->c[j] & 0x00ff00ffu, (uint16)even));
        sum += as_int16(vpmaddwd(o->c[j] >> 8u & 0x00ff00ffu, (uint16)odd));
    }
    return sum * times;
#else
    const uint16 both = int16_pair(times, times);
    uint16 a = vpaddw(vpmaddubsw(o->c[from], (uint16)x[from]),
                      vpmaddubsw(o->c[from + 1], (uint16)x[from + 1]));
    uint16 b = vpaddw(vpmaddubsw(o->c[from + 2], (uint16)x[from + 2]),
                      vpmaddubsw(o->c[from + 3], (uint16)x[from + 3]));
#if LOW_BITS + HIGH_BITS == 6
    return as_int16(vpmaddwd(a, both)) + as_int16(vpmaddwd(b, both));
#else
    return as_int16(vpmaddwd(vpaddw(a, b), both));
#endif
#endif
}

#else

/* Products in int16, as many words of them as cannot overflow: a lane adds two products per word,
 * each at most 127 times the largest code. */
#if LEVELS || LOW_BITS + HIGH_BITS == 8
#define APART /* not even one word: its two products apart */
#define SPAN 1
#elif LOW_BITS + HIGH_BITS == 6
#define SPAN 2 /* 4 x 63 x 127 = 32,004 */
#else
#define SPAN 4 /* 8 x 31 x 127 = 31,496 */
#endif

/* Both int16 of every 32 bits, added. */
static inline int8 pair_sums(short16 s) {
    int8 v = as_int8(s);
    return (v << 16 >> 16) + (v >> 16);
}

static inline int16 dot_words(const strip_block *o, int16 times, const uint *even, const uint *odd,
                              int from) {
    int8 low = 0, high = 0;
    short16 a = 0, b = 0;
#pragma unroll
    for (int j = from; j < from + 4; j++) {
        short16 e = as_short16((uint8)even[j]), d = as_short16((uint8)odd[j]);
        a += as_short16(o->even[j].lo) * e;
        b += as_short16(o->even[j].hi) * e;
#ifdef APART
        low += pair_sums(a);
        high += pair_sums(b);
        a = b = 0;
#endif
        a += as_short16(o->odd[j].lo) * d;
        b += as_short16(o->odd[j].hi) * d;
        if ((j + 1) % SPAN == 0) {
            low += pair_sums(a);
            high += pair_sums(b);
            a = b = 0;
        }
    }
    return (int16)(low, high) * times;
}

#endif

/* Of the block of x, its halves' sums of codes times those numbers. */
static inline int16 times_sums(int16 first, int16 second, __global const gw_act8 *x) {
#ifdef MULTIPLY_ADD
    const uint both = ((__global const uint *)x)[1];
    return as_int16(vpmaddwd(int16_pair(first, second), (uint16)both));
#else
    return first * (int)x->sum[0] + second * (int)x->sum[1];
#endif
}

/* The sum of a block, multiplied by its integer scales if they are not in the head. */
static inline int16 block_sum(const strip_block *o, __global const gw_act8 *x) {
#if TIMES_HERE
    const int16 s0 = o->s0, s1 = o->s1, off = times_sums(s0, s1, x);
#else
    const int16 s0 = 1, s1 = 1, off = (int)x->sum[0] + x->sum[1];
#endif
#ifdef MULTIPLY_ADD
    __global const uint *q = (__global const uint *)x->q;
    const int16 a = dot_words(o, s0, q, 0), b = dot_words(o, s1, q, 4);
#else
    short16 q = vload16(0, (__global const short *)x->q);
    short16 even = (q << (short16)8) >> (short16)8, odd = q >> (short16)8;
    uint e[8], d[8];
    vstore8(as_uint8(even), 0, e);
    vstore8(as_uint8(odd), 0, d);
    const int16 a = dot_words(o, s0, e, d, 0), b = dot_words(o, s1, e, d, 4);
#endif
    return a + b - OFFSET * off;
}

#ifdef SPANS
/* x: the last block of the term. */
static inline float16 add_term(const strip_block *o, __global const gw_act8 *x, int16 sum,
                               int16 minimums, float16 acc) {
    const float dx = x[1 - GW_ACT_SPAN].scale;
#ifndef SCALED
    acc = fma(o->ws * dx, convert_float16(sum), acc);
    return fma(o->wm, (float16)x->scale, acc);
#elif MINIMUMS
    const float16 rest = -(o->wm * convert_float16(minimums));
    return fma((float16)dx, fma(o->ws, convert_float16(sum), rest), acc);
#else
    return fma((float16)dx, o->ws * convert_float16(sum), acc);
#endif
}
#else
static inline float16 add_term(const strip_block *o, __global const gw_act8 *x, float16 acc) {
    const float dx = x->scale;
    acc = fma(o->ws * dx, convert_float16(block_sum(o, x)), acc);
#if KIND == KIND_AFFINE
    acc = fma(o->wm, (float16)(dx * (float)(x->sum[0] + x->sum[1])), acc);
#elif KIND == KIND_Q2
    acc = fma(-(o->wm * dx), convert_float16(times_sums(o->m0, o->m1, x)), acc);
#endif
    return acc;
}
#endif

#ifndef DECODE
#define LANES 1
#elif defined(SPANS)
#define LANES (GW_LANES / GW_ACT_SPAN)
#else
#define LANES GW_LANES
#endif
#ifdef SPANS
#define LANE(b) ((b) / GW_ACT_SPAN % LANES)
#else
#define LANE(b) ((b) % LANES)
#endif
#if defined(DECODE) && defined(SPANS) /* with lanes that are +0 */
#define JOINED(sum) ((sum) + 0.0f)
#else
#define JOINED(sum) (sum)
#endif

/* The sums of a strip with n rows of x. */
static inline void strip_sums(PLANE_ARGS, size_t strip, int blocks, __global const gw_act8 *x,
                              int n, float16 *sums) {
    float16 acc[MOST_ROWS][LANES];
    for (int i = 0; i < n; i++) {
        for (int l = 0; l < LANES; l++) {
            acc[i][l] = 0.0f;
        }
    }
#ifdef SPANS
    int16 sum[MOST_ROWS], minimums[MOST_ROWS];
#endif
    for (int b = 0; b < blocks; b++) {
        strip_block s;
        unpack(w, high_at, head_at, sub_at, strip, b, blocks, &s);
        for (int i = 0; i < n; i++) {
            __global const gw_act8 *act = x + (size_t)i * blocks + b;
#ifdef SPANS
            sum[i] = block_sum(&s, act) + (b % GW_ACT_SPAN ? sum[i] : 0);
#if MINIMUMS
            minimums[i] = times_sums(s.m0, s.m1, act) + (b % GW_ACT_SPAN ? minimums[i] : 0);
#else
            minimums[i] = 0;
#endif
            if (ENDS_TERM(b)) {
                acc[i][LANE(b)] = add_term(&s, act, sum[i], minimums[i], acc[i][LANE(b)]);
            }
#else
            acc[i][LANE(b)] = add_term(&s, act, acc[i][LANE(b)]);
#endif
        }
    }
    for (int i = 0; i < n; i++) {
        for (int h = 1; h < LANES; h *= 2) { /* as gw_join_lanes */
            for (int l = 0; l < LANES; l += 2 * h) {
                acc[i][l] = acc[i][l] + acc[i][l + h];
            }
        }
        sums[i] = JOINED(acc[i][0]);
    }
}

#ifndef EXPERTS

/* y = (sum + bias) + residual for the rows of a strip that exist; o: a block. */
static inline void finish(const block *o, float16 sum, int biased,
                          __global const float *residual, __global float *y, size_t row) {
    float out[16];
    vstore16(sum, 0, out);
    for (int r = 0; r < min(16, o->m - o->r); r++) {
        size_t at = row + (size_t)(o->first + o->r + r);
        float v = out[r];
        v = biased ? v + ((__global const float *)o->bias)[o->r + r] : v;
        y[at] = residual != 0 ? v + residual[at] : v;
    }
}

#define ROWS 16
#define ROW_OF_ITEM 0

/* Groups: strips of all parts, tiles of 16 rows (a decode step has one). */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
#ifdef DECODE
void linear_decode(
#else
void linear_prefill(
#endif
    STEP, PART(0), PART(1), PART(2), IN(x), IN(residual), OUT(y), const int k, const int y_stride,
    const int biased, const int has_residual) {
    const int first = (int)get_global_id(1) * MOST_ROWS, n = min(LIVE - first, MOST_ROWS);
    const int blocks = k / GW_ACT_BLOCK;
    const block o = BLOCK((int)get_global_id(0));
    float16 sums[MOST_ROWS];
    if (n <= 0) {
        return;
    }
    strip_sums(o.w, o.high, o.head, o.sub, (size_t)(o.r / ROWS), blocks,
               READS(gw_act8, x) + (size_t)first * blocks, n, sums);
    for (int i = 0; i < n; i++) {
        finish(&o, sums[i], biased, has_residual ? READS(float, residual) : 0, WRITES(float, y),
               (size_t)(first + i) * y_stride);
    }
}

#else

/* Groups: strips that an expert may have, entries. The matrix is one of strips: an expert may begin
 * inside of one. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void experts_sum(STEP, WEIGHTS, EXPERTS_ARGS) {
    if (EXPERTS_ENTRY >= LIVE * used) {
        return;
    }
    EXPERTS_HERE;
    const int r0 = (expert * m / 16 + GROUP_ID(0)) * 16, begin = expert * m;
    if (r0 >= begin + m || r0 < first || r0 >= first + rows) {
        return;
    }
    float16 sum;
    float out[16];
    strip_sums(PLANES, (size_t)(r0 - first) / 16, k / GW_ACT_BLOCK, (__global const gw_act8 *)x, 1,
               &sum);
    vstore16(sum, 0, out);
    for (int i = max(begin - r0, 0); i < min(16, begin + m - r0); i++) {
        PUT_SUM(r0 - begin + i, out[i]);
    }
}

#endif
