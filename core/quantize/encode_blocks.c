/* core/quantize/encode_blocks.c - blocks of 32 with a scale of their own: Q4_0 to Q8_0, IQ4_NL,
 * MXFP4. Without importance Q4_0 .. Q5_1 and Q8_0 take the range of the block as it is; with it the
 * scale of least weighted error. */
#include "core/quantize/encode_rows.h"
#include "core/quantize/fit.h"
#include "core/tensor/blocks.h"

static const gw_fit_rule by_mean_4 = {GW_FIT_SYMMETRIC, 8, -0.9f, 0.1f, 19, GW_WEIGHT_MEAN, 1.0f};
static const gw_fit_rule by_mean_5 = {GW_FIT_SYMMETRIC, 16, -0.9f, 0.1f, 19, GW_WEIGHT_MEAN, 1.0f};
static const gw_fit_rule with_low_4 = {GW_FIT_AFFINE, 15, -0.9f, 0.05f, 37, GW_WEIGHT_MEAN, 1.0f};
static const gw_fit_rule with_low_5 = {GW_FIT_AFFINE, 31, -0.9f, 0.05f, 37, GW_WEIGHT_MEAN, 1.0f};
static const gw_fit_rule by_square = {GW_FIT_IQ4, 127, -7.0f, 1.0f, 15, GW_WEIGHT_SQUARE, 0.0f};
static const gw_fit_rule by_mean = {GW_FIT_IQ4, 127, -7.0f, 1.0f, 15, GW_WEIGHT_MEAN, 2.0f};

/* The value of largest size, the first of equals. Finite floats of one sign lie in the order of
 * their bits, so that the largest on either side is found many at once. */
static float peak_of(const float *w) {
    int32_t above = INT32_MIN, below = INT32_MIN;
    for (int i = 0; i < 32; i++) {
        int32_t bits = (int32_t)GW_F32_BITS(w[i]), turned = bits ^ INT32_MIN;
        above = bits > above ? bits : above;
        below = turned > below ? turned : below;
    }
    if (above != below) {
        float p =
            above > below ? GW_F32_FROM_BITS((gw_u32)above) : -GW_F32_FROM_BITS((gw_u32)below);
        return p == 0.0f ? 0.0f : p;
    }
    float p = 0.0f;
    for (int i = 0; i < 32; i++) {
        p = GW_FABS(w[i]) > GW_FABS(p) ? w[i] : p;
    }
    return p;
}

/* Scale and minimum without a search. */
static void range_of(const gw_coding *e, const float *w, float *d, float *m) {
    float low = w[0], high = w[0];
    *m = 0.0f;
    switch (e->fmt) {
    case GW_FMT_Q8_0:
        *d = GW_FABS(peak_of(w)) / 127.0f;
        return;
    case GW_FMT_Q4_0:
    case GW_FMT_Q5_0:
        *d = peak_of(w) / (float)e->code_min;
        return;
    default:
        for (int i = 1; i < 32; i++) {
            low = w[i] < low ? w[i] : low;
            high = w[i] > high ? w[i] : high;
        }
        *d = (high - low) / (float)e->code_max;
        *m = low == 0.0f ? 0.0f : low;
        return;
    }
}

static const gw_fit_rule *rule_of(const gw_coding *e, int weighted) {
    switch (e->fmt) {
    case GW_FMT_Q4_0:
        return weighted ? &by_mean_4 : NULL;
    case GW_FMT_Q5_0:
        return weighted ? &by_mean_5 : NULL;
    case GW_FMT_Q4_1:
        return weighted ? &with_low_4 : NULL;
    case GW_FMT_Q5_1:
        return weighted ? &with_low_5 : NULL;
    case GW_FMT_IQ4_NL:
        return weighted ? &by_mean : &by_square;
    default:
        return NULL;
    }
}

/* IQ4_NL's s2 is of the block itself, as IQ4_XS has it of its own. */
static float own_mean(const float *w) {
    double sum = 0.0;
    for (int i = 0; i < 32; i++) {
        sum += (double)w[i] * (double)w[i];
    }
    return (float)(sum / 32.0);
}

static void search(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    const gw_fit_rule *rule = rule_of(e, in->importance != NULL);
    gw_fit_out fit;
    gw_fit_in lanes = {.lanes = in->blocks, .cols = 32};
    for (int b = 0; b < in->blocks; b++) {
        lanes.w[b] = in->w + (size_t)b * in->w_stride;
        lanes.importance[b] =
            in->importance != NULL ? in->importance + (size_t)b * in->importance_stride : NULL;
        lanes.mean_square[b] = e->fmt == GW_FMT_IQ4_NL ? own_mean(lanes.w[b]) : in->mean_square[b];
    }
    if (rule != NULL) {
        gw_fit(rule, &lanes, &fit);
    }
    for (int b = 0; b < in->blocks; b++) {
        gw_coded *o = &out[b];
        if (!gw_all_finite(lanes.w[b], 32)) {
            gw_coded_broken(o, 1);
            continue;
        }
        float d, m;
        if (rule != NULL) {
            d = fit.scale[b];
            m = fit.low[b];
        } else {
            range_of(e, lanes.w[b], &d, &m);
        }
        o->d = gw_encode_f16(d);
        o->m = gw_encode_f16(m);
        o->ws[0] = gw_f16_to_f32(o->d);
        o->wm[0] = gw_f16_to_f32(o->m);
        gw_codes_of(e, o, 0, lanes.w[b], 32, o->code);
    }
}

