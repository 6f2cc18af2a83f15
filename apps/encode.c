/* apps/encode.c - opens encoders by the options; reads lists of texts and tokenizes them. */
#include "apps/encode.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/output.h"
#include "apps/signals.h"

/* ---- encoders ------------------------------------------------------------------------------- */

static gw_pooling pooling_of(const char *name) {
    return name == NULL                ? GW_POOLING_MODEL
           : strcmp(name, "none") == 0 ? GW_POOLING_NONE
           : strcmp(name, "cls") == 0  ? GW_POOLING_CLS
           : strcmp(name, "last") == 0 ? GW_POOLING_LAST
                                       : GW_POOLING_MEAN;
}

int app_open_encoder(const app_options *o, gw_model **model, gw_encoder **encoder) {
    const app_need need = {.n_ctx = o->n_ctx > 0 ? o->n_ctx : -512, .batch = 512};
    int code = app_open_model(o, o->model, o->threads, &need, model);
    if (code != APP_OK) {
        return code;
    }
    gw_encoder_options options = {.n_ctx = o->n_ctx,
                                  .rows = o->batch,
                                  .pooling = pooling_of(o->pooling),
                                  .dimensions = o->dimensions,
                                  .normalize = o->no_normalize ? -1 : 0,
                                  .kv_type = o->kv_type,
                                  .cancel = signals_cancel()};
    gw_status status = gw_encoder_new(*model, &options, encoder);
    return status == GW_OK ? APP_OK : app_fail(status);
}

int app_token_types(const app_options *o, gw_encoder_text *text) {
    if (o->types.n > 0 && o->types.n != text->n) {
        app_error("--types: %zu types for %zu tokens", o->types.n, text->n);
        return APP_USAGE;
    }
    text->types = o->types.n > 0 ? o->types.at : NULL;
    return APP_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

int app_name_ends(const char *path, const char *tail) {
    size_t n = strlen(path), m = strlen(tail);
    return n > m && strcmp(path + n - m, tail) == 0;
}

int app_to_file(void *to, const char *text, size_t bytes) {
    return out_file_write(to, text, bytes);
}

int app_to_stdout(void *to, const char *text, size_t bytes) {
    (void)to;
    return out_write(text, bytes);
}

/* ---- lists of texts ------------------------------------------------------------------------- */

static int is_json(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot != NULL && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".ndjson") == 0);
}

static int take_object(const char *path, size_t line, app_item *item, json_t **object) {
    json_error_t error;
    json_t *root = json_loadb(item->at, item->bytes, JSON_REJECT_DUPLICATES, &error);
    *object = root;
    const json_t *text = json_object_get(root, "text"), *id = json_object_get(root, "id");
    if (!json_is_string(text)) {
        app_error("%s: line %zu is no JSON object with a text as member \"text\"%s%s", path, line,
                  root == NULL ? ": " : "", root == NULL ? error.text : "");
        return APP_FAILURE;
    }
    item->at = json_string_value(text);
    item->bytes = json_string_length(text);
    if (id != NULL) { /* kept in the object, so that it is freed with it */
        char *dump = json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT);
        json_t *kept = dump != NULL ? json_string(dump) : NULL;
        free(dump);
        if (kept != NULL && json_object_set_new(root, "id", kept) == 0) {
            item->id = json_string_value(kept);
        }
    }
    return APP_OK;
}

