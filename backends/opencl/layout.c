/* backends/opencl/layout.c - from rows as stored to the layouts of this backend.
 *
 * Quantized: planes. low: the low bits of the 32 codes of a block, in 32-bit words; high: what is
 * above them; head: d (and m, dmin or zero) in binary16, or the float scale of a row; sub: the two
 * bytes of integer scales per block that K formats have. A word of 4-bit codes holds weights
 * 4 j .. 4 j + 3 in its low nibbles and those 16 further in its high ones; of 2-bit codes, byte k
 * of word j / 4 holds weight 4 j + k at bit 2 (j mod 4); of single bits, byte k holds it at bit j.
 * Of 8-bit codes, GW_CL_TOGETHER blocks have their first halves side by side, then their second
 * ones, so that neighbouring items load neighbouring 16 bytes; rows end with whole such groups.
 * Strips interleave 16 rows by the element: word, half word or float.
 */
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/tensor/blocks.h"
#include "core/tensor/nvfp4.h"
#include "core/tensor/codes.h"
#include "core/tensor/format_list.h"

/* ---- formats --------------------------------------------------------------------------------- */

/* Kernels take a byte for what it is, or an index for its level, plus 128. */
#define PLANES(unused, FORMAT, name, low, high, offset, levels, term, sub, share, head)            \
    [GW_FMT_##FORMAT] = {low,                                                                      \
                         high,                                                                     \
                         (low) == 8 || (levels) != GW_LEVELS_NONE ? 128 : (offset),                \
                         levels,                                                                   \
                         GW_KIND_SIGNED + ((term)-GW_TERM_SIGNED),                                 \
                         GW_HEAD_BYTES(head),                                                      \
                         share,                                                                    \
                         2 * (sub)},
static const gw_cl_planes formats[GW_FMT_COUNT] = {GW_QUANT_FORMATS(PLANES, 0)};
#undef PLANES
_Static_assert((int)GW_KIND_SPAN - GW_KIND_SIGNED == (int)GW_TERM_SPAN - GW_TERM_SIGNED &&
                   (int)GW_KIND_Q2 - GW_KIND_SIGNED == (int)GW_TERM_Q2 - GW_TERM_SIGNED,
               "kinds are terms in their order");

const gw_cl_planes *gw_cl_planes_of(gw_fmt fmt) {
    return fmt < GW_FMT_COUNT && formats[fmt].low_bits > 0 ? &formats[fmt] : NULL;
}

