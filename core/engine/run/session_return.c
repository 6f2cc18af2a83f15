/* core/engine/run/session_return.c - a session of a model with recurrent blocks or windows, back at
 * an earlier position.
 *
 * The states of the last positions are there (state.h), and the pages of a window behind them
 * (kv.h). Further back the tokens run again from the beginning, prompts as prompts and generated
 * tokens as generated ones, so that states and pages have the bits they had; the rest of the KV
 * cache is written once more with the bits it holds. */
#include "core/engine/run/session_state.h"

/* Tokens [at, at + n) of one kind through the body, in one pass. */
static gw_status run_again(gw_session *s, int32_t at, int32_t n, int generated) {
    GW_TRY(gw_session_check_cancel(s));
    gw_session_set_step(s, s->tokens + at, n, at);
    if (generated) {
        return gw_pass_run(s, gw_session_decode_pass(s, n), gw_plan_run);
    }
    for (int i = s->first_prompt_pass; i < s->n_prompt_passes; i++) {
        GW_TRY(gw_pass_run(s, &s->passes[i], gw_plan_run));
    }
    return GW_OK;
}

gw_status gw_session_return(gw_session *s) {
    if (gw_states_has(&s->states, s->pos) && gw_kv_has(&s->kv, s->pos)) {
        return GW_OK;
    }
    for (int32_t at = 0; at < s->pos;) {
        int generated = s->generated[at];
        int32_t most = generated ? GW_DECODE_MAX : s->chunk, n = 1;
        while (n < most && at + n < s->pos && s->generated[at + n] == generated) {
            n++;
        }
        GW_TRY(run_again(s, at, n, generated));
        at += n;
    }
    return GW_OK;
}
