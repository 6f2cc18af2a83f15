/* core/text/answer/answer_object.c - a call as a JSON object, and arguments in JSON, in Python's
 * and in Gemma's notation, symbol by symbol; see answer_reader.h. */
#include "core/text/answer/answer_reader.h"

static int is_one_of(const gw_bytes *key, const char *const *words) {
    for (; *words != NULL; words++) {
        if (strlen(*words) == key->n && memcmp(*words, key->data, key->n) == 0) {
            return 1;
        }
    }
    return 0;
}

static const char *const names[] = {"name", "tool_name", "function", "function_name", NULL};
static const char *const arguments[] = {"arguments", "parameters", "args", "input", NULL};
static const char *const ids[] = {"id", "tool_call_id", "call_id", NULL};

/* ---- arguments as they come ------------------------------------------------------------------ */

/* Line breaks inside strings, which JSON forbids and models write, become escapes. */
static void put_argument_byte(gw_reader *r, unsigned c, int in_string) {
    char byte = (char)c;
    if (in_string && c < 0x20) {
        gw_bytes escaped = {0};
        r->failed |= gw_json_string_add(&escaped, &byte, 1, 0) != GW_OK;
        gw_call_arguments(r, escaped.data, escaped.n);
        free(escaped.data);
    } else {
        gw_call_arguments(r, &byte, 1);
    }
}

int gw_arguments_symbol(gw_reader *r, unsigned c, int *done) {
    int in_string = gw_scan_in_string(&r->scan);
    if (r->scan.depth == 0) {
        if (gw_symbol_is_space(c)) {
            return 1;
        }
        if (c != '{') {
            return -1;
        }
    }
    gw_scan_result got = gw_scan_byte(&r->scan, (unsigned char)c);
    if (got == GW_SCAN_WRONG) {
        return -1;
    }
    put_argument_byte(r, c, in_string);
    *done = got == GW_SCAN_DONE;
    if (*done) {
        r->scan = (gw_scan){0};
    }
    return 1;
}

/* ---- the object ------------------------------------------------------------------------------ */

static void read_text(gw_reader *r, gw_bytes *to, int *fine) {
    to->n = 0;
    r->failed |= gw_json_string_read(r->value.data, r->value.n, to, fine) != GW_OK;
    r->value.n = 0;
}

/* Arguments that come as a text of JSON. */
static int take_quoted_arguments(gw_reader *r) {
    gw_bytes text = {0};
    int fine = 1;
    unsigned is = 0;
    read_text(r, &text, &fine);
    gw_scan scan = {0};
    gw_scan_result got = GW_SCAN_MORE;
    size_t i = 0;
    while (i < text.n && gw_symbol_is_space((unsigned char)text.data[i])) {
        i++;
    }
    size_t from = i;
    for (; i < text.n && got == GW_SCAN_MORE; i++) {
        got = gw_scan_byte(&scan, (unsigned char)text.data[i]);
    }
    if (text.n == from) {
        gw_call_arguments(r, "{}", 2);
        fine = 1;
    } else if (got == GW_SCAN_DONE && text.data[from] == '{') {
        gw_call_arguments(r, text.data + from, i - from);
        while (i < text.n && gw_symbol_is_space((unsigned char)text.data[i])) {
            i++;
        }
        fine &= i == text.n;
    } else {
        fine = 0;
    }
    (void)is;
    free(text.data);
    r->is_arguments = fine;
    return fine ? 1 : -1;
}

/* The value of a member begins with c. */
static int begin_member(gw_reader *r, unsigned c) {
    int keyed = (r->tools->flags & GW_TOOLS_KEYED) != 0;
    if (gw_symbol_is_space(c)) {
        return 1;
    }
    r->value.n = 0;
    r->escaped = 0;
    r->scan = (gw_scan){0};
    r->object = GW_OBJECT_OTHER;
    if (!keyed && is_one_of(&r->key, names) && c == '"' && r->name.n == 0) {
        r->object = GW_OBJECT_NAME;
        return 1;
    }
    if (!keyed && r->key.n == 8 && memcmp(r->key.data, "function", 8) == 0 && c == '{') {
        r->nested++;
        r->object = GW_OBJECT_KEY;
        return 1;
    }
    if (keyed && c == '{' && r->name.n == 0) {
        gw_reader_add(r, &r->name, r->key.data, r->key.n);
        if (!gw_call_name(r)) {
            return -1;
        }
    }
    if ((keyed || is_one_of(&r->key, arguments)) && (c == '{' || (c == '"' && !keyed)) &&
        !r->is_arguments) {
        if (r->name.n > 0 && !r->named && !gw_call_name(r)) {
            return -1;
        }
        r->object = c == '{' ? GW_OBJECT_ARGUMENTS : GW_OBJECT_ARGUMENTS_TEXT;
        return c == '{' ? 0 : 1;
    }
    if (!keyed && is_one_of(&r->key, ids) && c == '"' && !r->named) {
        r->object = GW_OBJECT_ID;
        return 1;
    }
    return 0; /* OTHER looks at c */
}

