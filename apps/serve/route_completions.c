/* apps/serve/route_completions.c - OpenAI's completions: a text goes on. With echo and logprobs the
 * probabilities of the prompt's own tokens are shown too, as programs that score texts want it. */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/fill.h"
#include "apps/serve/job.h"
#include "apps/serve/routes.h"

/* "logprobs": how many others are shown, or true for none. */
static int read_logprobs(ask *a, const json_t *body, fault *f) {
    const json_t *given = json_object_get(body, "logprobs");
    int64_t top = -1;
    if (json_is_boolean(given)) {
        a->logprobs = json_is_true(given);
        return 0;
    }
    if (ask_int(body, "logprobs", 0, ASK_TOP_MAX, &top, f) != 0) {
        return -1;
    }
    a->logprobs = top >= 0;
    a->top = top > 0 ? (int)top : 0;
    return 0;
}

static int read_request(job *j, const json_t *body, fault *f) {
    ask *a = &j->ask;
    int64_t n = 1, best = 1;
    const json_t *options = json_object_get(body, "stream_options");
    a->max_tokens = 16; /* as OpenAI's */
    if (fill_read_suffix(a, body, f) != 0 || ask_text(body, "model", &a->model, f) != 0 ||
        ask_read_common(a, body, f) != 0 || ask_int(body, "n", 1, ASK_CHOICES_MAX, &n, f) != 0 ||
        ask_int(body, "best_of", 1, ASK_CHOICES_MAX, &best, f) != 0 ||
        ask_int(body, "n_predict", -1, INT32_MAX, &a->max_tokens, f) != 0 ||
        ask_int(body, "max_tokens", -1, INT32_MAX, &a->max_tokens, f) != 0 ||
        ask_bool(body, "echo", &a->echo, f) != 0 || read_logprobs(a, body, f) != 0 ||
        ask_bool(options, "include_usage", &a->usage, f) != 0 ||
        ask_bool(body, "return_tokens", &a->return_tokens, f) != 0 ||
        ask_read_format(a, json_object_get(body, "response_format"), "response_format", f) != 0 ||
        ask_read_grammar(a, body, f) != 0) {
        return -1;
    }
    if (best > n) {
        return fault_set(f, 400, "best_of",
                         "best_of: of %lld answers the best %lld cannot be "
                         "chosen here: ask for n of them",
                         (long long)best, (long long)n);
    }
    if (a->max_tokens == 0 && !a->echo) {
        return fault_set(f, 400, "max_tokens", "max_tokens: 0 makes sense with \"echo\" only");
    }
    a->n = (int)n;
    a->given = json_object_get(body, "prompt");
    if (a->given == NULL || json_is_null(a->given)) {
        return fault_set(f, 400, "prompt",
                         "prompt: a text, a list of token ids, or a list of "
                         "these is needed");
    }
    return 0;
}

/* ---- the prompt's text ----------------------------------------------------------------------- */

/* As it came, or what its tokens spell; without a start token that the model puts there. */
static json_t *prompt_text(const job *j, size_t prompt) {
    const json_t *given = j->ask.given;
    const ask_prompt *p = &j->ask.prompts[prompt];
    if (json_is_array(given) && !json_is_integer(json_array_get(given, 0))) {
        given = json_array_get(given, prompt);
    }
    if (json_is_string(given)) {
        return json_incref((json_t *)(uintptr_t)given);
    }
    char *text = NULL;
    size_t bytes = 0;
    size_t skip = p->n > 1 && p->ids[0] == gw_token_bos(j->m->gw);
    if (gw_detokenize(j->m->gw, p->ids + skip, p->n - skip, 1, &text, &bytes) != GW_OK) {
        return json_string("");
    }
    json_t *shown = json_stringn(text, bytes);
    gw_free(text);
    return shown != NULL ? shown : json_string("");
}

/* ---- the whole answer ------------------------------------------------------------------------ */

