/* core/text/grammar/json_schema_rules.c - schemas as rules of a larger grammar, with strings in
 * their quotes or as they stand; see json_schema.h. */
#include "core/text/grammar/json_schema.h"

#include <stdio.h>

#include "core/text/grammar/json_schema_parts.h"

enum { RAW_DEPTH = 20, RAW_RULES = 1000000 }; /* numbers of rules that are no part's */

typedef struct raw_work {
    gw_schema_work *w;
    const char *end;
    int told, writes; /* the first time only types are collected */
    unsigned types;   /* of all that the value may be */
    size_t n_rules;
    gw_bytes text, other; /* alternatives */
} raw_work;

/* ---- names ----------------------------------------------------------------------------------- */

static int is_word(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Behind a literal or a class that begins here. */
static size_t skip_quoted(const char *text, size_t n, size_t at) {
    char end = text[at] == '"' ? '"' : ']';
    for (at++; at < n && text[at] != end; at++) {
        at += text[at] == '\\';
    }
    return at + 1;
}

static gw_status add_prefixed(gw_bytes *out, const char *text, size_t n, const char *prefix) {
    for (size_t at = 0; at < n;) {
        size_t from = at;
        if (text[at] == '"' || text[at] == '[') {
            at = skip_quoted(text, n, at);
        } else if (text[at] == '{') {
            while (text[at] != '}') {
                at++;
            }
        } else if (is_word(text[at])) {
            GW_TRY(gw_bytes_add(out, prefix, strlen(prefix)));
            while (at < n && is_word(text[at])) {
                at++;
            }
        } else {
            at++;
        }
        GW_TRY(gw_bytes_add(out, text + from, at - from));
    }
    return GW_OK;
}

/* ---- strings as they stand ------------------------------------------------------------------- */

static gw_status add_alternative(gw_bytes *list, const char *rule) {
    GW_TRY(list->n > 0 ? gw_bytes_add(list, " | ", 3) : GW_OK);
    return gw_bytes_add(list, rule, strlen(rule));
}

static gw_status leave_out(raw_work *r, const gw_schema_part *p, const char *pattern, gw_dfa *dfa) {
    gw_dfa one;
    GW_TRY(gw_dfa_pattern(r->w->arena, p->where, pattern, strlen(pattern), 1, &one));
    return gw_dfa_combine(r->w->arena, p->where, dfa, &one, GW_DFA_MINUS, dfa);
}

/* What stands for itself in a pattern. */
static gw_status leave_out_text(raw_work *r, const gw_schema_part *p, gw_dfa *dfa) {
    gw_bytes pattern = {0};
    gw_status status = GW_OK;
    for (const char *at = r->end; *at != '\0'; at++) {
        if (strchr("\\^$.*+?()[]{}|/", *at) != NULL) {
            GW_TRY_DONE(gw_bytes_add(&pattern, "\\", 1));
        }
        GW_TRY_DONE(gw_bytes_add(&pattern, at, 1));
    }
    GW_TRY_DONE(gw_bytes_add(&pattern, "", 1));
    status = leave_out(r, p, pattern.data, dfa);
done:
    free(pattern.data);
    return status;
}

/* What a reader could take for a value of one of the other types. */
static gw_status leave_out_others(raw_work *r, const gw_schema_part *p, gw_dfa *dfa) {
    static const struct {
        unsigned types;
        const char *pattern;
    } likes[] = {{1u << GW_OBJECT, "^\\{"},
                 {1u << GW_ARRAY, "^[\\[(]"},
                 {1u << GW_INTEGER | 1u << GW_NUMBER, "^[-+.0-9]"},
                 {1u << GW_BOOLEAN, "^([Tt]rue|[Ff]alse)\\s*$"},
                 {1u << GW_NULL, "^(null|None)\\s*$"}};
    if (r->told || (r->types & ~(1u << GW_STRING)) == 0) {
        return GW_OK;
    }
    for (size_t i = 0; i < sizeof likes / sizeof likes[0]; i++) {
        GW_TRY(r->types & likes[i].types ? leave_out(r, p, likes[i].pattern, dfa) : GW_OK);
    }
    return leave_out(r, p, "^\\s", dfa);
}

static gw_status put_text(raw_work *r, const gw_schema_part *p) {
    gw_schema_strings s;
    gw_dfa lengths;
    char name[48];
    GW_TRY(gw_schema_read_strings(r->w, p, &s));
    if (!s.limited) {
        int64_t high = s.high >= GW_DFA_STATES ? GW_DFA_STATES - 1 : s.high;
        GW_TRY(gw_dfa_any(r->w->arena, &s.dfa));
        if (s.low > 0 || s.high >= 0) {
            GW_TRY(gw_dfa_lengths(r->w->arena, p->where, s.low, high, &lengths));
            s.dfa = lengths;
        }
    }
    GW_TRY(r->end[0] != '\0' ? leave_out_text(r, p, &s.dfa) : GW_OK);
    GW_TRY(
        leave_out(r, p, "[\\x00-\\x08\\x0B\\x0C\\x0E-\\x1F\\x7F]", &s.dfa)); /* no text has them */
    GW_TRY(leave_out_others(r, p, &s.dfa));
    if (gw_dfa_is_empty(&s.dfa)) {
        return GW_OK;
    }
    size_t rule = RAW_RULES + r->n_rules++;
    snprintf(name, sizeof name, "s%zu-w0", rule);
    GW_TRY(add_alternative(&r->text, name));
    return gw_schema_put_dfa(r->w, rule, "w", &s.dfa, 2, "\"\"");
}

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct raw_list { /* texts one after the other, and where each ends */
    gw_bytes all;
    size_t *ends, n;
} raw_list;

/* One value into the list of its kind; where nothing is written yet, its type. */
static gw_status take_value(raw_work *r, const json_t *value, raw_list *texts, raw_list *others) {
    const char *text = json_string_value(value);
    if (!r->writes) {
        r->types |= gw_schema_type_of(r->w, value);
        return GW_OK;
    }
    if (text == NULL) {
        return gw_schema_write_value(r->w, value, &others->all, others->ends, &others->n);
    }
    if (r->end[0] != '\0' && strstr(text, r->end) != NULL) {
        return GW_OK; /* cannot be written */
    }
    GW_TRY(gw_bytes_add(&texts->all, text, json_string_length(value)));
    texts->ends[texts->n++] = texts->all.n;
    return GW_OK;
}

static gw_status put_list(raw_work *r, const raw_list *list, gw_bytes *alternatives) {
    char name[48];
    if (list->n == 0) {
        return GW_OK;
    }
    size_t rule = RAW_RULES + r->n_rules++;
    snprintf(name, sizeof name, "s%zu", rule);
    GW_TRY(gw_schema_put_texts(r->w, rule, &list->all, list->ends, list->n));
    return add_alternative(alternatives, name);
}

/* Where quotes are tokens values that are no text are no plain texts either. */
static gw_status put_tokens_value(raw_work *r, const json_t *value) {
    char name[48];
    size_t rule = RAW_RULES + r->n_rules++;
    snprintf(name, sizeof name, "s%zu-v", rule);
    GW_TRY(gw_schema_put(&r->w->out, "%s ::= ", name));
    GW_TRY(gw_schema_put_value(r->w, value));
    GW_TRY(gw_schema_put(&r->w->out, "\n"));
    return add_alternative(&r->other, name);
}

static gw_status put_listed_values(raw_work *r, const gw_schema_part *p, const json_t *list) {
    size_t n = json_array_size(list);
    raw_list texts = {.ends = malloc((n + 1) * sizeof *texts.ends)};
    raw_list others = {.ends = malloc((2 * n + 1) * sizeof *others.ends)};
    gw_schema_judge j = {0};
    gw_status status;
    if (texts.ends == NULL || others.ends == NULL) {
        GW_TRY_DONE(gw_schema_no_memory());
    }
    GW_TRY_DONE(gw_schema_judge_open(r->w, p->schema, p->where, &j));
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        int is = 0;
        GW_TRY_DONE(gw_schema_judge_value(&j, value, &is));
        if (is && r->writes && !json_is_string(value) && gw_schema_quotes_are_tokens(r->w)) {
            GW_TRY_DONE(put_tokens_value(r, value));
        } else if (is) {
            GW_TRY_DONE(take_value(r, value, &texts, &others));
        }
    }
    GW_TRY_DONE(put_list(r, &texts, &r->text));
    status = put_list(r, &others, &r->other);
done:
    gw_schema_judge_close(&j);
    free(texts.all.data);
    free(texts.ends);
    free(others.all.data);
    free(others.ends);
    return status;
}

