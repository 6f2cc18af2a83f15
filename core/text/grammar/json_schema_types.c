/* core/text/grammar/json_schema_types.c - objects, arrays, strings and integers as rules; see
 * json_schema_parts.h. */
#include <math.h>
#include <stdio.h>

#include "core/text/grammar/grammar.h"
#include "core/text/grammar/json_schema_parts.h"
#include "core/text/utf8.h"

enum { MEMBERS_MAX = 4096 };

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

/* ---- numbers of the schema ------------------------------------------------------------------- */

static gw_status get_count(const gw_schema_part *p, const char *key, int64_t *out) {
    const json_t *value = json_object_get(p->schema, key);
    if (value == NULL) {
        return GW_OK;
    }
    double x = json_is_number(value) ? json_number_value(value) : -1;
    if (!(x >= 0) || floor(x) < x) {
        return gw_schema_wrong(p, key, "a whole number, 0 or more");
    }
    if (x > GW_GRAMMAR_REPEAT_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: \"%s\" is above %d", p->where, key,
                       GW_GRAMMAR_REPEAT_MAX);
    }
    *out = (int64_t)x;
    return GW_OK;
}

static gw_status get_counts(const gw_schema_part *p, const char *least, const char *most,
                            int64_t *low, int64_t *high) {
    *low = 0;
    *high = -1;
    GW_TRY(get_count(p, least, low));
    GW_TRY(get_count(p, most, high));
    return *high >= 0 && *high < *low
               ? gw_schema_contradiction(p, "the most is less than the least")
               : GW_OK;
}

/* {low,high} or {low,}. */
static gw_status put_counts(gw_schema_work *w, int64_t low, int64_t high) {
    if (high < 0) {
        PUT("{%d,}", (int)low);
    } else {
        PUT("{%d,%d}", (int)low, (int)high);
    }
    return GW_OK;
}

/* ---- objects --------------------------------------------------------------------------------- */

typedef struct members {
    size_t n;
    const char **names; /* [n] */
    uint8_t *required;  /* [n] */
    int more;           /* other members, */
    size_t more_rule;   /* ... of this rule */
} members;

static int is_required(const json_t *required, const char *name) {
    size_t i;
    json_t *x;
    json_array_foreach((json_t *)(uintptr_t)required, i, x) {
        if (strcmp(json_string_value(x), name) == 0) {
            return 1;
        }
    }
    return 0;
}

/* A key that is none of the names: a tree of their characters, a rule for each place in it. Keys
 * hold no escapes, so there is one spelling of each. */
typedef struct key_node {
    uint32_t cp, child, next;
    int ends;
} key_node;

static gw_status add_key(key_node **nodes, size_t *n, size_t *capacity, const char *name) {
    uint32_t at = 0, cp;
    for (size_t left = strlen(name), step; left > 0; left -= step, name += step) {
        step = gw_utf8_next(name, left, &cp);
        if (step == 0 || cp < 0x20 || cp == 0x7F || cp == '"' || cp == '\\') {
            return GW_OK; /* such a key is never written */
        }
        uint32_t child = (*nodes)[at].child;
        while (child != 0 && (*nodes)[child].cp != cp) {
            child = (*nodes)[child].next;
        }
        if (child == 0) {
            void *grown = *nodes;
            gw_status status = gw_array_reserve(&grown, capacity, *n + 1, sizeof **nodes);
            *nodes = grown;
            GW_TRY(status);
            child = (uint32_t)(*n)++;
            (*nodes)[child] = (key_node){.cp = cp, .next = (*nodes)[at].child};
            (*nodes)[at].child = child;
        }
        at = child;
    }
    (*nodes)[at].ends = 1;
    return GW_OK;
}

static gw_status put_key_rules(gw_schema_work *w, size_t rule, const key_node *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        PUT("s%zu-k%zu ::= [^\\\"\\\\\\x00-\\x1F\\x7F", rule, i);
        for (uint32_t c = nodes[i].child; c != 0; c = nodes[c].next) {
            PUT("\\U%08X", nodes[c].cp);
        }
        PUT("] plain* \"\\\"\"");
        for (uint32_t c = nodes[i].child; c != 0; c = nodes[c].next) {
            PUT(" | [\\U%08X] s%zu-k%u", nodes[c].cp, rule, c);
        }
        PUT("%s\n", nodes[i].ends ? "" : " | \"\\\"\"");
    }
    return GW_OK;
}

