/* core/engine/drafting/draft.c - the speculative loop: propose, verify in one pass, keep what
 * holds, rewind. While a device verifies, a draft model elsewhere goes on as if all would be kept.
 * Everything is allocated in gw_drafter_new. */
#include "core/engine/drafting/draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/options.h"
#include "core/engine/drafting/draft_state.h"
#include "core/engine/run/session_hidden.h"

/* ---- life ------------------------------------------------------------------------------------ */

static gw_status check_options(const gw_drafter_options *o) {
    if (o->model == NULL && !o->lookup) {
        return gw_fail(GW_E_ARGUMENT, "draft", "neither a draft model nor lookup was asked for");
    }
    if (o->accept != GW_ACCEPT_EXACT && o->accept != GW_ACCEPT_REJECTION &&
        o->accept != GW_ACCEPT_POOL) {
        return gw_fail(GW_E_ARGUMENT, "draft", "%d is no way to accept", (int)o->accept);
    }
    if (o->lookup < 0 || o->lookup > GW_LOOKUP_SUFFIX) {
        return gw_fail(GW_E_ARGUMENT, "draft", "lookup %d is not known: 1 or 2", o->lookup);
    }
    if (!(o->assume >= 0 && o->assume <= 1)) {
        return gw_fail(GW_E_ARGUMENT, "assumed acceptance", "%g is not between 0 and 1", o->assume);
    }
    return GW_OK;
}

static gw_status open_draft_session(gw_drafter *d, const gw_drafter_options *o) {
    GW_TRY(gw_draft_same_vocab(d->model, o->model));
    int32_t its = gw_model_n_vocab(o->model);
    d->draft_vocab = its < d->n_vocab ? its : d->n_vocab;
    if (gw_model_draft_tokens(o->model) != NULL) {
        d->spread = malloc((size_t)d->n_vocab * sizeof *d->spread);
        if (d->spread == NULL) {
            return gw_fail(GW_E_NOMEM, "draft", "no memory for logits");
        }
        for (int32_t i = 0; i < d->n_vocab; i++) {
            d->spread[i] = -INFINITY;
        }
    }
    gw_session_options session = {.n_ctx = d->n_ctx, .kv_type = o->kv_type, .cancel = o->cancel};
    session.chunk = gw_model_predicts(o->model) ? d->target->chunk : 0;
    GW_TRY(gw_session_new(o->model, &session, &d->draft));
    GW_TRY(gw_session_draw_rows(d->draft));
    GW_TRY(gw_draft_hidden_open(d));
    d->records[GW_DRAFT_MODEL].whole = d->hidden.block.rows > 0;
    GW_TRY(gw_draft_ahead_open(d));
    if (o->accept == GW_ACCEPT_REJECTION) {
        d->p = calloc((size_t)GW_DRAFT_MAX * (size_t)d->n_vocab, sizeof *d->p);
        if (d->p == NULL) {
            return gw_fail(GW_E_NOMEM, "draft", "no memory for probabilities");
        }
    }
    return GW_OK;
}

gw_status gw_drafter_new_sized(gw_session *target, const gw_drafter_options *given, size_t size,
                               gw_drafter **out) {
    gw_drafter_options own = {.model = NULL}, *options = &own;
    GW_TRY(gw_options_take(&own, sizeof own, given, size, "draft"));
    GW_TRY(check_options(options));
    gw_drafter *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return gw_fail(GW_E_NOMEM, "draft", "no memory");
    }
    gw_status status;
    d->target = target;
    d->model = gw_session_model(target);
    d->n_vocab = gw_model_n_vocab(d->model);
    d->n_ctx = gw_session_n_ctx(target);
    d->accept = options->accept;
    d->greedy_draft = options->greedy_draft;
    d->assume = options->assume;
    d->past_end = options->past_end;
    GW_TRY_DONE(gw_length_parse(options->length, &d->length));
    d->text = calloc((size_t)d->n_ctx + 1, sizeof *d->text);
    if (d->text == NULL) {
        status = gw_fail(GW_E_NOMEM, "draft", "no memory for %d tokens", (int)d->n_ctx);
        goto done;
    }
    GW_TRY_DONE(gw_session_draw_rows(target));
    if (options->model != NULL) {
        GW_TRY_DONE(open_draft_session(d, options));
    }
    d->n_corpus = options->n_corpus;
    d->lookup_kind = options->lookup;
    if (options->lookup) {
        GW_TRY_DONE(
            gw_lookup_new(options->corpus, options->n_corpus, (size_t)d->n_ctx + 1, &d->lookup));
    }
    *out = d;
    return GW_OK;
