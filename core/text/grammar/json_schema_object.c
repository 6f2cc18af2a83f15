/* core/text/grammar/json_schema_object.c - objects as rules; see json_schema_parts.h.
 *
 * Members come in the order of "properties", then others. Where the number of members is bounded
 * every rule knows how many there are. Others that are needed for the least number have lengths
 * with different remainders, so that no two of them are one.
 */
#include <stdio.h>

#include "core/text/grammar/json_schema_parts.h"

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

enum { MEMBERS_MAX = 4096, PATTERNS_MAX = 64, COUNTED_MAX = 20000, ROTATIONS_MAX = 6 };
enum { KINDS_MAX = 256, CLOSINGS_MAX = 64, NAME_DEPTH = 8 };

/* What a schema says of members that it neither names nor has a pattern for. */
typedef struct closing {
    const json_t *names;
    uint64_t like; /* its patterns: bits of the list of all */
    json_t *more;  /* a schema */
} closing;

/* Other members whose names match these patterns for certain, and no others. */
typedef struct kind {
    uint64_t like;
    gw_dfa names;
} kind;

typedef struct members {
    gw_schema_work *w;
    const gw_schema_part *p;
    size_t rule, n, n_required;
    const char **names; /* [n] */
    uint8_t *required;  /* [n] */
    int plain;          /* others that match no pattern are written, where no closing forbids */
    int others;         /* there are some, of patterns at least */
    closing closings[CLOSINGS_MAX];
    size_t n_closings;
    kind *kinds; /* [n_kinds] of others */
    size_t n_kinds;
    gw_map *written; /* names of members with a rule */
    const char *like[PATTERNS_MAX];
    json_t *of_like[PATTERNS_MAX];
    gw_dfa narrow[PATTERNS_MAX], wide[PATTERNS_MAX];
    size_t n_like;
    int has_names; /* names are limited, to those of */
    gw_dfa named;
    json_t *listed; /* names are these ones */
    int64_t low, high;
} members;

static int is_text_of(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text != NULL && strcmp(text, name) == 0) {
            return 1;
        }
    }
    return 0;
}

/* ---- what the schema says -------------------------------------------------------------------- */

static gw_status check_words(const gw_schema_part *p) {
    static const char *const objects[] = {"properties", "patternProperties"};
    static const char *const schemas[] = {"additionalProperties", "propertyNames",
                                          "unevaluatedProperties"};
    json_t *required = json_object_get(p->schema, "required"), *x;
    size_t i;
    for (i = 0; i < 2; i++) {
        x = json_object_get(p->schema, objects[i]);
        if (x != NULL && !json_is_object(x)) {
            return gw_schema_wrong(p, objects[i], "an object");
        }
    }
    for (i = 0; i < 3; i++) {
        x = json_object_get(p->schema, schemas[i]);
        if (x != NULL && !gw_schema_is_schema(x)) {
            return gw_schema_wrong(p, schemas[i], "a schema");
        }
    }
    if (required != NULL && !json_is_array(required)) {
        return gw_schema_wrong(p, "required", "a list of names");
    }
    json_array_foreach(required, i, x) {
        if (!json_is_string(x)) {
            return gw_schema_wrong(p, "required", "a list of names");
        }
    }
    if (json_object_size(json_object_get(p->schema, "properties")) > MEMBERS_MAX ||
        i > MEMBERS_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: an object of more than %d members", p->where,
                       MEMBERS_MAX);
    }
    return GW_OK;
}

