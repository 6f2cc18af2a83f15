/* apps/serve/route_lora.c - llama-server's /lora-adapters: which adapters there are, and which of
 * them are in texts of requests that choose none. On the loop's thread, so that a request sees all
 * of a change or nothing. */
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
    size_t n = gw_model_adapters(m->gw, info, GW_LORA_MOST);
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, json_pack("{s:i, s:s, s:s, s:f, s:i, s:s, s:s}", "id", (int)i,
                                              "path", info[i].path, "name", info[i].name, "scale",
                                              (double)m->lora_scales[i], "rank", (int)info[i].rank,
                                              "task_name", "", "prompt_prefix", ""));
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

const route routes_lora[] = {
    {"GET", "/lora-adapters", 0, FORM_OPENAI, answer_list},
    {"POST", "/lora-adapters", ROUTE_SMALL, FORM_OPENAI, answer_set},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
