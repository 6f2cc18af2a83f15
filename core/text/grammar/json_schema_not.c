/* core/text/grammar/json_schema_not.c - the opposite of a schema, as a schema without "not"; see
 * json_schema_parts.h.
 *
 * One keyword that does not hold is enough, so the opposite is a choice with a branch for each. A
 * keyword whose opposite cannot be said has no branch: what is written is still right.
 */
#include "core/text/grammar/json_schema_parts.h"

enum { REFERENCES_MAX = 32 };

typedef struct opposite {
    gw_schema_work *w;
    const gw_schema_part *p;
    json_t *list; /* branches */
} opposite;

static gw_status add(opposite *o, json_t *branch) { /* takes the reference */
    return json_array_append_new(o->list, branch) == 0 ? GW_OK : gw_schema_no_memory();
}

static gw_status add_types(opposite *o, const json_t *type) {
    json_t *others = json_array();
    unsigned said = 0;
    for (int t = 0; t < GW_TYPES; t++) {
        size_t n = json_is_array(type) ? json_array_size(type) : 1;
        for (size_t i = 0; i < n; i++) {
            const char *name =
                json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
            said |= name != NULL && strcmp(name, gw_schema_types[t]) == 0 ? 1u << t : 0;
        }
    }
    /* numbers that are not whole cannot be said */
    said |= said & 1u << GW_INTEGER ? 1u << GW_NUMBER : 0;
    said |= said & 1u << GW_NUMBER ? 1u << GW_INTEGER : 0;
    for (int t = 0; t < GW_TYPES; t++) {
        if (!(said & 1u << t) && t != GW_INTEGER) {
            json_array_append_new(others, json_string(gw_schema_types[t]));
        }
    }
    if (json_array_size(others) > 0) {
        return add(o, json_pack("{s:o}", "type", others));
    }
    json_decref(others);
    return GW_OK;
}

/* A bound on the other side. */
static gw_status add_bound(opposite *o, const char *key, json_t *value, int *known) {
    static const struct {
        const char *key, *other, *type;
    } bounds[] = {{"minimum", "exclusiveMaximum", "number"},
                  {"maximum", "exclusiveMinimum", "number"},
                  {"exclusiveMinimum", "maximum", "number"},
                  {"exclusiveMaximum", "minimum", "number"}};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(key, bounds[i].key) == 0 && json_is_number(value)) {
            *known = 1;
            return add(o, json_pack("{s:s,s:O}", "type", bounds[i].type, bounds[i].other, value));
        }
    }
    return GW_OK;
}

static gw_status add_count(opposite *o, const char *key, const json_t *value, int *known) {
    static const struct {
        const char *least, *most, *type;
    } counts[] = {{"minLength", "maxLength", "string"},
                  {"minItems", "maxItems", "array"},
                  {"minProperties", "maxProperties", "object"}};
    for (size_t i = 0; i < 3; i++) {
        int least = strcmp(key, counts[i].least) == 0;
        if ((!least && strcmp(key, counts[i].most) != 0) || !json_is_number(value)) {
            continue;
        }
        double n = json_number_value(value) + (least ? -1 : 1);
        *known = 1;
        return n < 0 ? GW_OK
                     : add(o, json_pack("{s:s,s:f}", "type", counts[i].type,
                                        least ? counts[i].most : counts[i].least, n));
    }
    return GW_OK;
}

static gw_status add_members(opposite *o, const char *key, json_t *value) {
    const char *name;
    json_t *x;
    size_t i;
    if (key[0] == 'r') {
        json_array_foreach(value, i, x) {
            GW_TRY(add(o, json_pack("{s:s,s:{s:b}}", "type", "object", "properties",
                                    json_is_string(x) ? json_string_value(x) : "", 0)));
        }
        return GW_OK;
    }
    json_object_foreach(value, name, x) {
        GW_TRY(add(o, json_pack("{s:s,s:[s],s:{s:{s:O}}}", "type", "object", "required", name,
                                "properties", name, "not", x)));
    }
    return GW_OK;
}

static gw_status add_combined(opposite *o, const char *key, json_t *value) {
    json_t *all = json_array(), *x;
    size_t i;
    json_array_foreach(value, i, x) {
        if (strcmp(key, "allOf") == 0) {
            GW_TRY(add(o, json_pack("{s:O}", "not", x)));
        } else { /* none of anyOf; of oneOf too */
            json_array_append_new(all, json_pack("{s:O}", "not", x));
        }
    }
    if (json_array_size(all) > 0) {
        return add(o, json_pack("{s:o}", "allOf", all));
    }
    json_decref(all);
    return GW_OK;
}

