/* core/engine/batch/deliver.c - tokens to text to events; how a choice and a request end. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/batch/batch_state.h"
#include "core/engine/sampling/logprob.h"

static gw_event new_event(const gw_request *r, gw_event_kind kind) {
    return (gw_event){.kind = kind,
                      .index = -1,
                      .token = -1,
                      .text = "",
                      .stop = -1,
                      .error = "",
                      .finish = r->finish,
                      .n_prompt = r->n_prompt,
                      .n_cached = r->n_cached,
                      .n_read = r->n_read,
                      .n_generated = r->n_generated,
                      .queued_seconds = r->queued_seconds,
                      .prompt_seconds = r->prompt_seconds,
                      .seconds = gw_seconds_now() - r->submitted};
}

static void send(const gw_request *r, const gw_event *e) {
    if (r->event != NULL) {
        r->event(r->user, e);
    }
}

static void send_piece(gw_seq *s, const gw_piece *piece) {
    gw_event e = new_event(s->r, GW_EVENT_TOKEN);
    e.choice = s->choice;
    e.index = s->emitted++;
    e.token = piece->token;
    e.text = piece->text;
    e.bytes = piece->bytes;
    e.logprob = piece->logprob;
    e.top = piece->top;
    e.n_top = piece->n_top;
    e.n_generated = s->emitted;
    send(s->r, &e);
}

void gw_request_progress(const gw_request *r) {
    gw_event e = new_event(r, GW_EVENT_PROMPT);
    send(r, &e);
}

/* ---- endings --------------------------------------------------------------------------------- */

static void free_request(gw_request *r) {
    for (int32_t i = 0; r->seq != NULL && i < r->n; i++) {
        gw_writer_free(r->seq[i].writer);
        free(r->seq[i].tokens);
        free(r->seq[i].pages);
        gw_seq_drafts_close(&r->seq[i]);
    }
    gw_request_unsee(r);
    free(r->seq);
    free(r);
}

void gw_request_drop(gw_request *r) {
    if (atomic_fetch_sub(&r->handles, 1) == 1) {
        free_request(r);
    }
}

static void done(gw_batch *b, gw_request *r) {
    gw_event e = new_event(r, GW_EVENT_DONE);
    b->stats.requests++;
    b->stats.cancelled += r->finish == GW_FINISH_CANCELLED;
    b->stats.failed += r->finish == GW_FINISH_ERROR;
    if (!r->admitted) {
        atomic_fetch_sub(&b->queued, 1);
        atomic_fetch_sub(&b->queued_tokens, r->n_prompt);
    }
    gw_batch_show_stats(b); /* whoever has its last event no longer finds its pages in use */
    send(r, &e);
    gw_request_drop(r);
}

static void unqueue(gw_batch *b, gw_seq *s) {
    gw_seq **link = &b->first, *before = NULL;
    while (*link != NULL && *link != s) {
        before = *link;
        link = &before->next;
    }
    if (*link == s) {
        *link = s->next;
        b->last = b->last == s ? before : b->last;
    }
}

void gw_seq_end(gw_batch *b, gw_seq *s, gw_finish finish, gw_status status, const char *error) {
    gw_request *r = s->r;
    gw_piece rest = {.token = -1, .text = ""};
    int32_t stop = -1;
    if (s->state == GW_SEQ_ENDED) {
        return;
    }
    if (s->state == GW_SEQ_RUNNING) {
        gw_seq_leave(b, s);
    } else {
        unqueue(b, s);
    }
    s->state = GW_SEQ_ENDED;
    if (gw_writer_rest(s->writer, &rest) != GW_OK) {
        rest = (gw_piece){.token = -1, .text = ""};
    }
    int ended = gw_writer_ended(s->writer, &stop);
    /* A stop string can come true in what the end of the text lets go. */
    finish = finish == GW_FINISH_LENGTH && ended && stop >= 0 ? GW_FINISH_STOP : finish;
    r->finish = finish;
    gw_event e = new_event(r, GW_EVENT_END);
    e.choice = s->choice;
    e.text = rest.text;
    e.bytes = rest.bytes;
    e.finish = finish;
    e.stop = finish == GW_FINISH_STOP ? stop : -1;
    e.token = finish == GW_FINISH_STOP ? rest.token : -1;
    e.logprob = rest.logprob;
    e.top = rest.top;
    e.n_top = rest.n_top;
    e.status = status;
    e.error = error;
    e.n_generated = s->emitted + (e.token >= 0 && !r->special);
    r->n_generated += e.n_generated;
    if (finish == GW_FINISH_STOP || finish == GW_FINISH_LENGTH) {
        gw_seq_drafts_keep(b, s);
        gw_ahead_add(b, s);
    }
    send(r, &e);
    r->open--;
    if (r->open == 0) {
        done(b, r);
    }
}

