/* core/tensor/formats.c - the table of number formats. One row per format; nothing else switches
 * on gw_fmt. Layout and arithmetic are blocks.h's; here are rows, encoders and names. */
#include "core/tensor/formats.h"

#include "core/tensor/blocks.h"
#include "core/tensor/codes.h"
#include "core/tensor/e4m3.h"
#include "core/tensor/nvfp4.h"
#include "core/tensor/planes.h"
#include "core/tensor/small.h"

/* ---- rows of blocks: decode and term of each format from its block functions ---------------- */

#define BLOCK_ROW(F, WEIGHTS)                                                                      \
    _Static_assert(_Alignof(gw_block_##F) == 1, "a stored row may begin at any byte");             \
    static void decode_##F(float *dst, const void *row, size_t cols) {                             \
        const gw_block_##F *block = row;                                                           \
        for (size_t b = 0; b < cols / 32; b++) {                                                   \
            gw_##F##_weights(block + b / ((WEIGHTS) / 32), (int)(b % ((WEIGHTS) / 32)),            \
                             dst + 32 * b);                                                        \
        }                                                                                          \
    }                                                                                              \
    static float term_##F(const void *row, size_t b, const gw_act8 *x, float acc) {                \
        const gw_block_##F *block = row;                                                           \
        return gw_##F##_term(block + b / ((WEIGHTS) / 32), (int)(b % ((WEIGHTS) / 32)), x, acc);   \
    }

#define PROMPT_ROW(F, WEIGHTS)                                                                     \
    static float prompt_term_##F(const void *row, size_t b, const gw_act8 *x, float acc) {         \
        const gw_block_##F *block = row;                                                           \
        return gw_##F##_prompt_term(block + b / ((WEIGHTS) / 32), (int)(b % ((WEIGHTS) / 32)), x,  \
                                    acc);                                                          \
    }

BLOCK_ROW(q8_0, 32)
BLOCK_ROW(q4_0, 32)
BLOCK_ROW(q4_1, 32)
BLOCK_ROW(q5_0, 32)
BLOCK_ROW(q5_1, 32)
BLOCK_ROW(q2_k, 256)
BLOCK_ROW(q3_k, 256)
BLOCK_ROW(q4_k, 256)
BLOCK_ROW(q5_k, 256)
BLOCK_ROW(q6_k, 256)
BLOCK_ROW(iq4_nl, 32)
BLOCK_ROW(mxfp4, 32)
BLOCK_ROW(iq4_xs, 256)
PROMPT_ROW(q2_k, 256)
PROMPT_ROW(q3_k, 256)
PROMPT_ROW(q4_k, 256)
PROMPT_ROW(q5_k, 256)
PROMPT_ROW(q6_k, 256)
PROMPT_ROW(iq4_xs, 256)

BLOCK_ROW(bl3h_b64, 64)
#define PLANE_ROW(unused, NAME, name, low, high, offset, levels, term, sub, share, head)           \
    BLOCK_ROW(name, 32 * (share))
GW_PLANE_FORMATS(PLANE_ROW, 0)
PROMPT_ROW(iq3_s_codes, 256)
PROMPT_ROW(iq3_xxs_codes, 256)
PROMPT_ROW(iq2_codes, 256)
PROMPT_ROW(iq1_codes, 256)

static void decode_int8(float *dst, const void *row, size_t cols) {
    const gw_row_int8 *head = row;
    const gw_block_int8 *block = (const gw_block_int8 *)(head + 1);
    for (size_t b = 0; b < cols / 32; b++) {
        gw_int8_weights(head, block + b, dst + 32 * b);
    }
}

static float term_int8(const void *row, size_t b, const gw_act8 *x, float acc) {
    const gw_row_int8 *head = row;
    return gw_int8_term(head, (const gw_block_int8 *)(head + 1) + b, x, acc);
}

static void decode_act8(float *dst, const void *row, size_t cols) {
    const gw_act8 *block = row;
    for (size_t i = 0; i < cols; i++) {
        dst[i] = block[i / 32].scale * (float)block[i / 32].q[i % 32];
    }
}

static void encode_act8(void *row, const float *src, size_t cols) {
    gw_act8 *block = row;
    for (size_t b = 0; b < cols / GW_ACT_BLOCK; b++) {
        gw_act8_encode(&block[b], src + b * GW_ACT_BLOCK);
    }
}

/* ---- floats --------------------------------------------------------------------------------- */

static void copy_f32(float *dst, const void *row, size_t cols) {
    memcpy(dst, row, cols * sizeof *dst);
}

static void encode_f32(void *row, const float *src, size_t cols) {
    memcpy(row, src, cols * sizeof *src);
}

static void put_u16(gw_u8 *out, gw_u16 bits) {
    out[0] = (gw_u8)(bits & 255u);
    out[1] = (gw_u8)(bits >> 8);
}

static void decode_f16(float *dst, const void *row, size_t cols) {
    const gw_u8 *bytes = row;
    for (size_t i = 0; i < cols; i++) {
        dst[i] = gw_load_f16(bytes + 2 * i);
    }
}

