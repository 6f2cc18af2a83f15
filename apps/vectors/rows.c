/* apps/vectors/rows.c - see rows.h. */
#include "apps/vectors/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/output.h"

enum { SLICE = 64 }; /* texts between two lines of progress */

/* Where the rows of each text end among all; rows that are not kept are gone. */
typedef struct rows {
    float *at; /* [n, width] */
    size_t n, room, width;
    int64_t *counts; /* [texts] */
    size_t texts;
} rows;

static int add_room(rows *r, size_t more) {
    if (r->n + more > r->room) {
        size_t room = 2 * (r->n + more);
        float *at = realloc(r->at, room * r->width * sizeof *at);
        if (at == NULL) {
            app_error("no memory for %zu vectors of tokens", room);
            return APP_FAILURE;
        }
        r->at = at;
        r->room = room;
    }
    return APP_OK;
}

/* ---- tokens of texts ------------------------------------------------------------------------- */

typedef struct slice {
    gw_encoder_text text[SLICE];
    size_t seen[SLICE], n, tokens, before; /* before: texts of earlier slices */
} slice;

static void free_slice(slice *s) {
    for (size_t i = 0; i < s->n; i++) {
        gw_free((void *)(uintptr_t)s->text[i].ids);
    }
    s->before += s->n;
    s->n = s->tokens = 0;
}

static int add_text(const app_options *o, const gw_encoder *encoder, gw_encoder_use use,
                    const app_item *item, const char *prefix, slice *s) {
    size_t before = strlen(prefix), n = 0, seen = 0;
    int32_t *ids = NULL;
    char *whole = malloc(before + item->bytes + 1);
    if (whole == NULL) {
        app_error("no memory for a text");
        return APP_FAILURE;
    }
    memcpy(whole, prefix, before);
    memcpy(whole + before, item->at, item->bytes);
    gw_status status =
        gw_encoder_tokens(encoder, whole, before + item->bytes, use, o->truncate, &ids, &n, &seen);
    free(whole);
    if (status == GW_E_CONTEXT && item->at == o->query) {
        app_error("the query: %s; --truncate keeps the first ones", gw_error_text());
        return APP_FAILURE;
    }
    if (status == GW_E_CONTEXT) {
        app_error("text %zu: %s; --truncate keeps the first ones", s->before + s->n + 1,
                  gw_error_text());
        return APP_FAILURE;
    }
    if (status != GW_OK) {
        return app_fail(status);
    }
    s->text[s->n] = (gw_encoder_text){.ids = ids, .n = n};
    s->seen[s->n++] = seen;
    s->tokens += n;
    return APP_OK;
}

