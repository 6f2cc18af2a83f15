/* godwit.h - run transformer language models from C. The only public header.
 *
 *   gw_model    what is loaded: weights, tokenizer, plans. Read-only after gw_model_open; shared.
 *   gw_session  one token timeline: KV cache, logits. Not thread-safe; one session runs at a time
 *               per model (they share the model's thread team).
 *   gw_sampler  chooses tokens from logits. Not thread-safe.
 *   gw_encoder, gw_beam, gw_quantize, gw_writer: vectors and scores of whole texts, beam search,
 *               smaller models, from logits to text; headers of their own, which come with this.
 *
 * Every function that can fail returns gw_status and leaves its results unchanged on error;
 * gw_error_text() then says what is wrong, where and what to do (thread-local, valid until the
 * next failing call of the thread). The library prints nothing and never exits.
 *
 * Ownership: objects are freed by their gw_..._free, which accepts NULL; a session, stream or
 * drafter before the model and session it was made from. Strings and arrays returned are owned by
 * the object they came from, unless a function says that gw_free releases them. Options are read
 * during the call only; what they point to may go afterwards, except `memory` and `cancel`.
 *
 * Option structs grow at their end. The functions that take one are inline and hand its size, as
 * the program was compiled, to a _sized function of the library: a field that an older program does
 * not have is as if not set, one that the library does not know must be 0 (GW_E_ARGUMENT).
 *
 * Files: a model's file is mapped, not copied. If another process shortens it while the model is
 * open, the system sends SIGBUS to the thread that reads what is lost; the library installs no
 * handler. Replace a model by rename, never in place.
 *
 * Threads: any thread may use any object, one at a time. Different models are independent. Of one
 * model, text functions and gw_model_describe run at any time; everything that computes (a
 * session's new, free, prefill, decode, shift, save, load; a drafter's next) takes turns: put a
 * lock around these calls when sessions of one model live in several threads. Reading logits and
 * picking tokens needs no lock. A cancel flag may be raised from any thread or signal handler.
 */
#ifndef GODWIT_H
#define GODWIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GW_VERSION "0.1.0"

/* ---- errors ----------------------------------------------------------------------------- */

typedef enum gw_status {
    GW_OK = 0,
    GW_E_NOMEM,       /* host or device memory; nothing was half-built                     */
    GW_E_ARGUMENT,    /* an argument or option out of its range                            */
    GW_E_IO,          /* the operating system refused a read, write or open                */
    GW_E_UNSUPPORTED, /* well formed, but nothing here can run it                          */
    GW_E_CONTEXT,     /* the context is full; the session is unchanged                     */
    GW_E_DEVICE,      /* a device or its driver reported an error                          */
    GW_E_NUMERIC,     /* logits that are not finite: no token can be chosen                */
    GW_E_CANCELLED,   /* the cancel flag was raised                                        */
    /* What can be wrong with a file. */
    GW_E_MAGIC,     /* not a file of this format                                           */
    GW_E_VERSION,   /* a version that is not supported                                     */
    GW_E_TRUNCATED, /* the file ends inside something that it declares                     */
    GW_E_LIMIT,     /* a count or length beyond what the file can hold or a sane bound     */
    GW_E_OVERFLOW,  /* arithmetic on declared sizes does not fit 64 bits                   */
    GW_E_TYPE,      /* an unknown type, or one that is wrong for its place                 */
    GW_E_DUPLICATE, /* a name that must be unique occurs twice                             */
    GW_E_ALIGNMENT, /* an alignment or offset that breaks the alignment rule               */
    GW_E_BOUNDS,    /* a data range outside the file or over another one                   */
    GW_E_SYNTAX,    /* text that is not well formed                                        */
    GW_E_ENCODING,  /* text that is not UTF-8, or not allowed in a name                    */
    GW_E_METADATA,  /* well formed, but the model it describes is not possible             */
    GW_E_FORBIDDEN, /* what a file may not do: call a function, hide or pack its contents  */
    GW_E_ARCHIVE,   /* an archive that contradicts itself                                  */
    GW_E_BUSY,      /* no room at the moment; the same call may succeed later              */
    GW_STATUS_COUNT
} gw_status;

const char *gw_status_name(gw_status status); /* "truncated": lower case, one word */
const char *gw_error_text(void);              /* of the calling thread; "" before any error */

/* ---- models ------------------------------------------------------------------------------ */

typedef struct gw_model gw_model;

/* Called while weights load, from the loading thread; total may be 0 when unknown. */
typedef void (*gw_progress_fn)(void *user, uint64_t done_bytes, uint64_t total_bytes);

typedef struct gw_model_options {
    const char *path;   /* .gguf file (first part of a split set) or Hugging Face folder */
    const void *memory; /* a GGUF image instead of path; must outlive the model          */
    size_t memory_bytes;
    const char *weights;      /* NULL: as stored; floats as "int8", "int4-g32", -g64, -g128, -g256;
                                 "float": quantized ones as floats; "bf16", "f16": all weights */
    const char *device;       /* NULL: the CPU. A name of gw_devices, or a part of a device's own
                                 name; several, by commas, share the layers. "auto": below */
    const char *pretokenizer; /* NULL: as the files say; a name of tokenizer.ggml.pre     */
    int threads;              /* 0: the physical cores this process may use             */
    int blas;                 /* float-weight prefill through OpenBLAS or CLBlast       */
    int no_graph;             /* GPU kernels launched one by one, not as a graph        */
    int exact;                /* GPU: float-weight prefill to the bits of the CPU       */
    int vocab_only;           /* tokenizer and metadata, no weights                     */
    /* Layer offload: the last N blocks, and with them the output head, run on the devices, the rest
     * on the CPU. "N", "all", "auto" (the fastest N that fits); NULL: all, with device "auto" the
     * same as "auto". Device "auto", or none with layers to offload, is the first card that works:
     * of HIP, then of OpenCL, never a processor; info.placed says which. A card that cannot be
     * opened, or cannot build its kernels, is passed over and named in info.note. */
    const char *offload_layers;
    const char *split;    /* "3,1": shares; NULL: by free memory, equal ones within a layer */
    uint64_t vram_budget; /* most bytes to use on each device but the CPU; 0: what is free */
    int32_t n_ctx, chunk; /* of sessions to come, counted when layers are placed; n_ctx below 0:
                             what the model was trained for, but at most -n_ctx */
    const char *kv_type;
    gw_progress_fn progress; /* may be NULL                                            */
    void *progress_user;
    const volatile int *cancel; /* polled while loading; may be NULL                      */
    const char *spec; /* NULL: as the files say; the file of a family's spec that describes them */
    /* The experts of the first N layers stay in main memory, the rest of these layers where it is
     * placed; INT32_MAX: of all. 0 with offload_layers "auto": as many as are fastest. */
    int32_t cpu_experts;
    const char *split_mode, *groups; /* "layer", "tensor", "hybrid" over "0,1;2,3", "auto" */
    int predictor; /* not the model but the layer beside it that predicts one token more (MTP), a
                      draft model for it; GW_E_UNSUPPORTED: none of this family is known */
    const char *prompt_offload; /* of what stays there, on a card: "on", "off", NULL: if faster */
    int images;         /* its vision tower is opened too (godwit_see.h), of a GGUF file from */
    const char *mmproj; /* this file; NULL: the only one next to it that is called so         */
    const char *target; /* of a head (EAGLE-3, DFlash): its model's path; or NULL            */
    /* Of how many of a card's layers the caches lie in main memory, where the card reads them over
     * its link: "N", "all", "none", "auto" (as many as it has no room for), NULL: auto. */
    const char *kv_host_layers;
} gw_model_options;

