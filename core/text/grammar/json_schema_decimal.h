/* core/text/grammar/json_schema_decimal.h - decimal numbers of any length, exactly as they are
 * written. For json_schema_*.c only.
 */
#ifndef GW_TEXT_JSON_SCHEMA_DECIMAL_H
#define GW_TEXT_JSON_SCHEMA_DECIMAL_H

#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"

enum { GW_DECIMAL_DIGITS = 1000 }; /* of one that is written out */

/* digits [n] * 10^exponent; neither the first nor the last digit is 0; n == 0: zero, not negative.
 */
typedef struct gw_decimal {
    int negative;
    const char *digits;
    int64_t n, exponent;
} gw_decimal;

/* A JSON number (well-formed). GW_E_LIMIT when it is longer than GW_DECIMAL_DIGITS written out. */
gw_status gw_decimal_parse(gw_arena *arena, const char *text, gw_decimal *out);
int gw_decimal_compare(const gw_decimal *a, const gw_decimal *b); /* -1, 0, 1 */
static inline int gw_decimal_is_whole(const gw_decimal *x) { return x->exponent >= 0; }
/* Digits before and behind the point; digit i of either, "0" beyond its end. */
static inline int64_t gw_decimal_before(const gw_decimal *x) {
    return x->n + x->exponent > 0 ? x->n + x->exponent : 0;
}
static inline int64_t gw_decimal_behind(const gw_decimal *x) {
    return x->exponent < 0 ? -x->exponent : 0;
}
char gw_decimal_digit(const gw_decimal *x, int64_t place); /* place 0: the first before the point */

#endif