static gw_status read_patterns(members *m) {
    json_t *all = json_object_get(m->p->schema, "patternProperties"), *x;
    const char *text;
    json_object_foreach(all, text, x) {
        const char *where = gw_schema_beneath(m->w, m->p->where, "patternProperties", text);
        if (m->n_like == PATTERNS_MAX) {
            return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: more than %d \"patternProperties\"",
                           m->p->where, PATTERNS_MAX);
        }
        if (!gw_schema_is_schema(x)) {
            return gw_fail(GW_E_TYPE, GW_SCHEMA, "at %s: not a schema", where);
        }
        size_t i = m->n_like++;
        m->like[i] = text;
        m->of_like[i] = x;
        GW_TRY(gw_dfa_pattern(m->w->arena, where, text, strlen(text), 0, &m->narrow[i]));
        GW_TRY(gw_dfa_pattern(m->w->arena, where, text, strlen(text), 1, &m->wide[i]));
    }
    return GW_OK;
}

static gw_status read_name_choices(members *m, const gw_schema_part *p, int depth, gw_dfa *out,
                                   int *none);

/* Names of one choice as an automaton; *none: it has no name. */
static gw_status read_name_choice(members *m, const gw_schema_part *choice, int depth, gw_dfa *out,
                                  int *none) {
    gw_schema_part p = *choice;
    gw_schema_judge j = {0};
    gw_schema_strings s;
    unsigned types = 0;
    size_t n = 0;
    gw_status status = gw_schema_flatten(m->w, choice, &p.schema);
    GW_TRY(status == GW_OK ? gw_schema_keep(m->w, p.schema) : status);
    if (json_object_get(p.schema, "anyOf") != NULL || json_object_get(p.schema, "oneOf") != NULL) {
        return depth < NAME_DEPTH ? read_name_choices(m, &p, depth + 1, out, none)
                                  : gw_schema_refuse(&p, "propertyNames");
    }
    GW_TRY(gw_schema_get_types(m->w, &p, ~0u, &types));
    json_t *list = json_object_get(p.schema, "enum"), *only = json_object_get(p.schema, "const");
    *none = !(types >> GW_STRING & 1);
    if (*none || (list == NULL && only == NULL)) {
        GW_TRY(*none ? GW_OK : gw_schema_read_strings(m->w, &p, &s));
        if (!*none && !s.limited) {
            return gw_dfa_lengths(m->w->arena, p.where, s.low, s.high, out);
        }
        *out = *none ? *out : s.dfa;
        return GW_OK;
    }
    list = list != NULL ? json_incref(list) : json_pack("[O]", only);
    const char **names = gw_arena_array(m->w->arena, json_array_size(list) + 1, sizeof *names);
    status =
        names != NULL ? gw_schema_judge_open(m->w, p.schema, p.where, &j) : gw_schema_no_memory();
    for (size_t i = 0; i < json_array_size(list) && status == GW_OK; i++) {
        json_t *x = json_array_get(list, i);
        int is = 0;
        status = gw_schema_judge_value(&j, x, &is);
        if (is && json_is_string(x) && strlen(json_string_value(x)) == json_string_length(x)) {
            names[n++] = json_string_value(x);
        }
    }
    gw_schema_judge_close(&j);
    json_decref(list);
    *none = n == 0;
    return status != GW_OK || n == 0 ? status : gw_dfa_texts(m->w->arena, p.where, names, n, out);
}

/* "propertyNames" that is a choice: the names of all of its schemas. It calls itself at most
 * NAME_DEPTH times. */
static gw_status read_name_choices(members *m, const gw_schema_part *p, int depth, gw_dfa *out,
                                   int *none) {
    size_t *rules, n, some = 0;
    GW_TRY(gw_schema_branches(m->w, p, &rules, &n));
    for (size_t i = 0; i < n; i++) {
        gw_schema_part one = m->w->parts[rules[i]];
        gw_dfa d = {0};
        int without = 0;
        gw_status status = read_name_choice(m, &one, depth, &d, &without);
        if (status == GW_E_METADATA && m->w->contradicted) {
            m->w->contradicted = 0;
            continue;
        }
        GW_TRY(status);
        if (!without && some++ == 0) {
            *out = d;
        } else if (!without) {
            GW_TRY(gw_dfa_combine(m->w->arena, p->where, out, &d, GW_DFA_OR, out));
        }
    }
    *none = some == 0;
    return GW_OK;
}