static gw_status put_other_key(gw_schema_work *w, size_t rule, const members *m) {
    size_t n = 1, capacity = 0;
    void *start = NULL;
    gw_status status = gw_array_reserve(&start, &capacity, 1, sizeof(key_node));
    key_node *nodes = start;
    GW_TRY_DONE(status);
    nodes[0] = (key_node){0};
    for (size_t i = 0; i < m->n; i++) {
        GW_TRY_DONE(add_key(&nodes, &n, &capacity, m->names[i]));
    }
    status = put_key_rules(w, rule, nodes, n);
done:
    free(nodes);
    return status;
}

static gw_status put_member_rules(gw_schema_work *w, size_t rule, const members *m) {
    size_t n = m->n;
    for (size_t i = 0; i < n; i++) { /* from member i on: the first one comes, or the next; */
        PUT("s%zu-h%zu ::= s%zu-p%zu s%zu-t%zu", rule, i, rule, i, rule, i + 1);
        if (!m->required[i]) {
            PUT(" | s%zu-h%zu", rule, i + 1);
        }
        PUT("\ns%zu-t%zu ::= ", rule, i); /* ... the same behind another one */
        PUT(m->required[i] ? "\",\" ws s%zu-p%zu s%zu-t%zu\n"
                           : "( \",\" ws s%zu-p%zu )? s%zu-t%zu\n",
            rule, i, rule, i + 1);
    }
    if (!m->more) {
        PUT("s%zu-h%zu ::= \"\"\ns%zu-t%zu ::= \"\"\n", rule, n, rule, n);
        return GW_OK;
    }
    PUT("s%zu-x ::= \"\\\"\" s%zu-k0 \":\" ws s%zu ws\n", rule, rule, m->more_rule);
    PUT("s%zu-h%zu ::= ( s%zu-x s%zu-t%zu )?\n", rule, n, rule, rule, n);
    PUT("s%zu-t%zu ::= ( \",\" ws s%zu-x )*\n", rule, n, rule);
    return put_other_key(w, rule, m);
}

static gw_status put_member(gw_schema_work *w, const gw_schema_part *p, size_t rule, size_t i,
                            const char *name, json_t *schema) {
    size_t of;
    json_t *text = json_string(name);
    GW_TRY(text != NULL ? GW_OK : gw_schema_no_memory());
    gw_status status = gw_schema_put(&w->out, "s%zu-p%zu ::= ", rule, i);
    status = status == GW_OK ? gw_schema_put_value(&w->out, text) : status;
    json_decref(text);
    GW_TRY(status);
    if (!json_is_object(schema) && !json_is_boolean(schema)) {
        return gw_fail(GW_E_TYPE, GW_SCHEMA, "at %s: not a schema",
                       gw_schema_beneath(w, p->where, "properties", name));
    }
    GW_TRY(gw_schema_rule(w, schema, gw_schema_beneath(w, p->where, "properties", name), &of));
    PUT(" \":\" ws s%zu ws\n", of);
    return GW_OK;
}

/* Properties, and what is required besides them; what other members are like: *beyond. */
static gw_status list_members(gw_schema_work *w, const gw_schema_part *p, size_t rule,
                              json_t *beyond, members *m) {
    json_t *properties = json_object_get(p->schema, "properties"), *value;
    json_t *required = json_object_get(p->schema, "required");
    size_t most = json_object_size(properties) + json_array_size(required), i;
    const char *name;
    m->names = gw_arena_array(w->arena, most + 1, sizeof *m->names);
    m->required = gw_arena_array(w->arena, most + 1, 1);
    if (m->names == NULL || m->required == NULL) {
        return gw_schema_no_memory();
    }
    json_object_foreach(properties, name, value) {
        m->required[m->n] = (uint8_t)is_required(required, name);
        m->names[m->n] = name;
        GW_TRY(put_member(w, p, rule, m->n++, name, value));
    }
    json_array_foreach(required, i, value) {
        name = json_string_value(value);
        int known = json_object_get(properties, name) != NULL;
        for (size_t k = 0; k < m->n; k++) {
            known |= strcmp(m->names[k], name) == 0;
        }
        if (known) {
            continue;
        }
        if (beyond == NULL) {
            return gw_schema_contradiction(
                p, "\"required\" names what \"additionalProperties\" rules out");
        }
        m->required[m->n] = 1;
        m->names[m->n] = name;
        GW_TRY(put_member(w, p, rule, m->n++, name, beyond));
    }
    return GW_OK;
}