/* Inside of a string's quotes; 1 behind the last. */
static int take_string(gw_reader *r, unsigned c, gw_bytes *to) {
    char byte = (char)c;
    if (c == '"' && !r->escaped) {
        return 1;
    }
    r->escaped = c == '\\' && !r->escaped;
    gw_reader_add(r, to, &byte, 1);
    return 0;
}

/* The brace that closes the call. */
static int end_object(gw_reader *r, int *done) {
    if (r->nested > 0) {
        r->nested--;
        r->object = GW_OBJECT_NEXT;
        return 1;
    }
    if (r->name.n == 0 || (!r->is_arguments && (r->tools->flags & GW_TOOLS_LISTED) != 0)) {
        return -1;
    }
    if (!r->is_arguments) {
        gw_call_arguments(r, "{}", 2);
    }
    if (!r->named && !gw_call_name(r)) {
        return -1;
    }
    gw_call_whole(r);
    r->is_arguments = 0;
    r->object = r->listed ? GW_OBJECT_LIST : GW_OBJECT_BEGIN;
    *done = !r->listed;
    return 1;
}

static int take_begin(gw_reader *r, unsigned c, int *done) {
    if (gw_symbol_is_space(c)) {
        return 1;
    }
    if (c == '[' && !r->listed && !r->whole) {
        r->listed = 1;
        return 1;
    }
    if (c == ']' && r->listed) {
        *done = 1;
        return !r->outer;
    }
    r->object = GW_OBJECT_KEY;
    r->is_arguments = 0;
    r->key.n = 0;
    return c == '{' ? 1 : -1;
}

static int take_key(gw_reader *r, unsigned c, int *done) {
    if (gw_symbol_is_space(c)) {
        return 1;
    }
    if (c == '}') {
        return end_object(r, done);
    }
    r->object = GW_OBJECT_KEY_TEXT;
    r->value.n = 0;
    r->escaped = 0;
    return c == '"' ? 1 : -1;
}

static int take_next(gw_reader *r, unsigned c, int *done) {
    if (gw_symbol_is_space(c)) {
        return 1;
    }
    if (c == '}') {
        return end_object(r, done);
    }
    r->object = GW_OBJECT_KEY;
    return c == ',' ? 1 : -1;
}

static int take_list(gw_reader *r, unsigned c, int *done) {
    if (gw_symbol_is_space(c)) {
        return 1;
    }
    if (c == ',') {
        r->object = GW_OBJECT_BEGIN;
        r->whole = 0;
        return 1;
    }
    *done = c == ']';
    return c == ']' ? !r->outer : -1;
}

static int take_other(gw_reader *r, unsigned c) {
    gw_scan_result got = gw_scan_byte(&r->scan, (unsigned char)c);
    if (got == GW_SCAN_DONE || got == GW_SCAN_BEFORE) {
        r->object = GW_OBJECT_NEXT;
    }
    return got == GW_SCAN_WRONG ? -1 : got != GW_SCAN_BEFORE;
}

int gw_object_symbol(gw_reader *r, unsigned c, int *done) {
    int fine = 1, over = 0;
    switch (r->object) {
    case GW_OBJECT_BEGIN:
        if (!r->listed && r->step < r->call.n && r->call.steps[r->step].kind == GW_STEP_OBJECT &&
            r->python == 0 && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')) {
            r->python = 1; /* Llama: <|python_tag|>brave_search.call(query="...") */
        }
        return r->python > 0 ? gw_python_symbol(r, c, done) : take_begin(r, c, done);
    case GW_OBJECT_KEY:
        return take_key(r, c, done);
    case GW_OBJECT_KEY_TEXT:
        if (take_string(r, c, &r->value)) {
            read_text(r, &r->key, &fine);
            r->object = GW_OBJECT_COLON;
        }
        return fine ? 1 : -1;
    case GW_OBJECT_COLON:
        r->object = c == ':' ? GW_OBJECT_VALUE : r->object;
        return c == ':' || gw_symbol_is_space(c) ? 1 : -1;
    case GW_OBJECT_VALUE:
        return begin_member(r, c);
    case GW_OBJECT_NAME:
    case GW_OBJECT_ID:
        if (take_string(r, c, &r->value)) {
            read_text(r, r->object == GW_OBJECT_ID ? &r->id : &r->name, &fine);
            r->object = GW_OBJECT_NEXT;
        }
        return fine && r->name.n <= GW_NAME_MAX ? 1 : -1;
    case GW_OBJECT_ARGUMENTS:
        fine = gw_arguments_symbol(r, c, &over);
        r->is_arguments = over;
        r->object = over ? GW_OBJECT_NEXT : r->object;
        return fine;
    case GW_OBJECT_ARGUMENTS_TEXT:
        if (!take_string(r, c, &r->value)) {
            return 1;
        }
        r->object = GW_OBJECT_NEXT;
        return take_quoted_arguments(r);
    case GW_OBJECT_OTHER:
        return take_other(r, c);
    case GW_OBJECT_NEXT:
        return take_next(r, c, done);
    default:
        return take_list(r, c, done);
    }
}

