/* core/engine/batch/drafts.c - see drafts.h. */
#include "core/engine/batch/drafts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/batch/batch_state.h"
#include "core/engine/drafting/draft.h"
#include "core/engine/run/session_hidden.h"

/* Of a pass of a model that drafts by blocks: a block, and what its text has missed. */
enum { BLOCK_ROWS = 2 * GW_DECODE_MAX };
/* Of the first step of a model that takes hidden states, rows of each text; most of them have some
 * two drafts that stayed. */
enum { ROWS_OF_TEXT = 4 };
/* Tokens of answers that suffix lookup remembers. */
enum { POOL = 1 << 18 };
/* A block ends where all of its tokens so far are right with less than this, by its own word. */
static const double SURE_LEAST = 0.1;

/* ---- life ------------------------------------------------------------------------------------ */

int gw_drafts_on(const gw_batch *b) { return b->drafts.lookup || b->drafts.model != NULL; }

static gw_status open_chain(gw_batch *b, const gw_model *model) {
    gw_drafts *d = &b->drafts;
    GW_TRY(gw_chain_new(model, b->parallel, &d->chain));
    if (d->chain == NULL) {
        return GW_OK;
    }
    size_t width = (size_t)gw_session_hidden_width(d->model);
    d->outs = calloc((size_t)gw_session_widest(d->model) * width, sizeof *d->outs);
    d->links = calloc((size_t)b->parallel, sizeof *d->links);
    if (d->outs == NULL || d->links == NULL) {
        return gw_fail(GW_E_NOMEM, "draft", "no memory for blocks of %d sequences",
                       (int)b->parallel);
    }
    return gw_session_hidden_open(d->model);
}

static gw_status open_model(gw_batch *b, gw_model *model) {
    gw_drafts *d = &b->drafts;
    gw_session_options so = {
        .n_ctx = b->n_ctx, .chunk = b->chunk, .kv_type = b->o.kv_type, .cancel = b->o.cancel};
    gw_sharing sharing = {
        .slots = b->parallel, .pages = b->stats.pages, .widest = b->session->sharing.widest};
    d->block = gw_model_draft_block(model);
    if (d->block.rows > 0 && sharing.widest < BLOCK_ROWS) {
        sharing.widest = BLOCK_ROWS;
    } else if (d->block.rows == 0 && gw_model_predicts(model)) {
        int32_t rows = ROWS_OF_TEXT * b->parallel; /* what was kept is read again, then one row */
        rows = rows < GW_PARALLEL_MAX ? rows : GW_PARALLEL_MAX;
        sharing.widest = sharing.widest > rows ? sharing.widest : rows;
    }
    int32_t its = gw_model_n_vocab(model), ours = gw_model_n_vocab(b->model);
    GW_TRY(gw_draft_same_vocab(b->model, model));
    GW_TRY(gw_session_make(model, &so, &sharing, &d->model));
    if (d->model->states.any) {
        return gw_fail(GW_E_UNSUPPORTED, model->name,
                       "has recurrent blocks: such models draft for one text at a time");
    }
    d->model->cancel = NULL;
    GW_TRY(open_chain(b, model));
    d->vocab = its < ours ? its : ours;
    if (gw_model_draft_tokens(model) != NULL) {
        d->vocab = ours;
        d->spread = malloc((size_t)ours * sizeof *d->spread);
        if (d->spread == NULL) {
            return gw_fail(GW_E_NOMEM, "draft", "no memory for logits");
        }
        for (int32_t i = 0; i < ours; i++) {
            d->spread[i] = -INFINITY;
        }
    }
    return gw_session_draw_rows(d->model);
}

gw_status gw_drafts_state_entries(const gw_batch_options *o, int32_t *out) {
    gw_length length = {.k = 0};
    GW_TRY(gw_length_parse(o->draft_length, &length));
    int any = o->draft_model != NULL || o->draft_lookup != 0;
    int fixed = length.mode == GW_LENGTH_FIXED && o->disorder == 0;
    *out = !any ? GW_STATE_LEAST : fixed ? length.k + 2 : GW_STATE_ENTRIES;
    return GW_OK;
}

