/* core/tensor/small.c - see small.h. Layouts: GGUF's description of each type. */
#include "core/tensor/nvfp4.h"
#include "core/tensor/small.h"

#include <string.h>

#include "core/tensor/blocks.h"
#include "core/tensor/codes.h"
#include "core/tensor/planes.h"

/* A number of 16 or 32 bits. */
static gw_u32 word(const gw_u8 *p) {
    return (gw_u32)p[0] | (gw_u32)p[1] << 8 | (gw_u32)p[2] << 16 | (gw_u32)p[3] << 24;
}

/* Bit i: the sign of the i-th of eight. Seven are stored, the number of minus signs is even. */
static unsigned even_signs(unsigned seven) {
    unsigned p = seven ^ seven >> 4;
    p ^= p >> 2;
    p ^= p >> 1;
    return seven | (p & 1) << 7;
}

static void take_eight(gw_i8 *code, gw_u16 point, unsigned signs) {
    static const gw_i8 sizes[4] = {8, 25, 43, 0};
    for (int i = 0; i < 8; i++) {
        int v = sizes[point >> 2 * i & 3];
        code[i] = (gw_i8)(signs >> i & 1 ? -v : v);
    }
}

static void take_four(gw_i8 *code, gw_u16 point, const gw_i8 *sizes, unsigned signs) {
    for (int i = 0; i < 4; i++) {
        int v = sizes[point >> 3 * i & 7];
        code[i] = (gw_i8)(signs >> i & 1 ? -v : v);
    }
}

/* Eight times (-1, 0 or 1, and an eighth more or less). */
static void take_ternary(gw_i8 *code, gw_u16 point, int less) {
    for (int i = 0; i < 8; i++) {
        code[i] = (gw_i8)(8 * ((int)(point >> 2 * i & 3) - 1) + (less ? -1 : 1));
    }
}

/* d, then of each sub-block four bytes of points, and four of signs (7 bits each) and scale. */
static void read_iq2_xxs(const gw_u8 *b, int sub, gw_small *o) {
    const gw_u8 *q = b + 2 + 8 * sub;
    gw_u32 rest = word(q + 4);
    for (int k = 0; k < 4; k++) {
        take_eight(o->code + 8 * k, gw_grid_iq2_xxs[q[k]], even_signs(rest >> 7 * k & 127));
    }
    o->d = gw_load_f16(b) * 0.125f;
    o->sc[0] = o->sc[1] = (gw_i32)(2 * (rest >> 28) + 1);
}

/* d, 32 numbers of 9 bits of point and 7 of signs, eight bytes of scales. */
static void read_iq2_xs(const gw_u8 *b, int sub, gw_small *o) {
    for (int k = 0; k < 4; k++) {
        unsigned q = gw_load_u16(b + 2 + 8 * sub + 2 * k);
        take_eight(o->code + 8 * k, gw_grid_iq2_xs[q & 511], even_signs(q >> 9));
    }
    o->d = gw_load_f16(b) * 0.125f;
    o->sc[0] = 2 * (b[66 + sub] & 15) + 1;
    o->sc[1] = 2 * (b[66 + sub] >> 4) + 1;
}

/* d, 32 low bytes of points, 32 bytes of signs, 8 bytes of two high bits, 8 of scales. */
static void read_iq2_s(const gw_u8 *b, int sub, gw_small *o) {
    for (int k = 0; k < 4; k++) {
        int q = b[2 + 4 * sub + k] | (b[66 + sub] >> 2 * k & 3) << 8;
        take_eight(o->code + 8 * k, gw_grid_iq2_s[q], b[34 + 4 * sub + k]);
    }
    o->d = gw_load_f16(b) * 0.125f;
    o->sc[0] = 2 * (b[74 + sub] & 15) + 1;
    o->sc[1] = 2 * (b[74 + sub] >> 4) + 1;
}

/* d, 64 points, then four bytes of signs and scale a sub-block. */
static void read_iq3_xxs(const gw_u8 *b, int sub, gw_small *o) {
    static const gw_i8 sizes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    gw_u32 rest = word(b + 66 + 4 * sub);
    for (int k = 0; k < 8; k++) {
        unsigned signs = even_signs(rest >> 7 * (k / 2) & 127) >> k % 2 * 4;
        take_four(o->code + 4 * k, gw_grid_iq3_xxs[b[2 + 8 * sub + k]], sizes, signs);
    }
    o->d = gw_load_f16(b) * 0.25f;
    o->sc[0] = o->sc[1] = (gw_i32)(2 * (rest >> 28) + 1);
}