static void encode_f16(void *row, const float *src, size_t cols) {
    gw_u8 *bytes = row;
    for (size_t i = 0; i < cols; i++) {
        put_u16(bytes + 2 * i, gw_f32_to_f16(src[i]));
    }
}

static void decode_bf16(float *dst, const void *row, size_t cols) {
    const gw_u8 *bytes = row;
    for (size_t i = 0; i < cols; i++) {
        dst[i] = gw_bf16_to_f32(gw_load_u16(bytes + 2 * i));
    }
}

/* Round to nearest, ties to even; overflow to infinity; NaN stays a quiet NaN. */
static gw_u16 f32_to_bf16(float x) {
    gw_u32 u = GW_F32_BITS(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (gw_u16)(u >> 16 | 0x40u);
    }
    return (gw_u16)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static void encode_bf16(void *row, const float *src, size_t cols) {
    gw_u8 *bytes = row;
    for (size_t i = 0; i < cols; i++) {
        put_u16(bytes + 2 * i, f32_to_bf16(src[i]));
    }
}

static void decode_e4m3(float *dst, const void *row, size_t cols) {
    const gw_block_e4m3 *block = row;
    for (size_t i = 0; i < cols; i++) {
        const gw_block_e4m3 *b = block + i / GW_E4M3_BLOCK;
        dst[i] = gw_e4m3_value(b->code[i % GW_E4M3_BLOCK]) * gw_load_f32(b->scale);
    }
}

static void decode_nvfp4_codes(float *dst, const void *row, size_t cols) {
    for (size_t i = 0; i < cols; i++) {
        dst[i] = gw_nvfp4_weight((const gw_block_nvfp4 *)row, (int)i);
    }
}

/* ---- quantizing -------------------------------------------------------------------------- */

/* Rules of every encoder (docs/arithmetic.md):
 *   - codes are computed against the scale and zero as stored, after their rounding;
 *   - a block or row with a value that is not finite gets scale NaN, zero 0 and codes 0, so that
 *     the fault reaches the logits, where it is reported;
 *   - a scale or zero beyond f16 saturates at +-65504; a scale of 0 means codes 0. */

enum { F16_NAN = 0x7e00, F16_INF = 0x7c00, F16_MAX = 0x7bff };

/* Largest magnitude of n values, or infinity when one of them is not finite. */
static float largest(const float *x, size_t n) {
    gw_u32 top = 0;
    for (size_t i = 0; i < n; i++) {
        gw_u32 a = GW_F32_BITS(x[i]) & 0x7fffffffu;
        top = a > top ? a : top;
    }
    return GW_F32_FROM_BITS(top < 0x7f800000u ? top : 0x7f800000u);
}

static int is_finite(float x) { return (GW_F32_BITS(x) & 0x7f800000u) != 0x7f800000u; }

static gw_u16 saturated_f16(float x) {
    gw_u16 half = gw_f32_to_f16(x);
    return (half & 0x7fffu) >= F16_INF ? (gw_u16)((half & 0x8000u) | F16_MAX) : half;
}

/* Clamp to [low, high], then round half to even: 1.5 * 2^23 makes the float adder round there. */
static int rounded(float x, float low, float high) {
    x = x < low ? low : x > high ? high : x;
    return (int)((x + 12582912.0f) - 12582912.0f);
}

static void encode_q8_0(void *row, const float *src, size_t cols) {
    gw_block_q8_0 *block = row;
    for (size_t b = 0; b < cols / 32; b++, src += 32) {
        float amax = largest(src, 32);
        gw_u16 half = is_finite(amax) ? saturated_f16(amax / 127.0f) : F16_NAN;
        float d = gw_f16_to_f32(half);
        put_u16(block[b].d, half);
        for (int i = 0; i < 32; i++) {
            block[b].q[i] = d > 0.0f ? (gw_i8)rounded(src[i] / d, -127.0f, 127.0f) : 0;
        }
    }
}

/* The value of largest magnitude (the first of equals) becomes code -8. */
static void encode_q4_0(void *row, const float *src, size_t cols) {
    gw_block_q4_0 *block = row;
    for (size_t b = 0; b < cols / 32; b++, src += 32) {
        float amax = largest(src, 32), peak = 0.0f;
        for (int i = 31; i >= 0; i--) {
            peak = GW_FABS(src[i]) == amax ? src[i] : peak;
        }
        gw_u16 half = !is_finite(amax) ? F16_NAN : amax > 0.0f ? saturated_f16(peak / -8.0f) : 0;
        float d = gw_f16_to_f32(half);
        int q[32];
        put_u16(block[b].d, half);
        for (int i = 0; i < 32; i++) {
            int codes = is_finite(amax) && d != 0.0f;
            q[i] = 8 + (codes ? rounded(src[i] / d, -8.0f, 7.0f) : 0);
        }
        for (int j = 0; j < 16; j++) {
            block[b].nibbles[j] = (gw_u8)(q[j] | q[j + 16] << 4);
        }
    }
}

static void encode_int8(void *row, const float *src, size_t cols) {
    gw_row_int8 *head = row;
    gw_i8 *q = (gw_i8 *)(head + 1);
    float amax = largest(src, cols);
    float scale = is_finite(amax) ? amax / 127.0f : GW_F32_FROM_BITS(0x7fc00000u);
    gw_u32 bits = GW_F32_BITS(scale);
    put_u16(head->scale, (gw_u16)(bits & 0xffffu));
    put_u16(head->scale + 2, (gw_u16)(bits >> 16));
    for (size_t i = 0; i < cols; i++) {
        q[i] = scale > 0.0f ? (gw_i8)rounded(src[i] / scale, -127.0f, 127.0f) : 0;
    }
}

/* The nearest code, ties to even, of a number of at most 448 in size. */
static gw_u8 e4m3_code(float x) {
    gw_u32 bits = GW_F32_BITS(x), sign = bits >> 24 & 128u;
    int e = (int)(bits >> 23 & 255u) - 127;
    e = e < -6 ? -6 : e; /* below 2^-6 steps are those of 2^-6 */
    float steps = GW_FABS(x) * GW_F32_FROM_BITS((gw_u32)(127 + 3 - e) << 23);
    return (gw_u8)(sign | (gw_u32)((e + 6) * 8 + rounded(steps, 0.0f, 16.0f)));
}

static void encode_e4m3(void *row, const float *src, size_t cols) {
    gw_block_e4m3 *b = row;
    for (size_t at = 0; at < cols; at += GW_E4M3_BLOCK, b++) {
        size_t n = cols - at < GW_E4M3_BLOCK ? cols - at : GW_E4M3_BLOCK;
        float amax = largest(src + at, n);
        float scale = is_finite(amax) ? amax / 448.0f : GW_F32_FROM_BITS(0x7fc00000u);
        scale = scale < GW_E4M3_LEAST ? 0.0f : scale;
        float stored = 256.0f * scale;
        memset(b, 0, sizeof *b);
        memcpy(b->scale, &stored, sizeof stored);
        for (size_t i = 0; i < n && scale > 0.0f; i++) {
            float x = src[at + i] / scale;
            b->code[i] = e4m3_code(x < -448.0f ? -448.0f : x > 448.0f ? 448.0f : x);
        }
    }
}

/* The nearest code of E2M1, ties to the first, of a number in units. */
static gw_u8 e2m1_code(float x) {
    int best = 0;
    for (int k = 1; k < 8; k++) {
        float error = GW_FABS(GW_FABS(x) - 16384.0f * gw_nvfp4_value((gw_u32)k));
        best = error < GW_FABS(GW_FABS(x) - 16384.0f * gw_nvfp4_value((gw_u32)best)) ? k : best;
    }
    return (gw_u8)(best | (x < 0.0f ? 8 : 0));
}

/* The largest number of a block is 6 * 448 units of its float. */
static void encode_nvfp4_codes(void *row, const float *src, size_t cols) {
    gw_block_nvfp4 *b = row;
    for (size_t at = 0; at < cols; at += GW_NVFP4_BLOCK, b++) {
        size_t n = cols - at < GW_NVFP4_BLOCK ? cols - at : GW_NVFP4_BLOCK;
        float amax = largest(src + at, n);
        float unit = is_finite(amax) ? amax / 2688.0f : GW_F32_FROM_BITS(0x7fc00000u);
        float stored = 4194304.0f * unit;
        memset(b, 0, sizeof *b);
        memcpy(b->scale, &stored, sizeof stored);
        for (size_t i = 0; i < n && unit > 0.0f; i++) {
            if (i % 16 == 0) {
                float top = largest(src + at + i, n - i < 16 ? n - i : 16) / (6.0f * unit);
                b->s[i / 16] = e4m3_code(top < 448.0f ? top : 448.0f);
            }
            float s = gw_nvfp4_scale(b, (int)i) * 0x1p-14f; /* a unit of E2M1 */
            int code = s > 0.0f ? e2m1_code(src[at + i] / s) : 0;
            b->nibbles[i / 2] = (gw_u8)(b->nibbles[i / 2] | code << i % 2 * 4);
        }
    }
}

/* Codes 0 .. most of n values, and their scale and zero, two binary16. */
static void encode_linear(gw_u8 *head, int *code, const float *src, int n, int most) {
    float low = src[0], high = src[0];
    int finite = is_finite(largest(src, (size_t)n));
    for (int i = 1; i < n; i++) {
        low = src[i] < low ? src[i] : low;
        high = src[i] > high ? src[i] : high;
    }
    low = low == 0.0f ? 0.0f : low; /* -0 and +0 are equal, so which one is found is chance */
    high = high == 0.0f ? 0.0f : high;
    gw_u16 scale_bits = finite ? saturated_f16((high - low) / (float)most) : F16_NAN;
    gw_u16 zero_bits = finite ? saturated_f16(low) : 0;
    put_u16(head, scale_bits);
    put_u16(head + 2, zero_bits);
    float scale = gw_f16_to_f32(scale_bits), zero = gw_f16_to_f32(zero_bits);
    for (int i = 0; i < n; i++) {
        code[i] = scale > 0.0f ? rounded((src[i] - zero) / scale, 0.0f, (float)most) : 0;
    }
}

static void encode_int4_group(gw_int4_head *head, gw_u8 *nibbles, const float *src, int n) {
    int q[256];
    encode_linear(head->scale, q, src, n, 15);
    for (int i = 0; i < n; i += 32) {
        for (int j = 0; j < 16; j++) {
            nibbles[i / 2 + j] = (gw_u8)(q[i + j] | q[i + j + 16] << 4);
        }
    }
}

/* A row of blocks of 32 `share` codes after a scale and a zero. The last block may be short: what it
 * lacks has code 0. */
static void encode_planes(gw_u8 *block, size_t bytes, int low, int high, int share,
                          const float *src, size_t cols) {
    int most = (1 << (low + high)) - 1;
    for (size_t at = 0; at < cols; at += (size_t)(32 * share), block += bytes) {
        int code[64], n = cols - at < (size_t)(32 * share) ? (int)(cols - at) : 32 * share;
        memset(block, 0, bytes);
        encode_linear(block, code, src + at, n, most);
        for (int i = 0; i < n; i++) {
            gw_plane_put(block + 4 + 4 * low * (i / 32), low, i % 32, code[i]);
            if (high > 0) {
                gw_plane_put(block + 4 + 4 * low * share + 4 * high * (i / 32), high, i % 32,
                          code[i] >> low);
            }
        }
    }
}

#define PLANE_ENCODE(name, low, high, share)                                                       \
    static void encode_##name(void *row, const float *src, size_t cols) {                          \
        encode_planes(row, sizeof(gw_block_##name), low, high, share, src, cols);                  \
    }
PLANE_ENCODE(bl2_b32, 2, 0, 1)
PLANE_ENCODE(bl3_b32, 2, 1, 1)
PLANE_ENCODE(bl5_b64, 4, 1, 2)
PLANE_ENCODE(bl6_b64, 4, 2, 2)
PLANE_ENCODE(bl8_b32, 8, 0, 1)
PLANE_ENCODE(bl8_b64, 8, 0, 2)

/* Integer scales of 16 or 32 weights in 31 steps, nearest levels. For tests, and what is to be had of
 * these formats without a search. */
static void encode_levels(gw_u8 *block, size_t bytes, int levels, int low, int high, int halves,
                          const float *src, size_t cols) {
    int bits = low + high, half = 1 << (bits - 1), most = 0;
    for (int i = 0; i < half; i++) {
        most = gw_level(levels, i) > most ? gw_level(levels, i) : most;
    }
    for (size_t b = 0; b < cols / 256; b++, block += bytes, src += 256) {
        float amax = largest(src, 256);
        float d = is_finite(amax) ? amax / (float)(31 * most) : GW_F32_FROM_BITS(0x7fc00000u);
        memset(block, 0, bytes);
        memcpy(block, &d, sizeof d);
        for (int i = 0; d > 0.0f && i < 256; i++) {
            int from = halves ? i / 16 * 16 : i / 32 * 32, n = halves ? 16 : 32, best = 0;
            int sc = (int)(largest(src + from, (size_t)n) / (d * (float)most) + 0.999f);
            gw_u8 *plane = block + 20 + 4 * low * (i / 32);
            sc = sc < 1 ? 1 : sc > 31 ? 31 : sc;
            block[4 + i / 32 * 2 + (halves ? i / 16 % 2 : 0)] = (gw_u8)sc;
            for (int k = 1; k < 2 * half; k++) {
                float at = src[i] / (d * (float)sc);
                float error = GW_FABS(at - (float)gw_level(levels, k));
                best = error < GW_FABS(at - (float)gw_level(levels, best)) ? k : best;
            }
            gw_plane_put(plane, low, i % 32, best);
            if (high > 0) {
                gw_plane_put(block + 20 + 32 * low + 4 * high * (i / 32), high, i % 32,
                             best >> low);
            }
        }
    }
}

#define LEVELS_ENCODE(name, levels, low, high, halves)                                             \
    static void encode_##name(void *row, const float *src, size_t cols) {                          \
        encode_levels(row, sizeof(gw_block_##name), levels, low, high, halves, src, cols);         \
    }
LEVELS_ENCODE(iq3_s_codes, GW_LEVELS_IQ3_S, 4, 0, 0)
LEVELS_ENCODE(iq3_xxs_codes, GW_LEVELS_IQ3_XXS, 4, 0, 0)
LEVELS_ENCODE(iq2_codes, GW_LEVELS_IQ2, 2, 1, 1)
LEVELS_ENCODE(iq1_codes, GW_LEVELS_IQ1, 2, 1, 1)

static void encode_bl3h_b64(void *row, const float *src, size_t cols) {
    gw_block_bl3h_b64 *b = row;
    for (size_t at = 0; at < cols; at += 64, b++) {
        int code[64] = {0}, n = cols - at < 64 ? (int)(cols - at) : 64;
        memset(b, 0, sizeof *b);
        encode_linear(b->head.scale, code, src + at, n, 10);
        for (int p = 0; p < 32; p++) {
            int v = 11 * code[2 * p] + code[2 * p + 1];
            gw_plane_put(b->four, 4, p, v);
            gw_plane_put(b->two, 2, p, v >> 4);
            gw_plane_put(b->one, 1, p, v >> 6);
        }
    }
}

#define INT4_ROW(G, TERM)                                                                          \
    static void decode_int4_g##G(float *dst, const void *row, size_t cols) {                       \
        const gw_block_int4_g##G *block = row;                                                     \
        for (size_t b = 0; b < cols / 32; b++) {                                                   \
            const gw_block_int4_g##G *group = block + b / (G / 32);                                \
            gw_int4_weights(&group->head, group->nibbles, (int)(b % (G / 32)), dst + 32 * b);      \
        }                                                                                          \
    }                                                                                              \
    static float term_int4_g##G(const void *row, size_t b, const gw_act8 *x, float acc) {          \
        const gw_block_int4_g##G *group = (const gw_block_int4_g##G *)row + b / (G / 32);          \
        return TERM(&group->head, group->nibbles, (int)(b % (G / 32)), x, acc);                    \
    }                                                                                              \
    static void encode_int4_g##G(void *row, const float *src, size_t cols) {                       \
        gw_block_int4_g##G *block = row;                                                           \
        for (size_t b = 0; b < cols / G; b++) {                                                    \
            encode_int4_group(&block[b].head, block[b].nibbles, src + b * G, G);                   \
        }                                                                                          \
    }