gw_status gw_drafts_open(gw_batch *b) {
    gw_drafts *d = &b->drafts;
    size_t n = (size_t)b->parallel;
    GW_TRY(gw_length_parse(b->o.draft_length, &d->length));
    if (d->length.mode == GW_LENGTH_HEURISTIC) {
        return gw_fail(GW_E_ARGUMENT, "draft length",
                       "'heuristic' is a rule for one text; for many: cost or fixed:K");
    }
    d->lookup = b->o.draft_lookup;
    if (d->lookup == GW_LOOKUP_SUFFIX) {
        GW_TRY(gw_lookup_new(NULL, 0, POOL, &d->pool));
    }
    if (b->o.draft_model != NULL) {
        GW_TRY(open_model(b, b->o.draft_model));
    }
    if (!gw_drafts_on(b)) {
        return GW_OK;
    }
    GW_TRY(gw_draft_states_open(b));
    GW_TRY(gw_drafts_rest_open(b));
    d->rows = calloc(GW_CHUNK_MAX, sizeof *d->rows);
    d->rules = calloc(GW_PARALLEL_MAX, sizeof *d->rules);
    d->ids = calloc(GW_PARALLEL_MAX, sizeof *d->ids);
    d->of = calloc(n, sizeof(gw_seq *));
    d->found = calloc(n, sizeof *d->found);
    d->n_found = calloc(n, sizeof *d->n_found);
    return d->rows != NULL && d->rules != NULL && d->ids != NULL && d->of != NULL &&
                   d->found != NULL && d->n_found != NULL
               ? GW_OK
               : gw_fail(GW_E_NOMEM, "draft", "no memory for %d sequences", (int)b->parallel);
}

void gw_drafts_close(gw_batch *b) {
    gw_drafts *d = &b->drafts;
    gw_draft_states_close(b);
    gw_drafts_rest_close(b);
    gw_lookup_free(d->pool);
    gw_chain_free(d->chain);
    gw_session_free(d->model);
    free(d->outs);
    free(d->links);
    free(d->rows);
    free(d->rules);
    free(d->ids);
    free(d->of);
    free(d->found);
    free(d->n_found);
    free(d->spread);
}

gw_status gw_seq_drafts_open(const gw_batch *b, gw_seq *s) {
    return b->drafts.lookup && s->r->max_tokens != 0
               ? gw_lookup_new(NULL, 0, (size_t)s->room, &s->drafts.lookup)
               : GW_OK;
}

void gw_seq_drafts_close(gw_seq *s) { gw_lookup_free(s->drafts.lookup); }

void gw_seq_drafts_keep(gw_batch *b, const gw_seq *s) {
    const int32_t prompt = s->r->n_prompt;
    /* as it does pages: not across salts */
    const int shares = s->r->root == GW_PAGES_ROOT && !s->r->no_cache;
    if (b->drafts.pool != NULL && shares && s->n > prompt) {
        gw_lookup_keep(b->drafts.pool, s->tokens + prompt, (size_t)(s->n - prompt));
    }
}

