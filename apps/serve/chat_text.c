/* apps/serve/chat_text.c - messages and tools for templates: see chat_text.h. */
#include "apps/serve/chat_text.h"

#include <stdlib.h>
#include <string.h>

#include "apps/serve/chat_fit.h"
#include "apps/serve/parts.h"
#include "apps/serve/text.h"

static int no_memory(fault *f) { return fault_set(f, 503, NULL, "out of memory"); }

/* ---- messages -------------------------------------------------------------------------------- */

/* Arguments as an object, which is what templates show; as a text where they are none. */
static json_t *read_call(ask *a, const json_t *call) {
    json_t *copy = json_copy((json_t *)(uintptr_t)call);
    const json_t *given = json_object_get(copy, "function");
    const json_t *text = json_object_get(given, "arguments");
    json_t *parsed = json_is_string(text) ? ask_parse_within(json_string_value(text),
                                                             json_string_length(text), &a->wide)
                                          : NULL;
    if (parsed != NULL) {
        json_t *function = json_copy((json_t *)(uintptr_t)given);
        json_object_set_new(function, "arguments", parsed);
        json_object_set_new(copy, "function", function);
    }
    return copy;
}

static void copy_calls(ask *a, json_t *out, const json_t *calls) {
    json_t *list = json_array();
    size_t i;
    const json_t *call;
    json_array_foreach(calls, i, call) { json_array_append_new(list, read_call(a, call)); }
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

static json_t *read_message(ask *a, const json_t *message, size_t number, fault *f) {
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    if (role == NULL) {
        fault_set(f, 400, "messages", "messages[%zu]: an object with a \"role\" is needed", number);
        return NULL;
    }
    json_t *out = json_copy((json_t *)(uintptr_t)message), *text;
    int result = strcmp(role, "tool") == 0 || strcmp(role, "function") == 0;
    text = parts_read(content, number, result, &a->pictures, f);
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
        copy_calls(a, out, calls);
    } else {
        json_object_del(out, "tool_calls");
    }
    copy_reasoning(out);
    return out;
}

json_t *chat_text_messages(ask *a, const json_t *messages, fault *f) {
    json_t *out = json_array();
    size_t i;
    const json_t *message;
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        json_decref(out);
        fault_set(f, 400, "messages", "messages: a list of at least one message is needed");
        return NULL;
    }
    json_array_foreach(messages, i, message) {
        json_t *read = read_message(a, message, i, f);
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

/* ---- templates without tools ----------------------------------------------------------------- */

/* What a template that knows nothing of tools is given instead: the tools as part of the system
 * message, calls and results as plain texts. */
static json_t *text_with_calls(const json_t *message, const json_t *calls, const wide_mark *wide) {
    const json_t *said = json_object_get(message, "content"), *call;
    text_buffer text = {0};
    size_t k;
    text_add(&text, json_string_value(said), json_string_length(said));
    json_array_foreach(calls, k, call) {
        char *one = wide_dump(json_object_get(call, "function"), wide);
        text_add(&text, "\n", text.n > 0);
        text_add(&text, one != NULL ? one : "", one != NULL ? strlen(one) : 0);
        free(one);
    }
    json_t *all = text.n > 0 ? json_stringn_nocheck(text.at, text.n) : json_string("");
    free(text.at);
    return all;
}

static json_t *text_of_result(const json_t *message) {
    static const char before[] = "Result of ";
    const json_t *name = json_object_get(message, "name"), *said = NULL;
    text_buffer text = {0};
    said = json_object_get(message, "content");
    text_add(&text, before, sizeof before - 1);
    text_add(&text, json_is_string(name) ? json_string_value(name) : "the call",
             json_is_string(name) ? json_string_length(name) : strlen("the call"));
    text_add(&text, ":\n", 2);
    text_add(&text, json_string_value(said), json_string_length(said));
    json_t *all = text.n > 0 ? json_stringn_nocheck(text.at, text.n) : json_string("");
    free(text.at);
    return all;
}

static json_t *without_calls(const json_t *messages, const wide_mark *wide) {
    json_t *out = json_array();
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message) {
        json_t *copy = json_copy((json_t *)(uintptr_t)message);
        const char *role = json_string_value(json_object_get(copy, "role"));
        const json_t *calls = json_object_get(copy, "tool_calls");
        if (json_array_size(calls) > 0) {
            json_object_set_new(copy, "content", text_with_calls(message, calls, wide));
        }
        json_object_del(copy, "tool_calls");
        if (role != NULL && strcmp(role, "tool") == 0) {
            json_object_set_new(copy, "content", text_of_result(message));
            json_object_set_new(copy, "role", json_string("user"));
        }
        json_array_append_new(out, copy);
    }
    return out;
}

