/* kernels_cl/experts/experts_lora.cl - adapters of experts (docs/arithmetic.md, "Adapters"). An
 * entry is one adapter of one expert of a row: (row * used + the expert's place in the row's route)
 * * at_once + the adapter's place in the row's.
 */

/* Of entries of rows row0 on: products [entries, m] of what the adapter has of the expert with the
 * entry's input, of which rows [first, first + n) of the matrix are in this buffer. From buffer 0
 * entries without an adapter get zeros. each: what rows of x have for each entry of an expert: 0,
 * one input of all; 1, each expert's own; 2, each entry's. Items: entries of a row, m of each. */
KERNEL_OF_ANY_SIZE lora_products(STEP, IN(in), IN(route), IN(adapters), IN(w), OUT(out),
                                 const int m, const int k, const int used, const int at_once,
                                 const int experts, const int each, const int row0,
                                 const int first, const int n) {
    const int here = GROUP_ID(1), row = row0 + here;
    if (row >= LIVE) {
        return;
    }
    const int inputs = each == 0 ? 1 : each == 1 ? used : used * at_once;
    for (int u = ITEM_ID; u < used * at_once * m; u += ITEM_COUNT) {
        const int entry = u / m, x = entry / at_once;
        const int place = (int)READS(float, adapters)[(size_t)row * 2 * at_once + entry % at_once];
        const int expert = (int)READS(float, route)[(size_t)row * 2 * used + x];
        const int r = ((place - 1) * experts + expert) * m + u % m - first;
        __global float *y = WRITES(float, out) + (size_t)here * used * at_once * m + u;
        if (place < 1 || r < 0 || r >= n) {
            if (place < 1 && first == 0) {
                *y = 0.0f;
            }
            continue;
        }
        __global const float *weights = READS(float, w) + (size_t)r * k;
        __global const float *values =
            READS(float, in) +
            ((size_t)row * inputs + (each == 0 ? 0 : each == 1 ? x : entry)) * k;
        float lane[GW_LANES];
        for (int i = 0; i < GW_LANES; i++) {
            lane[i] = 0.0f;
            for (int c = i; c < k; c += GW_LANES) {
                lane[i] = fma(weights[c], values[c], lane[i]);
            }
        }
        *y = gw_join_lanes(lane);
    }
}

/* What the adapters of an expert come to, column c of m: from sums of its entries. */
static inline float add_up(__global const float *adapters, __global const float *sums, int at_once,
                           int m, int c) {
    float sum = 0.0f;
    for (int p = 0; p < at_once; p++) {
        sum = adapters[p] > 0.0f ? fma(adapters[at_once + p], sums[(size_t)p * m + c], sum) : sum;
    }
    return sum;
}

/* Sums of entries of rows row0 on, and what they are added to. Items: columns of the result. flags:
 * the sum over a row's experts, its gates. */
KERNEL_OF_ANY_SIZE lora_join(STEP, IN(route), IN(adapters), IN(sums), IN(addend), OUT(out),
                             const int m, const int used, const int at_once, const int row0,
                             const int flags) {
    const int here = GROUP_ID(1), row = row0 + here, wide = flags & 1 ? m : used * m;
    if (row >= LIVE) {
        return;
    }
    __global const float *gates = READS(float, route) + (size_t)row * 2 * used + used;
    __global const float *own = READS(float, adapters) + (size_t)row * 2 * at_once;
    __global const float *sums = READS(float, sums) + (size_t)here * used * at_once * m;
    for (int i = ITEM_ID; i < wide; i += ITEM_COUNT) {
        const size_t at = (size_t)row * wide + i;
        float more = 0.0f;
        if (flags & 1) {
            for (int x = 0; x < used; x++) {
                const float sum = add_up(own, sums + (size_t)x * at_once * m, at_once, m, i);
                more = fma(flags & 2 ? gates[x] : 1.0f, sum, more);
            }
        } else {
            const int x = i / m;
            more = add_up(own, sums + (size_t)x * at_once * m, at_once, m, i % m);
            more = flags & 2 ? more * gates[x] : more;
        }
        /* the last of a row's places is used first */
        WRITES(float, out)[at] =
            own[at_once - 1] > 0.0f ? READS(float, addend)[at] + more : READS(float, addend)[at];
    }
}
