/* core/text/grammar/json_schema.c - walks a schema and writes a rule for each part; see
 * json_schema.h.
 *
 * Rule sN belongs to part N of a list that grows while it is worked off, so nothing recurses but
 * the resolving of allOf, which is bounded. Parts are known by their address in the parsed text:
 * a reference leads to the rule of its target.
 */
#include "core/text/grammar/json_schema.h"

#include <math.h>
#include <stdio.h>

#include "core/text/grammar/grammar_source.h"
#include "core/text/grammar/json_schema_parts.h"

enum { PARTS_MAX = 20000, FLAT_DEPTH = 32, FLATTENED_MAX = 100000, REFERENCE_MAX = 1023 };

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

static const char standard[] =
    "ws ::= \"\" | \" \" | \"\\n\" [ \\t]{0,20}\n"
    "hex ::= [0-9a-fA-F]\n"
    "plain ::= [^\"\\\\\\x00-\\x1F\\x7F]\n"
    "char ::= plain | \"\\\\\" ( [\"\\\\/bfnrt] | \"u\" ( [0-9a-cefA-CEF] hex{3} | [dD] [0-7] "
    "hex{2} "
    "| [dD] [89abAB] hex{2} \"\\\\u\" [dD] [c-fC-F] hex{2} ) )\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"0\" | \"-\"? [1-9] [0-9]{0,15}\n"
    "number ::= \"-\"? ( \"0\" | [1-9] [0-9]{0,15} ) ( \".\" [0-9]{1,16} )? "
    "( [eE] [-+]? [0-9]{1,2} )?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "array ::= \"[\" ws ( value ws ( \",\" ws value ws )* )? \"]\"\n"
    "member ::= string \":\" ws value ws\n"
    "object ::= \"{\" ws ( member ( \",\" ws member )* )? \"}\"\n"
    "value ::= object | array | string | number | boolean | null\n";

/* ---- parts ----------------------------------------------------------------------------------- */

gw_status gw_schema_no_memory(void) { return gw_fail(GW_E_NOMEM, GW_SCHEMA, "no memory"); }

static gw_status refuse(const gw_schema_part *p, const char *key) {
    return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA, "at %s: \"%.60s\" is not supported", p->where, key);
}

gw_status gw_schema_wrong(const gw_schema_part *p, const char *key, const char *want) {
    return gw_fail(GW_E_TYPE, GW_SCHEMA, "at %s: \"%.60s\" must be %s", p->where, key, want);
}

gw_status gw_schema_contradiction(const gw_schema_part *p, const char *what) {
    return gw_fail(GW_E_METADATA, GW_SCHEMA, "at %s: no value is possible: %s", p->where, what);
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

static gw_status keep(gw_schema_work *w, json_t *schema) { /* takes the reference */
    return json_array_append_new(w->made, schema) == 0 ? GW_OK : gw_schema_no_memory();
}

static int has_nul(const json_t *text) {
    return json_is_string(text) && strlen(json_string_value(text)) != json_string_length(text);
}

/* A character 0 has a meaning in a value and in a pattern; no name of anything has one. */
static gw_status check_names(const gw_schema_part *p) {
    static const char *const keys[] = {"$ref", "type", "format", "required"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        const json_t *value = json_object_get(p->schema, keys[k]);
        int found = has_nul(value);
        for (size_t i = 0; i < json_array_size(value); i++) {
            found |= has_nul(json_array_get(value, i));
        }
        if (found) {
            return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA, "at %s: \"%s\": \\u0000 is not supported",
                           p->where, keys[k]);
        }
    }
    return GW_OK;
}

/* ---- references ------------------------------------------------------------------------------ */

