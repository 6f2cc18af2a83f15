/* kernels_cl/rows/forms.cl - EMBED, PICK and NORM in every form, ACT, MIX and ROUTE
 * (docs/arithmetic.md, section 5). flags: which of the buffers that may be missing are there, from
 * the first on.
 */
#define HAS(n) (flags >> (n) & 1)

#ifndef NORM

/* Values [32 b, 32 b + n) of a row of y as f32, or as the row's block b. */
static inline void leave(__global uchar *y, int act8, int row, int width, int b, const float *v) {
    const int n = min(GW_ACT_BLOCK, width - b * GW_ACT_BLOCK);
    if (act8) {
        item_encode((__global gw_act8 *)y + (size_t)row * (width / GW_ACT_BLOCK) + b, v);
        return;
    }
    for (int i = 0; i < n; i++) {
        ((__global float *)y)[(size_t)row * width + b * GW_ACT_BLOCK + i] = v[i];
    }
}
#define BLOCKS_OF(width) (((width) + GW_ACT_BLOCK - 1) / GW_ACT_BLOCK)

/* What embed has left in x [n, width], scaled, with the row of its position, or of its type; rows
 * [first, first + rows) of the table are in this buffer, rows that need others are left to other
 * launches. flags: table, by type. kind: of its elements; 0: f32, 1: f16, 2: bf16. */
KERNEL_OF_ANY_SIZE embed_form(STEP, OUT(x), IN(table), const int width, const int first,
                              const int rows, const int offset, const int kind, const float scale,
                              const int flags) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    const int own = HAS(1) ? STEP_TYPE(row) : STEP_POS(row) - STEP_LESS(row);
    const int at = own + offset - first;
    if (HAS(0) && (at < 0 || at >= rows)) {
        return;
    }
    __global float *x = WRITES(float, x) + (size_t)row * width;
    for (int i = ITEM_ID; i < width; i += ITEM_COUNT) {
        const size_t from = (size_t)at * width + i;
        float v = x[i];
        v = scale != 0.0f ? v * scale : v;
        if (HAS(0)) {
            v = v + (kind == 0   ? READS(float, table)[from]
                     : kind == 1 ? gw_f16_to_f32(READS(ushort, table)[from])
                                 : gw_bf16_to_f32(READS(ushort, table)[from]));
        }
        x[i] = v;
    }
}

/* The first of n rows whose slot is at least `slot`; slots do not fall. */
#define SEEK_SLOT(low, slot)                                                                       \
    for (int high_ = n; low < high_;) {                                                            \
        const int middle = (low + high_) / 2;                                                      \
        if (STEP_SLOT(middle) < (slot)) {                                                          \
            low = middle + 1;                                                                      \
        } else {                                                                                   \
            high_ = middle;                                                                        \
        }                                                                                          \
    }

/* The first, last or mean row of every slot. flags: last, mean. */
KERNEL_OF_ANY_SIZE pool(STEP, IN(in), OUT(out), const int width, const int flags) {
    const int row = GROUP_ID(1), n = step[0];
    int first = 0, end = 0;
    AWAIT;
    if (row >= step[2]) {
        return;
    }
    SEEK_SLOT(first, row)
    SEEK_SLOT(end, row + 1)
    for (int i = ITEM_ID; i < width; i += ITEM_COUNT) {
        float v = READS(float, in)[(size_t)(HAS(0) ? end - 1 : first) * width + i];
        if (HAS(1)) {
            for (int r = first + 1; r < end; r++) {
                v = v + READS(float, in)[(size_t)r * width + i];
            }
            v = v / (float)(end - first);
        }
        WRITES(float, out)[(size_t)row * width + i] = v;
    }
}

/* Rows of gate begin `stride` floats apart, as those of up; a live row has `times` of them, counted
 * from `from` on. flags: up, numbers. Items: blocks of 32. */
