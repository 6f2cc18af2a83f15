/* apps/serve/route_messages.c - the Messages API (POST /v1/messages) and its count of tokens. */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/chat_text.h"
#include "apps/serve/job.h"
#include "apps/serve/parts.h"
#include "apps/serve/routes.h"
#include "apps/serve/tools.h"

/* ---- the request ----------------------------------------------------------------------------- */

/* Agents put a line with a checksum before their instructions, another one each time: nothing
 * behind it would ever be found in the cache. */
static int is_billing_line(const char *text) {
    static const char name[] = "x-anthropic-billing-header:";
    return strncmp(text, name, sizeof name - 1) == 0;
}

/* The instructions: a text or a list of blocks, joined by line ends. */
static json_t *system_text(ask *a, const json_t *content, fault *f) {
    json_t *kept = json_array(), *block;
    size_t i;
    if (!json_is_array(content)) {
        json_decref(kept);
        return parts_read(content, 0, 0, &a->pictures, f);
    }
    json_array_foreach((json_t *)(uintptr_t)content, i, block) {
        const char *text = json_string_value(json_object_get(block, "text"));
        if (text == NULL || !is_billing_line(text)) {
            json_array_append(kept, block);
        }
    }
    json_t *text = parts_read(kept, 0, 0, &a->pictures, f);
    json_decref(kept);
    return text;
}

static json_t *call_of(const json_t *block) {
    const char *id = json_string_value(json_object_get(block, "id"));
    const char *name = json_string_value(json_object_get(block, "name"));
    json_t *input = json_object_get(block, "input");
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id != NULL ? id : "", "type", "function",
                     "function", "name", name != NULL ? name : "", "arguments",
                     input != NULL ? json_incref(input) : json_object());
}

/* What one message becomes: its calls, its reasoning, and the blocks that parts.c reads. */
typedef struct pieces {
    json_t *calls, *parts;
    text_buffer reasoning;
} pieces;

static void free_pieces(pieces *p) {
    json_decref(p->calls);
    json_decref(p->parts);
    free(p->reasoning.at);
}

/* A result is a message of its own, before the text of the message that it came in. */
static void add_result(json_t *out, const json_t *block) {
    json_t *content = json_object_get(block, "content");
    json_t *id = json_object_get(block, "tool_use_id");
    json_array_append_new(out, json_pack("{s:s, s:o, s:o}", "role", "tool", "tool_call_id",
                                         json_is_string(id) ? json_incref(id) : json_string(""),
                                         "content",
                                         content != NULL ? json_incref(content) : json_string("")));
}

static void sort_block(json_t *out, pieces *p, json_t *block) {
    const char *type = json_string_value(json_object_get(block, "type"));
    const json_t *thought = json_object_get(block, "thinking");
    type = type != NULL ? type : "?";
    if (strcmp(type, "tool_use") == 0) {
        json_array_append_new(p->calls, call_of(block));
    } else if (strcmp(type, "tool_result") == 0) {
        add_result(out, block);
    } else if (strcmp(type, "thinking") == 0 && json_is_string(thought)) {
        text_add(&p->reasoning, json_string_value(thought), json_string_length(thought));
    } else if (strcmp(type, "redacted_thinking") != 0) {
        json_array_append(p->parts, block);
    }
}

static int add_message(json_t *out, const json_t *message, size_t number, fault *f) {
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *content = json_object_get(message, "content"), *block;
    size_t i;
    if (role == NULL || (!json_is_string(content) && !json_is_array(content))) {
        return fault_set(f, 400, "messages",
                         "messages[%zu]: an object with \"role\" and \"content\" is needed",
                         number);
    }
    pieces p = {.calls = json_array(), .parts = json_array()};
    json_array_foreach(content, i, block) { sort_block(out, &p, block); }
    if (json_is_string(content) || json_array_size(p.parts) > 0 || p.reasoning.n > 0 ||
        json_array_size(p.calls) > 0) {
        json_t *one = json_pack("{s:s, s:O}", "role", role, "content",
                                json_is_string(content) ? content : p.parts);
        if (p.reasoning.n > 0) {
            json_object_set_new(one, "reasoning_content", job_text(&p.reasoning));
        }
        if (json_array_size(p.calls) > 0) {
            json_object_set(one, "tool_calls", p.calls);
        }
        json_array_append_new(out, one);
    }
    free_pieces(&p);
    return 0;
}

