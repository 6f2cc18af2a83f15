/* apps/serve/job_prepare.c - from an ask to tokens, grammars and requests of the engine; on a
 * worker. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/fill.h"
#include "apps/serve/job_parts.h"
#include "apps/serve/random.h"

static int no_memory(job *j) { return fault_set(&j->f, 503, NULL, "out of memory"); }

/* ---- prompts --------------------------------------------------------------------------------- */

static int add_prompt(job *j, int32_t *ids, size_t n) {
    ask *a = &j->ask;
    ask_prompt *grown = realloc(a->prompts, (a->n_prompts + 1) * sizeof *grown);
    if (grown == NULL) {
        free(ids);
        return no_memory(j);
    }
    a->prompts = grown;
    a->prompts[a->n_prompts++] = (ask_prompt){.ids = ids, .n = n};
    return 0;
}

/* A start token that is spelled where the model puts one anyway counts once. */
static size_t without_second_bos(const gw_model *gw, int32_t *ids, size_t n) {
    int32_t bos = gw_token_bos(gw);
    if (n > 1 && bos >= 0 && ids[0] == bos && ids[1] == bos) {
        memmove(ids, ids + 1, (n - 1) * sizeof *ids);
        n--;
    }
    return n;
}

static int add_text_prompt(job *j, const json_t *text) {
    int32_t *ids = NULL;
    size_t n = 0;
    int flags = GW_TEXT_BOS | GW_TEXT_OPEN | (j->ask.no_special ? 0 : GW_TEXT_SPECIAL);
    gw_status status =
        gw_tokenize(j->m->gw, json_string_value(text), json_string_length(text), flags, &ids, &n);
    if (status != GW_OK) {
        return fault_of_status(&j->f, status, "prompt");
    }
    return add_prompt(j, ids, without_second_bos(j->m->gw, ids, n));
}

static int add_id_prompt(job *j, const json_t *list) {
    size_t n = json_array_size(list);
    int32_t *ids = calloc(n + 1, sizeof *ids);
    if (ids == NULL) {
        return no_memory(j);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= j->m->info.n_vocab) {
            free(ids);
            return fault_set(&j->f, 400, "prompt",
                             "prompt: number %zu of the list is no token of this model (0 to %d)",
                             i + 1, (int)j->m->info.n_vocab - 1);
        }
        ids[i] = (int32_t)value;
    }
    return add_prompt(j, ids, n);
}

/* Texts and ids after one another, as llama-server takes them: one prompt. */
static int add_mixed_prompt(job *j, const json_t *list) {
    int32_t *all = NULL;
    size_t n = 0, i;
    const json_t *part;
    json_array_foreach(list, i, part) {
        int flags =
            GW_TEXT_OPEN | (i == 0 ? GW_TEXT_BOS : 0) | (j->ask.no_special ? 0 : GW_TEXT_SPECIAL);
        int32_t *ids = NULL, own = (int32_t)json_integer_value(part), *grown;
        size_t more = 1;
        if (json_is_string(part)) {
            gw_status status = gw_tokenize(j->m->gw, json_string_value(part),
                                           json_string_length(part), flags, &ids, &more);
            if (status != GW_OK) {
                free(all);
                return fault_of_status(&j->f, status, "prompt");
            }
        } else if (!json_is_integer(part) || own < 0 || own >= j->m->info.n_vocab) {
            free(all);
            return fault_set(&j->f, 400, "prompt",
                             "prompt: number %zu of the list is neither a "
                             "text nor a token of this model",
                             i + 1);
        }
        grown = realloc(all, (n + more + 1) * sizeof *all);
        if (grown == NULL) {
            gw_free(ids);
            free(all);
            return no_memory(j);
        }
        all = grown;
        memcpy(all + n, ids != NULL ? ids : &own, (json_is_string(part) ? more : 1) * sizeof own);
        n += more;
        gw_free(ids);
    }
    return add_prompt(j, all, n);
}

static int has_both(const json_t *list) {
    size_t i, texts = 0;
    const json_t *part;
    json_array_foreach(list, i, part) { texts += json_is_string(part); }
    size_t ids = 0;
    json_array_foreach(list, i, part) { ids += json_is_integer(part); }
    return texts > 0 && ids > 0;
}

static int add_pictured_prompt(job *j, const json_t *given) {
    size_t order[PICTURES_MAX], first = j->ask.pictures.n, n_order = 0, n = 0;
    int32_t *ids = NULL;
    if (job_read_pictures(j, given, &ids, &n) != 0 ||
        add_prompt(j, ids, without_second_bos(j->m->gw, ids, n)) != 0) {
        return -1;
    }
    for (size_t i = first; i < j->ask.pictures.n; i++) {
        order[n_order++] = i;
    }
    return job_take_order(j, order, n_order);
}

