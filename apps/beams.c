/* apps/beams.c - see beams.h. */
#include "apps/beams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/output.h"
#include "apps/signals.h"
#include "apps/terminal.h"

int beams_check(const app_options *o, int *on) {
    const struct {
        const char *name;
        int given;
    } others[] = {{"--grammar", o->grammar != NULL},
                  {"--json-schema", o->json_schema != NULL},
                  {"--draft", o->draft != NULL},
                  {"--prompt-cache", o->prompt_cache != NULL},
                  {"--context-shift", o->context_shift},
                  {"--ignore-eos", o->ignore_eos},
                  {"--stop", o->stops.n > 0},
                  {"--ban", o->bans.n > 0},
                  {"--logit-bias", o->n_bias > 0}};
    *on = o->beams > 0;
    for (size_t i = 0; *on && i < sizeof others / sizeof others[0]; i++) {
        if (others[i].given) {
            app_error("--beams excludes %s", others[i].name);
            return APP_USAGE;
        }
    }
    return APP_OK;
}

static int take_options(const app_options *o, const gw_model *model, int32_t n_ctx,
                        gw_beam_options *out) {
    gw_beam_defaults(model, out);
    if (strcmp(o->length_penalty, "model") != 0) {
        char *end = NULL;
        out->length_penalty = strtof(o->length_penalty, &end);
        if (end == o->length_penalty || *end != '\0' || !isfinite(out->length_penalty)) {
            app_error("--length-penalty: '%.60s' is neither a number nor model", o->length_penalty);
            return APP_USAGE;
        }
    }
    if (strcmp(o->early_stopping, "model") != 0) {
        out->early = strcmp(o->early_stopping, "yes") == 0  ? GW_BEAM_EARLY_YES
                     : strcmp(o->early_stopping, "no") == 0 ? GW_BEAM_EARLY_NO
                                                            : GW_BEAM_EARLY_NEVER;
    }
    out->no_repeat = o->no_repeat_ngram >= 0 ? o->no_repeat_ngram : out->no_repeat;
    out->n_beams = o->beams;
    out->n_ctx = n_ctx;
    out->chunk = o->batch;
    out->kv_type = o->kv_type;
    out->cancel = signals_cancel();
    return APP_OK;
}

