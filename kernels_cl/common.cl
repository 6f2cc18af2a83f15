/* kernels_cl/common.cl - what every program begins with, behind dialect.h, arith.h and blocks.h.
 *
 * GW_ITEM: the way for processors, one work-item at a time, no barriers. Otherwise "team": the 32
 * lanes of arith.h are 32 neighbouring work-items; GW_NV: they exchange values by shuffles.
 * Every tensor is a buffer and an offset in bytes. A kernel begins with the step block, the rows of
 * the plan and whether a PICK came before it.
 */
#ifdef GW_BROKEN
#error the build was made to fail
#endif

#define STEP __global const int *step, const int plan_rows, const int picked
#define LIVE (picked ? step[2] : step[0])
#define STEP_TOKEN(i) step[4 + (i)]
#define STEP_POS(i) step[4 + plan_rows + (i)]
#define STEP_SLOT(i) step[4 + 2 * plan_rows + (i)]

#define IN(name) __global const uchar *name##_buf, const ulong name##_off
#define OUT(name) __global uchar *name##_buf, const ulong name##_off
#define READS(type, name) ((__global const type *)(name##_buf + name##_off))
#define WRITES(type, name) ((__global type *)(name##_buf + name##_off))

/* GW_COMPACT: a compiler that is slow on unrolled loops. */
#ifdef GW_COMPACT
#define UNROLL
#define UNROLL_4
#else
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#endif

/* PoCL 3.1 takes a comparison that it kept over a barrier for equal in all items: look again. */
#ifdef GW_COMPACT
static inline int again(int v) {
    volatile int kept = v;
    return kept;
}
#else
#define again(v) (v)
#endif

#define TEAM 32
#define GROUP 256

#ifndef GW_ITEM

#ifdef GW_NV
static inline float shuffle_down(float v, int by) {
    int r;
    __asm__ volatile("shfl.sync.down.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                 : "=r"(r) : "r"(as_int(v)), "r"(by));
    return as_float(r);
}
static inline int shuffle_xor(int v, int mask) {
    int r;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                     : "=r"(r) : "r"(v), "r"(mask));
    return r;
}
static inline int shuffle_from(int v, int lane) {
    int r;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                     : "=r"(r) : "r"(v), "r"(lane));
    return r;
}
#endif

/* The fold tree of arith.h over the 32 lanes of each team; the result in every lane. All items of
 * the group call it together. scratch: one word per item. */
static inline float team_fold(float v, __local float *scratch, int id) {
#ifdef GW_NV
    for (int h = TEAM / 2; h > 0; h /= 2) {
        v = v + shuffle_down(v, h);
    }
    return as_float(shuffle_from(as_int(v), 0));
#else
    int lane = id & (TEAM - 1);
    scratch[id] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = TEAM / 2; h > 0; h /= 2) {
        if (lane < h) {
            scratch[id] = scratch[id] + scratch[id + h];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    v = scratch[id - lane];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
#endif
}

/* Largest of a team, in every lane. */
static inline uint team_max(uint v, __local uint *scratch, int id) {
#ifdef GW_NV
    for (int h = TEAM / 2; h > 0; h /= 2) {
        v = max(v, (uint)shuffle_xor((int)v, h));
    }
    return v;
#else
    int lane = id & (TEAM - 1);
    scratch[id] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = TEAM / 2; h > 0; h /= 2) {
        if (lane < h) {
            scratch[id] = max(scratch[id], scratch[id + h]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    v = scratch[id - lane];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
#endif
}

/* Sums of lanes 0..15 and 16..31, in lanes 0 and 16. */
static inline int team_half_sum(int v, __local int *scratch, int id) {
#ifdef GW_NV
    for (int h = TEAM / 4; h > 0; h /= 2) {
        v = v + shuffle_xor(v, h);
    }
    return v;
#else
    int lane = id & (TEAM / 2 - 1);
    scratch[id] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = TEAM / 4; h > 0; h /= 2) {
        if (lane < h) {
            scratch[id] = scratch[id] + scratch[id + h];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    v = scratch[id - lane];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
#endif
}

/* gw_act8_encode of a team's 32 values; stored when `may_write`. All items call it together. */
static inline void team_encode(__global gw_act8 *out, float v, int may_write,
                               __local uint *scratch, int id) {
#ifdef GW_COMPACT
    volatile int live = may_write; /* as in again() */
#else
    const int live = may_write;
#endif
    uint top = team_max(as_uint(v) & 0x7fffffffu, scratch, id);
    int lane = id & (TEAM - 1), finite = top < 0x7f800000u;
    float amax = as_float(top);
    float inverse = finite && amax > 0.0f ? 127.0f / amax : 0.0f;
    inverse = inverse < 3.0e38f ? inverse : 0.0f;
    int q = finite ? (int)rint(v * inverse) : 0;
    int sum = team_half_sum(q, (__local int *)scratch, id);
    if (live) {
        out->q[lane] = (char)q;
        if (lane == 0) {
            out->scale = finite ? amax / 127.0f : as_float(0x7fc00000u);
        }
        if ((lane & 15) == 0) {
            out->sum[lane / 16] = (short)sum;
        }
    }
}

#endif

/* One item encodes 32 values of its own. */
static inline void item_encode(__global gw_act8 *out, const float *x) {
    gw_act8 block;
    gw_act8_encode(&block, x);
    *out = block;
}
