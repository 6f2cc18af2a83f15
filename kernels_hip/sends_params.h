/* kernels_hip/sends_params.h - words from card to card, for the exchange (kernels_hip/sends.h). */
#ifndef GW_KERNELS_HIP_SENDS_PARAMS_H
#define GW_KERNELS_HIP_SENDS_PARAMS_H

#include "kernels_hip/params.h"

enum { GW_SENDS_CARDS = 8 /* at most */ };

/* Where words of an exchange arrive. A place has two halves, for exchanges of odd and even number,
 * each with a cell for every card's words: rows one behind the other. A card that has what the
 * others sent in an exchange knows that they have read what it sent in the one before. */
struct gw_sends {
    GW_DEV(uint32_t) arrives[GW_SENDS_CARDS]; /* that memory of each card                  */
    int64_t cell;                             /* pairs of a card's cell                    */
    int32_t cards, card;                      /* how many; which one this is. 0: no exchange */
    int32_t index;                            /* of the exchange in a step, from 1 on      */
    int32_t unused;
};

#endif
