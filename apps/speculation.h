/* apps/speculation.h - what the commands do alike with --draft: open it, say what it did. */
#ifndef GW_APPS_SPECULATION_H
#define GW_APPS_SPECULATION_H

#include <jansson.h>

#include "apps/common.h"

typedef struct app_draft {
    gw_model *model; /* or NULL */
    gw_drafter *drafter;
    char name[320]; /* "tales-2m Q8_0 and lookup" */
} app_draft;

/* A drafter for the session as the options say; path: the target's, NULL for the built-in one.
 * past_end: as in gw_drafter_options. Nothing happens without --draft. Exit code. Free with
 * draft_close in any case. */
int draft_open(const app_options *o, const gw_model *target, const char *path, gw_session *session,
               int past_end, app_draft *out);
void draft_close(app_draft *draft);

/* The same for many texts at once (gw_batch_options): *model and *lookup, none without --draft.
 * n_ctx: tokens of all caches together, beside which the model is placed. With 'auto' a model is
 * one that may fit; where it does not, gw_batch_new says so. Exit code; the caller closes it. */
int draft_open_many(const app_options *o, const gw_model *target, const char *path, int32_t n_ctx,
                    gw_model **model, int *lookup);

typedef struct draft_figures {
    gw_draft_stats stats;
    double tokens_per_pass;
    double with, without; /* tokens per second; without: estimated. 0: unknown */
    /* Milliseconds of a mean pass of the target, drafts, waste and all. */
    double draft_ms, read_ms, verify_ms, pick_ms, wasted_ms;
} draft_figures;

/* Of all that was done since the figures were `before`; NULL: of all. */
draft_figures draft_figures_of(const app_draft *draft, const gw_draft_stats *before);
/* Lines of the summary, on stderr. */
void draft_note(const app_options *o, const app_draft *draft);
/* The same as an object; NULL without memory. */
json_t *draft_json(const app_options *o, const app_draft *draft);

#endif
