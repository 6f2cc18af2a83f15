/* kernels_hip/rows/row_leave.h - four neighbours of a row, to the row and to the product behind the
 * norm behind it (gw_leave_norm of linear_tiles.h does the same for products). */
#ifndef GW_KERNELS_HIP_ROW_LEAVE_H
#define GW_KERNELS_HIP_ROW_LEAVE_H

#include "kernels_hip/act8.h"
#include "kernels_hip/rows/row_sum.h"

/* The thread's four of a row, from i on, and the norm's weights there. p: out, width, behind, left,
 * left_form, left_blocks, left_squares as in gw_embed_params. All threads of a team. */
template <class Params>
__device__ static inline void row_leave(const Params &p, int row, int i, const row_four &v,
                                        const row_four &weights) {
    const int b = i / GW_ACT_BLOCK, place = i % GW_ACT_BLOCK;
    float *out = (float *)p.out + (size_t)row * p.width;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (i + j < p.width) {
            out[i + j] = v.v[j];
        }
    }
    if (p.behind == 0) {
        return;
    }
    const size_t block = (size_t)row * p.left_blocks + b;
    row_four x;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        x.v[j] = v.v[j] * weights.v[j];
    }
    const float square = row_squares(v);
    if (i < p.width && place == 0) {
        p.left_squares[(size_t)row * (p.width / GW_ACT_BLOCK) + b] = square;
    }
    if (p.left_form != GW_FORM_FLOATS) {
        gw_act8_four code;
        code.encode(x.v);
        if (i < p.width) {
            code.store(p.left, block, p.left_form);
        }
    } else if (i < p.width) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            ((float *)p.left)[block * GW_ACT_BLOCK + place + j] = x.v[j];
        }
    }
}

template <class Params>
__device__ static inline void row_leave(const Params &p, int row, int i, const row_four &v) {
    const row_four none = {{0.0f, 0.0f, 0.0f, 0.0f}};
    row_leave(p, row, i, v, p.behind != 0 && i < p.width ? row_read(p.behind + i) : none);
}

#endif
