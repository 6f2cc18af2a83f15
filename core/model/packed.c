/* core/model/packed.c - see packed.h. Everything has been checked when a row is asked for. */
#include "core/model/packed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/reader.h"
#include "core/tensor/blocks.h"
#include "core/tensor/nvfp4.h"

enum {
    CHUNK = 256, /* columns at once: what is between codes and numbers stays in the cache */
    BAND = 64    /* rows at once whose codes share lines: four cache lines of words        */
};

/* ---- numbers -------------------------------------------------------------------------------- */

/* Sign, four bits of exponent (bias 7), three of mantissa; no infinities, one NaN. Shifted into a
 * binary16, whose bias is 15, the value is 2^-8 of it, subnormals too. */
float gw_e4m3_to_f32(uint8_t bits) {
    if ((bits & 127) == 127) {
        return GW_F32_FROM_BITS(0x7fc00000u);
    }
    return gw_f16_to_f32((gw_u16)((bits & 128) << 8 | (bits & 127) << 7)) * 256.0f;
}

static float number(const gw_numbers *n, int64_t line, int64_t at) {
    size_t i = (size_t)(line * n->wide + at);
    switch (n->kind) {
    case GW_NUMBER_F16:
        return gw_load_f16(n->data + 2 * i);
    case GW_NUMBER_BF16:
        return gw_bf16_to_f32(gw_load_u16(n->data + 2 * i));
    case GW_NUMBER_E4M3:
        return gw_e4m3_to_f32(n->data[i]);
    case GW_NUMBER_E8M0:
        return 2.0f * gw_e8m0_half(n->data[i]);
    case GW_NUMBER_I8:
        return (float)(int8_t)n->data[i];
    case GW_NUMBER_U8:
        return (float)n->data[i];
    default:
        return gw_load_f32(n->data + 4 * i);
    }
}

static int64_t group_of(const gw_packed *p, int64_t col) {
    return p->order != NULL ? p->order[col] : col / p->span;
}

/* Which line of the numbers a row has: experts one after the other, each with whole blocks. */
static int64_t line_of(const gw_packed *p, int64_t row) {
    int64_t lines = (p->each + p->high - 1) / p->high;
    return row / p->each * lines + row % p->each / p->high;
}

static float beside(const gw_packed *p, const gw_numbers *n, int64_t row, int64_t group) {
    return p->turned ? number(n, group, row) : number(n, line_of(p, row), group);
}

/* A scale with the factors that all have. */
static float factored(const gw_packed *p, float s) {
    s = p->times != 0.0f ? s * p->times : s;
    return p->divided != 0.0f ? s / p->divided : s;
}

static float scale_of(const gw_packed *p, int64_t row, int64_t group) {
    return factored(p, p->scale.data != NULL ? beside(p, &p->scale, row, group) : 1.0f);
}

static uint32_t word_at(const uint8_t *p, size_t i) { return (uint32_t)gw_load_le(p + 4 * i, 4); }

/* `bits` bits from bit `at` of a line of words `step` bytes apart. */
static int stream_at(const uint8_t *p, size_t step, uint64_t at, int bits) {
    size_t word = (size_t)(at / 32);
    unsigned from = (unsigned)(at % 32), have = 32 - from;
    uint32_t v = (uint32_t)gw_load_le(p + word * step, 4) >> from;
    if ((int)have < bits) {
        v |= (uint32_t)gw_load_le(p + (word + 1) * step, 4) << have;
    }
    return (int)(v & (((uint32_t)1 << bits) - 1));
}

/* Code i of a line of words `step` bytes apart, of whose every 32 codes the planes lie one after
 * the other: the widest of 8, 4, 2, 1 bits that is left holds the lowest bits. */
static int plane_at(const uint8_t *p, size_t step, int64_t i, int bits) {
    const uint8_t *word = p + (size_t)(i / 32 * bits) * step;
    int value = 0, k = (int)(i % 32);
    for (int done = 0; done < bits;) {
        int left = bits - done, wide = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        int per = 32 / wide;
        uint32_t v = (uint32_t)gw_load_le(word + (size_t)(done + k / per) * step, 4);
        value |= (int)(v >> (unsigned)(k % per * wide) & ((1u << wide) - 1)) << done;
        done += wide; /* a plane has as many words as a code has bits in it */
    }
    return value;
}

