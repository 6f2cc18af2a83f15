/* core/model/lora_experts.c - what an adapter has for the experts of a mixture: a pair for each
 * expert, or one for all, of its matrix or of gate and up in one, by the names of its container. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/model/lora_bank.h"
#include "core/model/weights_parts.h"

/* The matrix of experts that factors are looked for. */
typedef struct matrix {
    const gw_weights *w;
    const gw_lora *l;
    const gw_entry *e;
    int role, arg, layer, gated;
    int64_t experts, rows, cols; /* rows [m] of one expert */
} matrix;

/* A pair, of all experts or of one, and which rows of its B are the matrix's; pair -1: none. */
typedef struct match {
    int pair;
    gw_entry cut;
} match;

static const gw_spec_source as_stored;

/* ---- names ---------------------------------------------------------------------------------- */

/* Experts that the family has one by one are two parameters in transformers since 5.0. name: of
 * expert 0's matrix. */
static int find_fused(const matrix *m, const char *name) {
    static const char middle[] = ".experts.";
    const char *end = strstr(name, middle);
    const char *what = m->arg == 2 ? "down_proj" : m->gated ? "gate_up_proj" : "up_proj";
    char full[300];
    if (end == NULL) {
        return -1;
    }
    snprintf(full, sizeof full, "%.*s%s", (int)(end - name + (int)sizeof middle - 1), name, what);
    return gw_lora_find_below(m->w, m->l, full);
}

static void cut_half(const matrix *m, gw_entry *cut) {
    cut->source = &as_stored;
    cut->of = m->arg < 2 && m->gated ? 2 * m->rows : 0;
    cut->first = m->arg == 1 ? m->rows : 0;
    cut->count = m->rows;
}

/* One pair for all experts. */
static gw_status find_whole(const matrix *m, match *out) {
    int folder = gw_lora_is_folder(m->l), there = 1;
    *out = (match){-1, *m->e};
    for (int i = 0; out->pair < 0; i++) {
        char name[200];
        GW_TRY(gw_weights_named(m->w, m->role, m->layer, -1, folder, i, name, sizeof name,
                                &out->cut, &there));
        if (!there) {
            break;
        }
        size_t n = strlen(name), tail = sizeof "_blocks" - 1;
        name[n - (gw_text_ends(name, "_blocks") ? tail : 0)] = '\0'; /* of codes and scales */
        out->pair = name[0] != '\0' ? gw_lora_find_below(m->w, m->l, name) : -1;
    }
    for (int i = 0; out->pair < 0 && folder; i++) {
        char name[200];
        GW_TRY(gw_weights_named(m->w, m->role, m->layer, 0, folder, i, name, sizeof name, &out->cut,
                                &there));
        if (!there) {
            break;
        }
        out->pair = find_fused(m, name);
        cut_half(m, &out->cut);
    }
    return GW_OK;
}

