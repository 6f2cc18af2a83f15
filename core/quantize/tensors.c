/* core/quantize/tensors.c - `godwit quantize --tensors`: matrices of a file, one by one, to bytes
 * and to what they stand for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/model/checkpoint.h"
#include "core/quantize/quantize.h"
#include "core/quantize/safe_out.h"

int gw_int4_group(gw_fmt fmt) {
    return fmt == GW_FMT_INT4_G32    ? 32
           : fmt == GW_FMT_INT4_G64  ? 64
           : fmt == GW_FMT_INT4_G128 ? 128
           : fmt == GW_FMT_INT4_G256 ? 256
                                     : 0;
}

gw_status gw_gptq_order_named(const char *name, const gw_coding *coding, gw_gptq_order *out) {
    int int4 = gw_int4_group(coding->fmt) > 0;
    if (name == NULL) {
        *out = int4 ? GW_GPTQ_STATIC : GW_GPTQ_FALLING;
    } else if (strcmp(name, "none") == 0) {
        *out = GW_GPTQ_NONE;
    } else if (strcmp(name, "static") == 0 && coding->together == 0) {
        *out = GW_GPTQ_STATIC;
    } else if (strcmp(name, "group") == 0 && int4) {
        *out = GW_GPTQ_GROUP;
    } else {
        return gw_fail(GW_E_ARGUMENT, "--order", "'%.20s' with %s: none%s%s", name,
                       gw_format_of(coding->fmt)->name, coding->together == 0 ? ", static" : "",
                       int4 ? ", group" : "");
    }
    return GW_OK;
}

gw_status gw_int4_rule_named(const char *name, gw_int4_rule *out) {
    static const char *const names[] = {"range", "integer", "symmetric"};
    for (int i = 0; i < 3; i++) {
        if (name == NULL || strcmp(name, names[i]) == 0) {
            *out = (gw_int4_rule)i;
            return GW_OK;
        }
    }
    return gw_fail(GW_E_ARGUMENT, "--rule", "'%.20s': range, integer or symmetric", name);
}

/* ---- one matrix ----------------------------------------------------------------------------- */

typedef struct matrix {
    const gw_stored *stored, *xtx, *importance;
    size_t rows, cols, row_bytes; /* row_bytes 0: the format has no such row */
    /* made when it is written */
    float *w, *decoded, *weights;
    gw_u8 *bytes, *codes, *zeros;
    gw_u16 *scales;
    gw_gptq gptq;
    size_t groups;
} matrix;

typedef struct job {
    const gw_quantize_options *o;
    gw_parallel_fn parallel;
    gw_fmt fmt;
    gw_int4_rule rule;
    gw_coding coding; /* of the format, or by the rule */
    gw_gptq_order order;
    gw_arena *arena;
    matrix *list, *m; /* m: the one at work */
    size_t n;
    gw_safe_out out;
    _Atomic int failed;
} job;

static int by_feedback(const job *j, const matrix *m) {
    return m->xtx != NULL && j->coding.search != NULL;
}
static int has_codes(const job *j, const matrix *m) {
    return m->xtx != NULL && gw_int4_group(j->fmt) > 0;
}

static void encode_one(void *user, int64_t r) {
    job *j = user;
    matrix *m = j->m;
    const float *w = m->w + (size_t)r * m->cols;
    gw_u8 *row = m->bytes + (size_t)r * m->row_bytes;
    gw_encode_row(j->fmt, w, m->weights, m->cols, row);
    gw_format_of(j->fmt)->decode(m->decoded + (size_t)r * m->cols, row, m->cols);
}

static void take_codes(const job *j, matrix *m, size_t r, const gw_coded *blocks) {
    for (size_t g = 0; g < m->groups; g++) {
        size_t at = r * m->groups + g;
        m->scales[at] = blocks[g].d;
        m->zeros[2 * at] = (gw_u8)(blocks[g].m & 255u);
        m->zeros[2 * at + 1] = (gw_u8)(blocks[g].m >> 8);
    }
    (void)j;
}

