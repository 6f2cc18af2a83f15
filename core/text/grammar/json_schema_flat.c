/* core/text/grammar/json_schema_flat.c - a schema without references and without what combines
 * schemas, but for anyOf and oneOf; see json_schema_parts.h.
 *
 * What depends on something else becomes a choice: "if" with "then", or not "if" with "else".
 */
#include <stdio.h>

#include "core/text/grammar/json_schema_parts.h"

enum { FLAT_DEPTH = 40, FLATTENED_MAX = 100000, REFERENCE_MAX = 1023 };

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

gw_status gw_schema_target(gw_schema_work *w, const gw_schema_part *p, json_t **target) {
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
    if (!gw_schema_is_schema(at)) {
        return gw_fail(GW_E_METADATA, GW_SCHEMA, "at %s: \"$ref\": there is no schema at '%.60s'",
                       p->where, ref);
    }
    *target = at;
    return GW_OK;
}

/* ---- what is ruled out ----------------------------------------------------------------------- */

/* What "not" of a flat schema may have in its list; *type: the values that it can rule out none
 * but, as a pattern says nothing about a number, so that "not" does not hold for one. NULL: any. */
static int is_atom(const json_t *x, const char **type) {
    *type = json_object_get(x, "pattern") != NULL      ? "string"
            : json_object_get(x, "multipleOf") != NULL ? "number"
            : json_object_get(x, GW_SCHEMA_OUTSIDE)    ? "object"
                                                       : NULL;
    return json_is_object(x) && json_object_size(x) == 1 &&
           (json_is_array(json_object_get(x, "enum")) ||
            json_is_string(json_object_get(x, "pattern")) ||
            json_is_number(json_object_get(x, "multipleOf")) ||
            json_object_get(x, GW_SCHEMA_OUTSIDE) != NULL);
}

const json_t *gw_schema_excluded(const gw_schema_part *p, size_t i) {
    const json_t *list = json_object_get(p->schema, "not");
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *values = json_object_get(json_array_get(list, k), "enum");
        if (i < json_array_size(values)) {
            return json_array_get(values, i);
        }
        i -= json_array_size(values);
    }
    return NULL;
}

const char *gw_schema_unlike(const gw_schema_part *p, size_t i) {
    const json_t *list = json_object_get(p->schema, "not");
    for (size_t k = 0; k < json_array_size(list); k++) {
        const char *text = json_string_value(json_object_get(json_array_get(list, k), "pattern"));
        if (text != NULL && i-- == 0) {
            return text;
        }
    }
    return NULL;
}

static json_t *atom(const gw_schema_part *p, const char *key, size_t i) {
    const json_t *list = json_object_get(p->schema, "not");
    for (size_t k = 0; k < json_array_size(list); k++) {
        json_t *value = json_object_get(json_array_get(list, k), key);
        if (value != NULL && i-- == 0) {
            return value;
        }
    }
    return NULL;
}

const json_t *gw_schema_unmultiple(const gw_schema_part *p, size_t i) {
    return atom(p, "multipleOf", i);
}

json_t *gw_schema_outside(const gw_schema_part *p, size_t i) {
    return atom(p, GW_SCHEMA_OUTSIDE, i);
}

/* ---- combinations ---------------------------------------------------------------------------- */

typedef struct flattening {
    gw_schema_work *w;
    const gw_schema_part *p;
    int depth;
    json_t *flat; /* so far */
} flattening;

static gw_status flatten(gw_schema_work *w, const gw_schema_part *p, int depth, json_t **out);

static gw_status merge_in(flattening *f, json_t *schema, const char *where) {
    gw_schema_part one = {schema, where};
    json_t *other = NULL;
    GW_TRY(flatten(f->w, &one, f->depth + 1, &other));
    GW_TRY(gw_schema_keep(f->w, other)); /* what is in it is known by its address */
    return gw_schema_merge(f->w, f->flat, other, where);
}

/* Takes the reference of a schema that was put together. */
static gw_status merge_made(flattening *f, json_t *schema, const char *where) {
    GW_TRY(gw_schema_keep(f->w, schema));
    return merge_in(f, schema, where);
}

