/* cpu/linear_shape_body.h - what every text of quantized linear kernels needs besides the
 * unpacking: the shape of each format's term, and how a finished sum leaves. After a vocabulary
 * (simd_*.h).
 */
#include "cpu/linear_acts_body.h"

/* How a format's codes and scales enter its term (blocks.h has the same shapes). */
enum { SIGNED, SHIFTED, AFFINE, HALVED, HALVED_MIN };

typedef struct shape {
    int kind;
    int offset; /* subtracted from the unsigned codes                              */
    int pairs;  /* products of two codes that may be added in 16 bits: 8, 4 or 2   */
} shape;

#define SHAPE_q8_0                                                                                 \
    { SIGNED, V_SIGNED_OFFSET, 0 }
#define SHAPE_q4_0                                                                                 \
    { SHIFTED, 8, 8 }
#define SHAPE_q4_1                                                                                 \
    { AFFINE, 0, 8 }
#define SHAPE_q5_0                                                                                 \
    { SHIFTED, 16, 4 }
#define SHAPE_q5_1                                                                                 \
    { AFFINE, 0, 4 }
#define SHAPE_q2_k                                                                                 \
    { HALVED_MIN, 0, 4 }
#define SHAPE_q3_k                                                                                 \
    { HALVED, 4, 4 }
#define SHAPE_q4_k                                                                                 \
    { AFFINE, 0, 8 }
#define SHAPE_q5_k                                                                                 \
    { AFFINE, 0, 4 }
#define SHAPE_q6_k                                                                                 \
    { HALVED, 32, 2 }
#define SHAPE_iq4_nl                                                                               \
    { SIGNED, V_SIGNED_OFFSET, 0 }
#define SHAPE_iq4_xs                                                                               \
    { SIGNED, V_SIGNED_OFFSET, 0 }
#define SHAPE_int8                                                                                 \
    { SIGNED, V_SIGNED_OFFSET, 0 }
#define SHAPE_int4_g32                                                                             \
    { AFFINE, 0, 8 }
#define SHAPE_int4_g64                                                                             \
    { AFFINE, 0, 8 }
#define SHAPE_int4_g128                                                                            \
    { AFFINE, 0, 8 }
#define SHAPE_int4_g256                                                                            \
    { AFFINE, 0, 8 }

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
