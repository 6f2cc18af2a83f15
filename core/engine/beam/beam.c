/* core/engine/beam/beam.c - beam search: texts side by side, of each as many running ones as there
 * are beams, a row of a decode pass for each. Prompts are read one after the other. */
#include "core/engine/beam/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/options.h"

enum { DEFAULT_CONTEXT = 4096 };

/* ---- what the model's files say -------------------------------------------------------------- */

static double number_of(const json_t *g, const char *key, double absent) {
    const json_t *value = json_object_get(g, key);
    return json_is_number(value) ? json_number_value(value) : absent;
}

static int32_t count_of(const json_t *g, const char *key, int32_t least, int32_t absent) {
    double x = number_of(g, key, absent);
    return x >= least && x <= INT32_MAX ? (int32_t)x : absent;
}

void gw_beam_defaults(const gw_model *m, gw_beam_options *out) {
    const json_t *g = gw_checkpoint_generation(m->checkpoint);
    const json_t *early = json_object_get(g, "early_stopping");
    double penalty = number_of(g, "length_penalty", 1.0);
    int32_t beams = count_of(g, "num_beams", 1, 1);
    *out = (gw_beam_options){
        .n_beams = beams < GW_BEAMS_MAX ? beams : GW_BEAMS_MAX,
        .length_penalty = isfinite(penalty) ? (float)penalty : 1.0f,
        .early = json_is_true(early)     ? GW_BEAM_EARLY_YES
                 : json_is_string(early) ? GW_BEAM_EARLY_NEVER
                                         : GW_BEAM_EARLY_NO,
        .no_repeat = count_of(g, "no_repeat_ngram_size", 0, 0),
        .min_length = count_of(g, "min_length", 0, 0),
        .max_length = count_of(g, "max_length", 0, 0),
        .forced_end = count_of(g, "forced_eos_token_id", 0, -1),
    };
}

static void add_end(gw_beam *b, const json_t *id) {
    int room = b->n_ends < (int)(sizeof b->ends / sizeof b->ends[0]);
    if (room && json_is_integer(id) && json_integer_value(id) >= 0 &&
        json_integer_value(id) < b->model->hp.n_vocab) {
        b->ends[b->n_ends++] = (int32_t)json_integer_value(id);
    }
}

