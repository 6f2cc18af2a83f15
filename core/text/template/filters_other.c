/* core/text/template/filters_other.c - the filters over any value and over numbers; all filters by
 * name.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"

static const gw_tv absent = {.kind = GW_TV_ABSENT};

/* a: default_value, boolean */
static gw_tv f_default(gw_tpl *r, gw_tv v, const gw_tv *a) {
    int missing = v.kind == GW_TV_UNDEFINED || (gw_tv_truth(r, a[1]) && !gw_tv_truth(r, v));
    return !missing ? v : gw_tv_given(a[0]) ? a[0] : gw_tv_words("");
}

/* Only attributes, no items. */
static gw_tv f_attr(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv name = gw_tv_str(r, a[0]);
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    gw_tv found = gw_tpl_is_unsafe(v, name.text, name.n)
                      ? absent
                      : gw_tpl_own_attribute(r, v, name.text, name.n);
    return gw_tv_given(found) ? found : gw_tv_no_member(v, name.text, name.n);
}

static gw_tv f_from_json(gw_tpl *r, gw_tv v, const gw_tv *a) {
    (void)a;
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (v.kind != GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "the JSON object must be str, not %s", gw_tv_type(v));
    }
    return gw_tpl_from_json(r, v);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* int(text, base) of Python; ABSENT: it is none. */
static gw_tv read_int(gw_tpl *r, gw_tv text, int64_t base) {
    gw_tv t = gw_tpl_strip(r, text, gw_tv_none(), 1, 1);
    char *word = gw_tpl_alloc(r, t.n + 2);
    size_t n = 0, at = 0, digits = 0;
    if (t.n > 0 && (t.text[0] == '-' || t.text[0] == '+')) {
        word[n++] = t.text[at++];
    }
    if (t.n - at > 2 && t.text[at] == '0') {
        char c = (char)(t.text[at + 1] | 32);
        int64_t named = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (named != 0 && (base == named || base == 0)) {
            base = named;
            at += 2;
        }
    }
    base = base == 0 ? 10 : base;
    if (base < 2 || base > 36) {
        return absent;
    }
    for (; at < t.n; at++) {
        char c = t.text[at], low = (char)(c | 32);
        int value = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'z' ? low - 87 : 99;
        if (c == '_' && digits > 0 && at + 1 < t.n && t.text[at + 1] != '_') {
            continue;
        }
        if (value >= base) {
            return absent;
        }
        word[n++] = c;
        digits++;
    }
    return digits > 0 ? gw_tpl_integer(r, word, n, (int)base) : absent;
}

gw_tv gw_tpl_read_real(gw_tpl *r, gw_tv text) {
    gw_tv t = gw_tpl_strip(r, text, gw_tv_none(), 1, 1);
    char *word = gw_tpl_alloc(r, t.n + 1);
    size_t at = t.n > 0 && (t.text[0] == '-' || t.text[0] == '+'), n = 0, digits = 0;
    double sign = t.n > 0 && t.text[0] == '-' ? -1 : 1;
    gw_tv name = gw_tpl_case(r, gw_tv_cut(t, at, t.n - at), GW_TPL_LOWER);
    if (gw_tv_same_text(name, "inf") || gw_tv_same_text(name, "infinity")) {
        return gw_tv_float(sign * INFINITY);
    }
    if (gw_tv_same_text(name, "nan")) {
        return gw_tv_float(NAN);
    }
    int point = 0, power = 0;
    for (; at < t.n; at++) {
        char c = t.text[at];
        int digit = c >= '0' && c <= '9';
        int sign_of_power = (c == '+' || c == '-') && n > 0 && (word[n - 1] | 32) == 'e';
        int fits = digit || (c == '.' && !point && !power) ||
                   ((c | 32) == 'e' && digits > 0 && !power) || sign_of_power ||
                   (c == '_' && at + 1 < t.n && n > 0 && word[n - 1] >= '0' && word[n - 1] <= '9');
        if (!fits) {
            return absent;
        }
        digits += digit && !power;
        point |= c == '.';
        power |= (c | 32) == 'e';
        if (c != '_') {
            word[n++] = c;
        }
    }
    int whole = digits > 0 && !(power && !(word[n - 1] >= '0' && word[n - 1] <= '9'));
    return whole ? gw_tv_float(sign * gw_tpl_read_float(word)) : absent;
}

/* a: default, base */
static gw_tv f_int(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv preset = gw_tv_given(a[0]) ? a[0] : gw_tv_int(0), number = v;
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (v.kind == GW_TV_TEXT) {
        number = read_int(r, v, gw_tv_given(a[1]) ? gw_tpl_int(r, a[1], "base") : 10);
        number = gw_tv_given(number) ? number : gw_tpl_read_real(r, v);
    }
    if (!gw_tv_is_number(number) || (number.kind == GW_TV_FLOAT && !isfinite(number.f))) {
        return preset;
    }
    return number.kind == GW_TV_FLOAT  ? gw_tpl_whole(r, number.f)
           : number.kind == GW_TV_BOOL ? gw_tv_int(number.i)
                                       : number;
}

