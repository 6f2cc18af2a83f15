/* core/engine/drafting/draft_propose.c - drafts of one pass: from the draft model or from a copy in
 * the text, and how many. */
#include <string.h>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/engine/drafting/draft_accept.h"
#include "core/engine/drafting/draft_state.h"

const float *gw_draft_last_logits(const gw_session *s) {
    size_t row = 0;
    while (gw_session_logits(s, row + 1) != NULL) {
        row++;
    }
    return gw_session_logits(s, row);
}

/* Draw the next draft from the draft's logits; 0 when they leave none. */
static int draw_draft(gw_drafter *d, gw_sampler *sampler, gw_candidates *c,
                      gw_draft_proposal *out) {
    int j = out->known, greedy = d->greedy_draft || gw_sampler_is_greedy(sampler);
    int32_t pos = gw_draft_place(d, j);
    uint64_t seed = gw_sampler_seed(sampler);
    size_t best = gw_candidates_best(c);
    if (best == c->n) {
        return 0;
    }
    if (d->accept == GW_ACCEPT_REJECTION) {
        float *p = d->p + (size_t)j * (size_t)d->n_vocab;
        gw_draft_weigh(c, greedy);
        memset(p, 0, (size_t)d->n_vocab * sizeof *p);
        for (size_t i = 0; i < c->n; i++) {
            p[c->at[i].token] = c->at[i].key;
        }
        size_t at = gw_candidates_draw_of(c, seed, gw_draft_stream(d, GW_DRAFT_STREAM_DRAFT), pos);
        out->tokens[j] = c->at[at].token;
        out->trust[j] = c->at[at].key;
        d->weighed = j + 1;
    } else {
        size_t at = greedy ? best : gw_candidates_draw(c, seed, pos);
        out->tokens[j] = c->at[at].token;
        gw_draft_weigh(c, 0);
        out->trust[j] = c->at[at].key;
    }
    gw_sampler_ahead(sampler, out->tokens[j]);
    out->known++;
    return 1;
}

gw_status gw_draft_draw_from(gw_drafter *d, gw_sampler *sampler, const float *logits,
                             gw_draft_proposal *out) {
    gw_candidates c;
    if (d->spread != NULL) {
        gw_model_spread(gw_session_model(d->draft), logits, d->spread);
        logits = d->spread;
    }
    GW_TRY(gw_sampler_narrow(sampler, logits, d->spread != NULL ? d->n_vocab : d->draft_vocab,
                             gw_draft_place(d, out->known), &c));
    draw_draft(d, sampler, &c, out);
    return GW_OK;
}

gw_status gw_draft_draw(gw_drafter *d, gw_sampler *sampler, gw_draft_proposal *out) {
    return gw_draft_draw_from(d, sampler, gw_draft_last_logits(d->draft), out);
}

void gw_draft_add_drawn(const gw_drafter *d, gw_sampler *sampler, int32_t id,
                        gw_draft_proposal *out) {
    if (id >= 0) {
        id = d->spread != NULL ? gw_model_draft_tokens(gw_session_model(d->draft))[id] : id;
        gw_sampler_ahead(sampler, id);
        out->trust[out->known] = -1;
        out->tokens[out->known++] = id;
    }
}

gw_status gw_draft_take(gw_drafter *d, gw_sampler *sampler, gw_draft_proposal *out) {
    int32_t ids[GW_DECODE_MAX], before = gw_session_pos(d->draft);
    int drawn = 0;
    if (d->draws_drafts) {
        GW_TRY(gw_session_draw_end(d->draft, &d->draft_rule, ids, &drawn));
    } else {
        GW_TRY(gw_session_decode_end(d->draft));
    }
    if (drawn) {
        gw_draft_add_drawn(d, sampler, ids[gw_session_pos(d->draft) - before - 1], out);
        return GW_OK;
    }
    return gw_draft_draw(d, sampler, out);
}

/* One more draft, behind the text and those that are known; more: another will follow. GW_OK
 * without one: none is possible. */
static gw_status draft_one(gw_drafter *d, gw_sampler *sampler, int more, gw_draft_proposal *out) {
    int32_t at = gw_session_pos(d->draft), behind = d->n_text - at, id;
    const int32_t *text = d->text + at;
    if (out->known > 0) {
        behind = 1;
        text = &out->tokens[out->known - 1];
    }
    if (behind > GW_DECODE_MAX) {
        GW_TRY(gw_draft_catch_up(d));
        behind = 0;
    }
    if (behind == 0) { /* the logits are there */
        return gw_draft_draw(d, sampler, out);
    }
    if (behind == 1 && d->draws_drafts) {
        GW_TRY(gw_session_step(d->draft, &d->draft_rule, *text, more, &id));
        gw_draft_add_drawn(d, sampler, id, out);
        return GW_OK;
    }
    GW_TRY(gw_session_decode_begin(d->draft, text, (size_t)behind));
    return gw_draft_take(d, sampler, out);
}

void gw_draft_count_known(gw_sampler *sampler, const gw_draft_proposal *out) {
    for (int j = 0; j < out->known; j++) {
        gw_sampler_ahead(sampler, out->tokens[j]);
    }
}