INT4_ROW(32, gw_int4_term)
INT4_ROW(64, gw_int4_term)
INT4_ROW(128, gw_int4_span_term)
INT4_ROW(256, gw_int4_span_term)

static void decode_i32(float *dst, const void *row, size_t cols) {
    for (size_t i = 0; i < cols; i++) {
        gw_i32 value;
        memcpy(&value, (const gw_u8 *)row + i * sizeof value, sizeof value);
        dst[i] = (float)value;
    }
}

/* ---- small ones: small.c has their layouts -------------------------------------------------- */

#define SMALL(FMT, name)                                                                           \
    static void decode_##name(float *dst, const void *row, size_t cols) {                          \
        gw_small_decode(GW_FMT_##FMT, dst, row, cols);                                             \
    }

SMALL(IQ2_XXS, iq2_xxs)
SMALL(IQ2_XS, iq2_xs)
SMALL(IQ2_S, iq2_s)
SMALL(IQ3_XXS, iq3_xxs)
SMALL(IQ3_S, iq3_s)
SMALL(IQ1_S, iq1_s)
SMALL(IQ1_M, iq1_m)
SMALL(TQ1_0, tq1_0)
SMALL(TQ2_0, tq2_0)
SMALL(Q1_0, q1_0)
SMALL(Q2_0, q2_0)
SMALL(NVFP4, nvfp4)

