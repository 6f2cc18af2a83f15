/* core/engine/run/session.c - one token timeline: feeds tokens through frozen plans, hands out
 * logits. Everything is allocated in gw_session_new; a pass writes the step block and replays. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/options.h"
#include "core/engine/sampling/sampler.h"
#include "core/engine/run/session_hidden.h"

/* Prompt tokens per pass where none are asked for. Cards read all weights, and make operands of
 * them, once for a pass: passes of 1,024 read 2,048 tokens 1.04 (8b Q4_K) to 1.28 times (7b F16) as
 * fast as passes of 512 (H100). */
enum { CHUNK_DEFAULT = 512, CHUNK_OF_CARDS = 1024 };

/* ---- options and where blocks run ------------------------------------------------------------ */

static gw_status read_options(gw_session *s, const gw_session_options *o, gw_kv_pair *kv_fmt) {
    static const gw_session_options defaults;
    o = o != NULL ? o : &defaults;
    if (o->n_ctx < 0) {
        return gw_fail(GW_E_ARGUMENT, "context", "%d tokens; 1 or more are needed", o->n_ctx);
    }
    if (o->chunk < 0 || o->chunk > GW_CHUNK_MAX) {
        return gw_fail(GW_E_ARGUMENT, "chunk", "%d is outside 1..%d", o->chunk, GW_CHUNK_MAX);
    }
    GW_TRY(gw_kv_format(o->kv_type, kv_fmt));
    GW_TRY(gw_kv_check(&s->model->hp, gw_weights_blueprint(s->model->weights), *kv_fmt));
    s->n_ctx = o->n_ctx > 0 ? o->n_ctx : s->model->hp.n_ctx;
    s->chunk = o->chunk;
    if (s->model->hp.n_source > 0 && s->n_ctx > GW_ROWS_MAX) {
        return gw_fail(GW_E_ARGUMENT, "context", "%d tokens; a source text has %d at most",
                       s->n_ctx, GW_ROWS_MAX);
    }
    s->cancel = o->cancel;
    return GW_OK;
}

/* ---- buffers -------------------------------------------------------------------------------- */

/* The stream of every device; one without blocks needs none, but that is rare and cheap. */
static gw_status make_device_buffers(gw_session *s, int d) {
    const gw_hparams *hp = &s->model->hp;
    const gw_plan_device *to = &s->model->place.devices[d];
    int widest = gw_session_widest(s);
    size_t rows = (size_t)(s->most_rows > widest ? s->most_rows : widest);
    rows = hp->n_source > 0 && (size_t)s->n_ctx > rows ? (size_t)s->n_ctx : rows;
    size_t bytes = rows * (size_t)hp->n_streams * (size_t)hp->d_model * sizeof(float);
    if (s->sharing.sources) {
        const gw_tensor *own = &s->kv.page_table[0][d];
        size_t cells = (size_t)(own->dim[0] * own->dim[1]);
        GW_TRY(to->backend->alloc(to->device, cells * sizeof(int32_t), &s->source_pages[d]));
        s->source_table[d] = *own;
        s->source_table[d].name = "source pages";
        s->source_table[d].buf = s->source_pages[d];
    }
    GW_TRY(to->backend->alloc(to->device, bytes, &s->stream[d]));
    s->stream_on[d] = (gw_tensor){.name = "stream",
                                  .fmt = GW_FMT_F32,
                                  .n_dim = 2,
                                  .dim = {(int64_t)rows, (int64_t)hp->n_streams * hp->d_model},
                                  .buf = s->stream[d],
                                  .device = d};
    return GW_OK;
}

static gw_status make_kept_on(gw_session *s, int d, int v, size_t rows, int64_t width) {
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    const gw_plan_device *to = &s->model->place.devices[d];
    if (s->kept[d][v] != NULL) {
        return GW_OK;
    }
    GW_TRY(to->backend->alloc(to->device, rows * (size_t)width * sizeof(float), &s->kept[d][v]));
    s->kept_value[d][v] = (gw_tensor){.name = bp->value[v],
                                      .fmt = GW_FMT_F32,
                                      .n_dim = 2,
                                      .dim = {(int64_t)rows, width},
                                      .buf = s->kept[d][v],
                                      .device = d};
    return GW_OK;
}

