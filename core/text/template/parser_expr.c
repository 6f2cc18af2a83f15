/* core/text/template/parser_expr.c - expressions, by the grammar and the precedence of Jinja. */
#include <string.h>

#include "core/text/template/parser.h"

static gw_status parse_unary(gw_parser *p, int filters, gw_tpl_node **out);

static gw_status binary(gw_parser *p, gw_tpl_what what, int op, int line, gw_tpl_node *a,
                        gw_tpl_node *b, gw_tpl_node **out) {
    gw_tpl_node *node;
    GW_TRY(gw_parser_node(p, what, line, &node));
    node->op = (uint8_t)op;
    node->a = a;
    node->b = b;
    *out = node;
    return gw_parser_close(p, node);
}

/* ---- names and constants --------------------------------------------------------------------- */

static int is_constant(const gw_token *t, gw_tv *value) {
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < 6; i++) {
        if (t->bytes == strlen(words[i]) && memcmp(t->text, words[i], t->bytes) == 0) {
            *value = i < 4 ? gw_tv_bool(i < 2) : gw_tv_none();
            return 1;
        }
    }
    return 0;
}

/* What a macro is given besides its parameters. */
static int special_name(const gw_token *t) {
    static const char *const words[] = {"varargs", "kwargs", "caller"};
    for (int i = 0; i < 3; i++) {
        if (t->bytes == strlen(words[i]) && memcmp(t->text, words[i], t->bytes) == 0) {
            return 1 << i;
        }
    }
    return 0;
}

static gw_status parse_name(gw_parser *p, int fields, gw_tpl_node **out) {
    gw_token name = p->current;
    gw_tpl_node *node;
    int dot = 0;
    GW_TRY(gw_parser_node(p, GW_TPL_NAME, name.line, &node));
    GW_TRY(gw_parser_next(p));
    *out = node;
    if (is_constant(&name, &node->value)) {
        node->what = GW_TPL_CONST;
        return GW_OK;
    }
    GW_TRY(gw_parser_number_of(p, name.text, name.bytes, &node->name));
    p->special |= special_name(&name);
    if (fields) {
        GW_TRY(gw_parser_skip_op(p, '.', &dot));
    }
    if (dot) {
        if (p->current.kind != GW_TOK_NAME) {
            return gw_parser_unexpected(p, "a name");
        }
        node->what = GW_TPL_FIELD;
        node->word = p->current.text;
        node->word_bytes = (uint32_t)p->current.bytes;
        return gw_parser_next(p);
    }
    return GW_OK;
}

/* Texts that stand side by side are one. */
static gw_status parse_text(gw_parser *p, gw_tpl_node *node) {
    node->value = gw_tv_text(p->current.text, p->current.bytes);
    GW_TRY(gw_parser_next(p));
    while (p->current.kind == GW_TOK_TEXT) {
        size_t n = node->value.n + p->current.bytes;
        char *both = gw_arena_alloc(p->t->arena, n + 1);
        if (both == NULL) {
            return gw_fail(GW_E_NOMEM, p->t->where, "no memory");
        }
        memcpy(both, node->value.text, node->value.n);
        memcpy(both + node->value.n, p->current.text, p->current.bytes);
        node->value = gw_tv_text(both, n);
        GW_TRY(gw_parser_next(p));
    }
    return GW_OK;
}

/* Items up to the closing bracket; a comma may stand behind the last. */
static gw_status parse_items(gw_parser *p, int close, gw_tpl_node *node) {
    gw_tpl_node **last = &node->list;
    GW_TRY(gw_parser_next(p));
    while (!gw_parser_is_op(p, close)) {
        gw_tpl_node *item, *pair;
        if (node->list != NULL) {
            GW_TRY(gw_parser_expect_op(p, ','));
            if (gw_parser_is_op(p, close)) {
                break;
            }
        }
        int line = p->current.line;
        GW_TRY(gw_parse_expression(p, 1, &item));
        if (close == '}') {
            GW_TRY(gw_parser_expect_op(p, ':'));
            GW_TRY(gw_parser_node(p, GW_TPL_PAIR, line, &pair));
            pair->a = item;
            GW_TRY(gw_parse_expression(p, 1, &pair->b));
            GW_TRY(gw_parser_close(p, pair));
            item = pair;
        }
        *last = item;
        last = &item->next;
    }
    GW_TRY(gw_parser_next(p));
    return gw_parser_close(p, node);
}

