/* apps/serve/route_ollama.c - what clients of Ollama ask: version, models, chat and generate, in
 * lines of JSON. */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/chat_text.h"
#include "apps/serve/fill.h"
#include "apps/serve/job.h"
#include "apps/serve/parts.h"
#include "apps/serve/routes.h"
#include "apps/serve/tools.h"
#include "core/base/os.h"

static const char version[] = "0.13.0"; /* of the interface: clients ask for a least one */

static json_t *time_text(int64_t at) {
    char text[40];
    time_t when = (time_t)at;
    struct tm parts;
    gmtime_r(&when, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return json_string(text);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void answer_version(conn *c, const char *rest) {
    (void)rest;
    reply_json(c, 200, json_pack("{s:s}", "version", version));
}

/* A digest is part of the interface; nothing is computed over gigabytes for it. */
static json_t *digest_of(const char *id) {
    uint64_t h = 14695981039346656037u;
    for (; *id != '\0'; id++) {
        h = (h ^ (unsigned char)*id) * 1099511628211u;
    }
    return json_sprintf("%016llx%016llx%016llx%016llx", (unsigned long long)h,
                        (unsigned long long)(h * 3), (unsigned long long)(h * 5),
                        (unsigned long long)(h * 7));
}

static json_t *details_of(const model *m) {
    char size[32] = "";
    if (m != NULL) {
        snprintf(size, sizeof size, "%.3gB", (double)m->info.n_params * 1e-9);
    }
    const char *family = m != NULL ? m->info.architecture : "";
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf",
                     "family", family, "families", family, "parameter_size", size,
                     "quantization_level", m != NULL ? m->info.format : "");
}

static json_t *row_of(const server *s, size_t i) {
    const model *m = models_at(s->models, i);
    const char *id = models_id(s->models, i);
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:o}", "name", id, "model", id, "modified_at",
                     time_text(s->started_at), "size", (json_int_t)models_bytes(s->models, i),
                     "digest", digest_of(id), "details", details_of(m));
}

static void list_models(conn *c, int loaded_only) {
    const server *s = conn_server(c);
    json_t *list = json_array();
    for (size_t i = 0; i < models_count(s->models); i++) {
        const model *m = models_at(s->models, i);
        if (m == NULL && loaded_only) {
            continue;
        }
        json_t *row = row_of(s, i);
        if (loaded_only) {
            double left = models_left(s->models, i);
            json_object_set_new(row, "expires_at", time_text((int64_t)time(NULL) + (int64_t)left));
            json_object_set_new(row, "size_vram", json_integer(0));
            json_object_set_new(row, "context_length", json_integer(m->n_ctx));
        }
        json_array_append_new(list, row);
    }
    reply_json(c, 200, json_pack("{s:o}", "models", list));
}

static void answer_tags(conn *c, const char *rest) {
    (void)rest;
    list_models(c, 0);
}

static void answer_ps(conn *c, const char *rest) {
    (void)rest;
    list_models(c, 1);
}

static json_t *info_of(const model *m) {
    const gw_model_info *i = &m->info;
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"context_length", m->n_ctx},
                {"embedding_length", i->d_model},
                {"block_count", i->n_layers},
                {"feed_forward_length", i->d_ff},
                {"attention.head_count", i->n_heads},
                {"attention.head_count_kv", i->n_kv_heads},
                {"vocab_size", i->n_vocab}};
    json_t *all =
        json_pack("{s:s, s:I, s:s}", "general.architecture", i->architecture,
                  "general.parameter_count", (json_int_t)i->n_params, "general.basename", i->name);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        char key[160];
        snprintf(key, sizeof key, "%.100s.%s", i->architecture, rows[k].name);
        json_object_set_new(all, key, json_integer(rows[k].value));
    }
    return all;
}

static int read_name(job *j, const json_t *body, fault *f) {
    return ask_text(body, "name", &j->ask.model, f) != 0 ||
                   ask_text(body, "model", &j->ask.model, f) != 0
               ? -1
               : 0;
}

