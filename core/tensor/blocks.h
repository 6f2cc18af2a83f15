/* core/tensor/blocks.h - weight blocks as bytes: layout, unpacking and THE term of every format.
 *
 * Read by C11, HIP C++ and OpenCL C 1.2 (dialect.h). A block is a struct of bytes only: no padding,
 * no alignment, no byte order of the host. Pure functions of one block; no loops over rows.
 *
 * Everything works on 32 weights at a time, the span of one activation block (gw_act8):
 *   gw_F_codes(block, sub, code)       the 32 integers of sub-block `sub` (0 .. weights / 32 - 1)
 *   gw_F_weights(block, sub, w)        the 32 weights they stand for
 *   gw_F_term(block, sub, x, acc)      acc + the dot product with x, as docs/arithmetic.md defines
 *   gw_F_prompt_term                   the same of GW_ACT_SPAN sub-blocks from `sub` on, in the
 *                                      order of prompts; of formats with integer scales only
 *
 * Layouts: the GGUF description of each type; multi-byte fields are little-endian.
 */
#ifndef GW_TENSOR_BLOCKS_H
#define GW_TENSOR_BLOCKS_H

#include "core/tensor/arith.h"
#include "core/tensor/format_list.h"

/* ---- reading fields ------------------------------------------------------------------------- */

GW_FN gw_u16 gw_load_u16(GW_GLOBAL const gw_u8 *p) { return (gw_u16)(p[0] | p[1] << 8); }
GW_FN float gw_load_f16(GW_GLOBAL const gw_u8 *p) { return gw_f16_to_f32(gw_load_u16(p)); }
GW_FN float gw_load_f32(GW_GLOBAL const gw_u8 *p) {
    gw_u32 low = gw_load_u16(p), high = gw_load_u16(p + 2);
    return GW_F32_FROM_BITS(low | high << 16);
}

/* ---- the three shapes of a term ------------------------------------------------------------- */

/* s, S and M are exact integers below 2^24 in size, so their conversion to float is exact:
 * |q| <= 127, so one half (16 products) is at most 16 * 127 * |code| = 2032 |code|, and
 *   signed   |code| <= 128              2 * 2032 * 128                =    520,192
 *   affine   code <= 31                 2 * 2032 * 31                 =    125,984
 *   Q6_K     |code| <= 32, |sc| <= 128  2 * 2032 * 32 * 128           = 16,646,144 < 16,777,216
 *   Q3_K     |code| <= 4,  |sc| <= 32   2 * 2032 * 4 * 32             =    520,192
 *   Q2_K     code <= 3, sc, m <= 15     2 * 2032 * 3 * 15, 2 * 2032 * 15 = 182,880, 60,960
 *   a span   code <= 15, GW_ACT_SPAN = 4 blocks   8 * 2032 * 15   =    243,840
 * sum[] is q summed over 16, at most 2032 in size; of a span 16,256.
 *
 * The sums of gw_scaled_term are GW_ACT_SPAN times as large: those of Q5_K (31,496,000), Q6_K
 * (66,584,576), IQ4_XS, IQ2_CODES and IQ3_XXS_CODES may be above 2^24. Their conversion to float
 * rounds once, to nearest, ties to even. */

/* Sum of code * q over the half that starts at `from` (0 or 16). */
GW_FN gw_i32 gw_dot16(const gw_i8 *code, GW_ACT const gw_act8 *x, int from) {
    gw_i32 s = 0;
    for (int i = from; i < from + 16; i++) {
        s += (gw_i32)code[i] * (gw_i32)x->q[i];
    }
    return s;
}

/* w = ws * code */
GW_FN float gw_term_signed(float ws, const gw_i8 *code, GW_ACT const gw_act8 *x, float acc) {
    gw_i32 s = gw_dot16(code, x, 0) + gw_dot16(code, x, 16);
    return GW_FMA(ws * x->scale, (float)s, acc);
}

/* w = ws * code + wm */
GW_FN float gw_term_affine(float ws, float wm, const gw_i8 *code, GW_ACT const gw_act8 *x,
                           float acc) {
    acc = gw_term_signed(ws, code, x, acc);
    return GW_FMA(wm, x->scale * (float)(x->sum[0] + x->sum[1]), acc);
}

/* w = (d * sc) * code, one integer scale per half */
GW_FN float gw_term_halves(float d, int sc0, int sc1, const gw_i8 *code, GW_ACT const gw_act8 *x,
                           float acc) {
    gw_i32 s = sc0 * gw_dot16(code, x, 0) + sc1 * gw_dot16(code, x, 16);
    return GW_FMA(d * x->scale, (float)s, acc);
}

