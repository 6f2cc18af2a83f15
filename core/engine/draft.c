/* core/engine/draft.c - the speculative loop: propose, verify in one pass, keep what holds, rewind.
 * While a device verifies, a draft model elsewhere goes on as if all would be kept.
 * Everything is allocated in gw_drafter_new. */
#include "core/engine/draft.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/status.h"
#include "core/engine/draft_accept.h"
#include "core/engine/draft_lookup.h"

enum { MODEL, LOOKUP, SOURCES };

/* Noise of rejection sampling: a draw is used once, so a position that is drafted again gets other
 * numbers. Sequences with the top bit set are never those of a text. */
enum { STREAM_DRAFT, STREAM_TEST, STREAM_RESIDUAL, STREAM_BONUS, STREAMS };

/* Drafts of one pass and where they came from. */
typedef struct proposal {
    int source;
    int n;     /* to be verified                                                          */
    int known; /* drafted, n or more: token n is the guess of what follows when all holds */
    int ready; /* of the n: known before this pass                                        */
    int32_t tokens[GW_DECODE_MAX];
    float trust[GW_DECODE_MAX]; /* the draft's own probability of each token               */
    int behind;                 /* tokens that the draft model had to read in bulk         */
    double catch_up, seconds;
} proposal;

struct gw_drafter {
    gw_session *target, *draft; /* draft: NULL without a draft model */
    const gw_model *model;      /* the target's */
    gw_lookup *lookup;          /* or NULL      */
    gw_accept accept;
    int greedy_draft;
    double assume;
    int32_t n_vocab;
    int32_t draft_vocab; /* logits of the draft that are tokens of both */
    int32_t *text;       /* [n_ctx + 1] */
    int32_t n_text, n_ctx;
    int32_t shifted; /* tokens that a context shift dropped: noise goes on by place in the text */
    float *p;        /* [GW_DRAFT_MAX, n_vocab] draft probabilities; rejection with a model only */
    int weighed;     /* rows of p that belong to this pass; 0: each draft was certain of itself  */
    uint32_t round;
    enum { IN_TURN, BESIDE_DEVICE, BESIDE_HOST } ahead; /* where the target is then at work */
    struct work {
        gw_sampler *sampler;
        proposal *drafts; /* NULL: nothing is to be drafted ahead */
        int wanted, stepping;
        double start, step_start;
    } work;
    int n_next;                  /* drafts of the next pass that are there already: */
    int32_t next[GW_DECODE_MAX]; /* the draft session holds all but the last of them */
    float next_trust[GW_DECODE_MAX];
    gw_length length;
    gw_draft_record records[SOURCES];
    gw_draft_stats stats;
    gw_draft_watch_fn watch;
    void *watch_user;
};

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Place in the whole text of the token i places after what is held. */
static int32_t place(const gw_drafter *d, int i) { return d->shifted + d->n_text + i; }

static uint32_t stream(const gw_drafter *d, int which) {
    return 0x80000000u | ((d->round * STREAMS + (uint32_t)which) & 0x7fffffffu);
}

/* ---- life ------------------------------------------------------------------------------------ */

static gw_status check_options(const gw_drafter_options *o) {
    if (o->model == NULL && !o->lookup) {
        return gw_fail(GW_E_ARGUMENT, "draft", "neither a draft model nor lookup was asked for");
    }
    if (o->accept != GW_ACCEPT_EXACT && o->accept != GW_ACCEPT_REJECTION &&
        o->accept != GW_ACCEPT_POOL) {
        return gw_fail(GW_E_ARGUMENT, "draft", "%d is no way to accept", (int)o->accept);
    }
    if (!(o->assume >= 0 && o->assume <= 1)) {
        return gw_fail(GW_E_ARGUMENT, "assumed acceptance", "%g is not between 0 and 1", o->assume);
    }
    return GW_OK;
}

static void look_after_draft(void *user);

