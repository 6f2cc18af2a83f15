/* core/engine/drafting/draft_length.h - how many tokens to draft. Arithmetic only: times and
 * acceptances come from the caller, so a test can feed its own.
 *
 * fixed: always k.
 *
 * heuristic: starts at 5; two more after a pass whose drafts were all accepted, else one fewer,
 * never under 1 (the rule of the transformers library) or over 15; kept over calls.
 *
 * cost: the k, or none, with the most expected tokens per second, from measured times of a draft
 * step and of a pass of each width, and from running acceptances. A ledger bounds what wrong
 * guesses may cost: the seconds lost against single steps stay under two or three single steps +
 * LEDGER_SHARE of the time so far.
 */
#ifndef GW_ENGINE_DRAFT_LENGTH_H
#define GW_ENGINE_DRAFT_LENGTH_H

#include "include/godwit.h"

enum { GW_TRUST_BINS = 8 };

/* A running estimate of a time: the least of the first two, then an average that an interruption of
 * the machine cannot spoil, nearer to the quick ones. */
typedef struct gw_timing {
    double seconds;
    uint64_t n, last; /* samples; pass of the last one */
} gw_timing;

void gw_timing_add(gw_timing *t, double seconds, uint64_t pass);

/* What is known about one source of drafts. Counts fade, so that they follow the text. */
typedef struct gw_draft_record {
    gw_timing step;     /* seconds of a drafted token                                    */
    gw_timing read;     /* seconds of a pass over a few tokens of the text, up to a draft  */
    gw_timing catch_up; /* seconds per token of the text where more are read, as a prompt */
    int whole; /* all drafts of a pass come at once, in the seconds of `read`              */
    double tried[GW_DRAFT_MAX], kept[GW_DRAFT_MAX];           /* by position, those before kept */
    double bin_tried[GW_TRUST_BINS], bin_kept[GW_TRUST_BINS]; /* by the draft's own trust   */
    double tokens, seconds; /* of recent passes with this source: the rate they had       */
} gw_draft_record;

typedef enum gw_length_mode { GW_LENGTH_COST, GW_LENGTH_HEURISTIC, GW_LENGTH_FIXED } gw_length_mode;

typedef struct gw_length {
    gw_length_mode mode;
    int k;                          /* fixed: the length; heuristic: the next one   */
    gw_timing width[GW_DECODE_MAX]; /* seconds of a pass of 1.. tokens              */
    gw_timing pick;                 /* seconds of choosing one token                */
    int calm;                       /* single steps in a row that were no quicker   */
    int singles;                    /* single steps since the last draft            */
    double saved, elapsed;          /* the ledger, in seconds                       */
    double actual, expected;        /* of all passes: as they were, as estimated    */
    uint64_t passes;
} gw_length;

/* text: NULL, "cost", "heuristic" or "fixed:K"; GW_E_ARGUMENT. */
gw_status gw_length_parse(const char *text, gw_length *out);

typedef struct gw_length_plan {
    int k;
    double rate;  /* cost: tokens per second that k promises; 0: not known */
    double price; /* cost: tokens per second that one more draft must bring; 0: any */
    int ready;    /* of the k: drafted before, they cost nothing */
} gw_length_plan;

/* What a draft of up to `limit` tokens from this source is worth. behind: tokens that the source
 * has to read first; negative: so many are drafted already. trust: the source's own chance of its
 * first token, if known before drafting; else a negative number. */
gw_length_plan gw_length_choose(const gw_length *l, const gw_draft_record *r, int limit, int behind,
                                double trust);

/* 1 when one more draft pays after n tokens whose trusts are given, alone or with others of the
 * plan behind it. Looks only at tokens that will be verified, never at the next one: rejection
 * sampling needs that. */
int gw_length_goes_on(const gw_length *l, const gw_draft_record *r, const gw_length_plan *plan,
                      const float *trust, int n);

/* A pass as it was. r: the source, NULL for a pass without drafts. */
typedef struct gw_length_pass {
    int drafted, accepted, tokens;
    int ready;          /* of the drafted ones: there before the draft seconds began */
    int behind;         /* tokens read in bulk before drafting, in catch_up seconds */
    const float *trust; /* [drafted]; less than 0: not known */
    double catch_up, draft, verify, pick; /* seconds */
    double wasted; /* seconds before, for a single step that was begun and not wanted */
} gw_length_pass;

void gw_length_learn(gw_length *l, gw_draft_record *r, const gw_length_pass *pass);

/* Estimates; 0 when unknown. step: a pass of one token and its pick. */
double gw_length_width_seconds(const gw_length *l, int width);
double gw_length_step_seconds(const gw_length *l);
/* The same under the interruptions that the passes so far met: to compare with their mean. */
double gw_length_usual_step_seconds(const gw_length *l);
/* Chance that the token at position j (0..) of a draft is accepted when those before are. */
double gw_draft_record_chance(const gw_draft_record *r, int j);
/* The chance that drafts of this trust turned out to have. */
double gw_draft_record_trust(const gw_draft_record *r, double trust);

#endif
