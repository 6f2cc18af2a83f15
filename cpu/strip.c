/* cpu/strip.c - packs rows as stored into strips (strip.h); plain C, the same bytes everywhere. */
#include "cpu/linear.h"

#include <string.h>

enum { WORD, HALF, FIFTH, BYTE }; /* a word of 32 bits, of 16; a word of fifth bits; a byte */

typedef struct part {
    unsigned char kind, src, count; /* `count` words of a block, from byte src on */
} part;

/* clang-format off */
/* The parts of a group in order; the list ends at a count of 0. */
static const part recipes[GW_FMT_COUNT][5] = {
    [GW_FMT_Q8_0]      = {{WORD, 2, 8}, {HALF, 0, 1}},
    [GW_FMT_Q4_0]      = {{WORD, 2, 4}, {HALF, 0, 1}},
    [GW_FMT_Q4_1]      = {{HALF, 0, 2}, {WORD, 4, 4}},
    [GW_FMT_Q5_0]      = {{FIFTH, 2, 1}, {WORD, 6, 4}, {HALF, 0, 1}},
    [GW_FMT_Q5_1]      = {{HALF, 0, 2}, {FIFTH, 4, 1}, {WORD, 8, 4}},
    [GW_FMT_Q2_K]      = {{HALF, 80, 2}, {WORD, 0, 4}, {WORD, 16, 16}},
    [GW_FMT_Q3_K]      = {{WORD, 96, 3}, {WORD, 0, 8}, {WORD, 32, 16}, {HALF, 108, 1}},
    [GW_FMT_Q4_K]      = {{HALF, 0, 2}, {WORD, 4, 3}, {WORD, 16, 32}},
    [GW_FMT_Q5_K]      = {{HALF, 0, 2}, {WORD, 4, 3}, {WORD, 16, 8}, {WORD, 48, 32}},
    [GW_FMT_Q6_K]      = {{WORD, 192, 4}, {WORD, 128, 16}, {WORD, 0, 32}, {HALF, 208, 1}},
    [GW_FMT_IQ4_NL]    = {{WORD, 2, 4}, {HALF, 0, 1}},
    [GW_FMT_IQ4_XS]    = {{HALF, 0, 2}, {WORD, 4, 1}, {WORD, 8, 32}},
    [GW_FMT_MXFP4]     = {{WORD, 1, 4}, {BYTE, 0, 1}},
    [GW_FMT_INT8]      = {{WORD, 0, 8}},
    [GW_FMT_INT4_G32]  = {{HALF, 0, 2}, {WORD, 4, 4}},
    [GW_FMT_INT4_G64]  = {{HALF, 0, 2}, {WORD, 4, 8}},
    [GW_FMT_INT4_G128] = {{HALF, 0, 2}, {WORD, 4, 16}},
    [GW_FMT_INT4_G256] = {{HALF, 0, 2}, {WORD, 4, 32}},
};
/* clang-format on */

static size_t part_bytes(part p) { return (p.kind == HALF ? 2u : p.kind == BYTE ? 1u : 4u) * p.count; }

/* Transposes the 8 x 4 bit matrix in x: bit 4 i + j moves to bit 8 j + i. */
static uint32_t spread_fifth_bits(uint32_t x) {
    uint32_t y = 0;
    for (unsigned j = 0; j < 4; j++) {
        uint32_t t = (x >> j) & 0x11111111u; /* bits at 4 i: gather them to bit i */
        t = (t | t >> 3) & 0x03030303u;
        t = (t | t >> 6) & 0x000f000fu;
        t = (t | t >> 12) & 0x000000ffu;
        y |= t << (8 * j);
    }
    return y;
}

/* dst: one vector per word; rows[r] points at row r's block. */
static void pack_words(unsigned char *dst, const unsigned char *const *rows, part p) {
    for (size_t i = 0; i < p.count; i++) {
        for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
            memcpy(dst + 64 * i + 4 * r, rows[r] + p.src + 4 * i, 4);
        }
    }
}

static void pack_halves(unsigned char *dst, const unsigned char *const *rows, part p) {
    for (size_t i = 0; i < p.count; i++) {
        for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
            memcpy(dst + 32 * i + 2 * r, rows[r] + p.src + 2 * i, 2);
        }
    }
}

static void pack_bytes(unsigned char *dst, const unsigned char *const *rows, part p) {
    for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
        dst[r] = rows[r][p.src];
    }
}

static void pack_fifth_bits(unsigned char *dst, const unsigned char *const *rows, part p) {
    for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
        const unsigned char *s = rows[r] + p.src;
        uint32_t x =
            (uint32_t)s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 | (uint32_t)s[3] << 24;
        uint32_t y = spread_fifth_bits(x);
        for (unsigned j = 0; j < 4; j++) {
            dst[4 * r + j] = (unsigned char)(y >> (8 * j));
        }
    }
}

static unsigned char *pack_part(unsigned char *dst, const unsigned char *const *rows, part p) {
    if (p.kind == WORD) {
        pack_words(dst, rows, p);
    } else if (p.kind == HALF) {
        pack_halves(dst, rows, p);
    } else if (p.kind == FIFTH) {
        pack_fifth_bits(dst, rows, p);
    } else {
        pack_bytes(dst, rows, p);
    }
    return dst + GW_STRIP_ROWS * part_bytes(p);
}

size_t gw_strip_bytes(gw_fmt fmt, size_t cols) {
    const gw_format *f = gw_format_of(fmt);
    return GW_STRIP_ROWS * (f->row_header + cols / f->block_elems * f->block_bytes);
}

void gw_strip_pack(gw_fmt fmt, void *dst, const void *src, size_t n, size_t cols) {
    static const unsigned char zeros[256]; /* the block of a row that is not there */
    const gw_format *f = gw_format_of(fmt);
    const part *parts = recipes[fmt];
    const size_t groups = cols / f->block_elems;
    const size_t row_bytes = f->row_header + groups * f->block_bytes;
    const unsigned char *rows[GW_STRIP_ROWS];
    size_t step[GW_STRIP_ROWS];
    for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
        rows[r] = r < n ? (const unsigned char *)src + r * row_bytes : zeros;
        step[r] = r < n ? f->block_bytes : 0;
    }
    unsigned char *at = dst;
    if (f->row_header > 0) {
        at = pack_part(at, rows, (part){WORD, 0, 1});
        for (size_t r = 0; r < n; r++) {
            rows[r] += f->row_header;
        }
    }
    for (size_t g = 0; g < groups; g++) {
        for (const part *p = parts; p->count > 0; p++) {
            at = pack_part(at, rows, *p);
        }
        for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
            rows[r] += step[r];
        }
    }
}
