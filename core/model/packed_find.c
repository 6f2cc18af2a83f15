/* core/model/packed_find.c - finds the matrices of a folder that are made of codes, scales, zeros
 * and an index, by the layout that the configuration declares. Each becomes one tensor of the name
 * that the plain matrix would have. Here: tensors by name, the matrix as one tensor, the list of
 * rules. */
#include <stdio.h>
#include <string.h>

#include "core/base/reader.h"
#include "core/base/text.h"
#include "core/model/packed_parts.h"
#include "core/tensor/blocks.h"

/* ---- tensors by name ------------------------------------------------------------------------ */

gw_raw gw_packed_name(const gw_checkpoint *c, const char *name) {
    size_t i;
    gw_raw out = {NULL, ""};
    if (gw_map_find(c->unusable_names, name, strlen(name), &i)) {
        out = (gw_raw){&c->unusable[i].stored, c->unusable[i].why};
    } else if (gw_map_find(c->names, name, strlen(name), &i) && c->list[i].packed == NULL) {
        static const char *const known[] = {
            [GW_FMT_F32] = "F32", [GW_FMT_F16] = "F16", [GW_FMT_BF16] = "BF16"};
        out = (gw_raw){&c->list[i], c->list[i].fmt <= GW_FMT_BF16 ? known[c->list[i].fmt] : ""};
    }
    return out;
}

gw_raw gw_packed_beside(const gw_finder *f, const char *suffix) {
    char name[240];
    int n = snprintf(name, sizeof name, "%.*s%s", (int)f->base, f->name, suffix);
    return n > 0 && (size_t)n < sizeof name ? gw_packed_name(f->c, name) : (gw_raw){NULL, ""};
}

void gw_packed_used(const gw_finder *f, gw_raw r) {
    if (r.t >= f->c->list && r.t < f->c->list + f->c->n) {
        f->c->list[r.t - f->c->list].part = 1;
    }
}

int gw_raw_is(gw_raw r, const char *dtype) { return r.t != NULL && strcmp(r.dtype, dtype) == 0; }
int gw_raw_is_shape(gw_raw r, int64_t rows, int64_t cols) {
    return r.t != NULL && r.t->n_dim == 2 && r.t->dim[0] == rows && r.t->dim[1] == cols;
}

int64_t gw_raw_count(gw_raw r) {
    int64_t n = 1;
    for (int i = 0; i < r.t->n_dim; i++) {
        n *= r.t->dim[i];
    }
    return n;
}

gw_status gw_packed_misfit(const gw_finder *f, gw_raw r, const char *suffix) {
    return r.t == NULL
               ? gw_fail(GW_E_METADATA, f->c->where, "%s has no %.*s%s beside it", f->name,
                         (int)f->base, f->name, suffix)
               : gw_fail(GW_E_METADATA, f->c->where, "the type (%s) or shape of %s does not fit %s",
                         r.dtype, r.t->name, f->name);
}

int gw_packed_numbers(const gw_finder *f, gw_raw r, int64_t wide, gw_numbers *out) {
    static const struct {
        const char *dtype;
        gw_number_kind kind;
    } known[] = {{"F32", GW_NUMBER_F32},      {"F16", GW_NUMBER_F16},      {"BF16", GW_NUMBER_BF16},
                 {"F8_E4M3", GW_NUMBER_E4M3}, {"F8_E8M0", GW_NUMBER_E8M0}, {"U8", GW_NUMBER_U8},
                 {"I8", GW_NUMBER_I8}};
    for (size_t i = 0; r.t != NULL && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(r.dtype, known[i].dtype) == 0) {
            *out = (gw_numbers){r.t->data, known[i].kind, wide};
            gw_packed_used(f, r);
            return 1;
        }
    }
    return 0;
}

float gw_packed_lone(const gw_finder *f, gw_raw r) {
    gw_numbers n = {NULL, GW_NUMBER_F32, 1};
    if (r.t == NULL || gw_raw_count(r) < 1 || !gw_packed_numbers(f, r, 1, &n)) {
        return 0.0f;
    }
    return n.kind == GW_NUMBER_F16    ? gw_load_f16(n.data)
           : n.kind == GW_NUMBER_BF16 ? gw_bf16_to_f32(gw_load_u16(n.data))
                                      : gw_load_f32(n.data);
}

/* ---- the matrix as one tensor --------------------------------------------------------------- */

