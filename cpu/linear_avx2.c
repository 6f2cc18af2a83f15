/* cpu/linear_avx2.c - the quantized linear kernels for AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include "cpu/simd_avx2.h"
#define LEVEL avx2
#include "cpu/linear_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gw_no_avx2_here;
#endif
