/* kernels_hip/device_wmma.h - the part of device_matrix.h, which includes it, for WMMA of gfx11 and
 * gfx12: which values of its operands a thread of a wave of 32 holds, and the instructions.
 *
 * All are 16x16x16. A lane holds values of one row of A and one column of B, number lane % 16: on
 * gfx11 the whole k, the same as the lane 16 further on; on gfx12 one of the two has half of k, the
 * other one the rest. A register is four int8 or two 16-bit floats. Of the results a lane has eight
 * of column lane % 16. Source: AMD, "RDNA3 Instruction Set Architecture", 7.9, and "RDNA4
 * Instruction Set Architecture", 7.12; tables of ROCm/amd_matrix_instruction_calculator.
 *
 * Weights and activations are stored by quarters of 16 columns, so GW_WMMA_QUARTERS of them are a
 * lane's; operands of K = 32 int8 are two instructions', those of the first 16 columns in front.
 */
#ifndef GW_KERNELS_HIP_DEVICE_WMMA_H
#define GW_KERNELS_HIP_DEVICE_WMMA_H

#include "kernels_hip/device.h"

#if GW_MATRIX == GW_MATRIX_WMMA_11
#define GW_WMMA_QUARTERS 4
#else
#define GW_WMMA_QUARTERS 2
#endif

#define GW_MMA_RESULTS 8
enum {
    GW_MMA_M = 16,
    GW_MMA_N = 16,
    GW_MMA_A = 2 * GW_WMMA_QUARTERS,
    GW_MMA_B = GW_MMA_A,
    GW_MMA_C = GW_MMA_RESULTS
};
#define GW_MMA_PARTS AR = GW_WMMA_QUARTERS, CR = GW_MMA_RESULTS, CC = 1

/* The first quarter of a lane. */
GW_DEVICE int gw_wmma_quarter(int lane) { return GW_WMMA_QUARTERS == 4 ? 0 : lane / 16 * 2; }

GW_DEVICE int gw_mma_a_row(int lane, int) { return lane % 16; }
GW_DEVICE int gw_mma_b_col(int lane) { return lane % 16; }
GW_DEVICE int gw_mma_a_k_int8(int lane, int i) {
    return i / GW_WMMA_QUARTERS * 16 + (gw_wmma_quarter(lane) + i % GW_WMMA_QUARTERS) * 4;
}
GW_DEVICE int gw_mma_b_k_int8(int lane, int i) { return gw_mma_a_k_int8(lane, i); }
GW_DEVICE int gw_mma_a_k_half(int lane, int i) {
    return GW_WMMA_QUARTERS == 4 ? 2 * i : i / 2 * 8 + lane / 16 * 4 + i % 2 * 2;
}
GW_DEVICE int gw_mma_b_k_half(int lane, int i) { return gw_mma_a_k_half(lane, i); }
/* The half is a number that the compiler knows nothing of: it would put `or` for `+`, and then has
 * an address in a register for each row. */
GW_DEVICE int gw_mma_c_row(int lane, int i) {
    int half = lane / 16;
#if defined(GW_AMD)
    asm("" : "+v"(half));
#endif
    return GW_WMMA_QUARTERS == 4 ? half + 2 * i : half * 8 + i;
}
GW_DEVICE int gw_mma_c_col(int lane, int) { return lane % 16; }

/* A lane's words of 16 bytes that are 16 int8 along k; aligned like those. */
GW_DEVICE void gw_wmma_load(unsigned *to, const void *from, int lane) {
    struct __align__(4 * GW_WMMA_QUARTERS) words {
        unsigned w[GW_WMMA_QUARTERS];
    };
    const words v = *(const words *)((const unsigned *)from + gw_wmma_quarter(lane));
#pragma unroll
    for (int i = 0; i < GW_WMMA_QUARTERS; i++) {
        to[i] = v.w[i];
    }
}

/* What the lane 16 further on, or before, has. */
GW_DEVICE unsigned gw_wmma_other_half(unsigned v) {
#if defined(GW_AMD)
    return (unsigned)__builtin_amdgcn_permlanex16((int)v, (int)v, 0x76543210, (int)0xfedcba98u,
                                                  false, false);
#else
    return gw_shuffle_xor(v, 16);
#endif
}

