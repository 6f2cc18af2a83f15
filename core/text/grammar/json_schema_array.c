/* core/text/grammar/json_schema_array.c - arrays as rules; see json_schema_parts.h. */
#include <stdio.h>

#include "core/text/grammar/grammar.h"
#include "core/text/grammar/json_schema_parts.h"

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

enum { COUNTED_MAX = 20000 };

typedef gw_schema_elements elements;

static gw_status list_elements(elements *e) {
    json_t *items = json_object_get(e->p->schema, "items");
    json_t *beyond = json_object_get(e->p->schema, "unevaluatedItems");
    int said = items != NULL || beyond != NULL;
    items = items != NULL ? items : beyond;
    e->first = json_object_get(e->p->schema, "prefixItems");
    if (e->first != NULL && !json_is_array(e->first)) {
        return gw_schema_wrong(e->p, "prefixItems", "a list of schemas");
    }
    if (items != NULL && !gw_schema_is_schema(items)) {
        return gw_schema_wrong(e->p, "items", "a schema");
    }
    e->n_first = json_array_size(e->first);
    GW_TRY(gw_schema_counts(e->w, e->p, "minItems", "maxItems", &e->low, &e->high));
    e->rest = json_is_object(items) ? items : json_is_false(items) ? NULL : e->w->any;
    if (!said) { /* nothing is said: no more than there must be */
        e->rest = e->n_first == 0 || e->low > (int64_t)e->n_first ? e->w->any : NULL;
    }
    if (e->high >= 0 && (size_t)e->high < e->n_first) {
        e->n_first = (size_t)e->high;
        e->rest = NULL;
    }
    if (e->rest == NULL && e->low > (int64_t)e->n_first) {
        return gw_schema_contradiction(e->w, e->p->where,
                                       "\"minItems\" is more than there are items");
    }
    return GW_OK;
}

static gw_status put_list(elements *e) {
    gw_schema_work *w = e->w;
    size_t of, rule = e->rule;
    for (size_t i = 0; i < e->n_first; i++) { /* element i and what follows, or nothing */
        char number[24];
        json_t *schema = json_array_get(e->first, i);
        snprintf(number, sizeof number, "%zu", i);
        if (!gw_schema_is_schema(schema)) {
            return gw_schema_wrong(e->p, "prefixItems", "a list of schemas");
        }
        GW_TRY(gw_schema_rule(w, schema, gw_schema_beneath(w, e->p->where, "prefixItems", number),
                              &of));
        int must = (int64_t)i < e->low;
        PUT("s%zu-a%zu ::= %s%ss%zu ws s%zu-a%zu%s\n", rule, i, must ? "" : "( ",
            i > 0 ? "\",\" ws " : "", of, rule, i + 1, must ? "" : " )?");
    }
    size_t n = e->n_first;
    int64_t low = e->low > (int64_t)n ? e->low - (int64_t)n : 0;
    int64_t high = e->high < 0 ? -1 : e->high - (int64_t)n;
    PUT("s%zu-a%zu ::= ", rule, n);
    if (e->rest == NULL || high == 0) {
        PUT("\"\"\n");
        return GW_OK;
    }
    GW_TRY(gw_schema_rule(w, e->rest, gw_schema_beneath(w, e->p->where, "items", NULL), &of));
    if (n > 0) {
        PUT("( \",\" ws s%zu ws )", of);
        GW_TRY(gw_schema_put_counts(w, low, high));
    } else {
        PUT("( s%zu ws ( \",\" ws s%zu ws )", of, of);
        GW_TRY(gw_schema_put_counts(w, low > 0 ? low - 1 : 0, high < 0 ? -1 : high - 1));
        PUT(low > 0 ? " )" : " )?");
    }
    PUT("\n");
    return GW_OK;
}

/* ---- some of a kind -------------------------------------------------------------------------- */

typedef struct kinds {
    int64_t least, most; /* elements that "contains" speaks of */
    size_t of, other;    /* rules of those, and of the others */
} kinds;

static gw_status find_kinds(elements *e, json_t *contains, kinds *k) {
    gw_schema_work *w = e->w;
    const char *where = gw_schema_beneath(w, e->p->where, "contains", NULL);
    json_t *of = json_pack("{s:[O,O]}", "allOf", e->rest, contains), *other = e->rest;
    GW_TRY(gw_schema_keep(w, of));
    GW_TRY(gw_schema_rule(w, of, where, &k->of));
    if (k->most >= 0) {
        other = json_pack("{s:[O,{s:O}]}", "allOf", e->rest, "not", contains);
        GW_TRY(gw_schema_keep(w, other));
    }
    return gw_schema_rule(w, other, gw_schema_beneath(w, e->p->where, "items", NULL), &k->other);
}