/* A group of GW_GPTQ_ROWS rows. */
static void feed_back(void *user, int64_t part) {
    job *j = user;
    matrix *m = j->m;
    const gw_coding *c = &j->coding;
    size_t first = (size_t)part * GW_GPTQ_ROWS, block = (size_t)c->block;
    size_t n = m->rows - first < GW_GPTQ_ROWS ? m->rows - first : GW_GPTQ_ROWS;
    size_t blocks = (m->cols + block - 1) / block;
    gw_coded *coded = malloc(n * blocks * sizeof *coded);
    gw_u8 *codes = m->codes != NULL ? m->codes + first * m->cols : NULL;
    if (coded == NULL ||
        gw_gptq_rows(&m->gptq, c, m->w + first * m->cols, (int)n, coded, codes) != GW_OK) {
        j->failed = 1;
        free(coded);
        return;
    }
    for (size_t r = 0; r < n; r++) {
        const gw_coded *row = coded + r * blocks;
        float *decoded = m->decoded + (first + r) * m->cols;
        if (has_codes(j, m)) {
            take_codes(j, m, first + r, row);
        }
        for (size_t i = 0; i < m->cols; i++) { /* place i of the groups */
            size_t to = m->gptq.order == GW_GPTQ_GROUP ? (size_t)m->gptq.column[i] : i;
            int s = (int)(i % block) / c->sub;
            decoded[to] = gw_code_value(c, &row[i / block], s, row[i / block].code[i % block]);
        }
        for (size_t b = 0; b < blocks && m->bytes != NULL; b++) {
            c->pack(c, &row[b],
                    m->bytes + (first + r) * m->row_bytes + b * gw_format_of(j->fmt)->block_bytes);
        }
    }
    free(coded);
}

static gw_status read_floats(const gw_stored *t, size_t n, float **out) {
    void *raw = malloc(t->bytes + 1);
    *out = malloc(n * sizeof **out + 1);
    gw_status status = raw != NULL && *out != NULL
                           ? gw_stored_read(t, 0, t->bytes, raw)
                           : gw_fail(GW_E_NOMEM, t->name, "no memory for %zu values", n);
    if (status == GW_OK) {
        gw_format_of(t->fmt)->decode(*out, raw, n);
    }
    free(raw);
    return status;
}

static gw_status write_matrix(job *j, const matrix *m) {
    size_t n = m->rows * m->cols;
    if (m->bytes != NULL) {
        GW_TRY(gw_safe_out_write(&j->out, m->bytes, m->rows * m->row_bytes));
    }
    GW_TRY(gw_safe_out_write(&j->out, m->decoded, n * sizeof(float)));
    if (!has_codes(j, m)) {
        return GW_OK;
    }
    size_t groups = m->rows * m->groups;
    GW_TRY(gw_safe_out_write(&j->out, m->codes, n));
    GW_TRY(gw_safe_out_write(&j->out, m->scales, groups * 2));
    for (size_t i = 0; i < groups && j->rule != GW_RULE_RANGE; i++) {
        m->zeros[i] = m->zeros[2 * i];
    }
    GW_TRY(gw_safe_out_write(&j->out, m->zeros, groups * (j->rule == GW_RULE_RANGE ? 2 : 1)));
    for (size_t c = 0; c < m->cols && j->order == GW_GPTQ_GROUP; c++) {
        int32_t group = 0;
        for (size_t i = 0; i < m->cols; i++) {
            group = (size_t)m->gptq.column[i] == c ? (int32_t)i / m->gptq.block : group;
        }
        GW_TRY(gw_safe_out_write(&j->out, &group, sizeof group));
    }
    return GW_OK;
}

static void release(matrix *m) {
    free(m->w);
    free(m->decoded);
    free(m->weights);
    free(m->bytes);
    free(m->codes);
    free(m->zeros);
    free(m->scales);
    gw_gptq_free(&m->gptq);
}

/* Bytes in the order of the file exist only where the groups lie in it. */
static int has_bytes(const job *j, const matrix *m) {
    int plain = !has_codes(j, m) || (j->rule == GW_RULE_RANGE && j->order != GW_GPTQ_GROUP);
    return m->row_bytes > 0 && plain;
}

