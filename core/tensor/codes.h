/* core/tensor/codes.h - the parts of a quantized row as stored, block by block: for backends that
 * arrange them anew. A block is GW_ACT_BLOCK weights; the row holds its header, then file blocks.
 */
#ifndef GW_TENSOR_CODES_H
#define GW_TENSOR_CODES_H

#include "core/tensor/formats.h"

/* The codes [GW_ACT_BLOCK] of block b, signed as the format's term takes them. */
void gw_row_codes(gw_fmt fmt, const void *row, size_t b, gw_i8 *code);
/* The first byte of what scales block b: d, or d and m, d and dmin, scale and zero (binary16, side
 * by side); the row's f32 scale of INT8. Points into the row. */
const unsigned char *gw_row_head(gw_fmt fmt, const void *row, size_t b);
/* The two bytes of integer scales that block b of a K format or of IQ4_XS has: scale and minimum
 * (Q4_K, Q5_K), the bytes of both halves (Q2_K, Q3_K, Q6_K), one scale and 0 (IQ4_XS). */
void gw_row_sub_scales(gw_fmt fmt, const void *row, size_t b, unsigned char *out);

#endif
