/* core/engine/beam/hypotheses.h - the texts of one search: which go on, which have ended, when it
 * is over. Scores only: no model, no cache.
 *
 * Of each step the K = max(2, 1 + ends) * beams best continuations count: so many that as many as
 * there are beams do not end. Those that do not end go on; those that end and are among the best of
 * them compete with the texts that have ended before. Equal scores: the beam that stands first,
 * then the lower token.
 */
#ifndef GW_ENGINE_BEAM_HYPOTHESES_H
#define GW_ENGINE_BEAM_HYPOTHESES_H

#include "core/base/status.h"
#include "include/godwit.h"

typedef struct gw_continuation {
    float score; /* log probability of the whole text */
    int32_t beam, token;
} gw_continuation;

/* A text that has ended, or a running one. */
typedef struct gw_hypothesis {
    int32_t *tokens; /* [room], n of them, prompt and all */
    int32_t n;
    float score, logprob; /* of one that has ended; of a running one logprob alone */
} gw_hypothesis;

typedef struct gw_hypotheses {
    const gw_beam_options *o;
    const int32_t *ends; /* tokens that end a text: [n_ends] */
    int n_ends;
    int32_t n_prompt, n_forced, most; /* most: tokens of a text */
    int32_t room;
    gw_hypothesis *running, *next; /* [n_beams] each */
    int n_running;
    gw_hypothesis *ended; /* [n_beams], best first */
    int n_ended;
    gw_continuation *best; /* [n_best], falling; of the step that is being made */
    int n_best, most_best;
    int hopeful; /* a running text may still become one of the best */
    int done;
} gw_hypotheses;

/* prompt [in->n_prompt] is the one running text. most: tokens of a text. GW_E_NOMEM. */
gw_status gw_hypotheses_new(const gw_beam_options *o, const int32_t *ends, int n_ends,
                            const gw_beam_input *in, int32_t most, gw_hypotheses *out);
void gw_hypotheses_free(gw_hypotheses *h); /* zeroed or built */

/* A step: the logits [n_vocab] behind running text `beam`, for each of them in order; logits are
 * changed. */
void gw_hypotheses_offer(gw_hypotheses *h, int beam, float *logits, int32_t n_vocab);
/* Then what follows from them: parent[i] is the beam that running text i was. h->done: it is over.
 */
void gw_hypotheses_step(gw_hypotheses *h, int *parent);

#endif