/* Of a model that is not loaded what can be said without loading it. */
static json_t *show(job *j) {
    const server *s = j->s;
    size_t i = models_find(s->models, j->ask.model);
    if (i == models_count(s->models)) {
        fault_set(&j->f, 404, "model", "model '%.100s' not found",
                  j->ask.model != NULL ? j->ask.model : "");
        return NULL;
    }
    const model *m = models_at(s->models, i);
    json_t *can = json_array();
    int writes = m == NULL || m->batch != NULL;
    json_array_append_new(can, json_string(writes ? "completion" : "embedding"));
    if (writes) {
        json_array_append_new(can, json_string("tools"));
    }
    if (m != NULL && m->sights != NULL) {
        json_array_append_new(can, json_string("vision"));
    }
    if (m != NULL && strstr(m->chat_template, "think") != NULL) {
        json_array_append_new(can, json_string("thinking"));
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "license", "", "modelfile", "",
                     "parameters", "", "template",
                     m != NULL ? job_bytes(m->chat_template, m->chat_template_bytes)
                               : json_string(""),
                     "details", details_of(m), "model_info", m != NULL ? info_of(m) : json_object(),
                     "capabilities", can, "modified_at", time_text(s->started_at));
}

static const api show_api = {.id_prefix = "show-", .read = read_name, .here = show};

static void answer_show(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &show_api);
}

/* ---- how long a model stays --------------------------------------------------------------------
 */