void gw_seq_drafts_cut(gw_seq *s, int32_t n) {
    gw_seq_drafts *d = &s->drafts;
    d->read = d->read < n ? d->read : n;
    if (d->told > n) {
        gw_lookup_forget(d->lookup, (size_t)n);
        d->told = n;
    }
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static int32_t look_up(const gw_batch *b, gw_seq *s, int32_t most, int32_t *out) {
    gw_seq_drafts *d = &s->drafts;
    float trust[GW_DRAFT_MAX];
    int length = 0;
    if (d->lookup == NULL || most == 0) {
        return 0;
    }
    gw_lookup_append(d->lookup, s->tokens + d->told, (size_t)(s->n - d->told));
    d->told = s->n;
    if (b->drafts.lookup == GW_LOOKUP_SUFFIX) {
        return (int32_t)gw_lookup_vote(d->lookup, b->drafts.pool, (size_t)most, out, trust);
    }
    return (int32_t)gw_lookup_find(d->lookup, (size_t)most, out, &length);
}

/* ---- the draft model ------------------------------------------------------------------------- */

gw_status gw_drafts_read(gw_batch *b, const gw_row *rows, int32_t n) {
    int32_t at, followed = gw_drafts_rows(b, rows, n, &at);
    if (followed == 0) {
        return GW_OK;
    }
    GW_TRY(gw_draft_states_read(b, rows + at, at, followed));
    return gw_rows_prefill(b->drafts.model, rows + at, followed);
}

/* The model reads d->rows [*n]. */
static gw_status read_rows(gw_batch *b, int32_t *n) {
    int32_t rows = *n;
    *n = 0;
    if (rows == 0) {
        return GW_OK;
    }
    GW_TRY(gw_draft_states_give(b, b->drafts.rows, rows, 0));
    return gw_rows_prefill(b->drafts.model, b->drafts.rows, rows);
}

/* What the model has missed of an answer before position `end` joins d->rows [*n], which are read
 * when they are a chunk. */
static gw_status catch_up(gw_batch *b, gw_seq *s, int32_t end, int32_t *n) {
    while (s->drafts.read < end) {
        int32_t p = s->drafts.read++;
        b->drafts.rows[(*n)++] = (gw_row){.token = s->tokens[p], .pos = p, .slot = s->slot};
        GW_TRY(*n == b->chunk ? read_rows(b, n) : GW_OK);
    }
    return GW_OK;
}

/* Can the model draft for the sequence, as far as is known of its beginning? */
static int follows(const gw_batch *b, const gw_seq *s) {
    return gw_drafts_follow(b, s->slot) && gw_draft_states_has(b, s);
}

/* Hidden states do not wait for ever; when those of a sequence have to be read, those of all are:
 * a pass of many rows takes hardly longer. */
static gw_status read_states(gw_batch *b, int32_t n) {
    int32_t rows = 0, longest = 0;
    double start = gw_seconds_now();
    for (int32_t turn = 0; b->drafts.states.width > 0 && turn < 2; turn++) {
        for (int32_t i = 0; i < n; i++) {
            gw_seq *s = b->order[i];
            int32_t end = s->pos < s->n - 1 ? s->pos : s->n - 1, missed = end - s->drafts.read;
            if (s->state != GW_SEQ_RUNNING || missed <= 0 || !follows(b, s)) {
                continue;
            }
            longest = missed > longest ? missed : longest;
            GW_TRY(turn == 1 && longest >= GW_DECODE_MAX ? catch_up(b, s, end, &rows) : GW_OK);
        }
    }
    GW_TRY(read_rows(b, &rows));
    b->drafts.rest.spent += gw_seconds_now() - start;
    return GW_OK;
}

/* Rows of step j: of each sequence that has that many drafts before it and one to come; at [n]:
 * which. Of the first step what a sequence has missed comes before its row. */
static int32_t fill_step(gw_batch *b, int32_t n, int32_t j, int32_t *at) {
    gw_drafts *d = &b->drafts;
    int32_t rows = 0;
    for (int32_t i = 0; i < n; i++) {
        gw_seq *s = d->of[i];
        if (s->drafts.n <= j) {
            continue;
        }
        for (; j == 0 && s->drafts.read < s->n - 1; s->drafts.read++) {
            int32_t p = s->drafts.read;
            d->rows[rows++] = (gw_row){.token = s->tokens[p], .pos = p, .slot = s->slot};
        }
        int32_t p = s->n - 1 + j, token = j == 0 ? s->tokens[p] : s->drafts.token[j - 1];
        at[i] = rows;
        d->rows[rows++] = (gw_row){.token = token, .pos = p, .slot = s->slot};
    }
    return rows;
}

/* So much of a sequence's rows as the first step has no room for is read before, as a prompt. */
static gw_status read_long(gw_batch *b, int32_t n) {
    gw_drafts *d = &b->drafts;
    int32_t missed = 0, room = n > 0 ? gw_session_widest(d->model) - n : 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t own = d->of[i]->n - 1 - d->of[i]->drafts.read;
        if (own > GW_DECODE_MAX || own > room) {
            GW_TRY(catch_up(b, d->of[i], d->of[i]->n - 1, &missed));
        } else {
            room -= own > 0 ? own : 0;
        }
    }
    return read_rows(b, &missed);
}

/* By which rule the device draws from a row of the sequence; 0: it does not. */
static int rule_of(const gw_drafts *d, const gw_seq *s, gw_choice *rule) {
    const gw_choice none = {.temperature = 0.0f, .first = 1};
    int ruled = gw_writer_rule(s->writer, rule) && gw_session_draws(d->model, rule);
    /* a device numbers tokens as the draft model does: noise is of the target's */
    ruled &= (d->spread == NULL || rule->temperature == 0.0f) && d->chain == NULL;
    *rule = ruled ? *rule : none;
    rule->first -= d->block.rows > 0 ? d->block.first : 0; /* its rows stand at their own tokens */
    return ruled;
}