static gw_status open_draft_session(gw_drafter *d, const gw_drafter_options *o) {
    GW_TRY(gw_draft_same_vocab(d->model, o->model));
    int32_t its = gw_model_n_vocab(o->model);
    d->draft_vocab = its < d->n_vocab ? its : d->n_vocab;
    gw_session_options session = {.n_ctx = d->n_ctx, .kv_type = o->kv_type, .cancel = o->cancel};
    GW_TRY(gw_session_new(o->model, &session, &d->draft));
    /* Rejection sampling must not know how fast a device was: its text depends on the lengths. */
    if (o->accept != GW_ACCEPT_REJECTION && gw_session_leaves_host(d->target, d->draft)) {
        d->ahead = BESIDE_DEVICE;
    } else if (o->accept != GW_ACCEPT_REJECTION && gw_session_needs_host(d->target, d->draft)) {
        d->ahead = BESIDE_HOST;
        GW_TRY(gw_session_pause(d->target, look_after_draft, d));
    }
    if (o->accept == GW_ACCEPT_REJECTION) {
        d->p = calloc((size_t)GW_DRAFT_MAX * (size_t)d->n_vocab, sizeof *d->p);
        if (d->p == NULL) {
            return gw_fail(GW_E_NOMEM, "draft", "no memory for probabilities");
        }
    }
    return GW_OK;
}

gw_status gw_drafter_new(gw_session *target, const gw_drafter_options *options, gw_drafter **out) {
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
    GW_TRY_DONE(gw_length_parse(options->length, &d->length));
    d->text = calloc((size_t)d->n_ctx + 1, sizeof *d->text);
    if (d->text == NULL) {
        status = gw_fail(GW_E_NOMEM, "draft", "no memory for %d tokens", (int)d->n_ctx);
        goto done;
    }
    if (options->model != NULL) {
        GW_TRY_DONE(open_draft_session(d, options));
    }
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
        if (d->ahead == BESIDE_HOST) {
            (void)gw_session_pause(d->target, NULL, NULL);
        }
        gw_session_free(d->draft);
        gw_lookup_free(d->lookup);
        free(d->text);
        free(d->p);
        free(d);
    }
}

void gw_drafter_watch(gw_drafter *d, gw_draft_watch_fn fn, void *user) {
    d->watch = fn;
    d->watch_user = user;
}

/* ---- the text -------------------------------------------------------------------------------- */

static void append(gw_drafter *d, const int32_t *tokens, int32_t n) {
    memcpy(d->text + d->n_text, tokens, (size_t)n * sizeof *tokens);
    d->n_text += n;
    if (d->lookup != NULL) {
        gw_lookup_append(d->lookup, tokens, (size_t)n);
    }
}

/* The draft model forgets what is not text, and the last token: drafting begins with feeding it. */
static gw_status forget_drafts(gw_drafter *d) {
    int32_t fed = d->n_text > 0 ? d->n_text - 1 : 0;
    d->n_next = 0;
    if (d->draft != NULL && gw_session_pos(d->draft) > fed) {
        return gw_session_rewind(d->draft, fed);
    }
    return GW_OK;
}

/* Feed the draft model what it has not seen of the text. */
static gw_status catch_up(gw_drafter *d) {
    int32_t at = gw_session_pos(d->draft), behind = d->n_text - at;
    if (behind > GW_DECODE_MAX) {
        return gw_session_prefill(d->draft, d->text + at, (size_t)behind);
    }
    return behind > 0 ? gw_session_decode(d->draft, d->text + at, (size_t)behind) : GW_OK;
}

gw_status gw_drafter_prompt(gw_drafter *d, const int32_t *tokens, size_t n) {
    if (n > (size_t)(d->n_ctx - d->n_text)) {
        return gw_fail(GW_E_CONTEXT, "draft", "needs %zu tokens, the context holds %d",
                       n + (size_t)d->n_text, (int)d->n_ctx);
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= d->n_vocab) {
            return gw_fail(GW_E_ARGUMENT, "draft", "token %zu is %d, outside 0..%d", i,
                           (int)tokens[i], (int)d->n_vocab - 1);
        }
    }
    GW_TRY(forget_drafts(d));
    int32_t before = d->n_text;
    append(d, tokens, (int32_t)n);
    double start = seconds_now();
    gw_status status = d->draft != NULL ? catch_up(d) : GW_OK;
    if (status == GW_OK && n > GW_DECODE_MAX) {
        gw_timing_add(&d->records[MODEL].catch_up, (seconds_now() - start) / (double)n, 0);
    }
    if (status != GW_OK) {
        d->n_text = before;
        if (d->lookup != NULL) {
            gw_lookup_forget(d->lookup, (size_t)before);
        }
    }
    return status;
}

gw_status gw_drafter_rewind(gw_drafter *d, int32_t pos) {
    if (pos < 0 || pos > d->n_text) {
        return gw_fail(GW_E_ARGUMENT, "rewind", "position %d is outside 0..%d", (int)pos,
                       (int)d->n_text);
    }
    d->n_text = pos;
    if (d->lookup != NULL) {
        gw_lookup_forget(d->lookup, (size_t)pos);
    }
    return forget_drafts(d);
}

