/* kernels_hip/rows/exchange_params.h - parameters of the kernels in exchange.hip. */
#ifndef GW_KERNELS_HIP_EXCHANGE_PARAMS_H
#define GW_KERNELS_HIP_EXCHANGE_PARAMS_H

#include "kernels_hip/params.h"

enum {
    GW_EXCHANGE_THREADS = 128,
    GW_EXCHANGE_CARDS = 8,         /* at most */
    GW_EXCHANGE_BLOCKS = 1 << 16 /* what the blocks of a launch count together; at most so many */
};

/* What a card counts, in its own memory. */
struct gw_exchange_count {
    unsigned long long blocks; /* exchanges so far, times GW_EXCHANGE_BLOCKS */
};

/* gw_exchange_f32, gw_exchange_act8: grid (anything that runs at once). A place of memory where
 * words arrive has two halves, for exchanges of odd and even number, each with a cell for every
 * card's words: rows one behind the other. A card that has what the others sent in an exchange
 * knows that they have read what it sent in the one before. */
struct gw_exchange_params {
    struct gw_step_params step;
    GW_DEV(const uint32_t) share; /* of this card                                            */
    GW_DEV(uint32_t) out;
    GW_DEV(const float) plus; /* or 0; may be out */
    GW_DEV(struct gw_exchange_count) count;
    GW_DEV(int32_t) lost; /* in host memory: 1 when a card did not answer */
    GW_DEV(uint32_t) arrives[GW_EXCHANGE_CARDS]; /* that memory of each card */
    int64_t cell;                                /* pairs of a card's cell   */
    int32_t cards, card, parts;
    int32_t first[GW_EXCHANGE_CARDS + 1]; /* columns of a part, or blocks of act8 */
    int32_t width;                        /* of a whole row, in the same          */
    int32_t form;                         /* of out                               */
    /* Weights of a norm behind it, or 0, and what it leaves, as in gw_embed_params. */
    int32_t left_form, left_blocks;
    GW_DEV(const float) behind;
    GW_DEV(void) left;
    GW_DEV(float) left_squares;
};

#endif
