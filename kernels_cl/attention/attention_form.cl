/* kernels_cl/attention/attention_form.cl - ATTENTION in every form (docs/arithmetic.md, section 5):
 * values of another width than keys, chunks, capped scores, slopes, biases, sinks, both ways. A
 * team, or an item, has
 * a page of one head; a second launch joins the pages. A partial is ev values, then the page's
 * maximum and its sum. OWN: of each row its own page alone, as a chunk.
 */
#ifdef GW_ITEM
#define ATTEND_ITEMS 1
#define EACH_LANE for (int lane = 0; lane < TEAM; lane++)
#define MEET
#else
#define ATTEND_ITEMS TEAM
#define EACH_LANE
#define MEET barrier(CLK_LOCAL_MEM_FENCE)
#endif

#define FORM_SPAN                                                                                  \
    const int pos = STEP_POS(row), windowed = window > 0 && pos >= window ? pos - window + 1 : 0;  \
    const int chunked = chunk > 0 ? pos - pos % chunk : min(-chunk, pos);                          \
    const int lo = max(windowed, chunked);                                                         \
    const int edge = window > 0 ? pos + window - 1 : INT_MAX;                                      \
    const int high = flags & BOTH ? min(edge, STEP_LAST(row)) : pos;                               \
    const int first = lo / GW_PAGE, last = high / GW_PAGE
#define BOTH 4   /* of flags */
#define WITHIN 8 /* values are columns of the keys from v_first on */
#define FORM_PARTIAL(row_, head, page)                                                             \
    (WRITES(float, part) +                                                                         \
     (((size_t)(row_) * heads + (head)) * PARTS_OF_HEAD + PART_AT(page)) * (ev + 2))

#ifdef JOIN

/* The largest of the maxima of pages [from, end), at least `top`. */
static inline float largest_of(__global const float *parts, int from, int end, int ev, float top) {
    for (int p = from; p < end; p++) {
        const float here = parts[(size_t)p * (ev + 2) + ev];
        top = here > top ? here : top;
    }
    return top;
}

/* Groups: values of a head along x, heads, rows from row0 on. flags: sinks, BOTH. */
KERNEL_OF_ANY_SIZE attend_form_join(STEP, OUT(part), IN(sinks), OUT(out), const int row0,
                                    const int heads, const int ev, const int page_stride,
                                    const int window, const int chunk, const int flags) {
    const int h = GROUP_ID(1), row = row0 + GROUP_ID(2);
    if (row >= LIVE) {
        return;
    }
    FORM_SPAN;
    __global const float *parts = FORM_PARTIAL(row - row0, h, 0);
    const float sink = flags & 1 ? READS(float, sinks)[h] : -INFINITY;
    const float best = largest_of(parts, first, last + 1, ev, sink);
    for (int i = ITEM_ID; i < ev; i += ITEM_COUNT) {
        float total = -0.0f, value = -0.0f;
        for (int from = first; from <= last; from += GW_PAGE_GROUP) {
            const int end = min(from + GW_PAGE_GROUP, last + 1);
            const float top = largest_of(parts, from, end, ev, -INFINITY);
            float sum = 0.0f, o = 0.0f;
            for (int p = from; p < end; p++) {
                __global const float *page = parts + (size_t)p * (ev + 2);
                const float weight = gw_exp(page[ev] - top);
                sum = fma(page[ev + 1], weight, sum);
                o = fma(page[i], weight, o);
            }
            const float weight = gw_exp(top - best);
            total = fma(sum, weight, total);
            value = fma(o, weight, value);
        }
        total = flags & 1 ? total + gw_exp(sink - best) : total;
        WRITES(float, out)[((size_t)row * heads + h) * ev + i] = value / total;
    }
}

#else

#ifndef GW_ITEM
#define LOCALS(X) X(float, weights, GW_PAGE) X(float, scratch, TEAM)
LOCALS_TYPE
#endif

/* Groups: pages in turn, heads, rows from row0 on. flags: slopes, 2 bias, BOTH,
 * WITHIN. */
KERNEL(ATTEND_ITEMS)
attend_form(STEP, IN(q), OUT(k), OUT(v), IN(pages), IN(slopes), IN(bias), OUT(part),
            const int row0, const int heads, const int kv_heads, const int e, const int ev,
            const int page_stride, const float scale, const int window, const int chunk,
            const float softcap, const int reach, const int flags,
            const int v_first SPLIT_ARGS) {
    const int h = GROUP_ID(1), row = row0 + GROUP_ID(2), g = h / (heads / kv_heads);
#ifdef GW_ITEM
    float weights[GW_PAGE];
#else
    LOCALS_HERE
    const int id = LOCAL_ID, lane = id;
#endif
    if (row >= LIVE) {
        return;
    }
    FORM_SPAN;
    __global const float *query = READS(float, q) + ((size_t)row * heads + h) * e;
    const float slope = flags & 1 ? READS(float, slopes)[h] : 0.0f;
    for (int p = first + GROUP_ID(0); p <= last; p += GROUP_COUNT(0)) {
        const int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + p];
        const int base = p * GW_PAGE, from = max(lo - base, 0), end = min(high - base + 1, GW_PAGE);
        __global const CELL *keys = (__global const CELL *)CACHE(k, page, e);
        __global const CELL *values = (__global const CELL *)CACHE(v, page, ev);
        __global float *to = FORM_PARTIAL(row - row0, h, p);
        MEET; /* weights of the page before are read */
        EACH_LANE {
            for (int j = lane; j < GW_PAGE; j += TEAM) {
                float s = 0.0f;
                for (int i = 0; i < e; i++) {
                    s = fma(query[i], CACHED_VALUE(keys, 0, i, j, e), s);
                }
                s = s * scale;
                s = softcap != 0.0f ? gw_softcap(s, softcap) : s;
                const int behind = base + j - pos;
                s = flags & 1 ? fma(slope, -fabs((float)behind), s) : s;
                s = flags & 2 ? s + READS(float, bias)[(size_t)h * (2 * reach + 1) + reach +
                                                       clamp(behind, -reach, reach)]
                              : s;
                weights[j] = s;
            }
        }
        MEET;
        float top = -INFINITY;
        for (int j = from; j < end; j++) {
            top = weights[j] > top ? weights[j] : top;
        }
        MEET;
        EACH_LANE {
            for (int j = lane; j < GW_PAGE; j += TEAM) {
                weights[j] = j >= from && j < end ? gw_exp(weights[j] - top) : 0.0f;
            }
        }
        MEET;
#ifdef GW_ITEM
        float half_[TEAM];
        EACH_LANE {
            half_[lane] = weights[lane] + weights[lane + TEAM];
        }
        const float sum = gw_fold_lanes(half_);
#else
        const float sum = team_fold(weights[lane] + weights[lane + TEAM], scratch, id);
#endif
        EACH_LANE {
            for (int i = lane; i < ev; i += TEAM) {
                float o = 0.0f;
                for (int j = from; j < end; j++) {
                    const float value = flags & WITHIN ? CACHED_VALUE(keys, 0, v_first + i, j, e)
                                                       : CACHED_VALUE(values, 1, i, j, ev);
                    o = fma(weights[j], value, o);
                }
                to[i] = o;
            }
            if (lane == 0) {
                to[ev] = top;
                to[ev + 1] = sum;
            }
        }
    }
}

#endif
