/* apps/serve/chat_fit.c - conversations for templates that are particular: see chat_fit.h. */
#include "apps/serve/chat_fit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/text.h"

const unsigned chat_fits[] = {
    FIT_ARGUMENTS,
    FIT_THOUGHT,
    FIT_SINGLE_CALLS,
    FIT_SYSTEM,
    FIT_TURNS,
    FIT_NO_SYSTEM,
    FIT_SYSTEM | FIT_TURNS,
    FIT_NO_SYSTEM | FIT_TURNS,
    FIT_SYSTEM_INSIDE | FIT_TURNS,
    FIT_NO_SYSTEM | FIT_SYSTEM_INSIDE | FIT_TURNS,
    FIT_ARGUMENTS | FIT_THOUGHT | FIT_SINGLE_CALLS | FIT_SYSTEM,
    FIT_ARGUMENTS | FIT_THOUGHT | FIT_SINGLE_CALLS | FIT_SYSTEM_INSIDE | FIT_TURNS,
    FIT_ARGUMENTS | FIT_THOUGHT | FIT_SINGLE_CALLS | FIT_SYSTEM_INSIDE | FIT_TURNS | FIT_NO_SYSTEM,
    0};

static const char *role_of(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role != NULL ? role : "";
}

static int is(const json_t *message, const char *role) {
    return strcmp(role_of(message), role) == 0;
}

static json_t *copy_of(const json_t *message) { return json_copy((json_t *)(uintptr_t)message); }

/* ---- texts ----------------------------------------------------------------------------------- */

static int add_json(text_buffer *out, const json_t *text) {
    return json_is_string(text) ? text_add(out, json_string_value(text), json_string_length(text))
                                : 0;
}

/* One text, a blank line and another; either may be missing. */
static json_t *joined(const json_t *a, const json_t *b) {
    text_buffer out = {0};
    int both = json_string_length(a) > 0 && json_string_length(b) > 0;
    add_json(&out, a);
    text_add(&out, "\n\n", both ? 2 : 0);
    add_json(&out, b);
    json_t *text = out.n > 0 ? json_stringn_nocheck(out.at, out.n) : json_string("");
    free(out.at);
    return text;
}

/* As the vendors of agents mark what is not the user's in a user's message. */
static json_t *reminder(const json_t *content) {
    static const char open[] = "<system-reminder>\n", close[] = "\n</system-reminder>";
    text_buffer out = {0};
    text_add(&out, open, sizeof open - 1);
    add_json(&out, content);
    text_add(&out, close, sizeof close - 1);
    json_t *text = out.n > 0 ? json_stringn_nocheck(out.at, out.n) : NULL;
    free(out.at);
    return text;
}

/* ---- one message ----------------------------------------------------------------------------- */

static int fit_arguments(json_t *message) {
    json_t *calls = json_object_get(message, "tool_calls"), *list = NULL, *one;
    size_t i;
    int changed = 0;
    json_array_foreach(calls, i, one) {
        const json_t *arguments = json_object_get(json_object_get(one, "function"), "arguments");
        changed |= json_object_get(one, "function") != NULL && !json_is_object(arguments);
    }
    if (!changed) {
        return 0;
    }
    list = json_array();
    json_array_foreach(calls, i, one) {
        json_t *function = json_object_get(one, "function");
        json_t *arguments = json_object_get(function, "arguments");
        json_t *call = json_copy(one);
        if (function != NULL && !json_is_object(arguments)) {
            json_t *own = json_copy(function);
            json_object_set_new(own, "arguments",
                                arguments != NULL ? json_pack("{s:O}", "arguments", arguments)
                                                  : json_object());
            json_object_set_new(call, "function", own);
        }
        json_array_append_new(list, call);
    }
    json_object_set_new(message, "tool_calls", list);
    return 1;
}

static int fit_thought(json_t *message) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    json_t *content = json_object_get(message, "content"), *thought = NULL;
    for (size_t i = 0; i < 3 && thought == NULL; i++) {
        thought = json_object_get(message, names[i]);
    }
    if (json_object_get(message, "tool_calls") == NULL || json_string_length(content) == 0 ||
        json_string_length(thought) == 0) {
        return 0;
    }
    json_t *both = joined(thought, content);
    for (size_t i = 0; i < 3; i++) {
        json_object_set(message, names[i], both);
    }
    json_decref(both);
    json_object_set_new(message, "content", json_string(""));
    return 1;
}

