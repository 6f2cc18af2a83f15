/* core/engine/writing/writer.c - see writer.h. */
#include "core/engine/writing/writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/options.h"
#include "core/base/status.h"
#include "core/engine/run/model.h"
#include "core/engine/sampling/constraint.h"
#include "core/engine/sampling/logprob.h"
#include "core/engine/sampling/sampler.h"

enum { CHAT_STOPS = 8 };

/* A token that is picked, and not handed out yet. */
typedef struct entry {
    int32_t token;
    float logprob;
    size_t n_top;
} entry;

struct gw_writer {
    const gw_model *model;
    const gw_chat *chat;
    const gw_grammar *grammar;
    gw_sampler *sampler;
    gw_stream *stream; /* NULL: the model has no vocabulary, so no token has a text */
    gw_stop *stop;     /* NULL: none */
    gw_ban *ban;       /* NULL: none */
    int special, ignore_eos, mid_text, logprobs;
    size_t limit; /* max_tokens of the options */
    int32_t n_vocab;
    entry *line;      /* [room], n of them */
    gw_logprob *tops; /* [room, most] */
    size_t room, n, most;
    float logprob; /* of the token picked last; its top ones in tops [room] */
    size_t n_top;
    int ended;      /* nothing is picked any more */
    int closed;     /* and no text follows: a stop string has come true */
    int32_t hit;    /* which; -1 */
    int32_t end;    /* the token that ended the text; -1 */
    char *spelling; /* of the last special token */
};

/* ---- life ------------------------------------------------------------------------------------ */

/* Biases as given, and with ignore_eos one against every token that ends a text. */
static gw_status make_sampler(gw_writer *w, const gw_sampler_options *given) {
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o = given != NULL ? *given : o;
    if (!w->ignore_eos) {
        return gw_sampler_new(w->model, &o, &w->sampler);
    }
    gw_logit_bias *bias = calloc(o.n_bias + (size_t)w->n_vocab, sizeof *bias);
    if (bias == NULL) {
        return gw_fail(GW_E_NOMEM, "sampler", "no memory for %d biases", w->n_vocab);
    }
    size_t n = o.n_bias;
    if (n > 0) {
        memcpy(bias, o.bias, n * sizeof *bias);
    }
    for (int32_t id = 0; id < w->n_vocab; id++) {
        if (gw_token_is_end(w->model, id) || (w->chat != NULL && gw_chat_is_end(w->chat, id))) {
            bias[n++] = (gw_logit_bias){.token = id, .bias = -INFINITY};
        }
    }
    o.bias = bias;
    o.n_bias = n;
    gw_status status = gw_sampler_new(w->model, &o, &w->sampler);
    free(bias);
    return status;
}

static gw_status make_stop(gw_writer *w, const gw_writer_options *o) {
    const char *more[CHAT_STOPS];
    size_t n_more = w->chat != NULL ? gw_chat_stops(w->chat, more, CHAT_STOPS) : 0;
    size_t n = o->n_stops + n_more;
    if (n == 0) {
        return GW_OK;
    }
    const char **all = calloc(n, sizeof *all);
    if (all == NULL) {
        return gw_fail(GW_E_NOMEM, "stop", "no memory for %zu strings", n);
    }
    for (size_t i = 0; i < n; i++) {
        all[i] = i < o->n_stops ? o->stops[i] : more[i - o->n_stops];
    }
    gw_status status = gw_stop_new(all, n, &w->stop);
    free(all);
    return status;
}

static gw_status make_line(gw_writer *w) {
    w->room = (w->ban != NULL ? GW_BAN_HELD : 0) + 2 * GW_DECODE_MAX;
    w->line = calloc(w->room, sizeof *w->line);
    w->tops = w->most > 0 ? calloc((w->room + 1) * w->most, sizeof *w->tops) : NULL;
    return w->line != NULL && (w->most == 0 || w->tops != NULL)
               ? GW_OK
               : gw_fail(GW_E_NOMEM, "text", "no memory for %zu tokens", w->room);
}

gw_status gw_writer_new_sized(const gw_model *model, const gw_writer_options *given, size_t size,
                              gw_writer **out) {
    gw_writer_options own = {.n_stops = 0}, *o = &own;
    GW_TRY(gw_options_take(&own, sizeof own, given, size, "text"));
    gw_writer *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return gw_fail(GW_E_NOMEM, "text", "no memory for a text");
    }
    *w = (gw_writer){.model = model,
                     .chat = o->chat,
                     .grammar = o->grammar,
                     .special = o->special,
                     .ignore_eos = o->ignore_eos,
                     .mid_text = o->mid_text,
                     .limit = o->max_tokens,
                     .logprobs = o->logprobs,
                     .most = o->logprobs ? o->n_top : 0,
                     .n_vocab = gw_model_n_vocab(model),
                     .hit = -1,
                     .end = -1};
    gw_status status;
    GW_TRY_DONE(make_sampler(w, o->sampler));
    GW_TRY_DONE(make_stop(w, o));
    if (o->n_bans > 0) {
        GW_TRY_DONE(gw_ban_new(model, o->bans, o->n_bans, o->special, &w->ban));
    }
    GW_TRY_DONE(make_line(w));
    if (gw_model_tokenizer(model) != NULL) {
        GW_TRY_DONE(gw_stream_new(model, &w->stream));
    }
    *out = w;
    return GW_OK;
