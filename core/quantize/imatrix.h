/* core/quantize/imatrix.h - importance of columns: mean square of what a matrix was multiplied
 * with, as llama-imatrix writes it (GGUF, or the older .dat), and as godwit calibrate does.
 */
#ifndef GW_QUANTIZE_IMATRIX_H
#define GW_QUANTIZE_IMATRIX_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

typedef struct gw_imatrix_entry {
    const char *name; /* of the weight */
    int64_t cols, experts;
    float *sums;   /* [experts, cols] of squares; .dat: times what makes them so */
    float *counts; /* [experts] rows */
} gw_imatrix_entry;

typedef struct gw_imatrix {
    struct gw_arena *arena;
    gw_imatrix_entry *list;
    size_t n;
    char dataset[256]; /* base name; "" */
    int64_t chunks, chunk_size;
} gw_imatrix;

/* GW_E_IO, file classes; GW_E_NUMERIC: a sum that is not finite or is below 0, with its tensor and
 * column. Released by gw_imatrix_free. */
gw_status gw_imatrix_read(const char *path, gw_imatrix *out);
gw_status gw_imatrix_parse(const char *where, const void *data, uint64_t size, gw_imatrix *out);
void gw_imatrix_free(gw_imatrix *m);
const gw_imatrix_entry *gw_imatrix_find(const gw_imatrix *m, const char *name);

/* Importance of each column [experts, cols]: means. An expert that no text has reached has the mean
 * of all, one of few rows is drawn towards it (as 64 rows). *unseen: how many have no rows. */
void gw_imatrix_means(const gw_imatrix_entry *e, float *out, int *unseen);

/* Writes the GGUF form, or the older one for a path that ends in .dat; whole or not at all. */
gw_status gw_imatrix_write(const gw_imatrix *m, const char *path);

#endif
