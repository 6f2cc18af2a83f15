/* core/engine/drafting/draft_state.h - what a gw_drafter holds and what its files do for one
 * another; for draft.c, draft_text.c, draft_propose.c, draft_ahead.c and draft_verify.c only. */
#ifndef GW_ENGINE_DRAFT_STATE_H
#define GW_ENGINE_DRAFT_STATE_H

#include "core/engine/drafting/draft.h"
#include "core/engine/drafting/draft_chain.h"
#include "core/engine/drafting/draft_lookup.h"
#include "core/engine/sampling/sampler.h"

/* Where drafts come from. */
enum { GW_DRAFT_MODEL, GW_DRAFT_LOOKUP, GW_DRAFT_SOURCES };

/* Noise of rejection sampling: a draw is used once, so a position that is drafted again gets other
 * numbers. Sequences with the top bit set are never those of a text. */
enum {
    GW_DRAFT_STREAM_DRAFT,
    GW_DRAFT_STREAM_TEST,
    GW_DRAFT_STREAM_RESIDUAL,
    GW_DRAFT_STREAM_BONUS,
    GW_DRAFT_STREAMS
};

/* Drafts of one pass and where they came from. */
typedef struct gw_draft_proposal {
    int source;
    int n;     /* to be verified                                                          */
    int known; /* drafted, n or more: token n is the guess of what follows when all holds */
    int ready; /* of the n: known before this pass                                        */
    int32_t tokens[GW_DECODE_MAX];
    float trust[GW_DECODE_MAX]; /* the draft's own probability of each token; -1: not known */
    int behind;                 /* tokens that the draft model had to read in bulk         */
    double catch_up, seconds;
    double wasted; /* waiting for a step that was begun in vain */
} gw_draft_proposal;

/* Where the target is at work while the draft model goes on. */
typedef enum gw_draft_ahead {
    GW_DRAFT_IN_TURN, /* the draft model waits */
    GW_DRAFT_BESIDE_DEVICE,
    GW_DRAFT_BESIDE_HOST
} gw_draft_ahead;

/* Hidden states of the target that a draft model takes (draft_hidden.c). */
typedef struct gw_draft_hidden {
    int32_t width;       /* of what a row takes; 0: the draft model takes none              */
    int32_t own_at;      /* where its own state begins in that                              */
    int32_t first, n;    /* positions whose states and tokens wait, and may have to be read */
    int32_t room, chunk; /* of rows; most tokens that the draft model reads at once         */
    float *rows;         /* [room + 1, width]                                               */
    int32_t *token;      /* [room + 1]                                                      */
    int32_t *some;       /* [chunk]                                                         */
    float *own;          /* [width] of the draft model after its row at own_pos             */
    int32_t own_pos;
    gw_draft_block block; /* rows 0: the draft model drafts token by token */
    gw_chain *chain;      /* its tokens depend on one another; or NULL     */
    float *outs;          /* [GW_DECODE_MAX, the draft model's width] what it said them by */
    int32_t read; /* leading positions that the draft model has read with the target's states */
} gw_draft_hidden;

/* What a pass gave: tokens, and how many of them were drafts. */
typedef struct gw_draft_verdict {
    int n, accepted;
} gw_draft_verdict;

struct gw_drafter {
    gw_session *target, *draft; /* draft: NULL without a draft model */
    const gw_model *model;      /* the target's */
    gw_lookup *lookup;          /* or NULL      */
    int lookup_kind;            /* GW_LOOKUP_... */
    size_t n_corpus;            /* of the lookup, less a source text's tokens */
    gw_accept accept;
    int greedy_draft, past_end;
    double assume;
    int32_t n_vocab;
    int32_t draft_vocab; /* logits of the draft that are tokens of both */
    float *spread;       /* [n_vocab] those of a draft with a vocabulary of its own; or NULL */
    int32_t *text;       /* [n_ctx + 1] */
    int32_t n_text, n_ctx;
    int32_t shifted; /* tokens that a context shift dropped: noise goes on by place in the text */
    float *p;        /* [GW_DRAFT_MAX, n_vocab] draft probabilities; rejection with a model only */
    int weighed;     /* rows of p that belong to this pass; 0: each draft was certain of itself  */
    uint32_t round;
    /* What devices draw in place of the sampler in this round, if they do: the target's behind a
     * single row or behind many, the draft model's. */
    int draws_single, draws_rows, draws_drafts;
    gw_choice rule, draft_rule;
    int drawn; /* the pass gave picks, not logits */
    int32_t picks[GW_DECODE_MAX];
    gw_draft_ahead ahead;
    struct gw_draft_work { /* draft_ahead.c */
        gw_sampler *sampler;
        gw_draft_proposal *drafts; /* NULL: nothing is to be drafted ahead */
        int wanted, stepping;
        double start, step_start;
    } work;
    gw_draft_hidden hidden;
    int n_next;                  /* drafts of the next pass that are there already: */
    int32_t next[GW_DECODE_MAX]; /* the draft session holds all but the last of them */
    float next_trust[GW_DECODE_MAX];
    gw_length length;
    gw_draft_record records[GW_DRAFT_SOURCES];
    gw_draft_stats stats;
    gw_draft_watch_fn watch;
    void *watch_user;
};

