/* apps/serve/chat_text.c - messages and tools for templates: see chat_text.h. */
#include "apps/serve/chat_text.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(fault *f) { return fault_set(f, 503, NULL, "out of memory"); }

/* ---- messages -------------------------------------------------------------------------------- */

/* Parts of a message, joined by line ends. */
static json_t *join_parts(const json_t *parts, size_t number, fault *f) {
    json_t *text = json_string("");
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *said = json_is_string(part) ? part : json_object_get(part, "text");
        if (said == NULL) {
            said = json_object_get(part, "refusal");
        }
        if (!json_is_string(said)) {
            fault_set(f, 400, "messages",
                      "messages[%zu].content[%zu]: a part of type '%.40s' cannot be read: this "
                      "model takes text",
                      number, i, type != NULL ? type : "?");
            json_decref(text);
            return NULL;
        }
        json_t *more = json_sprintf("%s%s%s", json_string_value(text), i > 0 ? "\n" : "",
                                    json_string_value(said));
        json_decref(text);
        text = more;
    }
    return text;
}

/* Arguments as an object, which is what templates show; as a text where they are none. */
static json_t *read_call(const json_t *call) {
    json_t *copy = json_deep_copy(call), *function = json_object_get(copy, "function");
    const json_t *text = json_object_get(function, "arguments");
    if (json_is_string(text)) {
        json_t *parsed =
            json_loadb(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, NULL);
        if (parsed != NULL) {
            json_object_set_new(function, "arguments", parsed);
        }
    }
    return copy;
}

static void copy_calls(json_t *out, const json_t *calls) {
    json_t *list = json_array();
    size_t i;
    const json_t *call;
    json_array_foreach(calls, i, call) { json_array_append_new(list, read_call(call)); }
    json_object_set_new(out, "tool_calls", list);
}

/* Templates know the reasoning of an earlier answer by one of these names. */
static void copy_reasoning(json_t *out) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    json_t *said = NULL;
    for (size_t i = 0; i < 3 && !json_is_string(said); i++) {
        said = json_object_get(out, names[i]);
    }
    for (size_t i = 0; json_is_string(said) && i < 3; i++) {
        json_object_set(out, names[i], said);
    }
}

static json_t *read_message(const json_t *message, size_t number, fault *f) {
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    if (role == NULL) {
        fault_set(f, 400, "messages", "messages[%zu]: an object with a \"role\" is needed", number);
        return NULL;
    }
    json_t *out = json_copy((json_t *)(uintptr_t)message), *text;
    if (json_is_array(content)) {
        text = join_parts(content, number, f);
    } else if (content == NULL || json_is_null(content)) {
        text = json_string("");
    } else if (json_is_string(content)) {
        text = json_incref((json_t *)(uintptr_t)content);
    } else {
        fault_set(f, 400, "messages", "messages[%zu].content: a text or a list of parts is needed",
                  number);
        text = NULL;
    }
    if (text == NULL || out == NULL) {
        json_decref(text);
        json_decref(out);
        return NULL;
    }
    json_object_set_new(out, "content", text);
    if (strcmp(role, "developer") == 0) {
        json_object_set_new(out, "role", json_string("system"));
    } else if (strcmp(role, "function") == 0) { /* before there were tools */
        json_object_set_new(out, "role", json_string("tool"));
    }
    if (json_array_size(calls) > 0) {
        copy_calls(out, calls);
    } else {
        json_object_del(out, "tool_calls");
    }
    copy_reasoning(out);
    return out;
}

