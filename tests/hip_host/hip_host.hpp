/* tests/hip_host/hip_host.hpp - HIP and CUDA names for the host's C++ compiler, and what a kernel
 * may ask of the emulator. kernels_hip/device.h includes it when neither hipcc nor nvcc compiles.
 *
 * Blocks run one after the other. The threads of a block are fibres: each runs until it reaches a
 * barrier, a shuffle or a matrix instruction, where it waits for the others. So a value that should
 * have been handed over behind a barrier is not there yet, and shared memory holds NaN until it is
 * written. GODWIT_EMULATOR_ORDER=reverse runs blocks and threads from the last to the first; what
 * only holds in one order shows in the other.
 */
#ifndef GW_HIP_HOST_HPP
#define GW_HIP_HOST_HPP

#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#ifndef GW_EMULATOR_LANES
#error "GW_EMULATOR_LANES: 32 or 64"
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#ifndef __restrict__
#define __restrict__ __restrict
#endif

/* One section holds the shared memory of all kernels, so that it can be poisoned. The address
 * sanitizer guards arrays that lie in no section of their own; it finds what runs over their end.
 */
#ifdef __SANITIZE_ADDRESS__
#define __shared__ static
#else
#define __shared__ static __attribute__((section("gw_shared"), used))
#endif

struct gw_emulator_index {
    unsigned x, y, z;
};

/* Of the thread that runs now, and of its launch. */
extern gw_emulator_index gw_emulator_thread, gw_emulator_block, gw_emulator_threads,
    gw_emulator_blocks;
#define threadIdx gw_emulator_thread
#define blockIdx gw_emulator_block
#define blockDim gw_emulator_threads
#define gridDim gw_emulator_blocks

void gw_emulator_barrier(const char *file, int line);
#define __syncthreads() gw_emulator_barrier(__FILE__, __LINE__)
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}

/* Dynamic shared memory of the launch, aligned to 1024 bytes. */
void *gw_emulator_shared(void);

/* ---- teams and waves ------------------------------------------------------------------------- */

/* `bits` of lane `from` of this thread's team. */
uint32_t gw_emulator_exchange(uint32_t bits, int from);
unsigned gw_emulator_ballot(int yes);
void gw_emulator_sync_team(void);
void gw_emulator_sync_wave(void);
/* `v` of lane `from` of this thread's wave. */
unsigned gw_emulator_wave_word(unsigned v, int from);
void gw_emulator_sync_some(int id, unsigned threads);
void gw_emulator_gate_make(const void *gate, int arrivals);
void gw_emulator_gate_arrive(const void *gate);
void gw_emulator_gate_wait(const void *gate, int parity);
/* Blocks run one after the other: what is not there yet will never be. */
void gw_emulator_word_wait(const unsigned *word);
/* What another card has not sent yet: the block is given up and runs again, from its start, when
 * the other cards have gone on. Not 0: there is nothing to wait for, the other card has gone silent.
 */
int gw_emulator_card_wait(void);
/* What is fetched arrives when somebody waits at its gate and not before. */
void gw_emulator_fetch_begin(const void *gate, int bytes);
void gw_emulator_fetch(const void *to, const void *from, int bytes, const void *gate);
template <typename T> static inline T gw_emulator_shuffle(T value, int own, int from) {
    static_assert(sizeof(T) == 4, "shuffles move four bytes");
    uint32_t bits;
    (void)own;
    memcpy(&bits, &value, 4);
    bits = gw_emulator_exchange(bits, from);
    memcpy(&value, &bits, 4);
    return value;
}

/* The matrix instructions of device.h, with its map of lanes to elements. */
void gw_emulator_mma_int8(int *c, const unsigned *a, const unsigned *b);
void gw_emulator_mma_half(float *c, const unsigned *a, const unsigned *b, int bf16);

/* A copy arrives when it is waited for and not before. */
void gw_emulator_copy_async(void *shared, const void *global);
void gw_emulator_copy_commit(void);
void gw_emulator_copy_wait(int groups);

/* ---- functions of both languages that C++ lacks ---------------------------------------------- */

static inline int __float_as_int(float x) {
    int i;
    memcpy(&i, &x, 4);
    return i;
}
static inline float __int_as_float(int i) {
    float x;
    memcpy(&x, &i, 4);
    return x;
}
static inline unsigned __float_as_uint(float x) { return (unsigned)__float_as_int(x); }
static inline float __uint_as_float(unsigned u) { return __int_as_float((int)u); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }

template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }

/* Fibres change only where they wait, so plain arithmetic is atomic. */
#define GW_EMULATOR_ATOMIC(name, next)                                                             \
    template <typename T> static inline T name(T *at, T by) {                                      \
        T old = *at;                                                                               \
        *at = next;                                                                                \
        return old;                                                                                \
    }
GW_EMULATOR_ATOMIC(atomicAdd, old + by)
GW_EMULATOR_ATOMIC(atomicSub, old - by)
GW_EMULATOR_ATOMIC(atomicMax, old < by ? by : old)
GW_EMULATOR_ATOMIC(atomicMin, by < old ? by : old)
GW_EMULATOR_ATOMIC(atomicExch, by)
GW_EMULATOR_ATOMIC(atomicOr, old | by)
GW_EMULATOR_ATOMIC(atomicAnd, old &by)
#undef GW_EMULATOR_ATOMIC
template <typename T> static inline T atomicCAS(T *at, T expected, T desired) {
    T old = *at;
    *at = old == expected ? desired : old;
    return old;
}
/* CUDA and HIP: old >= limit ? 0 : old + 1 */
static inline unsigned atomicInc(unsigned *at, unsigned limit) {
    unsigned old = *at;
    *at = old >= limit ? 0 : old + 1;
    return old;
}

#endif
