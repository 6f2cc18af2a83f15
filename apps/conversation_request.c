/* apps/conversation_request.c - messages with tools, calls and results as the request of a
 * template; see conversation.h. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "apps/conversation.h"

static const char *members_of(const gw_chat_message *m) { return m->text + m->bytes + 1; }

int conversation_are_calls(const gw_chat_message *list, size_t n) {
    int has = 0;
    for (size_t i = 0; i < n && !has; i++) {
        has = members_of(&list[i])[0] != '\0';
    }
    return has;
}

int conversation_has_calls(const conversation *c) {
    return c->answer.tools.bytes > 0 || conversation_are_calls(c->messages, c->n);
}

static json_t *text_json(const char *text, size_t bytes) {
    json_t *json = json_stringn(text, bytes);
    return json != NULL ? json : json_string("\xEF\xBF\xBD"); /* not UTF-8: JSON has no place */
}

/* Pictures, then the text; NULL: there are none. */
static json_t *parts_json(const json_t *members, const gw_chat_message *m) {
    size_t n = json_array_size(json_object_get(members, "images"));
    json_t *parts = n > 0 ? json_array() : NULL;
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(parts, json_pack("{s:s}", "type", "image"));
    }
    if (n > 0) {
        json_array_append_new(
            parts, json_pack("{s:s, s:o}", "type", "text", "text", text_json(m->text, m->bytes)));
    }
    return parts;
}

static json_t *message_json(const gw_chat_message *m) {
    json_t *one = json_object(), *members = json_loads(members_of(m), 0, NULL);
    json_object_set_new(one, "role", json_string(m->role));
    json_object_set_new(one, "content", text_json(m->text, m->bytes));
    if (members != NULL) {
        json_t *content = parts_json(members, m);
        json_object_update(one, members);
        if (content != NULL) {
            json_object_set_new(one, "content", content);
            json_object_del(one, "images");
        }
        json_decref(members);
    }
    return one;
}

/* ---- a form without tools ---------------------------------------------------------------------
 */

/* What the model is told of its tools. */
static json_t *told(const conversation *c, const gw_chat_message *system) {
    static const char how[] = "To call a tool, answer with nothing but a JSON object: {\"name\": "
                              "its name, \"arguments\": {...}}. The tools:\n";
    chat_text text = {0};
    json_t *json = NULL;
    int code = APP_OK;
    if (system != NULL) {
        code = chat_text_add(&text, system->text, system->bytes);
        code = code == APP_OK ? chat_text_add(&text, "\n\n", 2) : code;
    }
    code = code == APP_OK ? chat_text_add(&text, how, sizeof how - 1) : code;
    code = code == APP_OK ? chat_text_add(&text, c->answer.tools.at, c->answer.tools.bytes) : code;
    if (code == APP_OK) {
        json = json_pack("{s:s, s:o}", "role", "system", "content", text_json(text.at, text.bytes));
    }
    free(text.at);
    return json;
}

/* Calls as the model has written them, and a result as what the user says. */
static json_t *plain_json(const gw_chat_message *m) {
    json_t *members = json_loads(members_of(m), 0, NULL), *call;
    chat_text text = {0};
    size_t i;
    int is_tool = strcmp(m->role, "tool") == 0;
    chat_text_add(&text, m->text, m->bytes);
    json_array_foreach(json_object_get(members, "tool_calls"), i, call) {
        char *one = json_dumps(json_object_get(call, "function"), 0);
        if (one != NULL) {
            chat_text_add(&text, "\n", text.bytes > 0);
            chat_text_add(&text, one, strlen(one));
        }
        free(one);
    }
    json_decref(members);
    json_t *json = json_pack("{s:s, s:o}", "role", is_tool ? "user" : m->role, "content",
                             text_json(text.at != NULL ? text.at : "", text.bytes));
    free(text.at);
    return json;
}

/* ---- the request ------------------------------------------------------------------------------
 */

static json_t *request_json(const conversation *c, const gw_chat_message *list, size_t n,
                            int plain) {
    json_t *messages = json_array(), *tools = NULL;
    size_t first = n > 0 && strcmp(list[0].role, "system") == 0 ? 1 : 0;
    int has = c->answer.tools.bytes > 0;
    if (plain && has) {
        json_array_append_new(messages, told(c, first > 0 ? &list[0] : NULL));
    } else {
        first = 0;
    }
    for (size_t i = first; i < n; i++) {
        json_array_append_new(messages, plain ? plain_json(&list[i]) : message_json(&list[i]));
    }
    if (has && !plain) {
        tools = json_loadb(c->answer.tools.at, c->answer.tools.bytes, 0, NULL);
    }
    json_t *request = json_pack("{s:o, s:b}", "messages", messages, "add_generation_prompt", 1);
    if (tools != NULL && json_object_set_new(request, "tools", tools) != 0) {
        json_decref(request);
        request = NULL;
    }
    return request;
}

gw_status conversation_request(const conversation *c, const gw_chat_message *list, size_t n,
                               int32_t **ids, size_t *n_ids) {
    gw_chat_text text = {0};
    size_t bytes;
    json_t *request = request_json(c, list, n, gw_chat_template(c->chat, &bytes) == NULL);
    char *json = request != NULL ? json_dumps(request, 0) : NULL;
    json_decref(request);
    if (json == NULL) {
        return GW_E_NOMEM;
    }
    gw_status status = conversation_write(c, json, list, n, &text);
    free(json);
    if (status == GW_OK) {
        *ids = text.ids;
        *n_ids = text.n_ids;
        text.ids = NULL;
        gw_chat_text_free(&text);
    }
    return status;
}
