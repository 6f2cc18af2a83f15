/* core/base/json.c - jansson's errors in our classes; typed getters. */
#include "core/base/json.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"

static gw_status class_of(enum json_error_code code) {
    switch (code) {
    case json_error_out_of_memory:
        return GW_E_NOMEM;
    case json_error_stack_overflow:
        return GW_E_LIMIT;
    case json_error_numeric_overflow:
        return GW_E_OVERFLOW;
    case json_error_duplicate_key:
        return GW_E_DUPLICATE;
    case json_error_invalid_utf8:
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return GW_E_ENCODING;
    default:
        return GW_E_SYNTAX;
    }
}

static gw_status parse(const char *where, const void *text, size_t n, size_t flags, json_t **out) {
    if (!gw_text_is_utf8(text, n)) {
        return gw_fail(GW_E_ENCODING, where, "the JSON text is not UTF-8");
    }
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES | flags, &error);
    enum json_error_code code = root == NULL ? json_error_code(&error) : json_error_unknown;
    if (code == json_error_null_character || code == json_error_null_byte_in_key) {
        return gw_fail(GW_E_ENCODING, where, "JSON, line %d column %d: \\u0000 is not supported%s",
                       error.line, error.column,
                       code == json_error_null_byte_in_key ? " in the name of a member" : "");
    }
    if (root == NULL) {
        return gw_fail(class_of(code), where, "JSON, line %d column %d: %s", error.line,
                       error.column, error.text);
    }
    *out = root;
    return GW_OK;
}

gw_status gw_json_parse(const char *where, const void *text, size_t n, json_t **out) {
    return parse(where, text, n, 0, out);
}

gw_status gw_json_parse_nul(const char *where, const void *text, size_t n, json_t **out) {
    return parse(where, text, n, JSON_ALLOW_NUL, out);
}

gw_status gw_json_parse_reals(const char *where, const void *text, size_t n, json_t **out) {
    return parse(where, text, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY, out);
}

/* ---- settings ------------------------------------------------------------------------------- */

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int beyond_64_bits(const char *digits, size_t n, int negative) {
    const char *last = negative ? "9223372036854775808" : "9223372036854775807";
    return n == strlen(last) ? memcmp(digits, last, n) > 0 : n > strlen(last);
}

/* Puts the last bytes of a text between front and end; the new length. */
static size_t enclose(char *text, size_t used, size_t last, const char *front, const char *end) {
    size_t before = strlen(front), after = strlen(end);
    memmove(text + used - last + before, text + used - last, last);
    memcpy(text + used - last, front, before);
    memcpy(text + used + before, end, after);
    return used + before + after;
}

char *gw_json_widen(const char *text, size_t n, const char *front, const char *end_of_wide,
                    size_t *n_out) {
    enum { DIGITS = 18 };
    size_t used = 0, in_string = 0, more = strlen(front) + strlen(end_of_wide);
    char *out = malloc(n + more * (n / DIGITS) + 1);
    for (size_t i = 0; i < n && out != NULL;) {
        size_t end = i + 1;
        int whole = 0;
        if (in_string) {
            end += text[i] == '\\' && end < n;
            in_string = text[i] != '"';
        } else if (is_digit(text[i])) {
            whole = 1;
            while (end < n && (is_digit(text[end]) || memchr(".eE+-", text[end], 5) != NULL)) {
                whole = whole && is_digit(text[end]);
                end++;
            }
        } else {
            in_string = text[i] == '"';
        }
        memcpy(out + used, text + i, end - i);
        used += end - i;
        size_t sign = i > 0 && text[i - 1] == '-';
        if (whole && beyond_64_bits(text + i, end - i, (int)sign)) {
            used = enclose(out, used, end - i + sign, front, end_of_wide);
        }
        i = end;
    }
    *n_out = used;
    return out;
}

gw_status gw_json_parse_settings(const char *where, const void *text, size_t n, json_t **out) {
    gw_status status = gw_json_parse(where, text, n, out);
    if (status != GW_E_OVERFLOW) {
        return status;
    }
    size_t n_wide = 0;
    char *wide = gw_json_widen(text, n, "", ".0", &n_wide);
    if (wide == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for a JSON text");
    }
    status = gw_json_parse(where, wide, n_wide, out);
    free(wide);
    return status;
}

/* ---- members -------------------------------------------------------------------------------- */

int gw_json_has(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return v != NULL && !json_is_null(v);
}

static gw_status wrong(const char *where, const char *key, const char *want) {
    return gw_fail(GW_E_TYPE, where, "\"%s\" must be %s", key, want);
}

gw_status gw_json_int(const char *where, const json_t *object, const char *key, int64_t *out) {
    if (!gw_json_has(object, key)) {
        return GW_OK;
    }
    const json_t *v = json_object_get(object, key);
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return GW_OK;
    }
    double real = json_is_real(v) ? json_real_value(v) : 0.5; /* 8.0 is an integer to Python */
    if (!(real >= -0x1p53 && real <= 0x1p53) || (double)(int64_t)real != real) {
        return wrong(where, key, "an integer");
    }
    *out = (int64_t)real;
    return GW_OK;
}

gw_status gw_json_real(const char *where, const json_t *object, const char *key, double *out) {
    if (!gw_json_has(object, key)) {
        return GW_OK;
    }
    const json_t *v = json_object_get(object, key);
    if (!json_is_number(v)) {
        return wrong(where, key, "a number");
    }
    *out = json_number_value(v);
    return GW_OK;
}

gw_status gw_json_bool(const char *where, const json_t *object, const char *key, int *out) {
    if (!gw_json_has(object, key)) {
        return GW_OK;
    }
    const json_t *v = json_object_get(object, key);
    if (!json_is_boolean(v)) {
        return wrong(where, key, "true or false");
    }
    *out = json_is_true(v);
    return GW_OK;
}

gw_status gw_json_text(const char *where, const json_t *object, const char *key, const char **out) {
    if (!gw_json_has(object, key)) {
        return GW_OK;
    }
    const json_t *v = json_object_get(object, key);
    if (!json_is_string(v)) {
        return wrong(where, key, "a string");
    }
    *out = json_string_value(v);
    return GW_OK;
}

gw_status gw_json_object(const char *where, const json_t *object, const char *key, json_t **out) {
    if (!gw_json_has(object, key)) {
        return GW_OK;
    }
    json_t *v = json_object_get(object, key);
    if (!json_is_object(v)) {
        return wrong(where, key, "an object");
    }
    *out = v;
    return GW_OK;
}

gw_status gw_json_array(const char *where, const json_t *object, const char *key, json_t **out) {
    if (!gw_json_has(object, key)) {
        return GW_OK;
    }
    json_t *v = json_object_get(object, key);
    if (!json_is_array(v)) {
        return wrong(where, key, "an array");
    }
    *out = v;
    return GW_OK;
}