/* What the device draws from the pass's rows [n], where `ruled` says so: d->ids, else -1. */
static gw_status draw(gw_drafts *d, int32_t n, const int *ruled) {
    int any = 0;
    for (int32_t i = 0; i < n; i++) {
        any |= ruled[i];
    }
    if (any) {
        GW_TRY(gw_rows_draw(d->model, d->rules, d->ids));
    }
    for (int32_t i = 0; i < n; i++) {
        d->ids[i] = any && ruled[i] ? d->ids[i] : -1;
        if (d->ids[i] >= 0 && d->spread != NULL) {
            d->ids[i] = gw_model_draft_tokens(d->model->model)[d->ids[i]];
        }
    }
    return GW_OK;
}

static gw_status draw_step(gw_batch *b, int32_t n, int32_t j, int32_t rows, const int32_t *at) {
    const gw_choice none = {.temperature = 0.0f, .first = 1};
    gw_drafts *d = &b->drafts;
    int ruled[GW_PARALLEL_MAX] = {0};
    for (int32_t row = 0; row < rows; row++) {
        d->rules[row] = none;
    }
    for (int32_t i = 0; i < n; i++) {
        if (d->of[i]->drafts.n > j) {
            ruled[at[i]] = rule_of(d, d->of[i], &d->rules[at[i]]);
        }
    }
    return draw(d, rows, ruled);
}

/* Draft number j of a sequence, drawn or out of the logits of a row, with what row `link` of the
 * chain adds to them (-1: nothing); there is none: it has no more. */
static gw_status take_draft(gw_drafts *d, gw_seq *s, int32_t j, int32_t row, int32_t link) {
    int32_t id = d->ids[row];
    if (id < 0) {
        GW_TRY(gw_rows_fetch(d->model, row));
        const float *logits = gw_rows_logits(d->model, row);
        GW_TRY(link >= 0 ? gw_chain_logits(d->chain, link, logits, &logits) : GW_OK);
        if (logits != NULL && d->spread != NULL) {
            gw_model_spread(d->model->model, logits, d->spread);
            logits = d->spread;
        }
        gw_status status =
            logits != NULL ? gw_writer_draft(s->writer, logits, d->vocab, s->n + j, &id) : GW_OK;
        id = status == GW_OK ? id : -1; /* the text has its own say of it */
    }
    if (id < 0 || id >= d->vocab) {
        s->drafts.n = j;
    } else {
        s->drafts.token[j] = id;
    }
    return GW_OK;
}

