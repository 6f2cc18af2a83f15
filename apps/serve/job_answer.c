/* apps/serve/job_answer.c - what several APIs write alike: usage, timings, probabilities. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/job.h"
#include "core/base/utf8.h"

const char *choice_reason(const choice *c) {
    if (c->why == GW_FINISH_LENGTH) {
        return "length";
    }
    return c->calls_made > 0 ? "tool_calls" : "stop";
}

const char *job_model(const job *j) {
    return j->called != NULL ? j->called : j->m != NULL ? j->m->id : "";
}
const char *job_fingerprint(void) { return "godwit-" GW_VERSION; }

json_t *job_object(const job *j, const char *object) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", j->id, "object", object, "created",
                     (json_int_t)j->created, "model", job_model(j), "system_fingerprint",
                     job_fingerprint());
}

json_t *job_usage(const job *j) {
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens", (json_int_t)j->n_prompt,
                     "completion_tokens", (json_int_t)j->n_generated, "total_tokens",
                     (json_int_t)(j->n_prompt + j->n_generated), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)j->n_cached, "completion_tokens_details",
                     "reasoning_tokens", (json_int_t)j->n_reasoning);
}

json_t *job_timings(const job *j) {
    double prompt_ms = 1000 * (j->prompt_seconds - j->queued_seconds);
    double made_ms = 1000 * (j->seconds - j->prompt_seconds);
    json_int_t read = (json_int_t)(j->n_prompt - j->n_cached), made = (json_int_t)j->n_generated;
    prompt_ms = prompt_ms > 0 ? prompt_ms : 0;
    made_ms = made_ms > 0 ? made_ms : 0;
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n",
                     (json_int_t)j->n_cached, "prompt_n", read, "prompt_ms", prompt_ms,
                     "prompt_per_token_ms", read > 0 ? prompt_ms / (double)read : 0.0,
                     "prompt_per_second", prompt_ms > 0 ? 1000.0 * (double)read / prompt_ms : 0.0,
                     "predicted_n", made, "predicted_ms", made_ms, "predicted_per_token_ms",
                     made > 0 ? made_ms / (double)made : 0.0, "predicted_per_second",
                     made_ms > 0 ? 1000.0 * (double)made / made_ms : 0.0);
}

void job_event(job *j, const char *name, json_t *body) {
    if (j->c == NULL) {
        json_decref(body);
        return;
    }
    j->last = app_seconds();
    if (j->api->json_lines) {
        reply_line(j->c, body);
    } else {
        reply_event(j->c, name, body);
    }
}

/* ---- probabilities --------------------------------------------------------------------------- */

json_t *job_bytes(const char *text, size_t bytes) {
    json_t *value = json_stringn(text, bytes);
    if (value != NULL) {
        return value;
    }
    char *clean = malloc(3 * bytes + 1);
    value = clean != NULL ? json_stringn(clean, gw_utf8_clean(text, bytes, clean)) : NULL;
    free(clean);
    return value;
}

static json_t *shown(const char *text, size_t bytes) { return job_bytes(text, bytes); }

static json_t *byte_list(const char *text, size_t bytes) {
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < bytes; i++) {
        json_array_append_new(list, json_integer((unsigned char)text[i]));
    }
    return list;
}

/* JSON has no infinity; what cannot come has the logarithm that OpenAI gives it. */
static json_t *logarithm(float x) {
    return isnan(x) ? json_null() : json_real(isfinite(x) ? (double)x : -9999.0);
}

static json_t *one_prob(int32_t token, const char *text, size_t bytes, float logprob) {
    return json_pack("{s:o, s:o, s:o, s:i}", "token", shown(text, bytes), "logprob",
                     logarithm(logprob), "bytes", byte_list(text, bytes), "id", (int)token);
}

json_t *choice_probs(choice *c, size_t *from) {
    json_t *list = json_array();
    for (; list != NULL && *from < c->probs_settled; (*from)++) {
        const token_prob *p = &c->probs[*from];
        if (p->shown == 0 && c->answer != NULL) {
            continue; /* of reasoning, of a mark, a blank that the text does not begin with */
        }
        json_t *entry = one_prob(p->token, p->text + p->shown_from, p->shown, p->logprob);
        json_t *top = json_array();
        for (size_t i = 0; top != NULL && i < p->n_top; i++) {
            json_array_append_new(
                top, one_prob(p->top[i].token, p->top[i].text, p->top[i].bytes, p->top[i].logprob));
        }
        json_object_set_new(entry, "top_logprobs", top);
        json_array_append_new(list, entry);
    }
    return list;
}

/* How many bytes of the text are this token's: none where the text does not show it (a start
 * token), one less where it has dropped the space at its beginning. */
static size_t bytes_in(const char *text, const token_prob *p) {
    if (p->bytes > 0 && strncmp(text, p->text, p->bytes) == 0) {
        return p->bytes;
    }
    int spaced = p->bytes > 1 && p->text[0] == ' ';
    return spaced && strncmp(text, p->text + 1, p->bytes - 1) == 0 ? p->bytes - 1 : 0;
}

json_t *choice_probs_legacy(choice *c, size_t *from, size_t *offset, const char *text) {
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(),
           *offsets = json_array();
    for (; *from < c->n_probs; (*from)++) {
        const token_prob *p = &c->probs[*from];
        json_t *top = isnan(p->logprob) ? json_null() : json_object();
        for (size_t i = 0; i < p->n_top && json_is_object(top); i++) {
            json_t *key = shown(p->top[i].text, p->top[i].bytes);
            const char *name = json_string_value(key);
            if (name != NULL && json_object_get(top, name) == NULL) { /* the likelier counts */
                json_object_set_new(top, name, logarithm(p->top[i].logprob));
            }
            json_decref(key);
        }
        json_array_append_new(tokens, shown(p->text, p->bytes));
        json_array_append_new(logprobs, logarithm(p->logprob));
        json_array_append_new(tops, top);
        json_array_append_new(offsets, json_integer((json_int_t)*offset));
        size_t bytes = text != NULL ? bytes_in(text, p) : p->bytes;
        *offset += gw_utf8_count(text != NULL ? text : p->text, bytes);
        text = text != NULL ? text + bytes : NULL;
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs,
                     "top_logprobs", tops, "text_offset", offsets);
}
