/* apps/serve/tools.c - tools of requests: see tools.h. */
#include "apps/serve/tools.h"

#include <stdlib.h>
#include <string.h>

static int no_tool_memory(fault *f) { return fault_set(f, 503, NULL, "out of memory"); }

/* ---- names ----------------------------------------------------------------------------------- */

char *tools_joined(const char *space, const char *name) {
    size_t n = strlen(space), k = strlen(name);
    const char *between = n >= 2 && strcmp(space + n - 2, "__") == 0 ? "" : "__";
    char *joined = malloc(n + k + 3);
    if (joined != NULL) {
        memcpy(joined, space, n);
        memcpy(joined + n, between, strlen(between));
        memcpy(joined + n + strlen(between), name, k + 1);
    }
    return joined;
}

const char *tools_split(const ask *a, const char *offered, const char **name) {
    const json_t *pair = json_object_get(a->spaces, offered);
    if (pair == NULL) {
        *name = offered;
        return NULL;
    }
    *name = json_string_value(json_array_get(pair, 1));
    return json_string_value(json_array_get(pair, 0));
}

/* ---- the list -------------------------------------------------------------------------------- */

static int add_named(ask *a, const json_t *name, const json_t *description,
                     const json_t *parameters) {
    json_t *schema = json_is_object(parameters)
                         ? json_incref((json_t *)(uintptr_t)parameters)
                         : json_pack("{s:s, s:{}}", "type", "object", "properties");
    json_t *tool = json_pack(
        "{s:s, s:{s:O, s:o, s:o}}", "type", "function", "function", "name", name, "description",
        json_is_string(description) ? json_incref((json_t *)(uintptr_t)description)
                                    : json_string(""),
        "parameters", schema);
    if (a->tools == NULL) {
        a->tools = json_array();
        a->by_name = json_object();
    }
    return json_object_set(a->by_name, json_string_value(name), tool) == 0
               ? json_array_append_new(a->tools, tool)
               : -1;
}

int tools_add(ask *a, const char *space, const char *name, const json_t *description,
              const json_t *parameters) {
    char *joined = space != NULL ? tools_joined(space, name) : NULL;
    json_t *own = json_string(joined != NULL ? joined : name);
    int code = own != NULL && (joined != NULL || space == NULL)
                   ? add_named(a, own, description, parameters)
                   : -1;
    if (code == 0 && joined != NULL) {
        a->spaces = a->spaces != NULL ? a->spaces : json_object();
        code = json_object_set_new(a->spaces, joined, json_pack("[s, s]", space, name));
        if (json_object_get(a->by_name, name) == NULL) { /* a choice may leave the space out */
            json_object_set(a->by_name, name, json_object_get(a->by_name, joined));
        }
    }
    json_decref(own);
    free(joined);
    return code;
}

/* Members of the function: of the tool itself, or in its "function". */
static const json_t *function_of(const json_t *tool) {
    const json_t *function = json_object_get(tool, "function");
    return json_is_object(function) ? function : tool;
}

static int add_one(ask *a, const char *space, const json_t *tool, size_t number, fault *f) {
    const json_t *function = function_of(tool);
    const char *name = json_string_value(json_object_get(function, "name"));
    if (name == NULL || name[0] == '\0') {
        return fault_set(f, 400, "tools", "tools[%zu].%sname: a name is needed", number,
                         function != tool ? "function." : "");
    }
    return tools_add(a, space, name, json_object_get(function, "description"),
                     json_object_get(function, "parameters")) == 0
               ? 0
               : no_tool_memory(f);
}

static int add_space(ask *a, const json_t *tool, size_t number, fault *f) {
    const char *space = json_string_value(json_object_get(tool, "name"));
    const json_t *inner;
    size_t i;
    if (space == NULL || space[0] == '\0') {
        return fault_set(f, 400, "tools", "tools[%zu].name: a namespace has a name", number);
    }
    json_array_foreach(json_object_get(tool, "tools"), i, inner) {
        const char *type = json_string_value(json_object_get(inner, "type"));
        if ((type == NULL || strcmp(type, "function") == 0) &&
            add_one(a, space, inner, number, f) != 0) {
            return -1;
        }
    }
    return 0;
}

