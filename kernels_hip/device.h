/* kernels_hip/device.h - the only place that knows AMD from NVIDIA from the emulator.
 *
 * Kernels are the common subset of HIP C++ and CUDA C++ plus the names below. Blocks are
 * one-dimensional, a multiple of 64 threads, and every thread of a block reaches every barrier,
 * or every thread of those that it is for.
 * Shuffles work inside a team: 32 neighbouring threads, the 32 lanes of arith.h. A team is a warp
 * on NVIDIA and half of a wave (or a wave) on AMD, and must reach a shuffle as a whole. Matrix
 * instructions belong to a wave of LANES threads, which must reach them as a whole.
 */
#ifndef GW_KERNELS_HIP_DEVICE_H
#define GW_KERNELS_HIP_DEVICE_H

#if defined(__CUDACC__)
#define GW_NVIDIA 1
#elif defined(__HIP__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define GW_AMD 1
#ifndef __HIPCC_RTC__
#include <hip/hip_runtime.h>
#endif
#else
#define GW_EMULATOR 1
#include <hip_host.hpp> /* tests/hip_host: the same names for the host's compiler */
#endif

#include "core/tensor/arith.h"
#include "kernels_hip/params.h"

#ifndef INFINITY /* NVRTC has no math.h */
#define INFINITY __int_as_float(0x7f800000)
#endif

/* ---- the machine ----------------------------------------------------------------------------- */

#if defined(GW_NVIDIA)
#define LANES 32 /* threads that one instruction serves: a warp or a wave */
#ifdef __CUDA_ARCH__
#define GW_SM __CUDA_ARCH__
#else
#define GW_SM 0
#endif
#elif defined(GW_AMD)
#if defined(__AMDGCN_WAVEFRONT_SIZE)
#define LANES __AMDGCN_WAVEFRONT_SIZE
#elif defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define LANES 32
#else
#define LANES 64
#endif
#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) ||    \
    defined(__gfx942__)
#define GW_MFMA 1
#endif
#else
#define LANES GW_EMULATOR_LANES
#endif

/* Whether copies go into shared memory without passing registers, and waves of a block can wait for
 * one another by gates. */
#if (defined(GW_NVIDIA) && GW_SM >= 800) || (defined(GW_EMULATOR) && LANES == 32)
#define GW_COPIES 1
#else
#define GW_COPIES 0
#endif

/* Whether this code is for a device with the matrix instructions below. */
#if defined(GW_EMULATOR) || defined(GW_MFMA) || (defined(GW_NVIDIA) && GW_SM >= 800)
#define GW_MMA 1
#else
#define GW_MMA 0
#endif

#define GW_DEVICE __device__ static inline

/* GW_KERNEL(gw_norm, struct gw_norm_params, 256) { ... p.eps ... }: a kernel of the given name and
 * threads of a block; its parameters are called p. A fifth, optional number: blocks that should
 * share a multiprocessor (NVIDIA only: it limits registers). With GW_ONLY only the kernels NAME for
 * which GW_ONLY_NAME is defined as 1 are made; the others become templates that nobody uses, which
 * cost a compiler next to nothing. */
#if defined(GW_EMULATOR)
#define GW_KERNEL(name, params, ...)                                                               \
    static void name##_body(const params p);                                                       \
    extern "C" __attribute__((visibility("default"))) void name(const void *p) {                   \
        name##_body(*(const params *)p);                                                           \
    }                                                                                              \
    extern "C" __attribute__((visibility("default"))) const int name##_params =                    \
        (int)sizeof(params);                                                                       \
    static void name##_body(const params p)
#else
#if defined(GW_NVIDIA)
#define GW_KERNEL_BOUNDS(...) __launch_bounds__(__VA_ARGS__)
#else
#define GW_KERNEL_BOUNDS(threads, ...) __launch_bounds__(threads)
#endif
#define GW_KERNEL_MADE(name, params, ...)                                                          \
    extern "C" __global__ void GW_KERNEL_BOUNDS(__VA_ARGS__) name(const params p)
#define GW_KERNEL_LEFT(name, params, ...)                                                          \
    template <int> __device__ static inline void name(const params p)
