/* cpu/strip.c - packs rows as stored into strips (strip.h); plain C, the same bytes at every level.
 */
#include "cpu/strip.h"

#include <string.h>

/* A word of 32 bits, of 16; a word of codes; of fifth bits; a byte; a word of nibbles out of BL3H's
 * numbers. */
enum { WORD, HALF, CODES, FIFTH, BYTE, ELEVENS, PARTS = 4 /* of a group at most */ };

typedef struct part {
    unsigned char kind, src, count; /* `count` words of a block, from byte src on */
} part;

/* Of planes.h: the head, integer scales, lower and upper bits. */
#define PLANES(unused, NAME, name, low, high, offset, levels, term, sub, share, head)              \
    [GW_FMT_##NAME] = {                                                                            \
        {(head) == GW_HEAD_F32    ? WORD                                                           \
         : (head) == GW_HEAD_E8M0 ? BYTE                                                           \
                                  : HALF,                                                          \
         0, (head) == GW_HEAD_PAIR ? 2 : 1},                                                       \
        {HALF, GW_HEAD_BYTES(head), (sub) * (share)},                                              \
        {CODES, GW_PLANE_LOW_AT(sub, share, head), (low) * (share)},                               \
        {(high) == 1 ? FIFTH : CODES, GW_PLANE_HIGH_AT(low, sub, share, head), (high) * (share)}},

/* clang-format off */
/* The parts of a group in order. */
static const part recipes[GW_FMT_COUNT][PARTS] = {
    [GW_FMT_Q8_0]      = {{CODES, 2, 8}, {HALF, 0, 1}},
    [GW_FMT_Q4_0]      = {{CODES, 2, 4}, {HALF, 0, 1}},
    [GW_FMT_Q4_1]      = {{HALF, 0, 2}, {CODES, 4, 4}},
    [GW_FMT_Q5_0]      = {{FIFTH, 2, 1}, {CODES, 6, 4}, {HALF, 0, 1}},
    [GW_FMT_Q5_1]      = {{HALF, 0, 2}, {FIFTH, 4, 1}, {CODES, 8, 4}},
    [GW_FMT_Q2_K]      = {{HALF, 80, 2}, {WORD, 0, 4}, {CODES, 16, 16}},
    [GW_FMT_Q3_K]      = {{WORD, 96, 3}, {CODES, 0, 8}, {CODES, 32, 16}, {HALF, 108, 1}},
    [GW_FMT_Q4_K]      = {{HALF, 0, 2}, {WORD, 4, 3}, {CODES, 16, 32}},
    [GW_FMT_Q5_K]      = {{HALF, 0, 2}, {WORD, 4, 3}, {CODES, 16, 8}, {CODES, 48, 32}},
    [GW_FMT_Q6_K]      = {{WORD, 192, 4}, {CODES, 128, 16}, {CODES, 0, 32}, {HALF, 208, 1}},
    [GW_FMT_IQ4_NL]    = {{CODES, 2, 4}, {HALF, 0, 1}},
    [GW_FMT_IQ4_XS]    = {{HALF, 0, 2}, {WORD, 4, 1}, {CODES, 8, 32}},
    [GW_FMT_MXFP4]     = {{CODES, 1, 4}, {BYTE, 0, 1}},
    [GW_FMT_INT8]      = {{CODES, 0, 8}},
    [GW_FMT_INT4_G32]  = {{HALF, 0, 2}, {CODES, 4, 4}},
    [GW_FMT_INT4_G64]  = {{HALF, 0, 2}, {CODES, 4, 8}},
    [GW_FMT_INT4_G128] = {{HALF, 0, 2}, {CODES, 4, 16}},
    [GW_FMT_INT4_G256] = {{HALF, 0, 2}, {CODES, 4, 32}},
    [GW_FMT_BL3H_B64]  = {{HALF, 0, 2}, {ELEVENS, 0, 8}},
    GW_PLANE_FORMATS(PLANES, 0)
};
/* clang-format on */

static size_t part_bytes(part p) {
    return (p.kind == HALF ? 2u : p.kind == BYTE ? 1u : 4u) * p.count;
}

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

/* Where byte k of a vector's code word of row r goes. */
static size_t code_at(size_t r, size_t k) { return GW_STRIP_PLANES ? 16 * k + r : 4 * r + k; }

static void pack_codes(unsigned char *dst, const unsigned char *const *rows, part p) {
    if (!GW_STRIP_PLANES) {
        pack_words(dst, rows, p);
        return;
    }
    for (size_t i = 0; i < p.count; i++) {
        for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
            for (size_t k = 0; k < 4; k++) {
                dst[64 * i + code_at(r, k)] = rows[r][p.src + 4 * i + k];
            }
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
    for (size_t i = 0; i < p.count; i++) {
        for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
            const unsigned char *s = rows[r] + p.src + 4 * i;
            uint32_t x =
                (uint32_t)s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 | (uint32_t)s[3] << 24;
            uint32_t y = spread_fifth_bits(x);
            for (unsigned j = 0; j < 4; j++) {
                dst[64 * i + code_at(r, j)] = (unsigned char)(y >> (8 * j));
            }
        }
    }
}

/* Codes of 32 weights in paired nibbles, 16 bytes, 32 after 32. */
static void pack_elevens(unsigned char *dst, const unsigned char *const *rows, part p) {
    for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
        const gw_block_bl3h_b64 *b = (const gw_block_bl3h_b64 *)(const void *)rows[r];
        for (int j = 0; j < 4 * p.count; j++) {
            int low = gw_bl3h_b64_index(b, j / 16, j % 16);
            int high = gw_bl3h_b64_index(b, j / 16, j % 16 + 16);
            dst[64 * (size_t)(j / 4) + code_at(r, (size_t)(j % 4))] =
                (unsigned char)(low | high << 4);
        }
    }
}

static unsigned char *pack_part(unsigned char *dst, const unsigned char *const *rows, part p) {
    if (p.kind == WORD) {
        pack_words(dst, rows, p);
    } else if (p.kind == CODES) {
        pack_codes(dst, rows, p);
    } else if (p.kind == HALF) {
        pack_halves(dst, rows, p);
    } else if (p.kind == FIFTH) {
        pack_fifth_bits(dst, rows, p);
    } else if (p.kind == ELEVENS) {
        pack_elevens(dst, rows, p);
    } else {
        pack_bytes(dst, rows, p);
    }
    return dst + GW_STRIP_ROWS * part_bytes(p);
}

size_t gw_strip_bytes(gw_fmt fmt, size_t cols) {
    const gw_format *f = gw_format_of(fmt);
    size_t block = fmt == GW_FMT_BL3H_B64 ? sizeof(gw_block_int4_g64) : f->block_bytes;
    return GW_STRIP_ROWS * (f->row_header + cols / f->block_elems * block);
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
        for (size_t i = 0; i < PARTS; i++) {
            at = pack_part(at, rows, parts[i]);
        }
        for (size_t r = 0; r < GW_STRIP_ROWS; r++) {
            rows[r] += step[r];
        }
    }
}
