/* apps/serve/route_vectors.c - vectors and scores of texts: OpenAI's and Ollama's embeddings,
 * rerank as Jina, Cohere and TEI (Hugging Face's text-embeddings-inference) have it. Models that
 * make text answer with 501. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/encode.h"
#include "apps/serve/job.h"
#include "apps/serve/routes.h"

/* SLICE: texts between which others may run; VALUE: bytes of a JSON value in a list. */
enum { TEXTS_MAX = 8192, SLICE = 64, VALUE = 128 };

static int no_memory(job *j) { return fault_set(&j->f, 503, NULL, "out of memory"); }

/* ---- texts ----------------------------------------------------------------------------------- */

typedef struct texts {
    gw_encoder_text *at; /* [n]; ids and types are malloc'd */
    size_t *seen;        /* [n] of late interaction */
    size_t n, tokens;
    gw_encoder_use use;
    const char *field; /* of the request, that has them */
    int cut;           /* what is too long loses its end, but for the token that ends a text */
} texts;

static void free_texts(texts *t) {
    for (size_t i = 0; i < t->n; i++) {
        gw_free((void *)(uintptr_t)t->at[i].ids);
        gw_free((void *)(uintptr_t)t->at[i].types);
    }
    free(t->at);
    free(t->seen);
}

/* Takes ids and types over. */
static int add_tokens(job *j, texts *t, int32_t *ids, int32_t *types, size_t n) {
    gw_encoder_text *one = &t->at[t->n++];
    *one = (gw_encoder_text){.ids = ids, .types = types, .n = n, .prompt = one->prompt};
    t->tokens += n;
    if (n == 0) {
        return fault_set(&j->f, 400, t->field, "%s: text %zu has no tokens", t->field, t->n);
    }
    size_t room = (size_t)j->m->n_ctx;
    if (n > room && t->cut) {
        ids[room - 1] = ids[n - 1];
        if (types != NULL) {
            types[room - 1] = types[n - 1];
        }
        t->tokens -= n - room;
        one->n = n = room;
        if (t->seen != NULL && t->seen[t->n - 1] > n) {
            t->seen[t->n - 1] = n;
        }
    }
    if (n > room) {
        fault_set(&j->f, 400, t->field, "%s: text %zu has %zu tokens, at most %d fit", t->field,
                  t->n, n, (int)j->m->n_ctx);
        j->f.code = "context_length_exceeded";
        j->f.got = (int64_t)n;
        j->f.limit = j->m->n_ctx;
        return -1;
    }
    if (j->m->encodes.types < 2) {
        gw_free(types);
        one->types = NULL;
    }
    return 0;
}

/* A text as models with vectors of tokens have it. */
static int add_marked(job *j, texts *t, const char *text, size_t bytes) {
    int32_t *ids = NULL;
    size_t n = 0;
    gw_status status =
        gw_encoder_tokens(j->m->encoder, text, bytes, t->use, t->cut, &ids, &n, &t->seen[t->n]);
    return status == GW_OK ? add_tokens(j, t, ids, NULL, n)
                           : fault_of_status(&j->f, status, t->field);
}

/* A text, after what the model's files put before each; pair NULL: alone. */
static int add_text(job *j, texts *t, const char *before, const json_t *text, const json_t *pair) {
    text_buffer whole = {0};
    int32_t *ids = NULL, *types = NULL;
    size_t n = 0;
    if (job_is_gone(j)) {
        return fault_set(&j->f, 503, NULL, "the client has left");
    }
    if (text_add(&whole, before, strlen(before)) != 0 ||
        text_add(&whole, json_string_value(text), json_string_length(text)) != 0) {
        free(whole.at);
        return no_memory(j);
    }
    if (j->m->encodes.per_token) {
        int code = add_marked(j, t, whole.at, whole.n);
        free(whole.at);
        return code;
    }
    gw_status status = gw_tokenize_pair(
        j->m->gw, whole.at, whole.n, pair != NULL ? json_string_value(pair) : NULL,
        pair != NULL ? json_string_length(pair) : 0, GW_TEXT_BOS, &ids, &types, &n);
    free(whole.at);
    size_t prompt = 0;
    if (status == GW_OK) {
        status = gw_encoder_prompt_tokens(j->m->encoder, before, strlen(before), &prompt);
        t->at[t->n].prompt = prompt;
    }
    return status == GW_OK ? add_tokens(j, t, ids, types, n)
                           : fault_of_status(&j->f, status, t->field);
}