done:
    gw_writer_free(w);
    return status;
}

void gw_writer_free(gw_writer *w) {
    if (w == NULL) {
        return;
    }
    gw_stream_free(w->stream);
    gw_sampler_free(w->sampler);
    gw_stop_free(w->stop);
    gw_ban_free(w->ban);
    free(w->line);
    free(w->tops);
    gw_free(w->spelling);
    free(w);
}

/* The stream decodes these and shows nothing of them. */
static gw_status decode_before(gw_writer *w, const int32_t *ids, size_t n) {
    gw_status status = GW_OK;
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        const char *text;
        size_t bytes;
        status = gw_stream_push(w->stream, ids[i], &text, &bytes);
    }
    return status;
}

/* A decoder may drop a space at the beginning of a text, which the grammar has counted. */
static gw_status begin_stream(gw_writer *w, const int32_t *prompt, size_t n) {
    if (w->mid_text && w->stream != NULL) {
        return decode_before(w, prompt, n);
    }
    if (w->grammar == NULL) {
        return GW_OK;
    }
    int32_t *ids = NULL;
    size_t n_ids = 0;
    GW_TRY(gw_tokenize(w->model, "a", 1, 0, &ids, &n_ids));
    gw_status status = decode_before(w, ids, n_ids);
    gw_free(ids);
    return status;
}

