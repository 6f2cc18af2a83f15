/* core/model/lora.c - reads adapters: the settings and tensors of PEFT folders, GGUF adapters. What
 * could not be run is refused here by its name; whether the model has the layers is told in
 * lora_bank.c. */
#include "core/model/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/size.h"
#include "core/base/text.h"
#include "core/model/gguf.h"
#include "core/model/lora_parts.h"

/* ---- pairs ---------------------------------------------------------------------------------- */

/* The pair of a layer, new or begun by its other half. */
static gw_status pair_of(gw_lora *l, const char *module, size_t n, gw_lora_pair **out) {
    size_t at = l->n;
    char *name = gw_arena_copy(l->arena, module, n);
    gw_map_result added = name != NULL ? gw_map_add(l->names, name, n, l->n, &at) : GW_MAP_NOMEM;
    if (added == GW_MAP_NOMEM) {
        return gw_fail(GW_E_NOMEM, l->path, "no memory for the list of layers");
    }
    if (added == GW_MAP_ADDED) {
        l->pair[l->n++] = (gw_lora_pair){.module = name, .scale = 1.0f};
    }
    *out = &l->pair[at];
    return GW_OK;
}

gw_status gw_lora_add(gw_lora *l, const gw_stored *t, const char *module, size_t n, int is_b) {
    gw_lora_pair *pair = NULL;
    const gw_format *f = t->fmt < GW_FMT_COUNT ? gw_format_of(t->fmt) : NULL;
    if (f == NULL || t->packed != NULL || t->fmt == GW_FMT_ACT8 || t->fmt == GW_FMT_I32) {
        return gw_fail(GW_E_TYPE, l->path, "tensor %s is no matrix of an adapter", t->name);
    }
    if (t->n_dim != 2 && t->n_dim != 3) {
        return gw_fail(
            GW_E_UNSUPPORTED, l->path,
            "tensor %s has %d axes: only matrices, and those of experts together, are run", t->name,
            t->n_dim);
    }
    GW_TRY(pair_of(l, module, n, &pair));
    const gw_stored **half = is_b ? &pair->b : &pair->a;
    if (*half != NULL) {
        return gw_fail(GW_E_DUPLICATE, l->path, "tensors %s and %s are the same half of a layer",
                       (*half)->name, t->name);
    }
    *half = t;
    pair->name = pair->name == NULL || !is_b ? t->name : pair->name;
    return GW_OK;
}

static int64_t columns_of(const gw_stored *t) { return t->dim[t->n_dim - 1]; }

/* Ranks and experts as the shapes say, of a parameter with the rank that is there. */
static int read_shapes(gw_lora_pair *p) {
    const gw_stored *a = p->a, *b = p->b;
    if (p->parameter) {
        p->experts = a->n_dim == 2 && b->n_dim == 2 && p->rank > 0 && a->dim[0] == b->dim[1] &&
                             a->dim[0] % p->rank == 0 && a->dim[0] / p->rank <= INT32_MAX
                         ? (int)(a->dim[0] / p->rank)
                         : 0;
        if (p->experts == 1) { /* of two axes, a linear layer's weight */
            p->parameter = p->experts = 0;
            return 1;
        }
        return p->experts > 0;
    }
    int64_t rank = a->dim[a->n_dim - 2];
    int together = a->n_dim == 3;
    if (a->n_dim != b->n_dim || rank != columns_of(b) || rank < 1 || rank > GW_LORA_RANK_MOST ||
        (together && (a->dim[0] != b->dim[0] || a->dim[0] < 1 || a->dim[0] > INT32_MAX))) {
        return 0;
    }
    p->rank = (int)rank;
    p->experts = together ? (int)a->dim[0] : 0;
    return 1;
}