gw_status gw_drafter_shift(gw_drafter *d, int32_t keep, int32_t dropped) {
    if (keep < 0 || dropped < 0 || dropped > d->n_text - keep) {
        return gw_fail(GW_E_ARGUMENT, "context shift", "%d of %d tokens after %d", (int)dropped,
                       (int)d->n_text, (int)keep);
    }
    int32_t tail = d->n_text - keep - dropped;
    GW_TRY(gw_drafter_rewind(d, keep));
    memmove(d->text + keep, d->text + keep + dropped, (size_t)tail * sizeof *d->text);
    d->n_text += tail; /* the draft model reads it when it next drafts */
    d->shifted += dropped;
    if (d->lookup != NULL) {
        gw_lookup_append(d->lookup, d->text + keep, (size_t)tail);
    }
    return GW_OK;
}

/* ---- proposing ------------------------------------------------------------------------------- */

static const float *last_logits(const gw_session *s) {
    size_t row = 0;
    while (gw_session_logits(s, row + 1) != NULL) {
        row++;
    }
    return gw_session_logits(s, row);
}

/* Draw the next draft from the draft's logits; 0 when they leave none. */
static int draw_draft(gw_drafter *d, gw_sampler *sampler, gw_candidates *c, proposal *out) {
    int j = out->known, greedy = d->greedy_draft || gw_sampler_is_greedy(sampler);
    int32_t pos = place(d, j);
    uint64_t seed = gw_sampler_seed(sampler);
    size_t best = gw_candidates_best(c);
    if (best == c->n) {
        return 0;
    }
    if (d->accept == GW_ACCEPT_REJECTION) {
        float *p = d->p + (size_t)j * (size_t)d->n_vocab;
        gw_draft_weigh(c, greedy);
        memset(p, 0, (size_t)d->n_vocab * sizeof *p);
        for (size_t i = 0; i < c->n; i++) {
            p[c->at[i].token] = c->at[i].key;
        }
        size_t at = gw_candidates_draw_of(c, seed, stream(d, STREAM_DRAFT), pos);
        out->tokens[j] = c->at[at].token;
        out->trust[j] = c->at[at].key;
        d->weighed = j + 1;
    } else {
        size_t at = greedy ? best : gw_candidates_draw(c, seed, pos);
        out->tokens[j] = c->at[at].token;
        gw_draft_weigh(c, 0);
        out->trust[j] = c->at[at].key;
    }
    gw_sampler_ahead(sampler, out->tokens[j]);
    out->known++;
    return 1;
}

static gw_status draw_from(gw_drafter *d, gw_sampler *sampler, proposal *out) {
    gw_candidates c;
    GW_TRY(gw_sampler_narrow(sampler, last_logits(d->draft), d->draft_vocab, place(d, out->known),
                             &c));
    draw_draft(d, sampler, &c, out);
    return GW_OK;
}

/* One more draft, behind the text and those that are known. GW_OK without one: none is possible. */
static gw_status draft_one(gw_drafter *d, gw_sampler *sampler, proposal *out) {
    if (out->known > 0) {
        GW_TRY(gw_session_decode(d->draft, &out->tokens[out->known - 1], 1));
    }
    return draw_from(d, sampler, out);
}

/* The sampler counts what is known as text until gw_sampler_back. */
static void count_known(gw_sampler *sampler, const proposal *out) {
    for (int j = 0; j < out->known; j++) {
        gw_sampler_ahead(sampler, out->tokens[j]);
    }
}

static gw_status draft_by_model(gw_drafter *d, gw_sampler *sampler, const gw_length_plan *plan,
                                proposal *out) {
    const gw_draft_record *record = &d->records[MODEL];
    double start = seconds_now();
    gw_status status = out->known > 0 ? GW_OK : catch_up(d);
    double now = seconds_now();
    if (out->behind > 0) {
        out->catch_up = now - start;
        start = now;
    }
    count_known(sampler, out);
    while (status == GW_OK && gw_length_goes_on(&d->length, record, plan, out->trust, out->n)) {
        if (out->n == out->known) {
            status = draft_one(d, sampler, out);
        } else {
            out->ready++;
        }
        if (status != GW_OK || out->n == out->known) {
            break;
        }
        out->n++;
    }
    gw_sampler_back(sampler);
    out->seconds = seconds_now() - start;
    return status;
}

/* A longer copy is trusted more; what that is worth, the record learns. */
static float lookup_trust(int length) { return (float)length / ((float)length + 2.0f); }

