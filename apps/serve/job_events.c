/* apps/serve/job_events.c - from the engine's events to parts of the answer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/job_parts.h"
#include "apps/serve/metrics.h"
#include "core/base/os_threads.h"

/* ---- the engine's thread --------------------------------------------------------------------- */

static event_copy *copy_event(const gw_event *e) {
    size_t text = e->text != NULL ? e->bytes : 0;
    size_t error = e->error != NULL ? strlen(e->error) : 0;
    event_copy *copy = malloc(sizeof *copy + text + error + 2);
    if (copy == NULL) {
        return NULL;
    }
    copy->next = NULL;
    copy->e = *e;
    memcpy(copy->text, e->text != NULL ? e->text : "", text);
    copy->text[text] = '\0';
    memcpy(copy->text + text + 1, e->error != NULL ? e->error : "", error);
    copy->text[text + 1 + error] = '\0';
    copy->e.text = copy->text;
    copy->e.bytes = text;
    copy->e.error = copy->text + text + 1;
    if (e->n_top > 0) {
        memcpy(copy->top, e->top,
               (e->n_top < GW_TOP_LOGPROBS ? e->n_top : GW_TOP_LOGPROBS) * sizeof *e->top);
    }
    copy->e.top = copy->top;
    return copy;
}

/* The lock is the server's: a job may be gone as soon as the loop has its last event. */
void job_on_event(void *user, const gw_event *event) {
    job_request *of = user;
    job *j = of->j;
    server *s = j->s;
    int done = event->kind == GW_EVENT_DONE;
    event_copy *copy = copy_event(event);
    pthread_mutex_lock(&s->events_lock);
    if (copy != NULL) {
        copy->prompt = of->prompt;
        *j->events_end = copy;
        j->events_end = &copy->next;
    } else {
        j->lost_events = 1;
        j->n_done_unseen += (size_t)done;
    }
    loop_post(s->loop, &j->events_task);
    pthread_mutex_unlock(&s->events_lock);
    if (done) {
        free(of);
    }
}

/* ---- which tokens the text shows ------------------------------------------------------------- */

/* What of the tokens that are not settled lies between these places is text, or (shown 0) is not.
 */
static void settle(choice *c, size_t from, size_t to, int shown) {
    for (size_t i = c->probs_settled; i < c->n_probs; i++) {
        token_prob *p = &c->probs[i];
        size_t begin = p->at > from ? p->at : from, end = p->at + p->span;
        if (p->at >= to && p->span > 0) {
            return;
        }
        size_t last = end < to ? end : to;
        if (shown && begin < last) {
            p->shown_from = p->shown == 0 ? begin - p->at : p->shown_from;
            p->shown = last - p->at - p->shown_from;
        }
        if (end > to) {
            return;
        }
        c->probs_settled = i + 1;
    }
}

/* These bytes were given out: as text, or as something else. They stand among those that were
 * generated last; what was generated before them is shown nowhere. */
static void spell(choice *c, const char *text, size_t bytes, int shown) {
    text_buffer *b = &c->unspelled;
    if (c->answer == NULL || !c->j->ask.logprobs || bytes == 0) {
        return;
    }
    const char *found = b->n > 0 ? memmem(b->at, b->n, text, bytes) : NULL;
    size_t from = found != NULL ? (size_t)(found - b->at) : 0;
    size_t to = found != NULL ? from + bytes : b->n; /* written another way: all of them */
    settle(c, c->spelled + from, c->spelled + to, shown);
    memmove(b->at, b->at + to, b->n - to);
    b->n -= to;
    c->spelled += to;
}

/* Calls are written another way than they are given out. */
static void spell_rest(choice *c) {
    settle(c, c->spelled, c->spelled + c->unspelled.n, 0);
    c->spelled += c->unspelled.n;
    c->unspelled.n = 0;
}

/* ---- parts of the answer --------------------------------------------------------------------- */

static void say_text(choice *c, const char *text, size_t bytes) {
    const api *a = c->j->api;
    if (bytes == 0 || c->ended) {
        return;
    }
    text_add(&c->text, text, bytes);
    spell(c, text, bytes, 1);
    if (c->j->streaming && a->text != NULL) {
        a->text(c, text, bytes);
    }
}

