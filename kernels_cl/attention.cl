/* kernels_cl/attention.cl - ROPE_KV, and ATTENTION in two steps: pages on their own, then joined in
 * order (docs/arithmetic.md, section 5).
 *
 * HALF: caches hold f16. A partial is e values o, then the page's maximum m and its sum l.
 */
#ifdef HALF
#define CELL ushort
#define WIDEN(x) gw_f16_to_f32(x)
#define NARROW(x) gw_f32_to_f16(x)
#define LOAD16(p) vload_half16(0, (__global const half *)(p))
#else
#define CELL float
#define WIDEN(x) (x)
#define NARROW(x) (x)
#define LOAD16(p) vload16(0, p)
#endif

#ifdef ROPE_KV
/* ---- ROPE_KV: one group per row and head of q, k and v --------------------------------------- */

#ifdef GW_ITEM
#define ROPE_STEP 1
__attribute__((reqd_work_group_size(1, 1, 1)))
#else
#define ROPE_STEP TEAM
__attribute__((reqd_work_group_size(TEAM, 1, 1)))
#endif
__kernel void rope_kv(STEP, IN(in), OUT(k), OUT(v), IN(pages), IN(q_norm), IN(k_norm), IN(table),
                      OUT(out), const int heads, const int kv_heads, const int e, const int r,
                      const int interleaved, const int normed, const float eps,
                      const int page_stride) {
#ifndef GW_ITEM
    __local float scratch[TEAM];
#endif
    const int h = (int)get_group_id(0), row = (int)get_group_id(1), id = (int)get_local_id(0);
    if (row >= LIVE) {
        return;
    }
    __global const float *x = READS(float, in) + ((size_t)row * (heads + 2 * kv_heads) + h) * e;
    float scale = 1.0f;
#ifndef GW_ITEM /* always: a barrier is no place to differ in */
    float sum = 0.0f;
    for (int base = 0; base < e; base += TEAM) {
        float v = base + id < e ? x[base + id] : 0.0f; /* lanes beyond the end add +0 */
        sum = fma(v, v, sum);
    }
    scale = gw_rms_scale(team_fold(sum, scratch, id), e, eps);
#endif
    const int pos = STEP_POS(row), is_q = h < heads, is_v = h >= heads + kv_heads;
    const int g = is_v ? h - heads - kv_heads : h - heads;
    __global const float *weight = is_q ? READS(float, q_norm) : READS(float, k_norm);
    const int norm = !is_v && (normed & (is_q ? 1 : 2));
#ifdef GW_ITEM
    if (norm) {
        float lane[GW_LANES];
        for (int i = 0; i < GW_LANES; i++) {
            lane[i] = 0.0f;
        }
        for (int i = 0; i < e; i++) {
            lane[i % GW_LANES] = fma(x[i], x[i], lane[i % GW_LANES]);
        }
        scale = gw_rms_scale(gw_join_lanes(lane), e, eps);
    }
#endif
    __global CELL *cache = 0;
    if (!is_q) {
        int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + pos / GW_PAGE];
        size_t at = ((size_t)page * kv_heads + g) * GW_PAGE * e;
        cache = is_v ? WRITES(CELL, v) + at + (size_t)(pos % GW_PAGE) * e
                     : WRITES(CELL, k) + at + pos % GW_PAGE;
    }
    __global float *y = WRITES(float, out) + ((size_t)row * heads + h) * e;
    __global const float *angle = READS(float, table) + (size_t)pos * r;
    const int turned = is_v ? 0 : r, apart = is_v ? 1 : GW_PAGE;
#define NORMED(i) (norm ? (x[i] * scale) * weight[i] : x[i])
#define PUT(i, value)                                                                              \
    do {                                                                                           \
        float put_ = (value);                                                                      \
        if (is_q) {                                                                                \
            y[i] = put_;                                                                           \
        } else {                                                                                   \
            cache[(i) * apart] = NARROW(put_);                                                     \
        }                                                                                          \
    } while (0)
    for (int base = 0; base < turned / 2; base += ROPE_STEP) {
        const int i = base + again(id);
        if (i >= turned / 2) {
            continue;
        }
        int at = interleaved ? 2 * i : i, to = interleaved ? at + 1 : at + r / 2;
        float a = NORMED(at), b = NORMED(to), c = angle[i], s = angle[r / 2 + i];
        PUT(at, gw_rope_first(a, b, c, s));
        PUT(to, gw_rope_second(a, b, c, s));
    }
    for (int base = turned; base < e; base += ROPE_STEP) {
        const int i = base + again(id);
        if (i < e) {
            PUT(i, NORMED(i));
        }
    }
}

