/* kernels_hip/device_matrix.h - the part of device.h, which includes it, that knows matrix
 * instructions.
 */
#ifndef GW_KERNELS_HIP_DEVICE_MATRIX_H
#define GW_KERNELS_HIP_DEVICE_MATRIX_H

#include "kernels_hip/device.h"

/* ---- matrix instructions --------------------------------------------------------------------- */

/* D[16, GW_MMA_N] = A[16, K] B[K, GW_MMA_N] + C by one wave, held in registers: `lane` is the
 * thread's number in its wave of LANES. A register of A or B holds neighbours along k: four int8
 * (K = 32) or two 16-bit floats (K = 16), the first at gw_mma_..._k. Register i of the accumulator
 * is D[gw_mma_c_row(lane, i)][gw_mma_c_col(lane, i)].
 *   NVIDIA  mma.sync m16n8k32 s8 and m16n8k16 f16, bf16
 *   AMD     two 16x16x16 i8; 16x16x16 f16, bf16; on waves of 32: device_wmma.h
 * A and B may be filled in any order of k that both share. Sums of integers are exact; sums of
 * floats have the hardware's order. */
#if GW_WMMA
#include "kernels_hip/device_wmma.h"
#elif LANES == 32
enum { GW_MMA_M = 16, GW_MMA_N = 8, GW_MMA_A = 4, GW_MMA_B = 2, GW_MMA_C = 4 };
#else
enum { GW_MMA_M = 16, GW_MMA_N = 16, GW_MMA_A = 2, GW_MMA_B = 2, GW_MMA_C = 4 };
#endif
enum { GW_MMA_K_INT8 = 32, GW_MMA_K_HALF = 16 };

GW_DEVICE int gw_wave_lane(void) { return (int)threadIdx.x % LANES; }

#if !GW_WMMA
#define GW_MMA_RESULTS 4 /* GW_MMA_C */
/* Enumerators, for loops over what a lane has of a product: AR parts of 16 rows of A for each 16
 * columns, rows or quarters; CR rows of the results, CC neighbouring columns of each. */
#define GW_MMA_PARTS AR = LANES == 32 ? 2 : 1, CR = LANES == 32 ? 2 : 4, CC = LANES == 32 ? 2 : 1
GW_DEVICE int gw_mma_a_row(int lane, int i) {
    return LANES == 32 ? lane / 4 + (i & 1) * 8 : lane % 16;
}
GW_DEVICE int gw_mma_b_col(int lane) { return LANES == 32 ? lane / 4 : lane % 16; }
GW_DEVICE int gw_mma_a_k_int8(int lane, int i) {
    return LANES == 32 ? lane % 4 * 4 + (i >> 1) * 16 : lane / 16 * 4 + i * 16;
}
GW_DEVICE int gw_mma_b_k_int8(int lane, int i) {
    return LANES == 32 ? lane % 4 * 4 + i * 16 : lane / 16 * 4 + i * 16;
}
GW_DEVICE int gw_mma_a_k_half(int lane, int i) {
    return LANES == 32 ? lane % 4 * 2 + (i >> 1) * 8 : lane / 16 * 4 + i * 2;
}
GW_DEVICE int gw_mma_b_k_half(int lane, int i) {
    return LANES == 32 ? lane % 4 * 2 + i * 8 : lane / 16 * 4 + i * 2;
}
GW_DEVICE int gw_mma_c_row(int lane, int i) {
    return LANES == 32 ? lane / 4 + (i >> 1) * 8 : lane / 16 * 4 + i;
}
GW_DEVICE int gw_mma_c_col(int lane, int i) {
    return LANES == 32 ? lane % 4 * 2 + (i & 1) : lane % 16;
}
#endif

#if defined(GW_NVIDIA) && GW_MMA
/* Four 8 x 8 tiles of 16-bit values from shared memory, a row of 16 bytes each: lane i names row
 * i % 8 of tile i / 8 and gets the 4 bytes i % 4 of row i / 4 of each tile. */
