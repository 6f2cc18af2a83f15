/* core/engine/drafting/draft_lookup.h - prompt lookup: the longest earlier copy of the end of a
 * text, in the text itself or in a corpus, and what followed it.
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
};

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

#endif
