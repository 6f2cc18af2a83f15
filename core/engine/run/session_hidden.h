/* core/engine/run/session_hidden.h - hidden states of rows: what stands in the head before its
 * first matrix, handed out by a session, and given to one whose layers predict one token more (MTP:
 * DeepSeek-AI 2024, arXiv:2412.19437, section 2.2; gw_blueprint.given).
 *
 * Row p of such a session is the token at position p and the hidden state of the one before it, or
 * of a model that drafts by blocks its own; both sessions hold the same tokens at the same
 * positions. A target's
 * states go through host memory, a head's own stay on a device that copies.
 */
#ifndef GW_ENGINE_SESSION_HIDDEN_H
#define GW_ENGINE_SESSION_HIDDEN_H

#include "core/engine/run/session_state.h"

/* Does the model consist of layers that take hidden states? */
int gw_model_predicts(const gw_model *model);
/* Floats of what a row of such a model takes: of a head that takes several states (gw_model_taps),
 * those of its target, then its own; 0: it takes none. */
int32_t gw_model_given_width(const gw_model *model);
/* Floats of the hidden state that a session hands out: one, or its taps side by side. */
int32_t gw_session_hidden_width(const gw_session *s);
/* What a head that drafts takes: how many streams of its target, before which of its layers (*layer
 * [GW_TAPS]; n_layers: after the last); 0: the model is none. GW_E_UNSUPPORTED says why the target
 * is not the head's: width, vocabulary, layers. */
gw_status gw_model_taps(const gw_model *model, const gw_model *target, int32_t *layer, int *n);

/* Room for hidden states of the rows of a pass; once. GW_E_UNSUPPORTED: the model's head has none.
 */
gw_status gw_session_hidden_open(gw_session *s);
/* The same of a target whose plans, made again, copy the stream before n of its layers. Nothing is
 * at work. */
gw_status gw_session_hidden_tap(gw_session *s, const int32_t *layer, int n);
void gw_session_hidden_free(gw_session *s);
/* fn is called behind every pass but those that repeat what was there (session_return.c), when its
 * rows are computed and nothing else has run since; a step of a device then never begins before the
 * host has taken the one before it. An error ends the call that ran the pass. NULL: no longer. */
void gw_session_hidden_watch(gw_session *s, gw_hidden_fn fn, void *user);
/* Of rows [at, at + n) of the pass that has just run: out [n, stride], the first of each. */
gw_status gw_session_hidden_read(gw_session *s, int32_t at, int32_t n, float *out, int32_t stride);

/* Does the session's own state stay on its device from one row to the next? Else it is read. */
int gw_session_hidden_stays(const gw_session *s);
/* Where it does: row `row` of the pass that has just run has the state that the next one takes. */
gw_status gw_session_hidden_keep(gw_session *s, int32_t row);

/* Where a session that predicts has hidden states from, for each pass of it: fn fills rows [n,
 * width] for positions [pos, pos + n) and returns 0, or (1) the pass has one row, which takes the
 * state that gw_session_hidden_keep has kept. Without one they are zeros. */
void gw_session_hidden_source(gw_session *s, gw_hidden_source_fn fn, void *user);
/* Of a model that drafts by blocks: the rows of passes to come are a block's (1), which have no
 * states, or text (0). */
void gw_session_hidden_mark(gw_session *s, int marked);
/* For the next pass, whose rows may be of many sequences. */
gw_status gw_session_hidden_give(gw_session *s, const float *rows, int32_t n);

/* For the files of a session: rows that begin at position pos are about to run, or have run. */
gw_status gw_session_hidden_ask(gw_session *s, int32_t pos);
gw_status gw_session_hidden_tell(gw_session *s, int32_t pos);

#endif
