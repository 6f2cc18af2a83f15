/* core/text/grammar/json_schema_number.c - numbers between bounds, multiples, all but some; see
 * json_schema_parts.h.
 *
 * How a number without an exponent compares with a bound shows digit by digit, so that an automaton
 * can tell. Digits after the point are so few that numbers that differ are different ones in
 * binary64 too: what lies below a bound stays below it when it is read.
 */
#include <math.h>
#include <stdio.h>

#include "core/text/grammar/json_schema_decimal.h"
#include "core/text/grammar/json_schema_parts.h"

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

enum { PLAIN_DIGITS = 16, EXACT_DIGITS = 15, BEHIND_DIGITS = 6, LONG_BOUND = 40 };
enum { REMAINDERS_MAX = 4000 };
enum { LESS = 1, EQUAL = 2, MORE = 4 };

typedef struct bounds {
    gw_decimal low, high;
    int has_low, has_high, over_low, under_high; /* over, under: the bound itself is out */
} bounds;

typedef struct shape { /* digits before the point, after it, and before it where some are after */
    int64_t before, behind, before_point;
} shape;

typedef struct numbers {
    gw_schema_work *w;
    const gw_schema_part *p;
    int integer;
    bounds b;
    shape s;
    gw_decimal *steps; /* [n_steps] multipleOf */
    size_t n_steps;
} numbers;

/* ---- unsigned numbers compared with a bound -------------------------------------------------- */

/* States: 0 the beginning, 1 the number 0, 2.. digits before the point (how many, and how they
 * compare), then digits after it (the same). */
static uint32_t before_state(int64_t digits, int cmp) {
    return 2 + 3 * (uint32_t)(digits - 1) + (uint32_t)(cmp / 2);
}
static uint32_t behind_state(const shape *s, int64_t digits, int cmp) {
    return 2 + 3 * (uint32_t)s->before + 3 * (uint32_t)digits + (uint32_t)(cmp / 2);
}

static int compare_digit(char bound, int c) { return c < bound ? LESS : c > bound ? MORE : EQUAL; }

/* How a number compares whose digits so far, and before the point, are these. */
static int ended(const gw_decimal *bound, int64_t digits, int cmp, int64_t behind) {
    int64_t whole = gw_decimal_before(bound);
    if (digits != whole) {
        return digits < whole ? LESS : MORE;
    }
    return cmp == EQUAL && behind < gw_decimal_behind(bound) ? LESS : cmp;
}

static gw_status add_digits(gw_dfa_builder *b, const gw_decimal *bound, int64_t place, int cmp,
                            const shape *s, int64_t behind, int from) {
    for (int c = from; c <= '9'; c++) {
        int open = cmp == EQUAL && (behind >= 0 || place < gw_decimal_before(bound));
        int next = open ? compare_digit(gw_decimal_digit(bound, place), c) : cmp;
        uint32_t to =
            behind >= 0 ? behind_state(s, behind + 1, next) : before_state(place + 1, next);
        GW_TRY(gw_dfa_edge_to(b, (uint32_t)c, (uint32_t)c, to));
    }
    return GW_OK;
}

static gw_status add_before(gw_dfa_builder *b, const gw_decimal *bound, const shape *s, int64_t n,
                            int cmp, int want) {
    int is = ended(bound, n, cmp, 0), point = ended(bound, n, cmp, INT64_MAX);
    GW_TRY(gw_dfa_state(b, (is & want) != 0));
    if (s->behind > 0 && n <= s->before_point) {
        GW_TRY(gw_dfa_edge_to(b, '.', '.', behind_state(s, 0, point)));
    }
    return n > 0 && n < s->before ? add_digits(b, bound, n, cmp, s, -1, '0') : GW_OK;
}

