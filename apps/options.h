/* apps/options.h - the option table and its strict parser.
 *
 * One table (option_table.c) says names, type, range, default, help and commands of every option;
 * parser, defaults, environment twins and help text all come from it. A value that does not fit its
 * row is a usage error that names the option and the range; nothing is clamped.
 */
#ifndef GW_APPS_OPTIONS_H
#define GW_APPS_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "include/godwit.h"

/* Bits of the commands that take an option. */
enum {
    CMD_RUN = 1,
    CMD_BENCH = 2,
    CMD_PERPLEXITY = 4,
    CMD_LOGITS = 8,
    CMD_TOKENIZE = 16,
    CMD_DEVICES = 32,
    CMD_CHAT = 64,
    CMD_INSPECT = 128,
    CMD_DOCTOR = 256,
    CMD_PLAN = 512,
    CMD_EMBED = 1024,
    CMD_RERANK = 2048,
    CMD_TEMPLATE = 4096,
    CMD_SERVE = 8192,
    CMD_EVALUATE = 16384,
    CMD_QUANTIZE = 32768,
    CMD_CALIBRATE = 65536,
    CMD_ENCODE = CMD_EMBED | CMD_RERANK,
    CMD_TEXT = CMD_RUN | CMD_CHAT,                   /* those that write a text */
    CMD_SAMPLE = CMD_TEXT | CMD_SERVE,               /* those that choose tokens */
    CMD_SCORE = CMD_PERPLEXITY | CMD_EVALUATE,       /* those that score texts */
    CMD_DRAFT = CMD_SAMPLE | CMD_BENCH,              /* those that draft */
    CMD_FRAME = CMD_CHAT | CMD_TEMPLATE | CMD_SERVE, /* those that frame conversations */
    /* those that load weights, or would */
    CMD_MODEL = CMD_SAMPLE | CMD_BENCH | CMD_SCORE | CMD_LOGITS | CMD_PLAN | CMD_ENCODE,
    CMD_LORA = CMD_SAMPLE | CMD_BENCH | CMD_PERPLEXITY | CMD_LOGITS, /* those with adapters */
    CMD_HOSTS = CMD_SAMPLE | CMD_BENCH | CMD_SCORE | CMD_LOGITS, /* over several hosts */
    CMD_PULL = 131072,
    CMD_LS = 262144,
    CMD_RM = 524288,
    CMD_HUB = CMD_PULL | CMD_LS | CMD_RM,
    CMD_WORKER = 1048576,
    CMD_ALL = 2097151,
    CMD_BRIEF = 1 << 30 /* shown by --help; --help all shows every option */
};

typedef struct app_ints {
    int32_t *at;
    size_t n;
} app_ints;

typedef struct app_texts {
    const char **at; /* pointers into the arguments or the environment */
    size_t n;
} app_texts;

