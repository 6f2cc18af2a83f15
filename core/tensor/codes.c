/* core/tensor/codes.c - the one place that takes stored blocks apart for private layouts. */
#include "core/tensor/codes.h"

#include <string.h>

#include "core/tensor/blocks.h"
#include "core/tensor/planes.h"

/* Blocks of GW_ACT_BLOCK weights in one block of the file. */
static size_t subs_of(gw_fmt fmt) { return gw_format_of(fmt)->block_elems / GW_ACT_BLOCK; }

static const void *stored(gw_fmt fmt, const void *row, size_t b) {
    const gw_format *f = gw_format_of(fmt);
    return (const char *)row + f->row_header + b / subs_of(fmt) * f->block_bytes;
}

/* clang-format off */
#define CODES(FMT, name)                                                                           \
    case GW_FMT_##FMT:                                                                             \
        gw_##name##_codes((const gw_block_##name *)block, (int)sub, code);                         \
        break;
#define GROUP_CODES(FMT, name)                                                                     \
    case GW_FMT_##FMT:                                                                             \
        gw_nibbles(((const gw_block_##name *)block)->nibbles + 16 * sub, 0, code);                 \
        break;
#define PLANE_CODES(unused, FMT, name, ...) CODES(FMT, name)
/* clang-format on */

void gw_row_codes(gw_fmt fmt, const void *row, size_t b, gw_i8 *code) {
    const void *block = stored(fmt, row, b);
    const size_t sub = b % subs_of(fmt);
    switch (fmt) {
        CODES(Q8_0, q8_0)
        CODES(Q4_0, q4_0)
        CODES(Q4_1, q4_1)
        CODES(Q5_0, q5_0)
        CODES(Q5_1, q5_1)
        CODES(Q2_K, q2_k)
        CODES(Q3_K, q3_k)
        CODES(Q4_K, q4_k)
        CODES(Q5_K, q5_k)
        CODES(Q6_K, q6_k)
        CODES(IQ4_NL, iq4_nl)
        CODES(IQ4_XS, iq4_xs)
        CODES(MXFP4, mxfp4)
        CODES(BL3H_B64, bl3h_b64)
        GW_PLANE_FORMATS(PLANE_CODES, 0)
        GROUP_CODES(INT4_G32, int4_g32)
        GROUP_CODES(INT4_G64, int4_g64)
        GROUP_CODES(INT4_G128, int4_g128)
        GROUP_CODES(INT4_G256, int4_g256)
    default: /* INT8 */
        gw_int8_codes((const gw_block_int8 *)block, code);
        break;
    }
}

typedef struct numbers {
    int low, offset, levels, head;
} numbers;

#define NUMBERS(unused, FMT, name, low, high, offset, levels, term, sub, share, head)              \
    [GW_FMT_##FMT] = {low, offset, levels, GW_HEAD_BYTES(head)},
#define IS_PLANE(unused, FMT, ...) [GW_FMT_##FMT] = 1,
static const char is_plane[GW_FMT_COUNT] = {GW_PLANE_FORMATS(IS_PLANE, 0)};
static const numbers all_numbers[GW_FMT_COUNT] = {GW_QUANT_FORMATS(NUMBERS, 0)};

#define PLANE_INDICES(unused, FMT, name, low, high, offset, levels, term, sub_bytes, ...)          \
    case GW_FMT_##FMT:                                                                             \
        for (int i = 0; i < GW_ACT_BLOCK; i++) {                                                   \
            int v = gw_##name##_index((const gw_block_##name *)block, sub, i);                     \
            index[i] = (gw_u8)((low) == 8 ? v - (offset) : v);                                     \
        }                                                                                          \
        return;

/* Of the table `levels`; of two that are equal (zeros) the first. */
static gw_u8 level_index(int levels, int level) {
    int i = 0;
    while (i < 15 && gw_level(levels, i) != level) {
        i++;
    }
    return (gw_u8)i;
}

void gw_row_indices(gw_fmt fmt, const void *row, size_t b, gw_u8 *index) {
    const numbers *n = &all_numbers[fmt];
    const void *block = stored(fmt, row, b);
    const int sub = (int)(b % subs_of(fmt));
    gw_i8 code[GW_ACT_BLOCK];
    switch (fmt) {
        GW_PLANE_FORMATS(PLANE_INDICES, 0)
    default:
        break;
    }
    gw_row_codes(fmt, row, b, code);
    for (int i = 0; i < GW_ACT_BLOCK; i++) {
        index[i] = n->levels != GW_LEVELS_NONE ? level_index(n->levels, code[i])
                   : n->low == 8               ? (gw_u8)code[i]
                                               : (gw_u8)(code[i] + n->offset);
    }
}

const unsigned char *gw_row_head(gw_fmt fmt, const void *row, size_t b) {
    const void *block = stored(fmt, row, b);
    switch (fmt) {
    case GW_FMT_Q2_K:
        return ((const gw_block_q2_k *)block)->d; /* dmin follows */
    case GW_FMT_Q3_K:
        return ((const gw_block_q3_k *)block)->d;
    case GW_FMT_Q6_K:
        return ((const gw_block_q6_k *)block)->d;
    case GW_FMT_INT8:
        return (const unsigned char *)row;
    default: /* all others begin with it */
        return (const unsigned char *)block;
    }
}

void gw_row_sub_scales(gw_fmt fmt, const void *row, size_t b, unsigned char *out) {
    const void *block = stored(fmt, row, b);
    const int s = (int)(b % subs_of(fmt));
    int first, second = 0;
    if (is_plane[fmt]) {
        memcpy(out, (const unsigned char *)block + all_numbers[fmt].head + 2 * s, 2);
        return;
    }
    if (fmt == GW_FMT_Q2_K) {
        first = ((const gw_block_q2_k *)block)->scales[2 * s];
        second = ((const gw_block_q2_k *)block)->scales[2 * s + 1];
    } else if (fmt == GW_FMT_Q3_K) {
        first = gw_q3_k_scale((const gw_block_q3_k *)block, 2 * s);
        second = gw_q3_k_scale((const gw_block_q3_k *)block, 2 * s + 1);
    } else if (fmt == GW_FMT_Q6_K) {
        first = ((const gw_block_q6_k *)block)->scales[2 * s];
        second = ((const gw_block_q6_k *)block)->scales[2 * s + 1];
    } else if (fmt == GW_FMT_IQ4_XS) {
        first = gw_iq4_xs_scale((const gw_block_iq4_xs *)block, s);
    } else { /* Q4_K, Q5_K */
        const gw_u8 *scales = fmt == GW_FMT_Q5_K ? ((const gw_block_q5_k *)block)->scales
                                                 : ((const gw_block_q4_k *)block)->scales;
        first = gw_six_bit_scale(scales, s);
        second = gw_six_bit_min(scales, s);
    }
    out[0] = (unsigned char)(first & 255);
    out[1] = (unsigned char)(second & 255);
}

void gw_plane_put(gw_u8 *plane, int bits, int i, int v) {
    int at = bits == 8 ? i : bits == 4 ? i % 16 : bits == 2 ? i % 8 : i / 8;
    int up = bits == 8 ? 0 : bits == 4 ? i / 16 * 4 : bits == 2 ? i / 8 * 2 : i % 8;
    plane[at] = (gw_u8)(plane[at] | (v & ((1 << bits) - 1)) << up);
}
