/* core/engine/drafting/draft_accept.h - rejection sampling over candidate lists (Leviathan et al.
 * 2023, Chen et al. 2023): a draft x drawn from p is kept with probability min(1, q(x) / p(x));
 * after the first that is not, a token is drawn from the normalised positive part of q - p. The
 * text is distributed as the target's q whatever p is, provided that whether a token is drafted
 * never depends on that token, and that the draws are independent.
 *
 * Pure functions: the caller brings the random numbers. A list that was weighed holds the
 * probability of each candidate in `key`.
 */
#ifndef GW_ENGINE_DRAFT_ACCEPT_H
#define GW_ENGINE_DRAFT_ACCEPT_H

#include "core/engine/sampling/sampler.h"

/* Probabilities of a narrowed list into key; greedy: all on the best one, alone in the list. */
void gw_draft_weigh(gw_candidates *c, int greedy);
/* Of a weighed list; 0 for a token that is not in it. */
float gw_draft_weight(const gw_candidates *c, int32_t token);

/* Is a draft with target probability q and draft probability p kept? u uniform in (0, 1). */
int gw_draft_keeps(float q, float p, float u);

/* Turn weighed target candidates into the positive part of q - p, as logits to draw from. p
 * [n_vocab]: the draft's probabilities; NULL: all on `drafted`. Where nothing is left, which
 * rounding can do, the list stays the target's. */
void gw_draft_residual(gw_candidates *c, const float *p, int32_t drafted);

/* Is the token among the candidates, with a logit that can be drawn? */
int gw_draft_in_pool(const gw_candidates *c, int32_t token);

/* Uniform in (0, 1) from (seed, sequence, position): independent of every other number. */
float gw_draft_uniform(uint64_t seed, uint32_t sequence, int32_t position);

#endif
