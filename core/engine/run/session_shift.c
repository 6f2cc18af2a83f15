/* core/engine/run/session_shift.c - makes room in a full context by forgetting its older half.
 *
 * What stays is evaluated again as a prompt: keys are stored rotated by their old positions, and
 * rotating them anew would round a second time and keep traces of the tokens that are gone. So the
 * session afterwards is, bit for bit, one that was given the kept tokens as a prompt; on any
 * device, in any chunks, with or without speculation. It costs a prompt of at most half a context
 * for every half context of text. */
#include "core/engine/run/session_state.h"

gw_status gw_session_shift(gw_session *s, int32_t keep, int32_t *dropped) {
    if (keep < 0) {
        return gw_fail(GW_E_ARGUMENT, "context shift", "cannot keep %d tokens", (int)keep);
    }
    int32_t rest = s->pos - keep, gone = (rest + 1) / 2;
    if (rest < 2) {
        return gw_fail(GW_E_CONTEXT, "context shift",
                       "of %d tokens %d are kept: nothing can be dropped", (int)s->pos, (int)keep);
    }
    int32_t tail = rest - gone;
    if (s->prompted < keep) { /* a prefix that holds generated tokens becomes a prompt too */
        GW_TRY(gw_session_rewind(s, 0));
        GW_TRY(gw_session_prefill(s, s->tokens, (size_t)keep));
    }
    GW_TRY(gw_session_rewind(s, keep));
    GW_TRY(gw_session_prefill(s, s->tokens + keep + gone, (size_t)tail));
    *dropped = gone;
    return GW_OK;
}
