/* backends/hip/shape.h - which kernel a linear product in the decode order has, and what its blocks
 * take of a device. shape.c.
 */
#ifndef GW_BACKENDS_HIP_SHAPE_H
#define GW_BACKENDS_HIP_SHAPE_H

#include "backends/hip/hip.h"

typedef struct gw_linear_shape {
    const char *variant; /* behind the format's name          */
    int width;           /* rows of x in a block              */
    int most;            /* that the kernel can have          */
    int row_words;       /* of x in shared memory; 0: none    */
    int groups;          /* tiles at a time                   */
    int depth;           /* slots of a wave                   */
    int places;          /* for sums                          */
    int span;            /* of gw_linear_params; or 0         */
    int behind;          /* a norm is behind it               */
    unsigned threads;    /* of a block                        */
    unsigned shared;
} gw_linear_shape;

/* Bytes of a record of strips; 0: the format has none. */
int gw_hip_record_bytes(gw_fmt fmt);
/* The name in kernels of a format: its own, or that of the format whose strips look the same. */
const char *gw_hip_kernels_of(gw_fmt fmt);

/* Code for this device has the int8 matrix instructions; has GW_COPIES. */
int gw_hip_has_matrices(const struct gw_device *d);
int gw_hip_has_copies(const struct gw_device *d);

/* Blocks can be launched side by side. */
int gw_hip_has_clusters(const struct gw_device *d);

/* The shape for w and so many rows of x; glu: of gate and up; behind: a norm is behind it. 0 when
 * nothing fits, and *s is then undefined. */
int gw_hip_shape(const struct gw_device *d, const gw_tensor *w, int rows, int glu, int behind,
                 gw_linear_shape *s);

/* Are `blocks` blocks of attention of several rows to have a multiprocessor each, of `units`?
 * `grid` blocks of the product in front have `items` of equal length (0: not known). Where those
 * end first, attention begins, and two of its blocks would share a multiprocessor. That is good
 * where one each leaves some to wait for others and two each do not; else they only take longer
 * (measured on an H200 with two and four rows of six shapes). */
int gw_hip_stand_alone(unsigned units, unsigned items, unsigned grid, unsigned blocks);

#endif
