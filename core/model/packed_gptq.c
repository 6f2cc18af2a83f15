/* core/model/packed_gptq.c - X.qweight with scales, zeros, maybe an index: GPTQ and AWQ, in the
 * layout that the configuration declares. Sources: AutoGPTQ, GPTQModel (gptq_v2; gptq_p, the planes
 * of 2026), AutoAWQ's gemm and gemv. */
#include <string.h>

#include "core/base/reader.h"
#include "core/model/packed_parts.h"
#include "core/tensor/blocks.h"

/* ---- GPTQ and AWQ --------------------------------------------------------------------------- */

/* The one value that all zeros have; -1: they differ. */
static int same_zeros(const uint8_t *words, int64_t lines, int64_t wide, int64_t rows, int bits) {
    uint32_t mask = ((uint32_t)1 << bits) - 1;
    int value = (int)(gw_load_le(words, 4) & mask);
    for (int64_t i = 0; i < lines; i++) {
        const uint8_t *line = words + 4 * i * wide;
        for (int64_t r = 0; r < rows; r++) {
            uint64_t at = (uint64_t)(r * bits);
            uint32_t v = (uint32_t)gw_load_le(line + at / 32 * 4, 4) >> at % 32;
            if (at % 32 + (unsigned)bits > 32) {
                v |= (uint32_t)gw_load_le(line + at / 32 * 4 + 4, 4) << (32 - at % 32);
            }
            if ((int)(v & mask) != value) {
                return -1;
            }
        }
    }
    return value;
}

/* AutoGPTQ writes a bias of zeros where the layer has none. */
static void pass_zero_bias(const gw_finder *f) {
    gw_raw bias = gw_packed_beside(f, ".bias");
    int zero = bias.t != NULL;
    for (size_t i = 0; zero && i < bias.t->bytes; i++) {
        zero = ((const uint8_t *)bias.t->data)[i] == 0;
    }
    if (zero) {
        gw_packed_used(f, bias);
    }
}

/* What is added to a zero as stored. Zeros that are all the middle of the codes, or that less one,
 * are those of a symmetric matrix and say more than a label of the first two versions. */
static int zero_added(const gw_finder *f, gw_gptq_layout layout, const uint8_t *words,
                      int64_t lines, int64_t wide) {
    const json_t *sym = json_object_get(f->config, "sym");
    int middle = 1 << (f->p.bits - 1);
    if (layout == GW_GPTQ_PLANES) {
        return 0;
    }
    int value = json_is_false(sym) ? -1 : same_zeros(words, lines, wide, f->p.rows, f->p.bits);
    return value == middle || value == middle - 1 ? middle - value : layout == GW_GPTQ_RAW ? 0 : 1;
}

/* Bits that are there only in planes say so themselves. */
static int in_planes(gw_gptq_layout layout, int bits) {
    return bits == 5 || bits == 6 || bits == 7 || (layout == GW_GPTQ_PLANES && bits == 3);
}

static gw_status take_scales(gw_finder *f, gw_raw scales, int64_t groups, int64_t wide) {
    f->p.span = gw_packed_span(f, f->p.cols, groups);
    return f->p.span == 0 || !gw_packed_numbers(f, scales, wide, &f->p.scale) ||
                   f->codes.t->bytes == 0
               ? gw_packed_misfit(f, scales, ".scales")
               : GW_OK;
}

/* AWQ for products with vectors: [rows, cols / 8] words, [rows, groups] scales and zeros, both
 * widened to a multiple of words. */