/* ---- terms of a prompt: GW_ACT_SPAN blocks of a format with integer scales ---- */

/* Adds what a block has in such a term: sc0, sc1 and m0, m1 are the integer scales and minimums of
 * its halves. */
GW_FN void gw_add_scaled(gw_i32 *s, int sc0, int sc1, const gw_i8 *code, GW_ACT const gw_act8 *x) {
    *s += sc0 * gw_dot16(code, x, 0) + sc1 * gw_dot16(code, x, 16);
}
GW_FN void gw_add_minimums(gw_i32 *m, int m0, int m1, GW_ACT const gw_act8 *x) {
    *m += m0 * (gw_i32)x->sum[0] + m1 * (gw_i32)x->sum[1];
}
/* dx: the one scale of the activations. */
GW_FN float gw_scaled_term(float d, gw_i32 s, float dx, float acc) {
    return GW_FMA(dx, d * (float)s, acc);
}
GW_FN float gw_scaled_term_min(float d, float dmin, gw_i32 s, gw_i32 m, float dx, float acc) {
    return GW_FMA(dx, GW_FMA(d, (float)s, -(dmin * (float)m)), acc);
}

/* The term of blocks sub .. sub + GW_ACT_SPAN - 1 of a super-block `b`; x: gw_act8_span has been
 * there. sc, m: integer scale and minimum of half k of the super-block, expressions of k. */
#define GW_PROMPT_TERM(name, d, sc)                                                                \
    GW_FN float gw_##name##_prompt_term(GW_GLOBAL const gw_block_##name *b, int sub,               \
                                        GW_ACT const gw_act8 *x, float acc) {                      \
        gw_i32 s = 0;                                                                              \
        for (int i = 0, k = 2 * sub; i < GW_ACT_SPAN; i++, k += 2) {                               \
            gw_i8 code[32];                                                                        \
            gw_##name##_codes(b, sub + i, code);                                                   \
            gw_add_scaled(&s, sc(b, k), sc(b, k + 1), code, x + i);                                \
        }                                                                                          \
        return gw_scaled_term(d, s, x->scale, acc);                                                \
    }
#define GW_PROMPT_TERM_MIN(name, sc, min)                                                          \
    GW_FN float gw_##name##_prompt_term(GW_GLOBAL const gw_block_##name *b, int sub,               \
                                        GW_ACT const gw_act8 *x, float acc) {                      \
        gw_i32 s = 0, m = 0;                                                                       \
        for (int i = 0, k = 2 * sub; i < GW_ACT_SPAN; i++, k += 2) {                               \
            gw_i8 code[32];                                                                        \
            gw_##name##_codes(b, sub + i, code);                                                   \
            gw_add_scaled(&s, sc(b, k), sc(b, k + 1), code, x + i);                                \
            gw_add_minimums(&m, min(b, k), min(b, k + 1), x + i);                                  \
        }                                                                                          \
        return gw_scaled_term_min(gw_load_f16(b->d), gw_load_f16(b->dmin), s, m, x->scale, acc);   \
    }

GW_FN void gw_expand_signed(float ws, const gw_i8 *code, int from, int n, float *w) {
    for (int i = from; i < from + n; i++) {
        w[i] = ws * (float)code[i];
    }
}

GW_FN void gw_expand_affine(float ws, float wm, const gw_i8 *code, int from, int n, float *w) {
    for (int i = from; i < from + n; i++) {
        w[i] = GW_FMA(ws, (float)code[i], wm);
    }
}

/* 16 bytes hold 32 nibbles: byte j has weight j below and weight j + 16 above. */
GW_FN void gw_nibbles(GW_GLOBAL const gw_u8 *bytes, int minus, gw_i8 *code) {
    for (int j = 0; j < 16; j++) {
        code[j] = (gw_i8)((bytes[j] & 15) - minus);
        code[j + 16] = (gw_i8)((bytes[j] >> 4) - minus);
    }
}

/* ---- Q8_0: w = d * q ------------------------------------------------------------------------ */

typedef struct gw_block_q8_0 {
    gw_u8 d[2]; /* f16 */
    gw_i8 q[32];
} gw_block_q8_0;

GW_FN void gw_q8_0_codes(GW_GLOBAL const gw_block_q8_0 *b, int sub, gw_i8 *code) {
    (void)sub;
    for (int i = 0; i < 32; i++) {
        code[i] = b->q[i];
    }
}
GW_FN void gw_q8_0_weights(GW_GLOBAL const gw_block_q8_0 *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q8_0_codes(b, sub, code);
    gw_expand_signed(gw_load_f16(b->d), code, 0, 32, w);
}
GW_FN float gw_q8_0_term(GW_GLOBAL const gw_block_q8_0 *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q8_0_codes(b, sub, code);
    return gw_term_signed(gw_load_f16(b->d), code, x, acc);
}