static gw_status add_behind(gw_dfa_builder *b, const gw_decimal *bound, const shape *s, int64_t n,
                            int cmp, int want) {
    int64_t rest = gw_decimal_behind(bound);
    int is = cmp == EQUAL && n < rest ? LESS : cmp;
    GW_TRY(gw_dfa_state(b, n > 0 && (is & want) != 0));
    return n < s->behind ? add_digits(b, bound, gw_decimal_before(bound) + n, cmp, s, n, '0')
                         : GW_OK;
}

static gw_status compared(gw_schema_work *w, const char *where, const gw_decimal *size, int want,
                          const shape *s, gw_dfa *out) {
    static const int all[] = {LESS, EQUAL, MORE};
    gw_decimal bound = *size;
    gw_dfa_builder b = {.arena = w->arena, .where = where};
    gw_status status;
    bound.negative = 0;
    GW_TRY_DONE(gw_dfa_state(&b, 0));
    GW_TRY_DONE(gw_dfa_edge_to(&b, '0', '0', 1));
    GW_TRY_DONE(
        add_digits(&b, &bound, 0, gw_decimal_before(&bound) > 0 ? EQUAL : MORE, s, -1, '1'));
    GW_TRY_DONE(add_before(&b, &bound, s, 0, EQUAL, want));
    for (int64_t n = 1; n <= s->before; n++) {
        for (int i = 0; i < 3; i++) {
            GW_TRY_DONE(add_before(&b, &bound, s, n, all[i], want));
        }
    }
    for (int64_t n = 0; n <= s->behind; n++) {
        for (int i = 0; i < 3; i++) {
            GW_TRY_DONE(add_behind(&b, &bound, s, n, all[i], want));
        }
    }
    status = gw_dfa_finish(&b, out);
done:
    gw_dfa_drop(&b);
    return status;
}

/* ---- multiples ------------------------------------------------------------------------------- */

/* Numbers that are multiples of `step` with no more digits after the point than it has: the
 * remainder of what is read, and how many digits after the point it has. zeros: with any number of
 * zeros after those, too. */
static gw_status multiples(const numbers *x, const gw_decimal *step, int zeros, gw_dfa *out) {
    int64_t behind = gw_decimal_behind(step);
    uint32_t divisor = 0;
    gw_dfa_builder b = {.arena = x->w->arena, .where = x->p->where};
    for (int64_t i = 0; i < step->n + (step->exponent > 0 ? step->exponent : 0); i++) {
        divisor = divisor * 10 + (i < step->n ? (uint32_t)(step->digits[i] - '0') : 0);
        if (divisor > REMAINDERS_MAX || divisor * (behind + 2) + 1 > GW_DFA_STATES) {
            return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                           "at %s: \"multipleOf\" with so many remainders is not supported",
                           x->p->where);
        }
    }
    gw_status status;
    /* 0: the beginning; 1 + r: before the point; 1 + divisor * (1 + f) + r: f digits after it */
    GW_TRY_DONE(gw_dfa_state(&b, 0));
    for (uint32_t c = 0; c <= 9; c++) {
        GW_TRY_DONE(gw_dfa_edge_to(&b, '0' + c, '0' + c, 1 + c % divisor));
    }
    uint32_t last = 1 + divisor * (uint32_t)(behind + 2), point = last + 1;
    for (int64_t f = -1; f <= behind; f++) {
        for (uint32_t r = 0; r < divisor; r++) {
            uint64_t scaled = r;
            for (int64_t i = f < 0 ? 0 : f; i < behind; i++) {
                scaled = scaled * 10 % divisor;
            }
            uint32_t base = 1 + divisor * (uint32_t)(f + 1);
            GW_TRY_DONE(gw_dfa_state(&b, f != 0 && scaled == 0));
            if (f < 0 && behind > 0) {
                GW_TRY_DONE(gw_dfa_edge_to(&b, '.', '.', base + divisor + r));
            } else if (f < 0 && zeros && r == 0) {
                GW_TRY_DONE(gw_dfa_edge_to(&b, '.', '.', point));
            }
            if (f == behind && f > 0 && zeros && r == 0) {
                GW_TRY_DONE(gw_dfa_edge_to(&b, '0', '0', last));
            }
            for (uint32_t c = 0; c <= 9 && f < behind; c++) {
                uint32_t to = base + (f < 0 ? 0 : divisor) + (r * 10 + c) % divisor;
                GW_TRY_DONE(gw_dfa_edge_to(&b, '0' + c, '0' + c, to));
            }
        }
    }
    GW_TRY_DONE(gw_dfa_state(&b, 1)); /* last */
    GW_TRY_DONE(gw_dfa_edge_to(&b, '0', '0', last));
    GW_TRY_DONE(gw_dfa_state(&b, 0)); /* point */
    GW_TRY_DONE(gw_dfa_edge_to(&b, '0', '0', last));
    status = gw_dfa_finish(&b, out);
