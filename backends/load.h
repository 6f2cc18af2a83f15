/* backends/load.h - rows of a weight on their way to a device. */
#ifndef GW_BACKENDS_LOAD_H
#define GW_BACKENDS_LOAD_H

#include "core/tensor/tensor.h"

/* Rows [first, first + n) of a source that makes them, `row_bytes` bytes each, to dst: by all
 * threads. The source's error, in the calling thread. */
gw_status gw_load_rows(const gw_weight_source *src, int64_t first, int64_t n, size_t row_bytes,
                       void *dst);

#endif