/* ---- Q4_0: w = d * (nibble - 8) ------------------------------------------------------------- */

typedef struct gw_block_q4_0 {
    gw_u8 d[2]; /* f16 */
    gw_u8 nibbles[16];
} gw_block_q4_0;

GW_FN void gw_q4_0_codes(GW_GLOBAL const gw_block_q4_0 *b, int sub, gw_i8 *code) {
    (void)sub;
    gw_nibbles(b->nibbles, 8, code);
}
GW_FN void gw_q4_0_weights(GW_GLOBAL const gw_block_q4_0 *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q4_0_codes(b, sub, code);
    gw_expand_signed(gw_load_f16(b->d), code, 0, 32, w);
}
GW_FN float gw_q4_0_term(GW_GLOBAL const gw_block_q4_0 *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q4_0_codes(b, sub, code);
    return gw_term_signed(gw_load_f16(b->d), code, x, acc);
}

/* ---- Q4_1: w = d * nibble + m --------------------------------------------------------------- */

typedef struct gw_block_q4_1 {
    gw_u8 d[2], m[2]; /* f16 */
    gw_u8 nibbles[16];
} gw_block_q4_1;

GW_FN void gw_q4_1_codes(GW_GLOBAL const gw_block_q4_1 *b, int sub, gw_i8 *code) {
    (void)sub;
    gw_nibbles(b->nibbles, 0, code);
}
GW_FN void gw_q4_1_weights(GW_GLOBAL const gw_block_q4_1 *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q4_1_codes(b, sub, code);
    gw_expand_affine(gw_load_f16(b->d), gw_load_f16(b->m), code, 0, 32, w);
}
GW_FN float gw_q4_1_term(GW_GLOBAL const gw_block_q4_1 *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q4_1_codes(b, sub, code);
    return gw_term_affine(gw_load_f16(b->d), gw_load_f16(b->m), code, x, acc);
}

/* ---- Q5_0: w = d * (5 bits - 16); bit i of `high` is the fifth bit of weight i -------------- */

typedef struct gw_block_q5_0 {
    gw_u8 d[2]; /* f16 */
    gw_u8 high[4];
    gw_u8 nibbles[16];
} gw_block_q5_0;

GW_FN void gw_fifth_bits(GW_GLOBAL const gw_u8 *high, gw_i8 *code) {
    for (int i = 0; i < 32; i++) {
        code[i] = (gw_i8)(code[i] + ((high[i / 8] >> (i % 8) & 1) << 4));
    }
}
GW_FN void gw_q5_0_codes(GW_GLOBAL const gw_block_q5_0 *b, int sub, gw_i8 *code) {
    (void)sub;
    gw_nibbles(b->nibbles, 16, code);
    gw_fifth_bits(b->high, code);
}
GW_FN void gw_q5_0_weights(GW_GLOBAL const gw_block_q5_0 *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q5_0_codes(b, sub, code);
    gw_expand_signed(gw_load_f16(b->d), code, 0, 32, w);
}
GW_FN float gw_q5_0_term(GW_GLOBAL const gw_block_q5_0 *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q5_0_codes(b, sub, code);
    return gw_term_signed(gw_load_f16(b->d), code, x, acc);
}

/* ---- Q5_1: w = d * 5 bits + m --------------------------------------------------------------- */

typedef struct gw_block_q5_1 {
    gw_u8 d[2], m[2]; /* f16 */
    gw_u8 high[4];
    gw_u8 nibbles[16];
} gw_block_q5_1;

GW_FN void gw_q5_1_codes(GW_GLOBAL const gw_block_q5_1 *b, int sub, gw_i8 *code) {
    (void)sub;
    gw_nibbles(b->nibbles, 0, code);
    gw_fifth_bits(b->high, code);
}
GW_FN void gw_q5_1_weights(GW_GLOBAL const gw_block_q5_1 *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q5_1_codes(b, sub, code);
    gw_expand_affine(gw_load_f16(b->d), gw_load_f16(b->m), code, 0, 32, w);
}
GW_FN float gw_q5_1_term(GW_GLOBAL const gw_block_q5_1 *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q5_1_codes(b, sub, code);
    return gw_term_affine(gw_load_f16(b->d), gw_load_f16(b->m), code, x, acc);
}

/* ---- K formats: 256 weights; sub-block `sub` is weights 32 sub .. 32 sub + 31 --------------- */

