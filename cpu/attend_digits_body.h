/* cpu/attend_digits_body.h - attention of prompts in digits (docs/arithmetic.md, section 5) on
 * vectors. Template: cpu/vec.h, cpu/micro_body.h; included by cpu/ops_body.h behind attend_body.h.
 *
 * A digit pair is one number of 32 bits. Of queries and weights n stands in the lower half and the
 * high digit in the upper, of keys and values the high digit in the lower and the low one in the
 * upper: the two products of 16 bits of such a pair add up to 256 high high + high low + low high.
 * So products of pages go through the register tile of float sums with v_madd in v_fma's place.
 */
#include "core/tensor/digits.h"

#define MICRO_ADD(a, b, c) v_madd(a, b, c)
#define MICRO_NAME(f) NAME(f##_digits)
#define MICRO_VT VT
#include "cpu/micro_body.h"
#if GW_VEC == GW_VEC_AVX512
#if defined(GODWIT_SIMDE)
#define MICRO_VT
#else
#define MICRO_VT __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")))
#endif
/* Both products and their sum at once. Written out, since a compiler that knows what it does takes
 * another register for every sum and copies it back. */
GW_INLINE MICRO_VT __m512 madd_vnni(__m512 a, __m512 b, __m512 c) {
#if defined(GODWIT_SIMDE)
    return _mm512_castsi512_ps(_mm512_dpwssd_epi32(_mm512_castps_si512(c), _mm512_castps_si512(a),
                                                   _mm512_castps_si512(b)));
#else
    __asm__("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
#endif
}
#define MICRO_ADD(a, b, c) madd_vnni(a, b, c)
#define MICRO_NAME(f) f##_digits_vnni
#include "cpu/micro_body.h"
#endif

/* Queries are (row, head) pairs, row after row. */
typedef struct NAME(digits_work) {
    NAME(attention_work) page;      /* what loads pages                                       */
    size_t queries, all;            /* all: rounded up to 16                                  */
    int *own;                       /* [queries] the page of a query's own position           */
    float *pairs, *by;              /* [queries, e] of queries; [all] their scale, with scale's */
    float *keys, *values;           /* pairs of a page: [e, GW_PAGE], [GW_PAGE, ev]             */
    float *key_scale, *value_scale; /* [GW_PAGE]                                          */
    float *most;                    /* [ev] the largest of each channel of values             */
    float *s;                       /* [queries, GW_PAGE] scores, then pairs of weights       */
    float *top, *sum, *o;           /* [all], [all], [queries, ev] of a page                  */
    float *factor;                  /* [all] of the integers in o                             */
    float *was, *now;               /* [all] what a state and a page are multiplied by        */
    float *group_top, *group_sum, *group_o; /* states of groups, as those of a page      */
    float *row_top, *row_sum;               /* [all] of rows, whose o is the result      */
} NAME(digits_work);

static float *NAME(take_floats)(float **scratch, size_t n) {
    float *at = *scratch;
    *scratch += (n + 15) / 16 * 16;
    return at;
}

static void NAME(open_digits)(NAME(digits_work) * w, const gw_cpu_attention *job,
                              const gw_cpu_attention_part *part, float *scratch) {
    NAME(attention_work) *p = &w->page;
    size_t e = (size_t)job->e, ev = (size_t)job->ev, n = (size_t)(part->rows * part->heads);
    *p = (NAME(attention_work)){.job = job, .part = part, .queries = n, .e = e, .ev = ev};
    w->queries = n;
    w->all = (n + 15) / 16 * 16;
    p->page = NAME(take_floats)(&scratch, GW_PAGE * (e > ev ? e : ev));
    p->unpacked = NAME(take_floats)(&scratch, GW_CPU_CELLS_ROOM(e > ev ? e : ev));
    p->q = NAME(take_floats)(&scratch, n * e);
    w->keys = NAME(take_floats)(&scratch, GW_PAGE * e);
    w->values = NAME(take_floats)(&scratch, GW_PAGE * ev);
    w->key_scale = NAME(take_floats)(&scratch, GW_PAGE);
    w->value_scale = NAME(take_floats)(&scratch, GW_PAGE);
    w->most = NAME(take_floats)(&scratch, ev);
    w->pairs = NAME(take_floats)(&scratch, n * e);
    w->s = NAME(take_floats)(&scratch, n * GW_PAGE);
    w->o = NAME(take_floats)(&scratch, n * ev);
    w->group_o = NAME(take_floats)(&scratch, n * ev);
    float **each[] = {&w->by,  &w->top,       &w->sum,       &w->factor,  &w->was,
                      &w->now, &w->group_top, &w->group_sum, &w->row_top, &w->row_sum};
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        *each[i] = NAME(take_floats)(&scratch, w->all);
        memset(*each[i], 0, w->all * sizeof(float));
    }
    w->own = (int *)(void *)NAME(take_floats)(&scratch, n);
    for (size_t i = 0; i < n; i++) {
        size_t row = (size_t)part->row + i / (size_t)part->heads;
        size_t head = NAME(head_of)(p, i);
        gw_cpu_take_query(job, p->q + i * e, job->q + row * job->q_stride + head * e);
        w->own[i] = job->pos[row] / GW_PAGE;
        p->last = w->own[i] > p->last ? w->own[i] : p->last;
        w->group_top[i] = w->row_top[i] = -INFINITY;
    }
    memset(w->group_o, 0, n * ev * sizeof(float));
}

