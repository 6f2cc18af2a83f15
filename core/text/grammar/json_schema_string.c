/* core/text/grammar/json_schema_string.c - strings: which ones a schema allows, and automata as
 * rules; see json_schema_parts.h.
 *
 * A character has one spelling in a string: itself, or the shortest escape of JSON where it needs
 * one. Only where any character may stand every escape may stand too.
 */
#include <stdio.h>

#include "core/text/grammar/grammar.h"
#include "core/text/grammar/json_schema_parts.h"

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

enum { NAMED_ONLY = 0x100 }; /* sets of more characters leave controls without a short escape out */

/* ---- automata as rules ----------------------------------------------------------------------- */

static gw_status put_range(gw_bytes *out, uint32_t low, uint32_t high, int *some) {
    static const struct { uint32_t low, high; } barred[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    for (size_t i = 0; i < 3 && low <= high; i++) {
        if (low < barred[i].low) {
            uint32_t to = high < barred[i].low ? high : barred[i].low - 1;
            GW_TRY(gw_schema_put(out, "%s\\U%08X-\\U%08X", *some ? "" : "[", low, to));
            *some = 1;
            low = to + 1;
        }
        if (low <= high && low <= barred[i].high && low >= barred[i].low) {
            low = barred[i].high + 1;
        }
    }
    if (low <= high) {
        GW_TRY(gw_schema_put(out, "%s\\U%08X-\\U%08X", *some ? "" : "[", low, high));
        *some = 1;
    }
    return GW_OK;
}

static gw_status put_escape(gw_bytes *out, uint32_t c, int rare, const char **bar) {
    static const char controls[] = "\b\t\n\f\r", letters[] = "btnfr";
    const char *found = c != 0 && c < 0x20 ? strchr(controls, (int)c) : NULL;
    if (found != NULL) {
        GW_TRY(gw_schema_put(out, "%s \"\\\\%c\"", *bar, letters[found - controls]));
    } else if (c >= 0x20) {
        GW_TRY(gw_schema_put(out, "%s \"\\\\\\%c\"", *bar, (int)c));
    } else if (rare) {
        GW_TRY(gw_schema_put(out, "%s \"\\\\u%04x\"", *bar, c));
    } else {
        return GW_OK;
    }
    *bar = " |";
    return GW_OK;
}

/* What a set of characters looks like in a string. */
static gw_status put_class(gw_bytes *out, const gw_dfa_edge *list, size_t n, int in_string) {
    int some = 0;
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += list[i].high - list[i].low + 1;
        if (in_string == 1) {
            GW_TRY(put_range(out, list[i].low, list[i].high, &some));
        } else if (in_string == 2) {
            GW_TRY(gw_schema_put(out, "%s\\U%08X-\\U%08X", i == 0 ? "[" : "", list[i].low,
                                 list[i].high));
            some = 1;
        } else {
            GW_TRY(gw_schema_put(out, "%s%c-%c", i == 0 ? "[" : "", (int)list[i].low,
                                 (int)list[i].high));
            some = 1;
        }
    }
    const char *bar = some ? "] |" : "";
    for (size_t i = 0; i < n && in_string == 1; i++) {
        for (uint32_t c = list[i].low; c <= list[i].high && c <= '\\'; c++) {
            if (c < 0x20 || c == '"' || c == '\\') {
                GW_TRY(put_escape(out, c, count <= NAMED_ONLY, &bar));
            }
        }
    }
    return gw_schema_put(out, "%s\n", bar[0] == ']' ? "]" : "");
}

static int is_everything(const gw_dfa_edge *list, size_t n) {
    return n == 2 && list[0].low == 0 && list[1].high == GW_CHAR_MAX && list[0].high == 0xD7FF &&
           list[1].low == 0xE000;
}