#else
/* ---- ATTENTION ------------------------------------------------------------------------------- */

#define SPAN                                                                                       \
    const int pos = STEP_POS(row);                                                                 \
    const int lo = window > 0 && pos >= window ? pos - window + 1 : 0;                             \
    const int first = lo / GW_PAGE, last = pos / GW_PAGE

#define PARTIAL(row_, head, page)                                                                  \
    (WRITES(float, part) + (((size_t)(row_) * heads + (head)) * page_stride + (page)) * (e + 2))

#if defined(GW_ITEM) && !defined(JOIN)

/* One head, one page: scores as vectors over positions, values as vectors over the head's width. */
static inline void attend_page(__global const float *q, __global const CELL *k,
                               __global const CELL *v, int e, int from, int end, float scale,
                               __global float *o) {
    float p[GW_PAGE], fold[GW_PAGE];
    float16 s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
    for (int i = 0; i < e; i++) {
        __global const CELL *column = k + i * GW_PAGE;
        float16 qi = q[i];
        s0 = fma(qi, LOAD16(column), s0);
        s1 = fma(qi, LOAD16(column + 16), s1);
        s2 = fma(qi, LOAD16(column + 32), s2);
        s3 = fma(qi, LOAD16(column + 48), s3);
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
            sum = fma((float16)p[j], LOAD16(v + j * e + i), sum);
        }
        vstore16(sum, 0, o + i);
    }
    for (; i < e; i++) {
        float sum = 0.0f;
        for (int j = from; j < end; j++) {
            sum = fma(p[j], WIDEN(v[j * e + i]), sum);
        }
        o[i] = sum;
    }
    o[e] = top;
    o[e + 1] = fold[0];
}