#ifdef GW_ONLY
/* The third of CHOOSE's arguments: GW_ONLY_NAME that is 1 makes two of the first. */
#define GW_KERNEL_COMMA_1 ,
#define GW_KERNEL_THIRD(a, b, c, ...) c
#define GW_KERNEL_CHOOSE(...) GW_KERNEL_THIRD(__VA_ARGS__)
#define GW_KERNEL_FORM_(only)                                                                      \
    GW_KERNEL_CHOOSE(GW_KERNEL_COMMA_##only, GW_KERNEL_MADE, GW_KERNEL_LEFT, )
#define GW_KERNEL_FORM(only) GW_KERNEL_FORM_(only)
#define GW_KERNEL(name, params, ...) GW_KERNEL_FORM(GW_ONLY_##name)(name, params, __VA_ARGS__)
#else
#define GW_KERNEL GW_KERNEL_MADE
#endif
#endif

/* A block's shared memory beyond its declared arrays; as many bytes as the launch says. */
#if defined(GW_EMULATOR)
#define GW_SHARED_DYNAMIC(type, name) type *name = (type *)gw_emulator_shared()
#else
extern __shared__ __align__(16) unsigned char gw_shared_dynamic[];
#define GW_SHARED_DYNAMIC(type, name) type *name = (type *)gw_shared_dynamic
#endif

/* The same from a multiple of 1024 bytes on, as tiles of matrix instructions want it. */
#if defined(GW_NVIDIA)
extern __shared__ __align__(1024) unsigned char gw_shared_tiles[];
#define GW_SHARED_TILES(type, name) type *name = (type *)gw_shared_tiles
#else
#define GW_SHARED_TILES GW_SHARED_DYNAMIC
#endif

/* ---- the step block -------------------------------------------------------------------------- */

GW_DEVICE int gw_live(const struct gw_step_params &s) {
    return s.step[s.picked ? GW_STEP_N_PICK : GW_STEP_N];
}
GW_DEVICE int gw_step_token(const struct gw_step_params &s, int row) {
    return s.step[GW_STEP_ROWS + row];
}
GW_DEVICE int gw_step_pos(const struct gw_step_params &s, int row) {
    return s.step[GW_STEP_ROWS + s.rows + row];
}
GW_DEVICE int gw_step_slot(const struct gw_step_params &s, int row) {
    return s.step[GW_STEP_ROWS + 2 * s.rows + row];
}

/* ---- teams of 32 ----------------------------------------------------------------------------- */

GW_DEVICE int gw_lane(void) { return (int)threadIdx.x % GW_LANES; }
GW_DEVICE int gw_team(void) { return (int)threadIdx.x / GW_LANES; }

#if defined(GW_NVIDIA)
#define GW_SHUFFLES(T)                                                                             \
    GW_DEVICE T gw_shuffle(T v, int from) { return __shfl_sync(0xffffffffu, v, from); }            \
    GW_DEVICE T gw_shuffle_xor(T v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }    \
    GW_DEVICE T gw_shuffle_down(T v, int by) { return __shfl_down_sync(0xffffffffu, v, by); }
#elif defined(GW_AMD)
#define GW_SHUFFLES(T)                                                                             \
    GW_DEVICE T gw_shuffle(T v, int from) { return __shfl(v, from, 32); }                          \
    GW_DEVICE T gw_shuffle_xor(T v, int mask) { return __shfl_xor(v, mask, 32); }                  \
    GW_DEVICE T gw_shuffle_down(T v, int by) { return __shfl_down(v, by, 32); }
#else
#define GW_SHUFFLES(T)                                                                             \
    GW_DEVICE T gw_shuffle(T v, int from) { return gw_emulator_shuffle(v, gw_lane(), from & 31); } \
    GW_DEVICE T gw_shuffle_xor(T v, int mask) {                                                    \
        return gw_emulator_shuffle(v, gw_lane(), gw_lane() ^ mask);                                \
    }                                                                                              \
    GW_DEVICE T gw_shuffle_down(T v, int by) {                                                     \
        int from = gw_lane() + by;                                                                 \
        return gw_emulator_shuffle(v, gw_lane(), from < 32 ? from : gw_lane());                    \
    }
#endif
GW_SHUFFLES(float)
GW_SHUFFLES(int)
GW_SHUFFLES(unsigned)
#undef GW_SHUFFLES

/* Bit i: lane i of this team says yes. */
GW_DEVICE unsigned gw_ballot(int yes) {
#if defined(GW_NVIDIA)
    return __ballot_sync(0xffffffffu, yes);
#elif defined(GW_AMD)
    unsigned long long all = __ballot(yes);
    return (unsigned)(LANES == 64 ? all >> (threadIdx.x & 32u) : all);
#else
    return gw_emulator_ballot(yes);
#endif
}

/* Orders shared memory among the lanes of a team. */
GW_DEVICE void gw_sync_team(void) {
#if defined(GW_NVIDIA)
    __syncwarp();
#elif defined(GW_AMD)
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"); /* a wave runs in step */
    __builtin_amdgcn_wave_barrier();
#else
    gw_emulator_sync_team();
#endif
}

/* The same among the threads of a wave. */
GW_DEVICE void gw_sync_wave(void) {
#if defined(GW_EMULATOR)
    gw_emulator_sync_wave();
#else
    gw_sync_team();
#endif
}

/* A barrier among the N threads of a block, whole waves, that name it ID (1..15). Without
 * GW_COPIES these are the whole block. */
template <int ID, int N> __device__ static inline void gw_sync_some(void) {
#if defined(GW_EMULATOR)
    gw_emulator_sync_some(ID, N);
#elif defined(GW_NVIDIA)
    asm volatile("barrier.sync %0, %1;" ::"n"(ID), "n"(N) : "memory");
#else
    __syncthreads();
#endif
}

/* A place in shared memory in as few bits as a device needs. */
#if defined(GW_NVIDIA)
typedef unsigned gw_shared_at;
GW_DEVICE gw_shared_at gw_shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
GW_DEVICE unsigned char *gw_shared_pointer(gw_shared_at at) {
    return (unsigned char *)__cvta_shared_to_generic(at);
}
#else
typedef const unsigned char *gw_shared_at;
GW_DEVICE gw_shared_at gw_shared_address(const void *p) { return (const unsigned char *)p; }
GW_DEVICE unsigned char *gw_shared_pointer(gw_shared_at at) { return (unsigned char *)at; }
#endif

#if GW_COPIES || defined(GW_EMULATOR)
/* A gate in shared memory, 8 bytes. Some threads arrive, without waiting; when as many have as it
 * is made for, and all that is fetched for it has come, a round ends, and who waits for the end of
 * the round goes on and sees what they did in shared memory before. Rounds are told apart by their
 * parity: the first has 0. */
enum { GW_GATE_BYTES = 8 };

/* By one thread, before a barrier. */
GW_DEVICE void gw_gate_make(gw_shared_at gate, int arrivals) {
#if defined(GW_EMULATOR)
    gw_emulator_gate_make(gate, arrivals);
#else
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(gate), "r"(arrivals) : "memory");
#endif
}
GW_DEVICE void gw_gate_arrive(gw_shared_at gate) {
#if defined(GW_EMULATOR)
    gw_emulator_gate_arrive(gate);
#else
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(gate)
                 : "memory");
