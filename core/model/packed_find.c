/* core/model/packed_find.c - finds the matrices of a folder that are made of codes, scales, zeros
 * and an index: by names, types and shapes of the tensors, so that what a configuration says about
 * its layers, groups and exceptions need not be believed. Each becomes one tensor of the name that
 * the plain matrix would have. */
#include <stdio.h>
#include <string.h>

#include "core/base/reader.h"
#include "core/base/text.h"
#include "core/model/checkpoint_parts.h"
#include "core/model/packed.h"
#include "core/tensor/blocks.h"

typedef struct raw {
    const gw_stored *t; /* NULL: there is none */
    const char *dtype;
} raw;

typedef struct finder {
    gw_checkpoint *c;
    const json_t *config; /* NULL: none */
    const char *name;     /* of the codes */
    size_t base;          /* bytes of the name that the tensors share */
    raw codes;
    gw_packed p;
} finder;

/* ---- what the configuration says ------------------------------------------------------------- */

static const json_t *config_of(const gw_checkpoint *c) {
    static const char *const keys[] = {"quantization_config", "quantization"};
    const json_t *inner = json_object_get(c->config, "text_config");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *own = json_object_get(c->config, keys[i]);
        own = json_is_object(own) ? own : json_object_get(inner, keys[i]);
        if (json_is_object(own)) {
            return own;
        }
    }
    return NULL;
}

static int64_t config_int(const finder *f, const char *key) {
    const json_t *v = json_object_get(f->config, key);
    return json_is_integer(v) ? json_integer_value(v) : 0;
}

/* The k-th scheme that the configuration has for weights; NULL: no more. */
static const json_t *scheme(const finder *f, size_t k) {
    const char *key;
    json_t *group;
    json_object_foreach(json_object_get(f->config, "config_groups"), key, group) {
        if (k-- == 0) {
            return json_object_get(group, "weights");
        }
    }
    return NULL;
}

/* ---- tensors by name ------------------------------------------------------------------------ */

static raw find_name(const gw_checkpoint *c, const char *name) {
    size_t i;
    raw out = {NULL, ""};
    if (gw_map_find(c->unusable_names, name, strlen(name), &i)) {
        out = (raw){&c->unusable[i].stored, c->unusable[i].why};
    } else if (gw_map_find(c->names, name, strlen(name), &i) && c->list[i].packed == NULL) {
        static const char *const known[] = {
            [GW_FMT_F32] = "F32", [GW_FMT_F16] = "F16", [GW_FMT_BF16] = "BF16"};
        out = (raw){&c->list[i], c->list[i].fmt <= GW_FMT_BF16 ? known[c->list[i].fmt] : ""};
    }
    return out;
}

static raw beside(const finder *f, const char *suffix) {
    char name[240];
    int n = snprintf(name, sizeof name, "%.*s%s", (int)f->base, f->name, suffix);
    return n > 0 && (size_t)n < sizeof name ? find_name(f->c, name) : (raw){NULL, ""};
}

/* A tensor that has become part of a matrix is no weight of its own. */
static void used(const finder *f, raw r) {
    if (r.t >= f->c->list && r.t < f->c->list + f->c->n) {
        f->c->list[r.t - f->c->list].part = 1;
    }
}

static int is(raw r, const char *dtype) { return r.t != NULL && strcmp(r.dtype, dtype) == 0; }
static int is_shape(raw r, int64_t rows, int64_t cols) {
    return r.t != NULL && r.t->n_dim == 2 && r.t->dim[0] == rows && r.t->dim[1] == cols;
}

static int64_t count_of(raw r) {
    int64_t n = 1;
    for (int i = 0; i < r.t->n_dim; i++) {
        n *= r.t->dim[i];
    }
    return n;
}

static gw_status misfit(const finder *f, raw r, const char *suffix) {
    return r.t == NULL
               ? gw_fail(GW_E_METADATA, f->c->where, "%s has no %.*s%s beside it", f->name,
                         (int)f->base, f->name, suffix)
               : gw_fail(GW_E_METADATA, f->c->where, "the type (%s) or shape of %s does not fit %s",
                         r.dtype, r.t->name, f->name);
}