static gw_status parse_primary(gw_parser *p, int fields, gw_tpl_node **out) {
    const gw_token *t = &p->current;
    gw_tpl_node *node;
    switch (t->kind) {
    case GW_TOK_NAME:
        return parse_name(p, fields, out);
    case GW_TOK_TEXT:
        GW_TRY(gw_parser_node(p, GW_TPL_CONST, t->line, out));
        return parse_text(p, *out);
    case GW_TOK_INT:
    case GW_TOK_FLOAT:
        GW_TRY(gw_parser_node(p, GW_TPL_CONST, t->line, &node));
        node->value = t->value;
        *out = node;
        return gw_parser_next(p);
    case GW_TOK_OP:
        if (t->op == '(') {
            GW_TRY(gw_parser_next(p));
            GW_TRY(gw_parse_tuple(p, 1, NULL, out));
            if (*out == NULL) {
                GW_TRY(gw_parser_node(p, GW_TPL_MAKE_TUPLE, t->line, out));
            }
            return gw_parser_expect_op(p, ')');
        }
        if (t->op == '[' || t->op == '{') {
            int list = t->op == '[';
            GW_TRY(gw_parser_node(p, list ? GW_TPL_MAKE_LIST : GW_TPL_MAKE_DICT, t->line, out));
            return parse_items(p, list ? ']' : '}', *out);
        }
        break;
    default:
        break;
    }
    return gw_parser_unexpected(p, NULL);
}

/* ---- tuples and targets ---------------------------------------------------------------------- */

static int tuple_ends(const gw_parser *p, const char *until) {
    return p->current.kind == GW_TOK_PRINT_END || p->current.kind == GW_TOK_BLOCK_END ||
           gw_parser_is_op(p, ')') || (until != NULL && gw_parser_is_name(p, until));
}

static gw_status parse_many(gw_parser *p, int conditions, const char *until, int simple, int fields,
                            gw_tpl_node **out) {
    gw_tpl_node *first = NULL, **last = &first;
    int line = p->current.line, comma = 0;
    *out = NULL;
    for (;;) {
        gw_tpl_node *item;
        if (tuple_ends(p, until)) {
            break;
        }
        GW_TRY(simple ? parse_primary(p, fields, &item)
                      : gw_parse_expression(p, conditions, &item));
        *last = item;
        last = &item->next;
        if (!gw_parser_is_op(p, ',')) {
            break;
        }
        comma = 1;
        GW_TRY(gw_parser_next(p));
    }
    if (!comma) {
        *out = first;
        return GW_OK;
    }
    gw_tpl_node *node;
    GW_TRY(gw_parser_node(p, GW_TPL_MAKE_TUPLE, line, &node));
    node->list = first;
    *out = node;
    return gw_parser_close(p, node);
}

gw_status gw_parse_tuple(gw_parser *p, int conditions, const char *until, gw_tpl_node **out) {
    GW_TRY(gw_parser_deeper(p));
    gw_status status = parse_many(p, conditions, until, 0, 0, out);
    p->nested--;
    return status;
}

static gw_status check_target(gw_parser *p, const gw_tpl_node *node) {
    if (node->what == GW_TPL_MAKE_TUPLE) {
        for (const gw_tpl_node *item = node->list; item != NULL; item = item->next) {
            GW_TRY(check_target(p, item));
        }
        return GW_OK;
    }
    if (node->what != GW_TPL_NAME && node->what != GW_TPL_FIELD) {
        return gw_parser_fail(p, node->line, "can't assign to this: a name is needed");
    }
    const gw_tpl_word *word = &p->t->names[node->name];
    if (p->fors > 0 && node->what == GW_TPL_NAME && word->bytes == 4 &&
        memcmp(word->text, "loop", 4) == 0) {
        return gw_parser_fail(p, node->line, "can't assign to 'loop' inside a for");
    }
    return GW_OK;
}

gw_status gw_parse_target(gw_parser *p, const char *until, int fields, gw_tpl_node **out) {
    GW_TRY(parse_many(p, 0, until, 1, fields, out));
    if (*out == NULL) {
        return gw_parser_unexpected(p, "an expression");
    }
    return check_target(p, *out);
}

