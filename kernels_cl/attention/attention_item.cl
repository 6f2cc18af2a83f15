/* kernels_cl/attention/attention_item.cl - ATTENTION on processors in two steps: pages on their
 * own, then joined in order.
 */
#ifndef JOIN

#ifdef Q8
#define SCALES(page) ((__global const half *)((page) + GW_PAGE * e))
#define KEYS16(n) (d[n] * convert_float16(vload16(n, column)))
#define VALUES16(j) (vload_half(SCALE_AT(1, i / 32, j, e), SCALES(v)) *                            \
                     convert_float16(vload16(0, v + (j) * e + i)))
#else
#define KEYS16(n) LOAD16(column + 16 * (n))
#define VALUES16(j) LOAD16(v + (j) * e + i)
#endif

/* One head, one page: scores as vectors over positions, values as vectors over the head's width. */
static inline void attend_page(__global const float *q, __global const CELL *k,
                               __global const CELL *v, int e, int from, int end, float scale,
                               __global float *o) {
    float p[GW_PAGE], fold[GW_PAGE];
#ifdef Q8
    float16 d[4]; /* scales of the positions */
#endif
    float16 s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
    for (int i = 0; i < e; i++) {
        __global const CELL *column = k + i * GW_PAGE;
        float16 qi = q[i];
#ifdef Q8
        for (int n = 0; n < 4 && i % 32 == 0; n++) {
            d[n] = vload_half16(n, SCALES(k) + SCALE_AT(0, i / 32, 0, e));
        }
#endif
        s0 = fma(qi, KEYS16(0), s0);
        s1 = fma(qi, KEYS16(1), s1);
        s2 = fma(qi, KEYS16(2), s2);
        s3 = fma(qi, KEYS16(3), s3);
    }
    vstore16(s0 * scale, 0, p);
    vstore16(s1 * scale, 0, p + 16);
    vstore16(s2 * scale, 0, p + 32);
    vstore16(s3 * scale, 0, p + 48);
    float top = -INFINITY;
    for (int j = from; j < end; j++) {
        top = p[j] > top ? p[j] : top;
    }
    for (int j = 0; j < GW_PAGE; j++) {
        p[j] = j >= from && j < end ? gw_exp(p[j] - top) : 0.0f;
        fold[j] = p[j];
    }
    for (int h = GW_PAGE / 2; h > 0; h /= 2) {
        for (int j = 0; j < h; j++) {
            fold[j] = fold[j] + fold[j + h];
        }
    }
    int i = 0;
    for (; i + 16 <= e; i += 16) {
        float16 sum = 0.0f;
        for (int j = from; j < end; j++) {
            sum = fma((float16)p[j], VALUES16(j), sum);
        }
        vstore16(sum, 0, o + i);
    }
#ifndef Q8 /* there e is a multiple of 32 */
    for (; i < e; i++) {
        float sum = 0.0f;
        for (int j = from; j < end; j++) {
            sum = fma(p[j], WIDEN(v[j * e + i]), sum);
        }
        o[i] = sum;
    }
#endif
    o[e] = top;
    o[e + 1] = fold[0];
}

/* Groups: pages in turn, KV heads, rows from row0 on. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attend(STEP, IN(q), OUT(k), OUT(v), IN(pages), OUT(part), const int row0,
                     const int heads, const int kv_heads, const int e, const int page_stride,
                     const float scale, const int window SPLIT_ARGS) {
    const int g = (int)get_group_id(1), row = row0 + (int)get_group_id(2), group = heads / kv_heads;
    if (row >= LIVE) {
        return;
    }
    SPAN;
    for (int p = first + (int)get_group_id(0); p <= last; p += (int)get_num_groups(0)) {
        int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + p];
        __global const CELL *keys = (__global const CELL *)CACHE(k, page, e);
        __global const CELL *values = (__global const CELL *)CACHE(v, page, e);
        int from = max(lo - p * GW_PAGE, 0), end = min(pos - p * GW_PAGE + 1, GW_PAGE);
        for (int h = g * group; h < (g + 1) * group; h++) {
            attend_page(READS(float, q) + ((size_t)row * heads + h) * e, keys, values, e, from,
                        end, scale, PARTIAL(row - row0, h, p));
        }
    }
}

#else

/* Largest maximum of pages first .. last. */
static inline float best_of(__global const float *parts, int first, int last, int e) {
    float best = -INFINITY;
    for (int p = first; p <= last; p++) {
        const float top = parts[(size_t)p * (e + 2) + e];
        best = top > best ? top : best;
    }
    return best;
}

/* Groups: heads, rows from row0 on. ACT8 only when e is a multiple of 32. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attend_join(STEP, OUT(part), OUT(out), const int row0, const int heads, const int e,
                          const int page_stride, const int window) {
    const int h = (int)get_group_id(0), row = row0 + (int)get_group_id(1);
    if (row >= LIVE) {
        return;
    }
    SPAN;
    __global const float *parts = PARTIAL(row - row0, h, 0);
    const float best = best_of(parts, first, last, e);
    float total = -0.0f;
    for (int from = first; from <= last; from += GW_PAGE_GROUP) {
        const int end = min(from + GW_PAGE_GROUP - 1, last);
        const float here = best_of(parts, from, end, e);
        float sum = 0.0f;
        for (int p = from; p <= end; p++) {
            __global const float *o = parts + (size_t)p * (e + 2);
            sum = fma(o[e + 1], gw_exp(o[e] - here), sum);
        }
        total = fma(sum, gw_exp(here - best), total);
    }
    for (int base = 0; base < e; base += GW_ACT_BLOCK) {
        int n = min(GW_ACT_BLOCK, e - base);
        float all[GW_ACT_BLOCK], sum[GW_ACT_BLOCK];
        for (int i = 0; i < n; i++) {
            all[i] = -0.0f;
        }
        for (int from = first; from <= last; from += GW_PAGE_GROUP) {
            const int end = min(from + GW_PAGE_GROUP - 1, last);
            const float here = best_of(parts, from, end, e);
            for (int i = 0; i < n; i++) {
                sum[i] = 0.0f;
            }
            for (int p = from; p <= end; p++) {
                __global const float *o = parts + (size_t)p * (e + 2);
                const float weight = gw_exp(o[e] - here);
                for (int i = 0; i < n; i++) {
                    sum[i] = fma(o[base + i], weight, sum[i]);
                }
            }
            const float weight = gw_exp(here - best);
            for (int i = 0; i < n; i++) {
                all[i] = fma(sum[i], weight, all[i]);
            }
        }
        for (int i = 0; i < n; i++) {
            all[i] = all[i] / total;
        }
        size_t at = ((size_t)row * heads + h) * e + base;
#ifdef ACT8
        item_encode(WRITES(gw_act8, out) + at / GW_ACT_BLOCK, all);
#else
        for (int i = 0; i < n; i++) {
            WRITES(float, out)[at + i] = all[i];
        }
#endif
    }
}

#endif