static int take_numbers(const finder *f, raw r, int64_t wide, gw_numbers *out) {
    static const struct {
        const char *dtype;
        gw_number_kind kind;
    } known[] = {{"F32", GW_NUMBER_F32},      {"F16", GW_NUMBER_F16},      {"BF16", GW_NUMBER_BF16},
                 {"F8_E4M3", GW_NUMBER_E4M3}, {"F8_E8M0", GW_NUMBER_E8M0}, {"U8", GW_NUMBER_U8},
                 {"I8", GW_NUMBER_I8}};
    for (size_t i = 0; r.t != NULL && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(r.dtype, known[i].dtype) == 0) {
            *out = (gw_numbers){r.t->data, known[i].kind, wide};
            used(f, r);
            return 1;
        }
    }
    return 0;
}

/* A single number. */
static float lone(const finder *f, raw r) {
    gw_numbers n = {NULL, GW_NUMBER_F32, 1};
    if (r.t == NULL || count_of(r) < 1 || !take_numbers(f, r, 1, &n)) {
        return 0.0f;
    }
    return n.kind == GW_NUMBER_F16    ? gw_load_f16(n.data)
           : n.kind == GW_NUMBER_BF16 ? gw_bf16_to_f32(gw_load_u16(n.data))
                                      : gw_load_f32(n.data);
}

/* ---- the matrix as one tensor --------------------------------------------------------------- */

static gw_status keep_matrix(finder *f, const char *name, int n_dim, const int64_t *dim, gw_fmt fmt,
                             int linear) {
    gw_stored t = *f->codes.t;
    gw_packed *p = gw_arena_alloc(f->c->arena, sizeof *p);
    t.name = gw_arena_copy(f->c->arena, name, strlen(name));
    if (p == NULL || t.name == NULL) {
        return gw_checkpoint_nomem(f->c);
    }
    *p = f->p;
    t.fmt = fmt;
    t.n_dim = n_dim;
    memcpy(t.dim, dim, (size_t)n_dim * sizeof *dim);
    GW_TRY(gw_matrix_bytes(fmt, (uint64_t)p->rows, (uint64_t)p->cols, &t.bytes));
    t.code_bytes = f->codes.t->bytes;
    t.fd = -1;
    t.packed = p;
    t.as_linear = linear;
    return gw_checkpoint_replace(f->c, &t);
}

/* NAME.weight of a linear layer [rows, cols]. */
static gw_status keep_linear(finder *f) {
    char name[240];
    int64_t dim[2] = {f->p.rows, f->p.cols};
    snprintf(name, sizeof name, "%.*s.weight", (int)f->base, f->name);
    if (find_name(f->c, name).t != NULL) {
        return gw_fail(GW_E_DUPLICATE, f->c->where, "there are both %s and %s", name, f->name);
    }
    return keep_matrix(f, name, 2, dim, gw_packed_fmt(&f->p), 1);
}

/* The columns group by group, where all groups are of one size. */
static gw_status take_columns(finder *f, int64_t groups) {
    gw_packed *p = &f->p;
    int32_t *column = gw_arena_array(f->c->arena, (size_t)p->cols, sizeof *column);
    int64_t *next = gw_arena_array(f->c->arena, (size_t)groups, sizeof *next);
    if (column == NULL || next == NULL) {
        return gw_checkpoint_nomem(f->c);
    }
    int even = p->span * groups == p->cols;
    for (int64_t g = 0; g < groups; g++) {
        next[g] = g * p->span;
    }
    for (int64_t c = 0; even && c < p->cols; c++) {
        int64_t at = next[p->order[c]]++;
        even = at < (p->order[c] + 1) * p->span;
        column[even ? at : 0] = (int32_t)c;
    }
    p->column = even ? column : NULL;
    return GW_OK;
}

