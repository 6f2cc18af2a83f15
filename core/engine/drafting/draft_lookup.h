/* core/engine/drafting/draft_lookup.h - prompt lookup: the longest earlier copy of the end of a
 * text, in the text itself or in a corpus, and what followed it; or what followed most often.
 *
 * Every position is chained to the one before with the same last GW_LOOKUP_MIN tokens, so a search
 * visits only candidates. Appending and forgetting a token are O(1). Nothing is allocated after
 * gw_lookup_new.
 */
#ifndef GW_ENGINE_DRAFT_LOOKUP_H
#define GW_ENGINE_DRAFT_LOOKUP_H

#include "core/base/status.h"

enum {
    GW_LOOKUP_MIN = 2,        /* tokens a copy must share                            */
    GW_LOOKUP_LONG = 32,      /* a longer copy is no better: the search ends         */
    GW_LOOKUP_VISITS = 16384, /* candidates looked at, the latest first              */
    GW_LOOKUP_COPIES = 1024,  /* of them whose continuations are counted             */
};

/* `lookup` of gw_drafter_options, `draft_lookup` of gw_batch_options. */
enum { GW_LOOKUP_LONGEST = 1, GW_LOOKUP_SUFFIX = 2 };

typedef struct gw_lookup gw_lookup;

/* Room for n_ctx tokens of text besides the corpus, which is copied. GW_E_NOMEM, GW_E_LIMIT. */
gw_status gw_lookup_new(const int32_t *corpus, size_t n_corpus, size_t n_ctx, gw_lookup **out);
void gw_lookup_free(gw_lookup *l);

/* The same with tokens behind its corpus of n_corpus, and no text. */
gw_status gw_lookup_new_behind(const gw_lookup *l, size_t n_corpus, const int32_t *tokens, size_t n,
                               size_t n_ctx, gw_lookup **out);

/* n tokens more of the text; what exceeds n_ctx is ignored. */
void gw_lookup_append(gw_lookup *l, const int32_t *tokens, size_t n);
void gw_lookup_forget(gw_lookup *l, size_t n); /* only the first n tokens stay */

/* Tokens that followed the longest copy of the text's end; of equally long ones the latest, in the
 * text rather than the corpus. Where they run into the end of the text, the text is taken to repeat
 * itself. Writes next [most] and returns how many; 0 without a copy. *length: tokens the copy
 * shares, at most GW_LOOKUP_LONG. */
size_t gw_lookup_find(const gw_lookup *l, size_t most, int32_t *next, int *length);

/* How far a copy of so many tokens is trusted to go on as before; what that is worth is learned. */
static inline float gw_lookup_trust(int length) { return (float)length / ((float)length + 2.0f); }

/* Suffix decoding (arXiv:2411.04975): copies of the last tokens of the text, in the text, its
 * corpus and `pool` (NULL: none), are counted by what followed them, token by token. The most
 * frequent continuation goes to next [most], how far each token is trusted to trust [most]; it ends
 * where it has become improbable. Of copies of the whole known end, of half of it, and so on, those
 * that promise most decide. Returns how many tokens. Time: at most GW_LOOKUP_VISITS candidates,
 * GW_LOOKUP_COPIES of them for each token. */
size_t gw_lookup_vote(const gw_lookup *l, const gw_lookup *pool, size_t most, int32_t *next,
                      float *trust);
/* A pool of earlier texts: one without a corpus, whose text they are. n tokens more; where there is
 * no room the older half goes, so that a token costs O(1) over time. */
void gw_lookup_keep(gw_lookup *pool, const int32_t *tokens, size_t n);

#endif
