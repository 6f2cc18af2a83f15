/* core/engine/run/model_text.c - the text half of a model: the public face of core/text. */
#include <stdlib.h>

#include "core/engine/run/model_state.h"
#include "core/engine/run/pair_form.h"
#include "core/text/chat/chat.h"
#include "core/text/tokens/fill.h"
#include "core/text/tokens/stream.h"

static gw_status need_tokenizer(const gw_model *m) {
    if (m->tokenizer == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, m->name, "the model has no tokenizer: feed token ids");
    }
    return GW_OK;
}

gw_status gw_tokenize(const gw_model *model, const char *text, size_t bytes, int flags,
                      int32_t **ids, size_t *n) {
    GW_TRY(need_tokenizer(model));
    return gw_tokenizer_encode(model->tokenizer, text, bytes, flags, ids, n);
}

gw_status gw_tokenize_pair(const gw_model *model, const char *text, size_t bytes, const char *pair,
                           size_t pair_bytes, int flags, int32_t **ids, int32_t **types,
                           size_t *n) {
    GW_TRY(need_tokenizer(model));
    if (pair == NULL || model->pairs == NULL) {
        return gw_tokenizer_encode_pair(model->tokenizer, text, bytes, pair, pair_bytes, flags, ids,
                                        types, n);
    }
    int32_t *own = NULL;
    size_t count = 0;
    GW_TRY(gw_pair_form_write(model->pairs, text, bytes, pair, pair_bytes, &own, &count));
    *types = calloc(count + 1, sizeof **types);
    if (*types == NULL) {
        free(own);
        return gw_fail(GW_E_NOMEM, model->name, "no memory for %zu tokens", count);
    }
    *ids = own;
    *n = count;
    return GW_OK;
}

gw_status gw_detokenize(const gw_model *model, const int32_t *ids, size_t n, int keep_special,
                        char **text, size_t *bytes) {
    GW_TRY(need_tokenizer(model));
    return gw_tokenizer_decode(model->tokenizer, ids, n, keep_special, text, bytes);
}

void gw_free(void *pointer) { free(pointer); }

int32_t gw_token_bos(const gw_model *model) {
    return model->vocab != NULL ? model->vocab->bos : -1;
}
int32_t gw_token_eos(const gw_model *model) {
    return model->vocab != NULL ? model->vocab->eos : -1;
}

int gw_token_is_end(const gw_model *model, int32_t id) {
    for (int i = 0; model->vocab != NULL && i < model->vocab->n_end; i++) {
        if (model->vocab->end[i] == id) {
            return 1;
        }
    }
    return 0;
}

const char *gw_fill_lacks(const gw_model *model) {
    return model->tokenizer == NULL ? "no tokenizer" : gw_fill_missing(model->vocab);
}

gw_status gw_fill_in(const gw_model *model, const gw_fill *fill, int32_t **ids, size_t *n,
                     size_t *cut) {
    GW_TRY(need_tokenizer(model));
    return gw_fill_prompt(model->vocab, model->tokenizer, fill, ids, n, cut);
}

struct gw_stream {
    gw_text_stream *text;
};

gw_status gw_stream_new(const gw_model *model, gw_stream **out) {
    GW_TRY(need_tokenizer(model));
    gw_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, model->name, "no memory for a text stream");
    }
    gw_status status = gw_text_stream_new(model->tokenizer, &s->text);
    if (status != GW_OK) {
        free(s);
        return status;
    }
    *out = s;
    return GW_OK;
}

void gw_stream_free(gw_stream *stream) {
    if (stream != NULL) {
        gw_text_stream_free(stream->text);
        free(stream);
    }
}

const gw_text_stream *gw_stream_text(const gw_stream *stream) { return stream->text; }

gw_status gw_stream_push(gw_stream *stream, int32_t id, const char **text, size_t *bytes) {
    return gw_text_stream_push(stream->text, id, text, bytes);
}

/* The model's templates: the one of that name, or its default and the one for tools. */
static gw_status own_templates(const gw_model *model, const char *name, gw_chat_own *own) {
    GW_TRY(gw_checkpoint_chat_template(model->checkpoint, name, &own->text, &own->bytes));
    own->named = name != NULL && own->text != NULL;
    return name != NULL ? GW_OK
                        : gw_checkpoint_chat_template(model->checkpoint, "tool_use",
                                                      &own->tools_text, &own->tools_bytes);
}

gw_status gw_chat_open(const gw_model *model, const gw_chat_settings *settings, gw_chat **out) {
    gw_chat_own own = {0};
    if (model == NULL) {
        static const gw_vocab nothing = {.bos = -1, .eos = -1, .unk = -1, .pad = -1};
        return gw_chat_bind_settings(&nothing, NULL, settings, NULL, out);
    }
    GW_TRY(need_tokenizer(model));
    if (settings->template_text == NULL) {
        GW_TRY(own_templates(model, settings->name, &own));
    }
    return gw_chat_bind_settings(model->vocab, model->tokenizer, settings, &own, out);
}

gw_status gw_chat_new(const gw_model *model, const char *name, gw_chat **out) {
    const gw_chat_settings settings = {.name = name};
    return gw_chat_open(model, &settings, out);
}
