/* apps/serve/route_chat.c - OpenAI's chat completions. */
#include <string.h>

#include "apps/serve/chat_text.h"
#include "apps/serve/job.h"
#include "apps/serve/routes.h"
#include "apps/serve/tools.h"

static int read_logprobs(ask *a, const json_t *body, fault *f) {
    int64_t top = 0;
    if (ask_bool(body, "logprobs", &a->logprobs, f) != 0 ||
        ask_int(body, "top_logprobs", 0, ASK_TOP_MAX, &top, f) != 0) {
        return -1;
    }
    if (top > 0 && !a->logprobs) {
        return fault_set(f, 400, "top_logprobs", "top_logprobs needs \"logprobs\": true");
    }
    a->top = (int)top;
    return 0;
}

/* max_completion_tokens is the newer name of max_tokens; n_predict is llama-server's. */
static int read_limit(ask *a, const json_t *body, fault *f) {
    return ask_int(body, "n_predict", -1, INT32_MAX, &a->max_tokens, f) != 0 ||
                   ask_int(body, "max_tokens", -1, INT32_MAX, &a->max_tokens, f) != 0 ||
                   ask_int(body, "max_completion_tokens", -1, INT32_MAX, &a->max_tokens, f) != 0
               ? -1
               : 0;
}

static int read_rest(ask *a, const json_t *body, fault *f) {
    int64_t n = 1, priority = 0;
    const char *format = NULL, *tier = NULL;
    const json_t *options = json_object_get(body, "stream_options");
    if (ask_int(body, "n", 1, ASK_CHOICES_MAX, &n, f) != 0 ||
        ask_int(body, "priority", -100, 100, &priority, f) != 0 ||
        ask_text(body, "reasoning_format", &format, f) != 0 ||
        ask_bool(options, "include_usage", &a->usage, f) != 0 ||
        ask_bool(body, "return_progress", &a->progress, f) != 0) {
        return -1;
    }
    tier = json_string_value(json_object_get(body, "service_tier"));
    a->n = (int)n;
    a->priority = tier != NULL && strcmp(tier, "flex") == 0 ? -1 : (int32_t)priority;
    a->plain_reasoning = format != NULL && strcmp(format, "none") == 0;
    return 0;
}

static int read_request(job *j, const json_t *body, fault *f) {
    static const ask_refusal refused[] = {
        {"audio", NULL},     {"prediction", NULL},          {"modalities", "[\"text\"]"},
        {"functions", "[]"}, {"function_call", "\"none\""}, {"web_search_options", NULL},
        {NULL, NULL}};
    ask *a = &j->ask;
    if (ask_refuse(body, refused, f) != 0 || ask_text(body, "model", &a->model, f) != 0 ||
        ask_read_common(a, body, f) != 0 || read_limit(a, body, f) != 0 ||
        read_logprobs(a, body, f) != 0 || read_rest(a, body, f) != 0 ||
        ask_read_format(a, json_object_get(body, "response_format"), "response_format", f) != 0 ||
        ask_read_grammar(a, body, f) != 0 || tools_read(a, body, f) != 0) {
        return -1;
    }
    json_t *messages = chat_text_messages(a, json_object_get(body, "messages"), f);
    return messages != NULL ? chat_text_read(a, body, messages, f) : -1;
}

/* ---- the whole answer ------------------------------------------------------------------------ */

static json_t *call_object(const call *k) {
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", k->id, "type", "function", "function",
                     "name", k->name, "arguments", job_text(&k->arguments));
}

static json_t *message_of(const choice *c) {
    json_t *message = json_pack("{s:s}", "role", "assistant");
    json_t *calls = json_array();
    for (size_t i = 0; i < c->n_calls; i++) {
        if (!c->calls[i].broken) {
            json_array_append_new(calls, call_object(&c->calls[i]));
        }
    }
    int only_calls = c->text.n == 0 && json_array_size(calls) > 0;
    json_object_set_new(message, "content", only_calls ? json_null() : job_text(&c->text));
    if (c->reasoning.n > 0) {
        json_object_set_new(message, "reasoning_content", job_text(&c->reasoning));
        json_object_set_new(message, "reasoning", job_text(&c->reasoning));
    }
    if (json_array_size(calls) > 0) {
        json_object_set(message, "tool_calls", calls);
    }
    json_decref(calls);
    return message;
}

