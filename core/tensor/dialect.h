/* core/tensor/dialect.h - the subset that C11, HIP C++ and OpenCL C 1.2 share.
 *
 * arith.h and blocks.h are written with these names only, so that one text defines the arithmetic
 * for every compiler. Included by nothing else in core/.
 */
#ifndef GW_TENSOR_DIALECT_H
#define GW_TENSOR_DIALECT_H

#if defined(__OPENCL_VERSION__)
typedef uchar gw_u8;
typedef char gw_i8;
typedef ushort gw_u16;
typedef short gw_i16;
typedef uint gw_u32;
typedef int gw_i32;
#define GW_FN static inline
#define GW_GLOBAL __global /* where stored weights live */
#ifndef GW_ACT
#define GW_ACT __global /* where activation blocks live; a kernel may say __local first */
#endif
#define GW_FMA(a, b, c) fma(a, b, c)
#define GW_RINT(x) rint(x)
#define GW_SQRT(x) sqrt(x)
#define GW_FABS(x) fabs(x)
#define GW_F32_BITS(x) as_uint(x)
#define GW_F32_FROM_BITS(u) as_float(u)
#else
#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__) /* compiled at run time: no system headers */
#define int8_t signed char
#define uint8_t unsigned char
#define int16_t short
#define uint16_t unsigned short
#define int32_t int
#define uint32_t unsigned int
#define int64_t long long
#define uint64_t unsigned long long
#else
#include <stdint.h>
#endif
typedef uint8_t gw_u8;
typedef int8_t gw_i8;
typedef uint16_t gw_u16;
typedef int16_t gw_i16;
typedef uint32_t gw_u32;
typedef int32_t gw_i32;
#if defined(__HIPCC__) || defined(__HIP__) || defined(__CUDACC__) || defined(__HIPCC_RTC__)
#define GW_FN __device__ static inline /* kernels only: the host side is C */
#define GW_F32_BITS(x) __float_as_uint(x)
#define GW_F32_FROM_BITS(u) __uint_as_float(u)
#else
#include <math.h>
#include <string.h>
#define GW_FN static inline
static inline gw_u32 gw_f32_bits(float x) {
    gw_u32 u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float gw_f32_from_bits(gw_u32 u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
#define GW_F32_BITS(x) gw_f32_bits(x)
#define GW_F32_FROM_BITS(u) gw_f32_from_bits(u)
#endif
#define GW_GLOBAL
#define GW_ACT
#define GW_FMA(a, b, c) fmaf(a, b, c)
#define GW_RINT(x) rintf(x)
#define GW_SQRT(x) sqrtf(x)
#define GW_FABS(x) fabsf(x)
#endif

#endif