/* "propertyNames": a list of names, or an automaton. */
static gw_status read_names(members *m) {
    json_t *names = json_object_get(m->p->schema, "propertyNames"), *flat = NULL;
    gw_schema_part p = {names, gw_schema_beneath(m->w, m->p->where, "propertyNames", NULL)};
    gw_schema_strings s;
    if (names == NULL || json_is_true(names)) {
        return GW_OK;
    }
    m->has_names = 1;
    if (json_is_false(names)) {
        m->listed = json_array();
        return gw_schema_keep(m->w, m->listed);
    }
    GW_TRY(gw_schema_flatten(m->w, &p, &flat));
    GW_TRY(gw_schema_keep(m->w, flat));
    p.schema = flat;
    if (json_object_get(flat, "anyOf") != NULL || json_object_get(flat, "oneOf") != NULL) {
        int none;
        GW_TRY(read_name_choices(m, &p, 0, &m->named, &none));
        m->listed = none ? json_array() : NULL;
        return none ? gw_schema_keep(m->w, m->listed) : GW_OK;
    }
    GW_TRY(gw_schema_read_strings(m->w, &p, &s));
    if (!s.limited) {
        GW_TRY(gw_dfa_lengths(m->w->arena, p.where, s.low, s.high, &s.dfa));
    }
    m->named = s.dfa;
    json_t *list = json_object_get(flat, "enum"), *only = json_object_get(flat, "const"), *x;
    size_t i;
    if (list == NULL && only == NULL) {
        return GW_OK;
    }
    m->listed = json_array();
    GW_TRY(gw_schema_keep(m->w, m->listed));
    list = list != NULL ? json_incref(list) : json_pack("[O]", only);
    json_array_foreach(list, i, x) {
        if (json_is_string(x) && (only == NULL || gw_schema_equal(m->w, x, only)) &&
            strlen(json_string_value(x)) == json_string_length(x) &&
            gw_dfa_accepts(&m->named, json_string_value(x), json_string_length(x))) {
            json_array_append(m->listed, x);
        }
    }
    json_decref(list);
    return GW_OK;
}

static int may_be_named(const members *m, const char *name) {
    return !m->has_names       ? 1
           : m->listed != NULL ? is_text_of(m->listed, name)
                               : gw_dfa_accepts(&m->named, name, strlen(name));
}

/* All of the schemas in the list, which is taken: one schema, or none that says something. */
static gw_status join_schemas(members *m, json_t *all, json_t **out) {
    size_t n = json_array_size(all);
    *out = n == 0 ? m->w->any : json_array_get(all, 0);
    if (n > 1) {
        *out = json_pack("{s:O}", "allOf", all);
        json_decref(all);
        return gw_schema_keep(m->w, *out);
    }
    json_decref(all);
    return GW_OK;
}

/* What a member is by its name alone, together with `own`; NULL: it must not be there. */
static gw_status value_of(members *m, const char *name, json_t *own, json_t **out) {
    json_t *all = json_array();
    uint64_t sure = 0;
    if (own != NULL) {
        json_array_append(all, own);
    }
    for (size_t i = 0; i < m->n_like; i++) {
        sure |= (uint64_t)gw_dfa_accepts(&m->narrow[i], name, strlen(name)) << i;
        if (gw_dfa_accepts(&m->wide[i], name, strlen(name))) {
            json_array_append(all, m->of_like[i]);
        }
    }
    for (size_t i = 0; i < m->n_closings; i++) {
        const closing *c = &m->closings[i];
        if (json_object_get(c->names, name) != NULL || (c->like & sure) != 0) {
            continue;
        }
        if (json_is_false(c->more)) {
            *out = NULL;
            json_decref(all);
            return GW_OK;
        }
        json_array_append(all, c->more);
    }
    return join_schemas(m, all, out);
}

/* ---- members --------------------------------------------------------------------------------- */