json_t *chat_text_messages(const json_t *messages, fault *f) {
    json_t *out = json_array();
    size_t i;
    const json_t *message;
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        json_decref(out);
        fault_set(f, 400, "messages", "messages: a list of at least one message is needed");
        return NULL;
    }
    json_array_foreach(messages, i, message) {
        json_t *read = read_message(message, i, f);
        if (read == NULL || json_array_append_new(out, read) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* ---- what the template sees ------------------------------------------------------------------ */

/* The text of a last message of the assistant's goes on, unless it is asked for otherwise. */
static int read_end(json_t *chat, const json_t *body, fault *f) {
    const json_t *messages = json_object_get(chat, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    int open = -1, on = -1;
    if (ask_bool(body, "add_generation_prompt", &open, f) != 0 ||
        ask_bool(body, "continue_final_message", &on, f) != 0) {
        return -1;
    }
    int own = role != NULL && strcmp(role, "assistant") == 0 &&
              json_object_get(last, "tool_calls") == NULL;
    if (on == 1 && open == 1) {
        return fault_set(f, 400, "continue_final_message",
                         "continue_final_message and add_generation_prompt exclude each other");
    }
    if (on < 0) {
        on = own && open != 1;
    }
    if (on == 1 && !own) {
        return fault_set(f, 400, "continue_final_message",
                         "continue_final_message: the last message is not the assistant's");
    }
    open = open < 0 ? !on : open;
    json_object_set_new(chat, "add_generation_prompt", json_boolean(open));
    if (on == 1) {
        json_object_set_new(chat, "continue_final_message", json_true());
    }
    return 0;
}

int chat_text_read(ask *a, const json_t *body, json_t *messages, fault *f) {
    const json_t *given = json_object_get(body, "chat_template_kwargs");
    const json_t *documents = json_object_get(body, "documents");
    const char *effort = NULL;
    a->chat = json_pack("{s:o}", "messages", messages);
    if (a->chat == NULL) {
        return no_memory(f);
    }
    if (ask_text(body, "reasoning_effort", &effort, f) != 0) {
        return -1;
    }
    if (effort != NULL) {
        int off = strcmp(effort, "none") == 0;
        json_object_set_new(a->chat, "reasoning_effort", json_string(effort));
        json_object_set_new(a->chat, "enable_thinking", json_boolean(!off));
    }
    if (documents != NULL && !json_is_null(documents)) {
        json_object_set(a->chat, "documents", (json_t *)(uintptr_t)documents);
    }
    if (given != NULL && !json_is_null(given)) {
        json_t *messages_given = json_object_get(given, "messages");
        if (!json_is_object(given) || messages_given != NULL) {
            return fault_set(f, 400, "chat_template_kwargs",
                             "chat_template_kwargs: an object of variables is needed");
        }
        json_object_update(a->chat, (json_t *)(uintptr_t)given);
    }
    return read_end(a->chat, body, f);
}

/* ---- tools ----------------------------------------------------------------------------------- */

int chat_text_add_tool(ask *a, const char *name, const json_t *description,
                       const json_t *parameters) {
    json_t *schema = json_is_object(parameters)
                         ? json_deep_copy(parameters)
                         : json_pack("{s:s, s:{}}", "type", "object", "properties");
    json_t *tool = json_pack(
        "{s:s, s:{s:s, s:s, s:o}}", "type", "function", "function", "name", name, "description",
        json_is_string(description) ? json_string_value(description) : "", "parameters", schema);
    if (a->tools == NULL) {
        a->tools = json_array();
    }
    return json_array_append_new(a->tools, tool);
}

static int read_tools(ask *a, const json_t *list, fault *f) {
    size_t i;
    const json_t *tool;
    if (list == NULL || json_is_null(list)) {
        return 0;
    }
    if (!json_is_array(list)) {
        return fault_set(f, 400, "tools", "tools: a list is needed");
    }
    json_array_foreach(list, i, tool) {
        const char *type = json_string_value(json_object_get(tool, "type"));
        const json_t *function = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (type != NULL && strcmp(type, "function") != 0) {
            continue; /* of the client's own, or of another server's */
        }
        if (name == NULL || name[0] == '\0') {
            return fault_set(f, 400, "tools", "tools[%zu].function.name: a name is needed", i);
        }
        if (chat_text_add_tool(a, name, json_object_get(function, "description"),
                               json_object_get(function, "parameters")) != 0) {
            return no_memory(f);
        }
    }
    return 0;
}

static int has_tool(const ask *a, const char *name) {
    size_t i;
    const json_t *tool;
    json_array_foreach(a->tools, i, tool) {
        const char *own =
            json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (own != NULL && strcmp(own, name) == 0) {
            return 1;
        }
    }
    return 0;
}

static int read_choice(ask *a, const json_t *given, fault *f) {
    const char *word = json_string_value(given);
    const char *name =
        json_string_value(json_object_get(json_object_get(given, "function"), "name"));
    if (given == NULL || json_is_null(given) || (word != NULL && strcmp(word, "auto") == 0)) {
        a->choice = GW_TOOLS_AUTO;
        return 0;
    }
    if (word != NULL && strcmp(word, "none") == 0) {
        a->choice = GW_TOOLS_NONE;
        return 0;
    }
    if (word != NULL && strcmp(word, "required") == 0) {
        a->choice = GW_TOOLS_REQUIRED;
    } else if (name != NULL) {
        a->choice = GW_TOOLS_REQUIRED;
        a->named = strdup(name);
        if (a->named == NULL) {
            return no_memory(f);
        }
        if (!has_tool(a, name)) {
            return fault_set(f, 400, "tool_choice", "tool_choice: no tool is called '%.60s'", name);
        }
    } else {
        return fault_set(f, 400, "tool_choice",
                         "tool_choice: auto, none, required, or a function with its name is "
                         "needed");
    }
    return a->tools != NULL ? 0
                            : fault_set(f, 400, "tool_choice", "tool_choice: there are no tools");
}

int chat_text_tools(ask *a, const json_t *body, fault *f) {
    int parallel = 1;
    if (read_tools(a, json_object_get(body, "tools"), f) != 0 ||
        read_choice(a, json_object_get(body, "tool_choice"), f) != 0 ||
        ask_bool(body, "parallel_tool_calls", &parallel, f) != 0) {
        return -1;
    }
    a->one_call = !parallel;
    return 0;
}

/* ---- templates without tools ----------------------------------------------------------------- */

/* What a template that knows nothing of tools is given instead: the tools as part of the system
 * message, calls and results as plain texts. */
static json_t *without_calls(const json_t *messages) {
    json_t *out = json_array();
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message) {
        json_t *copy = json_copy((json_t *)(uintptr_t)message);
        const char *role = json_string_value(json_object_get(copy, "role"));
        const char *content = json_string_value(json_object_get(copy, "content"));
        const json_t *calls = json_object_get(copy, "tool_calls"), *call;
        size_t k;
        json_array_foreach(calls, k, call) {
            char *text = json_dumps(json_object_get(call, "function"), JSON_COMPACT);
            const char *before = json_string_value(json_object_get(copy, "content"));
            json_object_set_new(copy, "content",
                                json_sprintf("%s%s%s", before, before[0] != '\0' ? "\n" : "",
                                             text != NULL ? text : ""));
            free(text);
        }
        json_object_del(copy, "tool_calls");
        if (role != NULL && strcmp(role, "tool") == 0) {
            const char *name = json_string_value(json_object_get(copy, "name"));
            json_object_set_new(copy, "role", json_string("user"));
            json_object_set_new(copy, "content",
                                json_sprintf("Result of %s:\n%s", name != NULL ? name : "the call",
                                             content != NULL ? content : ""));
        }
        json_array_append_new(out, copy);
    }
    return out;
}

static void tell_of_tools(json_t *messages, const json_t *tools) {
    char *list = json_dumps(tools, JSON_COMPACT);
    json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    int system = role != NULL && strcmp(role, "system") == 0;
    const char *before = system ? json_string_value(json_object_get(first, "content")) : "";
    json_t *text = json_sprintf("%s%sThese functions can be called: %s\nA call is written as a "
                                "JSON object alone: {\"name\": NAME, \"arguments\": {...}}",
                                before, before[0] != '\0' ? "\n\n" : "", list != NULL ? list : "");
    free(list);
    if (system) {
        json_object_set_new(first, "content", text);
    } else {
        json_array_insert_new(messages, 0,
                              json_pack("{s:s, s:o}", "role", "system", "content", text));
    }
}

static int knows(const model *m, const char *word) {
    return strstr(m->chat_template, word) != NULL;
}

static int has_calls(const json_t *messages) {
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (json_object_get(message, "tool_calls") != NULL ||
            (role != NULL && strcmp(role, "tool") == 0)) {
            return 1;
        }
    }
    return 0;
}

/* Arguments that are no JSON, cut off or badly written, as an object with that text, for templates
 * that want to go through their members. NULL: there are none. */
static json_t *with_objects(const json_t *messages) {
    json_t *copy = json_deep_copy(messages);
    size_t i, k, found = 0;
    json_t *message, *one;
    json_array_foreach(copy, i, message) {
        json_array_foreach(json_object_get(message, "tool_calls"), k, one) {
            json_t *function = json_object_get(one, "function");
            json_t *arguments = json_object_get(function, "arguments");
            if (function != NULL && !json_is_object(arguments)) {
                json_object_set_new(function, "arguments",
                                    arguments != NULL ? json_pack("{s:O}", "arguments", arguments)
                                                      : json_object());
                found++;
            }
        }
    }
    if (found == 0) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

static gw_status write_request(const model *m, const json_t *request, gw_chat_text *out) {
    char *text = json_dumps(request, JSON_COMPACT);
    gw_status status = text != NULL ? gw_chat_write(m->chat, text, strlen(text), out) : GW_E_NOMEM;
    free(text);
    return status;
}

int chat_text_write(const model *m, const ask *a, gw_chat_text *out, fault *f) {
    json_t *request = json_copy(a->chat);
    const json_t *messages = json_object_get(request, "messages");
    int shown = a->tools != NULL && a->choice != GW_TOOLS_NONE;
    if (shown && knows(m, "tools")) {
        json_object_set(request, "tools", a->tools);
    } else if (shown || (has_calls(messages) && !knows(m, "tool"))) {
        json_t *plain = without_calls(messages);
        if (shown) {
            tell_of_tools(plain, a->tools);
        }
        json_object_set_new(request, "messages", plain);
    }
    gw_status status = write_request(m, request, out);
    json_t *whole = status != GW_OK ? with_objects(json_object_get(request, "messages")) : NULL;
    if (whole != NULL) {
        json_object_set_new(request, "messages", whole);
        status = write_request(m, request, out);
    }
    json_decref(request);
    if (status == GW_E_NOMEM) {
        return no_memory(f);
    }
    return status == GW_OK ? 0 : fault_of_status(f, status, "messages");
}
