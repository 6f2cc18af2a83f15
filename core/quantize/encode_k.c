/* core/quantize/encode_k.c - super-blocks of 256: Q2_K to Q6_K and IQ4_XS. Each sub-block's scale
 * (and minimum) by search, those as integers against the block's binary16, then all codes. */
#include "core/quantize/encode_rows.h"
#include "core/quantize/fit.h"
#include "core/tensor/blocks.h"

/* What a super-block's formats differ in besides their bytes. */
typedef struct k_form {
    gw_fit_rule plain, weighted;
    int top; /* of integer scales: 0 .. top with minimums, else -top .. top - 1 */
    int affine;
} k_form;

/* clang-format off */
static const k_form forms[] = {
    {{GW_FIT_ABSOLUTE, 3, -0.5f, 0.1f, 16, GW_WEIGHT_SIZE, 0.0f},
     {GW_FIT_AFFINE, 3, -0.9f, 0.05f, 37, GW_WEIGHT_MEAN, 1.0f}, 15, 1},
    {{GW_FIT_SWEPT, 4, 0.0f, 0.0f, 0, GW_WEIGHT_SQUARE, 0.0f},
     {GW_FIT_SYMMETRIC, 4, -0.9f, 0.1f, 19, GW_WEIGHT_MEAN, 2.0f}, 32, 0},
    {{GW_FIT_AFFINE, 15, -1.0f, 0.1f, 21, GW_WEIGHT_SIZE_MORE, 0.0f},
     {GW_FIT_AFFINE, 15, -0.9f, 0.05f, 37, GW_WEIGHT_MEAN, 2.0f}, 63, 1},
    {{GW_FIT_AFFINE, 31, -0.5f, 0.1f, 16, GW_WEIGHT_SIZE_MORE, 0.0f},
     {GW_FIT_AFFINE, 31, -0.9f, 0.05f, 37, GW_WEIGHT_MEAN, 2.0f}, 63, 1},
    {{GW_FIT_SYMMETRIC, 32, -0.9f, 0.1f, 19, GW_WEIGHT_SQUARE, 0.0f},
     {GW_FIT_SYMMETRIC, 32, -0.9f, 0.1f, 19, GW_WEIGHT_GIVEN, 0.0f}, 128, 0},
    {{GW_FIT_IQ4, 127, -7.0f, 1.0f, 15, GW_WEIGHT_SQUARE, 0.0f},
     {GW_FIT_IQ4, 127, -7.0f, 1.0f, 15, GW_WEIGHT_MEAN, 2.0f}, 32, 0},
};
/* clang-format on */

static const k_form *form_of(const gw_coding *e) {
    switch (e->fmt) {
    case GW_FMT_Q2_K:
        return &forms[0];
    case GW_FMT_Q3_K:
        return &forms[1];
    case GW_FMT_Q4_K:
        return &forms[2];
    case GW_FMT_Q5_K:
        return &forms[3];
    case GW_FMT_Q6_K:
        return &forms[4];
    default:
        return &forms[5];
    }
}

static int clamped(float x, int low, int high) {
    x = x < (float)low ? (float)low : x > (float)high ? (float)high : x;
    return (int)((x + 12582912.0f) - 12582912.0f);
}

static float largest_of(const float *x, int n) {
    float top = 0.0f;
    for (int i = 0; i < n; i++) {
        top = x[i] > top ? x[i] : top;
    }
    return top;
}

/* Numbers x [n] >= 0 as d q: with weights by search, else by the largest. */
static float positive(const float *x, const float *weight, int n, int top, int *q) {
    if (weight != NULL) {
        return gw_fit_positive(x, weight, n, top, q);
    }
    float max = largest_of(x, n);
    float r = max > 1e-15f ? (float)top / max : 0.0f;
    for (int i = 0; i < n; i++) {
        q[i] = clamped(r * x[i], 0, top);
    }
    return max / (float)top;
}

static float either_sign(const float *x, const float *weight, int n, int top, int *q) {
    if (weight != NULL) {
        return gw_fit_signed(x, weight, n, top, q);
    }
    float size = 0.0f, p = 0.0f;
    for (int i = 0; i < n; i++) {
        p = GW_FABS(x[i]) > size ? x[i] : p;
        size = GW_FABS(p);
    }
    float r = size > 1e-15f ? -(float)top / p : 0.0f;
    for (int i = 0; i < n; i++) {
        q[i] = clamped(r * x[i], -top, top - 1);
    }
    return p / -(float)top;
}

