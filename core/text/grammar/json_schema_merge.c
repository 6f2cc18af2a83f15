/* core/text/grammar/json_schema_merge.c - two schemas that hold at once as one; see
 * json_schema_parts.h. */
#include <stdio.h>

#include "core/text/grammar/json_schema_parts.h"

/* Words that say nothing about a value; so do all words that are not known (core, 6.5). */
int gw_schema_is_note(const char *key) {
    static const char *const words[] = {"type",
                                        "enum",
                                        "const",
                                        "$ref",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "not",
                                        "if",
                                        "then",
                                        "else",
                                        "dependentRequired",
                                        "dependencies",
                                        "dependentSchemas",
                                        "properties",
                                        "patternProperties",
                                        "propertyNames",
                                        "additionalProperties",
                                        "required",
                                        "unevaluatedProperties",
                                        "minProperties",
                                        "maxProperties",
                                        "items",
                                        "prefixItems",
                                        "minItems",
                                        "maxItems",
                                        "uniqueItems",
                                        "additionalItems",
                                        "contains",
                                        "unevaluatedItems",
                                        "minContains",
                                        "maxContains",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "minimum",
                                        "exclusiveMinimum",
                                        "maximum",
                                        "exclusiveMaximum",
                                        "multipleOf",
                                        "$dynamicRef",
                                        "$recursiveRef"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(key, words[i]) == 0) {
            return 0;
        }
    }
    return 1;
}

static gw_status no_memory(void) { return gw_schema_no_memory(); }

enum { LIST_MAX = 4096, APART_MAX = 256, BRANCHES_MAX = 256 }; /* compared each with each */

static int has_value(gw_schema_work *w, const json_t *list, const json_t *value) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (gw_schema_equal(w, json_array_get(list, i), value)) {
            return 1;
        }
    }
    return 0;
}

/* A list, or one thing as a list; new. */
static json_t *as_list(json_t *x) {
    return json_is_array(x) ? json_incref(x) : json_pack("[O]", x);
}

static int is_type(gw_schema_work *w, const json_t *types, const char *name) {
    json_t *text = json_string(name);
    int found = has_value(w, types, text);
    json_decref(text);
    return found;
}

typedef struct merger {
    gw_schema_work *w;
    json_t *into, *with;
    const char *where;
} merger;

static gw_status set_new(const merger *m, const char *key, json_t *value) {
    return json_object_set_new(m->into, key, value) == 0 ? GW_OK : no_memory();
}

/* Both schemas at once; one that is not there says nothing. New. */
static json_t *both_of(json_t *a, json_t *b) {
    return a == NULL   ? json_incref(b)
           : b == NULL ? json_incref(a)
                       : json_pack("{s:[O,O]}", "allOf", a, b);
}

/* What is in both; "number" has the integers in it. */
static gw_status intersect(const merger *m, const char *key, json_t *a, json_t *b, int types) {
    json_t *x = as_list(a), *y = as_list(b), *both = json_array(), *value;
    size_t i;
    gw_status status = x != NULL && y != NULL && both != NULL ? GW_OK : no_memory();
    json_array_foreach(x, i, value) {
        const char *name = types ? json_string_value(value) : NULL;
        int integer = name != NULL && strcmp(name, "integer") == 0 && is_type(m->w, y, "number");
        if (has_value(m->w, y, value) || integer) {
            json_array_append(both, value);
        } else if (name != NULL && strcmp(name, "number") == 0 && is_type(m->w, y, "integer")) {
            json_array_append_new(both, json_string("integer"));
        }
    }
    if (status == GW_OK && json_array_size(both) == 0) {
        char what[100];
        snprintf(what, sizeof what, "nothing fits both \"%.60s\"", key);
        status = gw_schema_contradiction(m->w, m->where, what);
    }
    if (status == GW_OK && json_object_set(m->into, key, both) != 0) {
        status = no_memory();
    }
    json_decref(x);
    json_decref(y);
    json_decref(both);
    return status;
}

