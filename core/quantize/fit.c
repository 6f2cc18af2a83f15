/* core/quantize/fit.c - the searches for scales: see fit.h. */
#include "core/quantize/fit.h"

#include "core/base/clones.h"

#if defined(__GNUC__)                    /* clang too */
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are arguments of inlined functions only */
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t m8 __attribute__((vector_size(32)));

INLINE v8 all(float x) { return (v8){x, x, x, x, x, x, x, x}; }
INLINE v8 pick(m8 mask, v8 yes, v8 no) { return (v8)((mask & (m8)yes) | (~mask & (m8)no)); }
INLINE v8 absolute(v8 x) { return (v8)((m8)x & 0x7fffffff); }
INLINE v8 least(v8 a, v8 b) { return pick(a < b, a, b); }
INLINE v8 most(v8 a, v8 b) { return pick(a > b, a, b); }
/* Clamped, then to the nearest integer, ties to even. */
INLINE v8 rounded(v8 x, float low, float high) {
    x = most(least(x, all(high)), all(low));
    return (x + all(12582912.0f)) - all(12582912.0f);
}
INLINE v8 root(v8 x) {
    v8 y;
    for (int l = 0; l < GW_FIT_LANES; l++) {
        y[l] = GW_SQRT(x[l]);
    }
    return y;
}

enum { LEVELS = 16 };
static const float iq4[LEVELS] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
#define LEVEL(i) iq4[i]
#define MIDDLE(i) (0.5f * (iq4[i] + iq4[(i) + 1])) /* between levels i and i + 1 */

#if defined(__clang__)
INLINE v8 nearest_iq4(v8 x) {
    v8 q = all(iq4[0]);
    for (int i = 1; i < LEVELS; i++) {
        q = pick(x > all(0.5f * (iq4[i - 1] + iq4[i])), all(iq4[i]), q);
    }
    return q;
}
#else
/* The same by halving: a lane's next middle comes out of a table that is one vector. */
INLINE v8 nearest_iq4(v8 x) {
    const v8 eighth = {MIDDLE(0), MIDDLE(2),  MIDDLE(4),  MIDDLE(6),
                       MIDDLE(8), MIDDLE(10), MIDDLE(12), MIDDLE(14)};
    const v8 fourth = {MIDDLE(1), MIDDLE(5), MIDDLE(9), MIDDLE(13), 0, 0, 0, 0};
    m8 at = (x > all(MIDDLE(7))) & 8;
    at = at | ((x > pick(at == 8, all(MIDDLE(11)), all(MIDDLE(3)))) & 4);
    at = at | ((x > __builtin_shuffle(fourth, at >> 2)) & 2);
    at = at | ((x > __builtin_shuffle(eighth, at >> 1)) & 1);
    const v8 below = {LEVEL(0), LEVEL(1), LEVEL(2), LEVEL(3),
                      LEVEL(4), LEVEL(5), LEVEL(6), LEVEL(7)};
    const v8 above = {LEVEL(8),  LEVEL(9),  LEVEL(10), LEVEL(11),
                      LEVEL(12), LEVEL(13), LEVEL(14), LEVEL(15)};
    m8 in_half = at & 7;
    return pick(at > 7, __builtin_shuffle(above, in_half), __builtin_shuffle(below, in_half));
}
#endif

/* Sizes below which a binary16 scale is zero anyway, and above which sums of squares overflow. */
#define TINY 1e-15f

typedef struct lanes {
    v8 w[GW_FIT_COLUMNS], a[GW_FIT_COLUMNS];
    int cols;
} lanes;

INLINE v8 weight_of(const gw_fit_rule *rule, v8 w, v8 h, v8 spread, v8 more) {
    switch (rule->weight) {
    case GW_WEIGHT_MEAN:
        return h * root(spread + w * w);
    case GW_WEIGHT_GIVEN:
        return h;
    case GW_WEIGHT_SQUARE:
        return w * w;
    case GW_WEIGHT_SIZE:
        return absolute(w);
    default:
        return absolute(w) + more;
    }
}

