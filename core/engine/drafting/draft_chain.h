/* core/engine/drafting/draft_chain.h - drafts of a block that depend on one another (DSpark): to
 * the logits of a block's row comes a product of low rank, of the token before it, so that the
 * block's tokens are drawn one by one. Of several texts at once. Host arithmetic:
 * docs/arithmetic.md, section 5, "Chains of a block".
 */
#ifndef GW_ENGINE_DRAFT_CHAIN_H
#define GW_ENGINE_DRAFT_CHAIN_H

#include "core/engine/run/model.h"

typedef struct gw_chain gw_chain;

/* Of a head that drafts by blocks, for `texts` of them; *out NULL: its blocks have no chain. */
gw_status gw_chain_new(const gw_model *head, int32_t texts, gw_chain **out);
void gw_chain_free(gw_chain *c);
/* A block of this text begins. */
void gw_chain_begin(gw_chain *c, int32_t text);

/* A row of a block: its text, the token before it, what stands in the head's output before its
 * matrix [the head's width]; trust: set to how sure the head is of the row's token, -1: it does not
 * say. */
typedef struct gw_chain_row {
    int32_t text, before;
    const float *hidden;
    float trust;
} gw_chain_row;

/* The next row of each of n texts, in any order. */
gw_status gw_chain_step(gw_chain *c, gw_chain_row *rows, int32_t n);
/* Of row i of that step: logits [the head's] of the block's row and what the chain adds; until the
 * next call. *out NULL: they are not finite. */
gw_status gw_chain_logits(gw_chain *c, int32_t i, const float *logits, const float **out);

#endif