#define GW_LOAD_MATRICES 1
GW_DEVICE void gw_load_matrices(unsigned *r, gw_shared_at row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}
GW_DEVICE void gw_load_matrices(unsigned *r, const void *row) {
    gw_load_matrices(r, gw_shared_address(row));
}
/* The same, transposed: values 2 (i % 4) and the next of column i / 4 of each tile. */
GW_DEVICE void gw_load_matrices_across(unsigned *r, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(gw_shared_address(row))
                 : "memory");
}
GW_DEVICE void gw_mma_int8(int *c, const unsigned *a, const unsigned *b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* H: the half of k that the first registers have, or the others, alone. */
template <int H>
__device__ static inline void gw_mma_int8_half(int *c, const unsigned *a, const unsigned *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[2 * H]), "r"(a[2 * H + 1]), "r"(b[H]));
}
#define GW_MMA_HALF(name, type)                                                                    \
    GW_DEVICE void name(float *c, const unsigned *a, const unsigned *b) {                          \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, "       \
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                        \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                       \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                   \
    }
GW_MMA_HALF(gw_mma_f16, "f16")
GW_MMA_HALF(gw_mma_bf16, "bf16")
#undef GW_MMA_HALF
#elif defined(GW_AMD) && GW_MFMA
typedef int gw_int4v __attribute__((ext_vector_type(4)));
typedef float gw_float4v __attribute__((ext_vector_type(4)));
GW_DEVICE void gw_mma_int8(int *c, const unsigned *a, const unsigned *b) {
    gw_int4v d = {c[0], c[1], c[2], c[3]};
#if GW_MATRIX != GW_MATRIX_MFMA_I8
    d = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a[0], (int)b[0], d, 0, 0, 0);
    d = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a[1], (int)b[1], d, 0, 0, 0);
#else
    d = __builtin_amdgcn_mfma_i32_16x16x32_i8((long)((unsigned long)a[1] << 32 | a[0]),
                                              (long)((unsigned long)b[1] << 32 | b[0]), d, 0, 0, 0);
#endif
    c[0] = d.x, c[1] = d.y, c[2] = d.z, c[3] = d.w;
}
template <int H>
__device__ static inline void gw_mma_int8_half(int *c, const unsigned *a, const unsigned *b) {
#if GW_MATRIX != GW_MATRIX_MFMA_I8
    gw_int4v d = {c[0], c[1], c[2], c[3]};
    d = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a[H], (int)b[H], d, 0, 0, 0);
    c[0] = d.x, c[1] = d.y, c[2] = d.z, c[3] = d.w;
#else
    const unsigned half[2] = {H ? 0 : a[0], H ? a[1] : 0};
    gw_mma_int8(c, half, b);
#endif
}
GW_DEVICE void gw_mma_f16(float *c, const unsigned *a, const unsigned *b) {
    typedef _Float16 half4v __attribute__((ext_vector_type(4)));
    union {
        unsigned w[2];
        half4v h;
    } x = {{a[0], a[1]}}, y = {{b[0], b[1]}};
    gw_float4v d = {c[0], c[1], c[2], c[3]};
    d = __builtin_amdgcn_mfma_f32_16x16x16f16(x.h, y.h, d, 0, 0, 0);
    c[0] = d.x, c[1] = d.y, c[2] = d.z, c[3] = d.w;
}
GW_DEVICE void gw_mma_bf16(float *c, const unsigned *a, const unsigned *b) {
    gw_float4v d = {c[0], c[1], c[2], c[3]};
#if GW_MATRIX == GW_MATRIX_MFMA
    typedef short short2v __attribute__((ext_vector_type(2)));
    union {
        unsigned w;
        short2v h;
    } x0 = {a[0]}, y0 = {b[0]}, x1 = {a[1]}, y1 = {b[1]};
    d = __builtin_amdgcn_mfma_f32_16x16x8bf16(x0.h, y0.h, d, 0, 0, 0);
    d = __builtin_amdgcn_mfma_f32_16x16x8bf16(x1.h, y1.h, d, 0, 0, 0);
#else
    typedef short short4v __attribute__((ext_vector_type(4)));
    union {
        unsigned w[2];
        short4v h;
    } x = {{a[0], a[1]}}, y = {{b[0], b[1]}};
    d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x.h, y.h, d, 0, 0, 0);
