/* core/engine/encode/late.c - the projection that a model's own weights hold; texts as late
 * interaction has them (Khattab and Zaharia 2020, arXiv:2004.12832): a marking token, queries
 * filled up with mask tokens, documents without vectors of punctuation. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/encode/encoder.h"

/* ---- the projection ------------------------------------------------------------------------- */

/* Before the pooling where that is not linear or rows are what is needed, else after it: the same
 * but for rounding, and one product a text. */
static int place_of_projection(const gw_sentence *s, gw_pooling asked) {
    const gw_module *m = &s->module[0];
    return s->at_pooling == 0 && asked != GW_POOLING_NONE && m->n_modes == 1 &&
           m->mode[0] != GW_POOL_MAX;
}

gw_status gw_projection_add(gw_encoder *e, gw_pooling asked) {
    int64_t rows = 0;
    float *matrix = NULL;
    for (int r = 0; r < e->bp->n_weights; r++) {
        if (strcmp(e->bp->weight[r].role, "projection") == 0) {
            GW_TRY(gw_weights_values(e->model->weights, r, &matrix, &rows));
        }
    }
    gw_status status = GW_OK;
    if (matrix != NULL) {
        status = gw_sentence_project(&e->sentence, e->model->name,
                                     place_of_projection(&e->sentence, asked), (int32_t)rows,
                                     e->model->hp.d_model, matrix);
    }
    if (status != GW_OK) {
        free(matrix);
    }
    return status;
}

/* ---- late interaction ----------------------------------------------------------------------- */

int gw_late_is(const gw_encoder *e) {
    const gw_sentence *s = &e->sentence;
    int by_modules = s->found && s->n_judges == 0 && s->n_modules > 0 && s->at_pooling < 0;
    return by_modules ||
           (e->bp != NULL && gw_spec_named_number(e->bp, &e->model->hp, "per_token", 0.0) != 0.0);
}

/* The token that is stored as this text; `absent` where there is none. */
static int32_t token_of(const gw_vocab *v, const char *text, size_t bytes, int32_t absent) {
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (v->tokens[i].bytes == bytes && memcmp(v->tokens[i].text, text, bytes) == 0) {
            return (int32_t)i;
        }
    }
    return absent;
}

static gw_status find_prefixes(gw_encoder *e, const gw_late *late, const gw_vocab *v) {
    for (int use = 0; use < 2; use++) {
        size_t n = strlen(late->prefix[use]);
        e->late.prefix[use] = n > 0 ? token_of(v, late->prefix[use], n, -1) : -1;
        if (n > 0 && e->late.prefix[use] < 0) {
            return gw_fail(GW_E_METADATA, e->model->name,
                           "%s begin with the token \"%s\", which the vocabulary has not",
                           use == GW_USE_QUERY ? "queries" : "documents", late->prefix[use]);
        }
    }
    return GW_OK;
}