static gw_status find_gemv(gw_finder *f) {
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    gw_raw scales = gw_packed_beside(f, ".scales"), zeros = gw_packed_beside(f, ".qzeros");
    if (scales.t == NULL || scales.t->n_dim != 2 || t->n_dim != 2 || zeros.t == NULL ||
        !gw_raw_is_shape(zeros, t->dim[0], scales.t->dim[1] / 8) || !gw_raw_is(zeros, "I32") ||
        scales.t->dim[0] != t->dim[0] || t->dim[1] > INT32_MAX / 8) {
        return gw_packed_misfit(f, scales.t == NULL ? scales : zeros,
                                scales.t == NULL ? ".scales" : ".qzeros");
    }
    p->rows = p->each = t->dim[0];
    p->cols = 8 * t->dim[1];
    p->bits = 4;
    p->high = 1;
    p->kind = GW_CODES_WORDS;
    p->codes = t->data;
    p->stride = (size_t)t->dim[1] * 4;
    int64_t size = gw_json_whole(f->config, "group_size");
    size = size != 0 ? size : gw_json_whole(f->config, "q_group_size");
    size = size < 0 ? p->cols : size > 0 ? size : 128;
    int64_t groups = (p->cols + size - 1) / size;
    if (groups > scales.t->dim[1]) {
        return gw_packed_misfit(f, scales, ".scales");
    }
    p->zeros = GW_ZERO_ROW;
    p->zero = zeros.t->data;
    p->zero_wide = zeros.t->dim[1];
    GW_TRY(take_scales(f, scales, groups, scales.t->dim[1]));
    return gw_packed_keep_linear(f);
}

/* Bits of a code and the shape: all three tensors have to agree. */
static gw_status take_shape(gw_finder *f, int awq, gw_raw scales, gw_raw zeros) {
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    p->rows = p->each = scales.t->dim[1];
    if (zeros.t != NULL
            ? !gw_raw_is(zeros, "I32") || zeros.t->n_dim != 2 || zeros.t->dim[0] != scales.t->dim[0]
            : awq) {
        return gw_packed_misfit(f, zeros, ".qzeros");
    }
    p->bits = awq                              ? 4
              : zeros.t != NULL && p->rows > 0 ? (int)(zeros.t->dim[1] * 32 / p->rows)
                                               : (int)gw_json_whole(f->config, "bits");
    int known = p->bits >= 2 && p->bits <= 8;
    if (!known || (zeros.t != NULL && zeros.t->dim[1] * 32 != p->rows * p->bits) ||
        t->dim[1] != (awq ? p->rows / 8 : p->rows) || t->dim[0] * 32 / p->bits > INT32_MAX) {
        return gw_packed_misfit(f, f->codes, "");
    }
    p->cols = awq ? t->dim[0] : t->dim[0] * 32 / p->bits;
    return GW_OK;
}

gw_status gw_find_qweight(gw_finder *f) {
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    gw_gptq_layout layout = f->declared->gptq;
    gw_raw scales = gw_packed_beside(f, ".scales"), zeros = gw_packed_beside(f, ".qzeros");
    if (layout == GW_GPTQ_GEMV) {
        return find_gemv(f);
    }
    if (scales.t == NULL || scales.t->n_dim != 2 || t->n_dim != 2) {
        return gw_packed_misfit(f, scales, ".scales");
    }
    int64_t groups = scales.t->dim[0], wide = scales.t->dim[1];
    int awq = layout == GW_GPTQ_AWQ ||
              (layout == GW_GPTQ_UNDECLARED && wide % 8 == 0 && t->dim[1] == wide / 8);
    GW_TRY(take_shape(f, awq, scales, zeros));
    p->high = 1;
    p->turned = 1;
    int planes = !awq && in_planes(layout, p->bits);
    layout = planes ? GW_GPTQ_PLANES : layout;
    GW_TRY(take_scales(f, scales, groups, wide));
    p->kind = awq ? GW_CODES_AWQ : planes ? GW_CODES_PLANES : GW_CODES_COLUMNS;
    p->codes = t->data;
    p->stride = (size_t)t->dim[1] * 4;
    p->zeros = zeros.t == NULL ? GW_ZERO_SAME
               : awq           ? GW_ZERO_AWQ
               : planes        ? GW_ZERO_PLANES
                               : GW_ZERO_STREAM;
    p->zero_add = 1 << (p->bits - 1);
    if (zeros.t != NULL) {
        p->zero = zeros.t->data;
        p->zero_wide = zeros.t->dim[1];
        p->zero_add = awq ? 0 : zero_added(f, layout, p->zero, groups, p->zero_wide);
    }
    GW_TRY(gw_packed_order(f, gw_packed_beside(f, ".g_idx"), ".g_idx", groups));
    pass_zero_bias(f);
    return gw_packed_keep_linear(f);
}
