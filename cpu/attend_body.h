/* cpu/attend_body.h - attention of cpu/ops.h on vectors. Template: cpu/vec.h, cpu/micro_body.h;
 * included by cpu/ops_body.h. */

/* Everything of one part; queries are (row, head) pairs, row after row. */
typedef struct NAME(attention_work) {
    const gw_cpu_attention *job;
    const gw_cpu_attention_part *part;
    size_t queries, e, ev, span; /* span: floats from query to query in scores        */
    size_t room;                 /* ev in whole vectors: columns of page, o, sum and wide        */
    int first, last;             /* pages that any row of the part touches                */
    float *scores;               /* [queries, span]                                       */
    float *top;                  /* [queries, pages] page maxima, then page weights       */
    float *page_sum;             /* [queries, pages] sums of exponentials                 */
    float *group;                /* [queries, groups] weights of groups of pages          */
    float *q, *o, *sum;    /* [queries, e]: queries; [queries, room] sums of a page, of a group */
    float *wide;           /* [queries, room]: results, where ev values are no whole vectors */
    float *page;           /* a page as f32                                         */
    float *unpacked;       /* a page of 4 or 5 bits as q8_0                         */
    float *turned;         /* [GW_PAGE + ev, GW_ATTEND_TURNED]: of values that are part of keys */
    int *pos, *low, *high; /* [queries] position, first and last that it sees    */
} NAME(attention_work);

/* Most groups of pages of a query. */
static size_t NAME(groups)(const NAME(attention_work) * w) {
    return (size_t)((w->last - w->first) / GW_PAGE_GROUP + 1);
}

static void NAME(open_work)(NAME(attention_work) * w, const gw_cpu_attention *job,
                            const gw_cpu_attention_part *part, float *scratch) {
    w->job = job;
    w->part = part;
    w->e = (size_t)job->e;
    w->ev = (size_t)job->ev;
    w->room = GW_ATTEND_ROOM(w->ev);
    w->queries = (size_t)part->rows * (size_t)part->heads;
    w->first = gw_cpu_first_seen(job->pos[part->row], job->window, job->chunk) / GW_PAGE;
    w->last = gw_cpu_last_seen(job, part->row) / GW_PAGE;
    for (int i = 1; i < part->rows; i++) {
        int pos = job->pos[part->row + i];
        int first = gw_cpu_first_seen(pos, job->window, job->chunk) / GW_PAGE;
        w->first = first < w->first ? first : w->first;
        int last = gw_cpu_last_seen(job, part->row + i) / GW_PAGE;
        w->last = last > w->last ? last : w->last;
    }
    size_t pages = (size_t)(w->last - w->first + 1);
    w->span = pages * GW_PAGE;
    w->page = scratch;
    w->unpacked = w->page + GW_PAGE * (w->e > w->room ? w->e : w->room);
    w->q = w->unpacked + GW_CPU_CELLS_ROOM(w->e > w->ev ? w->e : w->ev);
    w->turned = w->q + w->queries * w->e;
    w->o = w->turned + (job->v == NULL ? (GW_PAGE + w->ev) * GW_ATTEND_TURNED : 0);
    w->sum = w->o + w->queries * w->room;
    w->wide = w->sum + w->queries * w->room;
    w->scores = w->wide + (w->room > w->ev ? w->queries * w->room : 0);
    w->top = w->scores + w->queries * w->span;
    w->page_sum = w->top + w->queries * pages;
    w->group = w->page_sum + w->queries * pages;
    w->pos = (int *)(void *)(w->group + w->queries * NAME(groups)(w));
    w->low = w->pos + w->queries;
    w->high = w->low + w->queries;
    for (size_t i = 0; i < w->queries; i++) {
        size_t row = (size_t)part->row + i / (size_t)part->heads;
        size_t head = (size_t)(part->g * job->group + part->head) + i % (size_t)part->heads;
        gw_cpu_take_query(job, w->q + i * w->e, job->q + row * job->q_stride + head * w->e);
        w->pos[i] = job->pos[row];
        w->low[i] = gw_cpu_first_seen(w->pos[i], job->window, job->chunk);
        w->high[i] = gw_cpu_last_seen(job, (int)row);
    }
}

