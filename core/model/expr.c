/* core/model/expr.c - a reader by precedence, and a small stack machine. */
#include "core/model/expr.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/rope.h"

typedef struct reader {
    gw_expr_pool *pool;
    const char *at, *end;
    gw_expr_names names;
    const void *user;
    int positions, lists, depth;
    const char *why;
} reader;

/* ---- reading -------------------------------------------------------------------------------- */

static int fail(reader *r, const char *why) {
    r->why = r->why != NULL ? r->why : why;
    return 0;
}

static void skip_blanks(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t')) {
        r->at++;
    }
}

static int take(reader *r, const char *sign) {
    size_t n = strlen(sign);
    skip_blanks(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, sign, n) != 0) {
        return 0;
    }
    r->at += n;
    return 1;
}

static int emit(reader *r, gw_expr_op op, int to, double constant) {
    if (r->pool->n == GW_EXPR_STEPS) {
        return fail(r, "the spec has too many expressions");
    }
    r->pool->step[r->pool->n++] = (gw_expr_step){op, to, constant};
    return 1;
}

static int is_name(char c, int first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

static int read_choice(reader *r);

/* The name of a number that the file may state as a list. */
static int read_listed(reader *r, int *number) {
    skip_blanks(r);
    const char *start = r->at;
    while (r->at < r->end && is_name(*r->at, r->at == start)) {
        r->at++;
    }
    gw_expr_name n = r->names(r->user, start, (size_t)(r->at - start));
    *number = n.number;
    return n.kind == GW_NAME_NUMBER && r->lists
               ? 1
               : fail(r, "given, count, has and at take the name of a number, and stand in number "
                         "lines only");
}

static int read_list_call(reader *r, gw_expr_op op) {
    int number = 0;
    if (!read_listed(r, &number)) {
        return 0;
    }
    if (op == GW_EXPR_HAS || op == GW_EXPR_AT) {
        if (!take(r, ",") || !read_choice(r)) {
            return fail(r, "has and at take a second argument");
        }
    }
    return take(r, ")") ? emit(r, op, number, 0.0) : fail(r, "a bracket is not closed");
}

static int read_call(reader *r, const char *name, size_t n) {
    static const struct {
        const char *name;
        gw_expr_op op;
        int arguments; /* 0: a list's name first */
    } calls[] = {
        {"sqrt", GW_EXPR_SQRT, 1}, {"quantile", GW_EXPR_QUANTILE, 1}, {"floor", GW_EXPR_FLOOR, 1},
        {"ceil", GW_EXPR_CEIL, 1}, {"log", GW_EXPR_LOG, 1},           {"abs", GW_EXPR_ABS, 1},
        {"min", GW_EXPR_MIN, 2},   {"max", GW_EXPR_MAX, 2},           {"given", GW_EXPR_GIVEN, 0},
        {"has", GW_EXPR_HAS, 0},   {"count", GW_EXPR_COUNT, 0},       {"at", GW_EXPR_AT, 0}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (strlen(calls[i].name) != n || memcmp(calls[i].name, name, n) != 0) {
            continue;
        }
        if (calls[i].arguments == 0) {
            return read_list_call(r, calls[i].op);
        }
        for (int k = 0; k < calls[i].arguments; k++) {
            if ((k > 0 && !take(r, ",")) || !read_choice(r)) {
                return fail(r, "an argument is missing");
            }
        }
        return take(r, ")") ? emit(r, calls[i].op, 0, 0.0) : fail(r, "a bracket is not closed");
    }
    return fail(r, "a function is not known");
}

static int read_named(reader *r) {
    const char *start = r->at;
    while (r->at < r->end && is_name(*r->at, r->at == start)) {
        r->at++;
    }
    size_t n = (size_t)(r->at - start);
    if (take(r, "(")) {
        return read_call(r, start, n);
    }
    if (n == 1 && *start == 'l') {
        return emit(r, GW_EXPR_LAYER, 0, 0.0);
    }
    if (n == 1 && *start == 'p') {
        return r->positions ? emit(r, GW_EXPR_POSITION, 0, 0.0)
                            : fail(r, "p, the position, is known in factor lines only");
    }
    if (n == 6 && memcmp(start, "folder", n) == 0) {
        return emit(r, GW_EXPR_IN_FOLDER, 0, 0.0);
    }
    gw_expr_name known = r->names(r->user, start, n);
    return known.kind == GW_NAME_CONSTANT ? emit(r, GW_EXPR_CONSTANT, 0, known.constant)
           : known.kind == GW_NAME_NUMBER ? emit(r, GW_EXPR_NUMBER, known.number, 0.0)
                                          : fail(r, "a name is not known");
}

static int read_literal(reader *r) {
    char text[40], *end;
    size_t n = 0;
    while (r->at + n < r->end && n + 1 < sizeof text &&
           (strchr("0123456789.", r->at[n]) != NULL || (r->at[n] == 'e' && n > 0) ||
            (r->at[n] == '-' && n > 0 && r->at[n - 1] == 'e'))) {
        text[n] = r->at[n];
        n++;
    }
    text[n] = '\0';
    double x = strtod(text, &end);
    if (n == 0 || *end != '\0' || !(x <= 1e300)) {
        return fail(r, "a number or a name is expected");
    }
    r->at += n;
    return emit(r, GW_EXPR_CONSTANT, 0, x);
}

static int read_primary(reader *r) {
    if (++r->depth > GW_EXPR_DEPTH) {
        return fail(r, "it is nested too deeply");
    }
    int fine;
    if (take(r, "(")) {
        fine = read_choice(r) && (take(r, ")") || fail(r, "a bracket is not closed"));
    } else if (take(r, "-")) {
        fine = read_primary(r) && emit(r, GW_EXPR_NEGATE, 0, 0.0);
    } else if (take(r, "!")) {
        fine = read_primary(r) && emit(r, GW_EXPR_NOT, 0, 0.0);
    } else {
        skip_blanks(r);
        fine = r->at < r->end && is_name(*r->at, 1) ? read_named(r) : read_literal(r);
    }
    r->depth--;
    return fine;
}

/* Operators from the loosest to the tightest; swapped: the operands change places. */
static const struct {
    const char *sign;
    int level;
    gw_expr_op op;
    int swapped, inverted;
} binary[] = {{"==", 0, GW_EXPR_SAME, 0, 0},      {"!=", 0, GW_EXPR_SAME, 0, 1},
              {"<=", 0, GW_EXPR_LESS_SAME, 0, 0}, {">=", 0, GW_EXPR_LESS, 0, 1},
              {"<", 0, GW_EXPR_LESS, 0, 0},       {">", 0, GW_EXPR_LESS_SAME, 0, 1},
              {"+", 1, GW_EXPR_ADD, 0, 0},        {"-", 1, GW_EXPR_SUB, 0, 0},
              {"*", 2, GW_EXPR_MUL, 0, 0},        {"/", 2, GW_EXPR_DIV, 0, 0},
              {"%", 2, GW_EXPR_MOD, 0, 0}};

static int read_level(reader *r, int level) {
    if (level == 3) {
        return read_primary(r);
    }
    if (!read_level(r, level + 1)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof binary / sizeof binary[0];) {
        if (binary[i].level != level || !take(r, binary[i].sign)) {
            i++;
            continue;
        }
        if (!read_level(r, level + 1) || !emit(r, binary[i].op, 0, 0.0) ||
            (binary[i].inverted && !emit(r, GW_EXPR_NOT, 0, 0.0))) {
            return 0;
        }
        i = 0;
    }
    return 1;
}

static int read_and(reader *r) {
    if (!read_level(r, 0)) {
        return 0;
    }
    while (take(r, "&&")) { /* a ? (b != 0) : 0 */
        int unless = r->pool->n;
        if (!emit(r, GW_EXPR_UNLESS, 0, 0.0) || !read_level(r, 0) ||
            !emit(r, GW_EXPR_TRUTH, 0, 0.0) || !emit(r, GW_EXPR_JUMP, r->pool->n + 2, 0.0) ||
            !emit(r, GW_EXPR_CONSTANT, 0, 0.0)) {
            return 0;
        }
        r->pool->step[unless].to = r->pool->n - 1;
    }
    return 1;
}

static int read_or(reader *r) {
    if (!read_and(r)) {
        return 0;
    }
    while (take(r, "||")) {
        int jump = r->pool->n;
        if (!emit(r, GW_EXPR_OR, 0, 0.0) || !read_and(r) || !emit(r, GW_EXPR_TRUTH, 0, 0.0)) {
            return 0;
        }
        r->pool->step[jump].to = r->pool->n;
    }
    return 1;
}

static int read_choice(reader *r) {
    if (++r->depth > GW_EXPR_DEPTH) {
        return fail(r, "it is nested too deeply");
    }
    int fine = read_or(r);
    if (fine && take(r, "?")) {
        int unless = r->pool->n, jump = 0;
        fine = emit(r, GW_EXPR_UNLESS, 0, 0.0) && read_choice(r);
        jump = r->pool->n;
        fine = fine && emit(r, GW_EXPR_JUMP, 0, 0.0) &&
               (take(r, ":") || fail(r, "':' is missing behind '?'"));
        if (fine) {
            r->pool->step[unless].to = r->pool->n;
            fine = read_choice(r);
            r->pool->step[jump].to = r->pool->n;
        }
    }
    r->depth--;
    return fine;
}

gw_status gw_expr_read(gw_expr_pool *pool, const char *text, size_t n, gw_expr_names names,
                       const void *user, int positions, int lists, gw_expr *out, const char **why) {
    reader r = {.pool = pool,
                .at = text,
                .end = text + n,
                .names = names,
                .user = user,
                .positions = positions,
                .lists = lists};
    int first = pool->n, fine = read_choice(&r);
    skip_blanks(&r);
    if (fine && r.at != r.end) {
        fine = fail(&r, "an operator is expected");
    }
    if (!fine) {
        pool->n = first;
        *why = r.why;
        return GW_E_SYNTAX;
    }
    *out = (gw_expr){first, pool->n - first};
    return GW_OK;
}

/* ---- evaluating ----------------------------------------------------------------------------- */

static double modulo(double a, double b) { return b != 0.0 ? a - floor(a / b) * b : (double)NAN; }

static double binary_value(gw_expr_op op, double a, double b) {
    switch (op) {
    case GW_EXPR_ADD:
        return a + b;
    case GW_EXPR_SUB:
        return a - b;
    case GW_EXPR_MUL:
        return a * b;
    case GW_EXPR_DIV:
        return a / b;
    case GW_EXPR_MOD:
        return modulo(a, b);
    case GW_EXPR_LESS:
        return a < b;
    case GW_EXPR_LESS_SAME:
        return a <= b;
    case GW_EXPR_SAME:
        return a == b;
    case GW_EXPR_MIN:
        return a < b ? a : b;
    default:
        return a > b ? a : b;
    }
}

/* Below which a standard normal number lies with this probability: bisection; the series of the
 * integral needs arithmetic alone. */
static double quantile(double p) {
    double low = -6.0, high = 6.0;
    if (!(p > 1e-6 && p < 1.0 - 1e-6)) {
        return (double)NAN;
    }
    for (int i = 0; i < 60; i++) {
        double x = 0.5 * (low + high), term = x, sum = x;
        for (int k = 1; k < 200; k++) { /* x - x^3 / (2 3) + x^5 / (2^2 2! 5) - ... */
            term *= -x * x / (2.0 * k);
            sum += term / (2.0 * k + 1.0);
        }
        double below = 0.5 + sum * 0.39894228040143267794;
        low = below < p ? x : low;
        high = below < p ? high : x;
    }
    return 0.5 * (low + high);
}

static double unary_value(gw_expr_op op, double a) {
    switch (op) {
    case GW_EXPR_NOT:
        return a == 0.0;
    case GW_EXPR_NEGATE:
        return -a;
    case GW_EXPR_TRUTH:
        return a != 0.0;
    case GW_EXPR_SQRT:
        return sqrt(a);
    case GW_EXPR_QUANTILE:
        return quantile(a);
    case GW_EXPR_FLOOR:
        return floor(a);
    case GW_EXPR_CEIL:
        return ceil(a);
    case GW_EXPR_LOG:
        return a >= 0x1p-1000 && a <= 0x1p1000 ? gw_rope_log(a) : (double)NAN;
    default:
        return fabs(a);
    }
}

static int is_unary(gw_expr_op op) { return (op >= GW_EXPR_NOT && op <= GW_EXPR_ABS); }

/* A leaf's value; a list's argument is taken from *top. */
static gw_status leaf(const gw_expr_step *s, const gw_expr_scope *scope, double argument,
                      double *out) {
    switch (s->op) {
    case GW_EXPR_CONSTANT:
        *out = s->constant;
        return GW_OK;
    case GW_EXPR_NUMBER:
        return scope->number(scope->user, s->to, out);
    case GW_EXPR_LAYER:
        *out = scope->layer;
        return GW_OK;
    case GW_EXPR_POSITION:
        *out = scope->position;
        return GW_OK;
    case GW_EXPR_IN_FOLDER:
        *out = scope->in_folder;
        return GW_OK;
    default:
        return scope->list(scope->user, s->op, s->to, argument, out);
    }
}

static int is_leaf(gw_expr_op op) {
    return op <= GW_EXPR_IN_FOLDER || op == GW_EXPR_GIVEN || op == GW_EXPR_COUNT;
}

gw_status gw_expr_evaluate(const gw_expr_pool *pool, gw_expr e, const gw_expr_scope *scope,
                           double *out) {
    double stack[2 * GW_EXPR_DEPTH + 8];
    int top = 0, end = e.first + e.n;
    for (int at = e.first; at < end; at++) { /* the reader bounds what is on the stack */
        const gw_expr_step *s = &pool->step[at];
        if (is_leaf(s->op)) {
            stack[top] = 0.0;
            GW_TRY(leaf(s, scope, 0.0, &stack[top]));
            top++;
        } else if (s->op == GW_EXPR_HAS || s->op == GW_EXPR_AT) {
            GW_TRY(leaf(s, scope, stack[top - 1], &stack[top - 1]));
        } else if (s->op == GW_EXPR_JUMP) {
            at = s->to - 1;
        } else if (s->op == GW_EXPR_UNLESS) {
            at = stack[--top] == 0.0 ? s->to - 1 : at;
        } else if (s->op == GW_EXPR_OR) {
            int holds = stack[--top] != 0.0;
            stack[top] = 1.0;
            top += holds;
            at = holds ? s->to - 1 : at;
        } else if (is_unary(s->op)) {
            stack[top - 1] = unary_value(s->op, stack[top - 1]);
        } else {
            top--;
            stack[top - 1] = binary_value(s->op, stack[top - 1], stack[top]);
        }
    }
    *out = stack[0];
    return GW_OK;
}