done:
    gw_drafter_free(d);
    return status;
}

void gw_drafter_free(gw_drafter *d) {
    if (d != NULL) {
        gw_draft_ahead_close(d);
        gw_draft_hidden_close(d);
        gw_session_free(d->draft);
        gw_lookup_free(d->lookup);
        free(d->text);
        free(d->spread);
        free(d->p);
        free(d);
    }
}

void gw_drafter_watch(gw_drafter *d, gw_draft_watch_fn fn, void *user) {
    d->watch = fn;
    d->watch_user = user;
}

/* ---- one call -------------------------------------------------------------------------------- */

static void count(gw_drafter *d, const gw_draft_proposal *drafts, const gw_draft_verdict *v,
                  const gw_length_pass *pass) {
    gw_draft_stats *s = &d->stats;
    s->passes++;
    s->pass_tokens += (uint64_t)v->n;
    s->plain += drafts->n == 0;
    s->drafted += (uint64_t)drafts->n;
    s->accepted += (uint64_t)v->accepted;
    s->ahead_used += (uint64_t)drafts->ready;
    if (drafts->source == GW_DRAFT_LOOKUP) {
        s->looked_up += (uint64_t)drafts->n;
        s->looked_up_accepted += (uint64_t)v->accepted;
    }
    for (int j = 0; j < drafts->n && j <= v->accepted; j++) {
        s->tried_at[j]++;
        s->accepted_at[j] += j < v->accepted;
    }
    s->read_seconds += pass->catch_up;
    s->wasted_seconds += pass->wasted;
    s->draft_seconds += pass->catch_up + pass->draft;
    s->verify_seconds += pass->verify;
    s->pick_seconds += pass->pick;
    gw_length_learn(&d->length, drafts->n > 0 ? &d->records[drafts->source] : NULL, pass);
    if (d->watch != NULL) {
        d->watch(d->watch_user, drafts->n, v->accepted);
    }
}

/* Both caches forget what is not text; but when all drafts held and the token after them is the one
 * that was guessed, what was drafted behind it is the beginning of the next draft. */
static gw_status forget_rejected(gw_drafter *d, const gw_draft_proposal *drafts,
                                 const gw_draft_verdict *v) {
    if (gw_session_pos(d->target) > d->n_text - 1) {
        GW_TRY(gw_session_rewind(d->target, d->n_text - 1));
    }
    int more = drafts->known - drafts->n - 1;
    if (more <= 0 || v->accepted != drafts->n || v->n != drafts->n + 1 ||
        d->text[d->n_text - 1] != drafts->tokens[drafts->n]) {
        return gw_draft_forget(d);
    }
    d->n_next = more;
    memcpy(d->next, drafts->tokens + drafts->n + 1, (size_t)more * sizeof *d->next);
    memcpy(d->next_trust, drafts->trust + drafts->n + 1, (size_t)more * sizeof *d->next_trust);
    return GW_OK;
}

/* What can be drawn without logits. Rejection sampling has noise of its own, unless there is but
 * one token to choose; it and the pool look at all of the rows behind which a draft stands. */
static void find_rules(gw_drafter *d, const gw_sampler *sampler) {
    int ruled = gw_sampler_rule(sampler, &d->rule), rejects = d->accept == GW_ACCEPT_REJECTION;
    int target = ruled && gw_session_draws(d->target, &d->rule);
    d->rule.first += d->shifted;
    d->draft_rule = d->rule;
    if (d->greedy_draft) {
        d->draft_rule.temperature = 0;
    }
    d->draws_rows = target && (d->assume > 0 || d->accept == GW_ACCEPT_EXACT);
    d->draws_single = target && (d->draws_rows || !rejects || gw_sampler_is_greedy(sampler));
    /* A device numbers tokens as the draft does, and noise is that of the target's. */
    int numbered = d->spread == NULL || d->draft_rule.temperature == 0.0f;
    d->draws_drafts = ruled && numbered && !rejects && d->draft != NULL &&
                      d->hidden.chain == NULL &&
                      gw_session_steps_ahead(d->draft) &&
                      gw_session_draws(d->draft, &d->draft_rule) &&
                      (d->spread != NULL ||
                       d->draft_vocab == gw_model_n_vocab(gw_session_model(d->draft)));
}

