/* kernels_cl/floats.cl - what a device makes of the operands of backends/opencl/floats.c: 16 of one
 * operation for each item, one by one and as a vector. in: the operation of each item, then its
 * operands a, b and c, 16 words each. out: 16 words of single numbers, 16 of the vector.
 *
 * GW_FLOATS_...: for tests, as a device with another arithmetic computes.
 */
#if defined(GW_FLOATS_UNFUSED)
#define FMA(a, b, c) ((a) * (b) + (c))
#elif defined(GW_FLOATS_DOUBLED)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define FMA(a, b, c) ((float)((double)(a) * (double)(b) + (double)(c)))
#else
#define FMA(a, b, c) GW_FMA(a, b, c)
#endif
#ifdef GW_FLOATS_RECIPROCAL
#define DIVIDE(a, b) ((a) * (1.0f / (b)))
#else
#define DIVIDE(a, b) ((a) / (b))
#endif
#ifdef GW_FLOATS_ROOT
#define ROOT(a) ((a) * (1.0f / GW_SQRT(a)))
#else
#define ROOT(a) GW_SQRT(a)
#endif
#ifdef GW_FLOATS_CONTRACTED
#define PRODUCT_AND_SUM(a, b, c) GW_FMA(a, b, c)
#else
#define PRODUCT_AND_SUM(a, b, c) ((a) * (b) + (c))
#endif
#ifdef GW_FLOATS_FLUSHED
static float number(uint bits) {
    return as_float((bits & 0x7f800000u) != 0 ? bits : bits & 0x80000000u);
}
#else
#define number(bits) as_float(bits)
#endif

/* Their order is that of floats.c. */
#define COMPUTE(operation, a, b, c, integers_to_floats)                                            \
    switch (operation) {                                                                           \
    case 0:                                                                                        \
        return FMA(a, b, c);                                                                       \
    case 1:                                                                                        \
        return DIVIDE(a, b);                                                                       \
    case 2:                                                                                        \
        return ROOT(a);                                                                            \
    case 3:                                                                                        \
        return a + b;                                                                              \
    case 4:                                                                                        \
        return a * b;                                                                              \
    case 5:                                                                                        \
        return PRODUCT_AND_SUM(a, b, c);                                                           \
    case 6:                                                                                        \
        return GW_RINT(a);                                                                         \
    default:                                                                                       \
        return integers_to_floats;                                                                 \
    }

static float single_number(const uint operation, const uint u, const uint v, const uint w) {
    const float a = number(u), b = number(v), c = number(w);
    COMPUTE(operation, a, b, c, (float)(int)u)
}

#if !defined(GW_FLOATS_DOUBLED) && !defined(GW_FLOATS_FLUSHED)
#define VECTORS
static float16 vector(const uint operation, const uint16 u, const uint16 v, const uint16 w) {
    const float16 a = as_float16(u), b = as_float16(v), c = as_float16(w);
    COMPUTE(operation, a, b, c, convert_float16(as_int16(u)))
}
#endif

__kernel void floats(__global const uint *in, __global uint *out) {
    __global const uint *from = in + 49 * get_global_id(0);
    __global uint *to = out + 32 * get_global_id(0);
    for (int i = 0; i < 16; i++) {
        to[i] = as_uint(single_number(from[0], from[1 + i], from[17 + i], from[33 + i]));
#ifdef GW_FLOATS_FLUSHED
        to[i] = as_uint(number(to[i]));
#endif
#ifndef VECTORS
        to[16 + i] = to[i];
#endif
    }
#ifdef VECTORS
    vstore16(as_uint16(vector(from[0], vload16(0, from + 1), vload16(0, from + 17),
                              vload16(0, from + 33))),
             0, to + 16);
#endif
}
