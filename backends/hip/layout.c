/* backends/hip/layout.c - from rows as stored to strips (kernels_hip/strip.h). */
#include <string.h>

#include "backends/hip/shape.h"
#include "core/tensor/blocks.h"
#include "core/tensor/codes.h"
#include "kernels_hip/strip.h"
#include "kernels_hip/strip_e4m3.h"

/* ---- formats --------------------------------------------------------------------------------- */

typedef struct strip_format {
    int low, high, offset, levels, term, sub, heads, head_bytes;
} strip_format;

#define ROW(FORMAT, name, ...) [GW_FMT_##FORMAT] = {__VA_ARGS__},
static const strip_format formats[GW_FMT_COUNT] = {GW_STRIP_FORMATS(ROW)};
#undef ROW

static size_t record_bytes(const strip_format *f) {
    return (size_t)GW_STRIP_RECORD(f->low, f->high, f->sub, f->heads, f->head_bytes);
}

gw_status gw_hip_layout_of(const struct gw_device *device, const gw_tensor *t, int keep_rows,
                           gw_hip_layout *out) {
    const gw_format *format = gw_format_of(t->fmt);
    gw_hip_layout l = {
        .number = GW_LAYOUT_ROWS, .fmt = t->fmt, .rows = 1, .unit = 1, .n_planes = 1};
    (void)device;
    for (int i = 0; i + 1 < t->n_dim; i++) {
        l.rows *= (size_t)t->dim[i];
    }
    l.cols = gw_hip_width(t);
    GW_TRY(gw_row_bytes(t->fmt, l.cols, &l.row_bytes));
    if (keep_rows || t->n_dim != 2) {
        GW_TRY(gw_matrix_bytes(t->fmt, l.rows, l.cols, &l.bytes));
        l.unit_bytes[0] = l.row_bytes;
        *out = l;
        return GW_OK;
    }
    if (gw_hip_record_bytes(t->fmt) == 0) {
        return gw_fail(GW_E_UNSUPPORTED, t->name, "products on a card do not take the format %s",
                       format->name);
    }
    l.number = GW_HIP_LAYOUT_STRIPS;
    l.unit = GW_STRIP_ROWS;
    if (t->fmt == GW_FMT_E4M3) {
        l.unit_bytes[0] = gw_format_blocks(format, l.cols) * GW_STRIP_E4M3_RECORD;
    } else if (t->fmt == GW_FMT_NVFP4_CODES) {
        l.unit_bytes[0] = gw_format_blocks(format, l.cols) * GW_STRIP_NVFP4_RECORD;
    } else if (format->is_float) {
        size_t records = (l.cols + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS;
        l.unit_bytes[0] = records * GW_STRIP_FLOATS * GW_STRIP_ROWS * format->block_bytes;
    } else {
        size_t span = GW_STRIP_BLOCKS * GW_ACT_BLOCK, records = (l.cols + span - 1) / span;
        l.unit_bytes[0] = records * record_bytes(&formats[t->fmt]);
    }
    size_t strips = (l.rows + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS;
    if (l.unit_bytes[0] != 0 && strips > SIZE_MAX / l.unit_bytes[0]) {
        return gw_fail(GW_E_OVERFLOW, t->name, "%zu rows of %zu columns do not fit into memory",
                       l.rows, l.cols);
    }
    l.bytes = strips * l.unit_bytes[0];
    *out = l;
    return GW_OK;
}

/* ---- reading rows as stored ------------------------------------------------------------------ */

/* The 16 bytes of paired nibbles (docs/arithmetic.md) of block b, where the format has them;
 * *high: its fifth bits. */
static const unsigned char *nibbles_of(gw_fmt fmt, const unsigned char *row, size_t b,
                                       const unsigned char **high) {
    const gw_format *f = gw_format_of(fmt);
    size_t subs = f->block_elems / GW_ACT_BLOCK;
    const unsigned char *block = row + b / subs * f->block_bytes;
    *high = NULL;
    switch (fmt) {
    case GW_FMT_Q5_0:
        *high = ((const gw_block_q5_0 *)(const void *)block)->high;
        break;
    case GW_FMT_Q5_1:
        *high = ((const gw_block_q5_1 *)(const void *)block)->high;
        break;
    case GW_FMT_Q4_0:
    case GW_FMT_Q4_1:
    case GW_FMT_IQ4_NL:
    case GW_FMT_IQ4_XS:
    case GW_FMT_MXFP4:
    case GW_FMT_INT4_G32:
    case GW_FMT_INT4_G64:
    case GW_FMT_INT4_G128:
    case GW_FMT_INT4_G256:
        break;
    default:
        return NULL;
    }
    return block + f->block_bytes - 16 * (subs - b % subs); /* they end a block */
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Bits of weight 16 h + 4 t + k of block i, in the plane of `bits` (1 or 2) of row r. */
static void put_bits(unsigned char *plane, int bits, size_t r, size_t i, size_t weight,
                     unsigned v) {
    size_t h = weight / 16, t = weight % 16 / 4, k = weight % 4;
    if (bits == 1) {
        plane[r * 16 + t * 4 + k] |= (unsigned char)(v << (2 * i + h));
    } else {
        plane[GW_STRIP_AT_8(r, t) + i / 2 * 4 + k] |= (unsigned char)(v << (2 * (2 * (i % 2) + h)));
    }
}

static void pack_codes(gw_fmt fmt, const unsigned char *row, size_t b, size_t r,
                       unsigned char *record) {
    const strip_format *f = &formats[fmt];
    const size_t i = b % GW_STRIP_BLOCKS;
    unsigned char *high = record + GW_STRIP_LOW(f->low);
    const unsigned char *fifth, *nibbles = nibbles_of(fmt, row, b, &fifth);
    if (f->low == 8) {
        gw_u8 bytes[GW_ACT_BLOCK];
        const unsigned char *q = fmt == GW_FMT_INT8   ? row + sizeof(gw_row_int8) + 32 * b
                                 : fmt == GW_FMT_Q8_0 ? row + sizeof(gw_block_q8_0) * b + 2
                                                      : bytes;
        if (q == bytes) {
            gw_row_indices(fmt, row, b, bytes);
        }
        for (size_t w = 0; w < 8; w++) {
            memcpy(record + w / 4 * 1024 + GW_STRIP_AT_16(r, w % 4) + i * 4, q + 4 * w, 4);
        }
    } else if (nibbles != NULL) {
        for (size_t t = 0; t < 4; t++) {
            memcpy(record + GW_STRIP_AT_16(r, t) + i * 4, nibbles + 4 * t, 4);
        }
        for (size_t w = 0; fifth != NULL && w < GW_ACT_BLOCK; w++) {
            put_bits(high, 1, r, i, w, (unsigned)fifth[w / 8] >> (w % 8) & 1u);
        }
    } else {
        gw_u8 index[GW_ACT_BLOCK];
        gw_row_indices(fmt, row, b, index);
        for (size_t w = 0; w < GW_ACT_BLOCK; w++) {
            unsigned v = index[w];
            if (f->low == 4) {
                record[GW_STRIP_AT_16(r, w % 16 / 4) + i * 4 + w % 4] |=
                    (unsigned char)((v & 15u) << (w / 16 * 4));
            } else {
                put_bits(record, 2, r, i, w, v & 3u);
            }
            if (f->high > 0) {
                put_bits(high, f->high, r, i, w, v >> f->low);
            }
        }
    }
}

/* What a record has besides codes. */
static void pack_scales(gw_fmt fmt, const unsigned char *row, size_t first, size_t n, size_t r,
                        unsigned char *record) {
    const strip_format *f = &formats[fmt];
    unsigned char *sub = record + GW_STRIP_LOW(f->low) + GW_STRIP_HIGH(f->high);
    size_t heads = (size_t)f->heads, each = (size_t)f->head_bytes;
    unsigned char *head = sub + GW_STRIP_SUB(f->sub) + r * heads * each;
    for (size_t i = 0; i < n && f->sub; i++) {
        gw_row_sub_scales(fmt, row, first + i, sub + 8 * r + 2 * i);
    }
    for (size_t h = 0; h < heads; h++) {
        if (h < n) {
            memcpy(head + h * each, gw_row_head(fmt, row, first + h), each);
        } else { /* -0 */
            memset(head + h * each, 0, each);
            for (size_t j = 1; j < each; j += 2) {
                head[h * each + j] = 0x80;
            }
        }
    }
}

static void pack_quantized(const gw_hip_layout *layout, const unsigned char *rows, size_t n,
                           unsigned char *out) {
    const strip_format *f = &formats[layout->fmt];
    const size_t blocks = layout->cols / GW_ACT_BLOCK, bytes = record_bytes(f);
    const size_t records = (blocks + GW_STRIP_BLOCKS - 1) / GW_STRIP_BLOCKS;
    for (size_t u = 0; u < records; u++) {
        unsigned char *record = out + u * bytes;
        const size_t first = u * GW_STRIP_BLOCKS, left = blocks - first;
        const size_t here = left < GW_STRIP_BLOCKS ? left : GW_STRIP_BLOCKS;
        for (size_t r = 0; r < n; r++) {
            const unsigned char *row = rows + r * layout->row_bytes;
            for (size_t i = 0; i < here; i++) {
                pack_codes(layout->fmt, row, first + i, r, record);
            }
            pack_scales(layout->fmt, row, first, here, r, record);
        }
    }
}

/* Element k of a row, in units of its size, from the start of the strip. */
static size_t float_place(size_t size, size_t r, size_t k) {
    const size_t piece = k / GW_STRIP_FLOATS, e = k % GW_STRIP_FLOATS / 32, v = k % 32;
    const size_t pair = 4 / size, q = v / (4 * pair), t = v % (4 * pair) / pair, o = v % pair;
    return ((piece * (8 / pair) + q) * 1024 + r * 64 + t * 16) / size + e * pair + o;
}

static void pack_floats(const gw_hip_layout *layout, const unsigned char *rows, size_t n,
                        unsigned char *out) {
    const size_t size = gw_format_of(layout->fmt)->block_bytes;
    const size_t padded = (layout->cols + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS * GW_STRIP_FLOATS;
    for (size_t r = 0; r < n; r++) {
        const unsigned char *row = rows + r * layout->row_bytes;
        for (size_t k = 0; k < layout->cols; k++) {
            memcpy(out + float_place(size, r, k) * size, row + k * size, size);
        }
        for (size_t k = layout->cols; k < padded; k++) { /* -0 */
            out[float_place(size, r, k) * size + size - 1] = 0x80;
        }
    }
}

static void pack_e4m3(const gw_hip_layout *layout, const unsigned char *rows, size_t n,
                      unsigned char *out) {
    const size_t records = (layout->cols + GW_E4M3_BLOCK - 1) / GW_E4M3_BLOCK;
    for (size_t u = 0; u < records; u++, out += GW_STRIP_E4M3_RECORD) {
        size_t left = layout->cols - u * GW_E4M3_BLOCK;
        for (size_t r = 0; r < n; r++) {
            const unsigned char *row = rows + r * layout->row_bytes;
            const gw_block_e4m3 *b = (const gw_block_e4m3 *)(const void *)row + u;
            for (size_t k = 0; k < GW_E4M3_BLOCK; k++) {
                size_t q = k % 32 / 8, t = k % 8 / 2, at = k / 32 * 2 + k % 2;
                out[GW_STRIP_E4M3_CLASS * q + 32 * r + 8 * t + at] = k < left ? b->code[k] : 0x80;
            }
            memcpy(out + GW_STRIP_E4M3_CODES + 4 * r, b->scale, 4);
        }
    }
}

static void pack_nvfp4(const gw_hip_layout *layout, const unsigned char *rows, size_t n,
                       unsigned char *out) {
    const size_t records = (layout->cols + GW_NVFP4_BLOCK - 1) / GW_NVFP4_BLOCK;
    for (size_t u = 0; u < records; u++, out += GW_STRIP_NVFP4_RECORD) {
        size_t left = layout->cols - u * GW_NVFP4_BLOCK;
        for (size_t r = 0; r < n; r++) {
            const unsigned char *row = rows + r * layout->row_bytes;
            const gw_block_nvfp4 *b = (const gw_block_nvfp4 *)(const void *)row + u;
            unsigned char *head = out + GW_STRIP_NVFP4_CODES + GW_STRIP_NVFP4_HEAD * r;
            for (size_t k = 0; k < GW_NVFP4_BLOCK; k++) {
                size_t q = k % 32 / 8, t = k % 8 / 2, at = k / 32 * 2 + k % 2;
                unsigned code = k < left ? b->nibbles[k / 2] >> k % 2 * 4 & 15u : 8u; /* -0 */
                unsigned char *to = out + GW_STRIP_NVFP4_CLASS * q + 16 * r + 4 * t + at / 2;
                *to = (unsigned char)(*to | code << at % 2 * 4);
            }
            memcpy(head, b->scale, 4);
            memcpy(head + 4, b->s, 8);
        }
    }
}

void gw_hip_pack(const gw_hip_layout *layout, const unsigned char *rows, size_t n,
                 unsigned char *const out[GW_HIP_PLANES]) {
    if (layout->number == GW_LAYOUT_ROWS) {
        memcpy(out[0], rows, n * layout->row_bytes);
        return;
    }
    memset(out[0], 0, layout->unit_bytes[0]);
    if (layout->fmt == GW_FMT_E4M3) {
        pack_e4m3(layout, rows, n, out[0]);
    } else if (layout->fmt == GW_FMT_NVFP4_CODES) {
        pack_nvfp4(layout, rows, n, out[0]);
    } else if (gw_format_of(layout->fmt)->is_float) {
        pack_floats(layout, rows, n, out[0]);
    } else {
        pack_quantized(layout, rows, n, out[0]);
    }
}