static gw_status check_pair(const gw_lora *l, gw_lora_pair *p) {
    if (p->a == NULL || p->b == NULL) {
        return gw_fail(GW_E_METADATA, l->path, "of layer %.160s only %s is there", p->module,
                       p->a != NULL ? "A" : "B");
    }
    if (!read_shapes(p) || p->rank > GW_LORA_RANK_MOST) {
        return gw_fail(GW_E_METADATA, l->path,
                       "tensors of layer %.160s are [%lld, %lld] and [%lld, %lld]; expected [r, k] "
                       "and [m, r], for each expert where they are many, with a rank r of 1 to %d",
                       p->module, (long long)p->a->dim[p->a->n_dim - 2],
                       (long long)columns_of(p->a), (long long)p->b->dim[p->b->n_dim - 2],
                       (long long)columns_of(p->b), (int)GW_LORA_RANK_MOST);
    }
    for (int i = 0; i < 2; i++) {
        const gw_stored *t = i == 0 ? p->a : p->b;
        uint64_t rows = (uint64_t)t->dim[0];
        size_t bytes = 0;
        if (t->n_dim == 3 && !gw_size_mul(rows, (uint64_t)t->dim[1], &rows)) {
            return gw_fail(GW_E_METADATA, l->path, "tensor %s is too large", t->name);
        }
        GW_TRY(gw_matrix_bytes(t->fmt, rows, (uint64_t)columns_of(t), &bytes));
        if (bytes != t->bytes) {
            return gw_fail(GW_E_METADATA, l->path, "tensor %s holds %zu bytes, not %zu", t->name,
                           t->bytes, bytes);
        }
    }
    return isfinite(p->scale) ? GW_OK
                              : gw_fail(GW_E_METADATA, l->path,
                                        "the scale of layer %.160s is not finite", p->module);
}

static void add_digest(gw_lora *l, const void *data, size_t n) {
    const uint64_t key[2] = {l->digest, 0x6c6f7261u};
    l->digest = gw_hash_bytes(key, data, n);
}

static gw_status finish(gw_lora *l) {
    if (l->n == 0) {
        return gw_fail(GW_E_METADATA, l->path, "holds no pair of LoRA matrices");
    }
    for (size_t i = 0; i < l->n; i++) {
        gw_lora_pair *p = &l->pair[i];
        GW_TRY(check_pair(l, p));
        l->rank = p->rank > l->rank ? p->rank : l->rank;
        add_digest(l, p->module, strlen(p->module));
        add_digest(l, &p->scale, sizeof p->scale);
        add_digest(l, p->a->data, p->a->bytes);
        add_digest(l, p->b->data, p->b->bytes);
    }
    return GW_OK;
}

gw_status gw_lora_room(gw_lora *l, size_t tensors) {
    l->pair = calloc(tensors + 1, sizeof *l->pair);
    l->names = gw_map_new();
    return l->pair != NULL && l->names != NULL
               ? GW_OK
               : gw_fail(GW_E_NOMEM, l->path, "no memory for %zu tensors", tensors);
}

/* ---- GGUF ----------------------------------------------------------------------------------- */

static gw_status expect_text(const gw_lora *l, const char *key, const char *want) {
    gw_gguf_view view = {"", 0};
    GW_TRY(gw_gguf_text(l->gguf, key, &view, NULL));
    if (view.bytes != strlen(want) || memcmp(view.text, want, view.bytes) != 0) {
        return gw_fail(GW_E_UNSUPPORTED, l->path, "%s is '%.*s'; a LoRA adapter has '%s' there",
                       key, view.bytes < 40 ? (int)view.bytes : 40, view.text, want);
    }
    return GW_OK;
}

/* Tensors are named as the model's, with .lora_a or .lora_b at the end. */
static gw_status add_gguf(gw_lora *l, const gw_stored *t, double alpha) {
    static const char weight[] = ".weight";
    int is_b = gw_text_ends(t->name, ".lora_b");
    size_t n = strlen(t->name), tail = sizeof ".lora_a" - 1, w = sizeof weight - 1;
    if (!is_b && !gw_text_ends(t->name, ".lora_a")) {
        return gw_fail(GW_E_UNSUPPORTED, l->path,
                       "tensor %s is no LoRA matrix (NAME.lora_a, NAME.lora_b)", t->name);
    }
    n -= tail;
    n -= n > w && memcmp(t->name + n - w, weight, w) == 0 ? w : 0;
    GW_TRY(gw_lora_add(l, t, t->name, n, is_b));
    int64_t rank = t->dim[t->n_dim - 2];
    if (!is_b && alpha != 0.0 && rank > 0) {
        size_t at = 0;
        (void)gw_map_find(l->names, t->name, n, &at);
        l->pair[at].scale = (float)(alpha / (double)rank);
    }
    return GW_OK;
}

