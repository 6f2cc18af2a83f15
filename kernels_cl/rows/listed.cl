/* kernels_cl/rows/listed.cl - hyper-connections, ROTATE, GROUP_DOT, compressed caches and attention
 * over lists (docs/arithmetic.md, section 5; core/tensor/area.h).
 *
 * Groups along y are rows of the step, from row0 on where a kernel has scratch. Items share nothing
 * within a launch. flags: which of the buffers that may be missing are there, from the first on.
 */
#define HAS(n) (flags >> (n) & 1)

/* Items: one. */
KERNEL_OF_ANY_SIZE hyper(STEP, IN(in), IN(scale), IN(base), OUT(out), const int width,
                         const int count, const int rounds, const float eps) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row < LIVE && ITEM_ID == 0) {
        gw_hyper_row(count, rounds, eps, width == count, READS(float, in) + (size_t)row * width,
                     READS(float, scale), READS(float, base),
                     WRITES(float, out) + (size_t)row * width);
    }
}

/* Value i of r that rotate, at `from`. */
static inline float turned(__global const float *from, __global const float *angles, int i, int r,
                           int interleaved, int back) {
    const int half_ = r / 2, pair = interleaved ? i / 2 : i % half_;
    const int is_second = interleaved ? i % 2 : i >= half_;
    const float a = from[interleaved ? 2 * pair : pair];
    const float b = from[interleaved ? 2 * pair + 1 : pair + half_];
    const float c = angles[pair], s = back ? -angles[half_ + pair] : angles[half_ + pair];
    return is_second ? gw_rope_second(a, b, c, s) : gw_rope_first(a, b, c, s);
}

/* Items: columns. */
KERNEL_OF_ANY_SIZE rotate_heads(STEP, IN(in), IN(table), OUT(out), const int width,
                                const int heads, const int first, const int r,
                                const int interleaved, const int back) {
    const int row = GROUP_ID(1), e = width / heads;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    __global const float *x = READS(float, in) + (size_t)row * width;
    for (int u = ITEM_ID; u < width; u += ITEM_COUNT) {
        const int i = u % e - first;
        float v = x[u];
        if (i >= 0 && i < r) {
            const int at = STEP_POS(row) - STEP_LESS(row);
            __global const float *angles = READS(float, table) + (size_t)at * r;
            v = turned(x + u - i, angles, i, r, interleaved, back);
        }
        WRITES(float, out)[(size_t)row * width + u] = v;
    }
}

/* Items: groups. */
KERNEL_OF_ANY_SIZE group_dot(STEP, IN(in), IN(other), OUT(out), const int width, const int groups,
                             const float scale, const int root) {
    const int row = GROUP_ID(1), m = width / groups;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int g = ITEM_ID; g < groups; g += ITEM_COUNT) {
        __global const float *x = READS(float, in) + (size_t)row * width + (size_t)g * m;
        __global const float *y = READS(float, other) + (size_t)row * width + (size_t)g * m;
        float lane[GW_LANES];
        for (int i = 0; i < GW_LANES; i++) {
            lane[i] = 0.0f;
            for (int k = i; k < m; k += GW_LANES) {
                lane[i] = fma(x[k], y[k], lane[i]);
            }
        }
        WRITES(float, out)[(size_t)row * groups + g] =
            gw_dot_value(gw_fold_lanes(lane), scale, root);
    }
}

/* ---- areas ----------------------------------------------------------------------------------- */

/* gw_area in pages of page_floats; stride: pages of a slot. */
#define AREA                                                                                       \
    OUT(pages), IN(mapped), const int area_at, const int area_width, const int area_ratio,        \
        const int area_entry, const int page_floats, const int stride
#define AREA_HERE                                                                                  \
    gw_area a;                                                                                     \
    a.at = area_at;                                                                                \
    a.width = area_width;                                                                          \
    a.ratio = area_ratio;                                                                          \
    a.entry = area_entry
#define MAPPED(row) (READS(int, mapped) + (size_t)STEP_SLOT(row) * stride)
#define AREA_AT(table, pos, from)                                                                  \
    (WRITES(float, pages) + (size_t)(table)[(pos) / GW_PAGE] * page_floats + (from))