static int split_lines(const char *path, app_items *out) {
    const char *p = out->file.at, *end = p + out->file.bytes;
    size_t lines = 1;
    for (const char *q = p; q < end; q++) {
        lines += *q == '\n';
    }
    out->at = calloc(lines, sizeof *out->at);
    json_t **objects = is_json(path) ? calloc(lines, sizeof(json_t *)) : NULL;
    out->memory = objects;
    if (out->at == NULL || (is_json(path) && objects == NULL)) {
        app_error("%s: no memory for %zu lines", path, lines);
        return APP_FAILURE;
    }
    for (size_t line = 1; p < end; line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop != NULL ? stop : end;
        size_t n = (size_t)(stop - p);
        app_item item = {.at = p, .bytes = n > 0 && p[n - 1] == '\r' ? n - 1 : n};
        p = stop + 1;
        if (objects != NULL && item.bytes == 0) {
            continue;
        }
        if (objects != NULL) {
            int code = take_object(path, line, &item, &objects[out->n]);
            if (code != APP_OK) {
                out->n++;
                return code;
            }
        }
        out->at[out->n++] = item;
    }
    return APP_OK;
}

int app_read_items(const app_options *o, app_items *out) {
    int lines = o->file != NULL;
    if (lines && o->prompt != NULL) {
        app_error("-p and -f exclude one another");
        return APP_USAGE;
    }
    int code = lines ? app_read_file(o->file, &out->file) : app_read_prompt(o, NULL, 0, &out->file);
    if (code != APP_OK) {
        return code;
    }
    if (lines) {
        code = split_lines(o->file, out);
    } else {
        out->at = calloc(1, sizeof *out->at);
        code = out->at != NULL ? APP_OK : APP_FAILURE;
        if (code == APP_OK) {
            out->at[out->n++] = (app_item){.at = out->file.at, .bytes = out->file.bytes};
        }
    }
    if (code == APP_OK && out->n == 0) {
        app_error("%s: holds no text", o->file);
        code = APP_FAILURE;
    }
    return code;
}

