/* core/engine/run/inspect.c - what is in a model's files, and the checks of opening without
 * loading. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/describe.h"
#include "core/model/weights.h"
#include "core/text/chat/chat.h"

struct gw_inspection {
    gw_checkpoint *checkpoint; /* NULL: not even the container is sound */
    gw_meta *meta;
    size_t n_meta;
    gw_status verdict;
    char *text; /* of the verdict; NULL: valid */
    const char *container;
    char chat[32], format[32], note[256], (*formats)[16];
    int tower; /* it is one, and no model */
    gw_model_info info;
};

/* ---- values -------------------------------------------------------------------------------- */

/* Row by row; the first number that is none is named. */
static gw_status check_values(const gw_stored *t, const char *where, const volatile int *cancel) {
    const gw_format *f = gw_format_of(t->fmt);
    size_t cols = t->n_dim > 0 ? (size_t)t->dim[t->n_dim - 1] : 1, row_bytes = 0;
    if (f->decode == NULL || cols == 0) {
        return GW_OK;
    }
    GW_TRY(gw_row_bytes(t->fmt, cols, &row_bytes));
    float *x = malloc(cols * sizeof *x);
    void *raw = malloc(row_bytes + 1); /* stored at any alignment */
    gw_status status =
        x != NULL && raw != NULL ? GW_OK : gw_fail(GW_E_NOMEM, where, "no memory for a row");
    for (size_t at = 0; at + row_bytes <= t->bytes && status == GW_OK; at += row_bytes) {
        if (t->packed != NULL) {
            status = gw_stored_read(t, at, row_bytes, raw);
        } else {
            memcpy(raw, (const char *)t->data + at, row_bytes);
        }
        f->decode(x, raw, cols);
        for (size_t i = 0; i < cols && status == GW_OK; i++) {
            if (!isfinite(x[i])) {
                status = gw_fail(GW_E_NUMERIC, where, "tensor %s has %g in row %zu, column %zu",
                                 t->name, (double)x[i], at / row_bytes, i);
            }
        }
        if (cancel != NULL && *cancel) {
            status = gw_fail(GW_E_CANCELLED, where, "looking at the weights was cancelled");
        }
    }
    free(x);
    free(raw);
    return status;
}

static gw_status check_all_values(const gw_checkpoint *c, const volatile int *cancel) {
    for (size_t i = 0; i < gw_checkpoint_count(c); i++) {
        GW_TRY(check_values(gw_checkpoint_at(c, i), gw_checkpoint_path(c), cancel));
    }
    return gw_checkpoint_unchanged(c);
}

/* ---- the verdict --------------------------------------------------------------------------- */

static void find_chat(gw_inspection *v, const gw_vocab *vocab, const gw_tokenizer *t) {
    const char *text = NULL;
    size_t bytes = 0;
    gw_chat *chat = NULL;
    if (gw_checkpoint_chat_template(v->checkpoint, NULL, &text, &bytes) == GW_OK &&
        gw_chat_bind(vocab, t, NULL, text, bytes, &chat) == GW_OK) {
        snprintf(v->chat, sizeof v->chat, "%s", gw_chat_name(chat));
        gw_chat_free(chat);
    } else if (text != NULL) {
        snprintf(v->chat, sizeof v->chat, "not well formed");
    }
}

/* Does the checkpoint hold a layer that predicts one token more: are there tensors for it? */
static int32_t count_predictors(const char *path, const void *memory, size_t bytes) {
    const gw_spec_given predicts = {.predicts = 1};
    gw_checkpoint *c = NULL;
    gw_weights *weights = NULL;
    int32_t n = 0;
    if (gw_checkpoint_open_as(path, memory, bytes, &predicts, &c) == GW_OK) {
        gw_weights_options options = {.where = gw_checkpoint_path(c)};
        gw_status status = gw_weights_open(c, gw_checkpoint_blueprint(c), &options, &weights);
        n = status == GW_OK; /* Nemotron 3 keeps the two halves of one as layers */
    }
    gw_weights_free(weights);
    gw_checkpoint_free(c);
    return n;
}

/* Does the file hold a vision tower (mmproj) instead of a model? */
static int is_tower(const char *path, const void *memory, size_t bytes) {
    const gw_spec_given bare = {.sees = 1, .bare = 1};
    gw_checkpoint *c = NULL;
    int is = gw_checkpoint_open_as(path, memory, bytes, &bare, &c) == GW_OK &&
             gw_checkpoint_container(c) == GW_CONTAINER_GGUF &&
             strcmp(gw_checkpoint_architecture(c), "clip") == 0;
    gw_checkpoint_free(c);
    return is;
}

