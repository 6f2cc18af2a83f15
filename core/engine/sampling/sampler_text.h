/* core/engine/sampling/sampler_text.h - the tokens so far, as samplers see them, and the stages
 * that read them.
 *
 * All that a stage knows of the past is kept per token in one ring or computed anew from it, so
 * that forgetting the last tokens restores what was. Owned by one sampler.
 */
#ifndef GW_ENGINE_SAMPLER_TEXT_H
#define GW_ENGINE_SAMPLER_TEXT_H

#include "core/engine/sampling/sampler.h"

enum {
    GW_HISTORY_ALL = 1 << 20,  /* tokens, where a stage looks at all of the text */
    GW_HISTORY_BACK = 4096,    /* tokens that can at least be forgotten again    */
    GW_BREAKER_BYTES_MAX = 64, /* of a sequence breaker                          */
    GW_BREAKERS_MAX = 64,
    GW_FSD_N_MAX = 8,
    GW_FSD_K_MAX = 100
};

typedef struct gw_history {
    int64_t n;           /* tokens in all                                               */
    int64_t high;        /* the most there ever were: older entries of the ring are gone */
    int32_t written;     /* tokens of the answer: chosen here, one after the other      */
    int64_t mask;        /* entries of the ring less one                                */
    int64_t window;      /* entries behind n that stages read                           */
    int32_t *tokens;     /* ring; NULL: nothing reads it                                */
    uint8_t *breaks;     /* ring: a sequence breaker ends in this token; or NULL        */
    float *mu_at;        /* ring: mu before this token; NULL without mirostat           */
    int32_t *written_at; /* ring: the same of written; NULL where nothing asks      */
    float mu, tau, eta;
    float *surprise;     /* [n_vocab] bits, of the distribution to be drawn from; NaN: not in it */
    int offered;         /* surprise is that of the next token                          */
    uint32_t *counts;    /* [n_vocab] how often a token is among the last; or NULL      */
    int32_t counted;     /* how many last ones; -1: all                                 */
    int32_t *reach;      /* [n_vocab] zeros: longest repetition that a token goes on with */
    int32_t *same;       /* [window] scratch of dry                                     */
    gw_pieces pieces;    /* piece NULL: no text is known                                */
    const char *breaker; /* breakers one after the other, each NUL-terminated; or NULL  */
    size_t n_breakers, breaker_most;
    char *spelled; /* [breaker_most + longest piece] scratch */
} gw_history;

/* What the options need; everything is allocated here. gw_history_free in any case. */
gw_status gw_history_open(gw_history *h, int32_t n_vocab, const gw_sampler_options *o,
                          const gw_pieces *pieces);
void gw_history_free(gw_history *h);
/* The first one since `offered` was set is the answer to that distribution. */
void gw_history_push(gw_history *h, int32_t token);
/* Forget the last token. */
void gw_history_pop(gw_history *h);
/* Can the last n be forgotten, with all that stages read before them still there? */
int gw_history_reaches(const gw_history *h, size_t n);

/* The token that would go on with a repetition of `length` >= allowed tokens of the last `last_n`
 * (-1: all) loses multiplier * base^(length - allowed): DRY ("don't repeat yourself", P. E.
 * Weidmann 2024, text-generation-webui pull request 5677). Sequence breakers end a repetition and
 * are never penalised. */
void gw_stage_dry(gw_candidates *c, gw_history *h, float multiplier, float base, int32_t allowed,
                  int32_t last_n);

/* Of the k most probable the one with the largest (1 - alpha) p - alpha q alone, p the probability
 * in the list, q that of an n-gram model of the text so far: Yang et al., "A Frustratingly Simple
 * Decoding Method for Neural Text Generation" (2023). q follows the authors' program: from the
 * longest order down, q += w * 0.9 * count / (total + 1), single tokens w * count / total, where w
 * shrinks to a tenth with every order that has seen the token; 0 for a text of fewer than n - 1. */
void gw_stage_fsd(gw_candidates *c, const gw_history *h, float alpha, int32_t n, int32_t k);

#endif
