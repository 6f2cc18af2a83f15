/* kernels_hip/machine.h - the part of device.h that asks kernels_hip/arch.h what this code is
 * compiled for: LANES, GW_COPIES, GW_MMA, GW_QUADS, and for #if alone GW_DOT, GW_MATRIX, GW_MFMA,
 * GW_WMMA. device.h has defined GW_NVIDIA, GW_AMD or GW_EMULATOR.
 */
#ifndef GW_KERNELS_HIP_MACHINE_H
#define GW_KERNELS_HIP_MACHINE_H

#if defined(GW_NVIDIA)
#ifdef __CUDA_ARCH__
#define GW_SM __CUDA_ARCH__
#define GW_DEVICE_PASS 1
#else
#define GW_SM 0
#endif
#ifndef GW_ARCH_SM /* else the row of the nearest one that is known */
#define GW_ARCH_SM GW_SM
#endif
#elif defined(GW_EMULATOR) || defined(__HIP_DEVICE_COMPILE__)
#define GW_DEVICE_PASS 1 /* the emulator is built as one of the processors */
#endif
#include "kernels_hip/arch.h"

/* An unknown processor would get slow code without a word: GW_UNKNOWN_PROCESSOR says that there has
 * been one. */
#if defined(GW_DEVICE_PASS) && (0 GW_PROCESSORS(GW_PROCESSOR_KNOWN)) != 1 &&                       \
    !defined(GW_UNKNOWN_PROCESSOR)
#error "kernels_hip/arch.h has no row for this processor"
#endif

/* Threads that one instruction serves: a warp or a wave */
#if defined(__AMDGCN_WAVEFRONT_SIZE)
#define LANES __AMDGCN_WAVEFRONT_SIZE
#elif defined(GW_NVIDIA) || (0 GW_PROCESSORS(GW_PROCESSOR_WAVE)) == 32
#define LANES 32
#elif (0 GW_PROCESSORS(GW_PROCESSOR_WAVE)) == 0 && (defined(__GFX10__) || defined(__GFX11__) ||    \
                                                    defined(__GFX12__))
#define LANES 32
#else
#define LANES 64
#endif

/* For #if: what the processor's row says. Of matrix instructions the kind, because the sum has
 * names that mean nothing elsewhere. */
#define GW_DOT (0 GW_PROCESSORS(GW_PROCESSOR_DOT))

#if (0 GW_PROCESSORS(GW_PROCESSOR_MATRIX)) == GW_MATRIX_MMA
#define GW_MATRIX GW_MATRIX_MMA
#elif (0 GW_PROCESSORS(GW_PROCESSOR_MATRIX)) == GW_MATRIX_MFMA
#define GW_MATRIX GW_MATRIX_MFMA
#elif (0 GW_PROCESSORS(GW_PROCESSOR_MATRIX)) == GW_MATRIX_MFMA_1K
#define GW_MATRIX GW_MATRIX_MFMA_1K
#elif (0 GW_PROCESSORS(GW_PROCESSOR_MATRIX)) == GW_MATRIX_MFMA_I8
#define GW_MATRIX GW_MATRIX_MFMA_I8
#elif (0 GW_PROCESSORS(GW_PROCESSOR_MATRIX)) == GW_MATRIX_WMMA_11
#define GW_MATRIX GW_MATRIX_WMMA_11
#elif (0 GW_PROCESSORS(GW_PROCESSOR_MATRIX)) == GW_MATRIX_WMMA_12
#define GW_MATRIX GW_MATRIX_WMMA_12
#else
#define GW_MATRIX GW_MATRIX_NONE
#endif
#define GW_MFMA (GW_MATRIX >= GW_MATRIX_MFMA && GW_MATRIX <= GW_MATRIX_MFMA_I8)
#define GW_WMMA (GW_MATRIX >= GW_MATRIX_WMMA_11)

/* Whether four threads share a row of what a matrix instruction takes and gives, two values of it
 * each, as NVIDIA's do; dot products in their place keep to that on any waves of 32. Otherwise a
 * thread has one column of the results. Without parentheses: NVIDIA's text stays as it was. */
#if GW_WMMA
#define GW_QUADS 0
#else
#define GW_QUADS LANES == 32
#endif

/* Whether copies go into shared memory without passing registers, and waves of a block can wait for
 * one another by gates. */
#if (0 GW_PROCESSORS(GW_PROCESSOR_COPIES)) == 1
#define GW_COPIES 1
#else
#define GW_COPIES 0
#endif

/* Whether this code is for a device with the matrix instructions below. */
#if GW_MATRIX != GW_MATRIX_NONE
#define GW_MMA 1
#else
#define GW_MMA 0
#endif

#endif