/* As opening goes: tokenizer, family, tensors. */
static gw_status check(gw_inspection *v, int flags, const volatile int *cancel) {
    const gw_vocab *vocab = NULL;
    const char *where = gw_checkpoint_path(v->checkpoint);
    const int drafts = gw_checkpoint_drafts(v->checkpoint); /* what it has of a vocabulary is its
                                                             * target's */
    GW_TRY(drafts ? GW_OK : gw_checkpoint_vocab(v->checkpoint, &vocab));
    if (vocab != NULL) {
        gw_tokenizer *t = NULL;
        GW_TRY(gw_tokenizer_new(vocab, &t));
        find_chat(v, vocab, t);
        gw_tokenizer_free(t);
    }
    gw_weights *weights = NULL;
    gw_weights_options options = {.where = where};
    gw_status status =
        gw_weights_open(v->checkpoint, gw_checkpoint_blueprint(v->checkpoint), &options, &weights);
    gw_weights_free(weights);
    if (status == GW_E_METADATA && drafts && !gw_checkpoint_embeds(v->checkpoint)) {
        status = GW_OK; /* the embedding is its target's; with it the rest is looked at */
    }
    if (status == GW_OK && (flags & GW_INSPECT_VALUES)) {
        status = check_all_values(v->checkpoint, cancel);
    }
    return status;
}

/* ---- description --------------------------------------------------------------------------- */

/* A tower has no vocabulary, no context and no cache. */
static void note_tower(gw_inspection *v) {
    const gw_blueprint *bp = gw_checkpoint_blueprint(v->checkpoint);
    const gw_spec *spec = bp != NULL ? gw_spec_named(bp->family, strlen(bp->family)) : NULL;
    char whose[128] = "";
    if (spec != NULL) {
        gw_spec_words(spec, "decoders", whose, sizeof whose);
    }
    snprintf(v->note, sizeof v->note,
             "a vision tower (mmproj), no model: --mmproj gives it to a model%s%s",
             whose[0] != '\0' ? " of the families " : "", whose);
    v->info.n_vocab = v->info.n_ctx_train = 0;
    v->info.kv_bytes_per_token = 0;
}

static void fill_info(gw_inspection *v) {
    gw_model_info *info = &v->info;
    const gw_hparams *hp = gw_checkpoint_hparams(v->checkpoint);
    uint64_t bytes[GW_FMT_COUNT];
    gw_fmt best = GW_FMT_F32;
    gw_describe_files(v->checkpoint, info, bytes);
    for (int fmt = 0; fmt < GW_FMT_COUNT; fmt++) {
        best = bytes[fmt] > bytes[best] ? (gw_fmt)fmt : best;
    }
    if (info->weight_bytes > 0) {
        gw_describe_format(best, v->format, sizeof v->format);
    }
    info->name = gw_checkpoint_name(v->checkpoint);
    info->architecture = gw_checkpoint_architecture(v->checkpoint);
    if (hp != NULL) {
        gw_describe_shape(hp, info);
        gw_describe_head(v->checkpoint, info);
    }
    if (v->tower) {
        note_tower(v);
    }
}

static gw_status describe(gw_inspection *v) {
    fill_info(v);
    v->container = gw_checkpoint_describe(v->checkpoint);
    v->formats = calloc(gw_checkpoint_count(v->checkpoint) + 1, sizeof *v->formats);
    if (v->container == NULL || v->formats == NULL) {
        return gw_fail(GW_E_NOMEM, gw_checkpoint_path(v->checkpoint), "no memory");
    }
    for (size_t i = 0; i < gw_checkpoint_count(v->checkpoint); i++) {
        const gw_stored *t = gw_checkpoint_at(v->checkpoint, i);
        gw_describe_format(t->fmt, v->formats[i], sizeof v->formats[i]);
    }
    return gw_checkpoint_meta(v->checkpoint, &v->meta, &v->n_meta);
}

/* ---- open and free -------------------------------------------------------------------------- */

static gw_status keep_verdict(gw_inspection *v, gw_status status) {
    if (status == GW_E_NOMEM || status == GW_E_ARGUMENT || status == GW_E_CANCELLED) {
        return status;
    }
    v->verdict = status;
    v->text = status != GW_OK ? strdup(gw_error_text()) : NULL;
    return status != GW_OK && v->text == NULL ? GW_E_NOMEM : GW_OK;
}

