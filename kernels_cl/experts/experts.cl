/* kernels_cl/experts/experts.cl - products of rows with the experts that they chose, one matrix of
 * one format, and the sum over the chosen (docs/arithmetic.md, section 5). An entry is a place in a
 * row's route: row * used + place. Processors multiply strips of quantized weights in
 * linear_item.cl.
 */
#ifdef JOIN

/* The gated sums of a row's entries, in the order of its route; flags: addend. sums [entries, d],
 * of rows row0 on. */
KERNEL_OF_ANY_SIZE experts_join(STEP, IN(route), IN(sums), IN(addend), OUT(out), const int d,
                                const int used, const int row0, const int gate_input,
                                const int flags) {
    const int here = GROUP_ID(1), row = row0 + here;
    if (row >= LIVE) {
        return;
    }
    __global const float *gates = READS(float, route) + (size_t)row * 2 * used + used;
    __global const float *sums = READS(float, sums) + (size_t)here * used * d;
    for (int i = ITEM_ID; i < d; i += ITEM_COUNT) {
        const size_t at = (size_t)row * d + i;
        float acc = 0.0f;
        for (int x = 0; x < used; x++) {
            acc = fma(gate_input ? 1.0f : gates[x], sums[(size_t)x * d + i], acc);
        }
        WRITES(float, out)[at] = flags & 1 ? READS(float, addend)[at] + acc : acc;
    }
}

#else

/* ---- term n of row r of this allocation with an input x -------------------------------------- */

#ifdef LOW_BITS

#ifdef SPANS
#define APART GW_ACT_SPAN /* lanes from one with terms to the next; those between have +0 */
#define TERMS(k) ((k) / GW_ACT_BLOCK / GW_ACT_SPAN)
#else
#define APART 1
#define TERMS(k) ((k) / GW_ACT_BLOCK)
#endif

static inline float add_one(PLANE_ARGS, int r, int k, int n, __global const uchar *x, float acc) {
    const int blocks = k / GW_ACT_BLOCK;
#ifdef SPANS
    __global const uint *words = (__global const uint *)x + n * GW_ACT_SPAN * 10;
    int sum = 0, minimums = 0;
    wraw raw;
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        raw = fetch(w, high_at, head_at, sub_at, r, n * GW_ACT_SPAN + b, blocks);
        const wblock o = unpack(&raw);
        add_block(&o, vload4(0, words + 10 * b + 2), vload4(0, words + 10 * b + 6),
                  words[10 * b + 1], &sum, &minimums);
    }
    const wblock last = unpack(&raw); /* for the head */
    return add_span(last.ws, last.wm, sum, as_float(words[0]), REST(minimums, as_float(words[10])),
                    acc);
#else
    __global const uint *words = (__global const uint *)x + n * 10;
    const wraw raw = fetch(w, high_at, head_at, sub_at, r, n, blocks);
    const wblock o = unpack(&raw);
    return add_term(&o, vload4(0, words + 2), vload4(0, words + 6), as_float(words[0]), words[1],
                    acc);
#endif
}

#else

#define APART 1
#define TERMS(k) (k)

#if defined(FORMAT_F32)
#define ELEMENT float
#define WIDEN_ONE(x) (x)
#elif defined(FORMAT_F16)
#define ELEMENT ushort
#define WIDEN_ONE(x) gw_f16_to_f32(x)
#else
#define ELEMENT ushort
#define WIDEN_ONE(x) gw_bf16_to_f32(x)
#endif
#ifdef GW_ITEM /* as stored */
#define WEIGHTS IN(w), const ulong high_at, const ulong head_at, const ulong sub_at
#define PLANES w_buf + w_off, high_at, head_at, sub_at
#define PLANE_ARGS __global const uchar *w, ulong high_at, ulong head_at, ulong sub_at
#define ELEMENT_AT(r, n, k) ((size_t)(r) * (k) + (n))
#define E4M3_AT(r, n, k)                                                                           \
    gw_e4m3_weight((__global const gw_block_e4m3 *)w +                                             \
                       (size_t)(r) * (((k) + GW_E4M3_BLOCK - 1) / GW_E4M3_BLOCK),                  \
                   n)