/* Two bits of 32 weights: plane sub / 4 of 32 bytes, bits 2 (sub % 4) and up. */
GW_FN void gw_two_bits(GW_GLOBAL const gw_u8 *bytes, int sub, gw_i8 *code) {
    for (int i = 0; i < 32; i++) {
        code[i] = (gw_i8)(bytes[sub / 4 * 32 + i] >> (sub % 4 * 2) & 3);
    }
}

/* Q2_K: w = d * sc * code - dmin * m; scales[h] of half h = 2 sub, 2 sub + 1: sc below, m above. */
typedef struct gw_block_q2_k {
    gw_u8 scales[16];
    gw_u8 codes[64];
    gw_u8 d[2], dmin[2]; /* f16 */
} gw_block_q2_k;

GW_FN int gw_q2_k_scale(GW_GLOBAL const gw_block_q2_k *b, int half_block) {
    return b->scales[half_block] & 15;
}
GW_FN int gw_q2_k_min(GW_GLOBAL const gw_block_q2_k *b, int half_block) {
    return b->scales[half_block] >> 4;
}
GW_FN void gw_q2_k_codes(GW_GLOBAL const gw_block_q2_k *b, int sub, gw_i8 *code) {
    gw_two_bits(b->codes, sub, code);
}
GW_FN void gw_q2_k_weights(GW_GLOBAL const gw_block_q2_k *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q2_k_codes(b, sub, code);
    for (int h = 0; h < 2; h++) {
        float ws = gw_load_f16(b->d) * (float)gw_q2_k_scale(b, 2 * sub + h);
        float wm = -(gw_load_f16(b->dmin) * (float)gw_q2_k_min(b, 2 * sub + h));
        gw_expand_affine(ws, wm, code, 16 * h, 16, w);
    }
}
GW_FN float gw_q2_k_term(GW_GLOBAL const gw_block_q2_k *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q2_k_codes(b, sub, code);
    acc = gw_term_halves(gw_load_f16(b->d), gw_q2_k_scale(b, 2 * sub),
                         gw_q2_k_scale(b, 2 * sub + 1), code, x, acc);
    gw_i32 m = gw_q2_k_min(b, 2 * sub) * x->sum[0] + gw_q2_k_min(b, 2 * sub + 1) * x->sum[1];
    return GW_FMA(-(gw_load_f16(b->dmin) * x->scale), (float)m, acc);
}
GW_PROMPT_TERM_MIN(q2_k, gw_q2_k_scale, gw_q2_k_min)

/* Q3_K: w = d * sc * code, code = 2 bits, less 4 where bit sub of high[i] is clear, sc = 6 bits
 * - 32. Scale h: four bits in nibble h / 8 of scales[h % 8], two in bits 2 (h / 4) of scales[8 + h
 * % 4]. */
typedef struct gw_block_q3_k {
    gw_u8 high[32];
    gw_u8 codes[64];
    gw_u8 scales[12];
    gw_u8 d[2]; /* f16 */
} gw_block_q3_k;

GW_FN int gw_q3_k_scale(GW_GLOBAL const gw_block_q3_k *b, int half_block) {
    int low = b->scales[half_block % 8] >> (half_block / 8 * 4) & 15;
    int high = b->scales[8 + half_block % 4] >> (half_block / 4 * 2) & 3;
    return (low | high << 4) - 32;
}
GW_FN void gw_q3_k_codes(GW_GLOBAL const gw_block_q3_k *b, int sub, gw_i8 *code) {
    gw_two_bits(b->codes, sub, code);
    for (int i = 0; i < 32; i++) {
        code[i] = (gw_i8)(code[i] + ((b->high[i] >> sub & 1) << 2) - 4);
    }
}
GW_FN void gw_q3_k_weights(GW_GLOBAL const gw_block_q3_k *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q3_k_codes(b, sub, code);
    for (int h = 0; h < 2; h++) {
        float ws = gw_load_f16(b->d) * (float)gw_q3_k_scale(b, 2 * sub + h);
        gw_expand_signed(ws, code, 16 * h, 16, w);
    }
}
GW_FN float gw_q3_k_term(GW_GLOBAL const gw_block_q3_k *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q3_k_codes(b, sub, code);
    return gw_term_halves(gw_load_f16(b->d), gw_q3_k_scale(b, 2 * sub),
                          gw_q3_k_scale(b, 2 * sub + 1), code, x, acc);
}
GW_PROMPT_TERM(q3_k, gw_load_f16(b->d), gw_q3_k_scale)

/* Six-bit scale and minimum of sub-block `sub`, from the 12 bytes that Q4_K and Q5_K share:
 * 0..3 in the low six bits of bytes 0..3 (scale) and 4..7 (minimum); 4..7 in the nibbles of bytes
 * 8..11 (scale low, minimum high) with the top two bits of bytes 0..3 and 4..7 above them. */