/* Items: columns. */
KERNEL_OF_ANY_SIZE keep_rows(STEP, AREA, IN(in)) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    AREA_HERE;
    const int pos = STEP_POS(row), width = gw_area_kept(&a);
    __global float *to = AREA_AT(MAPPED(row), pos, gw_area_row(&a, pos));
    for (int i = ITEM_ID; i < width; i += ITEM_COUNT) {
        to[i] = READS(float, in)[(size_t)row * width + i];
    }
}

/* Behind keep_rows: columns of the entry that a row completes, not yet normed. Items: columns. */
KERNEL_OF_ANY_SIZE compress(STEP, AREA, IN(bias), const int series) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    AREA_HERE;
    const int last = STEP_POS(row);
    if ((last + 1) % a.ratio != 0) {
        return;
    }
    __global const int *table = MAPPED(row);
    __global float *to = AREA_AT(table, last, gw_area_entry(&a, last));
    for (int c = ITEM_ID; c < a.entry; c += ITEM_COUNT) {
        to[c] = gw_area_column(&a, series, WRITES(float, pages), (size_t)page_floats, table,
                               READS(float, bias), last, c);
    }
}

/* Behind compress: its norm and rotation. Items: one. flags: a norm. */
KERNEL_OF_ANY_SIZE finish_entry(STEP, AREA, IN(weight), IN(table), const int first, const int r,
                                const int interleaved, const float eps, const int flags) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE || ITEM_ID != 0) {
        return;
    }
    AREA_HERE;
    const int last = STEP_POS(row), e = a.entry, half_ = r / 2;
    if ((last + 1) % a.ratio != 0) {
        return;
    }
    __global float *to = AREA_AT(MAPPED(row), last, gw_area_entry(&a, last));
    float lane[GW_LANES];
    for (int i = 0; i < GW_LANES; i++) {
        lane[i] = 0.0f;
        for (int c = i; c < e; c += GW_LANES) {
            lane[i] = fma(to[c], to[c], lane[i]);
        }
    }
    const float by = gw_rms_scale(gw_fold_lanes(lane), e, eps);
    for (int c = 0; c < e && HAS(0); c++) {
        to[c] = (to[c] * by) * READS(float, weight)[c];
    }
    __global const float *angles = READS(float, table) + (size_t)(last + 1 - a.ratio) * r;
    for (int pair = 0; pair < half_; pair++) {
        const int one = first + (interleaved ? 2 * pair : pair);
        const int two = interleaved ? one + 1 : one + half_;
        const float x = to[one], y = to[two];
        to[one] = gw_rope_first(x, y, angles[pair], angles[half_ + pair]);
        to[two] = gw_rope_second(x, y, angles[pair], angles[half_ + pair]);
    }
}

/* Keys of entries, rows of 2 room words. Items: entries. flags: weights of heads. */
KERNEL_OF_ANY_SIZE score_entries(STEP, AREA, IN(in), IN(by), OUT(keys), const int heads,
                                 const int most, const int room, const int row0,
                                 const int flags) {
    const int here = GROUP_ID(1), row = row0 + here;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    AREA_HERE;
    const int complete = (STEP_POS(row) + 1) / a.ratio;
    __global const int *table = MAPPED(row);
    __global const float *q = READS(float, in) + (size_t)row * heads * a.entry;
    __global const float *own = HAS(0) ? READS(float, by) + (size_t)row * heads : 0;
    for (int k = ITEM_ID; k < complete && complete > most; k += ITEM_COUNT) {
        const int last = gw_area_last(&a, k);
        __global const float *key = AREA_AT(table, last, gw_area_entry(&a, last));
        WRITES(uint, keys)[(size_t)here * 2 * room + k] =
            gw_float_key(gw_area_score(q, own, heads, a.entry, key));
    }
}

/* Of blocks of positions, by each of `heads` heads alone, which are rows of keys. Items: blocks. */
KERNEL_OF_ANY_SIZE score_blocks(STEP, AREA, IN(in), OUT(keys), const int heads, const int block,
                                const int near, const int most, const int room,
                                const int row0) {
    const int here = GROUP_ID(1), row = row0 + here / heads;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    AREA_HERE;
    const int among = gw_choose_among(STEP_POS(row), block, near);
    __global const int *table = MAPPED(row);
    __global const float *q =
        READS(float, in) + ((size_t)row * heads + here % heads) * a.entry;
    for (int k = ITEM_ID; k < among && among > most; k += ITEM_COUNT) {
        WRITES(uint, keys)[(size_t)here * 2 * room + k] = gw_float_key(
            gw_area_block_score(&a, q, WRITES(float, pages), (size_t)page_floats, table,
                                k * block, (k + 1) * block - 1));
    }
}

