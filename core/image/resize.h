/* core/image/resize.h - resizing 8-bit RGB to the very bytes of two libraries.
 *
 * Both filter in two passes with integer weights and clip to 8 bits after each; a filter is as wide
 * as the scale when a picture shrinks (antialias). They differ in two things:
 *   PIL          Pillow 13, Image.resize of "RGB": weights of 22 fractional bits; horizontally
 *                first, unless the height shrinks, by more than twice what the width does (Pillow
 *                12 did so for pictures higher than 100 times their width)
 *   TORCHVISION  torchvision 0.29, resize of uint8 tensors with antialias: as many bits as fit the
 *                largest weight into 16; horizontally first
 * A pass that does not change the size is left out. Integer arithmetic: the same bytes everywhere.
 */
#ifndef GW_IMAGE_RESIZE_H
#define GW_IMAGE_RESIZE_H

#include <stdint.h>

#include "core/base/status.h"

typedef enum gw_filter { /* the numbers of PIL.Image.Resampling; 0, nearest, is not among them */
                         GW_FILTER_LANCZOS = 1,
                         GW_FILTER_BILINEAR,
                         GW_FILTER_BICUBIC,
                         GW_FILTER_BOX,
                         GW_FILTER_HAMMING,
                         GW_FILTER_COUNT
} gw_filter;

typedef enum gw_pixel_rule { GW_PIXELS_TORCHVISION, GW_PIXELS_PIL } gw_pixel_rule;

/* rgb [height, width, 3] to out [to_height, to_width, 3], the caller's, elsewhere. Sizes: 1 ..
 * GW_PICTURE_SIDE. Time: (to_width * height + to_width * to_height) times the filter's width;
 * memory: some rows. GW_E_NOMEM. */
gw_status gw_resize(const char *where, const uint8_t *rgb, int32_t width, int32_t height,
                    gw_filter filter, gw_pixel_rule rule, int32_t to_width, int32_t to_height,
                    uint8_t *out);

#endif
