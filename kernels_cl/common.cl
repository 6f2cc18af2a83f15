/* kernels_cl/common.cl - what every program begins with, behind dialect.h, arith.h and blocks.h.
 *
 * GW_ITEM: the way for processors, one work-item at a time, no barriers. Otherwise "team": the 32
 * lanes of arith.h are 32 neighbouring work-items, which exchange values as exchange.cl says or
 * through local memory. GW_NV: inline PTX is understood.
 * Every tensor is a buffer and an offset in bytes. A kernel begins with the step block, the rows of
 * the plan and whether a PICK came before it.
 */
#ifdef GW_BROKEN
#error the build was made to fail
#endif

#ifdef WALK /* an argument of the launch, copied by every group */
#define STEP WALKER __local const int *step, const int plan_rows, const int picked
#else
#define STEP __global const int *step, const int plan_rows, const int picked
#endif
#define LIVE (plan_rows == 1 ? 1 : picked ? step[2] : step[0]) /* one row is always live */
#define STEP_TOKEN(i) step[6 + 6 * (i)]
#define STEP_POS(i) step[6 + 6 * (i) + 1]
#define STEP_SLOT(i) step[6 + 6 * (i) + 2]
#define STEP_LAST(i) step[6 + 6 * (i) + 3]
#define STEP_TYPE(i) step[6 + 6 * (i) + 4]
#define STEP_LESS(i) step[6 + 6 * (i) + 5]

#define IN(name) __global const uchar *name##_buf, const ulong name##_off
#define OUT(name) __global uchar *name##_buf, const ulong name##_off
#define READS(type, name) ((__global const type *)(name##_buf + name##_off))
#define WRITES(type, name) ((__global type *)(name##_buf + name##_off))

/* GW_COMPACT: a compiler that is slow on unrolled loops. */
#ifdef GW_COMPACT
#define UNROLL
#define UNROLL_1
#define UNROLL_4
#define UNROLL_16
#else
#define UNROLL_1 _Pragma("unroll 1") /* a loop that stays one, however few its turns are */
#define UNROLL_4 _Pragma("unroll 4")
#define UNROLL _Pragma("unroll")
#define UNROLL_16 _Pragma("unroll 16")
#endif

/* PoCL 3.1 gives a group local arrays of its own only in the kernel itself. In a helper that stays a
 * function, and into which LLVM puts an array's address because all calls pass the same, it leaves
 * an array that all threads share and that nobody fills: so no helper stays a function. */
#ifdef GW_COMPACT
#define inline inline __attribute__((always_inline))
#endif

/* PoCL 3.1 takes a comparison that it kept over a barrier for equal in all items: look again.
 *
 * Where barriers stand under a condition that it does not know to be equal in all items (not
 * optimized: any call), the first item chooses the way for all. In a kernel that may also return
 * early this reaches to the end: of the two ways there that an && makes, the others of the group
 * are compiled for the first item's alone, and what they do is undefined. Such a kernel ends
 * without &&. */
#ifdef GW_COMPACT
static inline int again(int v) {
    volatile int kept = v;
    return kept;
}
#else
#define again(v) (v)
#endif

#define TEAM 32
#ifndef GROUP /* work-items of a group; the host gives more where the device takes them */
#define GROUP 256
#endif
#define TEAMS (GROUP / TEAM)

/* A kernel, or an op of the one kernel that does a whole step (walk.cl). LOCALS lists its local
 * memory as X(type, name, count); AWAIT: barrier; results of earlier launches are visible after. */
#ifndef WALK
#define KERNEL(size) __kernel __attribute__((reqd_work_group_size(size, 1, 1))) OF_TEAMS void
#define KERNEL_OF_ANY_SIZE __kernel void
#define GROUP_ID(d) ((int)get_group_id(d))
#define GROUP_COUNT(d) ((int)get_num_groups(d))
#define ITEM_ID ((int)get_global_id(0))
#define ITEM_COUNT ((int)get_global_size(0))
#define LOCAL_ID ((int)get_local_id(0))
#define AWAIT
#define LOCAL_ARRAY(type, name, n) __local type name[n] __attribute__((aligned(16)));
#define LOCALS_TYPE
#define LOCALS_HERE LOCALS(LOCAL_ARRAY)
#else
#define KERNEL(size) static inline __attribute__((always_inline)) void
#define KERNEL_OF_ANY_SIZE KERNEL(0)
#define WALKER walker *grid, __local const ulong *slots, __local locals *memory,
#define GROUP_ID(d) ((d) == 0 ? grid->x : (d) == 1 ? grid->y : grid->z)
#define GROUP_COUNT(d) (grid->count) /* along x */
#define ITEM_ID (grid->x * GROUP + LOCAL_ID)
#define LOCAL_ID own_id()
#define ITEM_COUNT (grid->count * GROUP)
#define AWAIT grid_await(grid)
#define LOCAL_FIELD(type, name, n) type name[n] __attribute__((aligned(16)));
#define LOCAL_NAME(type, name, n) __local type *name = memory->name;
#define LOCALS_TYPE typedef struct locals { LOCALS(LOCAL_FIELD) } locals;
#define LOCALS_HERE LOCALS(LOCAL_NAME)
#endif

