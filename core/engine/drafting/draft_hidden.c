/* core/engine/drafting/draft_hidden.c - a draft model that consists of the layers which the
 * target's checkpoint ships to predict one token more: what it takes of the target.
 *
 * Row p of the draft model is token p and the target's hidden state at p - 1. Behind the target's
 * last state, where tokens are drafts, it is the draft model's own; such rows are read again with
 * the target's when their tokens have become text. States wait in a window, [first, first + n) of
 * the text, until the draft model reads them: as soon as a chunk of them has come together, or when
 * it drafts. Where there is none (a session that was loaded from a file), zeros serve: a draft may
 * be anything.
 *
 * Of one that drafts by blocks row p is token p and the state at p, and rows of a block have none
 * (draft_block.c). */
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"
#include "core/engine/drafting/draft_state.h"
#include "core/engine/run/session_hidden.h"

/* Rows of decode that may wait beside a chunk of a prompt. */
enum { WAITING = 64 };

static float *state_at(const gw_draft_hidden *h, int32_t pos) {
    return h->rows + (size_t)(pos - h->first) * (size_t)h->width;
}

/* The session's gw_hidden_source_fn: behind what the target holds, states are the draft's own. Rows
 * that take these come one by one. */
static int give(void *user, int32_t pos, int32_t n, float *rows) {
    gw_drafter *d = user;
    gw_draft_hidden *h = &d->hidden;
    int32_t held = gw_session_pos(d->target), known = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = pos + i - (h->block.rows == 0); /* whose state the row takes */
        float *to = rows + (size_t)i * (size_t)h->width;
        size_t bytes = (size_t)h->width * sizeof *to;
        known += at < held;
        if (at < held && at >= h->first && at < h->first + h->n) {
            memcpy(to, state_at(h, at), bytes);
        } else if (at >= held && at == h->own_pos && n == 1) {
            if (gw_session_hidden_stays(d->draft)) {
                h->read = pos;
                return 1;
            }
            memcpy(to, h->own, bytes);
        } else {
            memset(to, 0, bytes);
        }
    }
    h->read = pos + known;
    return 0;
}

/* The draft model reads all that waits; the last state stays, for the row after it. */
static gw_status read_waiting(gw_drafter *d) {
    gw_draft_hidden *h = &d->hidden;
    int32_t end = h->first + h->n, at = gw_session_pos(d->draft);
    const int32_t *held = gw_session_tokens(d->target);
    if (at > h->read) {
        GW_TRY(gw_session_rewind(d->draft, h->read));
        at = h->read;
    }
    while (at < end) {
        int32_t n = end - at < h->chunk ? end - at : h->chunk;
        for (int32_t i = 0; i < n; i++) {
            h->some[i] = at + i >= h->first ? h->token[at + i - h->first] : held[at + i];
        }
        GW_TRY(gw_session_prefill(d->draft, h->some, (size_t)n));
        at += n;
    }
    if (h->n > 0) {
        memmove(h->rows, state_at(h, end - 1), (size_t)h->width * sizeof *h->rows);
        h->token[0] = h->token[h->n - 1];
        h->first = end - 1;
        h->n = 1;
    }
    return GW_OK;
}

/* What the draft model holds of another text goes. */
static gw_status compare(gw_drafter *d, int32_t pos, const int32_t *tokens, int32_t n) {
    int32_t end = gw_session_pos(d->draft), at = pos;
    const int32_t *its = gw_session_tokens(d->draft);
    end = end < pos + n ? end : pos + n;
    while (at < end && its[at] == tokens[at - pos]) {
        at++;
    }
    return at < end ? gw_session_rewind(d->draft, at) : GW_OK;
}

/* The target's gw_hidden_fn. */
static gw_status take(void *user, gw_session *target, int32_t pos, int32_t n) {
    gw_drafter *d = user;
    gw_draft_hidden *h = &d->hidden;
    GW_TRY(compare(d, pos, target->step.token, n));
    if (pos < h->first || pos > h->first + h->n) {
        h->first = pos;
        h->n = 0;
    }
    h->n = pos - h->first;
    if (h->n + n > h->room) {
        GW_TRY(read_waiting(d));
    }
    memset(state_at(h, pos), 0, (size_t)n * (size_t)h->width * sizeof *h->rows);
    GW_TRY(gw_session_hidden_read(target, 0, n, state_at(h, pos), h->width));
    memcpy(h->token + h->n, target->step.token, (size_t)n * sizeof *h->token);
    h->n += n;
    return GW_OK;
}

/* The draft session's: the state behind its last row is that of the next draft. */
static gw_status take_own(void *user, gw_session *draft, int32_t pos, int32_t n) {
    gw_draft_hidden *h = &((gw_drafter *)user)->hidden;
    h->own_pos = pos + n - 1;
    if (gw_session_hidden_stays(draft)) {
        return gw_session_hidden_keep(draft, n - 1);
    }
    return gw_session_hidden_read(draft, n - 1, 1, h->own + h->own_at, h->width - h->own_at);
}

gw_status gw_draft_hidden_open(gw_drafter *d) {
    gw_draft_hidden *h = &d->hidden;
    if (!gw_model_predicts(gw_session_model(d->draft))) {
        return GW_OK;
    }
    int32_t layer[GW_TAPS];
    int taps = 0;
    GW_TRY(gw_model_taps(gw_session_model(d->draft), d->model, layer, &taps));
    GW_TRY(taps > 0 ? gw_session_hidden_tap(d->target, layer, taps) : GW_OK);
    h->block = gw_model_draft_block(gw_session_model(d->draft));
    h->width = gw_model_given_width(gw_session_model(d->draft));
    h->own_at = h->width - (h->block.rows > 0 ? 1 : gw_session_hidden_width(d->draft));
    if (gw_session_hidden_width(d->target) != (taps > 0 ? h->own_at : h->width)) {
        return gw_fail(GW_E_UNSUPPORTED, "draft",
                       "takes hidden states of %d values, the target's have %d",
                       (int)(taps > 0 ? h->own_at : h->width),
                       (int)gw_session_hidden_width(d->target));
    }
    h->chunk = d->draft->chunk;
    h->room = d->target->chunk + WAITING;
    h->rows = calloc((size_t)(h->room + 1) * (size_t)h->width, sizeof *h->rows);
    h->token = calloc((size_t)h->room + 1, sizeof *h->token);
    h->some = calloc((size_t)h->chunk, sizeof *h->some);
    h->own = calloc((size_t)h->width, sizeof *h->own);
    if (h->rows == NULL || h->token == NULL || h->some == NULL || h->own == NULL) {
        return gw_fail(GW_E_NOMEM, "draft", "no memory for hidden states");
    }
    h->own_pos = -1;
    GW_TRY(gw_session_hidden_open(d->target));
    gw_session_hidden_watch(d->target, take, d);
    gw_session_hidden_source(d->draft, give, d);
    if (h->block.rows == 0) {
        GW_TRY(gw_session_hidden_open(d->draft));
        gw_session_hidden_watch(d->draft, take_own, d);
        return GW_OK;
    }
    return gw_draft_chain_open(d);
}

void gw_draft_hidden_close(gw_drafter *d) {
    gw_draft_hidden *h = &d->hidden;
    gw_chain_free(h->chain);
    free(h->outs);
    if (h->own != NULL) {
        gw_session_hidden_watch(d->target, NULL, NULL);
    }
    free(h->rows);
    free(h->token);
    free(h->some);
    free(h->own);
}
