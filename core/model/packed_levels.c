/* core/model/packed_levels.c - codes under the plain name of a weight: bitsandbytes' four bits,
 * ModelOpt's E2M1 in bytes, MLX's words. */
#include <stdio.h>
#include <string.h>

#include "core/base/reader.h"
#include "core/model/packed_parts.h"
#include "core/tensor/blocks.h"

/* ---- bitsandbytes --------------------------------------------------------------------------- */

static int take_floats(const gw_finder *f, gw_raw r, int64_t n, float *out) {
    if (!gw_raw_is(r, "F32") || gw_raw_count(r) != n) {
        return 0;
    }
    gw_packed_used(f, r);
    for (int64_t i = 0; i < n; i++) {
        out[i] = gw_load_f32((const uint8_t *)r.t->data + 4 * i);
    }
    return 1;
}

static gw_status read_levels(gw_finder *f, const json_t *state, int64_t *dim, gw_fmt *fmt) {
    gw_packed *p = &f->p;
    gw_raw scale = gw_packed_beside(f, ".absmax"), nested = gw_packed_beside(f, ".nested_absmax");
    const json_t *shape = json_object_get(state, "shape");
    const char *type = json_string_value(json_object_get(state, "dtype"));
    dim[0] = json_integer_value(json_array_get(shape, 0));
    dim[1] = json_integer_value(json_array_get(shape, 1));
    p->span = json_integer_value(json_object_get(state, "blocksize"));
    int64_t n = 0, groups = 0;
    if (json_array_size(shape) != 2 || dim[0] < 1 || dim[1] < 1 || p->span < 1 ||
        __builtin_mul_overflow(dim[0], dim[1], &n) || (size_t)(n + 1) / 2 > f->codes.t->bytes ||
        f->codes.t->bytes - (size_t)(n + 1) / 2 >= sizeof(double)) {
        return gw_fail(GW_E_METADATA, f->c->where, "the quant_state of %s does not fit it",
                       f->name);
    }
    groups = (n - 1) / p->span + 1;
    if (scale.t == NULL || gw_raw_count(scale) != groups ||
        !gw_packed_numbers(f, scale, 0, &p->scale)) {
        return gw_packed_misfit(f, scale, ".absmax");
    }
    p->nested_block =
        nested.t != NULL ? json_integer_value(json_object_get(state, "nested_blocksize")) : 0;
    p->nested_offset = (float)json_number_value(json_object_get(state, "nested_offset"));
    if (nested.t != NULL &&
        (p->nested_block < 1 || gw_raw_count(nested) != (groups - 1) / p->nested_block + 1 ||
         !gw_raw_is(scale, "U8") || !gw_packed_numbers(f, nested, 0, &p->nested_scale) ||
         !take_floats(f, gw_packed_beside(f, ".nested_quant_map"), 256, p->nested))) {
        return gw_packed_misfit(f, nested, ".nested_absmax");
    }
    if (nested.t == NULL && !gw_raw_is(scale, "F32")) {
        return gw_packed_misfit(f, scale, ".absmax");
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
    return take_floats(f, gw_packed_beside(f, ".quant_map"), 16, p->levels)
               ? GW_OK
               : gw_packed_misfit(f, gw_packed_beside(f, ".quant_map"), ".quant_map");
}

/* The name is that of the state. The codes are bytes, though the tensor may be of any type
 * (bnb_4bit_quant_storage). Values are rounded to the type that the publisher computes in. */
gw_status gw_find_levels(gw_finder *f) {
    char name[240];
    json_t *root = NULL;
    int64_t dim[2];
    gw_fmt fmt = GW_FMT_F32;
    gw_raw state = f->codes;
    snprintf(name, sizeof name, "%.*s", (int)f->base, f->name);
    f->codes = gw_packed_name(f->c, name);
    if (f->codes.t == NULL) {
        return gw_packed_misfit(f, f->codes, "");
    }
    f->name = f->codes.t->name;
    GW_TRY(gw_json_parse(f->name, state.t->data, state.t->bytes, &root));
    gw_status status = read_levels(f, root, dim, &fmt);
    json_decref(root);
    GW_TRY(status);
    return gw_packed_keep(f, f->name, 2, dim, fmt, 0);
}

/* ---- bytes and words under the plain name --------------------------------------------------- */

gw_status gw_find_u8(gw_finder *f) {
    gw_raw scale = gw_packed_beside(f, ".weight_scale");
    if (f->codes.t->n_dim != 2 || !(gw_raw_is(scale, "F8_E4M3") || gw_raw_is(scale, "U8"))) {
        return GW_OK;
    }
    f->p.times = gw_packed_lone(f, gw_packed_beside(f, ".weight_scale_2")); /* TensorRT ModelOpt */
    return gw_packed_keep_e2m1(f, scale, f->codes.t->dim[1], f->name, -1);
}

/* ---- MLX ------------------------------------------------------------------------------------ */

/* What the configuration says of this layer: of its own, else of all. */
static const json_t *own_of(const gw_finder *f) {
    char name[240];
    snprintf(name, sizeof name, "%.*s", (int)f->base, f->name);
    const json_t *own = json_object_get(f->config, name);
    return json_is_object(own) ? own : f->config;
}

static const char *mode_of(const gw_finder *f) {
    const char *mode = json_string_value(json_object_get(own_of(f), "mode"));
    mode = mode != NULL ? mode : json_string_value(json_object_get(f->config, "mode"));
    return mode != NULL ? mode : "";
}

/* Floats of four or eight bits, scales without biases. */
static gw_status keep_floats(gw_finder *f, gw_raw scale, int64_t words) {
    const char *mode = mode_of(f);
    const gw_stored *t = f->codes.t;
    gw_packed *p = &f->p;
    int last = t->n_dim - 1;
    int64_t wide = scale.t->dim[last];
    if (gw_packed_beside(f, ".global_scale").t != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, f->c->where,
                       "%s has a global_scale (MLX nvfp4 of experts), which is not read; use "
                       "another quantization of the model",
                       f->name);
    }
    if (strcmp(mode, "mxfp8") != 0) {
        int exponents = strcmp(mode, "mxfp4") == 0 ? 1 : strcmp(mode, "nvfp4") == 0 ? 0 : -1;
        return gw_packed_keep_e2m1(f, scale, 4 * words, f->name, exponents);
    }
    int64_t dim[3];
    memcpy(dim, t->dim, (size_t)t->n_dim * sizeof *dim);
    dim[last] = 4 * words;
    p->kind = GW_CODES_E4M3;
    p->bits = 8;
    p->each = dim[last - 1];
    p->rows = last == 2 ? dim[0] * p->each : p->each;
    p->cols = dim[last];
    p->codes = t->data;
    p->stride = (size_t)p->cols;
    p->high = 1;
    if (wide < 1 || p->cols % wide != 0 ||
        memcmp(scale.t->dim, t->dim, (size_t)last * sizeof *dim) != 0 ||
        !gw_packed_numbers(f, scale, wide, &p->scale)) {
        return gw_packed_misfit(f, scale, ".scales");
    }
    p->scale.kind = GW_NUMBER_E8M0;
    p->span = p->cols / wide;
    return gw_packed_keep(f, f->name, t->n_dim, dim, gw_packed_fmt(p), 0);
}