/* The value that the engine gives lies where start or a layer reads it. */
static gw_status make_given(gw_session *s, size_t rows) {
    const gw_hparams *hp = &s->model->hp;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    const int32_t width = gw_model_given_width(s->model);
    for (int i = 0; bp->given >= 0 && i < (hp->n_layers + 1) * bp->n_blocks; i++) {
        const gw_spec_block *b = &bp->block[i % bp->n_blocks];
        if (b->in != bp->given || !gw_block_runs(b, hp, i / bp->n_blocks)) {
            continue;
        }
        gw_group group = gw_place_group(&s->model->place, s->where[i]);
        for (int c = 0; c < group.n; c++) {
            GW_TRY(make_kept_on(s, group.device[c], bp->given, rows, width));
        }
    }
    return GW_OK;
}

/* Values that start or the first layer gives to others lie where they are given, whatever plan
 * reads them. */
static gw_status make_kept(gw_session *s) {
    const gw_hparams *hp = &s->model->hp;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    int widest = gw_session_widest(s);
    size_t rows = (size_t)(s->most_rows > widest ? s->most_rows : widest);
    for (int b = 0; b < bp->n_blocks; b++) {
        int v = bp->block[b].out, at = gw_graph_kept_at(bp, hp, &bp->block[b]);
        if (at < 0) {
            continue;
        }
        int d = s->where[at];
        double width = gw_spec_value(bp, hp, 0, bp->width[v]);
        if (!(width >= 1.0 && width <= 0x1p24)) {
            return gw_fail(GW_E_METADATA, "plan", "the value '%s' is %g wide", bp->value[v], width);
        }
        gw_group group = gw_place_group(&s->model->place, d);
        for (int c = 0; c < group.n; c++) {
            GW_TRY(make_kept_on(s, group.device[c], v, rows, (int64_t)width));
        }
    }
    return make_given(s, rows);
}

