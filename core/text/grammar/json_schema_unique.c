/* core/text/grammar/json_schema_unique.c - "uniqueItems": lists of which no two elements are the
 * same; see json_schema_parts.h.
 *
 * Few listed values: a rule for each set of those that have been. All others are sorted into groups
 * of which no two have a value in common (texts and numbers by how they begin, objects by a member,
 * other types one group each), and a list has at most one element of each group, in their order.
 */
#include <stdio.h>

#include "core/text/grammar/json_schema_parts.h"

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

enum { SUBSETS_MAX = 6, UNIQUE_MAX = 140, BEGINNINGS = 37, LENGTH_MAX = 100 };

typedef struct span {
    uint32_t low, high;
} span;

typedef gw_schema_elements elements;

/* ---- listed values --------------------------------------------------------------------------- */

/* Those of a list that the flat schema allows, each once; *out has them so far, on errors too. */
static gw_status pick_values(elements *e, const gw_schema_part *flat, const json_t *list,
                             json_t *out) {
    gw_schema_set seen = {0};
    gw_schema_judge j = {0};
    json_t *x;
    size_t i;
    gw_status status;
    GW_TRY_DONE(gw_schema_set_open(e->w, &seen));
    GW_TRY_DONE(gw_schema_judge_open(e->w, flat->schema, flat->where, &j));
    json_array_foreach((json_t *)(uintptr_t)list, i, x) {
        int is_new, is = 0;
        GW_TRY_DONE(gw_schema_set_add(&seen, x, &is_new));
        GW_TRY_DONE(is_new ? gw_schema_judge_value(&j, x, &is) : GW_OK);
        if (is && json_array_append(out, x) != 0) {
            GW_TRY_DONE(gw_schema_no_memory());
        }
    }
    status = GW_OK;
done:
    gw_schema_set_close(&seen);
    gw_schema_judge_close(&j);
    return status;
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

/* In the order of rules sN-v0..: an element of each comes, or it is passed over. */
static gw_status put_in_order(elements *e, size_t n) {
    gw_schema_work *w = e->w;
    size_t cap = e->high >= 0 ? (size_t)e->high : e->low > 1 ? (size_t)e->low : 1;
    for (size_t i = 0; i <= n; i++) {
        for (size_t c = 0; c <= (i < cap ? i : cap); c++) { /* so many came before, or more */
            size_t next = c < cap ? c + 1 : c;
            PUT("s%zu-u%zu-%zu ::= ", e->rule, i, c);
            if (i == n) {
                PUT((int64_t)c >= e->low ? "\"\"\n" : "\"x\" s%zu-u%zu-%zu\n", e->rule, i, c);
                continue;
            }
            PUT("s%zu-u%zu-%zu", e->rule, i + 1, c);
            if (e->high < 0 || c < cap) {
                PUT(" | %ss%zu-v%zu ws s%zu-u%zu-%zu", c > 0 ? "\",\" ws " : "", e->rule, i,
                    e->rule, i + 1, next);
            }
            PUT("\n");
        }
    }
    PUT("s%zu-a0 ::= s%zu-u0-0\n", e->rule, e->rule);
    return GW_OK;
}

/* Listed values as rules sN-v0..: each its own; of very many neighbours share one. */
static gw_status put_values(elements *e, const json_t *values, size_t *n) {
    gw_schema_work *w = e->w;
    size_t count = json_array_size(values), most = UNIQUE_MAX;
    most = e->low > UNIQUE_MAX ? (size_t)e->low : most;
    size_t each = (count + most - 1) / most;
    *n = 0;
    for (size_t i = 0; i < count; i++) {
        if (i % each == 0) {
            PUT("%ss%zu-v%zu ::= ", i > 0 ? "\n" : "", e->rule, (*n)++);
        } else {
            PUT(" | ");
        }
        GW_TRY(gw_schema_put_value(w, json_array_get(values, i)));
    }
    PUT("\n");
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

/* Texts that go on, after `skip` characters, with digit k, then with a letter in either case, then
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

/* Many texts, or numbers: rules sN-v0.. of those that begin alike. */
static gw_status put_beginnings(elements *e, const gw_schema_part *flat, int type, size_t *n) {
    gw_schema_work *w = e->w;
    gw_dfa all;
    GW_TRY(type == GW_STRING ? read_texts(e, flat, &all)
                             : gw_schema_read_numbers(w, flat, type == GW_INTEGER, &all));
    uint32_t skip = common_beginning(&all);
    for (uint32_t k = 0; k < BEGINNINGS; k++) {
        gw_dfa d;
        char tag[24], term[GW_SCHEMA_TERM];
        GW_TRY(goes_on(e, skip, k, &d));
        GW_TRY(gw_dfa_combine(w->arena, e->p->where, &all, &d, GW_DFA_AND, &d));
        if (gw_dfa_is_empty(&d)) {
            continue;
        }
        snprintf(tag, sizeof tag, "w%zu-", *n);
        if (type == GW_STRING) {
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

/* ---- objects of which no two are the same */

/* Texts by how they begin, for a member's values: disjoint ones. */
static const char *const member_groups[] = {
    "^[0-4]",    "^[5-9]",    "^[A-Ca-c]", "^[D-Fd-f]", "^[G-Ig-i]", "^[J-Lj-l]",
    "^[M-Om-o]", "^[P-Rp-r]", "^[S-Us-u]", "^[V-Xv-x]", "^[Y-Zy-z]", "^([^0-9A-Za-z]|$)"};
enum { MEMBER_GROUPS = sizeof member_groups / sizeof member_groups[0], FEW_GROUPS = 3 };
enum { LONG_OUT = 1 << 20 }; /* of a grammar that is long already there are fewer groups */

/* How well a member tells objects apart: by how many different values it is sure to be told; 0: not
 * at all. *type: GW_STRING, or GW_TYPES for a list of values, which *values is then. */
static gw_status weigh_member(elements *e, json_t *schema, const char *where, int *type,
                              json_t **values, size_t *weight) {
    gw_schema_part p = {schema, where};
    size_t most = e->w->out.n < LONG_OUT || e->low > FEW_GROUPS ? MEMBER_GROUPS : FEW_GROUPS;
    *weight = 0;
    gw_status status = gw_schema_flatten(e->w, &p, &p.schema);
    if (status == GW_E_METADATA && e->w->contradicted) {
        e->w->contradicted = 0;
        return GW_OK;
    }
    GW_TRY(status);
    GW_TRY(gw_schema_keep(e->w, p.schema));
    const char *name = json_string_value(json_object_get(p.schema, "type"));
    if (json_object_get(p.schema, "anyOf") != NULL || json_object_get(p.schema, "oneOf") != NULL) {
        return GW_OK;
    }
    GW_TRY(few_values(e, &p, name != NULL ? name : "", values));
    if (*values != NULL) {
        *type = GW_TYPES;
        *weight = json_array_size(*values) < most ? json_array_size(*values) : most;
    } else if (name != NULL && strcmp(name, "string") == 0) {
        *type = GW_STRING;
        *weight = most;
    }
    return GW_OK;
}

typedef struct telling { /* the member by which objects are told apart */
    const char *name;
    int type;
    json_t *values;
    size_t weight;
} telling;

/* One that is needed before one that is not, which becomes needed. */
static gw_status find_telling(elements *e, const gw_schema_part *flat, telling *out) {
    json_t *properties = json_object_get(flat->schema, "properties"), *schema, *x;
    const char *name;
    size_t i;
    *out = (telling){0};
    for (int needed = 1; needed >= 0 && out->weight == 0; needed--) {
        json_object_foreach(properties, name, schema) {
            int is = 0, type = 0;
            size_t weight = 0;
            json_t *values = NULL;
            json_array_foreach(json_object_get(flat->schema, "required"), i, x) {
                is |= json_is_string(x) && strcmp(json_string_value(x), name) == 0;
            }
            if (is != needed || !gw_schema_is_schema(schema)) {
                continue;
            }
            GW_TRY(weigh_member(e, schema, flat->where, &type, &values, &weight));
            if (weight > out->weight) {
                *out = (telling){name, type, values, weight};
            }
        }
    }
    return GW_OK;
}

/* Rule sN-vI: the flat schema and `also` at once. */
static gw_status put_also(elements *e, const gw_schema_part *flat, json_t *also, size_t *n) {
    gw_schema_work *w = e->w;
    size_t of;
    json_t *both = json_pack("{s:[O,o]}", "allOf", flat->schema, also);
    GW_TRY(gw_schema_keep(w, both));
    GW_TRY(gw_schema_rule(w, both, flat->where, &of));
    PUT("s%zu-v%zu ::= s%zu\n", e->rule, (*n)++, of);
    return GW_OK;
}

static gw_status put_objects(elements *e, const gw_schema_part *flat, size_t *n) {
    telling by;
    GW_TRY(find_telling(e, flat, &by));
    if (by.weight == 0) { /* nothing tells two apart: one of them */
        return put_also(e, flat, json_pack("{s:s}", "type", "object"), n);
    }
    for (uint32_t k = 0; k < by.weight; k++) {
        json_t *value = by.type == GW_STRING
                            ? json_pack("{s:s}", "pattern", member_groups[k])
                            : json_pack("{s:[O]}", "enum", json_array_get(by.values, k));
        GW_TRY(put_also(e, flat,
                        json_pack("{s:s,s:[s],s:{s:o}}", "type", "object", "required", by.name,
                                  "properties", by.name, value),
                        n));
    }
    return GW_OK;
}

/* Values of one type: rules sN-vI.. of which no two have a value in common. */
static gw_status put_type(elements *e, const gw_schema_part *flat, int type, size_t *n) {
    switch (type) {
    case GW_STRING:
    case GW_INTEGER:
    case GW_NUMBER:
        return put_beginnings(e, flat, type, n);
    case GW_OBJECT:
        return put_objects(e, flat, n);
    case GW_BOOLEAN:
        GW_TRY(put_also(e, flat, json_pack("{s:[b]}", "enum", 1), n));
        return put_also(e, flat, json_pack("{s:[b]}", "enum", 0), n);
    default:
        return put_also(e, flat, json_pack("{s:s}", "type", gw_schema_types[type]), n);
    }
}

/* Elements of any types; of a choice one branch for each type, so that no two meet. */
static gw_status put_apart(elements *e, const gw_schema_part *flat, size_t *n) {
    gw_schema_work *w = e->w;
    unsigned types = 0, seen = 0;
    size_t *rules, branches;
    if (json_object_get(flat->schema, "anyOf") == NULL &&
        json_object_get(flat->schema, "oneOf") == NULL) {
        GW_TRY(gw_schema_types_of(w, flat, &types));
        types = types != 0 ? types : (1u << GW_TYPES) - 1;
        types &= types >> GW_NUMBER & 1 ? ~(1u << GW_INTEGER) : ~0u;
        for (int t = 0; t < GW_TYPES; t++) {
            size_t begin = w->out.n, before = *n;
            gw_status status = types >> t & 1 ? put_type(e, flat, t, n) : GW_OK;
            if (status == GW_E_METADATA && w->contradicted) {
                w->contradicted = 0; /* none of this type */
                w->out.n = begin;
                *n = before;
                status = GW_OK;
            }
            GW_TRY(status);
        }
        return GW_OK;
    }
    GW_TRY(gw_schema_branches(w, flat, &rules, &branches));
    for (size_t i = 0; i < branches; i++) {
        gw_schema_part one = w->parts[rules[i]];
        gw_status status = gw_schema_flatten(w, &one, &one.schema);
        if (status == GW_E_METADATA && w->contradicted) {
            w->contradicted = 0;
            continue;
        }
        GW_TRY(status);
        GW_TRY(gw_schema_keep(w, one.schema));
        json_t *list = json_object_get(one.schema, "enum"), *x = NULL;
        json_t *only = json_object_get(one.schema, "const");
        types = only != NULL ? gw_schema_type_of(w, only) : 0;
        for (size_t k = 0; k < json_array_size(list); k++) {
            x = json_array_get(list, k);
            types |= gw_schema_type_of(w, x);
        }
        GW_TRY(types == 0 ? gw_schema_types_of(w, &one, &types) : GW_OK);
        types = types != 0 ? types : (1u << GW_TYPES) - 1;
        int nested = json_object_get(one.schema, "anyOf") != NULL ||
                     json_object_get(one.schema, "oneOf") != NULL;
        if ((types & seen) != 0 && (*n > 0 || nested)) {
            continue; /* a value of it may be one of a branch before */
        }
        seen |= types;
        if (only != NULL || list != NULL || nested) {
            PUT("s%zu-v%zu ::= s%zu\n", e->rule, (*n)++, rules[i]);
        } else {
            GW_TRY(put_apart(e, &one, n));
        }
    }
    return GW_OK;
}

gw_status gw_schema_put_unique(gw_schema_elements *e) {
    gw_schema_part p = {e->rest, gw_schema_beneath(e->w, e->p->where, "items", NULL)};
    json_t *values = NULL;
    size_t n = 0;
    if (e->n_first > 0 || e->rest == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"uniqueItems\" with \"prefixItems\" is not supported", e->p->where);
    }
    GW_TRY(gw_schema_flatten(e->w, &p, &p.schema));
    GW_TRY(gw_schema_keep(e->w, p.schema));
    if (json_object_get(p.schema, "anyOf") == NULL && json_object_get(p.schema, "oneOf") == NULL) {
        const char *name = json_string_value(json_object_get(p.schema, "type"));
        GW_TRY(few_values(e, &p, name != NULL ? name : "", &values));
    }
    if (values != NULL) {
        n = json_array_size(values);
        if ((int64_t)n < e->low) {
            return gw_schema_contradiction(e->w, e->p->where,
                                           "\"minItems\" is more than there are values");
        }
        if (n <= SUBSETS_MAX) {
            return put_subsets(e, values);
        }
        GW_TRY(put_values(e, values, &n));
    } else {
        GW_TRY(put_apart(e, &p, &n));
    }
    if ((int64_t)n < e->low) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA,
                       "at %s: \"uniqueItems\" with \"minItems\" above %zu: elements of a list are "
                       "told apart by how they begin",
                       e->p->where, n);
    }
    return put_in_order(e, n);
}