static gw_status take_reference(flattening *f) {
    json_t *target;
    if (json_object_get(f->p->schema, "$ref") == NULL) {
        return GW_OK;
    }
    json_object_del(f->flat, "$ref");
    GW_TRY(gw_schema_target(f->w, f->p, &target));
    return merge_in(f, target, f->p->where);
}

static gw_status take_all_of(flattening *f) {
    json_t *list = json_object_get(f->p->schema, "allOf"), *one;
    size_t i;
    if (list == NULL) {
        return GW_OK;
    }
    json_object_del(f->flat, "allOf");
    if (json_array_size(list) == 0) {
        return gw_schema_wrong(f->p, "allOf", "a list of schemas");
    }
    json_array_foreach(list, i, one) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        if (!gw_schema_is_schema(one)) {
            return gw_schema_wrong(f->p, "allOf", "a list of schemas");
        }
        GW_TRY(merge_in(f, one, gw_schema_beneath(f->w, f->p->where, "allOf", number)));
    }
    return GW_OK;
}

static gw_status take_not(flattening *f) {
    json_t *schema = json_object_get(f->p->schema, "not"), *opposite;
    const char *where = gw_schema_beneath(f->w, f->p->where, "not", NULL);
    if (schema == NULL || json_is_array(schema)) {
        return GW_OK; /* a list: of a flat schema */
    }
    if (!gw_schema_is_schema(schema)) {
        return gw_schema_wrong(f->p, "not", "a schema");
    }
    json_object_del(f->flat, "not");
    const char *type;
    if (is_atom(schema, &type)) {
        json_t *list = json_pack("[O]", schema);
        if (list == NULL || json_object_set_new(f->flat, "not", list) != 0) {
            return gw_schema_no_memory();
        }
        return type != NULL ? merge_made(f, json_pack("{s:s}", "type", type), where) : GW_OK;
    }
    if (f->w->unevaluated) { /* an opposite speaks of members that "not" does not look at */
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"not\", \"if\" or \"else\" beside \"unevaluated...\" is not "
                       "supported",
                       f->p->where);
    }
    gw_schema_part p = {schema, where};
    GW_TRY(gw_schema_negate(f->w, &p, &opposite));
    return merge_in(f, opposite, where);
}

static gw_status take_if(flattening *f) {
    json_t *test = json_object_get(f->p->schema, "if");
    json_t *then = json_object_get(f->p->schema, "then");
    json_t *other = json_object_get(f->p->schema, "else");
    json_object_del(f->flat, "if");
    json_object_del(f->flat, "then");
    json_object_del(f->flat, "else");
    if (test == NULL || (then == NULL && other == NULL)) {
        return GW_OK;
    }
    then = then != NULL ? then : f->w->any;
    other = other != NULL ? other : f->w->any;
    if (!gw_schema_is_schema(test) || !gw_schema_is_schema(then) || !gw_schema_is_schema(other)) {
        return gw_schema_wrong(f->p, "if", "a schema, as \"then\" and \"else\"");
    }
    return merge_made(f,
                      json_pack("{s:[{s:[O,O]},{s:[{s:O},O]}]}", "anyOf", "allOf", test, then,
                                "allOf", "not", test, other),
                      gw_schema_beneath(f->w, f->p->where, "if", NULL));
}

/* A member that needs others or a schema: it is not there, or they are. */
static gw_status take_dependent(flattening *f, const char *key) {
    json_t *all = json_object_get(f->p->schema, key), *x;
    const char *name;
    json_object_del(f->flat, key);
    if (all != NULL && !json_is_object(all)) {
        return gw_schema_wrong(f->p, key, "an object");
    }
    json_object_foreach(all, name, x) {
        const char *where = gw_schema_beneath(f->w, f->p->where, key, name);
        json_t *there =
            json_is_array(x)
                ? json_pack("{s:[{s:[s]},{s:O}]}", "allOf", "required", name, "required", x)
                : json_pack("{s:[{s:[s]},O]}", "allOf", "required", name, x);
        GW_TRY(merge_made(f, json_pack("{s:[{s:{s:b}},o]}", "anyOf", "properties", name, 0, there),
                          where));
    }
    return GW_OK;
}