/* ---- MXFP4 ---------------------------------------------------------------------------------- */

static const float e2m1[15] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};

static float error_of(const gw_coding *e, const gw_coded *b, const float *w, const float *h) {
    float sum = 0.0f;
    for (int i = 0; i < 32; i++) {
        float off = gw_code_value(e, b, 0, b->code[i]) - w[i];
        sum += (h != NULL ? h[i] : 1.0f) * (off * off);
    }
    return sum;
}

/* The exponent that the Microscaling specification takes, and its neighbours: of least error, the
 * specified one of equals. */
static void search_mxfp4(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    for (int b = 0; b < in->blocks; b++) {
        const float *w = in->w + (size_t)b * in->w_stride;
        const float *h =
            in->importance != NULL ? in->importance + (size_t)b * in->importance_stride : NULL;
        if (!gw_all_finite(w, 32)) {
            gw_coded_broken(&out[b], 1);
            out[b].d = 255;
            memset(out[b].code, 0, sizeof out[b].code);
            for (int i = 0; i < 32; i++) {
                out[b].code[i] = 7;
            }
            continue;
        }
        int exponent = 0;
        float p = peak_of(w), least = 0.0f;
        if (p != 0.0f) {
            exponent = ilogbf(p) - 2 + 127;
        }
        for (int k = 0; k < 3; k++) { /* 0, -1, 1 */
            int x = exponent + (k == 0 ? 0 : 2 * k - 3);
            gw_coded try = {.d = (gw_u16)(x < 0 ? 0 : x > 254 ? 254 : x)};
            try.ws[0] = gw_e8m0_half(try.d);
            gw_codes_of(e, &try, 0, w, 32, try.code);
            float error = error_of(e, &try, w, h);
            if (k == 0 || error < least) {
                least = error;
                out[b] = try;
            }
        }
    }
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void put_u16(gw_u8 *to, gw_u16 bits) {
    to[0] = (gw_u8)(bits & 255u);
    to[1] = (gw_u8)(bits >> 8);
}

static void put_nibbles(const gw_coded *b, int plus, gw_u8 *nibbles) {
    for (int j = 0; j < 16; j++) {
        nibbles[j] = (gw_u8)(((b->code[j] + plus) & 15) | ((b->code[j + 16] + plus) & 15) << 4);
    }
}

static void put_fifth(const gw_coded *b, int plus, gw_u8 *high) {
    memset(high, 0, 4);
    for (int i = 0; i < 32; i++) {
        high[i / 8] = (gw_u8)(high[i / 8] | ((b->code[i] + plus) >> 4 & 1) << i % 8);
    }
}

static void pack_q8_0(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q8_0 *o = block;
    (void)e;
    put_u16(o->d, b->d);
    for (int i = 0; i < 32; i++) {
        o->q[i] = (gw_i8)b->code[i];
    }
}

static void pack_q4_0(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q4_0 *o = block;
    (void)e;
    put_u16(o->d, b->d);
    put_nibbles(b, 8, o->nibbles);
}

static void pack_q4_1(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q4_1 *o = block;
    (void)e;
    put_u16(o->d, b->d);
    put_u16(o->m, b->m);
    put_nibbles(b, 0, o->nibbles);
}

static void pack_q5_0(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q5_0 *o = block;
    (void)e;
    put_u16(o->d, b->d);
    put_fifth(b, 16, o->high);
    put_nibbles(b, 16, o->nibbles);
}

static void pack_q5_1(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_q5_1 *o = block;
    (void)e;
    put_u16(o->d, b->d);
    put_u16(o->m, b->m);
    put_fifth(b, 0, o->high);
    put_nibbles(b, 0, o->nibbles);
}

static void pack_iq4_nl(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_iq4_nl *o = block;
    (void)e;
    put_u16(o->d, b->d);
    put_nibbles(b, 0, o->nibbles);
}

static void pack_mxfp4(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_mxfp4 *o = block;
    gw_u8 q[32];
    (void)e;
    for (int i = 0; i < 32; i++) { /* ranks of e2m1[]: eight above zero, seven below it */
        int rank = b->code[i] - 7;
        q[i] = (gw_u8)(rank >= 0 ? rank : 8 - rank);
    }
    o->e = (gw_u8)b->d;
    for (int j = 0; j < 16; j++) {
        o->nibbles[j] = (gw_u8)(q[j] | q[j + 16] << 4);
    }
}

#define BLOCK(FMT, name, LOW, HIGH, LEVELS, SEARCH, BY)                                            \
    const gw_coding gw_coding_##name = {.fmt = GW_FMT_##FMT,                                       \
                                        .block = 32,                                               \
                                        .sub = 32,                                                 \
                                        .code_min = LOW,                                           \
                                        .code_max = HIGH,                                          \
                                        .levels = LEVELS,                                          \
                                        .by_importance = BY,                                       \
                                        .search = SEARCH,                                          \
                                        .pack = pack_##name};
BLOCK(Q8_0, q8_0, -127, 127, NULL, search, 0)
BLOCK(Q4_0, q4_0, -8, 7, NULL, search, 1)
BLOCK(Q4_1, q4_1, 0, 15, NULL, search, 1)
BLOCK(Q5_0, q5_0, -16, 15, NULL, search, 1)
BLOCK(Q5_1, q5_1, 0, 31, NULL, search, 1)
BLOCK(IQ4_NL, iq4_nl, 0, 15, gw_iq4_floats, search, 1)
BLOCK(MXFP4, mxfp4, 0, 14, e2m1, search_mxfp4, 1)