#define NVFP4_AT(r, n, k)                                                                          \
    gw_nvfp4_weight((__global const gw_block_nvfp4 *)w +                                           \
                        (size_t)(r) * (((k) + GW_NVFP4_BLOCK - 1) / GW_NVFP4_BLOCK),               \
                    n)
#else
#define E4M3_AT(r, n, k) element_at(w, (size_t)(r), n, k)
#define NVFP4_AT(r, n, k) element_at(w, (size_t)(r), n, k)
#define ELEMENT_AT(r, n, k)                                                                        \
    ((size_t)(r) * (((k) + PIECE - 1) / PIECE * PIECE) + (n) / PIECE * PIECE +                     \
     (n) % TEAM * PER_LANE + (n) % PIECE / TEAM)
#endif

static inline float add_one(PLANE_ARGS, int r, int k, int n, __global const uchar *x, float acc) {
#if defined(FORMAT_E4M3)
    const float weight = E4M3_AT(r, n, k);
#elif defined(FORMAT_NVFP4)
    const float weight = NVFP4_AT(r, n, k);
#else
    const float weight = WIDEN_ONE(((__global const ELEMENT *)w)[ELEMENT_AT(r, n, k)]);
#endif
    return fma(weight, ((__global const float *)x)[n], acc);
}

#endif

/* The terms of one lane; in prefill order lane 0 has all. */
static inline float add_lane(PLANE_ARGS, int r, int k, int lane, __global const uchar *x) {
#ifdef DECODE
    const int step = TEAM / APART, from = lane % APART == 0 ? lane / APART : TERMS(k);
#else
    const int step = 1, from = lane;
#endif
    float acc = 0.0f;
    for (int n = from; n < TERMS(k); n += step) {
        acc = add_one(w, high_at, head_at, sub_at, r, k, n, x, acc);
    }
    return acc;
}

/* ---- sums ------------------------------------------------------------------------------------ */

#if defined(DECODE) && !defined(GW_ITEM)

#define LOCALS(X) X(float, scratch, GROUP)
LOCALS_TYPE

/* A team per row of an entry's expert. */
KERNEL(GROUP) experts_sum(STEP, WEIGHTS, EXPERTS_ARGS) {
    LOCALS_HERE
    const int id = LOCAL_ID, lane = id & (TEAM - 1), i = GROUP_ID(0) * TEAMS + id / TEAM;
    if (EXPERTS_ENTRY >= LIVE * used) {
        return;
    }
    EXPERTS_HERE;
    const int r = expert * m + min(i, m - 1) - first, there = i < m && r >= 0 && r < rows;
    float acc = add_lane(PLANES, r >= 0 && r < rows ? r : 0, k, lane, x);
    for (int h = 1; h < TEAM; h *= 2) { /* as gw_join_lanes */
        acc = acc + as_float(other_lane(as_int(acc), h, (__local int *)scratch, id));
    }
    const int writes = lane == 0 ? there : 0;
    if (again(writes)) {
        PUT_SUM(i, acc);
    }
}

#else

/* An item has whole sums. */
KERNEL_OF_ANY_SIZE experts_sum(STEP, WEIGHTS, EXPERTS_ARGS) {
    if (EXPERTS_ENTRY >= LIVE * used) {
        return;
    }
    EXPERTS_HERE;
    for (int i = ITEM_ID; i < m; i += ITEM_COUNT) {
        const int r = expert * m + i - first;
        if (r < 0 || r >= rows) {
            continue;
        }
#ifdef DECODE
        float lane[TEAM];
        for (int l = 0; l < TEAM; l++) {
            lane[l] = add_lane(PLANES, r, k, l, x);
        }
        PUT_SUM(i, gw_join_lanes(lane));
#else
        PUT_SUM(i, add_lane(PLANES, r, k, 0, x));
#endif
    }
}

#endif
#endif
