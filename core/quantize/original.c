/* core/quantize/original.c - a GGUF file as a source; what both containers share. */
#include "core/quantize/original.h"

#include <stdlib.h>
#include <string.h>

#include "core/model/weights.h"

static gw_status read_stored(const gw_original_tensor *t, int64_t first, int64_t n, float *out) {
    size_t row = 0;
    GW_TRY(gw_row_bytes(t->fmt, (uint64_t)t->cols, &row));
    unsigned char *raw = malloc(row * (size_t)n + 1);
    gw_status status = raw != NULL
                           ? gw_stored_read(t->stored, row * (size_t)first, row * (size_t)n, raw)
                           : gw_fail(GW_E_NOMEM, t->name, "no memory for %lld rows", (long long)n);
    for (int64_t r = 0; r < n && status == GW_OK; r++) {
        gw_format_of(t->fmt)->decode(out + r * t->cols, raw + row * (size_t)r, (size_t)t->cols);
    }
    free(raw);
    return status;
}

static int is_skipped(const gw_gguf_pair *p, const char *const *skip) {
    for (size_t i = 0; skip != NULL && skip[i] != NULL; i++) {
        size_t n = strlen(skip[i]);
        if (p->key.bytes == n && memcmp(p->key.text, skip[i], n) == 0) {
            return 1;
        }
    }
    return 0;
}

static gw_status take_gguf(gw_original *s, const char *const *skip) {
    const gw_gguf *g = gw_checkpoint_gguf(s->checkpoint, 0);
    for (size_t i = 0; i < gw_gguf_pairs(g); i++) {
        gw_gguf_pair p = gw_gguf_pair_at(g, i);
        if (!is_skipped(&p, skip)) {
            gw_pair_copy(&s->pairs, &p);
        }
    }
    s->n = gw_checkpoint_count(s->checkpoint);
    s->list = gw_arena_array(s->arena, s->n + 1, sizeof *s->list);
    if (s->list == NULL || s->pairs.failed) {
        return gw_fail(GW_E_NOMEM, gw_checkpoint_path(s->checkpoint), "no memory for its tensors");
    }
    for (size_t i = 0; i < s->n; i++) {
        const gw_stored *t = gw_checkpoint_at(s->checkpoint, i);
        gw_original_tensor *to = &s->list[i];
        *to = (gw_original_tensor){.name = t->name,
                                   .seen_as = t->name,
                                   .n_dim = t->n_dim,
                                   .fmt = t->fmt,
                                   .stored = t,
                                   .read = read_stored};
        to->rows = 1;
        to->cols = t->n_dim > 0 ? t->dim[t->n_dim - 1] : 1;
        for (int d = 0; d < t->n_dim; d++) {
            to->dim[d] = t->dim[d];
            to->rows *= d + 1 < t->n_dim ? t->dim[d] : 1;
        }
    }
    while (gw_checkpoint_gguf(s->checkpoint, (size_t)s->parts) != NULL) {
        s->parts++;
    }
    return GW_OK;
}

gw_status gw_original_open(const char *path, const char *const *skip, gw_original *out) {
    gw_original s = {.arena = gw_arena_new(), .pairs = {.skip = skip}};
    gw_status status = s.arena != NULL ? gw_checkpoint_open(path, NULL, 0, &s.checkpoint)
                                       : gw_fail(GW_E_NOMEM, path, "no memory for its tensors");
    if (status == GW_OK) {
        const gw_hparams *hp = gw_checkpoint_hparams(s.checkpoint);
        s.architecture = gw_checkpoint_architecture(s.checkpoint);
        s.layers = hp->n_layers;
        s.heads = hp->layer[0].n_heads;
        s.kv_heads = hp->layer[0].n_kv_heads;
        for (int l = 0; l < hp->n_layers; l++) { /* where some layers do not attend */
            s.heads = hp->layer[l].n_heads > s.heads ? hp->layer[l].n_heads : s.heads;
            s.kv_heads =
                hp->layer[l].n_kv_heads > s.kv_heads ? hp->layer[l].n_kv_heads : s.kv_heads;
            s.experts = hp->layer[l].n_experts > s.experts ? hp->layer[l].n_experts : s.experts;
        }
        s.file_bytes = gw_checkpoint_file_bytes(s.checkpoint);
        status = gw_checkpoint_container(s.checkpoint) == GW_CONTAINER_GGUF
                     ? take_gguf(&s, skip)
                     : gw_original_take_folder(&s);
    }
    if (status != GW_OK) {
        gw_original_close(&s);
        return status;
    }
    *out = s;
    return GW_OK;
}

void gw_original_close(gw_original *s) {
    gw_weights_free(s->weights);
    gw_checkpoint_free(s->checkpoint);
    gw_arena_free(s->arena);
    gw_bytes_free(&s->pairs);
    *s = (gw_original){0};
}

const gw_original_tensor *gw_original_find(const gw_original *s, const char *name) {
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->list[i].name, name) == 0) {
            return &s->list[i];
        }
    }
    return NULL;
}
