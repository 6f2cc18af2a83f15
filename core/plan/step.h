/* core/plan/step.h - the only values that differ between two runs of one plan.
 *
 * Backends keep a copy in device memory and kernels read it there, so that a captured graph or a
 * prepared launch list never has to be edited. */
#ifndef GW_PLAN_STEP_H
#define GW_PLAN_STEP_H

#include <stddef.h>
#include <stdint.h>

#include "include/godwit.h"

enum { GW_ROWS_MAX = GW_ENCODER_ROWS }; /* of a plan: an encoder takes a whole text at once */

typedef struct gw_step {
    int32_t n;       /* live rows, 1 .. the plan's rows                                  */
    int32_t pick;    /* PICK: first row handed on                                        */
    int32_t n_pick;  /* PICK and everything after it: live rows there                    */
    int32_t pos_max; /* largest position that the live rows have or see                 */
    int32_t token[GW_ROWS_MAX];
    int32_t pos[GW_ROWS_MAX];
    int32_t slot[GW_ROWS_MAX]; /* sequence of the row: row of the page table            */
    int32_t last[GW_ROWS_MAX]; /* last position that the row sees where attention looks both ways;
                                * else that of what is read at once with it, its own at least */
    int32_t type[GW_ROWS_MAX]; /* of the token: row of EMBED's table of types           */
    int32_t less[GW_ROWS_MAX]; /* tables of positions, EMBED's and ropes', count so many less */
} gw_step;

/* What kernels read, as int32_t: n, pick, n_pick, pos_max, two words of the backend's own, then of
 * each row token, pos, slot, last, type, less: so live rows are the front of the block, and no more
 * of it need be sent. */
enum {
    GW_STEP_OWN = 4, /* the first of the backend's words */
    GW_STEP_HEAD = 6,
    GW_STEP_WORDS = 6 /* of a row */
};

static inline size_t gw_step_bytes(int rows) {
    return (GW_STEP_HEAD + GW_STEP_WORDS * (size_t)rows) * sizeof(int32_t);
}

/* To out, a block of gw_step_bytes(rows), but for the backend's words and rows that are not live;
 * the bytes up to the last live row. */
static inline size_t gw_step_pack(const gw_step *step, int rows, int32_t *out) {
    int n = step->n > step->n_pick ? step->n : step->n_pick;
    n = n < rows ? n : rows;
    out[0] = step->n;
    out[1] = step->pick;
    out[2] = step->n_pick;
    out[3] = step->pos_max;
    int32_t *row = out + GW_STEP_HEAD;
    for (int i = 0; i < n; i++, row += GW_STEP_WORDS) {
        row[0] = step->token[i];
        row[1] = step->pos[i];
        row[2] = step->slot[i];
        row[3] = step->last[i];
        row[4] = step->type[i];
        row[5] = step->less[i];
    }
    return gw_step_bytes(n);
}

#endif
