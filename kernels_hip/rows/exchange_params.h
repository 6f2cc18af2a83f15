/* kernels_hip/rows/exchange_params.h - parameters of the kernels in exchange.hip. */
#ifndef GW_KERNELS_HIP_EXCHANGE_PARAMS_H
#define GW_KERNELS_HIP_EXCHANGE_PARAMS_H

#include "kernels_hip/params.h"
#include "kernels_hip/sends_params.h"

enum { GW_EXCHANGE_THREADS = 128 };

/* gw_exchange_f32, gw_exchange_act8, of many rows gw_exchange_many_f32, gw_exchange_many_act8: grid
 * (anything that runs at once). gw_exchange_flag: one block; reads to (index is the number), lost
 * and width. */
struct gw_exchange_params {
    struct gw_step_params step;
    GW_DEV(const uint32_t) share; /* of this card */
    GW_DEV(uint32_t) out;
    GW_DEV(const float) plus; /* or 0; may be out */
    GW_DEV(int32_t) lost;     /* in host memory: 1 when a card did not answer */
    struct gw_sends to;
    int32_t parts;
    int32_t first[GW_SENDS_CARDS + 1]; /* columns of a part, or blocks of act8 */
    int32_t width;                     /* of a whole row, in the same          */
    int32_t form;                      /* of out                               */
    /* The launch in front has sent the share to all cards, this one too. early: nothing that is
     * written here is read by that launch, so it is not waited for before. */
    int32_t sent, early;
    int64_t flags; /* of many rows: chunks for which a card and half have one, behind all cells */
    /* Weights of a norm behind it, or 0, and what it leaves, as in gw_embed_params. */
    int32_t left_form, left_blocks;
    GW_DEV(const float) behind;
    GW_DEV(void) left;
    GW_DEV(float) left_squares;
};

#endif
