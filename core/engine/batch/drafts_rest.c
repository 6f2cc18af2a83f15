/* core/engine/batch/drafts_rest.c - a draft model that does not pay rests: it follows no text, so
 * that texts are as fast as without it, but for one at a time, the scout, which tries whether it
 * would pay.
 *
 * The ledger counts, in seconds, what passes with the draft model's drafts took beyond the same
 * passes without them, less what the tokens that stayed would have taken. Prompts are not in it:
 * what they cost comes before anything is known, and ends with the rest. A text that the draft
 * model has not followed from its beginning can not take hidden states of it, so it goes on without
 * drafts of that model when the rest ends; texts that begin then have them. */
#include <stdlib.h>

#include "core/engine/batch/batch_state.h"

/* What may be lost: so many passes, and this share of the time of all. A scout begins when so many
 * passes of that are left, and ends the rest if it has gained after so many with drafts. */
static const double LOST_PASSES = 3.0, LOST_SHARE = 0.005, SCOUT_PASSES = 4.0;
/* The first passes with drafts are not counted, since kernels and graphs are made ready there; one
 * pass costs at most so many plain ones, or the machine was interrupted. */
enum { PROOF = 16, FIRST = 8 };
static const double MOST = 4.0;

gw_status gw_drafts_rest_open(gw_batch *b) {
    gw_drafts_rest *r = &b->drafts.rest;
    r->scout = -1;
    r->page = calloc((size_t)b->stats.pages + 1, sizeof *r->page);
    return r->page != NULL ? GW_OK : gw_fail(GW_E_NOMEM, "draft", "no memory for marks of pages");
}

void gw_drafts_rest_close(gw_batch *b) { free(b->drafts.rest.page); }

int gw_drafts_follow(const gw_batch *b, int32_t slot) {
    const gw_drafts_rest *r = &b->drafts.rest;
    return b->drafts.model != NULL && (!r->on || (r->scout >= 0 && r->scout == slot));
}

int gw_drafts_idle(const gw_batch *b) {
    const gw_drafts_rest *r = &b->drafts.rest;
    return !b->drafts.lookup && (b->drafts.model == NULL || (r->on && r->scout < 0));
}

int32_t gw_drafts_rows(const gw_batch *b, const gw_row *rows, int32_t n, int32_t *at) {
    int32_t end;
    *at = 0;
    if (b->drafts.model == NULL || !b->drafts.rest.on) {
        return b->drafts.model == NULL ? 0 : n;
    }
    while (*at < n && !gw_drafts_follow(b, rows[*at].slot)) {
        (*at)++;
    }
    for (end = *at; end < n && gw_drafts_follow(b, rows[end].slot); end++) {
    }
    return end - *at;
}

/* ---- pages ----------------------------------------------------------------------------------- */

void gw_drafts_page(gw_batch *b, int32_t page, int read) {
    if (b->drafts.rest.page != NULL) {
        b->drafts.rest.page[page] = (uint8_t)(read != 0);
    }
}

void gw_drafts_page_fetched(gw_batch *b, int32_t page) {
    gw_drafts_page(b, page, !b->drafts.rest.ever);
}

int32_t gw_drafts_pages_read(const gw_batch *b, const int32_t *pages, int32_t n) {
    int32_t read = 0;
    while (read < n && (b->drafts.rest.page == NULL || b->drafts.rest.page[pages[read]])) {
        read++;
    }
    return read;
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static double allowance(const gw_drafts_rest *r) {
    return LOST_PASSES * r->plain + LOST_SHARE * r->elapsed;
}

static void dismiss(gw_batch *b) {
    gw_drafts_rest *r = &b->drafts.rest;
    if (r->scout >= 0) {
        gw_draft_states_begin(b, r->scout);
    }
    r->scout = -1;
}

static void begin_rest(gw_batch *b) {
    b->drafts.rest.on = b->drafts.rest.ever = 1;
    b->stats.draft_rests++;
    for (int32_t slot = 0; slot < b->parallel; slot++) {
        gw_draft_states_begin(b, slot);
    }
}

static int has_room(gw_batch *b) {
    const gw_drafts_rest *r = &b->drafts.rest;
    return b->o.disorder != 0 ? gw_batch_random(b, 2) != 0
                              : r->lost + SCOUT_PASSES * r->plain <= allowance(r);
}

void gw_drafts_scout(gw_batch *b, const gw_seq *s) {
    gw_drafts_rest *r = &b->drafts.rest;
    int32_t most = s->r->max_tokens;
    if (r->on && r->scout < 0 && s->drafts.read == s->pos && (most < 0 || most > PROOF) &&
        has_room(b)) {
        r->scout = s->slot;
        r->tried = 0;
        r->trial = r->lost;
    }
}

void gw_drafts_scout_gone(gw_batch *b, int32_t slot) {
    if (b->drafts.rest.scout == slot) {
        dismiss(b);
    }
}

static void end_rest(gw_drafts_rest *r) {
    r->on = 0;
    r->scout = -1;
    r->lost = 0.0;
}

static void count(gw_batch *b, int32_t rows, int32_t texts, double seconds) {
    gw_drafts_rest *r = &b->drafts.rest;
    double plain = gw_drafts_pass_seconds(&b->drafts, rows - r->drafted);
    r->plain = plain > 0.0 ? plain : seconds;
    double cost = r->spent + (r->drafted > 0 ? seconds - r->plain : 0.0);
    r->elapsed += seconds + r->spent;
    r->tried += r->drafted > 0;
    r->passes += r->drafted > 0;
    if (r->drafted == 0 || r->passes > FIRST) {
        cost = cost < MOST * r->plain ? cost : MOST * r->plain;
        r->lost += cost - r->kept * r->plain / texts;
    }
    if (r->lost < -allowance(r)) {
        r->lost = -allowance(r);
    }
    r->spent = 0.0;
    r->drafted = r->kept = 0;
}

void gw_drafts_settle(gw_batch *b, int32_t rows, int32_t texts, double seconds) {
    gw_drafts_rest *r = &b->drafts.rest;
    if (b->drafts.model == NULL) {
        return;
    }
    count(b, rows, texts, seconds);
    if (b->o.disorder != 0) { /* at any time */
        if (gw_batch_random(b, 16) == 0) {
            r->on ? end_rest(r) : begin_rest(b);
        }
    } else if (b->drafts.length.mode == GW_LENGTH_FIXED) {
        return;
    } else if (!r->on && r->lost > allowance(r)) {
        begin_rest(b);
    } else if (r->on && r->scout >= 0 && r->tried >= PROOF && r->lost < r->trial) {
        end_rest(r);
    } else if (r->on && r->lost > allowance(r)) {
        dismiss(b);
    }
}