static gw_status put_member(members *m, const char *name, json_t *schema, int required) {
    gw_schema_work *w = m->w;
    const char *where = gw_schema_beneath(w, m->p->where, "properties", name);
    json_t *text = json_string(name), *value;
    size_t of;
    GW_TRY(gw_schema_keep(w, text));
    if (schema != NULL && !gw_schema_is_schema(schema)) {
        return gw_fail(GW_E_TYPE, GW_SCHEMA, "at %s: not a schema", where);
    }
    GW_TRY(value_of(m, name, schema, &value));
    if (value == NULL || !may_be_named(m, name)) {
        return !required ? GW_OK
               : value == NULL
                   ? gw_schema_contradiction(
                         w, m->p->where,
                         "\"required\" names what \"additionalProperties\" rules out")
                   : gw_schema_contradiction(w, where,
                                             "\"required\" names what \"propertyNames\" rules out");
    }
    size_t i = m->n++;
    if (gw_map_add(m->written, name, strlen(name), i, NULL) == GW_MAP_NOMEM) {
        return gw_schema_no_memory();
    }
    m->names[i] = name;
    m->required[i] = (uint8_t)required;
    m->n_required += (size_t)required;
    GW_TRY(gw_schema_rule(w, value, where, &of));
    PUT("s%zu-p%zu ::= ", m->rule, i);
    GW_TRY(gw_schema_put_key(w, text));
    PUT(" \":\" ws s%zu ws\n", of);
    return GW_OK;
}

static int has_name(const gw_map *map, const char *name) {
    size_t at;
    return gw_map_find(map, name, strlen(name), &at);
}

static int is_listed(const members *m, const char *name) { return has_name(m->written, name); }

/* Properties, what is required besides them, and all others where names are listed. */
static gw_status list_members(members *m) {
    json_t *properties = json_object_get(m->p->schema, "properties"), *x;
    json_t *required = json_object_get(m->p->schema, "required");
    size_t most = json_object_size(properties) + json_array_size(required) +
                  json_array_size(m->listed),
           i;
    const char *name;
    m->names = gw_arena_array(m->w->arena, most + 1, sizeof *m->names);
    m->required = gw_arena_array(m->w->arena, most + 1, 1);
    if (m->names == NULL || m->required == NULL) {
        return gw_schema_no_memory();
    }
    gw_map *needed = gw_map_new();
    gw_status status = needed != NULL ? GW_OK : gw_schema_no_memory();
    json_array_foreach(required, i, x) {
        name = json_string_value(x);
        if (status == GW_OK && gw_map_add(needed, name, strlen(name), i, NULL) == GW_MAP_NOMEM) {
            status = gw_schema_no_memory();
        }
    }
    json_object_foreach(properties, name, x) {
        if (status == GW_OK) {
            status = put_member(m, name, x, has_name(needed, name));
        }
    }
    gw_map_free(needed);
    GW_TRY(status);
    json_array_foreach(required, i, x) {
        name = json_string_value(x);
        if (json_object_get(properties, name) == NULL && !is_listed(m, name)) {
            GW_TRY(put_member(m, name, NULL, 1));
        }
    }
    json_array_foreach(m->listed, i, x) {
        name = json_string_value(x);
        if (m->others && json_object_get(properties, name) == NULL && !is_listed(m, name)) {
            GW_TRY(put_member(m, name, NULL, 0));
        }
    }
    return GW_OK;
}

/* ---- others ---------------------------------------------------------------------------------- */

/* Names that are none of the listed ones; where those are too many to be told apart letter by
 * letter, longer ones. */
