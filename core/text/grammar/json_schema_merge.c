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
                                        GW_SCHEMA_CLOSINGS,
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

enum { LIST_MAX = 100000, TYPES_MAX = 64, APART_MAX = 256, BRANCHES_MAX = 256 };
enum { LIST_COST = 8 }; /* values of a list for what a copied keyword costs */

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

/* Names of types in both; "number" has the integers in it. */
static gw_status common_types(const merger *m, json_t *x, json_t *y, json_t *both) {
    json_t *value;
    size_t i;
    json_array_foreach(x, i, value) {
        const char *name = json_string_value(value);
        int integer = name != NULL && strcmp(name, "integer") == 0 && is_type(m->w, y, "number");
        if (has_value(m->w, y, value) || integer) {
            json_array_append(both, value);
        } else if (name != NULL && strcmp(name, "number") == 0 && is_type(m->w, y, "integer")) {
            json_array_append_new(both, json_string("integer"));
        }
    }
    return GW_OK;
}

static gw_status common_values(const merger *m, json_t *x, json_t *y, json_t *both) {
    gw_schema_set set = {0};
    json_t *value;
    size_t i;
    gw_status status;
    GW_TRY_DONE(gw_schema_set_open(m->w, &set));
    GW_TRY_DONE(gw_schema_set_add_all(&set, y));
    json_array_foreach(x, i, value) {
        int is;
        GW_TRY_DONE(gw_schema_set_has(&set, value, &is));
        if (is && json_array_append(both, value) != 0) {
            GW_TRY_DONE(no_memory());
        }
    }
    status = GW_OK;
done:
    gw_schema_set_close(&set);
    return status;
}

