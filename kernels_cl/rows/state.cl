/* kernels_cl/rows/state.cl - CONV, SCAN, EXP_GATES, DIVIDE, GROUP_NORM, HEADS and COLUMNS
 * (docs/arithmetic.md, section 5). flags: which of the buffers that may be missing are there, from
 * the first on.
 *
 * Groups along y are rows of the step; CONV and SCAN do whole sequences, in the group of their
 * first row. Items share nothing.
 */
#define HAS(n) (flags >> (n) & 1)

/* j: the next row of row i's sequence, or live. */
#define NEXT_ROW(j, i)                                                                             \
    j = (i) + 1;                                                                                   \
    while (j < live && STEP_SLOT(j) != STEP_SLOT(i)) {                                             \
        j++;                                                                                       \
    }
/* n: rows of the sequence of row i from there on; 0 when an earlier one is of it too. */
#define COUNT_ROWS(n, i)                                                                           \
    n = 0;                                                                                         \
    for (int j = 0; j < live; j++) {                                                               \
        n += STEP_SLOT(j) == STEP_SLOT(i);                                                         \
    }                                                                                              \
    for (int j = 0; j < (i); j++) {                                                                \
        n = STEP_SLOT(j) == STEP_SLOT(i) ? 0 : n;                                                  \
    }
/* Where the state before position pos of row i's sequence begins. */
#define ENTRY(i, pos, width) (((size_t)STEP_SLOT(i) * entries + (pos) % entries) * (width))

/* Items: columns. flags: bias. */
KERNEL_OF_ANY_SIZE conv(STEP, IN(in), OUT(state), IN(w), IN(bias), OUT(out), const int width,
                        const int taps, const int apart, const int entries, const int kind,
                        const int flags) {
    const int first = GROUP_ID(1), live = LIVE, before = (taps - 1) * apart;
    AWAIT;
    if (first >= live) {
        return;
    }
    int rows;
    COUNT_ROWS(rows, first);
    __global float *known = WRITES(float, state);
    for (int c = ITEM_ID; c < width && rows > 0; c += ITEM_COUNT) {
        float x[16];
        const size_t from = ENTRY(first, STEP_POS(first), before * width);
        for (int t = 0; t < before; t++) {
            x[t] = STEP_POS(first) > 0 ? known[from + (size_t)t * width + c] : 0.0f;
        }
        int left = rows;
        for (int i = first; i < live;) {
            float sum = 0.0f;
            x[before] = READS(float, in)[(size_t)i * width + c];
            for (int t = 0; t < taps; t++) {
                sum = fma(READS(float, w)[(size_t)c * taps + t], x[t * apart], sum);
            }
            sum = HAS(0) ? sum + READS(float, bias)[c] : sum;
            WRITES(float, out)[(size_t)i * width + c] =
                gw_act_gate((gw_act_kind)kind, sum, 0.0f, 0.0f, 0.0f, 0.0f);
            left--;
            const size_t to = ENTRY(i, STEP_POS(i) + 1, before * width);
            for (int t = 0; t < before; t++) {
                x[t] = x[t + 1];
                if (left < entries - 1) {
                    known[to + (size_t)t * width + c] = x[t];
                }
            }
            int next;
            NEXT_ROW(next, i);
            i = next;
        }
    }
}

/* gw_fold_lanes of the chains of squares of n values. */
static inline float square_lanes(__global const float *x, int n) {
    float lane[GW_LANES];
    for (int i = 0; i < GW_LANES; i++) {
        lane[i] = 0.0f;
        for (int k = i; k < n; k += GW_LANES) {
            lane[i] = fma(x[k], x[k], lane[i]);
        }
    }
    return gw_fold_lanes(lane);
}

/* A step of SSM; NaN stays NaN. */
static inline float within(float t, float low, float high) {
    return t < low ? low : t > high ? high : t;
}

/* What SCAN takes of every row: [q g*k | k g*k | decays h*n | strengths h], n decays of a head.
 * Items: groups of q, groups of k, heads. flags: bias, both logits side by side, decays as they
 * are. */
