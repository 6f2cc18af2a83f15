/* apps/serve/random.c - the system's random bytes. */
#include "apps/serve/random.h"

#include <string.h>

#include "core/base/os.h"

void random_bytes(void *to, size_t n) {
    if (getrandom(to, n, 0) == (ssize_t)n) {
        return;
    }
    struct timespec now; /* a system that has none: at least not twice the same */
    clock_gettime(CLOCK_MONOTONIC, &now);
    memset(to, 0, n);
    memcpy(to, &now.tv_nsec, n < sizeof now.tv_nsec ? n : sizeof now.tv_nsec);
}