static gw_status put_others(raw_work *r, const gw_schema_part *p, unsigned types) {
    json_t *schema = json_copy(p->schema), *list = json_array();
    char name[48];
    size_t rule;
    GW_TRY(gw_schema_keep(r->w, schema));
    if (list == NULL) {
        return gw_schema_no_memory();
    }
    for (int t = 0; t < GW_TYPES; t++) {
        if (types >> t & 1 && t != GW_STRING) {
            json_array_append_new(list, json_string(gw_schema_types[t]));
        }
    }
    json_object_set_new(schema, "type", list);
    GW_TRY(gw_schema_rule(r->w, schema, p->where, &rule));
    snprintf(name, sizeof name, "s%zu", rule);
    GW_TRY(add_alternative(&r->other, name));
    if (r->told || r->w->notation != 0 || gw_schema_excluded(p, 0) != NULL) {
        return GW_OK;
    }
    /* as Python prints them: models that were shown such values write them */
    GW_TRY(types >> GW_BOOLEAN & 1 ? add_alternative(&r->other, "\"True\" | \"False\"") : GW_OK);
    return types >> GW_NULL & 1 ? add_alternative(&r->other, "\"None\"") : GW_OK;
}

static gw_status put_raw(raw_work *r, json_t *schema, const char *where, int depth) {
    gw_schema_part p = {schema, where};
    unsigned types;
    size_t i, n, *rules;
    if (depth > RAW_DEPTH) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: choices inside of choices", where);
    }
    GW_TRY(gw_schema_flatten(r->w, &p, &p.schema));
    GW_TRY(gw_schema_keep(r->w, p.schema));
    if (json_object_get(p.schema, "anyOf") != NULL || json_object_get(p.schema, "oneOf") != NULL) {
        GW_TRY(gw_schema_branches(r->w, &p, &rules, &n));
        for (i = 0; i < n; i++) {
            gw_schema_part one = r->w->parts[rules[i]];
            gw_status status = put_raw(r, one.schema, one.where, depth + 1);
            if (status != GW_OK && !(status == GW_E_METADATA && r->w->contradicted)) {
                return status;
            }
            r->w->contradicted = 0; /* no value is of this branch */
        }
        return GW_OK;
    }
    json_t *only = json_object_get(p.schema, "const"), *listed = json_object_get(p.schema, "enum");
    if (only != NULL || listed != NULL) {
        if (listed != NULL && !json_is_array(listed)) {
            return gw_schema_wrong(&p, "enum", "a list of values");
        }
        json_t *all = listed != NULL ? json_incref(listed) : json_pack("[O]", only);
        gw_status status = put_listed_values(r, &p, all);
        json_decref(all);
        return status;
    }
    GW_TRY(gw_schema_types_of(r->w, &p, &types));
    types = types != 0 ? types : (1u << GW_TYPES) - 1;
    if (!r->writes) {
        r->types |= types;
        return GW_OK;
    }
    GW_TRY(types >> GW_STRING & 1 ? put_text(r, &p) : GW_OK);
    types &= ~(1u << GW_STRING);
    return types != 0 ? put_others(r, &p, types) : GW_OK;
}

