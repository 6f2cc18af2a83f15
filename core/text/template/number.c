/* core/text/template/number.c - integers of any size (up to a limit) and floats, as Python's.
 *
 * An integer is 64 bits wide while it fits. A bigger one is a list of limbs to the base 10^9, so
 * that printing, which is what templates do with them, is plain.
 */
#include "core/text/template/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/template/tree.h"

enum {
    LIMBS = 520,
    BASE = 1000000000,
    LIMB_DIGITS = 9,
    SPELLED = 520 * 9 + 20
}; /* 4,680 digits; Python prints 4,300 */

struct gw_tpl_big {
    int negative;
    uint32_t n; /* limbs, the lowest first; the highest is not 0 */
    uint32_t at[];
};

typedef struct big {
    int negative;
    uint32_t n;
    uint32_t at[LIMBS];
} big;

_Noreturn static void too_large(gw_tpl *r) {
    gw_tpl_raise(r, GW_E_LIMIT, "an integer of more than %d digits", LIMBS * LIMB_DIGITS);
}

/* ---- limbs ----------------------------------------------------------------------------------- */

/* x * factor + more; 0: too large. */
static int scale(big *x, uint32_t factor, uint32_t more) {
    uint64_t carry = more;
    for (uint32_t i = 0; i < x->n; i++) {
        carry += (uint64_t)x->at[i] * factor;
        x->at[i] = (uint32_t)(carry % BASE);
        carry /= BASE;
    }
    while (carry > 0) {
        if (x->n == LIMBS) {
            return 0;
        }
        x->at[x->n++] = (uint32_t)(carry % BASE);
        carry /= BASE;
    }
    return 1;
}

static void set_int(big *x, int64_t i) {
    uint64_t rest = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    x->negative = i < 0;
    x->n = 0;
    for (; rest > 0; rest /= BASE) {
        x->at[x->n++] = (uint32_t)(rest % BASE);
    }
}

static void set(big *x, gw_tv v) {
    if (v.kind != GW_TV_BIG) {
        set_int(x, v.i);
        return;
    }
    x->negative = v.big->negative;
    x->n = v.big->n;
    memcpy(x->at, v.big->at, x->n * sizeof x->at[0]);
}

static void trim(big *x) {
    while (x->n > 0 && x->at[x->n - 1] == 0) {
        x->n--;
    }
    x->negative = x->negative && x->n > 0;
}

/* 1: it fits 64 bits. */
static int small(const big *x, int64_t *out) {
    uint64_t value = 0;
    for (uint32_t i = x->n; i-- > 0;) {
        if (__builtin_mul_overflow(value, (uint64_t)BASE, &value) ||
            __builtin_add_overflow(value, (uint64_t)x->at[i], &value)) {
            return 0;
        }
    }
    if (value > (uint64_t)INT64_MAX + (x->negative != 0)) {
        return 0;
    }
    *out = x->negative ? (int64_t)(0 - value) : (int64_t)value;
    return 1;
}

static gw_tv keep(const big *x, gw_tpl_big *to) {
    to->negative = x->negative;
    to->n = x->n;
    memcpy(to->at, x->at, x->n * sizeof x->at[0]);
    return (gw_tv){.kind = GW_TV_BIG, .big = to};
}

static gw_tv result(gw_tpl *r, big *x) {
    int64_t i;
    trim(x);
    if (small(x, &i)) {
        return gw_tv_int(i);
    }
    return keep(x, gw_tpl_alloc(r, sizeof(gw_tpl_big) + x->n * sizeof x->at[0]));
}