static gw_status make_buffers(gw_session *s) {
    const gw_place *place = &s->model->place;
    GW_TRY(make_kept(s));
    size_t widest = (size_t)gw_session_widest(s);
    s->logit_rows = widest > GW_HEAD_TILE ? widest : GW_HEAD_TILE;
    size_t logits = s->logit_rows * (size_t)s->model->hp.n_vocab * sizeof(float);
    int32_t more = s->model->tower != NULL && gw_views_needed(&s->model->hp) ? s->most_rows : 0;
    GW_TRY(gw_tables_new(place->devices, place->n_devices, gw_weights_blueprint(s->model->weights),
                         &s->model->hp, s->n_ctx, more, &s->tables));
    GW_TRY(gw_seeing_new(s));
    GW_TRY(gw_adapting_new(s, s->most_rows > (int32_t)widest ? s->most_rows : (int32_t)widest));
    for (int d = 0; d < place->n_devices; d++) {
        GW_TRY(make_device_buffers(s, d));
    }
    const gw_plan_device *head = &place->devices[s->head_device];
    GW_TRY(head->backend->alloc(head->device, logits, &s->logits));
    s->logits_host = head->backend->host(s->logits);
    if (s->logits_host == NULL) {
        s->logits_copy = malloc(logits);
        s->logits_host = s->logits_copy;
        if (s->logits_copy == NULL) {
            return gw_fail(GW_E_NOMEM, "context", "no memory for the logits");
        }
    }
    return GW_OK;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int on_cards_alone(const gw_session *s) {
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    for (int i = 0; i < s->model->hp.n_layers * bp->n_blocks; i++) {
        int runs = gw_block_runs(&bp->block[i % bp->n_blocks], &s->model->hp, i / bp->n_blocks);
        if (runs && s->where[i] == 0) { /* home */
            return 0;
        }
    }
    return 1;
}

static gw_status place_session(gw_session *s, gw_kv_pair kv_fmt) {
    const gw_model *m = s->model;
    const gw_blueprint *bp = gw_weights_blueprint(m->weights);
    s->where = calloc((size_t)(m->hp.n_layers + 1) * (size_t)bp->n_blocks, sizeof *s->where);
    if (s->where == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for %d layers", m->hp.n_layers);
    }
    GW_TRY(gw_place_session(&m->place, m->weights, &m->hp, kv_fmt, s->where));
    s->head_device = gw_graph_head_device(bp, &m->hp, s->where);
    s->on_cards = on_cards_alone(s);
    if (s->chunk == 0) {
        s->chunk = s->on_cards ? CHUNK_OF_CARDS : CHUNK_DEFAULT;
    }
    s->chunk = s->chunk > s->n_ctx ? s->n_ctx : s->chunk;
    double rows = 0.0;
    for (int l = 0; l < m->hp.n_layers && m->tower != NULL; l++) {
        double of_layer = gw_spec_layer_number(bp, &m->hp, "picture_rows", l, 0.0);
        rows = of_layer > rows ? of_layer : rows;
    }
    rows = rows > (double)GW_CHUNK_MAX ? (double)GW_CHUNK_MAX : rows;
    s->picture_rows = rows > (double)s->n_ctx ? s->n_ctx : (int32_t)rows;
    s->most_rows = s->chunk > s->picture_rows ? s->chunk : s->picture_rows;
    return GW_OK;
}

gw_status gw_session_new_sized(gw_model *model, const gw_session_options *given, size_t size,
                               gw_session **out) {
    gw_session_options own = {.n_ctx = 0};
    const gw_sharing alone = {0};
    if (given != NULL) {
        GW_TRY(gw_options_take(&own, sizeof own, given, size, "session"));
    }
    return gw_session_make(model, given != NULL ? &own : NULL, &alone, out);
}

gw_status gw_session_make(gw_model *model, const gw_session_options *options,
                          const gw_sharing *sharing, gw_session **out) {
    if (model->weights == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, model->name, "only the vocabulary of this model is open");
    }
    GW_TRY(gw_model_awake(model));
    if (model->hp.n_source == model->hp.n_layers) {
        return gw_fail(GW_E_UNSUPPORTED, model->name,
                       "is an encoder: it makes vectors of texts (godwit embed), no text");
    }
    if (model->hp.n_source > 0 && sharing->slots > 1 && !sharing->sources) {
        return gw_fail(GW_E_UNSUPPORTED, model->name,
                       "reads a source text: such models do one request at a time");
    }
    gw_session *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for a session");
    }
    s->model = model;
    s->sharing = *sharing;
    s->n_widths = gw_session_widths(sharing->widest > 0 ? sharing->widest : GW_DECODE_MAX);
    gw_status status;
    gw_kv_pair kv_fmt;
    GW_TRY_DONE(read_options(s, options, &kv_fmt));
    GW_TRY_DONE(place_session(s, kv_fmt));
    s->tokens = calloc((size_t)s->n_ctx, sizeof *s->tokens);
    s->generated = calloc((size_t)s->n_ctx, sizeof *s->generated);
    if (s->tokens == NULL || s->generated == NULL) {
        status = gw_fail(GW_E_NOMEM, "context", "no memory for %d tokens", s->n_ctx);
        goto done;
    }
    GW_TRY_DONE(gw_session_make_cache(s, kv_fmt));
    GW_TRY_DONE(make_buffers(s));
    GW_TRY_DONE(gw_next_new(s));
    GW_TRY_DONE(gw_session_build(s, options));
    *out = s;
    return GW_OK;
done:;
    /* Layers were placed beside passes of CHUNK_DEFAULT, so that longer ones may not fit. */
    int larger = s->chunk > CHUNK_DEFAULT && (options == NULL || options->chunk == 0);
    gw_session_free(s);
    if (status == GW_E_NOMEM && larger) {
        gw_session_options smaller = options != NULL ? *options : (gw_session_options){.n_ctx = 0};
        smaller.chunk = CHUNK_DEFAULT;
        return gw_session_make(model, &smaller, sharing, out);
    }
    return status;
}