/* ---- what stands behind a value -------------------------------------------------------------- */

static gw_status parse_index(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *first = NULL, *slice, **to;
    int line = p->current.line;
    if (!gw_parser_is_op(p, ':')) {
        GW_TRY(gw_parse_expression(p, 1, &first));
        if (!gw_parser_is_op(p, ':')) {
            *out = first;
            return GW_OK;
        }
    }
    GW_TRY(gw_parser_node(p, GW_TPL_SLICE, line, &slice));
    slice->a = first;
    for (to = &slice->b;; to = &slice->c) {
        GW_TRY(gw_parser_next(p)); /* the colon */
        if (!gw_parser_is_op(p, ':') && !gw_parser_is_op(p, ']') && !gw_parser_is_op(p, ',')) {
            GW_TRY(gw_parse_expression(p, 1, to));
        }
        if (to == &slice->c || !gw_parser_is_op(p, ':')) {
            break;
        }
    }
    *out = slice;
    return gw_parser_close(p, slice);
}

static gw_status parse_subscript(gw_parser *p, gw_tpl_node *of, gw_tpl_node **out) {
    gw_tpl_node *node, **last;
    int line = p->current.line, count = 0;
    if (gw_parser_is_op(p, '.')) {
        GW_TRY(gw_parser_next(p));
        if (p->current.kind != GW_TOK_NAME && p->current.kind != GW_TOK_INT) {
            return gw_parser_fail(p, p->current.line, "expected name or number");
        }
        int named = p->current.kind == GW_TOK_NAME;
        GW_TRY(gw_parser_node(p, named ? GW_TPL_ATTR : GW_TPL_ITEM, line, &node));
        node->a = of;
        node->word = p->current.text;
        node->word_bytes = (uint32_t)p->current.bytes;
        if (!named) {
            GW_TRY(gw_parser_node(p, GW_TPL_CONST, line, &node->b));
            node->b->value = p->current.value;
        }
        GW_TRY(gw_parser_next(p));
        *out = node;
        return gw_parser_close(p, node);
    }
    gw_tpl_node *tuple;
    GW_TRY(gw_parser_node(p, GW_TPL_ITEM, line, &node));
    GW_TRY(gw_parser_node(p, GW_TPL_MAKE_TUPLE, line, &tuple));
    GW_TRY(gw_parser_next(p));
    last = &tuple->list;
    while (!gw_parser_is_op(p, ']')) {
        if (count++ > 0) {
            GW_TRY(gw_parser_expect_op(p, ','));
        }
        GW_TRY(parse_index(p, last));
        last = &(*last)->next;
    }
    GW_TRY(gw_parser_next(p));
    GW_TRY(gw_parser_close(p, tuple));
    node->a = of;
    node->b = count == 1 ? tuple->list : tuple;
    *out = node;
    return gw_parser_close(p, node);
}

/* One argument: a value, name=value, *values or **values. seen: what came before. */
static gw_status parse_argument(gw_parser *p, unsigned *seen, gw_tpl_node **out) {
    enum { NAMED = 1, STAR = 2, STARS = 4 };
    gw_tpl_node *arg;
    int line = p->current.line;
    unsigned kind = gw_parser_is_op(p, '*') ? STAR : gw_parser_is_op(p, GW_OP_POWER) ? STARS : 0;
    GW_TRY(gw_parser_node(p, GW_TPL_ARG, line, &arg));
    if (kind != 0) {
        arg->op = kind == STAR ? '*' : GW_OP_STARS;
        GW_TRY(gw_parser_next(p));
    } else if (p->current.kind == GW_TOK_NAME) {
        GW_TRY(gw_parser_look(p));
        if (p->ahead.kind == GW_TOK_OP && p->ahead.op == '=') {
            kind = NAMED;
            arg->word = p->current.text;
            arg->word_bytes = (uint32_t)p->current.bytes;
            GW_TRY(gw_parser_next(p));
            GW_TRY(gw_parser_next(p));
        }
    }
    int fits = kind == 0      ? *seen == 0
               : kind == STAR ? (*seen & (STAR | STARS)) == 0
                              : (*seen & STARS) == 0;
    if (!fits) {
        return gw_parser_fail(p, line, "invalid syntax for function call expression");
    }
    *seen |= kind;
    GW_TRY(gw_parse_expression(p, 1, &arg->a));
    *out = arg;
    return gw_parser_close(p, arg);
}