/* Positions [from, end) of page p that query i sees; empty when from >= end. */
static int NAME(seen)(const NAME(attention_work) * w, size_t i, int p, int *from, int *end) {
    int lo = w->low[i] - p * GW_PAGE, hi = w->high[i] + 1 - p * GW_PAGE;
    *from = lo > 0 ? lo : 0;
    *end = hi < GW_PAGE ? hi : GW_PAGE;
    return *from < *end;
}

/* First and last page that query i sees. */
static void NAME(pages_seen)(const NAME(attention_work) * w, size_t i, int *first, int *last) {
    *first = w->low[i] / GW_PAGE;
    *last = w->high[i] / GW_PAGE;
}

/* Columns [from, end) of a page of q8_0 as f32, both multiples of 16: of K [e, GW_PAGE] with scales
 * [e/32, GW_PAGE]. */
VT static void NAME(widen_k)(float *y, const gw_i8 *codes, size_t e, size_t from, size_t end) {
    const gw_u16 *scales = (const gw_u16 *)(const void *)(codes + GW_PAGE * e);
    for (size_t b = 0; b < e / 32; b++, scales += GW_PAGE) {
        for (size_t j = from; j < end; j += VW) {
            vf d = v_from_f16(scales + j);
            for (size_t i = 32 * b; i < 32 * (b + 1); i++) {
                v_store(y + i * GW_PAGE + j, v_mul(d, v_from_i8(codes + i * GW_PAGE + j)));
            }
        }
    }
}

/* Rows [from, end) of V [GW_PAGE, e] with scales [GW_PAGE, e/32]. */
VT static void NAME(widen_v)(float *y, const gw_i8 *codes, size_t e, size_t from, size_t end) {
    const gw_u16 *scales = (const gw_u16 *)(const void *)(codes + GW_PAGE * e);
    for (size_t b = from * (e / 32); b < end * (e / 32); b++) {
        vf d = v_set(gw_f16_to_f32(scales[b]));
        for (size_t i = 32 * b; i < 32 * (b + 1); i += VW) {
            v_store(y + i, v_mul(d, v_from_i8(codes + i)));
        }
    }
}

/* [from, end) in multiples of 16: every position of page p that a query of the part sees is in it,
 * and no more is read of the page. */
static void NAME(span_of_page)(const NAME(attention_work) * w, int p, size_t *from, size_t *end) {
    int first = GW_PAGE, last = 0;
    for (size_t i = 0; i < w->queries; i += (size_t)w->part->heads) {
        int lo, hi;
        if (NAME(seen)(w, i, p, &lo, &hi)) {
            first = lo < first ? lo : first;
            last = hi > last ? hi : last;
        }
    }
    *from = first < last ? (size_t)first / 16 * 16 : 0;
    *end = ((size_t)last + 15) / 16 * 16;
}

static const char *NAME(page_at)(const NAME(attention_work) * w, const void *cache, int p) {
    const gw_cpu_attention *job = w->job;
    size_t page =
        (size_t)job->pages[(size_t)job->slot[w->part->row] * job->page_stride + (size_t)p];
    return (const char *)cache + (page * (size_t)job->kv_heads + (size_t)w->part->g) *
                                     gw_cpu_page_bytes(cache == job->k ? job->k_fmt : job->v_fmt,
                                                       cache == job->k ? w->e : w->ev);
}

/* Rows [from, end) of V [GW_PAGE, ev], f32 or f16, whose rows are no whole vectors; columns up to
 * `room` are 0. */