gw_status gw_model_open_sized(const gw_model_options *options, size_t size, gw_model **out);
static inline gw_status gw_model_open(const gw_model_options *options, gw_model **out) {
    return gw_model_open_sized(options, sizeof *options, out);
}
void gw_model_free(gw_model *model);

typedef struct gw_model_info {
    const char *name;         /* general.name, or the folder's or file's name            */
    const char *architecture; /* "llama", "qwen2", ...                                   */
    const char *format;       /* weight format of most bytes: "Q4_0", "F16", ...         */
    const char *device;       /* "cpu (AMD EPYC 7B13, avx2), 2 threads"                  */
    const char *note;         /* what was not as asked for; "" when nothing             */
    const char *fault;        /* what came up since and is done another way; ""         */
    const char *placed;       /* where device "auto" has put it, when there is a card; "" */
    int32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, n_ctx_train;
    int32_t threads;
    uint64_t n_params;
    uint64_t file_bytes;         /* of all files of the model                            */
    uint64_t weight_bytes;       /* of all tensors, as stored                            */
    uint64_t decode_bytes;       /* weight bytes read for one generated token            */
    uint64_t kv_bytes_per_token; /* at f16                                               */
    double load_seconds;
    uint64_t state_bytes, batch_state_bytes; /* of recurrent layers: of a text, of one in a batch */
    int32_t n_predictors; /* of gw_inspection_describe: layers for option predictor */
    int32_t target_width, target_vocab; /* of a head (EAGLE-3, DFlash): its model's; else 0 */
} gw_model_info;

void gw_model_describe(const gw_model *model, gw_model_info *out);

/* ---- looking into files ------------------------------------------------------------------ */

typedef struct gw_meta {
    const char *key, *type; /* type of the elements of an array */
    const char *value;      /* one line for people; long ones are cut */
    int is_array;
    uint64_t count; /* elements; 1 when it is no array */
} gw_meta;

typedef struct gw_tensor_info {
    const char *name, *format; /* "Q4_K" */
    int n_dim;
    int64_t dim[4]; /* C order */
    uint64_t bytes;
} gw_tensor_info;

/* What is in a model's files, and whether gw_model_open would take them. */
typedef struct gw_inspection gw_inspection;

enum { GW_INSPECT_VALUES = 1 }; /* read every weight and look for infinities and NaN */

/* path, or memory/bytes as in gw_model_options. GW_OK also for a broken model: then as much as
 * could be read, and a verdict. A .safetensors file alone, or one of torch.save (.bin, .pt, .pth,
 * .ckpt), is valid when its table of tensors is. GW_E_NOMEM, _ARGUMENT, _CANCELLED (or NULL). */
gw_status gw_inspect(const char *path, const void *memory, size_t bytes, int flags,
                     const volatile int *cancel, gw_inspection **out);
void gw_inspection_free(gw_inspection *inspection);
/* GW_OK, or what gw_model_open fails with, and its message; *text NULL: valid. */
gw_status gw_inspection_verdict(const gw_inspection *inspection, const char **text);
const char *gw_inspection_container(const gw_inspection *inspection); /* "GGUF, 1 file"; "" */
const char *gw_inspection_chat(const gw_inspection *inspection);      /* "chatml", ...; "" */
/* What loading it needs is 0: device, threads, decode_bytes, load_seconds. */
void gw_inspection_describe(const gw_inspection *inspection, gw_model_info *out);
/* Rows [capacity], owned by the inspection; return how many there are. */
size_t gw_inspection_meta(const gw_inspection *inspection, gw_meta *rows, size_t capacity);
size_t gw_inspection_tensors(const gw_inspection *inspection, gw_tensor_info *rows,
                             size_t capacity);

/* ---- text -------------------------------------------------------------------------------- */

/* BOS: start and end token around the text, as the model asks. SPECIAL: spellings of special tokens
 * become these tokens. OPEN: the text will be continued, so there is no end token behind it. */
enum { GW_TEXT_BOS = 1, GW_TEXT_SPECIAL = 2, GW_TEXT_OPEN = 4 };

/* ids: out, malloc'd [*n], freed by the caller with gw_free. Special-token spellings in text stay
 * text unless GW_TEXT_SPECIAL. Any bytes are accepted; what is not UTF-8 becomes byte tokens where
 * the vocabulary has them, else U+FFFD. */
gw_status gw_tokenize(const gw_model *model, const char *text, size_t bytes, int flags,
                      int32_t **ids, size_t *n);
/* A text and its pair, as rerankers and other encoders take two: framed as the model's own
 * tokenizer does ([CLS] A [SEP] B [SEP], ...). pair NULL: one text. flags: BOS, else nothing stands
 * around and between; SPECIAL. *types [*n]: the segment of each token. gw_free both. */
gw_status gw_tokenize_pair(const gw_model *model, const char *text, size_t bytes, const char *pair,
                           size_t pair_bytes, int flags, int32_t **ids, int32_t **types, size_t *n);
/* text: out, malloc'd, NUL-terminated, *bytes long without it; may hold any bytes. */
gw_status gw_detokenize(const gw_model *model, const int32_t *ids, size_t n, int keep_special,
                        char **text, size_t *bytes);
void gw_free(void *pointer);

int32_t gw_token_bos(const gw_model *model); /* -1 when the model has none */
int32_t gw_token_eos(const gw_model *model);
int gw_token_is_end(const gw_model *model, int32_t id); /* eos, end of turn, ... */

/* Streaming decoder: feeds ids one by one and hands out whole UTF-8 characters only. */
typedef struct gw_stream gw_stream;
gw_status gw_stream_new(const gw_model *model, gw_stream **out);
void gw_stream_free(gw_stream *stream);
/* Text that became complete with this id (may be empty); id -1 flushes an unfinished character as
 * U+FFFD. *text is owned by the stream and valid until the next call. */
gw_status gw_stream_push(gw_stream *stream, int32_t id, const char **text, size_t *bytes);

/* ---- conversations ----------------------------------------------------------------------- */

typedef struct gw_chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *text; /* any bytes; never becomes a special token, whatever it spells */
    size_t bytes;
} gw_chat_message;

/* How a model wants a conversation written: a form, bound to the model's tokens. Read-only after
 * gw_chat_new; any thread; the model must outlive it. */
typedef struct gw_chat gw_chat;

/* name: "chatml", "llama3", ... (GW_E_ARGUMENT lists them); NULL: as the model's own template says,
 * GW_E_UNSUPPORTED when that is of no known form; without one, as its tokens suggest. */
