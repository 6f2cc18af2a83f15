/* cpu/linear_float.h - the float rows of the linear kernel table (F32, F16, BF16; every level). */
#ifndef GW_CPU_LINEAR_FLOAT_H
#define GW_CPU_LINEAR_FLOAT_H

#include "cpu/linear.h"

/* Weights are read as stored, at any 2-byte (4-byte for F32) aligned place; x is float. */
const gw_cpu_linear_kernel *gw_cpu_linear_float_kernels(size_t *count);

#endif
