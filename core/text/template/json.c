/* core/text/template/json.c - JSON as Python writes and reads it: big integers, floats and the
 * order of members stay, and texts keep their marks.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"
#include "core/text/utf8.h"

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct writer {
    gw_tpl *r;
    gw_tpl_out *out;
    int ascii, sorted;
    gw_tv indent, item, member; /* indent: ABSENT for one line */
} writer;

static void write_value(writer *w, gw_tv v, size_t depth);

static void write_text(writer *w, gw_tv text) {
    static const char letters[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    gw_tpl_out_words(w->r, w->out, "\"");
    for (size_t at = 0; at < text.n;) {
        char word[16] = "";
        uint32_t cp = 0;
        size_t n = gw_utf8_next(text.text + at, text.n - at, &cp);
        const char *letter = n == 1 && cp != 0 ? strchr(letters, (int)cp) : NULL;
        n = n > 0 ? n : 1;
        if (letter != NULL) {
            snprintf(word, sizeof word, "\\%c", names[letter - letters]);
        } else if ((cp < 0x20 && (unsigned char)text.text[at] < 0x20) ||
                   (w->ascii && cp >= 0x7F && cp < 0x10000)) {
            snprintf(word, sizeof word, "\\u%04x", (unsigned)cp);
        } else if (w->ascii && cp >= 0x10000) {
            snprintf(word, sizeof word, "\\u%04x\\u%04x",
                     (unsigned)(0xD800 + ((cp - 0x10000) >> 10)),
                     (unsigned)(0xDC00 + ((cp - 0x10000) & 0x3FF)));
        }
        int typed = gw_tv_typed_at(text, at);
        if (word[0] != '\0') {
            gw_tpl_out_add(w->r, w->out, word, strlen(word), typed);
        } else {
            gw_tpl_out_add(w->r, w->out, text.text + at, n, typed);
        }
        at += n;
    }
    gw_tpl_out_words(w->r, w->out, "\"");
}

static void write_scalar(writer *w, gw_tv v) {
    char word[40];
    switch (v.kind) {
    case GW_TV_NONE:
        gw_tpl_out_words(w->r, w->out, "null");
        return;
    case GW_TV_BOOL:
        gw_tpl_out_words(w->r, w->out, v.i ? "true" : "false");
        return;
    case GW_TV_INT:
    case GW_TV_BIG:
        gw_tpl_out_text(w->r, w->out, gw_tv_str(w->r, v));
        return;
    case GW_TV_FLOAT:
        gw_tpl_write_float(v.f, word);
        gw_tpl_out_words(w->r, w->out,
                         isnan(v.f)   ? "NaN"
                         : isinf(v.f) ? (v.f > 0 ? "Infinity" : "-Infinity")
                                      : word);
        return;
    default:
        gw_tpl_raise(w->r, GW_E_TYPE, "Object of type %s is not JSON serializable", gw_tv_type(v));
    }
}

static void new_line(writer *w, size_t depth) {
    if (gw_tv_given(w->indent)) {
        gw_tpl_out_words(w->r, w->out, "\n");
        gw_tpl_out_repeat(w->r, w->out, w->indent, depth);
    }
}

static void write_key(writer *w, gw_tv key) {
    switch (key.kind) {
    case GW_TV_TEXT:
        write_text(w, key);
        return;
    case GW_TV_NONE:
    case GW_TV_BOOL:
    case GW_TV_INT:
    case GW_TV_BIG:
    case GW_TV_FLOAT:
        gw_tpl_out_words(w->r, w->out, "\"");
        write_scalar(w, key);
        gw_tpl_out_words(w->r, w->out, "\"");
        return;
    default:
        gw_tpl_raise(w->r, GW_E_TYPE, "keys must be str, int, float, bool or None, not %s",
                     gw_tv_type(key));
    }
}

static void write_dict(writer *w, const gw_tpl_dict *dict, size_t depth) {
    gw_tv *order = gw_tpl_array(w->r, dict->n + 1, sizeof *order);
    gw_tv *keys = gw_tpl_array(w->r, dict->n + 1, sizeof *keys);
    for (size_t i = 0; i < dict->n; i++) {
        order[i] = gw_tv_int((int64_t)i);
        keys[i] = dict->at[i].key;
    }
    if (w->sorted) {
        gw_tpl_sort(w->r, order, keys, dict->n, 0);
    }
    gw_tpl_out_words(w->r, w->out, "{");
    for (size_t i = 0; i < dict->n; i++) {
        const gw_tpl_entry *e = &dict->at[order[i].i];
        if (i > 0) {
            gw_tpl_out_text(w->r, w->out, w->item);
        }
        new_line(w, depth + 1);
        write_key(w, e->key);
        gw_tpl_out_text(w->r, w->out, w->member);
        write_value(w, e->value, depth + 1);
    }
    if (dict->n > 0) {
        new_line(w, depth);
    }
    gw_tpl_out_words(w->r, w->out, "}");
}

static void write_value(writer *w, gw_tv v, size_t depth) {
    gw_tpl_deeper(w->r);
    gw_tpl_charge(w->r, 1);
    switch (v.kind) {
    case GW_TV_TEXT:
        write_text(w, v);
        break;
    case GW_TV_LIST:
    case GW_TV_TUPLE:
        gw_tpl_out_words(w->r, w->out, "[");
        for (size_t i = 0; i < v.list->n; i++) {
            if (i > 0) {
                gw_tpl_out_text(w->r, w->out, w->item);
            }
            new_line(w, depth + 1);
            write_value(w, v.list->at[i], depth + 1);
        }
        if (v.list->n > 0) {
            new_line(w, depth);
        }
        gw_tpl_out_words(w->r, w->out, "]");
        break;
    case GW_TV_DICT:
        write_dict(w, v.dict, depth);
        break;
    default:
        write_scalar(w, v);
        break;
    }
    gw_tpl_back(w->r);
}

static void take_separators(writer *w, gw_tv v) {
    gw_tpl_walk pair = gw_tpl_walk_over(w->r, v);
    if (pair.at == NULL || pair.n != 2 || pair.at[0].kind != GW_TV_TEXT ||
        pair.at[1].kind != GW_TV_TEXT) {
        gw_tpl_raise(w->r, GW_E_TYPE, "tojson: separators are two texts");
    }
    w->item = pair.at[0];
    w->member = pair.at[1];
}

/* a: ensure_ascii, indent, separators, sort_keys */
gw_tv gw_tpl_to_json(gw_tpl *r, gw_tv self, const gw_tv *a) {
    int lines = gw_tv_given(a[1]) && a[1].kind != GW_TV_NONE;
    writer w = {.r = r,
                .ascii = gw_tv_truth(r, a[0]),
                .sorted = gw_tv_truth(r, a[3]),
                .item = gw_tv_words(lines ? "," : ", "),
                .member = gw_tv_words(": ")};
    if (lines && a[1].kind == GW_TV_TEXT) {
        w.indent = a[1];
    } else if (lines) {
        w.indent =
            gw_tpl_pad(r, gw_tv_words(""), gw_tpl_int(r, a[1], "indent"), gw_tv_words(" "), '<');
    }
    if (gw_tv_given(a[2]) && a[2].kind != GW_TV_NONE) {
        take_separators(&w, a[2]);
    }
    w.out = gw_tpl_out_open(r);
    write_value(&w, self, 0);
    return gw_tpl_out_close(r, w.out);
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reader {
    gw_tpl *r;
    gw_tv text;
    size_t at;
} reader;

_Noreturn static void ill(const reader *d, const char *what) {
    int line = 1;
    for (size_t i = 0; i < d->at && i < d->text.n; i++) {
        line += d->text.text[i] == '\n';
    }
    gw_tpl_raise(d->r, GW_E_SYNTAX, "%s in line %d of the JSON text", what, line);
}

static char peek(const reader *d) { return d->at < d->text.n ? d->text.text[d->at] : '\0'; }

static void skip_blank(reader *d) {
    while (d->at < d->text.n && strchr(" \t\r\n", d->text.text[d->at]) != NULL &&
           d->text.text[d->at] != '\0') {
        d->at++;
    }
}

static int take_word(reader *d, const char *word) {
    size_t n = strlen(word);
    if (d->text.n - d->at < n || memcmp(d->text.text + d->at, word, n) != 0) {
        return 0;
    }
    d->at += n;
    return 1;
}

static uint32_t read_hex(reader *d) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++, d->at++) {
        char c = peek(d), low = (char)(c | 32);
        int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 87 : -1;
        if (digit < 0) {
            ill(d, "\\u without four hexadecimal digits");
        }
        value = value * 16 + (uint32_t)digit;
    }
    return value;
}

