/* kernels_hip/linear/linear_many.hip - LINEAR and GLU of quantized weights for GW_LINEAR_MANY rows
 * of x at a time, which are several tiles of a matrix instruction: lying in shared memory together,
 * or in pieces.
 */
#include "kernels_hip/linear/linear_wide.h"

#if GW_MMA && GW_COPIES
#define PRODUCT(glu, pieces, ...)                                                                  \
    gw_product<gw_wide<format<__VA_ARGS__>, GW_LINEAR_MANY>, glu, pieces>(p)
#else
#define PRODUCT(glu, pieces, ...) (void)p /* the host does not launch these */
#endif
#define KERNEL(kernel, glu, pieces, ...)                                                           \
    GW_KERNEL(kernel, struct gw_linear_params, GW_LINEAR_BLOCK(GW_LINEAR_MANY, GW_COPIES, pieces), \
              1) {                                                                                 \
        PRODUCT(glu, pieces, __VA_ARGS__);                                                         \
    }
#define KERNELS(NAME, name, ...)                                                                   \
    KERNEL(gw_linear_##name##_many, 0, 0, __VA_ARGS__)                                             \
    KERNEL(gw_glu_##name##_many, 1, 0, __VA_ARGS__)                                                \
    KERNEL(gw_linear_##name##_many_pieces, 0, 1, __VA_ARGS__)                                      \
    KERNEL(gw_glu_##name##_many_pieces, 1, 1, __VA_ARGS__)
GW_STRIP_FORMATS(KERNELS)