gw_status gw_chat_new(const gw_model *model, const char *name, gw_chat **out);
void gw_chat_free(gw_chat *chat);
const char *gw_chat_name(const gw_chat *chat);
const char *gw_chat_origin(const gw_chat *chat); /* "the model's template": why this one */

/* The tokens of messages [n] from number `from` on, and, unless the last is an assistant's, what
 * opens the answer to it. from 0: all of the conversation, with its beginning. from > 0:
 * messages[from - 1] is an assistant's whose text the timeline already holds, as generated and
 * without an end token; the result closes it first. *ids malloc'd [*n_ids], freed with gw_free.
 * GW_E_ARGUMENT: no message, another role, a `from` behind none of an assistant. */
gw_status gw_chat_render(const gw_chat *chat, const gw_chat_message *messages, size_t n,
                         size_t from, int32_t **ids, size_t *n_ids);

/* Does this token end an answer? More than gw_token_is_end where the form has an end of its own. */
int gw_chat_is_end(const gw_chat *chat, int32_t id);
/* Stop strings that the form needs besides: texts [capacity], owned by chat; returns how many. */
size_t gw_chat_stops(const gw_chat *chat, const char **texts, size_t capacity);

/* How a chat is framed; every member may be 0. */
typedef struct gw_chat_settings {
    const char *name;          /* a form, a named template of the model ("tool_use", "rag"), or
                                  NULL: the model's own                                       */
    const char *template_text; /* a Jinja template [template_bytes] instead; NULL: none       */
    size_t template_bytes;
    const char *arguments; /* JSON object: variables of every rendering; a request's own win  */
    const char *reasoning; /* "on", "off" or an effort ("low", ...), as the variables that
                              templates know: enable_thinking, thinking, reasoning_effort     */
    const char *date;      /* "2026-11-26 10:20:30": the time that a template sees; NULL: now */
} gw_chat_settings;

/* model NULL: no tokens and no special ones, and gw_chat_write gives text only; else it must
 * outlive *out. GW_E_SYNTAX names the template's line; GW_E_ARGUMENT an unknown name or date. */
gw_status gw_chat_open(const gw_model *model, const gw_chat_settings *settings, gw_chat **out);

/* The source of the template that `chat` runs: *bytes of it, owned by chat; NULL: a form without.
 */
const char *gw_chat_template(const gw_chat *chat, size_t *bytes);

/* What a model is given for a request. */
typedef struct gw_chat_text {
    char *text; /* [bytes], NUL-terminated; may hold any bytes                            */
    size_t bytes;
    size_t *typed;  /* [n_typed][2] begin and end of what came from the request: it never  */
    size_t n_typed; /* becomes a special token, whatever it spells                        */
    int32_t *ids;   /* [n_ids] the tokens; NULL without a model                           */
    size_t n_ids;
} gw_chat_text;

/* request [bytes]: a JSON object whose members are the template's variables: "messages" (needed),
 * "tools", "documents" (null unless given), "add_generation_prompt" (false unless given) and any
 * others. "continue_final_message": true ends the text with the last message's content. Special
 * tokens (bos_token, ...) are the model's unless given. Any thread. Freed by gw_chat_text_free.
 * GW_E_ARGUMENT: the request or what the template says of it; GW_E_LIMIT: beyond the limits of a
 * rendering; messages name the template's line. */
gw_status gw_chat_write(const gw_chat *chat, const char *request, size_t bytes, gw_chat_text *out);
void gw_chat_text_free(gw_chat_text *text);

/* Stop strings in a text that comes in pieces. Not thread-safe. */
typedef struct gw_stop gw_stop;
/* texts [n] are copied; at most 64, of 1 to 1000 bytes. */
gw_status gw_stop_new(const char *const *texts, size_t n, gw_stop **out);
void gw_stop_free(gw_stop *stop);
void gw_stop_reset(gw_stop *stop); /* a new text begins */
/* The text that can no longer be part of a stop string, owned by stop and valid until the next
 * call; of a string that comes true nothing is handed out. last: nothing comes behind this piece,
 * so nothing is held back. *hit: the string's number, else -1; the first to be complete counts, of
 * several the longest, and no text comes after it. How the text is cut makes no difference. */
gw_status gw_stop_push(gw_stop *stop, const char *text, size_t bytes, int last, const char **safe,
                       size_t *safe_bytes, int *hit);

/* ---- sessions ---------------------------------------------------------------------------- */

typedef struct gw_session gw_session;

enum { GW_DECODE_MAX = 16, GW_CHUNK_MAX = 2048 };

typedef struct gw_session_options {
    int32_t n_ctx; /* 0: the model's training context                               */
    int32_t chunk; /* prompt tokens per pass, 1..GW_CHUNK_MAX; 0: 512, of cards alone 1024       */
    const char *kv_type; /* NULL or "f16"; "f32", "q8_0", "q5_0", "q4_0"; "K,V": two of them     */
    const volatile int *cancel; /* polled per chunk and per token; may be NULL            */
    /* Called while GPU kernels are compiled, at the first start with a model, with their number
     * instead of bytes; from threads of the library, one at a time. May be NULL. */
    gw_progress_fn progress;
    void *progress_user;
} gw_session_options;

/* Reserves everything a timeline of n_ctx tokens needs; nothing is allocated afterwards. */
gw_status gw_session_new_sized(gw_model *model, const gw_session_options *options, size_t size,
                               gw_session **out);
static inline gw_status gw_session_new(gw_model *model, const gw_session_options *options,
                                       gw_session **out) {
    return gw_session_new_sized(model, options, sizeof *options, out);
}
void gw_session_free(gw_session *session);

/* Append the tokens of a prompt (prefill arithmetic, whatever the chunk size). Afterwards
 * gw_session_logits(s, 0) are the logits of the last one. An error leaves the session as it was. */
gw_status gw_session_prefill(gw_session *s, const int32_t *tokens, size_t n);

/* The same, and every row's logits from row `first` on are handed out in order.
 * Return non-zero from the callback to stop with GW_E_CANCELLED. logits [n_vocab]. */
typedef int (*gw_row_fn)(void *user, size_t row, const float *logits);
gw_status gw_session_prefill_rows(gw_session *s, const int32_t *tokens, size_t n, size_t first,
                                  gw_row_fn fn, void *user);

/* Append n generated or drafted tokens in one pass, 1..GW_DECODE_MAX (decode arithmetic: bits
 * equal n single steps). Logits of all n rows are then available. */
gw_status gw_session_decode(gw_session *s, const int32_t *tokens, size_t n);

/* [n_vocab] raw scores of row `row` of the last pass, valid until the next pass or rewind. */
const float *gw_session_logits(const gw_session *s, size_t row);

int32_t gw_session_pos(const gw_session *s);
int32_t gw_session_n_ctx(const gw_session *s);
int32_t gw_session_chunk(const gw_session *s);
/* Forget everything from position pos on (0 <= pos <= current). O(1). */
gw_status gw_session_rewind(gw_session *s, int32_t pos);

/* The tokens of the timeline, [gw_session_pos]; the session's, valid until it changes. */
const int32_t *gw_session_tokens(const gw_session *s);
/* How many leading tokens were computed as a prompt, each on nothing but a prompt: what a later
 * prompt that begins alike may keep (rewind to there) without a bit of its text changing. */