/* MLX: scales and biases of groups along the row; or exponents without a bias. */
gw_status gw_find_u32(gw_finder *f) {
    gw_packed *p = &f->p;
    const gw_stored *t = f->codes.t;
    gw_raw scale = gw_packed_beside(f, ".scales"), bias = gw_packed_beside(f, ".biases");
    if (scale.t == NULL || t->n_dim < 2 || t->n_dim > 3 || scale.t->n_dim != t->n_dim) {
        return GW_OK;
    }
    int last = t->n_dim - 1;
    int64_t group = gw_json_whole(own_of(f), "group_size"), wide = scale.t->dim[last];
    group = group > 0 ? group : gw_json_whole(f->config, "group_size");
    if (bias.t == NULL && gw_raw_is(scale, "U8")) {
        return keep_floats(f, scale, t->dim[last]);
    }
    if (bias.t == NULL || strcmp(bias.dtype, scale.dtype) != 0 || wide < 1 ||
        memcmp(bias.t->dim, scale.t->dim, (size_t)t->n_dim * sizeof *t->dim) != 0 ||
        memcmp(t->dim, scale.t->dim, (size_t)last * sizeof *t->dim) != 0) {
        return gw_packed_misfit(f, bias, ".biases");
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
        return gw_packed_misfit(f, scale, ".scales");
    }
    p->kind = GW_CODES_STREAM;
    p->each = dim[last - 1];
    p->rows = last == 2 ? dim[0] * p->each : p->each;
    p->cols = dim[last];
    p->codes = t->data;
    p->stride = (size_t)t->dim[last] * 4;
    p->high = 1;
    p->span = group;
    if (!gw_packed_numbers(f, scale, wide, &p->scale) ||
        !gw_packed_numbers(f, bias, wide, &p->bias)) {
        return gw_packed_misfit(f, scale, ".scales");
    }
    return gw_packed_keep(f, f->name, t->n_dim, dim, gw_packed_fmt(p), 0);
}
