/* core/model/lora_find.c - which matrix of the model a pair of an adapter belongs to: by the names
 * of the adapter's own container, whatever the model's is, with rows put in the model's order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/model/lora_bank.h"
#include "core/model/weights_parts.h"

static int is_folder(const gw_weights *w) {
    return gw_checkpoint_container(w->checkpoint) == GW_CONTAINER_HF;
}

int gw_lora_takes(const gw_spec_block *b) {
    return b->section == GW_SECTION_LAYER &&
           (b->kind == GW_BLOCK_QKV || b->kind == GW_BLOCK_LINEAR || b->kind == GW_BLOCK_RESIDUAL ||
            b->kind == GW_BLOCK_GLU || b->kind == GW_BLOCK_MLP || b->kind == GW_BLOCK_EXPERTS);
}

int gw_lora_matrices(const gw_spec_block *b) {
    return b->kind == GW_BLOCK_EXPERTS ? 3 : gw_block_matrices(b); /* down has another input */
}

/* ---- names ---------------------------------------------------------------------------------- */

/* A module by a name of the family [n], in folders below any of its prefixes. */
static int find_module(const gw_weights *w, const gw_lora *l, const char *name, size_t n) {
    char module[300];
    int prefixes = gw_lora_is_folder(l) ? w->bp.n_prefixes : 0, at = -1;
    for (int i = 0; at < 0 && i < (prefixes > 0 ? prefixes : 1); i++) {
        snprintf(module, sizeof module, "%s%.*s", prefixes > 0 ? w->bp.prefix[i] : "", (int)n,
                 name);
        at = gw_lora_find(l, module);
    }
    return at;
}

/* Blocks of experts that files name as Mixtral's are mlp in transformers since 5.0, and so in
 * adapters of it. */
int gw_lora_find_below(const gw_weights *w, const gw_lora *l, const char *tensor) {
    static const char block[] = "block_sparse_moe.";
    size_t n = strlen(tensor) - (gw_text_ends(tensor, ".weight") ? sizeof ".weight" - 1 : 0);
    const char *at = strstr(tensor, block);
    int pair = find_module(w, l, tensor, n);
    if (pair < 0 && at != NULL && gw_lora_is_folder(l)) {
        char other[300];
        size_t front = (size_t)(at - tensor), tail = sizeof block - 1;
        int used = snprintf(other, sizeof other, "%.*smlp.%.*s", (int)front, tensor,
                            (int)(n - front - tail), at + tail);
        pair =
            used > 0 && (size_t)used < sizeof other ? find_module(w, l, other, (size_t)used) : -1;
    }
    return pair;
}

/* The name of a tensor of a folder without the longest prefix that it has. */
static const char *without_prefix(const gw_weights *w, const char *name) {
    size_t longest = 0;
    for (int i = 0; i < w->bp.n_prefixes; i++) {
        size_t n = strlen(w->bp.prefix[i]);
        longest = n > longest && strncmp(name, w->bp.prefix[i], n) == 0 ? n : longest;
    }
    return name + longest;
}