/* Where of the eight nibbles of a word the column with this number stands. */
static unsigned awq_shift(int64_t i) {
    static const unsigned char at[8] = {0, 16, 4, 20, 8, 24, 12, 28};
    return at[i & 7];
}

static int zero_of(const gw_packed *p, int64_t row, int64_t group) {
    int per = 32 / p->bits;
    switch (p->zeros) {
    case GW_ZERO_SAME:
        return p->zero_add;
    case GW_ZERO_WORDS: /* packed along the rows */
        return (int)(word_at(p->zero, (size_t)(row / per * p->zero_wide + group)) >>
                         (unsigned)(row % per * p->bits) &
                     (((uint32_t)1 << p->bits) - 1)) +
               p->zero_add;
    case GW_ZERO_STREAM:
        return stream_at(p->zero + 4 * group * p->zero_wide, 4, (uint64_t)row * (uint64_t)p->bits,
                         p->bits) +
               p->zero_add;
    case GW_ZERO_PLANES:
        return plane_at(p->zero + 4 * group * p->zero_wide, 4, row, p->bits) + p->zero_add;
    case GW_ZERO_DOWN:
        return stream_at(p->zero + 4 * group, 4 * (size_t)p->zero_wide,
                         (uint64_t)row * (uint64_t)p->bits, p->bits) +
               p->zero_add;
    case GW_ZERO_ROW:
        return (int)(word_at(p->zero, (size_t)(row * p->zero_wide + group / 8)) >>
                         (unsigned)(group % 8 * 4) &
                     15);
    case GW_ZERO_AWQ:
        return (int)(word_at(p->zero, (size_t)(group * p->zero_wide + row / 8)) >> awq_shift(row) &
                     15);
    case GW_ZERO_I8:
        return (int8_t)p->zero[line_of(p, row) * p->zero_wide + group];
    default:
        return 0;
    }
}

/* ---- codes ---------------------------------------------------------------------------------- */

static void codes_of(const gw_packed *p, int64_t row, int64_t first, int n, int *code) {
    const uint8_t *line = p->codes + (size_t)row * p->stride;
    int bits = p->bits, per = 32 / bits;
    uint32_t mask = ((uint32_t)1 << bits) - 1;
    for (int i = 0; i < n; i++) {
        int64_t c = first + i;
        switch (p->kind) {
        case GW_CODES_WORDS:
            code[i] = (int)(word_at(line, (size_t)(c / per)) >> (unsigned)(c % per * bits) & mask);
            break;
        case GW_CODES_COLUMNS:
            code[i] = stream_at(p->codes + 4 * row, p->stride, (uint64_t)c * (uint64_t)bits, bits);
            break;
        case GW_CODES_PLANES:
            code[i] = plane_at(p->codes + 4 * row, p->stride, c, bits);
            break;
        case GW_CODES_AWQ:
            code[i] =
                (int)(word_at(p->codes + (size_t)c * p->stride, (size_t)row / 8) >> awq_shift(row) &
                      15);
            break;
        case GW_CODES_I8:
            code[i] = (int8_t)line[c];
            break;
        default:
            code[i] = stream_at(line, 4, (uint64_t)c * (uint64_t)bits, bits);
            break;
        }
    }
}

/* Do neighbouring rows lie side by side, a line of columns after the other? */
static int lies_down(const gw_packed *p) {
    return p->kind == GW_CODES_AWQ || p->kind == GW_CODES_PLANES ||
           (p->kind == GW_CODES_COLUMNS && 32 % p->bits == 0);
}

/* Codes of n rows, to [n, cols]: a line is read once for all of them, for the next code of one row
 * is as far as all rows are many. */
static void columns_of(const gw_packed *p, const int64_t *rows, int64_t n, gw_u8 *to) {
    const uint32_t per = 32 / (uint32_t)p->bits, mask = (uint32_t)((1ull << p->bits) - 1);
    for (int64_t first = 0; first < p->cols; first += per) {
        const uint8_t *line = p->codes + (size_t)(first / per) * p->stride;
        const uint32_t have = p->cols - first < per ? (uint32_t)(p->cols - first) : per;
        for (int64_t i = 0; i < n; i++) {
            gw_u8 *code = to + i * p->cols + first;
            uint32_t word = word_at(line, (size_t)rows[i]);
            if (per == 8 && have == 8) {
                uint32_t low = word & 0x0f0f0f0fu, high = word >> 4 & 0x0f0f0f0fu;
                for (int k = 0; k < 4; k++) {
                    code[2 * k] = (gw_u8)(low >> 8 * k & 15);
                    code[2 * k + 1] = (gw_u8)(high >> 8 * k & 15);
                }
                continue;
            }
            for (uint32_t k = 0; k < have; k++) {
                code[k] = (gw_u8)(word >> k * (uint32_t)p->bits & mask);
            }
        }
    }
}

