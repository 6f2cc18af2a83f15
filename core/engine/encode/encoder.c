/* core/engine/encode/encoder.c - vectors, hidden states and scores of texts. */
#include "core/engine/encode/encoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/options.h"
#include "core/engine/run/kv.h"

enum { ROWS_DEFAULT = 512, HOME = 0 };

/* Does a card compute any of it? */
static int uses_card(const gw_encoder *e) {
    size_t n = (size_t)(e->model->hp.n_layers + 1) * (size_t)e->bp->n_blocks;
    int any = 0;
    for (size_t i = 0; i < n; i++) {
        any |= e->where[i] != HOME;
    }
    return any;
}

/* ---- what the model is ---------------------------------------------------------------------- */

static int holds_keys(const gw_encoder *e, int layer) {
    for (int b = 0; b < e->bp->n_blocks; b++) {
        const gw_spec_block *block = &e->bp->block[b];
        if (block->kind == GW_BLOCK_ROPE_KV && (block->flags & GW_FLAG_KEYS) &&
            gw_block_runs(block, &e->model->hp, layer)) {
            return 1;
        }
    }
    return 0;
}

/* Rows of the last matrix of the section score; 0 where one of its matrices is absent. */
static int32_t count_labels(const gw_encoder *e) {
    int64_t labels = 0;
    for (int b = 0; b < e->bp->n_blocks; b++) {
        const gw_spec_block *block = &e->bp->block[b];
        int n = block->section == GW_SECTION_SCORE ? gw_block_matrices(block) : 0;
        for (int k = 0; k < n; k++) {
            const gw_tensor *w = gw_weights_get(e->model->weights, block->weight[k], 0, 0);
            if (w == NULL) {
                return 0;
            }
            labels = w->dim[0];
        }
    }
    return (int32_t)labels;
}

/* Kinds of tokens: rows of the table that the embedding adds by type. */
static int32_t count_types(const gw_encoder *e) {
    for (int b = 0; b < e->bp->n_blocks; b++) {
        const gw_spec_block *block = &e->bp->block[b];
        if (block->kind == GW_BLOCK_EMBED && block->weight[2] >= 0) {
            const gw_tensor *w = gw_weights_get(e->model->weights, block->weight[2], 0, 0);
            return w != NULL ? (int32_t)w->dim[0] : 1;
        }
    }
    return 1;
}

static gw_pooling choose_pooling(const gw_encoder *e, gw_pooling asked) {
    static const gw_pooling stored[] = {GW_POOLING_NONE, GW_POOLING_MEAN, GW_POOLING_CLS,
                                        GW_POOLING_LAST, GW_POOLING_CLS};
    if (asked != GW_POOLING_MODEL) {
        return asked;
    }
    if (e->sentence.pooling != GW_POOLING_MODEL) {
        return e->sentence.pooling;
    }
    double kind = gw_spec_named_number(e->bp, &e->model->hp, "pooling", e->info.causal ? 3.0 : 1.0);
    int known = kind >= 0.0 && kind < (double)(sizeof stored / sizeof stored[0]);
    return known ? stored[(int)kind] : GW_POOLING_MEAN;
}

/* Blocks that keep a state beside the cache, and values for all layers, are the sessions' alone. */
static gw_status check_blocks(const gw_encoder *e) {
    const gw_hparams *hp = &e->model->hp;
    int more = 0;
    for (int v = 0; v < e->bp->n_values; v++) {
        more |= e->bp->width[v].n > 0;
    }
    for (int at = 0; at < hp->n_layers * e->bp->n_blocks; at++) {
        int layer = at / e->bp->n_blocks, block = at % e->bp->n_blocks;
        more |= gw_block_runs(&e->bp->block[block], hp, layer) &&
                gw_block_state(e->bp, hp, layer, block) > 0;
    }
    return more ? gw_fail(GW_E_UNSUPPORTED, e->model->name,
                          "vectors of the family %s, whose layers keep a state or share inputs, "
                          "are not known yet",
                          hp->family)
                : GW_OK;
}