VT static const float *NAME(load_narrow)(const NAME(attention_work) * w, const char *at,
                                         size_t from, size_t end) {
    for (size_t row = from; row < end; row++) {
        const gw_u16 *f16 = (const gw_u16 *)(const void *)at + row * w->ev;
        float *y = w->page + row * w->room;
        size_t c = 0;
        if (w->job->v_fmt == GW_FMT_F32) {
            memcpy(y, at + row * w->ev * sizeof *y, w->ev * sizeof *y);
            c = w->ev;
        }
        for (; c + VW <= w->ev; c += VW) {
            v_store(y + c, v_from_f16(f16 + c));
        }
        for (; c < w->ev; c++) {
            y[c] = gw_f16_to_f32(f16[c]);
        }
        memset(y + c, 0, (w->room - c) * sizeof *y);
    }
    return w->page;
}

/* Positions [from, end) of page p as floats: columns of K [e, GW_PAGE], rows of V [GW_PAGE, e]. The
 * same cells of the page that is read next, `p` + 1 or the first one of V, are asked for
 * meanwhile: a page is too short for the machine to see a stream in it. An f32 cache needs no
 * widening and is read where it lies, by whoever computes. */
VT static const float *NAME(load_page)(const NAME(attention_work) * w, const void *cache, int p,
                                       size_t from, size_t end) {
    const int keys = cache == w->job->k, on = p < w->last ? p + 1 : keys ? w->first : p;
    enum { LINE = 64 };
    const char *at = NAME(page_at)(w, cache, p);
    const void *after = w->job->v != NULL ? w->job->v : w->job->k;
    const char *next = NAME(page_at)(w, p < w->last ? cache : after, on);
    if (!keys && w->room > w->ev) {
        return NAME(load_narrow)(w, at, from, end);
    }
    const gw_fmt fmt = keys ? w->job->k_fmt : w->job->v_fmt;
    const int bits = keys ? w->job->k_bits : w->job->v_bits;
    if (fmt == GW_FMT_F32) {
        return (const float *)(const void *)at;
    }
    if (fmt != GW_FMT_F16) {
        for (size_t b = 0; b < gw_cpu_page_bytes(fmt, keys ? w->e : w->ev); b += LINE) {
            __builtin_prefetch(next + b, 0, 2);
        }
        if (bits > 0) {
            at = gw_cpu_unpack(w->unpacked, at, bits, keys ? w->e : w->ev, keys);
        }
        (keys ? NAME(widen_k) : NAME(widen_v))(w->page, (const gw_i8 *)at, keys ? w->e : w->ev,
                                               from, end);
        return w->page;
    }
    const gw_u16 *halves = (const gw_u16 *)(const void *)at;
    const size_t width = keys ? GW_PAGE : w->ev, columns = keys ? end : w->ev;
    for (size_t row = keys ? 0 : from; row < (keys ? w->e : end); row++) {
        for (size_t b = 0; b < 2 * width; b += LINE) {
            __builtin_prefetch(next + 2 * row * width + b, 0, 2);
        }
        for (size_t c = keys ? from : 0; c < columns; c += VW) {
            v_store(w->page + row * width + c, v_from_f16(halves + row * width + c));
        }
    }
    return w->page;
}

/* The largest score, products times scale, of what one query sees of a page. */
VT static float NAME(top_of_page)(const float *s, float scale, int from, int end) {
    vf none = v_set(-INFINITY), by = v_set(scale), top = none;
    if (from == 0 && end == GW_PAGE) {
        GW_UNROLL
        for (int j = 0; j < GW_PAGE; j += VW) {
            top = v_max(v_mul(v_load(s + j), by), top);
        }
        return v_largest(top);
    }
    for (int j = from / VW * VW; j < end; j += VW) {
        top = v_max(v_within(v_mul(v_load(s + j), by), j, from, end, none), top);
    }
    return v_largest(top);
}

/* The same with what else becomes of a score, which takes the product's place:
 * gw_cpu_shape_score. first: of the page. */
