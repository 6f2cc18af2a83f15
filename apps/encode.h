/* apps/encode.h - what `embed` and `rerank` do alike. */
#ifndef GW_APPS_ENCODE_H
#define GW_APPS_ENCODE_H

#include "apps/common.h"

/* The model of -m and an encoder over it, by the options. Exit code; both are the caller's to
 * free. */
int app_open_encoder(const app_options *o, gw_model **model, gw_encoder **encoder);
/* The types of --types for the tokens of --ids. Exit code. */
int app_token_types(const app_options *o, gw_encoder_text *text);

/* A text of a list; at lies in the list's memory. */
typedef struct app_item {
    const char *at;
    size_t bytes;
    const char *id; /* of a JSON line, as JSON; NULL: none */
} app_item;

typedef struct app_items {
    app_item *at;
    size_t n;
    void *memory; /* [n] objects of JSON lines, or NULL */
    app_text file;
} app_items;

/* The texts of -p or -f: a line each, or JSON lines (FILE.jsonl, .ndjson) with a member "text".
 * Exit code; freed by app_items_free in any case. */
int app_read_items(const app_options *o, app_items *out);
void app_items_free(app_items *items);

/* Does a file's name end so? */
int app_name_ends(const char *path, const char *tail);
/* Where lines of JSON go: to an out_file, or to stdout. */
typedef int (*app_write_fn)(void *to, const char *text, size_t bytes);
int app_to_file(void *to, const char *text, size_t bytes);
int app_to_stdout(void *to, const char *text, size_t bytes);

/* Tokens of texts, and what is to be freed with them. */
typedef struct app_encoded {
    gw_encoder_text *texts;
    int32_t **ids, **types; /* [n] */
    size_t n, cut;          /* cut: texts that --truncate has shortened */
} app_encoded;

/* Tokens of items [first, first + n): behind prefix, or as the second half of pairs with query
 * (each may be NULL). Exit code; freed by app_encoded_free in any case. */
int app_encode(const app_options *o, gw_model *model, const gw_encoder *encoder,
               const app_items *items, size_t first, size_t n, const char *prefix,
               const char *query, app_encoded *out);
void app_encoded_free(app_encoded *e);

/* How well a document answers a query by late interaction (ColBERT's MaxSim): for each vector of
 * the query [n_query, width] the largest product with one of the document's [n, width], summed; 0
 * where the document has none. kept [n]: which of its tokens' vectors count; NULL: all. */
float app_match(const float *query, size_t n_query, const float *document, const char *kept,
                size_t n, size_t width);

#endif