/* The groups of the columns, where an index says so. */
static gw_status take_order(finder *f, raw r, const char *suffix, int64_t groups) {
    gw_packed *p = &f->p;
    if (r.t == NULL) {
        return GW_OK;
    }
    if (!is(r, "I32") || r.t->n_dim != 1 || r.t->dim[0] != p->cols) {
        return misfit(f, r, suffix);
    }
    int32_t *order = gw_arena_array(f->c->arena, (size_t)p->cols, sizeof *order);
    if (order == NULL) {
        return gw_checkpoint_nomem(f->c);
    }
    int plain = 1, none = 1;
    for (int64_t c = 0; c < p->cols; c++) {
        order[c] = (int32_t)gw_load_le((const uint8_t *)r.t->data + 4 * c, 4);
        plain = plain && order[c] == c / p->span;
        none = none && order[c] == -1; /* written where no order was asked for */
        if (order[c] != -1 && (order[c] < 0 || order[c] >= groups)) {
            return gw_fail(GW_E_BOUNDS, f->c->where,
                           "%s puts column %lld in group %d; there are %lld groups", r.t->name,
                           (long long)c, order[c], (long long)groups);
        }
        if (order[c] == -1 && !none) {
            return gw_fail(GW_E_METADATA, f->c->where, "%s gives column %lld no group", r.t->name,
                           (long long)c);
        }
    }
    p->order = plain || none ? NULL : order;
    return p->order != NULL ? take_columns(f, groups) : GW_OK;
}

/* Columns of a group: from the number of groups, with the configuration's where a last group is
 * shorter. 0: no size fits. */
static int64_t span_of(const finder *f, int64_t cols, int64_t groups) {
    int64_t asked = config_int(f, "group_size");
    for (size_t k = 0; asked <= 0 && scheme(f, k) != NULL; k++) {
        const json_t *v = json_object_get(scheme(f, k), "group_size");
        int64_t size = json_is_integer(v) ? json_integer_value(v) : 0;
        asked = size > 0 && (cols + size - 1) / size == groups ? size : 0;
    }
    if (groups <= 0 || cols <= 0) {
        return 0;
    }
    if (asked > 0 && (cols + asked - 1) / asked == groups) {
        return asked;
    }
    return cols % groups == 0 ? cols / groups : 0;
}

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

/* What is added to a zero as stored: the first version of the format stores it less one. Where all
 * are the middle of the codes, or that less one, they say more than the configuration. */
static int zero_added(const finder *f, const uint8_t *words, int64_t lines, int64_t wide) {
    const json_t *sym = json_object_get(f->config, "sym");
    const char *format = json_string_value(json_object_get(f->config, "checkpoint_format"));
    int middle = 1 << (f->p.bits - 1);
    int value = json_is_false(sym) ? -1 : same_zeros(words, lines, wide, f->p.rows, f->p.bits);
    if (value == middle || value == middle - 1) {
        return middle - value;
    }
    return format != NULL && strcmp(format, "gptq_v2") == 0 ? 0 : 1;
}

/* AutoGPTQ writes a bias of zeros where the layer has none. */
static void pass_zero_bias(const finder *f) {
    raw bias = beside(f, ".bias");
    int zero = bias.t != NULL;
    for (size_t i = 0; zero && i < bias.t->bytes; i++) {
        zero = ((const uint8_t *)bias.t->data)[i] == 0;
    }
    if (zero) {
        used(f, bias);
    }
}