VT static float NAME(shape_page)(float *s, const gw_cpu_attention *job, size_t head, int first,
                                 int pos, int from, int end) {
    vf none = v_set(-INFINITY), top = none, cap = v_set(job->softcap);
    for (int j = from / VW * VW; j < end; j += VW) {
        vf v = v_mul(v_load(s + j), v_set(job->scale));
        if (job->softcap != 0.0f) {
            v = v_mul(cap, NAME(tanh)(v_div(v, cap)));
        }
        if (job->slopes != NULL) {
            float away[VW];
            for (int i = 0; i < VW; i++) {
                int behind = first + j + i - pos;
                away[i] = (float)(behind > 0 ? -behind : behind);
            }
            v = v_fma(v_set(job->slopes[head]), v_load(away), v);
        }
        if (job->bias != NULL) {
            float more[VW];
            for (int i = 0; i < VW; i++) {
                more[i] = gw_cpu_bias(job, head, first + j + i - pos);
            }
            v = v_add(v, v_load(more));
        }
        v_store(s + j, v);
        top = v_max(v_within(v, j, from, end, none), top);
    }
    return v_largest(top);
}

/* Their sum by the fold tree. */
GW_INLINE VT float NAME(fold_page)(vf *p) {
    GW_UNROLL
    for (int h = GW_PAGE / VW / 2; h > 0; h /= 2) {
        GW_UNROLL
        for (int j = 0; j < h; j++) {
            p[j] = v_add(p[j], p[j + h]);
        }
    }
    return v_fold(p[0]);
}

/* s[j] = gw_exp(s[j] * scale - top) of all positions of a page, of some. Returns their sum, in
 * which all else is 0. */
VT static float NAME(exp_whole)(float *s, float scale, float top) {
    enum { J = GW_PAGE / VW, AT_ONCE = 4 };
    const vf by = v_set(scale), less = v_set(top);
    vf p[J];
    GW_UNROLL
    for (int j = 0; j < J; j += AT_ONCE) {
        GW_UNROLL
        for (int i = j; i < j + AT_ONCE; i++) {
            p[i] = v_sub(v_mul(v_load(s + i * VW), by), less);
        }
        NAME(exp_all)(p + j, AT_ONCE);
        GW_UNROLL
        for (int i = j; i < j + AT_ONCE; i++) {
            v_store(s + i * VW, p[i]);
        }
    }
    return NAME(fold_page)(p);
}
VT static float NAME(exp_some)(float *s, float scale, float top, int from, int end) {
    enum { J = GW_PAGE / VW };
    vf p[J];
    for (int j = 0; j < J; j++) {
        p[j] = v_zero();
        if (j * VW < end && (j + 1) * VW > from) {
            p[j] = NAME(exp)(v_sub(v_mul(v_load(s + j * VW), v_set(scale)), v_set(top)));
            p[j] = v_within(p[j], j * VW, from, end, v_zero());
            v_store(s + j * VW, p[j]);
        }
    }
    return NAME(fold_page)(p);
}

/* The query head of query i. */
static size_t NAME(head_of)(const NAME(attention_work) * w, size_t i) {
    size_t heads = (size_t)w->part->heads;
    return (size_t)(w->part->g * w->job->group + w->part->head) + i % heads;
}

/* by[n] = gw_exp(top[n] - best), n <= GW_PAGE_GROUP. */
VT static void NAME(weigh_pages)(float *by, const float *top, float best, int n) {
    for (int i = 0; i < GW_PAGE_GROUP; i++) {
        by[i] = i < n ? top[i] : best;
    }
    for (int i = 0; i < GW_PAGE_GROUP; i += VW) {
        v_store(by + i, NAME(exp)(v_sub(v_load(by + i), v_set(best))));
    }
}

