/* core/text/template/lexer.c - cuts a template into tokens, by the rules of Jinja's own lexer:
 * whitespace control, trim_blocks and lstrip_blocks happen here.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/text/template/number.h"
#include "core/text/template/tree.h"
#include "core/text/utf8.h"

int gw_tpl_is_space(uint32_t cp) {
    return (cp >= 0x1C && cp <= 0x1F) || (cp != 0 && gw_utf8_is_space(cp));
}

gw_status gw_lexer_fail(const gw_lexer *x, int line, const char *fmt, ...) {
    char message[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return gw_fail(GW_E_SYNTAX, x->where, "line %d: %s", line, message);
}

static int line_at(gw_lexer *x, size_t at) {
    const char *p = x->text + x->counted, *end = x->text + at;
    while (p < end && (p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        x->line++;
        p++;
    }
    x->counted = at > x->counted ? at : x->counted;
    return x->line;
}

/* ---- whitespace ------------------------------------------------------------------------------ */

static size_t skip_space(const gw_lexer *x, size_t at) {
    uint32_t cp;
    size_t n;
    while ((n = gw_utf8_next(x->text + at, x->bytes - at, &cp)) > 0 && gw_tpl_is_space(cp)) {
        at += n;
    }
    return at;
}

static size_t strip_end(const gw_lexer *x, size_t from, size_t to) {
    while (to > from) {
        size_t n = 1;
        uint32_t cp;
        while (n < 4 && n < to - from && ((unsigned char)x->text[to - n] & 0xC0) == 0x80) {
            n++;
        }
        if (gw_utf8_next(x->text + to - n, n, &cp) != n || !gw_tpl_is_space(cp)) {
            break;
        }
        to -= n;
    }
    return to;
}

/* Data from..to before a tag with such a sign: what of it stays. */
static size_t before_tag(const gw_lexer *x, size_t from, size_t to, char sign, int strips) {
    if (sign == '-') {
        return strip_end(x, from, to);
    }
    if (sign == '+' || !strips) {
        return to;
    }
    size_t line = to;
    while (line > from && x->text[line - 1] != '\n') {
        line--;
    }
    if ((line > from || x->line_start) && line < to && strip_end(x, line, to) == line) {
        return line;
    }
    return to;
}

/* Behind "%}" or "#}" at `at`, which `sign` stood before. */
static size_t after_tag(const gw_lexer *x, size_t at, char sign) {
    if (sign == '-') {
        return skip_space(x, at);
    }
    return sign != '+' && at < x->bytes && x->text[at] == '\n' ? at + 1 : at;
}

static void move_to(gw_lexer *x, size_t at) {
    x->line_start = at > 0 && x->text[at - 1] == '\n';
    x->at = at;
}

static char sign_at(const gw_lexer *x, size_t at) {
    return at < x->bytes && (x->text[at] == '-' || x->text[at] == '+') ? x->text[at] : 0;
}

static int has_word(const gw_lexer *x, size_t at, const char *word) {
    size_t n = strlen(word);
    return x->bytes - at >= n && memcmp(x->text + at, word, n) == 0;
}

/* ---- data, comments, raw --------------------------------------------------------------------- */

/* {% raw %} at `at`: where its content begins, else 0. */
static size_t raw_begins(const gw_lexer *x, size_t at) {
    at += 2;
    at = skip_space(x, at + (sign_at(x, at) != 0));
    if (!has_word(x, at, "raw")) {
        return 0;
    }
    at = skip_space(x, at + 3);
    if (has_word(x, at, "-%}")) {
        return skip_space(x, at + 3);
    }
    return has_word(x, at, "%}") ? at + 2 : 0;
}

/* {% endraw %} at `at`: what lies behind it, else 0. */
static size_t raw_ends(const gw_lexer *x, size_t at) {
    at += 2;
    at = skip_space(x, at + (sign_at(x, at) != 0));
    if (!has_word(x, at, "endraw")) {
        return 0;
    }
    at = skip_space(x, at + 6);
    char sign = sign_at(x, at);
    at += sign != 0;
    return has_word(x, at, "%}") ? after_tag(x, at + 2, sign) : 0;
}