static int compare_size(const big *a, const big *b) {
    if (a->n != b->n) {
        return a->n < b->n ? -1 : 1;
    }
    for (uint32_t i = a->n; i-- > 0;) {
        if (a->at[i] != b->at[i]) {
            return a->at[i] < b->at[i] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_big(const big *a, const big *b) {
    if (a->negative != b->negative) {
        return a->negative ? -1 : 1;
    }
    int order = compare_size(a, b);
    return a->negative ? -order : order;
}

static void add_size(gw_tpl *r, big *a, const big *b) {
    uint64_t carry = 0;
    for (uint32_t i = 0; i < b->n || carry > 0; i++) {
        if (i == a->n) {
            if (a->n == LIMBS) {
                too_large(r);
            }
            a->at[a->n++] = 0;
        }
        carry += (uint64_t)a->at[i] + (i < b->n ? b->at[i] : 0);
        a->at[i] = (uint32_t)(carry % BASE);
        carry /= BASE;
    }
}

static void subtract_size(big *a, const big *b) { /* |a| >= |b| */
    int64_t borrow = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        borrow += (int64_t)a->at[i] - (i < b->n ? (int64_t)b->at[i] : 0);
        a->at[i] = (uint32_t)(borrow < 0 ? borrow + BASE : borrow);
        borrow = borrow < 0 ? -1 : 0;
    }
    trim(a);
}

static void add(gw_tpl *r, big *a, const big *b, int minus) {
    int other = b->n > 0 && (b->negative != 0) != (minus != 0);
    if ((a->negative != 0) == other) {
        add_size(r, a, b);
    } else if (compare_size(a, b) >= 0) {
        subtract_size(a, b);
    } else {
        big swapped = *b;
        subtract_size(&swapped, a);
        *a = swapped;
        a->negative = other;
    }
    trim(a);
}

static void multiply(gw_tpl *r, big *a, const big *b) {
    big out = {.negative = a->negative != b->negative, .n = a->n + b->n};
    if (out.n > LIMBS) {
        too_large(r);
    }
    gw_tpl_charge(r, (size_t)a->n * b->n / 8);
    memset(out.at, 0, out.n * sizeof out.at[0]);
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j < b->n || carry > 0; j++) {
            carry += out.at[i + j] + (uint64_t)a->at[i] * (j < b->n ? b->at[j] : 0);
            out.at[i + j] = (uint32_t)(carry % BASE);
            carry /= BASE;
        }
    }
    trim(&out);
    *a = out;
}

/* Quotient and remainder rounded down, as Python's: a becomes the remainder. b is not 0. */
static void divide(gw_tpl *r, big *a, const big *b, big *quotient) {
    big rest = {.n = 0}, part;
    gw_tpl_charge(r, (size_t)(a->n + 1) * (b->n + 1));
    quotient->n = a->n;
    quotient->negative = a->negative != b->negative;
    for (uint32_t i = a->n; i-- > 0;) {
        uint32_t low = 0, high = BASE;
        if (!scale(&rest, BASE, 0)) {
            too_large(r);
        }
        rest.n += rest.n == 0;
        rest.at[0] = a->at[i];
        trim(&rest);
        while (high - low > 1) { /* the largest digit with digit * b <= rest */
            uint32_t middle = low + (high - low) / 2;
            part = *b;
            part.negative = 0;
            if (scale(&part, middle, 0) && compare_size(&part, &rest) <= 0) {
                low = middle;
            } else {
                high = middle;
            }
        }
        part = *b;
        scale(&part, low, 0);
        trim(&part);
        subtract_size(&rest, &part);
        quotient->at[i] = low;
    }
    trim(quotient);
    rest.negative = a->negative && rest.n > 0;
    *a = rest;
    if (a->n > 0 && (a->negative != 0) != (b->negative != 0)) {
        big one;
        set_int(&one, 1);
        add(r, a, b, 0);
        add(r, quotient, &one, 1);
    }
}

/* ---- reading and writing --------------------------------------------------------------------- */

static int read_big(const char *word, size_t n, int base, big *out) {
    out->n = 0;
    size_t at = 0;
    int negative = n > 0 && word[0] == '-';
    at += negative || (n > 0 && word[0] == '+');
    for (; at < n; at++) {
        char c = word[at], low = (char)(c | 32);
        int digit = c >= '0' && c <= '9' ? c - '0' : low - 'a' + 10;
        if (!scale(out, (uint32_t)base, (uint32_t)digit)) {
            return 0;
        }
    }
    out->negative = negative;
    trim(out);
    return 1;
}

gw_status gw_tpl_read_integer(gw_arena *arena, const char *word, size_t n, int base, gw_tv *out) {
    big x;
    int64_t i;
    if (!read_big(word, n, base, &x)) {
        return gw_fail(GW_E_LIMIT, "template", "an integer of too many digits");
    }
    if (small(&x, &i)) {
        *out = gw_tv_int(i);
        return GW_OK;
    }
    gw_tpl_big *to = gw_arena_alloc(arena, sizeof *to + x.n * sizeof x.at[0]);
    if (to == NULL) {
        return gw_fail(GW_E_NOMEM, "template", "no memory");
    }
    *out = keep(&x, to);
    return GW_OK;
}

gw_tv gw_tpl_integer(gw_tpl *r, const char *word, size_t n, int base) {
    big x;
    gw_tpl_charge(r, n * (n / 64 + 1) / 8);
    if (!read_big(word, n, base, &x)) {
        too_large(r);
    }
    return result(r, &x);
}

double gw_tpl_read_float(const char *word) { return strtod(word, NULL); }

