/* core/tensor/nvfp4.h - NVFP4 in memory: w = v * (s * scale), floats of four bits with a scale of
 * eight for 16, in blocks of 128 that share a float; a row's last block may be short. Read by C11,
 * HIP C++ and OpenCL C 1.2 (dialect.h).
 *
 * v is a number of E2M1 (sign, two bits of exponent, bias 1, one of mantissa) times 2^-14, for so
 * it is a binary16 by shifts alone; s a number of E4M3 as gw_e4m3_value has it; scale is 2^22 times
 * the publisher's. s * scale is rounded, then its product with v.
 */
#ifndef GW_TENSOR_NVFP4_H
#define GW_TENSOR_NVFP4_H

#include "core/tensor/e4m3.h"

#define GW_NVFP4_BLOCK 128
typedef struct gw_block_nvfp4 {
    gw_u8 scale[4];    /* f32 */
    gw_u8 s[8];        /* of 16 weights each                     */
    gw_u8 nibbles[64]; /* weights 2 i and 2 i + 1, the first below */
} gw_block_nvfp4;

/* code: four bits. */
GW_FN float gw_nvfp4_value(gw_u32 code) {
    return gw_f16_to_f32((gw_u16)((code & 8u) << 12 | (code & 7u) << 9));
}
/* Of weight i of a block, and its 15 neighbours. */
GW_FN float gw_nvfp4_scale(GW_GLOBAL const gw_block_nvfp4 *b, int i) {
    return gw_e4m3_value(b->s[i / 16]) * gw_load_f32(b->scale);
}
/* Weight i of a row. */
GW_FN float gw_nvfp4_weight(GW_GLOBAL const gw_block_nvfp4 *row, int i) {
    GW_GLOBAL const gw_block_nvfp4 *b = row + i / GW_NVFP4_BLOCK;
    const int at = i % GW_NVFP4_BLOCK;
    return gw_nvfp4_value((gw_u32)b->nibbles[at / 2] >> at % 2 * 4 & 15u) * gw_nvfp4_scale(b, at);
}

#endif
