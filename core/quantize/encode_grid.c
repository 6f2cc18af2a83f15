/* core/quantize/encode_grid.c - formats with codebooks: IQ2_XXS to IQ3_S, where sizes are points
 * and signs stand beside them, and IQ1, whose points are of -1, 0, 1 and an eighth.
 *
 * A code is a column's signed value as an index of levels, so that what lies around (decoding,
 * error feedback) need not know of points; eight columns are coded together. Sub-blocks have their
 * scale by search, those become odd numbers times the block's d, and with d as stored all points
 * are looked for again.
 */
#include "core/quantize/codebook.h"
#include "core/quantize/encode_rows.h"

enum { COLUMNS = 32, VECTORS = 8, EIGHT = 8 };

/* Which signs there are, or which eighth. */
typedef enum extra { SIGNS, EVEN_SIGNS, EIGHTH_OF_SUB, EIGHTH_OF_EIGHT } extra;

typedef struct form {
    extra extra;
    int top;           /* scales are 2 n + 1 of d, n in 0 .. top                            */
    float unit;        /* d of the file times this, times 2 n + 1: a sub-block's scale      */
    float size;        /* the largest level                                                 */
    float first, step; /* tries: it is first + step k of the largest value                 */
    int tries;
    float spread;  /* weights: importance * sqrt(spread * s2 + w^2), s2 the mean square */
    float plain;   /* without importance: w^2 + plain * s2                              */
    float stretch; /* d by least squares times this                                     */
} form;

static const form forms[] = {
    {EVEN_SIGNS, 15, 0.125f, 43, 0.58f, 0.04f, 13, 1.0f, 0.0f, 1.0f},
    {EVEN_SIGNS, 15, 0.125f, 43, 0.62f, 0.04f, 13, 1.0f, 0.0f, 1.0f},
    {SIGNS, 15, 0.125f, 43, 0.62f, 0.04f, 13, 2.0f, 0.5f, 1.0f},
    {EVEN_SIGNS, 15, 0.25f, 62, 0.74f, 0.03f, 13, 2.0f, 0.0f, 1.0f},
    {SIGNS, 15, 1.0f, 15, 0.74f, 0.03f, 13, 2.0f, 0.0f, 1.0f},
    {EIGHTH_OF_SUB, 7, 0.125f, 8, 0.30f, 0.07f, 10, 2.0f, 0.0f, 1.0f},
    {EIGHTH_OF_EIGHT, 7, 0.125f, 8, 0.34f, 0.07f, 10, 2.0f, 0.0f, 1.0f},
};

static const form *form_of(const gw_coding *e) {
    static const gw_fmt order[] = {GW_FMT_IQ2_XXS, GW_FMT_IQ2_XS, GW_FMT_IQ2_S, GW_FMT_IQ3_XXS,
                                   GW_FMT_IQ3_S,   GW_FMT_IQ1_S,  GW_FMT_IQ1_M};
    int i = 0;
    while (order[i] != e->fmt) {
        i++;
    }
    return &forms[i];
}

static int is_ternary(const form *f) { return f->extra >= EIGHTH_OF_SUB; }

/* ---- a sub-block ---------------------------------------------------------------------------- */

/* Columns as they are coded: sizes with their signs apart, or of IQ1 values as they are. */
typedef struct sub {
    const form *f;
    const gw_codebook *book;
    int n; /* columns */
    float x[COLUMNS], a[COLUMNS], max;
    gw_u8 minus[COLUMNS];
} sub;

/* What the columns become at a scale. */
typedef struct found {
    gw_u16 key[VECTORS];
    gw_u8 more[VECTORS]; /* IQ1: an eighth more, else less */
    float error, xl, ll;
} found;

/* An odd number of minus signs among eight: the one turns whose turning costs least. */
static void make_even(sub *t, int from, float scale) {
    int odd = 0, best = from;
    float least = 3.4e38f;
    for (int i = from; i < from + EIGHT; i++) {
        float x = t->x[i], smallest = scale * t->book->sizes[0], near = 3.4e38f;
        for (int k = 0; k < t->book->n_sizes; k++) {
            float off = scale * t->book->sizes[k] - x;
            near = off * off < near ? off * off : near;
        }
        float cost = t->a[i] * ((smallest + x) * (smallest + x) - near);
        odd ^= t->minus[i];
        best = cost < least ? i : best;
        least = cost < least ? cost : least;
    }
    if (odd) {
        t->minus[best] ^= 1;
        t->x[best] = -t->x[best];
    }
}

