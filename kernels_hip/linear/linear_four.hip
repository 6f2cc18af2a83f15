/* kernels_hip/linear/linear_four.hip - LINEAR and GLU of quantized weights for up to four rows of x
 * that lie in shared memory together.
 */
#include "kernels_hip/linear/linear_four.h"

#if GW_MMA
#define PRODUCT(glu, ...) gw_product<gw_few<format<__VA_ARGS__>>, glu>(p)
#define KERNELS(NAME, name, ...)                                                                   \
    GW_KERNEL(gw_linear_##name##_four, struct gw_linear_params, GW_LINEAR_BLOCK(4, GW_COPIES, 0),  \
              1) {                                                                                 \
        PRODUCT(0, __VA_ARGS__);                                                                   \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name##_four, struct gw_linear_params, GW_LINEAR_BLOCK(4, GW_COPIES, 0),     \
              1) {                                                                                 \
        PRODUCT(1, __VA_ARGS__);                                                                   \
    }
GW_STRIP_KERNELS(KERNELS)
#endif