/* ---- the table ------------------------------------------------------------------------------ */

/* clang-format off */
static const gw_format formats[] = {
    /*                    name         gguf  block  bytes                    header  float  decode            encode                   span, term; those of prompts */
    [GW_FMT_F32]       = {"f32",          0,   1, sizeof(float),                  0, 1, copy_f32,         encode_f32,                 0, NULL, 0, NULL},
    [GW_FMT_F16]       = {"f16",          1,   1, sizeof(gw_u16),                 0, 1, decode_f16,       encode_f16,                 0, NULL, 0, NULL},
    [GW_FMT_BF16]      = {"bf16",        30,   1, sizeof(gw_u16),                 0, 1, decode_bf16,      encode_bf16,                0, NULL, 0, NULL},
    [GW_FMT_E4M3]      = {"e4m3",        -1, GW_E4M3_BLOCK, sizeof(gw_block_e4m3), 0, 1, decode_e4m3,      encode_e4m3,                0, NULL, 0, NULL},
    [GW_FMT_NVFP4_CODES] = {"nvfp4_codes", -1, GW_NVFP4_BLOCK, sizeof(gw_block_nvfp4), 0, 1, decode_nvfp4_codes, encode_nvfp4_codes, 0, NULL, 0, NULL},
    [GW_FMT_Q8_0]      = {"q8_0",         8,  32, sizeof(gw_block_q8_0),          0, 0, decode_q8_0,      encode_q8_0,                1, term_q8_0, 1, term_q8_0},
    [GW_FMT_Q4_0]      = {"q4_0",         2,  32, sizeof(gw_block_q4_0),          0, 0, decode_q4_0,      encode_q4_0,                1, term_q4_0, 1, term_q4_0},
    [GW_FMT_Q4_1]      = {"q4_1",         3,  32, sizeof(gw_block_q4_1),          0, 0, decode_q4_1,      NULL,                       1, term_q4_1, 1, term_q4_1},
    [GW_FMT_Q5_0]      = {"q5_0",         6,  32, sizeof(gw_block_q5_0),          0, 0, decode_q5_0,      NULL,                       1, term_q5_0, 1, term_q5_0},
    [GW_FMT_Q5_1]      = {"q5_1",         7,  32, sizeof(gw_block_q5_1),          0, 0, decode_q5_1,      NULL,                       1, term_q5_1, 1, term_q5_1},
    [GW_FMT_Q2_K]      = {"q2_k",        10, 256, sizeof(gw_block_q2_k),          0, 0, decode_q2_k,      NULL,                       1, term_q2_k, GW_ACT_SPAN, prompt_term_q2_k},
    [GW_FMT_Q3_K]      = {"q3_k",        11, 256, sizeof(gw_block_q3_k),          0, 0, decode_q3_k,      NULL,                       1, term_q3_k, GW_ACT_SPAN, prompt_term_q3_k},
    [GW_FMT_Q4_K]      = {"q4_k",        12, 256, sizeof(gw_block_q4_k),          0, 0, decode_q4_k,      NULL,                       1, term_q4_k, GW_ACT_SPAN, prompt_term_q4_k},
    [GW_FMT_Q5_K]      = {"q5_k",        13, 256, sizeof(gw_block_q5_k),          0, 0, decode_q5_k,      NULL,                       1, term_q5_k, GW_ACT_SPAN, prompt_term_q5_k},
    [GW_FMT_Q6_K]      = {"q6_k",        14, 256, sizeof(gw_block_q6_k),          0, 0, decode_q6_k,      NULL,                       1, term_q6_k, GW_ACT_SPAN, prompt_term_q6_k},
    [GW_FMT_IQ4_NL]    = {"iq4_nl",      20,  32, sizeof(gw_block_iq4_nl),        0, 0, decode_iq4_nl,    NULL,                       1, term_iq4_nl, 1, term_iq4_nl},
    [GW_FMT_IQ4_XS]    = {"iq4_xs",      23, 256, sizeof(gw_block_iq4_xs),        0, 0, decode_iq4_xs,    NULL,                       1, term_iq4_xs, GW_ACT_SPAN, prompt_term_iq4_xs},
    [GW_FMT_MXFP4]     = {"mxfp4",       39,  32, sizeof(gw_block_mxfp4),         0, 0, decode_mxfp4,     NULL,                       1, term_mxfp4, 1, term_mxfp4},
    [GW_FMT_INT8]      = {"int8",       GW_GGUF_OWN + 11,  32, sizeof(gw_block_int8), sizeof(gw_row_int8), 0, decode_int8, encode_int8,            1, term_int8, 1, term_int8},
    [GW_FMT_INT4_G32]  = {"int4-g32",   GW_GGUF_OWN + 7,  32, sizeof(gw_block_int4_g32),      0, 0, decode_int4_g32,  encode_int4_g32,            1, term_int4_g32, 1, term_int4_g32},
    [GW_FMT_INT4_G64]  = {"int4-g64",   GW_GGUF_OWN + 8,  64, sizeof(gw_block_int4_g64),      0, 0, decode_int4_g64,  encode_int4_g64,            1, term_int4_g64, 1, term_int4_g64},
    [GW_FMT_INT4_G128] = {"int4-g128",  GW_GGUF_OWN + 9, 128, sizeof(gw_block_int4_g128),     0, 0, decode_int4_g128, encode_int4_g128, GW_ACT_SPAN, term_int4_g128, GW_ACT_SPAN, term_int4_g128},
    [GW_FMT_INT4_G256] = {"int4-g256",  GW_GGUF_OWN + 10, 256, sizeof(gw_block_int4_g256),     0, 0, decode_int4_g256, encode_int4_g256, GW_ACT_SPAN, term_int4_g256, GW_ACT_SPAN, term_int4_g256},
    [GW_FMT_BL3H_B64]    = {"bl3h-b64",   GW_GGUF_OWN + 2,  64, sizeof(gw_block_bl3h_b64),      0, 0, decode_bl3h_b64,  encode_bl3h_b64,            1, term_bl3h_b64, 1, term_bl3h_b64},
    [GW_FMT_BL2_B32]     = {"bl2-b32",    GW_GGUF_OWN + 0,  32, sizeof(gw_block_bl2_b32),       0, 0, decode_bl2_b32,   encode_bl2_b32,             1, term_bl2_b32, 1, term_bl2_b32},
    [GW_FMT_BL3_B32]     = {"bl3-b32",    GW_GGUF_OWN + 1,  32, sizeof(gw_block_bl3_b32),       0, 0, decode_bl3_b32,   encode_bl3_b32,             1, term_bl3_b32, 1, term_bl3_b32},
    [GW_FMT_BL5_B64]     = {"bl5-b64",    GW_GGUF_OWN + 3,  64, sizeof(gw_block_bl5_b64),       0, 0, decode_bl5_b64,   encode_bl5_b64,             1, term_bl5_b64, 1, term_bl5_b64},
    [GW_FMT_BL6_B64]     = {"bl6-b64",    GW_GGUF_OWN + 4,  64, sizeof(gw_block_bl6_b64),       0, 0, decode_bl6_b64,   encode_bl6_b64,             1, term_bl6_b64, 1, term_bl6_b64},
    [GW_FMT_BL8_B32]     = {"bl8-b32",    GW_GGUF_OWN + 5,  32, sizeof(gw_block_bl8_b32),       0, 0, decode_bl8_b32,   encode_bl8_b32,             1, term_bl8_b32, 1, term_bl8_b32},
    [GW_FMT_BL8_B64]     = {"bl8-b64",    GW_GGUF_OWN + 6,  64, sizeof(gw_block_bl8_b64),       0, 0, decode_bl8_b64,   encode_bl8_b64,             1, term_bl8_b64, 1, term_bl8_b64},
    [GW_FMT_IQ3_S_CODES] = {"iq3_s_codes", -1, 256, sizeof(gw_block_iq3_s_codes), 0, 0, decode_iq3_s_codes, encode_iq3_s_codes, 1, term_iq3_s_codes, GW_ACT_SPAN, prompt_term_iq3_s_codes},
    [GW_FMT_IQ3_XXS_CODES] = {"iq3_xxs_codes", -1, 256, sizeof(gw_block_iq3_xxs_codes), 0, 0, decode_iq3_xxs_codes, encode_iq3_xxs_codes, 1, term_iq3_xxs_codes, GW_ACT_SPAN, prompt_term_iq3_xxs_codes},
    [GW_FMT_IQ2_CODES] = {"iq2_codes", -1, 256, sizeof(gw_block_iq2_codes), 0, 0, decode_iq2_codes, encode_iq2_codes, 1, term_iq2_codes, GW_ACT_SPAN, prompt_term_iq2_codes},
    [GW_FMT_IQ1_CODES] = {"iq1_codes", -1, 256, sizeof(gw_block_iq1_codes), 0, 0, decode_iq1_codes, encode_iq1_codes, 1, term_iq1_codes, GW_ACT_SPAN, prompt_term_iq1_codes},
    [GW_FMT_IQ2_XXS]   = {"iq2_xxs",    16, 256, 66,                            0, 0, decode_iq2_xxs,   NULL,                       0, NULL, 0, NULL},
    [GW_FMT_IQ2_XS]    = {"iq2_xs",     17, 256, 74,                            0, 0, decode_iq2_xs,    NULL,                       0, NULL, 0, NULL},
    [GW_FMT_IQ2_S]     = {"iq2_s",      22, 256, 82,                            0, 0, decode_iq2_s,     NULL,                       0, NULL, 0, NULL},
    [GW_FMT_IQ3_XXS]   = {"iq3_xxs",    18, 256, 98,                            0, 0, decode_iq3_xxs,   NULL,                       0, NULL, 0, NULL},
    [GW_FMT_IQ3_S]     = {"iq3_s",      21, 256, 110,                           0, 0, decode_iq3_s,     NULL,                       0, NULL, 0, NULL},
    [GW_FMT_IQ1_S]     = {"iq1_s",      19, 256, 50,                            0, 0, decode_iq1_s,     NULL,                       0, NULL, 0, NULL},
    [GW_FMT_IQ1_M]     = {"iq1_m",      29, 256, 56,                            0, 0, decode_iq1_m,     NULL,                       0, NULL, 0, NULL},
    [GW_FMT_TQ1_0]     = {"tq1_0",      34, 256, 54,                            0, 0, decode_tq1_0,     NULL,                       0, NULL, 0, NULL},
    [GW_FMT_TQ2_0]     = {"tq2_0",      35, 256, 66,                            0, 0, decode_tq2_0,     NULL,                       0, NULL, 0, NULL},
    [GW_FMT_Q1_0]      = {"q1_0",       41, 128, 18,                            0, 0, decode_q1_0,      NULL,                       0, NULL, 0, NULL},
    [GW_FMT_Q2_0]      = {"q2_0",       42,  64, 18,                            0, 0, decode_q2_0,      NULL,                       0, NULL, 0, NULL},
    [GW_FMT_NVFP4]     = {"nvfp4",      40,  64, 36,                            0, 0, decode_nvfp4,     NULL,                       0, NULL, 0, NULL},
    [GW_FMT_ACT8]      = {"act8",        -1,  32, sizeof(gw_act8),                0, 0, decode_act8,      encode_act8,                0, NULL, 0, NULL},
    [GW_FMT_I32]       = {"i32",         -1,   1, sizeof(gw_i32),                 0, 0, decode_i32,       NULL,                       0, NULL, 0, NULL},
};
/* clang-format on */
_Static_assert(sizeof formats / sizeof formats[0] == GW_FMT_COUNT, "a format has no row");
_Static_assert(sizeof(gw_block_q8_0) == 34 && sizeof(gw_block_q4_0) == 18 &&
                   sizeof(gw_block_q4_1) == 20 && sizeof(gw_block_q5_0) == 22 &&
                   sizeof(gw_block_q5_1) == 24 && sizeof(gw_block_iq4_nl) == 18 &&
                   sizeof(gw_block_mxfp4) == 17,
               "GGUF fixes the blocks of 32");