#endif
    c[0] = d.x, c[1] = d.y, c[2] = d.z, c[3] = d.w;
}
#elif defined(GW_EMULATOR) && GW_MMA
GW_DEVICE void gw_mma_int8(int *c, const unsigned *a, const unsigned *b) {
    gw_emulator_mma_int8(c, a, b);
}
template <int H> static inline void gw_mma_int8_half(int *c, const unsigned *a, const unsigned *b) {
    unsigned half[GW_MMA_A];
    for (int k = 0; k < GW_MMA_A; k++) {
        half[k] = k / (GW_MMA_A / 2) == H ? a[k] : 0;
    }
    gw_mma_int8(c, half, b);
}
GW_DEVICE void gw_mma_f16(float *c, const unsigned *a, const unsigned *b) {
    gw_emulator_mma_half(c, a, b, 0);
}
GW_DEVICE void gw_mma_bf16(float *c, const unsigned *a, const unsigned *b) {
    gw_emulator_mma_half(c, a, b, 1);
}
#if GW_QUADS
GW_DEVICE void gw_load_matrices_across(unsigned *r, const void *row) {
    const unsigned long long at = (unsigned long long)(uintptr_t)row;
    const int lane = gw_lane();
    for (int i = 0; i < 8; i++) {
        const int from = i / 2 * 8 + lane % 4 * 2 + i % 2;
        const unsigned low = gw_shuffle((unsigned)at, from);
        const unsigned high = gw_shuffle((unsigned)(at >> 32), from);
        const gw_u16 *theirs = (const gw_u16 *)(uintptr_t)((unsigned long long)high << 32 | low);
        r[i / 2] = i % 2 == 0 ? theirs[lane / 4] : r[i / 2] | (unsigned)theirs[lane / 4] << 16;
    }
}
#endif
#endif

/* The same by dot products, where every thread is handed the words of its rows and columns: for
 * kernels that devices without matrix instructions share. The emulator of 32 threads tries both. */
#if !GW_MMA || (defined(GW_EMULATOR) && LANES == 32 && !GW_WMMA)
#if GW_MMA
#define GW_BY_DOTS gw_mma_int8_by_dots
#else
#define GW_BY_DOTS gw_mma_int8
#endif
#if defined(GW_AMD) && LANES == 64
GW_DEVICE unsigned gw_wave_word(unsigned v, int from) { return (unsigned)__shfl((int)v, from, 64); }
#elif defined(GW_EMULATOR) && LANES == 64
GW_DEVICE unsigned gw_wave_word(unsigned v, int from) { return gw_emulator_wave_word(v, from); }
#else
GW_DEVICE unsigned gw_wave_word(unsigned v, int from) { return gw_shuffle(v, from); }
#endif
GW_DEVICE void GW_BY_DOTS(int *c, const unsigned *a, const unsigned *b) {
    const int lane = gw_wave_lane();
#pragma unroll
    for (int word = 0; word < 8; word++) {
        const int t = word % 4, h = word / 4; /* as gw_mma_a_k_int8 and gw_mma_b_k_int8 have them */
#if LANES == 32
        unsigned x[2], y[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            x[i] = gw_wave_word(a[i + 2 * h], lane / 4 * 4 + t);
            y[i] = gw_wave_word(b[h], (lane % 4 * 2 + i) * 4 + t);
        }
#pragma unroll
        for (int i = 0; i < GW_MMA_C; i++) {
            c[i] = gw_dp4a((int)x[i >> 1], (int)y[i & 1], c[i]);
        }
#else
        const unsigned y = gw_wave_word(b[h], lane % 16 + 16 * t);
#pragma unroll
        for (int i = 0; i < GW_MMA_C; i++) {
            c[i] = gw_dp4a((int)gw_wave_word(a[h], lane / 16 * 4 + i + 16 * t), (int)y, c[i]);
        }
#endif
    }
}
#endif

