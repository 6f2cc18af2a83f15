/* core/text/grammar/json_schema_not.c - the opposite of a schema, as a schema without "not"; see
 * json_schema_parts.h.
 *
 * One keyword that does not hold is enough, so the opposite is a choice with a branch for each. A
 * keyword whose opposite cannot be said has no branch: what is written is still right.
 */
#include <stdio.h>

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
    int whole = (said & (1u << GW_INTEGER | 1u << GW_NUMBER)) == 1u << GW_INTEGER;
    said |= whole ? 1u << GW_NUMBER : 0; /* but those that are not whole */
    for (int t = 0; t < GW_TYPES; t++) {
        if (!(said & 1u << t) && t != GW_INTEGER) {
            json_array_append_new(others, json_string(gw_schema_types[t]));
        }
    }
    if (json_array_size(others) > 0) {
        GW_TRY(add(o, json_pack("{s:o}", "type", others)));
    } else {
        json_decref(others);
    }
    return whole ? add(o, json_pack("{s:s,s:{s:i}}", "type", "number", "not", "multipleOf", 1))
                 : GW_OK;
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

/* A member that is there, and something that it requires is not. */
static gw_status add_dependent(opposite *o, const json_t *value) {
    const char *name;
    json_t *x, *other;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)value, name, x) {
        json_array_foreach(x, i, other) {
            if (json_is_string(other)) {
                GW_TRY(add(o, json_pack("{s:s,s:[s],s:{s:b}}", "type", "object", "required", name,
                                        "properties", json_string_value(other), 0)));
            }
        }
        if (gw_schema_is_schema(x)) {
            GW_TRY(add(
                o, json_pack("{s:s,s:[s],s:{s:O}}", "type", "object", "required", name, "not", x)));
        }
    }
    return GW_OK;
}

/* The test holds and what follows does not, or neither holds. */
static gw_status add_if(opposite *o, json_t *test) {
    json_t *then = json_object_get(o->p->schema, "then");
    json_t *other = json_object_get(o->p->schema, "else");
    if (then != NULL) {
        GW_TRY(add(o, json_pack("{s:[O,{s:O}]}", "allOf", test, "not", then)));
    }
    return other != NULL
               ? add(o, json_pack("{s:[{s:O},{s:O}]}", "allOf", "not", test, "not", other))
               : GW_OK;
}

/* A list with an element at its place that is not of the schema there. */
static gw_status add_elements(opposite *o, const json_t *list, json_t *rest) {
    json_t *before = json_array();
    size_t n = json_array_size(list);
    gw_status status = before != NULL ? GW_OK : gw_schema_no_memory();
    for (size_t i = 0; i <= n && status == GW_OK; i++) {
        json_t *schema = i < n ? json_array_get(list, i) : rest;
        json_t *first = json_copy(before);
        if (gw_schema_is_schema(schema)) {
            json_array_append_new(first, json_pack("{s:O}", "not", schema));
            status = add(o, json_pack("{s:s,s:I,s:O}", "type", "array", "minItems",
                                      (json_int_t)(i + 1), "prefixItems", first));
        }
        json_decref(first);
        json_array_append_new(before, json_object());
    }
    json_decref(before);
    return status;
}

/* A member that neither has a name of its own nor is what all others are; or one whose name is like
 * a pattern. Which one, is chosen where the members are known: gw_schema_put_outside. */