int32_t gw_session_prompted(const gw_session *s);

/* Make room: forget the older half (rounded up) of what follows the first `keep` tokens, and
 * evaluate the rest again as a prompt, so that the session is exactly one that was given those
 * tokens. Logits are then those of the last token. *dropped: how many are gone; the caller adds
 * them to the positions it gives to gw_sampler_pick. GW_E_CONTEXT when nothing can be dropped; any
 * other error leaves the session whole, but shorter. */
gw_status gw_session_shift(gw_session *s, int32_t keep, int32_t *dropped);

/* Tokens and cache to a file, which is whole or untouched (mode 0600: it holds the text).
 * Continuing from a loaded session gives the bits of the saved one; it has no logits until its next
 * pass. The device may differ as long as it computes every layer of a prompt to the same bits,
 * which 16-bit matrix units (option exact leaves them out), BLAS libraries and the device ref do
 * not. Loading refuses, before the session changes, what is no such file (GW_E_MAGIC,
 * GW_E_TRUNCATED), of another version (GW_E_VERSION), model or arithmetic (GW_E_METADATA) or
 * kv_type (GW_E_TYPE), or longer than the context (GW_E_CONTEXT); a damaged one (GW_E_SYNTAX)
 * leaves the session empty. */
gw_status gw_session_save(gw_session *s, const char *path);
gw_status gw_session_load(gw_session *s, const char *path);

/* Per-kernel times of the passes since the last reset. */
typedef struct gw_kernel_time {
    const char *name; /* "cpu.linear.q4_0.vnni" */
    const char *what; /* "blk.attn_qkv", "head": the role in the model */
    uint64_t calls;
    double seconds, bytes, ops; /* totals; bytes and ops are the least the operation needs */
} gw_kernel_time;
void gw_session_profile(gw_session *s, int on); /* on: reset and collect */
size_t gw_session_kernel_times(const gw_session *s, gw_kernel_time *rows, size_t capacity);

/* ---- sampling ---------------------------------------------------------------------------- */

typedef struct gw_sampler gw_sampler;

typedef struct gw_logit_bias {
    int32_t token;
    float bias;
} gw_logit_bias;

typedef struct gw_sampler_options { /* docs/sampling.md */
    uint64_t seed;
    float temperature; /* 0: greedy                                   */
    int32_t top_k;     /* 0: off                                      */
    float top_p;       /* 1: off                                      */
    float min_p;       /* 0: off                                      */
    float typical_p;   /* 1: off                                      */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    int32_t repeat_last_n; /* how far penalties look back; -1: all; 0: off     */
    /* Stages separated by ';' in the order they run; one that is left out is off. NULL:
     * "penalties;dry;bias;fsd;top-n-sigma;top-k;tail-free;typical;top-p;min-p;xtc;temperature",
     * with mirostat only "penalties;dry;bias;temperature;mirostat". */
    const char *order;
    const gw_logit_bias *bias;
    size_t n_bias;
    float dynatemp_range, dynatemp_exponent; /* temperature +- range by entropy; 0: off        */
    float top_n_sigma;                       /* 0 or less: off                                 */
    float tfs_z;                             /* 1: off                                         */
    float xtc_probability, xtc_threshold;    /* 0: off; over 0.5 has no effect                 */
    int32_t mirostat;                        /* 0: off; version 1 or 2                         */
    float mirostat_tau, mirostat_eta;        /* bits per token; how fast it is corrected       */
    float dry_multiplier, dry_base;          /* 0: off; at least 1                             */
    int32_t dry_allowed_length;              /* tokens that may repeat, at least 1             */
    int32_t dry_last_n;                      /* how far it looks back; -1: all (2^20), 0: off  */
    const char *const *dry_breakers;         /* NULL: newline, ':', '"' and '*'; copied        */
    size_t n_dry_breakers;                   /* at most 64, of 1 to 64 bytes                   */
    float fsd_alpha;                         /* 0: off                                         */
    int32_t fsd_n, fsd_k;                    /* order of the n-grams, 1..8; choices, 1..100    */
    int32_t fsd_random; /* in so many first tokens a coin takes a drawn token instead          */
} gw_sampler_options;

void gw_sampler_defaults_sized(gw_sampler_options *out, size_t size);
static inline void gw_sampler_defaults(gw_sampler_options *out) {
    gw_sampler_defaults_sized(out, sizeof *out);
}
gw_status gw_sampler_new_sized(const gw_model *model, const gw_sampler_options *options,
                               size_t size, gw_sampler **out);
static inline gw_status gw_sampler_new(const gw_model *model, const gw_sampler_options *options,
                                       gw_sampler **out) {
    return gw_sampler_new_sized(model, options, sizeof *options, out);
}
void gw_sampler_free(gw_sampler *sampler);
/* Choose the token at position pos from logits [n_vocab]. Same (seed, pos, logits, history), same
 * token; it is not recorded. GW_E_NUMERIC when no logit that the grammar allows is finite. */
gw_status gw_sampler_pick(gw_sampler *sampler, const float *logits, int32_t pos, int32_t *token);
/* Append one token and choose the one behind it: gw_session_decode(s, &token, 1), then
 * gw_sampler_pick from its logits at position gw_session_pos(s) + shifted. Where the sampler is
 * greedy, or does nothing but top-k, top-p, min-p and temperature, the device chooses: then there
 * are no gw_session_logits afterwards, and it may have begun with the next token when this one is
 * handed out. A call that appends what the last one chose finds its step under way; any other use
 * of the session forgets that step. An error leaves the session as it was. */
gw_status gw_session_next(gw_session *s, gw_sampler *sampler, int32_t token, int32_t shifted,
                          int32_t *next);
/* Tell the sampler that a token is now part of the text (prompt tokens too). After a pick it is
 * taken for the answer, whatever token it is. GW_E_ARGUMENT, and nothing changes: no such token, or
 * none that its grammar allows here. */
gw_status gw_sampler_accept(gw_sampler *sampler, int32_t token);
/* Forget the last n tokens accepted, with all that was learnt from them: for a session that was
 * rewound by as many. GW_E_ARGUMENT, and nothing changes, when there are fewer, or when it is more
 * than 4096 behind the longest the text has been. */
gw_status gw_sampler_rewind(gw_sampler *sampler, size_t n);

/* ---- text of a given form ------------------------------------------------------------------ */

/* What a text may look like (docs/grammar.md), bound to a model's tokens. Read-only after
 * gw_grammar_new; any thread, any number of samplers; the model must outlive it. */
typedef struct gw_grammar gw_grammar;

typedef enum gw_grammar_kind {
    GW_GRAMMAR_GBNF,       /* the notation of llama.cpp; a text begins with rule `root` */
    GW_GRAMMAR_JSON_SCHEMA /* JSON that the schema accepts                              */
} gw_grammar_kind;

/* text [bytes] is read during the call only. chat: NULL, or a form whose own end counts as an end
 * of the text. GW_E_SYNTAX, GW_E_ENCODING and GW_E_METADATA say where (line and column, or the JSON
 * pointer), GW_E_UNSUPPORTED what is not known here, GW_E_LIMIT what is too large. */
