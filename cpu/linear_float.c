/* cpu/linear_float.c - float linear kernels: the scalar definition, and linear_float_body.h
 * compiled once per instruction set.
 */
#include "cpu/linear_float.h"

#include <math.h>
#include <string.h>

#include "core/tensor/nvfp4.h"
#include "cpu/vec.h"

#define MICRO_PACK

enum {
    DEPTH = 256,    /* columns widened at a time: a strip of 16 rows is half of a 32 KB L1      */
    TILE_ROWS = 64, /* weight rows whose sums are kept at a time                                */
    TOKENS = 96     /* tokens whose DEPTH columns stay in L2 while the strips pass: 96 KB       */
};

static size_t prepared_bytes(size_t k, int n_max) {
    size_t n = n_max > 0 ? (size_t)n_max : 1;
    return (n + GW_PREPARE_ROWS - 1) / GW_PREPARE_ROWS * GW_PREPARE_ROWS * k * sizeof(float);
}

static size_t prefill_scratch(size_t k, int n_max) {
    (void)k;
    return (TILE_ROWS * DEPTH + (size_t)n_max * TILE_ROWS) * sizeof(float);
}

/* ---- the definition ----------------------------------------------------------------------------
 */

static float stored(gw_fmt fmt, const void *w, size_t row, size_t k, size_t i) {
    const size_t blocks = (k + GW_E4M3_BLOCK - 1) / GW_E4M3_BLOCK;
    if (fmt == GW_FMT_NVFP4_CODES) {
        return gw_nvfp4_weight((const gw_block_nvfp4 *)w + row * blocks, (int)i);
    }
    if (fmt == GW_FMT_E4M3) {
        return gw_e4m3_weight((const gw_block_e4m3 *)w + row * blocks, (int)i);
    }
    if (fmt == GW_FMT_F32) {
        return ((const float *)w)[row * k + i];
    }
    gw_u16 bits = ((const gw_u16 *)w)[row * k + i];
    return fmt == GW_FMT_F16 ? gw_f16_to_f32(bits) : gw_bf16_to_f32(bits);
}

static void scalar_linear(gw_fmt fmt, int prefill, const gw_cpu_linear *job, size_t first,
                          size_t end) {
    for (size_t i = 0; i < (size_t)job->n; i++) {
        const float *x = (const float *)(const void *)((const char *)job->x + i * job->x_stride);
        for (size_t r = first; r < end; r++) {
            float lane[GW_LANES] = {0.0f};
            for (size_t j = 0; j < job->k; j++) {
                float *sum = &lane[prefill ? 0 : j % GW_LANES];
                *sum = fmaf(stored(fmt, job->w, r, job->k, j), x[j], *sum);
            }
            float sum = prefill ? lane[0] : gw_join_lanes(lane);
            sum = job->bias != NULL ? sum + job->bias[r] : sum;
            sum = job->residual != NULL ? sum + job->residual[i * job->residual_stride + r] : sum;
            job->y[i * job->y_stride + r] = sum;
        }
    }
}

#define SCALAR_KERNELS(fmt, what)                                                                  \
    static void decode_##what(const gw_cpu_linear *job, size_t first, size_t end, void *scratch) { \
        (void)scratch;                                                                             \
        scalar_linear(fmt, 0, job, first, end);                                                    \
    }                                                                                              \
    static void prefill_##what(const gw_cpu_linear *job, size_t first, size_t end,                 \
                               void *scratch) {                                                    \
        (void)scratch;                                                                             \
        scalar_linear(fmt, 1, job, first, end);                                                    \
    }
SCALAR_KERNELS(GW_FMT_F32, f32)
SCALAR_KERNELS(GW_FMT_F16, f16)
SCALAR_KERNELS(GW_FMT_BF16, bf16)
SCALAR_KERNELS(GW_FMT_E4M3, e4m3)
SCALAR_KERNELS(GW_FMT_NVFP4_CODES, nvfp4_codes)

/* ---- vectors ------------------------------------------------------------------------------------
 */

#if defined(__x86_64__)
#undef GW_VEC
#define GW_VEC GW_VEC_AVX2
#include "cpu/vec.h"
#include "cpu/micro_body.h"
#include "cpu/linear_float_body.h"
#undef GW_VEC
#define GW_VEC GW_VEC_AVX512
#include "cpu/vec.h"
#include "cpu/micro_body.h"
#include "cpu/linear_float_body.h"
#elif defined(__aarch64__)
#undef GW_VEC
#define GW_VEC GW_VEC_NEON
#include "cpu/vec.h"
#include "cpu/micro_body.h"
#include "cpu/linear_float_body.h"
#endif

/* clang-format off */
#define ROWS(fmt, what, level, label, suffix, bytes, prepare)                                      \
    {fmt, level, 0, 0, "linear." #what "." label, decode_##what##suffix, NULL, NULL, NULL},        \
    {fmt, level, 1, 0, "linear." #what "." label ".prefill", prefill_##what##suffix,               \
     prefill_scratch, bytes, prepare}
#define LEVEL(level, label, suffix, bytes, prepare)                                                \
    ROWS(GW_FMT_F32, f32, level, label, suffix, bytes, prepare),                                   \
    ROWS(GW_FMT_F16, f16, level, label, suffix, bytes, prepare),                                   \
    ROWS(GW_FMT_BF16, bf16, level, label, suffix, bytes, prepare),                                 \
    ROWS(GW_FMT_E4M3, e4m3, level, label, suffix, bytes, prepare),                                 \
    ROWS(GW_FMT_NVFP4_CODES, nvfp4_codes, level, label, suffix, bytes, prepare)

static const gw_cpu_linear_kernel kernels[] = {
#if defined(__x86_64__)
    /* AMX, VNNI: the same code, these levels add integers only. */
    LEVEL(GW_CPU_AMX, "avx512", _avx512, prepared_bytes, prepare_avx512),
    LEVEL(GW_CPU_VNNI, "avx512", _avx512, prepared_bytes, prepare_avx512),
    LEVEL(GW_CPU_AVX512, "avx512", _avx512, prepared_bytes, prepare_avx512),
    LEVEL(GW_CPU_AVX2, "avx2", _avx2, prepared_bytes, prepare_avx2),
#elif defined(__aarch64__)
    LEVEL(GW_CPU_I8MM, "neon", _neon, prepared_bytes, prepare_neon),
    LEVEL(GW_CPU_NEON, "neon", _neon, prepared_bytes, prepare_neon),
#endif
    LEVEL(GW_CPU_SCALAR, "scalar", , NULL, NULL),
};
/* clang-format on */

const gw_cpu_linear_kernel *gw_cpu_linear_float_kernels(size_t *count) {
    *count = sizeof kernels / sizeof kernels[0];
    return kernels;
}
