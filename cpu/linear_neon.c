/* cpu/linear_neon.c - the quantized linear kernels for AArch64 NEON with dot product. */
#if defined(__aarch64__)
#include "cpu/simd_neon.h"
#define LEVEL neon
#include "cpu/linear_body.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int gw_no_neon_here;
#endif
