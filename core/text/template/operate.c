/* core/text/template/operate.c - operators on values, with the errors of Python. */
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"

static void check_defined(gw_tpl *r, gw_tv a, gw_tv b) {
    if (a.kind == GW_TV_UNDEFINED || b.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, a.kind == GW_TV_UNDEFINED ? a : b);
    }
}

static const char *spelling(int op) {
    switch (op) {
    case GW_OP_FLOOR:
        return "//";
    case GW_OP_POWER:
        return "** or pow()";
    case '+':
        return "+";
    case '-':
        return "-";
    case '*':
        return "*";
    case '/':
        return "/";
    default:
        return "%";
    }
}

static int is_list(gw_tv v) { return v.kind == GW_TV_LIST || v.kind == GW_TV_TUPLE; }

/* A list that ends where its memory is used up to is lengthened there: others see what they saw. */
static gw_tv join_lists(gw_tpl *r, gw_tv a, gw_tv b) {
    size_t n = a.list->n, more = b.list->n;
    gw_tv out = {.kind = a.kind};
    gw_tpl_charge(r, more);
    if (n > 0 && *a.list->used == n && a.list->own && more <= a.list->room - n) {
        out.list = gw_tpl_alloc(r, sizeof *out.list);
        *out.list = *a.list;
    } else {
        gw_tpl_charge(r, n);
        out = gw_tv_list(r, n + more + n / 2 + 4);
        out.kind = a.kind;
        if (n > 0) {
            memcpy(out.list->at, a.list->at, n * sizeof(gw_tv));
        }
    }
    if (more > 0) {
        memcpy(out.list->at + n, b.list->at, more * sizeof(gw_tv));
    }
    out.list->n = n + more;
    *out.list->used = n + more;
    return out;
}

/* Of a safe and a plain text the plain one is escaped. */
static gw_tv join_texts(gw_tpl *r, gw_tv a, gw_tv b) {
    int safe = a.safe || b.safe;
    gw_tv out =
        safe ? gw_tv_join2(r, gw_tpl_escape(r, a), gw_tpl_escape(r, b)) : gw_tv_join2(r, a, b);
    out.safe = (uint8_t)safe;
    return out;
}

static gw_tv repeat(gw_tpl *r, gw_tv v, gw_tv times) {
    int64_t n = times.kind == GW_TV_BIG ? gw_tpl_big_negative(times) ? 0 : INT64_MAX : times.i;
    n = n < 0 ? 0 : n;
    if (v.kind == GW_TV_TEXT) {
        gw_tpl_out *out = gw_tpl_out_open(r);
        gw_tpl_out_repeat(r, out, v, (size_t)n);
        gw_tv text = gw_tpl_out_close(r, out);
        text.safe = v.safe;
        return text;
    }
    size_t all;
    if (__builtin_mul_overflow(v.list->n, (size_t)n, &all)) {
        all = SIZE_MAX / 64;
    }
    gw_tpl_charge(r, all);
    gw_tv out = gw_tv_list(r, all);
    out.kind = v.kind;
    for (int64_t i = 0; v.list->n > 0 && i < n; i++) {
        memcpy(out.list->at + out.list->n, v.list->at, v.list->n * sizeof(gw_tv));
        out.list->n += v.list->n;
    }
    *out.list->used = out.list->n;
    return out;
}

static int is_integer(gw_tv v) {
    return v.kind == GW_TV_INT || v.kind == GW_TV_BIG || v.kind == GW_TV_BOOL;
}

static int is_sequence(gw_tv v) { return v.kind == GW_TV_TEXT || is_list(v); }

gw_tv gw_tpl_binary(gw_tpl *r, gw_tv a, int op, gw_tv b) {
    if (op == '%' && a.kind == GW_TV_TEXT) {
        return gw_tpl_percent(r, a, b);
    }
    check_defined(r, a, b);
    if (gw_tv_is_number(a) && gw_tv_is_number(b)) {
        return gw_tpl_arithmetic(r, a, op, b);
    }
    if (op == '+' && a.kind == GW_TV_TEXT && b.kind == GW_TV_TEXT) {
        return join_texts(r, a, b);
    }
    if (op == '+' && is_list(a) && a.kind == b.kind) {
        return join_lists(r, a, b);
    }
    if (op == '*' && is_sequence(a) && is_integer(b)) {
        return repeat(r, a, b);
    }
    if (op == '*' && is_integer(a) && is_sequence(b)) {
        return repeat(r, b, a);
    }
    if (op == '+' && is_sequence(a)) {
        gw_tpl_raise(r, GW_E_TYPE, "can only concatenate %s (not \"%s\") to %s", gw_tv_type(a),
                     gw_tv_type(b), gw_tv_type(a));
    }
    gw_tpl_raise(r, GW_E_TYPE, "unsupported operand type(s) for %s: '%s' and '%s'", spelling(op),
                 gw_tv_type(a), gw_tv_type(b));
}