static gw_status parse_arguments(gw_parser *p, gw_tpl_node *node) {
    gw_tpl_node **last = &node->list;
    unsigned seen = 0;
    GW_TRY(gw_parser_expect_op(p, '('));
    while (!gw_parser_is_op(p, ')')) {
        if (node->list != NULL) {
            GW_TRY(gw_parser_expect_op(p, ','));
            if (gw_parser_is_op(p, ')')) {
                break;
            }
        }
        GW_TRY(parse_argument(p, &seen, last));
        last = &(*last)->next;
    }
    return gw_parser_next(p);
}

static gw_status parse_call(gw_parser *p, gw_tpl_node *of, gw_tpl_node **out) {
    gw_tpl_node *node;
    GW_TRY(gw_parser_node(p, GW_TPL_CALL, p->current.line, &node));
    node->a = of;
    GW_TRY(parse_arguments(p, node));
    *out = node;
    return gw_parser_close(p, node);
}

/* The dotted name of a filter or test. */
static gw_status parse_row_name(gw_parser *p, gw_tpl_node *node) {
    if (p->current.kind != GW_TOK_NAME) {
        return gw_parser_unexpected(p, "a name");
    }
    node->word = p->current.text;
    node->word_bytes = (uint32_t)p->current.bytes;
    GW_TRY(gw_parser_next(p));
    while (gw_parser_is_op(p, '.')) {
        GW_TRY(gw_parser_next(p));
        if (p->current.kind != GW_TOK_NAME) {
            return gw_parser_unexpected(p, "a name");
        }
        node->word_bytes = (uint32_t)(p->current.text + p->current.bytes - node->word);
        GW_TRY(gw_parser_next(p));
    }
    int test = node->what == GW_TPL_TEST;
    node->row = test ? gw_tpl_test(node->word, node->word_bytes)
                     : gw_tpl_filter(node->word, node->word_bytes);
    if (node->row == NULL && p->unknown == NULL) {
        p->unknown = node;
    }
    return GW_OK;
}

gw_status gw_parse_filters(gw_parser *p, gw_tpl_node *node, int first, gw_tpl_node **out) {
    while (first || gw_parser_is_op(p, '|')) {
        gw_tpl_node *filter;
        if (!first) {
            GW_TRY(gw_parser_next(p));
        }
        first = 0;
        GW_TRY(gw_parser_node(p, GW_TPL_FILTER, p->current.line, &filter));
        GW_TRY(parse_row_name(p, filter));
        filter->a = node;
        if (gw_parser_is_op(p, '(')) {
            GW_TRY(parse_arguments(p, filter));
        }
        GW_TRY(gw_parser_close(p, filter));
        node = filter;
    }
    *out = node;
    return GW_OK;
}

static gw_status parse_postfix(gw_parser *p, gw_tpl_node **node) {
    for (;;) {
        if (gw_parser_is_op(p, '.') || gw_parser_is_op(p, '[')) {
            GW_TRY(parse_subscript(p, *node, node));
        } else if (gw_parser_is_op(p, '(')) {
            GW_TRY(parse_call(p, *node, node));
        } else {
            return GW_OK;
        }
    }
}

/* Does an argument follow a test without brackets? */
static int argument_follows(const gw_parser *p) {
    switch (p->current.kind) {
    case GW_TOK_TEXT:
    case GW_TOK_INT:
    case GW_TOK_FLOAT:
        return 1;
    case GW_TOK_NAME:
        return !gw_parser_is_name(p, "else") && !gw_parser_is_name(p, "or") &&
               !gw_parser_is_name(p, "and");
    default:
        return gw_parser_is_op(p, '[') || gw_parser_is_op(p, '{');
    }
}