/* Scales of what goes into the matrix (ModelOpt's AWQ), one for each column. */
static gw_status take_column_times(gw_finder *f) {
    gw_raw r = gw_packed_beside(f, ".pre_quant_scale");
    gw_numbers n = {NULL, GW_NUMBER_F32, 1};
    if (r.t == NULL) {
        return GW_OK;
    }
    if (gw_raw_count(r) != f->p.cols || !gw_packed_numbers(f, r, 1, &n) ||
        n.kind > GW_NUMBER_BF16) {
        return gw_packed_misfit(f, r, ".pre_quant_scale");
    }
    float *times = gw_arena_array(f->c->arena, (size_t)f->p.cols, sizeof *times);
    for (int64_t c = 0; times != NULL && c < f->p.cols; c++) {
        times[c] = n.kind == GW_NUMBER_F16    ? gw_load_f16(n.data + 2 * c)
                   : n.kind == GW_NUMBER_BF16 ? gw_bf16_to_f32(gw_load_u16(n.data + 2 * c))
                                              : gw_load_f32(n.data + 4 * c);
    }
    f->p.column_times = times;
    return times != NULL ? GW_OK : gw_checkpoint_nomem(f->c);
}

/* The matrix of a rotation: beside this module, or, as files hold what is shared once, beside any
 * other. */
static gw_raw matrix_of(const gw_finder *f, const char *suffix, int64_t n) {
    gw_raw own = gw_packed_beside(f, suffix);
    for (size_t i = 0; own.t == NULL && i < f->c->n; i++) {
        gw_raw other = gw_text_ends(f->c->list[i].name, suffix)
                           ? gw_packed_name(f->c, f->c->list[i].name)
                           : own;
        own = gw_raw_is_shape(other, n, n) ? other : own;
    }
    return own;
}

/* Is the entry in row i and column j of the Walsh-Hadamard matrix -1? */
static int is_minus(int64_t i, int64_t j) { return __builtin_parityll((uint64_t)(i & j)); }

static int is_walsh(const float *m, int64_t n) {
    int is = (n & (n - 1)) == 0;
    for (int64_t i = 0; i < n * n && is; i++) {
        is = m[i] == (is_minus(i / n, i % n) ? -1.0f : 1.0f);
    }
    return is;
}

/* A rotation of what goes into the matrix (transform_config of compressed-tensors). */
static gw_status take_turn(gw_finder *f, const gw_turned *turned) {
    char suffix[120];
    gw_packed *p = &f->p;
    int64_t n = turned->head_dim > 0 ? turned->head_dim : p->cols;
    snprintf(suffix, sizeof suffix, ".%.80s_input.weight", turned->name);
    gw_raw r = matrix_of(f, suffix, n);
    if (p->cols % n != 0 || (r.t == NULL && (!turned->walsh || (n & (n - 1)) != 0)) ||
        (r.t != NULL && !gw_raw_is_shape(r, n, n))) {
        return gw_packed_misfit(f, r, suffix);
    }
    p->turn_block = n;
    p->turn_back = turned->inverse;
    if (r.t == NULL) {
        return GW_OK;
    }
    gw_packed_used(f, r);
    float *m = gw_arena_array(f->c->arena, (size_t)(n * n), sizeof *m);
    if (m == NULL) {
        return gw_checkpoint_nomem(f->c);
    }
    gw_format_of(r.t->fmt)->decode(m, r.t->data, (size_t)(n * n));
    p->turn = is_walsh(m, n) ? NULL : m;
    if (p->turn != NULL && n > GW_PACKED_TURN_MOST) {
        return gw_fail(GW_E_UNSUPPORTED, f->c->where,
                       "%s rotates %lld columns at once by a matrix that is not Walsh-Hadamard's; "
                       "%d are read; use the original model",
                       r.t->name, (long long)n, GW_PACKED_TURN_MOST);
    }
    return GW_OK;
}

static gw_status take_changes(gw_finder *f) {
    size_t base = f->base;
    if (gw_text_ends(f->name, ".weight") && base == strlen(f->name)) {
        f->base -= sizeof ".weight" - 1; /* of the module */
    }
    gw_status status = take_column_times(f);
    const gw_turned *turned = gw_declared_turned(f->declared, f->name, f->base);
    if (status == GW_OK && turned != NULL) {
        status = take_turn(f, turned);
    }
    f->base = base;
    return status;
}

gw_status gw_packed_keep(gw_finder *f, const char *name, int n_dim, const int64_t *dim, gw_fmt fmt,
                         int linear) {
    gw_stored t = *f->codes.t;
    gw_packed *p = gw_arena_alloc(f->c->arena, sizeof *p);
    t.name = gw_arena_copy(f->c->arena, name, strlen(name));
    if (p == NULL || t.name == NULL) {
        return gw_checkpoint_nomem(f->c);
    }
    GW_TRY(take_changes(f));
    *p = f->p;
    t.fmt = gw_packed_is_changed(p) ? GW_FMT_F32 : fmt;
    fmt = t.fmt;
    t.n_dim = n_dim;
    memcpy(t.dim, dim, (size_t)n_dim * sizeof *dim);
    GW_TRY(gw_matrix_bytes(fmt, (uint64_t)p->rows, (uint64_t)p->cols, &t.bytes));
    t.code_bytes = f->codes.t->bytes;
    t.fd = -1;
    t.packed = p;
    t.as_linear = linear;
    return gw_checkpoint_replace(f->c, &t);
}

