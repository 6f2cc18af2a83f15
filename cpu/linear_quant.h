/* cpu/linear_quant.h - what the translation units of the quantized linear kernels share. */
#ifndef GW_CPU_LINEAR_QUANT_H
#define GW_CPU_LINEAR_QUANT_H

#include "cpu/linear.h"
#include "cpu/strip.h"

#define GW_LINEAR_DECLARE(name, level)                                                             \
    void gw_linear_##name##_##level##_decode(const gw_cpu_linear *job, size_t first, size_t end,   \
                                             void *scratch);                                       \
    void gw_linear_##name##_##level##_prefill(const gw_cpu_linear *job, size_t first, size_t end,  \
                                              void *scratch);                                      \
    void gw_linear_##name##_##level##_decode_prepare(const gw_cpu_linear *job, size_t first,       \
                                                     size_t end, void *dst);                       \
    void gw_linear_##name##_##level##_prefill_prepare(const gw_cpu_linear *job, size_t first,      \
                                                      size_t end, void *dst);
#define GW_LINEAR_DECLARE_ALL(name, NAME, weights, bytes, head)                                    \
    GW_LINEAR_DECLARE(name, avx2)                                                                  \
    GW_LINEAR_DECLARE(name, avx512)                                                                \
    GW_LINEAR_DECLARE(name, vnni)                                                                  \
    GW_LINEAR_DECLARE(name, amx)                                                                   \
    GW_LINEAR_DECLARE(name, neon)                                                                  \
    GW_LINEAR_DECLARE(name, i8mm)                                                                  \
    GW_LINEAR_DECLARE(name, rvv)
GW_STRIP_FORMATS(GW_LINEAR_DECLARE_ALL)

/* An activation block as the inner loops want it: everything a term needs besides the weights. */
typedef struct gw_xblock {
    float dx; /* of terms of several blocks in the first one */
    union {
        gw_i32 start; /* -offset * sum of q: all 32, or the first 16 where scales are per 16 */
        float dxs;    /* dx * (float)(sum of all q), for formats with a minimum              */
    } u;
    gw_i32 start1; /* -offset * sum of the second 16; of all 32 beside dxs                   */
    gw_i16 sum[2]; /* of halves; of prompts of Q4_K and Q5_K that of a block and of the next */
    gw_i8 q[GW_ACT_BLOCK];
} gw_xblock;

enum {
    GW_TILE = 16, /* activation rows that share one unpacking of a weight block       */
    GW_CHUNK_BYTES = 320 << 10 /* of activations kept in the second-level cache during prefill */
};

/* Activation rows of a prefill pass over the weights: a multiple of GW_TILE. */
static inline size_t gw_linear_chunk(size_t k) {
    size_t rows = GW_CHUNK_BYTES / (k / GW_ACT_BLOCK * sizeof(gw_xblock) + 1) / GW_TILE * GW_TILE;
    return rows < GW_TILE ? GW_TILE : rows;
}

/* Scratch of every SIMD kernel: the float lanes or tile sums first, then the activation blocks. */
size_t gw_linear_scratch(size_t k, int n_max);
size_t gw_linear_prepared(size_t k, int n_max);
size_t gw_linear_amx_scratch(size_t k, int n_max);
size_t gw_linear_amx_prepared(size_t k, int n_max);
size_t gw_linear_i8mm_scratch(size_t k, int n_max);
size_t gw_linear_i8mm_prepared(size_t k, int n_max);

#endif