GW_FN int gw_six_bit_scale(GW_GLOBAL const gw_u8 *scales, int sub) {
    return sub < 4 ? scales[sub] & 63 : (scales[sub + 4] & 15) | (scales[sub - 4] >> 6) << 4;
}
GW_FN int gw_six_bit_min(GW_GLOBAL const gw_u8 *scales, int sub) {
    return sub < 4 ? scales[sub + 4] & 63 : scales[sub + 4] >> 4 | (scales[sub] >> 6) << 4;
}

/* Sub-blocks 2 t and 2 t + 1 are the low and the high nibbles of bytes 32 t .. 32 t + 31. */
GW_FN void gw_k_nibbles(GW_GLOBAL const gw_u8 *bytes, int sub, gw_i8 *code) {
    for (int i = 0; i < 32; i++) {
        code[i] = (gw_i8)(bytes[sub / 2 * 32 + i] >> (sub % 2 * 4) & 15);
    }
}

/* Q4_K: w = d * sc * code - dmin * m. */
typedef struct gw_block_q4_k {
    gw_u8 d[2], dmin[2]; /* f16 */
    gw_u8 scales[12];
    gw_u8 nibbles[128];
} gw_block_q4_k;

GW_FN float gw_q4_k_ws(GW_GLOBAL const gw_block_q4_k *b, int sub) {
    return gw_load_f16(b->d) * (float)gw_six_bit_scale(b->scales, sub);
}
GW_FN float gw_q4_k_wm(GW_GLOBAL const gw_block_q4_k *b, int sub) {
    return -(gw_load_f16(b->dmin) * (float)gw_six_bit_min(b->scales, sub));
}
GW_FN void gw_q4_k_codes(GW_GLOBAL const gw_block_q4_k *b, int sub, gw_i8 *code) {
    gw_k_nibbles(b->nibbles, sub, code);
}
GW_FN void gw_q4_k_weights(GW_GLOBAL const gw_block_q4_k *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q4_k_codes(b, sub, code);
    gw_expand_affine(gw_q4_k_ws(b, sub), gw_q4_k_wm(b, sub), code, 0, 32, w);
}
GW_FN float gw_q4_k_term(GW_GLOBAL const gw_block_q4_k *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q4_k_codes(b, sub, code);
    return gw_term_affine(gw_q4_k_ws(b, sub), gw_q4_k_wm(b, sub), code, x, acc);
}
#define GW_SCALE_OF_HALF(b, k) gw_six_bit_scale((b)->scales, (k) / 2)
#define GW_MIN_OF_HALF(b, k) gw_six_bit_min((b)->scales, (k) / 2)
GW_PROMPT_TERM_MIN(q4_k, GW_SCALE_OF_HALF, GW_MIN_OF_HALF)

/* Q5_K: the same with a fifth bit: bit sub of high[i]. */
typedef struct gw_block_q5_k {
    gw_u8 d[2], dmin[2]; /* f16 */
    gw_u8 scales[12];
    gw_u8 high[32];
    gw_u8 nibbles[128];
} gw_block_q5_k;

GW_FN float gw_q5_k_ws(GW_GLOBAL const gw_block_q5_k *b, int sub) {
    return gw_load_f16(b->d) * (float)gw_six_bit_scale(b->scales, sub);
}
GW_FN float gw_q5_k_wm(GW_GLOBAL const gw_block_q5_k *b, int sub) {
    return -(gw_load_f16(b->dmin) * (float)gw_six_bit_min(b->scales, sub));
}
GW_FN void gw_q5_k_codes(GW_GLOBAL const gw_block_q5_k *b, int sub, gw_i8 *code) {
    gw_k_nibbles(b->nibbles, sub, code);
    for (int i = 0; i < 32; i++) {
        code[i] = (gw_i8)(code[i] + ((b->high[i] >> sub & 1) << 4));
    }
}
GW_FN void gw_q5_k_weights(GW_GLOBAL const gw_block_q5_k *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q5_k_codes(b, sub, code);
    gw_expand_affine(gw_q5_k_ws(b, sub), gw_q5_k_wm(b, sub), code, 0, 32, w);
}
GW_FN float gw_q5_k_term(GW_GLOBAL const gw_block_q5_k *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q5_k_codes(b, sub, code);
    return gw_term_affine(gw_q5_k_ws(b, sub), gw_q5_k_wm(b, sub), code, x, acc);
}
GW_PROMPT_TERM_MIN(q5_k, GW_SCALE_OF_HALF, GW_MIN_OF_HALF)