#endif
}
GW_DEVICE void gw_gate_wait(gw_shared_at gate, int parity) {
#if defined(GW_EMULATOR)
    gw_emulator_gate_wait(gate, parity);
#else
    unsigned ended;
    do {
        asm volatile("{\n.reg .pred ended;\n"
#if GW_SM >= 900
                     "mbarrier.try_wait.parity.shared.b64 ended, [%1], %2;\n"
#else
                     "mbarrier.test_wait.parity.shared.b64 ended, [%1], %2;\n"
#endif
                     "selp.u32 %0, 1, 0, ended;\n}"
                     : "=r"(ended)
                     : "r"(gate), "r"(parity)
                     : "memory");
    } while (!ended);
#endif
}

/* What a wave of 32 fetches from global into shared memory without registers between: lane i of the
 * first `n` names piece i, a multiple of 16 bytes, from and to such places. The round of a gate
 * that is made for GW_FETCH_ARRIVALS arrivals ends when all pieces have come, `bytes` in all. The
 * whole wave calls it. sm_90: a lane fetches its piece by one instruction, and the first one says
 * how much is to come; sm_80: all lanes share each piece, and each arrives when its own parts have
 * come. */
#if defined(GW_EMULATOR) || GW_SM >= 900
enum { GW_FETCH_ARRIVALS = 1 };
#else
enum { GW_FETCH_ARRIVALS = 32 };
#endif
/* Behind gw_gate_make, by who did that: fetches may arrive at these gates. */
GW_DEVICE void gw_gates_made(void) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
GW_DEVICE void gw_fetch(int n, gw_shared_at to, const void *from, int piece, int bytes,
                        gw_shared_at gate) {
    const int lane = (int)threadIdx.x % 32;
#if defined(GW_EMULATOR)
    if (lane == 0) {
        gw_emulator_fetch_begin(gate, bytes);
    }
    if (lane < n) {
        gw_emulator_fetch(to, from, piece, gate);
    }
#elif GW_SM >= 900
    if (lane == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(gate), "r"(bytes)
                     : "memory");
    }
    if (lane < n) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1], %2, [%3];" ::"r"(to),
                     "l"(__cvta_generic_to_global(from)), "r"(piece), "r"(gate)
                     : "memory");
    }
#else
    (void)bytes;
    for (int i = 0; i < n; i++) {
        const unsigned char *source =
            (const unsigned char *)__shfl_sync(0xffffffffu, (unsigned long long)from, i);
        const gw_shared_at target = __shfl_sync(0xffffffffu, to, i);
        const int end = __shfl_sync(0xffffffffu, piece, i);
        for (int at = 16 * lane; at < end; at += 16 * 32) {
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(target + at),
                         "l"(__cvta_generic_to_global(source + at))
                         : "memory");
        }
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(gate) : "memory");
#endif
}

/* Neighbouring blocks of a launch that run side by side and reach one another's shared memory
 * (sm_90, where the launch says how many they are; elsewhere it is the block alone). All threads of
 * each of them arrive once, and then wait; behind that the others' gates are there. */
GW_DEVICE void gw_cluster_arrive(void) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
GW_DEVICE void gw_cluster_wait(void) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}
GW_DEVICE int gw_cluster_rank(void) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    unsigned rank;
    asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    return (int)rank;
#else
    return 0;
#endif
}
/* gw_fetch to the same place of `blocks` blocks, each with a gate there; every one of them fetches
 * its part, and `bytes` is what all of them bring to one. */