/* A request without a prompt loads the model, or lets it go. */
static json_t *line_of_nothing(const job *j, const char *reason, int chat) {
    size_t i = models_find(j->s->models, j->ask.model);
    const char *id = i < models_count(j->s->models) ? models_id(j->s->models, i) : "";
    json_t *line = json_pack("{s:s, s:o, s:b, s:s}", "model", id, "created_at",
                             time_text((int64_t)time(NULL)), "done", 1, "done_reason", reason);
    if (chat) {
        json_object_set_new(line, "message",
                            json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    } else {
        json_object_set_new(line, "response", json_string(""));
    }
    return line;
}

static json_t *let_go(job *j, int chat) {
    return models_let_go(j->s->models, j->ask.model, &j->f) == 0
               ? line_of_nothing(j, "unload", chat)
               : NULL;
}

static json_t *unload_generate(job *j) { return let_go(j, 0); }
static json_t *unload_chat(job *j) { return let_go(j, 1); }
static json_t *load_generate(job *j) { return line_of_nothing(j, "load", 0); }
static json_t *load_chat(job *j) { return line_of_nothing(j, "load", 1); }

/* From a request that has nothing to be answered: [chat][unload]. */
static const api nothing_apis[2][2] = {
    {{.id_prefix = "gen-", .run = load_generate}, {.id_prefix = "gen-", .here = unload_generate}},
    {{.id_prefix = "chat-", .run = load_chat}, {.id_prefix = "chat-", .here = unload_chat}}};

static int nothing_to_say(job *j, const json_t *body, int chat, fault *f) {
    if (ask_text(body, "model", &j->ask.model, f) != 0 || ask_keep_alive(&j->ask, body, f) != 0) {
        return -1;
    }
    j->api = &nothing_apis[chat][j->ask.keep_alive == 0];
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

static int read_logprobs(ask *a, const json_t *body, fault *f) {
    int64_t top = 0;
    if (ask_bool(body, "logprobs", &a->logprobs, f) != 0 ||
        ask_int(body, "top_logprobs", 0, ASK_TOP_MAX, &top, f) != 0) {
        return -1;
    }
    a->logprobs |= top > 0;
    a->top = (int)top;
    return 0;
}

/* "options" has the samplers, "format" what the text may be. Streams unless it is told not to. */
static int read_common(job *j, const json_t *body, fault *f) {
    ask *a = &j->ask;
    const json_t *options = json_object_get(body, "options");
    const json_t *format = json_object_get(body, "format");
    const char *word = json_string_value(format);
    if (ask_text(body, "model", &a->model, f) != 0 || ask_keep_alive(a, body, f) != 0 ||
        read_logprobs(a, body, f) != 0 || ask_read_common(a, options, f) != 0 ||
        ask_int(options, "num_predict", -2, INT32_MAX, &a->max_tokens, f) != 0 ||
        ask_read_grammar(a, options, f) != 0) {
        return -1;
    }
    a->stream = 1;
    if (ask_bool(body, "stream", &a->stream, f) != 0) {
        return -1;
    }
    a->max_tokens = a->max_tokens < 0 ? -1 : a->max_tokens;
    if (word != NULL && strcmp(word, "json") == 0) {
        json_t *any = json_pack("{s:s}", "type", "object");
        int code = ask_take_schema(a, any, "format", f);
        json_decref(any);
        return code;
    }
    if (format == NULL || json_is_null(format) || (word != NULL && word[0] == '\0')) {
        return 0;
    }
    return ask_take_schema(a, format, "format", f);
}

static int read_think(ask *a, const json_t *body, fault *f) {
    const json_t *think = json_object_get(body, "think");
    if (think == NULL || json_is_null(think)) {
        return 0;
    }
    if (!json_is_boolean(think) && !json_is_string(think)) {
        return fault_set(f, 400, "think", "think: true, false, or an effort is needed");
    }
    json_object_set_new(a->chat, "enable_thinking", json_boolean(!json_is_false(think)));
    if (json_is_string(think)) {
        json_object_set(a->chat, "reasoning_effort", (json_t *)(uintptr_t)think);
    }
    return 0;
}

/* "images" is a list, null, or not there. */
static int check_images(const json_t *object, const char *before, fault *f) {
    const json_t *images = json_object_get(object, "images");
    return images == NULL || json_is_null(images) || json_is_array(images)
               ? 0
               : fault_set(f, 400, "images", "%simages: a list of pictures in base64 is needed",
                           before);
}

/* The content of an object with "images": these, then its text, as parts; NULL: it has none.
 * before: what stands before "images" in messages about them. */
static json_t *content_of(const json_t *object, const json_t *text, const char *before) {
    const json_t *images = json_object_get(object, "images"), *one;
    size_t i;
    if (json_array_size(images) == 0) {
        return NULL;
    }
    json_t *parts = json_array();
    json_array_foreach(images, i, one) {
        json_array_append_new(parts, json_pack("{s:s, s:O, s:o}", "type", "images", "file", one,
                                               "field", json_sprintf("%simages[%zu]", before, i)));
    }
    if (json_string_length(text) > 0) {
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
    }
    return parts;
}

static json_t *with_images(const json_t *list, fault *f) {
    json_t *out = json_array();
    const json_t *message;
    size_t i;
    json_array_foreach(list, i, message) {
        char before[40];
        snprintf(before, sizeof before, "messages[%zu].", i);
        if (check_images(message, before, f) != 0) {
            json_decref(out);
            return NULL;
        }
        json_t *own = json_copy((json_t *)(uintptr_t)message);
        json_t *content = content_of(message, json_object_get(message, "content"), before);
        if (content != NULL) {
            json_object_set_new(own, "content", content);
            json_object_del(own, "images");
        }
        json_array_append_new(out, own);
    }
    return out;
}

static int read_chat(job *j, const json_t *body, fault *f) {
    const json_t *list = json_object_get(body, "messages");
    if (list == NULL || json_is_null(list) || (json_is_array(list) && json_array_size(list) == 0)) {
        return nothing_to_say(j, body, 1, f);
    }
    if (read_common(j, body, f) != 0 || tools_read(&j->ask, body, f) != 0) {
        return -1;
    }
    json_t *all = json_is_array(list) ? with_images(list, f) : NULL;
    if (f->status != 0) {
        return -1;
    }
    json_t *messages = chat_text_messages(&j->ask, all, f);
    json_decref(all);
    return messages != NULL && chat_text_read(&j->ask, body, messages, f) == 0
               ? read_think(&j->ask, body, f)
               : -1;
}

/* The prompt is a user's message, unless it is raw. */
static int read_generate(job *j, const json_t *body, fault *f) {
    static const ask_refusal refused[] = {{"template", "\"\""}, {"context", "[]"}, {NULL, NULL}};
    int raw = 0;
    json_t *prompt = json_object_get(body, "prompt"), *system = json_object_get(body, "system");
    int none = prompt == NULL || json_is_null(prompt) ||
               (json_is_string(prompt) && json_string_length(prompt) == 0);
    if (check_images(body, "", f) != 0) {
        return -1;
    }
    if (none && json_array_size(json_object_get(body, "images")) == 0) {
        return nothing_to_say(j, body, 0, f);
    }
    if (ask_refuse(body, refused, f) != 0 || read_common(j, body, f) != 0 ||
        ask_bool(body, "raw", &raw, f) != 0) {
        return -1;
    }
    json_t *content = content_of(body, prompt, "");
    if (!json_is_string(prompt) && !none) {
        json_decref(content);
        return fault_set(f, 400, "prompt", "prompt: a text is needed");
    }
    if (fill_read_suffix(&j->ask, body, f) != 0) {
        return -1;
    }
    if (raw || j->ask.fill.suffix != NULL) {
        j->ask.given = prompt;
        json_decref(content);
        return content == NULL ? 0
                               : fault_set(f, 400, "images",
                                           "images: a raw prompt has no place for them: leave "
                                           "\"raw\" out");
    }
    json_t *said = parts_read(content != NULL ? content : prompt, 0, 0, &j->ask.pictures, f);
    json_decref(content);
    if (said == NULL) {
        return -1;
    }
    json_t *messages = json_array();
    if (json_string_length(system) > 0) {
        json_array_append_new(messages,
                              json_pack("{s:s, s:O}", "role", "system", "content", system));
    }
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "user", "content", said));
    return chat_text_read(&j->ask, body, messages, f) == 0 ? read_think(&j->ask, body, f) : -1;
}