/* Q6_K: w = d * sc * (6 bits - 32), int8 scales. With sub = 4 t + j: four bits in nibble j / 2 of
 * low[64 t + 32 (j % 2) + i], two in bits 2 j of high[32 t + i]. */
typedef struct gw_block_q6_k {
    gw_u8 low[128];
    gw_u8 high[64];
    gw_i8 scales[16];
    gw_u8 d[2]; /* f16 */
} gw_block_q6_k;

GW_FN void gw_q6_k_codes(GW_GLOBAL const gw_block_q6_k *b, int sub, gw_i8 *code) {
    int t = sub / 4, j = sub % 4;
    for (int i = 0; i < 32; i++) {
        int low = b->low[64 * t + 32 * (j % 2) + i] >> (j / 2 * 4) & 15;
        int high = b->high[32 * t + i] >> (2 * j) & 3;
        code[i] = (gw_i8)((low | high << 4) - 32);
    }
}
GW_FN void gw_q6_k_weights(GW_GLOBAL const gw_block_q6_k *b, int sub, float *w) {
    gw_i8 code[32];
    gw_q6_k_codes(b, sub, code);
    for (int h = 0; h < 2; h++) {
        float ws = gw_load_f16(b->d) * (float)b->scales[2 * sub + h];
        gw_expand_signed(ws, code, 16 * h, 16, w);
    }
}
GW_FN float gw_q6_k_term(GW_GLOBAL const gw_block_q6_k *b, int sub, GW_ACT const gw_act8 *x,
                         float acc) {
    gw_i8 code[32];
    gw_q6_k_codes(b, sub, code);
    return gw_term_halves(gw_load_f16(b->d), b->scales[2 * sub], b->scales[2 * sub + 1], code, x,
                          acc);
}
GW_FN int gw_q6_k_scale(GW_GLOBAL const gw_block_q6_k *b, int half_block) {
    return b->scales[half_block];
}
GW_PROMPT_TERM(q6_k, gw_load_f16(b->d), gw_q6_k_scale)

/* ---- IQ4: a nibble names one of 16 fixed levels --------------------------------------------- */

/* clang-format off */
#define GW_IQ4_LEVELS -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
/* clang-format on */

/* Of the table GW_LEVELS_... of format_list.h. */
GW_FN gw_i8 gw_level(int levels, int index) {
    int i = index >> 2, byte = (int)(GW_LEVEL_WORD(levels, i) >> (index & 3) * 8 & 255u);
    return (gw_i8)(byte < 128 ? byte : byte - 256);
}
GW_FN gw_i8 gw_iq4_level(int nibble) { return gw_level(GW_LEVELS_IQ4, nibble); }
GW_FN void gw_iq4_codes(GW_GLOBAL const gw_u8 *bytes, gw_i8 *code) {
    for (int j = 0; j < 16; j++) {
        code[j] = gw_iq4_level(bytes[j] & 15);
        code[j + 16] = gw_iq4_level(bytes[j] >> 4);
    }
}

/* IQ4_NL: w = d * level. */
typedef struct gw_block_iq4_nl {
    gw_u8 d[2]; /* f16 */
    gw_u8 nibbles[16];
} gw_block_iq4_nl;

GW_FN void gw_iq4_nl_codes(GW_GLOBAL const gw_block_iq4_nl *b, int sub, gw_i8 *code) {
    (void)sub;
    gw_iq4_codes(b->nibbles, code);
}
GW_FN void gw_iq4_nl_weights(GW_GLOBAL const gw_block_iq4_nl *b, int sub, float *w) {
    gw_i8 code[32];
    gw_iq4_nl_codes(b, sub, code);
    gw_expand_signed(gw_load_f16(b->d), code, 0, 32, w);
}
GW_FN float gw_iq4_nl_term(GW_GLOBAL const gw_block_iq4_nl *b, int sub, GW_ACT const gw_act8 *x,
                           float acc) {
    gw_i8 code[32];
    gw_iq4_nl_codes(b, sub, code);
    return gw_term_signed(gw_load_f16(b->d), code, x, acc);
}

/* IQ4_XS: 256 weights, w = d * (ls - 32) * level; ls of sub-block: four bits in nibble sub % 2 of
 * scales_low[sub / 2], two in bits 2 sub of the 16-bit scales_high. Nibbles as Q4_0, 16 bytes each.
 */
typedef struct gw_block_iq4_xs {
    gw_u8 d[2];           /* f16 */
    gw_u8 scales_high[2]; /* u16 */
    gw_u8 scales_low[4];
    gw_u8 nibbles[128];
} gw_block_iq4_xs;