GW_DEVICE void gw_fetch_for_all(int n, gw_shared_at to, const void *from, int piece, int bytes,
                                gw_shared_at gate, int blocks) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    if (blocks > 1) {
        const int lane = (int)threadIdx.x % 32;
        if (lane == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(gate), "r"(bytes)
                         : "memory");
        }
        if (lane < n && piece > 0) {
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                         ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                         "l"(__cvta_generic_to_global(from)), "r"(piece), "r"(gate),
                         "h"((unsigned short)((1 << blocks) - 1))
                         : "memory");
        }
        return;
    }
#endif
    (void)blocks;
    gw_fetch(n, to, from, piece, bytes, gate);
}
#endif

/* Memory that follows is not read earlier. Of an unrolled loop AMD's compiler otherwise reads so
 * much ahead that registers spill. */
#if defined(GW_AMD)
GW_DEVICE void gw_read_no_earlier(void) { asm volatile("" ::: "memory"); }
#else
GW_DEVICE void gw_read_no_earlier(void) {}
#endif

/* The value of lane ^ MASK of the same four neighbours (MASK 1 or 2). */
template <int MASK> __device__ static inline int gw_quad_xor(int v) {
#if defined(GW_AMD)
    return __builtin_amdgcn_mov_dpp(v, MASK == 1 ? 0xb1 : 0x4e, 0xf, 0xf, false); /* quad_perm */
#else
    return gw_shuffle_xor(v, MASK);
#endif
}
template <int MASK> __device__ static inline float gw_quad_xor(float v) {
#if defined(GW_EMULATOR)
    return gw_shuffle_xor(v, MASK);
#else
    return __int_as_float(gw_quad_xor<MASK>(__float_as_int(v)));
#endif
}

/* Partner at distance h = 16, 8, 4, 2, 1 of a value that already repeats every 2h lanes: all that a
 * butterfly needs. AMD rotates rows of 16 without going through shared memory. */
template <int H> __device__ static inline int gw_partner_bits(int v) {
#if defined(GW_AMD)
    if (H == 16) {
        return __builtin_amdgcn_ds_swizzle(v, 0x401f); /* and 31, or 0, xor 16 */
    }
    return __builtin_amdgcn_mov_dpp(v, 0x120 + (H & 15), 0xf, 0xf, false); /* row_ror:H */
#else
    return gw_shuffle_xor(v, H);
#endif
}
#if defined(GW_EMULATOR)
template <int H> static inline float gw_partner(float v) { return gw_shuffle_xor(v, H); }
#else
template <int H> __device__ static inline float gw_partner(float v) {
    return __int_as_float(gw_partner_bits<H>(__float_as_int(v)));
}
#endif

/* The fold of arith.h over a team's values; every lane gets it. */
GW_DEVICE float gw_fold(float v) {
    v = v + gw_partner<16>(v);
    v = v + gw_partner<8>(v);
    v = v + gw_partner<4>(v);
    v = v + gw_partner<2>(v);
    return v + gw_partner<1>(v);
}

GW_DEVICE unsigned gw_larger(unsigned a, unsigned b) { return a > b ? a : b; }
GW_DEVICE unsigned gw_team_max(unsigned v) {
#if defined(GW_NVIDIA) && GW_SM >= 800
    return __reduce_max_sync(0xffffffffu, v);
#else
    v = gw_larger(v, (unsigned)gw_partner_bits<16>((int)v));
    v = gw_larger(v, (unsigned)gw_partner_bits<8>((int)v));
    v = gw_larger(v, (unsigned)gw_partner_bits<4>((int)v));
    v = gw_larger(v, (unsigned)gw_partner_bits<2>((int)v));
    return gw_larger(v, (unsigned)gw_partner_bits<1>((int)v));
#endif
}
/* The largest of a team's floats, none of them NaN; of zeros with both signs either. */
GW_DEVICE float gw_team_top(float v) {
    const unsigned u = GW_F32_BITS(v), sign = 0x80000000u; /* in the order of unsigned numbers */
    const unsigned top = gw_team_max(u & sign ? ~u : u | sign);
    return GW_F32_FROM_BITS(top & sign ? top ^ sign : ~top);
}
GW_DEVICE int gw_team_sum(int v) { /* integers: any order */
    v += gw_partner_bits<16>(v);
    v += gw_partner_bits<8>(v);
    v += gw_partner_bits<4>(v);
    v += gw_partner_bits<2>(v);
    return v + gw_partner_bits<1>(v);
}
/* The sums of both halves of the team, 16 integers each, that have 16 bits. */
struct gw_half_sums {
    int first, second;

    __device__ inline gw_half_sums(int v) {
        const int is_second = (int)threadIdx.x % GW_LANES >= 16;
#if defined(GW_NVIDIA) && GW_SM >= 800
        const int both = __reduce_add_sync(0xffffffffu, is_second ? v * 65536 : v);
        first = (int)(gw_i16)both;
        second = (both - first) >> 16;
#else
        v += gw_partner_bits<8>(v);
        v += gw_partner_bits<4>(v);
        v += gw_partner_bits<2>(v);
        v += gw_partner_bits<1>(v);
        const int other = gw_partner_bits<16>(v);
        first = is_second ? other : v;
        second = is_second ? v : other;
#endif
    }
};