/* Weights of the pages and of the groups of pages of query i, the sum of all. */
VT static void NAME(weigh)(const NAME(attention_work) * w, size_t i, float *total) {
    size_t pages = (size_t)(w->last - w->first + 1);
    float *top = w->top + i * pages, *page_sum = w->page_sum + i * pages;
    float *group = w->group + i * NAME(groups)(w), sum = -0.0f;
    const float *sink = w->job->sinks != NULL ? w->job->sinks + NAME(head_of)(w, i) : NULL;
    float best = sink != NULL ? *sink : -INFINITY;
    int first, last;
    NAME(pages_seen)(w, i, &first, &last);
    first -= w->first;
    last -= w->first;
    for (int p = first; p <= last; p++) {
        best = top[p] > best ? top[p] : best;
    }
    for (int base = first; base <= last; base += GW_PAGE_GROUP, group++) {
        int n = base + GW_PAGE_GROUP <= last ? GW_PAGE_GROUP : last + 1 - base;
        float best_here = -INFINITY, sum_here = 0.0f, by[GW_PAGE_GROUP];
        for (int p = base; p < base + n; p++) {
            best_here = top[p] > best_here ? top[p] : best_here;
        }
        NAME(weigh_pages)(by, top + base, best_here, n);
        for (int p = 0; p < n; p++) {
            sum_here = fmaf(page_sum[base + p], by[p], sum_here);
            top[base + p] = by[p];
        }
        *group = gw_exp(best_here - best);
        sum = fmaf(sum_here, *group, sum);
    }
    *total = sink != NULL ? sum + gw_exp(*sink - best) : sum;
}

/* Scores of every page and, while they are near, their exponentials; then what softmax makes of
 * them. The sum of query i leaves in total[i]. */
VT static void NAME(score)(const NAME(attention_work) * w, float *total) {
    size_t pages = (size_t)(w->last - w->first + 1);
    const gw_cpu_attention *job = w->job;
    const float scale = job->scale;
    int from, end, shaped = job->softcap != 0.0f || job->slopes != NULL || job->bias != NULL;
    for (int p = w->first; p <= w->last; p++) {
        size_t lo, hi;
        NAME(span_of_page)(w, p, &lo, &hi);
        const float *k = NAME(load_page)(w, w->job->k, p, lo, hi);
        float *s = w->scores + (p - w->first) * GW_PAGE;
        NAME(multiply)
        (w->queries, w->e, w->q, w->e, k + lo, GW_PAGE, hi - lo, s + lo, w->span);
        float *top = w->top + (p - w->first), *sum = w->page_sum + (p - w->first);
        for (size_t i = 0; i < w->queries; i++) {
            if (NAME(seen)(w, i, p, &from, &end)) {
                float *own = s + i * w->span;
                top[i * pages] = shaped ? NAME(shape_page)(own, job, NAME(head_of)(w, i),
                                                           p * GW_PAGE, w->pos[i], from, end)
                                        : NAME(top_of_page)(own, scale, from, end);
            }
        }
        for (size_t i = 0; i < w->queries; i++) {
            if (NAME(seen)(w, i, p, &from, &end)) {
                float *own = s + i * w->span, most = top[i * pages];
                sum[i * pages] = from == 0 && end == GW_PAGE
                                     ? NAME(exp_whole)(own, shaped ? 1.0f : scale, most)
                                     : NAME(exp_some)(own, shaped ? 1.0f : scale, most, from, end);
            }
        }
    }
    for (size_t i = 0; i < w->queries; i++) {
        NAME(weigh)(w, i, total + i);
    }
}

/* Where the result of query i goes, and where it is summed up. */
static float *NAME(place)(const NAME(attention_work) * w, size_t i) {
    size_t heads = (size_t)w->part->heads;
    return w->part->out + i / heads * w->part->out_stride + i % heads * w->ev;
}
static float *NAME(result)(const NAME(attention_work) * w, size_t i) {
    return w->room > w->ev ? w->wide + i * w->room : NAME(place)(w, i);
}

/* The sums of page p join those of its group, and those of a group that is complete the result. */
VT static void NAME(join_page)(const NAME(attention_work) * w, size_t i, int p, float by) {
    const float *o = w->o + i * w->room;
    float *sum = w->sum + i * w->room;
    int first, last;
    NAME(pages_seen)(w, i, &first, &last);
    int g = (p - first) / GW_PAGE_GROUP, place = (p - first) % GW_PAGE_GROUP;
    vf weight = v_set(by);
    for (size_t c = 0; c < w->room; c += VW) {
        vf before = place == 0 ? v_zero() : v_load(sum + c);
        v_store(sum + c, v_fma(v_load(o + c), weight, before));
    }
    if (place != GW_PAGE_GROUP - 1 && p != last) {
        return;
    }
    float *out = NAME(result)(w, i);
    weight = v_set(w->group[i * NAME(groups)(w) + (size_t)g]);
    for (size_t c = 0; c < w->room; c += VW) {
        vf before = g == 0 ? v_set(-0.0f) : v_load(out + c);
        v_store(out + c, v_fma(v_load(sum + c), weight, before));
    }
}