/* scale 0: not known yet. */
static void take(const gw_coding *e, const float *w, const float *a, int n, float scale, sub *t) {
    float sum = 0.0f;
    t->f = form_of(e);
    t->book = gw_codebook_of(e->fmt);
    t->n = n;
    t->max = 0.0f;
    for (int i = 0; i < n; i++) {
        float size = GW_FABS(w[i]);
        t->minus[i] = w[i] < 0.0f;
        t->x[i] = is_ternary(t->f) ? w[i] : size;
        t->a[i] = a[i];
        t->max = size > t->max ? size : t->max;
        sum += a[i];
    }
    for (int i = 0; i < n && !(sum > 0.0f); i++) { /* columns that no text has used: as all alike */
        t->a[i] = 1.0f;
    }
    for (int i = 0; i < n && t->f->extra == EVEN_SIGNS; i += EIGHT) {
        make_even(t, i, scale > 0.0f ? scale : t->max / t->f->size);
    }
}

/* more: of EIGHTH_OF_SUB. */
static void find(const sub *t, float scale, int more, found *out) {
    const gw_codebook *b = t->book;
    float less_sizes[3], more_sizes[3];
    *out = (found){.error = 0.0f};
    for (int k = 0; k < 3; k++) {
        less_sizes[k] = b->sizes[k] - 1.0f;
        more_sizes[k] = b->sizes[k] + 1.0f;
    }
    for (int v = 0; v * b->dim < t->n; v++) {
        const float *x = t->x + v * b->dim, *a = t->a + v * b->dim;
        gw_near near;
        if (t->f->extra == EIGHTH_OF_EIGHT) {
            near = gw_codebook_nearest(b, x, a, scale, less_sizes);
            gw_near other = gw_codebook_nearest(b, x, a, scale, more_sizes);
            out->more[v] = other.error < near.error;
            near = out->more[v] ? other : near;
        } else if (t->f->extra == EIGHTH_OF_SUB) {
            near = gw_codebook_nearest(b, x, a, scale, more ? more_sizes : less_sizes);
            out->more[v] = (gw_u8)more;
        } else {
            near = gw_codebook_nearest(b, x, a, scale, b->sizes);
        }
        out->key[v] = near.key;
        out->error += near.error;
        out->xl += near.xl;
        out->ll += near.ll;
    }
}

/* What a scale of its own would save: the error is that of zeros less this. */
static float gain_of(const found *o) {
    float gain = o->xl > 0.0f && o->ll > 0.0f ? o->xl / o->ll * o->xl : 0.0f;
    return gain < 3e38f ? gain : 0.0f; /* sums beyond float's range say nothing */
}

/* The scale of least error and, of EIGHTH_OF_SUB, which eighth; 0: nothing is there. */
static float search_scale(const sub *t, int *more) {
    const form *f = t->f;
    float best = 0.0f, scale = t->max / f->size;
    found o;
    *more = 0;
    if (!(t->max > 1e-15f)) {
        return 0.0f;
    }
    for (int k = 0; k < f->tries * (f->extra == EIGHTH_OF_SUB ? 2 : 1); k++) {
        find(t, t->max / f->size * (f->first + f->step * (float)(k % f->tries)), k / f->tries, &o);
        float gain = gain_of(&o);
        if (gain > best) {
            best = gain;
            scale = o.xl / o.ll;
            *more = k / f->tries;
        }
    }
    for (int k = 0; k < 2; k++) { /* points at the scale that fits, and the scale that fits those */
        find(t, scale, *more, &o);
        float gain = gain_of(&o);
        if (!(gain > best)) {
            break;
        }
        best = gain;
        scale = o.xl / o.ll;
    }
    return scale;
}

static void put_codes(const sub *t, const found *o, gw_i16 *code) {
    const gw_codebook *b = t->book;
    for (int i = 0; i < t->n; i++) {
        int v = i / b->dim, c = o->key[v] >> b->bits * (i % b->dim) & ((1 << b->bits) - 1);
        code[i] = (gw_i16)(is_ternary(t->f) ? 2 * c + o->more[v]
                           : t->minus[i]    ? b->n_sizes - 1 - c
                                            : b->n_sizes + c);
    }
}

/* ---- a block -------------------------------------------------------------------------------- */

static float scale_of(const form *f, const gw_coded *b, int n) {
    return gw_f16_to_f32(b->d) * f->unit * (float)(2 * n + 1);
}

