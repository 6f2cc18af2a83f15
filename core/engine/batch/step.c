/* core/engine/batch/step.c - rows of a pass, for whom, and what follows from its logits.
 *
 * A pass of decode rows, then one of prompt rows: two orders of sums, so two passes. Which rows
 * come together is free, since a row's bits depend on nothing but what its sequence holds. */
#include <string.h>

#include "core/engine/batch/batch_state.h"
#include "core/engine/drafting/draft_accept.h"

static const double step_of_cards = 0.05, step_of_cpu = 0.2, step_alone = 0.25; /* seconds */

enum {
    GAP = 3,    /* on the CPU a step with prompts takes no longer than so many without */
    TILE = 16,  /* rows of a prompt for which kernels of the CPU read the weights once */
    ALONE = 512 /* least rows of a prompt's pass while no request generates (prompt_budget) */
};

/* Of a pass of n rows: its place in decode_seconds. */
static int width_of(int32_t n) {
    int width = 0;
    while (width < GW_DECODE_PLANS - 1 && (1 << width) < n) {
        width++;
    }
    return width;
}

static int may_run(const gw_seq *s) { return !atomic_load(&s->r->held); }
static int reads(const gw_seq *s) { return s->pos < s->r->n_prompt; }

static void shuffle(gw_batch *b, int32_t n) {
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t k = (int32_t)gw_batch_random(b, (uint32_t)i + 1);
        gw_seq *s = b->order[i];
        b->order[i] = b->order[k];
        b->order[k] = s;
    }
}

/* Rows of those that are still running: b->rows, b->of_row; returns how many. */
static int32_t fill_rows(gw_batch *b, int32_t n) {
    int32_t rows = 0;
    for (int32_t i = 0; i < n; i++) {
        gw_seq *s = b->order[i];
        for (int32_t p = s->pos; s->state == GW_SEQ_RUNNING && p < s->end; p++) {
            int32_t token = p < s->n ? s->tokens[p] : s->drafts.token[p - s->n];
            int32_t prompt = s->r->n_prompt, last = p < prompt ? prompt - 1 : p;
            last = b->model->hp.n_source > 0 ? 0 : last;
            b->rows[rows] = (gw_row){.token = token,
                                     .pos = p,
                                     .slot = s->slot,
                                     .last = last,
                                     .less = gw_views_less(&s->r->views, p),
                                     .lora = &s->r->lora};
            int any = 0;
            if (s->r->views.n > 0 && p < prompt) {
                gw_views_look(&s->r->views, p, 1, &b->rows[rows].seen, &any);
            }
            b->of_row[rows++] = s;
        }
    }
    return rows;
}

/* How many of the rows from `at` on are of one sequence. */
static int32_t rows_of(const gw_batch *b, int32_t at, int32_t rows) {
    int32_t n = 1;
    while (at + n < rows && b->of_row[at + n] == b->of_row[at]) {
        n++;
    }
    return n;
}

/* ---- generated tokens ------------------------------------------------------------------------ */

/* b->order: who has a row, the one that waited longest first. */
static int32_t order_decode(gw_batch *b) {
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_running; i++) {
        gw_seq *s = b->running[i];
        if (!may_run(s) || reads(s)) {
            continue;
        }
        int32_t at = n++;
        for (; at > 0 && b->order[at - 1]->served > s->served; at--) {
            b->order[at] = b->order[at - 1];
        }
        b->order[at] = s;
    }
    if (b->o.disorder != 0 && n > 0) {
        shuffle(b, n);
        n = 1 + (int32_t)gw_batch_random(b, (uint32_t)n);
    }
    return n < b->widest ? n : b->widest;
}

/* One row each; what the plan has besides goes to those that catch up, then to drafts. Sets their
 * ends. */
static gw_status share_rows(gw_batch *b, int32_t n) {
    int32_t room = (n > GW_DECODE_MAX ? 1 << width_of(n) : GW_DECODE_MAX), free = room - n;
    for (int32_t i = 0; i < n; i++) {
        gw_seq *s = b->order[i];
        int32_t more = s->n - s->pos - 1, got = 0;
        more = more < free ? more : free;
        more = b->o.disorder != 0 ? (int32_t)gw_batch_random(b, (uint32_t)more + 1) : more;
        if (s->state != GW_SEQ_RUNNING) { /* preempted for one before it */
            s->end = s->pos;
            continue;
        }
        GW_TRY(gw_seq_reserve(b, s, s->pos + 1 + more, &got));
        s->end = got > s->pos ? got : s->pos;
        free -= s->end > s->pos ? s->end - s->pos - 1 : 0;
    }
    return gw_drafts_propose(b, n, free);
}

