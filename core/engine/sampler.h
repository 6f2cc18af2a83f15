/* core/engine/sampler.h - a sampler is a table of stages that narrow a list of candidates.
 *
 * Stages only reshape or shorten the list; drawing is separate. A new stage is one row of the table
 * in sampler.c. Semantics of the filters are those of the transformers library, so survivors can be
 * compared with its outputs. Exponentials and logarithms come from arith.h: the same logits leave
 * the same survivors on every machine. Nothing here allocates.
 */
#ifndef GW_ENGINE_SAMPLER_H
#define GW_ENGINE_SAMPLER_H

#include "include/godwit.h"

typedef struct gw_candidate {
    float logit;
    float key; /* what the list is ranked by; the logit, except inside a stage */
    int32_t token;
} gw_candidate;

/* at[0..ranked) are the best candidates in falling order of (key, -token); the rest is in any
 * order. Logits are not NaN. */
typedef struct gw_candidates {
    gw_candidate *at;
    size_t n, ranked;
} gw_candidates;

/* One candidate per logit that is not NaN. at must hold n_vocab entries. */
void gw_candidates_fill(gw_candidates *c, const float *logits, int32_t n_vocab);
/* Bring the m best to the front, ranked. A selection: the rest is not sorted. */
void gw_candidates_rank(gw_candidates *c, size_t m);

/* Tokens among the last ones: score / penalty if positive, score * penalty if not (Keskar et al.
 * 2019), then minus presence, minus count * frequency. counts [n_vocab]. */
void gw_stage_penalties(gw_candidates *c, const uint32_t *counts, float repeat, float presence,
                        float frequency);
/* bias [n_vocab], added; -infinity forbids a token. */
void gw_stage_bias(gw_candidates *c, const float *bias);
/* The k largest, and those equal to the k-th. */
void gw_stage_top_k(gw_candidates *c, int32_t k);
/* Locally typical (Meister et al. 2022): the tokens whose information is closest to the entropy of
 * the distribution, until their probabilities reach p. */
void gw_stage_typical(gw_candidates *c, float p);
/* The most probable tokens until their probabilities reach p (Holtzman et al. 2019). */
void gw_stage_top_p(gw_candidates *c, float p);
/* Tokens with at least p times the probability of the most probable one. */
void gw_stage_min_p(gw_candidates *c, float p);
/* logit / t, t > 0. */
void gw_stage_temperature(gw_candidates *c, float t);

/* Position in at[] of the largest logit, lowest token first; c->n when no logit is finite or the
 * largest is infinite. */
size_t gw_candidates_best(const gw_candidates *c);
/* The same after adding the Gumbel noise of (seed, position, token): a draw from the softmax. */
size_t gw_candidates_draw(const gw_candidates *c, uint64_t seed, int32_t position);
/* With the noise of another sequence: independent of the text's own draws, which are sequence 0. */
size_t gw_candidates_draw_of(const gw_candidates *c, uint64_t seed, uint32_t sequence,
                             int32_t position);

/* gw_sampler_new for any vocabulary. */
gw_status gw_sampler_make(int32_t n_vocab, const gw_sampler_options *options, gw_sampler **out);

/* ---- the halves of gw_sampler_pick, for speculation ------------------------------------------ */

/* What the stages leave of logits [n] (n at most the vocabulary): the distribution a token at pos
 * is drawn from. The list is the sampler's and valid until its next call; it may be changed. */
gw_status gw_sampler_narrow(gw_sampler *s, const float *logits, int32_t n, int32_t pos,
                            gw_candidates *out);
/* The choice among them; GW_E_NUMERIC when there is none. */
gw_status gw_sampler_choose(const gw_sampler *s, const gw_candidates *c, int32_t pos,
                            int32_t *token);
/* Count a token as part of the text for now, at most GW_DECODE_MAX of them, and take all back: a
 * draft meets the penalties that the text would. Nothing else may be accepted in between. */
void gw_sampler_ahead(gw_sampler *s, int32_t token);
void gw_sampler_back(gw_sampler *s);

int32_t gw_sampler_vocab(const gw_sampler *s);
uint64_t gw_sampler_seed(const gw_sampler *s);
int gw_sampler_is_greedy(const gw_sampler *s);
int gw_sampler_filters(const gw_sampler *s); /* does a stage shorten the list? */

#endif