INLINE void gather(const gw_fit_rule *rule, const gw_fit_in *in, lanes *t, gw_fit_out *out) {
    v8 squares = all(0.0f), sum = all(0.0f), spread = all(0.0f);
    v8 h[GW_FIT_COLUMNS];
    for (int i = 0; i < t->cols; i++) {
        for (int l = 0; l < GW_FIT_LANES; l++) {
            int there = l < in->lanes;
            t->w[i][l] = there ? in->w[l][i] : 0.0f;
            h[i][l] = there && in->importance[l] != NULL ? in->importance[l][i] : 1.0f;
        }
        squares = squares + t->w[i] * t->w[i];
    }
    for (int l = 0; l < in->lanes; l++) {
        spread[l] = rule->spread * in->mean_square[l];
    }
    v8 more = rule->weight == GW_WEIGHT_SIZE_MORE ? root(squares / all((float)t->cols)) : squares;
    for (int i = 0; i < t->cols; i++) {
        t->a[i] = weight_of(rule, t->w[i], h[i], spread, more);
        sum = sum + t->a[i];
    }
    for (int l = 0; l < GW_FIT_LANES; l++) { /* a sub-block that no text has used: as all alike */
        if (!(sum[l] > 0.0f)) {
            for (int i = 0; i < t->cols; i++) {
                t->a[i][l] = 1.0f;
            }
        }
        out->weight[l] = sum[l];
    }
}

INLINE v8 symmetric(const gw_fit_rule *rule, const lanes *t) {
    v8 top = all(0.0f), p = all(0.0f);
    for (int i = 0; i < t->cols; i++) {
        v8 size = absolute(t->w[i]);
        p = pick(size > top, t->w[i], p);
        top = most(top, size);
    }
    m8 ordinary = top > all(TINY);
    p = pick(ordinary, p, all(1.0f));
    v8 best = all(-1.0f), d = all(0.0f);
    int before = rule->kind == GW_FIT_IQ4 ? -2 : -1; /* levels are not as far on either side */
    for (int k = before; k < rule->tries; k++) {     /* first n itself: of equals it is kept */
        float ask = (float)rule->n + (k < 0 ? 0.0f : rule->first + rule->step * (float)k);
        v8 r = all(k == -2 ? ask : -ask) / p, x = all(0.0f), s = all(0.0f);
        for (int i = 0; i < t->cols; i++) {
            v8 q = rule->kind == GW_FIT_IQ4
                       ? nearest_iq4(r * t->w[i])
                       : rounded(r * t->w[i], (float)-rule->n, (float)(rule->n - 1));
            v8 aq = t->a[i] * q;
            x = x + aq * t->w[i];
            s = s + aq * q;
        }
        m8 some = s > all(0.0f);
        v8 fit = x / pick(some, s, all(1.0f)), gain = fit * x;
        m8 better = some & (gain > best);
        best = pick(better, gain, best);
        d = pick(better, fit, d);
    }
    return pick(ordinary, d, all(0.0f));
}

/* From the codes of the range on, each code moves where A^2 / B grows: up to five sweeps. */
INLINE v8 swept(const gw_fit_rule *rule, const lanes *t) {
    v8 top = all(0.0f), p = all(0.0f), x = all(0.0f), s = all(0.0f), q[GW_FIT_COLUMNS];
    float low = (float)-rule->n, high = (float)(rule->n - 1);
    for (int i = 0; i < t->cols; i++) {
        v8 size = absolute(t->w[i]);
        p = pick(size > top, t->w[i], p);
        top = most(top, size);
    }
    m8 ordinary = top > all(TINY);
    v8 r = all((float)-rule->n) / pick(ordinary, p, all(1.0f));
    for (int i = 0; i < t->cols; i++) {
        q[i] = rounded(r * t->w[i], low, high);
        x = x + t->a[i] * t->w[i] * q[i];
        s = s + t->a[i] * q[i] * q[i];
    }
    for (int sweep = 0; sweep < 5; sweep++) {
        for (int i = 0; i < t->cols; i++) {
            v8 ax = t->a[i] * t->w[i], x1 = x - ax * q[i], s1 = s - t->a[i] * q[i] * q[i];
            m8 some = x1 > all(0.0f);
            v8 to = rounded(t->w[i] * s1 / pick(some, x1, all(1.0f)), low, high);
            v8 x2 = x1 + ax * to, s2 = s1 + t->a[i] * to * to;
            m8 better = some & (to != q[i]) & (s2 > all(0.0f)) & (x2 * x2 * s > x * x * s2);
            q[i] = pick(better, to, q[i]);
            x = pick(better, x2, x);
            s = pick(better, s2, s);
        }
    }
    m8 some = ordinary & (s > all(0.0f));
    return pick(some, x / pick(some, s, all(1.0f)), all(0.0f));
}

