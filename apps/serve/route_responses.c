/* apps/serve/route_responses.c - OpenAI's responses. Nothing is stored: each request brings all of
 * its conversation. */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/chat_text.h"
#include "apps/serve/job.h"
#include "apps/serve/routes.h"

/* ---- the request ----------------------------------------------------------------------------- */

/* The assistant's message that goes on with what is read; a new one where the last is another's. */
static json_t *own_message(json_t *messages) {
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (role == NULL || strcmp(role, "assistant") != 0) {
        last = json_pack("{s:s, s:n}", "role", "assistant", "content");
        json_array_append_new(messages, last);
    }
    return last;
}

static void add_call(json_t *messages, const json_t *item) {
    json_t *message = own_message(messages), *calls = json_object_get(message, "tool_calls");
    const char *name = json_string_value(json_object_get(item, "name"));
    const char *id = json_string_value(json_object_get(item, "call_id"));
    const char *arguments = json_string_value(json_object_get(item, "arguments"));
    if (calls == NULL) {
        calls = json_array();
        json_object_set_new(message, "tool_calls", calls);
    }
    json_array_append_new(calls,
                          json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id != NULL ? id : "", "type",
                                    "function", "function", "name", name != NULL ? name : "",
                                    "arguments", arguments != NULL ? arguments : ""));
}

static void add_result(json_t *messages, const json_t *item) {
    const char *id = json_string_value(json_object_get(item, "call_id"));
    json_t *output = json_object_get(item, "output");
    json_array_append_new(
        messages, json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id != NULL ? id : "",
                            "content", output != NULL ? json_incref(output) : json_string("")));
}

static void add_reasoning(json_t *messages, const json_t *item) {
    const json_t *parts = json_object_get(item, "content"), *part;
    size_t i;
    text_buffer text = {0};
    if (json_array_size(parts) == 0) {
        parts = json_object_get(item, "summary");
    }
    json_array_foreach(parts, i, part) {
        const char *said = json_string_value(json_object_get(part, "text"));
        text_add(&text, said != NULL ? said : "", said != NULL ? strlen(said) : 0);
    }
    if (text.n > 0) {
        json_t *message = json_pack("{s:s, s:n, s:o}", "role", "assistant", "content",
                                    "reasoning_content", job_text(&text));
        json_array_append_new(messages, message);
    }
    free(text.at);
}

/* A message, also one that goes on with the reasoning or calls before it. */
static int add_message(json_t *messages, const json_t *item, size_t number, fault *f) {
    const char *role = json_string_value(json_object_get(item, "role"));
    json_t *content = json_object_get(item, "content");
    if (role == NULL) {
        return fault_set(f, 400, "input",
                         "input[%zu]: an item with a \"type\" or a \"role\" is "
                         "needed",
                         number);
    }
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (strcmp(role, "assistant") == 0 && json_is_null(json_object_get(last, "content"))) {
        json_object_set(last, "content", content);
        return 0;
    }
    return json_array_append_new(messages,
                                 json_pack("{s:s, s:O?}", "role", role, "content", content)) == 0
               ? 0
               : fault_set(f, 503, NULL, "out of memory");
}

static int read_items(json_t *messages, const json_t *input, fault *f) {
    size_t i;
    const json_t *item;
    json_array_foreach(input, i, item) {
        const char *type = json_string_value(json_object_get(item, "type"));
        if (type == NULL || strcmp(type, "message") == 0) {
            if (add_message(messages, item, i, f) != 0) {
                return -1;
            }
        } else if (strcmp(type, "function_call") == 0) {
            add_call(messages, item);
        } else if (strcmp(type, "function_call_output") == 0) {
            add_result(messages, item);
        } else if (strcmp(type, "reasoning") == 0) {
            add_reasoning(messages, item);
        } else {
            return fault_set(f, 400, "input",
                             "input[%zu]: an item of type '%.40s' cannot be read "
                             "here",
                             i, type);
        }
    }
    return 0;
}

