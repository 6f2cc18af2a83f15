/* kernels_hip/linear/linear_many.hip - LINEAR and GLU of quantized weights for GW_LINEAR_MANY rows
 * of x that lie in shared memory together, several tiles of a matrix instruction.
 */
#include "kernels_hip/linear/linear_wide.h"

#if GW_MMA && GW_COPIES
#define PRODUCT(glu, ...) gw_product<gw_wide<format<__VA_ARGS__>, GW_LINEAR_MANY>, glu>(p)
#define KERNELS(NAME, name, ...)                                                                   \
    GW_KERNEL(gw_linear_##name##_many, struct gw_linear_params,                                    \
              GW_LINEAR_BLOCK(GW_LINEAR_MANY, GW_COPIES, 0), 1) {                                  \
        PRODUCT(0, __VA_ARGS__);                                                                   \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name##_many, struct gw_linear_params,                                       \
              GW_LINEAR_BLOCK(GW_LINEAR_MANY, GW_COPIES, 0), 1) {                                  \
        PRODUCT(1, __VA_ARGS__);                                                                   \
    }
GW_STRIP_KERNELS(KERNELS)
#endif