/* The value of a binary16 number in the low bits. */
static inline float widen_half(uint bits) {
#ifdef GW_NV
    float r;
    __asm__("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }"
        : "=f"(r) : "r"(bits));
    return r;
#else
    return gw_f16_to_f32((ushort)bits);
#endif
}

/* gw_act8_span on words: the bits of the largest scale; four words of codes, as gw_span_code has
 * them in the 16 bits of every second byte. *sum: what the codes add up to. */
static inline uint span_top(uint4 scales) {
    scales &= 0x7fffffffu;
    return max(max(scales.s0, scales.s1), max(scales.s2, scales.s3));
}
static inline uint4 span_codes(uint4 codes, int part, int *sum) {
    const uint4 bytes = 0x00ff00ffu, up = codes ^ 0x80808080u;
    const uint4 times = (uint)part, plus = (uint)(128 + 128 * (256 - part)) * 0x00010001u;
    const uint4 even = (up & bytes) * times + plus >> 8u & bytes;
    const uint4 odd = (up >> 8u & bytes) * times + plus >> 8u & bytes;
    const uint4 both = even + odd;
    const uint all = both.s0 + both.s1 + both.s2 + both.s3;
    *sum += (int)((all & 0xffffu) + (all >> 16)) - 128 * 16;
    return (even | odd << 8u) ^ 0x80808080u;
}

#ifndef GW_ITEM

/* 16 bytes of a weight, which nobody needs a second time. */
static inline uint4 load_once(__global const uint4 *p) {
#ifdef GW_NV_CACHES
    uint4 v;
    __asm__ volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.s0), "=r"(v.s1), "=r"(v.s2), "=r"(v.s3)
                     : "l"((ulong)p));
    return v;
#else
    return *p;
#endif
}

/* In functions that have `scratch`, of whatever type, and `id`. */
#define SHUFFLE(kind, v, to) kind(v, to, (__local int *)scratch, id)

/* v of each `width` neighbours, by the fold tree of arith.h, in all of them; through scratch. */
#define FOLD_LANES(width, join)                                                                    \
    const int lane = id & ((width) - 1);                                                           \
    scratch[id] = v;                                                                               \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                  \
    for (int h = (width) / 2; h > 0; h /= 2) {                                                     \
        if (lane < h) {                                                                            \
            scratch[id] = join(scratch[id], scratch[id + h]);                                      \
        }                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
    }                                                                                              \
    v = scratch[id - lane];                                                                        \
    barrier(CLK_LOCAL_MEM_FENCE)
#define SUM(a, b) ((a) + (b))
#define LARGER(a, b) ((b) > (a) ? (b) : (a)) /* a, where b is not a number */

/* The fold tree of arith.h over the 32 lanes of each team; the result in every lane. All items of
 * the group call it together. scratch: one word per item. */
static inline float team_fold(float v, __local float *scratch, int id) {
#if GW_SHUFFLES
    for (int h = TEAM / 2; h > 0; h /= 2) {
        v = v + as_float(SHUFFLE(shuffle_xor, as_int(v), h));
    }
    return v;
#else
    FOLD_LANES(TEAM, SUM);
    return v;
#endif
}

/* v of the lane whose number differs by `mask`; all items of the group together. */
static inline int other_lane(int v, int mask, __local int *scratch, int id) {
#if GW_SHUFFLES
    return SHUFFLE(shuffle_xor, v, mask);
#else
    scratch[id] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    v = scratch[id ^ mask];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
#endif
}

/* v of the other lane of two neighbours. */
static inline float pair_swap(float v, __local float *scratch, int id) {
    return as_float(other_lane(as_int(v), 1, (__local int *)scratch, id));
}

/* gw_join_lanes of a and of b at once: that of a in the even lanes of each team, of b in the odd
 * ones. */