/* What a model is, or a vision tower. */
static gw_status open_checkpoint(gw_inspection *v, const char *path, const void *memory,
                                 size_t bytes) {
    const gw_spec_given sees = {.sees = 1};
    gw_status status = gw_checkpoint_open(path, memory, bytes, &v->checkpoint);
    if (status != GW_E_METADATA || !is_tower(path, memory, bytes)) {
        return status;
    }
    v->tower = 1;
    return gw_checkpoint_open_as(path, memory, bytes, &sees, &v->checkpoint);
}

/* Perhaps the container is sound and what it says is not. */
static void open_bare(gw_inspection *v, const char *path, const void *memory, size_t bytes) {
    const gw_spec_given bare = {.sees = 1, .bare = 1};
    gw_status status = gw_checkpoint_open_as(path, memory, bytes, &bare, &v->checkpoint);
    if (status != GW_OK && !v->tower) { /* of a folder perhaps the words alone are sound */
        gw_checkpoint_open_vocab(path, memory, bytes, &v->checkpoint);
    }
}

static gw_status look(gw_inspection *v, const char *path, const void *memory, size_t bytes,
                      int flags, const volatile int *cancel) {
    int weights = path != NULL && gw_is_weights_file(path); /* no model, but perhaps a sound file */
    gw_status status = weights ? gw_checkpoint_open_weights(path, &v->checkpoint)
                               : open_checkpoint(v, path, memory, bytes);
    if (status == GW_OK && !weights) {
        status = check(v, flags, cancel);
    } else if (status == GW_OK && (flags & GW_INSPECT_VALUES)) {
        status = check_all_values(v->checkpoint, cancel);
    }
    GW_TRY(keep_verdict(v, status));
    if (v->checkpoint == NULL && !weights) {
        open_bare(v, path, memory, bytes);
    }
    GW_TRY(v->checkpoint != NULL ? describe(v) : GW_OK);
    if (v->verdict == GW_OK && !weights && !v->tower && v->info.target_width == 0) {
        v->info.n_predictors = count_predictors(path, memory, bytes);
    }
    return GW_OK;
}

gw_status gw_inspect(const char *path, const void *memory, size_t bytes, int flags,
                     const volatile int *cancel, gw_inspection **out) {
    gw_inspection *v = calloc(1, sizeof *v);
    if (v == NULL) {
        return gw_fail(GW_E_NOMEM, path, "no memory");
    }
    v->container = "";
    v->info = (gw_model_info){.name = "", .architecture = "", .format = v->format, .device = "",
                              .note = v->note};
    gw_status status = look(v, path, memory, bytes, flags, cancel);
    if (status != GW_OK) {
        gw_inspection_free(v);
        return status;
    }
    *out = v;
    return GW_OK;
}

void gw_inspection_free(gw_inspection *inspection) {
    if (inspection != NULL) {
        gw_checkpoint_free(inspection->checkpoint);
        free(inspection->meta);
        free(inspection->formats);
        free(inspection->text);
        free(inspection);
    }
}

gw_status gw_inspection_verdict(const gw_inspection *inspection, const char **text) {
    *text = inspection->text;
    return inspection->verdict;
}

const char *gw_inspection_container(const gw_inspection *inspection) {
    return inspection->container;
}

const char *gw_inspection_chat(const gw_inspection *inspection) { return inspection->chat; }

void gw_inspection_describe(const gw_inspection *inspection, gw_model_info *out) {
    *out = inspection->info;
}

size_t gw_inspection_meta(const gw_inspection *inspection, gw_meta *rows, size_t capacity) {
    for (size_t i = 0; i < inspection->n_meta && i < capacity; i++) {
        rows[i] = inspection->meta[i];
    }
    return inspection->n_meta;
}

size_t gw_inspection_tensors(const gw_inspection *inspection, gw_tensor_info *rows,
                             size_t capacity) {
    size_t n = inspection->checkpoint != NULL ? gw_checkpoint_count(inspection->checkpoint) : 0;
    for (size_t i = 0; i < n && i < capacity; i++) {
        const gw_stored *t = gw_checkpoint_at(inspection->checkpoint, i);
        rows[i] = (gw_tensor_info){.name = t->name,
                                   .format = inspection->formats[i],
                                   .n_dim = t->n_dim,
                                   .bytes = t->bytes};
        memcpy(rows[i].dim, t->dim, sizeof rows[i].dim);
    }
    return n;
}
