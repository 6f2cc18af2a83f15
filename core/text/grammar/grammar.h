/* core/text/grammar/grammar.h - context-free grammars over text: compiled once, then matched byte
 * by byte.
 *
 * A grammar is written in the GBNF of llama.cpp (docs/grammar.md). It is compiled into a short
 * program (match a byte, call a rule, split, return), and a matcher runs that program on all parses
 * at once. Its state is one number, so keeping and going back to a state costs nothing:
 *
 *   A stack of return addresses is a path through nodes; a node is a sorted set of (address, node
 *   below), and equal sets are one node (hash-consing). Stacks that agree at the top are joined, so
 *   that ambiguity costs space in the depth of the nesting and not in the number of parses. This is
 *   the graph-structured stack of Tomita (1985), kept canonical; a state is such a node itself.
 *
 * Transitions (state, byte) and masks (state: which tokens may follow) are remembered, so a
 * grammar without deep nesting soon runs as a table. All memory is taken by gw_matcher_new; when
 * it is used up, what no held state needs is forgotten.
 */
#ifndef GW_TEXT_GRAMMAR_H
#define GW_TEXT_GRAMMAR_H

#include "core/text/tokens/tokenizer.h"

enum {
    GW_GRAMMAR_BYTES_MAX = 1 << 20, /* of a grammar's text, and of a schema's             */
    GW_GRAMMAR_OPS_MAX = 1 << 20,   /* of a program, repetitions written out              */
    GW_GRAMMAR_REPEAT_MAX = 100000, /* m and n of {m,n}                                   */
    GW_GRAMMAR_OPEN_MAX = 1000,     /* parentheses inside each other                      */
    GW_GRAMMAR_DEPTH_MAX = 1000,    /* rules inside each other; a text never nests deeper */
    GW_GRAMMAR_FAR = 1 << 30        /* bytes: farther than any limit                      */
};

/* ---- programs -------------------------------------------------------------------------------- */

typedef enum gw_grammar_op {
    GW_GRAMMAR_END,   /* of the whole text                                     */
    GW_GRAMMAR_BYTE,  /* one byte of set `arg`, then the next op               */
    GW_GRAMMAR_CALL,  /* rule `arg`, then the next op                          */
    GW_GRAMMAR_SPLIT, /* the next op, or op `arg`                              */
    GW_GRAMMAR_JUMP,  /* op `arg`                                              */
    GW_GRAMMAR_RETURN /* the rule is over                                      */
} gw_grammar_op;

typedef struct gw_grammar_step {
    uint32_t op, arg;
} gw_grammar_step;

typedef struct gw_byte_set {
    uint64_t bits[4];
} gw_byte_set;

/* A compiled grammar. Read-only; any thread. */
typedef struct gw_program {
    gw_grammar_step *steps; /* [n_steps]; 0 is the END */
    uint32_t n_steps;
    gw_byte_set *sets;
    uint32_t n_sets;
    uint32_t n_rules, root;
    uint32_t *start;       /* [n_rules] first op; 0: not reachable                                */
    uint8_t *nullable;     /* [n_rules] may be empty                                              */
    uint32_t *rank;        /* [n_rules] a rule stands behind all that may begin with it           */
    uint32_t *by_rank;     /* [n_rules] */
    uint32_t *least;       /* [n_steps] bytes until the rule of this op can be over, at least;
                              GW_GRAMMAR_FAR: nobody knows                                        */
    uint8_t class_of[256]; /* bytes that no set tells apart are one class */
    uint8_t sample[256];   /* [n_classes] a byte of each                  */
    uint32_t n_classes;
} gw_program;

/* GBNF, any bytes. where: what messages begin with. GW_E_SYNTAX and GW_E_ENCODING name line and
 * column; GW_E_METADATA: left recursion, a rule that is missing or has no end; GW_E_LIMIT. Takes
 * time in proportion to the text and the program. */
gw_status gw_grammar_compile(const char *where, const char *text, size_t n, gw_program **out);
/* The same for a text of our own making, of any length: alternatives that no text can end are left
 * out. */
gw_status gw_grammar_link(const char *where, const char *text, size_t n, gw_program **out);
void gw_program_free(gw_program *program); /* accepts NULL */

