/* core/text/grammar/json_schema_decimal.c - decimal numbers; see json_schema_decimal.h. */
#include "core/text/grammar/json_schema_decimal.h"

#include <stdlib.h>
#include <string.h>

gw_status gw_decimal_parse(gw_arena *arena, const char *text, gw_decimal *out) {
    gw_decimal x = {.negative = *text == '-'};
    size_t room = strlen(text);
    char *digits = gw_arena_alloc(arena, room + 1);
    int behind = 0;
    if (digits == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory");
    }
    for (text += x.negative; *text != '\0' && *text != 'e' && *text != 'E'; text++) {
        behind |= *text == '.';
        if (*text != '.') {
            x.exponent -= behind;
            if (x.n > 0 || *text != '0') {
                digits[x.n++] = *text;
            }
        }
    }
    if (*text != '\0') {
        long long e = strtoll(text + 1, NULL, 10);
        x.exponent += e < -1000000 ? -1000000 : e > 1000000 ? 1000000 : e;
    }
    while (x.n > 0 && digits[x.n - 1] == '0') {
        x.n--;
        x.exponent++;
    }
    if (x.n == 0) {
        x.negative = 0;
        x.exponent = 0;
    }
    x.digits = digits;
    if (x.n + llabs(x.exponent) > GW_DECIMAL_DIGITS) {
        return gw_fail(GW_E_LIMIT, NULL, "a number of more than %d digits", GW_DECIMAL_DIGITS);
    }
    *out = x;
    return GW_OK;
}

char gw_decimal_digit(const gw_decimal *x, int64_t place) {
    int64_t at = x->n + x->exponent > 0 ? place : place + x->n + x->exponent;
    return at >= 0 && at < x->n ? x->digits[at] : '0';
}

static int compare_sizes(const gw_decimal *a, const gw_decimal *b) {
    if (a->n == 0 || b->n == 0) {
        return (a->n > 0) - (b->n > 0);
    }
    int64_t top_a = a->n + a->exponent, top_b = b->n + b->exponent;
    if (top_a != top_b) {
        return top_a < top_b ? -1 : 1;
    }
    for (int64_t i = 0; i < a->n || i < b->n; i++) {
        char x = i < a->n ? a->digits[i] : '0', y = i < b->n ? b->digits[i] : '0';
        if (x != y) {
            return x < y ? -1 : 1;
        }
    }
    return 0;
}

int gw_decimal_compare(const gw_decimal *a, const gw_decimal *b) {
    if (a->negative != b->negative) {
        return a->negative ? -1 : 1;
    }
    return a->negative ? -compare_sizes(a, b) : compare_sizes(a, b);
}