static int nearest_odd(float x, int top) { /* n of 2 n + 1 */
    x = 0.5f * (x - 1.0f);
    x = !(x > 0.0f) ? 0.0f : x > (float)top ? (float)top : x;
    return (int)((x + 12582912.0f) - 12582912.0f);
}

/* d, of which odd numbers come nearest to the scales: error of sub-block j ll_j (d (2 n + 1) - s)^2
 */
static float common(const form *f, const float *scale, const float *ll, int subs) {
    float max = 0.0f, best, least = 3.4e38f;
    for (int s = 0; s < subs; s++) {
        max = scale[s] > max ? scale[s] : max;
    }
    best = max / (float)(2 * f->top + 1);
    for (int k = -8; k <= 8; k++) {
        float d = max / ((float)(2 * f->top + 1) + 0.35f * (float)k), error = 0.0f;
        for (int s = 0; s < subs; s++) {
            float off = d * (float)(2 * nearest_odd(scale[s] / d, f->top) + 1) - scale[s];
            error += ll[s] * off * off;
        }
        if (error < least) {
            least = error;
            best = d;
        }
    }
    return best;
}

static void weigh(const form *f, const float *w, const float *h, float *a) {
    double squares = 0.0;
    for (int i = 0; i < GW_CODED_BLOCK; i++) {
        squares += (double)w[i] * (double)w[i];
    }
    float mean = (float)(squares / GW_CODED_BLOCK);
    for (int i = 0; i < GW_CODED_BLOCK; i++) {
        a[i] = h != NULL ? h[i] * GW_SQRT(f->spread * mean + w[i] * w[i])
                         : w[i] * w[i] + f->plain * mean;
    }
}

/* Of a block without a scale: a point that every codebook has, the smallest one. */
static void no_scale(const gw_coding *e, gw_coded *b) {
    const gw_codebook *book = gw_codebook_of(e->fmt);
    for (int i = 0; i < e->block; i++) {
        b->code[i] = (gw_i16)(is_ternary(form_of(e)) ? 3 : book->n_sizes);
    }
}

/* Scales as numbers of d, then d again for the points that these lead to. */
static void number_scales(const gw_coding *e, const sub *t, const float *scale, const int *more,
                          float d, gw_coded *b) {
    const form *f = t->f;
    int subs = e->block / e->sub;
    float xl = 0.0f, ll = 0.0f;
    for (int s = 0; s < subs; s++) {
        int middle = nearest_odd(scale[s] / d, f->top), chosen = middle;
        found best = {.error = 3.4e38f}, o;
        for (int k = 0; k < 3; k++) { /* 0, -1, 1 */
            int n = middle + (k == 0 ? 0 : 2 * k - 3);
            if (n < 0 || n > f->top) {
                continue;
            }
            find(&t[s], d * (float)(2 * n + 1), more[s], &o);
            if (o.error < best.error) {
                best = o;
                chosen = n;
            }
        }
        float odd = (float)(2 * chosen + 1);
        b->scale[s] = (gw_i16)chosen;
        b->low[s] = (gw_i16)more[s];
        xl += odd * best.xl;
        ll += odd * odd * best.ll;
    }
    d = xl > 0.0f && ll > 0.0f ? xl / ll : d;
    b->d = gw_encode_f16(d * f->stretch / f->unit);
}

static void search_one(const gw_coding *e, const float *w, const float *h, gw_coded *b) {
    const form *f = form_of(e);
    int subs = e->block / e->sub, more[GW_CODED_SUBS];
    float a[GW_CODED_BLOCK], scale[GW_CODED_SUBS], ll[GW_CODED_SUBS];
    sub t[GW_CODED_SUBS];
    found o;
    if (!gw_all_finite(w, (size_t)e->block)) {
        gw_coded_broken(b, subs);
        no_scale(e, b);
        return;
    }
    memset(b, 0, sizeof *b);
    weigh(f, w, h, a);
    for (int s = 0; s < subs; s++) {
        take(e, w + s * e->sub, a + s * e->sub, e->sub, 0.0f, &t[s]);
        scale[s] = search_scale(&t[s], &more[s]);
        find(&t[s], scale[s], more[s], &o);
        ll[s] = o.ll;
    }
    float d = common(f, scale, ll, subs);
    if (!(d > 0.0f)) {
        no_scale(e, b);
        return;
    }
    number_scales(e, t, scale, more, d, b);
    for (int s = 0; s < subs; s++) {
        b->ws[s] = scale_of(f, b, b->scale[s]);
        find(&t[s], b->ws[s], b->low[s], &o);
        put_codes(&t[s], &o, b->code + s * e->sub);
    }
}