gw_status gw_packed_keep_linear(gw_finder *f) {
    char name[240];
    int64_t dim[2] = {f->p.rows, f->p.cols};
    snprintf(name, sizeof name, "%.*s.weight", (int)f->base, f->name);
    if (gw_packed_name(f->c, name).t != NULL) {
        return gw_fail(GW_E_DUPLICATE, f->c->where, "there are both %s and %s", name, f->name);
    }
    return gw_packed_keep(f, name, 2, dim, gw_packed_fmt(&f->p), 1);
}

/* The columns group by group, where all groups are of one size. */
static gw_status take_columns(gw_finder *f, int64_t groups) {
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

gw_status gw_packed_order(gw_finder *f, gw_raw r, const char *suffix, int64_t groups) {
    gw_packed *p = &f->p;
    if (r.t == NULL) {
        return GW_OK;
    }
    if (!gw_raw_is(r, "I32") || r.t->n_dim != 1 || r.t->dim[0] != p->cols) {
        return gw_packed_misfit(f, r, suffix);
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

int64_t gw_packed_span(const gw_finder *f, int64_t cols, int64_t groups) {
    int64_t asked = gw_json_whole(f->config, "group_size");
    for (int k = 0; asked <= 0 && k < f->declared->n_schemes; k++) {
        int64_t size = gw_json_whole(f->declared->scheme[k].weights, "group_size");
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

/* ---- all ------------------------------------------------------------------------------------ */

static const struct {
    const char *suffix, *dtype;
    gw_status (*find)(gw_finder *f);
} rules[] = {
    {".qweight", "I32", gw_find_qweight},
    {".weight_packed", "I32", gw_find_words},
    {".weight_packed", "U8", gw_find_packed_bytes},
    {"_blocks", "U8", gw_find_blocks},
    {"", "F8_E4M3", gw_find_float8},
    {"", "F8_E5M2", gw_find_float8},
    {".weight", "I8", gw_find_bytes},
    {".weight", "U8", gw_find_u8},
    {".weight", "U32", gw_find_u32},
    {".quant_state.bitsandbytes__nf4", "U8", gw_find_levels},
    {".quant_state.bitsandbytes__fp4", "U8", gw_find_levels},
};

/* Numbers of the quantizer that are no weights: scales of activations and of the cache. */
static void pass_others(gw_checkpoint *c) {
    static const char *const suffixes[] = {
        ".input_scale",    ".output_scale",       ".k_scale",          ".v_scale",
        ".q_scale",        ".input_global_scale", ".input_zero_point", ".output_zero_point",
        ".input_scale_ub", ".weight_format",      "activation_scale",  ".act_scale",
        "_q_attn.weight",  "_k_cache.weight"};
    for (size_t i = 0; i < c->n; i++) {
        for (size_t k = 0; k < sizeof suffixes / sizeof suffixes[0]; k++) {
            c->list[i].part |= gw_text_ends(c->list[i].name, suffixes[k]);
        }
    }
}

static gw_status join_one(gw_checkpoint *c, const gw_declared *declared, size_t i, int *joined) {
    gw_finder f = {.c = c,
                   .declared = declared,
                   .config = declared->config,
                   .name = c->unusable[i].stored.name};
    f.codes = (gw_raw){&c->unusable[i].stored, c->unusable[i].why};
    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        size_t n = strlen(f.name), tail = strlen(rules[k].suffix);
        if (strcmp(rules[k].dtype, f.codes.dtype) == 0 && n > tail &&
            gw_text_ends(f.name, rules[k].suffix)) {
            f.base = n - tail;
            *joined = 1;
            GW_TRY(rules[k].find(&f));
        }
    }
    return GW_OK;
}

gw_status gw_checkpoint_join_codes(gw_checkpoint *c) {
    gw_declared declared;
    json_t *apart = NULL;
    int joined = 0;
    GW_TRY(gw_declared_read(c, &declared, &apart));
    gw_status status = GW_OK;
    for (size_t i = 0; i < c->n_unusable && status == GW_OK; i++) {
        status = join_one(c, &declared, i, &joined);
    }
    if (joined) {
        pass_others(c);
    }
    json_decref(apart);
    return status;
}