static void tell_of_tools(json_t *messages, const json_t *tools, const wide_mark *wide) {
    static const char how[] = "\nA call is written as a JSON object alone: {\"name\": NAME, "
                              "\"arguments\": {...}}";
    static const char which[] = "These functions can be called: ";
    char *list = wide_dump(tools, wide);
    json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    int system = role != NULL && strcmp(role, "system") == 0;
    const json_t *before = system ? json_object_get(first, "content") : NULL;
    text_buffer text = {0};
    text_add(&text, json_string_value(before), json_string_length(before));
    text_add(&text, "\n\n", text.n > 0 ? 2 : 0);
    text_add(&text, which, sizeof which - 1);
    text_add(&text, list != NULL ? list : "", list != NULL ? strlen(list) : 0);
    text_add(&text, how, sizeof how - 1);
    free(list);
    json_t *said = text.n > 0 ? json_stringn_nocheck(text.at, text.n) : json_string("");
    free(text.at);
    if (system) {
        json_object_set_new(first, "content", said);
    } else {
        json_array_insert_new(messages, 0,
                              json_pack("{s:s, s:o}", "role", "system", "content", said));
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

/* The request with parts where its texts have marks of pictures, whose order it sets. */
static json_t *with_parts(picture_list *pictures, const json_t *request) {
    json_t *copy = json_copy((json_t *)(uintptr_t)request), *list = json_array();
    const json_t *message;
    size_t i;
    pictures->n_order = 0;
    json_array_foreach(json_object_get(request, "messages"), i, message) {
        json_t *parts = picture_parts(pictures, json_object_get(message, "content"));
        json_t *own = json_copy((json_t *)(uintptr_t)message);
        if (parts != NULL) {
            json_object_set_new(own, "content", parts);
        }
        json_array_append_new(list, own);
    }
    json_object_set_new(copy, "messages", list);
    return copy;
}

static gw_status write_pictures(const model *m, picture_list *pictures, const char *text,
                                gw_chat_text *out) {
    gw_patches **patches = malloc((pictures->n_order + 1) * sizeof *patches);
    for (size_t i = 0; patches != NULL && i < pictures->n_order; i++) {
        patches[i] = look_patches(pictures->at[pictures->order[i]].look);
    }
    gw_status status = patches != NULL ? gw_chat_write_images(m->chat, text, strlen(text),
                                                              sights_images(m->sights), patches,
                                                              pictures->n_order, out)
                                       : GW_E_NOMEM;
    free(patches);
    return status;
}

static gw_status write_request(const model *m, ask *a, const json_t *request, gw_chat_text *out) {
    picture_list *pictures = &a->pictures;
    json_t *parts = pictures->n > 0 ? with_parts(pictures, request) : NULL;
    char *text = wide_dump(parts != NULL ? parts : request, &a->wide);
    gw_status status = text == NULL            ? GW_E_NOMEM
                       : pictures->n_order > 0 ? write_pictures(m, pictures, text, out)
                                               : gw_chat_write(m->chat, text, strlen(text), out);
    free(text);
    json_decref(parts);
    return status;
}

/* What a template drops without a word is as good as refused. */
static gw_status try_request(const model *m, ask *a, const json_t *request, const json_t *said,
                             gw_chat_text *out) {
    gw_status status = write_request(m, a, request, out);
    if (status == GW_OK && !chat_fit_shows(said, out->text, out->bytes)) {
        gw_chat_text_free(out);
        status = GW_E_UNSUPPORTED;
    }
    return status;
}

/* A template that shows the first call of a message alone. */
static int shows_one_call(const model *m) {
    return knows(m, "tool_calls[0]") && !knows(m, "in message.tool_calls") &&
           !knows(m, "in message['tool_calls']") && !knows(m, "in message[\"tool_calls\"]");
}

/* As it is, then in the ways of chat_fit.h until the template takes one. The first fault is the one
 * that says what is wrong. */
static int write_fitted(const model *m, ask *a, json_t *request, gw_chat_text *out, fault *f) {
    json_t *said = json_incref(json_object_get(request, "messages"));
    json_t *single = shows_one_call(m) ? chat_fit(said, FIT_SINGLE_CALLS) : NULL;
    if (single != NULL) {
        json_decref(said);
        json_object_set(request, "messages", single);
        said = single;
    }
    gw_status status = try_request(m, a, request, said, out);
    if (status == GW_E_UNSUPPORTED) {
        fault_set(f, 400, "messages",
                  "messages: this model's template shows a system message at the start only");
    } else if (status != GW_OK) {
        fault_of_status(f, status, "messages");
    }
    for (size_t i = 0;
         chat_fits[i] != 0 && status != GW_OK && status != GW_E_NOMEM && status != GW_E_LIMIT;
         i++) {
        json_t *other = chat_fit(said, chat_fits[i]);
        if (other != NULL) {
            json_object_set_new(request, "messages", other);
            status = try_request(m, a, request, said, out);
        }
    }
    json_decref(said);
    if (status == GW_OK) {
        *f = (fault){0};
        return 0;
    }
    return status == GW_E_NOMEM ? no_memory(f) : -1;
}

/* Pictures of results as a user's message after these, for templates whose results are texts. NULL:
 * there are none. */
static json_t *without_results(const picture_list *pictures, const json_t *messages) {
    json_t *out = json_array(), *moved = json_array();
    const json_t *message;
    size_t i;
    int changed = 0;
    json_array_foreach(messages, i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        int result = role != NULL && strcmp(role, "tool") == 0;
        json_t *own = json_copy((json_t *)(uintptr_t)message), *rest = NULL;
        json_t *marks =
            result ? picture_take_marks(pictures, json_object_get(own, "content"), &rest) : NULL;
        if (!result) {
            json_array_extend(out, moved);
            json_array_clear(moved);
        }
        if (marks != NULL) {
            json_object_set_new(own, "content", rest);
            json_array_append_new(moved, json_pack("{s:s, s:o}", "role", "user", "content", marks));
            changed = 1;
        }
        json_array_append_new(out, own);
    }
    json_array_extend(out, moved);
    json_decref(moved);
    if (!changed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

int chat_text_write(const model *m, ask *a, gw_chat_text *out, fault *f) {
    json_t *request = json_copy(a->chat);
    const json_t *messages = json_object_get(request, "messages");
    int shown = a->tools != NULL && a->choice != GW_TOOLS_NONE;
    if (shown && knows(m, "tools")) {
        json_object_set(request, "tools", a->tools);
    } else if (shown || (has_calls(messages) && !knows(m, "tool"))) {
        json_t *plain = without_calls(messages, &a->wide);
        if (shown) {
            tell_of_tools(plain, a->tools, &a->wide);
        }
        json_object_set_new(request, "messages", plain);
    }
    json_t *said = json_incref(json_object_get(request, "messages"));
    int code = write_fitted(m, a, request, out, f);
    json_t *moved = code != 0 ? without_results(&a->pictures, said) : NULL;
    json_decref(said);
    if (moved != NULL) {
        fault other = {0};
        json_object_set_new(request, "messages", moved);
        code = write_fitted(m, a, request, out, &other);
        *f = code == 0 ? other : *f;
    }
    json_decref(request);
    return code;
}
