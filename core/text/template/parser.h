/* core/text/template/parser.h - what the two halves of the parser share. */
#ifndef GW_TEXT_TEMPLATE_PARSER_H
#define GW_TEXT_TEMPLATE_PARSER_H

#include "core/text/template/tree.h"

enum { GW_TPL_DEPTH_MAX = 1000 }; /* of a tree */

typedef struct gw_parser {
    gw_template *t;
    gw_lexer lexer;
    gw_token current, ahead;
    int has_ahead;
    int nested;                 /* calls of the parser inside one another          */
    int soft;                   /* under a condition                               */
    int loops;                  /* for's around, inside the innermost macro        */
    int fors;                   /* for's around                                    */
    int macros;                 /* macros and call blocks seen so far              */
    int special;                /* GW_TPL_USES_...: names seen in this macro       */
    const gw_tpl_node *unknown; /* the first filter or test that there is none of; an error, unless
                                   a condition stands before it */
} gw_parser;

gw_status gw_parser_next(gw_parser *p); /* the current token is taken */
gw_status gw_parser_look(gw_parser *p); /* p->ahead is read           */
gw_status gw_parser_fail(gw_parser *p, int line, const char *fmt, ...) GW_PRINTF(3, 4);
gw_status gw_parser_unexpected(gw_parser *p, const char *wanted);
int gw_parser_is_op(const gw_parser *p, int op);
int gw_parser_is_name(const gw_parser *p, const char *name);
gw_status gw_parser_skip_op(gw_parser *p, int op, int *skipped);
gw_status gw_parser_skip_name(gw_parser *p, const char *name, int *skipped);
gw_status gw_parser_expect_op(gw_parser *p, int op);
gw_status gw_parser_expect_name(gw_parser *p, const char *name);
gw_status gw_parser_expect_kind(gw_parser *p, gw_tok kind);
gw_status gw_parser_node(gw_parser *p, gw_tpl_what what, int line, gw_tpl_node **out);
/* The depth of the node from those below; GW_E_SYNTAX when it is too deep. */
gw_status gw_parser_close(gw_parser *p, gw_tpl_node *node);
gw_status gw_parser_number_of(gw_parser *p, const char *name, size_t n, uint32_t *out);
gw_status gw_parser_deeper(gw_parser *p);

gw_status gw_parse_expression(gw_parser *p, int conditions, gw_tpl_node **out);
/* `until`: a name that ends the tuple, or NULL. *out NULL: nothing, where `empty` allows it. */
gw_status gw_parse_tuple(gw_parser *p, int conditions, const char *until, gw_tpl_node **out);
gw_status gw_parse_target(gw_parser *p, const char *until, int fields, gw_tpl_node **out);
/* Filters of a block: `filter upper|trim`, `set x | upper`; first: no bar before the first. */
gw_status gw_parse_filters(gw_parser *p, gw_tpl_node *node, int first, gw_tpl_node **out);

#endif
