/* core/text/grammar/grammar.c - reads GBNF; see grammar.h and docs/grammar.md. Nothing here
 * recurses. */
#include "core/text/grammar/grammar.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/base/text.h"
#include "core/text/grammar/grammar_source.h"
#include "core/text/utf8.h"

typedef struct frame { /* an open parenthesis; the first is the rule itself */
    uint32_t rule, alt;
    uint32_t tail, before; /* the last item; the one before the last term */
    int has_term;
    size_t opened;
} frame;

typedef struct reader {
    gw_source *s;
    const char *text;
    size_t n, at;
    gw_map *names;
    frame *frames;
    size_t depth, capacity;
    gw_code_range *ranges;
    size_t n_ranges, ranges_capacity;
    size_t line_at, line; /* where the line begins that was counted last */
} reader;

/* ---- places ---------------------------------------------------------------------------------- */

static void place(reader *r, size_t at, uint32_t *line, uint32_t *column) {
    if (at < r->line_at) {
        r->line_at = r->line = 0;
    }
    for (const char *nl; (nl = memchr(r->text + r->line_at, '\n', at - r->line_at)) != NULL;) {
        r->line_at = (size_t)(nl - r->text) + 1;
        r->line++;
    }
    *line = (uint32_t)r->line + 1;
    *column = (uint32_t)gw_utf8_count(r->text + r->line_at, at - r->line_at) + 1;
}

static gw_status fail_at(reader *r, size_t at, gw_status status, const char *fmt, ...)
    GW_PRINTF(4, 5);

static gw_status fail_at(reader *r, size_t at, gw_status status, const char *fmt, ...) {
    char message[200];
    uint32_t line, column;
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    place(r, at, &line, &column);
    return gw_fail(status, r->s->where, "line %u column %u: %s", line, column, message);
}

static int peek(const reader *r) { return r->at < r->n ? (unsigned char)r->text[r->at] : -1; }

static int starts(const reader *r, const char *word) {
    size_t n = strlen(word);
    return r->n - r->at >= n && memcmp(r->text + r->at, word, n) == 0;
}

static void skip_space(reader *r, int newlines) {
    for (int c; (c = peek(r)) >= 0; r->at++) {
        if (c == '#') {
            const char *end = memchr(r->text + r->at, '\n', r->n - r->at);
            r->at = end != NULL ? (size_t)(end - r->text) : r->n;
            c = peek(r);
        }
        if (c != ' ' && c != '\t' && !(newlines && (c == '\n' || c == '\r'))) {
            return;
        }
    }
}