/* ---- matrix instructions of four waves ------------------------------------------------------- */

/* The upper, or lower, bytes of pairs of 16 bits, by turns of `even` and of `odd`. */
GW_DEVICE unsigned gw_high_bytes(unsigned even, unsigned odd) {
#if defined(GW_NVIDIA)
    return __byte_perm(even, odd, 0x7351);
#else
    return (even >> 8 & 0x00ff00ffu) | (odd & 0xff00ff00u);
#endif
}
GW_DEVICE unsigned gw_low_bytes(unsigned even, unsigned odd) {
#if defined(GW_NVIDIA)
    return __byte_perm(even, odd, 0x6240);
#else
    return (even & 0x00ff00ffu) | (odd << 8 & 0xff00ff00u);
#endif
}

/* Byte `at` (0 .. 3) of v, less OFFSET, twice; exact. */
template <int OFFSET> __device__ static inline unsigned gw_half_of_byte(unsigned v, int at) {
#if defined(GW_NVIDIA)
    unsigned r;
    asm("sub.f16x2 %0, %1, %2;"
        : "=r"(r)
        : "r"(__byte_perm(v, 0x64646464u, 0x4040u + at * 0x0101u)),
          "r"((0x6400u + OFFSET) * 0x10001u));
    return r;
#else
    return gw_f32_to_f16((float)(v >> 8 * at & 255u) - (float)OFFSET) * 0x10001u;
#endif
}

/* Pairs of binary16 times others. What comes of it has to be exact. */
GW_DEVICE unsigned gw_times_halves(unsigned a, unsigned b) {
#if defined(GW_NVIDIA)
    unsigned r;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#else
    unsigned r = 0;
    for (int i = 0; i < 32; i += 16) {
        r |=
            (unsigned)gw_f32_to_f16(gw_widen_f16((gw_u16)(a >> i)) * gw_widen_f16((gw_u16)(b >> i)))
            << i;
    }
    return r;
#endif
}

/* gw_halves_of_bytes without an offset, times `scale`, twice a binary16: exact where 1024 times it
 * and all products are. less: -1024 scale. */
GW_DEVICE void gw_scaled_halves_of_bytes(unsigned v, unsigned scale, unsigned less, unsigned *low,
                                         unsigned *high) {
#if defined(GW_NVIDIA)
    asm("fma.rn.f16x2 %0, %1, %2, %3;"
        : "=r"(*low)
        : "r"(__byte_perm(v, 0x64646464u, 0x4140)), "r"(scale), "r"(less));
    asm("fma.rn.f16x2 %0, %1, %2, %3;"
        : "=r"(*high)
        : "r"(__byte_perm(v, 0x64646464u, 0x4342)), "r"(scale), "r"(less));
#else
    (void)less;
    gw_halves_of_bytes<0>(v, low, high);
    *low = gw_times_halves(*low, scale);
    *high = gw_times_halves(*high, scale);
#endif
}

/* D[4 * 16, N] = A[4 * 16, K] B[K, N] (+ D) by four neighbouring waves, begun and not waited for:
 * `wgmma` of NVIDIA's sm_90a. A wave holds its 16 rows of A and of D as for the instructions above,
 * tile j of GW_MMA_N columns of D in registers 4 j on. B lies in shared memory, 128 bytes of a
 * column together from a multiple of 1024 on, piece c of 16 bytes of column t at c ^ t % 8; who
 * writes it calls gw_group_show before the barrier. What an instruction uses is left alone until
 * gw_group_wait, and then named to gw_group_keep. */
#if (defined(GW_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)) ||                                  \
    (defined(GW_EMULATOR) && GW_MATRIX == GW_MATRIX_MMA)