typedef struct app_options {
    /* model */
    const char *model, *weights, *device, *offload_layers, *split, *pretokenizer, *spec;
    const char *split_mode, *groups;
    const char *hf_repo, *hf_file, *model_url, *revision;
    int offline;
    app_texts lora; /* adapters */
    int lora_unapplied, lora_at_once, allow_lora_loading;
    app_texts owned;      /* malloc'd: paths of models that were named otherwise */
    uint64_t vram_budget; /* bytes; 0: what is free */
    const char *kv_host_layers;
    int no_kv_offload;
    const char *prompt_offload;
    int cpu_moe, n_cpu_moe; /* experts of all layers, of the first N, stay with the CPU */
    app_texts models;
    int32_t threads;
    int blas, exact;
    int no_graph;
    app_ints thread_list;
    /* session */
    int32_t n_ctx, batch;
    app_ints batch_list;
    const char *kv_type, *kv_type_k, *kv_type_v; /* options.c makes one of them: kv_type */
    int context_shift, no_context_shift, prompt_cache_ro;
    int32_t keep;
    const char *prompt_cache;
    /* text in */
    const char *prompt, *file, *suffix;
    app_ints ids;
    int special, no_bos, escape;
    const char *to, *from;
    /* generation */
    int32_t n_predict;
    uint64_t seed;
    double temperature, top_p, min_p, typical, repeat_penalty, presence_penalty, frequency_penalty;
    int32_t top_k, repeat_last_n;
    const char *samplers;
    double dynatemp_range, dynatemp_exp, top_n_sigma, tfs, xtc_probability, xtc_threshold;
    int32_t mirostat;
    double mirostat_ent, mirostat_lr;
    double dry_multiplier, dry_base, fsd;
    int32_t dry_allowed_length, dry_last_n, fsd_n, fsd_k, fsd_random;
    app_texts dry_breakers;
    gw_logit_bias *bias;
    size_t n_bias;
    uint32_t sampling_given; /* rows of sampling_table that an option or a variable set */
    int ignore_eos;
    app_texts stops, bans;
    const char *grammar, *json_schema;
    /* chat */
    const char *system, *chat_template, *load, *reasoning, *date;
    app_texts template_args, image_files;
    const char *mmproj;
    int no_mmproj, allow_image_urls;
    int single_turn;
    const char *tools, *tool_choice, *tool_form, *reasoning_form;
    app_texts tool_commands;
    double tool_timeout;
    int show_reasoning;
    /* beam search */
    int32_t beams, no_repeat_ngram;
    const char *length_penalty, *early_stopping;
    /* speculation */
    const char *draft, *draft_device, *draft_offload_layers, *draft_file, *draft_accept,
        *draft_length;
    int draft_greedy, no_read_ahead;
    double assume_acceptance;
    /* what is shown */
    app_texts notes; /* of the parser, malloc'd */
    int help;        /* 1: the most used options, 2: all */
    int quiet, no_display_prompt, no_stats;
    const char *stats; /* NULL: brief */
    /* bench */
    app_ints n_prompt, n_gen, n_depth, pg, parallel;
    int32_t repetitions;
    const char *format, *gemm, *exchange, *image_size;
    int ops, forecast;
    /* perplexity, evaluate */
    int32_t stride, chunks, limit, shots;
    const char *base, *base_device, *base_file, *save_logits, *shots_file, *picture;
    app_texts tasks;
    /* logits */
    int32_t greedy;
    app_ints decoder_ids;
    const char *rows, *out;
    /* embed, rerank */
    app_ints types;
    const char *pooling, *prefix, *prompt_name, *query;
    int32_t dimensions, top_n;
    int no_normalize, truncate;
    /* tokenize */
    int ids_only;
    app_ints decode;
    const char *pair, *decode_file;
    /* inspect */
    int json, check_tensors, families;
    /* devices */
    int measure;
    /* doctor */
    int32_t time_limit;
    /* workers; worker */
    const char *workers, *secret_file, *listen, *keep_dir;
    uint64_t keep_bytes;
    /* serve */
    const char *host, *client_header, *api_key_file, *log_file, *log_format, *seed_text;
    app_texts api_keys, aliases, cors_origins, allowed_hosts;
    int32_t port, at_once, queue, queue_tokens, queue_time, drain, sse_ping;
    uint64_t models_memory, cache_tokens, cache_ram;
    uint64_t sleep_memory;
    double idle_unload, sleep_idle;
    int32_t models_max;
    int no_page, embeddings;
    /* quantize, calibrate */
    const char *type, *tensors, *xtx, *imatrix, *calibrate, *rule, *order, *tensor_type_file,
        *output_type, *embedding_type, *report;
    app_texts words; /* that follow no option: IN OUT TYPE */
    app_texts tensor_types, include_weights, exclude_weights, overrides, in_files;
    int gptq, no_gptq, pure, leave_output, allow_requantize, allow_nan, keep_split, dry_run,
        no_fallback, resume, with_output, show;
    double damp;
    uint64_t split_max, memory, fit;
    int fit_ctx;
    const char *prune;
    int32_t windows;
} app_options;

typedef enum app_kind {
    KIND_FLAG,   /* int: 1 when given                                      */
    KIND_INT,    /* int32_t within min..max                                */
    KIND_INTS,   /* app_ints: comma list, each within min..max             */
    KIND_REAL,   /* double within min..max, finite                         */
    KIND_SEED,   /* uint64_t; -1 draws one                                 */
    KIND_BYTES,  /* uint64_t: a number, perhaps with K, M, G or T (1000s)  */
    KIND_MIB,    /* the same, but a number alone is of 1048576 bytes       */
    KIND_TEXT,   /* const char *                                           */
    KIND_TEXTS,  /* app_texts: may be given several times                  */
    KIND_CHOICE, /* const char *: one of `value`, separated by '|'         */
    KIND_PAIR,   /* the same, or two of them with a comma                  */
    KIND_MODE,   /* one of them, or no word of them behind it: "text"      */
    KIND_BIAS    /* gw_logit_bias list: ID=VALUE, may be given repeatedly  */
} app_kind;

typedef struct app_option {
    const char *names; /* "-m --model": the first long one is the option's name; "": a heading */
    app_kind kind;
    unsigned commands; /* and CMD_BRIEF */
    size_t offset;     /* in app_options */
    double min, max;
    const char *value;  /* metavar in the help, or the choices */
    const char *preset; /* default, as text; NULL: none */
    const char *help;
} app_option;

extern const app_option app_option_table[]; /* ends with names == NULL */

typedef struct app_command {
    const char *name;
    unsigned bit;
    const char *usage;   /* after "godwit NAME " */
    const char *summary; /* one line */
    const char *detail;  /* paragraphs of the help, each line ends with '\n' */
    const char *examples;
    const char *operand; /* the option that a word without one is the value of; NULL: none */
    int (*run)(const app_options *o); /* returns the exit code */
} app_command;

/* 0, or APP_USAGE with the error line printed. Free with options_free in both cases. */
int options_parse(app_options *o, const app_command *command, int argc, char **argv);
void options_free(app_options *o);

/* A line that is shown when the command begins, unless quiet. 0, or APP_USAGE. */
int options_note(app_options *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* To stdout; all: every option, in groups. Returns the exit code. */
int help_command(const app_command *command, int all);

/* The entry of a list nearest to word, or NULL when none is near. Feed candidates one by one. */
typedef struct app_nearest {
    const char *word, *best;
    size_t best_bytes;
    int distance;
} app_nearest;
void nearest_try(app_nearest *n, const char *candidate, size_t bytes);

#endif