static gw_status describe(gw_encoder *e, const gw_encoder_options *o) {
    const gw_hparams *hp = &e->model->hp;
    gw_encoder_info *info = &e->info;
    int32_t most = hp->n_ctx < GW_ROWS_MAX ? hp->n_ctx : GW_ROWS_MAX;
    most = e->sentence.n_ctx > 0 && e->sentence.n_ctx < most ? e->sentence.n_ctx : most;
    e->layers = hp->n_source > 0 ? hp->n_source : hp->n_layers;
    while (e->layers < hp->n_layers && e->layers > 1 && holds_keys(e, e->layers - 1)) {
        e->layers--;
    }
    info->causal = hp->layer[0].causal;
    info->hidden = hp->d_model;
    info->width = hp->d_model;
    for (int i = 0; i < e->sentence.n_dense; i++) {
        const gw_dense *d = &e->sentence.dense[i];
        if (d->in != info->width) {
            return gw_fail(GW_E_METADATA, e->model->name,
                           "a dense layer takes %d values, the model gives %d", d->in, info->width);
        }
        info->width = d->out;
    }
    if (o->dimensions < 0 || o->dimensions > info->width) {
        return gw_fail(GW_E_ARGUMENT, "dimensions", "%d is outside 0..%d", o->dimensions,
                       info->width);
    }
    info->width = o->dimensions > 0 ? o->dimensions : info->width;
    if (o->n_ctx < 0 || o->n_ctx > GW_ROWS_MAX || o->n_ctx > hp->n_ctx) {
        return gw_fail(GW_E_ARGUMENT, "context", "%d is outside 0..%d", o->n_ctx,
                       hp->n_ctx < GW_ROWS_MAX ? hp->n_ctx : GW_ROWS_MAX);
    }
    info->n_ctx = o->n_ctx > 0 ? o->n_ctx : most;
    info->labels = count_labels(e);
    info->types = count_types(e);
    info->pooling = choose_pooling(e, o->pooling);
    info->normalize = o->normalize != 0   ? o->normalize > 0
                      : e->sentence.found ? e->sentence.normalize
                                          : 1;
    return GW_OK;
}

/* ---- life ----------------------------------------------------------------------------------- */

static gw_status read_options(gw_encoder *e, const gw_encoder_options *o) {
    if (o->rows < 0 || o->rows > GW_ROWS_MAX) {
        return gw_fail(GW_E_ARGUMENT, "rows", "%d is outside 1..%d", o->rows, GW_ROWS_MAX);
    }
    if ((int)o->pooling < 0 || o->pooling > GW_POOLING_MEAN) {
        return gw_fail(GW_E_ARGUMENT, "pooling", "%d is no way to pool", (int)o->pooling);
    }
    e->kv_auto = o->kv_type == NULL || strcmp(o->kv_type, "auto") == 0;
    GW_TRY(gw_kv_format(e->kv_auto ? "f32" : o->kv_type, &e->kv_fmt));
    e->rows = o->rows;
    e->cancel = o->cancel;
    e->progress = o->progress;
    e->progress_user = o->progress_user;
    return GW_OK;
}

static gw_status make(gw_encoder *e, const gw_encoder_options *o) {
    gw_model *m = e->model;
    const gw_hparams *hp = &m->hp;
    size_t per = GW_ROWS_MAX / GW_PAGE, widest = (size_t)hp->d_model;
    GW_TRY(read_options(e, o));
    GW_TRY(check_blocks(e));
    GW_TRY(gw_checkpoint_container(m->checkpoint) == GW_CONTAINER_HF
               ? gw_sentence_read(gw_checkpoint_path(m->checkpoint), &e->sentence)
               : GW_OK);
    GW_TRY(describe(e, o));
    for (int i = 0; i < e->sentence.n_dense; i++) {
        size_t out = (size_t)e->sentence.dense[i].out;
        widest = out > widest ? out : widest;
    }
    if (m->place.grouped) {
        return gw_fail(GW_E_UNSUPPORTED, "split-mode",
                       "vectors of texts are made on whole layers: use --split-mode layer");
    }
    e->where = calloc((size_t)(hp->n_layers + 1) * (size_t)e->bp->n_blocks, sizeof *e->where);
    e->pages = calloc(GW_PASS_TEXTS * per, sizeof *e->pages);
    e->room[0] = malloc(widest * sizeof(float));
    e->room[1] = malloc(widest * sizeof(float));
    if (e->where == NULL || e->pages == NULL || e->room[0] == NULL || e->room[1] == NULL) {
        return gw_fail(GW_E_NOMEM, "encoder", "no memory for %d layers", hp->n_layers);
    }
    GW_TRY(gw_place_session(&m->place, m->weights, hp, e->kv_fmt, e->where));
    e->rows = e->rows > 0 ? e->rows : uses_card(e) ? GW_ROWS_MAX : ROWS_DEFAULT;
    return gw_tables_new(m->place.devices, m->place.n_devices, e->bp, hp, e->info.n_ctx, 0,
                         &e->tables);
}