KERNEL_OF_ANY_SIZE act(STEP, IN(gate), IN(up), IN(numbers), OUT(out), const int width,
                       const int stride, const int from, const int times, const int kind,
                       const float limit, const float alpha, const int act8, const int flags) {
    const int here = GROUP_ID(1), row = from + here;
    AWAIT;
    if (row >= LIVE * times) {
        return;
    }
    __global const float *gate = READS(float, gate) + (size_t)here * stride;
    __global const float *up = READS(float, up) + (size_t)here * stride;
    const float p = HAS(1) ? READS(float, numbers)[0] : 0.0f;
    const float q = HAS(1) ? READS(float, numbers)[1] : 0.0f;
    const float slope = HAS(1) ? READS(float, numbers)[2] : alpha;
    const float most = HAS(1) ? READS(float, numbers)[3] : limit;
    for (int b = ITEM_ID; b < BLOCKS_OF(width); b += ITEM_COUNT) {
        float v[GW_ACT_BLOCK];
        for (int i = 0; i < min(GW_ACT_BLOCK, width - b * GW_ACT_BLOCK); i++) {
            const int at = b * GW_ACT_BLOCK + i;
            v[i] = gw_act_gate((gw_act_kind)kind, gate[at], most, slope, p, q);
            v[i] = HAS(0) ? v[i] * gw_act_factor((gw_act_kind)kind, up[at], limit) : v[i];
        }
        leave(out_buf + out_off, act8, row, width, b, v);
    }
}

/* flags: gate [n, gates], addend, factor, a factor for each column. Items: blocks of 32. */
KERNEL_OF_ANY_SIZE mix_rows(STEP, IN(in), IN(gate), IN(addend), IN(factor), OUT(out),
                            const int width, const int gates, const int gate_kind,
                            const float scale, const float cap, const int act8, const int flags) {
    const int row = GROUP_ID(1), wide = width / gates;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int b = ITEM_ID; b < BLOCKS_OF(width); b += ITEM_COUNT) {
        float y[GW_ACT_BLOCK];
        for (int i = 0; i < min(GW_ACT_BLOCK, width - b * GW_ACT_BLOCK); i++) {
            const int column = b * GW_ACT_BLOCK + i;
            const size_t at = (size_t)row * width + column;
            float v = READS(float, in)[at];
            v = scale != 0.0f ? v * scale : v;
            if (HAS(0)) {
                const float g = READS(float, gate)[(size_t)row * gates + column / wide];
                v = v * gw_act_gate((gw_act_kind)gate_kind, g, 0.0f, 0.0f, 0.0f, 0.0f);
            }
            v = cap != 0.0f ? gw_softcap(v, cap) : v;
            v = HAS(1) ? READS(float, addend)[at] + v : v;
            y[i] = HAS(2) ? v * READS(float, factor)[HAS(3) ? column : 0] : v;
        }
        leave(out_buf + out_off, act8, row, width, b, y);
    }
}

/* flags: bias, factor, experts given. Items: rows. */
KERNEL_OF_ANY_SIZE route(STEP, IN(logits), IN(bias), IN(factor), IN(given), OUT(out),
                         const int experts, const int used, const int score, const int groups,
                         const int groups_used, const int group_best, const int renorm,
                         const float scale, const float jitter, const int flags) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE || ITEM_ID > 0) {
        return;
    }
    gw_route_args a;
    a.used = used;
    a.score = (gw_score)score;
    a.groups = groups;
    a.groups_used = groups_used;
    a.group_best = group_best;
    a.renorm = renorm;
    a.scale = scale;
    a.jitter = jitter;
    gw_route_row(&a, experts, READS(float, logits) + (size_t)row * experts,
                 HAS(0) ? READS(float, bias) : 0, HAS(1) ? READS(float, factor) : 0,
                 HAS(2) ? READS(float, given) + (size_t)row * used : 0,
                 WRITES(float, out) + (size_t)row * 2 * used);
}

#else

#ifdef GW_ITEM
#define NORM_ITEMS 1
#else
#define NORM_ITEMS TEAM
#define LOCALS(X) X(float, scratch, TEAM)
LOCALS_TYPE
#endif

/* Lane `lane` of the sum over a row of d: of x, or of the squares of x - mean. */
static inline float lane_of(__global const float *x, int d, int lane, int squares, float mean) {
    float sum = 0.0f;
    for (int b = lane; b * GW_ACT_BLOCK < d; b += GW_LANES) {
        float v[GW_ACT_BLOCK];
        for (int i = 0; i < GW_ACT_BLOCK; i++) {
            const int at = b * GW_ACT_BLOCK + i;
            v[i] = at < d ? squares ? x[at] - mean : x[at] : 0.0f;
        }
        sum = sum + (squares ? gw_block_squares(v, GW_ACT_BLOCK) : gw_fold_lanes(v));
    }
    return sum;
}