/* "root" of both, and each alone. */
static gw_status put_roots(raw_work *r, int *kinds) {
    gw_bytes *out = &r->w->out;
    if (r->text.n + r->other.n == 0) {
        return gw_fail(GW_E_METADATA, GW_SCHEMA, "no value can be written");
    }
    *kinds = (r->text.n > 0 ? GW_JSON_TEXT : 0) | (r->other.n > 0 ? GW_JSON_OTHER : 0);
    GW_TRY(gw_schema_put(out, "root ::= %s%s%s\n", r->text.n > 0 ? "text" : "",
                         *kinds == (GW_JSON_TEXT | GW_JSON_OTHER) ? " | " : "",
                         r->other.n > 0 ? "other" : ""));
    const gw_bytes *lists[2] = {&r->text, &r->other};
    for (int i = 0; i < 2; i++) {
        if (lists[i]->n > 0) {
            GW_TRY(gw_schema_put(out, i == 0 ? "text ::= " : "other ::= "));
            GW_TRY(gw_bytes_add(out, lists[i]->data, lists[i]->n));
            GW_TRY(gw_schema_put(out, "\n"));
        }
    }
    return GW_OK;
}

static gw_status write_raw(gw_schema_work *w, json_t *schema, const char *where,
                           const char *raw_end, int told, int *kinds) {
    raw_work r = {.w = w, .end = raw_end, .told = told};
    gw_status status;
    GW_TRY_DONE(put_raw(&r, schema, where, 0));
    r.writes = 1;
    GW_TRY_DONE(put_raw(&r, schema, where, 0));
    status = put_roots(&r, kinds);
done:
    free(r.text.data);
    free(r.other.data);
    return status;
}

gw_status gw_json_schema_rules(const char *text, size_t n, const char *pointer, const char *prefix,
                               const char *raw_end, int how, gw_bytes *out, int *kinds) {
    gw_schema_work work, *w = &work;
    gw_status status;
    size_t rule, before = out->n;
    json_t *schema = NULL, *reference = json_pack("{s:s}", "$ref", pointer);
    gw_schema_part start = {reference, "#"};
    GW_TRY_DONE(gw_schema_open(w, text, n, how & ~GW_JSON_TOLD));
    if (reference == NULL) {
        GW_TRY_DONE(gw_schema_no_memory());
    }
    GW_TRY_DONE(gw_schema_target(w, &start, &schema));
    if (raw_end == NULL) {
        GW_TRY_DONE(gw_schema_rule(w, schema, pointer, &rule));
        GW_TRY_DONE(gw_schema_put(&w->out, "root ::= s%zu\n", rule));
    } else {
        GW_TRY_DONE(write_raw(w, schema, pointer, raw_end, how & GW_JSON_TOLD, kinds));
    }
    GW_TRY_DONE(gw_schema_finish(w));
    status = add_prefixed(out, w->out.data, w->out.n, prefix);
done:
    if (status != GW_OK) {
        out->n = before;
    }
    gw_schema_close(w);
    json_decref(reference);
    return status;
}