KERNEL_OF_ANY_SIZE scan_prepare(STEP, IN(in), IN(decay), IN(beta), IN(a), IN(bias), OUT(out),
                                const int delta, const int heads, const int groups,
                                const int keys, const int values, const int decays,
                                const float eps, const float q_scale, const float k_scale,
                                const float low, const float high, const int flags) {
    const int row = GROUP_ID(1), all = groups * keys;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    __global const float *x = READS(float, in) + (size_t)row * (heads * values + 2 * all);
    __global float *to = WRITES(float, out) + (size_t)row * (2 * all + heads * (decays + 1));
    for (int u = ITEM_ID; u < 2 * groups + heads; u += ITEM_COUNT) {
        if (u < 2 * groups) { /* of SSM b comes first, which is the key */
            const int is_k = u >= groups, g = is_k ? u - groups : u;
            const int at = delta ? (is_k ? all : 0) : heads * values + (is_k ? 0 : all);
            __global const float *from = x + at + g * keys;
            const float r = delta ? gw_rms_scale(square_lanes(from, keys), keys, eps) : 1.0f;
            for (int j = 0; j < keys; j++) {
                to[(is_k ? all : 0) + g * keys + j] =
                    delta ? (from[j] * r) * (is_k ? k_scale : q_scale) : from[j];
            }
            continue;
        }
        const int h = u - 2 * groups, wide = HAS(1) ? 2 * heads : heads * decays;
        __global const float *logits = READS(float, decay) + (size_t)row * wide;
        __global float *d = to + 2 * all;
        if (HAS(2)) {
            d[h] = logits[h];
            d[heads + h] = 1.0f;
            continue;
        }
        for (int j = h * decays; j < (h + 1) * decays; j++) {
            const float v = HAS(0) ? logits[j] + READS(float, bias)[j] : logits[j];
            if (delta) {
                d[j] = gw_delta_decay(READS(float, a)[h], v, low);
            } else {
                const float t = within(gw_softplus(v), low, high);
                d[heads * decays + h] = t;
                d[j] = gw_exp(t * READS(float, a)[h]);
            }
        }
        if (delta) {
            const size_t own = (size_t)row * heads + h;
            const float b = HAS(1) ? logits[heads + h] : READS(float, beta)[own];
            d[heads * decays + h] = gw_sigmoid(b);
        }
    }
}

/* Items: columns of heads. A row that leaves no entry works in the last one's. flags: skip. */
KERNEL_OF_ANY_SIZE scan(STEP, IN(in), IN(made), OUT(state), IN(skip), OUT(out), const int delta,
                        const int heads, const int groups, const int keys, const int values,
                        const int decays, const int tiled, const int entries, const int flags) {
    const int first = GROUP_ID(1), live = LIVE, all = groups * keys, wide = heads * values;
    AWAIT;
    if (first >= live) {
        return;
    }
    int rows;
    COUNT_ROWS(rows, first);
    for (int at = ITEM_ID; at < wide && rows > 0; at += ITEM_COUNT) {
        const int h = at / values, g = tiled ? h % groups : h / (heads / groups);
        const size_t width = (size_t)wide * keys;
        const size_t inside = (size_t)h * keys * values + at % values;
        __global float *known = WRITES(float, state) + inside;
        const int start = STEP_POS(first);
        __global float *working = known + ENTRY(first, start + rows, width);
        __global float *from = known + ENTRY(first, start, width);
        int left = rows, empty = start == 0;
        for (int i = first; i < live;) {
            __global const float *q =
                READS(float, made) + (size_t)i * (2 * all + heads * (decays + 1)) + g * keys;
            __global const float *k = q + all, *d = q - g * keys + 2 * all + h * decays;
            const float strength = q[2 * all - g * keys + heads * decays + h];
            const float x = READS(float, in)[(size_t)i * (wide + 2 * all) +
                                             (delta ? 2 * all : 0) + at];
            left--;
            __global float *to =
                left < entries - 1 ? known + ENTRY(i, STEP_POS(i) + 1, width) : working;
            float sum = 0.0f, y = 0.0f;
            for (int j = 0; delta && j < keys; j++) {
                const float m = empty ? 0.0f : from[(size_t)j * values];
                sum = fma(k[j], m * d[decays > 1 ? j : 0], sum);
            }
            const float u = delta ? (x - sum) * strength : strength * x;
            for (int j = 0; j < keys; j++) {
                float m = empty ? 0.0f : from[(size_t)j * values];
                m = fma(k[j], u, m * d[decays > 1 ? j : 0]);
                to[(size_t)j * values] = m;
                y = fma(q[j], m, y);
            }
            WRITES(float, out)[(size_t)i * wide + at] =
                delta ? y : fma(HAS(0) ? READS(float, skip)[h] : 0.0f, x, y);
            from = to;
            empty = 0;
            int next;
            NEXT_ROW(next, i);
            i = next;
        }
    }
}

