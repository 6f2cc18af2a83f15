/* apps/rerank.c - `godwit rerank`: scores of texts by a classifier. */
#include <stdio.h>
#include <stdlib.h>

#include "apps/encode.h"
#include "apps/output.h"

static int score_ids(const app_options *o, gw_model *model, gw_encoder *encoder) {
    gw_encoder_info info;
    gw_encoder_text text = {.ids = o->ids.at, .n = o->ids.n};
    gw_encoder_describe(encoder, &info);
    int code = app_check_ids(model, "--ids", &o->ids);
    code = code == APP_OK ? app_token_types(o, &text) : code;
    if (code != APP_OK) {
        return code;
    }
    float *scores = malloc(((size_t)info.labels + 1) * sizeof *scores);
    if (scores == NULL) {
        app_error("no memory for the scores");
        return APP_FAILURE;
    }
    gw_status status = gw_encoder_score(encoder, &text, 1, scores);
    if (status == GW_OK) {
        out_text("score:");
        for (int32_t i = 0; i < info.labels; i++) {
            out_print(" %.9g", (double)scores[i]);
        }
        out_text("\n");
    }
    free(scores);
    return status == GW_OK ? APP_OK : app_fail(status);
}

static int run_rerank(const app_options *o) {
    gw_model *model = NULL;
    gw_encoder *encoder = NULL;
    if (o->ids.n == 0) {
        app_error("nothing to score: give --ids ID,...");
        return APP_USAGE;
    }
    int code = app_open_encoder(o, &model, &encoder);
    if (code == APP_OK) {
        code = score_ids(o, model, encoder);
    }
    gw_encoder_free(encoder);
    app_close_model(model);
    return code;
}

const app_command command_rerank = {
    .name = "rerank",
    .bit = CMD_RERANK,
    .usage = "-m MODEL (-q QUERY -f DOCUMENTS | --ids ID,...) [OPTIONS]",
    .summary = "how well documents answer a query",
    .detail = "Scores each document with the model's classifier.\n",
    .examples = "  godwit rerank -m bge-reranker-base --ids 0,31,2,2,77,2\n",
    .operand = "--model",
    .run = run_rerank,
};
