/* core/image/filter.h - the integer weights of one pass of a resize. */
#ifndef GW_IMAGE_FILTER_H
#define GW_IMAGE_FILTER_H

#include "core/image/resize.h"

/* Output i is (half + sum of weight[i][t] * input[first[i] + t], t < count[i]) >> shift, clipped,
 * with half = 1 << (shift - 1). first does not fall. */
typedef struct gw_taps {
    int32_t n, room;        /* outputs; most weights of one */
    int32_t *first, *count; /* [n]                          */
    int32_t *weight;        /* [n, room]                    */
    int shift;
} gw_taps;

/* GW_E_NOMEM. *out: gw_taps_free. */
gw_status gw_taps_make(const char *where, int32_t from, int32_t to, gw_filter filter,
                       gw_pixel_rule rule, gw_taps *out);
void gw_taps_free(gw_taps *taps);

#endif