/* The text of an answer, less the stop strings; *hit when one has come true. */
static void say_stopped(choice *c, const char *text, size_t bytes, int last, int *hit) {
    const char *safe = text;
    size_t n = bytes;
    int number = -1;
    if (c->stop != NULL && gw_stop_push(c->stop, text, bytes, last, &safe, &n, &number) != GW_OK) {
        return;
    }
    say_text(c, safe, n);
    if (number >= 0) {
        *hit = 1;
        c->stop_text = (size_t)number < c->j->ask.n_stops ? c->j->ask.stops[number] : NULL;
    }
}

static void say_reasoning(choice *c, const char *text, size_t bytes) {
    const api *a = c->j->api;
    if (bytes == 0) {
        return;
    }
    text_add(&c->reasoning, text, bytes);
    spell(c, text, bytes, 0);
    if (c->j->streaming && a->reasoning != NULL) {
        a->reasoning(c, text, bytes);
    }
}

static void begin_call(choice *c, const gw_part *p) {
    call *grown = realloc(c->calls, (c->n_calls + 1) * sizeof *grown);
    if (grown == NULL) {
        return;
    }
    c->calls = grown;
    spell_rest(c);
    call *k = &c->calls[c->n_calls++];
    *k = (call){.id = strdup(p->id != NULL ? p->id : ""),
                .name = strdup(p->name != NULL ? p->name : ""),
                .item = -1};
    c->calls_made++;
    if (c->j->streaming && c->j->api->call_begin != NULL) {
        c->j->api->call_begin(c, k);
    }
}

static void say_call(choice *c, const gw_part *p) {
    const api *a = c->j->api;
    if (c->n_calls == 0) {
        return;
    }
    call *k = &c->calls[c->n_calls - 1];
    if (p->kind == GW_PART_ARGUMENTS) {
        text_add(&k->arguments, p->text, p->bytes);
        if (c->j->streaming && a->call_arguments != NULL) {
            a->call_arguments(c, k, p->text, p->bytes);
        }
    } else if (p->kind == GW_PART_CALL_END || (int)p->kind == GW_PART_CALL_CUT) {
        k->whole = p->kind == GW_PART_CALL_END;
        if (c->j->streaming && a->call_end != NULL) {
            a->call_end(c, k);
        }
    } else if (!k->broken) {
        k->broken = 1;
        c->calls_made--;
    }
}

static void say_parts(choice *c, const gw_part *parts, size_t n, int last, int *hit) {
    for (size_t i = 0; i < n && !*hit; i++) {
        switch (parts[i].kind) {
        case GW_PART_TEXT:
            say_stopped(c, parts[i].text, parts[i].bytes, 0, hit);
            break;
        case GW_PART_REASONING:
            say_reasoning(c, parts[i].text, parts[i].bytes);
            break;
        case GW_PART_CALL:
            begin_call(c, &parts[i]);
            break;
        default:
            say_call(c, &parts[i]);
        }
    }
    if (last && !*hit) {
        say_stopped(c, "", 0, 1, hit);
    }
}

/* A token of an answer that is read; -1: its end. */
static void read_answer(choice *c, int32_t token, int *hit) {
    const gw_part *parts;
    size_t n;
    if (gw_answer_push(c->answer, token, &parts, &n) == GW_OK) {
        say_parts(c, parts, n, token < 0, hit);
    }
}

/* ---- probabilities --------------------------------------------------------------------------- */

static void add_prob(choice *c, int32_t token, float logprob, const gw_logprob *top, size_t n_top) {
    const model *m = c->j->m;
    if (c->n_probs % 64 == 0) {
        token_prob *grown = realloc(c->probs, (c->n_probs + 64) * sizeof *grown);
        if (grown == NULL) {
            return;
        }
        c->probs = grown;
    }
    token_prob *p = &c->probs[c->n_probs++];
    *p = (token_prob){.token = token, .logprob = logprob};
    p->text = model_token_text(m, token, &p->bytes);
    if (c->answer == NULL) {
        p->shown = p->bytes;
        c->probs_settled = c->n_probs;
    } else {
        p->at = c->spelled + c->unspelled.n;
        p->span = p->text != NULL && gw_answer_is_text(c->answer, token) ? p->bytes : 0;
        p->span = text_add(&c->unspelled, p->span > 0 ? p->text : "", p->span) == 0 ? p->span : 0;
    }
    p->top = n_top > 0 ? calloc(n_top, sizeof *p->top) : NULL;
    for (size_t i = 0; p->top != NULL && i < n_top; i++) {
        p->top[i].token = top[i].token;
        p->top[i].logprob = top[i].logprob;
        p->top[i].text = model_token_text(m, top[i].token, &p->top[i].bytes);
        p->n_top++;
    }
}

