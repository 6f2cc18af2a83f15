/* core/model/packed_tensors.c - integers of compressed-tensors: X.weight_packed of words, with
 * scales, zero points and an index; X.weight of bytes, which bitsandbytes writes as well. */
#include "core/base/reader.h"
#include "core/model/packed_parts.h"
#include "core/tensor/blocks.h"

/* ---- compressed-tensors --------------------------------------------------------------------- */

/* Words of a row: codes that run on over the ends of words, or whole ones in each. */
static int64_t words_of(int64_t bits, int64_t cols, int dense) {
    return dense ? (cols * bits + 31) / 32 : (cols + 32 / bits - 1) / (32 / bits);
}

/* Both layouts of codes of 3, 5, 6 and 7 bits have other numbers of words, but where rows are
 * short: the version of the library that wrote the folder tells then. */
static int fits_bits(const gw_finder *f, int64_t bits, int64_t cols, int64_t words, int *dense) {
    if (bits < 1 || bits > 8) {
        return 0;
    }
    int runs_on = words_of(bits, cols, 1) == words, whole = words_of(bits, cols, 0) == words;
    *dense = runs_on && (!whole || f->declared->dense);
    return runs_on || whole;
}

/* Bits of a code: those of the scheme that targets the module; where none does, those of any, or
 * whatever puts so many columns in so many words. */
static int bits_of_words(const gw_finder *f, int64_t cols, int64_t words, int *dense) {
    static const int usual[] = {4, 8, 2, 3, 6, 5, 7, 1};
    const gw_declared *d = f->declared;
    const gw_scheme *own = gw_declared_scheme(d, f->name, f->base);
    int64_t bits = own != NULL ? gw_json_whole(own->weights, "num_bits") : 0;
    if (bits > 0) {
        return fits_bits(f, bits, cols, words, dense) ? (int)bits : 0;
    }
    for (int k = 0; k < d->n_schemes; k++) {
        bits = gw_json_whole(d->scheme[k].weights, "num_bits");
        if (fits_bits(f, bits, cols, words, dense)) {
            return (int)bits;
        }
    }
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        if (fits_bits(f, usual[i], cols, words, dense)) {
            return usual[i];
        }
    }
    return 0;
}

/* [rows, n] or [rows] or one number: how many groups a row has; 0: the shape does not fit. */
static int64_t groups_of(gw_raw r, int64_t rows) {
    int64_t n = r.t != NULL ? gw_raw_count(r) : 0;
    return n == 1 ? 1 : rows > 0 && n % rows == 0 && r.t->dim[0] == rows ? n / rows : 0;
}

static gw_status take_zero_points(gw_finder *f, int64_t groups, int dense) {
    gw_packed *p = &f->p;
    gw_raw zero = gw_packed_beside(f, ".weight_zero_point");
    int words = p->kind == GW_CODES_WORDS || p->kind == GW_CODES_STREAM;
    p->zeros = words ? GW_ZERO_SAME : GW_ZERO_NONE;
    p->zero_add = 1 << (p->bits - 1);
    if (zero.t == NULL) {
        return GW_OK;
    }
    p->zero = zero.t->data;
    if (gw_raw_is(zero, "I32") &&
        gw_raw_is_shape(zero, words_of(p->bits, p->rows, dense), groups)) {
        p->zeros = dense ? GW_ZERO_DOWN : GW_ZERO_WORDS;
        p->zero_wide = groups;
        p->zero_add = 0;
        if (!words) {
            return gw_packed_misfit(f, zero, ".weight_zero_point");
        }
    } else if (gw_raw_is(zero, "I8") && groups_of(zero, p->rows) == groups &&
               p->kind == GW_CODES_I8) {
        p->zeros = GW_ZERO_I8;
        p->zero_wide = gw_raw_count(zero) == 1 ? 0 : groups;
    } else {
        return gw_packed_misfit(f, zero, ".weight_zero_point");
    }
    gw_packed_used(f, zero);
    return GW_OK;
}

/* Scales of rows in groups of columns. */
static gw_status take_row_scales(gw_finder *f, gw_raw scale, int64_t *groups) {
    gw_packed *p = &f->p;
    *groups = groups_of(scale, p->rows);
    p->span = gw_packed_span(f, p->cols, *groups);
    p->high = 1;
    if (p->span == 0 ||
        !gw_packed_numbers(f, scale, gw_raw_count(scale) == 1 ? 0 : *groups, &p->scale)) {
        return gw_packed_misfit(f, scale, ".weight_scale");
    }
    return GW_OK;
}

gw_status gw_find_words(gw_finder *f) {
    gw_packed *p = &f->p;
    gw_raw shape = gw_packed_beside(f, ".weight_shape"),
           scale = gw_packed_beside(f, ".weight_scale");
    const gw_stored *t = f->codes.t;
    int wide = gw_raw_is(shape, "I64") ? 8 : gw_raw_is(shape, "I32") ? 4 : 0;
    int64_t groups = 0;
    int dense = 0;
    if (t->n_dim != 2 || wide == 0 || shape.t->n_dim != 1 || shape.t->dim[0] != 2) {
        return gw_packed_misfit(f, shape, ".weight_shape");
    }
    p->rows = p->each = (int64_t)gw_load_le(shape.t->data, (size_t)wide);
    p->cols = (int64_t)gw_load_le((const uint8_t *)shape.t->data + wide, (size_t)wide);
    if (p->rows != t->dim[0] || p->cols < 1 || p->cols > INT32_MAX ||
        (p->bits = bits_of_words(f, p->cols, t->dim[1], &dense)) == 0) {
        return gw_packed_misfit(f, shape, ".weight_shape");
    }
    p->kind = dense ? GW_CODES_STREAM : GW_CODES_WORDS;
    p->codes = t->data;
    p->stride = (size_t)t->dim[1] * 4;
    GW_TRY(take_row_scales(f, scale, &groups));
    GW_TRY(take_zero_points(f, groups, dense));
    GW_TRY(gw_packed_order(f, gw_packed_beside(f, ".weight_g_idx"), ".weight_g_idx", groups));
    return gw_packed_keep_linear(f);
}

gw_status gw_find_bytes(gw_finder *f) {
    gw_packed *p = &f->p;
    gw_raw scale = gw_packed_beside(f, ".weight_scale"), each = gw_packed_beside(f, ".SCB");
    const gw_stored *t = f->codes.t;
    int64_t groups = 0;
    if ((scale.t == NULL && each.t == NULL) || t->n_dim != 2) {
        return GW_OK; /* bytes that are no weights */
    }
    p->kind = GW_CODES_I8;
    p->bits = 8;
    p->rows = p->each = t->dim[0];
    p->cols = t->dim[1];
    p->codes = t->data;
    p->stride = (size_t)t->dim[1];
    if (each.t != NULL) { /* bitsandbytes: the largest of a row is 127 */
        p->after = 0x1.020408p-7f;
        gw_packed_used(f, gw_packed_beside(f, ".weight_format"));
    }
    GW_TRY(take_row_scales(f, each.t != NULL ? each : scale, &groups));
    if (each.t == NULL) {
        GW_TRY(take_zero_points(f, groups, 0));
        GW_TRY(gw_packed_order(f, gw_packed_beside(f, ".weight_g_idx"), ".weight_g_idx", groups));
    }
    return gw_packed_keep(f, f->name, 2, t->dim, gw_packed_fmt(p), 0);
}
