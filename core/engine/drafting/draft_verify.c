/* core/engine/drafting/draft_verify.c - the target's pass over the drafts, and which of them its
 * logits keep. */
#include <string.h>

#include "core/base/status.h"
#include "core/engine/drafting/draft_accept.h"
#include "core/engine/drafting/draft_state.h"

/* The token after i accepted drafts, from the target's logits; *kept when it is draft i. */
static gw_status judge_by_rejection(const gw_drafter *d, gw_sampler *sampler, gw_candidates *c,
                                    const gw_draft_proposal *drafts, int i, int32_t *token,
                                    int *kept) {
    int32_t pos = gw_draft_place(d, i);
    uint64_t seed = gw_sampler_seed(sampler);
    uint32_t draw = gw_draft_stream(d, GW_DRAFT_STREAM_BONUS);
    gw_draft_weigh(c, gw_sampler_is_greedy(sampler));
    if (i < drafts->n) {
        int32_t drafted = drafts->tokens[i];
        const float *p = i < d->weighed ? d->p + (size_t)i * (size_t)d->n_vocab : NULL;
        float u = gw_draft_uniform(seed, gw_draft_stream(d, GW_DRAFT_STREAM_TEST), pos);
        if (gw_draft_keeps(gw_draft_weight(c, drafted), p != NULL ? p[drafted] : 1.0f, u)) {
            *token = drafted;
            *kept = 1;
            return GW_OK;
        }
        gw_draft_residual(c, p, drafted);
        draw = gw_draft_stream(d, GW_DRAFT_STREAM_RESIDUAL);
    }
    size_t at = gw_candidates_draw_of(c, seed, draw, pos);
    if (at == c->n) {
        return gw_sampler_blame(sampler, pos);
    }
    *token = c->at[at].token;
    return GW_OK;
}

static gw_status judge(const gw_drafter *d, gw_sampler *sampler, const gw_draft_proposal *drafts,
                       int i, int32_t *token, int *kept) {
    int32_t pos = gw_draft_place(d, i);
    const float *logits = gw_session_logits(d->target, (size_t)i);
    int drafted = i < drafts->n;
    *kept = 0;
    if (d->assume > 0 && i < drafts->known) { /* also the guess behind the drafts */
        float u = gw_draft_uniform(gw_sampler_seed(sampler),
                                   gw_draft_stream(d, GW_DRAFT_STREAM_TEST), pos);
        if ((double)u < d->assume) {
            *token = drafts->tokens[i];
            *kept = drafted;
            return GW_OK;
        }
    }
    if (d->assume == 0 && d->accept != GW_ACCEPT_EXACT && !d->drawn) {
        gw_candidates c;
        GW_TRY(gw_sampler_narrow(sampler, logits, d->n_vocab, pos, &c));
        if (d->accept == GW_ACCEPT_REJECTION) {
            return judge_by_rejection(d, sampler, &c, drafts, i, token, kept);
        }
        if (drafted && gw_draft_in_pool(&c, drafts->tokens[i])) {
            *token = drafts->tokens[i];
            *kept = 1;
            return GW_OK;
        }
        GW_TRY(gw_sampler_choose(sampler, &c, pos, token));
    } else if (d->drawn) {
        *token = d->picks[i];
    } else {
        GW_TRY(gw_sampler_pick(sampler, logits, pos, token));
    }
    *kept = drafted && d->assume == 0 && *token == drafts->tokens[i];
    return GW_OK;
}

/* One row, and as a rule nothing but rows of one behind it: then a device that draws has the next
 * step before it is asked for. */
static gw_status single(gw_drafter *d, int32_t token) {
    if (d->draws_single) {
        GW_TRY(gw_session_step(d->target, &d->rule, token, !gw_draft_expected(d), d->picks));
        d->drawn = d->picks[0] >= 0;
    }
    return d->drawn ? GW_OK : gw_session_decode(d->target, &token, 1);
}

gw_status gw_draft_verify(gw_drafter *d, gw_sampler *sampler, gw_draft_proposal *drafts) {
    int32_t rows[GW_DECODE_MAX];
    rows[0] = d->text[d->n_text - 1];
    memcpy(rows + 1, drafts->tokens, (size_t)drafts->n * sizeof *rows);
    d->drawn = 0;
    if (drafts->n == 0) {
        return single(d, rows[0]);
    }
    gw_status status = gw_draft_decode_both(d, sampler, drafts, rows);
    if (status == GW_E_NUMERIC) {
        drafts->n = drafts->known = 0;
        status = single(d, rows[0]);
    }
    return status;
}

gw_status gw_draft_read_pass(gw_drafter *d, gw_sampler *sampler, const gw_draft_proposal *drafts,
                             int32_t *tokens, gw_draft_verdict *out) {
    int kept = 1, ended = 0;
    for (int i = 0; i <= drafts->n && kept && !ended; i++) {
        int32_t token = 0;
        gw_status status = judge(d, sampler, drafts, i, &token, &kept);
        ended = status == GW_OK && gw_draft_ends(d, token);
        if (status == GW_OK && !ended) {
            status = gw_sampler_accept(sampler, token);
        }
        if (status != GW_OK) {
            return i > 0 ? GW_OK : status;
        }
        tokens[i] = token;
        out->n = i + 1;
        out->accepted += kept;
    }
    return GW_OK;
}
