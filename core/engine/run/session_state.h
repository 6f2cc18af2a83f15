/* core/engine/run/session_state.h - what a gw_session holds; for the session_*.c files and gauge.c.
 */
#ifndef GW_ENGINE_SESSION_STATE_H
#define GW_ENGINE_SESSION_STATE_H

#include "core/engine/run/kv.h"
#include "core/engine/run/model_state.h"
#include "core/engine/run/seeing.h"
#include "core/engine/run/state.h"
#include "core/engine/run/tables.h"
#include "core/tensor/sample.h"
#include "core/model/build.h"

/* Rows of a prompt whose logits are computed in one pass. */
enum { GW_HEAD_TILE = 32, GW_DECODE_PLANS = 9, GW_PROMPT_PLANS = 2 };

/* Of how many sequences a session computes rows (session_rows.h); {0}: of its own one. */
typedef struct gw_sharing {
    int32_t slots;
    int64_t pages;         /* of the cache                          */
    int widest;            /* rows of the widest decode plan needed */
    int sources;           /* source texts are mapped to slots (gw_rows_map_source) */
    int32_t state_entries; /* of recurrent blocks, for each sequence; 0: GW_STATE_ENTRIES */
} gw_sharing;

/* A frozen plan with its graph and, for profiling, what its nodes moved and computed. */
typedef struct gw_pass {
    gw_graph graph;
    gw_plan *plan;
    double *bytes, *ops; /* [nodes] since profiling was turned on             */
    size_t *row;         /* [nodes] line of gw_session_kernel_times it adds to */
} gw_pass;

/* session_hidden.h */
enum { GW_TAPS = 8 };
typedef gw_status (*gw_hidden_fn)(void *user, gw_session *s, int32_t pos, int32_t n);
typedef int (*gw_hidden_source_fn)(void *user, int32_t pos, int32_t n, float *rows);
typedef struct gw_hidden {
    struct gw_buffer *buffer; /* NULL: nobody asks */
    gw_tensor on;
    gw_pass *pass[2]; /* for the rows of decode, up to `widest`, and for those of prompts */
    int widest;
    gw_hidden_fn watch;
    void *watch_user;
    gw_hidden_source_fn source;
    void *source_user;
    float *rows; /* of the pass that is about to run */
    int marked;  /* its rows are a block's */
    float *mark_rows;                        /* [GW_DECODE_MAX] such rows           */
    struct gw_buffer *marks[GW_MAX_DEVICES]; /* the same on devices that copy them */
    /* Taps in place of the one state before the head: streams before some layers. */
    int n_taps;
    int32_t tap_layer[GW_TAPS];
    struct gw_buffer *tap_buffer[GW_TAPS];
    gw_tensor tap_on[GW_TAPS];
    gw_tensor joined; /* [rows, n_taps*d], of several on one device; buf NULL: none */
    float *read;      /* [rows, d], or of joined taps all of that */
    /* Its own state, after row own_row of the pass before, that waits on the device. */
    int32_t own_row;
    struct gw_buffer *zeros[GW_MAX_DEVICES]; /* of what a row takes before that */
    int cleared;                             /* these are there already         */
} gw_hidden;

typedef struct gw_layer_range {
    int first, end; /* {0, 0}: the embedding alone */
} gw_layer_range;

/* session_fetch.c: layers and experts in main memory whose prompts a card computes. */
typedef struct gw_fetch {
    int device;      /* 0: nothing is fetched */
    gw_where *where; /* of every block, while its weights are on the card                      */
    int *pass;       /* [stages] index of the pass with them; -1: none                         */
    gw_layer_range *layers;   /* [stages]                                                         */
    struct gw_buffer **cells; /* [n_cells] caches of the layers of a stage, in turn             */
    int n_cells;
    gw_tensor *k, *v; /* [devices, n_layers] as gw_kv has them, and those in cells              */
    unsigned char *experts; /* [most experts of a layer] that the rows of the pass have chosen */
    const gw_tensor *route; /* by which; NULL: not known                                      */
    int stream;             /* the device that has it */
} gw_fetch;

/* What recurrent blocks knew before position pos of the timeline (session_return.c). */
enum { GW_KEPT_STATES = 3, GW_KEPT_LEAST = 64 };
typedef struct gw_kept_states {
    int32_t pos; /* 0: free */
    uint64_t used;
    void *state; /* of all blocks, one behind the other; NULL: never was one */
} gw_kept_states;

/* What prompts' plans read of pictures (seeing.h); parts 0: the model has no eyes. */
typedef struct gw_seeing {
    int parts; /* of a row: one, and one for each of the layers that get some */
    struct gw_buffer *gate[GW_MAX_DEVICES], **seen; /* [devices * parts] */
    gw_tensor gate_on[GW_MAX_DEVICES], *seen_on;
    float *rows;        /* [most_rows, d_model] to be written */
    gw_glance *glances; /* [most_rows] */
    int32_t token;      /* that tables by token have in rows of pictures; -1: their own */
    int32_t shown;      /* leading rows of the buffers that may not be text's */
} gw_seeing;

