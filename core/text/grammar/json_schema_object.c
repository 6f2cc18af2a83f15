/* core/text/grammar/json_schema_object.c - objects as rules; see json_schema_parts.h.
 *
 * Members come in the order of "properties", then others. Where the number of members is bounded
 * every rule knows how many there are. Others that are needed for the least number have lengths
 * with different remainders, so that no two of them are one.
 */
#include <stdio.h>

#include "core/text/grammar/json_schema_parts.h"

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

enum { MEMBERS_MAX = 4096, PATTERNS_MAX = 5, COUNTED_MAX = 20000, ROTATIONS_MAX = 6 };

typedef struct members {
    gw_schema_work *w;
    const gw_schema_part *p;
    size_t rule, n, n_required;
    const char **names; /* [n] */
    uint8_t *required;  /* [n] */
    json_t *more;       /* what others are; NULL: there are none */
    int others;         /* there are some, of patterns at least */
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
        return gw_schema_refuse(&p, json_object_get(flat, "anyOf") != NULL ? "anyOf" : "oneOf");
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

/* What a member is by its name alone, together with `own`; NULL: it must not be there. */
static gw_status value_of(members *m, const char *name, json_t *own, json_t **out) {
    json_t *all = json_array();
    int like = 0;
    if (own != NULL) {
        json_array_append(all, own);
    }
    for (size_t i = 0; i < m->n_like; i++) {
        if (gw_dfa_accepts(&m->wide[i], name, strlen(name))) {
            like = 1;
            json_array_append(all, m->of_like[i]);
        }
    }
    if (own == NULL && !like && m->more != NULL) {
        json_array_append(all, m->more);
    }
    size_t n = json_array_size(all);
    *out = n == 0 ? NULL : json_array_get(all, 0);
    if (n > 1) {
        *out = json_pack("{s:O}", "allOf", all);
        json_decref(all);
        return gw_schema_keep(m->w, *out);
    }
    json_decref(all);
    return GW_OK;
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
    m->names[i] = name;
    m->required[i] = (uint8_t)required;
    m->n_required += (size_t)required;
    GW_TRY(gw_schema_rule(w, value, where, &of));
    PUT("s%zu-p%zu ::= ", m->rule, i);
    GW_TRY(gw_schema_put_key(w, text));
    PUT(" \":\" ws s%zu ws\n", of);
    return GW_OK;
}

static int is_listed(const members *m, const char *name) {
    for (size_t i = 0; i < m->n; i++) {
        if (strcmp(m->names[i], name) == 0) {
            return 1;
        }
    }
    return 0;
}

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
    json_object_foreach(properties, name, x) {
        GW_TRY(put_member(m, name, x, is_text_of(required, name)));
    }
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

static gw_status join_texts(members *m, const gw_dfa *one, size_t some, gw_dfa *all) {
    if (some == 0) {
        *all = *one;
        return GW_OK;
    }
    return gw_dfa_combine(m->w->arena, m->p->where, all, one, GW_DFA_OR, all);
}

/* Names that are none of the listed ones. */
static gw_status leave_listed_out(members *m, gw_dfa *d) {
    json_t *properties = json_object_get(m->p->schema, "properties"), *x;
    gw_dfa all, one;
    const char *name;
    size_t some = 0;
    for (size_t i = 0; i < m->n; i++) {
        GW_TRY(gw_dfa_text(m->w->arena, m->p->where, m->names[i], strlen(m->names[i]), &one));
        GW_TRY(join_texts(m, &one, some++, &all));
    }
    json_object_foreach(properties, name, x) {
        if (!is_listed(m, name)) {
            GW_TRY(gw_dfa_text(m->w->arena, m->p->where, name, strlen(name), &one));
            GW_TRY(join_texts(m, &one, some++, &all));
        }
    }
    return some > 0 ? gw_dfa_combine(m->w->arena, m->p->where, d, &all, GW_DFA_MINUS, d) : GW_OK;
}

/* Others that match the patterns of `mask` and no more. */
static gw_status other_names(members *m, size_t mask, gw_dfa *d) {
    if (m->has_names) {
        *d = m->named;
    } else {
        GW_TRY(gw_dfa_any(m->w->arena, d));
    }
    GW_TRY(leave_listed_out(m, d));
    for (size_t i = 0; i < m->n_like; i++) {
        int in = (int)(mask >> i & 1);
        GW_TRY(gw_dfa_combine(m->w->arena, m->p->where, d, in ? &m->narrow[i] : &m->wide[i],
                              in ? GW_DFA_AND : GW_DFA_MINUS, d));
    }
    return GW_OK;
}

static gw_status other_value(members *m, size_t mask, size_t *of) {
    json_t *all = json_array(), *value;
    const char *where = gw_schema_beneath(
        m->w, m->p->where, mask != 0 ? "patternProperties" : "additionalProperties", NULL);
    for (size_t i = 0; i < m->n_like; i++) {
        if (mask >> i & 1) {
            json_array_append(all, m->of_like[i]);
        }
    }
    value = mask == 0 ? m->more : json_array_get(all, 0);
    if (json_array_size(all) > 1) {
        value = json_pack("{s:O}", "allOf", all);
        gw_status status = gw_schema_keep(m->w, value);
        if (status != GW_OK) {
            json_decref(all);
            return status;
        }
    }
    json_decref(all);
    return gw_schema_rule(m->w, value, where, of);
}

/* Rule sN-xREST: another member whose name's length leaves that remainder. */
static gw_status put_others(members *m, uint32_t divisor, uint32_t rest) {
    gw_schema_work *w = m->w;
    gw_bytes line = {0};
    gw_status status = gw_schema_put(&line, "s%zu-x%u-%u ::= ", m->rule, divisor, rest);
    const char *bar = "";
    for (size_t mask = 0; status == GW_OK && mask < (size_t)1 << m->n_like; mask++) {
        gw_dfa d, lengths;
        size_t of;
        char tag[40], term[GW_SCHEMA_TERM];
        if (mask == 0 && m->more == NULL) {
            continue;
        }
        GW_TRY_DONE(other_names(m, mask, &d));
        if (divisor > 1) {
            GW_TRY_DONE(gw_dfa_rest(w->arena, m->p->where, divisor, rest, &lengths));
            GW_TRY_DONE(gw_dfa_combine(w->arena, m->p->where, &d, &lengths, GW_DFA_AND, &d));
        }
        if (gw_dfa_is_empty(&d)) {
            continue;
        }
        snprintf(tag, sizeof tag, "k%zu-%u-%u-", mask, divisor, rest);
        GW_TRY_DONE(gw_schema_put_text(w, m->p->where, m->rule, tag, &d, 1, term));
        GW_TRY_DONE(other_value(m, mask, &of));
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
        PUT("\ns%zu-t%zu ::= ", rule, i); /* ... the same behind another one */
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

/* Others behind c members, `need` of them at least. */
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

/* Without a word about other members only an object of none of its own has them. */
static void find_others(members *m) {
    json_t *properties = json_object_get(m->p->schema, "properties"), *x;
    json_t *more = json_object_get(m->p->schema, "additionalProperties");
    const char *name;
    int64_t own = 0;
    json_object_foreach(properties, name, x) { own += !json_is_false(x); }
    more = more != NULL ? more : json_object_get(m->p->schema, "unevaluatedProperties");
    m->more = json_is_false(more) ? NULL : json_is_object(more) ? more : m->w->any;
    int open = more != NULL || m->listed != NULL || m->low > own || (own == 0 && m->n_like == 0);
    m->others = (m->more != NULL && open) || m->n_like > 0;
    m->others &= m->listed == NULL || json_array_size(m->listed) > 0;
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

gw_status gw_schema_put_object(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    members m = {.w = w, .p = p, .rule = rule};
    int whole;
    GW_TRY(check_words(p));
    GW_TRY(gw_schema_counts(w, p, "minProperties", "maxProperties", &m.low, &m.high));
    m.low = excludes_empty(p, &whole) && m.low == 0 ? 1 : m.low;
    if (!whole) {
        return gw_schema_refuse(p, "not");
    }
    GW_TRY(read_patterns(&m));
    GW_TRY(read_names(&m));
    find_others(&m);
    GW_TRY(list_members(&m));
    if (m.listed != NULL) {
        m.others = 0;
    }
    if (m.more != NULL && m.n_like > 0 &&
        json_object_get(p->schema, "additionalProperties") == NULL &&
        json_object_get(p->schema, "unevaluatedProperties") == NULL) {
        m.more = NULL; /* those of a pattern are enough */
    }
    int counts =
        m.low > (int64_t)m.n_required || (m.high >= 0 && (m.others || m.high < (int64_t)m.n));
    GW_TRY(counts ? put_counted(&m) : put_uncounted(&m));
    PUT("s%zu-object ::= \"{\" ws s%zu-h0 \"}\"\n", rule, rule);
    return GW_OK;
}
