/* core/engine/placing/cache_time.h - how fast a device's attention reads a cache in its own memory,
 * and one in main memory over its link; measured on sample layers. */
#ifndef GW_ENGINE_CACHE_TIME_H
#define GW_ENGINE_CACHE_TIME_H

#include "core/engine/placing/place.h"

/* Seconds of a byte that attention of a generated token reads; host 0: it cannot. */
typedef struct gw_cache_time {
    double own, host;
} gw_cache_time;

/* times [n_devices]. A second or less for each device; kept on disk by what it depends on.
 * GW_E_UNSUPPORTED: a model with a source text. */
gw_status gw_cache_times(const gw_place *place, const gw_place_sizes *sizes, gw_cache_time *times);

/* What reading the caches adds to a generated token with the context full, of layers placed so, as
 * gw_place_fits has left sizes->host. */
double gw_cache_seconds(const gw_place *place, const gw_place_sizes *sizes,
                        const gw_cache_time *times);

#endif
