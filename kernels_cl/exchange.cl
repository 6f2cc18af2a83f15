/* kernels_cl/exchange.cl - values that the lanes of a team exchange without memory, and sums of
 * four products of bytes, where a device has instructions for them. probe.c tries each way on the
 * device before it is used; opencl.h has the same numbers.
 *
 * A team's 32 lanes are neighbours within what a shuffle reaches: a warp, a wave of 32 or 64, a
 * subgroup of a multiple of 32.
 */
#define SHUFFLES_PTX 1
#define SHUFFLES_AMD 2   /* a permutation within the wave */
#define SHUFFLES_INTEL 3 /* cl_intel_subgroups */
#define SHUFFLES_LOCAL 4 /* through local memory, for tests */
#ifndef GW_SHUFFLES      /* none: trees through local memory (common.cl) */
#define GW_SHUFFLES 0
#endif

#define DOTS_PTX 1
#define DOTS_AMD 2        /* of unsigned and signed bytes, from gfx11 on */
#define DOTS_AMD_SIGNED 3 /* of signed bytes, gfx906 to gfx10 */
#define DOTS_SIGNED 4     /* the same one by one, for tests */
#ifndef GW_DOTS           /* none: one by one */
#define GW_DOTS 0
#endif

#define EXCHANGES_IN_MEMORY (!GW_SHUFFLES || GW_SHUFFLES == SHUFFLES_LOCAL)

/* OF_TEAMS: of every kernel that exchanges values (common.cl, KERNEL). */
#if GW_SHUFFLES == SHUFFLES_INTEL
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#define OF_TEAMS __attribute__((intel_reqd_sub_group_size(32)))
#else
#define OF_TEAMS
#endif

#if GW_SHUFFLES
/* All lanes of a team together (SHUFFLES_LOCAL: all items of the group); id: of the item in its
 * group; scratch: a word per item, for SHUFFLES_LOCAL alone. */
#define SHUFFLE_ARGS __local int *scratch, int id
#define EXCHANGE static inline __attribute__((always_inline)) int /* why: common.cl, on PoCL */

/* v of the lane whose number differs by `mask`. */
EXCHANGE shuffle_xor(int v, int mask, SHUFFLE_ARGS) {
    int r;
#if GW_SHUFFLES == SHUFFLES_PTX
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                     : "=r"(r) : "r"(v), "r"(mask));
#elif GW_SHUFFLES == SHUFFLES_AMD
    const uint own = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
    r = __builtin_amdgcn_ds_bpermute((int)(own ^ (uint)mask) * 4, v);
#elif GW_SHUFFLES == SHUFFLES_INTEL
    r = intel_sub_group_shuffle(v, (uint)((id ^ mask) & 31));
#else
    scratch[id] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    r = scratch[id ^ mask];
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    return r;
}
#undef EXCHANGE
#endif

#define CODES_ARE_SIGNED (GW_DOTS == DOTS_AMD_SIGNED || GW_DOTS == DOTS_SIGNED)

/* sum + the products of four codes and four int8. Codes have no sign, or CODES_ARE_SIGNED. */
static inline int dot4(uint a, uint b, int sum) {
#if GW_DOTS == DOTS_PTX
    int r;
    __asm__("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
    return r;
#elif GW_DOTS == DOTS_AMD
    return __builtin_amdgcn_sudot4(0, (int)a, 1, (int)b, sum, 0);
#elif GW_DOTS == DOTS_AMD_SIGNED
    return __builtin_amdgcn_sdot4((int)a, (int)b, sum, 0);
#else
#if CODES_ARE_SIGNED
    char4 u = as_char4(a);
#else
    uchar4 u = as_uchar4(a);
#endif
    char4 q = as_char4(b);
    return sum + (int)u.s0 * q.s0 + (int)u.s1 * q.s1 + (int)u.s2 * q.s2 + (int)u.s3 * q.s3;
#endif
}
