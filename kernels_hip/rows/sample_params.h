/* kernels_hip/rows/sample_params.h - parameters of the kernels in sample.hip. */
#ifndef GW_KERNELS_HIP_SAMPLE_PARAMS_H
#define GW_KERNELS_HIP_SAMPLE_PARAMS_H

#include "core/tensor/sample.h"
#include "kernels_hip/params.h"

enum {
    GW_SAMPLE_THREADS = 256,
    GW_SAMPLE_PIECE = 2048, /* logits that a block looks at */
};

/* What is counted for a row, 0 between launches: what can still be drawn, whether a logit is no
 * number, blocks that are done. */
enum { GW_SAMPLE_LISTED, GW_SAMPLE_BAD, GW_SAMPLE_ARRIVED, GW_SAMPLE_COUNTS };

/* gw_sample: grid (pieces, rows). */
struct gw_sample_params {
    struct gw_step_params step;
    GW_DEV(const float) x;          /* [rows, n] */
    GW_DEV(const gw_choice) choice; /* [rows]                                              */
    GW_DEV(int32_t) ids;            /* [rows]                                                     */
    GW_DEV(int32_t) host_ids; /* [turns, rows]: the same in host memory, for the step's turn */
    GW_DEV(gw_listed) list;   /* [rows, n]: what can still be drawn                         */
    GW_DEV(unsigned) count;   /* [rows, GW_SAMPLE_COUNTS] */
    int32_t n;
};

#endif
