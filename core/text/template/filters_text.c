/* core/text/template/filters_text.c - the filters that make texts. One row each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"
#include "core/text/utf8.h"

static gw_tv f_upper(gw_tpl *r, gw_tv v, const gw_tv *a) {
    return (void)a, gw_tpl_case(r, gw_tv_soft(r, v), GW_TPL_UPPER);
}
static gw_tv f_lower(gw_tpl *r, gw_tv v, const gw_tv *a) {
    return (void)a, gw_tpl_case(r, gw_tv_soft(r, v), GW_TPL_LOWER);
}
static gw_tv f_capitalize(gw_tpl *r, gw_tv v, const gw_tv *a) {
    return (void)a, gw_tpl_case(r, gw_tv_soft(r, v), GW_TPL_CAPITAL);
}
static gw_tv f_string(gw_tpl *r, gw_tv v, const gw_tv *a) { return (void)a, gw_tv_soft(r, v); }
static gw_tv f_escape(gw_tpl *r, gw_tv v, const gw_tv *a) { return (void)a, gw_tpl_escape(r, v); }
static gw_tv f_forceescape(gw_tpl *r, gw_tv v, const gw_tv *a) {
    return (void)a, gw_tpl_escape(r, gw_tv_str(r, v));
}
static gw_tv f_trim(gw_tpl *r, gw_tv v, const gw_tv *a) {
    return gw_tpl_strip(r, gw_tv_soft(r, v), a[0], 1, 1);
}

static gw_tv f_safe(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv text = gw_tv_str(r, v);
    (void)a;
    text.safe = 1;
    return text;
}

/* Words begin behind white space, '-' and opening brackets. */
static gw_tv f_title(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv text = gw_tv_soft(r, v), all = gw_tv_words("");
    size_t from = 0;
    (void)a;
    while (from < text.n) {
        size_t at = from, n;
        uint32_t cp = 0;
        int gap = 0;
        for (; at < text.n; at += n) {
            n = gw_utf8_next(text.text + at, text.n - at, &cp);
            n = n > 0 ? n : 1;
            int now =
                gw_tpl_is_space(cp) || (cp < 0x80 && cp != 0 && strchr("-({[<", (int)cp) != NULL);
            if (at == from) {
                gap = now;
            } else if (now != gap) {
                break;
            }
        }
        gw_tv word = gw_tv_cut(text, from, at - from);
        if (!gap) {
            size_t first = gw_tpl_at_char(r, word, 1);
            gw_tv rest = gw_tv_cut(word, first, word.n - first);
            all = gw_tv_join2(r, all, gw_tpl_case(r, gw_tv_cut(word, 0, first), GW_TPL_UPPER));
            word = gw_tpl_case(r, rest, GW_TPL_LOWER);
        }
        all = gw_tv_join2(r, all, word);
        from = at;
    }
    all.safe = text.safe;
    return all;
}

static gw_tv f_replace(gw_tpl *r, gw_tv v, const gw_tv *a) {
    int64_t count =
        gw_tv_given(a[2]) && a[2].kind != GW_TV_NONE ? gw_tpl_int(r, a[2], "count") : -1;
    return gw_tpl_replace(r, gw_tv_str(r, v), gw_tv_str(r, a[0]), gw_tv_str(r, a[1]), count);
}

static gw_tv f_format(gw_tpl *r, gw_tv v, const gw_tv *a) {
    if (a[0].list->n > 0 && a[1].dict->n > 0) {
        gw_tpl_raise(r, GW_E_TYPE,
                     "can't handle positional and keyword arguments at the same time");
    }
    return gw_tpl_percent(r, gw_tv_soft(r, v), a[1].dict->n > 0 ? a[1] : a[0]);
}

static gw_tv f_center(gw_tpl *r, gw_tv v, const gw_tv *a) {
    int64_t width = gw_tv_given(a[0]) ? gw_tpl_int(r, a[0], "width") : 80;
    return gw_tpl_pad(r, gw_tv_soft(r, v), width, gw_tv_words(" "), '^');
}