/* The name of the rule of a set; equal sets have one. */
static gw_status name_class(gw_schema_work *w, const gw_dfa_edge *list, size_t n, int in_string,
                            char name[24]) {
    size_t number = gw_map_count(w->classes), known, words = 2 * n + 1;
    if (in_string == 1 && is_everything(list, n)) {
        snprintf(name, 24, "char");
        return GW_OK;
    }
    uint32_t *key = gw_arena_array(w->arena, words, sizeof *key);
    if (key == NULL) {
        return gw_schema_no_memory();
    }
    key[0] = (uint32_t)in_string;
    for (size_t i = 0; i < n; i++) {
        key[2 * i + 1] = list[i].low;
        key[2 * i + 2] = list[i].high;
    }
    gw_map_result result = gw_map_add(w->classes, key, words * sizeof *key, number, &known);
    if (result == GW_MAP_NOMEM) {
        return gw_schema_no_memory();
    }
    snprintf(name, 24, "c%zu", result == GW_MAP_ADDED ? number : known);
    if (result == GW_MAP_ADDED) {
        GW_TRY(gw_schema_put(&w->class_rules, "%s ::= ", name));
        GW_TRY(put_class(&w->class_rules, list, n, in_string));
    }
    return GW_OK;
}

gw_status gw_schema_put_dfa(gw_schema_work *w, size_t rule, const char *tag, const gw_dfa *d,
                            int in_string, const char *end) {
    gw_dfa_edge *list = gw_arena_array(w->arena, d->first[d->n] + 1, sizeof *list);
    uint8_t *done = gw_arena_alloc(w->arena, d->first[d->n] + 1);
    if (list == NULL || done == NULL) {
        return gw_schema_no_memory();
    }
    for (uint32_t s = 0; s < d->n; s++) {
        const char *bar = "";
        PUT("s%zu-%s%u ::= ", rule, tag, s);
        for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
            size_t n = 0;
            char name[24];
            for (uint32_t k = e; k < d->first[s + 1] && !done[e]; k++) {
                if (!done[k] && d->edges[k].to == d->edges[e].to) {
                    done[k] = (uint8_t)(k > e);
                    list[n++] = d->edges[k];
                }
            }
            if (n == 0) {
                continue;
            }
            GW_TRY(name_class(w, list, n, in_string, name));
            PUT("%s%s s%zu-%s%u", bar, name, rule, tag, d->edges[e].to);
            bar = " | ";
        }
        PUT("%s%s\n", d->accepts[s] ? bar : "", d->accepts[s] ? end : "");
    }
    return GW_OK;
}

/* ---- what the schema says -------------------------------------------------------------------- */

static gw_status add(gw_schema_work *w, const char *where, const gw_dfa *one, gw_dfa_op op,
                     gw_schema_strings *out) {
    if (!out->limited) {
        GW_TRY(gw_dfa_any(w->arena, &out->dfa));
        out->limited = 1;
    }
    return gw_dfa_combine(w->arena, where, &out->dfa, one, op, &out->dfa);
}

static gw_status add_patterns(gw_schema_work *w, const gw_schema_part *p, gw_schema_strings *out) {
    json_t *list = json_object_get(p->schema, "pattern");
    size_t n = json_is_array(list) ? json_array_size(list) : list != NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_is_array(list) ? json_array_get(list, i) : list;
        gw_dfa one;
        if (!json_is_string(text)) {
            return gw_schema_wrong(p, "pattern", "a text");
        }
        GW_TRY(gw_dfa_pattern(w->arena, gw_schema_beneath(w, p->where, "pattern", NULL),
                              json_string_value(text), json_string_length(text), 0, &one));
        GW_TRY(add(w, p->where, &one, GW_DFA_AND, out));
    }
    return GW_OK;
}

/* A format that is not one of the standard's is a note. */
static gw_status add_formats(gw_schema_work *w, const gw_schema_part *p, gw_schema_strings *out) {
    json_t *list = json_object_get(p->schema, "format");
    size_t n = json_is_array(list) ? json_array_size(list) : list != NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_array(list) ? json_array_get(list, i) : list);
        gw_dfa one;
        if (name == NULL) {
            return gw_schema_wrong(p, "format", "a text");
        }
        const char *text = gw_schema_format(name);
        if (text != NULL) {
            GW_TRY(gw_dfa_pattern(w->arena, p->where, text, strlen(text), 0, &one));
            GW_TRY(add(w, p->where, &one, GW_DFA_AND, out));
        }
    }
    return GW_OK;
}