/* Groups: pages (several each), KV heads, rows from row0 on. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attend(STEP, IN(q), IN(k), IN(v), IN(pages), OUT(part), const int row0,
                     const int heads, const int kv_heads, const int e, const int page_stride,
                     const float scale, const int window, const int each) {
    const int g = (int)get_group_id(1), row = row0 + (int)get_group_id(2), group = heads / kv_heads;
    if (row >= LIVE) {
        return;
    }
    SPAN;
    const int page0 = max((int)get_group_id(0) * each, first);
    const int stop = min((int)get_group_id(0) * each + each, last + 1);
    for (int p = page0; p < stop; p++) {
        int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + p];
        size_t at = ((size_t)page * kv_heads + g) * GW_PAGE * e;
        int from = max(lo - p * GW_PAGE, 0), end = min(pos - p * GW_PAGE + 1, GW_PAGE);
        for (int h = g * group; h < (g + 1) * group; h++) {
            attend_page(READS(float, q) + ((size_t)row * heads + h) * e, READS(CELL, k) + at,
                        READS(CELL, v) + at, e, from, end, scale, PARTIAL(row - row0, h, p));
        }
    }
}

#elif defined(GW_ITEM)

/* Groups: heads, rows from row0 on. ACT8 only when e is a multiple of 32. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attend_join(STEP, OUT(part), OUT(out), const int row0, const int heads, const int e,
                          const int page_stride, const int window) {
    const int h = (int)get_group_id(0), row = row0 + (int)get_group_id(1);
    if (row >= LIVE) {
        return;
    }
    SPAN;
    float best = -INFINITY, total = 0.0f;
    for (int p = first; p <= last; p++) {
        float top = PARTIAL(row - row0, h, p)[e];
        best = top > best ? top : best;
    }
    for (int p = first; p <= last; p++) {
        __global const float *o = PARTIAL(row - row0, h, p);
        total = fma(o[e + 1], gw_exp(o[e] - best), total);
    }
    for (int base = 0; base < e; base += GW_ACT_BLOCK) {
        int n = min(GW_ACT_BLOCK, e - base);
        float sum[GW_ACT_BLOCK];
        for (int i = 0; i < n; i++) {
            sum[i] = 0.0f;
        }
        for (int p = first; p <= last; p++) {
            __global const float *o = PARTIAL(row - row0, h, p);
            float weight = gw_exp(o[e] - best);
            for (int i = 0; i < n; i++) {
                sum[i] = fma(o[base + i], weight, sum[i]);
            }
        }
        for (int i = 0; i < n; i++) {
            sum[i] = sum[i] / total;
        }
        size_t at = ((size_t)row * heads + h) * e + base;
#ifdef ACT8
        item_encode(WRITES(gw_act8, out) + at / GW_ACT_BLOCK, sum);
#else
        for (int i = 0; i < n; i++) {
            WRITES(float, out)[at + i] = sum[i];
        }
#endif
    }
}

#elif !defined(JOIN)

/* A lane per position of the page, then per value of the head. */
__kernel __attribute__((reqd_work_group_size(GW_PAGE, 1, 1)))
void attend(STEP, IN(q), IN(k), IN(v), IN(pages), OUT(part), const int row0, const int heads,
            const int kv_heads, const int e, const int page_stride, const float scale,
            const int window, const int each) {
    __local float p_j[GW_PAGE], fold[GW_PAGE];
    const int g = (int)get_group_id(1), row = row0 + (int)get_group_id(2), group = heads / kv_heads;
    const int j = (int)get_local_id(0);
    if (row >= LIVE) {
        return;
    }
    SPAN;
    const int page0 = max((int)get_group_id(0) * each, first);
    const int stop = min((int)get_group_id(0) * each + each, last + 1);
    for (int p = page0; p < stop; p++) {
        int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + p];
        size_t at = ((size_t)page * kv_heads + g) * GW_PAGE * e;
        __global const CELL *keys = READS(CELL, k) + at + j, *values = READS(CELL, v) + at;
        const int from = max(lo - p * GW_PAGE, 0), end = min(pos - p * GW_PAGE + 1, GW_PAGE);
        const int seen = j >= from && j < end;
        for (int h = g * group; h < (g + 1) * group; h++) {
            __global const float *query = READS(float, q) + ((size_t)row * heads + h) * e;
            __global float *o = PARTIAL(row - row0, h, p);
            float s = 0.0f;
            if (seen) {
#pragma unroll 16
                for (int i = 0; i < e; i++) {
                    s = fma(query[i], WIDEN(keys[i * GW_PAGE]), s);
                }
            }
            s = s * scale;
            fold[j] = seen && s > -INFINITY ? s : -INFINITY;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int half_ = GW_PAGE / 2; half_ > 0; half_ /= 2) {
                if (j < half_) {
                    fold[j] = fold[j + half_] > fold[j] ? fold[j + half_] : fold[j];
                }
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            const float top = fold[0];
            barrier(CLK_LOCAL_MEM_FENCE);
            const float weight = seen ? gw_exp(s - top) : 0.0f;
            p_j[j] = weight;
            fold[j] = weight;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int half_ = GW_PAGE / 2; half_ > 0; half_ /= 2) {
                if (j < half_) {
                    fold[j] = fold[j] + fold[j + half_];
                }
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            if (j == 0) {
                o[e] = top;
                o[e + 1] = fold[0];
            }
            for (int i = again(j); i < e; i += GW_PAGE) {
                float sum = 0.0f;
#pragma unroll 8
                for (int n = from; n < end; n++) {
                    sum = fma(p_j[n], WIDEN(values[n * e + i]), sum);
                }
                o[i] = sum;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}

#else

__kernel __attribute__((reqd_work_group_size(GW_PAGE, 1, 1)))
void attend_join(STEP, OUT(part), OUT(out), const int row0, const int heads, const int e,
                 const int page_stride, const int window) {
    __local float scratch[GW_PAGE];
    const int h = (int)get_group_id(0), row = row0 + (int)get_group_id(1);
    const int id = (int)get_local_id(0);
    if (row >= LIVE) {
        return;
    }
    SPAN;
    float best = -INFINITY, total = 0.0f;
    for (int p = first + id; p <= last; p += GW_PAGE) {
        float top = PARTIAL(row - row0, h, p)[e];
        best = top > best ? top : best;
    }
    scratch[id] = best;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_ = GW_PAGE / 2; half_ > 0; half_ /= 2) {
        if (id < half_) {
            scratch[id] = scratch[id + half_] > scratch[id] ? scratch[id + half_] : scratch[id];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    best = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int base = 0; base < e; base += GW_PAGE) {
        int i = base + id;
        float sum = 0.0f;
        total = 0.0f;
        for (int p = first; p <= last; p++) {
            __global const float *o = PARTIAL(row - row0, h, p);
            float weight = gw_exp(o[e] - best);
            total = fma(o[e + 1], weight, total);
            sum = i < e ? fma(o[i], weight, sum) : sum;
        }
        sum = sum / total;
        size_t at = ((size_t)row * heads + h) * e + i;
#ifdef ACT8
        team_encode(WRITES(gw_act8, out) + at / GW_ACT_BLOCK, i < e ? sum : 0.0f, i < e,
                    (__local uint *)scratch, id);
#else
        if (i < e) {
            WRITES(float, out)[at] = sum;
        }
#endif
    }
}

#endif

#endif