static gw_status unite(const merger *m, const char *key, json_t *a, json_t *b) {
    json_t *x = as_list(a), *y = as_list(b), *all = json_array(), *value;
    size_t i;
    json_array_foreach(x, i, value) { json_array_append(all, value); }
    json_array_foreach(y, i, value) {
        if (!has_value(m->w, all, value)) {
            json_array_append(all, value);
        }
    }
    json_decref(x);
    json_decref(y);
    return set_new(m, key, all);
}

/* Every choice of one with every choice of the other. */
static gw_status multiply(const merger *m, const char *key, json_t *a, json_t *b) {
    json_t *all = json_array(), *x, *y;
    size_t i, k;
    if (json_array_size(a) * json_array_size(b) > BRANCHES_MAX) {
        json_decref(all);
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: more than %d choices at once", m->where,
                       BRANCHES_MAX);
    }
    json_array_foreach(a, i, x) {
        json_array_foreach(b, k, y) { json_array_append_new(all, both_of(x, y)); }
    }
    return set_new(m, key, all);
}

/* ---- objects --------------------------------------------------------------------------------- */

static json_t *closing(const json_t *schema) {
    json_t *more = json_object_get(schema, "additionalProperties");
    return json_is_true(more) ? NULL : more;
}

/* Members of one that the other does not name are others to it. */
static gw_status extend(json_t *all, json_t *own, json_t *others, json_t *more) {
    const char *name;
    json_t *value;
    json_object_foreach(own, name, value) {
        json_t *there = json_object_get(others, name);
        if (json_object_get(all, name) == NULL &&
            json_object_set_new(all, name, both_of(value, there != NULL ? there : more)) != 0) {
            return no_memory();
        }
    }
    return GW_OK;
}

static gw_status merge_named(const merger *m, const char *key, json_t *more, json_t *more_with) {
    json_t *a = json_object_get(m->into, key), *b = json_object_get(m->with, key);
    if (a == NULL && b == NULL) {
        return GW_OK;
    }
    json_t *all = json_object();
    gw_status status = extend(all, a, b, more_with);
    status = status == GW_OK ? extend(all, b, a, more) : status;
    if (status != GW_OK) {
        json_decref(all);
        return status;
    }
    return set_new(m, key, all);
}

