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

/* Which rows the pass picks; where the modules want more, or the files say nothing of it, MODEL or
 * what is usual. */
static gw_pooling choose_pooling(gw_encoder *e, gw_pooling asked) {
    static const gw_pooling stored[] = {GW_POOLING_NONE, GW_POOLING_MEAN, GW_POOLING_CLS,
                                        GW_POOLING_LAST, GW_POOLING_CLS};
    static const gw_pooling of_mode[GW_POOL_MODES] = {[GW_POOL_CLS] = GW_POOLING_CLS,
                                                      [GW_POOL_MEAN] = GW_POOLING_MEAN,
                                                      [GW_POOL_LAST] = GW_POOLING_LAST};
    gw_sentence *s = &e->sentence;
    if (s->n_judges > 0) {
        return GW_POOLING_LAST;
    }
    if (asked == GW_POOLING_NONE || gw_late_is(e)) { /* modules of rows alone */
        s->n_modules = s->at_pooling >= 0 ? s->at_pooling : s->n_modules;
        s->at_pooling = -1;
        e->info.per_token = e->by_rows = 1;
        return GW_POOLING_NONE;
    }
    if (s->n_modules > 0 && s->at_pooling >= 0) {
        gw_module *m = &s->module[s->at_pooling];
        if (asked != GW_POOLING_MODEL) {
            m->n_modes = 1;
            m->mode[0] = asked == GW_POOLING_CLS    ? GW_POOL_CLS
                         : asked == GW_POOLING_LAST ? GW_POOL_LAST
                                                    : GW_POOL_MEAN;
        }
        gw_pooling one = m->n_modes == 1 ? of_mode[m->mode[0]] : GW_POOLING_MODEL;
        e->by_rows = s->at_pooling > 0 || s->skips_prompt || one == GW_POOLING_MODEL;
        return e->by_rows ? GW_POOLING_MODEL : one;
    }
    if (asked != GW_POOLING_MODEL) {
        return asked;
    }
    double kind = gw_spec_named_number(e->bp, &e->model->hp, "pooling", e->info.causal ? 3.0 : 1.0);
    int known = kind >= 0.0 && kind < (double)(sizeof stored / sizeof stored[0]);
    return known ? stored[(int)kind] : GW_POOLING_MEAN;
}

/* Blocks that keep a state, lists, further tables by token, several streams and values that the
 * engine gives are the sessions' alone. */