/* SCAN of SSM by channel. Items: columns of heads. flags: bias. */
KERNEL_OF_ANY_SIZE scan_channels(STEP, IN(in), IN(decay), IN(a), IN(bias), IN(skip), OUT(state),
                                 OUT(out), const int heads, const int groups, const int keys,
                                 const int values, const int tiled, const int entries,
                                 const float low, const float high, const int flags) {
    const int first = GROUP_ID(1), live = LIVE, all = groups * keys, wide = heads * values;
    AWAIT;
    if (first >= live) {
        return;
    }
    int rows;
    COUNT_ROWS(rows, first);
    for (int at = ITEM_ID; at < wide && rows > 0; at += ITEM_COUNT) {
        const int h = at / values, g = tiled ? h % groups : h / (heads / groups);
        const size_t width = (size_t)wide * keys;
        const size_t inside = (size_t)h * keys * values + at % values;
        __global const float *own = READS(float, a) + (size_t)at * keys;
        __global float *known = WRITES(float, state) + inside;
        const int start = STEP_POS(first);
        __global float *working = known + ENTRY(first, start + rows, width);
        __global float *from = known + ENTRY(first, start, width);
        int left = rows, empty = start == 0;
        for (int i = first; i < live;) {
            __global const float *row = READS(float, in) + (size_t)i * (wide + 2 * all);
            __global const float *k = row + wide + g * keys, *q = k + all;
            const float logit = READS(float, decay)[(size_t)i * wide + at], x = row[at];
            const float sum = HAS(0) ? logit + READS(float, bias)[at] : logit;
            const float t = within(gw_softplus(sum), low, high);
            left--;
            __global float *to =
                left < entries - 1 ? known + ENTRY(i, STEP_POS(i) + 1, width) : working;
            const float u = t * x;
            float y = 0.0f;
            for (int j = 0; j < keys; j++) {
                float m = empty ? 0.0f : from[(size_t)j * values];
                m = fma(k[j], u, m * gw_exp(t * own[j]));
                to[(size_t)j * values] = m;
                y = fma(q[j], m, y);
            }
            WRITES(float, out)[(size_t)i * wide + at] = fma(READS(float, skip)[at], x, y);
            from = to;
            empty = 0;
            int next;
            NEXT_ROW(next, i);
            i = next;
        }
    }
}

/* SCAN of WKV: in is [r | k | v | e]. Items: columns of heads. */
KERNEL_OF_ANY_SIZE scan_wkv(STEP, IN(in), IN(decay), IN(back), OUT(state), OUT(out),
                            const int heads, const int keys, const int values, const int entries,
                            const float base, const float scale) {
    const int first = GROUP_ID(1), live = LIVE, all = heads * keys, wide = heads * values;
    AWAIT;
    if (first >= live) {
        return;
    }
    int rows;
    COUNT_ROWS(rows, first);
    for (int at = ITEM_ID; at < wide && rows > 0; at += ITEM_COUNT) {
        const int h = at / values;
        const size_t width = (size_t)wide * keys;
        const size_t inside = (size_t)h * keys * values + at % values;
        __global float *known = WRITES(float, state) + inside;
        const int start = STEP_POS(first);
        __global float *working = known + ENTRY(first, start + rows, width);
        __global float *from = known + ENTRY(first, start, width);
        int left = rows, empty = start == 0;
        for (int i = first; i < live;) {
            __global const float *r = READS(float, in) + (size_t)i * (3 * all + wide) + h * keys;
            __global const float *k = r + all, *e = r + 2 * all + wide;
            __global const float *d = READS(float, decay) + (size_t)i * all + h * keys;
            __global const float *b = READS(float, back) + (size_t)i * all + h * keys;
            const float v = READS(float, in)[(size_t)i * (3 * all + wide) + 2 * all + at];
            left--;
            __global float *to =
                left < entries - 1 ? known + ENTRY(i, STEP_POS(i) + 1, width) : working;
            float sum = 0.0f, y = 0.0f;
            for (int j = 0; j < keys; j++) {
                sum = fma(e[j] * scale, empty ? 0.0f : from[(size_t)j * values], sum);
            }
            for (int j = 0; j < keys; j++) {
                float m = empty ? 0.0f : from[(size_t)j * values];
                m = fma((e[j] * scale) * b[j], -sum, m * gw_exp(base * d[j]));
                m = fma(k[j], v, m);
                to[(size_t)j * values] = m;
                y = fma(r[j], m, y);
            }
            WRITES(float, out)[(size_t)i * wide + at] = y;
            from = to;
            empty = 0;
            int next;
            NEXT_ROW(next, i);
            i = next;
        }
    }
}