typedef struct line {
    v8 d, m;
} line;

/* d and m for these codes: least squares, m <= 0. */
INLINE line straight(v8 s, v8 l, v8 ll, v8 x, v8 xl) {
    v8 det = s * ll - l * l;
    m8 some = det > all(0.0f);
    det = pick(some, det, all(1.0f));
    v8 d = (s * xl - x * l) / det, m = (ll * x - l * xl) / det;
    m8 above = m > all(0.0f), any = ll > all(0.0f);
    v8 through = pick(any, xl / pick(any, ll, all(1.0f)), all(0.0f));
    m = pick(above, all(0.0f), m);
    d = pick(above, through, d);
    return (line){pick(some, d, all(-1.0f)), m};
}

INLINE line affine(const gw_fit_rule *rule, const lanes *t) {
    v8 low = all(0.0f), high = t->w[0], s = all(0.0f), x = all(0.0f);
    for (int i = 0; i < t->cols; i++) {
        low = least(low, t->w[i]);
        high = most(high, t->w[i]);
        s = s + t->a[i];
        x = x + t->a[i] * t->w[i];
    }
    v8 range = high - low;
    m8 ordinary = range > all(TINY);
    range = pick(ordinary, range, all(1.0f));
    v8 best = all(3.4e38f), least_value = low;
    line keep = {range / all((float)rule->n), low};
    for (int k = -1; k < rule->tries; k++) { /* first the range as it is */
        float ask = (float)rule->n + (k < 0 ? 0.0f : rule->first + rule->step * (float)k);
        v8 r = all(ask) / range, l = all(0.0f), ll = all(0.0f), xl = all(0.0f), e = all(0.0f);
        v8 q[GW_FIT_COLUMNS];
        for (int i = 0; i < t->cols; i++) {
            q[i] = rounded(r * (t->w[i] - low), 0.0f, (float)rule->n);
            v8 aq = t->a[i] * q[i];
            l = l + aq;
            ll = ll + aq * q[i];
            xl = xl + aq * t->w[i];
        }
        line f = straight(s, l, ll, x, xl);
        if (k < 0) {
            f = keep;
        }
        for (int i = 0; i < t->cols; i++) {
            v8 off = f.d * q[i] + f.m - t->w[i];
            e = e + t->a[i] * (rule->kind == GW_FIT_ABSOLUTE ? absolute(off) : off * off);
        }
        m8 better = (f.d > all(0.0f)) & (e < best);
        best = pick(better, e, best);
        keep.d = pick(better, f.d, keep.d);
        keep.m = pick(better, f.m, keep.m);
        low = keep.m; /* the next try begins there, as ggml's does: without importance it matters */
        range = pick(ordinary, high - low, all(1.0f));
        range = pick(range > all(TINY), range, all(1.0f));
    }
    keep.d = pick(ordinary, keep.d, all(0.0f));
    keep.m = pick(ordinary, keep.m, least_value);
    return keep;
}

GW_CLONES void gw_fit(const gw_fit_rule *rule, const gw_fit_in *in, gw_fit_out *out) {
    lanes t;
    t.cols = in->cols;
    gather(rule, in, &t, out);
    int has_low = rule->kind == GW_FIT_AFFINE || rule->kind == GW_FIT_ABSOLUTE;
    line f = {all(0.0f), all(0.0f)};
    if (has_low) {
        f = affine(rule, &t);
    } else {
        f.d = rule->kind == GW_FIT_SWEPT ? swept(rule, &t) : symmetric(rule, &t);
    }
    for (int l = 0; l < GW_FIT_LANES; l++) {
        out->scale[l] = f.d[l];
        out->low[l] = f.m[l];
    }
}