/* d, 64 low bytes of points, 8 of high bits, 32 of signs, 4 of scales. */
static void read_iq3_s(const gw_u8 *b, int sub, gw_small *o) {
    static const gw_i8 sizes[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    for (int k = 0; k < 8; k++) {
        int q = b[2 + 8 * sub + k] | (b[66 + sub] >> k & 1) << 8;
        unsigned signs = (unsigned)b[74 + 4 * sub + k / 2] >> k % 2 * 4;
        take_four(o->code + 4 * k, gw_grid_iq3_s[q], sizes, signs);
    }
    o->d = gw_load_f16(b);
    o->sc[0] = o->sc[1] = 2 * (b[106 + sub / 2] >> sub % 2 * 4 & 15) + 1;
}

/* d, 32 low bytes of points, then of each sub-block four times three bits, scale, sign of delta. */
static void read_iq1_s(const gw_u8 *b, int sub, gw_small *o) {
    unsigned rest = gw_load_u16(b + 34 + 2 * sub);
    for (int k = 0; k < 4; k++) {
        unsigned q = b[2 + 4 * sub + k] | (rest >> 3 * k & 7) << 8;
        take_ternary(o->code + 8 * k, gw_grid_iq1[q], rest >> 15 & 1);
    }
    o->d = gw_load_f16(b) * 0.125f;
    o->sc[0] = o->sc[1] = (gw_i32)(2 * (rest >> 12 & 7) + 1);
}

/* 32 low bytes of points, 16 of three high bits and the sign of delta, 8 of scales, three bits
 * each; above these the four parts of d. */
static void read_iq1_m(const gw_u8 *b, int sub, gw_small *o) {
    unsigned d = 0;
    for (int i = 0; i < 4; i++) {
        d |= (unsigned)(gw_load_u16(b + 48 + 2 * i) >> 12) << 4 * i;
    }
    for (int k = 0; k < 4; k++) {
        unsigned high = (unsigned)b[32 + 2 * sub + k / 2] >> k % 2 * 4;
        take_ternary(o->code + 8 * k, gw_grid_iq1[b[4 * sub + k] | (high & 7) << 8], high >> 3 & 1);
    }
    unsigned scales = gw_load_u16(b + 48 + sub / 2 * 2) >> sub % 2 * 6;
    o->d = gw_f16_to_f32((gw_u16)d) * 0.125f;
    o->sc[0] = (gw_i32)(2 * (scales & 7) + 1);
    o->sc[1] = (gw_i32)(2 * (scales >> 3 & 7) + 1);
}

/* Digit `at` of a byte that holds `n` of base 3 as a fraction of 256. */
static gw_i8 digit(gw_u8 byte, int at) {
    static const gw_u8 power[5] = {1, 3, 9, 27, 81};
    gw_u8 q = (gw_u8)(byte * power[at]);
    return (gw_i8)((q * 3 >> 8) - 1);
}

/* 32 bytes of five times 32 weights, 16 of five times 16, 4 of four times 4, then d. */
static void read_tq1_0(const gw_u8 *b, int sub, gw_small *o) {
    for (int i = 0; i < 32; i++) {
        int at = 32 * sub + i, rest = at - 160;
        o->code[i] = at < 160    ? digit(b[at % 32], at / 32)
                     : rest < 80 ? digit(b[32 + rest % 16], rest / 16)
                                 : digit(b[48 + (rest - 80) % 4], (rest - 80) / 4);
    }
    o->d = gw_load_f16(b + 52);
    o->sc[0] = o->sc[1] = 1;
}

static void read_tq2_0(const gw_u8 *b, int sub, gw_small *o) {
    for (int i = 0; i < 32; i++) {
        o->code[i] = (gw_i8)((b[sub / 4 * 32 + i] >> 2 * (sub % 4) & 3) - 1);
    }
    o->d = gw_load_f16(b + 64);
    o->sc[0] = o->sc[1] = 1;
}

static void read_q1_0(const gw_u8 *b, int sub, gw_small *o) {
    for (int i = 0; i < 32; i++) {
        o->code[i] = b[2 + 4 * sub + i / 8] >> i % 8 & 1 ? 1 : -1;
    }
    o->d = gw_load_f16(b);
    o->sc[0] = o->sc[1] = 1;
}

static void read_q2_0(const gw_u8 *b, int sub, gw_small *o) {
    for (int i = 0; i < 32; i++) {
        o->code[i] = (gw_i8)((b[2 + 8 * sub + i / 4] >> i % 4 * 2 & 3) - 1);
    }
    o->d = gw_load_f16(b);
    o->sc[0] = o->sc[1] = 1;
}

/* Four scales of E4M3 without a sign, then eight bytes for each 16 weights, as in Q4_0. */
static void read_nvfp4(const gw_u8 *b, int sub, gw_small *o) {
    for (int h = 0; h < 2; h++) {
        const gw_u8 *q = b + 4 + 16 * sub + 8 * h;
        int e = b[2 * sub + h] >> 3 & 15, m = b[2 * sub + h] & 7;
        for (int j = 0; j < 8; j++) {
            o->code[16 * h + j] = gw_e2m1_level(q[j] & 15);
            o->code[16 * h + 8 + j] = gw_e2m1_level(q[j] >> 4);
        }
        o->sc[h] = b[2 * sub + h] == 127 ? 0 : e == 0 ? m : (8 + m) << (e - 1);
    }
    o->d = 0x1p-10f;
}

/* clang-format off */
static const struct {
    gw_fmt fmt;
    void (*read)(const gw_u8 *block, int sub, gw_small *out);
} known[] = {
    {GW_FMT_IQ2_XXS, read_iq2_xxs}, {GW_FMT_IQ2_XS, read_iq2_xs}, {GW_FMT_IQ2_S, read_iq2_s},
    {GW_FMT_IQ3_XXS, read_iq3_xxs}, {GW_FMT_IQ3_S, read_iq3_s},
    {GW_FMT_IQ1_S, read_iq1_s},     {GW_FMT_IQ1_M, read_iq1_m},
    {GW_FMT_TQ1_0, read_tq1_0},     {GW_FMT_TQ2_0, read_tq2_0},
    {GW_FMT_Q1_0, read_q1_0},       {GW_FMT_Q2_0, read_q2_0},
    {GW_FMT_NVFP4, read_nvfp4},
};
/* clang-format on */
enum { KNOWN = sizeof known / sizeof known[0] };

int gw_format_is_small(gw_fmt fmt) {
    for (int i = 0; i < KNOWN; i++) {
        if (known[i].fmt == fmt) {
            return 1;
        }
    }
    return 0;
}

void gw_small_read(gw_fmt fmt, const void *row, size_t sub, gw_small *out) {
    const gw_format *f = gw_format_of(fmt);
    size_t per = f->block_elems / GW_ACT_BLOCK;
    for (int i = 0; i < KNOWN; i++) {
        if (known[i].fmt == fmt) {
            known[i].read((const gw_u8 *)row + sub / per * f->block_bytes, (int)(sub % per), out);
        }
    }
}

/* ---- formats with kernels ------------------------------------------------------------------- */

gw_fmt gw_small_home(gw_fmt fmt) {
    switch (fmt) {
    case GW_FMT_TQ1_0:
    case GW_FMT_TQ2_0:
        return GW_FMT_Q2_K;
    case GW_FMT_Q1_0:
    case GW_FMT_Q2_0:
        return GW_FMT_Q4_0;
    case GW_FMT_IQ3_S:
        return GW_FMT_IQ3_S_CODES;
    case GW_FMT_IQ3_XXS:
        return GW_FMT_IQ3_XXS_CODES;
    case GW_FMT_IQ2_XXS:
    case GW_FMT_IQ2_XS:
    case GW_FMT_IQ2_S:
        return GW_FMT_IQ2_CODES;
    case GW_FMT_IQ1_S:
    case GW_FMT_IQ1_M:
        return GW_FMT_IQ1_CODES;
    case GW_FMT_NVFP4:
        return GW_FMT_NVFP4_CODES;
    default:
        return GW_FMT_F32;
    }
}

static void put_f16(gw_u8 *to, float x) {
    gw_u16 bits = gw_f32_to_f16(x);
    to[0] = (gw_u8)(bits & 255u);
    to[1] = (gw_u8)(bits >> 8);
}

/* d * (code + 1) - d */
static void put_q2_k(gw_block_q2_k *b, int sub, const gw_small *s) {
    put_f16(b->d, s->d);
    put_f16(b->dmin, s->d);
    b->scales[2 * sub] = b->scales[2 * sub + 1] = 0x11;
    for (int i = 0; i < 32; i++) {
        gw_u8 *at = &b->codes[sub / 4 * 32 + i];
        *at = (gw_u8)(*at | (s->code[i] + 1) << 2 * (sub % 4));
    }
}

static void put_q4_0(gw_block_q4_0 *b, const gw_small *s) {
    put_f16(b->d, s->d);
    for (int j = 0; j < 16; j++) {
        b->nibbles[j] = (gw_u8)((s->code[j] + 8) | (s->code[j + 16] + 8) << 4);
    }
}

/* Blocks of 256: d, then for each 32 weights the scales of its halves, then indices of levels. */
#define PUT_CODES(unused, FORMAT, name, low, high, offset, levels, term, sub_bytes, share, head)       \
    if (home == GW_FMT_##FORMAT && (levels) != GW_LEVELS_NONE) {                                       \
        gw_u8 *bytes = ((gw_block_##name *)to)->bytes;                                                 \
        memcpy(bytes, &s.d, sizeof s.d);                                                               \
        bytes[4 + 2 * sub] = (gw_u8)s.sc[0];                                                           \
        bytes[5 + 2 * sub] = (gw_u8)((term) == GW_TERM_HALVES ? s.sc[1] : 0);                          \
        for (int i = 0; i < GW_ACT_BLOCK; i++) {                                                       \
            int index = index_of(levels, (low) + (high), s.code[i]);                                   \
            gw_plane_put(bytes + GW_PLANE_LOW_AT(sub_bytes, share, head) + 4 * (low)*sub, low, i,      \
                         index);                                                                       \
            if ((high) > 0) {                                                                          \
                gw_plane_put(bytes + GW_PLANE_HIGH_AT(low, sub_bytes, share, head) + 4 * (high)*sub,   \
                             high, i, index >> (low));                                                 \
            }                                                                                          \
        }                                                                                              \
    }

/* Of levels whose upper half is the lower one with a minus sign. */
static int index_of(int levels, int bits, int code) {
    int half = 1 << (bits - 1), i = 0;
    while (i + 1 < half && gw_level(levels, i) != (code < 0 ? -code : code)) {
        i++;
    }
    return code < 0 ? i + half : i;
}

/* Codes of eight weights and eight more to pairs of neighbours; a scale that is NaN is 0, as ggml
 * takes it. */
static void convert_nvfp4(const gw_u8 *b, size_t cols, gw_block_nvfp4 *to) {
    const float scale = 0x1p22f;
    memset(to, 0, (cols + GW_NVFP4_BLOCK - 1) / GW_NVFP4_BLOCK * sizeof *to);
    for (size_t i = 0; i < cols; i++) {
        gw_block_nvfp4 *t = to + i / GW_NVFP4_BLOCK;
        const gw_u8 *from = b + i / 64 * 36;
        size_t at = i % GW_NVFP4_BLOCK, in = i % 64;
        gw_u8 s = from[in / 16] & 127u;
        int code = from[4 + in / 16 * 8 + in % 8] >> (in % 16 / 8 * 4) & 15;
        memcpy(t->scale, &scale, sizeof scale);
        t->s[at / 16] = s == 127 ? 0 : s;
        t->nibbles[at / 2] = (gw_u8)(t->nibbles[at / 2] | code << at % 2 * 4);
    }
}

void gw_small_convert(gw_fmt fmt, const void *row, size_t cols, gw_fmt home, void *dst) {
    const gw_format *h = gw_format_of(home);
    size_t per = h->block_elems / GW_ACT_BLOCK;
    if (home == GW_FMT_NVFP4_CODES) {
        convert_nvfp4(row, cols, dst);
        return;
    }
    memset(dst, 0, cols / h->block_elems * h->block_bytes);
    for (size_t b = 0; b < cols / GW_ACT_BLOCK; b++) {
        gw_u8 *to = (gw_u8 *)dst + b / per * h->block_bytes;
        int sub = (int)(b % per);
        gw_small s;
        gw_small_read(fmt, row, b, &s);
        if (home == GW_FMT_Q2_K) {
            put_q2_k((gw_block_q2_k *)to, sub, &s);
        } else if (home == GW_FMT_Q4_0) {
            put_q4_0((gw_block_q4_0 *)to, &s);
        }
        GW_PLANE_FORMATS(PUT_CODES, 0)
    }
}

void gw_nvfp4_times(void *row, size_t cols, float factor) {
    gw_block_nvfp4 *b = row;
    for (size_t i = 0; i < cols; i += GW_NVFP4_BLOCK, b++) {
        float scale = gw_load_f32(b->scale) * factor;
        memcpy(b->scale, &scale, sizeof scale);
    }
}

void gw_small_decode(gw_fmt fmt, float *dst, const void *row, size_t cols) {
    for (size_t b = 0; b < cols / GW_ACT_BLOCK; b++) {
        gw_small s;
        gw_small_read(fmt, row, b, &s);
        for (int i = 0; i < GW_ACT_BLOCK; i++) {
            dst[b * GW_ACT_BLOCK + (size_t)i] = s.d * (float)s.sc[i / 16] * (float)s.code[i];
        }
    }
}
