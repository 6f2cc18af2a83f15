/* core/quantize/merge.c - see merge.h. */
#include "core/quantize/merge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/lora_bank.h"
#include "core/model/weights_parts.h"
#include "core/quantize/original_folder.h"

/* What one adapter adds to one tensor. */
typedef struct part {
    struct part *next;
    gw_lora_factors factors;
    float scale;
    size_t adapter;
    int32_t *row; /* [rows of the tensor] of B; -1: none */
} part;

/* A tensor as it was, and what is added. */
typedef struct merged {
    gw_original_tensor was;
    part *parts;
} merged;

struct gw_merge {
    gw_weights *own; /* of a GGUF file; of a folder they are the original's */
    merged *list;    /* [tensors] */
    size_t n;
};

/* ---- reading -------------------------------------------------------------------------------- */

static void add_row(const part *p, int32_t row, int64_t cols, double *sum) {
    const gw_lora_factors *f = &p->factors;
    int64_t expert = row >= 0 && f->each > 0 ? row / f->each : 0;
    for (int k = 0; row >= 0 && k < f->rank; k++) {
        double b = (double)p->scale * (double)f->b[(int64_t)row * f->rank + k];
        const float *a = f->a + (expert * f->rank + k) * cols;
        for (int64_t c = 0; c < cols; c++) {
            sum[c] += b * (double)a[c];
        }
    }
}

static gw_status read_merged(const gw_original_tensor *t, int64_t first, int64_t n, float *out) {
    const merged *m = t->state;
    double *sum = malloc((size_t)t->cols * sizeof *sum);
    if (sum == NULL) {
        return gw_fail(GW_E_NOMEM, t->name, "no memory for a row");
    }
    gw_status status = m->was.read(&m->was, first, n, out);
    for (int64_t r = 0; r < n && status == GW_OK; r++) {
        memset(sum, 0, (size_t)t->cols * sizeof *sum);
        for (const part *p = m->parts; p != NULL; p = p->next) {
            add_row(p, p->row[first + r], t->cols, sum);
        }
        for (int64_t c = 0; c < t->cols; c++) {
            out[r * t->cols + c] = (float)((double)out[r * t->cols + c] + sum[c]);
        }
    }
    free(sum);
    return status;
}

/* ---- finding -------------------------------------------------------------------------------- */

/* The tensor that holds an entry's rows; s->n: none does. */
static size_t tensor_of(const gw_original *s, const gw_merge *m, const gw_entry *e) {
    size_t i = 0;
    for (; i < s->n; i++) {
        const gw_original_tensor *t = &m->list[i].was;
        if (m->own == NULL ? t->state == e : t->stored == e->stored[0]) {
            break;
        }
    }
    return i;
}

static gw_status map_rows(const gw_merge *m, const gw_original_tensor *t, const gw_entry *e,
                          part *p) {
    p->row = malloc((size_t)t->rows * sizeof *p->row);
    if (p->row == NULL) {
        return gw_fail(GW_E_NOMEM, t->name, "no memory for %lld rows", (long long)t->rows);
    }
    for (int64_t r = 0; r < t->rows; r++) {
        p->row[r] = m->own == NULL ? (int32_t)gw_original_row_before(t, r) : -1;
    }
    for (int64_t i = 0; m->own != NULL && i < e->t.dim[0]; i++) {
        int64_t at = gw_entry_stored_row(e, i);
        if (at >= 0 && at < t->rows) {
            p->row[at] = (int32_t)i;
        }
    }
    return GW_OK;
}

static void free_part(part *p) {
    if (p != NULL) {
        free(p->factors.a);
        free(p->factors.b);
        free(p->row);
        free(p);
    }
}

/* Has the adapter added to these rows already? */
static int is_there(const part *list, const part *p, int64_t rows) {
    for (; list != NULL; list = list->next) {
        for (int64_t r = 0; r < rows && list->adapter == p->adapter; r++) {
            if (list->row[r] >= 0 && p->row[r] >= 0) {
                return 1;
            }
        }
    }
    return 0;
}

/* Takes the part over, but on an error. */
static gw_status add_part(gw_original *s, gw_merge *m, const gw_entry *e, part *p,
                          int from_quantized) {
    size_t i = tensor_of(s, m, e);
    if (i == s->n || (m->own != NULL && e->transposed)) {
        return gw_fail(GW_E_UNSUPPORTED, e->t.name, "stands in no tensor that can be merged into");
    }
    gw_original_tensor *t = &s->list[i];
    if (!gw_format_of(t->fmt)->is_float && !from_quantized) {
        return gw_fail(GW_E_ARGUMENT, t->name,
                       "is %s already, and would be rounded once more: merge into the float model, "
                       "or allow it by --allow-requantize",
                       gw_format_of(t->fmt)->name);
    }
    GW_TRY(map_rows(m, t, e, p));
    if (is_there(m->list[i].parts, p, t->rows)) { /* a matrix that serves for another one, too */
        free_part(p);
        return GW_OK;
    }
    t->read = read_merged;
    t->state = &m->list[i];
    t->stored = NULL;
    p->next = m->list[i].parts;
    m->list[i].parts = p;
    return GW_OK;
}