static gw_status find_qweight(finder *f) {
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    raw scales = beside(f, ".scales"), zeros = beside(f, ".qzeros");
    if (scales.t == NULL || scales.t->n_dim != 2 || t->n_dim != 2) {
        return misfit(f, scales, ".scales");
    }
    int64_t groups = scales.t->dim[0];
    p->rows = p->each = scales.t->dim[1];
    p->high = 1;
    p->turned = 1;
    int awq = p->rows % 8 == 0 && t->dim[1] == p->rows / 8;
    if (zeros.t != NULL ? !is(zeros, "I32") || zeros.t->n_dim != 2 || zeros.t->dim[0] != groups
                        : awq) {
        return misfit(f, zeros, ".qzeros");
    }
    p->bits = awq                              ? 4
              : zeros.t != NULL && p->rows > 0 ? (int)(zeros.t->dim[1] * 32 / p->rows)
                                               : (int)config_int(f, "bits");
    int known = p->bits == 2 || p->bits == 3 || p->bits == 4 || p->bits == 8;
    if (!known || (zeros.t != NULL && zeros.t->dim[1] * 32 != p->rows * p->bits) ||
        (!awq && t->dim[1] != p->rows) || t->dim[0] * 32 / p->bits > INT32_MAX) {
        return misfit(f, f->codes, "");
    }
    p->cols = awq ? t->dim[0] : t->dim[0] * 32 / p->bits;
    p->span = span_of(f, p->cols, groups);
    if (p->span == 0 || !take_numbers(f, scales, p->rows, &p->scale) || t->bytes == 0) {
        return misfit(f, scales, ".scales");
    }
    p->kind = awq ? GW_CODES_AWQ : GW_CODES_COLUMNS;
    p->codes = t->data;
    p->stride = (size_t)t->dim[1] * 4;
    p->zeros = zeros.t == NULL ? GW_ZERO_SAME : awq ? GW_ZERO_AWQ : GW_ZERO_STREAM;
    p->zero_add = 1 << (p->bits - 1);
    if (zeros.t != NULL) {
        p->zero = zeros.t->data;
        p->zero_wide = zeros.t->dim[1];
        p->zero_add = awq ? 0 : zero_added(f, p->zero, groups, p->zero_wide);
    }
    GW_TRY(take_order(f, beside(f, ".g_idx"), ".g_idx", groups));
    pass_zero_bias(f);
    return keep_linear(f);
}

/* ---- compressed-tensors --------------------------------------------------------------------- */

static int fits_bits(int64_t bits, int64_t cols, int64_t words) {
    return bits >= 1 && bits <= 8 && (cols + 32 / bits - 1) / (32 / bits) == words;
}

/* Bits of a code: those of a scheme, or whatever puts so many columns in so many words. */
static int bits_of_words(const finder *f, int64_t cols, int64_t words) {
    static const int usual[] = {4, 8, 2, 3, 6, 5, 7, 1};
    for (size_t k = 0; scheme(f, k) != NULL; k++) {
        const json_t *v = json_object_get(scheme(f, k), "num_bits");
        int64_t bits = json_is_integer(v) ? json_integer_value(v) : 0;
        if (fits_bits(bits, cols, words)) {
            return (int)bits;
        }
    }
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        if (fits_bits(usual[i], cols, words)) {
            return usual[i];
        }
    }
    return 0;
}

/* [rows, n] or [rows] or one number: how many groups a row has; 0: the shape does not fit. */
static int64_t groups_of(raw r, int64_t rows) {
    int64_t n = r.t != NULL ? count_of(r) : 0;
    return n == 1 ? 1 : rows > 0 && n % rows == 0 && r.t->dim[0] == rows ? n / rows : 0;
}

static gw_status take_zero_points(finder *f, int64_t groups) {
    gw_packed *p = &f->p;
    raw zero = beside(f, ".weight_zero_point");
    int per = 32 / p->bits;
    p->zeros = p->kind == GW_CODES_WORDS ? GW_ZERO_SAME : GW_ZERO_NONE;
    p->zero_add = 1 << (p->bits - 1);
    if (zero.t == NULL) {
        return GW_OK;
    }
    p->zero = zero.t->data;
    if (is(zero, "I32") && is_shape(zero, (p->rows + per - 1) / per, groups)) {
        p->zeros = GW_ZERO_WORDS;
        p->zero_wide = groups;
        p->zero_add = 0;
        if (p->kind != GW_CODES_WORDS) {
            return misfit(f, zero, ".weight_zero_point");
        }
    } else if (is(zero, "I8") && groups_of(zero, p->rows) == groups && p->kind == GW_CODES_I8) {
        p->zeros = GW_ZERO_I8;
        p->zero_wide = count_of(zero) == 1 ? 0 : groups;
    } else {
        return misfit(f, zero, ".weight_zero_point");
    }
    used(f, zero);
    return GW_OK;
}

/* Scales of rows in groups of columns. */
static gw_status take_row_scales(finder *f, raw scale, int64_t *groups) {
    gw_packed *p = &f->p;
    *groups = groups_of(scale, p->rows);
    p->span = span_of(f, p->cols, *groups);
    p->high = 1;
    if (p->span == 0 || !take_numbers(f, scale, count_of(scale) == 1 ? 0 : *groups, &p->scale)) {
        return misfit(f, scale, ".weight_scale");
    }
    return GW_OK;
}

