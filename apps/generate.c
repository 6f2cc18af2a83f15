/* apps/generate.c - one text: options, passes, pieces: see generate.h. */
#include "apps/generate.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "apps/sampling.h"

int32_t generator_n_ctx(const app_generator *g) {
    int32_t trained = g->info.n_ctx_train, n_ctx = g->o->n_ctx;
    if (n_ctx < 0) {
        return trained > 0 && trained < 4096 ? trained : 4096;
    }
    return n_ctx == 0 ? trained : n_ctx;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int new_writer(app_generator *g, const gw_grammar *grammar, int mid_text) {
    const app_options *o = g->o;
    gw_sampler_options sampler;
    sampling_of_options(o, &sampler);
    sampling_of_model(o, g->model, 0, &sampler, NULL, 0);
    int shifts = g->shifts || g->session == NULL;
    int32_t room =
        shifts ? (g->limit > 0 ? g->limit : -1) : gw_session_n_ctx(g->session) - g->begin + 1;
    int32_t most = o->n_predict >= 0 && (room < 0 || o->n_predict < room) ? o->n_predict : room;
    const gw_writer_options options = {.sampler = &sampler,
                                       .grammar = grammar,
                                       .chat = g->chat,
                                       .stops = o->stops.at,
                                       .n_stops = o->stops.n,
                                       .bans = o->bans.at,
                                       .n_bans = o->bans.n,
                                       .special = o->special,
                                       .ignore_eos = o->ignore_eos,
                                       .mid_text = mid_text,
                                       .max_tokens = most > 0 ? (size_t)most : 0};
    gw_writer_free(g->writer);
    g->writer = NULL;
    gw_status status = gw_writer_new(g->model, &options, &g->writer);
    return status == GW_OK ? APP_OK : app_fail(status);
}

/* Is it the text itself, not the name of a file? A schema begins with a brace, or is true or false;
 * rules have "::=" in them. */
static int is_grammar_text(const char *given, int schema) {
    if (!schema) {
        return strstr(given, "::=") != NULL;
    }
    given += strncmp(given, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; /* a byte order mark */
    const char *at = given + strspn(given, " \t\r\n");
    size_t word = strcspn(at, " \t\r\n");
    int whole = at[word + strspn(at + word, " \t\r\n")] == '\0';
    return *at == '{' || (whole && ((word == 4 && strncmp(at, "true", 4) == 0) ||
                                    (word == 5 && strncmp(at, "false", 5) == 0)));
}

static int open_grammar(app_generator *g, const gw_chat *chat) {
    const app_options *o = g->o;
    int schema = o->json_schema != NULL;
    const char *given = schema ? o->json_schema : o->grammar;
    if (given == NULL) {
        return APP_OK;
    }
    if (schema && o->grammar != NULL) {
        app_error("--grammar and --json-schema exclude each other: which form is meant?");
        return APP_USAGE;
    }
    app_text text = {0};
    int is_text = is_grammar_text(given, schema);
    if (!is_text) {
        int code = app_read_file(given, &text);
        if (code != APP_OK) {
            return code;
        }
    }
    gw_status status = gw_grammar_new(g->model, schema ? GW_GRAMMAR_JSON_SCHEMA : GW_GRAMMAR_GBNF,
                                      is_text ? given : text.at,
                                      is_text ? strlen(given) : text.bytes, chat, &g->grammar);
    free(text.at);
    return status == GW_OK ? APP_OK : app_fail(status);
}

int generator_open(app_generator *g, const gw_chat *chat) {
    g->pending = -1;
    g->chat = chat;
    int code = open_grammar(g, chat);
    sampling_note(g->o, g->model);
    if (code == APP_OK) { /* what cannot be kept is told before anything is read */
        code = new_writer(g, g->grammar, 0);
    }
    if (code == APP_OK) {
        code = draft_open(g->o, g->model, g->o->model, g->session, 0, &g->draft);
    }
    return code;
}

void generator_close(app_generator *g) {
    gw_writer_free(g->writer);
    gw_grammar_free(g->grammar);
    draft_close(&g->draft);
    gw_session_free(g->session);
    app_close_model(g->model);
}

int generator_begin(app_generator *g, const gw_grammar *grammar, int mid_text) {
    g->begin = gw_session_pos(g->session);
    g->failed = GW_OK;
    g->ended = "";
    int code = new_writer(g, grammar, mid_text);
    if (code != APP_OK) {
        return code;
    }
    gw_status status = gw_writer_begin(g->writer, gw_session_tokens(g->session), (size_t)g->begin);
    return status == GW_OK ? APP_OK : app_fail(status);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

gw_status generator_read_seen(app_generator *g, const int32_t *tokens, size_t n,
                              const gw_seen_rows *seen, size_t n_seen) {
    gw_status status = gw_session_prefill_seen(g->session, tokens, n, seen, n_seen);
    return status == GW_OK ? generator_know(g, tokens, n) : status;
}

gw_status generator_read(app_generator *g, const int32_t *tokens, size_t n,
                         app_progress *progress) {
    size_t slice = (size_t)gw_session_chunk(g->session);
    gw_status status = GW_OK;
    for (size_t at = 0; at < n && status == GW_OK; at += slice) {
        size_t part = n - at < slice ? n - at : slice;
        progress_update(progress, at, n, NULL);
        status = gw_session_prefill(g->session, tokens + at, part);
        status = status == GW_OK ? generator_know(g, tokens + at, part) : status;
    }
    return status;
}

gw_status generator_know(app_generator *g, const int32_t *tokens, size_t n) {
    return g->draft.drafter != NULL && n > 0 ? gw_drafter_prompt(g->draft.drafter, tokens, n)
                                             : GW_OK;
}

/* No room for another token? */
static int is_full(const app_generator *g) {
    return g->pending >= 0 && gw_session_pos(g->session) == gw_session_n_ctx(g->session);
}

/* Room for the pending token. Of tokens that are held back those that were dropped stay. */
static gw_status shift_context(app_generator *g) {
    int32_t dropped = 0, fixed = g->keep > 1 ? g->keep : 1;
    gw_status status = gw_session_shift(g->session, g->keep, &dropped);
    if (status == GW_OK && g->draft.drafter != NULL) {
        status = gw_drafter_shift(g->draft.drafter, g->keep, dropped);
    }
    g->shifted += dropped;
    g->begin = gw_session_pos(g->session);
    int32_t all = g->begin + 1; /* with the pending token */
    return status == GW_OK ? gw_writer_release(g->writer, all > fixed ? (size_t)(all - fixed) : 0)
                           : status;
}

/* One token by one pass; the first one needs none. */
static gw_status one_token(app_generator *g, int32_t *token) {
    if (g->pending >= 0) {
        gw_status status = gw_session_next(g->session, gw_writer_sampler(g->writer), g->pending,
                                           g->shifted, token);
        g->passes += status == GW_OK;
        return status;
    }
    int32_t place = gw_session_pos(g->session) + g->shifted;
    return gw_writer_pick(g->writer, gw_session_logits(g->session, 0), place, token);
}

/* The text ends with its first `left` tokens again, and the logits after them are there: by the
 * arithmetic that they had, so that it does not matter who drafted what. */
static gw_status go_back(app_generator *g, int32_t left) {
    gw_status status = GW_OK;
    if (g->draft.drafter != NULL) {
        status = gw_drafter_rewind(g->draft.drafter, left);
    }
    g->pending = -1;
    if (status != GW_OK ||
        (gw_session_pos(g->session) == left && gw_session_logits(g->session, 0) != NULL)) {
        return status;
    }
    int32_t last = gw_session_tokens(g->session)[left - 1], read = left - 1 < g->begin;
    status = gw_session_rewind(g->session, left - 1);
    if (status == GW_OK) {
        g->pending = last; /* until it is in the session */
        g->passes++;
        status = read ? gw_session_prefill(g->session, &last, 1)
                      : gw_session_decode(g->session, &last, 1);
    }
    if (status == GW_OK) {
        g->pending = -1;
        g->begin = left < g->begin ? left : g->begin;
    }
    return status;
}

/* The tokens of a pass join the text, up to the first that completes a banned string or ends it. */
static gw_status next_pass(app_generator *g, size_t most) {
    int32_t tokens[GW_DECODE_MAX];
    size_t n = 1, used = 1, back = 0;
    gw_status status = is_full(g) ? shift_context(g) : GW_OK;
    if (status == GW_OK && g->draft.drafter != NULL) {
        most = most < GW_DECODE_MAX ? most : GW_DECODE_MAX;
        status = gw_drafter_next(g->draft.drafter, gw_writer_sampler(g->writer), tokens, most, &n);
        g->passes += g->pending >= 0;
    } else if (status == GW_OK) {
        status = one_token(g, tokens);
    }
    if (status != GW_OK) {
        return status;
    }
    g->pending = tokens[n - 1];
    int32_t first = gw_session_pos(g->session) + 1 - (int32_t)n; /* place of tokens[0] */
    status = g->draft.drafter != NULL
                 ? gw_writer_take_all(g->writer, tokens, n, first + g->shifted, &used, &back)
                 : gw_writer_take(g->writer, tokens[0], first + g->shifted, &back);
    if (status != GW_OK || back == 0) {
        return status;
    }
    g->bans++;
    g->taken_back += (int32_t)back;
    return go_back(g, first + (int32_t)used - (int32_t)back);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

int generator_stopped(const app_generator *g) {
    int32_t stop = -1;
    return gw_writer_ended(g->writer, &stop) && stop >= 0;
}

gw_status generator_over(app_generator *g) { return gw_writer_over(g->writer); }

gw_status generator_next(app_generator *g, size_t most, gw_piece *piece, int *there) {
    gw_status status = GW_OK;
    for (;;) {
        int32_t stop = -1;
        status = gw_writer_piece(g->writer, piece, there);
        if (status != GW_OK || *there) {
            return status;
        }
        if (g->failed != GW_OK) {
            return g->failed;
        }
        size_t held = gw_writer_held(g->writer);
        int full = is_full(g) && !g->shifts;
        if (gw_writer_ended(g->writer, &stop)) {
            g->ended = stop >= 0 ? "stop string" : g->ended[0] != '\0' ? g->ended : "end of text";
            return GW_OK;
        }
        if (held >= most || full) { /* nothing follows them */
            g->ended = full ? "context full" : "as long as asked for";
            status = gw_writer_over(g->writer);
        } else {
            status = next_pass(g, most - held);
        }
        if (status != GW_OK) { /* no text follows an error */
            g->failed = status;
            (void)gw_writer_over(g->writer);
        }
    }
}
