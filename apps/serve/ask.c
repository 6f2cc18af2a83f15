/* apps/serve/ask.c - reads what requests have in common: see ask.h. */
#include "apps/serve/ask.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/sampling.h"

json_t *ask_parse(const char *text, size_t bytes, fault *f) {
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (root == NULL) {
        fault_set(f, 400, NULL,
                  bytes == 0 ? "no body: a JSON object is needed"
                             : "the body is no JSON: line %d, column %d: %.200s",
                  error.line, error.column, error.text);
    } else if (!json_is_object(root)) {
        fault_set(f, 400, NULL, "the body is no JSON object");
        json_decref(root);
        root = NULL;
    }
    return root;
}

/* ---- typed members --------------------------------------------------------------------------- */

static const json_t *member(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

int ask_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out,
            fault *f) {
    const json_t *value = member(object, name);
    if (value == NULL) {
        return 0;
    }
    double real = json_number_value(value);
    int whole = json_is_integer(value) || (json_is_real(value) && real == floor(real));
    if (!whole || real < (double)min || real > (double)max) {
        return fault_set(f, 400, name, "%s: a whole number from %lld to %lld is needed", name,
                         (long long)min, (long long)max);
    }
    *out = json_is_integer(value) ? json_integer_value(value) : (int64_t)real;
    return 0;
}

int ask_bool(const json_t *object, const char *name, int *out, fault *f) {
    const json_t *value = member(object, name);
    if (value != NULL && !json_is_boolean(value)) {
        return fault_set(f, 400, name, "%s: true or false is needed", name);
    }
    *out = value != NULL ? json_is_true(value) : *out;
    return 0;
}

int ask_text(const json_t *object, const char *name, const char **out, fault *f) {
    const json_t *value = member(object, name);
    if (value != NULL && !json_is_string(value)) {
        return fault_set(f, 400, name, "%s: a text is needed", name);
    }
    *out = value != NULL ? json_string_value(value) : *out;
    return 0;
}

int ask_texts(const json_t *object, const char *name, const char **out, size_t most, size_t *n,
              fault *f) {
    const json_t *value = member(object, name), *one;
    size_t i;
    if (value == NULL) {
        return 0;
    }
    if (json_is_string(value)) {
        *n = json_string_length(value) > 0;
        out[0] = json_string_value(value);
        return 0;
    }
    if (!json_is_array(value) || json_array_size(value) > most) {
        return fault_set(f, 400, name, "%s: a text, or a list of at most %zu texts is needed", name,
                         most);
    }
    *n = 0;
    json_array_foreach(value, i, one) {
        if (!json_is_string(one)) {
            return fault_set(f, 400, name, "%s: number %zu of the list is no text", name, i + 1);
        }
        if (json_string_length(one) > 0) {
            out[(*n)++] = json_string_value(one);
        }
    }
    return 0;
}

/* ---- numbers of samplers --------------------------------------------------------------------- */

static int read_number(const json_t *object, const sampling_row *row, const char *name,
                       gw_sampler_options *out, fault *f) {
    const json_t *value = member(object, name);
    const app_option *o = sampling_option(row);
    if (value == NULL ||
        (json_is_number(value) && sampling_set(row, json_number_value(value), out))) {
        return 0;
    }
    return fault_set(f, 400, name, "%s: a %snumber from %g to %g is needed", name,
                     o->kind == KIND_INT ? "whole " : "", row->or_minus_one ? -1.0 : o->min,
                     o->max);
}

/* Under each of the row's names. */
static int read_row(const json_t *object, const sampling_row *row, gw_sampler_options *out,
                    int *given, fault *f) {
    char name[64];
    size_t n;
    int code = 0;
    for (const char *at = row->names; *at != '\0' && code == 0; at += n + (at[n] == ' ')) {
        n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        code = read_number(object, row, name, out, f);
        *given |= member(object, name) != NULL;
    }
    return code;
}

/* ---- lists of samplers ----------------------------------------------------------------------- */