/* The digits, and a power of ten behind them where there is one. */
static void spell(gw_tv v, int power, char word[SPELLED]) {
    uint32_t i = v.big->n - 1;
    char *p = word + sprintf(word, "%s%" PRIu32, v.big->negative ? "-" : "", v.big->at[i]);
    while (i-- > 0) {
        p += sprintf(p, "%09" PRIu32, v.big->at[i]);
    }
    if (power != 0) {
        sprintf(p, "e%d", power);
    }
}

gw_tv gw_tpl_write_big(gw_tpl *r, gw_tv v) {
    char word[SPELLED];
    spell(v, 0, word);
    gw_tpl_out *out = gw_tpl_out_open(r);
    gw_tpl_out_words(r, out, word);
    return gw_tpl_out_close(r, out);
}

double gw_tpl_big_real(gw_tv v) {
    char word[SPELLED];
    spell(v, 0, word);
    return gw_tpl_read_float(word);
}

/* a / b where one of them is big: enough digits of the quotient that it rounds as it should. */
static gw_tv ratio(gw_tpl *r, gw_tv a, gw_tv b) {
    enum { MORE = 40 };
    char word[SPELLED];
    size_t of_a = a.kind == GW_TV_BIG ? a.big->n * LIMB_DIGITS : 19;
    size_t of_b = b.kind == GW_TV_BIG ? b.big->n * LIMB_DIGITS : 19;
    int power = of_b + MORE > of_a ? (int)(of_b + MORE - of_a) : 0;
    gw_tv unit = gw_tpl_arithmetic(r, gw_tv_int(10), GW_OP_POWER, gw_tv_int(power));
    gw_tv q = gw_tpl_arithmetic(r, gw_tpl_arithmetic(r, a, '*', unit), GW_OP_FLOOR, b);
    if (q.kind != GW_TV_BIG) {
        return gw_tv_float((double)q.i * pow(10, -power));
    }
    spell(q, -power, word);
    double f = gw_tpl_read_float(word);
    if (isinf(f)) {
        gw_tpl_raise(r, GW_E_LIMIT, "integer division result too large for a float");
    }
    return gw_tv_float(f);
}

int gw_tpl_big_negative(gw_tv v) { return v.big->negative; }

gw_tv gw_tpl_whole(gw_tpl *r, double f) {
    char word[400];
    if (!isfinite(f)) {
        gw_tpl_raise(r, GW_E_TYPE, "cannot convert float %s to integer",
                     isnan(f) ? "NaN" : "infinity");
    }
    f = trunc(f);
    if (f >= -9.2e18 && f <= 9.2e18) {
        return gw_tv_int((int64_t)f);
    }
    int n = snprintf(word, sizeof word, "%.0f", f);
    return gw_tpl_integer(r, word, (size_t)n, 10);
}