static gw_status check_blocks(const gw_encoder *e) {
    const gw_hparams *hp = &e->model->hp;
    int more = e->bp->all_given != 0 || hp->n_streams > 1;
    for (int b = 0; b < e->bp->n_blocks; b++) {
        const gw_spec_block *block = &e->bp->block[b];
        more |= block->out >= 0 && e->bp->width[block->out].n > 0 && gw_block_hands_on(block);
        more |= gw_block_stays_home(e->bp, block) && gw_block_runs(block, hp, hp->n_layers);
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

/* Width of a vector, and whether its length becomes 1. */
static gw_status describe_vector(gw_encoder *e, const gw_encoder_options *o) {
    const gw_sentence *s = &e->sentence;
    gw_encoder_info *info = &e->info;
    if (s->n_judges > 0) {
        info->width = e->full = 1;
        return GW_OK;
    }
    GW_TRY(gw_sentence_width(s, e->model->name, info->hidden, &e->full));
    if (o->dimensions < 0 || o->dimensions > e->full) {
        return gw_fail(GW_E_ARGUMENT, "dimensions", "%d is outside 0..%d", o->dimensions, e->full);
    }
    int usual = s->found && !info->per_token ? s->normalize : 1;
    info->normalize = o->normalize != 0 ? o->normalize > 0 : usual;
    info->width = o->dimensions > 0 ? o->dimensions : e->full;
    if (o->dimensions == 0 && s->truncate > 0 && s->truncate < e->full) {
        info->width = s->truncate;
        e->cut_last = 1; /* the library cuts after the last module */
    }
    return GW_OK;
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
    if (o->n_ctx < 0 || o->n_ctx > GW_ROWS_MAX || o->n_ctx > hp->n_ctx) {
        return gw_fail(GW_E_ARGUMENT, "context", "%d is outside 0..%d", o->n_ctx,
                       hp->n_ctx < GW_ROWS_MAX ? hp->n_ctx : GW_ROWS_MAX);
    }
    info->n_ctx = o->n_ctx > 0 ? o->n_ctx : most;
    GW_TRY(gw_late_is(e) ? gw_late_open(e, o->n_ctx) : GW_OK);
    info->labels = e->sentence.n_judges > 0 ? 1 : gw_late_is(e) ? 0 : count_labels(e);
    info->types = count_types(e);
    info->pooling = choose_pooling(e, o->pooling);
    return describe_vector(e, o);
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
    gw_kv_pair fmt;
    GW_TRY(gw_kv_format(e->kv_auto ? "f32" : o->kv_type, &fmt));
    if (fmt.k != fmt.v) {
        return gw_fail(GW_E_UNSUPPORTED, "kv-type",
                       "an encoder has one format for keys and values, not %s", o->kv_type);
    }
    e->kv_fmt = fmt.k;
    if (gw_cache_bits(e->kv_fmt) > 0) {
        return gw_fail(GW_E_UNSUPPORTED, "kv-type",
                       "%s is for texts that are gone on with; an encoder has f16, f32 and q8_0",
                       gw_format_of(e->kv_fmt)->name);
    }
    e->rows = o->rows;
    e->cancel = o->cancel;
    e->progress = o->progress;
    e->progress_user = o->progress_user;
    return GW_OK;
}

static gw_status make(gw_encoder *e, const gw_encoder_options *o) {
    gw_model *m = e->model;
    const gw_hparams *hp = &m->hp;
    size_t per = GW_ROWS_MAX / GW_PAGE, widest;
    GW_TRY(read_options(e, o));
    GW_TRY(check_blocks(e));
    GW_TRY(gw_checkpoint_container(m->checkpoint) == GW_CONTAINER_HF
               ? gw_sentence_read(gw_checkpoint_root(m->checkpoint), &e->sentence)
               : GW_OK);
    GW_TRY(gw_projection_add(e, o->pooling));
    GW_TRY(describe(e, o));
    GW_TRY(e->sentence.n_judges > 0 ? gw_judges_read(e) : GW_OK);
    widest = gw_sentence_room(&e->sentence, hp->d_model, e->by_rows ? (size_t)e->info.n_ctx : 1);
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
    const gw_kv_pair both = {e->kv_fmt, e->kv_fmt};
    GW_TRY(gw_kv_check(hp, NULL, both));
    GW_TRY(gw_place_session(&m->place, m->weights, hp, both, e->where));
    e->rows = e->rows > 0 ? e->rows : uses_card(e) ? GW_ROWS_MAX : ROWS_DEFAULT;
    return gw_tables_new(m->place.devices, m->place.n_devices, e->bp, hp, e->info.n_ctx, 0,
                         &e->tables);
}

/* A table of vectors: no layers, no passes. */
static gw_status make_table(gw_encoder *e, const gw_encoder_options *o) {
    GW_TRY(gw_sentence_read(gw_checkpoint_root(e->model->checkpoint), &e->sentence));
    const gw_dense *table = &e->sentence.module[0].dense;
    size_t widest;
    e->table = table;
    e->cancel = o->cancel;
    e->info = (gw_encoder_info){.hidden = table->out, .types = 1};
    e->info.n_ctx = o->n_ctx > 0 ? o->n_ctx : GW_ROWS_MAX;
    if (o->pooling != GW_POOLING_MODEL && o->pooling != GW_POOLING_MEAN) {
        return gw_fail(GW_E_ARGUMENT, "pooling", "a table of vectors has their mean alone");
    }
    GW_TRY(describe_vector(e, o));
    widest = gw_sentence_room(&e->sentence, table->out, 1);
    e->room[0] = malloc(widest * sizeof(float));
    e->room[1] = malloc(widest * sizeof(float));
    return e->room[0] != NULL && e->room[1] != NULL
               ? GW_OK
               : gw_fail(GW_E_NOMEM, "encoder", "no memory for %zu values", widest);
}

gw_status gw_encoder_new_sized(gw_model *model, const gw_encoder_options *given, size_t size,
                               gw_encoder **out) {
    gw_encoder_options own = {.n_ctx = 0};
    if (given != NULL) {
        GW_TRY(gw_options_take(&own, sizeof own, given, size, "encoder"));
    }
    int tabled = model->weights == NULL && gw_checkpoint_is_table(model->checkpoint);
    if (model->weights == NULL && !tabled) {
        return gw_fail(GW_E_UNSUPPORTED, model->name, "only the vocabulary of this model is open");
    }
    if (model->adapters != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, model->name,
                       "has adapters, which vectors are not made with");
    }
    GW_TRY(gw_model_awake(model));
    gw_encoder *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return gw_fail(GW_E_NOMEM, "encoder", "no memory for an encoder");
    }
    e->model = model;
    e->bp = tabled ? NULL : gw_weights_blueprint(model->weights);
    gw_status status = tabled ? make_table(e, &own) : make(e, &own);
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
    free(e->judge);
    free(e->late.skips);
    free(e->where);
    free(e->pages);
    free(e->room[0]);
    free(e->room[1]);
    free(e);
}