static gw_status draft_by_model(gw_drafter *d, gw_sampler *sampler, const gw_length_plan *plan,
                                gw_draft_proposal *out) {
    const gw_draft_record *record = &d->records[GW_DRAFT_MODEL];
    double start = gw_seconds_now();
    int ready = out->known;
    gw_status status = GW_OK;
    gw_draft_count_known(sampler, out);
    while (status == GW_OK && gw_length_goes_on(&d->length, record, plan, out->trust, out->n)) {
        if (out->n == out->known) {
            out->trust[out->n] = -1;
            int more = gw_length_goes_on(&d->length, record, plan, out->trust, out->n + 1);
            status = d->hidden.block.rows == 0 ? draft_one(d, sampler, more, out)
                     : out->n == 0             ? gw_draft_by_block(d, sampler, plan->k, out)
                                               : GW_OK;
            if (out->n == 0 && out->behind > 0) {
                out->catch_up = gw_seconds_now() - start;
                start += out->catch_up;
            }
        }
        if (status != GW_OK || out->n == out->known) {
            break;
        }
        out->ready += out->n < ready;
        out->n++;
    }
    gw_sampler_back(sampler);
    if (d->hidden.block.rows > 0) {
        out->known = out->n; /* the next block knows more than the rest of this one */
    }
    out->seconds = gw_seconds_now() - start;
    return status;
}

/* Tokens of *out and how far they are trusted; returns how many. */
static int look_up(const gw_drafter *d, int limit, gw_draft_proposal *out, float *trust) {
    int length = 0, n;
    if (d->lookup_kind == GW_LOOKUP_SUFFIX) {
        return (int)gw_lookup_vote(d->lookup, NULL, (size_t)limit, out->tokens, trust);
    }
    n = (int)gw_lookup_find(d->lookup, (size_t)limit, out->tokens, &length);
    for (int i = 0; i < n; i++) { /* a longer copy is trusted more */
        trust[i] = gw_lookup_trust(length + i);
    }
    return n;
}

static void draft_by_lookup(const gw_drafter *d, const gw_length_plan *plan, const float *trust,
                            gw_draft_proposal *out) {
    const gw_draft_record *record = &d->records[GW_DRAFT_LOOKUP];
    while (gw_length_goes_on(&d->length, record, plan, out->trust, out->n)) {
        out->trust[out->n] = trust[out->n];
        out->n++;
    }
    out->known = out->n;
}

/* What was drafted ahead becomes the beginning of this gw_draft_proposal. */
static void take_next(gw_drafter *d, gw_draft_proposal *out) {
    out->known = d->n_next;
    memcpy(out->tokens, d->next, (size_t)d->n_next * sizeof *d->next);
    memcpy(out->trust, d->next_trust, (size_t)d->n_next * sizeof *d->next_trust);
    d->n_next = 0;
}

/* The draft model waits for what the target was told too early; where it computes elsewhere too,
 * which is rare. */
static gw_status settle(gw_drafter *d, gw_draft_proposal *out) {
    double start = gw_seconds_now();
    gw_status status = gw_session_settle(d->target);
    out->wasted = gw_seconds_now() - start;
    return status;
}

/* So many tokens cost the draft model what one does; layers of the target's checkpoint read what
 * was kept of the last pass again each time. A block is one pass, whatever of it is used: its time
 * is that of reading. */
static int alike(const gw_drafter *d) {
    return d->hidden.block.rows > 0 ? 0 : d->hidden.width > 0 ? GW_DECODE_MAX : 2;
}

gw_status gw_draft_propose(gw_drafter *d, gw_sampler *sampler, int limit, gw_draft_proposal *out) {
    gw_length_plan by_model = {0}, by_lookup = {0};
    float trust[GW_DECODE_MAX];
    int behind = 0;
    d->weighed = 0;
    if (limit <= 0 ||
        d->length.width[0].n == 0) { /* the first pass tells what a single step costs */
        return gw_draft_forget(d);
    }
    if (d->lookup != NULL) {
        int found = look_up(d, limit, out, trust);
        by_lookup = gw_length_choose(&d->length, &d->records[GW_DRAFT_LOOKUP], found, 0,
                                     found > 0 ? (double)trust[0] : -1.0);
    }
    if (d->draft != NULL) {
        behind = d->n_text - gw_session_pos(d->draft);
        behind = behind > alike(d) ? behind : -d->n_next;
        by_model = gw_length_choose(&d->length, &d->records[GW_DRAFT_MODEL], limit, behind, -1.0);
    }
    if (by_lookup.k > 0 && (by_model.k == 0 || by_lookup.rate >= by_model.rate)) {
        out->source = GW_DRAFT_LOOKUP;
        GW_TRY(settle(d, out));
        draft_by_lookup(d, &by_lookup, trust, out);
        return gw_draft_forget(d);
    }
    if (by_model.k > 0) {
        out->source = GW_DRAFT_MODEL;
        out->behind = behind > 0 ? behind : 0;
        take_next(d, out);
        GW_TRY(settle(d, out));
        return draft_by_model(d, sampler, &by_model, out);
    }
    return gw_draft_forget(d);
}

/* How long a text must have gone on without drafts for a copy in it to be a surprise. */
enum { SURPRISE = 8 };

int gw_draft_expected(const gw_drafter *d) {
    gw_length after = d->length;
    double single = gw_length_width_seconds(&after, 1);
    if (single <= 0) {
        return 1;
    }
    const gw_length_pass pass = {.tokens = 1, .verify = single, .pick = after.pick.seconds};
    gw_length_learn(&after, NULL, &pass);
    int expected = 0, limit = d->n_ctx - d->n_text - 1;
    limit = limit < GW_DRAFT_MAX ? limit : GW_DRAFT_MAX;
    if (d->lookup != NULL && after.singles <= SURPRISE) {
        double trust = (double)gw_lookup_trust(GW_LOOKUP_LONG);
        expected |= gw_length_choose(&after, &d->records[GW_DRAFT_LOOKUP], limit, 0, trust).k > 0;
    }
    if (d->draft != NULL) {
        int behind = d->n_text + 1 - gw_session_pos(d->draft);
        expected |= gw_length_choose(&after, &d->records[GW_DRAFT_MODEL], limit,
                                     behind > alike(d) ? behind : 0, -1.0)
                        .k > 0;
    }
    return expected;
}