/* Sums of queries [i, i + n) over positions [from, end) of a page of keys [e, GW_PAGE] whose values
 * are columns: each is a row here, so that queries are what stands side by side. */
VT static void NAME(multiply_within)(const NAME(attention_work) * w, const float *k, const float *s,
                                     size_t i, size_t n, int from, int end) {
    enum { WIDE = GW_ATTEND_TURNED };
    float *weights = w->turned, *sums = weights + GW_PAGE * WIDE;
    size_t seen = (size_t)(end - from);
    for (size_t q0 = 0; q0 < n; q0 += WIDE) {
        size_t here = n - q0 < WIDE ? n - q0 : WIDE;
        memset(weights, 0, here < WIDE ? seen * WIDE * sizeof *weights : 0);
        for (size_t q = 0; q < here; q++) {
            const float *own = s + (i + q0 + q) * w->span + from;
            for (size_t j = 0; j < seen; j++) {
                weights[j * WIDE + q] = own[j];
            }
        }
        NAME(multiply)
        (w->ev, seen, k + (size_t)w->job->v_first * GW_PAGE + from, GW_PAGE, weights, WIDE, WIDE,
         sums, WIDE);
        for (size_t q = 0; q < here; q++) {
            float *o = w->o + (i + q0 + q) * w->room;
            for (size_t c = 0; c < w->ev; c++) {
                o[c] = sums[c * WIDE + q];
            }
        }
    }
}

/* One page of values: queries that see the same range of it go through one product. */
VT static void NAME(add_page)(const NAME(attention_work) * w, int p) {
    size_t pages = (size_t)(w->last - w->first + 1), e = w->room;
    size_t lo, hi;
    NAME(span_of_page)(w, p, &lo, &hi);
    const int within = w->job->v == NULL;
    const float *v = NAME(load_page)(w, within ? w->job->k : w->job->v, p, lo, hi);
    const float *s = w->scores + (p - w->first) * GW_PAGE;
    for (size_t i = 0; i < w->queries;) {
        int from, end, next_from, next_end;
        size_t n = 1;
        int any = NAME(seen)(w, i, p, &from, &end);
        while (i + n < w->queries) {
            (void)NAME(seen)(w, i + n, p, &next_from, &next_end);
            if (next_from != from || next_end != end) {
                break;
            }
            n++;
        }
        if (any && within) {
            NAME(multiply_within)(w, v, s, i, n, from, end);
        } else if (any) {
            NAME(multiply)
            (n, (size_t)(end - from), s + i * w->span + from, w->span, v + (size_t)from * e, e, e,
             w->o + i * e, e);
        }
        for (size_t q = i; q < i + n && any; q++) {
            NAME(join_page)(w, q, p, w->top[q * pages + (size_t)(p - w->first)]);
        }
        i += n;
    }
}

VT static void NAME(attend_floats)(const gw_cpu_attention *job, const gw_cpu_attention_part *part,
                                   void *scratch) {
    NAME(attention_work) w;
    NAME(open_work)(&w, job, part, scratch);
    float *total = w.o; /* free until the values are summed; moved out before that */
    NAME(score)(&w, total);
    float *kept = w.q; /* the queries have been used */
    memcpy(kept, total, w.queries * sizeof(float));
    for (int p = w.first; p <= w.last; p++) {
        NAME(add_page)(&w, p);
    }
    for (size_t i = 0; i < w.queries; i++) {
        float *out = NAME(result)(&w, i);
        for (size_t c = 0; c < w.room; c += VW) {
            v_store(out + c, v_div(v_load(out + c), v_set(kept[i])));
        }
        if (w.room > w.ev) {
            memcpy(NAME(place)(&w, i), out, w.ev * sizeof *out);
        }
    }
}
