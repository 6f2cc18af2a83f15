/* core/text/grammar/json_schema.c - walks a schema and writes a rule for each part; see
 * json_schema.h.
 *
 * Rule sN belongs to part N of a list that grows while it is worked off, so nothing recurses but
 * the resolving of allOf, which is bounded. Parts are known by their address in the parsed text:
 * a reference leads to the rule of its target.
 */
#include "core/text/grammar/json_schema.h"

#include <stdio.h>

#include "core/text/grammar/grammar_source.h"
#include "core/text/grammar/json_schema_parts.h"

enum { PARTS_MAX = 20000 };

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

/* ---- parts ----------------------------------------------------------------------------------- */

gw_status gw_schema_no_memory(void) { return gw_fail(GW_E_NOMEM, GW_SCHEMA, "no memory"); }

gw_status gw_schema_refuse(const gw_schema_part *p, const char *key) {
    return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA, "at %s: \"%.60s\" is not supported", p->where, key);
}

gw_status gw_schema_wrong(const gw_schema_part *p, const char *key, const char *want) {
    return gw_fail(GW_E_TYPE, GW_SCHEMA, "at %s: \"%.60s\" must be %s", p->where, key, want);
}

gw_status gw_schema_contradiction(gw_schema_work *w, const char *where, const char *what) {
    gw_status status =
        gw_fail(GW_E_METADATA, GW_SCHEMA, "at %s: no value is possible: %s", where, what);
    w->contradicted = 1;
    if (w->contradiction == NULL) {
        char text[300];
        int n = snprintf(text, sizeof text, "at %s: no value is possible: %s", where, what);
        w->contradiction = gw_arena_copy(w->arena, text, (size_t)(n < 299 ? n : 299));
    }
    return status;
}

/* where/key/name as a JSON pointer (RFC 6901), cut where it gets too long for a message. */
const char *gw_schema_beneath(gw_schema_work *w, const char *where, const char *key,
                              const char *name) {
    char text[200];
    size_t n = (size_t)snprintf(text, sizeof text, "%.120s/%.20s", where, key);
    if (name != NULL) {
        text[n++] = '/';
        for (; *name != '\0' && n + 8 < sizeof text; name++) {
            if (*name == '~' || *name == '/') {
                text[n++] = '~';
                text[n++] = *name == '~' ? '0' : '1';
            } else {
                text[n++] = (unsigned char)*name < 0x20 ? ' ' : *name;
            }
        }
    }
    text[n] = '\0';
    const char *copy = gw_arena_copy(w->arena, text, n);
    return copy != NULL ? copy : where;
}

/* The number of a schema's rule, which is written later. Borrowed; `made` keeps new ones. */
gw_status gw_schema_rule(gw_schema_work *w, json_t *schema, const char *where, size_t *rule) {
    uintptr_t address = (uintptr_t)schema;
    if (gw_map_find(w->known, &address, sizeof address, rule)) {
        return GW_OK;
    }
    if (w->n_parts == PARTS_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: more than %d parts", where, PARTS_MAX);
    }
    void *parts = w->parts;
    gw_status status = gw_array_reserve(&parts, &w->capacity, w->n_parts + 1, sizeof *w->parts);
    w->parts = parts;
    GW_TRY(status);
    uintptr_t *key = gw_arena_alloc(w->arena, sizeof *key);
    if (key == NULL) {
        return gw_schema_no_memory();
    }
    *key = address;
    if (gw_map_add(w->known, key, sizeof *key, w->n_parts, NULL) == GW_MAP_NOMEM) {
        return gw_schema_no_memory();
    }
    w->parts[w->n_parts] = (gw_schema_part){schema, where};
    *rule = w->n_parts++;
    return GW_OK;
}

gw_status gw_schema_keep(gw_schema_work *w, json_t *schema) {
    return schema != NULL && json_array_append_new(w->made, schema) == 0 ? GW_OK
                                                                         : gw_schema_no_memory();
}

/* ---- what a schema says ---------------------------------------------------------------------- */

static const struct {
    const char *key;
    int type; /* that it says something about */
} keywords[] = {
    {"properties", GW_OBJECT},
    {"required", GW_OBJECT},
    {"additionalProperties", GW_OBJECT},
    {"patternProperties", GW_OBJECT},
    {"propertyNames", GW_OBJECT},
    {"minProperties", GW_OBJECT},
    {"maxProperties", GW_OBJECT},
    {"unevaluatedProperties", GW_OBJECT},
    {GW_SCHEMA_CLOSINGS, GW_OBJECT},
    {"items", GW_ARRAY},
    {"prefixItems", GW_ARRAY},
    {"minItems", GW_ARRAY},
    {"maxItems", GW_ARRAY},
    {"uniqueItems", GW_ARRAY},
    {"contains", GW_ARRAY},
    {"unevaluatedItems", GW_ARRAY},
    {"minLength", GW_STRING},
    {"maxLength", GW_STRING},
    {"pattern", GW_STRING},
    {"format", GW_STRING},
    {"minimum", GW_NUMBER},
    {"maximum", GW_NUMBER},
    {"exclusiveMinimum", GW_NUMBER},
    {"exclusiveMaximum", GW_NUMBER},
    {"multipleOf", GW_NUMBER},
};