/* The best texts, malloc'd [o->beams]. */
static int search(const app_options *o, gw_model *model, int32_t n_ctx, const gw_beam_input *input,
                  gw_beam_text **texts) {
    gw_beam_options options;
    gw_beam *beam = NULL;
    int code = take_options(o, model, n_ctx, &options);
    if (code != APP_OK) {
        return code;
    }
    *texts = calloc((size_t)o->beams, sizeof **texts);
    if (*texts == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    gw_status status = gw_beam_new(model, &options, &beam);
    status = status == GW_OK ? gw_beam_search(beam, input, 1, *texts) : status;
    gw_beam_free(beam);
    if (status == GW_OK && (*texts)[0].tokens == NULL) {
        app_error("no text ends within the context, or none may");
        return APP_FAILURE;
    }
    return status == GW_OK ? APP_OK : app_fail(status);
}

static void free_texts(const app_options *o, gw_beam_text *texts) {
    if (texts != NULL) {
        gw_beam_texts_free(texts, (size_t)o->beams);
    }
    free(texts);
}

int beams_list(const app_options *o, gw_model *model, int32_t n_ctx, const gw_beam_input *input) {
    gw_beam_text *texts = NULL;
    int code = search(o, model, n_ctx, input, &texts);
    for (int32_t i = 0; code == APP_OK && i < o->beams && texts[i].tokens != NULL; i++) {
        out_print("beam: %.9g ", (double)texts[i].score);
        for (size_t k = 0; k < texts[i].n; k++) {
            out_print(k == 0 ? "%d" : ",%d", (int)texts[i].tokens[k]);
        }
        out_text("\n");
    }
    free_texts(o, texts);
    return code == APP_OK && out_failed() ? APP_FAILURE : code;
}

/* Text of tokens through the stream; shown: whether it is written. last: its last byte. */
static gw_status push(gw_stream *stream, const int32_t *tokens, size_t n, int shown, char *last) {
    for (size_t i = 0; i <= n; i++) {
        const char *text;
        size_t bytes;
        if (i == n && !shown) {
            break;
        }
        gw_status status = gw_stream_push(stream, i < n ? tokens[i] : -1, &text, &bytes);
        if (status != GW_OK) {
            return status;
        }
        if (shown && bytes > 0) {
            out_write(text, bytes);
            *last = text[bytes - 1];
        }
    }
    return GW_OK;
}

/* The spelling of special tokens too. */
static gw_status write_all(const gw_model *model, const int32_t *tokens, size_t n, char *last) {
    char *text = NULL;
    size_t bytes = 0;
    gw_status status = gw_detokenize(model, tokens, n, 1, &text, &bytes);
    if (status == GW_OK && bytes > 0) {
        out_write(text, bytes);
        *last = text[bytes - 1];
    }
    gw_free(text);
    return status;
}

static int write_text(const app_options *o, const gw_model *model, const gw_beam_input *input,
                      const gw_beam_text *best) {
    size_t n = best->n, shown = o->no_display_prompt ? 0 : input->n_prompt, all;
    int32_t *tokens = calloc(input->n_prompt + n + 1, sizeof *tokens);
    gw_stream *stream = NULL;
    char last = 0;
    if (tokens == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    memcpy(tokens, input->prompt, input->n_prompt * sizeof *tokens);
    memcpy(tokens + input->n_prompt, best->tokens, n * sizeof *tokens);
    all = input->n_prompt + n;
    gw_status status;
    if (o->special) {
        size_t from = shown > 0 ? 0 : input->n_prompt;
        status = write_all(model, tokens + from, all - from, &last);
    } else {
        size_t from = shown > 0 ? 0 : input->n_prompt;
        all -= n > 0 && gw_token_is_end(model, tokens[all - 1]) ? 1 : 0;
        status = gw_stream_new(model, &stream);
        status = status == GW_OK ? push(stream, tokens, from, 0, &last) : status;
        status = status == GW_OK ? push(stream, tokens + from, all - from, 1, &last) : status;
    }
    if (last != '\n' && last != 0) {
        out_text("\n");
    }
    gw_stream_free(stream);
    free(tokens);
    return status != GW_OK ? app_fail(status) : out_flush() != 0 ? APP_FAILURE : APP_OK;
}

static void summary(const app_options *o, const gw_beam_text *best, double seconds) {
    if (o->no_stats || terminal_quiet() || out_failed()) {
        return;
    }
    double rate = seconds > 0.0 ? (double)best->n / seconds : 0.0;
    if (o->stats != NULL && strcmp(o->stats, "json") == 0) {
        app_note("{\"beams\":%d,\"score\":%.9g,\"logprob\":%.9g,\"text\":{\"tokens\":%zu,"
                 "\"seconds\":%.6f,\"tokens_per_second\":%.3f}}",
                 (int)o->beams, (double)best->score, (double)best->logprob, best->n, seconds, rate);
        return;
    }
    app_note("\nbeams   %d, score %.6f, log probability %.6f", (int)o->beams, (double)best->score,
             (double)best->logprob);
    app_note("text    %zu tokens in %.3f s, %.1f tok/s, prompt and source included", best->n,
             seconds, rate);
}

int beams_run(const app_options *o, gw_model *model, int32_t n_ctx, const gw_beam_input *input) {
    gw_beam_text *texts = NULL;
    double start = app_seconds();
    int code = search(o, model, n_ctx, input, &texts);
    double seconds = app_seconds() - start;
    code = code == APP_OK ? write_text(o, model, input, &texts[0]) : code;
    if (code == APP_OK) {
        summary(o, &texts[0], seconds);
    }
    free_texts(o, texts);
    return code;
}