/* ---- answers --------------------------------------------------------------------------------- */

static json_t *line_of(const job *j, int done) {
    return json_pack("{s:s, s:o, s:b}", "model", job_model(j), "created_at",
                     time_text((int64_t)time(NULL)), "done", done);
}

static void add_times(const job *j, const choice *c, json_t *line) {
    double prompt = j->prompt_seconds - j->queued_seconds, made = j->seconds - j->prompt_seconds;
    json_t *more = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "done_reason",
                             c->why == GW_FINISH_LENGTH ? "length" : "stop", "total_duration",
                             (json_int_t)(1e9 * j->seconds), "load_duration", (json_int_t)0,
                             "prompt_eval_count", (json_int_t)j->n_prompt, "prompt_eval_duration",
                             (json_int_t)(1e9 * (prompt > 0 ? prompt : 0)), "eval_count",
                             (json_int_t)j->n_generated, "eval_duration",
                             (json_int_t)(1e9 * (made > 0 ? made : 0)), "seed",
                             (json_int_t)j->ask.sampler.seed);
    json_object_update(line, more);
    json_decref(more);
}

static json_t *call_of(const call *k) {
    json_t *arguments = k->arguments.n > 0
                            ? json_loadb(k->arguments.at, k->arguments.n, JSON_ALLOW_NUL, NULL)
                            : NULL;
    return json_pack("{s:s, s:{s:s, s:o}}", "id", k->id, "function", "name", k->name, "arguments",
                     arguments != NULL ? arguments : json_object());
}

/* text is taken over. */
static json_t *message_of(json_t *text) {
    return json_pack("{s:s, s:o}", "role", "assistant", "content", text);
}

static void add_probs(choice *c, json_t *line) {
    if (c->j->ask.logprobs && c->probs_sent < c->probs_settled) {
        json_object_set_new(line, "logprobs", choice_probs(c, &c->probs_sent));
    }
}

static void send_message(choice *c, json_t *message) {
    json_t *line = line_of(c->j, 0);
    json_object_set_new(line, "message", message);
    add_probs(c, line);
    job_event(c->j, NULL, line);
}

static void send_chat_text(choice *c, const char *text, size_t bytes) {
    send_message(c, message_of(json_stringn(text, bytes)));
}

