/* kernels_hip/rows/route_params.h - what a block that chooses a row's experts is told
 * (kernels_hip/rows/route.h). */
#ifndef GW_KERNELS_HIP_ROUTE_PARAMS_H
#define GW_KERNELS_HIP_ROUTE_PARAMS_H

#include "kernels_hip/params.h"

enum { GW_ROUTE_THREADS = 256 };
#define GW_ROUTE_WORDS(experts) (((experts) + 31) / 32)
#define GW_ROUTE_FLOATS(experts) (((experts) + 3) / 4 * 4) /* of an array of theirs */
#define GW_ROUTE_SHARED(experts) (4 * (3 * GW_ROUTE_FLOATS(experts) + 2 * GW_ROUTE_WORDS(experts)))

/* In the order of gw_score of core/tensor/route.h. */
enum {
    GW_ROUTE_SOFTMAX,
    GW_ROUTE_SOFTMAX_CHOSEN,
    GW_ROUTE_SIGMOID,
    GW_ROUTE_SQRT_SOFTPLUS,
    GW_ROUTE_SPARSEMIXER
};
struct gw_route_params {
    GW_DEV(const float) bias;   /* [experts] or 0  */
    GW_DEV(const float) factor; /* [experts] or 0  */
    GW_DEV(const float) given;  /* rows of [used]: experts that are known; or 0 */
    int32_t experts, used, score, groups, groups_used, group_best, renorm;
    float scale, jitter;
};

#endif
