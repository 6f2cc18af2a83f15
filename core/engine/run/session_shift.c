/* core/engine/run/session_shift.c - makes room in a full context by forgetting its older half.
 *
 * What stays is evaluated again as a prompt: keys are stored rotated by their old positions, and
 * rotating them anew would round a second time and keep traces of the tokens that are gone. So the
 * session afterwards is, bit for bit, one that was given the kept tokens as a prompt; on any
 * device, in any chunks, with or without speculation. It costs a prompt of at most half a context
 * for every half context of text. */
#include <stdlib.h>

#include "core/engine/run/session_state.h"

/* Runs of rows of pictures that stand within [from, end) of the timeline, as a prompt from there
 * has them; each with a holder more. */
static gw_status take_views(const gw_session *s, int32_t from, int32_t end, gw_seen_rows **out,
                            size_t *n) {
    gw_seen_rows *list = malloc(((size_t)s->views.n + 1) * sizeof *list);
    *n = 0;
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, "context shift", "no memory for %d pictures", s->views.n);
    }
    for (int32_t i = 0; i < s->views.n; i++) {
        const gw_view *x = &s->views.view[i];
        if (x->pos >= from && x->pos + x->n <= end) {
            list[(*n)++] = (gw_seen_rows){x->sight, x->first, x->n, (size_t)(x->pos - from)};
            atomic_fetch_add(&x->sight->holders, 1);
        }
    }
    *out = list;
    return GW_OK;
}

static void drop_views(gw_seen_rows *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        gw_sight_free(list[i].sight);
    }
    free(list);
}

/* Forget what stands from position `to` on, and evaluate tokens [from, end) there as a prompt. */
static gw_status read_again(gw_session *s, int32_t to, int32_t from, int32_t end) {
    gw_seen_rows *seen = NULL;
    size_t n = 0;
    GW_TRY(take_views(s, from, end, &seen, &n));
    gw_status status = gw_session_rewind(s, to);
    if (status == GW_OK) {
        status = gw_session_prefill_seen(s, s->tokens + from, (size_t)(end - from), seen, n);
    }
    drop_views(seen, n);
    return status;
}

/* A prefix that holds generated tokens becomes a prompt too. Tokens and pictures after it are
 * known as before, and not computed. */
static gw_status read_prefix(gw_session *s, int32_t keep) {
    const int32_t end = s->pos;
    gw_seen_rows *later = NULL;
    size_t n = 0;
    GW_TRY(take_views(s, keep, end, &later, &n));
    gw_status status = read_again(s, 0, 0, keep);
    if (status == GW_OK) {
        status = gw_views_add(&s->views, later, n, keep, (size_t)(end - keep));
    }
    drop_views(later, n);
    s->pos = status == GW_OK ? end : s->pos;
    return status;
}

/* The end of the picture that position pos lies within, or pos. */
static int32_t after_view(const gw_session *s, int32_t pos) {
    for (int32_t i = 0; i < s->views.n; i++) {
        const gw_view *x = &s->views.view[i];
        if (x->pos < pos && x->pos + x->n > pos) {
            return x->pos + x->n;
        }
    }
    return pos;
}

gw_status gw_session_shift(gw_session *s, int32_t keep, int32_t *dropped) {
    if (keep < 0) {
        return gw_fail(GW_E_ARGUMENT, "context shift", "cannot keep %d tokens", (int)keep);
    }
    keep = after_view(s, keep); /* pictures stay or go as a whole */
    int32_t rest = s->pos - keep, gone = (rest + 1) / 2;
    if (rest < 2) {
        return gw_fail(GW_E_CONTEXT, "context shift",
                       "of %d tokens %d are kept: nothing can be dropped", (int)s->pos, (int)keep);
    }
    gone = after_view(s, keep + gone) - keep;
    if (gone == rest) {
        return gw_fail(GW_E_CONTEXT, "context shift",
                       "the last %d tokens are of one picture: nothing can be dropped", (int)rest);
    }
    GW_TRY(s->prompted < keep ? read_prefix(s, keep) : GW_OK);
    GW_TRY(read_again(s, keep, keep + gone, keep + rest));
    *dropped = gone;
    return GW_OK;
}