static gw_status make_matrix(job *j, matrix *m) {
    size_t n = m->rows * m->cols;
    float *xtx = NULL;
    gw_status status = GW_OK;
    GW_TRY_DONE(read_floats(m->stored, n, &m->w));
    if (m->importance != NULL) {
        GW_TRY_DONE(read_floats(m->importance, m->cols, &m->weights));
    }
    m->decoded = malloc(n * sizeof(float) + 1);
    m->bytes = has_bytes(j, m) ? calloc(m->rows, m->row_bytes) : NULL;
    if (has_codes(j, m)) {
        m->codes = malloc(n + 1);
        m->scales = malloc(m->rows * m->groups * 2 + 1);
        m->zeros = malloc(m->rows * m->groups * 2 + 1);
    }
    if (m->decoded == NULL || (has_bytes(j, m) && m->bytes == NULL) ||
        (has_codes(j, m) && (m->codes == NULL || m->scales == NULL || m->zeros == NULL))) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, m->stored->name, "no memory for %zu values", n));
    }
    j->m = m;
    j->failed = 0;
    if (by_feedback(j, m)) {
        GW_TRY_DONE(read_floats(m->xtx, m->cols * m->cols, &xtx));
        GW_TRY_DONE(gw_gptq_prepare(m->xtx->name, xtx, (int)m->cols,
                                    j->o->damp > 0.0 ? j->o->damp : 0.01, j->order, &j->coding,
                                    &m->gptq));
        int64_t parts = (int64_t)((m->rows + GW_GPTQ_ROWS - 1) / GW_GPTQ_ROWS);
        j->parallel(j->o->threads, parts, feed_back, j);
    } else {
        j->parallel(j->o->threads, (int64_t)m->rows, encode_one, j);
    }
    status = j->failed ? gw_fail(GW_E_NOMEM, m->stored->name, "no memory for error feedback")
                       : write_matrix(j, m);
done:
    free(xtx);
    release(m);
    return status;
}

/* ---- the file ------------------------------------------------------------------------------- */

static const gw_stored *beside(const gw_checkpoint *c, const char *name, const char *tail) {
    char other[400];
    snprintf(other, sizeof other, "%s%s", name, tail);
    const gw_stored *t = gw_checkpoint_find(c, other);
    if (t == NULL && gw_text_ends(name, ".w")) {
        snprintf(other, sizeof other, "%.*s%s", (int)strlen(name) - 2, name, tail);
        t = gw_checkpoint_find(c, other);
    }
    return t;
}

static int is_beside(const char *name) {
    return gw_text_ends(name, ".xtx") || gw_text_ends(name, ".importance");
}

static gw_status add_matrix(job *j, const gw_checkpoint *c, const gw_stored *t) {
    matrix *m = &j->list[j->n];
    const gw_format *f = gw_format_of(j->fmt);
    *m = (matrix){.stored = t,
                  .rows = (size_t)t->dim[0],
                  .cols = (size_t)t->dim[1],
                  .xtx = beside(c, t->name, ".xtx"),
                  .importance = beside(c, t->name, ".importance")};
    size_t block = (size_t)(j->coding.block > 0 ? j->coding.block : 1);
    m->groups = (m->cols + block - 1) / block;
    if (m->xtx != NULL && (m->xtx->n_dim != 2 || m->xtx->dim[0] != t->dim[1] ||
                           m->xtx->dim[1] != t->dim[1] || t->dim[1] > 1 << 20)) {
        return gw_fail(GW_E_METADATA, m->xtx->name, "is not [%zu, %zu]", m->cols, m->cols);
    }
    if (m->importance != NULL &&
        (m->importance->n_dim != 1 || m->importance->dim[0] != t->dim[1])) {
        return gw_fail(GW_E_METADATA, m->importance->name, "is not [%zu]", m->cols);
    }
    int fits = m->cols % f->block_elems == 0 || j->coding.short_blocks;
    if (!fits && !has_codes(j, m)) {
        return gw_fail(GW_E_METADATA, t->name,
                       "%zu columns are no whole number of %s blocks of %zu", m->cols, f->name,
                       f->block_elems);
    }
    if (fits && !(has_codes(j, m) && m->cols % f->block_elems != 0)) {
        GW_TRY(gw_row_bytes(j->fmt, m->cols, &m->row_bytes));
    }
    j->n++;
    return GW_OK;
}

static gw_status declare(job *j, const char *name, const char *tail, const char *dtype, size_t rows,
                         size_t cols, size_t bytes) {
    char full[400];
    int64_t dim[2] = {(int64_t)rows, (int64_t)cols};
    snprintf(full, sizeof full, "%s%s", name, tail);
    return gw_safe_out_add(&j->out, full, dtype, rows > 0 ? dim : dim + 1, rows > 0 ? 2 : 1, bytes);
}

