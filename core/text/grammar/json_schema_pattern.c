/* core/text/grammar/json_schema_pattern.c - reads regular expressions of ECMA-262 ("pattern"); see
 * json_schema_dfa.h.
 *
 * A brace, bracket or backslash that begins nothing stands for itself, as Annex B of ECMA-262 and
 * everybody else has it. Recursion is as deep as the groups are.
 */
#include "core/text/grammar/json_schema_regex.h"

#include <stdio.h>

#include "core/text/utf8.h"

enum { GROUPS_MAX = 100, REPEAT_MAX = 100000, LOOKS_MAX = 16 };

typedef struct pattern {
    gw_regex r;
    const char *text;
    size_t n, at;
    int depth;
    gw_regex_look looks[LOOKS_MAX]; /* of the alternative that is read */
    size_t n_looks;
} pattern;

static gw_status refuse_at(const pattern *p, size_t at, const char *what) {
    return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA, "at %s: %s is not supported, character %zu",
                   p->r.where, what, at + 1);
}

static gw_status refuse(const pattern *p, const char *what) { return refuse_at(p, p->at, what); }

static int peek_at(const pattern *p, size_t ahead) {
    return p->at + ahead < p->n ? (unsigned char)p->text[p->at + ahead] : -1;
}

static int peek(const pattern *p) { return peek_at(p, 0); }

