/* core/engine/batch/batch_state.h - what a gw_batch holds; for core/engine/batch only.
 *
 *   batch.c     life, the queue from other threads, statistics
 *   schedule.c  who is admitted, who has pages, who is preempted
 *   step.c      rows of a pass, for whom, and what follows from its logits
 *   deliver.c   tokens to text to events; how a choice and a request end
 *   host.c      pages in main memory that the cache has let go
 *   snapshots.c what recurrent blocks know at the ends of pages
 *   drafts.c    tokens that may follow, in rows that a pass has to spare; drafts_lengths.c: how
 *               many, drafts_states.c: hidden states, drafts_rest.c: whether they pay
 *   pictures.c  pages of prompts with pictures
 *   ahead.c     answers read as prompts while there is nothing else to do
 *   adapters.c  requests with adapters
 *
 * A sequence is one choice of a request: its tokens, of which the first pos are in the cache. Rows
 * of its prompt are computed in prefill order, all others in decode order, whether for the first
 * time or again. So all that there is to a preemption is to forget pages and set pos back.
 */
#ifndef GW_ENGINE_BATCH_STATE_H
#define GW_ENGINE_BATCH_STATE_H

#include <stdatomic.h>

#include "core/base/clock.h"
#include "core/base/os_threads.h"
#include "core/base/status.h"
#include "core/engine/batch/drafts.h"
#include "core/engine/batch/host.h"
#include "core/engine/batch/pages.h"
#include "core/engine/batch/snapshots.h"
#include "core/engine/run/session_rows.h"
#include "core/engine/writing/writer.h"

typedef enum gw_seq_state {
    GW_SEQ_WAITING, /* has neither slot nor pages */
    GW_SEQ_RUNNING,
    GW_SEQ_ENDED
} gw_seq_state;

typedef struct gw_seq {
    struct gw_request *r;
    struct gw_seq *next; /* in the queue */
    gw_writer *writer;
    gw_seq_state state;
    int32_t choice;
    int32_t *tokens; /* [room]: prompt and text, n of them; the first pos are in the cache      */
    int32_t n, pos, room;
    int32_t *pages; /* of positions 0.., n_pages of them */
    int32_t n_pages, slot;
    int32_t n_named;   /* leading pages that others may find, and the name of the last of them */
    gw_page_name name; /* none yet: that of the root                                           */
    int32_t reach;     /* cached prefix when it is admitted, in pages, fetched ones included   */
    int passed_up;     /* there are more in main memory, not worth a copy                      */
    int32_t emitted;   /* tokens handed out                                                    */
    int32_t top_rows;  /* with prompt_logprobs: the last prompt token of which a row is not
                          wanted any more                                                      */
    int32_t known;     /* first position that has a recurrent state; those up to pos have one  */
    int preempted;     /* how often */
    int32_t since;     /* tokens made since the last time */
    uint64_t admitted; /* in this order: when it was, for the first time; 0: never */
    uint64_t served;   /* number of the decode pass that had rows of it last       */
    int32_t end;       /* of the positions that it has rows of in the pass that is put together */
    gw_seq_drafts drafts;
} gw_seq;

struct gw_request {
    struct gw_batch *batch;
    struct gw_request *next; /* on its way into the queue */
    atomic_int handles;      /* 1 of the caller, 1 of the batch */
    atomic_int cancelled, held;
    gw_event_fn event;
    void *user;
    gw_seq *seq; /* [n] */
    int32_t n, open, n_prompt, max_tokens, prompt_top;
    int want_prompt, no_cache, special, admitted;
    gw_page_name root;
    uint64_t client;
    uint64_t passed_over; /* in this round of admission, with all its choices */
    int32_t priority;
    int32_t n_cached, n_read, n_generated;
    gw_finish finish;
    double submitted, queued_seconds, prompt_seconds;
    gw_lora_row lora;
    gw_views views;    /* pictures of the prompt                                 */
    int32_t *pictures; /* [views.n] their names (gw_seq_page); NULL: not named yet */
};

