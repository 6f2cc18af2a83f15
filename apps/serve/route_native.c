/* apps/serve/route_native.c - llama-server's own /completion and /infill. */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/fill.h"
#include "apps/serve/job.h"
#include "apps/serve/routes.h"

static int read_fields(job *j, const json_t *body, fault *f) {
    static const ask_refusal refused[] = {
        {"post_sampling_probs", "false"}, {"response_fields", "[]"}, {NULL, NULL}};
    ask *a = &j->ask;
    int64_t probs = 0, n = 1;
    if (ask_refuse(body, refused, f) != 0 || ask_text(body, "model", &a->model, f) != 0 ||
        ask_read_common(a, body, f) != 0 ||
        ask_int(body, "max_tokens", -1, INT32_MAX, &a->max_tokens, f) != 0 ||
        ask_int(body, "n_predict", -2, INT32_MAX, &a->max_tokens, f) != 0 ||
        ask_int(body, "n_probs", 0, ASK_TOP_MAX, &probs, f) != 0 ||
        ask_int(body, "n", 1, ASK_CHOICES_MAX, &n, f) != 0 ||
        ask_bool(body, "return_tokens", &a->return_tokens, f) != 0 ||
        ask_bool(body, "return_progress", &a->progress, f) != 0 ||
        ask_read_format(a, json_object_get(body, "response_format"), "response_format", f) != 0 ||
        ask_read_grammar(a, body, f) != 0) {
        return -1;
    }
    a->n = (int)n;
    a->logprobs = probs > 0;
    a->top = (int)probs;
    return 0;
}

static int read_request(job *j, const json_t *body, fault *f) {
    ask *a = &j->ask;
    if (read_fields(j, body, f) != 0) {
        return -1;
    }
    a->given = json_object_get(body, "prompt");
    if (a->given == NULL || json_is_null(a->given)) {
        return fault_set(f, 400, "prompt",
                         "prompt: a text, a list of token ids, or a list of "
                         "these is needed");
    }
    return 0;
}

static int read_infill(job *j, const json_t *body, fault *f) {
    return fill_read_infill(&j->ask, body, f) == 0 ? read_fields(j, body, f) : -1;
}

/* ---- answers --------------------------------------------------------------------------------- */

static const char *stop_type(const choice *c) {
    return c->why == GW_FINISH_LENGTH ? "limit" : c->stop_text != NULL ? "word" : "eos";
}

static json_t *ids_since(const choice *c, size_t from) {
    json_t *list = json_array();
    for (size_t i = from; i < c->n_tokens; i++) {
        json_array_append_new(list, json_integer(c->tokens[i]));
    }
    return list;
}

/* text is taken over. */
static json_t *part(choice *c, json_t *text, int stop) {
    job *j = c->j;
    size_t n_prompt = j->ask.prompts[c->prompt].n;
    json_t *one = json_pack("{s:i, s:o, s:o, s:b, s:i, s:I, s:I}", "index", c->index, "content",
                            text, "tokens", ids_since(c, (size_t)c->state), "stop", stop, "id_slot",
                            0, "tokens_predicted", (json_int_t)j->n_generated, "tokens_evaluated",
                            (json_int_t)n_prompt);
    c->state = (int)c->n_tokens;
    if (c->probs_sent < c->n_probs) {
        json_object_set_new(one, "completion_probabilities", choice_probs(c, &c->probs_sent));
    }
    return one;
}

static json_t *settings_of(const job *j) {
    const gw_sampler_options *s = &j->ask.sampler;
    return json_pack("{s:I, s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:i, s:b}", "seed",
                     (json_int_t)s->seed, "temperature", (double)s->temperature, "top_k",
                     (int)s->top_k, "top_p", (double)s->top_p, "min_p", (double)s->min_p,
                     "typical_p", (double)s->typical_p, "repeat_penalty", (double)s->repeat_penalty,
                     "presence_penalty", (double)s->presence_penalty, "frequency_penalty",
                     (double)s->frequency_penalty, "n_predict", (json_int_t)j->ask.max_tokens,
                     "n_ctx", (int)j->m->n_ctx, "stream", j->ask.stream);
}

static void add_end(choice *c, json_t *one) {
    job *j = c->j;
    int lines = c->text.n > 0 && memchr(c->text.at, '\n', c->text.n) != NULL;
    json_t *more = json_pack("{s:s, s:o, s:b, s:b, s:s, s:s, s:I, s:o, s:I}", "model", job_model(j),
                             "generation_settings", settings_of(j), "has_new_line", lines,
                             "truncated", j->n_cut > 0, "stop_type", stop_type(c), "stopping_word",
                             c->stop_text != NULL ? c->stop_text : "", "tokens_cached",
                             (json_int_t)j->n_cached, "timings", job_timings(j), "seed",
                             (json_int_t)j->ask.sampler.seed);
    json_object_update(one, more);
    json_decref(more);
}

static json_t *whole(job *j) {
    json_t *list = json_array();
    for (size_t i = 0; i < j->n_choices; i++) {
        choice *c = &j->choices[i];
        json_t *one = part(c, job_text(&c->text), 1);
        add_end(c, one);
        json_array_append_new(list, one);
    }
    if (j->n_choices == 1) {
        json_t *one = json_incref(json_array_get(list, 0));
        json_decref(list);
        return one;
    }
    return list;
}

static void send_text(choice *c, const char *text, size_t bytes) {
    job_event(c->j, NULL, part(c, json_stringn(text, bytes), 0));
}

static void progress(job *j, int32_t read, int32_t prompt, int32_t cached) {
    if (j->ask.progress) {
        job_event(j, NULL,
                  json_pack("{s:s, s:b, s:{s:i, s:i, s:i}}", "content", "", "stop", 0,
                            "prompt_progress", "total", (int)prompt, "cache", (int)cached,
                            "processed", (int)read));
    }
}

/* The last event of a choice tells the times of all: so it waits for them. */
static void end(job *j) {
    for (size_t i = 0; i < j->n_choices; i++) {
        choice *c = &j->choices[i];
        json_t *one = part(c, json_string(""), 1);
        add_end(c, one);
        job_event(j, NULL, one);
    }
}

static void fail(job *j, const fault *f) { job_event(j, NULL, reply_fault_object(FORM_OPENAI, f)); }

static const api native_api = {
    .id_prefix = "cmpl-",
    .read = read_request,
    .text = send_text,
    .progress = progress,
    .end = end,
    .fail = fail,
    .whole = whole,
};

static const api infill_api = {
    .id_prefix = "cmpl-",
    .read = read_infill,
    .text = send_text,
    .progress = progress,
    .end = end,
    .fail = fail,
    .whole = whole,
};

static void answer_infill(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &infill_api);
}

static void answer(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &native_api);
}

const route routes_native[] = {
    {"POST", "/completion", 0, FORM_NATIVE, answer},
    {"POST", "/completions", 0, FORM_NATIVE, answer},
    {"POST", "/infill", 0, FORM_NATIVE, answer_infill},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