void gw_encoder_describe_sized(const gw_encoder *encoder, gw_encoder_info *out, size_t size) {
    const size_t own = sizeof encoder->info;
    memset(out, 0, size);
    memcpy(out, &encoder->info, size < own ? size : own);
}

void gw_encoder_describe(const gw_encoder *encoder, gw_encoder_info *out) {
    gw_encoder_describe_sized(encoder, out,
                              offsetof(gw_encoder_info, per_token) + sizeof out->per_token);
}

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
    int32_t n_vocab = e->table != NULL ? e->table->in : e->model->hp.n_vocab;
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
            if (x->ids[i] < 0 || x->ids[i] >= n_vocab) {
                return gw_fail(GW_E_ARGUMENT, "texts", "token %d is outside 0..%d", x->ids[i],
                               n_vocab - 1);
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
    size_t index, first, seen; /* first: of its rows among those of all texts */
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

static gw_status not_finite(const gw_encoder *e, size_t index) {
    return gw_fail(GW_E_NUMERIC, e->model->name,
                   "the result of text %zu is not finite: the weights or the numbers of this model "
                   "are broken",
                   index + 1);
}

static int is_finite(const float *x, size_t n) {
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= !isfinite(x[i]);
    }
    return !bad;
}

/* What becomes of a vector after the modules: the first values of it, its length. */
static void finish(const gw_encoder *e, const float *x, float *out) {
    double squares = 0.0;
    for (int32_t i = 0; i < (e->cut_last ? e->full : e->info.width); i++) {
        squares += (double)x[i] * (double)x[i];
    }
    double length = e->info.normalize && squares > 0.0 ? sqrt(squares) : 1.0;
    for (int32_t i = 0; i < e->info.width; i++) {
        out[i] = (float)((double)x[i] / length);
    }
}

/* A pooled row through the modules after the pooling. */
static void finish_row(const gw_encoder *e, const float *row, float *out) {
    memcpy(e->room[0], row, (size_t)e->info.hidden * sizeof *row);
    finish(e,
           gw_sentence_run(&e->sentence, e->sentence.at_pooling + 1, e->room[0], e->room[1], 1,
                           e->info.hidden, 0),
           out);
}