static void plane_columns_of(const gw_packed *p, const int64_t *rows, int64_t n, gw_u8 *to) {
    for (int64_t first = 0; first < p->cols; first += 32) {
        int have = p->cols - first < 32 ? (int)(p->cols - first) : 32;
        for (int64_t i = 0; i < n; i++) {
            for (int k = 0; k < have; k++) {
                to[i * p->cols + first + k] =
                    (gw_u8)plane_at(p->codes + 4 * rows[i], p->stride, first + k, p->bits);
            }
        }
    }
}

static void awq_columns_of(const gw_packed *p, const int64_t *rows, int64_t n, gw_u8 *to) {
    for (int64_t c = 0; c < p->cols; c++) {
        const uint8_t *line = p->codes + (size_t)c * p->stride;
        for (int64_t i = 0; i < n; i++) {
            uint32_t word = word_at(line, (size_t)rows[i] / 8);
            to[i * p->cols + c] = (gw_u8)(word >> awq_shift(rows[i]) & 15);
        }
    }
}

/* Sign, two bits of exponent (bias 1), three of mantissa: eighths up to 7.5. */
static float e2m3_at(const uint8_t *line, int64_t c) {
    const uint8_t *three = line + c / 4 * 3;
    uint32_t bits = (three[0] | (uint32_t)three[1] << 8 | (uint32_t)three[2] << 16) >> c % 4 * 6;
    int e = (int)(bits >> 3 & 3), m = (int)(bits & 7);
    float v = e == 0 ? (float)m / 8.0f : (float)((8 + m) << (e - 1)) / 8.0f;
    return bits & 32 ? -v : v;
}

/* Codes that stand for floats. */
static void values_of(const gw_packed *p, int64_t row, int64_t first, int n, float *v) {
    const uint8_t *line = p->codes + (size_t)row * p->stride;
    for (int i = 0; i < n; i++) {
        int64_t c = first + i, flat = row * p->cols + c;
        v[i] = p->kind == GW_CODES_E4M3   ? gw_e4m3_to_f32(line[c])
               : p->kind == GW_CODES_E5M2 ? gw_f16_to_f32((gw_u16)(line[c] << 8))
               : p->kind == GW_CODES_E2M1
                   ? 0.5f * (float)gw_e2m1_level(line[c / 2] >> (unsigned)(c % 2 * 4) & 15)
               : p->kind == GW_CODES_E2M3
                   ? e2m3_at(line, c)
                   : p->levels[p->codes[flat / 2] >> (unsigned)(flat % 2 ? 0 : 4) & 15];
    }
}