static int fit_messages(json_t *list, unsigned how) {
    json_t *message;
    size_t i;
    int changed = 0;
    json_array_foreach(list, i, message) {
        changed |= (how & FIT_ARGUMENTS) != 0 && fit_arguments(message);
        changed |= (how & FIT_THOUGHT) != 0 && fit_thought(message);
    }
    return changed;
}

/* ---- several calls --------------------------------------------------------------------------- */

/* What follows message `at`: results, by the call that each is of. */
static json_t *results_behind(const json_t *list, size_t at, size_t *end) {
    json_t *by_id = json_object();
    for (*end = at + 1; is(json_array_get(list, *end), "tool"); (*end)++) {
        json_t *result = json_array_get(list, *end);
        const char *id = json_string_value(json_object_get(result, "tool_call_id"));
        if (id != NULL && json_object_get(by_id, id) == NULL) {
            json_object_set(by_id, id, result);
        }
    }
    return by_id;
}

/* Message `at` as one for each call, with its result; results that no call is known of follow. */
static void split_calls(json_t *out, const json_t *list, size_t at, size_t *end) {
    const json_t *message = json_array_get(list, at);
    json_t *results = results_behind(list, at, end), *call;
    size_t i;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        const char *id = json_string_value(json_object_get(call, "id"));
        json_t *one =
            i == 0 ? copy_of(message) : json_pack("{s:s, s:s}", "role", "assistant", "content", "");
        json_object_set_new(one, "tool_calls", json_pack("[O]", call));
        json_array_append_new(out, one);
        json_t *result = id != NULL ? json_object_get(results, id) : NULL;
        if (result != NULL) {
            json_array_append(out, result);
            json_object_set_new(results, id, json_null()); /* it has its place */
        }
    }
    for (size_t k = at + 1; k < *end; k++) {
        json_t *result = json_array_get(list, k);
        const char *id = json_string_value(json_object_get(result, "tool_call_id"));
        if (id == NULL || json_object_get(results, id) == NULL ||
            !json_is_null(json_object_get(results, id))) {
            json_array_append(out, result);
        }
    }
    json_decref(results);
}

