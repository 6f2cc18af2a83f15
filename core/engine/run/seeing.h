/* core/engine/run/seeing.h - pictures in a timeline: which rows of which sights stand where, and
 * the positions that follow from it.
 *
 * Where a model rotates pairs by time, row and column, a picture's rows have positions (t, t + row,
 * t + column), t being that of what comes before it, and text after it goes on at the largest + 1:
 * less than where its cache is. Keys and values lie in the order of the tokens all the same.
 *
 * Where rows of a picture see one another (the decoder's number picture_rows), all rows of a run
 * are in one pass, of which text is no part: so a row's bits do not depend on how a prompt was cut.
 */
#ifndef GW_ENGINE_SEEING_H
#define GW_ENGINE_SEEING_H

#include "core/engine/run/tower.h"

typedef struct gw_session gw_session;

/* One run of rows of a sight: tokens [pos, pos + n) of the timeline. */
typedef struct gw_view {
    gw_sight *sight; /* a holder */
    int32_t first, n, pos;
    int32_t less; /* positions that text before it counts less than its place */
} gw_view;

typedef struct gw_views {
    gw_view *view;
    int32_t n, room;
    int grid;      /* the model's ropes have rows and columns */
    int32_t whole; /* rows of a run see one another, at most so many; 0: they are read as text is */
} gw_views;

/* What a row of a pass has of a picture. row NULL: it is text. */
typedef struct gw_glance {
    const float *row; /* [1 + deep, d_model] */
    int32_t at[3];    /* time, row, column; where the model has such */
    int32_t last;     /* the last position that it sees, where rows of a picture see one another */
} gw_glance;

int gw_views_needed(const gw_hparams *hp); /* gw_views.grid */
/* Append runs, whose `at` counts from position pos of the timeline. GW_E_ARGUMENT: they overlap, or
 * do not lie within its n tokens; GW_E_LIMIT: a run of more rows than see one another; GW_E_NOMEM:
 * nothing was added. */
gw_status gw_views_add(gw_views *v, const gw_seen_rows *seen, size_t n_seen, int32_t pos, size_t n);
/* Forget what stands from position pos on; of a run that it cuts, the rest stays. */
void gw_views_cut(gw_views *v, int32_t pos);
/* Those of another timeline into an empty one. GW_E_NOMEM. */
gw_status gw_views_copy(gw_views *to, const gw_views *from);
void gw_views_free(gw_views *v);
/* Up to where a prompt goes on in one pass from pos: to the end of the run that begins there
 * (*whole 1), or to the next one; INT32_MAX: nothing stops it. */
int32_t gw_views_stop(const gw_views *v, int32_t pos, int *whole);
/* Does pos lie within a run whose rows see one another? */
int gw_views_within(const gw_views *v, int32_t pos);
/* How many positions less than its place text at pos counts. */
int32_t gw_views_less(const gw_views *v, int32_t pos);
/* Of positions [pos, pos + n): glances [n]; *any: some are of a picture. */
void gw_views_look(const gw_views *v, int32_t pos, int32_t n, gw_glance *out, int *any);

/* ---- of a session: buffers that prompts' plans read ---- */

/* Nothing where the model has no eyes. */
gw_status gw_seeing_new(gw_session *s);
void gw_seeing_free(gw_session *s);
/* Before a pass of a prompt, whose step is set: what its rows see; their step.less. */
gw_status gw_seeing_show(gw_session *s, const gw_glance *rows, int32_t n, int any);

#endif
