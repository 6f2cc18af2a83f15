/* core/text/answer/answer_literal.c - values as JSON, Python and Gemma 4 write them, as JSON; see
 * answer_scan.h. Numbers keep the digits they have. */
#include "core/text/answer/answer_scan.h"
#include "core/text/utf8.h"

enum { DEPTH = 200 };

typedef struct literal {
    const char *at, *end;
    gw_bytes *out;
    int depth, gemma;
    int wrong; /* it is none */
} literal;

static const char quote[] = "<|\"|>"; /* of Gemma 4 */

/* ---- strings --------------------------------------------------------------------------------- */

gw_status gw_json_string_add(gw_bytes *out, const char *text, size_t n, int quotes) {
    static const char hex[] = "0123456789abcdef", controls[] = "\b\t\n\f\r", letters[] = "btnfr";
    GW_TRY(quotes ? gw_bytes_add(out, "\"", 1) : GW_OK);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        const char *known = c != 0 && c < 0x20 ? strchr(controls, c) : NULL;
        if (c == '"' || c == '\\') {
            GW_TRY(gw_bytes_add(out, "\\", 1));
            GW_TRY(gw_bytes_add(out, text + i, 1));
        } else if (known != NULL) {
            GW_TRY(gw_bytes_add(out, "\\", 1));
            GW_TRY(gw_bytes_add(out, letters + (known - controls), 1));
        } else if (c < 0x20) {
            char escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            GW_TRY(gw_bytes_add(out, escape, 6));
        } else {
            GW_TRY(gw_bytes_add(out, text + i, 1));
        }
    }
    return quotes ? gw_bytes_add(out, "\"", 1) : GW_OK;
}

static int hex_digits(const char *at, const char *end, int n, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < n; i++) {
        int c = at + i < end ? (unsigned char)at[i] : 0;
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) {
            return 0;
        }
        *out = *out << 4 | (uint32_t)d;
    }
    return 1;
}

/* \x41, é, \U0001F600 behind the letter; two halves of a character beyond U+FFFF are one. */
static int code_point(const char **at, const char *end, int letter, uint32_t *cp) {
    int digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    uint32_t low;
    if (!hex_digits(*at, end, digits, cp)) {
        return 0;
    }
    *at += digits;
    if (*cp >= 0xD800 && *cp < 0xDC00 && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u' &&
        hex_digits(*at + 2, end, 4, &low) && low >= 0xDC00 && low < 0xE000) {
        *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
        *at += 6;
    }
    if (*cp > 0x10FFFF || (*cp >= 0xD800 && *cp < 0xE000)) {
        *cp = 0xFFFD;
    }
    return 1;
}

/* One escape behind its backslash as text in out. Python keeps the backslash of an unknown one. */
static gw_status unescape(const char **at, const char *end, gw_bytes *out, int *wrong) {
    static const char letters[] = "abfnrtv\"'\\/", meant[] = "\a\b\f\n\r\t\v\"'\\/";
    int c = *at < end ? (unsigned char)**at : 0;
    const char *known = c != 0 ? strchr(letters, c) : NULL;
    char bytes[4];
    uint32_t cp;
    if (c == 0) {
        *wrong = 1;
        return GW_OK;
    }
    (*at)++;
    if (known != NULL) {
        return gw_bytes_add(out, meant + (known - letters), 1);
    }
    if (c == '\n') {
        return GW_OK;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        if (!code_point(at, end, c, &cp)) {
            *wrong = 1;
            return GW_OK;
        }
        return gw_bytes_add(out, bytes, gw_utf8_put(cp, bytes));
    }
    GW_TRY(gw_bytes_add(out, "\\", 1));
    return gw_bytes_add(out, *at - 1, 1);
}

gw_status gw_json_string_read(const char *text, size_t n, gw_bytes *out, int *fine) {
    const char *at = n > 0 ? text : "", *end = at + n;
    int wrong = 0;
    while (at < end && !wrong) {
        if (*at == '\\') {
            at++;
            GW_TRY(unescape(&at, end, out, &wrong));
        } else {
            GW_TRY(gw_bytes_add(out, at++, 1));
        }
    }
    *fine = !wrong;
    return GW_OK;
}

/* ---- literals -------------------------------------------------------------------------------- */

static gw_status read_value(literal *l, unsigned *is);

static void skip_space(literal *l) {
    while (l->at < l->end &&
           (*l->at == ' ' || *l->at == '\n' || *l->at == '\t' || *l->at == '\r')) {
        l->at++;
    }
}

static int starts(const literal *l, const char *word) {
    size_t n = strlen(word);
    return (size_t)(l->end - l->at) >= n && memcmp(l->at, word, n) == 0;
}

static int peek(const literal *l) { return l->at < l->end ? (unsigned char)*l->at : -1; }