#define GW_GROUP_MMA 1
#else
#define GW_GROUP_MMA 0
#endif

#if GW_GROUP_MMA
/* Four waves at once leave registers to the others of their block, or take what those left: N for
 * each thread then, a multiple of 8. */
template <int N> __device__ static inline void gw_leave_registers(void) {
#if defined(GW_NVIDIA)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N> __device__ static inline void gw_take_registers(void) {
#if defined(GW_NVIDIA)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* Where columns of B begin, and what to add for 8 columns more or for 32 bytes along k. */
#if defined(GW_NVIDIA)
typedef unsigned gw_group_at; /* the lower half of a descriptor */
#else
typedef unsigned long long gw_group_at;
#endif
enum { GW_GROUP_COLUMNS_8 = 1024 / 16, GW_GROUP_K_STEP = 32 / 16 };

#if defined(GW_NVIDIA)
GW_DEVICE gw_group_at gw_group_columns(const void *b) {
    return (gw_shared_address(b) / 16 & 0x3fff) | 1u << 16;
}
/* 1024 bytes from 8 columns to the next; pieces exchanged over 128 bytes. */
#define GW_GROUP_AT "{\n.reg .pred add;\n.reg .b64 at;\nmov.b64 at, {%"
#define GW_GROUP_FROM ", 0x40000040};\nsetp.ne.b32 add, %"

GW_DEVICE void gw_group_show(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
GW_DEVICE void gw_group_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GW_DEVICE void gw_group_end(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* At most N of what gw_group_end ended are still under way. */
template <int N> __device__ static inline void gw_group_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N> __device__ static inline void gw_group_keep(unsigned *v) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+r"(v[i])::"memory");
    }
}
template <int N> __device__ static inline void gw_group_keep(int *v) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+r"(v[i])::"memory");
    }
}
template <int N> __device__ static inline void gw_group_keep(float *v) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(v[i])::"memory");
    }
}

#define GW_REGISTERS_16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define GW_REGISTERS_32                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define GW_REGISTERS_40                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39}"
#define GW_REGISTERS_64                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "            \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "             \
    "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "             \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define GW_REGISTERS_128                                                                           \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "            \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "             \
    "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "             \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "             \
    "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "             \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "             \
    "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "           \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "         \
    "%126, %127}"
#define GW_EIGHT(v, at)                                                                            \
    "+f"(v[at]), "+f"(v[at + 1]), "+f"(v[at + 2]), "+f"(v[at + 3]), "+f"(v[at + 4]),               \
        "+f"(v[at + 5]), "+f"(v[at + 6]), "+f"(v[at + 7])

#define GW_THIRTY_TWO(v, at)                                                                       \
    GW_EIGHT(v, at), GW_EIGHT(v, at + 8), GW_EIGHT(v, at + 16), GW_EIGHT(v, at + 24)