/* Hidden states of a pass, text by text, through all modules: a vector of each text, or row. */
static gw_status finish_rows(const gw_encoder *e, const gw_encoder_pass *p, const queued *queue,
                             int n, float *out) {
    size_t at = 0, row = (size_t)e->info.hidden * sizeof(float);
    for (int i = 0; i < n; i++) {
        const gw_encoder_text *t = queue[i].text;
        GW_TRY(read_back(e, p->at->buf, p->at->device, p->at->offset + at * row, e->room[0],
                         t->n * row));
        if (!is_finite(e->room[0], t->n * (size_t)e->info.hidden)) {
            return not_finite(e, queue[i].index);
        }
        const float *made = gw_sentence_run(&e->sentence, 0, e->room[0], e->room[1], t->n,
                                            e->info.hidden, t->prompt);
        size_t vectors = e->info.per_token ? t->n : 1, width = (size_t)e->info.width;
        size_t first = e->info.per_token ? queue[i].first : queue[i].index;
        for (size_t r = 0; r < vectors; r++) {
            finish(e, made + r * (size_t)e->full, out + (first + r) * width);
        }
        at += t->n;
    }
    return GW_OK;
}

/* Texts queue [n] in one pass, their results to out by index. */
static gw_status run_some(gw_encoder *e, gw_purpose purpose, const queued *queue, int n,
                          float *rows, float *out) {
    const gw_encoder_text *texts[GW_PASS_TEXTS];
    gw_encoder_pass *p = NULL;
    size_t sum = 0, seen[GW_PASS_TEXTS];
    size_t width = (size_t)(purpose == GW_PURPOSE_SCORES ? e->info.labels : e->info.hidden);
    for (int i = 0; i < n; i++) {
        texts[i] = queue[i].text;
        seen[i] = queue[i].seen;
        sum += texts[i]->n;
    }
    GW_TRY(gw_encoder_pass_for(e, purpose, sum, &p));
    GW_TRY(gw_encoder_pass_run(e, p, texts, seen, n));
    if (purpose == GW_PURPOSE_VECTORS && e->by_rows) {
        return finish_rows(e, p, queue, n, out);
    }
    GW_TRY(read_back(e, p->result, p->result_device, 0, rows, (size_t)n * width * sizeof *rows));
    for (int i = 0; i < n; i++) {
        if (!is_finite(rows + (size_t)i * width, width)) {
            return not_finite(e, queue[i].index);
        }
        if (purpose == GW_PURPOSE_SCORES) {
            memcpy(out + queue[i].index * width, rows + (size_t)i * width, width * sizeof *rows);
        } else if (e->judge != NULL) {
            out[queue[i].index] = gw_judge_row(e, rows + (size_t)i * width);
        } else {
            finish_row(e, rows + (size_t)i * width, out + queue[i].index * (size_t)e->info.width);
        }
    }
    return GW_OK;
}