/* ws and wm of sub-block s from its integers. */
static void set_sub(const k_form *k, gw_coded *b, int s) {
    b->ws[s] = gw_f16_to_f32(b->d) * (float)b->scale[s];
    b->wm[s] = k->affine ? -(gw_f16_to_f32(b->m) * (float)b->low[s]) : 0.0f;
}

static void find_scales(const gw_coding *e, const k_form *k, const float *w,
                        const float *importance, gw_fit_out out[2]) {
    int subs = e->block / e->sub;
    double squares = 0.0;
    for (int i = 0; i < e->block; i++) {
        squares += (double)w[i] * (double)w[i];
    }
    for (int from = 0; from < subs; from += GW_FIT_LANES) {
        gw_fit_in in = {.lanes = GW_FIT_LANES, .cols = e->sub};
        for (int l = 0; l < GW_FIT_LANES; l++) {
            in.w[l] = w + (from + l) * e->sub;
            in.importance[l] = importance != NULL ? importance + (from + l) * e->sub : NULL;
            in.mean_square[l] = (float)(squares / e->block);
        }
        gw_fit(importance != NULL ? &k->weighted : &k->plain, &in, &out[from / GW_FIT_LANES]);
    }
}

static void search_one(const gw_coding *e, const float *w, const float *importance, gw_coded *b) {
    const k_form *k = form_of(e);
    int subs = e->block / e->sub, q[GW_CODED_SUBS], m[GW_CODED_SUBS] = {0};
    if (!gw_all_finite(w, (size_t)e->block)) {
        gw_coded_broken(b, subs);
        return;
    }
    gw_fit_out fit[2];
    float scale[GW_CODED_SUBS], low[GW_CODED_SUBS], weight[GW_CODED_SUBS], total = 0.0f;
    find_scales(e, k, w, importance, fit);
    for (int s = 0; s < subs; s++) {
        const gw_fit_out *f = &fit[s / GW_FIT_LANES];
        scale[s] = f->scale[s % GW_FIT_LANES];
        low[s] = -f->low[s % GW_FIT_LANES];
        weight[s] = f->weight[s % GW_FIT_LANES];
        total += weight[s];
    }
    int by_weight = importance != NULL && total > 0.0f;
    /* Two scales of Q6_K and IQ4_XS are of either sign and by the largest in ggml. */
    int searched = by_weight && (k->affine || e->fmt == GW_FMT_Q3_K);
    float d = k->affine ? positive(scale, searched ? weight : NULL, subs, k->top, q)
                        : either_sign(scale, searched ? weight : NULL, subs, k->top, q);
    float dm = k->affine ? positive(low, searched ? weight : NULL, subs, k->top, m) : 0.0f;
    b->d = gw_encode_f16(d);
    b->m = gw_encode_f16(dm);
    for (int s = 0; s < subs; s++) {
        b->scale[s] = (gw_i16)q[s];
        b->low[s] = (gw_i16)m[s];
        set_sub(k, b, s);
        gw_codes_of(e, b, s, w + s * e->sub, e->sub, b->code + s * e->sub);
    }
}

static void search(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    for (int b = 0; b < in->blocks; b++) {
        const float *h = in->importance;
        search_one(e, in->w + (size_t)b * in->w_stride,
                   h != NULL ? h + (size_t)b * in->importance_stride : NULL, &out[b]);
    }
}

/* ---- the integers of a sub-block again ------------------------------------------------------ */

enum { AROUND = 5, WINDOW = 2 * (2 * AROUND + 1) };

/* Integers within AROUND of a and of b, a's first; their number. */
static int candidates(int a, int b, int low, int high, int *out) {
    int n = 0;
    for (int side = 0; side < 2; side++) {
        int mid = side == 0 ? a : b;
        for (int i = mid - AROUND; i <= mid + AROUND; i++) {
            int again = side == 1 && i >= a - AROUND && i <= a + AROUND;
            if (i >= low && i <= high && !again) {
                out[n++] = i;
            }
        }
    }
    return n;
}