/* As the library looks them up: a text that is no token is the unknown one. */
static gw_status find_skips(gw_encoder *e, const gw_late *late, const gw_vocab *v) {
    static const char marks[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    size_t n = late->skips != NULL ? json_array_size(late->skips) : sizeof marks - 1;
    e->late.skips = malloc((n + 1) * sizeof *e->late.skips);
    if (e->late.skips == NULL) {
        return gw_fail(GW_E_NOMEM, "encoder", "no memory for %zu tokens", n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *word = json_array_get(late->skips, i);
        const char *text = late->skips != NULL ? json_string_value(word) : &marks[i];
        size_t bytes = late->skips != NULL ? json_string_length(word) : 1;
        int32_t id = text != NULL ? token_of(v, text, bytes, v->unk) : -1;
        if (id >= 0) {
            e->late.skips[e->late.n_skips++] = id;
        }
    }
    return GW_OK;
}

/* Mask tokens that nothing attends to are for models that look both ways, within a window. */
static gw_status check_expansion(const gw_encoder *e) {
    const gw_hparams *hp = &e->model->hp;
    if (!e->late.expands || e->late.sees) {
        return GW_OK;
    }
    if (e->info.causal) {
        return gw_fail(GW_E_UNSUPPORTED, e->model->name,
                       "queries of a decoder that are filled up with tokens which nothing attends "
                       "to are not known; \"do_query_expansion\": false does without");
    }
    for (int l = 0; l < e->layers; l++) {
        if (hp->layer[l].window > 0 && e->late.length[GW_USE_QUERY] > hp->layer[l].window) {
            return gw_fail(GW_E_UNSUPPORTED, e->model->name,
                           "queries of %d tokens, filled up, are longer than the window of %d",
                           (int)e->late.length[GW_USE_QUERY], hp->layer[l].window);
        }
    }
    return GW_OK;
}

static gw_status resolve(gw_encoder *e, const gw_late *late, int32_t n_ctx) {
    const gw_vocab *v = e->model->vocab;
    gw_late_tokens *to = &e->late;
    if (v == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, e->model->name,
                       "has no tokenizer, which its queries need");
    }
    GW_TRY(find_prefixes(e, late, v));
    GW_TRY(find_skips(e, late, v));
    to->is = 1;
    to->expands = late->expands;
    to->sees = late->sees;
    to->mask = token_of(v, late->mask, strlen(late->mask), v->eos >= 0 ? v->eos : v->pad);
    to->expands = to->expands && to->mask >= 0;
    for (int use = 0; use < 2; use++) {
        int32_t length = use == GW_USE_DOCUMENT && n_ctx > 0 ? n_ctx : late->length[use];
        to->length[use] = length < e->info.n_ctx ? length : e->info.n_ctx;
    }
    e->info.n_ctx = to->length[to->length[1] > to->length[0]];
    return check_expansion(e);
}

gw_status gw_late_open(gw_encoder *e, int32_t n_ctx) {
    gw_late late;
    if (gw_checkpoint_container(e->model->checkpoint) != GW_CONTAINER_HF) {
        return GW_OK; /* texts as they are */
    }
    GW_TRY(gw_late_read(gw_checkpoint_root(e->model->checkpoint), !e->sentence.found, &late));
    gw_status status = resolve(e, &late, n_ctx);
    gw_late_free(&late);
    return status;
}

int gw_encoder_keeps(const gw_encoder *e, int32_t token) {
    for (size_t i = 0; i < e->late.n_skips; i++) {
        if (e->late.skips[i] == token) {
            return 0;
        }
    }
    return 1;
}

/* Tokens without those that end every text; `most`: of the whole. */
static gw_status shorten(const gw_encoder *e, const char *text, size_t bytes, int32_t *ids,
                         size_t *n, size_t most) {
    int32_t *open = NULL;
    size_t n_open = 0;
    GW_TRY(gw_tokenize(e->model, text, bytes, GW_TEXT_BOS | GW_TEXT_OPEN, &open, &n_open));
    gw_free(open);
    size_t tail = *n > n_open ? *n - n_open : 0;
    tail = tail < most ? tail : most;
    memmove(ids + most - tail, ids + *n - tail, tail * sizeof *ids);
    *n = most;
    return GW_OK;
}

/* The tokens with what marks and fills them up: to has room for `limit` and one more. */
static size_t written(const gw_late_tokens *late, gw_encoder_use use, const int32_t *ids, size_t n,
                      int32_t *to, size_t *seen) {
    size_t count = 0, limit = (size_t)late->length[use];
    for (size_t i = 0; i < n; i++) {
        to[count++] = ids[i];
        if (i == 0 && late->is && late->prefix[use] >= 0) {
            to[count++] = late->prefix[use];
        }
    }
    *seen = count;
    while (late->is && use == GW_USE_QUERY && late->expands && count < limit) {
        to[count++] = late->mask;
    }
    *seen = late->sees ? count : *seen;
    return count;
}

gw_status gw_encoder_tokens(const gw_encoder *e, const char *text, size_t bytes, gw_encoder_use use,
                            int cut, int32_t **ids, size_t *n, size_t *seen) {
    const gw_late_tokens *late = &e->late;
    int32_t *plain = NULL, *types = NULL, *own = NULL;
    size_t count = 0, most;
    if (use != GW_USE_DOCUMENT && use != GW_USE_QUERY) {
        return gw_fail(GW_E_ARGUMENT, "use", "%d is no use of a text", (int)use);
    }
    most = (size_t)(late->is ? late->length[use] - (late->prefix[use] >= 0) : e->info.n_ctx);
    GW_TRY(gw_tokenize_pair(e->model, text, bytes, NULL, 0, GW_TEXT_BOS, &plain, &types, &count));
    gw_free(types);
    gw_status status = GW_OK;
    if (count > most && !cut) {
        status = gw_fail(GW_E_CONTEXT, use == GW_USE_QUERY ? "query" : "document",
                         "has %zu tokens, at most %zu fit", count, most);
    } else if (count > most) {
        status = shorten(e, text, bytes, plain, &count, most);
    }
    size_t room = count + (size_t)(late->is ? late->length[use] : 0) + 2;
    own = status == GW_OK ? malloc(room * sizeof *own) : NULL;
    if (status == GW_OK && own == NULL) {
        status = gw_fail(GW_E_NOMEM, "encoder", "no memory for %zu tokens", room);
    }
    if (status == GW_OK) {
        *n = written(late, use, plain, count, own, seen);
        *ids = own;
    }
    gw_free(plain);
    return status;
}