/* ---- digits ---------------------------------------------------------------------------------- */

/* Sizes of numbers become the largest number, NaN where one is not finite. */
GW_INLINE VT vf NAME(amax_of)(vi size) {
    vf x = v_of_bits(size);
    return v_add(x, v_sub(x, x));
}
GW_INLINE VT vf NAME(inverse_of)(vf amax) {
    vf inverse = v_div(v_set((float)GW_DIGITS_TOP), amax);
    return v_below(inverse, v_set(3.0e38f), inverse, v_zero());
}
GW_INLINE VT vi NAME(high_of)(vi n) { return vi_sar(vi_add(n, vi_set(128)), 8); }
/* The pair of a query's or a weight's number, of a key's or a value's. */
GW_INLINE VT vi NAME(whole_pair)(vi n) {
    return vi_or(vi_and(n, vi_set(0xffff)), vi_shl(NAME(high_of)(n), 16));
}
GW_INLINE VT vi NAME(cut_pair)(vi n) {
    vi high = NAME(high_of)(n), low = vi_sub(n, vi_shl(high, 8));
    return vi_or(vi_and(high, vi_set(0xffff)), vi_shl(low, 16));
}

VT static void NAME(cut_queries)(const NAME(digits_work) * w) {
    const size_t e = w->page.e;
    for (size_t i = 0; i < w->queries; i++) {
        const float *q = w->page.q + i * e;
        vi size = vi_zero();
        for (size_t c = 0; c < e; c += VW) {
            size = vi_max(size, vi_abs(v_load(q + c)));
        }
        float amax = gw_digits_amax((gw_u32)vi_largest(size));
        vf inverse = v_set(gw_digits_inverse(amax));
        for (size_t c = 0; c < e; c += VW) {
            vi n = vi_round(v_mul(v_load(q + c), inverse));
            vi_store((gw_i32 *)(void *)(w->pairs + i * e + c), NAME(whole_pair)(n));
        }
        w->by[i] = gw_digits_scale(amax) * 256.0f * w->page.job->scale;
    }
}

/* k [e, GW_PAGE]: one scale for each position. */
VT static void NAME(cut_keys)(const NAME(digits_work) * w, const float *k) {
    for (size_t j = 0; j < GW_PAGE; j += VW) {
        vi size = vi_zero();
        for (size_t i = 0; i < w->page.e; i++) {
            size = vi_max(size, vi_abs(v_load(k + i * GW_PAGE + j)));
        }
        vf amax = NAME(amax_of)(size), inverse = NAME(inverse_of)(amax);
        v_store(w->key_scale + j, v_div(amax, v_set((float)GW_DIGITS_TOP)));
        for (size_t i = 0; i < w->page.e; i++) {
            vi n = vi_round(v_mul(v_load(k + i * GW_PAGE + j), inverse));
            vi_store((gw_i32 *)(void *)(w->keys + i * GW_PAGE + j), NAME(cut_pair)(n));
        }
    }
}