/* A picture by what it holds, so that pages are shared by that. */
typedef struct gw_picture_key {
    uint8_t digest[GW_PICTURE_DIGEST];
    int64_t n_patches;
    int32_t ahead; /* which of its rows stands at position 0, counted back */
    int32_t rows;  /* of the run, where they see one another               */
} gw_picture_key;
/* Names of the pictures that were read last. A name is never given twice: a picture that is not
 * among them any more gets another one, and pages that have its first are not found again. */
enum { GW_PICTURE_KEYS = 4096 };
typedef struct gw_picture_keys {
    gw_picture_key *at; /* [n] */
    int32_t *name;      /* [n] */
    uint64_t *used;     /* [n] when, counted in names that were given */
    int32_t n, room, next;
    uint64_t asked;
} gw_picture_keys;

/* Adapters with their scales, and the name in front of the first page of texts that have them. */
typedef struct gw_lora_root {
    gw_page_name salted, name; /* salted: the root of the same salt without adapters */
    gw_lora_row row;
} gw_lora_root;
typedef struct gw_lora_roots {
    gw_lora_root *at;
    int32_t n, room;
} gw_lora_roots;

/* Fairness (start-time fair queueing, Goyal et al. 1996): of each client that was served of late,
 * the virtual time at which its next request may start. */
typedef struct gw_client {
    uint64_t id;
    double start;
} gw_client;
enum { GW_CLIENTS = 256 };

/* Texts that have ended, the latest last: the first n tokens of each, whole pages of them, are to
 * be read as a prompt. */
enum { GW_AHEAD = 16 };
typedef struct gw_ahead_text {
    int32_t *tokens;
    int32_t n;
    gw_page_name root;
    gw_lora_row lora;
} gw_ahead_text;
typedef struct gw_ahead {
    gw_ahead_text at[GW_AHEAD];
    int32_t n;
    int32_t *pages; /* [n_ctx / GW_PAGE] of the text that is being read */
} gw_ahead;

struct gw_batch {
    gw_model *model;
    gw_session *session;
    gw_pages *pages;
    int32_t n_ctx, chunk, parallel, widest;
    int whole; /* pages of one prompt never serve another */
    gw_batch_options o;
    /* From other threads. */
    _Atomic(struct gw_request *) inbox;
    atomic_int queued; /* requests that were submitted and have not been admitted */
    atomic_llong queued_tokens;
    atomic_int draining, dead; /* dead: the status that it died of */
    atomic_ullong refused;
    pthread_mutex_t waiting; /* gw_batch_wait; held for moments only */
    pthread_cond_t woken;
    /* The thread that steps. */
    gw_seq *first, *last; /* the queue */
    gw_seq **running;     /* [parallel], in the order of admission */
    int32_t n_running;
    gw_seq **slot; /* [parallel]; NULL: free */
    gw_client clients[GW_CLIENTS];
    int n_clients;
    double virtual_time;
    uint64_t n_admitted, n_passes, n_rounds, random;
    gw_row *rows;                     /* [GW_CHUNK_MAX] of the pass that is put together */
    gw_seq **of_row;                  /* [GW_CHUNK_MAX] */
    gw_choice rules[GW_PARALLEL_MAX]; /* of rows of a decode pass that a device draws behind */
    int32_t ids[GW_PARALLEL_MAX], drawn[GW_PARALLEL_MAX]; /* drawn: -1: not by the device */
    gw_logprob *top;                                      /* [GW_TOP_LOGPROBS] of a prompt's row */
    gw_seq **order;                                       /* [parallel] */
    void *copy_room;                                      /* [gw_rows_copy_bytes] */
    double last_decode;                                   /* seconds of the last pass of decode */
    double prompt_row_seconds; /* of a prompt's row, of late; 0: not known          */
    gw_drafts drafts;
    gw_host host;
    gw_snapshots snapshots;
    gw_ahead ahead;
    gw_picture_keys pictures;
    gw_lora_roots lora_roots;
    gw_batch_stats stats; /* as they grow */
    atomic_flag copying;
    gw_batch_stats shown; /* what others may copy, between the two of `copying` */
};

