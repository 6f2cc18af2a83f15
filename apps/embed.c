/* apps/embed.c - `godwit embed`: vectors of texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/encode.h"
#include "apps/output.h"
#include "apps/signals.h"

/* ---- given tokens --------------------------------------------------------------------------- */

/* safetensors: the header, padded to 8 bytes, behind its length. */
static size_t make_header(char *room, size_t capacity, size_t rows, const gw_encoder_info *info,
                          int with_vector) {
    unsigned long long hidden = (unsigned long long)rows * (unsigned long long)info->hidden * 4;
    int n = snprintf(room + 8, capacity - 8,
                     "{\"hidden\":{\"dtype\":\"F32\",\"shape\":[%zu,%d],\"data_offsets\":[0,%llu]}",
                     rows, (int)info->hidden, hidden);
    if (with_vector) {
        n += snprintf(room + 8 + n, capacity - 8 - (size_t)n,
                      ",\"embedding\":{\"dtype\":\"F32\",\"shape\":[%d],"
                      "\"data_offsets\":[%llu,%llu]}",
                      (int)info->width, hidden, hidden + 4ull * (unsigned long long)info->width);
    }
    room[8 + n++] = '}';
    while (n % 8 != 0) {
        room[8 + n++] = ' ';
    }
    for (int i = 0; i < 8; i++) {
        room[i] = (char)((uint64_t)n >> (8 * i));
    }
    return 8 + (size_t)n;
}

static int write_states(const app_options *o, const gw_encoder_info *info, size_t rows,
                        const float *hidden, const float *vector) {
    out_file file = {.fd = -1};
    char header[512];
    size_t states = rows * (size_t)info->hidden * sizeof *hidden;
    size_t values = vector != NULL ? (size_t)info->width * sizeof *vector : 0;
    size_t n = make_header(header, sizeof header, rows, info, vector != NULL);
    int code = APP_FAILURE;
    if (out_file_open(&file, o->out, n + states + values) == 0 &&
        out_file_write(&file, header, n) == 0 && out_file_write(&file, hidden, states) == 0 &&
        (values == 0 || out_file_write(&file, vector, values) == 0)) {
        code = out_file_commit(&file) == 0 ? APP_OK : APP_FAILURE;
    }
    out_file_discard(&file);
    return code;
}

/* Hidden states and the vector of one text of given tokens. */
static int embed_ids(const app_options *o, gw_model *model, gw_encoder *encoder) {
    gw_encoder_info info;
    gw_encoder_text text = {.ids = o->ids.at, .n = o->ids.n};
    gw_encoder_describe(encoder, &info);
    int code = app_check_ids(model, "--ids", &o->ids);
    code = code == APP_OK ? app_token_types(o, &text) : code;
    if (code != APP_OK) {
        return code;
    }
    float *hidden = malloc(text.n * (size_t)info.hidden * sizeof *hidden);
    float *vector = malloc((size_t)info.width * sizeof *vector);
    int pooled = info.pooling != GW_POOLING_NONE;
    if (hidden == NULL || vector == NULL) {
        app_error("no memory for the hidden states of %zu tokens", text.n);
        code = APP_FAILURE;
    } else {
        gw_status status = gw_encoder_hidden(encoder, &text, hidden);
        if (status == GW_OK && pooled) {
            status = gw_encoder_embed(encoder, &text, 1, vector);
        }
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    if (code == APP_OK && o->out != NULL) {
        code = write_states(o, &info, text.n, hidden, pooled ? vector : NULL);
    } else if (code == APP_OK && pooled) {
        for (int32_t i = 0; i < info.width; i++) {
            out_print(i == 0 ? "%.9g" : " %.9g", (double)vector[i]);
        }
        out_text("\n");
    }
    free(hidden);
    free(vector);
    return code;
}

static int run_embed(const app_options *o) {
    gw_model *model = NULL;
    gw_encoder *encoder = NULL;
    if (o->ids.n == 0) {
        app_error("no text: give --ids ID,...");
        return APP_USAGE;
    }
    int code = app_open_encoder(o, &model, &encoder);
    if (code == APP_OK) {
        code = embed_ids(o, model, encoder);
    }
    gw_encoder_free(encoder);
    app_close_model(model);
    return code;
}

const app_command command_embed = {
    .name = "embed",
    .bit = CMD_EMBED,
    .usage = "-m MODEL (-p TEXT | -f FILE | --ids ID,...) [-o FILE] [OPTIONS]",
    .summary = "vectors of texts, for search and comparison",
    .detail = "Computes the vector of each text.\n",
    .examples = "  godwit embed -m bge-small -p \"a text\"\n",
    .operand = "--model",
    .run = run_embed,
};