/* v [GW_PAGE, ev], which is the work's own page: first by the largest of each channel, which stays
 * in `most`, then one scale for each position. */
VT static void NAME(cut_values)(const NAME(digits_work) * w, float *v) {
    const size_t ev = w->page.ev;
    float inverse[GW_PAGE];
    for (size_t c = 0; c < ev; c += VW) {
        vi size = vi_zero();
        for (size_t j = 0; j < GW_PAGE; j++) {
            size = vi_max(size, vi_abs(v_load(v + j * ev + c)));
        }
        vf most = NAME(amax_of)(size);
        v_store(w->most + c, most);
        most = v_below(most, v_set(0x1p-149f), v_set(1.0f), most); /* 0 / 1, not 0 / 0 */
        for (size_t j = 0; j < GW_PAGE; j++) {
            v_store(v + j * ev + c, v_div(v_load(v + j * ev + c), most));
        }
    }
    for (size_t j = 0; j < GW_PAGE; j++) {
        vi size = vi_zero();
        for (size_t c = 0; c < ev; c += VW) {
            size = vi_max(size, vi_abs(v_load(v + j * ev + c)));
        }
        float amax = gw_digits_amax((gw_u32)vi_largest(size));
        inverse[j] = gw_digits_inverse(amax);
        w->value_scale[j] = gw_digits_scale(amax);
    }
    for (size_t j = 0; j < GW_PAGE; j++) {
        for (size_t c = 0; c < ev; c += VW) {
            vi n = vi_round(v_mul(v_load(v + j * ev + c), v_set(inverse[j])));
            vi_store((gw_i32 *)(void *)(w->values + j * ev + c), NAME(cut_pair)(n));
        }
    }
}

/* ---- a page in integers ---------------------------------------------------------------------- */

VT static void NAME(multiply_pairs)(const NAME(digits_work) * w, size_t first, size_t n, size_t k,
                                    const float *x, const float *cells, size_t columns, float *y) {
    x += first * k;
    y += first * columns;
    (void)w;
#if GW_VEC == GW_VEC_AVX512
    if (w->page.job->vnni) {
        multiply_digits_vnni(n, k, x, k, cells, columns, columns, y, columns);
        return;
    }
#endif
    NAME(multiply_digits)(n, k, x, k, cells, columns, columns, y, columns);
}

/* Integers become scores; the page's largest. */
VT static float NAME(scores_of_page)(float *s, float by, const float *scale) {
    vf top = v_set(-INFINITY);
    GW_UNROLL
    for (int j = 0; j < GW_PAGE; j += VW) {
        vf x = v_mul(vi_floats(vi_load((const gw_i32 *)(const void *)(s + j))),
                     v_mul(v_set(by), v_load(scale + j)));
        v_store(s + j, x);
        top = v_max(x, top);
    }
    return v_largest(top);
}

/* Scores less their largest become weights, and those pairs; their sum, and what the integers that
 * they make are to be multiplied by. */
