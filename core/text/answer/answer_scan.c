/* core/text/answer/answer_scan.c - a JSON value byte by byte; see answer_scan.h. RFC 8259, but for
 * control characters in strings. */
#include "core/text/answer/answer_scan.h"

enum {
    VALUE, /* a value begins; white space before it */
    FIRST_KEY,
    KEY,
    COLON,
    FIRST_ITEM,
    NEXT,
    STRING,
    ESCAPE,
    HEX,
    WORD,
    MINUS,
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT,
    SIGN,
    POWER,
    KEY_STRING = 32 /* with STRING, ESCAPE, HEX: of a member's name */
};

static int is_space(unsigned char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static int is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

static int in_list(const gw_scan *s) {
    unsigned top = s->depth - 1u;
    return s->is_list[top / 8] >> (top % 8) & 1;
}

static gw_scan_result whole(gw_scan *s) {
    s->state = NEXT;
    return s->depth == 0 ? GW_SCAN_DONE : GW_SCAN_MORE;
}

static gw_scan_result open_value(gw_scan *s, unsigned char c) {
    if (c == '{' || c == '[') {
        if (s->depth == GW_SCAN_DEPTH) {
            return GW_SCAN_WRONG;
        }
        unsigned bit = 1u << (s->depth % 8), list = c == '[' ? bit : 0;
        s->is_list[s->depth / 8] = (uint8_t)((s->is_list[s->depth / 8] & ~bit) | list);
        s->depth++;
        s->state = c == '[' ? FIRST_ITEM : FIRST_KEY;
        return GW_SCAN_MORE;
    }
    s->word = c == 't' ? "true" : c == 'f' ? "false" : c == 'n' ? "null" : NULL;
    s->digits = 1;
    s->state = c == '"'          ? STRING
               : s->word != NULL ? WORD
               : c == '-'        ? MINUS
               : c == '0'        ? ZERO
               : is_digit(c)     ? INTEGER
                                 : VALUE;
    return s->state != VALUE ? GW_SCAN_MORE : GW_SCAN_WRONG;
}

static gw_scan_result close_value(gw_scan *s, unsigned char c) {
    if (s->depth == 0 || c != (in_list(s) ? ']' : '}')) {
        return GW_SCAN_WRONG;
    }
    s->depth--;
    return whole(s);
}

static gw_scan_result in_string(gw_scan *s, unsigned char c) {
    uint8_t key = s->state & KEY_STRING;
    switch (s->state & ~KEY_STRING) {
    case STRING:
        if (c == '"') {
            if (key) {
                s->state = COLON;
                return GW_SCAN_MORE;
            }
            return whole(s);
        }
        s->state = c == '\\' ? ESCAPE | key : s->state;
        return GW_SCAN_MORE;
    case ESCAPE:
        s->digits = 0;
        s->state = (c == 'u' ? HEX : STRING) | key;
        return c != 0 && strchr("\"\\/bfnrtu", c) != NULL ? GW_SCAN_MORE : GW_SCAN_WRONG;
    default:
        s->state = ++s->digits == 4 ? STRING | key : s->state;
        return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') ? GW_SCAN_MORE
                                                                               : GW_SCAN_WRONG;
    }
}

/* -1: the number ends before c. */
static int after_digit(int state, unsigned char c) {
    switch (state) {
    case MINUS:
        return c == '0' ? ZERO : is_digit(c) ? INTEGER : -2;
    case ZERO:
    case INTEGER:
        return state == INTEGER && is_digit(c) ? INTEGER
               : c == '.'                      ? POINT
               : c == 'e' || c == 'E'          ? EXPONENT
               : is_digit(c)                   ? -2
                                               : -1;
    case POINT:
        return is_digit(c) ? FRACTION : -2;
    case FRACTION:
        return is_digit(c) ? FRACTION : c == 'e' || c == 'E' ? EXPONENT : -1;
    case EXPONENT:
        return c == '+' || c == '-' ? SIGN : is_digit(c) ? POWER : -2;
    case SIGN:
        return is_digit(c) ? POWER : -2;
    default:
        return is_digit(c) ? POWER : -1;
    }
}

static gw_scan_result between(gw_scan *s, unsigned char c) {
    switch (s->state) {
    case FIRST_KEY:
    case KEY:
        if (c == '"') {
            s->state = STRING | KEY_STRING;
            return GW_SCAN_MORE;
        }
        return s->state == FIRST_KEY ? close_value(s, c) : GW_SCAN_WRONG;
    case COLON:
        s->state = VALUE;
        return c == ':' ? GW_SCAN_MORE : GW_SCAN_WRONG;
    case FIRST_ITEM:
        return c == ']' ? close_value(s, c) : open_value(s, c);
    case NEXT:
        if (c == ',' && s->depth > 0) {
            s->state = in_list(s) ? VALUE : KEY;
            return GW_SCAN_MORE;
        }
        return close_value(s, c);
    default:
        return open_value(s, c);
    }
}

gw_scan_result gw_scan_byte(gw_scan *s, unsigned char c) {
    if (gw_scan_in_string(s)) {
        return in_string(s, c);
    }
    if (s->state == WORD) {
        if ((unsigned char)s->word[s->digits] != c) {
            return GW_SCAN_WRONG;
        }
        return s->word[++s->digits] != '\0' ? GW_SCAN_MORE : whole(s);
    }
    if (s->state >= MINUS && s->state <= POWER) {
        int next = after_digit(s->state, c);
        if (next != -1) {
            s->state = (uint8_t)(next < 0 ? VALUE : next);
            return next < 0 ? GW_SCAN_WRONG : GW_SCAN_MORE;
        }
        s->state = NEXT;
        if (s->depth == 0) {
            return GW_SCAN_BEFORE;
        }
    }
    return is_space(c) ? GW_SCAN_MORE : between(s, c);
}

int gw_scan_in_string(const gw_scan *s) {
    unsigned state = s->state & ~(unsigned)KEY_STRING;
    return state == STRING || state == ESCAPE || state == HEX;
}
