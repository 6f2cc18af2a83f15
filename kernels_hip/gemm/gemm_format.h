/* kernels_hip/gemm/gemm_format.h - what the prompt's products with quantized weights share: records
 * of weights as int8 operands, the numbers of rows and of tokens, and the term of a block of 32.
 */
#ifndef GW_KERNELS_HIP_GEMM_FORMAT_H
#define GW_KERNELS_HIP_GEMM_FORMAT_H

#include "kernels_hip/device.h"

#include "core/tensor/blocks.h"
#include "core/tensor/planes.h"
#include "kernels_hip/act8.h"
#include "kernels_hip/gemm/gemm_tile.h"
#include "kernels_hip/strip.h"

enum { BLOCKS = GW_STRIP_BLOCKS, ACT_BYTES = 40, WIDE = GW_MMA && GW_QUADS };

#define MAGIC 12582912.0f
#define MAGIC_BITS 0x4b400000

struct __align__(8) words2 {
    unsigned w[2];
};
struct __align__(8) floats2 {
    float v[2];
};

__device__ static inline void load2(unsigned *to, const void *from) {
    const words2 v = *(const words2 *)from;
    to[0] = v.w[0], to[1] = v.w[1];
}
__device__ static inline void load4(unsigned *to, const void *from) {
    const gw_16b v = *(const gw_16b *)from;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[i] = v.w[i];
    }
}
__device__ static inline void store4(void *to, const unsigned *from) {
    const gw_16b v = {{from[0], from[1], from[2], from[3]}};
    *(gw_16b *)to = v;
}

/* A row of GW_STRIP_FORMATS. */
template <int LOW_, int HIGH_, int OFFSET_, int LEVELS_, int TERM_, int SUB_, int HEADS_,
          int BYTES_>
struct format {
    static constexpr int LOW = LOW_, HIGH = HIGH_, OFFSET = OFFSET_, LEVELS = LEVELS_, TERM = TERM_,
                         SUB = SUB_, HEADS = HEADS_, BYTES = BYTES_;
    static constexpr int RECORD = GW_STRIP_RECORD(LOW, HIGH, SUB, HEADS, BYTES),
                         AT_HIGH = GW_STRIP_LOW(LOW), AT_SUB = AT_HIGH + GW_STRIP_HIGH(HIGH),
                         AT_HEAD = AT_SUB + GW_STRIP_SUB(SUB);
    /* Integer scales of halves of a block. */
    static constexpr int HALVES = TERM == GW_TERM_HALVES || TERM == GW_TERM_Q2;
    /* One integer sum and one term for all blocks of a record. */
    static constexpr int SPAN = TERM == GW_TERM_SPAN, AFFINE = TERM == GW_TERM_AFFINE || SPAN;
    /* A record is one term of a prompt, its integer sums times integer scales. MINIMUMS: and less
     * the sums of its tokens' codes times integer minimums. */
    static constexpr int SCALED = SUB != 0, MINIMUMS = SCALED && (AFFINE || TERM == GW_TERM_Q2);
    static constexpr int WHOLE = SPAN || SCALED; /* records of prompts are terms */
    static constexpr int FORM = GW_GROUP_FORM(LOW, HIGH, LEVELS, TERM, SUB);
    /* Codes without their offset at the top of a byte, so that one bit flips: this far up. */
    static constexpr int UP = TERM != GW_TERM_SIGNED || OFFSET == 0 ? 0 : OFFSET == 8 ? 4 : 3;
    /* Numbers per block of a row, of a token; of a row in a prompt's term. */
    static constexpr int ROW = TERM == GW_TERM_Q2 ? 7
                               : HALVES           ? 4
                               : AFFINE           ? 2
                                                  : 1,
                         TOKEN = GW_GEMM_NUMBERS(TERM), PROMPT_ROW = WHOLE ? 2 : ROW;
    /* Codes as stored are numbers from 0 on, of which OFFSET is to be taken. */
    static constexpr int UNSIGNED = LOW != 8 && !LEVELS;
};

/* ---- records --------------------------------------------------------------------------------- */

/* Codes of quarter t of a row in the BLOCKS blocks of a record. */
template <class F> struct quarter { unsigned low[F::LOW], high[2]; };

template <class F>
__device__ static inline void load_quarter(quarter<F> &q, const unsigned char *record, int row,
                                           int t) {
    if (F::LOW >= 4) {
#pragma unroll
        for (int h = 0; h < F::LOW / 4; h++) {
            load4(q.low + 4 * h, record + 1024 * h + GW_STRIP_AT_16(row, t));
        }
    } else {
        load2(q.low, record + GW_STRIP_AT_8(row, t));
    }
    if (F::HIGH == 1) {
        q.high[0] = *(const unsigned *)(record + F::AT_HIGH + 16 * row + 4 * t);
    } else if (F::HIGH == 2) {
        load2(q.high, record + F::AT_HIGH + GW_STRIP_AT_8(row, t));
    }
}