/* The next launch after score_entries or score_blocks; rows of `lists` lists. Items: one. */
KERNEL_OF_ANY_SIZE choose(STEP, OUT(keys), OUT(out), const int ratio, const int near,
                          const int lists, const int most, const int ties, const int room,
                          const int row0) {
    const int here = GROUP_ID(1), row = row0 + here / lists;
    AWAIT;
    if (row >= LIVE || ITEM_ID != 0) {
        return;
    }
    __global uint *key = WRITES(uint, keys) + (size_t)here * 2 * room;
    const int complete = gw_choose_among(STEP_POS(row), ratio, near);
    const int text = (STEP_LAST(row) + 1) / ratio;
    gw_choose_keys(key, (__global int *)(key + room), complete,
                   gw_choose_whole(ties, complete, text), most,
                   WRITES(float, out) + ((size_t)row * lists + here % lists) * most);
}

/* ---- LISTED ---------------------------------------------------------------------------------- */

#ifdef ATTENTION /* with the format of a cache */

#ifdef Q8
#define LISTED_CELL(cells, is_v, i, j)                                                             \
    (widen_half(((__global const ushort *)((cells) + GW_PAGE * e))[SCALE_AT(is_v, (i) / 32, j,     \
                                                                            e)]) *                 \
     (float)(cells)[CELL_AT(is_v, i, j, e)])
#else
#define LISTED_CELL(cells, is_v, i, j) WIDEN((cells)[CELL_AT(is_v, i, j, e)])
#endif

/* What a row sees: items of the list, then positions. flags: list, 2 area. */
#define LISTED_HERE                                                                                \
    AREA_HERE;                                                                                     \
    const int pos = STEP_POS(row), pages_room = (room + GW_PAGE - 1) / GW_PAGE;                    \
    const gw_seen seen = gw_listed_seen(pos, a.ratio, window, HAS(1), HAS(0) ? most : -1, near);  \
    const int all = seen.listed + pos + 1 - seen.from, count = (all + GW_PAGE - 1) / GW_PAGE;      \
    __global const int *table = MAPPED(row);                                                       \
    __global const float *chosen = READS(float, list) + (size_t)row * lists * most
/* Of item n, for KV head g: an entry of the area (`entry`), or a position of the cache: its page
 * and place. */
#define ITEM_HERE(n)                                                                               \
    __global const float *entry = 0;                                                               \
    int place = seen.from + (n)-seen.listed;                                                       \
    if ((n) < seen.listed) {                                                                       \
        const int element = (n) / seen.each, own = g / (kv_heads / lists) * most + element;        \
        const int of = HAS(0) ? (int)chosen[own] : element;                                        \
        const int last = gw_area_last(&a, of);                                                     \
        place = of * seen.each + (n) % seen.each;                                                  \
        if (HAS(1)) {                                                                              \
            entry = AREA_AT(table, last, gw_area_entry(&a, last));                                 \
            place = 0;                                                                             \
        }                                                                                          \
    }                                                                                              \
    const int page = table[place / GW_PAGE]
/* Of a row and head: room scores or weights, then tops, then sums of pages. */
#define SCORES_AT(h)                                                                               \
    (WRITES(float, scores) + ((size_t)here * heads + (h)) * (room + 2 * pages_room))

/* Items: heads times what is seen. */
KERNEL_OF_ANY_SIZE listed_scores(STEP, AREA, IN(q), OUT(k), IN(list), OUT(scores),
                                 const int heads, const int kv_heads, const int e, const int most,
                                 const int window, const int room, const int row0,
                                 const int near, const int lists, const float scale,
                                 const int flags SPLIT_ARGS) {
    const int here = GROUP_ID(1), row = row0 + here;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    LISTED_HERE;
    for (int u = ITEM_ID; u < heads * all; u += ITEM_COUNT) {
        const int h = u / all, n = u % all, g = h / (heads / kv_heads);
        __global const float *query = READS(float, q) + ((size_t)row * heads + h) * e;
        ITEM_HERE(n);
        __global const CELL *cells = (__global const CELL *)CACHE(k, page, e);
        float s = 0.0f;
        for (int i = 0; i < e; i++) {
            const float x = entry != 0 ? entry[i] : LISTED_CELL(cells, 0, i, place % GW_PAGE);
            s = fma(query[i], x, s);
        }
        SCORES_AT(h)[n] = s * scale;
    }
}