static json_t *whole_choice(choice *c) {
    job *j = c->j;
    json_t *text = job_text(&c->text), *probs = json_null();
    if (j->ask.echo) {
        json_t *prompt = prompt_text(j, c->prompt);
        json_t *both = json_sprintf("%s%s", json_string_value(prompt), json_string_value(text));
        json_decref(prompt);
        json_decref(text);
        text = both;
    }
    if (j->ask.logprobs) {
        size_t offset = 0;
        probs = choice_probs_legacy(c, &c->probs_sent, &offset, json_string_value(text));
    }
    json_t *one = json_pack("{s:i, s:o, s:o, s:s}", "index", c->index, "text", text, "logprobs",
                            probs, "finish_reason", choice_reason(c));
    if (j->ask.return_tokens) {
        json_t *ids = json_array();
        for (size_t i = 0; i < c->n_tokens; i++) {
            json_array_append_new(ids, json_integer(c->tokens[i]));
        }
        json_object_set_new(one, "token_ids", ids);
    }
    return one;
}

static json_t *whole(job *j) {
    json_t *answer = job_object(j, "text_completion"), *choices = json_array();
    for (size_t i = 0; i < j->n_choices; i++) {
        json_array_append_new(choices, whole_choice(&j->choices[i]));
    }
    json_object_set_new(answer, "choices", choices);
    json_object_set_new(answer, "usage", job_usage(j));
    json_object_set_new(answer, "timings", job_timings(j));
    json_object_set_new(answer, "seed", json_integer((json_int_t)j->ask.sampler.seed));
    return answer;
}

/* ---- a stream -------------------------------------------------------------------------------- */

/* The choice's `state` counts the characters that have been sent. text is taken over. */
static void send_piece(choice *c, json_t *text, const char *reason) {
    job *j = c->j;
    json_t *event = job_object(j, "text_completion"), *probs = json_null();
    if (j->ask.logprobs && c->probs_sent < c->n_probs) {
        size_t offset = (size_t)c->state;
        probs = choice_probs_legacy(c, &c->probs_sent, &offset, NULL);
        c->state = (int)offset;
    }
    json_object_set_new(event, "choices",
                        json_pack("[{s:i, s:o, s:o, s:s?}]", "index", c->index, "text", text,
                                  "logprobs", probs, "finish_reason", reason));
    job_event(j, NULL, event);
}

/* The prompt goes first, with what is known of its tokens by then. */
static void send_echo(choice *c) {
    if (c->j->ask.echo && !c->opened) {
        c->opened = 1;
        send_piece(c, prompt_text(c->j, c->prompt), NULL);
    }
}

static void send_text(choice *c, const char *text, size_t bytes) {
    send_echo(c);
    send_piece(c, json_stringn(text, bytes), NULL);
}

static void finish(choice *c) {
    send_echo(c);
    send_piece(c, json_string(""), choice_reason(c));
}

static void end(job *j) {
    if (j->ask.usage || j->ask.timings) {
        json_t *last = job_object(j, "text_completion");
        json_object_set_new(last, "choices", json_array());
        json_object_set_new(last, "usage", job_usage(j));
        json_object_set_new(last, "timings", job_timings(j));
        json_object_set_new(last, "seed", json_integer((json_int_t)j->ask.sampler.seed));
        job_event(j, NULL, last);
    }
    reply_done(j->c);
}

static void fail(job *j, const fault *f) {
    job_event(j, NULL, reply_fault_object(FORM_OPENAI, f));
    reply_done(j->c);
}

static const api completions_api = {
    .id_prefix = "cmpl-",
    .shows_end = 1,
    .read = read_request,
    .text = send_text,
    .finish = finish,
    .end = end,
    .fail = fail,
    .whole = whole,
};

static void answer(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &completions_api);
}

const route routes_completions[] = {
    {"POST", "/v1/completions", 0, FORM_OPENAI, answer},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