static gw_status parse_test(gw_parser *p, gw_tpl_node *of, gw_tpl_node **out) {
    gw_tpl_node *test, *arg, *value;
    int negated = 0;
    GW_TRY(gw_parser_next(p)); /* is */
    GW_TRY(gw_parser_skip_name(p, "not", &negated));
    GW_TRY(gw_parser_node(p, GW_TPL_TEST, p->current.line, &test));
    GW_TRY(parse_row_name(p, test));
    test->a = of;
    if (gw_parser_is_op(p, '(')) {
        GW_TRY(parse_arguments(p, test));
    } else if (argument_follows(p)) {
        if (gw_parser_is_name(p, "is")) {
            return gw_parser_fail(p, p->current.line, "You cannot chain multiple tests with is");
        }
        GW_TRY(gw_parser_node(p, GW_TPL_ARG, p->current.line, &arg));
        GW_TRY(parse_primary(p, 0, &value));
        GW_TRY(parse_postfix(p, &value));
        arg->a = value;
        GW_TRY(gw_parser_close(p, arg));
        test->list = arg;
    }
    GW_TRY(gw_parser_close(p, test));
    *out = test;
    return negated ? binary(p, GW_TPL_NOT, 0, test->line, test, NULL, out) : GW_OK;
}

static gw_status parse_behind(gw_parser *p, gw_tpl_node **node) {
    for (;;) {
        if (gw_parser_is_op(p, '|')) {
            GW_TRY(gw_parse_filters(p, *node, 0, node));
        } else if (gw_parser_is_name(p, "is")) {
            GW_TRY(parse_test(p, *node, node));
        } else if (gw_parser_is_op(p, '(')) {
            GW_TRY(parse_call(p, *node, node));
        } else {
            return GW_OK;
        }
    }
}

/* ---- operators ------------------------------------------------------------------------------- */

static gw_status parse_unary(gw_parser *p, int filters, gw_tpl_node **out) {
    GW_TRY(gw_parser_deeper(p));
    int line = p->current.line;
    int sign = gw_parser_is_op(p, '-') ? '-' : gw_parser_is_op(p, '+') ? '+' : 0;
    gw_tpl_node *node;
    if (sign != 0) {
        GW_TRY(gw_parser_next(p));
        GW_TRY(parse_unary(p, 0, &node));
        GW_TRY(binary(p, sign == '-' ? GW_TPL_NEGATE : GW_TPL_PLUS, 0, line, node, NULL, &node));
    } else {
        GW_TRY(parse_primary(p, 0, &node));
    }
    GW_TRY(parse_postfix(p, &node));
    if (filters) {
        GW_TRY(parse_behind(p, &node));
    }
    *out = node;
    p->nested--;
    return GW_OK;
}

static gw_status parse_power(gw_parser *p, gw_tpl_node **out) {
    int line = p->current.line;
    gw_tpl_node *right;
    GW_TRY(parse_unary(p, 1, out));
    while (gw_parser_is_op(p, GW_OP_POWER)) {
        GW_TRY(gw_parser_next(p));
        GW_TRY(parse_unary(p, 1, &right));
        GW_TRY(binary(p, GW_TPL_BINARY, GW_OP_POWER, line, *out, right, out));
    }
    return GW_OK;
}

static gw_status parse_products(gw_parser *p, gw_tpl_node **out) {
    int line = p->current.line;
    gw_tpl_node *right;
    GW_TRY(parse_power(p, out));
    while (gw_parser_is_op(p, '*') || gw_parser_is_op(p, '/') || gw_parser_is_op(p, GW_OP_FLOOR) ||
           gw_parser_is_op(p, '%')) {
        int op = p->current.op;
        GW_TRY(gw_parser_next(p));
        GW_TRY(parse_power(p, &right));
        GW_TRY(binary(p, GW_TPL_BINARY, op, line, *out, right, out));
    }
    return GW_OK;
}

static gw_status parse_concat(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *node, *first;
    GW_TRY(parse_products(p, &first));
    *out = first;
    if (!gw_parser_is_op(p, '~')) {
        return GW_OK;
    }
    GW_TRY(gw_parser_node(p, GW_TPL_CONCAT, first->line, &node));
    node->list = first;
    for (gw_tpl_node *last = first; gw_parser_is_op(p, '~'); last = last->next) {
        GW_TRY(gw_parser_next(p));
        GW_TRY(parse_products(p, &last->next));
    }
    *out = node;
    return gw_parser_close(p, node);
}

static gw_status parse_sums(gw_parser *p, gw_tpl_node **out) {
    int line = p->current.line;
    gw_tpl_node *right;
    GW_TRY(parse_concat(p, out));
    while (gw_parser_is_op(p, '+') || gw_parser_is_op(p, '-')) {
        int op = p->current.op;
        GW_TRY(gw_parser_next(p));
        GW_TRY(parse_concat(p, &right));
        GW_TRY(binary(p, GW_TPL_BINARY, op, line, *out, right, out));
    }
    return GW_OK;
}