/* a: width, first, blank */
static gw_tv f_indent(gw_tpl *r, gw_tv v, const gw_tv *a) {
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (v.kind != GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "indent: a text is needed, not %s", gw_tv_type(v));
    }
    gw_tv text = v, step;
    int first = gw_tv_truth(r, a[1]), blank = gw_tv_truth(r, a[2]);
    if (a[0].kind == GW_TV_TEXT) {
        step = a[0];
    } else {
        int64_t width = gw_tv_given(a[0]) ? gw_tpl_int(r, a[0], "width") : 4;
        step = gw_tpl_pad(r, gw_tv_words(""), width, gw_tv_words(" "), '<');
    }
    gw_tv lines = gw_tpl_lines(r, gw_tv_join2(r, text, gw_tv_words("\n")), 0);
    gw_tpl_out *out = gw_tpl_out_open(r);
    for (size_t i = 0; i < lines.list->n; i++) {
        gw_tv line = lines.list->at[i];
        gw_tpl_out_words(r, out, i > 0 ? "\n" : "");
        if (i == 0 ? first : blank || line.n > 0) {
            gw_tpl_out_text(r, out, step);
        }
        gw_tpl_out_text(r, out, line);
    }
    gw_tv indented = gw_tpl_out_close(r, out);
    indented.safe = text.safe;
    return indented;
}

/* a: length, killwords, end, leeway */
static gw_tv f_truncate(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv end = gw_tv_given(a[2]) ? gw_tv_str(r, a[2]) : gw_tv_words("...");
    int64_t length = gw_tv_given(a[0]) ? gw_tpl_int(r, a[0], "length") : 255;
    int64_t leeway =
        gw_tv_given(a[3]) && a[3].kind != GW_TV_NONE ? gw_tpl_int(r, a[3], "leeway") : 5;
    int64_t tail = (int64_t)gw_tv_chars(r, end);
    if (length < tail || leeway < 0) {
        gw_tpl_raise(r, GW_E_TYPE, "truncate: expected length >= %lld, got %lld", (long long)tail,
                     (long long)length);
    }
    if ((int64_t)gw_tv_length(r, v) <= length + leeway) {
        return v;
    }
    if (v.kind != GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "truncate: a text is needed, not %s", gw_tv_type(v));
    }
    gw_tv text = v;
    gw_tv cut = gw_tv_cut(text, 0, gw_tpl_at_char(r, text, (size_t)(length - tail)));
    for (size_t at = cut.n; !gw_tv_truth(r, a[1]) && at-- > 0;) {
        if (cut.text[at] == ' ') {
            cut = gw_tv_cut(cut, 0, at);
            break;
        }
    }
    return gw_tv_join2(r, cut, end);
}

