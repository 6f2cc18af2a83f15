/* kernels_hip/device.h - the only place, with device_matrix.h, that knows AMD from NVIDIA from the
 * emulator.
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

#include "kernels_hip/machine.h"

#define GW_ALWAYS_INLINE inline __attribute__((always_inline))
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
GW_DEVICE int gw_step_of_row(const struct gw_step_params &s, int row, int word) {
    return s.step[GW_STEP_ROWS + GW_STEP_OF_ROW * row + word];
}
GW_DEVICE int gw_step_token(const struct gw_step_params &s, int row) {
    return gw_step_of_row(s, row, 0);
}
GW_DEVICE int gw_step_pos(const struct gw_step_params &s, int row) {
    return gw_step_of_row(s, row, 1);
}
GW_DEVICE int gw_step_slot(const struct gw_step_params &s, int row) {
    return gw_step_of_row(s, row, 2);
}
GW_DEVICE int gw_step_last(const struct gw_step_params &s, int row) {
    return gw_step_of_row(s, row, 3);
}
GW_DEVICE int gw_step_type(const struct gw_step_params &s, int row) {
    return gw_step_of_row(s, row, 4);
}
GW_DEVICE int gw_step_less(const struct gw_step_params &s, int row) {
    return gw_step_of_row(s, row, 5);
}
GW_DEVICE int gw_step_turn(const struct gw_step_params &s) { return s.step[GW_STEP_TURN]; }
GW_DEVICE int gw_step_exchanges(const struct gw_step_params &s) {
    return s.step[GW_STEP_EXCHANGES];
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

/* What the thread has asked of shared memory is there before a fetch writes to that place: by who
 * then says at a gate that it has read. Fetches do not go the way of loads, and a load may still be
 * waiting when its thread has arrived: on an H200, beside matrix instructions, it sometimes found
 * what was fetched next. */
GW_DEVICE void gw_read_before_fetch(void) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Neighbouring blocks of a launch that run side by side and reach one another's shared memory
 * (sm_90, where the launch says how many they are; elsewhere it is the block alone). All threads of
 * each of them arrive once; behind the wait, for those waves that need it, the others' gates are
 * there. Gates alone (gw_gates_made): an arrival that released all else would first wait for all
 * that its thread has asked of memory, half a microsecond. */
GW_DEVICE void gw_cluster_arrive(void) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
GW_DEVICE void gw_cluster_wait(int blocks) {
#if defined(GW_NVIDIA) && GW_SM >= 900
    if (blocks > 1) { /* of a block alone it would be a barrier of all threads */
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
#endif
    (void)blocks;
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
#if defined(GW_NVIDIA) && GW_DOT == GW_DOT_SIGNED
    return __dp4a(a, b, c);
#elif defined(GW_AMD) && GW_DOT == GW_DOT_SIGNED
    return __builtin_amdgcn_sdot4(a, b, c, false);
#elif defined(GW_AMD) && GW_DOT == GW_DOT_MIXED
    return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#else
    for (int i = 0; i < 32; i += 8) {
        c += (int)(int8_t)(a >> i) * (int)(int8_t)(b >> i);
    }
    return c;
#endif
}

/* c + a * b, of factors that fit 24 bits with their sign: AMD multiplies them four times as fast as
 * those of 32 bits. */
GW_DEVICE int gw_mad24(int a, int b, int c) {
#if defined(GW_AMD)
    return c + __mul24(a, b);
#else
    return c + a * b;
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
#if GW_SM >= 700
#define GW_PAST_L1 ".L1::no_allocate"
#else
#define GW_PAST_L1 ""
#endif
GW_DEVICE gw_16b gw_stream(const void *from) {
    gw_16b r;
    asm("ld.global.nc" GW_PAST_L1 ".v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
        : "l"(__cvta_generic_to_global(from)));
    return r;
}
GW_DEVICE gw_16b gw_stream_fresh(const void *from) {
    gw_16b r;
    asm volatile("ld.global" GW_PAST_L1 ".v4.u32 {%0, %1, %2, %3}, [%4];"
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

/* A word that one thread of the device writes and one of another block waits for: what its block
 * wrote before a barrier and this is there for who reads behind it and a barrier. */
GW_DEVICE void gw_word_release(unsigned *word, unsigned value) {
#if defined(GW_NVIDIA) && GW_SM >= 700
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(word)),
                 "r"(value)
                 : "memory");
#else
    __threadfence();
    *(volatile unsigned *)word = value;
#endif
}
/* Until it is not 0. */
GW_DEVICE void gw_word_wait(const unsigned *word) {
#if defined(GW_EMULATOR)
    gw_emulator_word_wait(word);
#elif defined(GW_NVIDIA) && GW_SM >= 700
    unsigned value;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(value)
                     : "l"(__cvta_generic_to_global(word))
                     : "memory");
    } while (value == 0);
#else
    while (*(const volatile unsigned *)word == 0) {
    }
    __threadfence();
#endif
}

/* ---- other cards ------------------------------------------------------------------------------
 *
 * Words between cards travel in pairs of 8 bytes, a word and a number that says which exchange it
 * belongs to: eight bytes arrive as one, so who reads the number has the word, without fences. */

struct gw_two_pairs {
    unsigned word[4]; /* a word, its number, a word, its number */
};

GW_DEVICE void gw_card_store(void *at, const gw_two_pairs &v) {
#if defined(GW_NVIDIA)
    asm volatile(
        "st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at)),
        "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
        : "memory");
#elif defined(GW_AMD)
    for (int i = 0; i < 2; i++) {
        const unsigned long long pair = v.word[2 * i] | (unsigned long long)v.word[2 * i + 1] << 32;
        __hip_atomic_store((unsigned long long *)at + i, pair, __ATOMIC_RELAXED,
                           __HIP_MEMORY_SCOPE_SYSTEM);
    }
#else
    memcpy(at, v.word, sizeof v.word);
#endif
}

GW_DEVICE void gw_card_store_pair(void *at, unsigned word, unsigned number) {
#if defined(GW_NVIDIA)
    asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(at)),
                 "r"(word), "r"(number)
                 : "memory");
#elif defined(GW_AMD)
    __hip_atomic_store((unsigned long long *)at, word | (unsigned long long)number << 32,
                       __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    const unsigned pair[2] = {word, number};
    memcpy(at, pair, sizeof pair);
#endif
}

GW_DEVICE gw_two_pairs gw_card_load(const void *at) {
    gw_two_pairs v;
#if defined(GW_NVIDIA)
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
#elif defined(GW_AMD)
    for (int i = 0; i < 2; i++) {
        const unsigned long long pair = __hip_atomic_load(
            (const unsigned long long *)at + i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
        v.word[2 * i] = (unsigned)pair;
        v.word[2 * i + 1] = (unsigned)(pair >> 32);
    }
#else
    memcpy(v.word, at, sizeof v.word);
#endif
    return v;
}

/* Asks for `bytes` from there on, both multiples of 16, to come into the second cache; on sm_90. */
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

#include "kernels_hip/device_matrix.h"

#endif
