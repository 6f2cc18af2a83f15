/* core/base/clock.h - the clock that everything here is timed with. */
#ifndef GW_BASE_CLOCK_H
#define GW_BASE_CLOCK_H

#include "core/base/os.h"

/* Seconds since some moment, never set back. */
static inline double gw_seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