static gw_status declare_matrix(job *j, const matrix *m) {
    const char *name = m->stored->name;
    size_t n = m->rows * m->cols, groups = m->rows * m->groups;
    if (has_bytes(j, m)) {
        GW_TRY(declare(j, name, ".bytes", "U8", m->rows, m->row_bytes, m->rows * m->row_bytes));
    }
    GW_TRY(declare(j, name, ".decoded", "F32", m->rows, m->cols, n * 4));
    if (!has_codes(j, m)) {
        return GW_OK;
    }
    int range = j->rule == GW_RULE_RANGE;
    GW_TRY(declare(j, name, ".codes", "U8", m->rows, m->cols, n));
    GW_TRY(declare(j, name, ".scales", "F16", m->rows, m->groups, groups * 2));
    GW_TRY(declare(j, name, ".zeros", range ? "F16" : "U8", m->rows, m->groups,
                   groups * (range ? 2 : 1)));
    return j->order == GW_GPTQ_GROUP ? declare(j, name, ".g_idx", "I32", 0, m->cols, m->cols * 4)
                                     : GW_OK;
}

static gw_status choose(job *j) {
    const gw_quantize_options *o = j->o;
    if (!gw_format_from_name(o->type, &j->fmt) || !gw_can_encode(j->fmt) || j->fmt == GW_FMT_ACT8) {
        return gw_fail(GW_E_ARGUMENT, "type", "'%.40s' is no format that matrices are made in",
                       o->type != NULL ? o->type : "");
    }
    GW_TRY(gw_int4_rule_named(o->rule, &j->rule));
    const gw_coding *c = gw_coding_of(j->fmt);
    int group = gw_int4_group(j->fmt);
    if (group > 0) {
        gw_coding by_rule = gw_rule_coding(j->rule, group);
        by_rule.fmt = j->fmt;
        by_rule.pack = c->pack;
        j->coding = by_rule;
    } else if (c != NULL) {
        j->coding = *c;
    }
    if (o->rule != NULL && group == 0) {
        return gw_fail(GW_E_ARGUMENT, "--rule", "goes with int4 types alone");
    }
    return c != NULL ? gw_gptq_order_named(o->order, &j->coding, &j->order) : GW_OK;
}

static gw_status make_all(job *j, gw_checkpoint *c) {
    j->list = gw_arena_array(j->arena, gw_checkpoint_count(c) + 1, sizeof *j->list);
    if (j->list == NULL) {
        return gw_fail(GW_E_NOMEM, j->o->model, "no memory for a list of tensors");
    }
    for (size_t i = 0; i < gw_checkpoint_count(c); i++) {
        const gw_stored *t = gw_checkpoint_at(c, i);
        if (t->n_dim == 2 && gw_format_of(t->fmt)->is_float && t->packed == NULL &&
            !is_beside(t->name)) {
            GW_TRY(add_matrix(j, c, t));
        }
    }
    if (j->n == 0) {
        return gw_fail(GW_E_METADATA, j->o->model, "has no matrix of floats");
    }
    for (size_t i = 0; i < j->n; i++) {
        GW_TRY(declare_matrix(j, &j->list[i]));
    }
    GW_TRY(gw_safe_out_begin(&j->out, j->o->out, NULL));
    for (size_t i = 0; i < j->n; i++) {
        GW_TRY(make_matrix(j, &j->list[i]));
    }
    return gw_safe_out_end(&j->out);
}

gw_status gw_quantize_tensor_file(const gw_quantize_options *o, gw_parallel_fn parallel) {
    job j = {.o = o, .parallel = parallel};
    gw_checkpoint *c = NULL;
    GW_TRY(choose(&j));
    gw_status status = GW_OK;
    j.arena = gw_arena_new();
    if (j.arena == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, o->model, "no memory for a list of tensors"));
    }
    GW_TRY_DONE(gw_checkpoint_open_weights(o->model, &c));
    GW_TRY_DONE(gw_safe_out_new(&j.out));
    status = make_all(&j, c);
done:
    gw_safe_out_drop(&j.out);
    gw_checkpoint_free(c);
    gw_arena_free(j.arena);
    return status;
}