/* ---- integers -------------------------------------------------------------------------------- */

/* c + the dot product of four signed bytes. */
GW_DEVICE int gw_dp4a(int a, int b, int c) {
#if defined(GW_NVIDIA) && GW_SM >= 610
    return __dp4a(a, b, c);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) ||  \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx1011__) || defined(__gfx1012__) ||  \
    defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) ||                        \
    defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__)
    return __builtin_amdgcn_sdot4(a, b, c, false);
#elif defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#else
    for (int i = 0; i < 32; i += 8) {
        c += (int)(int8_t)(a >> i) * (int)(int8_t)(b >> i);
    }
    return c;
#endif
}

/* (x & mask) ^ flip; one instruction, where the compiler makes two of constants. */
GW_DEVICE unsigned gw_and_xor(unsigned x, unsigned mask, unsigned flip) {
#if defined(GW_NVIDIA)
    unsigned r;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(x), "r"(mask), "r"(flip));
    return r;
#else
    return (x & mask) ^ flip;
#endif
}

/* Bytes of the eight in `high` and `low` (low first): byte k of the result is number byte k of
 * `from` (0 .. 7) among them. */
GW_DEVICE unsigned gw_pick_bytes(unsigned high, unsigned low, unsigned from) {
#if defined(GW_NVIDIA)
    const unsigned pairs = (from | from >> 4) & 0x00ff00ffu;
    return __byte_perm(low, high, pairs | pairs >> 8);
#elif defined(GW_AMD)
    return __builtin_amdgcn_perm(high, low, from);
#else
    unsigned r = 0;
    for (int k = 0; k < 32; k += 8) {
        const unsigned at = from >> k & 7u;
        r |= ((at < 4 ? low >> 8 * at : high >> 8 * (at - 4)) & 255u) << k;
    }
    return r;
#endif
}

/* The lowest bytes of four words, a's lowest. */
GW_DEVICE unsigned gw_four_bytes(unsigned a, unsigned b, unsigned c, unsigned d) {
#if defined(GW_NVIDIA)
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
#elif defined(GW_AMD)
    return __builtin_amdgcn_perm(__builtin_amdgcn_perm(d, c, 0x0c0c0400u),
                                 __builtin_amdgcn_perm(b, a, 0x0c0c0400u), 0x05040100u);
#else
    return (a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | d << 24;
#endif
}

/* ---- floats ---------------------------------------------------------------------------------- */

/* The value of binary16 bits; exact. */
GW_DEVICE float gw_widen_f16(gw_u16 bits) {
#if defined(GW_NVIDIA)
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#elif defined(GW_AMD)
    union {
        gw_u16 bits;
        _Float16 half;
    } x = {bits};
    return (float)x.half;
#else
    return gw_f16_to_f32(bits);
#endif
}

/* The bits of gw_f32_to_f16. */
GW_DEVICE gw_u16 gw_narrow_f16(float x) {
#if defined(GW_EMULATOR)
    return gw_f32_to_f16(x);
#else
    const unsigned u = GW_F32_BITS(x);
#if defined(GW_NVIDIA)
    gw_u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    union {
        _Float16 half;
        gw_u16 bits;
    } y = {(_Float16)x};
    const gw_u16 bits = y.bits;
#endif
    return (u & 0x7fffffffu) > 0x7f800000u
               ? (gw_u16)((u >> 16 & 0x8000u) | 0x7e00u | (u >> 13 & 0x3ffu))
               : bits;
#endif
}

/* Two floats as binary16, rounded to nearest, `low` in the lower half. */
GW_DEVICE unsigned gw_two_halves(float low, float high) {
#if defined(GW_NVIDIA) && GW_SM >= 800
    unsigned r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#elif defined(GW_AMD)
    union {
        _Float16 halves[2];
        unsigned word;
    } x = {{(_Float16)low, (_Float16)high}};
    return x.word;
#else
    return gw_f32_to_f16(low) | (unsigned)gw_f32_to_f16(high) << 16;
#endif
}

/* 2^x as the device has it, near enough for weights that are rounded to binary16: within 2^-20. */
GW_DEVICE float gw_power_of_two(float x) {
#if defined(GW_NVIDIA)
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#elif defined(GW_AMD)
    return __builtin_exp2f(x);
#else
    return exp2f(x);
#endif
}

/* Bytes as pairs of binary16, the first two and the last two, less OFFSET; exact. */
template <int OFFSET>
__device__ static inline void gw_halves_of_bytes(unsigned v, unsigned *low, unsigned *high) {
#if defined(GW_NVIDIA)
    const unsigned k = (0x6400u + OFFSET) * 0x10001u; /* 0x6400 is 1024, whose ulp is 1 */
    asm("sub.f16x2 %0, %1, %2;" : "=r"(*low) : "r"(__byte_perm(v, 0x64646464u, 0x4140)), "r"(k));
    asm("sub.f16x2 %0, %1, %2;" : "=r"(*high) : "r"(__byte_perm(v, 0x64646464u, 0x4342)), "r"(k));
#else
    unsigned h[4];
    for (int i = 0; i < 4; i++) {
        h[i] = gw_f32_to_f16((float)(v >> 8 * i & 255u) - (float)OFFSET);
    }
    *low = h[0] | h[1] << 16;
    *high = h[2] | h[3] << 16;
#endif
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* 16 bytes, the widest load. */
struct __align__(16) gw_16b {
    unsigned w[4];
};

/* Read once and not again: passes the caches by where the device can. 16-byte aligned. gw_stream is
 * for weights: what no kernel of a pass writes. gw_stream_fresh is for what an earlier kernel of
 * the pass wrote (it stays behind the wait below). */
#if defined(GW_NVIDIA)
GW_DEVICE gw_16b gw_stream(const void *from) {
    gw_16b r;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
        : "l"(__cvta_generic_to_global(from)));
    return r;
}
GW_DEVICE gw_16b gw_stream_fresh(const void *from) {
    gw_16b r;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
                 : "l"(__cvta_generic_to_global(from)));
    return r;
}
#else
GW_DEVICE gw_16b gw_stream(const void *from) {
#if defined(GW_AMD)
    typedef unsigned four __attribute__((ext_vector_type(4)));
    four v = __builtin_nontemporal_load((const four *)from);
    gw_16b r = {{v.x, v.y, v.z, v.w}};
    return r;
#else
    return *(const gw_16b *)from;
#endif
}
GW_DEVICE gw_16b gw_stream_fresh(const void *from) { return gw_stream(from); }
#endif

