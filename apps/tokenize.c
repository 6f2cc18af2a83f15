/* apps/tokenize.c - `godwit tokenize`: text to token ids and back. */
#include <stdio.h>
#include <stdlib.h>

#include "apps/common.h"
#include "apps/output.h"

/* One line per token on stderr: id and piece, control characters shown as '.'. */
static int show_pieces(const gw_model *model, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char *piece = NULL;
        size_t bytes = 0;
        gw_status status = gw_detokenize(model, &ids[i], 1, 1, &piece, &bytes);
        if (status != GW_OK) {
            return app_fail(status);
        }
        for (size_t k = 0; k < bytes; k++) {
            piece[k] = (unsigned char)piece[k] < 0x20 ? '.' : piece[k];
        }
        fprintf(stderr, "%7d '%.*s'\n", (int)ids[i], (int)bytes, piece);
        gw_free(piece);
    }
    return APP_OK;
}

static int encode(const app_options *o, const gw_model *model) {
    app_text text = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    int code = app_read_prompt(o, NULL, 0, &text);
    if (code == APP_OK) {
        int flags = (o->no_bos ? 0 : GW_TEXT_BOS) | (o->special ? GW_TEXT_SPECIAL : 0);
        code = app_tokenize(model, &text, flags, &ids, &n);
    }
    if (code == APP_OK && !o->ids_only && !o->quiet) {
        code = show_pieces(model, ids, n);
    }
    if (code == APP_OK) {
        out_text("[");
        for (size_t i = 0; i < n; i++) {
            out_print(i == 0 ? "%d" : ",%d", (int)ids[i]);
        }
        code = out_text("]\n") == 0 ? APP_OK : APP_FAILURE;
    }
    free(text.at);
    gw_free(ids);
    return code;
}

static int decode(const app_options *o, const gw_model *model) {
    int code = app_check_ids(model, "--decode", &o->decode);
    if (code != APP_OK) {
        return code;
    }
    char *text = NULL;
    size_t bytes = 0;
    gw_status status = gw_detokenize(model, o->decode.at, o->decode.n, o->special, &text, &bytes);
    if (status != GW_OK) {
        return app_fail(status);
    }
    out_write(text, bytes);
    gw_free(text);
    return out_text("\n") == 0 ? APP_OK : APP_FAILURE;
}

static int run_tokenize(const app_options *o) {
    if ((o->prompt != NULL || o->file != NULL) == (o->decode.n > 0)) {
        app_error("give either a text with -p or -f, or tokens with --decode");
        return APP_USAGE;
    }
    gw_model *model = NULL;
    int code = app_open_model(o, o->model, 1, NULL, &model);
    if (code == APP_OK) {
        code = o->decode.n > 0 ? decode(o, model) : encode(o, model);
    }
    gw_model_free(model);
    return code;
}

const app_command command_tokenize = {
    .name = "tokenize",
    .bit = CMD_TOKENIZE,
    .usage = "[-m MODEL] (-p TEXT | -f FILE | --decode ID,...) [OPTIONS]",
    .summary = "text to token ids, or ids to text",
    .detail =
        "Prints the ids as [id,id,...] on stdout, and without --ids or --quiet a table of ids and\n"
        "pieces on stderr. Spellings of special tokens in a text stay text unless --special is\n"
        "given. A file is taken as it is, its last newline included.\n",
    .examples = "  godwit tokenize -p \"Once upon a time\" --ids\n"
                "  godwit tokenize --decode 1,300,301\n",
    .operand = "--model",
    .run = run_tokenize,
};
