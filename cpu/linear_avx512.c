/* cpu/linear_avx512.c - the quantized linear kernels for AVX-512 F, BW, VL, DQ. */
#if defined(__x86_64__)
#define V_VNNI 0
#include "cpu/simd_avx512.h"
#define LEVEL avx512
#include "cpu/linear_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gw_no_avx512_here;
#endif