/* Tokens that end a text: the vocabulary's, or without one what the files have, or the spec. */
static void find_ends(gw_beam *b) {
    const gw_vocab *v = b->model->vocab;
    const json_t *said = gw_checkpoint_generation(b->model->checkpoint);
    const json_t *ids = json_object_get(said, "eos_token_id");
    for (int i = 0; v != NULL && i < v->n_end; i++) {
        b->ends[b->n_ends++] = v->end[i];
    }
    if (b->n_ends == 0 && json_is_array(ids)) {
        for (size_t i = 0; i < json_array_size(ids); i++) {
            add_end(b, json_array_get(ids, i));
        }
    } else if (b->n_ends == 0) {
        add_end(b, ids);
    }
    if (b->n_ends == 0) {
        double end = gw_spec_named_number(gw_weights_blueprint(b->model->weights), &b->model->hp,
                                          "eos", -1.0);
        if (end >= 0.0) {
            b->ends[b->n_ends++] = (int32_t)end;
        }
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static gw_status check_options(gw_beam *b) {
    gw_beam_options *o = &b->o;
    if (o->n_beams < 1 || o->n_beams > GW_BEAMS_MAX) {
        return gw_fail(GW_E_ARGUMENT, "beams", "%d is outside 1..%d", (int)o->n_beams,
                       GW_BEAMS_MAX);
    }
    o->texts = o->texts > 0 ? o->texts : 1;
    if (o->texts > GW_PARALLEL_MAX / o->n_beams) {
        return gw_fail(GW_E_ARGUMENT, "beams", "%d texts of %d beams are more than %d",
                       (int)o->texts, (int)o->n_beams, GW_PARALLEL_MAX);
    }
    if (!isfinite(o->length_penalty)) {
        return gw_fail(GW_E_ARGUMENT, "length penalty", "is no number");
    }
    if (o->n_ctx < 0 || o->no_repeat < 0 || o->min_length < 0 || o->max_length < 0 ||
        (int)o->early < 0 || o->early > GW_BEAM_EARLY_NEVER) {
        return gw_fail(GW_E_ARGUMENT, "beams", "an option below 0, or no way to stop");
    }
    int32_t trained = b->model->hp.n_ctx;
    b->n_ctx = o->n_ctx > 0 ? o->n_ctx : trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
    return GW_OK;
}

static int32_t most_rows(const gw_beam *b) {
    int32_t all = b->n_lanes * b->o.n_beams;
    return all < GW_DECODE_MAX ? GW_DECODE_MAX : all;
}

static gw_status make_session(gw_beam *b) {
    const gw_beam_options *o = &b->o;
    gw_session_options so = {.n_ctx = b->n_ctx,
                             .chunk = o->chunk,
                             .kv_type = o->kv_type,
                             .cancel = o->cancel,
                             .progress = o->progress,
                             .progress_user = o->progress_user};
    int32_t slots = b->n_lanes * o->n_beams;
    b->per = (b->n_ctx - 1) / GW_PAGE + 1;
    b->widest = most_rows(b);
    gw_sharing sharing = {.slots = slots,
                          .pages = (int64_t)slots * b->per,
                          .widest = b->widest,
                          .sources = b->model->hp.n_source > 0};
    GW_TRY(gw_session_make(b->model, &so, &sharing, &b->session));
    b->chunk = b->session->chunk;
    return GW_OK;
}

static gw_status make_lane(gw_beam *b, int32_t at) {
    gw_beam_lane *lane = &b->lane[at];
    size_t n = (size_t)b->o.n_beams;
    lane->first_slot = at * b->o.n_beams;
    lane->views.grid = b->session->views.grid;
    lane->views.whole = b->session->views.whole;
    lane->fork = calloc(n, sizeof *lane->fork);
    lane->next = calloc(n, sizeof *lane->next);
    if (lane->fork == NULL || lane->next == NULL) {
        return GW_E_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        lane->fork[i].slot = lane->first_slot + (int32_t)i;
        lane->fork[i].pages = calloc((size_t)b->per, sizeof(int32_t));
        if (lane->fork[i].pages == NULL) {
            return GW_E_NOMEM;
        }
    }
    return GW_OK;
}

static gw_status make(gw_beam *b) {
    gw_status status = GW_OK;
    GW_TRY(check_options(b));
    b->n_lanes = b->o.texts;
    find_ends(b);
    GW_TRY(make_session(b));
    int32_t pages = b->n_lanes * b->o.n_beams * b->per;
    int32_t pass = b->session->most_rows;
    size_t rows = (size_t)(pass > b->widest ? pass : b->widest);
    b->lane = calloc((size_t)b->n_lanes, sizeof *b->lane);
    b->refs = calloc((size_t)pages, sizeof *b->refs);
    b->free = calloc((size_t)pages, sizeof *b->free);
    b->rows = calloc(rows, sizeof *b->rows);
    b->room = malloc(gw_rows_copy_bytes(b->session));
    b->logits = malloc((size_t)b->model->hp.n_vocab * sizeof *b->logits);
    int fine = b->lane != NULL && b->refs != NULL && b->free != NULL && b->rows != NULL &&
               b->room != NULL && b->logits != NULL;
    for (int32_t i = 0; fine && status == GW_OK && i < b->n_lanes; i++) {
        status = make_lane(b, i);
    }
    if (!fine || status != GW_OK) {
        return gw_fail(GW_E_NOMEM, "beams", "no memory for %d texts", (int)b->n_lanes);
    }
    for (b->n_free = 0; b->n_free < pages; b->n_free++) {
        b->free[b->n_free] = pages - 1 - b->n_free;
    }
    return GW_OK;
}

gw_status gw_beam_new_sized(gw_model *model, const gw_beam_options *options, size_t size,
                            gw_beam **out) {
    gw_beam *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return gw_fail(GW_E_NOMEM, "beams", "no memory for a search");
    }
    b->model = model;
    gw_beam_defaults(model, &b->o);
    gw_status status =
        options != NULL ? gw_options_take(&b->o, sizeof b->o, options, size, "beams") : GW_OK;
    if (status == GW_OK && model->weights == NULL) {
        status =
            gw_fail(GW_E_UNSUPPORTED, model->name, "only the vocabulary of this model is open");
    }
    status = status == GW_OK ? make(b) : status;
    if (status != GW_OK) {
        gw_beam_free(b);
        return status;
    }
    *out = b;
    return GW_OK;
}

void gw_beam_free(gw_beam *b) {
    if (b == NULL) {
        return;
    }
    for (int32_t i = 0; b->lane != NULL && i < b->n_lanes; i++) {
        gw_beam_lane *lane = &b->lane[i];
        for (int k = 0; lane->fork != NULL && k < b->o.n_beams; k++) {
            free(lane->fork[k].pages);
        }
        free(lane->fork);
        free(lane->next);
        gw_views_free(&lane->views);
    }
    gw_session_free(b->session);
    free(b->lane);
    free(b->refs);
    free(b->free);
    free(b->rows);
    free(b->room);
    free(b->logits);
    free(b);
}

void gw_beam_texts_free(gw_beam_text *texts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(texts[i].tokens);
        texts[i] = (gw_beam_text){.n = 0};
    }
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* Tokens of a text of this input. */
static int32_t most_of(const gw_beam *b, const gw_beam_input *in) {
    int64_t most = b->n_ctx, asked = (int64_t)in->n_prompt + in->max_tokens;
    int64_t stated = b->o.max_length;
    most = in->max_tokens >= 0 && asked < most                 ? asked
           : in->max_tokens < 0 && stated > 0 && stated < most ? stated
                                                               : most;
    return (int32_t)most;
}

static gw_status check_tokens(const gw_beam *b, const char *what, size_t index,
                              const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= b->model->hp.n_vocab) {
            return gw_fail(GW_E_ARGUMENT, what, "text %zu: token %zu is %d, outside 0..%d",
                           index + 1, i, (int)tokens[i], (int)b->model->hp.n_vocab - 1);
        }
    }
    return GW_OK;
}

