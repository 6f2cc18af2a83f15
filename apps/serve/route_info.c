/* apps/serve/route_info.c - what the server is and how it does: the page, health, models, metrics,
 * and what is not there. */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/metrics.h"
#include "apps/serve/models.h"
#include "apps/serve/page.h"
#include "apps/serve/routes.h"
#include "page_tag.h"

/* ---- the page -------------------------------------------------------------------------------- */

static void answer_page(conn *c, const char *rest) {
    const http_head *head = conn_head(c);
    const char *codings = http_head_field(head, "Accept-Encoding");
    const char *have = http_head_field(head, "If-None-Match");
    fault f = {0};
    (void)rest;
    if (conn_server(c)->o->no_page) {
        fault_set(&f, 404, NULL, "this server was started with --no-page");
        reply_fault(c, &f);
        return;
    }
    static const char extra[] =
        "Content-Security-Policy: " PAGE_POLICY "\r\nX-Content-Type-Options: nosniff\r\n"
        "Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\nCache-Control: no-cache\r\n"
        "Vary: Accept-Encoding\r\nETag: " PAGE_TAG "\r\n";
    static const char packed[] =
        "Content-Security-Policy: " PAGE_POLICY "\r\nX-Content-Type-Options: nosniff\r\n"
        "Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\nCache-Control: no-cache\r\n"
        "Vary: Accept-Encoding\r\nETag: " PAGE_TAG "\r\nContent-Encoding: gzip\r\n";
    if (have != NULL && strcmp(have, PAGE_TAG) == 0) {
        conn_begin(c, 304, "", 0, extra);
    } else if (codings != NULL && strstr(codings, "gzip") != NULL) {
        conn_begin(c, 200, "text/html; charset=utf-8", (int64_t)page_gzip_bytes(), packed);
        conn_write(c, page_gzip(), page_gzip_bytes());
    } else {
        conn_begin(c, 200, "text/html; charset=utf-8", (int64_t)page_html_bytes(), extra);
        conn_write(c, page_html(), page_html_bytes());
    }
    conn_end(c);
}

static void answer_icon(conn *c, const char *rest) {
    (void)rest;
    conn_begin(c, 204, "", 0, "Cache-Control: max-age=86400\r\n");
    conn_end(c);
}

/* ---- health ---------------------------------------------------------------------------------- */

/* The models that failed, while others are served. NULL: none. */
static json_t *failures(const models *all) {
    json_t *list = NULL;
    for (size_t i = 0; i < models_count(all); i++) {
        const char *why = models_failure(all, i);
        if (why != NULL) {
            list = list != NULL ? list : json_array();
            json_array_append_new(
                list, json_pack("{s:s, s:s}", "model", models_id(all, i), "message", why));
        }
    }
    return list;
}

static void answer_health(conn *c, const char *rest) {
    models *all = conn_server(c)->models;
    fault f = {0};
    (void)rest;
    int status = models_health(all, &f);
    if (status == 200) {
        json_t *answer = json_pack("{s:s}", "status", "ok"), *failed = failures(all);
        if (failed != NULL) {
            json_object_set_new(answer, "failed", failed);
        }
        reply_json(c, 200, answer);
        return;
    }
    int ending = conn_server(c)->draining;
    json_t *body = reply_fault_object(FORM_OPENAI, &f);
    json_object_set_new(body, "status",
                        json_string(status == 500 ? "error"
                                    : ending      ? "draining"
                                                  : "loading"));
    if (status == 503 && !ending) {
        json_object_set_new(body, "progress", json_real(models_progress(all)));
    }
    reply_json(c, status, body);
}

static void answer_metrics(conn *c, const char *rest) {
    size_t bytes;
    (void)rest;
    char *text = metrics_text(conn_server(c), &bytes);
    if (text == NULL) {
        reply_json(c, 503, NULL);
        return;
    }
    reply_text(c, 200, "text/plain; version=0.0.4; charset=utf-8", text, bytes);
    free(text);
}

/* ---- models ---------------------------------------------------------------------------------- */

static const char *state_word(model_state state) {
    static const char *const words[] = {[MODEL_ABSENT] = "unloaded",
                                        [MODEL_WAITING] = "loading",
                                        [MODEL_LOADING] = "loading",
                                        [MODEL_READY] = "loaded",
                                        [MODEL_DOZING] = "sleeping",
                                        [MODEL_ASLEEP] = "sleeping",
                                        [MODEL_FAILED] = "failed"};
    return words[state];
}