/* Vectors of the slice's tokens, without those that documents do not keep. */
static int embed_slice(gw_encoder *encoder, gw_encoder_use use, const slice *s, rows *out) {
    int code = add_room(out, s->tokens);
    if (code != APP_OK) {
        return code;
    }
    float *made = out->at + out->n * out->width;
    gw_status status = gw_encoder_rows(encoder, s->text, s->seen, s->n, made);
    if (status != GW_OK) {
        return app_fail(status);
    }
    for (size_t t = 0, from = 0; t < s->n; t++) {
        int64_t kept = 0;
        for (size_t i = 0; i < s->text[t].n; i++, from++) {
            if (use == GW_USE_QUERY || gw_encoder_keeps(encoder, s->text[t].ids[i])) {
                memmove(out->at + out->n++ * out->width, made + from * out->width,
                        out->width * sizeof *made);
                kept++;
            }
        }
        out->counts[out->texts++] = kept;
    }
    return APP_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* {"index":0,"id":..,"embedding":[[..],..]} for each text; */
static int write_lines(const rows *r, const app_items *items, app_write_fn write, void *to) {
    char *line = malloc(r->width * 24 + 64);
    int fine = line != NULL;
    for (size_t t = 0, at = 0; t < r->texts && fine; t++) {
        const char *id = items->at[t].id;
        size_t n = (size_t)snprintf(line, 40, "{\"index\":%zu,", t);
        fine = write(to, line, n) == 0;
        if (id != NULL) {
            fine = fine && write(to, "\"id\":", 5) == 0 && write(to, id, strlen(id)) == 0 &&
                   write(to, ",", 1) == 0;
        }
        fine = fine && write(to, "\"embedding\":[", 13) == 0;
        for (int64_t i = 0; i < r->counts[t] && fine; i++, at++) {
            n = (size_t)snprintf(line, 4, i == 0 ? "[" : ",[");
            for (size_t k = 0; k < r->width; k++) {
                n += (size_t)snprintf(line + n, 24, k == 0 ? "%.9g" : ",%.9g",
                                      (double)r->at[at * r->width + k]);
            }
            line[n++] = ']';
            fine = write(to, line, n) == 0;
        }
        fine = fine && write(to, "]}\n", 3) == 0;
    }
    free(line);
    return fine ? APP_OK : APP_FAILURE;
}

/* `embeddings` [rows, width] of all texts one after the other, and `counts` [texts]: rows of each.
 */
static size_t make_header(const rows *r, char *room, size_t capacity) {
    unsigned long long values = (unsigned long long)(r->n * r->width * sizeof(float));
    int n = snprintf(room + 8, capacity - 8,
                     "{\"counts\":{\"dtype\":\"I64\",\"shape\":[%zu],\"data_offsets\":[0,%zu]},"
                     "\"embeddings\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu],"
                     "\"data_offsets\":[%zu,%llu]}}",
                     r->texts, r->texts * sizeof(int64_t), r->n, r->width,
                     r->texts * sizeof(int64_t), values + r->texts * sizeof(int64_t));
    while (n % 8 != 0) {
        room[8 + n++] = ' ';
    }
    for (int i = 0; i < 8; i++) {
        room[i] = (char)((uint64_t)n >> (8 * i));
    }
    return 8 + (size_t)n;
}

static int write_rows(const app_options *o, const rows *r, const app_items *items) {
    if (o->out == NULL) {
        return write_lines(r, items, app_to_stdout, NULL);
    }
    out_file file = {.fd = -1};
    char header[512];
    int lines = app_name_ends(o->out, ".jsonl"), code = APP_FAILURE;
    size_t counts = r->texts * sizeof *r->counts, values = r->n * r->width * sizeof *r->at;
    size_t n = lines ? 0 : make_header(r, header, sizeof header);
    if (out_file_open(&file, o->out, lines ? 0 : n + counts + values) == 0) {
        if (lines) {
            code = write_lines(r, items, app_to_file, &file);
        } else if (out_file_write(&file, header, n) == 0 &&
                   out_file_write(&file, r->counts, counts) == 0 &&
                   out_file_write(&file, r->at, values) == 0) {
            code = APP_OK;
        }
        code = code == APP_OK && out_file_commit(&file) != 0 ? APP_FAILURE : code;
    }
    out_file_discard(&file);
    return code;
}

static int check_output(const app_options *o) {
    if (o->out != NULL && !app_name_ends(o->out, ".safetensors") &&
        !app_name_ends(o->out, ".jsonl")) {
        app_error("-o %s: texts have vectors of as many tokens as each has; the name must end in "
                  ".safetensors or .jsonl",
                  o->out);
        return APP_USAGE;
    }
    return APP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* --prompt-name query: a query; else a document, and what the model's files put before it. */
static int choose_use(const app_options *o, const gw_encoder *encoder, gw_encoder_use *use,
                      const char **prefix) {
    const char *name = o->prompt_name;
    *use = name != NULL && strcmp(name, "query") == 0 ? GW_USE_QUERY : GW_USE_DOCUMENT;
    if (o->prefix != NULL && name != NULL && *use != GW_USE_QUERY) {
        app_error("--prefix and --prompt-name exclude one another");
        return APP_USAGE;
    }
    const char *stated = gw_encoder_prompt(encoder, name);
    int is_use = name != NULL && (*use == GW_USE_QUERY || strcmp(name, "document") == 0);
    *prefix = o->prefix != NULL ? o->prefix : stated != NULL ? stated : is_use ? "" : NULL;
    if (*prefix == NULL) {
        app_error("--prompt-name %.60s: the model's files name no such prompt", name);
        return APP_FAILURE;
    }
    return APP_OK;
}

int vectors_rows(const app_options *o, gw_encoder *encoder) {
    gw_encoder_info info;
    app_items items = {0};
    rows all = {0};
    slice some = {.n = 0};
    gw_encoder_use use = GW_USE_DOCUMENT;
    const char *prefix = "";
    double start = app_seconds();
    gw_encoder_get_info(encoder, &info);
    int code = check_output(o);
    code = code == APP_OK ? choose_use(o, encoder, &use, &prefix) : code;
    code = code == APP_OK ? app_read_items(o, &items) : code;
    all.width = (size_t)info.width;
    all.counts = calloc(items.n + 1, sizeof *all.counts);
    if (code == APP_OK && all.counts == NULL) {
        app_error("no memory for %zu texts", items.n);
        code = APP_FAILURE;
    }
    for (size_t i = 0; i < items.n && code == APP_OK;) {
        while (i < items.n && some.n < SLICE && code == APP_OK) {
            code = add_text(o, encoder, use, &items.at[i++], prefix, &some);
        }
        code = code == APP_OK ? embed_slice(encoder, use, &some, &all) : code;
        free_slice(&some);
    }
    code = code == APP_OK ? write_rows(o, &all, &items) : code;
    if (code == APP_OK) {
        app_note("%zu texts, %zu vectors of %zu values, %.2f s", all.texts, all.n, all.width,
                 app_seconds() - start);
    }
    app_items_free(&items);
    free(all.at);
    free(all.counts);
    return code;
}

/* ---- scores ---------------------------------------------------------------------------------- */

static const char *prompt_of(const gw_encoder *encoder, const char *name) {
    const char *stated = gw_encoder_prompt(encoder, name);
    return stated != NULL ? stated : "";
}

/* Vectors of items [first, first + n) in place of what was there. */
static int embed_items(const app_options *o, gw_encoder *encoder, gw_encoder_use use,
                       const app_item *items, size_t n, slice *s, rows *out) {
    const char *prefix = prompt_of(encoder, use == GW_USE_QUERY ? "query" : "document");
    int code = APP_OK;
    out->n = out->texts = 0;
    for (size_t i = 0; i < n && code == APP_OK; i++) {
        code = add_text(o, encoder, use, &items[i], prefix, s);
    }
    code = code == APP_OK ? embed_slice(encoder, use, s, out) : code;
    free_slice(s);
    return code;
}

int vectors_match(const app_options *o, gw_encoder *encoder, const app_items *items,
                  float *scores) {
    gw_encoder_info info;
    gw_encoder_get_info(encoder, &info);
    const app_item query = {.at = o->query, .bytes = strlen(o->query)};
    int64_t of_query, of_documents[SLICE];
    rows asked = {.width = (size_t)info.width, .counts = &of_query};
    rows found = {.width = (size_t)info.width, .counts = of_documents};
    slice some = {.n = 0}, one = {.n = 0};
    app_progress progress;
    progress_begin(&progress, "scoring");
    int code = embed_items(o, encoder, GW_USE_QUERY, &query, 1, &one, &asked);
    for (size_t i = 0; i < items->n && code == APP_OK; i += SLICE) {
        size_t n = items->n - i < SLICE ? items->n - i : SLICE, row = 0;
        progress_update(&progress, i, items->n, NULL);
        code = embed_items(o, encoder, GW_USE_DOCUMENT, items->at + i, n, &some, &found);
        for (size_t t = 0; t < n && code == APP_OK; row += (size_t)of_documents[t++]) {
            scores[i + t] = app_match(asked.at, asked.n, found.at + row * found.width, NULL,
                                      (size_t)of_documents[t], found.width);
        }
    }
    progress_end(&progress);
    free(asked.at);
    free(found.at);
    return code;
}
