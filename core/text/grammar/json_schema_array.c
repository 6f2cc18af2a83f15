/* core/text/grammar/json_schema_array.c - arrays as rules; see json_schema_parts.h. */
#include <stdio.h>

#include "core/text/grammar/grammar.h"
#include "core/text/grammar/json_schema_parts.h"

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

enum { COUNTED_MAX = 20000, SUBSETS_MAX = 6, UNIQUE_MAX = 140, BEGINNINGS = 37, LENGTH_MAX = 100 };

typedef struct span {
    uint32_t low, high;
} span;

typedef struct elements {
    gw_schema_work *w;
    const gw_schema_part *p;
    size_t rule;
    json_t *first; /* [n_first] schemas of the first ones */
    json_t *rest;  /* NULL: no more of them */
    size_t n_first;
    int64_t low, high;
} elements;

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

/* ---- no value twice -------------------------------------------------------------------------- */

/* Those of a list that the flat schema allows, each once; *out has them so far, on errors too. */
static gw_status pick_values(elements *e, const gw_schema_part *flat, const json_t *list,
                             json_t *out) {
    json_t *x;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)list, i, x) {
        int known = 0, is = 0;
        for (size_t k = 0; k < json_array_size(out); k++) {
            known |= gw_schema_equal(e->w, x, json_array_get(out, k));
        }
        if (!known) {
            GW_TRY(gw_schema_judge_listed(e->w, flat->schema, flat->where, x, &is));
        }
        if (is && json_array_append(out, x) != 0) {
            return gw_schema_no_memory();
        }
    }
    return GW_OK;
}

/* The values of a flat schema that has few of them; NULL: it has not. Borrowed. */
static gw_status few_values(elements *e, const gw_schema_part *p, const char *name, json_t **out) {
    json_t *only = json_object_get(p->schema, "const");
    json_t *list = json_object_get(p->schema, "enum");
    *out = NULL;
    list = only != NULL                   ? json_pack("[O]", only)
           : list != NULL                 ? json_incref(list)
           : strcmp(name, "boolean") == 0 ? json_pack("[b,b]", 1, 0)
           : strcmp(name, "null") == 0    ? json_pack("[n]")
                                          : NULL;
    if (list == NULL) {
        return GW_OK;
    }
    GW_TRY(gw_schema_keep(e->w, list));
    *out = json_array();
    GW_TRY(gw_schema_keep(e->w, *out));
    return pick_values(e, p, list, *out);
}

/* Which values have been: a rule for each set of them. */
static gw_status put_subsets(elements *e, const json_t *values) {
    gw_schema_work *w = e->w;
    size_t n = json_array_size(values);
    for (uint32_t used = 0; used < (uint32_t)1 << n; used++) {
        int64_t count = __builtin_popcount(used);
        const char *bar = "";
        PUT("s%zu-u%u ::= ", e->rule, used);
        for (size_t i = 0; i < n; i++) {
            if (!(used >> i & 1) && (e->high < 0 || count < e->high)) {
                PUT("%s%s", bar, count > 0 ? "\",\" ws " : "");
                GW_TRY(gw_schema_put_value(w, json_array_get(values, i)));
                PUT(" ws s%zu-u%u", e->rule, used | (uint32_t)1 << i);
                bar = " | ";
            }
        }
        if (count >= e->low) {
            PUT("%s\"\"", bar);
        } else if (bar[0] == '\0') {
            PUT("\"x\" s%zu-u%u", e->rule, used);
        }
        PUT("\n");
    }
    PUT("s%zu-a0 ::= s%zu-u0\n", e->rule, e->rule);
    return GW_OK;
}

/* Element i of a list, or of rules sN-v0.. */
static gw_status put_element(elements *e, const json_t *values, size_t i) {
    return values != NULL ? gw_schema_put_value(e->w, json_array_get(values, i))
                          : gw_schema_put(&e->w->out, "s%zu-v%zu", e->rule, i);
}

/* In the order of the list: each comes, or is passed over. */
static gw_status put_in_order(elements *e, const json_t *values, size_t n) {
    gw_schema_work *w = e->w;
    if (n > UNIQUE_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: \"uniqueItems\" of more than %d values",
                       e->p->where, UNIQUE_MAX);
    }
    for (size_t i = 0; i <= n; i++) {
        for (size_t c = 0; c <= i; c++) {
            PUT("s%zu-u%zu-%zu ::= ", e->rule, i, c);
            if (i == n) {
                PUT((int64_t)c >= e->low ? "\"\"\n" : "\"x\" s%zu-u%zu-%zu\n", e->rule, i, c);
                continue;
            }
            PUT("s%zu-u%zu-%zu", e->rule, i + 1, c);
            if (e->high < 0 || (int64_t)c < e->high) {
                PUT(" | %s", c > 0 ? "\",\" ws " : "");
                GW_TRY(put_element(e, values, i));
                PUT(" ws s%zu-u%zu-%zu", e->rule, i + 1, c + 1);
            }
            PUT("\n");
        }
    }
    PUT("s%zu-a0 ::= s%zu-u0-0\n", e->rule, e->rule);
    return GW_OK;
}

/* How many characters are the same in all texts of an automaton, from the beginning. */
static uint32_t common_beginning(const gw_dfa *d) {
    uint32_t n = 0;
    for (uint32_t s = 0; !d->accepts[s] && n < d->n; n++) {
        const gw_dfa_edge *e = &d->edges[d->first[s]];
        if (d->first[s + 1] - d->first[s] != 1 || e->low != e->high) {
            break;
        }
        s = e->to;
    }
    return n;
}

/* Texts that go on, behind `skip` characters, with digit k, then with a letter in either case, then
 * with anything else or not at all. Numbers without an exponent of which two go on differently are
 * different numbers. */