static gw_status leave_listed_out(members *m, gw_dfa *d) {
    json_t *properties = json_object_get(m->p->schema, "properties"), *x;
    size_t n = 0, most = m->n + json_object_size(properties), longest = 0;
    const char **names = gw_arena_array(m->w->arena, most + 1, sizeof *names), *name;
    gw_dfa all;
    if (names == NULL) {
        return gw_schema_no_memory();
    }
    for (size_t i = 0; i < m->n; i++) {
        names[n++] = m->names[i];
    }
    json_object_foreach(properties, name, x) { names[n++] = name; }
    if (n == 0) {
        return GW_OK;
    }
    gw_status status = gw_dfa_texts(m->w->arena, m->p->where, names, n, &all);
    if (status == GW_E_LIMIT) {
        for (size_t i = 0; i < n; i++) {
            longest = strlen(names[i]) > longest ? strlen(names[i]) : longest;
        }
        GW_TRY(gw_dfa_lengths(m->w->arena, m->p->where, (int64_t)longest + 1, -1, &all));
        return gw_dfa_combine(m->w->arena, m->p->where, d, &all, GW_DFA_AND, d);
    }
    GW_TRY(status);
    return gw_dfa_combine(m->w->arena, m->p->where, d, &all, GW_DFA_MINUS, d);
}

/* Are others of a kind ruled out by a closing? */
static int is_closed(const members *m, uint64_t like) {
    for (size_t i = 0; i < m->n_closings; i++) {
        if ((m->closings[i].like & like) == 0 && json_is_false(m->closings[i].more)) {
            return 1;
        }
    }
    return 0;
}

/* Splits the others by the patterns that they match: as many kinds as there are overlaps. */
static gw_status find_kinds(members *m) {
    gw_dfa all;
    m->kinds = gw_arena_array(m->w->arena, KINDS_MAX, sizeof *m->kinds);
    if (m->kinds == NULL) {
        return gw_schema_no_memory();
    }
    if (m->has_names) {
        all = m->named;
    } else {
        GW_TRY(gw_dfa_any(m->w->arena, &all));
    }
    GW_TRY(leave_listed_out(m, &all));
    m->kinds[m->n_kinds++] = (kind){0, all};
    for (size_t i = 0; i < m->n_like; i++) {
        size_t n = m->n_kinds;
        for (size_t k = 0; k < n; k++) {
            gw_dfa in, out;
            GW_TRY(gw_dfa_combine(m->w->arena, m->p->where, &m->kinds[k].names, &m->narrow[i],
                                  GW_DFA_AND, &in));
            GW_TRY(gw_dfa_combine(m->w->arena, m->p->where, &m->kinds[k].names, &m->wide[i],
                                  GW_DFA_MINUS, &out));
            m->kinds[k].names = out;
            if (gw_dfa_is_empty(&in)) {
                continue;
            }
            if (m->n_kinds == KINDS_MAX) {
                return gw_fail(GW_E_LIMIT, GW_SCHEMA,
                               "at %s: \"patternProperties\" overlap in more than %d ways",
                               m->p->where, KINDS_MAX);
            }
            m->kinds[m->n_kinds++] = (kind){m->kinds[k].like | (uint64_t)1 << i, in};
        }
    }
    return GW_OK;
}

static gw_status other_value(members *m, uint64_t like, size_t *of) {
    json_t *all = json_array(), *value;
    const char *where = gw_schema_beneath(
        m->w, m->p->where, like != 0 ? "patternProperties" : "additionalProperties", NULL);
    for (size_t i = 0; i < m->n_like; i++) {
        if (like >> i & 1) {
            json_array_append(all, m->of_like[i]);
        }
    }
    for (size_t i = 0; i < m->n_closings; i++) {
        if ((m->closings[i].like & like) == 0) {
            json_array_append(all, m->closings[i].more);
        }
    }
    GW_TRY(join_schemas(m, all, &value));
    return gw_schema_rule(m->w, value, where, of);
}

