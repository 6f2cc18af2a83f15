/* core/engine/sampling/sampler.h - a sampler is a table of stages that narrow a list of candidates.
 *
 * Stages only reshape or shorten the list; drawing is separate. A new stage is one row of the table
 * in sampler.c. Semantics of the filters are those of the transformers library where it has them,
 * so survivors can be compared with its outputs. Exponentials and logarithms come from arith.h,
 * coins are noise of the position: the same logits leave the same survivors on every machine.
 * Nothing here allocates per token. docs/sampling.md has a line on each.
 */
#ifndef GW_ENGINE_SAMPLER_H
#define GW_ENGINE_SAMPLER_H

#include "core/tensor/sample.h"
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
/* The same, but of those that are not among the m largest, nor equal to one, as many as it likes
 * may be missing: what it takes is one look at each logit. 0, and nothing done: they are too many.
 */
int gw_candidates_fill_top(gw_candidates *c, const float *logits, int32_t n_vocab, size_t m);
/* The largest; what is not a number does not count. -infinity: none. */
float gw_logits_top(const float *logits, size_t n);
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
/* Division by less could overflow, and nothing but the best token is left here anyway. */
#define GW_GREEDY_BELOW 1e-3f
/* A temperature between t - range and t + range, at least GW_GREEDY_BELOW: low + (high - low) *
 * share^exponent, where share is the entropy of the list over the most it could be (kalomaze,
 * "Dynamic Temperature Sampling", 2023; entropy as a guide also in Zhang et al., "EDT", 2024). */
void gw_stage_dynamic_temperature(gw_candidates *c, float t, float range, float exponent);
/* Logits within n standard deviations of the largest (Tang et al., "Top-n-sigma: Not All Logits Are
 * You Need", 2024). Of the logits that are not -infinity. */
void gw_stage_top_n_sigma(gw_candidates *c, float n);
/* Tail-free (Bricken, "Tail Free Sampling", 2019): p sorted, |second difference| normalised to a
 * sum of 1; with i the first place, from 0, where its running sum exceeds z, the first i + 2 are
 * kept: up to the middle of the three that make the i-th difference, as in the author's program.
 * Ranks the whole list. */
void gw_stage_tail_free(gw_candidates *c, float z);
/* Of the tokens with at least this probability only the least probable stays, with all those below:
 * XTC ("exclude top choices", P. E. Weidmann 2024, text-generation-webui pull request 6335), once
 * its coin has fallen. */
void gw_stage_xtc(gw_candidates *c, float threshold);
/* Mirostat (Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls
 * Perplexity", 2021). version 1: estimates the Zipf exponent from the first hundred ratios and
 * keeps the k most probable, k by the paper's formula over a vocabulary of n_vocab; 2: keeps tokens
 * of at most mu bits; in both at least one. surprise [n_vocab], may be NULL: bits of every token in
 * the list it was given, NaN for others; mu then moves by eta * (tau - bits of the token taken). */
void gw_stage_mirostat(gw_candidates *c, int version, float mu, int32_t n_vocab, float *surprise);

/* Position in at[] of the largest logit, lowest token first; c->n when no logit is finite or the
 * largest is infinite. */
size_t gw_candidates_best(const gw_candidates *c);
/* The same after adding the Gumbel noise of (seed, position, token): a draw from the softmax. */
size_t gw_candidates_draw(const gw_candidates *c, uint64_t seed, int32_t position);
/* With the noise of another sequence: independent of the text's own draws, which are sequence 0. */
size_t gw_candidates_draw_of(const gw_candidates *c, uint64_t seed, uint32_t sequence,
                             int32_t position);

/* Uniform in (0, 1) from (seed, sequence, position), independent of every other number. */
float gw_sampler_uniform(uint64_t seed, uint32_t sequence, int32_t position);
enum { GW_SEQUENCE_XTC = 0x40000001, GW_SEQUENCE_FSD = 0x40000002 }; /* of the stages' coins */

/* The bytes that a token adds to a text. */
typedef struct gw_pieces {
    void (*piece)(const void *vocab, int32_t id, const char **text, size_t *bytes);
    const void *vocab;
} gw_pieces;

/* gw_sampler_new for any vocabulary; pieces may be NULL: no token has a spelling. */
gw_status gw_sampler_make(int32_t n_vocab, const gw_sampler_options *options,
                          const gw_pieces *pieces, gw_sampler **out);

/* ---- the halves of gw_sampler_pick, for speculation ------------------------------------------ */

/* What the stages leave of logits [n] (n at most the vocabulary): the distribution a token at pos
 * is drawn from. The list is the sampler's and valid until its next call; it may be changed. */
gw_status gw_sampler_narrow(gw_sampler *s, const float *logits, int32_t n, int32_t pos,
                            gw_candidates *out);
/* The choice among them; GW_E_NUMERIC when there is none. */
gw_status gw_sampler_choose(const gw_sampler *s, const gw_candidates *c, int32_t pos,
                            int32_t *token);
/* Why there is none at pos: of the list that was narrowed last. */
gw_status gw_sampler_blame(const gw_sampler *s, int32_t pos);
/* Take a token as part of the text for now, and take all of them back: a draft meets the penalties
 * that the text would. Nothing else may be accepted in between. */
void gw_sampler_ahead(gw_sampler *s, int32_t token);
void gw_sampler_back(gw_sampler *s);

/* 1 when all that the sampler does now is such a choice (first is set to 1: the token behind a
 * row), so that a device can draw in its place; else 0. */
int gw_sampler_rule(const gw_sampler *s, gw_choice *out);
/* The same where forbidden tokens (a bias of -infinity) are all that stands in the way of it: what
 * is drawn by *out is then the sampler's choice unless gw_sampler_forbids says no to it. */
int gw_sampler_rule_unless(const gw_sampler *s, gw_choice *out);
int gw_sampler_forbids(const gw_sampler *s, int32_t token);

/* What the sampler holds its text to (constraint.h); the sampler's. */
struct gw_constraint *gw_sampler_constraint(gw_sampler *s);
int32_t gw_sampler_vocab(const gw_sampler *s);
uint64_t gw_sampler_seed(const gw_sampler *s);
int gw_sampler_is_greedy(const gw_sampler *s);
int gw_sampler_filters(const gw_sampler *s); /* does a stage always shorten the list? */

#endif