static const char *find(const gw_lexer *x, size_t at, const char *word) {
    return memmem(x->text + at, x->bytes - at, word, strlen(word));
}

static gw_status skip_comment(gw_lexer *x, size_t begin) {
    size_t at = begin + 2;
    at += sign_at(x, at) != 0;
    const char *end = find(x, at, "#}");
    if (end == NULL && at == x->bytes) { /* as Jinja: one that opens at the very end is none */
        move_to(x, at);
        return GW_OK;
    }
    if (end == NULL) {
        return gw_lexer_fail(x, line_at(x, begin), "Missing end of comment tag");
    }
    size_t to = (size_t)(end - x->text);
    char sign = to > at ? sign_at(x, to - 1) : 0;
    move_to(x, after_tag(x, to + 2, sign));
    return GW_OK;
}

static gw_status take_raw(gw_lexer *x, size_t from, gw_token *out) {
    size_t at = from, end;
    for (;; at++) {
        const char *next = find(x, at, "{%");
        if (next == NULL) {
            return gw_lexer_fail(x, line_at(x, from), "Missing end of raw directive");
        }
        at = (size_t)(next - x->text);
        end = raw_ends(x, at);
        if (end != 0) {
            break;
        }
    }
    x->line_start = from > 0 && x->text[from - 1] == '\n';
    size_t to = before_tag(x, from, at, sign_at(x, at + 2), 1);
    *out = (gw_token){
        .kind = GW_TOK_DATA, .line = line_at(x, from), .text = x->text + from, .bytes = to - from};
    move_to(x, end);
    return GW_OK;
}

/* The next of "{{", "{%", "{#"; the end of the text when there is none. */
static size_t find_tag(const gw_lexer *x, size_t at) {
    while (at < x->bytes) {
        const char *p = memchr(x->text + at, '{', x->bytes - at);
        if (p == NULL) {
            break;
        }
        at = (size_t)(p - x->text);
        if (at + 1 < x->bytes && strchr("{%#", x->text[at + 1]) != NULL && x->text[at + 1] != 0) {
            return at;
        }
        at++;
    }
    return x->bytes;
}

/* Data up to the next tag, or the tag itself when none is in between. */
static gw_status next_outside(gw_lexer *x, gw_token *out) {
    for (;;) {
        size_t from = x->at, tag = find_tag(x, from);
        if (tag == x->bytes) {
            *out = (gw_token){.kind = from < tag ? GW_TOK_DATA : GW_TOK_END,
                              .line = line_at(x, from),
                              .text = x->text + from,
                              .bytes = tag - from};
            x->at = tag;
            return GW_OK;
        }
        char kind = x->text[tag + 1], sign = sign_at(x, tag + 2);
        size_t to = before_tag(x, from, tag, sign, kind != '{');
        if (to > from) {
            *out = (gw_token){.kind = GW_TOK_DATA,
                              .line = line_at(x, from),
                              .text = x->text + from,
                              .bytes = to - from};
            x->at = tag; /* line_start is of no more use: no whitespace is left before the tag */
            x->line_start = 0;
            return GW_OK;
        }
        if (kind == '#') {
            GW_TRY(skip_comment(x, tag));
            continue;
        }
        size_t raw = kind == '%' ? raw_begins(x, tag) : 0;
        if (raw != 0) {
            GW_TRY(take_raw(x, raw, out));
            if (out->bytes > 0) {
                return GW_OK;
            }
            continue;
        }
        x->state = kind == '{' ? GW_LEX_PRINT : GW_LEX_BLOCK;
        x->n_open = 0;
        *out =
            (gw_token){.kind = kind == '{' ? GW_TOK_PRINT : GW_TOK_BLOCK, .line = line_at(x, tag)};
        move_to(x, tag + 2 + (sign != 0));
        return GW_OK;
    }
}