static int read_list(ask *a, const json_t *list, fault *f) {
    size_t i;
    const json_t *tool;
    if (list == NULL || json_is_null(list)) {
        return 0;
    }
    if (!json_is_array(list)) {
        return fault_set(f, 400, "tools", "tools: a list is needed");
    }
    json_array_foreach(list, i, tool) {
        const char *type = json_string_value(json_object_get(tool, "type"));
        int code = 0;
        if (type == NULL || strcmp(type, "function") == 0) {
            code = add_one(a, NULL, tool, i, f);
        } else if (strcmp(type, "namespace") == 0) {
            code = add_space(a, tool, i, f);
        }
        if (code != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* The tool that a choice names, alone or in its namespace; NULL: *f. */
static json_t *named_tool(const ask *a, const json_t *choice, fault *f) {
    const json_t *function = function_of(choice);
    const char *name = json_string_value(json_object_get(function, "name"));
    const char *space = json_string_value(json_object_get(function, "namespace"));
    char *joined = name != NULL && space != NULL ? tools_joined(space, name) : NULL;
    json_t *tool =
        name != NULL ? json_object_get(a->by_name, joined != NULL ? joined : name) : NULL;
    free(joined);
    if (tool == NULL) {
        fault_set(f, 400, "tool_choice", "tool_choice: no tool is called '%.60s'",
                  name != NULL ? name : "?");
    }
    return tool;
}

static int read_word(ask *a, const char *word, fault *f) {
    static const struct {
        const char *word;
        gw_tool_choice choice;
    } words[] = {{"auto", GW_TOOLS_AUTO},
                 {"none", GW_TOOLS_NONE},
                 {"required", GW_TOOLS_REQUIRED},
                 {"any", GW_TOOLS_REQUIRED}};
    for (size_t i = 0; word != NULL && i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(word, words[i].word) == 0) {
            a->choice = words[i].choice;
            return a->choice != GW_TOOLS_REQUIRED || a->tools != NULL
                       ? 0
                       : fault_set(f, 400, "tool_choice", "tool_choice: there are no tools");
        }
    }
    return fault_set(f, 400, "tool_choice",
                     "tool_choice: auto, none, required, allowed_tools, or a function with its "
                     "name is needed");
}

/* {"mode": "auto" | "required", "tools": [...]}: all tools stay in the prompt, so that its prefix
 * is the same, and only these may be called. */
static int read_allowed(ask *a, const json_t *choice, fault *f) {
    const json_t *given = json_object_get(choice, "allowed_tools"), *one;
    const json_t *allowed = json_is_object(given) ? given : choice;
    const json_t *list = json_object_get(allowed, "tools");
    const char *mode = json_string_value(json_object_get(allowed, "mode"));
    size_t i;
    if (!json_is_array(list) ||
        (mode != NULL && strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0)) {
        return fault_set(f, 400, "tool_choice",
                         "tool_choice.allowed_tools: \"mode\" (auto, required) and a list "
                         "\"tools\" are needed");
    }
    a->callable = json_array();
    json_array_foreach(list, i, one) {
        const char *type = json_string_value(json_object_get(one, "type"));
        if (type != NULL && strcmp(type, "function") != 0) {
            continue;
        }
        json_t *tool = named_tool(a, one, f);
        if (tool == NULL) {
            return -1;
        }
        json_array_append(a->callable, tool);
    }
    if (json_array_size(a->callable) == 0 && mode != NULL && strcmp(mode, "required") == 0) {
        return fault_set(f, 400, "tool_choice",
                         "tool_choice.allowed_tools: a call is required, and no function is in "
                         "the list");
    }
    return read_word(a, mode != NULL ? mode : "auto", f);
}

int tools_choose(ask *a, const json_t *given, fault *f) {
    const char *type = json_string_value(json_object_get(given, "type"));
    if (given == NULL || json_is_null(given)) {
        a->choice = GW_TOOLS_AUTO;
        return 0;
    }
    if (!json_is_object(given)) {
        return read_word(a, json_string_value(given), f);
    }
    if (type != NULL && strcmp(type, "allowed_tools") == 0) {
        return read_allowed(a, given, f);
    }
    if (type != NULL && strcmp(type, "function") != 0) {
        return fault_set(f, 400, "tool_choice",
                         "tool_choice: a tool of type '%.40s' cannot be called here: functions can",
                         type);
    }
    json_t *tool = named_tool(a, given, f);
    if (tool == NULL) {
        return -1;
    }
    a->choice = GW_TOOLS_REQUIRED;
    a->named =
        strdup(json_string_value(json_object_get(json_object_get(tool, "function"), "name")));
    return a->named != NULL ? 0 : no_tool_memory(f);
}

int tools_read(ask *a, const json_t *body, fault *f) {
    int parallel = 1;
    if (read_list(a, json_object_get(body, "tools"), f) != 0 ||
        tools_choose(a, json_object_get(body, "tool_choice"), f) != 0 ||
        ask_bool(body, "parallel_tool_calls", &parallel, f) != 0) {
        return -1;
    }
    a->one_call = !parallel;
    return 0;
}