/* The whole sum, in every item; all items of the group call it together. */
#ifdef GW_ITEM
#define ROW_SUM(x, squares, mean) all_lanes(x, d, squares, mean)
static inline float all_lanes(__global const float *x, int d, int squares, float mean) {
    float lane[GW_LANES];
    for (int i = 0; i < GW_LANES; i++) {
        lane[i] = lane_of(x, d, i, squares, mean);
    }
    return gw_fold_lanes(lane);
}
#else
#define ROW_SUM(x, squares, mean) team_fold(lane_of(x, d, id, squares, mean), scratch, id)
#endif

/* A team, or an item, per row. */
KERNEL(NORM_ITEMS) sparse_glu(STEP, IN(in), OUT(out), const int d, const int kind,
                              const float deviations) {
    const int row = GROUP_ID(1), id = LOCAL_ID;
#ifndef GW_ITEM
    LOCALS_HERE
#endif
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    __global const float *x = READS(float, in) + (size_t)row * 2 * d;
    const float mean = ROW_SUM(x, 0, 0.0f) / (float)d;
    const float r = gw_rms_scale(ROW_SUM(x, 1, mean), d, 0.0f);
    const float cut = mean + deviations * (1.0f / r);
    for (int i = id; i < d; i += NORM_ITEMS) {
        const float v = x[i] - cut;
        const float g = gw_act_gate((gw_act_kind)kind, v < 0.0f ? 0.0f : v, 0.0f, 0.0f, 0.0f, 0.0f);
        WRITES(float, out)[(size_t)row * d + i] =
            g * gw_act_factor((gw_act_kind)kind, x[d + i], 0.0f);
    }
}

/* flags: weight, bias, addend, factor. A team, or an item, per row; a lane has whole blocks. */
KERNEL(NORM_ITEMS) norm_form(STEP, IN(in), IN(weight), IN(bias), IN(addend), IN(factor), OUT(out),
                             const int d, const int layer, const float eps, const int act8,
                             const int flags) {
    const int row = GROUP_ID(1), id = LOCAL_ID;
#ifndef GW_ITEM
    LOCALS_HERE
#endif
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    __global const float *x = READS(float, in) + (size_t)row * d;
    float mean = ROW_SUM(x, 0, 0.0f) / (float)d;
    mean = layer ? mean : 0.0f;
    const float r = gw_rms_scale(ROW_SUM(x, 1, mean), d, eps);
    const int later = act8 && !layer && !HAS(1); /* codes before the row's factor comes to them */
    for (int b = id; b * GW_ACT_BLOCK < d; b += NORM_ITEMS) {
        const int n = min(GW_ACT_BLOCK, d - b * GW_ACT_BLOCK);
        float y[GW_ACT_BLOCK];
        for (int i = 0; i < n; i++) {
            const int at = b * GW_ACT_BLOCK + i;
            const float w = HAS(0) ? READS(float, weight)[at] : 1.0f;
            float v = layer ? (x[at] - mean) * r : x[at] * w;
            if (layer) {
                v = HAS(1) ? fma(v, w, READS(float, bias)[at]) : v * w;
            } else if (!later) {
                v = v * r;
                v = HAS(1) ? v + READS(float, bias)[at] : v;
            }
            v = HAS(2) ? READS(float, addend)[(size_t)row * d + at] + v : v;
            y[i] = HAS(3) ? v * READS(float, factor)[0] : v;
        }
        if (act8) {
            __global gw_act8 *to = WRITES(gw_act8, out) + (size_t)row * (d / GW_ACT_BLOCK) + b;
            item_encode(to, y);
            to->scale = later ? to->scale * r : to->scale;
            continue;
        }
        for (int i = 0; i < n; i++) {
            WRITES(float, out)[(size_t)row * d + b * GW_ACT_BLOCK + i] = y[i];
        }
    }
}

#endif
