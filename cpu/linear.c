/* cpu/linear.c - the table of quantized linear kernels, and the scalar ones: the anchor that every
 * other level must equal bit for bit. They read rows as stored through the format's own term. */
#include "cpu/linear_quant.h"

#include "cpu/linear_float.h"

static void finish(const gw_cpu_linear *job, size_t i, size_t r, float sum) {
    if (job->bias != NULL) {
        sum = sum + job->bias[r];
    }
    if (job->residual != NULL) {
        sum = sum + job->residual[i * job->residual_stride + r];
    }
    job->y[i * job->y_stride + r] = sum;
}

/* Up to GW_STRIP_ROWS rows from `first` on times activation row i: spans are made once for them. */
static void scalar_strip(const gw_format *f, const gw_cpu_linear *job, size_t first, size_t rows,
                         size_t i, int prefill) {
    const size_t row_bytes = f->row_header + job->k / f->block_elems * f->block_bytes;
    const unsigned char *w = (const unsigned char *)job->w + first * row_bytes;
    const gw_act8 *x = (const gw_act8 *)(const void *)((const char *)job->x + i * job->x_stride);
    float lane[GW_STRIP_ROWS][GW_LANES] = {{0}};
    const size_t span = prefill ? f->prompt_span : f->span;
    for (size_t b = 0; b < job->k / GW_ACT_BLOCK; b += span) {
        gw_act8 one[GW_ACT_SPAN];
        if (span > 1) {
            gw_act8_span(one, x + b);
        }
        for (size_t r = 0; r < rows; r++) {
            float *acc = &lane[r][prefill ? 0 : b % GW_LANES];
            *acc = (prefill ? f->prompt_term : f->term)(w + r * row_bytes, b,
                                                        span > 1 ? one : x + b, *acc);
        }
    }
    for (size_t r = 0; r < rows; r++) {
        finish(job, i, first + r, prefill ? lane[r][0] : gw_join_lanes(lane[r]));
    }
}

static void scalar_rows(gw_fmt fmt, const gw_cpu_linear *job, size_t first, size_t end,
                        int prefill) {
    for (size_t r = first; r < end; r += GW_STRIP_ROWS) {
        const size_t rows = end - r < GW_STRIP_ROWS ? end - r : GW_STRIP_ROWS;
        for (size_t i = 0; i < (size_t)job->n; i++) {
            scalar_strip(gw_format_of(fmt), job, r, rows, i, prefill);
        }
    }
}