static void search(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    for (int b = 0; b < in->blocks; b++) {
        const float *h = in->importance;
        search_one(e, in->w + (size_t)b * in->w_stride,
                   h != NULL ? h + (size_t)b * in->importance_stride : NULL, &out[b]);
    }
}

/* ---- when their turn has come --------------------------------------------------------------- */

static void refit(const gw_coding *e, int s, const float *w, const float *importance, gw_coded *b) {
    const form *f = form_of(e);
    int middle = b->scale[s], both = f->extra == EIGHTH_OF_SUB;
    float least = 3.4e38f;
    sub t;
    if (!(b->ws[s] > 0.0f) || !gw_all_finite(w, (size_t)e->sub)) {
        return;
    }
    for (int n = middle - 2; n <= middle + 2; n++) {
        for (int more = 0; more < 1 + both && n >= 0 && n <= f->top; more++) {
            float scale = scale_of(f, b, n);
            found o;
            take(e, w, importance, e->sub, scale, &t);
            find(&t, scale, more, &o);
            if (o.error < least) {
                least = o.error;
                b->scale[s] = (gw_i16)n;
                b->low[s] = (gw_i16)more;
                b->ws[s] = scale;
            }
        }
    }
}

static void code_eight(const gw_coding *e, const gw_coded *b, int s, const float *w, const float *a,
                       gw_i16 *code) {
    sub t;
    found o;
    if (!(b->ws[s] > 0.0f) || !gw_all_finite(w, EIGHT)) {
        gw_coded none;
        no_scale(e, &none);
        memcpy(code, none.code, EIGHT * sizeof *code);
        return;
    }
    take(e, w, a, EIGHT, b->ws[s], &t);
    find(&t, b->ws[s], b->low[s], &o);
    put_codes(&t, &o, code);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void put_u16(gw_u8 *to, unsigned bits) {
    to[0] = (gw_u8)(bits & 255u);
    to[1] = (gw_u8)(bits >> 8 & 255u);
}

static void put_u32(gw_u8 *to, gw_u32 bits) {
    put_u16(to, bits & 0xffffu);
    put_u16(to + 2, bits >> 16);
}

/* Number of the point of vector v of the block. */
static unsigned point_of(const gw_coding *e, const gw_coded *b, int v) {
    const gw_codebook *book = gw_codebook_of(e->fmt);
    unsigned key = 0;
    for (int i = 0; i < book->dim; i++) {
        int code = b->code[v * book->dim + i], n = book->n_sizes;
        int c = is_ternary(form_of(e)) ? code / 2 : code < n ? n - 1 - code : code - n;
        key |= (unsigned)c << book->bits * i;
    }
    return (unsigned)book->at[key];
}

/* Bit i: minus sign of the i-th of eight columns. */
static unsigned signs_of(const gw_coding *e, const gw_coded *b, int eight) {
    unsigned signs = 0;
    for (int i = 0; i < EIGHT; i++) {
        signs |= (unsigned)(b->code[EIGHT * eight + i] <= e->code_max / 2) << i;
    }
    return signs;
}

static void pack_iq2_xxs(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    put_u16(o, b->d);
    for (int s = 0; s < 8; s++) {
        gw_u32 rest = (gw_u32)b->scale[s] << 28;
        for (int k = 0; k < 4; k++) {
            o[2 + 8 * s + k] = (gw_u8)point_of(e, b, 4 * s + k);
            rest |= (gw_u32)(signs_of(e, b, 4 * s + k) & 127u) << 7 * k;
        }
        put_u32(o + 2 + 8 * s + 4, rest);
    }
}

static void put_pairs(const gw_coded *b, int pairs, gw_u8 *scales) {
    for (int i = 0; i < pairs; i++) {
        scales[i] = (gw_u8)(b->scale[2 * i] | b->scale[2 * i + 1] << 4);
    }
}

static void pack_iq2_xs(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    put_u16(o, b->d);
    for (int v = 0; v < 32; v++) {
        put_u16(o + 2 + 2 * v, point_of(e, b, v) | (signs_of(e, b, v) & 127u) << 9);
    }
    put_pairs(b, 8, o + 66);
}

static void pack_iq2_s(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    put_u16(o, b->d);
    memset(o + 66, 0, 8);
    for (int v = 0; v < 32; v++) {
        unsigned point = point_of(e, b, v);
        o[2 + v] = (gw_u8)(point & 255u);
        o[34 + v] = (gw_u8)signs_of(e, b, v);
        o[66 + v / 4] = (gw_u8)(o[66 + v / 4] | point >> 8 << 2 * (v % 4));
    }
    put_pairs(b, 8, o + 74);
}

static void pack_iq3_xxs(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    put_u16(o, b->d);
    for (int s = 0; s < 8; s++) {
        gw_u32 rest = (gw_u32)b->scale[s] << 28;
        for (int k = 0; k < 8; k++) {
            o[2 + 8 * s + k] = (gw_u8)point_of(e, b, 8 * s + k);
        }
        for (int k = 0; k < 4; k++) {
            rest |= (gw_u32)(signs_of(e, b, 4 * s + k) & 127u) << 7 * k;
        }
        put_u32(o + 66 + 4 * s, rest);
    }
}

static void pack_iq3_s(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    put_u16(o, b->d);
    memset(o + 66, 0, 8);
    for (int v = 0; v < 64; v++) {
        unsigned point = point_of(e, b, v);
        o[2 + v] = (gw_u8)(point & 255u);
        o[66 + v / 8] = (gw_u8)(o[66 + v / 8] | point >> 8 << v % 8);
    }
    for (int i = 0; i < 32; i++) {
        o[74 + i] = (gw_u8)signs_of(e, b, i);
    }
    put_pairs(b, 4, o + 106);
}

static void pack_iq1_s(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    put_u16(o, b->d);
    for (int s = 0; s < 8; s++) {
        unsigned less = (b->code[32 * s] & 1) == 0;
        unsigned rest = (unsigned)b->scale[s] << 12 | less << 15;
        for (int k = 0; k < 4; k++) {
            unsigned point = point_of(e, b, 4 * s + k);
            o[2 + 4 * s + k] = (gw_u8)(point & 255u);
            rest |= point >> 8 << 3 * k;
        }
        put_u16(o + 34 + 2 * s, rest);
    }
}

static void pack_iq1_m(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    memset(o + 32, 0, 16);
    for (int v = 0; v < 32; v++) {
        unsigned point = point_of(e, b, v), less = (b->code[EIGHT * v] & 1) == 0;
        o[v] = (gw_u8)(point & 255u);
        o[32 + v / 2] = (gw_u8)(o[32 + v / 2] | (point >> 8 | less << 3) << v % 2 * 4);
    }
    for (int i = 0; i < 4; i++) {
        unsigned word = (unsigned)(b->d >> 4 * i & 15) << 12;
        for (int k = 0; k < 4; k++) {
            word |= (unsigned)b->scale[4 * i + k] << 3 * k;
        }
        put_u16(o + 48 + 2 * i, word);
    }
}

static const float iq2[] = {-43, -25, -8, 8, 25, 43}, iq1[] = {-9, -7, -1, 1, 7, 9};
static const float iq3_xxs[] = {-62, -52, -44, -36, -28, -20, -12, -4,
                                4,   12,  20,  28,  36,  44,  52,  62};
static const float iq3_s[] = {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};

#define GRID(FMT, name, SUB, HIGH, LEVELS)                                                         \
    const gw_coding gw_coding_##name = {.fmt = GW_FMT_##FMT,                                       \
                                        .block = 256,                                              \
                                        .sub = SUB,                                                \
                                        .code_max = HIGH,                                          \
                                        .levels = LEVELS,                                          \
                                        .together = EIGHT,                                         \
                                        .by_importance = 1,                                        \
                                        .search = search,                                          \
                                        .refit = refit,                                            \
                                        .code_together = code_eight,                               \
                                        .pack = pack_##name};
GRID(IQ2_XXS, iq2_xxs, 32, 5, iq2)
GRID(IQ2_XS, iq2_xs, 16, 5, iq2)
GRID(IQ2_S, iq2_s, 16, 5, iq2)
GRID(IQ3_XXS, iq3_xxs, 32, 15, iq3_xxs)
GRID(IQ3_S, iq3_s, 32, 15, iq3_s)
GRID(IQ1_S, iq1_s, 32, 5, iq1)
GRID(IQ1_M, iq1_m, 16, 5, iq1)
