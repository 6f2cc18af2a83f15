/* tests/format_readings.h - a second reading of every layout: where weight i of a block lives.
 *
 * Written from the GGUF descriptions by weight index, where blocks.h unpacks sub-blocks of 32; it
 * must never include blocks.h. Also the random numbers of the format tests. */
#ifndef GW_TESTS_FORMAT_READINGS_H
#define GW_TESTS_FORMAT_READINGS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/tensor/formats.h"
#include "tests/random.h"

typedef struct weight_fields {
    int code, sc, mn; /* sc 1 where the format has no integer scale */
    double d, wm;     /* wm: the format's own f16 minimum, or dmin */
} weight_fields;

static double half(const uint8_t *p) {
    int bits = p[0] + 256 * p[1], e = bits >> 10 & 31, f = bits & 1023;
    double v = e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);
    return bits & 0x8000 ? -v : v;
}

static int bit_of(const uint8_t *p, int i) { return p[i / 8] >> (i % 8) & 1; }
static int nibble_of(const uint8_t *p, int i) { /* 32 weights in 16 bytes */
    return i < 16 ? p[i] & 15 : p[i - 16] >> 4;
}

static void read_q8_0(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b), w->code = (int8_t)b[2 + i];
}
static void read_q4_0(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b), w->code = nibble_of(b + 2, i) - 8;
}
static void read_q4_1(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b), w->wm = half(b + 2), w->code = nibble_of(b + 4, i);
}
static void read_q5_0(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b), w->code = nibble_of(b + 6, i) + 16 * bit_of(b + 2, i) - 16;
}
static void read_q5_1(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b), w->wm = half(b + 2), w->code = nibble_of(b + 8, i) + 16 * bit_of(b + 4, i);
}
static void read_q2_k(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b + 80), w->wm = half(b + 82);
    w->sc = b[i / 16] % 16, w->mn = b[i / 16] / 16;
    w->code = b[16 + (i >= 128 ? 32 : 0) + i % 32] >> ((i / 32) & 3) * 2 & 3;
}
static void read_q3_k(const uint8_t *b, int i, weight_fields *w) {
    static const uint8_t low_byte[16] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7};
    int h = i / 16;
    w->d = half(b + 108);
    w->sc = (h < 8 ? b[96 + low_byte[h]] % 16 : b[96 + low_byte[h]] / 16) +
            16 * (b[104 + (h & 3)] >> (h >> 2) * 2 & 3) - 32;
    w->code = (b[32 + (i >= 128 ? 32 : 0) + i % 32] >> ((i / 32) & 3) * 2 & 3) -
              (b[i % 32] >> i / 32 & 1 ? 0 : 4);
}
static void read_scales_k(const uint8_t *s, int sub, weight_fields *w) {
    if (sub < 4) {
        w->sc = s[sub] % 64;
        w->mn = s[4 + sub] % 64;
    } else {
        w->sc = s[4 + sub] % 16 + s[sub - 4] / 64 * 16;
        w->mn = s[4 + sub] / 16 + s[sub] / 64 * 16;
    }
}
static void read_q4_k(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b), w->wm = half(b + 2);
    read_scales_k(b + 4, i / 32, w);
    const uint8_t byte = b[16 + i / 64 * 32 + i % 32];
    w->code = i % 64 < 32 ? byte % 16 : byte / 16;
}
static void read_q5_k(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b), w->wm = half(b + 2);
    read_scales_k(b + 4, i / 32, w);
    const uint8_t byte = b[48 + i / 64 * 32 + i % 32];
    w->code = (i % 64 < 32 ? byte % 16 : byte / 16) + 16 * (b[16 + i % 32] >> i / 32 & 1);
}
static void read_q6_k(const uint8_t *b, int i, weight_fields *w) {
    int t = i / 128, r = i % 128; /* runs 0..31 and 64..95 share low bytes 0..31 */
    const uint8_t low = b[64 * t + r % 64];
    w->d = half(b + 208), w->sc = (int8_t)b[192 + i / 16];
    w->code =
        (r < 64 ? low % 16 : low / 16) + 16 * (b[128 + 32 * t + r % 32] >> r / 32 * 2 & 3) - 32;
}
static const int levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
static void read_iq4_nl(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b), w->code = levels[nibble_of(b + 2, i)];
}
static void read_iq4_xs(const uint8_t *b, int i, weight_fields *w) {
    int s = i / 32, low = b[4 + s / 2];
    w->d = half(b), w->code = levels[nibble_of(b + 8 + 16 * s, i % 32)];
    w->sc = (s % 2 ? low / 16 : low % 16) +
            16 * (2 * bit_of(b + 2, 2 * s + 1) + bit_of(b + 2, 2 * s)) - 32;
}
/* Sign, exponent and mantissa one by one, in halves. */
static void read_mxfp4(const uint8_t *b, int i, weight_fields *w) {
    int n = nibble_of(b + 1, i), e = n / 2 % 4, m = n % 2;
    w->d = ldexp(1.0, b[0] - 128);
    w->code = (n >= 8 ? -1 : 1) * (e == 0 ? m : (2 + m) << (e - 1));
}
static void read_int4(const uint8_t *b, int i, weight_fields *w) {
    w->d = half(b), w->wm = half(b + 2), w->code = nibble_of(b + 4 + i / 32 * 16, i % 32);
}
static void read_int8(const uint8_t *b, int i, weight_fields *w) { /* a row of 32 */
    float scale;
    memcpy(&scale, b, sizeof scale);
    w->d = (double)scale, w->code = (int8_t)b[4 + i];
}