/* Texts of like length side by side; which ones share a pass changes no bit of a result. */
static gw_status run_all(gw_encoder *e, gw_purpose purpose, const gw_encoder_text *texts,
                         const size_t *seen, size_t n, float *out) {
    size_t width = (size_t)(e->info.labels > e->info.hidden ? e->info.labels : e->info.hidden);
    queued *queue = calloc(n + 1, sizeof *queue);
    float *rows = malloc(GW_PASS_TEXTS * width * sizeof *rows);
    gw_status status = GW_OK;
    if (queue == NULL || rows == NULL) {
        status = gw_fail(GW_E_NOMEM, "encoder", "no memory for %zu texts", n);
        goto done;
    }
    for (size_t i = 0, first = 0; i < n; first += texts[i++].n) {
        queue[i] = (queued){&texts[i], i, first, seen != NULL ? seen[i] : texts[i].n};
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

/* Means of rows of the table. */
static gw_status run_table(const gw_encoder *e, const gw_encoder_text *texts, size_t n,
                           float *out) {
    size_t width = (size_t)e->table->out;
    for (size_t t = 0; t < n; t++) {
        if (e->cancel != NULL && *e->cancel) {
            return gw_fail(GW_E_CANCELLED, e->model->name, "cancelled");
        }
        for (size_t c = 0; c < width; c++) {
            double sum = 0.0;
            for (size_t i = 0; i < texts[t].n; i++) {
                sum += (double)e->table->weight[(size_t)texts[t].ids[i] * width + c];
            }
            e->room[0][c] = (float)(sum / (double)texts[t].n);
        }
        finish(e, gw_sentence_run(&e->sentence, 1, e->room[0], e->room[1], 1, e->info.hidden, 0),
               out + t * (size_t)e->info.width);
    }
    return GW_OK;
}

gw_status gw_encoder_prompt_tokens(const gw_encoder *e, const char *prompt, size_t bytes,
                                   size_t *n) {
    int32_t *ids = NULL, *types = NULL;
    size_t count = 0;
    *n = 0;
    if (!e->sentence.skips_prompt || bytes == 0) {
        return GW_OK;
    }
    GW_TRY(gw_tokenize_pair(e->model, prompt, bytes, NULL, 0, GW_TEXT_BOS, &ids, &types, &count));
    int ends = count > 0 && e->model->vocab->tokens[ids[count - 1]].special;
    *n = count - (size_t)ends; /* the end of the text is not the prompt's */
    gw_free(ids);
    gw_free(types);
    return GW_OK;
}

gw_status gw_encoder_embed(gw_encoder *e, const gw_encoder_text *texts, size_t n, float *out) {
    if (e->info.per_token) {
        return gw_fail(GW_E_ARGUMENT, "pooling", "is none: vectors are of tokens, not of texts");
    }
    if (e->judge != NULL) {
        return gw_fail(
            GW_E_UNSUPPORTED, e->model->name,
            "its modules make a score of a query and a document (LogitScore), no vector");
    }
    GW_TRY(check_texts(e, texts, n));
    return e->table != NULL ? run_table(e, texts, n, out)
                            : run_all(e, GW_PURPOSE_VECTORS, texts, NULL, n, out);
}

gw_status gw_encoder_rows(gw_encoder *e, const gw_encoder_text *texts, const size_t *seen, size_t n,
                          float *out) {
    if (!e->info.per_token) {
        return gw_fail(GW_E_ARGUMENT, "pooling",
                       "is not none: vectors are of texts, not of tokens");
    }
    GW_TRY(check_texts(e, texts, n));
    for (size_t t = 0; seen != NULL && t < n; t++) {
        if (seen[t] < 1 || seen[t] > texts[t].n) {
            return gw_fail(GW_E_ARGUMENT, "seen", "%zu is outside 1..%zu", seen[t], texts[t].n);
        }
    }
    return run_all(e, GW_PURPOSE_VECTORS, texts, seen, n, out);
}

gw_status gw_encoder_hidden(gw_encoder *e, const gw_encoder_text *text, float *out) {
    gw_encoder_pass *p = NULL;
    if (e->table != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, e->model->name, "a table of vectors has no hidden states");
    }
    GW_TRY(check_texts(e, text, 1));
    GW_TRY(gw_encoder_pass_for(e, GW_PURPOSE_VECTORS, text->n, &p));
    GW_TRY(gw_encoder_pass_run(e, p, &text, &text->n, 1));
    return read_back(e, p->at->buf, p->at->device, p->at->offset, out,
                     text->n * (size_t)e->info.hidden * sizeof *out);
}

gw_status gw_encoder_score(gw_encoder *e, const gw_encoder_text *texts, size_t n, float *out) {
    if (e->info.labels == 0) {
        return gw_fail(GW_E_UNSUPPORTED, e->model->name,
                       "the model has no classifier: it gives vectors, not scores");
    }
    GW_TRY(check_texts(e, texts, n));
    return run_all(e, e->judge != NULL ? GW_PURPOSE_VECTORS : GW_PURPOSE_SCORES, texts, NULL, n,
                   out);
}
