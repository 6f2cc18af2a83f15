/* core/text/template/show.c - values as text: str() and repr() of Python. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"
#include "core/text/utf8.h"

/* The shortest digits that read back as the same number, laid out as Python's repr does. */
void gw_tpl_write_float(double f, char out[40]) {
    if (!isfinite(f)) {
        snprintf(out, 40, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    char word[40], digits[20];
    int precision = 0;
    do {
        snprintf(word, sizeof word, "%.*e", precision, f);
    } while (gw_tpl_read_float(word) != f && ++precision < 17);
    int power = atoi(strchr(word, 'e') + 1), n = 0;
    for (const char *p = word; *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9') {
            digits[n++] = *p;
        }
    }
    digits[n] = '\0';
    const char *sign = signbit(f) ? "-" : "";
    if (power < -4 || power >= 16) {
        snprintf(out, 40, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                 power < 0 ? '-' : '+', abs(power));
    } else if (power < 0) {
        snprintf(out, 40, "%s0.%.*s%s", sign, -power - 1, "0000", digits);
    } else if (n <= power + 1) {
        snprintf(out, 40, "%s%s%.*s.0", sign, digits, power + 1 - n, "0000000000000000");
    } else {
        snprintf(out, 40, "%s%.*s.%s", sign, power + 1, digits, digits + power + 1);
    }
}

/* str.isprintable of one character */
static int is_printable(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return 0;
    case UTF8PROC_CATEGORY_ZS:
        return cp == ' ';
    default:
        return 1;
    }
}

static void quote(gw_tpl *r, gw_tpl_out *out, gw_tv text) {
    int single = memchr(text.text, '\'', text.n) != NULL;
    char mark = single && memchr(text.text, '"', text.n) == NULL ? '"' : '\'';
    gw_tpl_out_add(r, out, &mark, 1, 0);
    for (size_t at = 0; at < text.n;) {
        char word[12] = "";
        uint32_t cp = 0;
        size_t n = gw_utf8_next(text.text + at, text.n - at, &cp);
        int typed = gw_tv_typed_at(text, at);
        if (n == 1 && (text.text[at] == mark || cp == '\\')) {
            snprintf(word, sizeof word, "\\%c", (int)cp);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            snprintf(word, sizeof word, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        } else if (n > 0 && !is_printable(cp)) {
            snprintf(word, sizeof word,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     (unsigned)cp);
        }
        n = n > 0 ? n : 1;
        if (word[0] != '\0') {
            gw_tpl_out_add(r, out, word, strlen(word), typed);
        } else {
            gw_tpl_out_add(r, out, text.text + at, n, typed);
        }
        at += n;
    }
    gw_tpl_out_add(r, out, &mark, 1, 0);
}

static void show(gw_tpl *r, gw_tpl_out *out, gw_tv v);

static void show_items(gw_tpl *r, gw_tpl_out *out, const gw_tv *at, size_t n) {
    for (size_t i = 0; i < n; i++) {
        gw_tpl_out_words(r, out, i > 0 ? ", " : "");
        show(r, out, at[i]);
    }
}

static void show_dict(gw_tpl *r, gw_tpl_out *out, const gw_tpl_dict *dict) {
    for (size_t i = 0; i < dict->n; i++) {
        gw_tpl_out_words(r, out, i > 0 ? ", " : "");
        show(r, out, dict->at[i].key);
        gw_tpl_out_words(r, out, ": ");
        show(r, out, dict->at[i].value);
    }
}

static void show_view(gw_tpl *r, gw_tpl_out *out, gw_tv view) {
    static const char *const names[] = {"dict_keys([", "dict_values([", "dict_items(["};
    gw_tpl_walk w = gw_tpl_walk_over(r, view);
    gw_tpl_out_words(r, out, names[view.part]);
    show_items(r, out, w.at, w.n);
    gw_tpl_out_words(r, out, "])");
}

static void show_number(gw_tpl *r, gw_tpl_out *out, gw_tv v) {
    char word[40];
    if (v.kind == GW_TV_FLOAT) {
        gw_tpl_write_float(v.f, word);
    } else {
        snprintf(word, sizeof word, "%" PRId64, v.i);
    }
    gw_tpl_out_words(r, out, word);
}

static void show(gw_tpl *r, gw_tpl_out *out, gw_tv v) {
    gw_tpl_deeper(r);
    gw_tpl_charge(r, 1);
    switch (v.kind) {
    case GW_TV_UNDEFINED:
        gw_tpl_out_words(r, out, "Undefined");
        break;
    case GW_TV_ABSENT:
    case GW_TV_NONE:
        gw_tpl_out_words(r, out, "None");
        break;
    case GW_TV_BOOL:
        gw_tpl_out_words(r, out, v.i ? "True" : "False");
        break;
    case GW_TV_INT:
    case GW_TV_FLOAT:
        show_number(r, out, v);
        break;
    case GW_TV_BIG:
        gw_tpl_out_text(r, out, gw_tpl_write_big(r, v));
        break;
    case GW_TV_TEXT:
        gw_tpl_out_words(r, out, v.safe ? "Markup(" : "");
        quote(r, out, v);
        gw_tpl_out_words(r, out, v.safe ? ")" : "");
        break;
    case GW_TV_LIST:
        gw_tpl_out_words(r, out, "[");
        show_items(r, out, v.list->at, v.list->n);
        gw_tpl_out_words(r, out, "]");
        break;
    case GW_TV_TUPLE:
        gw_tpl_out_words(r, out, "(");
        show_items(r, out, v.list->at, v.list->n);
        gw_tpl_out_words(r, out, v.list->n == 1 ? ",)" : ")");
        break;
    case GW_TV_RANGE:
        gw_tpl_out_words(r, out, "range(");
        show_items(r, out, v.list->at, v.list->at[2].i == 1 ? 2 : 3);
        gw_tpl_out_words(r, out, ")");
        break;
    case GW_TV_DICT:
        gw_tpl_out_words(r, out, "{");
        show_dict(r, out, v.dict);
        gw_tpl_out_words(r, out, "}");
        break;
    case GW_TV_NAMESPACE:
        gw_tpl_out_words(r, out, "<Namespace {");
        show_dict(r, out, v.dict);
        gw_tpl_out_words(r, out, "}>");
        break;
    case GW_TV_VIEW:
        show_view(r, out, v);
        break;
    default:
        gw_tpl_out_words(r, out, "<");
        gw_tpl_out_words(r, out, gw_tv_type(v));
        gw_tpl_out_words(r, out, " object>");
        break;
    }
    gw_tpl_back(r);
}

gw_tv gw_tv_repr(gw_tpl *r, gw_tv v) {
    gw_tpl_out *out = gw_tpl_out_open(r);
    show(r, out, v);
    return gw_tpl_out_close(r, out);
}

gw_tv gw_tv_str(gw_tpl *r, gw_tv v) {
    switch (v.kind) {
    case GW_TV_TEXT:
        v.safe = 0;
        return v;
    case GW_TV_UNDEFINED:
        return gw_tv_words("");
    case GW_TV_NONE:
        return gw_tv_words("None");
    case GW_TV_BOOL:
        return gw_tv_words(v.i ? "True" : "False");
    default:
        return gw_tv_repr(r, v);
    }
}

gw_tv gw_tv_soft(gw_tpl *r, gw_tv v) { return v.kind == GW_TV_TEXT ? v : gw_tv_str(r, v); }