static int add_ids(job *j, texts *t, const json_t *list) {
    size_t n = json_array_size(list);
    int32_t *ids = calloc(n + 1, sizeof *ids);
    if (ids == NULL) {
        return no_memory(j);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= j->m->info.n_vocab) {
            free(ids);
            return fault_set(&j->f, 400, t->field,
                             "%s: a list of texts, or of lists of this "
                             "model's tokens (0 to %d) is needed",
                             t->field, (int)j->m->info.n_vocab - 1);
        }
        ids[i] = (int32_t)value;
    }
    t->seen[t->n] = n;
    return add_tokens(j, t, ids, NULL, n);
}

static int read_input(job *j, texts *t, const json_t *input) {
    const char *name = NULL;
    if (ask_text(j->ask.root, "prompt_name", &name, &j->f) != 0) {
        return -1;
    }
    const char *before = gw_encoder_prompt(j->m->encoder, name);
    int marks = name != NULL && j->m->encodes.per_token;
    t->use = marks && strcmp(name, "query") == 0 ? GW_USE_QUERY : GW_USE_DOCUMENT;
    if (before == NULL && marks && (t->use == GW_USE_QUERY || strcmp(name, "document") == 0)) {
        before = "";
    }
    if (before == NULL) {
        return fault_set(&j->f, 400, "prompt_name", "prompt_name: the model names no such prompt");
    }
    int one = json_is_string(input) || json_is_integer(json_array_get(input, 0));
    size_t n = one ? 1 : json_array_size(input);
    if (n == 0 || n > TEXTS_MAX) {
        return fault_set(&j->f, 400, t->field, "%s: a text, or a list of at most %d is needed",
                         t->field, TEXTS_MAX);
    }
    t->at = calloc(n, sizeof *t->at);
    t->seen = calloc(n, sizeof *t->seen);
    if (t->at == NULL || t->seen == NULL) {
        return no_memory(j);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *text = one ? input : json_array_get(input, i);
        int code = json_is_string(text) ? add_text(j, t, before, text, NULL) : add_ids(j, t, text);
        if (code != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- vectors --------------------------------------------------------------------------------- */

static json_t *base64(const unsigned char *at, size_t n) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((n + 2) / 3 * 4 + 1), *to = text;
    for (size_t i = 0; text != NULL && i < n; i += 3) {
        unsigned bits = (unsigned)at[i] << 16 | (i + 1 < n ? (unsigned)at[i + 1] << 8 : 0) |
                        (i + 2 < n ? at[i + 2] : 0u);
        *to++ = letters[bits >> 18];
        *to++ = letters[bits >> 12 & 63];
        *to++ = i + 1 < n ? letters[bits >> 6 & 63] : '=';
        *to++ = i + 2 < n ? letters[bits & 63] : '=';
    }
    json_t *value = text != NULL ? json_stringn(text, (size_t)(to - text)) : NULL;
    free(text);
    return value;
}

/* The first d values, of length 1 again. */
static void shorten(float *x, size_t d) {
    double sum = 0;
    for (size_t i = 0; i < d; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    for (size_t i = 0; sum > 0 && i < d; i++) {
        x[i] = (float)((double)x[i] / sqrt(sum));
    }
}

static json_t *vector_of(const float *x, size_t d, int packed) {
    if (packed) {
        return base64((const unsigned char *)x, d * sizeof *x);
    }
    json_t *list = json_array();
    for (size_t i = 0; i < d; i++) {
        json_array_append_new(list, json_real((double)x[i]));
    }
    return list;
}

/* Vectors of the tokens [tokens, width] of all texts. */
static int compute_rows(job *j, const texts *t, float *out, size_t width) {
    for (size_t i = 0, row = 0; i < t->n;) {
        size_t n = t->n - i < SLICE ? t->n - i : SLICE;
        if (job_is_gone(j)) {
            return fault_set(&j->f, 503, NULL, "the client has left");
        }
        model_lock(j->m);
        gw_status status =
            gw_encoder_rows(j->m->encoder, t->at + i, t->seen + i, n, out + row * width);
        model_unlock(j->m);
        if (status != GW_OK) {
            return fault_of_status(&j->f, status, NULL);
        }
        for (size_t end = i + n; i < end; i++) {
            row += t->at[i].n;
        }
    }
    return 0;
}

/* Slices of texts, out [n, width] of values each; scores: of the classifier. */
static int compute(job *j, const texts *t, float *out, size_t width, int scores) {
    for (size_t i = 0; i < t->n; i += SLICE) {
        size_t n = t->n - i < SLICE ? t->n - i : SLICE;
        if (job_is_gone(j)) {
            return fault_set(&j->f, 503, NULL, "the client has left");
        }
        model_lock(j->m);
        gw_status status = scores ? gw_encoder_score(j->m->encoder, t->at + i, n, out + i * width)
                                  : gw_encoder_embed(j->m->encoder, t->at + i, n, out + i * width);
        model_unlock(j->m);
        if (status != GW_OK) {
            return fault_of_status(&j->f, status, NULL);
        }
    }
    return 0;
}

static json_t *usage_of(const texts *t) {
    return json_pack("{s:I, s:I}", "prompt_tokens", (json_int_t)t->tokens, "total_tokens",
                     (json_int_t)t->tokens);
}

static int hold_more(job *j, uint64_t bytes) {
    if (account_set(j->s->account, &j->hold, j->hold.bytes + bytes) != 0) {
        fault_set(&j->f, 503, NULL, "too many long requests are held at once: try again later");
        j->f.retry_after = 5;
        return -1;
    }
    return 0;
}

/* The vectors as they are written take their place in the account: JSON numbers are large. */
static int hold_vectors(job *j, const texts *t, size_t d, int packed) {
    size_t vectors = j->m->encodes.per_token ? t->tokens : t->n;
    uint64_t width = (uint64_t)j->m->encodes.width, each = j->m->encodes.per_token ? VALUE : 0;
    uint64_t bytes = vectors * (d * (packed ? 12 : 48) + width * sizeof(float) + each);
    if (bytes > ACCOUNT_REQUEST) {
        return fault_set(&j->f, 413, "input",
                         "input: the vectors of %zu texts would take %llu MiB: send fewer at a "
                         "time%s",
                         t->n, (unsigned long long)(bytes >> 20),
                         packed ? "" : ", or ask for base64");
    }
    return hold_more(j, bytes);
}

/* A list of vectors of a text's tokens; of a document those that it keeps. */
static json_t *rows_of(job *j, const texts *t, size_t i, float *x, size_t width, size_t d,
                       int packed) {
    json_t *list = json_array();
    for (size_t r = 0; r < t->at[i].n; r++) {
        if (t->use != GW_USE_QUERY && !gw_encoder_keeps(j->m->encoder, t->at[i].ids[r])) {
            continue;
        }
        if (d < width) {
            shorten(x + r * width, d);
        }
        json_array_append_new(list, vector_of(x + r * width, d, packed));
    }
    return list;
}

/* A list of vectors, of lists of them where they are of tokens, or NULL and j->f. */
static json_t *vectors_of(job *j, const texts *t, int packed, int64_t dimensions) {
    size_t width = (size_t)j->m->encodes.width, d = dimensions > 0 ? (size_t)dimensions : width;
    const int rows = j->m->encodes.per_token;
    size_t all = rows ? t->tokens : t->n;
    float *out = hold_vectors(j, t, d, packed) == 0 ? calloc(all + 1, width * sizeof *out) : NULL;
    if (out == NULL ||
        (rows ? compute_rows(j, t, out, width) : compute(j, t, out, width, 0)) != 0) {
        free(out);
        return NULL;
    }
    json_t *list = json_array();
    for (size_t i = 0, row = 0; i < t->n; row += t->at[i++].n) {
        if (rows) {
            json_array_append_new(list, rows_of(j, t, i, out + row * width, width, d, packed));
            continue;
        }
        if (d < width) {
            shorten(out + i * width, d);
        }
        json_array_append_new(list, vector_of(out + i * width, d, packed));
    }
    free(out);
    return list;
}

static json_t *embeddings(job *j, const texts *t, int packed, int64_t dimensions) {
    json_t *list = vectors_of(j, t, packed, dimensions), *data = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_array_append_new(data, json_pack("{s:s, s:I, s:O}", "object", "embedding", "index",
                                              (json_int_t)i, "embedding", json_array_get(list, i)));
    }
    if (list == NULL) {
        json_decref(data);
        return NULL;
    }
    json_decref(list);
    return json_pack("{s:s, s:o, s:s, s:o}", "object", "list", "data", data, "model", job_model(j),
                     "usage", usage_of(t));
}

/* Is it a model for this? */
static int is_encoder(job *j, const char *what) {
    if (j->m->encoder == NULL) {
        return fault_set(&j->f, 501, "model",
                         "%s makes text: %s needs a model made for it, or a server started with "
                         "--embeddings",
                         j->m->id, what);
    }
    return 0;
}

static json_t *run_embeddings(job *j) {
    const json_t *input = json_object_get(j->ask.root, "input");
    const json_t *content = json_object_get(j->ask.root, "content"); /* llama-server's */
    const char *format = "float";
    int64_t dimensions = 0;
    texts t = {.field = input != NULL ? "input" : "content"};
    json_t *answer = NULL;
    if (is_encoder(j, "/v1/embeddings") == 0 &&
        ask_text(j->ask.root, "encoding_format", &format, &j->f) == 0 &&
        ask_int(j->ask.root, "dimensions", 1, j->m->encodes.width, &dimensions, &j->f) == 0) {
        int packed = strcmp(format, "base64") == 0;
        if (!packed && strcmp(format, "float") != 0) {
            fault_set(&j->f, 400, "encoding_format", "encoding_format: float or base64 is needed");
        } else if (read_input(j, &t, input != NULL ? input : content) == 0) {
            answer = embeddings(j, &t, packed, dimensions);
        }
    }
    free_texts(&t);
    return answer;
}

/* Ollama's: what is too long is cut unless "truncate" is false; a request without texts has no
 * vectors, and the model is loaded. */
static json_t *run_embed(job *j) {
    const json_t *input = json_object_get(j->ask.root, "input");
    int none = input == NULL || json_is_null(input) ||
               (json_is_string(input) && json_string_length(input) == 0) ||
               (json_is_array(input) && json_array_size(input) == 0);
    int64_t dimensions = 0;
    texts t = {.field = "input", .cut = 1};
    json_t *list = NULL;
    if (is_encoder(j, "/api/embed") == 0 && ask_bool(j->ask.root, "truncate", &t.cut, &j->f) == 0 &&
        ask_int(j->ask.root, "dimensions", 1, j->m->encodes.width, &dimensions, &j->f) == 0) {
        list = none                            ? json_array()
               : read_input(j, &t, input) == 0 ? vectors_of(j, &t, 0, dimensions)
                                               : NULL;
    }
    free_texts(&t);
    return list == NULL ? NULL
                        : json_pack("{s:s, s:o, s:I, s:I, s:I}", "model", job_model(j),
                                    "embeddings", list, "total_duration",
                                    (json_int_t)(1e9 * (app_seconds() - j->began)), "load_duration",
                                    (json_int_t)0, "prompt_eval_count", (json_int_t)t.tokens);
}

/* The older form, of one text. */
static json_t *run_old_embedding(job *j) {
    const json_t *prompt = json_object_get(j->ask.root, "prompt");
    texts t = {.field = "prompt", .cut = 1};
    json_t *list = NULL, *one = NULL;
    if (is_encoder(j, "/api/embeddings") == 0) {
        int none = !json_is_string(prompt) || json_string_length(prompt) == 0;
        list = none                             ? json_pack("[[]]")
               : read_input(j, &t, prompt) == 0 ? vectors_of(j, &t, 0, 0)
                                                : NULL;
        one = json_array_get(list, 0);
    }
    free_texts(&t);
    json_t *answer = one != NULL ? json_pack("{s:O}", "embedding", one) : NULL;
    json_decref(list);
    return answer;
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Scores by vectors of tokens, where the model has no classifier. */
static int is_late(const job *j) {
    return j->m->encodes.labels == 0 && j->m->encodes.per_token;
}

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

static const json_t *document_text(const json_t *document) {
    const json_t *text = json_is_object(document) ? json_object_get(document, "text") : document;
    return json_is_string(text) ? text : NULL;
}

/* What is put before texts of this use; pairs of a query and a document have nothing. */
static const char *prompt_of(const job *j, const char *name) {
    const char *text = is_late(j) ? gw_encoder_prompt(j->m->encoder, name) : "";
    return text != NULL ? text : "";
}

/* Alone, so that one that is at fault is named and not the documents. */
static int read_query(job *j, const json_t *query, texts *q) {
    q->at = calloc(1, sizeof *q->at);
    q->seen = calloc(1, sizeof *q->seen);
    if (q->at == NULL || q->seen == NULL) {
        return no_memory(j);
    }
    return json_is_string(query) ? add_text(j, q, prompt_of(j, "query"), query, NULL)
                                 : fault_set(&j->f, 400, "query", "query: a text is needed");
}

/* t: pairs of the query and each document, or, of late interaction, documents. */
static int read_documents(job *j, const json_t *documents, texts *q, texts *t) {
    const json_t *query = json_object_get(j->ask.root, "query");
    const char *before = prompt_of(j, "document");
    const int late = is_late(j);
    size_t n = json_array_size(documents);
    q->cut = t->cut;
    if (read_query(j, query, q) != 0) {
        return -1;
    }
    if (n == 0 || n > TEXTS_MAX) {
        return fault_set(&j->f, 400, t->field, "%s: a list of 1 to %d texts is needed", t->field,
                         TEXTS_MAX);
    }
    t->at = calloc(n, sizeof *t->at);
    t->seen = calloc(n, sizeof *t->seen);
    if (t->at == NULL || t->seen == NULL) {
        return no_memory(j);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *text = document_text(json_array_get(documents, i));
        if (text == NULL) {
            return fault_set(&j->f, 400, t->field, "%s[%zu]: a text is needed", t->field, i);
        }
        if (add_text(j, t, before, late ? text : query, late ? NULL : text) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Which tokens of a document have a vector that counts. */
static void find_kept(const job *j, const gw_encoder_text *text, char *kept) {
    for (size_t i = 0; i < text->n; i++) {
        kept[i] = (char)(gw_encoder_keeps(j->m->encoder, text->ids[i]) != 0);
    }
}

/* Scores out [t->n] of late interaction, with the vectors of a slice of documents at a time. */
static int match(job *j, const texts *q, const texts *t, float *out) {
    size_t width = (size_t)j->m->encodes.width, most = 0;
    for (size_t i = 0; i < t->n; i++) {
        most = t->at[i].n > most ? t->at[i].n : most;
    }
    size_t room = most * (t->n < SLICE ? t->n : SLICE);
    if (hold_more(j, (q->tokens + room) * width * sizeof(float)) != 0) {
        return -1;
    }
    float *asked = calloc(q->tokens + room, width * sizeof *asked);
    char *kept = malloc(most);
    int code = asked != NULL && kept != NULL ? compute_rows(j, q, asked, width) : no_memory(j);
    for (size_t i = 0; i < t->n && code == 0; i += SLICE) {
        texts some = *t;
        float *row = asked + q->tokens * width;
        some.at += i;
        some.seen += i;
        some.n = t->n - i < SLICE ? t->n - i : SLICE;
        code = compute_rows(j, &some, row, width);
        for (size_t k = 0; k < some.n && code == 0; row += some.at[k++].n * width) {
            find_kept(j, &some.at[k], kept);
            out[i + k] = app_match(asked, q->tokens, row, kept, some.at[k].n, width);
        }
    }
    free(asked);
    free(kept);
    return code;
}

/* How an API asks for scores and is answered. */
typedef struct rerank_form {
    int tei;    /* a list of {index, score, text} */
    int cohere; /* between 0 and 1; documents that are too long are cut */
    size_t vectors; /* of the query, of late interaction: scores that are not raw are their mean */
    int shown;  /* the texts come back */
    int raw;    /* the classifier's own numbers */
    int64_t top;
} rerank_form;

static json_t *row_of(const scored *one, const json_t *documents, const rerank_form *form) {
    const json_t *text = document_text(json_array_get(documents, one->index));
    double score = form->raw           ? (double)one->score
                   : form->vectors > 0 ? (double)one->score / (double)form->vectors
                                       : 1 / (1 + exp(-(double)one->score));
    json_t *row = json_pack("{s:I, s:f}", "index", (json_int_t)one->index,
                            form->tei ? "score" : "relevance_score", score);
    if (form->shown) {
        json_object_set_new(row, form->tei ? "text" : "document",
                            form->tei ? json_incref((json_t *)(uintptr_t)text)
                                      : json_pack("{s:O}", "text", text));
    }
    return row;
}

static json_t *scores(job *j, const json_t *documents, const texts *q, const texts *t,
                      const rerank_form *form) {
    const int late = is_late(j);
    size_t labels = late ? 1 : (size_t)j->m->encodes.labels;
    const texts all = {.tokens = t->tokens + (late ? q->tokens : 0)}; /* pairs have the query */
    float *out = calloc(t->n, labels * sizeof *out);
    scored *order = calloc(t->n, sizeof *order);
    json_t *results = json_array();
    if (out == NULL || order == NULL ||
        (late ? match(j, q, t, out) : compute(j, t, out, labels, 1)) != 0) {
        free(out);
        free(order);
        json_decref(results);
        return NULL;
    }
    for (size_t i = 0; i < t->n; i++) { /* of two labels the second says yes */
        const float *s = out + i * labels;
        order[i] = (scored){.score = labels == 2 ? s[1] - s[0] : s[0], .index = i};
    }
    qsort(order, t->n, sizeof *order, by_score);
    for (size_t i = 0; i < t->n && (form->top <= 0 || i < (size_t)form->top); i++) {
        json_array_append_new(results, row_of(&order[i], documents, form));
    }
    free(out);
    free(order);
    if (form->tei) {
        return results;
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:{s:{s:s}, s:{s:i}}}", "id", j->id, "object",
                     "list", "model", job_model(j), "usage", usage_of(&all), "results", results,
                     "meta", "api_version", "version", form->cohere ? "2" : "1", "billed_units",
                     "search_units", 1);
}

static int read_form(job *j, rerank_form *form) {
    static const ask_refusal refused[] = {{"truncation_direction", "\"right\""}, {NULL, NULL}};
    const json_t *root = j->ask.root;
    if (form->tei) {
        form->raw = 0;
        return ask_refuse(root, refused, &j->f) != 0 ||
                       ask_bool(root, "raw_scores", &form->raw, &j->f) != 0 ||
                       ask_bool(root, "return_text", &form->shown, &j->f) != 0
                   ? -1
                   : 0;
    }
    return ask_int(root, "top_n", 1, INT32_MAX, &form->top, &j->f) != 0 ||
                   ask_bool(root, "return_documents", &form->shown, &j->f) != 0
               ? -1
               : 0;
}

static json_t *rerank(job *j, rerank_form *form) {
    const json_t *documents = json_object_get(j->ask.root, "documents");
    const json_t *given = json_object_get(j->ask.root, "texts");
    texts q = {.field = "query", .use = GW_USE_QUERY}, t = {.cut = form->cohere};
    json_t *answer = NULL;
    if (documents == NULL && given != NULL) { /* as llama-server tells them apart */
        documents = given;
        form->tei = 1;
    }
    if (is_encoder(j, "/v1/rerank") == 0 && j->m->encodes.labels == 0 && !is_late(j)) {
        fault_set(&j->f, 501, "model", "%s has no classifier: it makes vectors, no scores",
                  j->m->id);
    }
    t.field = form->tei ? "texts" : "documents";
    if (j->f.status == 0 && read_form(j, form) == 0 &&
        ask_bool(j->ask.root, form->tei ? "truncate" : "truncation", &t.cut, &j->f) == 0 &&
        read_documents(j, documents, &q, &t) == 0) {
        form->vectors = is_late(j) ? q.tokens : 0;
        answer = scores(j, documents, &q, &t, form);
    }
    free_texts(&q);
    free_texts(&t);
    return answer;
}

static json_t *run_rerank(job *j) { return rerank(j, &(rerank_form){.raw = 1}); }
static json_t *run_cohere(job *j) { return rerank(j, &(rerank_form){.cohere = 1}); }

/* ---- routes ---------------------------------------------------------------------------------- */

static int read_model(job *j, const json_t *body, fault *f) {
    return ask_text(body, "model", &j->ask.model, f);
}

static int read_ollama(job *j, const json_t *body, fault *f) {
    return ask_text(body, "model", &j->ask.model, f) != 0 ? -1 : ask_keep_alive(&j->ask, body, f);
}

static const api embeddings_api = {.id_prefix = "embd-", .read = read_model, .run = run_embeddings};
static const api embed_api = {.id_prefix = "embd-", .read = read_ollama, .run = run_embed};
static const api old_api = {.id_prefix = "embd-", .read = read_ollama, .run = run_old_embedding};
static const api rerank_api = {.id_prefix = "rank-", .read = read_model, .run = run_rerank};
static const api cohere_api = {.id_prefix = "rank-", .read = read_model, .run = run_cohere};

#define ANSWER(name)                                                                               \
    static void answer_##name(conn *c, const char *rest) {                                         \
        (void)rest;                                                                                \
        job_start(c, &name##_api);                                                                 \
    }
ANSWER(embeddings)
ANSWER(embed)
ANSWER(old)
ANSWER(rerank)
ANSWER(cohere)

const route routes_vectors[] = {
    {"POST", "/v1/embeddings", 0, FORM_OPENAI, answer_embeddings},
    {"POST", "/embeddings", 0, FORM_OPENAI, answer_embeddings},
    {"POST", "/api/embed", 0, FORM_OLLAMA, answer_embed},
    {"POST", "/api/embeddings", 0, FORM_OLLAMA, answer_old},
    {"POST", "/v1/rerank", 0, FORM_OPENAI, answer_rerank},
    {"POST", "/rerank", 0, FORM_OPENAI, answer_rerank},
    {"POST", "/v1/reranking", 0, FORM_OPENAI, answer_rerank},
    {"POST", "/reranking", 0, FORM_OPENAI, answer_rerank},
    {"POST", "/v2/rerank", 0, FORM_OPENAI, answer_cohere},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