void gw_session_free(gw_session *s) {
    if (s == NULL) {
        return;
    }
    for (int p = 0; p < s->n_passes; p++) {
        gw_pass_free(&s->passes[p]);
    }
    free(s->passes);
    gw_next_free(s);
    gw_session_hidden_free(s);
    gw_fetch_free(s);
    gw_seeing_free(s);
    gw_adapting_free(s);
    for (int d = 0; d < s->model->place.n_devices; d++) {
        struct gw_buffer *const buffers[] = {s->stream[d], d == s->head_device ? s->logits : NULL,
                                             s->source_pages[d]};
        for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
            if (buffers[i] != NULL) {
                s->model->place.devices[d].backend->release(buffers[i]);
            }
        }
    }
    for (int i = 0; i < GW_MAX_DEVICES * GW_SPEC_VALUES; i++) {
        int d = i / GW_SPEC_VALUES, v = i % GW_SPEC_VALUES;
        if (s->kept[d][v] != NULL) {
            s->model->place.devices[d].backend->release(s->kept[d][v]);
        }
    }
    gw_tables_free(&s->tables);
    gw_kv_free(&s->kv);
    gw_states_free(&s->states);
    gw_session_free_states(s);
    free(s->generated);
    free(s->tokens);
    free(s->where);
    free(s->logits_copy);
    free(s);
}

/* ---- passes --------------------------------------------------------------------------------- */

/* How many positions less than pos + i the table of learned ones counts for token i. */
static int32_t less_of(const gw_session *s, const int32_t *tokens, int32_t i, int32_t pos) {
    int32_t pad = s->model->hp.uncounted, before = 0;
    for (int32_t k = 0; pad >= 0 && k < pos + i; k++) {
        before += (k < pos ? s->tokens[k] : tokens[k - pos]) == pad;
    }
    return pad >= 0 && tokens[i] == pad ? pos + i + 1 : before;
}

void gw_session_set_step(gw_session *s, const int32_t *tokens, int32_t n, int32_t pos) {
    s->ahead = s->sees = 0; /* its step is no longer the next one on the device */
    gw_session_forget_states(s, pos);
    gw_states_note(&s->states, n, pos);
    gw_kv_note(&s->kv, n, pos);
    s->step.n = n;
    s->step.pick = 0;
    s->step.n_pick = n;
    const int whole = s->model->draft_block.rows > 0; /* its rows see one another */
    for (int32_t i = 0; i < n; i++) {
        s->step.token[i] = tokens[i];
        s->step.pos[i] = pos + i;
        s->step.slot[i] = 0;
        s->step.last[i] = s->n_source > 0 ? s->n_source - 1 : whole ? pos + n - 1 : pos + i;
        s->step.less[i] = less_of(s, tokens, i, pos) + gw_views_less(&s->views, pos + i);
    }
    s->step.pos_max = s->n_source > pos + n ? s->n_source - 1 : pos + n - 1;
}

/* 1 when the largest value of a row is a finite number and all are numbers. */
static int row_is_finite(const float *x, size_t n) {
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= !(x[i] <= FLT_MAX); /* NaN and +infinity */
    }
    return !bad && gw_logits_top(x, n) >= -FLT_MAX;
}

/* Make logits rows [0, n) of the device readable and refuse what no token can be chosen from. */
static gw_status take_logits(gw_session *s, size_t n) {
    size_t v = (size_t)s->model->hp.n_vocab;
    if (s->logits_copy != NULL) {
        GW_TRY(s->model->place.devices[s->head_device].backend->read(s->logits, 0, s->logits_copy,
                                                                     n * v * sizeof(float)));
    }
    for (size_t i = 0; i < n; i++) {
        if (!row_is_finite(s->logits_host + i * v, v)) {
            return gw_fail(GW_E_NUMERIC, s->model->name, "logits are not finite after %d tokens",
                           s->step.pos_max + 1);
        }
    }
    return GW_OK;
}

/* Ids below this have a row in every table that a token is looked up in. */
static int32_t known_ids(const gw_session *s) {
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    int32_t n = gw_model_tokens(s->model);
    for (int b = 0; b < bp->n_blocks; b++) {
        const gw_spec_block *block = &bp->block[b];
        const gw_tensor *t = block->kind == GW_BLOCK_EMBED &&
                                     gw_block_runs(block, &s->model->hp, s->model->hp.n_layers)
                                 ? gw_weights_get(s->model->weights, block->weight[0], 0, 0)
                                 : NULL;
        n = t != NULL && t->dim[0] < n ? (int32_t)t->dim[0] : n;
    }
    return n;
}

