/* core/base/waits.c - counters of calls of drivers. */
#include "core/base/waits.h"

#include <stdatomic.h>

static atomic_int waiting; /* of the process, as its end is */
static atomic_uint ended;

void gw_wait_begin(void) { atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed); }

int gw_wait_end(int result) {
    atomic_fetch_add_explicit(&ended, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
    return result;
}

int gw_wait_stands_still(unsigned *seen) {
    const unsigned before = *seen;
    *seen = atomic_load(&ended);
    return *seen == before && atomic_load(&waiting) > 0;
}