/* Bits of the types that keywords speak of; ways to other files are refused. */
gw_status gw_schema_spoken(const gw_schema_part *p, unsigned *spoken) {
    static const char *const elsewhere[] = {"$dynamicRef", "$recursiveRef"};
    *spoken = 0;
    for (size_t i = 0; i < 2; i++) {
        if (json_object_get(p->schema, elsewhere[i]) != NULL) {
            return gw_schema_refuse(p, elsewhere[i]);
        }
    }
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        const json_t *value = json_object_get(p->schema, keywords[i].key);
        int format = value != NULL && strcmp(keywords[i].key, "format") == 0;
        if (value != NULL && (!format || json_is_array(value) || !json_is_string(value) ||
                              gw_schema_format(json_string_value(value)) != NULL)) {
            *spoken |= 1u << keywords[i].type;
        }
    }
    return GW_OK;
}

static gw_status add_type(const gw_schema_part *p, const json_t *name, unsigned *types) {
    for (int t = 0; t < GW_TYPES; t++) {
        if (json_is_string(name) && strcmp(json_string_value(name), gw_schema_types[t]) == 0) {
            *types |= 1u << t;
            return GW_OK;
        }
    }
    return gw_schema_wrong(p, "type",
                           "object, array, string, integer, number, boolean, null, or a list");
}

gw_status gw_schema_get_types(gw_schema_work *w, const gw_schema_part *p, unsigned spoken,
                              unsigned *types) {
    json_t *type = json_object_get(p->schema, "type"), *one;
    size_t i;
    *types = 0;
    if (type == NULL) { /* of the values that its keywords speak of */
        *types = spoken;
        return GW_OK;
    }
    if (!json_is_array(type)) {
        return add_type(p, type, types);
    }
    json_array_foreach(type, i, one) { GW_TRY(add_type(p, one, types)); }
    return *types != 0 ? GW_OK : gw_schema_contradiction(w, p->where, "\"type\" is empty");
}

/* Branches of anyOf and oneOf, each together with what stands beside them. */
static gw_status list_branches(gw_schema_work *w, const gw_schema_part *p, const char *key,
                               size_t *rules) {
    json_t *list = json_object_get(p->schema, key), *beside = json_copy(p->schema), *one;
    size_t i, n = json_array_size(list);
    gw_status status = beside != NULL ? GW_OK : gw_schema_no_memory();
    const char *name;
    void *next;
    json_t *value;
    GW_TRY_DONE(status);
    json_object_del(beside, key);
    json_object_foreach_safe(beside, next, name, value) {
        if (gw_schema_is_note(name)) {
            json_object_del(beside, name);
        }
    }
    for (i = 0; i < n; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        const char *where = gw_schema_beneath(w, p->where, key, number);
        one = json_array_get(list, i);
        if (!json_is_object(one) && !json_is_boolean(one)) {
            GW_TRY_DONE(gw_schema_wrong(p, key, "a list of schemas"));
        }
        if (json_object_size(beside) > 0) { /* what is flat has no allOf */
            json_t *both = json_copy(beside);
            GW_TRY_DONE(gw_schema_keep(w, both));
            json_object_set_new(both, "allOf", json_pack("[O]", one));
            one = both;
        }
        GW_TRY_DONE(gw_schema_rule(w, one, where, &rules[i]));
    }
done:
    json_decref(beside);
    return status;
}

gw_status gw_schema_branches(gw_schema_work *w, const gw_schema_part *p, size_t **rules,
                             size_t *n) {
    int one = json_object_get(p->schema, "oneOf") != NULL;
    const char *key = one ? "oneOf" : "anyOf";
    *n = json_array_size(json_object_get(p->schema, key));
    *rules = gw_arena_array(w->arena, *n + 1, sizeof **rules);
    if (*rules == NULL) {
        return gw_schema_no_memory();
    }
    if (*n == 0) {
        return gw_schema_wrong(p, key, "a list of schemas");
    }
    GW_TRY(list_branches(w, p, key, *rules));
    return one ? gw_schema_part_branches(w, p, *rules, *n) : GW_OK;
}