gw_status gw_session_check_tokens(const gw_session *s, const int32_t *tokens, size_t n) {
    const int32_t known = known_ids(s);
    if (n == 0) {
        return gw_fail(GW_E_ARGUMENT, "tokens", "there are none");
    }
    if (s->model->hp.n_source > 0 && s->n_source == 0) {
        return gw_fail(GW_E_ARGUMENT, s->model->name, "reads a source text first, and has none");
    }
    if (n > (size_t)(s->n_ctx - s->pos)) {
        return gw_fail(GW_E_CONTEXT, "context", "needs %zu tokens, the context holds %d",
                       n + (size_t)s->pos, s->n_ctx);
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= known) {
            return gw_fail(GW_E_ARGUMENT, "tokens", "token %zu is %d, outside 0..%d", i, tokens[i],
                           known - 1);
        }
    }
    return GW_OK;
}

gw_status gw_session_check_cancel(const gw_session *s) {
    if (s->cancel != NULL && *s->cancel) {
        return gw_fail(GW_E_CANCELLED, "session", "cancelled at token %d", s->pos);
    }
    return GW_OK;
}

gw_status gw_session_run_head(gw_session *s, int32_t at, int32_t n) {
    s->step.n = n; /* the head's plan is narrower than the body's */
    s->step.pick = at;
    s->step.n_pick = n;
    GW_TRY(gw_pass_run(s, gw_session_head_pass(s), gw_plan_run));
    return take_logits(s, (size_t)n);
}

/* All of it in one pass, so that its rows see one another; what attends to it is read from the
 * caches of the layers that hold its keys. */
gw_status gw_session_source(gw_session *s, const int32_t *tokens, size_t n) {
    const gw_hparams *hp = &s->model->hp;
    if (hp->n_source == 0) {
        return gw_fail(GW_E_UNSUPPORTED, s->model->name, "reads no source text: it is a decoder");
    }
    if (n == 0 || n > (size_t)s->n_ctx) {
        return gw_fail(n == 0 ? GW_E_ARGUMENT : GW_E_CONTEXT, "source",
                       "has %zu tokens, 1 to %d fit", n, s->n_ctx);
    }
    GW_TRY(gw_session_check_cancel(s));
    int32_t before = s->n_source;
    s->n_source = (int32_t)n;
    s->pos = s->prompted = 0;
    s->n_logits = 0;
    gw_status status = gw_session_check_tokens(s, tokens, n);
    if (status == GW_OK) {
        gw_session_set_step(s, tokens, (int32_t)n, 0);
        status = gw_pass_run(s, s->source, gw_plan_run);
    }
    s->n_source = status == GW_OK ? s->n_source : status == GW_E_ARGUMENT ? before : 0;
    return status;
}

typedef struct row_sink {
    gw_row_fn fn; /* NULL: only the last row of the prompt is wanted */
    void *user;
    size_t first; /* first row wanted */
} row_sink;

/* Heads over the wanted rows of a chunk of n rows that begins at row `base` of the prompt. */
static gw_status hand_out(gw_session *s, size_t base, int32_t n, const row_sink *sink) {
    int32_t at = sink->first > base ? (int32_t)(sink->first - base) : 0;
    int32_t tile = s->chunk < GW_HEAD_TILE ? s->chunk : GW_HEAD_TILE;
    size_t v = (size_t)s->model->hp.n_vocab;
    for (; at < n; at += tile) {
        int32_t rows = n - at < tile ? n - at : tile;
        GW_TRY(gw_session_run_head(s, at, rows));
        for (int32_t i = 0; i < rows; i++) {
            if (sink->fn(sink->user, base + (size_t)(at + i), s->logits_host + (size_t)i * v)) {
                return gw_fail(GW_E_CANCELLED, "session", "stopped by the reader of the logits");
            }
        }
        s->first_logit = (size_t)rows - 1;
    }
    return GW_OK;
}

gw_status gw_session_set_prompt(gw_session *s, const int32_t *tokens, int32_t n, int32_t pos,
                                int32_t most, int32_t *rows) {
    int whole, any = 0;
    int32_t part = gw_views_stop(&s->views, pos, &whole) - pos;
    part = whole || part < most ? part : most;
    gw_session_set_step(s, tokens, part, pos);
    const int32_t seen = s->model->draft_block.rows > 0 ? part : n;
    for (int32_t i = 0; i < part && s->n_source == 0; i++) {
        s->step.last[i] = pos + seen - 1;
    }
    *rows = part;
    if (s->seeing.parts == 0) {
        return GW_OK;
    }
    gw_views_look(&s->views, pos, part, s->seeing.glances, &any);
    return gw_seeing_show(s, s->seeing.glances, part, any);
}

