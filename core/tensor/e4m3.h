/* core/tensor/e4m3.h - E4M3: w = scale * v, floats of eight bits in blocks of 128; a row's last
 * block may be short. Read by C11, HIP C++ and OpenCL C 1.2 (dialect.h).
 *
 * v is a 256th of the number that a code stands for (sign, four bits of exponent, bias 7, three of
 * mantissa: OCP 8-bit Floating Point 1.0), for so it is a binary16 by shifts alone; scale is 256
 * times the publisher's, which is 0 or at least GW_E4M3_LEAST, so that a device that has the number
 * itself may divide the scale by 256 instead. The two codes of NaN count as 480 here: whoever makes
 * a block that has one gives it the scale NaN.
 */
#ifndef GW_TENSOR_E4M3_H
#define GW_TENSOR_E4M3_H

#include "core/tensor/blocks.h"

#define GW_E4M3_BLOCK 128
#define GW_E4M3_LEAST 0x1p-100f
typedef struct gw_block_e4m3 {
    gw_u8 scale[4]; /* f32 */
    gw_u8 code[GW_E4M3_BLOCK];
} gw_block_e4m3;

GW_FN float gw_e4m3_value(gw_u32 code) {
    return gw_f16_to_f32((gw_u16)((code & 128u) << 8 | (code & 127u) << 7));
}
/* Weight i of a row. */
GW_FN float gw_e4m3_weight(GW_GLOBAL const gw_block_e4m3 *row, int i) {
    GW_GLOBAL const gw_block_e4m3 *b = row + i / GW_E4M3_BLOCK;
    return gw_e4m3_value(b->code[i % GW_E4M3_BLOCK]) * gw_load_f32(b->scale);
}

#endif