static void read_escape(reader *d, gw_tpl_out *out) {
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    int typed = gw_tv_typed_at(d->text, d->at < d->text.n ? d->at : d->text.n - 1);
    char c = peek(d);
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    d->at++;
    if (letter != NULL) {
        gw_tpl_out_add(d->r, out, &values[letter - letters], 1, typed);
        return;
    }
    if (c != 'u') {
        ill(d, "an escape that there is none of");
    }
    uint32_t cp = read_hex(d);
    if (cp >= 0xD800 && cp < 0xDC00 && d->text.n - d->at >= 6 && take_word(d, "\\u")) {
        size_t back = d->at - 2;
        uint32_t low = read_hex(d);
        if (low >= 0xDC00 && low < 0xE000) {
            cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
        } else {
            d->at = back;
        }
    }
    gw_tpl_out_char(d->r, out, cp >= 0xD800 && cp < 0xE000 ? 0xFFFD : cp, typed);
}

static gw_tv read_text(reader *d) {
    size_t begin = ++d->at;
    while (d->at < d->text.n && peek(d) != '"' && peek(d) != '\\' &&
           (unsigned char)peek(d) >= 0x20) {
        d->at++;
    }
    if (d->at < d->text.n && peek(d) == '"') { /* as it stands */
        return gw_tv_cut(d->text, begin, d->at++ - begin);
    }
    gw_tpl_out *out = gw_tpl_out_open(d->r);
    gw_tpl_out_text(d->r, out, gw_tv_cut(d->text, begin, d->at - begin));
    for (;;) {
        size_t from = d->at;
        while (d->at < d->text.n && peek(d) != '"' && peek(d) != '\\' &&
               (unsigned char)peek(d) >= 0x20) {
            d->at++;
        }
        gw_tpl_out_text(d->r, out, gw_tv_cut(d->text, from, d->at - from));
        if (d->at == d->text.n) {
            ill(d, "a text without an end");
        }
        if (peek(d) == '"') {
            d->at++;
            return gw_tpl_out_close(d->r, out);
        }
        if (peek(d) != '\\') {
            ill(d, "a control character inside a text");
        }
        d->at++;
        read_escape(d, out);
    }
}