GW_FN int gw_iq4_xs_scale(GW_GLOBAL const gw_block_iq4_xs *b, int sub) {
    int low = b->scales_low[sub / 2] >> (sub % 2 * 4) & 15;
    int high = gw_load_u16(b->scales_high) >> (2 * sub) & 3;
    return (low | high << 4) - 32;
}
GW_FN float gw_iq4_xs_ws(GW_GLOBAL const gw_block_iq4_xs *b, int sub) {
    return gw_load_f16(b->d) * (float)gw_iq4_xs_scale(b, sub);
}
GW_FN void gw_iq4_xs_codes(GW_GLOBAL const gw_block_iq4_xs *b, int sub, gw_i8 *code) {
    gw_iq4_codes(b->nibbles + 16 * sub, code);
}
GW_FN void gw_iq4_xs_weights(GW_GLOBAL const gw_block_iq4_xs *b, int sub, float *w) {
    gw_i8 code[32];
    gw_iq4_xs_codes(b, sub, code);
    gw_expand_signed(gw_iq4_xs_ws(b, sub), code, 0, 32, w);
}
GW_FN float gw_iq4_xs_term(GW_GLOBAL const gw_block_iq4_xs *b, int sub, GW_ACT const gw_act8 *x,
                           float acc) {
    gw_i8 code[32];
    gw_iq4_xs_codes(b, sub, code);
    return gw_term_signed(gw_iq4_xs_ws(b, sub), code, x, acc);
}
GW_FN int gw_iq4_xs_scale_of_half(GW_GLOBAL const gw_block_iq4_xs *b, int half_block) {
    return gw_iq4_xs_scale(b, half_block / 2);
}
GW_PROMPT_TERM(iq4_xs, gw_load_f16(b->d), gw_iq4_xs_scale_of_half)

/* ---- MXFP4 (OCP Microscaling 1.0): w = 2^(e - 127) * E2M1 = 2^(e - 128) * level --------------- */

/* Twice the value of a number of 4 bits: sign, two bits of exponent, one of mantissa. */
GW_FN gw_i8 gw_e2m1_level(int nibble) { return gw_level(GW_LEVELS_E2M1, nibble); }