static gw_status merge_members(const merger *m) {
    json_t *more = closing(m->into), *more_with = closing(m->with);
    json_t *like = json_object_get(m->into, "patternProperties");
    json_t *like_with = json_object_get(m->with, "patternProperties");
    if ((more != NULL || more_with != NULL) && (like != NULL || like_with != NULL) &&
        !(like != NULL && like_with != NULL && json_equal(like, like_with) &&
          json_equal(json_object_get(m->into, "properties"),
                     json_object_get(m->with, "properties")))) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"additionalProperties\" and \"patternProperties\" of schemas that "
                       "hold at once",
                       m->where);
    }
    GW_TRY(merge_named(m, "properties", more, more_with));
    GW_TRY(merge_named(m, "patternProperties", NULL, NULL));
    json_t *both = more != NULL || more_with != NULL
                       ? both_of(more, more_with)
                       : json_incref(json_object_get(m->with, "additionalProperties"));
    return both != NULL ? set_new(m, "additionalProperties", both) : GW_OK;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static gw_status merge_elements(const merger *m) {
    json_t *first = json_object_get(m->into, "prefixItems"),
           *items = json_object_get(m->into, "items");
    json_t *first_with = json_object_get(m->with, "prefixItems");
    json_t *items_with = json_object_get(m->with, "items");
    size_t n = json_array_size(first), n_with = json_array_size(first_with);
    if (n + n_with > 0) {
        json_t *all = json_array();
        for (size_t i = 0; i < n || i < n_with; i++) {
            json_array_append_new(all,
                                  both_of(i < n ? json_array_get(first, i) : items,
                                          i < n_with ? json_array_get(first_with, i) : items_with));
        }
        GW_TRY(set_new(m, "prefixItems", all));
    }
    json_t *both = items != NULL || items_with != NULL ? both_of(items, items_with) : NULL;
    return both != NULL ? set_new(m, "items", both) : GW_OK;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static int is_of(const char *key, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(key, list[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static gw_status merge_bound(const merger *m, const char *key, json_t *a, json_t *b, int least) {
    int larger = gw_schema_compare(m->w, b, a) > 0;
    return larger != least ? GW_OK : json_object_set(m->into, key, b) == 0 ? GW_OK : no_memory();
}

static gw_status merge_key(const merger *m, const char *key, json_t *a, json_t *b) {
    static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        "minProperties"};
    static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                       "maxProperties"};
    static const char *const lists[] = {"required", "pattern", "format", "not", "multipleOf"};
    static const char *const schemas[] = {"propertyNames", "unevaluatedProperties",
                                          "unevaluatedItems"};
    if (a == NULL || gw_schema_equal(m->w, a, b)) {
        return json_object_set(m->into, key, b) == 0 ? GW_OK : no_memory();
    }
    if (json_is_number(a) && json_is_number(b) && (is_of(key, least, 5) || is_of(key, most, 5))) {
        return merge_bound(m, key, a, b, is_of(key, least, 5));
    }
    if (strcmp(key, "type") == 0 || strcmp(key, "enum") == 0) {
        return intersect(m, key, a, b, key[0] == 't');
    }
    if (strcmp(key, "const") == 0) {
        return gw_schema_contradiction(m->w, m->where, "two different \"const\"");
    }
    if (strcmp(key, "uniqueItems") == 0 && json_is_boolean(a) && json_is_boolean(b)) {
        return set_new(m, key, json_true());
    }
    if (is_of(key, lists, 5)) {
        return unite(m, key, a, b);
    }
    if (is_of(key, schemas, 3)) {
        return set_new(m, key, both_of(a, b));
    }
    if ((strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) && json_is_array(a) &&
        json_is_array(b)) {
        return multiply(m, key, a, b);
    }
    return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                   "at %s: two schemas that hold at once have different \"%.60s\"", m->where, key);
}

gw_status gw_schema_merge(gw_schema_work *w, json_t *into, json_t *with, const char *where) {
    static const char *const together[] = {"properties", "patternProperties",
                                           "additionalProperties", "items", "prefixItems"};
    merger m = {w, into, with, where};
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
    GW_TRY(merge_members(&m));
    GW_TRY(merge_elements(&m));
    json_object_foreach(with, key, value) {
        if (!gw_schema_is_note(key) && !is_of(key, together, 5)) {
            GW_TRY(merge_key(&m, key, json_object_get(into, key), value));
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
static int overlap(gw_schema_work *w, json_t *a, json_t *b, int types) {
    json_t *x = as_list(a), *y = as_list(b), *v, *u;
    size_t i, k;
    int found = json_array_size(x) > APART_MAX || json_array_size(y) > APART_MAX;
    for (i = 0; i < json_array_size(x) && !found; i++) {
        v = json_array_get(x, i);
        json_array_foreach(y, k, u) {
            found |= types ? same_type(v, u) || same_type(u, v) : gw_schema_equal(w, v, u);
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

static int values_apart(gw_schema_work *w, const json_t *a, const json_t *b) {
    json_t *x = listed(a), *y = listed(b);
    int apart = x != NULL && y != NULL && !overlap(w, x, y, 0);
    json_decref(x);
    json_decref(y);
    return apart;
}

/* 2: only objects are valid; 1: only objects are written, other values are valid too; 0: neither.
 */
static int only_objects(const json_t *schema) {
    static const char *const theirs[] = {"properties",    "required",      "additionalProperties",
                                         "minProperties", "maxProperties", "patternProperties",
                                         "propertyNames"};
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

int gw_schema_apart(gw_schema_work *w, const json_t *a, const json_t *b) {
    json_t *x = json_object_get(a, "type"), *y = json_object_get(b, "type"), *name;
    if ((x != NULL && y != NULL && !overlap(w, x, y, 1)) || values_apart(w, a, b)) {
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
        if (text != NULL && json_array_size(y) <= APART_MAX && has_value(w, y, name) &&
            values_apart(w, json_object_get(json_object_get(a, "properties"), text),
                         json_object_get(json_object_get(b, "properties"), text))) {
            return 1;
        }
    }
    return 0;
}