static gw_status feed_prompt(gw_session *s, const int32_t *tokens, size_t n, const row_sink *sink) {
    for (size_t done = 0; done < n;) {
        int32_t rows = gw_prompt_rows(s, n - done);
        GW_TRY(gw_session_set_prompt(s, tokens + done, (int32_t)(n - done), s->pos, rows, &rows));
        GW_TRY(gw_session_hidden_ask(s, s->pos));
        GW_TRY(gw_prompt_run(s, gw_prompt_overlaps(s)));
        GW_TRY(gw_fetch_end(s));
        GW_TRY(gw_session_hidden_tell(s, s->pos));
        int last = done + (size_t)rows == n;
        if (sink->fn != NULL && sink->first < done + (size_t)rows) {
            GW_TRY(hand_out(s, done, rows, sink));
        } else if (last) {
            GW_TRY(gw_session_run_head(s, rows - 1, 1));
            s->first_logit = 0;
        }
        done += (size_t)rows;
        s->pos += rows;
    }
    return GW_OK;
}

static gw_status prefill(gw_session *s, const int32_t *tokens, size_t n, const row_sink *sink) {
    GW_TRY(gw_session_check_tokens(s, tokens, n));
    GW_TRY(gw_session_return(s));
    int32_t start = s->pos;
    s->n_logits = 0;
    gw_status status = feed_prompt(s, tokens, n, sink);
    if (status != GW_OK) {
        (void)gw_plan_wait(s->passes[s->first_prompt_pass].plan); /* nothing is still at work */
        s->pos = start; /* what was appended to the cache is simply not reached again */
        return status != GW_E_NUMERIC ? status
                                      : gw_session_blame(s, tokens, s->step.pos_max + 1 - start,
                                                         start, GW_ORDER_PREFILL);
    }
    memmove(s->tokens + start, tokens, n * sizeof *tokens); /* they may be our own: a shift */
    memset(s->generated + start, 0, n);
    s->prompted = s->prompted == start ? s->pos : s->prompted;
    s->n_logits = 1;
    return gw_session_keep_states(s);
}

gw_status gw_session_prefill(gw_session *s, const int32_t *tokens, size_t n) {
    const row_sink sink = {0};
    return prefill(s, tokens, n, &sink);
}

gw_status gw_session_prefill_seen(gw_session *s, const int32_t *tokens, size_t n,
                                  const gw_seen_rows *seen, size_t n_seen) {
    const row_sink sink = {0};
    if (n_seen > 0 && s->model->tower == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, s->model->name, "was opened without eyes");
    }
    int32_t start = s->pos;
    GW_TRY(gw_views_add(&s->views, seen, n_seen, start, n));
    gw_status status = prefill(s, tokens, n, &sink);
    if (status != GW_OK) {
        gw_views_cut(&s->views, start);
    }
    return status;
}

gw_status gw_session_prefill_rows(gw_session *s, const int32_t *tokens, size_t n, size_t first,
                                  gw_row_fn fn, void *user) {
    const row_sink sink = {.fn = fn, .user = user, .first = first};
    return prefill(s, tokens, n, &sink);
}

gw_status gw_session_decode_begin(gw_session *s, const int32_t *tokens, size_t n) {
    if (n > GW_DECODE_MAX) {
        return gw_fail(GW_E_ARGUMENT, "tokens", "%zu in one pass; at most %d", n, GW_DECODE_MAX);
    }
    GW_TRY(gw_session_check_tokens(s, tokens, n));
    GW_TRY(gw_session_check_cancel(s));
    GW_TRY(gw_session_return(s));
    s->n_logits = 0;
    s->first_logit = 0;
    gw_session_set_step(s, tokens, (int32_t)n, s->pos);
    GW_TRY(gw_session_hidden_ask(s, s->pos));
    gw_pass *p = gw_session_decode_pass(s, (int32_t)n);
    gw_status status = gw_pass_run(s, p, gw_plan_start);
    if (status != GW_OK) {
        (void)gw_plan_wait(p->plan); /* nothing is still at work */
    }
    return status;
}

void gw_session_keep_rows(gw_session *s) {
    memcpy(s->tokens + s->pos, s->step.token, (size_t)s->step.n * sizeof *s->tokens);
    memset(s->generated + s->pos, 1, (size_t)s->step.n);
    s->pos += s->step.n;
}

