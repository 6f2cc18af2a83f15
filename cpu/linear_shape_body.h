/* cpu/linear_shape_body.h - what every text of quantized linear kernels needs besides the
 * unpacking: the shape of each format's term, and how a finished sum leaves. After a vocabulary
 * (simd_*.h).
 */
#include "cpu/linear_acts_body.h"

/* How a format's codes and scales enter its term (blocks.h has the same shapes). */
enum { SIGNED, SHIFTED, AFFINE, HALVED, HALVED_MIN, WIDE /* AFFINE, its codes as SIGNED */ };

typedef struct shape {
    int kind;
    int offset; /* subtracted from the unsigned codes                              */
    int pairs;  /* products of two codes that may be added in 16 bits: 8, 4 or 2   */
} shape;

#define SHAPE_KIND(low, levels, term)                                                              \
    ((term) == GW_TERM_HALVES                  ? HALVED                                            \
     : (term) == GW_TERM_Q2                    ? HALVED_MIN                                        \
     : (term) != GW_TERM_SIGNED                ? ((low) == 8 ? WIDE : AFFINE)                      \
     : (low) == 8 || (levels) > GW_LEVELS_NONE ? SIGNED                                            \
                                               : SHIFTED)
#define SHAPE_ENUM(unused, NAME, name, low, high, offset, levels, term, sub, share, head)          \
    KIND_##name = SHAPE_KIND(low, levels, term),                                                   \
    OFFSET_##name = KIND_##name == SIGNED || KIND_##name == WIDE ? V_SIGNED_OFFSET                 \
                    : (levels) > GW_LEVELS_NONE                  ? GW_HALVED_LEVELS                \
                                                                 : (offset),                       \
    PAIRS_##name = KIND_##name == SIGNED || KIND_##name == WIDE   ? 0                              \
                   : (levels) > GW_LEVELS_NONE                    ? 1                              \
                   : (low) + (high) == 6                          ? 2                              \
                   : (low) + (high) == 5 || KIND_##name >= HALVED ? 4                              \
                                                                  : 8,
enum { GW_QUANT_FORMATS(SHAPE_ENUM, 0) SHAPE_ENUM_END };
#define SHAPE(name)                                                                                \
    { KIND_##name, OFFSET_##name, PAIRS_##name }

/* y of V_ROWS rows from r on, for activation row i; rows from m on are padding. */
V_FN void finish(const gw_cpu_linear *job, size_t i, size_t r, v_float sum) {
    float *y = job->y + i * job->y_stride + r;
    const float *residual =
        job->residual != NULL ? job->residual + i * job->residual_stride + r : NULL;
    if (r + V_ROWS <= job->m) {
        sum = job->bias != NULL ? v_add(sum, v_fload(job->bias + r)) : sum;
        sum = residual != NULL ? v_add(sum, v_fload(residual)) : sum;
        v_fstore(y, sum);
        return;
    }
    float part[V_ROWS];
    v_fstore(part, sum);
    for (size_t j = 0; r + j < job->m; j++) {
        float v = job->bias != NULL ? part[j] + job->bias[r + j] : part[j];
        y[j] = residual != NULL ? v + residual[j] : v;
    }
}
