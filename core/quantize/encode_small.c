/* core/quantize/encode_small.c - one scale for many columns of one or two bits (TQ1_0, TQ2_0, Q1_0,
 * Q2_0), and NVFP4, whose sixteens have a scale of eight bits. ggml takes the largest value as the
 * scale; here it is the scale of least weighted error, which is the same where the weights are such
 * numbers already. */
#include <stdlib.h>

#include "core/quantize/encode_rows.h"
#include "core/quantize/fit.h"
#include "core/tensor/blocks.h"

static void put_u16(gw_u8 *to, gw_u16 bits) {
    to[0] = (gw_u8)(bits & 255u);
    to[1] = (gw_u8)(bits >> 8);
}

/* Of a block: importance * sqrt(mean square + w^2), without importance all alike. */
static void weigh(const float *w, const float *h, int n, float *a) {
    double squares = 0.0, sum = 0.0;
    for (int i = 0; i < n; i++) {
        squares += (double)w[i] * (double)w[i];
    }
    float mean = (float)(squares / n);
    for (int i = 0; i < n; i++) {
        a[i] = h != NULL ? h[i] * GW_SQRT(mean + w[i] * w[i]) : 1.0f;
        sum += (double)a[i];
    }
    for (int i = 0; i < n && !(sum > 0.0); i++) { /* columns that no text has used */
        a[i] = 1.0f;
    }
}

/* ---- -d, 0 and d; -d and d ------------------------------------------------------------------ */

typedef struct sized {
    float size;
    int at;
} sized;

static int falling(const void *a, const void *b) {
    const sized *x = a, *y = b;
    return x->size > y->size ? -1 : x->size < y->size ? 1 : x->at - y->at;
}

/* Those that become -d or d are the largest ones, so all choices are tried. */
static float ternary_scale(const float *w, const float *a, int n) {
    sized list[GW_CODED_BLOCK];
    double x = 0.0, sum = 0.0, best = 0.0, d = 0.0;
    for (int i = 0; i < n; i++) {
        list[i] = (sized){GW_FABS(w[i]), i};
    }
    qsort(list, (size_t)n, sizeof *list, falling);
    for (int k = 0; k < n; k++) {
        x += (double)a[list[k].at] * (double)list[k].size;
        sum += (double)a[list[k].at];
        if (sum > 0.0 && x * x > best * sum) {
            best = x * x / sum;
            d = x / sum;
        }
    }
    return (float)d;
}

static float binary_scale(const float *w, const float *a, int n) {
    double x = 0.0, sum = 0.0;
    for (int i = 0; i < n; i++) {
        x += (double)a[i] * (double)GW_FABS(w[i]);
        sum += (double)a[i];
    }
    return (float)(x / sum);
}

/* Four levels, two on one side of zero and one on the other: d may be less than zero. */
static float four_scale(const float *w, const float *a, int n) {
    static const gw_fit_rule rule = {GW_FIT_SYMMETRIC, 2, -1.0f, 0.15f, 24, GW_WEIGHT_GIVEN, 0.0f};
    gw_fit_in in = {.lanes = 1, .cols = n, .w = {w}, .importance = {a}};
    gw_fit_out out;
    gw_fit(&rule, &in, &out);
    return -out.scale[0];
}

static void search(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    for (int b = 0; b < in->blocks; b++) {
        const float *w = in->w + (size_t)b * in->w_stride, *h = in->importance;
        float a[GW_CODED_BLOCK];
        gw_coded *o = &out[b];
        if (!gw_all_finite(w, (size_t)e->block)) {
            gw_coded_broken(o, 1);
            continue;
        }
        weigh(w, h != NULL ? h + (size_t)b * in->importance_stride : NULL, e->block, a);
        memset(o, 0, sizeof *o);
        o->d = gw_encode_f16(e->fmt == GW_FMT_Q1_0   ? binary_scale(w, a, e->block)
                             : e->fmt == GW_FMT_Q2_0 ? four_scale(w, a, e->block)
                                                     : ternary_scale(w, a, e->block));
        o->ws[0] = gw_f16_to_f32(o->d);
        gw_codes_of(e, o, 0, w, e->block, o->code);
    }
}

/* Five digits of base 3, the first highest, as a fraction of 256. */
static gw_u8 five_digits(const gw_coded *b, int at, int apart, int n) {
    int q = 0;
    for (int k = 0; k < 5; k++) {
        q = 3 * q + (k < n ? b->code[at + k * apart] + 1 : 0);
    }
    return (gw_u8)((q * 256 + 242) / 243);
}

static void pack_tq1_0(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    (void)e;
    for (int i = 0; i < 32; i++) {
        o[i] = five_digits(b, i, 32, 5);
    }
    for (int i = 0; i < 16; i++) {
        o[32 + i] = five_digits(b, 160 + i, 16, 5);
    }
    for (int i = 0; i < 4; i++) {
        o[48 + i] = five_digits(b, 240 + i, 4, 4);
    }
    put_u16(o + 52, b->d);
}

static void pack_tq2_0(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    (void)e;
    memset(o, 0, 64);
    for (int i = 0; i < 256; i++) {
        gw_u8 *at = &o[i / 128 * 32 + i % 32];
        *at = (gw_u8)(*at | (b->code[i] + 1) << 2 * (i / 32 % 4));
    }
    put_u16(o + 64, b->d);
}