static void draft_by_lookup(const gw_drafter *d, const gw_length_plan *plan, int length,
                            proposal *out) {
    const gw_draft_record *record = &d->records[LOOKUP];
    while (gw_length_goes_on(&d->length, record, plan, out->trust, out->n)) {
        out->trust[out->n] = lookup_trust(length + out->n);
        out->n++;
    }
    out->known = out->n;
}

/* What was drafted ahead becomes the beginning of this proposal. */
static void take_next(gw_drafter *d, proposal *out) {
    out->known = d->n_next;
    memcpy(out->tokens, d->next, (size_t)d->n_next * sizeof *d->next);
    memcpy(out->trust, d->next_trust, (size_t)d->n_next * sizeof *d->next_trust);
    d->n_next = 0;
}

/* Chooses the source and the length, and drafts. */
static gw_status propose(gw_drafter *d, gw_sampler *sampler, int limit, proposal *out) {
    gw_length_plan by_model = {0}, by_lookup = {0};
    int length = 0, behind = 0;
    d->weighed = 0;
    if (limit <= 0 ||
        d->length.width[0].n == 0) { /* the first pass tells what a single step costs */
        return forget_drafts(d);
    }
    if (d->lookup != NULL) {
        size_t found = gw_lookup_find(d->lookup, (size_t)limit, out->tokens, &length);
        double trust = found > 0 ? (double)lookup_trust(length) : -1.0;
        by_lookup = gw_length_choose(&d->length, &d->records[LOOKUP], (int)found, 0, trust);
    }
    if (d->draft != NULL) {
        behind = d->n_text - gw_session_pos(d->draft);
        behind = behind > 2 ? behind : -d->n_next; /* two tokens cost what one does */
        by_model = gw_length_choose(&d->length, &d->records[MODEL], limit, behind, -1.0);
    }
    if (by_lookup.k > 0 && (by_model.k == 0 || by_lookup.rate >= by_model.rate)) {
        out->source = LOOKUP;
        draft_by_lookup(d, &by_lookup, length, out);
        return forget_drafts(d);
    }
    if (by_model.k > 0) {
        out->source = MODEL;
        out->behind = behind > 0 ? behind : 0;
        take_next(d, out);
        return draft_by_model(d, sampler, &by_model, out);
    }
    return forget_drafts(d);
}

/* ---- verifying ------------------------------------------------------------------------------- */

/* The token after i accepted drafts, from the target's logits; *kept when it is draft i. */
static gw_status judge_by_rejection(const gw_drafter *d, gw_sampler *sampler, gw_candidates *c,
                                    const proposal *drafts, int i, int32_t *token, int *kept) {
    int32_t pos = place(d, i);
    uint64_t seed = gw_sampler_seed(sampler);
    uint32_t draw = stream(d, STREAM_BONUS);
    gw_draft_weigh(c, gw_sampler_is_greedy(sampler));
    if (i < drafts->n) {
        int32_t drafted = drafts->tokens[i];
        const float *p = i < d->weighed ? d->p + (size_t)i * (size_t)d->n_vocab : NULL;
        float u = gw_draft_uniform(seed, stream(d, STREAM_TEST), pos);
        if (gw_draft_keeps(gw_draft_weight(c, drafted), p != NULL ? p[drafted] : 1.0f, u)) {
            *token = drafted;
            *kept = 1;
            return GW_OK;
        }
        gw_draft_residual(c, p, drafted);
        draw = stream(d, STREAM_RESIDUAL);
    }
    size_t at = gw_candidates_draw_of(c, seed, draw, pos);
    if (at == c->n) {
        return gw_fail(GW_E_NUMERIC, "logits", "bias and penalties leave no token at position %d",
                       (int)pos);
    }
    *token = c->at[at].token;
    return GW_OK;
}