/* Which rows the device can draw behind: b->rules, b->drawn 0; the others -1. 1: any. */
static int choose_rules(gw_batch *b, int32_t rows) {
    const gw_choice none = {.temperature = 0.0f, .first = 1};
    int any = 0;
    for (int32_t i = 0; i < rows; i++) {
        const gw_seq *s = b->of_row[i];
        int wanted = b->rows[i].pos + 1 >= s->n && s->r->max_tokens != 0;
        int ruled = wanted && gw_writer_rule(s->writer, &b->rules[i]) &&
                    gw_session_draws(b->session, &b->rules[i]);
        b->rules[i] = ruled ? b->rules[i] : none;
        b->drawn[i] = ruled ? 0 : -1;
        any |= ruled;
    }
    return any;
}

/* Will the next pass be the row behind this one, as far as one can know? */
static int goes_on_alone(const gw_batch *b, const gw_seq *s) {
    int32_t made = s->n - s->r->n_prompt + 1, next = s->n;
    return b->n_running == 1 && b->first == NULL && gw_drafts_idle(b) &&
           next < s->n_pages * GW_PAGE && next + 1 < b->n_ctx &&
           (s->r->max_tokens < 0 || made < s->r->max_tokens);
}

/* A single text: the device goes on while the host deals with what it has drawn. *ran 0: the row
 * has to be run as others are, for its logits. */
static gw_status run_alone(gw_batch *b, int *ran) {
    gw_seq *s = b->of_row[0];
    int32_t id = -1;
    GW_TRY(gw_rows_step(b->session, &b->rows[0], &b->rules[0], goes_on_alone(b, s), &id));
    *ran = id >= 0 && !gw_writer_refuses(s->writer, id);
    b->drawn[0] = id;
    return GW_OK;
}

/* The pass, and what was drawn: b->drawn, -1 where the logits are needed. */
static gw_status run_rows(gw_batch *b, int32_t rows) {
    int ran = 0;
    if (!choose_rules(b, rows)) {
        return gw_rows_decode(b->session, b->rows, rows, NULL, NULL);
    }
    if (rows == 1 && gw_rows_steps(b->session)) {
        GW_TRY(run_alone(b, &ran));
        if (ran) {
            return GW_OK;
        }
        b->drawn[0] = -1;
        return gw_rows_decode(b->session, b->rows, rows, NULL, NULL);
    }
    GW_TRY(gw_rows_decode(b->session, b->rows, rows, b->rules, b->ids));
    for (int32_t i = 0; i < rows; i++) {
        int taken = b->drawn[i] >= 0 && b->ids[i] >= 0 &&
                    !gw_writer_refuses(b->of_row[i]->writer, b->ids[i]);
        b->drawn[i] = taken ? b->ids[i] : -1;
    }
    return GW_OK;
}

/* Is the draft j of s taken without a look at what is picked, to measure? */
static int is_assumed(const gw_batch *b, const gw_seq *s, int32_t j) {
    return b->o.draft_assume > 0 && j < s->drafts.n &&
           (double)gw_draft_uniform((uint64_t)s->admitted, 0, s->n) < b->o.draft_assume;
}

/* The token behind row i, the last one of s so far; its draft j stands in the next row. */
static gw_status follow(gw_batch *b, gw_seq *s, int32_t i, int32_t j) {
    if (is_assumed(b, s, j)) {
        gw_seq_take(b, s, s->drafts.token[j]);
        return GW_OK;
    }
    if (b->drawn[i] >= 0) {
        gw_seq_take(b, s, b->drawn[i]);
        return GW_OK;
    }
    GW_TRY(gw_rows_fetch(b->session, i));
    gw_seq_pick(b, s, gw_rows_logits(b->session, i));
    return GW_OK;
}