static gw_status find_words(finder *f) {
    gw_packed *p = &f->p;
    raw shape = beside(f, ".weight_shape"), scale = beside(f, ".weight_scale");
    const gw_stored *t = f->codes.t;
    int wide = is(shape, "I64") ? 8 : is(shape, "I32") ? 4 : 0;
    int64_t groups = 0;
    if (t->n_dim != 2 || wide == 0 || shape.t->n_dim != 1 || shape.t->dim[0] != 2) {
        return misfit(f, shape, ".weight_shape");
    }
    p->rows = p->each = (int64_t)gw_load_le(shape.t->data, (size_t)wide);
    p->cols = (int64_t)gw_load_le((const uint8_t *)shape.t->data + wide, (size_t)wide);
    if (p->rows != t->dim[0] || p->cols < 1 || p->cols > INT32_MAX ||
        (p->bits = bits_of_words(f, p->cols, t->dim[1])) == 0) {
        return misfit(f, shape, ".weight_shape");
    }
    p->kind = GW_CODES_WORDS;
    p->codes = t->data;
    p->stride = (size_t)t->dim[1] * 4;
    GW_TRY(take_row_scales(f, scale, &groups));
    GW_TRY(take_zero_points(f, groups));
    GW_TRY(take_order(f, beside(f, ".weight_g_idx"), ".weight_g_idx", groups));
    return keep_linear(f);
}

static gw_status find_bytes(finder *f) {
    gw_packed *p = &f->p;
    raw scale = beside(f, ".weight_scale"), each = beside(f, ".SCB");
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
        used(f, beside(f, ".weight_format"));
    }
    GW_TRY(take_row_scales(f, each.t != NULL ? each : scale, &groups));
    if (each.t == NULL) {
        GW_TRY(take_zero_points(f, groups));
        GW_TRY(take_order(f, beside(f, ".weight_g_idx"), ".weight_g_idx", groups));
    }
    return keep_matrix(f, f->name, 2, t->dim, gw_packed_fmt(p), 0);
}

/* ---- FP8 ------------------------------------------------------------------------------------ */

/* Rows and columns of a block, when the scales [lines, wide] are those of blocks. */
static int block_of(const finder *f, const json_t *size, int64_t lines, int64_t wide) {
    int64_t h = 128, w = 128;
    if (size != NULL) {
        h = json_integer_value(json_array_get(size, 0));
        w = json_integer_value(json_array_get(size, 1));
    }
    return h > 0 && w > 0 && (f->p.each + h - 1) / h == lines && (f->p.cols + w - 1) / w == wide;
}

static gw_status take_float_scales(finder *f, raw scale) {
    gw_packed *p = &f->p;
    int64_t n = count_of(scale), experts = p->each > 0 ? p->rows / p->each : 0;
    int64_t per = experts > 0 && n % experts == 0 ? n / experts : n;
    int64_t wide = scale.t->n_dim > 0 ? scale.t->dim[scale.t->n_dim - 1] : 1;
    int64_t lines = wide > 0 ? per / wide : 0;
    if (per == 1 || n == 1) {
        p->high = p->each;
        p->span = p->cols;
        return take_numbers(f, scale, n == 1 ? 0 : 1, &p->scale) ? GW_OK
                                                                 : misfit(f, scale, "_scale");
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
        for (size_t k = 0; !block_of(f, size, lines, wide) && scheme(f, k) != NULL; k++) {
            size = json_object_get(scheme(f, k), "block_structure");
        }
        size = json_is_array(size) && block_of(f, size, lines, wide) ? size : NULL;
        if (!block_of(f, size, lines, wide)) {
            return misfit(f, scale, "_scale");
        }
        p->high = size != NULL ? json_integer_value(json_array_get(size, 0)) : 128;
        p->span = size != NULL ? json_integer_value(json_array_get(size, 1)) : 128;
    }
    return take_numbers(f, scale, wide, &p->scale) ? GW_OK : misfit(f, scale, "_scale");
}