static gw_status intersect(const merger *m, const char *key, json_t *a, json_t *b, int types) {
    json_t *x = as_list(a), *y = as_list(b), *both = json_array();
    m->w->flattened += (json_array_size(x) + json_array_size(y)) / LIST_COST;
    gw_status status = x != NULL && y != NULL && both != NULL ? GW_OK : no_memory();
    if (status == GW_OK) {
        status = types ? common_types(m, x, y, both) : common_values(m, x, y, both);
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

/* All of one, then those of the other that are not there. */
static gw_status unite(const merger *m, const char *key, json_t *a, json_t *b) {
    json_t *lists[2] = {as_list(a), as_list(b)}, *all = json_array(), *value;
    m->w->flattened += (json_array_size(lists[0]) + json_array_size(lists[1])) / LIST_COST;
    gw_schema_set set = {0};
    size_t i;
    gw_status status;
    GW_TRY_DONE(gw_schema_set_open(m->w, &set));
    for (int k = 0; k < 2; k++) {
        json_array_foreach(lists[k], i, value) {
            int is_new;
            GW_TRY_DONE(gw_schema_set_add(&set, value, &is_new));
            if (is_new && json_array_append(all, value) != 0) {
                GW_TRY_DONE(no_memory());
            }
        }
    }
    status = set_new(m, key, json_incref(all));
done:
    gw_schema_set_close(&set);
    json_decref(lists[0]);
    json_decref(lists[1]);
    json_decref(all);
    return status;
}

/* Bits of the types that a schema names itself; all of them where it does not. */
static unsigned named_types(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    unsigned types = 0;
    size_t n = json_is_array(type) ? json_array_size(type) : type != NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        for (int t = 0; t < GW_TYPES; t++) {
            types |= name != NULL && strcmp(name, gw_schema_types[t]) == 0 ? 1u << t : 0;
        }
    }
    types |= types >> GW_NUMBER & 1 ? 1u << GW_INTEGER : 0;
    return types != 0 ? types : (1u << GW_TYPES) - 1;
}

/* Both choices at once; NULL: they have no type in common. */
static json_t *both_choices(json_t *x, json_t *y) {
    unsigned types = named_types(x) & named_types(y);
    json_t *both = types != 0 ? both_of(x, y) : NULL, *list = json_array();
    for (int t = 0; t < GW_TYPES; t++) {
        int within = t == GW_INTEGER && (types >> GW_NUMBER & 1);
        if (types >> t & 1 && !within) {
            json_array_append_new(list, json_string(gw_schema_types[t]));
        }
    }
    if (both != NULL && types != (1u << GW_TYPES) - 1) {
        json_object_set(both, "type", list); /* so that the next choice sees it at once */
    }
    json_decref(list);
    return both;
}

/* Every choice of one with every choice of the other; where those are many, the choices of one, and
 * in each of them those of the other. */
static gw_status multiply(const merger *m, const char *key, json_t *a, json_t *b) {
    json_t *all = json_array(), *x, *y;
    size_t i, k;
    if (json_array_size(a) * json_array_size(b) > BRANCHES_MAX) {
        json_array_foreach(a, i, x) {
            json_array_append_new(all, json_pack("{s:[O,{s:O}]}", "allOf", x, key, b));
        }
        return set_new(m, key, all);
    }
    json_array_foreach(a, i, x) {
        json_array_foreach(b, k, y) {
            json_t *both = both_choices(x, y);
            if (both != NULL) {
                json_array_append_new(all, both);
            }
        }
    }
    if (json_array_size(all) == 0) {
        json_decref(all);
        return gw_schema_contradiction(m->w, m->where, "its choices have no type in common");
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

/* What an object says of members beyond its own, as a list of CLOSINGS; borrowed or new. */
static json_t *closings_of(json_t *schema) {
    json_t *list = json_object_get(schema, GW_SCHEMA_CLOSINGS), *more = closing(schema);
    list = list != NULL ? json_copy(list) : json_array();
    if (list == NULL || more == NULL) {
        return list;
    }
    static const char *const keys[] = {"properties", "patternProperties", "additionalProperties"};
    json_t *one = json_object();
    for (size_t i = 0; i < 3; i++) {
        json_t *x = json_object_get(schema, keys[i]);
        if (x != NULL) {
            json_object_set(one, keys[i], x);
        }
    }
    json_array_append_new(list, one);
    return list;
}

/* Two objects with patterns: what either says of other members stays with the names and patterns
 * that it knows itself. */
static gw_status merge_closed(const merger *m) {
    json_t *a = closings_of(m->into), *b = closings_of(m->with), *x;
    size_t i;
    if (a == NULL || b == NULL) {
        json_decref(a);
        json_decref(b);
        return no_memory();
    }
    json_array_foreach(b, i, x) { json_array_append(a, x); }
    json_decref(b);
    json_object_del(m->into, "additionalProperties");
    if (json_object_set_new_nocheck(m->into, GW_SCHEMA_CLOSINGS, a) != 0) {
        return no_memory();
    }
    GW_TRY(merge_named(m, "properties", NULL, NULL));
    return merge_named(m, "patternProperties", NULL, NULL);
}

static gw_status merge_members(const merger *m) {
    json_t *more = closing(m->into), *more_with = closing(m->with);
    json_t *like = json_object_get(m->into, "patternProperties");
    json_t *like_with = json_object_get(m->with, "patternProperties");
    int closed = more != NULL || more_with != NULL;
    int kept = json_object_get(m->into, GW_SCHEMA_CLOSINGS) != NULL ||
               json_object_get(m->with, GW_SCHEMA_CLOSINGS) != NULL;
    if (kept || (closed && (like != NULL || like_with != NULL))) {
        return merge_closed(m);
    }
    GW_TRY(merge_named(m, "properties", more, more_with));
    GW_TRY(merge_named(m, "patternProperties", NULL, NULL));
    json_t *both = closed ? both_of(more, more_with)
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

/* Two "contains", of which either requires one element or more: a list. */
static int both_contain(const merger *m) {
    static const char *const counts[] = {"minContains", "maxContains"};
    int counted = 0;
    for (size_t i = 0; i < 2; i++) {
        counted |= json_object_get(m->into, counts[i]) != NULL ||
                   json_object_get(m->with, counts[i]) != NULL;
    }
    return !counted;
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
    if (strcmp(key, "contains") == 0 && both_contain(m)) {
        return unite(m, key, a, b);
    }
    if (strcmp(key, "uniqueItems") == 0 && json_is_boolean(a) && json_is_boolean(b)) {
        return set_new(m, key, json_boolean(json_is_true(a) || json_is_true(b)));
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
    static const char *const together[] = {"properties",           "patternProperties",
                                           "additionalProperties", "items",
                                           "prefixItems",          GW_SCHEMA_CLOSINGS};
    merger m = {w, into, with, where};
    const char *key;
    json_t *value;
    json_object_foreach(with, key, value) {
        size_t n = json_array_size(value), most = strcmp(key, "type") == 0 ? TYPES_MAX : LIST_MAX;
        if (n > most || json_array_size(json_object_get(into, key)) > most) {
            return gw_fail(GW_E_LIMIT, GW_SCHEMA,
                           "at %s: a list of more than %zu in schemas that hold at once", where,
                           most);
        }
    }
    GW_TRY(merge_members(&m));
    GW_TRY(merge_elements(&m));
    json_object_foreach(with, key, value) {
        if (!gw_schema_is_note(key) && !is_of(key, together, 6)) {
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
    static const char *const theirs[] = {
        "properties",    "required",      "additionalProperties", GW_SCHEMA_CLOSINGS,
        "minProperties", "maxProperties", "patternProperties",    "propertyNames"};
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