static gw_status check_names(const gw_schema_part *p) {
    json_t *properties = json_object_get(p->schema, "properties"), *x;
    json_t *required = json_object_get(p->schema, "required");
    size_t i;
    if (properties != NULL && !json_is_object(properties)) {
        return gw_schema_wrong(p, "properties", "an object");
    }
    if (required != NULL && !json_is_array(required)) {
        return gw_schema_wrong(p, "required", "a list of names");
    }
    json_array_foreach(required, i, x) {
        if (!json_is_string(x)) {
            return gw_schema_wrong(p, "required", "a list of names");
        }
    }
    if (json_object_size(properties) > MEMBERS_MAX || i > MEMBERS_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: an object of more than %d members", p->where,
                       MEMBERS_MAX);
    }
    return GW_OK;
}

gw_status gw_schema_put_object(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    json_t *more = json_object_get(p->schema, "additionalProperties");
    members m = {0};
    GW_TRY(check_names(p));
    if (more != NULL && !json_is_object(more) && !json_is_boolean(more)) {
        return gw_schema_wrong(p, "additionalProperties", "a schema");
    }
    json_t *beyond = json_is_false(more) ? NULL : json_is_object(more) ? more : w->any;
    GW_TRY(list_members(w, p, rule, beyond, &m));
    /* without a word about other members only an object of none of its own has them */
    m.more = beyond != NULL &&
             (more != NULL || (m.n == 0 && json_object_get(p->schema, "properties") == NULL));
    if (m.more) {
        GW_TRY(gw_schema_rule(
            w, beyond, gw_schema_beneath(w, p->where, "additionalProperties", NULL), &m.more_rule));
    }
    GW_TRY(put_member_rules(w, rule, &m));
    PUT("s%zu-object ::= \"{\" ws s%zu-h0 \"}\"\n", rule, rule);
    return GW_OK;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

typedef struct elements {
    json_t *first; /* [n_first] schemas of the first ones */
    json_t *rest;  /* NULL: no more of them */
    const char *first_key;
    size_t n_first;
    int64_t low, high;
} elements;

static gw_status list_elements(gw_schema_work *w, const gw_schema_part *p, elements *e) {
    json_t *items = json_object_get(p->schema, "items");
    e->first_key = json_is_array(items) ? "items" : "prefixItems"; /* items: of older drafts */
    e->first = json_object_get(p->schema, e->first_key);
    if (e->first != NULL && !json_is_array(e->first)) {
        return gw_schema_wrong(p, e->first_key, "a list of schemas");
    }
    if (items != NULL && !json_is_array(items) && !json_is_object(items) &&
        !json_is_boolean(items)) {
        return gw_schema_wrong(p, "items", "a schema");
    }
    e->n_first = json_array_size(e->first);
    GW_TRY(get_counts(p, "minItems", "maxItems", &e->low, &e->high));
    e->rest = json_is_object(items) ? items : json_is_false(items) ? NULL : w->any;
    if (items == NULL || json_is_array(items)) { /* nothing is said: no more than there must be */
        e->rest = e->n_first == 0 || e->low > (int64_t)e->n_first ? w->any : NULL;
    }
    if (e->high >= 0 && (size_t)e->high < e->n_first) {
        e->n_first = (size_t)e->high;
        e->rest = NULL;
    }
    if (e->rest == NULL && e->low > (int64_t)e->n_first) {
        return gw_schema_contradiction(p, "\"minItems\" is more than there are items");
    }
    return GW_OK;
}

gw_status gw_schema_put_array(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    elements e;
    size_t of;
    GW_TRY(list_elements(w, p, &e));
    for (size_t i = 0; i < e.n_first; i++) { /* element i and what follows, or nothing */
        char number[24];
        json_t *schema = json_array_get(e.first, i);
        snprintf(number, sizeof number, "%zu", i);
        if (!json_is_object(schema) && !json_is_boolean(schema)) {
            return gw_schema_wrong(p, e.first_key, "a list of schemas");
        }
        GW_TRY(gw_schema_rule(w, schema, gw_schema_beneath(w, p->where, e.first_key, number), &of));
        int must = (int64_t)i < e.low;
        PUT("s%zu-a%zu ::= %s%ss%zu ws s%zu-a%zu%s\n", rule, i, must ? "" : "( ",
            i > 0 ? "\",\" ws " : "", of, rule, i + 1, must ? "" : " )?");
    }
    size_t n = e.n_first;
    int64_t low = e.low > (int64_t)n ? e.low - (int64_t)n : 0;
    int64_t high = e.high < 0 ? -1 : e.high - (int64_t)n;
    PUT("s%zu-a%zu ::= ", rule, n);
    if (e.rest == NULL || high == 0) {
        PUT("\"\"\n");
    } else {
        GW_TRY(gw_schema_rule(w, e.rest, gw_schema_beneath(w, p->where, "items", NULL), &of));
        if (n > 0) {
            PUT("( \",\" ws s%zu ws )", of);
            GW_TRY(put_counts(w, low, high));
        } else {
            PUT("( s%zu ws ( \",\" ws s%zu ws )", of, of);
            GW_TRY(put_counts(w, low > 0 ? low - 1 : 0, high < 0 ? -1 : high - 1));
            PUT(low > 0 ? " )" : " )?");
        }
        PUT("\n");
    }
    PUT("s%zu-array ::= \"[\" ws s%zu-a0 \"]\"\n", rule, rule);
    return GW_OK;
}

/* ---- strings and numbers --------------------------------------------------------------------- */

gw_status gw_schema_put_string(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    const json_t *pattern = json_object_get(p->schema, "pattern");
    const json_t *format = json_object_get(p->schema, "format");
    int64_t low, high;
    GW_TRY(get_counts(p, "minLength", "maxLength", &low, &high));
    int counted = json_object_get(p->schema, "minLength") != NULL || high >= 0;
    if ((pattern != NULL) + (format != NULL) + counted > 1) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"pattern\", \"format\" and lengths are not supported together",
                       p->where);
    }
    PUT("s%zu-string ::= \"\\\"\" ", rule);
    if (pattern != NULL) {
        const char *text = json_string_value(pattern);
        GW_TRY(text != NULL ? GW_OK : gw_schema_wrong(p, "pattern", "a text"));
        GW_TRY(gw_schema_put_pattern(&w->out, gw_schema_beneath(w, p->where, "pattern", NULL), text,
                                     json_string_length(pattern)));
    } else if (format != NULL) {
        const char *name = json_string_value(format);
        GW_TRY(name != NULL ? GW_OK : gw_schema_wrong(p, "format", "a text"));
        const char *text = gw_schema_format(name);
        if (text == NULL) {
            return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                           "at %s: \"format\": \"%.40s\" is not supported; date, time, date-time "
                           "and uuid are",
                           p->where, name);
        }
        GW_TRY(gw_bytes_add(&w->out, text, strlen(text)));
    } else {
        PUT("char");
        GW_TRY(put_counts(w, low, high));
    }
    PUT(" \"\\\"\"\n");
    return GW_OK;
}