done:
    gw_dfa_drop(&b);
    return status;
}

/* ---- what the schema says -------------------------------------------------------------------- */

static gw_status copy_decimal(gw_schema_work *w, const json_t *number, gw_decimal *out) {
    const gw_decimal *found;
    GW_TRY(gw_schema_decimal(w, number, &found));
    *out = *found;
    return GW_OK;
}

static gw_status read_number(const numbers *x, const char *key, const json_t *value,
                             gw_decimal *out) {
    if (!json_is_number(value)) {
        return gw_schema_wrong(x->p, key, "a number");
    }
    gw_status status = copy_decimal(x->w, value, out);
    return status == GW_OK ? status
                           : gw_fail(status, GW_SCHEMA, "at %s: \"%s\" has more than %d digits",
                                     x->p->where, key, GW_DECIMAL_DIGITS);
}

static void raise_low(bounds *b, const gw_decimal *low, int over) {
    int c = b->has_low ? gw_decimal_compare(low, &b->low) : 1;
    b->over_low = c > 0 ? over : b->over_low | (c == 0 && over);
    b->low = c > 0 ? *low : b->low;
    b->has_low = 1;
}

static void lower_high(bounds *b, const gw_decimal *high, int under) {
    int c = b->has_high ? gw_decimal_compare(high, &b->high) : -1;
    b->under_high = c < 0 ? under : b->under_high | (c == 0 && under);
    b->high = c < 0 ? *high : b->high;
    b->has_high = 1;
}

/* OpenAPI's and schemars' names of machine integers; to a validator they say nothing, so what they
 * rule out is only not written. */
static gw_status add_machine_bounds(numbers *x) {
    static const struct {
        const char *name, *low, *high;
    } formats[] = {
        {"int8", "-128", "127"},
        {"uint8", "0", "255"},
        {"int16", "-32768", "32767"},
        {"uint16", "0", "65535"},
        {"int32", "-2147483648", "2147483647"},
        {"uint32", "0", "4294967295"},
        {"int64", "-9223372036854775808", "9223372036854775807"},
        {"uint64", "0", "18446744073709551615"},
        {"int", "-9223372036854775808", "9223372036854775807"},
        {"uint", "0", "18446744073709551615"},
    };
    const char *name = json_string_value(json_object_get(x->p->schema, "format"));
    for (size_t i = 0; name != NULL && i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(name, formats[i].name) == 0) {
            gw_decimal low, high;
            GW_TRY(gw_decimal_parse(x->w->arena, formats[i].low, &low));
            GW_TRY(gw_decimal_parse(x->w->arena, formats[i].high, &high));
            bounds with = x->b;
            raise_low(&with, &low, 0);
            lower_high(&with, &high, 0);
            int c = gw_decimal_compare(&with.low, &with.high);
            x->b = c < 0 || (c == 0 && !with.over_low && !with.under_high) ? with : x->b;
        }
    }
    return GW_OK;
}

