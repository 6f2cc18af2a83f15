/* core/engine/drafting/draft_ahead.c - drafting while the target is at work, as if all drafts held.
 * Text is at stake neither way, so that an error only ends this; what is lasting shows again. */
#include "core/base/clock.h"
#include "core/engine/drafting/draft_state.h"

/* How many drafts the next pass may want, behind the guess of the token before them. */
static int known_wanted(const gw_drafter *d, const gw_draft_proposal *drafts) {
    int more = d->length.mode == GW_LENGTH_HEURISTIC ? 2 : 0;
    int wanted = drafts->n + 1 + drafts->n + more, room = d->n_ctx - d->n_text;
    wanted = wanted < GW_DECODE_MAX ? wanted : GW_DECODE_MAX;
    return wanted < room ? wanted : room;
}

/* By measured times no step begins that would end after the target's. */
static int goes_on_ahead(const gw_drafter *d) {
    const double safe = 0.9;
    const struct gw_draft_work *w = &d->work;
    double step = d->records[GW_DRAFT_MODEL].step.seconds;
    double most = safe * gw_length_width_seconds(&d->length, w->drafts->n + 1) - step;
    return w->drafts->known < w->wanted &&
           (d->length.mode != GW_LENGTH_COST || gw_seconds_now() - w->start <= most);
}

static void begin_step(gw_drafter *d) {
    struct gw_draft_work *w = &d->work;
    w->step_start = gw_seconds_now();
    w->stepping =
        goes_on_ahead(d) &&
        gw_session_decode_begin(d->draft, &w->drafts->tokens[w->drafts->known - 1], 1) == GW_OK;
}

/* 1 when there is one more draft. */
static int end_step(gw_drafter *d) {
    struct gw_draft_work *w = &d->work;
    int before = w->drafts->known;
    if (!w->stepping) {
        return 0;
    }
    w->stepping = 0;
    (void)gw_draft_take(d, w->sampler, w->drafts);
    d->stats.ahead += (uint64_t)(w->drafts->known - before);
    return w->drafts->known > before;
}

/* Between two parts of the target's pass on the host: by measured times, not before the step ends.
 */
static void look_after_draft(void *user) {
    gw_drafter *d = user;
    int early = d->length.mode == GW_LENGTH_COST &&
                gw_seconds_now() - d->work.step_start < d->records[GW_DRAFT_MODEL].step.seconds;
    if (d->work.drafts != NULL && !early && end_step(d)) {
        begin_step(d);
    }
}

static gw_status end_target(gw_drafter *d) {
    return d->draws_rows ? gw_session_draw_end(d->target, &d->rule, d->picks, &d->drawn)
                         : gw_session_decode_end(d->target);
}

gw_status gw_draft_decode_both(gw_drafter *d, gw_sampler *sampler, gw_draft_proposal *drafts,
                               const int32_t *rows) {
    if (d->ahead == GW_DRAFT_IN_TURN || drafts->source != GW_DRAFT_MODEL || drafts->n == 0) {
        GW_TRY(gw_session_decode_begin(d->target, rows, (size_t)drafts->n + 1));
        return end_target(d);
    }
    d->work = (struct gw_draft_work){.sampler = sampler,
                                     .drafts = drafts,
                                     .wanted = known_wanted(d, drafts),
                                     .start = gw_seconds_now()};
    gw_draft_count_known(sampler, drafts);
    if (d->ahead == GW_DRAFT_BESIDE_HOST) {
        begin_step(d);
    }
    gw_status status = gw_session_decode_begin(d->target, rows, (size_t)drafts->n + 1);
    if (d->ahead == GW_DRAFT_BESIDE_DEVICE && status == GW_OK) {
        do {
            begin_step(d);
        } while (end_step(d));
    }
    (void)end_step(d); /* also behind a target that failed */
    gw_sampler_back(sampler);
    d->work.drafts = NULL;
    return status == GW_OK ? end_target(d) : status;
}

gw_status gw_draft_ahead_open(gw_drafter *d) {
    /* Rejection sampling must not know how fast a device was: its text depends on the lengths. */
    if (d->accept == GW_ACCEPT_REJECTION || d->hidden.width > 0) {
        return GW_OK; /* and layers of the target's checkpoint wait for its states */
    }
    if (gw_session_leaves_host(d->target, d->draft)) {
        d->ahead = GW_DRAFT_BESIDE_DEVICE;
    } else if (gw_session_needs_host(d->target, d->draft)) {
        d->ahead = GW_DRAFT_BESIDE_HOST;
        return gw_session_pause(d->target, look_after_draft, d);
    }
    return GW_OK;
}

void gw_draft_ahead_close(gw_drafter *d) {
    if (d->ahead == GW_DRAFT_BESIDE_HOST) {
        (void)gw_session_pause(d->target, NULL, NULL);
    }
}