/* Rows [at, at + n) of the pass were those of s: the token behind its last one, and those behind
 * its drafts as long as they are what was picked. */
static gw_status follow_rows(gw_batch *b, gw_seq *s, int32_t at, int32_t n) {
    int32_t last = s->n - s->pos - 1, before = s->n, drafted = s->drafts.n, kept = 0;
    gw_request *r = s->r;
    gw_status status = GW_OK;
    s->served = b->n_passes;
    if (s->state != GW_SEQ_RUNNING || s->pos >= s->end) {
        return GW_OK;
    }
    gw_seq_advance(b, s, s->end);
    if (last >= n) {
        return GW_OK;
    }
    atomic_fetch_add(&r->handles, 1); /* its end may be the request's */
    for (int goes_on = 1; goes_on && status == GW_OK; kept += goes_on) {
        status = follow(b, s, at + last + kept, kept);
        goes_on = s->state == GW_SEQ_RUNNING && kept < drafted && s->n == before + kept + 1 &&
                  s->tokens[before + kept] == s->drafts.token[kept];
    }
    if (s->state == GW_SEQ_RUNNING && s->pos > s->n - 1) {
        gw_seq_return(b, s, s->n - 1);
    }
    gw_drafts_learn(b, s, kept);
    gw_seq_drafts_cut(s, s->n - 1);
    s->drafts.n = 0;
    gw_request_drop(r);
    return status;
}

/* Is a prompt being read that somebody waits for? */
static int any_reads(const gw_batch *b) {
    int any = 0;
    for (int32_t i = 0; i < b->n_running; i++) {
        any |= may_run(b->running[i]) && reads(b->running[i]);
    }
    return any;
}

gw_status gw_batch_decode(gw_batch *b) {
    int32_t n = b->o.prompts_first && any_reads(b) ? 0 : order_decode(b);
    GW_TRY(share_rows(b, n));
    int32_t rows = fill_rows(b, n);
    if (rows == 0) {
        return GW_OK;
    }
    double start = gw_seconds_now();
    int32_t texts = 0;
    GW_TRY(run_rows(b, rows));
    double seconds = gw_seconds_now() - start;
    GW_TRY(gw_draft_states_take(b, b->rows, rows));
    double taken = gw_seconds_now() - start;
    b->n_passes++;
    for (int32_t at = 0; at < rows; texts++) {
        int32_t of_it = rows_of(b, at, rows);
        GW_TRY(follow_rows(b, b->of_row[at], at, of_it));
        at += of_it;
    }
    gw_drafts_time(b, rows, seconds);
    gw_drafts_settle(b, rows, texts, seconds);
    b->stats.steps++;
    b->stats.rows += (uint64_t)rows;
    b->stats.last_rows = rows;
    b->stats.decode_seconds += taken;
    b->last_decode = gw_seconds_now() - start;
    return GW_OK;
}

/* ---- prompts --------------------------------------------------------------------------------- */

static int at_home(const gw_batch *b) { return b->session->logits_copy == NULL; }

/* As many rows of a prompt as take so long; at least as many as are no dearer one by one. */
static int32_t rows_within(const gw_batch *b, double seconds) {
    double row = b->prompt_row_seconds, fit = row > 0.0 && seconds > 0.0 ? seconds / row : 0.0;
    int32_t some = at_home(b) ? TILE : GW_PAGE;
    int32_t rows = fit < (double)b->chunk ? (int32_t)fit / some * some : b->chunk;
    rows = rows < some ? some : rows;
    return rows < b->chunk ? rows : b->chunk;
}

static double longest_step(const gw_batch *b) {
    return b->o.step_seconds > 0.0 ? b->o.step_seconds : at_home(b) ? step_of_cpu : step_of_cards;
}

int32_t gw_batch_prompt_rows(const gw_batch *b) {
    int32_t rows = rows_within(b, longest_step(b));
    rows = rows < GW_PAGE ? GW_PAGE : rows;
    return rows < b->chunk ? rows : b->chunk;
}

/* Seconds of a step in which others wait for their next tokens. A card's decode is so short that
 * many times of it are no wait at all. On the CPU it is so many times what a pass will take when
 * all that run generate: as long as prompts are read passes are narrower and shorter, but nobody is
 * served by gaps shorter than those to come while others wait for their first token. */
