/* core/engine/sampling/constraint.h - the part of a sampler that keeps a text to its grammar.
 * Tokens that the grammar does not allow are taken out of the list before any stage sees it. */
#ifndef GW_ENGINE_CONSTRAINT_H
#define GW_ENGINE_CONSTRAINT_H

#include "core/engine/sampling/sampler_text.h"
#include "core/text/grammar/grammar.h"

/* Every so many tokens the state is held, so that the last GW_HISTORY_BACK can be forgotten: the
 * state before is followed again from there. State 0 of the matcher is for tokens ahead. */
enum {
    GW_CONSTRAINT_STEP = 128,
    GW_CONSTRAINT_STATES = GW_HISTORY_BACK / GW_CONSTRAINT_STEP + 1,
    GW_CONSTRAINT_RING = GW_CONSTRAINT_STATES * GW_CONSTRAINT_STEP
};

typedef struct gw_constraint { /* zero: none */
    const gw_grammar *grammar;
    gw_matcher *matcher; /* NULL: anything goes */
    int32_t *tokens;     /* [GW_CONSTRAINT_RING] the last of the text                  */
    size_t n, high;      /* tokens of the text; the most there were                    */
    size_t limit;        /* tokens that the text is to be whole in, where it can; 0: any */
    size_t ahead;        /* tokens behind the state that gw_constraint_back returns to */
    uint32_t left;       /* tokens of the last list that the grammar left in it        */
} gw_constraint;

/* The body of gw_sampler_constrain, for logits [n_vocab]. */
gw_status gw_constraint_begin(gw_constraint *c, const gw_grammar *grammar, int32_t n_vocab);
void gw_constraint_free(gw_constraint *c);

gw_status gw_constraint_apply(gw_constraint *c, gw_candidates *list);
gw_status gw_constraint_accept(gw_constraint *c, int32_t token);
/* As gw_sampler_rewind. */
gw_status gw_constraint_rewind(gw_constraint *c, size_t n);
/* For now, until _back; as gw_sampler_ahead. */
void gw_constraint_ahead(gw_constraint *c, int32_t token);
void gw_constraint_back(gw_constraint *c);
/* Why no token could be chosen at pos. */
gw_status gw_constraint_blame(const gw_constraint *c, int32_t pos);

enum { GW_GRAMMAR_ENDS = 32 };
/* The tokens that end a text, ends [capacity]; returns how many. */
size_t gw_grammar_ends(const gw_model *model, const gw_chat *chat, int32_t *ends, size_t capacity);
/* A program for a vocabulary; the program becomes the grammar's, on errors too. */
gw_status gw_grammar_bind(const gw_vocab *vocab, const gw_tokenizer *tokenizer, int32_t n_vocab,
                          const int32_t *ends, size_t n_ends, gw_program *program,
                          gw_grammar **out);
/* gw_grammar_new for any vocabulary; ends [n_ends] are copied. */
gw_status gw_grammar_make(const gw_vocab *vocab, const gw_tokenizer *tokenizer, int32_t n_vocab,
                          const int32_t *ends, size_t n_ends, gw_grammar_kind kind,
                          const char *text, size_t bytes, gw_grammar **out);

#endif