static gw_status find_float8(finder *f) {
    static const char *const suffixes[] = {"_scale_inv", "_scale"};
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    raw scale = {NULL, ""};
    f->base = strlen(f->name);
    for (size_t i = 0; i < 2 && scale.t == NULL; i++) {
        scale = beside(f, suffixes[i]);
    }
    if (gw_text_ends(f->name, ".weight")) {
        f->base -= sizeof "weight" - 1;
        scale = scale.t == NULL ? beside(f, "scale") : scale;
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
        p->scale.kind = is(scale, "U8") ? GW_NUMBER_E8M0 : p->scale.kind;
    }
    return keep_matrix(f, f->name, t->n_dim, t->dim, gw_packed_fmt(p), 0);
}

/* ---- four bits of floating point ------------------------------------------------------------ */

/* codes [rows, cols / 2], scales [rows, cols / span] of bytes. */
static gw_status keep_e2m1(finder *f, raw scale, int64_t row_bytes, const char *name) {
    gw_packed *p = &f->p;
    int64_t dim[2] = {f->codes.t->dim[0], 2 * row_bytes};
    p->kind = GW_CODES_E2M1;
    p->bits = 4;
    p->rows = p->each = dim[0];
    p->cols = dim[1];
    p->codes = f->codes.t->data;
    p->stride = (size_t)row_bytes;
    p->high = 1;
    int64_t wide = scale.t != NULL && scale.t->n_dim == 2 ? scale.t->dim[1] : 0;
    if (wide < 1 || p->cols % wide != 0 || scale.t->dim[0] != p->rows ||
        !take_numbers(f, scale, wide, &p->scale)) {
        return misfit(f, scale, ".weight_scale");
    }
    p->span = p->cols / wide;
    int exponents = p->span == 32 && (is(scale, "U8") || is(scale, "F8_E8M0"));
    if (is(scale, "U8")) {
        p->scale.kind = p->span == 32 ? GW_NUMBER_E8M0 : GW_NUMBER_E4M3;
    }
    return keep_matrix(f, name, 2, dim, exponents ? GW_FMT_MXFP4 : gw_packed_fmt(p), 1);
}

static gw_status find_packed_bytes(finder *f) {
    char name[240];
    raw global = beside(f, ".weight_global_scale");
    if (f->codes.t->n_dim != 2) {
        return misfit(f, f->codes, "");
    }
    f->p.divided = lone(f, global);
    snprintf(name, sizeof name, "%.*s.weight", (int)f->base, f->name);
    return keep_e2m1(f, beside(f, ".weight_scale"), f->codes.t->dim[1], name);
}

