/* core/engine/drafting/draft.h - what the drafter is made of, for core/engine and its tests; the
 * public face is in godwit.h.
 *
 * Invariant between calls: text[0..n_text) is all of the text, the target session holds all of it
 * or all but its last token (the pending one), the draft session a beginning of it.
 */
#ifndef GW_ENGINE_DRAFT_H
#define GW_ENGINE_DRAFT_H

#include "core/engine/drafting/draft_length.h"
#include "core/engine/run/model.h"

/* GW_E_UNSUPPORTED, naming the first difference, unless both models mean the same tokens. */
gw_status gw_draft_same_vocab(const gw_model *target, const gw_model *draft);

/* The lengths the policy chose, for tests: called before each pass of the target, 0 for none. */
typedef void (*gw_draft_watch_fn)(void *user, int drafted, int accepted);
void gw_drafter_watch(gw_drafter *drafter, gw_draft_watch_fn fn, void *user);

#endif