static int has_floats(const gw_packed *p) {
    return p->kind == GW_CODES_E4M3 || p->kind == GW_CODES_E5M2 || p->kind == GW_CODES_E2M1 ||
           p->kind == GW_CODES_E2M3 || p->kind == GW_CODES_LEVELS;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* The scale of a weight in blocks that run on over the ends of rows. */
static float flat_scale(const gw_packed *p, int64_t flat) {
    int64_t b = flat / p->span;
    float s = number(&p->scale, 0, b);
    if (p->nested_block > 0) {
        s = p->nested[p->scale.data[b]] * number(&p->nested_scale, 0, b / p->nested_block) +
            p->nested_offset;
    }
    return s;
}

static void floats_of(const gw_packed *p, int64_t row, int64_t first, int n, float *out) {
    int64_t here = -1;
    float s = 1.0f;
    values_of(p, row, first, n, out);
    for (int i = 0; i < n; i++) {
        int64_t c = first + i;
        int64_t g = p->kind == GW_CODES_LEVELS ? (row * p->cols + c) / p->span : group_of(p, c);
        if (g != here) {
            s = p->kind == GW_CODES_LEVELS ? flat_scale(p, row * p->cols + c) : scale_of(p, row, g);
            here = g;
        }
        out[i] = out[i] * s;
    }
}

static void integers_of(const gw_packed *p, const gw_u8 *codes, int64_t row, int64_t first, int n,
                        float *out) {
    int code[CHUNK], z = 0;
    int64_t here = -1;
    float s = 1.0f, m = 0.0f;
    if (codes == NULL) {
        codes_of(p, row, first, n, code);
    }
    for (int i = 0; i < n && codes != NULL; i++) {
        code[i] = codes[first + i];
    }
    for (int i = 0; i < n; i++) {
        int64_t g = group_of(p, first + i);
        if (g != here) {
            s = scale_of(p, row, g);
            z = zero_of(p, row, g);
            m = p->bias.data != NULL ? beside(p, &p->bias, row, g) : 0.0f;
            here = g;
        }
        float w = s * (float)(code[i] - z);
        w = p->bias.data != NULL ? w + m : w;
        out[i] = p->after != 0.0f ? w * p->after : w;
    }
}

/* MXFP4: the codes two columns side by side become those of a block, 16 apart. */
static void join_blocks(const gw_packed *p, int64_t row, gw_u8 *dst) {
    const uint8_t *code = p->codes + (size_t)row * p->stride;
    const uint8_t *e = p->scale.data + (size_t)(line_of(p, row) * p->scale.wide);
    for (int64_t b = 0; b < p->cols / GW_ACT_BLOCK; b++, code += 16) {
        *dst++ = e[b];
        for (int j = 0; j < 16; j++) {
            int low = code[j / 2] >> j % 2 * 4 & 15, high = code[8 + j / 2] >> j % 2 * 4 & 15;
            *dst++ = (gw_u8)(low | high << 4);
        }
    }
}

/* ---- formats -------------------------------------------------------------------------------- */

static int holds_f16(float x) { return x - x == 0.0f && gw_f16_to_f32(gw_f32_to_f16(x)) == x; }

static int all_f16(const gw_packed *p, const gw_numbers *n) {
    int64_t lines = p->turned ? p->rows : line_of(p, p->rows - 1) + 1;
    int64_t groups = (p->cols - 1) / p->span + 1;
    gw_numbers flat = *n;
    int64_t all = n->wide == 0 ? 1 : lines * groups; /* in whatever order */
    flat.wide = 0;
    for (int64_t i = 0; i < all; i++) {
        if (!holds_f16(number(&flat, 0, i))) {
            return 0;
        }
    }
    return 1;
}

/* The range of code - zero, by the zeros that there are: of a symmetric matrix they are all one. */
static void range_of(const gw_packed *p, int *least, int *most) {
    int top = (1 << p->bits) - 1, none = p->zeros == GW_ZERO_NONE;
    int low = none ? 0 : zero_of(p, 0, 0), high = low;
    int64_t groups = p->zeros == GW_ZERO_SAME || none ? 0 : (p->cols - 1) / p->span + 1;
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t row = 0; row < p->rows; row++) {
            int zero = zero_of(p, row, g);
            low = zero < low ? zero : low;
            high = zero > high ? zero : high;
        }
    }
    *least = -high;
    *most = top - low;
    if (p->kind == GW_CODES_I8) {
        *least = p->zeros == GW_ZERO_NONE ? -128 : -256;
        *most = p->zeros == GW_ZERO_NONE ? 127 : 256;
    }
}

static gw_fmt biased_fmt(const gw_packed *p) {
    int fits =
        p->bits <= 4 && p->cols % p->span == 0 && all_f16(p, &p->scale) && all_f16(p, &p->bias);
    return !fits            ? GW_FMT_F32
           : p->span == 32  ? GW_FMT_INT4_G32
           : p->span == 64  ? GW_FMT_INT4_G64
           : p->span == 128 ? GW_FMT_INT4_G128
           : p->span == 256 ? GW_FMT_INT4_G256
                            : GW_FMT_F32;
}

/* Numbers of eight bits times powers of two are bfloat16. */
static int all_bf16(const gw_packed *p) {
    gw_numbers flat = p->scale;
    int64_t lines = line_of(p, p->rows - 1) + 1, groups = (p->cols - 1) / p->span + 1;
    int64_t n = flat.data == NULL ? 0 : flat.wide == 0 ? 1 : lines * groups;
    int bytes = p->kind == GW_CODES_E4M3 || p->kind == GW_CODES_E5M2 || p->kind == GW_CODES_E2M3;
    flat.wide = 0;
    for (int64_t i = 0; bytes && i < n; i++) {
        gw_u32 u = GW_F32_BITS(number(&flat, 0, i)) & 0x7fffffffu;
        bytes = (u & 0x007fffffu) == 0 && u > 0x0c000000u && u < 0x70000000u; /* 2^-103 .. 2^97 */
    }
    return bytes;
}