static int is_digit(int c) { return c >= '0' && c <= '9'; }
static int is_letter(int c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

/* ---- nodes ----------------------------------------------------------------------------------- */

static gw_status add_node(pattern *p, gw_regex_kind kind, uint32_t *out) {
    gw_regex *r = &p->r;
    void *nodes = r->nodes;
    gw_status status =
        gw_array_reserve(&nodes, &r->nodes_capacity, r->n_nodes + 1, sizeof *r->nodes);
    r->nodes = nodes;
    GW_TRY(status);
    *out = (uint32_t)r->n_nodes++;
    r->nodes[*out] = (gw_regex_node){
        .kind = kind, .first = GW_REGEX_NONE, .last = GW_REGEX_NONE, .before = GW_REGEX_NONE};
    return GW_OK;
}

static void add_child(pattern *p, uint32_t parent, uint32_t child) {
    gw_regex_node *node = &p->r.nodes[parent];
    p->r.nodes[child].before = node->last;
    node->last = child;
    node->first = node->first == GW_REGEX_NONE ? child : node->first;
}

/* An empty set that belongs to the expression. */
static gw_status add_set(pattern *p, uint32_t *node) {
    gw_regex *r = &p->r;
    void *sets = r->sets;
    gw_status status = gw_array_reserve(&sets, &r->sets_capacity, r->n_sets + 1, sizeof *r->sets);
    r->sets = sets;
    GW_TRY(status);
    r->sets[r->n_sets] = (gw_chars){0};
    GW_TRY(add_node(p, GW_REGEX_SET, node));
    r->nodes[*node].arg = (uint32_t)r->n_sets++;
    return GW_OK;
}

static gw_chars *set_of(pattern *p, uint32_t node) { return &p->r.sets[p->r.nodes[node].arg]; }

/* ---- characters ------------------------------------------------------------------------------ */

static int hex_digit(int c) {
    return is_digit(c)                              ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

static int read_hex(pattern *p, size_t digits, uint32_t *cp) {
    uint32_t x = 0;
    for (size_t i = 0; i < digits; i++) {
        int d = hex_digit(peek_at(p, i));
        if (d < 0) {
            return 0;
        }
        x = x << 4 | (uint32_t)d;
    }
    p->at += digits;
    *cp = x;
    return 1;
}

static int read_braced_hex(pattern *p, uint32_t *cp) {
    size_t i = 1;
    *cp = 0;
    for (int d; (d = hex_digit(peek_at(p, i))) >= 0 && i < 8; i++) {
        *cp = *cp << 4 | (uint32_t)d;
    }
    if (i == 1 || peek_at(p, i) != '}' || *cp > GW_CHAR_MAX) {
        return 0;
    }
    p->at += i + 1;
    return 1;
}

/* Behind \x or \u. */
static gw_status read_code(pattern *p, int letter, uint32_t *cp) {
    size_t begin = p->at;
    uint32_t low;
    if (letter == 'u' && peek(p) == '{') {
        return read_braced_hex(p, cp) ? GW_OK : refuse_at(p, begin, "an escape without its digits");
    }
    if (!read_hex(p, letter == 'x' ? 2 : 4, cp)) {
        return refuse_at(p, begin, "an escape without its digits");
    }
    if (*cp >= 0xD800 && *cp <= 0xDBFF && peek(p) == '\\' && peek_at(p, 1) == 'u') {
        p->at += 2;
        if (read_hex(p, 4, &low) && low >= 0xDC00 && low <= 0xDFFF) {
            *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
            return GW_OK;
        }
    }
    return *cp >= 0xD800 && *cp <= 0xDFFF ? refuse_at(p, begin, "half a character") : GW_OK;
}

/* Behind \p or \P. */
static gw_status read_property(pattern *p, int negated, int wide, gw_chars *set) {
    size_t end = p->at + 1;
    int known = 0;
    while (peek(p) == '{' && end < p->n && p->text[end] != '}') {
        end++;
    }
    if (peek(p) != '{' || end >= p->n) {
        return refuse(p, "\\p without its {name}");
    }
    GW_TRY(gw_chars_property(set, p->text + p->at + 1, end - p->at - 1, negated, wide, &known));
    if (!known) {
        return refuse(p, "this property (general categories are known)");
    }
    p->at = end + 1;
    return GW_OK;
}

/* Behind a backslash, p->at at the letter: many characters, added to the set, or *cp. in_class:
 * \b is a backspace there. */
static gw_status read_escape(pattern *p, int in_class, int wide, gw_chars *set, uint32_t *cp,
                             int *many) {
    static const char letters[] = "tnrfv", values[] = {'\t', '\n', '\r', '\f', '\v'};
    int c = peek(p);
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    *many = c > 0 && strchr("dDwWsSpP", c) != NULL;
    if (c < 0) {
        return refuse(p, "a backslash at the end");
    }
    if (*many) {
        p->at++;
        return (c | 0x20) == 'p' ? read_property(p, c == 'P', wide, set)
                                 : gw_chars_shorthand(set, c, wide);
    }
    if (found != NULL || (c == 'b' && in_class) || (c == '0' && !is_digit(peek_at(p, 1)))) {
        *cp = found != NULL ? (uint32_t)values[found - letters] : c == 'b' ? '\b' : 0;
        p->at++;
        return GW_OK;
    }
    if (c == 'x' || c == 'u') {
        p->at++;
        return read_code(p, c, cp);
    }
    if (c == 'c' && is_letter(peek_at(p, 1))) {
        *cp = (uint32_t)peek_at(p, 1) & 31;
        p->at += 2;
        return GW_OK;
    }
    if (is_digit(c) || is_letter(c) || c < 0x20 || c >= 0x7F) {
        return refuse(p, "this escape");
    }
    p->at++;
    *cp = (uint32_t)c;
    return GW_OK;
}

static gw_status read_member(pattern *p, int wide, gw_chars *set, uint32_t *cp, int *many) {
    *many = 0;
    p->at += gw_utf8_next(p->text + p->at, p->n - p->at, cp);
    return *cp == '\\' ? read_escape(p, 1, wide, set, cp, many) : GW_OK;
}

static gw_status read_class(pattern *p, uint32_t *node) {
    size_t begin = p->at++;
    int negated = peek(p) == '^', many, many_high, wide = negated ? !p->r.wide : p->r.wide;
    p->at += (size_t)negated;
    GW_TRY(add_set(p, node));
    while (peek(p) != ']') {
        uint32_t low, high;
        size_t at = p->at;
        if (peek(p) < 0) {
            return refuse_at(p, begin, "a class without its ']'");
        }
        GW_TRY(read_member(p, wide, set_of(p, *node), &low, &many));
        if (many) {
            continue;
        }
        high = low;
        if (peek(p) == '-' && peek_at(p, 1) >= 0 && peek_at(p, 1) != ']') {
            p->at++;
            GW_TRY(read_member(p, wide, set_of(p, *node), &high, &many_high));
            if (many_high) { /* [a-\d]: a, - and digits */
                GW_TRY(gw_chars_add(set_of(p, *node), '-', '-'));
                high = low;
            }
            if (high < low) {
                return refuse_at(p, at, "a range that runs backwards");
            }
        }
        GW_TRY(gw_chars_add(set_of(p, *node), low, high));
    }
    p->at++;
    return negated ? gw_chars_invert(set_of(p, *node)) : GW_OK;
}

/* ECMA-262: no end of a line; others: all but a line feed. */
static gw_status read_dot(pattern *p, uint32_t *node) {
    p->at++;
    GW_TRY(add_set(p, node));
    gw_chars *set = set_of(p, *node);
    GW_TRY(gw_chars_add(set, '\n', '\n'));
    if (!p->r.wide) {
        GW_TRY(gw_chars_add(set, '\r', '\r'));
        GW_TRY(gw_chars_add(set, 0x2028, 0x2029));
    }
    return gw_chars_invert(set);
}

static gw_status read_literal(pattern *p, uint32_t *node) {
    uint32_t cp;
    int many = 0, next = peek(p) == '\\' ? peek_at(p, 1) : 0;
    if (next == 'b' || next == 'B') {
        p->at += 2;
        p->r.has_edges = 1;
        return add_node(p, next == 'b' ? GW_REGEX_EDGE : GW_REGEX_INNER, node);
    }
    GW_TRY(add_set(p, node));
    p->at += gw_utf8_next(p->text + p->at, p->n - p->at, &cp);
    if (cp == '\\') {
        GW_TRY(read_escape(p, 0, p->r.wide, set_of(p, *node), &cp, &many));
    }
    return many ? GW_OK : gw_chars_add(set_of(p, *node), cp, cp);
}

/* ---- structure ------------------------------------------------------------------------------- */

static size_t read_number(const pattern *p, size_t ahead, uint32_t *out) {
    size_t begin = ahead;
    *out = 0;
    while (is_digit(peek_at(p, ahead))) {
        *out = *out > REPEAT_MAX ? *out : *out * 10 + (uint32_t)(peek_at(p, ahead) - '0');
        ahead++;
    }
    return ahead - begin;
}

/* The bytes of a repetition that stands here; 0: none. */
static size_t see_repetition(const pattern *p, uint32_t *min, uint32_t *max) {
    int c = peek(p);
    *min = c == '+';
    *max = c == '?' ? 1 : GW_REGEX_NONE;
    if (c == '*' || c == '+' || c == '?') {
        return 1;
    }
    size_t n = c == '{' ? read_number(p, 1, min) : 0, more;
    if (n == 0) {
        return 0;
    }
    n++;
    *max = *min;
    if (peek_at(p, n) == ',') {
        more = read_number(p, ++n, max);
        *max = more > 0 ? *max : GW_REGEX_NONE;
        n += more;
    }
    return peek_at(p, n) == '}' ? n + 1 : 0;
}

static gw_status read_repetition(pattern *p, uint32_t *node) {
    uint32_t min, max, repeat;
    size_t n = see_repetition(p, &min, &max);
    if (n == 0) {
        return GW_OK;
    }
    if (max < min) {
        return refuse(p, "a repetition whose most is less than its least");
    }
    if (min > REPEAT_MAX || (max > REPEAT_MAX && max != GW_REGEX_NONE)) {
        return refuse(p, "so long a repetition");
    }
    p->at += n;
    p->at += peek(p) == '?'; /* lazy: the same strings match */
    GW_TRY(add_node(p, GW_REGEX_REPEAT, &repeat));
    p->r.nodes[repeat].min = min;
    p->r.nodes[repeat].max = max;
    add_child(p, repeat, *node);
    *node = repeat;
    return see_repetition(p, &min, &max) > 0 ? refuse(p, "a repetition of a repetition") : GW_OK;
}

static gw_status read_sides(pattern *p, uint32_t *node);

/* Behind "(": what kind of group it is. *look: 1 (?=  2 (?!  0 neither. */
static gw_status open_group(pattern *p, int *look) {
    *look = 0;
    if (peek(p) != '?') {
        return GW_OK;
    }
    int c = peek_at(p, 1), name = c == '<' && is_letter(peek_at(p, 2));
    if (c == ':' || name) {
        while (name && peek(p) >= 0 && peek(p) != '>') {
            p->at++;
        }
        p->at += name ? 1 : 2;
        return GW_OK;
    }
    *look = c == '=' ? 1 : c == '!' ? 2 : 0;
    p->at += 2;
    return *look != 0 ? GW_OK : refuse_at(p, p->at - 2, "this kind of group");
}

/* so_far: the sequence that the group is to be part of. A look ahead is told apart from it. */
static gw_status read_group(pattern *p, uint32_t so_far, uint32_t *node) {
    size_t begin = p->at++;
    int look, n_looks = (int)p->n_looks;
    GW_TRY(open_group(p, &look));
    const gw_regex_node *cat = &p->r.nodes[so_far];
    int leads = p->depth == 0 && cat->last != GW_REGEX_NONE && cat->first == cat->last &&
                p->r.nodes[cat->last].kind == GW_REGEX_BEGIN;
    if (look != 0 && (!leads || p->n_looks == LOOKS_MAX)) {
        return refuse_at(p, begin, "a look ahead that does not stand behind the '^'");
    }
    if (++p->depth > GROUPS_MAX) {
        return refuse_at(p, begin, "so deep a nesting");
    }
    /* in a narrower whole what must not be there has to be seen as wide as it can be */
    p->r.wide ^= look == 2;
    gw_status status = read_sides(p, node);
    p->r.wide ^= look == 2;
    GW_TRY(status);
    if (peek(p) != ')') {
        return refuse_at(p, begin, "'(' without its ')'");
    }
    p->at++;
    p->depth--;
    if (look != 0) {
        p->looks[n_looks] = (gw_regex_look){*node, look == 2};
        p->n_looks = (size_t)n_looks + 1;
        *node = GW_REGEX_NONE;
    }
    return GW_OK;
}

static gw_status read_term(pattern *p, uint32_t so_far, uint32_t *node) {
    uint32_t min, max;
    int c = peek(p);
    if (c == '^' || c == '$') {
        p->at++;
        return add_node(p, c == '^' ? GW_REGEX_BEGIN : GW_REGEX_END, node);
    }
    if (see_repetition(p, &min, &max) > 0) {
        return refuse(p, "a repetition of nothing");
    }
    GW_TRY(c == '('   ? read_group(p, so_far, node)
           : c == '[' ? read_class(p, node)
           : c == '.' ? read_dot(p, node)
                      : read_literal(p, node));
    return *node != GW_REGEX_NONE ? read_repetition(p, node) : GW_OK;
}

static gw_status read_side(pattern *p, uint32_t *node) {
    GW_TRY(add_node(p, GW_REGEX_CAT, node));
    while (peek(p) >= 0 && peek(p) != '|' && peek(p) != ')') {
        uint32_t term;
        GW_TRY(read_term(p, *node, &term));
        if (term != GW_REGEX_NONE) {
            add_child(p, *node, term);
        }
    }
    return GW_OK;
}

static gw_status read_sides(pattern *p, uint32_t *node) {
    uint32_t side;
    GW_TRY(add_node(p, GW_REGEX_ALT, node));
    for (;;) {
        GW_TRY(read_side(p, &side));
        add_child(p, *node, side);
        if (peek(p) != '|') {
            return GW_OK;
        }
        p->at++;
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* One alternative with what it looks ahead for. */
static gw_status take_side(pattern *p, uint32_t side, gw_dfa *out) {
    gw_regex *r = &p->r;
    GW_TRY(gw_regex_automaton(r, side, 0, out));
    for (size_t i = 0; i < p->n_looks; i++) {
        gw_dfa look;
        r->wide ^= p->looks[i].negative;
        gw_status status = gw_regex_automaton(r, p->looks[i].node, 1, &look);
        r->wide ^= p->looks[i].negative;
        GW_TRY(status);
        GW_TRY(gw_dfa_combine(r->arena, r->where, out, &look,
                              p->looks[i].negative ? GW_DFA_MINUS : GW_DFA_AND, out));
    }
    p->n_looks = 0;
    return GW_OK;
}

static gw_status join_side(pattern *p, const gw_dfa *one, int some, gw_dfa *out) {
    if (!some) {
        *out = *one;
        return GW_OK;
    }
    return gw_dfa_combine(p->r.arena, p->r.where, out, one, GW_DFA_OR, out);
}

/* Alternatives one by one, so that each may look ahead; those that do not are taken together. */
static gw_status read_whole(pattern *p, gw_dfa *out) {
    uint32_t plain, side;
    int some = 0;
    GW_TRY(add_node(p, GW_REGEX_ALT, &plain));
    for (;;) {
        gw_dfa one;
        GW_TRY(read_side(p, &side));
        if (peek(p) == ')') {
            return refuse(p, "')' without its '('");
        }
        if (p->n_looks == 0) {
            add_child(p, plain, side);
        } else {
            GW_TRY(take_side(p, side, &one));
            GW_TRY(join_side(p, &one, some, out));
            some = 1;
        }
        if (peek(p) != '|') {
            break;
        }
        p->at++;
    }
    if (p->r.nodes[plain].first != GW_REGEX_NONE) {
        gw_dfa one;
        GW_TRY(gw_regex_automaton(&p->r, plain, 0, &one));
        GW_TRY(join_side(p, &one, some, out));
    }
    return GW_OK;
}

gw_status gw_dfa_pattern(gw_arena *arena, const char *where, const char *text, size_t n, int wide,
                         gw_dfa *out) {
    pattern p = {.r = {.arena = arena, .where = where, .wide = wide}, .text = text, .n = n};
    gw_status status = read_whole(&p, out);
    for (size_t i = 0; i < p.r.n_sets; i++) {
        free(p.r.sets[i].ranges);
    }
    free(p.r.sets);
    free(p.r.nodes);
    return status;
}