/* ---- inside a tag ---------------------------------------------------------------------------- */

static int is_digit(const gw_lexer *x, size_t at) {
    return at < x->bytes && x->text[at] >= '0' && x->text[at] <= '9';
}

/* Digits with single underscores between them. */
static size_t digits(const gw_lexer *x, size_t at) {
    if (!is_digit(x, at)) {
        return at;
    }
    while (is_digit(x, at) || (at < x->bytes && x->text[at] == '_' && is_digit(x, at + 1))) {
        at++;
    }
    return at;
}

static size_t float_end(const gw_lexer *x, size_t at) {
    size_t end = digits(x, at), whole = end;
    if (at > 0 && x->text[at - 1] == '.') {
        return at;
    }
    if (end < x->bytes && x->text[end] == '.' && is_digit(x, end + 1)) {
        end = digits(x, end + 1);
    }
    if (end < x->bytes && (x->text[end] == 'e' || x->text[end] == 'E')) {
        size_t power = end + 1;
        power += power < x->bytes && (x->text[power] == '+' || x->text[power] == '-');
        if (is_digit(x, power)) {
            return digits(x, power);
        }
    }
    return end > whole ? end : at;
}

static size_t integer_end(const gw_lexer *x, size_t at, int *base) {
    static const char letters[] = "bBoOxX";
    const char *letter =
        x->text[at] == '0' && at + 1 < x->bytes ? memchr(letters, x->text[at + 1], 6) : NULL;
    if (letter != NULL) {
        int kind = (int)(letter - letters) / 2;
        *base = kind == 0 ? 2 : kind == 1 ? 8 : 16;
        size_t end = at + 2, last = 0;
        while (end < x->bytes) {
            char c = x->text[end], low = (char)(c | 32);
            int value = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 87 : 99;
            if (c == '_' && last != end) { /* an underscore stands before a digit */
                last = ++end;
                continue;
            }
            if (value >= *base) {
                break;
            }
            end++;
        }
        end -= last == end; /* an underscore with nothing behind it */
        if (end > at + 2) {
            return end;
        }
    }
    *base = 10;
    if (x->text[at] == '0') {
        size_t end = at + 1;
        while (end < x->bytes &&
               (x->text[end] == '0' ||
                (x->text[end] == '_' && end + 1 < x->bytes && x->text[end + 1] == '0'))) {
            end++;
        }
        return end;
    }
    return digits(x, at);
}

static gw_status take_number(gw_lexer *x, gw_token *out) {
    char word[400];
    int base = 0;
    size_t end = float_end(x, x->at), n = 0;
    int real = end > x->at;
    if (!real) {
        end = integer_end(x, x->at, &base);
    }
    for (size_t i = x->at + (base != 0 && base != 10 ? 2 : 0); i < end; i++) {
        if (x->text[i] != '_') {
            if (n + 1 >= sizeof word) {
                return gw_lexer_fail(x, line_at(x, x->at), "a number of too many digits");
            }
            word[n++] = x->text[i];
        }
    }
    word[n] = '\0';
    out->kind = real ? GW_TOK_FLOAT : GW_TOK_INT;
    out->bytes = end - x->at;
    if (real) {
        out->value = gw_tv_float(gw_tpl_read_float(word));
    } else {
        GW_TRY(gw_tpl_read_integer(x->arena, word, n, base, &out->value));
    }
    x->at = end;
    return GW_OK;
}

int gw_tpl_is_word(uint32_t cp) {
    if (cp < 0x80) {
        return cp == '_' || (cp >= '0' && cp <= '9') || ((cp | 32) >= 'a' && (cp | 32) <= 'z');
    }
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NO:
        return 1;
    default:
        return 0;
    }
}

/* Marks may be inside a name. */
static int is_word(const gw_lexer *x, size_t at, size_t *n) {
    uint32_t cp = 0;
    *n = gw_utf8_next(x->text + at, x->bytes - at, &cp);
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return *n > 0 && (gw_tpl_is_word(cp) || c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC);
}

