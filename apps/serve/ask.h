/* apps/serve/ask.h - what a request asks of the engine, read from its JSON: the fields that mean
 * the same in every API. Missing and null fields are the server's defaults; a field of the wrong
 * type, out of its range, or that cannot be honoured is an error that names it; unknown ones are
 * ignored. Any thread. */
#ifndef GW_APPS_SERVE_ASK_H
#define GW_APPS_SERVE_ASK_H

#include <jansson.h>

#include "apps/options.h"
#include "apps/serve/picture.h"
#include "apps/serve/wide.h"
#include "include/godwit_answer.h"
#include "include/godwit_lora.h"

enum {
    ASK_CHOICES_MAX = 128,
    ASK_PROMPTS_MAX = 4096,
    ASK_TOP_MAX = 20,
    ASK_STOPS_MAX = 64,
    ASK_BREAKERS_MAX = 64,
    ASK_COST = 32 /* bytes of memory for one of a request that is within bounds */
};

typedef struct ask_prompt {
    int32_t *ids; /* malloc'd [n] */
    size_t n;
    size_t *pictures; /* malloc'd [n_pictures]: those of the ask that it has, in order */
    size_t n_pictures;
    struct gw_seen_rows *seen; /* [n_seen] where their rows are; gw_free */
    size_t n_seen;
} ask_prompt;

typedef struct ask {
    gw_sampler_options sampler; /* what it points to belongs to the ask */
    char *order;
    const char *breakers[ASK_BREAKERS_MAX];
    gw_logit_bias *bias;
    size_t n_bias;
    json_t *bias_texts; /* [[text, bias], ...]: texts are tokenized when the model is known */
    int has_seed;
    int64_t max_tokens; /* -1: as many as fit */
    int n;              /* choices of each prompt */
    const char *stops[ASK_STOPS_MAX];
    size_t n_stops;
    const char *bans[ASK_STOPS_MAX];
    size_t n_bans;
    int stream, usage;   /* usage: in a last chunk of the stream */
    int logprobs;        /* of each token */
    int top;             /* how many others */
    uint32_t given_rows; /* of sampling_table, that the request says */
    int echo, ignore_eos, return_tokens, timings, progress, no_cache;
    int32_t priority;
    int has_lora;
    gw_lora_pick lora; /* that the request says */
    gw_grammar_kind grammar_kind;
    char *grammar;             /* malloc'd; NULL: any text */
    const char *grammar_field; /* that said so */
    /* Chat: the members that the template is given, and the tools. */
    json_t *chat;
    wide_mark wide;
    picture_list pictures;
    json_t *tools;    /* NULL: none */
    json_t *callable; /* those of them that may be called; NULL: all */
    json_t *by_name;  /* a tool by its name */
    json_t *spaces;   /* tools.h: offered name to [namespace, name]; NULL: no namespaces */
    gw_tool_choice choice;
    char *named;
    int one_call;
    int whole_calls;
    int plain_reasoning; /* reasoning is part of the text, as the model wrote it */
    const char *model;   /* as it was asked for; may be NULL */
    const json_t *given; /* prompts of a text: a text, a list of ids, or a list of these */
    /* fill.h: text before a suffix; suffix NULL: none is asked for */
    struct {
        const json_t *prefix, *suffix, *begun, *files;
    } fill;
    int no_special;      /* spellings of special tokens in them are text */
    ask_prompt *prompts; /* malloc'd [n_prompts]: as tokens */
    size_t n_prompts;
    char *text; /* malloc'd: the first prompt as text, where it is known */
    size_t text_bytes;
    double
        keep_alive; /* seconds that the model stays loaded; below 0: for ever; NAN: as it is set */
    json_t *root;   /* the request: what the texts above point into */
} ask;

/* The JSON object of a body; NULL and *f. An integer beyond 64 bits is a real number, or marked. */
json_t *ask_parse(const char *text, size_t bytes, wide_mark *mark, fault *f);
/* About how much memory its values take, at least; in one pass over the bytes, before they are
 * parsed. */
uint64_t ask_parse_cost(const char *text, size_t bytes);
/* A JSON value inside of a text of the request, where that takes no more than ASK_COST times its
 * bytes; NULL: it is none, or takes more, or has an integer beyond 64 bits that nothing can mark.
 */
json_t *ask_parse_within(const char *text, size_t bytes, wide_mark *mark);

/* Lets go of the request but for what the texts of the ask point into, and the members named in
 * `more` (NULL: none; ends with NULL). */
void ask_trim_request(ask *a, const char *const *more);
/* Lets go of what only the prompt and the grammar were made of. */
void ask_trim_prompt(ask *a);

void ask_init(ask *a, const app_options *o);
/* What neither the request nor an option says, as the model's files recommend. */
void ask_take_model(ask *a, const app_options *o, const gw_model *loaded);
void ask_free(ask *a);

/* Samplers, seed, stop, bans, logit_bias, stream: the fields of every API, from an object. 0 or -1
 * and *f. */
int ask_read_common(ask *a, const json_t *object, fault *f);
/* json_schema and grammar of llama-server's; structured_outputs and guided_... of vLLM's, regex and
 * ebnf of SGLang's. One of them at most. */
int ask_read_grammar(ask *a, const json_t *object, fault *f);
/* {"type": "text" | "json_object" | "json_schema", ...}; field: its name for errors. */
int ask_read_format(ask *a, const json_t *format, const char *field, fault *f);
/* Only texts that this schema accepts. */
int ask_take_schema(ask *a, const json_t *schema, const char *field, fault *f);

/* Typed members: absent and null leave *out alone. 0 or -1 and *f. */
int ask_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out,
            fault *f);
int ask_bool(const json_t *object, const char *name, int *out, fault *f);
int ask_text(const json_t *object, const char *name, const char **out, fault *f);
/* A text, or a list of texts, at most `most`. */
int ask_texts(const json_t *object, const char *name, const char **out, size_t most, size_t *n,
              fault *f);

/* Ollama's "keep_alive". */
int ask_keep_alive(ask *a, const json_t *object, fault *f);

/* What cannot be honoured, with the value that may stand there all the same. */
typedef struct ask_refusal {
    const char *name;
    const char *unless; /* "false", "0", "1", "\"\"", "[]", ... as JSON, or NULL */
} ask_refusal;
/* rows end with NULL. */
int ask_refuse(const json_t *object, const ask_refusal *rows, fault *f);

#endif