/* Rule sN-xREST: another member whose name's length leaves that remainder. */
static gw_status put_others(members *m, uint32_t divisor, uint32_t rest) {
    gw_schema_work *w = m->w;
    gw_bytes line = {0};
    gw_status status = gw_schema_put(&line, "s%zu-x%u-%u ::= ", m->rule, divisor, rest);
    const char *bar = "";
    for (size_t k = 0; status == GW_OK && k < m->n_kinds; k++) {
        gw_dfa d = m->kinds[k].names, lengths;
        uint64_t like = m->kinds[k].like;
        size_t of;
        char tag[40], term[GW_SCHEMA_TERM];
        if ((like == 0 && !m->plain) || is_closed(m, like)) {
            continue;
        }
        if (divisor > 1) {
            GW_TRY_DONE(gw_dfa_rest(w->arena, m->p->where, divisor, rest, &lengths));
            GW_TRY_DONE(gw_dfa_combine(w->arena, m->p->where, &d, &lengths, GW_DFA_AND, &d));
        }
        if (gw_dfa_is_empty(&d)) {
            continue;
        }
        snprintf(tag, sizeof tag, "k%zu-%u-%u-", k, divisor, rest);
        GW_TRY_DONE(gw_schema_put_text(w, m->p->where, m->rule, tag, &d, 1, term));
        GW_TRY_DONE(other_value(m, like, &of));
        GW_TRY_DONE(gw_schema_put(&line, "%s%s \":\" ws s%zu ws", bar, term, of));
        bar = " | ";
    }
    if (status == GW_OK && bar[0] == '\0') { /* no name is left: no text ends this */
        gw_schema_contradiction(w, m->p->where,
                                divisor > 1 ? "there are too few names of different lengths, "
                                              "and minProperties is kept by no others"
                                            : "no name of a member is left");
        w->contradicted = 0;
        status = gw_schema_put(&line, "\"x\" s%zu-x%u-%u", m->rule, divisor, rest);
    }
    if (status == GW_OK) {
        status = gw_schema_put(&line, "\n");
    }
    if (status == GW_OK) {
        status = gw_bytes_add(&w->out, line.data, line.n);
    }
done:
    free(line.data);
    return status;
}

/* ---- any number of members ------------------------------------------------------------------- */

static gw_status put_uncounted(members *m) {
    gw_schema_work *w = m->w;
    size_t n = m->n, rule = m->rule;
    for (size_t i = 0; i < n; i++) { /* from member i on: the first one comes, or the next; */
        PUT("s%zu-h%zu ::= s%zu-p%zu s%zu-t%zu", rule, i, rule, i, rule, i + 1);
        if (!m->required[i]) {
            PUT(" | s%zu-h%zu", rule, i + 1);
        }
        PUT("\ns%zu-t%zu ::= ", rule, i); /* ... the same after another one */
        PUT(m->required[i] ? "\",\" ws s%zu-p%zu s%zu-t%zu\n"
                           : "( \",\" ws s%zu-p%zu )? s%zu-t%zu\n",
            rule, i, rule, i + 1);
    }
    if (!m->others) {
        PUT("s%zu-h%zu ::= \"\"\ns%zu-t%zu ::= \"\"\n", rule, n, rule, n);
        return GW_OK;
    }
    PUT("s%zu-h%zu ::= ( s%zu-x1-0 s%zu-t%zu )?\n", rule, n, rule, rule, n);
    PUT("s%zu-t%zu ::= ( \",\" ws s%zu-x1-0 )*\n", rule, n, rule);
    return put_others(m, 1, 0);
}

/* ---- a bounded number of them ---------------------------------------------------------------- */

static int64_t counted(const members *m, int64_t c) { /* how far it matters */
    int64_t cap = m->low > 1 ? m->low : 1;
    return m->high < 0 && c > cap ? cap : c;
}

static gw_status put_step(members *m, size_t i, int64_t c) {
    gw_schema_work *w = m->w;
    const char *bar = "";
    PUT("s%zu-m%zu-%d ::= ", m->rule, i, (int)c);
    if (m->high < 0 || c < m->high) {
        PUT("%ss%zu-p%zu s%zu-m%zu-%d", c > 0 ? "\",\" ws " : "", m->rule, i, m->rule, i + 1,
            (int)counted(m, c + 1));
        bar = " | ";
    }
    if (!m->required[i]) {
        PUT("%ss%zu-m%zu-%d", bar, m->rule, i + 1, (int)c);
    } else if (bar[0] == '\0') {
        PUT("\"x\" s%zu-m%zu-%d", m->rule, i, (int)c);
    }
    PUT("\n");
    return GW_OK;
}

