/* apps/serve/route_text.c - tokens of texts and texts of tokens, prompts of conversations, and how
 * the server is set: llama-server's helpers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/sampling.h"
#include "apps/serve/chat_text.h"
#include "apps/serve/job.h"
#include "apps/serve/routes.h"
#include "include/godwit_bind.h"
#include "apps/serve/tools.h"

static int read_model(job *j, const json_t *body, fault *f) {
    return ask_text(body, "model", &j->ask.model, f);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static json_t *piece_of(const job *j, int32_t id) {
    size_t bytes = 0;
    char *text = model_token_text(j->m, id, &bytes);
    json_t *piece = text != NULL ? json_stringn(text, bytes) : json_string("");
    if (piece == NULL) { /* part of a character: its bytes */
        piece = json_array();
        for (size_t i = 0; i < bytes; i++) {
            json_array_append_new(piece, json_integer((unsigned char)text[i]));
        }
    }
    free(text);
    return piece;
}

static json_t *token_list(const job *j, const int32_t *ids, size_t n, int pieces) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(
            list, pieces ? json_pack("{s:i, s:o}", "id", (int)ids[i], "piece", piece_of(j, ids[i]))
                         : json_integer(ids[i]));
    }
    return list;
}

/* "content" as llama-server's clients say it, "prompt" or "messages" as vLLM's. */
static json_t *tokenize(job *j) {
    const json_t *body = j->ask.root;
    const char *name = json_object_get(body, "content") != NULL ? "content" : "prompt";
    const json_t *content = json_object_get(body, name);
    int add = strcmp(name, "prompt") == 0, parse = 1, pieces = 0;
    if (ask_bool(body, "add_special_tokens", &add, &j->f) != 0 ||
        ask_bool(body, "add_special", &add, &j->f) != 0 ||
        ask_bool(body, "parse_special", &parse, &j->f) != 0 ||
        ask_bool(body, "with_pieces", &pieces, &j->f) != 0) {
        return NULL;
    }
    if (!json_is_string(content)) {
        fault_set(&j->f, 400, "content", "content: a text is needed");
        return NULL;
    }
    int32_t *ids = NULL;
    size_t n = 0;
    int flags = GW_TEXT_OPEN | (add ? GW_TEXT_BOS : 0) | (parse ? GW_TEXT_SPECIAL : 0);
    gw_status status = gw_tokenize(j->m->gw, json_string_value(content),
                                   json_string_length(content), flags, &ids, &n);
    if (status != GW_OK) {
        fault_of_status(&j->f, status, "content");
        return NULL;
    }
    json_t *answer = json_pack("{s:o, s:I, s:i}", "tokens", token_list(j, ids, n, pieces), "count",
                               (json_int_t)n, "max_model_len", (int)j->m->n_ctx);
    gw_free(ids);
    return answer;
}

static json_t *detokenize(job *j) {
    const json_t *list = json_object_get(j->ask.root, "tokens"), *id;
    size_t i, n = json_array_size(list), bytes = 0;
    int32_t *ids = calloc(n + 1, sizeof *ids);
    char *text = NULL;
    json_t *answer = NULL;
    if (!json_is_array(list)) {
        fault_set(&j->f, 400, "tokens", "tokens: a list of ids is needed");
    }
    json_array_foreach(list, i, id) {
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= j->m->info.n_vocab) {
            fault_set(&j->f, 400, "tokens",
                      "tokens: number %zu of the list is no token of this "
                      "model (0 to %d)",
                      i + 1, (int)j->m->info.n_vocab - 1);
        } else if (ids != NULL) {
            ids[i] = (int32_t)value;
        }
    }
    if (j->f.status == 0 && ids != NULL) {
        gw_status status = gw_detokenize(j->m->gw, ids, n, 1, &text, &bytes);
        if (status == GW_OK) {
            json_t *shown = job_bytes(text, bytes);
            answer = json_pack("{s:O, s:o}", "content", shown, "prompt", shown);
        } else {
            fault_of_status(&j->f, status, "tokens");
        }
    }
    gw_free(text);
    free(ids);
    return answer;
}

/* ---- prompts of conversations ---------------------------------------------------------------- */

static int read_chat(job *j, const json_t *body, fault *f) {
    json_t *messages = NULL;
    if (read_model(j, body, f) != 0 || tools_read(&j->ask, body, f) != 0 ||
        (messages = chat_text_messages(&j->ask, json_object_get(body, "messages"), f)) == NULL) {
        return -1;
    }
    return chat_text_read(&j->ask, body, messages, f);
}

