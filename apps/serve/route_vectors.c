/* apps/serve/route_vectors.c - vectors and scores of texts: OpenAI's embeddings, and rerank in the
 * form that Jina's and Cohere's clients know. Models that make text answer with 501. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/job.h"
#include "apps/serve/routes.h"

enum { TEXTS_MAX = 8192, SLICE = 64 }; /* SLICE: texts between which others have their turn */

static int no_memory(job *j) { return fault_set(&j->f, 503, NULL, "out of memory"); }

/* ---- texts ----------------------------------------------------------------------------------- */

typedef struct texts {
    gw_encoder_text *at; /* [n]; ids and types are malloc'd */
    size_t n, tokens;
} texts;

static void free_texts(texts *t) {
    for (size_t i = 0; i < t->n; i++) {
        gw_free((void *)(uintptr_t)t->at[i].ids);
        gw_free((void *)(uintptr_t)t->at[i].types);
    }
    free(t->at);
}

/* Takes ids and types over. */
static int add_tokens(job *j, texts *t, int32_t *ids, int32_t *types, size_t n) {
    gw_encoder_text *one = &t->at[t->n++];
    *one = (gw_encoder_text){.ids = ids, .types = types, .n = n, .prompt = one->prompt};
    t->tokens += n;
    if (n == 0) {
        return fault_set(&j->f, 400, "input", "text %zu has no tokens", t->n);
    }
    if (n > (size_t)j->m->n_ctx) {
        fault_set(&j->f, 400, "input", "text %zu has %zu tokens, at most %d fit", t->n, n,
                  (int)j->m->n_ctx);
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

/* A text, behind what the model's files put before each; pair NULL: alone. */
static int add_text(job *j, texts *t, const char *before, const json_t *text, const json_t *pair) {
    text_buffer whole = {0};
    int32_t *ids = NULL, *types = NULL;
    size_t n = 0;
    if (text_add(&whole, before, strlen(before)) != 0 ||
        text_add(&whole, json_string_value(text), json_string_length(text)) != 0) {
        free(whole.at);
        return no_memory(j);
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
                           : fault_of_status(&j->f, status, "input");
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
            return fault_set(&j->f, 400, "input",
                             "input: a list of texts, or of lists of this "
                             "model's tokens (0 to %d) is needed",
                             (int)j->m->info.n_vocab - 1);
        }
        ids[i] = (int32_t)value;
    }
    return add_tokens(j, t, ids, NULL, n);
}

static int read_input(job *j, texts *t) {
    const json_t *input = json_object_get(j->ask.root, "input");
    const char *name = NULL;
    if (input == NULL) {
        input = json_object_get(j->ask.root, "content"); /* llama-server's */
    }
    if (ask_text(j->ask.root, "prompt_name", &name, &j->f) != 0) {
        return -1;
    }
    const char *before = gw_encoder_prompt(j->m->encoder, name);
    if (before == NULL) {
        return fault_set(&j->f, 400, "prompt_name", "prompt_name: the model names no such prompt");
    }
    int one = json_is_string(input) || json_is_integer(json_array_get(input, 0));
    size_t n = one ? 1 : json_array_size(input);
    if (n == 0 || n > TEXTS_MAX) {
        return fault_set(&j->f, 400, "input", "input: a text, or a list of at most %d is needed",
                         TEXTS_MAX);
    }
    t->at = calloc(n, sizeof *t->at);
    if (t->at == NULL) {
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

/* Slices of texts, out [n, width] of values each; scores: of the classifier. */
static int compute(job *j, const texts *t, float *out, size_t width, int scores) {
    for (size_t i = 0; i < t->n; i += SLICE) {
        size_t n = t->n - i < SLICE ? t->n - i : SLICE;
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

static json_t *embeddings(job *j, const texts *t, int packed, int64_t dimensions) {
    size_t width = (size_t)j->m->encodes.width, d = dimensions > 0 ? (size_t)dimensions : width;
    float *out = calloc(t->n, width * sizeof *out);
    if (out == NULL || compute(j, t, out, width, 0) != 0) {
        free(out);
        return NULL;
    }
    json_t *data = json_array();
    for (size_t i = 0; i < t->n; i++) {
        if (d < width) {
            shorten(out + i * width, d);
        }
        json_array_append_new(data, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index",
                                              (json_int_t)i, "embedding",
                                              vector_of(out + i * width, d, packed)));
    }
    free(out);
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
    const char *format = "float";
    int64_t dimensions = 0;
    texts t = {0};
    json_t *answer = NULL;
    if (is_encoder(j, "/v1/embeddings") == 0 &&
        ask_text(j->ask.root, "encoding_format", &format, &j->f) == 0 &&
        ask_int(j->ask.root, "dimensions", 1, j->m->encodes.width, &dimensions, &j->f) == 0) {
        int packed = strcmp(format, "base64") == 0;
        if (!packed && strcmp(format, "float") != 0) {
            fault_set(&j->f, 400, "encoding_format", "encoding_format: float or base64 is needed");
        } else if (read_input(j, &t) == 0) {
            answer = embeddings(j, &t, packed, dimensions);
        }
    }
    free_texts(&t);
    return answer;
}

/* ---- scores ---------------------------------------------------------------------------------- */

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

static int read_pairs(job *j, const json_t *documents, texts *t) {
    const json_t *query = json_object_get(j->ask.root, "query");
    size_t n = json_array_size(documents);
    if (!json_is_string(query)) {
        return fault_set(&j->f, 400, "query", "query: a text is needed");
    }
    if (n == 0 || n > TEXTS_MAX) {
        return fault_set(&j->f, 400, "documents", "documents: a list of 1 to %d texts is needed",
                         TEXTS_MAX);
    }
    t->at = calloc(n, sizeof *t->at);
    if (t->at == NULL) {
        return no_memory(j);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *text = document_text(json_array_get(documents, i));
        if (text == NULL) {
            return fault_set(&j->f, 400, "documents", "documents[%zu]: a text is needed", i);
        }
        if (add_text(j, t, "", query, text) != 0) {
            return -1;
        }
    }
    return 0;
}

static json_t *scores(job *j, const json_t *documents, const texts *t, int64_t top, int shown) {
    size_t labels = (size_t)j->m->encodes.labels;
    float *out = calloc(t->n, labels * sizeof *out);
    scored *order = calloc(t->n, sizeof *order);
    json_t *results = json_array();
    if (out == NULL || order == NULL || compute(j, t, out, labels, 1) != 0) {
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
    for (size_t i = 0; i < t->n && (top <= 0 || i < (size_t)top); i++) {
        json_t *row = json_pack("{s:I, s:f}", "index", (json_int_t)order[i].index,
                                "relevance_score", (double)order[i].score);
        if (shown) {
            const json_t *text = document_text(json_array_get(documents, order[i].index));
            json_object_set_new(row, "document", json_pack("{s:O}", "text", text));
        }
        json_array_append_new(results, row);
    }
    free(out);
    free(order);
    return json_pack("{s:s, s:s, s:o, s:o}", "object", "list", "model", job_model(j), "usage",
                     usage_of(t), "results", results);
}

static json_t *run_rerank(job *j) {
    const json_t *documents = json_object_get(j->ask.root, "documents");
    int64_t top = 0;
    int shown = 0;
    texts t = {0};
    json_t *answer = NULL;
    if (documents == NULL) {
        documents = json_object_get(j->ask.root, "texts");
    }
    if (is_encoder(j, "/v1/rerank") == 0 && j->m->encodes.labels == 0) {
        fault_set(&j->f, 501, "model", "%s has no classifier: it makes vectors, no scores",
                  j->m->id);
    }
    if (j->f.status == 0 && ask_int(j->ask.root, "top_n", 1, INT32_MAX, &top, &j->f) == 0 &&
        ask_bool(j->ask.root, "return_documents", &shown, &j->f) == 0 &&
        read_pairs(j, documents, &t) == 0) {
        answer = scores(j, documents, &t, top, shown);
    }
    free_texts(&t);
    return answer;
}

/* ---- routes ---------------------------------------------------------------------------------- */

static int read_model(job *j, const json_t *body, fault *f) {
    return ask_text(body, "model", &j->ask.model, f);
}

static const api embeddings_api = {.id_prefix = "embd-", .read = read_model, .run = run_embeddings};
static const api rerank_api = {.id_prefix = "rank-", .read = read_model, .run = run_rerank};

static void answer_embeddings(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &embeddings_api);
}

static void answer_rerank(conn *c, const char *rest) {
    (void)rest;
    job_start(c, &rerank_api);
}

const route routes_vectors[] = {
    {"POST", "/v1/embeddings", 0, FORM_OPENAI, answer_embeddings},
    {"POST", "/embeddings", 0, FORM_OPENAI, answer_embeddings},
    {"POST", "/v1/rerank", 0, FORM_OPENAI, answer_rerank},
    {"POST", "/rerank", 0, FORM_OPENAI, answer_rerank},
    {NULL, NULL, 0, FORM_OPENAI, NULL},
};
