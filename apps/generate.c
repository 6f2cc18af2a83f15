/* apps/generate.c - sampler, passes, text: see generate.h. */
#include "apps/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t generator_n_ctx(const app_generator *g) {
    int32_t trained = g->info.n_ctx_train, n_ctx = g->o->n_ctx;
    if (n_ctx < 0) {
        return trained > 0 && trained < 4096 ? trained : 4096;
    }
    return n_ctx == 0 ? trained : n_ctx;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* The biases of -l, and with --ignore-eos one against every token that ends a text. NULL: no
 * memory. */
static gw_logit_bias *collect_bias(const app_generator *g, size_t *n) {
    const app_options *o = g->o;
    gw_logit_bias *bias =
        calloc(o->n_bias + (o->ignore_eos ? (size_t)g->info.n_vocab : 0) + 1, sizeof *bias);
    for (*n = 0; bias != NULL && *n < o->n_bias; (*n)++) {
        bias[*n] = o->bias[*n];
    }
    for (int32_t id = 0; bias != NULL && o->ignore_eos && id < g->info.n_vocab; id++) {
        if (gw_token_is_end(g->model, id)) {
            bias[(*n)++] = (gw_logit_bias){.token = id, .bias = -INFINITY};
        }
    }
    return bias;
}

/* "none" alone: no breaker. */
static void more_options(const app_options *o, gw_sampler_options *out) {
    out->dynatemp_range = (float)o->dynatemp_range;
    out->dynatemp_exponent = (float)o->dynatemp_exp;
    out->top_n_sigma = (float)o->top_n_sigma;
    out->tfs_z = (float)o->tfs;
    out->xtc_probability = (float)o->xtc_probability;
    out->xtc_threshold = (float)o->xtc_threshold;
    out->mirostat = o->mirostat;
    out->mirostat_tau = (float)o->mirostat_ent;
    out->mirostat_eta = (float)o->mirostat_lr;
    out->dry_multiplier = (float)o->dry_multiplier;
    out->dry_base = (float)o->dry_base;
    out->dry_allowed_length = o->dry_allowed_length;
    out->dry_last_n = o->dry_last_n;
    out->dry_breakers = o->dry_breakers.at; /* NULL: the usual ones */
    out->n_dry_breakers = o->dry_breakers.n;
    if (o->dry_breakers.n == 1 && strcmp(o->dry_breakers.at[0], "none") == 0) {
        out->n_dry_breakers = 0;
    }
    out->fsd_alpha = (float)o->fsd;
    out->fsd_n = o->fsd_n;
    out->fsd_k = o->fsd_k;
    out->fsd_random = o->fsd_random;
}

