/* core/text/grammar/json_schema_merge.c - two schemas that hold at once as one; see
 * json_schema_parts.h. */
#include "core/text/grammar/json_schema_parts.h"

int gw_schema_is_note(const char *key) {
    static const char *const notes[] = {
        "title", "description", "default",     "examples",   "example",  "$comment", "$schema",
        "$id",   "$defs",       "definitions", "deprecated", "readOnly", "writeOnly"};
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        if (strcmp(key, notes[i]) == 0) {
            return 1;
        }
    }
    return strncmp(key, "x-", 2) == 0;
}

static gw_status no_memory(void) { return gw_fail(GW_E_NOMEM, GW_SCHEMA, "no memory"); }

enum { LIST_MAX = 4096, APART_MAX = 256 }; /* lists are compared each with each */

static int has_value(const json_t *list, const json_t *value) {
    size_t i;
    json_t *x;
    json_array_foreach((json_t *)(uintptr_t)list, i, x) {
        if (json_equal(x, (json_t *)(uintptr_t)value)) {
            return 1;
        }
    }
    return 0;
}

/* A list, or one thing as a list; new. */
static json_t *as_list(json_t *x) {
    return json_is_array(x) ? json_incref(x) : json_pack("[O]", x);
}

static int is_type(const json_t *types, const char *name) {
    json_t *text = json_string(name);
    int found = has_value(types, text);
    json_decref(text);
    return found;
}

/* What is in both; "number" has the integers in it. */
static gw_status intersect(json_t *into, const char *key, json_t *a, json_t *b, int types,
                           const char *where) {
    json_t *x = as_list(a), *y = as_list(b), *both = json_array(), *value;
    size_t i;
    gw_status status = x != NULL && y != NULL && both != NULL ? GW_OK : no_memory();
    json_array_foreach(x, i, value) {
        const char *name = types ? json_string_value(value) : NULL;
        int integer = name != NULL && strcmp(name, "integer") == 0 && is_type(y, "number");
        if (has_value(y, value) || integer) {
            json_array_append(both, value);
        } else if (name != NULL && strcmp(name, "number") == 0 && is_type(y, "integer")) {
            json_array_append_new(both, json_string("integer"));
        }
    }
    if (status == GW_OK && json_array_size(both) == 0) {
        status = gw_fail(GW_E_METADATA, GW_SCHEMA, "at %s: nothing fits both \"%s\"", where, key);
    }
    if (status == GW_OK && json_object_set(into, key, both) != 0) {
        status = no_memory();
    }
    json_decref(x);
    json_decref(y);
    json_decref(both);
    return status;
}

static gw_status unite(json_t *into, const char *key, json_t *a, json_t *b) {
    json_t *all = json_array(), *value;
    size_t i;
    json_array_foreach(a, i, value) { json_array_append(all, value); }
    json_array_foreach(b, i, value) {
        if (!has_value(all, value)) {
            json_array_append(all, value);
        }
    }
    return json_object_set_new(into, key, all) == 0 ? GW_OK : no_memory();
}

static gw_status merge_properties(json_t *into, json_t *a, json_t *b) {
    json_t *all = json_copy(a), *value;
    const char *name;
    json_object_foreach(b, name, value) {
        json_t *old = json_object_get(all, name);
        json_t *both =
            old == NULL ? json_incref(value) : json_pack("{s:[O,O]}", "allOf", old, value);
        if (json_object_set_new(all, name, both) != 0) {
            json_decref(all);
            return no_memory();
        }
    }
    return json_object_set_new(into, "properties", all) == 0 ? GW_OK : no_memory();
}