static void skip_digits(reader *d) {
    if (!(peek(d) >= '0' && peek(d) <= '9')) {
        ill(d, "a number without digits");
    }
    while (peek(d) >= '0' && peek(d) <= '9') {
        d->at++;
    }
}

static gw_tv read_number(reader *d) {
    size_t begin = d->at;
    int real = 0;
    d->at += peek(d) == '-';
    if (peek(d) == '0') {
        d->at++;
    } else {
        skip_digits(d);
    }
    if (peek(d) == '.') {
        real = 1;
        d->at++;
        skip_digits(d);
    }
    if ((peek(d) | 32) == 'e') {
        real = 1;
        d->at++;
        d->at += peek(d) == '+' || peek(d) == '-';
        skip_digits(d);
    }
    size_t n = d->at - begin;
    if (!real) {
        return gw_tpl_integer(d->r, d->text.text + begin, n, 10);
    }
    char *word = gw_tpl_alloc(d->r, n + 1);
    memcpy(word, d->text.text + begin, n);
    return gw_tv_float(gw_tpl_read_float(word));
}

static gw_tv read_value(reader *d);

static gw_tv read_list(reader *d) {
    gw_tv list = gw_tv_list(d->r, 0);
    d->at++;
    skip_blank(d);
    if (peek(d) == ']') {
        d->at++;
        return list;
    }
    for (;;) {
        gw_tpl_add(d->r, list, read_value(d));
        if (peek(d) == ']') {
            d->at++;
            return list;
        }
        if (peek(d) != ',') {
            ill(d, "a list without ',' or ']'");
        }
        d->at++;
    }
}

static gw_tv read_dict(reader *d) {
    gw_tv dict = gw_tv_dict(d->r);
    d->at++;
    skip_blank(d);
    if (peek(d) == '}') {
        d->at++;
        return dict;
    }
    for (;;) {
        skip_blank(d);
        if (peek(d) != '"') {
            ill(d, "a member without a name");
        }
        gw_tv key = read_text(d);
        skip_blank(d);
        if (peek(d) != ':') {
            ill(d, "a member without ':'");
        }
        d->at++;
        gw_tpl_put(d->r, dict.dict, key, read_value(d));
        if (peek(d) == '}') {
            d->at++;
            return dict;
        }
        if (peek(d) != ',') {
            ill(d, "an object without ',' or '}'");
        }
        d->at++;
    }
}

/* A value and the blanks around it. */
static gw_tv read_value(reader *d) {
    static const struct {
        const char *word;
        gw_tv value;
    } words[] = {{"null", {.kind = GW_TV_NONE}},
                 {"true", {.kind = GW_TV_BOOL, .i = 1}},
                 {"false", {.kind = GW_TV_BOOL, .i = 0}},
                 {"NaN", {.kind = GW_TV_FLOAT, .f = NAN}},
                 {"Infinity", {.kind = GW_TV_FLOAT, .f = INFINITY}},
                 {"-Infinity", {.kind = GW_TV_FLOAT, .f = -INFINITY}}};
    gw_tv v = {.kind = GW_TV_ABSENT};
    gw_tpl_deeper(d->r);
    skip_blank(d);
    char c = peek(d);
    for (size_t i = 0; i < sizeof words / sizeof words[0] && !gw_tv_given(v); i++) {
        if (take_word(d, words[i].word)) {
            v = words[i].value;
        }
    }
    if (c == '"') {
        v = read_text(d);
    } else if (c == '[') {
        v = read_list(d);
    } else if (c == '{') {
        v = read_dict(d);
    } else if (!gw_tv_given(v)) {
        if (c != '-' && !(c >= '0' && c <= '9')) {
            ill(d, d->at < d->text.n ? "no value" : "the end before a value");
        }
        v = read_number(d);
    }
    skip_blank(d);
    gw_tpl_back(d->r);
    return v;
}

gw_tv gw_tpl_from_json(gw_tpl *r, gw_tv text) {
    reader d = {.r = r, .text = text};
    gw_tpl_charge(r, text.n / 16);
    gw_tv v = read_value(&d);
    if (d.at < text.n) {
        ill(&d, "more behind the value");
    }
    return v;
}