/* The names of llama-server's "samplers", and those of gw_sampler_options.order. */
static const struct {
    const char *name, *stage;
    char letter;
} stages[] = {{"penalties", "penalties", 'e'},
              {"dry", "dry", 'd'},
              {"top_n_sigma", "top-n-sigma", 's'},
              {"top_k", "top-k", 'k'},
              {"typ_p", "typical", 'y'},
              {"typical_p", "typical", 'y'},
              {"tfs_z", "tail-free", 'f'},
              {"top_p", "top-p", 'p'},
              {"min_p", "min-p", 'm'},
              {"xtc", "xtc", 'x'},
              {"temperature", "temperature", 't'},
              {"fsd", "fsd", '\0'},
              {"bias", "bias", '\0'},
              {"mirostat", "mirostat", '\0'}};
enum { STAGES = sizeof stages / sizeof stages[0] };

static int add_stage(char *order, size_t room, const char *name, char letter, fault *f) {
    for (size_t i = 0; i < STAGES; i++) {
        const char *stage = stages[i].stage;
        int same = name != NULL ? strcmp(name, stages[i].name) == 0 || strcmp(name, stage) == 0
                                : letter == stages[i].letter;
        if (same) {
            size_t n = strlen(order);
            if (n + strlen(stage) + 2 > room) {
                return fault_set(f, 400, "samplers", "samplers: the list is too long");
            }
            strcat(order, n > 0 ? ";" : "");
            strcat(order, stage);
            return 0;
        }
    }
    char one[2] = {letter, '\0'};
    return fault_set(f, 400, "samplers", "samplers: '%.40s' is not known here",
                     name != NULL ? name : one);
}

/* Biases always count, in a list of stages that does not name them as well. */
static int read_order(ask *a, const json_t *object, fault *f) {
    enum { ROOM = 512 };
    const json_t *list = member(object, "samplers"), *one;
    size_t i;
    if (list == NULL) {
        return 0;
    }
    char order[ROOM] = "bias";
    if (json_is_string(list)) {
        for (const char *c = json_string_value(list); *c != '\0'; c++) {
            if (add_stage(order, ROOM, NULL, *c, f) != 0) {
                return -1;
            }
        }
    } else if (json_is_array(list)) {
        json_array_foreach(list, i, one) {
            const char *name = json_string_value(one);
            if (name != NULL && strcmp(name, "bias") == 0) {
                continue;
            }
            if (add_stage(order, ROOM, name != NULL ? name : "", '\0', f) != 0) {
                return -1;
            }
        }
    } else {
        return fault_set(f, 400, "samplers", "samplers: a list of names is needed");
    }
    free(a->order);
    a->order = strdup(order);
    if (a->order == NULL) {
        return fault_set(f, 503, NULL, "out of memory");
    }
    a->sampler.order = a->order;
    return 0;
}

/* ---- logit_bias ------------------------------------------------------------------------------ */

static int add_bias(ask *a, const char *key, const json_t *id, const json_t *value, fault *f) {
    double x = json_is_false(value) ? -INFINITY : json_number_value(value);
    char *end = NULL;
    long long token = id != NULL ? json_integer_value(id) : strtoll(key, &end, 10);
    if (!json_is_number(value) && !json_is_false(value)) {
        return fault_set(f, 400, "logit_bias", "logit_bias: the bias is no number, nor false");
    }
    if ((id != NULL && json_is_string(id)) || (key != NULL && (end == key || *end != '\0'))) {
        json_t *pair = id != NULL ? json_pack("[O, f]", id, x) : json_pack("[s, f]", key, x);
        if (!isfinite(x) && pair == NULL) { /* JSON has no infinity */
            pair = id != NULL ? json_pack("[O, n]", id) : json_pack("[s, n]", key);
        }
        if (a->bias_texts == NULL) {
            a->bias_texts = json_array();
        }
        return json_array_append_new(a->bias_texts, pair) == 0
                   ? 0
                   : fault_set(f, 503, NULL, "out of memory");
    }
    if (token < 0 || token > 2147483647 || (id != NULL && !json_is_integer(id))) {
        return fault_set(f, 400, "logit_bias", "logit_bias: no such token");
    }
    gw_logit_bias *grown = realloc(a->bias, (a->n_bias + 1) * sizeof *grown);
    if (grown == NULL) {
        return fault_set(f, 503, NULL, "out of memory");
    }
    a->bias = grown;
    a->bias[a->n_bias++] = (gw_logit_bias){.token = (int32_t)token, .bias = (float)x};
    return 0;
}