int generator_renew_sampler(app_generator *g) {
    const app_options *o = g->o;
    gw_sampler_options options;
    gw_sampler_defaults(&options);
    options.bias = collect_bias(g, &options.n_bias);
    if (options.bias == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    options.seed = o->seed;
    options.temperature = (float)o->temperature;
    options.top_k = o->top_k;
    options.top_p = (float)o->top_p;
    options.min_p = (float)o->min_p;
    options.typical_p = (float)o->typical;
    options.repeat_penalty = (float)o->repeat_penalty;
    options.presence_penalty = (float)o->presence_penalty;
    options.frequency_penalty = (float)o->frequency_penalty;
    options.repeat_last_n = o->repeat_last_n;
    options.order = o->samplers;
    more_options(o, &options);
    gw_sampler *sampler = NULL;
    gw_status status = gw_sampler_new(g->model, &options, &sampler);
    free((void *)(uintptr_t)options.bias);
    if (status != GW_OK) {
        return app_fail(status);
    }
    gw_sampler_free(g->sampler);
    g->sampler = sampler;
    return APP_OK;
}

enum { CHAT_STOPS = 8 };

static int open_stop(app_generator *g, const gw_chat *chat) {
    const char *more[CHAT_STOPS];
    size_t given = g->o->stops.n, n_more = 0;
    if (chat != NULL) {
        n_more = gw_chat_stops(chat, more, CHAT_STOPS);
    }
    size_t n = given + n_more;
    if (n == 0) {
        return APP_OK;
    }
    const char **all = calloc(n, sizeof *all);
    if (all == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    for (size_t i = 0; i < n; i++) {
        all[i] = i < given ? g->o->stops.at[i] : more[i - given];
    }
    gw_status status = gw_stop_new(all, n, &g->stop);
    free(all);
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

static int open_ban(app_generator *g) {
    const app_texts *bans = &g->o->bans;
    if (bans->n == 0) {
        return APP_OK;
    }
    gw_status status = gw_ban_new(g->model, bans->at, bans->n, g->o->special, &g->ban);
    return status == GW_OK ? APP_OK : app_fail(status);
}

int generator_open(app_generator *g, const gw_chat *chat) {
    g->pending = -1;
    g->chat = chat;
    g->line = calloc(GW_BAN_HELD + 2 * GW_DECODE_MAX, sizeof *g->line);
    if (g->line == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    int code = open_stop(g, chat);
    if (code == APP_OK) {
        code = open_ban(g);
    }
    if (code == APP_OK) {
        code = open_grammar(g, chat);
    }
    if (code == APP_OK) {
        code = draft_open(g->o, g->model, g->o->model, g->session, 0, &g->draft);
    }
    if (code == APP_OK) {
        code = generator_renew_sampler(g);
    }
    if (code == APP_OK) {
        gw_status status = gw_stream_new(g->model, &g->stream);
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    return code;
}

/* A decoder may drop a space at the beginning of a text, and the grammar has counted it: so the
 * stream is told some text before, which is not shown. */
static gw_status begin_stream(app_generator *g) {
    const char *text;
    size_t bytes, n = 0;
    int32_t *ids = NULL;
    gw_status status = gw_tokenize(g->model, "a", 1, 0, &ids, &n);
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = gw_stream_push(g->stream, ids[i], &text, &bytes);
    }
    gw_free(ids);
    return status;
}

int generator_begin(app_generator *g, int fresh) {
    gw_status status = GW_OK;
    g->begin = gw_session_pos(g->session);
    g->n_line = 0;
    if (g->grammar != NULL) {
        status = gw_sampler_constrain(g->sampler, g->grammar);
        if (status == GW_OK && fresh) {
            status = begin_stream(g);
        }
    }
    if (status == GW_OK && g->ban != NULL) {
        status = gw_ban_begin(g->ban, g->stream);
    }
    if (status == GW_OK) {
        status = gw_sampler_ban(g->sampler, g->ban);
    }
    return status == GW_OK ? APP_OK : app_fail(status);
}

void generator_end(app_generator *g) {
    gw_sampler_constrain(g->sampler, NULL); /* cannot fail */
    gw_sampler_ban(g->sampler, NULL);
}

static size_t held_back(const app_generator *g) { return g->ban != NULL ? gw_ban_held(g->ban) : 0; }

int generator_finished(const app_generator *g) {
    return held_back(g) == 0 && gw_sampler_finished(g->sampler);
}

void generator_close(app_generator *g) {
    gw_stop_free(g->stop);
    gw_stream_free(g->stream);
    gw_sampler_free(g->sampler);
    gw_grammar_free(g->grammar);
    gw_ban_free(g->ban);
    free(g->line);
    gw_free(g->special);
    draft_close(&g->draft);
    gw_session_free(g->session);
    app_close_model(g->model);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

gw_status generator_read(app_generator *g, const int32_t *tokens, size_t n,
                         app_progress *progress) {
    size_t slice = (size_t)g->o->batch;
    gw_status status = GW_OK;
    for (size_t at = 0; at < n && status == GW_OK; at += slice) {
        size_t part = n - at < slice ? n - at : slice;
        progress_update(progress, at, n, NULL);
        status = gw_session_prefill(g->session, tokens + at, part);
        if (status == GW_OK && g->draft.drafter != NULL) {
            status = gw_drafter_prompt(g->draft.drafter, tokens + at, part);
        }
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = gw_sampler_accept(g->sampler, tokens[i]);
    }
    return status;
}

gw_status generator_know(app_generator *g, const int32_t *tokens, size_t n) {
    gw_status status = GW_OK;
    if (g->draft.drafter != NULL && n > 0) {
        status = gw_drafter_prompt(g->draft.drafter, tokens, n);
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = gw_sampler_accept(g->sampler, tokens[i]);
    }
    return status;
}

static int at_the_end(const app_generator *g) {
    return g->pending >= 0 && gw_session_pos(g->session) == gw_session_n_ctx(g->session);
}

int generator_full(const app_generator *g) {
    return at_the_end(g) && !g->o->context_shift && held_back(g) == 0;
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
    if (status == GW_OK && g->ban != NULL) {
        int32_t all = g->begin + 1; /* with the pending token */
        status = gw_ban_release(g->ban, all > fixed ? (size_t)(all - fixed) : 0);
    }
    return status;
}

/* One token by one pass; the first one needs none. */
static gw_status one_token(app_generator *g, int32_t *token) {
    gw_status status;
    if (g->pending >= 0) {
        status = gw_session_next(g->session, g->sampler, g->pending, g->shifted, token);
        g->passes += status == GW_OK;
    } else {
        const float *logits = gw_session_logits(g->session, 0);
        int32_t place = gw_session_pos(g->session) + g->shifted;
        status = gw_sampler_pick(g->sampler, logits, place, token);
    }
    if (status == GW_OK && !gw_token_is_end(g->model, *token)) {
        status = gw_sampler_accept(g->sampler, *token);
    }
    return status;
}

/* Tokens of the next pass, tokens [GW_DECODE_MAX]. */
static gw_status draw_tokens(app_generator *g, size_t most, int32_t *tokens, size_t *n) {
    gw_status status = at_the_end(g) ? shift_context(g) : GW_OK;
    if (status != GW_OK) {
        return status;
    }
    if (g->draft.drafter != NULL) {
        most = most < GW_DECODE_MAX ? most : GW_DECODE_MAX;
        status = gw_drafter_next(g->draft.drafter, g->sampler, tokens, most, n);
        g->passes += g->pending >= 0;
    } else {
        *n = 1;
        status = one_token(g, tokens);
    }
    if (status == GW_OK) {
        g->pending = tokens[*n - 1];
    }
    return status;
}

/* ---- what must not come ---------------------------------------------------------------------- */

static int ends_text(const app_generator *g, int32_t id) {
    if (g->o->ignore_eos) {
        return 0;
    }
    return g->chat != NULL ? gw_chat_is_end(g->chat, id) : gw_token_is_end(g->model, id);
}

/* The text ends with its first `left` tokens again, and the logits behind them are there: by the
 * arithmetic that they had, so that it does not matter who drafted what. */
static gw_status go_back(app_generator *g, int32_t left, size_t accepted) {
    gw_status status = gw_sampler_rewind(g->sampler, accepted);
    if (status == GW_OK && g->draft.drafter != NULL) {
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

/* Tokens of a pass join the line, up to the first that completes a banned string or ends the text.
 */
static gw_status join(app_generator *g, const int32_t *tokens, size_t n) {
    int32_t first = gw_session_pos(g->session) + 1 - (int32_t)n; /* place of tokens[0] */
    int ended = 0;
    for (size_t i = 0; i < n && !ended; i++) {
        int32_t at = first + (int32_t)i;
        size_t back = 0;
        gw_status status = gw_ban_push(g->ban, tokens[i], at + g->shifted, &back);
        if (status != GW_OK) {
            return status;
        }
        if (back > 0) {
            size_t accepted = n - i - (size_t)gw_token_is_end(g->model, tokens[n - 1]);
            g->n_line -= back - 1;
            g->bans++;
            g->taken_back += (int32_t)back;
            return go_back(g, at + 1 - (int32_t)back, accepted + back - 1);
        }
        g->line[g->n_line++] = tokens[i];
        ended = ends_text(g, tokens[i]);
    }
    return ended ? gw_ban_release(g->ban, 0) : GW_OK;
}

static gw_status next_pass(app_generator *g, size_t most) {
    int32_t tokens[GW_DECODE_MAX];
    size_t n = 0;
    gw_status status = draw_tokens(g, most, tokens, &n);
    if (status == GW_OK && g->ban != NULL) {
        return join(g, tokens, n);
    }
    for (size_t i = 0; status == GW_OK && i < n; i++) {
        g->line[g->n_line++] = tokens[i];
    }
    return status;
}

static void hand_out(app_generator *g, const int32_t **tokens, size_t *n) {
    *tokens = g->line;
    *n = g->n_line - held_back(g);
}

gw_status generator_rest(app_generator *g, const int32_t **tokens, size_t *n) {
    size_t held = held_back(g);
    memmove(g->line, g->line + (g->n_line - held), held * sizeof *g->line);
    g->n_line = held;
    gw_status status = g->ban != NULL ? gw_ban_release(g->ban, 0) : GW_OK;
    hand_out(g, tokens, n);
    return status;
}

gw_status generator_next(app_generator *g, size_t most, const int32_t **tokens, size_t *n) {
    gw_status status = GW_OK;
    size_t held = held_back(g);
    memmove(g->line, g->line + (g->n_line - held), held * sizeof *g->line);
    g->n_line = held;
    while (status == GW_OK && g->n_line == (held = held_back(g))) {
        int over = held >= most || gw_sampler_finished(g->sampler) ||
                   (at_the_end(g) && !g->o->context_shift);
        if (held > 0 && over) {
            status = gw_ban_release(g->ban, 0); /* nothing comes behind them */
        } else {
            status = next_pass(g, most - held);
        }
    }
    if (status != GW_OK && g->ban != NULL) {
        (void)gw_ban_release(g->ban, 0); /* no text comes behind an error */
    }
    hand_out(g, tokens, n);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The spelling of a token that the stream leaves out because it is a special one. */
static gw_status spell_special(app_generator *g, int32_t id, const char **text, size_t *bytes) {
    char *hidden = NULL;
    size_t n_hidden = 0;
    gw_free(g->special);
    g->special = NULL;
    gw_status status = gw_detokenize(g->model, &id, 1, 0, &hidden, &n_hidden);
    gw_free(hidden);
    if (status == GW_OK && n_hidden == 0) {
        status = gw_detokenize(g->model, &id, 1, 1, &g->special, bytes);
        *text = g->special;
    }
    return status;
}

int generator_text(app_generator *g, int32_t id, const char **text, size_t *bytes, int *stopped) {
    gw_status status = gw_stream_push(g->stream, id, text, bytes);
    int hit = -1;
    if (status == GW_OK && id >= 0 && *bytes == 0 && g->o->special) {
        status = spell_special(g, id, text, bytes);
    }
    if (id < 0 && g->ban != NULL) {
        *bytes = 0; /* U+FFFD for half a character may be what is banned: nothing instead */
    }
    if (status == GW_OK && g->stop != NULL) {
        status = gw_stop_push(g->stop, *text, *bytes, id < 0, text, bytes, &hit);
    }
    *stopped = hit >= 0;
    return status == GW_OK ? APP_OK : app_fail(status);
}