static json_t *apply_template(job *j) {
    gw_chat_text text = {0};
    if (job_chat_text(j, 1, &text) != 0) {
        return NULL;
    }
    json_t *answer = json_pack("{s:o, s:I}", "prompt", job_bytes(text.text, text.bytes), "n_tokens",
                               (json_int_t)text.n_ids);
    gw_chat_text_free(&text);
    return answer;
}

static json_t *count_input(job *j) {
    gw_chat_text text = {0};
    if (job_chat_text(j, 1, &text) != 0) {
        return NULL;
    }
    json_t *answer = json_pack("{s:s, s:I}", "object", "chat.completion.input_tokens",
                               "input_tokens", (json_int_t)text.n_ids);
    gw_chat_text_free(&text);
    return answer;
}

static const api tokenize_api = {.id_prefix = "tok-", .read = read_model, .run = tokenize};
static const api detokenize_api = {.id_prefix = "tok-", .read = read_model, .run = detokenize};
static const api template_api = {.id_prefix = "tmpl-", .read = read_chat, .run = apply_template};
static const api count_api = {.id_prefix = "tok-", .read = read_chat, .run = count_input};

static void answer_tokenize(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &tokenize_api);
}

static void answer_detokenize(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &detokenize_api);
}

static void answer_template(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &template_api);
}

static void answer_count(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &count_api);
}

/* ---- how the server is set ------------------------------------------------------------------- */

/* The value of a name in the query, percent-decoded where it needs to be; "" where it is not. */
static void query_value(const conn *c, const char *name, char *out, size_t room) {
    const char *at = conn_head(c)->query;
    size_t n = strlen(name), used = 0;
    for (; at != NULL && *at != '\0';
         at += at[strcspn(at, "&")] == '&' ? strcspn(at, "&") + 1 : strcspn(at, "&")) {
        if (strncmp(at, name, n) == 0 && at[n] == '=') {
            for (at += n + 1; *at != '\0' && *at != '&' && used + 1 < room; at++) {
                unsigned value;
                if (*at == '%' && sscanf(at + 1, "%2x", &value) == 1 && at[1] != '\0') {
                    out[used++] = (char)value;
                    at += 2;
                } else {
                    out[used++] = *at == '+' ? ' ' : *at;
                }
            }
            break;
        }
    }
    out[used] = '\0';
}

static json_t *default_settings(const app_options *o, const gw_model *loaded) {
    json_t *all = json_pack(
        "{s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:i}", "temperature", o->temperature,
        "dynatemp_range", o->dynatemp_range, "top_k", (int)o->top_k, "top_p", o->top_p, "min_p",
        o->min_p, "typical_p", o->typical, "repeat_penalty", o->repeat_penalty, "repeat_last_n",
        (int)o->repeat_last_n, "presence_penalty", o->presence_penalty, "frequency_penalty",
        o->frequency_penalty, "n_predict", (int)o->n_predict);
    json_t *more = json_pack(
        "{s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:i, s:i, s:f}", "xtc_probability", o->xtc_probability,
        "xtc_threshold", o->xtc_threshold, "mirostat", (int)o->mirostat, "mirostat_tau",
        o->mirostat_ent, "mirostat_eta", o->mirostat_lr, "dry_multiplier", o->dry_multiplier,
        "dry_base", o->dry_base, "dry_allowed_length", (int)o->dry_allowed_length,
        "dry_penalty_last_n", (int)o->dry_last_n, "top_n_sigma", o->top_n_sigma);
    json_object_update(all, more);
    json_decref(more);
    for (size_t i = 0; sampling_table[i].names != NULL; i++) { /* as the model's files recommend */
        char name[32];
        double value = 0.0;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(sampling_table[i].names, " "),
                 sampling_table[i].names);
        if ((o->sampling_given >> i & 1) == 0 && json_object_get(all, name) != NULL &&
            gw_model_sampling(loaded, name, &value)) {
            json_object_set_new(all, name,
                                json_is_integer(json_object_get(all, name))
                                    ? json_integer((json_int_t)value)
                                    : json_real(value));
        }
    }
    return all;
}

static json_t *spelled(const model *m, int32_t id) {
    char *text = NULL;
    size_t bytes = 0;
    if (id < 0 || gw_detokenize(m->gw, &id, 1, 1, &text, &bytes) != GW_OK) {
        return json_string("");
    }
    json_t *shown = job_bytes(text, bytes);
    gw_free(text);
    return shown;
}

static json_t *token_or_null(const model *m, int32_t id) {
    return id >= 0 ? spelled(m, id) : json_null();
}