gw_status gw_grammar_new(const gw_model *model, gw_grammar_kind kind, const char *text,
                         size_t bytes, const gw_chat *chat, gw_grammar **out);
void gw_grammar_free(gw_grammar *grammar); /* after the samplers that it constrains */

/* From now on the sampler picks only tokens that go on with a text of the grammar, and a token that
 * ends the text only where the grammar may end. The text begins with the next token accepted, also
 * after gw_sampler_rewind has forgotten all of it; calling again begins another one; grammar NULL:
 * no longer. All memory is taken here. */
gw_status gw_sampler_constrain(gw_sampler *sampler, const gw_grammar *grammar);
/* 1 when the text is whole and the grammar allows nothing to follow it; 0 without a grammar. */
int gw_sampler_finished(const gw_sampler *sampler);

/* ---- answers: reasoning, text, tool calls ---------------------------------------------------- */

/* What a model writes is one text in which its reasoning and its calls of tools are set off by
 * marks, in one form or another (docs/answers.md). A gw_answer reads it token by token and gives
 * out its parts; and makes the grammar of an answer that has to call a tool, or whose calls must
 * fit the schemas of the tools. One answer at a time; not thread-safe; the model must outlive it.
 */
typedef struct gw_answer gw_answer;

typedef enum gw_part_kind {
    GW_PART_TEXT,       /* more of the answer's text                                              */
    GW_PART_REASONING,  /* more of what the model thinks before it answers                        */
    GW_PART_CALL,       /* call number `call` begins: name and id                                 */
    GW_PART_ARGUMENTS,  /* more of its arguments: all of them together are a JSON object          */
    GW_PART_CALL_END,   /* its arguments are whole                                                */
    GW_PART_CALL_BROKEN /* it was none after all: what was said of it does not count, and all it
                           was written with follows as text                                       */
} gw_part_kind;

typedef struct gw_part {
    gw_part_kind kind;
    const char *text; /* TEXT, REASONING, ARGUMENTS: [bytes], NUL-terminated, UTF-8 */
    size_t bytes;
    size_t call;      /* CALL, ARGUMENTS, CALL_END, CALL_BROKEN: from 0 in each answer */
    const char *name; /* CALL */
    const char *id;   /* CALL: the model's own where one of 9 characters or more comes first, else 9
                         letters and digits made from id_seed and the number of the call */
} gw_part;

typedef enum gw_tool_choice {
    GW_TOOLS_AUTO,    /* the model calls a tool or does not                                      */
    GW_TOOLS_NONE,    /* no calls: marks of calls are text                                       */
    GW_TOOLS_REQUIRED /* it begins with a call: of `named`, or of any tool                       */
} gw_tool_choice;

typedef struct gw_answer_options {
    /* Names of forms: GW_E_ARGUMENT lists them; "none": nothing is set off. NULL: as the template
     * says, of unknown ones "none" for reasoning, and "json" for calls. */
    const char *tool_form, *reasoning_form;
    const char *chat_template; /* the text that says it; NULL: the model's own template */
    size_t chat_template_bytes;
    /* A JSON list as OpenAI's API has it: [{"type": "function", "function": {"name", "parameters"
     * (a schema), ...}}, ...], or of such functions alone. Read during the call only. NULL: none.
     */
    const char *tools;
    size_t tools_bytes;
    gw_tool_choice choice;
    const char *named;  /* a tool's name; NULL: any                                           */
    int one_call;       /* at most one call                                                   */
    int reason_first;   /* REQUIRED: reasoning may come before the call                       */
    int free_calls;     /* AUTO: calls need not fit their schemas                             */
    int whole_calls;    /* parts of a call come when it is whole: CALL_BROKEN never does      */
    const char *schema; /* a JSON schema that the answer's text has to fit; NULL: any text    */
    size_t schema_bytes;
    uint64_t id_seed;
} gw_answer_options;

/* GW_E_ARGUMENT: a form or `named` that is unknown; GW_E_METADATA, GW_E_SYNTAX, GW_E_TYPE: tools
 * that are none. A schema that cannot be kept is no error here: gw_answer_note. */
gw_status gw_answer_new_sized(const gw_model *model, const gw_answer_options *options, size_t size,
                              gw_answer **out);
static inline gw_status gw_answer_new(const gw_model *model, const gw_answer_options *options,
                                      gw_answer **out) {
    return gw_answer_new_sized(model, options, sizeof *options, out);
}
void gw_answer_free(gw_answer *answer); /* accepts NULL */
const char *gw_answer_tool_form(const gw_answer *answer);
const char *gw_answer_reasoning_form(const gw_answer *answer);
/* The i-th name of a form of calls or, with reasoning 1, of reasoning; NULL behind the last. */
const char *gw_answer_form_name(int reasoning, size_t i);

/* An answer begins, to a prompt with these tokens: its end says whether the model is reasoning
 * already, or in the middle of a mark. */
gw_status gw_answer_begin(gw_answer *answer, const int32_t *prompt, size_t n);
/* What that answer may look like, for gw_sampler_constrain; freed by the caller. *out NULL: like
 * anything. chat: as for gw_grammar_new. GW_E_UNSUPPORTED and what gw_grammar_new fails with:
 * options.schema cannot be kept. */
gw_status gw_answer_grammar(gw_answer *answer, const gw_chat *chat, gw_grammar **out);
/* Which schema of a tool the grammar does not keep, and why, a line each; NULL behind the last. */
const char *gw_answer_note(const gw_answer *answer, size_t i);
/* The parts that are certain with this token, parts [n], the answer's until the next call; id -1:
 * the answer is over, and nothing is held back. How the text is cut into tokens changes nothing. */
gw_status gw_answer_push(gw_answer *answer, int32_t id, const gw_part **parts, size_t *n);
/* 0: a token that is no text: gw_answer_push takes it, gw_stream gives nothing for it. */
int gw_answer_is_text(const gw_answer *answer, int32_t id);
/* The same for text as a gw_stream gives it out. */
gw_status gw_answer_push_text(gw_answer *answer, const char *text, size_t bytes,
                              const gw_part **parts, size_t *n);

/* ---- banned strings ------------------------------------------------------------------------ */

/* Strings that never occur in the text that is generated, whatever tokens would spell them
 * (docs/sampling.md): exact bytes of what a gw_stream gives out. A token that spells one alone is
 * never picked. Where one comes true across tokens the text goes back to the token that it began
 * in, and another one is picked there. Not thread-safe; the model must outlive it. */
typedef struct gw_ban gw_ban;

enum {
    GW_BAN_MAX = 1024,   /* strings                                                            */
    GW_BAN_BYTES = 1000, /* of a string                                                        */
    GW_BAN_HELD = 1024,  /* tokens that may still be taken back                                */
    GW_BAN_TAKES = 1024  /* tokens that are tried until one of them stays                      */
};

/* texts [n] are copied. keep_special: special tokens are shown by their spelling, which counts.
 * GW_E_LIMIT: none or too many; GW_E_ARGUMENT: one that is empty or too long. */
