/* core/tensor/codes.h - the parts of a quantized row as stored, block by block: for backends that
 * arrange them anew. A block is GW_ACT_BLOCK weights; the row holds its header, then file blocks.
 */
#ifndef GW_TENSOR_CODES_H
#define GW_TENSOR_CODES_H

#include "core/tensor/formats.h"

/* The codes [GW_ACT_BLOCK] of block b, signed as the format's term takes them. */
void gw_row_codes(gw_fmt fmt, const void *row, size_t b, gw_i8 *code);
/* The same as a layout keeps them: an index where the format has levels, code + offset otherwise;
 * of 8 bits the signed code as a byte. */
void gw_row_indices(gw_fmt fmt, const void *row, size_t b, gw_u8 *index);
/* The first byte of what scales block b: d, or d and m, d and dmin, scale and zero (binary16, side
 * by side); the row's f32 scale of INT8. Points into the row. */
const unsigned char *gw_row_head(gw_fmt fmt, const void *row, size_t b);
/* The two bytes of integer scales that block b of a format with `sub` (format_list.h) has: scale
 * and minimum (Q4_K, Q5_K), the bytes of both halves (Q2_K, Q3_K, Q6_K), one and 0 (IQ4_XS). */
void gw_row_sub_scales(gw_fmt fmt, const void *row, size_t b, unsigned char *out);

/* `bits` bits of v as weight i of 32 in a plane (planes.h) that has zeros there. */
void gw_plane_put(gw_u8 *plane, int bits, int i, int v);

#endif