gw_status gw_encoder_new_sized(gw_model *model, const gw_encoder_options *given, size_t size,
                               gw_encoder **out) {
    gw_encoder_options own = {.n_ctx = 0};
    if (given != NULL) {
        GW_TRY(gw_options_take(&own, sizeof own, given, size, "encoder"));
    }
    if (model->weights == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, model->name, "only the vocabulary of this model is open");
    }
    gw_encoder *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return gw_fail(GW_E_NOMEM, "encoder", "no memory for an encoder");
    }
    e->model = model;
    e->bp = gw_weights_blueprint(model->weights);
    gw_status status = make(e, &own);
    if (status != GW_OK) {
        gw_encoder_free(e);
        return status;
    }
    *out = e;
    return GW_OK;
}

void gw_encoder_free(gw_encoder *e) {
    if (e == NULL) {
        return;
    }
    for (int i = 0; i < GW_PURPOSES * GW_PASS_SIZES; i++) {
        gw_encoder_pass_free(e, &e->pass[i / GW_PASS_SIZES][i % GW_PASS_SIZES]);
    }
    gw_tables_free(&e->tables);
    gw_sentence_free(&e->sentence);
    free(e->where);
    free(e->pages);
    free(e->room[0]);
    free(e->room[1]);
    free(e);
}

void gw_encoder_describe(const gw_encoder *encoder, gw_encoder_info *out) { *out = encoder->info; }

const char *gw_encoder_prompt(const gw_encoder *e, const char *name) {
    const char *text = NULL;
    if (name == NULL && e->sentence.standard[0] == '\0') {
        return "";
    }
    text = json_string_value(
        json_object_get(e->sentence.prompts, name != NULL ? name : e->sentence.standard));
    return text != NULL ? text : name == NULL ? "" : NULL;
}

/* ---- texts ---------------------------------------------------------------------------------- */

static gw_status check_texts(const gw_encoder *e, const gw_encoder_text *texts, size_t n) {
    for (size_t t = 0; t < n; t++) {
        const gw_encoder_text *x = &texts[t];
        if (x->n == 0) {
            return gw_fail(GW_E_ARGUMENT, "texts", "text %zu has no tokens", t + 1);
        }
        if (x->n > (size_t)e->info.n_ctx) {
            return gw_fail(GW_E_CONTEXT, "texts", "text %zu has %zu tokens, at most %d fit", t + 1,
                           x->n, e->info.n_ctx);
        }
        for (size_t i = 0; i < x->n; i++) {
            int32_t type = x->types != NULL ? x->types[i] : 0;
            if (x->ids[i] < 0 || x->ids[i] >= e->model->hp.n_vocab) {
                return gw_fail(GW_E_ARGUMENT, "texts", "token %d is outside 0..%d", x->ids[i],
                               e->model->hp.n_vocab - 1);
            }
            if (type < 0 || type >= e->info.types) {
                return gw_fail(GW_E_ARGUMENT, "texts", "token type %d is outside 0..%d", type,
                               e->info.types - 1);
            }
        }
    }
    return GW_OK;
}

typedef struct queued {
    const gw_encoder_text *text;
    size_t index;
} queued;

static int by_length(const void *a, const void *b) {
    const queued *x = a, *y = b;
    return x->text->n != y->text->n ? (x->text->n < y->text->n ? -1 : 1)
                                    : (x->index < y->index ? -1 : x->index > y->index);
}

static gw_status read_back(const gw_encoder *e, const struct gw_buffer *buffer, int device,
                           size_t at, void *out, size_t bytes) {
    return e->model->place.devices[device].backend->read(buffer, at, out, bytes);
}

static int is_finite(const float *x, size_t n) {
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= !isfinite(x[i]);
    }
    return !bad;
}

/* What becomes of a pooled row: dense layers, the first values of it, its length. */
static void finish(const gw_encoder *e, const float *row, float *out) {
    memcpy(e->room[0], row, (size_t)e->info.hidden * sizeof *row);
    const float *x = gw_sentence_dense(&e->sentence, e->room[0], e->room[1]);
    double squares = 0.0;
    for (int32_t i = 0; i < e->info.width; i++) {
        squares += (double)x[i] * (double)x[i];
    }
    double length = e->info.normalize && squares > 0.0 ? sqrt(squares) : 1.0;
    for (int32_t i = 0; i < e->info.width; i++) {
        out[i] = (float)((double)x[i] / length);
    }
}