/* Items: heads. in: [write | forget], out: [decay | write | floor]. */
KERNEL_OF_ANY_SIZE exp_gates(STEP, IN(in), OUT(state), OUT(out), const int heads,
                             const int entries) {
    const int first = GROUP_ID(1), live = LIVE;
    AWAIT;
    if (first >= live) {
        return;
    }
    int rows;
    COUNT_ROWS(rows, first);
    __global float *known = WRITES(float, state);
    for (int h = ITEM_ID; h < heads && rows > 0; h += ITEM_COUNT) {
        const int start = STEP_POS(first);
        float m = start > 0 ? known[ENTRY(first, start, heads) + h] : 0.0f;
        int left = rows;
        for (int i = first; i < live;) {
            __global const float *x = READS(float, in) + (size_t)i * 2 * heads + h;
            __global float *y = WRITES(float, out) + (size_t)i * 3 * heads + h;
            const float write = x[0], kept = gw_log_kept(m, x[heads]);
            m = kept < write ? write : kept;
            y[0] = gw_exp(kept - m);
            y[heads] = gw_exp(write - m);
            y[2 * heads] = gw_exp(-m);
            left--;
            if (left < entries - 1) {
                known[ENTRY(i, STEP_POS(i) + 1, heads) + h] = m;
            }
            int next;
            NEXT_ROW(next, i);
            i = next;
        }
    }
}

/* Items: columns. */
KERNEL_OF_ANY_SIZE divide(STEP, IN(in), IN(by), IN(least), OUT(out), const int width,
                          const int columns, const float eps) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int i = ITEM_ID; i < width; i += ITEM_COUNT) {
        const size_t at = (size_t)row * width + i;
        const size_t own = (size_t)row * columns + i / (width / columns);
        WRITES(float, out)[at] = gw_divided(READS(float, in)[at], READS(float, by)[own],
                                            READS(float, least)[own], eps);
    }
}

/* gw_fold_lanes of n values, divided by n. */
static inline float group_mean(__global const float *x, int n) {
    float lane[GW_LANES];
    for (int i = 0; i < GW_LANES; i++) {
        lane[i] = 0.0f;
        for (int k = i; k < n; k += GW_LANES) {
            lane[i] = lane[i] + x[k];
        }
    }
    return gw_fold_lanes(lane) / (float)n;
}

/* The sums of squares of a row's groups, [row, group, lane]; gated: x times act(gate) counts.
 * Items: lanes of groups. flags: gate, centered. */
KERNEL_OF_ANY_SIZE group_lanes(STEP, IN(in), IN(gate), OUT(out), const int width,
                               const int groups, const int kind, const int gated,
                               const int flags) {
    const int row = GROUP_ID(1), e = width / groups;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int u = ITEM_ID; u < groups * GW_LANES; u += ITEM_COUNT) {
        const size_t base = (size_t)row * width + (u / GW_LANES) * e;
        const float mean = HAS(1) ? group_mean(READS(float, in) + base, e) : 0.0f;
        float sum = 0.0f;
        for (int i = u % GW_LANES; i < e; i += GW_LANES) {
            float v = READS(float, in)[base + i];
            v = HAS(1) ? v - mean : v;
            v = HAS(0) && gated ? v * gw_act_gate((gw_act_kind)kind, READS(float, gate)[base + i],
                                                  0.0f, 0.0f, 0.0f, 0.0f)
                                : v;
            sum = fma(v, v, sum);
        }
        WRITES(float, out)[(size_t)row * groups * GW_LANES + u] = sum;
    }
}

/* Items: blocks of 32 columns of a group. flags: gate, weight; the third: what groups are
 * divided by alone, [row, group]; centered; bias. */