/* A new list in place of `list`, which is taken over; so do the next ones. */
static json_t *fit_single_calls(json_t *list, int *changed) {
    json_t *out = json_array();
    for (size_t i = 0, end; i < json_array_size(list); i = end) {
        json_t *message = json_array_get(list, i);
        end = i + 1;
        if (json_array_size(json_object_get(message, "tool_calls")) > 1) {
            split_calls(out, list, i, &end);
            *changed = 1;
        } else {
            json_array_append(out, message);
        }
    }
    json_decref(list);
    return out;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* A message that its neighbours of the same role are taken into; texts apart, so that a long row of
 * them costs its length. */
typedef struct turn {
    json_t *message;
    text_buffer text, thought;
    int several;
} turn;

static const char *const thoughts[] = {"reasoning_content", "reasoning", "thinking"};

static void add_to_turn(turn *t, const json_t *message) {
    const json_t *said = json_object_get(message, "content"), *thought = NULL;
    for (size_t i = 0; i < 3 && thought == NULL; i++) {
        thought = json_object_get(message, thoughts[i]);
    }
    text_add(&t->text, "\n\n", t->text.n > 0 && json_string_length(said) > 0 ? 2 : 0);
    add_json(&t->text, said);
    text_add(&t->thought, "\n\n", t->thought.n > 0 && json_string_length(thought) > 0 ? 2 : 0);
    add_json(&t->thought, thought);
}

static void end_turn(turn *t) {
    if (t->several && t->text.n > 0) {
        json_object_set_new(t->message, "content", json_stringn_nocheck(t->text.at, t->text.n));
    }
    for (size_t i = 0; t->several && t->thought.n > 0 && i < 3; i++) {
        json_object_set_new(t->message, thoughts[i],
                            json_stringn_nocheck(t->thought.at, t->thought.n));
    }
    free(t->text.at);
    free(t->thought.at);
    *t = (turn){0};
}

static int joins(const json_t *before, const json_t *message, int systems) {
    int user = is(before, "user") && is(message, "user");
    int own = is(before, "assistant") && is(message, "assistant") &&
              json_object_get(before, "tool_calls") == NULL;
    int system = is(before, "system") && is(message, "system");
    return system || (!systems && (user || own));
}

/* A new list in place of `list`, which is taken over. systems: of system messages alone. */
static json_t *join_neighbours(json_t *list, int systems, int *changed) {
    json_t *out = json_array(), *message;
    turn t = {0};
    size_t i;
    json_array_foreach(list, i, message) {
        if (t.message != NULL && joins(t.message, message, systems)) {
            json_t *calls = json_object_get(message, "tool_calls");
            if (!t.several) {
                add_to_turn(&t, t.message);
            }
            add_to_turn(&t, message);
            t.several = *changed = 1;
            if (calls != NULL) {
                json_object_set(t.message, "tool_calls", calls);
            }
            continue;
        }
        if (t.message != NULL) {
            end_turn(&t);
        }
        json_array_append(out, message);
        t.message = message;
    }
    if (t.message != NULL) {
        end_turn(&t);
    }
    json_decref(list);
    return out;
}

/* ---- system messages ------------------------------------------------------------------------- */

/* Several at the start are one, then. */
static json_t *fit_system(json_t *list, unsigned how, int *changed) {
    json_t *out = json_array(), *message, *last = NULL;
    size_t i;
    list = join_neighbours(list, 1, changed);
    json_array_foreach(list, i, message) {
        if (!is(message, "system") || i == 0) {
            json_array_append(out, message);
            last = message;
            continue;
        }
        *changed = 1;
        json_t *text = reminder(json_object_get(message, "content"));
        if ((how & FIT_SYSTEM_INSIDE) != 0 && (is(last, "user") || is(last, "tool"))) {
            json_object_set_new(last, "content", joined(json_object_get(last, "content"), text));
            json_decref(text);
            continue;
        }
        last = json_pack("{s:s, s:o}", "role", "user", "content", text);
        json_array_append_new(out, last);
    }
    json_decref(list);
    return out;
}

static json_t *fit_no_system(json_t *list, int *changed) {
    json_t *first = json_array_get(list, 0), *next = json_array_get(list, 1);
    if (!is(first, "system")) {
        return list;
    }
    *changed = 1;
    json_t *said = json_object_get(first, "content");
    if (is(next, "user")) {
        json_object_set_new(next, "content", joined(said, json_object_get(next, "content")));
        json_array_remove(list, 0);
    } else {
        json_object_set_new(first, "role", json_string("user"));
    }
    return list;
}

/* ---- all ------------------------------------------------------------------------------------- */

json_t *chat_fit(const json_t *messages, unsigned how) {
    json_t *list = json_array();
    const json_t *message;
    size_t i;
    int changed = 0;
    json_array_foreach(messages, i, message) { json_array_append_new(list, copy_of(message)); }
    changed = fit_messages(list, how);
    if ((how & FIT_SINGLE_CALLS) != 0) {
        list = fit_single_calls(list, &changed);
    }
    if ((how & (FIT_SYSTEM | FIT_SYSTEM_INSIDE)) != 0) {
        list = fit_system(list, how, &changed);
    }
    if ((how & FIT_NO_SYSTEM) != 0) {
        list = fit_no_system(list, &changed);
    }
    if ((how & FIT_TURNS) != 0) {
        list = join_neighbours(list, 0, &changed);
    }
    if (!changed) {
        json_decref(list);
        return NULL;
    }
    return list;
}

/* Templates trim what they show, and a part of it says enough. */
int chat_fit_shows(const json_t *messages, const char *text, size_t bytes) {
    enum { SHOWN = 200 };
    const json_t *message;
    size_t i, at = 0;
    json_array_foreach(messages, i, message) {
        const char *said = json_string_value(json_object_get(message, "content"));
        if (i == 0 || said == NULL || !is(message, "system")) {
            continue;
        }
        said += strspn(said, " \t\r\n");
        size_t n = strnlen(said, SHOWN);
        while (n > 0 && strchr(" \t\r\n", said[n - 1]) != NULL) {
            n--;
        }
        const char *found = n > 0 ? memmem(text + at, bytes - at, said, n) : text + at;
        if (found == NULL) {
            return 0;
        }
        at = (size_t)(found - text) + n;
    }
    return 1;
}