static inline float pair_join(float a, float b, __local float *scratch, int id) {
    const int odd = id & 1;
    const float own = odd ? b : a;
    float v = own + pair_swap(odd ? a : b, scratch, id);
#if GW_SHUFFLES
    for (int h = 2; h < TEAM; h *= 2) {
        v = v + as_float(SHUFFLE(shuffle_xor, as_int(v), h));
    }
#else
    scratch[id] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = 2; h < TEAM; h *= 2) {
        if ((id & (2 * h - 1)) < 2) {
            scratch[id] = scratch[id] + scratch[id + h];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    v = scratch[id & ~(TEAM - 2)];
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    return v;
}

/* Largest of a team, in every lane. */
static inline uint team_max(uint v, __local uint *scratch, int id) {
#if GW_SHUFFLES
    for (int h = TEAM / 2; h > 0; h /= 2) {
        v = max(v, (uint)SHUFFLE(shuffle_xor, (int)v, h));
    }
    return v;
#else
    FOLD_LANES(TEAM, max);
    return v;
#endif
}

/* Largest of a team, in every lane; a value that is not a number is never the largest. */
static inline float team_top(float v, __local float *scratch, int id) {
#if GW_SHUFFLES
    for (int h = TEAM / 2; h > 0; h /= 2) {
        float other = as_float(SHUFFLE(shuffle_xor, as_int(v), h));
        v = other > v ? other : v;
    }
    return v;
#else
    FOLD_LANES(TEAM, LARGER);
    return v;
#endif
}

/* What this item wrote, and what it knows to be written, is seen by all groups of the launch before
 * what it writes next. OpenCL 1.2 promises that nowhere: only where the device is known to do it. */
static inline void device_fence(void) {
#ifdef GW_NV
    __asm__ volatile("membar.gl;" ::: "memory");
#else
    mem_fence(CLK_GLOBAL_MEM_FENCE);
#endif
}

/* Sums of lanes 0..15 and 16..31, in lanes 0 and 16. */
static inline int team_half_sum(int v, __local int *scratch, int id) {
#if GW_SHUFFLES
    for (int h = TEAM / 4; h > 0; h /= 2) {
        v = v + SHUFFLE(shuffle_xor, v, h);
    }
    return v;
#else
    FOLD_LANES(TEAM / 2, SUM);
    return v;
#endif
}

#if !GW_SHUFFLES
/* v of the four neighbours id & ~3 .. id | 3, in each of them; all items of the group together. */
static inline uint4 quad_share(uint v, __local uint *scratch, int id) {
    scratch[id] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint4 all = vload4(id / 4, scratch);
    barrier(CLK_LOCAL_MEM_FENCE);
    return all;
}
#endif

/* The code of x in the low 8 bits: added to 1.5 * 2^23, x * inverse, at most 127 and a little, is
 * rounded to an integer in the last bits, ties to even; one addition, where conversions run at a
 * quarter of the rate. */
static inline uint act8_code(float x, float inverse) {
    return as_uint(x * inverse + 12582912.0f);
}

/* The lowest bytes of four words. */
static inline uint four_bytes(uint a, uint b, uint c, uint d) {
#ifdef GW_NV
    uint r;
    __asm__("{ .reg .b32 low, high; prmt.b32 low, %1, %2, 0x40; prmt.b32 high, %3, %4, 0x40; "
        "prmt.b32 %0, low, high, 0x5410; }"
        : "=r"(r) : "r"(a), "r"(b), "r"(c), "r"(d));
    return r;
#else
    return (a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | d << 24;
#endif
}

/* Of four int8. */
static inline int sum_of_bytes(uint v) {
#ifdef GW_NV
    int r;
    __asm__("dp4a.s32.s32 %0, %1, %2, 0;" : "=r"(r) : "r"(v), "r"(0x01010101));
    return r;
#else
    const char4 q = as_char4(v);
    return (int)q.s0 + q.s1 + q.s2 + q.s3;
#endif
}

/* Four neighbouring items make a block of 32 values. Quarter i of a row has four values of a
 * block's first half and four of its second, so that the first step of a fold is an item's own.
 * Where these vectors of four are in the row: */
#define QUARTER_LOW(i) ((i) + ((i) & ~3))
#define QUARTER_HIGH(i) (QUARTER_LOW(i) + 4)
#define QUARTERS(d) (((d) + GW_ACT_BLOCK - 1) / GW_ACT_BLOCK * 4)

/* gw_block_squares, in all four items; all items of the group together. */
static inline float quad_squares(float4 low, float4 high, __local uint *scratch, int id) {
    float4 s = low * low + high * high;
#if GW_SHUFFLES
    for (int h = 2; h > 0; h /= 2) {
        s = s + (float4)(as_float(SHUFFLE(shuffle_xor, as_int(s.s0), h)),
                         as_float(SHUFFLE(shuffle_xor, as_int(s.s1), h)),
                         as_float(SHUFFLE(shuffle_xor, as_int(s.s2), h)),
                         as_float(SHUFFLE(shuffle_xor, as_int(s.s3), h)));
    }
#else
    float v[4] = {s.s0, s.s1, s.s2, s.s3};
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float4 of = as_float4(quad_share(as_uint(v[i]), scratch, id));
        v[i] = (of.s0 + of.s2) + (of.s1 + of.s3);
    }
    s = (float4)(v[0], v[1], v[2], v[3]);
#endif
    return (s.s0 + s.s2) + (s.s1 + s.s3);
}

/* A quarter of an activation block. */
typedef struct act8_quarter {
    uint word[2]; /* codes: of each half */
    uint sums;    /* of both halves of the block */
    float scale;
} act8_quarter;

/* gw_act8_encode; all items of the group together. Through a pointer: from a struct that is
 * returned LLVM makes an intrinsic that oclgrind does not know. */
static inline void quad_encode(act8_quarter *r, float4 low, float4 high, __local uint *scratch,
                               int id) {
    const uint4 tops = max(as_uint4(low) & 0x7fffffffu, as_uint4(high) & 0x7fffffffu);
    uint top = max(max(tops.s0, tops.s1), max(tops.s2, tops.s3));
#if GW_SHUFFLES
    top = max(top, (uint)SHUFFLE(shuffle_xor, (int)top, 1));
    top = max(top, (uint)SHUFFLE(shuffle_xor, (int)top, 2));
#else
    const uint4 all = quad_share(top, scratch, id);
    top = max(max(all.s0, all.s1), max(all.s2, all.s3));
#endif
    int finite = top < 0x7f800000u;
    float amax = as_float(top);
    float inverse = finite && amax > 0.0f ? 127.0f / amax : 0.0f;
    inverse = inverse < 3.0e38f ? inverse : 0.0f;
    r->word[0] = four_bytes(act8_code(low.s0, inverse), act8_code(low.s1, inverse),
                            act8_code(low.s2, inverse), act8_code(low.s3, inverse));
    r->word[1] = four_bytes(act8_code(high.s0, inverse), act8_code(high.s1, inverse),
                            act8_code(high.s2, inverse), act8_code(high.s3, inverse));
    r->word[0] = finite ? r->word[0] : 0;
    r->word[1] = finite ? r->word[1] : 0;
    int sum = sum_of_bytes(r->word[0]) + sum_of_bytes(r->word[1]) * 65536; /* two of 12 bits */
#if GW_SHUFFLES
    sum += SHUFFLE(shuffle_xor, sum, 1);
    sum += SHUFFLE(shuffle_xor, sum, 2);
#else
    const int4 s = as_int4(quad_share((uint)sum, scratch, id));
    sum = (s.s0 + s.s1) + (s.s2 + s.s3);
#endif
    const int first = (short)(sum & 0xffff);
    r->sums = ((uint)first & 0xffffu) | (uint)(sum - first);
    r->scale = finite ? amax / 127.0f : as_float(0x7fc00000u);
}

/* All but the scale. */
static inline void quad_store_codes(__global gw_act8 *block, const act8_quarter *r, int quarter) {
    __global uint *words = (__global uint *)block;
    if (quarter == 0) {
        words[1] = r->sums;
    }
    words[2 + quarter] = r->word[0];
    words[6 + quarter] = r->word[1];
}

static inline void quad_store(__global gw_act8 *block, const act8_quarter *r, int quarter) {
    quad_store_codes(block, r, quarter);
    if (quarter == 0) {
        block->scale = r->scale;
    }
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
    int q = finite ? (int)(act8_code(v, inverse) << 24) >> 24 : 0;
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

/* ---- up to three matrices stacked, in one launch (decode_team.cl, linear_item.cl) ------------ */

/* Rows [first, first + rows) of y, with their weights and bias. */
#define PART(n)                                                                                    \
    IN(w##n), const ulong high##n, const ulong head##n, const ulong sub##n, IN(bias##n),           \
        const int first##n, const int rows##n

typedef struct block {
    __global const uchar *w, *bias;
    ulong high, head, sub;
    int first, m, r; /* of y; rows of the part; the first one of this team or item */
} block;

/* Blocks of ROWS rows, those of a part together. */
#ifdef WALK /* from the slots: three parts in registers would be too many */
typedef struct part_slots {
    ulong w, w_off, high, head, sub, bias, bias_off;
    long first, rows;
} part_slots;
#define PART_SLOTS(n) (((__local const part_slots *)(slots + 3))[n])
#define BLOCKS(n) (((int)PART_SLOTS(n).rows + ROWS - 1) / ROWS)
static inline block take_block(__local const part_slots *p, int r) {
    block o;
    o.w = (__global const uchar *)p->w + p->w_off;
    o.bias = (__global const uchar *)p->bias + p->bias_off;
    o.high = p->high, o.head = p->head, o.sub = p->sub;
    o.first = (int)p->first, o.m = (int)p->rows, o.r = r;
    return o;
}
#define BLOCK(i)                                                                                   \
    take_block(&PART_SLOTS(0) + ((i) >= BLOCKS(0)) + ((i) >= BLOCKS(0) + BLOCKS(1)),               \
               ((i) - ((i) >= BLOCKS(0) ? BLOCKS(0) : 0) -                                         \
                ((i) >= BLOCKS(0) + BLOCKS(1) ? BLOCKS(1) : 0)) *                                  \
                       ROWS +                                                                      \
                   ROW_OF_ITEM)
#else
#define BLOCKS(n) ((rows##n + ROWS - 1) / ROWS)
#define TAKE(n, at)                                                                                \
    (block) {                                                                                      \
        w##n##_buf + w##n##_off, bias##n##_buf + bias##n##_off, high##n, head##n, sub##n,          \
            first##n, rows##n, (at) * ROWS + ROW_OF_ITEM                                           \
    }
#define BLOCK(i)                                                                                   \
    ((i) >= BLOCKS(0) + BLOCKS(1) ? TAKE(2, (i) - BLOCKS(0) - BLOCKS(1))                           \
     : (i) >= BLOCKS(0)           ? TAKE(1, (i) - BLOCKS(0))                                       \
                                  : TAKE(0, i))
#endif

/* One item encodes 32 values of its own. */
static inline void item_encode(__global gw_act8 *out, const float *x) {
    gw_act8 block;
    gw_act8_encode(&block, x);
    *out = block;
}

#ifndef GW_ITEM
/* ---- a matrix product of a prompt's tokens (linear_team.cl, float_team.cl) ------------------- */

#define LINEAR_ARGS                                                                                \
    STEP, WEIGHTS, IN(x), IN(bias), IN(residual), OUT(y), const int m, const int k,                \
        const int y_stride, const int flags

static inline void finish(__global float *y, __global const float *bias,
                          __global const float *residual, int flags, size_t at, int r, float v) {
    v = flags & 1 ? v + bias[r] : v;
    v = flags & 2 ? v + residual[at] : v;
    y[at] = v;
}

#endif

#ifdef EXPERTS
/* ---- products with experts (experts.cl, linear_item.cl) -------------------------------------- */

/* m rows of each expert; matrix rows [first, first + rows) are in this allocation. Entries, row *
 * used + place, from entry0 on; each has its own input where by_entry. flags: 1 biased, 2 times the
 * gate. sums [entries, m]. */
#define EXPERTS_ARGS                                                                               \
    IN(x), IN(route), IN(bias), OUT(sums), const int m, const int k, const int used,               \
        const int experts, const int entry0, const int first, const int rows, const int by_entry,  \
        const int flags
#define EXPERTS_ENTRY (entry0 + GROUP_ID(1))
#ifdef LOW_BITS
#define INPUT_BYTES(k) ((size_t)((k) / GW_ACT_BLOCK) * sizeof(gw_act8))
#else
#define INPUT_BYTES(k) ((size_t)(k) * sizeof(float))
#endif
#define EXPERTS_HERE                                                                               \
    const int entry = EXPERTS_ENTRY, row = entry / used;                                           \
    __global const float *chosen = READS(float, route) + (size_t)row * 2 * used + entry % used;    \
    const int expert = chosen[0] > 0.0f && chosen[0] < (float)experts ? (int)chosen[0] : 0;        \
    const float gate = chosen[used];                                                               \
    __global const uchar *x = READS(uchar, x) + (size_t)(by_entry ? entry : row) * INPUT_BYTES(k)
#define PUT_SUM(i, sum)                                                                            \
    put_sum(WRITES(float, sums) + (size_t)GROUP_ID(1) * m + (i),                                   \
            READS(float, bias) + (size_t)expert * m + (i), gate, flags, sum)

static inline void put_sum(__global float *to, __global const float *bias, float gate, int flags,
                           float v) {
    v = flags & 2 ? v * gate : v;
    *to = flags & 1 ? v + *bias : v;
}

#endif
