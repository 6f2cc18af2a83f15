/* core/text/grammar/json_schema_notation.c - values in the notation that is asked for: JSON, JSON
 * or Python, or Gemma's; see json_schema_parts.h.
 *
 *   JSON    {"a": "text", "b": [true, null]}
 *   Python  the same, or {'a': 'text', 'b': [True, None]}
 *   Gemma   {a:<|"|>text<|"|>,b:[true,None]}, where <|"|> may be a token
 */
#include <stdio.h>
#include <string.h>

#include "core/text/grammar/json_schema_parts.h"

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

enum { QUOTE = 1 }; /* in a value of Gemma's notation that is written: a quote stands here */

static int is_gemma(const gw_schema_work *w) {
    return (w->notation & (GW_JSON_GEMMA | GW_JSON_GEMMA_TOKEN)) != 0;
}

static int is_python(const gw_schema_work *w) { return (w->notation & GW_JSON_PYTHON) != 0; }

/* The quote of Gemma as a term. */
static const char *gemma_quote(const gw_schema_work *w) {
    return w->notation & GW_JSON_GEMMA_TOKEN ? "@\"<|\\\"|>\"" : "\"<|\\\"|>\"";
}

/* ---- what all schemas share ------------------------------------------------------------------ */

static const char common[] =
    "hex ::= [0-9a-fA-F]\n"
    "integer ::= \"0\" | \"-\"? [1-9] [0-9]{0,15}\n"
    "number ::= \"-\"? ( \"0\" | [1-9] [0-9]{0,15} ) ( \".\" [0-9]{1,16} )? "
    "( [eE] [-+]? [0-9]{1,2} )?\n"
    "array ::= \"[\" ws ( value ws ( \",\" ws value ws )* )? \"]\"\n"
    "object ::= \"{\" ws ( member ( \",\" ws member )* )? \"}\"\n"
    "value ::= object | array | string | number | boolean | null\n"
    "plain ::= [^\"\\\\\\x00-\\x1F\\x7F]\n"
    "char ::= plain | \"\\\\\" ( [\"\\\\/bfnrt] | \"u\" ( [0-9a-cefA-CEF] hex{3} | [dD] [0-7] "
    "hex{2} "
    "| [dD] [89abAB] hex{2} \"\\\\u\" [dD] [c-fC-F] hex{2} ) )\n";

static const char of_json[] = "ws ::= \"\" | \" \" | \"\\n\" [ \\t]{0,20}\n"
                              "string ::= \"\\\"\" char* \"\\\"\"\n"
                              "member ::= string \":\" ws value ws\n";

static const char of_python[] = "ws ::= \"\" | \" \" | \"\\n\" [ \\t]{0,20}\n"
                                "single ::= [^'\\\\\\x00-\\x1F\\x7F] | \"\\\\\" [\\\\'nrt]\n"
                                "string ::= \"\\\"\" char* \"\\\"\" | \"'\" single* \"'\"\n"
                                "member ::= string \":\" ws value ws\n";

/* A text has no quote inside: "<" is not followed by a bar. */
static const char of_gemma[] = "ws ::= \"\"\n"
                               "bare ::= [^<\\x00-\\x08\\x0B-\\x1F\\x7F]\n"
                               "member ::= [a-zA-Z_] [a-zA-Z0-9_-]{0,40} \":\" value\n";

gw_status gw_schema_put_standard(gw_schema_work *w) {
    GW_TRY(gw_bytes_add(&w->out, common, sizeof common - 1));
    if (is_gemma(w)) {
        PUT("string ::= %s ( bare | \"<\" [^<|\\x00-\\x08\\x0B-\\x1F\\x7F] )* %s\n", gemma_quote(w),
            gemma_quote(w));
        GW_TRY(gw_bytes_add(&w->out, of_gemma, sizeof of_gemma - 1));
    } else {
        GW_TRY(is_python(w) ? gw_bytes_add(&w->out, of_python, sizeof of_python - 1)
                            : gw_bytes_add(&w->out, of_json, sizeof of_json - 1));
    }
    PUT("boolean ::= %s | %s\n", gw_schema_word(w, 0), gw_schema_word(w, 1));
    PUT("null ::= %s\n", gw_schema_word(w, 2));
    return GW_OK;
}