static json_t *whole(job *j) {
    json_t *answer = job_object(j, "chat.completion"), *choices = json_array();
    for (size_t i = 0; i < j->n_choices; i++) {
        choice *c = &j->choices[i];
        json_t *probs = NULL;
        if (j->ask.logprobs) {
            probs = json_pack("{s:o, s:n}", "content", choice_probs(c, &c->probs_sent), "refusal");
        }
        json_array_append_new(choices, json_pack("{s:i, s:o, s:o, s:s}", "index", c->index,
                                                 "message", message_of(c), "logprobs",
                                                 probs != NULL ? probs : json_null(),
                                                 "finish_reason", choice_reason(c)));
    }
    json_object_set_new(answer, "choices", choices);
    json_object_set_new(answer, "usage", job_usage(j));
    json_object_set_new(answer, "timings", job_timings(j));
    json_object_set_new(answer, "seed", json_integer((json_int_t)j->ask.sampler.seed));
    return answer;
}

/* ---- a stream -------------------------------------------------------------------------------- */

static json_t *chunk(job *j, json_t *choices) {
    json_t *c = job_object(j, "chat.completion.chunk");
    json_object_set_new(c, "choices", choices);
    return c;
}

/* delta is taken over. */
static void send_delta(choice *c, json_t *delta, const char *reason) {
    job *j = c->j;
    json_t *one =
        json_pack("{s:i, s:o, s:s?}", "index", c->index, "delta", delta, "finish_reason", reason);
    if (j->ask.logprobs && c->probs_sent < c->probs_settled) {
        json_object_set_new(one, "logprobs",
                            json_pack("{s:o}", "content", choice_probs(c, &c->probs_sent)));
    }
    job_event(j, NULL, chunk(j, json_pack("[o]", one)));
}

static void begin(job *j) {
    for (size_t i = 0; i < j->n_choices; i++) {
        send_delta(&j->choices[i], json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
                   NULL);
    }
}

static void send_text(choice *c, const char *text, size_t bytes) {
    send_delta(c, json_pack("{s:o}", "content", json_stringn(text, bytes)), NULL);
}

static void send_reasoning(choice *c, const char *text, size_t bytes) {
    send_delta(c,
               json_pack("{s:o, s:o}", "reasoning_content", json_stringn(text, bytes), "reasoning",
                         json_stringn(text, bytes)),
               NULL);
}

static int call_index(const choice *c, const call *k) { return (int)(k - c->calls); }

static void begin_call(choice *c, call *k) {
    send_delta(c,
               json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:s}}]}", "tool_calls", "index",
                         call_index(c, k), "id", k->id, "type", "function", "function", "name",
                         k->name, "arguments", ""),
               NULL);
}

static void send_arguments(choice *c, call *k, const char *text, size_t bytes) {
    send_delta(c,
               json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", call_index(c, k),
                         "function", "arguments", json_stringn(text, bytes)),
               NULL);
}

static void progress(job *j, int32_t read, int32_t prompt, int32_t cached) {
    if (j->ask.progress) {
        json_t *c = chunk(j, json_array());
        json_object_set_new(c, "prompt_progress",
                            json_pack("{s:i, s:i, s:i, s:f}", "total", (int)prompt, "cache",
                                      (int)cached, "processed", (int)read, "time_ms",
                                      1000 * (app_seconds() - j->began)));
        job_event(j, NULL, c);
    }
}

static void finish(choice *c) { send_delta(c, json_object(), choice_reason(c)); }

static void end(job *j) {
    json_t *last = chunk(j, json_array());
    if (j->ask.usage || j->ask.timings) {
        json_object_set_new(last, "usage", job_usage(j));
        json_object_set_new(last, "timings", job_timings(j));
        json_object_set_new(last, "seed", json_integer((json_int_t)j->ask.sampler.seed));
        job_event(j, NULL, last);
    } else {
        json_decref(last);
    }
    reply_done(j->c);
}

static void fail(job *j, const fault *f) {
    job_event(j, NULL, reply_fault_object(FORM_OPENAI, f));
    reply_done(j->c);
}

static const api chat_api = {
    .id_prefix = "chatcmpl-",
    .read = read_request,
    .begin = begin,
    .text = send_text,
    .reasoning = send_reasoning,
    .call_begin = begin_call,
    .call_arguments = send_arguments,
    .progress = progress,
    .finish = finish,
    .end = end,
    .fail = fail,
    .whole = whole,
};

static void answer(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &chat_api);
}

const route routes_chat[] = {
    {"POST", "/v1/chat/completions", 0, FORM_OPENAI, answer},
    {"POST", "/chat/completions", 0, FORM_OPENAI, answer},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