static gw_tv f_wordcount(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv text = gw_tv_soft(r, v);
    int64_t n = 0;
    int inside = 0;
    (void)a;
    gw_tpl_charge(r, text.n / 8);
    for (size_t at = 0, size; at < text.n; at += size) {
        uint32_t cp = 0;
        size = gw_utf8_next(text.text + at, text.n - at, &cp);
        size = size > 0 ? size : 1;
        n += gw_tpl_is_word(cp) && !inside;
        inside = gw_tpl_is_word(cp);
    }
    return gw_tv_int(n);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* What an entity at `at` stands for: its length, 0 when it is none. */
static size_t entity(gw_tv text, size_t at, uint32_t *cp) {
    static const struct {
        const char *name;
        uint32_t cp;
    } names[] = {{"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},
                 {"&quot;", '"'}, {"&apos;", '\''}, {"&nbsp;", 0xA0}};
    size_t left = text.n - at, n = 2;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t size = strlen(names[i].name);
        if (size <= left && memcmp(text.text + at, names[i].name, size) == 0) {
            *cp = names[i].cp;
            return size;
        }
    }
    if (left < 4 || text.text[at + 1] != '#') {
        return 0;
    }
    int hex = (text.text[at + 2] | 32) == 'x';
    uint32_t value = 0;
    for (n += (size_t)hex; n < left && n < 12 && text.text[at + n] != ';'; n++) {
        char c = text.text[at + n], low = (char)(c | 32);
        int digit = c >= '0' && c <= '9'              ? c - '0'
                    : hex && low >= 'a' && low <= 'f' ? low - 87
                                                      : -1;
        if (digit < 0 || value > 0x10FFFF) {
            return 0;
        }
        value = value * (hex ? 16 : 10) + (uint32_t)digit;
    }
    *cp = value;
    int fits = n < left && text.text[at + n] == ';' && value > 0 && value <= 0x10FFFF &&
               !(value >= 0xD800 && value < 0xE000);
    return fits ? n + 1 : 0;
}

/* Without tags and comments, white space as single blanks, entities as what they stand for. */
static gw_tv f_striptags(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv text = gw_tv_soft(r, v);
    gw_tpl_out *out = gw_tpl_out_open(r);
    int gap = 0;
    (void)a;
    for (size_t at = 0; at < text.n;) {
        size_t left = text.n - at;
        int comment = left >= 4 && memcmp(text.text + at, "<!--", 4) == 0;
        const char *end = comment                ? memmem(text.text + at, left, "-->", 3)
                          : text.text[at] == '<' ? memchr(text.text + at, '>', left)
                                                 : NULL;
        gw_tpl_charge(r, text.text[at] == '<' ? left / 64 + 1 : 0);
        if (end != NULL) {
            at = (size_t)(end - text.text) + (comment ? 3 : 1);
            continue;
        }
        uint32_t cp = 0;
        size_t n = gw_utf8_next(text.text + at, left, &cp);
        n = n > 0 ? n : 1;
        if (gw_tpl_is_space(cp)) {
            gap = out->n > 0;
        } else {
            gw_tpl_out_words(r, out, gap ? " " : "");
            gap = 0;
            size_t named = cp == '&' ? entity(text, at, &cp) : 0;
            if (named > 0) {
                gw_tpl_out_char(r, out, cp, gw_tv_typed_at(text, at));
                n = named;
            } else {
                gw_tpl_out_text(r, out, gw_tv_cut(text, at, n));
            }
        }
        at += n;
    }
    return gw_tpl_out_close(r, out);
}

static void put_url(gw_tpl *r, gw_tpl_out *out, gw_tv text, int query) {
    for (size_t at = 0; at < text.n; at++) {
        unsigned char c = (unsigned char)text.text[at];
        char word[4] = "+";
        int plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
                    (c < 0x80 && c != 0 && strchr("_.-~", c) != NULL) || (c == '/' && !query);
        if (plain) {
            gw_tpl_out_text(r, out, gw_tv_cut(text, at, 1));
            continue;
        }
        if (c != ' ' || !query) {
            snprintf(word, sizeof word, "%%%02X", c);
        }
        gw_tpl_out_add(r, out, word, strlen(word), gw_tv_typed_at(text, at));
    }
}

static gw_tv f_urlencode(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tpl_out *out = gw_tpl_out_open(r);
    (void)a;
    if (v.kind == GW_TV_TEXT || !gw_tv_iterable(v)) {
        put_url(r, out, gw_tv_str(r, v), 0);
        return gw_tpl_out_close(r, out);
    }
    if (v.kind == GW_TV_DICT) {
        v.kind = GW_TV_VIEW;
        v.part = GW_TPL_ITEMS;
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    for (size_t i = 0; i < w.n; i++) {
        gw_tpl_walk pair = gw_tpl_walk_over(r, gw_tpl_walk_at(&w, i));
        if (pair.n != 2) {
            gw_tpl_raise(r, GW_E_TYPE, "urlencode: pairs are needed");
        }
        gw_tpl_out_words(r, out, i > 0 ? "&" : "");
        put_url(r, out, gw_tv_str(r, gw_tpl_walk_at(&pair, 0)), 1);
        gw_tpl_out_words(r, out, "=");
        put_url(r, out, gw_tv_str(r, gw_tpl_walk_at(&pair, 1)), 1);
    }
    return gw_tpl_out_close(r, out);
}

static gw_tv f_xmlattr(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tpl_out *out = gw_tpl_out_open(r);
    int space = !gw_tv_given(a[0]) || gw_tv_truth(r, a[0]), n = 0;
    if (v.kind != GW_TV_DICT) {
        gw_tpl_raise(r, GW_E_TYPE, "xmlattr: a mapping is needed, not %s", gw_tv_type(v));
    }
    for (size_t i = 0; i < v.dict->n; i++) {
        const gw_tpl_entry *e = &v.dict->at[i];
        if (e->value.kind == GW_TV_NONE || e->value.kind == GW_TV_UNDEFINED) {
            continue;
        }
        gw_tv key = gw_tv_str(r, e->key);
        for (size_t k = 0; k < key.n; k++) {
            if (strchr(" \t\n\f\r/>=", key.text[k]) != NULL) {
                gw_tpl_raise(r, GW_E_TYPE, "xmlattr: a character that no attribute has");
            }
        }
        gw_tpl_out_words(r, out, space || n > 0 ? " " : "");
        gw_tpl_out_text(r, out, gw_tpl_escape(r, key));
        gw_tpl_out_words(r, out, "=\"");
        gw_tpl_out_text(r, out, gw_tpl_escape(r, e->value));
        gw_tpl_out_words(r, out, "\"");
        n++;
    }
    gw_tv text = gw_tpl_out_close(r, out);
    text.safe = r->escapes != 0;
    return text;
}

static gw_tv f_filesizeformat(gw_tpl *r, gw_tv v, const gw_tv *a) {
    static const char *const units[2][8] = {
        {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
        {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    char word[400];
    int binary = gw_tv_truth(r, a[0]), i = 0;
    if (v.kind == GW_TV_TEXT) {
        v = gw_tpl_read_real(r, v);
    }
    if (!gw_tv_is_number(v)) {
        gw_tpl_raise(r, GW_E_TYPE, "filesizeformat: a number is needed, not %s", gw_tv_type(v));
    }
    double base = binary ? 1024 : 1000, bytes = gw_tv_real(r, v), unit = base;
    if (bytes == 1) {
        return gw_tv_words("1 Byte");
    }
    if (bytes < base) {
        snprintf(word, sizeof word, "%.0f Bytes", trunc(bytes) + 0.0);
    } else {
        for (unit *= base; i < 7 && bytes >= unit; i++) {
            unit *= base;
        }
        snprintf(word, sizeof word, "%.1f %s", base * bytes / unit, units[binary][i]);
    }
    gw_tpl_out *out = gw_tpl_out_open(r);
    gw_tpl_out_words(r, out, word);
    return gw_tpl_out_close(r, out);
}

const gw_tpl_builtin gw_tpl_filters_text[] = {
    {"capitalize", "", f_capitalize},
    {"center", "width?", f_center},
    {"e", "", f_escape},
    {"escape", "", f_escape},
    {"filesizeformat", "binary?", f_filesizeformat},
    {"forceescape", "", f_forceescape},
    {"format", "* **", f_format},
    {"indent", "width? first? blank?", f_indent},
    {"lower", "", f_lower},
    {"pprint", "", gw_tpl_pprint},
    {"replace", "old new count?", f_replace},
    {"safe", "", f_safe},
    {"string", "", f_string},
    {"striptags", "", f_striptags},
    {"title", "", f_title},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", gw_tpl_to_json},
    {"trim", "chars?", f_trim},
    {"truncate", "length? killwords? end? leeway?", f_truncate},
    {"upper", "", f_upper},
    {"urlencode", "", f_urlencode},
    {"urlize", "trim_url_limit? nofollow? target? rel? extra_schemes?", gw_tpl_urlize},
    {"wordcount", "", f_wordcount},
    {"wordwrap", "width? break_long_words? wrapstring? break_on_hyphens?", gw_tpl_wordwrap},
    {"xmlattr", "autospace?", f_xmlattr},
    {NULL, NULL, NULL}};
