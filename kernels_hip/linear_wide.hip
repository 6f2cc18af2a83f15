/* kernels_hip/linear_wide.hip - LINEAR and GLU of quantized weights for several rows of x: matrix
 * instructions, the same bits as linear.hip.
 */
#include "kernels_hip/linear_quant.h"

#if GW_MMA
#define PRODUCT(name, glu) gw_product<gw_wide<gw_strip_##name>, glu>(p)
#else
#define PRODUCT(name, glu) (void)p /* the host does not launch these */
#endif
#define KERNELS(NAME, name, ...)                                                                   \
    GW_KERNEL(gw_linear_##name##_wide, struct gw_linear_params, GW_LINEAR_THREADS) {               \
        PRODUCT(name, 0);                                                                          \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name##_wide, struct gw_linear_params, GW_LINEAR_THREADS) {                  \
        PRODUCT(name, 1);                                                                          \
    }
GW_STRIP_FORMATS(KERNELS)
