/* core/engine/run/session_return.c - a session of a model with recurrent blocks or windows, back at
 * an earlier position.
 *
 * The states of the last positions are there (state.h), and the pages of a window behind them
 * (kv.h). Further back the tokens run again from the beginning, or from where states were kept, at
 * the end of a prompt: prompts as prompts and generated tokens as generated ones, so that states
 * and pages have the bits they had; the rest of the KV cache is written once more with the bits it
 * holds. */
#include <stdlib.h>

#include "core/engine/run/session_state.h"

/* ---- states that are kept -------------------------------------------------------------------- */

gw_status gw_session_keep_states(gw_session *s) {
    gw_kept_states *to = &s->kept_states[0];
    if (!s->states.any || s->sharing.slots > 0 || s->pos < GW_KEPT_LEAST) {
        return GW_OK;
    }
    for (int i = 0; i < GW_KEPT_STATES && to->pos != s->pos; i++) {
        gw_kept_states *k = &s->kept_states[i];
        int better = k->pos == s->pos || (to->pos != 0 && (k->pos == 0 || k->used < to->used));
        to = better ? k : to;
    }
    if (to->pos != s->pos) {
        char *at = to->state != NULL ? to->state : malloc(gw_states_all_entries(&s->states));
        to->state = at;
        to->pos = 0;
        for (int i = 0; at != NULL && i < s->states.n; i++) {
            GW_TRY(gw_states_read(&s->states, i, s->pos, at));
            at += gw_states_entry_bytes(&s->states, i);
        }
        to->pos = at != NULL ? s->pos : 0;
    }
    to->used = ++s->kept_uses;
    return GW_OK;
}

void gw_session_forget_states(gw_session *s, int32_t pos) {
    for (int i = 0; i < GW_KEPT_STATES; i++) {
        s->kept_states[i].pos = s->kept_states[i].pos > pos ? 0 : s->kept_states[i].pos;
    }
}

void gw_session_free_states(gw_session *s) {
    for (int i = 0; i < GW_KEPT_STATES; i++) {
        free(s->kept_states[i].state);
    }
}

/* The last position, at most the session's, from which tokens may run: 0, or one whose states were
 * kept and are now in their place. */
static gw_status start_again(gw_session *s, int32_t *at) {
    gw_kept_states *from = NULL;
    for (int i = 0; i < GW_KEPT_STATES && gw_kv_has(&s->kv, s->pos); i++) {
        gw_kept_states *k = &s->kept_states[i];
        from = k->pos > (from != NULL ? from->pos : 0) && k->pos <= s->pos ? k : from;
    }
    *at = 0;
    if (from == NULL) {
        return GW_OK;
    }
    const char *state = from->state;
    for (int i = 0; i < s->states.n; i++) {
        GW_TRY(gw_states_write(&s->states, i, from->pos, state));
        state += gw_states_entry_bytes(&s->states, i);
    }
    from->used = ++s->kept_uses;
    s->states.low = s->states.high = *at = from->pos;
    return GW_OK;
}

/* ---- the way back ---------------------------------------------------------------------------- */

/* Of tokens [at, at + *n) of one kind those of one pass through the body: *n. */
static gw_status run_again(gw_session *s, int32_t at, int32_t *n, int generated) {
    GW_TRY(gw_session_check_cancel(s));
    if (generated) {
        gw_session_set_step(s, s->tokens + at, *n, at);
        return gw_pass_run(s, gw_session_decode_pass(s, *n), gw_plan_run);
    }
    GW_TRY(gw_session_set_prompt(s, s->tokens + at, *n, at, *n, n));
    for (int i = 0; i < s->n_prompt_passes - s->first_prompt_pass; i++) {
        GW_TRY(gw_pass_run(s, gw_prompt_pass(s, i), gw_plan_run));
    }
    return GW_OK;
}

gw_status gw_session_return(gw_session *s) {
    if (gw_states_has(&s->states, s->pos) && gw_kv_has(&s->kv, s->pos)) {
        return GW_OK;
    }
    int32_t at = 0;
    GW_TRY(start_again(s, &at));
    while (at < s->pos) {
        int generated = s->generated[at];
        int32_t most = generated ? GW_DECODE_MAX : s->chunk, n = 1;
        while (n < most && at + n < s->pos && s->generated[at + n] == generated) {
            n++;
        }
        GW_TRY(run_again(s, at, &n, generated));
        at += n;
        s->repeated += (uint64_t)n;
    }
    return GW_OK;
}