/* The pair of one expert. */
static gw_status find_one(const matrix *m, int expert, match *out) {
    int folder = gw_lora_is_folder(m->l), there = 1;
    const gw_spec_weight *s = &m->w->bp.weight[m->role];
    *out = (match){-1, *m->e};
    for (int i = 0; out->pair < 0; i++) {
        char name[200];
        GW_TRY(gw_weights_named(m->w, m->role, m->layer, expert, folder, i, name, sizeof name,
                                &out->cut, &there));
        if (!there) {
            return GW_OK;
        }
        int own = gw_source_names_experts(folder ? &s->hf[i] : &s->gguf[i]);
        out->pair = own && name[0] != '\0' ? gw_lora_find_below(m->w, m->l, name) : -1;
    }
    return GW_OK;
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* Rows of one expert in what the pair changes. */
static int64_t full_rows(const matrix *m, const gw_entry *cut) {
    return cut->of == 0 ? m->rows : m->rows % cut->count == 0 ? m->rows / cut->count * cut->of : -1;
}

/* Do the factors of a parameter stand in each other's place? */
static int is_turned(const matrix *m, const gw_lora_pair *p, const gw_entry *cut) {
    int64_t in = p->a->dim[1], out = p->b->dim[0], rows = full_rows(m, cut);
    int folder = gw_checkpoint_container(m->w->checkpoint) == GW_CONTAINER_HF;
    int stored = folder ? m->e->transposed : cut->source->transposed;
    if (!p->parameter || in != rows || out != m->cols) {
        return 0;
    }
    return rows != m->cols || p->square == GW_LORA_SQUARE_B ||
           (p->square == GW_LORA_SQUARE_BY_STORED && !stored);
}

static gw_status check(const matrix *m, const gw_lora_pair *p, const gw_entry *cut, int experts) {
    const gw_entry *e = m->e;
    int64_t in = p->a->dim[p->a->n_dim - 1], out = p->b->dim[p->parameter ? 0 : p->b->n_dim - 2];
    int plain = e->row == NULL && e->folded == 0 && e->span == 0 && !cut->source->quarters;
    for (int i = 0; i < GW_SPEC_TRANSFORMS; i++) {
        plain = plain && cut->source->transform[i] == GW_TRANSFORM_NONE;
    }
    if (!plain) {
        return gw_fail(GW_E_UNSUPPORTED, gw_lora_path(m->l),
                       "layer %.160s is stored in an order of its own (%s): adapters of it are not "
                       "run",
                       p->module, e->t.name);
    }
    if (p->experts != experts) {
        return gw_fail(GW_E_METADATA, gw_lora_path(m->l),
                       "layer %.160s has factors of %d experts, the model's has %d: the adapter is "
                       "one of another model",
                       p->module, p->experts, experts);
    }
    if (!is_turned(m, p, cut) && (in != m->cols || out != full_rows(m, cut))) {
        return gw_fail(GW_E_METADATA, gw_lora_path(m->l),
                       "layer %.160s goes from %lld to %lld values, the model's from %lld to %lld: "
                       "the adapter is one of another model",
                       p->module, (long long)in, (long long)out, (long long)m->cols,
                       (long long)full_rows(m, cut));
    }
    return GW_OK;
}

/* ---- factors -------------------------------------------------------------------------------- */

/* All of a stored tensor as floats; free. */
static gw_status read_floats(const gw_lora *l, const gw_stored *t, float **out) {
    int64_t cols = t->dim[t->n_dim - 1], rows = t->dim[0] * (t->n_dim == 3 ? t->dim[1] : 1);
    float *all = malloc((size_t)rows * (size_t)cols * sizeof *all);
    if (all == NULL) {
        return gw_fail(GW_E_NOMEM, gw_lora_path(l), "no memory for tensor %.160s", t->name);
    }
    gw_entry e = {.source = &as_stored,
                  .times = 1.0f,
                  .stored = &t,
                  .n_stored = 1,
                  .from = t->fmt,
                  .stored_rows = rows,
                  .stored_cols = cols};
    e.t = (gw_tensor){.name = t->name, .fmt = GW_FMT_F32, .n_dim = 2, .dim = {rows, cols}};
    gw_weight_source source = gw_entry_source(&e);
    gw_status status = source.rows(&source, 0, rows, all);
    if (status != GW_OK) {
        free(all);
        return status;
    }
    *out = all;
    return GW_OK;
}

/* Expert x of the matrix out of pair's factors a, b, where it is number `at`. */
static void copy_expert(const matrix *m, const gw_lora_pair *p, const gw_entry *cut, const float *a,
                        const float *b, int64_t x, int64_t at, gw_lora_factors *out) {
    int64_t r = p->rank, experts = p->experts, cols = m->cols, rows = full_rows(m, cut);
    int turned = is_turned(m, p, cut);
    float *to_a = out->a + x * out->rank * cols, *to_b = out->b + x * m->rows * out->rank;
    for (int64_t k = 0; k < r; k++) {
        for (int64_t c = 0; c < cols; c++) {
            to_a[k * cols + c] =
                turned ? b[c * r * experts + k * experts + at] : a[(at * r + k) * cols + c];
        }
    }
    for (int64_t i = 0; i < m->rows; i++) {
        int64_t row = gw_entry_stored_row(cut, i);
        for (int64_t k = 0; k < r; k++) {
            float v = turned         ? a[(at * r + k) * rows + row]
                      : p->parameter ? b[row * r * experts + k * experts + at]
                                     : b[(at * rows + row) * r + k];
            to_b[i * out->rank + k] = v * p->scale;
        }
    }
}

static gw_status copy_pair(const matrix *m, const gw_lora_pair *p, const gw_entry *cut,
                           int64_t first, int64_t n, gw_lora_factors *out) {
    float *a = NULL, *b = NULL;
    gw_status status = read_floats(m->l, p->a, &a);
    status = status == GW_OK ? read_floats(m->l, p->b, &b) : status;
    for (int64_t i = 0; i < n && status == GW_OK; i++) {
        copy_expert(m, p, cut, a, b, first + i, i, out);
    }
    free(a);
    free(b);
    return status;
}

static gw_status new_factors(const matrix *m, int rank, gw_lora_factors *out) {
    size_t r = (size_t)rank, experts = (size_t)m->experts;
    out->rank = rank;
    out->each = m->rows;
    out->a = calloc(experts * r * (size_t)m->cols, sizeof *out->a);
    out->b = calloc(experts * (size_t)m->rows * r, sizeof *out->b);
    return out->a != NULL && out->b != NULL
               ? GW_OK
               : gw_fail(GW_E_NOMEM, gw_lora_path(m->l), "no memory for adapters of %d experts",
                         (int)m->experts);
}

/* Pairs of single experts, ranks padded to the largest. found [experts]; none: rank stays 0. */
static gw_status take_each(const matrix *m, match *found, unsigned char *used,
                           gw_lora_factors *out) {
    int rank = 0;
    for (int x = 0; x < m->experts; x++) {
        GW_TRY(find_one(m, x, &found[x]));
        const gw_lora_pair *p = found[x].pair >= 0 ? gw_lora_at(m->l, (size_t)found[x].pair) : NULL;
        GW_TRY(p != NULL ? check(m, p, &found[x].cut, 0) : GW_OK);
        rank = p != NULL && p->rank > rank ? p->rank : rank;
    }
    if (rank == 0) {
        return GW_OK;
    }
    GW_TRY(new_factors(m, rank, out));
    for (int x = 0; x < m->experts; x++) {
        if (found[x].pair >= 0) {
            const gw_lora_pair *p = gw_lora_at(m->l, (size_t)found[x].pair);
            GW_TRY(copy_pair(m, p, &found[x].cut, x, 1, out));
            used[found[x].pair] = 1;
        }
    }
    return GW_OK;
}

static gw_status take(const matrix *m, unsigned char *used, gw_lora_factors *out) {
    match whole;
    GW_TRY(find_whole(m, &whole));
    if (whole.pair >= 0) {
        const gw_lora_pair *p = gw_lora_at(m->l, (size_t)whole.pair);
        GW_TRY(check(m, p, &whole.cut, (int)m->experts));
        GW_TRY(new_factors(m, p->rank, out));
        used[whole.pair] = 1;
        return copy_pair(m, p, &whole.cut, 0, m->experts, out);
    }
    match *found = calloc((size_t)m->experts, sizeof *found);
    if (found == NULL) {
        return gw_fail(GW_E_NOMEM, gw_lora_path(m->l), "no memory for %d experts", (int)m->experts);
    }
    gw_status status = take_each(m, found, used, out);
    free(found);
    return status;
}

gw_status gw_lora_expert_factors(const gw_weights *w, const gw_lora *l, const gw_spec_block *b,
                                 int arg, int layer, unsigned char *used, gw_lora_factors *out) {
    int role = b->weight[arg], gate = b->weight[0];
    const gw_entry *e = &w->entries[w->start[role] + (size_t)layer];
    matrix m = {.w = w, .l = l, .e = e, .role = role, .arg = arg, .layer = layer};
    m.experts = e->experts;
    m.rows = e->t.dim[0] / e->experts;
    m.cols = e->t.dim[1];
    m.gated = gate >= 0 && w->entries[w->start[gate] + (size_t)layer].n_stored > 0;
    gw_status status = take(&m, used, out);
    if (status != GW_OK) {
        free(out->a);
        free(out->b);
        *out = (gw_lora_factors){0};
    }
    return status;
}
