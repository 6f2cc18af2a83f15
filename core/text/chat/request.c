/* core/text/chat/request.c - a request (JSON) in the patterns of a form; see godwit.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/text/chat/chat_parts.h"

static const char where[] = "request";

void gw_chat_text_free(gw_chat_text *text) {
    if (text != NULL) {
        free(text->text);
        free(text->typed);
        free(text->ids);
        *text = (gw_chat_text){0};
    }
}

/* ---- a form's text --------------------------------------------------------------------------- */

/* The parts of a message that are text, one after the other. */
static gw_status add_parts(const json_t *content, size_t at, gw_bytes *text) {
    size_t i;
    const json_t *part;
    json_array_foreach(content, i, part) {
        const json_t *words = json_object_get(part, "text");
        if (!json_is_string(words)) {
            return gw_fail(GW_E_ARGUMENT, where,
                           "message %zu: a part is no text, and this form writes text only",
                           at + 1);
        }
        GW_TRY(gw_bytes_add(text, json_string_value(words), json_string_length(words)));
    }
    return GW_OK;
}

static gw_status read_message(const json_t *message, size_t at, gw_bytes *texts,
                              gw_chat_message *out) {
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    if (role == NULL) {
        return gw_fail(GW_E_ARGUMENT, where, "message %zu has no \"role\"", at + 1);
    }
    if (gw_json_has(message, "tool_calls")) {
        return gw_fail(GW_E_ARGUMENT, where, "message %zu: this form has no tool calls", at + 1);
    }
    if (json_is_array(content)) {
        GW_TRY(add_parts(content, at, texts));
    } else if (json_is_string(content)) {
        GW_TRY(gw_bytes_add(texts, json_string_value(content), json_string_length(content)));
    } else if (content != NULL && !json_is_null(content)) {
        return gw_fail(GW_E_ARGUMENT, where, "message %zu: the \"content\" is no text", at + 1);
    }
    out->role = role;
    return GW_OK;
}

/* texts holds what the messages' texts point into. */
static gw_status read_messages(const json_t *list, gw_bytes *texts, gw_chat_message *out) {
    size_t i, at = 0;
    const json_t *message;
    json_array_foreach(list, i, message) {
        size_t begin = texts->n;
        GW_TRY(read_message(message, i, texts, &out[i]));
        out[i].bytes = texts->n - begin;
    }
    json_array_foreach(list, i, message) {
        out[i].text = texts->data != NULL ? texts->data + at : "";
        at += out[i].bytes;
    }
    return GW_OK;
}

static gw_status spell(const gw_chat *chat, const gw_text_piece *pieces, size_t n,
                       gw_chat_text *out) {
    gw_bytes text = {0};
    gw_status status = GW_OK;
    out->typed = calloc(n + 1, 2 * sizeof *out->typed);
    if (out->typed == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory");
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        const gw_text_piece *p = &pieces[i];
        if (p->id >= 0) {
            const gw_vocab_token *token = &chat->vocab->tokens[p->id];
            status = gw_bytes_add(&text, token->text, token->bytes);
            continue;
        }
        if (p->id == GW_CHAT_TYPED) {
            out->typed[2 * out->n_typed] = text.n;
            out->typed[2 * out->n_typed++ + 1] = text.n + p->bytes;
        }
        status = gw_bytes_add(&text, p->text, p->bytes);
    }
    if (status == GW_OK) {
        status = gw_bytes_add(&text, "", 1);
    }
    out->text = text.data;
    out->bytes = text.n > 0 ? text.n - 1 : 0;
    return status;
}

/* A text may be wanted without an answer opened behind it, or with the last one left open. */
static gw_status write_form(const gw_chat *chat, const json_t *request, gw_chat_text *out) {
    json_t *list = NULL;
    int open = 0, unfinished = 0;
    GW_TRY(gw_json_array(where, request, "messages", &list));
    GW_TRY(gw_json_bool(where, request, "add_generation_prompt", &open));
    GW_TRY(gw_json_bool(where, request, "continue_final_message", &unfinished));
    size_t n = json_array_size(list);
    if (n == 0) {
        return gw_fail(GW_E_ARGUMENT, where, "a list \"messages\" with a message is needed");
    }
    if (gw_json_has(request, "tools") && json_array_size(json_object_get(request, "tools")) > 0) {
        return gw_fail(GW_E_ARGUMENT, where, "the form %s has no tools", chat->style->name);
    }
    gw_bytes texts = {0};
    gw_chat_message *messages = calloc(n, sizeof *messages);
    gw_chat_form form = {.c = chat, .unfinished = unfinished, .closed = !open};
    gw_text_rules rules = gw_chat_rules(chat, 0);
    gw_status status = messages == NULL ? gw_fail(GW_E_NOMEM, where, "no memory") : GW_OK;
    GW_TRY_DONE(status);
    GW_TRY_DONE(read_messages(list, &texts, messages));
    GW_TRY_DONE(gw_chat_fill(&form, messages, n, 0));
    GW_TRY_DONE(spell(chat, form.pieces, form.n, out));
    if (chat->tokenizer != NULL) {
        GW_TRY_DONE(gw_tokenizer_encode_pieces(chat->tokenizer, form.pieces, form.n, &rules,
                                               &out->ids, &out->n_ids));
    }
done:
    free(texts.data);
    free(messages);
    free(form.pieces);
    return status;
}

gw_status gw_chat_write(const gw_chat *chat, const char *request, size_t bytes, gw_chat_text *out) {
    json_t *root = NULL;
    gw_chat_text text = {0};
    if (chat->template != NULL) {
        return gw_chat_write_template(chat, request, bytes, NULL, out);
    }
    GW_TRY(gw_json_parse_settings(where, request, bytes, &root));
    gw_status status = json_is_object(root)
                           ? write_form(chat, root, &text)
                           : gw_fail(GW_E_ARGUMENT, where, "a JSON object is needed");
    json_decref(root);
    if (status != GW_OK) {
        gw_chat_text_free(&text);
        return status;
    }
    *out = text;
    return GW_OK;
}
