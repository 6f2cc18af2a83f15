/* core/text/answer/answer_tools.c - the list of tools of a request; see answer.h. */
#include "core/base/json.h"
#include "core/text/answer/answer.h"

#define WHERE "tools"

static gw_status read_tool(json_t *item, size_t number, gw_tool *out) {
    const char *type = json_string_value(json_object_get(item, "type"));
    json_t *function = json_object_get(item, "function");
    *out = (gw_tool){0};
    if (!json_is_object(item)) {
        return gw_fail(GW_E_TYPE, WHERE, "number %zu is no object", number + 1);
    }
    if (function == NULL && type != NULL && strcmp(type, "function") != 0) {
        return GW_OK; /* a tool of another kind */
    }
    function = function != NULL ? function : item;
    out->name = json_string_value(json_object_get(function, "name"));
    out->parameters = json_object_get(function, "parameters");
    if (out->parameters == NULL) {
        out->parameters = json_object_get(function, "input_schema");
    }
    if (out->name == NULL || out->name[0] == '\0') {
        return gw_fail(GW_E_TYPE, WHERE, "number %zu has no \"name\"", number + 1);
    }
    if (json_is_null(out->parameters)) {
        out->parameters = NULL;
    }
    if (out->parameters != NULL && !json_is_object(out->parameters)) {
        return gw_fail(GW_E_TYPE, WHERE, "\"parameters\" of '%.60s' is no schema: an object",
                       out->name);
    }
    if (json_object_size(out->parameters) == 0) {
        out->parameters = NULL;
    }
    return GW_OK;
}

gw_status gw_tools_read(const char *text, size_t bytes, gw_tools *out) {
    gw_tools t = {0};
    gw_status status;
    json_t *item;
    size_t i;
    GW_TRY(gw_json_parse_settings(WHERE, text, bytes, &t.list));
    if (!json_is_array(t.list)) {
        GW_TRY_DONE(gw_fail(GW_E_TYPE, WHERE,
                            "a JSON list is needed: [{\"type\": \"function\", \"function\": "
                            "{\"name\": ..., \"parameters\": {...}}}, ...]"));
    }
    t.at = calloc(json_array_size(t.list) + 1, sizeof *t.at);
    if (t.at == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, WHERE, "no memory"));
    }
    json_array_foreach(t.list, i, item) {
        GW_TRY_DONE(read_tool(item, i, &t.at[t.n]));
        t.n += t.at[t.n].name != NULL;
    }
    *out = t;
    return GW_OK;
done:
    gw_tools_free(&t);
    return status;
}

void gw_tools_free(gw_tools *tools) {
    json_decref(tools->list);
    free(tools->at);
    *tools = (gw_tools){0};
}

const gw_tool *gw_tools_find(const gw_tools *tools, const char *name, size_t n) {
    for (size_t i = 0; tools != NULL && i < tools->n; i++) {
        if (strlen(tools->at[i].name) == n && memcmp(tools->at[i].name, name, n) == 0) {
            return &tools->at[i];
        }
    }
    return NULL;
}