void app_items_free(app_items *items) {
    json_t **objects = items->memory;
    for (size_t i = 0; objects != NULL && i < items->n; i++) {
        json_decref(objects[i]);
    }
    free(objects);
    free(items->at);
    free(items->file.at);
    memset(items, 0, sizeof *items);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static gw_status tokens_of(gw_model *model, const app_item *item, const char *prefix,
                           const char *query, int flags, int32_t **ids, int32_t **types,
                           size_t *n) {
    if (query != NULL) {
        return gw_tokenize_pair(model, query, strlen(query), item->at, item->bytes, flags, ids,
                                types, n);
    }
    if (prefix == NULL || prefix[0] == '\0') {
        return gw_tokenize_pair(model, item->at, item->bytes, NULL, 0, flags, ids, types, n);
    }
    size_t before = strlen(prefix);
    char *whole = malloc(before + item->bytes + 1);
    if (whole == NULL) {
        *n = 0;
        return GW_E_NOMEM;
    }
    memcpy(whole, prefix, before);
    memcpy(whole + before, item->at, item->bytes);
    gw_status status =
        gw_tokenize_pair(model, whole, before + item->bytes, NULL, 0, flags, ids, types, n);
    free(whole);
    return status;
}

/* Tokens after every document of this query: those in which two documents end alike. */
static size_t tail_of_pairs(gw_model *model, const char *query) {
    int32_t *ids[2] = {NULL, NULL}, *types[2] = {NULL, NULL};
    size_t n[2] = {0}, tail = 0;
    for (int i = 0; i < 2; i++) {
        if (gw_tokenize_pair(model, query, strlen(query), i == 0 ? "a" : "7", 1, GW_TEXT_BOS,
                             &ids[i], &types[i], &n[i]) != GW_OK) {
            n[i] = 0;
        }
    }
    while (tail < n[0] && tail < n[1] && ids[0][n[0] - 1 - tail] == ids[1][n[1] - 1 - tail]) {
        tail++;
    }
    for (int i = 0; i < 2; i++) {
        gw_free(ids[i]);
        gw_free(types[i]);
    }
    return tail;
}

/* Tokens that the model puts after every text, of an empty one: those that --truncate keeps. */
static size_t tail_of(gw_model *model, const char *query) {
    if (query != NULL) {
        return tail_of_pairs(model, query);
    }
    int32_t *ids = NULL, *open = NULL;
    size_t n = 0, n_open = 0;
    gw_status status = gw_tokenize(model, "a", 1, GW_TEXT_BOS, &ids, &n);
    status = status == GW_OK
                 ? gw_tokenize(model, "a", 1, GW_TEXT_BOS | GW_TEXT_OPEN, &open, &n_open)
                 : status;
    gw_free(ids);
    gw_free(open);
    return status == GW_OK && n > n_open ? n - n_open : 0;
}

/* The first tokens of a text, and those that stand after every text. */
static void shorten(int32_t *ids, int32_t *types, size_t n, size_t most, size_t tail) {
    tail = tail < most ? tail : most;
    memmove(ids + most - tail, ids + n - tail, tail * sizeof *ids);
    if (types != NULL) {
        memmove(types + most - tail, types + n - tail, tail * sizeof *types);
    }
}

int app_encode(const app_options *o, gw_model *model, const gw_encoder *encoder,
               const app_items *items, size_t first, size_t n, const char *prefix,
               const char *query, app_encoded *out) {
    gw_encoder_info info;
    gw_encoder_get_info(encoder, &info);
    size_t most = (size_t)info.n_ctx, tail = o->truncate ? tail_of(model, query) : 0;
    size_t prompt = 0;
    if (prefix != NULL) {
        gw_status status = gw_encoder_prompt_tokens(encoder, prefix, strlen(prefix), &prompt);
        if (status != GW_OK) {
            return app_fail(status);
        }
    }
    int flags = GW_TEXT_BOS | (o->special ? GW_TEXT_SPECIAL : 0);
    out->texts = calloc(n + 1, sizeof *out->texts);
    out->ids = calloc(n + 1, sizeof(int32_t *));
    out->types = calloc(n + 1, sizeof(int32_t *));
    if (out->texts == NULL || out->ids == NULL || out->types == NULL) {
        app_error("no memory for %zu texts", n);
        return APP_FAILURE;
    }
    for (size_t i = 0; i < n; i++) {
        size_t count = 0;
        gw_status status = tokens_of(model, &items->at[first + i], prefix, query, flags,
                                     &out->ids[i], &out->types[i], &count);
        out->n = i + 1;
        if (status != GW_OK) {
            return app_fail(status);
        }
        if (count > most && !o->truncate) {
            app_error("text %zu has %zu tokens, at most %zu fit; --truncate keeps the first ones",
                      first + i + 1, count, most);
            return APP_FAILURE;
        }
        if (count > most) {
            shorten(out->ids[i], out->types[i], count, most, tail);
            out->cut++;
            count = most;
        }
        if (count == 0) {
            app_error("text %zu has no tokens", first + i + 1);
            return APP_FAILURE;
        }
        out->texts[i] = (gw_encoder_text){.ids = out->ids[i],
                                          .types = info.types > 1 ? out->types[i] : NULL,
                                          .n = count,
                                          .prompt = prompt};
    }
    return APP_OK;
}

void app_encoded_free(app_encoded *e) {
    for (size_t i = 0; i < e->n; i++) {
        gw_free(e->ids[i]);
        gw_free(e->types[i]);
    }
    free(e->texts);
    free(e->ids);
    free(e->types);
    memset(e, 0, sizeof *e);
}

float app_match(const float *query, size_t n_query, const float *document, const char *kept,
                size_t n, size_t width) {
    double sum = 0.0;
    for (size_t q = 0; q < n_query; q++) {
        double most = -INFINITY;
        for (size_t i = 0; i < n; i++) {
            double product = 0.0;
            if (kept != NULL && !kept[i]) {
                continue;
            }
            for (size_t k = 0; k < width; k++) {
                product += (double)query[q * width + k] * (double)document[i * width + k];
            }
            most = product > most ? product : most;
        }
        sum += isinf(most) ? 0.0 : most;
    }
    return (float)sum;
}