/* Others after c members, `need` of them at least. */
static gw_status put_needed(members *m, int64_t c, int64_t need) {
    gw_schema_work *w = m->w;
    int64_t room = m->high < 0 ? -1 : m->high - c - need;
    for (int64_t turn = 0; turn < need && turn < ROTATIONS_MAX; turn++) {
        PUT("%s", turn > 0 ? " | " : "");
        for (int64_t i = 0; i < need; i++) {
            PUT(" %ss%zu-x%d-%d", c + i > 0 ? "\",\" ws " : "", m->rule, (int)need,
                (int)((turn + i) % need));
        }
        PUT(" ( \",\" ws s%zu-x1-0 )", m->rule);
        GW_TRY(gw_schema_put_counts(w, 0, room));
    }
    PUT("\n");
    return GW_OK;
}

static gw_status put_rest(members *m, int64_t c, uint8_t *divisors) {
    gw_schema_work *w = m->w;
    int64_t need = m->low > c ? m->low - c : 0, room = m->high < 0 ? -1 : m->high - c;
    PUT("s%zu-m%zu-%d ::= ", m->rule, m->n, (int)c);
    if ((need > 0 && !m->others) || (room >= 0 && room < need)) {
        PUT("\"x\" s%zu-m%zu-%d\n", m->rule, m->n, (int)c);
        return GW_OK;
    }
    if (!m->others || room == 0) {
        PUT("\"\"\n");
        return GW_OK;
    }
    divisors[0] = 1;
    if (need > 0) {
        divisors[need - 1] = 1;
        return put_needed(m, c, need);
    }
    if (c > 0) {
        PUT("( \",\" ws s%zu-x1-0 )", m->rule);
        GW_TRY(gw_schema_put_counts(w, 0, room));
    } else {
        PUT("( s%zu-x1-0 ( \",\" ws s%zu-x1-0 )", m->rule, m->rule);
        GW_TRY(gw_schema_put_counts(w, 0, room < 0 ? -1 : room - 1));
        PUT(" )?");
    }
    PUT("\n");
    return GW_OK;
}

static gw_status put_counted(members *m) {
    gw_schema_work *w = m->w;
    int64_t cap = m->low > (int64_t)m->n ? m->low : (int64_t)m->n;
    if ((int64_t)m->n * (cap < (int64_t)m->n ? cap : (int64_t)m->n) > COUNTED_MAX ||
        m->low > MEMBERS_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA,
                       "at %s: too many members to be counted (\"minProperties\", "
                       "\"maxProperties\")",
                       m->p->where);
    }
    for (size_t i = 0; i < m->n; i++) {
        for (int64_t c = 0; c <= counted(m, (int64_t)i); c++) {
            if (m->high < 0 || c <= m->high) {
                GW_TRY(put_step(m, i, c));
            }
        }
    }
    uint8_t *divisors = gw_arena_alloc(w->arena, (size_t)m->low + 1);
    if (divisors == NULL) {
        return gw_schema_no_memory();
    }
    for (int64_t c = 0; c <= counted(m, (int64_t)m->n); c++) {
        if (m->high < 0 || c <= m->high) {
            GW_TRY(put_rest(m, c, divisors));
        }
    }
    for (int64_t d = 1; d <= m->low || d == 1; d++) {
        for (uint32_t rest = 0; divisors[d - 1] && rest < (uint32_t)d; rest++) {
            GW_TRY(put_others(m, (uint32_t)d, rest));
        }
    }
    PUT("s%zu-h0 ::= s%zu-m0-0\n", m->rule, m->rule);
    return GW_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* One closing; its patterns are among those of the object. */
