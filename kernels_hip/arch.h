/* kernels_hip/arch.h - what is known of processors, a row for each: read by the preprocessor of
 * kernels (machine.h), by backends/hip, and, for what is compiled ahead, by cmake/hip.cmake.
 *
 * A compiler knows a processor by a name of its own, which is 1 in its row and 0, because
 * undefined, in all others: so the sum of a column over all rows is what the processor has that is
 * compiled for.
 */
#ifndef GW_KERNELS_HIP_ARCH_H
#define GW_KERNELS_HIP_ARCH_H

/* Dot products of four bytes */
#define GW_DOT_NONE 0
#define GW_DOT_SIGNED 1 /* dp4a, v_dot4_i32_i8                                    */
#define GW_DOT_MIXED 2  /* v_dot4_i32_iu8: which factor has a sign is an argument */

/* Matrix instructions */
#define GW_MATRIX_NONE 0
#define GW_MATRIX_MMA 1      /* of 32 threads: m16n8k32 s8, m16n8k16 f16 and bf16              */
#define GW_MATRIX_MFMA 2     /* of 64: 16x16x16 i8, 16x16x16 f16, 16x16x8 bf16                 */
#define GW_MATRIX_MFMA_1K 3  /* 16x16x16 bf16 besides                                          */
#define GW_MATRIX_MFMA_I8 4  /* 16x16x32 i8 in place of 16x16x16                               */
#define GW_MATRIX_WMMA_11 5  /* of 32: 16x16x16 i8, f16 and bf16; a lane has all of k          */
#define GW_MATRIX_WMMA_12 6  /* the same, a lane has half of k                                 */

/* X(name, is it, threads of a wave, dot, matrix, copies, ahead). copies: into shared memory without
 * passing registers, and gates. ahead: "auto" compiles for it; others are seldom, or run code of
 * their neighbours. */
#define GW_PROCESSORS(X)                                                                           \
    X(gfx900, __gfx900__, 64, GW_DOT_NONE, GW_MATRIX_NONE, 0, 0)                                   \
    X(gfx902, __gfx902__, 64, GW_DOT_NONE, GW_MATRIX_NONE, 0, 0)                                   \
    X(gfx904, __gfx904__, 64, GW_DOT_NONE, GW_MATRIX_NONE, 0, 0)                                   \
    X(gfx906, __gfx906__, 64, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 1)                                 \
    X(gfx908, __gfx908__, 64, GW_DOT_SIGNED, GW_MATRIX_MFMA, 0, 1)                                 \
    X(gfx909, __gfx909__, 64, GW_DOT_NONE, GW_MATRIX_NONE, 0, 0)                                   \
    X(gfx90a, __gfx90a__, 64, GW_DOT_SIGNED, GW_MATRIX_MFMA_1K, 0, 1)                              \
    X(gfx90c, __gfx90c__, 64, GW_DOT_NONE, GW_MATRIX_NONE, 0, 0)                                   \
    X(gfx940, __gfx940__, 64, GW_DOT_SIGNED, GW_MATRIX_MFMA_I8, 0, 0)                              \
    X(gfx941, __gfx941__, 64, GW_DOT_SIGNED, GW_MATRIX_MFMA_I8, 0, 0)                              \
    X(gfx942, __gfx942__, 64, GW_DOT_SIGNED, GW_MATRIX_MFMA_I8, 0, 1)                              \
    X(gfx950, __gfx950__, 64, GW_DOT_SIGNED, GW_MATRIX_MFMA_I8, 0, 1)                              \
    X(gfx1010, __gfx1010__, 32, GW_DOT_NONE, GW_MATRIX_NONE, 0, 0)                                 \
    X(gfx1011, __gfx1011__, 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                               \
    X(gfx1012, __gfx1012__, 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                               \
    X(gfx1013, __gfx1013__, 32, GW_DOT_NONE, GW_MATRIX_NONE, 0, 0)                                 \
    X(gfx1030, __gfx1030__, 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 1)                               \
    X(gfx1031, __gfx1031__, 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                               \
    X(gfx1032, __gfx1032__, 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                               \
    X(gfx1033, __gfx1033__, 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                               \
    X(gfx1034, __gfx1034__, 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                               \
    X(gfx1035, __gfx1035__, 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                               \
    X(gfx1036, __gfx1036__, 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                               \
    X(gfx1100, __gfx1100__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_11, 0, 1)                             \
    X(gfx1101, __gfx1101__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_11, 0, 1)                             \
    X(gfx1102, __gfx1102__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_11, 0, 1)                             \
    X(gfx1103, __gfx1103__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_11, 0, 0)                             \
    X(gfx1150, __gfx1150__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_11, 0, 1)                             \
    X(gfx1151, __gfx1151__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_11, 0, 1)                             \
    X(gfx1152, __gfx1152__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_11, 0, 0)                             \
    X(gfx1153, __gfx1153__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_11, 0, 0)                             \
    X(gfx1200, __gfx1200__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_12, 0, 1)                             \
    X(gfx1201, __gfx1201__, 32, GW_DOT_MIXED, GW_MATRIX_WMMA_12, 0, 1)                             \
    X(sm_60, (GW_ARCH_SM == 600), 32, GW_DOT_NONE, GW_MATRIX_NONE, 0, 0)                           \
    X(sm_61, (GW_ARCH_SM == 610), 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 1)                         \
    X(sm_62, (GW_ARCH_SM == 620), 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                         \
    X(sm_70, (GW_ARCH_SM == 700), 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 1)                         \
    X(sm_72, (GW_ARCH_SM == 720), 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 0)                         \
    X(sm_75, (GW_ARCH_SM == 750), 32, GW_DOT_SIGNED, GW_MATRIX_NONE, 0, 1)                         \
    X(sm_80, (GW_ARCH_SM == 800), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 1)                          \
    X(sm_86, (GW_ARCH_SM == 860), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 1)                          \
    X(sm_87, (GW_ARCH_SM == 870), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 0)                          \
    X(sm_88, (GW_ARCH_SM == 880), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 0)                          \
    X(sm_89, (GW_ARCH_SM == 890), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 1)                          \
    X(sm_90, (GW_ARCH_SM == 900), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 1)                          \
    X(sm_100, (GW_ARCH_SM == 1000), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 1)                        \
    X(sm_101, (GW_ARCH_SM == 1010), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 0)                        \
    X(sm_103, (GW_ARCH_SM == 1030), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 0)                        \
    X(sm_110, (GW_ARCH_SM == 1100), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 0)                        \
    X(sm_120, (GW_ARCH_SM == 1200), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 1)                        \
    X(sm_121, (GW_ARCH_SM == 1210), 32, GW_DOT_SIGNED, GW_MATRIX_MMA, 1, 0)

/* For #if alone. */
#define GW_PROCESSOR_KNOWN(name, is, wave, dot, matrix, copies, ahead) +is
#define GW_PROCESSOR_WAVE(name, is, wave, dot, matrix, copies, ahead) +is *wave
#define GW_PROCESSOR_DOT(name, is, wave, dot, matrix, copies, ahead) +is *dot
#define GW_PROCESSOR_MATRIX(name, is, wave, dot, matrix, copies, ahead) +is *matrix
#define GW_PROCESSOR_COPIES(name, is, wave, dot, matrix, copies, ahead) +is *copies

#endif