static int hex_digit(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One step of a pointer, unescaped ("~1", "%20") into name [as long as at]. For "%00" it gets a
 * byte that no name of a member has. */
static const char *take_step(const char *at, char *name) {
    size_t n = 0;
    for (; *at != '\0' && *at != '/'; at++) {
        int high = *at == '%' ? hex_digit(at[1]) : -1;
        int low = high >= 0 ? hex_digit(at[2]) : -1;
        if (*at == '~' && (at[1] == '0' || at[1] == '1')) {
            name[n++] = *++at == '0' ? '~' : '/';
        } else if (low >= 0) {
            name[n++] = (char)(high + low > 0 ? high << 4 | low : 0xFF);
            at += 2;
        } else {
            name[n++] = *at;
        }
    }
    name[n] = '\0';
    return at;
}

static gw_status find_target(gw_schema_work *w, const gw_schema_part *p, json_t **target) {
    const char *ref = json_string_value(json_object_get(p->schema, "$ref"));
    json_t *at = w->root;
    if (ref == NULL) {
        return gw_schema_wrong(p, "$ref", "a text");
    }
    if (ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/')) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"$ref\": '%.60s' is no JSON pointer into this schema (#/...)",
                       p->where, ref);
    }
    if (strlen(ref) > REFERENCE_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: \"$ref\" has more than %d bytes", p->where,
                       REFERENCE_MAX);
    }
    for (const char *step = ref + 1; *step == '/' && at != NULL;) {
        char name[REFERENCE_MAX + 1], *end = name;
        step = take_step(step + 1, name);
        long index = json_is_array(at) ? strtol(name, &end, 10) : -1;
        at = json_is_object(at)                          ? json_object_get(at, name)
             : end != name && *end == '\0' && index >= 0 ? json_array_get(at, (size_t)index)
                                                         : NULL;
    }
    if (!json_is_object(at) && !json_is_boolean(at)) {
        return gw_fail(GW_E_METADATA, GW_SCHEMA, "at %s: \"$ref\": there is no schema at '%.60s'",
                       p->where, ref);
    }
    *target = at;
    return GW_OK;
}

/* A new schema that says the same without $ref and allOf at its top. It calls itself at most
 * FLAT_DEPTH times. */
static gw_status flatten(gw_schema_work *w, const gw_schema_part *p, int depth, json_t **out) {
    json_t *flat = NULL, *list, *other;
    size_t i;
    gw_status status = GW_OK;
    w->flattened += 1 + json_object_size(p->schema);
    if (depth == FLAT_DEPTH || w->flattened > FLATTENED_MAX) {
        return gw_fail(GW_E_METADATA, GW_SCHEMA,
                       "at %s: it refers to itself with nothing in between, or too many schemas "
                       "hold at once",
                       p->where);
    }
    if (json_is_false(p->schema)) {
        return gw_schema_contradiction(p, "it is false");
    }
    GW_TRY(check_names(p));
    flat = json_is_object(p->schema) ? json_copy(p->schema) : json_object();
    if (flat == NULL) {
        return gw_schema_no_memory();
    }
    json_object_del(flat, "$ref");
    json_object_del(flat, "allOf");
    if (json_object_get(p->schema, "$ref") != NULL) {
        gw_schema_part target = *p;
        GW_TRY_DONE(find_target(w, p, &target.schema));
        GW_TRY_DONE(flatten(w, &target, depth + 1, &other));
        status = gw_schema_merge(flat, other, p->where);
        json_decref(other);
        GW_TRY_DONE(status);
    }
    list = json_object_get(p->schema, "allOf");
    if (list != NULL && json_array_size(list) == 0) {
        GW_TRY_DONE(gw_schema_wrong(p, "allOf", "a list of schemas"));
    }
    for (i = 0; i < json_array_size(list); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        gw_schema_part one = {json_array_get(list, i),
                              gw_schema_beneath(w, p->where, "allOf", number)};
        if (!json_is_object(one.schema) && !json_is_boolean(one.schema)) {
            GW_TRY_DONE(gw_schema_wrong(p, "allOf", "a list of schemas"));
        }
        GW_TRY_DONE(flatten(w, &one, depth + 1, &other));
        status = gw_schema_merge(flat, other, one.where);
        json_decref(other);
        GW_TRY_DONE(status);
    }
    *out = flat;
    return GW_OK;
done:
    json_decref(flat);
    return status;
}

