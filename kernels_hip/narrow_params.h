/* kernels_hip/narrow_params.h - where rows go that products of 16-bit weights read. */
#ifndef GW_KERNELS_HIP_NARROW_PARAMS_H
#define GW_KERNELS_HIP_NARROW_PARAMS_H

#include "kernels_hip/params.h"

/* Of a row of n floats that a block keeps in shared memory (narrow.h). */
#define GW_KEPT_BYTES(n) (((n) + (n) / 32) * 4)

/* Rows in 16 bits, [rows, pieces * 128], and a power of two per row; tiled: in stages of 128 rows,
 * [rows / 128, pieces * 2, 128, 64], as they will lie in shared memory. y 0: none. */
struct gw_narrow_to {
    GW_DEV(uint16_t) y;
    GW_DEV(float) scale;
    int32_t bf16, tiled;
};

#endif