/* Place in the whole text of the token i places after what is held. */
static inline int32_t gw_draft_place(const gw_drafter *d, int i) {
    return d->shifted + d->n_text + i;
}

static inline uint32_t gw_draft_stream(const gw_drafter *d, int which) {
    return 0x80000000u | ((d->round * GW_DRAFT_STREAMS + (uint32_t)which) & 0x7fffffffu);
}

/* draft_text.c */

int gw_draft_ends(const gw_drafter *d, int32_t token);

/* Tokens of the text from now on; there is room for them. */
void gw_draft_append(gw_drafter *d, const int32_t *tokens, int32_t n);
/* The draft model forgets what is not text, and the last token: drafting begins with feeding it. */
gw_status gw_draft_forget(gw_drafter *d);
/* Feed the draft model what it has not seen of the text. */
gw_status gw_draft_catch_up(gw_drafter *d);

/* draft_propose.c */

/* Chooses the source and the length, and drafts at most `limit` tokens into *out, which is zero. */
gw_status gw_draft_propose(gw_drafter *d, gw_sampler *sampler, int limit, gw_draft_proposal *out);
/* One more draft out of the draft model's last logits. GW_OK without one: none is possible. */
gw_status gw_draft_draw(gw_drafter *d, gw_sampler *sampler, gw_draft_proposal *out);
/* The same out of logits [the draft model's vocabulary]. */
gw_status gw_draft_draw_from(gw_drafter *d, gw_sampler *sampler, const float *logits,
                             gw_draft_proposal *out);
/* One more draft that a device has drawn, -1: none. Its probability is not known. */
void gw_draft_add_drawn(const gw_drafter *d, gw_sampler *sampler, int32_t id,
                        gw_draft_proposal *out);
/* The pass of the draft model that was begun has ended: its rows are there, and one more draft. */
gw_status gw_draft_take(gw_drafter *d, gw_sampler *sampler, gw_draft_proposal *out);
/* May the pass behind a single one that is about to begin have drafts? */
int gw_draft_expected(const gw_drafter *d);
/* The sampler counts what is known as text until gw_sampler_back. */
void gw_draft_count_known(gw_sampler *sampler, const gw_draft_proposal *drafts);
/* Of the last token that the session evaluated; NULL: none. */
const float *gw_draft_last_logits(const gw_session *s);

/* draft_hidden.c */

/* Where the draft model consists of layers that take hidden states: both sessions exist. */
gw_status gw_draft_hidden_open(gw_drafter *d);
void gw_draft_hidden_close(gw_drafter *d);

/* draft_block.c */

/* Where its blocks have a chain. */
gw_status gw_draft_chain_open(gw_drafter *d);
/* What a draft model that drafts by blocks says after the text: at most `most` drafts into *out,
 * which has none; fewer: no more are possible. */
gw_status gw_draft_by_block(gw_drafter *d, gw_sampler *sampler, int most, gw_draft_proposal *out);

/* draft_ahead.c */

/* Decides whether the draft model goes on while the target is at work; both sessions exist. */
gw_status gw_draft_ahead_open(gw_drafter *d);
void gw_draft_ahead_close(gw_drafter *d);
/* The target's pass over rows [drafts->n + 1], and beside it the draft model's steps, which add to
 * the known of *drafts. */
gw_status gw_draft_decode_both(gw_drafter *d, gw_sampler *sampler, gw_draft_proposal *drafts,
                               const int32_t *rows);

/* draft_verify.c */

/* One pass over the pending token and the drafts. Logits of a draft that no text would contain may
 * be broken where the text's own are not: then the drafts go. */
gw_status gw_draft_verify(gw_drafter *d, gw_sampler *sampler, gw_draft_proposal *drafts);
/* Tokens [drafts->n + 1] out of the logits of the pass. An error after the first token waits for
 * the next call. *out is zero. */
gw_status gw_draft_read_pass(gw_drafter *d, gw_sampler *sampler, const gw_draft_proposal *drafts,
                             int32_t *tokens, gw_draft_verdict *out);

#endif