static gw_status judge(const gw_drafter *d, gw_sampler *sampler, const proposal *drafts, int i,
                       int32_t *token, int *kept) {
    int32_t pos = place(d, i);
    gw_candidates c;
    *kept = 0;
    GW_TRY(
        gw_sampler_narrow(sampler, gw_session_logits(d->target, (size_t)i), d->n_vocab, pos, &c));
    int drafted = i < drafts->n;
    if (d->assume > 0) {
        float u = gw_draft_uniform(gw_sampler_seed(sampler), stream(d, STREAM_TEST), pos);
        if (i < drafts->known && (double)u < d->assume) { /* also the guess behind the drafts */
            *token = drafts->tokens[i];
            *kept = drafted;
            return GW_OK;
        }
    } else if (d->accept == GW_ACCEPT_REJECTION) {
        return judge_by_rejection(d, sampler, &c, drafts, i, token, kept);
    } else if (d->accept == GW_ACCEPT_POOL) {
        *kept = drafted && gw_draft_in_pool(&c, drafts->tokens[i]);
    }
    if (*kept) {
        *token = drafts->tokens[i];
        return GW_OK;
    }
    GW_TRY(gw_sampler_choose(sampler, &c, pos, token));
    *kept = drafted && d->assume == 0 && *token == drafts->tokens[i];
    return GW_OK;
}

/* How many drafts the next pass may want, behind the guess of the token before them. */
static int known_wanted(const gw_drafter *d, const proposal *drafts) {
    int more = d->length.mode == GW_LENGTH_HEURISTIC ? 2 : 0;
    int wanted = drafts->n + 1 + drafts->n + more, room = d->n_ctx - d->n_text;
    wanted = wanted < GW_DECODE_MAX ? wanted : GW_DECODE_MAX;
    return wanted < room ? wanted : room;
}

/* ---- drafting ahead: while the target is at work, as if all drafts held. Text is at stake neither
 * way, so that an error only ends this; what is lasting shows again. --------------------------- */

/* By measured times no step begins that would end after the target's. */
static int goes_on_ahead(const gw_drafter *d) {
    const double safe = 0.9;
    const struct work *w = &d->work;
    double step = d->records[MODEL].step.seconds;
    double most = safe * gw_length_width_seconds(&d->length, w->drafts->n + 1) - step;
    return w->drafts->known < w->wanted &&
           (d->length.mode != GW_LENGTH_COST || seconds_now() - w->start <= most);
}

static void begin_step(gw_drafter *d) {
    struct work *w = &d->work;
    w->step_start = seconds_now();
    w->stepping =
        goes_on_ahead(d) &&
        gw_session_decode_begin(d->draft, &w->drafts->tokens[w->drafts->known - 1], 1) == GW_OK;
}

/* 1 when there is one more draft. */
static int end_step(gw_drafter *d) {
    struct work *w = &d->work;
    int before = w->drafts->known;
    if (!w->stepping) {
        return 0;
    }
    w->stepping = 0;
    if (gw_session_decode_end(d->draft) == GW_OK) {
        (void)draw_from(d, w->sampler, w->drafts);
    }
    d->stats.ahead += (uint64_t)(w->drafts->known - before);
    return w->drafts->known > before;
}

/* Between two parts of the target's pass on the host: by measured times, not before the step ends.
 */
static void look_after_draft(void *user) {
    gw_drafter *d = user;
    int early = d->length.mode == GW_LENGTH_COST &&
                seconds_now() - d->work.step_start < d->records[MODEL].step.seconds;
    if (d->work.drafts != NULL && !early && end_step(d)) {
        begin_step(d);
    }
}

/* The target's pass, and beside it the draft's. */
static gw_status decode_both(gw_drafter *d, gw_sampler *sampler, proposal *drafts,
                             const int32_t *rows) {
    if (d->ahead == IN_TURN || drafts->source != MODEL || drafts->n == 0) {
        return gw_session_decode(d->target, rows, (size_t)drafts->n + 1);
    }
    d->work = (struct work){.sampler = sampler,
                            .drafts = drafts,
                            .wanted = known_wanted(d, drafts),
                            .start = seconds_now()};
    count_known(sampler, drafts);
    if (d->ahead == BESIDE_HOST) {
        begin_step(d);
    }
    gw_status status = gw_session_decode_begin(d->target, rows, (size_t)drafts->n + 1);
    if (d->ahead == BESIDE_DEVICE && status == GW_OK) {
        do {
            begin_step(d);
        } while (end_step(d));
    }
    (void)end_step(d); /* also behind a target that failed */
    gw_sampler_back(sampler);
    d->work.drafts = NULL;
    return status == GW_OK ? gw_session_decode_end(d->target) : status;
}

/* One pass over the pending token and the drafts. Logits of a draft that no text would contain may
 * be broken where the text's own are not: then the drafts go. */
static gw_status verify(gw_drafter *d, gw_sampler *sampler, proposal *drafts) {
    int32_t rows[GW_DECODE_MAX];
    rows[0] = d->text[d->n_text - 1];
    memcpy(rows + 1, drafts->tokens, (size_t)drafts->n * sizeof *rows);
    gw_status status = decode_both(d, sampler, drafts, rows);
    if (status == GW_E_NUMERIC && drafts->n > 0) {
        drafts->n = drafts->known = 0;
        status = gw_session_decode(d->target, rows, 1);
    }
    return status;
}