/* A scale to be kept as a float of a block, or what all have in common: above 0, and far from the
 * ends of a float. */
static int is_moderate(float s) { return s > 0x1p-100f && s < 0x1p+100f; }

static int as_it_stands(const gw_packed *p) {
    return !p->turned && p->order == NULL && p->after == 0.0f &&
           p->rows * p->cols >= GW_PACKED_LEAST;
}

/* Is it NVFP4? The scales of 16 columns stay bytes. */
static int is_nvfp4(const gw_packed *p) {
    return p->kind == GW_CODES_E2M1 && as_it_stands(p) && p->span == 16 && p->high == 1 &&
           p->scale.kind == GW_NUMBER_E4M3 && p->scale.wide == (p->cols + 15) / 16 &&
           is_moderate(factored(p, 1.0f));
}

/* Is it FP8 whose scales are those of blocks of GW_E4M3_BLOCK columns, or of more? */
static int is_e4m3(const gw_packed *p) {
    if (p->kind != GW_CODES_E4M3 || !as_it_stands(p) ||
        (p->span % GW_E4M3_BLOCK != 0 && p->span < p->cols)) {
        return 0;
    }
    int64_t lines = line_of(p, p->rows - 1) + 1, groups = (p->cols - 1) / p->span + 1;
    int64_t line = p->scale.data == NULL || p->scale.wide == 0 ? 1 : lines;
    for (int64_t l = 0; l < line; l++) {
        for (int64_t g = 0; g < (p->scale.data == NULL || p->scale.wide == 0 ? 1 : groups); g++) {
            float s = factored(p, p->scale.data != NULL ? number(&p->scale, l, g) : 1.0f);
            if (!is_moderate(s)) {
                return 0;
            }
        }
    }
    return 1;
}

gw_fmt gw_packed_fmt(const gw_packed *p) {
    int least = 0, most = 0;
    if (gw_packed_is_changed(p)) {
        return GW_FMT_F32;
    }
    if (is_e4m3(p)) {
        return GW_FMT_E4M3;
    }
    if (is_nvfp4(p)) {
        return GW_FMT_NVFP4_CODES;
    }
    if (has_floats(p) && !p->turned && p->order == NULL && p->times == 0.0f && p->divided == 0.0f &&
        all_bf16(p)) {
        return GW_FMT_BF16;
    }
    if (has_floats(p) || (p->order != NULL && p->column == NULL) || p->cols % GW_ACT_BLOCK != 0 ||
        (p->span % GW_ACT_BLOCK != 0 && p->span < p->cols) || p->times != 0.0f ||
        p->divided != 0.0f || p->scale.data == NULL || p->rows * p->cols < GW_PACKED_LEAST) {
        return GW_FMT_F32;
    }
    if (p->bias.data != NULL) {
        return biased_fmt(p);
    }
    range_of(p, &least, &most);
    if (least < -128 || most > 127) {
        return GW_FMT_F32;
    }
    if (p->after == 0.0f && all_f16(p, &p->scale)) {
        return least >= -8 && most <= 7     ? GW_FMT_Q4_0
               : least >= -16 && most <= 15 ? GW_FMT_Q5_0
                                            : GW_FMT_Q8_0;
    }
    return p->span >= p->cols ? GW_FMT_INT8 : GW_FMT_F32;
}

static gw_u8 *put_f16(gw_u8 *to, float x) {
    gw_u16 bits = gw_f32_to_f16(x);
    to[0] = (gw_u8)(bits & 255u);
    to[1] = (gw_u8)(bits >> 8);
    return to + 2;
}

/* The bytes of a block of 32 codes, which are not below 0. */
static gw_u8 *put_nibbles(gw_u8 *to, const int *code) {
    for (int j = 0; j < 16; j++) {
        *to++ = (gw_u8)((code[j] & 15) | (code[j + 16] & 15) << 4);
    }
    return to;
}