/* The level of each nibble: of the first eight by `low`, of the others by `high`. */
template <int LEVELS> __device__ static inline unsigned levels(unsigned n) {
    const unsigned from = n & 0x07070707u;
    const unsigned low = gw_pick_bytes(GW_LEVEL_WORD(LEVELS, 1), GW_LEVEL_WORD(LEVELS, 0), from);
    if (GW_LEVEL_WORD(LEVELS, 2) == 0) { /* codes of three bits */
        return low;
    }
    const unsigned high = gw_pick_bytes(GW_LEVEL_WORD(LEVELS, 3), GW_LEVEL_WORD(LEVELS, 2), from);
    const unsigned mask = (n >> 3 & 0x01010101u) * 255u;
    return (low & ~mask) | (high & mask);
}

/* The levels of the nibbles of n: w[0] of the lower ones, w[1] of the upper ones. NVIDIA's
 * permutation takes its indices from nibbles side by side, as they are stored, and spreads a byte's
 * first bit: 13 instructions for eight codes. */
template <int LEVELS> __device__ static inline void level_pairs(unsigned n, unsigned *w) {
#if defined(GW_NVIDIA)
    const unsigned at = n & 0x77777777u;
    unsigned near = __byte_perm(GW_LEVEL_WORD(LEVELS, 0), GW_LEVEL_WORD(LEVELS, 1), at);
    unsigned far = __byte_perm(GW_LEVEL_WORD(LEVELS, 0), GW_LEVEL_WORD(LEVELS, 1), at >> 16);
    if (GW_LEVEL_WORD(LEVELS, 2) != 0) {
        const unsigned up = n << 4;
        unsigned mask, other; /* of the codes from 8 on */
        asm("prmt.b32 %0, %1, %2, 0xd9c8;" : "=r"(mask) : "r"(up), "r"(n));
        asm("prmt.b32 %0, %1, %2, 0xfbea;" : "=r"(other) : "r"(up), "r"(n));
        const unsigned a = __byte_perm(GW_LEVEL_WORD(LEVELS, 2), GW_LEVEL_WORD(LEVELS, 3), at);
        const unsigned b =
            __byte_perm(GW_LEVEL_WORD(LEVELS, 2), GW_LEVEL_WORD(LEVELS, 3), at >> 16);
        near = (near & ~mask) | (a & mask);
        far = (far & ~other) | (b & other);
    }
    w[0] = __byte_perm(near, far, 0x6420);
    w[1] = __byte_perm(near, far, 0x7531);
#else
    w[0] = levels<LEVELS>(n & 0x0f0f0f0fu);
    w[1] = levels<LEVELS>(n >> 4 & 0x0f0f0f0fu);
#endif
}

/* Weights 16h + 4t .. +3 of block i as int8, times 2^UP; or as stored: UNSIGNED says how. */
template <class F, int UP = F::UP, int STORED = 0>
__device__ static inline unsigned codes(const quarter<F> &q, int i, int h) {
    unsigned c;
    if (F::LOW == 8) {
        return q.low[(4 * h + i) % F::LOW];
    }
    if (F::LOW == 4 && F::HIGH == 0 && UP) {
        return gw_and_xor(h ? q.low[i] : q.low[i] << 4, 0xf0f0f0f0u, 0x80808080u);
    }
    if (F::LOW == 4) {
        c = q.low[i] >> (4 * h) & 0x0f0f0f0fu;
    } else {
        c = q.low[i / 2] >> (2 * (2 * (i % 2) + h)) & 0x03030303u;
    }
    if (F::HIGH == 1) {
        c |= (q.high[0] >> (2 * i + h) & 0x01010101u) << F::LOW;
    } else if (F::HIGH == 2) {
        c |= (q.high[i / 2] >> (2 * (2 * (i % 2) + h)) & 0x03030303u) << F::LOW;
    }
    if (F::LEVELS) {
        return levels<F::LEVELS>(c);
    }
    if (UP) {
        return (c << UP) ^ 0x80808080u;
    }
    return F::OFFSET && !STORED ? ((c | 0x80808080u) - F::OFFSET * 0x01010101u) ^ 0x80808080u : c;
}

/* Scales of a row in the BLOCKS blocks of a record. */
template <class F> struct scales { unsigned head[4], sub[2]; };

