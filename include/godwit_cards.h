/* include/godwit_cards.h - beside godwit.h: what cards that compute a layer together hand to one
 * another, timed alone. */
#ifndef GODWIT_CARDS_H
#define GODWIT_CARDS_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_exchange_result {
    int32_t n; /* rows */
    /* Of one exchange, each a launch of its own behind another: of floats; of activation blocks,
     * 0 where the cards' shares are not whole blocks. */
    double f32_seconds, act8_seconds;
} gw_exchange_result;

/* Time it between devices ("hip:0,hip:1") that reach one another's memory, for each n [count],
 * 1..GW_CHUNK_MAX, and rows of `width` floats. *flag_seconds: until a word that the first writes is
 * seen by the second. GW_E_ARGUMENT; GW_E_UNSUPPORTED: they exchange through the host; what opening
 * a device gives. */
gw_status gw_time_exchanges(const char *devices, int32_t width, const int32_t *n, size_t count,
                            gw_exchange_result *results, double *flag_seconds);

#ifdef __cplusplus
}
#endif

#endif