static gw_u8 *put_block(gw_fmt fmt, gw_u8 *to, float scale, int zero, int *code) {
    for (int i = 0; i < GW_ACT_BLOCK; i++) {
        code[i] += (fmt == GW_FMT_Q4_0 ? 8 : fmt == GW_FMT_Q5_0 ? 16 : 0) - zero;
    }
    to = fmt == GW_FMT_INT8 ? to : put_f16(to, scale);
    if (fmt == GW_FMT_Q4_0) {
        return put_nibbles(to, code);
    }
    if (fmt == GW_FMT_Q5_0) {
        for (int k = 0; k < 4; k++) {
            to[k] = 0;
            for (int i = 0; i < 8; i++) {
                to[k] = (gw_u8)(to[k] | (code[8 * k + i] >> 4) << i);
            }
        }
        return put_nibbles(to + 4, code);
    }
    for (int i = 0; i < GW_ACT_BLOCK; i++) {
        *to++ = (gw_u8)code[i];
    }
    return to;
}

/* The codes of n columns in the order in which they are kept. codes: those of the row, or NULL. */
static void take_codes(const gw_packed *p, const gw_u8 *codes, int64_t row, int64_t first, int n,
                       int *code) {
    if (codes != NULL) {
        for (int i = 0; i < n; i++) {
            code[i] = codes[p->column != NULL ? p->column[first + i] : first + i];
        }
        return;
    }
    if (p->column == NULL) {
        codes_of(p, row, first, n, code);
        return;
    }
    for (int i = 0; i < n; i++) {
        codes_of(p, row, p->column[first + i], 1, code + i);
    }
}

static void put_row(const gw_packed *p, gw_fmt fmt, const gw_u8 *codes, int64_t row, gw_u8 *to) {
    int code[CHUNK];
    int int4 = fmt >= GW_FMT_INT4_G32 && fmt <= GW_FMT_INT4_G256;
    if (fmt == GW_FMT_INT8) {
        float s = scale_of(p, row, 0);
        s = p->after != 0.0f ? s * p->after : s;
        memcpy(to, &s, sizeof s);
        to += sizeof(gw_row_int8);
    }
    for (int64_t c = 0; c < p->cols; c += GW_ACT_BLOCK) {
        int64_t g = c / p->span;
        if (c % CHUNK == 0) {
            take_codes(p, codes, row, c, p->cols - c < CHUNK ? (int)(p->cols - c) : CHUNK, code);
        }
        if (int4) {
            if (c % p->span == 0) {
                to = put_f16(put_f16(to, scale_of(p, row, g)), beside(p, &p->bias, row, g));
            }
            to = put_nibbles(to, code + c % CHUNK);
        } else {
            to = put_block(fmt, to, scale_of(p, row, g), zero_of(p, row, g), code + c % CHUNK);
        }
    }
}

/* FP8: blocks of codes as they are, behind their scale, which is NaN where a code is. */
static void put_e4m3(const gw_packed *p, int64_t row, gw_block_e4m3 *to) {
    const uint8_t *code = p->codes + (size_t)row * p->stride;
    for (int64_t c = 0; c < p->cols; c += GW_E4M3_BLOCK, to++) {
        size_t n = p->cols - c < GW_E4M3_BLOCK ? (size_t)(p->cols - c) : GW_E4M3_BLOCK;
        float scale = 256.0f * scale_of(p, row, c / p->span);
        memset(to->code, 0, sizeof to->code);
        memcpy(to->code, code + c, n);
        for (size_t i = 0; i < n; i++) {
            scale = (to->code[i] & 127) == 127 ? GW_F32_FROM_BITS(0x7fc00000u) : scale;
        }
        memcpy(to->scale, &scale, sizeof scale);
    }
}

/* NVFP4: codes and scales as they are; a scale that is NaN makes its block NaN. */
static void put_nvfp4(const gw_packed *p, int64_t row, gw_block_nvfp4 *to) {
    const uint8_t *code = p->codes + (size_t)row * p->stride;
    const uint8_t *s = p->scale.data + (size_t)(line_of(p, row) * p->scale.wide);
    for (int64_t c = 0; c < p->cols; c += GW_NVFP4_BLOCK, to++) {
        size_t n = p->cols - c < GW_NVFP4_BLOCK ? (size_t)(p->cols - c) : GW_NVFP4_BLOCK;
        float scale = 0x1p22f * factored(p, 1.0f);
        memset(to, 0, sizeof *to);
        memcpy(to->nibbles, code + c / 2, (n + 1) / 2);
        memcpy(to->s, s + c / 16, (n + 15) / 16);
        for (size_t i = 0; i < sizeof to->s; i++) {
            scale = (to->s[i] & 127) == 127 ? GW_F32_FROM_BITS(0x7fc00000u) : scale;
        }
        memcpy(to->scale, &scale, sizeof scale);
    }
}

