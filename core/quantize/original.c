/* core/quantize/original.c - a GGUF file as a source; what both containers share. */
#include "core/quantize/original.h"

#include <stdio.h>
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

/* ---- layers left out ------------------------------------------------------------------------ */

/* "3,7": place [layers] becomes the new number of each layer, -1 of those named. */
static gw_status read_prune(const char *list, int layers, int *place, int *out) {
    const char *at = list;
    *out = 0;
    for (int comma = 1; comma; at++) {
        char *end = NULL;
        long l = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (l < 0 || (*end != '\0' && *end != ',')) {
            return gw_fail(GW_E_ARGUMENT, "--prune-layers", "'%.60s' is no list of layers as 20,21",
                           list);
        }
        if (l >= layers) {
            return gw_fail(GW_E_ARGUMENT, "--prune-layers",
                           "there is no layer %ld: the model has 0 to %d", l, layers - 1);
        }
        *out += place[l] == 0;
        place[l] = -1;
        at = end;
        comma = *at == ',';
    }
    if (*out == layers) {
        return gw_fail(GW_E_ARGUMENT, "--prune-layers", "no layer would be left");
    }
    for (int l = 0, next = 0; l < layers; l++) {
        place[l] = place[l] < 0 ? -1 : next++;
    }
    return GW_OK;
}

/* A key of the architecture's own; its rest. */
static const char *own_key(const gw_original *s, const gw_gguf_pair *p, size_t *bytes) {
    size_t n = strlen(s->architecture);
    if (p->key.bytes <= n + 1 || memcmp(p->key.text, s->architecture, n) != 0 ||
        p->key.text[n] != '.') {
        return NULL;
    }
    *bytes = (size_t)p->key.bytes - n - 1;
    return p->key.text + n + 1;
}

/* The number of layers, and what has a value for each of them. */
static void copy_pruned(gw_original *s, const gw_gguf_pair *p, const int *place) {
    size_t bytes = 0, left = (size_t)(s->layers - s->pruned);
    const char *rest = own_key(s, p, &bytes);
    gw_bytes *b = &s->pairs;
    if (rest != NULL && bytes == 11 && memcmp(rest, "block_count", bytes) == 0) {
        char key[128];
        snprintf(key, sizeof key, "%s.block_count", s->architecture);
        gw_pair_u32(b, key, (uint32_t)left);
    } else if (rest != NULL && p->is_array && p->count == (uint64_t)s->layers &&
               p->type != GW_GGUF_TEXT) {
        size_t each = (size_t)(p->value.size / p->count);
        gw_gguf_pair cut = *p;
        cut.count = left;
        cut.value.size = 0;
        gw_pair_copy(b, &cut);
        for (int l = 0; l < s->layers; l++) {
            if (place[l] >= 0) {
                gw_bytes_put(b, p->value.data + each * (size_t)l, each);
            }
        }
    } else {
        gw_pair_copy(b, p);
    }
}

/* The name of a tensor of the file; NULL: it is of a layer that is left out. */
static const char *name_of(const gw_original *s, const char *name, const int *place) {
    char *end = NULL, text[128];
    long l = strncmp(name, "blk.", 4) == 0 ? strtol(name + 4, &end, 10) : -1;
    if (l < 0 || l >= s->layers || s->pruned == 0 || *end != '.' || place[l] == l) {
        return name;
    }
    if (place[l] < 0) {
        return NULL;
    }
    int n = snprintf(text, sizeof text, "blk.%d%s", place[l], end);
    return n < (int)sizeof text ? gw_arena_copy(s->arena, text, (size_t)n) : name;
}

static gw_status take_gguf(gw_original *s, const char *const *skip, const char *prune) {
    const gw_gguf *g = gw_checkpoint_gguf(s->checkpoint, 0);
    int *place = gw_arena_array(s->arena, (size_t)s->layers + 1, sizeof *place);
    size_t count = gw_checkpoint_count(s->checkpoint);
    s->list = gw_arena_array(s->arena, count + 1, sizeof *s->list);
    if (s->list == NULL || place == NULL) {
        return gw_fail(GW_E_NOMEM, gw_checkpoint_path(s->checkpoint), "no memory for its tensors");
    }
    if (prune != NULL) {
        GW_TRY(read_prune(prune, s->layers, place, &s->pruned));
    }
    for (size_t i = 0; i < gw_gguf_pairs(g); i++) {
        gw_gguf_pair p = gw_gguf_pair_at(g, i);
        if (!is_skipped(&p, skip)) {
            if (s->pruned > 0) {
                copy_pruned(s, &p, place);
            } else {
                gw_pair_copy(&s->pairs, &p);
            }
        }
    }
    if (s->pairs.failed) {
        return gw_fail(GW_E_NOMEM, gw_checkpoint_path(s->checkpoint), "no memory for its metadata");
    }
    for (size_t i = 0; i < count; i++) {
        const gw_stored *t = gw_checkpoint_at(s->checkpoint, i);
        const char *name = name_of(s, t->name, place);
        if (name == NULL) {
            continue;
        }
        gw_original_tensor *to = &s->list[s->n++];
        *to = (gw_original_tensor){.name = name,
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

gw_status gw_original_open(const char *path, const char *const *skip, const char *prune,
                           gw_original *out) {
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
        if (gw_checkpoint_container(s.checkpoint) == GW_CONTAINER_GGUF) {
            status = take_gguf(&s, skip, prune);
        } else if (prune != NULL) {
            status = gw_fail(GW_E_UNSUPPORTED, path,
                             "--prune-layers is for GGUF files: make one of the folder first");
        } else {
            status = gw_original_take_folder(&s);
        }
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