static gw_status put_branches(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    size_t *rules, n;
    GW_TRY(gw_schema_branches(w, p, &rules, &n));
    PUT("s%zu ::= s%zu", rule, rules[0]);
    for (size_t i = 1; i < n; i++) {
        PUT(" | s%zu", rules[i]);
    }
    PUT("\n");
    return GW_OK;
}

/* The rule of one type; *none: the schema has no value of it. */
static gw_status put_type(gw_schema_work *w, const gw_schema_part *p, size_t rule, int type,
                          int *none) {
    size_t begin = w->out.n;
    gw_status status = type == GW_OBJECT   ? gw_schema_put_object(w, p, rule)
                       : type == GW_ARRAY  ? gw_schema_put_array(w, p, rule)
                       : type == GW_STRING ? gw_schema_put_string(w, p, rule)
                                           : gw_schema_put_number(w, p, rule, type == GW_INTEGER);
    *none = status == GW_E_METADATA && w->contradicted;
    if (*none) {
        w->contradicted = 0;
        w->out.n = begin;
    }
    return *none ? GW_OK : status;
}

static gw_status put_types(gw_schema_work *w, const gw_schema_part *p, size_t rule,
                           unsigned types) {
    const char *bar = "";
    const json_t *value;
    unsigned out = 0;
    types &= types & 1u << GW_NUMBER ? ~(1u << GW_INTEGER) : ~0u;
    for (int t = 0; t <= GW_NUMBER; t++) {
        int none = 0;
        GW_TRY(types >> t & 1 ? put_type(w, p, rule, t, &none) : GW_OK);
        types &= none ? ~(1u << t) : ~0u;
    }
    for (size_t i = 0; (value = gw_schema_excluded(p, i)) != NULL; i++) {
        out |= json_is_true(value) ? 1 : json_is_false(value) ? 2 : json_is_null(value) ? 4 : 0;
    }
    PUT("s%zu ::= ", rule);
    for (int t = 0; t <= GW_NUMBER; t++) {
        if (types & 1u << t) {
            PUT("%ss%zu-%s", bar, rule, gw_schema_types[t]);
            bar = " | ";
        }
    }
    for (unsigned i = 0; i < 3; i++) {
        if (types & 1u << (i < 2 ? GW_BOOLEAN : GW_NULL) && !(out >> i & 1)) {
            PUT("%s%s", bar, gw_schema_word(w, i));
            bar = " | ";
        }
    }
    PUT("\n");
    return bar[0] != '\0' ? GW_OK
                          : gw_schema_contradiction(w, p->where, "all values are ruled out");
}

/* Only a reference, but for notes? */
static int is_reference(json_t *schema) {
    const char *key;
    json_t *value;
    json_object_foreach(schema, key, value) {
        if (strcmp(key, "$ref") != 0 && !gw_schema_is_note(key)) {
            return 0;
        }
    }
    return json_object_get(schema, "$ref") != NULL;
}

static gw_status put_reference(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    json_t *target;
    size_t to;
    GW_TRY(gw_schema_target(w, p, &target));
    const char *ref = json_string_value(json_object_get(p->schema, "$ref"));
    const char *where = gw_arena_copy(w->arena, ref, strlen(ref) < 120 ? strlen(ref) : 120);
    GW_TRY(where != NULL ? gw_schema_rule(w, target, where, &to) : gw_schema_no_memory());
    PUT("s%zu ::= s%zu\n", rule, to);
    return GW_OK;
}

static int has(const gw_schema_part *p, const char *key) {
    return json_object_get(p->schema, key) != NULL;
}

gw_status gw_schema_types_of(gw_schema_work *w, const gw_schema_part *p, unsigned *types) {
    unsigned spoken;
    GW_TRY(gw_schema_spoken(p, &spoken));
    GW_TRY(gw_schema_get_types(w, p, spoken, types));
    if (*types == 0 && has(p, "not")) {
        *types = (1u << GW_TYPES) - 1;
    }
    return GW_OK;
}

static gw_status put_part(gw_schema_work *w, size_t rule) {
    gw_schema_part p = w->parts[rule]; /* the list moves */
    unsigned types;
    if (is_reference(p.schema) &&
        json_string_length(json_object_get(p.schema, "$ref")) ==
            strlen(json_string_value(json_object_get(p.schema, "$ref")))) {
        return put_reference(w, &p, rule);
    }
    GW_TRY(gw_schema_flatten(w, &p, &p.schema));
    GW_TRY(gw_schema_keep(w, p.schema));
    if (has(&p, "anyOf") || has(&p, "oneOf")) {
        return put_branches(w, &p, rule);
    }
    if (has(&p, "const") || has(&p, "enum")) {
        return gw_schema_put_listed(w, &p, rule);
    }
    if (gw_schema_outside(&p, 0) != NULL) {
        return gw_schema_put_outside(w, &p, rule);
    }
    GW_TRY(gw_schema_types_of(w, &p, &types));
    if (types == 0) {
        PUT("s%zu ::= value\n", rule);
        return GW_OK;
    }
    return put_types(w, &p, rule, types);
}