static json_t *read_messages(ask *a, const json_t *body, fault *f) {
    json_t *out = json_array();
    const json_t *list = json_object_get(body, "messages"), *message;
    size_t i;
    json_t *system = system_text(a, json_object_get(body, "system"), f);
    if (system == NULL) {
        json_decref(out);
        return NULL;
    }
    if (json_string_length(system) > 0) {
        json_array_append_new(out, json_pack("{s:s, s:O}", "role", "system", "content", system));
    }
    json_decref(system);
    json_array_foreach(list, i, message) {
        if (add_message(out, message, i, f) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    json_t *read = json_is_array(list) ? chat_text_messages(a, out, f) : NULL;
    if (!json_is_array(list)) {
        fault_set(f, 400, "messages", "messages: a list of messages is needed");
    }
    json_decref(out);
    return read;
}

static int read_tools(ask *a, const json_t *body, fault *f) {
    const json_t *list = json_object_get(body, "tools"), *tool;
    const json_t *wanted = json_object_get(body, "tool_choice");
    const char *type = json_string_value(json_object_get(wanted, "type"));
    json_t *chosen = NULL;
    size_t i;
    json_array_foreach(list, i, tool) {
        const char *kind = json_string_value(json_object_get(tool, "type"));
        const char *name = json_string_value(json_object_get(tool, "name"));
        if (kind != NULL && strcmp(kind, "custom") != 0) {
            continue; /* what another server would run */
        }
        if (name == NULL || name[0] == '\0') {
            return fault_set(f, 400, "tools", "tools[%zu].name: a name is needed", i);
        }
        if (tools_add(a, NULL, name, json_object_get(tool, "description"),
                      json_object_get(tool, "input_schema")) != 0) {
            return fault_set(f, 503, NULL, "out of memory");
        }
    }
    if (type != NULL && strcmp(type, "tool") == 0) {
        chosen = json_pack("{s:O?}", "name", json_object_get(wanted, "name"));
    } else if (type != NULL) {
        chosen = json_string(type);
    }
    int code = tools_choose(a, chosen, f);
    json_decref(chosen);
    a->one_call = json_is_true(json_object_get(wanted, "disable_parallel_tool_use"));
    return code;
}

/* What a client asks that keeps its conversations at the server. The words are those by which the
 * vendor's package knows to send whole conversations instead. */
static int refuse_threads(const json_t *body, fault *f) {
    const json_t *thread = json_object_get(body, "thread");
    if (thread == NULL || json_is_null(thread)) {
        return 0;
    }
    fault_set(f, 400, "thread",
              "thread is not supported here: send the whole conversation in messages");
    f->detail = "thread_unsupported_request";
    return -1;
}

static int read_chat(job *j, const json_t *body, fault *f) {
    const char *thinking =
        json_string_value(json_object_get(json_object_get(body, "thinking"), "type"));
    static const ask_refusal refused[] = {{"container", NULL}, {"mcp_servers", "[]"}, {NULL, NULL}};
    json_t *messages = NULL;
    if (refuse_threads(body, f) != 0 || ask_refuse(body, refused, f) != 0 ||
        ask_text(body, "model", &j->ask.model, f) != 0 || read_tools(&j->ask, body, f) != 0 ||
        (messages = read_messages(&j->ask, body, f)) == NULL ||
        chat_text_read(&j->ask, body, messages, f) != 0) {
        return -1;
    }
    if (thinking != NULL) {
        json_object_set_new(j->ask.chat, "enable_thinking",
                            json_boolean(strcmp(thinking, "disabled") != 0));
    }
    return 0;
}

static int read_request(job *j, const json_t *body, fault *f) {
    ask *a = &j->ask;
    const json_t *format = json_object_get(body, "output_format");
    if (format == NULL) {
        format = json_object_get(json_object_get(body, "output_config"), "format");
    }
    a->max_tokens = -2;
    if (ask_read_common(a, body, f) != 0 ||
        ask_int(body, "max_tokens", 1, INT32_MAX, &a->max_tokens, f) != 0 ||
        ask_texts(body, "stop_sequences", a->stops, ASK_STOPS_MAX, &a->n_stops, f) != 0 ||
        ask_read_format(a, format, "output_format", f) != 0 || ask_read_grammar(a, body, f) != 0) {
        return -1;
    }
    if (a->max_tokens == -2) {
        return fault_set(f, 400, "max_tokens", "max_tokens: a number is needed");
    }
    return read_chat(j, body, f);
}

/* ---- the whole answer ------------------------------------------------------------------------ */

static const char *reason_of(const choice *c) {
    if (c->why == GW_FINISH_LENGTH) {
        return "max_tokens";
    }
    return c->calls_made > 0 ? "tool_use" : c->stop_text != NULL ? "stop_sequence" : "end_turn";
}

static json_t *usage_of(const job *j) {
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens",
                     (json_int_t)(j->n_prompt - j->n_cached), "cache_read_input_tokens",
                     (json_int_t)j->n_cached, "cache_creation_input_tokens", (json_int_t)0,
                     "output_tokens", (json_int_t)j->n_generated);
}

static json_t *call_block(const call *k) {
    json_t *input = k->arguments.n > 0
                        ? json_loadb(k->arguments.at, k->arguments.n, JSON_ALLOW_NUL, NULL)
                        : NULL;
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", k->id, "name", k->name,
                     "input", input != NULL ? input : json_object());
}

static json_t *blocks_of(const choice *c) {
    json_t *list = json_array();
    if (c->reasoning.n > 0) {
        json_array_append_new(list, json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                              job_text(&c->reasoning), "signature", ""));
    }
    if (c->text.n > 0) {
        json_array_append_new(list,
                              json_pack("{s:s, s:o}", "type", "text", "text", job_text(&c->text)));
    }
    for (size_t i = 0; i < c->n_calls; i++) {
        if (!c->calls[i].broken) {
            json_array_append_new(list, call_block(&c->calls[i]));
        }
    }
    return list;
}

