/* core/tensor/planes.h - weight blocks that are their row of format_list.h: layout, codes, weights and
 * term of every format of GW_PLANE_FORMATS, from its numbers.
 *
 * Read by C11, HIP C++ and OpenCL C 1.2 (dialect.h). A block is `share` times 32 weights; its bytes are
 *   head   d, or scale and zero (GW_HEAD_...)
 *   sub    with integer scales: two bytes for each 32 weights
 *   low    for each 32 weights 4 `low` bytes: 8 bits: a byte a weight; 4 bits: weight i is the lower
 *          half of byte i below 16, the upper one of byte i - 16 above; 2 bits: weight i is bits
 *          2 (i / 8) and up of byte i mod 8
 *   high   for each 32 weights 4 `high` bytes: 2 bits as above; 1 bit: weight i is bit i
 * One text for all formats: what differs are constants.
 */
#ifndef GW_TENSOR_PLANES_H
#define GW_TENSOR_PLANES_H

#include "core/tensor/blocks.h"
#include "core/tensor/format_list.h"

/* Bytes before the codes, before their upper bits, and of a block. */
#define GW_PLANE_LOW_AT(sub, share, head) (GW_HEAD_BYTES(head) + 2 * (sub) * (share))
#define GW_PLANE_HIGH_AT(low, sub, share, head) \
    (GW_PLANE_LOW_AT(sub, share, head) + 4 * (low) * (share))
#define GW_PLANE_BYTES(low, high, sub, share, head) \
    (GW_PLANE_HIGH_AT(low, sub, share, head) + 4 * (high) * (share))

/* `bits` bits of weight i of 32. */
GW_FN int gw_plane_bits(GW_GLOBAL const gw_u8 *plane, int bits, int i) {
    return bits == 8   ? plane[i]
           : bits == 4 ? plane[i % 16] >> (i / 16 * 4) & 15
           : bits == 2 ? plane[i % 8] >> (i / 8 * 2) & 3
                       : plane[i / 8] >> (i % 8) & 1;
}

/* Code i of 32 as it is stored: an index, or a number from 0 on. low, high: planes of 32 weights. */
GW_FN int gw_plane_index(GW_GLOBAL const gw_u8 *low, int low_bits, GW_GLOBAL const gw_u8 *high,
                         int high_bits, int i) {
    int code = gw_plane_bits(low, low_bits, i);
    return high_bits > 0 ? code | gw_plane_bits(high, high_bits, i) << low_bits : code;
}

/* wm of codes that are `offset` less: the weight of code 0. */
GW_FN float gw_plane_zero(float ws, float wm, int offset) {
    return offset > 0 ? GW_FMA((float)offset, ws, wm) : wm;
}

#define GW_PLANE_SIGNED(term) ((term) == GW_TERM_SIGNED)
#define GW_PLANE_HALVES(term) ((term) == GW_TERM_HALVES)