static gw_status check_input(const gw_beam *b, const gw_beam_input *in, size_t index) {
    int reads = b->model->hp.n_source > 0;
    size_t longest = in->n_source > in->n_prompt + 1 ? in->n_source : in->n_prompt + 1;
    if (in->n_prompt == 0 || in->n_forced >= in->n_prompt + !reads || reads != (in->n_source > 0)) {
        return gw_fail(GW_E_ARGUMENT, "beams", "text %zu has no %s", index + 1,
                       in->n_prompt == 0 ? "prompt"
                       : reads           ? "source"
                                         : "use for a source");
    }
    if (longest > (size_t)b->n_ctx || (int64_t)in->n_prompt >= most_of(b, in)) {
        return gw_fail(GW_E_CONTEXT, "context",
                       "text %zu needs %zu tokens, a text may have %d of a context of %d",
                       index + 1, longest, (int)most_of(b, in), (int)b->n_ctx);
    }
    if (in->n_seen > 0 && b->session->seeing.parts == 0) {
        return gw_fail(GW_E_UNSUPPORTED, "image", "the model was opened without eyes");
    }
    GW_TRY(check_tokens(b, "source", index, in->source, in->n_source));
    return check_tokens(b, "prompt", index, in->prompt, in->n_prompt);
}

/* How much less positions count at token n of a text. As the publishers' code has it, which feeds
 * generated tokens one by one, padding among the tokens before counts for those of the prompt
 * alone. */
static int32_t less_of(const gw_beam *b, const gw_beam_lane *lane, const int32_t *tokens,
                       int32_t n) {
    int32_t pad = b->model->hp.uncounted, before = 0;
    for (int32_t i = 0; pad >= 0 && n < (int32_t)lane->in->n_prompt && i < n; i++) {
        before += tokens[i] == pad;
    }
    return pad >= 0 && tokens[n] == pad ? n + 1 : before;
}