static int hex(const char *p, size_t n, size_t room, uint32_t *value) {
    *value = 0;
    if (n > room) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        char c = p[i], low = (char)(c | 32);
        int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 87 : -1;
        if (digit < 0) {
            return 0;
        }
        *value = *value * 16 + (uint32_t)digit;
    }
    return 1;
}

/* The escape behind the backslash at p [n]: written to out, its length; 0: ill-formed. */
static size_t escape(const char *p, size_t n, char *out, size_t *wrote) {
    static const char letters[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    const char *letter = memchr(letters, p[0], sizeof letters - 1);
    uint32_t cp, low;
    if (letter != NULL) {
        out[0] = values[letter - letters];
        *wrote = 1;
        return 1;
    }
    if (p[0] == '\n') {
        *wrote = 0;
        return 1;
    }
    if (p[0] >= '0' && p[0] <= '7') {
        size_t used = 0;
        for (cp = 0; used < 3 && used < n && p[used] >= '0' && p[used] <= '7'; used++) {
            cp = cp * 8 + (uint32_t)(p[used] - '0');
        }
        *wrote = gw_utf8_put(cp, out);
        return used;
    }
    size_t wide = p[0] == 'x' ? 2 : p[0] == 'u' ? 4 : p[0] == 'U' ? 8 : 0;
    if (wide == 0) { /* no escape: both characters stay */
        out[0] = '\\';
        *wrote = 1;
        return p[0] == 'N' ? 0 : SIZE_MAX;
    }
    if (!hex(p + 1, wide, n - 1, &cp) || cp > 0x10FFFF) {
        return 0;
    }
    size_t used = 1 + wide;
    if (cp >= 0xD800 && cp < 0xDC00 && n - used >= 6 && p[used] == '\\' && p[used + 1] == 'u' &&
        hex(p + used + 2, 4, n - used - 2, &low) && low >= 0xDC00 && low < 0xE000) {
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
        used += 6;
    }
    *wrote = gw_utf8_put(cp >= 0xD800 && cp < 0xE000 ? 0xFFFD : cp, out);
    return used;
}

static gw_status take_text(gw_lexer *x, gw_token *out) {
    const char *p = x->text + x->at + 1, *end = x->text + x->bytes;
    char quote = x->text[x->at];
    size_t n = 0;
    while (p + n < end && p[n] != quote) {
        n += p[n] == '\\' && p + n + 1 < end ? 2 : 1;
    }
    if (p + n >= end) {
        return gw_lexer_fail(x, out->line,
                             "a text that begins here has no end (unexpected char %c)", quote);
    }
    char *text = gw_arena_alloc(x->arena, n + 4);
    size_t wrote = 0;
    if (text == NULL) {
        return gw_fail(GW_E_NOMEM, x->where, "no memory");
    }
    for (size_t i = 0; i < n;) {
        if (p[i] != '\\') {
            text[wrote++] = p[i++];
            continue;
        }
        size_t put = 0, used = escape(p + i + 1, n - i - 1, text + wrote, &put);
        if (used == 0) {
            return gw_lexer_fail(x, out->line,
                                 "a text with an escape that stands for no character");
        }
        i += used == SIZE_MAX ? 1 : 1 + used;
        wrote += put;
    }
    out->kind = GW_TOK_TEXT;
    out->text = text;
    out->bytes = wrote;
    x->at += n + 2;
    return GW_OK;
}

static gw_status take_operator(gw_lexer *x, gw_token *out) {
    static const struct {
        char text[3];
        int op;
    } doubles[] = {{"//", GW_OP_FLOOR}, {"**", GW_OP_POWER}, {"==", GW_OP_EQ},
                   {"!=", GW_OP_NE},    {">=", GW_OP_GE},    {"<=", GW_OP_LE}};
    char c = x->text[x->at];
    out->kind = GW_TOK_OP;
    out->bytes = 1;
    out->op = c;
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++) {
        if (has_word(x, x->at, doubles[i].text)) {
            out->op = doubles[i].op;
            out->bytes = 2;
        }
    }
    if (out->bytes == 1 && (c == 0 || strchr("+-/*%~[](){}><=.:|,;", c) == NULL)) {
        uint32_t cp = (unsigned char)c;
        size_t n = gw_utf8_next(x->text + x->at, x->bytes - x->at, &cp);
        return c > 0x20 && c < 0x7F
                   ? gw_lexer_fail(x, out->line, "unexpected char '%c'", c)
                   : gw_lexer_fail(x, out->line, "unexpected char U+%04X '%.*s'", (unsigned)cp,
                                   cp < 0x20 ? 0 : (int)n, x->text + x->at);
    }
    const char *opens = out->bytes == 1 && c != 0 ? strchr("{[(", c) : NULL;
    if (opens != NULL) {
        if (x->n_open == GW_TPL_OPEN_MAX) {
            return gw_lexer_fail(x, out->line, "more than %d brackets inside one another",
                                 GW_TPL_OPEN_MAX);
        }
        x->open[x->n_open++] = *opens == '{' ? '}' : *opens == '[' ? ']' : ')';
    } else if (out->bytes == 1 && (c == '}' || c == ']' || c == ')')) {
        if (x->n_open == 0) {
            return gw_lexer_fail(x, out->line, "unexpected '%c'", c);
        }
        char expected = x->open[--x->n_open];
        if (expected != c) {
            return gw_lexer_fail(x, out->line, "unexpected '%c', expected '%c'", c, expected);
        }
    }
    x->at += out->bytes;
    return GW_OK;
}