/* ---- what a schema says ---------------------------------------------------------------------- */

static const char *const type_names[] = {"object", "array",   "string", "integer",
                                         "number", "boolean", "null"};
enum { OBJECT, ARRAY, STRING, INTEGER, NUMBER, BOOLEAN, NULLS, TYPES };

static const struct {
    const char *key;
    int type; /* that it says something about; TYPES: about any */
} keywords[] = {
    {"type", TYPES},
    {"enum", TYPES},
    {"const", TYPES},
    {"$ref", TYPES},
    {"allOf", TYPES},
    {"anyOf", TYPES},
    {"oneOf", TYPES},
    {"properties", OBJECT},
    {"required", OBJECT},
    {"additionalProperties", OBJECT},
    {"items", ARRAY},
    {"prefixItems", ARRAY},
    {"minItems", ARRAY},
    {"maxItems", ARRAY},
    {"minLength", STRING},
    {"maxLength", STRING},
    {"pattern", STRING},
    {"format", STRING},
    {"minimum", INTEGER},
    {"maximum", INTEGER},
    {"exclusiveMinimum", INTEGER},
    {"exclusiveMaximum", INTEGER},
};

/* Bits of the types that keywords speak of; unknown ones are refused. */
static gw_status check_keys(const gw_schema_part *p, unsigned *spoken) {
    const char *key;
    json_t *value;
    *spoken = 0;
    json_object_foreach(p->schema, key, value) {
        size_t row = 0, rows = sizeof keywords / sizeof keywords[0];
        while (row < rows && strcmp(keywords[row].key, key) != 0) {
            row++;
        }
        if (row == rows) {
            int off = json_is_false(value) && strcmp(key, "uniqueItems") == 0;
            if (!off && !gw_schema_is_note(key)) {
                return refuse(p, key);
            }
        } else if (keywords[row].type != TYPES) {
            *spoken |= 1u << keywords[row].type;
        }
    }
    return GW_OK;
}

static gw_status add_type(const gw_schema_part *p, const json_t *name, unsigned *types) {
    for (int t = 0; t < TYPES; t++) {
        if (json_is_string(name) && strcmp(json_string_value(name), type_names[t]) == 0) {
            *types |= 1u << t;
            return GW_OK;
        }
    }
    return gw_schema_wrong(p, "type",
                           "object, array, string, integer, number, boolean, null, or a list");
}

static gw_status get_types(const gw_schema_part *p, unsigned spoken, unsigned *types) {
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
    return *types != 0 ? GW_OK : gw_schema_contradiction(p, "\"type\" is empty");
}

static int value_has_type(const json_t *value, unsigned types) {
    int whole = json_is_real(value) && floor(json_real_value(value)) >= json_real_value(value);
    unsigned of = json_is_object(value)    ? 1u << OBJECT
                  : json_is_array(value)   ? 1u << ARRAY
                  : json_is_string(value)  ? 1u << STRING
                  : json_is_integer(value) ? 1u << INTEGER | 1u << NUMBER
                  : json_is_real(value)    ? 1u << NUMBER | (whole ? 1u << INTEGER : 0)
                  : json_is_boolean(value) ? 1u << BOOLEAN
                                           : 1u << NULLS;
    return (of & types) != 0;
}