_Static_assert(sizeof(gw_block_q2_k) == 84 && sizeof(gw_block_q3_k) == 110 &&
                   sizeof(gw_block_q4_k) == 144 && sizeof(gw_block_q5_k) == 176 &&
                   sizeof(gw_block_q6_k) == 210 && sizeof(gw_block_iq4_xs) == 136,
               "GGUF fixes the blocks of 256");
_Static_assert(sizeof(gw_block_bl2_b32) == 12 && sizeof(gw_block_bl3_b32) == 16 &&
                   sizeof(gw_block_bl3h_b64) == 32 && sizeof(gw_block_bl5_b64) == 44 &&
                   sizeof(gw_block_bl6_b64) == 52 && sizeof(gw_block_bl8_b32) == 36 &&
                   sizeof(gw_block_bl8_b64) == 68,
               "files have them");
_Static_assert(sizeof(gw_act8) == 40, "devices exchange activation blocks");

const gw_format *gw_format_of(gw_fmt fmt) { return &formats[fmt]; }

const char *gw_format_repacked(int64_t type) {
    static const char *const orders[] = {"Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8"};
    return type >= 31 && type <= 33 ? orders[type - 31] : NULL;
}

/* Types of numbers that are no weights. */
static const char *gguf_type_name(int64_t type) {
    static const char *const known[] = {
        [9] = "Q8_1", [15] = "Q8_K", [24] = "I8",  [25] = "I16",
        [26] = "I32", [27] = "I64",  [28] = "F64",
    };
    int in_table = type >= 0 && type < (int64_t)(sizeof known / sizeof known[0]);
    return in_table ? known[type] : NULL;
}

