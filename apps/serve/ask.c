/* apps/serve/ask.c - reads what requests have in common: see ask.h. */
#include "apps/serve/ask.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/sampling.h"
#include "apps/serve/lora.h"
#include "apps/serve/text.h"

/* ---- parsing --------------------------------------------------------------------------------- */

enum { OBJECT_BYTES = 224, ARRAY_BYTES = 96, MEMBER_BYTES = 96, VALUE_BYTES = 40 };

uint64_t ask_parse_cost(const char *text, size_t bytes) {
    uint64_t cost = bytes;
    for (size_t i = 0; i < bytes; i++) {
        switch (text[i]) {
        case '"':
            for (i++; i < bytes && text[i] != '"'; i++) {
                i += text[i] == '\\';
            }
            break;
        case '{':
            cost += OBJECT_BYTES;
            break;
        case '[':
            cost += ARRAY_BYTES;
            break;
        case ':':
            cost += MEMBER_BYTES;
            break;
        case ',':
            cost += VALUE_BYTES;
            break;
        default:
            break;
        }
    }
    return cost;
}

json_t *ask_parse_within(const char *text, size_t bytes, wide_mark *mark) {
    enum { ALWAYS = 4096 };
    json_error_t error;
    if (ask_parse_cost(text, bytes) > (uint64_t)ASK_COST * bytes + ALWAYS) {
        return NULL;
    }
    json_t *value = json_loadb(text, bytes, JSON_ALLOW_NUL, &error);
    if (value == NULL && mark != NULL && json_error_code(&error) == json_error_numeric_overflow) {
        json_t *real = wide_parse_real(text, bytes, &error);
        value = real != NULL ? wide_parse_marked(text, bytes, mark) : NULL;
        json_decref(real);
    }
    return value;
}

enum { PARSE_FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL };

/* Generators write the bounds of unsigned integers, and JavaScript rounds those of signed ones up:
 * what 64 bits do not hold is a real number, as everywhere in JavaScript. A field that needs an
 * integer refuses it; schemas, and what a model is shown, have wide.h. */
static json_t *parse_wide(const char *text, size_t bytes, wide_mark *mark, json_error_t *error,
                          fault *f) {
    json_t *root = wide_parse_real(text, bytes, error);
    json_t *marked = root != NULL ? wide_parse_marked(text, bytes, mark) : NULL;
    if (root != NULL && marked == NULL) {
        fault_set(f, 503, NULL, "out of memory");
    } else if (root != NULL && wide_tame(root, marked, f) == 0) {
        wide_show(root, marked);
    }
    json_decref(marked);
    return root;
}

json_t *ask_parse(const char *text, size_t bytes, wide_mark *mark, fault *f) {
    json_error_t error;
    json_t *root = json_loadb(text, bytes, PARSE_FLAGS, &error);
    if (root == NULL && json_error_code(&error) == json_error_numeric_overflow) {
        root = parse_wide(text, bytes, mark, &error, f);
        if (f->status != 0) {
            json_decref(root);
            return NULL;
        }
    }
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
    int inside = json_is_integer(value)
                     ? json_integer_value(value) >= min && json_integer_value(value) <= max
                     : real >= (double)min && real <= (double)max && real < 0x1p63;
    if (!whole || !inside) {
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

/* ---- how long a model stays ------------------------------------------------------------------ */

/* Seconds of "5m", "1h30m", "-1s", a number alone. NAN: none of these. */
static double seconds_of(const char *text) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}};
    double sum = 0, sign = *text == '-' ? -1 : 1;
    text += *text == '-' || *text == '+';
    if (*text == '\0') {
        return NAN;
    }
    while (*text != '\0') {
        size_t digits = strspn(text, "0123456789."), i = 0;
        double x = strtod(text, NULL);
        text += digits;
        while (i < 6 && strncmp(text, units[i].name, strlen(units[i].name)) != 0) {
            i++;
        }
        if (digits == 0 || (i == 6 && *text != '\0')) {
            return NAN;
        }
        sum += x * (i < 6 ? units[i].seconds : 1);
        text += i < 6 ? strlen(units[i].name) : 0;
    }
    return sign * sum;
}

