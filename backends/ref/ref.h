/* backends/ref/ref.h - inside the ref backend: each op in double precision from its definition.
 *
 * Sums are double chains; nothing is rounded but what an op hands on: f32 results once, act8
 * outputs by gw_act8_encode after rounding to float, cache entries to the cache's format. Inputs
 * are exact (act8: q * scale). So the distance of a backend from ref is the error of its op.
 */
#ifndef GW_BACKENDS_REF_H
#define GW_BACKENDS_REF_H

#include "core/plan/backend.h"

/* Host memory: its own (base != NULL), or a mapped file's. */
struct gw_buffer {
    unsigned char *memory;
    void *base;
    size_t bytes;
};

typedef struct ref_op {
    /* Doubles of scratch that run() needs for `rows` live rows. */
    size_t (*scratch)(const gw_node *node, int rows);
    void (*run)(const gw_node *node, const gw_step *step, int rows, double *scratch);
} ref_op;

const ref_op *ref_op_of(gw_op op);

#endif