static gw_status put(literal *l, const char *text) {
    return gw_bytes_add(l->out, text, strlen(text));
}

/* Between two equal quotes of 1 or 3 signs. */
static gw_status read_quoted(literal *l) {
    int sign = peek(l), n = l->end - l->at >= 6 && l->at[1] == sign && l->at[2] == sign ? 3 : 1;
    gw_bytes text = {0};
    gw_status status = GW_OK;
    l->at += n;
    for (;;) {
        if (l->at >= l->end) {
            l->wrong = 1;
            break;
        }
        if (*l->at == sign &&
            (n == 1 || (l->end - l->at >= 3 && l->at[1] == sign && l->at[2] == sign))) {
            l->at += n;
            GW_TRY_DONE(gw_json_string_add(l->out, text.data, text.n, 1));
            break;
        }
        if (*l->at == '\\') {
            l->at++;
            GW_TRY_DONE(unescape(&l->at, l->end, &text, &l->wrong));
            if (l->wrong) {
                break;
            }
        } else {
            GW_TRY_DONE(gw_bytes_add(&text, l->at++, 1));
        }
    }
done:
    free(text.data);
    return status;
}

/* Between two quotes of Gemma, as it stands. */
static gw_status read_gemma_text(literal *l) {
    const char *from = l->at += sizeof quote - 1;
    while (l->at < l->end && !starts(l, quote)) {
        l->at++;
    }
    if (l->at >= l->end) {
        l->wrong = 1;
        return GW_OK;
    }
    size_t n = (size_t)(l->at - from);
    l->at += sizeof quote - 1;
    return gw_json_string_add(l->out, from, n, 1);
}

static int read_number(literal *l, size_t *n) {
    gw_scan scan = {0};
    const char *at = l->at;
    int real = 0;
    gw_scan_result result = GW_SCAN_MORE;
    for (; at < l->end && result == GW_SCAN_MORE; at++) {
        result = gw_scan_byte(&scan, (unsigned char)*at);
        if (result == GW_SCAN_BEFORE) {
            break;
        }
        real |= *at == '.' || *at == 'e' || *at == 'E';
    }
    if (result == GW_SCAN_MORE && at == l->end) {
        result = gw_scan_byte(&scan, ' ');
    }
    *n = result == GW_SCAN_BEFORE ? (size_t)(at - l->at) : 0;
    return real ? GW_IS_NUMBER : GW_IS_INTEGER;
}

static gw_status read_word(literal *l, unsigned *is) {
    static const struct {
        const char *word, *json;
        unsigned is;
    } words[] = {{"true", "true", GW_IS_BOOLEAN},   {"True", "true", GW_IS_BOOLEAN},
                 {"false", "false", GW_IS_BOOLEAN}, {"False", "false", GW_IS_BOOLEAN},
                 {"null", "null", GW_IS_NULL},      {"None", "null", GW_IS_NULL}};
    size_t n = 0;
    while (l->at + n < l->end && strchr(",:]})= \n\t\r", l->at[n]) == NULL) {
        n++;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) == n && memcmp(words[i].word, l->at, n) == 0) {
            l->at += n;
            *is = words[i].is;
            return put(l, words[i].json);
        }
    }
    const char *from = l->at;
    if (l->gemma && n > 0) { /* a text that the model has not quoted */
        while (l->at < l->end && strchr(",]}", *l->at) == NULL) {
            l->at++;
        }
        *is = GW_IS_STRING;
        return gw_json_string_add(l->out, from, (size_t)(l->at - from), 1);
    }
    l->wrong = 1;
    return GW_OK;
}

/* The name of a member, with its colon. */
static gw_status read_key(literal *l) {
    unsigned is = 0;
    const char *from = l->at;
    int c = peek(l);
    if (c == '"' || c == '\'' || (l->gemma && starts(l, quote))) {
        GW_TRY(read_value(l, &is));
    } else {
        while (l->at < l->end && *l->at != ':' && strchr("{}[],\"'", *l->at) == NULL) {
            l->at++;
        }
        size_t n = (size_t)(l->at - from), number = 0;
        literal probe = *l;
        probe.at = from;
        read_number(&probe, &number);
        l->wrong |= n == 0 || (!l->gemma && number != n); /* Python: a number as a name */
        GW_TRY(gw_json_string_add(l->out, from, n, 1));
    }
    skip_space(l);
    l->wrong |= peek(l) != ':';
    l->at++;
    return put(l, ": ");
}

