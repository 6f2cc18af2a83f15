/* kernels_cl/linear_item.cl - y = x W^T with quantized weights, for processors: a work-item takes a
 * strip of 16 rows, vector lanes are rows, and up to 16 activation rows share one unpacking.
 */
#define MOST_ROWS 16

typedef struct strip_block {
    uint16 even[8], odd[8]; /* codes as int16 pairs: weights 4 j, 4 j + 2 and 4 j + 1, 4 j + 3 */
    float16 ws, wm;
    int16 s0, s1, m0, m1;
} strip_block;

static inline float16 widen16(uint16 bits) {
    uint16 sign = (bits & 0x8000u) << 16, expo = bits >> 10 & 0x1fu, frac = bits & 0x3ffu;
    float16 tiny = convert_float16(convert_int16(frac)) * 5.9604644775390625e-8f;
    uint16 normal = select((expo + 112u) << 23, (uint16)0x7f800000u, expo == 31u) | frac << 13;
    return as_float16(select(normal, as_uint16(tiny), expo == 0u) | sign);
}

#if LEVELS
static inline uint16 level16(uint16 nibbles) {
    uint16 out = 0u;
    for (int i = 0; i < 4; i++) {
        uint16 n = nibbles >> (uint)(8 * i) & 15u;
        uint16 low = select((uint16)0xbfad9881u, (uint16)0xf6eaddcfu, (n & 4u) != 0u);
        uint16 high = select((uint16)0x26190d01u, (uint16)0x71594535u, (n & 4u) != 0u);
        uint16 word = select(low, high, (n & 8u) != 0u);
        out |= ((word >> ((n & 3u) * 8u) & 255u) ^ 128u) << (uint)(8 * i);
    }
    return out;
}
#endif

#define STRIP_WORD(plane, index) vload16(index, (__global const uint *)(plane))

static inline void unpack(PLANE_ARGS, size_t strip, int b, int blocks, strip_block *o) {
    size_t at = strip * blocks + b;
    uint16 c[8];
#if LOW_BITS == 8
    for (int j = 0; j < 8; j++) {
        c[j] = STRIP_WORD(w, at * 8 + j);
    }
#elif LOW_BITS == 4
    for (int j = 0; j < 4; j++) {
        uint16 a = STRIP_WORD(w, at * 4 + j);
        c[j] = a & 0x0f0f0f0fu;
        c[4 + j] = a >> 4u & 0x0f0f0f0fu;
    }
#else
    for (int j = 0; j < 8; j++) {
        c[j] = STRIP_WORD(w, at * 2 + j / 4) >> (uint)(2 * (j & 3)) & 0x03030303u;
    }
#endif
#if HIGH_BITS == 1
    uint16 h = STRIP_WORD(w + high_at, at);
    for (int j = 0; j < 8; j++) {
        c[j] |= (h >> (uint)j & 0x01010101u) << LOW_BITS;
    }
#elif HIGH_BITS == 2
    for (int j = 0; j < 8; j++) {
        uint16 h = STRIP_WORD(w + high_at, at * 2 + j / 4);
        c[j] |= (h >> (uint)(2 * (j & 3)) & 0x03030303u) << LOW_BITS;
    }
#endif
    for (int j = 0; j < 8; j++) {
#if LEVELS
        c[j] = level16(c[j]);
#endif
        o->even[j] = c[j] & 0x00ff00ffu;
        o->odd[j] = c[j] >> 8u & 0x00ff00ffu;
    }
#if HEAD_BLOCKS == 0
    o->ws = vload16(strip, (__global const float *)(w + head_at));
#else
    size_t head = strip * ((blocks + HEAD_BLOCKS - 1) / HEAD_BLOCKS) + b / HEAD_BLOCKS;
#if HEAD_BYTES == 2
    o->ws = widen16(convert_uint16(vload16(head, (__global const ushort *)(w + head_at))));
#else
    uint16 both = STRIP_WORD(w + head_at, head);
    o->ws = widen16(both & 0xffffu);
    o->wm = widen16(both >> 16u);
#endif
#endif
#if SUB_BYTES
    uint16 sub = convert_uint16(vload16(at, (__global const ushort *)(w + sub_at)));
#if KIND == KIND_HALVES
    o->s0 = as_int16(sub << 24u) >> 24;
    o->s1 = as_int16(sub << 16u) >> 24;
#elif KIND == KIND_Q2
    o->s0 = as_int16(sub & 15u), o->m0 = as_int16(sub >> 4u & 15u);
    o->s1 = as_int16(sub >> 8u & 15u), o->m1 = as_int16(sub >> 12u);
#elif KIND == KIND_AFFINE
    o->ws = o->ws * convert_float16(as_int16(sub & 255u));
    o->wm = -(o->wm * convert_float16(as_int16(sub >> 8u)));
#else
    o->ws = o->ws * convert_float16(as_int16(sub << 24u) >> 24);
#endif
#endif
}

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

