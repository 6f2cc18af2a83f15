/* core/engine/sampling/constraint.c - gw_grammar: a program and the tree of a model's tokens; and
 * what a sampler does with it. */
#include "core/engine/sampling/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/run/model_state.h"
#include "core/text/grammar/json_schema.h"
#include "include/godwit_answer.h"

struct gw_grammar {
    gw_program *program;
    gw_token_tree *tree;
    int32_t *ends;
    size_t n_ends;
    int32_t n_vocab;
};

gw_status gw_grammar_bind(const gw_vocab *vocab, const gw_tokenizer *tokenizer, int32_t n_vocab,
                          const int32_t *ends, size_t n_ends, gw_program *program,
                          gw_grammar **out) {
    gw_status status;
    gw_grammar *g = calloc(1, sizeof *g);
    if (g == NULL) {
        gw_program_free(program);
        return gw_fail(GW_E_NOMEM, "grammar", "no memory");
    }
    g->program = program;
    g->n_vocab = n_vocab;
    g->ends = calloc(n_ends + 1, sizeof *g->ends);
    if (g->ends == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, "grammar", "no memory"));
    }
    for (size_t i = 0; i < n_ends; i++) {
        if (ends[i] >= 0 && ends[i] < n_vocab) {
            g->ends[g->n_ends++] = ends[i];
        }
    }
    size_t most = (size_t)n_vocab < vocab->n_tokens ? (size_t)n_vocab : vocab->n_tokens;
    GW_TRY_DONE(gw_token_tree_new(vocab, tokenizer, most, &g->tree));
    *out = g;
    return GW_OK;
done:
    gw_grammar_free(g);
    return status;
}

gw_status gw_grammar_make(const gw_vocab *vocab, const gw_tokenizer *tokenizer, int32_t n_vocab,
                          const int32_t *ends, size_t n_ends, gw_grammar_kind kind,
                          const char *text, size_t bytes, gw_grammar **out) {
    gw_program *program = NULL;
    if (kind == GW_GRAMMAR_GBNF) {
        GW_TRY(gw_grammar_compile("grammar", text, bytes, &program));
    } else if (kind == GW_GRAMMAR_JSON_SCHEMA) {
        GW_TRY(gw_json_schema_compile(text, bytes, &program));
    } else if ((int)kind == GW_GRAMMAR_PATTERN) {
        GW_TRY(gw_json_pattern_compile(text, bytes, &program));
    } else {
        return gw_fail(GW_E_ARGUMENT, "grammar", "%d is no kind of grammar", (int)kind);
    }
    return gw_grammar_bind(vocab, tokenizer, n_vocab, ends, n_ends, program, out);
}

size_t gw_grammar_ends(const gw_model *model, const gw_chat *chat, int32_t *ends, size_t capacity) {
    int32_t n_vocab = gw_model_n_vocab(model);
    size_t n = 0;
    for (int32_t id = 0; id < n_vocab && n < capacity; id++) {
        if (chat != NULL ? gw_chat_is_end(chat, id) : gw_token_is_end(model, id)) {
            ends[n++] = id;
        }
    }
    return n;
}

gw_status gw_grammar_new(const gw_model *model, gw_grammar_kind kind, const char *text,
                         size_t bytes, const gw_chat *chat, gw_grammar **out) {
    if (model->tokenizer == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, model->name,
                       "the model has no tokenizer, so no text can be asked of it");
    }
    int32_t ends[GW_GRAMMAR_ENDS];
    size_t n = gw_grammar_ends(model, chat, ends, GW_GRAMMAR_ENDS);
    return gw_grammar_make(model->vocab, model->tokenizer, gw_model_n_vocab(model), ends, n, kind,
                           text, bytes, out);
}

void gw_grammar_free(gw_grammar *g) {
    if (g != NULL) {
        gw_program_free(g->program);
        gw_token_tree_free(g->tree);
        free(g->ends);
        free(g);
    }
}

/* ---- the sampler's side ---------------------------------------------------------------------- */

static void begin_again(gw_constraint *c) {
    gw_matcher_reset(c->matcher);
    c->n = c->high = 0;
    c->ahead = 0;
}

/* Where the state is held that came before token i, i a multiple of GW_CONSTRAINT_STEP. */
static int slot_of(size_t i) { return 1 + (int)(i / GW_CONSTRAINT_STEP % GW_CONSTRAINT_STATES); }

gw_status gw_constraint_begin(gw_constraint *c, const gw_grammar *grammar, int32_t n_vocab) {
    if (grammar != NULL && n_vocab != grammar->n_vocab) {
        return gw_fail(GW_E_ARGUMENT, "grammar", "made for %d tokens, this model has %d",
                       (int)grammar->n_vocab, (int)n_vocab);
    }
    if (grammar == NULL || grammar != c->grammar) {
        gw_constraint next = {.grammar = grammar};
        if (grammar != NULL) {
            GW_TRY(gw_matcher_new(grammar->program, grammar->tree, grammar->ends, grammar->n_ends,
                                  n_vocab, &next.matcher));
            next.tokens = calloc(GW_CONSTRAINT_RING, sizeof *next.tokens);
            if (next.tokens == NULL) {
                gw_constraint_free(&next);
                return gw_fail(GW_E_NOMEM, "grammar", "no memory");
            }
        }
        gw_constraint_free(c);
        *c = next;
    } else {
        begin_again(c);
    }
    return GW_OK;
}