int gw_tpl_contains(gw_tpl *r, gw_tv in, gw_tv what) {
    if (in.kind == GW_TV_DICT || (in.kind == GW_TV_VIEW && in.part == GW_TPL_KEYS)) {
        return gw_tpl_find(r, in.dict, what) != NULL;
    }
    if (in.kind == GW_TV_TEXT) {
        if (what.kind != GW_TV_TEXT) {
            if (what.kind == GW_TV_UNDEFINED) {
                gw_tpl_raise(r, GW_E_TYPE,
                             "'in <string>' requires string as left operand, not Undefined");
            }
            gw_tpl_raise(r, GW_E_TYPE, "'in <string>' requires string as left operand, not %s",
                         gw_tv_type(what));
        }
        gw_tpl_charge(r, in.n / 16);
        return what.n == 0 || memmem(in.text, in.n, what.text, what.n) != NULL;
    }
    if (!gw_tv_iterable(in)) {
        gw_tpl_raise(r, GW_E_TYPE, "argument of type '%s' is not iterable", gw_tv_type(in));
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, in);
    for (size_t i = 0; i < w.n; i++) {
        if (gw_tv_equal(r, gw_tpl_walk_at(&w, i), what)) {
            return 1;
        }
    }
    return 0;
}

static int less_or_equal(gw_tpl *r, gw_tv a, gw_tv b, const char *op) {
    if (gw_tv_is_number(a) && gw_tv_is_number(b)) {
        int order = gw_tpl_compare_numbers(r, a, b);
        return order == -1 || order == 0;
    }
    return gw_tv_less(r, a, b, op) || gw_tv_equal(r, a, b);
}

int gw_tpl_compare(gw_tpl *r, gw_tv a, int op, gw_tv b) {
    switch (op) {
    case GW_OP_EQ:
        return gw_tv_equal(r, a, b);
    case GW_OP_NE:
        return !gw_tv_equal(r, a, b);
    case '<':
        return gw_tv_less(r, a, b, "<");
    case '>':
        return gw_tv_less(r, b, a, ">");
    case GW_OP_LE:
        return less_or_equal(r, a, b, "<=");
    case GW_OP_GE:
        return less_or_equal(r, b, a, ">=");
    case GW_OP_IN:
        return gw_tpl_contains(r, b, a);
    default:
        return !gw_tpl_contains(r, b, a);
    }
}

int64_t gw_tpl_int(gw_tpl *r, gw_tv v, const char *what) {
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (v.kind == GW_TV_BIG) {
        gw_tpl_raise(r, GW_E_LIMIT, "%s: an integer beyond 64 bits", what);
    }
    if (v.kind != GW_TV_INT && v.kind != GW_TV_BOOL) {
        gw_tpl_raise(r, GW_E_TYPE, "%s: '%s' object cannot be interpreted as an integer", what,
                     gw_tv_type(v));
    }
    return v.i;
}

/* Merge sort: stable, as Python's; keys move along. */
static void merge(gw_tpl *r, gw_tv *at, gw_tv *keys, gw_tv *spare, size_t n, int reverse) {
    if (n < 2) {
        return;
    }
    size_t half = n / 2, i = 0, j = half, to = 0;
    merge(r, at, keys, spare, half, reverse);
    merge(r, at + half, keys + half, spare, n - half, reverse);
    while (i < half || j < n) {
        int right = i == half || (j < n && (reverse ? gw_tv_less(r, keys[i], keys[j], "<")
                                                    : gw_tv_less(r, keys[j], keys[i], "<")));
        size_t from = right ? j++ : i++;
        spare[2 * to] = at[from];
        spare[2 * to++ + 1] = keys[from];
    }
    for (i = 0; i < n; i++) {
        at[i] = spare[2 * i];
        keys[i] = spare[2 * i + 1];
    }
}

void gw_tpl_sort(gw_tpl *r, gw_tv *at, const gw_tv *keys, size_t n, int reverse) {
    gw_tv *copy = gw_tpl_array(r, n + 1, sizeof *copy);
    gw_tv *spare = gw_tpl_array(r, n + 1, 2 * sizeof *spare);
    if (n > 0) {
        memcpy(copy, keys, n * sizeof *copy);
    }
    gw_tpl_charge(r, n);
    merge(r, at, copy, spare, n, reverse);
}