static gw_status add_outside(opposite *o, const char *key, json_t *value) {
    static const char *const rest[] = {"properties", "patternProperties"};
    json_t *closed = json_object(), *atom = json_object();
    if (closed == NULL || atom == NULL) {
        return gw_schema_no_memory();
    }
    json_object_set(closed, key, value);
    for (size_t i = 0; i < 2 && key[0] == 'a'; i++) {
        json_t *x = json_object_get(o->p->schema, rest[i]);
        if (x != NULL) {
            json_object_set(closed, rest[i], x);
        }
    }
    json_object_set_new_nocheck(atom, GW_SCHEMA_OUTSIDE, closed);
    return add(o, json_pack("{s:s,s:o}", "type", "object", "not", atom));
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
    if (strcmp(key, "multipleOf") == 0 && json_is_number(value)) {
        return add(o, json_pack("{s:s,s:{s:O}}", "type", "number", "not", "multipleOf", value));
    }
    if (is(key, "dependencies", "dependentRequired") || strcmp(key, "dependentSchemas") == 0) {
        return add_dependent(o, value);
    }
    if (strcmp(key, "if") == 0 && gw_schema_is_schema(value)) {
        return add_if(o, value);
    }
    if (is(key, "additionalProperties", "patternProperties")) {
        return json_is_true(value) ? GW_OK : add_outside(o, key, value);
    }
    if (strcmp(key, "prefixItems") == 0) {
        return add_elements(o, value, json_object_get(o->p->schema, "items"));
    }
    if (strcmp(key, "items") == 0 && json_is_array(value)) {
        return add_elements(o, value, json_object_get(o->p->schema, "additionalItems"));
    }
    if (strcmp(key, "items") == 0 && gw_schema_is_schema(value) &&
        json_object_get(o->p->schema, "prefixItems") == NULL) {
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
    json_t *ref = json_object_get(o->p->schema, "$ref");
    if (ref != NULL) { /* up to draft 7 what stands next to it says nothing */
        return add(o, json_pack("{s:{s:O}}", "not", "$ref", ref));
    }
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

/* ---- members that break what an object says of others ---------------------------------------- */

enum { OUTSIDE_MAX = 32 }; /* members to choose from; fewer are right, too */

typedef struct outside {
    gw_schema_work *w;
    const gw_schema_part *p;
    json_t *closed, *rest; /* what is broken; the flat schema without it */
    size_t rules[OUTSIDE_MAX], n;
} outside;

/* Does a name match one of the patterns for certain; with wide: for all that one knows? *schema:
 * what its value should be then. */
static gw_status matches(outside *o, const char *name, int wide, int *is, json_t **schema) {
    const char *pattern;
    json_t *x;
    *is = 0;
    json_object_foreach(json_object_get(o->closed, "patternProperties"), pattern, x) {
        gw_dfa d;
        GW_TRY(gw_dfa_pattern(o->w->arena, o->p->where, pattern, strlen(pattern), wide, &d));
        if (gw_dfa_accepts(&d, name, strlen(name))) {
            *is = 1;
            *schema = x;
        }
    }
    return GW_OK;
}

/* The member `name` is there, and is not of the schema. */
static gw_status add_breach(outside *o, const char *name, json_t *schema) {
    json_t *breach =
        json_pack("{s:[s],s:{s:{s:O}}}", "required", name, "properties", name, "not", schema);
    json_t *both = json_copy(o->rest);
    if (breach == NULL || both == NULL) {
        return gw_schema_no_memory();
    }
    json_object_set_new(both, "allOf", json_pack("[o]", breach));
    GW_TRY(gw_schema_keep(o->w, both));
    return gw_schema_rule(o->w, both, o->p->where, &o->rules[o->n++]);
}

static gw_status try_name(outside *o, const char *name) {
    json_t *more = json_object_get(o->closed, "additionalProperties"), *schema = NULL;
    int is;
    if (o->n == OUTSIDE_MAX) {
        return GW_OK;
    }
    if (more == NULL) { /* of patterns */
        GW_TRY(matches(o, name, 0, &is, &schema));
        return is ? add_breach(o, name, schema) : GW_OK;
    }
    GW_TRY(matches(o, name, 1, &is, &schema));
    if (is || json_object_get(json_object_get(o->closed, "properties"), name) != NULL) {
        return GW_OK;
    }
    return add_breach(o, name, more);
}

static gw_status try_names(outside *o) {
    static const char *const made[] = {"other", "another", "extra", "more", "value", "x"};
    const char *name;
    json_t *x;
    size_t i;
    json_object_foreach(json_object_get(o->p->schema, "properties"), name, x) {
        GW_TRY(try_name(o, name));
    }
    json_array_foreach(json_object_get(o->p->schema, "required"), i, x) {
        name = json_string_value(x);
        if (name != NULL &&
            json_object_get(json_object_get(o->p->schema, "properties"), name) == NULL) {
            GW_TRY(try_name(o, name));
        }
    }
    for (i = 0; i < sizeof made / sizeof made[0] && o->n == 0; i++) {
        GW_TRY(try_name(o, made[i]));
    }
    return GW_OK;
}

gw_status gw_schema_put_outside(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    outside o = {.w = w, .p = p, .closed = gw_schema_outside(p, 0), .rest = json_copy(p->schema)};
    json_t *others = json_array(), *x;
    size_t i;
    int taken = 0;
    json_array_foreach(json_object_get(p->schema, "not"), i, x) {
        int first = !taken && json_object_get(x, GW_SCHEMA_OUTSIDE) == o.closed;
        taken |= first;
        if (!first) {
            json_array_append(others, x);
        }
    }
    if (o.rest == NULL || others == NULL) {
        json_decref(o.rest);
        json_decref(others);
        return gw_schema_no_memory();
    }
    json_object_set_new(o.rest, "not", others);
    GW_TRY(gw_schema_keep(w, o.rest));
    GW_TRY(try_names(&o));
    if (o.n == 0) { /* other choices may do */
        char text[300];
        snprintf(text, sizeof text, "at %.150s: the opposite of \"%s\" is not supported here",
                 p->where,
                 json_object_get(o.closed, "additionalProperties") != NULL ? "additionalProperties"
                                                                           : "patternProperties");
        w->dropped = w->dropped != NULL ? w->dropped : gw_arena_copy(w->arena, text, strlen(text));
        return gw_schema_contradiction(w, p->where, "no member breaks what is ruled out");
    }
    gw_status status = gw_schema_put(&w->out, "s%zu ::= s%zu", rule, o.rules[0]);
    for (i = 1; i < o.n && status == GW_OK; i++) {
        status = gw_schema_put(&w->out, " | s%zu", o.rules[i]);
    }
    return status == GW_OK ? gw_schema_put(&w->out, "\n") : status;
}