static gw_status put_kinds(elements *e, const kinds *k) {
    gw_schema_work *w = e->w;
    int64_t cap = e->high >= 0 ? e->high : e->low > 1 ? e->low : 1;
    int64_t cap_of = k->most >= 0 ? k->most : k->least;
    if ((cap + 1) * (cap_of + 1) > COUNTED_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA,
                       "at %s: too many elements to be counted (\"contains\")", e->p->where);
    }
    for (int64_t i = 0; i <= cap; i++) {
        for (int64_t c = 0; c <= cap_of; c++) {
            int64_t next = e->high < 0 && i == cap ? cap : i + 1;
            int64_t found = k->most < 0 && c == cap_of ? c : c + 1;
            const char *comma = i > 0 ? "\",\" ws " : "", *bar = "";
            PUT("s%zu-c%d-%d ::= ", e->rule, (int)i, (int)c);
            if (next <= cap) {
                PUT("%ss%zu ws s%zu-c%d-%d", comma, k->other, e->rule, (int)next, (int)c);
                bar = " | ";
            }
            if (next <= cap && found <= cap_of) {
                PUT(" | %ss%zu ws s%zu-c%d-%d", comma, k->of, e->rule, (int)next, (int)found);
            }
            if (i >= e->low && c >= k->least) {
                PUT("%s\"\"", bar);
            } else if (bar[0] == '\0') {
                PUT("\"x\" s%zu-c%d-%d", e->rule, (int)i, (int)c);
            }
            PUT("\n");
        }
    }
    PUT("s%zu-a0 ::= s%zu-c0-0\n", e->rule, e->rule);
    return GW_OK;
}

/* Several "contains" of schemas that hold at once: an element of each, in their order. */
static gw_status put_several(elements *e, const json_t *list) {
    gw_schema_work *w = e->w;
    size_t n = json_array_size(list), other, of;
    if (e->n_first > 0 || e->rest == NULL || e->low > (int64_t)n ||
        (e->high >= 0 && e->high < (int64_t)n)) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: several \"contains\" with a bounded number of elements are not "
                       "supported",
                       e->p->where);
    }
    GW_TRY(gw_schema_rule(w, e->rest, gw_schema_beneath(w, e->p->where, "items", NULL), &other));
    PUT("s%zu-a0 ::=", e->rule);
    for (size_t i = 0; i < n; i++) {
        json_t *both = json_pack("{s:[O,O]}", "allOf", e->rest, json_array_get(list, i));
        GW_TRY(gw_schema_keep(w, both));
        GW_TRY(gw_schema_rule(w, both, gw_schema_beneath(w, e->p->where, "contains", NULL), &of));
        PUT(" %ss%zu ws", i > 0 ? "\",\" ws " : "", of);
    }
    if (e->high < 0) {
        PUT(" ( \",\" ws s%zu ws )*", other);
    }
    PUT("\n");
    return GW_OK;
}

static gw_status put_containing(elements *e, json_t *contains) {
    kinds k;
    if (json_is_array(contains)) {
        return put_several(e, contains);
    }
    if (!gw_schema_is_schema(contains)) {
        return gw_schema_wrong(e->p, "contains", "a schema");
    }
    GW_TRY(gw_schema_counts(e->w, e->p, "minContains", "maxContains", &k.least, &k.most));
    if (json_object_get(e->p->schema, "minContains") == NULL) {
        k.least = 1;
    }
    if (k.least == 0 && k.most < 0) {
        return put_list(e);
    }
    if (e->n_first > 0 || e->rest == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"contains\" with \"prefixItems\" is not supported", e->p->where);
    }
    GW_TRY(find_kinds(e, contains, &k));
    return put_kinds(e, &k);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gw_status check_excluded(elements *e) {
    const json_t *value;
    for (size_t i = 0; (value = gw_schema_excluded(e->p, i)) != NULL; i++) {
        if (json_array_size(value) > 0) {
            return gw_schema_refuse(e->p, "not");
        }
        if (json_is_array(value) && e->low == 0) {
            e->low = 1;
        }
    }
    return GW_OK;
}

gw_status gw_schema_put_array(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    elements e = {.w = w, .p = p, .rule = rule};
    json_t *contains = json_object_get(p->schema, "contains");
    int64_t most;
    GW_TRY(list_elements(&e));
    GW_TRY(check_excluded(&e));
    most = e.high >= 0 ? e.high : e.rest == NULL ? (int64_t)e.n_first : 2;
    int unique = json_is_true(json_object_get(p->schema, "uniqueItems")) && most > 1;
    if (unique && contains != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"uniqueItems\" and \"contains\" together are not supported",
                       p->where);
    }
    GW_TRY(unique             ? gw_schema_put_unique(&e)
           : contains != NULL ? put_containing(&e, contains)
                              : put_list(&e));
    PUT("s%zu-array ::= \"[\" ws s%zu-a0 \"]\"\n", rule, rule);
    return GW_OK;
}