/* Numbers of 2, 3, 5, 6 and 8 bits: planes of 4, 2 and 1, each of 32 weights, the wide ones first. */
static int plane_of(const uint8_t *p, int bits, int i) {
    return bits == 8   ? p[i]
           : bits == 4 ? nibble_of(p, i)
           : bits == 2 ? 2 * (p[i % 8] >> (2 * (i / 8) + 1) & 1) + (p[i % 8] >> 2 * (i / 8) & 1)
                       : bit_of(p, i);
}
static int planes_of(const uint8_t *b, int low, int high, int share, int i) {
    int s = i / 32;
    return plane_of(b + 4 * low * s, low, i % 32) +
           (high ? plane_of(b + 4 * low * share + 4 * high * s, high, i % 32) << low : 0);
}
#define READ_LINEAR(name, low, high, share)                                                        \
    static void read_##name(const uint8_t *b, int i, weight_fields *w) {                           \
        w->d = half(b), w->wm = half(b + 2), w->code = planes_of(b + 4, low, high, share, i);      \
    }
READ_LINEAR(bl2, 2, 0, 1)
READ_LINEAR(bl3, 2, 1, 1)
READ_LINEAR(bl5, 4, 1, 2)
READ_LINEAR(bl6, 4, 2, 2)
static void read_bl8(const uint8_t *b, int i, weight_fields *w) {
    /* of the number less 128: zero is that much higher */
    float zero;
    w->d = half(b), w->code = b[4 + i] - 128;
    zero = (float)(half(b + 2) + 128 * w->d);
    w->wm = (double)zero;
}
static void read_bl3h(const uint8_t *b, int i, weight_fields *w) {
    int p = i / 2, v = nibble_of(b + 4, p) + 16 * plane_of(b + 20, 2, p) + 64 * bit_of(b + 28, p);
    w->d = half(b), w->wm = half(b + 2), w->code = i % 2 ? v % 11 : v / 11;
}
/* A float, two scales for each 32, indices. */
static void read_levels(const uint8_t *b, int i, int low, int high, const int *size, int halves,
                        weight_fields *w) {
    int index = planes_of(b + 20, low, high, 8, i), half_of = 1 << (low + high - 1);
    float d;
    memcpy(&d, b, sizeof d);
    w->d = (double)d;
    w->sc = (int8_t)b[4 + i / 32 * 2 + (halves ? i / 16 % 2 : 0)];
    w->code = index < half_of ? size[index] : -size[index - half_of];
}
#define READ_LEVELS(name, low, high, halves, ...)                                                  \
    static void read_##name(const uint8_t *b, int i, weight_fields *w) {                           \
        static const int size[] = {__VA_ARGS__};                                                   \
        read_levels(b, i, low, high, size, halves, w);                                             \
    }