int ask_keep_alive(ask *a, const json_t *body, fault *f) {
    const json_t *value = json_object_get(body, "keep_alive");
    if (value == NULL || json_is_null(value)) {
        return 0;
    }
    a->keep_alive = json_is_number(value)   ? json_number_value(value)
                    : json_is_string(value) ? seconds_of(json_string_value(value))
                                            : NAN;
    return isnan(a->keep_alive)
               ? fault_set(f, 400, "keep_alive",
                           "keep_alive: seconds, or a text such as \"5m\" is needed")
               : 0;
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

/* A grammar of another kind than a schema; text is copied. */
static int take_text(ask *a, gw_grammar_kind kind, const char *text, const char *field, fault *f) {
    if (a->grammar != NULL) {
        return fault_set(f, 400, field, "%s: something else says already what the text may be",
                         field);
    }
    a->grammar_kind = kind;
    a->grammar_field = field;
    a->grammar = strdup(text);
    return a->grammar != NULL ? 0 : fault_set(f, 503, NULL, "out of memory");
}

/* A list of texts of which the answer is one. */
static int take_choice(ask *a, const json_t *list, const char *field, fault *f) {
    text_buffer out = {0};
    const json_t *one;
    size_t i;
    text_add(&out, "root ::= ", 9);
    json_array_foreach(list, i, one) {
        const char *text = json_string_value(one);
        size_t n = json_string_length(one);
        text_add(&out, " | \"", 3 + 1);
        out.n -= i == 0 ? 4 : 0;
        text_add(&out, "\"", i == 0);
        for (size_t k = 0; k < n; k++) {
            char code[8];
            unsigned char byte = (unsigned char)text[k];
            int plain = byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7F;
            int m = plain ? snprintf(code, sizeof code, "%c", byte)
                          : snprintf(code, sizeof code, "\\x%02X", byte);
            text_add(&out, code, (size_t)m);
        }
        text_add(&out, "\"", 1);
        if (text == NULL || n == 0) {
            free(out.at);
            return fault_set(f, 400, field, "%s: number %zu of the list is no text", field, i + 1);
        }
    }
    int code = i > 0 && out.at != NULL
                   ? take_text(a, GW_GRAMMAR_GBNF, out.at, field, f)
                   : fault_set(f, 400, field, "%s: a list of at least one text is needed", field);
    free(out.at);
    return code;
}

/* How each of these fields says what a text may be. */
typedef enum said_as { AS_SCHEMA, AS_RULES, AS_PATTERN, AS_CHOICE, AS_ANY_OBJECT } said_as;

static const struct {
    const char *name; /* of the request; of structured_outputs after the point */
    said_as as;
} constraints[] = {
    {"json_schema", AS_SCHEMA},
    {"grammar", AS_RULES},
    {"regex", AS_PATTERN},
    {"ebnf", AS_RULES},
    {"guided_json", AS_SCHEMA},
    {"guided_regex", AS_PATTERN},
    {"guided_choice", AS_CHOICE},
    {"guided_grammar", AS_RULES},
    {"guided_json_object", AS_ANY_OBJECT},
    {"structured_outputs.json", AS_SCHEMA},
    {"structured_outputs.regex", AS_PATTERN},
    {"structured_outputs.choice", AS_CHOICE},
    {"structured_outputs.grammar", AS_RULES},
    {"structured_outputs.json_object", AS_ANY_OBJECT},
};

static int take_any_object(ask *a, const json_t *value, const char *field, fault *f) {
    if (!json_is_boolean(value)) {
        return fault_set(f, 400, field, "%s: true or false is needed", field);
    }
    json_t *any = json_pack("{s:s}", "type", "object");
    int code = json_is_true(value) ? ask_take_schema(a, any, field, f) : 0;
    json_decref(any);
    return code;
}

/* A schema may be written as a text with its JSON. */
static int take_schema_or_text(ask *a, const json_t *value, const char *field, fault *f) {
    json_t *parsed = NULL;
    if (json_is_string(value)) {
        parsed = ask_parse_within(json_string_value(value), json_string_length(value), NULL);
        value = parsed;
    }
    int code = ask_take_schema(a, value, field, f);
    json_decref(parsed);
    return code;
}

static int take_constraint(ask *a, said_as as, const json_t *value, const char *field, fault *f) {
    const char *text = json_string_value(value);
    switch (as) {
    case AS_SCHEMA:
        return take_schema_or_text(a, value, field, f);
    case AS_ANY_OBJECT:
        return take_any_object(a, value, field, f);
    case AS_CHOICE:
        return take_choice(a, value, field, f);
    default:
        if (text == NULL || strlen(text) != json_string_length(value)) {
            return fault_set(f, 400, field, "%s: a text is needed", field);
        }
        return text[0] == '\0' ? 0
                               : take_text(a, as == AS_RULES ? GW_GRAMMAR_GBNF : GW_GRAMMAR_PATTERN,
                                           text, field, f);
    }
}

int ask_read_grammar(ask *a, const json_t *object, fault *f) {
    static const ask_refusal refused[] = {
        {"guided_whitespace_pattern", NULL}, {"structural_tag", NULL}, {NULL, NULL}};
    static const ask_refusal inside[] = {{"structural_tag", NULL},
                                         {"whitespace_pattern", NULL},
                                         {"disable_any_whitespace", "false"},
                                         {"disable_additional_properties", "false"},
                                         {NULL, NULL}};
    const json_t *outputs = member(object, "structured_outputs");
    if (outputs != NULL && !json_is_object(outputs)) {
        return fault_set(f, 400, "structured_outputs",
                         "structured_outputs: an object with json, regex, choice, grammar or "
                         "json_object is needed");
    }
    if (ask_refuse(object, refused, f) != 0 || ask_refuse(outputs, inside, f) != 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof constraints / sizeof constraints[0]; i++) {
        const char *name = constraints[i].name, *point = strchr(name, '.');
        const json_t *value =
            member(point != NULL ? outputs : object, point != NULL ? point + 1 : name);
        if (value != NULL && take_constraint(a, constraints[i].as, value, name, f) != 0) {
            return -1;
        }
    }
    return 0;
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
    if (strcmp(type, "regex") == 0 || strcmp(type, "json") == 0) { /* as TGI has them */
        return take_constraint(a, type[0] == 'r' ? AS_PATTERN : AS_SCHEMA,
                               json_object_get(format, "value"), field, f);
    }
    if (strcmp(type, "json_schema") != 0) {
        return fault_set(f, 400, field,
                         "%s: type '%.40s' is none of text, json_object, json_schema, regex "
                         "and json",
                         field, type);
    }
    return ask_take_schema(a, schema, field, f);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Members that texts of an ask point into. */
static const char *const pointed[] = {"model",
                                      "stop",
                                      "stop_sequences",
                                      "banned_strings",
                                      "prompt",
                                      "options",
                                      "dry_sequence_breakers",
                                      "suffix",
                                      "input_prefix",
                                      "input_suffix",
                                      "input_extra"};

static json_t *kept_members(const json_t *root, const char *const *more) {
    json_t *kept = json_object();
    for (size_t i = 0; i < sizeof pointed / sizeof pointed[0]; i++) {
        json_t *value = json_object_get(root, pointed[i]);
        if (json_is_object(value) && strcmp(pointed[i], "options") == 0) { /* Ollama's */
            json_object_set_new(kept, pointed[i], kept_members(value, NULL));
        } else if (value != NULL) {
            json_object_set(kept, pointed[i], value);
        }
    }
    for (; more != NULL && *more != NULL; more++) {
        json_object_set(kept, *more, json_object_get(root, *more));
    }
    return kept;
}

void ask_trim_request(ask *a, const char *const *more) {
    json_t *kept = kept_members(a->root, more);
    json_decref(a->root);
    a->root = kept;
}

void ask_trim_prompt(ask *a) {
    static const char *const filled[] = {"suffix", "input_prefix", "input_suffix", "input_extra"};
    json_object_clear(a->chat);
    if (!a->echo) { /* which shows it again */
        json_object_del(a->root, "prompt");
        a->given = NULL;
    }
    for (size_t i = 0; i < sizeof filled / sizeof filled[0]; i++) {
        json_object_del(a->root, filled[i]);
    }
    memset(&a->fill, 0, sizeof a->fill);
    json_decref(a->tools);
    json_decref(a->callable);
    json_decref(a->by_name);
    json_decref(a->bias_texts);
    a->tools = a->callable = a->by_name = a->bias_texts = NULL;
    free(a->grammar);
    a->grammar = NULL;
}

void ask_init(ask *a, const app_options *o) {
    *a = (ask){.max_tokens = o->n_predict, .n = 1, .keep_alive = NAN};
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
        free(a->prompts[i].pictures);
        gw_free(a->prompts[i].seen);
    }
    free(a->prompts);
    picture_list_free(&a->pictures);
    json_decref(a->bias_texts);
    json_decref(a->chat);
    json_decref(a->tools);
    json_decref(a->callable);
    json_decref(a->by_name);
    json_decref(a->spaces);
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
    static const ask_refusal refused[] = {{"min_keep", "0"},
                                          {"t_max_predict_ms", "0"},
                                          {"image_data", "[]"},
                                          {"n_indent", "0"},
                                          {"use_beam_search", "false"},
                                          {"min_tokens", "0"},
                                          {"length_penalty", "1"},
                                          {NULL, NULL}};
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
    const json_t *lora = member(object, "lora");
    a->has_lora = lora != NULL;
    if (lora != NULL && lora_read_list(lora, "lora", &a->lora, f) != 0) {
        return -1;
    }
    int cache = 1;
    if (ask_bool(object, "cache_prompt", &cache, f) != 0) {
        return -1;
    }
    a->no_cache = !cache;
    return 0;
}
