/* core/engine/run/pair_form.c - pairs as conversations: see pair_form.h. */
#include "core/engine/run/pair_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/model_state.h"
#include "core/model/sentence.h"

struct gw_pair_form {
    gw_chat *chat; /* NULL: `wrong` says why */
    char wrong[512];
    json_t *variables; /* of every request: an object          */
    char *system;      /* text of the message before; NULL: none */
    int structured;    /* contents are lists of parts          */
};

/* What sentence-transformers looks for in a template to give it lists of parts. */
static int wants_parts(const char *template) {
    static const char *const marks[] = {"content[0]", ".type", "'type'", "\"type\"",
                                        "message.content["};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (strstr(template, marks[i]) != NULL) {
            return 1;
        }
    }
    return 0;
}

static gw_status no_memory(const gw_model *model) {
    return gw_fail(GW_E_NOMEM, model->name, "no memory for the form of pairs");
}

static gw_status fill(gw_pair_form *p, const gw_model *model) {
    gw_sentence s;
    gw_chat_settings settings = {0};
    GW_TRY(gw_checkpoint_chat_template(model->checkpoint, NULL, &settings.template_text,
                                       &settings.template_bytes));
    const char *template = settings.template_text;
    if (template == NULL) {
        snprintf(p->wrong, sizeof p->wrong,
                 "the folder has no template that writes a query and a document");
        return GW_OK;
    }
    if (gw_chat_open(model, &settings, &p->chat) != GW_OK) {
        snprintf(p->wrong, sizeof p->wrong, "%s", gw_error_text());
        return GW_OK;
    }
    GW_TRY(gw_sentence_read(gw_checkpoint_root(model->checkpoint), &s));
    const json_t *prompt = json_object_get(s.prompts, s.standard);
    p->structured = s.structured >= 0 ? s.structured : wants_parts(template);
    p->variables = s.variables != NULL ? json_incref(s.variables) : json_object();
    p->system = json_is_string(prompt) && json_string_length(prompt) > 0
                    ? strdup(json_string_value(prompt))
                    : NULL;
    int lacks = p->variables == NULL || (json_string_length(prompt) > 0 && p->system == NULL);
    gw_sentence_free(&s);
    return lacks ? no_memory(model) : GW_OK;
}

gw_status gw_pair_form_open(const gw_model *model, gw_pair_form **out) {
    int judges = 0;
    *out = NULL;
    if (model->tokenizer == NULL || gw_checkpoint_container(model->checkpoint) != GW_CONTAINER_HF) {
        return GW_OK;
    }
    GW_TRY(gw_sentence_judges(gw_checkpoint_root(model->checkpoint), &judges));
    if (!judges) {
        return GW_OK;
    }
    gw_pair_form *p = calloc(1, sizeof *p);
    gw_status status = p != NULL ? fill(p, model) : no_memory(model);
    if (status != GW_OK) {
        gw_pair_form_free(p);
        return status;
    }
    *out = p;
    return GW_OK;
}

void gw_pair_form_free(gw_pair_form *p) {
    if (p != NULL) {
        gw_chat_free(p->chat);
        json_decref(p->variables);
        free(p->system);
        free(p);
    }
}

static json_t *message(const gw_pair_form *p, const char *role, const char *text, size_t bytes) {
    json_t *content = json_stringn(text, bytes);
    if (p->structured && content != NULL) {
        content = json_pack("[{s:s, s:o}]", "type", "text", "text", content);
    }
    return content != NULL ? json_pack("{s:s, s:o}", "role", role, "content", content) : NULL;
}

gw_status gw_pair_form_write(const gw_pair_form *p, const char *query, size_t query_bytes,
                             const char *document, size_t document_bytes, int32_t **ids,
                             size_t *n) {
    if (p->chat == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, "LogitScore", "%s", p->wrong);
    }
    json_t *request = json_copy(p->variables), *messages = json_array();
    if (p->system != NULL) {
        json_array_append_new(messages, message(p, "system", p->system, strlen(p->system)));
    }
    json_array_append_new(messages, message(p, "query", query, query_bytes));
    json_array_append_new(messages, message(p, "document", document, document_bytes));
    int whole = json_array_size(messages) == (p->system != NULL ? 3 : 2);
    json_object_set_new(request, "messages", messages);
    char *text = whole && request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    if (text == NULL) {
        return gw_fail(GW_E_ENCODING, "LogitScore", "a query or a document is not UTF-8");
    }
    gw_chat_text out;
    gw_status status = gw_chat_write(p->chat, text, strlen(text), &out);
    free(text);
    GW_TRY(status);
    *ids = out.ids;
    *n = out.n_ids;
    out.ids = NULL;
    gw_chat_text_free(&out);
    return GW_OK;
}
