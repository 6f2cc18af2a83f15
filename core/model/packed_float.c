/* core/model/packed_float.c - codes that are small floats: FP8 with scales for blocks, rows or all,
 * E2M1 (NVFP4, MXFP4) and E2M3 (MXFP6) with scales for groups. */
#include <stdio.h>
#include <string.h>

#include "core/base/reader.h"
#include "core/base/text.h"
#include "core/model/packed_parts.h"
#include "core/tensor/blocks.h"

/* ---- FP8 ------------------------------------------------------------------------------------ */

/* Rows and columns of a block, when the scales [lines, wide] are those of blocks. */
static int block_of(const gw_finder *f, const json_t *size, int64_t lines, int64_t wide) {
    int64_t h = 128, w = 128;
    if (size != NULL) {
        h = json_integer_value(json_array_get(size, 0));
        w = json_integer_value(json_array_get(size, 1));
    }
    return h > 0 && w > 0 && (f->p.each + h - 1) / h == lines && (f->p.cols + w - 1) / w == wide;
}

static gw_status take_float_scales(gw_finder *f, gw_raw scale) {
    gw_packed *p = &f->p;
    int64_t n = gw_raw_count(scale), experts = p->each > 0 ? p->rows / p->each : 0;
    int64_t per = experts > 0 && n % experts == 0 ? n / experts : n;
    int64_t wide = scale.t->n_dim > 0 ? scale.t->dim[scale.t->n_dim - 1] : 1;
    if (scale.t->n_dim == 4 && wide == 1) { /* ModelOpt: [lines, 1, wide, 1] */
        wide = scale.t->dim[2];
    }
    int64_t lines = wide > 0 ? per / wide : 0;
    if (per == 1 || n == 1) {
        p->high = p->each;
        p->span = p->cols;
        return gw_packed_numbers(f, scale, n == 1 ? 0 : 1, &p->scale)
                   ? GW_OK
                   : gw_packed_misfit(f, scale, "_scale");
    }
    if (per == p->each && (wide == 1 || scale.t->n_dim == 1 || lines == 1)) {
        lines = p->each;
        wide = 1;
    }
    if (lines == p->each && wide > 0 && p->cols % wide == 0) {
        p->high = 1;
        p->span = p->cols / wide;
    } else {
        const json_t *size = json_object_get(f->config, "weight_block_size");
        for (int k = 0; !block_of(f, size, lines, wide) && k < f->declared->n_schemes; k++) {
            size = json_object_get(f->declared->scheme[k].weights, "block_structure");
        }
        size = json_is_array(size) && block_of(f, size, lines, wide) ? size : NULL;
        if (!block_of(f, size, lines, wide)) {
            return gw_packed_misfit(f, scale, "_scale");
        }
        p->high = size != NULL ? json_integer_value(json_array_get(size, 0)) : 128;
        p->span = size != NULL ? json_integer_value(json_array_get(size, 1)) : 128;
    }
    return gw_packed_numbers(f, scale, wide, &p->scale) ? GW_OK
                                                        : gw_packed_misfit(f, scale, "_scale");
}

gw_status gw_find_float8(gw_finder *f) {
    static const char *const suffixes[] = {"_scale_inv", "_scale"};
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    gw_raw scale = {NULL, ""};
    f->base = strlen(f->name);
    for (size_t i = 0; i < 2 && scale.t == NULL; i++) {
        scale = gw_packed_beside(f, suffixes[i]);
    }
    if (gw_text_ends(f->name, ".weight")) {
        f->base -= sizeof "weight" - 1;
        scale = scale.t == NULL ? gw_packed_beside(f, "scale") : scale;
    } else if (scale.t == NULL) {
        return GW_OK;
    }
    if (t->n_dim < 2 || t->n_dim > 3 || t->bytes == 0) {
        return GW_OK;
    }
    p->kind = strcmp(f->codes.dtype, "F8_E5M2") == 0 ? GW_CODES_E5M2 : GW_CODES_E4M3;
    p->bits = 8;
    p->each = t->dim[t->n_dim - 2];
    p->rows = t->n_dim == 3 ? t->dim[0] * p->each : p->each;
    p->cols = t->dim[t->n_dim - 1];
    p->codes = t->data;
    p->stride = (size_t)p->cols;
    p->high = p->each;
    p->span = p->cols;
    if (scale.t != NULL) {
        GW_TRY(take_float_scales(f, scale));
        p->scale.kind = gw_raw_is(scale, "U8") ? GW_NUMBER_E8M0 : p->scale.kind;
    }
    return gw_packed_keep(f, f->name, t->n_dim, t->dim, gw_packed_fmt(p), 0);
}

/* ---- four bits of floating point ------------------------------------------------------------ */