VT static void NAME(weights_of_page)(const NAME(digits_work) * w, size_t i) {
    enum { J = GW_PAGE / VW, AT_ONCE = 4 };
    float *s = w->s + i * GW_PAGE;
    vf p[J], sum = v_zero();
    vi size = vi_zero();
    GW_UNROLL
    for (int j = 0; j < J; j++) {
        p[j] = v_sub(v_load(s + j * VW), v_set(w->top[i]));
    }
    GW_UNROLL
    for (int j = 0; j < J; j += AT_ONCE) {
        NAME(exp_all)(p + j, AT_ONCE);
    }
    GW_UNROLL
    for (int j = 0; j < J; j++) { /* integers below 2^24: in any order */
        sum = v_add(sum, v_rint(v_mul(p[j], v_set((float)GW_DIGITS_TOP))));
        p[j] = v_mul(p[j], v_load(w->value_scale + j * VW));
        size = vi_max(size, vi_abs(p[j]));
    }
    float amax = gw_digits_amax((gw_u32)vi_largest(size));
    vf inverse = v_set(gw_digits_inverse(amax));
    w->sum[i] = v_fold(sum) * GW_DIGITS_PART;
    w->factor[i] = gw_digits_scale(amax) * 256.0f;
    GW_UNROLL
    for (int j = 0; j < J; j++) {
        vi n = vi_round(v_mul(p[j], inverse));
        vi_store((gw_i32 *)(void *)(s + j * VW), NAME(whole_pair)(n));
    }
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The sums of a part join those of query i's row. */
VT static void NAME(join_row)(const NAME(digits_work) * w, size_t i, float top, float sum,
                              const float *o) {
    float *out = NAME(result)(&w->page, i), *most = &w->row_top[i];
    float best = top > *most ? top : *most;
    float was = gw_exp(*most - best), now = gw_exp(top - best);
    for (size_t c = 0; c < w->page.ev; c += VW) {
        vf before = v_mul(v_load(out + c), v_set(was));
        v_store(out + c, v_fma(v_load(o + c), v_set(now), before));
    }
    w->row_sum[i] = fmaf(sum, now, w->row_sum[i] * was);
    *most = best;
}

static void NAME(close_group)(const NAME(digits_work) * w, size_t i) {
    float *o = w->group_o + i * w->page.ev;
    NAME(join_row)(w, i, w->group_top[i], w->group_sum[i], o);
    w->group_top[i] = -INFINITY;
    w->group_sum[i] = 0.0f;
    memset(o, 0, w->page.ev * sizeof(float));
}

/* Sums of page p of queries [first, first + n) join their groups. */
VT static void NAME(join_groups)(const NAME(digits_work) * w, int p, size_t first, size_t n) {
    const size_t ev = w->page.ev;
    for (size_t i = first / VW * VW; i < first + n; i += VW) {
        vf before = v_load(w->group_top + i), here = v_load(w->top + i);
        vf best = v_max(here, before);
        v_store(w->was + i, NAME(exp)(v_sub(before, best)));
        v_store(w->now + i, NAME(exp)(v_sub(here, best)));
    }
    for (size_t i = first; i < first + n; i++) {
        const gw_i32 *sums = (const gw_i32 *)(const void *)(w->o + i * ev);
        float *o = w->group_o + i * ev;
        vf was = v_set(w->was[i]), now = v_set(w->now[i]), factor = v_set(w->factor[i]);
        for (size_t c = 0; c < ev; c += VW) {
            vf x = v_mul(vi_floats(vi_load(sums + c)), v_mul(factor, v_load(w->most + c)));
            v_store(o + c, v_fma(x, now, v_mul(v_load(o + c), was)));
        }
        w->group_sum[i] = fmaf(w->sum[i], w->now[i], w->group_sum[i] * w->was[i]);
        w->group_top[i] = w->top[i] > w->group_top[i] ? w->top[i] : w->group_top[i];
        if (p + 1 == w->own[i] || (p + 1) % GW_DIGITS_GROUP == 0) {
            NAME(close_group)(w, i);
        }
    }
}

/* Page p of queries [first, first + n), whose own pages are behind it; some at a time, so that what
 * becomes of a query stays near from one product to the next. */
VT static void NAME(add_digits)(const NAME(digits_work) * w, int p, size_t first, size_t n) {
    enum { AT_ONCE = 48 };
    const gw_cpu_attention *job = w->page.job;
    NAME(cut_keys)(w, NAME(load_page)(&w->page, job->k, p, 0, GW_PAGE));
    (void)NAME(load_page)(&w->page, job->v, p, 0, GW_PAGE);
    NAME(cut_values)(w, w->page.page);
    for (size_t end = first + n; first < end; first += AT_ONCE) {
        size_t some = end - first < AT_ONCE ? end - first : AT_ONCE;
        NAME(multiply_pairs)(w, first, some, w->page.e, w->pairs, w->keys, GW_PAGE, w->s);
        for (size_t i = first; i < first + some; i++) {
            w->top[i] = NAME(scores_of_page)(w->s + i * GW_PAGE, w->by[i], w->key_scale);
        }
        for (size_t i = first; i < first + some; i++) {
            NAME(weights_of_page)(w, i);
        }
        NAME(multiply_pairs)(w, first, some, GW_PAGE, w->s, w->values, w->page.ev, w->o);
        NAME(join_groups)(w, p, first, some);
    }
}

/* ---- the own page ---------------------------------------------------------------------------- */

static int NAME(seen_of_own)(const NAME(digits_work) * w, size_t i) {
    const NAME(attention_work) *p = &w->page;
    return p->job->pos[(size_t)p->part->row + i / (size_t)p->part->heads] % GW_PAGE + 1;
}

/* Page p is that of the positions of queries [first, first + n): in float, as attend_body.h. */
VT static void NAME(add_own)(const NAME(digits_work) * w, int p, size_t first, size_t n) {
    const gw_cpu_attention *job = w->page.job;
    const size_t e = w->page.e, ev = w->page.ev, heads = (size_t)w->page.part->heads;
    int seen = 0;
    for (size_t i = first; i < first + n; i++) {
        seen = NAME(seen_of_own)(w, i) > seen ? NAME(seen_of_own)(w, i) : seen;
    }
    size_t wide = ((size_t)seen + 15) / 16 * 16;
    const float *k = NAME(load_page)(&w->page, job->k, p, 0, wide);
    NAME(multiply)
    (n, e, w->page.q + first * e, e, k, GW_PAGE, wide, w->s + first * GW_PAGE, GW_PAGE);
    for (size_t i = first; i < first + n; i++) {
        float *s = w->s + i * GW_PAGE;
        int end = NAME(seen_of_own)(w, i);
        w->top[i] = NAME(top_of_page)(s, job->scale, 0, end);
        w->sum[i] = NAME(exp_some)(s, job->scale, w->top[i], 0, end);
    }
    const float *v = NAME(load_page)(&w->page, job->v, p, 0, wide);
    for (size_t i = first; i < first + n; i += heads) { /* those of a row see as much */
        NAME(multiply)
        (heads, (size_t)NAME(seen_of_own)(w, i), w->s + i * GW_PAGE, GW_PAGE, v, ev, ev,
         w->o + i * ev, ev);
    }
    for (size_t i = first; i < first + n; i++) {
        NAME(join_row)(w, i, w->top[i], w->sum[i], w->o + i * ev);
    }
}

/* The end of [i, ..) whose own page is behind p, or is p. */
static size_t NAME(run_of)(const NAME(digits_work) * w, size_t i, int p, int is_own) {
    while (i < w->queries && (is_own ? w->own[i] == p : w->own[i] > p)) {
        i++;
    }
    return i;
}

VT static void NAME(attend_digits)(const gw_cpu_attention *job, const gw_cpu_attention_part *part,
                                   void *scratch) {
    NAME(digits_work) w;
    NAME(open_digits)(&w, job, part, scratch);
    NAME(cut_queries)(&w);
    for (size_t i = 0; i < w.queries; i++) {
        memset(NAME(result)(&w.page, i), 0, w.page.ev * sizeof(float));
    }
    for (int p = 0; p <= w.page.last; p++) {
        for (size_t i = 0, end; i<w.queries; i = end> i ? end : i + 1) {
            end = NAME(run_of)(&w, i, p, 0);
            if (end > i) {
                NAME(add_digits)(&w, p, i, end - i);
            }
        }
    }
    for (int p = 0; p <= w.page.last; p++) { /* once what is before it has been joined */
        for (size_t i = 0, end; i<w.queries; i = end> i ? end : i + 1) {
            end = NAME(run_of)(&w, i, p, 1);
            if (end > i) {
                NAME(add_own)(&w, p, i, end - i);
            }
        }
    }
    for (size_t i = 0; i < w.queries; i++) {
        float *out = NAME(result)(&w.page, i), total = w.row_sum[i], was = 1.0f;
        if (job->sinks != NULL) {
            float sink = job->sinks[NAME(head_of)(&w.page, i)];
            float best = sink > w.row_top[i] ? sink : w.row_top[i];
            was = gw_exp(w.row_top[i] - best);
            total = total * was + gw_exp(sink - best);
        }
        for (size_t c = 0; c < w.page.ev; c += VW) {
            v_store(out + c, v_div(v_mul(v_load(out + c), v_set(was)), v_set(total)));
        }
    }
}