/* The comparison that begins here, taken; 0: none. */
static gw_status take_comparison(gw_parser *p, int *op) {
    static const int ops[] = {GW_OP_EQ, GW_OP_NE, GW_OP_LE, GW_OP_GE, '<', '>'};
    *op = 0;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (gw_parser_is_op(p, ops[i])) {
            *op = ops[i];
            return gw_parser_next(p);
        }
    }
    if (gw_parser_is_name(p, "in")) {
        *op = GW_OP_IN;
        return gw_parser_next(p);
    }
    if (gw_parser_is_name(p, "not")) {
        GW_TRY(gw_parser_look(p));
        if (p->ahead.kind == GW_TOK_NAME && p->ahead.bytes == 2 &&
            memcmp(p->ahead.text, "in", 2) == 0) {
            *op = GW_OP_NOT_IN;
            GW_TRY(gw_parser_next(p));
            return gw_parser_next(p);
        }
    }
    return GW_OK;
}

static gw_status parse_comparison(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *node = NULL, **last = NULL, *first;
    int line = p->current.line, op;
    GW_TRY(parse_sums(p, &first));
    *out = first;
    for (;;) {
        int at = p->current.line;
        GW_TRY(take_comparison(p, &op));
        if (op == 0) {
            return node != NULL ? gw_parser_close(p, node) : GW_OK;
        }
        if (node == NULL) {
            GW_TRY(gw_parser_node(p, GW_TPL_COMPARE, line, &node));
            node->a = first;
            last = &node->list;
            *out = node;
        }
        gw_tpl_node *right;
        GW_TRY(parse_sums(p, &right));
        GW_TRY(binary(p, GW_TPL_OPERAND, op, at, right, NULL, last));
        last = &(*last)->next;
    }
}

static gw_status parse_not(gw_parser *p, gw_tpl_node **out) {
    if (!gw_parser_is_name(p, "not")) {
        return parse_comparison(p, out);
    }
    GW_TRY(gw_parser_deeper(p));
    int line = p->current.line;
    gw_tpl_node *of;
    GW_TRY(gw_parser_next(p));
    GW_TRY(parse_not(p, &of));
    p->nested--;
    return binary(p, GW_TPL_NOT, 0, line, of, NULL, out);
}

static gw_status parse_and(gw_parser *p, gw_tpl_node **out) {
    int line = p->current.line;
    gw_tpl_node *right;
    GW_TRY(parse_not(p, out));
    while (gw_parser_is_name(p, "and")) {
        GW_TRY(gw_parser_next(p));
        GW_TRY(parse_not(p, &right));
        GW_TRY(binary(p, GW_TPL_AND, 0, line, *out, right, out));
    }
    return GW_OK;
}

static gw_status parse_or(gw_parser *p, gw_tpl_node **out) {
    int line = p->current.line;
    gw_tpl_node *right;
    GW_TRY(parse_and(p, out));
    while (gw_parser_is_name(p, "or")) {
        GW_TRY(gw_parser_next(p));
        GW_TRY(parse_and(p, &right));
        GW_TRY(binary(p, GW_TPL_OR, 0, line, *out, right, out));
    }
    return GW_OK;
}

gw_status gw_parse_expression(gw_parser *p, int conditions, gw_tpl_node **out) {
    GW_TRY(gw_parser_deeper(p));
    int line = p->current.line;
    const gw_tpl_node *unknown = p->unknown;
    GW_TRY(parse_or(p, out));
    while (conditions && gw_parser_is_name(p, "if")) {
        gw_tpl_node *node;
        int has_else = 0;
        GW_TRY(gw_parser_node(p, GW_TPL_COND, line, &node));
        node->b = *out;
        GW_TRY(gw_parser_next(p));
        GW_TRY(parse_or(p, &node->a));
        GW_TRY(gw_parser_skip_name(p, "else", &has_else));
        if (has_else) {
            GW_TRY(gw_parse_expression(p, 1, &node->c));
        }
        *out = node;
        p->unknown = unknown; /* it may never be reached */
        GW_TRY(gw_parser_close(p, node));
    }
    p->nested--;
    return GW_OK;
}