struct gw_session {
    gw_model *model;
    const volatile int *cancel;
    int32_t n_ctx, chunk, pos;
    int32_t picture_rows; /* of a pass over rows of a picture that see one another; 0: none    */
    int32_t most_rows;    /* of a prompt's pass: the chunk's, or that                          */
    int sees;             /* the rows in the step block are such                               */
    int32_t n_source;     /* tokens of the source text; 0: none was read                   */
    int32_t *tokens;      /* [n_ctx] of the timeline, pos of them                          */
    unsigned char *generated; /* [n_ctx] 1: it was computed as a generated token, not as a prompt */
    int32_t prompted;         /* leading tokens computed as a prompt, on nothing but a prompt  */
    double row_seconds;       /* of the last chunk's slowest stage; 0: not known             */
    gw_where *where; /* of every block: the model's, or home for a cache it has no kernel for */
    int head_device; /* where the logits are */
    int on_cards;    /* cards compute all layers */
    gw_kv kv;
    int hosted_caches; /* of layers whose caches lie in main memory for their card */
    gw_states states;
    gw_kept_states kept_states[GW_KEPT_STATES];
    uint64_t kept_uses, repeated; /* repeated: tokens that have run again */
    /* Values that start gives to the layers. */
    struct gw_buffer *kept[GW_MAX_DEVICES][GW_SPEC_VALUES];
    gw_tensor kept_value[GW_MAX_DEVICES][GW_SPEC_VALUES];
    struct gw_buffer *stream[GW_MAX_DEVICES], *logits;
    struct gw_buffer *source_pages[GW_MAX_DEVICES]; /* NULL: the caches' own table serves */
    gw_tensor source_table[GW_MAX_DEVICES];         /* as gw_kv.page_table[0] */
    gw_tables tables;
    gw_tensor stream_on[GW_MAX_DEVICES];
    gw_sharing sharing;
    gw_pass *passes; /* n_widths of decode, prompt head, stages of the prompt body          */
    int n_widths, n_passes, first_prompt_pass, n_prompt_passes; /* stages: [first, n) of them */
    int short_prompt_pass[GW_PROMPT_PLANS]; /* the first stage in fewer rows; 0: there is none */
    int picture_pass; /* the first stage over rows of pictures; 0: there is none */
    gw_pass *source;  /* reads a source text; NULL: the model takes none */
    gw_pass *next;    /* the one that draws too (session_next.c); NULL: none */
    gw_pass *draw;    /* draws behind the rows of a decode pass; NULL: none  */
    size_t n_rows;    /* lines of gw_session_kernel_times */
    int profiling;
    float *logits_host; /* [logit_rows, v]: the device's memory, or our copy of it */
    float *logits_copy;
    size_t logit_rows, first_logit, n_logits; /* rows of logits_host; those callers may read */
    gw_step step;
    /* session_next.c. sampled: the ids, and the choice behind them, on head_device; of a group on
     * each of its cards. */
    struct gw_buffer *sampled[GW_MAX_DEVICES];
    gw_tensor ids[GW_MAX_DEVICES], choice[GW_MAX_DEVICES]; /* n_dim 0: not there */
    gw_tensor ids_of_rows, choice_of_rows;
    gw_choice rule; /* as the device has it, of the first n_ruled rows */
    int32_t n_ruled;
    gw_choice rules[GW_PARALLEL_MAX]; /* or of the first n_rules rows, each its own */
    int32_t n_rules;
    struct gw_post *post[2]; /* NULL: ids are read where they are                          */
    int turn;                /* of the posts                                               */
    int ahead;               /* the step of ahead_token at position pos was started        */
    int32_t ahead_token;
    gw_hidden hidden;
    gw_fetch fetch;
    gw_seeing seeing;
    gw_views views; /* pictures in the timeline */
    gw_adapting adapting;
};

/* session.c: the body of gw_session_new; options of this version of the library, or NULL. */
gw_status gw_session_make(gw_model *model, const gw_session_options *options,
                          const gw_sharing *sharing, gw_session **out);

typedef enum gw_pass_parts {
    GW_PASS_WHOLE,
    GW_PASS_BODY,
    GW_PASS_HEAD,
    GW_PASS_HIDDEN,  /* what stands in the head before its first matrix, of rows that have run */
    GW_PASS_PICTURE, /* the body over rows of pictures that see one another */
    GW_PASS_FETCHED, /* the body where weights are fetched (gw_fetch) */
    GW_PASS_NEXT,    /* whole, and the draw */
    GW_PASS_DRAW     /* the draw alone, out of the logits that are there */
} gw_pass_parts;

/* session_cache.c: kv and states. GW_E_NOMEM says what is needed and what there is. */
gw_status gw_session_make_cache(gw_session *s, gw_kv_pair fmt);

/* session_passes.c. All passes, ready to run. */
gw_status gw_session_build(gw_session *s, const gw_session_options *o);
/* The same again, after something that passes read or write has come. Nothing is at work. */
gw_status gw_session_rebuild(gw_session *s);
gw_status gw_pass_build(gw_session *s, gw_pass *p, int rows, gw_order order, gw_pass_parts parts,
                        gw_layer_range layers);
