/* core/quantize/encode.c - the table of encoders, and rows of blocks made by them. */
#include "core/quantize/encode.h"

#include <stddef.h>

#include "core/quantize/encode_rows.h"

static const gw_coding *const table[] = {
    &gw_coding_q8_0,      &gw_coding_q4_0,     &gw_coding_q4_1,     &gw_coding_q5_0,
    &gw_coding_q5_1,      &gw_coding_q2_k,     &gw_coding_q3_k,     &gw_coding_q4_k,
    &gw_coding_q5_k,      &gw_coding_q6_k,     &gw_coding_iq4_nl,   &gw_coding_iq4_xs,
    &gw_coding_mxfp4,     &gw_coding_int4_g32, &gw_coding_int4_g64, &gw_coding_int4_g128,
    &gw_coding_int4_g256, &gw_coding_bl3h_b64, &gw_coding_bl2_b32,  &gw_coding_bl3_b32,
    &gw_coding_bl5_b64,   &gw_coding_bl6_b64,  &gw_coding_bl8_b32,  &gw_coding_bl8_b64,
    &gw_coding_iq2_xxs,   &gw_coding_iq2_xs,   &gw_coding_iq2_s,    &gw_coding_iq3_xxs,
    &gw_coding_iq3_s,     &gw_coding_iq1_s,    &gw_coding_iq1_m,    &gw_coding_tq1_0,
    &gw_coding_tq2_0,     &gw_coding_q1_0,     &gw_coding_q2_0,     &gw_coding_nvfp4,
};

const gw_coding *gw_coding_of(gw_fmt fmt) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i]->fmt == fmt) {
            return table[i];
        }
    }
    return NULL;
}

int gw_can_encode(gw_fmt fmt) {
    return gw_coding_of(fmt) != NULL || gw_format_of(fmt)->encode != NULL;
}

enum { F16_INF = 0x7c00, F16_MAX = 0x7bff, F16_NAN = 0x7e00 };

gw_u16 gw_encode_f16(float x) {
    gw_u16 half = gw_f32_to_f16(x);
    return (half & 0x7fffu) >= F16_INF ? (gw_u16)((half & 0x8000u) | F16_MAX) : half;
}

int gw_all_finite(const float *x, size_t n) {
    gw_u32 top = 0;
    for (size_t i = 0; i < n; i++) {
        gw_u32 a = GW_F32_BITS(x[i]) & 0x7fffffffu;
        top = a > top ? a : top;
    }
    return top < 0x7f800000u;
}

void gw_coded_broken(gw_coded *b, int subs) {
    memset(b, 0, sizeof *b);
    b->d = F16_NAN;
    for (int s = 0; s < subs; s++) {
        b->ws[s] = GW_F32_FROM_BITS(0x7fc00000u);
    }
}

/* Clamp, then round half to even: 1.5 * 2^23 makes the float adder round there. */
static int rounded(float x, float low, float high) {
    x = x < low ? low : x > high ? high : x;
    return (int)((x + 12582912.0f) - 12582912.0f);
}

/* The code that stands for 0 where there is one: of a block without a scale. */
static int zero_code(const gw_coding *e) {
    int code = e->code_min > 0 ? e->code_min : 0;
    while (e->levels != NULL && code < e->code_max && e->levels[code] < 0.0f) {
        code++;
    }
    return code;
}

int gw_code_of(const gw_coding *e, const gw_coded *b, int s, float w) {
    float ws = b->ws[s];
    if (ws == 0.0f || ws != ws) {
        return zero_code(e);
    }
    float x = (w - b->wm[s]) / ws;
    if (e->levels == NULL) {
        return rounded(x, (float)e->code_min, (float)e->code_max);
    }
    int low = e->code_min,
        high = e->code_max; /* the first level that x is not above the middle of */
    while (low < high) {
        int mid = (low + high) / 2;
        if (x > 0.5f * (e->levels[mid] + e->levels[mid + 1])) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

void gw_codes_of(const gw_coding *e, const gw_coded *b, int s, const float *w, int n,
                 gw_i16 *code) {
    float ws = b->ws[s], wm = b->wm[s], low = (float)e->code_min, high = (float)e->code_max;
    if (ws == 0.0f || ws != ws || e->levels != NULL) {
        for (int i = 0; i < n; i++) {
            code[i] = (gw_i16)gw_code_of(e, b, s, w[i]);
        }
        return;
    }
    for (int i = 0; i < n; i++) { /* the same, many at once */
        code[i] = (gw_i16)rounded((w[i] - wm) / ws, low, high);
    }
}

float gw_code_value(const gw_coding *e, const gw_coded *b, int s, int code) {
    return GW_FMA(b->ws[s], e->levels != NULL ? e->levels[code] : (float)code, b->wm[s]);
}

/* In double, one lane: the same for every instruction set. */
static float mean_square_of(const float *w, size_t n) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)w[i] * (double)w[i];
    }
    return (float)(sum / (double)n);
}

void gw_encode_row(gw_fmt fmt, const float *w, const float *importance, size_t cols, void *row) {
    const gw_coding *e = gw_coding_of(fmt);
    const gw_format *f = gw_format_of(fmt);
    if (e == NULL) {
        f->encode(row, w, cols);
        return;
    }
    size_t block = (size_t)e->block, whole = cols / block, rest = cols % block;
    float mean[GW_CODED_AT_ONCE], row_mean = importance != NULL ? mean_square_of(w, cols) : 0.0f;
    gw_coded coded[GW_CODED_AT_ONCE];
    gw_u8 *out = (gw_u8 *)row + f->row_header;
    for (int i = 0; i < GW_CODED_AT_ONCE; i++) {
        mean[i] = row_mean;
    }
    for (size_t b = 0; b < whole + (rest != 0);) {
        size_t n = b < whole ? whole - b : 1;
        n = n < GW_CODED_AT_ONCE ? n : GW_CODED_AT_ONCE;
        const gw_encode_in in = {.w = w + b * block,
                                 .w_stride = block,
                                 .importance = importance != NULL ? importance + b * block : NULL,
                                 .importance_stride = block,
                                 .mean_square = mean,
                                 .blocks = (int)n,
                                 .cols = (int)(b < whole ? block : rest)};
        e->search(e, &in, coded);
        for (size_t i = 0; i < n; i++) {
            e->pack(e, &coded[i], out + (b + i) * f->block_bytes);
        }
        b += n;
    }
}