static gw_status goes_on(elements *e, uint32_t skip, uint32_t k, gw_dfa *out) {
    static const span other[] = {
        {0, '0' - 1}, {'9' + 1, 'A' - 1}, {'Z' + 1, 'a' - 1}, {'z' + 1, GW_CHAR_MAX}};
    uint32_t digit = '0' + k, upper = 'A' + k - 10, lower = 'a' + k - 10;
    const span one[] = {{digit, digit}}, letter[] = {{upper, upper}, {lower, lower}};
    const span *spans = k < 10 ? one : k < 36 ? letter : other;
    size_t n = k < 10 ? 1 : k < 36 ? 2 : 4;
    gw_dfa_builder b = {.arena = e->w->arena, .where = e->p->where};
    gw_status status;
    for (uint32_t i = 0; i < skip; i++) {
        GW_TRY_DONE(gw_dfa_state(&b, 0));
        GW_TRY_DONE(gw_dfa_edge_to(&b, 0, GW_CHAR_MAX, i + 1));
    }
    GW_TRY_DONE(gw_dfa_state(&b, k == 36));
    for (size_t i = 0; i < n; i++) {
        GW_TRY_DONE(gw_dfa_edge_to(&b, spans[i].low, spans[i].high, skip + 1));
    }
    GW_TRY_DONE(gw_dfa_state(&b, 1));
    GW_TRY_DONE(gw_dfa_edge_to(&b, 0, GW_CHAR_MAX, skip + 1));
    status = gw_dfa_finish(&b, out);
done:
    gw_dfa_drop(&b);
    return status;
}

/* Many texts, or numbers: rules sN-v0.. of those that begin alike. */
static gw_status put_beginnings(elements *e, const gw_dfa *all, int in_string, size_t *n) {
    gw_schema_work *w = e->w;
    uint32_t skip = common_beginning(all);
    *n = 0;
    for (uint32_t k = 0; k < BEGINNINGS; k++) {
        gw_dfa d;
        char tag[24], term[GW_SCHEMA_TERM];
        GW_TRY(goes_on(e, skip, k, &d));
        GW_TRY(gw_dfa_combine(w->arena, e->p->where, all, &d, GW_DFA_AND, &d));
        if (gw_dfa_is_empty(&d)) {
            continue;
        }
        snprintf(tag, sizeof tag, "w%zu-", *n);
        if (in_string) {
            GW_TRY(gw_schema_put_text(w, e->p->where, e->rule, tag, &d, 0, term));
        } else {
            GW_TRY(gw_schema_put_dfa(w, e->rule, tag, &d, 0, "\"\""));
            snprintf(term, sizeof term, "s%zu-%s0", e->rule, tag);
        }
        PUT("s%zu-v%zu ::= %s\n", e->rule, *n, term);
        ++*n;
    }
    return GW_OK;
}

static gw_status read_texts(elements *e, const gw_schema_part *flat, gw_dfa *out) {
    gw_schema_strings s;
    GW_TRY(gw_schema_read_strings(e->w, flat, &s));
    if (!s.limited) {
        int64_t most = s.low > LENGTH_MAX ? s.low : LENGTH_MAX;
        return gw_dfa_lengths(e->w->arena, flat->where, s.low, s.high > most ? most : s.high, out);
    }
    *out = s.dfa;
    return GW_OK;
}

static gw_status put_apart(elements *e, const gw_schema_part *flat, const char *name) {
    gw_dfa all;
    size_t n;
    int text = strcmp(name, "string") == 0, integer = strcmp(name, "integer") == 0;
    if (!text && !integer && strcmp(name, "number") != 0) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"uniqueItems\" is supported where \"items\" lists its values "
                       "(\"enum\"), or is of \"type\": \"string\", \"integer\" or \"number\", or "
                       "with \"maxItems\": 1",
                       e->p->where);
    }
    GW_TRY(text ? read_texts(e, flat, &all) : gw_schema_read_numbers(e->w, flat, integer, &all));
    GW_TRY(put_beginnings(e, &all, text, &n));
    if ((int64_t)n < e->low) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA,
                       "at %s: \"uniqueItems\" with \"minItems\" above %zu: elements of a list are "
                       "told apart by how they begin",
                       e->p->where, n);
    }
    return put_in_order(e, NULL, n);
}

static gw_status put_unique(elements *e) {
    gw_schema_part p = {e->rest, gw_schema_beneath(e->w, e->p->where, "items", NULL)};
    json_t *values = NULL;
    const char *name = "";
    if (e->n_first == 0 && e->rest != NULL) {
        GW_TRY(gw_schema_flatten(e->w, &p, &p.schema));
        GW_TRY(gw_schema_keep(e->w, p.schema));
        if (json_object_get(p.schema, "anyOf") == NULL &&
            json_object_get(p.schema, "oneOf") == NULL) {
            const char *type = json_string_value(json_object_get(p.schema, "type"));
            name = type != NULL ? type : "";
            GW_TRY(few_values(e, &p, name, &values));
        }
    }
    size_t n = json_array_size(values);
    if (values == NULL) {
        return put_apart(e, &p, name);
    }
    if ((int64_t)n < e->low) {
        return gw_schema_contradiction(e->w, e->p->where,
                                       "\"minItems\" is more than there are values");
    }
    return n <= SUBSETS_MAX ? put_subsets(e, values) : put_in_order(e, values, n);
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

static gw_status put_containing(elements *e, json_t *contains) {
    kinds k;
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
    GW_TRY(unique             ? put_unique(&e)
           : contains != NULL ? put_containing(&e, contains)
                              : put_list(&e));
    PUT("s%zu-array ::= \"[\" ws s%zu-a0 \"]\"\n", rule, rule);
    return GW_OK;
}