static json_t *whole(job *j) {
    const choice *c = &j->choices[0];
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:s?, s:o}", "id", j->id, "type", "message",
                     "role", "assistant", "model", job_model(j), "content", blocks_of(c),
                     "stop_reason", reason_of(c), "stop_sequence", c->stop_text, "usage",
                     usage_of(j));
}

/* ---- a stream -------------------------------------------------------------------------------- */

enum { OPEN_NOTHING, OPEN_THINKING, OPEN_TEXT, OPEN_CALL };

static void send_event(job *j, const char *type, json_t *body) {
    json_object_set_new(body, "type", json_string(type));
    job_event(j, type, body);
}

static void begin(job *j) {
    json_t *usage = json_pack("{s:I, s:i, s:i, s:i}", "input_tokens",
                              (json_int_t)j->ask.prompts[0].n, "cache_read_input_tokens", 0,
                              "cache_creation_input_tokens", 0, "output_tokens", 0);
    send_event(j, "message_start",
               json_pack("{s:{s:s, s:s, s:s, s:s, s:[], s:n, s:n, s:o}}", "message", "id", j->id,
                         "type", "message", "role", "assistant", "model", job_model(j), "content",
                         "stop_reason", "stop_sequence", "usage", usage));
}

static void close_block(choice *c) {
    if (c->state != OPEN_NOTHING) {
        if (c->state == OPEN_THINKING) {
            send_event(c->j, "content_block_delta",
                       json_pack("{s:i, s:{s:s, s:s}}", "index", c->item, "delta", "type",
                                 "signature_delta", "signature", ""));
        }
        send_event(c->j, "content_block_stop", json_pack("{s:i}", "index", c->item));
        c->state = OPEN_NOTHING;
    }
}

/* block is taken over. */
static void open_block(choice *c, int what, json_t *block) {
    close_block(c);
    c->item++;
    c->state = what;
    send_event(c->j, "content_block_start",
               json_pack("{s:i, s:o}", "index", c->item, "content_block", block));
}

static void send_delta(choice *c, const char *type, const char *name, const char *text,
                       size_t bytes) {
    send_event(c->j, "content_block_delta",
               json_pack("{s:i, s:{s:s, s:o}}", "index", c->item, "delta", "type", type, name,
                         json_stringn(text, bytes)));
}

static void send_text(choice *c, const char *text, size_t bytes) {
    if (c->state != OPEN_TEXT) {
        open_block(c, OPEN_TEXT, json_pack("{s:s, s:s}", "type", "text", "text", ""));
    }
    send_delta(c, "text_delta", "text", text, bytes);
}

static void send_reasoning(choice *c, const char *text, size_t bytes) {
    if (c->state != OPEN_THINKING) {
        open_block(
            c, OPEN_THINKING,
            json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""));
    }
    send_delta(c, "thinking_delta", "thinking", text, bytes);
}

static void begin_call(choice *c, call *k) {
    open_block(c, OPEN_CALL,
               json_pack("{s:s, s:s, s:s, s:{}}", "type", "tool_use", "id", k->id, "name", k->name,
                         "input"));
}

static void send_arguments(choice *c, call *k, const char *text, size_t bytes) {
    (void)k;
    send_delta(c, "input_json_delta", "partial_json", text, bytes);
}

static void end_call(choice *c, call *k) {
    (void)k;
    close_block(c);
}

static void finish(choice *c) { close_block(c); }

static void end(job *j) {
    const choice *c = &j->choices[0];
    send_event(j, "message_delta",
               json_pack("{s:{s:s, s:s?}, s:o}", "delta", "stop_reason", reason_of(c),
                         "stop_sequence", c->stop_text, "usage", usage_of(j)));
    send_event(j, "message_stop", json_object());
}

static void fail(job *j, const fault *f) {
    job_event(j, "error", reply_fault_object(FORM_MESSAGES, f));
}

static json_t *count(job *j) {
    gw_chat_text text = {0};
    if (job_chat_text(j, 1, &text) != 0) {
        return NULL;
    }
    json_t *answer = json_pack("{s:I}", "input_tokens", (json_int_t)text.n_ids);
    gw_chat_text_free(&text);
    return answer;
}

static const api messages_api = {
    .id_prefix = "msg_",
    .read = read_request,
    .begin = begin,
    .text = send_text,
    .reasoning = send_reasoning,
    .call_begin = begin_call,
    .call_arguments = send_arguments,
    .call_end = end_call,
    .finish = finish,
    .end = end,
    .fail = fail,
    .whole = whole,
};
static const api count_api = {.id_prefix = "msg_", .read = read_chat, .run = count};

static void answer(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &messages_api);
}

static void answer_count(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &count_api);
}

const route routes_messages[] = {
    {"POST", "/v1/messages", 0, FORM_MESSAGES, answer},
    {"POST", "/v1/messages/count_tokens", 0, FORM_MESSAGES, answer_count},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
