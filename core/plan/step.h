/* core/plan/step.h - the only values that differ between two runs of one plan.
 *
 * Backends keep a copy in device memory and kernels read it there, so that a captured graph or a
 * prepared launch list never has to be edited. */
#ifndef GW_PLAN_STEP_H
#define GW_PLAN_STEP_H

#include <stdint.h>

#include "include/godwit.h"

typedef struct gw_step {
    int32_t n;       /* live rows, 1 .. the plan's rows                                  */
    int32_t pick;    /* PICK: first row handed on                                        */
    int32_t n_pick;  /* PICK and everything after it: live rows there                    */
    int32_t pos_max; /* largest position of the live rows                               */
    int32_t token[GW_CHUNK_MAX];
    int32_t pos[GW_CHUNK_MAX];
    int32_t slot[GW_CHUNK_MAX]; /* sequence of the row: row of the page table           */
} gw_step;

#endif
