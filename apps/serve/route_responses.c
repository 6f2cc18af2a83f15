/* apps/serve/route_responses.c - OpenAI's responses. Nothing is stored: each request brings all of
 * its conversation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/chat_text.h"
#include "apps/serve/job.h"
#include "apps/serve/routes.h"
#include "apps/serve/tools.h"

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
    const char *space = json_string_value(json_object_get(item, "namespace"));
    json_t *arguments = json_object_get(item, "arguments");
    char *offered = space != NULL && name != NULL ? tools_joined(space, name) : NULL;
    if (calls == NULL) {
        calls = json_array();
        json_object_set_new(message, "tool_calls", calls);
    }
    name = offered != NULL ? offered : name;
    json_array_append_new(
        calls, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id != NULL ? id : "", "type", "function",
                         "function", "name", name != NULL ? name : "", "arguments",
                         json_is_string(arguments) ? json_incref(arguments) : json_string("")));
    free(offered);
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
        const json_t *said = json_object_get(part, "text");
        text_add(&text, json_is_string(said) ? json_string_value(said) : "",
                 json_string_length(said));
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

/* numbers: for each message the item that its content is from. */
static int read_items(json_t *messages, const json_t *input, json_t *numbers, fault *f) {
    size_t i;
    const json_t *item;
    json_array_foreach(input, i, item) {
        const char *type = json_string_value(json_object_get(item, "type"));
        if (type == NULL || strcmp(type, "message") == 0) {
            if (add_message(messages, item, i, f) != 0) {
                return -1;
            }
            if (json_array_size(numbers) == json_array_size(messages)) { /* it goes on */
                json_array_remove(numbers, json_array_size(numbers) - 1);
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
        if (json_array_size(numbers) < json_array_size(messages)) {
            json_array_append_new(numbers, json_integer((json_int_t)i));
        }
    }
    return 0;
}

/* "messages[2].content" is "input[1].content" to the client. */
static void name_item(char *text, size_t room, const json_t *numbers) {
    size_t number = 0;
    int end = 0;
    if (sscanf(text, "messages[%zu]%n", &number, &end) == 1 && end > 0) {
        json_int_t item = json_integer_value(json_array_get(numbers, number));
        char *rest = strdup(text + end);
        snprintf(text, room, "input[%lld]%s", (long long)item, rest != NULL ? rest : "");
        free(rest);
    }
}

static json_t *read_messages(ask *a, const json_t *messages, const json_t *numbers, fault *f) {
    json_t *read = chat_text_messages(a, messages, f);
    name_item(f->text, sizeof f->text, numbers);
    for (size_t i = 0; i < a->pictures.n; i++) {
        name_item(a->pictures.at[i].field, sizeof a->pictures.at[i].field, numbers);
    }
    return read;
}

static json_t *read_input(ask *a, const json_t *body, fault *f) {
    json_t *messages = json_array(), *input = json_object_get(body, "input");
    json_t *numbers = json_array();
    json_t *instructions = json_object_get(body, "instructions");
    if (json_is_string(instructions)) {
        json_array_append_new(messages,
                              json_pack("{s:s, s:O}", "role", "system", "content", instructions));
        json_array_append_new(numbers, json_null());
    }
    if (json_is_string(input)) {
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
    } else if (!json_is_array(input)) {
        fault_set(f, 400, "input", "input: a text or a list of items is needed");
    } else {
        read_items(messages, input, numbers, f);
    }
    json_t *read = f->status == 0 ? read_messages(a, messages, numbers, f) : NULL;
    json_decref(messages);
    json_decref(numbers);
    return read;
}

/* What the prompt is made of. */
static int read_prompt(job *j, const json_t *body, fault *f) {
    static const ask_refusal refused[] = {{"previous_response_id", NULL},
                                          {"conversation", NULL},
                                          {"prompt", NULL},
                                          {"background", "false"},
                                          {NULL, NULL}};
    ask *a = &j->ask;
    json_t *messages = NULL;
    if (ask_refuse(body, refused, f) != 0 || ask_text(body, "model", &a->model, f) != 0 ||
        tools_read(a, body, f) != 0 || (messages = read_input(a, body, f)) == NULL ||
        chat_text_read(a, body, messages, f) != 0) {
        return -1;
    }
    const json_t *reasoning = json_object_get(body, "reasoning");
    const char *effort = json_string_value(json_object_get(reasoning, "effort"));
    if (effort != NULL) {
        json_object_set_new(a->chat, "reasoning_effort", json_string(effort));
        json_object_set_new(a->chat, "enable_thinking", json_boolean(strcmp(effort, "none") != 0));
    }
    return 0;
}

static int read_request(job *j, const json_t *body, fault *f) {
    ask *a = &j->ask;
    int64_t top = 0;
    if (ask_read_common(a, body, f) != 0 ||
        ask_int(body, "max_output_tokens", 1, INT32_MAX, &a->max_tokens, f) != 0 ||
        ask_int(body, "top_logprobs", 0, ASK_TOP_MAX, &top, f) != 0 ||
        ask_read_format(a, json_object_get(json_object_get(body, "text"), "format"), "text.format",
                        f) != 0 ||
        ask_read_grammar(a, body, f) != 0) {
        return -1;
    }
    a->top = (int)top;
    a->logprobs = top > 0;
    return read_prompt(j, body, f);
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

/* A call that the end cut off says so. Of a namespace's function Codex wants both names. */
static json_t *call_item(const choice *c, const call *k, int number, int done) {
    const char *name, *space = tools_split(&c->j->ask, k->name, &name);
    json_t *item =
        json_pack("{s:s, s:o, s:s, s:s, s:o, s:s}", "type", "function_call", "id",
                  item_id(c->j, "fc", number), "call_id", k->id, "name", name, "arguments",
                  done ? job_text(&k->arguments) : json_string(""), "status",
                  !done      ? "in_progress"
                  : k->whole ? "completed"
                             : "incomplete");
    if (space != NULL) {
        json_object_set_new(item, "namespace", json_string(space));
    }
    return item;
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

static const char *const echoed[] = {"instructions", "tools",    "tool_choice",
                                     "text",         "metadata", NULL};

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
    .echoed = echoed,
};

static json_t *count(job *j) {
    gw_chat_text text = {0};
    if (job_chat_text(j, 1, &text) != 0) {
        return NULL;
    }
    json_t *answer = json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                               (json_int_t)text.n_ids);
    gw_chat_text_free(&text);
    return answer;
}

static const api count_api = {.id_prefix = "resp_", .read = read_prompt, .run = count};

static void answer(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &responses_api);
}

static void answer_count(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &count_api);
}

const route routes_responses[] = {
    {"POST", "/v1/responses", 0, FORM_RESPONSES, answer},
    {"POST", "/responses", 0, FORM_RESPONSES, answer},
    {"POST", "/v1/responses/input_tokens", 0, FORM_RESPONSES, answer_count},
    {"POST", "/responses/input_tokens", 0, FORM_RESPONSES, answer_count},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
