/* core/text/grammar/json_schema_pattern.c - regular expressions of schemas ("pattern") as GBNF over
 * the inside of a JSON string; see json_schema_parts.h.
 *
 * What a machine without memory can match: characters, classes, groups, alternatives, repetitions,
 * ^ and $ at the ends. A pattern without them may match anywhere in the string. Quotation marks,
 * backslashes and control characters come as the escapes of JSON.
 */
#include "core/text/grammar/json_schema_parts.h"
#include "core/text/utf8.h"

enum { RANGES_MAX = 512, GROUPS_MAX = 100 };

typedef struct range {
    uint32_t low, high;
} range;

typedef struct pattern {
    gw_bytes *out;
    const char *where, *text;
    size_t n, at;
    range set[RANGES_MAX + 2];
    size_t n_set;
    int depth;
    int atom;   /* something stands here that can be repeated */
    int closed; /* a $ has ended the alternative */
} pattern;

static gw_status refuse(const pattern *p, const char *what) {
    return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA, "at %s: %s is not supported, character %zu",
                   p->where, what, p->at + 1);
}

static int peek(const pattern *p) { return p->at < p->n ? (unsigned char)p->text[p->at] : -1; }

/* ---- sets of characters ---------------------------------------------------------------------- */

static gw_status add(pattern *p, uint32_t low, uint32_t high) {
    if (p->n_set == RANGES_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: more than %d ranges in a class", p->where,
                       RANGES_MAX);
    }
    p->set[p->n_set++] = (range){low, high};
    return GW_OK;
}

static int by_low(const void *a, const void *b) {
    uint32_t x = ((const range *)a)->low, y = ((const range *)b)->low;
    return x < y ? -1 : x > y;
}

static void invert(pattern *p, size_t from) {
    range *a = p->set + from;
    size_t n = p->n_set - from, m = 0;
    uint32_t next = 0;
    range kept[RANGES_MAX + 2];
    qsort(a, n, sizeof *a, by_low);
    for (size_t i = 0; i < n; i++) {
        if (a[i].low > next) {
            kept[m++] = (range){next, a[i].low - 1};
        }
        next = a[i].high >= next ? a[i].high + 1 : next;
    }
    if (next <= 0x10FFFF) {
        kept[m++] = (range){next, 0x10FFFF};
    }
    memcpy(a, kept, m * sizeof *a);
    p->n_set = from + m;
}

static int has(const pattern *p, uint32_t cp) {
    for (size_t i = 0; i < p->n_set; i++) {
        if (cp >= p->set[i].low && cp <= p->set[i].high) {
            return 1;
        }
    }
    return 0;
}

/* Characters that a JSON string holds as they are. */
static gw_status put_raw(const pattern *p, uint32_t low, uint32_t high, int *some) {
    static const range barred[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0xD800, 0xDFFF}};
    for (size_t i = 0; i < sizeof barred / sizeof barred[0] && low <= high; i++) {
        if (low < barred[i].low) {
            uint32_t to = high < barred[i].low ? high : barred[i].low - 1;
            GW_TRY(gw_schema_put(p->out, "%s\\U%08X-\\U%08X", *some ? "" : "[", low, to));
            *some = 1;
            low = to + 1;
        }
        if (low <= high && low <= barred[i].high && low >= barred[i].low) {
            low = barred[i].high + 1;
        }
    }
    if (low <= high) {
        GW_TRY(gw_schema_put(p->out, "%s\\U%08X-\\U%08X", *some ? "" : "[", low, high));
        *some = 1;
    }
    return GW_OK;
}

static gw_status put_set(pattern *p, int negated) {
    static const char shorts[][2] = {
        {'\b', 'b'}, {'\t', 't'}, {'\n', 'n'}, {'\f', 'f'}, {'\r', 'r'}};
    int some = 0;
    GW_TRY(gw_schema_put(p->out, " ("));
    for (size_t i = 0; i < p->n_set; i++) {
        GW_TRY(put_raw(p, p->set[i].low, p->set[i].high, &some));
    }
    const char *bar = some ? "] |" : "";
    for (uint32_t c = 0; c < 0x80; c++) {
        char text[8] = "";
        for (size_t i = 0; i < 5; i++) {
            if (c == (uint32_t)shorts[i][0]) {
                text[0] = shorts[i][1];
            }
        }
        if (!has(p, c) || (c >= 0x20 && c != '"' && c != '\\') ||
            (negated && c < 0x20 && text[0] == '\0')) {
            continue;
        }
        if (text[0] != '\0') {
            GW_TRY(gw_schema_put(p->out, "%s \"\\\\%s\"", bar, text));
        } else if (c < 0x20) {
            GW_TRY(gw_schema_put(p->out, "%s \"\\\\u%04x\"", bar, c));
        } else {
            GW_TRY(gw_schema_put(p->out, "%s \"\\\\\\%c\"", bar, (int)c));
        }
        bar = " |";
    }
    if (bar[0] == '\0') {
        return gw_fail(GW_E_METADATA, GW_SCHEMA, "at %s: no character is in a class of it",
                       p->where);
    }
    p->atom = 1;
    return gw_schema_put(p->out, "%s )", bar[0] == ']' ? "]" : "");
}

