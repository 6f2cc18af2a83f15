/* core/engine/drafting/draft_text.c - the text a drafter works on: what is added, taken back or
 * shifted out, and how the draft model and the lookup follow it. */
#include <string.h>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/engine/drafting/draft_state.h"

void gw_draft_append(gw_drafter *d, const int32_t *tokens, int32_t n) {
    memcpy(d->text + d->n_text, tokens, (size_t)n * sizeof *tokens);
    d->n_text += n;
    if (d->lookup != NULL) {
        gw_lookup_append(d->lookup, tokens, (size_t)n);
    }
}

int gw_draft_ends(const gw_drafter *d, int32_t token) {
    return !d->past_end && gw_token_is_end(d->model, token);
}

gw_status gw_draft_forget(gw_drafter *d) {
    int32_t fed = d->n_text > 0 ? d->n_text - 1 : 0;
    fed = d->hidden.width > 0 && d->hidden.read < fed ? d->hidden.read : fed;
    d->n_next = 0;
    if (d->draft != NULL && gw_session_pos(d->draft) > fed) {
        return gw_session_rewind(d->draft, fed);
    }
    return GW_OK;
}

gw_status gw_draft_catch_up(gw_drafter *d) {
    int32_t at = gw_session_pos(d->draft), behind = d->n_text - at;
    if (behind > GW_DECODE_MAX) {
        return gw_session_prefill(d->draft, d->text + at, (size_t)behind);
    }
    return behind > 0 ? gw_session_decode(d->draft, d->text + at, (size_t)behind) : GW_OK;
}

gw_status gw_drafter_prompt(gw_drafter *d, const int32_t *tokens, size_t n) {
    if (n > (size_t)(d->n_ctx - d->n_text)) {
        return gw_fail(GW_E_CONTEXT, "draft", "needs %zu tokens, the context holds %d",
                       n + (size_t)d->n_text, (int)d->n_ctx);
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= d->n_vocab) {
            return gw_fail(GW_E_ARGUMENT, "draft", "token %zu is %d, outside 0..%d", i,
                           (int)tokens[i], (int)d->n_vocab - 1);
        }
    }
    GW_TRY(gw_draft_forget(d));
    int32_t before = d->n_text;
    gw_draft_append(d, tokens, (int32_t)n);
    double start = gw_seconds_now();
    gw_status status = d->draft != NULL ? gw_draft_catch_up(d) : GW_OK;
    if (status == GW_OK && n > GW_DECODE_MAX) {
        gw_timing_add(&d->records[GW_DRAFT_MODEL].catch_up, (gw_seconds_now() - start) / (double)n,
                      0);
    }
    if (status != GW_OK) {
        d->n_text = before;
        if (d->lookup != NULL) {
            gw_lookup_forget(d->lookup, (size_t)before);
        }
    }
    return status;
}

gw_status gw_drafter_source(gw_drafter *d, const int32_t *tokens, size_t n) {
    gw_lookup *with = NULL;
    if (d->draft != NULL && gw_model_reads_source(gw_session_model(d->draft))) {
        GW_TRY(gw_session_source(d->draft, tokens, n));
    }
    if (d->lookup == NULL) {
        return GW_OK;
    }
    GW_TRY(gw_lookup_new_behind(d->lookup, d->n_corpus, tokens, n, (size_t)d->n_ctx + 1, &with));
    gw_lookup_append(with, d->text, (size_t)d->n_text);
    gw_lookup_free(d->lookup);
    d->lookup = with;
    return GW_OK;
}

static void cut_text(gw_drafter *d, int32_t pos) {
    d->n_text = pos;
    d->shifted = pos > 0 ? d->shifted : 0; /* another text */
    if (d->lookup != NULL) {
        gw_lookup_forget(d->lookup, (size_t)pos);
    }
}

gw_status gw_drafter_rewind(gw_drafter *d, int32_t pos) {
    if (pos < 0 || pos > d->n_text) {
        return gw_fail(GW_E_ARGUMENT, "rewind", "position %d is outside 0..%d", (int)pos,
                       (int)d->n_text);
    }
    cut_text(d, pos);
    return gw_draft_forget(d);
}

gw_status gw_drafter_shift(gw_drafter *d, int32_t keep, int32_t dropped) {
    if (keep < 0 || dropped < 0 || dropped > d->n_text - keep) {
        return gw_fail(GW_E_ARGUMENT, "context shift", "%d of %d tokens after %d", (int)dropped,
                       (int)d->n_text, (int)keep);
    }
    int32_t tail = d->n_text - keep - dropped;
    cut_text(d, keep);
    if (d->hidden.width == 0) { /* else it has read the target's prompt beside it */
        GW_TRY(gw_draft_forget(d));
    }
    memmove(d->text + keep, d->text + keep + dropped, (size_t)tail * sizeof *d->text);
    d->n_text += tail; /* the draft model reads it when it next drafts */
    d->shifted += dropped;
    if (d->lookup != NULL) {
        gw_lookup_append(d->lookup, d->text + keep, (size_t)tail);
    }
    return gw_draft_forget(d);
}