static inline int gw_byte_set_has(const gw_byte_set *set, unsigned byte) {
    return (int)(set->bits[byte >> 6] >> (byte & 63) & 1);
}

/* ---- the vocabulary as a tree ------------------------------------------------------------------
 */

/* Every token by its bytes, in the order of a walk that visits a node before what hangs on it;
 * trie.h looks for single words instead. What is no text stands there by its spelling between two
 * bytes that no text and only the term @"..." of a grammar has. Read-only; any thread. */
enum { GW_TOKEN_OPENS = 0xFF, GW_TOKEN_CLOSES = 0xFE };

typedef struct gw_token_node {
    uint32_t end;   /* the node after all that hang on this one        */
    int32_t id;     /* the token that ends here, the last of ids; or -1 */
    uint16_t depth; /* bytes before this one                           */
    uint8_t byte;
    uint8_t several; /* tokens end here, all of them in ids */
} gw_token_node;

typedef struct gw_token_tree {
    gw_token_node *nodes;
    uint32_t n_nodes, deepest;
    uint32_t *first; /* [n_nodes + 1] in ids */
    int32_t *ids;    /* tokens that end at a node */
    const gw_vocab *vocab;
    const gw_tokenizer *tokenizer;
} gw_token_tree;

/* Of the first n tokens. */
gw_status gw_token_tree_new(const gw_vocab *vocab, const gw_tokenizer *tokenizer, size_t n,
                            gw_token_tree **out);
void gw_token_tree_free(gw_token_tree *tree);
/* Is it text: no control or unknown token, no other special one, not empty, of UTF-8's bytes? */
int gw_token_is_text(const gw_vocab *vocab, const gw_tokenizer *tokenizer, int32_t id);

/* ---- matching -------------------------------------------------------------------------------- */

typedef struct gw_matcher gw_matcher;

enum { GW_MATCHER_KEPT = 34 }; /* states that may be held besides the current one */

/* ends [n_ends]: the tokens that end a text. Program, tree and ends are borrowed. n_vocab: bits of
 * a mask, at least the tree's tokens. Not thread-safe. */
gw_status gw_matcher_new(const gw_program *program, const gw_token_tree *tree, const int32_t *ends,
                         size_t n_ends, int32_t n_vocab, gw_matcher **out);
void gw_matcher_free(gw_matcher *m);

void gw_matcher_reset(gw_matcher *m); /* before the first byte; nothing is held */
/* Hold the current state as number 0..GW_MATCHER_KEPT-1; go back to it. */
void gw_matcher_keep(gw_matcher *m, int slot);
void gw_matcher_back(gw_matcher *m, int slot);

/* Go on by bytes or by a token's; *taken 0, and nothing changes, when the grammar does not allow
 * them. GW_E_LIMIT: too many parses at once. An end token changes nothing, and is taken where the
 * text may end. */
gw_status gw_matcher_bytes(gw_matcher *m, const char *text, size_t n, int *taken);
gw_status gw_matcher_token(gw_matcher *m, int32_t id, int *taken);
/* The same for a token that was taken here before: it need not be looked for among all others. */
gw_status gw_matcher_retake(gw_matcher *m, int32_t id);

typedef struct gw_token_mask {
    const uint64_t *bits; /* [(n_vocab + 63) / 64] bit id: allowed; valid until the next call */
    uint32_t n_text;      /* tokens of text among them */
} gw_token_mask;

/* Which tokens may come next. */
gw_status gw_matcher_mask(gw_matcher *m, gw_token_mask *out);
/* Which of them leave a text that `left` bytes more can make whole; all of them where none does, or
 * where the text cannot be made whole by that many and one more. Of tokens that are one byte each
 * there is always one of those, so a text that could end in time does. */
gw_status gw_matcher_mask_within(gw_matcher *m, uint32_t left, gw_token_mask *out);
int gw_matcher_may_end(const gw_matcher *m);  /* is the text so far whole?      */
int gw_matcher_at_end(const gw_matcher *m);   /* ... and can nothing follow it? */
int gw_matcher_too_deep(const gw_matcher *m); /* has GW_GRAMMAR_DEPTH_MAX ruled a text out? */

#endif