static int is_of(const char *key, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(key, list[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* `closed` says what members beyond its properties are; the other side must have none of these. */
static int has_beyond(const json_t *closed, const json_t *other) {
    const char *name;
    json_t *value, *mine = json_object_get(closed, "properties");
    json_t *others = json_object_get(other, "properties");
    const json_t *more = json_object_get(closed, "additionalProperties");
    if (more == NULL || json_is_true(more)) {
        return 0;
    }
    json_object_foreach(others, name, value) {
        if (json_object_get(mine, name) == NULL) {
            return 1;
        }
    }
    return 0;
}

static gw_status merge_key(json_t *into, const char *key, json_t *a, json_t *b, const char *where) {
    static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
    static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
    if (a == NULL || json_equal(a, b)) {
        return json_object_set(into, key, b) == 0 ? GW_OK : no_memory();
    }
    int numbers = json_is_number(a) && json_is_number(b);
    if (numbers && (is_of(key, least, 4) || is_of(key, most, 4))) {
        int larger = json_number_value(b) > json_number_value(a);
        return larger != is_of(key, least, 4)       ? GW_OK
               : json_object_set(into, key, b) == 0 ? GW_OK
                                                    : no_memory();
    }
    if (strcmp(key, "type") == 0 || strcmp(key, "enum") == 0) {
        return intersect(into, key, a, b, key[0] == 't', where);
    }
    if (strcmp(key, "required") == 0 && json_is_array(a) && json_is_array(b)) {
        return unite(into, key, a, b);
    }
    if (strcmp(key, "properties") == 0 && json_is_object(a) && json_is_object(b)) {
        return merge_properties(into, a, b);
    }
    if (strcmp(key, "items") == 0 && !json_is_array(a) && !json_is_array(b)) {
        json_t *both = json_pack("{s:[O,O]}", "allOf", a, b);
        return json_object_set_new(into, key, both) == 0 ? GW_OK : no_memory();
    }
    return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                   "at %s: two schemas that hold at once have different \"%.60s\"", where, key);
}

gw_status gw_schema_merge(json_t *into, json_t *with, const char *where) {
    const char *key;
    json_t *value;
    json_object_foreach(with, key, value) {
        if (json_array_size(value) > LIST_MAX ||
            json_array_size(json_object_get(into, key)) > LIST_MAX) {
            return gw_fail(GW_E_LIMIT, GW_SCHEMA,
                           "at %s: a list of more than %d in schemas that hold at once", where,
                           LIST_MAX);
        }
    }
    if (has_beyond(into, with) || has_beyond(with, into)) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"additionalProperties\" of one schema that holds at once with "
                       "another one with more properties",
                       where);
    }
    json_object_foreach(with, key, value) {
        if (!gw_schema_is_note(key)) {
            GW_TRY(merge_key(into, key, json_object_get(into, key), value, where));
        }
    }
    return GW_OK;
}

/* ---- apart ----------------------------------------------------------------------------------- */

static int same_type(const json_t *type, const json_t *other) {
    const char *a = json_string_value(type), *b = json_string_value(other);
    int numbers = a != NULL && b != NULL && strcmp(a, "integer") == 0 && strcmp(b, "number") == 0;
    return numbers || json_equal((json_t *)(uintptr_t)type, (json_t *)(uintptr_t)other);
}

/* Does a value of one list stand in the other? types: the integers are numbers. */
static int overlap(json_t *a, json_t *b, int types) {
    json_t *x = as_list(a), *y = as_list(b), *v, *u;
    size_t i, k;
    int found = json_array_size(x) > APART_MAX || json_array_size(y) > APART_MAX;
    for (i = 0; i < json_array_size(x) && !found; i++) {
        v = json_array_get(x, i);
        json_array_foreach(y, k, u) {
            int numbers = json_is_number(v) && json_is_number(u) &&
                          !(json_number_value(v) < json_number_value(u) ||
                            json_number_value(v) > json_number_value(u));
            found |= numbers || (types ? same_type(v, u) || same_type(u, v) : json_equal(v, u));
        }
    }
    json_decref(x);
    json_decref(y);
    return found;
}

/* The values that a schema allows, when it lists them; borrowed or new: decref. */
static json_t *listed(const json_t *schema) {
    json_t *value = json_object_get(schema, "const");
    if (value != NULL) {
        return json_pack("[O]", value);
    }
    value = json_object_get(schema, "enum");
    return json_is_array(value) ? json_incref(value) : NULL;
}

static int values_apart(const json_t *a, const json_t *b) {
    json_t *x = listed(a), *y = listed(b);
    int apart = x != NULL && y != NULL && !overlap(x, y, 0);
    json_decref(x);
    json_decref(y);
    return apart;
}

/* 2: only objects are valid; 1: only objects are written, other values are valid too; 0: neither.
 */
static int only_objects(const json_t *schema) {
    static const char *const theirs[] = {"properties", "required", "additionalProperties"};
    const json_t *type = json_object_get(schema, "type");
    const char *key;
    json_t *value;
    if (type != NULL) {
        return json_is_string(type) && strcmp(json_string_value(type), "object") == 0 ? 2 : 0;
    }
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        if (!gw_schema_is_note(key) && !is_of(key, theirs, sizeof theirs / sizeof theirs[0])) {
            return 0;
        }
    }
    return 1;
}

int gw_schema_apart(const json_t *a, const json_t *b) {
    json_t *x = json_object_get(a, "type"), *y = json_object_get(b, "type"), *name;
    if ((x != NULL && y != NULL && !overlap(x, y, 1)) || values_apart(a, b)) {
        return 1;
    }
    int of_a = only_objects(a), of_b = only_objects(b);
    if (of_a != 2 && of_b != 2 && !(of_a == 1 && of_b == 1)) {
        return 0; /* a value that is no object may be of both */
    }
    x = json_object_get(a, "required");
    y = json_object_get(b, "required");
    size_t i;
    if (json_array_size(x) > APART_MAX) {
        return 0;
    }
    json_array_foreach(x, i, name) { /* a member that tells them apart */
        const char *text = json_string_value(name);
        if (text != NULL && json_array_size(y) <= APART_MAX && has_value(y, name) &&
            values_apart(json_object_get(json_object_get(a, "properties"), text),
                         json_object_get(json_object_get(b, "properties"), text))) {
            return 1;
        }
    }
    return 0;
}
