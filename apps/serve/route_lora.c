/* apps/serve/route_lora.c - llama-server's /lora-adapters: which adapters there are, and which of
 * them are in texts of requests that choose none; vLLM's routes by which adapters come and go. On
 * the loop's thread, so that a request sees all of a change or nothing. */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/lora.h"
#include "apps/serve/routes.h"

/* The only model, in use until models_release; NULL: the fault has been replied. */
static model *adapted_model(conn *c) {
    fault f = {0};
    model *m = models_now(conn_server(c)->models, NULL, &f);
    if (m == NULL) {
        reply_fault(c, &f);
    }
    return m;
}

static void answer_list(conn *c, const char *rest) {
    model *m = adapted_model(c);
    (void)rest;
    if (m == NULL) {
        return;
    }
    gw_lora_info info[GW_LORA_MOST];
    json_t *list = json_array();
    gw_model_adapters(m->gw, info, GW_LORA_MOST);
    for (int i = 0; i < GW_LORA_MOST; i++) {
        const gw_lora_info *one = m->lora_at[i] >= 0 ? &info[m->lora_at[i]] : NULL;
        if (one != NULL) {
            json_array_append_new(
                list, json_pack("{s:i, s:s, s:s, s:f, s:i, s:s, s:s}", "id", i, "path", one->path,
                                "name", one->name, "scale", (double)m->lora_scales[i], "rank",
                                (int)one->rank, "task_name", "", "prompt_prefix", ""));
        }
    }
    models_release(conn_server(c)->models, m);
    reply_json(c, 200, list);
}

static void answer_set(conn *c, const char *rest) {
    size_t bytes = 0;
    fault f = {0};
    gw_lora_pick pick;
    const char *text = conn_body(c, &bytes);
    model *m = adapted_model(c);
    (void)rest;
    if (m == NULL) {
        return;
    }
    json_t *list = json_loadb(text != NULL ? text : "", bytes, JSON_REJECT_DUPLICATES, NULL);
    int bad = list == NULL ? fault_set(&f, 400, NULL, "the body is no JSON")
                           : lora_read_list(list, "the body", &pick, &f);
    json_decref(list);
    bad = bad != 0 ? bad : lora_check_pick(m, &pick, &f);
    if (bad == 0) {
        memset(m->lora_scales, 0, sizeof m->lora_scales);
        for (int32_t i = 0; i < pick.n; i++) {
            m->lora_scales[pick.adapter[i]] = pick.scale[i];
        }
    }
    models_release(conn_server(c)->models, m);
    if (bad != 0) {
        reply_fault(c, &f);
    } else {
        reply_json(c, 200, json_pack("{s:b}", "success", 1));
    }
}

/* ---- adapters that come and go, as vLLM has it ----------------------------------------------- */

/* The body as an object; NULL: the fault has been replied. */
static json_t *change_of(conn *c) {
    size_t bytes = 0;
    fault f = {0};
    const char *text = conn_body(c, &bytes);
    json_t *body = json_loadb(text != NULL ? text : "", bytes, JSON_REJECT_DUPLICATES, NULL);
    if (!conn_server(c)->o->allow_lora_loading) {
        fault_set(&f, 403, NULL,
                  "adapters are neither loaded nor unloaded here: the server's option "
                  "--allow-lora-loading allows it");
    } else if (!json_is_object(body)) {
        fault_set(&f, 400, NULL, "the body is no JSON object");
    }
    if (f.status != 0) {
        json_decref(body);
        body = NULL;
        reply_fault(c, &f);
    }
    return body;
}

/* A text of the body, malloc'd; NULL: *f. */
static char *text_of(const json_t *body, const char *field, size_t most, fault *f) {
    const char *text = json_string_value(json_object_get(body, field));
    size_t n = text != NULL ? strlen(text) : 0;
    if (n == 0 || n > most || n != json_string_length(json_object_get(body, field))) {
        fault_set(f, 400, field, "%s: expected a text of 1 to %zu bytes", field, most);
        return NULL;
    }
    char *own = strdup(text);
    if (own == NULL) {
        fault_set(f, 503, NULL, "out of memory");
    }
    return own;
}

static void reply_success(conn *c, const char *name, const char *what) {
    char text[GW_LORA_NAME + 80];
    int n = snprintf(text, sizeof text, "Success: LoRA adapter '%s' %s successfully.", name, what);
    reply_text(c, 200, "text/plain; charset=utf-8", text, (size_t)n);
}

/* A client that waits for its adapter. */
typedef struct pending_load {
    adapter_wait wait;
    conn *c; /* NULL: it has gone */
    char name[GW_LORA_NAME];
} pending_load;

static void on_gone(void *user) { ((pending_load *)user)->c = NULL; }

static void on_loaded(void *user, const fault *f) {
    pending_load *a = user;
    if (a->c != NULL) {
        conn_watched(a->c, &(conn_watch){0});
        if (f != NULL) {
            reply_fault(a->c, f);
        } else {
            reply_success(a->c, a->name, "added");
        }
    }
    free(a);
}

static void answer_load(conn *c, const char *rest) {
    fault f = {0};
    json_t *body = change_of(c);
    (void)rest;
    if (body == NULL) {
        return;
    }
    pending_load *a = calloc(1, sizeof *a);
    char *name = text_of(body, "lora_name", GW_LORA_NAME - 1, &f);
    char *path = name != NULL ? text_of(body, "lora_path", 4095, &f) : NULL;
    int in_place = json_is_true(json_object_get(body, "load_inplace"));
    json_decref(body);
    if (path == NULL || a == NULL) {
        free(name);
        free(path);
        free(a);
        if (f.status == 0) {
            fault_set(&f, 503, NULL, "out of memory");
        }
        reply_fault(c, &f);
        return;
    }
    snprintf(a->name, sizeof a->name, "%s", name);
    a->c = c;
    a->wait = (adapter_wait){
        .name = name, .path = path, .in_place = in_place, .done = on_loaded, .user = a};
    conn_watched(c, &(conn_watch){.gone = on_gone, .user = a});
    models_load_adapter(conn_server(c)->models, &a->wait);
}

static void answer_unload(conn *c, const char *rest) {
    fault f = {0};
    json_t *body = change_of(c);
    (void)rest;
    if (body == NULL) {
        return;
    }
    char *name = text_of(body, "lora_name", GW_LORA_NAME - 1, &f);
    json_decref(body);
    if (name == NULL || models_unload_adapter(conn_server(c)->models, name, &f) != 0) {
        reply_fault(c, &f);
    } else {
        reply_success(c, name, "removed");
    }
    free(name);
}

const route routes_lora[] = {
    {"GET", "/lora-adapters", 0, FORM_OPENAI, answer_list},
    {"POST", "/lora-adapters", ROUTE_SMALL, FORM_OPENAI, answer_set},
    {"POST", "/v1/load_lora_adapter", ROUTE_SMALL, FORM_OPENAI, answer_load},
    {"POST", "/v1/unload_lora_adapter", ROUTE_SMALL, FORM_OPENAI, answer_unload},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