static void refit(const gw_coding *e, int s, const float *w, const float *importance, gw_coded *b) {
    const k_form *k = form_of(e);
    float d = gw_f16_to_f32(b->d), dm = gw_f16_to_f32(b->m);
    if (!(d != 0.0f) || d != d || !gw_all_finite(w, (size_t)e->sub)) {
        return;
    }
    float low = 0.0f, high = w[0], p = 0.0f;
    for (int i = 0; i < e->sub; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
        p = GW_FABS(w[i]) > GW_FABS(p) ? w[i] : p;
    }
    int scales[WINDOW], mins[WINDOW], n_min = 1, n_scale;
    int bottom = k->affine ? 0 : -k->top, top = k->affine ? k->top : k->top - 1;
    if (k->affine) {
        float ask = (high - low) / (float)e->code_max / d;
        n_scale = candidates(b->scale[s], clamped(ask, 0, k->top), 0, k->top, scales);
        float ask_min = dm > 0.0f ? -low / dm : 0.0f;
        n_min = candidates(b->low[s], clamped(ask_min, 0, k->top), 0, k->top, mins);
    } else {
        float first = e->levels != NULL ? e->levels[0] : (float)e->code_min;
        n_scale = candidates(b->scale[s], clamped(p / first / d, bottom, top), bottom, top, scales);
        mins[0] = 0;
    }
    float ws[GW_REFIT_TRIES], wm[GW_REFIT_TRIES];
    for (int i = 0; i < n_scale * n_min; i++) {
        ws[i] = d * (float)scales[i / n_min];
        wm[i] = k->affine ? -(dm * (float)mins[i % n_min]) : 0.0f;
    }
    int best = gw_fit_choose(w, importance, e->sub, ws, wm, n_scale * n_min, (float)e->code_min,
                             (float)e->code_max, e->levels != NULL);
    b->scale[s] = (gw_i16)scales[best / n_min];
    b->low[s] = (gw_i16)mins[best % n_min];
    set_sub(k, b, s);
}
_Static_assert(WINDOW *WINDOW <= GW_REFIT_TRIES, "all pairs of a refit");

/* ---- bytes ---------------------------------------------------------------------------------- */

static void put_u16(gw_u8 *to, gw_u16 bits) {
    to[0] = (gw_u8)(bits & 255u);
    to[1] = (gw_u8)(bits >> 8);
}

/* Two bits of code - low_code of each weight, four sub-blocks of 32 a byte; the rest, from bit 2
 * on, one bit a sub-block in high (NULL: none). */
static void put_two_bits(const gw_coded *b, int plus, gw_u8 *codes, gw_u8 *high) {
    for (int i = 0; i < 256; i++) {
        int c = b->code[i] + plus, sub = i / 32;
        gw_u8 *at = &codes[sub / 4 * 32 + i % 32];
        *at = (gw_u8)(*at | (c & 3) << 2 * (sub % 4));
        if (high != NULL) {
            high[i % 32] = (gw_u8)(high[i % 32] | (c >> 2) << sub);
        }
    }
}

static void pack_q2_k(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q2_k *o = block;
    (void)e;
    memset(o, 0, sizeof *o);
    put_u16(o->d, b->d);
    put_u16(o->dmin, b->m);
    for (int s = 0; s < 16; s++) {
        o->scales[s] = (gw_u8)(b->scale[s] | b->low[s] << 4);
    }
    put_two_bits(b, 0, o->codes, NULL);
}

static void pack_q3_k(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q3_k *o = block;
    (void)e;
    memset(o, 0, sizeof *o);
    put_u16(o->d, b->d);
    for (int s = 0; s < 16; s++) {
        int sc = b->scale[s] + 32;
        o->scales[s % 8] = (gw_u8)(o->scales[s % 8] | (sc & 15) << (s / 8 * 4));
        o->scales[8 + s % 4] = (gw_u8)(o->scales[8 + s % 4] | (sc >> 4) << (s / 4 * 2));
    }
    put_two_bits(b, 4, o->codes, o->high);
}