void gw_cl_layout_of(gw_fmt fmt, size_t cols, int strips, gw_cl_layout *out) {
    const gw_cl_planes *p = &formats[fmt];
    out->planes = p;
    out->fmt = fmt;
    out->strips = strips;
    out->cols = cols;
    out->blocks = cols / GW_ACT_BLOCK;
    size_t shared = (size_t)p->head_blocks;
    out->heads = shared > 0 ? (out->blocks + shared - 1) / shared : 1;
    size_t together = p->low_bits == 8 && !strips ? GW_CL_TOGETHER : 1;
    out->low_row = (out->blocks + together - 1) / together * together * (size_t)p->low_bits * 4;
    out->high_row = out->blocks * (size_t)p->high_bits * 4;
    out->head_row = out->heads * (size_t)p->head_bytes;
    out->sub_row = out->blocks * (size_t)p->sub_bytes;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Place of element i of `per_row` of row r. */
static size_t place(const gw_cl_layout *l, size_t r, size_t i, size_t per_row) {
    return l->strips ? i * GW_CL_STRIP + r : r * per_row + i;
}

/* Byte of word j of block b of row r in the low plane. */
static size_t low_place(const gw_cl_layout *l, size_t r, size_t b, size_t j) {
    const size_t words = (size_t)l->planes->low_bits, all = GW_CL_TOGETHER;
    if (words < 8 || l->strips) {
        return 4 * place(l, r, b * words + j, l->blocks * words);
    }
    return r * l->low_row + (b / all * 2 * all + j / 4 * all + b % all) * 16 + j % 4 * 4;
}

static void cut_codes(const gw_cl_planes *p, const gw_u8 *index, gw_u32 *low, gw_u32 *high) {
    memset(low, 0, 8 * sizeof *low);
    memset(high, 0, 2 * sizeof *high);
    for (int i = 0; i < GW_ACT_BLOCK; i++) {
        int j = i / 4, k = i % 4 * 8;
        gw_u32 u = p->low_bits == 8 ? index[i] ^ 128u : index[i];
        gw_u32 bottom = u & ((1u << p->low_bits) - 1u), top = u >> p->low_bits;
        if (p->low_bits == 8) {
            low[j] |= bottom << k;
        } else if (p->low_bits == 4) {
            low[j % 4] |= bottom << (k + j / 4 * 4);
        } else {
            low[j / 4] |= bottom << (k + j % 4 * 2);
        }
        if (p->high_bits == 1) {
            high[0] |= top << (k + j);
        } else if (p->high_bits == 2) {
            high[j / 4] |= top << (k + j % 4 * 2);
        }
    }
}

static void pack_row(const gw_cl_layout *l, const unsigned char *row, size_t r, unsigned char *low,
                     unsigned char *high, unsigned char *head, unsigned char *sub) {
    const gw_cl_planes *p = l->planes;
    size_t low_words = (size_t)p->low_bits, high_words = (size_t)p->high_bits;
    size_t head_bytes = (size_t)p->head_bytes;
    gw_u32 bottom[8], top[2];
    gw_u8 index[GW_ACT_BLOCK];
    for (size_t b = 0; b < l->blocks; b++) {
        gw_row_indices(l->fmt, row, b, index);
        cut_codes(p, index, bottom, top);
        for (size_t j = 0; j < low_words; j++) {
            memcpy(low + low_place(l, r, b, j), &bottom[j], 4);
        }
        for (size_t j = 0; j < high_words; j++) {
            memcpy(high + 4 * place(l, r, b * high_words + j, l->blocks * high_words), &top[j], 4);
        }
        if (p->sub_bytes > 0) {
            gw_row_sub_scales(l->fmt, row, b, sub + 2 * place(l, r, b, l->blocks));
        }
    }
    for (size_t h = 0; h < l->heads; h++) {
        memcpy(head + head_bytes * place(l, r, h, l->heads),
               gw_row_head(l->fmt, row, h * (size_t)p->head_blocks), head_bytes);
    }
}

void gw_cl_pack(const gw_cl_layout *layout, const void *rows, size_t row_bytes, size_t n,
                unsigned char *low, unsigned char *high, unsigned char *head, unsigned char *sub) {
    for (size_t r = 0; r < n; r++) {
        pack_row(layout, (const unsigned char *)rows + r * row_bytes, r, low, high, head, sub);
    }
}

/* ---- floats ---------------------------------------------------------------------------------- */

/* A piece holds GW_LANES times 16 bytes; lane i has elements i, i + 32, ... of it. Behind one of
 * E4M3 come the floats of its four blocks; one of NVFP4 has 8 bytes for each lane, then four
 * floats, and the scales of lanes below 16 and of the others, 16 each in the order of a lane's
 * elements. */
enum { PIECE_16 = 512, OF_E4M3 = 512 + 16, OF_NVFP4 = 256 + 48 };

static size_t per_lane(gw_fmt fmt) {
    const gw_format *f = gw_format_of(fmt);
    return f->block_elems > 1 ? 16 : 16 / f->block_bytes;
}

size_t gw_cl_lanes_pieces(gw_fmt fmt, size_t cols) {
    size_t piece = GW_LANES * per_lane(fmt);
    return (cols + piece - 1) / piece;
}

size_t gw_cl_lanes_bytes(gw_fmt fmt, size_t cols) {
    return gw_cl_lanes_pieces(fmt, cols) * (fmt == GW_FMT_E4M3          ? OF_E4M3
                                            : fmt == GW_FMT_NVFP4_CODES ? OF_NVFP4
                                                                        : PIECE_16);
}

static void pack_e4m3(const gw_block_e4m3 *row, size_t cols, unsigned char *out) {
    for (size_t i = 0; i < cols; i++) {
        const gw_block_e4m3 *b = row + i / GW_E4M3_BLOCK;
        unsigned char *piece = out + i / 512 * OF_E4M3;
        piece[i % GW_LANES * 16 + i % 512 / GW_LANES] = b->code[i % GW_E4M3_BLOCK];
        memcpy(piece + 512 + i % 512 / GW_E4M3_BLOCK * 4, b->scale, 4);
    }
}

static void pack_nvfp4(const gw_block_nvfp4 *row, size_t cols, unsigned char *out) {
    memset(out, 0, gw_cl_lanes_bytes(GW_FMT_NVFP4_CODES, cols));
    for (size_t i = 0; i < cols; i++) {
        const gw_block_nvfp4 *b = row + i / GW_NVFP4_BLOCK;
        const size_t at = i % GW_NVFP4_BLOCK, lane = i % GW_LANES, j = i % 512 / GW_LANES;
        unsigned char *piece = out + i / 512 * OF_NVFP4, *code = piece + lane * 8 + j / 2;
        *code = (unsigned char)(*code | (b->nibbles[at / 2] >> at % 2 * 4 & 15) << j % 2 * 4);
        memcpy(piece + 256 + j / 4 * 4, b->scale, 4);
        piece[272 + lane / 16 * 16 + j] = b->s[at / 16];
    }
}

void gw_cl_lanes_pack(gw_fmt fmt, const void *row, size_t cols, void *out) {
    if (fmt == GW_FMT_E4M3) {
        pack_e4m3(row, cols, out);
        return;
    }
    if (fmt == GW_FMT_NVFP4_CODES) {
        pack_nvfp4(row, cols, out);
        return;
    }
    size_t size = gw_format_of(fmt)->block_bytes, each = 16 / size, piece = GW_LANES * each;
    for (size_t i = 0; i < cols; i++) {
        size_t at = i / piece * piece + i % GW_LANES * each + i % piece / GW_LANES;
        memcpy((unsigned char *)out + at * size, (const unsigned char *)row + i * size, size);
    }
}