gw_status gw_writer_begin(gw_writer *w, const int32_t *prompt, size_t n) {
    for (size_t i = 0; i < n; i++) {
        GW_TRY(gw_sampler_accept(w->sampler, prompt[i]));
    }
    if (w->grammar != NULL) {
        GW_TRY(gw_sampler_constrain(w->sampler, w->grammar));
        gw_sampler_constraint(w->sampler)->limit = w->limit;
        w->ended = gw_sampler_finished(w->sampler);
    }
    GW_TRY(begin_stream(w, prompt, n));
    if (w->ban != NULL) {
        GW_TRY(gw_ban_begin(w->ban, w->stream));
        GW_TRY(gw_sampler_ban(w->sampler, w->ban));
    }
    return GW_OK;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

gw_status gw_writer_pick(gw_writer *w, const float *logits, int32_t pos, int32_t *token) {
    GW_TRY(gw_sampler_pick(w->sampler, logits, pos, token));
    if (w->logprobs) {
        w->n_top = w->most < (size_t)w->n_vocab ? w->most : (size_t)w->n_vocab;
        gw_logprobs(logits, w->n_vocab, *token, &w->logprob,
                    w->tops != NULL ? w->tops + w->room * w->most : NULL, w->n_top);
    }
    return GW_OK;
}

gw_sampler *gw_writer_sampler(gw_writer *w) { return w->sampler; }

int gw_writer_rule(const gw_writer *w, gw_choice *rule) {
    return !w->logprobs && gw_sampler_rule_unless(w->sampler, rule);
}

int gw_writer_refuses(const gw_writer *w, int32_t token) {
    return gw_sampler_forbids(w->sampler, token);
}

gw_status gw_writer_draft(gw_writer *w, const float *logits, int32_t n, int32_t pos,
                          int32_t *token) {
    gw_candidates c;
    *token = -1;
    GW_TRY(gw_sampler_narrow(w->sampler, logits, n, pos, &c));
    size_t at = gw_candidates_best(&c);
    if (at == c.n) {
        return GW_OK;
    }
    if (!gw_sampler_is_greedy(w->sampler)) {
        at = gw_candidates_draw(&c, gw_sampler_seed(w->sampler), pos);
    }
    if (at < c.n) {
        *token = c.at[at].token;
        gw_sampler_ahead(w->sampler, *token);
    }
    return GW_OK;
}

void gw_writer_forget(gw_writer *w) { gw_sampler_back(w->sampler); }

static size_t held_by_ban(const gw_writer *w) { return w->ban != NULL ? gw_ban_held(w->ban) : 0; }

static int ends_text(const gw_writer *w, int32_t token) {
    return !w->ignore_eos &&
           (w->chat != NULL ? gw_chat_is_end(w->chat, token) : gw_token_is_end(w->model, token));
}

static void add_to_line(gw_writer *w, int32_t token) {
    w->line[w->n] = (entry){.token = token, .logprob = w->logprob, .n_top = w->n_top};
    if (w->most > 0) {
        memcpy(w->tops + w->n * w->most, w->tops + w->room * w->most, w->most * sizeof *w->tops);
    }
    w->n++;
}

static gw_status end_here(gw_writer *w) {
    w->ended = 1;
    return w->ban != NULL ? gw_ban_release(w->ban, 0) : GW_OK;
}

/* A token that the sampler knows, with so many accepted from it on. */
static gw_status follow(gw_writer *w, int32_t token, int32_t pos, size_t accepted, size_t *back) {
    *back = 0;
    if (w->ban != NULL) {
        GW_TRY(gw_ban_push(w->ban, token, pos, back));
    }
    if (*back > 0) {
        w->n -= *back - 1;
        return gw_sampler_rewind(w->sampler, accepted + *back - 1);
    }
    add_to_line(w, token);
    if (ends_text(w, token)) {
        w->end = token;
        return end_here(w);
    }
    return GW_OK;
}

/* Is the text whole with all that the sampler knows? */
static gw_status end_if_whole(gw_writer *w) {
    return !w->ended && gw_sampler_finished(w->sampler) ? end_here(w) : GW_OK;
}

gw_status gw_writer_take(gw_writer *w, int32_t token, int32_t pos, size_t *back) {
    int accepted = !gw_token_is_end(w->model, token);
    if (accepted) {
        GW_TRY(gw_sampler_accept(w->sampler, token));
    }
    GW_TRY(follow(w, token, pos, (size_t)accepted, back));
    return end_if_whole(w);
}

gw_status gw_writer_take_all(gw_writer *w, const int32_t *tokens, size_t n, int32_t pos,
                             size_t *used, size_t *back) {
    size_t known = n - (size_t)(n > 0 && gw_token_is_end(w->model, tokens[n - 1]));
    *back = 0;
    for (*used = 0; *used < n && *back == 0 && !w->ended; ++*used) {
        size_t accepted = known > *used ? known - *used : 0;
        GW_TRY(follow(w, tokens[*used], pos + (int32_t)*used, accepted, back));
    }
    return end_if_whole(w);
}

int gw_writer_ended(const gw_writer *w, int32_t *stop) {
    *stop = w->hit;
    return w->ended;
}

gw_status gw_writer_over(gw_writer *w) { return end_here(w); }

gw_status gw_writer_release(gw_writer *w, size_t most) {
    return w->ban != NULL ? gw_ban_release(w->ban, most) : GW_OK;
}

size_t gw_writer_held(const gw_writer *w) { return w->n; }

/* ---- text ------------------------------------------------------------------------------------ */

/* The spelling of a token that the stream leaves out because it is a special one. */
static gw_status spell_special(gw_writer *w, int32_t id, const char **text, size_t *bytes) {
    char *hidden = NULL;
    size_t n_hidden = 0;
    gw_free(w->spelling);
    w->spelling = NULL;
    GW_TRY(gw_detokenize(w->model, &id, 1, 0, &hidden, &n_hidden));
    gw_free(hidden);
    if (n_hidden == 0) {
        GW_TRY(gw_detokenize(w->model, &id, 1, 1, &w->spelling, bytes));
        *text = w->spelling;
    }
    return GW_OK;
}

/* The text that is certain with this token (-1: nothing follows). */
static gw_status text_of(gw_writer *w, int32_t id, const char **text, size_t *bytes) {
    int hit = -1;
    *text = "";
    *bytes = 0;
    GW_TRY(w->stream != NULL ? gw_stream_push(w->stream, id, text, bytes) : GW_OK);
    if (id >= 0 && *bytes == 0 && w->special && w->stream != NULL) {
        GW_TRY(spell_special(w, id, text, bytes));
    }
    if (id < 0 && w->ban != NULL) {
        *bytes = 0; /* U+FFFD for half a character may be what is banned: nothing instead */
    }
    if (w->stop != NULL) {
        GW_TRY(gw_stop_push(w->stop, *text, *bytes, id < 0, text, bytes, &hit));
    }
    if (hit >= 0) {
        w->hit = hit;
        w->closed = w->ended = 1;
        w->end = -1;
        w->n = 0;
    }
    return GW_OK;
}

gw_status gw_writer_piece(gw_writer *w, gw_piece *piece, int *there) {
    size_t held = held_by_ban(w);
    int is_end = !w->special && w->n == 1 && w->end >= 0;
    *there = w->n > held && !is_end;
    if (!*there) {
        return GW_OK;
    }
    entry first = w->line[0];
    *piece = (gw_piece){.token = first.token, .logprob = first.logprob, .n_top = first.n_top};
    if (w->most > 0) { /* kept behind the line, since the line moves up */
        memcpy(w->tops + w->room * w->most, w->tops, w->most * sizeof *w->tops);
        memmove(w->tops, w->tops + w->most, (w->n - 1) * w->most * sizeof *w->tops);
        piece->top = w->tops + w->room * w->most;
    }
    memmove(w->line, w->line + 1, (w->n - 1) * sizeof *w->line);
    w->n--;
    return text_of(w, first.token, &piece->text, &piece->bytes);
}

gw_status gw_writer_rest(gw_writer *w, gw_piece *piece) {
    *piece = (gw_piece){.token = w->end, .text = ""};
    if (w->end >= 0 && w->n == 1) { /* it is in nobody's text, but has its probability */
        piece->logprob = w->line[0].logprob;
        piece->top = w->most > 0 ? w->tops : NULL;
        piece->n_top = w->line[0].n_top;
    }
    if (w->closed) {
        return GW_OK;
    }
    w->closed = 1;
    return text_of(w, -1, &piece->text, &piece->bytes);
}
