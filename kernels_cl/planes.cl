/* kernels_cl/planes.cl - blocks of quantized weights out of their planes (see layout.c).
 *
 * The format is described by LOW_BITS, HIGH_BITS, OFFSET, LEVELS, KIND, HEAD_BYTES, HEAD_BLOCKS and
 * SUB_BYTES. Codes stay without a sign: the term takes OFFSET times the activations' sums off.
 */
#ifdef LOW_BITS

#define KIND_SIGNED 1
#define KIND_AFFINE 2
#define KIND_HALVES 3
#define KIND_Q2 4

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
        r |= (uint)(gw_iq4_level((int)(nibbles >> (8 * i) & 15u)) + 128) << (8 * i);
    }
    return r;
}

static inline void load_codes(PLANE_ARGS, size_t at, uint *c) {
#if LOW_BITS == 8
    uint4 a = ((__global const uint4 *)w)[2 * at], b = ((__global const uint4 *)w)[2 * at + 1];
    c[0] = a.s0, c[1] = a.s1, c[2] = a.s2, c[3] = a.s3;
    c[4] = b.s0, c[5] = b.s1, c[6] = b.s2, c[7] = b.s3;
#elif LOW_BITS == 4
    uint4 a = ((__global const uint4 *)w)[at];
    c[0] = a.s0 & 0x0f0f0f0fu, c[1] = a.s1 & 0x0f0f0f0fu;
    c[2] = a.s2 & 0x0f0f0f0fu, c[3] = a.s3 & 0x0f0f0f0fu;
    c[4] = a.s0 >> 4 & 0x0f0f0f0fu, c[5] = a.s1 >> 4 & 0x0f0f0f0fu;
    c[6] = a.s2 >> 4 & 0x0f0f0f0fu, c[7] = a.s3 >> 4 & 0x0f0f0f0fu;
#else
    uint2 a = ((__global const uint2 *)w)[at];
    for (int j = 0; j < 4; j++) {
        c[j] = a.s0 >> (2 * j) & 0x03030303u;
        c[4 + j] = a.s1 >> (2 * j) & 0x03030303u;
    }
#endif
#if HIGH_BITS == 1
    uint h = ((__global const uint *)(w + high_at))[at];
    for (int j = 0; j < 8; j++) {
        c[j] |= (h >> j & 0x01010101u) << LOW_BITS;
    }
#elif HIGH_BITS == 2
    uint2 h = ((__global const uint2 *)(w + high_at))[at];
    for (int j = 0; j < 4; j++) {
        c[j] |= (h.s0 >> (2 * j) & 0x03030303u) << LOW_BITS;
        c[4 + j] |= (h.s1 >> (2 * j) & 0x03030303u) << LOW_BITS;
    }
#endif
#if LEVELS
    for (int j = 0; j < 8; j++) {
        c[j] = level_word(c[j]);
    }
#endif
}

/* Block b of a row; blocks: of a row. */
static inline void load_block(PLANE_ARGS, int row, int b, int blocks, wblock *o) {
    size_t at = (size_t)row * blocks + b;
    load_codes(w, high_at, head_at, sub_at, at, o->c);
#if HEAD_BLOCKS == 0
    o->ws = ((__global const float *)(w + head_at))[row];
#else
    size_t head = (size_t)row * ((blocks + HEAD_BLOCKS - 1) / HEAD_BLOCKS) + b / HEAD_BLOCKS;
#if HEAD_BYTES == 2
    o->ws = gw_f16_to_f32(((__global const ushort *)(w + head_at))[head]);
#else
    uint both = ((__global const uint *)(w + head_at))[head];
    o->ws = gw_f16_to_f32((ushort)(both & 0xffffu));
    o->wm = gw_f16_to_f32((ushort)(both >> 16));
#endif
#endif
#if SUB_BYTES
    uint sub = ((__global const ushort *)(w + sub_at))[at];
#if KIND == KIND_HALVES
    o->s0 = (char)(sub & 255u);
    o->s1 = (char)(sub >> 8);
#elif KIND == KIND_Q2
    o->s0 = (int)(sub & 15u), o->m0 = (int)(sub >> 4 & 15u);
    o->s1 = (int)(sub >> 8 & 15u), o->m1 = (int)(sub >> 12);
#elif KIND == KIND_AFFINE
    o->ws = o->ws * (float)(sub & 255u);
    o->wm = -(o->wm * (float)(sub >> 8));
#else
    o->ws = o->ws * (float)(char)(sub & 255u);
#endif
#endif
}

/* a: four codes without a sign; b: four int8. */
static inline int dot4(uint a, uint b, int sum) {
#ifdef GW_NV
    int r;
    __asm__("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
    return r;
#else
    uchar4 u = as_uchar4(a);
    char4 q = as_char4(b);
    return sum + (int)u.s0 * q.s0 + (int)u.s1 * q.s1 + (int)u.s2 * q.s2 + (int)u.s3 * q.s3;
#endif
}

/* The term of docs/arithmetic.md. q: eight words of activations; sums: two int16. */
static inline float add_term(const wblock *o, uint4 q0, uint4 q1, float dx, uint sums, float acc) {
    int sum0 = (short)(sums & 0xffffu), sum1 = (short)(sums >> 16);
    int a = -OFFSET * sum0, b = -OFFSET * sum1;
    a = dot4(o->c[0], q0.s0, a), a = dot4(o->c[1], q0.s1, a);
    a = dot4(o->c[2], q0.s2, a), a = dot4(o->c[3], q0.s3, a);
    b = dot4(o->c[4], q1.s0, b), b = dot4(o->c[5], q1.s1, b);
    b = dot4(o->c[6], q1.s2, b), b = dot4(o->c[7], q1.s3, b);
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
#endif