READ_LEVELS(iq3_s, 4, 0, 0, 1, 3, 5, 7, 9, 11, 13, 15)
READ_LEVELS(iq3_xxs, 4, 0, 0, 4, 12, 20, 28, 36, 44, 52, 62)
READ_LEVELS(iq2, 2, 1, 1, 8, 25, 43, 0)
READ_LEVELS(iq1, 2, 1, 1, 1, 7, 9, 0)

enum { FLOAT_AND_SCALES = -2 }; /* for halfs below */

/* SIGNED ws * code · AFFINE ws * code + wm · HALVES integers first, a scale per 16 */
enum shape { SIGNED, AFFINE, AFFINE_K, HALVES, HALVES_MIN };

/* clang-format off */
static const struct reading {
    gw_fmt fmt;
    enum shape shape;
    int halfs; /* offset of the first f16, -1: a float */
    int n_halfs;
    void (*read)(const uint8_t *block, int i, weight_fields *out);
} readings[] = {
    {GW_FMT_Q8_0, SIGNED, 0, 1, read_q8_0},       {GW_FMT_Q4_0, SIGNED, 0, 1, read_q4_0},
    {GW_FMT_Q4_1, AFFINE, 0, 2, read_q4_1},       {GW_FMT_Q5_0, SIGNED, 0, 1, read_q5_0},
    {GW_FMT_Q5_1, AFFINE, 0, 2, read_q5_1},       {GW_FMT_Q2_K, HALVES_MIN, 80, 2, read_q2_k},
    {GW_FMT_Q3_K, HALVES, 108, 1, read_q3_k},     {GW_FMT_Q4_K, AFFINE_K, 0, 2, read_q4_k},
    {GW_FMT_Q5_K, AFFINE_K, 0, 2, read_q5_k},     {GW_FMT_Q6_K, HALVES, 208, 1, read_q6_k},
    {GW_FMT_IQ4_NL, SIGNED, 0, 1, read_iq4_nl},   {GW_FMT_IQ4_XS, SIGNED, 0, 1, read_iq4_xs},
    {GW_FMT_INT8, SIGNED, -1, 0, read_int8},      {GW_FMT_INT4_G32, AFFINE, 0, 2, read_int4},
    {GW_FMT_INT4_G64, AFFINE, 0, 2, read_int4},   {GW_FMT_INT4_G128, AFFINE, 0, 2, read_int4},
    {GW_FMT_INT4_G256, AFFINE, 0, 2, read_int4},  {GW_FMT_MXFP4, SIGNED, 0, 0, read_mxfp4},
    {GW_FMT_BL2_B32, AFFINE, 0, 2, read_bl2},     {GW_FMT_BL3_B32, AFFINE, 0, 2, read_bl3},
    {GW_FMT_BL3H_B64, AFFINE, 0, 2, read_bl3h},   {GW_FMT_BL5_B64, AFFINE, 0, 2, read_bl5},
    {GW_FMT_BL6_B64, AFFINE, 0, 2, read_bl6},     {GW_FMT_BL8_B32, AFFINE, 0, 2, read_bl8},
    {GW_FMT_BL8_B64, AFFINE, 0, 2, read_bl8},
    {GW_FMT_IQ3_S_CODES, SIGNED, FLOAT_AND_SCALES, 0, read_iq3_s},
    {GW_FMT_IQ3_XXS_CODES, SIGNED, FLOAT_AND_SCALES, 0, read_iq3_xxs},
    {GW_FMT_IQ2_CODES, HALVES, FLOAT_AND_SCALES, 0, read_iq2},
    {GW_FMT_IQ1_CODES, HALVES, FLOAT_AND_SCALES, 0, read_iq1},
};
enum { N_READINGS = sizeof readings / sizeof readings[0] };
/* clang-format on */

#endif