/* The first token of a prompt has no probability, and of a prompt of one token no row comes. */
static void add_first_prob(choice *c) {
    const ask *a = &c->j->ask;
    const ask_prompt *p = &a->prompts[c->prompt];
    if (a->logprobs && a->echo && c->n_probs == 0 && p->n > 0) {
        add_prob(c, p->ids[0], NAN, NULL, 0);
    }
}

static void add_prompt_prob(job *j, const event_copy *copy) {
    const gw_event *e = &copy->e;
    size_t n = (size_t)j->ask.n;
    const ask_prompt *p = &j->ask.prompts[copy->prompt];
    for (size_t i = copy->prompt * n; i < (copy->prompt + 1) * n; i++) {
        choice *c = &j->choices[i];
        add_first_prob(c);
        add_prob(c, e->token >= 0 ? e->token : p->ids[e->index], e->logprob, e->top, e->n_top);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static void finish_choice(choice *c, gw_finish why) {
    if (c->finished) {
        return;
    }
    c->ended = c->finished = 1;
    c->why = why;
    spell_rest(c);
    if (c->j->streaming && c->j->api->finish != NULL) {
        c->j->api->finish(c);
    }
}

/* When all that is asked for is there, what still runs is for nothing. */
static int all_finished(const job *j) {
    for (size_t i = 0; i < j->n_choices; i++) {
        if (!j->choices[i].finished) {
            return 0;
        }
    }
    return 1;
}

static void keep_token(choice *c, int32_t token) {
    if (c->n_tokens % 64 == 0) {
        int32_t *grown = realloc(c->tokens, (c->n_tokens + 64) * sizeof *grown);
        if (grown == NULL) {
            return;
        }
        c->tokens = grown;
    }
    c->tokens[c->n_tokens++] = token;
}

static void take_token(choice *c, const event_copy *copy, int *hit) {
    job *j = c->j;
    const gw_event *e = &copy->e;
    double now = app_seconds();
    j->n_generated++;
    if (j->first == 0) {
        j->first = now;
        metrics_took(j->s->metrics, TIME_FIRST, now - j->began);
    } else if (c->last > 0) {
        metrics_took(j->s->metrics, TIME_BETWEEN, now - c->last);
    }
    c->last = now;
    if (j->ask.logprobs) {
        add_prob(c, e->token, e->logprob, e->top, e->n_top);
    }
    if (j->ask.return_tokens) {
        keep_token(c, e->token);
    }
    size_t before = c->reasoning.n;
    if (c->answer != NULL) {
        read_answer(c, e->token, hit);
    } else {
        say_text(c, e->text, e->bytes);
    }
    j->n_reasoning += c->reasoning.n > before;
}

static void end_choice(choice *c, const event_copy *copy) {
    const gw_event *e = &copy->e;
    int hit = 0;
    if (c->finished) {
        return;
    }
    if (c->answer != NULL) {
        if (e->token >= 0) {
            read_answer(c, e->token, &hit);
        }
        if (e->finish == GW_FINISH_LENGTH) {
            gw_answer_cut(c->answer);
        }
        if (!hit) {
            read_answer(c, -1, &hit);
        }
    } else {
        say_text(c, e->text, e->bytes);
        c->stop_text =
            e->stop >= 0 && (size_t)e->stop < c->j->ask.n_stops ? c->j->ask.stops[e->stop] : NULL;
    }
    if (e->token >= 0) {
        c->j->n_generated++;
    }
    if (e->token >= 0 && c->j->ask.logprobs && c->j->api->shows_end) {
        add_prob(c, e->token, e->logprob, e->top, e->n_top);
    }
    finish_choice(c, hit ? GW_FINISH_STOP : e->finish);
}

/* One choice failed, and with it the answer. */
/* The request is at fault, not the model's numbers: the status is the same. */
static int no_token_left(const char *error) {
    static const char *const asked[] = {"grammar: ", "banned strings: "};
    return strncmp(error, asked[0], strlen(asked[0])) == 0 ||
           strncmp(error, asked[1], strlen(asked[1])) == 0;
}

static void take_error(job *j, const gw_event *e) {
    fault f;
    if (e->finish == GW_FINISH_CANCELLED) {
        fault_set(&f, 503, NULL, "the server is ending");
    } else {
        int asked = e->status == GW_E_NUMERIC && no_token_left(e->error);
        fault_set(&f, asked ? 400 : 500,
                  asked && j->ask.grammar != NULL ? j->ask.grammar_field : NULL, "%s",
                  e->error[0] != '\0' ? e->error : "the engine failed");
    }
    job_fail(j, &f);
}

static void take_counts(job *j, const gw_event *e) {
    j->heard = 1;
    if (e->kind == GW_EVENT_DONE) {
        j->n_prompt += e->n_prompt;
        j->n_cached += e->n_cached;
    }
    j->queued_seconds = e->queued_seconds;
    j->prompt_seconds = e->prompt_seconds;
    j->seconds = e->seconds;
}

static void take_event(job *j, const event_copy *copy) {
    const gw_event *e = &copy->e;
    choice *c = &j->choices[copy->prompt * (size_t)j->ask.n + (size_t)e->choice];
    int hit = 0;
    switch (e->kind) {
    case GW_EVENT_PROMPT:
        if (j->streaming && j->api->progress != NULL) {
            j->api->progress(j, e->n_read, e->n_prompt, e->n_cached);
        }
        break;
    case GW_EVENT_ROW:
        add_prompt_prob(j, copy);
        break;
    case GW_EVENT_TOKEN:
        if (!c->ended) {
            add_first_prob(c);
            take_token(c, copy, &hit);
            if (hit) {
                finish_choice(c, GW_FINISH_STOP);
            }
        }
        break;
    case GW_EVENT_END:
        if (!c->finished && (e->finish == GW_FINISH_ERROR || e->finish == GW_FINISH_CANCELLED)) {
            take_error(j, e);
        } else {
            add_first_prob(c);
            end_choice(c, copy);
        }
        break;
    case GW_EVENT_DONE:
        break;
    }
    if (hit && all_finished(j)) {
        for (size_t i = 0; i < j->n_requests; i++) {
            gw_request_cancel(j->requests[i]);
        }
    }
}

static event_copy *pop(job *j) {
    pthread_mutex_lock(&j->s->events_lock);
    event_copy *copy = j->events;
    if (copy != NULL) {
        j->events = copy->next;
        if (j->events == NULL) {
            j->events_end = &j->events;
        }
    }
    j->n_done += j->n_done_unseen;
    j->n_done_unseen = 0;
    pthread_mutex_unlock(&j->s->events_lock);
    return copy;
}

void job_take_events(job *j) {
    while (j->ended || j->c == NULL || !conn_full(j->c)) {
        event_copy *copy = pop(j);
        if (copy == NULL) {
            break;
        }
        take_counts(j, &copy->e);
        if (!j->ended) {
            take_event(j, copy);
        }
        if (copy->e.kind == GW_EVENT_DONE) {
            j->n_done++;
            metrics_tokens(j->s->metrics, copy->e.n_prompt, copy->e.n_cached, copy->e.n_generated);
            metrics_took(j->s->metrics, TIME_QUEUE, copy->e.queued_seconds);
            if (!j->ended && job_submit_more(j) != 0) {
                job_fail(j, &j->f);
            }
        }
        free(copy);
        if (!j->ended && j->n_requests > 0 && j->n_done == j->ask.n_prompts) {
            job_finish(j);
        }
    }
    if (j->lost_events && !j->ended) {
        fault f;
        fault_set(&f, 503, NULL, "out of memory");
        job_fail(j, &f);
    }
    if (!j->ended && j->c != NULL && conn_full(j->c)) {
        job_hold(j, 1);
    }
}

void job_drop_events(job *j) {
    for (event_copy *copy; (copy = pop(j)) != NULL;) {
        free(copy);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

static void free_choice(choice *c) {
    gw_answer_free(c->answer);
    grammars_release(c->j->s->grammars, c->grammar);
    gw_stop_free(c->stop);
    free(c->text.at);
    free(c->reasoning.at);
    free(c->unspelled.at);
    for (size_t i = 0; i < c->n_calls; i++) {
        free(c->calls[i].id);
        free(c->calls[i].name);
        free(c->calls[i].arguments.at);
    }
    free(c->calls);
    for (size_t i = 0; i < c->n_probs; i++) {
        for (size_t k = 0; k < c->probs[i].n_top; k++) {
            free(c->probs[i].top[k].text);
        }
        free(c->probs[i].top);
        free(c->probs[i].text);
    }
    free(c->probs);
    free(c->tokens);
}

void job_free_choices(job *j) {
    for (size_t i = 0; i < j->n_choices; i++) {
        free_choice(&j->choices[i]);
    }
    free(j->choices);
}