typedef struct verdict {
    int n, accepted;
} verdict;

/* Tokens out of the logits of the pass. An error after the first token waits for the next call. */
static gw_status read_pass(gw_drafter *d, gw_sampler *sampler, const proposal *drafts,
                           int32_t *tokens, verdict *out) {
    int kept = 1, ended = 0;
    for (int i = 0; i <= drafts->n && kept && !ended; i++) {
        int32_t token = 0;
        gw_status status = judge(d, sampler, drafts, i, &token, &kept);
        ended = status == GW_OK && gw_token_is_end(d->model, token);
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

/* ---- one call -------------------------------------------------------------------------------- */

static void count(gw_drafter *d, const proposal *drafts, const verdict *v,
                  const gw_length_pass *pass) {
    gw_draft_stats *s = &d->stats;
    s->passes++;
    s->pass_tokens += (uint64_t)v->n;
    s->plain += drafts->n == 0;
    s->drafted += (uint64_t)drafts->n;
    s->accepted += (uint64_t)v->accepted;
    s->ahead_used += (uint64_t)drafts->ready;
    if (drafts->source == LOOKUP) {
        s->looked_up += (uint64_t)drafts->n;
        s->looked_up_accepted += (uint64_t)v->accepted;
    }
    for (int j = 0; j < drafts->n && j <= v->accepted; j++) {
        s->tried_at[j]++;
        s->accepted_at[j] += j < v->accepted;
    }
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
static gw_status forget_rejected(gw_drafter *d, const proposal *drafts, const verdict *v) {
    if (gw_session_pos(d->target) > d->n_text - 1) {
        GW_TRY(gw_session_rewind(d->target, d->n_text - 1));
    }
    int more = drafts->known - drafts->n - 1;
    if (more <= 0 || v->accepted != drafts->n || v->n != drafts->n + 1 ||
        d->text[d->n_text - 1] != drafts->tokens[drafts->n]) {
        return forget_drafts(d);
    }
    d->n_next = more;
    memcpy(d->next, drafts->tokens + drafts->n + 1, (size_t)more * sizeof *d->next);
    memcpy(d->next_trust, drafts->trust + drafts->n + 1, (size_t)more * sizeof *d->next_trust);
    return GW_OK;
}

static gw_status speculate(gw_drafter *d, gw_sampler *sampler, size_t capacity, int32_t *tokens,
                           size_t *n) {
    int32_t before = d->n_text, pos = before - 1, room = d->n_ctx - before;
    int limit = capacity - 1 < GW_DRAFT_MAX ? (int)capacity - 1 : GW_DRAFT_MAX;
    proposal drafts = {0};
    verdict v = {0};
    gw_status status = propose(d, sampler, limit < room ? limit : room, &drafts);
    double start = seconds_now(), verified = start;
    if (status == GW_OK) {
        status = verify(d, sampler, &drafts);
        verified = seconds_now();
    }
    if (status == GW_OK) {
        status = read_pass(d, sampler, &drafts, tokens, &v);
    }
    if (status != GW_OK) {
        forget_drafts(d);
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
                           .catch_up = drafts.catch_up,
                           .draft = drafts.seconds,
                           .verify = verified - start,
                           .pick = seconds_now() - verified};
    append(d, tokens, v.n);
    count(d, &drafts, &v, &pass);
    d->round++;
    *n = (size_t)v.n;
    return forget_rejected(d, &drafts, &v);
}

/* The token after the prompt, whose logits the session has. */
static gw_status first_token(gw_drafter *d, gw_sampler *sampler, int32_t *token) {
    const float *logits = last_logits(d->target);
    if (logits == NULL) {
        return gw_fail(GW_E_ARGUMENT, "draft", "the session has no logits to begin with");
    }
    GW_TRY(gw_sampler_pick(sampler, logits, place(d, 0), token));
    if (!gw_token_is_end(d->model, *token)) {
        GW_TRY(gw_sampler_accept(sampler, *token));
    }
    append(d, token, 1);
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
    out->draft_step_seconds = d->records[MODEL].step.seconds;
    for (int w = 0; w < GW_DECODE_MAX; w++) {
        out->width_seconds[w] = d->length.width[w].n > 0 ? d->length.width[w].seconds : 0;
    }
}