static gw_status read_gguf(gw_lora *l) {
    gw_gguf_view name = {"", 0};
    gw_gguf_array alora;
    double alpha = 0.0;
    int found = 0;
    GW_TRY(gw_file_open(l->path, l->path, &l->file));
    l->has_file = 1;
    GW_TRY(gw_gguf_parse(l->path, l->file.data, l->file.size, l->file.fd, &l->gguf));
    GW_TRY(expect_text(l, "general.type", "adapter"));
    GW_TRY(expect_text(l, "adapter.type", "lora"));
    GW_TRY(gw_gguf_real(l->gguf, "adapter.lora.alpha", &alpha, NULL));
    GW_TRY(gw_gguf_list(l->gguf, "adapter.alora.invocation_tokens", GW_GGUF_U32, &alora, &found));
    if (found) {
        return gw_fail(GW_E_UNSUPPORTED, l->path,
                       "is an activated LoRA (aLoRA), which changes only what stands after its "
                       "invocation tokens; such adapters are not run");
    }
    GW_TRY(gw_gguf_text(l->gguf, "general.architecture", &name, NULL));
    snprintf(l->architecture, sizeof l->architecture, "%.*s",
             name.bytes < 60 ? (int)name.bytes : 60, name.text);
    GW_TRY(gw_lora_room(l, gw_gguf_tensors(l->gguf)));
    for (size_t i = 0; i < gw_gguf_tensors(l->gguf); i++) {
        GW_TRY(add_gguf(l, gw_gguf_tensor(l->gguf, i), alpha));
    }
    return GW_OK;
}

/* ---- any ------------------------------------------------------------------------------------ */

gw_status gw_lora_open(const char *path, gw_lora **out) {
    gw_path_kind kind = gw_path_look(path);
    if (kind == GW_PATH_NONE) {
        return gw_fail(GW_E_IO, path, "no such file or folder");
    }
    gw_lora *l = calloc(1, sizeof *l);
    gw_status status;
    if (l == NULL || (l->arena = gw_arena_new()) == NULL ||
        (l->path = gw_arena_copy(l->arena, path, strlen(path))) == NULL) {
        gw_lora_free(l);
        return gw_fail(GW_E_NOMEM, path, "no memory for the adapter");
    }
    GW_TRY_DONE(kind == GW_PATH_FOLDER ? gw_lora_read_folder(l) : read_gguf(l));
    GW_TRY_DONE(finish(l));
    *out = l;
    return GW_OK;
done:
    gw_lora_free(l);
    return status;
}

void gw_lora_free(gw_lora *l) {
    if (l == NULL) {
        return;
    }
    gw_gguf_free(l->gguf);
    if (l->has_file) {
        gw_file_close(&l->file);
    }
    gw_checkpoint_free(l->tensors);
    gw_map_free(l->names);
    gw_arena_free(l->arena);
    free(l->pair);
    free(l);
}

int gw_lora_is_folder(const gw_lora *l) { return l->tensors != NULL; }
const char *gw_lora_path(const gw_lora *l) { return l->path; }
const char *gw_lora_architecture(const gw_lora *l) { return l->architecture; }
size_t gw_lora_count(const gw_lora *l) { return l->n; }
const gw_lora_pair *gw_lora_at(const gw_lora *l, size_t i) { return &l->pair[i]; }
int gw_lora_rank(const gw_lora *l) { return l->rank; }
uint64_t gw_lora_digest(const gw_lora *l) { return l->digest; }

int gw_lora_find(const gw_lora *l, const char *module) {
    size_t at = 0;
    return gw_map_find(l->names, module, strlen(module), &at) ? (int)at : -1;
}