static json_t *model_object(const server *s, size_t i) {
    const model *m = models_at(s->models, i);
    const char *why = models_failure(s->models, i);
    json_t *one = json_pack("{s:s, s:s, s:I, s:s, s:{s:s}}", "id", models_id(s->models, i),
                            "object", "model", "created", (json_int_t)s->started_at, "owned_by",
                            "godwit", "status", "value", state_word(models_state(s->models, i)));
    if (why != NULL) {
        json_object_set_new(json_object_get(one, "status"), "failed", json_true());
        json_object_set_new(json_object_get(one, "status"), "message", json_string(why));
    }
    if (m != NULL) {
        json_object_set_new(one, "max_model_len", json_integer(m->n_ctx));
        json_object_set_new(one, "meta",
                            json_pack("{s:i, s:i, s:i, s:i, s:I, s:I, s:s, s:s}", "n_vocab",
                                      (int)m->info.n_vocab, "n_ctx", (int)m->n_ctx, "n_ctx_train",
                                      (int)m->info.n_ctx_train, "n_embd", (int)m->info.d_model,
                                      "n_params", (json_int_t)m->info.n_params, "size",
                                      (json_int_t)m->info.weight_bytes, "architecture",
                                      m->info.architecture, "format", m->info.format));
    }
    return one;
}

/* Adapters with a name of their own are models to requests. */
static json_t *adapter_object(const server *s, const adapter *a) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s}", "id", a->name, "object", "model", "created",
                     (json_int_t)s->started_at, "owned_by", "godwit", "root", a->path, "parent",
                     models_id(s->models, 0));
}

static void answer_models(conn *c, const char *rest) {
    const server *s = conn_server(c);
    json_t *data = json_array(), *names = json_array();
    (void)rest;
    for (size_t i = 0; i < models_count(s->models); i++) {
        const char *id = models_id(s->models, i);
        json_array_append_new(data, model_object(s, i));
        /* What Codex and clients of Ollama look for as well. */
        const model *m = models_at(s->models, i);
        json_array_append_new(names,
                              json_pack("{s:s, s:s, s:s, s:[s, s, s*]}", "name", id, "model", id,
                                        "slug", id, "capabilities", "completion", "tools",
                                        m != NULL && m->sights != NULL ? "multimodal" : NULL));
    }
    const adapters *lora = models_adapters(s->models);
    for (int32_t i = 0; i < lora->n; i++) {
        if (lora->at[i].name != NULL && !lora->at[i].gone) {
            json_array_append_new(data, adapter_object(s, &lora->at[i]));
        }
    }
    reply_json(c, 200,
               json_pack("{s:s, s:o, s:o}", "object", "list", "data", data, "models", names));
}

static void answer_model(conn *c, const char *rest) {
    const server *s = conn_server(c);
    for (size_t i = 0; i < models_count(s->models); i++) {
        if (strcmp(models_id(s->models, i), rest) == 0) {
            reply_json(c, 200, model_object(s, i));
            return;
        }
    }
    const adapters *lora = models_adapters(s->models);
    int32_t named = adapters_find(lora, rest);
    if (named >= 0) {
        reply_json(c, 200, adapter_object(s, &lora->at[named]));
        return;
    }
    fault f;
    fault_set(&f, 404, "model", "there is no model '%.100s' here: GET /v1/models lists them", rest);
    f.code = "model_not_found";
    reply_fault(c, &f);
}

/* ---- sleep, as vLLM has it ------------------------------------------------------------------- */

static void answer_sleep(conn *c, const char *rest) {
    fault f = {0};
    (void)rest;
    if (models_sleep_all(conn_server(c)->models, &f) != 0) {
        reply_fault(c, &f);
        return;
    }
    reply_json(c, 200, json_object());
}

static void answer_wake(conn *c, const char *rest) {
    (void)rest;
    models_wake_all(conn_server(c)->models);
    reply_json(c, 200, json_object());
}

static void answer_sleeping(conn *c, const char *rest) {
    (void)rest;
    reply_json(c, 200,
               json_pack("{s:b}", "is_sleeping", models_all_sleep(conn_server(c)->models)));
}

const route routes_info[] = {
    {"GET", "/", ROUTE_PUBLIC, FORM_OPENAI, answer_page},
    {"GET", "/index.html", ROUTE_PUBLIC, FORM_OPENAI, answer_page},
    {"GET", "/favicon.ico", ROUTE_PUBLIC, FORM_OPENAI, answer_icon},
    {"GET", "/health", ROUTE_PUBLIC, FORM_OPENAI, answer_health},
    {"GET", "/v1/health", ROUTE_PUBLIC, FORM_OPENAI, answer_health},
    {"GET", "/metrics", 0, FORM_OPENAI, answer_metrics},
    {"POST", "/sleep", 0, FORM_OPENAI, answer_sleep},
    {"POST", "/wake_up", 0, FORM_OPENAI, answer_wake},
    {"GET", "/is_sleeping", 0, FORM_OPENAI, answer_sleeping},
    {"GET", "/v1/models/", ROUTE_REST, FORM_OPENAI, answer_model},
    {"GET", "/v1/models", 0, FORM_OPENAI, answer_models},
    {"GET", "/models", 0, FORM_OPENAI, answer_models},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