/* Texts queue [n] in one pass, their results to out by index. */
static gw_status run_some(gw_encoder *e, gw_purpose purpose, const queued *queue, int n,
                          float *rows, float *out) {
    const gw_encoder_text *texts[GW_PASS_TEXTS];
    gw_encoder_pass *p = NULL;
    size_t sum = 0;
    size_t width = (size_t)(purpose == GW_PURPOSE_SCORES ? e->info.labels : e->info.hidden);
    for (int i = 0; i < n; i++) {
        texts[i] = queue[i].text;
        sum += texts[i]->n;
    }
    GW_TRY(gw_encoder_pass_for(e, purpose, sum, &p));
    GW_TRY(gw_encoder_pass_run(e, p, texts, n));
    GW_TRY(read_back(e, p->result, p->result_device, 0, rows, (size_t)n * width * sizeof *rows));
    for (int i = 0; i < n; i++) {
        if (!is_finite(rows + (size_t)i * width, width)) {
            return gw_fail(GW_E_NUMERIC, e->model->name,
                           "the result of text %zu is not finite: the weights or the numbers of "
                           "this model are broken",
                           queue[i].index + 1);
        }
        if (purpose == GW_PURPOSE_SCORES) {
            memcpy(out + queue[i].index * width, rows + (size_t)i * width, width * sizeof *rows);
        } else {
            finish(e, rows + (size_t)i * width, out + queue[i].index * (size_t)e->info.width);
        }
    }
    return GW_OK;
}

/* Texts of like length side by side; which ones share a pass changes no bit of a result. */
static gw_status run_all(gw_encoder *e, gw_purpose purpose, const gw_encoder_text *texts, size_t n,
                         float *out) {
    size_t width = (size_t)(e->info.labels > e->info.hidden ? e->info.labels : e->info.hidden);
    queued *queue = calloc(n + 1, sizeof *queue);
    float *rows = malloc(GW_PASS_TEXTS * width * sizeof *rows);
    gw_status status = GW_OK;
    if (queue == NULL || rows == NULL) {
        status = gw_fail(GW_E_NOMEM, "encoder", "no memory for %zu texts", n);
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        queue[i] = (queued){&texts[i], i};
    }
    qsort(queue, n, sizeof *queue, by_length);
    for (size_t at = 0; at < n;) {
        size_t sum = queue[at].text->n;
        int some = 1;
        while (at + (size_t)some < n && some < GW_PASS_TEXTS &&
               sum + queue[at + (size_t)some].text->n <= (size_t)e->rows) {
            sum += queue[at + (size_t)some].text->n;
            some++;
        }
        GW_TRY_DONE(run_some(e, purpose, queue + at, some, rows, out));
        at += (size_t)some;
    }
done:
    free(queue);
    free(rows);
    return status;
}

gw_status gw_encoder_embed(gw_encoder *e, const gw_encoder_text *texts, size_t n, float *out) {
    if (e->info.pooling == GW_POOLING_NONE) {
        return gw_fail(GW_E_ARGUMENT, "pooling", "is none: there are hidden states, no vectors");
    }
    GW_TRY(check_texts(e, texts, n));
    return run_all(e, GW_PURPOSE_VECTORS, texts, n, out);
}

gw_status gw_encoder_hidden(gw_encoder *e, const gw_encoder_text *text, float *out) {
    gw_encoder_pass *p = NULL;
    GW_TRY(check_texts(e, text, 1));
    GW_TRY(gw_encoder_pass_for(e, GW_PURPOSE_VECTORS, text->n, &p));
    GW_TRY(gw_encoder_pass_run(e, p, &text, 1));
    return read_back(e, p->at->buf, p->at->device, p->at->offset, out,
                     text->n * (size_t)e->info.hidden * sizeof *out);
}

gw_status gw_encoder_score(gw_encoder *e, const gw_encoder_text *texts, size_t n, float *out) {
    if (e->info.labels == 0) {
        return gw_fail(GW_E_UNSUPPORTED, e->model->name,
                       "the model has no classifier: it gives vectors, not scores");
    }
    GW_TRY(check_texts(e, texts, n));
    return run_all(e, GW_PURPOSE_SCORES, texts, n, out);
}
