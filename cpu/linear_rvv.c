/* cpu/linear_rvv.c - the quantized linear kernels for RISC-V's vectors. */
#if defined(GODWIT_RVV)
#include "cpu/simd_rvv.h"
#define LEVEL rvv
#include "cpu/linear_body.h"
#pragma clang attribute pop
#else
typedef int gw_no_rvv_here;
#endif