/* The product with a Walsh-Hadamard matrix, in place. */
static void walsh(float *v, int64_t n) {
    for (int64_t half = 1; half < n; half *= 2) {
        for (int64_t at = 0; at < n; at += 2 * half) {
            for (int64_t i = at; i < at + half; i++) {
                float a = v[i], b = v[i + half];
                v[i] = a + b;
                v[i + half] = a - b;
            }
        }
    }
}

static void turn(const gw_packed *p, float *v) {
    float before[GW_PACKED_TURN_MOST];
    int64_t n = p->turn_block;
    if (p->turn == NULL) {
        walsh(v, n);
    } else {
        memcpy(before, v, (size_t)n * sizeof *v);
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < n; k++) {
                sum += (double)before[k] * (double)p->turn[p->turn_back ? k * n + j : j * n + k];
            }
            v[j] = (float)sum;
        }
    }
    double root = sqrt((double)n);
    for (int64_t j = 0; j < n; j++) {
        v[j] = (float)((double)v[j] / root);
    }
}

/* A row of floats as the input would have been changed. */
static void change_row(const gw_packed *p, float *row) {
    for (int64_t c = 0; c < p->cols && p->column_times != NULL; c++) {
        row[c] *= p->column_times[c];
    }
    for (int64_t at = 0; at < p->cols && p->turn_block > 0; at += p->turn_block) {
        turn(p, row + at);
    }
}

/* codes: [cols] of the row, or NULL. */
static void one_row(const gw_packed *p, gw_fmt fmt, const gw_u8 *codes, int64_t row, void *dst) {
    size_t cell = gw_format_of(fmt)->block_bytes;
    float values[CHUNK];
    if (p->heads > 0) { /* halves of a head out of neighbours */
        int64_t wide = p->rows / p->heads, i = row % wide;
        row = row - i + (i < wide / 2 ? 2 * i : 2 * (i - wide / 2) + 1);
    }
    if (p->kind == GW_CODES_FLOATS) {
        memcpy(dst, p->codes + (size_t)row * p->stride, p->stride);
        return;
    }
    if (fmt == GW_FMT_MXFP4) {
        join_blocks(p, row, dst);
        return;
    }
    if (fmt == GW_FMT_E4M3) {
        put_e4m3(p, row, dst);
        return;
    }
    if (fmt == GW_FMT_NVFP4_CODES) {
        put_nvfp4(p, row, dst);
        return;
    }
    if (!gw_format_of(fmt)->is_float) {
        put_row(p, fmt, codes, row, dst);
        return;
    }
    for (int64_t c = 0; c < p->cols; c += CHUNK) {
        int n = p->cols - c < CHUNK ? (int)(p->cols - c) : CHUNK;
        if (has_floats(p)) {
            floats_of(p, row, c, n, values);
        } else {
            integers_of(p, codes, row, c, n, values);
        }
        gw_format_of(fmt)->encode((char *)dst + (size_t)c * cell, values, (size_t)n);
    }
    if (gw_packed_is_changed(p)) {
        change_row(p, dst);
    }
}

void gw_packed_rows(const gw_packed *p, gw_fmt fmt, const int32_t *list, int64_t first, int64_t n,
                    size_t bytes, void *dst) {
    int64_t band = lies_down(p) && p->heads == 0 && n > 1 ? BAND : 1;
    gw_u8 *codes = band > 1 ? malloc((size_t)(BAND * p->cols)) : NULL;
    for (int64_t done = 0; done < n; done += band) { /* without memory: slower, row by row */
        int64_t rows[BAND], here = n - done < band ? n - done : band;
        for (int64_t i = 0; i < here; i++) {
            rows[i] = list != NULL ? list[first + done + i] : first + done + i;
        }
        if (codes != NULL) {
            (p->kind == GW_CODES_AWQ      ? awq_columns_of
             : p->kind == GW_CODES_PLANES ? plane_columns_of
                                          : columns_of)(p, rows, here, codes);
        }
        for (int64_t i = 0; i < here; i++) {
            one_row(p, fmt, codes != NULL ? codes + i * p->cols : NULL, rows[i],
                    (char *)dst + (size_t)(done + i) * bytes);
        }
    }
    free(codes);
}
