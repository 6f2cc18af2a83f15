/* apps/conversation_file.c - conversations as JSON files. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "apps/conversation.h"
#include "apps/output.h"
#include "core/base/utf8.h"

/* ---- saving ---------------------------------------------------------------------------------- */

/* JSON holds UTF-8 only; anything else is U+FFFD. NULL: no memory. */
static json_t *text_json(const char *text, size_t bytes) {
    char *clean = malloc(3 * bytes + 1);
    if (clean == NULL) {
        return NULL;
    }
    json_t *value = json_stringn(clean, gw_utf8_clean(text, bytes, clean));
    free(clean);
    return value;
}

static json_t *all_json(const conversation *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->n && list != NULL; i++) {
        const gw_chat_message *m = &c->messages[i];
        json_t *one =
            json_pack("{s:s, s:o}", "role", m->role, "content", text_json(m->text, m->bytes));
        json_t *more = json_loads(m->text + m->bytes + 1, 0, NULL);
        if (one != NULL && more != NULL) {
            json_object_update(one, more);
        }
        json_decref(more);
        if (one == NULL || json_array_append_new(list, one) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return json_pack("{s:o, s:s, s:o}", "model", text_json(c->g.info.name, strlen(c->g.info.name)),
                     "template", gw_chat_name(c->chat), "messages", list);
}

int conversation_save(const conversation *c, const char *path) {
    json_t *all = all_json(c);
    char *text = all != NULL ? json_dumps(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (text == NULL) {
        app_error("out of memory: nothing was saved");
        return APP_FAILURE;
    }
    out_file file;
    size_t bytes = strlen(text);
    int code = APP_FAILURE;
    if (out_file_open(&file, path, bytes + 1) == 0) {
        if (out_file_write(&file, text, bytes) == 0 && out_file_write(&file, "\n", 1) == 0) {
            code = out_file_commit(&file) == 0 ? APP_OK : APP_FAILURE;
        } else {
            out_file_discard(&file);
        }
    }
    free(text);
    return code;
}

/* ---- loading --------------------------------------------------------------------------------- */

static const char *role_of(const json_t *message) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; role != NULL && i < 4; i++) {
        if (strcmp(role, roles[i]) == 0) {
            return roles[i];
        }
    }
    return NULL;
}

/* What else a message may have, as JSON; "" nothing. NULL: no memory. */
static char *members_of(const json_t *message) {
    static const char *const names[] = {"tool_calls", "tool_call_id", "name", "images"};
    json_t *more = json_object();
    for (size_t i = 0; i < 4; i++) {
        json_t *value = json_object_get(message, names[i]);
        if (value != NULL && !json_is_null(value)) {
            json_object_set(more, names[i], value);
        }
    }
    char *text = json_object_size(more) > 0 ? json_dumps(more, JSON_COMPACT) : strdup("");
    json_decref(more);
    return text;
}

/* Missing, null, or a list of texts. */
static int are_files(const json_t *list) {
    const json_t *one;
    size_t i, n = 0;
    json_array_foreach(list, i, one) { n += json_is_string(one); }
    return list == NULL || json_is_null(list) ||
           (json_is_array(list) && n == json_array_size(list));
}

/* The new list in a conversation of its own, so that a fault changes nothing. */
static int read_messages(const char *path, const json_t *list, gw_chat_message *to) {
    size_t i;
    const json_t *message;
    json_array_foreach(list, i, message) {
        const json_t *content = json_object_get(message, "content");
        const char *role = role_of(message);
        if (role == NULL || !json_is_string(content)) {
            app_error("%s: message %zu needs a \"role\" (system, user, assistant, tool) and a "
                      "\"content\" that is text",
                      path, i + 1);
            return APP_FAILURE;
        }
        if (!are_files(json_object_get(message, "images"))) {
            app_error("%s: \"images\" of message %zu: a list of file names is needed", path, i + 1);
            return APP_FAILURE;
        }
        size_t bytes = json_string_length(content);
        char *more = members_of(message);
        char *text =
            more != NULL ? conversation_text(json_string_value(content), bytes, more) : NULL;
        free(more);
        if (text == NULL) {
            app_error("out of memory");
            return APP_FAILURE;
        }
        to[i] = (gw_chat_message){role, text, bytes};
    }
    return APP_OK;
}

static void take_messages(conversation *c, gw_chat_message *list, size_t n) {
    for (size_t i = 0; i < c->n; i++) {
        free((void *)(uintptr_t)c->messages[i].text);
    }
    free(c->messages);
    c->messages = list;
    c->n = c->capacity = n;
    c->forgotten = 0;
    c->stale = 1;
}

static int load_list(conversation *c, const char *path, const json_t *list) {
    if (!json_is_array(list) || json_array_size(list) == 0) {
        app_error("%s: is no conversation: a list \"messages\" is needed", path);
        return APP_FAILURE;
    }
    size_t n = json_array_size(list);
    gw_chat_message *messages = calloc(n, sizeof *messages);
    if (messages == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    int code = read_messages(path, list, messages);
    code = code == APP_OK ? conversation_read_images(c, messages, n) : code;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (code == APP_OK && !(n == 1 && strcmp(messages[0].role, "system") == 0)) {
        /* a form may not take every order of roles: better known now */
        gw_status status = conversation_are_calls(messages, n)
                               ? conversation_request(c, messages, n, &ids, &n_ids)
                               : gw_chat_render(c->chat, messages, n, 0, &ids, &n_ids);
        gw_free(ids);
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    if (code == APP_OK) {
        take_messages(c, messages, n);
        return APP_OK;
    }
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)messages[i].text);
    }
    free(messages);
    return code;
}

int conversation_load(conversation *c, const char *path) {
    app_text text = {0};
    json_error_t fault;
    int code = app_read_file(path, &text);
    if (code != APP_OK) {
        return code;
    }
    json_t *root = json_loadb(text.at, text.bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
    free(text.at);
    if (root == NULL) {
        app_error("%s: line %d: %s", path, fault.line, fault.text);
        return APP_FAILURE;
    }
    const json_t *list = json_is_array(root) ? root : json_object_get(root, "messages");
    code = load_list(c, path, list);
    json_decref(root);
    return code;
}