/* The end of the tag at x->at: true when it is there. */
static int take_end(gw_lexer *x, gw_token *out) {
    const char *close = x->state == GW_LEX_PRINT ? "}}" : "%}";
    char sign = sign_at(x, x->at);
    size_t at = x->at + (sign != 0);
    if (x->n_open > 0 || !has_word(x, at, close) || (sign == '+' && x->state == GW_LEX_PRINT)) {
        return 0;
    }
    out->kind = x->state == GW_LEX_PRINT ? GW_TOK_PRINT_END : GW_TOK_BLOCK_END;
    move_to(x, x->state == GW_LEX_BLOCK ? after_tag(x, at + 2, sign)
               : sign == '-'            ? skip_space(x, at + 2)
                                        : at + 2);
    x->state = GW_LEX_DATA;
    return 1;
}

static gw_status next_token(gw_lexer *x, gw_token *out) {
    if (x->state == GW_LEX_DATA) {
        return next_outside(x, out);
    }
    size_t skipped = skip_space(x, x->at), n;
    if (!(skipped > x->at)) {
        *out = (gw_token){.line = line_at(x, x->at)};
        if (take_end(x, out)) {
            return GW_OK;
        }
    }
    x->at = skipped;
    *out = (gw_token){.line = line_at(x, x->at), .text = x->text + x->at};
    if (x->at == x->bytes) {
        return GW_OK; /* END */
    }
    if (take_end(x, out)) {
        return GW_OK;
    }
    char c = x->text[x->at];
    if (is_digit(x, x->at)) {
        return take_number(x, out);
    }
    if (is_word(x, x->at, &n)) {
        out->kind = GW_TOK_NAME;
        while (x->at < x->bytes && is_word(x, x->at, &n)) {
            x->at += n;
            out->bytes += n;
        }
        return GW_OK;
    }
    return c == '\'' || c == '"' ? take_text(x, out) : take_operator(x, out);
}

/* The end of the template is on the line of the last token, as in Jinja. */
gw_status gw_lexer_next(gw_lexer *x, gw_token *out) {
    GW_TRY(next_token(x, out));
    if (out->kind == GW_TOK_END) {
        out->line = x->last_line > 0 ? x->last_line : 1;
    }
    x->last_line = out->line;
    return GW_OK;
}