const char *gw_schema_word(const gw_schema_work *w, unsigned i) {
    static const char *const json[] = {"\"true\"", "\"false\"", "\"null\""};
    static const char *const python[] = {"\"true\" | \"True\"", "\"false\" | \"False\"",
                                         "\"null\" | \"None\""};
    return is_python(w) || (is_gemma(w) && i == 2) ? python[i] : json[i];
}

/* ---- texts ----------------------------------------------------------------------------------- */

static gw_status leave_out(gw_schema_work *w, const char *where, const char *pattern, gw_dfa *d) {
    gw_dfa one;
    GW_TRY(gw_dfa_pattern(w->arena, where, pattern, strlen(pattern), 1, &one));
    return gw_dfa_combine(w->arena, where, d, &one, GW_DFA_MINUS, d);
}

gw_status gw_schema_put_text(gw_schema_work *w, const char *where, size_t rule, const char *tag,
                             const gw_dfa *d, int key, char term[GW_SCHEMA_TERM]) {
    char other[60];
    gw_dfa plain = *d;
    if (is_gemma(w)) {
        const char *quote = key ? "\"\"" : gemma_quote(w);
        GW_TRY(key ? leave_out(w, where, "^$|[^a-zA-Z0-9_-]", &plain)
                   : leave_out(w, where, "<\\|\"\\|>|[\\x00-\\x08\\x0B-\\x1F\\x7F]", &plain));
        snprintf(term, GW_SCHEMA_TERM, "%s s%zu-%s0", quote, rule, tag);
        return gw_schema_put_dfa(w, rule, tag, &plain, 2, quote);
    }
    snprintf(term, GW_SCHEMA_TERM, "\"\\\"\" s%zu-%s0", rule, tag);
    GW_TRY(gw_schema_put_dfa(w, rule, tag, d, 1, "\"\\\"\""));
    if (!is_python(w)) {
        return GW_OK;
    }
    GW_TRY(leave_out(w, where, "['\\\\\\x00-\\x1F\\x7F]", &plain));
    if (gw_dfa_is_empty(&plain)) {
        return GW_OK;
    }
    snprintf(other, sizeof other, "y%s", tag);
    snprintf(term, GW_SCHEMA_TERM, "( \"\\\"\" s%zu-%s0 | \"'\" s%zu-%s0 )", rule, tag, rule,
             other);
    return gw_schema_put_dfa(w, rule, other, &plain, 2, "\"'\"");
}

gw_status gw_schema_put_lengths(gw_schema_work *w, int64_t low, int64_t high) {
    if (is_gemma(w)) {
        if (low == 0 && high < 0) {
            PUT("string");
            return GW_OK;
        }
        PUT("%s bare", gemma_quote(w));
        GW_TRY(gw_schema_put_counts(w, low, high));
        PUT(" %s", gemma_quote(w));
        return GW_OK;
    }
    PUT("\"\\\"\" char");
    GW_TRY(gw_schema_put_counts(w, low, high));
    PUT(" \"\\\"\"");
    if (is_python(w)) {
        PUT(" | \"'\" single");
        GW_TRY(gw_schema_put_counts(w, low, high));
        PUT(" \"'\"");
    }
    return GW_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static gw_status add_text(gw_bytes *out, const char *text) {
    return gw_bytes_add(out, text, strlen(text));
}

static int has_control(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F) {
            return 1;
        }
    }
    return 0;
}

/* other: in the notation beside JSON's. */
static gw_status write_text(const gw_schema_work *w, gw_bytes *out, const char *text, size_t n,
                            int other) {
    static const char quote = QUOTE;
    if (other && is_gemma(w)) {
        GW_TRY(gw_bytes_add(out, &quote, 1));
        GW_TRY(gw_bytes_add(out, text, n));
        return gw_bytes_add(out, &quote, 1);
    }
    if (other && memchr(text, '\'', n) == NULL && memchr(text, '\\', n) == NULL &&
        !has_control(text, n)) {
        GW_TRY(add_text(out, "'"));
        GW_TRY(gw_bytes_add(out, text, n));
        return add_text(out, "'");
    }
    json_t *value = json_stringn(text, n);
    char *written = json_dumps(value, JSON_ENCODE_ANY);
    json_decref(value);
    gw_status status = written != NULL ? add_text(out, written) : gw_schema_no_memory();
    free(written);
    return status;
}

static gw_status write_key(const gw_schema_work *w, gw_bytes *out, const char *key, int other) {
    if (other && is_gemma(w) && key[0] != '\0' && strpbrk(key, "{}[],:\"'<> \t\n\r") == NULL) {
        return add_text(out, key);
    }
    return write_text(w, out, key, strlen(key), other);
}