static gw_row row_of(const gw_beam *b, const gw_beam_lane *lane, const gw_beam_fork *f,
                     const int32_t *tokens, int32_t pos) {
    gw_row row = {.token = tokens[pos],
                  .pos = pos,
                  .slot = f->slot,
                  .last = lane->in->n_source > 0 ? (int32_t)lane->in->n_source - 1 : 0,
                  .less = less_of(b, lane, tokens, pos) + gw_views_less(&lane->views, pos)};
    int any = 0;
    if (lane->views.n > 0 && pos < (int32_t)lane->in->n_prompt) {
        gw_views_look(&lane->views, pos, 1, &row.seen, &any);
    }
    return row;
}

static gw_status read_source(gw_beam *b, const gw_beam_lane *lane) {
    const gw_beam_input *in = lane->in;
    int32_t n = ((int32_t)in->n_source - 1) / GW_PAGE + 1;
    int32_t *pages = calloc((size_t)n, sizeof *pages);
    if (pages == NULL) {
        return gw_fail(GW_E_NOMEM, "beams", "no memory for %d pages", (int)n);
    }
    for (int32_t i = 0; i < n; i++) { /* a source's layers have no other */
        pages[i] = lane->first_slot * b->per + i;
    }
    gw_status status = gw_rows_map_source(b->session, lane->first_slot, b->o.n_beams, pages, n);
    free(pages);
    return status == GW_OK
               ? gw_rows_source(b->session, lane->first_slot, in->source, (int32_t)in->n_source)
               : status;
}

/* What follows row `at` of a pass or head, of running text i. */
static gw_status offer(gw_beam *b, gw_beam_lane *lane, int i, int32_t at) {
    const float *x = gw_rows_logits(b->session, at);
    if (x == NULL) {
        return gw_fail(GW_E_NUMERIC, b->model->name,
                       "logits of text %zu are not finite: the weights or the numbers of this "
                       "model are broken",
                       lane->index + 1);
    }
    memcpy(b->logits, x, (size_t)b->model->hp.n_vocab * sizeof *x);
    gw_hypotheses_offer(&lane->h, i, b->logits, b->model->hp.n_vocab);
    return GW_OK;
}

/* The texts that follow from what was offered; pos: positions that are in the cache. */
static gw_status step(gw_beam *b, gw_beam_lane *lane, int32_t pos) {
    int parent[GW_BEAMS_MAX];
    gw_hypotheses_step(&lane->h, parent);
    return lane->h.done ? GW_OK : gw_beam_fork_all(b, lane, parent, lane->h.n_running, pos);
}

static gw_status begin(gw_beam *b, gw_beam_lane *lane, const gw_beam_input *in, size_t index) {
    lane->in = in;
    lane->index = index;
    GW_TRY(gw_hypotheses_new(&b->o, b->ends, b->n_ends, in, most_of(b, in), &lane->h));
    if (in->n_source > 0) {
        GW_TRY(read_source(b, lane));
    }
    gw_beam_fork *f = &lane->fork[0];
    int32_t n = (int32_t)in->n_prompt, last = 0;
    GW_TRY(gw_views_add(&lane->views, in->seen, in->n_seen, 0, in->n_prompt));
    GW_TRY(gw_beam_reserve(b, f, n - 1));
    for (int32_t at = 0; at < n;) {
        int whole; /* rows of a picture that see one another are in a pass of their own */
        int32_t some = n - at < b->chunk ? n - at : b->chunk;
        int32_t part = gw_views_stop(&lane->views, at, &whole) - at;
        some = whole || part < some ? part : some;
        for (int32_t i = 0; i < some; i++) {
            b->rows[i] = row_of(b, lane, f, in->prompt, at + i);
        }
        GW_TRY(gw_rows_prefill(b->session, b->rows, some));
        last = some - 1;
        at += some;
    }
    GW_TRY(gw_rows_head(b->session, last, 1));
    GW_TRY(offer(b, lane, 0, 0));
    return step(b, lane, n);
}

/* ---- search ---------------------------------------------------------------------------------- */