void gw_request_end(gw_batch *b, gw_request *r, gw_finish finish, gw_status status,
                    const char *error) {
    int32_t n = r->n;
    atomic_fetch_add(&r->handles, 1); /* the last of them would take it away */
    for (int32_t i = 0; i < n; i++) {
        gw_seq_end(b, &r->seq[i], finish, status, error);
    }
    gw_request_drop(r);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void fail(gw_batch *b, gw_seq *s, gw_status status) {
    char text[512]; /* events may fail in turn */
    size_t n = strlen(gw_error_text());
    n = n < sizeof text ? n : sizeof text - 1;
    memcpy(text, gw_error_text(), n);
    text[n] = '\0';
    gw_seq_end(b, s, GW_FINISH_ERROR, status, text);
}

static void fail_numbers(gw_batch *b, gw_seq *s, int32_t after) {
    fail(b, s,
         gw_fail(GW_E_NUMERIC, "model",
                 "logits are not finite after %d tokens: weights are damaged, or the 16-bit cache "
                 "overflowed (try kv-type f32)",
                 (int)after));
}

void gw_seq_prompt_row(gw_batch *b, gw_seq *s, int32_t index, const float *logits) {
    if (logits == NULL) {
        fail_numbers(b, s, index);
        return;
    }
    gw_event e = new_event(s->r, GW_EVENT_ROW);
    int32_t v = gw_model_n_vocab(b->model);
    e.index = index;
    e.token = s->tokens[index];
    e.top = b->top;
    e.n_top = (size_t)(s->r->prompt_top < v ? s->r->prompt_top : v);
    gw_logprobs(logits, v, e.token, &e.logprob, b->top, e.n_top);
    s->top_rows = index;
    send(s->r, &e);
}

/* All that is certain; *over: the text has ended in it. */
static gw_status hand_out(gw_seq *s, int *over) {
    int32_t stop;
    int there = 1;
    while (there) {
        gw_piece piece;
        GW_TRY(gw_writer_piece(s->writer, &piece, &there));
        if (there) {
            send_piece(s, &piece);
        }
    }
    *over = gw_writer_ended(s->writer, &stop);
    return GW_OK;
}

/* One more token of the text, picked at its end; *again: it was not to be, and the row that is
 * there gives another one. */
static gw_status take_token(gw_batch *b, gw_seq *s, int32_t token, int *again, int *over) {
    size_t back = 0;
    *again = *over = 0;
    GW_TRY(gw_writer_take(s->writer, token, s->n, &back));
    if (back > 0) {
        s->n -= (int32_t)back - 1;
        gw_seq_drafts_cut(s, s->n - 1);
        *again = back == 1;
        if (!*again) { /* the row behind which another one is picked */
            gw_seq_return(b, s, s->n - 1);
        }
        return GW_OK;
    }
    s->tokens[s->n++] = token;
    s->since++;
    b->stats.generated_tokens++;
    return hand_out(s, over);
}

/* Is the text to end behind a token? */
static void finish_token(gw_batch *b, gw_seq *s, gw_status status, int over) {
    const gw_request *r = s->r;
    gw_finish finish = GW_FINISH_STOP;
    size_t made = (size_t)s->emitted + gw_writer_held(s->writer);
    int full = (r->max_tokens > 0 && made >= (size_t)r->max_tokens) || s->n > b->n_ctx;
    if (status == GW_OK && !over && full) {
        int32_t stop;
        status = gw_writer_over(s->writer);
        status = status == GW_OK ? hand_out(s, &over) : status;
        (void)gw_writer_ended(s->writer, &stop);
        finish = stop >= 0 ? GW_FINISH_STOP : GW_FINISH_LENGTH;
        over = 1;
    }
    if (status != GW_OK) {
        fail(b, s, status);
    } else if (over) {
        gw_seq_end(b, s, finish, GW_OK, "");
    }
}

void gw_seq_take(gw_batch *b, gw_seq *s, int32_t token) {
    int again = 0, over = 0;
    gw_status status = take_token(b, s, token, &again, &over);
    if (again) { /* its logits are not at hand */
        gw_seq_return(b, s, s->n - 1);
    }
    finish_token(b, s, status, over);
}

void gw_seq_pick(gw_batch *b, gw_seq *s, const float *logits) {
    int again = 1, over = 0;
    int32_t token, stop;
    gw_status status = GW_OK;
    if (s->r->max_tokens == 0) {
        gw_seq_end(b, s, GW_FINISH_LENGTH, GW_OK, "");
        return;
    }
    if (gw_writer_ended(s->writer, &stop)) { /* before its first token */
        gw_seq_end(b, s, GW_FINISH_STOP, GW_OK, "");
        return;
    }
    if (logits == NULL) {
        fail_numbers(b, s, s->n);
        return;
    }
    while (again && status == GW_OK) {
        status = gw_writer_pick(s->writer, logits, s->n, &token);
        status = status == GW_OK ? take_token(b, s, token, &again, &over) : status;
    }
    finish_token(b, s, status, over);
}
