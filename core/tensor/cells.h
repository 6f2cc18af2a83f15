/* core/tensor/cells.h - pages of KV caches in 4 and 5 bits: how k, v and q are rotated, how a block
 * of 32 values becomes codes, and where those stand in a page (docs/arithmetic.md, section 5, "KV
 * cache"). In the dialect of arith.h, so that kernels of devices include it, too.
 *
 * A page of a KV head has 64 positions of e values, e a multiple of 32: codes, two to a byte, value
 * 2r in the lower nibble; of 5 bits then the fifth bits, eight values to a byte; then the scales
 * (f16, one for 32 values). Of keys a position is a column, [e/2, 64], [e/8, 64], [e/32, 64]; of
 * values a row, [64, e/2], [64, e/8], [64, e/32]. No byte has values of two positions, so rows of a
 * pass are stored without knowing of one another.
 */
#ifndef GW_TENSOR_CELLS_H
#define GW_TENSOR_CELLS_H

#include "core/tensor/arith.h"

#define GW_CELLS_MOST 256 /* values that a rotation mixes, at most           */
#define GW_CODES_MOST 256 /* widest heads of attention in codes (arithmetic) */

/* The width of the rotation of heads of e values: the largest power of two that divides e. */
GW_FN int gw_cells_width(int e) {
    int width = e & -e;
    return width < GW_CELLS_MOST ? width : GW_CELLS_MOST;
}

/* 1 / sqrt(width), width a power of two from 32 to 256. */
GW_FN float gw_cells_norm(int width) {
    return width == 32 ? 0x1.6a09e6p-3f
         : width == 64 ? 0x1p-3f
         : width == 128 ? 0x1.6a09e6p-4f : 0x1p-4f;
}

/* x [width] by a Hadamard matrix of length 1, in place; it undoes itself. */
GW_FN void gw_cells_mix(float *x, int width) {
    const float norm = gw_cells_norm(width);
    for (int h = 1; h < width; h *= 2) {
        for (int i = 0; i < width; i++) {
            if ((i & h) == 0) {
                const float a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
        }
    }
    for (int i = 0; i < width; i++) {
        x[i] = x[i] * norm;
    }
}

/* f16 bits of the scale of a block whose first value of the largest size is peak; finite: no value
 * is infinite or a NaN. */
GW_FN gw_u16 gw_cells_scale(float peak, int finite, int bits) {
    gw_u16 f16;
    if (!finite) {
        return (gw_u16)0x7e00;
    }
    f16 = gw_f32_to_f16(peak / (bits == 4 ? -8.0f : -16.0f));
    return (f16 & 0x7fffu) >= 0x7c00u ? (gw_u16)((f16 & 0x8000u) | 0x7bffu) : f16;
}

/* The code of x, 0 to 15 or to 31: it stands for d * (code - 8) or d * (code - 16). */
GW_FN int gw_cells_code(float x, float d, int bits) {
    const float least = bits == 4 ? -8.0f : -16.0f, most = -1.0f - least;
    float code = d < 0.0f || d > 0.0f ? x / d : 0.0f;
    code = code < least ? least : code;
    code = code > most ? most : code;
    return (int)(GW_RINT(code) - least);
}

/* Attention in codes: weights of a page's positions as int8, like activations (arith.h). top: bits
 * of the largest |w|. */
GW_FN float gw_codes_inverse(gw_u32 top) {
    const float amax = GW_F32_FROM_BITS(top);
    const float inverse = top < 0x7f800000u && amax > 0.0f ? 127.0f / amax : 0.0f;
    return inverse < 3.0e38f ? inverse : 0.0f;
}
GW_FN float gw_codes_scale(gw_u32 top) {
    return top < 0x7f800000u ? GW_F32_FROM_BITS(top) / 127.0f : GW_F32_FROM_BITS(0x7fc00000u);
}
GW_FN gw_i32 gw_codes_of(float w, float inverse) {
    const float n = GW_RINT(w * inverse);
    return GW_FABS(n) <= 127.0f ? (gw_i32)n : 0;
}

/* Four codes in the lower nibbles of bytes, with their fifth bits in bit 0 of others, as int8: less
 * 8, or 16. */
GW_FN gw_u32 gw_cells_bytes(gw_u32 nibbles, gw_u32 fifth, int bits) {
    return ((nibbles | fifth << 4) + (bits == 4 ? 0x78787878u : 0x70707070u)) ^ 0x80808080u;
}
/* Bits 0 to 3 to bit 0 of each byte. */
GW_FN gw_u32 gw_cells_spread(gw_u32 four) { return (four * 0x00204081u) & 0x01010101u; }

/* Bytes of a page in front of the fifth bits, and of the scales. */
GW_FN int gw_cells_high_at(int e) { return GW_PAGE / 2 * e; }
GW_FN int gw_cells_scales_at(int e, int bits) { return GW_PAGE / 8 * e * bits; }
/* Of value i of position j: byte of its code; of its fifth bit, from gw_cells_high_at on; number of
 * its scale. */
GW_FN int gw_cells_code_at(int e, int is_k, int j, int i) {
    return is_k ? i / 2 * GW_PAGE + j : j * (e / 2) + i / 2;
}
GW_FN int gw_cells_bit_at(int e, int is_k, int j, int i) {
    return is_k ? i / 8 * GW_PAGE + j : j * (e / 8) + i / 8;
}
GW_FN int gw_cells_scale_at(int e, int is_k, int j, int i) {
    return is_k ? i / 32 * GW_PAGE + j : j * (e / 32) + i / 32;
}

#endif
