/* core/image/decode.h - what the readers of the three formats share. */
#ifndef GW_IMAGE_DECODE_H
#define GW_IMAGE_DECODE_H

#include "core/image/picture.h"

/* As a file stores it: not yet upright, alpha not yet composited. */
typedef struct gw_raster {
    int32_t width, height;
    int channels;    /* 3, or 4 with alpha                              */
    uint8_t *pixels; /* [height, width, channels], malloc'd             */
    int orientation; /* of EXIF, 1..8                                   */
} gw_raster;

/* A file in memory, and what may be made of it. */
typedef struct gw_encoded {
    const char *where;
    const uint8_t *data;
    size_t n;
    int64_t max_pixels;
} gw_encoded;

/* GW_E_LIMIT unless so many pixels are allowed; extra: bytes per pixel that decoding needs besides.
 */
gw_status gw_raster_check(const gw_encoded *in, int64_t width, int64_t height, int64_t extra);
/* pixels for width, height and channels of *out. GW_E_NOMEM. */
gw_status gw_raster_alloc(const gw_encoded *in, gw_raster *out);

/* jpeg.c, png.c, webp.c; *out is written on GW_OK only. */
gw_status gw_jpeg_read(const gw_encoded *in, gw_raster *out);
gw_status gw_png_read(const gw_encoded *in, gw_raster *out);
gw_status gw_webp_read(const gw_encoded *in, gw_raster *out);

/* exif.c: the orientation of a TIFF structure [n], with or without "Exif\0\0" in front of it; 1
 * when none is stated or anything about it is odd. */
int gw_exif_orientation(const uint8_t *data, size_t n);

/* orient.c: pixels, width and height become those of the upright picture. GW_E_NOMEM. */
gw_status gw_raster_orient(const gw_encoded *in, gw_raster *raster);

#endif
