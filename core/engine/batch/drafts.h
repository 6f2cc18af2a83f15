/* core/engine/batch/drafts.h - drafts of many sequences: tokens that may follow are computed in the
 * rows that a pass has to spare, and those stay that the sequence's own sampler picks. No text
 * depends on them, only how many passes it takes.
 *
 * Two sources. Lookup: what followed the longest earlier copy of a sequence's end in itself, or
 * what most copies there and in earlier answers vote for. A draft model: a session of as many slots
 * and pages as the target's, whose page table has the same entries, so that a page holds the same
 * positions in both. Prompts are prefilled in both models, so that shared pages are valid in both;
 * generated tokens that the draft model lacks are read by it when it drafts.
 *
 * Lengths. Every draft of a pass has a chance to stay, from what stayed before; they are taken in
 * falling order of it, as many as promise the most tokens per second by measured times of passes of
 * each width (as draft_length.h does for one text).
 */
#ifndef GW_ENGINE_BATCH_DRAFTS_H
#define GW_ENGINE_BATCH_DRAFTS_H

#include "core/engine/drafting/draft_chain.h"
#include "core/engine/drafting/draft_length.h"
#include "core/engine/drafting/draft_lookup.h"
#include "core/engine/run/session_rows.h"

struct gw_batch;
struct gw_seq;

typedef enum gw_draft_source {
    GW_DRAFTS_MODEL,
    GW_DRAFTS_LOOKUP,
    GW_DRAFTS_SOURCES
} gw_draft_source;

/* Of one sequence. */
typedef struct gw_seq_drafts {
    gw_lookup *lookup; /* NULL: none; its first `told` tokens are known there */
    int32_t told;
    int32_t read; /* positions whose keys the draft model's cache holds */
    int32_t n;    /* drafts of this pass: rows behind that of the last token */
    int32_t block; /* rows of the block that says them, for which there are pages */
    int32_t token[GW_DRAFT_MAX];
    gw_draft_source source;
    double tried, kept; /* of late */
} gw_seq_drafts;

/* Hidden states for a draft model that takes them (drafts_states.c). */
typedef struct gw_draft_states {
    int32_t width;     /* of what a row takes; 0: it takes none                          */
    int32_t own_at;    /* where the draft model's own state, or the mark, begins in that  */
    float *rows;       /* of each slot those of its last positions: n from `first` on    */
    int32_t *first, *n; /* [parallel] */
    float *own;          /* [parallel, width] of the draft model, behind its last row      */
    float *pass, *given; /* [rows of a pass, width] */
} gw_draft_states;

/* Whether the draft model pays (drafts_rest.c). Seconds. */
typedef struct gw_drafts_rest {
    int on, ever;   /* it follows no text but the scout; it once did     */
    int32_t scout;  /* a slot; -1: none                                  */
    int32_t tried;  /* passes in which there were drafts, since it began */
    uint64_t passes; /* and in all                                       */
    double trial;   /* lost before that                                  */
    double lost, elapsed, plain; /* so far; of all passes; of a pass without drafts */
    double spent;         /* by the draft model, and its states, for the pass to come */
    int32_t drafted, kept; /* of that pass */
    uint8_t *page;        /* [pages] 1: the draft model has read what it holds */
} gw_drafts_rest;

/* Of all. */
typedef struct gw_drafts {
    int lookup;                       /* GW_LOOKUP_..., or 0              */
    gw_lookup *pool;                  /* answers of late; or NULL         */
    gw_session *model;                /* NULL: no draft model             */
    gw_draft_block block;             /* rows 0: it drafts token by token */
    gw_chain *chain;                  /* its tokens depend on one another; or NULL */
    gw_chain_row *links;              /* [parallel] rows of a step of the chain    */
    float *outs;                      /* [rows of its pass, width] what it said them by */
    int32_t vocab;                    /* logits of it that are tokens     */
    float *spread; /* [the target's] of one with a vocabulary of its own; or NULL */
    gw_length length;                 /* mode and length; no times        */
    uint64_t passes;                  /* of decode, so far                */
    gw_timing width[GW_PARALLEL_MAX]; /* seconds of a decode pass of 1.. rows      */
    gw_timing step; /* of the draft model, one token of all that draft, or their blocks */
    gw_draft_record record[GW_DRAFTS_SOURCES];
    gw_row *rows;                   /* [GW_CHUNK_MAX] of the draft model's next pass */
    gw_choice *rules;               /* [GW_PARALLEL_MAX]                             */
    int32_t *ids;                   /* [GW_PARALLEL_MAX]                             */
    struct gw_seq **of;             /* [parallel] who drafts by the model            */
    int32_t (*found)[GW_DRAFT_MAX]; /* [parallel] what lookup has found, by place in the order */
    int32_t *n_found;               /* [parallel]                                              */
    gw_draft_states states;
    gw_drafts_rest rest;
} gw_drafts;