#define SCALAR(name, NAME, weights, bytes, head)                                                   \
    static void name##_scalar_decode(const gw_cpu_linear *job, size_t first, size_t end,           \
                                     void *scratch) {                                              \
        (void)scratch;                                                                             \
        scalar_rows(GW_FMT_##NAME, job, first, end, 0);                                            \
    }                                                                                              \
    static void name##_scalar_prefill(const gw_cpu_linear *job, size_t first, size_t end,          \
                                      void *scratch) {                                             \
        (void)scratch;                                                                             \
        scalar_rows(GW_FMT_##NAME, job, first, end, 1);                                            \
    }
GW_STRIP_FORMATS(SCALAR)

size_t gw_linear_scratch(size_t k, int n_max) {
    size_t n = n_max > 0 ? (size_t)n_max : 1;
    size_t chunk = gw_linear_chunk(k);
    size_t rows = n < chunk ? (n + GW_TILE - 1) / GW_TILE * GW_TILE : chunk;
    return GW_LANES * GW_TILE * GW_STRIP_ROWS * sizeof(float) +
           rows * (k / GW_ACT_BLOCK) * sizeof(gw_xblock);
}

size_t gw_linear_prepared(size_t k, int n_max) {
    size_t n = n_max > 0 ? (size_t)n_max : 1;
    return n * (k / GW_ACT_BLOCK) * sizeof(gw_xblock);
}

/* One order of a SIMD level; `code` is the level whose functions it takes. */
#define ROW(name, NAME, LEVEL, order, code, label, kernel, scratch, bytes)                         \
    {GW_FMT_##NAME,                                                                                \
     GW_CPU_##LEVEL,                                                                               \
     order,                                                                                        \
     1,                                                                                            \
     "linear." #name "." #code label,                                                              \
     gw_linear_##name##_##code##_##kernel,                                                         \
     scratch,                                                                                      \
     bytes,                                                                                        \
     gw_linear_##name##_##code##_##kernel##_prepare},
#define DECODE(name, NAME, LEVEL, code)                                                            \
    ROW(name, NAME, LEVEL, 0, code, "", decode, gw_linear_scratch, gw_linear_prepared)
#define LEVEL(name, NAME, LEVEL, code)                                                             \
    DECODE(name, NAME, LEVEL, code)                                                                \
    ROW(name, NAME, LEVEL, 1, code, ".prefill", prefill, gw_linear_scratch, gw_linear_prepared)
#if defined(GODWIT_AMX)
#define AMX_ROWS(name, NAME)                                                                       \
    DECODE(name, NAME, AMX, vnni)                                                                  \
    ROW(name, NAME, AMX, 1, amx, ".prefill", prefill, gw_linear_amx_scratch, gw_linear_amx_prepared)
#else
#define AMX_ROWS(name, NAME)
#endif
#if defined(GODWIT_I8MM)
#define I8MM_ROWS(name, NAME)                                                                      \
    DECODE(name, NAME, I8MM, neon)                                                                 \
    ROW(name, NAME, I8MM, 1, i8mm, ".prefill", prefill, gw_linear_i8mm_scratch,                    \
        gw_linear_i8mm_prepared)
#else
#define I8MM_ROWS(name, NAME)
#endif
#if defined(__x86_64__)
#define SIMD_ROWS(name, NAME)                                                                      \
    AMX_ROWS(name, NAME)                                                                           \
    LEVEL(name, NAME, VNNI, vnni)                                                                  \
    LEVEL(name, NAME, AVX512, avx512) LEVEL(name, NAME, AVX2, avx2)
#elif defined(__aarch64__)
#define SIMD_ROWS(name, NAME)                                                                      \
    I8MM_ROWS(name, NAME)                                                                          \
    LEVEL(name, NAME, NEON, neon)
#elif defined(GODWIT_RVV)
#define SIMD_ROWS(name, NAME) LEVEL(name, NAME, RVV, rvv)
#else
#define SIMD_ROWS(name, NAME)
#endif
#define ROWS(name, NAME, weights, bytes, head)                                                     \
    SIMD_ROWS(name,                                                                                \
              NAME){GW_FMT_##NAME,        GW_CPU_SCALAR, 0,    0,   "linear." #name ".scalar",     \
                    name##_scalar_decode, NULL,          NULL, NULL},                              \
        {GW_FMT_##NAME,         GW_CPU_SCALAR, 1,    0,   "linear." #name ".scalar.prefill",       \
         name##_scalar_prefill, NULL,          NULL, NULL},

static const gw_cpu_linear_kernel kernels[] = {GW_STRIP_FORMATS(ROWS)};

const gw_cpu_linear_kernel *gw_cpu_linear_kernels(size_t *count) {
    *count = sizeof kernels / sizeof kernels[0];
    return kernels;
}

/* The scalar kernel of a format comes last, so the last match is the fallback. */
static const gw_cpu_linear_kernel *find(const gw_cpu_linear_kernel *table, size_t count, gw_fmt fmt,
                                        gw_cpu_level level, int prefill) {
    const gw_cpu_linear_kernel *scalar = NULL;
    for (size_t i = 0; i < count; i++) {
        const gw_cpu_linear_kernel *k = &table[i];
        if (k->fmt == fmt && k->prefill == !!prefill) {
            if (k->level == level) {
                return k;
            }
            scalar = k->level == GW_CPU_SCALAR ? k : scalar;
        }
    }
    return scalar;
}

const gw_cpu_linear_kernel *gw_cpu_linear_find(gw_fmt fmt, gw_cpu_level level, int prefill) {
    size_t count;
    const gw_cpu_linear_kernel *k =
        find(kernels, sizeof kernels / sizeof kernels[0], fmt, level, prefill);
    if (k == NULL) {
        const gw_cpu_linear_kernel *floats = gw_cpu_linear_float_kernels(&count);
        k = find(floats, count, fmt, level, prefill);
    }
    return k;
}