/* ---- words of other drafts and of one place only --------------------------------------------- */

/* A list as "items" and what follows it, of older drafts. */
static gw_status take_item_list(flattening *f) {
    json_t *items = json_object_get(f->flat, "items");
    json_t *more = json_object_get(f->flat, "additionalItems");
    if (!json_is_array(items)) {
        json_object_del(f->flat, "additionalItems");
        return GW_OK;
    }
    int failed = json_object_set(f->flat, "prefixItems", items);
    failed |=
        more != NULL ? json_object_set(f->flat, "items", more) : json_object_del(f->flat, "items");
    json_object_del(f->flat, "additionalItems");
    return failed ? gw_schema_no_memory() : GW_OK;
}

/* "unevaluated..." of a schema that holds together with others sees its own members only: where it
 * combines no further schemas it is the same as "additional...". */
static gw_status take_unevaluated(flattening *f) {
    static const char *const words[][2] = {{"unevaluatedProperties", "additionalProperties"},
                                           {"unevaluatedItems", "items"}};
    static const char *const combined[] = {"$ref",  "allOf", "anyOf",
                                           "oneOf", "if",    "dependentSchemas"};
    for (size_t i = 0; i < 2 && f->depth > 0; i++) {
        json_t *rest = json_object_get(f->p->schema, words[i][0]);
        for (size_t k = 0; k < sizeof combined / sizeof combined[0] && rest != NULL; k++) {
            if (json_object_get(f->p->schema, combined[k]) != NULL) {
                return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                               "at %s: \"%s\" of a schema that holds together with others and has "
                               "\"%s\" is not supported",
                               f->p->where, words[i][0], combined[k]);
            }
        }
        if (rest != NULL && json_object_get(f->flat, words[i][1]) == NULL &&
            json_object_set(f->flat, words[i][1], rest) != 0) {
            return gw_schema_no_memory();
        }
        json_object_del(f->flat, words[i][0]);
    }
    return GW_OK;
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

static gw_status take_all(flattening *f) {
    GW_TRY(take_item_list(f));
    GW_TRY(take_unevaluated(f));
    GW_TRY(take_reference(f));
    GW_TRY(take_all_of(f));
    GW_TRY(take_not(f));
    GW_TRY(take_if(f));
    GW_TRY(take_dependent(f, "dependentRequired"));
    GW_TRY(take_dependent(f, "dependentSchemas"));
    return take_dependent(f, "dependencies");
}

/* It calls itself at most FLAT_DEPTH times. */
static gw_status flatten(gw_schema_work *w, const gw_schema_part *p, int depth, json_t **out) {
    flattening f = {.w = w, .p = p, .depth = depth};
    w->flattened += 1 + json_object_size(p->schema);
    if (depth == FLAT_DEPTH || w->flattened > FLATTENED_MAX) {
        return gw_fail(GW_E_METADATA, GW_SCHEMA,
                       "at %s: it refers to itself with nothing in between, or too many schemas "
                       "hold at once",
                       p->where);
    }
    if (json_is_false(p->schema)) {
        return gw_schema_contradiction(w, p->where, "it is false");
    }
    GW_TRY(check_names(p));
    f.flat = json_is_object(p->schema) ? json_copy(p->schema) : json_object();
    if (f.flat == NULL) {
        return gw_schema_no_memory();
    }
    gw_status status = take_all(&f);
    if (status != GW_OK) {
        json_decref(f.flat);
        return status;
    }
    *out = f.flat;
    return GW_OK;
}

gw_status gw_schema_flatten(gw_schema_work *w, const gw_schema_part *p, json_t **out) {
    w->unevaluated = json_object_get(p->schema, "unevaluatedProperties") != NULL ||
                     json_object_get(p->schema, "unevaluatedItems") != NULL;
    return flatten(w, p, 0, out);
}
