/* core/plan/exchange_time.h - the exchange of cards of one backend alone, timed. */
#ifndef GW_PLAN_EXCHANGE_TIME_H
#define GW_PLAN_EXCHANGE_TIME_H

#include "core/plan/backend.h"
#include "include/godwit_cards.h"

/* gw_time_exchanges of godwit_cards.h on open devices [cards]. GW_E_ARGUMENT, GW_E_UNSUPPORTED. */
gw_status gw_exchange_time(const gw_backend *backend, struct gw_device *const *devices, int cards,
                           int32_t width, const int32_t *n, size_t count,
                           gw_exchange_result *results, double *flag_seconds);

#endif