template <class F>
__device__ static inline void load_scales(scales<F> &s, const unsigned char *record, int row) {
    const unsigned char *head = record + F::AT_HEAD + row * F::HEADS * F::BYTES;
    if (F::HEADS * F::BYTES == 16) {
        load4(s.head, head);
    } else if (F::HEADS * F::BYTES == 8) {
        load2(s.head, head);
    } else if (F::HEADS * F::BYTES == 4) {
        s.head[0] = *(const unsigned *)head;
    } else if (F::HEADS * F::BYTES == 2) {
        s.head[0] = *(const uint16_t *)head;
    }
    if (F::SUB) {
        load2(s.sub, record + F::AT_SUB + 8 * row);
    }
}

/* The head of block i: d, and what stands behind it or 0. */
template <class F> __device__ static inline void head_numbers(const scales<F> &s, int i, float *o) {
    const int floats = F::BYTES == 4 && !F::AFFINE && F::TERM != GW_TERM_Q2; /* GW_HEAD_F32 */
    const int at = F::HEADS == 1 ? 0 : i;
    const unsigned head = F::BYTES == 4   ? s.head[at]
                          : F::BYTES == 1 ? s.head[0] >> 8 * at & 255u
                                          : s.head[at / 2] >> at % 2 * 16;
    o[0] = F::BYTES == 1 ? gw_e8m0_half(head)
           : floats      ? GW_F32_FROM_BITS(head)
                         : gw_widen_f16((gw_u16)head);
    o[1] = F::BYTES == 4 && !floats ? gw_widen_f16((gw_u16)(head >> 16)) : 0.0f;
}

/* Integer scale and minimum of block i; half: of HALVES, else 0. */
template <class F> __device__ static inline int integer_scale(const scales<F> &s, int i, int half) {
    const unsigned sub = s.sub[i / 2] >> (i % 2 * 16 + 8 * half);
    return F::TERM == GW_TERM_Q2 ? (int)(sub & 15u)
           : F::AFFINE           ? (int)(sub & 255u)
                                 : (int)(int8_t)(sub & 255u);
}
template <class F>
__device__ static inline int integer_minimum(const scales<F> &s, int i, int half) {
    const unsigned sub = s.sub[i / 2] >> i % 2 * 16;
    return (int)(F::TERM == GW_TERM_Q2 ? sub >> (8 * half + 4) & 15u : sub >> 8 & 255u);
}

/* What the term needs of a row for block i. */
template <class F> __device__ static inline void row_numbers(const scales<F> &s, int i, float *o) {
    float head[2];
    head_numbers<F>(s, i, head);
    const float d = head[0], m = F::AFFINE ? gw_plane_zero(d, head[1], F::OFFSET) : head[1];
    if (!F::HALVES) {
        o[0] = F::SUB ? d * (float)integer_scale<F>(s, i, 0) : d;
        if (F::AFFINE) {
            o[F::ROW - 1] = F::SUB ? -(m * (float)integer_minimum<F>(s, i, 0)) : m;
        }
        return;
    }
    const float s0 = (float)integer_scale<F>(s, i, 0);
    o[0] = d;
    o[1 % F::ROW] = s0;
    o[2 % F::ROW] = -(s0 * MAGIC);
    o[3 % F::ROW] = (float)integer_scale<F>(s, i, 1);
    if (F::TERM == GW_TERM_Q2) {
        o[4 % F::ROW] = -m;
        o[5 % F::ROW] = (float)integer_minimum<F>(s, i, 0);
        o[6 % F::ROW] = (float)integer_minimum<F>(s, i, 1);
    }
}

template <class F>
__device__ static inline void token_numbers(float scale, unsigned sums, float *o) {
    const int a = (int16_t)(sums & 0xffffu), b = (int16_t)(sums >> 16);
    o[0] = scale;
    if (F::AFFINE) {
        o[F::TOKEN - 1] = scale * (float)(a + b);
    } else if (F::TERM == GW_TERM_Q2) {
        o[1 % F::TOKEN] = (float)a;
        o[2 % F::TOKEN] = (float)b;
    }
}

/* The term. s, t: sums over the block, or over its halves. */
template <class F>
__device__ static inline float add_sums(float s, float t, const float *row, const float *token,
                                        float acc) {
    if (!F::HALVES) {
        acc = fmaf(row[0] * token[0], s, acc);
        return F::AFFINE ? fmaf(row[F::ROW - 1], token[F::TOKEN - 1], acc) : acc;
    }
    acc = fmaf(row[0] * token[0], fmaf(row[3 % F::ROW], t, s), acc);
    if (F::TERM == GW_TERM_Q2) {
        const float m =
            fmaf(row[5 % F::ROW], token[1 % F::TOKEN], row[6 % F::ROW] * token[2 % F::TOKEN]);
        acc = fmaf(row[4 % F::ROW] * token[0], m, acc);
    }
    return acc;
}