/* 2^(e - 128), e from 0 to 255: subnormal where e is 0 or 1. */
GW_FN float gw_e8m0_half(gw_u32 e) {
    return GW_F32_FROM_BITS(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

typedef struct gw_block_mxfp4 {
    gw_u8 e;
    gw_u8 nibbles[16];
} gw_block_mxfp4;

GW_FN void gw_mxfp4_codes(GW_GLOBAL const gw_block_mxfp4 *b, int sub, gw_i8 *code) {
    (void)sub;
    for (int j = 0; j < 16; j++) {
        code[j] = gw_e2m1_level(b->nibbles[j] & 15);
        code[j + 16] = gw_e2m1_level(b->nibbles[j] >> 4);
    }
}
GW_FN void gw_mxfp4_weights(GW_GLOBAL const gw_block_mxfp4 *b, int sub, float *w) {
    gw_i8 code[32];
    gw_mxfp4_codes(b, sub, code);
    gw_expand_signed(gw_e8m0_half(b->e), code, 0, 32, w);
}
GW_FN float gw_mxfp4_term(GW_GLOBAL const gw_block_mxfp4 *b, int sub, GW_ACT const gw_act8 *x,
                          float acc) {
    gw_i8 code[32];
    gw_mxfp4_codes(b, sub, code);
    return gw_term_signed(gw_e8m0_half(b->e), code, x, acc);
}

/* ---- INT8: a row is one float scale, then blocks of 32 codes; w = scale * q ----------------- */

typedef struct gw_row_int8 {
    gw_u8 scale[4]; /* f32 */
} gw_row_int8;

typedef struct gw_block_int8 {
    gw_i8 q[32];
} gw_block_int8;

GW_FN void gw_int8_codes(GW_GLOBAL const gw_block_int8 *b, gw_i8 *code) {
    for (int i = 0; i < 32; i++) {
        code[i] = b->q[i];
    }
}
GW_FN void gw_int8_weights(GW_GLOBAL const gw_row_int8 *row, GW_GLOBAL const gw_block_int8 *b,
                           float *w) {
    gw_i8 code[32];
    gw_int8_codes(b, code);
    gw_expand_signed(gw_load_f32(row->scale), code, 0, 32, w);
}
GW_FN float gw_int8_term(GW_GLOBAL const gw_row_int8 *row, GW_GLOBAL const gw_block_int8 *b,
                         GW_ACT const gw_act8 *x, float acc) {
    gw_i8 code[32];
    gw_int8_codes(b, code);
    return gw_term_signed(gw_load_f32(row->scale), code, x, acc);
}

/* ---- INT4 in groups: w = scale * nibble + zero; 16 bytes per 32 weights, as Q4_0 ------------ */

typedef struct gw_int4_head {
    gw_u8 scale[2], zero[2]; /* f16 */
} gw_int4_head;

typedef struct gw_block_int4_g32 {
    gw_int4_head head;
    gw_u8 nibbles[16];
} gw_block_int4_g32;
typedef struct gw_block_int4_g64 {
    gw_int4_head head;
    gw_u8 nibbles[32];
} gw_block_int4_g64;
typedef struct gw_block_int4_g128 {
    gw_int4_head head;
    gw_u8 nibbles[64];
} gw_block_int4_g128;
typedef struct gw_block_int4_g256 {
    gw_int4_head head;
    gw_u8 nibbles[128];
} gw_block_int4_g256;

/* One text for all group sizes: nibbles is the group's array, `sub` counts 32 weights inside it. */
GW_FN void gw_int4_weights(GW_GLOBAL const gw_int4_head *head, GW_GLOBAL const gw_u8 *nibbles,
                           int sub, float *w) {
    gw_i8 code[32];
    gw_nibbles(nibbles + 16 * sub, 0, code);
    gw_expand_affine(gw_load_f16(head->scale), gw_load_f16(head->zero), code, 0, 32, w);
}
GW_FN float gw_int4_term(GW_GLOBAL const gw_int4_head *head, GW_GLOBAL const gw_u8 *nibbles,
                         int sub, GW_ACT const gw_act8 *x, float acc) {
    gw_i8 code[32];
    gw_nibbles(nibbles + 16 * sub, 0, code);
    return gw_term_affine(gw_load_f16(head->scale), gw_load_f16(head->zero), code, x, acc);
}
/* The same of GW_ACT_SPAN blocks from `sub` on as one term; x: gw_act8_span has been there. */
GW_FN float gw_int4_span_term(GW_GLOBAL const gw_int4_head *head, GW_GLOBAL const gw_u8 *nibbles,
                              int sub, GW_ACT const gw_act8 *x, float acc) {
    gw_i32 s = 0, sum = 0;
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        gw_i8 code[32];
        gw_nibbles(nibbles + 16 * (sub + b), 0, code);
        for (int i = 0; i < 32; i++) { /* two halves as above take gcc three times as long */
            s += (gw_i32)code[i] * (gw_i32)x[b].q[i];
        }
        sum += x[b].sum[0] + x[b].sum[1];
    }
    acc = GW_FMA(gw_load_f16(head->scale) * x->scale, (float)s, acc);
    return GW_FMA(gw_load_f16(head->zero), x->scale * (float)sum, acc);
}

/* ---- BL3H: two codes of 0 .. 10 in a number of 7 bits; w = scale * code + zero ----------------- */

/* Codes 2 p and 2 p + 1 of 64 are number p, 11 times the first and the second, whose bits are in
 * three planes as planes.h has them for 32: four, two and one. */
typedef struct gw_block_bl3h_b64 {
    gw_int4_head head;
    gw_u8 four[16], two[8], one[4];
} gw_block_bl3h_b64;

GW_FN int gw_bl3h_b64_index(GW_GLOBAL const gw_block_bl3h_b64 *b, int sub, int i) {
    int p = 16 * sub + i / 2;
    int v = (b->four[p % 16] >> (p / 16 * 4) & 15) | (b->two[p % 8] >> (p / 8 * 2) & 3) << 4 |
            (b->one[p / 8] >> (p % 8) & 1) << 6;
    int first = (v * 187) >> 11; /* v / 11 */
    return i % 2 == 0 ? first : v - 11 * first;
}
GW_FN void gw_bl3h_b64_codes(GW_GLOBAL const gw_block_bl3h_b64 *b, int sub, gw_i8 *code) {
    for (int i = 0; i < 32; i++) {
        code[i] = (gw_i8)gw_bl3h_b64_index(b, sub, i);
    }
}
GW_FN void gw_bl3h_b64_weights(GW_GLOBAL const gw_block_bl3h_b64 *b, int sub, float *w) {
    gw_i8 code[32];
    gw_bl3h_b64_codes(b, sub, code);
    gw_expand_affine(gw_load_f16(b->head.scale), gw_load_f16(b->head.zero), code, 0, 32, w);
}
GW_FN float gw_bl3h_b64_term(GW_GLOBAL const gw_block_bl3h_b64 *b, int sub, GW_ACT const gw_act8 *x,
                             float acc) {
    gw_i8 code[32];
    gw_bl3h_b64_codes(b, sub, code);
    return gw_term_affine(gw_load_f16(b->head.scale), gw_load_f16(b->head.zero), code, x, acc);
}

#endif