#if GW_MATRIX == GW_MATRIX_WMMA_11
/* N words of an operand of which a lane has half, and the one 16 further on the rest: for where all
 * of them are not to stay in registers. */
template <int N> struct gw_wmma_whole {
    unsigned w[N];

    __device__ inline gw_wmma_whole(const unsigned *half, int lane) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            unsigned v = half[i];
#if defined(GW_AMD)
            asm volatile("" : "+v"(v)); /* so this is new each time */
#endif
            const unsigned other = gw_wmma_other_half(v);
            w[i] = lane / 16 ? other : v;
            w[N / 2 + i] = lane / 16 ? v : other;
        }
    }
};
#endif

/* What a lane has of a result is computed here, and memory that follows is not read earlier. Or the
 * compiler begins so much of an unrolled loop, and puts off so much of it, that registers spill. */
template <class T> __device__ static inline void gw_wmma_now(T *v) {
#if defined(GW_AMD)
    asm volatile(""
                 : "+v"(v[0]), "+v"(v[1]), "+v"(v[2]), "+v"(v[3]), "+v"(v[4]), "+v"(v[5]),
                   "+v"(v[6]), "+v"(v[7])::"memory");
#else
    (void)v;
#endif
}

#if defined(GW_AMD)
#if GW_MATRIX == GW_MATRIX_WMMA_11
#define GW_WMMA_CALL(name) __builtin_amdgcn_wmma_##name##_w32
#else
#define GW_WMMA_CALL(name) __builtin_amdgcn_wmma_##name##_w32_gfx12
#endif

/* Products of 16 int8 join c. */
GW_DEVICE void gw_wmma_int8(int *c, const unsigned *a, const unsigned *b) {
    typedef int words __attribute__((ext_vector_type(GW_WMMA_QUARTERS)));
    typedef int results __attribute__((ext_vector_type(GW_MMA_RESULTS)));
    words x, y;
    results d;
#pragma unroll
    for (int i = 0; i < GW_WMMA_QUARTERS; i++) {
        x[i] = (int)a[i];
        y[i] = (int)b[i];
    }
#pragma unroll
    for (int i = 0; i < GW_MMA_RESULTS; i++) {
        d[i] = c[i];
    }
    d = GW_WMMA_CALL(i32_16x16x16_iu8)(true, x, true, y, d, false);
#pragma unroll
    for (int i = 0; i < GW_MMA_RESULTS; i++) {
        c[i] = d[i];
    }
}
GW_DEVICE void gw_mma_int8(int *c, const unsigned *a, const unsigned *b) {
    gw_wmma_int8(c, a, b);
    gw_wmma_int8(c, a + GW_WMMA_QUARTERS, b + GW_WMMA_QUARTERS);
}
/* H: the half of k that the first registers have, or the others, alone. */
template <int H>
__device__ static inline void gw_mma_int8_half(int *c, const unsigned *a, const unsigned *b) {
    gw_wmma_int8(c, a + H * GW_WMMA_QUARTERS, b + H * GW_WMMA_QUARTERS);
}
#define GW_MMA_HALF(name, number, type)                                                            \
    GW_DEVICE void name(float *c, const unsigned *a, const unsigned *b) {                          \
        typedef number numbers __attribute__((ext_vector_type(2 * GW_MMA_A)));                     \
        typedef float results __attribute__((ext_vector_type(GW_MMA_RESULTS)));                    \
        union {                                                                                    \
            unsigned w[GW_MMA_A];                                                                  \
            numbers v;                                                                             \
        } x, y;                                                                                    \
        results d;                                                                                 \
        _Pragma("unroll") for (int i = 0; i < GW_MMA_A; i++) {                                     \
            x.w[i] = a[i];                                                                         \
            y.w[i] = b[i];                                                                         \
        }                                                                                          \
        _Pragma("unroll") for (int i = 0; i < GW_MMA_RESULTS; i++) { d[i] = c[i]; }                \
        d = GW_WMMA_CALL(f32_16x16x16_##type)(x.v, y.v, d);                                        \
        _Pragma("unroll") for (int i = 0; i < GW_MMA_RESULTS; i++) { c[i] = d[i]; }                \
    }
GW_MMA_HALF(gw_mma_f16, _Float16, f16)
GW_MMA_HALF(gw_mma_bf16, short, bf16)
#undef GW_MMA_HALF
#undef GW_WMMA_CALL
#endif

#endif
