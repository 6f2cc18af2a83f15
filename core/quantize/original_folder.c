/* core/quantize/original_folder.c - a folder's model in GGUF's names, order and metadata: by the
 * family's spec, which has the names and keys of both. */
#include "core/quantize/original_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/packed.h"
#include "core/model/weights_parts.h"

/* ---- rows ----------------------------------------------------------------------------------- */

int64_t gw_original_row_before(const gw_original_tensor *t, int64_t row) {
    int64_t wide = t->heads > 0 ? t->rows * (t->n_dim == 1 ? t->cols : 1) / t->heads : 1;
    int64_t in_head = row % wide;
    return t->turning == 0 || in_head >= t->turning
               ? row
               : row - in_head + in_head % 2 * (t->turning / 2) + in_head / 2;
}

static gw_status read_matrix(const gw_original_tensor *t, int64_t first, int64_t n, float *out) {
    const gw_entry *e = t->state;
    const gw_weight_source source = gw_entry_source(e);
    size_t bytes = 0, cols = (size_t)t->cols;
    GW_TRY(gw_row_bytes(e->t.fmt, cols, &bytes));
    unsigned char *raw = malloc(bytes * (size_t)n + 1);
    gw_status status =
        raw != NULL ? GW_OK : gw_fail(GW_E_NOMEM, t->name, "no memory for %lld rows", (long long)n);
    for (int64_t r = 0; r < n && status == GW_OK && t->turning > 0; r++) {
        status =
            source.rows(&source, gw_original_row_before(t, first + r), 1, raw + bytes * (size_t)r);
    }
    if (status == GW_OK && t->turning == 0) {
        status = source.rows(&source, first, n, raw);
    }
    for (int64_t r = 0; r < n && status == GW_OK; r++) {
        gw_format_of(e->t.fmt)->decode(out + (size_t)r * cols, raw + bytes * (size_t)r, cols);
    }
    free(raw);
    return status;
}

static gw_status read_vector(const gw_original_tensor *t, int64_t first, int64_t n, float *out) {
    const gw_entry *e = t->state;
    size_t count = (size_t)(t->rows * t->cols);
    float *values = malloc((count + 1) * sizeof *values);
    gw_status status = values != NULL
                           ? gw_entry_values(e, values)
                           : gw_fail(GW_E_NOMEM, t->name, "no memory for %zu values", count);
    for (int64_t i = 0; i < n * t->cols && status == GW_OK; i++) {
        out[i] = values[gw_original_row_before(t, first * t->cols + i)];
    }
    free(values);
    return status;
}

gw_status gw_original_given(const gw_original_tensor *t, int64_t first, int64_t n, float *out) {
    memcpy(out, (const float *)t->state + first * t->cols, (size_t)(n * t->cols) * sizeof *out);
    return GW_OK;
}

/* ---- tensors -------------------------------------------------------------------------------- */

static const char *name_of(gw_original *s, const char *pattern, int layer) {
    char name[160];
    const char *mark = strstr(pattern, "%d");
    if (mark == NULL) {
        return pattern;
    }
    int n =
        snprintf(name, sizeof name, "%.*s%d%s", (int)(mark - pattern), pattern, layer, mark + 2);
    return gw_arena_copy(s->arena, name, n > 0 ? (size_t)n : 0);
}

/* 0: no query or key of a layer; 1: queries, 2: keys. */
static int turns(const gw_blueprint *bp, int role) {
    for (int b = 0; b < bp->n_blocks; b++) {
        const gw_spec_block *block = &bp->block[b];
        if (block->kind == GW_BLOCK_QKV) {
            for (int k = 0; k < 2; k++) {
                if (block->weight[k] == role || block->weight[3 + k] == role) {
                    return k + 1;
                }
            }
        }
    }
    return 0;
}

gw_status gw_original_no_form(const gw_original *s, const char *what, const char *of) {
    return gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_path(s->checkpoint),
                   "%s '%s' of a %s model is not put into GGUF's form here; give a GGUF file", what,
                   of, gw_checkpoint_blueprint(s->checkpoint)->family);
}

/* Is the entry there by itself, and not another weight that serves for it? */
static int is_own(const gw_weights *w, int role, const gw_entry *e, int layer) {
    const gw_spec_weight *s = &w->bp.weight[role];
    if (e->n_stored == 0 || e->made || (s->tied && w->hp.tied)) {
        return 0;
    }
    for (int other = s->fallback; other >= 0; other = w->bp.weight[other].fallback) {
        size_t layers = w->start[other + 1] - w->start[other];
        const gw_entry *o = &w->entries[w->start[other] + (layers > 1 ? (size_t)layer : 0)];
        if (o->n_stored > 0 && o->stored[0] == e->stored[0]) {
            return 0;
        }
    }
    return 1;
}