/* ---- Python ---------------------------------------------------------------------------------- */

static int is_name_sign(unsigned c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

static int end_python(gw_reader *r) {
    static const char call[] = ".call"; /* Llama's own tools */
    int fine;
    size_t n = r->name.n, k = sizeof call - 1;
    if (n > k && memcmp(r->name.data + n - k, call, k) == 0) {
        r->name.n -= k;
    }
    gw_bytes json = {0};
    r->failed |=
        gw_python_arguments(r->value.data, r->value.n,
                            gw_tools_find(r->list, r->name.data, r->name.n), &json, &fine) != GW_OK;
    fine = fine && gw_call_name(r);
    if (fine) {
        gw_call_arguments(r, json.data, json.n);
        gw_call_whole(r);
    }
    r->value.n = 0;
    free(json.data);
    return fine ? 1 : -1;
}

/* Is c in a text, or does it begin or end one? */
static void follow_quotes(gw_reader *r, unsigned c) {
    if (r->quoted) {
        int ends = !r->escaped && c == (unsigned)r->quoted;
        r->escaped = c == '\\' && !r->escaped;
        r->quoted = ends ? 0 : r->quoted;
    } else if (c == '"' || c == '\'') {
        r->quoted = (int)c;
        r->escaped = 0;
    }
}

int gw_python_symbol(gw_reader *r, unsigned c, int *done) {
    char byte = (char)c;
    if (r->deep == 0) {
        if (is_name_sign(c)) {
            gw_reader_add(r, &r->name, &byte, 1);
            return r->name.n <= GW_NAME_MAX ? 1 : -1;
        }
        if (c == '(' && r->name.n > 0) {
            r->deep = 1;
            r->value.n = 0;
            r->whole = 0;
            return 1;
        }
        if (r->name.n > 0) {
            return -1;
        }
        if (c == '{' && !r->whole && r->python == 0) { /* JSON in place of Python */
            r->listed = r->outer = 1;
            r->python = -1;
            return 0;
        }
        if (gw_symbol_is_space(c) || (c == ',' && r->whole)) {
            return 1;
        }
        *done = r->whole;
        return r->whole ? 0 : -1;
    }
    int before = r->quoted;
    follow_quotes(r, c);
    if (!before && !r->quoted) {
        r->deep += c == '(' || c == '[' || c == '{';
        r->deep -= c == ')' || c == ']' || c == '}';
        if (r->deep == 0) {
            if (c != ')') {
                return -1;
            }
            *done = r->python > 0;
            return end_python(r);
        }
    }
    gw_reader_add(r, &r->value, &byte, 1);
    return 1;
}

/* ---- Gemma ----------------------------------------------------------------------------------- */

static int ends_with_quote(const gw_bytes *b, size_t from) {
    return b->n >= from + 5 && memcmp(b->data + b->n - 5, "<|\"|>", 5) == 0;
}

/* quoted: 1 between Gemma's quotes, '"' between those of JSON. */
int gw_gemma_symbol(gw_reader *r, unsigned c, int *done) {
    char byte = (char)c;
    if (r->deep == 0 && r->value.n == 0) {
        r->n_value = 0;
        if (c != '{') {
            return gw_symbol_is_space(c) ? 1 : -1;
        }
    }
    gw_reader_add(r, &r->value, &byte, 1);
    if (r->quoted != '"' && ends_with_quote(&r->value, r->n_value)) {
        r->quoted = !r->quoted;
        r->n_value = r->value.n;
        return 1;
    }
    int opens =
        c == '"' && r->value.n >= 3 && memcmp(r->value.data + r->value.n - 3, "<|\"", 3) == 0;
    if (r->quoted == '"') {
        follow_quotes(r, c);
        return 1;
    }
    if (r->quoted || opens) {
        return 1;
    }
    if (c == '"') {
        r->quoted = '"';
        r->escaped = 0;
        return 1;
    }
    r->deep += c == '{' || c == '[';
    r->deep -= c == '}' || c == ']';
    if (r->deep > 0) {
        return 1;
    }
    gw_bytes json = {0};
    int fine;
    r->failed |= gw_gemma_arguments(r->value.data, r->value.n, &json, &fine) != GW_OK;
    if (fine) {
        gw_call_arguments(r, json.data, json.n);
        gw_call_whole(r);
    }
    free(json.data);
    r->value.n = 0;
    *done = 1;
    return fine ? 1 : -1;
}
