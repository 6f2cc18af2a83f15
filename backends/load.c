/* backends/load.c - see load.h. */
#include "backends/load.h"

#include <stdatomic.h>

#include "core/base/team.h"

enum { EACH = 64 }; /* rows at once: sources read some of what rows share once for so many */

typedef struct loading {
    const gw_weight_source *src;
    int64_t first, n;
    size_t row_bytes;
    char *dst;
    _Atomic int64_t failed; /* the first row of a piece that did; INT64_MAX: none */
} loading;

static void load_piece(void *user, int64_t i) {
    loading *l = user;
    int64_t at = i * EACH, here = l->n - at < EACH ? l->n - at : EACH;
    void *to = l->dst + (size_t)at * l->row_bytes;
    if (atomic_load(&l->failed) == INT64_MAX &&
        l->src->rows(l->src, l->first + at, here, to) != GW_OK) {
        atomic_store(&l->failed, at);
    }
}

gw_status gw_load_rows(const gw_weight_source *src, int64_t first, int64_t n, size_t row_bytes,
                       void *dst) {
    loading l = {.src = src, .first = first, .n = n, .row_bytes = row_bytes, .dst = dst};
    atomic_init(&l.failed, INT64_MAX);
    gw_parallel_for(0, (n + EACH - 1) / EACH, load_piece, &l);
    int64_t at = atomic_load(&l.failed);
    /* once more: the text of an error belongs to the thread that met it */
    return at == INT64_MAX
               ? GW_OK
               : src->rows(src, first + at, n - at, (char *)dst + (size_t)at * row_bytes);
}