static gw_status give(const gw_beam *b, gw_beam_lane *lane, gw_beam_text *out) {
    const gw_hypotheses *h = &lane->h;
    out += lane->index * (size_t)b->o.n_beams;
    for (int i = 0; i < h->n_ended; i++) {
        size_t n = (size_t)(h->ended[i].n - h->n_prompt);
        int32_t *tokens = malloc(n * sizeof *tokens + 1);
        if (tokens == NULL) {
            return gw_fail(GW_E_NOMEM, "beams", "no memory for %zu tokens", n);
        }
        memcpy(tokens, h->ended[i].tokens + h->n_prompt, n * sizeof *tokens);
        out[i] = (gw_beam_text){
            .tokens = tokens, .n = n, .score = h->ended[i].score, .logprob = h->ended[i].logprob};
    }
    return GW_OK;
}

static void end(gw_beam *b, gw_beam_lane *lane) {
    gw_beam_drop(b, lane);
    if (lane->h.o != NULL) {
        gw_hypotheses_free(&lane->h);
    }
    gw_views_cut(&lane->views, 0);
    lane->in = NULL;
}

/* One pass over the rows b->rows [n], which stand for running texts from (lane, beam) on. */
static gw_status run_rows(gw_beam *b, int32_t n, gw_beam_lane *const *lanes, const int *beams) {
    GW_TRY(gw_session_check_cancel(b->session));
    GW_TRY(gw_rows_decode(b->session, b->rows, n, NULL, NULL));
    for (int32_t i = 0; i < n; i++) {
        GW_TRY(gw_rows_fetch(b->session, i));
        GW_TRY(offer(b, lanes[i], beams[i], i));
    }
    return GW_OK;
}

/* A token more for every running text. */
static gw_status advance(gw_beam *b) {
    gw_beam_lane *lanes[GW_PARALLEL_MAX];
    int beams[GW_PARALLEL_MAX];
    int32_t n = 0;
    for (int32_t l = 0; l < b->n_lanes; l++) {
        gw_beam_lane *lane = &b->lane[l];
        for (int i = 0; lane->in != NULL && i < lane->h.n_running; i++) {
            const gw_hypothesis *t = &lane->h.running[i];
            GW_TRY(gw_beam_reserve(b, &lane->fork[i], t->n - 1));
            b->rows[n] = row_of(b, lane, &lane->fork[i], t->tokens, t->n - 1);
            lanes[n] = lane;
            beams[n++] = i;
            if (n == b->widest) {
                GW_TRY(run_rows(b, n, lanes, beams));
                n = 0;
            }
        }
    }
    return n > 0 ? run_rows(b, n, lanes, beams) : GW_OK;
}

static gw_status search(gw_beam *b, const gw_beam_input *in, size_t n, gw_beam_text *out) {
    for (size_t given = 0, done = 0; done < n;) {
        int any = 0;
        for (int32_t l = 0; l < b->n_lanes; l++) {
            gw_beam_lane *lane = &b->lane[l];
            while (lane->in == NULL && given < n) {
                GW_TRY(begin(b, lane, &in[given], given));
                given++;
                if (lane->h.done) {
                    GW_TRY(give(b, lane, out));
                    end(b, lane);
                    done++;
                }
            }
            any |= lane->in != NULL;
        }
        if (!any) {
            continue;
        }
        GW_TRY(advance(b));
        for (int32_t l = 0; l < b->n_lanes; l++) {
            gw_beam_lane *lane = &b->lane[l];
            if (lane->in == NULL) {
                continue;
            }
            GW_TRY(step(b, lane, lane->h.running[0].n));
            if (lane->h.done) {
                GW_TRY(give(b, lane, out));
                end(b, lane);
                done++;
            }
        }
    }
    return GW_OK;
}

gw_status gw_beam_search(gw_beam *b, const gw_beam_input *in, size_t n, gw_beam_text *out) {
    size_t all = n * (size_t)b->o.n_beams;
    for (size_t i = 0; i < n; i++) {
        GW_TRY(check_input(b, &in[i], i));
    }
    for (size_t i = 0; i < all; i++) {
        out[i] = (gw_beam_text){.score = -INFINITY, .logprob = -INFINITY};
    }
    gw_status status = search(b, in, n, out);
    if (status != GW_OK) {
        for (int32_t l = 0; l < b->n_lanes; l++) {
            end(b, &b->lane[l]);
        }
        gw_beam_texts_free(out, all);
    }
    return status;
}