/* A part that no value fits has a rule that no text ends; what can do without it, does. */
static gw_status put_part_or_none(gw_schema_work *w, size_t rule) {
    size_t begin = w->out.n;
    gw_status status = put_part(w, rule);
    if (status == GW_E_METADATA && w->contradicted) {
        w->contradicted = 0;
        w->out.n = begin;
        return gw_schema_put(&w->out, "s%zu ::= \"x\" s%zu\n", rule, rule);
    }
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The grammar of the rules; a fault of one is a fault of the part that it belongs to. */
static gw_status compile(gw_schema_work *w, gw_program **out) {
    gw_source s;
    uint32_t root = 0;
    int whole = 1;
    gw_status status = gw_source_open(&s, GW_SCHEMA);
    if (status == GW_OK) {
        status = gw_source_read(&s, w->out.data, w->out.n, &root);
    }
    if (status == GW_OK) {
        status = gw_source_prune(&s, root, &whole);
    }
    if (status == GW_OK && !whole && w->dropped != NULL) {
        status = gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA, "%s", w->dropped);
    } else if (status == GW_OK && !whole && w->contradiction != NULL) {
        status = gw_fail(GW_E_METADATA, GW_SCHEMA, "%s", w->contradiction);
    } else if (status == GW_OK) {
        status = gw_source_compile(&s, root, out);
    }
    if (status == GW_E_METADATA && s.blamed != GW_NONE) {
        const gw_source_rule *rule = &s.rules[s.blamed];
        size_t number = rule->name[0] == 's' ? (size_t)strtoul(rule->name + 1, NULL, 10) : 0;
        status = gw_fail(GW_E_METADATA, GW_SCHEMA,
                         "at %s: it needs itself again and again, so no value is ever whole",
                         w->parts[number < w->n_parts ? number : 0].where);
    }
    gw_source_close(&s);
    return status;
}

gw_status gw_schema_open(gw_schema_work *w, const char *text, size_t n, int notation) {
    *w = (gw_schema_work){.notation = notation};
    if (n > GW_GRAMMAR_BYTES_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "%zu bytes; at most %d are read", n,
                       GW_GRAMMAR_BYTES_MAX);
    }
    w->made = json_array();
    w->numbers = gw_map_new();
    w->classes = gw_map_new();
    w->negations = gw_map_new();
    w->any = json_object();
    w->known = gw_map_new();
    w->arena = gw_arena_new();
    if (w->made == NULL || w->any == NULL || w->known == NULL || w->arena == NULL ||
        w->numbers == NULL || w->classes == NULL || w->negations == NULL) {
        return gw_schema_no_memory();
    }
    GW_TRY(gw_schema_parse(w, text, n));
    if (!json_is_object(w->root) && !json_is_boolean(w->root)) {
        return gw_fail(GW_E_TYPE, GW_SCHEMA, "at #: a schema is an object, true or false");
    }
    GW_TRY(gw_schema_name_refs(w));
    return gw_schema_put_standard(w);
}

void gw_schema_close(gw_schema_work *w) {
    free(w->out.data);
    free(w->class_rules.data);
    free(w->number_texts);
    free(w->decimals);
    free(w->key.data);
    gw_map_free(w->numbers);
    gw_map_free(w->classes);
    gw_map_free(w->negations);
    free(w->parts);
    gw_map_free(w->known);
    gw_arena_free(w->arena);
    json_decref(w->made);
    json_decref(w->any);
    json_decref(w->root);
}

gw_status gw_schema_finish(gw_schema_work *w) {
    for (size_t i = 0; i < w->n_parts; i++) {
        GW_TRY(put_part_or_none(w, i));
    }
    return gw_bytes_add(&w->out, w->class_rules.data, w->class_rules.n);
}

gw_status gw_json_schema_compile(const char *text, size_t n, gw_program **out) {
    gw_schema_work work, *w = &work;
    gw_status status;
    size_t root;
    GW_TRY_DONE(gw_schema_open(w, text, n, 0));
    GW_TRY_DONE(gw_schema_rule(w, w->root, "#", &root));
    GW_TRY_DONE(gw_schema_put(&w->out, "root ::= s%zu\n", root));
    GW_TRY_DONE(gw_schema_finish(w));
    status = compile(w, out);
done:
    gw_schema_close(w);
    return status;
}
