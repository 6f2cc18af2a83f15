/* kernels_hip/rows/ngram_params.h - parameters of the kernels in ngram.hip. */
#ifndef GW_KERNELS_HIP_NGRAM_PARAMS_H
#define GW_KERNELS_HIP_NGRAM_PARAMS_H

#include "kernels_hip/params.h"
#include "core/tensor/ngram_row.h"

enum { GW_NGRAM_THREADS = 128 };

/* gw_ngram_FORMAT: a thread per column, grid (columns, rows); gw_ngram_note behind it: a thread per
 * row, grid (rows). state [slots, entries, hashes' size - 1]: tokens before, + 1. */
struct gw_ngram_params {
    struct gw_step_params step;
    GW_DEV(const void) table;  /* rows as stored, `wide` elements each */
    GW_DEV(const int32_t) ids; /* of rows without a token; may be 0 */
    GW_DEV(const gw_ngram) hashes;
    GW_DEV(float) state;
    GW_DEV(float) out; /* rows of `width` */
    int32_t wide, width, entries;
};

#endif