/* ---- escapes --------------------------------------------------------------------------------- */

static gw_status add_shorthand(pattern *p, int letter) {
    size_t from = p->n_set;
    switch (letter | 0x20) {
    case 'd':
        GW_TRY(add(p, '0', '9'));
        break;
    case 'w':
        GW_TRY(add(p, '0', '9'));
        GW_TRY(add(p, 'A', 'Z'));
        GW_TRY(add(p, '_', '_'));
        GW_TRY(add(p, 'a', 'z'));
        break;
    default:
        GW_TRY(add(p, '\t', '\r'));
        GW_TRY(add(p, ' ', ' '));
        if (letter == 'S') { /* what else counts as a space is not put in, but kept out */
            static const range spaces[] = {{0x1C, 0x1F},     {0x85, 0x85},     {0xA0, 0xA0},
                                           {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                           {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                           {0xFEFF, 0xFEFF}};
            for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
                GW_TRY(add(p, spaces[i].low, spaces[i].high));
            }
        }
        break;
    }
    if (letter < 'a') {
        if (letter != 'S') { /* letters and digits of other scripts: opinions differ */
            GW_TRY(add(p, 0x80, 0x10FFFF));
        }
        invert(p, from);
    }
    return GW_OK;
}

static gw_status read_hex(pattern *p, int digits, uint32_t *cp) {
    uint32_t x = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        int c = peek(p), lower = c | 0x20;
        int d = c >= '0' && c <= '9'           ? c - '0'
                : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                               : -1;
        if (c < 0 || d < 0) {
            return refuse(p, "an escape without its digits");
        }
        x = x << 4 | (uint32_t)d;
    }
    if (x >= 0xD800 && x <= 0xDFFF) {
        return refuse(p, "half a character");
    }
    *cp = x;
    return GW_OK;
}

/* Behind a backslash. *many: a class was added; else *cp is the character. */
static gw_status read_escape(pattern *p, uint32_t *cp, int *many) {
    int c = peek(p);
    *many = c > 0 && strchr("dDwWsS", c) != NULL;
    if (*many) {
        p->at++;
        return add_shorthand(p, c);
    }
    static const char letters[] = "tnrfv0", values[] = {'\t', '\n', '\r', '\f', '\v', 0};
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    if (c < 0x20 || c >= 0x7F ||
        (found == NULL && c != 'x' && c != 'u' &&
         ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))) {
        return refuse(p, "this escape");
    }
    p->at++;
    if (found != NULL) {
        *cp = (uint32_t)values[found - letters];
        return GW_OK;
    }
    if (c == 'x' || c == 'u') {
        return read_hex(p, c == 'x' ? 2 : 4, cp);
    }
    *cp = (uint32_t)c;
    return GW_OK;
}

static gw_status read_char(pattern *p, uint32_t *cp, int *many) {
    *many = 0;
    p->at += gw_utf8_next(p->text + p->at, p->n - p->at, cp);
    return *cp == '\\' ? read_escape(p, cp, many) : GW_OK;
}

