/* core/text/template/parser.c - statements, and the way from a text to a tree. */
#include "core/text/template/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"

enum { TEMPLATE_MAX = 16 << 20 };

/* ---- tokens ---------------------------------------------------------------------------------- */

gw_status gw_parser_next(gw_parser *p) {
    if (p->has_ahead) {
        p->current = p->ahead;
        p->has_ahead = 0;
        return GW_OK;
    }
    return gw_lexer_next(&p->lexer, &p->current);
}

gw_status gw_parser_look(gw_parser *p) {
    if (!p->has_ahead) {
        GW_TRY(gw_lexer_next(&p->lexer, &p->ahead));
        p->has_ahead = 1;
    }
    return GW_OK;
}

gw_status gw_parser_fail(gw_parser *p, int line, const char *fmt, ...) {
    char message[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return gw_lexer_fail(&p->lexer, line, "%s", message);
}

static void describe(const gw_token *t, char out[80]) {
    static const char *const words[GW_TOK_OP + 1] = {[GW_TOK_END] = "the end of the template",
                                                     [GW_TOK_DATA] = "text",
                                                     [GW_TOK_PRINT] = "'{{'",
                                                     [GW_TOK_PRINT_END] = "'}}'",
                                                     [GW_TOK_BLOCK] = "'{%'",
                                                     [GW_TOK_BLOCK_END] = "'%}'",
                                                     [GW_TOK_TEXT] = "a quoted text"};
    if (words[t->kind] != NULL) {
        snprintf(out, 80, "%s", words[t->kind]);
    } else {
        snprintf(out, 80, "'%.*s'", (int)(t->bytes > 60 ? 60 : t->bytes), t->text);
    }
}

gw_status gw_parser_unexpected(gw_parser *p, const char *wanted) {
    char found[80];
    describe(&p->current, found);
    return wanted == NULL
               ? gw_parser_fail(p, p->current.line, "unexpected %s", found)
               : gw_parser_fail(p, p->current.line, "expected %s, got %s", wanted, found);
}

int gw_parser_is_op(const gw_parser *p, int op) {
    return p->current.kind == GW_TOK_OP && p->current.op == op;
}

static int says(const gw_token *t, const char *name) {
    return t->kind == GW_TOK_NAME && t->bytes == strlen(name) &&
           memcmp(t->text, name, t->bytes) == 0;
}

int gw_parser_is_name(const gw_parser *p, const char *name) { return says(&p->current, name); }

gw_status gw_parser_skip_op(gw_parser *p, int op, int *skipped) {
    *skipped = gw_parser_is_op(p, op);
    return *skipped ? gw_parser_next(p) : GW_OK;
}

gw_status gw_parser_skip_name(gw_parser *p, const char *name, int *skipped) {
    *skipped = gw_parser_is_name(p, name);
    return *skipped ? gw_parser_next(p) : GW_OK;
}

gw_status gw_parser_expect_op(gw_parser *p, int op) {
    char wanted[4] = {'\'', (char)op, '\'', '\0'};
    return gw_parser_is_op(p, op) ? gw_parser_next(p) : gw_parser_unexpected(p, wanted);
}

gw_status gw_parser_expect_name(gw_parser *p, const char *name) {
    return gw_parser_is_name(p, name) ? gw_parser_next(p) : gw_parser_unexpected(p, name);
}

gw_status gw_parser_expect_kind(gw_parser *p, gw_tok kind) {
    if (p->current.kind != kind) {
        return gw_parser_unexpected(p, kind == GW_TOK_PRINT_END ? "'}}'"
                                       : kind == GW_TOK_NAME    ? "a name"
                                                                : "'%}'");
    }
    return gw_parser_next(p);
}

gw_status gw_parser_deeper(gw_parser *p) {
    if (++p->nested > GW_TPL_OPEN_MAX) {
        return gw_fail(GW_E_LIMIT, p->t->where, "line %d: more than %d parts inside one another",
                       p->current.line, GW_TPL_OPEN_MAX);
    }
    return GW_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

gw_status gw_parser_node(gw_parser *p, gw_tpl_what what, int line, gw_tpl_node **out) {
    gw_tpl_node *node = gw_arena_alloc(p->t->arena, sizeof *node);
    if (node == NULL) {
        return gw_fail(GW_E_NOMEM, p->t->where, "no memory");
    }
    node->what = (uint8_t)what;
    node->line = line;
    *out = node;
    return GW_OK;
}

static int deepest(int depth, const gw_tpl_node *node) {
    return node != NULL && node->depth > depth ? node->depth : depth;
}

gw_status gw_parser_close(gw_parser *p, gw_tpl_node *node) {
    int depth = deepest(deepest(deepest(0, node->a), node->b), node->c);
    for (const gw_tpl_node *item = node->list; item != NULL; item = item->next) {
        depth = deepest(depth, item);
    }
    if (depth + 1 > GW_TPL_DEPTH_MAX) {
        return gw_fail(GW_E_LIMIT, p->t->where, "line %d: an expression of more than %d steps",
                       node->line, GW_TPL_DEPTH_MAX);
    }
    node->depth = (uint16_t)(depth + 1);
    return GW_OK;
}

gw_status gw_parser_number_of(gw_parser *p, const char *name, size_t n, uint32_t *out) {
    gw_template *t = p->t;
    size_t known;
    gw_map_result added = gw_map_add(t->numbers, name, n, t->n_names, &known);
    if (added == GW_MAP_PRESENT) {
        *out = (uint32_t)known;
        return GW_OK;
    }
    if (added == GW_MAP_ADDED && t->n_names == t->names_room) {
        size_t room = t->names_room * 2 + 32;
        gw_tpl_word *grown = realloc(t->names, room * sizeof *grown);
        if (grown != NULL) {
            t->names = grown;
            t->names_room = room;
        }
    }
    if (added == GW_MAP_NOMEM || t->n_names == t->names_room) {
        return gw_fail(GW_E_NOMEM, t->where, "no memory");
    }
    t->names[t->n_names] = (gw_tpl_word){name, (uint32_t)n};
    *out = (uint32_t)t->n_names++;
    return GW_OK;
}

/* A filter or test that there is none of is an error now, unless a condition guards it. */
static gw_status check_known(gw_parser *p) {
    const gw_tpl_node *node = p->unknown;
    p->unknown = NULL;
    if (node == NULL || p->soft > 0) {
        return GW_OK;
    }
    return gw_parser_fail(p, node->line, "No %s named '%.*s'.",
                          node->what == GW_TPL_TEST ? "test" : "filter",
                          (int)(node->word_bytes > 80 ? 80 : node->word_bytes), node->word);
}

/* ---- statements ------------------------------------------------------------------------------ */

static gw_status parse_body(gw_parser *p, const char *const *ends, const char *block,
                            gw_tpl_node **out);

/* Up to `end`, which is taken; ends NULL: only that. */
static gw_status parse_block(gw_parser *p, const char *end, const char *block, gw_tpl_node **out) {
    const char *const ends[] = {end, NULL};
    int colon;
    GW_TRY(gw_parser_skip_op(p, ':', &colon));
    GW_TRY(gw_parser_expect_kind(p, GW_TOK_BLOCK_END));
    GW_TRY(parse_body(p, ends, block, out));
    return gw_parser_next(p);
}

static gw_status parse_if(gw_parser *p, gw_tpl_node **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    gw_tpl_node *node, **to = out;
    p->soft++;
    for (;;) {
        int colon, more = 0, other = 0;
        GW_TRY(gw_parser_node(p, GW_TPL_IF, p->current.line, &node));
        *to = node;
        to = &node->b;
        GW_TRY(gw_parser_next(p)); /* if or elif */
        GW_TRY(gw_parse_tuple(p, 0, NULL, &node->a));
        if (node->a == NULL) {
            return gw_parser_unexpected(p, "an expression");
        }
        GW_TRY(gw_parser_skip_op(p, ':', &colon));
        GW_TRY(gw_parser_expect_kind(p, GW_TOK_BLOCK_END));
        GW_TRY(parse_body(p, ends, "if", &node->list));
        more = gw_parser_is_name(p, "elif");
        if (more) {
            continue;
        }
        GW_TRY(gw_parser_skip_name(p, "else", &other));
        if (other) {
            GW_TRY(parse_block(p, "endif", "if", &node->other));
        } else {
            GW_TRY(gw_parser_next(p));
        }
        p->soft--;
        return GW_OK;
    }
}

static gw_status parse_for(gw_parser *p, gw_tpl_node **out) {
    static const char *const ends[] = {"endfor", "else", NULL};
    gw_tpl_node *node;
    int soft = p->soft, macros = p->macros, colon, found;
    GW_TRY(gw_parser_node(p, GW_TPL_FOR, p->current.line, &node));
    *out = node;
    GW_TRY(gw_parser_next(p));
    p->fors++;
    GW_TRY(gw_parse_target(p, "in", 0, &node->a));
    GW_TRY(gw_parser_expect_name(p, "in"));
    GW_TRY(gw_parse_tuple(p, 0, "recursive", &node->b));
    if (node->b == NULL) {
        return gw_parser_unexpected(p, "an expression");
    }
    GW_TRY(gw_parser_skip_name(p, "if", &found));
    if (found) {
        GW_TRY(gw_parse_expression(p, 1, &node->c));
    }
    GW_TRY(gw_parser_skip_name(p, "recursive", &found));
    node->op = (uint8_t)found;
    GW_TRY(check_known(p));
    GW_TRY(gw_parser_skip_op(p, ':', &colon));
    GW_TRY(gw_parser_expect_kind(p, GW_TOK_BLOCK_END));
    p->soft = 0;
    p->loops++;
    GW_TRY(parse_body(p, ends, "for", &node->list));
    p->loops--;
    node->keeps_scope = p->macros > macros;
    GW_TRY(gw_parser_skip_name(p, "else", &found));
    GW_TRY(found ? parse_block(p, "endfor", "for", &node->other) : gw_parser_next(p));
    p->fors--;
    p->soft = soft;
    return GW_OK;
}

static gw_status parse_set(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *node;
    int assigned;
    GW_TRY(gw_parser_node(p, GW_TPL_SET, p->current.line, &node));
    *out = node;
    GW_TRY(gw_parser_next(p));
    GW_TRY(gw_parse_target(p, NULL, 1, &node->a));
    GW_TRY(gw_parser_skip_op(p, '=', &assigned));
    if (assigned) {
        GW_TRY(gw_parse_tuple(p, 1, NULL, &node->b));
        return node->b != NULL ? GW_OK : gw_parser_unexpected(p, "an expression");
    }
    node->what = GW_TPL_SET_BLOCK;
    GW_TRY(gw_parse_filters(p, NULL, 0, &node->b));
    return parse_block(p, "endset", "set", &node->list);
}

/* (a, b=1): in node->c. */
static gw_status parse_parameters(gw_parser *p, gw_tpl_node *node) {
    gw_tpl_node **last = &node->c, *param;
    int defaults = 0, found;
    GW_TRY(gw_parser_expect_op(p, '('));
    while (!gw_parser_is_op(p, ')')) {
        if (node->c != NULL) {
            GW_TRY(gw_parser_expect_op(p, ','));
        }
        GW_TRY(gw_parser_node(p, GW_TPL_PARAM, p->current.line, &param));
        if (p->current.kind != GW_TOK_NAME) {
            return gw_parser_unexpected(p, "a name");
        }
        GW_TRY(gw_parser_number_of(p, p->current.text, p->current.bytes, &param->name));
        GW_TRY(gw_parser_next(p));
        GW_TRY(gw_parser_skip_op(p, '=', &found));
        if (found) {
            GW_TRY(gw_parse_expression(p, 1, &param->a));
        } else if (defaults) {
            return gw_parser_fail(p, param->line, "non-default argument follows default argument");
        }
        defaults = found;
        *last = param;
        last = &param->next;
    }
    return gw_parser_next(p);
}

/* Body of a macro or a call block: a loop around it is no loop of its own. */
static gw_status parse_macro_body(gw_parser *p, const char *end, gw_tpl_node *node) {
    int soft = p->soft, loops = p->loops, special = p->special;
    GW_TRY(check_known(p));
    p->soft = p->loops = p->special = 0;
    p->macros++;
    GW_TRY(parse_block(p, end, end + 3, &node->list));
    node->op = (uint8_t)p->special;
    p->special |= special;
    p->soft = soft;
    p->loops = loops;
    return GW_OK;
}

static gw_status parse_macro(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *node;
    GW_TRY(gw_parser_node(p, GW_TPL_MACRO, p->current.line, &node));
    *out = node;
    GW_TRY(gw_parser_next(p));
    if (p->current.kind != GW_TOK_NAME) {
        return gw_parser_unexpected(p, "a name");
    }
    GW_TRY(gw_parser_number_of(p, p->current.text, p->current.bytes, &node->name));
    GW_TRY(gw_parser_next(p));
    GW_TRY(parse_parameters(p, node));
    return parse_macro_body(p, "endmacro", node);
}

static gw_status parse_call_block(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *node;
    GW_TRY(gw_parser_node(p, GW_TPL_CALL_BLOCK, p->current.line, &node));
    *out = node;
    GW_TRY(gw_parser_next(p));
    if (gw_parser_is_op(p, '(')) {
        GW_TRY(parse_parameters(p, node));
    }
    GW_TRY(gw_parse_expression(p, 1, &node->a));
    if (node->a->what != GW_TPL_CALL) {
        return gw_parser_fail(p, node->line, "expected call");
    }
    return parse_macro_body(p, "endcall", node);
}

static gw_status parse_with(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *node, *set, **last;
    GW_TRY(gw_parser_node(p, GW_TPL_WITH, p->current.line, &node));
    *out = node;
    GW_TRY(gw_parser_next(p));
    for (last = &node->c; p->current.kind != GW_TOK_BLOCK_END; last = &(*last)->next) {
        if (node->c != NULL) {
            GW_TRY(gw_parser_expect_op(p, ','));
        }
        GW_TRY(gw_parser_node(p, GW_TPL_SET, p->current.line, &set));
        GW_TRY(gw_parse_target(p, NULL, 0, &set->a));
        GW_TRY(gw_parser_expect_op(p, '='));
        GW_TRY(gw_parse_expression(p, 1, &set->b));
        *last = set;
    }
    GW_TRY(check_known(p));
    return parse_block(p, "endwith", "with", &node->list);
}

static gw_status parse_filter_block(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *node;
    GW_TRY(gw_parser_node(p, GW_TPL_FILTER_BLOCK, p->current.line, &node));
    *out = node;
    GW_TRY(gw_parser_next(p));
    GW_TRY(gw_parse_filters(p, NULL, 1, &node->a));
    GW_TRY(check_known(p));
    return parse_block(p, "endfilter", "filter", &node->list);
}

/* A named block of a page, and what marks the answers of a model: their bodies. */
static gw_status parse_scope(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *node;
    int block = gw_parser_is_name(p, "block"), skipped;
    GW_TRY(gw_parser_node(p, GW_TPL_SCOPE, p->current.line, &node));
    *out = node;
    GW_TRY(gw_parser_next(p));
    if (!block) {
        return parse_block(p, "endgeneration", "generation", &node->list);
    }
    GW_TRY(gw_parser_expect_kind(p, GW_TOK_NAME));
    GW_TRY(gw_parser_skip_name(p, "scoped", &skipped));
    GW_TRY(gw_parser_skip_name(p, "required", &skipped));
    GW_TRY(parse_block(p, "endblock", "block", &node->list));
    return p->current.kind == GW_TOK_NAME ? gw_parser_next(p) : GW_OK;
}

static gw_status parse_escape(gw_parser *p, gw_tpl_node **out) {
    gw_tpl_node *node;
    GW_TRY(gw_parser_node(p, GW_TPL_ESCAPE, p->current.line, &node));
    *out = node;
    GW_TRY(gw_parser_next(p));
    GW_TRY(gw_parse_expression(p, 1, &node->a));
    GW_TRY(check_known(p));
    return parse_block(p, "endautoescape", "autoescape", &node->list);
}

static gw_status parse_print(gw_parser *p, gw_tpl_node **out) {
    GW_TRY(gw_parser_next(p));
    for (int comma = p->current.kind != GW_TOK_BLOCK_END; comma;) {
        gw_tpl_node *node;
        GW_TRY(gw_parser_node(p, GW_TPL_PRINT, p->current.line, &node));
        GW_TRY(gw_parse_expression(p, 1, &node->a));
        *out = node;
        out = &node->next;
        GW_TRY(gw_parser_skip_op(p, ',', &comma));
    }
    return GW_OK;
}

static gw_status parse_jump(gw_parser *p, gw_tpl_node **out) {
    int ends = gw_parser_is_name(p, "break");
    if (p->loops == 0) {
        return gw_parser_fail(p, p->current.line, "'%s' outside loop", ends ? "break" : "continue");
    }
    GW_TRY(gw_parser_node(p, ends ? GW_TPL_BREAK : GW_TPL_CONTINUE, p->current.line, out));
    return gw_parser_next(p);
}

/* Other templates: there are none. An error only where it is reached. */
static gw_status parse_other_template(gw_parser *p, gw_tpl_node **out) {
    GW_TRY(gw_parser_node(p, GW_TPL_REFUSE, p->current.line, out));
    (*out)->word = "a chat template cannot load another one (include, import, extends)";
    while (p->current.kind != GW_TOK_BLOCK_END && p->current.kind != GW_TOK_END) {
        GW_TRY(gw_parser_next(p));
    }
    return GW_OK;
}

typedef gw_status (*statement)(gw_parser *p, gw_tpl_node **out);

static statement statement_of(const gw_token *t) {
    static const struct {
        const char *name;
        statement parse;
    } rows[] = {{"if", parse_if},
                {"for", parse_for},
                {"set", parse_set},
                {"macro", parse_macro},
                {"call", parse_call_block},
                {"with", parse_with},
                {"filter", parse_filter_block},
                {"generation", parse_scope},
                {"block", parse_scope},
                {"autoescape", parse_escape},
                {"print", parse_print},
                {"break", parse_jump},
                {"continue", parse_jump},
                {"include", parse_other_template},
                {"import", parse_other_template},
                {"from", parse_other_template},
                {"extends", parse_other_template}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (says(t, rows[i].name)) {
            return rows[i].parse;
        }
    }
    return NULL;
}

static int is_end(const gw_parser *p, const char *const *ends) {
    for (; ends != NULL && *ends != NULL; ends++) {
        if (gw_parser_is_name(p, *ends)) {
            return 1;
        }
    }
    return 0;
}

/* Behind "{%". */
static gw_status parse_statement(gw_parser *p, const char *block, gw_tpl_node **out) {
    int line = p->current.line;
    statement parse = statement_of(&p->current);
    if (p->current.kind != GW_TOK_NAME) {
        return gw_parser_fail(p, line, "tag name expected");
    }
    if (parse == NULL) {
        char found[80];
        describe(&p->current, found);
        return block != NULL ? gw_parser_fail(p, line,
                                              "unknown tag %s; the innermost block that "
                                              "needs to be closed is '%s'",
                                              found, block)
                             : gw_parser_fail(p, line, "unknown tag %s", found);
    }
    GW_TRY(gw_parser_deeper(p));
    GW_TRY(parse(p, out));
    p->nested--;
    GW_TRY(check_known(p));
    return gw_parser_expect_kind(p, GW_TOK_BLOCK_END);
}

/* Up to one of the ends, which is then the current token; NULL: up to the end of the template. */
static gw_status parse_body(gw_parser *p, const char *const *ends, const char *block,
                            gw_tpl_node **out) {
    for (;;) {
        gw_tpl_node *node = NULL;
        switch (p->current.kind) {
        case GW_TOK_END:
            return ends == NULL ? GW_OK
                                : gw_parser_fail(p, p->current.line,
                                                 "Unexpected end of template: the block '%s' is "
                                                 "not closed",
                                                 block);
        case GW_TOK_DATA:
            GW_TRY(gw_parser_node(p, GW_TPL_DATA, p->current.line, &node));
            node->value = gw_tv_text(p->current.text, p->current.bytes);
            *out = node;
            GW_TRY(gw_parser_next(p));
            break;
        case GW_TOK_PRINT:
            GW_TRY(gw_parser_next(p));
            GW_TRY(gw_parser_node(p, GW_TPL_PRINT, p->current.line, &node));
            GW_TRY(gw_parse_tuple(p, 1, NULL, &node->a));
            if (node->a == NULL) {
                return gw_parser_unexpected(p, "an expression");
            }
            *out = node;
            GW_TRY(check_known(p));
            GW_TRY(gw_parser_expect_kind(p, GW_TOK_PRINT_END));
            break;
        default:
            GW_TRY(gw_parser_next(p)); /* {% */
            if (is_end(p, ends)) {
                return GW_OK;
            }
            GW_TRY(parse_statement(p, block, out));
            break;
        }
        while (*out != NULL) { /* print makes several */
            out = &(*out)->next;
        }
    }
}

/* ---- a template ------------------------------------------------------------------------------ */

/* Newlines become "\n", and a last one goes. */
static gw_status take_text(gw_template *t, const char *text, size_t bytes, gw_lexer *x) {
    char *copy = gw_arena_alloc(t->arena, bytes + 1),
         *source = gw_arena_copy(t->arena, text, bytes);
    if (copy == NULL || source == NULL) {
        return gw_fail(GW_E_NOMEM, t->where, "no memory");
    }
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '\r') {
            i += i + 1 < bytes && text[i + 1] == '\n';
            c = '\n';
        }
        copy[n++] = c;
    }
    n -= n > 0 && copy[n - 1] == '\n';
    t->source = source;
    t->source_bytes = bytes;
    *x = (gw_lexer){
        .text = copy, .bytes = n, .line = 1, .line_start = 1, .arena = t->arena, .where = t->where};
    return GW_OK;
}