/* For the batch's options, whose session is there. GW_E_UNSUPPORTED: a draft model with another
 * vocabulary, or with recurrent blocks. */
gw_status gw_drafts_open(struct gw_batch *b);
void gw_drafts_close(struct gw_batch *b);
/* How many states of recurrent blocks a batch with these options keeps of a sequence: what its
 * drafts may have to go back, and the two between which every row goes. */
gw_status gw_drafts_state_entries(const gw_batch_options *o, int32_t *out);
/* Does anything draft? */
int gw_drafts_on(const struct gw_batch *b);
/* The sequence's tokens are there. */
gw_status gw_seq_drafts_open(const struct gw_batch *b, struct gw_seq *s);
void gw_seq_drafts_close(struct gw_seq *s);
/* The sequence's answer has ended: others may go on as it does. */
void gw_seq_drafts_keep(struct gw_batch *b, const struct gw_seq *s);

/* The draft model reads rows of prompts that the target reads. */
gw_status gw_drafts_read(struct gw_batch *b, const gw_row *rows, int32_t n);
/* Drafts of b->order [n] into `room` rows that are free: their numbers, and ends of their rows. */
gw_status gw_drafts_propose(struct gw_batch *b, int32_t n, int32_t room);
/* drafts_lengths.c. What a sequence may have: limits of the context and of its answer. */
int32_t gw_drafts_most(const struct gw_batch *b, const struct gw_seq *s, int32_t room);
/* How many each of b->order [n] has, at most most [n] and together room, in a pass that has `base`
 * rows without them. */
void gw_drafts_choose(struct gw_batch *b, int32_t n, const int32_t *most, int32_t base,
                      int32_t room);
/* Of a sequence's n drafts so many stayed. */
void gw_drafts_learn(struct gw_batch *b, struct gw_seq *s, int32_t kept);
/* A decode pass of so many rows took so long. */
void gw_drafts_time(struct gw_batch *b, int32_t rows, double seconds);
/* What a decode pass of so many rows takes, of late: between measured widths a line, beyond them
 * a little more for each row; 0: nothing is known. */
double gw_drafts_pass_seconds(const gw_drafts *d, int32_t rows);
/* The sequence has only n tokens any more, or other ones from there on. */
void gw_seq_drafts_cut(struct gw_seq *s, int32_t n);

/* drafts_rest.c */
gw_status gw_drafts_rest_open(struct gw_batch *b);
void gw_drafts_rest_close(struct gw_batch *b);
/* Does the draft model follow the text of this slot? */
int gw_drafts_follow(const struct gw_batch *b, int32_t slot);
/* Can no text have drafts? */
int gw_drafts_idle(const struct gw_batch *b);
/* Those of a pass's rows [n] that the draft model follows: how many, and *at the first one. */
int32_t gw_drafts_rows(const struct gw_batch *b, const gw_row *rows, int32_t n, int32_t *at);
/* A page of the cache gets a name: has the draft model read it? One comes from main memory. Of
 * pages [n] of a text, how many it has read from the beginning. */
void gw_drafts_page(struct gw_batch *b, int32_t page, int read);
void gw_drafts_page_fetched(struct gw_batch *b, int32_t page);
int32_t gw_drafts_pages_read(const struct gw_batch *b, const int32_t *pages, int32_t n);
/* A sequence begins that could be the scout; one has lost its slot. */
void gw_drafts_scout(struct gw_batch *b, const struct gw_seq *s);
void gw_drafts_scout_gone(struct gw_batch *b, int32_t slot);
/* A decode pass of so many rows, of so many texts, took so long. */
void gw_drafts_settle(struct gw_batch *b, int32_t rows, int32_t texts, double seconds);

/* drafts_states.c. All do nothing for a draft model that takes no hidden states. Its session and
 * the target's are there. */
gw_status gw_draft_states_open(struct gw_batch *b);
void gw_draft_states_close(struct gw_batch *b);
/* Another sequence has the slot. */
void gw_draft_states_begin(struct gw_batch *b, int32_t slot);
/* The target's rows that have just run leave theirs. */
gw_status gw_draft_states_take(struct gw_batch *b, const gw_row *rows, int32_t n);
/* Of rows [n], those of the pass from `at` on; the draft model is about to read them too. */
gw_status gw_draft_states_read(struct gw_batch *b, const gw_row *rows, int32_t at, int32_t n);
/* Are the states there that the draft model needs to go on with the sequence? */
int gw_draft_states_has(const struct gw_batch *b, const struct gw_seq *s);
/* The draft model is about to run rows of text, or of its own drafts; then these have run. Rows
 * that see another one (gw_row.last) are a block's. */
gw_status gw_draft_states_give(struct gw_batch *b, const gw_row *rows, int32_t n, int drafted);
gw_status gw_draft_states_own(struct gw_batch *b, const gw_row *rows, int32_t n);

#endif