static gw_status read_class(pattern *p) {
    p->at++;
    int negated = peek(p) == '^', many, many_high;
    p->at += (size_t)negated;
    p->n_set = 0;
    while (peek(p) != ']') {
        uint32_t low, high;
        if (peek(p) < 0) {
            return refuse(p, "a class without its ']'");
        }
        GW_TRY(read_char(p, &low, &many));
        if (many) {
            continue;
        }
        high = low;
        if (peek(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            p->at++;
            GW_TRY(read_char(p, &high, &many_high));
            if (many_high || high < low) {
                return refuse(p, "this range");
            }
        }
        GW_TRY(add(p, low, high));
    }
    p->at++;
    if (negated) {
        invert(p, 0);
    }
    return put_set(p, negated);
}

/* ---- structure ------------------------------------------------------------------------------- */

static int quantifier_number(const pattern *p, size_t *at) {
    size_t begin = *at;
    while (*at < p->n && p->text[*at] >= '0' && p->text[*at] <= '9') {
        (*at)++;
    }
    return *at > begin && *at - begin < 7;
}

static gw_status read_quantifier(pattern *p) {
    int c = peek(p);
    size_t begin = p->at, at = p->at + 1;
    if (!p->atom) {
        return refuse(p, "a repetition of nothing");
    }
    if (c == '{') {
        int fine = quantifier_number(p, &at);
        if (fine && at < p->n && p->text[at] == ',') {
            at++;
            fine = (at < p->n && p->text[at] == '}') || quantifier_number(p, &at);
        }
        if (!fine || at >= p->n || p->text[at] != '}') {
            return refuse(p, "'{' that is no repetition");
        }
        at++;
    }
    p->at = at;
    if (peek(p) == '?') { /* the same strings match */
        p->at++;
    }
    p->atom = 0;
    return gw_bytes_add(p->out, p->text + begin, at - begin);
}

static gw_status open_group(pattern *p) {
    p->at++;
    if (peek(p) == '?') {
        if (p->at + 1 >= p->n || p->text[p->at + 1] != ':') {
            return refuse(p, "this kind of group");
        }
        p->at += 2;
    }
    if (++p->depth > GROUPS_MAX) {
        return refuse(p, "so deep a nesting");
    }
    p->atom = 0;
    return gw_schema_put(p->out, " (");
}

static gw_status close_group(pattern *p) {
    if (p->depth-- == 0) {
        return refuse(p, "')' without its '('");
    }
    p->at++;
    p->atom = 1;
    return gw_schema_put(p->out, " )");
}

/* Before the first thing of an alternative that stands in no group, and behind its last. */
static gw_status begin_side(pattern *p) {
    int fixed = peek(p) == '^';
    p->at += (size_t)fixed;
    p->atom = p->closed = 0;
    return fixed ? GW_OK : gw_schema_put(p->out, " char*");
}
static gw_status end_side(pattern *p) {
    return p->closed ? GW_OK : gw_schema_put(p->out, " char*");
}

static gw_status read_bar(pattern *p) {
    p->atom = 0;
    if (p->depth > 0) {
        p->at++;
        return gw_schema_put(p->out, " |");
    }
    GW_TRY(end_side(p));
    p->at++;
    GW_TRY(gw_schema_put(p->out, " |"));
    return begin_side(p);
}

static gw_status read_next(pattern *p) {
    uint32_t cp;
    int many;
    switch (peek(p)) {
    case '|':
        return read_bar(p);
    case '(':
        return open_group(p);
    case ')':
        return close_group(p);
    case '[':
        return read_class(p);
    case '*':
    case '+':
    case '?':
    case '{':
        return read_quantifier(p);
    case '^':
        return refuse(p, "'^' that is not at the beginning");
    case '$':
        p->at++;
        p->closed = p->depth == 0 && (p->at == p->n || peek(p) == '|');
        return p->closed ? GW_OK : refuse(p, "'$' that is not at the end");
    case '.':
        p->at++;
        p->n_set = 0;
        GW_TRY(add(p, '\n', '\n'));
        GW_TRY(add(p, '\r', '\r'));
        GW_TRY(add(p, 0x2028, 0x2029));
        invert(p, 0);
        return put_set(p, 1);
    default:
        p->n_set = 0;
        GW_TRY(read_char(p, &cp, &many));
        if (!many) {
            GW_TRY(add(p, cp, cp));
        }
        return put_set(p, 0);
    }
}

gw_status gw_schema_put_pattern(gw_bytes *out, const char *where, const char *text, size_t n) {
    pattern p = {.out = out, .where = where, .text = text, .n = n};
    GW_TRY(gw_schema_put(out, "("));
    GW_TRY(begin_side(&p));
    while (p.at < n) {
        GW_TRY(read_next(&p));
    }
    if (p.depth > 0) {
        return refuse(&p, "'(' without its ')'");
    }
    GW_TRY(end_side(&p));
    return gw_schema_put(out, " )");
}
