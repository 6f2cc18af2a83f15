/* core/engine/drafting/draft_block.c - drafts of a model that says a block of tokens in one pass
 * (DFlash, DSpark: specs/dflash.spec). It reads the states of what has become text since, whose
 * rows give keys and values alone; then the block: the last token, and masks. What the block's rows
 * left in the cache is forgotten. */
#include <stdlib.h>

#include "core/base/status.h"
#include "core/engine/drafting/draft_state.h"
#include "core/engine/run/session_hidden.h"

/* Up to the last token, whose state is not there yet. */
static gw_status read_text(gw_drafter *d) {
    int32_t end = d->n_text - 1, at = gw_session_pos(d->draft);
    while (at < end) {
        int32_t n = end - at < d->hidden.chunk ? end - at : d->hidden.chunk;
        GW_TRY(n <= GW_DECODE_MAX ? gw_session_feed(d->draft, d->text + at, (size_t)n)
                                  : gw_session_prefill(d->draft, d->text + at, (size_t)n));
        at += n;
    }
    return GW_OK;
}

/* Rows [0, n) of the block have run or are on their way; drafts out of their logits, or of what a
 * device draws. */
static gw_status take_rows(gw_drafter *d, gw_sampler *sampler, int most, gw_draft_proposal *out) {
    const gw_draft_block *b = &d->hidden.block;
    int32_t ids[GW_DECODE_MAX];
    int drawn = 0;
    if (d->draws_drafts) {
        gw_choice rule = d->draft_rule;
        rule.first -= b->first; /* a row's own position is that of its token, not the one before */
        GW_TRY(gw_session_draw_end(d->draft, &rule, ids, &drawn));
    } else {
        GW_TRY(gw_session_decode_end(d->draft));
    }
    for (int i = 0; i < most; i++) {
        int before = out->known;
        if (drawn) {
            gw_draft_add_drawn(d, sampler, ids[b->first + i], out);
        } else {
            const float *logits = gw_session_logits(d->draft, (size_t)(b->first + i));
            GW_TRY(gw_draft_draw_from(d, sampler, logits, out));
        }
        if (out->known == before) {
            return GW_OK;
        }
    }
    return GW_OK;
}

gw_status gw_draft_chain_open(gw_drafter *d) {
    gw_draft_hidden *h = &d->hidden;
    GW_TRY(gw_chain_new(gw_session_model(d->draft), 1, &h->chain));
    if (h->chain == NULL) {
        return GW_OK;
    }
    const size_t width = (size_t)gw_session_hidden_width(d->draft);
    h->outs = calloc(GW_DECODE_MAX * width, sizeof *h->outs);
    if (h->outs == NULL) {
        return gw_fail(GW_E_NOMEM, "draft", "no memory for a block");
    }
    return gw_session_hidden_open(d->draft);
}

/* Drafts out of rows that are on their way, each of which knows the one before it. */
static gw_status take_chain(gw_drafter *d, gw_sampler *sampler, int most, gw_draft_proposal *out) {
    const gw_draft_hidden *h = &d->hidden;
    const int32_t width = gw_session_hidden_width(d->draft), first = h->block.first;
    gw_chain_row row = {.before = d->text[d->n_text - 1]};
    GW_TRY(gw_session_decode_end(d->draft));
    GW_TRY(most > 0 ? gw_session_hidden_read(d->draft, first, most, h->outs, width) : GW_OK);
    gw_chain_begin(h->chain, 0);
    for (int i = 0; i < most; i++) {
        const int at = out->known;
        const float *logits = gw_session_logits(d->draft, (size_t)(first + i));
        row.hidden = h->outs + (size_t)i * (size_t)width;
        GW_TRY(gw_chain_step(h->chain, &row, 1));
        GW_TRY(gw_chain_logits(h->chain, 0, logits, &logits));
        GW_TRY(logits != NULL ? gw_draft_draw_from(d, sampler, logits, out) : GW_OK);
        if (out->known == at) {
            return GW_OK;
        }
        out->trust[at] = row.trust >= 0.0f ? row.trust : out->trust[at];
        row.before = out->tokens[at];
    }
    return GW_OK;
}

gw_status gw_draft_by_block(gw_drafter *d, gw_sampler *sampler, int most, gw_draft_proposal *out) {
    const gw_draft_block *b = &d->hidden.block;
    int32_t rows[GW_DECODE_MAX], end = d->n_text - 1, room = d->n_ctx - end;
    int32_t n = b->rows < room ? b->rows : room;
    GW_TRY(read_text(d));
    for (int32_t i = 0; i < n; i++) {
        rows[i] = i == 0 ? d->text[end] : b->mask;
    }
    gw_session_hidden_mark(d->draft, 1);
    gw_status status = gw_session_decode_begin(d->draft, rows, (size_t)n);
    gw_session_hidden_mark(d->draft, 0);
    GW_TRY(status);
    most = most < n - b->first ? most : n - b->first;
    status = d->hidden.chain != NULL ? take_chain(d, sampler, most, out)
                                     : take_rows(d, sampler, most, out);
    gw_status forgotten = gw_session_rewind(d->draft, end);
    return status == GW_OK ? forgotten : status;
}
