/* core/tensor/small.h - GGUF's formats of one to three bits and NVFP4: what a sub-block of 32
 * weights is made of. All are d * sc * code with integers sc and code, exact in float.
 */
#ifndef GW_TENSOR_SMALL_H
#define GW_TENSOR_SMALL_H

#include "core/tensor/formats.h"

/* Codebooks of the format: 256, 512 and 1024 points of eight, 256 and 512 of four, 2048 of eight.
 */
extern const gw_u16 gw_grid_iq2_xxs[256], gw_grid_iq2_xs[512], gw_grid_iq2_s[1024];
extern const gw_u16 gw_grid_iq3_xxs[256], gw_grid_iq3_s[512], gw_grid_iq1[2048];

typedef struct gw_small {
    float d;        /* a binary16, or an eighth to a half of one; NVFP4: 2^-10 */
    gw_i32 sc[2];   /* of the halves */
    gw_i8 code[32]; /* at most 62 in size */
} gw_small;

/* Sub-block `sub` of the row's blocks, counted over the row. fmt: one for which
 * gw_format_is_small. */
void gw_small_read(gw_fmt fmt, const void *row, size_t sub, gw_small *out);

/* 1 for a format that is read here and has no term of its own. */
int gw_format_is_small(gw_fmt fmt);

/* The format with kernels that has every weight of such blocks exactly; F32 where there is none. */
gw_fmt gw_small_home(gw_fmt fmt);

/* A row in that format. */
void gw_small_convert(gw_fmt fmt, const void *row, size_t cols, gw_fmt home, void *dst);

/* A row of NVFP4_CODES times a number. */
void gw_nvfp4_times(void *row, size_t cols, float factor);

/* Row by row, [cols] weights. */
void gw_small_decode(gw_fmt fmt, float *dst, const void *row, size_t cols);

#endif
