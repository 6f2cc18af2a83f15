/* core/text/template/format.c - values into patterns: '%s' % x and '{}'.format(x) of Python. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"
#include "core/text/utf8.h"

enum { PRECISION_MAX = 600, DIGITS = 1200 };

typedef struct spec {
    gw_tv fill; /* one character */
    char align; /* '<', '>', '^', '=' (behind the sign), 0: by the kind of value */
    char sign;  /* '+', ' ', 0 */
    char group; /* ',', '_', 0 */
    char type;  /* 0: none */
    int alternate, zero, has_precision;
    int64_t width, precision;
} spec;

static gw_tv limit_precision(gw_tpl *r, const spec *s) {
    if (s->precision > PRECISION_MAX) {
        gw_tpl_raise(r, GW_E_LIMIT, "a precision of more than %d digits", PRECISION_MAX);
    }
    return gw_tv_none();
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The digits of a number without its sign; *prefix: 0x and the like. */
static gw_tv integer_digits(gw_tpl *r, gw_tv v, char type, const char **prefix) {
    gw_tv base = gw_tv_int(type == 'b' ? 2 : type == 'o' ? 8 : 16);
    char word[DIGITS * 4];
    size_t at = sizeof word;
    if (type != 'b' && type != 'o' && type != 'x' && type != 'X') {
        *prefix = "";
        return gw_tv_str(r, v);
    }
    *prefix = type == 'b' ? "0b" : type == 'o' ? "0o" : type == 'x' ? "0x" : "0X";
    do {
        gw_tv digit = gw_tpl_arithmetic(r, v, '%', base);
        if (at == 0) {
            gw_tpl_raise(r, GW_E_LIMIT, "a number of too many digits");
        }
        word[--at] = (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[digit.i];
        v = gw_tpl_arithmetic(r, v, GW_OP_FLOOR, base);
    } while (gw_tv_truth(r, v));
    gw_tpl_out *out = gw_tpl_out_open(r);
    gw_tpl_out_add(r, out, word + at, sizeof word - at, 0);
    return gw_tpl_out_close(r, out);
}

static gw_tv float_digits(gw_tpl *r, double f, const spec *s) {
    char word[DIGITS], shape[16];
    char type = s->type == '%' ? 'f' : s->type;
    int precision = s->has_precision ? (int)s->precision : 6;
    limit_precision(r, s);
    if (s->type == '%') {
        f *= 100;
    }
    if (!isfinite(f)) {
        const char *name = isnan(f) ? "nan" : "inf";
        return gw_tv_words(type == 'F' || type == 'E' || type == 'G' ? (isnan(f) ? "NAN" : "INF")
                                                                     : name);
    }
    if (type == 0 || (type == 'r' && !s->has_precision)) {
        gw_tpl_write_float(f, word);
        if (s->has_precision) { /* as g, but with a digit behind the point */
            snprintf(word, sizeof word, "%.*g", precision > 0 ? precision : 1, f);
            if (strpbrk(word, ".e") == NULL) {
                strcat(word, ".0");
            }
        }
    } else {
        snprintf(shape, sizeof shape, "%%%s.*%c", s->alternate ? "#" : "",
                 type == 'r' ? 'g' : type);
        snprintf(word, sizeof word, shape, precision, f);
    }
    gw_tpl_out *out = gw_tpl_out_open(r);
    gw_tpl_out_words(r, out, word);
    gw_tpl_out_words(r, out, s->type == '%' ? "%" : "");
    return gw_tpl_out_close(r, out);
}

static gw_tv grouped(gw_tpl *r, gw_tv digits, char mark, size_t size) {
    size_t whole = 0;
    while (whole < digits.n && digits.text[whole] != '.' && digits.text[whole] != 'e' &&
           digits.text[whole] != '%') {
        whole++;
    }
    gw_tpl_out *out = gw_tpl_out_open(r);
    for (size_t i = 0; i < digits.n; i++) {
        if (i > 0 && i < whole && (whole - i) % size == 0) {
            gw_tpl_out_add(r, out, &mark, 1, 0);
        }
        gw_tpl_out_text(r, out, gw_tv_cut(digits, i, 1));
    }
    return gw_tpl_out_close(r, out);
}

static void put_padded(gw_tpl *r, gw_tpl_out *out, gw_tv head, gw_tv body, const spec *s,
                       char preset) {
    char align = s->align != 0 ? s->align : preset;
    gw_tv fill = gw_tv_given(s->fill) ? s->fill : gw_tv_words(s->zero && align == '=' ? "0" : " ");
    int64_t n = (int64_t)(gw_tv_chars(r, head) + gw_tv_chars(r, body));
    int64_t more = s->width > n ? s->width - n : 0;
    int64_t front = align == '>' ? more : align == '^' ? more / 2 : 0;
    gw_tpl_out_repeat(r, out, fill, (size_t)front);
    gw_tpl_out_text(r, out, head);
    if (align == '=') {
        gw_tpl_out_repeat(r, out, fill, (size_t)more);
        more = 0;
    }
    gw_tpl_out_text(r, out, body);
    gw_tpl_out_repeat(r, out, fill, (size_t)(more - front));
}

static void put_number(gw_tpl *r, gw_tpl_out *out, gw_tv v, const spec *s) {
    const char *prefix = "";
    int real = v.kind == GW_TV_FLOAT || (s->type != 0 && strchr("eEfFgG%", s->type) != NULL);
    int negative = v.kind == GW_TV_BIG     ? gw_tpl_big_negative(v)
                   : v.kind == GW_TV_FLOAT ? signbit(v.f) != 0 && !isnan(v.f)
                                           : v.i < 0;
    gw_tv size = negative ? gw_tpl_negate(r, v) : gw_tpl_arithmetic(r, v, '+', gw_tv_int(0));
    if (v.kind == GW_TV_FLOAT) {
        size = gw_tv_float(fabs(v.f));
    }
    gw_tv digits =
        real ? float_digits(r, gw_tv_real(r, size), s) : integer_digits(r, size, s->type, &prefix);
    if (s->group != 0) {
        int other = s->type == 'b' || s->type == 'o' || s->type == 'x' || s->type == 'X';
        digits = grouped(r, digits, s->group, other ? 4 : 3);
    }
    gw_tv head = gw_tv_words(negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "");
    if (s->alternate && prefix[0] != '\0') {
        head = gw_tv_join2(r, head, gw_tv_words(prefix));
    }
    put_padded(r, out, head, digits, s, s->zero ? '=' : '>');
}

/* ---- percent --------------------------------------------------------------------------------- */

typedef struct percent {
    gw_tpl *r;
    gw_tv format, values; /* values: a tuple, a dict, or one */
    size_t at, taken;
    int named;
} percent;

static gw_tv next_value(percent *p) {
    if (p->values.kind != GW_TV_TUPLE) {
        if (p->taken++ > 0) {
            gw_tpl_raise(p->r, GW_E_TYPE, "not enough arguments for format string");
        }
        return p->values;
    }
    if (p->taken == p->values.list->n) {
        gw_tpl_raise(p->r, GW_E_TYPE, "not enough arguments for format string");
    }
    return p->values.list->at[p->taken++];
}

static char byte_at(gw_tv text, size_t at) { return at < text.n ? text.text[at] : '\0'; }

static int64_t read_count(percent *p) {
    int64_t n = 0;
    if (byte_at(p->format, p->at) == '*') {
        p->at++;
        return gw_tpl_int(p->r, next_value(p), "* wants int");
    }
    while (byte_at(p->format, p->at) >= '0' && byte_at(p->format, p->at) <= '9') {
        n = n < INT32_MAX ? n * 10 + (p->format.text[p->at] - '0') : n;
        p->at++;
    }
    return n;
}

static gw_tv read_key(percent *p) {
    size_t begin = ++p->at, depth = 1;
    for (; p->at < p->format.n && depth > 0; p->at++) {
        depth += p->format.text[p->at] == '(';
        depth -= p->format.text[p->at] == ')';
    }
    if (depth > 0) {
        gw_tpl_raise(p->r, GW_E_TYPE, "incomplete format key");
    }
    if (p->values.kind != GW_TV_DICT) {
        gw_tpl_raise(p->r, GW_E_TYPE, "format requires a mapping");
    }
    p->named = 1;
    gw_tv key = gw_tv_cut(p->format, begin, p->at - 1 - begin);
    gw_tv *value = gw_tpl_find(p->r, p->values.dict, key);
    if (value == NULL) {
        gw_tpl_raise(p->r, GW_E_TYPE, "the format names a key that is not there: '%.*s'",
                     (int)(key.n > 80 ? 80 : key.n), key.text);
    }
    return *value;
}

static gw_tv ascii_repr(gw_tpl *r, gw_tv v) {
    gw_tv text = gw_tv_repr(r, v);
    gw_tpl_out *out = gw_tpl_out_open(r);
    for (size_t at = 0; at < text.n;) {
        char word[12];
        uint32_t cp = 0;
        size_t n = gw_utf8_next(text.text + at, text.n - at, &cp);
        n = n > 0 ? n : 1; /* what is no UTF-8 stays */
        if (cp < 0x80) {
            gw_tpl_out_text(r, out, gw_tv_cut(text, at, n));
        } else {
            snprintf(word, sizeof word,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     (unsigned)cp);
            gw_tpl_out_add(r, out, word, strlen(word), gw_tv_typed_at(text, at));
        }
        at += n;
    }
    return gw_tpl_out_close(r, out);
}

static gw_tv cut_to(gw_tpl *r, gw_tv text, const spec *s) {
    return s->has_precision ? gw_tv_cut(text, 0, gw_tpl_at_char(r, text, (size_t)s->precision))
                            : text;
}

static gw_tv one_char(gw_tpl *r, gw_tv v) {
    if (v.kind == GW_TV_TEXT && gw_tv_chars(r, v) == 1) {
        return v;
    }
    int64_t cp = gw_tpl_int(r, v, "%c requires int or char");
    if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
        gw_tpl_raise(r, GW_E_TYPE, "%%c arg not in range(0x110000)");
    }
    gw_tpl_out *out = gw_tpl_out_open(r);
    gw_tpl_out_char(r, out, (uint32_t)cp, 0);
    return gw_tpl_out_close(r, out);
}

static void put_percent(percent *p, gw_tpl_out *out, gw_tv v, spec *s) {
    gw_tpl *r = p->r;
    gw_tv text;
    switch (s->type) {
    case 's':
    case 'r':
    case 'a':
        if (v.kind == GW_TV_UNDEFINED && s->type == 's') {
            v = gw_tv_words("");
        }
        text = s->type == 's'   ? gw_tv_soft(r, v)
               : s->type == 'r' ? gw_tv_repr(r, v)
                                : ascii_repr(r, v);
        text = p->format.safe ? gw_tpl_escape(r, text) : text;
        s->zero = 0;
        put_padded(r, out, gw_tv_words(""), cut_to(r, text, s), s, '>');
        return;
    case 'c':
        put_padded(r, out, gw_tv_words(""), one_char(r, v), s, '>');
        return;
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        break;
    default:
        gw_tpl_raise(r, GW_E_TYPE, "unsupported format character '%c'",
                     s->type >= 0x20 && s->type < 0x7F ? s->type : '?');
    }
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (!gw_tv_is_number(v)) {
        gw_tpl_raise(r, GW_E_TYPE, "%%%c format: a real number is required, not %s", s->type,
                     gw_tv_type(v));
    }
    int whole = strchr("diuoxX", s->type) != NULL;
    if (whole && v.kind == GW_TV_FLOAT) {
        v = gw_tpl_whole(r, v.f);
    }
    if (strchr("diu", s->type) != NULL) {
        s->type = 0;
    }
    v = v.kind == GW_TV_BOOL ? gw_tv_int(v.i) : v;
    if (whole && s->has_precision) { /* at least so many digits */
        gw_tpl_out *digits = gw_tpl_out_open(r);
        spec inner = {.zero = 1, .width = s->precision, .type = s->type};
        put_number(r, digits, v, &inner);
        put_padded(r, out, gw_tv_words(""), gw_tpl_out_close(r, digits), s, '>');
        return;
    }
    put_number(r, out, v, s);
}

/* Behind a '%'. */
static void put_next(percent *p, gw_tpl_out *out) {
    spec s = {.fill = {.kind = GW_TV_ABSENT}};
    gw_tv value = {.kind = GW_TV_ABSENT};
    if (byte_at(p->format, p->at) == '(') {
        value = read_key(p);
    }
    for (char c; (c = byte_at(p->format, p->at)) != '\0' && strchr("-+ #0", c) != NULL; p->at++) {
        s.align = c == '-' ? '<' : s.align;
        s.sign = c == '+' || (c == ' ' && s.sign == 0) ? c : s.sign;
        s.alternate |= c == '#';
        s.zero |= c == '0';
    }
    s.width = read_count(p);
    if (s.width < 0) {
        s.align = '<';
        s.width = s.width > -INT32_MAX ? -s.width : INT32_MAX;
    }
    if (byte_at(p->format, p->at) == '.') {
        p->at++;
        s.has_precision = 1;
        s.precision = read_count(p);
        s.precision = s.precision < 0 ? 0 : s.precision;
    }
    while (byte_at(p->format, p->at) != '\0' && strchr("hlL", byte_at(p->format, p->at)) != NULL) {
        p->at++;
    }
    if (p->at == p->format.n) {
        gw_tpl_raise(p->r, GW_E_TYPE, "incomplete format");
    }
    s.type = p->format.text[p->at++];
    if (s.type == '%') {
        gw_tpl_out_words(p->r, out, "%");
        return;
    }
    put_percent(p, out, gw_tv_given(value) ? value : next_value(p), &s);
}

gw_tv gw_tpl_percent(gw_tpl *r, gw_tv format, gw_tv values) {
    percent p = {.r = r, .format = format, .values = values};
    gw_tpl_out *out = gw_tpl_out_open(r);
    while (p.at < format.n) {
        const char *hit = memchr(format.text + p.at, '%', format.n - p.at);
        size_t end = hit != NULL ? (size_t)(hit - format.text) : format.n;
        gw_tpl_out_text(r, out, gw_tv_cut(format, p.at, end - p.at));
        p.at = end;
        if (hit != NULL) {
            p.at++;
            put_next(&p, out);
            gw_tpl_charge(r, 1);
        }
    }
    size_t given = values.kind == GW_TV_TUPLE ? values.list->n : 1;
    /* what has items by key may be left over: a dict, but Python does not look what else it is */
    int keyed = values.kind == GW_TV_DICT || values.kind == GW_TV_LIST ||
                values.kind == GW_TV_RANGE || values.kind == GW_TV_UNDEFINED;
    if (!p.named && p.taken < given && !keyed) {
        gw_tpl_raise(r, GW_E_TYPE, "not all arguments converted during string formatting");
    }
    gw_tv text = gw_tpl_out_close(r, out);
    text.safe = format.safe;
    return text;
}

/* ---- braces ---------------------------------------------------------------------------------- */

typedef struct braces {
    gw_tpl *r;
    const gw_tv *a; /* positional and named arguments */
    size_t next;
    int numbered; /* fields with a number were seen */
} braces;

static gw_tv argument(braces *b, gw_tv name) {
    size_t digits = 0;
    while (digits < name.n && name.text[digits] >= '0' && name.text[digits] <= '9') {
        digits++;
    }
    if (name.n == 0 || digits == name.n) {
        size_t at = name.n == 0  ? b->next++
                    : name.n < 9 ? (size_t)strtoul(name.text, NULL, 10)
                                 : SIZE_MAX;
        if (name.n == 0 ? b->numbered : b->next > 0) {
            gw_tpl_raise(b->r, GW_E_TYPE, "automatic field numbering and numbers are mixed");
        }
        b->numbered |= name.n > 0;
        if (at >= b->a[0].list->n) {
            gw_tpl_raise(b->r, GW_E_TYPE, "Replacement index %zu out of range", at);
        }
        return b->a[0].list->at[at];
    }
    gw_tv *value = gw_tpl_find(b->r, b->a[1].dict, name);
    if (value == NULL) {
        gw_tpl_raise(b->r, GW_E_TYPE, "the format names what is not given: '%.*s'",
                     (int)(name.n > 80 ? 80 : name.n), name.text);
    }
    return *value;
}

/* first.member[item]... */
static gw_tv field_value(braces *b, gw_tv field) {
    size_t at = 0;
    while (at < field.n && field.text[at] != '.' && field.text[at] != '[') {
        at++;
    }
    gw_tv v = argument(b, gw_tv_cut(field, 0, at));
    while (at < field.n) {
        int member = field.text[at] == '.';
        size_t begin = ++at;
        while (at < field.n &&
               (member ? field.text[at] != '.' && field.text[at] != '[' : field.text[at] != ']')) {
            at++;
        }
        gw_tv name = gw_tv_cut(field, begin, at - begin);
        at += !member && at < field.n;
        if (member) {
            v = gw_tpl_attribute(b->r, v, name.text, name.n);
        } else {
            v = gw_tpl_path(b->r, v, name, NULL);
        }
        if (v.kind == GW_TV_UNDEFINED) {
            gw_tpl_raise_undefined(b->r, v);
        }
    }
    return v;
}

static void read_spec(gw_tpl *r, gw_tv text, spec *s) {
    size_t at = 0, first = text.n > 0 ? gw_utf8_next(text.text, text.n, NULL) : 0;
    *s = (spec){.fill = {.kind = GW_TV_ABSENT}};
    if (first > 0 && byte_at(text, first) != '\0' && strchr("<>^=", byte_at(text, first)) != NULL) {
        s->fill = gw_tv_cut(text, 0, first);
        s->align = text.text[first];
        at = first + 1;
    } else if (text.n > 0 && text.text[0] != '\0' && strchr("<>^=", text.text[0]) != NULL) {
        s->align = text.text[at++];
    }
    char c = byte_at(text, at);
    if (c == '+' || c == '-' || c == ' ') {
        s->sign = c == '-' ? 0 : c;
        at++;
    }
    at += byte_at(text, at) == 'z';
    if (byte_at(text, at) == '#') {
        s->alternate = 1;
        at++;
    }
    if (byte_at(text, at) == '0') {
        s->zero = 1;
        at++;
    }
    percent count = {.r = r, .format = text, .at = at};
    s->width = byte_at(text, at) != '*' ? read_count(&count) : 0;
    at = count.at;
    if (byte_at(text, at) == ',' || byte_at(text, at) == '_') {
        s->group = text.text[at++];
    }
    if (byte_at(text, at) == '.') {
        count.at = at + 1;
        s->has_precision = 1;
        s->precision = byte_at(text, at + 1) != '*' ? read_count(&count) : 0;
        at = count.at;
    }
    s->type = byte_at(text, at);
    at += s->type != '\0';
    if (at != text.n || (s->type != '\0' && strchr("bcdeEfFgGnosxX%", s->type) == NULL)) {
        gw_tpl_raise(r, GW_E_TYPE, "Invalid format specifier '%.*s'",
                     (int)(text.n > 80 ? 80 : text.n), text.text);
    }
}

static void put_formatted(gw_tpl *r, gw_tpl_out *out, gw_tv v, gw_tv text, int safe) {
    spec s;
    read_spec(r, text, &s);
    if (v.kind == GW_TV_UNDEFINED && text.n == 0) {
        return;
    }
    if (gw_tv_is_number(v) && !(v.kind == GW_TV_BOOL && text.n == 0) && s.type != 's') {
        v = v.kind == GW_TV_BOOL ? gw_tv_int(v.i) : v;
        s.type = s.type == 'd' || s.type == 'n' ? 0 : s.type;
        if (s.type == 'c') {
            put_padded(r, out, gw_tv_words(""), one_char(r, v), &s, '<');
            return;
        }
        put_number(r, out, v, &s);
        return;
    }
    if ((s.type != 0 && s.type != 's') ||
        (v.kind != GW_TV_TEXT && text.n > 0 && v.kind != GW_TV_BOOL)) {
        gw_tpl_raise(r, GW_E_TYPE, "a value of type '%s' has no format '%.*s'", gw_tv_type(v),
                     (int)(text.n > 80 ? 80 : text.n), text.text);
    }
    gw_tv shown = safe ? gw_tpl_escape(r, v) : gw_tv_str(r, v);
    put_padded(r, out, gw_tv_words(""), cut_to(r, shown, &s), &s, s.zero ? '=' : '<');
}

static gw_tv fill_braces(braces *b, gw_tv format, int depth);

/* A field without its braces: name!conversion:spec. */
static void put_field(braces *b, gw_tpl_out *out, gw_tv field, int safe, int depth) {
    size_t end = 0, brackets = 0;
    while (end < field.n && (brackets > 0 || (field.text[end] != '!' && field.text[end] != ':'))) {
        brackets += field.text[end] == '[';
        brackets -= brackets > 0 && field.text[end] == ']';
        end++;
    }
    gw_tv v = field_value(b, gw_tv_cut(field, 0, end)), text = gw_tv_words("");
    if (byte_at(field, end) == '!') {
        char how = byte_at(field, end + 1);
        if (how != 's' && how != 'r' && how != 'a') {
            gw_tpl_raise(b->r, GW_E_TYPE, "Unknown conversion specifier");
        }
        v = how == 's'   ? gw_tv_str(b->r, v)
            : how == 'r' ? gw_tv_repr(b->r, v)
                         : ascii_repr(b->r, v);
        end += 2;
    }
    if (byte_at(field, end) == ':') {
        text = gw_tv_cut(field, end + 1, field.n - end - 1);
        if (memchr(text.text, '{', text.n) != NULL) {
            text = fill_braces(b, text, depth + 1);
        }
    } else if (end < field.n) {
        gw_tpl_raise(b->r, GW_E_TYPE, "expected ':' after conversion specifier");
    }
    put_formatted(b->r, out, v, text, safe);
}

static gw_tv fill_braces(braces *b, gw_tv format, int depth) {
    gw_tpl_out *out = gw_tpl_out_open(b->r);
    if (depth > 2) {
        gw_tpl_raise(b->r, GW_E_TYPE, "Max string recursion exceeded");
    }
    for (size_t at = 0; at < format.n;) {
        size_t end = at;
        while (end < format.n && format.text[end] != '{' && format.text[end] != '}') {
            end++;
        }
        gw_tpl_out_text(b->r, out, gw_tv_cut(format, at, end - at));
        gw_tpl_charge(b->r, 1);
        at = end;
        if (at == format.n) {
            break;
        }
        if (byte_at(format, at + 1) == format.text[at]) { /* doubled: itself */
            gw_tpl_out_text(b->r, out, gw_tv_cut(format, at, 1));
            at += 2;
            continue;
        }
        size_t begin = ++at, open = 1;
        for (; at < format.n && open > 0; at++) {
            open += format.text[at] == '{';
            open -= format.text[at] == '}';
        }
        if (format.text[begin - 1] == '}' || open > 0) {
            gw_tpl_raise(b->r, GW_E_TYPE, "Single '%c' encountered in format string",
                         format.text[begin - 1]);
        }
        put_field(b, out, gw_tv_cut(format, begin, at - 1 - begin), format.safe, depth);
    }
    gw_tv text = gw_tpl_out_close(b->r, out);
    text.safe = format.safe;
    return text;
}

gw_tv gw_tpl_format(gw_tpl *r, gw_tv format, const gw_tv *a) {
    braces b = {.r = r, .a = a};
    return fill_braces(&b, format, 1);
}