static inline int16 dot_words(const strip_block *o, const uint *even, const uint *odd, int from) {
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
    return (int16)(low, high);
}

static inline float16 add_term(const strip_block *o, __global const gw_act8 *x, float16 acc) {
    short16 q = vload16(0, (__global const short *)x->q);
    short16 even = (q << (short16)8) >> (short16)8, odd = q >> (short16)8;
    uint e[8], d[8];
    vstore8(as_uint8(even), 0, e);
    vstore8(as_uint8(odd), 0, d);
    float dx = x->scale;
    int sum0 = x->sum[0], sum1 = x->sum[1];
    int16 a = dot_words(o, e, d, 0), b = dot_words(o, e, d, 4);
#if KIND == KIND_SIGNED || KIND == KIND_AFFINE
    acc = fma(o->ws * dx, convert_float16(a + b - OFFSET * (sum0 + sum1)), acc);
#else
    a = o->s0 * (a - OFFSET * sum0) + o->s1 * (b - OFFSET * sum1);
    acc = fma(o->ws * dx, convert_float16(a), acc);
#endif
#if KIND == KIND_AFFINE
    acc = fma(o->wm, (float16)(dx * (float)(sum0 + sum1)), acc);
#elif KIND == KIND_Q2
    acc = fma(-(o->wm * dx), convert_float16(o->m0 * sum0 + o->m1 * sum1), acc);
#endif
    return acc;
}

#define LINEAR_ARGS                                                                                \
    STEP, WEIGHTS, IN(x), IN(bias), IN(residual), OUT(y), const int m, const int k,               \
        const int y_stride, const int flags

/* y = (sum + bias) + residual for the rows of a strip that exist. */
#define FINISH(sum, i)                                                                             \
    do {                                                                                           \
        float out_[16];                                                                            \
        vstore16(sum, 0, out_);                                                                    \
        for (int r_ = 0; r_ < min(16, m - (int)strip * 16); r_++) {                               \
            size_t at_ = (size_t)(i) * y_stride + strip * 16 + r_;                                 \
            float v_ = out_[r_];                                                                   \
            v_ = flags & 1 ? v_ + READS(float, bias)[strip * 16 + r_] : v_;                        \
            v_ = flags & 2 ? v_ + READS(float, residual)[at_] : v_;                                \
            WRITES(float, y)[at_] = v_;                                                            \
        }                                                                                          \
    } while (0)

#ifdef DECODE_ROWS

/* Groups: strips, tiles of 16 rows (a decode step has one). */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void linear_decode(LINEAR_ARGS) {
    const size_t strip = get_global_id(0);
    const int first = (int)get_global_id(1) * MOST_ROWS, n = min(LIVE - first, MOST_ROWS);
    const int blocks = k / GW_ACT_BLOCK;
    float16 acc[MOST_ROWS][GW_LANES];
    for (int i = 0; i < n; i++) {
        for (int l = 0; l < GW_LANES; l++) {
            acc[i][l] = 0.0f;
        }
    }
    for (int b = 0; b < blocks; b++) {
        strip_block o;
        unpack(PLANES, strip, b, blocks, &o);
        for (int i = 0; i < n; i++) {
            __global const gw_act8 *x = READS(gw_act8, x) + (size_t)(first + i) * blocks + b;
            acc[i][b % GW_LANES] = add_term(&o, x, acc[i][b % GW_LANES]);
        }
    }
    for (int i = 0; i < n; i++) {
        for (int h = GW_LANES / 2; h > 0; h /= 2) {
            for (int l = 0; l < h; l++) {
                acc[i][l] = acc[i][l] + acc[i][l + h];
            }
        }
        FINISH(acc[i][0], first + i);
    }
}

#else

/* Groups: strips, tiles of 16 rows. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void linear_prefill(LINEAR_ARGS) {
    const size_t strip = get_global_id(0);
    const int first = (int)get_global_id(1) * MOST_ROWS, n = min(LIVE - first, MOST_ROWS);
    const int blocks = k / GW_ACT_BLOCK;
    if (n <= 0) {
        return;
    }
    float16 acc[MOST_ROWS];
    for (int i = 0; i < n; i++) {
        acc[i] = 0.0f;
    }
    for (int b = 0; b < blocks; b++) {
        strip_block o;
        unpack(PLANES, strip, b, blocks, &o);
        for (int i = 0; i < n; i++) {
            acc[i] = add_term(&o, READS(gw_act8, x) + (size_t)(first + i) * blocks + b, acc[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        FINISH(acc[i], first + i);
    }
}

#endif