static double step_target(const gw_batch *b, int32_t running) {
    double most = longest_step(b), pass = gw_drafts_pass_seconds(&b->drafts, running);
    double gap = GAP * (pass > b->last_decode ? pass : b->last_decode);
    return at_home(b) && b->o.step_seconds == 0.0 && gap < most ? gap : most;
}

/* Prompt rows of the next pass: as many as take no longer than others shall wait. */
static int32_t prompt_budget(gw_batch *b) {
    int32_t running = 0, others = 0;
    for (int32_t i = 0; i < b->n_running; i++) {
        running += may_run(b->running[i]);
        others += may_run(b->running[i]) && !reads(b->running[i]);
    }
    if (b->o.disorder != 0) {
        return 1 + (int32_t)gw_batch_random(b, (uint32_t)b->chunk);
    }
    running = running < b->widest ? running : b->widest;
    if (others > 0) {
        return rows_within(b, step_target(b, running) - b->last_decode);
    }
    if (b->o.chunk > 0) {
        return b->chunk; /* as the caller chose */
    }
    int32_t rows = rows_within(b, step_alone), least = b->chunk < ALONE ? b->chunk : ALONE;
    return rows > least ? rows : least;
}

/* b->order: the oldest, then those that have the least left to read. */
static int32_t order_prompts(gw_batch *b) {
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_running; i++) {
        gw_seq *s = b->running[i];
        if (!may_run(s) || !reads(s)) {
            continue;
        }
        int32_t at = n++, left = s->r->n_prompt - s->pos;
        for (; at > 1 && b->order[at - 1]->r->n_prompt - b->order[at - 1]->pos > left; at--) {
            b->order[at] = b->order[at - 1];
        }
        b->order[at] = s;
    }
    if (b->o.disorder != 0) {
        shuffle(b, n);
    }
    return n;
}

/* Up to where it reads with so many rows: whole pages, or all. */
static int32_t cut(const gw_batch *b, const gw_seq *s, int32_t rows) {
    int32_t end = s->pos + rows, stop = gw_snapshots_stop(b, s);
    end = end < stop ? end : stop;
    int whole; /* a picture has passes of its own */
    int32_t picture = gw_views_stop(&s->r->views, s->pos, &whole);
    if (end >= picture) {
        return picture;
    }
    int32_t edge = end - end % GW_PAGE;
    if (end >= s->r->n_prompt) {
        return s->r->n_prompt;
    }
    return edge > s->pos && b->o.disorder == 0 ? edge : end;
}

/* The oldest has a quarter of the rows, and what the others leave. */
static gw_status share_budget(gw_batch *b, int32_t n, int32_t budget) {
    int32_t got = 0, left = budget;
    for (int32_t i = 0; i < n; i++) {
        b->order[i]->end = b->order[i]->pos;
    }
    for (int32_t turn = 0; turn <= n && left > 0; turn++) {
        gw_seq *s = b->order[turn == n ? 0 : turn];
        int32_t most = turn == 0 && n > 1 && left > 4 ? left / 4 : left, from = s->end;
        if (s->state != GW_SEQ_RUNNING || from == s->r->n_prompt) {
            continue;
        }
        int32_t end = cut(b, s, most + (from - s->pos));
        GW_TRY(gw_seq_reserve(b, s, end, &got));
        s->end = got > from ? got : from;
        left -= s->end - from;
    }
    return GW_OK;
}

/* Of a prompt's part from row `at` on, the rows that somebody who scores still wants. */
static gw_status hand_out_rows(gw_batch *b, gw_seq *s, int32_t at) {
    int32_t last = s->end < s->r->n_prompt ? s->end : s->end - 1; /* behind it comes no prompt */
    int32_t tile = b->chunk < GW_HEAD_TILE ? b->chunk : GW_HEAD_TILE;
    for (int32_t p = s->pos > s->top_rows ? s->pos : s->top_rows;
         p < last && s->state == GW_SEQ_RUNNING;) {
        int32_t n = last - p < tile ? last - p : tile;
        GW_TRY(gw_rows_head(b->session, at + (p - s->pos), n));
        for (int32_t i = 0; i < n && s->state == GW_SEQ_RUNNING; i++) {
            gw_seq_prompt_row(b, s, p + i + 1, gw_rows_logits(b->session, i));
        }
        p += n;
    }
    return GW_OK;
}