static gw_status read_many(literal *l, int open) {
    int close = open == '{' ? '}' : open == '[' ? ']' : ')';
    if (++l->depth > DEPTH) {
        l->wrong = 1;
        return GW_OK;
    }
    l->at++;
    GW_TRY(put(l, open == '{' ? "{" : "["));
    for (size_t n = 0; !l->wrong; n++) {
        unsigned is;
        skip_space(l);
        if (peek(l) == close) {
            break;
        }
        GW_TRY(n > 0 ? put(l, ", ") : GW_OK);
        GW_TRY(open == '{' ? read_key(l) : GW_OK);
        if (!l->wrong) {
            GW_TRY(read_value(l, &is));
        }
        skip_space(l);
        if (peek(l) != ',') {
            l->wrong |= peek(l) != close;
            break;
        }
        l->at++;
    }
    l->at++;
    l->depth--;
    return put(l, open == '{' ? "}" : "]");
}

static gw_status read_value(literal *l, unsigned *is) {
    skip_space(l);
    int c = peek(l);
    size_t n = 0;
    *is = 0;
    if (l->gemma && starts(l, quote)) {
        *is = GW_IS_STRING;
        return read_gemma_text(l);
    }
    if (c == '"' || (c == '\'' && !l->gemma)) {
        *is = GW_IS_STRING;
        return read_quoted(l);
    }
    if (c == '{' || c == '[' || (c == '(' && !l->gemma)) {
        *is = c == '{' ? GW_IS_OBJECT : GW_IS_LIST;
        return read_many(l, c);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        *is = (unsigned)read_number(l, &n);
        if (n > 0 && (l->at + n == l->end || strchr(",:]}) \n\t\r", l->at[n]) != NULL)) {
            GW_TRY(gw_bytes_add(l->out, l->at, n));
            l->at += n;
            return GW_OK;
        }
    }
    return read_word(l, is);
}

gw_status gw_literal_json(const char *text, size_t n, gw_bytes *out, unsigned *is) {
    text = n > 0 ? text : ""; /* of an empty buffer */
    literal l = {.at = text, .end = text + n, .out = out};
    size_t before = out->n;
    GW_TRY(read_value(&l, is));
    skip_space(&l);
    if (l.wrong || l.at != l.end) {
        out->n = before;
        *is = 0;
    }
    return GW_OK;
}

gw_status gw_gemma_arguments(const char *text, size_t n, gw_bytes *out, int *fine) {
    text = n > 0 ? text : ""; /* of an empty buffer */
    literal l = {.at = text, .end = text + n, .out = out, .gemma = 1};
    unsigned is;
    GW_TRY(read_value(&l, &is));
    skip_space(&l);
    *fine = !l.wrong && l.at == l.end && is == GW_IS_OBJECT;
    return GW_OK;
}

/* ---- arguments of a call in Python ------------------------------------------------------------
 */

static const char *nth_parameter(const gw_tool *tool, size_t i) {
    json_t *properties = tool != NULL ? json_object_get(tool->parameters, "properties") : NULL;
    const char *key;
    json_t *value;
    json_object_foreach(properties, key, value) {
        if (i-- == 0) {
            return key;
        }
    }
    return NULL;
}

static int is_letter(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
}

gw_status gw_python_arguments(const char *text, size_t n, const gw_tool *tool, gw_bytes *out,
                              int *fine) {
    text = n > 0 ? text : ""; /* of an empty buffer */
    literal l = {.at = text, .end = text + n, .out = out};
    GW_TRY(put(&l, "{"));
    for (size_t i = 0; !l.wrong; i++) {
        unsigned is;
        skip_space(&l);
        if (l.at == l.end) {
            break;
        }
        GW_TRY(i > 0 ? put(&l, ", ") : GW_OK);
        const char *name = l.at, *at = l.at;
        while (at < l.end && (is_letter((unsigned char)*at) || (*at >= '0' && *at <= '9') ||
                              *at == '-' || *at == '.')) {
            at++;
        }
        size_t bytes = (size_t)(at - name);
        while (at < l.end && *at == ' ') {
            at++;
        }
        if (bytes > 0 && is_letter((unsigned char)*name) && at < l.end && *at == '=') {
            l.at = at + 1;
        } else {
            name = nth_parameter(tool, i);
            bytes = name != NULL ? strlen(name) : 0;
            l.wrong = name == NULL;
        }
        GW_TRY(gw_json_string_add(out, name != NULL ? name : "", bytes, 1));
        GW_TRY(put(&l, ": "));
        GW_TRY(read_value(&l, &is));
        skip_space(&l);
        l.wrong |= l.at < l.end && *l.at != ',';
        l.at += l.at < l.end;
    }
    *fine = !l.wrong;
    return put(&l, "}");
}

/* ---- by the schema --------------------------------------------------------------------------- */

