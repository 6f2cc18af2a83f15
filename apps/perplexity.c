/* apps/perplexity.c - `godwit perplexity`: how well a model predicts a text.
 *
 * The protocol of llama.cpp's tool, so that figures compare: the tokens (bos first where the model
 * asks for it) are cut into windows of n_ctx without overlap, a rest is dropped; bos replaces the
 * first token of each window; the rows n_ctx / 2 .. n_ctx - 2 of a window are scored against the
 * token that follows each.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "apps/common.h"
#include "apps/output.h"
#include "apps/signals.h"

typedef struct score {
    const int32_t *window;
    int32_t n_vocab;
    double sum, squares; /* of the negative log-likelihoods */
    size_t n;
    int broken;
} score;

/* -ln softmax(logits)[token] */
static double surprise(const float *logits, int32_t n, int32_t token, int32_t best) {
    double top = logits[best], sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - top);
    }
    return top + log(sum) - (double)logits[token];
}

static int on_row(void *user, size_t row, const float *logits) {
    score *s = user;
    int32_t best = app_argmax(logits, s->n_vocab);
    if (best < 0) {
        s->broken = 1;
        return 1;
    }
    double nll = surprise(logits, s->n_vocab, s->window[row + 1], best);
    s->sum += nll;
    s->squares += nll * nll;
    s->n++;
    return 0;
}

static double perplexity_of(const score *s) { return exp(s->sum / (double)s->n); }

/* Standard error of the mean of the log-likelihoods, carried over to the perplexity. */
static double error_of(const score *s) {
    double n = (double)s->n, mean = s->sum / n, variance = s->squares / n - mean * mean;
    return s->n > 1 && variance > 0 ? sqrt(variance / (n - 1)) * perplexity_of(s) : 0;
}

static int score_windows(const app_options *o, gw_model *model, gw_session *session, int32_t *ids,
                         size_t windows, score *s) {
    size_t n_ctx = (size_t)o->n_ctx;
    int32_t bos = app_adds_bos(model) ? gw_token_bos(model) : -1;
    app_progress progress;
    progress_begin(&progress, "scoring");
    for (size_t w = 0; w < windows; w++) {
        char running[64] = "";
        if (s->n > 0) {
            snprintf(running, sizeof running, "window %zu of %zu  PPL %.4f", w, windows,
                     perplexity_of(s));
        }
        progress_update(&progress, w, windows, running);
        int32_t *window = ids + w * n_ctx;
        window[0] = bos >= 0 ? bos : window[0];
        s->window = window;
        gw_status status = gw_session_rewind(session, 0);
        if (status == GW_OK) { /* the last token predicts nothing that is known */
            status = gw_session_prefill_rows(session, window, n_ctx - 1, n_ctx / 2, on_row, s);
        }
        if (status != GW_OK) {
            progress_end(&progress);
            if (s->broken) {
                app_error("the logits of window %zu are not finite: the weights or the numbers of "
                          "this model are broken",
                          w);
                return APP_FAILURE;
            }
            return app_fail(status);
        }
    }
    progress_end(&progress);
    return APP_OK;
}

static int score_text(const app_options *o, gw_model *model, int32_t *ids, size_t n) {
    gw_model_info info;
    gw_model_describe(model, &info);
    size_t windows = n / (size_t)o->n_ctx;
    if (windows == 0) {
        app_error("%s: has %zu tokens, a window of -c %d needs as many", o->file, n, (int)o->n_ctx);
        return APP_FAILURE;
    }
    gw_session *session = NULL;
    int code = app_open_session(o, model, o->n_ctx, o->batch, &session);
    if (code != APP_OK) {
        return code;
    }
    score s = {.n_vocab = info.n_vocab};
    double start = app_seconds();
    code = score_windows(o, model, session, ids, windows, &s);
    gw_session_free(session);
    if (s.n > 0 && (code == APP_OK || signals_caught() != 0)) {
        double seconds = app_seconds() - start;
        out_print("PPL = %.4f +/- %.5f\n", perplexity_of(&s), error_of(&s));
        app_note("%s, %s: %zu tokens of %zu windows of %d scored in %.1f s%s", info.name,
                 info.format, s.n, windows, (int)o->n_ctx, seconds,
                 code == APP_OK ? "" : " before the interruption");
    }
    return code;
}

static int run_perplexity(const app_options *o) {
    if (o->file == NULL) {
        app_error("no text: give one with -f FILE");
        return APP_USAGE;
    }
    app_text text = {0};
    gw_model *model = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    const app_need need = {.n_ctx = o->n_ctx, .batch = o->batch};
    int code = app_read_file(o->file, &text);
    if (code == APP_OK) {
        code = app_open_model(o, o->model, o->threads, &need, &model);
    }
    if (code == APP_OK) {
        code = app_tokenize(model, &text, GW_TEXT_BOS, &ids, &n);
    }
    if (code == APP_OK) {
        code = score_text(o, model, ids, n);
    }
    free(text.at);
    gw_free(ids);
    app_close_model(model);
    return code;
}

const app_command command_perplexity = {
    .name = "perplexity",
    .bit = CMD_PERPLEXITY,
    .usage = "-m MODEL -f FILE [OPTIONS]",
    .summary = "how well a model predicts a text",
    .detail =
        "Cuts the text into windows of -c tokens without overlap, each beginning with the start\n"
        "token, and scores the second half of each, as llama.cpp's tool does. Prints the\n"
        "perplexity and its standard error.\n",
    .examples = "  godwit perplexity -m model.gguf -f text.txt -c 512\n",
    .operand = "--model",
    .run = run_perplexity,
};