/* Texts that "not" lists: all at once, but for those with a character 0. */
static gw_status leave_texts_out(gw_schema_work *w, const gw_schema_part *p,
                                 gw_schema_strings *out) {
    const json_t *value;
    size_t n = 0, most = 0;
    gw_dfa one;
    while (gw_schema_excluded(p, most) != NULL) {
        most++;
    }
    const char **texts = gw_arena_array(w->arena, most + 1, sizeof *texts);
    if (texts == NULL) {
        return gw_schema_no_memory();
    }
    for (size_t i = 0; i < most; i++) {
        value = gw_schema_excluded(p, i);
        const char *text = json_string_value(value);
        if (text != NULL && strlen(text) == json_string_length(value)) {
            texts[n++] = text;
        } else if (text != NULL) {
            GW_TRY(gw_dfa_text(w->arena, p->where, text, json_string_length(value), &one));
            GW_TRY(add(w, p->where, &one, GW_DFA_MINUS, out));
        }
    }
    if (n == 0) {
        return GW_OK;
    }
    GW_TRY(gw_dfa_texts(w->arena, p->where, texts, n, &one));
    return add(w, p->where, &one, GW_DFA_MINUS, out);
}

static gw_status leave_out(gw_schema_work *w, const gw_schema_part *p, gw_schema_strings *out) {
    const char *text;
    gw_dfa one;
    GW_TRY(leave_texts_out(w, p, out));
    for (size_t i = 0; (text = gw_schema_unlike(p, i)) != NULL; i++) {
        GW_TRY(gw_dfa_pattern(w->arena, gw_schema_beneath(w, p->where, "not", NULL), text,
                              strlen(text), 1, &one));
        GW_TRY(add(w, p->where, &one, GW_DFA_MINUS, out));
    }
    return GW_OK;
}

/* Lengths where the rest is an automaton: strings beyond what that can count are not written. */
static gw_status add_lengths(gw_schema_work *w, const gw_schema_part *p, gw_schema_strings *out) {
    int64_t low = out->low, high = out->high;
    if (low == 0 && high < 0) {
        return GW_OK;
    }
    if (high >= GW_DFA_STATES) {
        high = low >= GW_DFA_STATES ? low : GW_DFA_STATES - 1;
    }
    for (;;) {
        gw_dfa lengths, both;
        gw_status status = gw_dfa_lengths(w->arena, p->where, low, high, &lengths);
        if (status == GW_OK) {
            status = gw_dfa_combine(w->arena, p->where, &out->dfa, &lengths, GW_DFA_AND, &both);
        }
        if (status != GW_E_LIMIT || high <= low) {
            out->dfa = status == GW_OK ? both : out->dfa;
            return status;
        }
        high = low + (high - low) / 2;
    }
}

gw_status gw_schema_read_strings(gw_schema_work *w, const gw_schema_part *p,
                                 gw_schema_strings *out) {
    *out = (gw_schema_strings){0};
    GW_TRY(gw_schema_counts(w, p, "minLength", "maxLength", &out->low, &out->high));
    GW_TRY(add_patterns(w, p, out));
    GW_TRY(add_formats(w, p, out));
    GW_TRY(leave_out(w, p, out));
    if (out->limited) {
        GW_TRY(add_lengths(w, p, out));
        if (gw_dfa_is_empty(&out->dfa)) {
            return gw_schema_contradiction(w, p->where,
                                           "no text is as long, and like its pattern and format");
        }
    }
    return GW_OK;
}

gw_status gw_schema_put_string(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    gw_schema_strings s;
    GW_TRY(gw_schema_read_strings(w, p, &s));
    if (s.limited) {
        char term[GW_SCHEMA_TERM];
        GW_TRY(gw_schema_put_text(w, p->where, rule, "q", &s.dfa, 0, term));
        PUT("s%zu-string ::= %s\n", rule, term);
        return GW_OK;
    }
    PUT("s%zu-string ::= ", rule);
    GW_TRY(gw_schema_put_lengths(w, s.low, s.high));
    PUT("\n");
    return GW_OK;
}
