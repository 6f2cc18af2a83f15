/* core/text/template/tree.h - a parsed template: the nodes, and what lexer and parser share. */
#ifndef GW_TEXT_TEMPLATE_TREE_H
#define GW_TEXT_TEMPLATE_TREE_H

#include "core/base/arena.h"
#include "core/base/hash.h"
#include "core/text/template/value.h"

typedef enum gw_tpl_what {
    /* expressions */
    GW_TPL_CONST,  /* value                                          */
    GW_TPL_NAME,   /* name                                           */
    GW_TPL_ATTR,   /* a.name                                         */
    GW_TPL_ITEM,   /* a[b]                                           */
    GW_TPL_SLICE,  /* a:b:c as an index; each may be NULL            */
    GW_TPL_CALL,   /* a(list of ARG)                                 */
    GW_TPL_ARG,    /* a; word: its name, or NULL; op '*' or 'd' (**) */
    GW_TPL_FILTER, /* a | word(list); a NULL: of a block             */
    GW_TPL_TEST,   /* a is word(list)                                */
    GW_TPL_NOT,
    GW_TPL_NEGATE,
    GW_TPL_PLUS,
    GW_TPL_BINARY, /* a op b                                         */
    GW_TPL_CONCAT, /* list, joined by ~                              */
    GW_TPL_AND,
    GW_TPL_OR,
    GW_TPL_COND,    /* b if a else c                                  */
    GW_TPL_COMPARE, /* a, then list of OPERAND                        */
    GW_TPL_OPERAND, /* op, a                                          */
    GW_TPL_MAKE_LIST,
    GW_TPL_MAKE_TUPLE,
    GW_TPL_MAKE_DICT, /* list of PAIR */
    GW_TPL_PAIR,
    GW_TPL_FIELD, /* name.word as a target */
    /* statements */
    GW_TPL_DATA,         /* value                                               */
    GW_TPL_PRINT,        /* a                                                   */
    GW_TPL_IF,           /* a, body list, b: the next IF of an elif chain, or c */
    GW_TPL_FOR,          /* a in b if c: list, other list; op: recursive        */
    GW_TPL_SET,          /* a = b                                               */
    GW_TPL_SET_BLOCK,    /* a, b: filters, list                                 */
    GW_TPL_MACRO,        /* name, parameters in c, list                         */
    GW_TPL_CALL_BLOCK,   /* a: the call, parameters in c, list                 */
    GW_TPL_PARAM,        /* name, a: default                                   */
    GW_TPL_FILTER_BLOCK, /* a: filters, list                                 */
    GW_TPL_WITH,         /* c: list of SET, list                             */
    GW_TPL_SCOPE,        /* list                                             */
    GW_TPL_ESCAPE,       /* a: on or off, list                               */
    GW_TPL_BREAK,
    GW_TPL_CONTINUE,
    GW_TPL_REFUSE /* word: why */
} gw_tpl_what;

typedef struct gw_tpl_node {
    uint8_t what, op;    /* op of MACRO, CALL_BLOCK: GW_TPL_USES_... */
    uint8_t keeps_scope; /* FOR: a macro inside may outlive the round      */
    uint16_t depth;      /* of the tree below                              */
    int32_t line;
    uint32_t name; /* number of a name                              */
    uint32_t word_bytes;
    const char *word;          /* of ATTR, ARG, FILTER, TEST, FIELD             */
    const gw_tpl_builtin *row; /* of FILTER and TEST; NULL: there is none  */
    struct gw_tpl_node *a, *b, *c, *list, *other, *next;
    gw_tv value;
} gw_tpl_node;

/* Operators: what a BINARY or an OPERAND does. One character, or: */
enum {
    GW_OP_FLOOR = 'f',
    GW_OP_POWER = 'p',
    GW_OP_EQ = 'e',
    GW_OP_NE = 'n',
    GW_OP_LE = 'l',
    GW_OP_GE = 'g',
    GW_OP_IN = 'i',
    GW_OP_NOT_IN = 'o',
    GW_OP_STARS = 'd'
};

enum { GW_TPL_USES_VARARGS = 1, GW_TPL_USES_KWARGS = 2, GW_TPL_USES_CALLER = 4 };

typedef struct gw_tpl_word {
    const char *text;
    uint32_t bytes;
} gw_tpl_word;

struct gw_template {
    gw_arena *arena;
    char *where;
    const char *source;
    size_t source_bytes;
    gw_tpl_node *body;
    gw_tpl_word *names; /* [n_names], malloc'd */
    size_t n_names, names_room;
    gw_map *numbers; /* of names */
};

/* ---- the lexer ------------------------------------------------------------------------------- */

typedef enum gw_tok {
    GW_TOK_END,
    GW_TOK_DATA,
    GW_TOK_PRINT,     /* {{ */
    GW_TOK_PRINT_END, /* }} */
    GW_TOK_BLOCK,     /* {% */
    GW_TOK_BLOCK_END, /* %} */
    GW_TOK_NAME,
    GW_TOK_TEXT,
    GW_TOK_INT,
    GW_TOK_FLOAT,
    GW_TOK_OP
} gw_tok;

typedef struct gw_token {
    gw_tok kind;
    int op; /* of OP: as above */
    int line;
    const char *text; /* as written; of TEXT: what it stands for */
    size_t bytes;
    gw_tv value; /* INT, FLOAT */
} gw_token;

enum { GW_TPL_OPEN_MAX = 250 }; /* brackets, blocks and operators inside one another */

typedef struct gw_lexer {
    const char *text; /* newlines are "\n", the last one is gone */
    size_t bytes, at;
    int line;
    size_t counted; /* up to where `line` has seen newlines */
    enum { GW_LEX_DATA, GW_LEX_PRINT, GW_LEX_BLOCK } state;
    int last_line;  /* of the last token */
    int line_start; /* the last token ended with a newline */
    char open[GW_TPL_OPEN_MAX];
    size_t n_open;
    gw_arena *arena;
    const char *where;
} gw_lexer;

/* GW_E_SYNTAX names the line. */
gw_status gw_lexer_next(gw_lexer *x, gw_token *out);
gw_status gw_lexer_fail(const gw_lexer *x, int line, const char *fmt, ...) GW_PRINTF(3, 4);
int gw_tpl_is_space(uint32_t cp); /* str.isspace of Python */
int gw_tpl_is_word(uint32_t cp);  /* \w of Python's expressions */

/* Rows by name; NULL: there is none. */
const gw_tpl_builtin *gw_tpl_filter(const char *name, size_t n);
const gw_tpl_builtin *gw_tpl_test(const char *name, size_t n);

#endif