static gw_tv f_float(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv preset = gw_tv_given(a[0]) ? a[0] : gw_tv_float(0), number = v;
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (v.kind == GW_TV_TEXT) {
        number = gw_tpl_read_real(r, v);
    }
    return gw_tv_is_number(number) ? gw_tv_float(gw_tv_real(r, number)) : preset;
}

static gw_tv need_number(gw_tpl *r, gw_tv v, const char *what) {
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (!gw_tv_is_number(v)) {
        gw_tpl_raise(r, GW_E_TYPE, "bad operand type for %s: '%s'", what, gw_tv_type(v));
    }
    return v.kind == GW_TV_BOOL ? gw_tv_int(v.i) : v;
}

static gw_tv f_abs(gw_tpl *r, gw_tv v, const gw_tv *a) {
    (void)a;
    v = need_number(r, v, "abs()");
    if (v.kind == GW_TV_FLOAT) {
        return gw_tv_float(fabs(v.f));
    }
    int negative = v.kind == GW_TV_BIG ? gw_tpl_big_negative(v) : v.i < 0;
    return negative ? gw_tpl_negate(r, v) : v;
}

/* round(number, places) of Python: to the nearest, to even between two. */
static gw_tv round_common(gw_tpl *r, gw_tv v, int64_t places) {
    char word[800];
    if (v.kind != GW_TV_FLOAT) {
        if (places >= 0) {
            return v;
        }
        gw_tv unit = gw_tpl_arithmetic(r, gw_tv_int(10), GW_OP_POWER, gw_tv_int(-places));
        gw_tv down = gw_tpl_arithmetic(r, v, GW_OP_FLOOR, unit);
        gw_tv over = gw_tpl_arithmetic(r, gw_tpl_arithmetic(r, v, '%', unit), '*', gw_tv_int(2));
        int order = gw_tpl_compare_numbers(r, over, unit);
        int odd = gw_tv_truth(r, gw_tpl_arithmetic(r, down, '%', gw_tv_int(2)));
        down = gw_tpl_arithmetic(r, down, '+', gw_tv_int(order > 0 || (order == 0 && odd)));
        return gw_tpl_arithmetic(r, down, '*', unit);
    }
    if (!isfinite(v.f) || places > 320) {
        return v;
    }
    if (places < 0) {
        double unit = pow(10, (double)-places);
        return gw_tv_float(isfinite(unit) ? nearbyint(v.f / unit) * unit : 0);
    }
    snprintf(word, sizeof word, "%.*f", (int)places, v.f); /* exact, then to even */
    return gw_tv_float(gw_tpl_read_float(word));
}

/* a: precision, method */
static gw_tv f_round(gw_tpl *r, gw_tv v, const gw_tv *a) {
    int64_t places = gw_tv_given(a[0]) ? gw_tpl_int(r, a[0], "precision") : 0;
    v = need_number(r, v, "round()");
    if (!gw_tv_given(a[1]) || gw_tv_same_text(a[1], "common")) {
        if (places < -400) {
            return v.kind == GW_TV_FLOAT ? gw_tv_float(0) : gw_tv_int(0);
        }
        return round_common(r, v, places);
    }
    int up = gw_tv_same_text(a[1], "ceil");
    if (!up && !gw_tv_same_text(a[1], "floor")) {
        gw_tpl_raise(r, GW_E_TYPE, "method must be common, ceil or floor");
    }
    if (v.kind != GW_TV_FLOAT && places >= 0) {
        return gw_tv_float(gw_tv_real(r, v)); /* whole already */
    }
    double unit = pow(10, (double)places), scaled = gw_tv_real(r, v) * unit;
    return gw_tv_float(((up ? ceil(scaled) : floor(scaled)) + 0.0) / unit);
}

const gw_tpl_builtin gw_tpl_filters_other[] = {{"abs", "", f_abs},
                                               {"attr", "name", f_attr},
                                               {"d", "default_value? boolean?", f_default},
                                               {"default", "default_value? boolean?", f_default},
                                               {"float", "default?", f_float},
                                               {"from_json", "", f_from_json},
                                               {"int", "default? base?", f_int},
                                               {"round", "precision? method?", f_round},
                                               {NULL, NULL, NULL}};

const gw_tpl_builtin *gw_tpl_filter(const char *name, size_t n) {
    const gw_tpl_builtin *tables[] = {gw_tpl_filters_text, gw_tpl_filters_list,
                                      gw_tpl_filters_other};
    for (size_t i = 0; i < 3; i++) {
        const gw_tpl_builtin *row = gw_tpl_find_row(tables[i], name, n);
        if (row != NULL) {
            return row;
        }
    }
    return NULL;
}