/* N columns (32, 64, 128 or 256), K = 16 of binary16 or bfloat16; D is added where add is not 0. */
#define GW_GROUP_HALF(name, type)                                                                  \
    template <int N>                                                                               \
    __device__ static inline void name(float *d, const unsigned *a, gw_group_at b, int add) {      \
        if (N == 256) {                                                                            \
            asm volatile(GW_GROUP_AT "132" GW_GROUP_FROM "133, 0;\n"                               \
                                     "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type  \
                                     " " GW_REGISTERS_128                                          \
                                     ", {%128, %129, %130, %131}, at, add, 1, 1, 0;\n}"            \
                         : GW_THIRTY_TWO(d, 0), GW_THIRTY_TWO(d, 32), GW_THIRTY_TWO(d, 64),        \
                           GW_THIRTY_TWO(d, 96)                                                    \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(add));          \
        } else if (N == 128) {                                                                     \
            asm volatile(GW_GROUP_AT "68" GW_GROUP_FROM "69, 0;\n"                                 \
                                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type  \
                                     " " GW_REGISTERS_64                                           \
                                     ", {%64, %65, %66, %67}, at, add, 1, 1, 0;\n}"                \
                         : GW_THIRTY_TWO(d, 0), GW_THIRTY_TWO(d, 32)                               \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(add));          \
        } else if (N == 64) {                                                                      \
            asm volatile(GW_GROUP_AT "36" GW_GROUP_FROM "37, 0;\n"                                 \
                                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type   \
                                     " " GW_REGISTERS_32                                           \
                                     ", {%32, %33, %34, %35}, at, add, 1, 1, 0;\n}"                \
                         : GW_EIGHT(d, 0), GW_EIGHT(d, 8), GW_EIGHT(d, 16), GW_EIGHT(d, 24)        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(add));          \
        } else {                                                                                   \
            asm volatile(GW_GROUP_AT "20" GW_GROUP_FROM "21, 0;\n"                                 \
                                     "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type   \
                                     " " GW_REGISTERS_16                                           \
                                     ", {%16, %17, %18, %19}, at, add, 1, 1, 0;\n}"                \
                         : GW_EIGHT(d, 0), GW_EIGHT(d, 8)                                          \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(add));          \
        }                                                                                          \
    }
GW_GROUP_HALF(gw_group_f16, "f16")
GW_GROUP_HALF(gw_group_bf16, "bf16")
#undef GW_GROUP_HALF

/* N columns (32 or 64) of eight binary16 each, which lie one behind the other, 16 bytes a column;
 * b: gw_group_eights. Of a, the first two words count and the others are zeros: what they are
 * multiplied by are the same eight once more. */
GW_DEVICE gw_group_at gw_group_eights(const void *b) { return gw_shared_address(b) / 16 & 0x3fff; }
template <int N>
__device__ static inline void gw_group_f16_eights(float *d, const unsigned *a, gw_group_at b) {
    if (N == 64) {
        asm volatile("{\n.reg .b64 at;\nmov.b64 at, {%34, 0x00000008};\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " GW_REGISTERS_32
                     ", {%32, %33, %35, %35}, at, 0, 1, 1, 0;\n}"
                     : GW_EIGHT(d, 0), GW_EIGHT(d, 8), GW_EIGHT(d, 16), GW_EIGHT(d, 24)
                     : "r"(a[0]), "r"(a[1]), "r"(b), "r"(0));
    } else {
        asm volatile("{\n.reg .b64 at;\nmov.b64 at, {%18, 0x00000008};\n"
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " GW_REGISTERS_16
                     ", {%16, %17, %19, %19}, at, 0, 1, 1, 0;\n}"
                     : GW_EIGHT(d, 0), GW_EIGHT(d, 8)
                     : "r"(a[0]), "r"(a[1]), "r"(b), "r"(0));
    }
}
#undef GW_THIRTY_TWO
#undef GW_EIGHT
#undef GW_REGISTERS_64
#undef GW_REGISTERS_128

/* N columns (32, 64 or 80; there is no 72), K = 32 of int8. */
#define GW_EIGHT(v, at)                                                                            \
    "+r"(v[at]), "+r"(v[at + 1]), "+r"(v[at + 2]), "+r"(v[at + 3]), "+r"(v[at + 4]),               \
        "+r"(v[at + 5]), "+r"(v[at + 6]), "+r"(v[at + 7])