static int add_given(job *j, const json_t *given) {
    if (json_is_object(given)) {
        return add_pictured_prompt(j, given);
    }
    if (json_is_string(given)) {
        return add_text_prompt(j, given);
    }
    if (json_is_array(given)) {
        return add_id_prompt(j, given);
    }
    return fault_set(&j->f, 400, "prompt",
                     "prompt: a text, a list of token ids, or a list of these is needed");
}

static int add_fill_prompt(job *j) {
    int32_t *ids = NULL;
    size_t n = 0;
    return fill_prompt(j, &ids, &n) == 0 ? add_prompt(j, ids, n) : -1;
}

static int read_prompts(job *j) {
    const json_t *given = j->ask.given;
    if (j->ask.fill.suffix != NULL) {
        return add_fill_prompt(j);
    }
    const json_t *first = json_array_get(given, 0);
    if (has_both(given)) {
        return add_mixed_prompt(j, given);
    }
    if (!json_is_array(given) || json_is_integer(first) || first == NULL) {
        return add_given(j, given);
    }
    if (json_array_size(given) > ASK_PROMPTS_MAX) {
        return fault_set(&j->f, 400, "prompt", "prompt: more than %d of them", ASK_PROMPTS_MAX);
    }
    for (size_t i = 0; i < json_array_size(given); i++) {
        if (job_is_gone(j)) {
            return fault_set(&j->f, 503, NULL, "the client has left");
        }
        if (add_given(j, json_array_get(given, i)) != 0) {
            return -1;
        }
    }
    return 0;
}

static int read_chat(job *j) {
    gw_chat_text text = {0};
    if (job_chat_text(j, 0, &text) != 0) {
        return -1;
    }
    int32_t *ids = malloc((text.n_ids + 1) * sizeof *ids);
    if (ids != NULL && text.n_ids > 0) {
        memcpy(ids, text.ids, text.n_ids * sizeof *ids);
    }
    j->ask.text = text.text;
    j->ask.text_bytes = text.bytes;
    text.text = NULL;
    size_t n = text.n_ids;
    gw_chat_text_free(&text);
    if (ids == NULL) {
        return no_memory(j);
    }
    const picture_list *l = &j->ask.pictures;
    return add_prompt(j, ids, n) == 0 ? job_take_order(j, l->order, l->n_order) : -1;
}

static int check_prompts(job *j) {
    const ask *a = &j->ask;
    for (size_t i = 0; i < a->n_prompts; i++) {
        size_t n = j->ask.prompts[i].n;
        if (n == 0) {
            return fault_set(&j->f, 400, "prompt",
                             "the prompt is empty, and this model has no "
                             "start token to begin with");
        }
        if (n + (j->ask.max_tokens != 0) > (size_t)j->m->n_ctx) {
            fault_set(&j->f, 400, a->chat != NULL ? "messages" : "prompt",
                      "the prompt has %zu tokens, at most %d fit", n, (int)j->m->n_ctx);
            j->f.code = "context_length_exceeded";
            j->f.got = (int64_t)n;
            j->f.limit = j->m->n_ctx;
            return -1;
        }
    }
    return 0;
}

/* ---- samplers -------------------------------------------------------------------------------- */