/* Eight scales and minimums of six bits in 12 bytes (blocks.h). */
static void put_six_bits(const gw_coded *b, gw_u8 *scales) {
    memset(scales, 0, 12);
    for (int s = 0; s < 8; s++) {
        int sc = b->scale[s], m = b->low[s];
        if (s < 4) {
            scales[s] = (gw_u8)(scales[s] | sc);
            scales[s + 4] = (gw_u8)(scales[s + 4] | m);
        } else {
            scales[s + 4] = (gw_u8)((sc & 15) | (m & 15) << 4);
            scales[s - 4] = (gw_u8)(scales[s - 4] | (sc >> 4) << 6);
            scales[s] = (gw_u8)(scales[s] | (m >> 4) << 6);
        }
    }
}

static void put_nibbles(const gw_coded *b, gw_u8 *nibbles) {
    for (int t = 0; t < 4; t++) {
        for (int i = 0; i < 32; i++) {
            nibbles[32 * t + i] =
                (gw_u8)((b->code[64 * t + i] & 15) | (b->code[64 * t + 32 + i] & 15) << 4);
        }
    }
}

static void pack_q4_k(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q4_k *o = block;
    (void)e;
    put_u16(o->d, b->d);
    put_u16(o->dmin, b->m);
    put_six_bits(b, o->scales);
    put_nibbles(b, o->nibbles);
}

static void pack_q5_k(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q5_k *o = block;
    (void)e;
    memset(o, 0, sizeof *o);
    put_u16(o->d, b->d);
    put_u16(o->dmin, b->m);
    put_six_bits(b, o->scales);
    put_nibbles(b, o->nibbles);
    for (int i = 0; i < 256; i++) {
        o->high[i % 32] = (gw_u8)(o->high[i % 32] | (b->code[i] >> 4) << (i / 32));
    }
}

static void pack_q6_k(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q6_k *o = block;
    (void)e;
    memset(o, 0, sizeof *o);
    put_u16(o->d, b->d);
    for (int s = 0; s < 16; s++) {
        o->scales[s] = (gw_i8)b->scale[s];
    }
    for (int i = 0; i < 256; i++) {
        int c = b->code[i] + 32, sub = i / 32, t = sub / 4, j = sub % 4;
        gw_u8 *low = &o->low[64 * t + 32 * (j % 2) + i % 32], *high = &o->high[32 * t + i % 32];
        *low = (gw_u8)(*low | (c & 15) << (j / 2 * 4));
        *high = (gw_u8)(*high | (c >> 4) << 2 * j);
    }
}

static void pack_iq4_xs(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_iq4_xs *o = block;
    gw_u32 high = 0;
    (void)e;
    memset(o, 0, sizeof *o);
    put_u16(o->d, b->d);
    for (int s = 0; s < 8; s++) {
        int sc = b->scale[s] + 32;
        o->scales_low[s / 2] = (gw_u8)(o->scales_low[s / 2] | (sc & 15) << (s % 2 * 4));
        high |= (gw_u32)(sc >> 4) << 2 * s;
        for (int j = 0; j < 16; j++) {
            o->nibbles[16 * s + j] = (gw_u8)(b->code[32 * s + j] | b->code[32 * s + 16 + j] << 4);
        }
    }
    put_u16(o->scales_high, (gw_u16)high);
}

const float gw_iq4_floats[16] = {GW_IQ4_LEVELS};

#define K(FMT, name, SUB, LOW, HIGH, LEVELS)                                                       \
    const gw_coding gw_coding_##name = {.fmt = GW_FMT_##FMT,                                       \
                                        .block = 256,                                              \
                                        .sub = SUB,                                                \
                                        .code_min = LOW,                                           \
                                        .code_max = HIGH,                                          \
                                        .levels = LEVELS,                                          \
                                        .by_importance = 1,                                        \
                                        .search = search,                                          \
                                        .refit = refit,                                            \
                                        .pack = pack_##name};
K(Q2_K, q2_k, 16, 0, 3, NULL)
K(Q3_K, q3_k, 16, -4, 3, NULL)
K(Q4_K, q4_k, 32, 0, 15, NULL)
K(Q5_K, q5_k, 32, 0, 31, NULL)
K(Q6_K, q6_k, 16, -32, 31, NULL)
K(IQ4_XS, iq4_xs, 32, 0, 15, gw_iq4_floats)
