/* core/text/template/number.h - the arithmetic of templates: Python's integers and floats. */
#ifndef GW_TEXT_TEMPLATE_NUMBER_H
#define GW_TEXT_TEMPLATE_NUMBER_H

#include "core/base/arena.h"
#include "core/text/template/value.h"

/* Digits of a base 2..16 with an optional sign; word is NUL-terminated at n. */
gw_status gw_tpl_read_integer(gw_arena *arena, const char *word, size_t n, int base, gw_tv *out);
double gw_tpl_read_float(const char *word); /* whatever the locale */

/* The same inside a rendering; digits only. */
gw_tv gw_tpl_integer(gw_tpl *r, const char *word, size_t n, int base);

/* op: '+', '-', '*', '/', GW_OP_FLOOR, '%', GW_OP_POWER; both are numbers. */
gw_tv gw_tpl_arithmetic(gw_tpl *r, gw_tv a, int op, gw_tv b);
gw_tv gw_tpl_negate(gw_tpl *r, gw_tv a);
int gw_tpl_compare_numbers(gw_tpl *r, gw_tv a, gw_tv b); /* -1, 0, 1; 2: NaN is among them */
gw_tv gw_tpl_whole(gw_tpl *r, double f);                 /* int(f); raises for inf and NaN */
gw_tv gw_tpl_write_big(gw_tpl *r, gw_tv big);
double gw_tpl_big_real(gw_tv big);
int gw_tpl_big_negative(gw_tv big);
uint64_t gw_tpl_hash_number(gw_tpl *r, gw_tv v); /* equal for numbers that are equal */

#endif