/* An address is made, or a float that an earlier kernel of the pass wrote is asked for, here and
 * not where it is used: for what comes right behind the wait below. A word stays a register, of
 * which the compiler would otherwise keep 16 bits; a float is read in this turn of a loop, where
 * the compiler would otherwise do it in the next, when it is needed. */
#if defined(GW_NVIDIA) && GW_SM >= 900
GW_DEVICE void gw_have(const float *&at) { asm volatile("" : "+l"(at)); }
GW_DEVICE void gw_have(unsigned &v) { asm("" : "+r"(v)); }
GW_DEVICE void gw_have(float &v) { asm volatile("" : "+f"(v)); }
template <class T> __device__ static inline void gw_have(T &) {}
GW_DEVICE float gw_fresh_float(const float *from) {
    float x;
    asm volatile("ld.global.f32 %0, [%1];"
                 : "=f"(x)
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
    return x;
}
#else
template <class T> __device__ static inline void gw_have(T &) {}
GW_DEVICE float gw_fresh_float(const float *from) { return *from; }
#endif

/* On NVIDIA sm_90 a kernel may start while the one before it still runs. Before this wait it reads
 * only what no launch of its pass writes: weights, the step block, cells of earlier steps; after
 * it, everything that earlier kernels wrote is there. A kernel that writes anything calls it
 * first. */
GW_DEVICE void gw_grid_dependency_wait(void) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next kernel start; called at the beginning. */
GW_DEVICE void gw_grid_launch_dependents(void) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The same place in shared memory for a compiler that would otherwise look up, wherever it is used
 * and even in loops, where shared memory begins (NVIDIA). */
GW_DEVICE unsigned char *gw_shared_place(unsigned char *p) {
#if defined(GW_NVIDIA)
    unsigned at = gw_shared_address(p);
    asm("" : "+r"(at));
    return (unsigned char *)__cvta_shared_to_generic(at);
#else
    return p;
#endif
}

/* 16 bytes out of shared memory, or what `to` had. On NVIDIA one instruction; a compiler that may
 * choose loads always and selects each word. */
GW_DEVICE void gw_load_if(int yes, unsigned *to, const unsigned *shared) {
#if defined(GW_NVIDIA)
    asm volatile("{\n.reg .pred yes;\nsetp.ne.s32 yes, %5, 0;\n"
                 "@yes ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
                 : "r"(gw_shared_address(shared)), "r"(yes));
#else
    if (yes) {
        const gw_16b v = *(const gw_16b *)shared;
        for (int i = 0; i < 4; i++) {
            to[i] = v.w[i];
        }
    }
#endif
}

/* 16 bytes from global to shared memory without waiting (NVIDIA sm_80+; elsewhere at once). The
 * copies of a thread since its last commit are one group; gw_copy_wait<N> returns when at most N
 * groups are still under way. A barrier shows them to the block. */
GW_DEVICE void gw_copy_async(void *shared, const void *global) {
#if defined(GW_NVIDIA) && GW_SM >= 800
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(shared)),
                 "l"(__cvta_generic_to_global(global))
                 : "memory");
#elif defined(GW_EMULATOR)
    gw_emulator_copy_async(shared, global);
#else
    *(gw_16b *)shared = *(const gw_16b *)global;
#endif
}
/* The same to a place that is known by its address, which need not be found each time. */
GW_DEVICE void gw_copy_async(gw_shared_at shared, const void *global) {
#if defined(GW_NVIDIA) && GW_SM >= 800
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared),
                 "l"(__cvta_generic_to_global(global))
                 : "memory");