static json_t *read_input(const json_t *body, fault *f) {
    json_t *messages = json_array(), *input = json_object_get(body, "input");
    json_t *instructions = json_object_get(body, "instructions");
    if (json_is_string(instructions)) {
        json_array_append_new(messages,
                              json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    }
    if (json_is_string(input)) {
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
    } else if (!json_is_array(input)) {
        fault_set(f, 400, "input", "input: a text or a list of items is needed");
    } else {
        read_items(messages, input, f);
    }
    json_t *read = f->status == 0 ? chat_text_messages(messages, f) : NULL;
    json_decref(messages);
    return read;
}

/* Tools and the choice of one are flat here. */
static int read_tools(ask *a, const json_t *body, fault *f) {
    const json_t *list = json_object_get(body, "tools"), *tool;
    json_t *wanted = json_object_get(body, "tool_choice");
    const char *named = json_string_value(json_object_get(wanted, "name"));
    size_t i;
    json_array_foreach(list, i, tool) {
        const char *type = json_string_value(json_object_get(tool, "type"));
        const char *name = json_string_value(json_object_get(tool, "name"));
        if (type == NULL || strcmp(type, "function") != 0) {
            continue; /* what the client or OpenAI's own server would run */
        }
        if (name == NULL || name[0] == '\0') {
            return fault_set(f, 400, "tools", "tools[%zu].name: a name is needed", i);
        }
        if (chat_text_add_tool(a, name, json_object_get(tool, "description"),
                               json_object_get(tool, "parameters")) != 0) {
            return fault_set(f, 503, NULL, "out of memory");
        }
    }
    json_t *rest = json_object();
    if (json_is_string(wanted)) {
        json_object_set(rest, "tool_choice", wanted);
    } else if (named != NULL) {
        json_object_set_new(
            rest, "tool_choice",
            json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", named));
    }
    json_object_set(rest, "parallel_tool_calls", json_object_get(body, "parallel_tool_calls"));
    int code = chat_text_tools(a, rest, f);
    json_decref(rest);
    return code;
}

static int read_request(job *j, const json_t *body, fault *f) {
    static const ask_refusal refused[] = {{"previous_response_id", NULL},
                                          {"conversation", NULL},
                                          {"prompt", NULL},
                                          {"background", "false"},
                                          {NULL, NULL}};
    ask *a = &j->ask;
    int64_t top = 0;
    const json_t *reasoning = json_object_get(body, "reasoning");
    if (ask_refuse(body, refused, f) != 0 || ask_text(body, "model", &a->model, f) != 0 ||
        ask_read_common(a, body, f) != 0 ||
        ask_int(body, "max_output_tokens", 1, INT32_MAX, &a->max_tokens, f) != 0 ||
        ask_int(body, "top_logprobs", 0, ASK_TOP_MAX, &top, f) != 0 ||
        ask_read_format(a, json_object_get(json_object_get(body, "text"), "format"), "text.format",
                        f) != 0 ||
        ask_read_grammar(a, body, f) != 0 || read_tools(a, body, f) != 0) {
        return -1;
    }
    a->top = (int)top;
    a->logprobs = top > 0;
    json_t *messages = read_input(body, f);
    if (messages == NULL || chat_text_read(a, body, messages, f) != 0) {
        return -1;
    }
    const char *effort = json_string_value(json_object_get(reasoning, "effort"));
    if (effort != NULL) {
        json_object_set_new(a->chat, "reasoning_effort", json_string(effort));
        json_object_set_new(a->chat, "enable_thinking", json_boolean(strcmp(effort, "none") != 0));
    }
    return 0;
}

/* ---- items of the answer --------------------------------------------------------------------- */

/* A name for part of the answer: the answer's own, with another beginning and the number. */
static json_t *item_id(const job *j, const char *prefix, int number) {
    return json_sprintf("%s_%s%02d", prefix, j->id + strlen("resp_"), number);
}

static json_t *reasoning_item(const choice *c, int number, int done) {
    return json_pack(
        "{s:s, s:o, s:[], s:[o*], s:s}", "type", "reasoning", "id", item_id(c->j, "rs", number),
        "summary", "content",
        done ? json_pack("{s:s, s:o}", "type", "reasoning_text", "text", job_text(&c->reasoning))
             : NULL,
        "status", done ? "completed" : "in_progress");
}

static json_t *text_part(const choice *c, int done) {
    return json_pack("{s:s, s:o, s:[]}", "type", "output_text", "text",
                     done ? job_text(&c->text) : json_string(""), "annotations");
}

static const char *status_of(const choice *c) {
    return c->why == GW_FINISH_LENGTH ? "incomplete" : "completed";
}

static json_t *message_item(choice *c, int number, int done) {
    json_t *part = done ? text_part(c, 1) : NULL;
    if (part != NULL && c->n_probs > 0) {
        size_t from = 0;
        json_object_set_new(part, "logprobs", choice_probs(c, &from));
    }
    return json_pack("{s:s, s:o, s:s, s:s, s:[o*]}", "type", "message", "id",
                     item_id(c->j, "msg", number), "status", done ? status_of(c) : "in_progress",
                     "role", "assistant", "content", part);
}

static json_t *call_item(const choice *c, const call *k, int number, int done) {
    return json_pack("{s:s, s:o, s:s, s:s, s:o, s:s}", "type", "function_call", "id",
                     item_id(c->j, "fc", number), "call_id", k->id, "name", k->name, "arguments",
                     done ? job_text(&k->arguments) : json_string(""), "status",
                     done ? "completed" : "in_progress");
}

static json_t *output_of(choice *c) {
    json_t *list = json_array();
    int number = 0;
    if (c->reasoning.n > 0) {
        json_array_append_new(list, reasoning_item(c, number++, 1));
    }
    if (c->text.n > 0 || c->calls_made == 0) {
        json_array_append_new(list, message_item(c, number++, 1));
    }
    for (size_t i = 0; i < c->n_calls; i++) {
        if (!c->calls[i].broken) {
            json_array_append_new(list, call_item(c, &c->calls[i], number++, 1));
        }
    }
    return list;
}

static json_t *given_or(const job *j, const char *name, json_t *otherwise) {
    json_t *given = json_object_get(j->ask.root, name);
    if (given == NULL) {
        return otherwise;
    }
    json_decref(otherwise);
    return json_incref(given);
}

/* output is taken over; status "in_progress", "completed", "incomplete" or "failed". */
static json_t *response(job *j, const char *status, json_t *output) {
    int ended = strcmp(status, "in_progress") != 0;
    json_t *all = json_pack(
        "{s:s, s:s, s:I, s:s, s:n, s:o, s:o, s:s, s:o, s:b, s:f, s:f, s:o, s:o, s:o, s:o, s:n, "
        "s:b}",
        "id", j->id, "object", "response", "created_at", (json_int_t)j->created, "status", status,
        "error", "incomplete_details",
        strcmp(status, "incomplete") == 0 ? json_pack("{s:s}", "reason", "max_output_tokens")
                                          : json_null(),
        "instructions", given_or(j, "instructions", json_null()), "model", job_model(j), "output",
        output, "parallel_tool_calls", !j->ask.one_call, "temperature",
        (double)j->ask.sampler.temperature, "top_p", (double)j->ask.sampler.top_p, "tools",
        given_or(j, "tools", json_array()), "tool_choice",
        given_or(j, "tool_choice", json_string("auto")), "text",
        given_or(j, "text", json_pack("{s:{s:s}}", "format", "type", "text")), "metadata",
        given_or(j, "metadata", json_object()), "previous_response_id", "store", 0);
    json_object_set_new(
        all, "usage",
        !ended ? json_null()
               : json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens",
                           (json_int_t)j->n_prompt, "input_tokens_details", "cached_tokens",
                           (json_int_t)j->n_cached, "output_tokens", (json_int_t)j->n_generated,
                           "output_tokens_details", "reasoning_tokens", (json_int_t)j->n_reasoning,
                           "total_tokens", (json_int_t)(j->n_prompt + j->n_generated)));
    if (ended) {
        json_object_set_new(all, "seed", json_integer((json_int_t)j->ask.sampler.seed));
    }
    return all;
}

static json_t *whole(job *j) {
    choice *c = &j->choices[0];
    return response(j, status_of(c), output_of(c));
}

/* ---- a stream -------------------------------------------------------------------------------- */

/* What of the answer is open: the choice's state. */
enum { OPEN_NOTHING, OPEN_REASONING, OPEN_TEXT, OPEN_CALL };

/* body is taken over; it gets its type and number. */
static void send_event(job *j, const char *type, json_t *body) {
    json_object_set_new(body, "type", json_string(type));
    json_object_set_new(body, "sequence_number", json_integer(j->number++));
    job_event(j, type, body);
}

static void begin(job *j) {
    send_event(j, "response.created",
               json_pack("{s:o}", "response", response(j, "in_progress", json_array())));
    send_event(j, "response.in_progress",
               json_pack("{s:o}", "response", response(j, "in_progress", json_array())));
}

static json_t *place(choice *c, const char *prefix) {
    return json_pack("{s:o, s:i, s:i}", "item_id", item_id(c->j, prefix, c->item), "output_index",
                     c->item, "content_index", 0);
}

static void close_item(choice *c) {
    job *j = c->j;
    json_t *at, *item = NULL;
    if (c->state == OPEN_REASONING) {
        at = place(c, "rs");
        json_object_set_new(at, "text", job_text(&c->reasoning));
        send_event(j, "response.reasoning_text.done", at);
        item = reasoning_item(c, c->item, 1);
    } else if (c->state == OPEN_TEXT) {
        at = place(c, "msg");
        json_object_set_new(at, "text", job_text(&c->text));
        json_object_set_new(at, "logprobs", json_array());
        send_event(j, "response.output_text.done", at);
        at = place(c, "msg");
        json_object_set_new(at, "part", text_part(c, 1));
        send_event(j, "response.content_part.done", at);
        item = message_item(c, c->item, 1);
    } else if (c->state == OPEN_CALL) {
        const call *k = &c->calls[c->n_calls - 1];
        at = place(c, "fc");
        json_object_set_new(at, "arguments", job_text(&k->arguments));
        send_event(j, "response.function_call_arguments.done", at);
        item = call_item(c, k, c->item, 1);
    }
    if (item != NULL) {
        json_array_append(j->own, item);
        send_event(j, "response.output_item.done",
                   json_pack("{s:i, s:o}", "output_index", c->item, "item", item));
    }
    c->state = OPEN_NOTHING;
}

/* item is taken over. */
static void open_item(choice *c, int what, json_t *item) {
    if (c->j->own == NULL) {
        c->j->own = json_array(); /* items that are whole */
    }
    c->state = what;
    send_event(c->j, "response.output_item.added",
               json_pack("{s:i, s:o}", "output_index", c->item, "item", item));
}

static void send_reasoning(choice *c, const char *text, size_t bytes) {
    if (c->state != OPEN_REASONING) {
        close_item(c);
        c->item++;
        open_item(c, OPEN_REASONING, reasoning_item(c, c->item, 0));
    }
    json_t *at = place(c, "rs");
    json_object_set_new(at, "delta", json_stringn(text, bytes));
    send_event(c->j, "response.reasoning_text.delta", at);
}

static void open_text(choice *c) {
    close_item(c);
    c->item++;
    open_item(c, OPEN_TEXT, message_item(c, c->item, 0));
    json_t *at = place(c, "msg");
    json_object_set_new(at, "part", text_part(c, 0));
    send_event(c->j, "response.content_part.added", at);
}

static void send_text(choice *c, const char *text, size_t bytes) {
    if (c->state != OPEN_TEXT) {
        open_text(c);
    }
    json_t *at = place(c, "msg");
    json_object_set_new(at, "delta", json_stringn(text, bytes));
    json_object_set_new(at, "logprobs", choice_probs(c, &c->probs_sent));
    send_event(c->j, "response.output_text.delta", at);
}

static void begin_call(choice *c, call *k) {
    c->n_calls--; /* the one before is what is open */
    close_item(c);
    c->n_calls++;
    c->item++;
    open_item(c, OPEN_CALL, call_item(c, k, c->item, 0));
}

static void send_arguments(choice *c, call *k, const char *text, size_t bytes) {
    (void)k;
    json_t *at = place(c, "fc");
    json_object_set_new(at, "delta", json_stringn(text, bytes));
    send_event(c->j, "response.function_call_arguments.delta", at);
}

static void end_call(choice *c, call *k) {
    (void)k;
    close_item(c);
}

static void finish(choice *c) {
    if (c->item < 0) {
        open_text(c);
    }
    close_item(c);
}

static void end(job *j) {
    const char *status = status_of(&j->choices[0]);
    json_t *all = response(j, status, json_incref(j->own));
    send_event(j, strcmp(status, "incomplete") == 0 ? "response.incomplete" : "response.completed",
               json_pack("{s:o}", "response", all));
}

static void fail(job *j, const fault *f) {
    json_t *all = response(j, "failed", json_array());
    json_object_set_new(
        all, "error",
        json_pack("{s:s, s:s}", "code", fault_type(f->status, 0), "message", f->text));
    send_event(j, "response.failed", json_pack("{s:o}", "response", all));
}

static const api responses_api = {
    .id_prefix = "resp_",
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

static void answer(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &responses_api);
}

const route routes_responses[] = {
    {"POST", "/v1/responses", 0, FORM_OPENAI, answer},
    {"POST", "/responses", 0, FORM_OPENAI, answer},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