static gw_status write_value(gw_schema_work *w, gw_bytes *out, const json_t *value, int other) {
    const char *key, *comma = "";
    const char *between = other && is_python(w) ? ", " : ",";
    json_t *x;
    size_t i;
    if (json_is_number(value)) {
        return add_text(out, gw_schema_number(w, value));
    }
    if (json_is_string(value)) {
        return write_text(w, out, json_string_value(value), json_string_length(value), other);
    }
    if (json_is_boolean(value)) {
        int python = other && is_python(w), is = json_is_true(value);
        return add_text(out, python ? (is ? "True" : "False") : is ? "true" : "false");
    }
    if (json_is_null(value)) {
        return add_text(out, other ? "None" : "null");
    }
    GW_TRY(add_text(out, json_is_object(value) ? "{" : "["));
    json_object_foreach((json_t *)(uintptr_t)value, key, x) {
        GW_TRY(add_text(out, comma));
        GW_TRY(write_key(w, out, key, other));
        GW_TRY(add_text(out, other && is_python(w) ? ": " : ":"));
        GW_TRY(write_value(w, out, x, other));
        comma = between;
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, x) {
        GW_TRY(add_text(out, comma));
        GW_TRY(write_value(w, out, x, other));
        comma = between;
    }
    return add_text(out, json_is_object(value) ? "}" : "]");
}

/* Literals, with Gemma's quotes between them. */
static gw_status put_written(gw_schema_work *w, const gw_bytes *text) {
    const char *blank = "";
    for (size_t at = 0; at <= text->n;) {
        const char *quote = memchr(text->data + at, QUOTE, text->n - at);
        size_t n = (quote != NULL ? (size_t)(quote - text->data) : text->n) - at;
        if (n > 0 || (quote == NULL && blank[0] == '\0')) {
            PUT("%s", blank);
            GW_TRY(gw_schema_put_literal(&w->out, text->data + at, n));
            blank = " ";
        }
        if (quote == NULL) {
            break;
        }
        PUT("%s%s", blank, gemma_quote(w));
        blank = " ";
        at += n + 1;
    }
    return GW_OK;
}

static gw_status put_value(gw_schema_work *w, const json_t *value, int is_key) {
    gw_bytes json = {0}, other = {0};
    gw_status status = write_value(w, &json, value, 0);
    if (status == GW_OK && w->notation != 0) {
        status = is_key ? write_key(w, &other, json_string_value(value), 1)
                        : write_value(w, &other, value, 1);
    }
    int same = json.n == other.n && memcmp(json.data, other.data, json.n) == 0;
    if (status == GW_OK && (w->notation == 0 || (is_python(w) && same))) {
        status = gw_schema_put_literal(&w->out, json.data, json.n);
    } else if (status == GW_OK && is_gemma(w)) {
        status = put_written(w, &other);
    } else if (status == GW_OK) {
        status = gw_schema_put(&w->out, "( ");
        status = status == GW_OK ? gw_schema_put_literal(&w->out, json.data, json.n) : status;
        status = status == GW_OK ? gw_schema_put(&w->out, " | ") : status;
        status = status == GW_OK ? gw_schema_put_literal(&w->out, other.data, other.n) : status;
        status = status == GW_OK ? gw_schema_put(&w->out, " )") : status;
    }
    free(json.data);
    free(other.data);
    return status;
}

gw_status gw_schema_put_value(gw_schema_work *w, const json_t *value) {
    return put_value(w, value, 0);
}

gw_status gw_schema_put_key(gw_schema_work *w, const json_t *name) { return put_value(w, name, 1); }

gw_status gw_schema_write_value(gw_schema_work *w, const json_t *value, gw_bytes *all, size_t *ends,
                                size_t *n) {
    size_t begin = all->n, middle;
    GW_TRY(write_value(w, all, value, 0));
    ends[(*n)++] = middle = all->n;
    if (w->notation != 0) {
        GW_TRY(write_value(w, all, value, 1));
        int same = all->n - middle == middle - begin &&
                   memcmp(all->data + begin, all->data + middle, middle - begin) == 0;
        if (same) {
            all->n = middle;
        } else {
            ends[(*n)++] = all->n;
        }
    }
    return GW_OK;
}

int gw_schema_quotes_are_tokens(const gw_schema_work *w) { return is_gemma(w); }