#elif defined(GW_NVIDIA)
    *(gw_16b *)__cvta_shared_to_generic(shared) = *(const gw_16b *)global;
#else
    gw_copy_async((void *)shared, global);
#endif
}
/* The same if `yes`, without a branch. */
GW_DEVICE void gw_copy_async_if(int yes, void *shared, const void *global) {
#if defined(GW_NVIDIA) && GW_SM >= 800
    asm volatile("{\n.reg .pred yes;\nsetp.ne.s32 yes, %2, 0;\n"
                 "@yes cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n}" ::"r"(
                     (unsigned)__cvta_generic_to_shared(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(yes)
                 : "memory");
#else
    if (yes) {
        gw_copy_async(shared, global);
    }
#endif
}
GW_DEVICE void gw_copy_commit(void) {
#if defined(GW_NVIDIA) && GW_SM >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(GW_EMULATOR)
    gw_emulator_copy_commit();
#endif
}
template <int N> __device__ static inline void gw_copy_wait(void) {
#if defined(GW_NVIDIA) && GW_SM >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#elif defined(GW_EMULATOR)
    gw_emulator_copy_wait(N);
#endif
}

/* A barrier of the block, behind which what its threads wrote before it and what they read after it
 * are in order with atomics of thread 0 between two of these, on the whole device. On NVIDIA a
 * fence of one thread orders what a barrier has shown it (PTX, memory consistency model,
 * causality). */
GW_DEVICE void gw_fence_block(void) {
#if defined(GW_NVIDIA)
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
    }
    __syncthreads();
#else
    __threadfence();
    __syncthreads();
    __threadfence();
#endif
}

/* How many blocks have come here before this one, behind `last` from 0 again; before: a place in
 * shared memory. What the block wrote before it and what it reads afterwards are in order with it,
 * as by gw_fence_block, thread 0's atomicInc and gw_fence_block again. */
GW_DEVICE unsigned gw_block_arrives(unsigned *blocks, unsigned last, unsigned *before) {
#if defined(GW_NVIDIA) && GW_SM >= 700
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned came;
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(came)
                     : "l"(__cvta_generic_to_global(blocks)), "r"(last)
                     : "memory");
        *before = came;
    }
    __syncthreads();
#else
    gw_fence_block();
    if (threadIdx.x == 0) {
        *before = atomicInc(blocks, last);
    }
    gw_fence_block();
#endif
    return *before;
}

/* Asks for a line of 128 bytes to come into the second cache (NVIDIA). */
GW_DEVICE void gw_prefetch(const void *global) {
#if defined(GW_NVIDIA)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(global)));
#else
    (void)global;
#endif
}

/* The same for `bytes` from there on, both multiples of 16; on sm_90. */
GW_DEVICE void gw_prefetch_bytes(const void *global, int bytes) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    asm volatile(
        "cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(global)),
        "r"(bytes)
        : "memory");
#else
    (void)global;
    (void)bytes;
#endif
}

/* ---- matrix instructions --------------------------------------------------------------------- */

/* D[16, GW_MMA_N] = A[16, K] B[K, GW_MMA_N] + C by one wave, held in registers: `lane` is the
 * thread's number in its wave of LANES. A register of A or B holds neighbours along k: four int8
 * (K = 32) or two 16-bit floats (K = 16), the first at gw_mma_..._k. Register i of the accumulator
 * is D[gw_mma_c_row(lane, i)][gw_mma_c_col(lane, i)].
 *   NVIDIA  mma.sync m16n8k32 s8 and m16n8k16 f16, bf16
 *   AMD     two 16x16x16 i8; 16x16x16 f16, bf16
 * A and B may be filled in any order of k that both share. Sums of integers are exact; sums of
 * floats have the hardware's order. */
#if LANES == 32
enum { GW_MMA_M = 16, GW_MMA_N = 8, GW_MMA_A = 4, GW_MMA_B = 2, GW_MMA_C = 4 };
#else
enum { GW_MMA_M = 16, GW_MMA_N = 16, GW_MMA_A = 2, GW_MMA_B = 2, GW_MMA_C = 4 };
#endif
enum { GW_MMA_K_INT8 = 32, GW_MMA_K_HALF = 16 };

GW_DEVICE int gw_wave_lane(void) { return (int)threadIdx.x % LANES; }

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
#elif defined(GW_MFMA)
typedef int gw_int4v __attribute__((ext_vector_type(4)));
typedef float gw_float4v __attribute__((ext_vector_type(4)));
GW_DEVICE void gw_mma_int8(int *c, const unsigned *a, const unsigned *b) {
    gw_int4v d = {c[0], c[1], c[2], c[3]};
#if defined(__gfx908__) || defined(__gfx90a__)
    d = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a[0], (int)b[0], d, 0, 0, 0);
    d = __builtin_amdgcn_mfma_i32_16x16x16i8((int)a[1], (int)b[1], d, 0, 0, 0);
#else
    d = __builtin_amdgcn_mfma_i32_16x16x32_i8((long)((unsigned long)a[1] << 32 | a[0]),
                                              (long)((unsigned long)b[1] << 32 | b[0]), d, 0, 0, 0);