gw_status gw_ban_new(const gw_model *model, const char *const *texts, size_t n, int keep_special,
                     gw_ban **out);
void gw_ban_free(gw_ban *ban); /* after the samplers that heed it, or gw_sampler_ban(.., NULL) */
/* From now on the sampler (and its drafter) picks nothing that ban rules out; NULL: no longer. */
gw_status gw_sampler_ban(gw_sampler *sampler, const gw_ban *ban);

/* A text begins with the next token; what was before it does not count. stream: gives out what
 * comes before; NULL: nothing does. Read during the call only. */
gw_status gw_ban_begin(gw_ban *ban, const gw_stream *stream);
/* Tell the ban the next token of the text, picked at position pos. What follows from *back:
 *   0       no banned string is complete. The last gw_ban_held tokens may be the beginning of one:
 *           show them later.
 *   n > 0   the last n tokens complete a banned string. Remove them from the text and rewind
 *           sampler and drafter by n. Rewind the session to the last token that is left and feed
 *           that one again as it was fed before (prefill if it belongs to the prompt, else decode),
 *           for its logits. Then pick again. Tokens drafted behind the n are not pushed.
 * Example: "no way" is banned, and the text is "so", " no", " way". With " no" *back was 0 and
 * gw_ban_held 1; with " way" *back is 2. "so" is fed again, and another token than " no" is picked.
 * GW_E_LIMIT after GW_BAN_TAKES tokens that all had to go. */
gw_status gw_ban_push(gw_ban *ban, int32_t token, int32_t pos, size_t *back);
size_t gw_ban_held(const gw_ban *ban);
/* All but the last `most` of them stay, whatever comes: 0 at the end of the text, less than all
 * when a session cannot go back so far. A string that began in them is then prevented later. */
gw_status gw_ban_release(gw_ban *ban, size_t most);

/* ---- speculation ------------------------------------------------------------------------- */

/* Drafts tokens cheaply and lets the target check several in one pass. Under GW_ACCEPT_EXACT the
 * tokens are those of the plain loop (pick, accept, decode), greedy or sampled. One target session;
 * not thread-safe. docs/speculation.md. */
typedef struct gw_drafter gw_drafter;

enum { GW_DRAFT_MAX = GW_DECODE_MAX - 1 }; /* drafted tokens of a pass */

typedef enum gw_accept {
    GW_ACCEPT_EXACT = 0, /* what the target's sampler picks is the text; a draft that equals it
                            saves a pass                                                        */
    GW_ACCEPT_REJECTION, /* same distribution as the target's, other tokens for a seed           */
    GW_ACCEPT_POOL       /* any draft that the target's filters leave: another distribution      */
} gw_accept;

typedef struct gw_drafter_options {
    gw_model *model;       /* drafts; any device; the target's vocabulary. NULL: none    */
    int lookup;            /* 1: what followed the end's longest copy, 2: most often  */
    const int32_t *corpus; /* searched besides the text itself; copied                   */
    size_t n_corpus;
    gw_accept accept;
    const char *length;         /* NULL or "cost", "heuristic", "fixed:1" .. "fixed:15"           */
    int greedy_draft;           /* the draft takes its most probable token whatever the sampler   */
    double assume;              /* 0: off; else accept drafts with this probability: to measure   */
    int past_end;               /* go on behind tokens that end the text: to measure              */
    const char *kv_type;        /* of the draft's session: as in gw_session_options       */
    const volatile int *cancel; /* polled while the draft computes; may be NULL           */
} gw_drafter_options;

/* Takes everything that n_ctx tokens of the target need; nothing is allocated afterwards. With both
 * a model and lookup each pass uses the one that promises more. GW_E_UNSUPPORTED says in what the
 * vocabularies differ. The target session and the draft model must outlive the drafter. */
gw_status gw_drafter_new_sized(gw_session *target, const gw_drafter_options *options, size_t size,
                               gw_drafter **out);
static inline gw_status gw_drafter_new(gw_session *target, const gw_drafter_options *options,
                                       gw_drafter **out) {
    return gw_drafter_new_sized(target, options, sizeof *options, out);
}
void gw_drafter_free(gw_drafter *drafter);

/* Tell the drafter tokens that are in the target's session, or will be before gw_drafter_next. */
gw_status gw_drafter_prompt(gw_drafter *drafter, const int32_t *tokens, size_t n);
/* The source text of an encoder-decoder, in place of the one before: a draft model that takes one
 * reads it, lookup drafts from it too. */
gw_status gw_drafter_source(gw_drafter *drafter, const int32_t *tokens, size_t n);
/* Forget the text from position pos on; what the sampler knows is the caller's matter. From 0 on:
 * another text begins, at position 0. */
gw_status gw_drafter_rewind(gw_drafter *drafter, int32_t pos);

/* After gw_session_shift of the target: the text has lost `dropped` tokens after the first keep. */
gw_status gw_drafter_shift(gw_drafter *drafter, int32_t keep, int32_t dropped);

/* The next 1..capacity tokens of the text, tokens [capacity]; at most GW_DECODE_MAX. The sampler
 * has accepted each, but for a token that ends the text, which is always the last. Afterwards the
 * session holds all of the text but its last token. Any error leaves text, session and sampler as
 * they were; GW_E_CONTEXT: no room for another pass. */
gw_status gw_drafter_next(gw_drafter *drafter, gw_sampler *sampler, int32_t *tokens,
                          size_t capacity, size_t *n);

typedef struct gw_draft_stats {
    uint64_t tokens;            /* of the text, by gw_drafter_next                         */
    uint64_t passes, plain;     /* of the target; those without a draft                    */
    uint64_t pass_tokens;       /* tokens that passes gave: all but those of a prompt's logits */
    uint64_t drafted, accepted; /* tokens                                                  */
    uint64_t looked_up, looked_up_accepted; /* those of them found by lookup               */
    uint64_t ahead, ahead_used; /* drafted on another device while the target was at work on the
                                   tokens before; those of them that it then checked   */
    uint64_t tried_at[GW_DRAFT_MAX], accepted_at[GW_DRAFT_MAX]; /* by position in a draft; tried:
                                                   all before it were accepted             */
    double draft_seconds, verify_seconds, pick_seconds;
    double read_seconds;       /* of draft_seconds: up to the first draft, where the draft model
                                  had missed more than two tokens                         */
    double wasted_seconds;     /* waiting for single steps that were begun and not wanted */
    double step_seconds;       /* a pass and a pick without speculation, measured or
                                  estimated; 0: unknown                                   */
    double draft_step_seconds; /* of the draft model, per token; 0: unknown               */
    double width_seconds[GW_DECODE_MAX]; /* of a pass of 1.. tokens; 0: not measured       */
} gw_draft_stats;

void gw_drafter_stats(const gw_drafter *drafter, gw_draft_stats *out);

/* ---- many requests at once ----------------------------------------------------------------- */