/* codes [.., rows, bytes] of `wide` columns a row, scales [.., rows, groups]. */
static gw_status take_rows(gw_finder *f, gw_raw scale, int64_t row_bytes, int64_t cols) {
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    int last = t->n_dim - 1;
    p->each = t->dim[last - 1];
    p->rows = last == 2 ? t->dim[0] * p->each : p->each;
    p->cols = cols;
    p->codes = t->data;
    p->stride = (size_t)row_bytes;
    p->high = 1;
    int64_t wide = scale.t != NULL && scale.t->n_dim == t->n_dim ? scale.t->dim[last] : 0;
    if (wide < 1 || p->cols % wide != 0 ||
        memcmp(scale.t->dim, t->dim, (size_t)last * sizeof *t->dim) != 0 ||
        !gw_packed_numbers(f, scale, wide, &p->scale)) {
        return gw_packed_misfit(f, scale, ".weight_scale");
    }
    p->span = p->cols / wide;
    return GW_OK;
}

static gw_status keep_rows(gw_finder *f, const char *name, gw_fmt fmt) {
    const gw_stored *t = f->codes.t;
    int64_t dim[3];
    memcpy(dim, t->dim, (size_t)t->n_dim * sizeof *dim);
    dim[t->n_dim - 1] = f->p.cols;
    return gw_packed_keep(f, name, t->n_dim, dim, fmt, 1);
}

gw_status gw_packed_keep_e2m1(gw_finder *f, gw_raw scale, int64_t row_bytes, const char *name,
                              int exponents) {
    gw_packed *p = &f->p;
    p->kind = GW_CODES_E2M1;
    p->bits = 4;
    GW_TRY(take_rows(f, scale, row_bytes, 2 * row_bytes));
    int bytes = gw_raw_is(scale, "U8");
    exponents = exponents >= 0 ? exponents : p->span == 32;
    if (bytes) {
        p->scale.kind = exponents ? GW_NUMBER_E8M0 : GW_NUMBER_E4M3;
    }
    int blocks = exponents && p->span == 32 && (bytes || gw_raw_is(scale, "F8_E8M0"));
    return keep_rows(f, name, blocks ? GW_FMT_MXFP4 : gw_packed_fmt(p));
}

/* Six bits: E2M3, with powers of two for 32 columns. */
static gw_status keep_e2m3(gw_finder *f, gw_raw scale, const char *name) {
    int64_t row_bytes = f->codes.t->dim[1];
    f->p.kind = GW_CODES_E2M3;
    f->p.bits = 6;
    if (row_bytes % 3 != 0) {
        return gw_packed_misfit(f, f->codes, "");
    }
    GW_TRY(take_rows(f, scale, row_bytes, row_bytes / 3 * 4));
    f->p.scale.kind = gw_raw_is(scale, "U8") ? GW_NUMBER_E8M0 : f->p.scale.kind;
    return keep_rows(f, name, gw_packed_fmt(&f->p));
}

gw_status gw_find_packed_bytes(gw_finder *f) {
    char name[240];
    gw_raw global = gw_packed_beside(f, ".weight_global_scale");
    gw_raw scale = gw_packed_beside(f, ".weight_scale");
    const gw_scheme *s = gw_declared_scheme(f->declared, f->name, f->base);
    if (f->codes.t->n_dim != 2) {
        return gw_packed_misfit(f, f->codes, "");
    }
    f->p.divided = gw_packed_lone(f, global);
    snprintf(name, sizeof name, "%.*s.weight", (int)f->base, f->name);
    int bits = s != NULL ? (int)gw_json_whole(s->weights, "num_bits") : 4;
    if (bits == 6) {
        return keep_e2m3(f, scale, name);
    }
    const char *format = s != NULL && s->format != NULL ? s->format : "";
    int exponents = strcmp(format, "mxfp4-pack-quantized") == 0   ? 1
                    : strcmp(format, "nvfp4-pack-quantized") == 0 ? 0
                                                                  : -1;
    return gw_packed_keep_e2m1(f, scale, f->codes.t->dim[1], name, exponents);
}

/* X_blocks [.., rows, n, 16] with X_scales [.., rows, n]: a matrix of MXFP4, n blocks a row. */
gw_status gw_find_blocks(gw_finder *f) {
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    gw_raw scales = gw_packed_beside(f, "_scales");
    int last = t->n_dim - 1;
    if (!gw_raw_is(scales, "U8") || last < 2 || scales.t->n_dim != last || t->dim[last] != 16 ||
        memcmp(t->dim, scales.t->dim, (size_t)last * sizeof *t->dim) != 0) {
        return GW_OK;
    }
    int64_t dim[3];
    memcpy(dim, t->dim, (size_t)last * sizeof *dim);
    dim[last - 1] = t->dim[last - 1] * GW_ACT_BLOCK;
    p->kind = GW_CODES_E2M1;
    p->bits = 4;
    p->each = dim[last - 2];
    p->rows = last == 3 ? dim[0] * p->each : p->each;
    p->cols = dim[last - 1];
    p->codes = t->data;
    p->stride = (size_t)p->cols / 2;
    p->high = 1;
    p->span = GW_ACT_BLOCK;
    p->scale = (gw_numbers){scales.t->data, GW_NUMBER_E8M0, t->dim[last - 1]};
    return gw_packed_keep(f, f->name, last, dim, GW_FMT_MXFP4, 0);
}