#endif
    c[0] = d.x, c[1] = d.y, c[2] = d.z, c[3] = d.w;
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
#if defined(__gfx908__)
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
#elif defined(GW_EMULATOR)
GW_DEVICE void gw_mma_int8(int *c, const unsigned *a, const unsigned *b) {
    gw_emulator_mma_int8(c, a, b);
}
GW_DEVICE void gw_mma_f16(float *c, const unsigned *a, const unsigned *b) {
    gw_emulator_mma_half(c, a, b, 0);
}
GW_DEVICE void gw_mma_bf16(float *c, const unsigned *a, const unsigned *b) {
    gw_emulator_mma_half(c, a, b, 1);
}
#if LANES == 32
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

/* ---- matrix instructions of four waves ------------------------------------------------------- */

/* D[4 * 16, N] = A[4 * 16, K] B[K, N] (+ D) by four neighbouring waves, begun and not waited for:
 * `wgmma` of NVIDIA's sm_90a. A wave holds its 16 rows of A and of D as for the instructions above,
 * tile j of GW_MMA_N columns of D in registers 4 j on. B lies in shared memory, 128 bytes of a
 * column together from a multiple of 1024 on, piece c of 16 bytes of column t at c ^ t % 8; who
 * writes it calls gw_group_show before the barrier. What an instruction uses is left alone until
 * gw_group_wait, and then named to gw_group_keep. */
#if (defined(GW_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)) ||                                  \
    (defined(GW_EMULATOR) && LANES == 32)
#define GW_GROUP_MMA 1
#else
#define GW_GROUP_MMA 0
#endif

#if GW_GROUP_MMA
/* Where columns of B begin, and what to add for 8 columns more or for 32 bytes along k. */
typedef unsigned long long gw_group_at;
enum { GW_GROUP_COLUMNS_8 = 1024 / 16, GW_GROUP_K_STEP = 32 / 16 };

#if defined(GW_NVIDIA)
GW_DEVICE gw_group_at gw_group_columns(const void *b) {
    const gw_group_at at = gw_shared_address(b) / 16 & 0x3fff;
    return at | 1ull << 16 | (1024ull / 16) << 32 |
           1ull << 62; /* pieces exchanged over 128 bytes */
}

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
#define GW_EIGHT(v, at)                                                                            \
    "+f"(v[at]), "+f"(v[at + 1]), "+f"(v[at + 2]), "+f"(v[at + 3]), "+f"(v[at + 4]),               \
        "+f"(v[at + 5]), "+f"(v[at + 6]), "+f"(v[at + 7])

/* N columns (32 or 64), K = 16 of binary16 or bfloat16; D is added when `add` is not 0. */
#define GW_GROUP_HALF(name, type)                                                                  \
    template <int N>                                                                               \
    __device__ static inline void name(float *d, const unsigned *a, gw_group_at b, int add) {      \
        if (N == 64) {                                                                             \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"                          \
                         "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type               \
                         " " GW_REGISTERS_32 ", {%32, %33, %34, %35}, %36, add, 1, 1, 0;\n}"       \
                         : GW_EIGHT(d, 0), GW_EIGHT(d, 8), GW_EIGHT(d, 16), GW_EIGHT(d, 24)        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));          \
        } else {                                                                                   \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %21, 0;\n"                          \
                         "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type               \
                         " " GW_REGISTERS_16 ", {%16, %17, %18, %19}, %20, add, 1, 1, 0;\n}"       \
                         : GW_EIGHT(d, 0), GW_EIGHT(d, 8)                                          \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));          \
        }                                                                                          \
    }
GW_GROUP_HALF(gw_group_f16, "f16")
GW_GROUP_HALF(gw_group_bf16, "bf16")
#undef GW_GROUP_HALF
#undef GW_EIGHT
#undef GW_REGISTERS_16
#undef GW_REGISTERS_32

#else /* the emulator, at once */
GW_DEVICE gw_group_at gw_group_columns(const void *b) { return (gw_group_at)(uintptr_t)b / 16; }
GW_DEVICE void gw_group_show(void) {}
GW_DEVICE void gw_group_begin(void) {}
GW_DEVICE void gw_group_end(void) {}
template <int N> static inline void gw_group_wait(void) {}
template <int N, class T> static inline void gw_group_keep(T *) {}

template <int N>
static inline void gw_group_half(float *d, const unsigned *a, gw_group_at at, int add, int bf16) {
    for (int i = 0; i < N / 2; i++) {
        d[i] = add ? d[i] : 0.0f;
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
        gw_emulator_mma_half(d + j / 2, a, b, bf16);
    }
}
template <int N>
static inline void gw_group_f16(float *d, const unsigned *a, gw_group_at b, int add) {
    gw_group_half<N>(d, a, b, add, 0);
}
template <int N>
static inline void gw_group_bf16(float *d, const unsigned *a, gw_group_at b, int add) {
    gw_group_half<N>(d, a, b, add, 1);
}
#endif
#endif

#endif