/* Its graph alone. */
gw_status gw_pass_draw(gw_session *s, gw_pass *p, int rows, gw_order order, gw_pass_parts parts,
                       gw_layer_range layers);
void gw_pass_free(gw_pass *p);
gw_status gw_pass_run(gw_session *s, gw_pass *p, gw_status (*go)(gw_plan *, const gw_step *));
/* Again where a pass was added: it may have new lines of gw_session_kernel_times. */
void gw_session_number_rows(gw_session *s);
/* How many widths of decode passes there are up to one of `widest` rows; rows of the widest. */
int gw_session_widths(int widest);
int gw_session_widest(const gw_session *s);
gw_pass *gw_session_decode_pass(gw_session *s, int32_t n); /* the narrowest for n rows */
gw_pass *gw_session_head_pass(gw_session *s);
/* Of a prompt of which `left` tokens are left: rows of the next chunk. */
int32_t gw_prompt_rows(const gw_session *s, size_t left);
/* Is a chunk to begin before the one in front of it has ended? */
int gw_prompt_overlaps(const gw_session *s);
/* A stage's pass for the rows in the step block: the narrowest. */
gw_pass *gw_prompt_pass(gw_session *s, int stage);
/* All stages of the prompt rows in the step block. With overlaps, and behind an error, some may be
 * at work still. */
gw_status gw_prompt_run(gw_session *s, int overlaps);

/* session.c. Logits of rows [at, at + n) of the chunk that just ran, n at most GW_HEAD_TILE. */
gw_status gw_session_run_head(gw_session *s, int32_t at, int32_t n);
gw_status gw_session_check_tokens(const gw_session *s, const int32_t *tokens, size_t n);
void gw_session_set_step(gw_session *s, const int32_t *tokens, int32_t n, int32_t pos);
/* Of a prompt's n tokens at pos the rows of its next pass, at most `most`: in the step block, with
 * what they see. Returns how many in *rows. */
gw_status gw_session_set_prompt(gw_session *s, const int32_t *tokens, int32_t n, int32_t pos,
                                int32_t most, int32_t *rows);
gw_status gw_session_check_cancel(const gw_session *s);

/* session_fetch.c. Plans for the stages [n] of a prompt that have weights in main memory, behind
 * the other passes: none where there is no card for them, it is not asked for or there is no room,
 * which the model's fault then says. */
void gw_fetch_new(gw_session *s, int n);
void gw_fetch_free(gw_session *s);
/* Run stage number `stage` of the prompt's chunk in the step block where that is faster. ahead: it
 * may be at work still when this returns. *fetched (may be NULL): on the card. */
gw_status gw_fetch_run(gw_session *s, int stage, int ahead, int *fetched);
/* Behind the last stage: the stream is where the passes after it expect it. */
gw_status gw_fetch_end(gw_session *s);

/* session_return.c: the states of recurrent blocks, and the caches of windows, as they were at the
 * session's position, before rows are appended there; nothing to do unless it was rewound far. */
gw_status gw_session_return(gw_session *s);
/* Keep them as they are at the session's position, for a later return; nothing to do where there
 * are none, or no memory. Forget those behind position pos; free all. */
gw_status gw_session_keep_states(gw_session *s);
void gw_session_forget_states(gw_session *s, int32_t pos);
void gw_session_free_states(gw_session *s);

/* The rows of the decode pass that has run: their logits, and the session holds their tokens. */
gw_status gw_session_take_rows(gw_session *s);
/* The same without logits. */
void gw_session_keep_rows(gw_session *s);

/* session_next.c. Can the device of the logits draw? Then what that takes; freed by _free. */
gw_status gw_next_new(gw_session *s);
/* A rule for each row of a decode pass that has not begun. */
gw_status gw_session_set_rules(gw_session *s, const gw_choice *rules, int32_t n);
/* Behind the rows of a pass that has begun, by their rules: ids, less than 0 where none can be
 * drawn. Ends when both have. gw_session_draw_rows has made room. */
gw_status gw_session_draw_ids(gw_session *s, int32_t *ids);
void gw_next_free(gw_session *s);
/* One row of a sequence, and the token that the device draws behind it (less than 0: it cannot);
 * with `more` the step of that one at pos + 1 begins, which is for nothing if another row follows.
 * No logits are left to be read. Not for models with recurrent blocks. */
struct gw_row; /* session_rows.h */
gw_status gw_session_step_row(gw_session *s, const gw_choice *rule, const struct gw_row *row,
                              int more, int32_t *id);

/* session_blame.c: logits of the last of these tokens were not finite. Runs tokens [n] from
 * position pos again, layer by layer, and returns GW_E_NUMERIC with a message that names the first
 * layer whose output is not finite. Overwrites the cache with the same values. */
gw_status gw_session_blame(gw_session *s, const int32_t *tokens, int32_t n, int32_t pos,
                           gw_order order);

#endif
