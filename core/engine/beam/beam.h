/* core/engine/beam/beam.h - what the files of core/engine/beam share. */
#ifndef GW_ENGINE_BEAM_H
#define GW_ENGINE_BEAM_H

#include "core/engine/beam/hypotheses.h"
#include "core/engine/run/session_rows.h"

/* The cache of a running text. */
typedef struct gw_beam_fork {
    int32_t slot, n_pages;
    int32_t *pages; /* [pages of a context] */
} gw_beam_fork;

/* A text that is searched: one of options.texts at once. */
typedef struct gw_beam_lane {
    const gw_beam_input *in; /* NULL: free */
    size_t index;
    gw_views views; /* pictures of the prompt */
    gw_hypotheses h;
    gw_beam_fork *fork, *next; /* [n_beams], of h.running */
    int32_t first_slot;
} gw_beam_lane;

struct gw_beam {
    gw_model *model;
    gw_beam_options o;
    gw_session *session;
    int32_t ends[16];
    int n_ends;
    int32_t n_ctx, chunk, widest, n_lanes, per; /* per: pages of a context */
    gw_beam_lane *lane;
    int32_t *refs, *free, n_free; /* of pages of the pool */
    gw_row *rows;                 /* [of a pass] */
    void *room;                   /* a page on its way */
    float *logits;                /* [n_vocab] */
};

/* forks.c: pages. The running texts of a lane become those whose parents were parent [n]. */
gw_status gw_beam_fork_all(gw_beam *b, gw_beam_lane *lane, const int *parent, int n, int32_t pos);
/* A page for position pos of a running text, if it has none. */
gw_status gw_beam_reserve(gw_beam *b, gw_beam_fork *f, int32_t pos);
void gw_beam_drop(gw_beam *b, gw_beam_lane *lane);

#endif