static int push_bias(ask *a, int32_t token, float bias) {
    gw_logit_bias *grown = realloc(a->bias, (a->n_bias + 1) * sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    a->bias = grown;
    a->bias[a->n_bias++] = (gw_logit_bias){.token = token, .bias = bias};
    return 0;
}

/* A text in logit_bias stands for each of its tokens. */
static int read_bias_texts(job *j) {
    ask *a = &j->ask;
    for (size_t i = 0; i < json_array_size(a->bias_texts); i++) {
        const json_t *pair = json_array_get(a->bias_texts, i), *text = json_array_get(pair, 0);
        const json_t *value = json_array_get(pair, 1);
        float bias = json_is_null(value) ? -INFINITY : (float)json_number_value(value);
        int32_t *ids = NULL;
        size_t n = 0;
        gw_status status = gw_tokenize(j->m->gw, json_string_value(text), json_string_length(text),
                                       GW_TEXT_SPECIAL, &ids, &n);
        for (size_t k = 0; status == GW_OK && k < n; k++) {
            status = push_bias(a, ids[k], bias) == 0 ? GW_OK : GW_E_NOMEM;
        }
        gw_free(ids);
        if (status != GW_OK) {
            return fault_of_status(&j->f, status, "logit_bias");
        }
    }
    for (size_t i = 0; i < a->n_bias; i++) {
        if (a->bias[i].token >= j->m->info.n_vocab) {
            return fault_set(&j->f, 400, "logit_bias", "logit_bias: token %d is none of this model",
                             (int)a->bias[i].token);
        }
    }
    a->sampler.bias = a->bias;
    a->sampler.n_bias = a->n_bias;
    return 0;
}

static int take_seed(job *j) {
    const char *given = j->s->o->seed_text;
    if (j->ask.has_seed) {
        return 0;
    }
    if (given != NULL && strcmp(given, "-1") != 0) {
        j->ask.sampler.seed = strtoull(given, NULL, 10);
    } else {
        uint32_t seed; /* short enough for people and for numbers of JavaScript */
        random_bytes(&seed, sizeof seed);
        j->ask.sampler.seed = seed;
    }
    return 0;
}

/* ---- choices --------------------------------------------------------------------------------- */

static int open_stop(job *j, choice *c) {
    const char *all[ASK_STOPS_MAX];
    size_t n = 0;
    for (; n < j->ask.n_stops; n++) {
        all[n] = j->ask.stops[n];
    }
    if (j->m->chat != NULL) {
        n += gw_chat_stops(j->m->chat, all + n, ASK_STOPS_MAX - n);
    }
    n = n < ASK_STOPS_MAX ? n : ASK_STOPS_MAX;
    gw_status status = n > 0 ? gw_stop_new(all, n, &c->stop) : GW_OK;
    return status == GW_OK ? 0 : fault_of_status(&j->f, status, "stop");
}

/* What reads the answer of a chat; those of a prompt after the first read as that one does. */
static int open_answer(job *j, choice *c, const char *tools) {
    const ask *a = &j->ask;
    const ask_prompt *p = &a->prompts[c->prompt];
    const app_options *o = j->s->o;
    int schema = a->grammar != NULL && a->grammar_kind == GW_GRAMMAR_JSON_SCHEMA;
    const gw_answer_options options = {
        .tool_form = o->tool_form,
        .reasoning_form = a->plain_reasoning ? "none" : o->reasoning_form,
        .chat_template = j->m->chat_template,
        .chat_template_bytes = j->m->chat_template_bytes,
        .tools = tools,
        .tools_bytes = tools != NULL ? strlen(tools) : 0,
        .choice = tools != NULL ? a->choice : GW_TOOLS_NONE,
        .named = a->named,
        .one_call = a->one_call,
        .whole_calls = a->whole_calls,
        .schema = schema ? a->grammar : NULL,
        .schema_bytes = schema ? strlen(a->grammar) : 0,
        .id_seed = a->sampler.seed + (uint64_t)c->index,
    };
    gw_status status = c->index == 0
                           ? gw_answer_new(j->m->gw, &options, &c->answer)
                           : gw_answer_new_like(j->choices[0].answer, options.id_seed, &c->answer);
    if (status != GW_OK) {
        return fault_of_status(&j->f, status, tools != NULL ? "tools" : NULL);
    }
    status = gw_answer_begin(c->answer, p->ids, p->n);
    return status == GW_OK ? open_stop(j, c) : fault_of_status(&j->f, status, "tools");
}

static int open_choices(job *j) {
    ask *a = &j->ask;
    size_t n = (size_t)a->n;
    const json_t *callable = a->callable != NULL ? a->callable : a->tools;
    char *tools = json_array_size(callable) > 0 ? json_dumps(callable, JSON_COMPACT) : NULL;
    int code = json_array_size(callable) > 0 && tools == NULL ? no_memory(j) : 0;
    if (a->n_prompts * n > ASK_PROMPTS_MAX) {
        code = fault_set(&j->f, 400, "n", "more than %d answers are asked for", ASK_PROMPTS_MAX);
    }
    j->choices = code == 0 ? calloc(a->n_prompts * n, sizeof *j->choices) : NULL;
    if (code == 0 && j->choices == NULL) {
        code = no_memory(j);
    }
    for (size_t i = 0; code == 0 && i < a->n_prompts * n; i++) {
        choice *c = &j->choices[j->n_choices++];
        *c = (choice){.j = j, .index = (int)i, .prompt = i / n, .item = -1};
        c->needs_grammar = i % n == 0 && (a->grammar != NULL || (a->chat != NULL && tools != NULL));
        code = a->chat != NULL ? open_answer(j, c, tools) : 0;
    }
    if (tools != NULL) {
        j->kept_cost += ask_parse_cost(tools, strlen(tools));
    }
    free(tools);
    return code;
}

/* ---- submitting ------------------------------------------------------------------------------ */

static int submit_fault(job *j, gw_status status) {
    fault_of_status(&j->f, status, NULL);
    if (status == GW_E_BUSY) {
        fault_set(&j->f, 429, NULL, "%d requests wait already: try again later",
                  (int)j->s->o->queue);
        j->f.code = "queue_full";
        j->f.retry_after = models_patience(j->m);
    } else if (status == GW_E_CANCELLED) {
        fault_set(&j->f, 503, NULL, "the model takes no more requests");
        j->f.retry_after = 10;
    } else if (status == GW_E_CONTEXT) {
        j->f.code = "context_length_exceeded";
    }
    return -1;
}

static int submit(job *j, size_t prompt) {
    const ask *a = &j->ask;
    choice *first = &j->choices[prompt * (size_t)a->n];
    job_request *of = malloc(sizeof *of);
    if (of == NULL) {
        return no_memory(j);
    }
    *of = (job_request){.j = j, .prompt = prompt};
    int is_chat = a->chat != NULL, is_read = first->answer != NULL;
    const gw_request_options options = {
        .tokens = a->prompts[prompt].ids,
        .n_tokens = a->prompts[prompt].n,
        .sampler = &a->sampler,
        .grammar = first->grammar != NULL ? first->grammar->grammar : NULL,
        .chat = is_chat ? j->m->chat : NULL,
        .stops = is_read ? NULL : a->stops,
        .n_stops = is_read ? 0 : a->n_stops,
        .bans = a->bans,
        .n_bans = a->n_bans,
        .ignore_eos = a->ignore_eos,
        .mid_text = !is_chat,
        .max_tokens = a->max_tokens > INT32_MAX ? INT32_MAX : (int32_t)a->max_tokens,
        .n = a->n,
        .logprobs = a->logprobs ? a->top + 1 : 0,
        .prompt_logprobs = a->logprobs && a->echo ? a->top + 1 : 0,
        .no_cache = a->no_cache,
        .salt = j->salt,
        .client = j->fair,
        .priority = a->priority,
        .event = job_on_event,
        .user = of,
        .seen = a->prompts[prompt].seen,
        .n_seen = a->prompts[prompt].n_seen,
    };
    gw_status status =
        gw_batch_submit_adapted(j->m->batch, &options, &j->lora, &j->requests[prompt]);
    if (status != GW_OK) {
        free(of);
        return submit_fault(j, status);
    }
    j->n_requests++;
    return 0;
}

/* What the prompt was made of is not needed any more, and does not count. */
static void forget_prompt(job *j) {
    ask *a = &j->ask;
    uint64_t bytes = (j->api->echoed != NULL ? j->read_cost : 0) + j->kept_cost + a->text_bytes;
    bytes += job_looks_bytes(j);
    for (size_t i = 0; i < a->n_prompts; i++) {
        bytes += a->prompts[i].n * sizeof *a->prompts[i].ids;
    }
    ask_trim_prompt(a);
    bytes += j->n_choices * sizeof *j->choices;
    account_set(j->s->account, &j->hold, bytes < j->hold.bytes ? bytes : j->hold.bytes);
}

int job_compile(job *j) {
    if (job_make_grammars(j) != 0) {
        return -1;
    }
    forget_prompt(j);
    j->requests = calloc(j->ask.n_prompts, sizeof(gw_request *));
    return j->requests != NULL ? job_submit_more(j) : no_memory(j);
}

int job_prepare(job *j) {
    enum { LONG_TEXT = 2048 }; /* bytes of schemas that may take long */
    ask *a = &j->ask;
    if (j->m->batch == NULL) {
        return fault_set(&j->f, 501, "model", "%s makes vectors (/v1/embeddings), no text",
                         j->m->id);
    }
    if ((a->chat != NULL ? read_chat(j) : read_prompts(j)) != 0 || check_prompts(j) != 0 ||
        job_see(j) != 0 || read_bias_texts(j) != 0 || take_seed(j) != 0 || open_choices(j) != 0) {
        return -1;
    }
    size_t text = (a->grammar != NULL ? strlen(a->grammar) : 0) + j->kept_cost / 4;
    return job_find_grammars(j) > 0 && text > LONG_TEXT ? 1 : job_compile(j);
}

int job_submit_more(job *j) {
    while (j->n_requests < j->ask.n_prompts) {
        if (submit(j, j->n_requests) == 0) {
            continue;
        }
        if (j->f.status != 429 || j->n_requests == 0) {
            return -1;
        }
        j->f = (fault){0}; /* some of many have their place: the others come later */
        return 0;
    }
    return 0;
}