static gw_status take_entry(gw_original *s, int role, int layer) {
    const gw_weights *w = s->weights;
    gw_entry *e = &w->entries[w->start[role] + (size_t)layer];
    const gw_spec_weight *spec = &w->bp.weight[role];
    if (!is_own(w, role, e, layer)) {
        return GW_OK;
    }
    const gw_spec_source *to = spec->n_gguf > 0 ? &spec->gguf[0] : NULL;
    if (to == NULL || to->of.n > 0 || to->transposed || to->n_with > 0 || to->span.n > 0 ||
        to->buckets.n > 0 || to->transform[0] != GW_TRANSFORM_NONE) {
        return gw_original_no_form(s, "weight", spec->role);
    }
    gw_original_tensor *t = &s->list[s->n];
    int vector = e->t.n_dim == 1;
    int64_t experts = e->experts > 0 ? e->experts : 1;
    *t = (gw_original_tensor){.name = name_of(s, to->name, w->hp.layer[layer].named),
                              .seen_as = e->t.name,
                              .read = vector ? read_vector : read_matrix,
                              .state = e};
    const gw_packed *p = e->stored[0]->packed; /* columns group by group are floats here */
    t->from = !vector && p != NULL && p->column != NULL ? e->stored[0]->fmt : GW_FMT_F32;
    t->fmt = vector || !gw_mixture_takes(t->name, 2) ? GW_FMT_F32 : e->t.fmt;
    t->cols = vector ? e->t.dim[0] / experts : e->t.dim[1];
    t->rows = vector ? experts : e->t.dim[0];
    t->n_dim = (vector ? 1 : 2) + (experts > 1);
    t->dim[0] = experts;
    if (!vector) {
        t->dim[experts > 1 ? 1 : 0] = t->rows / experts;
    }
    t->dim[t->n_dim - 1] = t->cols;
    const gw_layer *l = &w->hp.layer[layer];
    int side = turns(&w->bp, role);
    if (side > 0 && l->rope >= 0) {
        const gw_spec_rope *rope = &w->bp.rope[l->rope];
        t->heads = side == 1 ? l->n_heads : l->n_kv_heads;
        t->turning = rope->style_hf != rope->style_gguf ? w->hp.rope[l->rope].dim : 0;
    }
    s->n++;
    return GW_OK;
}

/* Outside the layers, then layer by layer, as GGUF files have them. */
static gw_status take_tensors(gw_original *s) {
    const gw_weights *w = s->weights;
    s->list = gw_arena_array(s->arena, w->start[w->bp.n_weights] + 3, sizeof *s->list);
    if (s->list == NULL) {
        return gw_fail(GW_E_NOMEM, gw_checkpoint_path(s->checkpoint), "no memory for its tensors");
    }
    for (int r = 0; r < w->bp.n_weights; r++) {
        if (w->start[r + 1] - w->start[r] == 1 && !w->bp.weight[r].per_layer) {
            GW_TRY(take_entry(s, r, 0));
        }
    }
    GW_TRY(gw_original_take_divisors(s));
    for (int l = 0; l < w->hp.n_layers; l++) {
        for (int r = 0; r < w->bp.n_weights; r++) {
            if (w->bp.weight[r].per_layer) {
                GW_TRY(take_entry(s, r, l));
            }
        }
    }
    return GW_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* The first name on the spec's `gguf` line; Mistral's folders are llama in GGUF. */
static gw_status find_architecture(gw_original *s) {
    const gw_spec *spec = gw_spec_of(gw_checkpoint_architecture(s->checkpoint));
    const char *line = spec != NULL ? strstr(gw_spec_text(spec), "\ngguf ") : NULL;
    const char *family = gw_checkpoint_blueprint(s->checkpoint)->family;
    if (line != NULL) {
        size_t n = strcspn(line + 6, " +\r\n#");
        s->architecture = gw_arena_copy(s->arena, line + 6, n);
        return s->architecture != NULL ? GW_OK : gw_fail(GW_E_NOMEM, family, "no memory");
    }
    if (strcmp(family, "mistral") == 0) {
        s->architecture = "llama";
        return GW_OK;
    }
    return gw_original_no_form(s, "family", family);
}

gw_status gw_original_take_folder(gw_original *s) {
    const gw_blueprint *bp = gw_checkpoint_blueprint(s->checkpoint);
    const gw_weights_options options = {.where = gw_checkpoint_path(s->checkpoint), .as_stored = 1};
    const char *name = gw_checkpoint_name(s->checkpoint);
    GW_TRY(find_architecture(s));
    GW_TRY(gw_weights_open(s->checkpoint, bp, &options, &s->weights));
    gw_pair_text(&s->pairs, "general.architecture", s->architecture, strlen(s->architecture));
    gw_pair_text(&s->pairs, "general.type", "model", 5);
    gw_pair_text(&s->pairs, "general.name", name, strlen(name));
    GW_TRY(gw_original_take_numbers(s));
    GW_TRY(gw_original_take_vocab(s));
    GW_TRY(take_tensors(s));
    return s->pairs.failed
               ? gw_fail(GW_E_NOMEM, gw_checkpoint_path(s->checkpoint), "no memory for metadata")
               : GW_OK;
}
