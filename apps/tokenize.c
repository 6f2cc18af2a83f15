/* apps/tokenize.c - `godwit tokenize`: text to token ids and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/output.h"
#include "core/base/utf8.h"

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

static int put_list(const int32_t *ids, size_t n) {
    out_text("[");
    for (size_t i = 0; i < n; i++) {
        out_print(i == 0 ? "%d" : ",%d", (int)ids[i]);
    }
    return out_text("]\n") == 0 ? APP_OK : APP_FAILURE;
}

static int encode(const app_options *o, const gw_model *model) {
    app_text text = {0};
    int32_t *ids = NULL, *types = NULL;
    size_t n = 0;
    int flags = (o->no_bos ? 0 : GW_TEXT_BOS) | (o->special ? GW_TEXT_SPECIAL : 0);
    int code = app_read_prompt(o, NULL, 0, &text);
    if (code == APP_OK && o->pair == NULL) {
        code = app_tokenize(model, &text, flags, &ids, &n);
    } else if (code == APP_OK) {
        gw_status status = gw_tokenize_pair(model, text.at, text.bytes, o->pair, strlen(o->pair),
                                            flags, &ids, &types, &n);
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    if (code == APP_OK && !o->ids_only && !o->quiet) {
        code = show_pieces(model, ids, n);
    }
    code = code == APP_OK ? put_list(ids, n) : code;
    code = code == APP_OK && types != NULL ? put_list(types, n) : code;
    free(text.at);
    gw_free(ids);
    gw_free(types);
    return code;
}

/* "[1, 2,3]" of a file; *list is allocated. */
static int read_ids(const char *path, app_ints *list) {
    app_text text = {0};
    int code = app_read_file(path, &text);
    list->at = code == APP_OK ? malloc((text.bytes + 1) * sizeof *list->at) : NULL;
    if (code == APP_OK && list->at == NULL) {
        app_error("no memory for the tokens of %s", path);
        code = APP_FAILURE;
    }
    for (size_t at = 0; code == APP_OK && at < text.bytes;) {
        if (strchr("[], \t\r\n", text.at[at]) != NULL && text.at[at] != '\0') {
            at++;
            continue;
        }
        int64_t id = 0;
        size_t begin = at;
        while (at < text.bytes && text.at[at] >= '0' && text.at[at] <= '9' && id <= INT32_MAX) {
            id = id * 10 + (text.at[at++] - '0');
        }
        if (at == begin || id > INT32_MAX) {
            app_error("%s: byte %zu is no token id", path, begin);
            code = APP_FAILURE;
        } else {
            list->at[list->n++] = (int32_t)id;
        }
    }
    free(text.at);
    return code;
}

/* Characters only: what tokens leave of one shows as U+FFFD. */
static void put_characters(const char *text, size_t bytes) {
    size_t begin = 0;
    for (size_t at = 0; at < bytes;) {
        int open;
        size_t n = gw_utf8_next(text + at, bytes - at, NULL);
        if (n == 0) {
            n = gw_utf8_bad(text + at, bytes - at, &open);
            out_write(text + begin, at - begin);
            out_text("\xEF\xBF\xBD");
            begin = at + n;
        }
        at += n;
    }
    out_write(text + begin, bytes - begin);
}

static int decode(const app_options *o, const gw_model *model, const app_ints *ids) {
    int code = app_check_ids(model, o->decode_file != NULL ? "--decode-file" : "--decode", ids);
    if (code != APP_OK) {
        return code;
    }
    char *text = NULL;
    size_t bytes = 0;
    gw_status status = gw_detokenize(model, ids->at, ids->n, o->special, &text, &bytes);
    if (status != GW_OK) {
        return app_fail(status);
    }
    put_characters(text, bytes);
    gw_free(text);
    return out_text("\n") == 0 ? APP_OK : APP_FAILURE;
}

static int run_tokenize(const app_options *o) {
    app_ints from_file = {0};
    int text = o->prompt != NULL || o->file != NULL, list = o->decode.n > 0;
    int file = o->decode_file != NULL;
    if (text + list + file != 1) {
        app_error("give either a text with -p or -f, or tokens with --decode or --decode-file");
        return APP_USAGE;
    }
    if (o->pair != NULL && !text) {
        app_error("--pair goes with a text of -p or -f");
        return APP_USAGE;
    }
    int code = file ? read_ids(o->decode_file, &from_file) : APP_OK;
    gw_model *model = NULL;
    code = code == APP_OK ? app_open_model(o, o->model, 1, NULL, &model) : code;
    if (code == APP_OK) {
        code = text ? encode(o, model) : decode(o, model, file ? &from_file : &o->decode);
    }
    gw_model_free(model);
    free(from_file.at);
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
        "given. A file is taken as it is, its last newline included. MODEL may be a tokenizer's\n"
        "file alone: tokenizer.json, tekken.json, tokenizer.model, vocab.txt, ...\n",
    .examples = "  godwit tokenize -p \"Once upon a time\" --ids\n"
                "  godwit tokenize --decode 1,300,301\n"
                "  godwit tokenize -p \"What is a crane?\" --pair \"A bird.\" --ids\n",
    .operand = "--model",
    .run = run_tokenize,
};