KERNEL_OF_ANY_SIZE group_norm(STEP, IN(in), IN(gate), IN(weight), IN(bias), IN(lanes), OUT(out),
                              const int width, const int groups, const int kind, const int gated,
                              const int wide, const float eps, const int flags) {
    const int row = GROUP_ID(1), e = width / groups, blocks = (e + GW_LANES - 1) / GW_LANES;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int u = ITEM_ID; u < groups * blocks; u += ITEM_COUNT) {
        const int g = u / blocks, at = u % blocks * GW_LANES;
        float lane[GW_LANES];
        for (int i = 0; i < GW_LANES; i++) {
            lane[i] = READS(float, lanes)[((size_t)row * groups + g) * GW_LANES + i];
        }
        const float r = gw_rms_scale(gw_fold_lanes(lane), e, eps);
        if (HAS(2)) {
            if (at == 0) {
                WRITES(float, out)[(size_t)row * groups + g] = 1.0f / r;
            }
            continue;
        }
        const float mean =
            HAS(3) ? group_mean(READS(float, in) + (size_t)row * width + g * e, e) : 0.0f;
        for (int i = at; i < min(at + GW_LANES, e); i++) {
            const int c = g * e + i;
            const size_t place = (size_t)row * width + c;
            float v = READS(float, in)[place];
            v = HAS(3) ? v - mean : v;
            const float by = HAS(0) ? gw_act_gate((gw_act_kind)kind, READS(float, gate)[place],
                                                  0.0f, 0.0f, 0.0f, 0.0f)
                                    : 1.0f;
            v = HAS(0) && gated ? v * by : v;
            v = (v * r) * (HAS(1) ? READS(float, weight)[c % wide] : 1.0f);
            v = HAS(4) ? v + READS(float, bias)[c] : v;
            WRITES(float, out)[place] = HAS(0) && !gated ? v * by : v;
        }
    }
}

static inline float element(__global const uchar *w, int kind, size_t i) {
    return kind == 0   ? ((__global const float *)w)[i]
           : kind == 1 ? gw_f16_to_f32(((__global const ushort *)w)[i])
                       : gw_bf16_to_f32(((__global const ushort *)w)[i]);
}

/* Rows [first, first + rows) of the matrix are in this buffer. kind: of its elements; 0: f32, 1:
 * f16, 2: bf16. Items: columns of the result. */
KERNEL_OF_ANY_SIZE heads(STEP, IN(in), IN(w), OUT(out), const int count, const int e, const int m,
                         const int k, const int begin, const int pass_first, const int pass,
                         const int first, const int rows, const int kind) {
    const int row = GROUP_ID(1), wide = pass + m;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int u = ITEM_ID; u < count * wide; u += ITEM_COUNT) {
        const int h = u / wide, at = u % wide;
        __global const float *x = READS(float, in) + ((size_t)row * count + h) * e;
        __global float *y = WRITES(float, out) + (size_t)row * count * wide + u;
        if (at < pass) {
            *y = x[pass_first + at];
            continue;
        }
        const int r = h * m + at - pass - first;
        if (r < 0 || r >= rows) {
            continue;
        }
        float lane[GW_LANES];
        for (int i = 0; i < GW_LANES; i++) {
            lane[i] = 0.0f;
            for (int c = i; c < k; c += GW_LANES) {
                lane[i] = fma(element(w_buf + w_off, kind, (size_t)r * k + c), x[begin + c],
                              lane[i]);
            }
        }
        *y = gw_join_lanes(lane);
    }
}

/* Items: columns of all streams. flags: coefficients, base. */
KERNEL_OF_ANY_SIZE streams(STEP, IN(in), IN(coef), IN(base), OUT(out), const int m,
                           const int count, const int inputs, const int from, const float plus,
                           const int flags) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int u = ITEM_ID; u < count * m; u += ITEM_COUNT) {
        const int s = u / m;
        const size_t place = (size_t)row * count * m + u;
        float y = HAS(1) ? READS(float, base)[place] : 0.0f;
        for (int j = 0; j < inputs && s >= from; j++) {
            const float c =
                HAS(0) ? READS(float, coef)[((size_t)row * count + s) * inputs + j] : 0.0f;
            y = y + (c + plus) * READS(float, in)[((size_t)row * inputs + j) * m + u % m];
        }
        WRITES(float, out)[place] = y;
    }
}

/* Columns [from, from + n) of rows of `width` to columns [at, at + n) of rows of `wide`. */
KERNEL_OF_ANY_SIZE columns(STEP, IN(in), OUT(out), const int width, const int from, const int n,
                           const int wide, const int at) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int i = ITEM_ID; i < n; i += ITEM_COUNT) {
        WRITES(float, out)[(size_t)row * wide + at + i] =
            READS(float, in)[(size_t)row * width + from + i];
    }
}

/* Of each head of k columns the first m, or all and zeros up to m. Items: columns of the result. */
KERNEL_OF_ANY_SIZE widen_heads(STEP, IN(in), OUT(out), const int heads, const int k, const int m) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int u = ITEM_ID; u < heads * m; u += ITEM_COUNT) {
        const int h = u / m, i = u % m;
        const float v = i < k ? READS(float, in)[((size_t)row * heads + h) * k + i] : 0.0f;
        WRITES(float, out)[(size_t)row * heads * m + u] = v;
    }
}