/* The functions of blocks.h, of one format; prompt terms follow for those with integer scales. */
#define GW_PLANE_BLOCK(unused, FORMAT, name, low, high, offset, levels, term, sub, share, head)        \
    typedef struct gw_block_##name {                                                                   \
        gw_u8 bytes[GW_PLANE_BYTES(low, high, sub, share, head)];                                      \
    } gw_block_##name;                                                                                 \
    GW_FN int gw_##name##_index(GW_GLOBAL const gw_block_##name *b, int s, int i) {                    \
        return gw_plane_index(b->bytes + GW_PLANE_LOW_AT(sub, share, head) + 4 * (low)*s, low,         \
                              b->bytes + GW_PLANE_HIGH_AT(low, sub, share, head) + 4 * (high)*s, high, \
                              i);                                                                      \
    }                                                                                                  \
    GW_FN void gw_##name##_codes(GW_GLOBAL const gw_block_##name *b, int s, gw_i8 *code) {             \
        for (int i = 0; i < 32; i++) {                                                                 \
            int index = gw_##name##_index(b, s, i);                                                    \
            code[i] = (levels) != GW_LEVELS_NONE ? gw_level(levels, index) : (gw_i8)(index - (offset));\
        }                                                                                              \
    }                                                                                                  \
    GW_FN float gw_##name##_scale(GW_GLOBAL const gw_block_##name *b) {                                \
        return (head) == GW_HEAD_F32    ? gw_load_f32(b->bytes)                                        \
               : (head) == GW_HEAD_E8M0 ? gw_e8m0_half(b->bytes[0])                                    \
                                        : gw_load_f16(b->bytes);                                       \
    }                                                                                                  \
    GW_FN float gw_##name##_zero(GW_GLOBAL const gw_block_##name *b) {                                 \
        return (head) == GW_HEAD_PAIR ? gw_load_f16(b->bytes + 2) : 0.0f;                              \
    }                                                                                                  \
    GW_FN int gw_##name##_sub(GW_GLOBAL const gw_block_##name *b, int s, int h) {                      \
        int v = b->bytes[GW_HEAD_BYTES(head) + 2 * s + h];                                             \
        return (sub) == 0 ? 1 : v < 128 ? v : v - 256;                                                 \
    }                                                                                                  \
    GW_FN void gw_##name##_weights(GW_GLOBAL const gw_block_##name *b, int s, float *w) {              \
        const float d = gw_##name##_scale(b), m = gw_##name##_zero(b);                                 \
        gw_i8 code[32];                                                                                \
        gw_##name##_codes(b, s, code);                                                                 \
        for (int i = 0; i < 32; i++) {                                                                 \
            w[i] = !GW_PLANE_SIGNED(term) && !GW_PLANE_HALVES(term)                                    \
                       ? GW_FMA(d, (float)((int)code[i] + (offset)), m)                                \
                       : d * (float)gw_##name##_sub(b, s, GW_PLANE_HALVES(term) ? i / 16 : 0) *        \
                             (float)code[i];                                                           \
        }                                                                                              \
    }                                                                                                  \
    GW_FN float gw_##name##_term(GW_GLOBAL const gw_block_##name *b, int s, GW_ACT const gw_act8 *x,   \
                                 float acc) {                                                          \
        const float d = gw_##name##_scale(b), m = gw_##name##_zero(b);                                 \
        gw_i8 code[32];                                                                                \
        gw_##name##_codes(b, s, code);                                                                 \
        return GW_PLANE_SIGNED(term)   ? gw_term_signed(d * (float)gw_##name##_sub(b, s, 0), code, x, acc) \
               : GW_PLANE_HALVES(term) ? gw_term_halves(d, gw_##name##_sub(b, s, 0),                   \
                                                        gw_##name##_sub(b, s, 1), code, x, acc)        \
                                       : gw_term_affine(d, gw_plane_zero(d, m, offset), code, x, acc); \
    }

/* clang-format off */
GW_PLANE_FORMATS(GW_PLANE_BLOCK, 0)
/* clang-format on */

/* Their terms of prompts. per: halves that share an integer scale. */
#define GW_PLANE_PROMPT_TERM(name, per)                                                             \
    GW_FN int gw_##name##_scale_of_half(GW_GLOBAL const gw_block_##name *b, int half_block) {       \
        return gw_##name##_sub(b, half_block / 2, (per) == 2 ? 0 : half_block % 2);                 \
    }                                                                                               \
    GW_PROMPT_TERM(name, gw_##name##_scale(b), gw_##name##_scale_of_half)
GW_PLANE_PROMPT_TERM(iq3_s_codes, 2)
GW_PLANE_PROMPT_TERM(iq3_xxs_codes, 2)
GW_PLANE_PROMPT_TERM(iq2_codes, 1)
GW_PLANE_PROMPT_TERM(iq1_codes, 1)

#endif