static gw_status add_closing(members *m, const json_t *names, const json_t *patterns,
                             json_t *more) {
    closing c = {.names = names, .more = more};
    if (more == NULL || json_is_true(more) || json_object_size(more) + json_is_false(more) == 0) {
        return GW_OK;
    }
    if (!gw_schema_is_schema(more)) {
        return gw_schema_wrong(m->p, "additionalProperties", "a schema");
    }
    if (m->n_closings == CLOSINGS_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA,
                       "at %s: more than %d \"additionalProperties\" at once", m->p->where,
                       CLOSINGS_MAX);
    }
    for (size_t i = 0; i < m->n_like; i++) {
        c.like |= (uint64_t)(json_object_get(patterns, m->like[i]) != NULL) << i;
    }
    m->closings[m->n_closings++] = c;
    return GW_OK;
}

/* Without a word about other members only an object of none of its own has them. */
static gw_status find_others(members *m) {
    const json_t *schema = m->p->schema;
    json_t *properties = json_object_get(schema, "properties"), *x;
    json_t *list = json_object_get(schema, GW_SCHEMA_CLOSINGS);
    json_t *more = json_object_get(schema, "additionalProperties");
    const char *name;
    int64_t own = 0;
    size_t i;
    json_object_foreach(properties, name, x) { own += !json_is_false(x); }
    more = more != NULL ? more : json_object_get(schema, "unevaluatedProperties");
    GW_TRY(add_closing(m, properties, json_object_get(schema, "patternProperties"), more));
    json_array_foreach(list, i, x) {
        GW_TRY(add_closing(m, json_object_get(x, "properties"),
                           json_object_get(x, "patternProperties"),
                           json_object_get(x, "additionalProperties")));
    }
    int said = more != NULL || list != NULL;
    int open = said || m->listed != NULL || m->low > own || (own == 0 && m->n_like == 0);
    m->plain = !is_closed(m, 0);
    m->others = (m->plain && open) || m->n_like > 0;
    m->others &= m->listed == NULL || json_array_size(m->listed) > 0;
    m->plain &= said || m->n_like == 0; /* those of a pattern are enough */
    return GW_OK;
}

static int excludes_empty(const gw_schema_part *p, int *whole) {
    const json_t *value;
    int empty = 0;
    *whole = 1;
    for (size_t i = 0; (value = gw_schema_excluded(p, i)) != NULL; i++) {
        *whole &= !json_is_object(value) || json_object_size(value) == 0;
        empty |= json_is_object(value) && json_object_size(value) == 0;
    }
    return empty;
}

static gw_status put_object(members *m) {
    gw_schema_work *w = m->w;
    const gw_schema_part *p = m->p;
    int whole;
    GW_TRY(check_words(p));
    GW_TRY(gw_schema_counts(w, p, "minProperties", "maxProperties", &m->low, &m->high));
    m->low = excludes_empty(p, &whole) && m->low == 0 ? 1 : m->low;
    if (!whole) {
        return gw_schema_refuse(p, "not");
    }
    GW_TRY(read_patterns(m));
    GW_TRY(read_names(m));
    GW_TRY(find_others(m));
    GW_TRY(list_members(m));
    if (m->listed != NULL) {
        m->others = 0;
    }
    int counts =
        m->low > (int64_t)m->n_required || (m->high >= 0 && (m->others || m->high < (int64_t)m->n));
    GW_TRY(m->others ? find_kinds(m) : GW_OK);
    GW_TRY(counts ? put_counted(m) : put_uncounted(m));
    PUT("s%zu-object ::= \"{\" ws s%zu-h0 \"}\"\n", m->rule, m->rule);
    return GW_OK;
}

gw_status gw_schema_put_object(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    members m = {.w = w, .p = p, .rule = rule, .written = gw_map_new()};
    gw_status status = m.written != NULL ? put_object(&m) : gw_schema_no_memory();
    gw_map_free(m.written);
    return status;
}