static gw_status speculate(gw_drafter *d, gw_sampler *sampler, size_t capacity, int32_t *tokens,
                           size_t *n) {
    int32_t before = d->n_text, pos = before - 1, room = d->n_ctx - before;
    int limit = capacity - 1 < GW_DRAFT_MAX ? (int)capacity - 1 : GW_DRAFT_MAX;
    gw_draft_proposal drafts = {0};
    gw_draft_verdict v = {0};
    find_rules(d, sampler);
    gw_status status = gw_draft_propose(d, sampler, limit < room ? limit : room, &drafts);
    double start = gw_seconds_now(), verified = start;
    if (status == GW_OK) {
        status = gw_draft_verify(d, sampler, &drafts);
        verified = gw_seconds_now();
    }
    if (status == GW_OK) {
        status = gw_draft_read_pass(d, sampler, &drafts, tokens, &v);
    }
    if (status != GW_OK) {
        gw_draft_forget(d);
        if (gw_session_pos(d->target) > pos) {
            gw_session_rewind(d->target, pos);
        }
        return status;
    }
    gw_length_pass pass = {.drafted = drafts.n,
                           .accepted = v.accepted,
                           .tokens = v.n,
                           .ready = drafts.ready,
                           .behind = drafts.behind,
                           .trust = drafts.trust,
                           .wasted = drafts.wasted,
                           .catch_up = drafts.catch_up,
                           .draft = drafts.seconds,
                           .verify = verified - start,
                           .pick = gw_seconds_now() - verified};
    gw_draft_append(d, tokens, v.n);
    count(d, &drafts, &v, &pass);
    d->round++;
    *n = (size_t)v.n;
    return forget_rejected(d, &drafts, &v);
}

/* The token after the prompt, whose logits the session has. */
static gw_status first_token(gw_drafter *d, gw_sampler *sampler, int32_t *token) {
    const float *logits = gw_draft_last_logits(d->target);
    if (logits == NULL) {
        return gw_fail(GW_E_ARGUMENT, "draft", "the session has no logits to begin with");
    }
    GW_TRY(gw_sampler_pick(sampler, logits, gw_draft_place(d, 0), token));
    if (!gw_draft_ends(d, *token)) {
        GW_TRY(gw_sampler_accept(sampler, *token));
    }
    gw_draft_append(d, token, 1);
    return GW_OK;
}

gw_status gw_drafter_next(gw_drafter *d, gw_sampler *sampler, int32_t *tokens, size_t capacity,
                          size_t *n) {
    int32_t pos = gw_session_pos(d->target);
    if (capacity == 0 || gw_sampler_vocab(sampler) != d->n_vocab) {
        return gw_fail(GW_E_ARGUMENT, "draft",
                       capacity == 0 ? "no room for a token" : "the sampler is of another model");
    }
    if (d->accept == GW_ACCEPT_POOL && !gw_sampler_filters(sampler)) {
        return gw_fail(GW_E_ARGUMENT, "draft",
                       "without top-k, top-p, min-p or typical the pool is the whole vocabulary");
    }
    if (d->n_text == 0 || (pos != d->n_text && pos != d->n_text - 1)) {
        return gw_fail(GW_E_ARGUMENT, "draft",
                       "the session holds %d tokens, the drafter was told %d", (int)pos,
                       (int)d->n_text);
    }
    if (pos == d->n_text) {
        GW_TRY(first_token(d, sampler, tokens));
        *n = 1;
    } else {
        int32_t drawn[GW_DECODE_MAX];
        GW_TRY(speculate(d, sampler, capacity, drawn, n));
        memcpy(tokens, drawn, *n * sizeof *tokens);
    }
    d->stats.tokens += *n;
    return GW_OK;
}

void gw_drafter_stats(const gw_drafter *d, gw_draft_stats *out) {
    *out = d->stats;
    out->step_seconds = gw_length_usual_step_seconds(&d->length);
    out->draft_step_seconds = d->records[GW_DRAFT_MODEL].step.seconds;
    for (int w = 0; w < GW_DECODE_MAX; w++) {
        out->width_seconds[w] = d->length.width[w].n > 0 ? d->length.width[w].seconds : 0;
    }
}