/* {"ID": bias, ...} as OpenAI's, [[ID or text, bias], ...] as llama-server's; false: never. */
static int read_bias(ask *a, const json_t *object, fault *f) {
    json_t *given = json_object_get(object, "logit_bias"), *value;
    const char *key;
    size_t i;
    if (given == NULL || json_is_null(given)) {
        return 0;
    }
    if (json_is_object(given)) {
        json_object_foreach(given, key, value) {
            if (add_bias(a, key, NULL, value, f) != 0) {
                return -1;
            }
        }
        return 0;
    }
    if (!json_is_array(given) || json_array_size(given) > 65536) {
        return fault_set(f, 400, "logit_bias",
                         "logit_bias: an object of tokens and biases, or a "
                         "list of such pairs is needed");
    }
    json_array_foreach(given, i, value) {
        if (json_array_size(value) != 2) {
            return fault_set(f, 400, "logit_bias", "logit_bias: number %zu of the list is no pair",
                             i + 1);
        }
        if (add_bias(a, NULL, json_array_get(value, 0), json_array_get(value, 1), f) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- grammars -------------------------------------------------------------------------------- */

int ask_take_schema(ask *a, const json_t *schema, const char *field, fault *f) {
    if (a->grammar != NULL) {
        return fault_set(f, 400, field,
                         "%s: only one of grammar, json_schema and response_format "
                         "can say what the text may be",
                         field);
    }
    if (!json_is_object(schema) && !json_is_boolean(schema)) {
        return fault_set(f, 400, field, "%s: a JSON schema is needed", field);
    }
    a->grammar = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    a->grammar_kind = GW_GRAMMAR_JSON_SCHEMA;
    a->grammar_field = field;
    return a->grammar != NULL ? 0 : fault_set(f, 503, NULL, "out of memory");
}

int ask_read_grammar(ask *a, const json_t *object, fault *f) {
    const json_t *schema = member(object, "json_schema");
    const char *rules = NULL;
    if (ask_text(object, "grammar", &rules, f) != 0) {
        return -1;
    }
    if (schema != NULL && ask_take_schema(a, schema, "json_schema", f) != 0) {
        return -1;
    }
    if (rules == NULL || rules[0] == '\0') {
        return 0;
    }
    if (a->grammar != NULL) {
        return fault_set(f, 400, "grammar", "grammar and json_schema exclude each other");
    }
    a->grammar_kind = GW_GRAMMAR_GBNF;
    a->grammar_field = "grammar";
    a->grammar = strdup(rules);
    return a->grammar != NULL ? 0 : fault_set(f, 503, NULL, "out of memory");
}

int ask_read_format(ask *a, const json_t *format, const char *field, fault *f) {
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format == NULL || json_is_null(format)) {
        return 0;
    }
    if (type == NULL) {
        return fault_set(f, 400, field, "%s: an object with a \"type\" is needed", field);
    }
    if (strcmp(type, "text") == 0) {
        return 0;
    }
    const json_t *named = json_object_get(format, "json_schema");
    const json_t *schema = json_object_get(json_is_object(named) ? named : format, "schema");
    if (strcmp(type, "json_object") == 0) {
        json_t *any = json_pack("{s:s}", "type", "object");
        int code = ask_take_schema(a, schema != NULL ? schema : any, field, f);
        json_decref(any);
        return code;
    }
    if (strcmp(type, "json_schema") != 0) {
        return fault_set(f, 400, field,
                         "%s: type '%.40s' is none of text, json_object and json_schema", field,
                         type);
    }
    return ask_take_schema(a, schema, field, f);
}

/* ---- all ------------------------------------------------------------------------------------- */

void ask_init(ask *a, const app_options *o) {
    *a = (ask){.max_tokens = o->n_predict, .n = 1};
    sampling_of_options(o, &a->sampler);
    a->ignore_eos = o->ignore_eos;
}

void ask_take_model(ask *a, const app_options *o, const gw_model *loaded) {
    sampling_of_model(o, loaded, a->given_rows, &a->sampler, NULL, 0);
}

void ask_free(ask *a) {
    free(a->order);
    free(a->bias);
    free(a->grammar);
    free(a->named);
    free(a->text);
    for (size_t i = 0; i < a->n_prompts; i++) {
        free(a->prompts[i].ids);
    }
    free(a->prompts);
    json_decref(a->bias_texts);
    json_decref(a->chat);
    json_decref(a->tools);
    json_decref(a->root);
    *a = (ask){0};
}

int ask_refuse(const json_t *object, const ask_refusal *rows, fault *f) {
    for (; rows->name != NULL; rows++) {
        const json_t *value = member(object, rows->name);
        if (value == NULL) {
            continue;
        }
        json_t *unless =
            rows->unless != NULL ? json_loads(rows->unless, JSON_DECODE_ANY, NULL) : NULL;
        int same = unless != NULL && (json_equal(value, unless) ||
                                      (json_is_number(value) && json_is_number(unless) &&
                                       json_number_value(value) == json_number_value(unless)));
        json_decref(unless);
        if (!same) {
            return fault_set(f, 400, rows->name, "%s is not supported here: leave it out%s%s",
                             rows->name, rows->unless != NULL ? ", or give " : "",
                             rows->unless != NULL ? rows->unless : "");
        }
    }
    return 0;
}

static int read_breakers(ask *a, const json_t *object, fault *f) {
    size_t n = ASK_BREAKERS_MAX + 1;
    if (ask_texts(object, "dry_sequence_breakers", a->breakers, ASK_BREAKERS_MAX, &n, f) != 0) {
        return -1;
    }
    if (n <= ASK_BREAKERS_MAX) {
        a->sampler.dry_breakers = a->breakers;
        a->sampler.n_dry_breakers = n;
    }
    return 0;
}

/* -1 asks for another seed each time. */
static int read_seed(ask *a, const json_t *object, fault *f) {
    int64_t seed = -1;
    if (ask_int(object, "seed", INT64_MIN, INT64_MAX, &seed, f) != 0) {
        return -1;
    }
    if (seed != -1) {
        a->has_seed = 1;
        a->sampler.seed = (uint64_t)seed;
    }
    return 0;
}

int ask_read_common(ask *a, const json_t *object, fault *f) {
    static const ask_refusal refused[] = {
        {"min_keep", "0"},    {"t_max_predict_ms", "0"}, {"lora", "[]"},
        {"image_data", "[]"}, {"n_indent", "0"},         {"use_beam_search", "false"},
        {"min_tokens", "0"},  {"length_penalty", "1"},   {NULL, NULL}};
    for (const sampling_row *row = sampling_table; row->names != NULL; row++) {
        int given = 0;
        if (read_row(object, row, &a->sampler, &given, f) != 0) {
            return -1;
        }
        a->given_rows |= given ? 1u << (row - sampling_table) : 0u;
    }
    if (ask_refuse(object, refused, f) != 0 || read_order(a, object, f) != 0 ||
        read_bias(a, object, f) != 0 || read_breakers(a, object, f) != 0 ||
        read_seed(a, object, f) != 0 || ask_bool(object, "stream", &a->stream, f) != 0 ||
        ask_bool(object, "ignore_eos", &a->ignore_eos, f) != 0 ||
        ask_bool(object, "timings_per_token", &a->timings, f) != 0 ||
        ask_texts(object, "stop", a->stops, ASK_STOPS_MAX, &a->n_stops, f) != 0 ||
        ask_texts(object, "banned_strings", a->bans, ASK_STOPS_MAX, &a->n_bans, f) != 0) {
        return -1;
    }
    int cache = 1;
    if (ask_bool(object, "cache_prompt", &cache, f) != 0) {
        return -1;
    }
    a->no_cache = !cache;
    return 0;
}