/* The drafts of step j, whose rows have run; a sequence for which there is none has no more. */
static gw_status take_step(gw_batch *b, int32_t n, int32_t j, int32_t rows, const int32_t *at) {
    gw_drafts *d = &b->drafts;
    GW_TRY(draw_step(b, n, j, rows, at));
    for (int32_t i = 0; i < n; i++) {
        gw_seq *s = d->of[i];
        if (s->drafts.n > j) {
            GW_TRY(take_draft(d, s, j, at[i], -1));
        }
    }
    return GW_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Rows that a sequence has missed, and those of its block. */
static int32_t block_rows(const gw_seq *s) { return s->n - 1 - s->drafts.read + s->drafts.block; }

static int32_t fill_block(gw_drafts *d, const gw_seq *s, int32_t rows, int *ruled) {
    int32_t end = s->n - 1, at = end + d->block.first;
    for (int32_t p = s->drafts.read; p < end + s->drafts.block; p++) {
        d->rows[rows] = (gw_row){.token = p <= end ? s->tokens[p] : d->block.mask,
                                 .pos = p,
                                 .slot = s->slot,
                                 .last = p < end ? 0 : end - 1 + s->drafts.block};
        ruled[rows] = rule_of(d, s, &d->rules[rows]) && p >= at && p - at < s->drafts.n;
        rows++;
    }
    return rows;
}

/* Row j of the block of each sequence of d->of [first, end) that has so many drafts, after what it
 * drafted before; at [end]: where its block's rows begin; sure [end]: of its drafts so far. Returns
 * how many have one. */
static gw_status take_links(gw_batch *b, int32_t first, int32_t end, int32_t j, const int32_t *at,
                            double *sure, int32_t *n) {
    gw_drafts *d = &b->drafts;
    size_t width = (size_t)gw_session_hidden_width(d->model);
    *n = 0;
    for (int32_t i = first; i < end; i++) {
        gw_seq *s = d->of[i];
        if (s->drafts.n > j) {
            d->links[(*n)++] =
                (gw_chain_row){.text = s->slot,
                               .before = j > 0 ? s->drafts.token[j - 1] : s->tokens[s->n - 1],
                               .hidden = d->outs + (size_t)(at[i] + d->block.first + j) * width};
        }
    }
    GW_TRY(*n > 0 ? gw_chain_step(d->chain, d->links, *n) : GW_OK);
    for (int32_t i = first, link = 0; i < end; i++) {
        gw_seq *s = d->of[i];
        if (s->drafts.n <= j) {
            continue;
        }
        sure[i] *= d->links[link].trust >= 0.0f ? (double)d->links[link].trust : 1.0;
        if (j > 0 && sure[i] < SURE_LEAST && d->length.mode == GW_LENGTH_COST) {
            s->drafts.n = j;
        } else {
            GW_TRY(take_draft(d, s, j, at[i] + d->block.first + j, link));
        }
        link++;
    }
    return GW_OK;
}

/* The drafts of blocks whose tokens depend on one another: one step for all sequences. */
static gw_status take_chains(gw_batch *b, int32_t first, int32_t end, int32_t rows,
                             const int32_t *at) {
    gw_drafts *d = &b->drafts;
    double sure[GW_PARALLEL_MAX];
    int32_t width = gw_session_hidden_width(d->model), any = 1;
    GW_TRY(gw_session_hidden_read(d->model, 0, rows, d->outs, width));
    for (int32_t i = first; i < end; i++) {
        gw_chain_begin(d->chain, d->of[i]->slot);
        sure[i] = 1.0;
    }
    for (int32_t j = 0; j < GW_DRAFT_MAX && any > 0; j++) {
        GW_TRY(take_links(b, first, end, j, at, sure, &any));
    }
    return GW_OK;
}

/* Blocks of sequences of d->of from `first` on, as many as a pass has rows for; *end: the one after
 * them. A block is the last token and masks, and before it, in the same pass, come the rows of text
 * that it lacks. What a block's rows leave in the cache is not read again. */
static gw_status draft_blocks(gw_batch *b, int32_t first, int32_t n, int32_t *end) {
    gw_drafts *d = &b->drafts;
    int32_t rows = 0, widest = gw_session_widest(d->model), at[GW_PARALLEL_MAX];
    int ruled[GW_PARALLEL_MAX];
    for (*end = first; *end < n && rows + block_rows(d->of[*end]) <= widest; (*end)++) {
        at[*end] = rows + block_rows(d->of[*end]) - d->of[*end]->drafts.block;
        rows = fill_block(d, d->of[*end], rows, ruled);
    }
    GW_TRY(gw_draft_states_give(b, d->rows, rows, 1));
    GW_TRY(gw_rows_decode(d->model, d->rows, rows, NULL, NULL));
    GW_TRY(draw(d, rows, ruled));
    GW_TRY(d->chain != NULL ? take_chains(b, first, *end, rows, at) : GW_OK);
    for (int32_t i = first; i < *end; i++) {
        gw_seq *s = d->of[i];
        for (int32_t j = 0; d->chain == NULL && j < s->drafts.n; j++) {
            GW_TRY(take_draft(d, s, j, at[i] + d->block.first + j, -1));
        }
        s->drafts.read = s->n - 1;
        gw_writer_forget(s->writer);
    }
    return GW_OK;
}

static gw_status draft_by_blocks(gw_batch *b, int32_t n) {
    gw_drafts *d = &b->drafts;
    double start = gw_seconds_now();
    int32_t missed = 0;
    for (int32_t i = 0; i < n; i++) {
        gw_seq *s = d->of[i];
        /* The last token is the block's first row. */
        s->drafts.read = s->drafts.read < s->n - 1 ? s->drafts.read : s->n - 1;
        if (block_rows(s) > BLOCK_ROWS) {
            GW_TRY(catch_up(b, s, s->n - 1, &missed));
        }
    }
    GW_TRY(read_rows(b, &missed));
    for (int32_t first = 0, end; first < n; first = end) {
        GW_TRY(draft_blocks(b, first, n, &end));
    }
    if (n > 0) {
        gw_timing_add(&d->step, gw_seconds_now() - start, d->passes);
    }
    return GW_OK;
}

/* Drafts of the n sequences of d->of, as many as each has been promised. */
static gw_status draft_by_model(gw_batch *b, int32_t n) {
    gw_drafts *d = &b->drafts;
    int32_t at[GW_PARALLEL_MAX];
    GW_TRY(read_long(b, n));
    for (int32_t j = 0; j < GW_DRAFT_MAX; j++) {
        int32_t rows = fill_step(b, n, j, at);
        if (rows == 0) {
            break;
        }
        double start = gw_seconds_now();
        GW_TRY(gw_draft_states_give(b, d->rows, rows, j > 0));
        GW_TRY(gw_rows_decode(d->model, d->rows, rows, NULL, NULL));
        GW_TRY(gw_draft_states_own(b, d->rows, rows));
        GW_TRY(take_step(b, n, j, rows, at));
        gw_timing_add(&d->step, gw_seconds_now() - start, d->passes);
    }
    for (int32_t i = 0; i < n; i++) { /* what was fed: the last token and all drafts but the last */
        gw_seq *s = d->of[i];
        s->drafts.read = s->n;
        if (d->states.width == 0 && s->drafts.n > 0) { /* else drafts are read again */
            s->drafts.read += s->drafts.n - 1;
        }
        gw_writer_forget(s->writer);
    }
    return GW_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* How many each may have, and from where; those that have rows of their last token. */
static int32_t find_sources(gw_batch *b, int32_t n, int32_t room, int32_t *most) {
    gw_drafts *d = &b->drafts;
    int32_t any = 0;
    for (int32_t i = 0; i < n; i++) {
        gw_seq *s = b->order[i];
        int ready = s->state == GW_SEQ_RUNNING && s->end == s->n && s->end > s->pos;
        most[i] = ready ? gw_drafts_most(b, s, room) : 0;
        d->n_found[i] = look_up(b, s, most[i], d->found[i]);
        s->drafts.n = 0;
        s->drafts.source = d->n_found[i] > 0 ? GW_DRAFTS_LOOKUP : GW_DRAFTS_MODEL;
        int32_t said = d->block.rows > 0 ? d->block.rows - d->block.first : GW_DRAFT_MAX;
        said = !ready || !follows(b, s) ? 0 : most[i] < said ? most[i] : said;
        most[i] = d->n_found[i] > 0 ? d->n_found[i] : said;
        any += most[i];
    }
    return any;
}

/* Pages for a block of a sequence whose drafts have some: where there are none it is shorter. */
static gw_status reserve_block(gw_batch *b, gw_seq *s) {
    const gw_draft_block *block = &b->drafts.block;
    int32_t end = s->n - 1 + block->rows, got = s->n + s->drafts.n;
    end = end < b->n_ctx ? end : b->n_ctx;
    if (block->rows > 0 && end > got) {
        GW_TRY(gw_seq_reserve_free(b, s, end, &got));
    }
    s->drafts.block = got - (s->n - 1) < block->rows ? got - (s->n - 1) : block->rows;
    return GW_OK;
}

gw_status gw_drafts_propose(gw_batch *b, int32_t n, int32_t room) {
    gw_drafts *d = &b->drafts;
    int32_t most[GW_PARALLEL_MAX], base = 0, n_model = 0;
    GW_TRY(read_states(b, n));
    if (!gw_drafts_on(b) || room <= 0 || n == 0 || find_sources(b, n, room, most) == 0) {
        return GW_OK;
    }
    for (int32_t i = 0; i < n; i++) {
        base += b->order[i]->end - b->order[i]->pos;
    }
    gw_drafts_choose(b, n, most, base, room);
    for (int32_t i = 0; i < n; i++) {
        gw_seq *s = b->order[i];
        if (s->drafts.n == 0) {
            continue;
        }
        int32_t got = 0;
        GW_TRY(gw_seq_reserve_free(b, s, s->n + s->drafts.n, &got));
        s->drafts.n = got - s->n;
        if (s->drafts.source == GW_DRAFTS_LOOKUP) {
            memcpy(s->drafts.token, d->found[i], (size_t)s->drafts.n * sizeof *d->found[i]);
        } else if (s->drafts.n > 0) {
            GW_TRY(reserve_block(b, s));
            d->of[n_model++] = s;
        }
    }
    double start = gw_seconds_now();
    GW_TRY(d->block.rows > 0 ? draft_by_blocks(b, n_model) : draft_by_model(b, n_model));
    d->rest.spent += gw_seconds_now() - start;
    for (int32_t i = 0; i < n; i++) {
        b->order[i]->end += b->order[i]->drafts.n;
    }
    return GW_OK;
}