template <int N>
__device__ static inline void gw_group_int8(int *d, const unsigned *a, gw_group_at b, int add) {
    if (N == 80) {
        asm volatile(GW_GROUP_AT "44" GW_GROUP_FROM "45, 0;\n"
                                 "wgmma.mma_async.sync.aligned.m64n80k32.s32.s8.s8 " GW_REGISTERS_40
                                 ", {%40, %41, %42, %43}, at, add;\n}"
                     : GW_EIGHT(d, 0), GW_EIGHT(d, 8), GW_EIGHT(d, 16), GW_EIGHT(d, 24),
                       GW_EIGHT(d, 32)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(add));
    } else if (N == 64) {
        asm volatile(GW_GROUP_AT "36" GW_GROUP_FROM "37, 0;\n"
                                 "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 " GW_REGISTERS_32
                                 ", {%32, %33, %34, %35}, at, add;\n}"
                     : GW_EIGHT(d, 0), GW_EIGHT(d, 8), GW_EIGHT(d, 16), GW_EIGHT(d, 24)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(add));
    } else {
        asm volatile(GW_GROUP_AT "20" GW_GROUP_FROM "21, 0;\n"
                                 "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 " GW_REGISTERS_16
                                 ", {%16, %17, %18, %19}, at, add;\n}"
                     : GW_EIGHT(d, 0), GW_EIGHT(d, 8)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(add));
    }
}
#undef GW_EIGHT
#undef GW_REGISTERS_16
#undef GW_REGISTERS_32
#undef GW_REGISTERS_40

#else /* the emulator, at once */
GW_DEVICE gw_group_at gw_group_columns(const void *b) { return (gw_group_at)(uintptr_t)b / 16; }
GW_DEVICE void gw_group_show(void) {}
GW_DEVICE void gw_group_begin(void) {}
GW_DEVICE void gw_group_end(void) {}
template <int N> static inline void gw_group_wait(void) {}
template <int N, class T> static inline void gw_group_keep(T *) {}

/* mma(d, b): 8 columns; b is what a lane has of them. */
template <int N, class T, class Mma>
static inline void gw_group_columns_of(T *d, gw_group_at at, int add, Mma mma) {
    for (int i = 0; i < N / 2; i++) {
        d[i] = add ? d[i] : 0;
    }
    for (int j = 0; j < N; j += GW_MMA_N) {
        const int lane = gw_wave_lane(), column = lane / 4;
        const unsigned char *row =
            (const unsigned char *)(uintptr_t)(at / 8 * 128) + (j + column) * 128;
        unsigned b[GW_MMA_B];
        for (int i = 0; i < GW_MMA_B; i++) {
            const int piece = (int)(at % 8) + i;
            b[i] = *(const unsigned *)(row + (piece ^ column) * 16 + lane % 4 * 4);
        }
        mma(d + j / 2, b);
    }
}
template <int N>
static inline void gw_group_half(float *d, const unsigned *a, gw_group_at at, int add, int bf16) {
    gw_group_columns_of<N>(
        d, at, add, [&](float *to, const unsigned *b) { gw_emulator_mma_half(to, a, b, bf16); });
}
template <int N>
static inline void gw_group_int8(int *d, const unsigned *a, gw_group_at at, int add) {
    gw_group_columns_of<N>(d, at, add,
                           [&](int *to, const unsigned *b) { gw_emulator_mma_int8(to, a, b); });
}
template <int N>
static inline void gw_group_f16(float *d, const unsigned *a, gw_group_at b, int add) {
    gw_group_half<N>(d, a, b, add, 0);
}
template <int N>
static inline void gw_group_bf16(float *d, const unsigned *a, gw_group_at b, int add) {
    gw_group_half<N>(d, a, b, add, 1);
}
GW_DEVICE gw_group_at gw_group_eights(const void *b) { return gw_group_columns(b); }
template <int N>
static inline void gw_group_f16_eights(float *d, const unsigned *a, gw_group_at at) {
    const unsigned whole[GW_MMA_A] = {a[0], a[1], 0, 0};
    for (int i = 0; i < N / 2; i++) {
        d[i] = 0;
    }
    for (int j = 0; j < N; j += GW_MMA_N) {
        const int lane = gw_wave_lane();
        const unsigned *from = (const unsigned *)(uintptr_t)((at + j + lane / 4) * 16);
        const unsigned b[GW_MMA_B] = {from[lane % 4], from[lane % 4]};
        gw_emulator_mma_half(d + j / 2, whole, b, 0);
    }
}
#endif
#endif

#endif
