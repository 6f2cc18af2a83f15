/* kernels_hip/linear/linear_pieces.hip - LINEAR and GLU of quantized weights for several rows of x
 * that are too long to lie in shared memory together.
 */
#include "kernels_hip/linear/linear_pieces.h"
#include "kernels_hip/linear/linear_wide.h"

#if GW_MMA
#if GW_COPIES
#define PRODUCT(glu, ...) gw_product<gw_wide<format<__VA_ARGS__>>, glu, 1>(p)
#else
#define PRODUCT(glu, ...) gw_product_in_pieces<gw_wide<format<__VA_ARGS__>>, glu>(p)
#endif
#define KERNELS(NAME, name, ...)                                                                   \
    GW_KERNEL(gw_linear_##name##_pieces, struct gw_linear_params,                                  \
              GW_LINEAR_BLOCK(GW_MMA_N, GW_COPIES, 1), 1) {                                        \
        PRODUCT(0, __VA_ARGS__);                                                                   \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name##_pieces, struct gw_linear_params,                                     \
              GW_LINEAR_BLOCK(GW_MMA_N, GW_COPIES, 1), 1) {                                        \
        PRODUCT(1, __VA_ARGS__);                                                                   \
    }
GW_STRIP_KERNELS(KERNELS)
#endif