static gw_status parse_all(gw_template *t, const char *text, size_t bytes) {
    gw_parser p = {.t = t};
    GW_TRY(take_text(t, text, bytes, &p.lexer));
    GW_TRY(gw_parser_next(&p));
    return parse_body(&p, NULL, NULL, &t->body);
}

gw_status gw_template_parse(const char *where, const char *text, size_t bytes, gw_template **out) {
    if (bytes > TEMPLATE_MAX) {
        return gw_fail(GW_E_LIMIT, where, "a template of more than %d MiB", TEMPLATE_MAX >> 20);
    }
    if (!gw_text_is_utf8(text, bytes)) {
        return gw_fail(GW_E_ENCODING, where, "the template is not UTF-8");
    }
    gw_template *t = calloc(1, sizeof *t);
    if (t != NULL) {
        t->arena = gw_arena_new();
        t->where = strdup(where);
        t->numbers = gw_map_new();
    }
    if (t == NULL || t->arena == NULL || t->where == NULL || t->numbers == NULL) {
        gw_template_free(t);
        return gw_fail(GW_E_NOMEM, where, "no memory");
    }
    gw_status status = parse_all(t, text, bytes);
    if (status != GW_OK) {
        gw_template_free(t);
        return status;
    }
    *out = t;
    return GW_OK;
}

void gw_template_free(gw_template *t) {
    if (t != NULL) {
        gw_arena_free(t->arena);
        gw_map_free(t->numbers);
        free(t->where);
        free(t->names);
        free(t);
    }
}

const char *gw_template_source(const gw_template *t, size_t *bytes) {
    *bytes = t->source_bytes;
    return t->source;
}

int gw_template_names(const gw_template *t, const char *name) {
    size_t number;
    return gw_map_find(t->numbers, name, strlen(name), &number);
}