/* The same of sums that began at MAGIC. In HALVES, the second number takes MAGIC off within the
 * product: all of it is exact. */
template <class F>
__device__ static inline float add_term(int s, int t, const float *row, const float *token,
                                        float acc) {
    const float from = GW_F32_FROM_BITS((gw_u32)s);
    if (F::HALVES) {
        return add_sums<F>(fmaf(row[1 % F::ROW], from, row[2 % F::ROW]),
                           GW_F32_FROM_BITS((gw_u32)t) - MAGIC, row, token, acc);
    }
    return add_sums<F>(F::UP ? fmaf(from, 1.0f / (1 << F::UP), -MAGIC / (1 << F::UP)) /* exact */
                             : from - MAGIC,
                       0.0f, row, token, acc);
}

/* ---- terms of a prompt ----------------------------------------------------------------------- */

/* Of a block of a token, as it is in memory: its codes as they are multiplied, and its numbers.
 * Four neighbouring lanes have the blocks of a record; the whole team calls it. */
template <class F> __device__ static inline void prompt_block(unsigned *act, float *o) {
    if (F::SPAN) {
        gw_span_blocks(act);
    } else if (F::SCALED) {
        gw_span_halves(act);
    }
    const float scale = GW_F32_FROM_BITS(act[0]);
    token_numbers<F>(F::SCALED ? 1.0f : scale, act[1], o); /* sums stay integers, as floats */
    o[0] = scale;
}

/* What the term needs of a row, for block i or for the record. */
template <class F> __device__ static inline void prompt_row(const scales<F> &s, int i, float *o) {
    if (F::SCALED) {
        head_numbers<F>(s, 0, o);
    } else {
        row_numbers<F>(s, i, o);
    }
}

/* A block's part of the integer minimums times sums, which is exact: below 2^24. */
template <class F>
__device__ static inline float add_minimums(const scales<F> &s, int i, const float *token,
                                            float acc) {
#pragma unroll
    for (int h = 0; h < (F::HALVES ? 2 : 1); h++) {
        acc = fmaf((float)integer_minimum<F>(s, i, h), token[(1 + h) % F::TOKEN], acc);
    }
    return acc;
}

/* The term of a sum that began at MAGIC; SCALED: at 0, which may be above 2^24. */
template <class F>
__device__ static inline float prompt_term(int s, float minimums, const float *row,
                                           const float *token, float acc) {
    if (!F::SCALED) {
        return add_term<F>(s, 0, row, token, acc);
    }
    const float sum = (float)s; /* rounds */
    return fmaf(
        token[0],
        F::MINIMUMS ? fmaf(row[0], sum, -(row[1 % F::PROMPT_ROW] * minimums)) : row[0] * sum, acc);
}

#if GW_MMA
/* The sums of a block of 16 rows and GW_MMA_N tokens, or of its halves, that begin at MAGIC; or at
 * what is there. */
template <class F>
__device__ static inline void multiply(int *s, const unsigned *a, const unsigned *x,
                                       int begins = 1) {
#pragma unroll
    for (int k = 0; k < (F::HALVES ? 2 : 1) * GW_MMA_C; k++) {
        s[k] = begins ? MAGIC_BITS : s[k];
    }
    if (!F::HALVES) {
        gw_mma_int8(s, a, x);
    } else {
        gw_mma_int8_half<0>(s, a, x);
        gw_mma_int8_half<1>(s + (F::HALVES ? GW_MMA_C : 0), a, x);
    }
}

/* The products of block i of a record that is a term of a prompt, added to its sums for 16 rows and
 * GW_MMA_N tokens; the first block begins them. CC: neighbouring results of a row. */
template <class F, int CC>
__device__ static inline void multiply_record(int *sum, const unsigned *a, const unsigned *x,
                                              const scales<F> *scale, int i) {
    int s[(F::HALVES ? 2 : 1) * GW_MMA_C] = {0};
    if (!F::SCALED) {
        multiply<F>(sum, a, x, i == 0);
        return;
    }
    multiply<F>(s, a, x, 0);
#pragma unroll
    for (int k = 0; k < (F::HALVES ? 2 : 1) * GW_MMA_C; k++) {
        const int of = k % GW_MMA_C, half = k / GW_MMA_C;
        sum[of] =
            gw_mad24(integer_scale<F>(scale[of / CC], i, half), s[k], i + half == 0 ? 0 : sum[of]);
    }
}
#endif

/* ---- stages in shared memory ----------------------------------------------------------------- */

/* Byte of half h of block b of a token; neighbouring tokens use different banks. */
__device__ static inline int half_at(int token, int b, int h) {
    return token * (BLOCKS * GW_ACT_BLOCK) + ((2 * b + h) ^ (token & 7)) * 16;
}

#endif