static void send_chat_thought(choice *c, const char *text, size_t bytes) {
    json_t *message = message_of(json_string(""));
    json_object_set_new(message, "thinking", json_stringn(text, bytes));
    send_message(c, message);
}

/* Calls come whole. */
static void send_chat_call(choice *c, call *k) {
    if (!k->whole) {
        return; /* half an object is none */
    }
    json_t *message = message_of(json_string(""));
    json_object_set_new(message, "tool_calls", json_pack("[o]", call_of(k)));
    send_message(c, message);
}

static void end_chat(job *j) {
    json_t *line = line_of(j, 1);
    json_object_set_new(line, "message", message_of(json_string("")));
    add_probs(&j->choices[0], line);
    add_times(j, &j->choices[0], line);
    job_event(j, NULL, line);
}

static json_t *whole_chat(job *j) {
    choice *c = &j->choices[0];
    json_t *line = line_of(j, 1), *message = message_of(job_text(&c->text)), *calls = json_array();
    if (c->reasoning.n > 0) {
        json_object_set_new(message, "thinking", job_text(&c->reasoning));
    }
    for (size_t i = 0; i < c->n_calls; i++) {
        if (!c->calls[i].broken && c->calls[i].whole) {
            json_array_append_new(calls, call_of(&c->calls[i]));
        }
    }
    if (json_array_size(calls) > 0) {
        json_object_set(message, "tool_calls", calls);
    }
    json_decref(calls);
    json_object_set_new(line, "message", message);
    add_probs(c, line);
    add_times(j, c, line);
    return line;
}

static void send_piece(choice *c, const char *name, const char *text, size_t bytes) {
    json_t *line = line_of(c->j, 0);
    json_object_set_new(line, "response", json_string(""));
    json_object_set_new(line, name, json_stringn(text, bytes));
    add_probs(c, line);
    job_event(c->j, NULL, line);
}

static void send_text(choice *c, const char *text, size_t bytes) {
    send_piece(c, "response", text, bytes);
}

static void send_thought(choice *c, const char *text, size_t bytes) {
    send_piece(c, "thinking", text, bytes);
}

static void end_generate(job *j) {
    json_t *line = line_of(j, 1);
    json_object_set_new(line, "response", json_string(""));
    add_probs(&j->choices[0], line);
    add_times(j, &j->choices[0], line);
    job_event(j, NULL, line);
}

static json_t *whole_generate(job *j) {
    choice *c = &j->choices[0];
    json_t *line = line_of(j, 1);
    json_object_set_new(line, "response", job_text(&c->text));
    if (c->reasoning.n > 0) {
        json_object_set_new(line, "thinking", job_text(&c->reasoning));
    }
    add_probs(c, line);
    add_times(j, c, line);
    return line;
}

static void fail(job *j, const fault *f) { job_event(j, NULL, reply_fault_object(FORM_OLLAMA, f)); }

static const api chat_api = {
    .id_prefix = "chat-",
    .json_lines = 1,
    .read = read_chat,
    .text = send_chat_text,
    .reasoning = send_chat_thought,
    .call_end = send_chat_call,
    .end = end_chat,
    .fail = fail,
    .whole = whole_chat,
};

static const api generate_api = {
    .id_prefix = "gen-",
    .json_lines = 1,
    .read = read_generate,
    .text = send_text,
    .reasoning = send_thought,
    .end = end_generate,
    .fail = fail,
    .whole = whole_generate,
};

static void answer_chat(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &chat_api);
}

static void answer_generate(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &generate_api);
}

const route routes_ollama[] = {
    {"GET", "/api/version", ROUTE_PUBLIC, FORM_OLLAMA, answer_version},
    {"GET", "/api/tags", 0, FORM_OLLAMA, answer_tags},
    {"GET", "/api/ps", 0, FORM_OLLAMA, answer_ps},
    {"POST", "/api/show", ROUTE_SMALL, FORM_OLLAMA, answer_show},
    {"POST", "/api/chat", 0, FORM_OLLAMA, answer_chat},
    {"POST", "/api/generate", 0, FORM_OLLAMA, answer_generate},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