/* The model that ?model= names; NULL: the fault has been replied. */
static model *asked_model(conn *c) {
    fault f = {0};
    char name[256];
    query_value(c, "model", name, sizeof name);
    model *m = models_now(conn_server(c)->models, name, &f);
    if (m == NULL) {
        reply_fault(c, &f);
    }
    return m;
}

static void answer_props(conn *c, const char *rest) {
    server *s = conn_server(c);
    model *m = asked_model(c);
    (void)rest;
    if (m == NULL) {
        return;
    }
    json_t *settings = json_pack("{s:i, s:b, s:o}", "n_ctx", (int)m->n_ctx, "is_processing",
                                 s->n_jobs > 0, "params", default_settings(s->o, m->gw));
    json_t *all =
        json_pack("{s:o, s:i, s:s, s:s, s:o, s:o, s:o, s:s, s:{s:b, s:b}, s:i, s:b}",
                  "default_generation_settings", settings, "total_slots", (int)s->o->at_once,
                  "model_alias", m->id, "model_path", m->path != NULL ? m->path : "",
                  "chat_template", job_bytes(m->chat_template, m->chat_template_bytes), "bos_token",
                  spelled(m, gw_token_bos(m->gw)), "eos_token", spelled(m, gw_token_eos(m->gw)),
                  "build_info", "godwit " GW_VERSION, "modalities", "vision", m->sights != NULL,
                  "audio", 0, "n_ctx_train", (int)m->info.n_ctx_train, "is_sleeping",
                  models_sleeps(m));
    /* it goes on with texts and has not learned to answer: the page offers that */
    json_object_set_new(
        all, "base_model",
        json_boolean(m->chat != NULL && strcmp(gw_chat_name(m->chat), "plain") == 0));
    models_release(s->models, m);
    reply_json(c, 200, all);
}

/* As vLLM says it: what counts tokens without the vocabulary at hand, lm-eval for example, asks
 * here whether /tokenize will do. */
static void answer_tokenizer(conn *c, const char *rest) {
    server *s = conn_server(c);
    model *m = asked_model(c);
    (void)rest;
    if (m == NULL) {
        return;
    }
    json_t *all = json_pack(
        "{s:s, s:o, s:o, s:n, s:i, s:o}", "tokenizer_class", "godwit", "bos_token",
        token_or_null(m, gw_token_bos(m->gw)), "eos_token", token_or_null(m, gw_token_eos(m->gw)),
        "pad_token", "model_max_length", (int)m->n_ctx, "chat_template",
        m->chat_template_bytes > 0 ? job_bytes(m->chat_template, m->chat_template_bytes)
                                   : json_null());
    models_release(s->models, m);
    reply_json(c, 200, all);
}

/* There are no slots: a row for each answer that is being written, and for each that could be. */
static void answer_slots(conn *c, const char *rest) {
    server *s = conn_server(c);
    json_t *list = json_array();
    int id = 0;
    (void)rest;
    for (const job *j = s->jobs; j != NULL; j = j->next) {
        for (size_t i = 0; j->submitted && i < j->n_choices; i++) {
            const choice *ch = &j->choices[i];
            if (!ch->finished) {
                json_array_append_new(list, json_pack("{s:i, s:s, s:i, s:b, s:s, s:I, s:I}", "id",
                                                      id++, "id_task", j->id, "n_ctx",
                                                      (int)j->m->n_ctx, "is_processing", 1, "model",
                                                      j->m->id, "n_prompt_tokens",
                                                      (json_int_t)j->ask.prompts[ch->prompt].n,
                                                      "n_decoded", (json_int_t)j->n_generated));
            }
        }
    }
    const model *first = models_at(s->models, 0);
    for (; id < s->o->at_once; id++) {
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:b}", "id", id, "n_ctx",
                                        first != NULL ? (int)first->n_ctx : 0, "is_processing", 0));
    }
    reply_json(c, 200, list);
}

const route routes_text[] = {
    {"POST", "/tokenize", 0, FORM_OPENAI, answer_tokenize},
    {"POST", "/detokenize", 0, FORM_OPENAI, answer_detokenize},
    {"POST", "/apply-template", 0, FORM_OPENAI, answer_template},
    {"POST", "/v1/chat/completions/input_tokens", 0, FORM_OPENAI, answer_count},
    {"POST", "/chat/completions/input_tokens", 0, FORM_OPENAI, answer_count},
    {"GET", "/tokenizer_info", 0, FORM_OPENAI, answer_tokenizer},
    {"GET", "/props", 0, FORM_OPENAI, answer_props},
    {"GET", "/slots", 0, FORM_OPENAI, answer_slots},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