/* Serves many requests over one model: rows of many texts in one pass, and a cache of pages (64
 * positions each) that prompts with a common beginning share. Each choice of a request gets the
 * text that gw_session_prefill and gw_session_next would give it alone, bit for bit, whatever else
 * is served, however prompts are cut, and whatever is evicted or preempted in between.
 *
 * Threads: gw_batch_new, _step and _free compute, so they take turns with everything else of the
 * model that does. gw_batch_submit, gw_request_cancel, gw_request_hold, gw_request_free,
 * gw_batch_stats and gw_batch_drain may be called from any thread at any time, also within an event
 * function; none waits. The thread that steps calls event functions, which do not wait either. */
typedef struct gw_batch gw_batch;
typedef struct gw_request gw_request;

enum { GW_PARALLEL_MAX = 256, GW_TOP_LOGPROBS = 20 };

typedef struct gw_batch_options {
    int32_t n_ctx;        /* the most tokens of one choice; 0: the model's training context      */
    int32_t chunk;        /* most prompt tokens of a pass, as in gw_session_options              */
    const char *kv_type;  /* as in gw_session_options                                            */
    int32_t parallel;     /* choices that may be under way at once, 1..GW_PARALLEL_MAX; 0: 16    */
    int64_t cache_tokens; /* positions that the cache holds, for all; 0: 4 times n_ctx, but not
                             more than parallel times n_ctx; at least n_ctx                      */
    int32_t queue;        /* requests that may wait; 0: 64                                       */
    int64_t queue_tokens; /* and prompt tokens that may; 0: no limit                             */
    double step_seconds;  /* of a prompt pass while others generate; 0: 0.05 (the CPU: 0.2)      */
    int no_sharing;       /* prompts share no pages                                              */
    int prompts_first;    /* nothing is generated while prompts are read: least time for all     */
    /* By _submit, _drain, _cancel, _hold, in their thread: there is work again. May be NULL. */
    void (*wake)(void *user);
    void *wake_user;
    const volatile int *cancel; /* while kernels are compiled; may be NULL */
    gw_progress_fn progress;    /* as in gw_session_options                */
    void *progress_user;
    /* Not 0: widths, cuts, preemptions, evictions and the order of service are drawn from this
     * seed instead of chosen, to show that they do not matter. */
    uint64_t disorder;
    gw_model *draft_model;    /* docs/speculation.md; outlives the batch; NULL: none    */
    int draft_lookup;         /* as lookup of gw_drafter_options; 2: in earlier answers, too */
    const char *draft_length; /* NULL or "cost": as many as pay; "fixed:1" .. "fixed:15" */
    int read_ahead; /* with nothing else to do, answers are read as prompts of next turns, which
                       share their pages: texts that wait for it are `work` of gw_batch_step */
    uint64_t cache_host_bytes; /* main memory for pages that the cache lets go; 0: none */
    double draft_assume; /* 0: off; else accept drafts with this probability: to measure */
} gw_batch_options;

/* Takes all the memory that passes need. Layers are placed for a cache of so many tokens when
 * n_ctx of gw_model_options is cache_tokens. GW_E_NOMEM says what is needed and what there is. */
gw_status gw_batch_new_sized(gw_model *model, const gw_batch_options *options, size_t size,
                             gw_batch **out);
static inline gw_status gw_batch_new(gw_model *model, const gw_batch_options *options,
                                     gw_batch **out) {
    return gw_batch_new_sized(model, options, sizeof *options, out);
}
/* Requests that are not done end with GW_FINISH_CANCELLED first. Handles that are still held stay
 * valid for gw_request_free alone. */
void gw_batch_free(gw_batch *batch);

typedef enum gw_finish {
    GW_FINISH_STOP,   /* a token that ends the text, a whole text of the grammar, a stop string */
    GW_FINISH_LENGTH, /* max_tokens, or the context is full                                  */
    GW_FINISH_CANCELLED, /* gw_request_cancel, gw_batch_free                                    */
    GW_FINISH_ERROR      /* status and text of the event say what                               */
} gw_finish;

typedef struct gw_logprob {
    int32_t token;
    float logprob; /* natural logarithm of the token's probability by the raw logits */
} gw_logprob;

typedef enum gw_event_kind {
    GW_EVENT_PROMPT, /* more of the prompt is read: n_read of n_prompt. First when the request is
                        admitted: n_cached of them were there                                    */
    GW_EVENT_ROW,    /* with prompt_logprobs: of prompt token number `index`, 1 .. n_prompt - 1,
                        from prompt_logprobs_from on                                          */
    GW_EVENT_TOKEN,  /* a token of a choice, number `index` from 0; it stays                     */
    GW_EVENT_END,    /* a choice has ended: why, and the rest of its text. `token` is the one that
                        ended it, or -1                                                          */
    GW_EVENT_DONE    /* the request has ended, with all its choices; its last event              */
} gw_event_kind;

/* Read during the call only. What is not of this kind of event is 0, NULL or -1, but for the counts
 * and times, which are those so far. */
typedef struct gw_event {
    gw_event_kind kind;
    int32_t choice; /* 0 .. n - 1 */
    int32_t index;
    int32_t token;
    const char *text; /* TOKEN, END: what became certain of the text, whole UTF-8 characters,
                         without stop strings; may be empty */
    size_t bytes;
    float logprob;         /* ROW, and with logprobs TOKEN, END: of token                        */
    const gw_logprob *top; /* and the most probable ones, falling                                */
    size_t n_top;
    gw_finish finish; /* END, DONE (of the choice that ended last)                               */
    int32_t stop;     /* END: number of the stop string that came true; -1: none                 */
    gw_status status; /* GW_FINISH_ERROR                                                         */
    const char *error;
    int32_t n_prompt, n_cached, n_read;
    int32_t n_generated; /* tokens of this choice, the one that ends it included; DONE: of all   */
    /* Since submission: until it was admitted, until the prompt was read, until now. */
    double queued_seconds, prompt_seconds, seconds;
} gw_event;

typedef void (*gw_event_fn)(void *user, const gw_event *event);

typedef struct gw_request_options {
    const int32_t *tokens; /* the prompt; copied */
    size_t n_tokens;
    const gw_sampler_options *sampler; /* gw_sampler_defaults where NULL; copied. Choice 0 has its
                                          seed, choice i a seed made of it and i */
    const gw_grammar *grammar;         /* NULL: any text. Must outlive the request's last event */
    const gw_chat *chat;               /* NULL, or whose ends end the text, and whose stop strings
                                          count behind the given ones. Must outlive it as well  */
    const char *const *stops;          /* as gw_stop_new; copied */
    size_t n_stops;
    const char *const *bans; /* as gw_ban_new; copied */
    size_t n_bans;
    int special;    /* special tokens are text, by their spelling                            */
    int ignore_eos; /* tokens that end a text are never picked                               */
    int mid_text;   /* the text goes on within what the prompt ends with: its first character may
                       be half in the prompt, and no space is dropped at its beginning       */
    int32_t max_tokens; /* of a choice; below 0: until the context is full. 0: only the prompt is
                           read                                                                 */
    int32_t n;          /* choices; 0: 1                                                        */
    int32_t logprobs;   /* TOKEN events have a logprob and so many top ones, minus 1; 0: none.
                           1 .. GW_TOP_LOGPROBS + 1                                             */
    int32_t prompt_logprobs; /* the same of ROW events; their rows of the prompt are read anew  */
    int no_cache;     /* shares no pages with requests before or after it                     */
    uint64_t salt;    /* requests share pages only with those of the same salt                */
    uint64_t client;  /* fairness: clients take turns, requests of one come in order          */
    int32_t priority; /* larger first; a level is worth 10 seconds of waiting                 */
    gw_event_fn event;
    void *user;
    /* With prompt_logprobs: ROW events come of prompt tokens from this index on, and what is in
     * front of them may be shared as without; 0: of all. */
    int32_t prompt_logprobs_from;
    const struct gw_seen_rows *seen; /* [n_seen] pictures of the prompt (godwit_see.h) */
    size_t n_seen;
} gw_request_options;

