/* core/plan/caches.c - the formats of KV caches: op.h. */
#include "core/plan/op.h"
#include "core/tensor/cells.h"

int gw_cache_bits(gw_fmt fmt) { return fmt == GW_FMT_Q4_0 ? 4 : fmt == GW_FMT_Q5_0 ? 5 : 0; }

int gw_cache_takes(gw_fmt fmt, int e) {
    int blocks = fmt == GW_FMT_Q8_0 || gw_cache_bits(fmt) > 0;
    return fmt == GW_FMT_F32 || fmt == GW_FMT_F16 || (blocks && e % 32 == 0);
}

int gw_cache_parts(gw_fmt fmt, int e, int first, int ev) {
    return gw_cache_bits(fmt) == 0 || (first | ev) % gw_cells_width(e) == 0;
}