gw_status gw_session_take_rows(gw_session *s) {
    int32_t n = s->step.n, tokens[GW_DECODE_MAX];
    memcpy(tokens, s->step.token, (size_t)n * sizeof *tokens);
    gw_status status = take_logits(s, (size_t)n);
    if (status != GW_OK) {
        return status != GW_E_NUMERIC ? status
                                      : gw_session_blame(s, tokens, n, s->pos, GW_ORDER_DECODE);
    }
    gw_session_keep_rows(s);
    s->n_logits = (size_t)n;
    return gw_session_hidden_tell(s, s->pos - n);
}

gw_status gw_session_decode_end(gw_session *s) {
    GW_TRY(gw_plan_wait(gw_session_decode_pass(s, s->step.n)->plan));
    return gw_session_take_rows(s);
}

gw_status gw_session_feed(gw_session *s, const int32_t *tokens, size_t n) {
    GW_TRY(gw_session_decode_begin(s, tokens, n));
    GW_TRY(gw_plan_wait(gw_session_decode_pass(s, s->step.n)->plan));
    gw_session_keep_rows(s);
    return gw_session_hidden_tell(s, s->pos - (int32_t)n);
}

gw_status gw_session_decode(gw_session *s, const int32_t *tokens, size_t n) {
    GW_TRY(gw_session_decode_begin(s, tokens, n));
    return gw_session_decode_end(s);
}

/* ---- questions ------------------------------------------------------------------------------ */

const float *gw_session_logits(const gw_session *s, size_t row) {
    size_t v = (size_t)s->model->hp.n_vocab;
    return row < s->n_logits ? s->logits_host + (s->first_logit + row) * v : NULL;
}

gw_status gw_session_pause(gw_session *s, gw_pause_fn fn, void *user) {
    enum { HOME = 0, PARTS = 8 };
    for (int i = 0; i < s->n_widths; i++) {
        GW_TRY(gw_plan_pause(s->passes[i].plan, HOME, PARTS, fn, user));
    }
    return GW_OK;
}

static int has_blocks_at_home(const gw_session *s) {
    size_t blocks = (size_t)(s->model->hp.n_layers + 1) * (size_t)s->model->place.n_blocks, n = 0;
    for (size_t i = 0; i < blocks; i++) {
        n += s->where[i] == 0;
    }
    return n > 0;
}

int gw_session_needs_host(const gw_session *s, const gw_session *other) {
    return has_blocks_at_home(s) && other->logits_copy != NULL && !has_blocks_at_home(other);
}

int gw_session_leaves_host(const gw_session *s, const gw_session *other) {
    const gw_place *place = &s->model->place, *its = &other->model->place;
    size_t blocks = (size_t)(other->model->hp.n_layers + 1) * (size_t)its->n_blocks;
    int busy = 0;
    for (size_t i = 0; i < blocks; i++) {
        busy |= strcmp(place->info[s->head_device].id, its->info[other->where[i]].id) == 0;
    }
    return s->logits_copy != NULL && !busy;
}

const gw_model *gw_session_model(const gw_session *s) { return s->model; }
int32_t gw_session_pos(const gw_session *s) { return s->pos; }
int32_t gw_session_n_ctx(const gw_session *s) { return s->n_ctx; }
int32_t gw_session_chunk(const gw_session *s) { return s->chunk; }
const int32_t *gw_session_tokens(const gw_session *s) { return s->tokens; }
int32_t gw_session_prompted(const gw_session *s) { return s->prompted; }

gw_status gw_session_rewind(gw_session *s, int32_t pos) {
    if (pos < 0 || pos > s->pos) {
        return gw_fail(GW_E_ARGUMENT, "rewind", "position %d is outside 0..%d", pos, s->pos);
    }
    if (gw_views_within(&s->views, pos)) {
        return gw_fail(GW_E_ARGUMENT, "rewind",
                       "position %d is within a picture, whose rows see one another", pos);
    }
    s->ahead = 0;
    s->pos = pos;
    gw_views_cut(&s->views, pos);
    s->prompted = s->prompted < pos ? s->prompted : pos;
    s->n_logits = 0;
    return GW_OK;
}