/* The tighter of two bounds on a whole number, as a whole number; sign 1: from below. */
static gw_status get_bound(const gw_schema_part *p, const char *key, const char *exclusive,
                           int sign, int64_t *out) {
    static const double most = 9.2e18;
    const char *keys[] = {key, exclusive};
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(p->schema, keys[i]);
        if (value == NULL) {
            continue;
        }
        if (!json_is_number(value)) {
            return gw_schema_wrong(p, keys[i], "a number");
        }
        double x = json_number_value(value), whole = sign > 0 ? ceil(x) : floor(x);
        if (!(fabs(x) < most)) {
            return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: \"%s\" is beyond 64 bits", p->where,
                           keys[i]);
        }
        int64_t bound = json_is_integer(value) ? json_integer_value(value) : (int64_t)whole;
        bound += i == 1 && !(whole < x) && !(whole > x) ? sign : 0;
        *out = sign > 0 ? (bound > *out ? bound : *out) : (bound < *out ? bound : *out);
    }
    return GW_OK;
}

int gw_schema_has_bounds(const gw_schema_part *p) {
    return json_object_get(p->schema, "minimum") != NULL ||
           json_object_get(p->schema, "maximum") != NULL ||
           json_object_get(p->schema, "exclusiveMinimum") != NULL ||
           json_object_get(p->schema, "exclusiveMaximum") != NULL;
}

gw_status gw_schema_put_integer(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    const int64_t wide = 9999999999999999;
    int64_t low = INT64_MIN, high = INT64_MAX;
    if (!gw_schema_has_bounds(p)) {
        PUT("s%zu-integer ::= integer\n", rule);
        return GW_OK;
    }
    GW_TRY(get_bound(p, "minimum", "exclusiveMinimum", 1, &low));
    GW_TRY(get_bound(p, "maximum", "exclusiveMaximum", -1, &high));
    if (low > high) {
        return gw_schema_contradiction(p, "the maximum is below the minimum");
    }
    if (low == INT64_MIN) {
        low = high < -wide ? INT64_MIN + 1 : -wide;
    }
    if (high == INT64_MAX) {
        high = low > wide ? INT64_MAX - 1 : wide;
    }
    PUT("s%zu-integer ::= ", rule);
    GW_TRY(gw_schema_put_range(&w->out, low, high));
    PUT("\n");
    return GW_OK;
}