/* The pair that changes an entry, and in *cut which rows of its B are the entry's; -1: none. */
static gw_status find_pair(const gw_weights *w, const gw_lora *l, int role, int layer,
                           const gw_entry *e, gw_entry *cut, int *pair) {
    int folder = gw_lora_is_folder(l), there = 1;
    *pair = -1;
    *cut = *e;
    if (folder == is_folder(w)) {
        const char *name = e->stored[0]->name;
        *pair = gw_lora_find_below(w, l, folder ? without_prefix(w, name) : name);
        return GW_OK;
    }
    for (int i = 0; *pair < 0; i++) {
        char name[200];
        GW_TRY(gw_weights_named(w, role, layer, -1, folder, i, name, sizeof name, cut, &there));
        if (!there) {
            return GW_OK;
        }
        *pair = name[0] != '\0' ? gw_lora_find_below(w, l, name) : -1;
    }
    return GW_OK;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Containers differ in how the two halves of a head's rotated pairs stand: side by side, or in
 * turns. Of q and k rows [rows, rank] become those of the model. */
static gw_status turn_heads(const gw_weights *w, const gw_lora *l, int layer, float *b,
                            int64_t rows, int rank) {
    const gw_layer *y = &w->hp.layer[layer];
    int64_t d = y->d_head, half = d / 2;
    if (d < 2 || d % 2 != 0 || rows % d != 0 || w->hp.rope[y->rope].dim != d) {
        return gw_fail(GW_E_UNSUPPORTED, gw_lora_path(l),
                       "heads are rotated in part, which a %s has in another order than the "
                       "model's %s: convert the adapter to the model's kind of file",
                       gw_lora_is_folder(l) ? "folder" : "GGUF file",
                       is_folder(w) ? "folder" : "GGUF file");
    }
    size_t row = (size_t)rank * sizeof *b;
    float *head = malloc((size_t)d * row);
    if (head == NULL) {
        return gw_fail(GW_E_NOMEM, gw_lora_path(l), "no memory for a head");
    }
    for (int64_t h = 0; h < rows / d; h++) {
        float *at = b + h * d * rank;
        memcpy(head, at, (size_t)d * row);
        for (int64_t i = 0; i < d; i++) {
            int64_t apart = i % 2 * half + i / 2; /* where a folder has row i of turns */
            int64_t from = gw_lora_is_folder(l) ? apart : i, to = gw_lora_is_folder(l) ? i : apart;
            memcpy(at + to * rank, head + from * rank, row);
        }
    }
    free(head);
    return GW_OK;
}

/* Are its results logits of experts, which nothing rotates? */
static int is_router(const gw_weights *w, const gw_spec_block *b) {
    const gw_spec_block *next = b + 1, *end = w->bp.block + w->bp.n_blocks;
    while (next < end && next->in != b->out) {
        next++;
    }
    return next < end && next->kind == GW_BLOCK_ROUTE;
}

/* 1: rows of the matrix stand in another order in the other container; -1: that is not known. */
static int turns(const gw_weights *w, const gw_lora *l, const gw_spec_block *b, int arg,
                 int layer) {
    int rope = w->hp.layer[layer].rope;
    if (gw_lora_is_folder(l) == is_folder(w) || rope < 0 ||
        w->bp.rope[rope].style_hf == w->bp.rope[rope].style_gguf || is_router(w, b)) {
        return 0;
    }
    return b->kind == GW_BLOCK_QKV ? arg < 2 : b->kind == GW_BLOCK_LINEAR ? -1 : 0;
}

static gw_status check_shape(const gw_lora *l, const gw_lora_pair *p, const gw_entry *e,
                             const gw_entry *cut) {
    int64_t rows = e->t.dim[0];
    if (cut->of > 0) {
        rows = rows % cut->count == 0 ? rows / cut->count * cut->of : -1;
    }
    if (p->experts > 0) {
        return gw_fail(GW_E_METADATA, gw_lora_path(l),
                       "has factors of %d experts together for %.160s, which is one linear layer",
                       p->experts, p->module);
    }
    if (p->b->dim[0] != rows || p->a->dim[1] != e->t.dim[1]) {
        return gw_fail(GW_E_METADATA, gw_lora_path(l),
                       "layer %.160s goes from %lld to %lld values, the model's from %lld to %lld: "
                       "the adapter is one of another model",
                       p->module, (long long)p->a->dim[1], (long long)p->b->dim[0],
                       (long long)e->t.dim[1], (long long)rows);
    }
    return GW_OK;
}

/* Matrices whose rows or columns were moved, or whose values are made of what is stored by more
 * than a factor. */
static gw_status check_plain(const gw_lora *l, const gw_lora_pair *p, const gw_entry *e,
                             const gw_entry *cut) {
    int plain = e->row == NULL && e->folded == 0 && e->span == 0 && e->n_stored == 1;
    for (int i = 0; cut->source != NULL && i < GW_SPEC_TRANSFORMS; i++) {
        gw_transform t = cut->source->transform[i];
        plain = plain &&
                (t == GW_TRANSFORM_NONE || t == GW_TRANSFORM_TIMES || t == GW_TRANSFORM_NEGATE);
    }
    return plain ? GW_OK
                 : gw_fail(GW_E_UNSUPPORTED, gw_lora_path(l),
                           "layer %.160s is stored in an order of its own (%s): adapters of it are "
                           "not run",
                           p->module, e->stored[0]->name);
}

/* ---- factors -------------------------------------------------------------------------------- */

/* All rows of a stored matrix, those that `like` cuts out of it, as floats. */
static gw_status read_rows(const gw_stored *t, const gw_entry *like, int64_t rows, float *out) {
    gw_entry e = *like;
    e.stored = &t;
    e.n_stored = 1;
    e.from = t->fmt;
    e.transposed = e.experts = 0;
    e.folded = 0;
    e.factor = NULL;
    e.column = NULL;
    e.stored_rows = t->dim[0];
    e.stored_cols = t->dim[1];
    e.t = (gw_tensor){.name = t->name, .fmt = GW_FMT_F32, .n_dim = 2, .dim = {rows, t->dim[1]}};
    gw_weight_source source = gw_entry_source(&e);
    return source.rows(&source, 0, rows, out);
}

static gw_status fill(const gw_weights *w, const gw_lora *l, const gw_lora_pair *p,
                      const gw_entry *e, const gw_entry *cut, int turned, int layer,
                      gw_lora_factors *out) {
    static const gw_spec_source as_stored;
    const gw_entry whole = {.source = &as_stored, .times = 1.0f};
    int64_t rank = p->a->dim[0], rows = e->t.dim[0];
    out->a = malloc((size_t)(rank * e->t.dim[1]) * sizeof *out->a);
    out->b = malloc((size_t)(rows * rank) * sizeof *out->b);
    if (out->a == NULL || out->b == NULL) {
        return gw_fail(GW_E_NOMEM, gw_lora_path(l), "no memory for layer %.160s", p->module);
    }
    GW_TRY(read_rows(p->a, &whole, rank, out->a));
    GW_TRY(read_rows(p->b, cut, rows, out->b));
    for (int64_t i = 0; i < rows * rank; i++) {
        out->b[i] *= p->scale;
    }
    out->rank = (int)rank;
    return turned ? turn_heads(w, l, layer, out->b, rows, (int)rank) : GW_OK;
}

gw_status gw_lora_factors_of(const gw_weights *w, const gw_lora *l, const gw_spec_block *b, int arg,
                             int layer, unsigned char *used, gw_lora_factors *out) {
    int role = b->weight[arg], pair = -1;
    *out = (gw_lora_factors){0};
    if (role < 0 || !w->bp.weight[role].per_layer) {
        return GW_OK;
    }
    const gw_entry *e = &w->entries[w->start[role] + (size_t)layer];
    int turned = turns(w, l, b, arg, layer);
    gw_entry cut;
    if (e->n_stored > 0 && e->experts > 0) {
        return gw_lora_expert_factors(w, l, b, arg, layer, used, out);
    }
    if (e->n_stored < 1 || e->t.n_dim != 2 || turned < 0) {
        return GW_OK;
    }
    GW_TRY(find_pair(w, l, role, layer, e, &cut, &pair));
    if (pair < 0) {
        return GW_OK;
    }
    const gw_lora_pair *p = gw_lora_at(l, (size_t)pair);
    GW_TRY(check_plain(l, p, e, &cut));
    GW_TRY(check_shape(l, p, e, &cut));
    used[pair] = 1;
    gw_status status = fill(w, l, p, e, &cut, turned, layer, out);
    if (status != GW_OK) {
        free(out->a);
        free(out->b);
        *out = (gw_lora_factors){0};
    }
    return status;
}

gw_status gw_lora_all_used(const gw_weights *w, const gw_lora *l, const unsigned char *used) {
    for (size_t i = 0; i < gw_lora_count(l); i++) {
        if (!used[i]) {
            return gw_fail(GW_E_UNSUPPORTED, gw_lora_path(l),
                           "changes %.160s, which is no layer of a %s model that adapters "
                           "can change (%s, those of attention, feed-forward and experts; not "
                           "embedding, output head)",
                           gw_lora_at(l, i)->module, w->bp.family,
                           is_folder(w) ? "a folder" : "a GGUF file");
        }
    }
    return GW_OK;
}
