/* kernels_hip/params.h - what the C host side and the kernels agree on: how a parameter struct is
 * written, and the step block.
 *
 * A kernel takes one struct by value. Its fields have fixed widths; a device address is
 * GW_DEV(type). The structs stand in kernels_hip/NAME_params.h, read by both sides.
 */
#ifndef GW_KERNELS_HIP_PARAMS_H
#define GW_KERNELS_HIP_PARAMS_H

#include "core/tensor/dialect.h"

#if defined(__cplusplus)
#define GW_DEV(type) type * /* kernels: always C++ */
#else
#define GW_DEV(type) uint64_t /* host: an address it cannot read */
#endif

/* The step block in device memory, int32:
 *   n, pick, n_pick, pos_max, turn, exchanges, and of each row token, pos, slot, last, type, less
 *   (core/plan/step.h)
 * turn: which of two places of host memory takes what the step draws. exchanges: so many with other
 * cards came before, modulo 2^32. */
enum {
    GW_STEP_N,
    GW_STEP_PICK,
    GW_STEP_N_PICK,
    GW_STEP_POS_MAX,
    GW_STEP_TURN,
    GW_STEP_EXCHANGES,
    GW_STEP_ROWS, /* they begin here */
    GW_STEP_OF_ROW = 6
};

struct gw_step_params {
    GW_DEV(const int32_t) step;
    int32_t rows;   /* most that are live: the plan's                           */
    int32_t picked; /* 1: the node stands behind PICK, so n_pick rows are alive */
};

#endif
