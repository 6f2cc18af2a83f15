/* cpu/linear_vnni.c - the quantized linear kernels for AVX-512 with VNNI. */
#if defined(__x86_64__)
#define V_VNNI 1
#include "cpu/simd_avx512.h"
#define LEVEL vnni
#include "cpu/linear_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gw_no_vnni_here;
#endif