/* Rows [at, at + n) of the pass were read for s. */
static gw_status finish_rows(gw_batch *b, gw_seq *s, int32_t at, int32_t n) {
    gw_request *r = s->r;
    int32_t last = at + n - 1;
    if (r->want_prompt && s->choice == 0) {
        GW_TRY(hand_out_rows(b, s, at));
    }
    if (s->state != GW_SEQ_RUNNING) {
        return GW_OK;
    }
    if (s->drafts.read == s->pos && gw_drafts_follow(b, s->slot)) {
        s->drafts.read = s->end;
    }
    gw_seq_advance(b, s, s->end);
    gw_seq_publish(b, s);
    GW_TRY(gw_snapshots_save(b, s));
    if (s->choice == 0 && s->pos > r->n_read) {
        r->n_read = s->pos;
        r->prompt_seconds = gw_seconds_now() - r->submitted;
        gw_request_progress(r);
    }
    if (s->pos < s->n) {
        return GW_OK;
    }
    if (r->max_tokens != 0) {
        GW_TRY(gw_rows_head(b->session, last, 1));
    }
    gw_seq_pick(b, s, r->max_tokens != 0 ? gw_rows_logits(b->session, 0) : NULL);
    return GW_OK;
}

/* Of those in b->order who are, or are not, at a picture whose rows are read in one pass. */
static int32_t keep_kind(gw_batch *b, int32_t n, int wanted) {
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        gw_seq *s = b->order[i];
        int whole;
        s->end = s->pos;
        (void)gw_views_stop(&s->r->views, s->pos, &whole);
        if (whole == wanted) {
            b->order[kept++] = s;
        }
    }
    return kept;
}

/* Whole pictures, as many as a pass has rows for. */
static gw_status share_pictures(gw_batch *b, int32_t n) {
    int32_t left = b->session->picture_rows, got = 0;
    for (int32_t i = 0; i < n; i++) {
        gw_seq *s = b->order[i];
        int whole;
        int32_t end = gw_views_stop(&s->r->views, s->pos, &whole);
        if (s->state != GW_SEQ_RUNNING || end - s->pos > left) {
            continue;
        }
        GW_TRY(gw_seq_reserve(b, s, end, &got));
        s->end = got == end ? end : s->pos;
        left -= s->end - s->pos;
    }
    return GW_OK;
}

/* Rows of pictures that see one another, where somebody is at one; else text. */
static gw_status share_prompts(gw_batch *b, int32_t *rows) {
    int32_t n = order_prompts(b), at_pictures = keep_kind(b, n, 1);
    *rows = 0;
    if (at_pictures > 0) {
        GW_TRY(share_pictures(b, at_pictures));
        *rows = fill_rows(b, at_pictures);
    }
    if (*rows == 0 && n > at_pictures) {
        n = keep_kind(b, at_pictures > 0 ? order_prompts(b) : n, 0);
        GW_TRY(share_budget(b, n, prompt_budget(b)));
        *rows = fill_rows(b, n);
    }
    return GW_OK;
}

gw_status gw_batch_prefill(gw_batch *b) {
    int32_t rows;
    GW_TRY(share_prompts(b, &rows));
    if (rows == 0) {
        return GW_OK;
    }
    double start = gw_seconds_now();
    GW_TRY(gw_rows_prefill(b->session, b->rows, rows));
    GW_TRY(gw_drafts_read(b, b->rows, rows));
    double seconds = gw_seconds_now() - start;
    for (int32_t at = 0; at < rows;) {
        int32_t of_it = rows_of(b, at, rows);
        GW_TRY(finish_rows(b, b->of_row[at], at, of_it));
        at += of_it;
    }
    double row = (gw_seconds_now() - start) / rows, before = b->prompt_row_seconds;
    b->prompt_row_seconds = before > 0.0 ? 0.75 * before + 0.25 * row : row;
    b->stats.prompt_passes++;
    b->stats.prompt_tokens += (uint64_t)rows;
    b->stats.prompt_seconds += seconds;
    b->stats.prompt_rate = 1.0 / b->prompt_row_seconds;
    return GW_OK;
}