/* Queue a request. *out: a handle that the caller gives back by gw_request_free whenever it likes.
 * GW_E_CONTEXT: prompt and one token do not fit n_ctx, with both numbers; GW_E_BUSY: the queue is
 * full; GW_E_CANCELLED: gw_batch_drain was called; GW_E_ARGUMENT, GW_E_LIMIT: an option. On an
 * error there are no events. */
gw_status gw_batch_submit_sized(gw_batch *batch, const gw_request_options *options, size_t size,
                                gw_request **out);
static inline gw_status gw_batch_submit(gw_batch *batch, const gw_request_options *options,
                                        gw_request **out) {
    return gw_batch_submit_sized(batch, options, sizeof *options, out);
}
/* It has no rows from the next pass on, and ends with GW_FINISH_CANCELLED if it has not ended. */
void gw_request_cancel(gw_request *request);
/* on: it gets no rows until off, and is the first to be preempted: for a slow reader. */
void gw_request_hold(gw_request *request, int on);
/* The handle is no longer needed. A request that is not done goes on, and its events come. */
void gw_request_free(gw_request *request);

/* Run one step: rows of generated tokens, then some of a prompt where one waits. *work: requests
 * that could go on at once; 0: nothing to do until `wake`. An error is one of the device or of
 * memory, and all requests have ended with it. */
gw_status gw_batch_step(gw_batch *batch, size_t *work);
/* No more requests are taken. Those that are there go on; cancel them where they shall not. */
void gw_batch_drain(gw_batch *batch);

typedef struct gw_batch_stats {
    int32_t waiting, running, held; /* requests now: in the queue, choices with pages, on hold */
    int64_t waiting_tokens;         /* of prompts that wait                                  */
    int64_t pages, pages_used, pages_cached; /* all; held by running choices; only cached         */
    uint64_t steps, rows; /* decode passes and their rows                          */
    uint64_t prompt_passes, prompt_tokens; /* read                                               */
    uint64_t cached_tokens; /* of prompts, that were there                           */
    uint64_t generated_tokens, requests, cancelled, failed, refused; /* requests: that have ended */
    uint64_t preemptions, evictions; /* evictions: pages                                      */
    double decode_seconds, prompt_seconds;
    int32_t last_rows;                /* of the last decode pass                               */
    double prompt_rate;               /* tokens per second, of late                            */
    uint64_t drafted, draft_accepted; /* tokens                                             */
    uint64_t read_ahead;              /* of answers, tokens                                 */
    int64_t host_pages, host_pages_cached; /* places in main memory; those that have a page   */
    uint64_t host_bytes, host_saved, host_fetched; /* of all; pages copied there, and back    */
    uint64_t draft_rests; /* of a draft model that did not pay                                */
    int32_t host_cache_layers; /* whose caches lie in main memory, for their card             */
} gw_batch_stats;
void gw_batch_stats_get_sized(const gw_batch *batch, gw_batch_stats *out, size_t size);
static inline void gw_batch_get_stats(const gw_batch *batch, gw_batch_stats *out) {
    gw_batch_stats_get_sized(batch, out, sizeof *out);
}

/* ---- the machine ------------------------------------------------------------------------- */

typedef struct gw_device_info {
    char id[32];    /* "cpu", "ref": what --device takes              */
    char name[128]; /* "AMD EPYC 7B13, avx2"                          */
    char detail[256];
    uint64_t memory_bytes, free_bytes;
    int threads;
} gw_device_info;

size_t gw_devices(gw_device_info *rows, size_t capacity); /* returns how many there are */

typedef struct gw_roof {
    double read_gbps;  /* reading memory, all threads, GB/s (1e9)        */
    double int8_gops;  /* int8 multiply-adds x 2, best instruction       */
    double f32_gflops; /* fused multiply-adds x 2                        */
} gw_roof;

/* Measure what a device of gw_devices can do, the CPU (also: NULL) with `threads` (0: default);
 * takes about a second. What it cannot measure is 0. */
gw_status gw_measure_roof(const char *id, int threads, gw_roof *out);
/* The same of the device that holds the model. */
gw_status gw_model_measure_roof(const gw_model *model, gw_roof *out);
/* One reading of that memory, some 20 ms, in GB/s: short enough to stand between tokens, since the
 * speed of memory changes within a second. What is read, 512 MB that no cache holds, is kept until
 * the model is freed. 0 where a device has no such reading. GW_E_NOMEM, GW_E_ARGUMENT. */
gw_status gw_model_read_memory(const gw_model *model, double *gbps);

/* One matrix alone: y[n, rows] = x[n, cols] W^T, W made up in a format ("q4_0", "int4-g128"). */
typedef struct gw_product {
    const char *format;
    int64_t rows, cols;
} gw_product;

typedef struct gw_product_result {
    int32_t n;
    int is_float;      /* the weights: which peak it is about                 */
    double seconds;    /* of one product, the best pass                       */
    double bytes, ops; /* least memory traffic; multiply-adds x 2             */
    char kernel[48];
} gw_product_result;

/* Time it on a device of gw_devices for each n [count], 1..GW_CHUNK_MAX, in passes over more copies
 * than caches hold: up to GW_DECODE_MAX rows as generated tokens, more as a prompt. */
gw_status gw_time_products(const char *id, int threads, const gw_product *product, const int32_t *n,
                           size_t count, gw_product_result *results, gw_roof *roof);

/* Try every kernel of every device of this build on small inputs, and hold its bits against those
 * of the scalar CPU; takes some seconds. One report per kernel, and one with kernel "" for a device
 * that does not work; return non-zero to stop with GW_E_CANCELLED. threads: of the cpu, 0: default.
 */
typedef struct gw_kernel_check {
    const char *device, *kernel; /* "cpu", "cpu.linear.q4_0.vnni" */
    int cases, failed;           /* cases 0: none of them is for this kernel */
    char fault[256];             /* of the last that failed */
} gw_kernel_check;
typedef int (*gw_check_fn)(void *user, const gw_kernel_check *check);
gw_status gw_self_test(int threads, gw_check_fn report, void *user);

#ifdef __cplusplus
}
#endif

#include "godwit_beam.h"
#include "godwit_see.h"
#include "godwit_encoder.h"
#include "godwit_forecast.h"
#include "godwit_quantize.h"
#include "godwit_writer.h"

#endif