/* const and enum: their values as they are, those of a fitting type. */
static gw_status put_listed(gw_schema_work *w, const gw_schema_part *p, unsigned spoken) {
    json_t *only = json_object_get(p->schema, "const"), *list = json_object_get(p->schema, "enum");
    json_t *type = json_object_get(p->schema, "type"), *value;
    unsigned types = ~0u;
    size_t i, n = 0;
    if (spoken != 0 || (only != NULL && list != NULL)) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"%s\" together with other conditions is not supported", p->where,
                       only != NULL ? "const" : "enum");
    }
    if (list != NULL && !json_is_array(list)) {
        return gw_schema_wrong(p, "enum", "a list of values");
    }
    if (type != NULL) {
        GW_TRY(get_types(p, 0, &types));
    }
    if (only != NULL && value_has_type(only, types)) {
        n++;
        GW_TRY(gw_schema_put_value(&w->out, only));
    }
    json_array_foreach(list, i, value) {
        if (value_has_type(value, types)) {
            PUT("%s", n++ > 0 ? " | " : "");
            GW_TRY(gw_schema_put_value(&w->out, value));
        }
    }
    PUT("\n");
    return n > 0 ? GW_OK : gw_schema_contradiction(p, "the list has no value of its type");
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
        if (json_object_size(beside) > 0) {
            one = json_pack("{s:[O,O]}", "allOf", beside, one);
            GW_TRY_DONE(one != NULL ? keep(w, one) : gw_schema_no_memory());
        }
        GW_TRY_DONE(gw_schema_rule(w, one, where, &rules[i]));
    }
done:
    json_decref(beside);
    return status;
}

/* oneOf: no value may be of two branches, and that has to be plain to see. */
static gw_status check_apart(gw_schema_work *w, const gw_schema_part *p, const size_t *rules,
                             size_t n) {
    json_t **flat = gw_arena_array(w->arena, n + 1, sizeof(json_t *));
    gw_status status = flat != NULL ? GW_OK : gw_schema_no_memory();
    if (n > 64) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: more than 64 schemas in \"oneOf\"", p->where);
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        gw_schema_part one = w->parts[rules[i]];
        status = flatten(w, &one, 0, &flat[i]);
        for (size_t k = 0; k < i && status == GW_OK; k++) {
            if (!gw_schema_apart(flat[i], flat[k])) {
                status = gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                                 "at %s: \"oneOf\": a value may be of both %zu and %zu; \"anyOf\" "
                                 "allows that, a \"const\" member tells them apart",
                                 p->where, k, i);
            }
        }
    }
    for (size_t i = 0; flat != NULL && i < n; i++) {
        json_decref(flat[i]);
    }
    return status;
}

static gw_status put_branches(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    int one = json_object_get(p->schema, "oneOf") != NULL;
    const char *key = one ? "oneOf" : "anyOf";
    size_t n = json_array_size(json_object_get(p->schema, key));
    size_t *rules = gw_arena_array(w->arena, n + 1, sizeof *rules);
    if (rules == NULL) {
        return gw_schema_no_memory();
    }
    if (one && json_object_get(p->schema, "anyOf") != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"anyOf\" and \"oneOf\" together are not supported", p->where);
    }
    if (n == 0) {
        return gw_schema_wrong(p, key, "a list of schemas");
    }
    GW_TRY(list_branches(w, p, key, rules));
    if (one) {
        GW_TRY(check_apart(w, p, rules, n));
    }
    PUT("s%zu ::= s%zu", rule, rules[0]);
    for (size_t i = 1; i < n; i++) {
        PUT(" | s%zu", rules[i]);
    }
    PUT("\n");
    return GW_OK;
}

static gw_status put_types(gw_schema_work *w, const gw_schema_part *p, size_t rule,
                           unsigned types) {
    int first = 1;
    if (types & 1u << OBJECT) {
        GW_TRY(gw_schema_put_object(w, p, rule));
    }
    if (types & 1u << ARRAY) {
        GW_TRY(gw_schema_put_array(w, p, rule));
    }
    if (types & 1u << STRING) {
        GW_TRY(gw_schema_put_string(w, p, rule));
    } else if (json_object_get(p->schema, "format") != NULL) {
        return refuse(p, "format");
    }
    if (types & 1u << NUMBER && gw_schema_has_bounds(p)) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"minimum\" and \"maximum\" are supported for integers, not for "
                       "numbers",
                       p->where);
    }
    if (types & 1u << INTEGER) {
        GW_TRY(gw_schema_put_integer(w, p, rule));
    }
    PUT("s%zu ::= ", rule);
    for (int t = 0; t < TYPES; t++) {
        if (!(types & 1u << t)) {
            continue;
        }
        PUT("%s", first ? "" : " | ");
        first = 0;
        if (t <= INTEGER) {
            PUT("s%zu-%s", rule, type_names[t]);
        } else {
            PUT("%s", type_names[t]);
        }
    }
    PUT("\n");
    return GW_OK;
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