static int gguf_type_withdrawn(int64_t type) {
    return type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38);
}

gw_status gw_format_from_gguf(int64_t type, gw_fmt *out) {
    for (int i = 0; i < GW_FMT_COUNT; i++) {
        if (formats[i].gguf_type >= 0 && formats[i].gguf_type == type) {
            *out = (gw_fmt)i;
            return GW_OK;
        }
    }
    const char *name = gguf_type_name(type);
    if (name) {
        return gw_fail(GW_E_TYPE, NULL,
                       "tensor type %lld (%s) is not supported; use a file in F16, "
                       "Q8_0, Q4_0, Q4_K, Q6_K or another of the supported types",
                       (long long)type, name);
    }
    if (gguf_type_withdrawn(type)) {
        return gw_fail(GW_E_TYPE, NULL,
                       "tensor type %lld was withdrawn from GGUF; convert the model "
                       "again",
                       (long long)type);
    }
    return gw_fail(GW_E_TYPE, NULL, "tensor type %lld is unknown", (long long)type);
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static int same_name(const char *a, const char *b) {
    while (*a && lower(*a) == lower(*b)) {
        a++;
        b++;
    }
    return lower(*a) == lower(*b);
}

int gw_format_from_name(const char *name, gw_fmt *out) {
    static const struct {
        const char *name;
        gw_fmt fmt;
    } others[] = {{"bl2", GW_FMT_BL2_B32},      {"bl3", GW_FMT_BL3_B32},
                  {"bl3h", GW_FMT_BL3H_B64},    {"bl4", GW_FMT_INT4_G64},
                  {"bl4-b32", GW_FMT_INT4_G32}, {"bl4-b64", GW_FMT_INT4_G64},
                  {"bl5", GW_FMT_BL5_B64},      {"bl6", GW_FMT_BL6_B64},
                  {"bl8", GW_FMT_BL8_B64}};
    for (size_t i = 0; name != NULL && i < sizeof others / sizeof others[0]; i++) {
        if (same_name(name, others[i].name)) {
            *out = others[i].fmt;
            return 1;
        }
    }
    for (int i = 0; name && i < GW_FMT_COUNT; i++) {
        if (same_name(formats[i].name, name)) {
            *out = (gw_fmt)i;
            return 1;
        }
    }
    return 0;
}

gw_status gw_row_bytes(gw_fmt fmt, uint64_t cols, size_t *bytes) {
    const gw_format *f = gw_format_of(fmt);
    uint64_t total;
    if (cols % f->block_elems != 0 && !f->is_float) {
        return gw_fail(GW_E_METADATA, NULL,
                       "a row of %llu values is no whole number of %s blocks "
                       "of %zu",
                       (unsigned long long)cols, f->name, f->block_elems);
    }
    if (__builtin_mul_overflow(cols / f->block_elems + (cols % f->block_elems != 0),
                               (uint64_t)f->block_bytes, &total) ||
        __builtin_add_overflow(total, (uint64_t)f->row_header, &total) || total > SIZE_MAX) {
        return gw_fail(GW_E_OVERFLOW, NULL, "a row of %llu %s values does not fit in memory",
                       (unsigned long long)cols, f->name);
    }
    *bytes = (size_t)total;
    return GW_OK;
}

gw_status gw_matrix_bytes(gw_fmt fmt, uint64_t rows, uint64_t cols, size_t *bytes) {
    size_t row = 0;
    uint64_t total;
    GW_TRY(gw_row_bytes(fmt, cols, &row));
    if (__builtin_mul_overflow(rows, (uint64_t)row, &total) || total > SIZE_MAX) {
        return gw_fail(GW_E_OVERFLOW, NULL,
                       "a matrix of %llu x %llu %s values does not fit in memory",
                       (unsigned long long)rows, (unsigned long long)cols, gw_format_of(fmt)->name);
    }
    *bytes = (size_t)total;
    return GW_OK;
}