/* What stands here, for a message. */
static const char *seen(const reader *r, char out[24]) {
    int c = peek(r);
    size_t n = c >= 0 ? gw_utf8_next(r->text + r->at, r->n - r->at, NULL) : 0;
    if (c < 0) {
        return "the end of the text";
    }
    if (c < 0x20 || c == 0x7F || n == 0) {
        snprintf(out, 24, c == '\n' || c == '\r' ? "the end of the line" : "byte 0x%02X", c);
    } else {
        snprintf(out, 24, "'%.*s'", (int)n, r->text + r->at);
    }
    return out;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int is_word(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static int shown(size_t n) { return n < 60 ? (int)n : 60; }

/* The rule of the name that begins here; made when it is new. */
static gw_status read_name(reader *r, uint32_t *rule) {
    size_t begin = r->at, known;
    while (is_word(peek(r))) {
        r->at++;
    }
    size_t n = r->at - begin;
    if (gw_map_find(r->names, r->text + begin, n, &known)) {
        *rule = (uint32_t)known;
        return GW_OK;
    }
    GW_TRY(gw_source_add_rule(r->s, GW_NONE, rule));
    gw_source_rule *made = &r->s->rules[*rule];
    made->name = r->text + begin;
    made->name_bytes = n;
    made->defined = 0;
    made->at = begin;
    if (gw_map_add(r->names, made->name, n, *rule, NULL) == GW_MAP_NOMEM) {
        return gw_fail(GW_E_NOMEM, r->s->where, "no memory");
    }
    return GW_OK;
}

/* ---- terms ----------------------------------------------------------------------------------- */

static int hex_digit(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The rest of \xNN, \uNNNN, \UNNNNNNNN: a code point. */
static gw_status read_hex(reader *r, size_t begin, int digits, uint32_t *cp) {
    uint32_t x = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        int d = hex_digit(peek(r));
        if (d < 0) {
            return fail_at(r, begin, GW_E_SYNTAX, "an escape needs %d hexadecimal digits", digits);
        }
        x = x << 4 | (uint32_t)d;
    }
    if (x > 0x10FFFF || (x >= 0xD800 && x <= 0xDFFF)) {
        return fail_at(r, begin, GW_E_SYNTAX, "U+%04X is no character", x);
    }
    *cp = x;
    return GW_OK;
}

/* One character of a literal or a class; *escaped when it came with a backslash. */
static gw_status read_char(reader *r, uint32_t *cp, int *escaped) {
    size_t begin = r->at, n = gw_utf8_next(r->text + r->at, r->n - r->at, cp);
    r->at += n;
    *escaped = *cp == '\\';
    if (!*escaped) {
        return GW_OK;
    }
    int c = peek(r);
    r->at += c >= 0;
    switch (c) {
    case 'x':
        return read_hex(r, begin, 2, cp);
    case 'u':
        return read_hex(r, begin, 4, cp);
    case 'U':
        return read_hex(r, begin, 8, cp);
    case 't':
        *cp = '\t';
        return GW_OK;
    case 'r':
        *cp = '\r';
        return GW_OK;
    case 'n':
        *cp = '\n';
        return GW_OK;
    default:
        if (c <= 0x20 || c >= 0x7F || is_word(c)) {
            if (c != '-' && c != '_') {
                return fail_at(r, begin, GW_E_SYNTAX,
                               "unknown escape; there are \\n \\r \\t \\xNN \\uNNNN \\UNNNNNNNN "
                               "and a backslash before a sign");
            }
        }
        *cp = (uint32_t)c;
        return GW_OK;
    }
}

static frame *top(reader *r) { return &r->frames[r->depth - 1]; }

static gw_status add_item(reader *r, gw_source_item item) {
    frame *f = top(r);
    return gw_source_add_item(r->s, f->alt, f->tail, item, &f->tail);
}

static void begin_term(reader *r) {
    top(r)->before = top(r)->tail;
    top(r)->has_term = 1;
}

static gw_status add_byte(reader *r, unsigned byte) {
    gw_byte_set set = {{0}};
    gw_source_item item = {.min = 1, .max = 1};
    set.bits[byte >> 6] = (uint64_t)1 << (byte & 63);
    GW_TRY(gw_source_set(r->s, &set, &item.arg));
    return add_item(r, item);
}

static gw_status read_literal(reader *r) {
    size_t begin = r->at++;
    begin_term(r);
    while (peek(r) != '"') {
        uint32_t cp;
        int escaped;
        char bytes[4];
        if (peek(r) < 0 || peek(r) == '\n') {
            return fail_at(r, begin, GW_E_SYNTAX, "the text in quotes has no end on its line");
        }
        GW_TRY(read_char(r, &cp, &escaped));
        size_t n = gw_utf8_put(cp, bytes);
        for (size_t i = 0; i < n; i++) {
            GW_TRY(add_byte(r, (unsigned char)bytes[i]));
        }
    }
    r->at++;
    return GW_OK;
}

/* A special token by its spelling: <...> as it stands, or @"..." with escapes. Between bytes that
 * no text has, as it stands in the tree of tokens. */
static gw_status read_token(reader *r) {
    size_t begin = r->at;
    int quoted = peek(r) == '@', end = quoted ? '"' : '>';
    r->at += (size_t)quoted;
    if (quoted && peek(r) != '"') {
        return fail_at(r, begin, GW_E_SYNTAX, "a special token is written @\"...\" or <...>");
    }
    r->at++;
    begin_term(r);
    GW_TRY(add_byte(r, GW_TOKEN_OPENS));
    GW_TRY(quoted ? GW_OK : add_byte(r, '<'));
    for (size_t first = r->at;; first = 0) {
        uint32_t cp;
        int escaped;
        char bytes[4];
        if (peek(r) == end && first != r->at) {
            break;
        }
        if (peek(r) < 0 || peek(r) == '\n' || peek(r) == end) {
            return fail_at(r, begin, GW_E_SYNTAX, "the name of a special token has no end");
        }
        GW_TRY(read_char(r, &cp, &escaped));
        size_t n = gw_utf8_put(cp, bytes);
        for (size_t i = 0; i < n; i++) {
            GW_TRY(add_byte(r, (unsigned char)bytes[i]));
        }
    }
    r->at++;
    GW_TRY(quoted ? GW_OK : add_byte(r, '>'));
    return add_byte(r, GW_TOKEN_CLOSES);
}

/* Room for `more` further ranges. */
static gw_status reserve_ranges(reader *r, size_t more) {
    void *ranges = r->ranges;
    gw_status status =
        gw_array_reserve(&ranges, &r->ranges_capacity, r->n_ranges + more, sizeof *r->ranges);
    r->ranges = ranges;
    return status;
}

static gw_status add_range(reader *r, uint32_t low, uint32_t high) {
    GW_TRY(reserve_ranges(r, 1));
    r->ranges[r->n_ranges++] = (gw_code_range){low, high};
    return GW_OK;
}

static int by_low(const void *a, const void *b) {
    uint32_t x = ((const gw_code_range *)a)->low, y = ((const gw_code_range *)b)->low;
    return x < y ? -1 : x > y;
}

/* Sorted and apart; negated when asked for. */
static gw_status tidy_ranges(reader *r, int negated) {
    size_t n = 0;
    GW_TRY(reserve_ranges(r, 1)); /* what is between n ranges is up to n + 1 */
    gw_code_range *a = r->ranges;
    if (r->n_ranges > 0) {
        qsort(a, r->n_ranges, sizeof *a, by_low);
    }
    for (size_t i = 0; i < r->n_ranges; i++) {
        if (n > 0 && a[i].low <= a[n - 1].high + 1) {
            a[n - 1].high = a[i].high > a[n - 1].high ? a[i].high : a[n - 1].high;
        } else {
            a[n++] = a[i];
        }
    }
    if (negated) {
        uint32_t next = 0;
        size_t m = 0;
        for (size_t i = 0; i < n; i++) {
            gw_code_range x = a[i];
            if (x.low > next) {
                a[m++] = (gw_code_range){next, x.low - 1};
            }
            next = x.high + 1;
        }
        if (next <= 0x10FFFF) {
            a[m++] = (gw_code_range){next, 0x10FFFF};
        }
        n = m;
    }
    /* surrogates are no characters: a class of nothing else is empty */
    r->n_ranges = n == 1 && a[0].low >= 0xD800 && a[0].high <= 0xDFFF ? 0 : n;
    return GW_OK;
}

static gw_status add_class(reader *r, size_t begin) {
    gw_source_item item;
    if (r->n_ranges == 0) {
        return fail_at(r, begin, GW_E_SYNTAX, "no character is in this class");
    }
    begin_term(r);
    GW_TRY(gw_source_class(r->s, top(r)->rule, r->ranges, r->n_ranges, &item));
    return add_item(r, item);
}

static gw_status read_class(reader *r) {
    size_t begin = r->at++;
    int negated = peek(r) == '^';
    r->at += (size_t)negated;
    r->n_ranges = 0;
    while (peek(r) != ']') {
        uint32_t low, high;
        int escaped;
        size_t at = r->at;
        if (peek(r) < 0 || peek(r) == '\n') {
            return fail_at(r, begin, GW_E_SYNTAX, "the class has no ']' on its line");
        }
        GW_TRY(read_char(r, &low, &escaped));
        high = low;
        if (peek(r) == '-' && r->at + 1 < r->n && r->text[r->at + 1] != ']') {
            r->at++;
            if (peek(r) == '\n') {
                continue; /* the error above */
            }
            GW_TRY(read_char(r, &high, &escaped));
        }
        if (high < low) {
            return fail_at(r, at, GW_E_SYNTAX, "the range runs backwards");
        }
        GW_TRY(add_range(r, low, high));
    }
    r->at++;
    GW_TRY(tidy_ranges(r, negated));
    return add_class(r, begin);
}

static gw_status read_any(reader *r) {
    size_t begin = r->at++;
    r->n_ranges = 0;
    GW_TRY(add_range(r, 0, 0x10FFFF));
    return add_class(r, begin);
}

/* ---- repetition ------------------------------------------------------------------------------ */

static gw_status repeat(reader *r, size_t at, uint32_t min, uint32_t max) {
    frame *f = top(r);
    gw_source *s = r->s;
    if (!f->has_term) {
        return fail_at(r, at, GW_E_SYNTAX, "nothing stands here to be repeated");
    }
    uint32_t first = f->before == GW_NONE ? s->alts[f->alt].first : s->items[f->before].next;
    if (first == GW_NONE) { /* "": as often as one likes */
        return GW_OK;
    }
    gw_source_item *only = first == f->tail ? &s->items[first] : NULL;
    if (only != NULL && only->min == 1 && only->max == 1) {
        only->min = min;
        only->max = max;
        return GW_OK;
    }
    uint32_t rule, alt;
    GW_TRY(gw_source_add_rule(s, f->rule, &rule));
    GW_TRY(gw_source_add_alt(s, rule, &alt));
    s->alts[alt].first = first;
    gw_source_item item = {.is_rule = 1, .arg = rule, .min = min, .max = max};
    return gw_source_add_item(s, f->alt, f->before, item, &f->tail);
}

static gw_status read_number(reader *r, uint32_t *out) {
    size_t begin = r->at;
    uint32_t x = 0;
    while (peek(r) >= '0' && peek(r) <= '9') {
        x = x * 10 + (uint32_t)(peek(r) - '0');
        if (x > GW_GRAMMAR_REPEAT_MAX) {
            return fail_at(r, begin, GW_E_LIMIT, "more than %d repetitions", GW_GRAMMAR_REPEAT_MAX);
        }
        r->at++;
    }
    if (r->at == begin) {
        char text[24];
        return fail_at(r, begin, GW_E_SYNTAX, "%s instead of a number: {m}, {m,} or {m,n}",
                       seen(r, text));
    }
    *out = x;
    return GW_OK;
}

static gw_status read_braces(reader *r) {
    size_t begin = r->at++;
    uint32_t min, max;
    char text[24];
    skip_space(r, 0);
    GW_TRY(read_number(r, &min));
    max = min;
    skip_space(r, 0);
    if (peek(r) == ',') {
        r->at++;
        skip_space(r, 0);
        max = GW_NONE;
        if (peek(r) != '}') {
            GW_TRY(read_number(r, &max));
        }
        skip_space(r, 0);
    }
    if (peek(r) != '}') {
        return fail_at(r, r->at, GW_E_SYNTAX, "%s instead of '}'", seen(r, text));
    }
    r->at++;
    if (max < min) {
        return fail_at(r, begin, GW_E_SYNTAX, "{%u,%u}: the most is less than the least", min, max);
    }
    return repeat(r, begin, min, max);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static gw_status open_frame(reader *r, uint32_t rule) {
    void *frames = r->frames;
    if (r->depth == GW_GRAMMAR_OPEN_MAX) {
        return fail_at(r, r->at, GW_E_LIMIT, "more than %d parentheses inside each other",
                       GW_GRAMMAR_OPEN_MAX);
    }
    gw_status status = gw_array_reserve(&frames, &r->capacity, r->depth + 1, sizeof *r->frames);
    r->frames = frames;
    GW_TRY(status);
    frame *f = &r->frames[r->depth++];
    *f = (frame){.rule = rule, .tail = GW_NONE, .before = GW_NONE, .opened = r->at};
    return gw_source_add_alt(r->s, rule, &f->alt);
}

static gw_status open_group(reader *r) {
    uint32_t rule;
    GW_TRY(gw_source_add_rule(r->s, top(r)->rule, &rule));
    GW_TRY(open_frame(r, rule));
    r->at++;
    return GW_OK;
}

static gw_status close_group(reader *r) {
    if (r->depth == 1) {
        return fail_at(r, r->at, GW_E_SYNTAX, "')' without its '('");
    }
    uint32_t rule = top(r)->rule;
    r->depth--;
    r->at++;
    begin_term(r);
    return add_item(r, (gw_source_item){.is_rule = 1, .arg = rule, .min = 1, .max = 1});
}

static gw_status next_alt(reader *r) {
    frame *f = top(r);
    r->at++;
    f->tail = f->before = GW_NONE;
    f->has_term = 0;
    GW_TRY(gw_source_add_alt(r->s, f->rule, &f->alt));
    skip_space(r, 1);
    return GW_OK;
}

static gw_status read_reference(reader *r) {
    gw_source_item item = {.is_rule = 1, .min = 1, .max = 1};
    GW_TRY(read_name(r, &item.arg));
    begin_term(r);
    return add_item(r, item);
}

static gw_status read_term(reader *r) {
    char text[24];
    int c = peek(r);
    switch (c) {
    case '"':
        return read_literal(r);
    case '<':
    case '@':
        return read_token(r);
    case '[':
        return read_class(r);
    case '.':
        return read_any(r);
    case '(':
        return open_group(r);
    case ')':
        return close_group(r);
    case '|':
        return next_alt(r);
    case '{':
        return read_braces(r);
    case '*':
    case '+':
    case '?':
        r->at++;
        return repeat(r, r->at - 1, c == '+', c == '?' ? 1 : GW_NONE);
    default:
        if (is_word(c)) {
            return read_reference(r);
        }
        return fail_at(r, r->at, GW_E_SYNTAX, "%s is not part of a rule", seen(r, text));
    }
}

/* Up to the end of the line that ends the rule; inside parentheses, and before or behind a '|', a
 * line may end. */
static gw_status read_body(reader *r, uint32_t rule) {
    r->depth = 0;
    GW_TRY(open_frame(r, rule));
    skip_space(r, 1);
    for (;;) {
        skip_space(r, r->depth > 1);
        int c = peek(r);
        if (c == '\n' || c == '\r') {
            skip_space(r, 1);
            if (peek(r) != '|') {
                return GW_OK;
            }
        }
        if (peek(r) < 0) {
            return r->depth == 1 ? GW_OK
                                 : fail_at(r, top(r)->opened, GW_E_SYNTAX, "'(' is not closed");
        }
        GW_TRY(read_term(r));
    }
}

static gw_status read_rule(reader *r) {
    uint32_t rule;
    size_t begin = r->at;
    char text[24];
    if (!is_word(peek(r))) {
        return fail_at(r, begin, GW_E_SYNTAX, "%s instead of the name of a rule", seen(r, text));
    }
    GW_TRY(read_name(r, &rule));
    gw_source_rule *it = &r->s->rules[rule];
    if (it->defined) {
        uint32_t line, column;
        place(r, it->at, &line, &column);
        return fail_at(r, begin, GW_E_SYNTAX, "rule '%.*s' is defined on line %u already",
                       shown(it->name_bytes), it->name, line);
    }
    it->defined = 1;
    it->at = begin;
    skip_space(r, 0);
    if (!starts(r, "::=")) {
        return fail_at(r, r->at, GW_E_SYNTAX, "%s instead of '::=' behind '%.*s'", seen(r, text),
                       shown(it->name_bytes), it->name);
    }
    r->at += 3;
    return read_body(r, rule);
}

static gw_status find_root(reader *r, uint32_t *root) {
    const gw_source *s = r->s;
    size_t found;
    for (size_t i = 0; i < s->n_rules; i++) {
        const gw_source_rule *rule = &s->rules[i];
        if (!rule->defined) {
            return fail_at(r, rule->at, GW_E_METADATA, "there is no rule '%.*s'",
                           shown(rule->name_bytes), rule->name);
        }
    }
    if (!gw_map_find(r->names, "root", 4, &found)) {
        return gw_fail(GW_E_METADATA, s->where,
                       "there is no rule 'root', with which a text begins");
    }
    *root = (uint32_t)found;
    return GW_OK;
}

gw_status gw_source_read(gw_source *s, const char *text, size_t n, uint32_t *root) {
    reader r = {.s = s, .text = text, .n = n, .names = gw_map_new()};
    gw_status status = GW_OK;
    if (r.names == NULL) {
        return gw_fail(GW_E_NOMEM, s->where, "no memory");
    }
    size_t good = gw_utf8_span(text, n);
    if (good < n) {
        GW_TRY_DONE(fail_at(&r, good, GW_E_ENCODING, "this is not UTF-8"));
    }
    for (skip_space(&r, 1); r.at < n; skip_space(&r, 1)) {
        GW_TRY_DONE(read_rule(&r));
    }
    GW_TRY_DONE(find_root(&r, root));
done:
    gw_map_free(r.names);
    free(r.frames);
    free(r.ranges);
    return status;
}

static gw_status compile(const char *where, const char *text, size_t n, int prune,
                         gw_program **out) {
    gw_source s;
    uint32_t root = 0;
    int whole = 1; /* where it is not, compiling says which rule has no end */
    gw_status status = gw_source_open(&s, where);
    if (status == GW_OK) {
        status = gw_source_read(&s, text, n, &root);
    }
    if (status == GW_OK && prune) {
        status = gw_source_prune(&s, root, &whole);
    }
    if (status == GW_OK) {
        status = gw_source_compile(&s, root, out);
    }
    gw_source_close(&s);
    return status;
}

gw_status gw_grammar_compile(const char *where, const char *text, size_t n, gw_program **out) {
    if (n > GW_GRAMMAR_BYTES_MAX) {
        return gw_fail(GW_E_LIMIT, where, "%zu bytes; a grammar has at most %d", n,
                       GW_GRAMMAR_BYTES_MAX);
    }
    return compile(where, text, n, 0, out);
}

gw_status gw_grammar_link(const char *where, const char *text, size_t n, gw_program **out) {
    return compile(where, text, n, 1, out);
}