/* One number, or those of schemas that hold at once. */
static gw_status read_steps(numbers *x) {
    const json_t *given = json_object_get(x->p->schema, "multipleOf");
    size_t n = json_is_array(given) ? json_array_size(given) : given != NULL;
    x->steps = gw_arena_array(x->w->arena, n + 1, sizeof *x->steps);
    if (x->steps == NULL) {
        return gw_schema_no_memory();
    }
    for (; x->n_steps < n; x->n_steps++) {
        const json_t *one = json_is_array(given) ? json_array_get(given, x->n_steps) : given;
        gw_decimal *step = &x->steps[x->n_steps];
        GW_TRY(read_number(x, "multipleOf", one, step));
        if (step->n == 0 || step->negative) {
            return gw_schema_wrong(x->p, "multipleOf", "above 0");
        }
    }
    return GW_OK;
}

static gw_status read_bounds(numbers *x) {
    static const struct {
        const char *key, *other;
        int upper, exclusive;
    } keys[] = {{"minimum", "exclusiveMinimum", 0, 0},
                {"maximum", "exclusiveMaximum", 1, 0},
                {"exclusiveMinimum", NULL, 0, 1},
                {"exclusiveMaximum", NULL, 1, 1}};
    for (size_t i = 0; i < 4; i++) {
        const json_t *value = json_object_get(x->p->schema, keys[i].key);
        gw_decimal bound;
        if (value == NULL || (keys[i].exclusive && json_is_boolean(value))) {
            continue; /* true: of draft 4, about the bound beside it */
        }
        GW_TRY(read_number(x, keys[i].key, value, &bound));
        int out = keys[i].exclusive || json_is_true(json_object_get(x->p->schema, keys[i].other));
        if (keys[i].upper) {
            lower_high(&x->b, &bound, out);
        } else {
            raise_low(&x->b, &bound, out);
        }
    }
    GW_TRY(read_steps(x));
    return add_machine_bounds(x);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* As many digits as bounds ask for; a far bound that nothing reaches does not. */
static void shape_numbers(numbers *x) {
    const bounds *b = &x->b;
    int64_t low = b->has_low ? gw_decimal_before(&b->low) : 0;
    int64_t high = b->has_high ? gw_decimal_before(&b->high) : 0;
    int64_t behind = BEHIND_DIGITS;
    x->s.before = PLAIN_DIGITS;
    if (b->has_low) {
        int far = b->low.negative && low > LONG_BOUND;
        x->s.before = far ? x->s.before : larger(x->s.before, low + 1);
        behind = larger(behind, gw_decimal_behind(&b->low) + 2);
    }
    if (b->has_high) {
        int far = !b->high.negative && high > LONG_BOUND;
        x->s.before = far ? x->s.before : larger(x->s.before, high + 1);
        behind = larger(behind, gw_decimal_behind(&b->high) + 2);
    }
    for (size_t i = 0; i < x->n_steps; i++) {
        int64_t of_step = gw_decimal_behind(&x->steps[i]);
        behind = larger(behind, of_step);
        x->s.before = of_step > 0 ? smaller(x->s.before, EXACT_DIGITS) : x->s.before;
    }
    x->s.behind = x->integer ? 0 : behind;
    x->s.before_point = larger(1, EXACT_DIGITS - behind);
}

/* ---- listed numbers -------------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 wide;

/* value / step, where value is divided by s * 10^f: both without zeros at the end. */
static int is_multiple_of(const gw_decimal *value, const gw_decimal *step, int *known) {
    uint64_t s = 0, rest = 0;
    int64_t scale = value->exponent - step->exponent;
    *known = step->n > 0 && step->n <= 18;
    if (value->n == 0 || !*known) {
        return 1;
    }
    for (int64_t i = 0; i < step->n; i++) {
        s = s * 10 + (uint64_t)(step->digits[i] - '0');
    }
    if (scale < 0) { /* what is left of it would end in a zero */
        return 0;
    }
    for (int64_t i = 0; i < value->n + scale; i++) {
        uint64_t digit = i < value->n ? (uint64_t)(value->digits[i] - '0') : 0;
        rest = (uint64_t)(((wide)rest * 10 + digit) % s);
    }
    return rest == 0;
}

/* As jsonschema and others divide: where the step has a point or an exponent, in binary64. */
static int divides(gw_schema_work *w, const json_t *value, const json_t *step) {
    if (strpbrk(gw_schema_number(w, step), ".eE") == NULL) {
        return -1;
    }
    double x = json_number_value(value) / json_number_value(step);
    return !(floor(x) < x);
}

gw_status gw_schema_judge_multiple(gw_schema_work *w, const gw_schema_part *p, const json_t *value,
                                   int *is) {
    const json_t *given = json_object_get(p->schema, "multipleOf"), *step;
    const gw_decimal *x, *y;
    size_t n = json_is_array(given) ? json_array_size(given) : given != NULL;
    int known = 1;
    for (size_t i = 0; i < n && *is; i++) {
        step = json_is_array(given) ? json_array_get(given, i) : given;
        if (!json_is_number(step)) {
            return gw_schema_wrong(p, "multipleOf", "a number");
        }
        GW_TRY(gw_schema_decimal(w, value, &x));
        GW_TRY(gw_schema_decimal(w, step, &y));
        *is = is_multiple_of(x, y, &known) && divides(w, value, step) != 0;
    }
    for (size_t i = 0; (step = gw_schema_unmultiple(p, i)) != NULL && *is && known; i++) {
        GW_TRY(gw_schema_decimal(w, value, &x));
        GW_TRY(gw_schema_decimal(w, step, &y));
        *is = !is_multiple_of(x, y, &known) && divides(w, value, step) != 1;
    }
    return known
               ? GW_OK
               : gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                         "at %s: \"multipleOf\" of more than 18 digits is not supported", p->where);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gw_status narrow(const numbers *x, const gw_decimal *size, int want, gw_dfa *d) {
    gw_dfa one;
    GW_TRY(compared(x->w, x->p->where, size, want, &x->s, &one));
    return gw_dfa_combine(x->w->arena, x->p->where, d, &one, GW_DFA_AND, d);
}

/* Sizes of the numbers of one sign; *none: there are none. */
static gw_status sizes(const numbers *x, int negative, gw_dfa *out, int *none) {
    const bounds *b = &x->b;
    static const gw_decimal zero = {0};
    const gw_decimal *near = negative ? &b->high : &b->low, *far = negative ? &b->low : &b->high;
    int has_near = negative ? b->has_high : b->has_low,
        has_far = negative ? b->has_low : b->has_high;
    int past_near = negative ? b->under_high : b->over_low;
    int before_far = negative ? b->over_low : b->under_high;
    *none = has_far && (negative ? !far->negative : far->negative);
    if (*none) {
        return GW_OK;
    }
    int want = negative ? MORE : MORE | EQUAL; /* "-0" is not written */
    GW_TRY(compared(x->w, x->p->where, &zero, want, &x->s, out));
    if (has_near && (near->n == 0 || near->negative == negative)) {
        GW_TRY(narrow(x, near, past_near ? MORE : MORE | EQUAL, out));
    }
    if (has_far) {
        GW_TRY(narrow(x, far, before_far ? LESS : LESS | EQUAL, out));
    }
    for (size_t i = 0; i < x->n_steps; i++) {
        gw_dfa of;
        GW_TRY(multiples(x, &x->steps[i], 0, &of));
        GW_TRY(gw_dfa_combine(x->w->arena, x->p->where, out, &of, GW_DFA_AND, out));
    }
    const json_t *value;
    for (size_t i = 0; (value = gw_schema_unmultiple(x->p, i)) != NULL; i++) {
        gw_decimal step;
        gw_dfa of;
        GW_TRY(read_number(x, "multipleOf", value, &step));
        if (step.n == 0 || step.negative) {
            return gw_schema_wrong(x->p, "multipleOf", "above 0");
        }
        GW_TRY(multiples(x, &step, 1, &of));
        GW_TRY(gw_dfa_combine(x->w->arena, x->p->where, out, &of, GW_DFA_MINUS, out));
    }
    for (size_t i = 0; (value = gw_schema_excluded(x->p, i)) != NULL; i++) {
        gw_decimal d;
        if (!json_is_number(value)) {
            continue;
        }
        GW_TRY(copy_decimal(x->w, value, &d));
        if (d.negative == negative) {
            GW_TRY(narrow(x, &d, LESS | MORE, out));
        }
    }
    *none = gw_dfa_is_empty(out);
    return GW_OK;
}

/* Both signs under one beginning. */
static gw_status join_signs(const numbers *x, const gw_dfa *plus, const gw_dfa *minus,
                            gw_dfa *out) {
    gw_dfa_builder b = {.arena = x->w->arena, .where = x->p->where};
    const gw_dfa *parts[] = {plus, minus};
    gw_status status;
    GW_TRY_DONE(gw_dfa_state(&b, 0));
    if (minus != NULL) {
        GW_TRY_DONE(gw_dfa_edge_to(&b, '-', '-', 1 + (plus != NULL ? plus->n : 0)));
    }
    for (uint32_t e = 0; plus != NULL && e < plus->first[1]; e++) {
        GW_TRY_DONE(
            gw_dfa_edge_to(&b, plus->edges[e].low, plus->edges[e].high, plus->edges[e].to + 1));
    }
    uint32_t base = 1;
    for (int i = 0; i < 2; i++) {
        const gw_dfa *d = parts[i];
        for (uint32_t s = 0; d != NULL && s < d->n; s++) {
            GW_TRY_DONE(gw_dfa_state(&b, d->accepts[s]));
            for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
                GW_TRY_DONE(
                    gw_dfa_edge_to(&b, d->edges[e].low, d->edges[e].high, d->edges[e].to + base));
            }
        }
        base += d != NULL ? d->n : 0;
    }
    status = gw_dfa_finish(&b, out);
done:
    gw_dfa_drop(&b);
    return status;
}