/* X_blocks [.., rows, n, 16] with X_scales [.., rows, n]: a matrix of MXFP4, n blocks a row. */
static gw_status find_blocks(finder *f) {
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    raw scales = beside(f, "_scales");
    int last = t->n_dim - 1;
    if (!is(scales, "U8") || last < 2 || scales.t->n_dim != last || t->dim[last] != 16 ||
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
    return keep_matrix(f, f->name, last, dim, GW_FMT_MXFP4, 0);
}

/* ---- bitsandbytes --------------------------------------------------------------------------- */

static int take_floats(const finder *f, raw r, int64_t n, float *out) {
    if (!is(r, "F32") || count_of(r) != n) {
        return 0;
    }
    used(f, r);
    for (int64_t i = 0; i < n; i++) {
        out[i] = gw_load_f32((const uint8_t *)r.t->data + 4 * i);
    }
    return 1;
}

static gw_status read_levels(finder *f, const json_t *state, int64_t *dim, gw_fmt *fmt) {
    gw_packed *p = &f->p;
    raw scale = beside(f, ".absmax"), nested = beside(f, ".nested_absmax");
    const json_t *shape = json_object_get(state, "shape");
    const char *type = json_string_value(json_object_get(state, "dtype"));
    dim[0] = json_integer_value(json_array_get(shape, 0));
    dim[1] = json_integer_value(json_array_get(shape, 1));
    p->span = json_integer_value(json_object_get(state, "blocksize"));
    int64_t n = 0, groups = 0;
    if (json_array_size(shape) != 2 || dim[0] < 1 || dim[1] < 1 || p->span < 1 ||
        __builtin_mul_overflow(dim[0], dim[1], &n) || (n + 1) / 2 != count_of(f->codes)) {
        return gw_fail(GW_E_METADATA, f->c->where, "the quant_state of %s does not fit it",
                       f->name);
    }
    groups = (n - 1) / p->span + 1;
    if (scale.t == NULL || count_of(scale) != groups || !take_numbers(f, scale, 0, &p->scale)) {
        return misfit(f, scale, ".absmax");
    }
    p->nested_block =
        nested.t != NULL ? json_integer_value(json_object_get(state, "nested_blocksize")) : 0;
    p->nested_offset = (float)json_number_value(json_object_get(state, "nested_offset"));
    if (nested.t != NULL &&
        (p->nested_block < 1 || count_of(nested) != (groups - 1) / p->nested_block + 1 ||
         !is(scale, "U8") || !take_numbers(f, nested, 0, &p->nested_scale) ||
         !take_floats(f, beside(f, ".nested_quant_map"), 256, p->nested))) {
        return misfit(f, nested, ".nested_absmax");
    }
    if (nested.t == NULL && !is(scale, "F32")) {
        return misfit(f, scale, ".absmax");
    }
    *fmt = type != NULL && strcmp(type, "bfloat16") == 0  ? GW_FMT_BF16
           : type != NULL && strcmp(type, "float16") == 0 ? GW_FMT_F16
                                                          : GW_FMT_F32;
    p->kind = GW_CODES_LEVELS;
    p->bits = 4;
    p->rows = p->each = dim[0];
    p->cols = dim[1];
    p->high = 1;
    p->codes = f->codes.t->data;
    return take_floats(f, beside(f, ".quant_map"), 16, p->levels)
               ? GW_OK
               : misfit(f, beside(f, ".quant_map"), ".quant_map");
}

/* *found 0: not of bitsandbytes. Values are rounded to the type that the publisher computes in. */
static gw_status find_levels(finder *f, int *found) {
    static const char *const kinds[] = {".quant_state.bitsandbytes__nf4",
                                        ".quant_state.bitsandbytes__fp4"};
    raw state = {NULL, ""};
    f->base = strlen(f->name);
    for (size_t i = 0; i < 2 && state.t == NULL; i++) {
        state = beside(f, kinds[i]);
    }
    *found = is(state, "U8");
    if (!*found) {
        return GW_OK;
    }
    json_t *root = NULL;
    int64_t dim[2];
    gw_fmt fmt = GW_FMT_F32;
    GW_TRY(gw_json_parse(f->name, state.t->data, state.t->bytes, &root));
    gw_status status = read_levels(f, root, dim, &fmt);
    json_decref(root);
    GW_TRY(status);
    return keep_matrix(f, f->name, 2, dim, fmt, 0);
}

/* ---- bytes and words under the plain name --------------------------------------------------- */

static gw_status find_u8(finder *f) {
    int found = 0;
    GW_TRY(find_levels(f, &found));
    f->base = strlen(f->name) - (sizeof ".weight" - 1);
    raw scale = beside(f, ".weight_scale");
    if (found || f->codes.t->n_dim != 2 || !(is(scale, "F8_E4M3") || is(scale, "U8"))) {
        return GW_OK;
    }
    f->p.times = lone(f, beside(f, ".weight_scale_2")); /* TensorRT ModelOpt */
    return keep_e2m1(f, scale, f->codes.t->dim[1], f->name);
}

/* MLX: scales and biases of groups along the row; or exponents without a bias. */
static gw_status find_u32(finder *f) {
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    raw scale = beside(f, ".scales"), bias = beside(f, ".biases");
    if (scale.t == NULL || t->n_dim < 2 || t->n_dim > 3 || scale.t->n_dim != t->n_dim) {
        return GW_OK;
    }
    int last = t->n_dim - 1;
    int64_t group = config_int(f, "group_size"), wide = scale.t->dim[last];
    if (bias.t == NULL && t->n_dim == 2 && is(scale, "U8")) {
        return keep_e2m1(f, scale, 4 * t->dim[1], f->name);
    }
    if (bias.t == NULL || strcmp(bias.dtype, scale.dtype) != 0 || wide < 1 ||
        memcmp(bias.t->dim, scale.t->dim, (size_t)t->n_dim * sizeof *t->dim) != 0 ||
        memcmp(t->dim, scale.t->dim, (size_t)last * sizeof *t->dim) != 0) {
        return misfit(f, bias, ".biases");
    }
    group = group > 0 ? group : 64;
    /* A layer may have a size of its own: any that gives whole bits. */
    for (int64_t k = 32; k <= 128 && t->dim[last] * 32 % (wide * group) != 0; k *= 2) {
        group = k;
    }
    int64_t dim[3];
    memcpy(dim, t->dim, (size_t)t->n_dim * sizeof *dim);
    dim[last] = wide * group;
    p->bits = (int)(t->dim[last] * 32 / dim[last]);
    if (p->bits < 2 || p->bits > 8 || p->bits * dim[last] != t->dim[last] * 32) {
        return misfit(f, scale, ".scales");
    }
    p->kind = GW_CODES_STREAM;
    p->each = dim[last - 1];
    p->rows = last == 2 ? dim[0] * p->each : p->each;
    p->cols = dim[last];
    p->codes = t->data;
    p->stride = (size_t)t->dim[last] * 4;
    p->high = 1;
    p->span = group;
    if (!take_numbers(f, scale, wide, &p->scale) || !take_numbers(f, bias, wide, &p->bias)) {
        return misfit(f, scale, ".scales");
    }
    return keep_matrix(f, f->name, t->n_dim, dim, gw_packed_fmt(p), 0);
}

/* ---- all ------------------------------------------------------------------------------------ */

static const struct {
    const char *suffix, *dtype;
    gw_status (*find)(finder *f);
} rules[] = {
    {".qweight", "I32", find_qweight},
    {".weight_packed", "I32", find_words},
    {".weight_packed", "U8", find_packed_bytes},
    {"_blocks", "U8", find_blocks},
    {"", "F8_E4M3", find_float8},
    {"", "F8_E5M2", find_float8},
    {".weight", "I8", find_bytes},
    {".weight", "U8", find_u8},
    {".weight", "U32", find_u32},
};

/* Numbers of the quantizer that are no weights: scales of activations and of the cache. */
static void pass_others(gw_checkpoint *c) {
    static const char *const suffixes[] = {
        ".input_scale",    ".output_scale",       ".k_scale",          ".v_scale",
        ".q_scale",        ".input_global_scale", ".input_zero_point", ".output_zero_point",
        ".input_scale_ub", ".weight_format"};
    for (size_t i = 0; i < c->n; i++) {
        for (size_t k = 0; k < sizeof suffixes / sizeof suffixes[0]; k++) {
            c->list[i].part |= gw_text_ends(c->list[i].name, suffixes[k]);
        }
    }
}

gw_status gw_checkpoint_join_codes(gw_checkpoint *c) {
    json_t *apart = NULL;
    const json_t *config = config_of(c);
    int joined = 0;
    if (config == NULL && c->config != NULL) { /* GPTQ folders of before keep it apart */
        GW_TRY(gw_hf_json(c, "quantize_config.json", &apart));
        config = apart;
    }
    gw_status status = GW_OK;
    for (size_t i = 0; i < c->n_unusable && status == GW_OK; i++) {
        finder f = {.c = c, .config = config, .name = c->unusable[i].stored.name};
        f.codes = (raw){&c->unusable[i].stored, c->unusable[i].why};
        for (size_t k = 0; k < sizeof rules / sizeof rules[0] && status == GW_OK; k++) {
            size_t n = strlen(f.name), tail = strlen(rules[k].suffix);
            if (strcmp(rules[k].dtype, f.codes.dtype) == 0 && n > tail &&
                gw_text_ends(f.name, rules[k].suffix)) {
                f.base = n - tail;
                status = rules[k].find(&f);
                joined = 1;
            }
        }
    }
    if (joined) {
        pass_others(c);
    }
    json_decref(apart);
    return status;
}