/* batch.c: what others may copy is what is known now. */
void gw_batch_show_stats(gw_batch *b);

/* schedule.c */
gw_status gw_batch_admit(gw_batch *b);
void gw_seq_enqueue(gw_batch *b, gw_seq *s, int first);
/* The sequence leaves: its pages are kept or free, its slot is free. */
void gw_seq_leave(gw_batch *b, gw_seq *s);
/* Pages for positions up to `end`, at most what it can get; others are preempted for it, or it is
 * itself. Returns up to which position there are pages. */
gw_status gw_seq_reserve(gw_batch *b, gw_seq *s, int32_t end, int32_t *got);
/* The same out of what is free: nobody loses anything for it. */
gw_status gw_seq_reserve_free(gw_batch *b, gw_seq *s, int32_t end, int32_t *got);
/* Entries of a slot from `first` on name these pages [n], for all that reads the cache. */
gw_status gw_batch_map(gw_batch *b, int32_t slot, int32_t first, const int32_t *pages, int32_t n);
/* Pages of the prompt that are whole now can be found by others. */
void gw_seq_publish(gw_batch *b, gw_seq *s);
void gw_seq_preempt(gw_batch *b, gw_seq *s);
/* Back to position pos, or, where recurrent blocks no longer know what was before it, to 0. */
void gw_seq_return(const gw_batch *b, gw_seq *s, int32_t pos);
/* Rows up to position `end` are computed. */
void gw_seq_advance(const gw_batch *b, gw_seq *s, int32_t end);
uint32_t gw_batch_random(gw_batch *b, uint32_t below);
/* Preemptions and evictions for no reason. */
void gw_batch_disturb(gw_batch *b);

/* pictures.c. Of page number `page` of its tokens what others know it by: those, but for rows of
 * pictures their names; in room [GW_PAGE] where there are some. */
const int32_t *gw_seq_page(const gw_seq *s, int32_t page, int32_t *room);
/* Names for the pictures of a request; once. */
gw_status gw_batch_name_pictures(gw_batch *b, struct gw_request *r);
/* Pictures of a prompt, taken over. */
gw_status gw_request_see(struct gw_request *r, const gw_batch *b, const gw_request_options *o);
void gw_request_unsee(struct gw_request *r);

/* adapters.c: the root of a request's pages. */
gw_page_name gw_batch_root(gw_batch *b, const struct gw_request *r);

/* step.c */
gw_status gw_batch_decode(gw_batch *b);
gw_status gw_batch_prefill(gw_batch *b);
/* Rows of a prompt that take about as long as a step should; at least a page of them. */
int32_t gw_batch_prompt_rows(const gw_batch *b);

/* ahead.c: the choice has ended, and its tokens are wanted for nothing else; read some more. */
void gw_ahead_add(gw_batch *b, gw_seq *s);
void gw_ahead_drop(gw_batch *b, int32_t at);
gw_status gw_ahead_step(gw_batch *b);
void gw_ahead_close(gw_batch *b);

/* deliver.c: a row behind which the next token is wanted. logits NULL: they are not finite. */
void gw_seq_pick(gw_batch *b, gw_seq *s, const float *logits);
void gw_seq_take(gw_batch *b, gw_seq *s, int32_t token); /* the one that a device has drawn */
/* Of the prompt's token number `index`, the logits of the row before it. */
void gw_seq_prompt_row(gw_batch *b, gw_seq *s, int32_t index, const float *logits);
void gw_request_progress(const gw_request *r);
void gw_seq_end(gw_batch *b, gw_seq *s, gw_finish finish, gw_status status, const char *error);
void gw_request_end(gw_batch *b, gw_request *r, gw_finish finish, gw_status status,
                    const char *error);
void gw_request_drop(gw_request *r); /* a handle less */

#endif
