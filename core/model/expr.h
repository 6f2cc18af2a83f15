/* core/model/expr.h - arithmetic in specs: `window ? local : -1`, `heads * d_head`.
 *
 * Numbers are doubles, a comparison is 1 or 0, names are those that the reader of the spec knows.
 * Only IEEE operations and the logarithm of rope.h are used: the same bits on every host.
 *   a ? b : c    || && == != < <= > >= + - * / % !    ( )
 *   sqrt(a) floor(a) ceil(a) log(a) abs(a) min(a, b) max(a, b)
 *   given(N) count(N) has(N, a) at(N, a): of a number that the file states as a list
 */
#ifndef GW_MODEL_EXPR_H
#define GW_MODEL_EXPR_H

#include "core/base/status.h"

/* clang-format off */
typedef enum gw_expr_op {
    GW_EXPR_CONSTANT, GW_EXPR_NUMBER, GW_EXPR_LAYER, GW_EXPR_POSITION, GW_EXPR_IN_FOLDER,
    GW_EXPR_ADD, GW_EXPR_SUB, GW_EXPR_MUL, GW_EXPR_DIV, GW_EXPR_MOD, GW_EXPR_LESS,
    GW_EXPR_LESS_SAME, GW_EXPR_SAME, GW_EXPR_NOT, GW_EXPR_NEGATE, GW_EXPR_TRUTH, GW_EXPR_SQRT,
    GW_EXPR_QUANTILE, GW_EXPR_FLOOR, GW_EXPR_CEIL, GW_EXPR_LOG, GW_EXPR_ABS, GW_EXPR_MIN, GW_EXPR_MAX,
    GW_EXPR_GIVEN, GW_EXPR_COUNT, GW_EXPR_HAS, GW_EXPR_AT,
    GW_EXPR_JUMP,   /* to step `to`                                */
    GW_EXPR_UNLESS, /* to step `to` when what it takes is 0        */
    GW_EXPR_OR      /* to step `to`, keeping 1, when it is not 0   */
} gw_expr_op;
/* clang-format on */

typedef struct gw_expr_step {
    gw_expr_op op;
    int to; /* a jump's target, or the index of a number */
    double constant;
} gw_expr_step;

enum { GW_EXPR_STEPS = 4096, GW_EXPR_DEPTH = 24 };

/* Steps of all expressions of a spec. */
typedef struct gw_expr_pool {
    gw_expr_step step[GW_EXPR_STEPS];
    int n;
} gw_expr_pool;

typedef struct gw_expr {
    int first, n; /* n 0: there is none */
} gw_expr;

/* What a name in an expression means. */
typedef struct gw_expr_name {
    enum { GW_NAME_UNKNOWN, GW_NAME_CONSTANT, GW_NAME_NUMBER } kind;
    double constant;
    int number;
} gw_expr_name;
typedef gw_expr_name (*gw_expr_names)(const void *user, const char *name, size_t bytes);

/* Read text [n]; *why is set on GW_E_SYNTAX, for the caller's message. positions: may it use `p`?
 * lists: may it ask how the file states a number? */
gw_status gw_expr_read(gw_expr_pool *pool, const char *text, size_t n, gw_expr_names names,
                       const void *user, int positions, int lists, gw_expr *out, const char **why);

/* Where the numbers of an evaluation come from. */
typedef struct gw_expr_scope {
    double layer, position;
    int in_folder;
    gw_status (*number)(void *user, int number, double *out);
    /* op: GIVEN, COUNT, HAS, AT of a number. NULL: no expression has them. */
    gw_status (*list)(void *user, gw_expr_op op, int number, double argument, double *out);
    void *user;
} gw_expr_scope;

gw_status gw_expr_evaluate(const gw_expr_pool *pool, gw_expr e, const gw_expr_scope *scope,
                           double *out);

#endif