static int is_free(const numbers *x) {
    const json_t *value;
    for (size_t i = 0; (value = gw_schema_excluded(x->p, i)) != NULL; i++) {
        if (json_is_number(value)) {
            return 0;
        }
    }
    return !x->b.has_low && !x->b.has_high && x->n_steps == 0 &&
           gw_schema_unmultiple(x->p, 0) == NULL;
}

static gw_status list_numbers(numbers *x, gw_dfa *out) {
    gw_dfa plus, minus;
    int no_plus, no_minus;
    shape_numbers(x);
    GW_TRY(sizes(x, 0, &plus, &no_plus));
    GW_TRY(sizes(x, 1, &minus, &no_minus));
    if (no_plus && no_minus) {
        return gw_schema_contradiction(x->w, x->p->where, "no number is within its bounds");
    }
    return join_signs(x, no_plus ? NULL : &plus, no_minus ? NULL : &minus, out);
}

gw_status gw_schema_read_numbers(gw_schema_work *w, const gw_schema_part *p, int integer,
                                 gw_dfa *out) {
    numbers x = {.w = w, .p = p, .integer = integer};
    GW_TRY(read_bounds(&x));
    return list_numbers(&x, out);
}

gw_status gw_schema_put_number(gw_schema_work *w, const gw_schema_part *p, size_t rule,
                               int integer) {
    numbers x = {.w = w, .p = p, .integer = integer};
    const char *name = integer ? "integer" : "number";
    gw_dfa both;
    GW_TRY(read_bounds(&x));
    if (is_free(&x)) {
        PUT("s%zu-%s ::= %s\n", rule, name, name);
        return GW_OK;
    }
    GW_TRY(list_numbers(&x, &both));
    char tag[16];
    snprintf(tag, sizeof tag, "%c", name[0]);
    PUT("s%zu-%s ::= s%zu-%s0\n", rule, name, rule, tag);
    return gw_schema_put_dfa(w, rule, tag, &both, 0, "\"\"");
}