static gw_status put_part(gw_schema_work *w, size_t rule) {
    gw_schema_part p = w->parts[rule]; /* the list moves */
    unsigned spoken, types;
    if (json_is_false(p.schema)) {
        return gw_schema_contradiction(&p, "it is false");
    }
    GW_TRY(check_names(&p));
    if (is_reference(p.schema)) {
        json_t *target;
        size_t to;
        GW_TRY(find_target(w, &p, &target));
        const char *ref = json_string_value(json_object_get(p.schema, "$ref"));
        const char *where = gw_arena_copy(w->arena, ref, strlen(ref) < 120 ? strlen(ref) : 120);
        GW_TRY(where != NULL ? gw_schema_rule(w, target, where, &to) : gw_schema_no_memory());
        PUT("s%zu ::= s%zu\n", rule, to);
        return GW_OK;
    }
    GW_TRY(check_keys(&p, &spoken));
    if (json_object_get(p.schema, "$ref") != NULL || json_object_get(p.schema, "allOf") != NULL) {
        GW_TRY(flatten(w, &p, 0, &p.schema));
        GW_TRY(keep(w, p.schema));
        GW_TRY(check_keys(&p, &spoken));
    }
    if (json_object_get(p.schema, "anyOf") != NULL || json_object_get(p.schema, "oneOf") != NULL) {
        return put_branches(w, &p, rule);
    }
    if (json_object_get(p.schema, "const") != NULL || json_object_get(p.schema, "enum") != NULL) {
        PUT("s%zu ::= ", rule);
        return put_listed(w, &p, spoken);
    }
    GW_TRY(get_types(&p, spoken, &types));
    if (types == 0) {
        PUT("s%zu ::= value\n", rule);
        return GW_OK;
    }
    return put_types(w, &p, rule, types);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The grammar of the rules; a fault of one is a fault of the part that it belongs to. */
static gw_status compile(gw_schema_work *w, gw_program **out) {
    gw_source s;
    uint32_t root = 0;
    gw_status status = gw_source_open(&s, GW_SCHEMA);
    if (status == GW_OK) {
        status = gw_source_read(&s, w->out.data, w->out.n, &root);
    }
    if (status == GW_OK) {
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

static gw_status write_rules(gw_schema_work *w) {
    size_t root;
    if (!json_is_object(w->root) && !json_is_boolean(w->root)) {
        return gw_fail(GW_E_TYPE, GW_SCHEMA, "at #: a schema is an object, true or false");
    }
    GW_TRY(gw_schema_rule(w, w->root, "#", &root));
    GW_TRY(gw_bytes_add(&w->out, standard, sizeof standard - 1));
    PUT("root ::= s%zu\n", root);
    for (size_t i = 0; i < w->n_parts; i++) {
        GW_TRY(put_part(w, i));
    }
    return GW_OK;
}

gw_status gw_json_schema_compile(const char *text, size_t n, gw_program **out) {
    gw_schema_work w = {0};
    gw_status status;
    if (n > GW_GRAMMAR_BYTES_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "%zu bytes; at most %d are read", n,
                       GW_GRAMMAR_BYTES_MAX);
    }
    GW_TRY(gw_json_parse_nul(GW_SCHEMA, text, n, &w.root));
    w.made = json_array();
    w.any = json_object();
    w.known = gw_map_new();
    w.arena = gw_arena_new();
    if (w.made == NULL || w.any == NULL || w.known == NULL || w.arena == NULL) {
        GW_TRY_DONE(gw_schema_no_memory());
    }
    GW_TRY_DONE(write_rules(&w));
    status = compile(&w, out);
done:
    free(w.out.data);
    free(w.parts);
    gw_map_free(w.known);
    gw_arena_free(w.arena);
    json_decref(w.made);
    json_decref(w.any);
    json_decref(w.root);
    return status;
}
