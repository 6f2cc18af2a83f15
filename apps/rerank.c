/* apps/rerank.c - `godwit rerank`: scores of texts by a classifier, or by late interaction. */
#include <stdio.h>
#include <stdlib.h>

#include "apps/encode.h"
#include "apps/output.h"
#include "apps/vectors/rows.h"

static int score_ids(const app_options *o, gw_model *model, gw_encoder *encoder) {
    gw_encoder_info info;
    gw_encoder_text text = {.ids = o->ids.at, .n = o->ids.n};
    gw_encoder_get_info(encoder, &info);
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

/* ---- documents ------------------------------------------------------------------------------ */

typedef struct scored {
    float score;
    size_t index;
} scored;

/* The best first, equal ones as they stand. */
static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return x->score != y->score ? (x->score > y->score ? -1 : 1)
                                : (x->index < y->index ? -1 : x->index > y->index);
}

static int print_order(const app_options *o, const app_items *items, const scored *order) {
    size_t n = o->top_n > 0 && (size_t)o->top_n < items->n ? (size_t)o->top_n : items->n;
    for (size_t i = 0; i < n; i++) {
        const app_item *item = &items->at[order[i].index];
        out_print("%.9g\t%s", (double)order[i].score, item->id != NULL ? item->id : "");
        if (item->id == NULL) {
            out_print("%zu", order[i].index + 1);
        }
        out_text("\t");
        out_write(item->at, item->bytes);
        out_text("\n");
    }
    return out_failed() ? APP_FAILURE : APP_OK;
}

/* By the classifier's labels, of two the second says yes. */
static int judge(const app_options *o, gw_model *model, gw_encoder *encoder, const app_items *items,
                 size_t labels, float *out) {
    enum { SLICE = 256 };
    app_progress progress;
    int code = APP_OK;
    float *scores = malloc(SLICE * (labels + 1) * sizeof *scores);
    if (scores == NULL) {
        app_error("no memory for %d scores", SLICE);
        return APP_FAILURE;
    }
    progress_begin(&progress, "scoring");
    for (size_t at = 0; at < items->n && code == APP_OK; at += SLICE) {
        size_t n = items->n - at < SLICE ? items->n - at : SLICE;
        app_encoded tokens = {0};
        progress_update(&progress, at, items->n, NULL);
        code = app_encode(o, model, encoder, items, at, n, NULL, o->query, &tokens);
        if (code == APP_OK) {
            gw_status status = gw_encoder_score(encoder, tokens.texts, n, scores);
            code = status == GW_OK ? APP_OK : app_fail(status);
        }
        for (size_t i = 0; i < n && code == APP_OK; i++) {
            const float *s = scores + i * labels;
            out[at + i] = labels == 2 ? s[1] - s[0] : s[0];
        }
        app_encoded_free(&tokens);
    }
    progress_end(&progress);
    free(scores);
    return code;
}

static int score_documents(const app_options *o, gw_model *model, gw_encoder *encoder,
                           const app_items *items) {
    gw_encoder_info info;
    gw_encoder_get_info(encoder, &info);
    scored *order = calloc(items->n + 1, sizeof *order);
    float *scores = calloc(items->n + 1, sizeof *scores);
    int code = APP_FAILURE;
    if (order == NULL || scores == NULL) {
        app_error("no memory for %zu scores", items->n);
    } else if (info.labels == 0 && info.per_token) {
        code = vectors_match(o, encoder, items, scores);
    } else {
        code = judge(o, model, encoder, items, (size_t)info.labels, scores);
    }
    if (code == APP_OK) {
        for (size_t i = 0; i < items->n; i++) {
            order[i] = (scored){scores[i], i};
        }
        qsort(order, items->n, sizeof *order, by_score);
        code = print_order(o, items, order);
    }
    free(order);
    free(scores);
    return code;
}

static int run_rerank(const app_options *o) {
    gw_model *model = NULL;
    gw_encoder *encoder = NULL;
    app_items items = {0};
    if ((o->ids.n == 0) == (o->query == NULL || o->file == NULL)) {
        app_error("give a query with -q and documents with -f FILE, or --ids ID,...");
        return APP_USAGE;
    }
    int code = app_open_encoder(o, &model, &encoder);
    if (code == APP_OK && o->ids.n > 0) {
        code = score_ids(o, model, encoder);
    } else if (code == APP_OK) {
        code = app_read_items(o, &items);
        code = code == APP_OK ? score_documents(o, model, encoder, &items) : code;
    }
    app_items_free(&items);
    gw_encoder_free(encoder);
    app_close_model(model);
    return code;
}

const app_command command_rerank = {
    .name = "rerank",
    .bit = CMD_RERANK,
    .usage = "-m MODEL (-q QUERY -f DOCUMENTS | --ids ID,...) [OPTIONS]",
    .summary = "how well documents answer a query",
    .detail =
        "Scores the pair of the query and each document, a line each of FILE or the member "
        "\"text\" of\n"
        "each line of FILE.jsonl, with the model's classifier, and prints them best first: score,\n"
        "number of the line (or the member \"id\"), text. Scores are as the classifier gives them; "
        "of\n"
        "two labels, how much the second is above the first. Models of late interaction (ColBERT)\n"
        "score by their vectors: the sum, over the query's tokens, of the best product with one "
        "of\n"
        "the document's. With --ids one pair's tokens: \"score: \".\n",
    .examples = "  godwit rerank -m bge-reranker-base -q \"how do birds fly\" -f documents.txt\n"
                "  godwit rerank -m bge-reranker-base --ids 0,31,2,2,77,2\n",
    .operand = "--model",
    .run = run_rerank,
};
