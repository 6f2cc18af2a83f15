/* core/tensor/tensor.h - a shape, a format and a place. Plain data; owns nothing. */
#ifndef GW_TENSOR_TENSOR_H
#define GW_TENSOR_TENSOR_H

#include "core/tensor/formats.h"

struct gw_buffer; /* one device allocation; defined by the backend that made it */

/* Arrangement of the bytes of one format on one device. Backends number their own from
 * GW_LAYOUT_PRIVATE up; everyone else treats those as opaque. */
typedef enum gw_layout { GW_LAYOUT_ROWS, GW_LAYOUT_PRIVATE } gw_layout;

typedef struct gw_tensor {
    const char *name; /* borrowed: the model's string table or a literal */
    gw_fmt fmt;
    int layout; /* gw_layout, or a private number of buf's backend */
    int n_dim;
    int64_t dim[4]; /* C order: dim[n_dim - 1] is contiguous, [rows, cols] reads as written */
    struct gw_buffer *buf;
    size_t offset; /* bytes from the start of buf */
    int device;    /* of buf: index into the plan's device list */
} gw_tensor;

/* Where the rows of a weight come from while it is loaded: a mapped file, or a conversion. */
typedef struct gw_weight_source {
    const void *map; /* the whole tensor in GW_LAYOUT_ROWS, valid as long as the model; or NULL */
    int fd;          /* the file that map is of, open as long; 0: map is of none, or NULL */
    uint64_t at;     /* where in that file */
    /* Produce rows [first, first + n) in the tensor's format, GW_LAYOUT_ROWS. Any thread, several
     * at once. dst: n * row bytes. */
    gw_status (*rows)(const struct gw_weight_source *src, int64_t first, int64_t n, void *dst);
    const void *state; /* the producer's */
    int keep_rows;     /* 1: rows are looked up one by one (embedding): stays GW_LAYOUT_ROWS */
    int changes;       /* 1: rows of other weights will come in its place (fetch_weight) */
    int thin;          /* 1: B of adapters, few columns: GW_LAYOUT_ROWS if that suits the backend */
} gw_weight_source;

#endif