uint64_t gw_tpl_hash_number(gw_tpl *r, gw_tv v) {
    double f = gw_tv_real(r, v);
    if (v.kind == GW_TV_INT || v.kind == GW_TV_BOOL) {
        return (uint64_t)v.i * 0x9E3779B97F4A7C15u;
    }
    if (f == trunc(f) && f >= -9.2e18 && f <= 9.2e18) {
        return (uint64_t)(int64_t)f * 0x9E3779B97F4A7C15u;
    }
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits * 0x9E3779B97F4A7C15u;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static int is_float(gw_tv v) { return v.kind == GW_TV_FLOAT; }

int gw_tpl_compare_numbers(gw_tpl *r, gw_tv a, gw_tv b) {
    if (is_float(a) || is_float(b)) {
        if (a.kind == GW_TV_BIG || b.kind == GW_TV_BIG || (is_float(a) && is_float(b))) {
            double x = gw_tv_real(r, a), y = gw_tv_real(r, b);
            return isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
        }
        long double x = is_float(a) ? (long double)a.f : (long double)a.i;
        long double y = is_float(b) ? (long double)b.f : (long double)b.i;
        return isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
    }
    if (a.kind == GW_TV_BIG || b.kind == GW_TV_BIG) {
        big x, y;
        set(&x, a);
        set(&y, b);
        return compare_big(&x, &y);
    }
    return a.i < b.i ? -1 : a.i > b.i;
}

gw_tv gw_tpl_negate(gw_tpl *r, gw_tv a) {
    if (is_float(a)) {
        return gw_tv_float(-a.f);
    }
    return gw_tpl_arithmetic(r, gw_tv_int(0), '-', a);
}

static gw_tv power_of_integers(gw_tpl *r, gw_tv a, gw_tv b) {
    big base, out;
    set(&base, a);
    set_int(&out, 1);
    if (b.kind == GW_TV_BIG && (base.n > 1 || (base.n == 1 && base.at[0] > 1))) {
        too_large(r);
    }
    uint64_t power = b.kind == GW_TV_BIG ? (uint64_t)b.big->at[0] + 2 : (uint64_t)b.i;
    for (; power > 0; power >>= 1) {
        if (power & 1) {
            multiply(r, &out, &base);
        }
        if (power > 1) {
            big factor = base;
            multiply(r, &base, &factor);
        }
    }
    return result(r, &out);
}

static gw_tv floats(gw_tpl *r, double x, int op, double y) {
    double rest;
    switch (op) {
    case '+':
        return gw_tv_float(x + y);
    case '-':
        return gw_tv_float(x - y);
    case '*':
        return gw_tv_float(x * y);
    case '/':
        if (y == 0) {
            gw_tpl_raise(r, GW_E_TYPE, "division by zero");
        }
        return gw_tv_float(x / y);
    case GW_OP_POWER:
        if (x == 0 && y < 0) {
            gw_tpl_raise(r, GW_E_TYPE, "0.0 cannot be raised to a negative power");
        }
        if (x < 0 && y != trunc(y)) {
            gw_tpl_raise(r, GW_E_TYPE, "a negative number to a power that is not whole");
        }
        if (isfinite(x) && isfinite(y) && isinf(pow(x, y))) {
            gw_tpl_raise(r, GW_E_TYPE, "the result is too large");
        }
        return gw_tv_float(pow(x, y));
    default:
        break;
    }
    if (y == 0) {
        gw_tpl_raise(r, GW_E_TYPE,
                     op == '%' ? "float modulo by zero" : "float floor division by zero");
    }
    rest = fmod(x, y);
    if (rest != 0 && (rest < 0) != (y < 0)) {
        rest += y;
    } else if (rest == 0) {
        rest = copysign(0.0, y);
    }
    if (op == '%') {
        return gw_tv_float(rest);
    }
    double quotient = (x - rest) / y, whole = floor(quotient);
    return gw_tv_float(quotient == 0 ? copysign(0.0, x / y)
                                     : whole + (quotient - whole > 0.5 ? 1 : 0));
}

static int fits(gw_tv a, int op, gw_tv b, int64_t *out) {
    switch (op) {
    case '+':
        return !__builtin_add_overflow(a.i, b.i, out);
    case '-':
        return !__builtin_sub_overflow(a.i, b.i, out);
    case '*':
        return !__builtin_mul_overflow(a.i, b.i, out);
    case GW_OP_FLOOR:
    case '%': {
        if (a.i == INT64_MIN && b.i == -1) {
            return 0;
        }
        int64_t rest = a.i % b.i, quotient = a.i / b.i;
        int down = rest != 0 && (rest < 0) != (b.i < 0);
        *out = op == '%' ? rest + (down ? b.i : 0) : quotient - down;
        return 1;
    }
    default:
        return 0;
    }
}

gw_tv gw_tpl_arithmetic(gw_tpl *r, gw_tv a, int op, gw_tv b) {
    big x, y, quotient;
    int64_t i;
    int zero = b.kind != GW_TV_BIG && !is_float(b) && b.i == 0;
    int negative = b.kind == GW_TV_BIG ? b.big->negative : b.i < 0;
    if (op == '/' && !is_float(a) && !is_float(b) && !zero &&
        (a.kind == GW_TV_BIG || b.kind == GW_TV_BIG)) {
        return ratio(r, a, b);
    }
    if (is_float(a) || is_float(b) || op == '/' || (op == GW_OP_POWER && negative)) {
        return floats(r, gw_tv_real(r, a), op, gw_tv_real(r, b));
    }
    if (zero && (op == '%' || op == GW_OP_FLOOR)) {
        gw_tpl_raise(r, GW_E_TYPE,
                     op == '%' ? "integer modulo by zero" : "integer division or modulo by zero");
    }
    if (op == GW_OP_POWER) {
        return power_of_integers(r, a, b);
    }
    if (a.kind != GW_TV_BIG && b.kind != GW_TV_BIG && fits(a, op, b, &i)) {
        return gw_tv_int(i);
    }
    set(&x, a);
    set(&y, b);
    switch (op) {
    case '+':
    case '-':
        add(r, &x, &y, op == '-');
        break;
    case '*':
        multiply(r, &x, &y);
        break;
    default:
        divide(r, &x, &y, &quotient);
        return result(r, op == '%' ? &x : &quotient);
    }
    return result(r, &x);
}
