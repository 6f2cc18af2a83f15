/* core/plan/step.h - the only values that differ between two runs of one plan.
 *
 * Backends keep a copy in device memory and kernels read it there, so that a captured graph or a
 * prepared launch list never has to be edited. */
#ifndef GW_PLAN_STEP_H
#define GW_PLAN_STEP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
    int32_t less[GW_ROWS_MAX]; /* EMBED's table of positions counts so many less        */
} gw_step;

/* What kernels of a plan of `rows` rows read, as int32_t: n, pick, n_pick, pos_max, then
 * token [rows], pos [rows], slot [rows], last [rows], type [rows], less
 * [rows]. */
enum { GW_STEP_HEAD = 4, GW_STEP_ARRAYS = 6 };

static inline size_t gw_step_bytes(int rows) {
    return (GW_STEP_HEAD + GW_STEP_ARRAYS * (size_t)rows) * sizeof(int32_t);
}

/* Rows that are not live keep what out[] held. */
static inline void gw_step_pack(const gw_step *step, int rows, int32_t *out) {
    size_t each = (size_t)rows, n = (size_t)(step->n > step->n_pick ? step->n : step->n_pick);
    int32_t *row = out + GW_STEP_HEAD;
    n = n < each ? n : each;
    out[0] = step->n;
    out[1] = step->pick;
    out[2] = step->n_pick;
    out[3] = step->pos_max;
    memcpy(row, step->token, n * sizeof *row);
    memcpy(row + each, step->pos, n * sizeof *row);
    memcpy(row + 2 * each, step->slot, n * sizeof *row);
    memcpy(row + 3 * each, step->last, n * sizeof *row);
    memcpy(row + 4 * each, step->type, n * sizeof *row);
    memcpy(row + 5 * each, step->less, n * sizeof *row);
}

#endif
