/* apps/perplexity.c - `godwit perplexity`: how well a model predicts a text, as one line. The work
 * is that of `godwit evaluate` (apps/judge/windows.h). */
#include <stdlib.h>

#include "apps/common.h"
#include "apps/judge/windows.h"
#include "apps/output.h"
#include "apps/signals.h"

static int score_text(const app_options *o, gw_model *model, const judge_windows *windows) {
    judge_text t = {.windows = windows, .model = model};
    tally scored = {0};
    tally_figures f;
    gw_model_info info;
    gw_model_describe(model, &info);
    int code = app_open_session(o, model, o->n_ctx, o->batch, &t.session);
    if (code != APP_OK) {
        return code;
    }
    double start = app_seconds();
    code = judge_score_text(&t, &scored);
    gw_session_free(t.session);
    if (scored.n > 0 && (code == APP_OK || signals_caught() != 0) &&
        tally_sum_up(&scored, 0, &f) == 0) {
        double seconds = app_seconds() - start;
        out_print("PPL = %.4f +/- %.5f\n", f.ppl, f.ppl_error);
        app_note("%s, %s: %zu tokens of %zu windows of %d scored in %.1f s%s", info.name,
                 info.format, f.n, windows->count, (int)o->n_ctx, seconds,
                 code == APP_OK ? "" : " before the interruption");
    }
    tally_free(&scored);
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
    judge_windows windows;
    const app_need need = {.n_ctx = o->n_ctx, .batch = o->batch};
    int code = app_read_file(o->file, &text);
    if (code == APP_OK) {
        code = app_open_model(o, o->model, o->threads, &need, &model);
    }
    if (code == APP_OK) {
        code = judge_cut_text(o, model, &text, &ids, &windows);
    }
    if (code == APP_OK) {
        code = score_text(o, model, &windows);
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
        "perplexity and its standard error. 'godwit evaluate' says more, of several models.\n",
    .examples = "  godwit perplexity -m model.gguf -f text.txt -c 512\n",
    .operand = "--model",
    .run = run_perplexity,
};
