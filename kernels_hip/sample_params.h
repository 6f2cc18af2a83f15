/* kernels_hip/sample_params.h - parameters of the kernels in sample.hip. */
#ifndef GW_KERNELS_HIP_SAMPLE_PARAMS_H
#define GW_KERNELS_HIP_SAMPLE_PARAMS_H

#include "core/tensor/sample.h"
#include "kernels_hip/params.h"

enum {
    GW_SAMPLE_THREADS = 256,
    GW_SAMPLE_PIECE = 2048, /* logits that a block of gw_sample_pieces looks at */
};

/* gw_sample_pieces: grid (pieces, rows); gw_sample_join: grid (1, rows). */
struct gw_sample_params {
    struct gw_step_params step;
    GW_DEV(const float) x; /* [rows, n] */
    GW_DEV(const gw_choice) choice;
    GW_DEV(int32_t) ids;    /* [rows]                                                     */
    GW_DEV(gw_listed) list; /* [rows, n]: what can still be drawn                         */
    GW_DEV(unsigned) count; /* [rows, 2]: how many those are, and whether a logit is no number;
                             * 0 between launches */
    int32_t n;
};

#endif