static void pack_q1_0(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    put_u16(o, b->d);
    memset(o + 2, 0, 16);
    for (int i = 0; i < e->block; i++) {
        o[2 + i / 8] = (gw_u8)(o[2 + i / 8] | b->code[i] << i % 8);
    }
}

static void pack_q2_0(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    put_u16(o, b->d);
    memset(o + 2, 0, 16);
    for (int i = 0; i < e->block; i++) {
        o[2 + i / 4] = (gw_u8)(o[2 + i / 4] | (b->code[i] + 1) << 2 * (i % 4));
    }
}

/* ---- NVFP4 ---------------------------------------------------------------------------------- */

static const float e2m1[15] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
enum { SIXTEEN = 16, LARGEST = 126, NOT_A_NUMBER = 127, NOTHING = 7 };

/* Half of a number of four bits of exponent and three of mantissa, without a sign. */
static float e4m3_half(int byte) {
    int exponent = byte >> 3, m = byte & 7;
    return 0x1p-10f * (float)(exponent == 0 ? m : (8 + m) << (exponent - 1));
}

/* The scale of least weighted error, from where the largest value is the largest level on: a
 * third less to a quarter more. */
static void choose_scale(const gw_coding *e, int s, const float *w, const float *h, gw_coded *b) {
    float top = 0.0f, least = 0.0f;
    int byte = 0, best = 0;
    for (int i = 0; i < SIXTEEN; i++) {
        top = GW_FABS(w[i]) > top ? GW_FABS(w[i]) : top;
    }
    while (byte < LARGEST && 12.0f * e4m3_half(byte) < top) {
        byte++;
    }
    int first = byte > 5 ? byte - 5 : 0, end = byte + 2 < LARGEST ? byte + 2 : LARGEST;
    for (int k = first; k <= end; k++) {
        gw_i16 code[SIXTEEN];
        float error = 0.0f;
        b->ws[s] = e4m3_half(k);
        gw_codes_of(e, b, s, w, SIXTEEN, code);
        for (int i = 0; i < SIXTEEN; i++) {
            float off = gw_code_value(e, b, s, code[i]) - w[i];
            error += (h != NULL ? h[i] : 1.0f) * (off * off);
        }
        if (k == first || error < least) {
            least = error;
            best = k;
        }
    }
    b->scale[s] = (gw_i16)best;
    b->ws[s] = e4m3_half(best);
}

static void search_nvfp4(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    for (int b = 0; b < in->blocks; b++) {
        const float *w = in->w + (size_t)b * in->w_stride, *h = in->importance;
        gw_coded *o = &out[b];
        memset(o, 0, sizeof *o);
        for (int s = 0; s < e->block / SIXTEEN; s++) {
            const float *x = w + SIXTEEN * s;
            if (!gw_all_finite(x, SIXTEEN)) {
                o->ws[s] = GW_F32_FROM_BITS(0x7fc00000u);
                o->scale[s] = NOT_A_NUMBER;
                for (int i = 0; i < SIXTEEN; i++) {
                    o->code[SIXTEEN * s + i] = NOTHING;
                }
                continue;
            }
            size_t at = (size_t)b * in->importance_stride + (size_t)(SIXTEEN * s);
            choose_scale(e, s, x, h != NULL ? h + at : NULL, o);
            gw_codes_of(e, o, s, x, SIXTEEN, o->code + SIXTEEN * s);
        }
    }
}

static void refit_nvfp4(const gw_coding *e, int s, const float *w, const float *importance,
                        gw_coded *b) {
    if (gw_all_finite(w, SIXTEEN)) {
        choose_scale(e, s, w, importance, b);
    }
}

static void pack_nvfp4(const gw_coding *e, const gw_coded *b, void *block) {
    gw_u8 *o = block;
    for (int s = 0; s < e->block / SIXTEEN; s++) {
        o[s] = (gw_u8)b->scale[s];
        for (int j = 0; j < 8; j++) {
            gw_u8 q[2];
            for (int k = 0; k < 2; k++) { /* ranks of e2m1[]: eight above zero, seven below it */
                int rank = b->code[SIXTEEN * s + j + 8 * k] - NOTHING;
                q[k] = (gw_u8)(rank >= 0 ? rank : 8 - rank);
            }
            o[4 + 8 * s + j] = (gw_u8)(q[0] | q[1] << 4);
        }
    }
}

static const float both[2] = {-1, 1};

#define SMALL(FMT, name, BLOCK, LOW, HIGH, LEVELS)                                                 \
    const gw_coding gw_coding_##name = {.fmt = GW_FMT_##FMT,                                       \
                                        .block = BLOCK,                                            \
                                        .sub = BLOCK,                                              \
                                        .code_min = LOW,                                           \
                                        .code_max = HIGH,                                          \
                                        .levels = LEVELS,                                          \
                                        .by_importance = 1,                                        \
                                        .search = search,                                          \
                                        .pack = pack_##name};
SMALL(TQ1_0, tq1_0, 256, -1, 1, NULL)
SMALL(TQ2_0, tq2_0, 256, -1, 1, NULL)
SMALL(Q1_0, q1_0, 128, 0, 1, both)
SMALL(Q2_0, q2_0, 64, -1, 2, NULL)
const gw_coding gw_coding_nvfp4 = {.fmt = GW_FMT_NVFP4,
                                   .block = 64,
                                   .sub = SIXTEEN,
                                   .code_max = 14,
                                   .levels = e2m1,
                                   .by_importance = 1,
                                   .search = search_nvfp4,
                                   .refit = refit_nvfp4,
                                   .pack = pack_nvfp4};
