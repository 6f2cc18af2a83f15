/* backends/load.c - see load.h. */
#include "backends/load.h"

#include <stdatomic.h>

enum { EACH = 64 }; /* rows at once: sources read some of what rows share once for so many */

gw_status gw_load_rows(const gw_weight_source *src, int64_t first, int64_t n, size_t row_bytes,
                       void *dst) {
    const int64_t pieces = (n + EACH - 1) / EACH;
    _Atomic int64_t failed = INT64_MAX;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < pieces; i++) {
        int64_t at = i * EACH, here = n - at < EACH ? n - at : EACH;
        void *to = (char *)dst + (size_t)at * row_bytes;
        if (atomic_load(&failed) == INT64_MAX &&
            src->rows(src, first + at, here, to) != GW_OK) {
            atomic_store(&failed, at);
        }
    }
    int64_t at = atomic_load(&failed);
    /* once more: the text of an error belongs to the thread that met it */
    return at == INT64_MAX
               ? GW_OK
               : src->rows(src, first + at, n - at, (char *)dst + (size_t)at * row_bytes);
}