static int is(const char *key, const char *a, const char *b) {
    return strcmp(key, a) == 0 || strcmp(key, b) == 0;
}

static gw_status add_keyword(opposite *o, const char *key, json_t *value) {
    int known = 0;
    if (strcmp(key, "type") == 0) {
        return add_types(o, value);
    }
    if (strcmp(key, "const") == 0) {
        return add(o, json_pack("{s:{s:[O]}}", "not", "enum", value));
    }
    if (strcmp(key, "enum") == 0) {
        return add(o, json_pack("{s:{s:O}}", "not", "enum", value));
    }
    if (strcmp(key, "pattern") == 0 && json_is_string(value)) {
        return add(o, json_pack("{s:s,s:{s:O}}", "type", "string", "not", "pattern", value));
    }
    if (is(key, "required", "properties")) {
        return add_members(o, key, value);
    }
    if (is(key, "anyOf", "allOf") || strcmp(key, "oneOf") == 0) {
        return add_combined(o, key, value);
    }
    if (strcmp(key, "not") == 0 && gw_schema_is_schema(value)) {
        return add(o, json_incref(value));
    }
    if (strcmp(key, "items") == 0 && gw_schema_is_schema(value)) {
        return add(o, json_pack("{s:s,s:{s:O}}", "type", "array", "contains", "not", value));
    }
    if (strcmp(key, "contains") == 0 && json_object_get(o->p->schema, "minContains") == NULL) {
        return add(o, json_pack("{s:s,s:{s:O}}", "type", "array", "items", "not", value));
    }
    GW_TRY(add_bound(o, key, value, &known));
    return known ? GW_OK : add_count(o, key, value, &known);
}

static gw_status add_keywords(opposite *o) {
    const char *key;
    json_t *value;
    json_object_foreach(o->p->schema, key, value) { GW_TRY(add_keyword(o, key, value)); }
    return GW_OK;
}

static int says_something(json_t *schema) {
    const char *key;
    json_t *value;
    json_object_foreach(schema, key, value) {
        if (!gw_schema_is_note(key)) {
            return 1;
        }
    }
    return 0;
}

static gw_status negate(gw_schema_work *w, const gw_schema_part *p, json_t **out) {
    opposite o = {.w = w, .p = p};
    gw_schema_part target = *p;
    if (json_is_boolean(p->schema)) {
        return (*out = json_boolean(!json_is_true(p->schema))) != NULL ? GW_OK
                                                                       : gw_schema_no_memory();
    }
    for (int i = 0; json_object_get(target.schema, "$ref") != NULL && i < REFERENCES_MAX; i++) {
        gw_schema_part next = target;
        if (json_object_size(target.schema) > 1) {
            break;
        }
        GW_TRY(gw_schema_target(w, &target, &next.schema));
        target = next;
    }
    o.p = &target;
    if (!says_something(target.schema)) { /* true, {}, false */
        return (*out = json_boolean(json_is_false(target.schema))) != NULL ? GW_OK
                                                                           : gw_schema_no_memory();
    }
    if ((o.list = json_array()) == NULL) {
        return gw_schema_no_memory();
    }
    gw_status status = add_keywords(&o);
    if (status == GW_OK && json_array_size(o.list) == 0) {
        status = gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                         "at %s: the opposite of these keywords is not supported", p->where);
    }
    if (status == GW_OK) {
        *out = json_array_size(o.list) == 1 ? json_incref(json_array_get(o.list, 0))
                                            : json_pack("{s:O}", "anyOf", o.list);
        status = *out != NULL ? GW_OK : gw_schema_no_memory();
    }
    json_decref(o.list);
    return status;
}

gw_status gw_schema_negate(gw_schema_work *w, const gw_schema_part *p, json_t **out) {
    uintptr_t address = (uintptr_t)p->schema;
    size_t at;
    if (gw_map_find(w->negations, &address, sizeof address, &at)) {
        *out = json_array_get(w->made, at);
        return GW_OK;
    }
    json_t *made = NULL;
    GW_TRY(negate(w, p, &made));
    uintptr_t *key = gw_arena_alloc(w->arena, sizeof *key);
    at = json_array_size(w->made);
    GW_TRY(gw_schema_keep(w, made));
    if (key == NULL) {
        return gw_schema_no_memory();
    }
    *key = address;
    *out = made;
    return gw_map_add(w->negations, key, sizeof *key, at, NULL) == GW_MAP_NOMEM
               ? gw_schema_no_memory()
               : GW_OK;
}