GW_CLONES int gw_fit_choose(const float *w, const float *importance, int cols, const float *ws,
                            const float *wm, int tries, float low, float high, int levels) {
    int best = 0;
    float least_error = 0.0f;
    for (int at = 0; at < tries; at += GW_FIT_LANES) {
        v8 scale = all(0.0f), zero = all(0.0f), e = all(0.0f);
        for (int l = 0; l < GW_FIT_LANES; l++) {
            int from = at + l < tries ? at + l : at;
            scale[l] = ws[from];
            zero[l] = wm[from];
        }
        m8 some = (scale != all(0.0f));
        v8 inverse = pick(some, all(1.0f) / pick(some, scale, all(1.0f)), all(0.0f));
        for (int i = 0; i < cols; i++) {
            v8 x = (all(w[i]) - zero) * inverse;
            v8 q = levels ? nearest_iq4(x) : rounded(x, low, high);
            v8 off = scale * q + zero - all(w[i]);
            e = e + all(importance != NULL ? importance[i] : 1.0f) * (off * off);
        }
        for (int l = 0; l < GW_FIT_LANES && at + l < tries; l++) {
            if (at + l == 0 || e[l] < least_error) {
                least_error = e[l];
                best = at + l;
            }
        }
    }
    return best;
}

/* ---- scales as numbers of a super-block ---------------------------------------------------- */

static int nearest(float x, int low, int high) {
    x = x < (float)low ? (float)low : x > (float)high ? (float)high : x;
    return (int)((x + 12582912.0f) - 12582912.0f);
}

/* Each code moves where it makes the fit A^2 / B larger, the others as they are. */
static float improve(const float *x, const float *weight, int n, int low, int high, int *q) {
    float a = 0.0f, b = 0.0f;
    for (int i = 0; i < n; i++) {
        a += weight[i] * x[i] * (float)q[i];
        b += weight[i] * (float)(q[i] * q[i]);
    }
    for (int sweep = 0; sweep < 5; sweep++) {
        int moved = 0;
        for (int i = 0; i < n; i++) {
            float old = (float)q[i], a1 = a - weight[i] * x[i] * old;
            float b1 = b - weight[i] * old * old;
            if (!(a1 > 0.0f && b1 > 0.0f)) {
                continue;
            }
            int to = nearest(x[i] * b1 / a1, low, high);
            float a2 = a1 + weight[i] * x[i] * (float)to;
            float b2 = b1 + weight[i] * (float)(to * to);
            if (to != q[i] && b2 > 0.0f && a2 * a2 * b > a * a * b2) {
                q[i] = to;
                a = a2;
                b = b2;
                moved++;
            }
        }
        if (moved == 0) {
            break;
        }
    }
    return b > 0.0f ? a / b : 0.0f;
}

float gw_fit_positive(const float *x, const float *weight, int n, int top, int *q) {
    float max = 0.0f, best = 0.0f, inverse = 0.0f;
    for (int i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
        q[i] = 0;
    }
    if (!(max > TINY)) {
        return 0.0f;
    }
    for (int k = 0; k < 9; k++) { /* 0, then -0.4 .. 0.4 */
        int step = k == 0 ? 0 : k <= 4 ? k - 5 : k - 4;
        float r = ((float)top + 0.1f * (float)step) / max, d = 1.0f / r, e = 0.0f;
        for (int i = 0; i < n; i++) {
            float off = x[i] - d * (float)nearest(r * x[i], 0, top);
            e += weight[i] * off * off;
        }
        if (k == 0 || e < best) {
            best = e;
            inverse = r;
        }
    }
    for (int i = 0; i < n; i++) {
        q[i] = nearest(inverse * x[i], 0, top);
    }
    return improve(x, weight, n, 0, top, q);
}

float gw_fit_signed(const float *x, const float *weight, int n, int top, int *q) {
    float size = 0.0f, p = 0.0f, best = -1.0f, d = 0.0f, inverse = 0.0f;
    for (int i = 0; i < n; i++) {
        if (GW_FABS(x[i]) > size) {
            size = GW_FABS(x[i]);
            p = x[i];
        }
        q[i] = 0;
    }
    if (!(size > TINY)) {
        return 0.0f;
    }
    for (int k = 0; k < 19; k++) { /* 0, then -9 .. 9 without it */
        int step = k == 0 ? 0 : k <= 9 ? k - 10 : k - 9;
        float r = -((float)top + 0.1f * (float)step) / p, a = 0.0f, b = 0.0f;
        for (int i = 0; i < n; i++) {
            float c = (float)nearest(r * x[i], -top, top - 1);
            a += weight[i] * x[i] * c;
            b += weight[i] * c * c;
        }
        if (b > 0.0f && a * a / b > best) {
            best = a * a / b;
            d = a / b;
            inverse = r;
        }
    }
    for (int i = 0; i < n; i++) {
        q[i] = nearest(inverse * x[i], -top, top - 1);
    }
    return d;
}
