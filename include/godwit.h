/* godwit.h - run transformer language models from C. The only public header.
 *
 *   gw_model    what is loaded: weights, tokenizer, plans. Read-only after gw_model_open; shared.
 *   gw_session  one token timeline: KV cache, logits. Not thread-safe; one session runs at a time
 *               per model (they share the model's thread team).
 *   gw_sampler  chooses tokens from logits. Not thread-safe.
 *
 * Every function that can fail returns gw_status and leaves its results unchanged on error;
 * gw_error_text() then says what is wrong, where and what to do (thread-local, valid until the
 * next failing call of the thread). The library prints nothing and never exits.
 * Objects are freed by their gw_..._free, which accepts NULL. Strings returned are owned by the
 * object they came from.
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
    const char *weights;     /* NULL: as stored; floats as "int8", "int4-g32", -g64, -g128, -g256 */
    const char *device;      /* NULL or "cpu"; "ref" runs in double precision          */
    int threads;             /* 0: the physical cores this process may use             */
    int blas;                /* float-weight prefill through OpenBLAS                  */
    int vocab_only;          /* tokenizer and metadata, no weights                     */
    gw_progress_fn progress; /* may be NULL                                            */
    void *progress_user;
    const volatile int *cancel; /* polled while loading; may be NULL                      */
} gw_model_options;

gw_status gw_model_open(const gw_model_options *options, gw_model **out);
void gw_model_free(gw_model *model);

typedef struct gw_model_info {
    const char *name;         /* general.name, or the folder's or file's name            */
    const char *architecture; /* "llama", "qwen2", ...                                   */
    const char *format;       /* weight format of most bytes: "Q4_0", "F16", ...         */
    const char *device;       /* "cpu avx512-vnni, 2 threads"                            */
    int32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, n_ctx_train;
    int32_t threads;
    uint64_t n_params;
    uint64_t file_bytes;         /* of all files of the model                            */
    uint64_t weight_bytes;       /* of all tensors, as stored                            */
    uint64_t decode_bytes;       /* weight bytes read for one generated token            */
    uint64_t kv_bytes_per_token; /* at f16                                               */
    double load_seconds;
} gw_model_info;

void gw_model_describe(const gw_model *model, gw_model_info *out);

/* ---- text -------------------------------------------------------------------------------- */

enum { GW_TEXT_BOS = 1, GW_TEXT_SPECIAL = 2 }; /* add bos as the model asks; parse special tokens */

/* ids: out, malloc'd [*n], freed by the caller with gw_free. Special-token spellings in text stay
 * text unless GW_TEXT_SPECIAL. Any bytes are accepted; what is not UTF-8 becomes byte tokens where
 * the vocabulary has them, else U+FFFD. */
gw_status gw_tokenize(const gw_model *model, const char *text, size_t bytes, int flags,
                      int32_t **ids, size_t *n);
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

/* ---- sessions ---------------------------------------------------------------------------- */

typedef struct gw_session gw_session;

enum { GW_DECODE_MAX = 16, GW_CHUNK_MAX = 2048 };

typedef struct gw_session_options {
    int32_t n_ctx;              /* 0: the model's training context                               */
    int32_t chunk;              /* prompt tokens per pass, 1..GW_CHUNK_MAX; 0: 512               */
    const char *kv_type;        /* NULL or "f16", "f32"                                          */
    const volatile int *cancel; /* polled per chunk and per token; may be NULL            */
} gw_session_options;

/* Reserves everything a timeline of n_ctx tokens needs; nothing is allocated afterwards. */
gw_status gw_session_new(gw_model *model, const gw_session_options *options, gw_session **out);
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
/* Forget everything from position pos on (0 <= pos <= current). O(1). */
gw_status gw_session_rewind(gw_session *s, int32_t pos);

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

typedef struct gw_sampler_options {
    uint64_t seed;
    float temperature; /* 0: greedy                                   */
    int32_t top_k;     /* 0: off                                      */
    float top_p;       /* 1: off                                      */
    float min_p;       /* 0: off                                      */
    float typical_p;   /* 1: off                                      */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    int32_t repeat_last_n; /* how far penalties look back; -1: all; 0: off     */
    /* "penalties;bias;top-k;typical;top-p;min-p;temperature" in any order; NULL: that one. */
    const char *order;
    const gw_logit_bias *bias;
    size_t n_bias;
} gw_sampler_options;

void gw_sampler_defaults(gw_sampler_options *out);
gw_status gw_sampler_new(const gw_model *model, const gw_sampler_options *options,
                         gw_sampler **out);
void gw_sampler_free(gw_sampler *sampler);
/* Choose the token at position pos from logits [n_vocab]. Same (seed, pos, logits, history), same
 * token. GW_E_NUMERIC when no logit is finite. Does not record the token. */
gw_status gw_sampler_pick(gw_sampler *sampler, const float *logits, int32_t pos, int32_t *token);
/* Tell the sampler that a token is now part of the text (prompt tokens too). */
gw_status gw_sampler_accept(gw_sampler *sampler, int32_t token);

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
    int lookup;            /* drafts what followed the longest earlier copy of the end   */
    const int32_t *corpus; /* searched besides the text itself; copied                   */
    size_t n_corpus;
    gw_accept accept;
    const char *length;         /* NULL or "cost", "heuristic", "fixed:1" .. "fixed:15"           */
    int greedy_draft;           /* the draft takes its most probable token whatever the sampler   */
    double assume;              /* 0: off; else accept drafts with this probability: to measure   */
    const char *kv_type;        /* of the draft's session: NULL or "f16", "f32"           */
    const volatile int *cancel; /* polled while the draft computes; may be NULL           */
} gw_drafter_options;

/* Takes everything that n_ctx tokens of the target need; nothing is allocated afterwards. With both
 * a model and lookup each pass uses the one that promises more. GW_E_UNSUPPORTED says in what the
 * vocabularies differ. The target session and the draft model must outlive the drafter. */
gw_status gw_drafter_new(gw_session *target, const gw_drafter_options *options, gw_drafter **out);
void gw_drafter_free(gw_drafter *drafter);

/* Tell the drafter tokens that are in the target's session, or will be before gw_drafter_next. */
gw_status gw_drafter_prompt(gw_drafter *drafter, const int32_t *tokens, size_t n);
/* Forget the text from position pos on; what the sampler knows is the caller's matter. */
gw_status gw_drafter_rewind(gw_drafter *drafter, int32_t pos);

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
    uint64_t tried_at[GW_DRAFT_MAX], accepted_at[GW_DRAFT_MAX]; /* by position in a draft; tried:
                                                   all before it were accepted             */
    double draft_seconds, verify_seconds, pick_seconds;
    double step_seconds;       /* a pass and a pick without speculation, measured or
                                  estimated; 0: unknown                                   */
    double draft_step_seconds; /* of the draft model, per token; 0: unknown               */
    double width_seconds[GW_DECODE_MAX]; /* of a pass of 1.. tokens; 0: not measured       */
} gw_draft_stats;

void gw_drafter_stats(const gw_drafter *drafter, gw_draft_stats *out);

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

/* Measure what this machine can do with `threads` (0: default); takes about a second. */
gw_status gw_measure_roof(int threads, gw_roof *out);

#ifdef __cplusplus
}
#endif

#endif