static gw_status merge_matrix(gw_original *s, gw_merge *m, const gw_weights *w, const gw_lora *l,
                              const gw_spec_block *b, int arg, int layer, unsigned char *used,
                              const part *like, int from_quantized) {
    part *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return gw_fail(GW_E_NOMEM, gw_lora_path(l), "no memory for a layer");
    }
    gw_status status = gw_lora_factors_of(w, l, b, arg, layer, used, &p->factors);
    p->scale = like->scale;
    p->adapter = like->adapter;
    if (status != GW_OK || p->factors.rank == 0) {
        free_part(p);
        return status;
    }
    const gw_entry *e = &w->entries[w->start[b->weight[arg]] + (size_t)layer];
    status = add_part(s, m, e, p, from_quantized);
    if (status != GW_OK) {
        free_part(p);
    }
    return status;
}

/* Is matrix arg of the block one that a block before it multiplies by, too? */
static int seen_before(const gw_weights *w, const gw_spec_block *b, int arg, int layer) {
    for (int i = 0; i <= b->index; i++) {
        const gw_spec_block *o = &w->bp.block[i];
        int end = o == b ? arg : gw_lora_matrices(o);
        for (int k = 0; k < end && gw_lora_takes(o) && gw_block_runs(o, &w->hp, layer); k++) {
            if (o->weight[k] == b->weight[arg]) {
                return 1;
            }
        }
    }
    return 0;
}

static gw_status merge_adapter(gw_original *s, gw_merge *m, const gw_lora_file *file, size_t number,
                               int from_quantized) {
    const part like = {.scale = file->scale, .adapter = number};
    const gw_weights *w = m->own != NULL ? m->own : s->weights;
    gw_lora *l = NULL;
    GW_TRY(gw_lora_open(file->path, &l));
    unsigned char *used = calloc(gw_lora_count(l) + 1, 1);
    gw_status status = used != NULL && isfinite(file->scale)
                           ? GW_OK
                           : gw_fail(used != NULL ? GW_E_ARGUMENT : GW_E_NOMEM, file->path,
                                     "its scale is %g", (double)file->scale);
    for (int i = 0; i < w->hp.n_layers * w->bp.n_blocks && status == GW_OK; i++) {
        int layer = i / w->bp.n_blocks;
        const gw_spec_block *b = &w->bp.block[i % w->bp.n_blocks];
        int runs = gw_lora_takes(b) && gw_block_runs(b, &w->hp, layer);
        for (int k = 0; runs && k < gw_lora_matrices(b) && status == GW_OK; k++) {
            if (b->weight[k] >= 0 && !seen_before(w, b, k, layer)) {
                status = merge_matrix(s, m, w, l, b, k, layer, used, &like, from_quantized);
            }
        }
    }
    status = status == GW_OK ? gw_lora_all_used(w, l, used) : status;
    free(used);
    gw_lora_free(l);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------ */

gw_status gw_merge_into(gw_original *s, const gw_lora_file *adapters, size_t n, int from_quantized,
                        gw_merge **out) {
    const gw_weights_options options = {.where = gw_checkpoint_path(s->checkpoint), .as_stored = 1};
    gw_merge *m = calloc(1, sizeof *m);
    gw_status status = GW_OK;
    if (m == NULL || (m->list = calloc(s->n + 1, sizeof *m->list)) == NULL) {
        free(m);
        return gw_fail(GW_E_NOMEM, "lora", "no memory for %zu tensors", s->n);
    }
    m->n = s->n;
    for (size_t i = 0; i < s->n; i++) {
        m->list[i].was = s->list[i];
    }
    if (s->weights == NULL) {
        status = gw_weights_open(s->checkpoint, gw_checkpoint_blueprint(s->checkpoint), &options,
                                 &m->own);
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = merge_adapter(s, m, &adapters[i], i, from_quantized);
    }
    if (status != GW_OK) { /* s is closed by its owner, and read no more */
        gw_merge_free(m);
        return status;
    }
    *out = m;
    return GW_OK;
}

void gw_merge_free(gw_merge *m) {
    for (size_t i = 0; m != NULL && i < m->n; i++) {
        for (part *p = m->list[i].parts, *next; p != NULL; p = next) {
            next = p->next;
            free_part(p);
        }
    }
    if (m != NULL) {
        gw_weights_free(m->own);
        free(m->list);
        free(m);
    }
}