void gw_constraint_free(gw_constraint *c) {
    gw_matcher_free(c->matcher);
    free(c->tokens);
    *c = (gw_constraint){0};
}

gw_status gw_constraint_apply(gw_constraint *c, gw_candidates *list) {
    gw_token_mask mask;
    size_t n = 0;
    if (c->matcher == NULL) {
        return GW_OK;
    }
    size_t made = c->n + c->ahead;
    if (made < c->limit && c->limit - made <= GW_GRAMMAR_FAR) {
        GW_TRY(gw_matcher_mask_within(c->matcher, (uint32_t)(c->limit - made - 1), &mask));
    } else {
        GW_TRY(gw_matcher_mask(c->matcher, &mask));
    }
    for (size_t i = 0; i < list->n; i++) {
        uint32_t id = (uint32_t)list->at[i].token;
        list->at[n] = list->at[i];
        n += mask.bits[id / 64] >> (id % 64) & 1;
    }
    list->n = n;
    list->ranked = 0;
    c->left = (uint32_t)n;
    return GW_OK;
}

gw_status gw_constraint_accept(gw_constraint *c, int32_t token) {
    int taken;
    if (c->matcher == NULL) {
        return GW_OK;
    }
    if (c->n % GW_CONSTRAINT_STEP == 0) {
        gw_matcher_keep(c->matcher, slot_of(c->n));
    }
    GW_TRY(gw_matcher_token(c->matcher, token, &taken));
    if (!taken) {
        return gw_fail(GW_E_ARGUMENT, "grammar", "token %d is not allowed here", (int)token);
    }
    c->tokens[c->n % GW_CONSTRAINT_RING] = token;
    c->n++;
    c->high = c->high > c->n ? c->high : c->n;
    return GW_OK;
}

gw_status gw_constraint_rewind(gw_constraint *c, size_t n) {
    if (c->matcher == NULL || n == 0) {
        return GW_OK;
    }
    if (n >= c->n) {
        begin_again(c);
        return GW_OK;
    }
    size_t left = c->n - n, from = left - left % GW_CONSTRAINT_STEP;
    if (c->high - left > GW_HISTORY_BACK) {
        return gw_fail(GW_E_ARGUMENT, "grammar", "the last %zu tokens cannot be forgotten any more",
                       n);
    }
    gw_matcher_keep(c->matcher, 0);
    gw_matcher_back(c->matcher, slot_of(from));
    for (size_t i = from; i < left; i++) {
        gw_status status = gw_matcher_retake(c->matcher, c->tokens[i % GW_CONSTRAINT_RING]);
        if (status != GW_OK) {
            gw_matcher_back(c->matcher, 0);
            return status;
        }
    }
    c->n = left;
    return GW_OK;
}

void gw_constraint_ahead(gw_constraint *c, int32_t token) {
    int taken;
    if (c->matcher == NULL) {
        return;
    }
    if (c->ahead++ == 0) {
        gw_matcher_keep(c->matcher, 0);
    }
    gw_matcher_token(c->matcher, token, &taken); /* a draft: where it goes wrong it is not kept */
}

void gw_constraint_back(gw_constraint *c) {
    if (c->ahead > 0) {
        gw_matcher_back(c->matcher, 0);
        c->ahead = 0;
    }
}

gw_status gw_constraint_blame(const gw_constraint *c, int32_t pos) {
    if (c->matcher == NULL) {
        return gw_fail(GW_E_NUMERIC, "logits", "bias and penalties leave no token at position %d",
                       (int)pos);
    }
    if (c->left > 0) {
        return gw_fail(GW_E_NUMERIC, "grammar",
                       "it allows %u tokens at position %d, and bias and penalties leave none of "
                       "them",
                       c->left, (int)pos);
    }
    return gw_fail(
        GW_E_NUMERIC, "grammar", "no token of this model can go on at position %d%s", (int)pos,
        gw_matcher_too_deep(c->matcher)  ? " without nesting deeper than is supported"
        : gw_matcher_may_end(c->matcher) ? ": the text is whole, and the model has no end token"
                                         : ": its vocabulary cannot spell what has to follow");
}

gw_status gw_sampler_constrain(gw_sampler *sampler, const gw_grammar *grammar) {
    return gw_constraint_begin(gw_sampler_constraint(sampler), grammar, gw_sampler_vocab(sampler));
}

int gw_sampler_finished(const gw_sampler *sampler) {
    const gw_constraint *c = gw_sampler_constraint((gw_sampler *)(uintptr_t)sampler);
    return c->matcher != NULL && gw_matcher_at_end(c->matcher);
}