static const json_t *pointed(const json_t *root, const char *ref) {
    const json_t *at = root;
    if (ref[0] != '#') {
        return NULL;
    }
    for (ref++; *ref == '/' && at != NULL;) {
        char name[256];
        size_t n = 0;
        for (ref++; *ref != '\0' && *ref != '/' && n < sizeof name - 1; ref++) {
            int escaped = *ref == '~' && (ref[1] == '0' || ref[1] == '1');
            name[n++] = escaped ? (ref[1] == '0' ? '~' : '/') : *ref;
            ref += escaped;
        }
        name[n] = '\0';
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(name, NULL, 10))
                               : json_object_get(at, name);
    }
    return at;
}

static unsigned of_name(const char *type) {
    static const struct {
        const char *name;
        unsigned is;
    } names[] = {{"string", GW_IS_STRING},
                 {"integer", GW_IS_INTEGER},
                 {"number", GW_IS_NUMBER | GW_IS_INTEGER},
                 {"boolean", GW_IS_BOOLEAN},
                 {"null", GW_IS_NULL},
                 {"object", GW_IS_OBJECT},
                 {"array", GW_IS_LIST}};
    for (size_t i = 0; type != NULL && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].name, type) == 0) {
            return names[i].is;
        }
    }
    return 0;
}

static unsigned of_value(const json_t *value) {
    return json_is_string(value)    ? GW_IS_STRING
           : json_is_integer(value) ? GW_IS_INTEGER
           : json_is_real(value)    ? GW_IS_NUMBER
           : json_is_boolean(value) ? GW_IS_BOOLEAN
           : json_is_null(value)    ? GW_IS_NULL
           : json_is_object(value)  ? GW_IS_OBJECT
           : json_is_array(value)   ? GW_IS_LIST
                                    : 0;
}

/* 0: the schema does not say. */
static unsigned of_schema(const json_t *root, const json_t *schema, int depth) {
    static const char *const several[] = {"anyOf", "oneOf", "allOf"};
    const json_t *type = json_object_get(schema, "type"), *value;
    unsigned is = of_name(json_string_value(type)), some;
    size_t i;
    if (depth > 30) {
        return GW_IS_ANYTHING;
    }
    json_array_foreach(type, i, value) { is |= of_name(json_string_value(value)); }
    if (is == 0 && json_object_get(schema, "const") != NULL) {
        is = of_value(json_object_get(schema, "const"));
    }
    const json_t *listed = is == 0 ? json_object_get(schema, "enum") : NULL;
    json_array_foreach(listed, i, value) { is |= of_value(value); }
    for (int k = 0; k < 3 && is == 0; k++) {
        unsigned open = 0;
        json_array_foreach(json_object_get(schema, several[k]), i, value) {
            some = of_schema(root, value, depth + 1);
            open |= some == 0 && k < 2;
            is |= some;
        }
        is = open ? GW_IS_ANYTHING : is;
    }
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (is == 0 && ref != NULL) {
        is = of_schema(root, pointed(root, ref), depth + 1);
    }
    return is | (is != 0 && json_is_true(json_object_get(schema, "nullable")) ? GW_IS_NULL : 0);
}

unsigned gw_answer_types(const gw_tool *tool, const char *key, size_t n) {
    const json_t *root = tool != NULL ? tool->parameters : NULL, *schema = root;
    char name[256];
    unsigned is;
    if (n >= sizeof name) {
        return GW_IS_ANYTHING;
    }
    memcpy(name, key, n);
    name[n] = '\0';
    for (int i = 0; i < 8 && json_object_get(schema, "properties") == NULL; i++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        schema = ref != NULL ? pointed(root, ref) : NULL;
    }
    is = of_schema(root, json_object_get(json_object_get(schema, "properties"), name), 0);
    return is != 0 ? is : GW_IS_ANYTHING;
}

gw_status gw_value_json(const char *text, size_t n, unsigned types, gw_bytes *out) {
    unsigned is = 0;
    size_t before = out->n, first = 0, last = n;
    while (first < last && strchr(" \n\t\r", text[first]) != NULL && text[first] != '\0') {
        first++;
    }
    while (last > first && strchr(" \n\t\r", text[last - 1]) != NULL && text[last - 1] != '\0') {
        last--;
    }
    if (types != GW_IS_STRING) {
        GW_TRY(gw_literal_json(text + first, last - first, out, &is));
    }
    int fits = (is & types) != 0 && is != GW_IS_STRING;
    if (!fits && is == GW_IS_NUMBER && (types & GW_IS_INTEGER) != 0 && last - first > 2 &&
        memcmp(text + last - 2, ".0", 2) == 0) {
        out->n -= 2; /* 3.0 for an integer */
        fits = 1;
    }
    if (!fits && is == GW_IS_STRING && (types & GW_IS_STRING) == 0) {
        fits = 1; /* quoted where a string is wrong in any case */
    }
    if (fits || (is != 0 && is != GW_IS_STRING && (types & GW_IS_STRING) == 0)) {
        return GW_OK;
    }
    out->n = before;
    return gw_json_string_add(out, text, n, 1);
}