/* Behind listed_scores: weights, and of each page its largest score and the sum of its weights.
 * Items: heads times pages. */
KERNEL_OF_ANY_SIZE listed_weights(STEP, AREA, IN(list), OUT(scores), const int heads,
                                  const int most, const int window, const int room,
                                  const int row0, const int near, const int lists,
                                  const int flags) {
    const int here = GROUP_ID(1), row = row0 + here;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    LISTED_HERE;
    for (int u = ITEM_ID; u < heads * count; u += ITEM_COUNT) {
        const int h = u / count, p = u % count, n = min(all - p * GW_PAGE, GW_PAGE);
        __global float *s = SCORES_AT(h), *own = s + p * GW_PAGE;
        float top = -INFINITY, lane[GW_LANES];
        for (int j = 0; j < n; j++) {
            top = own[j] > top ? own[j] : top;
        }
        for (int j = 0; j < n; j++) {
            own[j] = gw_exp(own[j] - top);
        }
        for (int i = 0; i < GW_LANES; i++) {
            lane[i] = (i < n ? own[i] : 0.0f) + (i + GW_LANES < n ? own[i + GW_LANES] : 0.0f);
        }
        s[room + p] = top;
        s[room + pages_room + p] = gw_fold_lanes(lane);
    }
}

/* Behind listed_weights. Items: columns of heads, ev of each. v: caches of width e; flags: list,
 * area, sinks, 8 caches of keys, whose columns from v_first on are the values. */
KERNEL_OF_ANY_SIZE listed_values(STEP, AREA, OUT(v), IN(list), IN(sinks), OUT(scores), OUT(out),
                                 const int heads, const int kv_heads, const int e, const int ev,
                                 const int v_first, const int most, const int window,
                                 const int room, const int row0, const int near, const int lists,
                                 const int flags SPLIT_ARGS) {
    const int here = GROUP_ID(1), row = row0 + here;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    LISTED_HERE;
    for (int u = ITEM_ID; u < heads * ev; u += ITEM_COUNT) {
        const int h = u / ev, c = v_first + u % ev, g = h / (heads / kv_heads);
        __global const float *weights = SCORES_AT(h), *tops = weights + room;
        const float sink = HAS(2) ? READS(float, sinks)[h] : -INFINITY;
        float best = sink, total = -0.0f, result = -0.0f;
        for (int p = 0; p < count; p++) {
            best = tops[p] > best ? tops[p] : best;
        }
        for (int first = 0; first < count; first += GW_PAGE_GROUP) {
            const int end = min(first + GW_PAGE_GROUP, count);
            float top = -INFINITY, sum = 0.0f, group = 0.0f;
            for (int p = first; p < end; p++) {
                top = tops[p] > top ? tops[p] : top;
            }
            for (int p = first; p < end; p++) {
                const float by = gw_exp(tops[p] - top);
                const int stop = min(all, (p + 1) * GW_PAGE);
                float o = 0.0f;
                for (int n = p * GW_PAGE; n < stop; n++) {
                    ITEM_HERE(n);
                    __global const CELL *cells = (__global const CELL *)CACHE(v, page, e);
                    const float x =
                        entry != 0 ? entry[c] : LISTED_CELL(cells, !HAS(3), c, place % GW_PAGE);
                    o = fma(weights[n], x, o);
                }
                sum = fma(tops[pages_room + p], by, sum);
                group = fma(o, by, group);
            }
            const float by = gw_exp(top - best);
            total = fma(sum, by, total);
            result = fma(group, by, result);
        }
        total = HAS(2) ? total + gw_exp(sink - best) : total;
        WRITES(float, out)[(size_t)row * heads * ev + u] = result / total;
    }
}

#endif
